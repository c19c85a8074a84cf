#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/tensor_norms.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// For selected rows, returns the values tensor.
const Tensor* Find(const Scope& scope, const std::string& name) {
  const VarValue* value = scope.Find(name);
  const auto* rows = value ? std::get_if<SelectedRows>(value) : nullptr;
  if (rows) return &rows->value;
  return value ? std::get_if<Tensor>(value) : nullptr;
}

size_t Longest(const std::vector<std::string>& names) {
  size_t longest = 8;
  for (const std::string& name : names) longest = std::max(longest, PrintableLine(name).size());
  return std::min<size_t>(longest, 60);
}

bool IsParameter(const ProgramDesc& program, const std::string& name) {
  const VarDesc* var = program.Root().FindVar(name);
  return var && var->is_parameter();
}

std::string Head(const SavedSnapshot& snapshot) {
  const TrainSnapshot& s = snapshot.state;
  std::string text = fmt::format(
      "{}: job {}, step {}, epoch {}, batch {} of the data\n"
      "  data         {}, {} rows, batch_size {}{}{}\n"
      "  random       seed {}, step {}\n"
      "  made with    {} threads, {}\n",
      PrintableLine(snapshot.path), Quote(s.job), s.step, s.epoch, s.position,
      PrintableLine(s.data), s.rows, s.batch_size, s.shuffle ? ", shuffled" : "",
      s.drop_last ? ", drop_last" : "", s.seed, s.random_step, s.threads,
      PrintableLine(s.instructions));
  for (const EvaluationRecord& e : s.evaluations)
    text += fmt::format("  evaluation   {} at step {}:{}\n", PrintableLine(e.set), e.step,
                        FormatValues(e.values));
  if (!s.best.metric.empty()) {
    text += fmt::format(
        "  best         {}={} at step {}; early stop: {} evaluation{} without an improvement\n",
        PrintableLine(s.best.metric), FormatNumber(s.best.value), s.best.step, s.best.worse,
        s.best.worse == 1 ? "" : "s");
  }
  for (const auto& [name, state] : s.carried)
    text += fmt::format("  carried      {} {}\n", PrintableLine(name), state.ToString());
  return text;
}

// Adds a line if a value other than a variable differs.
template <class T>
void Differ(const char* what, const T& a, const T& b, std::string* text) {
  if (a != b) *text += fmt::format("  {:<12} {} and {}\n", what, a, b);
}

}  // namespace

std::string DescribeSnapshot(const SavedSnapshot& snapshot) {
  const std::vector<std::string> names = PersistableNames(snapshot.main);
  const size_t width = Longest(names);
  std::string text = Head(snapshot);
  text += fmt::format("{} variables (* a parameter)\n  {:<{}}   {:<22} {:>12} {:>12} {:>12}\n",
                      names.size(), "name", width, "type", "L2 norm", "mean |x|", "max |x|");
  for (const std::string& name : names) {
    const VarDesc& var = *snapshot.main.Root().FindVar(name);
    text += fmt::format("  {:<{}} {} {:<22}", PrintableLine(name), width,
                        IsParameter(snapshot.main, name) ? '*' : ' ', var.meta().ToString());
    if (const Tensor* x = Find(snapshot.variables, name)) {
      const TensorNorms norms = NormsOf(*x);
      text += fmt::format(" {:>12} {:>12} {:>12}", FormatNumber(norms.l2),
                          FormatNumber(norms.mean_abs), FormatNumber(norms.max_abs));
    }
    text += "\n";
  }
  return text;
}

std::string CompareSnapshots(const SavedSnapshot& a, const SavedSnapshot& b) {
  std::string text = fmt::format("{}\n{}\n", PrintableLine(a.path), PrintableLine(b.path));
  const TrainSnapshot &s = a.state, &t = b.state;
  Differ("step", s.step, t.step, &text);
  Differ("epoch", s.epoch, t.epoch, &text);
  Differ("position", s.position, t.position, &text);
  Differ("seed", s.seed, t.seed, &text);
  Differ("data", PrintableLine(s.data), PrintableLine(t.data), &text);
  Differ("batch_size", s.batch_size, t.batch_size, &text);
  const ProgramDiff program = DiffPrograms(a.main, b.main, DefaultOps());
  if (a.job_text != b.job_text) text += "  job text     differs\n";
  text += DiffText(program, a.main, b.main, DefaultOps());

  const std::vector<ValueDiff> values =
      DiffValues(program, a.main, a.variables, b.main, b.variables);
  std::vector<std::string> names = PersistableNames(a.main);
  size_t all = names.size();
  for (const ValueDiff& value : values) {
    const bool only_second = value.problem.starts_with("only after");
    all += only_second ? 1 : 0;
    if (only_second) names.push_back(value.after);
  }
  const size_t width = Longest(names);
  std::string table;
  for (const ValueDiff& value : values) {
    const std::string row = fmt::format("  {:<{}}", PrintableLine(value.before), width);
    if (!value.problem.empty()) {
      table += fmt::format("{} {}\n", row, value.problem);
      continue;
    }
    const TensorNorms first = NormsOf(*Find(a.variables, value.before)),
                      second = NormsOf(*Find(b.variables, value.after));
    table += fmt::format("{} {:>12} {:>12} {:>14}\n", row, FormatNumber(first.l2),
                         FormatNumber(second.l2), FormatNumber(value.max_difference));
  }
  const size_t same = all - values.size();
  text += fmt::format("{} of {} variables are the same bit for bit\n", same, all);
  if (table.empty()) return text;
  return text +
         fmt::format("  {:<{}} {:>12} {:>12} {:>14}\n", "differ", width, "L2 of first", "of second",
                     "max |first-second|") +
         table;
}

}  // namespace coracle::inline internal
