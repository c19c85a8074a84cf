// Reads data entries, layers and raw ops of model text.

#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/model_build.h>
#include <coracle/layers/internal/text_settings.h>
#include <fmt/format.h>

#include <filesystem>

namespace coracle::inline internal {
namespace {

using google::protobuf::FieldDescriptor;

Attribute ValueOf(const Surroundings& around, const Node& node, const FieldDescriptor& field,
                  AttrType type) {
  return node.Attr(field, type, [&](const std::string& text, const std::string& where) {
    return around.Expand(text, where);
  });
}

void Describe(VarDesc& var, const OutputOptions& options) {
  if (options.error_clip.get()) var.SetErrorClip(options.error_clip.get());
  if (options.stop_gradient) var.SetStopGradient(true);
}

void CheckRange(const LayerDef& layer, const FieldDef& field, const Attribute& value) {
  const std::string wrong = field.range ? FieldTable::OutOfRange(*field.range, value) : "";
  if (!wrong.empty()) ThrowInvalid(fmt::format("{}: {} {}", layer.name, field.name, wrong));
}

void ReadField(ModelBuild& build, const Surroundings& around, const Node& node,
               const LayerDef& layer, const FieldDef& def, LayerArgs& args) {
  const FieldDescriptor& field = node.Field(def.name.c_str());
  const bool given = node.Count(field) > 0;
  if (def.required && !given) node.Fail(fmt::format("{}: {} is required", layer.name, def.name));
  const bool is_attr = def.kind == FieldDef::Kind::kAttr || def.kind == FieldDef::Kind::kDType;
  if (!given) {
    if (is_attr && def.default_value) args.attrs[def.name] = *def.default_value;
    return;
  }
  switch (def.kind) {
    case FieldDef::Kind::kVar:
    case FieldDef::Kind::kVars:
      args.vars[def.name] = FindVariables(build, around, node, field);
      break;
    case FieldDef::Kind::kParam:
      args.params[def.name] = ReadParam(node.Child(field), build.schema.pool(), around.indices);
      break;
    case FieldDef::Kind::kFile:
      args.attrs[def.name] =
          (std::filesystem::path(node.file().directory) / around.String(node, def.name.c_str()))
              .string();
      break;
    default:
      args.attrs[def.name] = ValueOf(around, node, field, def.type);
      CheckRange(layer, def, args.attrs[def.name]);
  }
}

// The fields of message Op that follow the ops.
const FieldDescriptor& CommonField(const Node& node, int k) {
  return *node.type().field(node.type().field_count() - 3 + k);
}

// The slots and the attrs of a raw op.
struct OpParts {
  SlotList inputs, outputs;
  AttrList attrs;
};

OpParts ReadParts(ModelBuild& build, const Surroundings& around, const Node& body,
                  const OpEntry& entry) {
  OpParts parts;
  for (int i = 0; i < body.type().field_count(); ++i) {
    const FieldDescriptor& field = *body.type().field(i);
    if (body.Count(field) == 0) continue;
    const OpField& target = entry.fields[static_cast<size_t>(i)];
    Attribute value = ValueOf(around, body, field, target.type);
    if (target.kind == OpField::Kind::kAttr) {
      parts.attrs.push_back({target.name, std::move(value)});
      continue;
    }
    auto names = std::get<std::vector<std::string>>(std::move(value));
    const bool input = target.kind == OpField::Kind::kInput;
    for (size_t k = 0; input && k < names.size(); ++k) {
      if (!IsEmptyName(names[k]))
        FindVariable(build, names[k], body.Where(field, static_cast<int>(k)));
    }
    (input ? parts.inputs : parts.outputs).push_back({target.name, names});
  }
  return parts;
}

OutputOptions ReadOutputOptions(const Node& node, const SchemaPool& schema,
                                const FieldDescriptor& clip, const FieldDescriptor& stop) {
  OutputOptions options;
  if (node.Count(clip)) options.error_clip = ReadErrorClip(node.Child(clip), schema);
  options.stop_gradient = node.Bool(stop.name().c_str());
  return options;
}

}  // namespace

void SetSite(ModelBuild& build, const Surroundings& around, const std::string& where) {
  build.net.SetSite(where, Join(around.rounds, ", "));
}

Variable FindVariable(ModelBuild& build, const std::string& name, const std::string& where) {
  const BlockDesc& block = build.net.block();
  if (block.FindVarRecursive(name)) return build.net.Var(name);
  std::vector<std::string> names;
  for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
  throw LocatedError(Error(
      ErrorCode::kNotFound,
      fmt::format("{}: no variable {} so far{}", where, Quote(name), DidYouMean(name, names))));
}

std::vector<Variable> FindVariables(ModelBuild& build, const Surroundings& around, const Node& node,
                                    const FieldDescriptor& field) {
  std::vector<Variable> vars;
  for (int i = 0; i < node.Count(field); ++i) {
    const std::string where = node.Where(field, i);
    vars.push_back(FindVariable(build, around.Expand(node.String(field, i), where), where));
  }
  return vars;
}

Variable RequireVariable(ModelBuild& build, const Surroundings& around, const Node& node,
                         const char* field) {
  if (!node.Has(field)) node.Fail(fmt::format("{} is required", field));
  return FindVariable(build, around.String(node, field), node.Where(field));
}

std::vector<std::string> OutputNames(const Surroundings& around, const Node& node) {
  const FieldDescriptor& field = node.Field("output");
  std::vector<std::string> names;
  for (int i = 0; i < node.Count(field); ++i)
    names.push_back(around.Expand(node.String(field, i), node.Where(field, i)));
  return names;
}

void ReadData(ModelBuild& build, const Surroundings& around, const Node& node) {
  if (!node.Has("name")) node.Fail("data: name is required");
  SetSite(build, around, node.where());
  const FieldDescriptor& field = node.Field("shape");
  if (node.Count(field) > Shape::kMaxRank) {
    node.Fail(fmt::format("data: a shape has at most {} dims, got {}", Shape::kMaxRank,
                          node.Count(field)));
  }
  const Attribute shape = node.Value(field);
  const auto dtype = static_cast<DType>(node.Integer("dtype"));
  if (!IsValid(dtype)) throw LocatedError(node.Where("dtype"), "data: dtype must be said");
  DataOptions options;
  options.lod_level = static_cast<int32_t>(node.Integer("lod_level"));
  options.stop_gradient = node.Bool("stop_gradient");
  if (node.Has("error_clip"))
    options.error_clip = ReadErrorClip(node.Child("error_clip"), build.schema.pool());
  const std::string name = around.String(node, "name");
  build.net.Data(name, Shape(std::get<std::vector<int64_t>>(shape)), dtype, options);
  build.model.inputs.push_back(name);
}

void ReadLayer(ModelBuild& build, const Surroundings& around, const Node& node,
               const LayerDef& layer) {
  LayerArgs args;
  for (const FieldDef& def : layer.fields) ReadField(build, around, node, layer, def, args);
  const bool several = layer.result == LayerDef::Result::kSeveral;
  if (layer.result != LayerDef::Result::kMetric)
    args.output = ReadOutputOptions(node, build.schema.pool(), node.Field("error_clip"),
                                    node.Field("stop_gradient"));
  args.output.name = around.String(node, "name");
  if (several)
    args.outputs = OutputNames(around, node);
  else
    args.output.output = around.String(node, "output");
  if (layer.result == LayerDef::Result::kOne) args.output.act = around.String(node, "act");
  SetSite(build, around, node.where());
  const std::vector<Variable> results = layer.build(build.net, args);
  for (const Variable& result : results)
    if (several) Describe(result.desc(), args.output);
}

void ReadOp(ModelBuild& build, const Surroundings& around, const Node& node) {
  const FieldDescriptor* kind = node.Kind();
  if (!kind) node.Fail("op: the entry is empty; name an op");
  const OpEntry& entry = *build.schema.Op(kind->index());
  const Node body = node.Child(*kind);
  OpParts parts = ReadParts(build, around, body, entry);
  const OutputOptions options =
      ReadOutputOptions(node, build.schema.pool(), CommonField(node, 0), CommonField(node, 1));
  const FieldDescriptor& role = CommonField(node, 2);
  if (node.Count(role)) {
    parts.attrs.push_back({kOpRoleAttr, static_cast<int32_t>(node.Integer(role.name().c_str()))});
  }
  SetSite(build, around, body.where());
  Located(body, [&] {
    OpDesc& op = build.net.Append(entry.def->type, std::move(parts.inputs),
                                  std::move(parts.outputs), std::move(parts.attrs));
    op.ForEachOutput(
        [&](const std::string& name) { Describe(build.net.Var(name).desc(), options); });
  });
}

}  // namespace coracle::inline internal
