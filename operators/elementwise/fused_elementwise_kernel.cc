#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/elementwise/fused_pieces.h>
#include <coracle/operators/elementwise/fused_tape.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

// The size of a piece of X and Out. It is small, so that reading the next piece, arithmetic and
// writing the previous one overlap; if it were much smaller, the calls of the kernels would
// be noticeable.
constexpr int64_t kPieceBytes = 8 << 10;
constexpr int64_t kFewestElements = 512, kMostElements = 4096;
// The shortest run for which setting up a tape pays.
constexpr int64_t kShortestRun = 256;

// A fused_elementwise to be prepared, and its plan.
struct GroupScene {
  GroupScene(const PrepareContext& prepare, const OpRegistry& ops, KernelMode kernel_mode)
      : context(prepare),
        group(FusedGroupOf(context.op(), context.spec(), ops)),
        mode(kernel_mode),
        vars(context, group) {}

  size_t NumOps() const { return group.block->NumOps(); }
  const OpDesc& Op(size_t i) const { return group.block->op(i); }
  const OpSpec& SpecOf(const OpDesc& op) const { return group.ops->Get(op.type()); }

  const PrepareContext& context;
  const FusedGroup group;
  const KernelMode mode;
  const std::shared_ptr<FusedPlan> shared = std::make_shared<FusedPlan>();
  FusedPlan& plan = *shared;
  FusedVars vars;
};

// The memory of values that are not tensors of the op.
struct SlotMemory {
  std::vector<std::array<int64_t, 2>> slots;  // offset, bytes
  int64_t bytes = 0;
};

// Cuts the group into pieces. False if it cannot be cut, or need not be.
bool CutGroup(const FusedGroup& group, FusedVars& vars, FusedPlan& plan) {
  int64_t bytes = 0, most = 0;
  for (const FusedVar& var : vars.list) {
    most = std::max(most, var.meta.shape.numel());
    if (var.argument >= 0 || var.result >= 0) bytes += static_cast<int64_t>(SizeOf(var.meta.dtype));
  }
  const int64_t elements = std::clamp(kPieceBytes / std::max<int64_t>(bytes, 1) / 256 * 256,
                                      kFewestElements, kMostElements);
  FusedCut& cut = plan.cut;
  if (most <= kMostElements || !FindCut(group, elements, vars.list, &cut)) return false;
  plan.parts = std::clamp<int64_t>(std::min<int64_t>(NumThreads(), cut.pieces()), 1,
                                   1 + cut.shape.numel() / kFusedGrain);
  plan.steps.resize(vars.size());
  for (size_t v = 0; v < vars.size(); ++v) {
    for (int d = 0; d <= cut.dim; ++d) {
      plan.steps[v][static_cast<size_t>(d)] =
          cut.StepOf(vars[v], d) * static_cast<int64_t>(ByteSize(vars[v].meta.dtype, Shape{1}));
    }
    if (vars[v].argument >= 0 && plan.steps[v][static_cast<size_t>(cut.dim)] != 0 &&
        plan.inputs[static_cast<size_t>(vars[v].argument)].nbytes() >= kReadAhead)
      plan.ahead.push_back(v);
  }
  return true;
}

// Gives each variable a place: a tensor of the op, or a slot of memory.
class Placer {
 public:
  explicit Placer(GroupScene& scene) : scene_(scene) {}

  SlotMemory Run() {
    for (size_t v = 0; v < scene_.vars.size(); ++v) {
      if (scene_.vars[v].argument >= 0)
        scene_.plan.places[v].outer =
            scene_.plan.inputs[static_cast<size_t>(scene_.vars[v].argument)];
    }
    overwritten_.assign(scene_.vars.size(), false);
    FreeSlots free;
    for (size_t t = 0; t < scene_.NumOps(); ++t) {
      scene_.Op(t).ForEachOutput(
          [&](const std::string& name) { PlaceOutput(scene_.vars.IndexOf(name), t, free); });
      for (size_t v = 0; v < scene_.vars.size(); ++v) {
        if (scene_.vars.last_use[v] == t && IsTemporary(v) && !overwritten_[v] &&
            scene_.plan.places[v].offset >= 0)
          free[PieceBytes(v)].push_back(scene_.plan.places[v].offset);
      }
    }
    return std::move(memory_);
  }

 private:
  // The free slots of memory, by their sizes in bytes.
  using FreeSlots = std::unordered_map<int64_t, std::vector<int64_t>>;

  // Bytes of a variable's part of a full piece, or of the whole variable if the group is not cut.
  int64_t PieceBytes(size_t var) const {
    const FusedVar& v = scene_.vars[var];
    const FusedCut& cut = scene_.plan.cut;
    return static_cast<int64_t>(
        ByteSize(v.meta.dtype, IsCut() ? cut.PieceOf(v, cut.rows) : v.meta.shape));
  }
  bool IsCut() const { return scene_.plan.cut.shape.rank() > 0; }

  bool IsTemporary(size_t v) const {
    return scene_.vars[v].argument < 0 && scene_.vars[v].result < 0;
  }

  void PlaceOutput(size_t v, size_t t, FreeSlots& free) {
    FusedPlace& place = scene_.plan.places[v];
    if (scene_.vars[v].result >= 0) {
      const TensorArg out =
          scene_.context.Output("Out", static_cast<size_t>(scene_.vars[v].result));
      const bool past_caches = out.nbytes() >= kPastCaches && IsCut();
      if (!past_caches && MayWriteDirectly(v, t)) {
        place.outer = out;
        return;
      }
      scene_.plan.flushes.push_back({v, out, past_caches});
    } else if (const int64_t dying = DyingInput(v, t); dying >= 0) {
      place.offset = scene_.plan.places[static_cast<size_t>(dying)].offset;
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
    const int64_t offset = memory_.bytes;
    memory_.slots.push_back({offset, bytes});
    // One more line keeps slots from being a power of two apart.
    memory_.bytes = CheckedAdd(memory_.bytes, LineAligned(bytes) + kFusedLine);
    return offset;
  }

  // Whether variable v occurs exactly once among the inputs of an op.
  bool ReadsOnce(const OpDesc& op, size_t v) const {
    int reads = 0;
    op.ForEachInput([&](const std::string& name) { reads += scene_.vars.IndexOf(name) == v; });
    return reads == 1;
  }
  // Calls f(input, output) for the variables of the op that may share memory.
  template <class F>
  void ForEachPair(const OpDesc& op, F f) const {
    for (const auto& [in, out] : scene_.SpecOf(op).inplace) {
      const auto &ins = op.Input(in), &outs = op.Output(out);
      for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
        if (!IsEmptyName(ins[i]) && !IsEmptyName(outs[i]))
          f(scene_.vars.IndexOf(ins[i]), scene_.vars.IndexOf(outs[i]));
      }
    }
  }

  // A temporary that op t reads last, and may overwrite with v; -1 if there is none.
  int64_t DyingInput(size_t v, size_t t) const {
    int64_t found = -1;
    ForEachPair(scene_.Op(t), [&](size_t in, size_t out) {
      if (found < 0 && out == v && IsTemporary(in) && scene_.vars.last_use[in] == t &&
          !overwritten_[in] && scene_.vars[in].meta.dtype == scene_.vars[v].meta.dtype &&
          scene_.vars[in].meta.shape == scene_.vars[v].meta.shape && ReadsOnce(scene_.Op(t), in))
        found = static_cast<int64_t>(in);
    });
    return found;
  }

  // Out[i] may have the memory of X[i]: then no op may read X[i] after op t has written v; only t
  // itself may, in place.
  bool MayWriteDirectly(size_t v, size_t t) const {
    const auto place = static_cast<size_t>(scene_.vars[v].result);
    if (place >= scene_.group.arguments.size()) return true;
    const size_t x = scene_.vars.IndexOf(scene_.group.arguments[place]);
    if (scene_.vars.last_use[x] < t) return true;
    bool in_place = false;
    ForEachPair(scene_.Op(t), [&](size_t in, size_t out) { in_place |= in == x && out == v; });
    return scene_.vars.last_use[x] == t && in_place && ReadsOnce(scene_.Op(t), x);
  }

  GroupScene& scene_;
  SlotMemory memory_;
  std::vector<bool> overwritten_;  // temporaries whose memory an output reuses
};

// Gives the kernels the args of a piece.
class PieceArgs : public PartArgs {
 public:
  PieceArgs(const GroupScene& scene, int64_t rows, FusedKernels& kernels, int64_t& scratch_bytes)
      : PartArgs(scene.plan.pointers, scratch_bytes, kernels.scratch), scene_(scene), rows_(rows) {}

  TensorArg Read(const std::string& name) override { return Arg(name); }
  TensorArg Write(const std::string& name) override { return Arg(name); }
  const Tensor* Constant(const std::string& name) override {
    const FusedVar& var = scene_.vars[scene_.vars.IndexOf(name)];
    const bool whole = var.argument >= 0 && var.first_dim < 0 && !scene_.plan.cut.flat;
    return whole ? scene_.context.Constant("X", static_cast<size_t>(var.argument)) : nullptr;
  }

 private:
  TensorArg Arg(const std::string& name) const {
    const size_t v = scene_.vars.IndexOf(name);
    const FusedVar& var = scene_.vars[v];
    const Shape shape = scene_.plan.cut.PieceOf(var, rows_);
    return {static_cast<int32_t>(v), var.meta.dtype, shape, shape.numel()};
  }
  const GroupScene& scene_;
  int64_t rows_;
};

// Gives the kernels the op's own tensors, and scratch memory for intermediate results.
class WholeArgs : public GroupArgs {
 public:
  WholeArgs(const GroupScene& scene, const SlotMemory& memory) : scene_(scene) {
    for (const auto& [offset, bytes] : memory.slots)
      slots_[offset] = scene.context.Scratch(DType::kUInt8, {std::max<int64_t>(bytes, 1)});
  }
  TensorArg Read(const std::string& name) override { return Arg(scene_.vars.IndexOf(name)); }
  TensorArg Write(const std::string& name) override { return Arg(scene_.vars.IndexOf(name)); }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    return scene_.context.Scratch(dtype, shape);
  }
  const Tensor* Constant(const std::string& name) override {
    const int argument = scene_.vars[scene_.vars.IndexOf(name)].argument;
    return argument < 0 ? nullptr : scene_.context.Constant("X", static_cast<size_t>(argument));
  }

  TensorArg Arg(size_t v) const {
    const FusedPlace& place = scene_.plan.places[v];
    if (place.offset < 0) return place.outer;
    const VarMeta& meta = scene_.vars[v].meta;
    return {slots_.at(place.offset).index, meta.dtype, meta.shape, meta.shape.numel()};
  }

 private:
  const GroupScene& scene_;
  std::unordered_map<int64_t, TensorArg> slots_;
};

// Runs the ops one after the other.
Kernel WholeKernel(const GroupScene& scene, const SlotMemory& memory) {
  struct Copy {
    TensorArg from, to;
  };
  struct Ops {
    std::vector<Kernel> kernels;
    std::vector<Copy> copies;
  };
  auto ops = std::make_shared<Ops>();
  WholeArgs args(scene, memory);
  scene.group.block->ForEachOp([&](const OpDesc& op) {
    ops->kernels.push_back(PrepareKernel(PrepareContext(scene.SpecOf(op), op, args), scene.mode));
  });
  for (const FusedFlush& flush : scene.plan.flushes)
    ops->copies.push_back({args.Arg(flush.var), flush.to});
  return [ops = std::shared_ptr<const Ops>(ops)](Workspace& ws) {
    for (const Kernel& kernel : ops->kernels) kernel(ws);
    for (const auto& [from, to] : ops->copies) {
      if (to.numel > 0)
        std::memcpy(ws.Data<char>(to), ws.Data<char>(from), static_cast<size_t>(to.nbytes()));
    }
  };
}

// Prepares the kernels for pieces of `rows` rows along the cut dim.
void PreparePiece(GroupScene& scene, int64_t rows, FusedKernels& kernels, int64_t& scratch_bytes) {
  PieceArgs args(scene, rows, kernels, scratch_bytes);
  scene.group.block->ForEachOp([&](const OpDesc& op) {
    args.BeginOp();
    kernels.ops.push_back(PrepareKernel(PrepareContext(scene.SpecOf(op), op, args), scene.mode));
  });
  for (const FusedFlush& flush : scene.plan.flushes) {
    const FusedVar& var = scene.vars[flush.var];
    kernels.flush_bytes.push_back(
        static_cast<int64_t>(ByteSize(var.meta.dtype, scene.plan.cut.PieceOf(var, rows))));
  }
  for (const size_t v : scene.plan.ahead) {
    const auto bytes = static_cast<int64_t>(
        ByteSize(scene.vars[v].meta.dtype, scene.plan.cut.PieceOf(scene.vars[v], rows)));
    const auto ops = static_cast<int64_t>(scene.NumOps());
    kernels.ahead.push_back({bytes, LineAligned((bytes + ops - 1) / ops)});
  }
}

// Runs the ops in registers; returns an empty Kernel if that is not possible.
Kernel MakeTapeKernel(GroupScene& scene, int64_t& scratch_bytes) {
  FusedCut cut = scene.plan.cut;
  const bool in_runs = CutIntoRuns(scene.group, kShortestRun, scene.vars.list, &cut);
  FusedKernels kernels;
  if (in_runs) {
    std::swap(scene.plan.cut, cut);
    PreparePiece(scene, 1, kernels, scratch_bytes);
    std::swap(scene.plan.cut, cut);
  } else {
    kernels.ops = scene.plan.kernels[0].ops;
  }
  const FusedRuns runs(scene.vars, in_runs ? &cut : nullptr);
  std::optional<FusedTape> tape = MakeTape(scene.vars, runs, kernels.ops);
  return tape ? TapeKernel(scene.context, scene.vars, runs, std::move(*tape)) : Kernel();
}

}  // namespace

Kernel PrepareFused(const PrepareContext& context, const OpRegistry& ops, KernelMode mode) {
  GroupScene scene(context, ops, mode);
  FusedPlan& plan = scene.plan;
  plan.inputs = scene.vars.inputs;
  plan.places.resize(scene.vars.size());
  const bool cut = CutGroup(scene.group, scene.vars, plan);
  if (!cut) plan.cut = FusedCut();
  const SlotMemory memory = Placer(scene).Run();
  if (!cut) return WholeKernel(scene, memory);
  int64_t scratch_bytes = 0;
  plan.pointers = scene.vars.size();
  PreparePiece(scene, plan.cut.last_rows(), plan.kernels[0], scratch_bytes);
  if (plan.cut.chunks > 1) PreparePiece(scene, plan.cut.rows, plan.kernels[1], scratch_bytes);
  if (Kernel tape = MakeTapeKernel(scene, scratch_bytes)) return tape;
  return RunInParts(context, scene.shared, plan.pointers + plan.ahead.size(), memory.bytes,
                    scratch_bytes, RunFusedPart);
}

}  // namespace coracle::inline internal
