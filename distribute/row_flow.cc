#include <coracle/distribute/row_flow.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/flow_types.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr int64_t kRows = 240, kOther = 60;  // with many divisors, for ops that divide dimensions

// The first input that has rows.
struct RowSource {
  const RowPlace* place = nullptr;
  const VarDesc* var = nullptr;

  int rank() const { return var ? var->shape().rank() : 0; }
};

RowSource SourceOf(const OpDesc& op, const BlockDesc& block, const RowPlaceOf& place_of) {
  RowSource source;
  op.ForEachInput([&](const std::string& name) {
    if (source.place) return;
    source = {place_of(name), block.FindVarRecursive(name)};
  });
  return source;
}

// Types of variables if the batch has `rows` rows and other open dimensions are kOther.
class TypesWithRows : public FlowTypes {
 public:
  TypesWithRows(const BlockDesc& block, const RowPlaceOf& place_of, int64_t rows)
      : FlowTypes(block), place_of_(place_of), rows_(rows) {}

 protected:
  const VarMeta* Declared(const std::string& name) const override {
    const VarMeta* declared = FlowTypes::Declared(name);
    const RowPlace* place = declared ? place_of_(name) : nullptr;
    if (!place) return declared;
    const auto [at, is_new] = with_rows_.emplace(name, *declared);
    Shape& shape = at->second.shape;
    for (int d = 0; is_new && d < shape.rank(); ++d) {
      if (shape[d] < 0) shape[d] = d == place->axis ? rows_ * place->folded : kOther;
    }
    return &at->second;
  }

 private:
  const RowPlaceOf& place_of_;
  int64_t rows_;
  mutable std::map<std::string, VarMeta> with_rows_;
};

// nullopt if the shape rule does not determine the shape, or refuses that number of rows.
std::optional<Shape> ShapeWith(int64_t rows, const OpDesc& op, const OpSpec& spec,
                               const std::string& output, const BlockDesc& block,
                               const RowPlaceOf& place_of) {
  TypesWithRows types(block, place_of, rows);
  if (!types.Infer(spec, op) || types.IsDeclaredOnly(output)) return std::nullopt;
  const Shape& shape = types.Find(output)->shape;
  return shape.IsKnown() ? std::optional(shape) : std::nullopt;
}

std::vector<int64_t> Integers(const Attribute& attr) {
  if (const auto* one = std::get_if<int32_t>(&attr)) return {*one};
  if (const auto* one = std::get_if<int64_t>(&attr)) return {*one};
  if (const auto* all = std::get_if<std::vector<int32_t>>(&attr)) return {all->begin(), all->end()};
  if (const auto* all = std::get_if<std::vector<int64_t>>(&attr)) return *all;
  return {};
}

// Whether an attr that counts the axes of the first input names the axis of its rows. Such attrs
// may count the axes of an output with more axes (stack, unsqueeze).
bool WorksAlongRows(const OpDesc& op, const OpSpec& spec, int rank_out, const BlockDesc& block,
                    const RowPlaceOf& place_of) {
  const bool decides = spec.rows.fn || spec.elementwise ||
                       RowEffectOf({op, spec, ""}).rule == RowRule::kMoves || spec.inputs.empty();
  if (decides) return false;
  for (const std::string& name : op.Input(spec.inputs[0].name)) {
    const RowPlace* place = place_of(name);
    const VarDesc* var = place ? block.FindVarRecursive(name) : nullptr;
    const int rank = var ? var->shape().rank() : 0;
    if (rank == 0 || rank_out > rank) continue;
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

bool ReadsRowsAsTable(const OpDesc& op, const OpSpec& spec, const RowPlaceOf& place_of) {
  return std::any_of(spec.rows.tables.begin(), spec.rows.tables.end(), [&](const auto& slot) {
    const std::vector<std::string>& args = op.Input(slot);
    return std::any_of(args.begin(), args.end(), place_of);
  });
}

int64_t ElementsBefore(const Shape& shape, int axis) {
  int64_t elements = 1;
  for (int d = 0; d < axis && d < shape.rank(); ++d) elements *= shape[d] < 0 ? kOther : shape[d];
  return elements;
}

int FirstOpenAxis(const Shape& shape) {
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d] < 0) return d;
  return 0;
}

// The flow that the shapes with kRows and with twice as many rows show.
RowFlow FlowByShapes(const Shape& once, const Shape& twice, const std::string& output) {
  RowFlow flow;
  int changed = 0;
  for (int d = 0; d < once.rank(); ++d) {
    if (once[d] == twice[d]) continue;
    ++changed;
    flow.place.axis = d;
    if (twice[d] != 2 * once[d]) flow.broken = "does not keep the number of rows";
  }
  if (changed == 0) flow.broken = fmt::format("makes {} of all rows together", Quote(output));
  if (changed > 1) flow.broken = "combines each row with each other row";
  return flow;
}

}  // namespace

RowEffect EffectOn(const OpDesc& op, const OpSpec& spec, std::string_view slot,
                   const BlockDesc& block, const RowPlaceOf& place_of) {
  const RowSource source = SourceOf(op, block, place_of);
  const int axis = source.place ? source.place->axis : 0;
  return RowEffectOf({op, spec, slot, axis, source.rank()});
}

RowFlow FlowOf(const OpDesc& op, const OpSpec& spec, const std::string& output,
               const BlockDesc& block, const RowPlaceOf& place_of) {
  const RowSource source = SourceOf(op, block, place_of);
  const VarDesc* out = block.FindVarRecursive(output);
  RowFlow flow;
  if (!source.place || !source.var || !out) return flow;
  flow.place = {FirstOpenAxis(out->shape()), source.place->folded};
  if (ReadsRowsAsTable(op, spec, place_of) ||
      WorksAlongRows(op, spec, out->shape().rank(), block, place_of)) {
    flow.broken = "mixes the rows of the batch";
    return flow;
  }
  const auto once = ShapeWith(kRows, op, spec, output, block, place_of);
  const auto twice = ShapeWith(2 * kRows, op, spec, output, block, place_of);
  if (!once || !twice || once->rank() != twice->rank()) return flow;
  flow = FlowByShapes(*once, *twice, output);
  if (spec.alias.empty()) {
    const int64_t times = (*once)[flow.place.axis] / (kRows * source.place->folded);
    flow.place.folded = source.place->folded * std::max<int64_t>(times, 1);
    return flow;
  }
  // The elements keep their order (reshape): the rows stay together only if the elements before
  // them divide evenly.
  const int64_t blocks =
      source.place->folded * ElementsBefore(source.var->shape(), source.place->axis);
  const int64_t left = ElementsBefore(*once, flow.place.axis);
  if (flow.broken.empty() && left > 0 && blocks % left != 0)
    flow.broken = "divides the rows among other dimensions";
  flow.place.folded = left > 0 ? std::max<int64_t>(blocks / left, 1) : 1;
  return flow;
}

}  // namespace coracle::inline internal
