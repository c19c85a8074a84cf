#pragma once
// Constants in the attrs of an op, one list for each dtype: assign_value, set_value.

#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

inline bool HasAssignedValues(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kString;
}

// Declares the attrs that AssignedValues reads.
inline void AddAssignedValues(OpDef& def) {
  def.Attr<std::vector<int32_t>>("bool_values", {}, "values for bool: 0 or 1")
      .Attr<std::vector<float>>("fp32_values", {}, "values for float32")
      .Attr<std::vector<double>>("fp64_values", {}, "values for float64")
      .Attr<std::vector<int32_t>>("int32_values", {}, "values for int32")
      .Attr<std::vector<int64_t>>("int64_values", {}, "values for int64")
      .Attr<std::vector<std::string>>("string_values", {}, "values for string")
      .Attr<std::vector<Scalar>>("values", {},
                                 "values for any type of numbers, instead of the lists above: "
                                 "programs since Paddle 2.5 have them");
}

// Attr `values` as a tensor of rank 1.
Tensor AssignedScalars(const std::vector<Scalar>& values, DType dtype);

// The values of the attr for the dtype, as a tensor of rank 1; an empty tensor for a dtype without
// an attr.
template <class Context>
Tensor AssignedValues(const Context& ctx, DType dtype) {
  const auto of = [&]<class T>(const char* attr, T) {
    const auto values = ctx.template Attr<std::vector<T>>(attr);
    return Tensor::Of<T>({static_cast<int64_t>(values.size())}, values);
  };
  const auto scalars = ctx.template Attr<std::vector<Scalar>>("values");
  if (!scalars.empty() && HasAssignedValues(dtype) && dtype != DType::kString)
    return AssignedScalars(scalars, dtype);
  switch (dtype) {
    case DType::kBool:
      return of("bool_values", int32_t{}).Cast(DType::kBool);
    case DType::kFloat32:
      return of("fp32_values", float{});
    case DType::kFloat64:
      return of("fp64_values", double{});
    case DType::kInt32:
      return of("int32_values", int32_t{});
    case DType::kInt64:
      return of("int64_values", int64_t{});
    case DType::kString: {
      const auto values = ctx.template Attr<std::vector<std::string>>("string_values");
      return Tensor::OfStrings({static_cast<int64_t>(values.size())}, values);
    }
    default:
      return Tensor();
  }
}

}  // namespace coracle::inline internal
