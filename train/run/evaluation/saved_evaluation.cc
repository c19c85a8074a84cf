#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/evaluation/saved_evaluation.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/ranks/carry.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// Reads a saved model. Throws for a model text and for a program without its parameters.
InferenceModel ReadModel(const std::string& path, Scope& scope) {
  try {
    return LoadInferenceModel(path, scope);
  } catch (const Error& e) {
    if (path.ends_with(".pdmodel") || !FileExists(path) || IsDirectory(path)) throw;
    throw Error(
        e.code(),
        fmt::format("{} is not a saved model; give one that training wrote, such as eval.pdmodel",
                    Quote(path, 300)),
        e.what());
  }
}

}  // namespace

InferenceModel OpenMeasuredModel(const std::string& path, Scope& scope) {
  InferenceModel model = ReadModel(path, scope);
  if (!model.fetch_names.empty()) return model;
  ThrowInvalid(
      fmt::format("{} fetches nothing that can be measured; give a model that training wrote, such "
                  "as eval.pdmodel",
                  Quote(path, 300)));
}

std::vector<CarryConfig> CarryOfModel(const JobConfig& job, const InferenceModel& model) {
  std::vector<CarryConfig> carry;
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const CarryConfig& c : job.carry)
    if (has(model.feed_names, c.to) && has(model.fetch_names, c.from)) carry.push_back(c);
  return carry;
}

int LabelColumnOf(const DataSource& data, const JobConfig& job) {
  for (const BindConfig& b : job.bind)
    if (b.var == "label") return data.FindColumn(b.column);
  return data.FindColumn("label");
}

TestSetConfig ChooseTestSet(const JobConfig& job, const std::string& name) {
  const std::vector<TestSetConfig> sets = job.TestSets();
  if (name.empty() && sets.empty()) return {"train", job.train, job.batch_size, 0, {}, "train"};
  std::vector<std::string> names;
  for (const TestSetConfig& set : sets) {
    if (name.empty() || set.name == name) return set;
    names.push_back(set.name);
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("{}: the job has no test set {}; it has {}{}", job.source, Quote(name),
                          names.empty() ? "none" : Join(names, ", "), DidYouMean(name, names)));
}

DataSourcePtr OpenTestSet(const JobConfig& job, const TestSetConfig& set) {
  DataSourcePtr data = set.where == "train" ? OpenTrainData(job) : OpenTestData(job, set);
  if (!data) ThrowInvalid(job.source + ": the job has no data; give test or train");
  return data;
}

void RunOnTestSet(const InferenceModel& model, Scope& scope, const JobConfig& job,
                  const EvaluateOptions& options, const std::string& output,
                  const TestSetRows& take) {
  const TestSetConfig set = ChooseTestSet(job, options.test_set);
  const DataSourcePtr data = OpenTestSet(job, set);
  const int label = LabelColumnOf(*data, job);
  if (label < 0) ThrowInvalid(job.Place(set.where) + ": the data has no column \"label\"");
  StateCarry carry(model.program, CarryOfModel(job, model), set.batch_size, job.source);
  std::vector<std::string> feeds = model.feed_names;
  for (const std::string& to : carry.to()) std::erase(feeds, to);
  Feeder feeder(model.program, feeds, *data, job.bind, job.Place(set.where));
  std::vector<std::string> fetches = {output};
  feeds.insert(feeds.end(), carry.to().begin(), carry.to().end());
  fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
  Executor executor(options.compile, options.ops ? *options.ops : DefaultOps());
  PreparedProgram program = executor.PrepareOwning(model.program, scope, feeds, fetches);
  BatchReader reader(data, {.batch_size = set.batch_size});
  int64_t batches = reader.batches_per_epoch(), first = 0;
  if (set.iterations > 0) batches = std::min(batches, set.iterations);
  for (int64_t b = 0; b < batches; ++b) {
    const std::vector<Tensor>& batch = reader.Next();
    NameRowsInErrors(reader, batch, [&] {
      const std::vector<Tensor>& out = program.Run(scope, carry.Append(feeder.Bind(batch)));
      take(out[0], batch, label, first, *data);
      carry.Receive(std::span(out).subspan(1));
    });
    first += RowsOfBatch(batch[0]);
  }
}

}  // namespace coracle::inline internal
