#include <coracle/convert/onnx/import/check_inputs.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

bool Holds(char holds, DType dtype) {
  switch (holds) {
    case 'n':
      return dtype != DType::kBool && dtype != DType::kString;
    case 'f':
      return IsFloating(dtype);
    case 'i':
      return IsInteger(dtype);
    case 'b':
      return dtype == DType::kBool;
    case 's':
      return dtype == DType::kString;
    default:
      return true;
  }
}

std::string WhatItIs(const Value& value) {
  if (value.is_nothing) return "an optional value that is not there";
  if (value.elements) return "a sequence";
  return coracle::ToString(value.dtype()) + value.shape().ToString();
}

bool Allows(const InputRule& rule, const Value& value) {
  if (rule.holds == 'V') return true;
  if (rule.holds == 'S' || !value.is_tensor())
    return rule.holds == 'S' && value.elements != nullptr;
  return Holds(rule.holds, value.dtype()) && value.rank() >= rule.least_rank &&
         value.rank() <= rule.most_rank;
}

}  // namespace

void CheckInputs(const std::vector<InputRule>& rules, const Values& inputs,
                 const std::vector<std::string>& names) {
  const bool repeats = !rules.empty() && rules.back().repeated;
  for (size_t i = 0; i < std::max(inputs.size(), rules.size()); ++i) {
    const ValuePtr value = i < inputs.size() ? inputs[i] : nullptr;
    if (i >= rules.size() && !repeats) {
      if (!value) continue;
      ThrowInvalid(fmt::format("the op takes {} inputs, got input {} ({})", rules.size(), i,
                               Quote(names[i])));
    }
    const InputRule& rule = rules[std::min(i, rules.size() - 1)];
    if (!value) {
      if (rule.optional || (rule.repeated && i >= inputs.size())) continue;
      ThrowInvalid(fmt::format("input {} is missing, and must be {}", i, rule.ToString()));
    }
    if (Allows(rule, *value)) continue;
    ThrowInvalid(fmt::format("input {} ({}) must be {}, got {}", i, Quote(names[i]),
                             rule.ToString(), WhatItIs(*value)));
  }
}

}  // namespace coracle::onnx
