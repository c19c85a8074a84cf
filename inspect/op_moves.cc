#include <coracle/inspect/op_matching.h>

#include <algorithm>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Numbers = std::vector<int>;

size_t Index(int i) { return static_cast<size_t>(i); }

// Returns for each number whether it belongs to one chosen longest increasing subsequence.
std::vector<bool> LongestIncreasing(const Numbers& numbers) {
  Numbers ends;  // by length - 1: the position of the smallest possible last number
  Numbers previous(numbers.size(), -1);
  for (size_t p = 0; p < numbers.size(); ++p) {
    const auto less = [&](int position, int number) { return numbers[Index(position)] < number; };
    const auto place = std::lower_bound(ends.begin(), ends.end(), numbers[p], less);
    if (place != ends.begin()) previous[p] = *(place - 1);
    if (place == ends.end())
      ends.push_back(static_cast<int>(p));
    else
      *place = static_cast<int>(p);
  }
  std::vector<bool> chosen(numbers.size(), false);
  for (int p = ends.empty() ? -1 : ends.back(); p >= 0; p = previous[Index(p)])
    chosen[Index(p)] = true;
  return chosen;
}

// The variables that the op and its sub-blocks read (or may write), as names after.
Numbers NamesOf(const UsesOfSide& side, int op, bool reads, const NamePairs& names) {
  Numbers numbers;
  const auto add = [&](std::string_view text) {
    const int name = names.Find(text);
    if (name >= 0) numbers.push_back(side.is_before ? names.ToAfter(name) : name);
  };
  const OpDesc& desc = side.graph.block().op(Index(op));
  reads ? side.outer.ForEachRead(desc, add) : side.outer.ForEachWrite(desc, add);
  return numbers;
}

// The names that both ops of a pair read (or may write).
Numbers CommonNames(const UsesOfSide& before, int i, const UsesOfSide& after, int j, bool reads,
                    const NamePairs& names) {
  Numbers a = NamesOf(before, i, reads, names), b = NamesOf(after, j, reads, names), common;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  common.erase(std::unique(common.begin(), common.end()), common.end());
  return common;
}

// The positions after of all matched ops before, in their order before.
Numbers PlacesAfter(const OpMatching& matching) {
  Numbers places;
  for (const int j : matching.after_of) {
    if (j >= 0) places.push_back(j);
  }
  return places;
}

// Two matched ops.
struct OpPair {
  int before, after;
  Numbers reads, writes;            // names that both use, also in their blocks
  Numbers last_before, last_after;  // by name, reads first: the pair that wrote it last; -1 if none
};

// Fills last_before (or last_after) of the pairs, visited in this order.
void FindLastWriters(const Numbers& order, Numbers OpPair::*last_writers,
                     std::vector<OpPair>* pairs) {
  std::unordered_map<int, int> writer_of;
  for (const int p : order) {
    OpPair& pair = (*pairs)[Index(p)];
    for (const Numbers* names : {&pair.reads, &pair.writes}) {
      for (const int name : *names) {
        const auto found = writer_of.find(name);
        (pair.*last_writers).push_back(found == writer_of.end() ? -1 : found->second);
      }
    }
    for (const int name : pair.writes) writer_of[name] = p;
  }
}

}  // namespace

bool HasMoves(const OpMatching& matching) {
  const Numbers places = PlacesAfter(matching);
  return !std::is_sorted(places.begin(), places.end());
}

std::vector<int> FindMoves(const UsesOfSide& before, const UsesOfSide& after,
                           const OpMatching& matching, const NamePairs& names, size_t* reordered) {
  std::vector<int> moved(matching.after_of.size(), -1);
  Numbers order, order_after;
  const std::vector<bool> in_order = LongestIncreasing(PlacesAfter(matching));
  std::vector<OpPair> pairs;
  for (int i = 0; i < before.graph.NumOps(); ++i) {
    const int j = matching.after_of[Index(i)];
    if (j < 0) continue;
    order.push_back(static_cast<int>(pairs.size()));
    pairs.push_back({i,
                     j,
                     CommonNames(before, i, after, j, true, names),
                     CommonNames(before, i, after, j, false, names),
                     {},
                     {}});
  }
  order_after = order;
  std::sort(order_after.begin(), order_after.end(),
            [&](int p, int q) { return pairs[Index(p)].after < pairs[Index(q)].after; });
  FindLastWriters(order, &OpPair::last_before, &pairs);
  FindLastWriters(order_after, &OpPair::last_after, &pairs);
  for (size_t p = 0; p < pairs.size(); ++p) {
    const OpPair& pair = pairs[p];
    for (size_t k = 0; k < pair.last_before.size(); ++k) {
      if (pair.last_before[k] == pair.last_after[k]) continue;
      const size_t reads = pair.reads.size();
      const int name = k < reads ? pair.reads[k] : pair.writes[k - reads];
      for (const int q : {static_cast<int>(p), pair.last_before[k], pair.last_after[k]}) {
        if (q >= 0 && !in_order[Index(q)]) moved[Index(pairs[Index(q)].before)] = name;
      }
    }
  }
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (!in_order[p] && moved[Index(pairs[p].before)] < 0) ++*reordered;
  }
  return moved;
}

}  // namespace coracle::inline internal
