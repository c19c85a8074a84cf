// complex, real, imag, conj: complex numbers and their parts.
//
// Gradients of complex variables follow Paddle: for a real loss L, X@GRAD = dL/dRe(X) + i
// dL/dIm(X), so that X@GRAD = Out@GRAD times the conjugate of dOut/dX if Out is a polynomial of X.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::complex_op {

constexpr int64_t kGrain = 32768;

// --- complex ---

void InferComplex(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  const Shape shape = InferBroadcast(ctx, x, y, -1);
  RequireSameDType(ctx, "C4", "X", "Y");
  const DType dtype = ctx.InputDType("X");
  ctx.Require("C5", dtype == DType::kFloat32 || dtype == DType::kFloat64, dtype);
  VarMeta out = ctx.Input(x.rank() >= y.rank() ? "X" : "Y");
  out.dtype = ComplexOf(dtype);
  out.shape = shape;
  ctx.SetOutput("Out", out);
}

template <class R>
KernelOf<R> MakeComplex(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, -1);
  return [=](Workspace& ws) {
    BroadcastLoop(nest, ws.Data<const R>(x), ws.Data<const R>(y), ws.Data<std::complex<R>>(out),
                  [](R re, R im) { return std::complex<R>(re, im); });
  };
}

// Sets the gradient of `slot` to `part`, a part of dOut, summed over broadcast dims.
void SetSummed(GradientContext& g, const char* slot, const Variable& part) {
  const Shape &x = g.MetaOf(g.Input("X")).shape, &y = g.MetaOf(g.Input("Y")).shape;
  if (x == y && x.IsKnown()) return g.Set(slot, part);
  SlotList inputs = g.ForwardInputs({"X", "Y"});
  inputs.push_back({"Out@GRAD", {part.name()}});
  g.Set(slot, g.Make("elementwise_add_grad", std::move(inputs), {}, std::string(slot) + "@GRAD"));
}

void ComplexGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Out");
  SetSummed(g, "X", g.Make("real", {{"X", {dout}}}));
  SetSummed(g, "Y", g.Make("imag", {{"X", {dout}}}));
}

// --- real, imag ---

void InferPart(InferContext& ctx) {
  VarMeta meta = ctx.Input("X");
  meta.dtype = RealOf(meta.dtype);
  ctx.SetOutput("Out", meta);
}

template <class T, bool kImaginary>
KernelOf<T> Part(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    RealType<T>* o = ws.Data<RealType<T>>(out);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = kImaginary ? in[i].imag() : in[i].real();
    });
  };
}

// That part of dX is dOut, the other one is 0.
void PartGradient(GradientContext& g, bool imaginary) {
  const Variable dout = g.Grad("Out"), zeros = ZerosLike(dout);
  const Variable &re = imaginary ? zeros : dout, &im = imaginary ? dout : zeros;
  g.Set("X", g.Make("complex", {{"X", {re.name()}}, {"Y", {im.name()}}}));
}

// --- conj ---

template <class T>
KernelOf<T> Conjugate(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) o[i] = Conj(in[i]);
    });
  };
}

OpDef PartDef(const char* type, const char* what, bool imaginary) {
  OpDef def(type);
  def.Doc(std::string("Out = the ") + what + " part of X, element by element.")
      .Input("X", "complex tensor")
      .Output("Out", "tensor of X's shape: float32 of complex64, float64 of complex128")
      .Elementwise()
      .Infer(InferPart)
      .Gradient([imaginary](GradientContext& g) { PartGradient(g, imaginary); });
  if (imaginary)
    def.Reference(Part<complex64, true>, Part<complex128, true>);
  else
    def.Reference(Part<complex64, false>, Part<complex128, false>);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("complex")
              .Doc("Out = X + i Y, element by element. The operand of lower rank aligns with the "
                   "last dims of the other one, and dims of 1 are broadcast.")
              .Constraint("C3", "aligned dims must be equal, or one of them 1")
              .Constraint("C4", "X and Y must have one dtype")
              .Constraint("C5", "X and Y must be float32 or float64")
              .Input("X", "the real parts")
              .Input("Y", "the imaginary parts, of X's dtype")
              .Output("Out", "complex64 of float32, complex128 of float64")
              .Elementwise()
              .ComputesIn(OpPrecision::kFloat32)
              .Infer(InferComplex)
              .Gradient(ComplexGradient)
              .Reference(MakeComplex<float>, MakeComplex<double>));
  ops.Add(PartDef("real", "real", false));
  ops.Add(PartDef("imag", "imaginary", true));
  ops.Add(OpDef("conj")
              .Doc("Out = the conjugate of X, element by element; real numbers are unchanged.")
              .Input("X", "tensor of numbers")
              .Output("Out", "tensor of X's shape and dtype")
              .Inplace("X", "Out")
              .Elementwise()
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient([](GradientContext& g) {
                g.Set("X", g.Make("conj", {{"X", {g.OutputGrad("Out")}}}));
              })
              .Reference(Conjugate<float>, Conjugate<double>, Conjugate<int32_t>,
                         Conjugate<int64_t>, Conjugate<complex64>, Conjugate<complex128>));
}

}  // namespace coracle::complex_op
