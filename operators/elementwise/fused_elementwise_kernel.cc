#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel_choice.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace coracle {
namespace {

// Where tensors are that only one part of the work uses lie at multiples of a cache line.
constexpr int64_t kLine = 64;
// Results of so many bytes are written past the caches: nobody will find them there.
constexpr int64_t kPastCaches = int64_t{8} << 20;
// What a piece of X and Out should take: with what the ops pass to each other it fits into the
// first-level cache.
constexpr int64_t kPieceBytes = 32 << 10;
constexpr int64_t kFewestElements = 1024, kMostElements = 8192;
// Elements that are worth a thread.
constexpr int64_t kGrain = 32768;

int64_t Aligned(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Writes without reading what was there into the caches first.
void CopyPastCaches(const char* from, char* to, int64_t bytes) {
#ifdef __SSE2__
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & (kLine - 1));
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (int64_t k = at; k < at + kLine; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
  }
  from += at, to += at, bytes -= at;
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void EndPastCaches() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// Where a variable of the group is while a piece is computed: in a tensor of the op, or in memory
// of the part of the work.
struct Place {
  TensorArg outer;      // of X or Out
  int64_t offset = -1;  // in the part's memory
};

// A result that is made in the part's memory, and copied to Out at the end of the piece.
struct Flush {
  size_t var = 0;
  TensorArg to;
  bool past_caches = false;
};

// The kernels of the ops for pieces of one size.
struct PieceKernels {
  std::vector<Kernel> ops;
  std::vector<std::array<int64_t, 2>> scratch;  // index of a pointer, offset in the part's memory
  std::vector<int64_t> flush_bytes;             // by FusedPlan::flushes
};

struct FusedPlan {
  FusedCut cut;
  std::vector<Place> places;  // by variable
  std::vector<std::array<int64_t, Shape::kMaxRank>>
      steps;  // in bytes, along the dims up to the cut
  std::vector<Flush> flushes;
  PieceKernels kernels[2];  // of the last piece along the dim that is cut; of the others
  size_t pointers = 0;      // of variables, then of scratch memory
  int64_t parts = 1, part_bytes = 0;
  TensorArg memory;
  std::vector<TensorArg> inputs;
};

// The memory that the kernels of the ops see: a piece of each tensor.
class PieceWorkspace : public Workspace {
 public:
  PieceWorkspace(const Workspace& around, void** pointers) {
    data_ = pointers;
    seed_ = around.seed();
    step_ = around.step();
  }
  VarValue& ValueOf(const TensorArg&) override { Refuse(); }
  const LoD& LodOf(const TensorArg&) override {  // the op passes it on
    static const LoD none;
    return none;
  }
  LoD& OutputLod(const TensorArg&) override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() {
    throw InternalError("an elementwise op asks for more than elements");
  }
};

// Runs the pieces of one part of the work.
class PartRun {
 public:
  PartRun(const FusedPlan& plan, Workspace& ws, int64_t part)
      : plan_(plan),
        outer_(ws),
        base_(ws.Data<char>(plan.memory) + part * plan.part_bytes),
        pointers_(reinterpret_cast<void**>(base_)),
        pieces_(ws, pointers_) {
    for (size_t v = 0; v < plan.places.size(); ++v) {
      const Place& place = plan.places[v];
      pointers_[v] = place.offset >= 0 ? base_ + place.offset : ws.Data<char>(place.outer);
    }
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) RunPiece(piece);
    if (!plan_.flushes.empty()) EndPastCaches();
  }

 private:
  void RunPiece(int64_t piece) {
    const FusedCut& cut = plan_.cut;
    const int64_t chunk = piece % cut.chunks;
    const PieceKernels& kernels = plan_.kernels[chunk + 1 < cut.chunks];
    Locate(piece / cut.chunks, chunk);
    for (const auto& [index, offset] : kernels.scratch) pointers_[index] = base_ + offset;
    for (const Kernel& kernel : kernels.ops) kernel(pieces_);
    for (size_t i = 0; i < plan_.flushes.size(); ++i)
      FlushTo(plan_.flushes[i], kernels.flush_bytes[i]);
  }

  // Points what lies in the op's tensors at the piece.
  void Locate(int64_t outer, int64_t chunk) {
    const FusedCut& cut = plan_.cut;
    index_[cut.dim] = chunk * cut.rows;
    for (int d = cut.dim - 1; d >= 0; --d) {
      index_[d] = outer % cut.shape[d];
      outer /= cut.shape[d];
    }
    for (size_t v = 0; v < plan_.places.size(); ++v) {
      if (plan_.places[v].offset < 0)
        pointers_[v] = outer_.Data<char>(plan_.places[v].outer) + OffsetOf(v);
    }
  }
  int64_t OffsetOf(size_t var) const {
    int64_t offset = 0;
    for (int d = 0; d <= plan_.cut.dim; ++d) offset += index_[d] * plan_.steps[var][d];
    return offset;
  }

  void FlushTo(const Flush& flush, int64_t bytes) {
    const auto* from = static_cast<const char*>(pointers_[flush.var]);
    char* to = outer_.Data<char>(flush.to);
    const bool overwrites =
        std::any_of(plan_.inputs.begin(), plan_.inputs.end(),
                    [&](const TensorArg& x) { return outer_.Data<char>(x) == to; });
    to += OffsetOf(flush.var);
    if (flush.past_caches && !overwrites)
      CopyPastCaches(from, to, bytes);
    else
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  const FusedPlan& plan_;
  Workspace& outer_;
  char* base_;
  void** pointers_;
  PieceWorkspace pieces_;
  std::array<int64_t, Shape::kMaxRank> index_ = {};
};

// --- planning ---

class GroupPlanner {
 public:
  GroupPlanner(const PrepareContext& context, const OpRegistry& ops, KernelMode mode)
      : context_(context), group_(FusedGroupOf(context.op(), context.spec(), ops)), mode_(mode) {}

  Kernel Plan() {
    if (!group_.block) ThrowInvalid("fused_elementwise: there is no block of ops to run");
    FindVars();
    FindLastUses();
    plan_->places.resize(vars_.size());
    Cut();
    PlaceVars();
    PrepareOps();
    return Finish();
  }

 private:
  // The slots of memory by their sizes in bytes, of which those are listed that are free.
  using FreeSlots = std::unordered_map<int64_t, std::vector<int64_t>>;

  size_t NumOps() const { return group_.block->NumOps(); }
  const OpDesc& Op(size_t i) const { return group_.block->op(i); }
  const OpSpec& SpecOf(const OpDesc& op) const { return group_.ops->Get(op.type()); }
  size_t IndexOf(const std::string& name) const { return index_.at(name); }

  void FindVars() {
    GroupTypes types(true, [](const std::string&) { return static_cast<const Tensor*>(nullptr); });
    for (size_t i = 0; i < group_.arguments.size(); ++i) {
      const TensorArg x = context_.Input("X", i);
      plan_->inputs.push_back(x);
      types.Set(group_.arguments[i], {x.type, x.dtype, x.shape, 0});
      AddVar(group_.arguments[i], types, static_cast<int>(i));
    }
    try {
      group_.Infer(types);
    } catch (const NeedsValue& needed) {
      context_.Unsupported("a shape depends on the value of " + needed.var);
    } catch (const NeedsLod&) {
      context_.Unsupported("a shape depends on a LoD");
    }
    group_.block->ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        if (!types.Find(name)) ThrowWithoutShape(op, name);
        AddVar(name, types, -1);
      });
    });
    for (size_t i = 0; i < group_.results.size(); ++i)
      vars_[IndexOf(group_.results[i])].result = static_cast<int>(i);
  }
  void AddVar(const std::string& name, const GroupTypes& types, int argument) {
    index_[name] = vars_.size();
    FusedVar var;
    var.name = name;
    var.meta = *types.Find(name);
    var.argument = argument;
    vars_.push_back(std::move(var));
  }

  // By variable: the last op that reads it, or the one that writes it.
  void FindLastUses() {
    last_use_.assign(vars_.size(), 0);
    for (size_t t = 0; t < NumOps(); ++t) {
      const auto note = [&](const std::string& name) { last_use_[IndexOf(name)] = t; };
      Op(t).ForEachInput(note);
      Op(t).ForEachOutput(note);
    }
  }

  // A piece has all elements where the group cannot be cut, or need not be.
  void Cut() {
    int64_t bytes = 0, most = 0;
    for (const FusedVar& var : vars_) {
      most = std::max(most, var.meta.shape.numel());
      if (var.argument >= 0 || var.result >= 0)
        bytes += static_cast<int64_t>(SizeOf(var.meta.dtype));
    }
    const int64_t elements = std::clamp(kPieceBytes / std::max<int64_t>(bytes, 1) / 1024 * 1024,
                                        kFewestElements, kMostElements);
    FusedCut& cut = plan_->cut;
    if (most <= elements || !FindCut(group_, elements, vars_, &cut)) {
      cut = FusedCut();
      cut.shape = Shape{1};
      for (FusedVar& var : vars_) var.first_dim = -1;
    }
    plan_->parts = std::clamp<int64_t>(std::min<int64_t>(NumThreads(), cut.pieces()), 1,
                                       1 + cut.shape.numel() / kGrain);
    plan_->steps.resize(vars_.size());
    for (size_t v = 0; v < vars_.size(); ++v) {
      for (int d = 0; d <= cut.dim; ++d) {
        plan_->steps[v][static_cast<size_t>(d)] =
            cut.StepOf(vars_[v], d) * static_cast<int64_t>(ByteSize(vars_[v].meta.dtype, Shape{1}));
      }
    }
  }

  // --- where variables are ---

  int64_t PieceBytes(size_t var) const {
    const Shape piece = plan_->cut.PieceOf(vars_[var], plan_->cut.rows);
    return static_cast<int64_t>(ByteSize(vars_[var].meta.dtype, piece));
  }

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
        if (last_use_[v] == t && IsTemporary(v) && !overwritten_[v] && plan_->places[v].offset >= 0)
          free[PieceBytes(v)].push_back(plan_->places[v].offset);
      }
    }
  }
  bool IsTemporary(size_t v) const { return vars_[v].argument < 0 && vars_[v].result < 0; }

  void PlaceOutput(size_t v, size_t t, FreeSlots& free) {
    Place& place = plan_->places[v];
    if (vars_[v].result >= 0) {
      const TensorArg out = context_.Output("Out", static_cast<size_t>(vars_[v].result));
      const bool past_caches = out.nbytes() >= kPastCaches && plan_->cut.pieces() > 1;
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
    // One line more, so that the slots do not lie a power of two apart.
    slot_bytes_ = CheckedAdd(slot_bytes_, Aligned(bytes) + kLine);
    return offset;
  }

  // The one position of variable v among the inputs of an op; false where it has several or none.
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

  // A temporary that op t reads last, and may overwrite with v; -1: there is none.
  int64_t DyingInput(size_t v, size_t t) const {
    int64_t found = -1;
    ForEachPair(Op(t), [&](size_t in, size_t out) {
      if (found < 0 && out == v && IsTemporary(in) && last_use_[in] == t && !overwritten_[in] &&
          PieceBytes(in) == PieceBytes(v) && ReadsOnce(Op(t), in))
        found = static_cast<int64_t>(in);
    });
    return found;
  }

  // Out[i] may have the memory of X[i]: nobody may read that any more when op t writes v, or only t
  // itself, in place.
  bool MayWriteDirectly(size_t v, size_t t) const {
    const auto place = static_cast<size_t>(vars_[v].result);
    if (place >= group_.arguments.size()) return true;
    const size_t x = IndexOf(group_.arguments[place]);
    if (last_use_[x] < t) return true;
    bool in_place = false;
    ForEachPair(Op(t), [&](size_t in, size_t out) { in_place |= in == x && out == v; });
    return last_use_[x] == t && in_place && ReadsOnce(Op(t), x);
  }

  // --- kernels ---

  // Gives the kernels args of a piece.
  class PieceArgs : public ArgTable {
   public:
    PieceArgs(GroupPlanner& planner, int64_t rows, PieceKernels& kernels)
        : planner_(planner), rows_(rows), kernels_(kernels) {}

    TensorArg Read(const std::string& name) override { return Arg(name); }
    TensorArg Write(const std::string& name) override { return Arg(name); }
    TensorArg Scratch(DType dtype, const Shape& shape) override {
      const size_t index = planner_.plan_->pointers++;
      kernels_.scratch.push_back(
          {static_cast<int64_t>(index), used_});  // from the end of the slots
      const TensorArg arg = {static_cast<int32_t>(index), dtype, shape, shape.numel()};
      used_ = CheckedAdd(used_, Aligned(static_cast<int64_t>(ByteSize(dtype, shape))));
      planner_.scratch_bytes_ = std::max(planner_.scratch_bytes_, used_);
      return arg;
    }
    TensorArg ScratchArray() override { Refuse(); }
    TensorArg ScratchValue() override { Refuse(); }
    int32_t SubBlock(BlockRef, const BlockArgs&) override { Refuse(); }
    bool HasGradientBlock(BlockRef) override { Refuse(); }
    const Tensor* Constant(const std::string& name) override {
      const FusedVar& var = planner_.vars_[planner_.IndexOf(name)];
      const bool whole = var.argument >= 0 && var.first_dim < 0 && !planner_.plan_->cut.flat;
      return whole ? planner_.context_.Constant("X", static_cast<size_t>(var.argument)) : nullptr;
    }
    // The next op uses the scratch memory again.
    void NextOp() { used_ = 0; }

   private:
    TensorArg Arg(const std::string& name) const {
      const size_t v = planner_.IndexOf(name);
      const FusedVar& var = planner_.vars_[v];
      const Shape shape = planner_.plan_->cut.PieceOf(var, rows_);
      return {static_cast<int32_t>(v), var.meta.dtype, shape, shape.numel()};
    }
    [[noreturn]] static void Refuse() {
      throw InternalError("an elementwise op asks for more than elements");
    }

    GroupPlanner& planner_;
    int64_t rows_;
    PieceKernels& kernels_;
    int64_t used_ = 0;
  };

  void PrepareOps() {
    plan_->pointers = vars_.size();
    PrepareOps(plan_->cut.last_rows(), plan_->kernels[0]);
    if (plan_->cut.chunks > 1) PrepareOps(plan_->cut.rows, plan_->kernels[1]);
  }
  void PrepareOps(int64_t rows, PieceKernels& kernels) {
    PieceArgs args(*this, rows, kernels);
    group_.block->ForEachOp([&](const OpDesc& op) {
      kernels.ops.push_back(PrepareKernel(PrepareContext(SpecOf(op), op, args), mode_));
      args.NextOp();
    });
    for (const Flush& flush : plan_->flushes) {
      const FusedVar& var = vars_[flush.var];
      kernels.flush_bytes.push_back(
          static_cast<int64_t>(ByteSize(var.meta.dtype, plan_->cut.PieceOf(var, rows))));
    }
  }

  // A part's memory: the pointers, the slots, the scratch memory of one op.
  Kernel Finish() {
    const int64_t pointer_bytes =
        Aligned(CheckedMul(static_cast<int64_t>(plan_->pointers), int64_t{sizeof(void*)}));
    for (Place& place : plan_->places) {
      if (place.offset >= 0) place.offset += pointer_bytes;
    }
    for (PieceKernels& kernels : plan_->kernels) {
      for (auto& scratch : kernels.scratch) scratch[1] += pointer_bytes + slot_bytes_;
    }
    plan_->part_bytes = CheckedAdd(CheckedAdd(pointer_bytes, slot_bytes_), scratch_bytes_);
    plan_->memory = context_.Scratch(DType::kUInt8, {CheckedMul(plan_->parts, plan_->part_bytes)});
    return [plan = std::shared_ptr<const FusedPlan>(plan_)](Workspace& ws) {
      ParallelFor(plan->parts, 1, [&](int64_t begin, int64_t end) {
        const int64_t pieces = plan->cut.pieces();
        for (int64_t part = begin; part < end; ++part) {
          PartRun(*plan, ws, part)
              .Run(part * pieces / plan->parts, (part + 1) * pieces / plan->parts);
        }
      });
    };
  }

  const PrepareContext& context_;
  FusedGroup group_;
  KernelMode mode_;
  std::shared_ptr<FusedPlan> plan_ = std::make_shared<FusedPlan>();
  std::vector<FusedVar> vars_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<size_t> last_use_;
  std::vector<bool> overwritten_;  // temporaries whose memory an output has taken over
  int64_t slot_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace

Kernel PrepareFused(const PrepareContext& context, const OpRegistry& ops, KernelMode mode) {
  return GroupPlanner(context, ops, mode).Plan();
}

}  // namespace coracle
