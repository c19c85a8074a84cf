#pragma once
// Plan: consecutive ops of one block of a compiled program, bound to shapes, kernels and memory.
// docs/executor.md explains the terms of this folder. Internal to executor/.
//
// A block is planned in stages: a plan ends where shapes depend on something known only at run time
// (the value of a tensor, the elements of a tensor array, the changes by a sub-block), and the next
// plan begins there with the result of the run so far. A plan's guards record everything that it
// relies on, so that it can be reused whenever they hold.

#include <coracle/executor/plan/ids.h>
#include <coracle/executor/plan/procedure.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/kernel/out_of_memory.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coracle::inline internal {

// For std::visit, with one lambda for each alternative.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // clang 14 does not deduce it

// --- memory ---

// Places of elements. Besides these: a feed, a persistable variable of the scope, a constant of the
// plan, and a cell of the activation.
struct InArena {};  // the frame's arena, shared over time with other storages
// Frame memory reserved for this storage: the caller may read it later.
struct InResults {};
struct InFrame {};  // a VarValue owned by the frame, for anything but a dense tensor
using Place = std::variant<InArena, InResults, InFrame, FeedId, PersistableId, ConstantId, CellId>;

// The memory of one value, or of several that share it.
struct Storage {
  Place place;
  uint64_t bytes = 0;
  uint64_t offset = 0;           // in the arena or in the results
  StepId first = {}, last = {};  // the steps between which it is live

  template <class PlaceType>
  bool IsIn() const {
    return std::holds_alternative<PlaceType>(place);
  }
  // The feed, persistable, constant or cell that holds it; empty if it is elsewhere.
  template <class IdType>
  IdType As() const {
    const IdType* id = std::get_if<IdType>(&place);
    return id ? *id : IdType();
  }
};

// One version of a variable (each write makes a new one), or an op's scratch memory. Its
// id is TensorArg::index.
struct PlanValue {
  std::string name;
  VarMeta meta;
  int64_t numel = 0;  // 0 if it is not a dense tensor or its shape is unknown
  StorageId storage;
  // The value that defines its LoD: a feed, a value in the scope, one that the plan found in a
  // cell, or one whose LoD an op of the plan makes. Empty: it has no LoD.
  ValueId lod_source;

  bool IsDense() const { return meta.type == VarType::kLoDTensor; }
  void SetMeta(const VarMeta& changed);
};

struct PlanPersistable {
  std::string name;
  VarMeta meta;
  StorageId storage;
  ValueId value;            // the variable itself; other values may share its storage
  bool read_first = false;  // must hold a value before the run
  bool written = false;     // by the plan's own steps, see also Plan::written_by_blocks
  bool given_lod = false;   // a step of the plan gives it a LoD
};

// --- steps ---

// Passes the LoD of `from` to a persistable variable, or to a value computed from one that a later
// step writes; if `from` is empty, removes the LoD.
struct LodPass {
  ValueId from, to;
};
struct RunKernel {
  std::string op_type;
  Kernel kernel;
  std::vector<LodPass> lods;  // applied after the kernel has run
  std::string how = {};       // the kernel's name, for profiles; "" if the op has one kernel
};
struct CopyElements {
  ValueId from, to;
  size_t bytes;
};
// Copies a value into a cell of the activation.
struct StoreInCell {
  ValueId value;
  CellId cell;
};
// Saves a value for the gradient blocks of this block, as item `index` of BlockUse::saved; does
// nothing in a run that saves no values. `move`: no later step reads the value, so it is moved out
// of its cell instead of copied.
struct SaveForGradient {
  ValueId value;
  size_t index;
  bool move;
};
using Action = std::variant<RunKernel, CopyElements, StoreInCell, SaveForGradient>;

struct PlanStep {
  Action action;
  std::vector<ValueId> outputs;
  std::string where;                   // place of the op, for errors
  std::vector<OpOrigin> origins = {};  // origins of the op whose kernel it runs

  std::string_view Name() const;  // the op's type, or "copy", "store", "keep"
};

// --- sub-blocks ---

// The source of a variable of a sub-block's activation when the block is run.
struct NoValue {};
struct ArgumentCell {
  CellId cell;  // of the caller; the op has put a value into it
};
struct SavedItem {
  size_t index;  // into the values that the forward block's run saved for gradient blocks
};
struct Binding {
  CellId inner;  // of the sub-block's activation
  // A CellId is the caller's cell for the same variable; a ValueId is a value of the caller's frame
  // that the block only reads.
  std::variant<NoValue, CellId, ArgumentCell, ValueId, SavedItem> source;
};

// A persistable variable of the caller's frame that the block may write, so that it may hold
// another tensor afterwards. `used`: the op's kernel itself reads or writes it, with the type at
// planning time.
struct Rebinding {
  PersistableId persistable;
  bool used = false;
};

// The call of a sub-block by one op; Workspace::RunBlock's handle is its CallId.
struct BlockCall {
  ProcedureId procedure;
  int block = 0;    // the block of the procedure
  CallSiteId site;  // determines the activation that runs it
  std::vector<Binding> bindings;
  std::vector<Rebinding> rebindings;  // applied after each run
};

// --- guards ---

struct FeedGuard {
  std::string name;
  VarMeta meta;
};
// The type of the cell's content when the plan was made, as returned by MetaOfValue.
struct CellGuard {
  CellId cell;
  bool set = false;
  VarMeta meta;
};
// A value that shapes depend on, and its place.
struct InScope {};
using ValuePlace = std::variant<InScope, FeedId, CellId>;
struct ValueGuard {
  std::string name;
  ValuePlace place;
  Tensor value;
};
// The level sizes of a LoD that shapes depend on.
struct LodGuard {
  std::string name;
  ValuePlace place;
  std::vector<int64_t> level_sizes;
};
struct Guards {
  IdVector<FeedId, FeedGuard> feeds;
  std::vector<CellGuard> cells;
  std::vector<ValueGuard> values;
  std::vector<LodGuard> lods;
};

// Where a plan ends before its block, and the next stage begins.
struct NextStage {
  size_t first_op = 0;
  std::string shape_var;  // shapes depend on its value; "": they do not
};

struct Plan {
  size_t first_op = 0;
  // Of the compiled program, which owns the plan.
  const ProgramOrigins* origins = nullptr;
  Guards guards;

  IdVector<ValueId, PlanValue> values;
  IdVector<StorageId, Storage> storages;
  IdVector<PersistableId, PlanPersistable> persistables;
  IdVector<ConstantId, Tensor> constants;
  IdVector<StepId, PlanStep> steps;
  IdVector<CallId, BlockCall> calls;
  // Variables of the scope that called blocks may write, whether or not the plan uses them.
  std::vector<std::string> written_by_blocks;

  IdVector<FeedId, ValueId> feeds;
  // Tensors in cells, whose addresses are bound in each run.
  std::vector<ValueId> dense_cells;
  // Empty values that the run makes at its start.
  std::vector<std::pair<CellId, VarType>> new_cells;
  IdVector<CellId, CellOwner> cells;

  // Empty: the plan reaches the end of the block.
  std::optional<NextStage> next;
  std::vector<std::string> live_out;  // variables that become the feeds of the next stage
  // The values of live_out; at the end of the block, the fetched values.
  std::vector<ValueId> results;

  uint64_t arena_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t constant_bytes = 0;

  const Storage& StorageOf(ValueId value) const { return storages[values[value].storage]; }
  // A value as kernels refer to it, and back.
  TensorArg ArgOf(ValueId value) const;
  static ValueId IdOf(const TensorArg& arg) { return ValueId::FromNumber(arg.index); }

  uint64_t FrameBytes() const { return arena_bytes + result_bytes; }
  // Name and type of a value's variable in the given program, as messages show them.
  const std::string& NameOf(const PlanValue& value) const {
    return origins ? origins->NameOf(value.name) : value.name;
  }
  VarMeta MetaOf(const PlanValue& value) const {
    return origins ? origins->MetaOf(value.name, value.meta) : value.meta;
  }
  std::string_view OutputOf(const PlanStep& step) const;  // name of its first output, or ""
  OpName NameOfStep(StepId step) const;
  // How many values the next stage relies on. If this stage could not run any op, the values that
  // it knew are still needed.
  size_t NumKnownNext() const;
  // "the largest temporary is 'a' float32[1000, 1000] (output of mul); ...".
  std::string DescribeLargestTemporary() const;
};

// Whether the types are equal, apart from the LoD level.
inline bool SameType(const VarMeta& a, const VarMeta& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace coracle::inline internal
