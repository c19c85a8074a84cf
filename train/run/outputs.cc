#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/names.h>
#include <coracle/train/report/metric.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/predict/preprocess_of_job.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace coracle::inline internal {
namespace {

std::string Output(const JobConfig& config, const char* file) {
  return (std::filesystem::path(config.output_dir) / file).string();
}

void RequireWritable(const std::string& directory) {
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return;
  throw Error(ErrorCode::kIo, fmt::format("cannot write into the directory {}: {}",
                                          Quote(directory, 300), std::strerror(errno)));
}

// A run writes many files with predictable names. A link with such a name could make it overwrite
// any file of the user; a pipe or a device could make it wait or write for ever.
void RequirePlainFiles(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::error_code ignored;
    const bool link = entry.is_symlink(ignored);
    if (entry.is_directory(ignored) || (!link && entry.is_regular_file(ignored))) continue;
    throw Error(ErrorCode::kIo,
                fmt::format("{} is {}; a run writes into a directory without such {}",
                            Quote(entry.path().string(), 300),
                            link ? "a symbolic link to a file" : "neither a file nor a directory",
                            link ? "links" : "things"));
  }
}

// The files of a run, apart from its snapshots and TensorBoard's event files.
constexpr std::array<const char*, 15> kFiles = {"main.pb",
                                                "startup.pb",
                                                "main.txt",
                                                "model.pdmodel",
                                                "model.pdiparams",
                                                "model.preprocess.pbtxt",
                                                "model_int8.preprocess.pbtxt",
                                                "model_int8.pdmodel",
                                                "model_int8.pdiparams",
                                                "eval.pdmodel",
                                                "eval.pdiparams",
                                                "eval_int8.pdmodel",
                                                "eval_int8.pdiparams",
                                                "log.jsonl",
                                                "vocabulary.json"};
// Whether the file has the words of a column of text.
bool IsWordFile(const std::string& name) {
  return name.starts_with("vocabulary_") && name.ends_with(".json");
}

// The file for the words of a column of text, whose name may have any characters.
std::string WordFileOf(const std::string& column) {
  std::string name = "vocabulary_" + column + ".json";
  for (char& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain && c != '.' && c != '-') c = '_';
  }
  return name;
}

// Files that identify the output of a run; a file main.txt may have any origin.
constexpr std::array<const char*, 4> kTraces = {"log.jsonl", "main.pb", "model.pdmodel",
                                                "eval.pdmodel"};

// The feeds and fetches of a saved model.
struct ModelEnds {
  std::vector<std::string> feeds, fetches;
};

// Of a model that computes the loss, the metrics and the states to carry.
ModelEnds EndsOfEval(const JobConfig& config, const Net& net) {
  ModelEnds ends{net.Feeds(config), {}};
  const MetricSums sums(net.has_loss ? config.loss : "", net.metrics);
  for (const std::string& name : sums.fetches())
    if (!Contains(ends.feeds, name)) ends.fetches.push_back(name);
  for (const CarryConfig& carry : config.carry) ends.fetches.push_back(carry.from);
  return ends;
}

// Carried states come last.
ModelEnds EndsOfDeploy(const JobConfig& config) {
  ModelEnds ends{config.deploy_inputs, config.deploy_outputs};
  for (const CarryConfig& carry : config.carry) {
    std::erase(ends.feeds, carry.to);
    std::erase(ends.fetches, carry.from);
  }
  for (const CarryConfig& carry : config.carry) {
    ends.feeds.push_back(carry.to);
    ends.fetches.push_back(carry.from);
  }
  return ends;
}

// Returns the path of the model.
std::string WriteModel(const JobConfig& config, const char* name, const ModelEnds& ends,
                       const ProgramDesc& program, const Scope& scope) {
  const std::string path = Output(config, name);
  SaveInferenceModel(path, ends.feeds, ends.fetches, program, scope);
  return path + ".pdmodel";
}

std::string WriteIntegers(const JobConfig& config, const char* name, const ModelEnds& ends,
                          const ProgramDesc& program, const OpRegistry& ops, const Scope& scope) {
  const QuantizedInference made = [&] {
    try {
      return InferInIntegers(program, scope, ends.feeds, ends.fetches, ops);
    } catch (const Error& e) {
      throw e.WithPrefix(config.Place("quantize"));
    }
  }();
  return WriteModel(config, name, ends, made.program, made.parameters);
}

// The models are complete without the description of the preprocessing, so a failure, such as data
// that is gone, does not end the run.
void WritePreprocess(const JobConfig& config, const Programs& programs, const DataSource& data,
                     const TrainResult& result) {
  try {
    const auto preprocess = PreprocessOf(config, programs, data, result.scope);
    for (const std::string& model : {result.model_path, result.int8_model_path})
      if (preprocess && !model.empty())
        WriteFileAtomic(PreprocessFileOf(model), preprocess->ToText());
  } catch (const Error& e) {
    LogMessage(MessageLevel::kWarning,
               "the preprocessing of the data is not saved with the model: " + e.message());
  }
}

}  // namespace

std::vector<std::unique_ptr<DirectoryLock>> OpenOutputDirectories(const JobConfig& config) {
  std::vector<std::unique_ptr<DirectoryLock>> locks;
  const std::string snapshots = config.SnapshotDirectory();
  for (const std::string& directory : {config.output_dir, snapshots}) {
    if (directory.empty()) continue;
    const std::string& place =
        config.Place(directory == config.snapshot_dir ? "snapshot_dir" : "output_dir");
    try {
      MakeDirectories(directory);
      RequireWritable(directory);
      RequirePlainFiles(directory);
      std::error_code none;
      if (!locks.empty() && std::filesystem::equivalent(config.output_dir, snapshots, none))
        continue;
      locks.push_back(std::make_unique<DirectoryLock>(directory));
      RemoveStaleTemporaries(directory);
    } catch (const Error& e) {
      throw e.WithPrefix(place);
    }
  }
  return locks;
}

void RefuseOtherOutput(const JobConfig& config) {
  const std::string advice =
      "--resume continues it, --overwrite replaces it, --out=DIR writes elsewhere";
  const auto refuse = [&](const char* field, const std::string& directory,
                          const std::string& what) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("{}: the directory {} holds another run's output ({}): {}",
                            config.Place(field), Quote(directory, 300), what, advice));
  };
  const std::string snapshots = config.SnapshotDirectory();
  const std::vector<std::string> there =
      snapshots.empty() ? std::vector<std::string>() : ListSnapshots(snapshots);
  if (!there.empty()) {
    refuse(config.snapshot_dir.empty() ? "output_dir" : "snapshot_dir", snapshots,
           std::filesystem::path(there.back()).filename().string());
  }
  if (config.output_dir.empty()) return;
  for (const char* file : kTraces)
    if (FileExists(Output(config, file))) refuse("output_dir", config.output_dir, file);
}

void RemoveOtherOutput(const JobConfig& config) {
  const std::string snapshots = config.SnapshotDirectory();
  if (!snapshots.empty()) RemoveSnapshots(snapshots);
  if (config.output_dir.empty()) return;
  std::vector<std::string> files;
  for (const char* file : kFiles) files.push_back(Output(config, file));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(config.output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.") || IsWordFile(name))
      files.push_back(entry.path().string());
  }
  for (const std::string& file : files) RemoveAll(file);
}

void RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return;
  throw Error(ErrorCode::kIo,
              fmt::format("cannot remove {}: {}", Quote(path, 300), error.message()));
}

void WritePrograms(const JobConfig& config, const Programs& programs, const DataSource& data,
                   const OpRegistry& ops, TrainResult* result) {
  if (config.output_dir.empty()) return;
  result->main_path = Output(config, "main.pb");
  result->startup_path = Output(config, "startup.pb");
  result->dump_path = Output(config, "main.txt");
  const ProgramDesc& main = programs.RunTrain().program;
  WriteProgram(main, result->main_path);
  WriteProgram(programs.RunStartup(), result->startup_path);
  WriteFileAtomic(result->dump_path, PrintProgram(main, ShortListing(ops)));
  if (const Vocabulary* vocabulary = data.vocabulary()) {
    result->vocabulary_path = Output(config, "vocabulary.json");
    WriteFileAtomic(result->vocabulary_path, vocabulary->ToJson());
  }
  const std::shared_ptr<const FittedOptions> fitted = data.fitted();
  if (!fitted || !fitted->csv) return;
  for (const CsvColumn& column : fitted->csv->columns)
    if (column.text() && !column.byte_pairs)  // byte pairs have files of their own
      WriteFileAtomic(Output(config, WordFileOf(column.name).c_str()),
                      column.text()->list->ToJson());
}

void WriteModels(const JobConfig& config, const Programs& programs, const DataSource& data,
                 const OpRegistry& ops, TrainResult* result) {
  if (config.output_dir.empty()) return;
  const TraceSpan span("train", "write models");
  const Net& eval = programs.tests.empty() ? programs.deploy : programs.tests[0];
  if (eval.has_loss || !eval.metrics.empty()) {
    const ModelEnds ends = EndsOfEval(config, eval);
    result->eval_path = WriteModel(config, "eval", ends, eval.program, result->scope);
    if (programs.rounding && programs.rounding->eval)
      result->int8_eval_path = WriteIntegers(config, "eval_int8", ends,
                                             programs.rounding->eval->program, ops, result->scope);
  }
  if (config.deploy_outputs.empty()) return;
  const ModelEnds ends = EndsOfDeploy(config);
  result->model_path = WriteModel(config, "model", ends, programs.deploy.program, result->scope);
  if (programs.rounding)
    result->int8_model_path = WriteIntegers(config, "model_int8", ends,
                                            programs.rounding->deploy.program, ops, result->scope);
  WritePreprocess(config, programs, data, *result);
}

}  // namespace coracle::inline internal
