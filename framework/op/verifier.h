#pragma once
// Verify: all that is wrong with a program, before anything of it runs.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

struct VerifyProblem {
  enum class Severity { kNote, kError };
  Severity severity = Severity::kError;
  std::string rule;  // "unknown_op", "missing_slot", "attr_type", "use_before_def", "block_index",
                     // "inner_gradient", "shape", ...; "internal": a shape rule is itself defective
  std::string message;  // one line
  std::string details;  // operands and the like; may be empty
  int block = 0;
  int op = -1;          // -1: not about one op
  std::string op_type;  // names longer than any real one are cut
  std::string slot;
  std::string var;

  std::string ToString() const;  // "block 0 op 7 (mul) slot X: message", which names the var
};

struct VerifyOptions {
  bool infer_shapes = true;
  bool blocks_only = false;    // how blocks nest, and nothing of what is in them
  size_t max_problems = 1000;  // errors, and as many notes; the rest of each is counted in one more
};

std::vector<VerifyProblem> Verify(const ProgramDesc& program, const OpRegistry& ops,
                                  const VerifyOptions& options = {});

// Throws one Error: the first error as its first line ("... (and 3 more problems)"), up to 20 of
// them as details.
void VerifyOrThrow(const ProgramDesc& program, const OpRegistry& ops,
                   const VerifyOptions& options = {});

// A name as problems carry it: cut with "..." when it is absurdly long.
std::string BriefName(std::string_view name);

// The checks of one op against its OpDef alone (slots, attrs), appended to `problems`.
void CheckOp(const OpSpec& def, const OpDesc& op, int block, int index,
             std::vector<VerifyProblem>* problems);

}  // namespace coracle
