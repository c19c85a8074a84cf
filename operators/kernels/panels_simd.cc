#include <coracle/operators/kernels/panels.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/panels_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Pack(const float* x, int64_t step, int64_t rows, int64_t depth, int64_t width, float* out) {
  for (int64_t begin = 0; begin < rows; begin += width, out += width * depth) {
    const int64_t count = rows - begin < width ? rows - begin : width;
    const float* from = x + begin * step;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> four;
    for (; i + 4 <= count; i += 4) {
      int64_t k = 0;
      for (; k + 4 <= depth; k += 4) {
        const float* at = from + i * step + k;
        const auto a = hn::LoadU(four, at), b = hn::LoadU(four, at + step);
        const auto c = hn::LoadU(four, at + 2 * step), e = hn::LoadU(four, at + 3 * step);
        const auto ab = hn::InterleaveLower(a, b), ce = hn::InterleaveLower(c, e);
        const auto ab_upper = hn::InterleaveUpper(four, a, b);
        const auto ce_upper = hn::InterleaveUpper(four, c, e);
        float* to = out + k * width + i;
        hn::StoreU(hn::ConcatLowerLower(four, ce, ab), four, to);
        hn::StoreU(hn::ConcatUpperUpper(four, ce, ab), four, to + width);
        hn::StoreU(hn::ConcatLowerLower(four, ce_upper, ab_upper), four, to + 2 * width);
        hn::StoreU(hn::ConcatUpperUpper(four, ce_upper, ab_upper), four, to + 3 * width);
      }
      for (; k < depth; ++k) {
        for (int64_t r = i; r < i + 4; ++r) out[k * width + r] = from[r * step + k];
      }
    }
#endif
    for (; i < count; ++i) {
      for (int64_t k = 0; k < depth; ++k) out[k * width + i] = from[i * step + k];
    }
    for (; i < width; ++i) {
      for (int64_t k = 0; k < depth; ++k) out[k * width + i] = 0;
    }
  }
}

void CopyPanels(const float* x, int64_t step, int64_t rows, int64_t columns, int64_t width,
                float* out) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t begin = 0; begin < columns; begin += width) {
    const int64_t count = columns - begin < width ? columns - begin : width;
    for (int64_t i = 0; i < rows; ++i, out += width) {
      const float* from = x + i * step + begin;
      int64_t j = 0;
      for (; j + lanes <= count; j += lanes) hn::StoreU(hn::LoadU(d, from + j), d, out + j);
      for (; j < width; j += lanes) {
        FloatVec v = hn::Zero(d);
        if (j < count) {
          const auto inside = hn::FirstN(d, static_cast<size_t>(count - j));
          v = hn::IfThenElseZero(inside, LoadFirst(from + j, count - j));
        }
        hn::StoreU(v, d, out + j);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(Pack);
HWY_EXPORT(CopyPanels);

}  // namespace

void PackColumns(const float* x, int64_t step, int64_t rows, int64_t depth, int64_t width,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(Pack)(x, step, rows, depth, width, out);
}
void PackRows(const float* x, int64_t step, int64_t rows, int64_t columns, int64_t width,
              float* out) {
  HWY_DYNAMIC_DISPATCH(CopyPanels)(x, step, rows, columns, width, out);
}

}  // namespace coracle::inline internal
#endif
