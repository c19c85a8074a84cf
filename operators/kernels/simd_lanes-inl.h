// Instructions on tiles (LaneInstruction), for the files that are compiled once per SIMD target;
// include after highway.h.

#if defined(CORACLE_SIMD_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_SIMD_LANES_INL_H
#undef CORACLE_SIMD_LANES_INL_H
#else
#define CORACLE_SIMD_LANES_INL_H
#endif

#include <coracle/operators/kernels/simd_loops-inl.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

// An instruction gets the accumulator in registers, exactly as many vectors as calling conventions
// pass, and ends with a call of the next one, which compilers turn into a jump. `at` is the offset
// of the tile in bytes.
using LaneFn = void (*)(const LaneInstruction* code, char* const* pointers, size_t at, Vec, Vec,
                        Vec, Vec, Vec, Vec, Vec, Vec);

// Calls f(vector, its index in the tile) for each vector of the accumulator, then the
// next instruction.
template <class F>
HWY_INLINE void EachThenNext(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0,
                             Vec v1, Vec v2, Vec v3, Vec v4, Vec v5, Vec v6, Vec v7, const F& f) {
  v0 = f(v0, 0), v1 = f(v1, 1), v2 = f(v2, 2), v3 = f(v3, 3);
  v4 = f(v4, 4), v5 = f(v5, 5), v6 = f(v6, 6), v7 = f(v7, 7);
  reinterpret_cast<LaneFn>(code[1].run)(code + 1, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7);
}

// The operand in memory.
HWY_INLINE float* LaneOperand(const LaneInstruction* code, char* const* pointers, size_t at) {
  return reinterpret_cast<float*>(pointers[code->pointer] + (code->moves ? at : 0));
}

template <class F>
void LaneOne(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1, Vec v2,
             Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const F f(code->params);
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7,
               [&](Vec v, size_t) HWY_ATTR { return f(v); });
}
template <class F>
void LaneLeft(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1, Vec v2,
              Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const F f(code->params);
  const float* from = LaneOperand(code, pointers, at);
  const Tag d;
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7, [&](Vec v, size_t i) HWY_ATTR {
    return f(v, hn::LoadU(d, from + i * hn::Lanes(d)));
  });
}
template <class F>
void LaneRight(const LaneInstruction* code, char* const* pointers, size_t at, Vec v0, Vec v1,
               Vec v2, Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const F f(code->params);
  const float* from = LaneOperand(code, pointers, at);
  const Tag d;
  EachThenNext(code, pointers, at, v0, v1, v2, v3, v4, v5, v6, v7, [&](Vec v, size_t i) HWY_ATTR {
    return f(hn::LoadU(d, from + i * hn::Lanes(d)), v);
  });
}

inline LaneRun AsLaneRun(LaneFn run) { return reinterpret_cast<LaneRun>(run); }

template <class F>
Lanes LanesOfOne() {
  return {AsLaneRun(LaneOne<F>), nullptr, nullptr};
}
template <class F>
Lanes LanesOfTwo() {
  return {nullptr, AsLaneRun(LaneLeft<F>), AsLaneRun(LaneRight<F>)};
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
