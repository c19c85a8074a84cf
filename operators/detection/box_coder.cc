// box_coder and box_decoder_and_assign: boxes relative to prior boxes, and back.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/overlap_simd.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::box_coder_op {

using Floats = std::vector<float>;

bool IsBoxes(const Shape& shape) { return shape.rank() == 2 && InferContext::Matches(shape[1], 4); }

// ---- box_coder ----

void InferBoxCoder(InferContext& ctx) {
  const VarMeta &prior = ctx.Input("PriorBox"), &target = ctx.Input("TargetBox");
  const auto variance = ctx.Attr<Floats>("variance");
  const bool encode = ctx.Attr<std::string>("code_type") == "encode_center_size";
  RequireDTypeOf(ctx, "C1", "PriorBox", {"PriorBoxVar", "TargetBox"});
  ctx.Require("C2", IsBoxes(prior.shape), prior);
  if (ctx.HasInput("PriorBoxVar")) {
    const Shape& var = ctx.InputShape("PriorBoxVar");
    const bool one_for_all = var.rank() == 1 && InferContext::Matches(var[0], 4);
    const bool one_each = IsBoxes(var) && var.CompatibleWith(prior.shape);
    ctx.Require("C3", variance.empty() && (one_for_all || one_each), "PriorBoxVar", var, "PriorBox",
                prior.shape, "variance", variance);
  }
  ctx.Require("C4", variance.empty() || variance.size() == 4, variance);
  const int axis = ctx.Attr<int32_t>("axis") == 1 ? 1 : 0;
  VarMeta out = target;
  if (encode) {
    ctx.Require("C5", IsBoxes(target.shape), target);
    out.shape = {target.shape[0], prior.shape[0], 4};
  } else {
    const bool fits = target.shape.rank() == 3 && InferContext::Matches(target.shape[2], 4) &&
                      InferContext::Matches(target.shape[1 - axis], prior.shape[0]);
    ctx.Require("C6", fits, "TargetBox", target, "PriorBox", prior, "axis", axis);
  }
  ctx.SetOutput("OutputBox", out);
}

struct Variances {
  TensorArg of_priors;
  double fixed[4] = {1, 1, 1, 1};

  explicit Variances(const PrepareContext& ctx) : of_priors(ctx.Input("PriorBoxVar")) {
    const auto variance = ctx.Attr<Floats>("variance");
    for (size_t i = 0; i < variance.size(); ++i) fixed[i] = variance[i];
  }
  BoxDeltas Of(const Reals& priors, int64_t prior) const {
    if (!of_priors) return {fixed[0], fixed[1], fixed[2], fixed[3]};
    const Box v = ReadBox(priors, of_priors.shape.rank() == 1 ? 0 : 4 * prior);
    return {v.x1, v.y1, v.x2, v.y2};
  }
};

// Precomputed values of a prior. log|tw / pw| = log|tw| - log|pw|, so that pairs need no logarithm.
struct EncodingPrior {
  double x, y;            // centre
  double x_unit, y_unit;  // sizes times variances
  double log_w, log_h, var_w, var_h;
};

Kernel Encode(const PrepareContext& ctx, const Variances& variances, double extra) {
  const TensorArg prior = ctx.Input("PriorBox"), target = ctx.Input("TargetBox");
  const TensorArg out = ctx.Output("OutputBox");
  const int64_t rows = out.shape[0], columns = out.shape[1];
  const TensorArg scratch =
      ctx.Scratch(DType::kFloat64, {std::max<int64_t>(columns, 1), sizeof(EncodingPrior) / 8});
  return [=](Workspace& ws) {
    const Reals priors(ws, prior), targets(ws, target), vars(ws, variances.of_priors);
    const RealsOut to(ws, out);
    auto* of_prior = static_cast<EncodingPrior*>(ws.Data<void>(scratch));
    for (int64_t j = 0; j < columns; ++j) {
      const Box p = ReadBox(priors, 4 * j);
      const BoxDeltas v = variances.Of(vars, j);
      const double w = p.Width(extra), h = p.Height(extra);
      of_prior[j] = {p.x1 + w / 2,          p.y1 + h / 2,          w * v.x, h * v.y,
                     std::log(std::abs(w)), std::log(std::abs(h)), v.w,     v.h};
    }
    ParallelFor(rows, 1 + 4096 / std::max<int64_t>(columns, 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Box t = ReadBox(targets, 4 * i);
        const double x = (t.x1 + t.x2) / 2, y = (t.y1 + t.y2) / 2;
        const double log_w = std::log(std::abs(t.Width(extra)));
        const double log_h = std::log(std::abs(t.Height(extra)));
        for (int64_t j = 0; j < columns; ++j) {
          const EncodingPrior& p = of_prior[j];
          WriteBox(to, 4 * (i * columns + j),
                   {(x - p.x) / p.x_unit, (y - p.y) / p.y_unit, (log_w - p.log_w) / p.var_w,
                    (log_h - p.log_h) / p.var_h});
        }
      }
    });
    ws.OutputLod(out) = ws.LodOf(target);
  };
}

Kernel Decode(const PrepareContext& ctx, const Variances& variances, double extra) {
  const TensorArg prior = ctx.Input("PriorBox"), target = ctx.Input("TargetBox");
  const TensorArg out = ctx.Output("OutputBox");
  const bool by_row = ctx.Attr<int32_t>("axis") == 1;
  const int64_t rows = out.shape[0], columns = out.shape[1];
  return [=](Workspace& ws) {
    const Reals priors(ws, prior), targets(ws, target), vars(ws, variances.of_priors);
    const RealsOut to(ws, out);
    const auto prior_of = [&](int64_t at) { return by_row ? at / columns : at % columns; };
    // The boxes [first, first + n), whose exponentials are computed together.
    constexpr int64_t kBlock = 64;
    const auto decode = [&](int64_t first, int64_t n) {
      BoxDeltas deltas[kBlock];
      double ratios[2 * kBlock];
      for (int64_t i = 0; i < n; ++i) {
        const BoxDeltas v = variances.Of(vars, prior_of(first + i));
        const Box t = ReadBox(targets, 4 * (first + i));
        deltas[i] = {v.x * t.x1, v.y * t.y1};
        ratios[2 * i] = v.w * t.x2;
        ratios[2 * i + 1] = v.h * t.y2;
      }
      Exponentials(ratios, 2 * n);
      for (int64_t i = 0; i < n; ++i) {
        const BoxDeltas sized{deltas[i].x, deltas[i].y, ratios[2 * i], ratios[2 * i + 1]};
        const Box p = ReadBox(priors, 4 * prior_of(first + i));
        WriteBox(to, 4 * (first + i), ResizedBox(sized, p, extra));
      }
    };
    ParallelFor(rows * columns, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kBlock)
        decode(first, std::min(kBlock, end - first));
    });
    ws.OutputLod(out) = ws.LodOf(by_row ? prior : target);
  };
}

Kernel BoxCoder(const PrepareContext& ctx) {
  const Variances variances(ctx);
  const double extra = ctx.Attr<bool>("box_normalized") ? 0 : 1;
  const bool encode = ctx.Attr<std::string>("code_type") == "encode_center_size";
  return encode ? Encode(ctx, variances, extra) : Decode(ctx, variances, extra);
}

// ---- box_decoder_and_assign ----

void InferDecoder(InferContext& ctx) {
  const VarMeta &prior = ctx.Input("PriorBox"), &target = ctx.Input("TargetBox");
  const Shape& score = ctx.InputShape("BoxScore");
  RequireDTypeOf(ctx, "C1", "PriorBox", {"PriorBoxVar", "TargetBox", "BoxScore"});
  ctx.Require("C2", IsBoxes(prior.shape), prior);
  if (ctx.HasInput("PriorBoxVar")) {
    const Shape& var = ctx.InputShape("PriorBoxVar");
    ctx.Require("C3", var.rank() == 1 && InferContext::Matches(var[0], 4), var);
  }
  bool fits = target.shape.rank() == 2 && score.rank() == 2 && score[1] != 0;
  fits = fits && InferContext::Matches(target.shape[0], prior.shape[0]) &&
         InferContext::Matches(score[0], prior.shape[0]);
  fits = fits && (target.shape[1] < 0 || score[1] < 0 ||
                  (target.shape[1] % 4 == 0 && target.shape[1] / 4 == score[1]));
  ctx.Require("C4", fits, "PriorBox", prior, "TargetBox", target, "BoxScore", score);
  ctx.SetOutput("DecodeBox", target);
  ctx.SetOutput("OutputAssignBox", prior);
}

Kernel DecodeAndAssign(const PrepareContext& ctx) {
  const TensorArg prior = ctx.Input("PriorBox"), variance = ctx.Input("PriorBoxVar");
  const TensorArg target = ctx.Input("TargetBox"), score = ctx.Input("BoxScore");
  const TensorArg decoded = ctx.Output("DecodeBox"), assigned = ctx.Output("OutputAssignBox");
  const double most = ctx.Attr<float>("box_clip");
  const int64_t rows = prior.shape[0], classes = score.shape[1];
  return [=](Workspace& ws) {
    const Reals priors(ws, prior), vars(ws, variance), targets(ws, target), scores(ws, score);
    const RealsOut to(ws, decoded), best(ws, assigned);
    const Box v = variance ? ReadBox(vars, 0) : Box{1, 1, 1, 1};
    for (int64_t i = 0; i < rows; ++i) {
      const Box p = ReadBox(priors, 4 * i);
      Box chosen = p;
      double highest = -std::numeric_limits<double>::infinity();
      for (int64_t c = 0; c < classes; ++c) {
        const int64_t at = 4 * (i * classes + c);
        const Box t = ReadBox(targets, at);
        const Box box = DecodeBox({v.x1 * t.x1, v.y1 * t.y1, v.x2 * t.x2, v.y2 * t.y2}, p, 1, most);
        WriteBox(to, at, box);
        if (c == 0 || !(scores[i * classes + c] > highest)) continue;
        highest = scores[i * classes + c];
        chosen = box;
      }
      WriteBox(best, 4 * i, chosen);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("box_coder")
          .Doc("Encode: OutputBox[i, j] = ((tx - px) / pw, (ty - py) / ph, log|tw / pw|, log|th / "
               "ph|) / variance, of target i with centre (tx, ty) and prior j with centre (px, "
               "py). Decode: the box with those deltas. Boxes that are not normalized are one "
               "pixel larger than the difference of their corners.")
          .Constraint("C1", "inputs must have one dtype")
          .Constraint("C2", "PriorBox must be [M, 4]")
          .Constraint("C3", "PriorBoxVar must be [M, 4] or [4], without the attr variance")
          .Constraint("C4", "variance must be empty or four numbers")
          .Constraint("C5", "TargetBox must be [N, 4] to encode")
          .Constraint(
              "C6",
              "TargetBox must be [N, M, 4] (with axis 1, [M, N, 4]) to decode; M as in PriorBox")
          .Input("PriorBox", "tensor [M, 4]")
          .OptionalInput("PriorBoxVar",
                         "variances: tensor [M, 4], one row for each prior, or [4] for all priors")
          .Input("TargetBox", "boxes [N, 4], or deltas [N, M, 4]")
          .Output("OutputBox", "tensor [N, M, 4]")
          .Attr<std::string>("code_type", "encode_center_size",
                             "encode_center_size or decode_center_size")
          .OneOf({"encode_center_size", "decode_center_size"})
          .Attr<bool>("box_normalized", true, "whether boxes are normalized")
          .Attr<int32_t>("axis", 0,
                         "to decode: priors belong to dimension 1 - axis of "
                         "TargetBox")
          .Range(0, 1)
          .Attr<Floats>("variance", {}, "four variances for all priors; none: 1")
          .MakesLod()
          .NotDifferentiable("boxes are targets, or results of a detector")
          .Rows(RowRule::kEach)
          .Infer(InferBoxCoder)
          .Reference<float, double>(ForReals{BoxCoder}));
  ops.Add(OpDef("box_decoder_and_assign")
              .Doc("DecodeBox = the box with the deltas of each class, in whole pixels; "
                   "OutputAssignBox = the box of the class above 0 with the largest score, or the "
                   "prior box if there is no such class.")
              .Constraint("C1", "inputs must have one dtype")
              .Constraint("C2", "PriorBox must be [N, 4]")
              .Constraint("C3", "PriorBoxVar must be [4]")
              .Constraint("C4", "TargetBox must be [N, 4 C] and BoxScore [N, C], with C above 0")
              .Input("PriorBox", "tensor [N, 4]")
              .OptionalInput("PriorBoxVar", "tensor [4]; 1 when absent")
              .Input("TargetBox", "deltas [N, 4 C]")
              .Input("BoxScore", "tensor [N, C]")
              .Output("DecodeBox", "tensor [N, 4 C]")
              .Output("OutputAssignBox", "tensor [N, 4]")
              .Attr<float>("box_clip", 4.135f, "upper limit of the logarithms of size ratios")
              .NotDifferentiable("boxes are results of a detector")
              .Rows(RowRule::kEach)
              .Infer(InferDecoder)
              .Reference<float, double>(ForReals{DecodeAndAssign}));
}

}  // namespace coracle::box_coder_op
