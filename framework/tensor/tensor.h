#pragma once
// Tensor: dtype, shape, and contiguous row-major elements at a 64-byte aligned address (views
// excepted). A Tensor is a handle: copies share the elements, Clone() copies them. Also the other
// values that a variable can hold.

#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/dtype.h>
#include <coracle/framework/tensor/shape.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace coracle {

// Level of detail: per level absolute offsets, outermost first (Paddle's LoD).
using LoD = std::vector<std::vector<uint64_t>>;

class Tensor {
 public:
  Tensor() = default;  // float32, shape [0], no elements
  // Uninitialised elements. Throws kInvalidArgument for an unknown dtype or dimension,
  // kResourceExhausted when the system has not the memory.
  Tensor(DType dtype, const Shape& shape);

  static Tensor Zeros(DType dtype, const Shape& shape);
  template <class T>
  static Tensor Of(const Shape& shape, std::span<const T> values);
  template <class T>
  static Tensor Of(const Shape& shape, std::initializer_list<T> values) {
    return Of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  static Tensor Of(const Shape& shape, const std::vector<T>& values) {
    return Of<T>(shape, std::span<const T>(values));
  }
  template <class T>
  static Tensor Full(const Shape& shape, T value);
  // Elements that `owner` keeps alive (or the caller, when owner is empty).
  static Tensor View(DType dtype, const Shape& shape, void* data, std::shared_ptr<void> owner = {});

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return numel_; }
  size_t nbytes() const { return static_cast<size_t>(numel_) * SizeOf(dtype_); }
  bool empty() const { return numel_ == 0; }

  void* raw() { return data_; }
  const void* raw() const { return data_; }
  // Throws kInvalidArgument when T is not the dtype.
  template <class T>
  T* data() {
    RequireDType(DTypeOf<T>());
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    RequireDType(DTypeOf<T>());
    return static_cast<const T*>(data_);
  }
  template <class T>
  std::span<T> span() {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  // The only element; throws when there is not exactly one.
  template <class T>
  T Item() const {
    RequireOneElement();
    return data<T>()[0];
  }

  // Becomes a tensor of this dtype and shape with uninitialised elements, in the memory that it has
  // when no other handle shares it and it is large enough. Throws as the constructor does.
  void Resize(DType dtype, const Shape& shape);

  Tensor Clone() const;
  // The same elements under another shape; throws unless numel agrees.
  Tensor Reshaped(const Shape& shape) const;
  // Elements converted one by one (float to integer truncates and saturates; to bool: != 0).
  Tensor Cast(DType dtype) const;

  LoD& lod() { return lod_; }
  const LoD& lod() const { return lod_; }

  std::string ToString() const;  // "float32[2, 3]"

 private:
  void RequireDType(DType wanted) const {
    if (wanted != dtype_) ThrowDType(wanted);
  }
  [[noreturn]] void ThrowDType(DType wanted) const;
  void RequireOneElement() const;

  DType dtype_ = DType::kFloat32;
  Shape shape_{0};
  int64_t numel_ = 0;
  void* data_ = nullptr;
  std::shared_ptr<void> owner_;
  size_t capacity_ = 0;  // bytes at data_ when owner_ is our own allocation
  LoD lod_;
};

// Same dtype, shape and bytes (so a nan equals itself, and 0.0 differs from -0.0).
bool BitEqual(const Tensor& a, const Tensor& b);

// A sparse tensor of `height` rows (slices along the first dimension) of which `rows` are stored; a
// row may occur several times (they add up), the others are zero.
struct SelectedRows {
  std::vector<int64_t> rows;
  int64_t height = 0;
  Tensor value;  // [rows.size(), ...]
};

using TensorArray = std::vector<Tensor>;

// What a variable holds at run time; monostate: nothing yet.
using Value = std::variant<std::monostate, Tensor, SelectedRows, TensorArray>;

template <class T>
Tensor Tensor::Of(const Shape& shape, std::span<const T> values) {
  Tensor t(DTypeOf<T>(), shape);
  if (static_cast<size_t>(t.numel()) != values.size()) {
    ThrowInvalid("a tensor of shape " + shape.ToString() + " needs " + std::to_string(t.numel()) +
                 " values, got " + std::to_string(values.size()));
  }
  T* out = t.data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return t;
}

template <class T>
Tensor Tensor::Full(const Shape& shape, T value) {
  Tensor t(DTypeOf<T>(), shape);
  for (T& x : t.span<T>()) x = value;
  return t;
}

}  // namespace coracle
