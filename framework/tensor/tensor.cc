#include <coracle/framework/base/address_sanitizer.h>
#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/framework/tensor/slab.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#ifdef CORACLE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace coracle {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// The number of bytes of a tensor that get huge pages, which the system provides much faster than
// small ones. The last page is included unless too much of it would be unused.
size_t HugeBytes(size_t bytes) {
  const size_t spare = bytes < kHugePage ? kHugePage / 8 : kHugePage / 2;
  return (bytes + spare) / kHugePage * kHugePage;
}

// The cost of a tensor besides its elements: handle, cell, allocator. It matters if a loop makes
// millions of small tensors.
constexpr size_t kOverhead = 256;

// Each memory starts its version count at another number.
uint64_t FirstVersion() {
  static std::atomic<uint64_t> memories{0};
  return (memories.fetch_add(1, std::memory_order_relaxed) + 1) << 32;
}

// During a run, other elements may still refer to the bytes.
void DropStrings(std::shared_ptr<void> bytes) {
  if (StringArena* arena = StringArena::Current()) arena->Keep(std::move(bytes));
}

struct Release {
  std::shared_ptr<ResourceLimits> limits;
  size_t bytes;
  uint64_t version = FirstVersion();
  // The chunk that the memory is part of, if any.
  std::shared_ptr<void> chunk = {};
  // The bytes of the elements, if the memory belongs to a tensor of strings.
  std::shared_ptr<void> strings = {};
  void operator()(void* data) {
    if (strings) DropStrings(std::move(strings));
    if (!chunk) std::free(data);
    chunk.reset();  // at once, since watchers of the memory keep this object alive
    if (limits) limits->Release(bytes);
  }
};

template <class What>
std::shared_ptr<void> Allocate(size_t bytes, What&& what) {
  Release release{ResourceLimits::Current(), bytes + kOverhead};
  if (release.limits) release.limits->Reserve(release.bytes, what);
  const size_t huge = HugeBytes(bytes);
  if (TensorSlab* slab = huge > 0 ? nullptr : TensorSlab::Current()) {
    const TensorSlab::Piece piece = slab->Take(bytes);
    release.chunk = piece.chunk;
    if (piece.data) return {piece.data, std::move(release)};
  }
  size_t alignment = huge > 0 ? kHugePage : kAlignment;
  size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, std::max(rounded, alignment));
  if (!data) {
    release(nullptr);
    throw OutOfMemory(
        fmt::format("the system cannot provide {} for {}", HumanBytes(bytes), what()));
  }
  if (huge > 0) ::madvise(data, huge, MADV_HUGEPAGE);
#ifdef CORACLE_ADDRESS_SANITIZER  // the rounding must not hide an overrun
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(data) + bytes, std::max(rounded, alignment) - bytes);
#endif
  return {data, std::move(release)};
}

uint64_t* VersionAt(const std::shared_ptr<void>& memory) {
  auto* release = memory ? std::get_deleter<Release>(memory) : nullptr;
  return release ? &release->version : nullptr;
}

// A view of null has a type and no elements.
void RequireElements(const Tensor& tensor) {
  if (tensor.numel() == 0 || tensor.raw()) return;
  ThrowInvalid(fmt::format("the elements of {} were read, which is a view of a null pointer",
                           tensor.ToString()));
}

// Makes `to` copies of the elements whose bytes belong to `memory`, their memory. Elements that
// follow each other and share their bytes, as a broadcast makes them, share the copy too.
void CopyStrings(const StringRef* from, int64_t n, StringRef* to,
                 const std::shared_ptr<void>& memory) {
  const auto is_new = [&](int64_t i) {
    return i == 0 || from[i].data != from[i - 1].data || from[i].size != from[i - 1].size;
  };
  uint64_t total = 0;
  for (int64_t i = 0; i < n; ++i) total += is_new(i) ? from[i].size : 0;
  std::shared_ptr<void> bytes = AllocateBytes(total, "strings");
  auto* at = static_cast<char*>(bytes.get());
  for (int64_t i = 0; i < n; ++i) {
    const StringRef element = from[i];
    if (!is_new(i)) {
      to[i] = to[i - 1];
      continue;
    }
    to[i] = {element.size > 0 ? at : nullptr, element.size};
    if (element.size > 0) std::memcpy(at, element.data, element.size);
    at += element.size;
  }
  auto* release = std::get_deleter<Release>(memory);
  if (release->strings) DropStrings(std::move(release->strings));
  release->strings = std::move(bytes);
}

template <class From, class To>
To ConvertElement(From value) {
  if constexpr (kIsComplex<To>) {
    using Part = RealType<To>;
    if constexpr (kIsComplex<From>)
      return To(static_cast<Part>(value.real()), static_cast<Part>(value.imag()));
    else
      return To(static_cast<Part>(value));
  } else if constexpr (kIsComplex<From> && std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (kIsComplex<From>) {
    return ConvertElement<RealType<From>, To>(value.real());
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<float>(value) != 0;
  } else if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return ToHalf<To>(value);
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    double v = static_cast<double>(value);
    if (std::isnan(v)) return 0;
    if (v <= static_cast<double>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    if (v >= static_cast<double>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return static_cast<To>(v);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

Tensor::Tensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape) {
  if (!IsValid(dtype)) ThrowInvalid("a tensor's dtype is unknown");
  if (!shape.IsKnown())
    ThrowInvalid(fmt::format("a tensor cannot have the shape {}", shape.ToString()));
  numel_ = shape.numel();
  if (numel_ > 0) {
    owner_ = Allocate(nbytes(), [this] { return ToString(); });
    data_ = owner_.get();
    capacity_ = nbytes();
    version_ = VersionAt(owner_);
    if (dtype == DType::kString) std::memset(data_, 0, nbytes());
  }
}

Tensor::Tensor(Tensor&& other) noexcept
    : dtype_(std::exchange(other.dtype_, DType::kFloat32)),
      shape_(other.shape_),
      numel_(std::exchange(other.numel_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      owner_(std::move(other.owner_)),
      capacity_(std::exchange(other.capacity_, 0)),
      version_(std::exchange(other.version_, nullptr)),
      lod_(std::move(other.lod_)) {
  other.shape_ = Shape{0};
  other.lod_.clear();
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

uint64_t Tensor::VersionOf(const std::shared_ptr<void>& memory) {
  uint64_t* version = VersionAt(memory);
  return version ? std::atomic_ref(*version).load(std::memory_order_relaxed) : 0;
}

std::shared_ptr<void> AllocateBytes(uint64_t bytes, const char* what) {
  if (bytes == 0) return {};
  return Allocate(bytes, [what] { return std::string(what); });
}

uint64_t ByteSize(DType dtype, const Shape& shape) {
  return static_cast<uint64_t>(shape.numel()) * SizeOf(dtype);
}

void Tensor::Resize(DType dtype, const Shape& shape) {
  const bool fits = IsValid(dtype) && shape.IsKnown() && owner_.use_count() == 1 &&
                    static_cast<uint64_t>(shape.numel()) <= capacity_ / SizeOf(dtype);
  if (!fits) {
    *this = Tensor(dtype, shape);
    return;
  }
  MarkWritten();
  dtype_ = dtype;
  shape_ = shape;
  numel_ = shape.numel();
  lod_.clear();
  if (dtype == DType::kString && numel_ > 0) std::memset(data_, 0, nbytes());
}

void Tensor::CopyFrom(const Tensor& from) {
  if (this == &from) return;
  RequireElements(from);
  const bool same = dtype_ == from.dtype_ && shape_ == from.shape_;
  const bool owns = from.dtype_ == DType::kString && !StringArena::Current();
  if (owns && !(same && capacity_ > 0 && owner_.use_count() == 1)) {
    *this = from.Clone();
    return;
  }
  if (numel_ > 0 && data_ == from.data_ && !(same && capacity_ == 0)) {
    *this = from.Clone();
    return;
  }
  if (!(same && capacity_ == 0 && data_)) Resize(from.dtype_, from.shape_);
  if (numel_ > 0 && data_ != from.data_) {
    MarkWritten();
    if (owns)
      CopyStrings(static_cast<const StringRef*>(from.data_), numel_, static_cast<StringRef*>(data_),
                  owner_);
    else
      std::memcpy(data_, from.data_, nbytes());
  }
  lod_ = from.lod_;
}

Tensor Tensor::Zeros(DType dtype, const Shape& shape) {
  Tensor t(dtype, shape);
  if (t.numel_ > 0) std::memset(t.data_, 0, t.nbytes());
  return t;
}

Tensor Tensor::View(DType dtype, const Shape& shape, void* data, std::shared_ptr<void> owner) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.numel_ = shape.numel();
  t.data_ = data;
  t.owner_ = std::move(owner);
  t.version_ = VersionAt(t.owner_);
  return t;
}

Tensor Tensor::Clone() const {
  RequireElements(*this);
  Tensor copy(dtype_, shape_);
  if (numel_ > 0 && dtype_ == DType::kString)
    CopyStrings(static_cast<const StringRef*>(data_), numel_, static_cast<StringRef*>(copy.data_),
                copy.owner_);
  else if (numel_ > 0)
    std::memcpy(copy.data_, data_, nbytes());
  copy.lod_ = lod_;
  return copy;
}

Tensor Tensor::OfStrings(const Shape& shape, std::span<const std::string> values) {
  if (static_cast<size_t>(shape.numel()) != values.size()) {
    ThrowInvalid(fmt::format("a tensor of shape {} needs {} strings, got {}", shape.ToString(),
                             shape.numel(), values.size()));
  }
  std::vector<StringRef> elements;
  elements.reserve(values.size());
  for (const std::string& value : values) elements.push_back({value.data(), value.size()});
  return View(DType::kString, shape, elements.data()).Clone();
}

std::vector<std::string> Tensor::Strings() const {
  std::vector<std::string> values;
  values.reserve(static_cast<size_t>(numel_));
  for (const StringRef& element : span<StringRef>()) values.emplace_back(element.view());
  return values;
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  if (shape.numel() != numel_) {
    ThrowInvalid(fmt::format("cannot view {} as {}", ToString(), shape.ToString()));
  }
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::Cast(DType dtype) const {
  RequireElements(*this);
  Tensor out(dtype, shape_);
  out.lod_ = lod_;
  if (dtype_ == DType::kString && dtype == DType::kString) return Clone();
  if (IsHalf(dtype_) && dtype == DType::kFloat32) {
    HalfToFloat(dtype_, data_, static_cast<float*>(out.data_), numel_);
    return out;
  }
  if (dtype_ == DType::kFloat32 && IsHalf(dtype)) {
    FloatToHalf(static_cast<const float*>(data_), dtype, out.data_, numel_);
    return out;
  }
  DispatchAnyDType(dtype_, [&]<class From>() {
    DispatchAnyDType(dtype, [&]<class To>() {
      const From* in = static_cast<const From*>(data_);
      To* o = static_cast<To*>(out.data_);
      for (int64_t i = 0; i < numel_; ++i) o[i] = ConvertElement<From, To>(in[i]);
    });
  });
  return out;
}

std::string Tensor::ToString() const {
  return fmt::format("{}{}", coracle::ToString(dtype_), shape_.ToString());
}

void Tensor::ThrowDType(DType wanted) const {
  ThrowInvalid(fmt::format("the tensor {} was read as {}", ToString(), coracle::ToString(wanted)));
}

void Tensor::RequireOneElement() const {
  RequireElements(*this);
  if (numel_ != 1)
    ThrowInvalid(fmt::format("Item() of {}, which has not exactly one element", ToString()));
}

// --- TensorArray ---

TensorArray::TensorArray(std::initializer_list<Tensor> elements) {
  for (const Tensor& t : elements) push_back(t);
}

// Spare memory is not shared.
TensorArray::TensorArray(const TensorArray& other)
    : written_(other.written_),
      uniform_(other.uniform_),
      dtype_(other.dtype_),
      shape_(other.shape_) {
  CountHandles(other.size());
  elements_ = other.elements_;
}

TensorArray::TensorArray(TensorArray&& other) noexcept { Swap(other); }

TensorArray& TensorArray::operator=(TensorArray&& other) noexcept {
  TensorArray taken(std::move(other));
  Swap(taken);
  return *this;
}

void TensorArray::Swap(TensorArray& other) noexcept {
  std::swap(capacity_, other.capacity_);
  std::swap(handles_, other.handles_);
  std::swap(handles_counted_, other.handles_counted_);
  std::swap(elements_, other.elements_);
  std::swap(spare_, other.spare_);
  std::swap(written_, other.written_);
  std::swap(uniform_, other.uniform_);
  std::swap(dtype_, other.dtype_);
  std::swap(shape_, other.shape_);
}

TensorArray& TensorArray::operator=(const TensorArray& other) {
  if (this != &other) *this = TensorArray(other);
  return *this;
}

void TensorArray::ThrowPast(size_t i) const {
  throw Error(ErrorCode::kOutOfRange, "a tensor array of " + std::to_string(size()) +
                                          " elements has no element " + std::to_string(i));
}

// Unwritten elements take memory too. An untouched tensor of the same size makes memory limits
// count them (twice, since a growing vector reserves more than requested).
void TensorArray::CountHandles(size_t size) {
  constexpr size_t kFew = 64;
  if (size <= std::max(kFew, handles_counted_)) return;
  handles_ = Tensor(DType::kUInt8, {CheckedMul(static_cast<int64_t>(size), 2, sizeof(Tensor))});
  handles_counted_ = size * 2;
}

void TensorArray::resize(size_t size) {
  CountHandles(size);
  for (size_t i = size; i < elements_.size(); ++i) Unset(i);
  elements_.resize(size);
  written_.resize(size, false);
}

void TensorArray::clear() {
  resize(0);
  uniform_ = Uniform::kNone;
}

void TensorArray::Unset(size_t i) {
  if (!IsWritten(i)) return;
  if (spare_.size() <= i) spare_.resize(i + 1);
  spare_[i] = std::move(elements_[i]);
  elements_[i] = Tensor();
  written_[i] = false;
}

void TensorArray::Note(size_t i, DType dtype, const Shape& shape) {
  written_[i] = true;
  if (uniform_ == Uniform::kNone) {
    uniform_ = Uniform::kOne;
    dtype_ = dtype;
    shape_ = shape;
  } else if (dtype != dtype_ || !(shape == shape_)) {
    uniform_ = Uniform::kMixed;
  }
}

Tensor& TensorArray::Write(size_t i, DType dtype, const Shape& shape) {
  if (i >= size()) resize(i + 1);
  Tensor& element = elements_[i];
  if (!written_[i] && i < spare_.size()) element = std::move(spare_[i]);
  const uint64_t before = element.capacity();
  element.Resize(dtype, shape);
  if (element.capacity() > before) capacity_ += element.capacity() - before;
  Note(i, dtype, shape);
  return element;
}

void TensorArray::Set(size_t i, Tensor element) {
  if (i >= size()) resize(i + 1);
  elements_[i] = std::move(element);
  Note(i, elements_[i].dtype(), elements_[i].shape());
}

StepScopes::Step& StepScopes::Push() {
  if (size_ >= steps_.size()) steps_.resize(size_ + 1);
  return steps_[size_++];
}

namespace {

void CopyArray(const TensorArray& from, TensorArray* to) {
  to->clear();
  to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if (from.IsWritten(i)) to->Write(i, from[i].dtype(), from[i].shape()).CopyFrom(from[i]);
  }
}

// The value in *to, replaced by a new one if it has another type.
template <class T>
T& As(VarValue* to) {
  if (!std::holds_alternative<T>(*to)) *to = T();
  return std::get<T>(*to);
}

}  // namespace

void CopyValue(const VarValue& from, VarValue* to) {
  Required(to, "the target of CopyValue");
  if (&from == to) return;
  if (const auto* tensor = std::get_if<Tensor>(&from)) {
    As<Tensor>(to).CopyFrom(*tensor);
  } else if (const auto* array = std::get_if<TensorArray>(&from)) {
    CopyArray(*array, &As<TensorArray>(to));
  } else if (const auto* rows = std::get_if<SelectedRows>(&from)) {
    auto& target = As<SelectedRows>(to);
    target.rows = rows->rows;
    target.height = rows->height;
    target.value.CopyFrom(rows->value);
  } else {
    *to = from;
  }
}

void CheckLod(const std::string& name, const Tensor& tensor) {
  const LoD& lod = tensor.lod();
  for (size_t k = 0; k < lod.size(); ++k) {
    const std::vector<uint64_t>& level = lod[k];
    const auto fail = [&](const std::string& what) {
      ThrowInvalid(fmt::format("the LoD of {} {} is wrong: level {} {}", Quote(name),
                               tensor.ToString(), k, what));
    };
    if (level.empty() || level[0] != 0) fail("does not begin with 0");
    for (size_t i = 1; i < level.size(); ++i) {
      if (level[i] < level[i - 1])
        fail(fmt::format("decreases from {} to {} at {}", level[i - 1], level[i], i));
    }
    const bool last = k + 1 == lod.size();
    const int64_t rows = tensor.shape().rank() > 0 ? tensor.shape()[0] : 0;
    const size_t end =
        last ? static_cast<size_t>(rows) : std::max<size_t>(1, lod[k + 1].size()) - 1;
    if (level.back() != end) {
      fail(fmt::format("ends with {} where there are {} {}", level.back(), end,
                       last ? "rows" : "sequences"));
    }
  }
}

std::vector<int64_t> LevelSizes(const LoD& lod) {
  std::vector<int64_t> sizes;
  for (const std::vector<uint64_t>& level : lod)
    sizes.push_back(static_cast<int64_t>(level.size()) - 1);
  return sizes;
}

bool BitEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() == DType::kString && b.dtype() == DType::kString) {
    const auto x = a.span<StringRef>(), y = b.span<StringRef>();
    return a.shape() == b.shape() &&
           std::equal(x.begin(), x.end(), y.begin(),
                      [](const StringRef& p, const StringRef& q) { return p.view() == q.view(); });
  }
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.empty() || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0);
}

}  // namespace coracle
