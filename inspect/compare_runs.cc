#include <coracle/framework/base/error.h>
#include <coracle/inspect/compare_runs.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
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

class RunComparer {
 public:
  RunComparer(const RunWay& a, const RunWay& b, const Tolerance& tolerance)
      : a_(a), b_(b), tolerance_(tolerance), ops_(*a.program) {}

  RunsDifference Run() {
    CompareAsTheyAre();
    FindFirst();
    for (int round = 0; first_ && round < kMaxRounds; ++round) {
      Explain(compared_.at(*first_).writer.op);
      if (!Narrow()) break;
    }
    Finish();
    return std::move(result_);
  }

 private:
  void CompareAsTheyAre() {
    const WrittenTensors of_a = KeepWritten(a_), of_b = KeepWritten(b_);
    Note(ops_.written(), of_a, of_b);
    std::set<std::string> seen;
    for (const RunWay* way : {&a_, &b_}) {
      for (const std::string& name : ResultsOf(*way)) {
        if (seen.insert(name).second) NoteResult(name, of_a, of_b);
      }
    }
  }

  void NoteResult(const std::string& name, const WrittenTensors& of_a, const WrittenTensors& of_b) {
    const auto in_a = of_a.find(name), in_b = of_b.find(name);
    const bool has_a = in_a != of_a.end(), has_b = in_b != of_b.end();
    const bool written = ops_.Writes(name);
    if (has_a && has_b) {
      if (!written)
        result_.other_results.push_back(
            CompareTensors(name, in_a->second.back(), in_b->second.back(), tolerance_));
      return;
    }
    // Saved values do not include parameters and feeds.
    if (!written && (has_a ? b_ : a_).saved) return;
    if (has_a) result_.other_results.push_back(OnlyInA(name, in_a->second.back()));
    if (has_b) result_.other_results.push_back(OnlyInB(name, in_b->second.back()));
  }

  // Compares the variables `names` in runs that also fetch `fetched`.
  void Compare(const std::vector<std::string>& names, const std::vector<std::string>& fetched) {
    Note(names, KeepWritten(a_, fetched), KeepWritten(b_, fetched));
  }

  // Records the comparison of variables that both runs wrote, and replaces earlier results.
  void Note(const std::vector<std::string>& names, const WrittenTensors& of_a,
            const WrittenTensors& of_b) {
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
  std::vector<std::string> Differing() const {
    std::vector<std::pair<int, std::string>> found;
    for (const auto& [name, variable] : compared_) {
      if (variable.difference.Differs()) found.emplace_back(variable.writer.op, name);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> names;
    for (auto& [op, name] : found) names.push_back(std::move(name));
    return names;
  }

  // Unless a variable is fetched, passes may use its name for another value. So this fetches the
  // variables that differ in further runs, a few at a time, until one of them still differs.
  void FindFirst() {
    const std::vector<std::string> fetches = FetchesOf(a_);
    const std::set<std::string> fetched(fetches.begin(), fetches.end());
    std::vector<std::string> batch;
    size_t tried = 0;
    for (const std::string& name : Differing()) {
      const bool certain = fetched.count(name) > 0;
      if (!certain) batch.push_back(name);
      if ((batch.size() == kBatch || certain) && Settle(batch, &tried)) return;
      if (batch.size() == kBatch || certain) batch.clear();
      if (certain) {
        first_ = name;
        return;
      }
    }
    Settle(batch, &tried);
  }

  // Finds the first of `names` that differs when they are fetched; the names before it are renamed.
  // After kMaxTried names, the rest is untried.
  bool Settle(const std::vector<std::string>& names, size_t* tried) {
    if (names.empty()) return false;
    const bool try_them = *tried < kMaxTried;
    *tried += names.size();
    if (try_them) Compare(names, names);
    for (const std::string& name : names) {
      if (try_them && compared_.at(name).difference.Differs()) {
        first_ = name;
        return true;
      }
      compared_.erase(name);
      (try_them ? result_.renamed : result_.untried).push_back(name);
    }
    return false;
  }

  // Walks back from the op to compared variables, and records these and the ops between.
  void Explain(int op) {
    std::set<int> between;
    std::set<std::string> inputs;
    std::vector<int> open = {op};
    result_.inputs.clear();
    result_.between.clear();
    while (!open.empty()) {
      const int reader = open.back();
      open.pop_back();
      for (const OpRead& read : ops_.ReadsOf(reader)) {
        if (read.writer < 0 || IsWithin(read)) {
          if (inputs.insert(read.var).second) result_.inputs.push_back(read.var);
        } else if (read.writer != op && between.insert(read.writer).second) {
          open.push_back(read.writer);
        }
      }
    }
    for (const int writer : between) result_.between.push_back(ops_.PlaceOf(writer));
  }

  bool IsWithin(const OpRead& read) const {
    const auto found = compared_.find(read.var);
    if (found == compared_.end()) return false;
    // If the difference appears only in a later op that changes the variable in place, the value
    // read here was within tolerance.
    return !found->second.difference.Differs() || found->second.writer.op > read.writer;
  }

  // Whether a run can fetch the variable.
  static bool IsFetchable(const RunWay& way, const std::string& name) {
    if (way.saved) return true;
    const VarDesc* var = way.program->Root().FindVar(name);
    return var && var->type() == VarType::kLoDTensor;
  }

  // Evenly spaced variables that the ops between write and that these ops or the first one read.
  std::vector<std::string> Picks() const {
    std::unordered_set<std::string> seen;
    std::vector<int> readers = {compared_.at(*first_).writer.op};
    for (const OpPlace& place : result_.between) readers.push_back(place.op);
    std::vector<std::pair<int, std::string>> found;
    for (const int reader : readers) {
      for (const OpRead& read : ops_.ReadsOf(reader)) {
        if (read.writer < 0 || compared_.count(read.var) || skipped_.count(read.var)) continue;
        if (IsFetchable(a_, read.var) && IsFetchable(b_, read.var) && seen.insert(read.var).second)
          found.emplace_back(read.writer, read.var);
      }
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> picks;
    const size_t count = std::min(found.size(), kBatch);
    for (size_t i = 0; i < count; ++i)
      picks.push_back(found[(2 * i + 1) * found.size() / (2 * count)].second);
    return picks;
  }

  // Fetches some variables between. Returns false if this cannot narrow the search.
  bool Narrow() {
    const std::vector<std::string> picks = Picks();
    if (picks.empty()) return Confirm();
    std::vector<std::string> names = picks;
    names.push_back(*first_);
    const ComparedVariable before = compared_.at(*first_);
    try {
      Compare(names, names);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kInvalidArgument) throw;
      return false;  // one of them holds selected rows, which cannot be fetched
    }
    if (!compared_.at(*first_).difference.Differs()) {
      for (const std::string& name : picks) compared_.erase(name);
      compared_.at(*first_) = before;
      result_.hidden = true;
      return false;
    }
    for (const std::string& name : picks) {
      const auto found = compared_.find(name);
      if (found == compared_.end())
        skipped_.insert(name);
      else if (found->second.difference.Differs() &&
               found->second.writer.op < compared_.at(*first_).writer.op)
        first_ = name;
    }
    return true;
  }

  // The inputs that agreed were fetched in other runs than the ones in which the first one differs.
  // Fetched together with it, they may differ too, or keep passes from causing the difference.
  // Returns whether an earlier difference was found, from which the search continues.
  bool Confirm() {
    std::vector<std::string> names;
    for (const std::string& name : result_.inputs) {
      if (compared_.count(name)) names.push_back(name);
    }
    if (names.empty()) return false;
    names.push_back(*first_);
    const auto before = compared_;
    Compare(names, names);
    if (!compared_.at(*first_).difference.Differs()) {
      compared_ = before;
      result_.hidden = true;
      return false;
    }
    const int op = compared_.at(*first_).writer.op;
    for (const std::string& name : names) {
      const ComparedVariable& variable = compared_.at(name);
      if (variable.difference.Differs() && variable.writer.op < compared_.at(*first_).writer.op)
        first_ = name;
    }
    return compared_.at(*first_).writer.op < op;
  }

  void Finish() {
    result_.not_compared =
        static_cast<int64_t>(ops_.written().size()) -
        static_cast<int64_t>(compared_.size() + result_.renamed.size() + result_.untried.size());
    const RootOps of_b(*b_.program);
    for (const std::string& name : of_b.written()) result_.not_compared += !ops_.Writes(name);
    for (const TensorDifference& result : result_.other_results)
      result_.not_compared -= ops_.Writes(result.name) || of_b.Writes(result.name);
    for (auto& [name, variable] : compared_) result_.compared.push_back(std::move(variable));
    std::sort(result_.compared.begin(), result_.compared.end(),
              [](const ComparedVariable& x, const ComparedVariable& y) {
                return std::pair(x.writer.op, x.difference.name) <
                       std::pair(y.writer.op, y.difference.name);
              });
    for (size_t i = 0; first_ && i < result_.compared.size(); ++i) {
      if (result_.compared[i].difference.name == *first_) result_.first = static_cast<int>(i);
    }
  }

  const RunWay &a_, &b_;
  const Tolerance& tolerance_;
  RootOps ops_;
  RunsDifference result_;
  std::unordered_map<std::string, ComparedVariable> compared_;
  std::optional<std::string> first_;
  std::unordered_set<std::string> skipped_;  // fetched, but no run gave their values
};

}  // namespace

bool RunsDifference::Differs() const {
  return first >= 0 || !untried.empty() ||
         std::any_of(other_results.begin(), other_results.end(),
                     [](const TensorDifference& result) { return result.Differs(); });
}

RunsDifference CompareRuns(const RunWay& a, const RunWay& b, const Tolerance& tolerance) {
  return RunComparer(a, b, tolerance).Run();
}

}  // namespace coracle
