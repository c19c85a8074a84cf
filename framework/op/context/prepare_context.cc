#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/framework/tensor/rng.h>
#include <fmt/format.h>

namespace coracle {

TensorArg PrepareContext::Input(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Input(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? args_.Read(args[i]) : TensorArg();
}

TensorArg PrepareContext::Output(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Output(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? args_.Write(args[i]) : TensorArg();
}

std::vector<TensorArg> PrepareContext::Inputs(std::string_view slot) const {
  std::vector<TensorArg> args;
  for (size_t i = 0; i < NumInputs(slot); ++i) args.push_back(Input(slot, i));
  return args;
}

std::vector<TensorArg> PrepareContext::Outputs(std::string_view slot) const {
  std::vector<TensorArg> args;
  for (size_t i = 0; i < NumOutputs(slot); ++i) args.push_back(Output(slot, i));
  return args;
}

const Tensor* PrepareContext::Constant(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Input(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? args_.Constant(args[i]) : nullptr;
}

std::shared_ptr<const Tensor> PrepareContext::Packed(std::string_view slot,
                                                     const PackedLayout& layout) const {
  RequireFunction(layout.pack, fmt::format("{}: the pack of a layout", op_.type()));
  const auto& args = op_.Input(slot);
  const size_t i = At(slot, 0);
  if (i >= args.size() || IsEmptyName(args[i])) return nullptr;
  size_t reads = 0;
  op_.ForEachInput([&](const std::string& name) { reads += name == args[i]; });
  // If another slot needs the plain elements, the layout does not replace them.
  return reads == 1 ? args_.Packed(args[i], layout) : args_.ArgTable::Packed(args[i], layout);
}

std::shared_ptr<const Tensor> ArgTable::Packed(const std::string& name,
                                               const PackedLayout& layout) {
  const Tensor* given = Constant(name);
  return given ? std::make_shared<const Tensor>(layout.pack(*given)) : nullptr;
}

FileAccess ArgTable::files() const { return FileAccess(); }

Kernel ArgTable::Choose(const PrepareContext& context, const std::vector<TensorArg>&,
                        const std::vector<KernelWay>& ways) {
  for (const KernelWay& way : ways) {
    RequireFunction(way.prepare,
                    fmt::format("{}: the way {}", context.op().type(), Quote(way.name)));
    if (Kernel kernel = way.prepare(context, true)) {
      NoteKernel(way.name);
      return kernel;
    }
  }
  return {};
}

FileAccess PrepareContext::files() const {
  if (spec_.file_attr.empty())
    throw InternalError(op_.type() + ": touches files and does not declare NamesFile");
  return args_.files();
}

uint64_t PrepareContext::RandomStream(std::string_view output_slot) const {
  const auto& args = op_.Output(output_slot);
  if (args.empty())
    throw InternalError(
        fmt::format("{}: random stream of an absent output {}", op_.type(), output_slot));
  const Attribute* attr = op_.FindAttr(kRecomputedFromAttr);
  const auto* originals = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
  if (!originals) return HashName(args.front());
  size_t at = 0;
  for (const Slot& slot : op_.outputs()) {
    if (slot.name == output_slot) break;
    at += slot.args.size();
  }
  return HashName(at < originals->size() ? (*originals)[at] : args.front());
}

void Workspace::RunBlock(int32_t, StepScopes::Step*, StepScopes::Step*) {
  throw InternalError("sub-blocks cannot be run here");
}

Tensor& ResizeOutput(Workspace& ws, const TensorArg& out, DType dtype, const Shape& shape) {
  VarValue& value = ws.ValueOf(out);
  if (!out.shape.IsKnown()) {
    if (!std::holds_alternative<Tensor>(value)) value = Tensor();
    auto& tensor = std::get<Tensor>(value);
    tensor.Resize(dtype, shape);
    return tensor;
  }
  if (out.dtype != dtype || !(out.shape == shape)) {
    throw InternalError(fmt::format("an output was planned as {}{} and comes out as {}{}",
                                    ToString(out.dtype), out.shape.ToString(), ToString(dtype),
                                    shape.ToString()));
  }
  return std::get<Tensor>(value);
}

void PrepareContext::Unsupported(const std::string& what) const {
  throw Error(ErrorCode::kUnimplemented, fmt::format("{}: {}", op_.type(), what),
              "  " + Locate(op_));
}

}  // namespace coracle
