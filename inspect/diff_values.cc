#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/diff.h>
#include <fmt/format.h>

#include <complex>
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

// Row-major.
int64_t PositionOf(const std::vector<int64_t>& index, const Shape& shape) {
  int64_t position = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    position = position * shape[axis] + index[static_cast<size_t>(axis)];
  return position;
}

// REQUIRES: equal types and shapes.
void CompareElements(const Tensor& before, const Tensor& after, const Tolerance& tolerance,
                     ValueDiff* diff) {
  const TensorDifference found = CompareTensors(diff->after, before, after, tolerance);
  diff->different = found.outside;
  if (found.outside == 0) return;
  diff->max_difference = found.worst->absolute;
  diff->worst = PositionOf(found.worst->index, before.shape());
  diff->worst_before = Shown(found.worst->a);
  diff->worst_after = Shown(found.worst->b);
}

ValueDiff Compare(const std::string& before, const Tensor* x, const std::string& after,
                  const Tensor* y, const Tolerance& tolerance) {
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
                                  const Scope& values_after, const Tolerance& tolerance) {
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
