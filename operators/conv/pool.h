#pragma once
// Pooling of images and of volumes: geometry, and the fast kernels of pool2d and pool3d.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv.h>

#include <vector>

namespace coracle::inline internal {

// The input positions of one output position along one axis: [begin, end), clipped to the input.
// `extent` is the factor of the divisor if padding counts too.
struct PoolRange {
  int64_t begin = 0, end = 0, extent = 0;
};

// The elements of one window.
struct PoolWindow {
  PoolRange z, y, x;
  bool empty() const { return z.begin >= z.end || y.begin >= y.end || x.begin >= x.end; }
};

struct PoolGeometry : WindowAxes {
  int64_t batch = 0, channels = 0;
  bool channels_last = false, max = false, adaptive = false, exclusive = true;

  ImageStrides InStrides() const { return StridesOf(channels, d.in, h.in, w.in, channels_last); }
  ImageStrides OutStrides() const {
    return StridesOf(channels, d.out, h.out, w.out, channels_last);
  }
  PoolRange Range(const WindowAxis& axis, int64_t out) const;
  PoolWindow Window(int64_t z, int64_t y, int64_t x) const {
    return {Range(d, z), Range(h, y), Range(w, x)};
  }
  // The divisor of an average; at least 1.
  int64_t Divisor(const PoolWindow& window) const;
};

// Calls f(offset within the image's channel) for every element of a window, first to last; stops
// when f returns true.
template <class F>
void ForElements(const ImageStrides& s, const PoolWindow& window, F&& f) {
  for (int64_t l = window.z.begin; l < window.z.end; ++l) {
    for (int64_t i = window.y.begin; i < window.y.end; ++i) {
      for (int64_t j = window.x.begin; j < window.x.end; ++j) {
        if (f(l * s.d + i * s.h + j * s.w)) return;
      }
    }
  }
}

// Calls f(window, output offset within the image's channel) for every window of a channel.
template <class F>
void ForWindows(const PoolGeometry& g, F&& f) {
  const ImageStrides s = g.OutStrides();
  for (int64_t z = 0; z < g.d.out; ++z) {
    for (int64_t y = 0; y < g.h.out; ++y) {
      for (int64_t x = 0; x < g.w.out; ++x) f(g.Window(z, y, x), z * s.d + y * s.h + x * s.w);
    }
  }
}

// Calls f(input offset, output offset) for every channel of every image, from several threads.
template <class F>
void ForPlanes(const PoolGeometry& g, F&& f) {
  const ImageStrides in = g.InStrides(), out = g.OutStrides();
  ParallelFor(g.batch * g.channels, 1 + 32768 / (1 + g.InPixels()),
              [&](int64_t begin, int64_t end) {
                for (int64_t p = begin; p < end; ++p) {
                  const int64_t n = p / g.channels, c = p % g.channels;
                  f(n * in.n + c * in.c, n * out.n + c * out.c);
                }
              });
}

// The window of every output position along each axis, made once.
struct PoolTables {
  PoolGeometry g;
  std::vector<PoolRange> z, y, x;

  explicit PoolTables(const PoolGeometry& geometry);
  // The factor of a range in an average's divisor.
  int64_t Share(const PoolRange& range) const {
    return g.exclusive || g.adaptive ? range.end - range.begin : range.extent;
  }
};

// Averages and their gradients in images of `channels` channels, or in a plane with 1: what is not
// finite is computed again in double, because a sum of floats may overflow on the way.
void RepairAverages(const PoolGeometry& g, int64_t channels, const float* in, float* out);
void RepairAverageGrad(const PoolGeometry& g, int64_t channels, const float* dout, float* dx);

// For channels-first float32 images that are not empty, vectorised along rows: the rows of a window
// are reduced to one row, and that to outputs. `rows` is scratch memory, g.w.in floats for each
// channel of each image.
void MaxPoolNchw(const PoolTables& tables, const float* x, float* rows, float* out);
void AveragePoolNchw(const PoolTables& tables, const float* x, float* rows, float* out);
void AveragePoolGradNchw(const PoolTables& tables, const float* dout, float* rows, float* dx);

// For channels-last float32 images, vectorised over channels.
void MaxPoolNhwc(const PoolGeometry& g, const float* x, float* out);
void AveragePoolNhwc(const PoolGeometry& g, const float* x, float* out);
// The gradient of a maximum goes to the first position of the window that equals it or is a nan.
void MaxPoolGradNhwc(const PoolGeometry& g, const float* x, const float* out, const float* dout,
                     float* dx);
void AveragePoolGradNhwc(const PoolGeometry& g, const float* dout, float* dx);

}  // namespace coracle::inline internal
