#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/simd_lanes.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_lanes-inl.h>
#include <coracle/operators/kernels/simd_loops-inl.h>
// clang-format on
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

constexpr size_t kLine = 64;
// The prefetch distance: large enough for the memory latency, small enough for the data to stay in
// the first-level cache.
constexpr size_t kAhead = 1024;

void LoadLanes(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1,
               Vec v2, Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const float* from = LaneOperand(code, pointers, at);
  const Tag d;
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7,
               [&](Vec, size_t i) HWY_ATTR { return hn::LoadU(d, from + i * hn::Lanes(d)); });
}
void StoreLanes(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1,
                Vec v2, Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  float* to = LaneOperand(code, pointers, at);
  const Tag d;
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7, [&](Vec v, size_t i) HWY_ATTR {
    hn::StoreU(v, d, to + i * hn::Lanes(d));
    return v;
  });
}
void StreamLanes(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1,
                 Vec v2, Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  float* to = LaneOperand(code, pointers, at);
  const Tag d;
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7, [&](Vec v, size_t i) HWY_ATTR {
    hn::Stream(v, d, to + i * hn::Lanes(d));
    return v;
  });
}
void EndLanes(const LaneInstruction*, char* const*, size_t, Vec, Vec, Vec, Vec, Vec, Vec, Vec,
              Vec) {}

LaneMoves MovesOf() {
  return {AsLaneRun(LoadLanes), AsLaneRun(StoreLanes), AsLaneRun(StreamLanes), AsLaneRun(EndLanes),
          static_cast<int64_t>(8 * hn::Lanes(Tag()))};
}

void Run(const LaneInstruction* tape, char* const* pointers, int64_t tiles, const int32_t* ahead,
         size_t num_ahead) {
  const size_t tile = 8 * hn::Lanes(Tag()) * sizeof(float);
  const Vec none = hn::Zero(Tag());
  for (size_t at = 0, end = static_cast<size_t>(tiles) * tile; at < end; at += tile) {
    for (size_t k = 0; k < num_ahead; ++k) {
      const char* from = pointers[ahead[k]] + at + kAhead;
      for (size_t line = 0; line < tile; line += kLine) hwy::Prefetch(from + line);
    }
    reinterpret_cast<LaneFn>(tape->run)(tape, pointers, at, none, none, none, none, none, none,
                                        none, none);
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // Instructions leave the upper halves of registers in use, which would slow down SSE code;
  // compilers assume that called functions do not.
  _mm256_zeroupper();
#endif
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::simd {

HWY_EXPORT(MovesOf);
HWY_EXPORT(Run);

LaneMoves FindLaneMoves() { return HWY_DYNAMIC_DISPATCH(MovesOf)(); }
void RunLanes(const LaneInstruction* tape, char* const* pointers, int64_t tiles,
              const int32_t* ahead, size_t num_ahead) {
  HWY_DYNAMIC_DISPATCH(Run)(tape, pointers, tiles, ahead, num_ahead);
}

}  // namespace coracle::simd
#endif
