#include <coracle/inspect/op_matching.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

using Numbers = std::vector<int>;

size_t Index(int i) { return static_cast<size_t>(i); }

// For each of the numbers whether it belongs to one longest increasing subsequence.
std::vector<bool> LongestIncreasing(const Numbers& numbers) {
  Numbers ends;  // positions: of length l + 1, that with the least end
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

// The names (after) in both lists of uses, the first of which are of names before.
Numbers CommonNames(const std::vector<OpGraph::Use>& before, const std::vector<OpGraph::Use>& after,
                    const NamePairs& names) {
  Numbers a, b, common;
  for (const OpGraph::Use& use : before) a.push_back(names.ToAfter(use.name));
  for (const OpGraph::Use& use : after) b.push_back(use.name);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  common.erase(std::unique(common.begin(), common.end()), common.end());
  return common;
}

// Two ops that are the same.
struct OpPair {
  int before, after;
  Numbers reads, writes;            // names that both use
  Numbers last_before, last_after;  // by name, reads first: the pair that wrote it last; -1: none
};

// Fills last_before (last_after) of the pairs, which stand in `order`.
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

std::vector<int> FindMoves(const OpGraph& before, const OpGraph& after, const OpMatching& matching,
                           const NamePairs& names, size_t* reordered) {
  std::vector<int> moved(matching.after_of.size(), -1);
  Numbers places, order, order_after;
  for (const int j : matching.after_of) {
    if (j >= 0) places.push_back(j);
  }
  if (std::is_sorted(places.begin(), places.end())) return moved;
  const std::vector<bool> in_order = LongestIncreasing(places);
  std::vector<OpPair> pairs;
  for (int i = 0; i < before.NumOps(); ++i) {
    const int j = matching.after_of[Index(i)];
    if (j < 0) continue;
    order.push_back(static_cast<int>(pairs.size()));
    pairs.push_back({i,
                     j,
                     CommonNames(before.Inputs(i), after.Inputs(j), names),
                     CommonNames(before.Outputs(i), after.Outputs(j), names),
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

}  // namespace coracle
