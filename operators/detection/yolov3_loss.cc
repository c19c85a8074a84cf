#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/yolo.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::yolov3_loss_op {

using Ints = std::vector<int32_t>;

void RequireYolo(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &box = ctx.Input("GTBox"), &label = ctx.Input("GTLabel");
  RequireDTypeOf(ctx, "C1", "X", {"GTBox", "GTScore"});
  const auto anchors = ctx.Attr<Ints>("anchors"), mask = ctx.Attr<Ints>("anchor_mask");
  bool usable = !anchors.empty() && anchors.size() % 2 == 0 && !mask.empty();
  for (int32_t anchor : anchors) usable = usable && anchor > 0;
  for (int32_t i : mask) usable = usable && i >= 0 && 2 * static_cast<size_t>(i) < anchors.size();
  ctx.Require("C2", usable, "anchors", anchors, "anchor_mask", mask);
  const int64_t channels =
      CheckedMul(static_cast<int64_t>(mask.size()), int64_t{ctx.Attr<int32_t>("class_num")} + 5);
  ctx.Require("C3", x.shape.rank() == 4 && InferContext::Matches(x.shape[1], channels), x);
  const bool boxes = box.shape.rank() == 3 && InferContext::Matches(box.shape[2], 4) &&
                     InferContext::Matches(box.shape[0], x.shape[0]);
  ctx.Require("C4", boxes, "GTBox", box, "X", x);
  const Shape each{box.shape[0], box.shape[1]};
  ctx.Require("C5", IsIndexType(label.dtype) && label.shape.CompatibleWith(each), label);
  if (ctx.HasInput("GTScore"))
    ctx.Require("C5", ctx.InputShape("GTScore").CompatibleWith(each), ctx.Input("GTScore"));
}

Shape MaskShape(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  return {x[0], static_cast<int64_t>(ctx.Attr<Ints>("anchor_mask").size()), x[2], x[3]};
}

void InferLoss(InferContext& ctx) {
  RequireYolo(ctx);
  const VarMeta &x = ctx.Input("X"), &box = ctx.Input("GTBox");
  ctx.SetOutput("Loss", x.dtype, {x.shape[0]});
  ctx.SetOutput("ObjectnessMask", x.dtype, MaskShape(ctx));
  ctx.SetOutput("GTMatchMask", DType::kInt32, {box.shape[0], box.shape[1]});
}

// Cross entropy of a logit, and its derivative.
double Bce(double x, double target) {
  return std::max(x, 0.0) - x * target + std::log1p(std::exp(-std::abs(x)));
}
double BceSlope(double x, double target) { return activation::SigmoidOf(x) - target; }

double OverlapOfCentred(const CentredBox& a, const CentredBox& b) {
  const auto corners = [](const CentredBox& c) {
    return Box{c.x - c.w / 2, c.y - c.h / 2, c.x + c.w / 2, c.y + c.h / 2};
  };
  return Overlap(corners(a), corners(b), 0);
}

// The operands and attrs of the op and of its gradient.
struct YoloLoss {
  TensorArg x, box, label, score;
  Ints anchors, mask;
  YoloMap map;
  int64_t boxes;  // true boxes of an image
  double downsample, scale, ignore, positive, negative;
  RunConstraint is_class, is_inside;

  explicit YoloLoss(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        box(ctx.Input("GTBox")),
        label(ctx.Input("GTLabel")),
        score(ctx.Input("GTScore")),
        anchors(ctx.Attr<Ints>("anchors")),
        mask(ctx.Attr<Ints>("anchor_mask")),
        map{static_cast<int64_t>(mask.size()), ctx.Attr<int32_t>("class_num"), x.shape[2],
            x.shape[3]},
        boxes(box.shape[1]),
        downsample(ctx.Attr<int32_t>("downsample_ratio")),
        scale(ctx.Attr<float>("scale_x_y")),
        ignore(ctx.Attr<float>("ignore_thresh")),
        is_class(ctx, "C6"),
        is_inside(ctx, "C7") {
    const double smooth = std::min(1.0 / static_cast<double>(map.classes), 1.0 / 40);
    negative = ctx.Attr<bool>("use_label_smooth") ? smooth : 0;
    positive = 1 - negative;
  }

  // Sizes of an anchor relative to the network's input.
  double AnchorWidth(int64_t i) const {
    return anchors[static_cast<size_t>(2 * i)] / downsample / static_cast<double>(map.columns);
  }
  double AnchorHeight(int64_t i) const {
    return anchors[static_cast<size_t>(2 * i + 1)] / downsample / static_cast<double>(map.rows);
  }
  int64_t AnchorOf(int64_t k) const { return mask[static_cast<size_t>(k)]; }
};

// A true box, the cell of its centre, and the targets of that cell.
struct Target {
  CentredBox box;
  int64_t label, cell;
  double score;
  bool valid;  // has a size

  Target(const YoloLoss& y, const Reals& boxes, const IndexReader& labels, const Reals& scores,
         int64_t at)
      : box{boxes[4 * at], boxes[4 * at + 1], boxes[4 * at + 2], boxes[4 * at + 3]},
        label(labels[at]),
        cell(0),
        score(y.score ? scores[at] : 1),
        valid(box.w >= 1e-6 && box.h >= 1e-6 && y.map.area() > 0) {
    if (!valid) return;
    y.is_class.Require(label >= 0 && label < y.map.classes, "GTLabel", label, "class_num",
                       y.map.classes);
    const bool inside = box.x >= 0 && box.x <= 1 && box.y >= 0 && box.y <= 1;
    y.is_inside.Require(inside, "x", box.x, "y", box.y);
    const auto index = [](double v, int64_t n) {
      return std::min(static_cast<int64_t>(v * static_cast<double>(n)), n - 1);
    };
    cell = index(box.y, y.map.rows) * y.map.columns + index(box.x, y.map.columns);
  }

  // The anchor of the most similar size, the first if several are equal.
  int64_t BestAnchor(const YoloLoss& y) const {
    int64_t best = 0;
    double highest = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(y.anchors.size() / 2); ++i) {
      const double overlap =
          OverlapOfCentred({0, 0, y.AnchorWidth(i), y.AnchorHeight(i)}, {0, 0, box.w, box.h});
      if (!(overlap > highest)) continue;
      highest = overlap;
      best = i;
    }
    return best;
  }
};

// The four coordinate losses of a box at predictor k: calls visit(entry, logistic or
// linear, target).
template <class Visit>
void ForEachCoordinate(const YoloLoss& y, const Target& t, int64_t k, const Visit& visit) {
  const int64_t row = t.cell / y.map.columns, column = t.cell % y.map.columns;
  const int64_t anchor = y.AnchorOf(k);
  visit(0, true, t.box.x * static_cast<double>(y.map.columns) - static_cast<double>(column));
  visit(1, true, t.box.y * static_cast<double>(y.map.rows) - static_cast<double>(row));
  visit(2, false, std::log(t.box.w / y.AnchorWidth(anchor)));
  visit(3, false, std::log(t.box.h / y.AnchorHeight(anchor)));
}

// Sets the mask to -1 where the prediction overlaps with a true box, else to 0.
void MarkIgnored(const YoloLoss& y, const Reals& x, const std::vector<Target>& targets,
                 int64_t image, std::vector<double>* mask) {
  for (int64_t at = 0; at < y.map.anchors * y.map.area(); ++at) {
    if (at % 1024 == 0) CheckTimeLimit("computing the loss of boxes");
    const int64_t k = at / y.map.area(), anchor = y.AnchorOf(k);
    const CentredBox box =
        YoloBoxAt(x, y.map, image, k, at % y.map.area(), y.anchors[static_cast<size_t>(2 * anchor)],
                  y.anchors[static_cast<size_t>(2 * anchor + 1)], y.scale, y.downsample);
    const bool covered = std::any_of(targets.begin(), targets.end(), [&](const Target& t) {
      return t.valid && OverlapOfCentred(box, t.box) > y.ignore;
    });
    (*mask)[static_cast<size_t>(at)] = covered ? -1 : 0;
  }
}

double LossOfTarget(const YoloLoss& y, const Reals& x, const Target& t, int64_t image, int64_t k) {
  double loss = 0;
  const double weight = t.score * (2 - t.box.w * t.box.h);
  ForEachCoordinate(y, t, k, [&](int64_t entry, bool logistic, double target) {
    const double v = x[y.map.At(image, k, entry, t.cell)];
    loss += weight * (logistic ? Bce(v, target) : std::abs(v - target));
  });
  for (int64_t c = 0; c < y.map.classes; ++c) {
    const double v = x[y.map.At(image, k, 5 + c, t.cell)];
    loss += t.score * Bce(v, c == t.label ? y.positive : y.negative);
  }
  return loss;
}

std::vector<Target> TargetsOf(const YoloLoss& y, Workspace& ws, int64_t image) {
  const Reals boxes(ws, y.box), scores(ws, y.score);
  const IndexReader labels(ws, y.label);
  std::vector<Target> targets;
  for (int64_t b = 0; b < y.boxes; ++b)
    targets.emplace_back(y, boxes, labels, scores, image * y.boxes + b);
  return targets;
}

Kernel Loss(const PrepareContext& ctx) {
  const YoloLoss y(ctx);
  const TensorArg loss = ctx.Output("Loss"), objectness = ctx.Output("ObjectnessMask");
  const TensorArg match = ctx.Output("GTMatchMask");
  const int64_t predictors = y.map.anchors * y.map.area();
  return [=](Workspace& ws) {
    const Reals x(ws, y.x);
    std::vector<double> mask(y.x.numel > 0 ? static_cast<size_t>(predictors) : 0);
    for (int64_t n = 0; n < y.x.shape[0]; ++n) {
      const std::vector<Target> targets = TargetsOf(y, ws, n);
      MarkIgnored(y, x, targets, n, &mask);
      double sum = 0;
      for (int64_t b = 0; b < y.boxes; ++b) {
        const Target& t = targets[static_cast<size_t>(b)];
        int32_t k = -1;
        if (t.valid) {
          const auto found =
              std::find(y.mask.begin(), y.mask.end(), static_cast<int32_t>(t.BestAnchor(y)));
          if (found != y.mask.end()) k = static_cast<int32_t>(found - y.mask.begin());
        }
        if (match) ws.Data<int32_t>(match)[n * y.boxes + b] = k;
        if (k < 0) continue;
        mask[static_cast<size_t>(k * y.map.area() + t.cell)] = t.score;
        sum += LossOfTarget(y, x, t, n, k);
      }
      for (int64_t at = 0; at < predictors; ++at) {
        const double m = mask[static_cast<size_t>(at)];
        const double v = x[y.map.At(n, at / y.map.area(), 4, at % y.map.area())];
        if (m > 1e-5)
          sum += Bce(v, 1) * m;
        else if (m > -0.5)
          sum += Bce(v, 0);
        if (objectness) RealsOut(ws, objectness).Set(n * predictors + at, m);
      }
      RealsOut(ws, loss).Set(n, sum);
    }
  };
}

void InferLossGrad(InferContext& ctx) {
  RequireYolo(ctx);
  const VarMeta &x = ctx.Input("X"), &dloss = ctx.Input("Loss@GRAD");
  const VarMeta &objectness = ctx.Input("ObjectnessMask"), &match = ctx.Input("GTMatchMask");
  ctx.Require("C8", dloss.dtype == x.dtype && dloss.shape.CompatibleWith({x.shape[0]}), dloss);
  const bool masks =
      objectness.dtype == x.dtype && objectness.shape.CompatibleWith(MaskShape(ctx)) &&
      match.dtype == DType::kInt32 && match.shape.CompatibleWith(ctx.InputShape("GTLabel"));
  ctx.Require("C9", masks, "ObjectnessMask", objectness, "GTMatchMask", match);
  ctx.SetOutput("X@GRAD", x);
}

Kernel LossGrad(const PrepareContext& ctx) {
  const YoloLoss y(ctx);
  const TensorArg objectness = ctx.Input("ObjectnessMask"), match = ctx.Input("GTMatchMask");
  const TensorArg dloss = ctx.Input("Loss@GRAD"), dx = ctx.Output("X@GRAD");
  const RunConstraint is_match(ctx, "C9");
  const int64_t predictors = y.map.anchors * y.map.area();
  return [=](Workspace& ws) {
    const Reals x(ws, y.x), mask(ws, objectness), weights(ws, dloss);
    const RealsOut to(ws, dx);
    for (int64_t i = 0; i < dx.numel; ++i) to.Set(i, 0);
    for (int64_t n = 0; n < y.x.shape[0]; ++n) {
      CheckTimeLimit("computing the loss of boxes");
      const std::vector<Target> targets = TargetsOf(y, ws, n);
      for (int64_t b = 0; b < y.boxes; ++b) {
        const Target& t = targets[static_cast<size_t>(b)];
        const int64_t k = ws.Data<const int32_t>(match)[n * y.boxes + b];
        if (k < 0) continue;
        is_match.Require(k < y.map.anchors && t.valid, "GTMatchMask", k);
        const double w = weights[n] * t.score * (2 - t.box.w * t.box.h);
        ForEachCoordinate(y, t, k, [&](int64_t entry, bool logistic, double target) {
          const int64_t at = y.map.At(n, k, entry, t.cell);
          to.Add(at, w * (logistic ? BceSlope(x[at], target) : x[at] > target ? 1 : -1));
        });
        for (int64_t c = 0; c < y.map.classes; ++c) {
          const int64_t at = y.map.At(n, k, 5 + c, t.cell);
          const double target = c == t.label ? y.positive : y.negative;
          to.Add(at, weights[n] * t.score * BceSlope(x[at], target));
        }
      }
      for (int64_t i = 0; i < predictors; ++i) {
        const double m = mask[n * predictors + i];
        const int64_t at = y.map.At(n, i / y.map.area(), 4, i % y.map.area());
        if (m > 1e-5)
          to.Set(at, weights[n] * m * BceSlope(x[at], 1));
        else if (m > -0.5)
          to.Set(at, weights[n] * BceSlope(x[at], 0));
      }
    }
  };
}

void DeclareTargets(OpDef& def) {
  def.Input("X", "predictions [N, A (5 + C), H, W], as in yolo_box")
      .Input("GTBox",
             "true boxes [N, B, 4]: centre x, y, width, height relative to the image; boxes "
             "without a size are ignored")
      .Input("GTLabel", "int32 or int64 tensor [N, B]")
      .OptionalInput("GTScore", "weights of the true boxes, [N, B]; 1 when absent")
      .NoGradientTo({"GTBox", "GTLabel", "GTScore"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("yolov3_loss")
          .Apply(DeclareTargets)
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Each true box is predicted by the cell of its centre and the anchor of the most "
               "similar size (largest overlap), if anchor_mask contains that anchor. Loss[n] = sum "
               "over these of score ((2 - w h) (bce(x) + bce(y) + |w - log(w' / anchor)| + the "
               "same for h) + sum over classes of bce), plus over all predictions bce(objectness): "
               "target 1 weighted by the score where a box is predicted, no loss where the "
               "predicted box overlaps with a true box by more than ignore_thresh, else target 0. "
               "Label smoothing takes d = min(1 / class_num, 1 / 40) from the true class and gives "
               "d to the others.")
          .Constraint("C1", "floating-point inputs must have one dtype")
          .Constraint(
              "C2",
              "anchors must be pairs of positive numbers, and anchor_mask indices of these pairs")
          .Constraint("C3", "X must be [N, masked anchors (5 + class_num), H, W]")
          .Constraint("C4", "GTBox must be [N, B, 4]")
          .Constraint("C5", "GTLabel must be an int32 or int64 tensor [N, B], GTScore [N, B]")
          .Constraint("C6", "labels of true boxes must lie in [0, class_num)")
          .Constraint("C7", "centres of true boxes must lie in [0, 1]")
          .Output("Loss", "tensor [N]")
          .IntermediateOutput("ObjectnessMask",
                              "score of the predicted true box; -1: ignored; else 0")
          .IntermediateOutput("GTMatchMask",
                              "int32 tensor [N, B]: index in anchor_mask; -1: not predicted")
          .Attr<int32_t>("class_num", "C")
          .Range(1, 1 << 20)
          .Attr<Ints>("anchors", {}, "widths and heights in pixels, alternating")
          .Attr<Ints>("anchor_mask", {}, "the anchors of X")
          .Attr<int32_t>("downsample_ratio", 32, "size of a cell in pixels of the network's input")
          .Range(1, {})
          .Attr<float>(
              "ignore_thresh", 0.7f,
              "a prediction that overlaps a true box by more is not penalised as background")
          .Attr<bool>("use_label_smooth", true, "smooth the targets of classes")
          .Attr<float>("scale_x_y", 1.f, "scale of centres in a cell")
          .NoLod()
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferLoss)
          .GradientOp({"X", "GTBox", "GTLabel", "GTScore", "ObjectnessMask", "GTMatchMask"})
          .Reference<float, double>(ForReals{Loss}));
  ops.Add(OpDef("yolov3_loss_grad")
              .Apply(DeclareTargets)
              .Doc("Gradient of yolov3_loss, with its masks as constants; the slope of an absolute "
                   "difference of 0 is -1.")
              .ConstraintsOf("yolov3_loss", {"C1", "C2", "C3", "C4", "C5", "C6", "C7"})
              .Constraint("C8", "Loss@GRAD must have Loss's shape and dtype")
              .Constraint("C9", "the masks must come from the forward op")
              .Input("ObjectnessMask", "the value in the forward op")
              .Input("GTMatchMask", "the value in the forward op")
              .Input("Loss@GRAD", "gradient of Loss")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("yolov3_loss")
              .NoGradient("second derivatives of the YOLO loss are not provided")
              .Infer(InferLossGrad)
              .Reference<float, double>(ForReals{LossGrad}));
}

}  // namespace coracle::yolov3_loss_op
