#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/control/add_value.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace coracle::inline internal {
namespace {

template <class T>
T& As(VarValue* value) {
  if (!std::holds_alternative<T>(*value)) *value = T();
  return std::get<T>(*value);
}

void SetZeros(const Tensor& like, Tensor* tensor) {
  const bool same = tensor->dtype() == like.dtype() && tensor->shape() == like.shape();
  if (!same) tensor->Resize(like.dtype(), like.shape());
  if (!tensor->empty()) std::memset(tensor->raw(), 0, tensor->nbytes());
}

[[noreturn]] void ThrowDiffer(const std::string& a, const std::string& b) {
  ThrowInvalid(fmt::format("gradients of one variable cannot be added: {} and {}", a, b));
}

void AddTensor(const Tensor& tensor, Tensor* total) {
  if (tensor.dtype() != total->dtype() || !(tensor.shape() == total->shape()))
    ThrowDiffer(tensor.ToString(), total->ToString());
  if (tensor.empty()) return;
  DispatchAnyDType(tensor.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      ThrowDiffer(tensor.ToString(), total->ToString());
    } else {
      const T* in = static_cast<const T*>(tensor.raw());
      T* out = static_cast<T*>(total->raw());
      ParallelFor(tensor.numel(), 32768, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(out[i] + in[i]);
      });
    }
  });
}

void AddArray(const TensorArray& array, TensorArray* total) {
  if (total->size() < array.size()) total->resize(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array.IsWritten(i)) continue;
    const Tensor& element = array[i];
    const bool first = !total->IsWritten(i);
    if (!first &&
        (element.dtype() != (*total)[i].dtype() || !(element.shape() == (*total)[i].shape())))
      ThrowDiffer(element.ToString(), (*total)[i].ToString());
    Tensor& sum = total->Write(i, element.dtype(), element.shape());
    first ? sum.CopyFrom(element) : AddTensor(element, &sum);
  }
}

void AddRowsToTensor(const SelectedRows& rows, Tensor* total) {
  if (rows.rows.empty()) return;
  Shape shape = rows.value.shape();
  if (shape.rank() > 0) shape[0] = rows.height;
  if (rows.value.dtype() != total->dtype() || !(shape == total->shape()))
    ThrowDiffer(rows.value.ToString(), total->ToString());
  const size_t bytes = rows.value.nbytes() / rows.rows.size();
  Shape row_shape = shape;
  row_shape[0] = 1;
  for (size_t k = 0; k < rows.rows.size(); ++k) {
    const int64_t row = rows.rows[k];
    if (row < 0 || row >= rows.height)
      throw Error(ErrorCode::kOutOfRange, fmt::format("selected rows hold the row {}", row));
    auto* from = static_cast<char*>(const_cast<void*>(rows.value.raw())) + k * bytes;
    Tensor to = Tensor::View(total->dtype(), row_shape,
                             static_cast<char*>(total->raw()) + static_cast<size_t>(row) * bytes);
    AddTensor(Tensor::View(total->dtype(), row_shape, from), &to);
  }
}

void AddRows(const SelectedRows& rows, SelectedRows* total) {
  const Shape& shape = rows.value.shape();
  if (rows.rows.empty()) return;
  if (total->rows.empty()) {
    *total = SelectedRows{rows.rows, rows.height, rows.value.Clone()};
    return;
  }
  if (rows.height != total->height || rows.value.dtype() != total->value.dtype())
    ThrowDiffer(rows.value.ToString(), total->value.ToString());
  Shape together = shape;
  together[0] += total->value.shape()[0];
  Tensor joined(rows.value.dtype(), together);
  auto* bytes = static_cast<char*>(joined.raw());
  std::memcpy(bytes, total->value.raw(), total->value.nbytes());
  std::memcpy(bytes + total->value.nbytes(), rows.value.raw(), rows.value.nbytes());
  total->value = std::move(joined);
  total->rows.insert(total->rows.end(), rows.rows.begin(), rows.rows.end());
}

}  // namespace

void SetZerosLike(const VarValue& like, VarValue* value) {
  if (const auto* tensor = std::get_if<Tensor>(&like)) {
    SetZeros(*tensor, &As<Tensor>(value));
  } else if (const auto* array = std::get_if<TensorArray>(&like)) {
    const size_t size = array->size();
    auto& zeros = As<TensorArray>(value);
    zeros.clear();
    zeros.resize(size);
  } else if (const auto* rows = std::get_if<SelectedRows>(&like)) {
    SelectedRows none;
    none.height = rows->height;
    Shape shape = rows->value.shape();
    if (shape.rank() > 0) shape[0] = 0;
    none.value = Tensor(rows->value.dtype(), shape);
    *value = std::move(none);
  } else {
    throw InternalError("zeros were asked for like a value that has no elements");
  }
}

void AddValue(const VarValue& value, VarValue* total) {
  const auto* sparse = std::get_if<SelectedRows>(&value);
  auto* dense = std::get_if<Tensor>(total);
  if (sparse && dense) return AddRowsToTensor(*sparse, dense);
  if (value.index() != total->index()) ThrowDiffer("one kind of value", "another");
  if (const auto* tensor = std::get_if<Tensor>(&value))
    AddTensor(*tensor, &std::get<Tensor>(*total));
  else if (const auto* array = std::get_if<TensorArray>(&value))
    AddArray(*array, &std::get<TensorArray>(*total));
  else if (const auto* rows = std::get_if<SelectedRows>(&value))
    AddRows(*rows, &std::get<SelectedRows>(*total));
}

}  // namespace coracle::inline internal
