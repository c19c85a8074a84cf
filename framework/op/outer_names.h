#pragma once
// The variables that ops read and write, including in their sub-blocks, which slots do not list
// reliably. Internal to Coracle.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The variables of enclosing blocks that a block and the blocks that it runs use. Sorted; the names
// point into the program.
struct OuterNames {
  std::vector<std::string_view> reads;   // read before the block has certainly written them
  std::vector<std::string_view> writes;  // possibly written
};

// Construction takes time proportional to the size of the program times the nesting depth.
// REQUIRES: the program outlives it and does not change, and its blocks are nested as
// Verify demands.
class BlockOuterNames {
 public:
  BlockOuterNames(const ProgramDesc& program, const OpRegistry& ops);

  // Calls f(name) for each variable that the op reads (may write): in slots, in attrs of the type
  // VAR and in its sub-blocks; some more than once. A variable that the sub-blocks write before
  // they read it does not count as read, even if a slot lists it.
  template <class F>
  void ForEachRead(const OpDesc& op, const F& f) const {
    for (std::string_view name : NamesOf(op, true)) f(name);
  }
  template <class F>
  void ForEachWrite(const OpDesc& op, const F& f) const {
    for (std::string_view name : NamesOf(op, false)) f(name);
  }

  // Whether the op leaves nothing of the output's previous value.
  bool Overwrites(const OpDesc& op, const std::string& slot, std::string_view name) const;
  // Whether the op reads the previous value of an output without listing it as an input.
  bool KeepsOutput(const OpDesc& op, const std::string& slot) const;

  // The sub-blocks of the op that exist.
  std::vector<int> BlocksOf(const OpDesc& op) const;

 private:
  std::vector<std::string_view> NamesOf(const OpDesc& op, bool reads) const;
  std::vector<int> InnermostFirst() const;
  OuterNames Find(const BlockDesc& block) const;

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  std::vector<OuterNames> of_block_;
};

}  // namespace coracle::inline internal
