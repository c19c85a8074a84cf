// Layers of matrix products: fc, its gradient, and fusion_repeated_fc_relu.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/gemm_packed.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::fc_op {

constexpr int64_t kPadding = 4;  // rows and columns that padding_weights adds to W

// [M] or [1, M].
bool IsBias(const Shape& shape, int64_t columns) {
  const int rank = shape.rank();
  return (rank == 1 || (rank == 2 && InferContext::Matches(shape[0], 1))) &&
         InferContext::Matches(shape[rank - 1], columns);
}

// The activations: ops with their default attrs, except gelu_tanh, which is gelu with approximate.
struct Activation {
  const char* name;
  simd::Unary loop;
  simd::Params params;  // their attrs
};
constexpr std::array<Activation, 8> kActivations = {
    {{"relu", simd::Unary::kRelu, {}},
     {"relu6", simd::Unary::kRelu6, {6, 0, 0}},
     {"sigmoid", simd::Unary::kSigmoid, {}},
     {"tanh", simd::Unary::kTanh, {}},
     {"gelu", simd::Unary::kGeluErf, {}},
     {"gelu_tanh", simd::Unary::kGeluTanh, {}},
     {"swish", simd::Unary::kSwish, {1, 0, 0}},
     {"hard_swish", simd::Unary::kHardSwish, {6, 6, 3}}}};
const Activation* FindActivation(std::string_view name) {
  for (const Activation& a : kActivations) {
    if (name == a.name) return &a;
  }
  return nullptr;
}
// The formulas in the order of kActivations.
template <class T>
using Formula = T (*)(T x, const activation::P<T>& p);
template <class T>
constexpr std::array<Formula<T>, kActivations.size()> kFormulas = {
    activation::Relu::Value<T>,  activation::Relu6::Value<T>,    activation::Sigmoid::Value<T>,
    activation::Tanh::Value<T>,  activation::Gelu::Value<T>,     activation::GeluTanh::Value<T>,
    activation::Swish::Value<T>, activation::HardSwish::Value<T>};
// The derivative of activations whose gradient fc_gradients computes from their input.
template <class T>
Formula<T> SlopeOf(std::string_view activation) {
  if (activation == "gelu") return activation::Gelu::Slope<T>;
  if (activation == "gelu_tanh") return activation::GeluTanh::Slope<T>;
  return activation == "swish" ? activation::Swish::Slope<T> : nullptr;
}

// The number of leading dims that are rows of Input; 0 if in_num_col_dims is out of range.
int RowDims(int32_t attr, int rank) {
  const int rows = attr < 0 ? attr + rank : attr;
  return rows > 0 && rows < rank ? rows : 0;
}

// Checks Input and W, and returns the type of Out.
VarMeta FcOut(InferContext& ctx, int64_t padding) {
  const VarMeta& in = ctx.Input("Input");
  const Shape& w = ctx.InputShape("W");
  const int rank = in.shape.rank(), rows = RowDims(ctx.Attr<int32_t>("in_num_col_dims"), rank);
  ctx.Require("C1", rows > 0, "in_num_col_dims", ctx.Attr<int32_t>("in_num_col_dims"), "Input",
              in.shape);
  const int64_t width = ProductOfDims(in.shape, rows, rank);
  const bool matrix = w.rank() == 2 && (w[1] < 0 || w[1] >= padding);
  ctx.Require("C2", matrix && InferContext::Matches(w[0], AddDims(width, padding)), "W", w, "width",
              width);
  Shape out;
  for (int i = 0; i < rows; ++i) out.Append(in.shape[i]);
  out.Append(w[1] < 0 ? -1 : w[1] - padding);
  return {VarType::kLoDTensor, in.dtype, out, 0};
}

// W may have 16 bits where Input has 32.
bool HasHalfWeight(DType input, DType w) {
  return input == DType::kFloat32 && w == DType::kBFloat16;
}

void InferFc(InferContext& ctx) {
  const VarMeta out = FcOut(ctx, ctx.Attr<bool>("padding_weights") ? kPadding : 0);
  if (!HasHalfWeight(out.dtype, ctx.InputDType("W"))) RequireSameDType(ctx, "C4", "W", "Input");
  const int64_t columns = out.shape[out.shape.rank() - 1];
  if (ctx.HasInput("Bias")) {
    ctx.Require("C3", IsBias(ctx.InputShape("Bias"), columns), "Bias", ctx.InputShape("Bias"),
                "columns", columns);
    RequireSameDType(ctx, "C4", "Bias", "Input");
  }
  ctx.SetOutput("Out", out);
  ctx.SetOutput("Z", out);
}

// The sizes of the product.
struct FcSizes {
  int64_t m, n, k;
  FcSizes(const PrepareContext& ctx, int64_t columns) : n(columns) {
    const Shape& in = ctx.Input("Input").shape;
    const int rows = RowDims(ctx.Attr<int32_t>("in_num_col_dims"), in.rank());
    m = in.Product(0, rows);
    k = in.Product(rows, in.rank());
  }
};

// W without its padding, in memory of the op.
struct PlainWeight {
  TensorArg w, plain;
  int64_t k, n;
  PlainWeight(const PrepareContext& ctx, const FcSizes& sizes)
      : w(ctx.Input("W")), k(sizes.k), n(sizes.n) {
    if (ctx.Attr<bool>("padding_weights")) plain = ctx.Scratch(w.dtype, {k, n});
  }
  template <class T>
  const T* Read(Workspace& ws) const {
    if (!plain) return ws.Data<const T>(w);
    T* to = ws.Data<T>(plain);
    for (int64_t i = 0; i < k; ++i)
      std::copy_n(ws.Data<const T>(w) + i * (n + kPadding), n, to + i * n);
    return to;
  }
};

// Adds a bias (if there is one) to every row and applies the activation, whose input is stored in z
// (unless null).
template <class T>
void Finish(T* rows, int64_t count, int64_t columns, const T* bias, Formula<T> formula,
            const activation::P<T>& params, T* z = nullptr) {
  for (int64_t r = 0; r < count; ++r) {
    T* row = rows + r * columns;
    for (int64_t j = 0; j < columns; ++j) {
      const T value = bias ? row[j] + bias[j] : row[j];
      if (z) z[r * columns + j] = value;
      row[j] = formula ? formula(value, params) : value;
    }
  }
}

template <class T>
KernelOf<T> Fc(const PrepareContext& ctx) {
  if (HasHalfWeight(ctx.Input("Input").dtype, ctx.Input("W").dtype))
    return {PrepareInFloat(ctx, KernelMode::kReference)};
  const TensorArg in = ctx.Input("Input"), bias = ctx.Input("Bias"), out = ctx.Output("Out");
  const TensorArg z = ctx.Output("Z");
  const FcSizes sizes(ctx, out.shape[out.shape.rank() - 1]);
  const PlainWeight w(ctx, sizes);
  const Activation* act = FindActivation(ctx.Attr<std::string>("activation_type"));
  const Formula<T> formula = act ? kFormulas<T>[act - kActivations.data()] : nullptr;
  const activation::P<T> params =
      act ? activation::P<T>{act->params.a, act->params.b, act->params.c} : activation::P<T>{};
  const auto gemm = MakeGemm<T>({.m = sizes.m, .n = sizes.n, .k = sizes.k}, KernelMode::kReference);
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    gemm(ws.Data<const T>(in), w.Read<T>(ws), o);
    Finish<T>(o, sizes.m, sizes.n, bias ? ws.Data<const T>(bias) : nullptr, formula, params,
              z ? ws.Data<T>(z) : nullptr);
  };
}

GemmFinish FinishOf(const Activation* act) {
  if (!act) return {};
  return {nullptr, simd::FindUnary(act->loop), act->params};
}

// The product is stored in Z, and one sweep over it adds the bias and computes Out.
Kernel FcWithZ(const PrepareContext& ctx, const GemmSpec& spec, const PlainWeight& w,
               const GemmFinish& finish) {
  static const simd::BinaryLoop add =
      simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  const TensorArg in = ctx.Input("Input"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out"), z = ctx.Output("Z");
  return [=](Workspace& ws) {
    float *before = ws.Data<float>(z), *after = ws.Data<float>(out);
    const float* added = bias ? ws.Data<const float>(bias) : nullptr;
    RunGemms({{spec, ws.Data<const float>(in), w.Read<float>(ws), before, {}}});
    ParallelFor(spec.m, 1 + 16384 / (1 + spec.n), [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * spec.n; at < end * spec.n; at += spec.n) {
        if (added) add(before + at, added, before + at, spec.n);
        if (finish.activation)
          finish.activation(before + at, after + at, spec.n, finish.params);
        else
          std::copy_n(before + at, spec.n, after + at);
      }
    });
  };
}

Kernel FcOfHalfWeight(const PrepareContext& ctx, const GemmSpec& spec, const GemmFinish& finish) {
  if (!ctx.HasOutput("Z") && !ctx.Attr<bool>("padding_weights")) {
    const TensorArg in = ctx.Input("Input"), bias = ctx.Input("Bias"), out = ctx.Output("Out");
    if (const auto packed = MakePackedHalfGemm(ctx, "W", spec, finish, static_cast<bool>(bias))) {
      return [=](Workspace& ws) {
        packed(ws, ws.Data<const float>(in), bias ? ws.Data<const float>(bias) : nullptr,
               ws.Data<float>(out));
      };
    }
  }
  return PrepareInFloat(ctx, KernelMode::kAuto);
}

Kernel FcFast(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), bias = ctx.Input("Bias"), out = ctx.Output("Out");
  if (in.dtype != DType::kFloat32) return {};
  const FcSizes sizes(ctx, out.shape[out.shape.rank() - 1]);
  const PlainWeight w(ctx, sizes);
  const GemmSpec spec = {.m = sizes.m, .n = sizes.n, .k = sizes.k};
  const GemmFinish finish = FinishOf(FindActivation(ctx.Attr<std::string>("activation_type")));
  if (w.w.dtype != DType::kFloat32) return FcOfHalfWeight(ctx, spec, finish);
  if (ctx.HasOutput("Z")) return FcWithZ(ctx, spec, w, finish);
  if (!w.plain) {
    if (const auto packed = MakePackedGemm(ctx, "W", spec, finish, static_cast<bool>(bias))) {
      return [=](Workspace& ws) {
        packed(ws, ws.Data<const float>(in), bias ? ws.Data<const float>(bias) : nullptr,
               ws.Data<float>(out));
      };
    }
  }
  return [=](Workspace& ws) {
    GemmFinish then = finish;
    if (bias) then.bias = ws.Data<const float>(bias);
    RunGemms({{spec, ws.Data<const float>(in), w.Read<float>(ws), ws.Data<float>(out), then}});
  };
}

// The gradient of the activation's input.
Variable BeforeActivation(GradientContext& g) {
  const std::string name = g.Attr<std::string>("activation_type");
  if (name.empty()) return g.Grad("Out");
  const std::string dout = g.Grad("Out").name();
  if (name == "relu" || name == "relu6" || name == "sigmoid" || name == "tanh") {
    return g.Make(name + "_grad", {{"Out", {g.Output("Out")}}, {"Out@GRAD", {dout}}}, {}, "X@GRAD");
  }
  const Variable z = g.HasOutput("Z")
                         ? g.Out("Z")
                         : g.Make("fc", g.ForwardInputs({"Input", "W", "Bias"}),
                                  g.ForwardAttrs({"in_num_col_dims", "padding_weights"}));
  const bool tanh = name == "gelu_tanh";
  return g.Make((tanh ? "gelu" : name) + "_grad", {{"X", {z.name()}}, {"Out@GRAD", {dout}}},
                tanh ? AttrList{{"approximate", true}} : AttrList{}, "X@GRAD");
}

// With dZ the gradient before the activation: dInput = dZ W^T, dW = Input^T dZ, dBias = sum of dZ.
void FcGradient(GradientContext& g) {
  const int32_t rows = RowDims(g.Attr<int32_t>("in_num_col_dims"), g.In("Input").shape().rank());
  Variable dz = BeforeActivation(g);
  if (g.HasOutputGrad("Z")) dz = dz + g.Grad("Z");
  const bool half = HasHalfWeight(g.In("Input").dtype(), g.In("W").dtype());
  std::string w = half ? Cast(g.In("W"), DType::kFloat32).name() : g.Input("W");
  const bool padded = g.Attr<bool>("padding_weights");
  constexpr auto kEnd = static_cast<int32_t>(kPadding);
  if (padded) {
    const std::vector<int32_t> ends = {-kEnd, -kEnd};  // counted from the end of W
    w = g.Make("slice", {{"Input", {w}}},
               {{"axes", std::vector<int32_t>{0, 1}},
                {"starts", std::vector<int32_t>{0, 0}},
                {"ends", ends}})
            .name();
  }
  const auto grad = [&](const char* slot) {
    return g.Make("mul_grad", {{"X", {g.Input("Input")}}, {"Y", {w}}, {"Out@GRAD", {dz.name()}}},
                  {{"x_num_col_dims", rows}}, slot);
  };
  g.Set("Input", grad("X@GRAD"));
  Variable dw = grad("Y@GRAD");
  if (padded)
    dw =
        g.Make("pad", {{"X", {dw.name()}}}, {{"paddings", std::vector<int32_t>{0, kEnd, 0, kEnd}}});
  g.Set("W", half ? Cast(dw, DType::kBFloat16) : dw);
  if (!g.NeedsInputGrad("Bias")) return;
  std::vector<int32_t> dims;
  for (int32_t i = 0; i < rows; ++i) dims.push_back(i);
  const Variable dbias = Sum(dz, dims);
  g.Set("Bias", g.In("Bias").shape().rank() == 1 ? dbias : Reshape(dbias, {1, -1}));
}

// --- the gradient in one op, as passes make it ---

// The input that the gradient of the activation reads; nullptr without activation.
const char* ReadByActivation(std::string_view activation) {
  return activation.empty() ? nullptr : activation == "relu" ? "Out" : "Z";
}

void InferFcGrad(InferContext& ctx) {
  const VarMeta out = FcOut(ctx, 0);
  RequireSameDType(ctx, "C4", "W", "Input");
  RequireOutGrad(ctx, "C5", out);
  const char* read = ReadByActivation(ctx.Attr<std::string>("activation_type"));
  ctx.Require("C6",
              !read || (ctx.HasInput(read) && ctx.InputDType(read) == out.dtype &&
                        ctx.InputShape(read).CompatibleWith(ctx.InputShape("Out@GRAD"))),
              "activation_type", ctx.Attr<std::string>("activation_type"), "Out@GRAD",
              ctx.Input("Out@GRAD"));
  ctx.SetOutput("Input@GRAD", ctx.Input("Input"));
  ctx.SetOutput("W@GRAD", ctx.Input("W"));
  const int64_t columns = out.shape[out.shape.rank() - 1];
  VarMeta bias = {VarType::kLoDTensor, out.dtype, {columns}, 0};
  if (ctx.HasInput("Bias")) {
    bias = ctx.Input("Bias");
    ctx.Require("C3", IsBias(bias.shape, columns), "Bias", bias.shape, "columns", columns);
    RequireSameDType(ctx, "C4", "Bias", "Input");
  }
  ctx.SetOutput("Bias@GRAD", bias);
  ctx.SetOutput("Z@GRAD", ctx.Input("Out@GRAD"));
}

struct FcGradArgs {
  TensorArg in, w, dout, din, dw, dbias;
  std::string activation;
  FcSizes sizes;
  TensorArg dz;    // with an activation, or if it is an output
  TensorArg read;  // with an activation
  GemmSpec to_in, to_w;

  explicit FcGradArgs(const PrepareContext& ctx)
      : in(ctx.Input("Input")),
        w(ctx.Input("W")),
        dout(ctx.Input("Out@GRAD")),
        din(ctx.Output("Input@GRAD")),
        dw(ctx.Output("W@GRAD")),
        dbias(ctx.Output("Bias@GRAD")),
        activation(ctx.Attr<std::string>("activation_type")),
        sizes(ctx, w.shape[1]),
        dz(ctx.Output("Z@GRAD")) {
    const auto& [m, n, k] = sizes;
    if (const char* slot = ReadByActivation(activation)) read = ctx.Input(slot);
    if (read && !dz) dz = ctx.Scratch(dout.dtype, {m, n});
    to_in = {.m = m, .n = k, .k = n, .transpose_b = true};
    to_w = {.m = k, .n = n, .k = m, .transpose_a = true};
  }
};

template <class T>
KernelOf<T> FcGrad(const PrepareContext& ctx) {
  const FcGradArgs a(ctx);
  const Formula<T> slope = SlopeOf<T>(a.activation);
  const activation::P<T> params = {T(1)};
  return [=](Workspace& ws) {
    const T* d = ws.Data<const T>(a.dout);
    const auto& [m, n, k] = a.sizes;
    if (a.dz) {
      T* dz = ws.Data<T>(a.dz);
      const T* v = a.read ? ws.Data<const T>(a.read) : nullptr;
      for (int64_t i = 0; i < m * n; ++i)
        dz[i] = slope ? d[i] * slope(v[i], params) : v && v[i] <= 0 ? T(0) : d[i];
      d = dz;
    }
    for (int64_t j = 0; a.dbias && j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < m; ++i) sum += static_cast<double>(d[i * n + j]);
      ws.Data<T>(a.dbias)[j] = static_cast<T>(sum);
    }
    constexpr KernelMode mode = KernelMode::kReference;
    if (a.din) RunGemm(a.to_in, mode, d, ws.Data<const T>(a.w), ws.Data<T>(a.din));
    if (a.dw) RunGemm(a.to_w, mode, ws.Data<const T>(a.in), d, ws.Data<T>(a.dw));
  };
}

// One sweep over Out@GRAD applies the gradient of the activation and sums the gradient of the bias;
// then both products run in one parallel region.
Kernel FcGradFast(const PrepareContext& ctx) {
  if (ctx.Input("Input").dtype != DType::kFloat32) return {};
  const FcGradArgs a(ctx);
  const bool over_rows[] = {true, false};
  const FastSumPlan plan = MakeFastSumPlan(MakeReduceNest({a.sizes.m, a.sizes.n}, over_rows));
  TensorArg partial;
  if (a.dbias && plan.scratch_floats > 0)
    partial = ctx.Scratch(DType::kFloat32, {plan.scratch_floats});
  const Activation* act = FindActivation(a.activation);
  const simd::GradLoop act_grad = act ? simd::FindUnaryGrad(act->loop) : nullptr;
  const simd::Params params = act ? act->params : simd::Params();
  return [=](Workspace& ws) {
    const float* dout = ws.Data<const float>(a.dout);
    const float* v = a.read ? ws.Data<const float>(a.read) : nullptr;
    float* dz = a.dz ? ws.Data<float>(a.dz) : nullptr;
    const float* d = dz ? dz : dout;
    const auto before_activation = [&](int64_t offset, int64_t count, float*) -> const float* {
      if (!dz) return dout + offset;
      if (v)
        act_grad(v + offset, dout + offset, dz + offset, count, params);
      else if (dz != dout)
        std::copy_n(dout + offset, count, dz + offset);
      return dz + offset;
    };
    if (a.dbias) {
      FastSum(plan, before_activation, 1.0f, ws.Data<float>(a.dbias),
              partial ? ws.Data<float>(partial) : nullptr);
      const auto term = [d](int64_t at) { return static_cast<double>(d[at]); };
      RepairSums(plan, term, 1.0f, ws.Data<float>(a.dbias));
    } else if (dz) {
      ParallelFor(a.dz.numel, 16384, [&](int64_t begin, int64_t end) {
        before_activation(begin, end - begin, nullptr);
      });
    }
    const auto data = [&] {
      return GemmTask{a.to_in, d, ws.Data<const float>(a.w), ws.Data<float>(a.din)};
    };
    const auto weight = [&] {
      return GemmTask{a.to_w, ws.Data<const float>(a.in), d, ws.Data<float>(a.dw)};
    };
    if (a.din && a.dw) {
      RunGemms({data(), weight()});
    } else if (a.din) {
      RunGemms({data()});
    } else if (a.dw) {
      RunGemms({weight()});
    }
  };
}

// --- fusion_repeated_fc_relu ---

void InferRepeated(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 2, x.shape);
  const size_t layers = ctx.NumInputs("W");
  ctx.Require("C2",
              layers >= 2 && ctx.NumInputs("Bias") == layers &&
                  (!ctx.HasOutput("ReluOut") || ctx.NumOutputs("ReluOut") == layers - 1),
              "W", layers, "Bias", ctx.NumInputs("Bias"), "ReluOut", ctx.NumOutputs("ReluOut"));
  for (size_t i = 0; i < layers; ++i) {
    const VarMeta &w = ctx.Input("W", i), &bias = ctx.Input("Bias", i);
    const bool fits = w.shape.rank() == 2 && InferContext::Matches(w.shape[0], x.shape[1]);
    ctx.Require("C3", fits && IsBias(bias.shape, w.shape[1]), "W", w, "Bias", bias, "X", x);
    ctx.Require("C4", w.dtype == x.dtype && bias.dtype == x.dtype, "W", w, "Bias", bias, "X", x);
    x.shape[1] = w.shape[1];
    if (i + 1 < layers)
      ctx.SetOutput("ReluOut", x, i);
    else
      ctx.SetOutput("Out", x);
  }
}

void ExpandRepeated(ExpandContext& ctx) {
  Variable x = ctx.In("X");
  const size_t layers = ctx.NumInputs("W");
  for (size_t i = 0; i < layers; ++i) {
    const std::string out = i + 1 < layers ? ctx.Out("ReluOut", i) : ctx.Out("Out");
    ctx.Append("fc",
               {{"Input", {x.name()}},
                {"W", {ctx.In("W", i).name()}},
                {"Bias", {ctx.In("Bias", i).name()}}},
               {{"Out", {out}}}, {{"activation_type", std::string("relu")}});
    x = ctx.Var(out);
  }
}

double FcMultiplyAdds(const OpShapes& op) {
  const Shape *x = op.In("Input"), *w = op.In("W");
  return x && w && w->rank() == 2 ? Elements(*x) * Elements(*w, 1, 2) : 0;
}

void DeclareColumns(OpDef& def) {
  def.Attr<int32_t>("in_num_col_dims", 1,
                    "number of leading dims of Input in Out; -n: all but the last n");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fc")
          .Doc("Out = act(Input W + Bias), with the dims of Input before in_num_col_dims as "
               "rows. With a W of bfloat16 and an Input of float32, Input may be rounded to "
               "bfloat16 "
               "before it is multiplied; sums, Bias and act are in float32.")
          .Constraint("C1", "in_num_col_dims must lie in (0, rank of Input), or in (-rank, 0)")
          .Constraint("C2",
                      "W must be a matrix with a row for each column of Input, plus four rows and "
                      "columns with padding_weights")
          .Constraint("C3", "Bias must be [M] or [1, M]")
          .Constraint("C4",
                      "all inputs must have one dtype; W may be bfloat16 with a float32 Input")
          .Input("Input", "floating-point tensor of rank 2 or more")
          .Input("W", "[K, M]")
          .OptionalInput("Bias", "[M] or [1, M]")
          .Output("Out", "tensor of Input's leading dims and M")
          .OptionalOutput("Z",
                          "Input W + Bias, of Out's shape, for the gradient of act; not in "
                          "Paddle")
          .Apply(DeclareColumns)
          .Attr<std::string>(
              "activation_type", "",
              "act: the op of this name with its default attrs; gelu_tanh: gelu with approximate")
          .OneOf(
              {"", "relu", "relu6", "sigmoid", "tanh", "gelu", "gelu_tanh", "swish", "hard_swish"})
          .Attr<bool>("padding_weights", false, "the last four rows and columns of W are ignored")
          .Rows(RowRule::kEach)
          .Tables({"W", "Bias"})
          .MultiplyAdds({"Input", "W"}, FcMultiplyAdds)
          .Infer(InferFc)
          .Gradient(FcGradient)
          .Reference(Fc<float>, Fc<double>)
          .Fast(FcFast));
  ops.Add(
      OpDef("fc_gradients")
          .Doc("The gradients of fc. With dZ = Out@GRAD act'(Z), for relu 0 where Out is 0: "
               "Input@GRAD = dZ W^T, W@GRAD = Input^T dZ, Bias@GRAD = the sum of dZ over all rows.")
          .ConstraintsOf("fc", {"C1", "C2", "C3"})
          .Constraint("C4", "all inputs must have one dtype")
          .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
          .Constraint("C6",
                      "relu needs Out and other activations need Z, of Out@GRAD's shape and dtype")
          .Input("Input", "fc's Input")
          .Input("W", "W of fc, [K, M]")
          .OptionalInput("Bias", "Bias of fc; only its shape is used, [M] if absent")
          .OptionalInput("Out", "Out of fc; read with relu")
          .OptionalInput("Z", "Z of fc; read with the other activations")
          .Input("Out@GRAD", "gradient of fc's Out")
          .OptionalOutput("Input@GRAD", "gradient of Input")
          .OptionalOutput("W@GRAD", "gradient of W")
          .OptionalOutput("Bias@GRAD", "gradient of the bias")
          .OptionalOutput("Z@GRAD", "dZ; if absent, the op stores it in its own memory")
          .Inplace("Out@GRAD", "Z@GRAD")
          .Apply(DeclareColumns)
          .Attr<std::string>("activation_type", "", "fc's")
          .OneOf({"", "relu", "gelu", "gelu_tanh", "swish"})
          .NoGradient("made from a program that has its gradients")
          .Rows(RowRule::kEach)
          .Tables({"W", "Bias"})
          .Infer(InferFcGrad)
          .Reference(FcGrad<float>, FcGrad<double>)
          .Fast(FcGradFast));
  ops.Add(
      OpDef("fusion_repeated_fc_relu")
          .Doc("A chain of layers x = relu(x W[i] + Bias[i]), starting with x = X.")
          .Constraint("C1", "X must be a matrix")
          .Constraint("C2",
                      "there must be two or more W, the same number of Bias, and one ReluOut fewer")
          .Constraint("C3",
                      "each W must be a matrix with a row for each column of the layer's input, "
                      "and its Bias must be [M] or [1, M]")
          .Constraint("C4", "all inputs must have one dtype")
          .Input("X", "matrix")
          .VariadicInput("W", "matrices")
          .VariadicInput("Bias", "vectors")
          .OptionalVariadicOutput("ReluOut", "results of all layers except the last")
          .Output("Out", "result of the last layer")
          .Rows(RowRule::kEach)
          .Tables({"W", "Bias"})
          .Infer(InferRepeated)
          .Expands({"fc"}, ExpandRepeated));
}

}  // namespace coracle::fc_op
