#pragma once
// OpInserter: collects ops to insert into the blocks of a program, by the ops before or behind
// which they belong. Internal to distribute/.

#include <coracle/framework/ir/program.h>

#include <map>
#include <memory>
#include <vector>

namespace coracle {

class OpInserter {
 public:
  // Several at one place stand in the order of the calls.
  void Before(const OpDesc& place, OpDesc op) { Add(before_, place, std::move(op)); }
  void Behind(const OpDesc& place, OpDesc op) { Add(behind_, place, std::move(op)); }
  void AtEnd(const BlockDesc& block, OpDesc op) {
    at_end_[block.idx()].push_back(std::make_unique<OpDesc>(op));
  }
  // Inserts all of them, each block in one sweep. Returns the new ops.
  std::vector<OpDesc*> Apply(ProgramDesc& program);

 private:
  using Ops = std::vector<std::unique_ptr<OpDesc>>;
  using Places = std::map<const OpDesc*, Ops>;
  static void Add(Places& places, const OpDesc& place, OpDesc op) {
    places[&place].push_back(std::make_unique<OpDesc>(op));
  }

  Places before_, behind_;
  std::map<int, Ops> at_end_;
};

}  // namespace coracle
