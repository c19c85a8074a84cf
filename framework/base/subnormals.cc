#include <coracle/framework/base/subnormals.h>

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace coracle::inline internal {
namespace {

// The register that controls floating-point arithmetic, and its bits for subnormal operands and
// results. Reading it takes a few cycles, writing some twenty.
#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8040;  // FTZ and DAZ of MXCSR
uint64_t Control() { return _mm_getcsr(); }
void SetControl(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }
#elif defined(__aarch64__)
constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ of FPCR
uint64_t Control() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void SetControl(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#else
constexpr uint64_t kFlush = 0;
uint64_t Control() { return 0; }
void SetControl(uint64_t) {}
#endif

void Set(bool flush) {
  const uint64_t control = Control();
  const uint64_t wanted = flush ? control | kFlush : control & ~kFlush;
  if (wanted != control) SetControl(wanted);
}

}  // namespace

bool FlushesSubnormals() { return (Control() & kFlush) != 0; }

ScopedSubnormals::ScopedSubnormals(bool flush) : before_(FlushesSubnormals()) { Set(flush); }
ScopedSubnormals::~ScopedSubnormals() { Set(before_); }

}  // namespace coracle::inline internal
