#include <coracle/convert/models.h>
#include <coracle/convert/pir/model_json.h>
#include <coracle/convert/pir/program_builder.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/model_reader.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <new>

namespace coracle {
namespace {

// Bytes of memory for a byte of JSON while it is parsed: an empty list of two bytes takes forty.
constexpr uint64_t kParsedBytes = 24;
constexpr size_t kLooked = 4096;

// Counts memory in the thread's limits during its lifetime.
class ReservedMemory {
 public:
  explicit ReservedMemory(uint64_t bytes) : limits_(ResourceLimits::Current()), bytes_(bytes) {
    if (limits_) limits_->Reserve(bytes, [] { return std::string("the text of a program"); });
  }
  ~ReservedMemory() {
    if (limits_) limits_->Release(bytes_);
  }
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

 private:
  std::shared_ptr<ResourceLimits> limits_;
  uint64_t bytes_;
};

std::string ParametersOf(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".pdiparams").string();
}

}  // namespace

ProgramDesc ParsePir(std::string_view text, const std::string& source, const OpRegistry* ops) {
  const ReservedMemory memory(text.size() * kParsedBytes);
  try {
    const pir::Block block = pir::ParseModelJson(text, source);
    return pir::ProgramBuilder(ops ? *ops : DefaultOps(), source).Build(block);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted, source + ": out of memory");
  }
}

ProgramDesc ReadPir(const std::string& path) {
  return ParsePir(ReadFile(path, kMaxProgramBytes), path);
}

InferenceModel ImportPir(const std::string& path, Scope& scope) {
  InferenceModel model;
  model.program = ReadPir(path);
  model.feed_names = FeedNames(model.program);
  model.fetch_names = FetchNames(model.program);
  if (!PersistableNames(model.program).empty())
    LoadParameters(model.program, ParametersOf(path), scope);
  return model;
}

bool LooksLikePir(std::string_view text) {
  const std::string_view start = Trim(text.substr(0, kLooked));
  return start.starts_with('{') && start.find("\"base_code\"") != start.npos;
}

bool IsPirFile(const std::string& path) {
  if (!path.ends_with(".json") || !FileExists(path) || IsDirectory(path)) return false;
  FileReader reader(path);
  std::string start(std::min<uint64_t>(kLooked, reader.left()), '\0');
  reader.Read(start.data(), start.size());
  return LooksLikePir(start);
}

void RegisterPirReader() { RegisterModelReader(".json", ImportPir); }

}  // namespace coracle
