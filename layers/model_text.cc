#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/layers/internal/model_reader.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>

#include <cctype>
#include <map>
#include <memory>

namespace coracle {
namespace {

// Whether the first field shows that the text is a ProgramDesc and not a model.
bool IsProgramText(std::string_view text) {
  for (;;) {
    text = Trim(text);
    if (!text.starts_with('#')) break;
    size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end);
  }
  auto begins = [&](std::string_view field) {
    return text.starts_with(field) &&
           (text.size() == field.size() ||
            !(std::isalnum(static_cast<unsigned char>(text[field.size()])) ||
              text[field.size()] == '_'));
  };
  return begins("blocks") || begins("version") || begins("op_version_map") || text.starts_with('[');
}

BuiltModel FromProgram(ProgramDesc program) {
  BuiltModel model;
  model.main = std::move(program);
  std::map<int32_t, std::string> feeds;
  const BlockDesc& root = model.main.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    if (IsFeed(op) && op.HasOutput("Out")) {
      feeds[op.GetAttr<int32_t>("col", 0)] = op.Output("Out").front();
    }
  }
  for (const auto& feed : feeds) model.inputs.push_back(feed.second);
  return model;
}

BuiltModel Parse(std::string_view text, const std::string& source, const std::string& directory,
                 const std::string& path, const OpRegistry& ops, const ModelState& state) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the UTF-8 mark of some editors
  if (!text.empty() && !source.ends_with(".pbtxt") && !LooksLikeText(text))
    return FromProgram(ParseProgram(text, source));
  if (IsProgramText(text)) return FromProgram(ParseProgramText(text, source));
  if (text.size() > kMaxModelTextBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: a model text has at most {}, got {}", source,
                            HumanBytes(kMaxModelTextBytes), HumanBytes(text.size())));
  }
  std::shared_ptr<const TextSchema> schema = CurrentTextSchema(ops);
  std::unique_ptr<TextFile> file = ParseText(*schema, std::string(text), source, directory);
  BuiltModel model;
  ReadModel(*schema, ops, state, *file, path, model);
  return model;
}

}  // namespace

BuiltModel ParseModelText(std::string_view text, const std::string& source,
                          const std::string& directory, const OpRegistry& ops,
                          const ModelState& state) {
  const TraceSpan span("load", "build the model text");
  return Parse(text, source, directory, "", ops, state);
}

BuiltModel ReadModelText(const std::string& path, const OpRegistry& ops, const ModelState& state) {
  const std::string text = ReadFileOrStdin(path, kMaxProgramBytes);
  if (path == "-") return Parse(text, "-", ".", "", ops, state);
  const bool binary = path.ends_with(".pb") || path.ends_with(".pdmodel");
  if (text.empty() && binary) return FromProgram(ParseProgram(text, path));
  return Parse(text, path, TextDirectory(path), CanonicalPath(path), ops, state);
}

std::string ModelSchema(const OpRegistry& ops) { return TextSchema(ops).pool().Print(); }

}  // namespace coracle
