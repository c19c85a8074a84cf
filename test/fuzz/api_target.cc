// Random calls of the C++ interface, which the fuzzer chooses.

#include <coracle/framework/base/error.h>
#include <coracle/test/fuzz/api_sequences.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/fuzz/targets.h>

#include <stdexcept>

namespace coracle {

void FuzzApi(std::string_view bytes) {
  SetLogSink([](MessageLevel, const std::string&) {});
  static const ScratchDirectory directory;
  directory.Clear();
  ApiCounts counts;
  if (const auto failure = RunApiSequence(Choices(bytes), directory.path(), &counts))
    throw std::logic_error(*failure);
}

}  // namespace coracle
