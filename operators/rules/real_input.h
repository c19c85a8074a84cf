#pragma once
// A check of ops that have no meaning, or no loop, for complex elements.

#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

#include <string_view>

namespace coracle {

// Refuses a complex input. Only ops without a list of element types need it: RunInfer refuses what
// no kernel takes.
inline void RequireReal(const InferContext& ctx, std::string_view slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  if (!IsComplex(meta.dtype)) return;
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("{}: {} is {}; complex elements are not supported", ctx.op().type(), slot,
                          meta.ToString()),
              "  " + Locate(ctx.op()));
}

}  // namespace coracle
