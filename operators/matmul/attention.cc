// scaled_dot_product_attention: softmax(scale Q K^T + Mask) V without the matrix of scores.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/matmul/attention.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

namespace coracle::attention_op {

constexpr const char* kType = "scaled_dot_product_attention";

template <class Context>
bool HeadsInside(const Context& ctx) {
  return ctx.template Attr<std::string>("layout") != "BHSD";
}
// Whether Q, K and V are in one tensor.
template <class Context>
bool AreJoint(const Context& ctx) {
  return ctx.template Attr<std::string>("layout") == "BS3HD";
}
// The shape of Q, K or V in a joint tensor [B, S, 3, H, D].
Shape PartOf(const Shape& joint) { return {joint[0], joint[1], joint[3], joint[4]}; }

// --- shapes ---

void RequireRanks(const InferContext& ctx) {
  const bool joint = AreJoint(ctx);
  const int least = joint ? 5 : HeadsInside(ctx) ? 4 : 2, most = joint ? 5 : 4;
  for (const char* slot : {"Q", "K", "V"}) {
    if (slot[0] != 'Q') {
      ctx.Require("C1", ctx.HasInput(slot) != joint, "layout", ctx.Attr<std::string>("layout"),
                  slot, ctx.HasInput(slot));
      if (joint) continue;
    }
    const int rank = ctx.InputShape(slot).rank();
    ctx.Require("C1", rank <= most && rank >= least, slot, ctx.InputShape(slot));
  }
  if (joint)
    ctx.Require("C1", InferContext::Matches(ctx.InputShape("Q")[2], 3), "Q", ctx.InputShape("Q"));
  if (!ctx.HasInput("Mask")) return;
  ctx.Require("C1", ctx.InputShape("Mask").rank() <= 4, "Mask", ctx.InputShape("Mask"));
}

void RequireDTypes(const InferContext& ctx) {
  const DType dtype = ctx.InputDType("Q");
  const bool wide = SizeOf(dtype) >= 4;
  for (const char* slot : {"K", "V", "Mask", "Out", "Out@GRAD"}) {
    if (!ctx.spec().FindInput(slot) || !ctx.HasInput(slot)) continue;
    const DType other = ctx.InputDType(slot);
    const bool wide_mask = slot[0] == 'M' && !wide && other == DType::kFloat32;
    ctx.Require("C2", other == dtype || wide_mask, "Q", dtype, slot, other);
  }
}

void RequireStretch(const InferContext& ctx, std::string_view id, const char* a_slot, int64_t a,
                    const char* b_slot, int64_t b) {
  ctx.Require(id, a == 1 || b == 1 || InferContext::Matches(a, b), a_slot, a, b_slot, b);
}

AttentionShapes ShapesOf(const InferContext& ctx) {
  const Shape* mask = ctx.HasInput("Mask") ? &ctx.InputShape("Mask") : nullptr;
  const Shape& q = ctx.InputShape("Q");
  if (AreJoint(ctx)) return AlignAttention(PartOf(q), PartOf(q), PartOf(q), mask, true);
  return AlignAttention(q, ctx.InputShape("K"), ctx.InputShape("V"), mask, HeadsInside(ctx));
}

// Checks the inputs and returns the known sizes.
AttentionDims RequireDims(const InferContext& ctx) {
  RequireRanks(ctx);
  RequireDTypes(ctx);
  const AttentionShapes s = ShapesOf(ctx);
  const std::pair<const char*, const Shape*> all[] = {
      {"Q", &s.q}, {"K", &s.k}, {"V", &s.v}, {"Mask", &s.mask}};
  for (int dim = 0; dim < 2; ++dim) {
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b)
        RequireStretch(ctx, "C3", all[a].first, (*all[a].second)[dim], all[b].first,
                       (*all[b].second)[dim]);
    }
  }
  RequireStretch(ctx, "C4", "Mask", s.mask[2], "Q", s.q[2]);
  RequireStretch(ctx, "C4", "Mask", s.mask[3], "K", s.k[2]);
  ctx.Require("C5", InferContext::Matches(s.q[3], s.k[3]), "Q", s.q[3], "K", s.k[3]);
  const AttentionDims dims = DimsOf(s);
  ctx.Require("C6", InferContext::Matches(s.v[2], dims.keys), "V", s.v[2], "keys", dims.keys);
  const bool known = dims.rows >= 0 && dims.keys >= 0;
  ctx.Require("C7", !ctx.Attr<bool>("is_causal") || !known || dims.keys >= dims.rows, "rows",
              dims.rows, "keys", dims.keys);
  // Throws if the product is too large.
  MulDims(MulDims(dims.batch, dims.heads), MulDims(dims.rows, dims.keys));
  return dims;
}

int OutRank(const InferContext& ctx) {
  if (HeadsInside(ctx)) return 4;
  int rank = ctx.HasInput("Mask") ? ctx.InputShape("Mask").rank() : 0;
  for (const char* slot : {"Q", "K", "V"}) rank = std::max(rank, ctx.InputShape(slot).rank());
  return rank;
}

// The last `rank` of four dims.
Shape LastDims(const Shape& dims, int rank) {
  Shape shape;
  for (int i = 4 - rank; i < 4; ++i) shape.Append(dims[i]);
  return shape;
}
Shape OutShape(const InferContext& ctx, const AttentionDims& d) {
  if (HeadsInside(ctx)) return {d.batch, d.rows, d.heads, d.width};
  return LastDims({d.batch, d.heads, d.rows, d.width}, OutRank(ctx));
}
// The type of the weights, if they are kept.
VarMeta KeptOf(const InferContext& ctx, const AttentionDims& d) {
  VarMeta meta = ctx.Input("Q");
  meta.dtype = meta.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const int64_t kept = d.keys <= kMostKeptKeys ? d.keys : 0;
  meta.shape = LastDims({d.batch, d.heads, d.rows, kept}, OutRank(ctx));
  return meta;
}
VarMeta StatsOf(const InferContext& ctx, const AttentionDims& d) {
  VarMeta meta = ctx.Input("Q");
  meta.dtype = meta.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  meta.shape = LastDims({d.batch, d.heads, d.rows, 2}, OutRank(ctx));
  return meta;
}

void InferForward(InferContext& ctx) {
  const AttentionDims dims = RequireDims(ctx);
  VarMeta out = ctx.Input("Q");
  out.shape = OutShape(ctx, dims);
  ctx.SetOutput("Out", out);
  ctx.SetOutput("SoftmaxStats", StatsOf(ctx, dims));
  ctx.SetOutput("Weights", KeptOf(ctx, dims));
  ctx.SetOutput("SeedOffset", DType::kInt64, Shape{3});
}

// --- what kernels need to know ---

// The steps of an operand that is stored in the order of its shape.
AttentionSteps StepsOf(const Shape& aligned, bool heads_inside) {
  const int64_t columns = aligned[3], inner = heads_inside ? aligned[1] : aligned[2];
  AttentionSteps s;
  (heads_inside ? s.head : s.row) = columns;
  (heads_inside ? s.row : s.head) = MulDims(inner, columns);
  s.batch = MulDims(MulDims(aligned[1], aligned[2]), columns);
  if (aligned[0] == 1) s.batch = 0;
  if (aligned[1] == 1) s.head = 0;
  if (aligned[2] == 1) s.row = 0;
  if (columns == 1) s.column = 0;
  return s;
}

AttentionPlan PlanOf(const PrepareContext& ctx) {
  const bool heads_inside = HeadsInside(ctx), joint = AreJoint(ctx);
  const TensorArg mask = ctx.Input("Mask"), q = ctx.Input("Q");
  const Shape one = joint ? PartOf(q.shape) : q.shape;
  const AttentionShapes s =
      AlignAttention(one, joint ? one : ctx.Input("K").shape, joint ? one : ctx.Input("V").shape,
                     mask ? &mask.shape : nullptr, heads_inside);
  AttentionPlan p;
  static_cast<AttentionDims&>(p) = DimsOf(s);
  p.q = StepsOf(s.q, heads_inside);
  p.k = StepsOf(s.k, heads_inside);
  p.v = StepsOf(s.v, heads_inside);
  if (joint) {
    p.part = MulDims(s.q[1], p.depth);
    for (AttentionSteps* steps : {&p.q, &p.k, &p.v}) {
      steps->batch *= 3;
      steps->row *= 3;
    }
  }
  p.out = StepsOf({p.batch, p.heads, p.rows, p.width}, heads_inside);
  p.mask = StepsOf(s.mask, false);
  p.causal = ctx.Attr<bool>("is_causal");
  p.scale = static_cast<double>(ctx.Attr<float>("scale"));
  const auto whole = [&](const Shape& shape, int64_t rows) {
    return shape[0] == p.batch && shape[1] == p.heads && shape[2] == rows;
  };
  const bool batches = std::max({s.q[0], s.k[0], s.mask[0]}) > 1;
  const bool heads = std::max({s.q[1], s.k[1], s.mask[1]}) > 1;
  p.drawn_head = heads ? p.rows : 0;
  p.drawn_batch = batches ? (heads ? p.heads : 1) * p.rows : 0;
  p.repeats = !whole(s.q, p.rows) || !whole(s.k, p.keys) || !whole(s.v, p.keys);
  return p;
}

AttentionDrop DropOf(const PrepareContext& ctx) {
  const double p = std::clamp(static_cast<double>(ctx.Attr<float>("dropout_prob")), 0.0, 1.0);
  const bool upscale = ctx.Attr<std::string>("dropout_implementation") == "upscale_in_train";
  if (ctx.Attr<bool>("is_test")) return {false, p, upscale ? 1 : 1 - p};
  return {p > 0, p, upscale && p < 1 ? 1 / (1 - p) : 1};
}

// The source of the draws, as in dropout; the gradient repeats the same draws.
struct DrawSource {
  bool fixed;
  uint64_t seed, stream;
  explicit DrawSource(const PrepareContext& ctx)
      : fixed(ctx.Attr<bool>("fix_seed")),
        seed(static_cast<uint64_t>(ctx.Attr<int32_t>("seed"))),
        stream(ctx.RandomStream("Out")) {
    const auto name = ctx.Attr<std::string>("random_name");
    if (!name.empty()) stream = HashName(name);
  }
  // Seed, stream and step.
  std::array<uint64_t, 3> For(const Workspace& ws) const {
    if (fixed) return {seed, 0, 0};
    return {ws.seed(), stream, ws.step()};
  }
};

template <class T>
AttentionInput<T> InputOf(Workspace& ws, const AttentionPlan& plan,
                          const std::array<TensorArg, 4>& args) {
  const T* q = ws.Data<const T>(args[0]);
  return {q, args[1] ? ws.Data<const T>(args[1]) : q + plan.part,
          args[2] ? ws.Data<const T>(args[2]) : q + 2 * plan.part,
          args[3] ? ws.Data<const T>(args[3]) : nullptr};
}
std::array<TensorArg, 4> InputArgs(const PrepareContext& ctx) {
  return {ctx.Input("Q"), ctx.Input("K"), ctx.Input("V"), ctx.Input("Mask")};
}

bool IsFast(const AttentionPlan& p, KernelMode mode, bool backward) {
  const bool empty =
      p.batch == 0 || p.heads == 0 || p.rows == 0 || p.keys == 0 || p.depth == 0 || p.width == 0;
  // Gradients of repeated operands are sums over matrices.
  return mode == KernelMode::kAuto && !(backward && p.repeats) && !empty;
}

// Memory for the parts of the work.
struct Parts {
  int64_t count;
  TensorArg scratch;
  Parts(const PrepareContext& ctx, int64_t most, DType dtype, int64_t each)
      : count(std::clamp<int64_t>(most, 1, NumThreads())),
        scratch(ctx.Scratch(dtype, {count, each})) {}
};

// --- kernels ---

template <class T>
Kernel Forward(const PrepareContext& ctx, KernelMode mode) {
  const AttentionPlan plan = PlanOf(ctx);
  const AttentionDrop drop = DropOf(ctx);
  const DrawSource source(ctx);
  const auto in = InputArgs(ctx);
  const TensorArg out = ctx.Output("Out"), stats = ctx.Output("SoftmaxStats");
  const TensorArg drawn = ctx.Output("SeedOffset"), kept = ctx.Output("Weights");
  const int64_t rows = plan.batch * plan.heads * plan.rows;
  const bool fast = std::is_same_v<T, float> && IsFast(plan, mode, false);
  if (mode == KernelMode::kAuto && !fast) return {};
  const Parts parts(ctx, fast ? (rows + 15) / 16 : rows, fast ? DType::kFloat32 : DType::kFloat64,
                    fast ? AttentionFastScratch(plan, false) : AttentionScratch(plan));
  return [=](Workspace& ws) {
    const std::array<uint64_t, 3> seed = source.For(ws);
    const Philox random(seed[0], seed[1], seed[2]);
    for (size_t i = 0; drawn && i < 3; ++i)
      ws.Data<int64_t>(drawn)[i] = std::bit_cast<int64_t>(seed[i]);
    if (rows == 0) return;
    const AttentionInput<T> input = InputOf<T>(ws, plan, in);
    const AttentionOutput<T> output = {ws.Data<T>(out), stats ? ws.Data<T>(stats) : nullptr,
                                       kept && kept.numel > 0 ? ws.Data<T>(kept) : nullptr};
    if constexpr (std::is_same_v<T, float>) {
      if (fast)
        return AttentionFast(plan, drop, random, input, output, ws.Data<float>(parts.scratch),
                             parts.count);
    }
    AttentionReference(plan, drop, random, input, output, ws.Data<double>(parts.scratch),
                       parts.count);
  };
}

template <class T>
Kernel Backward(const PrepareContext& ctx, KernelMode mode) {
  const AttentionPlan plan = PlanOf(ctx);
  const AttentionDrop drop = DropOf(ctx);
  const auto in = InputArgs(ctx);
  const std::array<TensorArg, 4> to = {ctx.Output("Q@GRAD"), ctx.Output("K@GRAD"),
                                       ctx.Output("V@GRAD"), ctx.Output("Mask@GRAD")};
  const TensorArg out = ctx.Input("Out"), stats = ctx.Input("SoftmaxStats");
  const TensorArg dout = ctx.Input("Out@GRAD"), drawn = ctx.Input("SeedOffset");
  const TensorArg kept = ctx.Input("Weights");
  const bool joint = AreJoint(ctx);
  const bool fast = std::is_same_v<T, float> && IsFast(plan, mode, true);
  if (mode == KernelMode::kAuto && !fast) return {};
  const int64_t matrices =
      MatricesAreApart(plan, static_cast<bool>(to[3])) ? plan.batch * plan.heads : 1;
  const Parts parts(ctx, matrices, fast ? DType::kFloat32 : DType::kFloat64,
                    fast ? AttentionFastScratch(plan, true) : AttentionScratch(plan));
  return [=](Workspace& ws) {
    const auto pointer = [&](size_t i) -> T* {
      if (joint && i < 3 && to[0] && to[0].numel > 0)
        return ws.Data<T>(to[0]) + static_cast<int64_t>(i) * plan.part;
      return to[i] ? ws.Data<T>(to[i]) : nullptr;
    };
    const AttentionGrads<T> grads = {ws.Data<const T>(out),
                                     ws.Data<const T>(stats),
                                     kept && kept.numel > 0 ? ws.Data<const T>(kept) : nullptr,
                                     ws.Data<const T>(dout),
                                     pointer(0),
                                     pointer(1),
                                     pointer(2),
                                     pointer(3)};
    for (size_t i = fast ? 3 : 0; i < 4; ++i) {
      if (to[i]) std::fill_n(ws.Data<T>(to[i]), to[i].numel, T(0));
    }
    if (plan.batch * plan.heads * plan.rows == 0) return;
    uint64_t seed[3] = {};
    for (size_t i = 0; drawn && i < 3; ++i)
      seed[i] = std::bit_cast<uint64_t>(ws.Data<const int64_t>(drawn)[i]);
    const Philox random(seed[0], seed[1], seed[2]);
    const AttentionInput<T> input = InputOf<T>(ws, plan, in);
    if constexpr (std::is_same_v<T, float>) {
      if (fast)
        return AttentionGradFast(plan, drop, random, input, grads, ws.Data<float>(parts.scratch),
                                 parts.count);
    }
    AttentionGradReference(plan, drop, random, input, grads, ws.Data<double>(parts.scratch),
                           parts.count);
  };
}

// --- gradient ---

bool Draws(const GradientContext& g) {
  return !g.Attr<bool>("is_test") && g.Attr<float>("dropout_prob") > 0;
}

void AttentionGradient(GradientContext& g) {
  for (const char* slot : {"SoftmaxStats", "SeedOffset"}) {
    if (g.HasOutput(slot) || (slot[1] == 'e' && !Draws(g))) continue;
    ThrowInvalid(std::string(kType) + ": needs its output " + slot +
                     " to be differentiated, and the op has none",
                 Locate(g.op()));
  }
  SlotList inputs = g.ForwardInputs({"Q", "K", "V", "Mask"});
  inputs.push_back({"Out", {g.Output("Out")}});
  inputs.push_back({"SoftmaxStats", {g.Output("SoftmaxStats")}});
  if (g.HasOutput("Weights")) inputs.push_back({"Weights", {g.Output("Weights")}});
  if (Draws(g)) inputs.push_back({"SeedOffset", {g.Output("SeedOffset")}});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("Out")}});
  SlotList outputs;
  for (const char* slot : {"Q", "K", "V", "Mask"}) {
    if (g.HasInput(slot)) outputs.push_back({std::string(slot) + "@GRAD", {g.InputGrad(slot)}});
  }
  const std::string type = std::string(kType) + "_grad";
  g.Append(type, std::move(inputs), std::move(outputs), g.ForwardAttrs(type));
}

void InferGrad(InferContext& ctx) {
  const AttentionDims dims = RequireDims(ctx);
  const Shape out = OutShape(ctx, dims);
  for (const char* slot : {"Out", "Out@GRAD"})
    ctx.Require("C8", out.CompatibleWith(ctx.InputShape(slot)), slot, ctx.Input(slot), "Out", out);
  const auto require = [&](const char* slot, const VarMeta& meta) {
    const VarMeta& given = ctx.Input(slot);
    ctx.Require("C8", meta.dtype == given.dtype && meta.shape.CompatibleWith(given.shape), slot,
                given, "not", meta);
  };
  require("SoftmaxStats", StatsOf(ctx, dims));
  if (ctx.HasInput("Weights")) require("Weights", KeptOf(ctx, dims));
  const bool draws = !ctx.Attr<bool>("is_test") && ctx.Attr<float>("dropout_prob") > 0;
  const VarMeta* seed = ctx.HasInput("SeedOffset") ? &ctx.Input("SeedOffset") : nullptr;
  ctx.Require("C9", seed || !draws, "dropout_prob", ctx.Attr<float>("dropout_prob"));
  if (seed) {
    ctx.Require("C9", seed->dtype == DType::kInt64 && seed->shape.CompatibleWith(Shape{3}),
                "SeedOffset", *seed);
  }
  for (const char* slot : {"Q", "K", "V", "Mask"}) {
    if (ctx.HasInput(slot)) ctx.SetOutput(std::string(slot) + "@GRAD", ctx.Input(slot));
  }
}

// --- declarations ---

void DeclareInputs(OpDef& def) {
  def.Input("Q",
            "floating-point tensor [B, H, rows, D]; [B, rows, H, D] with layout BSHD; Q, K and V "
            "together, [B, rows, 3, H, D], with layout BS3HD")
      .OptionalInput("K", "tensor [B, H, keys, D], or [B, keys, H, D]; absent with layout BS3HD")
      .OptionalInput("V", "tensor [B, H, keys, E], or [B, keys, H, E]; absent with layout BS3HD")
      .OptionalInput("Mask",
                     "tensor that can be broadcast to [B, H, rows, keys], added to the scores; may "
                     "be float32 with 16-bit inputs");
}

void DeclareAttrs(OpDef& def) {
  def.Attr<float>("scale", 1.0f, "factor of Q K^T; usually 1 / sqrt(D)")
      .Attr<bool>("is_causal", false,
                  "row i sees the keys up to i + keys - rows: rows are the last positions")
      .Attr<float>("dropout_prob", 0.0f, "probability that a weight becomes 0")
      .Range(0, 1)
      .Attr<bool>("is_test", false, "no weight is dropped")
      .Attr<std::string>(
          "dropout_implementation", "upscale_in_train",
          "upscale_in_train: kept weights are divided by 1 - dropout_prob in training; "
          "downgrade_in_infer: all are multiplied by 1 - dropout_prob in a test")
      .OneOf({"downgrade_in_infer", "upscale_in_train"})
      .Attr<std::string>("layout", "BHSD",
                         "order of the dims of Q, K, V and Out: batch, heads, sequence, columns; "
                         "BS3HD: the order of Q, which holds Q, K and V; Out is BSHD")
      .OneOf({"BHSD", "BSHD", "BS3HD"})
      .Attr<bool>("keeps_lod", false,
                  "whether Out has Q's LoD, as the products have that the op replaces");
}

// Two products for each batch, head, query and key, by the shape of Q. Ignores that a causal mask
// needs only half of that.
double AttentionMultiplyAdds(const OpShapes& op) {
  const Shape *q = op.In("Q"), *k = op.In("K"), *v = op.In("V");
  if (!q || q->rank() < 2) return 0;
  const int rank = q->rank();
  // One tensor [batch, rows, 3, heads, columns] holds Q, K and V.
  if (!k || !v) return rank == 5 ? 2 * (Elements(*q) / 3) * Elements(*q, 1, 2) : 0;
  const int keys = k->rank() - (op.Attr<std::string>("layout") == "BSHD" ? 3 : 2);
  if (keys < 0 || v->rank() < 1) return 0;
  const double columns = Elements(*q, rank - 1, rank) + Elements(*v, v->rank() - 1, v->rank());
  return Elements(*q, 0, rank - 1) * Elements(*k, keys, keys + 1) * columns;
}

// With other layouts than BHSD, rows are accepted on axis 0 only.
RowEffect AttentionRows(const RowQuery& query) {
  const bool heads = query.spec.AttrOf<std::string>(query.op, "layout") == "BHSD";
  const bool each = query.axis == 0 ? query.rank != 2 : heads && query.axis < query.rank - 2;
  return each ? RowRule::kEach : RowRule::kMixes;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef(kType)
          .Apply(DeclareAttrs)
          .Doc("Out = softmax(scale Q K^T + Mask) V for each batch and head: the mean of the rows "
               "of V, weighted by how well a row of Q matches the rows of K. Leading dims may be "
               "left out, and dims of 1 are broadcast, including dims of the scores if Mask is "
               "larger. With dropout_prob, weights are dropped after the softmax, with the random "
               "draws of the op dropout. The scores are computed tile by tile; as a whole they "
               "exist only as Weights. A row whose scores are all -inf becomes nan, as in the op "
               "softmax; without keys Out is 0.")
          .Constraint("C1",
                      "Q, K and V must have rank 2 to 4, with layout BSHD 4, and Mask at most 4; "
                      "with layout BS3HD Q must be [B, rows, 3, H, D], and K and V absent")
          .Constraint("C2", "all must have one dtype; Mask may be float32 with 16-bit inputs")
          .Constraint("C3", "batches and heads must be equal or 1")
          .Constraint("C4", "the last dims of Mask must be the rows and keys, or 1")
          .Constraint("C5", "Q and K must have the same number of columns")
          .Constraint("C6", "V must have one row for each key")
          .Constraint("C7", "is_causal needs as many keys as rows, or more")
          .Apply(DeclareInputs)
          .Output("Out", "tensor [B, H, rows, E], or [B, rows, H, E], of Q's dtype")
          .IntermediateOutput("SoftmaxStats",
                              "float32 tensor (float64 with float64 inputs) [B, H, rows, 2]: the "
                              "maximum of a row's scores, and the sum of exp(score - maximum)")
          .IntermediateOutput("Weights",
                              "of the same dtype, [B, H, rows, keys]: the weights before dropout, "
                              "kept for the gradient, which recomputes them if they are absent. "
                              "With more than 256 keys they are not kept, and the last dim is 0")
          .IntermediateOutput("SeedOffset",
                              "int64 [3]: seed, stream and step of the draws, for the gradient")
          .Attr<bool>("fix_seed", false, "only the attr seed decides what is dropped")
          .Attr<int32_t>("seed", 0, "used with fix_seed")
          .Attr<std::string>("random_name", "",
                             "name that seeds the random draws instead of Out's, if not empty")
          .NoLod()
          .Random()
          .ComputesIn(OpPrecision::kLow)
          .Float32Slots({"SoftmaxStats", "Weights"})
          .Rows(AttentionRows, "each by itself, unless they are queries, keys or columns")
          .MultiplyAdds({}, AttentionMultiplyAdds)
          .Infer(InferForward)
          .Gradient(AttentionGradient)
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return Forward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Q").dtype != DType::kFloat32) return {};
            return Forward<float>(c, KernelMode::kAuto);
          }));
  ops.Add(
      OpDef(std::string(kType) + "_grad")
          .Apply(DeclareAttrs)
          .Doc("Gradient of scaled_dot_product_attention, tile by tile: with the recomputed "
               "weights P and their dropout factors D, V@GRAD = (P D)^T Out@GRAD, the gradient of "
               "the scores S = P (D (Out@GRAD V^T) - rowsum(Out@GRAD Out)), Q@GRAD = scale S K, "
               "K@GRAD = scale S^T Q, Mask@GRAD = S, summed where an input was broadcast.")
          .ConstraintsOf(kType, {"C1", "C2", "C3", "C4", "C5", "C6", "C7"})
          .Constraint(
              "C8",
              "Out, SoftmaxStats, Weights and Out@GRAD must have their types in the forward op")
          .Constraint("C9",
                      "SeedOffset must be int64 [3], and must be present if weights are dropped")
          .Apply(DeclareInputs)
          .Input("Out", "the value in the forward op")
          .Input("SoftmaxStats", "the value in the forward op")
          .OptionalInput("Weights", "Weights of the forward op, if kept")
          .OptionalInput("SeedOffset", "SeedOffset of the forward op; read if weights are dropped")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalOutput("Q@GRAD", "gradient of Q")
          .OptionalOutput("K@GRAD", "gradient of K")
          .OptionalOutput("V@GRAD", "gradient of V")
          .OptionalOutput("Mask@GRAD", "gradient of Mask")
          .NoLod()
          .Float32Slots({"SoftmaxStats", "Weights"})
          // The gradients of scores and weights are always computed.
          .MultiplyAdds({}, [](const OpShapes& op) { return 2 * AttentionMultiplyAdds(op); })
          .Infer(InferGrad)
          .NoGradient("second derivatives of attention are not provided; matmul and softmax have "
                      "them")
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return Backward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Q").dtype != DType::kFloat32) return {};
            return Backward<float>(c, KernelMode::kAuto);
          }));
}

}  // namespace coracle::attention_op
