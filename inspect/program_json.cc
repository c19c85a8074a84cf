#include <coracle/backward/backward.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/op_layers.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace coracle {
namespace {

bool HoldsTensors(VarType type) {
  return type == VarType::kLoDTensor || type == VarType::kSelectedRows ||
         type == VarType::kLoDTensorArray;
}

Json NamesJson(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(JsonString(name));
  return list;
}

void AddSettings(const VarDesc& var, Json* json) {
  const TrainingAttr& training = var.training();
  if (!training.trainable) (*json)["trainable"] = false;
  if (training.learning_rate != 1) (*json)["learning_rate"] = JsonNumber(training.learning_rate);
  if (training.initializer) (*json)["initializer"] = JsonSetting(*training.initializer);
  if (training.regularizer) (*json)["regularizer"] = JsonSetting(*training.regularizer);
  if (training.gradient_clip) (*json)["gradient_clip"] = JsonSetting(*training.gradient_clip);
  if (training.error_clip) {
    const std::optional<Setting> saved = training.error_clip->Save();
    (*json)["error_clip"] =
        JsonSetting(saved.value_or(Setting{"of a class that is not saved", {}}));
  }
  if (!training.creation_site.empty()) (*json)["origin"] = JsonString(training.creation_site);
}

Json VarJson(const VarDesc& var) {
  Json json = {{"name", JsonString(var.name())}, {"type", ToString(var.type())}};
  if (HoldsTensors(var.type())) {
    json["dtype"] = ToString(var.dtype());
    json["shape"] = JsonShape(var.shape());
    json["lod_level"] = var.lod_level();
  }
  json["persistable"] = var.persistable();
  json["parameter"] = var.is_parameter();
  json["stop_gradient"] = var.stop_gradient();
  AddSettings(var, &json);
  return json;
}

Json SlotsJson(const SlotList& slots) {
  Json json = Json::object();
  std::unordered_set<std::string_view> seen;
  for (const Slot& slot : slots)
    if (seen.insert(slot.name).second) AddMember(json, slot.name, NamesJson(slot.args));
  return json;
}

class ProgramJsonWriter {
 public:
  ProgramJsonWriter(const ProgramDesc& program, const OpRegistry& ops,
                    const ProgramJsonOptions& options)
      : program_(program), ops_(ops), options_(options), layers_(program) {}

  std::string Run() {
    out_ = "{\n  \"format\": \"coracle.program\",\n  \"version\": 1,\n";
    PutHead();
    out_ += "  \"blocks\": [";
    const char* between = "\n";
    for (int i = 0; i < program_.NumBlocks(); ++i) {
      if (!IsWanted(i)) continue;
      out_ += between;
      PutBlock(program_.Block(i));
      between = ",\n";
    }
    out_ += "\n  ],\n  \"grad_to_var\": {";
    PutGradients();
    out_ += "}\n}\n";
    return std::move(out_);
  }

 private:
  bool IsWanted(int block) const {
    return options_.blocks.empty() || std::find(options_.blocks.begin(), options_.blocks.end(),
                                                block) != options_.blocks.end();
  }

  void PutMember(const char* name, const Json& value) {
    out_ += fmt::format("  \"{}\": {},\n", name, JsonLine(value));
  }

  void PutHead() {
    if (program_.version && *program_.version > 0) {
      const int64_t v = *program_.version;
      PutMember("paddle_version", fmt::format("{}.{}.{}", v / 1000000, v / 1000 % 1000, v % 1000));
    }
    if (program_.random_seed != 0) PutMember("random_seed", std::to_string(program_.random_seed));
    PutMember("feeds", NamesJson(InputNames(program_, ops_)));
    PutMember("fetches", NamesJson(OutputNames(program_, ops_)));
  }

  void PutBlock(const BlockDesc& block) {
    out_ += fmt::format("    {{\n      \"index\": {},\n      \"parent\": {},\n", block.idx(),
                        block.parent_idx());
    if (block.forward_block_idx() >= 0)
      out_ += fmt::format("      \"forward_block\": {},\n", block.forward_block_idx());
    out_ += "      \"vars\": [";
    const char* between = "\n        ";
    for (size_t i = 0; i < block.NumVars(); ++i) {
      if (options_.keep_var && !options_.keep_var(block.var(i))) continue;
      out_ += between + JsonLine(VarJson(block.var(i)));
      between = ",\n        ";
    }
    out_ += "\n      ],\n      \"ops\": [";
    between = "\n        ";
    for (size_t i = 0; i < block.NumOps(); ++i) {
      if (options_.keep_op && !options_.keep_op(block.op(i))) continue;
      out_ += between + JsonLine(OpJson(block.op(i), i));
      between = ",\n        ";
    }
    out_ += "\n      ]\n    }";
  }

  Json OpJson(const OpDesc& op, size_t index) const {
    Json json = {
        {"index", index}, {"type", JsonString(op.type())}, {"stage", ToString(StageOf(op))}};
    if (const ModelLayer* layer = layers_.Find(op)) {
      json["layer"] = JsonString(layer->name);
      if (!layer->round.empty()) json["round"] = JsonString(layer->round);
    }
    if (const std::string origin = op.creation_site(); !origin.empty())
      json["origin"] = JsonString(origin);
    AddForwardOp(op, &json);
    json["inputs"] = SlotsJson(op.inputs());
    json["outputs"] = SlotsJson(op.outputs());
    json["attrs"] = AttrsJson(op);
    if (op.HasSubBlock()) json["sub_blocks"] = op.SubBlocks();
    return json;
  }

  // Adds the position of the forward op of a gradient op.
  static void AddForwardOp(const OpDesc& op, Json* json) {
    const Attribute* link = op.FindAttr(kForwardOpAttr);
    if (!link || !std::holds_alternative<std::string>(*link)) return;
    const OpDesc* forward = FindForwardOp(op);
    if (!forward) return;
    (*json)["forward_op"] = {{"block", forward->block()->idx()},
                             {"op", forward->block()->IndexOf(*forward)}};
  }

  Json AttrsJson(const OpDesc& op) const {
    Json json = Json::object();
    std::unordered_set<std::string_view> seen;
    for (const NamedAttr& attr : op.attrs()) {
      const bool hidden = options_.hide_default_attrs &&
                          (IsBookkeepingAttr(attr.name) || IsDefaultAttr(ops_, op, attr));
      if (!hidden && seen.insert(attr.name).second)
        AddMember(json, attr.name, JsonAttribute(attr.value));
    }
    return json;
  }

  void PutGradients() {
    const char* between = "\n    ";
    for (const auto& [gradient, var] : GradientPairs(program_)) {
      out_ += between + JsonLine(JsonString(gradient)) + ": " + JsonLine(JsonString(var));
      between = ",\n    ";
    }
    if (between[0] == ',') out_ += "\n  ";
  }

  const ProgramDesc& program_;
  const OpRegistry& ops_;
  const ProgramJsonOptions& options_;
  const OpLayers layers_;
  std::string out_;
};

// The variable whose gradient would have this name; "" if it is not a gradient's name.
std::string_view VarOfGradient(std::string_view gradient) {
  const size_t at = gradient.rfind(kGradSuffix);
  if (at == gradient.npos || at == 0) return {};
  std::string_view rest = gradient.substr(at + kGradSuffix.size());
  const bool numbered = rest.size() > 1 && (rest[0] == '@' || rest[0] == '_') &&
                        rest.find_first_not_of("0123456789", 1) == rest.npos;
  return rest.empty() || numbered ? gradient.substr(0, at) : std::string_view();
}

}  // namespace

std::string ProgramJson(const ProgramDesc& program, const OpRegistry& ops,
                        const ProgramJsonOptions& options) {
  return ProgramJsonWriter(program, ops, options).Run();
}

std::vector<std::pair<std::string, std::string>> GradientPairs(const ProgramDesc& program) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::unordered_set<std::string_view> seen;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const std::string& gradient = block.var(i).name();
      const std::string_view var = VarOfGradient(gradient);
      if (var.empty() || !block.FindVarRecursive(var) || !seen.insert(gradient).second) continue;
      pairs.emplace_back(gradient, var);
    }
  }
  return pairs;
}

}  // namespace coracle
