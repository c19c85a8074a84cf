#include <coracle/edit/require_var.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::inline internal {

const VarDesc& RequireVar(const ProgramDesc& program, const std::string& name,
                          const std::string& who) {
  const BlockDesc& root = program.Root();
  if (const VarDesc* var = root.FindVar(name)) return *var;
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("{}: the program has no var {}{}", who, Quote(name),
                                                DidYouMean(name, names)));
}

}  // namespace coracle::inline internal
