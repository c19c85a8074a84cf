#include <coracle/capi/border.h>
#include <coracle/capi/model.h>
#include <coracle/capi/options.h>
#include <coracle/convert/models.h>
#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/model_bytes.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace coracle::capi {
namespace {

// ONNX models take shapes when they are imported; for programs, the shape rules run again.
void DeclareInputs(const coracle_options& options, InferenceModel* model) {
  const InputShapes shapes(options.input_shapes.begin(), options.input_shapes.end());
  for (const auto& [name, shape] : shapes) {
    if (std::count(model->feed_names.begin(), model->feed_names.end(), name) == 0) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("the option shape:{} names no input of the model{}", name,
                              DidYouMean(name, model->feed_names)));
    }
  }
  if (!shapes.empty()) SetShapes(model->program, shapes, DefaultOps());
}

InferenceModel LoadFile(const std::string& path, const coracle_options& options, Scope& scope) {
  if (path.ends_with(".onnx") && !options.input_shapes.empty())
    return ImportOnnx(path, scope, {.input_shapes = options.input_shapes});
  InferenceModel model = LoadInferenceModel(path, scope);
  DeclareInputs(options, &model);
  return model;
}

InferenceModel ParsePirModel(std::string_view program, std::string_view parameters,
                             const std::string& source, Scope& scope) {
  InferenceModel model;
  model.program = ParsePir(program, source);
  model.feed_names = FeedNames(model.program);
  model.fetch_names = FetchNames(model.program);
  ParseCombined(model.program, PersistableNames(model.program), parameters,
                source + "'s parameters", scope);
  return model;
}

InferenceModel LoadBytes(std::string_view format, std::string_view program,
                         std::string_view parameters, const coracle_options& options,
                         Scope& scope) {
  const std::string source = "the model in memory";
  if (format == "onnx")
    return ParseOnnx(program, source, scope, {.input_shapes = options.input_shapes});
  if (format != "pdmodel" && format != "json") {
    ThrowInvalid(fmt::format("the format must be pdmodel, json or onnx, got {}",
                             Quote(std::string(format))));
  }
  InferenceModel model = format == "json" ? ParsePirModel(program, parameters, source, scope)
                                          : ParseInferenceModel(program, parameters, source, scope);
  DeclareInputs(options, &model);
  return model;
}

std::vector<Port> PortsOf(const ProgramDesc& program, const std::vector<std::string>& names) {
  std::vector<Port> ports;
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    if (!var)
      throw Error(ErrorCode::kNotFound, fmt::format("the program has no var {}", Quote(name)));
    ports.push_back({name, var->dtype(), var->shape()});
  }
  return ports;
}

coracle_model* Compile(const InferenceModel& from, Scope scope, const coracle_options& options) {
  auto model = std::make_shared<Model>();
  model->options = options.compile;
  model->inputs = PortsOf(from.program, from.feed_names);
  model->outputs = PortsOf(from.program, from.fetch_names);
  const Executor executor(options.compile);
  model->program = std::make_unique<PreparedProgram>(
      executor.PrepareOwning(from.program, scope, from.feed_names, from.fetch_names));
  model->state = std::move(scope);
  return new coracle_model{std::move(model)};
}

// `load` gives the model of a scope.
template <class Load>
void LoadModel(const coracle_options* given, coracle_model** model, const Load& load) {
  coracle_options options;
  options.compile.shape_warnings = false;
  if (given) options = *given;
  Scope scope;
  const InferenceModel loaded = load(options, scope);
  *model = Compile(loaded, std::move(scope), options);
}

void FillPort(const std::vector<Port>& ports, int32_t index, const char** name, int32_t* dtype,
              int32_t* rank, int64_t* dims) {
  if (index < 0 || static_cast<size_t>(index) >= ports.size()) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("there is no {}: the model has {}", index, ports.size()));
  }
  const Port& port = ports[static_cast<size_t>(index)];
  if (name) *name = port.name.c_str();
  if (dtype) *dtype = static_cast<int32_t>(port.dtype);
  if (rank) *rank = port.shape.rank();
  if (dims) std::copy(port.shape.begin(), port.shape.end(), dims);
}

std::string_view BytesOf(const void* data, uint64_t size, const char* name) {
  if (size > 0) RequireArgument(data, name);
  return {static_cast<const char*>(data), size};
}

}  // namespace
}  // namespace coracle::capi

using namespace coracle::capi;  // NOLINT(google-build-using-namespace): the functions are in C

extern "C" {

int32_t coracle_model_load(const char* path, const coracle_options* options,
                           coracle_model** model) {
  return Guard([&] {
    RequireArgument(model, "model");
    *model = nullptr;
    RequireArgument(path, "path");
    LoadModel(options, model, [&](const coracle_options& chosen, coracle::Scope& scope) {
      return LoadFile(path, chosen, scope);
    });
  });
}

int32_t coracle_model_load_memory(const char* format, const void* program, uint64_t program_bytes,
                                  const void* parameters, uint64_t parameter_bytes,
                                  const coracle_options* options, coracle_model** model) {
  return Guard([&] {
    RequireArgument(model, "model");
    *model = nullptr;
    RequireArgument(format, "format");
    const auto text = BytesOf(program, program_bytes, "program");
    const auto values = BytesOf(parameters, parameter_bytes, "parameters");
    LoadModel(options, model, [&](const coracle_options& chosen, coracle::Scope& scope) {
      return LoadBytes(format, text, values, chosen, scope);
    });
  });
}

void coracle_model_free(coracle_model* model) { delete model; }

int32_t coracle_model_inputs(const coracle_model* model) {
  return model ? static_cast<int32_t>(model->model->inputs.size()) : 0;
}
int32_t coracle_model_outputs(const coracle_model* model) {
  return model ? static_cast<int32_t>(model->model->outputs.size()) : 0;
}

int32_t coracle_model_input(const coracle_model* model, int32_t index, const char** name,
                            int32_t* dtype, int32_t* rank, int64_t* dims) {
  return Guard([&] {
    RequireArgument(model, "model");
    FillPort(model->model->inputs, index, name, dtype, rank, dims);
  });
}
int32_t coracle_model_output(const coracle_model* model, int32_t index, const char** name,
                             int32_t* dtype, int32_t* rank, int64_t* dims) {
  return Guard([&] {
    RequireArgument(model, "model");
    FillPort(model->model->outputs, index, name, dtype, rank, dims);
  });
}

}  // extern "C"
