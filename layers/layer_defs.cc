#include <coracle/framework/base/error.h>
#include <coracle/framework/base/registry.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/layer_defs.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>
#include <unordered_set>

namespace coracle {
namespace {

using Kind = FieldDef::Kind;

struct Registered {
  std::mutex mutex;
  std::vector<LayerDef> layers;
};
Registered& AllRegistered() {
  static Registered registered;
  return registered;
}

void Append(std::vector<LayerDef>& all, std::vector<LayerDef> more) {
  for (LayerDef& layer : more) all.push_back(std::move(layer));
}

std::vector<LayerDef> BuiltInLayers() {
  std::vector<LayerDef> layers = DenseLayers();
  Append(layers, ImageLayers());
  Append(layers, NormLayers());
  Append(layers, RecurrentLayers());
  Append(layers, AttentionLayers());
  Append(layers, LossLayers());
  Append(layers, MathLayers());
  Append(layers, ShapeLayers());
  Append(layers, ArrayLayers());
  Append(layers, ProgramLayers());
  return layers;
}

// Entries that contain entries have messages of their own.
const std::unordered_set<std::string>& EntryNames() {
  static const std::unordered_set<std::string> names = {"op", "include", "repeat", "while",
                                                        "if", "cond",    "switch", "static_rnn"};
  return names;
}

// Whether the op has the form Out = op(X?, Y?) and requires nothing else except attrs.
bool IsPlain(const OpSpec& def) {
  auto fits = [](const std::vector<SlotDef>& slots, std::initializer_list<const char*> names) {
    return std::all_of(slots.begin(), slots.end(), [&](const SlotDef& s) {
      bool known = std::any_of(names.begin(), names.end(), [&](auto n) { return s.name == n; });
      return known ? !s.variadic : s.optional;
    });
  };
  auto block = [](const AttrDef& a) {
    return a.type == AttrType::kBlock || a.type == AttrType::kBlocks;
  };
  const bool identifier =
      std::all_of(def.type.begin(), def.type.end(),
                  [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
      !std::isdigit(static_cast<unsigned char>(def.type.front()));
  return identifier && def.kind == OpKind::kCompute && !def.type.ends_with("_grad") &&
         def.FindOutput("Out") && fits(def.inputs, {"X", "Y"}) && fits(def.outputs, {"Out"}) &&
         std::none_of(def.attrs.begin(), def.attrs.end(), block);
}

// Calls the op with the given inputs and attrs.
LayerDef::Build PlainBuild(const OpSpec& def,
                           std::vector<std::pair<const char*, const char*>> slots,
                           std::vector<std::string> attr_names) {
  return [type = def.type, slots = std::move(slots), attr_names = std::move(attr_names)](
             Builder& net, const LayerArgs& a) -> std::vector<Variable> {
    SlotList inputs;
    for (const auto& slot : slots) {
      if (a.HasVar(slot.second)) inputs.push_back({slot.first, {a.Var(slot.second).name()}});
    }
    AttrList attrs;
    for (const std::string& name : attr_names) {
      if (a.Has(name)) attrs.push_back({name, a.attrs.at(name)});
    }
    return {net.Make(type, std::move(inputs), std::move(attrs), a.output)};
  };
}

LayerDef PlainLayer(const OpSpec& def) {
  LayerDef layer;
  layer.name = def.type;
  layer.doc = def.Documentation();
  const bool has_y = def.FindInput("Y") != nullptr;
  std::vector<std::pair<const char*, const char*>> slots;
  if (def.FindInput("X")) slots.push_back({"X", has_y ? "x" : "input"});
  if (has_y) slots.push_back({"Y", "y"});
  for (const auto& slot : slots) {
    const SlotDef& declared = *def.FindInput(slot.first);
    layer.fields.push_back({slot.second, Kind::kVar, AttrType::kString, std::nullopt,
                            !declared.optional, declared.doc});
  }
  std::unordered_set<std::string> taken = {"output",        "act",   "name", "error_clip",
                                           "stop_gradient", "input", "x",    "y"};
  std::vector<std::string> attr_names;
  for (FieldDef& field : AttrFields(def)) {
    if (!taken.insert(field.name).second) continue;  // still available in an op entry
    attr_names.push_back(field.name);
    layer.fields.push_back(std::move(field));
  }
  layer.build = PlainBuild(def, std::move(slots), std::move(attr_names));
  return layer;
}

// Throws if an entry already has the name.
void RequireFreeName(const std::string& name, const std::vector<LayerDef>& registered) {
  const auto same = [&](const LayerDef& layer) { return layer.name == name; };
  const std::vector<LayerDef> built_in = BuiltInLayers();
  if (EntryNames().count(name) || std::any_of(built_in.begin(), built_in.end(), same) ||
      std::any_of(registered.begin(), registered.end(), same)) {
    throw Error(ErrorCode::kAlreadyExists, fmt::format("layer: the name {} is taken", Quote(name)));
  }
}

}  // namespace

MemberType TypeOfSize() {
  return {AttrType::kInts,
          [](const void* member) -> std::optional<Attribute> {
            const auto& size = *static_cast<const Size2*>(member);
            if (size.height == size.width) return Attribute(std::vector<int32_t>{size.height});
            return Attribute(size.ToVector());
          },
          [](void* member, const Attribute& value) {
            const auto values = AttributeAs<std::vector<int32_t>>(value);
            if (values.size() != 1 && values.size() != 2) {
              ThrowInvalid(fmt::format("one or two numbers (height, width) are wanted, got {}",
                                       values.size()));
            }
            *static_cast<Size2*>(member) = Size2(values.front(), values.back());
          }};
}

MemberType TypeOfPadding() {
  return {AttrType::kInts,
          [](const void* member) -> std::optional<Attribute> {
            std::vector<int32_t> values = static_cast<const Padding*>(member)->values;
            if (values.size() == 2 && values[0] == values[1]) values.pop_back();
            return Attribute(std::move(values));
          },
          [](void* member, const Attribute& value) {
            auto& padding = *static_cast<Padding*>(member);
            padding.values = Padding(AttributeAs<std::vector<int32_t>>(value)).values;
          }};
}

MemberType TypeOfPaddingAlgorithm() {
  return {AttrType::kString,
          [](const void* member) -> std::optional<Attribute> {
            return Attribute(static_cast<const Padding*>(member)->algorithm);
          },
          [](void* member, const Attribute& value) {
            static_cast<Padding*>(member)->algorithm = AttributeAs<std::string>(value);
          }};
}

MemberType TypeOfDType() {
  return {AttrType::kInt,
          [](const void* member) -> std::optional<Attribute> {
            return Attribute(static_cast<int32_t>(*static_cast<const DType*>(member)));
          },
          [](void* member, const Attribute& value) {
            *static_cast<DType*>(member) = static_cast<DType>(AttributeAs<int32_t>(value));
          }};
}

void RegisterLayer(LayerDef layer) {
  std::set<std::string> names = {"output", "name", "act", "error_clip", "stop_gradient"};
  for (const FieldDef& field : layer.fields) {
    if (!IsIdentifier(field.name) || !names.insert(field.name).second)
      ThrowInvalid(
          fmt::format("layer {}: a field cannot be called {}", layer.name, Quote(field.name)));
  }
  if (!IsIdentifier(layer.name))
    ThrowInvalid(fmt::format("a layer cannot be called {}", Quote(layer.name)));
  if (layer.name == kChoiceName) ThrowInvalid(fmt::format("layer: {}", kChoiceNameError));
  RequireFunction(layer.build, fmt::format("layer {}: its build", layer.name));
  Registered& registered = AllRegistered();
  const std::lock_guard lock(registered.mutex);
  RequireFreeName(layer.name, registered.layers);
  registered.layers.push_back(std::move(layer));
}

size_t internal::NumRegisteredLayers() {
  const std::lock_guard lock(AllRegistered().mutex);
  return AllRegistered().layers.size();
}

std::vector<FieldDef> internal::AttrFields(const OpSpec& def) {
  std::vector<FieldDef> fields;
  for (const AttrDef& attr : def.attrs) {
    if (attr.type == AttrType::kBlock || attr.type == AttrType::kBlocks) continue;
    bool dtype = attr.type == AttrType::kInt &&
                 (attr.name == "dtype" || std::string_view(attr.name).ends_with("_dtype"));
    fields.push_back({attr.name, dtype ? Kind::kDType : Kind::kAttr, attr.type, attr.default_value,
                      !attr.default_value.has_value(), attr.doc});
  }
  return fields;
}

std::vector<LayerDef> internal::LayerDefs(const OpRegistry& ops) {
  std::vector<LayerDef> defs = BuiltInLayers();
  {
    const std::lock_guard lock(AllRegistered().mutex);
    Append(defs, AllRegistered().layers);
  }
  std::unordered_set<std::string> taken = EntryNames();
  taken.insert(kChoiceName);
  for (const LayerDef& def : defs) taken.insert(def.name);
  for (const std::string& type : ops.Types()) {
    const OpSpec& op = ops.Get(type);
    if (IsPlain(op) && taken.insert(type).second) defs.push_back(PlainLayer(op));
  }
  return defs;
}

}  // namespace coracle
