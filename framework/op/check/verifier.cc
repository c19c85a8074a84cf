#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/framework/op/op_registry.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Severity = VerifyProblem::Severity;

constexpr size_t kMaxBlocksAround = 128;
constexpr uint64_t kMaxExpansion = 4'000'000;
constexpr size_t kMaxTypeHints = 32;
constexpr size_t kMaxMessage = 1000;

std::string AndMore(size_t problems) {
  return fmt::format("and {} more problem{}", problems, problems == 1 ? "" : "s");
}

// Stores only types that differ from the declared ones, which saves a tenth of the time.
class NewTypes : public FlowTypes {
 public:
  using FlowTypes::FlowTypes;
  void Set(const std::string& name, const VarMeta& meta) override {
    const VarMeta* now = Find(name);
    if (!now || !(*now == meta)) FlowTypes::Set(name, meta);
  }
};

// The problems found so far, up to a limit.
class Problems {
 public:
  explicit Problems(size_t most) : most_(most) {}

  // The block in which problems are reported, unless their op comes from another one.
  void SetBlock(int block) { current_block_ = block; }
  bool Full() const { return errors_ >= most_; }

  // The number of errors, with those beyond the limit.
  size_t errors() const { return errors_ + dropped_; }

  // The place of an op in the given program.
  OpOrigin PlaceOf(int index, const OpDesc* op) const {
    const std::vector<OpOrigin> origins = op ? TrustedOriginsOf(*op) : std::vector<OpOrigin>();
    return origins.empty() ? OpOrigin{current_block_, index} : origins.front();
  }

  // Returns nullptr beyond the limit.
  VerifyProblem* Add(int index, const OpDesc* op, const char* rule, std::string message) {
    if (Full()) {
      ++dropped_;
      return nullptr;
    }
    ++errors_;
    if (message.size() > kMaxMessage) message.replace(kMaxMessage, message.npos, "...");
    const OpOrigin place = PlaceOf(index, op);
    problems_.push_back({Severity::kError, rule, std::move(message), "", place.block, place.op,
                         op ? BriefName(op->type()) : "", "", ""});
    return &problems_.back();
  }

  // Adds a problem with a variable of an op.
  void AddForVar(int index, const OpDesc& op, const std::string& slot, const std::string& name,
                 const char* rule, std::string message) {
    VerifyProblem* p = Add(index, &op, rule, std::move(message));
    if (!p) return;
    p->slot = BriefName(slot);
    p->var = BriefName(name);
  }

  // Adds a problem with the declaration of a variable.
  void AddForVar(const VarDesc& var, const char* rule, std::string message) {
    if (VerifyProblem* p = Add(-1, nullptr, rule, std::move(message)))
      p->var = BriefName(var.name());
  }

  void Report(VerifyProblem problem) {
    bool error = problem.severity == Severity::kError;
    size_t& count = error ? errors_ : notes_;
    if (count >= most_) {
      ++(error ? dropped_ : dropped_notes_);
      return;
    }
    ++count;
    problems_.push_back(std::move(problem));
  }

  std::vector<VerifyProblem> Release() {
    for (Severity severity : {Severity::kNote, Severity::kError}) {
      size_t dropped = severity == Severity::kError ? dropped_ : dropped_notes_;
      if (dropped == 0) continue;
      problems_.push_back({severity, "more", AndMore(dropped), "", current_block_, -1, "", "", ""});
    }
    return std::move(problems_);
  }

 private:
  const size_t most_;
  std::vector<VerifyProblem> problems_;
  size_t errors_ = 0, notes_ = 0, dropped_ = 0, dropped_notes_ = 0;
  int current_block_ = 0;
};

// A look-up of a name may visit all blocks reachable through parents and forward blocks, so their
// number is limited.
bool SeesFewBlocks(const BlockDesc& start) {
  std::vector<const BlockDesc*> queue = {&start};
  std::unordered_set<const BlockDesc*> seen = {&start};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const BlockDesc* next : {queue[i]->forward_block(), queue[i]->parent()}) {
      if (!next || !seen.insert(next).second) continue;
      queue.push_back(next);
      if (queue.size() > kMaxBlocksAround + 1) return false;
    }
  }
  return true;
}

// Checks the indices of blocks and parents; returns false if look-ups would be unsafe.
bool CheckBlocks(const ProgramDesc& program, Problems& problems) {
  const size_t before = problems.errors();
  int n = program.NumBlocks();
  for (int b = 0; b < n; ++b) {
    const BlockDesc& block = program.Block(b);
    problems.SetBlock(b);
    if (block.idx() != b) {
      problems.Add(-1, nullptr, "block_index",
                   fmt::format("block {} says that its index is {}", b, block.idx()));
    }
    int parent = block.parent_idx();
    if (b == 0 ? parent != -1 : (parent < 0 || parent >= n)) {
      problems.Add(-1, nullptr, "block_index",
                   fmt::format("block {} has the parent {}, which is not a block", b, parent));
    } else if (b > 0 && parent >= b) {
      problems.Add(
          -1, nullptr, "block_cycle",
          fmt::format("block {} has the parent {}, which does not come before it", b, parent));
    }
    int forward = block.forward_block_idx();
    if (forward < -1 || forward >= n || forward == b) {
      problems.Add(
          -1, nullptr, "block_index",
          fmt::format("block {} has the forward block {}, which is not another block", b, forward));
    }
  }
  for (int b = 0; b < n; ++b) {
    problems.SetBlock(b);
    if (problems.Full() || SeesFewBlocks(program.Block(b))) continue;
    problems.Add(-1, nullptr, "block_depth",
                 fmt::format("more than {} blocks enclose block {}", kMaxBlocksAround, b));
  }
  problems.SetBlock(0);
  return problems.errors() == before;
}

// A function is replaced by its ops before a program runs, and may precede its callers.
bool IsCall(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->block.runs == BlockRuns::kFunction;
}

// The first block that the op, which is in `block`, may run.
int FirstRunBy(const OpDesc& op, int block, const OpRegistry& ops) {
  return IsCall(op, ops) ? 1 : block + 1;
}

// Calls f for each block that the block's ops run; invalid references are reported later.
template <class F>
void ForEachRun(const ProgramDesc& program, int b, const OpRegistry& ops, const F& f) {
  program.Block(b).ForEachOp([&](const OpDesc& op) {
    for (int inner : op.SubBlocks()) {
      if (inner >= FirstRunBy(op, b, ops) && inner < program.NumBlocks()) f(inner);
    }
  });
}

// The blocks ordered so that each follows the blocks that its ops run; empty, with a report, if
// the blocks run each other in a cycle. (A function may be at any index; other sub-blocks come
// after the block that runs them.)
std::vector<int> InnermostFirst(const ProgramDesc& program, const OpRegistry& ops,
                                Problems& problems) {
  const int n = program.NumBlocks();
  std::vector<int> order;
  std::vector<uint8_t> states(static_cast<size_t>(n), 0);  // 1: entered, 2: done
  for (int root = 0; root < n; ++root) {
    std::vector<int> stack = {root};
    while (!stack.empty()) {
      const int b = stack.back();
      uint8_t& state = states[static_cast<size_t>(b)];
      if (state != 0) {
        stack.pop_back();
        if (state == 1) order.push_back(b);
        state = 2;
        continue;
      }
      state = 1;
      int circle = -1;
      ForEachRun(program, b, ops, [&](int inner) {
        if (states[static_cast<size_t>(inner)] == 1) circle = inner;
        if (states[static_cast<size_t>(inner)] == 0) stack.push_back(inner);
      });
      if (circle >= 0) {
        problems.Add(
            -1, nullptr, "block_cycle",
            fmt::format("the function of block {} calls itself, over block {}", circle, b));
        return {};
      }
    }
  }
  return order;
}

// Limits the number of ops after expansion. Each op that runs a sub-block counts as the ops in
// it, and several ops may run the same sub-block, so a small program could expand to any number
// of ops.
bool CheckExpansion(const ProgramDesc& program, const OpRegistry& ops, Problems& problems) {
  if (program.NumBlocks() == 1) return true;
  size_t n = static_cast<size_t>(program.NumBlocks());
  std::vector<uint64_t> expanded(n, 0);
  uint64_t total = 0, limit = kMaxExpansion;
  const std::vector<int> order = InnermostFirst(program, ops, problems);
  if (order.empty()) return false;
  for (int b : order) {
    uint64_t& size = expanded[static_cast<size_t>(b)];
    total += program.Block(b).NumOps();
    size += program.Block(b).NumOps();
    ForEachRun(program, b, ops, [&](int inner) {
      size = std::min(size + expanded[static_cast<size_t>(inner)], UINT64_MAX / 2);
    });
  }
  limit = std::max(limit, 4 * total);
  if (*std::max_element(expanded.begin(), expanded.end()) <= limit) return true;
  problems.Add(
      -1, nullptr, "block_expansion",
      fmt::format("the sub-blocks, each counted as often as it is run, hold more than {} ops",
                  limit));
  return false;
}

void CheckVar(int block, const VarDesc& var, Problems& problems) {
  problems.SetBlock(block);
  const bool tensor = var.type() == VarType::kLoDTensor || var.type() == VarType::kSelectedRows ||
                      var.type() == VarType::kLoDTensorArray;
  if (tensor && !IsValid(var.dtype())) {
    problems.AddForVar(var, "var_dtype",
                       fmt::format("var {} has elements of the type {}, which Coracle lacks",
                                   Quote(var.name()), static_cast<int>(var.dtype())));
  }
  if (std::any_of(var.shape().begin(), var.shape().end(), [](int64_t dim) { return dim < -1; })) {
    problems.AddForVar(
        var, "var_shape",
        fmt::format("var {} has the shape {}; a dimension is -1 (unknown) or not negative",
                    Quote(var.name()), var.shape().ToString()));
  } else if (var.shape().HasTooManyElements()) {
    problems.AddForVar(var, "var_shape",
                       fmt::format("var {} with the shape {} is too large for any memory",
                                   Quote(var.name()), var.shape().ToString()));
  }
}

struct FirstWrite {
  size_t op = 0;
  bool reads_too = false;  // also updates in place a value that was fed or defined outside
};
using FirstWrites = std::unordered_map<std::string_view, FirstWrite>;

FirstWrites FindFirstWrites(const BlockDesc& block) {
  FirstWrites writes;
  writes.reserve(block.NumOps());
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    op.ForEachOutput([&](const std::string& name) { writes.emplace(name, FirstWrite{i, false}); });
    op.ForEachInput([&](const std::string& name) {
      auto write = writes.find(name);
      if (write != writes.end() && write->second.op == i) write->second.reads_too = true;
    });
  }
  return writes;
}

// The blocks that a run may leave out: branches, and the blocks inside of them.
std::unordered_set<int> FindBranches(const ProgramDesc& program, const OpRegistry& ops) {
  std::unordered_set<int> branches;
  program.ForEachOp([&](const OpDesc& op) {
    const OpSpec* def = op.HasSubBlock() ? ops.Find(op.type()) : nullptr;
    if (!def || def->block.runs != BlockRuns::kOnce || def->keeps_outputs.empty()) return;
    program.BlocksRunBy(op, &branches);
  });
  return branches;
}

// Verifies the ops of blocks.
class OpVerifier {
 public:
  OpVerifier(const ProgramDesc& program, const OpRegistry& ops, bool infer_shapes,
             Problems& problems)
      : program_(program),
        ops_(ops),
        infer_shapes_(infer_shapes),
        problems_(problems),
        branches_(FindBranches(program, ops)) {}

  void Run(const BlockDesc& block) {
    block_ = block.idx();
    problems_.SetBlock(block_);
    NewTypes flow(block);
    const FirstWrites first_writes = FindFirstWrites(block);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      size_t before = problems_.errors();
      CheckSubBlocks(op, static_cast<int>(i));
      CheckNames(block, op, static_cast<int>(i), first_writes);
      const OpSpec* def = ops_.Find(op.type());
      if (!def) {
        problems_.Add(static_cast<int>(i), &op, "unknown_op", DescribeUnknown(op.type()));
        continue;
      }
      const OpOrigin place = problems_.PlaceOf(static_cast<int>(i), &op);
      CheckOp(*def, op, place.block, place.op, &scratch_);
      for (VerifyProblem& p : scratch_) problems_.Report(std::move(p));
      scratch_.clear();
      bool clean = problems_.errors() == before;
      if (clean && infer_shapes_) InferShapes(*def, op, static_cast<int>(i), flow);
    }
  }

 private:
  void CheckSubBlocks(const OpDesc& op, int index) {
    for (int inner : op.SubBlocks()) {
      const bool runnable =
          inner >= FirstRunBy(op, block_, ops_) && inner != block_ && inner < program_.NumBlocks();
      if (runnable) continue;
      problems_.Add(
          index, &op, "block_index",
          fmt::format("names the sub-block {}, which is not {} block {}", inner,
                      IsCall(op, ops_) ? "a function that may be called from" : "a block after",
                      block_));
    }
  }

  // Suggests another type once per unknown type, up to a limit.
  std::string DescribeUnknown(const std::string& type) {
    const bool proposes =
        unknown_types_.size() < kMaxTypeHints && unknown_types_.insert(type).second;
    return DescribeMissingOp(type, proposes ? ops_.Types() : std::vector<std::string>());
  }

  void CheckNames(const BlockDesc& block, const OpDesc& op, int index,
                  const FirstWrites& first_writes) {
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = block.FindVarRecursive(name);
      if (!var)
        AddUndefined(index, op, slot, name, "reads");
      else if (block.idx() == 0 && !var->persistable())
        CheckOrder(op, index, slot, name, first_writes);
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (!block.FindVarRecursive(name)) AddUndefined(index, op, slot, name, "writes");
    });
    if (!op.HasSubBlock()) CheckWrittenOnce(op, index);
  }

  void AddUndefined(int index, const OpDesc& op, const std::string& slot, const std::string& name,
                    const char* verb) {
    problems_.AddForVar(index, op, slot, name, "undefined_var",
                        fmt::format("{} the var {}, which no block declares", verb, Quote(name)));
  }

  // Kernels find outputs by name, so two outputs with one name would share one value and one type.
  void CheckWrittenOnce(const OpDesc& op, int index) {
    if (op.outputs().size() == 1 && op.outputs()[0].args.size() == 1) return;
    std::unordered_map<std::string_view, std::string_view> written;  // the slot of a variable
    op.AnyOutput([&](const std::string& name, const std::string& slot) {
      const auto [it, added] = written.try_emplace(name, slot);
      if (added) return false;
      VerifyProblem* p = problems_.Add(
          index, &op, "written_twice",
          fmt::format("writes the var {} in output {} and again in output {}; give each "
                      "a var of its own",
                      Quote(name), BriefName(it->second), BriefName(slot)));
      if (!p) return true;  // enough problems are reported
      p->slot = BriefName(slot);
      p->var = BriefName(name);
      return false;
    });
  }

  // Reports a read of a variable that the block writes only later. (Persistable values and
  // sub-blocks, which may be loops, may read the result of a later op.)
  void CheckOrder(const OpDesc& op, int index, const std::string& slot, const std::string& name,
                  const FirstWrites& first_writes) {
    auto write = first_writes.find(name);
    if (write == first_writes.end() || write->second.reads_too ||
        write->second.op < static_cast<size_t>(index))
      return;
    problems_.AddForVar(
        index, op, slot, name, "use_before_def",
        fmt::format("reads the var {} before op {} writes it", Quote(name), write->second.op));
  }

  void InferShapes(const OpSpec& def, const OpDesc& op, int index, FlowTypes& flow) {
    try {
      flow.InferOrThrow(def, op);
    } catch (const Error& e) {
      const char* rule = e.code() == ErrorCode::kInternal ? "internal" : "shape";
      if (e.code() != ErrorCode::kInternal && branches_.count(block_)) {
        const OpOrigin place = problems_.PlaceOf(index, &op);
        problems_.Report({Severity::kNote, rule, "fails if this branch is taken: " + e.message(),
                          e.details(), place.block, place.op, BriefName(op.type()), "", ""});
        return;
      }
      if (VerifyProblem* p = problems_.Add(index, &op, rule, e.message())) p->details = e.details();
      return;
    }
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      CheckAgainstDeclared(op, index, slot, name, flow);
    });
  }

  void CheckAgainstDeclared(const OpDesc& op, int index, const std::string& slot,
                            const std::string& name, const FlowTypes& flow) {
    const VarDesc* var = program_.Block(block_).FindVarRecursive(name);
    const VarMeta* inferred = flow.Find(name);
    if (!var || !inferred || inferred == &var->meta() || !var->persistable()) return;
    if (var->type() != VarType::kLoDTensor || inferred->type != VarType::kLoDTensor) return;
    if (var->dtype() == inferred->dtype && var->shape().CompatibleWith(inferred->shape)) return;
    problems_.AddForVar(index, op, slot, name, "shape_contradiction",
                        fmt::format("the value written to the persistable var {} {}", Quote(name),
                                    DescribeMismatch(var->meta(), *inferred)));
  }

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  const bool infer_shapes_;
  Problems& problems_;
  std::vector<VerifyProblem> scratch_;
  const std::unordered_set<int> branches_;
  std::unordered_set<std::string_view> unknown_types_;
  int block_ = 0;
};

void CheckInnerGradients(const ProgramDesc& program, const OpRegistry& ops, Problems& problems) {
  for (const MissedPath& path : FindMissedPaths(program, ops)) {
    const BlockDesc& block = *path.runner->block();
    problems.SetBlock(block.idx());
    VerifyProblem* p = problems.Add(
        static_cast<int>(block.IndexOf(*path.runner)), path.runner, "inner_gradient",
        fmt::format("a gradient that was taken inside leaves out the path through {}, which "
                    "other runs of the block or this op make; put {} into stop_gradients for "
                    "the gradient of one run",
                    Quote(path.name), Quote(path.name)));
    if (p) p->var = BriefName(path.name);
  }
}

}  // namespace

std::string VerifyProblem::ToString() const {
  std::string where = fmt::format("block {}", block);
  if (op >= 0) where += fmt::format(" op {} ({})", op, op_type);
  if (!slot.empty()) where += fmt::format(" slot {}", slot);
  return fmt::format("{}: {}", where, message);
}

std::vector<VerifyProblem> Verify(const ProgramDesc& program, const OpRegistry& ops,
                                  const VerifyOptions& options) {
  Problems problems(options.max_problems);
  if (program.NumBlocks() == 0) {
    problems.Add(-1, nullptr, "no_block", "the program has no block");
    return problems.Release();
  }
  if (!CheckBlocks(program, problems) || !CheckExpansion(program, ops, problems) ||
      options.blocks_only)
    return problems.Release();
  OpVerifier verifier(program, ops, options.infer_shapes, problems);
  for (int b = 0; b < program.NumBlocks(); ++b) {
    for (size_t i = 0; i < program.Block(b).NumVars(); ++i)
      CheckVar(b, program.Block(b).var(i), problems);
    verifier.Run(program.Block(b));
  }
  CheckInnerGradients(program, ops, problems);
  return problems.Release();
}

void VerifyOrThrow(const ProgramDesc& program, const OpRegistry& ops,
                   const VerifyOptions& options) {
  std::vector<VerifyProblem> errors = Verify(program, ops, options);
  std::erase_if(errors, [](const VerifyProblem& p) { return p.severity != Severity::kError; });
  if (errors.empty()) return;
  std::string message = errors.front().ToString();
  if (errors.size() > 1) message += " (" + AndMore(errors.size() - 1) + ")";
  std::string details = errors.front().details;
  for (size_t i = 1; i < errors.size() && i < 20; ++i) {
    if (!details.empty()) details += "\n";
    details += "  " + errors[i].ToString();
  }
  throw Error(ErrorCode::kInvalidArgument, std::move(message), std::move(details));
}

}  // namespace coracle
