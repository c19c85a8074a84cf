#pragma once
// What differs between two programs, by their graphs: an op that stands elsewhere, or whose
// variables have other names, is still the same op.

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

// Something that both sides have, and have different. Texts are those of a dump, escaped (Quote)
// where a name could act on a terminal; "none" stands for what one side lacks.
struct DiffChange {
  // Of a program: "feeds", "fetches", "random_seed", "version". Of a block: "parent",
  // "forward_block", "index" where random numbers are drawn in it. Of a variable: "type", "dtype",
  // "shape", "lod_level", "persistable", "parameter", "stop_gradient", "need_check_feed",
  // "trainable", "learning_rate", "initializer", "regularizer", "gradient_clip", "error_clip". Of
  // an op: "attr", "input", "output".
  std::string what;
  std::string name = {};  // of the attr; of the slot, "X" or "X[1]"
  std::string before = {}, after = {};
};

// A variable that one side lacks, that has another name, or whose type or settings differ.
struct VarDiff {
  std::string before, after;  // its names; "" on a side that lacks it
  bool told_by_ops = false;   // a temporary that one side lacks: the ops that use it tell so
  std::vector<DiffChange> changes = {};
};

struct OpDiff {
  int before = -1, after = -1;  // positions in their blocks; -1 on a side that lacks it
  std::vector<DiffChange> changes = {};
  // It stands elsewhere, and for that ops read or replace another value of this variable; "" when
  // it does not, or when nothing depends on it.
  std::string moved_over = {};
};

struct BlockDiff {
  int before = 0,
      after = 0;  // indices; -1 on a side that lacks it, and then nothing else is listed
  std::vector<DiffChange> changes = {};
  std::vector<VarDiff> vars = {};
  std::vector<OpDiff> ops = {};  // in the order of the programs
};

struct ProgramDiff {
  std::vector<DiffChange> changes = {};
  std::vector<BlockDiff> blocks = {};  // those that differ
  // All variables with another name, (before, after); VarDiff lists each of them as well.
  std::vector<std::pair<std::string, std::string>> renamed = {};
  size_t reordered = 0;  // ops that stand elsewhere, which changes nothing

  bool empty() const { return changes.empty() && blocks.empty(); }
};

// Ops are the same where their types are and, in this order of weight, what they read, the names of
// what they write, and their attrs; see inspect/op_matching.h. Feed and fetch ops count by what
// they feed and fetch. Not compared: where an op was made, its name scope, attrs that have the
// default value on one side and are absent on the other, unknown fields. Takes time linear in the
// size of the programs, but for a logarithm; safe on programs that were never verified.
ProgramDiff DiffPrograms(const ProgramDesc& before, const ProgramDesc& after,
                         const OpRegistry& ops);

// A persistable variable with other elements, or with a value on one side only.
struct ValueDiff {
  std::string before, after;  // names
  // "only before", "float32[2] -> float32[3]", "other sequences (LoD)", "other rows", "not
  // compared"; else the elements (of selected rows those of their values) differ:
  std::string problem = {};
  int64_t different = 0, elements = 0;
  double max_difference = 0;  // absolute, of the worst element; nan where only one side is a nan
  int64_t worst = 0;          // the element farthest out of tolerance, in row-major order
  double worst_before = 0, worst_after = 0;  // of complex numbers the absolute values
  std::optional<int64_t> integer_before = {},
                         integer_after = {};  // the same, of integers and bools
};

// Compares the values of the persistable variables of two programs, renamed ones included; `after`
// is the reference of the tolerance. By default, that is without any, elements are equal to the
// bit, so that -0 is not 0. Other dtypes are differences.
std::vector<ValueDiff> DiffValues(const ProgramDiff& diff, const ProgramDesc& before,
                                  const Scope& values_before, const ProgramDesc& after,
                                  const Scope& values_after,
                                  const Tolerance& tolerance = {.relative = 0, .absolute = 0});

// For people: by block, one line for each variable and op that is added (+), removed (-) or changed
// (~), then a line that counts them. "" when nothing differs.
std::string DiffText(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const OpRegistry& ops, const std::vector<ValueDiff>& values = {});
// "2 ops added, 1 removed, 3 changed; 1 variable renamed"; "" when nothing differs.
std::string DiffSummary(const ProgramDiff& diff);
// The first line of DiffText that tells a difference, without its mark: for messages. Neither seed
// nor version count.
std::string FirstDifference(const ProgramDesc& before, const ProgramDesc& after,
                            const OpRegistry& ops);
// A JSON object with "format": "coracle.diff"; docs/json.md describes it.
std::string DiffJson(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const std::vector<ValueDiff>& values = {});

}  // namespace coracle
