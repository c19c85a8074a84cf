#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/backward/loop_ops.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

using Names = std::vector<std::string>;

Names VarsOf(const std::vector<GradientBlock::Value>& values) {
  Names names;
  for (const auto& value : values) names.push_back(value.var);
  return names;
}
Names GradientsOf(const std::vector<GradientBlock::Value>& values) {
  Names names;
  for (const auto& value : values) names.push_back(value.gradient);
  return names;
}
bool Has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void LoopGradient(GradientContext& g) {
  const Names& x = g.forward_op().Input("X");
  const Names& out = g.forward_op().Output("Out");
  GradientBlockRequest request;
  request.forward_block = g.Attr<BlockRef>("sub_block").idx;
  Names out_grads, x_grads, kept_grads;
  for (size_t i = 0; i < out.size(); ++i) {
    if (g.HasOutputGrad("Out", i)) request.outputs.push_back(out[i]);
    out_grads.push_back(g.HasOutputGrad("Out", i) ? g.OutputGrad("Out", i)
                                                  : std::string(kEmptyVarName));
    kept_grads.push_back(g.KeptGrad("Out", i));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (g.NeedsInputGrad("X", i)) request.inputs.push_back(x[i]);
    if (Has(out, x[i])) request.carried.emplace_back(x[i], x[i]);
  }
  const GradientBlock block = g.AppendGradientBlock(request);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool left = !GradientBlock::Find(block.leaving, x[i]).empty() || Has(out, x[i]);
    x_grads.push_back(left ? g.InputGrad("X", i) : std::string(kEmptyVarName));
  }
  AttrList attrs = {{"x", x},
                    {"out", out},
                    {"arriving", VarsOf(block.arriving)},
                    {"arriving_grads", GradientsOf(block.arriving)},
                    {"leaving", VarsOf(block.leaving)},
                    {"leaving_grads", GradientsOf(block.leaving)}};
  // Without a path through the sub-block there is none for the gradients: a loop that ran passes
  // nothing on, one that did not all.
  if (block.idx >= 0) attrs.push_back({"sub_block", BlockRef{block.idx}});
  g.Append("t_loop_grad",
           {{"X", g.Inputs("X")},
            {"Out@GRAD", out_grads},
            {"Scopes", {g.ForwardOutput("Scopes", {VarType::kStepScopes, {}, {}})}}},
           {{"X@GRAD", x_grads}, {"Kept@GRAD", kept_grads}}, std::move(attrs));
}

void InferLoopGrad(InferContext& ctx) {
  for (size_t i = 0; i < ctx.NumOutputs("X@GRAD"); ++i)
    ctx.SetOutput("X@GRAD", ctx.Input("X", i), i);
}

Names Strings(const OpDesc& op, const char* attr) { return op.GetAttr<Names>(attr, {}); }

int SubBlock(const OpDesc& op) { return std::get<BlockRef>(*op.FindAttr("sub_block")).idx; }

VarValue Zeros(const VarValue& like) {
  const auto& tensor = std::get<Tensor>(like);
  return Tensor::Full<double>(tensor.shape(), 0.0);
}

void AddTo(VarValue& total, const VarValue& part) {
  if (std::holds_alternative<std::monostate>(total)) {
    total = std::get<Tensor>(part).Clone();
    return;
  }
  auto& sum = std::get<Tensor>(total);
  for (int64_t i = 0; i < sum.numel(); ++i)
    sum.data<double>()[i] += std::get<Tensor>(part).data<double>()[i];
}

// Every value in memory of its own, so that a frame stays what it is.
VarValues Clone(const VarValues& env) {
  VarValues copy;
  for (const auto& [name, value] : env) {
    const auto* tensor = std::get_if<Tensor>(&value);
    copy[name] = tensor ? VarValue(tensor->Clone()) : value;
  }
  return copy;
}

bool Writes(const BlockDesc& block, const std::string& name) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    for (const Slot& slot : block.op(i).outputs()) {
      if (Has(slot.args, name)) return true;
    }
  }
  return false;
}

void RunLoop(const OpDesc& op, LoopEnvironment& env) {
  const BlockDesc& body = op.block()->program().Block(SubBlock(op));
  std::vector<LoopEnvironment> frames;
  const int times = op.GetAttr<int32_t>("times", 0);
  for (int t = 0; t < times; ++t) {
    LoopEnvironment frame{Clone(env.values), env.frames};
    RunWithLoops(body, frame);
    for (const std::string& out : op.Output("Out")) env.values[out] = frame.values.at(out);
    frames.push_back({Clone(frame.values), frame.frames});
  }
  if (op.HasOutput("Scopes")) env.frames[op.Output("Scopes")[0]] = std::move(frames);
}

void RunLoopGrad(const OpDesc& op, LoopEnvironment& env) {
  const ProgramDesc& program = op.block()->program();
  const BlockDesc* block = op.HasSubBlock() ? &program.Block(SubBlock(op)) : nullptr;
  const Names x = Strings(op, "x"), out = Strings(op, "out");
  const Names arriving = Strings(op, "arriving"), leaving = Strings(op, "leaving");
  const Names arriving_grads = Strings(op, "arriving_grads");
  const Names leaving_grads = Strings(op, "leaving_grads");
  const std::vector<LoopEnvironment>& frames = env.frames.at(op.Input("Scopes")[0]);

  VarValues now;  // the gradient of what each output holds
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string& grad = op.Input("Out@GRAD")[i];
    if (!IsEmptyName(grad)) now[out[i]] = env.values.at(grad);
  }
  VarValues sums;
  for (size_t t = frames.size(); t-- > 0;) {
    if (!block) {
      now.clear();
      break;
    }
    const BlockDesc& body = *block->forward_block();
    LoopEnvironment run{Clone(env.values), frames[t].frames};
    for (const auto& [name, value] : frames[t].values) {
      if (body.FindVar(name) || Writes(body, name)) run.values[name] = value;
    }
    for (size_t i = 0; i < arriving.size(); ++i) {
      run.values[arriving_grads[i]] =
          now.count(arriving[i]) ? now[arriving[i]] : Zeros(frames[t].values.at(arriving[i]));
    }
    RunWithLoops(*block, run);
    VarValues before;
    for (size_t i = 0; i < leaving.size(); ++i) {
      const VarValue& grad = run.values.at(leaving_grads[i]);
      if (Has(out, leaving[i]))
        before[leaving[i]] = grad;
      else
        AddTo(sums[leaving[i]], grad);
    }
    now = std::move(before);
  }
  auto put = [&](const std::string& name, const std::string& var, const VarValues& from) {
    if (IsEmptyName(name)) return;
    auto it = from.find(var);
    env.values[name] = it != from.end() ? it->second : Zeros(env.values.at(var));
  };
  for (size_t i = 0; i < x.size(); ++i)
    put(op.Output("X@GRAD")[i], x[i], Has(out, x[i]) ? now : sums);
  for (size_t i = 0; i < out.size(); ++i)
    put(op.Output("Kept@GRAD")[i], out[i], frames.empty() ? now : VarValues());
}

}  // namespace

void RegisterLoop(OpRegistry& ops) {
  ops.Add(OpDef("t_loop")
              .Doc("test")
              .OptionalVariadicInput("X", "x")
              .OptionalVariadicOutput("Out", "out")
              .OptionalOutput("Scopes", "frames")
              .Attr<BlockRef>("sub_block", "body")
              .Attr<int32_t>("times", "times")
              .KeepsOutputs({"Out"})
              .Gradient(LoopGradient));
  ops.Add(OpDef("t_loop_grad")
              .Doc("test")
              .OptionalVariadicInput("X", "x")
              .OptionalVariadicInput("Out@GRAD", "dout")
              .Input("Scopes", "frames")
              .OptionalVariadicOutput("X@GRAD", "dx")
              .OptionalVariadicOutput("Kept@GRAD", "gradients of what Out held before")
              .Attr<BlockRef>("sub_block", BlockRef{}, "gradient block")
              .Attr<Names>("x", "names")
              .Attr<Names>("out", "names")
              .Attr<Names>("arriving", "names")
              .Attr<Names>("arriving_grads", "names")
              .Attr<Names>("leaving", "names")
              .Attr<Names>("leaving_grads", "names")
              .Infer(InferLoopGrad)
              .NoGradient("first order only"));
}

const OpRegistry& LoopOps() {
  static const OpRegistry* const ops = [] {
    auto* made = new OpRegistry();
    RegisterTestOps(*made);
    RegisterLoop(*made);
    return made;
  }();
  return *ops;
}

void RunWithLoops(const BlockDesc& block, LoopEnvironment& env) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    if (op.type() == "t_loop")
      RunLoop(op, env);
    else if (op.type() == "t_loop_grad")
      RunLoopGrad(op, env);
    else
      InterpretOp(op, LoopOps(), env.values);
  }
}

void ExpectLoopGradients(const TestProgram& test, const std::vector<ParamAndGrad>& pairs,
                         const std::string& loss) {
  const double kStep = 1e-6;
  auto run = [&](const std::string& moved, double sign) {
    LoopEnvironment env;
    env.values = Clone(test.Inputs());
    if (!moved.empty()) {
      auto& x = std::get<Tensor>(env.values.at(moved));
      Philox random(3, HashName(moved), 0);
      for (int64_t k = 0; k < x.numel(); ++k)
        x.data<double>()[k] += sign * kStep * random.Normal(static_cast<uint64_t>(k));
    }
    RunWithLoops(test.program.Root(), env);
    return env.values;
  };
  auto total = [&](const VarValues& env) {
    double sum = 0;
    for (double v : Values(env, loss)) sum += v;
    return sum;
  };
  const VarValues at = run("", 0);
  for (const ParamAndGrad& pair : pairs) {
    const double numeric = (total(run(pair.param, 1)) - total(run(pair.param, -1))) / (2 * kStep);
    double analytic = 0;
    if (!pair.grad.empty()) {
      const std::vector<double> grad = Values(at, pair.grad);
      Philox random(3, HashName(pair.param), 0);
      for (size_t k = 0; k < grad.size(); ++k) analytic += grad[k] * random.Normal(k);
    }
    EXPECT_NEAR(analytic, numeric, 1e-6 * std::max(1.0, std::abs(numeric))) << pair.param;
  }
}

}  // namespace coracle
