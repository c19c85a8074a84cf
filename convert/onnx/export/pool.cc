// Pooling ops.
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/operators/kernels/window.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

struct Pool {
  OpContext& op;
  Value x;      // channels first
  Shape shape;  // of x
  size_t axes;
  bool max;
  Ints kernel, strides;

  int64_t size(size_t i) const { return shape[static_cast<int>(i) + 2]; }
};

// Along one axis, window i of `out` covers [floor(i in / out), ceil((i + 1) in / out)). The mean of
// means equals the mean, since all windows of one row (column) have the same size.
Value PoolAdaptivelyAlong(const Pool& p, const Value& x, size_t i) {
  const int64_t in = p.size(i), out = p.kernel[i];
  const auto axis = static_cast<int64_t>(i) + 2;
  Values windows;
  for (int64_t k = 0; k < out; ++k) {
    const Value window = p.op.Slice(x, axis, k * in / out, ((k + 1) * in + out - 1) / out);
    windows.push_back(p.op.Reduce(p.max ? "ReduceMax" : "ReduceMean", window, {axis}, true));
  }
  return p.op.Concat(windows, axis);
}

Value PoolGlobally(const Pool& p) {
  return p.op.Node(p.max ? "GlobalMaxPool" : "GlobalAveragePool", {p.x});
}

Value PoolAdaptively(Pool p) {
  if (std::all_of(p.kernel.begin(), p.kernel.end(), [](int64_t k) { return k == 1; }))
    return PoolGlobally(p);
  bool even = true;
  for (size_t i = 0; i < p.axes; ++i) {
    p.op.Require(p.size(i) > 0, "an adaptive pool needs the size of X; coracle set-shape gives it");
    even = even && p.size(i) % p.kernel[i] == 0;
  }
  if (even) {
    Ints windows;
    for (size_t i = 0; i < p.axes; ++i) windows.push_back(p.size(i) / p.kernel[i]);
    return p.op.Node(p.max ? "MaxPool" : "AveragePool", {p.x},
                     {{"kernel_shape", windows}, {"strides", windows}});
  }
  Value pooled = p.x;
  for (size_t i = 0; i < p.axes; ++i) pooled = PoolAdaptivelyAlong(p, pooled, i);
  return pooled;
}

// The pads with which rounding down gives the op's number of windows: they account for rounding up,
// and for a window that extends past X because none fits. Returns whether they are known.
bool PadUp(const Pool& p, Ints* pads) {
  WindowSpec spec;
  spec.strides = p.op.Attr<std::vector<int32_t>>("strides");
  spec.paddings = p.op.Attr<std::vector<int32_t>>("paddings");
  spec.padding_algorithm = p.op.Attr<std::string>("padding_algorithm");
  spec.ceil_mode = p.op.Attr<bool>("ceil_mode");
  for (size_t i = 0; i < p.axes; ++i) {
    if (p.size(i) < 0) return false;
    const WindowAxis w = ResolveAxis(spec, static_cast<int>(i), p.size(i), p.kernel[i]);
    const int64_t out = std::max<int64_t>(w.out, 1);
    const int64_t covered = (out - 1) * w.stride + w.kernel;
    (*pads)[p.axes + i] = std::max(w.after, covered - w.in - w.before);
    p.op.Require((out - 1) * w.stride - w.before < w.in,
                 "a window that lies in the padding has no counterpart");
  }
  return true;
}

// All implementations agree on rounding up only if the last window begins inside X.
void RequireCeil(const Pool& p, const Ints& pads) {
  for (size_t i = 0; i < p.axes; ++i) {
    p.op.Require(pads[p.axes + i] + p.strides[i] <= p.kernel[i],
                 "ceil_mode of an X whose size is unknown has no counterpart where the last "
                 "window may lie in the padding; coracle set-shape gives the size");
  }
}

// If an average includes padding, the padding becomes elements of X: zeros.
Value PadWithZeros(const Pool& p, const Ints& pads) {
  if (std::all_of(pads.begin(), pads.end(), [](int64_t n) { return n == 0; })) return p.x;
  Ints all(2 * (p.axes + 2), 0);
  for (size_t i = 0; i < p.axes; ++i) {
    all[2 + i] = pads[i];
    all[p.axes + 4 + i] = pads[p.axes + i];
  }
  return p.op.Node("Pad", {p.x, p.op.IntList(all)});
}

Value PoolWindows(Pool p) {
  const auto algorithm = p.op.Attr<std::string>("padding_algorithm");
  NodeAttrs attrs = {{"kernel_shape", p.kernel}, {"strides", p.strides}};
  const bool counts = !p.max && !p.op.Attr<bool>("exclusive");
  const char* type = p.max ? "MaxPool" : "AveragePool";
  if (algorithm == "SAME") {
    p.op.Require(!counts, "an average that counts the padding of SAME has no counterpart");
    attrs.emplace_back("auto_pad", "SAME_UPPER");
    return p.op.Node(type, {p.x}, attrs);
  }
  Ints pads = PadsOf(p.op.IntsAttr("paddings"), p.axes);
  if (algorithm == "VALID") pads.assign(pads.size(), 0);
  for (size_t i = 0; i < pads.size(); ++i) {
    p.op.Require(pads[i] < p.kernel[i % p.axes],
                 "padding as wide as the window has no counterpart");
  }
  Ints up = pads;
  const bool known = PadUp(p, &up);
  const bool rounds_up = known ? up != pads : p.op.Attr<bool>("ceil_mode");
  if (!known && rounds_up) RequireCeil(p, pads);
  if (counts && !rounds_up) attrs.emplace_back("count_include_pad", 1);
  if (counts && rounds_up) {
    // Elements past X and its padding are not counted.
    p.x = PadWithZeros(p, pads);
    for (size_t i = 0; i < pads.size(); ++i) up[i] -= pads[i];
  }
  if (!known && rounds_up) attrs.emplace_back("ceil_mode", 1);
  attrs.emplace_back("pads", up);
  return p.op.Node(type, {p.x}, attrs);
}

Pool PoolOf(OpContext& op, const Value& x, bool channels_last, bool max) {
  const int rank = op.Rank("X");
  Pool p{op,
         ToChannelsFirst(op, x, rank, channels_last),
         ChannelsFirst(op.InShape("X"), channels_last),
         static_cast<size_t>(rank) - 2,
         max,
         op.IntsAttr("ksize"),
         op.IntsAttr("strides")};
  return p;
}

}  // namespace

Value Pooled(OpContext& op, const Value& x) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const Pool p = PoolOf(op, x, last, op.Attr<std::string>("pooling_type") == "max");
  const Value pooled = op.Attr<bool>("global_pooling") ? PoolGlobally(p)
                       : op.Attr<bool>("adaptive")     ? PoolAdaptively(p)
                                                       : PoolWindows(p);
  return FromChannelsFirst(op, pooled, op.Rank("X"), last);
}

namespace {

void ExportPool(OpContext& op) { op.Out("Out", Pooled(op, op.In("X"))); }

// ONNX counts the position of a maximum over all of X, Paddle within a channel.
void ExportMaxPoolWithIndex(OpContext& op) {
  Pool p = PoolOf(op, op.In("X"), false, true);
  Ints pads = PadsOf(op.IntsAttr("paddings"), p.axes);
  int64_t pixels = 1;
  for (size_t i = 0; i < p.axes; ++i) {
    op.Require(p.size(i) > 0, "the size of X must be known; coracle set-shape gives it");
    pixels *= p.size(i);
    if (op.Attr<bool>("global_pooling")) p.kernel[i] = p.strides[i] = p.size(i);
    if (!op.Attr<bool>("global_pooling") && !op.Attr<bool>("adaptive")) continue;
    pads[i] = pads[p.axes + i] = 0;
    if (op.Attr<bool>("global_pooling")) continue;
    op.Require(p.size(i) % p.kernel[i] == 0,
               fmt::format("an adaptive pool with windows of different size has no counterpart: {} "
                           "elements of X in {} windows; give X a multiple of that",
                           p.size(i), p.kernel[i]));
    p.kernel[i] = p.strides[i] = p.size(i) / p.kernel[i];
  }
  const Values pooled = op.Nodes(
      "MaxPool", {p.x}, 2, {{"kernel_shape", p.kernel}, {"strides", p.strides}, {"pads", pads}});
  op.Out("Out", pooled[0]);
  const Value mask = op.Node("Mod", {pooled[1], op.Int(pixels)});
  op.Out("Mask", op.Cast(mask, DType::kInt64, op.OutType("Mask")));
}

constexpr ExportRow kRows[] = {
    {"max_pool2d_with_index", ExportMaxPoolWithIndex, "MaxPool, Mod"},
    {"max_pool3d_with_index", ExportMaxPoolWithIndex, "MaxPool, Mod"},
    {"pool2d", ExportPool, "MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool"},
    {"pool3d", ExportPool, "MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool"},
};

}  // namespace

ExportRows PoolRows() { return kRows; }

}  // namespace coracle::onnx
