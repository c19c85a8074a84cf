#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>

#include <cstdlib>

namespace coracle::inline internal {

KernelOperand FindKernelOperand(const OpSpec& spec, const OpDesc& op) {
  const auto holds = [](const std::vector<std::string>& args) {
    return !args.empty() && !IsEmptyName(args[0]);
  };
  if (const std::string& slot = spec.kernel_type_slot; !slot.empty()) {
    if (holds(op.Input(slot))) return {slot, false};
    if (holds(op.Output(slot))) return {slot, true};
  }
  for (const SlotDef& slot : spec.inputs) {
    if (holds(op.Input(slot.name))) return {slot.name, false};
  }
  for (const SlotDef& slot : spec.outputs) {
    if (holds(op.Output(slot.name))) return {slot.name, true};
  }
  return {};
}

std::string NamesOf(const std::vector<DType>& dtypes) {
  std::vector<std::string> names;
  names.reserve(dtypes.size());
  for (DType dtype : dtypes) names.emplace_back(ToString(dtype));
  return Join(names, ", ");
}

DType KernelDType(const PrepareContext& context) {
  const KernelOperand from = FindKernelOperand(context.spec(), context.op());
  if (from.slot.empty())
    throw InternalError(
        fmt::format("{}: no slot determines the kernel's element type", context.op().type()));
  return from.output ? context.Output(from.slot).dtype : context.Input(from.slot).dtype;
}

void ThrowNoKernel(const PrepareContext& context) {
  context.Unsupported(fmt::format("no kernel for {}; supported: {}", ToString(KernelDType(context)),
                                  NamesOf(context.spec().kernel_dtypes)));
}

namespace {

// Whether an op of 16-bit floats is computed in float32: if it has no loop for them, or if it is
// elementwise and has a fast kernel, which float32 alone can use.
bool ComputesInFloat(const PrepareContext& context, KernelMode mode) {
  const OpSpec& spec = context.spec();
  if (spec.kernel_dtypes.empty() || !IsHalf(KernelDType(context))) return false;
  if (!spec.HasLoopFor(KernelDType(context))) return spec.HasLoopFor(DType::kFloat32);
  return mode == KernelMode::kAuto && spec.fast && spec.elementwise;
}

// oneDNN 2.6 reads through null pointers if its small allocations fail while it makes a kernel, so
// none is prepared without room for them.
void RequireRoom() {
  constexpr size_t kRoom = size_t{2} << 20;
  void* const volatile room =
      std::malloc(kRoom);  // volatile: compilers remove a malloc with a free
  if (!room) throw OutOfMemory("the system cannot provide 2 MiB to prepare a kernel");
  std::free(room);
}

}  // namespace

Kernel PrepareKernel(const PrepareContext& context, KernelMode mode) {
  const OpSpec& spec = context.spec();
  if (mode == KernelMode::kAuto && spec.fast) RequireRoom();
  if (mode == KernelMode::kAuto && spec.fast) {
    if (Kernel kernel = spec.fast(context)) return kernel;
  }
  if (ComputesInFloat(context, mode)) return PrepareInFloat(context, mode);
  if (!spec.reference) context.Unsupported("has no kernel");
  if (mode == KernelMode::kAuto && spec.fast) context.NoteKernel("reference");
  return spec.reference(context);
}

}  // namespace coracle::inline internal
