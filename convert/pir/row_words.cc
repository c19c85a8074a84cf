#include <coracle/convert/pir/row_words.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::pir {

std::vector<std::string> Words(const char* text) {
  std::vector<std::string> words;
  for (std::string& word : Split(text, ' '))
    if (!word.empty()) words.push_back(std::move(word));
  return words;
}

bool ChoosesImplementation(const std::string& name) {
  static const std::set<std::string> names = {
      "use_cudnn",         "use_mkldnn",        "mkldnn_data_type",  "use_quantizer",
      "workspace_size_MB", "exhaustive_search", "force_fp32_output", "use_addto",
      "force_cpu",         "op_namescope",      "op_device"};
  return names.count(name) > 0;
}

SettingWord ParseSetting(const std::string& word) {
  const std::vector<std::string> parts = Split(word.substr(1), ':');
  const size_t arrow = parts[0].find('>');
  SettingWord setting;
  setting.name = parts[0].substr(0, arrow);
  setting.attr = arrow == std::string::npos ? setting.name : parts[0].substr(arrow + 1);
  if (parts.size() > 1) setting.slot = parts[1];
  if (parts.size() > 2) setting.list = parts[2];
  return setting;
}

AttrRules ParseAttrRules(const char* text) {
  AttrRules rules;
  for (const std::string& word : Words(text)) {
    const size_t equal = word.find('='), arrow = word.find('>');
    if (word == "~")
      rules.saturate = true;
    else if (word[0] == '!')
      rules.left_out.insert(word.substr(1));
    else if (word[0] == '+')
      rules.added.emplace_back(word.substr(1, equal - 1), word.substr(equal + 1));
    else if (arrow != std::string::npos)
      rules.renamed.emplace(word.substr(0, arrow), word.substr(arrow + 1));
    else
      rules.required.emplace(word.substr(0, equal), word.substr(equal + 2));
  }
  return rules;
}

Attribute ParseValue(const std::string& text, AttrType type) {
  int64_t integer = 0;
  double number = 0;
  if (type == AttrType::kString) return text;
  if (text == "true" || text == "false") return text == "true";
  if (type != AttrType::kFloat && ParseInt64(text, &integer)) return integer;
  if (ParseDouble(text, &number)) return number;
  return text;
}

std::string PlainText(const Attribute& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<float>(&value)) return fmt::format("{}", *number);
  return ToString(value);
}

}  // namespace coracle::pir
