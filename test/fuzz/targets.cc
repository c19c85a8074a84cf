#include <coracle/framework/base/logging.h>
#include <coracle/framework/io/npy.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/operators/default_ops.h>
#include <coracle/test/fuzz/targets.h>

#include <stdexcept>
#include <string>

namespace coracle {
namespace {

void Require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Runs `read`; an Error is its right to refuse the input, an InternalError is not.
template <class F>
void Refusable(F&& read) {
  try {
    read();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& e) {
    Require(!e.message().empty() && e.message().find('\n') == std::string::npos,
            "an error's first line must stand alone");
  }
}

void Quiet() {
  static const bool once = [] {
    SetLogSink([](LogLevel, const std::string&) {});
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace

void FuzzProgramBinary(std::string_view bytes) {
  Quiet();
  Refusable([&] {
    ProgramDesc program = ParseProgram(bytes, "input");
    std::string written = SerializeProgram(program);
    Require(SerializeProgram(ParseProgram(written)) == written, "a second reading differs");
    for (const Problem& problem : Verify(program, DefaultOps()))
      Require(problem.ToString().size() < 4096, "a problem is too long to read");
    program.CloneForTest();
  });
}

void FuzzProgramText(std::string_view text) {
  Quiet();
  Refusable([&] {
    ProgramDesc program = ParseProgramText(text, "input");
    std::string written = ProgramToText(program);
    Require(ProgramToText(ParseProgramText(written)) == written, "a second reading differs");
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
    } else {
      ParseNpz(bytes, "input");
    }
  });
}

}  // namespace coracle
