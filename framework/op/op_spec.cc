#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/attr_limits.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

namespace coracle {
namespace {

template <class Def>
const Def* FindByName(const std::vector<Def>& defs, std::string_view name) {
  for (const Def& def : defs) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

// Attr of an op without LoD that lets LoD pass nevertheless.
constexpr std::string_view kKeepsLod = "keeps_lod";
// Attr of an op with a block that selects the source of each output's LoD: the position of an input
// in the first slot, or -1 for none.
constexpr std::string_view kLodFrom = "lod_from";

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Defined here to keep them out of every file that declares an op.
OpSpec::OpSpec() = default;
OpSpec::OpSpec(const OpSpec& other) = default;
OpSpec::OpSpec(OpSpec&& other) noexcept = default;
OpSpec& OpSpec::operator=(const OpSpec& other) = default;
OpSpec& OpSpec::operator=(OpSpec&& other) noexcept = default;
OpSpec::~OpSpec() = default;

const SlotDef* OpSpec::FindInput(std::string_view name) const { return FindByName(inputs, name); }
const SlotDef* OpSpec::FindOutput(std::string_view name) const { return FindByName(outputs, name); }
const AttrDef* OpSpec::FindAttr(std::string_view name) const { return FindByName(attrs, name); }

const ConstraintDef* OpSpec::FindConstraint(std::string_view id) const {
  for (const ConstraintDef& constraint : constraints) {
    if (constraint.id == id) return &constraint;
  }
  return nullptr;
}

bool OpSpec::HasLoopFor(DType dtype) const {
  return std::find(kernel_dtypes.begin(), kernel_dtypes.end(), dtype) != kernel_dtypes.end();
}

std::string OpSpec::Documentation() const {
  std::string text = doc;
  for (const ConstraintDef& c : constraints) text += fmt::format(" {}: {}.", c.id, c.text);
  return text;
}

namespace {

bool HasBlockAttr(const std::vector<AttrDef>& attrs) {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const AttrDef& attr) { return attr.type == AttrType::kBlock; });
}

}  // namespace

// The kernels of most ops support only dense tensors.
bool OpSpec::TakesStrings() const {
  return strings || kind != OpKind::kCompute || HasBlockAttr(attrs);
}

bool OpSpec::TakesAnyValue() const { return side_effect || takes_any_value || HasBlockAttr(attrs); }

bool OpSpec::SlotTakes(std::string_view input, VarType value) const {
  const SlotDef* slot = FindInput(input);
  // The declaration of a slot takes precedence over the rule for the op.
  if (slot && !slot->takes.empty()) return slot->Takes(value);
  return TakesAnyValue() || (slot && slot->Takes(value));
}

bool OpSpec::IsShared(std::string_view slot) const { return Contains(shared_slots, slot); }
bool OpSpec::StaysFloat32(std::string_view slot) const { return Contains(float32_slots, slot); }

bool OpSpec::UpdatesInPlace(const OpDesc& op, std::string_view name) const {
  for (const auto& [in, out] : inplace) {
    const auto& ins = op.Input(in);
    const auto& outs = op.Output(out);
    for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
      if (ins[i] == name && outs[i] == name) return true;
    }
  }
  return false;
}

const std::string* OpSpec::LodSource(const OpDesc& op, std::string_view output, size_t i) const {
  const bool made = makes_lod && lod_axis.empty();
  if (FindAttr(kLodFrom)) {
    const auto places = AttrOf<std::vector<int32_t>>(op, kLodFrom);
    const std::vector<std::string>& args = op.Input(inputs[0].name);
    const int64_t place = i < places.size() ? places[i] : -1;
    return place >= 0 && place < std::ssize(args) ? &args[static_cast<size_t>(place)] : nullptr;
  }
  const bool none = no_lod && !(FindAttr(kKeepsLod) && AttrOf<bool>(op, kKeepsLod));
  if (none || made || inputs.empty() || !op.SubBlocks().empty()) return nullptr;
  std::string_view slot = lod_slot.empty() ? inputs[0].name : lod_slot;
  if (lod_slot.empty() && output.ends_with(kGradSuffix)) {
    slot = output.substr(0, output.size() - kGradSuffix.size());
    if (!op.HasInput(slot)) {
      const auto grad = std::find_if(inputs.begin(), inputs.end(), [&](const SlotDef& input) {
        return input.name.ends_with(kGradSuffix);
      });
      if (grad != inputs.end()) slot = grad->name;
    }
  }
  const std::vector<std::string>& args = op.Input(slot);
  if (args.empty()) return nullptr;
  const std::string& source = args[i < args.size() ? i : 0];
  return IsEmptyName(source) ? nullptr : &source;
}

namespace {

// The attr, a number or a list of numbers.
std::vector<int64_t> ReadNumbers(const OpSpec& spec, const OpDesc& op, std::string_view name) {
  const Attribute& value = spec.AttrValue(op, name);
  if (const auto* one = std::get_if<int32_t>(&value)) return {*one};
  if (const auto* one = std::get_if<int64_t>(&value)) return {*one};
  return spec.AttrOf<std::vector<int64_t>>(op, name);
}

}  // namespace

bool OpSpec::PassesLod(const OpDesc& op, const Shape& from, const Shape& to) const {
  if (from.rank() == 0 || to.rank() == 0 || from[0] != to[0]) return false;
  if (lod_axis.empty()) return true;
  const std::vector<int64_t> axes = ReadNumbers(*this, op, lod_axis);
  return std::none_of(axes.begin(), axes.end(),
                      [&](int64_t axis) { return axis == 0 || axis == -from.rank(); });
}

std::vector<int> OpSpec::AxesOf(const OpDesc& op, int rank) const {
  std::vector<int> found;
  if (axes != AxesAttr::kAxes && axes != AxesAttr::kFrom) return found;
  for (int64_t axis : ReadNumbers(*this, op, axes_attr)) {
    if (axis < 0) axis += rank;
    const int64_t end = axes == AxesAttr::kFrom ? rank : std::min<int64_t>(axis + 1, rank);
    for (axis = std::max<int64_t>(axis, 0); axis < end; ++axis)
      found.push_back(static_cast<int>(axis));
  }
  return found;
}

bool OpSpec::TakesSoftLabels(const OpDesc& op, std::string_view input) const {
  return Contains(soft_label_slots, input) &&
         (soft_label_attr.empty() || AttrOf<bool>(op, soft_label_attr));
}

size_t OpSpec::NumItems(const OpDesc& op) const {
  if (!multi_tensor) return 1;
  for (const SlotDef& slot : inputs) {
    if (!IsShared(slot.name) && op.HasInput(slot.name)) return op.Input(slot.name).size();
  }
  return 1;
}

std::optional<std::string> OpSpec::FileOf(const OpDesc& op) const {
  if (file_attr.empty()) return std::nullopt;
  Attribute value;
  auto given = [&](const std::string& name, AttrType type) {
    const Attribute* attr = op.FindAttr(name);
    return attr && ConvertAttribute(*attr, type, &value);
  };
  if (given(no_file_attr, AttrType::kBoolean) && std::get<bool>(value)) return std::nullopt;
  return given(file_attr, AttrType::kString) ? std::get<std::string>(std::move(value)) : "";
}

const Attribute& OpSpec::AttrValue(const OpDesc& op, std::string_view name) const {
  if (const Attribute* given = op.FindAttr(name)) return *given;
  const AttrDef* def = FindAttr(name);
  if (!def) throw InternalError(fmt::format("{}: attr {} is read but not declared", type, name));
  if (!def->default_value) {
    ThrowInvalid(fmt::format("{}: attr {} is required", type, name), "  " + Locate(op));
  }
  return *def->default_value;
}

Attribute OpSpec::Converted(const OpDesc& op, std::string_view name, const Attribute& value,
                            AttrType wanted) const {
  Attribute converted;
  if (ConvertAttribute(value, wanted, &converted)) return converted;
  const AttrDef* def = FindAttr(name);
  if (def && def->type == wanted && ConvertAttr(*def, value, &converted)) return converted;
  ThrowInvalid(fmt::format("{}: attr {} must be {}, got {} {}", type, name, ToString(wanted),
                           ToString(TypeOf(value)), ToString(value)),
               "  " + Locate(op));
}

std::string OpSpec::Failure(std::string_view id, const std::string& got) const {
  const ConstraintDef* constraint = FindConstraint(id);
  if (!constraint)
    throw InternalError(fmt::format("{}: the constraint {} is not declared", type, id));
  std::string text = fmt::format("{}: {} [{}.{}]", type, constraint->text, type, id);
  return got.empty() ? text : text + ", got " + got;
}

std::string Locate(const OpDesc& op) {
  std::string text;
  if (const std::vector<OpOrigin> origins = TrustedOriginsOf(op); !origins.empty()) {
    text = DescribePlaces(origins);
  } else if (const BlockDesc* block = op.block()) {
    // A gradient rule writes its formulas into a block outside the program.
    text = block->idx() < 0
               ? fmt::format("op {} of the formulas of a gradient rule", block->IndexOf(op))
               : fmt::format("op {} of block {}", block->IndexOf(op), block->idx());
  } else {
    text = fmt::format("op {}", op.type());
  }
  std::string site = op.creation_site();
  if (!site.empty()) return fmt::format("{}, from {}", text, site);
  const Attribute* scope = op.FindAttr(kOpNamescopeAttr);
  const auto* layer = scope ? std::get_if<std::string>(scope) : nullptr;
  return layer && layer->size() > 1 ? fmt::format("{}, in {}", text, *layer) : text;
}

}  // namespace coracle
