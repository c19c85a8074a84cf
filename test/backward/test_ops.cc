#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coracle {

namespace clip_op {
void Register(OpRegistry& ops);
}
namespace fill_zeros_like_op {
void Register(OpRegistry& ops);
}
namespace mul_op {
void Register(OpRegistry& ops);
}

namespace {

void SameAsX(InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); }

// Out[i] = f(X[i], Y[i]), Y being X where the op has none.
template <class F>
OpDef Elementwise(OpDef def, const char* x, const char* y, const char* out, F f) {
  def.Reference<float, double>([=]<class T>(const PrepareContext& ctx) -> Kernel {
    const TensorArg a = ctx.Input(x), b = ctx.Input(y), o = ctx.Output(out);
    return [=](Workspace& ws) {
      for (int64_t i = 0; i < o.numel; ++i)
        ws.Data<T>(o)[i] = static_cast<T>(f(ws.Data<const T>(a)[i], ws.Data<const T>(b)[i]));
    };
  });
  return def;
}

template <class F>
OpDef Unary(const std::string& type, F f) {
  return Elementwise(OpDef(type).Doc("test").Input("X", "x").Output("Out", "out").Infer(SameAsX),
                     "X", "X", "Out", f);
}

template <class F>
OpDef Binary(const std::string& type, F f) {
  return Elementwise(
      OpDef(type).Doc("test").Input("X", "x").Input("Y", "y").Output("Out", "out").Infer(SameAsX),
      "X", "Y", "Out", f);
}

// <type>_grad(from, Out@GRAD) = f(from, Out@GRAD).
template <class F>
OpDef UnaryGrad(const std::string& type, const char* from, F f) {
  return Elementwise(OpDef(type)
                         .Doc("test")
                         .Input(from, "forward value")
                         .Input("Out@GRAD", "dout")
                         .Output("X@GRAD", "dx")
                         .NoGradient("first order only")
                         .Infer([=](InferContext& c) { c.SetOutput("X@GRAD", c.Input(from)); }),
                     from, "Out@GRAD", "X@GRAD", f);
}

void RegisterArithmetic(OpRegistry& ops) {
  ops.Add(Binary("t_add", [](auto x, auto y) { return x + y; }).Gradient([](GradientContext& g) {
    for (const char* slot : {"X", "Y"})
      g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad(slot)}}});
  }));
  ops.Add(Binary("t_mul", [](auto x, auto y) { return x * y; }).Gradient([](GradientContext& g) {
    const std::string dout = g.OutputGrad("Out");
    g.Append("t_mul", {{"X", {dout}}, {"Y", {g.Input("Y")}}}, {{"Out", {g.InputGrad("X")}}});
    g.Append("t_mul", {{"X", {dout}}, {"Y", {g.Input("X")}}}, {{"Out", {g.InputGrad("Y")}}});
  }));
  ops.Add(Unary("t_square", [](auto x, auto) { return x * x; }).GradientOp({"X"}));
  ops.Add(UnaryGrad("t_square_grad", "X", [](auto x, auto d) { return 2 * x * d; }));
}

void RegisterActivations(OpRegistry& ops) {
  ops.Add(Unary("t_tanh", [](auto x, auto) { return std::tanh(x); }).GradientOp({"Out"}));
  ops.Add(UnaryGrad("t_tanh_grad", "Out", [](auto y, auto d) { return d * (1 - y * y); }));
  ops.Add(Unary("t_relu", [](auto x, auto) { return x > 0 ? x : 0; })
              .Inplace("X", "Out")
              .GradientOp({"Out"}));
  ops.Add(UnaryGrad("t_relu_grad", "Out", [](auto y, auto d) { return y > 0 ? d : 0; }));
  ops.Add(Unary("t_shift", [](auto x, auto) { return x + 1; })
              .Inplace("X", "Out")
              .Gradient([](GradientContext& g) {
                g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
              }));
}

void RegisterTwo(OpRegistry& ops) {
  ops.Add(OpDef("t_two")
              .Doc("test")
              .Input("X", "x")
              .OptionalOutput("A", "2 x")
              .OptionalOutput("B", "x^2")
              .Infer([](InferContext& ctx) {
                ctx.SetOutput("A", ctx.Input("X"));
                ctx.SetOutput("B", ctx.Input("X"));
              })
              .GradientOp({"X"})
              .Reference<float, double>([]<class T>(const PrepareContext& ctx) -> Kernel {
                const TensorArg x = ctx.Input("X"), a = ctx.Output("A"), b = ctx.Output("B");
                return [=](Workspace& ws) {
                  for (int64_t i = 0; i < x.numel; ++i) {
                    const T v = ws.Data<const T>(x)[i];
                    ws.Data<T>(a)[i] = 2 * v;
                    ws.Data<T>(b)[i] = v * v;
                  }
                };
              }));
  ops.Add(OpDef("t_two_grad")
              .Doc("test")
              .Input("X", "x")
              .Input("A@GRAD", "da")
              .Input("B@GRAD", "db")
              .Output("X@GRAD", "dx")
              .NoGradient("first order only")
              .Infer([](InferContext& ctx) { ctx.SetOutput("X@GRAD", ctx.Input("X")); })
              .Reference<float, double>([]<class T>(const PrepareContext& ctx) -> Kernel {
                const TensorArg x = ctx.Input("X"), a = ctx.Input("A@GRAD");
                const TensorArg b = ctx.Input("B@GRAD"), dx = ctx.Output("X@GRAD");
                return [=](Workspace& ws) {
                  for (int64_t i = 0; i < x.numel; ++i)
                    ws.Data<T>(dx)[i] = 2 * ws.Data<const T>(a)[i] +
                                        2 * ws.Data<const T>(x)[i] * ws.Data<const T>(b)[i];
                };
              }));
}

template <bool kSum>
OpDef Reduction(OpDef def, const char* in, const char* out) {
  def.Reference<float, double>([=]<class T>(const PrepareContext& ctx) -> Kernel {
    const TensorArg x = ctx.Input(in), o = ctx.Output(out);
    return [=](Workspace& ws) {
      T total = 0;
      for (int64_t i = 0; kSum && i < x.numel; ++i) total += ws.Data<const T>(x)[i];
      for (int64_t i = 0; i < o.numel; ++i)
        ws.Data<T>(o)[i] = kSum ? total : ws.Data<const T>(x)[x.numel == 1 ? 0 : i];
    };
  });
  return def;
}

void RegisterShapes(OpRegistry& ops) {
  ops.Add(Reduction<true>(OpDef("t_sum_all").Doc("test").Input("X", "x").Output("Out", "out"), "X",
                          "Out")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .GradientOp({"X"}));
  ops.Add(Reduction<false>(OpDef("t_sum_all_grad")
                               .Doc("test")
                               .Input("X", "x")
                               .Input("Out@GRAD", "dout")
                               .Output("X@GRAD", "dx"),
                           "Out@GRAD", "X@GRAD")
              .Infer([](InferContext& ctx) { ctx.SetOutput("X@GRAD", ctx.Input("X")); })
              .NoGradient("first order only"));
  ops.Add(Reduction<false>(OpDef("t_flatten").Doc("test").Input("X", "x").Output("Out", "out"), "X",
                           "Out")
              .Infer([](InferContext& ctx) {
                ctx.SetOutput("Out", ctx.InputDType("X"), {ctx.InputShape("X").numel()});
              })
              .GradientOp({"X"}));
  ops.Add(Reduction<false>(OpDef("t_flatten_grad")
                               .Doc("test")
                               .Input("X", "x")
                               .Input("Out@GRAD", "dout")
                               .Output("X@GRAD", "dx"),
                           "Out@GRAD", "X@GRAD")
              .Infer([](InferContext& ctx) { ctx.SetOutput("X@GRAD", ctx.Input("X")); })
              .NoGradient("first order only"));
}

void RegisterWithoutGradient(OpRegistry& ops) {
  ops.Add(Unary("t_floor", [](auto x, auto) {
            return std::floor(x);
          }).NoGradient("it is constant almost everywhere"));
  ops.Add(OpDef("t_index")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .NoGradient("the output holds integers")
              .Infer([](InferContext& c) { c.SetOutput("Out", DType::kInt64, c.InputShape("X")); })
              .Reference<float, double>([]<class T>(const PrepareContext& ctx) -> Kernel {
                const TensorArg o = ctx.Output("Out");
                return [=](Workspace& ws) {
                  for (int64_t i = 0; i < o.numel; ++i) ws.Data<int64_t>(o)[i] = i;
                };
              }));
  ops.Add(Unary("t_like", [](auto, auto) { return 0; }).ShapeOnly().NoGradient("shape only"));
  ops.Add(Unary("t_silent", [](auto x, auto) { return x; }).Gradient([](GradientContext&) {}));
  ops.Add(Unary("t_wrong", [](auto x, auto) { return x; }).Gradient([](GradientContext& g) {
    g.Append("t_sum_all", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
  }));
}

// The ops that backward emits, in their plainest form.
void RegisterEmitted(OpRegistry& ops) {
  ops.Add(OpDef("fill_constant")
              .Doc("test")
              .Output("Out", "out")
              .Attr<std::vector<int64_t>>("shape", "shape")
              .Attr<float>("value", "value")
              .Attr<int32_t>("dtype", "dtype")
              .Attr<bool>("force_cpu", false, "ignored")
              .NoGradient("no input")
              .Infer([](InferContext& ctx) {
                ctx.SetOutput("Out", static_cast<DType>(ctx.Attr<int32_t>("dtype")),
                              Shape(ctx.Attr<std::vector<int64_t>>("shape")));
              })
              .Reference<float, double>([]<class T>(const PrepareContext& ctx) -> Kernel {
                const TensorArg o = ctx.Output("Out");
                const T value = static_cast<T>(ctx.Attr<float>("value"));
                return [=](Workspace& ws) { std::fill_n(ws.Data<T>(o), o.numel, value); };
              }));
  ops.Add(Unary("assign", [](auto x, auto) { return x; }).Gradient([](GradientContext& g) {
    g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
  }));
  ops.Add(
      OpDef("sum")
          .Doc("test")
          .VariadicInput("X", "x")
          .Output("Out", "out")
          .Infer(SameAsX)
          .Gradient([](GradientContext& g) {
            for (size_t i = 0; i < g.Inputs("X").size(); ++i)
              g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X", i)}}});
          })
          .Reference<float, double>([]<class T>(const PrepareContext& ctx) -> Kernel {
            const std::vector<TensorArg> x = ctx.Inputs("X");
            const TensorArg o = ctx.Output("Out");
            return [=](Workspace& ws) {
              for (int64_t i = 0; i < o.numel; ++i) {
                T total = 0;
                for (const TensorArg& arg : x) total += ws.Data<const T>(arg)[i];
                ws.Data<T>(o)[i] = total;
              }
            };
          }));
  ops.Add(Unary("fill_any_like", [](auto, auto) { return 1; })
              .Attr<float>("value", 0.f, "ignored: 1")
              .ShapeOnly()
              .NoGradient("shape only"));
}

}  // namespace

void RegisterTestOps(OpRegistry& ops) {
  RegisterArithmetic(ops);
  RegisterActivations(ops);
  RegisterTwo(ops);
  RegisterShapes(ops);
  RegisterWithoutGradient(ops);
  RegisterEmitted(ops);
  clip_op::Register(ops);
  fill_zeros_like_op::Register(ops);
  mul_op::Register(ops);
}

const OpRegistry& TestOps() {
  static const OpRegistry* const ops = [] {
    auto* made = new OpRegistry();
    RegisterTestOps(*made);
    return made;
  }();
  return *ops;
}

VarDesc& TestProgram::Param(const std::string& name) {
  VarDesc& var = root().Var(name);
  var.SetShape(shape_);
  var.SetDType(dtype_);
  var.SetPersistable(true);
  var.SetIsParameter(true);
  return var;
}

VarDesc& TestProgram::Data(const std::string& name) {
  VarDesc& var = root().Var(name);
  var.SetShape(shape_);
  var.SetDType(dtype_);
  var.SetStopGradient(true);
  return var;
}

void TestProgram::AppendTo(BlockDesc& block, const std::string& type,
                           const std::vector<std::string>& in, const std::string& out) {
  SlotList inputs = {{"X", {in[0]}}};
  if (in.size() > 1) inputs.push_back({"Y", {in[1]}});
  InferOp(block, block.AppendOp(type, std::move(inputs), {{"Out", {out}}}), TestOps());
}

std::string TestProgram::Op(const std::string& type, const std::vector<std::string>& in,
                            const std::string& out) {
  AppendTo(root(), type, in, out);
  return out;
}

Variable TestProgram::Loss(const std::string& in) { return Var(Op("t_sum_all", {in}, "loss")); }

VarValues TestProgram::Inputs() const {
  VarValues env;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (!var.persistable() && !var.stop_gradient()) continue;
    Philox random(11, HashName(var.name()), 0);
    Tensor value(DType::kFloat64, var.shape());
    for (int64_t k = 0; k < value.numel(); ++k)
      value.data<double>()[k] = 2 * random.UniformDouble(static_cast<uint64_t>(k)) - 1;
    env[var.name()] = value.Cast(var.dtype());
  }
  return env;
}

VarValues TestProgram::Run(VarValues inputs) const {
  for (auto& [name, value] : inputs) value = std::get<Tensor>(value).Clone();
  Interpret(program.Root(), TestOps(), inputs);
  return inputs;
}

int TestProgram::CountOps(const std::string& type) const {
  int count = 0;
  for (size_t i = 0; i < program.Root().NumOps(); ++i) count += program.Root().op(i).type() == type;
  return count;
}

std::string TestProgram::Listing() const {
  auto names = [](const SlotList& slots) {
    std::vector<std::string> all;
    for (const Slot& slot : slots) all.insert(all.end(), slot.args.begin(), slot.args.end());
    return Join(all, ", ");
  };
  std::string text;
  for (size_t i = 0; i < program.Root().NumOps(); ++i) {
    const OpDesc& op = program.Root().op(i);
    text += names(op.outputs()) + " = " + op.type() + "(" + names(op.inputs()) + ")\n";
  }
  return text;
}

std::vector<double> Values(const VarValues& env, const std::string& name) {
  auto it = env.find(name);
  if (it == env.end()) {
    ADD_FAILURE() << "no value of " << name;
    return {};
  }
  Tensor wide = std::get<Tensor>(it->second).Cast(DType::kFloat64);
  auto span = wide.span<double>();
  return {span.begin(), span.end()};
}

void ExpectGradients(const TestProgram& test, const std::vector<ParamAndGrad>& pairs,
                     const std::string& loss) {
  const double kStep = 1e-6;
  const VarValues inputs = test.Inputs();
  const VarValues out = test.Run(inputs);
  auto loss_at = [&](const std::string& name, double direction_sign) {
    VarValues moved = inputs;
    Tensor x = std::get<Tensor>(inputs.at(name)).Clone();
    Philox random(3, HashName(name), 0);
    for (int64_t k = 0; k < x.numel(); ++k)
      x.data<double>()[k] += direction_sign * kStep * random.Normal(static_cast<uint64_t>(k));
    moved[name] = x;
    double total = 0;
    for (double v : Values(test.Run(moved), loss)) total += v;
    return total;
  };
  for (const ParamAndGrad& pair : pairs) {
    const double numeric = (loss_at(pair.param, 1) - loss_at(pair.param, -1)) / (2 * kStep);
    double analytic = 0;
    if (!pair.grad.empty()) {
      const std::vector<double> grad = Values(out, pair.grad);
      Philox random(3, HashName(pair.param), 0);
      for (size_t k = 0; k < grad.size(); ++k) analytic += grad[k] * random.Normal(k);
    }
    EXPECT_NEAR(analytic, numeric, 1e-6 * std::max(1.0, std::abs(numeric))) << pair.param << "\n"
                                                                            << test.Listing();
  }
}

}  // namespace coracle
