#pragma once
// Ops that only move or select elements, which do the same to quantised integers. A header of
// passes/ only.

#include <coracle/passes/pass.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The slot whose elements the op moves or selects into its slot Out, without looking at them, or
// (`orders`) by their order alone, as a maximum does. nullopt for other ops.
struct ElementMove {
  std::string_view slot;
  bool orders = false;
};
std::optional<ElementMove> MoveOf(const OpDesc& op, const OpSpec& spec);

// The axis of the result at which the elements of one position of `axis` of the moved tensor are;
// nullopt if there is none, or if it is unknown. The shapes must be known.
std::optional<int> AxisAfterMove(const OpDesc& op, const OpSpec& spec, const Shape& from,
                                 const Shape& to, int axis);

// The op on integers: with the variables `from` in the moved slot, and with `to` in Out. Leaves out
// the outputs that only gradients read.
OpDesc OnIntegers(const OpDesc& op, const ElementMove& move, std::vector<std::string> from,
                  std::vector<std::string> to);

}  // namespace coracle::inline internal
