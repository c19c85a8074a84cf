// Samples of images at arbitrary positions: GridSample, AffineGrid, and pooling of regions
// of interest.

#include <coracle/convert/onnx/import/elementwise.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Variables = std::vector<Variable>;

DType WideOf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

// Along one dim: the elements that a sample reads, and their weights; both [samples, taps].
struct Taps {
  Variable at = {};  // int64, in range
  Variable weight = {};
};

// 1 where low <= x <= high, else 0.
Variable Within(NodeContext& node, const Variable& x, double low, double high) {
  const Variable clamped = Min(Max(x, low), high);
  return node.Cast(Equal(x, clamped), x.dtype());
}

// Elements of x [N, C, dims...], as rows of channels, at flat positions [samples, ...].
Variable RowsAt(NodeContext& node, const Variable& x, const Variable& flat) {
  const Shape shape = x.shape();
  const int64_t size = shape.Product(2, shape.rank());
  const Variable cells = node.Reshape(x, {shape[0], shape[1], size});
  const Variable rows = node.Reshape(node.Transpose(cells, {0, 2, 1}), {-1, shape[1]});
  const Variable index = node.Reshape(flat, {-1});
  return node.Make("gather", {{"X", {rows.name()}}, {"Index", {index.name()}}});
}

// x where the weight is not 0, else 0.
Variable WhereWeighted(NodeContext& node, const Variable& weight, const Variable& x) {
  return BroadcastWhere(node, Equal(weight, ZerosLike(weight)), node.ScalarVar(x.dtype(), 0), x);
}

// The contribution of a cell with that weight. A cell of weight 0 is outside and contributes
// nothing, even if it is not finite.
Variable Weighted(NodeContext& node, const Variable& cells, const Variable& weight) {
  return WhereWeighted(node, weight, cells * weight);
}

// --- GridSample ---

struct GridSpec {
  std::string mode, padding;  // linear, nearest, cubic; zeros, border, reflection
  bool align_corners = false;
};

// The names differ between operator sets 16 to 19 and later ones.
GridSpec GridSpecOf(NodeContext& node) {
  GridSpec spec;
  if (node.opset() < 20) {
    spec.mode = node.OneOf("mode", "bilinear", {"bilinear", "nearest", "bicubic"});
    if (spec.mode.starts_with("bi")) spec.mode = spec.mode.substr(2);
  } else {
    spec.mode = node.OneOf("mode", "linear", {"linear", "nearest", "cubic"});
  }
  spec.padding = node.OneOf("padding_mode", "zeros", {"zeros", "border", "reflection"});
  spec.align_corners = node.Flag("align_corners", false);
  return spec;
}

// Positions mirrored at `low` and low + length.
Variable Mirrored(const Variable& place, double low, double length) {
  if (length == 0) return ZerosLike(place);
  Variable from = place - low;
  from = from - Floor(from / (2 * length)) * (2 * length);
  return Min(from, 2 * length - from) + low;
}

// The elements at whole positions given as floats; with zero padding, also their weights 0 or 1.
Taps InRange(NodeContext& node, const GridSpec& spec, const Taps& taps, int64_t n) {
  const auto last = static_cast<double>(n - 1);
  Taps result = taps;
  if (spec.padding == "reflection")
    result.at = spec.align_corners ? Mirrored(taps.at, 0, last)
                                   : Mirrored(taps.at, -0.5, static_cast<double>(n));
  if (spec.padding == "zeros") result.weight = taps.weight * Within(node, taps.at, 0, last);
  result.at = node.Cast(Min(Max(result.at, 0.0), last), DType::kInt64);
  return result;
}

// Keys' kernel at the four elements around, with A = -0.75.
Variable CubicWeights(const Variable& rest) {
  constexpr double a = -0.75;
  const auto far = [&](const Variable& t) { return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a; };
  const auto near = [&](const Variable& t) { return (t * (a + 2) - (a + 3)) * t * t + 1.0; };
  const Variable other = 1.0 - rest;
  return Concat(Variables{far(rest + 1.0), near(rest), near(other), far(other + 1.0)}, 1);
}

// The taps for coordinates [samples, 1] in [-1, 1] along a dim of n elements.
Taps TapsAlong(NodeContext& node, const GridSpec& spec, const Variable& grid, int64_t n) {
  const auto size = static_cast<double>(n);
  Variable place =
      spec.align_corners ? (grid + 1.0) * ((size - 1) / 2) : ((grid + 1.0) * size - 1.0) * 0.5;
  if (spec.mode == "nearest") place = RoundedToEven(node, place);
  const double low = spec.align_corners ? 0 : -0.5, length = spec.align_corners ? size - 1 : size;
  if (spec.padding == "border") {
    const Variable inside = Within(node, place, low, low + length);
    place = Selected(node, node.Cast(inside, DType::kBool), place, Min(Max(place, 0.0), size - 1),
                     place.shape());
  }
  if (spec.padding == "reflection") place = Mirrored(place, low, length);
  if (spec.mode == "nearest") {
    return InRange(node, spec, {place, FillLike(place, 1)}, n);
  }
  const Variable floor = Floor(place), rest = place - floor;
  if (spec.mode == "linear")
    return InRange(
        node, spec,
        {Concat(Variables{floor, floor + 1.0}, 1), Concat(Variables{1.0 - rest, rest}, 1)}, n);
  const Variable at = Concat(Variables{floor - 1.0, floor, floor + 1.0, floor + 2.0}, 1);
  return InRange(node, spec, {at, CubicWeights(rest)}, n);
}

// Combines every tap of one dim with every tap of the others, [samples, all]: positions in
// row-major order, and products of weights.
Taps Joined(NodeContext& node, const Taps& a, const Taps& b, int64_t b_size) {
  const int64_t more = a.at.shape()[1], fewer = b.at.shape()[1];
  const auto columns = [&](const Variable& v) { return node.Reshape(v, {-1, more, 1}); };
  const auto rows = [&](const Variable& v) { return node.Reshape(v, {-1, 1, fewer}); };
  const auto flat = [&](const Variable& v) { return node.Reshape(v, {-1, more * fewer}); };
  const double size = static_cast<double>(b_size);
  return {flat(columns(a.at) * size + rows(b.at)), flat(columns(a.weight) * rows(b.weight))};
}

Variable SampleByTaps(NodeContext& node, const GridSpec& spec) {
  const Variable x = node.In(0), grid = node.In(1);
  const Shape in = x.shape(), places = grid.shape();
  if (!in.IsKnown() || !places.IsKnown())
    node.RefuseUnknown("the shape of the inputs", "the places of the samples");
  const DType own = x.dtype(), of_grid = WideOf(grid.dtype());
  const bool nearest = spec.mode == "nearest";
  if (!nearest && (own == DType::kBool || IsComplex(own)))
    node.Refuse(fmt::format("{} samples between elements of {}", spec.mode, ToString(own)));
  const DType wide =
      own == of_grid || own == DType::kFloat16 || own == DType::kBFloat16 || own == DType::kFloat32
          ? of_grid
          : DType::kFloat64;
  const int dims = in.rank() - 2;
  const int64_t samples = places.Product(1, places.rank() - 1);
  RequireSmall(node, {in[0], samples, in[1]}, "a result");
  RequireSmallConstant(node, {in[0], samples}, "samples");
  const Variable table = node.Cast(node.Reshape(grid, {in[0] * samples, dims}), of_grid);
  Taps all;
  // The grid lists the last dim first.
  for (int d = 0; d < dims; ++d) {
    const Variable along = SliceOf(node, table, 1, dims - 1 - d, dims - d);
    const Taps taps = TapsAlong(node, spec, along, in[d + 2]);
    all = d == 0 ? taps : Joined(node, all, taps, in[d + 2]);
  }
  const int64_t count = all.at.shape()[1];
  Ints image;
  for (int64_t i = 0; i < in[0] * samples; ++i)
    image.push_back(i / std::max<int64_t>(1, samples) * in.Product(2, in.rank()));
  const Variable flat = all.at + node.Reshape(node.ConstantVar(image), {-1, 1});
  // A nearest element is copied.
  const DType computed = nearest ? own : wide;
  const Variable rows =
      node.Reshape(RowsAt(node, node.Cast(x, computed), flat), {-1, count, in[1]});
  const Variable weights = node.Reshape(all.weight, {-1, count, 1});
  const Variable sums =
      nearest ? WhereWeighted(node, weights, rows)
              : node.Unary("reduce_sum", Weighted(node, rows, node.Cast(weights, wide)),
                           {{"dim", std::vector<int32_t>{1}}});
  const Variable result = node.Transpose(node.Reshape(sums, {in[0], samples, in[1]}), {0, 2, 1});
  Ints out = {in[0], in[1]};
  for (int i = 1; i + 1 < places.rank(); ++i) out.push_back(places[i]);
  return node.Cast(node.Reshape(result, out), own);
}

// The op grid_sampler supports only images, and rounds halves away from 0.
void ImportGridSample(NodeContext& node) {
  const GridSpec spec = GridSpecOf(node);
  const int rank = node.rank(0);
  node.Require(
      rank >= 3 && node.rank(1) == rank && node.shape(1)[rank - 1] == rank - 2,
      fmt::format("a grid {} for an input {}", node.shape(1).ToString(), node.shape(0).ToString()));
  if (rank != 4 || spec.mode != "linear" || !IsFloating(node.dtype(0)))
    return node.Set(0, SampleByTaps(node, spec));
  const Variable x = node.In(0), grid = node.Cast(node.In(1), x.dtype());
  node.Set(0, node.Make("grid_sampler", {{"X", {x.name()}}, {"Grid", {grid.name()}}},
                        {{"align_corners", spec.align_corners},
                         {"mode", std::string("bilinear")},
                         {"padding_mode", spec.padding}},
                        "Output"));
}

// --- AffineGrid ---

// Element i of n in [-1, 1].
double GridPlace(int64_t i, int64_t n, bool align_corners) {
  const auto at = static_cast<double>(i), size = static_cast<double>(n);
  if (align_corners) return n == 1 ? -1 : -1 + 2 * at / (size - 1);
  return (2 * at + 1) / size - 1;
}

// The positions (x, y, z, 1) of a volume, [D H W, 4].
Tensor VolumeGrid(const Ints& size, bool align_corners) {
  const int64_t d = size[2], h = size[3], w = size[4];
  Tensor grid(DType::kFloat64, {d * h * w, 4});
  double* out = grid.data<double>();
  for (int64_t i = 0; i < d * h * w; ++i) {
    *out++ = GridPlace(i % w, w, align_corners);
    *out++ = GridPlace(i / w % h, h, align_corners);
    *out++ = GridPlace(i / w / h, d, align_corners);
    *out++ = 1;
  }
  return grid;
}

void ImportAffineGrid(NodeContext& node) {
  const bool align_corners = node.Flag("align_corners", false);
  const Ints size = node.KnownInts(1, "size");
  const Variable theta = node.In(0);
  node.Require(size.size() == 4 || size.size() == 5, "size must have four or five numbers");
  RequireSmallConstant(node, Ints(size.begin() + 2, size.end()), "a grid");
  node.Require(theta.shape()[0] < 0 || theta.shape()[0] == size[0],
               "theta and size differ in the number of images");
  if (size.size() == 4) {
    return node.Set(
        0, node.Make("affine_grid", {{"Theta", {theta.name()}}},
                     {{"align_corners", align_corners}, {"output_shape", ToInt32(size, "size")}},
                     "Output"));
  }
  const Variable grid =
      node.ConstantVar(VolumeGrid(size, align_corners).Cast(WideOf(theta.dtype())));
  const Variable places =
      node.Make("matmul_v2", {{"X", {grid.name()}}, {"Y", {node.Cast(theta, grid.dtype()).name()}}},
                {{"trans_y", true}});
  const Variable out = node.Reshape(places, {size[0], size[2], size[3], size[4], 3});
  node.Set(0, node.Cast(out, theta.dtype()));
}

// --- regions of interest ---

// Regions in the order of their images, as Paddle's ops need them.
struct Regions {
  Variable corners, counts;       // [R, 4], [N]
  std::optional<Variable> order;  // [R]: original positions; absent: unchanged
};

Variable OrderOf(NodeContext& node, const Variable& x) {
  const std::string out = node.NewName("sorted"), indices = node.NewName("order");
  node.writer().Append("argsort", {{"X", {x.name()}}}, {{"Out", {out}}, {"Indices", {indices}}},
                       {{"axis", int32_t{0}}});
  return node.writer().Var(indices);
}

Variable RowsOf(NodeContext& node, const Variable& x, const Variable& index) {
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}});
}

// `image`: int64 [R], the image of each region.
Regions RegionsOf(NodeContext& node, const Variable& corners, const Variable& image,
                  int64_t images) {
  node.Require(images != 0, "there are no images");
  const Variable hot = node.Make(
      "one_hot_v2", {{"X", {image.name()}}, {"depth_tensor", {DimOf(node, node.In(0), 0).name()}}},
      {{"dtype", static_cast<int32_t>(DType::kInt64)}});
  const Variable counts =
      node.Reshape(node.Unary("reduce_sum", hot, {{"dim", std::vector<int32_t>{0}}}),
                   {images < 0 ? -1 : images});
  if (images == 1) return {corners, counts, std::nullopt};
  const Variable order = OrderOf(node, image);
  return {RowsOf(node, corners, order), counts, order};
}

Variable Pooled(NodeContext& node, const char* type, const Variable& x, const Regions& regions,
                AttrList attrs) {
  const Variable out = node.Make(
      type,
      {{"X", {x.name()}}, {"ROIs", {regions.corners.name()}}, {"RoisNum", {regions.counts.name()}}},
      std::move(attrs));
  return regions.order ? RowsOf(node, out, OrderOf(node, *regions.order)) : out;
}

struct RoiSpec {
  int32_t height = 1, width = 1, ratio = 0;
  float scale = 1;
  bool aligned = false;
};

// The samples of all bins along one dim of n cells, [R, bins * ratio], and the two cells around
// each. A region covers [begin, end).
Taps SamplesAlong(NodeContext& node, const RoiSpec& spec, const Variable& begin,
                  const Variable& end, int32_t bins, int64_t n) {
  const double shift = spec.aligned ? 0.5 : 0, last = static_cast<double>(n - 1);
  const Variable first = begin * static_cast<double>(spec.scale) - shift;
  Variable length = end * static_cast<double>(spec.scale) - shift - first;
  if (!spec.aligned) length = Max(length, 1.0);
  std::vector<double> shares;
  for (int64_t i = 0; i < int64_t{bins} * spec.ratio; ++i)
    shares.push_back((i + 0.5) / spec.ratio / bins);
  const int64_t count = int64_t{bins} * spec.ratio;
  const Variable share = node.ConstantVar(Tensor::Of<double>({1, count}, shares));
  const Variable at = first + length * node.Cast(share, begin.dtype());
  const Variable inside = Within(node, at, -1, static_cast<double>(n));
  const Variable place = Min(Max(at, 0.0), last);
  const Variable low = Floor(place), rest = place - low;
  const auto pair = [&](const Variable& a, const Variable& b) {
    const Variable both =
        Concat(Variables{node.Reshape(a, {-1, count, 1}), node.Reshape(b, {-1, count, 1})}, 2);
    return node.Reshape(both, {-1, count * 2});
  };
  return {node.Cast(pair(low, Min(low + 1.0, last)), DType::kInt64),
          pair((1.0 - rest) * inside, rest * inside)};
}

// The largest of the weighted cells around all samples of a bin.
Variable LargestOfSamples(NodeContext& node, const RoiSpec& spec) {
  if (spec.ratio < 1) node.Refuse("mode max with sampling_ratio 0");
  const DType own = node.dtype(0), wide = WideOf(own);
  const Variable x = node.Cast(node.In(0), wide), regions = node.Cast(node.In(1), wide);
  const Shape in = x.shape();
  if (!in.IsKnown()) node.RefuseUnknown("the shape of the input", "the places of the samples");
  const auto column = [&](int64_t i) { return SliceOf(node, regions, 1, i, i + 1); };
  const Taps y = SamplesAlong(node, spec, column(1), column(3), spec.height, in[2]);
  const Taps x_taps = SamplesAlong(node, spec, column(0), column(2), spec.width, in[3]);
  const Taps all = Joined(node, y, x_taps, in[3]);
  const Variable image = node.Reshape(node.Cast(node.In(2), DType::kInt64), {-1, 1});
  const Variable flat =
      all.at + image * node.ScalarVar(DType::kInt64, static_cast<double>(in[2] * in[3]));
  const Variable rows = Weighted(node, RowsAt(node, x, flat), node.Reshape(all.weight, {-1, 1}));
  const int64_t taps = int64_t{2} * spec.ratio;
  const Variable bins = node.Reshape(rows, {-1, spec.height, taps, spec.width, taps, in[1]});
  const Variable largest = node.Unary("reduce_max", bins, {{"dim", std::vector<int32_t>{2, 4}}});
  return node.Cast(node.Transpose(largest, {0, 3, 1, 2}), own);
}

// Up to operator set 15, positions were not shifted by half a cell.
void ImportRoiAlign(NodeContext& node) {
  const auto number = [&](const char* name, int64_t otherwise) {
    const int32_t value = node.Int32(name, otherwise);
    node.Require(value >= 0 && value <= (1 << 20), fmt::format("attribute {} of {}", name, value));
    return value;
  };
  RoiSpec spec{.height = number("output_height", 1),
               .width = number("output_width", 1),
               .ratio = number("sampling_ratio", 0),
               .scale = node.Float("spatial_scale", 1)};
  if (node.opset() >= 16)
    spec.aligned = node.OneOf("coordinate_transformation_mode", "half_pixel",
                              {"half_pixel", "output_half_pixel"}) == "half_pixel";
  if (node.OneOf("mode", "avg", {"avg", "max"}) == "max")
    return node.Set(0, LargestOfSamples(node, spec));
  const Variable x = node.In(0);
  const Regions regions = RegionsOf(node, node.Cast(node.In(1), x.dtype()),
                                    node.Cast(node.In(2), DType::kInt64), x.shape()[0]);
  node.Set(0, Pooled(node, "roi_align", x, regions,
                     {{"pooled_height", spec.height},
                      {"pooled_width", spec.width},
                      {"sampling_ratio", spec.ratio},
                      {"spatial_scale", spec.scale},
                      {"aligned", spec.aligned}}));
}

// A region is {image, x1, y1, x2, y2}.
void ImportMaxRoiPool(NodeContext& node) {
  const Ints pooled = node.Ints("pooled_shape", {});
  node.Require(pooled.size() == 2 && pooled[0] >= 1 && pooled[1] >= 1,
               "attribute pooled_shape must be two positive numbers");
  RequireSmall(node, pooled, "a result");
  const float scale = node.Float("spatial_scale", 1);
  node.Require(node.rank(1) == 2 && node.shape(1)[1] == 5, "regions must have five numbers");
  const Variable x = node.In(0), table = node.In(1);
  const Variable image =
      node.Reshape(node.Cast(SliceOf(node, table, 1, 0, 1), DType::kInt64), {-1});
  const Regions regions = RegionsOf(node, SliceOf(node, table, 1, 1, 5), image, x.shape()[0]);
  node.Set(0, Pooled(node, "roi_pool", x, regions,
                     {{"pooled_height", ToInt32(pooled[0], "attribute pooled_shape")},
                      {"pooled_width", ToInt32(pooled[1], "attribute pooled_shape")},
                      {"spatial_scale", scale}}));
}

}  // namespace

void AddSampleImporters(NodeImporters& importers) {
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "GridSample",
         .since = 16,
         .takes = "T f",
         .import = ImportGridSample,
         .maps_to = "grid_sampler; gather, reduce_sum",
         .composed = true},
           {.op_type = "AffineGrid",
           .since = 20,
           .takes = "f3 i1",
           .import = ImportAffineGrid,
           .maps_to = "affine_grid; matmul_v2",
           .composed = true},
           {.op_type = "RoiAlign",
           .since = 10,
           .takes = "f4 f2 i1",
           .import = ImportRoiAlign,
           .maps_to = "roi_align; gather, reduce_max",
           .composed = true},
           {.op_type = "MaxRoiPool",
           .since = 1,
           .takes = "f4 f2",
           .import = ImportMaxRoiPool,
           .maps_to = "roi_pool",
           .composed = true},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
