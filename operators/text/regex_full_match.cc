#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <memory>
#include <string>

namespace coracle::regex_full_match_op {

constexpr size_t kMaxPattern = size_t{64} << 10;

// Throws the message of RE2 for a bad pattern.
Regex Compiled(const std::string& pattern) { return Regex(pattern, Regex::kUtf8, kMaxPattern); }

void InferMatch(InferContext& ctx) {
  ctx.Require("C1", ctx.InputDType("X") == DType::kString, ctx.InputDType("X"));
  try {
    Compiled(ctx.Attr<std::string>("pattern"));
  } catch (const Error& e) {
    ctx.Fail("C2", e.message());
  }
  ctx.SetOutput("Out", DType::kBool, ctx.InputShape("X"));
}

Kernel Match(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const auto regex = std::make_shared<const Regex>(Compiled(ctx.Attr<std::string>("pattern")));
  return [x, out, regex](Workspace& ws) {
    const StringRef* texts = ws.Data<const StringRef>(x);
    bool* matches = ws.Data<bool>(out);
    ParallelFor(x.numel, 256, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) matches[i] = regex->MatchesAll(texts[i].view());
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("regex_full_match")
              .Doc("Out = whether the whole of each element of X matches the pattern. Takes time "
                   "linear in X.")
              .Constraint("C1", "X must be strings")
              .Constraint("C2", "pattern must be a regular expression of RE2")
              .Input("X", "tensor of strings in UTF-8; other bytes match no character")
              .Output("Out", "bool tensor of X's shape")
              .Attr<std::string>("pattern", "a regular expression in RE2's syntax, of up to 64 KB")
              .Strings()
              .Elementwise()
              .Infer(InferMatch)
              .NotDifferentiable("a match is piecewise constant")
              .Reference(Match));
}

}  // namespace coracle::regex_full_match_op
