#pragma once
// Which ops of two blocks are the same. Internal to inspect/.
//
// Ops are matched in sweeps over the blocks, each of which takes linear time:
//  1. Those with equal type, attrs and names of all variables.
//  2. In the order of the program, each with the candidate that agrees best: the op of the same
//  type
//     that reads the same values with the same attrs; the one that writes variables of the same
//     names; or, where it is the only one on both sides, one that reads one of the same values.
//     What matched ops write counts as the same value from there on, whatever its name.
//  3. Backwards, those of equal type whose results are read at the same place of matched ops.
//  4. What is left is aligned as texts are (the longest common subsequence of types and attrs), and
//     kept where a neighbour is matched as well.

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

namespace coracle {

// The names of both programs as numbers, and which of them stand for each other.
class NamePairs {
 public:
  NamePairs(const ProgramDesc& before, const ProgramDesc& after);

  int Number(std::string_view name) const { return numbers_.at(name); }
  int Find(std::string_view name) const;  // -1: no variable has the name
  const std::string& Text(int number) const { return *texts_[Index(number)]; }
  bool IsBefore(int number) const { return (sides_[Index(number)] & 1) != 0; }
  bool IsAfter(int number) const { return (sides_[Index(number)] & 2) != 0; }
  // Neither is a name on the other side.
  bool IsRenaming(int before, int after) const { return !IsAfter(before) && !IsBefore(after); }

  // Makes them stand for each other unless one of them does so with another.
  void Pair(int before, int after);
  int AfterOf(int before) const { return after_of_[Index(before)]; }  // -1 without one
  int BeforeOf(int after) const { return before_of_[Index(after)]; }
  // The same, but the name itself without one.
  int ToAfter(int before) const { return AfterOf(before) < 0 ? before : AfterOf(before); }
  int Count() const { return static_cast<int>(texts_.size()); }

 private:
  static size_t Index(int number) { return static_cast<size_t>(number); }
  void Note(const std::string& name, uint8_t side);

  std::unordered_map<std::string_view, int> numbers_;
  std::vector<const std::string*> texts_;  // in the programs
  std::vector<uint8_t> sides_;
  std::vector<int> after_of_, before_of_;
};

// What the ops of a block read and write, as numbers. Feed and fetch ops have neither, and match
// none.
class OpGraph {
 public:
  struct Use {
    size_t place;  // hash of slot and position
    int name;
    int value;
  };
  struct Value {
    int op;  // that writes it; -1: it comes from outside of the block
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
  // What comes from outside under that name; -1: no op reads it.
  int OuterValue(int name) const;
  size_t Type(int op) const { return ops_[Index(op)].type; }
  size_t TypeAndAttrs(int op) const { return ops_[Index(op)].type_and_attrs; }
  bool Counts(int op) const { return ops_[Index(op)].counts; }  // no feed and no fetch

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
  std::vector<int> after_of, before_of;  // by position; -1: without a counterpart
};

// Pairs the names of the variables of matched ops as well.
OpMatching MatchOps(const OpGraph& before, const OpGraph& after, NamePairs& names);

// Mixes all bits of a number (the finaliser of splitmix64), so that sums of hashes tell as much as
// their terms.
size_t MixedBits(size_t x);

// Whether ops that are the same stand in another order.
bool HasMoves(const OpMatching& matching);

// A block of one side, and what all ops of the program use.
struct UsesOfSide {
  const OpGraph& graph;
  const internal::BlockOuterNames& outer;
  bool is_before;
};

// Ops whose order relative to others matters and is another one on the two sides: for each op of
// the block before the number (after) of a variable of which other values are read or replaced
// now, or -1. What an op's sub-blocks use counts as what it uses. Adds to *reordered the ops that
// stand elsewhere without that.
std::vector<int> FindMoves(const UsesOfSide& before, const UsesOfSide& after,
                           const OpMatching& matching, const NamePairs& names, size_t* reordered);

}  // namespace coracle
