#pragma once
// What ops read and write, their sub-blocks included, where slots do not tell. Internal to Coracle.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string_view>
#include <vector>

namespace coracle::internal {

// Of a block and those that its ops run: variables declared around it. Sorted; the names lie in the
// program.
struct OuterNames {
  std::vector<std::string_view> reads;   // before the block writes them for certain
  std::vector<std::string_view> writes;  // perhaps
};

// The size of the program times the depth of nesting is what making it costs. REQUIRES: the program
// outlives it and does not change, and its blocks are nested as Verify demands.
class BlockOuterNames {
 public:
  BlockOuterNames(const ProgramDesc& program, const OpRegistry& ops);

  // f(name) for each variable that the op reads (may write): in slots, in attrs of the type VAR and
  // in its sub-blocks; some more than once. What these write before they read it is not read, even
  // if a slot lists it.
  template <class F>
  void ForEachRead(const OpDesc& op, const F& f) const {
    for (std::string_view name : NamesOf(op, true)) f(name);
  }
  template <class F>
  void ForEachWrite(const OpDesc& op, const F& f) const {
    for (std::string_view name : NamesOf(op, false)) f(name);
  }

  // Whether nothing of the value that an output had before the op is left after it.
  bool Overwrites(const OpDesc& op, const std::string& slot, std::string_view name) const;
  // Whether the op reads the value that an output had before, without listing it as an input.
  bool KeepsOutput(const OpDesc& op, const std::string& slot) const;

  // The sub-blocks of the op that there are.
  std::vector<int> BlocksOf(const OpDesc& op) const;

 private:
  std::vector<std::string_view> NamesOf(const OpDesc& op, bool reads) const;
  std::vector<int> InnermostFirst() const;
  OuterNames Find(const BlockDesc& block) const;

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  std::vector<OuterNames> of_block_;
};

}  // namespace coracle::internal
