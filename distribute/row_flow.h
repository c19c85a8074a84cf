#pragma once
// RowFlow: where the output of an op has the rows of the batch. Internal to distribute/.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// Where a variable has the rows of the batch. For rows [N, 3]:
//   transpose -> [3, N]            axis 1
//   reshape [T, N, 3] -> [T*N, 3]  axis 0, folded T
//   reshape [N, T, 3] -> [N*T, 3]  axis 0, each T
struct RowPlace {
  int axis = 0;
  // The dimension holds all rows this many times: [time, rows, ...] as [time * rows, ...].
  int64_t folded = 1;
  // Each row has this many indices in sequence: [rows, time, ...] as [rows * time, ...].
  int64_t each = 1;
  // The output of the op that repeated the rows, or "". Two places with the same output have their
  // rows in the same order. `folded` says how often the rows were repeated.
  std::string repeated = {};

  int64_t indices() const { return folded * each; }  // of a row
  bool SameOrder(const RowPlace& other) const {
    return folded == other.folded && each == other.each && repeated == other.repeated;
  }
  bool operator==(const RowPlace&) const = default;
};

// Returns nullptr for a variable without rows.
using RowPlaceOf = std::function<const RowPlace*(const std::string& name)>;

struct RowFlow {
  RowPlace place = {};
  std::string broken = {};  // why the output has no such place: "mixes the rows of the batch"
};

// Whether outputs of the op may have LoD although no input has. An op with OpDef::LodUnlessAxis
// only joins the LoD that its inputs have (concat).
bool MakesLod(const OpSpec& spec);

// The declared effect of the op on an output slot, given where its inputs have rows.
RowEffect EffectOn(const OpDesc& op, const OpSpec& spec, std::string_view slot,
                   const BlockDesc& block, const RowPlaceOf& place_of);

// Finds where `output` has the batch rows. The rows are lost if an input in OpSpec's tables has
// rows, if the op works along their axis, if doubling the input rows does not double the output
// rows, or if the shape rule does not show where they are. Rows with LoD are at axis 0.
RowFlow FlowOf(const OpDesc& op, const OpSpec& spec, const std::string& output,
               const BlockDesc& block, const RowPlaceOf& place_of);

}  // namespace coracle::inline internal
