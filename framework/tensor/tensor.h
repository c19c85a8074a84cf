#pragma once
// Tensor: dtype, shape, and contiguous row-major elements at a 64-byte aligned address (views
// excepted). A Tensor is a handle: copies share the elements, Clone() copies them. Also the other
// values that a variable can hold.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/dtype.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace coracle {

// Level of detail (Paddle's LoD): for each level, outermost first, where its sequences begin and
// end. Offsets of a level count sequences of the next one, those of the last level count rows.
using LoD = std::vector<std::vector<uint64_t>>;

class Tensor {
 public:
  Tensor() = default;  // float32, shape [0], no elements
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor(Tensor&& other) noexcept;  // leaves `other` as Tensor() makes one
  Tensor& operator=(Tensor&& other) noexcept;
  // Uninitialised elements. Throws kInvalidArgument for an unknown dtype or dimension,
  // OutOfMemory when the thread's ResourceLimits, or the system, do not give it.
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
  // Elements that `owner` keeps alive (or the caller, when owner is empty). Of an owner that is a
  // tensor's memory the view shares the version.
  static Tensor View(DType dtype, const Shape& shape, void* data, std::shared_ptr<void> owner = {});

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return numel_; }
  size_t nbytes() const { return static_cast<size_t>(numel_) * SizeOf(dtype_); }
  bool empty() const { return numel_ == 0; }

  void* raw() {
    MarkWritten();
    return data_;
  }
  const void* raw() const { return data_; }
  // Throws kInvalidArgument when T is not the dtype.
  template <class T>
  T* data() {
    RequireDType(DTypeOf<T>());
    MarkWritten();
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
  // Elements converted one by one (float to integer truncates and saturates; to bool: != 0; complex
  // to real takes the real part).
  Tensor Cast(DType dtype) const;

  // Becomes a copy of `from`, elements and LoD, in its own memory where that is large enough; a
  // view of the same type writes through.
  void CopyFrom(const Tensor& from);
  uint64_t capacity() const { return capacity_; }  // bytes of memory of its own; 0 for a view

  // A number that changes whenever somebody asks, through any handle, for write access to the
  // elements. It is unique to this memory in the life of the process. 0: unknown, because the
  // memory is not a tensor's own (or there is none).
  uint64_t version() const {
    return version_ ? std::atomic_ref(*version_).load(std::memory_order_relaxed) : 0;
  }
  // The memory of the elements, without keeping it alive, and version() of all tensors in it.
  std::weak_ptr<void> memory() const { return owner_; }
  static uint64_t VersionOf(const std::shared_ptr<void>& memory);
  // Changes version(), as all members do that give write access. For who writes through an address
  // that he got earlier.
  void MarkWritten() {
    if (version_) std::atomic_ref(*version_).fetch_add(1, std::memory_order_relaxed);
  }

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
  size_t capacity_ = 0;          // bytes at data_ when owner_ is our own allocation
  uint64_t* version_ = nullptr;  // lies beside the memory that owner_ keeps, shared by all handles
  LoD lod_;
};

// Throws kInvalidArgument, naming the variable, unless the offsets of each level of the tensor's
// LoD begin with 0, do not decrease, and end with the number of sequences of the next level, or of
// rows.
void CheckLod(const std::string& name, const Tensor& tensor);
// The number of sequences of each level.
std::vector<int64_t> LevelSizes(const LoD& lod);

// Aligned memory as tensors have it; empty for 0 bytes. Throws OutOfMemory.
std::shared_ptr<void> AllocateBytes(uint64_t bytes, const char* what);

// Bytes of the elements. Throws as Shape::numel does; what it returns cannot have overflowed.
uint64_t ByteSize(DType dtype, const Shape& shape);

// Same dtype, shape and bytes (so a nan equals itself, and 0.0 differs from -0.0).
bool BitEqual(const Tensor& a, const Tensor& b);

// A sparse tensor of `height` rows (slices along the first dimension) of which `rows` are stored; a
// row may occur several times (they add up), the others are zero.
struct SelectedRows {
  std::vector<int64_t> rows;
  int64_t height = 0;
  Tensor value;  // [rows.size(), ...]
};

// A list of tensors (LOD_TENSOR_ARRAY). An element that was never written has no elements.
// Remembers whether all written ones have one type, and keeps their memory for the next
// use after clear().
class TensorArray {
 public:
  TensorArray() = default;
  explicit TensorArray(size_t size) { resize(size); }
  TensorArray(std::initializer_list<Tensor> elements);
  TensorArray(const TensorArray& other);
  TensorArray& operator=(const TensorArray& other);
  TensorArray(TensorArray&& other) noexcept;  // leaves `other` as TensorArray() makes one
  TensorArray& operator=(TensorArray&& other) noexcept;

  size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  const Tensor& operator[](size_t i) const {  // throws kOutOfRange
    if (i >= elements_.size()) ThrowPast(i);
    return elements_[i];
  }
  auto begin() const { return elements_.begin(); }
  auto end() const { return elements_.end(); }
  bool IsWritten(size_t i) const { return i < written_.size() && written_[i]; }

  void push_back(Tensor element) { Set(size(), std::move(element)); }
  void resize(size_t size);
  void clear();

  // Element i, of that type, with elements for the caller to write; the array grows to hold it.
  Tensor& Write(size_t i, DType dtype, const Shape& shape);
  void Set(size_t i, Tensor element);
  void Unset(size_t i);  // as if never written

  // kNone: no element was written; kOne: the written ones have the type dtype(), shape().
  enum class Uniform { kNone, kOne, kMixed };
  Uniform uniform() const { return uniform_; }
  uint64_t capacity() const { return capacity_; }  // bytes of all elements' memory
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }

 private:
  [[noreturn]] void ThrowPast(size_t i) const;
  void Note(size_t i, DType dtype, const Shape& shape);
  void CountHandles(size_t size);
  void Swap(TensorArray& other) noexcept;

  uint64_t capacity_ = 0;
  Tensor handles_;  // as many bytes as elements_ takes, for limits of memory
  size_t handles_counted_ = 0;
  std::vector<Tensor> elements_, spare_;
  std::vector<bool> written_;
  Uniform uniform_ = Uniform::kNone;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
};

// The sequences of a LoD tensor from the longest to the shortest, those of one length in
// their order (LOD_RANK_TABLE).
struct RankTable {
  struct Item {
    int64_t index;   // of the sequence in the tensor
    int64_t length;  // in rows of the next level
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items;
  int64_t level = 0;
  LoD coarser;  // the levels above
};

class StepScopes;

// What a variable holds at run time; monostate: nothing yet.
using VarValue = std::variant<std::monostate, Tensor, SelectedRows, TensorArray, RankTable,
                              std::shared_ptr<StepScopes>>;

// A variable's place at run time. Its value outlives `set`, so that its memory can be used again.
struct VarCell {
  VarValue value;
  bool set = false;
};

// What gradient blocks need of each run of a block (STEP_SCOPES): one step per run, a stack.
class StepScopes {
 public:
  using Step = std::vector<VarCell>;  // in the order of BlockUse::saved
  size_t size() const { return size_; }
  Step& operator[](size_t i) { return steps_[i]; }
  Step& Push();              // memory of an earlier step at this place is used again
  void Count() { ++size_; }  // a run of which nothing is kept
  void clear() { size_ = 0; }

 private:
  std::vector<Step> steps_;
  size_t size_ = 0;
};

// Copies the elements too; memory of `to` is used again.
void CopyValue(const VarValue& from, VarValue* to);

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

// Scope: named values that outlive a run (parameters, optimizer state). Not synchronised: one
// writer at a time, and concurrent readers only while nobody adds or erases.

class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr);
  Scope(Scope&& other) noexcept;
  Scope& operator=(Scope&& other) noexcept;

  // The value of `name` in this scope, made (empty) when absent. The address holds until the
  // name is erased.
  VarValue& Var(const std::string& name);
  // Looked up here, then in the parents; nullptr when absent.
  const VarValue* Find(const std::string& name) const;
  VarValue* FindLocal(const std::string& name);

  void Set(const std::string& name, Tensor tensor) { Var(name) = std::move(tensor); }
  // Throws kNotFound for an absent name (with the nearest one), kInvalidArgument when it
  // holds no tensor.
  const Tensor& Get(const std::string& name) const;
  Tensor& GetMutable(const std::string& name);

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  bool Erase(const std::string& name);
  std::vector<std::string> LocalNames() const;  // sorted by bytes
  // While this number stays the same, addresses that Var and Find returned hold, and what Find did
  // not find is still absent. Unique in the process.
  uint64_t Generation() const;
  // Own tensors copied deeply; the same parent.
  Scope Clone() const;

 private:
  const Scope* parent_;
  uint64_t generation_;
  std::unordered_map<std::string, std::unique_ptr<VarValue>> values_;
};

// Deep copy of any value.
VarValue CloneValue(const VarValue& value);

}  // namespace coracle
