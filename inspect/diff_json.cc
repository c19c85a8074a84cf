#include <coracle/inspect/diff.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace coracle {
namespace {

using Json = nlohmann::ordered_json;

Json ChangesJson(const std::vector<DiffChange>& changes) {
  Json list = Json::array();
  for (const DiffChange& change : changes) {
    Json one = {{"what", change.what}};
    if (!change.name.empty()) one["name"] = change.name;
    one["before"] = change.before;
    one["after"] = change.after;
    list.push_back(std::move(one));
  }
  return list;
}

Json NameJson(const std::string& name) { return name.empty() ? Json() : Json(name); }

Json PlaceJson(int block, int op) { return op < 0 ? Json() : Json{{"block", block}, {"op", op}}; }

Json VarsJson(const BlockDiff& block) {
  Json list = Json::array();
  for (const VarDiff& var : block.vars) {
    list.push_back({{"before", NameJson(var.before)},
                    {"after", NameJson(var.after)},
                    {"changes", ChangesJson(var.changes)}});
  }
  return list;
}

Json OpsJson(const BlockDiff& block, const ProgramDesc& before, const ProgramDesc& after) {
  Json list = Json::array();
  for (const OpDiff& diff : block.ops) {
    const OpDesc& op = diff.after < 0 ? before.Block(block.before).op(size_t(diff.before))
                                      : after.Block(block.after).op(size_t(diff.after));
    Json one = {{"type", op.type()},
                {"before", PlaceJson(block.before, diff.before)},
                {"after", PlaceJson(block.after, diff.after)},
                {"changes", ChangesJson(diff.changes)}};
    if (!diff.moved_over.empty()) one["moved_over"] = diff.moved_over;
    list.push_back(std::move(one));
  }
  return list;
}

Json IndexJson(int block) { return block < 0 ? Json() : Json(block); }

// JSON has no nan and no infinity.
Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json ValuesJson(const std::vector<ValueDiff>& values) {
  Json list = Json::array();
  for (const ValueDiff& value : values) {
    Json one = {{"before", value.before}, {"after", value.after}};
    if (!value.problem.empty()) {
      one["problem"] = value.problem;
    } else {
      one["different"] = value.different;
      one["elements"] = value.elements;
      one["max_difference"] = NumberJson(value.max_difference);
      one["worst"] = value.worst;
      one["worst_before"] = NumberJson(value.worst_before);
      one["worst_after"] = NumberJson(value.worst_after);
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
  const Json json = {{"format", "coracle.diff"},
                     {"version", 1},
                     {"equal", diff.empty() && values.empty()},
                     {"changes", ChangesJson(diff.changes)},
                     {"blocks", blocks},
                     {"reordered", diff.reordered},
                     {"values", ValuesJson(values)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace coracle
