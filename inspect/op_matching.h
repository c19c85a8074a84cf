#pragma once
// Matches the ops of two blocks. Internal to inspect/.
//
// The matching makes several sweeps over the blocks, each of which takes linear time:
//  1. Ops with equal type, attrs and names of all variables.
//  2. In the order of the program, each op with the candidate that agrees best: the op of the
//     same type that reads the same values with the same attrs; the op that writes variables of
//     the same names; or, if it is the only one on both sides, an op that reads one of the same
//     values. Results of matched ops then count as the same value, whatever their names.
//  3. Backwards, ops of equal type whose results are read at the same place of matched ops.
//  4. The rest is aligned like lines of text (the longest common subsequence of types and
//     attrs); a pair is kept if a neighbour is matched as well.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/outer_names.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The names of both programs as numbers, and their pairs.
class NamePairs {
 public:
  NamePairs(const ProgramDesc& before, const ProgramDesc& after);

  int Number(std::string_view name) const { return numbers_.at(name); }
  int Find(std::string_view name) const;  // -1 if no variable has the name
  const std::string& Text(int number) const { return *texts_[Index(number)]; }
  bool IsBefore(int number) const { return (sides_[Index(number)] & 1) != 0; }
  bool IsAfter(int number) const { return (sides_[Index(number)] & 2) != 0; }
  // Whether each name exists on only one side.
  bool IsRenaming(int before, int after) const { return !IsAfter(before) && !IsBefore(after); }

  // Pairs the two names, unless one of them already has a partner.
  void Pair(int before, int after);
  int AfterOf(int before) const { return after_of_[Index(before)]; }  // -1 if unpaired
  int BeforeOf(int after) const { return before_of_[Index(after)]; }
  // The same, but returns the name itself if it is unpaired.
  int ToAfter(int before) const { return AfterOf(before) < 0 ? before : AfterOf(before); }
  int Count() const { return static_cast<int>(texts_.size()); }

 private:
  static size_t Index(int number) { return static_cast<size_t>(number); }
  void Note(const std::string& name, uint8_t side);

  std::unordered_map<std::string_view, int> numbers_;
  std::vector<const std::string*> texts_;  // point into the programs
  std::vector<uint8_t> sides_;
  std::vector<int> after_of_, before_of_;
};

// The inputs and outputs of the ops of a block, as numbers. Feed and fetch ops are excluded.
class OpGraph {
 public:
  struct Use {
    size_t place;  // hash of slot and position
    int name;
    int value;
  };
  struct Value {
    int op;  // the op that writes it; -1: it comes from outside the block
    size_t place;
    int name;
    std::vector<int> readers = {};
  };

  OpGraph(const BlockDesc& block, const NamePairs& names, const OpRegistry& ops);

  const BlockDesc& block() const { return *block_; }
  int NumOps() const { return static_cast<int>(ops_.size()); }
  const std::vector<Use>& Inputs(int op) const { return ops_[Index(op)].inputs; }
  const std::vector<Use>& Outputs(int op) const { return ops_[Index(op)].outputs; }
  const Value& ValueAt(int value) const { return values_[Index(value)]; }
  int NumValues() const { return static_cast<int>(values_.size()); }
  // The value that comes from outside under that name; -1 if no op reads it.
  int OuterValue(int name) const;
  size_t Type(int op) const { return ops_[Index(op)].type; }
  size_t TypeAndAttrs(int op) const { return ops_[Index(op)].type_and_attrs; }
  bool Counts(int op) const { return ops_[Index(op)].counts; }  // false for feed and fetch ops

 private:
  struct Op {
    size_t type = 0, type_and_attrs = 0;
    bool counts = true;
    std::vector<Use> inputs = {}, outputs = {};
  };
  static size_t Index(int i) { return static_cast<size_t>(i); }

  const BlockDesc* block_;
  std::vector<Op> ops_;
  std::vector<Value> values_;
  std::unordered_map<int, int> outer_;
};

struct OpMatching {
  std::vector<int> after_of, before_of;  // by position; -1 for an unmatched op
};

// Also pairs the names of the variables of matched ops.
OpMatching MatchOps(const OpGraph& before, const OpGraph& after, NamePairs& names);

// Mixes all bits of a number (the finaliser of splitmix64), so that sums of hashes identify
// their terms.
size_t MixedBits(size_t x);

// Whether matched ops have another order.
bool HasMoves(const OpMatching& matching);

// A block of one side, and the variables that all ops of the program use.
struct UsesOfSide {
  const OpGraph& graph;
  const BlockOuterNames& outer;
  bool is_before;
};

// Finds matched ops whose order relative to others differs between the two sides and matters. For
// each op of the block before, returns the number (after) of a variable of which this or another op
// now reads or replaces another value because this op has moved; -1 if there is none. The uses of
// an op's sub-blocks count as its own. Adds the number of moves without effect to *reordered.
std::vector<int> FindMoves(const UsesOfSide& before, const UsesOfSide& after,
                           const OpMatching& matching, const NamePairs& names, size_t* reordered);

}  // namespace coracle::inline internal
