#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/rnn/rnn_kernels.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>
#include <fmt/format.h>

#include <memory>

namespace coracle::rnn_op {

// --- shape rules ---

void RequireShape(const InferContext& ctx, const char* id, const char* slot, size_t i,
                  const Shape& want) {
  if (!ctx.InputShape(slot, i).CompatibleWith(want)) {
    ctx.Fail(id, fmt::format("{}[{}] {}", slot, i, ctx.InputShape(slot, i).ToString()), want);
  }
  ctx.Require("C5", ctx.InputDType(slot, i) == ctx.InputDType("Input"), slot,
              ctx.InputDType(slot, i), "Input", ctx.InputDType("Input"));
}

void CheckWeights(const InferContext& ctx, const RnnSpec& spec) {
  const int64_t cells = spec.layers * spec.directions, rows = spec.gates() * spec.hidden;
  const auto count = static_cast<int64_t>(ctx.NumInputs("WeightList"));
  ctx.Require("C3", count == 4 * cells, count, 4 * cells);
  for (int64_t cell = 0; cell < cells; ++cell) {
    const auto w = static_cast<size_t>(2 * cell), b = static_cast<size_t>(2 * (cells + cell));
    RequireShape(ctx, "C3", "WeightList", w, {rows, spec.InputSize(cell / spec.directions)});
    RequireShape(ctx, "C3", "WeightList", w + 1, {rows, spec.hidden});
    RequireShape(ctx, "C3", "WeightList", b, {rows});
    RequireShape(ctx, "C3", "WeightList", b + 1, {rows});
  }
}

void CheckLengths(const InferContext& ctx, const RnnSpec& spec) {
  if (!ctx.HasInput("SequenceLength")) return;
  const Shape want = {spec.batch};
  ctx.Require("C4",
              IsIndexType(ctx.InputDType("SequenceLength")) &&
                  ctx.InputShape("SequenceLength").CompatibleWith(want),
              ctx.Input("SequenceLength"), want);
}

void RequireInput(const InferContext& ctx) {
  const Shape& input = ctx.InputShape("Input");
  constexpr int64_t kMaxDim = int64_t{1} << 31;
  ctx.Require("C1",
              input.rank() == 3 && input[0] < kMaxDim && input[1] < kMaxDim && input[2] < kMaxDim,
              input);
}

// Checks shared by rnn and rnn_grad.
RnnSpec CheckRnn(const InferContext& ctx) {
  RequireInput(ctx);
  const RnnSpec spec = MakeRnnSpec(ctx, ctx.InputShape("Input"));
  CheckWeights(ctx, spec);
  CheckLengths(ctx, spec);
  return spec;
}

Shape StateShape(const RnnSpec& spec) {
  return {spec.layers * spec.directions, spec.batch, spec.hidden};
}

Shape OutShape(const RnnSpec& spec) {
  return {spec.steps, spec.batch, spec.directions * spec.hidden};
}

Shape ReserveShape(const RnnSpec& spec) {
  return {spec.steps < 0 ? -1 : RnnReserve(spec, true).rows(), spec.batch, spec.hidden};
}

Shape MaskShape(const RnnSpec& spec) {
  if (spec.dropout <= 0 || spec.layers == 1) return {0};
  return {spec.layers - 1, spec.steps, spec.batch, spec.directions * spec.hidden};
}

void InferRnn(InferContext& ctx) {
  const RnnSpec spec = CheckRnn(ctx);
  const auto states = static_cast<size_t>(StatesOf(spec.mode));
  ctx.Require("C2", ctx.NumInputs("PreState") == states && ctx.NumOutputs("State") == states,
              "PreState", ctx.NumInputs("PreState"), "State", ctx.NumOutputs("State"),
              "activation of the cell", states);
  for (size_t i = 0; i < states; ++i) RequireShape(ctx, "C2", "PreState", i, StateShape(spec));
  const DType dtype = ctx.InputDType("Input");
  ctx.SetOutput("Out", dtype, OutShape(spec));
  for (size_t i = 0; i < states; ++i) ctx.SetOutput("State", dtype, StateShape(spec), i);
  ctx.SetOutput("Reserve", dtype, ReserveShape(spec));
  ctx.SetOutput("DropoutState", DType::kUInt8, MaskShape(spec));
}

void InferRnnGrad(InferContext& ctx) {
  const RnnSpec spec = CheckRnn(ctx);
  RequireShape(ctx, "C2", "Reserve", 0, ReserveShape(spec));
  if (MaskShape(spec).rank() > 1) {
    if (!ctx.HasInput("DropoutState")) ctx.Fail("C7", std::string("none"));
    const VarMeta& state = ctx.Input("DropoutState");
    ctx.Require("C7", state.dtype == DType::kUInt8 && state.shape.CompatibleWith(MaskShape(spec)),
                state, MaskShape(spec));
  }
  if (ctx.HasInput("Out@GRAD")) RequireShape(ctx, "C2", "Out@GRAD", 0, OutShape(spec));
  const auto states = static_cast<size_t>(StatesOf(spec.mode));
  ctx.Require("C2",
              ctx.NumInputs("State@GRAD") <= states && ctx.NumOutputs("PreState@GRAD") <= states,
              "State@GRAD", ctx.NumInputs("State@GRAD"), "PreState@GRAD",
              ctx.NumOutputs("PreState@GRAD"), "activation of the cell", states);
  for (size_t i = 0; i < ctx.NumInputs("State@GRAD"); ++i)
    RequireShape(ctx, "C2", "State@GRAD", i, StateShape(spec));
  ctx.SetOutput("Input@GRAD", ctx.Input("Input"));
  for (size_t i = 0; i < states; ++i)
    ctx.SetOutput("PreState@GRAD", ctx.InputDType("Input"), StateShape(spec), i);
  ctx.Require("C3", ctx.NumOutputs("WeightList@GRAD") <= ctx.NumInputs("WeightList"),
              "WeightList@GRAD", ctx.NumOutputs("WeightList@GRAD"), "WeightList",
              ctx.NumInputs("WeightList"));
  for (size_t i = 0; i < ctx.NumOutputs("WeightList@GRAD"); ++i)
    ctx.SetOutput("WeightList@GRAD", ctx.Input("WeightList", i), i);
}

// --- gradient rule ---

void RnnGradient(GradientContext& g) {
  for (const char* slot : {"Reserve", "DropoutState"}) {
    const bool dropout = g.Attr<float>("dropout_prob") > 0 && !g.Attr<bool>("is_test") &&
                         g.Attr<int32_t>("num_layers") > 1;
    const bool needed = std::string_view(slot) == "Reserve" || dropout;
    if (!needed || g.HasOutput(slot)) continue;
    ThrowInvalid(
        fmt::format("rnn: needs its output {} to be differentiated, and the op has none", slot),
        Locate(g.op()));
  }
  g.AppendGradientOp({"Input", "WeightList", "SequenceLength", "DropoutState", "Reserve"});
}

// --- registration ---

void DeclareRnnAttrs(OpDef& def) {
  def.Attr<std::string>("mode", "the kind of cell")
      .OneOf({"LSTM", "GRU", "RNN_TANH", "RNN_RELU"})
      .Attr<int32_t>("input_size", 10, "not read: the parameters determine it")
      .Attr<int32_t>("hidden_size", 100, "hidden units H of a layer and direction")
      .Range(1, std::nullopt)
      .Attr<int32_t>("num_layers", 1, "number of layers; each takes the output of the previous one")
      .Range(1, std::nullopt)
      .Attr<bool>("is_bidirec", false, "a second direction goes from the end to the beginning")
      .Attr<float>("dropout_prob", 0.0f,
                   "share of the elements between layers that training sets to 0; the others are "
                   "divided by 1 - dropout_prob")
      .Range(0, 1)
      .Attr<bool>("is_test", false, "no element is dropped")
      .Attr<int32_t>("seed", 0,
                     "if not 0, it alone determines what is dropped, the same in each step");
}

void DeclareRnnInputs(OpDef& def) {
  def.Input("Input", "[T, N, I]: T steps of N samples")
      .VariadicInput("WeightList",
                     "for each layer and in it each direction W [G H, I] and U [G H, H], then for "
                     "each the biases b and b' [G H]; the I of a later layer is D H")
      .OptionalInput("SequenceLength", "[N]: number of steps of each sample; default: all T");
}

// --- cudnn_lstm: the LSTM of rnn with other slot names ---

RnnSpec CudnnSpecOf(const InferContext& ctx) {
  const Shape& input = ctx.InputShape("Input");
  RequireInput(ctx);
  RnnSpec spec;
  spec.steps = input[0];
  spec.batch = input[1];
  spec.input_size = input[2];
  spec.hidden = ctx.Attr<int32_t>("hidden_size");
  spec.layers = ctx.Attr<int32_t>("num_layers");
  spec.directions = ctx.Attr<bool>("is_bidirec") ? 2 : 1;
  return spec;
}

void InferCudnnLstm(InferContext& ctx) {
  const RnnSpec spec = CudnnSpecOf(ctx);
  ctx.Require("C6", ctx.HasInput("WeightList") && !ctx.HasInput("W"), "W", ctx.HasInput("W"),
              "WeightList", ctx.NumInputs("WeightList"));
  CheckWeights(ctx, spec);
  CheckLengths(ctx, spec);
  const DType dtype = ctx.InputDType("Input");
  for (const char* slot : {"InitH", "InitC"}) RequireShape(ctx, "C2", slot, 0, StateShape(spec));
  ctx.SetOutput("Out", dtype, OutShape(spec));
  for (const char* slot : {"LastH", "LastC"}) ctx.SetOutput(slot, dtype, StateShape(spec));
  for (const char* slot : {"Reserve", "StateOut"}) ctx.SetOutput(slot, DType::kUInt8, {0});
}

// Runs the op as an rnn; the kernels of rnn look up their slots when they are prepared.
template <class T>
Kernel RunCudnnLstm(const OpSpec& rnn, const PrepareContext& ctx, KernelMode mode) {
  const OpDesc& op = ctx.op();
  const auto first = [](const std::vector<std::string>& args) {
    return args.empty() ? std::string(kEmptyVarName) : args[0];
  };
  OpDesc as_rnn("rnn",
                {{"Input", op.Input("Input")},
                 {"PreState", {first(op.Input("InitH")), first(op.Input("InitC"))}},
                 {"WeightList", op.Input("WeightList")}},
                {{"Out", op.Output("Out")},
                 {"State", {first(op.Output("LastH")), first(op.Output("LastC"))}}},
                {{"mode", std::string("LSTM")},
                 {"hidden_size", ctx.Attr<int32_t>("hidden_size")},
                 {"num_layers", ctx.Attr<int32_t>("num_layers")},
                 {"is_bidirec", ctx.Attr<bool>("is_bidirec")},
                 {"dropout_prob", ctx.Attr<float>("dropout_prob")},
                 {"is_test", ctx.Attr<bool>("is_test")},
                 {"seed", ctx.Attr<int32_t>("seed")}});
  if (op.HasInput("SequenceLength")) as_rnn.SetInput("SequenceLength", op.Input("SequenceLength"));
  return RnnForward<T>(PrepareContext(rnn, as_rnn, ctx.args()), mode);
}

void AddCudnnLstm(OpRegistry& ops) {
  const auto rnn = std::make_shared<const OpSpec>(ops.Get("rnn"));
  ops.Add(
      OpDef("cudnn_lstm")
          .Doc(
              "rnn with mode LSTM under other names: InitH and InitC are PreState, LastH and LastC "
              "are State.")
          .ConstraintsOf("rnn", {"C1", "C3", "C4", "C5"})
          .Constraint("C2", "InitH and InitC must be [layers D, N, H]")
          .Constraint("C6",
                      "the parameters must be in WeightList: the flattened W is not supported")
          .Input("Input", "[T, N, I]: T steps of N samples")
          .Input("InitH", "h before the first step [layers D, N, H]")
          .Input("InitC", "c before the first step [layers D, N, H]")
          .OptionalInput("W", "not supported")
          .OptionalVariadicInput("WeightList", "as rnn's")
          .OptionalInput("SequenceLength", "[N]: number of steps of each sample; default: all T")
          .IntermediateOutput("Reserve", "empty")
          .OptionalOutput("StateOut", "empty")
          .Output("Out", "[T, N, D H]: h of the last layer; D is the number of directions")
          .OptionalOutput("LastH", "h after the last step")
          .OptionalOutput("LastC", "c after the last step")
          .Attr<int32_t>("input_size", 10, "not read: the parameters determine it")
          .Attr<int32_t>("hidden_size", 100, "hidden units H of a layer and direction")
          .Range(1, std::nullopt)
          .Attr<int32_t>("num_layers", 1,
                         "number of layers; each takes the output of the previous one")
          .Range(1, std::nullopt)
          .Attr<bool>("is_bidirec", false, "a second direction goes from the end to the beginning")
          .Attr<float>("dropout_prob", 0.0f, "as rnn's")
          .Range(0, 1)
          .Attr<bool>("is_test", false, "no element is dropped")
          .Attr<int32_t>("seed", 0, "as rnn's")
          .KernelTypeFrom("Input")
          .Random()
          .NoGradient("train with rnn, which computes the same")
          .Rows(EachSampleOfSteps, kEachSampleOfSteps)
          .Tables({"W"})
          .Infer(InferCudnnLstm)
          .Reference<float, double>([rnn]<class T>(const PrepareContext& c) {
            return RunCudnnLstm<T>(*rnn, c, KernelMode::kReference);
          })
          .Fast([rnn](const PrepareContext& c) -> Kernel {
            if (c.Input("Input").dtype != DType::kFloat32) return {};
            return RunCudnnLstm<float>(*rnn, c, KernelMode::kAuto);
          }));
}

// Each element of a weight matrix is multiplied by each row of the input [steps, batch, features].
double RnnMultiplyAdds(const OpShapes& op) {
  const Shape* x = op.In("Input");
  if (!x || x->rank() != 3) return 0;
  double weights = 0;
  for (size_t i = 0; i < op.NumInputs("WeightList"); ++i) {
    const Shape* weight = op.In("WeightList", i);
    if (weight && weight->rank() == 2) weights += Elements(*weight);
  }
  return Elements(*x, 0, 2) * weights;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("rnn")
          .Doc("Recurrent layers over padded sequences. With a = W x + b and u = U h + b': "
               "RNN_TANH h' = tanh(a + u). RNN_RELU h' = max(a + u, 0). LSTM (gates i, f, g, o) c' "
               "= s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), each gate a + u. GRU (gates r, z, n) "
               "r and z = s(a + u), n = tanh(a + r u), h' = z h + (1 - z) n; s is the sigmoid. A "
               "step past the end of a sample outputs 0 and keeps the states; the second direction "
               "starts at a sample's own end.")
          .Constraint("C1", "Input must have shape [T, N, I], each below 2^31")
          .Constraint("C2",
                      "PreState and State must hold h, and c for LSTM, of shape [layers D, N, H]")
          .Constraint(
              "C3",
              "WeightList must hold 4 parameters of fitting shapes for each layer and direction")
          .Constraint("C4", "SequenceLength must be int32 or int64 [N]")
          .Constraint("C5", "all floating-point inputs must have one dtype")
          .Constraint("C6", "each of SequenceLength must lie in [0, T]")
          .Apply(DeclareRnnInputs)
          .VariadicInput("PreState", "initial h, and for LSTM c, each [layers D, N, H]")
          .Output("Out", "[T, N, D H]: h of the last layer; D is the number of directions")
          .VariadicOutput("State", "h, and for LSTM c, after the last step")
          .IntermediateOutput("Reserve", "values that backward reads")
          .OptionalOutput("DropoutState", "uint8: 1 for elements between layers that were kept")
          .Apply(DeclareRnnAttrs)
          .NoGradientTo({"SequenceLength"})
          .KernelTypeFrom("Input")
          .Random()
          .Rows(EachSampleOfSteps, kEachSampleOfSteps)
          .MultiplyAdds({"Input", "WeightList"}, RnnMultiplyAdds)
          .Infer(InferRnn)
          .Gradient(RnnGradient)
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return RnnForward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Input").dtype != DType::kFloat32) return {};
            return RnnForward<float>(c, KernelMode::kAuto);
          }));
  ops.Add(
      OpDef("rnn_grad")
          .Doc("Gradient of rnn by backpropagation through time.")
          .ConstraintsOf("rnn", {"C1", "C3", "C4", "C5", "C6"})
          .Constraint("C2",
                      "Reserve, Out@GRAD and State@GRAD must have the shapes of rnn's outputs; the "
                      "gradients of states are h, and c for LSTM")
          .Constraint("C7", "DropoutState must be present if there was dropout")
          .Apply(DeclareRnnInputs)
          .OptionalInput("DropoutState", "rnn's DropoutState")
          .Input("Reserve", "rnn's Reserve")
          .OptionalInput("Out@GRAD", "gradient of Out; absent: zeros")
          .OptionalVariadicInput("State@GRAD", "gradients of State; absent: zeros")
          .OptionalOutput("Input@GRAD", "gradient of Input")
          .OptionalVariadicOutput("PreState@GRAD", "gradients of PreState")
          .OptionalVariadicOutput("WeightList@GRAD", "gradients of WeightList")
          .AttrsOf("rnn")
          .KernelTypeFrom("Input")
          .Infer(InferRnnGrad)
          .NoGradient("second derivatives of rnn are not provided: write the cell as ops in a loop")
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return RnnBackward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Input").dtype != DType::kFloat32) return {};
            return RnnBackward<float>(c, KernelMode::kAuto);
          }));
  AddCudnnLstm(ops);
}

}  // namespace coracle::rnn_op
