// Programs as ONNX models, and back.

#include <coracle/convert/models.h>
#include <coracle/executor/drawn_values.h>
#include <coracle/framework/base/error.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/fuzz/random_program.h>
#include <coracle/test/fuzz/small_limits.h>
#include <coracle/test/fuzz/targets.h>

#include <stdexcept>
#include <string>

namespace coracle {
namespace {

ProgramDesc ProgramOf(std::string_view bytes) {
  if (bytes.starts_with('r')) {
    Choices choose(bytes.substr(1));
    return MakeRandomProgram(choose, {}).program;
  }
  return LooksLikeText(bytes) ? ParseProgramText(bytes, "input") : ParseProgram(bytes, "input");
}

// A model that Coracle wrote is one that it accepts, except for what the importer lacks.
void ImportAgain(const std::string& path) {
  Scope scope;
  try {
    ImportOnnx(path, scope);
  } catch (const Error& error) {
    CheckError(error);
    if (error.code() == ErrorCode::kDataLoss)
      throw std::logic_error("a written model is damaged: " + error.message());
  }
}

}  // namespace

void FuzzOnnxExport(std::string_view bytes) {
  SetLogSink([](MessageLevel, const std::string&) {});
  static const ScratchDirectory directory;
  const std::string path = directory.File("model.onnx");
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    const ProgramDesc program = ProgramOf(bytes);
    Scope parameters;
    DrawMissingParameters(program, parameters);
    for (const int opset : {0, kLeastOnnxOpset, kLatestOnnxOpset}) {
      bool written = false;
      Refusable([&] {
        ExportOnnx(path, program, parameters, {.opset = opset, .one_sequence = opset == 22});
        written = true;
      });
      if (written) ImportAgain(path);
    }
  });
}

}  // namespace coracle
