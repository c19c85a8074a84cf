#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

namespace coracle::inline internal {

bool ReadBool(Workspace& ws, const TensorArg& arg, const char* op, const char* slot) {
  const auto* tensor = std::get_if<Tensor>(&ws.ValueOf(arg));
  if (!tensor || tensor->dtype() != DType::kBool || tensor->numel() != 1) {
    ThrowInvalid(fmt::format("{}: {} must be one bool, got {}", op, slot,
                             tensor ? tensor->ToString() : "a value that is not a dense tensor"));
  }
  return static_cast<const bool*>(tensor->raw())[0];
}

IndexArg::IndexArg(const PrepareContext& ctx, const char* slot)
    : op_(ctx.op().type()), slot_(slot), arg_(ctx.Input(slot)) {}

size_t IndexArg::operator()(Workspace& ws) const {
  const int64_t index = IndexReader(ws, arg_)[0];
  if (index < 0) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{}: {} must not be negative, got {}", op_, slot_, index));
  }
  return static_cast<size_t>(index);
}

}  // namespace coracle::inline internal
