#pragma once
// Plan: one block of a compiled program bound to shapes, kernels and memory. Internal to executor/.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/kernel.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// Where the elements of a storage live.
enum class StorageKind {
  kFeed,         // in the fed tensor
  kPersistable,  // in the scope
  kConstant,     // in the plan: known since planning
  kArena,        // in the frame's arena, shared over time with others
  kFetched,      // in memory of its own, which the caller may read after the run
  kValue,        // not a dense tensor: a Value of the frame
  kOuter,        // a value of the enclosing block's frame
};

struct Storage {
  StorageKind kind = StorageKind::kArena;
  int32_t source = -1;  // index of the feed, persistable or constant
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

struct Plan {
  std::vector<PlanValue> values;
  std::vector<Storage> storages;
  std::vector<PlanPersistable> persistables;
  std::vector<Tensor> constants;
  std::vector<PlanStep> steps;
  std::vector<std::shared_ptr<const Plan>> sub_plans;  // of sub-blocks; a handle is an index here
  std::vector<int32_t> feed_values;                    // by feed; -1 when nothing reads it
  std::vector<int32_t> fetch_values;                   // by fetch
  // Where the plan ends before the block does: the shapes of op `next_op` depend on the value of
  // `needs`. The variables in `carried` (their values are in fetch_values then) are the feeds of
  // the next stage.
  int32_t next_op = -1;
  std::string needs;
  std::vector<std::string> carried;
  uint64_t arena_bytes = 0;
  uint64_t fetch_bytes = 0;
  uint64_t constant_bytes = 0;

  // Memory of a frame with those of its sub-blocks.
  uint64_t FrameBytes() const {
    uint64_t bytes = arena_bytes + fetch_bytes;
    for (const auto& sub : sub_plans) bytes += sub->FrameBytes();
    return bytes;
  }
};

}  // namespace coracle
