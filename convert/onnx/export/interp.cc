// Interpolation, and sampling of images at given positions.
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>
#include <string_view>

namespace coracle::onnx {
namespace {

constexpr const char* kSlots[] = {"out_d", "out_h", "out_w"};

bool IsHalfPixel(OpContext& op, bool cubic, bool nearest) {
  return cubic || (!nearest && op.Attr<int32_t>("align_mode") == 0);
}

// The attributes of Resize for positions and interpolation (formulas: operators/conv/interp.cc).
NodeAttrs ModeOf(OpContext& op, bool cubic, bool nearest) {
  const bool align = op.Attr<bool>("align_corners");
  const bool half = IsHalfPixel(op, cubic, nearest);
  NodeAttrs attrs = {{"mode", nearest ? "nearest" : cubic ? "cubic" : "linear"}};
  // PyTorch's half pixels differ in the position of the only element of an axis: 0.
  attrs.emplace_back("coordinate_transformation_mode", align  ? "align_corners"
                                                       : half ? "pytorch_half_pixel"
                                                              : "asymmetric");
  if (nearest) attrs.emplace_back("nearest_mode", align ? "round_prefer_ceil" : "floor");
  if (cubic) attrs.emplace_back("cubic_coeff_a", -0.75f);
  return attrs;
}

Value LeadingDims(OpContext& op, const Value& x) { return op.DimsOf(x, 0, 2); }

// The source of the size of Out.
struct Target {
  Value sizes, scales;  // one of them
};

// Attr scale as a factor for each axis; empty if it is not set.
std::vector<float> ScaleAttr(OpContext& op, int axes, bool v2) {
  std::vector<float> scale =
      v2 ? op.Attr<std::vector<float>>("scale") : std::vector<float>{op.Attr<float>("scale")};
  if (scale.size() == 1) scale.resize(static_cast<size_t>(axes), scale[0]);
  const bool given = std::all_of(scale.begin(), scale.end(), [](float s) { return s > 0; });
  return given ? scale : std::vector<float>{};
}

// The sizes of X and Out along the axes that are resized.
struct Sizes {
  Shape in, out;
};

Sizes SizesOf(OpContext& op, bool channels_last) {
  return {ChannelsFirst(op.InShape("X"), channels_last),
          ChannelsFirst(op.OutShape("Out"), channels_last)};
}

// floor(in scale), as computed by the op; a constant if known. `factors` is one factor, or one for
// each axis.
Value ScaledSizes(OpContext& op, const Value& x, const Sizes& sizes, const Value& factors) {
  const int rank = sizes.in.rank();
  const Ints out(sizes.out.begin() + 2, sizes.out.end());
  if (std::all_of(out.begin(), out.end(), [](int64_t dim) { return dim >= 0; }))
    return op.Concat({LeadingDims(op, x), op.IntList(out)}, 0);
  const Value dims = op.Cast(op.DimsOf(x, 2, rank), DType::kInt64, DType::kFloat32);
  const Value scaled = op.Node("Floor", {op.Node("Mul", {dims, factors})});
  return op.Concat({LeadingDims(op, x), op.Cast(scaled, DType::kFloat32, DType::kInt64)}, 0);
}

// With pytorch_half_pixel, implementations differ in whether they compare in * scale, or that
// number rounded down, with 1 to detect an axis with a single result.
void RequireOneElement(OpContext& op, const Sizes& sizes, const std::vector<float>& scale) {
  for (int i = 2; i < sizes.in.rank(); ++i) {
    const int64_t in = sizes.in[i];
    const double factor =
        scale.empty() ? 0 : static_cast<double>(scale[static_cast<size_t>(i) - 2]);
    op.Require(sizes.out[i] != 1 || in == 1 || static_cast<double>(in) * factor == 1,
               "a scale that leaves one element and a fraction has no counterpart; give the sizes");
  }
}

enum class Copies { kNo, kYes, kMaybe };

// Whether all axes keep their size: the op then copies X, whatever the scale. For an unknown size,
// a scale below 2 keeps size 1, and a scale below 1.5 may also keep larger sizes.
Copies CopiesAll(const Sizes& sizes, const std::vector<float>& scale) {
  bool all_known = true, matters = scale.empty();
  for (int i = 2; i < sizes.in.rank(); ++i) {
    const int64_t in = sizes.in[i], out = sizes.out[i];
    const float factor = scale.empty() ? 1 : scale[static_cast<size_t>(i) - 2];
    const bool known = in >= 0 && out >= 0;
    if (known ? in != out : factor < 1 || factor >= 2) return Copies::kNo;
    all_known = all_known && known;
    matters = matters || (factor != 1 && (known ? in > 1 : factor < 1.5f));
  }
  return all_known ? Copies::kYes : matters ? Copies::kMaybe : Copies::kNo;
}

// Factors for all axes, 1 for axes that keep their size.
Value ScalesOrOnes(OpContext& op, const Value& x, const Value& scales, const Value& sizes) {
  const Value same = op.Cast(op.Node("Equal", {sizes, op.ShapeOf(x)}), DType::kBool, DType::kInt32);
  const Value all = op.Cast(op.Reduce("ReduceMin", same, {0}, true), DType::kInt32, DType::kBool);
  return op.Node("Where", {all, op.Scalar(1, DType::kFloat32), scales});
}

// Factors of the resized axes, after `ones` leading 1s, as a constant.
Value Factors(OpContext& op, const std::vector<float>& scale, int axes, size_t ones) {
  std::vector<float> all(ones, 1.0f);
  if (!op.Has("Scale")) {
    all.insert(all.end(), scale.begin(), scale.end());
    return op.Constant(Tensor::Of<float>({static_cast<int64_t>(all.size())}, all));
  }
  const Value given = op.Node("Expand", {op.Reshape(op.In("Scale"), {-1}), op.IntList({axes})});
  if (ones == 0) return given;
  return op.Concat({op.Constant(Tensor::Of<float>({static_cast<int64_t>(ones)}, all)), given}, 0);
}

// Resizes by factors that are also the ratios of the positions.
Target ScaledTarget(OpContext& op, const Value& x, const Sizes& sizes,
                    const std::vector<float>& scale, bool half_pixel) {
  const int axes = sizes.in.rank() - 2;
  const Copies copies = CopiesAll(sizes, scale);
  if (copies == Copies::kYes) return {op.ShapeOf(x), ""};
  if (half_pixel) RequireOneElement(op, sizes, scale);
  const Value all = Factors(op, scale, axes, 2);
  if (copies == Copies::kNo) return {"", all};
  return {"", ScalesOrOnes(op, x, all, ScaledSizes(op, x, sizes, Factors(op, scale, axes, 0)))};
}

Target TargetOf(OpContext& op, const Value& x, const Sizes& shapes, bool v2, bool half_pixel) {
  const int axes = shapes.in.rank() - 2;
  const bool listed = op.Has("SizeTensor");
  const std::vector<float> scale = op.Has("Scale") ? std::vector<float>{} : ScaleAttr(op, axes, v2);
  const bool scaled = op.Has("Scale") || !scale.empty();
  if (listed || op.Has("OutSize")) {
    op.Require(listed || !v2 || !scaled, "a scale together with OutSize has no counterpart");
    const Value sizes = op.IntsFrom("SizeTensor", "OutSize", "");
    return {op.Concat({LeadingDims(op, x), sizes}, 0), ""};
  }
  if (scaled && v2 && !op.Attr<bool>("align_corners"))
    return ScaledTarget(op, x, shapes, scale, half_pixel);
  // The ratio is given by the sizes.
  if (scaled) return {ScaledSizes(op, x, shapes, Factors(op, scale, axes, 0)), ""};
  Ints sizes;
  for (int i = 3 - axes; i < 3; ++i) sizes.push_back(op.Attr<int32_t>(kSlots[i]));
  return {op.Concat({LeadingDims(op, x), op.IntList(sizes)}, 0), ""};
}

// For a bicubic axis with a single result, the op reads half an element earlier.
void RequireMoreThanOne(OpContext& op, const Sizes& sizes, bool v2) {
  const bool open = !op.Has("SizeTensor") && !op.Has("OutSize") && !op.Attr<bool>("align_corners");
  const std::vector<float> scale = ScaleAttr(op, sizes.in.rank() - 2, v2);
  for (int i = 2; i < sizes.in.rank(); ++i) {
    op.Require(sizes.out[i] != 1, "a bicubic axis of one element has no counterpart");
    if (sizes.out[i] >= 0 || !open) continue;
    const bool shrinks =
        op.Has("Scale") || (!scale.empty() && scale[static_cast<size_t>(i) - 2] < 1);
    op.Require(!shrinks,
               "a bicubic axis of unknown size that shrinks has no counterpart, since one element "
               "may be left; coracle set-shape gives the size");
  }
}

void ExportInterp(OpContext& op) {
  const std::string_view type = op.op().type();
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout"));
  const int rank = op.Rank("X");
  const bool cubic = type.starts_with("bicubic"), nearest = type.starts_with("nearest");
  const Sizes sizes = SizesOf(op, last);
  if (cubic) RequireMoreThanOne(op, sizes, type.ends_with("_v2"));
  const Value x = ToChannelsFirst(op, op.In("X"), rank, last);
  const Target to = TargetOf(op, x, sizes, type.ends_with("_v2"), IsHalfPixel(op, cubic, nearest));
  const Value resized = op.Node("Resize", {x, "", to.scales, to.sizes}, ModeOf(op, cubic, nearest));
  op.Out("Out", FromChannelsFirst(op, resized, rank, last));
}

// --- resize_axis ---

std::string Resizing(int64_t axis) { return "resize_axis " + std::to_string(axis); }

// Whether the value is the length of that axis of x, or of x before other axes were resized.
bool IsLengthOf(OpContext& op, Value length, Value x, int64_t axis) {
  const Graph& graph = op.exporter().graph();
  const auto made_by = [&](const Value& value, const std::string& type) {
    return graph.InputsOf(value, type);
  };
  const auto before_casts = [&](Value value) {
    for (Values from; !(from = made_by(value, "Cast")).empty();) value = from[0];
    return value;
  };
  length = before_casts(length);
  if (const Tensor* known = graph.ConstantOf(length))
    return known->numel() == 1 &&
           known->Cast(DType::kInt64).data<int64_t>()[0] == op.InShape("X")[static_cast<int>(axis)];
  const Values slice = made_by(length, "Slice");
  const Tensor* begin = slice.size() >= 3 ? graph.ConstantOf(slice[1]) : nullptr;
  if (!begin || begin->numel() != 1 || begin->dtype() != DType::kInt64 ||
      begin->data<int64_t>()[0] != axis)
    return false;
  const Values shape = made_by(before_casts(slice[0]), "Shape");
  for (;;) {
    if (!shape.empty() && shape[0] == x) return true;
    Values before = made_by(x, "Cast");
    for (int64_t other = 0; other < op.Rank("X"); ++other)
      if (other != axis && before.empty()) before = made_by(x, Resizing(other));
    if (before.empty()) return false;
    x = before[0];
  }
}

// The float32 factor of the axis, if Size is floor(length factor), as in ONNX's Resize by scales.
Value FactorOf(OpContext& op, int64_t axis) {
  const Graph& graph = op.exporter().graph();
  Values product = {op.In("Size")};
  for (const char* type : {"Cast", "Floor", "Mul"}) {
    product = graph.InputsOf(product[0], type);
    if (product.empty()) return "";
  }
  const Value factor = product[1], scale = op.In("Scale");
  if (!IsLengthOf(op, product[0], op.In("X"), axis) || graph.TypeOf(factor) != DType::kFloat32)
    return "";
  const Values narrow = graph.InputsOf(scale, "Cast");
  if (!narrow.empty() && narrow[0] == factor) return factor;
  const Tensor *given = graph.ConstantOf(scale), *used = graph.ConstantOf(factor);
  const bool same = given && used && given->numel() == 1 && used->numel() == 1 &&
                    given->data<double>()[0] == static_cast<double>(used->data<float>()[0]);
  return same ? op.Constant(used->Reshaped({1})) : "";
}

// One number for each axis: `others`, except at `axis`.
Value ForAxes(OpContext& op, int64_t axis, float others, const Value& at) {
  Values parts;
  const auto add = [&](int64_t count) {
    if (count > 0) parts.push_back(op.Constant(Tensor::Full<float>({count}, others)));
  };
  add(axis);
  parts.push_back(at);
  add(op.Rank("X") - axis - 1);
  return op.Concat(parts, 0);
}

// Begins and ends of a crop; other axes are kept whole. Readers take float32.
Value RegionOf(OpContext& op, int64_t axis) {
  if (op.Attr<std::string>("coordinate_transformation_mode") != "tf_crop_and_resize") return "";
  const Tensor* known =
      op.Has("Region") ? op.exporter().graph().ConstantOf(op.In("Region")) : nullptr;
  for (int64_t i = 0; known && i < 2; ++i) {
    const double edge = known->data<double>()[i];
    op.Require(static_cast<double>(static_cast<float>(edge)) == edge,
               "a Region that float32 does not hold has no counterpart");
  }
  const Value region = op.Has("Region") ? op.Cast(op.In("Region"), DType::kFloat64, DType::kFloat32)
                                        : op.Constant(Tensor::Of<float>({2}, {0, 1}));
  return op.Concat({ForAxes(op, axis, 0, op.Slice(region, 0, 0, 1)),
                    ForAxes(op, axis, 1, op.Slice(region, 0, 1, 2))},
                   0);
}

// The first Resize of ONNX rounds up if the axis gets shorter, else down.
std::string NearestMode(OpContext& op, int64_t axis) {
  const auto mode = op.Attr<std::string>("nearest_mode");
  if (mode != "simple") return mode;
  const int64_t in = op.InShape("X")[static_cast<int>(axis)];
  const int64_t out = op.OutShape("Out")[static_cast<int>(axis)];
  const Tensor* scale =
      op.Has("Scale") ? op.exporter().graph().ConstantOf(op.In("Scale")) : nullptr;
  op.Require(scale || (!op.Has("Scale") && in >= 0 && out >= 0),
             "nearest_mode simple of unknown lengths has no counterpart; coracle set-shape gives "
             "them");
  return (scale ? scale->data<double>()[0] < 1 : out < in) ? "ceil" : "floor";
}

NodeAttrs ResizeAttrs(OpContext& op, int64_t axis) {
  const auto mode = op.Attr<std::string>("mode");
  auto place = op.Attr<std::string>("coordinate_transformation_mode");
  auto nearest = NearestMode(op, axis);
  if (place == "half_pixel_symmetric") op.RequireOpset(19, "half_pixel_symmetric");
  if (place == "tf_half_pixel_for_nn") {
    op.Require(mode == "nearest" && nearest == "floor",
               "tf_half_pixel_for_nn has no counterpart since operator set 13");
    place = "half_pixel";  // floor(p + 1/2) rounds p, and halves up
    nearest = "round_prefer_ceil";
  }
  NodeAttrs attrs = {{"mode", mode}, {"coordinate_transformation_mode", place}};
  if (mode == "nearest") attrs.emplace_back("nearest_mode", nearest);
  if (mode == "cubic") attrs.emplace_back("cubic_coeff_a", op.Attr<float>("cubic_coeff_a"));
  if (op.Attr<bool>("exclude_outside")) attrs.emplace_back("exclude_outside", 1);
  if (place == "tf_crop_and_resize")
    attrs.emplace_back("extrapolation_value", op.Attr<float>("extrapolation_value"));
  if (op.Attr<bool>("antialias")) {
    op.RequireOpset(18, "antialias");
    attrs.emplace_back("antialias", 1);
  }
  return attrs;
}

// A Resize that keeps the other axes.
void ExportResizeAxis(OpContext& op) {
  const int rank = op.Rank("X");
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), rank);
  const Value x = op.In("X");
  Value sizes, scales;
  if (op.Has("Scale")) {
    const Value factor = FactorOf(op, axis);
    op.Require(!factor.empty(), "a Size other than floor(length * Scale) has no counterpart");
    scales = ForAxes(op, axis, 1, op.Reshape(factor, {1}));
  } else {
    Values dims;
    if (axis > 0) dims.push_back(op.DimsOf(x, 0, axis));
    dims.push_back(op.IntsFrom("", "Size", ""));
    if (axis + 1 < rank) dims.push_back(op.DimsOf(x, axis + 1, rank));
    sizes = op.Concat(dims, 0);
  }
  const Value out =
      op.Node("Resize", {x, RegionOf(op, axis), scales, sizes}, ResizeAttrs(op, axis));
  op.exporter().graph().SetMaker(out, Resizing(axis), {x});
  op.Out("Out", out);
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

// The image of each RoI: the number of images that end before it.
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
    {"resize_axis", ExportResizeAxis, "Resize"},
    {"roi_align", ExportRoiAlign, "RoiAlign"},
    {"trilinear_interp", ExportInterp, "Resize"},
    {"trilinear_interp_v2", ExportInterp, "Resize"},
};

}  // namespace

ExportRows InterpRows() { return kRows; }

}  // namespace coracle::onnx
