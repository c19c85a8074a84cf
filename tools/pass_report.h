#pragma once
// Reports what the compiler's passes changed in a program, for the commands passes and opt.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/passes/pass.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coracle::tools {

using TypeCounts = std::map<std::string, int64_t>;

struct PassEffect {
  std::string name;
  TypeCounts before, after;  // ops of each type, in all blocks
  double milliseconds = 0;

  // The change in the number of ops of each type (negative: fewer); only types that changed.
  TypeCounts Changes() const;
};

PassEffect EffectOf(const PassRun& run);

// Makes a table with a line for each pass and one for the total, at most 100 columns wide.
std::string EffectsText(const std::vector<PassEffect>& effects);
std::string EffectsJson(const std::vector<PassEffect>& effects);

// The reason for the pass, and the changes that it made to the program (inspect/inspect.h).
std::string ExplainPass(const PassRun& run);

// PrintProgram without attrs that have their default values.
std::string ListProgram(const ProgramDesc& program);

// Sets parameters that the scope lacks to zeros: their values hardly affect the passes.
void FillMissingParameters(const ProgramDesc& program, Scope& scope);

// The feeds and fetches to compile a program with. Feeds are empty if the program has feed ops.
// Fetches are `fetches` (--fetch); without any, the program's outputs, or none if it has
// fetch ops.
std::vector<std::string> FeedsToCompile(const ProgramDesc& program);
std::vector<std::string> FetchesToCompile(const ProgramDesc& program,
                                          const std::vector<std::string>& fetches);

}  // namespace coracle::tools
