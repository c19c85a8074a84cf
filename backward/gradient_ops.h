#pragma once
// GradientOps: appends the gradient ops of a ForwardGraph to a block. Contributions to a gradient
// are collected by version and summed when the last one has arrived.

#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/backward/saved_values.h>
#include <coracle/framework/op/op_context.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The state shared by the gradients of a block and of its sub-blocks.
struct BackwardRun {
  const char* who;  // begins the error messages
  const BackwardOptions& options;
  const OpRegistry& ops;
  GradToVar* grad_to_var = nullptr;  // updated while ops are appended
  SavedValues saved = {};
  int depth = 0;  // number of enclosing gradient blocks
  // The last number used for each gradient's name, so that a block does not retry the numbers of
  // other blocks.
  std::unordered_map<std::string, int> numbered = {};
  // The variables that each gradient block, given by its index, reads from outside its
  // forward block.
  std::unordered_map<int, std::vector<std::string>> outer_reads = {};
};

class GradientOps {
 public:
  // Call after graph.MarkPath. The ops go to `target`: the graph's block, or the gradient block of
  // it. In a gradient block, `outer_value` returns the name under which to read the value that an
  // outer variable had before the forward block.
  using OuterValue = std::function<std::string(std::string_view name)>;
  GradientOps(BackwardRun& run, ForwardGraph& graph, BlockDesc& target,
              OuterValue outer_value = nullptr);

  // Starts a gradient at a version: ones, the value of a variable, or a variable declared here that
  // receives its value from outside.
  void SeedOnes(int32_t version, int op_role);
  void SeedFrom(int32_t version, const std::string& gradient);
  const std::string& SeedArriving(int32_t version);
  // Appends zeros with the type of a variable.
  const std::string& AppendZeros(const std::string& var);
  // Appends the gradient ops of every op on the path, from the last op to the first.
  void AppendBackwardOps();
  // Throws if an op from position `first_op` on reads a gradient that no earlier op writes.
  void RequireWritten(size_t first_op);
  // Removes declared variables that turned out to be unused. To be called last.
  void RemoveUnused();

  // The variable that holds the gradient of a version; "" if it has none.
  const std::string& GradientOf(int32_t version) const;
  // The same as a dense tensor: a sparse gradient is converted.
  std::string DenseGradientOf(int32_t version);
  // The last op that writes the gradient of the version.
  OpDesc* WriterOf(int32_t version) const;
  // Marks the gradient of this version as only a share of its variable's gradient, which callbacks
  // do not see.
  void MarkShare(int32_t version) { shares_.insert(version); }

 private:
  // The gradient of one version.
  struct Gradient {
    VarDesc* var = nullptr;
    OpDesc* writer = nullptr;  // the last op that writes it
    std::vector<std::string> parts;
    int32_t total = 0;  // number of expected contributions
    int32_t named = 0;  // number of names given to contributions
    bool complete = false;
  };
  // A gradient requested from a gradient rule.
  struct Request {
    const std::string* name = nullptr;
    int32_t version = -1;
    int last_writer = -1;  // index among the rule's ops; -1: the rule yields none
    const std::string* slot = nullptr;
  };

  BlockDesc& block() { return target_; }
  Gradient& GradientAt(int32_t version);
  VarDesc* DeclareGradient(int32_t version);
  const std::string& NameContribution(int32_t version);
  VarDesc* Declare(std::string name, const VarMeta& meta);
  void Contribute(int32_t version, const std::string& name);
  void Complete(int32_t version, OpDesc* writer);
  void Sum(int32_t version);
  OpDesc& AppendSum(std::vector<std::string> parts, const std::string& total);
  void Accumulate(Gradient& gradient, int32_t version);

  void ReserveForPath();
  void AppendGradientsOf(const ForwardGraph::Node& node);
  bool AnyArrived(const ForwardGraph::Node& node);
  const GradientFn& RuleOf(const ForwardGraph::Node& node);
  GradientContext::Request MakeRequest(const ForwardGraph::Node& node);
  std::string Ask(const ForwardGraph::Arg& arg, const std::string& slot);
  Request* FindRequest(const std::string& name);
  const std::string* OtherName(int32_t version);
  OpDesc* RenameStale(const ForwardGraph::Node& node, GradientContext::Request* request);
  const std::string& SavedName(int32_t version);
  void AppendRuleOps(const ForwardGraph::Node& node, std::vector<std::unique_ptr<OpDesc>> ops);
  void MakeInputsDense(OpDesc& op);
  const std::string& DenseOf(const std::string& name, const VarMeta& sparse);
  void Fulfil(Request& request);
  OpDesc& Append(std::unique_ptr<OpDesc> op, const ForwardGraph::Node* forward);
  std::string ForwardLink(const ForwardGraph::Node& node);
  void AppendSeed(int32_t version, const std::string& name, std::unique_ptr<OpDesc> op);
  void RunCallbacks();
  void CheckCount(const OpDesc& forward, const OpDesc& op);
  void CheckContract(const Request& request, const OpDesc& forward, const OpDesc& op);
  [[noreturn]] void ThrowBrokenRule(const OpDesc& forward, const std::string& what);
  [[noreturn]] void ThrowUnlisted(const OpDesc& op, const char* verb, std::string_view name);
  GradientBlock BlockGradient(const ForwardGraph::Node& node, const GradientBlockRequest& request);

  BackwardRun& run_;
  ForwardGraph& graph_;
  BlockDesc& target_;
  OuterValue outer_value_;
  bool trace_, gate_, running_sum_;
  bool overridden_ = false;              // the running rule is a caller's override
  size_t first_var_;                     // the first new variable of the target
  std::vector<int32_t> gradient_index_;  // by version; -1: none yet
  std::vector<Gradient> gradients_;
  std::vector<Request> requests_;  // made by the running rule
  std::unordered_map<std::string_view, size_t> request_index_;
  std::unique_ptr<OpDesc> renamed_;
  std::unordered_map<std::string, std::string> dense_of_;  // by sparse gradient
  bool any_sparse_ = false;                                // at least one gradient is selected rows
  std::unordered_map<int32_t, std::string> other_name_;    // by version
  std::unordered_set<int32_t> shares_;
  std::unordered_set<std::string> arriving_;  // declared here; their values come from outside
  // Maps gradients, by name, to their versions, for variables that a callback may write to.
  std::unordered_map<std::string_view, int32_t> version_of_name_;
  std::unordered_set<std::string> unused_;  // declared for gradients that the rule did not yield
};

}  // namespace coracle::inline internal
