#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>

namespace coracle {
namespace {

Json ChangesJson(const std::vector<DiffChange>& changes) {
  Json list = Json::array();
  for (const DiffChange& change : changes) {
    Json one = {{"what", JsonString(change.what)}};
    if (!change.name.empty()) one["name"] = JsonString(change.name);
    one["before"] = JsonString(change.before);
    one["after"] = JsonString(change.after);
    list.push_back(std::move(one));
  }
  return list;
}

Json NameJson(const std::string& name) { return name.empty() ? Json() : JsonString(name); }

Json PlaceJson(int block, int op) { return op < 0 ? Json() : Json{{"block", block}, {"op", op}}; }

Json VarsJson(const BlockDiff& block) {
  Json list = Json::array();
  for (const VarDiff& var : block.vars) {
    list.push_back({{"before", NameJson(var.before)},
                    {"after", NameJson(var.after)},
                    {"told_by_ops", var.told_by_ops},
                    {"changes", ChangesJson(var.changes)}});
  }
  return list;
}

Json OpsJson(const BlockDiff& block, const ProgramDesc& before, const ProgramDesc& after) {
  Json list = Json::array();
  for (const OpDiff& diff : block.ops) {
    const OpDesc& op = diff.after < 0 ? before.Block(block.before).op(size_t(diff.before))
                                      : after.Block(block.after).op(size_t(diff.after));
    Json one = {{"type", JsonString(op.type())},
                {"before", PlaceJson(block.before, diff.before)},
                {"after", PlaceJson(block.after, diff.after)},
                {"changes", ChangesJson(diff.changes)}};
    if (!diff.moved_over.empty()) one["moved_over"] = JsonString(diff.moved_over);
    list.push_back(std::move(one));
  }
  return list;
}

Json IndexJson(int block) { return block < 0 ? Json() : Json(block); }

// Strings and large uint64 have a text.
Json ElementJson(const std::string& text, const std::optional<int64_t>& integer, double number) {
  if (!text.empty()) return JsonString(text);
  return integer ? Json(*integer) : JsonNumber(number);
}

Json ValuesJson(const std::vector<ValueDiff>& values) {
  Json list = Json::array();
  for (const ValueDiff& value : values) {
    Json one = {{"before", JsonString(value.before)}, {"after", JsonString(value.after)}};
    if (!value.problem.empty()) {
      one["problem"] = JsonString(value.problem);
    } else {
      one["different"] = JsonNumber(value.different);
      one["elements"] = JsonNumber(value.elements);
      one["max_difference"] = JsonNumber(value.max_difference);
      one["worst"] = JsonNumber(value.worst);
      one["worst_before"] =
          ElementJson(value.text_before, value.integer_before, value.worst_before);
      one["worst_after"] = ElementJson(value.text_after, value.integer_after, value.worst_after);
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

std::string DiffJson(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const std::vector<ValueDiff>& values) {
  Json blocks = Json::array();
  for (const BlockDiff& block : diff.blocks) {
    blocks.push_back({{"before", IndexJson(block.before)},
                      {"after", IndexJson(block.after)},
                      {"changes", ChangesJson(block.changes)},
                      {"vars", VarsJson(block)},
                      {"ops", OpsJson(block, before, after)}});
  }
  Json json = JsonDocument("diff");
  json["equal"] = diff.empty() && values.empty();
  json["changes"] = ChangesJson(diff.changes);
  json["blocks"] = std::move(blocks);
  json["reordered"] = diff.reordered;
  json["values"] = ValuesJson(values);
  return JsonText(json);
}

}  // namespace coracle
