#pragma once
// RowTrait: how the rows of a batch pass through an op, as OpDef::Rows declares it. distribute/
// reads it to combine what several machines compute from their parts of a batch.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class OpDesc;
struct OpSpec;

enum class RowRule : uint8_t {
  kUndeclared,
  // A row of an output depends on the same row of the inputs only. The shape rule shows where the
  // output keeps the rows. Rows do mix if an attr (axis, dim, ...) names their axis, if the inputs
  // in OpDef::Tables have rows, and if twice the input rows do not give twice the output rows.
  kEach,
  kMoves,      // elements move, and rows stay together; attrs name no axis to work along
  kMixes,      // an output may depend on several rows
  kSum,        // a sum over the rows. In a gradient op: over the rows, whatever gradient arrives
  kMean,       // a mean over the elements of an input
  kSame,       // equal on all machines, whatever they read
  kStatistic,  // a running statistic of batches, read only to be updated
};

// An op whose rows are asked about. The first input with rows has them at `axis` of its `rank`
// axes; a rank of 0 is unknown.
struct RowQuery {
  const OpDesc& op;
  const OpSpec& spec;
  std::string_view output;  // the slot
  int axis = 0;
  int rank = 0;
};

struct RowEffect {
  RowEffect(RowRule r, std::string_view slot = "X") : rule(r), of(slot) {}  // NOLINT: from a rule

  RowRule rule;
  // For kMean: the input whose elements the mean is over. If an output of the op is named instead,
  // parts weigh by its value, which is a sum over the rows.
  std::string of;
};
using RowsFn = std::function<RowEffect(const RowQuery&)>;

struct RowTrait {
  RowEffect effect = RowRule::kUndeclared;
  RowsFn fn;                        // if given, it decides instead of `effect`
  std::string text;                 // explains fn
  std::vector<std::string> tables;  // see OpDef::Tables
  // The op is linear in the inputs of each list, taken together, if its other inputs are constant.
  std::vector<std::vector<std::string>> linear;
};

// The declared effect on an output. Without a declaration, kEach for elementwise and gradient ops.
RowEffect RowEffectOf(const RowQuery& query);
// Whether the op declares its rows, or does not need to: elementwise ops, gradient ops (*_grad),
// feed, fetch, and ops that run a block, whose inner ops decide.
bool HasRowTrait(const OpSpec& spec);
// The inputs that the op is linear in together with `slot`, which is among them; {} if it is not
// linear in the slot. An op that only moves elements is linear in its first input.
std::vector<std::string> LinearWith(const OpSpec& spec, std::string_view slot);

}  // namespace coracle
