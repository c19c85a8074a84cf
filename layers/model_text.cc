#include <coracle/clip/clip.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/internal/model_reader.h>
#include <coracle/layers/layer.h>
#include <coracle/regularizer/regularizer.h>
#include <fmt/format.h>

#include <cctype>
#include <map>
#include <memory>
#include <mutex>

namespace coracle {
namespace {

// Whether the text is a ProgramDesc rather than a model: by its first field.
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
    if (op.type() == "feed" && op.HasOutput("Out")) {
      feeds[op.GetAttr<int32_t>("col", 0)] = op.Output("Out").front();
    }
  }
  for (const auto& feed : feeds) model.inputs.push_back(feed.second);
  return model;
}

// The schema of a registry. That of the default ops is kept until something is registered.
std::shared_ptr<const TextSchema> SchemaOf(const OpRegistry& ops) {
  if (&ops != &DefaultOps()) return std::make_shared<const TextSchema>(ops);
  static std::mutex mutex;
  static std::shared_ptr<const TextSchema> kept;
  static size_t kept_count = 0;
  const size_t count = ops.Types().size() + NumRegisteredLayers() + GradientClipFields().size() +
                       RegularizerFields().size();
  std::lock_guard<std::mutex> lock(mutex);
  if (!kept || kept_count != count) {
    kept = std::make_shared<const TextSchema>(ops);
    kept_count = count;
  }
  return kept;
}

// The entries that are no layers, with their messages: while and repeat. The raw ops have
// `coracle ops` to tell of them.
std::vector<std::pair<std::string, std::string>> OtherEntries(const SchemaPool& pool) {
  std::vector<std::pair<std::string, std::string>> entries;
  const auto& layer = *pool.root()->file()->FindMessageTypeByName("Layer");
  for (int i = 0; i < layer.field_count(); ++i) {
    const auto* type = layer.field(i)->message_type();
    if (layer.field(i)->containing_oneof() && type && type->name() != "Op" &&
        !type->name().ends_with("_layer"))
      entries.emplace_back(layer.field(i)->name(), type->name());
  }
  return entries;
}

BuiltModel Parse(std::string_view text, const std::string& source, const std::string& directory,
                 const std::string& path, const OpRegistry& ops, const ModelState& state) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // an editor's mark of UTF-8
  if (!text.empty() && !source.ends_with(".pbtxt") && !LooksLikeText(text))
    return FromProgram(ParseProgram(text, source));
  if (IsProgramText(text)) return FromProgram(ParseProgramText(text, source));
  if (text.size() > kMaxModelTextBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: a model text has at most {}, got {}", source,
                            HumanBytes(kMaxModelTextBytes), HumanBytes(text.size())));
  }
  std::shared_ptr<const TextSchema> schema = SchemaOf(ops);
  std::unique_ptr<TextFile> file = ParseText(*schema, std::string(text), source, directory);
  BuiltModel model;
  ReadModel(*schema, ops, state, *file, path, model);
  return model;
}

}  // namespace

BuiltModel ParseModelText(std::string_view text, const std::string& source,
                          const std::string& directory, const OpRegistry& ops,
                          const ModelState& state) {
  return Parse(text, source, directory, "", ops, state);
}

BuiltModel ReadModelText(const std::string& path, const OpRegistry& ops, const ModelState& state) {
  const std::string text = ReadFileOrStdin(path, kMaxProgramBytes);
  if (path == "-") return Parse(text, "-", ".", "", ops, state);
  return Parse(text, path, DirectoryOf(path), CanonicalPath(path), ops, state);
}

std::string DescribeLayer(const std::string& name, const OpRegistry& ops) {
  const std::shared_ptr<const TextSchema> schema = SchemaOf(ops);
  const SchemaPool& pool = schema->pool();
  std::string text;
  for (const auto& [suffix, what] :
       {std::pair{"_layer", "layer"}, {"_initializer", "initializer"}}) {
    const std::string fields = pool.Describe(name + suffix);
    if (!fields.empty()) text += fmt::format("{} {}: {}", what, name, fields);
  }
  for (const auto& [entry, message] : OtherEntries(pool))
    if (entry == name) text += fmt::format("entry {}: {}", name, pool.Describe(message));
  return text;
}

std::vector<std::string> LayerNames(const OpRegistry& ops) {
  const std::shared_ptr<const TextSchema> schema = SchemaOf(ops);
  std::vector<std::string> names = schema->pool().NamesBefore({"_layer", "_initializer"});
  for (const auto& [entry, message] : OtherEntries(schema->pool())) names.push_back(entry);
  return names;
}

std::string ModelSchema(const OpRegistry& ops) { return TextSchema(ops).pool().Print(); }

}  // namespace coracle
