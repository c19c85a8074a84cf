#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel_choice.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/elementwise/fused_pieces.h>
#include <coracle/operators/elementwise/fused_tape.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

namespace coracle {
namespace {

// The size of a piece of X and Out. It is small, so that reading the next piece, arithmetic and
// writing the previous one overlap; if it were much smaller, the calls of the kernels would
// be noticeable.
constexpr int64_t kPieceBytes = 8 << 10;
constexpr int64_t kFewestElements = 512, kMostElements = 4096;
// The shortest run for which setting up a tape pays.
constexpr int64_t kShortestRun = 256;

class GroupPlanner {
 public:
  GroupPlanner(const PrepareContext& context, const OpRegistry& ops, KernelMode mode)
      : context_(context),
        group_(FusedGroupOf(context.op(), context.spec(), ops)),
        mode_(mode),
        vars_(context, group_) {}

  Kernel Plan() {
    plan_->inputs = vars_.inputs;
    plan_->places.resize(vars_.size());
    const bool cut = Cut();
    if (!cut) plan_->cut = FusedCut();
    PlaceVars();
    if (!cut) return Whole();
    PrepareOps();
    if (Kernel tape = Tape()) return tape;
    return RunInParts(context_, plan_, plan_->pointers + plan_->ahead.size(), slot_bytes_,
                      scratch_bytes_, RunFusedPart);
  }

 private:
  // The free slots of memory, by their sizes in bytes.
  using FreeSlots = std::unordered_map<int64_t, std::vector<int64_t>>;

  size_t NumOps() const { return group_.block->NumOps(); }
  const OpDesc& Op(size_t i) const { return group_.block->op(i); }
  const OpSpec& SpecOf(const OpDesc& op) const { return group_.ops->Get(op.type()); }
  size_t IndexOf(const std::string& name) const { return vars_.IndexOf(name); }

  // False if the group cannot be cut, or need not be.
  bool Cut() {
    int64_t bytes = 0, most = 0;
    for (const FusedVar& var : vars_.list) {
      most = std::max(most, var.meta.shape.numel());
      if (var.argument >= 0 || var.result >= 0)
        bytes += static_cast<int64_t>(SizeOf(var.meta.dtype));
    }
    const int64_t elements = std::clamp(kPieceBytes / std::max<int64_t>(bytes, 1) / 256 * 256,
                                        kFewestElements, kMostElements);
    FusedCut& cut = plan_->cut;
    if (most <= kMostElements || !FindCut(group_, elements, vars_.list, &cut)) return false;
    plan_->parts = std::clamp<int64_t>(std::min<int64_t>(NumThreads(), cut.pieces()), 1,
                                       1 + cut.shape.numel() / kFusedGrain);
    plan_->steps.resize(vars_.size());
    for (size_t v = 0; v < vars_.size(); ++v) {
      for (int d = 0; d <= cut.dim; ++d) {
        plan_->steps[v][static_cast<size_t>(d)] =
            cut.StepOf(vars_[v], d) * static_cast<int64_t>(ByteSize(vars_[v].meta.dtype, Shape{1}));
      }
      if (vars_[v].argument >= 0 && plan_->steps[v][static_cast<size_t>(cut.dim)] != 0 &&
          plan_->inputs[static_cast<size_t>(vars_[v].argument)].nbytes() >= kReadAhead)
        plan_->ahead.push_back(v);
    }
    return true;
  }

  // --- memory of variables ---

  // Bytes of a variable's part of a full piece, or of the whole variable if the group is not cut.
  int64_t PieceBytes(size_t var) const {
    const FusedVar& v = vars_[var];
    const FusedCut& cut = plan_->cut;
    return static_cast<int64_t>(
        ByteSize(v.meta.dtype, IsCut() ? cut.PieceOf(v, cut.rows) : v.meta.shape));
  }
  bool IsCut() const { return plan_->cut.shape.rank() > 0; }

  void PlaceVars() {
    for (size_t v = 0; v < vars_.size(); ++v) {
      if (vars_[v].argument >= 0)
        plan_->places[v].outer = plan_->inputs[static_cast<size_t>(vars_[v].argument)];
    }
    overwritten_.assign(vars_.size(), false);
    FreeSlots free;
    for (size_t t = 0; t < NumOps(); ++t) {
      Op(t).ForEachOutput([&](const std::string& name) { PlaceOutput(IndexOf(name), t, free); });
      for (size_t v = 0; v < vars_.size(); ++v) {
        if (vars_.last_use[v] == t && IsTemporary(v) && !overwritten_[v] &&
            plan_->places[v].offset >= 0)
          free[PieceBytes(v)].push_back(plan_->places[v].offset);
      }
    }
  }
  bool IsTemporary(size_t v) const { return vars_[v].argument < 0 && vars_[v].result < 0; }

  void PlaceOutput(size_t v, size_t t, FreeSlots& free) {
    FusedPlace& place = plan_->places[v];
    if (vars_[v].result >= 0) {
      const TensorArg out = context_.Output("Out", static_cast<size_t>(vars_[v].result));
      const bool past_caches = out.nbytes() >= kPastCaches && IsCut();
      if (!past_caches && MayWriteDirectly(v, t)) {
        place.outer = out;
        return;
      }
      plan_->flushes.push_back({v, out, past_caches});
    } else if (const int64_t dying = DyingInput(v, t); dying >= 0) {
      place.offset = plan_->places[static_cast<size_t>(dying)].offset;
      overwritten_[static_cast<size_t>(dying)] = true;
      return;
    }
    std::vector<int64_t>& slots = free[PieceBytes(v)];
    if (slots.empty()) {
      place.offset = NewMemory(PieceBytes(v));
    } else {
      place.offset = slots.back();
      slots.pop_back();
    }
  }
  int64_t NewMemory(int64_t bytes) {
    const int64_t offset = slot_bytes_;
    slots_.push_back({offset, bytes});
    // One more line keeps slots from being a power of two apart.
    slot_bytes_ = CheckedAdd(slot_bytes_, LineAligned(bytes) + kFusedLine);
    return offset;
  }

  // Whether variable v occurs exactly once among the inputs of an op.
  bool ReadsOnce(const OpDesc& op, size_t v) const {
    int reads = 0;
    op.ForEachInput([&](const std::string& name) { reads += IndexOf(name) == v; });
    return reads == 1;
  }
  // Calls f(input, output) for the variables of the op that may share memory.
  template <class F>
  void ForEachPair(const OpDesc& op, F f) const {
    for (const auto& [in, out] : SpecOf(op).inplace) {
      const auto &ins = op.Input(in), &outs = op.Output(out);
      for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
        if (!IsEmptyName(ins[i]) && !IsEmptyName(outs[i])) f(IndexOf(ins[i]), IndexOf(outs[i]));
      }
    }
  }

  // A temporary that op t reads last, and may overwrite with v; -1 if there is none.
  int64_t DyingInput(size_t v, size_t t) const {
    int64_t found = -1;
    ForEachPair(Op(t), [&](size_t in, size_t out) {
      if (found < 0 && out == v && IsTemporary(in) && vars_.last_use[in] == t &&
          !overwritten_[in] && vars_[in].meta.dtype == vars_[v].meta.dtype &&
          vars_[in].meta.shape == vars_[v].meta.shape && ReadsOnce(Op(t), in))
        found = static_cast<int64_t>(in);
    });
    return found;
  }

  // Out[i] may have the memory of X[i]: then no op may read X[i] after op t has written v; only t
  // itself may, in place.
  bool MayWriteDirectly(size_t v, size_t t) const {
    const auto place = static_cast<size_t>(vars_[v].result);
    if (place >= group_.arguments.size()) return true;
    const size_t x = IndexOf(group_.arguments[place]);
    if (vars_.last_use[x] < t) return true;
    bool in_place = false;
    ForEachPair(Op(t), [&](size_t in, size_t out) { in_place |= in == x && out == v; });
    return vars_.last_use[x] == t && in_place && ReadsOnce(Op(t), x);
  }

  // --- kernels ---

  // Gives the kernels the args of a piece.
  class PieceArgs : public PartArgs {
   public:
    PieceArgs(GroupPlanner& planner, int64_t rows, FusedKernels& kernels)
        : PartArgs(planner.plan_->pointers, planner.scratch_bytes_, kernels.scratch),
          planner_(planner),
          rows_(rows) {}

    TensorArg Read(const std::string& name) override { return Arg(name); }
    TensorArg Write(const std::string& name) override { return Arg(name); }
    const Tensor* Constant(const std::string& name) override {
      const FusedVar& var = planner_.vars_[planner_.IndexOf(name)];
      const bool whole = var.argument >= 0 && var.first_dim < 0 && !planner_.plan_->cut.flat;
      return whole ? planner_.context_.Constant("X", static_cast<size_t>(var.argument)) : nullptr;
    }

   private:
    TensorArg Arg(const std::string& name) const {
      const size_t v = planner_.IndexOf(name);
      const FusedVar& var = planner_.vars_[v];
      const Shape shape = planner_.plan_->cut.PieceOf(var, rows_);
      return {static_cast<int32_t>(v), var.meta.dtype, shape, shape.numel()};
    }
    GroupPlanner& planner_;
    int64_t rows_;
  };

  // Gives the kernels the op's own tensors, and scratch memory for intermediate results.
  class WholeArgs : public GroupArgs {
   public:
    explicit WholeArgs(GroupPlanner& planner) : planner_(planner) {
      for (const auto& [offset, bytes] : planner.slots_)
        slots_[offset] = planner.context_.Scratch(DType::kUInt8, {std::max<int64_t>(bytes, 1)});
    }
    TensorArg Read(const std::string& name) override { return Arg(planner_.IndexOf(name)); }
    TensorArg Write(const std::string& name) override { return Arg(planner_.IndexOf(name)); }
    TensorArg Scratch(DType dtype, const Shape& shape) override {
      return planner_.context_.Scratch(dtype, shape);
    }
    const Tensor* Constant(const std::string& name) override {
      const int argument = planner_.vars_[planner_.IndexOf(name)].argument;
      return argument < 0 ? nullptr
                          : planner_.context_.Constant("X", static_cast<size_t>(argument));
    }

    TensorArg Arg(size_t v) const {
      const FusedPlace& place = planner_.plan_->places[v];
      if (place.offset < 0) return place.outer;
      const VarMeta& meta = planner_.vars_[v].meta;
      return {slots_.at(place.offset).index, meta.dtype, meta.shape, meta.shape.numel()};
    }

   private:
    GroupPlanner& planner_;
    std::unordered_map<int64_t, TensorArg> slots_;
  };

  // Runs the ops one after the other.
  Kernel Whole() {
    struct Copy {
      TensorArg from, to;
    };
    struct Ops {
      std::vector<Kernel> kernels;
      std::vector<Copy> copies;
    };
    auto ops = std::make_shared<Ops>();
    WholeArgs args(*this);
    group_.block->ForEachOp([&](const OpDesc& op) {
      ops->kernels.push_back(PrepareKernel(PrepareContext(SpecOf(op), op, args), mode_));
    });
    for (const FusedFlush& flush : plan_->flushes)
      ops->copies.push_back({args.Arg(flush.var), flush.to});
    return [ops = std::shared_ptr<const Ops>(ops)](Workspace& ws) {
      for (const Kernel& kernel : ops->kernels) kernel(ws);
      for (const auto& [from, to] : ops->copies) {
        if (to.numel > 0)
          std::memcpy(ws.Data<char>(to), ws.Data<char>(from), static_cast<size_t>(to.nbytes()));
      }
    };
  }

  // Runs the ops in registers; returns an empty Kernel if that is not possible.
  Kernel Tape() {
    FusedCut cut = plan_->cut;
    const bool in_runs = CutIntoRuns(group_, kShortestRun, vars_.list, &cut);
    FusedKernels kernels;
    if (in_runs) {
      std::swap(plan_->cut, cut);
      PrepareOps(1, kernels);
      std::swap(plan_->cut, cut);
    } else {
      kernels.ops = plan_->kernels[0].ops;
    }
    const FusedRuns runs(vars_, in_runs ? &cut : nullptr);
    std::optional<FusedTape> tape = MakeTape(vars_, runs, kernels.ops);
    return tape ? TapeKernel(context_, vars_, runs, std::move(*tape)) : Kernel();
  }

  void PrepareOps() {
    plan_->pointers = vars_.size();
    PrepareOps(plan_->cut.last_rows(), plan_->kernels[0]);
    if (plan_->cut.chunks > 1) PrepareOps(plan_->cut.rows, plan_->kernels[1]);
  }
  void PrepareOps(int64_t rows, FusedKernels& kernels) {
    PieceArgs args(*this, rows, kernels);
    group_.block->ForEachOp([&](const OpDesc& op) {
      args.BeginOp();
      kernels.ops.push_back(PrepareKernel(PrepareContext(SpecOf(op), op, args), mode_));
    });
    for (const FusedFlush& flush : plan_->flushes) {
      const FusedVar& var = vars_[flush.var];
      kernels.flush_bytes.push_back(
          static_cast<int64_t>(ByteSize(var.meta.dtype, plan_->cut.PieceOf(var, rows))));
    }
    for (const size_t v : plan_->ahead) {
      const auto bytes =
          static_cast<int64_t>(ByteSize(vars_[v].meta.dtype, plan_->cut.PieceOf(vars_[v], rows)));
      const auto ops = static_cast<int64_t>(NumOps());
      kernels.ahead.push_back({bytes, LineAligned((bytes + ops - 1) / ops)});
    }
  }

  const PrepareContext& context_;
  FusedGroup group_;
  KernelMode mode_;
  std::shared_ptr<FusedPlan> plan_ = std::make_shared<FusedPlan>();
  FusedVars vars_;
  std::vector<bool> overwritten_;              // temporaries whose memory an output reuses
  std::vector<std::array<int64_t, 2>> slots_;  // of memory: offset, bytes
  int64_t slot_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace

Kernel PrepareFused(const PrepareContext& context, const OpRegistry& ops, KernelMode mode) {
  return GroupPlanner(context, ops, mode).Plan();
}

}  // namespace coracle
