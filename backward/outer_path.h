#pragma once
// OuterPath: for targets in a sub-block, the part of gradients that passes through the enclosing
// blocks of the targets.

#include <coracle/backward/gradient_ops.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

class OuterPath {
 public:
  // `graph` covers the targets' block, and was made with `wanted`; the lists must outlive this
  // object. Finds which outer variables that the block reads are computed from wanted ones. Throws
  // kUnimplemented if a gradient would have to pass through other runs of the block, or through the
  // op that runs it.
  OuterPath(const char* who, ForwardGraph& graph, const std::vector<int32_t>& targets,
            const BackwardOptions& options, const std::vector<std::string>& wanted);

  // The outer variables that the gradients depend on; see
  // InnerGradient (framework/op/context/inner_gradient.h).
  const std::vector<std::string>& reads() const { return reads_; }
  // The outer variables that are computed from wanted ones. The targets' block must yield their
  // gradients too.
  const std::vector<std::string>& names() const { return names_; }
  // The graphs of the enclosing blocks, in which the path from names() is marked.
  std::vector<ForwardGraph*> MarkedGraphs();
  // Appends the gradient ops of the outer path to `target`, the targets' block. On entry,
  // `gradients` has the contribution from the block ("" for none) to each outer variable that is
  // wanted or in names(); on return, it has the complete gradients.
  void Append(BackwardRun& run, BlockDesc& target,
              std::unordered_map<std::string, std::string>* gradients);

 private:
  // A block that encloses the targets' block, up to the op that runs the inner block.
  struct Level {
    BlockDesc* block = nullptr;
    BlockDesc* inner = nullptr;
    size_t end = 0;
    std::unique_ptr<ForwardGraph> graph;
    std::vector<std::string> via;  // variables read inside that this block computes
    std::unordered_set<std::string_view> via_set;
    std::vector<std::string> reads;  // all variables read inside
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
  [[noreturn]] void Refuse(const OpDesc& runner, const std::string& name,
                           const std::string& why) const;

  const char* who_;
  const OpRegistry& ops_;
  const BackwardOptions& options_;
  const std::vector<std::string>& wanted_;
  std::unordered_set<std::string_view> wanted_set_;
  std::vector<Level> levels_;  // from the inside outwards
  std::vector<std::string> names_, all_, reads_;
};

}  // namespace coracle::inline internal
