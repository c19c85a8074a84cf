#pragma once
// Lets the ops of a program compute in float16 or bfloat16: changes dtypes and inserts casts. For
// training (optimizer/mixed_precision.h) and for inference (use_bfloat16.cc). Internal to Coracle.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// White ops compute in 16 bits, black ones in float32. All others follow their inputs: float32 if
// an input comes from a black op, else 16 bits if one comes from a white op, else unchanged.
struct HalfRewriteOptions {
  const OpRegistry* ops = nullptr;  // of the program; must be given
  DType dtype = DType::kBFloat16;
  std::set<std::string> white = {}, black = {};  // op types
  bool all_low = false;                          // all ops that are not black are white
  bool float32_norms = true;                     // OpDef::Float32Slots stay float32
  std::vector<std::string> black_vars = {};      // ops that touch one compute in float32
  // Variables of the root block that stay float32: the results of their ops are converted back.
  std::vector<std::string> float32_vars = {};
  bool sub_blocks = true;  // also rewrites blocks that ops run
  // Whether an op computes in float32 like a black one.
  std::function<bool(const OpDesc& op)> keeps_float = {};
  // Called for each new variable, with the variable whose value it has.
  std::function<void(const std::string& made, const std::string& from)> note_made = {};
};

struct HalfRewriteReport {
  int casts = 0;      // added ops
  int low_ops = 0;    // ops that compute in 16 bits
  int float_ops = 0;  // other ops with float32 inputs
};

// Converts each value at most once: all readers share the result, including those in loops.
// Variables that are written more than once, or that are inputs or outputs of a sub-block, keep
// their dtype.
HalfRewriteReport RewriteForHalves(ProgramDesc& main, const HalfRewriteOptions& options);

}  // namespace coracle::inline internal
