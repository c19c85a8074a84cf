// print and assert: output of a program during a run.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::print_op {

// Limits of the output, whatever the attrs request.
constexpr int64_t kMostElements = 1000;
constexpr size_t kLongestLine = 16384;

// At most `most` elements (-1: kMostElements) as "[1, 2, ...]".
std::string ElementsText(const Tensor& tensor, int64_t most) {
  const int64_t limit = most < 0 ? kMostElements : std::min(most, kMostElements);
  const int64_t n = std::min(limit, tensor.numel());
  const Tensor front = Tensor::View(tensor.dtype(), {n}, const_cast<void*>(tensor.raw()));
  const bool complex = IsComplex(tensor.dtype());
  const Tensor wide = front.Cast(complex                      ? DType::kComplex128
                                 : IsFloating(tensor.dtype()) ? DType::kFloat64
                                                              : DType::kInt64);
  std::string text = "[";
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) text += ", ";
    if (complex) {
      const complex128 value = wide.data<complex128>()[i];
      text += fmt::format("{:.6g}{:+.6g}i", value.real(), value.imag());
      continue;
    }
    text += IsFloating(tensor.dtype()) ? fmt::format("{:.6g}", wide.data<double>()[i])
                                       : fmt::format("{}", wide.data<int64_t>()[i]);
  }
  return text + (n < tensor.numel() ? (n > 0 ? ", ...]" : "...]") : "]");
}

std::string LodText(const LoD& lod) {
  std::vector<std::string> levels;
  for (const auto& level : lod) {
    const auto n = std::min(level.size(), static_cast<size_t>(kMostElements));
    levels.push_back(fmt::format(
        "[{}{}]", fmt::join(level.begin(), level.begin() + static_cast<ptrdiff_t>(n), ", "),
        n < level.size() ? ", ..." : ""));
  }
  return fmt::format("[{}]", Join(levels, ", "));
}

void WriteLine(std::string line) {
  if (line.size() > kLongestLine) line = fmt::format("{}...", line.substr(0, kLongestLine));
  LogMessage(MessageLevel::kInfo, PrintableLine(line));
}

// All ranks write to the same log.
std::string RankPrefix(const Workspace& ws) {
  return NumRanks(ws) > 1 ? fmt::format("rank {}: ", RankOf(ws)) : std::string();
}

// --- print ---

struct PrintSettings {
  explicit PrintSettings(const PrepareContext& ctx)
      : name(ctx.op().Input("In").at(0)),
        message(ctx.Attr<std::string>("message")),
        first_n(ctx.Attr<int32_t>("first_n")),
        summarize(ctx.Attr<int32_t>("summarize")),
        with_name(ctx.Attr<bool>("print_tensor_name")),
        with_type(ctx.Attr<bool>("print_tensor_type")),
        with_shape(ctx.Attr<bool>("print_tensor_shape")),
        with_lod(ctx.Attr<bool>("print_tensor_lod")) {
    const std::string phase = ctx.Attr<std::string>("print_phase");
    const bool forward = ctx.Attr<bool>("is_forward");
    active = phase == "BOTH" || phase == (forward ? "FORWARD" : "BACKWARD");
  }

  std::string Line(const Tensor& tensor) const {
    std::string line = message.empty() ? "" : message + " ";
    if (with_name) line += name + " ";
    if (with_type) line += ToString(tensor.dtype());
    if (with_shape) line += tensor.shape().ToString();
    if (with_type || with_shape) line += " ";
    if (with_lod && !tensor.lod().empty()) line += "lod " + LodText(tensor.lod()) + " ";
    return line + ElementsText(tensor, summarize);
  }

  std::string name, message;
  int32_t first_n, summarize;
  bool with_name, with_type, with_shape, with_lod, active = true;
};

// The number of lines that a workspace has printed.
int64_t& CountOf(Workspace& ws, const TensorArg& scratch) {
  auto& array = std::get<TensorArray>(ws.ValueOf(scratch));
  if (array.empty()) array.push_back(Tensor::Full<int64_t>({1}, 0));
  return static_cast<int64_t*>(const_cast<void*>(array[0].raw()))[0];
}

Kernel Print(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("In"), out = ctx.Output("Out"), scratch = ctx.ScratchArray();
  const PrintSettings settings(ctx);
  const int64_t bytes = in.nbytes();
  return [=](Workspace& ws) {
    const auto& tensor = std::get<Tensor>(ws.ValueOf(in));
    const bool more = settings.first_n <= 0 || CountOf(ws, scratch) < settings.first_n;
    if (settings.active && more) {
      ++CountOf(ws, scratch);
      WriteLine(RankPrefix(ws) + settings.Line(tensor));
    }
    if (out) CopyBytes(tensor.raw(), ws.Data<void>(out), bytes);
  };
}

// The gradient passes through and is printed if the phase includes it.
void PrintGradient(GradientContext& g) {
  AttrList attrs = g.ForwardAttrs("print");
  std::erase_if(attrs, [](const NamedAttr& attr) { return attr.name == "is_forward"; });
  attrs.push_back({"is_forward", false});
  g.Append("print", {{"In", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("In")}}},
           std::move(attrs));
}

// --- assert ---

void InferAssert(InferContext& ctx) {
  const VarMeta& cond = ctx.Input("Cond");
  const bool one = !cond.shape.IsKnown() || cond.shape.numel() == 1;
  if (cond.type != VarType::kLoDTensor || cond.dtype != DType::kBool || !one) ctx.Fail("C1", cond);
}

Kernel Assert(const PrepareContext& ctx) {
  const TensorArg cond = ctx.Input("Cond");
  const std::vector<TensorArg> data = ctx.Inputs("Data");
  const std::vector<std::string> names = ctx.op().Input("Data");
  const int64_t summarize = ctx.Attr<int64_t>("summarize");
  const std::string message = ctx.Attr<std::string>("message");
  const std::string what = "assert: " + (message.empty() ? "Cond is false" : message);
  const std::string place = "  " + Locate(ctx.op());
  return [=](Workspace& ws) {
    if (ReadBool(ws, cond, "assert", "Cond")) return;
    std::string details;
    for (size_t i = 0; i < data.size(); ++i) {
      if (!data[i]) continue;
      const auto* tensor = std::get_if<Tensor>(&ws.ValueOf(data[i]));
      if (tensor)
        details += fmt::format("  {} {} = {}\n", names[i], tensor->ToString(),
                               ElementsText(*tensor, summarize));
    }
    throw Error(ErrorCode::kInvalidArgument, what, details + place);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("print")
          .Doc(
              "Logs a line about In: message, name, dtype, shape, LoD and elements, at most 16,384 "
              "bytes. With several ranks, each line begins with the number of its rank. Out = In. "
              "The gradient passes through and is logged too if print_phase is BACKWARD or BOTH.")
          .Constraint("C1", "In must be a dense tensor")
          .Input("In", "tensor")
          .OptionalOutput("Out", "a copy of In")
          .Attr<int32_t>("first_n", -1, "write the first n times only; 0 or less: always")
          .Attr<std::string>("message", "", "text at the beginning of the line")
          .Attr<int32_t>("summarize", 20, "number of elements to write, at most 1,000; -1: 1,000")
          .Attr<bool>("print_tensor_name", true, "write the name")
          .Attr<bool>("print_tensor_type", true, "write the dtype")
          .Attr<bool>("print_tensor_shape", true, "write the shape")
          .Attr<bool>("print_tensor_layout", true, "ignored: tensors have one layout")
          .Attr<bool>("print_tensor_lod", true, "write the LoD when there is one")
          .Attr<std::string>("print_phase", "BOTH", "when to write")
          .OneOf({"FORWARD", "BACKWARD", "BOTH"})
          .Attr<bool>("is_forward", true, "false in the gradient of a print")
          .SideEffect()
          .Rows(RowRule::kEach)
          .Infer([](InferContext& ctx) {
            ctx.Require("C1", ctx.Input("In").type == VarType::kLoDTensor, ctx.Input("In"));
            ctx.SetOutput("Out", ctx.Input("In"));
          })
          .Gradient(PrintGradient)
          .Reference(Print));
  ops.Add(OpDef("assert")
              .Doc("If Cond is false, ends the run with an error that shows Data.")
              .Constraint("C1", "Cond must hold one bool")
              .Input("Cond", "bool tensor of one element")
              .OptionalVariadicInput("Data", "tensors to show")
              .Attr<int64_t>("summarize", -1,
                             "number of elements to show of each tensor, at most 1,000; -1: 1,000")
              .Attr<std::string>("message", "", "text of the error")
              .SideEffect()
              .NotDifferentiable("it has no output")
              .Rows(RowRule::kEach)
              .Infer(InferAssert)
              .Reference(Assert));
}

}  // namespace coracle::print_op
