#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/kernels/slice_norms.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/axes.h>
#include <coracle/operators/reduce/p_norm.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace coracle::reduce_op {

void InferReduce(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  CheckDims(ctx, x);
  const int32_t number = ctx.Attr<int32_t>("out_dtype");
  const DType own = ctx.InputDType("X"), wanted = static_cast<DType>(number);
  const bool plain = wanted == DType::kInt32 || wanted == DType::kInt64 ||
                     wanted == DType::kFloat32 || wanted == DType::kFloat64;
  ctx.Require("C3", number < 0 || wanted == own || (plain && !IsComplex(own)), number);
  ctx.SetOutput("Out", number < 0 ? own : wanted, AxesOf(ctx, x).out);
}

// The family, one struct for each row: accumulator, start, step, result.
template <class T>
using Sums =
    std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t,
                       std::conditional_t<std::is_integral_v<T>, int64_t,
                                          std::conditional_t<kIsComplex<T>, complex128, double>>>;

struct Sum {
  static constexpr const char *kType = "reduce_sum", *kFormula = "the sum";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  template <class T>
  using Acc = Sums<T>;
  template <class T>
  static Acc<T> Start() {
    return 0;
  }
  template <class A>
  static A Step(A acc, A x) {
    return WrapAdd(acc, x);
  }
  template <class A>
  static A Finish(A acc, int64_t) {
    return acc;
  }
};
struct Mean : Sum {
  static constexpr const char *kType = "reduce_mean",
                              *kFormula = "the mean (integers truncate; nan without elements)";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  template <class A>
  static A Finish(A acc, int64_t count) {
    if constexpr (std::is_integral_v<A>)
      return count == 0 ? 0 : acc / static_cast<A>(count);
    else
      return acc / static_cast<A>(count);
  }
};
struct Max {
  static constexpr const char *
      kType = "reduce_max",
     *kFormula =
         "the largest value (nan if there is one; without elements, the lowest value of the dtype)";
  static constexpr OpPrecision kPrecision = OpPrecision::kFollowsInputs;
  template <class T>
  using Acc = T;
  template <class T>
  static T Start() {
    return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                       : std::numeric_limits<T>::lowest();
  }
  template <class T>
  static T Step(T acc, T x) {
    return x > acc || x != x ? x : acc;
  }
  template <class T>
  static T Finish(T acc, int64_t) {
    return acc;
  }
};
struct Min : Max {
  static constexpr const char *kType = "reduce_min",
                              *kFormula =
                                  "the smallest value (nan if there is one; without elements, the "
                                  "highest value of the dtype)";
  static constexpr OpPrecision kPrecision = OpPrecision::kFollowsInputs;
  template <class T>
  static T Start() {
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                       : std::numeric_limits<T>::max();
  }
  template <class T>
  static T Step(T acc, T x) {
    return x < acc || x != x ? x : acc;
  }
};
struct Prod : Sum {
  static constexpr const char *kType = "reduce_prod", *kFormula = "the product";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  template <class T>
  static Acc<T> Start() {
    return 1;
  }
  template <class A>
  static A Step(A acc, A x) {
    return WrapMul(acc, x);
  }
};
struct FrobeniusNorm : Sum {
  static constexpr const char *kType = "frobenius_norm",
                              *kFormula = "the square root of the sum of the squares";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
};
struct Any {
  static constexpr const char *kType = "reduce_any", *kFormula = "whether any is true";
  static constexpr OpPrecision kPrecision = OpPrecision::kFollowsInputs;
  template <class T>
  using Acc = bool;
  template <class T>
  static bool Start() {
    return false;
  }
  static bool Step(bool acc, bool x) { return acc || x; }
  static bool Finish(bool acc, int64_t) { return acc; }
};
struct All : Any {
  static constexpr const char *kType = "reduce_all", *kFormula = "whether all are true";
  static constexpr OpPrecision kPrecision = OpPrecision::kFollowsInputs;
  template <class T>
  static bool Start() {
    return true;
  }
  static bool Step(bool acc, bool x) { return acc && x; }
};

template <class Out, class A>
Out ToOut(A value) {
  if constexpr (std::is_same_v<Out, A>)
    return value;
  else if constexpr (std::is_integral_v<A> || kIsComplex<A>)
    return static_cast<Out>(value);
  else
    return SaturateTo<Out>(static_cast<double>(value));
}

template <class T, class Store>
Kernel FrobeniusInto(const PrepareContext& ctx, Store store) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ReduceNest nest = MakeReduceNest(x.shape, AxesOf(ctx, x.shape).reduce);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    void* to = ws.Data<void>(out);
    ForEachL2Norm(nest, in,
                  [&](int64_t j, const ScaledNorm& norm) { store(norm.product(), to, j); });
  };
}

template <class F, class T, class Store>
Kernel ReduceInto(const PrepareContext& ctx, Store store) {
  if constexpr (std::is_same_v<F, FrobeniusNorm>) {
    return FrobeniusInto<T>(ctx, store);
  } else {
    const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
    const ReduceNest nest = MakeReduceNest(x.shape, AxesOf(ctx, x.shape).reduce);
    return [=](Workspace& ws) {
      using Acc = typename F::template Acc<T>;
      const T* in = ws.Data<const T>(x);
      void* to = ws.Data<void>(out);
      ReduceLoop(
          nest, F::template Start<T>(),
          [in](Acc acc, int64_t at) { return F::Step(acc, static_cast<Acc>(in[at])); },
          [&](int64_t j, Acc acc) { store(F::Finish(acc, nest.reduced_numel), to, j); });
    };
  }
}

template <class A, class Out>
void StoreAs(A value, void* out, int64_t j) {
  static_cast<Out*>(out)[j] = ToOut<Out>(value);
}

template <class F, class T>
KernelOf<T> ReduceReference(const PrepareContext& ctx) {
  using Acc = typename F::template Acc<T>;
  const DType out = ctx.Output("Out").dtype;
  if (out == DTypeOf<T>()) return ReduceInto<F, T>(ctx, StoreAs<Acc, T>);
  if constexpr (!kIsComplex<T>) {
    if (out == DType::kInt32) return ReduceInto<F, T>(ctx, StoreAs<Acc, int32_t>);
    if (out == DType::kInt64) return ReduceInto<F, T>(ctx, StoreAs<Acc, int64_t>);
    if (out == DType::kFloat32) return ReduceInto<F, T>(ctx, StoreAs<Acc, float>);
    if (out == DType::kFloat64) return ReduceInto<F, T>(ctx, StoreAs<Acc, double>);
  }
  ctx.Unsupported("cannot write that out_dtype");
}

template <bool kMean>
Kernel SumFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || out.dtype != DType::kFloat32) return {};
  const FastSumPlan plan = MakeFastSumPlan(MakeReduceNest(x.shape, AxesOf(ctx, x.shape).reduce));
  if (kMean && plan.nest.reduced_numel == 0) return {};
  TensorArg scratch;
  if (plan.scratch_floats > 0) scratch = ctx.Scratch(DType::kFloat32, {plan.scratch_floats});
  const float scale =
      kMean ? static_cast<float>(1.0 / static_cast<double>(plan.nest.reduced_numel)) : 1.0f;
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    const auto terms = [in](int64_t offset, int64_t, float*) { return in + offset; };
    FastSum(plan, terms, scale, ws.Data<float>(out), scratch ? ws.Data<float>(scratch) : nullptr);
    RepairFastSum(plan, terms, scale, ws.Data<float>(out));
  };
}

// Whether `given` is the shape of the reduced X; in old programs, it has no dims instead of [1].
bool IsReduced(const Shape& given, const Shape& out) {
  return out.CompatibleWith(given.rank() == 0 ? Shape{1} : given);
}

void InferReduceGrad(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  CheckDims(ctx, x);
  const Shape out = AxesOf(ctx, x).out;
  for (const char* slot : {"Out", "Out@GRAD"}) {
    if (!ctx.HasInput(slot)) continue;
    ctx.Require("C4", IsReduced(ctx.InputShape(slot), out), slot, ctx.InputShape(slot),
                "the reduced X", out);
    RequireSameDType(ctx, "C5", slot, "X");
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

void InferProdGradGrad(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  CheckDims(ctx, x);
  const Shape out = AxesOf(ctx, x).out;
  ctx.Require("C4", IsReduced(ctx.InputShape("DOut"), out), ctx.InputShape("DOut"), out);
  ctx.Require("C6", x.CompatibleWith(ctx.InputShape("DDX")), ctx.InputShape("DDX"), x);
  for (const char* slot : {"DOut", "DDX"}) {
    RequireSameDType(ctx, "C5", slot, "X");
  }
  ctx.SetOutput("DX", ctx.Input("X"));
  ctx.SetOutput("DDOut", ctx.Input("DOut"));
}

// Calls f(x offset, out offset, steps of out, count) over pieces of X, in parallel.
template <class F>
void ForEachPiece(const BroadcastNest& nest, const F& f) {
  ParallelFor(nest.numel, 32768, [&](int64_t begin, int64_t end) {
    ForEachRow(nest, begin, end, [&](int64_t at, int64_t out, int64_t, int64_t count) {
      f(at, out, nest.y_repeats() ? 0 : 1, count);
    });
  });
}
BroadcastNest SpreadNest(const PrepareContext& ctx) {
  const Shape& x = ctx.Input("X").shape;
  return MakeBroadcastNest(x, AxesOf(ctx, x).spread, -1);
}

// dX = dOut, or dOut / count.
template <bool kMean, class T>
KernelOf<T> SumGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const BroadcastNest nest = SpreadNest(ctx);
  const int64_t summands = x.numel / std::max<int64_t>(1, dout.numel);
  const T count = kMean ? static_cast<T>(summands) : T(1);
  return [=](Workspace& ws) {
    const T* d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    ForEachPiece(nest, [&](int64_t at, int64_t out, int64_t step, int64_t n) {
      if (step == 0) return std::fill_n(o + at, n, d[out] / count), void();
      for (int64_t i = 0; i < n; ++i) o[at + i] = d[out + i] / count;
    });
  };
}

// Every element equal to the extremum gets the whole gradient, as in Paddle, and so does every nan
// if the extremum is nan.
template <class T>
KernelOf<T> ExtremumGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const BroadcastNest nest = SpreadNest(ctx);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *best = ws.Data<const T>(out);
    const T* d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    ForEachPiece(nest, [&](int64_t at, int64_t j, int64_t step, int64_t n) {
      for (int64_t i = 0; i < n; ++i, j += step) {
        const T value = in[at + i];
        o[at + i] = value == best[j] || value != value ? d[j] : T(0);
      }
    });
  };
}

// dX[i] = dOut times the product of the other elements, computed as the product of those before i
// times that of those after it, so that elements may be 0. It is a double, since floats
// may overflow.
template <class T>
KernelOf<T> ProdGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const ReduceNest nest = MakeReduceNest(x.shape, AxesOf(ctx, x.shape).reduce);
  const TensorArg offsets = ctx.Scratch(DType::kInt64, {nest.reduced_numel});
  const TensorArg products = ctx.Scratch(DType::kFloat64, {nest.reduced_numel});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    int64_t* at = ws.Data<int64_t>(offsets);
    double* before = ws.Data<double>(products);
    if (x.numel == 0) return;
    const int64_t n = nest.reduced_numel;
    DimsWalk kept(nest.kept, 0), reduced(nest.reduced, 0);
    for (int64_t r = 0; r < n; ++r, reduced.Next()) at[r] = reduced.offset();
    for (int64_t j = 0; j < nest.out_numel; ++j, kept.Next()) {
      const T* line = in + kept.offset();
      double product = 1, after = static_cast<double>(d[j]);
      for (int64_t r = 0; r < n; ++r, product *= static_cast<double>(line[at[r - 1]]))
        before[r] = product;
      for (int64_t r = n; r-- > 0; after *= static_cast<double>(line[at[r]]))
        o[kept.offset() + at[r]] = static_cast<T>(before[r] * after);
    }
  };
}

// value + slope e, with e^2 = 0.
struct Dual {
  double value, slope;
  Dual operator*(const Dual& o) const {
    return {value * o.value, value * o.slope + slope * o.value};
  }
};

// The elements are duals x + u e, where u is DDX. DDOut is the slope of their product. DX[i] is
// DOut times the slope of the product of all others, computed from those before i and those after
// it, so that elements may be 0.
template <class T>
KernelOf<T> ProdGradGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("DOut"), ddx = ctx.Input("DDX");
  const TensorArg dx = ctx.Output("DX"), ddout = ctx.Output("DDOut");
  const ReduceNest nest = MakeReduceNest(x.shape, AxesOf(ctx, x.shape).reduce);
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {2 * nest.reduced_numel + 2});
  const TensorArg offsets = ctx.Scratch(DType::kInt64, {nest.reduced_numel});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *u = ws.Data<const T>(ddx), *d = ws.Data<const T>(dout);
    double* before = ws.Data<double>(scratch);
    int64_t* at = ws.Data<int64_t>(offsets);
    const int64_t n = nest.reduced_numel;
    DimsWalk kept(nest.kept, 0), reduced(nest.reduced, 0);
    for (int64_t r = 0; r < n && nest.out_numel > 0; ++r, reduced.Next()) at[r] = reduced.offset();
    for (int64_t j = 0; j < nest.out_numel; ++j, kept.Next()) {
      auto element = [&](int64_t r) {
        const int64_t i = kept.offset() + at[r];
        return Dual{static_cast<double>(in[i]), static_cast<double>(u[i])};
      };
      Dual product{1, 0};
      for (int64_t r = 0; r < n; ++r, product = product * element(r - 1)) {
        before[2 * r] = product.value;
        before[2 * r + 1] = product.slope;
      }
      if (ddout) ws.Data<T>(ddout)[j] = static_cast<T>(product.slope);
      Dual after{1, 0};
      for (int64_t r = n; dx && r-- > 0; after = after * element(r)) {
        const Dual others = Dual{before[2 * r], before[2 * r + 1]} * after;
        ws.Data<T>(dx)[kept.offset() + at[r]] =
            static_cast<T>(static_cast<double>(d[j]) * others.slope);
      }
    }
  };
}

AttrList DimAttrs(const GradientContext& g) {
  return g.ForwardAttrs({"dim", "keep_dim", "reduce_all"});
}

// Appends <type>_grad, with dOut cast to X's dtype.
template <class F>
void ReduceGradient(GradientContext& g, bool reads_out) {
  const DType dtype = g.MetaOf(g.Input("X")).dtype;
  const bool same = g.MetaOf(g.Output("Out")).dtype == dtype;
  SlotList inputs = {{"X", {g.Input("X")}}};
  if (reads_out)
    inputs.push_back({"Out", {same ? g.Output("Out") : Cast(g.Out("Out"), dtype).name()}});
  inputs.push_back({"Out@GRAD", {same ? g.OutputGrad("Out") : Cast(g.Grad("Out"), dtype).name()}});
  g.Append(fmt::format("{}_grad", F::kType), std::move(inputs), {{"X@GRAD", {g.InputGrad("X")}}},
           DimAttrs(g));
}

// dOut' = sum(DX * mask), with mask = 1 where X was the extremum: the gradient op applied to ones.
void ExtremumGradGradient(GradientContext& g) {
  const Variable ones = ZerosLike(g.In("Out")) + 1.0;
  const Variable mask =
      g.Make(g.op().type(),
             {{"X", {g.Input("X")}}, {"Out", {g.Input("Out")}}, {"Out@GRAD", {ones.name()}}},
             DimAttrs(g), "X@GRAD");
  const Variable masked = g.Grad("X@GRAD") * mask;
  g.Set("Out@GRAD", g.Make("reduce_sum", {{"X", {masked.name()}}}, DimAttrs(g)));
}

void DeclareDims(OpDef& def) {
  def.Attr<std::vector<int32_t>>("dim", {0}, "dims to reduce, negative from the end; none: all")
      .Attr<bool>("keep_dim", false, "whether reduced dims stay as 1")
      .Attr<bool>("reduce_all", false, "whether all dims are reduced, whatever dim says")
      .Attr<int32_t>("in_dtype", -1, "X's type; ignored, since X itself has it")
      .Attr<int32_t>("out_dtype", -1, "Out's type; -1: X's")
      .Constraint("C1", "each dim must lie in [-rank, rank)")
      .Constraint("C2", "no dim may be named twice");
}

template <class F>
OpDef Declare() {
  const std::string doc = fmt::format(
      "Out = {} of X over the dims in dim. If no dim is left, Out has the shape [1].", F::kFormula);
  OpDef def(F::kType);
  def.Doc(doc)
      .Input("X", "tensor")
      .Output("Out", "tensor without the reduced dims, or with 1 for them")
      .LodUnlessAxis("dim")
      .Rows(RowRule::kEach)
      .Axes("dim")
      .Infer(InferReduce)
      .Apply(DeclareDims)
      .Constraint("C3",
                  "out_dtype must be -1, X's type, or for real X int32, int64, float32 or float64")
      .ComputesIn(F::kPrecision);
  return def;
}

template <class F>
OpDef DeclareGrad(const char* formula, bool reads_out,
                  const std::vector<std::string>& no_gradient_to = {"X"}) {
  const std::string doc = fmt::format("Gradient of {}: {}", F::kType, formula);
  OpDef def(fmt::format("{}_grad", F::kType));
  const bool reads_x = reads_out || no_gradient_to.empty();
  def.Doc(doc).Input("X", reads_x ? "the value in the forward op"
                                  : "the value in the forward op; only its shape is used");
  if (reads_out) def.Input("Out", "the value in the forward op");
  def.Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .NoGradientTo(no_gradient_to)
      .Infer(InferReduceGrad);
  if (reads_out) def.NoGradientTo({"Out"});
  def.Apply(DeclareDims)
      .Constraint("C4", "Out and Out@GRAD must have the shape of the reduced X")
      .Constraint("C5", "all inputs must have one dtype");
  return def;
}

template <class F>
void AddSum(OpRegistry& ops, const char* formula) {
  constexpr bool kMean = std::is_same_v<F, Mean>;
  OpDef def = Declare<F>();
  def.Rows(kMean ? RowRule::kMean : RowRule::kSum)
      .Linear({"X"})
      .Gradient([](GradientContext& g) { ReduceGradient<F>(g, false); })
      .Fast(SumFast<kMean>);
  const auto kernel = []<class T>(const PrepareContext& c) { return ReduceReference<F, T>(c); };
  if constexpr (kMean)  // a sum of large numbers of uint64 would wrap
    def.Reference<float, double, int32_t, int64_t, bool, complex64, complex128>(kernel);
  else
    def.Reference<float, double, int32_t, int64_t, uint64_t, bool, complex64, complex128>(kernel);
  ops.Add(std::move(def));
  ops.Add(DeclareGrad<F>(formula, false)
              .Gradient([](GradientContext& g) {
                g.Append(F::kType, {{"X", {g.OutputGrad("X@GRAD")}}},
                         {{"Out", {g.InputGrad("Out@GRAD")}}}, DimAttrs(g));
              })
              .Reference(SumGrad<kMean, float>, SumGrad<kMean, double>, SumGrad<kMean, complex64>,
                         SumGrad<kMean, complex128>));
}

template <class F>
void AddExtremum(OpRegistry& ops) {
  ops.Add(Declare<F>()
              .Gradient([](GradientContext& g) { ReduceGradient<F>(g, true); })
              .Reference(ReduceReference<F, float>, ReduceReference<F, double>,
                         ReduceReference<F, int32_t>, ReduceReference<F, int64_t>,
                         ReduceReference<F, uint64_t>));
  ops.Add(DeclareGrad<F>("X@GRAD = Out@GRAD at every element that equals Out or is a nan, else 0.",
                         true)
              .Gradient(ExtremumGradGradient)
              .Reference(ExtremumGrad<float>, ExtremumGrad<double>));
}

void AddProd(OpRegistry& ops) {
  ops.Add(Declare<Prod>()
              .Gradient([](GradientContext& g) { ReduceGradient<Prod>(g, false); })
              .Reference(ReduceReference<Prod, float>, ReduceReference<Prod, double>,
                         ReduceReference<Prod, int32_t>, ReduceReference<Prod, int64_t>,
                         ReduceReference<Prod, uint64_t>));
  ops.Add(DeclareGrad<Prod>("X@GRAD = Out@GRAD times the product of the other elements.", false, {})
              .Gradient([](GradientContext& g) {
                g.Append("reduce_prod_grad_grad",
                         {{"X", {g.Input("X")}},
                          {"DOut", {g.Input("Out@GRAD")}},
                          {"DDX", {g.OutputGrad("X@GRAD")}}},
                         {{"DX", {g.InputGrad("X")}}, {"DDOut", {g.InputGrad("Out@GRAD")}}},
                         DimAttrs(g));
              })
              .Reference(ProdGrad<float>, ProdGrad<double>));
  OpDef second("reduce_prod_grad_grad");
  second
      .Doc(
          "Gradient of reduce_prod_grad for the gradient DDX of its X@GRAD: DDOut = sum of DDX "
          "times the product of the other elements; DX[i] = DOut times the sum over k other than i "
          "of DDX[k] times the product of all elements but i and k.")
      .Constraint("C4", "DOut must have the reduced shape")
      .Constraint("C5", "all inputs must have one dtype")
      .Constraint("C6", "DDX must have X's shape")
      .Input("X", "the value in the forward op")
      .Input("DOut", "gradient of the forward op's Out")
      .Input("DDX", "gradient of the gradient of X")
      .OptionalOutput("DX", "gradient of X")
      .OptionalOutput("DDOut", "gradient of DOut")
      .Infer(InferProdGradGrad)
      .NoGradient("third derivatives of a product over dims are not provided");
  second.Apply(DeclareDims).Reference(ProdGradGrad<float>, ProdGradGrad<double>);
  ops.Add(std::move(second));
}

// Out is passed on where it has X's dtype.
void FrobeniusGradient(GradientContext& g) {
  const DType dtype = g.MetaOf(g.Input("X")).dtype;
  ReduceGradient<FrobeniusNorm>(g, g.MetaOf(g.Output("Out")).dtype == dtype);
}

void FrobeniusGradGradient(GradientContext& g) {
  const NormRule rule = {2, AxesOf(g, g.In("X").shape()),
                         [&](const Variable& x) {
                           return g.Make("frobenius_norm", {{"X", {x.name()}}}, DimAttrs(g));
                         },
                         [&](const Variable& x, const Variable& dout) {
                           return g.Make("frobenius_norm_grad",
                                         {{"X", {x.name()}}, {"Out@GRAD", {dout.name()}}},
                                         DimAttrs(g), "X@GRAD");
                         }};
  SetGradientsOfNormGrad(g, rule);
}

template <class T>
KernelOf<T> FrobeniusGrad(const PrepareContext& ctx) {
  return NormGradKernel<T>(ctx, AxesOf(ctx, ctx.Input("X").shape), 2);
}

void AddFrobenius(OpRegistry& ops) {
  ops.Add(Declare<FrobeniusNorm>()
              .Gradient(FrobeniusGradient)
              .Reference(ReduceReference<FrobeniusNorm, float>,
                         ReduceReference<FrobeniusNorm, double>));
  ops.Add(DeclareGrad<FrobeniusNorm>(
              "X@GRAD = X / Out Out@GRAD, and 0 where Out is 0. It is right where Out is too large "
              "or too small for its dtype.",
              false, {})
              .OptionalInput("Out", "the forward op's; made again when absent")
              .NoGradientTo({"Out"})
              .Gradient(FrobeniusGradGradient)
              .Reference(FrobeniusGrad<float>, FrobeniusGrad<double>));
}

template <class F>
void AddLogical(OpRegistry& ops) {
  ops.Add(Declare<F>()
              .NotDifferentiable("logic is piecewise constant")
              .Reference(ReduceReference<F, bool>));
}

void Register(OpRegistry& ops) {
  AddSum<Sum>(ops, "X@GRAD = Out@GRAD, repeated along the reduced dims.");
  AddSum<Mean>(ops,
               "X@GRAD = Out@GRAD / the number of elements reduced to one, repeated along the "
               "reduced dims.");
  AddExtremum<Max>(ops);
  AddExtremum<Min>(ops);
  AddLogical<Any>(ops);
  AddLogical<All>(ops);
  AddProd(ops);
  AddFrobenius(ops);
}

}  // namespace coracle::reduce_op
