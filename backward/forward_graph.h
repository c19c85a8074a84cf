#pragma once
// ForwardGraph: one block as a graph of values. A variable that is written several times is several
// values ("versions"); backward works on versions, so that an overwritten name is no special case.

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::internal {

// Whether the sub-blocks of an op read (write) variables around it that none of its input
// (output) slots has.
bool UsesUnlistedNames(const OpDesc& op);

class ForwardGraph {
 public:
  // What `wanted` stands for.
  enum class Start {
    kProgram,  // the value before the run where the variable has one, else what the block makes
    kBefore,   // the value before the block, as in the gradient of a sub-block
  };
  // The lists must outlive the graph.
  struct Request {
    const std::vector<std::string>& wanted;
    const std::vector<std::string>& no_grad_set;
    const std::vector<std::string>& stop_gradients;
    Start start = Start::kProgram;
    // The ops to look at, in order: all between the wanted variables and the targets must be among
    // them. nullptr: the whole block.
    const std::vector<uint32_t>* positions = nullptr;
    size_t end = SIZE_MAX;  // without positions: so many ops of the block
  };

  struct Var {
    std::string_view name;
    VarDesc* desc = nullptr;
    bool wanted = false;       // its gradient is asked for
    bool blocked = false;      // no gradient flows into it
    bool stopped = false;      // a constant: a gradient that arrives goes no further
    bool scopes = false;       // what an op kept of the runs of its block
    bool held_before = false;  // has a value before the block runs
    int32_t last = -1;         // the version that it holds after the last op
    int32_t versions = 0;
    int32_t plain = -1;  // the version whose gradient is called <name>@GRAD
  };
  struct Version {
    int32_t var = -1;
    int32_t writer = -1;      // position; -1: the variable holds it before the block runs
    int32_t previous = -1;    // version of the same variable
    int32_t overwriter = -1;  // op that writes the next version; -1: none
    int32_t pending = 0;      // contributions to its gradient that are still to come
    int32_t ordinal = -1;     // so many writes of the variable come before the writer
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
    // Where its args begin: those of its input slots; what its sub-blocks read besides; for
    // each variable of its output slots the value before, where OpDef::KeepsOutputs says that
    // it stays (none of these when nothing stays); those of its output slots; what its
    // sub-blocks write besides.
    uint32_t inputs = 0, captured = 0, kept = 0, outputs = 0, written = 0, end = 0;
    bool has_sub_block = false;
    bool updates = false;  // an optimizer's op: what it writes is a new start, not a function
    bool on_path = false;  // some target depends on a wanted variable through it
  };

  // Throws, in the verifier's words, for an op that is not as its OpDef says.
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
  // The version that the node reads of a variable, -1 when it reads none.
  int32_t ReadBy(const Node& node, std::string_view name);
  // That lists among the attrs are as the shape rule wants them: gradient rules rely on it. Throws
  // what the rule throws.
  void RequireLists(const Node& node);

  // The version that a variable holds after the last op; -1 for an unknown variable.
  int32_t Last(const std::string& name);
  // Marks the ops between the wanted variables and the targets (versions, with repeats), and counts
  // the contributions to each gradient; what an earlier call marked is forgotten.
  void MarkPath(const std::vector<int32_t>& targets);
  // Throws why no gradient goes from an output, `to`, through its node: an unknown op type, no
  // rule, forbidden. `who` begins the message.
  [[noreturn]] void ThrowNoGradient(const char* who, const Node& node, std::string_view to);
  // The version of a wanted variable whose gradient is the variable's (after MarkPath); -1 when no
  // target depends on it.
  int32_t WantedVersion(const std::string& name);
  // The variables of blocks around this one on whose values before it these versions depend through
  // ops that pass gradients. REQUIRES: the graph is of the whole block.
  std::vector<std::string> OuterReads(const std::vector<int32_t>& targets);
  // The same of variables of this block that no op of it writes first: what runs it gives them.
  std::vector<std::string> GivenReads(const std::vector<int32_t>& targets);
  // The op that makes a version; nullptr when the variable holds it before the block.
  OpDesc* WriterOf(int32_t v);
  // The version that a variable holds before the block; -1 when the block does not read it.
  int32_t VersionBefore(const std::string& name);
  // Static type of a version. It differs from the VarDesc's where an overwritten variable changed
  // its shape or dtype.
  const VarMeta& MetaOf(int32_t v);
  // Whether a version that is reached holds floating-point numbers; throws where its type is open,
  // or another than its variable is declared with.
  void RequireFloating(const char* who, int32_t v);

 private:
  class Metas;

  static constexpr int32_t kEnd = INT32_MAX;  // behind the last op

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
  bool part_;  // not the whole block
  std::unordered_set<std::string_view> wanted_, no_grad_, stop_;
  std::vector<int32_t> local_;  // the block's own variables, by VarDesc::index(); -1: not yet
  std::unordered_map<std::string_view, int32_t> outer_;  // others, by name
  std::vector<Var> vars_;
  std::vector<Version> versions_;
  std::vector<Arg> args_;
  std::vector<Node> nodes_;
  bool undeclared_ = false;  // an op names a variable that no block declares
  bool any_overwritten_ = false, inferred_ = false, marked_ = false;
  std::unordered_map<int32_t, VarMeta> overwritten_metas_;
};

}  // namespace coracle::internal
