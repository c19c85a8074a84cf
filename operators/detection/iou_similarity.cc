// iou_similarity, box_clip, polygon_box_transform.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/overlap_simd.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::iou_similarity_op {

// ---- iou_similarity ----

void InferSimilarity(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  RequireDTypeOf(ctx, "C1", "X", {"Y"});
  for (const VarMeta* m : {&x, &y})
    ctx.Require("C2", m->shape.rank() == 2 && InferContext::Matches(m->shape[1], 4), *m);
  VarMeta out = x;
  out.shape = {x.shape[0], y.shape[0]};
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Similarity(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const double extra = ctx.Attr<bool>("box_normalized") ? 0 : 1;
  const int64_t columns = y.shape[0];
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {5, columns});
  return [=](Workspace& ws) {
    const Reals xs(ws, x), ys(ws, y);
    double* c = ws.Data<double>(scratch);
    for (int64_t j = 0; j < columns; ++j) {
      const Box b = ReadBox(ys, 4 * j);
      const double of_box[] = {b.x1, b.y1, b.x2, b.y2, b.Width(extra) * b.Height(extra)};
      for (int64_t k = 0; k < 5; ++k) c[k * columns + j] = of_box[k];
    }
    const ColumnPointers boxes{c, c + columns, c + 2 * columns, c + 3 * columns, c + 4 * columns};
    T* to = ws.Data<T>(out);
    ParallelFor(x.shape[0], 1 + 16384 / columns, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        GrownOverlaps(boxes, columns, ReadBox(xs, 4 * i), extra, to + i * columns);
    });
  };
}

// ---- box_clip ----

void InferClip(InferContext& ctx) {
  const VarMeta &in = ctx.Input("Input"), &info = ctx.Input("ImInfo");
  RequireDTypeOf(ctx, "C1", "Input", {"ImInfo"});
  const int rank = in.shape.rank();
  ctx.Require("C2", rank >= 2 && InferContext::Matches(in.shape[rank - 1], 4), in);
  ctx.Require("C3", info.shape.rank() == 2 && InferContext::Matches(info.shape[1], 3), info);
  ctx.SetOutput("Output", in);
}

Kernel BoxClip(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), info = ctx.Input("ImInfo"), out = ctx.Output("Output");
  const ImagesArg images(ctx, "Input", nullptr, "C4");
  const int64_t width = RowWidth(in.shape);
  return [=](Workspace& ws) {
    const RowOffsets offsets = images(ws, info.shape[0]);
    const Reals from(ws, in), size(ws, info);
    const RealsOut to(ws, out);
    for (int64_t n = 0; n < info.shape[0]; ++n) {
      const double bottom = std::round(size[3 * n] / size[3 * n + 2]) - 1;
      const double right = std::round(size[3 * n + 1] / size[3 * n + 2]) - 1;
      const Sequences rows(offsets);
      for (int64_t at = rows.begin(n) * width; at < rows.end(n) * width; at += 4)
        WriteBox(to, at, Clipped(ReadBox(from, at), right, bottom));
    }
  };
}

// ---- polygon_box_transform ----

void InferPolygon(InferContext& ctx) {
  const VarMeta& in = ctx.Input("Input");
  const bool pairs = in.shape.rank() == 4 && (in.shape[1] < 0 || in.shape[1] % 2 == 0);
  ctx.Require("C1", pairs, in);
  ctx.SetOutput("Output", in);
}

Kernel PolygonTransform(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), out = ctx.Output("Output");
  const Shape s = in.shape;
  return [=](Workspace& ws) {
    const Reals from(ws, in);
    const RealsOut to(ws, out);
    for (int64_t at = 0; at < in.numel; ++at) {
      const int64_t column = at % s[3], row = at / s[3] % s[2], channel = at / s[3] / s[2];
      to.Set(at, 4 * static_cast<double>(channel % 2 == 0 ? column : row) - from[at]);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("iou_similarity")
              .Doc("Out[i, j] = intersection over union (plus 1e-10) of box i of X and box j of Y. "
                   "Boxes that are not normalized, and their intersections, are one pixel larger "
                   "than the difference of their corners.")
              .Constraint("C1", "X and Y must have one dtype")
              .Constraint("C2", "X and Y must be [boxes, 4]")
              .Input("X", "[N, 4]")
              .Input("Y", "[M, 4]")
              .Output("Out", "tensor [N, M]")
              .Attr<bool>("box_normalized", true, "whether boxes are normalized")
              .NotDifferentiable("it only matches boxes")
              .Rows(RowRule::kEach)
              .Infer(InferSimilarity)
              .Reference(Similarity<float>, Similarity<double>));
  ops.Add(OpDef("box_clip")
              .Doc("Output = the boxes of Input with corners clipped to [0, round(size / scale) - "
                   "1] of their image. Without LoD all boxes belong to one image.")
              .Constraint("C1", "Input and ImInfo must have one dtype")
              .Constraint("C2", "Input must have rank 2 or more, and 4 as its last dimension")
              .Constraint("C3", "ImInfo must be [N, 3]")
              .Constraint("C4", "Input must have boxes for each image of ImInfo")
              .Input("Input", "boxes [rows, .., 4], with LoD for several images")
              .Input("ImInfo", "tensor [N, 3]: height, width, scale of each image")
              .Output("Output", "tensor of Input's shape and dtype")
              .Inplace("Input", "Output")
              .NotDifferentiable("boxes are results of a detector")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferClip)
              .Reference<float, double>(ForReals{BoxClip}));
  ops.Add(OpDef("polygon_box_transform")
              .Doc("Output = 4 column - Input in even channels, 4 row - Input in odd ones: "
                   "converts offsets of polygon corners to positions.")
              .Constraint("C1", "Input must be [N, 2 k, H, W]")
              .Input("Input", "tensor [N, 2 k, H, W]")
              .Output("Output", "tensor of Input's shape and dtype")
              .Inplace("Input", "Output")
              .NotDifferentiable("boxes are results of a detector")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferPolygon)
              .Reference<float, double>(ForReals{PolygonTransform}));
}

}  // namespace coracle::iou_similarity_op
