// Pooling: maxima, averages and norms of windows.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

// --- by the ops pool2d and pool3d ---

bool HasPoolOp(DType dtype, const Windows& windows) {
  return IsFloating(dtype) && windows.rank() <= 3 && !windows.IsDilated();
}

// As below, along an axis whose length is known only at run time: windows begin at multiples of the
// stride before the end of the input.
Variable WithoutLateWindows(NodeContext& node, const Variable& out, const Variable& x, int axis,
                            const Windows& windows) {
  const auto i = static_cast<size_t>(axis) - 2;
  const Variable stride = node.ConstantVar(Ints{windows.strides[i]});
  const Variable last = DimOf(node, x, axis) + static_cast<double>(windows.before[i] - 1);
  const Variable count = node.Binary("elementwise_floordiv", last, stride) + 1.0;
  return SliceBetween(node, out, axis, node.ConstantVar(Ints{0}), count);
}

}  // namespace

Variable WithoutLateWindows(NodeContext& node, Variable out, const Variable& x,
                            const Windows& windows) {
  if (!windows.ceil) return out;
  for (size_t i = 0; i < windows.rank(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    const int64_t in = x.shape()[axis];
    if (in < 0) {
      // Without padding, no window of at least a stride begins after the input.
      const bool late =
          windows.before[i] + windows.after[i] > 0 || windows.Extent(i) < windows.strides[i];
      if (late) out = WithoutLateWindows(node, out, x, axis, windows);
      continue;
    }
    const int64_t count = windows.Count(i, in);
    if (out.shape()[axis] > count) out = SliceOf(node, out, axis, 0, count);
  }
  return out;
}

namespace {

Variable PoolByOp(NodeContext& node, const Variable& x, const Windows& windows, bool max,
                  bool exclusive) {
  AttrList attrs = {{"pooling_type", std::string(max ? "max" : "avg")},
                    {"ksize", ToInt32(windows.kernel, "a window")},
                    {"strides", ToInt32(windows.strides, "a window")},
                    {"paddings", Interleaved(windows.before, windows.after)},
                    {"ceil_mode", windows.ceil},
                    {"exclusive", exclusive}};
  if (windows.same) attrs.push_back({"padding_algorithm", std::string("SAME")});
  const Variable out = node.Unary(windows.rank() == 3 ? "pool3d" : "pool2d", x, std::move(attrs));
  return WithoutLateWindows(node, out, x, windows);
}

Variable PoolByAnyOp(NodeContext& node, const Variable& x, const Windows& windows, bool max,
                     bool exclusive) {
  if (windows.rank() != 1) return PoolByOp(node, x, windows, max, exclusive);
  return WithoutHeight(node,
                       PoolByOp(node, WithHeight(node, x), WithHeight(windows), max, exclusive));
}

// --- by gathering the elements of the windows ---

// Along one dim of `in` elements: the positions of the elements of each window. A position in the
// padding is replaced by the nearest one inside the window, which changes no maximum, and counts as
// 0 in sums.
struct Places {
  int64_t count = 0;
  Ints index = {};                 // [count, kernel]
  std::vector<float> inside = {};  // the same shape
};

Places PlacesOf(NodeContext& node, const Windows& windows, size_t i, int64_t in) {
  if (in < 0) node.RefuseUnknown("a spatial dimension", "the places of the windows");
  Places places = {.count = windows.Count(i, in)};
  RequireSmallConstant(node, {places.count, windows.kernel[i]}, "windows");
  const int64_t d = windows.dilations[i];
  for (int64_t window = 0; window < places.count; ++window) {
    const int64_t begin = window * windows.strides[i] - windows.before[i];
    const int64_t first = begin >= 0 ? begin : begin + (-begin + d - 1) / d * d;
    if (first >= in || first > begin + d * (windows.kernel[i] - 1))
      node.Refuse("a window that lies in the padding altogether");
    for (int64_t k = 0; k < windows.kernel[i]; ++k) {
      const int64_t at = begin + k * d, last = first + (in - 1 - first) / d * d;
      places.index.push_back(std::clamp(at, first, last));
      places.inside.push_back(at >= 0 && at < in ? 1.0f : 0.0f);
    }
  }
  return places;
}

// x with dim `axis` as [windows, kernel].
Variable WindowsAlong(NodeContext& node, const Variable& x, int axis, const Places& places,
                      int64_t kernel) {
  const Variable index = node.ConstantVar(places.index);
  const Variable all =
      node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"axis", axis}});
  Shape shape;
  for (int i = 0; i < x.shape().rank(); ++i) {
    if (i != axis) {
      shape.Append(x.shape()[i]);
      continue;
    }
    shape.Append(places.count);
    shape.Append(kernel);
  }
  return Reshaped(node, all, shape);
}

Variable WeightsAlong(NodeContext& node, int rank, int axis, const Ints& dims,
                      const std::vector<float>& values, DType dtype) {
  Ints shape(static_cast<size_t>(rank), 1);
  std::copy(dims.begin(), dims.end(), shape.begin() + axis);
  return node.ConstantVar(Tensor::Of<float>(Shape(shape), values).Cast(dtype));
}

// Windows are products of intervals, so dims are reduced one after the other.
Variable MaxOfWindows(NodeContext& node, Variable x, const Windows& windows) {
  const DType own = x.dtype();
  x = node.Cast(x, node.ComputeDType("reduce_max", own));
  for (size_t i = 0; i < windows.rank(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    const Places places = PlacesOf(node, windows, i, x.shape()[axis]);
    x = node.Unary("reduce_max", WindowsAlong(node, x, axis, places, windows.kernel[i]),
                   {{"dim", std::vector<int32_t>{axis + 1}}});
  }
  return node.Cast(x, own);
}

// `divide`: divides by the number of elements, with or without those in the padding.
Variable SumOfWindows(NodeContext& node, Variable x, const Windows& windows, bool divide,
                      bool with_padding) {
  const int rank = x.shape().rank();
  for (size_t i = 0; i < windows.rank(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    const int64_t in = x.shape()[axis], kernel = windows.kernel[i];
    const Places places = PlacesOf(node, windows, i, in);
    Variable all = WindowsAlong(node, x, axis, places, kernel);
    if (std::count(places.inside.begin(), places.inside.end(), 0.0f) > 0) {
      const Variable inside =
          WeightsAlong(node, rank + 1, axis, {places.count, kernel}, places.inside, DType::kBool);
      all = BroadcastWhere(node, inside, all, node.ScalarVar(x.dtype(), 0));
    }
    x = node.Unary("reduce_sum", all, {{"dim", std::vector<int32_t>{axis + 1}}});
    if (!divide) continue;
    std::vector<float> factors;
    for (int64_t w = 0; w < places.count; ++w) {
      float members = 0;
      for (int64_t k = 0; k < kernel; ++k) {
        const int64_t at = w * windows.strides[i] + k * windows.dilations[i];
        members += with_padding ? static_cast<float>(at < in + windows.before[i] + windows.after[i])
                                : places.inside[static_cast<size_t>(w * kernel + k)];
      }
      factors.push_back(1 / members);
    }
    x = x * WeightsAlong(node, rank, axis, {places.count}, factors, x.dtype());
  }
  return x;
}

// --- MaxPool's indices ---

// All elements of each window, [N, C, windows..., elements], and their positions among the spatial
// elements, a constant without N and C.
struct FlatWindows {
  Variable elements;
  Tensor places;
};

Tensor FlatPlaces(const std::vector<Places>& along, const Ints& kernel, const Ints& strides) {
  Shape shape;
  int64_t elements = 1;
  for (const Places& places : along) shape.Append(places.count);
  for (int64_t k : kernel) elements *= k;
  shape.Append(elements);
  Tensor flat(DType::kInt64, shape);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    int64_t window = i / elements, element = i % elements, place = 0;
    for (size_t d = along.size(); d-- > 0;) {
      const int64_t w = window % along[d].count, k = element % kernel[d];
      place += along[d].index[static_cast<size_t>(w * kernel[d] + k)] * strides[d];
      window /= along[d].count;
      element /= kernel[d];
    }
    flat.data<int64_t>()[i] = place;
  }
  return flat;
}

FlatWindows FlatWindowsOf(NodeContext& node, Variable x, const Windows& windows, bool columns) {
  const Shape in = x.shape();
  const auto rank = static_cast<int>(windows.rank());
  std::vector<Places> along;
  Ints strides(windows.rank(), 1);
  std::vector<int32_t> perm = {0, 1};
  for (int i = 0; i < rank; ++i) {
    along.push_back(PlacesOf(node, windows, static_cast<size_t>(i), in[i + 2]));
    x = WindowsAlong(node, x, 2 * i + 2, along.back(), windows.kernel[static_cast<size_t>(i)]);
    perm.push_back(2 * i + 2);
    // In column-major positions, the first spatial dim varies fastest.
    strides[static_cast<size_t>(i)] = columns ? in.Product(2, i + 2) : in.Product(i + 3, rank + 2);
  }
  for (int i = 0; i < rank; ++i) perm.push_back(2 * i + 3);
  Shape flat({in[0], in[1]});
  Ints dims = windows.kernel;
  for (const Places& places : along) dims.push_back(places.count);
  RequireSmallConstant(node, dims, "windows");
  const Tensor places = FlatPlaces(along, windows.kernel, strides);
  for (int64_t dim : places.shape()) flat.Append(dim);
  return {Reshaped(node, node.Transpose(x, perm), flat), places};
}

// Indices count over all elements of the input.
Variable IndicesOfMaxima(NodeContext& node, const Variable& x, const Windows& windows) {
  const Shape in = x.shape();
  if (!in.IsKnown()) node.RefuseUnknown("the shape of the input", "the indices (output 1)");
  const bool columns = node.Flag("storage_order", false);
  RequireSmallConstant(node, in.ToVector(), "output Indices");
  const DType dtype = node.ComputeDType("arg_max", x.dtype());
  const FlatWindows flat = FlatWindowsOf(node, node.Cast(x, dtype), windows, columns);
  const Shape shape = flat.elements.shape();
  const int64_t elements = shape[shape.rank() - 1], maps = in[0] * in[1];
  const Variable first = node.Unary("arg_max", flat.elements, {{"axis", int64_t{-1}}});
  const int64_t rows = flat.places.numel() / elements;
  const Variable table =
      node.Reshape(node.BroadcastTo(node.ConstantVar(flat.places.Reshaped({1, rows, elements})),
                                    Shape({maps, rows, elements})),
                   {maps * rows, elements});
  const Variable place =
      node.Make("index_sample",
                {{"X", {table.name()}}, {"Index", {node.Reshape(first, {maps * rows, 1}).name()}}});
  Ints begin;
  for (int64_t map = 0; map < maps; ++map) begin.push_back(map * in.Product(2, in.rank()));
  const Variable all =
      node.Reshape(place, {maps, rows}) + node.ConstantVar(Tensor::Of<int64_t>({maps, 1}, begin));
  Ints wanted = shape.ToVector();
  wanted.pop_back();
  return node.Reshape(all, wanted);
}

// --- importers ---

Windows PoolWindows(NodeContext& node) {
  Windows windows = WindowsOf(node, node.shape(0));
  windows.ceil = node.Flag("ceil_mode", false);
  return windows;
}

void ImportMaxPool(NodeContext& node) {
  const Windows windows = PoolWindows(node);
  const Variable x = node.In(0);
  if (node.Wants(1))
    node.Set(1, IndicesOfMaxima(node, x, windows));
  else
    node.attributes().Ignore("storage_order");
  node.Set(0, HasPoolOp(x.dtype(), windows) ? PoolByAnyOp(node, x, windows, true, true)
                                            : MaxOfWindows(node, x, windows));
}

void ImportAveragePool(NodeContext& node) {
  const bool with_padding = node.Flag("count_include_pad", false);
  const Windows windows = PoolWindows(node);
  const bool by_op = HasPoolOp(node.dtype(0), windows);
  if (!by_op) node.RoundOnce();
  const Variable x = node.In(0);
  node.Set(0, by_op ? PoolByAnyOp(node, x, windows, false, !with_padding)
                    : SumOfWindows(node, x, windows, true, with_padding));
}

// (sum of |x|^p)^(1/p).
void ImportLpPool(NodeContext& node) {
  const auto p = static_cast<double>(node.Int("p", 2));
  node.Require(p >= 1, "attribute p must be positive");
  const Windows windows = PoolWindows(node);
  const Variable powers = Pow(Abs(node.In(0)), p);
  node.Set(0, Pow(SumOfWindows(node, powers, windows, false, false), 1 / p));
}

std::vector<int32_t> SpatialDims(NodeContext& node) {
  std::vector<int32_t> dims;
  for (int i = 2; i < node.rank(0); ++i) dims.push_back(i);
  node.Require(!dims.empty(), "the input must have at least one spatial dimension");
  return dims;
}

void ImportGlobalPool(NodeContext& node) {
  const bool max = node.op_type() == "GlobalMaxPool";
  const std::vector<int32_t> dims = SpatialDims(node);
  const Variable x = node.In(0);
  if (dims.size() == 2) {
    return node.Set(0, node.Unary("pool2d", x,
                                  {{"pooling_type", std::string(max ? "max" : "avg")},
                                   {"ksize", std::vector<int32_t>{1, 1}},
                                   {"global_pooling", true}}));
  }
  node.Set(0,
           node.Unary(max ? "reduce_max" : "reduce_mean", x, {{"dim", dims}, {"keep_dim", true}}));
}

void ImportGlobalLpPool(NodeContext& node) {
  const auto p = static_cast<double>(node.Int("p", 2));
  node.Require(p >= 1, "attribute p must be positive");
  const Variable sum = node.Unary("reduce_sum", Pow(Abs(node.In(0)), p),
                                  {{"dim", SpatialDims(node)}, {"keep_dim", true}});
  node.Set(0, Pow(sum, 1 / p));
}

// The size of the pool's input follows from its windows; a larger output_shape has zeros at
// the end.
void ImportMaxUnpool(NodeContext& node) {
  const Windows windows = WindowsOf(node, node.shape(0));
  const Variable x = node.In(0);
  if (!x.shape().IsKnown()) node.RefuseUnknown("the shape of the input", "the result's shape");
  Shape shape({x.shape()[0], x.shape()[1]});
  for (size_t i = 0; i < windows.rank(); ++i) {
    shape.Append((x.shape()[static_cast<int>(i) + 2] - 1) * windows.strides[i] + windows.Extent(i) -
                 windows.before[i] - windows.after[i]);
  }
  RequireSmall(node, shape.ToVector(), "an output");
  const Variable zeros = FillConstant(node.writer(), x.dtype(), 0, {shape.numel(), 1});
  Variable out = node.Make("scatter", {{"X", {zeros.name()}},
                                       {"Ids", {node.Reshape(node.In(1), {-1}).name()}},
                                       {"Updates", {node.Reshape(x, {-1, 1}).name()}}});
  out = node.Reshape(out, shape.ToVector());
  if (node.HasInput(2)) {
    const Ints wanted = node.KnownInts(2, "output_shape");
    node.Require(static_cast<int>(wanted.size()) == shape.rank(),
                 "output_shape must have the rank of the input");
    Ints before(wanted.size(), 0), after;
    for (size_t i = 0; i < wanted.size(); ++i)
      after.push_back(wanted[i] - shape[static_cast<int>(i)]);
    node.Require(*std::min_element(after.begin(), after.end()) >= 0,
                 "output_shape is smaller than the windows require");
    out = node.Unary("pad", out, {{"paddings", Interleaved(before, after)}});
  }
  node.Set(0, out);
}

}  // namespace

void AddPoolImporters(NodeImporters& importers) {
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "MaxPool",
         .since = 1,
         .takes = "n3+",
         .import = ImportMaxPool,
         .maps_to = "pool2d or pool3d; gather, reduce_max; arg_max"},
           {.op_type = "AveragePool",
           .since = 1,
           .takes = "f3+",
           .import = ImportAveragePool,
           .maps_to = "pool2d or pool3d; gather, reduce_sum"},
           {.op_type = "LpPool",
           .since = 2,
           .takes = "f3+",
           .import = ImportLpPool,
           .maps_to = "elementwise_pow, gather, reduce_sum",
           .composed = true},
           {.op_type = "GlobalAveragePool",
           .since = 1,
           .takes = "f3+",
           .import = ImportGlobalPool,
           .maps_to = "pool2d; reduce_mean"},
           {.op_type = "GlobalMaxPool",
           .since = 1,
           .takes = "n3+",
           .import = ImportGlobalPool,
           .maps_to = "pool2d; reduce_max"},
           {.op_type = "GlobalLpPool",
           .since = 2,
           .takes = "f3+",
           .import = ImportGlobalLpPool,
           .maps_to = "elementwise_pow, reduce_sum",
           .composed = true},
           {.op_type = "MaxUnpool",
           .since = 9,
           .takes = "f3+ i3+ i1?",
           .import = ImportMaxUnpool,
           .maps_to = "scatter"},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
