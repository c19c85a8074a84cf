#pragma once
// What the passes of the compiler did to a program, for the commands passes and opt.

#include <coracle/framework/ir/program.h>
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

  // By type how many ops there are more, or fewer (negative); only types that changed.
  TypeCounts Changes() const;
};

PassEffect EffectOf(const PassRun& run);

// A table: one line for each pass and one for all, of at most 100 columns.
std::string EffectsText(const std::vector<PassEffect>& effects);
std::string EffectsJson(const std::vector<PassEffect>& effects);

// The reason of the pass, and what it changed in the program (inspect/diff.h).
std::string ExplainPass(const PassRun& run);

// PrintProgram without attrs that have their default values.
std::string ListProgram(const ProgramDesc& program);

// What a program without feed ops is fed, and what one without fetch ops computes for; empty for
// programs with such ops. Of fetches also those of --fetch.
std::vector<std::string> FeedsToCompile(const ProgramDesc& program);
std::vector<std::string> FetchesToCompile(const ProgramDesc& program);

}  // namespace coracle::tools
