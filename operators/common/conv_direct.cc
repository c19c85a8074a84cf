#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <coracle/operators/common/conv_direct.cc>

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/operators/common/conv_direct.h>
// clang-format on

#include <algorithm>
#include <cstring>
#include <vector>

#ifndef CORACLE_CONV_DIRECT_TYPES
#define CORACLE_CONV_DIRECT_TYPES
namespace coracle::conv_direct {

// What the loops need of a convolution. A tap is one element of the filter for each output channel;
// `offsets` says where its pixel lies behind the window's corner.
struct Shape {
  int64_t batch, out_h, out_w, out_c;
  int64_t image, row, step_h,
      step_w;                    // strides of the input: per image, row, and step of the window
  std::vector<int64_t> offsets;  // by tap
  int64_t taps() const { return static_cast<int64_t>(offsets.size()); }
};

constexpr int64_t kMaxVectors = 4;  // of output channels
// The gradient of the filter is summed over this many groups of images, then over the groups: the
// same for any number of threads.
constexpr int64_t kParts = 8;
constexpr int64_t kPad = 64;  // floats: output channels are padded to whole vectors of any target

inline int64_t Padded(int64_t channels) { return (channels + kPad - 1) / kPad * kPad; }

}  // namespace coracle::conv_direct
#endif

HWY_BEFORE_NAMESPACE();
namespace coracle::conv_direct::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

inline int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

// Loops over a fixed number of registers, unrolled by the compiler.
template <int NV>
HWY_INLINE void StoreChannels(const V* HWY_RESTRICT acc, int64_t channels,
                              float* HWY_RESTRICT out) {
  const D d;
  for (int v = 0; v < NV; ++v) {
    const int64_t left = channels - v * Lanes();
    if (left >= Lanes())
      hn::StoreU(acc[v], d, out + v * Lanes());
    else
      hn::BlendedStore(acc[v], hn::FirstN(d, static_cast<size_t>(left)), d, out + v * Lanes());
  }
}

// NP neighbouring pixels of one row. w: [taps, padded channels]; bias: [padded channels].
template <int NV, int NP>
HWY_INLINE void ForwardPixels(const Shape& s, const float* HWY_RESTRICT in,
                              const float* HWY_RESTRICT w, const float* HWY_RESTRICT bias,
                              float* HWY_RESTRICT out) {
  const D d;
  const int64_t padded = Padded(s.out_c);
  V acc[NP][NV];
  for (int v = 0; v < NV; ++v) {
    const V b = hn::LoadU(d, bias + v * Lanes());
    for (int p = 0; p < NP; ++p) acc[p][v] = b;
  }
  for (int64_t t = 0; t < s.taps(); ++t) {
    const float* x = in + s.offsets[static_cast<size_t>(t)];
    V filter[NV];
    for (int v = 0; v < NV; ++v) filter[v] = hn::LoadU(d, w + t * padded + v * Lanes());
    for (int p = 0; p < NP; ++p) {
      const V pixel = hn::Set(d, x[p * s.step_w]);
      for (int v = 0; v < NV; ++v) acc[p][v] = hn::MulAdd(pixel, filter[v], acc[p][v]);
    }
  }
  for (int p = 0; p < NP; ++p) StoreChannels<NV>(acc[p], s.out_c, out + p * s.out_c);
}

template <int NV>
void ForwardRow(const Shape& s, const float* in, const float* w, const float* bias, float* out) {
  constexpr int NP = NV == 1 ? 12 : NV == 2 ? 12 : NV == 3 ? 8 : 6;
  int64_t x = 0;
  for (; x + NP <= s.out_w; x += NP)
    ForwardPixels<NV, NP>(s, in + x * s.step_w, w, bias, out + x * s.out_c);
  for (; x < s.out_w; ++x) ForwardPixels<NV, 1>(s, in + x * s.step_w, w, bias, out + x * s.out_c);
}

// Rows [begin, end) of all images' output rows.
void ForwardRows(const Shape& s, const float* in, const float* w, const float* bias, float* out,
                 int64_t begin, int64_t end) {
  const int64_t vectors = (s.out_c + Lanes() - 1) / Lanes();
  for (int64_t r = begin; r < end; ++r) {
    const float* row = in + r / s.out_h * s.image + r % s.out_h * s.step_h;
    float* o = out + r * s.out_w * s.out_c;
    if (vectors == 1)
      ForwardRow<1>(s, row, w, bias, o);
    else if (vectors == 2)
      ForwardRow<2>(s, row, w, bias, o);
    else if (vectors == 3)
      ForwardRow<3>(s, row, w, bias, o);
    else
      ForwardRow<4>(s, row, w, bias, o);
  }
}

template <int NV>
HWY_INLINE void LoadChannels(const float* HWY_RESTRICT from, int64_t channels,
                             V* HWY_RESTRICT out) {
  const D d;
  for (int v = 0; v < NV; ++v) {
    const int64_t left = channels - v * Lanes();
    out[v] = left >= Lanes()
                 ? hn::LoadU(d, from + v * Lanes())
                 : hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(left)), d, from + v * Lanes());
  }
}

// dw[tap] += sum over the pixels of one image of in * dout, for taps [first, first + NT).
template <int NV, int NT>
HWY_INLINE void FilterGradTaps(const Shape& s, const float* HWY_RESTRICT in,
                               const float* HWY_RESTRICT dout, int64_t first,
                               float* HWY_RESTRICT dw) {
  const D d;
  const int64_t padded = Padded(s.out_c);
  V acc[NT][NV];
  int64_t offset[NT];
  for (int t = 0; t < NT; ++t) {
    offset[t] = s.offsets[static_cast<size_t>(first + t)];
    for (int v = 0; v < NV; ++v) acc[t][v] = hn::LoadU(d, dw + (first + t) * padded + v * Lanes());
  }
  for (int64_t y = 0; y < s.out_h; ++y) {
    const float* row = in + y * s.step_h;
    const float* g = dout + y * s.out_w * s.out_c;
    for (int64_t x = 0; x < s.out_w; ++x, row += s.step_w, g += s.out_c) {
      V grad[NV];
      LoadChannels<NV>(g, s.out_c, grad);
      for (int t = 0; t < NT; ++t) {
        const V pixel = hn::Set(d, row[offset[t]]);
        for (int v = 0; v < NV; ++v) acc[t][v] = hn::MulAdd(pixel, grad[v], acc[t][v]);
      }
    }
  }
  for (int t = 0; t < NT; ++t) {
    for (int v = 0; v < NV; ++v) hn::StoreU(acc[t][v], d, dw + (first + t) * padded + v * Lanes());
  }
}

template <int NV>
void FilterGradImage(const Shape& s, const float* in, const float* dout, float* dw) {
  constexpr int NT = NV == 1 ? 13 : NV == 2 ? 9 : NV == 3 ? 7 : 5;
  int64_t t = 0;
  for (; t + NT <= s.taps(); t += NT) FilterGradTaps<NV, NT>(s, in, dout, t, dw);
  for (; t + 4 <= s.taps(); t += 4) FilterGradTaps<NV, 4>(s, in, dout, t, dw);
  for (; t < s.taps(); ++t) FilterGradTaps<NV, 1>(s, in, dout, t, dw);
}

template <int NV>
void BiasGradImage(const Shape& s, const float* dout, float* db) {
  const D d;
  V acc[NV];
  for (int v = 0; v < NV; ++v) acc[v] = hn::LoadU(d, db + v * Lanes());
  for (int64_t i = 0; i < s.out_h * s.out_w; ++i) {
    V grad[NV];
    LoadChannels<NV>(dout + i * s.out_c, s.out_c, grad);
    for (int v = 0; v < NV; ++v) acc[v] = hn::Add(acc[v], grad[v]);
  }
  for (int v = 0; v < NV; ++v) hn::StoreU(acc[v], d, db + v * Lanes());
}

// Sums over images [begin, end) into sums [taps + 1, padded]; the last row is the bias's.
void Gradients(const Shape& s, const float* in, const float* dout, int64_t begin, int64_t end,
               bool with_bias, float* sums) {
  const int64_t vectors = (s.out_c + Lanes() - 1) / Lanes();
  const int64_t padded = Padded(s.out_c);
  std::fill(sums, sums + (s.taps() + 1) * padded, 0.0f);
  for (int64_t n = begin; n < end; ++n) {
    const float* x = in + n * s.image;
    const float* g = dout + n * s.out_h * s.out_w * s.out_c;
    float* b = sums + s.taps() * padded;
    if (vectors == 1)
      FilterGradImage<1>(s, x, g, sums);
    else if (vectors == 2)
      FilterGradImage<2>(s, x, g, sums);
    else if (vectors == 3)
      FilterGradImage<3>(s, x, g, sums);
    else
      FilterGradImage<4>(s, x, g, sums);
    if (!with_bias) continue;
    if (vectors == 1)
      BiasGradImage<1>(s, g, b);
    else if (vectors == 2)
      BiasGradImage<2>(s, g, b);
    else if (vectors == 3)
      BiasGradImage<3>(s, g, b);
    else
      BiasGradImage<4>(s, g, b);
  }
}

}  // namespace coracle::conv_direct::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {
namespace conv_direct {

HWY_EXPORT(Lanes);
HWY_EXPORT(ForwardRows);
HWY_EXPORT(Gradients);

bool Takes(const ConvGeometry& g) {
  const int64_t taps = g.in_channels * g.h.kernel * g.w.kernel;
  const bool plain = g.groups == 1 && g.h.dilation == 1 && g.w.dilation == 1 && g.h.before == 0 &&
                     g.h.after == 0 && g.w.before == 0 && g.w.after == 0;
  return plain && g.channels_last && g.in_channels <= 4 && taps <= 256 &&
         g.out_channels <= kMaxVectors * HWY_DYNAMIC_DISPATCH(Lanes)();
}

Shape ShapeOf(const ConvGeometry& g) {
  Shape s{g.batch, g.h.out, g.w.out, g.out_channels, 0, 0, 0, 0, {}};
  s.row = g.w.in * g.in_channels;
  s.image = g.h.in * s.row;
  s.step_h = g.h.stride * s.row;
  s.step_w = g.w.stride * g.in_channels;
  // In the order of the filter's elements of one output channel: [C, kh, kw].
  for (int64_t c = 0; c < g.in_channels; ++c) {
    for (int64_t i = 0; i < g.h.kernel; ++i) {
      for (int64_t j = 0; j < g.w.kernel; ++j)
        s.offsets.push_back(i * s.row + j * g.in_channels + c);
    }
  }
  return s;
}

}  // namespace conv_direct

Kernel ConvForwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args) {
  using namespace conv_direct;
  if (!Takes(g) || args.residual) return {};
  const auto s = ShapeOf(g);
  const int64_t padded = Padded(s.out_c), taps = s.taps();
  const TensorArg weights = ctx.Scratch(DType::kFloat32, {taps + 1, padded});
  return [=](Workspace& ws) {
    float* w = ws.Data<float>(weights);
    float* b = w + taps * padded;
    const float* filter = ws.Data<const float>(args.filter);
    std::fill(w, w + (taps + 1) * padded, 0.0f);
    for (int64_t c = 0; c < s.out_c; ++c) {
      for (int64_t t = 0; t < taps; ++t) w[t * padded + c] = filter[c * taps + t];
    }
    if (args.bias) std::copy_n(ws.Data<const float>(args.bias), s.out_c, b);
    const float* in = ws.Data<const float>(args.input);
    float* out = ws.Data<float>(args.output);
    const int64_t row_cost = s.out_w * s.out_c * taps;
    ParallelFor(s.batch * s.out_h, 1 + 65536 / row_cost, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(ForwardRows)(s, in, w, b, out, begin, end);
    });
  };
}

Kernel ConvBackwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args) {
  using namespace conv_direct;
  if (!Takes(g) || args.dinput || !args.dfilter) return {};
  const auto s = ShapeOf(g);
  const int64_t padded = Padded(s.out_c), taps = s.taps(), part = (taps + 1) * padded;
  const int64_t parts = std::min(kParts, s.batch);
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {parts, part});
  return [=](Workspace& ws) {
    float* sums = ws.Data<float>(scratch);
    const float* in = ws.Data<const float>(args.input);
    const float* dout = ws.Data<const float>(args.dout);
    ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        HWY_DYNAMIC_DISPATCH(Gradients)
        (s, in, dout, s.batch * p / parts, s.batch * (p + 1) / parts, static_cast<bool>(args.dbias),
         sums + p * part);
      }
    });
    for (int64_t p = 1; p < parts; ++p) {
      for (int64_t i = 0; i < part; ++i) sums[i] += sums[p * part + i];
    }
    float* dw = ws.Data<float>(args.dfilter);
    for (int64_t c = 0; c < s.out_c; ++c) {
      for (int64_t t = 0; t < taps; ++t) dw[c * taps + t] = sums[t * padded + c];
    }
    if (args.dbias) std::copy_n(sums + taps * padded, s.out_c, ws.Data<float>(args.dbias));
  };
}

}  // namespace coracle
#endif
