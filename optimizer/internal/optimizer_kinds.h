#pragma once
// The built-in optimizers, with which the registry begins.

#include <coracle/framework/base/registry.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/optimizer.h>

#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A state variable of an UpdateOp: OneOpOptimizer::State before the options are known.
struct StateSlot {
  const char *in, *out, *suffix;
  const char* value = nullptr;  // the option with its initial value; nullptr: 0
  bool scalar = false;
};

// The op that an optimizer appends for a parameter, in addition to its field table: each field
// becomes the attr of that name, if the op has one.
struct UpdateOp {
  std::vector<StateSlot> state = {};
  std::string type = "";  // "": the kind's name
  // Fields whose attrs come first, with the names of the attrs.
  std::vector<std::pair<std::string, std::string>> first = {};
  // A bool attr that is written only if it is true.
  std::string only_true = "";
  bool needs_rate = true;  // see OneOpOptimizer
};

struct OptimizerKind {
  FieldTable fields;
  OptimizerMaker make;
  UpdateOp op = {};
  const std::type_info* options = nullptr;  // the type of its options struct
};
using OptimizerEntries = Registry<OptimizerKind>::Entries;

// All kinds of optimizers.cc and adaptive_optimizers.cc.
const OptimizerEntries& BuiltInOptimizers();
OptimizerEntries AdaptiveOptimizers();

// Throws kInvalidArgument for an option out of range; the message begins with the name of the kind.
void CheckOptions(const std::type_info& type, const void* options);

template <class Options>
OptimizerEntries::value_type MakeKind(const char* kind, const Fields<Options>& fields,
                                      UpdateOp op) {
  if (op.type.empty()) op.type = kind;
  return {kind,
          {fields,
           [fields](const Setting& setting) {
             return std::make_unique<typename Options::Makes>(fields.Read(setting.kind, setting));
           },
           std::move(op), &typeid(Options)}};
}

// Begins the table of an optimizer with the learning rate.
template <class Options>
Fields<Options> WithLearningRate(const char* doc, const char* rate_doc) {
  return Fields<Options>(doc).Add("learning_rate", &Options::learning_rate, rate_doc,
                                  NotNegativeRange());
}

}  // namespace coracle::inline internal
