#include <coracle/distribute/exchange_ops.h>
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

// Types of variables if the batch has `rows` rows and other open dimensions are `other`.
class TypesWithRows : public FlowTypes {
 public:
  TypesWithRows(const BlockDesc& block, const RowPlaceOf& place_of, int64_t rows, int64_t other)
      : FlowTypes(block), place_of_(place_of), rows_(rows), other_(other) {}

 protected:
  const VarMeta* Declared(const std::string& name) const override {
    const VarMeta* declared = FlowTypes::Declared(name);
    if (!declared || declared->shape.IsKnown()) return declared;
    const RowPlace* place = place_of_(name);
    const auto [at, is_new] = with_rows_.emplace(name, *declared);
    Shape& shape = at->second.shape;
    for (int d = 0; is_new && d < shape.rank(); ++d) {
      if (shape[d] < 0) shape[d] = place && d == place->axis ? rows_ * place->indices() : other_;
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

std::string HidesRows(const std::string& output) {
  return fmt::format("does not show by its shape rule where {} has the rows", Quote(output));
}

int64_t ElementsBefore(const Shape& shape, int axis) {
  int64_t elements = 1;
  for (int d = 0; d < axis && d < shape.rank(); ++d) elements *= shape[d] < 0 ? kOther : shape[d];
  return elements;
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

// An op, and where its inputs have rows.
class OpWithRows {
 public:
  OpWithRows(const OpDesc& op, const OpSpec& spec, const BlockDesc& block,
             const RowPlaceOf& place_of)
      : op_(op), spec_(spec), block_(block), place_of_(place_of) {
    op.ForEachInput([&](const std::string& name) {
      if (place_) return;
      place_ = place_of(name);
      var_ = block.FindVarRecursive(name);
    });
  }

  RowEffect EffectOn(std::string_view slot) const {
    return RowEffectOf({op_, spec_, slot, place_ ? place_->axis : 0, rank()});
  }

  RowFlow FlowTo(const std::string& output) const {
    const VarDesc* out = block_.FindVarRecursive(output);
    if (!place_ || !var_ || !out) return {};
    if (ReadsRowsAsTable() || WorksAlongRows()) return {.broken = "mixes the rows of the batch"};
    if (JoinsOtherRows())
      return {.broken = "joins rows that are on different axes, or in different orders"};
    auto shapes = TrialWith(kOther, output);
    // The trial fails if a parameter has a size that does not fit kOther. The next trial leaves
    // these dimensions open: they fit every size. It cannot tell whether two axes have the same
    // size, so all rows must be on one axis, and only inputs with rows may have open dimensions.
    const bool on_one_axis = !op_.AnyInput([&](const std::string& name) {
      const RowPlace* place = place_of_(name);
      const VarDesc* var = block_.FindVarRecursive(name);
      return place ? place->axis != place_->axis : var && !var->shape().IsKnown();
    });
    if (!shapes && on_one_axis) shapes = TrialWith(-1, output);
    const RowFlow flow =
        shapes ? FlowByShapes(*shapes, output) : RowFlow{.broken = HidesRows(output)};
    if (flow.broken.empty()) return FlowAlong(flow.place.axis, shapes->once, output);
    if ((shapes && shapes->once.IsKnown()) || ReadsAxis()) return flow;
    return HasSequences(*out) && *place_ == RowPlace{} ? RowFlow{} : flow;
  }

 private:
  int rank() const { return var_ ? var_->shape().rank() : 0; }

  bool ReadsRowsAsTable() const {
    return std::any_of(spec_.rows.tables.begin(), spec_.rows.tables.end(), [&](const auto& slot) {
      const std::vector<std::string>& args = op_.Input(slot);
      return std::any_of(args.begin(), args.end(), place_of_);
    });
  }

  // Whether the op works along the axis on which its first input has the rows.
  bool WorksAlongRows() const {
    if (spec_.rows.fn || spec_.inputs.empty()) return false;
    const std::vector<std::string>& names = op_.Input(spec_.inputs[0].name);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const RowPlace* place = place_of_(name);
      const VarDesc* var = place ? block_.FindVarRecursive(name) : nullptr;
      return var && Contains(spec_.AxesOf(op_, var->shape().rank()), place->axis);
    });
  }

  // Whether a tensor gives the axis of the op. This axis may be the axis of the rows.
  bool ReadsAxis() const { return op_.HasInput("AxisTensor"); }

  // Whether the op joins rows of different inputs that do not belong together. The op joins them by
  // position, so they must be in the same order. Their axes must also be the same, counted from the
  // first axis or from the last.
  bool JoinsOtherRows() const {
    const RowPlace* folded = nullptr;
    return op_.AnyInput([&](const std::string& name) {
      const RowPlace* place = place_of_(name);
      if (!place) return false;
      if (place->indices() > 1) {
        if (!folded) folded = place;
        if (!place->SameOrder(*folded)) return true;
      }
      // Shape rules compare the axes of elementwise ops; declared functions decide for other ops.
      const VarDesc* var = block_.FindVarRecursive(name);
      if (spec_.elementwise || spec_.rows.fn || !var || var->shape().rank() == 0) return false;
      return place->axis != place_->axis &&
             var->shape().rank() - place->axis != rank() - place_->axis;
    });
  }

  // nullopt if the shape rule refuses these rows, or does not set the shape.
  std::optional<TrialShapes> TrialWith(int64_t other, const std::string& output) const {
    TypesWithRows once(block_, place_of_, kRows, other), twice(block_, place_of_, 2 * kRows, other);
    for (TypesWithRows* types : {&once, &twice})
      if (!types->Infer(spec_, op_) || types->IsDeclaredOnly(output)) return std::nullopt;
    TrialShapes shapes = {once.Find(output)->shape, twice.Find(output)->shape};
    if (shapes.once.rank() != shapes.twice.rank()) return std::nullopt;
    // Some ops drop dimensions of 1, such as that of a single row (squeeze).
    TypesWithRows single(block_, place_of_, 1, other);
    if (single.Infer(spec_, op_) && single.Find(output)->shape.rank() != shapes.once.rank())
      return std::nullopt;
    return shapes;
  }

  // The flow to an axis that grows with the rows.
  RowFlow FlowAlong(int axis, const Shape& once, const std::string& output) const {
    const RowPlace& from = *place_;
    RowPlace to = {
        .axis = axis, .folded = from.folded, .each = from.each, .repeated = from.repeated};
    const int64_t indices = once[axis] / kRows;
    if (spec_.alias.empty()) {
      if (indices % from.indices() != 0) return {.broken = "leaves out rows of the batch"};
      to.folded *= indices / from.indices();
      if (indices != from.indices()) to.repeated = output;
      return {.place = to};
    }
    // The elements keep their order (reshape): the rows stay together only if the elements before
    // them divide evenly.
    const int64_t before = ElementsBefore(var_->shape(), from.axis);
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
  bool HasSequences(const VarDesc& out) const {
    if (out.shape().rank() > 0 && out.shape()[0] >= 0) return false;
    return out.lod_level() > 0 || spec_.run_time_shape || MakesLod(spec_) ||
           op_.AnyInput([&](const std::string& name) {
             const VarDesc* var = block_.FindVarRecursive(name);
             return var && var->lod_level() > 0;
           });
  }

  const OpDesc& op_;
  const OpSpec& spec_;
  const BlockDesc& block_;
  const RowPlaceOf& place_of_;
  // The first input that has rows.
  const RowPlace* place_ = nullptr;
  const VarDesc* var_ = nullptr;
};

}  // namespace

bool MakesLod(const OpSpec& spec) { return spec.makes_lod && spec.lod_axis.empty(); }

RowEffect EffectOn(const OpDesc& op, const OpSpec& spec, std::string_view slot,
                   const BlockDesc& block, const RowPlaceOf& place_of) {
  return OpWithRows(op, spec, block, place_of).EffectOn(slot);
}

RowFlow FlowOf(const OpDesc& op, const OpSpec& spec, const std::string& output,
               const BlockDesc& block, const RowPlaceOf& place_of) {
  return OpWithRows(op, spec, block, place_of).FlowTo(output);
}

}  // namespace coracle::inline internal
