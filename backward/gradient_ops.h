#pragma once
// GradientOps: appends the gradient ops of a ForwardGraph to its block. Contributions to a gradient
// are collected by version; when the last one is there they are summed.

#include <coracle/backward/backward.h>
#include <coracle/backward/forward_graph.h>
#include <coracle/framework/op/gradient_context.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::internal {

class GradientOps {
 public:
  // After graph.MarkPath. `grad_to_var` is kept up while ops are appended.
  GradientOps(ForwardGraph& graph, const std::vector<BackwardCallback>& callbacks,
              GradToVar* grad_to_var);

  // Lets a gradient enter at a version: ones, or the value of a variable.
  void SeedOnes(int32_t version, int op_role);
  void SeedFrom(int32_t version, const std::string& gradient);
  // The gradient ops of every op on the path, from the last to the first.
  void AppendBackwardOps();
  // Saves the forward values that gradient ops read and later ops overwrite. Afterwards the
  // positions of ops differ from the graph's.
  void Finish();

  // The variable that holds the gradient of a version; "" when it has none.
  const std::string& GradientOf(int32_t version) const;
  // The last op that writes that variable.
  OpDesc* WriterOf(int32_t version) const;

 private:
  // The gradient of one version.
  struct Gradient {
    VarDesc* var = nullptr;
    OpDesc* writer = nullptr;  // the last op that writes it
    std::vector<std::string> parts;
    int32_t total = 0;  // contributions that are expected
    int32_t named = 0;  // names given out for them
    bool complete = false;
  };
  // A gradient that is asked of a gradient rule.
  struct Request {
    const std::string* name = nullptr;
    int32_t version = -1;
    int last_writer = -1;  // among the rule's ops; -1: the rule yields none
    const std::string* slot = nullptr;
  };
  struct Saved {
    int32_t version = -1;
    std::string name;
    bool used = false;
  };

  BlockDesc& block() { return graph_.block(); }
  Gradient& GradientAt(int32_t version);
  VarDesc* DeclareGradient(int32_t version);
  const std::string& NameContribution(int32_t version);
  VarDesc* Declare(std::string name, const VarMeta& meta);
  void Contribute(int32_t version, const std::string& name);
  void Complete(int32_t version, OpDesc& writer);
  void Sum(int32_t version);

  void AppendGradientsOf(const ForwardGraph::Node& node);
  GradientContext::Request MakeRequest(const ForwardGraph::Node& node);
  Request* FindRequest(const std::string& name);
  OpDesc* RenameStale(const ForwardGraph::Node& node, GradientContext::Request* request);
  const std::string& SavedName(int32_t version);
  void NoteUses(const std::vector<std::unique_ptr<OpDesc>>& ops);
  void AppendRuleOps(const ForwardGraph::Node& node, std::vector<std::unique_ptr<OpDesc>> ops);
  OpDesc& Append(std::unique_ptr<OpDesc> op, const OpDesc* forward);
  void MakeInputsDense(OpDesc& op);
  const std::string& DenseOf(const std::string& name, const VarMeta& sparse);
  void AppendSeed(int32_t version, const std::string& name, std::unique_ptr<OpDesc> op);
  void RunCallbacks();
  void CheckContract(const Request& request, const OpDesc& forward, const OpDesc& op);

  ForwardGraph& graph_;
  const std::vector<BackwardCallback>& callbacks_;
  GradToVar* grad_to_var_;
  bool trace_;
  std::vector<int32_t> gradient_index_;  // by version; -1: none yet
  std::vector<Gradient> gradients_;
  std::vector<Request> requests_;  // of the rule that runs
  std::unordered_map<std::string_view, size_t> request_index_;
  std::unique_ptr<OpDesc> renamed_;
  std::vector<Saved> saved_;
  std::unordered_map<int32_t, size_t> saved_of_version_;
  std::unordered_map<std::string, size_t> saved_of_name_;
  std::unordered_map<std::string, std::string> dense_of_;  // by sparse gradient
  bool any_sparse_ = false;                                // some gradient is selected rows
  // Gradients by name, of variables that a callback may write to.
  std::unordered_map<std::string_view, int32_t> version_of_name_;
  std::unordered_set<std::string> unused_;  // declared for a gradient that the rule did not yield
};

}  // namespace coracle::internal
