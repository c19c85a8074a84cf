#pragma once
// The differences between two programs, by their graphs: an op that is at another position, or
// whose variables have other names, is still the same op.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/inspect/compare_tensors.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A property that differs between the two sides. Texts are those of a dump, escaped (Quote) if a
// name could control a terminal; "none" if a side lacks the property.
struct DiffChange {
  // The property. For a program: "feeds", "fetches", "random_seed", "version". For a block:
  // "parent", "forward_block", and "index" if random numbers are drawn in it. For a variable:
  // "type", "dtype", "shape", "lod_level", "persistable", "parameter", "stop_gradient",
  // "need_check_feed", "trainable", "learning_rate", "initializer", "regularizer", "gradient_clip",
  // "error_clip". For an op: "attr", "input", "output".
  std::string what;
  std::string name = {};  // of the attr, or of the slot ("X" or "X[1]")
  std::string before = {}, after = {};
};

// A variable that one side lacks, that has another name, or whose type or settings differ.
struct VarDiff {
  std::string before, after;  // its names; "" on a side that lacks it
  bool told_by_ops = false;   // a temporary on one side only; the diff of its ops already shows it
  std::vector<DiffChange> changes = {};
};

struct OpDiff {
  int before = -1, after = -1;  // positions in their blocks; -1 on a side that lacks it
  std::vector<DiffChange> changes = {};
  // A variable of which this or another op now reads or replaces another value, because this op is
  // at another position; "" if it is not, or if that has no effect.
  std::string moved_over = {};
};

struct BlockDiff {
  // Indices; -1 on a side that lacks it, and then nothing else is listed.
  int before = 0, after = 0;
  std::vector<DiffChange> changes = {};
  std::vector<VarDiff> vars = {};
  std::vector<OpDiff> ops = {};  // in the order of the programs
};

struct ProgramDiff {
  std::vector<DiffChange> changes = {};
  std::vector<BlockDiff> blocks = {};  // the blocks that differ
  // All variables with another name, (before, after). VarDiff also lists each of them.
  std::vector<std::pair<std::string, std::string>> renamed = {};
  size_t reordered = 0;  // ops at another position, without effect

  bool empty() const { return changes.empty() && blocks.empty(); }
};

// Two ops match if they have the same type and agree, in this order of weight, in the values that
// they read, the names of their outputs, and their attrs; see inspect/op_matching.h. Feed and fetch
// ops are compared by the variables that they feed and fetch. Ignores where an op was made, its
// name scope, attrs with the default value that the other side lacks, and unknown fields. The time
// is linear in the size of the programs, except for a logarithm. Safe for unverified programs.
ProgramDiff DiffPrograms(const ProgramDesc& before, const ProgramDesc& after,
                         const OpRegistry& ops);

// A persistable variable with different elements, or with a value on one side only.
struct ValueDiff {
  std::string before, after;  // names
  // "only before", "float32[2] -> float32[3]", "other sequences (LoD)", "other rows", "not
  // compared"; "" if elements differ (for selected rows, elements of their values):
  std::string problem = {};
  int64_t different = 0, elements = 0;
  double max_difference = 0;  // absolute, of the worst element; nan if only one side is nan
  int64_t worst = 0;          // the element farthest out of tolerance, in row-major order
  double worst_before = 0, worst_after = 0;  // for complex numbers, the absolute values
  // The same, for integers and bools.
  std::optional<int64_t> integer_before = {}, integer_after = {};
};

// Compares the values of the persistable variables of two programs, also of renamed ones; `after`
// is the reference of the tolerance. Without a tolerance (the default), elements must be equal bit
// by bit, so -0 differs from 0. Tensors of different dtypes differ.
std::vector<ValueDiff> DiffValues(const ProgramDiff& diff, const ProgramDesc& before,
                                  const Scope& values_before, const ProgramDesc& after,
                                  const Scope& values_after,
                                  const Tolerance& tolerance = {.relative = 0, .absolute = 0});

// A text for people: by block, one line for each variable and op that is added (+), removed (-) or
// changed (~), then a line with the counts. "" if nothing differs.
std::string DiffText(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const OpRegistry& ops, const std::vector<ValueDiff>& values = {});
// "2 ops added, 1 removed, 3 changed; 1 variable renamed"; "" if nothing differs.
std::string DiffSummary(const ProgramDiff& diff);
// The first line of DiffText that shows a difference, without its mark, for messages. Ignores seed
// and version.
std::string FirstDifference(const ProgramDesc& before, const ProgramDesc& after,
                            const OpRegistry& ops);
// A JSON object with "format": "coracle.diff"; docs/json.md describes it.
std::string DiffJson(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const std::vector<ValueDiff>& values = {});

}  // namespace coracle
