#pragma once
// ForwardGraph: one block as a graph of values. Each write of a variable makes a new value (a
// "version"); since backward works on versions, overwritten names need no special treatment.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

// Whether the sub-blocks of an op read (write) outer variables that are missing from its input
// (output) slots.
bool UsesUnlistedNames(const OpDesc& op);

class ForwardGraph {
 public:
  // The values that the names in `wanted` refer to.
  enum class Start {
    // The value before the run if the variable has one, else the value that the block computes.
    kProgram,
    kBefore,  // the value before the block, for the gradient of a sub-block
  };
  // The lists must outlive the graph.
  struct Request {
    const std::vector<std::string>& wanted;
    const std::vector<std::string>& no_grad_set;
    const std::vector<std::string>& stop_gradients;
    Start start = Start::kProgram;
    // The ops to examine, in order; they must include all ops between the wanted variables and the
    // targets. nullptr: the whole block.
    const std::vector<uint32_t>* positions = nullptr;
    // Without positions: examine this many ops of the block.
    size_t end = SIZE_MAX;
  };

  struct Var {
    std::string_view name;
    VarDesc* desc = nullptr;
    bool wanted = false;       // its gradient is requested
    bool blocked = false;      // no gradient flows into it
    bool stopped = false;      // a constant: an arriving gradient goes no further
    bool scopes = false;       // holds the saved values of the runs of an op's block
    bool held_before = false;  // has a value before the block runs
    int32_t last = -1;         // the version after the last op
    int32_t versions = 0;
    int32_t plain = -1;  // the version whose gradient is named <name>@GRAD
  };
  struct Version {
    int32_t var = -1;
    // The op at this position; -1: the variable has this version before the block runs.
    int32_t writer = -1;
    int32_t previous = -1;    // version of the same variable
    int32_t overwriter = -1;  // op that writes the next version; -1: none
    int32_t pending = 0;      // outstanding contributions to its gradient
    int32_t ordinal = -1;     // number of earlier writes of the variable
    bool reached = false;     // depends on a wanted variable
    bool updated = false;     // written by an optimizer
  };
  struct Arg {
    int32_t version = -1;  // -1: @EMPTY@
    bool differentiable = false;
  };
  struct Node {
    OpDesc* op = nullptr;
    const OpSpec* def = nullptr;  // nullptr: not in the registry
    int32_t position = -1;        // in the block
    // Where the groups of its args begin: the args in its input slots; other variables that its
    // sub-blocks read; the previous value of each output variable, if OpDef::KeepsOutputs says that
    // it is kept (none if nothing is kept); the args in its output slots; other variables that its
    // sub-blocks write.
    uint32_t inputs = 0, captured = 0, kept = 0, outputs = 0, written = 0, end = 0;
    bool has_sub_block = false;
    // An optimizer's op. No gradient flows through it: what it writes is an independent value.
    bool updates = false;
    bool on_path = false;  // some target depends on a wanted variable through it
  };

  // Throws the verifier's error for an op that does not match its OpDef.
  ForwardGraph(BlockDesc& block, const OpRegistry& ops, const Request& request);

  BlockDesc& block() { return block_; }
  const OpRegistry& ops() const { return ops_; }
  size_t NumNodes() const { return nodes_.size(); }
  size_t NumVersions() const { return versions_.size(); }
  const Node& node(size_t i) const { return nodes_[i]; }
  const Arg& arg(uint32_t i) const { return args_[i]; }
  Version& version(int32_t v) { return versions_[static_cast<size_t>(v)]; }
  Var& var(int32_t i) { return vars_[static_cast<size_t>(i)]; }
  Var& VarOf(int32_t v) { return var(version(v).var); }
  bool IsStale(int32_t v) { return version(v).overwriter >= 0; }
  // The version of a variable that the node reads; -1 if it reads none.
  int32_t ReadBy(const Node& node, std::string_view name);
  // Requires lists in the attrs to satisfy the shape rule, since gradient rules rely on it. Throws
  // the rule's error.
  void RequireLists(const Node& node);

  // The version that a variable holds after the last op; -1 for an unknown variable.
  int32_t Last(const std::string& name);
  // Marks the ops between the wanted variables and the targets (versions, perhaps repeated), and
  // counts the contributions to each gradient. Clears the marks of an earlier call.
  void MarkPath(const std::vector<int32_t>& targets);
  // Throws the reason why no gradient goes from the output `to` through the node: an unknown op
  // type, no rule, or a forbidden gradient. `who` begins the message.
  [[noreturn]] void ThrowNoGradient(const char* who, const Node& node, std::string_view to);
  // The version of a wanted variable whose gradient counts as the variable's (after MarkPath); -1
  // if no target depends on it.
  int32_t WantedVersion(const std::string& name);
  // The outer variables (of enclosing blocks) on which these versions depend through
  // differentiable ops. Their values are those before the block runs. REQUIRES: the graph covers
  // the whole block.
  std::vector<std::string> OuterReads(const std::vector<int32_t>& targets);
  // Like OuterReads, for variables of this block that no op of it writes first: the op that runs
  // the block sets them.
  std::vector<std::string> GivenReads(const std::vector<int32_t>& targets);
  // The op that makes a version; nullptr if the variable has it before the block.
  OpDesc* WriterOf(int32_t v);
  // The version of a variable before the block; -1 if the block does not read it.
  int32_t VersionBefore(const std::string& name);
  // Static type of a version. It differs from the VarDesc's if the overwritten variable changed its
  // shape or dtype.
  const VarMeta& MetaOf(int32_t v);
  // Requires a reached version to hold floating-point numbers; throws if its type is open, or
  // differs from the declared type of its variable.
  void RequireFloating(const char* who, int32_t v);

 private:
  static constexpr int32_t kEnd = INT32_MAX;  // after the last op

  int32_t Intern(std::string_view name);
  int32_t Read(std::string_view name, int32_t position);
  int32_t Write(std::string_view name, const Node& node);
  bool HasValue(std::string_view name, int32_t position);
  int32_t AddVersion(int32_t id, int32_t writer, int32_t ordinal);
  int32_t VersionOfWrite(int32_t id, int32_t ordinal);
  void AddNode(OpDesc& op, int32_t position);
  void AddInputs(Node& node, bool* reached);
  void AddKept(const Node& node, bool* reached);
  void AddOutputs(Node& node, bool reached);
  static bool PassesGradient(const Node& node);
  void AddOutput(const Node& node, std::string_view name, bool reached);
  std::vector<std::string> ReadsBefore(const std::vector<int32_t>& targets, bool own);
  bool MakesFloat(const Node& node, std::string_view name);
  bool Carries(int32_t v);
  [[noreturn]] void ThrowThroughScopes(const char* who, const Node& node, std::string_view to,
                                       int32_t scopes);
  void InferOverwritten();
  std::vector<OpDesc*> OpsForTypes();
  int32_t FindId(std::string_view name) const;

  BlockDesc& block_;
  const OpRegistry& ops_;
  Start start_;
  bool part_;  // covers only a part of the block
  std::unordered_set<std::string_view> wanted_, no_grad_, stop_;
  std::vector<int32_t> local_;  // the block's own variables, by VarDesc::index(); -1: none yet
  std::unordered_map<std::string_view, int32_t> outer_;  // others, by name
  std::vector<Var> vars_;
  std::vector<Version> versions_;
  std::vector<Arg> args_;
  std::vector<Node> nodes_;
  bool undeclared_ = false;  // an op names a variable that no block declares
  bool any_overwritten_ = false, inferred_ = false, marked_ = false;
  std::unordered_map<int32_t, VarMeta> overwritten_metas_;
};

}  // namespace coracle::inline internal
