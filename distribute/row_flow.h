#pragma once
// RowFlow: where the output of an op has the rows of the batch. Internal to distribute/.

#include <coracle/distribute/part.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <functional>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// Returns nullptr for a variable without rows.
using RowPlaceOf = std::function<const RowPlace*(const std::string& name)>;

struct RowFlow {
  RowPlace place = {};
  std::string broken = {};  // why the output has no such place: "mixes the rows of the batch"
};

// The declared effect of the op on an output slot, given where its inputs have rows.
RowEffect EffectOn(const OpDesc& op, const OpSpec& spec, std::string_view slot,
                   const BlockDesc& block, const RowPlaceOf& place_of);

// Finds where `output` has the batch rows. The rows are lost if an input in OpSpec's tables has
// rows, if an attr names their axis, if doubling the input rows does not double the output rows, or
// if the shape rule does not show where they are. Rows with LoD are at axis 0.
RowFlow FlowOf(const OpDesc& op, const OpSpec& spec, const std::string& output,
               const BlockDesc& block, const RowPlaceOf& place_of);

}  // namespace coracle::inline internal
