#include <coracle/convert/for_model.h>
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/write_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/version.h>
#include <fmt/format.h>

#include <optional>
#include <string>

namespace coracle {
namespace {

// The version of ONNX's file format for an opset (ONNX, docs/Versioning.md).
int IrVersionOf(int opset) { return opset <= 14 ? 7 : opset <= 18 ? 8 : opset <= 20 ? 9 : 10; }

void CheckOpset(int opset) {
  if (opset == 0 || (opset >= kLeastOnnxOpset && opset <= kLatestOnnxOpset)) return;
  ThrowInvalid(fmt::format("ONNX export: the opset must lie between {} and {}, or be 0, got {}",
                           kLeastOnnxOpset, kLatestOnnxOpset, opset));
}

// Exporters choose nodes by the operator set, so a later set needs a new export.
onnx::Graph& RunExporter(const std::string& path, const ProgramDesc& program,
                         const Scope& parameters, const OnnxExportOptions& options,
                         std::optional<onnx::ProgramExporter>* exporter) {
  onnx::ExporterSettings settings = {options.opset, options.opset == 0, options.one_sequence};
  if (settings.may_raise_opset) settings.opset = kDefaultOnnxOpset;
  std::string reason;
  while (true) {
    try {
      onnx::Graph& graph = exporter->emplace(program, parameters, settings).Run();
      if (!reason.empty()) {
        LogMessage(MessageLevel::kInfo,
                   fmt::format("{}: opset {}, because of {}", path, settings.opset, reason));
      }
      return graph;
    } catch (const onnx::OpsetNeeded& needed) {
      settings.opset = needed.least;
      reason = needed.reason;
    }
  }
}

void Export(const std::string& path, const ProgramDesc& program, const Scope& parameters,
            const OnnxExportOptions& options) {
  CheckOpset(options.opset);
  std::optional<onnx::ProgramExporter> exporter;
  onnx::Graph& graph = RunExporter(path, program, parameters, options, &exporter);
  auto& model = graph.model();
  model.set_ir_version(IrVersionOf(graph.opset()));
  model.set_producer_name("coracle");
  model.set_producer_version(
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH));
  model.mutable_graph()->set_name("program");
  model.add_opset_import()->set_version(graph.opset());
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
