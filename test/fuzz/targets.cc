#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/train/job/job.h>

#include <filesystem>
#include <string>

namespace coracle {
namespace {

void Quiet() {
  static const bool once = [] {
    SetLogSink([](MessageLevel, const std::string&) {});
    return true;
  }();
  static_cast<void>(once);
}

// A directory without files, for includes that find nothing.
const std::string& NoDirectory() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / "coracle_fuzz_nothing").string();
  return path;
}

}  // namespace

void FuzzProgramBinary(std::string_view bytes) {
  Quiet();
  Refusable([&] { UseProgram(ParseProgram(bytes, "input")); });
}

void FuzzProgramText(std::string_view text) {
  Quiet();
  Refusable([&] {
    ProgramDesc program = ParseProgramText(text, "input");
    std::string written = ProgramToText(program);
    Require(ProgramToText(ParseProgramText(written)) == written, "a second reading differs");
    UseProgram(program);
  });
}

void FuzzModelText(std::string_view text) {
  Quiet();
  Refusable([&] {
    BuiltModel model = ParseModelText(text, "input", NoDirectory());
    UseProgram(model.main);
    UseProgram(model.startup);
  });
}

void FuzzTensor(std::string_view bytes) {
  Quiet();
  if (bytes.empty()) return;
  char kind = bytes[0];
  bytes.remove_prefix(1);
  Refusable([&] {
    size_t offset = 0;
    if (kind == 't') {
      Tensor tensor = ParseTensor(bytes, &offset, "input");
      std::string written;
      AppendTensor(tensor, &written);
      offset = 0;
      Require(BitEqual(ParseTensor(written, &offset, "again"), tensor), "a tensor differs");
    } else if (kind == 's') {
      std::string written;
      AppendSelectedRows(ParseSelectedRows(bytes, &offset, "input"), &written);
    } else if (kind == 'n') {
      Tensor tensor = ParseNpy(bytes, "input");
      Require(BitEqual(ParseNpy(SerializeNpy(tensor), "again"), tensor), "an array differs");
    } else if (kind == 'f') {
      ParseSafetensors(bytes, "input");
    } else {
      ParseNpz(bytes, "input");
    }
  });
}

void FuzzCaffe(std::string_view bytes) {
  Quiet();
  if (bytes.empty()) return;
  const char kind = bytes[0];
  bytes.remove_prefix(1);
  Refusable([&] {
    if (kind == 'n') {
      const caffe::ImportedNet net = caffe::ImportNet(caffe::ParseNet(bytes, "input"), {});
      for (const bool train : {true, false}) {
        ModelState state;
        state.train = train;
        UseProgram(ParseModelText(net.text, "net", NoDirectory(), DefaultOps(), state).main);
      }
    } else if (kind == 's') {
      const std::string job = caffe::ImportSolverText(bytes, "input", {}, "weights.npz").text;
      ParseJobText(job, "job");
    } else {
      caffe::ParseCaffeModel(bytes, "input");
    }
  });
}

}  // namespace coracle
