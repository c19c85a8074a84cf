// Resize and Upsample: by Paddle's ops if these compute the same, else axis by axis, with a matrix
// of weights or, for the nearest elements, with their indices.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

// The resizing of one axis of the input.
struct AxisResize {
  int axis = 0;
  int64_t in = -1, out = -1;  // -1: not known
  double scale = 1;           // as given; with sizes, out / in
  bool by_size = false;       // positions are fractions of in / out
  double begin = 0, end = 1;  // the region of tf_crop_and_resize, as shares of the axis

  bool IsKept() const { return !by_size && scale == 1; }
};

struct ResizeSpec {
  std::string mode = "nearest", place = "asymmetric", nearest = "floor";
  float cubic_a = -0.75f, outside_value = 0;
  bool exclude_outside = false, antialias = false;
  std::vector<AxisResize> axes;

  bool IsCrop() const { return place == "tf_crop_and_resize"; }
};

// The position of element k of the result on the input's axis.
double PlaceOf(const ResizeSpec& spec, const AxisResize& a, int64_t k) {
  const auto in = static_cast<double>(a.in), out = static_cast<double>(a.out);
  const auto at = static_cast<double>(k);
  // Length of the result, possibly fractional.
  const double length = a.by_size ? out : a.scale * in;
  if (spec.place == "align_corners") return length == 1 ? 0 : at * (in - 1) / (length - 1);
  if (spec.place == "asymmetric") return a.by_size ? at * in / out : at / a.scale;
  if (spec.IsCrop()) {
    if (length == 1) return 0.5 * (a.begin + a.end) * (in - 1);
    return a.begin * (in - 1) + at * (a.end - a.begin) * (in - 1) / (length - 1);
  }
  if (spec.place == "pytorch_half_pixel" && length <= 1) return 0;
  if (spec.place == "tf_half_pixel_for_nn")  // of operator sets 11 and 12
    return a.by_size ? (2 * at + 1) * in / (2 * out) : (at + 0.5) / a.scale;
  const double shift =
      spec.place == "half_pixel_symmetric" ? in / 2 * (1 - out / (length == 0 ? 1 : length)) : 0;
  if (a.by_size) return shift + ((2 * at + 1) * in - out) / (2 * out);
  return shift + (at + 0.5) / a.scale - 0.5;
}

int64_t NearestTo(double place, const std::string& how) {
  const double below = std::floor(place), rest = place - below;
  bool up = rest > 0;
  if (how == "floor") up = false;
  if (how == "round_prefer_floor") up = rest > 0.5;
  if (how == "round_prefer_ceil") up = rest >= 0.5;
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

// The weight of an element at a distance: linear, or Keys' cubic kernel.
double WeightAt(const ResizeSpec& spec, double t) {
  t = std::abs(t);
  if (spec.mode == "linear") return std::max(0.0, 1 - t);
  const double a = spec.cubic_a;
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

// One row of the matrix of an axis. Positions outside use the first or the last element.
void SetWeights(const ResizeSpec& spec, const AxisResize& a, int64_t k, double* row) {
  const double place = PlaceOf(spec, a, k), base = std::floor(place);
  const double stretch = spec.antialias ? std::min(1.0, a.scale) : 1.0;
  const auto half = static_cast<int64_t>(std::ceil((spec.mode == "linear" ? 1 : 2) / stretch));
  double sum = 0;
  for (int64_t i = 1 - half; i <= half; ++i) {
    const int64_t at = static_cast<int64_t>(base) + i;
    if (spec.exclude_outside && (at < 0 || at >= a.in)) continue;
    const double weight = WeightAt(spec, (static_cast<double>(i) - (place - base)) * stretch);
    row[std::clamp<int64_t>(at, 0, a.in - 1)] += weight;
    sum += weight;
  }
  for (int64_t i = 0; i < a.in; ++i) row[i] /= sum;
}

Variable ByIndex(NodeContext& node, const ResizeSpec& spec, const AxisResize& a,
                 const Variable& x) {
  std::vector<int64_t> index;
  for (int64_t k = 0; k < a.out; ++k)
    index.push_back(std::clamp<int64_t>(NearestTo(PlaceOf(spec, a, k), spec.nearest), 0, a.in - 1));
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {node.ConstantVar(index).name()}}},
                   {{"axis", a.axis}});
}

Variable ByMatrix(NodeContext& node, const ResizeSpec& spec, const AxisResize& a,
                  const Variable& x) {
  RequireSmallConstant(node, {a.out, a.in}, "a matrix of weights");
  Tensor weights = Tensor::Full<double>({a.out, a.in}, 0);
  for (int64_t k = 0; k < a.out; ++k) SetWeights(spec, a, k, weights.data<double>() + k * a.in);
  const Variable matrix = node.ConstantVar(weights.Cast(x.dtype()));
  const Variable last = MoveAxis(node, x, a.axis, -1);
  const Variable product =
      node.Make("matmul_v2", {{"X", {last.name()}}, {"Y", {matrix.name()}}}, {{"trans_y", true}});
  return MoveAxis(node, product, -1, a.axis);
}

// Elements whose position is outside of the input get the extrapolation value.
Variable WithOutside(NodeContext& node, const ResizeSpec& spec, const Variable& y) {
  Variable result = y;
  for (const AxisResize& a : spec.axes) {
    std::vector<int64_t> shape(static_cast<size_t>(y.shape().rank()), 1);
    shape[static_cast<size_t>(a.axis)] = a.out;
    Tensor inside(DType::kBool, Shape(shape));
    bool all = true;
    for (int64_t k = 0; k < a.out; ++k) {
      const double place = PlaceOf(spec, a, k);
      const bool in = place >= 0 && place <= static_cast<double>(a.in - 1);
      inside.data<bool>()[k] = in;
      all &= in;
    }
    if (all) continue;
    result = Selected(node, node.ConstantVar(inside), result,
                      node.ScalarVar(y.dtype(), spec.outside_value), y.shape());
  }
  return result;
}

// 16-bit floats and integers are computed in wider floats.
DType WeightedIn(DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return dtype;
  return SizeOf(dtype) <= 2 ? DType::kFloat32 : DType::kFloat64;
}

Variable AxisByAxis(NodeContext& node, const ResizeSpec& spec) {
  const Variable x = node.In(0);
  const bool nearest = spec.mode == "nearest";
  const DType own = x.dtype();
  Variable y = nearest ? x : node.Cast(x, WeightedIn(own));
  for (const AxisResize& a : spec.axes) {
    if (a.IsKept() && !spec.IsCrop()) continue;
    if (a.in < 0) node.Refuse(fmt::format("axis {} of unknown length", a.axis));
    if (a.by_size && a.in == a.out && !spec.IsCrop()) continue;
    node.Require(a.in > 0 || a.out == 0, fmt::format("axis {} has no elements", a.axis));
    RequireSmallConstant(node, {a.out}, "a result");
    y = nearest ? ByIndex(node, spec, a, y) : ByMatrix(node, spec, a, y);
  }
  if (spec.IsCrop()) y = WithOutside(node, spec, y);
  return node.Cast(y, own);
}

// --- by Paddle's ops ---

bool IsIntegral(double value) { return value == std::floor(value); }

// nearest_interp_v2 takes element floor(k / scale), in float32; for a whole scale (small enough for
// exact quotients), that is the nearest element for every coordinate mode and rounding. Other axes
// use indices.
bool IsPlainNearest(const ResizeSpec& spec) {
  const bool asymmetric = spec.place == "asymmetric" && spec.nearest == "floor";
  const bool half = spec.place.starts_with("half_pixel") && spec.nearest.starts_with("round");
  return (asymmetric || half) &&
         std::all_of(spec.axes.begin(), spec.axes.end(), [](const AxisResize& a) {
           return IsIntegral(a.scale) && a.scale >= 1 && a.scale <= 16 && (!a.by_size || a.in >= 0);
         });
}

// Whether the linear (cubic) ops use these positions.
bool HasPlainPlaces(const ResizeSpec& spec) {
  for (const AxisResize& a : spec.axes) {
    const bool whole = a.by_size || IsIntegral(a.scale) ||
                       (a.in >= 0 && IsIntegral(a.scale * static_cast<double>(a.in)));
    // Paddle's ops use the first position along an axis of one element.
    const bool one = a.out == 1 || (a.out < 0 && a.scale < 1);
    if (spec.place.find("half_pixel") != std::string::npos && one && a.in != 1) return false;
    if (spec.place == "pytorch_half_pixel" && a.out < 2) return false;
    if ((spec.place == "align_corners" || spec.place == "half_pixel_symmetric") && !whole)
      return false;
  }
  if (spec.place == "asymmetric") return spec.mode == "linear";
  return !spec.IsCrop() && spec.place != "tf_half_pixel_for_nn";
}

// Whether the op can resize: it handles all axes from the third on, by scales or to sizes.
bool HasOp(const ResizeSpec& spec, const Variable& x) {
  const int rank = x.shape().rank();
  if (rank < (spec.mode == "linear" ? 3 : 4) || rank > (spec.mode == "linear" ? 5 : 4))
    return false;
  if (spec.mode != "nearest" && !IsFloating(x.dtype())) return false;
  if (spec.antialias || (spec.exclude_outside && spec.mode != "nearest")) return false;
  if (spec.mode == "cubic" && spec.cubic_a != -0.75f) return false;
  bool by_size = false, by_scale = false;
  for (const AxisResize& a : spec.axes) {
    if (a.axis < 2 && !(a.IsKept() || (a.by_size && a.in == a.out))) return false;
    if (a.axis < 2) continue;
    (a.by_size ? by_size : by_scale) = true;
    if (a.by_size && (a.out < 1 || a.in == 0)) return false;
    if (a.by_size || a.in < 0) continue;
    const double out = std::floor(a.scale * static_cast<double>(a.in));
    if (a.out < 1 || out != static_cast<double>(a.out)) return false;
  }
  if (by_size == by_scale) return false;
  return spec.mode == "nearest" ? IsPlainNearest(spec) : HasPlainPlaces(spec);
}

Variable ByOp(NodeContext& node, const ResizeSpec& spec) {
  const Variable x = node.In(0);
  const int rank = x.shape().rank();
  const char* linear[] = {"linear", "bilinear", "trilinear"};
  const std::string method = spec.mode == "linear"  ? linear[rank - 3]
                             : spec.mode == "cubic" ? "bicubic"
                                                    : "nearest";
  AttrList attrs = {{"interp_method", method},
                    {"align_corners", spec.place == "align_corners" && spec.mode != "nearest"},
                    {"align_mode", spec.place == "asymmetric" ? int32_t{1} : int32_t{0}}};
  const char* sizes[] = {"out_d", "out_h", "out_w"};
  std::vector<float> scales(static_cast<size_t>(rank) - 2, 1.0f);
  bool by_size = false;
  for (const AxisResize& a : spec.axes) {
    if (a.axis < 2) continue;
    by_size |= a.by_size;
    if (a.by_size) attrs.push_back({sizes[a.axis - rank + 3], ToInt32(a.out, "a size")});
    scales[static_cast<size_t>(a.axis) - 2] = static_cast<float>(a.scale);
  }
  if (!by_size) attrs.push_back({"scale", scales});
  return node.Unary(method + "_interp_v2", x, std::move(attrs));
}

void SetResized(NodeContext& node, const ResizeSpec& spec) {
  if (node.IsScalar(0)) return node.SetSame(0, 0);
  for (const AxisResize& a : spec.axes)
    node.Require(a.in != 0 || a.out == 0, "an axis without elements cannot get any");
  node.Set(0, HasOp(spec, node.In(0)) ? ByOp(node, spec) : AxisByAxis(node, spec));
}

// --- inputs and attributes of the node ---

bool HasElements(const NodeContext& node, size_t i) {
  return node.HasInput(i) && !(node.rank(i) > 0 && node.shape(i)[0] == 0);
}

// The axes, each with its index in the inputs scales, sizes and roi.
std::vector<AxisResize> AxesOf(NodeContext& node) {
  const int rank = node.rank(0);
  std::vector<int64_t> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  if (node.opset() >= 18 && node.op_type() == "Resize") axes = node.Ints("axes", axes);
  std::vector<AxisResize> resizes;
  for (int64_t axis : axes) {
    AxisResize a;
    a.axis = node.Axis(axis, rank);
    a.in = a.out = node.shape(0)[a.axis];
    for (const AxisResize& other : resizes)
      node.Require(other.axis != a.axis, fmt::format("attribute axes names {} twice", a.axis));
    resizes.push_back(a);
  }
  return resizes;
}

void RequireCount(NodeContext& node, size_t given, size_t wanted, const char* what) {
  node.Require(given == wanted,
               fmt::format("{} must have {} numbers, got {}", what, wanted, given));
}

// The number of elements given by a scale.
int64_t LengthOf(NodeContext& node, double length) {
  node.Require(
      length < 2147483648.0,
      fmt::format("scales must give fewer than 2^31 elements along an axis, got {}", length));
  return static_cast<int64_t>(length);
}

// A result has floor(in * scale) elements, which ONNX's shape inference computes in float32.
void SetScales(NodeContext& node, const std::vector<float>& scales, std::vector<AxisResize>* axes) {
  RequireCount(node, scales.size(), axes->size(), "scales");
  for (size_t i = 0; i < scales.size(); ++i) {
    AxisResize& a = (*axes)[i];
    node.Require(scales[i] > 0 && std::isfinite(scales[i]), "scales must be positive");
    a.scale = scales[i];
    if (a.in >= 0)
      a.out = LengthOf(node, std::floor(static_cast<float>(a.in) * scales[i]));
    else if (a.scale != 1)
      a.out = -1;
  }
}

// The policies not_larger and not_smaller give all axes one scale.
void SetSizes(NodeContext& node, const std::string& policy, const std::vector<int64_t>& sizes,
              std::vector<AxisResize>* axes) {
  RequireCount(node, sizes.size(), axes->size(), "sizes");
  double common = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    AxisResize& a = (*axes)[i];
    node.Require(sizes[i] >= 0, "sizes must not be negative");
    a.out = sizes[i];
    a.by_size = true;
    if (policy != "stretch" && a.in < 0) node.Refuse("a common scale of axes of unknown length");
    a.scale = a.in > 0 ? static_cast<double>(a.out) / static_cast<double>(a.in) : 1;
    const bool less = policy == "not_larger" ? a.scale < common : a.scale > common;
    if (i == 0 || less) common = a.scale;
  }
  if (policy == "stretch") return;
  for (AxisResize& a : *axes) {
    a.by_size = false;
    a.scale = common;
    a.out = LengthOf(node, std::floor(common * static_cast<double>(a.in) + 0.5));
  }
}

// All beginnings, then all ends.
void SetRegion(NodeContext& node, bool by_scale, std::vector<AxisResize>* axes) {
  const std::vector<float> region = node.KnownFloats(1, "roi");
  RequireCount(node, region.size(), 2 * axes->size(), "roi");
  for (size_t i = 0; i < axes->size(); ++i) {
    AxisResize& a = (*axes)[i];
    a.begin = region[i];
    a.end = region[axes->size() + i];
    for (double edge : {a.begin, a.end})
      // This also excludes nan.
      node.Require(std::abs(edge) <= 1e9, "roi must hold numbers of at most 1e9");
    if (a.in < 0) node.Refuse("a region of axes of unknown length");
    const double part = static_cast<double>(a.in) * (a.end - a.begin) * a.scale;
    // The specification includes the region in the formula of the size; its shape inference
    // does not.
    if (by_scale && std::floor(part) != static_cast<double>(a.out))
      node.Refuse("scales of a region (give sizes)");
  }
}

ResizeSpec AttributesOf(NodeContext& node) {
  ResizeSpec spec;
  spec.mode = node.OneOf("mode", "nearest", {"nearest", "linear", "cubic"});
  spec.place =
      node.OneOf("coordinate_transformation_mode", "half_pixel",
                 {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                  "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"});
  spec.nearest = node.OneOf("nearest_mode", "round_prefer_floor",
                            {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  spec.cubic_a = node.Float("cubic_coeff_a", -0.75f);
  spec.outside_value = node.Float("extrapolation_value", 0);
  spec.exclude_outside = node.Flag("exclude_outside", false);
  if (node.opset() >= 18) spec.antialias = node.Flag("antialias", false) && spec.mode != "nearest";
  return spec;
}

void ImportResize(NodeContext& node) {
  ResizeSpec spec = AttributesOf(node);
  std::string policy = "stretch";
  if (node.opset() >= 18)
    policy = node.OneOf("keep_aspect_ratio_policy", policy, {policy, "not_larger", "not_smaller"});
  spec.axes = AxesOf(node);
  const bool by_scale = HasElements(node, 2);
  node.Require(by_scale != HasElements(node, 3), "one of scales and sizes must be given");
  if (by_scale)
    SetScales(node, node.KnownFloats(2, "scales"), &spec.axes);
  else
    SetSizes(node, policy, node.KnownInts(3, "sizes"), &spec.axes);
  if (spec.IsCrop()) SetRegion(node, by_scale, &spec.axes);
  SetResized(node, spec);
}

// Upsample and the first Resize: element k is at k / scale. For nearest, if Resize shortens an
// axis, ONNX Runtime takes the next element above, and so do the test cases of that operator set.
void ImportUpsample(NodeContext& node) {
  ResizeSpec spec;
  spec.mode = node.OneOf("mode", "nearest", {"nearest", "linear", "bilinear"});
  if (spec.mode == "bilinear") spec.mode = "linear";
  spec.axes = AxesOf(node);
  const bool by_attr = node.op_type() == "Upsample" && node.opset() < 9;
  SetScales(node, by_attr ? node.Floats("scales", {}) : node.KnownFloats(1, "scales"), &spec.axes);
  const auto shorter = [](const AxisResize& a) { return a.scale < 1; };
  const bool down = std::any_of(spec.axes.begin(), spec.axes.end(), shorter);
  if (down && node.op_type() == "Resize") spec.nearest = "ceil";
  SetResized(node, spec);
}

}  // namespace

void AddResizeImporters(NodeImporters& importers) {
  const std::string maps_to =
      "nearest_, linear_, bilinear_, trilinear_ or bicubic_interp_v2; gather; matmul_v2";
  importers.Add({.op_type = "Resize",
                 .since = 11,
                 .takes = "T f? f? i?",
                 .import = ImportResize,
                 .maps_to = maps_to,
                 .unsigneds = Unsigned::kMoves});
  importers.Add({.op_type = "Resize",
                 .since = 10,
                 .until = 10,
                 .takes = "T f? f? i?",
                 .import = ImportUpsample,
                 .maps_to = maps_to,
                 .unsigneds = Unsigned::kMoves});
  importers.Add({.op_type = "Upsample",
                 .since = 7,
                 .until = 9,
                 .takes = "T f?",
                 .import = ImportUpsample,
                 .maps_to = maps_to,
                 .unsigneds = Unsigned::kMoves});
}

}  // namespace coracle::onnx
