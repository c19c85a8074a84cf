#include <coracle/layers/internal/model_reader.h>

namespace coracle::inline internal {
namespace {

using google::protobuf::FieldDescriptor;

bool Holds(const Node& rule, const StateToMatch& state) {
  if (rule.Has("phase") && (rule.Integer("phase") == 0) != state.train) return false;
  if (rule.Has("min_level") && state.level < rule.Integer("min_level")) return false;
  if (rule.Has("max_level") && state.level > rule.Integer("max_level")) return false;
  auto among = [&](const std::string& stage) { return state.stages.count(stage) > 0; };
  const FieldDescriptor &stage = rule.Field("stage"), &not_stage = rule.Field("not_stage");
  for (int i = 0; i < rule.Count(stage); ++i)
    if (!among(rule.String(stage, i))) return false;
  for (int i = 0; i < rule.Count(not_stage); ++i)
    if (among(rule.String(not_stage, i))) return false;
  return true;
}

}  // namespace

bool Includes(const Node& entry, const StateToMatch& state, bool* has_rules) {
  const int include = entry.Count("include_if"), exclude = entry.Count("exclude_if");
  if (include > 0 && exclude > 0) entry.Fail("an entry has include_if or exclude_if, not both");
  if (include + exclude == 0) return true;
  *has_rules = true;
  const char* rules = include > 0 ? "include_if" : "exclude_if";
  bool any = false;
  for (int i = 0; i < include + exclude; ++i) any = any || Holds(entry.Child(rules, i), state);
  return include > 0 ? any : !any;
}

}  // namespace coracle::inline internal
