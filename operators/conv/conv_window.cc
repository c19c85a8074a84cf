#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_window.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace coracle::inline internal {
namespace {

// floats: rows of packed matrices are padded to multiples of the widest vector
constexpr int64_t kPad = 16;

int64_t PadUp(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// Calls f(begin, size) for parts of [0, n) of about equal size, at most `limit` each, so that no
// part is much smaller than the others.
template <class F>
void ForParts(int64_t n, int64_t limit, F&& f) {
  if (n <= limit) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  const int64_t parts = (n + limit - 1) / limit, size = n / parts, larger = n % parts;
  for (int64_t p = 0, begin = 0; p < parts; ++p) {
    const int64_t part = size + (p < larger ? 1 : 0);
    f(begin, part);
    begin += part;
  }
}

// Sets the columns of a tile: calls f(first column, tile) for one or two vectors at a time.
template <class F>
void ForColumns(int64_t columns, MatrixTile tile, F&& f) {
  const int64_t lanes = VectorLanes();
  for (int64_t v = 0; v < columns; v += 2 * lanes) {
    tile.lanes = std::min(columns - v, 2 * lanes);
    tile.vectors = tile.lanes > lanes ? 2 : 1;
    f(v, tile);
  }
}

// The padded image and the windows on it. `segment` inputs of a kernel row are contiguous.
struct PaddedGeometry {
  explicit PaddedGeometry(const ConvGeometry& geometry) : g(geometry) {
    // Rows and columns past the last window are never read.
    const int64_t reach_h = (g.h.out - 1) * g.h.stride + (g.h.kernel - 1) * g.h.dilation + 1;
    const int64_t reach_w = (g.w.out - 1) * g.w.stride + g.w.kernel;
    padded = g.h.before > 0 || g.w.before > 0 || reach_h > g.h.in || reach_w > g.w.in;
    height = padded ? std::max(reach_h, g.h.before + g.h.in) : g.h.in;
    width = padded ? std::max(reach_w, g.w.before + g.w.in) : g.w.in;
    row = CheckedMul(width, g.in_channels);
    image = CheckedMul(height, row);
    segment = g.w.kernel * g.in_channels;
    step = CheckedMul(g.w.stride, g.in_channels);
    out_row = g.w.out * g.out_channels;
    out_image = g.h.out * out_row;
  }

  ConvGeometry g;
  bool padded;
  int64_t height, width;       // of a padded image
  int64_t row, image;          // floats of a padded row, image
  int64_t segment, step;       // floats of a kernel row; floats between neighbouring windows
  int64_t out_row, out_image;  // floats of an output row, image

  int64_t KernelRow(int64_t i) const { return i * g.h.dilation * row; }

  // Copies an image into its padded copy, or back.
  void Pad(const float* in, float* out) const {
    std::fill_n(out, image, 0.0f);
    const int64_t in_row = g.w.in * g.in_channels;
    for (int64_t y = 0; y < g.h.in; ++y) {
      std::memcpy(out + (y + g.h.before) * row + g.w.before * g.in_channels, in + y * in_row,
                  static_cast<size_t>(in_row) * sizeof(float));
    }
  }
  void Crop(const float* padded_image, float* out) const {
    const int64_t in_row = g.w.in * g.in_channels;
    for (int64_t y = 0; y < g.h.in; ++y) {
      std::memcpy(out + y * in_row,
                  padded_image + (y + g.h.before) * row + g.w.before * g.in_channels,
                  static_cast<size_t>(in_row) * sizeof(float));
    }
  }
};

// The padded input; the variable itself without padding.
struct PaddedInput {
  TensorArg input, scratch;

  PaddedInput(const PrepareContext& ctx, const PaddedGeometry& d, const TensorArg& in) : input(in) {
    if (d.padded) scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(d.g.batch, d.image)});
  }
  const float* Make(Workspace& ws, const PaddedGeometry& d) const {
    const float* in = ws.Data<const float>(input);
    if (!d.padded) return in;
    float* out = ws.Data<float>(scratch);
    const int64_t from = d.g.h.in * d.g.w.in * d.g.in_channels;
    ParallelFor(d.g.batch, 1 + 32768 / (1 + d.image), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) d.Pad(in + n * from, out + n * d.image);
    });
    return out;
  }
};

// The number of filters after the last whole vector that are computed by dot products along kernel
// rows, if they are few and the rows are long: a vector for 2 of 50 filters would take a quarter
// of the time.
int64_t TailFilters(const PaddedGeometry& d) {
  const int64_t tail = d.g.out_channels % kPad;
  return d.g.out_channels > kPad && tail <= kMaxDotColumns && d.segment >= 2 * kPad ? tail : 0;
}

// Filter [M, C, kh, kw] for the forward pass: [kh][kw C][M padded], with the filters as columns of
// a tile; then the tail filters as [kh][tail][kw C padded].
struct ForwardFilter {
  explicit ForwardFilter(const PaddedGeometry& d)
      : tail(TailFilters(d)),
        whole(d.g.out_channels - tail),
        columns(PadUp(whole)),
        tail_at(d.g.h.kernel * d.segment * columns),
        size(tail_at + d.g.h.kernel * tail * PadUp(d.segment)) {}

  int64_t tail, whole, columns, tail_at, size;

  void Pack(const PaddedGeometry& d, const float* filter, float* packed) const {
    const ConvGeometry& g = d.g;
    const int64_t taps = g.h.kernel * g.w.kernel;
    ParallelFor(taps * g.in_channels, 1 + 16384 / columns, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t tap = r / g.in_channels, c = r % g.in_channels;
        float* row = packed + r * columns;
        for (int64_t m = 0; m < whole; ++m) row[m] = filter[(m * g.in_channels + c) * taps + tap];
        std::fill(row + whole, row + columns, 0.0f);
      }
    });
    const int64_t row = PadUp(d.segment);
    std::fill(packed + tail_at, packed + size, 0.0f);
    for (int64_t q = 0; q < tail; ++q) {
      for (int64_t c = 0; c < g.in_channels; ++c) {
        const float* from = filter + ((whole + q) * g.in_channels + c) * taps;
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t i = tap / g.w.kernel, j = tap % g.w.kernel;
          packed[tail_at + (i * tail + q) * row + j * g.in_channels + c] = from[tap];
        }
      }
    }
  }

  void Unpack(const PaddedGeometry& d, const float* packed, float* filter) const {
    const ConvGeometry& g = d.g;
    const int64_t taps = g.h.kernel * g.w.kernel, row = PadUp(d.segment);
    for (int64_t m = 0; m < g.out_channels; ++m) {
      for (int64_t c = 0; c < g.in_channels; ++c) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t i = tap / g.w.kernel, j = tap % g.w.kernel;
          const int64_t at = m < whole
                                 ? (tap * g.in_channels + c) * columns + m
                                 : tail_at + (i * tail + m - whole) * row + j * g.in_channels + c;
          *filter++ = packed[at];
        }
      }
    }
  }
};

// Filter [M, C, kh, kw] as [kh][M][kw C padded]: the columns of a data gradient's tile are inputs.
void PackForData(const ConvGeometry& g, const float* filter, float* packed) {
  const int64_t segment = g.w.kernel * g.in_channels, columns = PadUp(segment);
  ParallelFor(g.h.kernel * g.out_channels, 1 + 16384 / columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = r / g.out_channels, m = r % g.out_channels;
      float* row = packed + r * columns;
      for (int64_t j = 0; j < g.w.kernel; ++j) {
        for (int64_t c = 0; c < g.in_channels; ++c) {
          row[j * g.in_channels + c] =
              filter[((m * g.in_channels + c) * g.h.kernel + i) * g.w.kernel + j];
        }
      }
      std::fill(row + segment, row + columns, 0.0f);
    }
  });
}

// Computes one output row. `bias` has as many elements as a padded row of filters.
void ForwardRow(const PaddedGeometry& d, const ForwardFilter& f, const float* in,
                const float* packed, const float* bias, float* out) {
  const ConvGeometry& g = d.g;
  MatrixTile tile;
  tile.a_step = d.step;
  tile.a_k = 1;
  tile.a_row = g.h.dilation * d.row;
  tile.b_k = f.columns;
  tile.b_row = d.segment * tile.b_k;
  tile.rows = g.h.kernel;
  tile.k = d.segment;
  tile.out_step = g.out_channels;
  ForColumns(f.whole, tile, [&](int64_t v, MatrixTile& t) {
    t.b = packed + v;
    t.init = bias ? bias + v : nullptr;
    ForParts(g.w.out, MaxTileHeight(), [&](int64_t x, int64_t height) {
      t.a = in + x * d.step;
      t.out = out + x * g.out_channels + v;
      t.height = static_cast<int>(height);
      RunMatrixTile(t);
    });
  });
  if (f.tail == 0) return;
  DotTile dot;
  dot.a_step = d.step;
  dot.a_row = tile.a_row;
  dot.b = packed + f.tail_at;
  dot.b_k = PadUp(d.segment);
  dot.rows = g.h.kernel;
  dot.k = d.segment;
  dot.out_step = g.out_channels;
  dot.init = bias ? bias + f.whole : nullptr;
  dot.columns = static_cast<int>(f.tail);
  ForParts(g.w.out, kMaxDotHeight, [&](int64_t x, int64_t height) {
    dot.a = in + x * d.step;
    dot.out = out + x * g.out_channels + f.whole;
    dot.height = static_cast<int>(height);
    RunDotTile(dot);
  });
}

// Adds to the padded data gradient of one image; the inputs of a window's row are contiguous. The
// windows of a tile are in one column, because neighbours in a row overlap: a load of memory that
// two recent stores have partly written must wait for both.
void DataImage(const PaddedGeometry& d, const float* dout, const float* packed, float* dx) {
  const ConvGeometry& g = d.g;
  MatrixTile tile;
  tile.a_step = d.out_row;
  tile.a_k = 1;
  tile.b_k = PadUp(d.segment);
  tile.k = g.out_channels;
  tile.out_step = g.h.stride * d.row;
  tile.add = true;
  for (int64_t i = 0; i < g.h.kernel; ++i) {
    ForColumns(d.segment, tile, [&](int64_t v, MatrixTile& t) {
      t.b = packed + i * g.out_channels * t.b_k + v;
      ForParts(g.h.out, MaxTileHeight(), [&](int64_t y, int64_t height) {
        t.height = static_cast<int>(height);
        for (int64_t x = 0; x < g.w.out; ++x) {
          t.a = dout + y * d.out_row + x * g.out_channels;
          t.out = dx + d.KernelRow(i) + y * tile.out_step + x * d.step + v;
          RunMatrixTile(t);
        }
      });
    });
  }
}

// The layout of the filter gradient sums. Vectors run over the inputs of a kernel row,
// [M][kh][inputs padded], or over filters, [kh][inputs][M padded], whichever needs less padding.
// The few inputs after the last whole vector are always summed in the second layout.
struct FilterSums {
  explicit FilterSums(const PaddedGeometry& d)
      : over_inputs(d.segment * PadUp(d.g.out_channels) >= d.g.out_channels * PadUp(d.segment)),
        whole(!over_inputs                                         ? 0
              : d.segment > kPad && d.segment % kPad <= kFewInputs ? d.segment / kPad * kPad
                                                                   : d.segment),
        columns(PadUp(whole)),
        filters(PadUp(d.g.out_channels)),
        rest_at(d.g.out_channels * d.g.h.kernel * columns),
        size(rest_at + d.g.h.kernel * (d.segment - whole) * filters) {}

  static constexpr int64_t kFewInputs = 4;

  bool over_inputs;
  int64_t whole;  // inputs of a kernel row covered by whole vectors
  int64_t columns, filters, rest_at, size;

  int64_t At(const PaddedGeometry& d, int64_t m, int64_t i, int64_t j) const {
    if (j < whole) return (m * d.g.h.kernel + i) * columns + j;
    return rest_at + (i * (d.segment - whole) + j - whole) * filters + m;
  }
};

// Adds an image's share to `sums`.
void FilterImage(const PaddedGeometry& d, const FilterSums& f, const float* in, const float* dout,
                 float* sums) {
  const ConvGeometry& g = d.g;
  MatrixTile over_inputs;
  over_inputs.rows = g.h.out;
  over_inputs.k = g.w.out;
  over_inputs.add = true;
  over_inputs.a_step = 1;
  MatrixTile over_filters = over_inputs;
  over_inputs.a_k = over_filters.b_k = g.out_channels;
  over_inputs.a_row = over_filters.b_row = d.out_row;
  over_inputs.b_k = over_filters.a_k = d.step;
  over_inputs.b_row = over_filters.a_row = g.h.stride * d.row;
  over_inputs.out_step = g.h.kernel * f.columns;
  over_filters.out_step = f.filters;
  auto run = [&](MatrixTile& t, const float* a, const float* b, float* out, int64_t height) {
    t.exact_b = t.lanes % VectorLanes() != 0;
    t.a = a;
    t.b = b;
    t.out = out;
    t.height = static_cast<int>(height);
    RunMatrixTile(t);
  };
  for (int64_t i = 0; i < g.h.kernel; ++i) {
    const float* window = in + d.KernelRow(i);
    ForColumns(f.whole, over_inputs, [&](int64_t v, MatrixTile& t) {
      ForParts(g.out_channels, MaxTileHeight(), [&](int64_t m, int64_t height) {
        run(t, dout + m, window + v, sums + f.At(d, m, i, v), height);
      });
    });
    ForColumns(g.out_channels, over_filters, [&](int64_t v, MatrixTile& t) {
      ForParts(d.segment - f.whole, MaxTileHeight(), [&](int64_t j, int64_t height) {
        run(t, window + f.whole + j, dout + v, sums + f.At(d, v, i, f.whole + j), height);
      });
    });
  }
}

// dfilter = the sums of the chunks, added in order.
void ReduceFilter(const PaddedGeometry& d, const FilterSums& f, const float* sums, int64_t chunks,
                  int64_t stride, float* dfilter) {
  const ConvGeometry& g = d.g;
  ParallelFor(g.out_channels, 1 + 16384 / (1 + d.segment * g.h.kernel),
              [&](int64_t begin, int64_t end) {
                float* out = dfilter + begin * g.in_channels * g.h.kernel * g.w.kernel;
                for (int64_t m = begin; m < end; ++m) {
                  for (int64_t c = 0; c < g.in_channels; ++c) {
                    for (int64_t i = 0; i < g.h.kernel; ++i) {
                      for (int64_t j = 0; j < g.w.kernel; ++j) {
                        const float* at = sums + f.At(d, m, i, j * g.in_channels + c);
                        float sum = 0;
                        for (int64_t k = 0; k < chunks; ++k) sum += at[k * stride];
                        *out++ = sum;
                      }
                    }
                  }
                }
              });
}

// Filter and bias gradients. Each chunk of images has its own sums, which are added in order at the
// end. There is one chunk per thread, so the bits depend on the number of threads.
Kernel MakeFilterGrad(const PrepareContext& ctx, const PaddedGeometry& d,
                      const ConvBackwardArgs& args) {
  const FilterSums f(d);
  const PaddedInput input(ctx, d, args.input);
  const int64_t chunks = std::clamp<int64_t>(NumThreads(), 1, d.g.batch);
  const int64_t stride = f.size + PadUp(d.g.out_channels);
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(chunks, stride)});
  return [=](Workspace& ws) {
    const ConvGeometry& g = d.g;
    const float* in = args.dfilter ? input.Make(ws, d) : nullptr;
    const float* dout = ws.Data<const float>(args.dout);
    float* sums = ws.Data<float>(scratch);
    ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        float* own = sums + k * stride;
        std::fill_n(own, stride, 0.0f);
        for (int64_t n = g.batch * k / chunks; n < g.batch * (k + 1) / chunks; ++n) {
          const float* image = dout + n * d.out_image;
          if (args.dfilter) FilterImage(d, f, in + n * d.image, image, own);
          if (args.dbias) AddRows(image, g.h.out * g.w.out, g.out_channels, own + f.size);
        }
      }
    });
    if (args.dfilter) ReduceFilter(d, f, sums, chunks, stride, ws.Data<float>(args.dfilter));
    for (int64_t m = 0; args.dbias && m < g.out_channels; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < chunks; ++k) sum += sums[k * stride + f.size + m];
      ws.Data<float>(args.dbias)[m] = sum;
    }
    // A partial sum may have overflowed a float.
    float* dbias = args.dbias ? ws.Data<float>(args.dbias) : nullptr;
    if (dbias && !simd::AllFinite(dbias, g.out_channels)) ConvBiasGrad(g, dout, dbias);
  };
}

Kernel MakeDataGrad(const PrepareContext& ctx, const PaddedGeometry& d,
                    const ConvBackwardArgs& args) {
  const TensorArg packed =
      ctx.Scratch(DType::kFloat32, {CheckedMul(d.g.h.kernel, d.g.out_channels, PadUp(d.segment))});
  TensorArg padded;
  if (d.padded) padded = ctx.Scratch(DType::kFloat32, {CheckedMul(d.g.batch, d.image)});
  return [=](Workspace& ws) {
    const ConvGeometry& g = d.g;
    float* filter = ws.Data<float>(packed);
    PackForData(g, ws.Data<const float>(args.filter), filter);
    const float* dout = ws.Data<const float>(args.dout);
    float* dinput = ws.Data<float>(args.dinput);
    float* images = d.padded ? ws.Data<float>(padded) : dinput;
    ParallelFor(g.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        float* image = images + n * d.image;
        std::fill_n(image, d.image, 0.0f);
        DataImage(d, dout + n * d.out_image, filter, image);
        if (d.padded) d.Crop(image, dinput + n * g.h.in * g.w.in * g.in_channels);
      }
    });
  };
}

PackedLayout LayoutOf(const PaddedGeometry& d, const ForwardFilter& f, const Shape& filter) {
  PackedLayout layout{"conv_window " + std::to_string(f.tail), {}, {}};
  layout.pack = [=](const Tensor& plain) {
    Tensor packed(DType::kFloat32, {f.size});
    f.Pack(d, plain.data<float>(), packed.data<float>());
    return packed;
  };
  layout.unpack = [=](const Tensor& packed) {
    Tensor plain(DType::kFloat32, filter);
    f.Unpack(d, packed.data<float>(), plain.data<float>());
    return plain;
  };
  return layout;
}

}  // namespace

bool ConvWindowTakes(const ConvGeometry& g) {
  return g.axes == 2 && g.channels_last && g.groups == 1 && g.w.dilation == 1;
}

// By measurement: a 1 x 1 kernel is a plain matrix product, which oneDNN does better; and in a
// forward pass, copying the image into its padding costs more than oneDNN's layout.
bool ConvWindowPays(const ConvGeometry& g, bool forward) {
  const bool fills_vectors = g.in_channels % kPad == 0 && g.out_channels % kPad == 0;
  const bool matrix_product = g.h.kernel * g.w.kernel == 1;
  if (!ConvWindowTakes(g) || fills_vectors || matrix_product) return false;
  return !forward || !PaddedGeometry(g).padded;
}

Kernel ConvForwardWindow(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args) {
  const PaddedGeometry d(g);
  const ForwardFilter f(d);
  const int64_t padded_bias = PadUp(g.out_channels);
  const PaddedInput input(ctx, d, args.input);
  // The packed filter, if it is constant.
  const std::shared_ptr<const Tensor> constant =
      ctx.Packed("Filter", LayoutOf(d, f, args.filter.shape));
  const TensorArg packed = ctx.Scratch(DType::kFloat32, {(constant ? 0 : f.size) + padded_bias});
  const TensorArg kept =
      args.residual ? ctx.Scratch(DType::kFloat32, {args.residual.numel}) : TensorArg();
  const int64_t work = d.out_row * g.h.kernel * d.segment;
  return [=](Workspace& ws) {
    float* own = ws.Data<float>(packed);
    if (!constant) f.Pack(d, ws.Data<const float>(args.filter), own + padded_bias);
    const float* filter = constant ? constant->data<float>() : own + padded_bias;
    float* bias = nullptr;
    if (args.bias) {
      bias = own;
      std::fill_n(bias, padded_bias, 0.0f);
      std::copy_n(ws.Data<const float>(args.bias), d.g.out_channels, bias);
    }
    const float* in = input.Make(ws, d);
    float* out = ws.Data<float>(args.output);
    const float* residual = args.residual ? ws.Data<const float>(args.residual) : nullptr;
    if (residual && residual == out) {  // copied if the planner gave both the same memory
      float* copy = ws.Data<float>(kept);
      ParallelFor(args.output.numel, 65536, [&](int64_t begin, int64_t end) {
        std::copy(residual + begin, residual + end, copy + begin);
      });
      residual = copy;
    }
    ParallelFor(d.g.batch * d.g.h.out, 1 + 65536 / (1 + work), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t n = r / d.g.h.out, y = r % d.g.h.out;
        float* row = out + r * d.out_row;
        ForwardRow(d, f, in + n * d.image + y * d.g.h.stride * d.row, filter, bias, row);
        if (residual) {
          for (int64_t i = 0; i < d.out_row; ++i) row[i] += residual[r * d.out_row + i];
        }
        args.activation.ApplyFast(row, d.out_row);
      }
    });
  };
}

Kernel ConvBackwardWindow(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args) {
  const PaddedGeometry d(g);
  Kernel data, filter;
  if (args.dinput) data = MakeDataGrad(ctx, d, args);
  if (args.dfilter || args.dbias) filter = MakeFilterGrad(ctx, d, args);
  return [=](Workspace& ws) {
    if (filter) filter(ws);
    if (data) data(ws);
  };
}

}  // namespace coracle::inline internal
