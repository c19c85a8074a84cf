#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/program_diff.h>
#include <coracle/train/run/snapshot.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

// Of the elements of a variable, in double.
struct Norms {
  double l2 = 0, mean_abs = 0, most = 0;
};

const Tensor* Find(const Scope& scope, const std::string& name) {
  const VarValue* value = scope.Find(name);
  return value ? std::get_if<Tensor>(value) : nullptr;
}

// std::max would lose a nan.
double Larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

Norms NormsOf(const Tensor& tensor) {
  Norms norms;
  const Tensor wide = tensor.Cast(DType::kComplex128);
  for (const complex128& v : wide.span<complex128>()) {
    const double size = std::abs(v);
    norms.l2 += size * size;
    norms.mean_abs += size;
    norms.most = Larger(norms.most, size);
  }
  norms.l2 = std::sqrt(norms.l2);
  norms.mean_abs /= static_cast<double>(std::max<int64_t>(tensor.numel(), 1));
  return norms;
}

// REQUIRES: equal shapes.
double MaxDifference(const Tensor& a, const Tensor& b) {
  const Tensor wide_a = a.Cast(DType::kComplex128), wide_b = b.Cast(DType::kComplex128);
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const complex128 x = wide_a.data<complex128>()[i], y = wide_b.data<complex128>()[i];
    const bool same = x == y || (std::isnan(std::abs(x)) && std::isnan(std::abs(y)));
    if (!same) most = Larger(most, std::abs(x - y));
  }
  return most;
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
    text += fmt::format("  best         {}={} at step {}, {} evaluations since\n",
                        PrintableLine(s.best.metric), FormatNumber(s.best.value), s.best.step,
                        s.best.worse);
  }
  for (const auto& [name, state] : s.carried)
    text += fmt::format("  carried      {} {}\n", PrintableLine(name), state.ToString());
  return text;
}

// One line of differences in what is not a variable.
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
      const Norms norms = NormsOf(*x);
      text += fmt::format(" {:>12} {:>12} {:>12}", FormatNumber(norms.l2),
                          FormatNumber(norms.mean_abs), FormatNumber(norms.most));
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
  const std::string program = FirstDifference(a.main, b.main);
  if (!program.empty())
    text += "  program      the first there, the second here: " + PrintableLine(program) + "\n";
  if (a.job_text != b.job_text) text += "  job text     differs\n";

  std::vector<std::string> names = PersistableNames(a.main), others = PersistableNames(b.main);
  names.insert(names.end(), others.begin(), others.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const size_t width = Longest(names);
  std::string table;
  size_t same = 0;
  for (const std::string& name : names) {
    const Tensor *x = Find(a.variables, name), *y = Find(b.variables, name);
    const std::string row = fmt::format("  {:<{}}", PrintableLine(name), width);
    if (!x || !y) {
      table += fmt::format("{} only in the {}\n", row, x ? "first" : "second");
    } else if (x->dtype() != y->dtype() || !(x->shape() == y->shape())) {
      table += fmt::format("{} {} and {}\n", row, x->ToString(), y->ToString());
    } else if (BitEqual(*x, *y)) {
      ++same;
    } else {
      table += fmt::format("{} {:>12} {:>12} {:>14}\n", row, FormatNumber(NormsOf(*x).l2),
                           FormatNumber(NormsOf(*y).l2), FormatNumber(MaxDifference(*x, *y)));
    }
  }
  text += fmt::format("{} of {} variables are the same bit for bit\n", same, names.size());
  if (table.empty()) return text;
  return text +
         fmt::format("  {:<{}} {:>12} {:>12} {:>14}\n", "differ", width, "L2 of first", "of second",
                     "max |first-second|") +
         table;
}

}  // namespace coracle
