// Detection: boxes of predictions and of grids, and the choice of the best boxes.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/operators/operators.h>

#include <limits>

namespace coracle::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- multiclass_nms ---

// The boxes that are left, a row (image, class, box) for each, and their scores.
struct Chosen {
  Value rows, scores;
};

class MulticlassNms {
 public:
  explicit MulticlassNms(OpContext& op) : op_(op), scores_(op.InShape("Scores")) {
    const Shape& boxes = op.InShape("BBoxes");
    op.Require(scores_.rank() == 3 && boxes[2] == 4,
               "only boxes with four corners that all classes share have a counterpart");
    op.Require(op.Attr<float>("nms_eta") == 1,
               "a threshold that changes (nms_eta) has no counterpart");
    op.Require(op.Attr<bool>("normalized"),
               "pixels counted as whole (normalized = false) have no counterpart");
    op.Require(op.InType("BBoxes") == DType::kFloat32, "ONNX's NonMaxSuppression takes float32");
    first_ = op.op().type() == "multiclass_nms";
    op.Require(op.Wants("NmsRoisNum") || scores_[0] < 2,
               "the LoD of several images has no counterpart");
    s_ = WithoutBackground(op.In("Scores"));
    s_ = LimitedPerClass(s_);
  }

  void Export() {
    const Chosen chosen = LimitedPerImage(Select());
    const Value image = Column(chosen.rows, 0), box = Column(chosen.rows, 2);
    const Value label = op_.Cast(Column(chosen.rows, 1), DType::kInt64, DType::kFloat32);
    const Value corners = op_.Node("GatherND", {op_.In("BBoxes"), op_.Concat({image, box}, 1)});
    Value out = op_.Concat({label, op_.Unsqueeze(chosen.scores, {1}), corners}, 1);
    if (first_) out = MinusOneIfNone(out);
    op_.Out("Out", out);
    if (op_.Wants("Index")) {
      const Value boxes = op_.DimsOf(op_.In("Scores"), 2, 3);
      const Value index = op_.Node("Add", {op_.Node("Mul", {image, boxes}), box});
      op_.Out("Index", op_.Cast(index, DType::kInt64, DType::kInt32));
    }
    if (op_.Wants("NmsRoisNum")) op_.Out("NmsRoisNum", Counts(image));
  }

 private:
  Value Column(const Value& rows, int64_t i) { return op_.Slice(rows, 1, i, i + 1); }
  Value Lowest() { return op_.Scalar(-kInfinity, DType::kFloat32); }

  // No score of the background passes the threshold.
  Value WithoutBackground(const Value& scores) {
    const int64_t background = op_.Attr<int32_t>("background_label");
    if (background < 0 || (scores_[1] >= 0 && background >= scores_[1])) return scores;
    const Value count = op_.AsScalar(op_.DimsOf(scores, 1, 2));
    const Value classes = op_.Node("Range", {op_.Int(0), count, op_.Int(1)});
    const Value is_background =
        op_.Unsqueeze(op_.Node("Equal", {classes, op_.Int(background)}), {1});
    return op_.Node("Where", {is_background, Lowest(), scores});
  }

  // Only the nms_top_k best boxes of a class take part.
  Value LimitedPerClass(const Value& scores) {
    const int64_t most = op_.Attr<int32_t>("nms_top_k");
    if (most < 0 || (scores_[2] >= 0 && scores_[2] <= most)) return scores;
    const Value count = op_.Node("Min", {op_.DimsOf(scores, 2, 3), op_.IntList({most})});
    const Values best = op_.Nodes("TopK", {scores, count}, 2, {{"axis", 2}});
    const Tensor lowest = Tensor::Full<float>({1}, -std::numeric_limits<float>::infinity());
    const Value none = op_.Node("ConstantOfShape", {op_.ShapeOf(scores)}, {{"value", lowest}});
    return op_.Node("ScatterElements", {none, best[1], best[0]}, {{"axis", 2}});
  }

  // ONNX gives the boxes of each class of each image, best first.
  Chosen Select() {
    const int64_t keep = op_.Attr<int32_t>("keep_top_k");
    const Value most = keep < 0 ? op_.DimsOf(op_.In("Scores"), 2, 3) : op_.IntList({keep});
    Value threshold = op_.Scalar(op_.Attr<float>("nms_threshold"), DType::kFloat32);
    if (op_.Has("NmsThreshold"))
      threshold = op_.AsScalar(op_.In("NmsThreshold"));
    else
      op_.Require(op_.Attr<float>("nms_threshold") >= 0 && op_.Attr<float>("nms_threshold") <= 1,
                  "ONNX takes an nms_threshold from 0 to 1");
    const Value least = op_.Scalar(op_.Attr<float>("score_threshold"), DType::kFloat32);
    const Value rows =
        op_.Node("NonMaxSuppression", {op_.In("BBoxes"), s_, most, threshold, least});
    return {rows, op_.Node("GatherND", {s_, rows})};
  }

  // The keep_top_k best of an image, in the same order.
  Chosen LimitedPerImage(const Chosen& all) {
    const int64_t keep = op_.Attr<int32_t>("keep_top_k");
    if (keep < 0) return all;
    if (scores_[0] != 1) return LimitedByRank(all, keep);
    const Value count = op_.Node("Min", {op_.ShapeOf(all.scores), op_.IntList({keep})});
    const Value best = op_.Nodes("TopK", {all.scores, count}, 2, {{"axis", 0}})[1];
    const Value in_order = op_.Nodes("TopK", {best, count}, 2, {{"axis", 0}, {"largest", 0}})[0];
    return {op_.Node("Gather", {all.rows, in_order}), op_.Node("Gather", {all.scores, in_order})};
  }

  // The rank of a box counts the boxes of its image that are better, or as good and before it.
  Chosen LimitedByRank(const Chosen& all, int64_t keep) {
    const Value image = Column(all.rows, 0);
    const Value score = op_.Unsqueeze(all.scores, {1}), others = op_.Unsqueeze(all.scores, {0});
    const Value count = op_.AsScalar(op_.ShapeOf(all.scores));
    const Value place = op_.Node("Range", {op_.Int(0), count, op_.Int(1)});
    const Value before = op_.Node("Less", {op_.Unsqueeze(place, {0}), op_.Unsqueeze(place, {1})});
    const Value equal = op_.Node("And", {op_.Node("Equal", {others, score}), before});
    const Value better = op_.Node("Or", {op_.Node("Greater", {others, score}), equal});
    const Value same = op_.Node("Equal", {op_.Transpose(image, {1, 0}), image});
    const Value ahead = op_.Cast(op_.Node("And", {same, better}), DType::kBool, DType::kInt64);
    const Value rank = op_.Reduce("ReduceSum", ahead, {1}, false);
    const Value kept = op_.Node("Less", {rank, op_.Int(keep)});
    return {op_.Node("Compress", {all.rows, kept}, {{"axis", 0}}),
            op_.Node("Compress", {all.scores, kept}, {{"axis", 0}})};
  }

  Value Counts(const Value& image) {
    const Value images = op_.AsScalar(op_.DimsOf(op_.In("Scores"), 0, 1));
    const Value numbers = op_.Unsqueeze(op_.Node("Range", {op_.Int(0), images, op_.Int(1)}), {1});
    const Value of_image = op_.Node("Equal", {numbers, op_.Transpose(image, {1, 0})});
    const Value counts =
        op_.Reduce("ReduceSum", op_.Cast(of_image, DType::kBool, DType::kInt64), {1}, false);
    return op_.Cast(counts, DType::kInt64, DType::kInt32);
  }

  // The first version of the op gives [1, 1] with -1 if no box is left.
  Value MinusOneIfNone(const Value& out) {
    ProgramExporter& exporter = op_.exporter();
    Graph& graph = exporter.graph();
    const Value count = op_.AsScalar(op_.DimsOf(out, 0, 1));
    const Value none = op_.Node("Equal", {count, op_.Int(0)});
    exporter.Enter();
    graph.BodyOutput(op_.Constant(Tensor::Full<float>({1, 1}, -1)), DType::kFloat32, {1, 1});
    const GraphPtr empty = exporter.Leave();
    exporter.Enter();
    graph.BodyOutput(out, DType::kFloat32, {-1, 6});
    return op_.Node("If", {none}, {{"then_branch", empty}, {"else_branch", exporter.Leave()}});
  }

  OpContext& op_;
  const Shape scores_;  // [images, classes, boxes]
  bool first_ = false;
  Value s_;
};

void ExportMulticlassNms(OpContext& op) { MulticlassNms(op).Export(); }

// --- yolo_box ---

// Values of a map as [images, anchors, entries, cells].
class YoloBox {
 public:
  explicit YoloBox(OpContext& op)
      : op_(op),
        dtype_(op.InType("X")),
        anchors_(op.IntsAttr("anchors")),
        classes_(op.Attr<int32_t>("class_num")),
        aware_(op.Attr<bool>("iou_aware")) {}

  void Export() {
    const auto count = static_cast<int64_t>(anchors_.size() / 2);
    Value map = op_.In("X"), overlaps;
    if (aware_) {
      overlaps = op_.Reshape(op_.Slice(map, 1, 0, count), {0, count, 1, -1});
      map = op_.Slice(map, 1, count, std::numeric_limits<int64_t>::max());
    }
    map = op_.Reshape(map, {0, count, 5 + classes_, -1});
    const Values parts =
        op_.Nodes("Split", {map, op_.IntList({1, 1, 1, 1, 1, classes_})}, 6, {{"axis", 2}});
    Value confidence = Sigmoid(parts[4]);
    if (aware_) {
      const double f = static_cast<double>(op_.Attr<float>("iou_aware_factor"));
      confidence = op_.Node("Mul", {op_.Node("Pow", {confidence, Number(1 - f)}),
                                    op_.Node("Pow", {Sigmoid(overlaps), Number(f)})});
    }
    const Value least = Number(op_.Attr<float>("conf_thresh"));
    const Value found = op_.Node("Not", {op_.Node("Less", {confidence, least})});
    const auto if_found = [&](const Value& x) { return op_.Node("Where", {found, x, Number(0)}); };
    const Value scores = op_.Node("Mul", {confidence, Sigmoid(parts[5])});
    op_.Out("Boxes", Rows(if_found(Corners(parts)), 4));
    op_.Out("Scores", Rows(if_found(scores), classes_));
  }

 private:
  Value Number(double value) { return op_.Scalar(value, dtype_); }
  Value Sigmoid(const Value& x) { return op_.Node("Sigmoid", {x}); }
  Value Rows(const Value& x, int64_t columns) {
    return op_.Reshape(op_.Transpose(x, {0, 1, 3, 2}), {0, -1, columns});
  }
  // Sizes of the anchors at index 0 (widths) or 1 (heights), relative to the map's unit.
  Value AnchorSizes(size_t i) {
    const double unit = op_.Attr<int32_t>("downsample_ratio");
    std::vector<double> sizes;
    for (size_t a = i; a < anchors_.size(); a += 2)
      sizes.push_back(static_cast<double>(anchors_[a]) / unit);
    return op_.Constant(
        Tensor::Of<double>({static_cast<int64_t>(sizes.size()), 1, 1}, sizes).Cast(dtype_));
  }
  // An image's height (0) or width (1).
  Value ImageSize(int64_t i) {
    const Value size =
        op_.Cast(op_.Slice(op_.In("ImgSize"), 1, i, i + 1), op_.InType("ImgSize"), dtype_);
    return op_.Unsqueeze(size, {2, 3});
  }

  Value Corners(const Values& parts) {
    const Value height = op_.AsScalar(op_.DimsOf(op_.In("X"), 2, 3));
    const Value width = op_.AsScalar(op_.DimsOf(op_.In("X"), 3, 4));
    const Value cells =
        op_.Node("Range", {op_.Int(0), op_.Node("Mul", {height, width}), op_.Int(1)});
    const auto axis = [&](const Value& place, const Value& dim, const Value& offset,
                          const Value& size, size_t anchor, int64_t image) {
      const double scale = static_cast<double>(op_.Attr<float>("scale_x_y"));
      const Value count = op_.Cast(dim, DType::kInt64, dtype_);
      const Value moved = op_.Node("Mul", {Sigmoid(offset), Number(scale)});
      const Value at = op_.Node("Add", {op_.Cast(place, DType::kInt64, dtype_),
                                        op_.Node("Add", {moved, Number(-(scale - 1) / 2)})});
      const Value centre = op_.Node("Div", {at, count});
      const Value extent =
          op_.Node("Div", {op_.Node("Mul", {op_.Node("Exp", {size}), AnchorSizes(anchor)}), count});
      const Value half = op_.Node("Mul", {extent, Number(0.5)}), whole = ImageSize(image);
      Value first = op_.Node("Mul", {op_.Node("Sub", {centre, half}), whole});
      Value last = op_.Node("Mul", {op_.Node("Add", {centre, half}), whole});
      if (op_.Attr<bool>("clip_bbox")) {
        first = op_.Node("Max", {first, Number(0)});
        last = op_.Node("Min", {last, op_.Node("Sub", {whole, Number(1)})});
      }
      return std::pair{first, last};
    };
    const auto [x1, x2] = axis(op_.Node("Mod", {cells, width}), width, parts[0], parts[2], 0, 1);
    const auto [y1, y2] = axis(op_.Node("Div", {cells, width}), height, parts[1], parts[3], 1, 0);
    return op_.Concat({x1, y1, x2, y2}, 2);
  }

  OpContext& op_;
  const DType dtype_;
  const Ints anchors_;
  const int64_t classes_;
  const bool aware_;
};

void ExportYoloBox(OpContext& op) { YoloBox(op).Export(); }

// --- box_coder ---

class BoxCoder {
 public:
  explicit BoxCoder(OpContext& op)
      : op_(op), dtype_(op.InType("TargetBox")), extra_(op.Attr<bool>("box_normalized") ? 0 : 1) {}

  void Export() {
    const bool encode = op_.Attr<std::string>("code_type") == "encode_center_size";
    const int64_t axis = !encode && op_.Attr<int32_t>("axis") == 1 ? 1 : 0;
    const Values prior = Corners(op_.Unsqueeze(op_.In("PriorBox"), {axis}));
    const Value width = Extent(prior, 0), height = Extent(prior, 1);
    const Value x = Half(prior[0], width), y = Half(prior[1], height);
    op_.Out("OutputBox",
            encode ? Encoded(x, y, width, height) : Decoded(Variances(axis), x, y, width, height));
  }

 private:
  Value Number(double value) { return op_.Scalar(value, dtype_); }
  Values Corners(const Value& boxes) {
    return op_.Nodes("Split", {boxes, op_.IntList({1, 1, 1, 1})}, 4, {{"axis", 2}});
  }
  Value Extent(const Values& corners, size_t i) {
    const Value size = op_.Node("Sub", {corners[i + 2], corners[i]});
    return extra_ == 0 ? size : op_.Node("Add", {size, Number(extra_)});
  }
  Value Half(const Value& start, const Value& size) {
    return op_.Node("Add", {start, op_.Node("Mul", {size, Number(0.5)})});
  }
  // [1, priors, 4], [priors, 1, 4] or [4]; "" if all are 1.
  Value Variances(int64_t axis) {
    if (op_.Has("PriorBoxVar")) {
      const Value var = op_.In("PriorBoxVar");
      return op_.Rank("PriorBoxVar") == 1 ? var : op_.Unsqueeze(var, {axis});
    }
    const auto fixed = op_.Attr<std::vector<float>>("variance");
    return fixed.empty() ? "" : op_.Constant(Tensor::Of<float>({4}, fixed).Cast(dtype_));
  }

  Value Decoded(const Value& variances, const Value& x, const Value& y, const Value& width,
                const Value& height) {
    Value target = op_.In("TargetBox");
    if (!variances.empty()) target = op_.Node("Mul", {target, variances});
    const Values t = Corners(target);
    const auto axis = [&](const Value& centre, const Value& size, const Value& move,
                          const Value& grow) {
      const Value at = op_.Node("Add", {centre, op_.Node("Mul", {move, size})});
      const Value extent = op_.Node("Mul", {op_.Node("Exp", {grow}), size});
      const Value half = op_.Node("Mul", {extent, Number(0.5)});
      const Value last = op_.Node("Add", {at, half});
      return std::pair{op_.Node("Sub", {at, half}),
                       extra_ == 0 ? last : op_.Node("Sub", {last, Number(extra_)})};
    };
    const auto [x1, x2] = axis(x, width, t[0], t[2]);
    const auto [y1, y2] = axis(y, height, t[1], t[3]);
    return op_.Concat({x1, y1, x2, y2}, 2);
  }

  Value Encoded(const Value& x, const Value& y, const Value& width, const Value& height) {
    const Values t = Corners(op_.Unsqueeze(op_.In("TargetBox"), {1}));
    const auto centre = [&](size_t i) {
      return op_.Node("Mul", {op_.Node("Add", {t[i], t[i + 2]}), Number(0.5)});
    };
    const auto log = [&](const Value& size) { return op_.Node("Log", {op_.Node("Abs", {size})}); };
    const auto moved = [&](size_t i, const Value& from, const Value& size) {
      return op_.Node("Div", {op_.Node("Sub", {centre(i), from}), size});
    };
    const auto grown = [&](size_t i, const Value& size) {
      return op_.Node("Sub", {log(Extent(t, i)), log(size)});
    };
    const Value all =
        op_.Concat({moved(0, x, width), moved(1, y, height), grown(0, width), grown(1, height)}, 2);
    const Value variances = Variances(0);
    return variances.empty() ? all : op_.Node("Div", {all, variances});
  }

  OpContext& op_;
  const DType dtype_;
  const int64_t extra_;
};

void ExportBoxCoder(OpContext& op) { BoxCoder(op).Export(); }

// --- prior_box ---

// The corners of the boxes around (0, 0), in pixels: the op on an image of one pixel.
Tensor BoxesAround(OpContext& op) {
  OpDesc one(op.op().type(), {{"Input", {"x"}}, {"Image", {"x"}}},
             {{"Boxes", {"boxes"}}, {"Variances", {"v"}}}, op.op().attrs());
  one.SetAttr("clip", false);
  one.SetAttr("offset", 0.f);
  one.SetAttr("step_w", 1.f);
  one.SetAttr("step_h", 1.f);
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const char* name : {"x", "boxes", "v"}) block.Var(name).SetDType(DType::kFloat64);
  const OpDesc& added = block.AppendOp(one);
  VarValues values;
  values["x"] = Tensor::Full<double>({1, 1, 1, 1}, 0);
  InterpretOp(added, DefaultOps(), values);
  return std::get<Tensor>(values.at("boxes"));
}

void ExportPriorBox(OpContext& op) {
  const DType dtype = op.InType("Input");
  const auto size = [&](const char* slot, int64_t axis) {
    return op.AsScalar(op.DimsOf(op.In(slot), axis, axis + 1));
  };
  const auto number = [&](const Value& n) { return op.Cast(n, DType::kInt64, dtype); };
  const auto step_w = op.Attr<float>("step_w"), step_h = op.Attr<float>("step_h");
  const bool given = step_w != 0 && step_h != 0;
  // The centres along an axis: 2 rows, 3 columns.
  const auto centres = [&](int64_t axis, float step) {
    const Value count = size("Input", axis);
    const Value unit = given ? op.Scalar(step, dtype)
                             : op.Node("Div", {number(size("Image", axis)), number(count)});
    const Value places = number(op.Node("Range", {op.Int(0), count, op.Int(1)}));
    const Value offset = op.Scalar(op.Attr<float>("offset"), dtype);
    return op.Node("Mul", {op.Node("Add", {places, offset}), unit});
  };
  const Value y = op.Unsqueeze(centres(2, step_h), {1, 2, 3});
  const Value x = op.Unsqueeze(centres(3, step_w), {0, 2, 3});
  const Tensor around = BoxesAround(op).Cast(dtype);  // [1, 1, boxes, 4]
  const Values corner =
      op.Nodes("Split", {op.Constant(around), op.IntList({1, 1, 1, 1})}, 4, {{"axis", 3}});
  // [rows, columns, boxes, 4]
  const auto dims = [&](const Value& last) {
    return op.Concat({op.DimsOf(op.In("Input"), 2, 4), op.IntList({around.shape()[2]}), last}, 0);
  };
  const Value one = dims(op.IntList({1}));
  Values parts;
  for (size_t i = 0; i < 4; ++i) {
    const bool vertical = i % 2 == 1;
    const Value at = op.Node("Add", {vertical ? y : x, corner[i]});
    const Value part = op.Node("Div", {at, number(size("Image", vertical ? 2 : 3))});
    parts.push_back(op.Node("Expand", {part, one}));
  }
  Value boxes = op.Concat(parts, 3);
  if (op.Attr<bool>("clip"))
    boxes = op.Node("Clip", {boxes, op.Scalar(0, dtype), op.Scalar(1, dtype)});
  op.Out("Boxes", boxes);
  const Value variances =
      op.Constant(Tensor::Of<float>({4}, op.Attr<std::vector<float>>("variances")).Cast(dtype));
  op.Out("Variances", op.Node("Expand", {variances, dims(op.IntList({4}))}));
}

constexpr ExportRow kRows[] = {
    {"box_coder", ExportBoxCoder, "Split, Sub, Mul, Exp, Log, Concat"},
    {"multiclass_nms", ExportMulticlassNms, "NonMaxSuppression, TopK, GatherND"},
    {"multiclass_nms2", ExportMulticlassNms, "NonMaxSuppression, TopK, GatherND"},
    {"multiclass_nms3", ExportMulticlassNms, "NonMaxSuppression, TopK, GatherND"},
    {"prior_box", ExportPriorBox, "Range, Add, Mul, Expand"},
    {"yolo_box", ExportYoloBox, "Sigmoid, Exp, Mul, Where, Transpose"},
};

}  // namespace

ExportRows DetectionRows() { return kRows; }

}  // namespace coracle::onnx
