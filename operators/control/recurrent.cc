// recurrent: runs a block once per step of sequences.
//
// In the block, the name of an input refers to its slice at the step, and the name of an output to
// the slice that the step computes. ex_states[k] is states[k] at the end of the previous step
// (initial_states[k] in the first step). Backward, with s the states and c the captured variables:
// ds = (d states / d ex_states)^T ds' + the gradients of the step's outputs; dc is summed
// over steps.

#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/add_value.h>
#include <coracle/operators/control/block_gradient.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace coracle::recurrent_op {

using Names = std::vector<std::string>;

Shape SliceShape(const Shape& shape) {
  return Shape(std::span<const int64_t>(shape.begin() + 1, shape.end()));
}

Shape StackedShape(int64_t steps, const Shape& slice) {
  Shape shape;
  shape.Append(steps);
  for (int64_t dim : slice) shape.Append(dim);
  return shape;
}

Tensor SliceAt(const Tensor& stacked, int64_t t) {
  const Shape slice = SliceShape(stacked.shape());
  const size_t bytes = ByteSize(stacked.dtype(), slice);
  auto* data = static_cast<char*>(const_cast<void*>(stacked.raw()));
  return Tensor::View(stacked.dtype(), slice, data ? data + static_cast<size_t>(t) * bytes : data);
}

const Tensor& TensorOf(const VarValue& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return *tensor;
  ThrowInvalid("recurrent: a value of a step is not a dense tensor");
}

void CopyToSlice(const Tensor& slice, int64_t t, Tensor* stacked) {
  const Shape shape = StackedShape(stacked->shape()[0], slice.shape());
  if (slice.dtype() != stacked->dtype() || !(shape == stacked->shape())) {
    ThrowInvalid(fmt::format("recurrent: a step makes {}, but all steps together make {}",
                             slice.ToString(), stacked->ToString()));
  }
  if (slice.empty()) return;
  std::memcpy(static_cast<char*>(stacked->raw()) + static_cast<size_t>(t) * slice.nbytes(),
              slice.raw(), slice.nbytes());
}

// --- forward ---

// In an exact context, the first step determines the shape of a slice, so it is left open here;
// without steps, it is the declared shape with unknown dims 0.
VarMeta StackedMeta(const VarDesc* slice, int64_t steps, bool exact) {
  VarMeta meta;
  if (slice) meta.dtype = slice->dtype();
  meta.shape = Shape{exact && steps == 0 ? 0 : -1};
  if (!slice || slice->shape().rank() >= Shape::kMaxRank || (exact && steps > 0)) return meta;
  meta.shape = StackedShape(steps, slice->shape());
  for (int i = 0; exact && i < meta.shape.rank(); ++i)
    meta.shape[i] = std::max<int64_t>(meta.shape[i], 0);
  return meta;
}

void InferRecurrent(InferContext& ctx) {
  const Names ex_states = ctx.Attr<Names>("ex_states"), states = ctx.Attr<Names>("states");
  const auto n = static_cast<int64_t>(ctx.NumInputs("initial_states"));
  const auto ex = static_cast<int64_t>(ex_states.size()), now = static_cast<int64_t>(states.size());
  ctx.Require("C1", ex == now && now == n, ex, now, n);
  for (size_t k = 0; k < ctx.NumInputs("initial_states"); ++k)
    ctx.Input("initial_states", k);  // an absent one is @EMPTY@
  ctx.Require("C2", ctx.NumInputs("inputs") > 0, ctx.NumInputs("inputs"));
  int64_t steps = -1;
  for (size_t i = 0; i < ctx.NumInputs("inputs"); ++i) {
    const VarMeta& input = ctx.Input("inputs", i);
    const Shape& shape = input.shape;
    ctx.Require("C3", input.type == VarType::kLoDTensor, input);
    ctx.Require("C3", shape.rank() > 0, input);
    ctx.Require("C3", InferContext::Matches(steps, shape[0]), steps, shape[0]);
    steps = std::max(steps, shape[0]);
  }
  const BlockDesc* home = ctx.op().block();
  const int32_t idx = ctx.Attr<BlockRef>("sub_block").idx;
  const BlockDesc* block = home && idx > home->idx() && idx < home->program().NumBlocks()
                               ? &home->program().Block(idx)
                               : nullptr;
  for (size_t i = 0; i < ctx.NumOutputs("outputs"); ++i) {
    const VarDesc* slice = block ? block->FindVar(ctx.op().Output("outputs")[i]) : nullptr;
    if (block && !slice) ctx.Fail("C4", "none for " + Quote(ctx.op().Output("outputs")[i]));
    ctx.SetOutput("outputs", StackedMeta(slice, steps, ctx.exact()), i);
  }
  ctx.SetOutput("step_scopes", VarMeta{VarType::kStepScopes, DType::kFloat32, {}, 0});
}

class RecurrentKernel {
 public:
  explicit RecurrentKernel(const PrepareContext& ctx)
      : inputs_(ctx.Inputs("inputs")),
        initial_(ctx.Inputs("initial_states")),
        outputs_(ctx.Outputs("outputs")),
        scopes_(ctx.Output("step_scopes")),
        reverse_(ctx.Attr<bool>("reverse")),
        saves_(ctx.HasGradientBlock("sub_block")) {
    BlockArgs args;
    auto in = [&](const std::string& name) {
      args.in.emplace_back(name, ctx.ScratchValue());
      return args.in.back().second;
    };
    auto out = [&](const std::string& name) {
      args.out.emplace_back(name, ctx.ScratchValue());
      return args.out.back().second;
    };
    for (const std::string& name : ctx.op().Input("inputs")) slices_.push_back(in(name));
    for (const std::string& name : ctx.Attr<Names>("ex_states")) before_.push_back(in(name));
    for (const std::string& name : ctx.Attr<Names>("states")) after_.push_back(out(name));
    for (const std::string& name : ctx.op().Output("outputs")) made_.push_back(out(name));
    block_ = ctx.SubBlock("sub_block", args);
    steps_ = inputs_.front().shape[0];
  }

  void operator()(Workspace& ws) const {
    StepScopes* scopes = BeginSteps(ws, scopes_);
    for (size_t k = 0; k < initial_.size(); ++k)
      CopyValue(ws.ValueOf(initial_[k]), &ws.ValueOf(before_[k]));
    for (int64_t n = 0; n < steps_; ++n) {
      const int64_t t = reverse_ ? steps_ - 1 - n : n;
      for (size_t i = 0; i < inputs_.size(); ++i)
        ws.ValueOf(slices_[i]) = SliceAt(std::get<Tensor>(ws.ValueOf(inputs_[i])), t);
      RunAndSave(ws, block_, saves_, scopes);
      for (size_t o = 0; o < outputs_.size(); ++o) PutOutput(ws, o, t, n == 0);
      for (size_t k = 0; k < before_.size(); ++k)
        std::swap(ws.ValueOf(before_[k]), ws.ValueOf(after_[k]));
    }
  }

 private:
  void PutOutput(Workspace& ws, size_t o, int64_t t, bool first) const {
    if (!outputs_[o]) return;
    const Tensor& slice = TensorOf(ws.ValueOf(made_[o]));
    const Shape shape = StackedShape(steps_, slice.shape());
    auto* out = std::get_if<Tensor>(&ws.ValueOf(outputs_[o]));
    if (first) {
      out = &ResizeOutput(ws, outputs_[o], slice.dtype(), shape);
    } else if (!out || !(out->shape() == shape)) {
      ThrowInvalid(fmt::format("recurrent: the outputs of all steps must have one shape, got {}",
                               slice.ToString()));
    }
    CopyToSlice(slice, t, out);
  }

  std::vector<TensorArg> inputs_, initial_, outputs_;
  TensorArg scopes_;
  bool reverse_, saves_;
  std::vector<TensorArg> slices_, before_, after_, made_;
  int32_t block_ = -1;
  int64_t steps_ = 0;
};

// --- gradient ---

void RecurrentGradient(GradientContext& g) {
  const OpDesc& op = g.forward_op();
  const Names inputs = op.Input("inputs"), initial = op.Input("initial_states"),
              parameters = op.Input("parameters"), outputs = op.Output("outputs");
  const Names ex_states = g.Attr<Names>("ex_states"), states = g.Attr<Names>("states");
  if (ex_states.size() != states.size() || states.size() != initial.size()) {
    const OpSpec& spec = g.registry().Get(op.type());
    ThrowInvalid(
        spec.Failure("C1", GotValues(ex_states.size(), states.size(), initial.size()).text()),
        "  " + Locate(op));
  }
  GradientBlockRequest request;
  request.forward_block = g.Attr<BlockRef>("sub_block").idx;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (g.HasOutputGrad("outputs", o)) request.outputs.push_back(outputs[o]);
  }
  for (size_t k = 0; k < states.size(); ++k) {
    request.carried.emplace_back(ex_states[k], states[k]);
    if (g.NeedsInputGrad("initial_states", k)) request.inputs.push_back(ex_states[k]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (g.NeedsInputGrad("inputs", i)) request.inputs.push_back(inputs[i]);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (g.NeedsInputGrad("parameters", i)) request.inputs.push_back(parameters[i]);
  }
  const GradientBlock block = g.AppendGradientBlock(request);
  if (block.idx < 0) return;

  auto index_of = [](const Names& names, const std::string& name) {
    auto it = std::find(names.begin(), names.end(), name);
    return it == names.end() ? -1 : static_cast<int32_t>(it - names.begin());
  };
  Names arriving, output_grads;
  std::vector<int32_t> of_output, of_state;
  for (const GradientBlock::Value& value : block.arriving) {
    arriving.push_back(value.gradient);
    const int32_t o = index_of(outputs, value.var);
    of_output.push_back(o >= 0 && g.HasOutputGrad("outputs", static_cast<size_t>(o)) ? o : -1);
    of_state.push_back(index_of(states, value.var));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    output_grads.push_back(g.HasOutputGrad("outputs", o) ? g.OutputGrad("outputs", o)
                                                         : std::string(kEmptyVarName));
  }
  auto leaving = [&](const Names& vars) {
    Names names;
    for (const std::string& var : vars) names.push_back(GradientBlock::Find(block.leaving, var));
    return names;
  };
  auto wanted = [&](const char* slot, const Names& left) {
    Names names = g.InputGrads(slot);
    for (size_t i = 0; i < names.size(); ++i) {
      if (left[i].empty()) names[i] = kEmptyVarName;
    }
    return names;
  };
  const Names left_inputs = leaving(inputs), left_states = leaving(ex_states),
              left_parameters = leaving(parameters);
  g.Append("recurrent_grad",
           {{"inputs", g.Inputs("inputs")},
            {"initial_states", g.Inputs("initial_states")},
            {"parameters", g.Inputs("parameters")},
            {"step_scopes",
             {g.ForwardOutput("step_scopes", {VarType::kStepScopes, DType::kFloat32, {}, 0})}},
            {"outputs@GRAD", output_grads}},
           {{"inputs@GRAD", wanted("inputs", left_inputs)},
            {"initial_states@GRAD", wanted("initial_states", left_states)},
            {"parameters@GRAD", wanted("parameters", left_parameters)}},
           {{"sub_block", BlockRef{block.idx}},
            {"reverse", g.Attr<bool>("reverse")},
            {"arriving", arriving},
            {"of_output", of_output},
            {"of_state", of_state},
            {"left_inputs", left_inputs},
            {"left_states", left_states},
            {"left_parameters", left_parameters}});
}

// Checks attrs and slots, which a program from a file may have wrong.
void CheckRecurrentGrad(const InferContext& ctx) {
  const VarMeta& scopes = ctx.Input("step_scopes");
  ctx.Require("C1", scopes.type == VarType::kStepScopes, scopes);
  const auto arriving = ctx.Attr<Names>("arriving");
  const auto of_output = ctx.Attr<std::vector<int32_t>>("of_output");
  const auto of_state = ctx.Attr<std::vector<int32_t>>("of_state");
  ctx.Require("C2", of_output.size() == arriving.size() && of_state.size() == arriving.size(),
              "of_output", of_output.size(), "of_state", of_state.size(), "arriving",
              arriving.size());
  const auto states = static_cast<int32_t>(ctx.NumInputs("initial_states"));
  for (size_t a = 0; a < arriving.size(); ++a) {
    const auto& grads = ctx.op().Input("outputs@GRAD");
    const bool output =
        of_output[a] < 0 || (static_cast<size_t>(of_output[a]) < grads.size() &&
                             !IsEmptyName(grads[static_cast<size_t>(of_output[a])]));
    ctx.Require("C3", output && of_state[a] < states && (of_output[a] >= 0 || of_state[a] >= 0),
                "of_output", of_output[a], "of_state", of_state[a]);
  }
  for (auto [slot, attr] : {std::pair{"inputs", "left_inputs"},
                            {"initial_states", "left_states"},
                            {"parameters", "left_parameters"}}) {
    const size_t left = ctx.Attr<Names>(attr).size();
    ctx.Require("C2", left == ctx.NumInputs(slot) && left == ctx.NumOutputs(GradName(slot)), attr,
                left, slot, ctx.NumInputs(slot), "their gradients", ctx.NumOutputs(GradName(slot)));
  }
  for (const char* slot : {"inputs", "initial_states", "outputs@GRAD"}) {
    for (size_t i = 0; i < ctx.NumInputs(slot); ++i) {
      if (IsEmptyName(ctx.op().Input(slot)[i])) continue;
      const VarMeta& meta = ctx.Input(slot, i);
      ctx.Require("C4", meta.type == VarType::kLoDTensor, slot, meta);
      const bool steps = std::string_view(slot) == "initial_states" ||
                         (meta.shape.rank() > 0 &&
                          InferContext::Matches(meta.shape[0], ctx.InputShape("inputs")[0]));
      ctx.Require("C4", steps, slot, meta, "inputs", ctx.InputShape("inputs"));
    }
  }
}

void InferRecurrentGrad(InferContext& ctx) {
  CheckRecurrentGrad(ctx);
  for (const char* slot : {"inputs", "initial_states", "parameters"}) {
    const std::string grad = GradName(slot);
    for (size_t i = 0; i < ctx.NumInputs(slot); ++i) {
      const VarMeta& meta = ctx.Input(slot, i);  // an absent one is @EMPTY@
      if (i < ctx.NumOutputs(grad)) ctx.SetOutput(grad, meta, i);
    }
  }
}

class RecurrentGradKernel {
 public:
  explicit RecurrentGradKernel(const PrepareContext& ctx)
      : inputs_(ctx.Inputs("inputs")),
        initial_(ctx.Inputs("initial_states")),
        parameters_(ctx.Inputs("parameters")),
        scopes_(ctx.Input("step_scopes")),
        output_grads_(ctx.Inputs("outputs@GRAD")),
        input_grads_(ctx.Outputs("inputs@GRAD")),
        initial_grads_(ctx.Outputs("initial_states@GRAD")),
        parameter_grads_(ctx.Outputs("parameters@GRAD")),
        of_output_(ctx.Attr<std::vector<int32_t>>("of_output")),
        of_state_(ctx.Attr<std::vector<int32_t>>("of_state")),
        reverse_(ctx.Attr<bool>("reverse")) {
    BlockArgs args;
    for (const std::string& name : ctx.Attr<Names>("arriving")) {
      arriving_.push_back(ctx.ScratchValue());
      args.in.emplace_back(name, arriving_.back());
    }
    auto take = [&](const char* attr, std::vector<TensorArg>* taken) {
      for (const std::string& name : ctx.Attr<Names>(attr)) {
        taken->push_back(name.empty() ? TensorArg() : ctx.ScratchValue());
        if (!name.empty()) args.out.emplace_back(name, taken->back());
      }
    };
    take("left_inputs", &left_inputs_);
    take("left_states", &left_states_);
    take("left_parameters", &left_parameters_);
    for (size_t k = 0; k < left_states_.size(); ++k) states_.push_back(ctx.ScratchValue());
    block_ = ctx.SubBlock("sub_block", args);
    steps_ = inputs_.front().shape[0];
  }

  void operator()(Workspace& ws) const {
    auto& scopes = *std::get<std::shared_ptr<StepScopes>>(ws.ValueOf(scopes_));
    for (size_t k = 0; k < states_.size(); ++k)
      SetZerosLike(ws.ValueOf(initial_[k]), &ws.ValueOf(states_[k]));
    for (size_t i = 0; i < parameter_grads_.size(); ++i) {
      if (parameter_grads_[i])
        SetZerosLike(ws.ValueOf(parameters_[i]), &ws.ValueOf(parameter_grads_[i]));
    }
    if (scopes.size() != static_cast<size_t>(steps_))
      ThrowInvalid("recurrent_grad: step_scopes do not match the steps of inputs");
    for (size_t n = scopes.size(); n-- > 0;) Step(ws, scopes[n], static_cast<int64_t>(n));
    for (size_t k = 0; k < states_.size(); ++k) {
      if (initial_grads_[k]) CopyValue(ws.ValueOf(states_[k]), &ws.ValueOf(initial_grads_[k]));
    }
  }

 private:
  void Step(Workspace& ws, StepScopes::Step& kept, int64_t n) const {
    const int64_t t = reverse_ ? steps_ - 1 - n : n;
    for (size_t a = 0; a < arriving_.size(); ++a) Arrive(ws, a, t);
    ws.RunBlock(block_, nullptr, &kept);
    for (size_t i = 0; i < input_grads_.size(); ++i) {
      if (!input_grads_[i] || !left_inputs_[i]) continue;
      CopyToSlice(TensorOf(ws.ValueOf(left_inputs_[i])), t,
                  &std::get<Tensor>(ws.ValueOf(input_grads_[i])));
    }
    for (size_t i = 0; i < parameter_grads_.size(); ++i) {
      if (parameter_grads_[i] && left_parameters_[i])
        AddValue(ws.ValueOf(left_parameters_[i]), &ws.ValueOf(parameter_grads_[i]));
    }
    for (size_t k = 0; k < states_.size(); ++k) {
      VarValue& state = ws.ValueOf(states_[k]);
      left_states_[k] ? std::swap(state, ws.ValueOf(left_states_[k])) : SetZerosLike(state, &state);
    }
  }

  void Arrive(Workspace& ws, size_t a, int64_t t) const {
    VarValue& value = ws.ValueOf(arriving_[a]);
    const int32_t o = of_output_[a], k = of_state_[a];
    if (k >= 0) CopyValue(ws.ValueOf(states_[static_cast<size_t>(k)]), &value);
    if (o < 0) return;
    const Tensor slice =
        SliceAt(std::get<Tensor>(ws.ValueOf(output_grads_[static_cast<size_t>(o)])), t);
    k >= 0 ? AddValue(slice, &value) : CopyValue(slice, &value);
  }

  std::vector<TensorArg> inputs_, initial_, parameters_;
  TensorArg scopes_;
  std::vector<TensorArg> output_grads_, input_grads_, initial_grads_, parameter_grads_;
  std::vector<int32_t> of_output_, of_state_;
  bool reverse_;
  std::vector<TensorArg> arriving_, left_inputs_, left_states_, left_parameters_, states_;
  int32_t block_ = -1;
  int64_t steps_ = 0;
};

// --- rnn_memory_helper ---

Kernel CopyInput(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const size_t bytes = static_cast<size_t>(x.nbytes());
  return [=](Workspace& ws) {
    if (bytes > 0 && ws.Data<char>(out) != ws.Data<char>(x))
      std::memcpy(ws.Data<char>(out), ws.Data<char>(x), bytes);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("recurrent")
          .Doc("Runs sub_block once per step. A step is a slice of inputs along their first "
               "dimension (from the last to the first with reverse). In the block, the names of "
               "inputs and outputs refer to slices, and ex_states hold states after the previous "
               "step, or initial_states in the first. The slices of outputs are stacked; without "
               "steps, outputs are empty, with the rest of the shape as the block declares it.")
          .Constraint("C1", "ex_states, states and initial_states must be of one length")
          .Constraint("C2", "inputs must not be empty: they give the number of steps")
          .Constraint(
              "C3",
              "inputs must be dense tensors with the same number of steps, their first dimension")
          .Constraint("C4", "sub_block must have a variable of its own for each of outputs")
          .OptionalVariadicInput("inputs", "tensors [steps, ...]; one or more")
          .OptionalVariadicInput("initial_states", "values of ex_states in the first step")
          .OptionalVariadicInput("parameters", "other variables that the block reads")
          .OptionalVariadicOutput("outputs", "tensors [steps, ...]")
          .IntermediateOutput("step_scopes", "values of each step that backward reads")
          .Attr<Names>("ex_states", "variables of the block: the states of the previous step")
          .Attr<Names>("states", "variables of the block: the states")
          .Attr<BlockRef>("sub_block", "the block")
          .Attr<bool>("reverse", false, "from the last step to the first")
          .Attr<bool>("is_train", true,
                      "ignored: values for backward are kept if the program has a backward part")
          .Attr<bool>("has_states", false, "ignored")
          .Attr<Names>("skip_eager_deletion_vars", {}, "ignored")
          .RunTimeShape()
          .RunsBlock({.runs = BlockRuns::kRepeatedly,
                      .arguments = {{"initial_states", "ex_states"}},
                      .carries = {{"states", "ex_states"}},
                      .slices = {"inputs"}})
          .Infer(InferRecurrent)
          .Gradient(RecurrentGradient)
          .Reference([](const PrepareContext& ctx) -> Kernel { return RecurrentKernel(ctx); }));
  ops.Add(
      OpDef("recurrent_grad")
          .Doc("Gradient of recurrent: runs its gradient block for each step, the last first.")
          .Constraint("C1", "step_scopes must be step scopes")
          .Constraint("C2",
                      "of_output and of_state must have one entry for each arriving, and the names "
                      "of leaving gradients one for each variable")
          .Constraint("C3", "each arriving gradient must belong to an output or a state")
          .Constraint("C4",
                      "inputs, initial_states and outputs@GRAD must be dense tensors, and inputs "
                      "and outputs@GRAD have the same number of steps")
          .VariadicInput("inputs", "as forward")
          .OptionalVariadicInput("initial_states", "as forward")
          .OptionalVariadicInput("parameters", "as forward")
          .Input("step_scopes", "values that the steps kept")
          .OptionalVariadicInput("outputs@GRAD", "gradients of outputs; @EMPTY@ if there is none")
          .Takes(VarType::kLoDTensor, {"outputs@GRAD"})
          .OptionalVariadicOutput("inputs@GRAD", "gradients of inputs")
          .OptionalVariadicOutput("initial_states@GRAD", "gradients of initial_states")
          .OptionalVariadicOutput("parameters@GRAD", "gradients of parameters, summed over steps")
          .Attr<BlockRef>("sub_block", "the gradient block")
          .Attr<bool>("reverse", false, "as forward")
          .Attr<Names>("arriving", "variables of the gradient block that receive gradients")
          .Attr<std::vector<int32_t>>(
              "of_output", "for each entry of arriving, the index of its output; -1: none")
          .Attr<std::vector<int32_t>>(
              "of_state", "for each entry of arriving, the index of its state; -1: none")
          .Attr<Names>("left_inputs", "gradients of inputs in the gradient block; '': none")
          .Attr<Names>("left_states", "gradients of ex_states in the gradient block")
          .Attr<Names>("left_parameters", "gradients of parameters in the gradient block")
          .RunsBlock({.runs = BlockRuns::kGradient, .slices = {"inputs"}})
          .NoGradient("only first derivatives are supported through sub-blocks")
          .Infer(InferRecurrentGrad)
          .Reference([](const PrepareContext& ctx) -> Kernel { return RecurrentGradKernel(ctx); }));
  ops.Add(OpDef("rnn_memory_helper")
              .Doc("Out = X. Gives a state at the end of a step a variable of its own.")
              .Input("X", "tensor")
              .Output("Out", "a copy of X")
              .Attr<int32_t>("dtype", 5, "ignored: Out has X's dtype")
              .Inplace("X", "Out")
              .Alias("X", "Out")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient([](GradientContext& g) { g.Set("X", g.Grad("Out")); })
              .Reference(CopyInput));
}

}  // namespace coracle::recurrent_op
