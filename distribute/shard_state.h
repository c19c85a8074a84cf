#pragma once
// StateSharder: updates of which each rank makes its part, so that it keeps a part of the
// optimizer's state (stage 1 of Rajbhandari and others, ZeRO, 2020). Internal to distribute/.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/op_inserter.h>

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

class StateSharder {
 public:
  StateSharder(ProgramDesc& main, ProgramDesc& startup, const AllReduceOptions& options)
      : main_(main), startup_(startup), options_(options) {}

  // Finds the updates that can be made in parts: of dense parameters of at least
  // options.shard_least elements, by a formula that takes each element by itself, with states that
  // nothing else uses and that the startup program fills with a constant.
  void FindUpdates();
  // Whether nothing but such an update of the root block reads the gradient from op `from` on: no
  // rank needs more of it than its part.
  bool ReadsPartOnly(const std::string& gradient, size_t from);
  // Scatters the sum of gradients of which this is so, as one message, behind the op `complete`;
  // the first of their updates waits for it.
  void Scatter(const std::vector<std::string>& gradients, const OpDesc& complete, OpInserter* main);
  // Rewrites the updates and the states; the new ops are to be inserted. Returns the states.
  std::vector<ShardedState> Rewrite(OpInserter& main);
  // Once the ops are inserted: the ops that run blocks with such updates name what these use now.
  void NameUses();

 private:
  struct Update {
    OpDesc* op;
    std::string param, gradient;
    std::vector<std::string> states;
    std::string summed = {};  // of which this rank's part is the sum over the ranks; or none
  };

  bool MayShard(const OpDesc& op, Update* update) const;
  bool IsFilled(const std::string& state) const;
  int64_t ShardSize(const Shape& shape) const;
  // Declares a variable for a part in the block. Returns its name.
  std::string MakeShard(BlockDesc& block, const VarDesc& whole);
  OpDesc ShardOp(const std::string& type, const std::vector<std::string>& x,
                 const std::vector<std::string>& out) const;

  ProgramDesc& main_;
  ProgramDesc& startup_;
  const AllReduceOptions& options_;
  std::unordered_map<std::string, int> uses_;  // ops of all blocks that use a variable
  std::vector<Update> updates_;
};

}  // namespace coracle
