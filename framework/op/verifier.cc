#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/inner_gradient.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/refused_ops.h>
#include <coracle/framework/op/run_rules.h>
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

// The types of variables at one point of a block: as inferred so far, else as declared.
class FlowTable : public MetaTable {
 public:
  explicit FlowTable(const BlockDesc& block) : block_(block) { flow_.reserve(block.NumVars()); }
  const VarMeta* Find(const std::string& name) const override {
    auto it = flow_.find(name);
    if (it != flow_.end()) return &it->second;
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override {
    flow_.insert_or_assign(std::string_view(name), meta);  // the name lives in the program
  }

 private:
  const BlockDesc& block_;
  std::unordered_map<std::string_view, VarMeta> flow_;
};

class Verifier {
 public:
  Verifier(const ProgramDesc& program, const OpRegistry& ops, const VerifyOptions& options)
      : program_(program), ops_(ops), options_(options) {}

  std::vector<VerifyProblem> Run() {
    if (program_.NumBlocks() == 0) {
      Add(-1, nullptr, "no_block", "the program has no block");
      return std::move(problems_);
    }
    if (CheckBlocks() && CheckExpansion() && !options_.blocks_only) {
      for (int b = 0; b < program_.NumBlocks(); ++b) {
        for (size_t i = 0; i < program_.Block(b).NumVars(); ++i)
          CheckVar(b, program_.Block(b).var(i));
        CheckOps(program_.Block(b));
      }
      CheckInnerGradients();
    }
    for (Severity severity : {Severity::kNote, Severity::kError}) {
      size_t dropped = severity == Severity::kError ? dropped_ : dropped_notes_;
      if (dropped == 0) continue;
      problems_.push_back({severity, "more", AndMore(dropped), "", current_block_, -1, "", "", ""});
    }
    return std::move(problems_);
  }

 private:
  bool Full() const { return errors_ >= options_.max_problems; }

  // The place of an op in the given program.
  OpOrigin PlaceOf(int index, const OpDesc* op) const {
    const std::vector<OpOrigin> origins = op ? TrustedOriginsOf(*op) : std::vector<OpOrigin>();
    return origins.empty() ? OpOrigin{current_block_, index} : origins.front();
  }

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

  void Report(VerifyProblem problem) {
    bool error = problem.severity == Severity::kError;
    size_t& count = error ? errors_ : notes_;
    if (count >= options_.max_problems) {
      ++(error ? dropped_ : dropped_notes_);
      return;
    }
    ++count;
    problems_.push_back(std::move(problem));
  }

  // Checks the indices of blocks and parents; returns false if look-ups would be unsafe.
  bool CheckBlocks() {
    size_t before = errors_;
    int n = program_.NumBlocks();
    for (int b = 0; b < n; ++b) {
      const BlockDesc& block = program_.Block(b);
      current_block_ = b;
      if (block.idx() != b) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} says that its index is {}", b, block.idx()));
      }
      int parent = block.parent_idx();
      if (b == 0 ? parent != -1 : (parent < 0 || parent >= n)) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} has the parent {}, which is not a block", b, parent));
      } else if (b > 0 && parent >= b) {
        Add(-1, nullptr, "block_cycle",
            fmt::format("block {} has the parent {}, which does not come before it", b, parent));
      }
      int forward = block.forward_block_idx();
      if (forward < -1 || forward >= n || forward == b) {
        Add(-1, nullptr, "block_index",
            fmt::format("block {} has the forward block {}, which is not another block", b,
                        forward));
      }
    }
    for (int b = 0; b < n; ++b) {
      current_block_ = b;
      if (Full() || SeesFewBlocks(program_.Block(b))) continue;
      Add(-1, nullptr, "block_depth",
          fmt::format("more than {} blocks enclose block {}", kMaxBlocksAround, b));
    }
    current_block_ = 0;
    return errors_ == before;
  }

  // A look-up of a name may visit all blocks reachable through parents and forward blocks, so their
  // number is limited.
  static bool SeesFewBlocks(const BlockDesc& start) {
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

  // The blocks ordered so that each follows the blocks that its ops run; empty, with a report, if
  // the blocks run each other in a cycle. (A function may be at any index; other sub-blocks come
  // after the block that runs them.)
  std::vector<int> InnermostFirst() {
    const int n = program_.NumBlocks();
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
        ForEachRun(b, [&](int inner) {
          if (states[static_cast<size_t>(inner)] == 1) circle = inner;
          if (states[static_cast<size_t>(inner)] == 0) stack.push_back(inner);
        });
        if (circle >= 0) {
          Add(-1, nullptr, "block_cycle",
              fmt::format("the function of block {} calls itself, over block {}", circle, b));
          return {};
        }
      }
    }
    return order;
  }

  // Calls f for each block that the block's ops run; invalid references are reported later.
  template <class F>
  void ForEachRun(int b, const F& f) {
    program_.Block(b).ForEachOp([&](const OpDesc& op) {
      for (int inner : op.SubBlocks()) {
        if (inner >= FirstRunBy(op, b) && inner < program_.NumBlocks()) f(inner);
      }
    });
  }

  // A function is replaced by its ops before a program runs, and may precede its callers.
  bool IsCall(const OpDesc& op) const {
    const OpSpec* spec = ops_.Find(op.type());
    return spec && spec->block.runs == BlockRuns::kFunction;
  }
  int FirstRunBy(const OpDesc& op, int block) const { return IsCall(op) ? 1 : block + 1; }

  // Limits the number of ops after expansion. Each op that runs a sub-block counts as the ops in
  // it, and several ops may run the same sub-block, so a small program could expand to any number
  // of ops.
  bool CheckExpansion() {
    if (program_.NumBlocks() == 1) return true;
    size_t n = static_cast<size_t>(program_.NumBlocks());
    std::vector<uint64_t> expanded(n, 0);
    uint64_t total = 0, limit = kMaxExpansion;
    const std::vector<int> order = InnermostFirst();
    if (order.empty()) return false;
    for (int b : order) {
      uint64_t& size = expanded[static_cast<size_t>(b)];
      total += program_.Block(b).NumOps();
      size += program_.Block(b).NumOps();
      ForEachRun(b, [&](int inner) {
        size = std::min(size + expanded[static_cast<size_t>(inner)], UINT64_MAX / 2);
      });
    }
    limit = std::max(limit, 4 * total);
    if (*std::max_element(expanded.begin(), expanded.end()) <= limit) return true;
    Add(-1, nullptr, "block_expansion",
        fmt::format("the sub-blocks, each counted as often as it is run, hold more than {} ops",
                    limit));
    return false;
  }

  void CheckVar(int block, const VarDesc& var) {
    current_block_ = block;
    bool tensor = var.type() == VarType::kLoDTensor || var.type() == VarType::kSelectedRows ||
                  var.type() == VarType::kLoDTensorArray;
    if (tensor && !IsValid(var.dtype())) {
      if (VerifyProblem* p =
              Add(-1, nullptr, "var_dtype",
                  fmt::format("var {} has elements of the type {}, which Coracle lacks",
                              Quote(var.name()), static_cast<int>(var.dtype())))) {
        p->var = BriefName(var.name());
      }
    }
    for (int64_t dim : var.shape()) {
      if (dim < -1) {
        if (VerifyProblem* p = Add(
                -1, nullptr, "var_shape",
                fmt::format("var {} has the shape {}; a dimension is -1 (unknown) or not negative",
                            Quote(var.name()), var.shape().ToString()))) {
          p->var = BriefName(var.name());
        }
        return;
      }
    }
    if (var.shape().HasTooManyElements()) {
      if (VerifyProblem* p = Add(-1, nullptr, "var_shape",
                                 fmt::format("var {} with the shape {} is too large for any memory",
                                             Quote(var.name()), var.shape().ToString()))) {
        p->var = BriefName(var.name());
      }
    }
  }

  void CheckOps(const BlockDesc& block) {
    current_block_ = block.idx();
    FlowTable flow(block);
    const FirstWrites first_writes = FindFirstWrites(block);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      size_t before = errors_ + dropped_;
      CheckSubBlocks(op, static_cast<int>(i));
      CheckNames(block, op, static_cast<int>(i), first_writes);
      const OpSpec* def = ops_.Find(op.type());
      if (!def) {
        Add(static_cast<int>(i), &op, "unknown_op", DescribeUnknown(op.type()));
        continue;
      }
      const OpOrigin place = PlaceOf(static_cast<int>(i), &op);
      CheckOp(*def, op, place.block, place.op, &scratch_);
      for (VerifyProblem& p : scratch_) Report(std::move(p));
      scratch_.clear();
      bool clean = errors_ + dropped_ == before;
      if (clean && options_.infer_shapes) InferShapes(*def, op, static_cast<int>(i), flow);
    }
  }

  void CheckSubBlocks(const OpDesc& op, int index) {
    for (int inner : op.SubBlocks()) {
      const bool runnable = inner >= FirstRunBy(op, current_block_) && inner != current_block_ &&
                            inner < program_.NumBlocks();
      if (runnable) continue;
      Add(index, &op, "block_index",
          fmt::format("names the sub-block {}, which is not {} block {}", inner,
                      IsCall(op) ? "a function that may be called from" : "a block after",
                      current_block_));
    }
  }

  void CheckInnerGradients() {
    for (const MissedPath& path : FindMissedPaths(program_, ops_)) {
      const BlockDesc& block = *path.runner->block();
      current_block_ = block.idx();
      VerifyProblem* p =
          Add(static_cast<int>(block.IndexOf(*path.runner)), path.runner, "inner_gradient",
              fmt::format("a gradient that was taken inside leaves out the path through {}, which "
                          "other runs of the block or this op make; put {} into stop_gradients for "
                          "the gradient of one run",
                          Quote(path.name), Quote(path.name)));
      if (p) p->var = BriefName(path.name);
    }
  }

  // Suggests another type once per unknown type, up to a limit.
  std::string DescribeUnknown(const std::string& type) {
    const bool proposes =
        unknown_types_.size() < kMaxTypeHints && unknown_types_.insert(type).second;
    return DescribeMissingOp(type, proposes ? ops_.Types() : std::vector<std::string>());
  }

  struct FirstWrite {
    size_t op = 0;
    bool reads_too = false;  // also updates in place a value that was fed or defined outside
  };
  using FirstWrites = std::unordered_map<std::string_view, FirstWrite>;

  static FirstWrites FindFirstWrites(const BlockDesc& block) {
    FirstWrites writes;
    writes.reserve(block.NumOps());
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      op.ForEachOutput([&](const std::string& name) {
        writes.emplace(name, FirstWrite{i, false});
      });
      op.ForEachInput([&](const std::string& name) {
        auto write = writes.find(name);
        if (write != writes.end() && write->second.op == i) write->second.reads_too = true;
      });
    }
    return writes;
  }

  void CheckNames(const BlockDesc& block, const OpDesc& op, int index,
                  const FirstWrites& first_writes) {
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = block.FindVarRecursive(name);
      if (!var)
        AddForVar(index, op, slot, name, "undefined_var", "reads");
      else if (block.idx() == 0 && !var->persistable())
        CheckOrder(op, index, slot, name, first_writes);
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (!block.FindVarRecursive(name))
        AddForVar(index, op, slot, name, "undefined_var", "writes");
    });
    if (!op.HasSubBlock()) CheckWrittenOnce(op, index);
  }

  // Kernels find outputs by name, so two outputs with one name would share one value and one type.
  void CheckWrittenOnce(const OpDesc& op, int index) {
    if (op.outputs().size() == 1 && op.outputs()[0].args.size() == 1) return;
    std::unordered_map<std::string_view, std::string_view> written;  // the slot of a variable
    op.AnyOutput([&](const std::string& name, const std::string& slot) {
      const auto [it, added] = written.try_emplace(name, slot);
      if (added) return false;
      VerifyProblem* p =
          Add(index, &op, "written_twice",
              fmt::format("writes the var {} in output {} and again in output {}; give each "
                          "a var of its own",
                          Quote(name), BriefName(it->second), BriefName(slot)));
      if (!p) return true;  // enough problems are reported
      p->slot = BriefName(slot);
      p->var = BriefName(name);
      return false;
    });
  }

  void AddForVar(int index, const OpDesc& op, const std::string& slot, const std::string& name,
                 const char* rule, const char* verb) {
    VerifyProblem* p = Add(
        index, &op, rule, fmt::format("{} the var {}, which no block declares", verb, Quote(name)));
    if (!p) return;
    p->slot = BriefName(slot);
    p->var = BriefName(name);
  }

  // Reports a read of a variable that the block writes only later. (Persistable values and
  // sub-blocks, which may be loops, may read the result of a later op.)
  void CheckOrder(const OpDesc& op, int index, const std::string& slot, const std::string& name,
                  const FirstWrites& first_writes) {
    auto write = first_writes.find(name);
    if (write == first_writes.end() || write->second.reads_too ||
        write->second.op < static_cast<size_t>(index))
      return;
    VerifyProblem* p =
        Add(index, &op, "use_before_def",
            fmt::format("reads the var {} before op {} writes it", Quote(name), write->second.op));
    if (!p) return;
    p->slot = BriefName(slot);
    p->var = BriefName(name);
  }

  void InferShapes(const OpSpec& def, const OpDesc& op, int index, FlowTable& flow) {
    try {
      InferContext context(def, op, flow);
      RunInfer(context);
    } catch (const Error& e) {
      const char* rule = e.code() == ErrorCode::kInternal ? "internal" : "shape";
      if (VerifyProblem* p = Add(index, &op, rule, e.message())) p->details = e.details();
      return;
    }
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      CheckAgainstDeclared(op, index, slot, name, flow);
    });
  }

  void CheckAgainstDeclared(const OpDesc& op, int index, const std::string& slot,
                            const std::string& name, const FlowTable& flow) {
    const VarDesc* var = program_.Block(current_block_).FindVarRecursive(name);
    const VarMeta* inferred = flow.Find(name);
    if (!var || !inferred || inferred == &var->meta() || !var->persistable()) return;
    if (var->type() != VarType::kLoDTensor || inferred->type != VarType::kLoDTensor) return;
    if (var->dtype() == inferred->dtype && var->shape().CompatibleWith(inferred->shape)) return;
    if (VerifyProblem* p =
            Add(index, &op, "shape_contradiction",
                fmt::format("the value written to the persistable var {} {}", Quote(name),
                            DescribeMismatch(var->meta(), *inferred)))) {
      p->slot = BriefName(slot);
      p->var = BriefName(name);
    }
  }

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  VerifyOptions options_;
  std::vector<VerifyProblem> problems_, scratch_;
  std::unordered_set<std::string_view> unknown_types_;
  size_t errors_ = 0, notes_ = 0, dropped_ = 0, dropped_notes_ = 0;
  int current_block_ = 0;
};

}  // namespace

std::string VerifyProblem::ToString() const {
  std::string where = fmt::format("block {}", block);
  if (op >= 0) where += fmt::format(" op {} ({})", op, op_type);
  if (!slot.empty()) where += fmt::format(" slot {}", slot);
  return fmt::format("{}: {}", where, message);
}

std::vector<VerifyProblem> Verify(const ProgramDesc& program, const OpRegistry& ops,
                                  const VerifyOptions& options) {
  return Verifier(program, ops, options).Run();
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
