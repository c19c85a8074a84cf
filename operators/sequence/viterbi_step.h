#pragma once
// A step of the Viterbi algorithm, for viterbi_decode and crf_decoding.

#include <cstdint>

namespace coracle::inline internal {

// best[j] = max over i of before[i] + transition[i][j], plus x[j]; from[j] = the first such i.
// Iterates over the rows of `transition`, so that the inner loop can be vectorised.
template <class T>
void ViterbiStep(const T* x, const T* transition, int64_t tags, const T* before, T* best,
                 int32_t* from) {
  for (int64_t j = 0; j < tags; ++j) {
    best[j] = before[0] + transition[j];
    from[j] = 0;
  }
  for (int64_t i = 1; i < tags; ++i) {
    const T* row = transition + i * tags;
    for (int64_t j = 0; j < tags; ++j) {
      const T score = before[i] + row[j];
      const bool better = score > best[j];
      best[j] = better ? score : best[j];
      from[j] = better ? static_cast<int32_t>(i) : from[j];
    }
  }
  for (int64_t j = 0; j < tags; ++j) best[j] += x[j];
}

}  // namespace coracle::inline internal
