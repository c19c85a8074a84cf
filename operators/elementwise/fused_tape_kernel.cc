#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/elementwise/fused_tape.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace coracle::inline internal {
namespace {

using simd::LaneInstruction;

struct TapePlan {
  explicit TapePlan(FusedRuns runs_of) : runs(std::move(runs_of)) {}

  FusedTape tape;
  simd::LaneMoves moves;
  FusedRuns runs;
  int64_t parts = 1;
  std::vector<TensorArg> outer;  // by variable, of X and Out
  std::vector<size_t> arguments, results;
  std::vector<int32_t> ahead;  // variables that are prefetched
  // A part's memory: the code, pointers, pointers for the last tile, then tiles.
  TensorArg memory;
  int64_t code_bytes = 0, pointer_bytes = 0, part_bytes = 0;

  int64_t tile_bytes() const { return moves.tile * static_cast<int64_t>(sizeof(float)); }
  // Tiles of a run; the last one may be partial.
  int64_t tiles() const { return (runs.elements + moves.tile - 1) / moves.tile; }
};

// Runs one part of the work.
class TapeRun {
 public:
  TapeRun(const TapePlan& plan, Workspace& ws, int64_t part)
      : plan_(plan),
        ws_(ws),
        part_(part),
        base_(ws.Data<char>(plan.memory) + part * plan.part_bytes),
        code_(reinterpret_cast<LaneInstruction*>(base_)),
        pointers_(reinterpret_cast<char**>(base_ + plan.code_bytes)),
        last_(reinterpret_cast<char**>(base_ + plan.code_bytes + plan.pointer_bytes)),
        tiles_(base_ + plan.code_bytes + 2 * plan.pointer_bytes) {}

  void Run() {
    const int64_t in_run = plan_.tiles(), all = plan_.runs.count * in_run;
    const int64_t end = (part_ + 1) * all / plan_.parts;
    WriteCode();
    SetTiles();
    for (int64_t tile = part_ * all / plan_.parts; tile < end;) {
      const int64_t run = tile / in_run, last = std::min(end, (run + 1) * in_run);
      RunTiles(run, tile - run * in_run, last - run * in_run);
      tile = last;
    }
    hwy::FlushStream();
  }

 private:
  char* Outer(size_t var) const { return ws_.Data<char>(plan_.outer[var]); }

  void WriteCode() {
    std::copy(plan_.tape.code.begin(), plan_.tape.code.end(), code_);
    for (size_t place : plan_.tape.stores) {
      LaneInstruction& store = code_[place];
      if (GoesPastCaches(static_cast<size_t>(store.pointer))) store.run = plan_.moves.stream;
    }
  }
  // Only whole lines, and not a result that overwrites an argument, which is in the caches already.
  bool GoesPastCaches(size_t var) const {
    const char* to = Outer(var);
    return plan_.outer[var].nbytes() >= kPastCaches &&
           reinterpret_cast<uintptr_t>(to) % kFusedLine == 0 &&
           (plan_.runs.count == 1 || plan_.runs.elements * 4 % kFusedLine == 0) &&
           std::none_of(plan_.arguments.begin(), plan_.arguments.end(),
                        [&](size_t x) { return Outer(x) == to; });
  }

  void SetTiles() {
    char* tile = tiles_;
    for (size_t i = plan_.outer.size(); i < plan_.tape.pointers; ++i) {
      pointers_[i] = last_[i] = tile;
      tile += plan_.tile_bytes();
    }
    for (size_t v : plan_.tape.tensors) {
      last_[v] = tile;
      tile += plan_.tile_bytes();
    }
  }

  // The tiles [begin, end) of a run.
  void RunTiles(int64_t run, int64_t begin, int64_t end) {
    for (size_t v : plan_.tape.tensors)
      pointers_[v] = Outer(v) + OffsetOf(v, run) + begin * plan_.tile_bytes();
    for (const auto& [var, pointer] : plan_.tape.repeated) {
      const float value = *reinterpret_cast<const float*>(Outer(var) + OffsetOf(var, run));
      std::fill_n(reinterpret_cast<float*>(pointers_[pointer]), plan_.moves.tile, value);
    }
    const int64_t full = std::min(end, plan_.runs.elements / plan_.moves.tile) - begin;
    simd::RunLanes(code_, pointers_, full, plan_.ahead.data(), plan_.ahead.size());
    if (begin + full < end) RunLast(full, plan_.runs.elements % plan_.moves.tile);
  }
  // Offset of a run in bytes.
  int64_t OffsetOf(size_t var, int64_t run) const {
    int64_t offset = 0;
    for (size_t d = plan_.runs.dims.size(); d-- > 0; run /= plan_.runs.dims[d])
      offset += run % plan_.runs.dims[d] * plan_.runs.steps[var][d];
    return offset * static_cast<int64_t>(sizeof(float));
  }

  // Computes the last elements of a run, which do not fill a tile; `tile` is its index.
  void RunLast(int64_t tile, int64_t elements) {
    const int64_t at = tile * plan_.tile_bytes();
    const auto bytes = static_cast<size_t>(elements) * sizeof(float);
    for (size_t v : plan_.arguments) {
      std::memset(last_[v], 0, static_cast<size_t>(plan_.tile_bytes()));
      std::memcpy(last_[v], pointers_[v] + at, bytes);
    }
    simd::RunLanes(plan_.tape.code.data(), last_, 1, nullptr, 0);
    for (size_t v : plan_.results) std::memcpy(pointers_[v] + at, last_[v], bytes);
  }

  const TapePlan& plan_;
  Workspace& ws_;
  int64_t part_;
  char* base_;
  LaneInstruction* code_;
  char **pointers_, **last_, *tiles_;
};

template <class T>
int64_t BytesOf(size_t count) {
  return LineAligned(CheckedMul(static_cast<int64_t>(count), int64_t{sizeof(T)}));
}

}  // namespace

Kernel TapeKernel(const PrepareContext& context, const FusedVars& vars, const FusedRuns& runs,
                  FusedTape tape) {
  auto plan = std::make_shared<TapePlan>(runs);
  plan->moves = simd::FindLaneMoves();
  plan->outer.resize(vars.size());
  for (size_t v = 0; v < vars.size(); ++v) {
    if (vars[v].argument >= 0)
      plan->outer[v] = vars.inputs[static_cast<size_t>(vars[v].argument)];
    else if (vars[v].result >= 0)
      plan->outer[v] = context.Output("Out", static_cast<size_t>(vars[v].result));
  }
  for (size_t v : tape.tensors) {
    (vars[v].argument >= 0 ? plan->arguments : plan->results).push_back(v);
    if (vars[v].argument >= 0 && plan->outer[v].nbytes() >= kReadAhead)
      plan->ahead.push_back(static_cast<int32_t>(v));
  }
  plan->parts = std::clamp<int64_t>(runs.count * runs.elements / kFusedGrain, 1, NumThreads());
  plan->code_bytes = BytesOf<LaneInstruction>(tape.code.size());
  plan->pointer_bytes = BytesOf<char*>(tape.pointers);
  const size_t tiles = tape.pointers - vars.size() + tape.tensors.size();
  plan->tape = std::move(tape);
  plan->part_bytes = CheckedAdd(plan->code_bytes + 2 * plan->pointer_bytes,
                                CheckedMul(static_cast<int64_t>(tiles), plan->tile_bytes()));
  plan->memory = context.Scratch(DType::kUInt8, {CheckedMul(plan->parts, plan->part_bytes)});
  return [plan = std::shared_ptr<const TapePlan>(plan)](Workspace& ws) {
    ParallelFor(plan->parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) TapeRun(*plan, ws, part).Run();
    });
  };
}

}  // namespace coracle::inline internal
