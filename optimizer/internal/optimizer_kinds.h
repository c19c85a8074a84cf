#pragma once
// The optimizers of this library as the registry begins with them.

#include <coracle/framework/base/registry.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/optimizers.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

struct OptimizerKind {
  FieldTable fields;
  std::function<std::unique_ptr<Optimizer>(const Setting& setting)> make;
};
using OptimizerEntries = Registry<OptimizerKind>::Entries;

// Of optimizers.cc and adaptive_optimizers.cc.
OptimizerEntries SimpleOptimizers();
OptimizerEntries AdaptiveOptimizers();

template <class Class, class Options>
OptimizerKind KindOf(const Fields<Options>& fields) {
  return {fields, [fields](const Setting& setting) {
            return std::make_unique<Class>(fields.Read(setting.kind, setting));
          }};
}

inline NamedAttr FloatAttr(const char* name, double value) {
  return {name, static_cast<float>(value)};
}

}  // namespace coracle
