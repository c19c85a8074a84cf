#pragma once
// OuterPath: where the targets lie in a sub-block, the part of their gradients that passes through
// ops of the blocks around it.

#include <coracle/backward/gradient_ops.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::internal {

class OuterPath {
 public:
  // `graph` is of the targets' block, `wanted` what it was made with; the lists must outlive this.
  // Finds which variables that the block reads are computed around it from wanted ones. Throws
  // kUnimplemented where a gradient would have to pass through other runs of the block, or through
  // the op that runs it.
  OuterPath(const char* who, ForwardGraph& graph, const std::vector<int32_t>& targets,
            const BackwardOptions& options, const std::vector<std::string>& wanted);

  // What the gradients count on: see InnerGradient (framework/op/inner_gradient.h).
  const std::vector<std::string>& reads() const { return reads_; }
  // Those variables: the targets' block must give their gradients too.
  const std::vector<std::string>& names() const { return names_; }
  // Appends to `target`, the targets' block, the gradient ops of what lies outside. `gradients`
  // has the gradient ("" for none) of each outer variable that is wanted or among names(), as far
  // as it arises in the block, and then the whole one.
  void Append(BackwardRun& run, BlockDesc& target,
              std::unordered_map<std::string, std::string>* gradients);

 private:
  // A block around that of the targets, up to the op that runs the block inside.
  struct Level {
    BlockDesc* block = nullptr;
    BlockDesc* inner = nullptr;
    size_t end = 0;
    std::unique_ptr<ForwardGraph> graph;
    std::vector<std::string> via;  // of the variables read inside those computed here
    std::unordered_set<std::string_view> via_set;
    std::vector<std::string> reads;  // all of them
  };

  void MakeGraph(Level& level, const std::vector<std::string>& wanted);
  void FindVia(Level& level, ForwardGraph& inside, const std::vector<int32_t>& targets);
  void AddReads(const std::vector<std::string>& names);
  void RequireOnePlace(const Level& level, const std::vector<const OpDesc*>& runners) const;
  void RequireNoMissedPath(const BlockDesc& block) const;
  void AppendLevel(Level& level, BackwardRun& run, BlockDesc& target,
                   std::unordered_map<std::string, std::string>* gradients);
  bool IsWanted(const std::string& name) const { return wanted_set_.count(name) > 0; }
  void RequireVisible(Level& level, const BlockDesc& target) const;
  [[noreturn]] void Refuse(const OpDesc& runner, const std::string& name, const char* why) const;

  const char* who_;
  const OpRegistry& ops_;
  const BackwardOptions& options_;
  const std::vector<std::string>& wanted_;
  std::unordered_set<std::string_view> wanted_set_;
  std::vector<Level> levels_;  // outwards
  std::vector<std::string> names_, all_, reads_;
};

}  // namespace coracle::internal
