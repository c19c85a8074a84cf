#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

namespace coracle {

Variable Variable::Of(BlockDesc& block, const std::string& name) {
  if (VarDesc* desc = block.FindVarRecursive(name)) return {&block, desc};
  std::vector<std::string> names;
  for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("block {} has no var {}{}", block.idx(),
                                                Quote(name), DidYouMean(name, names)));
}

void Variable::ThrowEmpty() {
  ThrowInvalid(
      "an empty Variable was used: it is the handle of no variable until it is assigned one");
}

}  // namespace coracle
