#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/inspect/inspect.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace coracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
complex128 Widened(T value) {
  if constexpr (kIsComplex<T>)
    return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
  else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

bool IsFinite(const complex128& value) {
  return std::isfinite(value.real()) && std::isfinite(value.imag());
}

bool SamePart(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// |a - b| of int64 or uint64.
template <class A, class B>
double IntegerDistance(A a, B b) {
  if (std::cmp_less(a, b)) return IntegerDistance(b, a);
  // The difference fits uint64 unless only a is one.
  if (std::is_same_v<A, uint64_t> && std::cmp_less(b, 0))
    return static_cast<double>(a) + static_cast<double>(0 - static_cast<uint64_t>(b));
  return static_cast<double>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// |a - b| for a finite b. Subtracts the integral parts first, so that nothing is rounded.
template <class A>
double MixedDistance(A a, double b) {
  constexpr double kEnd = std::is_signed_v<A> ? 0x1p63 : 0x1p64;  // after the largest
  constexpr double kBegin = std::is_signed_v<A> ? -kEnd : 0;
  if (b < kBegin) return IntegerDistance(a, std::numeric_limits<A>::min()) + (kBegin - b);
  if (b >= kEnd) return IntegerDistance(a, std::numeric_limits<A>::max()) + 1 + (b - kEnd);
  const double whole = std::trunc(b);
  const auto integer = static_cast<A>(whole);
  const double distance = IntegerDistance(a, integer);
  return std::abs((a < integer ? -distance : distance) - (b - whole));
}

// An integer or bool as int64 or uint64.
template <class T>
auto Long(T value) {
  return static_cast<std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>>(value);
}

// |a - b| of two finite values.
template <class A, class B>
double Distance(A a, B b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
    return IntegerDistance(Long(a), Long(b));
  else if constexpr (std::is_integral_v<A>)
    return MixedDistance(Long(a), static_cast<double>(b));
  else if constexpr (std::is_integral_v<B>)
    return MixedDistance(Long(b), static_cast<double>(a));
  else
    return std::abs(Widened(a) - Widened(b));
}

template <class T>
std::optional<int64_t> IntegerOf(T value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::in_range<int64_t>(
            static_cast<std::conditional_t<std::is_same_v<T, bool>, int, T>>(value)))
      return static_cast<int64_t>(value);
  }
  return std::nullopt;
}

// Compares an element of A with the one of B.
struct Element {
  double distance = 0;
  double excess = 0;  // distance minus the tolerance; inf for nan or infinity on one side
  bool outside = false, non_finite = false;
};

template <class A, class B>
Element CompareElement(A a, B b, const Tolerance& tolerance) {
  const complex128 wide_a = Widened(a), wide_b = Widened(b);
  if (!IsFinite(wide_a) || !IsFinite(wide_b)) {
    if (SamePart(wide_a.real(), wide_b.real()) && SamePart(wide_a.imag(), wide_b.imag()))
      return {0, -kInfinity, false, false};
    return {kInfinity, kInfinity, true, true};
  }
  const double distance = Distance(a, b);
  const bool exact = std::is_integral_v<A> && std::is_integral_v<B> && tolerance.exact_integers;
  const double allowed = exact ? 0 : tolerance.absolute + tolerance.relative * std::abs(wide_b);
  return {distance, distance - allowed, distance > allowed, false};
}

std::vector<int64_t> IndexOf(int64_t position, const Shape& shape) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<size_t>(axis)] = position % shape[axis];
    position /= shape[axis];
  }
  return index;
}

// The digits of a uint64 that int64 does not hold.
template <class T>
std::string LargeText(T value) {
  if constexpr (std::is_same_v<T, uint64_t>)
    if (value > static_cast<uint64_t>(INT64_MAX)) return fmt::format("{}", value);
  return "";
}

template <class A, class B>
WorstElement Worst(A a, B b, int64_t position, const Shape& shape) {
  WorstElement worst;
  worst.index = IndexOf(position, shape);
  const complex128 wide_a = Widened(a), wide_b = Widened(b);
  worst.a = {wide_a.real(), wide_a.imag()};
  worst.b = {wide_b.real(), wide_b.imag()};
  worst.integer_a = IntegerOf(a);
  worst.integer_b = IntegerOf(b);
  worst.text_a = LargeText(a);
  worst.text_b = LargeText(b);
  const bool finite = IsFinite(wide_a) && IsFinite(wide_b);
  worst.absolute = finite ? Distance(a, b) : std::abs(wide_a - wide_b);
  const double size = std::abs(wide_b);
  worst.relative = worst.absolute == 0 ? 0 : size == 0 ? kInfinity : worst.absolute / size;
  return worst;
}

template <class A, class B>
void CompareElements(std::span<const A> a, std::span<const B> b, const Shape& shape,
                     const Tolerance& tolerance, TensorDifference* difference) {
  double worst = 0;
  size_t worst_at = a.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const Element element = CompareElement(a[i], b[i], tolerance);
    difference->outside += element.outside;
    difference->non_finite += element.non_finite;
    if (!element.non_finite)
      difference->max_absolute = std::max(difference->max_absolute, element.distance);
    if (worst_at == a.size() || element.excess > worst) {
      worst = element.excess;
      worst_at = i;
    }
  }
  if (worst_at < a.size())
    difference->worst = Worst(a[worst_at], b[worst_at], static_cast<int64_t>(worst_at), shape);
}

// In quotes; a long text shows its length and where it differs from the other one.
std::string ShownText(std::string_view text, std::string_view other) {
  constexpr size_t kBefore = 16, kMost = 64;
  if (text.size() <= kMost) return Quote(text);
  const size_t same = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
  const size_t begin = std::min(same - std::min(same, kBefore), text.size() - kMost);
  return fmt::format("{} (bytes {} to {} of {})", Quote(text.substr(begin, kMost)), begin,
                     begin + kMost, text.size());
}

// Counts the elements that differ.
void CompareStrings(const Tensor& a, const Tensor& b, TensorDifference* difference) {
  const auto x = a.span<StringRef>(), y = b.span<StringRef>();
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].view() == y[i].view()) continue;
    if (++difference->outside > 1) continue;
    difference->worst = WorstElement{};
    difference->worst->index = IndexOf(static_cast<int64_t>(i), a.shape());
    difference->worst->text_a = ShownText(x[i].view(), y[i].view());
    difference->worst->text_b = ShownText(y[i].view(), x[i].view());
  }
}

// The type among int64, uint64, float64 and complex128 that can hold all values of the dtype.
DType WideOf(DType dtype) {
  if (dtype == DType::kUInt64) return dtype;
  if (IsComplex(dtype)) return DType::kComplex128;
  return IsFloating(dtype) ? DType::kFloat64 : DType::kInt64;
}

void CompareValues(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   TensorDifference* difference) {
  const auto compare = [&]<class A, class B>(const Tensor& x, const Tensor& y) {
    CompareElements<A, B>(x.span<A>(), y.span<B>(), x.shape(), tolerance, difference);
  };
  if (a.dtype() == DType::kString || b.dtype() == DType::kString) {
    if (a.dtype() == b.dtype()) CompareStrings(a, b, difference);
    return;
  }
  if (a.dtype() == b.dtype()) {
    DispatchAnyDType(a.dtype(), [&]<class T>() { compare.template operator()<T, T>(a, b); });
    return;
  }
  const bool complex = IsComplex(a.dtype()) || IsComplex(b.dtype());
  const Tensor x = a.Cast(complex ? DType::kComplex128 : WideOf(a.dtype()));
  const Tensor y = b.Cast(complex ? DType::kComplex128 : WideOf(b.dtype()));
  if (x.dtype() == y.dtype()) return CompareValues(x, y, tolerance, difference);
  const auto with = [&]<class A>() {
    if (y.dtype() == DType::kInt64)
      compare.template operator()<A, int64_t>(x, y);
    else if (y.dtype() == DType::kUInt64)
      compare.template operator()<A, uint64_t>(x, y);
    else
      compare.template operator()<A, double>(x, y);
  };
  if (x.dtype() == DType::kInt64)
    with.template operator()<int64_t>();
  else if (x.dtype() == DType::kUInt64)
    with.template operator()<uint64_t>();
  else
    with.template operator()<double>();
}

VarMeta MetaOf(const Tensor& tensor) {
  return {VarType::kLoDTensor, tensor.dtype(), tensor.shape(),
          static_cast<int32_t>(tensor.lod().size())};
}

// Maps names to tensors. Throws if a name occurs twice.
std::unordered_map<std::string_view, const Tensor*> ByName(const NamedTensors& tensors) {
  std::unordered_map<std::string_view, const Tensor*> found;
  for (const auto& [name, tensor] : tensors) {
    if (!found.emplace(name, &tensor).second)
      ThrowInvalid(fmt::format("{} occurs twice among the tensors to compare", Quote(name)));
  }
  return found;
}

}  // namespace

TensorDifference CompareTensors(const std::string& name, const Tensor& a, const Tensor& b,
                                const Tolerance& tolerance) {
  using Kind = TensorDifference::Kind;
  TensorDifference difference;
  difference.name = name;
  difference.a = MetaOf(a);
  difference.b = MetaOf(b);
  if (!(a.shape() == b.shape())) {
    difference.kind = Kind::kShape;
    return difference;
  }
  CompareValues(a, b, tolerance, &difference);
  const bool one_text = (a.dtype() == DType::kString) != (b.dtype() == DType::kString);
  if (a.dtype() != b.dtype() && (tolerance.same_dtype || one_text))
    difference.kind = Kind::kDType;
  else if (difference.outside > 0)
    difference.kind = Kind::kValues;
  else if (a.lod() != b.lod())
    difference.kind = Kind::kLod;
  return difference;
}

std::string ElementText(const Complex& value, const std::optional<int64_t>& integer, DType dtype,
                        const std::string& known) {
  if (!known.empty()) return known;
  if (integer) return fmt::format("{}", *integer);
  const bool wide = dtype == DType::kFloat64 || dtype == DType::kComplex128;
  const auto text = [wide](double part) -> std::string {
    if (std::isnan(part)) return "nan";
    return wide ? fmt::format("{}", part) : fmt::format("{:.9g}", part);
  };
  if (!IsComplex(dtype)) return text(value.real);
  const std::string imaginary = text(value.imag);
  return text(value.real) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
}

TensorDifference OnlyInA(const std::string& name, const Tensor& a) {
  TensorDifference difference;
  difference.name = name;
  difference.kind = TensorDifference::Kind::kOnlyInA;
  difference.a = MetaOf(a);
  return difference;
}

TensorDifference OnlyInB(const std::string& name, const Tensor& b) {
  TensorDifference difference;
  difference.name = name;
  difference.kind = TensorDifference::Kind::kOnlyInB;
  difference.b = MetaOf(b);
  return difference;
}

std::vector<TensorDifference> CompareNamed(const NamedTensors& a, const NamedTensors& b,
                                           const Tolerance& tolerance) {
  const auto of_a = ByName(a), of_b = ByName(b);
  std::vector<TensorDifference> differences;
  for (const auto& [name, tensor] : a) {
    const auto found = of_b.find(name);
    if (found == of_b.end())
      differences.push_back(OnlyInA(name, tensor));
    else
      differences.push_back(CompareTensors(name, tensor, *found->second, tolerance));
  }
  for (const auto& [name, tensor] : b) {
    if (!of_a.count(name)) differences.push_back(OnlyInB(name, tensor));
  }
  return differences;
}

}  // namespace coracle
