#pragma once
// A check for ops without a meaning, or a loop, for complex elements.

#include <coracle/framework/op/op_context.h>
#include <fmt/format.h>

#include <string_view>

namespace coracle::inline internal {

// Rejects a complex input. Only ops without a list of element types need this: RunInfer rejects
// dtypes that no kernel supports.
inline void RequireReal(const InferContext& ctx, std::string_view slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  if (!IsComplex(meta.dtype)) return;
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: {} is {}; complex elements are not supported", ctx.op().type(), slot,
                          meta.ToString()),
              "  " + Locate(ctx.op()));
}

}  // namespace coracle::inline internal
