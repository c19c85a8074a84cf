#include "input_rules.h"

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle::onnx {
namespace {

const std::map<char, const char*>& Contents() {
  static const std::map<char, const char*> names = {
      {'V', "a value"},  {'T', "a tensor"}, {'n', "numbers"},   {'f', "floats"},
      {'i', "integers"}, {'b', "bools"},    {'S', "a sequence"}};
  return names;
}

bool Holds(char holds, DType dtype) {
  switch (holds) {
    case 'n':
      return dtype != DType::kBool;
    case 'f':
      return IsFloating(dtype);
    case 'i':
      return IsInteger(dtype);
    case 'b':
      return dtype == DType::kBool;
    default:
      return true;
  }
}

std::string WhatItIs(const Value& value) {
  if (value.is_nothing) return "an optional value that is not there";
  if (value.elements) return "a sequence";
  return coracle::ToString(value.dtype()) + value.shape().ToString();
}

InputRule ParseRule(std::string_view word) {
  InputRule rule{.holds = word[0]};
  word.remove_prefix(1);
  if (word.ends_with('?') || word.ends_with('*')) {
    (word.back() == '?' ? rule.optional : rule.repeated) = true;
    word.remove_suffix(1);
  }
  if (!Contents().count(rule.holds)) throw InternalError("a rule of inputs of an unknown letter");
  if (word.empty()) return rule;
  rule.least_rank = rule.most_rank = word[0] - '0';
  if (word.size() > 1) rule.most_rank = word[1] == '+' ? Shape::kMaxRank : word.back() - '0';
  return rule;
}

}  // namespace

bool InputRule::Allows(const Value& value) const {
  if (holds == 'V') return true;
  if (holds == 'S' || !value.is_tensor()) return holds == 'S' && value.elements != nullptr;
  return Holds(holds, value.dtype()) && value.rank() >= least_rank && value.rank() <= most_rank;
}

std::string InputRule::ToString() const {
  std::string text = Contents().at(holds);
  if (least_rank == 0 && most_rank == Shape::kMaxRank) return text;
  if (least_rank == most_rank) return fmt::format("{} of rank {}", text, least_rank);
  if (most_rank == Shape::kMaxRank) return fmt::format("{} of rank {} or more", text, least_rank);
  return fmt::format("{} of rank {} to {}", text, least_rank, most_rank);
}

std::vector<InputRule> ParseInputRules(std::string_view text) {
  std::vector<InputRule> rules;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    rules.push_back(ParseRule(word));
  }
  return rules;
}

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
    if (rule.Allows(*value)) continue;
    ThrowInvalid(fmt::format("input {} ({}) must be {}, got {}", i, Quote(names[i]),
                             rule.ToString(), WhatItIs(*value)));
  }
}

}  // namespace coracle::onnx
