// Inference models: a pruned program with its feed and fetch ops, and its parameters.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/memory_errors.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/combined.h>
#include <coracle/framework/io/model_bytes.h>
#include <coracle/framework/io/model_reader.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/training_stage.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <unordered_set>

namespace coracle {
namespace {

namespace fs = std::filesystem;

struct ModelFiles {
  std::string program;
  std::string parameters;  // a file, or a directory with one file per variable
};

std::string WithoutSuffix(const std::string& path, std::string_view suffix) {
  return path.ends_with(suffix) ? path.substr(0, path.size() - suffix.size()) : path;
}

void RemoveTargets(BlockDesc& root) {
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (root.op(i).is_target()) root.op(i).SetIsTarget(false);
  }
}

// Requires every dense tensor that an op of the root reads to be fed, persistable or written by
// some op.
void CheckFed(const BlockDesc& root, const std::vector<std::string>& feeds) {
  std::unordered_set<std::string_view> known(feeds.begin(), feeds.end());
  root.ForEachOp([&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) { known.insert(name); });
  });
  for (size_t i = 0; i < root.NumOps(); ++i) {
    root.op(i).ForEachInput([&](const std::string& name) {
      const VarDesc* var = root.FindVar(name);
      if (!var || var->persistable() || var->type() != VarType::kLoDTensor || known.count(name))
        return;
      ThrowInvalid(fmt::format(
          "the inference model reads the var {} (op {}, {}), which is not among the feeds",
          Quote(name), i, root.op(i).type()));
    });
  }
}

void RequireVar(const BlockDesc& root, const std::string& name, const char* what) {
  if (root.FindVar(name)) return;
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("the program has no var {} to {}{}", Quote(name),
                                                what, DidYouMean(name, names)));
}

ProgramDesc MakeInferenceProgram(const ProgramDesc& program, const std::vector<std::string>& feeds,
                                 const std::vector<std::string>& fetches) {
  ProgramDesc model = program.CloneForTest();
  RemoveFeedsAndFetches(model);
  RemoveTargets(model.Root());
  for (const std::string& name : feeds) RequireVar(model.Root(), name, "feed");
  for (const std::string& name : fetches) RequireVar(model.Root(), name, "fetch");
  model.Prune(fetches, feeds);
  for (size_t i = 0; i < model.Root().NumOps(); ++i) {
    OpDesc& op = model.Root().op(i);
    if (op.HasAttr("is_test")) op.RemoveOutput("ReserveSpace");  // only training reads it
  }
  CheckFed(model.Root(), feeds);
  SetFeedsAndFetches(model, feeds, fetches);
  return model;
}

std::vector<std::string> PdmodelsIn(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".pdmodel") found.push_back(it->path().string());
  return found;
}

// For a directory without __model__: returns inference.pdmodel, or the only .pdmodel file there.
std::string FindPdmodel(const std::string& directory) {
  if (FileExists(directory + "/inference.pdmodel")) return directory + "/inference.pdmodel";
  const std::vector<std::string> found = PdmodelsIn(directory);
  if (found.size() == 1) return found[0];
  throw Error(ErrorCode::kNotFound,
              fmt::format("the directory {} holds {}", Quote(directory, 300),
                          found.empty() ? "neither __model__ nor a .pdmodel file"
                                        : "several .pdmodel files; name one of them"));
}

ModelFiles FindModel(const std::string& path) {
  if (IsDirectory(path)) {
    if (!FileExists(path + "/__model__")) return FindModel(FindPdmodel(path));
    std::string combined = path + "/__params__";
    return {path + "/__model__", FileExists(combined) ? combined : path};
  }
  std::string prefix = WithoutSuffix(path, ".pdmodel");
  if (FileExists(prefix + ".pdmodel")) return {prefix + ".pdmodel", prefix + ".pdiparams"};
  if (FileExists(path)) {
    const std::string parent = fs::path(path).parent_path().string();
    const std::string directory = parent.empty() ? std::string(".") : parent;
    std::string combined = directory + "/__params__";
    return {path, FileExists(combined) ? combined : directory};
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("no model at {}: neither a directory nor {}.pdmodel exists",
                          Quote(path, 300), prefix));
}

// Marks of the training step that the model was a part of must not steer a step that trains it.
void RemoveMarks(ProgramDesc& program) {
  program.ForEachOp([](OpDesc& op) {
    for (const char* mark : {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr})
      if (op.HasAttr(mark)) op.RemoveAttr(mark);
  });
}

// A program of Paddle 3 in the directory, or of the prefix, unless there is one of Paddle 2.
std::string JsonModel(const std::string& path) {
  const bool directory = IsDirectory(path);
  const std::string prefix = directory ? path + "/inference" : path;
  const bool older = directory ? FileExists(path + "/__model__") || !PdmodelsIn(path).empty()
                               : FileExists(path) || FileExists(prefix + ".pdmodel");
  return !older && FileExists(prefix + ".json") ? prefix + ".json" : path;
}

// The readers of other formats. The library coracle_convert registers its own when it is loaded.
struct ModelReaders {
  std::mutex mutex;
  std::map<std::string, ModelReader> by_ending;
};
ModelReaders& Readers() {
  static ModelReaders readers;
  return readers;
}

// nullptr: the file has Paddle's format.
ModelReader ReaderFor(const std::string& path) {
  if (IsDirectory(path)) return nullptr;
  {
    ModelReaders& readers = Readers();
    const std::lock_guard<std::mutex> lock(readers.mutex);
    for (const auto& [ending, reader] : readers.by_ending)
      if (path.ends_with(ending)) return reader;
  }
  if ((path.ends_with(".onnx") || path.ends_with(".json")) && FileExists(path)) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("reading {} takes the library coracle_convert, which this program is "
                            "not linked to: use coracle::convert in CMake, or pkg-config's "
                            "coracle_convert",
                            Quote(path, 300)));
  }
  return nullptr;
}

void SaveSeparateModel(const ProgramDesc& model, const std::vector<std::string>& names,
                       const Scope& scope, const std::string& path) {
  const auto fill = [&](const std::string& where) {
    SaveSeparate(scope, names, where);
    WriteFileAtomic(where + "/__model__", SerializeProgram(model));
  };
  FileExists(path) ? WriteFilesTogether(path, fill, "__model__") : WriteDirectoryAtomic(path, fill);
}

// Both files are written before the first takes its place.
void SaveModelFiles(const ProgramDesc& model, const std::vector<std::string>& names,
                    const Scope& scope, const std::string& program_path,
                    const std::string& parameters_path) {
  StagedFile program(program_path), parameters(parameters_path);
  program.Write(SerializeProgram(model));
  WriteCombined(scope, names, [&](std::string_view piece) { parameters.Write(piece); });
  program.Sync();
  parameters.Sync();
  // The program comes last, so that a reader that finds it finds the parameters too.
  parameters.Publish();
  program.Publish();
}

InferenceModel ModelOf(ProgramDesc program) {
  InferenceModel model;
  model.program = std::move(program);
  RemoveMarks(model.program);
  model.feed_names = FeedNames(model.program);
  model.fetch_names = FetchNames(model.program);
  return model;
}

}  // namespace

void internal::RegisterModelReader(const std::string& ending, ModelReader reader) {
  ModelReaders& readers = Readers();
  const std::lock_guard<std::mutex> lock(readers.mutex);
  readers.by_ending[ending] = reader;
}

void SaveInferenceModel(const std::string& path, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches, const ProgramDesc& program,
                        const Scope& scope, InferenceLayout layout) {
  if (fetches.empty()) ThrowInvalid("an inference model needs at least one variable to fetch");
  ProgramDesc model = MakeInferenceProgram(program, feeds, fetches);
  std::vector<std::string> names = PersistableNames(model);
  if (layout == InferenceLayout::kModelSeparate)
    return SaveSeparateModel(model, names, scope, path);
  if (layout == InferenceLayout::kModelCombined)
    return SaveModelFiles(model, names, scope, path + "/__model__", path + "/__params__");
  const std::string prefix = WithoutSuffix(path, ".pdmodel");
  SaveModelFiles(model, names, scope, prefix + ".pdmodel", prefix + ".pdiparams");
}

InferenceModel LoadInferenceModel(const std::string& given, Scope& scope) {
  const auto load = [&] {
    const std::string path = JsonModel(given);
    if (const ModelReader reader = ReaderFor(path)) return reader(path, scope);
    ModelFiles files = FindModel(path);
    InferenceModel model = ModelOf(ReadProgram(files.program));
    if (!PersistableNames(model.program).empty())
      LoadParameters(model.program, files.parameters, scope);
    return model;
  };
  return TranslateMemoryErrors(load, [&] { return "the model " + Quote(given, 300); });
}

InferenceModel internal::ParseInferenceModel(std::string_view program, std::string_view parameters,
                                             const std::string& source, Scope& scope) {
  InferenceModel model = ModelOf(LooksLikeText(program) ? ParseProgramText(program, source)
                                                        : ParseProgram(program, source));
  ParseCombined(model.program, PersistableNames(model.program), parameters,
                source + "'s parameters", scope);
  return model;
}

}  // namespace coracle
