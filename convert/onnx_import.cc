#include <coracle/convert/for_model.h>
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/model_file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/model_reader.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/operators/operators.h>
#include <coracle/proto/onnx.pb.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {
namespace {

using onnx::GraphImporter;
using onnx::ImportState;
using onnx::Value;
using proto::onnx::ModelProto;
using proto::onnx::NodeProto;
using proto::onnx::TypeProto;
using proto::onnx::ValueInfoProto;

constexpr uint64_t kInputBytes = 1024;  // approximate size of an input's variable and op

// The shape of an input, with the dims that the options give.
Shape ShapeOf(const ValueInfoProto& input, const TypeProto::Tensor& type,
              const OnnxImportOptions& options) {
  const auto given = options.input_shapes.find(input.name());
  if (!type.has_shape()) {
    if (given != options.input_shapes.end()) return given->second;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("the input {} has no shape, not even a rank; give it one",
                            Quote(input.name())));
  }
  Shape shape;
  for (const auto& dim : type.shape().dim()) {
    const bool known = dim.has_dim_value() && dim.dim_value() >= 0;
    shape.Append(known ? dim.dim_value() : -1);
  }
  if (given == options.input_shapes.end() || shape.rank() == 0) return shape;
  if (!shape.CompatibleWith(given->second)) {
    ThrowInvalid(fmt::format("the input {} is {} in the model, and cannot be {}",
                             Quote(input.name()), shape.ToString(), given->second.ToString()));
  }
  return given->second;
}

// The value of an input that is given, after a check of its type.
onnx::ValuePtr KnownInput(const std::string& name, int data_type, const Tensor& given, DType dtype,
                          const Shape& shape) {
  const bool scalar = shape.rank() == 0;
  const Shape stored = scalar ? Shape{1} : shape;
  Tensor tensor = given;
  if (scalar && tensor.shape().rank() == 0) tensor = tensor.Reshaped(stored);
  if (tensor.dtype() != dtype || !stored.CompatibleWith(tensor.shape())) {
    ThrowInvalid(fmt::format("the input {} is {}{} in the model, and cannot be {}", Quote(name),
                             ToString(dtype), shape.ToString(), tensor.ToString()));
  }
  auto value = std::make_shared<Value>();
  value->constant = tensor;
  value->data_type = data_type;
  value->scalar = shape.rank() == 0;
  return value;
}

DType DTypeOfInput(const std::string& name, int data_type) {
  const std::optional<DType> dtype = onnx::HoldingDType(data_type);
  if (dtype) return *dtype;
  throw Error(ErrorCode::kUnimplemented, fmt::format("the input {} is {}, which no dtype holds",
                                                     Quote(name), onnx::DataTypeName(data_type)));
}

// The value of an input that is fed, with its variable.
onnx::ValuePtr FedInput(ImportState& state, const std::string& name, int data_type, DType dtype,
                        const Shape& shape) {
  BlockDesc& root = state.program.Root();
  VarDesc& var = root.Var(state.program.FreeName(onnx::UsableName(name)));
  var.SetMeta({VarType::kLoDTensor, dtype, shape.rank() == 0 ? Shape{1} : shape, 0});
  var.SetNeedCheckFeed(true);
  auto value = std::make_shared<Value>();
  value->var = state.writer.Var(root, var);
  value->data_type = data_type;
  value->scalar = shape.rank() == 0;
  return value;
}

int TypeOfMapValues(const ValueInfoProto& input) {
  const TypeProto::Map& map = input.type().map_type();
  if (map.value_type().has_tensor_type()) return map.value_type().tensor_type().elem_type();
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("the input {} is a map whose values are no numbers or texts",
                          Quote(input.name())));
}

// Variables that ops write (the statistics of a batch_norm) are not parameters. Variables that no
// op reads any more (a loop's body may be imported twice) are removed.
void SettleParameters(ProgramDesc& program, Scope& parameters) {
  std::unordered_set<std::string> read, written;
  program.ForEachOp([&](const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { read.insert(name); });
    op.ForEachOutput([&](const std::string& name) { written.insert(name); });
  });
  BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    VarDesc& var = root.var(i);
    if (var.is_parameter() && written.count(var.name())) var.SetIsParameter(false);
    if (var.persistable() && !read.count(var.name())) parameters.Erase(var.name());
  }
  root.RemoveVarsIf(
      [&](const VarDesc& var) { return var.persistable() && !read.count(var.name()); });
}

// The import of one model.
// The values that a node and its inner graphs read.
void AddReads(const NodeProto& node, std::vector<std::string>* names) {
  names->insert(names->end(), node.input().begin(), node.input().end());
  for (const auto& attr : node.attribute()) {
    for (const NodeProto& inner : attr.g().node()) AddReads(inner, names);
  }
}

// The keys of maps, whose values are the rows of an output, are one more result.
void AddKeys(const onnx::Values& outputs, onnx::ImportState& state,
             std::vector<std::string>* fetches) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i] || !outputs[i]->keys) continue;
    const std::string wanted = (*fetches)[i] + ".keys";
    const Variable var = state.VarOf(*outputs[i]->keys, wanted + ".constant");
    const std::string name = state.program.FreeName(wanted);
    fetches->push_back(state.writer.Into(name, "assign", {{"X", {var.name()}}}).name());
  }
}

class ModelImporter {
 public:
  ModelImporter(onnx::OnnxModelFile& file, Scope& scope, const OnnxImportOptions& options)
      : file_(file),
        model_(file.model),
        options_(options),
        state_(result_.program, options.ops ? *options.ops : DefaultOps(), &scope, nullptr,
               file.source),
        graph_(state_, onnx::OpsetsOf(file.model.opset_import())) {}

  InferenceModel Run() {
    for (const auto& function : model_.functions()) {
      const std::string key =
          onnx::FunctionKey(function.domain(), function.name(), function.overload());
      if (!state_.functions.emplace(key, &function).second)
        ThrowInvalid(fmt::format("the function {} is defined twice", Quote(function.name())));
    }
    for (const ValueInfoProto& output : model_.graph().output())
      state_.output_names.insert(onnx::UsableName(output.name()));
    graph_.AddInitializers(model_.graph(), std::move(file_.initializers));
    for (const ValueInfoProto& input : model_.graph().input()) AddInput(input);
    CheckOptions();
    const onnx::Values outputs = graph_.ImportNodes(model_.graph());
    state_.name_base.clear();
    std::vector<std::string> fetches;
    for (size_t i = 0; i < outputs.size(); ++i)
      fetches.push_back(OutputOf(model_.graph().output(static_cast<int>(i)), outputs[i]));
    AddKeys(outputs, state_, &fetches);
    if (fetches.empty()) ThrowInvalid("the graph has no output");
    SettleParameters(result_.program, *state_.parameters);
    SetFeedsAndFetches(result_.program, feeds_, fetches);
    result_.feed_names = feeds_;
    result_.fetch_names = std::move(fetches);
    return std::move(result_);
  }

  ProgramDesc RunInputs() {
    graph_.AddInitializers(model_.graph(), std::move(file_.initializers));
    for (const ValueInfoProto& input : model_.graph().input()) AddInput(input);
    SetFeedsAndFetches(result_.program, feeds_, {});
    return std::move(result_.program);
  }

  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    constexpr size_t kShown = 8;
    for (const auto& [kind, warning] : state_.warnings)
      if (warnings.size() < kShown) warnings.push_back(warning);
    if (state_.warnings.size() > kShown)
      warnings.push_back(fmt::format("and {} more warnings", state_.warnings.size() - kShown));
    return warnings;
  }

  // Whether branches were left out because they cannot run.
  bool LeavesOutBranches() const {
    return std::any_of(state_.warnings.begin(), state_.warnings.end(),
                       [](const auto& entry) { return entry.first.starts_with("branch of "); });
  }

  // The inputs whose values a node, or a branch that was left out, needed to know; empty after an
  // Error that had another reason.
  std::set<std::string> NeededInputs() const {
    std::vector<std::pair<std::string, const NodeProto*>> unknown = state_.noted_unknown;
    if (!state_.unknown_value.empty())
      unknown.emplace_back(state_.unknown_value, graph_.last_node());
    if (unknown.empty()) return {};
    std::unordered_map<std::string, const NodeProto*> writers;
    for (const NodeProto& node : model_.graph().node()) {
      for (const std::string& output : node.output()) writers[output] = &node;
    }
    std::vector<std::string> open;
    for (const auto& [name, node] : unknown) {
      open.push_back(name);
      // A value of a sub-graph or function may depend on anything that the node reads.
      if (node && !writers.count(name) && !IsInput(name)) AddReads(*node, &open);
    }
    std::set<std::string> seen, needed;
    while (!open.empty()) {
      const std::string name = open.back();
      open.pop_back();
      if (!seen.insert(name).second) continue;
      if (IsInput(name)) needed.insert(name);
      const auto writer = writers.find(name);
      if (writer != writers.end()) AddReads(*writer->second, &open);
    }
    return needed;
  }

 private:
  void AddInput(const ValueInfoProto& input) {
    if (input.name().empty()) ThrowInvalid("an input has no name");
    if (!declared_.insert(input.name()).second)
      ThrowInvalid(fmt::format("the input {} is declared twice", Quote(input.name())));
    if (graph_.Has(input.name())) return;  // an initializer: a constant
    if (input.type().has_map_type()) return graph_.Define(input.name(), MapInput(input));
    if (!input.type().has_tensor_type()) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("the input {} is not a tensor, and only tensors and maps can be fed",
                              Quote(input.name())));
    }
    const TypeProto::Tensor& type = input.type().tensor_type();
    graph_.Define(input.name(),
                  TensorInput(input.name(), type.elem_type(), ShapeOf(input, type, options_)));
  }

  onnx::ValuePtr TensorInput(const std::string& name, int data_type, const Shape& shape) {
    input_names_.push_back(name);
    inputs_.insert(name);
    state_.memory.Add(kInputBytes, "the inputs of an ONNX model");
    const DType dtype = DTypeOfInput(name, data_type);
    const auto given = options_.input_values.find(name);
    if (given != options_.input_values.end())
      return KnownInput(name, data_type, given->second, dtype, shape);
    onnx::ValuePtr value = FedInput(state_, name, data_type, dtype, shape);
    feeds_.push_back(value->var.name());
    return value;
  }

  // A map is fed as two vectors: its values by the input's name, and its keys.
  onnx::ValuePtr MapInput(const ValueInfoProto& input) {
    const std::string keys = input.name() + ".keys";
    const int data_type = TypeOfMapValues(input);
    if (!declared_.insert(keys).second)
      ThrowInvalid(fmt::format("{} is an input, and the keys of a map", Quote(keys)));
    onnx::ValuePtr values = TensorInput(input.name(), data_type, Shape{-1});
    values->keys = TensorInput(keys, input.type().map_type().key_type(), Shape{-1});
    return values;
  }

  void CheckOptions() const {
    for (const auto& entry : options_.input_shapes) CheckIsInput(entry.first);
    for (const auto& entry : options_.input_values) CheckIsInput(entry.first);
  }

  bool IsInput(const std::string& name) const { return inputs_.count(name) > 0; }

  void CheckIsInput(const std::string& name) const {
    if (IsInput(name)) return;
    throw Error(ErrorCode::kNotFound, fmt::format("{} is not an input of the model{}", Quote(name),
                                                  DidYouMean(name, input_names_)));
  }

  // Named like the output if that name is free, so that fetched variables are named as in ONNX.
  std::string OutputOf(const ValueInfoProto& output, const onnx::ValuePtr& value) {
    if (!value || !value->is_tensor()) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("the output {} is not a tensor, and only tensors can be fetched",
                              Quote(output.name())));
    }
    const std::string wanted = onnx::UsableName(output.name());
    // The variable of a constant leaves its name to the fetched variable.
    const Variable var = state_.VarOf(*value, value->var ? wanted : wanted + ".constant");
    if (var.name() == wanted && !var.desc().persistable()) return wanted;
    return state_.writer.Into(result_.program.FreeName(wanted), "assign", {{"X", {var.name()}}})
        .name();
  }

  onnx::OnnxModelFile& file_;
  const ModelProto& model_;
  const OnnxImportOptions& options_;
  InferenceModel result_;
  ImportState state_;
  GraphImporter graph_;
  std::vector<std::string> feeds_, input_names_;
  std::unordered_set<std::string> inputs_, declared_;  // declared_ includes initializers
};

// Moves the results of an import to their destination, so that a failed import changes nothing.
void MoveInto(Scope& from, Scope& to) {
  for (const std::string& name : from.LocalNames()) to.Var(name) = std::move(from.Var(name));
}

// What an import says besides its result or its Error.
struct ImportNotes {
  std::set<std::string> needed;       // inputs whose values would help
  std::vector<std::string> warnings;  // of a model that was imported
  bool leaves_out = false;            // branches that cannot run
};

InferenceModel Import(onnx::OnnxModelFile file, const std::string& source, Scope& scope,
                      const OnnxImportOptions& options, ImportNotes* notes) {
  Scope values;
  ModelImporter importer(file, values, options);
  try {
    InferenceModel result = importer.Run();
    *notes = {importer.NeededInputs(), importer.Warnings(), importer.LeavesOutBranches()};
    MoveInto(values, scope);
    return result;
  } catch (const Error& e) {
    notes->needed = importer.NeededInputs();
    throw e.WithPrefix(source);
  }
}

void Show(const ImportNotes& notes, const std::string& source) {
  for (const std::string& warning : notes.warnings)
    LogMessage(MessageLevel::kWarning, source + ": " + warning);
}

InferenceModel ImportOnce(onnx::OnnxModelFile file, const std::string& source, Scope& scope,
                          const OnnxImportOptions& options) {
  ImportNotes notes;
  InferenceModel result = Import(std::move(file), source, scope, options, &notes);
  Show(notes, source);
  return result;
}

// Adds the values that the failed import lacked; false if there is nothing to add.
bool AddKnown(const std::set<std::string>& needed, const std::map<std::string, Tensor>& inputs,
              OnnxImportOptions* options) {
  bool added = false;
  for (const std::string& name : needed) {
    const auto given = inputs.find(name);
    if (given != inputs.end()) added |= options->input_values.insert(*given).second;
  }
  return added;
}

// The shapes of the inputs that the model does not know; rank 0 is used only if the model
// declares it.
void AddShapes(const std::map<std::string, Tensor>& inputs, OnnxImportOptions* options) {
  for (const auto& [name, tensor] : inputs) options->input_shapes.emplace(name, tensor.shape());
}

// Imports the model again with more values and shapes, as long as that helps.
InferenceModel ImportWith(const std::string& path, const std::map<std::string, Tensor>& inputs,
                          Scope& scope, OnnxImportOptions options) {
  bool shapes = false;
  while (true) {
    ImportNotes notes;
    try {
      Scope values;
      InferenceModel result = Import(onnx::ReadOnnxModel(path), path, values, options, &notes);
      // Values and shapes may let more branches, or those that will be taken, be imported.
      if (AddKnown(notes.needed, inputs, &options)) continue;
      if (notes.leaves_out && !std::exchange(shapes, true)) {
        AddShapes(inputs, &options);
        continue;
      }
      Show(notes, path);
      MoveInto(values, scope);
      return result;
    } catch (const Error& e) {
      if (AddKnown(notes.needed, inputs, &options)) continue;
      if (shapes || e.code() != ErrorCode::kUnimplemented) throw;
      AddShapes(inputs, &options);
      shapes = true;
    }
  }
}

}  // namespace

InferenceModel ImportOnnx(const std::string& path, Scope& scope, const OnnxImportOptions& options) {
  return ForModel(path,
                  [&] { return ImportOnce(onnx::ReadOnnxModel(path), path, scope, options); });
}

InferenceModel ImportOnnxFor(const std::string& path, const std::map<std::string, Tensor>& inputs,
                             Scope& scope, const OnnxImportOptions& options) {
  return ForModel(path, [&] { return ImportWith(path, inputs, scope, options); });
}

ProgramDesc OnnxInputs(const std::string& path) {
  return ForModel(path, [&] {
    onnx::OnnxModelFile file = onnx::ReadOnnxModel(path);
    Scope values;
    const OnnxImportOptions options;
    return ModelImporter(file, values, options).RunInputs();
  });
}

InferenceModel ParseOnnx(std::string_view bytes, const std::string& source, Scope& scope,
                         const OnnxImportOptions& options) {
  return ForModel(source, [&] {
    return ImportOnce(onnx::ParseOnnxModel(bytes, source), source, scope, options);
  });
}

void RegisterOnnxReader() {
  RegisterModelReader(
      ".onnx", [](const std::string& path, Scope& scope) { return ImportOnnx(path, scope); });
}

}  // namespace coracle
