#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/train/run/ranks/same_data.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

namespace coracle::inline internal {

namespace {

constexpr int64_t kChunk = 256;    // rows
constexpr int64_t kSpread = 1024;  // rows to read if the data is too large to be read completely

// Makes the tensors of a batch of `rows` rows; Get sets the size of columns of sequences.
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

uint64_t FingerprintOf(const std::vector<uint64_t>& numbers) {
  return Fingerprint(numbers.data(), numbers.size() * sizeof(uint64_t));
}

// The hashes of some rows' columns, and the bytes of these rows.
struct Sample {
  std::vector<uint64_t> numbers;
  double bytes = 0;
};

// Samples `count` rows, which are spread over the data.
Sample SampleOf(const DataSource& data, int64_t count) {
  Sample sample;
  const int64_t size = data.size();
  for (int64_t at = 0; at < count; at += kChunk) {
    std::vector<int64_t> rows;
    for (int64_t i = at; i < std::min(count, at + kChunk); ++i)
      rows.push_back(count == size ? i : i * (size - 1) / (count - 1));
    std::vector<Tensor> batch = BatchOf(data, static_cast<int64_t>(rows.size()));
    data.Get(rows, batch);
    for (const Tensor& column : batch) {
      AddTo(&sample.numbers, column);
      sample.bytes += static_cast<double>(column.nbytes());
    }
  }
  return sample;
}

// The bytes of all rows; nullopt if rows have sequences, whose lengths only the rows know.
std::optional<double> BytesOf(const DataSource& data) {
  double bytes = 0;
  for (const DataColumn& column : data.columns()) {
    if (column.sequences) return std::nullopt;
    bytes += static_cast<double>(column.shape.numel()) * static_cast<double>(SizeOf(column.dtype));
  }
  return bytes * static_cast<double>(data.size());
}

}  // namespace

void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what) {
  if (!ranks.several()) return;
  constexpr int64_t kSample = 256;
  std::vector<uint64_t> numbers;
  if (data->size() > 0) {
    BatchReader reader(
        data, {.batch_size = std::min(kSample, data->size()), .shuffle = true, .prefetch = false});
    for (const Tensor& column : reader.Next()) AddTo(&numbers, column);
  }
  const std::string shown = fmt::format("{}, {} rows", data->Describe(), data->size());
  ranks.RequireSame(what, shown, "all ranks must read the same files");
  ranks.RequireSame("rows of the " + what,
                    fmt::format("{}, fingerprint {:016x}", shown, FingerprintOf(numbers)),
                    "all ranks must read the same files");
}

uint64_t FingerprintOf(const DataSource& data) {
  constexpr double kMostBytes = 256 << 20;
  try {
    std::optional<double> bytes = BytesOf(data);
    if (data.size() > kSpread && bytes.value_or(HUGE_VAL) > kMostBytes) {
      const Sample some = SampleOf(data, kSpread);
      if (!bytes)
        bytes = some.bytes / static_cast<double>(kSpread) * static_cast<double>(data.size());
      if (*bytes > kMostBytes) return FingerprintOf(some.numbers);
      // Sequences that turn out to be small: their sample is read again with the rest.
    }
    return FingerprintOf(SampleOf(data, data.size()).numbers);
  } catch (const Error&) {
    return 0;  // the step that reads the row reports the error
  }
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

}  // namespace coracle::inline internal
