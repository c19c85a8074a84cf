#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <variant>

namespace coracle {
namespace {

// A value as a real number: for complex values, the absolute value.
double Shown(const Complex& value) {
  return value.imag == 0 ? value.real : std::hypot(value.real, value.imag);
}

// The position of an element in row-major order.
int64_t PositionOf(const std::vector<int64_t>& index, const Shape& shape) {
  int64_t position = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    position = position * shape[axis] + index[static_cast<size_t>(axis)];
  return position;
}

bool IsExact(const Tolerance& tolerance) {
  return tolerance.relative == 0 && tolerance.absolute == 0;
}

// Counts the elements with different bytes, and finds the first one.
int64_t DifferentBytes(const Tensor& before, const Tensor& after, int64_t* first) {
  const auto* x = static_cast<const char*>(before.raw());
  const auto* y = static_cast<const char*>(after.raw());
  const size_t size = SizeOf(before.dtype());
  int64_t different = 0;
  for (int64_t i = before.numel(); i-- > 0;) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(x + at, y + at, size) == 0) continue;
    *first = i;
    ++different;
  }
  return different;
}

Tensor ElementAt(const Tensor& tensor, int64_t position) {
  Tensor element(tensor.dtype(), {1});
  const size_t size = SizeOf(tensor.dtype());
  std::memcpy(element.raw(),
              static_cast<const char*>(tensor.raw()) + static_cast<size_t>(position) * size, size);
  return element;
}

// REQUIRES: equal types and shapes.
void CompareElements(const Tensor& before, const Tensor& after, const Tolerance& tolerance,
                     ValueDiff* diff) {
  TensorDifference found = CompareTensors(diff->after, before, after, tolerance);
  diff->different = found.outside;
  int64_t first = 0;
  if (IsExact(tolerance) && before.dtype() != DType::kString)
    diff->different = DifferentBytes(before, after, &first);
  if (diff->different == 0) return;
  const bool as_numbers = found.outside > 0;
  if (!as_numbers) {  // differ only in bits: 0 and -0, or two nans
    found = CompareTensors("", ElementAt(before, first), ElementAt(after, first), tolerance);
  }
  diff->max_difference = as_numbers ? found.worst->absolute : 0;
  diff->worst = as_numbers ? PositionOf(found.worst->index, before.shape()) : first;
  diff->worst_before = Shown(found.worst->a);
  diff->worst_after = Shown(found.worst->b);
  diff->integer_before = found.worst->integer_a;
  diff->integer_after = found.worst->integer_b;
  diff->text_before = found.worst->text_a;
  diff->text_after = found.worst->text_b;
}

void CompareDense(const Tensor& x, const Tensor& y, const Tolerance& tolerance, ValueDiff* diff) {
  if (x.dtype() != y.dtype() || !(x.shape() == y.shape())) {
    diff->problem = fmt::format("{} -> {}", x.ToString(), y.ToString());
    return;
  }
  diff->elements = x.numel();
  if (!BitEqual(x, y)) CompareElements(x, y, tolerance, diff);
  if (diff->different == 0 && x.lod() != y.lod()) diff->problem = "other sequences (LoD)";
}

void CompareRows(const SelectedRows& x, const SelectedRows& y, const Tolerance& tolerance,
                 ValueDiff* diff) {
  if (x.height != y.height || x.rows != y.rows)
    diff->problem = fmt::format("other rows: {} of {} -> {} of {}", x.rows.size(), x.height,
                                y.rows.size(), y.height);
  else
    CompareDense(x.value, y.value, tolerance, diff);
}

bool HasValue(const VarValue* value) {
  return value && !std::holds_alternative<std::monostate>(*value);
}

std::string Describe(const VarValue& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return tensor->ToString();
  const auto* rows = std::get_if<SelectedRows>(&value);
  return rows ? "selected rows of " + rows->value.ToString() : "a value of another kind";
}

ValueDiff Compare(const std::string& before, const VarValue* x, const std::string& after,
                  const VarValue* y, const Tolerance& tolerance) {
  ValueDiff diff{before, after};
  if (!HasValue(x) || !HasValue(y)) {
    if (HasValue(x)) diff.problem = "only before: " + Describe(*x);
    if (HasValue(y)) diff.problem = "only after: " + Describe(*y);
  } else if (std::holds_alternative<Tensor>(*x) && std::holds_alternative<Tensor>(*y)) {
    CompareDense(std::get<Tensor>(*x), std::get<Tensor>(*y), tolerance, &diff);
  } else if (std::holds_alternative<SelectedRows>(*x) && std::holds_alternative<SelectedRows>(*y)) {
    CompareRows(std::get<SelectedRows>(*x), std::get<SelectedRows>(*y), tolerance, &diff);
  } else if (x->index() != y->index()) {
    diff.problem = fmt::format("{} -> {}", Describe(*x), Describe(*y));
  } else {
    diff.problem = "not compared: " + Describe(*x);
  }
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
    ValueDiff found = Compare(x, values_before.Find(x), y, values_after.Find(y), tolerance);
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
