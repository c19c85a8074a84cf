#include <coracle/operators/kernels/bfloat16_products.h>

#include <atomic>

#if defined(CORACLE_ONEDNN) && defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#endif

namespace coracle::inline internal {
namespace {

constexpr int kMeasured = -1;
std::atomic<int> answer{kMeasured};

#if defined(CORACLE_ONEDNN) && defined(__x86_64__)

constexpr int kRounds = 1500;

// Eight independent instructions in each round.
#define CORACLE_EIGHT(f) f(s0) f(s1) f(s2) f(s3) f(s4) f(s5) f(s6) f(s7)
__attribute__((target("avx512f"))) void FloatProducts() {
  const __m512 a = _mm512_setzero_ps();
  __m512 s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a;
  for (int i = 0; i < kRounds; ++i) {
#define CORACLE_STEP(s)         \
  s = _mm512_fmadd_ps(a, a, s); \
  asm volatile("" : "+v"(s));
    CORACLE_EIGHT(CORACLE_STEP)
#undef CORACLE_STEP
  }
}
__attribute__((target("avx512f,avx512bf16"))) void BFloat16Products() {
  const __m512 z = _mm512_setzero_ps();
  const auto a = (__m512bh)_mm512_setzero_si512();
  __m512 s0 = z, s1 = z, s2 = z, s3 = z, s4 = z, s5 = z, s6 = z, s7 = z;
  for (int i = 0; i < kRounds; ++i) {
#define CORACLE_STEP(s)          \
  s = _mm512_dpbf16_ps(s, a, a); \
  asm volatile("" : "+v"(s));
    CORACLE_EIGHT(CORACLE_STEP)
#undef CORACLE_STEP
  }
}
#undef CORACLE_EIGHT

double Seconds(void (*f)()) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// An instruction computes 32 products of bfloat16, or 16 of float32.
bool InstructionsPay() {
  double wide = 1, half = 1;
  for (int i = 0; i < 12; ++i) {
    wide = std::min(wide, Seconds(FloatProducts));
    half = std::min(half, Seconds(BFloat16Products));
  }
  return half / 2 <= 0.8 * wide;
}

bool Measure() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  if (isa == dnnl::cpu_isa::avx512_core_amx) return true;
  return isa == dnnl::cpu_isa::avx512_core_bf16 && InstructionsPay();
}

#else

bool Measure() { return false; }

#endif

}  // namespace

bool BFloat16ProductsPay() {
  const int now = answer.load(std::memory_order_relaxed);
  if (now != kMeasured) return now != 0;
  static const bool measured = Measure();
  return measured;
}

ScopedBFloat16Products::ScopedBFloat16Products(bool pay)
    : before_(answer.exchange(pay ? 1 : 0, std::memory_order_relaxed)) {}
ScopedBFloat16Products::~ScopedBFloat16Products() {
  answer.store(before_, std::memory_order_relaxed);
}

}  // namespace coracle::inline internal
