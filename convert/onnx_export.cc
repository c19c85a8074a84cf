#include <coracle/convert/for_model.h>
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/write_model.h>
#include <coracle/framework/base/version.h>
#include <fmt/format.h>

namespace coracle {
namespace {

// The version of ONNX's file format for an opset (ONNX, docs/Versioning.md).
int IrVersionOf(int opset) { return opset <= 14 ? 7 : opset <= 18 ? 8 : opset <= 20 ? 9 : 10; }

void Export(const std::string& path, const ProgramDesc& program, const Scope& parameters,
            const OnnxExportOptions& options) {
  if (options.opset < kLeastOnnxOpset || options.opset > kLatestOnnxOpset) {
    ThrowInvalid(fmt::format("ONNX export: the opset must lie between {} and {}, got {}",
                             kLeastOnnxOpset, kLatestOnnxOpset, options.opset));
  }
  onnx::ProgramExporter exporter(program, parameters, options.opset, options.one_sequence);
  onnx::Graph& graph = exporter.Run();
  auto& model = graph.model();
  model.set_ir_version(IrVersionOf(options.opset));
  model.set_producer_name("coracle");
  model.set_producer_version(
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH));
  model.mutable_graph()->set_name("program");
  model.add_opset_import()->set_version(options.opset);
  model.mutable_opset_import(0)->set_domain("");
  if (graph.ml_version() > 0) {
    auto& ml = *model.add_opset_import();
    ml.set_domain("ai.onnx.ml");
    ml.set_version(graph.ml_version());
  }
  if (graph.uses_microsoft()) {
    auto& microsoft = *model.add_opset_import();
    microsoft.set_domain("com.microsoft");
    microsoft.set_version(1);
  }
  for (const auto& [key, value] : options.metadata) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  onnx::WriteModel(graph, path, options.max_model_bytes);
}

}  // namespace

void ExportOnnx(const std::string& path, const ProgramDesc& program, const Scope& parameters,
                const OnnxExportOptions& options) {
  ForModel(path, [&] { Export(path, program, parameters, options); });
}

}  // namespace coracle
