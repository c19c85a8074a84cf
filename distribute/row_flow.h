#pragma once
// RowFlow: where the rows of a batch are in what an op makes, by the op's shape rule and its attrs.
// Internal to distribute/.

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <string>

namespace coracle {

// Where a variable has the rows of the batch.
struct RowPlace {
  int axis = 0;
  // The rows are in the dimension so many times: [time, rows, ...] as [time * rows, ...].
  int64_t folded = 1;
  bool operator==(const RowPlace&) const = default;
};
// nullptr for a variable without rows.
using RowPlaceOf = std::function<const RowPlace*(const std::string& name)>;

struct RowFlow {
  RowPlace place;
  std::string broken = {};  // else: what the op does to the rows, "adds rows"
};

// Of an output of the op. An op that works along its inputs' rows breaks them, by an attr that
// names the axis; and so does one whose output has not twice as many rows for twice as many. Where
// no rule tells, each row is taken to be made of a row.
RowFlow FlowOf(const OpDesc& op, const std::string& output, const BlockDesc& block,
               const OpRegistry& ops, const RowPlaceOf& place_of);

}  // namespace coracle
