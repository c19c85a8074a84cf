#pragma once
// The words of a row (op_reader.h), for the reader and the writer.

#include <coracle/framework/ir/op.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coracle::pir {

std::vector<std::string> Words(const char* text);

// Whether the attribute chooses an implementation, which does not change what an op computes.
bool ChoosesImplementation(const std::string& name);

// "=NAME>ATTR:SLOT:LIST"
struct SettingWord {
  std::string name, attr, slot, list;
};
SettingWord ParseSetting(const std::string& word);

// What a row says of attributes.
struct AttrRules {
  std::map<std::string, std::string> renamed, required;
  std::set<std::string> left_out;
  std::vector<std::pair<std::string, std::string>> added;
  bool saturate = false;
};
AttrRules ParseAttrRules(const char* text);

// "true", "3" or a text, as the value of an attribute of this type.
Attribute ParseValue(const std::string& text, AttrType type);
// The same the other way round.
std::string PlainText(const Attribute& value);

}  // namespace coracle::pir
