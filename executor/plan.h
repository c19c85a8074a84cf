#pragma once
// Plan: some ops of one block of a compiled program, bound to shapes, kernels and memory. The words
// of this folder are explained in docs/executor.md. Internal to executor/.
//
// A block is planned in stages: a plan ends where shapes depend on what only the run knows (the
// value of a tensor, the elements of a tensor array, what a sub-block made of a variable), and the
// next one begins there with what the run found. Everything that a plan relied on is in its guards,
// so that it serves again whenever they hold.

#include <coracle/executor/ids.h>
#include <coracle/executor/procedure.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/op/out_of_memory.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coracle {

// For std::visit: one lambda for each alternative.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // clang 14 cannot tell

// --- memory ---

// Places of elements besides a feed, a persistable variable of the scope, a constant of the plan
// and a cell of the activation.
struct InArena {};    // the frame's arena, shared over time with other storages
struct InResults {};  // memory of the frame for this storage alone: the caller may read it later
struct InFrame {};    // a VarValue of the frame, for what is no dense tensor
using Place = std::variant<InArena, InResults, InFrame, FeedId, PersistableId, ConstantId, CellId>;

// The memory of one value, or of several that share it.
struct Storage {
  Place place;
  uint64_t bytes = 0;
  uint64_t offset = 0;           // in the arena or in the results
  StepId first = {}, last = {};  // between which it is live

  template <class PlaceType>
  bool IsIn() const {
    return std::holds_alternative<PlaceType>(place);
  }
  // The feed, persistable, constant or cell that holds it; nothing when it is elsewhere.
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
  int64_t numel = 0;  // 0 when it is no dense tensor, or its shape is not known
  StorageId storage;
  // The value whose LoD it has: one that is fed, in the scope, that the plan found in a cell, or
  // whose LoD an op of the plan makes. Nothing: it has none.
  ValueId lod_source;

  bool IsDense() const { return meta.type == VarType::kLoDTensor; }
  void SetMeta(const VarMeta& changed);
};

struct PlanPersistable {
  std::string name;
  VarMeta meta;
  StorageId storage;
  ValueId value;            // the variable itself: other values may share its storage
  bool read_first = false;  // must hold a value before the run
  bool written = false;     // by the plan's own steps, see also Plan::written_by_blocks
  bool given_lod = false;   // by one of them
};

// --- steps ---

// A persistable variable, or what was computed from one that a later step writes, gets the LoD of
// another value; `from` nothing: it has none.
struct LodPass {
  ValueId from, to;
};
struct RunKernel {
  std::string op_type;
  Kernel kernel;
  std::vector<LodPass> lods;  // after the kernel has run
  std::string how = {};       // the kernel's name, for profiles; "" where an op has one kernel
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
// Saves a value for the gradient blocks of this block, as item `index` of BlockUse::saved; in a run
// for which nothing is saved it does nothing. `move`: nobody else will read the value, so that it
// is taken out of its cell instead of copied.
struct SaveForGradient {
  ValueId value;
  size_t index;
  bool move;
};
using Action = std::variant<RunKernel, CopyElements, StoreInCell, SaveForGradient>;

struct PlanStep {
  Action action;
  std::vector<ValueId> outputs;
  std::string where;                   // for errors: place of the op
  std::vector<OpOrigin> origins = {};  // of the op that runs a kernel

  std::string_view Name() const;  // the op's type, or "copy", "store", "keep"
};

// --- sub-blocks ---

// Where a variable of a sub-block's activation is found when the block is run.
struct NoValue {};
struct ArgumentCell {
  CellId cell;  // of the caller; the op has put a value there
};
struct SavedItem {
  size_t index;  // of what the run of the forward block saved for gradient blocks
};
struct Binding {
  CellId inner;  // of the sub-block's activation
  // A CellId is the caller's cell for the same variable; a ValueId a value of the caller's frame,
  // which the block only reads.
  std::variant<NoValue, CellId, ArgumentCell, ValueId, SavedItem> source;
};

// A persistable variable of the caller's frame that the block may write: another tensor may hold it
// afterwards. `used`: the op's kernel itself reads or writes it, as what it was when planned.
struct Rebinding {
  PersistableId persistable;
  bool used = false;
};

// A sub-block as one op runs it; Workspace::RunBlock's handle is its CallId.
struct BlockCall {
  ProcedureId procedure;
  int block = 0;    // the procedure's
  CallSiteId site;  // which activation runs it
  std::vector<Binding> bindings;
  std::vector<Rebinding> rebindings;  // after each run
};

// --- guards ---

struct FeedGuard {
  std::string name;
  VarMeta meta;
};
// The type of what a cell held when the plan was made, as MetaOfValue says it.
struct CellGuard {
  CellId cell;
  bool set = false;
  VarMeta meta;
};
// A value that shapes depend on, and where it is.
struct InScope {};
using ValuePlace = std::variant<InScope, FeedId, CellId>;
struct ValueGuard {
  std::string name;
  ValuePlace place;
  Tensor value;
};
// The sizes of the levels of a LoD, on which shapes depend.
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

// Where a plan ends before its block does, and the next stage begins.
struct NextStage {
  size_t first_op = 0;
  std::string shape_var;  // shapes depend on the value of this variable; "": on none
};

struct Plan {
  size_t first_op = 0;
  const ProgramOrigins* origins = nullptr;  // of the compiled program, which owns the plan
  Guards guards;

  IdVector<ValueId, PlanValue> values;
  IdVector<StorageId, Storage> storages;
  IdVector<PersistableId, PlanPersistable> persistables;
  IdVector<ConstantId, Tensor> constants;
  IdVector<StepId, PlanStep> steps;
  IdVector<CallId, BlockCall> calls;
  // Variables of the scope that blocks of the calls may write, whether or not the plan has them.
  std::vector<std::string> written_by_blocks;

  IdVector<FeedId, ValueId> feeds;
  std::vector<ValueId> dense_cells;                   // tensors in cells, whose address a run binds
  std::vector<std::pair<CellId, VarType>> new_cells;  // empty values that the run makes first
  IdVector<CellId, CellOwner> cells;

  std::optional<NextStage> next;      // nothing: the plan reaches the end of the block
  std::vector<std::string> live_out;  // variables that are the feeds of the next stage
  std::vector<ValueId> results;       // values of live_out, or at the end what is fetched

  uint64_t arena_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t constant_bytes = 0;

  const Storage& StorageOf(ValueId value) const { return storages[values[value].storage]; }
  // A value as kernels name it, and back.
  TensorArg ArgOf(ValueId value) const;
  static ValueId IdOf(const TensorArg& arg) { return ValueId::FromNumber(arg.index); }

  uint64_t FrameBytes() const { return arena_bytes + result_bytes; }
  // Name and type of a value's variable in the given program: messages show these.
  const std::string& NameOf(const PlanValue& value) const {
    return origins ? origins->NameOf(value.name) : value.name;
  }
  VarMeta MetaOf(const PlanValue& value) const {
    return origins ? origins->MetaOf(value.name, value.meta) : value.meta;
  }
  std::string_view OutputOf(const PlanStep& step) const;  // name of its first output, or ""
  OpName NameOfStep(StepId step) const;
  // How many values the next stage relies on: where this one could do nothing, those that it knew
  // are still needed.
  size_t NumKnownNext() const;
  // "the largest temporary is 'a' float32[1000, 1000] (output of mul); ...".
  std::string DescribeLargestTemporary() const;
};

// Types alike, whatever their LoD level.
inline bool SameType(const VarMeta& a, const VarMeta& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace coracle
