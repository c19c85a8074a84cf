#pragma once
// Plan: some ops of one block of a compiled program, bound to shapes, kernels and memory. Internal
// to executor/.
//
// A block is planned in stages: a plan ends where shapes depend on what only the run knows (the
// value of a tensor, the elements of a tensor array, what a sub-block made of a variable), and the
// next one begins there with what the run found. Everything that a plan relied on is in its guards,
// so that it serves again whenever they hold.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/kernel.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/out_of_memory.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// Where the elements of a storage live.
enum class StorageKind {
  kFeed,         // in the tensor that the caller, or the stage before, hands over
  kPersistable,  // in the scope
  kConstant,     // in the plan: known since planning
  kArena,        // in the frame's arena, shared over time with others
  kFetched,      // in memory of its own, which the caller may read after the run
  kValue,        // not a dense tensor: a Value of the frame
  kSlot,         // in a cell of the activation: see Unit::slots
};

struct Storage {
  StorageKind kind = StorageKind::kArena;
  int32_t source = -1;  // index of the feed, persistable, constant or slot
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the arena (kArena) or in the fetch buffer (kFetched)
  int32_t first = -1;   // steps between which it is live (kArena)
  int32_t last = -1;
};

// One version of a variable (each write makes a new one), or an op's scratch memory. Its index is
// TensorArg::index.
struct PlanValue {
  std::string name;
  VarMeta meta;
  int64_t numel = 0;
  int32_t storage = -1;
  int32_t lod_source = -1;  // the value (fed, or of a slot) whose LoD it has; -1: none
};

struct PlanPersistable {
  std::string name;
  VarMeta meta;
  int32_t storage = -1;
  bool read_first = false;  // must hold a value before the run
};

struct PlanStep {
  Kernel kernel;
  std::string op_type;
  std::vector<int32_t> outputs;  // values
  std::string where;             // for errors: place of the op
};

// Where a variable of a sub-block's activation is found when the block is run.
struct Binding {
  enum class Kind {
    kNone,   // it has no value
    kSlot,   // the cell of this activation
    kGiven,  // the same; the op has put a value there
    kView,   // a value of this frame, for reading
    kKept,   // the value that the run of the forward block left for gradient blocks
  };
  int32_t slot = -1;  // of the sub-block's unit
  Kind kind = Kind::kNone;
  int32_t source = -1;
};

// A sub-block as one op runs it; a handle is an index of Plan::sub_blocks.
struct SubBlockUse {
  int32_t unit = -1;
  int block = 0;      // the unit's
  int32_t site = -1;  // among the unit's: which activation runs it
  std::vector<Binding> bindings;
};

// The type of what a slot held when the plan was made, as MetaOfValue says it.
struct SlotGuard {
  int32_t slot = -1;
  bool set = false;
  VarMeta meta;
};

// A value that shapes depend on.
struct ValueGuard {
  std::string name;
  int32_t feed = -1, slot = -1;  // where it is; both -1: in the scope
  Tensor value;
};

struct Plan {
  size_t first_op = 0;
  std::vector<std::string> feed_names;
  std::vector<VarMeta> feed_metas;
  std::vector<SlotGuard> guards;
  std::vector<ValueGuard> relies;

  std::vector<PlanValue> values;
  std::vector<Storage> storages;
  std::vector<PlanPersistable> persistables;
  std::vector<Tensor> constants;
  std::vector<PlanStep> steps;
  std::vector<SubBlockUse> sub_blocks;
  std::vector<int32_t> feed_values;   // by feed
  std::vector<int32_t> fetch_values;  // by fetch
  std::vector<int32_t> dense_slots;   // storages of kind kSlot whose address a run binds
  std::vector<std::pair<int32_t, VarType>> new_slots;  // empty values that the run makes first
  std::vector<bool> own_slots;  // by slot: a cell of the activation itself, not bound by the outer
  // Where the plan ends before the block does: the ops from `next_op` on are the next stage's,
  // which relies on the value of `needs` ("": on none). The variables in `carried` (their values
  // are in fetch_values then) are the feeds of the next stage.
  int32_t next_op = -1;
  std::string needs;
  std::vector<std::string> carried;
  uint64_t arena_bytes = 0;
  uint64_t fetch_bytes = 0;
  uint64_t constant_bytes = 0;

  uint64_t FrameBytes() const { return arena_bytes + fetch_bytes; }
  OpName NameOfStep(size_t i) const {
    const PlanStep& step = steps[i];
    const bool none = step.outputs.empty();
    return {step.op_type, none ? "" : values[static_cast<size_t>(step.outputs[0])].name,
            step.where};
  }
  // How many values the next stage relies on: where this one could do nothing, those that it knew
  // are still needed.
  size_t NumKnownNext() const {
    if (needs.empty()) return 0;
    return (static_cast<size_t>(next_op) == first_op ? relies.size() : 0) + 1;
  }
};

}  // namespace coracle
