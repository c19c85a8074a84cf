#pragma once
// The ops of a program's root block, and the writer of each variable that an op reads.

#include <coracle/framework/ir/program.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// An op of the root block.
struct OpPlace {
  int op = 0;  // its number in listings and errors
  std::string type;
};

// A variable that an op reads, and the op that wrote it last; -1 if no op did.
struct OpRead {
  std::string var;
  int writer = -1;
};

// Refers to the program. Feed and fetch ops (of DefaultOps) count as ops without outputs.
class RootOps {
 public:
  explicit RootOps(const ProgramDesc& program);

  // Variables that ops write, in the order of their first writers.
  const std::vector<std::string>& written() const { return written_; }
  bool Writes(const std::string& var) const { return writers_.count(var) > 0; }
  const std::vector<int>& WritersOf(const std::string& var) const { return writers_.at(var); }
  const std::vector<OpRead>& ReadsOf(int op) const { return reads_[static_cast<size_t>(op)]; }
  const OpDesc& Op(int op) const { return root_.op(static_cast<size_t>(op)); }
  OpPlace PlaceOf(int op) const { return {op, Op(op).type()}; }

 private:
  const BlockDesc& root_;
  std::vector<std::vector<OpRead>> reads_;
  std::unordered_map<std::string, std::vector<int>> writers_;
  std::vector<std::string> written_;
};

}  // namespace coracle::inline internal
