// Interpolation, and sampling of images at given places.
#include <string_view>

#include "images.h"
#include "rows.h"

namespace coracle::onnx {
namespace {

constexpr const char* kSlots[] = {"out_d", "out_h", "out_w"};

// How Resize counts places, and what it takes of them (operators/conv/interp.cc has the formulas).
NodeAttrs ModeOf(OpContext& op, bool cubic, bool nearest) {
  const bool align = op.Attr<bool>("align_corners");
  const bool half = cubic || (!nearest && op.Attr<int32_t>("align_mode") == 0);
  NodeAttrs attrs = {{"mode", nearest ? "nearest" : cubic ? "cubic" : "linear"}};
  // The half pixels of PyTorch differ from others in where the only element of an axis lies: at 0.
  attrs.emplace_back("coordinate_transformation_mode", align  ? "align_corners"
                                                       : half ? "pytorch_half_pixel"
                                                              : "asymmetric");
  if (nearest) attrs.emplace_back("nearest_mode", align ? "round_prefer_ceil" : "floor");
  if (cubic) attrs.emplace_back("cubic_coeff_a", -0.75f);
  return attrs;
}

Value LeadingDims(OpContext& op, const Value& x) { return op.DimsOf(x, 0, 2); }

// Where the size of Out comes from.
struct Target {
  Value sizes, scales;  // one of them
};

// Factors for all axes, from one or one for each.
Value ScaleTensor(OpContext& op, int axes) {
  const Value factors = op.Node("Expand", {op.Reshape(op.In("Scale"), {-1}), op.IntList({axes})});
  return op.Concat({op.Constant(Tensor::Of<float>({2}, {1.f, 1.f})), factors}, 0);
}

// floor(in scale), as the op computes it.
Value ScaledSizes(OpContext& op, const Value& x, int axes, const Value& scales) {
  const Value dims = op.Cast(op.DimsOf(x, 2, 2 + axes), DType::kInt64, DType::kFloat32);
  const Value scaled = op.Node("Floor", {op.Node("Mul", {dims, scales})});
  return op.Concat({LeadingDims(op, x), op.Cast(scaled, DType::kFloat32, DType::kInt64)}, 0);
}

Target TargetOf(OpContext& op, const Value& x, int axes, bool v2) {
  const bool listed = op.Has("SizeTensor");
  std::vector<float> scale =
      v2 ? op.Attr<std::vector<float>>("scale") : std::vector<float>{op.Attr<float>("scale")};
  if (scale.size() == 1) scale.resize(static_cast<size_t>(axes), scale[0]);
  const bool scaled = op.Has("Scale") || (!scale.empty() && scale[0] > 0);
  if (listed || op.Has("OutSize")) {
    op.Require(listed || !v2 || !scaled, "a scale beside OutSize has no counterpart");
    const Value sizes = op.IntsFrom("SizeTensor", "OutSize", "");
    return {op.Concat({LeadingDims(op, x), sizes}, 0), ""};
  }
  if (scaled) {
    Tensor factors(DType::kFloat32, {axes});
    for (int i = 0; i < axes && !op.Has("Scale"); ++i)
      factors.data<float>()[i] = scale[static_cast<size_t>(i)];
    if (!v2) {
      // The ratio is that of the sizes.
      const Value given = op.Has("Scale") ? op.Reshape(op.In("Scale"), {-1}) : op.Constant(factors);
      return {ScaledSizes(op, x, axes, given), ""};
    }
    if (op.Has("Scale")) return {"", ScaleTensor(op, axes)};
    std::vector<float> all = {1, 1};
    all.insert(all.end(), scale.begin(), scale.end());
    return {"", op.Constant(Tensor::Of<float>({axes + 2}, all))};
  }
  Ints sizes;
  for (int i = 3 - axes; i < 3; ++i) sizes.push_back(op.Attr<int32_t>(kSlots[i]));
  return {op.Concat({LeadingDims(op, x), op.IntList(sizes)}, 0), ""};
}

void ExportInterp(OpContext& op) {
  const std::string_view type = op.op().type();
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout"));
  const int rank = op.Rank("X"), axes = rank - 2;
  const bool cubic = type.starts_with("bicubic"), nearest = type.starts_with("nearest");
  const Shape out = ChannelsFirst(op.OutShape("Out"), last);
  for (int i = 2; i < rank && cubic; ++i)
    op.Require(out[i] != 1, "a bicubic axis of one element has no counterpart");
  const Value x = ToChannelsFirst(op, op.In("X"), rank, last);
  const Target to = TargetOf(op, x, axes, type.ends_with("_v2"));
  const Value resized = op.Node("Resize", {x, "", to.scales, to.sizes}, ModeOf(op, cubic, nearest));
  op.Out("Out", FromChannelsFirst(op, resized, rank, last));
}

void ExportGridSampler(OpContext& op) {
  op.RequireOpset(16, "GridSample");
  op.Require(op.Attr<std::string>("mode") == "bilinear",
             "mode nearest has no counterpart: of a tie ONNX takes the even neighbour");
  op.Out("Output", op.Node("GridSample", {op.In("X"), op.In("Grid")},
                           {{"mode", op.opset() >= 20 ? "linear" : "bilinear"},
                            {"padding_mode", op.Attr<std::string>("padding_mode")},
                            {"align_corners", op.Attr<bool>("align_corners")}}));
}

// The image of each RoI: as many images end before it.
Value ImageOfRois(OpContext& op) {
  const Value counts =
      op.Cast(op.Reshape(op.In("RoisNum"), {-1}), op.InType("RoisNum"), DType::kInt64);
  const Value ends = op.Node("CumSum", {counts, op.Int(0)});
  const Value rois = op.AsScalar(op.DimsOf(op.In("ROIs"), 0, 1));
  const Value index = op.Unsqueeze(op.Node("Range", {op.Int(0), rois, op.Int(1)}), {1});
  const Value past = op.Node("GreaterOrEqual", {index, ends});
  return op.Reduce("ReduceSum", op.Cast(past, DType::kBool, DType::kInt64), {1}, false);
}

void ExportRoiAlign(OpContext& op) {
  op.RequireOpset(16, "RoiAlign with pixels that are aligned or not");
  op.Require(op.Has("RoisNum"), "RoIs by LoD have no counterpart");
  op.Out("Out", op.Node("RoiAlign", {op.In("X"), op.In("ROIs"), ImageOfRois(op)},
                        {{"coordinate_transformation_mode",
                          op.Attr<bool>("aligned") ? "half_pixel" : "output_half_pixel"},
                         {"mode", "avg"},
                         {"output_height", op.Attr<int32_t>("pooled_height")},
                         {"output_width", op.Attr<int32_t>("pooled_width")},
                         {"sampling_ratio", std::max(0, op.Attr<int32_t>("sampling_ratio"))},
                         {"spatial_scale", op.Attr<float>("spatial_scale")}}));
}

constexpr ExportRow kRows[] = {
    {"bicubic_interp", ExportInterp, "Resize"},
    {"bicubic_interp_v2", ExportInterp, "Resize"},
    {"bilinear_interp", ExportInterp, "Resize"},
    {"bilinear_interp_v2", ExportInterp, "Resize"},
    {"grid_sampler", ExportGridSampler, "GridSample"},
    {"linear_interp", ExportInterp, "Resize"},
    {"linear_interp_v2", ExportInterp, "Resize"},
    {"nearest_interp", ExportInterp, "Resize"},
    {"nearest_interp_v2", ExportInterp, "Resize"},
    {"roi_align", ExportRoiAlign, "RoiAlign"},
    {"trilinear_interp", ExportInterp, "Resize"},
    {"trilinear_interp_v2", ExportInterp, "Resize"},
};

}  // namespace

ExportRows InterpRows() { return kRows; }

}  // namespace coracle::onnx
