#include <coracle/framework/base/file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/model_build.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

namespace coracle::inline internal {
namespace {

using google::protobuf::FieldDescriptor;

constexpr int kMaxDepth = 64;  // nesting of repeats, includes and bodies

void ReadFileEntries(ModelBuild& build, const Surroundings& around, const TextFile& file) {
  const Node root(file);
  if (build.model.name.empty()) build.model.name = root.String("name");
  for (int i = 0; i < root.Count("data"); ++i) {
    const Node data = root.Child("data", i);
    if (!around.skipping && Includes(data, build.state, &build.model.has_rules))
      Located(data, [&] { ReadData(build, around, data); });
  }
  ReadEntries(build, around, root);
}

void ReadInclude(ModelBuild& build, const Surroundings& around, const Node& entry) {
  const std::string where = entry.Where("include");
  const std::string name = around.String(entry, "include");
  if (name.empty()) throw LocatedError(where, "include: a path is required");
  if (std::filesystem::path(name).is_absolute()) {
    throw LocatedError(
        where, fmt::format("include: the path must be relative to this text, got {}", Quote(name)));
  }
  Surroundings inside = around.Inside(where);
  const std::string path = entry.file().directory + "/" + name;
  const std::string canonical = build.files.Canonical(path);
  const std::vector<std::string>& open = around.open_paths;
  if (std::find(open.begin(), open.end(), canonical) != open.end())
    throw LocatedError(where, fmt::format("include: {} includes itself", Quote(name)));
  inside.rounds.push_back("included from " + where);
  inside.open_paths.push_back(canonical);
  try {
    ReadFileEntries(build, inside, build.files.Parsed(build.schema, path));
  } catch (const LocatedError& error) {
    throw LocatedError(error.WithDetail("included from " + where));
  } catch (const Error& error) {
    throw LocatedError(error.WithPrefix(where));
  }
}

// Checks the fields of a repeat.
void CheckRepeat(const Node& node) {
  if (!node.Has("times")) node.Fail("repeat: times is required");
  const int64_t times = node.Integer("times"), start = node.Integer("start");
  if (times < 0 || times > ModelLimits::kMaxEntries) {
    throw LocatedError(node.Where("times"), fmt::format("repeat: times must lie in [0, {}], got {}",
                                                        ModelLimits::kMaxEntries, times));
  }
  if (std::abs(static_cast<double>(start)) > 1e12) {
    throw LocatedError(node.Where("start"),
                       fmt::format("repeat: start must lie in [-1e12, 1e12], got {}", start));
  }
  const std::string index = node.String("index");
  const bool name = !index.empty() && std::all_of(index.begin(), index.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_';
  });
  if (!name) {
    throw LocatedError(node.Where("index"),
                       fmt::format("repeat: index must be a name, got {}", Quote(index)));
  }
}

void ReadRepeat(ModelBuild& build, const Surroundings& around, const Node& node) {
  CheckRepeat(node);
  const int64_t times = node.Integer("times"), start = node.Integer("start");
  const std::string index = node.String("index");
  Surroundings inside = around.Inside(node.where());
  inside.indices.push_back({index, 0});
  inside.rounds.emplace_back();
  for (int64_t i = 0; i < times; ++i) {
    build.limits.CountEntry(node);
    inside.indices.back().value = start + i;
    inside.rounds.back() = fmt::format("{} = {}", index, start + i);
    try {
      ReadEntries(build, inside, node);
    } catch (const LocatedError& error) {
      throw LocatedError(error.WithDetail(
          fmt::format("repeated from {}, with {} = {}", node.where(), index, start + i)));
    }
  }
}

// A layer that only another state includes uses up its number here too, so that later layers have
// the same names in all states.
void Skip(ModelBuild& build, const Surroundings& around, const Node& node, const std::string& kind,
          const LayerDef* layer) {
  if (layer) {
    if (!node.Has("name")) build.model.main.UniqueName(layer->name);
    return;
  }
  if (kind == "op") return;
  const Surroundings inside = around.Inside(node.where());
  if (kind != "cond" && kind != "switch") ReadEntries(build, inside, node);
  for (const char* side : {"then", "otherwise", "case", "default"}) {
    if (!node.type().FindFieldByName(side)) continue;
    for (int i = 0; i < node.Count(side); ++i) ReadEntries(build, inside, node.Child(side, i));
  }
}

void ReadEntry(ModelBuild& build, const Surroundings& around, const Node& entry,
               const FieldDescriptor& kind) {
  if (kind.name() == "include") return ReadInclude(build, around, entry);
  const Node node = entry.Child(kind);
  const LayerDef* layer = build.schema.Layer(kind.index());
  if (around.skipping && kind.name() != "repeat") {
    Skip(build, around, node, kind.name(), layer);
  } else if (layer) {
    Located(node, [&] { ReadLayer(build, around, node, *layer); });
  } else if (kind.name() == "repeat") {
    ReadRepeat(build, around, node);
  } else if (kind.name() == "op") {
    ReadOp(build, around, node);
  } else {
    const Surroundings inside = around.Inside(node.where());
    Located(node, [&] { ReadControlFlow(build, inside, node, kind.name()); });
  }
}

}  // namespace

void ModelLimits::CountEntry(const Node& entry) {
  CheckTimeLimit("building the model");
  if (++entries_ > kMaxEntries)
    entry.Fail(fmt::format("the text makes more than {} entries", kMaxEntries));
}

// An entry adds variables to its block, to the root (parameters) and to blocks that it makes.
void ModelLimits::CountVars(const Node& entry, const ProgramDesc& main, int block) {
  const auto recount = [&](int b) {
    size_t& counted = vars_of_block_[static_cast<size_t>(b)];
    vars_ += main.Block(b).NumVars() - counted;
    counted = main.Block(b).NumVars();
  };
  const auto known = static_cast<int>(vars_of_block_.size());
  vars_of_block_.resize(static_cast<size_t>(main.NumBlocks()), 0);
  for (int b = known; b < main.NumBlocks(); ++b) recount(b);
  recount(0);
  recount(block);
  if (vars_ > kMaxVars) {
    entry.Fail(fmt::format(
        "the model has more than {} variables, counting parameters and all blocks", kMaxVars));
  }
}

std::string IncludedFiles::Canonical(const std::string& path) {
  std::string& canonical = canonical_[path];
  if (canonical.empty()) canonical = CanonicalPath(path);
  return canonical;
}

const TextFile& IncludedFiles::Parsed(const TextSchema& schema, const std::string& path) {
  std::unique_ptr<TextFile>& file = files_[Canonical(path)];
  if (!file) {
    std::string shown = std::filesystem::path(path).lexically_normal().string();
    file = ParseText(schema, ReadFile(path, kMaxModelTextBytes), shown, TextDirectory(path));
  }
  return *file;
}

Surroundings Surroundings::Inside(const std::string& where) const {
  Surroundings inside = *this;
  if (++inside.depth > kMaxDepth) {
    throw LocatedError(
        where, fmt::format("repeats and includes are nested deeper than {} levels", kMaxDepth));
  }
  return inside;
}

void ReadEntries(ModelBuild& build, const Surroundings& around, const Node& parent) {
  for (int i = 0; i < parent.Count("layer"); ++i) {
    const Node entry = parent.Child("layer", i);
    build.limits.CountEntry(entry);
    const FieldDescriptor* kind = entry.Kind();
    if (!kind) entry.Fail("layer: the entry is empty; name a layer, op, include or repeat");
    if (Includes(entry, build.state, &build.model.has_rules) || around.skipping) {
      ReadEntry(build, around, entry, *kind);
    } else {
      Surroundings skipped = around;
      skipped.skipping = true;
      ReadEntry(build, skipped, entry, *kind);
    }
    build.limits.CountVars(entry, build.model.main, build.net.block().idx());
  }
}

std::string TextDirectory(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

std::string CanonicalPath(const std::string& path) {
  std::error_code error;
  std::string canonical = std::filesystem::weakly_canonical(path, error).string();
  return error || canonical.empty() ? path : canonical;
}

void ReadModel(const TextSchema& schema, const OpRegistry& ops, const ModelState& state,
               const TextFile& file, const std::string& path, BuiltModel& model) {
  ModelBuild build = {schema, StateToMatch(state), model, Builder(model.main, model.startup, ops)};
  Surroundings around;
  if (!path.empty()) around.open_paths.push_back(path);
  ReadFileEntries(build, around, file);
}

}  // namespace coracle::inline internal
