#include <coracle/convert/onnx/import/input_rules.h>
#include <coracle/framework/base/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle::onnx {
namespace {

const std::map<char, const char*>& Contents() {
  static const std::map<char, const char*> names = {
      {'V', "a value"},  {'T', "a tensor"}, {'n', "numbers"}, {'f', "floats"},
      {'i', "integers"}, {'b', "bools"},    {'s', "strings"}, {'S', "a sequence"}};
  return names;
}

InputRule ParseRule(std::string_view word) {
  if (word.empty() || !Contents().count(word[0]))
    throw InternalError("a rule of inputs of an unknown letter");
  InputRule rule{.holds = word[0]};
  word.remove_prefix(1);
  if (word.ends_with('?') || word.ends_with('*')) {
    (word.back() == '?' ? rule.optional : rule.repeated) = true;
    word.remove_suffix(1);
  }
  if (word.empty()) return rule;
  rule.least_rank = rule.most_rank = word[0] - '0';
  if (word.size() > 1) rule.most_rank = word[1] == '+' ? Shape::kMaxRank : word.back() - '0';
  return rule;
}

}  // namespace

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

}  // namespace coracle::onnx
