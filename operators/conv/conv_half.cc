#include <coracle/operators/conv/conv_half.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/kernels/half_part.h>

#include <algorithm>
#include <vector>

namespace coracle::inline internal {
namespace {

// Floats of a part that stay in the cache together with the filter.
constexpr int64_t kFloatsOfPart = 256 * 1024;

// The number of parts such that each has at most kFloatsOfPart of `floats`. It is smaller if the
// filter is so large that reading or transforming it again for each part costs more than is saved
// on the images, and somewhat larger if the parts are then equal, so that one kernel serves
// them all.
int64_t PartsOf(const ConvGeometry& g, int64_t floats, int64_t units) {
  const int64_t least = 12 * g.FilterNumel();
  const int64_t wanted =
      std::min({1 + floats / kFloatsOfPart, std::max<int64_t>(floats / least, 1), units});
  for (int64_t n = wanted; n <= std::min(wanted + wanted / 2, units); ++n) {
    if (units % n == 0) return n;
  }
  return wanted;
}

bool SameAxis(const WindowAxis& a, const WindowAxis& b) {
  return a.in == b.in && a.out == b.out && a.before == b.before && a.after == b.after;
}
// Whether two parts of a convolution have the same geometry.
bool SameGeometry(const ConvGeometry& a, const ConvGeometry& b) {
  return a.batch == b.batch && SameAxis(a.d, b.d) && SameAxis(a.h, b.h) && SameAxis(a.w, b.w);
}

// The position of a part, and the kernel that computes it.
struct Piece {
  ConvPart part;
  size_t kernel;
};

// Makes the parts, and a kernel make(geometry, filter) for each geometry among them. Returns false
// if one of the kernels is empty. Each kernel packs the filter or reads it plain: once another
// kernel has packed it, the plain one may be gone (PrepareContext::Packed).
template <class Make>
bool MakePieces(const PrepareContext& ctx, const TensorArg& filter,
                const std::vector<ConvPart>& parts, std::vector<Piece>& pieces,
                std::vector<Kernel>& kernels, Make&& make) {
  std::vector<ConvGeometry> geometries;
  for (const ConvPart& part : parts) {
    size_t i = 0;
    while (i < geometries.size() && !SameGeometry(geometries[i], part.g)) ++i;
    if (i == geometries.size()) {
      geometries.push_back(part.g);
      kernels.push_back(make(part.g, i > 0 ? ctx.Input("Filter") : filter));
      if (!kernels.back()) return false;
    }
    pieces.push_back({part, i});
  }
  return true;
}

TensorArg View(TensorArg arg, int64_t numel) {
  arg.shape = Shape({numel});
  arg.numel = numel;
  return arg;
}

struct Largest {
  int64_t input = 0, output = 0;
  explicit Largest(const std::vector<ConvPart>& parts) {
    for (const ConvPart& part : parts) {
      input = std::max(input, part.g.InputNumel());
      output = std::max(output, part.g.OutputNumel());
    }
  }
};

}  // namespace

Kernel ConvForwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args) {
  if (g.IsEmpty()) return {};
  const int64_t units = g.batch > 1 || !g.channels_last ? g.batch : RowsOf(g).out;
  const std::vector<ConvPart> parts =
      SplitOutputs(g, PartsOf(g, g.InputNumel() + g.OutputNumel(), units));
  const Largest largest(parts);
  ConvForwardArgs wide = args;
  wide.input = ctx.Scratch(DType::kFloat32, {largest.input});
  wide.output = ctx.Scratch(DType::kFloat32, {largest.output});
  std::vector<Piece> pieces;
  std::vector<Kernel> kernels;
  const bool all = MakePieces(ctx, args.filter, parts, pieces, kernels,
                              [&](const ConvGeometry& its, const TensorArg& filter) {
                                ConvForwardArgs a = wide;
                                a.filter = filter;
                                a.input = View(wide.input, its.InputNumel());
                                a.output = View(wide.output, its.OutputNumel());
                                if (args.residual)
                                  // holds its part of the residual before the sums
                                  a.residual = a.output;
                                return ConvForwardFast(ctx, its, a);
                              });
  if (!all) return {};
  return [=, input = args.input, residual = args.residual, output = args.output](Workspace& ws) {
    for (const Piece& piece : pieces) {
      const ConvPart& part = piece.part;
      WidenPart(ws, input, part.input, part.g.InputNumel(), wide.input);
      if (residual) WidenPart(ws, residual, part.output, part.g.OutputNumel(), wide.output);
      kernels[piece.kernel](ws);
      NarrowPart(ws, wide.output, output, part.output, part.g.OutputNumel());
    }
  };
}

Kernel ConvBackwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                            const ConvBackwardArgs& args) {
  if (g.IsEmpty()) return {};
  const int64_t floats = (args.dinput ? 2 : 1) * g.InputNumel() + g.OutputNumel();
  const std::vector<ConvPart> parts = SplitImages(g, PartsOf(g, floats, g.batch));
  const Largest largest(parts);
  ConvBackwardArgs wide = args;
  wide.input = ctx.Scratch(DType::kFloat32, {largest.input});
  wide.dout = ctx.Scratch(DType::kFloat32, {largest.output});
  if (args.dinput) wide.dinput = ctx.Scratch(DType::kFloat32, {largest.input});
  const bool sums = parts.size() > 1;
  if (sums && args.dfilter) wide.dfilter = ctx.Scratch(DType::kFloat32, args.dfilter.shape);
  if (sums && args.dbias) wide.dbias = ctx.Scratch(DType::kFloat32, args.dbias.shape);
  std::vector<Piece> pieces;
  std::vector<Kernel> kernels;
  const bool all = MakePieces(ctx, args.filter, parts, pieces, kernels,
                              [&](const ConvGeometry& its, const TensorArg& filter) {
                                ConvBackwardArgs a = wide;
                                a.filter = filter;
                                a.input = View(wide.input, its.InputNumel());
                                a.dout = View(wide.dout, its.OutputNumel());
                                if (a.dinput) a.dinput = View(wide.dinput, its.InputNumel());
                                return ConvBackwardFast(ctx, its, a);
                              });
  if (!all) return {};
  return [=](Workspace& ws) {
    bool first = true;
    const auto add = [&](const TensorArg& share, const TensorArg& sum) {
      const float* from = ws.Data<const float>(share);
      float* to = ws.Data<float>(sum);
      if (first) return void(std::copy_n(from, sum.numel, to));
      for (int64_t i = 0; i < sum.numel; ++i) to[i] += from[i];
    };
    for (const Piece& piece : pieces) {
      const ConvPart& part = piece.part;
      if (args.dfilter) WidenPart(ws, args.input, part.input, part.g.InputNumel(), wide.input);
      WidenPart(ws, args.dout, part.output, part.g.OutputNumel(), wide.dout);
      kernels[piece.kernel](ws);
      if (args.dinput) NarrowPart(ws, wide.dinput, args.dinput, part.input, part.g.InputNumel());
      if (sums && args.dfilter) add(wide.dfilter, args.dfilter);
      if (sums && args.dbias) add(wide.dbias, args.dbias);
      first = false;
    }
  };
}

}  // namespace coracle::inline internal
