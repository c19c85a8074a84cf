#include <coracle/convert/for_model.h>
#include <coracle/convert/models.h>
#include <coracle/convert/pir/model_json.h>
#include <coracle/convert/pir/program_builder.h>
#include <coracle/convert/pir/program_writer.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/model_reader.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

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

// Programs of Paddle 2 declare some results with another type or shape than their ops give.
ProgramDesc WithInferredTypes(const ProgramDesc& program) {
  ProgramDesc typed = program, probe = program;  // inference also opens dims
  BlockDesc& root = probe.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    OpDesc& op = root.op(i);
    if (op.HasSubBlock()) continue;
    InferOp(root, op, DefaultOps());
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* inferred = root.FindVar(name);
      VarDesc* var = typed.Root().FindVar(name);
      if (!inferred || !var || inferred->type() != var->type()) return;
      if (inferred->dtype() != var->dtype()) var->SetDType(inferred->dtype());
      if (!inferred->shape().CompatibleWith(var->shape())) var->SetShape(inferred->shape());
    });
  }
  return typed;
}

// A program and the variables that its parameter file holds, in order. Other persistable variables
// are those that a startup program sets.
struct ParsedPir {
  ProgramDesc program;
  std::vector<std::string> parameters;
};

std::vector<std::string> ParametersIn(const pir::Block& block) {
  std::set<std::string> names;
  for (const pir::Op& op : block.ops) {
    if (op.name != "builtin.parameter") continue;
    if (const Attribute* name = op.Find("parameter_name"))
      names.insert(AttributeAs<std::string>(*name));
  }
  return {names.begin(), names.end()};
}

ParsedPir Parsed(std::string_view text, const std::string& source,
                 const OpRegistry* ops = nullptr) {
  const ReservedMemory memory(text.size() * kParsedBytes);
  const pir::Block block = pir::ParseModelJson(text, source);
  return {pir::ProgramBuilder(ops ? *ops : DefaultOps(), source).Build(block), ParametersIn(block)};
}

struct WrittenPir {
  std::string text;
  std::vector<std::string> parameters;
};

WrittenPir Written(const ProgramDesc& program) {
  VerifyOrThrow(program, DefaultOps());
  pir::ProgramWriter writer(WithInferredTypes(program), DefaultOps());
  WrittenPir written{writer.Run(), {}};
  written.parameters.assign(writer.parameters().begin(), writer.parameters().end());
  return written;
}

}  // namespace

ProgramDesc ParsePir(std::string_view text, const std::string& source, const OpRegistry* ops) {
  return ForModel(source, [&] { return Parsed(text, source, ops).program; });
}

ProgramDesc ReadPir(const std::string& path) {
  return ForModel(path, [&] { return ParsePir(ReadFile(path, kMaxProgramBytes), path); });
}

InferenceModel ImportPir(const std::string& path, Scope& scope) {
  return ForModel(path, [&] {
    InferenceModel model;
    ParsedPir parsed = Parsed(ReadFile(path, kMaxProgramBytes), path);
    model.program = std::move(parsed.program);
    model.feed_names = FeedNames(model.program);
    model.fetch_names = FetchNames(model.program);
    if (parsed.parameters.empty()) return model;
    const TraceSpan span("load", "load parameters");
    LoadCombined(model.program, parsed.parameters, ParametersOf(path), scope);
    return model;
  });
}

std::string ProgramToPir(const ProgramDesc& program) { return Written(program).text; }

void ExportPir(const std::string& path, const ProgramDesc& program, const Scope& parameters) {
  ForModel(path, [&] {
    const WrittenPir written = Written(program);
    // A reader that finds the program finds its parameters too.
    if (!written.parameters.empty())
      SaveCombined(parameters, written.parameters, ParametersOf(path));
    WriteFileAtomic(path, written.text);
  });
}

bool LooksLikePir(std::string_view text) {
  const std::string_view start = Trim(text.substr(0, kLooked));
  return start.starts_with('{') && start.find("\"base_code\"") != start.npos;
}

bool IsPirFile(const std::string& path) {
  if (!path.ends_with(".json")) return false;
  return ForModel(path, [&] {
    if (!FileExists(path) || IsDirectory(path)) return false;
    FileReader reader(path);
    std::string start(std::min<uint64_t>(kLooked, reader.left()), '\0');
    reader.Read(start.data(), start.size());
    return LooksLikePir(start);
  });
}

void RegisterPirReader() { RegisterModelReader(".json", ImportPir); }

}  // namespace coracle
