#include <coracle/framework/base/error.h>
#include <coracle/inspect/compare_runs.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr size_t kBatch = 8, kMaxTried = 128;  // variables fetched in one run, and in all
constexpr int kMaxRounds = 32;                 // for narrowing the search

// Compares the values one by one up to the first that differs. Returns the difference and the index
// of the value; the index is -1 if only the last values can be compared.
std::pair<TensorDifference, int> CompareValues(const std::string& name,
                                               const std::vector<Tensor>& a,
                                               const std::vector<Tensor>& b,
                                               const Tolerance& tolerance) {
  if (a.size() != b.size()) return {CompareTensors(name, a.back(), b.back(), tolerance), -1};
  size_t i = 0;
  TensorDifference difference = CompareTensors(name, a[0], b[0], tolerance);
  while (!difference.Differs() && ++i < a.size())
    difference = CompareTensors(name, a[i], b[i], tolerance);
  return {std::move(difference), static_cast<int>(std::min(i, a.size() - 1))};
}

using Names = std::vector<std::string>;

// Two ways to run a program, and the variables that were compared so far.
class Comparisons {
 public:
  Comparisons(const RunWay& a, const RunWay& b, const Tolerance& tolerance)
      : a_(a), b_(b), tolerance_(tolerance), ops_(*a.program) {}

  const RootOps& ops() const { return ops_; }
  bool Has(const std::string& name) const { return compared_.count(name) > 0; }
  const ComparedVariable& Of(const std::string& name) const { return compared_.at(name); }
  bool Differs(const std::string& name) const { return Of(name).difference.Differs(); }
  int WriterOf(const std::string& name) const { return Of(name).writer.op; }
  size_t size() const { return compared_.size(); }
  void Forget(const std::string& name) { compared_.erase(name); }

  // Compares variables in runs that fetch them, and replaces earlier results. If `first` does not
  // differ in these runs, restores the earlier results of all and returns false.
  bool Fetch(const Names& names, const std::string& first) {
    const auto before = compared_;
    Fetch(names);
    if (Differs(first)) return true;
    compared_ = before;
    return false;
  }
  void Fetch(const Names& names) { Note(names, KeepWritten(a_, names), KeepWritten(b_, names)); }

  // Records the comparison of variables that both runs wrote.
  void Note(const Names& names, const WrittenTensors& of_a, const WrittenTensors& of_b) {
    for (const std::string& name : names) {
      const auto in_a = of_a.find(name), in_b = of_b.find(name);
      if (in_a == of_a.end() || in_b == of_b.end()) continue;
      const std::vector<int>& writers = ops_.WritersOf(name);
      auto [difference, number] = CompareValues(name, in_a->second, in_b->second, tolerance_);
      const bool each = number >= 0 && in_a->second.size() == writers.size();
      const int op = each ? writers[static_cast<size_t>(number)] : writers.back();
      compared_.insert_or_assign(name, ComparedVariable{std::move(difference), ops_.PlaceOf(op)});
    }
  }

  // The names of variables that differ, in the order of the ops.
  Names Differing() const {
    std::vector<std::pair<int, std::string>> found;
    for (const auto& [name, variable] : compared_) {
      if (variable.difference.Differs()) found.emplace_back(variable.writer.op, name);
    }
    std::sort(found.begin(), found.end());
    Names names;
    for (auto& [op, name] : found) names.push_back(std::move(name));
    return names;
  }

  // Whether the value was within tolerance when it was read. If the difference appears only in a
  // later op that changes the variable in place, it was.
  bool IsWithin(const OpRead& read) const {
    const auto found = compared_.find(read.var);
    if (found == compared_.end()) return false;
    return !found->second.difference.Differs() || found->second.writer.op > read.writer;
  }

  // All of them, in the order of the ops.
  std::vector<ComparedVariable> Release() {
    std::vector<ComparedVariable> all;
    for (auto& [name, variable] : compared_) all.push_back(std::move(variable));
    std::sort(all.begin(), all.end(), [](const ComparedVariable& x, const ComparedVariable& y) {
      return std::pair(x.writer.op, x.difference.name) < std::pair(y.writer.op, y.difference.name);
    });
    return all;
  }

 private:
  const RunWay &a_, &b_;
  const Tolerance& tolerance_;
  RootOps ops_;
  std::unordered_map<std::string, ComparedVariable> compared_;
};

// Compares all values that both runs wrote. Returns the other results.
std::vector<TensorDifference> CompareAsTheyAre(const RunWay& a, const RunWay& b,
                                               const Tolerance& tolerance, Comparisons& compared) {
  const RootOps& ops = compared.ops();
  const WrittenTensors of_a = KeepWritten(a), of_b = KeepWritten(b);
  compared.Note(ops.written(), of_a, of_b);
  std::vector<TensorDifference> others;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    const auto in_a = of_a.find(name), in_b = of_b.find(name);
    const bool has_a = in_a != of_a.end(), has_b = in_b != of_b.end();
    const bool written = ops.Writes(name);
    if (has_a && has_b) {
      if (!written)
        others.push_back(CompareTensors(name, in_a->second.back(), in_b->second.back(), tolerance));
      return;
    }
    // Saved values do not include parameters and feeds.
    if (!written && (has_a ? b : a).saved) return;
    if (has_a) others.push_back(OnlyInA(name, in_a->second.back()));
    if (has_b) others.push_back(OnlyInB(name, in_b->second.back()));
  };
  for (const RunWay* way : {&a, &b}) {
    for (const std::string& name : ResultsOf(*way)) {
      if (seen.insert(name).second) add(name);
    }
  }
  return others;
}

// A search for the first variable that differs.
struct FirstSearch {
  std::optional<std::string> first = std::nullopt;
  Names renamed = {}, untried = {};  // see RunsDifference
  size_t tried = 0;
};

// Finds the first of `names` that differs when they are fetched; the names before it are renamed.
// After kMaxTried names, the rest is untried. Returns whether there is one.
bool TryNames(const Names& names, Comparisons& compared, FirstSearch& search) {
  if (names.empty()) return false;
  const bool try_them = search.tried < kMaxTried;
  search.tried += names.size();
  if (try_them) compared.Fetch(names);
  for (const std::string& name : names) {
    if (try_them && compared.Differs(name)) {
      search.first = name;
      return true;
    }
    compared.Forget(name);
    (try_them ? search.renamed : search.untried).push_back(name);
  }
  return false;
}

// Unless a variable is fetched, passes may use its name for another value. So this fetches the
// variables that differ in further runs, a few at a time, until one of them still differs.
FirstSearch FindFirst(const RunWay& a, Comparisons& compared) {
  FirstSearch search;
  const Names fetches = FetchesOf(a);
  const std::set<std::string> fetched(fetches.begin(), fetches.end());
  Names batch;
  for (const std::string& name : compared.Differing()) {
    const bool certain = fetched.count(name) > 0;
    if (!certain) batch.push_back(name);
    if ((batch.size() == kBatch || certain) && TryNames(batch, compared, search)) return search;
    if (batch.size() == kBatch || certain) batch.clear();
    if (certain) {
      search.first = name;
      return search;
    }
  }
  TryNames(batch, compared, search);
  return search;
}

// The compared variables that an op depends on, and the ops between these and it.
struct Explanation {
  Names inputs;
  std::vector<OpPlace> between;
};

// Walks back from the op to compared variables that were within tolerance.
Explanation Explain(int op, const Comparisons& compared) {
  Explanation explanation;
  std::set<int> between;
  std::set<std::string> inputs;
  std::vector<int> open = {op};
  while (!open.empty()) {
    const int reader = open.back();
    open.pop_back();
    for (const OpRead& read : compared.ops().ReadsOf(reader)) {
      if (read.writer < 0 || compared.IsWithin(read)) {
        if (inputs.insert(read.var).second) explanation.inputs.push_back(read.var);
      } else if (read.writer != op && between.insert(read.writer).second) {
        open.push_back(read.writer);
      }
    }
  }
  for (const int writer : between) explanation.between.push_back(compared.ops().PlaceOf(writer));
  return explanation;
}

// Whether a run can fetch the variable.
bool IsFetchable(const RunWay& way, const std::string& name) {
  if (way.saved) return true;
  const VarDesc* var = way.program->Root().FindVar(name);
  return var && var->type() == VarType::kLoDTensor;
}

// Fetches variables between the last that agrees and the first that differs, to find an earlier one
// that differs.
class Narrowing {
 public:
  Narrowing(const RunWay& a, const RunWay& b, Comparisons& compared)
      : a_(a), b_(b), compared_(compared) {}

  // Whether the difference vanished in a run that fetched more.
  bool hidden() const { return hidden_; }

  // Moves `first` to an earlier variable if there is one. Returns false if the search must end.
  bool Narrow(const Explanation& explanation, std::string* first) {
    const Names picks = Picks(explanation, *first);
    if (picks.empty()) return Confirm(explanation.inputs, first);
    Names names = picks;
    names.push_back(*first);
    try {
      if (!compared_.Fetch(names, *first)) return Hide();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kInvalidArgument) throw;
      return false;  // one of them holds selected rows, which cannot be fetched
    }
    for (const std::string& name : picks) {
      if (!compared_.Has(name)) skipped_.insert(name);
    }
    TakeEarliest(picks, first);
    return true;
  }

 private:
  // Evenly spaced variables that the ops between write and that these ops or the first one read.
  Names Picks(const Explanation& explanation, const std::string& first) const {
    std::unordered_set<std::string> seen;
    std::vector<int> readers = {compared_.WriterOf(first)};
    for (const OpPlace& place : explanation.between) readers.push_back(place.op);
    std::vector<std::pair<int, std::string>> found;
    for (const int reader : readers) {
      for (const OpRead& read : compared_.ops().ReadsOf(reader)) {
        if (read.writer < 0 || compared_.Has(read.var) || skipped_.count(read.var)) continue;
        if (IsFetchable(a_, read.var) && IsFetchable(b_, read.var) && seen.insert(read.var).second)
          found.emplace_back(read.writer, read.var);
      }
    }
    std::sort(found.begin(), found.end());
    Names picks;
    const size_t count = std::min(found.size(), kBatch);
    for (size_t i = 0; i < count; ++i)
      picks.push_back(found[(2 * i + 1) * found.size() / (2 * count)].second);
    return picks;
  }

  // The inputs that agreed were fetched in other runs than the ones in which the first one differs.
  // Fetched together with it, they may differ too, or keep passes from causing the difference.
  // Returns whether an earlier difference was found, from which the search continues.
  bool Confirm(const Names& inputs, std::string* first) {
    Names names;
    for (const std::string& name : inputs) {
      if (compared_.Has(name)) names.push_back(name);
    }
    if (names.empty()) return false;
    names.push_back(*first);
    if (!compared_.Fetch(names, *first)) return Hide();
    const int op = compared_.WriterOf(*first);
    TakeEarliest(names, first);
    return compared_.WriterOf(*first) < op;
  }

  void TakeEarliest(const Names& names, std::string* first) const {
    for (const std::string& name : names) {
      if (compared_.Has(name) && compared_.Differs(name) &&
          compared_.WriterOf(name) < compared_.WriterOf(*first))
        *first = name;
    }
  }

  bool Hide() {
    hidden_ = true;
    return false;
  }

  const RunWay &a_, &b_;
  Comparisons& compared_;
  std::unordered_set<std::string> skipped_;  // fetched, but no run gave their values
  bool hidden_ = false;
};

// The number of variables of both programs that were not compared; see RunsDifference.
int64_t CountNotCompared(const RootOps& of_a, const RootOps& of_b, size_t compared,
                         const RunsDifference& result) {
  auto count = static_cast<int64_t>(of_a.written().size()) -
               static_cast<int64_t>(compared + result.renamed.size() + result.untried.size());
  for (const std::string& name : of_b.written()) count += !of_a.Writes(name);
  for (const TensorDifference& other : result.other_results)
    count -= of_a.Writes(other.name) || of_b.Writes(other.name);
  return count;
}

}  // namespace

bool RunsDifference::Differs() const {
  return first >= 0 || !untried.empty() ||
         std::any_of(other_results.begin(), other_results.end(),
                     [](const TensorDifference& result) { return result.Differs(); });
}

RunsDifference CompareRuns(const RunWay& a, const RunWay& b, const Tolerance& tolerance) {
  RunsDifference result;
  Comparisons compared(a, b, tolerance);
  result.other_results = CompareAsTheyAre(a, b, tolerance, compared);
  FirstSearch search = FindFirst(a, compared);
  Narrowing narrowing(a, b, compared);
  Explanation explanation;
  for (int round = 0; search.first && round < kMaxRounds; ++round) {
    explanation = Explain(compared.WriterOf(*search.first), compared);
    if (!narrowing.Narrow(explanation, &*search.first)) break;
  }
  result.inputs = std::move(explanation.inputs);
  result.between = std::move(explanation.between);
  result.hidden = narrowing.hidden();
  result.renamed = std::move(search.renamed);
  result.untried = std::move(search.untried);
  result.not_compared =
      CountNotCompared(compared.ops(), RootOps(*b.program), compared.size(), result);
  result.compared = compared.Release();
  for (size_t i = 0; search.first && i < result.compared.size(); ++i) {
    if (result.compared[i].difference.name == *search.first) result.first = static_cast<int>(i);
  }
  return result;
}

}  // namespace coracle::inline internal
