#include <coracle/operators/quantize/quantized.h>

#include <atomic>

#ifdef CORACLE_ONEDNN
#include <dnnl.hpp>
#endif

namespace coracle::inline internal {
namespace {

constexpr int kByMachine = -1;
std::atomic<int> exact_answer{kByMachine};

bool MachineHasExactProducts() {
#ifdef CORACLE_ONEDNN
  using dnnl::cpu_isa;
  const cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == cpu_isa::avx2_vnni || isa == cpu_isa::avx512_core_vnni ||
         isa == cpu_isa::avx512_core_bf16 || isa == cpu_isa::avx512_core_amx;
#else
  return false;
#endif
}

}  // namespace

int32_t IntegerAt(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kInt8:
      return static_cast<const int8_t*>(data)[i];
    case DType::kUInt8:
      return static_cast<const uint8_t*>(data)[i];
    case DType::kInt16:
      return static_cast<const int16_t*>(data)[i];
    case DType::kInt32:
      return static_cast<const int32_t*>(data)[i];
    default:
      throw InternalError("IntegerAt: an element of another type");
  }
}

std::optional<std::vector<float>> ConstantScales(const PrepareContext& ctx, const char* slot) {
  if (!ctx.HasInput(slot)) return std::vector<float>();
  const Tensor* scales = ctx.Constant(slot);
  if (!scales) return std::nullopt;
  const auto* data = scales->data<float>();
  return std::vector<float>(data, data + scales->numel());
}

std::optional<std::vector<int32_t>> ConstantZeroPoints(const PrepareContext& ctx,
                                                       const char* slot) {
  if (!ctx.HasInput(slot)) return std::vector<int32_t>();
  const Tensor* points = ctx.Constant(slot);
  if (!points) return std::nullopt;
  std::vector<int32_t> values;
  for (int64_t i = 0; i < points->numel(); ++i)
    values.push_back(IntegerAt(points->dtype(), points->raw(), i));
  return values;
}

bool ExactIntegerProducts() {
  const int now = exact_answer.load(std::memory_order_relaxed);
  if (now != kByMachine) return now != 0;
  static const bool exact = MachineHasExactProducts();
  return exact;
}

bool IntegerProductsPay() { return ExactIntegerProducts(); }

ScopedIntegerProducts::ScopedIntegerProducts(bool exact)
    : before_(exact_answer.exchange(exact ? 1 : 0, std::memory_order_relaxed)) {}
ScopedIntegerProducts::~ScopedIntegerProducts() {
  exact_answer.store(before_, std::memory_order_relaxed);
}

}  // namespace coracle::inline internal
