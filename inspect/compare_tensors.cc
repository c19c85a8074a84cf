#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/compare_tensors.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace coracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
struct IsComplexType : std::false_type {};
template <class R>
struct IsComplexType<std::complex<R>> : std::true_type {};

template <class T>
complex128 Widened(T value) {
  if constexpr (IsComplexType<T>::value)
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

// |a - b| of two values of which at least one is finite. Two int64 may differ by less than double
// can tell apart, so integers are subtracted as such.
template <class T>
double Distance(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto high = static_cast<uint64_t>(std::max(a, b));
    return static_cast<double>(high - static_cast<uint64_t>(std::min(a, b)));
  } else {
    return std::abs(Widened(a) - Widened(b));
  }
}

// How an element of A compares with that of B.
struct Element {
  double distance = 0;
  double excess = 0;  // distance over what is allowed; inf where no number says it
  bool outside = false, non_finite = false;
};

template <class T>
Element CompareElement(T a, T b, const Tolerance& tolerance) {
  const complex128 wide_a = Widened(a), wide_b = Widened(b);
  if (!IsFinite(wide_a) || !IsFinite(wide_b)) {
    if (SamePart(wide_a.real(), wide_b.real()) && SamePart(wide_a.imag(), wide_b.imag()))
      return {0, -kInfinity, false, false};
    return {kInfinity, kInfinity, true, true};
  }
  const double distance = Distance(a, b);
  const double allowed = tolerance.absolute + tolerance.relative * std::abs(wide_b);
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

template <class T>
WorstElement Worst(T a, T b, int64_t position, const Shape& shape) {
  WorstElement worst;
  worst.index = IndexOf(position, shape);
  worst.a = Widened(a);
  worst.b = Widened(b);
  const bool finite = IsFinite(worst.a) && IsFinite(worst.b);
  worst.absolute = finite ? Distance(a, b) : std::abs(worst.a - worst.b);
  const double size = std::abs(worst.b);
  worst.relative = worst.absolute == 0 ? 0 : size == 0 ? kInfinity : worst.absolute / size;
  return worst;
}

template <class T>
void CompareElements(std::span<const T> a, std::span<const T> b, const Shape& shape,
                     const Tolerance& tolerance, TensorDifference* difference) {
  double worst = 0;
  size_t worst_at = a.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const Element element = CompareElement<T>(a[i], b[i], tolerance);
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
    difference->worst = Worst<T>(a[worst_at], b[worst_at], static_cast<int64_t>(worst_at), shape);
}

void CompareValues(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   TensorDifference* difference) {
  if (a.dtype() != b.dtype()) {
    const bool complex = IsComplex(a.dtype()) || IsComplex(b.dtype());
    const DType wide = complex ? DType::kComplex128 : DType::kFloat64;
    return CompareValues(a.Cast(wide), b.Cast(wide), tolerance, difference);
  }
  DispatchAnyDType(a.dtype(), [&]<class T>() {
    CompareElements<T>(a.span<T>(), b.span<T>(), a.shape(), tolerance, difference);
  });
}

VarMeta MetaOf(const Tensor& tensor) {
  return {VarType::kLoDTensor, tensor.dtype(), tensor.shape(),
          static_cast<int32_t>(tensor.lod().size())};
}

// By name. Throws for one that stands twice.
std::unordered_map<std::string_view, const Tensor*> ByName(const NamedTensors& tensors) {
  std::unordered_map<std::string_view, const Tensor*> found;
  for (const auto& [name, tensor] : tensors) {
    if (!found.emplace(name, &tensor).second)
      ThrowInvalid(fmt::format("{} stands twice among the tensors to compare", Quote(name)));
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
  if (a.dtype() != b.dtype() && tolerance.same_dtype)
    difference.kind = Kind::kDType;
  else if (difference.outside > 0)
    difference.kind = Kind::kValues;
  else if (a.lod() != b.lod())
    difference.kind = Kind::kLod;
  return difference;
}

std::vector<TensorDifference> CompareNamed(const NamedTensors& a, const NamedTensors& b,
                                           const Tolerance& tolerance) {
  using Kind = TensorDifference::Kind;
  const auto of_a = ByName(a), of_b = ByName(b);
  std::vector<TensorDifference> differences;
  const auto alone = [&](const std::string& name, const Tensor& tensor, Kind kind) {
    TensorDifference& added = differences.emplace_back();
    added.name = name;
    added.kind = kind;
    (kind == Kind::kOnlyInA ? added.a : added.b) = MetaOf(tensor);
  };
  for (const auto& [name, tensor] : a) {
    const auto found = of_b.find(name);
    if (found == of_b.end())
      alone(name, tensor, Kind::kOnlyInA);
    else
      differences.push_back(CompareTensors(name, tensor, *found->second, tolerance));
  }
  for (const auto& [name, tensor] : b) {
    if (!of_a.count(name)) alone(name, tensor, Kind::kOnlyInB);
  }
  return differences;
}

}  // namespace coracle
