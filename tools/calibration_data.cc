#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/calibration_data.h>
#include <coracle/tools/run_input.h>
#include <coracle/train/run/feeder.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace coracle::tools {
namespace {

// The numbers of rows that the program is declared for; empty if it takes any number.
std::set<int64_t> DeclaredRows(const ProgramDesc& program, const std::vector<std::string>& inputs) {
  std::set<int64_t> rows;
  for (const std::string& name : inputs) {
    const VarDesc* var = program.Root().FindVar(name);
    if (var && var->shape().rank() > 0 && var->shape()[0] > 0) rows.insert(var->shape()[0]);
  }
  return rows;
}

void RefuseStates(const JobConfig& job, const std::vector<std::string>& inputs) {
  for (const CarryConfig& carry : job.carry) {
    if (std::find(inputs.begin(), inputs.end(), carry.to) == inputs.end()) continue;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: the job carries {} from batch to batch, and samples of its data "
                            "have no such states; give samples by --feed=FILES",
                            job.source, Quote(carry.to)));
  }
}

Tensor Rows(const Tensor& tensor, int64_t begin, int64_t end) {
  Shape shape = tensor.shape();
  const size_t row = tensor.nbytes() / static_cast<size_t>(std::max<int64_t>(shape[0], 1));
  shape[0] = end - begin;
  Tensor rows(tensor.dtype(), shape);
  if (rows.nbytes() > 0) {
    const auto* from = static_cast<const char*>(tensor.raw()) + static_cast<size_t>(begin) * row;
    std::memcpy(rows.raw(), from, rows.nbytes());
  }
  return rows;
}

std::vector<Tensor> AllRows(const std::vector<Tensor>& feeds, int64_t begin, int64_t end) {
  std::vector<Tensor> rows;
  for (const Tensor& feed : feeds) rows.push_back(Rows(feed, begin, end));
  return rows;
}

// The number of rows that all tensors have; nullopt if they cannot be divided by rows.
std::optional<int64_t> CommonRows(const std::vector<Tensor>& feeds) {
  std::optional<int64_t> rows;
  for (const Tensor& feed : feeds) {
    if (feed.shape().rank() < 1 || !feed.lod().empty() || feed.dtype() == DType::kString)
      return std::nullopt;
    if (rows && *rows != feed.shape()[0]) return std::nullopt;
    rows = feed.shape()[0];
  }
  return rows;
}

}  // namespace

CalibrationFeeds SamplesOfJob(const JobConfig& job, const ProgramDesc& program, int64_t samples) {
  const std::vector<std::string> inputs = InputNames(program, DefaultOps());
  RefuseStates(job, inputs);
  const DataSourcePtr data = OpenTrainData(job);
  if (!data) ThrowInvalid(job.source + ": the job has no training data to take samples from");
  const std::set<int64_t> fixed = DeclaredRows(program, inputs);
  const int64_t rows = fixed.empty() ? std::min(kCalibrationRows, samples) : *fixed.begin();
  const auto feeder =
      std::make_shared<Feeder>(program, inputs, *data, job.bind, job.Place("train"));
  return [data, feeder, rows, samples,
          whole = !fixed.empty()](const std::function<void(const std::vector<Tensor>&)>& use) {
    BatchReader reader(data, {.batch_size = rows, .shuffle = true, .drop_last = whole, .seed = 1});
    int64_t left = samples;
    for (int64_t b = 0; b < reader.batches_per_epoch() && left > 0; ++b) {
      const std::vector<Tensor>& feeds = feeder->Bind(reader.Next());
      const std::optional<int64_t> count = whole ? std::nullopt : CommonRows(feeds);
      count&&* count > left ? use(AllRows(feeds, 0, left)) : use(feeds);
      left -= count.value_or(rows);
    }
  };
}

CalibrationFeeds SamplesOfFiles(const std::vector<std::string>& files, const ProgramDesc& program,
                                int64_t samples) {
  const std::vector<std::string> inputs = InputNames(program, DefaultOps());
  const std::set<int64_t> fixed = DeclaredRows(program, inputs);
  return [=, program = std::make_shared<const ProgramDesc>(program)](
             const std::function<void(const std::vector<Tensor>&)>& use) {
    int64_t left = samples;
    for (const std::string& file : files) {
      if (left <= 0) break;
      const std::vector<Tensor> feeds = InOrder(file, ReadFeeds(file, *program), inputs);
      const std::optional<int64_t> rows = CommonRows(feeds);
      // Whole batches of the declared size; a file with fewer rows is an error of the run.
      const int64_t batch = fixed.size() == 1 ? *fixed.begin() : kCalibrationRows;
      if (!rows || fixed.size() > 1 || (!fixed.empty() && *rows < batch)) {
        use(feeds);
        left -= feeds.empty() || feeds[0].shape().rank() < 1 ? 1 : feeds[0].shape()[0];
        continue;
      }
      const int64_t last = fixed.empty() ? *rows : *rows / batch * batch;
      for (int64_t begin = 0; begin < last && left > 0;) {
        const int64_t end =
            fixed.empty() ? std::min({last, begin + batch, begin + left}) : begin + batch;
        use(AllRows(feeds, begin, end));
        left -= end - begin;
        begin = end;
      }
    }
  };
}

CalibrationFeeds CountingRows(CalibrationFeeds feeds, std::shared_ptr<int64_t> rows) {
  return
      [feeds = std::move(feeds), rows](const std::function<void(const std::vector<Tensor>&)>& use) {
        *rows = 0;
        feeds([&](const std::vector<Tensor>& batch) {
          *rows += batch.empty() || batch[0].shape().rank() < 1 ? 1 : RowsOfBatch(batch[0]);
          use(batch);
        });
      };
}

}  // namespace coracle::tools
