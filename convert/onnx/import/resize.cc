// Resize and Upsample: by Paddle's ops if these compute the same, else axis by axis, with a matrix
// of weights or, for the nearest elements, with their indices.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/conv/resize_taps.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

// The resizing of one axis of the input. A length of -1 is not known, a scale is as given or, with
// sizes, out / in.
struct AxisResize : ResizeLengths {
  int axis = 0;
  // If known only at run time: `out`, int64 [1], `scale`, float64 [1], `begin` and `end`,
  // float64 [2].
  Variable size = {}, factor = {}, region = {};

  bool IsKept() const { return !by_size && scale == 1 && !size; }
};

struct ResizeSpec : ResizeRule {
  float outside_value = 0;
  std::vector<AxisResize> axes;
};

// The length of an axis times a factor, float32 [1]; see SetScales.
Variable ScaledLength(NodeContext& node, const Variable& x, int axis, const Variable& factor) {
  const Variable length = node.Cast(DimOf(node, x, axis), DType::kFloat32);
  return node.Cast(Floor(length * factor), DType::kInt64);
}

Variable ByIndex(NodeContext& node, const ResizeSpec& spec, const AxisResize& a,
                 const Variable& x) {
  std::vector<int64_t> index;
  std::vector<ResizeTap> taps;
  for (int64_t k = 0; k < a.out; ++k) {
    ResizeTaps(spec, a, k, &taps);
    index.push_back(taps.at(0).at);
  }
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {node.ConstantVar(index).name()}}},
                   {{"axis", a.axis}});
}

Variable ByMatrix(NodeContext& node, const ResizeSpec& spec, const AxisResize& a,
                  const Variable& x) {
  RequireSmallConstant(node, {a.out, a.in}, "a matrix of weights");
  Tensor weights = Tensor::Full<double>({a.out, a.in}, 0);
  std::vector<ResizeTap> taps;
  for (int64_t k = 0; k < a.out; ++k) {
    ResizeTaps(spec, a, k, &taps);
    for (const ResizeTap& tap : taps) weights.data<double>()[k * a.in + tap.at] += tap.weight;
  }
  const Variable matrix = node.ConstantVar(weights.Cast(x.dtype()));
  const Variable last = MoveAxis(node, x, a.axis, -1);
  const Variable product =
      node.Make("matmul_v2", {{"X", {last.name()}}, {"Y", {matrix.name()}}}, {{"trans_y", true}});
  return MoveAxis(node, product, -1, a.axis);
}

// By the op that computes the positions when the program runs.
Variable ByAxisOp(NodeContext& node, const ResizeSpec& spec, const AxisResize& a,
                  const Variable& x) {
  const auto float64 = [&](std::vector<double> values) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    return node.ConstantVar(Tensor::Of<double>(shape, values));
  };
  Variable size = a.size;
  if (!size && a.by_size) size = node.ConstantVar(std::vector<int64_t>{a.out});
  if (!size) size = ScaledLength(node, x, a.axis, node.ScalarVar(DType::kFloat32, a.scale));
  SlotList inputs = {{"X", {x.name()}}, {"Size", {size.name()}}};
  if (!a.by_size) inputs.push_back({"Scale", {(a.factor ? a.factor : float64({a.scale})).name()}});
  if (spec.IsCrop())
    inputs.push_back({"Region", {(a.region ? a.region : float64({a.begin, a.end})).name()}});
  return node.Make("resize_axis", std::move(inputs),
                   {{"axis", a.axis},
                    {"mode", spec.mode},
                    {"coordinate_transformation_mode", spec.place},
                    {"nearest_mode", spec.nearest},
                    {"cubic_coeff_a", static_cast<float>(spec.cubic_a)},
                    {"exclude_outside", spec.exclude_outside},
                    {"antialias", spec.antialias},
                    {"extrapolation_value", spec.outside_value}});
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
      const bool in = !IsOutside(spec, a, k);
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
  const bool late = std::any_of(spec.axes.begin(), spec.axes.end(),
                                [](const AxisResize& a) { return a.size || a.region || a.in < 0; });
  Variable y = nearest ? x : node.Cast(x, WeightedIn(own));
  for (const AxisResize& a : spec.axes) {
    if (a.IsKept() && !spec.IsCrop()) continue;
    if (late) {
      y = ByAxisOp(node, spec, a, y);
      continue;
    }
    if (a.by_size && a.in == a.out && !spec.IsCrop()) continue;
    node.Require(a.in > 0 || a.out == 0, fmt::format("axis {} has no elements", a.axis));
    RequireSmallConstant(node, {a.out}, "a result");
    y = nearest ? ByIndex(node, spec, a, y) : ByMatrix(node, spec, a, y);
  }
  if (spec.IsCrop() && !late) y = WithOutside(node, spec, y);
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
  if (spec.mode == "cubic" && spec.cubic_a != -0.75) return false;
  bool by_size = false, by_scale = false;
  for (const AxisResize& a : spec.axes) {
    if (a.size) return false;
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
    node.Require(a.size || a.in != 0 || a.out == 0, "an axis without elements cannot get any");
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
    const double part = static_cast<double>(a.in) * (a.end - a.begin) * a.scale;
    // The specification includes the region in the formula of the size; its shape inference
    // does not.
    if (by_scale && std::floor(part) != static_cast<double>(a.out))
      node.Refuse("scales of a region (give sizes)");
  }
}

// --- inputs known only at run time ---

// Scales for all axes.
void SetLateScales(NodeContext& node, size_t input, std::vector<AxisResize>* axes) {
  const Variable x = node.In(0), given = node.In(input);
  node.Require(
      given.shape().CompatibleWith({static_cast<int64_t>(axes->size())}),
      fmt::format("scales must have {} numbers, got {}", axes->size(), given.shape().ToString()));
  for (size_t i = 0; i < axes->size(); ++i) {
    AxisResize& a = (*axes)[i];
    const auto at = static_cast<int64_t>(i);
    const Variable factor = SliceOf(node, given, 0, at, at + 1);
    a.size = ScaledLength(node, x, a.axis, factor);
    a.factor = node.Cast(factor, DType::kFloat64);
  }
}

void SetLateSizes(NodeContext& node, const std::string& policy, std::vector<AxisResize>* axes) {
  const Variable x = node.In(0), given = node.Cast(node.In(3), DType::kInt64);
  node.Require(
      given.shape().CompatibleWith({static_cast<int64_t>(axes->size())}),
      fmt::format("sizes must have {} numbers, got {}", axes->size(), given.shape().ToString()));
  std::vector<Variable> lengths, ratios;
  for (size_t i = 0; i < axes->size(); ++i) {
    AxisResize& a = (*axes)[i];
    const auto at = static_cast<int64_t>(i);
    a.size = SliceOf(node, given, 0, at, at + 1);
    a.by_size = true;
    lengths.push_back(node.Cast(DimOf(node, x, a.axis), DType::kFloat64));
    // An axis without elements does not decide about the others.
    ratios.push_back(node.Cast(a.size, DType::kFloat64) / Max(lengths[i], 1.0));
  }
  if (policy == "stretch") return;
  Variable common = ratios.at(0);
  for (const Variable& ratio : ratios)
    common = policy == "not_larger" ? Min(common, ratio) : Max(common, ratio);
  for (size_t i = 0; i < axes->size(); ++i) {
    AxisResize& a = (*axes)[i];
    a.by_size = false;
    a.factor = common;
    a.size = node.Cast(Floor(lengths[i] * common + 0.5), DType::kInt64);
  }
}

void SetLateRegion(NodeContext& node, std::vector<AxisResize>* axes) {
  const auto count = static_cast<int64_t>(axes->size());
  const Variable given = node.Cast(node.In(1), DType::kFloat64);
  node.Require(
      given.shape().CompatibleWith({2 * count}),
      fmt::format("roi must have {} numbers, got {}", 2 * count, given.shape().ToString()));
  for (int64_t i = 0; i < count; ++i) {
    (*axes)[static_cast<size_t>(i)].region = variable_functions::Concat(
        {SliceOf(node, given, 0, i, i + 1), SliceOf(node, given, 0, count + i, count + i + 1)}, 0);
  }
}

// Whether the importer needs a length of the input, or a value, that it does not know.
bool IsLate(const NodeContext& node, const ResizeSpec& spec, const std::string& policy,
            size_t given) {
  if (!node.Constant(given)) return true;
  const bool open =
      std::any_of(spec.axes.begin(), spec.axes.end(), [](const AxisResize& a) { return a.in < 0; });
  return open && (policy != "stretch" || spec.IsCrop());
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
  spec.cubic_a = static_cast<double>(node.Float("cubic_coeff_a", -0.75f));
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
  if (IsLate(node, spec, policy, by_scale ? 2 : 3)) {
    by_scale ? SetLateScales(node, 2, &spec.axes) : SetLateSizes(node, policy, &spec.axes);
    if (spec.IsCrop()) SetLateRegion(node, &spec.axes);
    return SetResized(node, spec);
  }
  if (by_scale)
    SetScales(node, node.KnownFloats(2, "scales"), &spec.axes);
  else
    SetSizes(node, policy, node.KnownInts(3, "sizes"), &spec.axes);
  if (spec.IsCrop())
    node.Constant(1) ? SetRegion(node, by_scale, &spec.axes) : SetLateRegion(node, &spec.axes);
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
  if (!by_attr && !node.Constant(1)) {
    SetLateScales(node, 1, &spec.axes);
    if (node.op_type() == "Resize") spec.nearest = "simple";
    return SetResized(node, spec);
  }
  SetScales(node, by_attr ? node.Floats("scales", {}) : node.KnownFloats(1, "scales"), &spec.axes);
  const auto shorter = [](const AxisResize& a) { return a.scale < 1; };
  const bool down = std::any_of(spec.axes.begin(), spec.axes.end(), shorter);
  if (down && node.op_type() == "Resize") spec.nearest = "simple";
  SetResized(node, spec);
}

}  // namespace

void AddResizeImporters(NodeImporters& importers) {
  const std::string maps_to =
      "nearest_, linear_, bilinear_, trilinear_ or bicubic_interp_v2; gather; matmul_v2; "
      "resize_axis";
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
