#pragma once
// Normalisation of groups of elements by their mean and variance. What a group is, is the op's: a
// channel for batch_norm, a row for layer_norm.
//
// With m and v the mean and biased variance of a group, inv = 1 / sqrt(v + epsilon) and
// xh = (x - m) inv, for groups of n elements:
//   y  = scale xh + bias
//   dx = inv P(g), g = scale dy, P(a) = a - mean(a) - xh mean(a xh)   (statistics of the batch)
//   dx = inv g                                                        (fixed statistics)
//   dscale = sum of dy xh, dbias = sum of dy

#include <cstdint>

namespace coracle {

struct NormView {
  int64_t groups = 0, size = 0;
  // Element i of group g is at (i / inner) * outer_stride + g * group_stride + (i % inner).
  int64_t inner = 1, outer_stride = 0, group_stride = 0;
  // Scale and bias have `channels` elements, of which group g has element g % channels; else they
  // have one for each element of a group.
  bool per_group = false;
  int64_t channels = 0;

  int64_t At(int64_t g, int64_t i) const {
    return i / inner * outer_stride + g * group_stride + i % inner;
  }
  int64_t Param(int64_t g, int64_t i) const { return per_group ? g % channels : i; }
  int64_t params() const { return per_group ? channels : size; }
  int64_t numel() const { return groups * size; }
};

// [batch, channels, inner], or channels last [batch, inner, channels].
NormView ChannelView(int64_t batch, int64_t channels, int64_t inner, bool channels_last);
NormView RowView(int64_t rows, int64_t columns);

// --- reference loops; T is float or double, sums are double ---

template <class T>
void NormMoments(const NormView& v, const T* x, double* mean, double* variance);

// y = scale (x - mean) inv + bias; scale and bias may be null.
template <class T>
void NormApply(const NormView& v, const T* x, const double* mean, const double* inv, const T* scale,
               const T* bias, T* y);

template <class T>
struct NormGradArgs {
  const T *x = nullptr, *scale = nullptr, *dy = nullptr;  // scale may be null
  const double *mean = nullptr, *inv = nullptr;
  bool fixed = false;                                    // statistics do not depend on x
  T *dx = nullptr, *dscale = nullptr, *dbias = nullptr;  // each may be null: unwanted
};
template <class T>
void NormGrad(const NormView& v, const NormGradArgs<T>& a);

// The gradient of NormGrad: `ddx`, `ddscale`, `ddbias` arrive at its three results (null: none).
// With U, V, W these three and Q = sum over the group of U P(g):
//   dy'    = scale inv P(U) + V xh + W
//   scale' = sum of dy inv P(U)
//   x'     = inv P(h) - Q inv^2 xh / n, h = V dy - inv (U mean(g xh) + g mean(U xh))
// and with fixed statistics P is the identity and x' = V dy inv.
template <class T>
struct NormGradGradArgs {
  const T *x = nullptr, *scale = nullptr, *dy = nullptr;
  const T *ddx = nullptr, *ddscale = nullptr, *ddbias = nullptr;
  const double *mean = nullptr, *inv = nullptr;
  bool fixed = false;
  T *x_out = nullptr, *scale_out = nullptr, *dy_out = nullptr;  // each may be null
};
template <class T>
void NormGradGrad(const NormView& v, const NormGradGradArgs<T>& a);

// --- float32, vectorised ---

// Per group of a ChannelView, or of one like it. `scratch` holds ChannelScratch(v) doubles.
int64_t ChannelScratch(const NormView& v);
void ChannelMoments(const NormView& v, const float* x, double* scratch, double* mean,
                    double* variance);
// sum_dy = sum of dy, sum_dyx = sum of dy (x - mean).
void ChannelGradSums(const NormView& v, const float* x, const float* dy, const float* mean,
                     double* scratch, double* sum_dy, double* sum_dyx);
// y = a x + b for each channel's a and b.
void ChannelAffine(const NormView& v, const float* x, const float* a, const float* b, float* y);
// dx = p dy + q (x - mean) + r for each channel's p, q, r.
void ChannelGradApply(const NormView& v, const float* x, const float* dy, const float* mean,
                      const float* p, const float* q, const float* r, float* dx);

// Rows of `columns` elements; scale and bias may be null. mean and variance are written.
void RowNorm(int64_t rows, int64_t columns, const float* x, const float* scale, const float* bias,
             float epsilon, float* y, float* mean, float* variance);
// mean and inv are given for each row. `scratch` holds RowScratch(rows, columns) floats and is used
// for dscale and dbias, which are both given or both null; dx may be null.
int64_t RowScratch(int64_t rows, int64_t columns);
void RowNormGrad(int64_t rows, int64_t columns, const float* x, const float* scale, const float* dy,
                 const double* mean, const double* inv, float* scratch, float* dx, float* dscale,
                 float* dbias);

}  // namespace coracle
