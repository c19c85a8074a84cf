#pragma once
// Tensor: dtype, shape, and contiguous row-major elements at a 64-byte aligned address (views
// excepted). A Tensor is a handle: copies share the elements, Clone() copies them. Also the other
// values that a variable can hold.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace coracle {

// --- element types ---

// IEEE 754 binary16. The 16-bit floating-point types are for storage: arithmetic is done in float
// and rounded back to the nearest value, ties to even.
struct float16 {
  uint16_t bits = 0;
  float16() = default;
  float16(float value) : bits(FromFloat(value)) {}  // NOLINT: converts like the built-in types
  operator float() const { return ToFloat(bits); }  // NOLINT: as above

  static uint16_t FromFloat(float value) {
    uint32_t f = std::bit_cast<uint32_t>(value);
    uint32_t sign = (f >> 16) & 0x8000u;
    uint32_t magnitude = f & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) {  // inf, nan (kept a nan)
      const uint32_t nan = 0x200u | ((magnitude >> 13) & 0x3ffu);
      return static_cast<uint16_t>(sign | 0x7c00u | (magnitude > 0x7f800000u ? nan : 0u));
    }
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to inf
    if (magnitude < 0x38800000u) {                            // subnormal or zero
      float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // the adder rounds at 2^-24 for us
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
    }
    uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  static float ToFloat(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) {
      const uint32_t quiet = mantissa ? 0x400000u : 0u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) {
      float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
};

// The upper half of IEEE 754 binary32.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;  // NOLINTBEGIN(google-explicit-constructor): like the built-in types
  bfloat16(float value) : bits(FromFloat(value)) {}
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  // NOLINTEND(google-explicit-constructor)
  static uint16_t FromFloat(float value) {
    uint32_t f = std::bit_cast<uint32_t>(value);
    if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((f >> 16) | 0x40u);
    return static_cast<uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
  }
};

// The numbers are VarType.Type's of framework.proto, so that conversions are casts.
enum class DType : int32_t {
  kBool = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kFloat32 = 5,
  kFloat64 = 6,
  kUInt64 = 19,  // SIZE_T
  kUInt8 = 20,
  kInt8 = 21,
  kBFloat16 = 22,
  kComplex64 = 23,
  kComplex128 = 24,
  kString = 25,
};

const char* ToString(DType dtype);  // "float32"; "dtype(N)" numbers print as "unknown"
bool IsValid(DType dtype);          // one of the enumerators above
size_t SizeOf(DType dtype);         // bytes of one element; 0 if not valid
bool IsFloating(DType dtype);       // float16, bfloat16, float32, float64
bool IsInteger(DType dtype);        // the signed and unsigned integers, not bool
bool IsComplex(DType dtype);        // complex64, complex128
DType RealOf(DType dtype);          // float32 of complex64, float64 of complex128, else dtype
DType ComplexOf(DType dtype);       // complex128 of float64 and complex128, else complex64
bool ParseDType(std::string_view name, DType* dtype);  // "float32", "FP32", "INT64", ... any case

// An element of a tensor of strings: refers to bytes of any encoding, and does not own them
// (string_arena.h says who does). A StringRef whose memory is all zeros is the empty string.
struct StringRef {
  const char* data = nullptr;
  uint64_t size = 0;
  std::string_view view() const { return {data, size}; }
};

inline namespace internal {
// Whether T is std::complex<R>. Looks at the members of T, because including <complex> would make
// files compile a fifth slower.
template <class T, class R>
concept IsComplexOf = sizeof(T) == 2 * sizeof(R) && requires(const T& value) {
  { value.real() } -> std::same_as<R>;
  { value.imag() } -> std::same_as<R>;
};
template <class T>
inline constexpr bool kNoElement = false;
}  // namespace internal

// The dtype of elements of a C++ type, which may be std::complex<float> or std::complex<double>.
template <class T>
constexpr DType DTypeOf() {
  if constexpr (std::same_as<T, bool>)
    return DType::kBool;
  else if constexpr (std::same_as<T, int8_t>)
    return DType::kInt8;
  else if constexpr (std::same_as<T, uint8_t>)
    return DType::kUInt8;
  else if constexpr (std::same_as<T, int16_t>)
    return DType::kInt16;
  else if constexpr (std::same_as<T, int32_t>)
    return DType::kInt32;
  else if constexpr (std::same_as<T, int64_t>)
    return DType::kInt64;
  else if constexpr (std::same_as<T, uint64_t>)
    return DType::kUInt64;
  else if constexpr (std::same_as<T, StringRef>)
    return DType::kString;
  else if constexpr (std::same_as<T, float16>)
    return DType::kFloat16;
  else if constexpr (std::same_as<T, bfloat16>)
    return DType::kBFloat16;
  else if constexpr (std::same_as<T, float>)
    return DType::kFloat32;
  else if constexpr (std::same_as<T, double>)
    return DType::kFloat64;
  else if constexpr (IsComplexOf<T, float>)
    return DType::kComplex64;
  else if constexpr (IsComplexOf<T, double>)
    return DType::kComplex128;
  else
    static_assert(kNoElement<T>, "no dtype has elements of this C++ type");
}

// Throws kUnimplemented: "complex64 elements are not supported here".
[[noreturn]] void ThrowElements(DType dtype);

// Calls f.template operator()<T>() with the C++ type of `dtype` and returns its result. Throws
// kUnimplemented if `dtype` is complex, uint64 or string: few kernels compute on these.
template <class F>
decltype(auto) DispatchDType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f.template operator()<bool>();
    case DType::kInt8:
      return f.template operator()<int8_t>();
    case DType::kUInt8:
      return f.template operator()<uint8_t>();
    case DType::kInt16:
      return f.template operator()<int16_t>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    case DType::kInt64:
      return f.template operator()<int64_t>();
    case DType::kFloat16:
      return f.template operator()<float16>();
    case DType::kBFloat16:
      return f.template operator()<bfloat16>();
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kUInt64:
    case DType::kString:
      ThrowElements(dtype);
  }
  throw InternalError("dispatch on an unknown dtype");
}

// The dimensions of a tensor, outermost first. In programs -1 means that a dimension is unknown.

class Shape {
 public:
  static constexpr int kMaxRank = 9;  // Paddle's limit
  // More elements than fit into any machine, yet few enough that byte counts and their small
  // multiples cannot overflow.
  static constexpr int64_t kMaxElements = int64_t{1} << 48;
  static constexpr int64_t kMaxEmpty = int64_t{1} << 31;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);  // throws kInvalidArgument past kMaxRank
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  std::vector<int64_t> ToVector() const { return {begin(), end()}; }
  void Append(int64_t dim);  // throws past kMaxRank

  bool IsKnown() const;  // no dimension is negative
  // Whether the product of the positive dimensions exceeds kMaxElements, or kMaxEmpty if a
  // dimension is 0 (loops still walk over rows without elements).
  bool HasTooManyElements() const;
  // Product of the dimensions (1 for rank 0). Throws kOutOfRange if a dimension is negative or if
  // HasTooManyElements(), even if a dimension is 0, since strides are products of the others.
  int64_t numel() const;
  // Product of dims [begin, end), unchecked: for shapes whose numel() did not throw.
  int64_t Product(int begin, int end) const;

  // Maps an axis in [-rank, rank) to [0, rank); returns false for any other axis.
  bool NormalizeAxis(int64_t axis, int* normalized) const;

  bool operator==(const Shape& other) const;
  // True if the shapes are equal in all dimensions that both know.
  bool CompatibleWith(const Shape& other) const;

  std::string ToString() const;  // "[2, 3]"

 private:
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

// Level of detail (Paddle's LoD): for each level, outermost first, the offsets at which its
// sequences begin and end. The offsets count sequences of the next level, and in the last
// level rows.
using LoD = std::vector<std::vector<uint64_t>>;

class Tensor {
 public:
  Tensor() = default;  // float32, shape [0], no elements
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor(Tensor&& other) noexcept;  // leaves `other` like Tensor()
  Tensor& operator=(Tensor&& other) noexcept;
  // Uninitialised elements; of strings, empty ones. Throws kInvalidArgument for an unknown dtype or
  // dimension, and
  // OutOfMemory if the thread's ResourceLimits or the system refuse the memory.
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
  // A tensor of strings, with copies of their bytes. Throws like Of.
  static Tensor OfStrings(const Shape& shape, std::span<const std::string> values);
  // The elements of a tensor of strings.
  std::vector<std::string> Strings() const;
  // A view of elements that `owner` keeps alive (or the caller, if `owner` is empty). If `owner` is
  // the memory of a tensor, the view shares its version.
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
  // Throws kInvalidArgument if T is not the dtype.
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
  // The only element; throws unless there is exactly one.
  template <class T>
  T Item() const {
    RequireOneElement();
    return data<T>()[0];
  }

  // Becomes a tensor of this dtype and shape with uninitialised elements. Reuses its memory if no
  // other handle shares it and it is large enough. Throws like the constructor.
  void Resize(DType dtype, const Shape& shape);

  Tensor Clone() const;
  // The same elements under another shape; throws unless numel agrees.
  Tensor Reshaped(const Shape& shape) const;
  // Converts the elements one by one (float to integer truncates and saturates; to bool: != 0;
  // complex to real takes the real part).
  Tensor Cast(DType dtype) const;

  // Becomes a copy of `from`, elements and LoD, in its own memory if that is large enough. A view
  // of the same type writes through.
  void CopyFrom(const Tensor& from);
  // Bytes of memory of its own; 0 for a view.
  uint64_t capacity() const { return capacity_; }

  // A number that changes whenever someone requests write access to the elements through any
  // handle. It is unique to this memory during the life of the process. 0: unknown, because a
  // tensor does not own the memory (or there is none).
  uint64_t version() const {
    return version_ ? std::atomic_ref(*version_).load(std::memory_order_relaxed) : 0;
  }
  // The memory of the elements, without keeping it alive, and the version() of all tensors in it.
  std::weak_ptr<void> memory() const { return owner_; }
  static uint64_t VersionOf(const std::shared_ptr<void>& memory);
  // Changes version(), as all members that give write access do. For code that writes through an
  // address obtained earlier.
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
  size_t capacity_ = 0;  // bytes at data_ if owner_ is our own allocation
  // Stored in the allocation that owner_ keeps, and shared by all handles.
  uint64_t* version_ = nullptr;
  LoD lod_;
};

// Throws kInvalidArgument, naming the variable, unless the offsets of each level of the tensor's
// LoD begin with 0, do not decrease, and end with the number of sequences of the next level (for
// the last level, the number of rows).
void CheckLod(const std::string& name, const Tensor& tensor);
// The number of sequences of each level.
std::vector<int64_t> LevelSizes(const LoD& lod);

// Memory aligned like a tensor's; empty for 0 bytes. Throws OutOfMemory.
std::shared_ptr<void> AllocateBytes(uint64_t bytes, const char* what);

// Bytes of the elements, without overflow. Throws like Shape::numel.
uint64_t ByteSize(DType dtype, const Shape& shape);

// Same dtype, shape and bytes (so a nan equals itself, and 0.0 differs from -0.0); strings are
// equal if their characters are.
bool BitEqual(const Tensor& a, const Tensor& b);

// A sparse tensor with `height` rows (slices along the first dimension), of which only `rows` are
// stored. A row that occurs several times counts as the sum; missing rows are zero.
struct SelectedRows {
  std::vector<int64_t> rows;
  int64_t height = 0;
  Tensor value;  // [rows.size(), ...]
};

// A list of tensors (LOD_TENSOR_ARRAY). An element that was never written is empty. Remembers
// whether all written elements have the same type, and keeps their memory for reuse after clear().
class TensorArray {
 public:
  TensorArray() = default;
  explicit TensorArray(size_t size) { resize(size); }
  TensorArray(std::initializer_list<Tensor> elements);
  TensorArray(const TensorArray& other);
  TensorArray& operator=(const TensorArray& other);
  TensorArray(TensorArray&& other) noexcept;  // leaves `other` like TensorArray()
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

  // Element i with that type, for the caller to write; the array grows to hold it.
  Tensor& Write(size_t i, DType dtype, const Shape& shape);
  void Set(size_t i, Tensor element);
  void Unset(size_t i);  // as if never written

  // kNone: no element was written; kOne: all written elements have the type dtype(), shape().
  enum class Uniform { kNone, kOne, kMixed };
  Uniform uniform() const { return uniform_; }
  uint64_t capacity() const { return capacity_; }  // total memory of all elements, in bytes
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }

 private:
  [[noreturn]] void ThrowPast(size_t i) const;
  void Note(size_t i, DType dtype, const Shape& shape);
  void CountHandles(size_t size);
  void Swap(TensorArray& other) noexcept;

  uint64_t capacity_ = 0;
  // As large as the handles in elements_ (with room to grow), so that memory limits count them.
  Tensor handles_;
  size_t handles_counted_ = 0;
  std::vector<Tensor> elements_, spare_;
  std::vector<bool> written_;
  Uniform uniform_ = Uniform::kNone;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
};

// The sequences of a LoD tensor from longest to shortest, in their order if equally
// long (LOD_RANK_TABLE).
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

// The value of a variable at run time; monostate: none yet.
using VarValue = std::variant<std::monostate, Tensor, SelectedRows, TensorArray, RankTable,
                              std::shared_ptr<StepScopes>>;

// The run-time storage of a variable. The value outlives `set`, so that its memory can be reused.
struct VarCell {
  VarValue value;
  bool set = false;
};

// The values that gradient blocks need from each run of a block (STEP_SCOPES): a stack with one
// step per run.
class StepScopes {
 public:
  using Step = std::vector<VarCell>;  // in the order of BlockUse::saved
  size_t size() const { return size_; }
  Step& operator[](size_t i) { return steps_[i]; }
  Step& Push();              // reuses the memory of an earlier step at this depth
  void Count() { ++size_; }  // counts a run that saves nothing
  void clear() { size_ = 0; }

 private:
  std::vector<Step> steps_;
  size_t size_ = 0;
};

// Copies the elements too, reusing the memory of `to`.
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

// Scope: named values that outlive a run (parameters, optimizer state). Not synchronised: only one
// writer at a time, and concurrent readers only while no variable is added or erased.

class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr);
  Scope(Scope&& other) noexcept;
  Scope& operator=(Scope&& other) noexcept;

  // The value of `name` in this scope, added (empty) if absent. The address stays valid until the
  // name is erased.
  VarValue& Var(const std::string& name);
  // Looks here, then in the parents; nullptr if absent.
  const VarValue* Find(const std::string& name) const;
  VarValue* FindLocal(const std::string& name);

  void Set(const std::string& name, Tensor tensor) { Var(name) = std::move(tensor); }
  // Throws kNotFound for an absent name (suggesting the nearest one), and kInvalidArgument if it
  // does not hold a tensor.
  const Tensor& Get(const std::string& name) const;
  Tensor& GetMutable(const std::string& name);

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  bool Erase(const std::string& name);
  std::vector<std::string> LocalNames() const;  // sorted by bytes
  // While this number stays the same, addresses returned by Var and Find stay valid, and names that
  // Find did not find are still absent. Unique in the process.
  uint64_t Generation() const;
  // A scope with deep copies of its own values and the same parent.
  Scope Clone() const;

 private:
  const Scope* parent_;
  uint64_t generation_;
  std::unordered_map<std::string, std::unique_ptr<VarValue>> values_;
};

// Deep copy of any value.
VarValue CloneValue(const VarValue& value);

}  // namespace coracle
