#pragma once
// Whether the ops of a compiled program know their places in the program as it was given.

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace coracle {

// The first defect: an op without origin or with one that names no op of `given`, or a made
// variable whose origin `given` does not declare. "" if there is none.
inline std::string OriginDefect(const ProgramDesc& given, const ProgramDesc& compiled,
                                const ProgramOrigins* vars = nullptr) {
  std::unordered_set<std::string> declared;
  for (int b = 0; b < given.NumBlocks(); ++b) {
    for (size_t i = 0; i < given.Block(b).NumVars(); ++i)
      declared.insert(given.Block(b).var(i).name());
  }
  std::string defect;
  const auto check_var = [&](const std::string& name) {
    if (!vars || !vars->Find(name) || declared.count(vars->NameOf(name))) return;
    defect = fmt::format("'{}' comes from '{}', which the program does not declare", name,
                         vars->NameOf(name));
  };
  compiled.ForEachOp([&](const OpDesc& op) {
    const std::vector<OpOrigin> origins = OriginsOf(op);
    if (origins.empty()) defect = "no origin: " + PrintOp(op);
    for (const OpOrigin& origin : origins) {
      if (origin.block < given.NumBlocks() &&
          static_cast<size_t>(origin.op) < given.Block(origin.block).NumOps())
        continue;
      defect =
          fmt::format("op {} of block {} does not exist: {}", origin.op, origin.block, PrintOp(op));
    }
    op.ForEachInput(check_var);
    op.ForEachOutput(check_var);
  });
  return defect;
}

}  // namespace coracle
