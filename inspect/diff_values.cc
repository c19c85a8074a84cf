#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/diff.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <variant>

namespace coracle {
namespace {

const Tensor* Find(const Scope& scope, const std::string& name) {
  const VarValue* value = scope.Find(name);
  return value ? std::get_if<Tensor>(value) : nullptr;
}

// One value as a number; of a complex one its absolute value.
double Shown(const complex128& value) { return value.imag() == 0 ? value.real() : std::abs(value); }

// Some elements as complex numbers, which hold all dtypes' values.
Tensor Widened(const Tensor& tensor, int64_t begin, int64_t count) {
  auto* first = static_cast<char*>(const_cast<void*>(tensor.raw())) +
                static_cast<size_t>(begin) * SizeOf(tensor.dtype());
  return Tensor::View(tensor.dtype(), {count}, first).Cast(DType::kComplex128);
}

// `other`: they are integers that differ, though not always as floating-point numbers.
void CompareElement(const complex128& x, const complex128& y, bool other, int64_t place,
                    const DiffTolerance& tolerance, ValueDiff* diff) {
  if (!other && (x == y || (std::isnan(std::abs(x)) && std::isnan(std::abs(y))))) return;
  const double difference = std::max(std::abs(x - y), other ? 1.0 : 0.0);
  const double allowed = tolerance.atol + tolerance.rtol * std::abs(y);
  if (std::isfinite(difference) && difference <= allowed) return;
  ++diff->different;
  // A nan is larger than any number.
  const bool largest = diff->different == 1 || difference > diff->max_difference ||
                       (std::isnan(difference) && !std::isnan(diff->max_difference));
  if (!largest) return;
  diff->max_difference = difference;
  diff->worst = place;
  diff->worst_before = Shown(x);
  diff->worst_after = Shown(y);
}

// REQUIRES: equal types and shapes.
void CompareElements(const Tensor& before, const Tensor& after, const DiffTolerance& tolerance,
                     ValueDiff* diff) {
  constexpr int64_t kAtOnce = 1 << 16;  // so that no tensor is in memory twice
  const bool integers = !IsFloating(before.dtype()) && !IsComplex(before.dtype());
  const size_t size = SizeOf(before.dtype());
  const auto differ = [&](int64_t i) {
    const size_t at = static_cast<size_t>(i) * size;
    return integers && std::memcmp(static_cast<const char*>(before.raw()) + at,
                                   static_cast<const char*>(after.raw()) + at, size) != 0;
  };
  for (int64_t begin = 0; begin < before.numel(); begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, before.numel() - begin);
    const Tensor a = Widened(before, begin, count), b = Widened(after, begin, count);
    for (int64_t i = 0; i < count; ++i)
      CompareElement(a.data<complex128>()[i], b.data<complex128>()[i], differ(begin + i), begin + i,
                     tolerance, diff);
  }
}

ValueDiff Compare(const std::string& before, const Tensor* x, const std::string& after,
                  const Tensor* y, const DiffTolerance& tolerance) {
  ValueDiff diff{before, after};
  if (!x || !y) {
    if (x) diff.problem = "only before: " + x->ToString();
    if (y) diff.problem = "only after: " + y->ToString();
    return diff;
  }
  if (x->dtype() != y->dtype() || !(x->shape() == y->shape())) {
    diff.problem = fmt::format("{} -> {}", x->ToString(), y->ToString());
    return diff;
  }
  diff.elements = x->numel();
  if (!BitEqual(*x, *y)) CompareElements(*x, *y, tolerance, &diff);
  return diff;
}

}  // namespace

std::vector<ValueDiff> DiffValues(const ProgramDiff& diff, const ProgramDesc& before,
                                  const Scope& values_before, const ProgramDesc& after,
                                  const Scope& values_after, const DiffTolerance& tolerance) {
  const std::unordered_map<std::string, std::string> renamed(diff.renamed.begin(),
                                                             diff.renamed.end());
  std::unordered_set<std::string> seen;
  std::vector<ValueDiff> values;
  const auto add = [&](const std::string& x, const std::string& y) {
    ValueDiff found = Compare(x, Find(values_before, x), y, Find(values_after, y), tolerance);
    if (!found.problem.empty() || found.different > 0) values.push_back(std::move(found));
  };
  for (const std::string& name : PersistableNames(before)) {
    const auto other = renamed.find(name);
    const std::string& now = other == renamed.end() ? name : other->second;
    seen.insert(now);
    add(name, now);
  }
  for (const std::string& name : PersistableNames(after)) {
    if (seen.insert(name).second) add(name, name);
  }
  return values;
}

}  // namespace coracle
