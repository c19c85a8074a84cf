#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/string_arena.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::map_values_op {

// One of three lists of attrs, as keys or values: "keys_strings", "keys_int64s", "keys_float64s".
enum class Kind { kStrings, kIntegers, kFloats };

Kind KindOf(DType dtype) {
  if (dtype == DType::kString) return Kind::kStrings;
  return IsFloating(dtype) ? Kind::kFloats : Kind::kIntegers;
}

struct Lists {
  template <class Context>
  Lists(const Context& ctx, const std::string& prefix)
      : strings(ctx.template Attr<std::vector<std::string>>(prefix + "_strings")),
        integers(ctx.template Attr<std::vector<int64_t>>(prefix + "_int64s")),
        floats(ctx.template Attr<std::vector<double>>(prefix + "_float64s")) {}

  size_t Size(Kind kind) const {
    return kind == Kind::kStrings    ? strings.size()
           : kind == Kind::kIntegers ? integers.size()
                                     : floats.size();
  }
  size_t All() const { return strings.size() + integers.size() + floats.size(); }

  std::vector<std::string> strings;
  std::vector<int64_t> integers;
  std::vector<double> floats;
};

bool IsMapped(DType dtype) {
  return dtype == DType::kString || dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
         (IsInteger(dtype) && dtype != DType::kUInt64);
}

void InferMap(InferContext& ctx) {
  const DType x = ctx.InputDType("X"), out = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  ctx.Require("C1", IsMapped(x), "X", x);
  ctx.Require("C2", IsMapped(out), ctx.Attr<int32_t>("out_dtype"));
  const Lists keys(ctx, "keys"), values(ctx, "values");
  const size_t count = keys.Size(KindOf(x));
  ctx.Require("C3", keys.All() == count, "X", x, "keys of another kind", keys.All() - count);
  ctx.Require("C4", values.All() == count && values.Size(KindOf(out)) == count, "keys", count,
              "values", values.Size(KindOf(out)));
  VarMeta meta = ctx.Input("X");
  meta.dtype = out;
  ctx.SetOutput("Out", meta);
}

// The index of each key; the last one counts if a key is repeated.
class KeyTable {
 public:
  explicit KeyTable(const Lists& keys) {
    for (size_t i = 0; i < keys.strings.size(); ++i) strings_[keys.strings[i]] = i;
    for (size_t i = 0; i < keys.integers.size(); ++i) numbers_[KeyOf(keys.integers[i])] = i;
    for (size_t i = 0; i < keys.floats.size(); ++i) numbers_[KeyOf(keys.floats[i])] = i;
  }
  // nullptr if there is none.
  template <class T>
  const size_t* Find(const T& value) const {
    if constexpr (std::is_same_v<T, StringRef>) {
      const auto found = strings_.find(std::string(value.view()));
      return found == strings_.end() ? nullptr : &found->second;
    } else {
      const auto found = numbers_.find(KeyOf(value));
      return found == numbers_.end() ? nullptr : &found->second;
    }
  }

 private:
  // All nans are one key, and so are 0 and -0.
  template <class T>
  static uint64_t KeyOf(T value) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      const auto wide = static_cast<double>(value);
      if (std::isnan(wide)) return UINT64_MAX;
      return std::bit_cast<uint64_t>(wide == 0 ? 0.0 : wide);
    }
  }
  std::unordered_map<std::string, size_t> strings_;
  std::unordered_map<uint64_t, size_t> numbers_;
};

// The values as a tensor of Out's dtype, with the default at the end.
Tensor ValueTable(const PrepareContext& ctx, DType dtype) {
  Lists values(ctx, "values");
  const auto shape = [](const auto& list) { return Shape{static_cast<int64_t>(list.size())}; };
  switch (KindOf(dtype)) {
    case Kind::kStrings:
      values.strings.push_back(ctx.Attr<std::string>("default_string"));
      return Tensor::OfStrings(shape(values.strings), values.strings);
    case Kind::kIntegers:
      values.integers.push_back(ctx.Attr<int64_t>("default_int64"));
      return Tensor::Of<int64_t>(shape(values.integers), values.integers).Cast(dtype);
    default:
      values.floats.push_back(ctx.Attr<double>("default_float64"));
      return Tensor::Of<double>(shape(values.floats), values.floats).Cast(dtype);
  }
}

std::string TextOf(const StringRef& value) { return Quote(std::string(value.view())); }
template <class T>
std::string TextOf(const T& value) {
  return fmt::format("{}", value);
}

template <class T>
[[noreturn]] void ThrowUnknown(const T& value) {
  ThrowInvalid(
      fmt::format("map_values: X holds {}, which is none of the keys, and there is no "
                  "default",
                  TextOf(value)));
}

template <class T, class To>
Kernel MapTo(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const auto keys = std::make_shared<const KeyTable>(Lists(ctx, "keys"));
  const auto values = std::make_shared<const Tensor>(ValueTable(ctx, out.dtype));
  const bool has_default = ctx.Attr<bool>("has_default");
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(x);
    To* to = ws.Data<To>(out);
    const To* table = static_cast<const To*>(values->raw());
    const size_t otherwise = static_cast<size_t>(values->numel()) - 1;
    for (int64_t i = 0; i < x.numel; ++i) {
      const size_t* found = keys->Find(from[i]);
      if (!found && !has_default) ThrowUnknown(from[i]);
      to[i] = table[found ? *found : otherwise];
    }
  };
}

// Calls f with an element type of IsMapped.
template <class F>
Kernel DispatchMapped(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kString:
      return f.template operator()<StringRef>();
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kInt8:
      return f.template operator()<int8_t>();
    case DType::kUInt8:
      return f.template operator()<uint8_t>();
    case DType::kInt16:
      return f.template operator()<int16_t>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    default:
      return f.template operator()<int64_t>();
  }
}

Kernel Map(const PrepareContext& ctx) {
  return DispatchMapped(ctx.Input("X").dtype, [&]<class T>() {
    switch (SizeOf(ctx.Output("Out").dtype)) {  // values are only moved
      case 1:
        return MapTo<T, uint8_t>(ctx);
      case 2:
        return MapTo<T, uint16_t>(ctx);
      case 4:
        return MapTo<T, uint32_t>(ctx);
      case 8:
        return MapTo<T, uint64_t>(ctx);
      default:
        return MapTo<T, StringRef>(ctx);
    }
  });
}

void DeclareLists(OpDef& def, const std::string& prefix, const char* of) {
  const auto doc = [&](const char* kind) { return fmt::format("the {}, for {}", of, kind); };
  def.Attr<std::vector<std::string>>(prefix + "_strings", {}, doc("strings"))
      .Attr<std::vector<int64_t>>(prefix + "_int64s", {}, doc("integers"))
      .Attr<std::vector<double>>(prefix + "_float64s", {}, doc("floats"));
}

void Register(OpRegistry& ops) {
  OpDef def("map_values");
  def.Doc(
         "Out = for each element of X, the value of the key that equals it; without such a key, "
         "the default. If a key is repeated, its last value counts. A nan equals every nan.")
      .Constraint("C1",
                  "X must be strings, integers of up to 64 bits with a sign, float32 or "
                  "float64")
      .Constraint("C2", "out_dtype must be the number of such a type")
      .Constraint("C3", "the keys must have the kind of X's elements")
      .Constraint("C4", "there must be a value of the kind of out_dtype for each key")
      .Input("X", "tensor of any shape")
      .Output("Out", "tensor of X's shape and of out_dtype")
      .Attr<int32_t>("out_dtype", "the dtype of Out")
      .Apply(DeclareLists, "keys", "keys")
      .Apply(DeclareLists, "values", "values")
      .Attr<bool>("has_default", true, "whether there is a default; else a run fails instead")
      .Attr<std::string>("default_string", std::string(), "the default, if Out is strings")
      .Attr<int64_t>("default_int64", 0, "the default, if Out is integers")
      .Attr<double>("default_float64", 0.0, "the default, if Out is floats")
      .Strings()
      .Elementwise()
      .Infer(InferMap)
      .NotDifferentiable("a table is piecewise constant")
      .Reference(Map);
  ops.Add(std::move(def));
}

}  // namespace coracle::map_values_op
