#include <coracle/inspect/common_subsequence.h>
#include <coracle/inspect/op_matching.h>

#include <algorithm>
#include <functional>

namespace coracle::inline internal {
namespace {

// The readers of a value with many readers (such as a learning rate) are not compared, because it
// does not identify them, and because that would take quadratic time.
constexpr size_t kMostReaders = 16;
// Ops with more variables are compared only position by position.
constexpr size_t kMostSearched = 64;

size_t Index(int i) { return static_cast<size_t>(i); }

size_t Mixed(size_t a, size_t b) { return MixedBits(a * 0x9e3779b97f4a7c15u + b); }

using Uses = std::vector<OpGraph::Use>;

// The use of another op at the place of uses[at]; nullptr if there is none.
const OpGraph::Use* AtSamePlace(const Uses& others, size_t place, size_t at) {
  if (at < others.size() && others[at].place == place) return &others[at];
  if (others.size() > kMostSearched) return nullptr;
  for (const OpGraph::Use& other : others) {
    if (other.place == place) return &other;
  }
  return nullptr;
}

// Calls f(use, other) for the uses of two ops at the same places.
template <class F>
void ForEachCommonPlace(const Uses& uses, const Uses& others, const F& f) {
  for (size_t i = 0; i < uses.size(); ++i) {
    if (const OpGraph::Use* other = AtSamePlace(others, uses[i].place, i)) f(uses[i], *other);
  }
}

// Finds ops by a key, unmatched ops first.
class Candidates {
 public:
  void Add(size_t key, int op) { lists_[key].ops.push_back(op); }
  // The first op for which `is_free`; -1 if there is none.
  template <class IsFree>
  int First(size_t key, const IsFree& is_free) {
    const auto found = lists_.find(key);
    if (found == lists_.end()) return -1;
    List& list = found->second;
    while (list.next < list.ops.size() && !is_free(list.ops[list.next])) ++list.next;
    return list.next < list.ops.size() ? list.ops[list.next] : -1;
  }

 private:
  struct List {
    std::vector<int> ops;
    size_t next = 0;
  };
  std::unordered_map<size_t, List> lists_;
};

// The variable of that name, also if an outer block declares it.
const VarDesc* Declared(const OpGraph& graph, const std::string& name) {
  return graph.block().FindVarRecursive(name);
}

// Hashes the type, the attrs and the names of all variables; those of `before` as they are after.
size_t KeyOfAll(const OpGraph& graph, int op, bool before, const NamePairs& names) {
  size_t sum = 0;
  const auto add = [&](const Uses& uses, size_t what) {
    for (const OpGraph::Use& use : uses)
      sum += Mixed(use.place + what, Index(before ? names.ToAfter(use.name) : use.name));
  };
  add(graph.Inputs(op), 1);
  add(graph.Outputs(op), 2);
  return Mixed(graph.TypeAndAttrs(op), sum);
}

// Hashes the type, the attrs and the values that the op reads.
size_t KeyOfReads(const OpGraph& graph, int op) {
  size_t sum = 0;
  for (const OpGraph::Use& use : graph.Inputs(op)) sum += Mixed(use.place, Index(use.value));
  return Mixed(graph.TypeAndAttrs(op), sum);
}

// Hashes the type and the name of the first result.
size_t KeyOfResults(const OpGraph& graph, int op, bool before, const NamePairs& names) {
  if (graph.Outputs(op).empty()) return graph.Type(op);
  const int name = graph.Outputs(op)[0].name;
  return Mixed(graph.Type(op), 1 + Index(before ? names.ToAfter(name) : name));
}

// The only unmatched op of that type among the readers of a value; -1 if there is none.
template <class IsFree>
int OnlyReader(const OpGraph& graph, int value, size_t type, const IsFree& is_free) {
  const std::vector<int>& readers = graph.ValueAt(value).readers;
  if (readers.size() > kMostReaders) return -1;
  int only = -1;
  for (const int reader : readers) {
    if (graph.Type(reader) != type || !is_free(reader) || reader == only) continue;
    if (only >= 0) return -1;
    only = reader;
  }
  return only;
}

// Pairs the ops that are equal in all respects.
std::vector<std::pair<int, int>> EqualOps(const OpGraph& a, const OpGraph& b,
                                          const NamePairs& names) {
  Candidates equal;
  for (int j = 0; j < b.NumOps(); ++j) {
    if (b.Counts(j)) equal.Add(KeyOfAll(b, j, false, names), j);
  }
  std::vector<std::pair<int, int>> pairs;
  std::vector<bool> taken(Index(b.NumOps()), false);
  for (int i = 0; i < a.NumOps(); ++i) {
    if (!a.Counts(i)) continue;
    const int j =
        equal.First(KeyOfAll(a, i, true, names), [&](int other) { return !taken[Index(other)]; });
    if (j < 0) continue;
    taken[Index(j)] = true;
    pairs.emplace_back(i, j);
  }
  return pairs;
}

// Pairs ops of the two lists by their order, like lines of text. Keeps a pair if the op before or
// after it is matched to the adjacent op, or is kept as well.
std::vector<std::pair<int, int>> AlignedOps(const OpGraph& a, const OpGraph& b,
                                            const std::vector<int>& rest_a,
                                            const std::vector<int>& rest_b,
                                            const OpMatching& found) {
  std::vector<std::pair<int, int>> pairs = CommonSubsequence(
      static_cast<int>(rest_a.size()), static_cast<int>(rest_b.size()), [&](int x, int y) {
        return a.TypeAndAttrs(rest_a[Index(x)]) == b.TypeAndAttrs(rest_b[Index(y)]);
      });
  for (auto& [i, j] : pairs) {
    i = rest_a[Index(i)];
    j = rest_b[Index(j)];
  }
  const auto neighbours = [&](int i, int j) {
    const bool inside = i >= 0 && j >= 0 && i < a.NumOps() && j < b.NumOps();
    return inside && found.after_of[Index(i)] == j;
  };
  const auto follows = [](const std::pair<int, int>& x, const std::pair<int, int>& y) {
    return x.first + 1 == y.first && x.second + 1 == y.second;
  };
  std::vector<std::pair<int, int>> kept;
  for (size_t p = 0; p < pairs.size(); ++p) {
    const auto [i, j] = pairs[p];
    if (neighbours(i - 1, j - 1) || neighbours(i + 1, j + 1) ||
        (p > 0 && follows(pairs[p - 1], pairs[p])) ||
        (p + 1 < pairs.size() && follows(pairs[p], pairs[p + 1])))
      kept.push_back(pairs[p]);
  }
  return kept;
}

class OpMatcher {
 public:
  OpMatcher(const OpGraph& before, const OpGraph& after, NamePairs& names)
      : a_(before), b_(after), names_(names) {
    found_.after_of.assign(Index(a_.NumOps()), -1);
    found_.before_of.assign(Index(b_.NumOps()), -1);
    value_after_.assign(Index(a_.NumValues()), -1);
  }

  OpMatching Run() {
    for (const auto& [i, j] : EqualOps(a_, b_, names_)) Match(i, j);
    for (int j = 0; j < b_.NumOps(); ++j) {
      if (!b_.Counts(j)) continue;
      by_reads_.Add(KeyOfReads(b_, j), j);
      by_results_.Add(KeyOfResults(b_, j, false, names_), j);
    }
    for (int i = 0; i < a_.NumOps(); ++i) {
      if (a_.Counts(i)) owners_.Add(KeyOfResults(a_, i, false, names_), i);
    }
    Forward();
    Backward();
    Forward();
    Align();
    Forward();
    return std::move(found_);
  }

 private:
  bool IsFreeBefore(int i) const { return a_.Counts(i) && found_.after_of[Index(i)] < 0; }
  bool IsFreeAfter(int j) const { return b_.Counts(j) && found_.before_of[Index(j)] < 0; }

  void Match(int i, int j) {
    found_.after_of[Index(i)] = j;
    found_.before_of[Index(j)] = i;
    const auto pair_results = [&](const OpGraph::Use& x, const OpGraph::Use& y) {
      value_after_[Index(x.value)] = y.value;
      if (MayPair(x.name, y.name)) names_.Pair(x.name, y.name);
    };
    const auto pair_outer = [&](const OpGraph::Use& x, const OpGraph::Use& y) {
      const bool outer = a_.ValueAt(x.value).op < 0 && b_.ValueAt(y.value).op < 0;
      const bool renaming = x.name == y.name || names_.IsRenaming(x.name, y.name);
      if (outer && renaming && MayPair(x.name, y.name)) names_.Pair(x.name, y.name);
    };
    ForEachCommonPlace(a_.Outputs(i), b_.Outputs(j), pair_results);
    ForEachCommonPlace(a_.Inputs(i), b_.Inputs(j), pair_outer);
  }

  // A persistable variable is identified by its name. It may have another name on the other side
  // only if each name exists on only one side and the types are equal.
  bool MayPair(int x, int y) const {
    if (x == y) return true;
    const VarDesc* before = Declared(a_, names_.Text(x));
    const VarDesc* after = Declared(b_, names_.Text(y));
    const bool persists = (before && before->persistable()) || (after && after->persistable());
    if (!persists) return true;
    return names_.IsRenaming(x, y) && before && after &&
           before->persistable() == after->persistable() && before->meta() == after->meta();
  }

  // --- ops that read the same values, write the same names or have a matched neighbour ---

  // The corresponding value on the other side; -1 if it is not known yet.
  int ValueAfter(const OpGraph::Use& use) const {
    const int known = value_after_[Index(use.value)];
    if (known >= 0 || a_.ValueAt(use.value).op >= 0) return known;
    return b_.OuterValue(names_.ToAfter(use.name));
  }
  int CandidateByReads(int i) {
    if (a_.Inputs(i).empty()) return CandidateByAttrs(i);
    size_t sum = 0;
    for (const OpGraph::Use& use : a_.Inputs(i)) {
      const int value = ValueAfter(use);
      if (value < 0) return -1;
      sum += Mixed(use.place, Index(value));
    }
    return by_reads_.First(Mixed(a_.TypeAndAttrs(i), sum), [&](int j) { return IsFreeAfter(j); });
  }

  // For ops without inputs (fill_constant, a random op), equal attrs are weak evidence: prefers an
  // unmatched op that writes variables of the same names.
  int CandidateByAttrs(int i) {
    const int j =
        by_reads_.First(Mixed(a_.TypeAndAttrs(i), 0), [&](int op) { return IsFreeAfter(op); });
    if (j < 0) return -1;
    const int owner =
        owners_.First(KeyOfResults(b_, j, false, names_), [&](int op) { return IsFreeBefore(op); });
    return owner < 0 || owner == i ? j : -1;
  }

  int CandidateByResults(int i) {
    return by_results_.First(KeyOfResults(a_, i, true, names_),
                             [&](int j) { return IsFreeAfter(j); });
  }

  int CandidateByNeighbour(int i) {
    const auto free_before = [&](int op) { return IsFreeBefore(op); };
    const auto free_after = [&](int op) { return IsFreeAfter(op); };
    for (const OpGraph::Use& use : a_.Inputs(i)) {
      const int value = ValueAfter(use);
      if (value < 0 || OnlyReader(a_, use.value, a_.Type(i), free_before) != i) continue;
      const int j = OnlyReader(b_, value, a_.Type(i), free_after);
      if (j < 0) continue;
      // Leaves it to an op that writes variables of the same names.
      const int owner = owners_.First(KeyOfResults(b_, j, false, names_), free_before);
      if (owner < 0 || owner == i) return j;
    }
    return -1;
  }

  // Rates how well two ops of one type agree.
  int Agreement(int i, int j) const {
    size_t same = 0;
    ForEachCommonPlace(a_.Inputs(i), b_.Inputs(j), [&](const auto& x, const auto& y) {
      same += ValueAfter(x) == y.value ? 1u : 0u;
    });
    const Uses &results = a_.Outputs(i), &others = b_.Outputs(j);
    const bool same_names =
        !results.empty() && !others.empty() && names_.ToAfter(results[0].name) == others[0].name;
    const bool all = same > 0 && same == std::max(a_.Inputs(i).size(), b_.Inputs(j).size());
    return (all        ? 3
            : same > 0 ? 1
                       : 0) +
           (same_names ? 2 : 0) + (a_.TypeAndAttrs(i) == b_.TypeAndAttrs(j) ? 1 : 0);
  }

  void Forward() {
    for (int i = 0; i < a_.NumOps(); ++i) {
      if (!IsFreeBefore(i)) continue;
      int best = -1, most = 0;
      for (const int j : {CandidateByResults(i), CandidateByReads(i), CandidateByNeighbour(i)}) {
        if (j < 0 || a_.Type(i) != b_.Type(j)) continue;
        const int agreement = Agreement(i, j);
        if (agreement > most) {
          best = j;
          most = agreement;
        }
      }
      if (best >= 0) Match(i, best);
    }
  }

  // --- writers of values that matched ops read ---
  void Backward() {
    for (int i = a_.NumOps(); i-- > 0;) {
      const int j = found_.after_of[Index(i)];
      if (j < 0) continue;
      ForEachCommonPlace(a_.Inputs(i), b_.Inputs(j), [&](const auto& x, const auto& y) {
        const OpGraph::Value &from = a_.ValueAt(x.value), &other = b_.ValueAt(y.value);
        if (from.op < 0 || other.op < 0 || from.place != other.place) return;
        if (IsFreeBefore(from.op) && IsFreeAfter(other.op) && a_.Type(from.op) == b_.Type(other.op))
          Match(from.op, other.op);
      });
    }
  }

  // --- the rest, by order ---
  void Align() {
    std::vector<int> rest_a, rest_b;
    for (int i = 0; i < a_.NumOps(); ++i) {
      if (IsFreeBefore(i)) rest_a.push_back(i);
    }
    for (int j = 0; j < b_.NumOps(); ++j) {
      if (IsFreeAfter(j)) rest_b.push_back(j);
    }
    for (const auto& [i, j] : AlignedOps(a_, b_, rest_a, rest_b, found_)) Match(i, j);
  }

  const OpGraph &a_, &b_;
  NamePairs& names_;
  OpMatching found_;
  std::vector<int> value_after_;  // by value of a_
  Candidates by_reads_, by_results_, owners_;
};

}  // namespace

OpMatching MatchOps(const OpGraph& before, const OpGraph& after, NamePairs& names) {
  return OpMatcher(before, after, names).Run();
}

}  // namespace coracle::inline internal
