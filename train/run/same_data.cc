#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/train/run/same_data.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace coracle {

void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what) {
  if (!ranks.several()) return;
  constexpr int64_t kSample = 256;
  std::string sample;
  if (data->size() > 0) {
    BatchReader reader(
        data, {.batch_size = std::min(kSample, data->size()), .shuffle = true, .prefetch = false});
    for (const Tensor& column : reader.Next())
      sample += fmt::format("{:016x}", Fingerprint(column.raw(), column.nbytes()));
  }
  const std::string shown = fmt::format("{}, {} rows", data->Describe(), data->size());
  ranks.RequireSame(what, shown, "all ranks must read the same files");
  ranks.RequireSame("rows of the " + what, shown + ", fingerprint " + sample,
                    "all ranks must read the same files");
}

namespace {

constexpr int64_t kChunk = 256;  // rows

// A batch of so many rows; Get makes sequences as large as they are.
std::vector<Tensor> BatchOf(const DataSource& data, int64_t rows) {
  std::vector<Tensor> batch;
  for (const DataColumn& column : data.columns()) {
    std::vector<int64_t> dims = column.shape.ToVector();
    dims.insert(dims.begin(), column.sequences ? 0 : rows);
    batch.emplace_back(column.dtype, Shape(dims));
  }
  return batch;
}

void AddTo(std::vector<uint64_t>* numbers, const Tensor& column) {
  numbers->push_back(Fingerprint(column.raw(), column.nbytes()));
  for (const auto& level : column.lod())
    numbers->push_back(Fingerprint(level.data(), level.size() * sizeof(level[0])));
}

double BytesOf(const DataSource& data) {
  double bytes = 0;
  for (const DataColumn& column : data.columns())
    bytes += static_cast<double>(column.shape.numel()) * static_cast<double>(SizeOf(column.dtype));
  return bytes * static_cast<double>(data.size());
}

}  // namespace

uint64_t FingerprintOf(const DataSource& data) {
  constexpr double kMostBytes = 256 << 20;
  constexpr int64_t kSpread = 1024;
  const int64_t size = data.size();
  const int64_t count = BytesOf(data) <= kMostBytes ? size : std::min(size, kSpread);
  std::vector<uint64_t> numbers;
  try {
    for (int64_t at = 0; at < count; at += kChunk) {
      std::vector<int64_t> rows;
      for (int64_t i = at; i < std::min(count, at + kChunk); ++i)
        rows.push_back(count == size ? i : i * ((size - 1) / (count - 1)));
      std::vector<Tensor> batch = BatchOf(data, static_cast<int64_t>(rows.size()));
      data.Get(rows, batch);
      for (const Tensor& column : batch) AddTo(&numbers, column);
    }
  } catch (const Error&) {
    return 0;  // a step that reads the row says so
  }
  return Fingerprint(numbers.data(), numbers.size() * sizeof(uint64_t));
}

SavedSnapshot ReadSameSnapshot(const Ranks& ranks, const std::string& path) {
  if (!ranks.several()) return ReadSnapshot(path);
  std::optional<SavedSnapshot> saved;
  std::optional<Error> error;
  try {
    saved = ReadSnapshot(path);
  } catch (const Error& e) {
    error = e;
  }
  ranks.RequireSame(
      "snapshot " + path, saved ? fmt::format("step {}", saved->state.step) : "not to be read",
      "all ranks must see the directory " + std::filesystem::path(path).parent_path().string());
  if (error) throw *error;
  return std::move(*saved);
}

}  // namespace coracle
