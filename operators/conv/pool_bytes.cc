#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/pool_bytes.h>

#include <algorithm>
#include <limits>

namespace coracle::inline internal {

BytePool::BytePool(const PrepareContext& ctx, const PoolGeometry& g)
    : tables_(std::make_shared<const PoolTables>(g)) {
  if (g.channels_last) return;
  parts_ = std::clamp<int64_t>(g.batch * g.channels, 1, NumThreads());
  rows_ = ctx.Scratch(DType::kUInt8, {parts_, g.w.in});
}

// The rows of a window become one row of maxima, from which those of the columns are taken.
template <class T>
void BytePool::RunNchw(const T* x, T* row, T* out, int64_t plane) const {
  const PoolTables& t = *tables_;
  const int64_t width = t.g.w.in;
  x += plane * t.g.InPixels();
  out += plane * t.g.OutPixels();
  for (const PoolRange& z : t.z) {
    for (const PoolRange& y : t.y) {
      std::fill_n(row, width, std::numeric_limits<T>::min());
      for (int64_t d = z.begin; d < z.end; ++d) {
        for (int64_t h = y.begin; h < y.end; ++h)
          MaxOfBytes(x + (d * t.g.h.in + h) * width, row, width);
      }
      const bool empty = z.begin >= z.end || y.begin >= y.end;
      for (const PoolRange& w : t.x) {
        T most = w.begin < w.end ? row[w.begin] : T(0);
        for (int64_t i = w.begin + 1; i < w.end; ++i) most = std::max(most, row[i]);
        *out++ = empty ? T(0) : most;
      }
    }
  }
}

template <class T>
void BytePool::Run(Workspace& ws, const T* x, T* out) const {
  const PoolTables& t = *tables_;
  const PoolGeometry& g = t.g;
  if (!g.channels_last) {
    const int64_t planes = g.batch * g.channels;
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        T* row = ws.Data<T>(rows_) + part * g.w.in;
        for (int64_t p = planes * part / parts_; p < planes * (part + 1) / parts_; ++p)
          RunNchw(x, row, out, p);
      }
    });
    return;
  }
  const ImageStrides in = g.InStrides();
  const int64_t channels = g.channels, rows = g.batch * g.d.out * g.h.out;
  ParallelFor(rows, 1 + 65536 / (1 + g.w.out * channels), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PoolRange& y = t.y[static_cast<size_t>(i % g.h.out)];
      const PoolRange& z = t.z[static_cast<size_t>(i / g.h.out % g.d.out)];
      const T* image = x + i / g.h.out / g.d.out * in.n;
      T* to = out + i * g.w.out * channels;
      for (const PoolRange& w : t.x) {
        bool first = true;
        for (int64_t d = z.begin; d < z.end && y.begin < y.end && w.begin < w.end; ++d) {
          const T* from = image + d * in.d + y.begin * in.h + w.begin * in.w;
          const PixelWindow window{reinterpret_cast<const uint8_t*>(from), y.end - y.begin,
                                   w.end - w.begin, in.h, in.w};
          if (first) {
            MaxOfPixels(window, channels, to);
          } else {
            for (int64_t h = 0; h < window.rows; ++h) {
              for (int64_t c = 0; c < window.columns; ++c)
                MaxOfBytes(from + h * in.h + c * in.w, to, channels);
            }
          }
          first = false;
        }
        if (first) std::fill_n(to, channels, T(0));
        to += channels;
      }
    }
  });
}

void BytePool::Max(Workspace& ws, const int8_t* x, int8_t* out) const { Run(ws, x, out); }
void BytePool::Max(Workspace& ws, const uint8_t* x, uint8_t* out) const { Run(ws, x, out); }

}  // namespace coracle::inline internal
