#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/winograd.h>
#include <coracle/operators/conv/winograd_conv.h>
#include <coracle/operators/conv/winograd_filter.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

namespace coracle::inline internal {
namespace {

using winograd::Chunks;
using winograd::Convolution;
using winograd::Epilogue;
using winograd::FilterGradient;
using winograd::FilterMatrix;
using winograd::kChunk;
using winograd::kGroup;
using winograd::kPanel;
using winograd::Panels;
using winograd::Positions;
using winograd::Tiling;

constexpr int64_t kBlock = 4 * kGroup;  // about this many tiles are transformed at a time

// --- what a kernel costs, in products of a direct convolution; measured with AVX-512 ---

// a product of forward and data gradient; of filter gradients
constexpr double kProduct = 1.25, kSum = 1.6;
constexpr double kInput = 27, kOutput = 17;  // transforming an element of a tile
// Reading or writing an element of a filter that does not fit into the second-level cache.
constexpr double kStream = 9, kCached = 2.5e5;
// Transforming an element of a filter, or of sums: within the part that uses it; in advance; at the
// speed of memory.
constexpr double kByPart = 20, kBefore = 30, kMemory = 130, kHeld = 4e6;
constexpr double kReorder = 25;  // reordering an element of a filter for oneDNN
constexpr double kWorth = 0.82;  // required share of a direct convolution, which needs less memory

double Of(int64_t n) { return static_cast<double>(n); }

// Cost of the products of each filter element with `rows` pixels or tiles.
double Products(double elements, double rows) {
  return elements * (rows + (elements > kCached ? kStream : 0));
}

// Channels padded to whole vectors.
double Padded(int64_t channels) { return Of(Chunks(channels) * kChunk); }

int64_t PartOf(int64_t n, int64_t parts) { return (n + parts - 1) / parts; }

// Tiles and columns of the largest part.
struct Share {
  double tiles, rows, columns;
};
template <class Work>
Share ShareOf(const Work& work) {
  const int64_t panels = PartOf(Panels(work.filter.columns), work.panel_parts);
  return {Of(PartOf(work.Tiles(), work.tile_parts)), Padded(work.filter.rows),
          std::min(Of(panels * kPanel), Padded(work.filter.columns))};
}

// Cost of transforming the filter of a share in each run; all threads share the columns.
template <class Work>
double FilterCost(const Work& work, const Share& share, bool by_part) {
  const double elements = Positions(work.m) * share.rows * share.columns;
  if (by_part) return elements * kByPart;
  return elements / Of(work.tile_parts) *
         (elements * Of(work.panel_parts) > kHeld ? kMemory : kBefore);
}

double Cost(const Convolution& work, bool constant) {
  const Share s = ShareOf(work);
  const double positions = Positions(work.m), rows = Of(work.filter.rows);
  return positions * s.tiles * (s.rows * kInput + s.columns * kOutput) +
         Products(positions * rows * s.columns, s.tiles * kProduct * (1 + 3 / rows)) +
         (constant ? 0 : FilterCost(work, s, work.PanelsAreUsedOnce()));
}

double Cost(const FilterGradient& work) {
  const Share s = ShareOf(work);
  const double positions = Positions(work.m), sums = positions * s.rows * s.columns;
  const double blocks = 2 * s.tiles / Of(work.block) + Of(work.tile_parts - 1);
  return positions * s.tiles * (s.rows * kInput + s.columns * kOutput) + sums * s.tiles * kSum +
         (work.FinishesPanels() || sums < kCached ? 0 : sums * blocks * kStream) +
         FilterCost(work, s, work.FinishesPanels());
}

// Cost of a direct convolution, with `reorders` of the filter. Its vectors run over columns or, if
// these are few, over rows of the kernel.
double DirectCost(const ConvGeometry& g, const FilterMatrix& filter, int64_t threads,
                  int reorders) {
  const double columns = filter.columns < kChunk ? Of(filter.columns) : Padded(filter.columns);
  const double elements = 9 * Of(filter.rows) * columns;
  return Products(elements, Of(g.batch * g.OutPixels()) / Of(threads)) +
         elements * kReorder * reorders;
}

// --- geometry ---

bool IsTaken(const ConvGeometry& g) {
  constexpr int64_t kLargest = int64_t{1} << 40;  // no product of sizes overflows
  if (g.IsEmpty()) return false;
  if (g.FilterNumel() > kLargest) return false;
  const auto axis = [](const WindowAxis& a) {
    return a.kernel == 3 && a.stride == 1 && a.dilation == 1;
  };
  return g.axes == 2 && g.channels_last && g.groups == 1 && axis(g.h) && axis(g.w);
}

// Tiles of `height` x `width` results, and of their sources. `top` and `left` are the zeros before
// the sources.
template <class Work>
Work WorkOf(int m, int64_t batch, const Tiling& from, const Tiling& to, int64_t top, int64_t left,
            const FilterMatrix& filter) {
  Work work;
  work.m = m;
  work.batch = batch;
  work.from = from;
  work.to = to;
  for (Tiling* t : {&work.from, &work.to}) {
    t->rows = PartOf(to.height, m);
    t->columns = PartOf(to.width, m);
    t->step = m;
  }
  work.from.top = top;
  work.from.left = left;
  work.filter = filter;
  return work;
}

Tiling Inputs(const ConvGeometry& g) { return {g.h.in, g.w.in, g.in_channels}; }
Tiling Outputs(const ConvGeometry& g) { return {g.h.out, g.w.out, g.out_channels}; }

FilterMatrix FilterOf(const ConvGeometry& g) {
  using winograd::kTaps;
  return {g.in_channels, g.out_channels, kTaps, g.in_channels * kTaps, false};
}

Convolution ForwardOf(const ConvGeometry& g, int m) {
  return WorkOf<Convolution>(m, g.batch, Inputs(g), Outputs(g), g.h.before, g.w.before,
                             FilterOf(g));
}

Convolution DataOf(const ConvGeometry& g, int m) {
  const FilterMatrix f = FilterOf(g);
  return WorkOf<Convolution>(m, g.batch, Outputs(g), Inputs(g), 2 - g.h.before, 2 - g.w.before,
                             {f.columns, f.rows, f.column, f.row, true});
}

FilterGradient FilterGradientOf(const ConvGeometry& g, int m) {
  return WorkOf<FilterGradient>(m, g.batch, Inputs(g), Outputs(g), g.h.before, g.w.before,
                                FilterOf(g));
}

// The tiles and parts with the lowest cost; with `by_rule`, m is 0 if a direct kernel costs less.
template <class Make, class CostOf>
auto Best(const ConvGeometry& g, int reorders, bool by_rule, Make&& make, CostOf&& cost) {
  auto best = make(4);
  best.m = 0;
  const double products = DirectCost(g, best.filter, 1, 0);
  const auto threads = static_cast<int64_t>(std::min<double>(NumThreads(), 1 + products / 300e3));
  double least = by_rule ? kWorth * DirectCost(g, best.filter, threads, reorders)
                         : std::numeric_limits<double>::infinity();
  for (const int m : {2, 4}) {
    for (int64_t tile_parts = 1; tile_parts <= threads; ++tile_parts) {
      auto work = make(m);
      work.tile_parts = std::min(tile_parts, work.Tiles());
      work.panel_parts = std::min(threads / tile_parts, Panels(work.filter.columns));
      const int64_t its_tiles = PartOf(work.Tiles(), work.tile_parts);
      work.block = PartOf(its_tiles, std::max<int64_t>(1, (its_tiles + kBlock / 2) / kBlock));
      const double its = cost(work);
      if (its >= least) continue;
      least = its;
      best = work;
    }
  }
  return best;
}

// --- kernels ---

// The transformed filter of a convolution: computed once if it is constant, else in each run, as a
// whole or by the parts.
struct TransformedFilter {
  Convolution work;
  TensorArg plain, scratch;
  std::shared_ptr<const Tensor> constant;

  TransformedFilter(const PrepareContext& ctx, const Convolution& c, const TensorArg& filter,
                    const std::shared_ptr<const Tensor>& packed)
      : work(c), plain(filter), constant(packed) {
    if (packed || c.PanelsAreUsedOnce()) return;
    scratch = ctx.Scratch(DType::kFloat32, {c.FilterFloats()});
  }
  bool ByParts() const { return !constant && !scratch; }
  const float* Make(Workspace& ws) const {
    if (constant) return constant->data<float>();
    if (!scratch) return nullptr;
    float* made = ws.Data<float>(scratch);
    Transform(work, ws.Data<const float>(plain), made);
    return made;
  }

  static void Transform(const Convolution& c, const float* filter, float* made) {
    ParallelFor(Panels(c.filter.columns), 1, [&](int64_t begin, int64_t end) {
      TransformFilter(c.m, c.filter, filter, begin, end,
                      made + begin * winograd::FilterPanel(c.m, c.filter.rows));
    });
  }
};

PackedLayout LayoutOf(const Convolution& c, const Shape& filter) {
  PackedLayout layout{"winograd " + std::to_string(c.m), {}, {}};
  // Kept outside of the tensor, because its size is known only afterwards, and because it is
  // released if another layout already restores the filter.
  const auto restorer = std::make_shared<winograd::FilterRestorer>();
  layout.pack = [=](const Tensor& plain) {
    Tensor made(DType::kFloat32, {c.FilterFloats()});
    *restorer = {c.m, c.filter, plain.data<float>(), made.data<float>()};
    return made;
  };
  layout.unpack = [=](const Tensor& packed) {
    Tensor plain(DType::kFloat32, filter);
    restorer->Restore(packed.data<float>(), plain.data<float>());
    return plain;
  };
  return layout;
}

// Calls f(part) for each part, from several threads.
template <class Work, class F>
void ForParts(const Work& work, F&& f) {
  ParallelFor(work.Parts(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

Epilogue EpilogueOf(Workspace& ws, const ConvForwardArgs& args) {
  Epilogue epilogue;
  if (args.bias) epilogue.bias = ws.Data<const float>(args.bias);
  if (args.residual) epilogue.residual = ws.Data<const float>(args.residual);
  if (!args.activation) return epilogue;
  epilogue.relu = args.activation.name() == std::string_view("relu");
  if (epilogue.relu) return epilogue;
  epilogue.context = &args.activation;
  epilogue.activation = [](const void* activation, float* x, int64_t n) {
    static_cast<const ConvActivation*>(activation)->ApplyFast(x, n);
  };
  return epilogue;
}

// Sums over all pixels of rows of channels; each part has some of the rows.
Kernel BiasGradient(const PrepareContext& ctx, const ConvGeometry& g, const TensorArg& dout,
                    const TensorArg& dbias) {
  const int64_t pixels = g.batch * g.OutPixels(), channels = g.out_channels;
  const int64_t parts = std::max<int64_t>(1, pixels / 256);  // independent of the number of threads
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(parts, channels)});
  return [=](Workspace& ws) {
    const float* from = ws.Data<const float>(dout);
    float* sums = ws.Data<float>(scratch);
    ParallelFor(parts, 8, [&](int64_t begin, int64_t end) {
      std::fill(sums + begin * channels, sums + end * channels, 0.0f);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = pixels * i / parts, last = pixels * (i + 1) / parts;
        AddRows(from + first * channels, last - first, channels, sums + i * channels);
      }
    });
    float* out = ws.Data<float>(dbias);
    std::fill_n(out, channels, 0.0f);
    AddRows(sums, parts, channels, out);
    // A partial sum may have overflowed a float.
    if (!simd::AllFinite(out, channels)) ConvBiasGrad(g, from, out);
  };
}

Kernel DataGradient(const PrepareContext& ctx, const Convolution& work,
                    const ConvBackwardArgs& args) {
  const TransformedFilter filter(ctx, work, args.filter, nullptr);
  const int64_t each = work.ScratchFloats(filter.ByParts());
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(work.Parts(), each)});
  return [=](Workspace& ws) {
    const float* transformed = filter.Make(ws);
    ForParts(work, [&](int64_t part) {
      work.RunPart(part, ws.Data<const float>(args.dout), ws.Data<const float>(args.filter),
                   transformed, {}, ws.Data<float>(args.dinput),
                   ws.Data<float>(scratch) + part * each);
    });
  };
}

Kernel FilterGradientKernel(const PrepareContext& ctx, const FilterGradient& work,
                            const ConvBackwardArgs& args) {
  const int64_t each = work.ScratchFloats();
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(work.Parts(), each)});
  TensorArg sums;
  if (!work.FinishesPanels())
    sums = ctx.Scratch(DType::kFloat32, {CheckedMul(work.tile_parts, work.SumFloats())});
  return [=](Workspace& ws) {
    float* sum = sums ? ws.Data<float>(sums) : nullptr;
    float* out = ws.Data<float>(args.dfilter);
    ForParts(work, [&](int64_t part) {
      work.RunPart(part, ws.Data<const float>(args.input), ws.Data<const float>(args.dout), sum,
                   out, ws.Data<float>(scratch) + part * each);
    });
    if (!sum) return;
    ParallelFor(Panels(work.filter.columns), 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) work.FinishPanel(panel, sum, out);
    });
  };
}

}  // namespace

Kernel ConvForwardWinograd(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args, bool by_rule) {
  if (args.input.dtype != DType::kFloat32 || !IsTaken(g)) return {};
  const auto choose = [&](bool constant) {
    return Best(
        g, constant ? 0 : 1, by_rule, [&](int m) { return ForwardOf(g, m); },
        [&](const Convolution& c) { return Cost(c, constant); });
  };
  Convolution work = choose(true);
  if (work.m == 0) return {};
  const std::shared_ptr<const Tensor> packed =
      ctx.Packed("Filter", LayoutOf(work, args.filter.shape));
  if (!packed) work = choose(false);
  if (work.m == 0) return {};
  const TransformedFilter filter(ctx, work, args.filter, packed);
  const int64_t each = work.ScratchFloats(filter.ByParts());
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {CheckedMul(work.Parts(), each)});
  return [=](Workspace& ws) {
    const float* transformed = filter.Make(ws);
    const Epilogue epilogue = EpilogueOf(ws, args);
    const float* plain = filter.ByParts() ? ws.Data<const float>(args.filter) : nullptr;
    ForParts(work, [&](int64_t part) {
      work.RunPart(part, ws.Data<const float>(args.input), plain, transformed, epilogue,
                   ws.Data<float>(args.output), ws.Data<float>(scratch) + part * each);
    });
  };
}

Kernel ConvBackwardWinograd(const PrepareContext& ctx, const ConvGeometry& g,
                            const ConvBackwardArgs& args, bool by_rule) {
  if (args.dout.dtype != DType::kFloat32 || !IsTaken(g)) return {};
  Convolution data;
  FilterGradient sums;
  data.m = sums.m = 0;
  if (args.dinput) {
    data = Best(
        g, 1, by_rule, [&](int m) { return DataOf(g, m); },
        [&](const Convolution& c) { return Cost(c, false); });
  }
  if (args.dfilter) {
    sums = Best(
        g, 2, by_rule, [&](int m) { return FilterGradientOf(g, m); },
        [&](const FilterGradient& c) { return Cost(c); });
  }
  if (data.m == 0 && sums.m == 0) return {};
  ConvBackwardArgs rest = args;
  Kernel of_data, of_filter, of_bias, of_rest;
  if (data.m != 0) {
    of_data = DataGradient(ctx, data, args);
    rest.dinput = {};
  }
  if (sums.m != 0) {
    of_filter = FilterGradientKernel(ctx, sums, args);
    if (args.dbias) of_bias = BiasGradient(ctx, g, args.dout, args.dbias);
    rest.dfilter = rest.dbias = {};
  }
  if (rest.dinput || rest.dfilter || rest.dbias) {
    of_rest = ConvBackwardFast(ctx, g, rest);
    if (!of_rest) return {};
  }
  return [=](Workspace& ws) {
    if (of_rest) of_rest(ws);
    if (of_filter) of_filter(ws);
    if (of_bias) of_bias(ws);
    if (of_data) of_data(ws);
  };
}

}  // namespace coracle::inline internal
