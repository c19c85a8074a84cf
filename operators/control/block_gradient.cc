#include <coracle/framework/op/op_context.h>
#include <coracle/operators/control/add_value.h>
#include <coracle/operators/control/block_gradient.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

ptrdiff_t Find(const Names& names, const std::string& name) {
  auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : it - names.begin();
}

// A variable that the block writes, with its gradients on the way back through the runs.
struct State {
  std::string var, arrived;      // its Out@GRAD; @EMPTY@: none
  std::string out;               // its value after the op, if needed for the type of zeros
  std::string arriving, before;  // input of the gradient block, and its output for the previous run
};

struct Result {
  std::string gradient;  // variable that receives the result
  std::string like;      // variable of the same type; @EMPTY@ for a state
  std::string leaving;   // output of the gradient block; "" for a state
  int32_t state = -1;    // -1: a sum over the runs
};

class BlockGradientRule {
 public:
  BlockGradientRule(GradientContext& g, const BlockOpSlots& slots)
      : g_(g),
        slots_(slots),
        inputs_(g.forward_op().Input(slots.input)),
        outs_(g.forward_op().Output("Out")) {}

  void Run() {
    MakeBlock();
    for (const GradientBlock::Value& value : block_.arriving) StateOf(value.var);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool wanted = g_.NeedsInputGrad(slots_.input, i);
      AddResult(inputs_[i], wanted ? g_.InputGrad(slots_.input, i) : "", g_.Input(slots_.input, i));
    }
    for (size_t i = 0; i < outs_.size(); ++i)
      AddResult(outs_[i], g_.NeedsKeptGrad("Out", i) ? g_.KeptGrad("Out", i) : "", "");
    Append();
  }

 private:
  void MakeBlock() {
    GradientBlockRequest request;
    request.forward_block = g_.Attr<BlockRef>("sub_block").idx;
    for (size_t i = 0; i < outs_.size(); ++i) {
      if (g_.HasOutputGrad("Out", i)) request.outputs.push_back(outs_[i]);
      if (slots_.loop) request.carried.emplace_back(outs_[i], outs_[i]);
      if (g_.NeedsKeptGrad("Out", i)) request.inputs.push_back(outs_[i]);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (g_.NeedsInputGrad(slots_.input, i)) request.inputs.push_back(inputs_[i]);
    }
    block_ = g_.AppendGradientBlock(request);
  }

  int32_t StateOf(const std::string& var) {
    for (size_t k = 0; k < states_.size(); ++k) {
      if (states_[k].var == var) return static_cast<int32_t>(k);
    }
    const ptrdiff_t i = Find(outs_, var);
    if (i < 0) return -1;
    const size_t at = static_cast<size_t>(i);
    State state{var, std::string(kEmptyVarName), std::string(kEmptyVarName), "", ""};
    if (g_.HasOutputGrad("Out", at))
      state.arrived = g_.OutputGrad("Out", at);
    else
      state.out = g_.Output("Out", at);
    state.arriving = GradientBlock::Find(block_.arriving, var);
    state.before = GradientBlock::Find(block_.leaving, var);
    states_.push_back(std::move(state));
    return static_cast<int32_t>(states_.size()) - 1;
  }

  // Adds one result for each variable, to match the slots of the forward op.
  void AddResult(const std::string& var, const std::string& gradient, const std::string& like) {
    Result result{std::string(kEmptyVarName), std::string(kEmptyVarName), "", -1};
    if (!gradient.empty()) {
      result.state = StateOf(var);
      if (result.state < 0) result.leaving = GradientBlock::Find(block_.leaving, var);
      if (result.state >= 0 || !result.leaving.empty()) result.gradient = gradient;
      if (!result.leaving.empty()) result.like = like;
    }
    results_.push_back(std::move(result));
  }

  std::vector<Result> Part(size_t begin, size_t end) const {
    return {results_.begin() + static_cast<ptrdiff_t>(begin),
            results_.begin() + static_cast<ptrdiff_t>(end)};
  }

  template <class T, class F>
  static std::vector<T> Each(const auto& list, F field) {
    std::vector<T> values;
    for (const auto& entry : list) values.push_back(field(entry));
    return values;
  }

  void Append() {
    auto of_states = [&](auto field) { return Each<std::string>(states_, field); };
    auto of_results = [&](auto field) { return Each<std::string>(results_, field); };
    const VarMeta steps{VarType::kStepScopes, DType::kFloat32, {}, 0};
    AttrList attrs = {{"arriving", of_states([](const State& s) { return s.arriving; })},
                      {"before", of_states([](const State& s) { return s.before; })},
                      {"leaving", of_results([](const Result& r) { return r.leaving; })},
                      {"state", Each<int32_t>(results_, [](const Result& r) { return r.state; })}};
    if (block_.idx >= 0) attrs.insert(attrs.begin(), {"sub_block", BlockRef{block_.idx}});
    const std::vector<Result> inputs = Part(0, inputs_.size()),
                              kept = Part(inputs_.size(), results_.size());
    auto gradient = [](const Result& r) { return r.gradient; };
    g_.Append(g_.op().type() + "_grad",
              {{slots_.input, Each<std::string>(inputs, [](const Result& r) { return r.like; })},
               {"Out", of_states([](const State& s) { return s.out; })},
               {slots_.scopes, {g_.ForwardOutput(slots_.scopes, steps)}},
               {"Out@GRAD", of_states([](const State& s) { return s.arrived; })}},
              {{GradName(slots_.input), Each<std::string>(inputs, gradient)},
               {"Kept@GRAD", Each<std::string>(kept, gradient)}},
              std::move(attrs));
  }

  GradientContext& g_;
  const BlockOpSlots& slots_;
  const Names inputs_, outs_;  // names in the sub-block
  GradientBlock block_;
  std::vector<State> states_;
  std::vector<Result> results_;
};

void RequireSteps(const InferContext& ctx, const char* slot) {
  const VarMeta& steps = ctx.Input(slot);
  ctx.Require("C1", steps.type == VarType::kStepScopes, steps);
}

bool Present(const std::vector<std::string>& args, size_t i) {
  return i < args.size() && !IsEmptyName(args[i]);
}

// Checks attrs and slots, which a program from a file may have wrong.
void CheckBlockGradient(const InferContext& ctx, const BlockOpSlots& slots) {
  RequireSteps(ctx, slots.scopes);
  const Names arriving = ctx.Attr<Names>("arriving"), before = ctx.Attr<Names>("before"),
              leaving = ctx.Attr<Names>("leaving");
  const auto state = ctx.Attr<std::vector<int32_t>>("state");
  const std::string grad = GradName(slots.input);
  const size_t states = ctx.NumInputs("Out@GRAD"), inputs = ctx.NumOutputs(grad),
               results = inputs + ctx.NumOutputs("Kept@GRAD");
  ctx.Require("C2", arriving.size() == states && before.size() == states, "arriving",
              arriving.size(), "before", before.size(), "Out@GRAD", states);
  ctx.Require("C2", leaving.size() == results && state.size() == results, "leaving", leaving.size(),
              "state", state.size(), "their variables", results);
  for (size_t k = 0; k < states; ++k) {
    ctx.Require("C3", Present(ctx.op().Input("Out@GRAD"), k) || Present(ctx.op().Input("Out"), k),
                "neither for variable", k);
  }
  for (size_t r = 0; r < results; ++r) {
    const bool summed = state[r] < 0;
    const bool there = r < inputs ? Present(ctx.op().Output(grad), r)
                                  : Present(ctx.op().Output("Kept@GRAD"), r - inputs);
    if (!there) continue;
    ctx.Require("C3", summed || static_cast<size_t>(state[r]) < states, "state", state[r],
                "Out@GRAD", states);
    ctx.Require("C3", !summed || (Present(ctx.op().Input(slots.input), r) && !leaving[r].empty()),
                "a sum without them", r);
  }
}

// Sets the declared shape. The gradient has the shape of the variable before the first run, which
// only a run knows.
void SetAsDeclared(InferContext& ctx, const std::string& slot, size_t i) {
  const VarMeta* declared = ctx.DeclaredOutput(slot, i);
  if (!declared) return;
  VarMeta meta = *declared;
  if (ctx.exact()) meta.shape = Shape{-1};
  ctx.SetOutput(slot, meta, i);
}

void InferBlockGradient(InferContext& ctx, const BlockOpSlots& slots) {
  CheckBlockGradient(ctx, slots);
  const std::string grad = GradName(slots.input);
  for (size_t i = 0; i < ctx.NumOutputs(grad); ++i) {
    if (Present(ctx.op().Input(slots.input), i))
      ctx.SetOutput(grad, ctx.Input(slots.input, i), i);
    else
      SetAsDeclared(ctx, grad, i);
  }
  for (size_t i = 0; i < ctx.NumOutputs("Kept@GRAD"); ++i) SetAsDeclared(ctx, "Kept@GRAD", i);
}

class BlockGradientKernel {
 public:
  BlockGradientKernel(const PrepareContext& ctx, const BlockOpSlots& slots)
      : scopes_(ctx.Input(slots.scopes)),
        arrived_(ctx.Inputs("Out@GRAD")),
        out_(ctx.Inputs("Out")),
        results_(ctx.Outputs(GradName(slots.input))),
        like_(ctx.Inputs(slots.input)),
        state_(ctx.Attr<std::vector<int32_t>>("state")) {
    const std::vector<TensorArg> kept = ctx.Outputs("Kept@GRAD");
    results_.insert(results_.end(), kept.begin(), kept.end());
    BlockArgs args;
    const Names arriving = ctx.Attr<Names>("arriving"), before = ctx.Attr<Names>("before"),
                leaving = ctx.Attr<Names>("leaving");
    for (const std::string& name : arriving) {
      states_.push_back(ctx.ScratchValue());
      if (!name.empty()) args.in.emplace_back(name, states_.back());
    }
    for (const std::string& name : before) next_.push_back(AddOutput(ctx, name, &args));
    for (const std::string& name : leaving) leaving_.push_back(AddOutput(ctx, name, &args));
    if (ctx.op().HasAttr("sub_block")) block_ = ctx.SubBlock("sub_block", args);
  }

  void operator()(Workspace& ws) const {
    auto& steps = *std::get<std::shared_ptr<StepScopes>>(ws.ValueOf(scopes_));
    for (size_t k = 0; k < states_.size(); ++k) {
      VarValue& state = ws.ValueOf(states_[k]);
      arrived_[k] ? CopyValue(ws.ValueOf(arrived_[k]), &state)
                  : SetZerosLike(ws.ValueOf(out_[k]), &state);
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      if (results_[r] && state_[r] < 0) Clear(ws, r);
    }
    for (size_t t = steps.size(); t-- > 0;) {
      if (block_ >= 0) ws.RunBlock(block_, nullptr, &steps[t]);
      for (size_t r = 0; r < results_.size(); ++r) {
        if (results_[r] && state_[r] < 0 && leaving_[r])
          AddValue(ws.ValueOf(leaving_[r]), &ws.ValueOf(results_[r]));
      }
      for (size_t k = 0; k < states_.size(); ++k) StepBack(ws, k);
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      if (results_[r] && state_[r] >= 0) Deliver(ws, r);
    }
  }

 private:
  static TensorArg AddOutput(const PrepareContext& ctx, const std::string& name, BlockArgs* args) {
    if (name.empty()) return {};
    for (const auto& [taken, arg] : args->out) {
      if (taken == name) return arg;
    }
    args->out.emplace_back(name, ctx.ScratchValue());
    return args->out.back().second;
  }

  void StepBack(Workspace& ws, size_t k) const {
    VarValue& state = ws.ValueOf(states_[k]);
    if (next_[k])
      std::swap(state, ws.ValueOf(next_[k]));
    else
      SetZerosLike(state, &state);
  }

  void Clear(Workspace& ws, size_t r) const {
    SetZerosLike(ws.ValueOf(like_[r]), &ws.ValueOf(results_[r]));
  }

  void Deliver(Workspace& ws, size_t r) const {
    const VarValue& value = ws.ValueOf(states_[static_cast<size_t>(state_[r])]);
    if (const auto* tensor = std::get_if<Tensor>(&value))
      ResizeOutput(ws, results_[r], tensor->dtype(), tensor->shape()).CopyFrom(*tensor);
    else
      CopyValue(value, &ws.ValueOf(results_[r]));
  }

  TensorArg scopes_;
  std::vector<TensorArg> arrived_, out_, results_, like_;
  std::vector<int32_t> state_;
  std::vector<TensorArg> states_, next_, leaving_;
  int32_t block_ = -1;
};

}  // namespace

void AppendBlockGradient(GradientContext& g, const BlockOpSlots& slots) {
  if (slots.loop && g.Attr<bool>("is_test")) {
    ThrowInvalid(fmt::format("{}: has is_test, so that backward finds nothing of its runs; clear "
                             "it to differentiate",
                             g.op().type()),
                 "  " + Locate(g.forward_op()));
  }
  BlockGradientRule(g, slots).Run();
}

OpDef BlockGradientOp(const std::string& type, const BlockOpSlots& slots) {
  const std::string grad = GradName(slots.input);
  OpDef def(type + "_grad");
  def.Doc(fmt::format(
              "Gradient of {}: runs its gradient block once for each run recorded in {}, from the "
              "last to the first. The gradient of a variable that the block writes is passed from "
              "run to run; the gradients of other variables are summed over the runs. If no run "
              "was recorded, the former are Out@GRAD and the latter zero.",
              type, slots.scopes))
      .Constraint("C1", fmt::format("{} must be step scopes", slots.scopes))
      .Constraint("C2", fmt::format("arriving and before must have one entry for each Out@GRAD, "
                                    "leaving and state one for each {} and Kept@GRAD",
                                    grad))
      .Constraint(
          "C3",
          "a variable must be in Out or have an Out@GRAD; state must be an index in Out@GRAD "
          "or -1: a sum, which needs its variable and a leaving gradient")
      .OptionalVariadicInput(slots.input,
                             "variables whose gradients are summed over runs; @EMPTY@ for others")
      .OptionalVariadicInput("Out", "written variables without an Out@GRAD; @EMPTY@ for others")
      .Input(slots.scopes, "values that the runs kept")
      .OptionalVariadicInput("Out@GRAD", "gradients of Out; @EMPTY@ if there is none")
      .Takes(VarType::kLoDTensorArray, {"Out@GRAD"})
      .OptionalVariadicOutput(grad, "gradients of the values before the first run")
      .OptionalVariadicOutput("Kept@GRAD", "the same for variables that are only written")
      .Attr<BlockRef>("sub_block", BlockRef{0},
                      "the gradient block; absent if no gradient flows through the block")
      .Attr<Names>(
          "arriving",
          "for each Out@GRAD, the variable of the gradient block that receives it; '': none")
      .Attr<Names>("before",
                   "for each Out@GRAD, the variable of the gradient block with the gradient for "
                   "the previous run; '': zero")
      .Attr<Names>("leaving", "the variables with its results, for each " + grad +
                                  " and then Kept@GRAD; '': see state")
      .Attr<std::vector<int32_t>>("state",
                                  "for each entry of leaving, its index in Out@GRAD; -1: summed")
      .Attr<std::vector<std::string>>("original_output_grad", {},
                                      "accepted from Paddle's programs; ignored")
      .Attr<bool>("is_test", false, "ignored")
      .Attr<bool>("is_scalar_condition", false, "ignored")
      .RunTimeShape()
      .NoGradient("only first derivatives are supported through sub-blocks")
      .Infer([slots](InferContext& ctx) { InferBlockGradient(ctx, slots); })
      .Reference(
          [slots](const PrepareContext& ctx) -> Kernel { return BlockGradientKernel(ctx, slots); });
  return def;
}

StepScopes* BeginSteps(Workspace& ws, const TensorArg& scopes) {
  if (!scopes) return nullptr;
  VarValue& value = ws.ValueOf(scopes);
  if (!std::holds_alternative<std::shared_ptr<StepScopes>>(value))
    value = std::make_shared<StepScopes>();
  auto& steps = *std::get<std::shared_ptr<StepScopes>>(value);
  steps.clear();
  return &steps;
}

void RunAndSave(Workspace& ws, int32_t block, bool saves, StepScopes* steps) {
  if (steps && saves) {
    ws.RunBlock(block, &steps->Push(), nullptr);
    return;
  }
  ws.RunBlock(block);
  if (steps) steps->Count();
}

}  // namespace coracle::inline internal
