#include <coracle/distribute/row_flow.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/flow_types.h>
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

// Types of variables if the batch has `rows` rows and other open dimensions are `other`.
class TypesWithRows : public FlowTypes {
 public:
  TypesWithRows(const BlockDesc& block, const RowPlaceOf& place_of, int64_t rows, int64_t other)
      : FlowTypes(block), place_of_(place_of), rows_(rows), other_(other) {}

 protected:
  const VarMeta* Declared(const std::string& name) const override {
    const VarMeta* declared = FlowTypes::Declared(name);
    const RowPlace* place = declared ? place_of_(name) : nullptr;
    if (!place) return declared;
    const auto [at, is_new] = with_rows_.emplace(name, *declared);
    Shape& shape = at->second.shape;
    for (int d = 0; is_new && d < shape.rank(); ++d) {
      if (shape[d] < 0) shape[d] = d == place->axis ? rows_ * place->indices() : other_;
    }
    return &at->second;
  }

 private:
  const RowPlaceOf& place_of_;
  int64_t rows_, other_;
  mutable std::map<std::string, VarMeta> with_rows_;
};

// The shapes of an output for kRows and for twice as many rows.
struct TrialShapes {
  Shape once, twice;
};

// nullopt if the shape rule refuses these rows, or does not set the shape.
std::optional<TrialShapes> TrialWith(int64_t other, const OpDesc& op, const OpSpec& spec,
                                     const std::string& output, const BlockDesc& block,
                                     const RowPlaceOf& place_of) {
  TypesWithRows once(block, place_of, kRows, other), twice(block, place_of, 2 * kRows, other);
  for (TypesWithRows* types : {&once, &twice})
    if (!types->Infer(spec, op) || types->IsDeclaredOnly(output)) return std::nullopt;
  TrialShapes shapes = {once.Find(output)->shape, twice.Find(output)->shape};
  if (shapes.once.rank() != shapes.twice.rank()) return std::nullopt;
  return shapes;
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

// Whether the op joins rows of different inputs that do not belong together. The op joins them by
// position, so they must be in the same order. Their axes must also be the same, counted from the
// first axis or from the last.
bool JoinsOtherRows(const OpDesc& op, const OpSpec& spec, const RowSource& source,
                    const BlockDesc& block, const RowPlaceOf& place_of) {
  const RowPlace& first = *source.place;
  const RowPlace* folded = nullptr;
  return op.AnyInput([&](const std::string& name) {
    const RowPlace* place = place_of(name);
    if (!place) return false;
    if (place->indices() > 1) {
      if (!folded) folded = place;
      if (!place->SameOrder(*folded)) return true;
    }
    // Shape rules compare the axes of elementwise ops, and declared functions those of others.
    const VarDesc* var = block.FindVarRecursive(name);
    if (spec.elementwise || spec.rows.fn || !var || var->shape().rank() == 0) return false;
    return place->axis != first.axis &&
           var->shape().rank() - place->axis != source.rank() - first.axis;
  });
}

int64_t ElementsBefore(const Shape& shape, int axis) {
  int64_t elements = 1;
  for (int d = 0; d < axis && d < shape.rank(); ++d) elements *= shape[d] < 0 ? kOther : shape[d];
  return elements;
}

std::string HidesRows(const std::string& output) {
  return fmt::format("does not show by its shape rule where {} has the rows", Quote(output));
}

// The axis that grows with the rows.
RowFlow FlowByShapes(const TrialShapes& shapes, const std::string& output) {
  const auto& [once, twice] = shapes;
  RowFlow flow;
  int changed = 0;
  for (int d = 0; d < once.rank(); ++d) {
    if (once[d] == twice[d]) continue;
    ++changed;
    flow.place.axis = d;
    if (twice[d] != 2 * once[d] || once[d] % kRows != 0)
      flow.broken = "does not keep the number of rows";
  }
  if (changed == 0) {
    flow.broken = once.IsKnown() ? fmt::format("makes {} of all rows together", Quote(output))
                                 : HidesRows(output);
  }
  if (changed > 1) flow.broken = "combines each row with each other row";
  return flow;
}

// The flow to an axis that grows with the rows.
RowFlow FlowAlong(int axis, const OpSpec& spec, const RowSource& source, const Shape& once,
                  const std::string& output) {
  const RowPlace& from = *source.place;
  RowPlace to = {.axis = axis, .folded = from.folded, .each = from.each, .repeated = from.repeated};
  const int64_t indices = once[axis] / kRows;
  if (spec.alias.empty()) {
    if (indices % from.indices() != 0) return {.broken = "leaves out rows of the batch"};
    to.folded *= indices / from.indices();
    if (indices != from.indices()) to.repeated = output;
    return {.place = to};
  }
  // The elements keep their order (reshape): the rows stay together only if the elements before
  // them divide evenly.
  const int64_t before = ElementsBefore(source.var->shape(), from.axis);
  const int64_t left = ElementsBefore(once, axis);
  const int64_t blocks = from.folded * before;
  to.folded = left > 0 ? std::max<int64_t>(blocks / left, 1) : 1;
  to.each = indices / to.folded;
  const bool evenly = (left == 0 || blocks % left == 0) && indices % to.folded == 0;
  if (!evenly || (!from.repeated.empty() && (left != before || indices % from.indices() != 0)))
    return {.broken = "divides the rows among other dimensions"};
  return {.place = to};
}

// Whether LoD or values decide how many rows the output has: then they are at axis 0.
bool HasSequences(const OpDesc& op, const OpSpec& spec, const VarDesc& out,
                  const BlockDesc& block) {
  if (out.shape().rank() > 0 && out.shape()[0] >= 0) return false;
  return out.lod_level() > 0 || spec.run_time_shape || spec.makes_lod ||
         op.AnyInput([&](const std::string& name) {
           const VarDesc* var = block.FindVarRecursive(name);
           return var && var->lod_level() > 0;
         });
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
  if (!source.place || !source.var || !out) return {};
  if (ReadsRowsAsTable(op, spec, place_of) ||
      WorksAlongRows(op, spec, out->shape().rank(), block, place_of))
    return {.broken = "mixes the rows of the batch"};
  if (JoinsOtherRows(op, spec, source, block, place_of))
    return {.broken = "joins rows that are on different axes, or in different orders"};
  auto shapes = TrialWith(kOther, op, spec, output, block, place_of);
  // The trial fails if a parameter has a size that does not fit kOther. The next trial leaves these
  // dimensions open: they fit every size. It cannot tell whether two axes have the same size, so
  // all rows must be on one axis.
  const bool on_one_axis = !op.AnyInput([&](const std::string& name) {
    const RowPlace* place = place_of(name);
    return place && place->axis != source.place->axis;
  });
  if (!shapes && on_one_axis) shapes = TrialWith(-1, op, spec, output, block, place_of);
  const RowFlow flow =
      shapes ? FlowByShapes(*shapes, output) : RowFlow{.broken = HidesRows(output)};
  if (flow.broken.empty()) return FlowAlong(flow.place.axis, spec, source, shapes->once, output);
  if (shapes && shapes->once.IsKnown()) return flow;
  return HasSequences(op, spec, *out, block) && *source.place == RowPlace{} ? RowFlow{} : flow;
}

}  // namespace coracle::inline internal
