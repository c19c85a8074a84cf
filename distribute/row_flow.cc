#include <coracle/distribute/row_flow.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/run_rules.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace coracle {
namespace {

constexpr int64_t kRows = 240, kOther = 60;  // with many divisors, for ops that divide dimensions

// The types of the inputs, where they have so many rows, and of what a shape rule makes of them.
class TypesWithRows : public MetaTable {
 public:
  TypesWithRows(const BlockDesc& block, const RowPlaceOf& place_of, int64_t rows)
      : block_(block), place_of_(place_of), rows_(rows) {}

  const VarMeta* Find(const std::string& name) const override {
    const VarDesc* var = block_.FindVarRecursive(name);
    if (!var) return nullptr;
    const auto [at, is_new] = read_.emplace(name, var->meta());
    const RowPlace* place = place_of_(name);
    if (!is_new || !place) return &at->second;
    Shape& shape = at->second.shape;
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape[d] < 0) shape[d] = d == place->axis ? rows_ * place->folded : kOther;
    }
    return &at->second;
  }
  void Set(const std::string& name, const VarMeta& meta) override { made_[name] = meta; }

  std::optional<Shape> Made(const std::string& name) const {
    const auto at = made_.find(name);
    if (at == made_.end() || !at->second.shape.IsKnown()) return std::nullopt;
    return at->second.shape;
  }

 private:
  const BlockDesc& block_;
  const RowPlaceOf& place_of_;
  int64_t rows_;
  mutable std::map<std::string, VarMeta> read_;
  std::map<std::string, VarMeta> made_;
};

// nullopt where the rule does not tell, or refuses that number.
std::optional<Shape> ShapeWith(int64_t rows, const OpDesc& op, const std::string& output,
                               const BlockDesc& block, const OpSpec& spec,
                               const RowPlaceOf& place_of) {
  TypesWithRows types(block, place_of, rows);
  InferContext context(spec, op, types);
  try {
    RunInfer(context);
  } catch (const Error&) {
    return std::nullopt;
  }
  return types.Made(output);
}

std::vector<int64_t> Integers(const Attribute& attr) {
  if (const auto* one = std::get_if<int32_t>(&attr)) return {*one};
  if (const auto* one = std::get_if<int64_t>(&attr)) return {*one};
  if (const auto* all = std::get_if<std::vector<int32_t>>(&attr)) return {all->begin(), all->end()};
  if (const auto* all = std::get_if<std::vector<int64_t>>(&attr)) return *all;
  return {};
}

// The elements stay in their order (reshape2): no attr of theirs is an axis to work along.
bool KeepsOrder(const OpSpec& spec) { return !spec.alias.empty(); }

// Where an attr counts axes of the first input, and names that of its rows.
bool WorksAlongRows(const OpDesc& op, const OpSpec& spec, int rank_out, const BlockDesc& block,
                    const RowPlaceOf& place_of) {
  if (spec.elementwise || KeepsOrder(spec) || spec.inputs.empty()) return false;
  const std::string& type = op.type();
  if (type == "transpose" || type == "transpose2" || type == "clip_by_norm") return false;
  for (const std::string& name : op.Input(spec.inputs[0].name)) {
    const RowPlace* place = place_of(name);
    const VarDesc* var = place ? block.FindVarRecursive(name) : nullptr;
    const int rank = var ? var->shape().rank() : 0;
    if (rank == 0 || rank_out > rank) continue;  // of the output, as stack and unsqueeze have it
    for (const char* attr : {"axis", "axes", "dim", "dims"}) {
      if (!spec.FindAttr(attr)) continue;
      for (const int64_t axis : Integers(spec.AttrValue(op, attr)))
        if (axis == place->axis || axis + rank == place->axis) return true;
    }
    if (spec.FindAttr("begin_norm_axis") &&
        spec.AttrOf<int32_t>(op, "begin_norm_axis") <= place->axis)
      return true;
    if (spec.FindAttr("flatten") && spec.AttrOf<bool>(op, "flatten")) return true;
  }
  return false;
}

// What no attr and no shape tells; test/distribute finds those that are missing.
constexpr std::string_view kMixers[] = {"bipartite_match",
                                        "coalesce_tensor",
                                        "collect_fpn_proposals",
                                        "gather_tree",
                                        "matrix_nms",
                                        "distribute_fpn_proposals",
                                        "locality_aware_nms",
                                        "multiclass_nms",
                                        "multiclass_nms2",
                                        "multiclass_nms3",
                                        "pad_constant_like",
                                        "retinanet_target_assign",
                                        "roll",
                                        "scatter",
                                        "scatter_nd_add",
                                        "segment_pool",
                                        "unique",
                                        "unique_with_counts"};

// Whether clip_by_norm has a norm for each row, and one limit for all or one for each.
bool ClipsEachRow(const OpDesc& op, const OpSpec& spec, const RowPlaceOf& place_of) {
  const RowPlace* place = place_of(op.Input("X").at(0));
  return place && spec.AttrOf<int32_t>(op, "axis") == place->axis;
}

bool MixesRows(const OpDesc& op, const OpSpec& spec, const BlockDesc& block,
               const RowPlaceOf& place_of) {
  const std::string& type = op.type();
  if (std::find(std::begin(kMixers), std::end(kMixers), type) != std::end(kMixers)) return true;
  if (type == "clip_by_norm") return !ClipsEachRow(op, spec, place_of);
  // Scaled by the largest element, unless the scale is fixed.
  if (type.starts_with("fake_") && type.find("abs_max") != type.npos)
    return !spec.FindAttr("is_test") || !spec.AttrOf<bool>(op, "is_test");
  bool mixes = false;
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    const RowPlace* place = place_of(name);
    if (!place) return;
    // Every row of the result may need all rows of a table or filter.
    for (const char* weights : {"W", "Embs", "Weight", "Filter", "Bias"}) mixes |= slot == weights;
    const VarDesc* var = block.FindVarRecursive(name);
    const int behind = var ? var->shape().rank() - 1 - place->axis : -1;
    mixes |= behind == 0 && (type == "label_smooth" || type == "top_k");
    mixes |= behind >= 0 && behind < 2 && type == "tril_triu";
  });
  return mixes;
}

int64_t Before(const Shape& shape, int axis) {
  int64_t elements = 1;
  for (int d = 0; d < axis && d < shape.rank(); ++d) elements *= shape[d] < 0 ? kOther : shape[d];
  return elements;
}

}  // namespace

RowFlow FlowOf(const OpDesc& op, const std::string& output, const BlockDesc& block,
               const OpRegistry& ops, const RowPlaceOf& place_of) {
  const RowPlace* first = nullptr;
  const std::string* source = nullptr;
  op.ForEachInput([&](const std::string& name) {
    const RowPlace* place = place_of(name);
    if (!place || first) return;
    first = place;
    source = &name;
  });
  RowFlow flow;
  if (first) flow.place.folded = first->folded;
  const VarDesc* out = block.FindVarRecursive(output);
  for (int d = 0; out && d < out->shape().rank(); ++d) {
    if (out->shape()[d] >= 0) continue;
    flow.place.axis = d;
    break;
  }
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || !first || !out) return flow;
  if (MixesRows(op, *spec, block, place_of) ||
      WorksAlongRows(op, *spec, out->shape().rank(), block, place_of)) {
    flow.broken = "works along the rows of the rank's part";
    return flow;
  }
  const auto once = ShapeWith(kRows, op, output, block, *spec, place_of);
  const auto twice = ShapeWith(2 * kRows, op, output, block, *spec, place_of);
  if (!once || !twice || once->rank() != twice->rank()) return flow;
  int changed = 0;
  for (int d = 0; d < once->rank(); ++d) {
    if ((*once)[d] == (*twice)[d]) continue;
    ++changed;
    flow.place.axis = d;
    if ((*twice)[d] != 2 * (*once)[d]) flow.broken = "makes another number of rows of them";
  }
  if (changed == 0) flow.broken = fmt::format("makes {} of the rank's rows", Quote(output));
  if (changed > 1) flow.broken = "lets the rows of " + Quote(*source) + " meet each other";
  if (!KeepsOrder(*spec)) {
    const int64_t times = (*once)[flow.place.axis] / (kRows * first->folded);
    flow.place.folded = first->folded * std::max<int64_t>(times, 1);
    return flow;
  }
  // As many blocks of rows behind each other as before.
  const VarDesc* from = block.FindVarRecursive(*source);
  const int64_t blocks = first->folded * Before(from->shape(), first->axis);
  const int64_t left = Before(*once, flow.place.axis);
  if (flow.broken.empty() && left > 0 && blocks % left != 0)
    flow.broken = "divides the rows among other dimensions";
  flow.place.folded = left > 0 ? std::max<int64_t>(blocks / left, 1) : 1;
  return flow;
}

}  // namespace coracle
