#pragma once
// OuterPath: where the targets lie in a sub-block, the part of their gradients that passes through
// ops of the blocks around it.

#include <coracle/backward/gradient_ops.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::internal {

class OuterPath {
 public:
  // `graph` is of the targets' block, `wanted` what it was made with; the lists must outlive this.
  // Finds which variables that the block reads are computed around it from wanted ones. Throws
  // kUnimplemented where a gradient would have to pass through former runs of a loop, or through
  // the op that runs the block.
  OuterPath(const char* who, ForwardGraph& graph, const std::vector<int32_t>& targets,
            const BackwardOptions& options, const std::vector<std::string>& wanted);

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
  };

  void MakeGraph(Level& level, const std::vector<std::string>& wanted);
  void FindVia(Level& level, ForwardGraph& inside, const std::vector<int32_t>& targets,
               const std::vector<std::string>& reads);
  void RequireNoFormerRun(const OpDesc& runner, ForwardGraph& inside, Level& level,
                          const std::vector<std::string>& reads) const;
  void RequireNoArgument(const OpDesc& runner, ForwardGraph& inside,
                         const std::vector<int32_t>& targets, Level& level) const;
  void AppendLevel(Level& level, BackwardRun& run, BlockDesc& target,
                   std::unordered_map<std::string, std::string>* gradients);
  bool IsWanted(const std::string& name) const;
  void RequireVisible(Level& level, const BlockDesc& target) const;
  [[noreturn]] void Refuse(const OpDesc& runner, const std::string& name, const char* why) const;

  const char* who_;
  const OpRegistry& ops_;
  const BackwardOptions& options_;
  const std::vector<std::string>& wanted_;
  std::vector<Level> levels_;  // outwards
  std::vector<std::string> names_, all_;
};

}  // namespace coracle::internal
