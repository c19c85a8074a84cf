#pragma once
// OpInserter: collects ops to insert before or after the ops of a program. Internal to Coracle.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/writer.h>

#include <map>
#include <memory>
#include <type_traits>
#include <vector>

namespace coracle::inline internal {

class OpInserter {
 public:
  OpInserter(ProgramDesc& program, const OpRegistry& ops) : program_(program), ops_(ops) {}

  // Calls write(writer) and returns its result. The ops that it appends will be directly after
  // (before) `place`, or at the end of the block; ops of several calls for one place keep the order
  // of the calls. New variables have no gradient. Until Apply, the block does not contain the ops.
  template <class F>
  auto After(const OpDesc& place, int role, F write) {
    return Write(*place.block(), role, write, &after_[&place]);
  }
  template <class F>
  auto Before(const OpDesc& place, int role, F write) {
    return Write(*place.block(), role, write, &before_[&place]);
  }
  template <class F>
  auto AtEnd(const BlockDesc& block, int role, F write) {
    return Write(block, role, write, &at_end_[block.idx()]);
  }
  // Inserts all ops, each block in one sweep.
  void Apply();

 private:
  using Ops = std::vector<std::unique_ptr<OpDesc>>;

  template <class F>
  auto Write(const BlockDesc& where, int role, F& write, Ops* ops) {
    BlockDesc& block = program_.Block(where.idx());
    const size_t first = block.NumOps();
    const Writer writer(block, ops_, {.role = role, .stop_gradient = true});
    if constexpr (std::is_void_v<decltype(write(writer))>) {
      write(writer);
      Take(block, first, ops);
    } else {
      auto result = write(writer);
      Take(block, first, ops);
      return result;
    }
  }
  // Moves the ops from index `first` on to `ops`.
  static void Take(BlockDesc& block, size_t first, Ops* ops);

  ProgramDesc& program_;
  const OpRegistry& ops_;
  std::map<const OpDesc*, Ops> before_, after_;
  std::map<int, Ops> at_end_;  // by the index of the block
};

}  // namespace coracle::inline internal
