#pragma once
// Two-dimensional pooling: geometry, and the fast kernels of pool2d.

#include <coracle/operators/conv/conv.h>

namespace coracle {

// The input positions of one output position along one axis: [begin, end), already clipped to the
// input; `extent` is the divisor's share that counts padding too.
struct PoolRange {
  int64_t begin = 0, end = 0, extent = 0;
};

struct PoolGeometry {
  int64_t batch = 0, channels = 0;
  WindowAxis h, w;
  bool channels_last = false, max = false, adaptive = false, exclusive = true;

  ImageStrides InStrides() const { return StridesOf(channels, h.in, w.in, channels_last); }
  ImageStrides OutStrides() const { return StridesOf(channels, h.out, w.out, channels_last); }
  PoolRange Range(const WindowAxis& axis, int64_t out) const;
  // Number of elements that an average divides by; at least 1.
  int64_t Divisor(const PoolRange& y, const PoolRange& x) const;
};

// Of channels-last float32 images, vectorised over channels.
void MaxPoolNhwc(const PoolGeometry& g, const float* x, float* out);
void AveragePoolNhwc(const PoolGeometry& g, const float* x, float* out);
// The gradient of a maximum goes to the first position of the window that equals it.
void MaxPoolGradNhwc(const PoolGeometry& g, const float* x, const float* out, const float* dout,
                     float* dx);
void AveragePoolGradNhwc(const PoolGeometry& g, const float* dout, float* dx);

}  // namespace coracle
