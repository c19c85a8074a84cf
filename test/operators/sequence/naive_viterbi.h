#pragma once
// The best path through a linear chain by its definition: what viterbi_decode and crf_decoding are
// compared with where there are too many paths to try them all.

#include <cstdint>
#include <functional>
#include <vector>

namespace coracle::naive {

struct Path {
  double score = 0;
  std::vector<int64_t> tags;
};

// Step t at tag j scores x(t, j), the first tag start(j), the last one stop(j), and a change from i
// to j inner(i, j). Among equal choices the lowest tag wins.
inline Path Viterbi(int64_t steps, int64_t tags, const std::function<double(int64_t, int64_t)>& x,
                    const std::function<double(int64_t)>& start,
                    const std::function<double(int64_t)>& stop,
                    const std::function<double(int64_t, int64_t)>& inner) {
  if (steps == 0) return {};
  std::vector<Path> best;  // of those that end in each tag
  for (int64_t j = 0; j < tags; ++j) best.push_back({start(j) + x(0, j), {j}});
  for (int64_t t = 1; t < steps; ++t) {
    std::vector<Path> next;
    for (int64_t j = 0; j < tags; ++j) {
      int64_t from = 0;
      const auto score = [&](int64_t i) {
        return best[static_cast<size_t>(i)].score + inner(i, j);
      };
      for (int64_t i = 1; i < tags; ++i) from = score(i) > score(from) ? i : from;
      next.push_back({score(from) + x(t, j), best[static_cast<size_t>(from)].tags});
      next.back().tags.push_back(j);
    }
    best = next;
  }
  for (int64_t j = 0; j < tags; ++j) best[static_cast<size_t>(j)].score += stop(j);
  Path found = best[0];
  for (const Path& path : best) found = path.score > found.score ? path : found;
  return found;
}

}  // namespace coracle::naive
