#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/yolo.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::yolo_box_op {

using Ints = std::vector<int32_t>;

void InferYoloBox(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &size = ctx.Input("ImgSize");
  const auto anchors = ctx.Attr<Ints>("anchors");
  bool positive = !anchors.empty() && anchors.size() % 2 == 0;
  for (int32_t anchor : anchors) positive = positive && anchor > 0;
  ctx.Require("C1", positive, anchors);
  const auto a = static_cast<int64_t>(anchors.size() / 2);
  const int64_t classes = ctx.Attr<int32_t>("class_num");
  const int64_t entries = classes + (ctx.Attr<bool>("iou_aware") ? 6 : 5);
  const bool fits =
      x.shape.rank() == 4 && InferContext::Matches(x.shape[1], CheckedMul(a, entries));
  ctx.Require("C2", fits, x);
  const bool sizes = IsIndexType(size.dtype) && size.shape.rank() == 2 &&
                     InferContext::Matches(size.shape[0], x.shape[0]) &&
                     InferContext::Matches(size.shape[1], 2);
  ctx.Require("C3", sizes, "ImgSize", size, "X", x);
  const int64_t boxes = MulDims(a, MulDims(x.shape[2], x.shape[3]));
  ctx.SetOutput("Boxes", x.dtype, {x.shape[0], boxes, 4});
  ctx.SetOutput("Scores", x.dtype, {x.shape[0], boxes, classes});
}

constexpr int64_t kBlock = 64;  // cells that are predicted together

// The confidences of the cells of a block: 0 below the threshold.
struct BlockConfidence {
  double values[kBlock];
  int64_t found = 0;

  void Set(int64_t i, double confidence, double threshold) {
    const bool is_found = !(confidence < threshold);
    values[i] = is_found ? confidence : 0;
    flags[i] = is_found;
    found += is_found ? 1 : 0;
  }
  bool Found(int64_t i) const { return flags[i]; }

 private:
  bool flags[kBlock];
};

// Scores [n, classes] of a block whose channel of class c begins at element `first` + c * `step`.
struct BlockScores {
  int64_t n, classes, first, step;

  void Write(const Reals& in, const BlockConfidence& conf, const RealsOut& to, int64_t at) const {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < classes; ++c) {
        const double score =
            conf.Found(i) ? conf.values[i] * activation::SigmoidOf(in[first + c * step + i]) : 0;
        to.Set((at + i) * classes + c, score);
      }
    }
  }
  // In float32, channel by channel; faster if most cells exceed the threshold.
  void WriteFloats(const float* in, const BlockConfidence& conf, float* to) const {
    static const simd::UnaryLoop sigmoid = simd::FindUnary(simd::Unary::kSigmoid);
    float line[kBlock];
    for (int64_t c = 0; c < classes; ++c) {
      sigmoid(in + first + c * step, line, n, {});
      for (int64_t i = 0; i < n; ++i)
        to[i * classes + c] = conf.Found(i) ? static_cast<float>(conf.values[i]) * line[i] : 0;
    }
  }
};

Kernel YoloBox(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), size = ctx.Input("ImgSize");
  const TensorArg boxes = ctx.Output("Boxes"), scores = ctx.Output("Scores");
  const auto anchors = ctx.Attr<Ints>("anchors");
  const bool aware = ctx.Attr<bool>("iou_aware"), clip = ctx.Attr<bool>("clip_bbox");
  const auto count = static_cast<int64_t>(anchors.size() / 2);
  const YoloMap map{count, ctx.Attr<int32_t>("class_num"), x.shape[2], x.shape[3],
                    aware ? count : 0};
  const double threshold = ctx.Attr<float>("conf_thresh"), scale = ctx.Attr<float>("scale_x_y");
  const double factor = ctx.Attr<float>("iou_aware_factor");
  const double downsample = ctx.Attr<int32_t>("downsample_ratio");
  return [=](Workspace& ws) {
    const Reals in(ws, x);
    const IndexReader sizes(ws, size);
    const RealsOut box_to(ws, boxes), score_to(ws, scores);
    const auto confidence = [&](int64_t image, int64_t anchor, int64_t cell) {
      double conf = activation::SigmoidOf(in[map.At(image, anchor, 4, cell)]);
      if (aware) {
        const int64_t iou = (image * map.channels() + anchor) * map.area() + cell;
        conf = std::pow(conf, 1 - factor) * std::pow(activation::SigmoidOf(in[iou]), factor);
      }
      return conf;
    };
    const auto box_of = [&](int64_t image, int64_t anchor, int64_t cell) {
      const auto height = static_cast<double>(sizes[2 * image]);
      const auto width = static_cast<double>(sizes[2 * image + 1]);
      const CentredBox b =
          YoloBoxAt(in, map, image, anchor, cell, anchors[static_cast<size_t>(2 * anchor)],
                    anchors[static_cast<size_t>(2 * anchor + 1)], scale, downsample);
      const Box box{(b.x - b.w / 2) * width, (b.y - b.h / 2) * height, (b.x + b.w / 2) * width,
                    (b.y + b.h / 2) * height};
      if (!clip) return box;
      return Box{std::max(box.x1, 0.0), std::max(box.y1, 0.0), std::min(box.x2, width - 1),
                 std::min(box.y2, height - 1)};
    };
    // Cells [cell, cell + n) of one anchor of an image.
    const auto predict = [&](int64_t map_at, int64_t cell, int64_t n) {
      const int64_t anchor = map_at % map.anchors, image = map_at / map.anchors;
      const int64_t at = map_at * map.area() + cell;
      BlockConfidence conf;
      for (int64_t i = 0; i < n; ++i) {
        conf.Set(i, confidence(image, anchor, cell + i), threshold);
        WriteBox(box_to, 4 * (at + i), conf.Found(i) ? box_of(image, anchor, cell + i) : Box());
      }
      const BlockScores block{n, map.classes, map.At(image, anchor, 5, cell), map.area()};
      if (x.dtype == DType::kFloat32 && 4 * conf.found >= n)
        block.WriteFloats(ws.Data<const float>(x), conf, ws.Data<float>(scores) + at * map.classes);
      else
        block.Write(in, conf, score_to, at);
    };
    const int64_t blocks = (map.area() + kBlock - 1) / kBlock;
    ParallelFor(x.shape[0] * map.anchors * blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t cell = b % blocks * kBlock;
        predict(b / blocks, cell, std::min(kBlock, map.area() - cell));
      }
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("yolo_box")
          .Doc("The boxes of a map of predictions. With s the logistic function and r = scale_x_y: "
               "centre = (column + s(x) r - (r - 1) / 2) / W of the image's width, width = exp(w) "
               "anchor / (downsample_ratio W) of the image's width, and likewise for the height; "
               "Scores = conf s(class), conf = s(objectness), under iou_aware conf^(1 - f) "
               "s(iou)^f. Where conf is below conf_thresh, box and scores are 0.")
          .Constraint("C1", "anchors must be pairs of positive numbers")
          .Constraint("C2", "X must be [N, anchors (5 + class_num), H, W], 6 under iou_aware")
          .Constraint("C3", "ImgSize must be an int32 or int64 tensor [N, 2]")
          .Input("X", "tensor [N, A (5 + C), H, W]; with iou_aware, A more channels come first")
          .Input("ImgSize", "int32 or int64 tensor [N, 2]: height, width")
          .Output("Boxes", "corners in pixels, [N, A H W, 4], in the order A, H, W")
          .Output("Scores", "tensor [N, A H W, C]")
          .Attr<int32_t>("class_num", "C")
          .Range(1, 1 << 20)
          .Attr<Ints>("anchors", {}, "widths and heights in pixels, alternating")
          .Attr<int32_t>("downsample_ratio", 32, "size of a cell in pixels of the network's input")
          .Range(1, {})
          .Attr<float>("conf_thresh", 0.01f, "smallest confidence of a box")
          .Attr<bool>("clip_bbox", true, "clip boxes to the image")
          .Attr<float>("scale_x_y", 1.f, "scale of centres in a cell")
          .Attr<bool>("iou_aware", false, "X has channels of predicted overlaps")
          .Attr<float>("iou_aware_factor", 0.5f, "their weight")
          .NoLod()
          .NotDifferentiable("boxes are results of a detector")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferYoloBox)
          .Reference<float, double>(ForReals{YoloBox}));
}

}  // namespace coracle::yolo_box_op
