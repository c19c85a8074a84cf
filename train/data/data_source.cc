#include <coracle/framework/base/text.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/wrapped_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace coracle {
namespace {

void CheckRow(int64_t row, int64_t size, const std::string& what) {
  if (row < 0 || row >= size) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("row {} asked of {}, which has {}", row, what, size));
  }
}

class MemorySource : public DataSource {
 public:
  MemorySource(std::vector<MemoryColumn> data, std::string description, FileLines lines,
               std::shared_ptr<const FittedOptions> fitted)
      : data_(std::move(data)),
        description_(std::move(description)),
        lines_(std::move(lines)),
        fitted_(std::move(fitted)) {
    if (data_.empty()) ThrowInvalid(description_ + ": no columns");
    for (const MemoryColumn& column : data_) AddColumn(column);
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return size_; }
  std::string Describe() const override { return description_; }
  std::shared_ptr<const FittedOptions> fitted() const override { return fitted_; }
  std::string Place(int64_t row) const override {
    if (row < 0 || row >= static_cast<int64_t>(lines_.lines.size())) return DataSource::Place(row);
    return fmt::format("{}:{}", lines_.file, lines_.lines[static_cast<size_t>(row)]);
  }

  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    for (size_t c = 0; c < data_.size(); ++c) CopyRows(c, rows, out[c]);
  }

 private:
  void AddColumn(const MemoryColumn& column) {
    const Tensor& rows = column.rows;
    if (FindColumn(column.name) >= 0)
      ThrowInvalid(fmt::format("{}: two columns are called {}", description_, Quote(column.name)));
    if (rows.shape().rank() == 0) {
      ThrowInvalid(fmt::format("{}: column {} is a scalar, not a list of rows", description_,
                               Quote(column.name)));
    }
    const bool sequences = !column.offsets.empty();
    int64_t n = sequences ? static_cast<int64_t>(column.offsets.size()) - 1 : rows.shape()[0];
    if (columns_.empty()) size_ = n;
    if (n != size_) {
      ThrowInvalid(fmt::format("{}: column {} has {} rows, column {} has {}", description_,
                               Quote(column.name), n, Quote(columns_[0].name), size_));
    }
    if (sequences) CheckOffsets(column);
    if (column.scaled && rows.dtype() != DType::kUInt8) {
      ThrowInvalid(fmt::format("{}: column {} is {}, and only bytes (uint8) are scaled",
                               description_, Quote(column.name), ToString(rows.dtype())));
    }
    int64_t numel = column.shape.numel();
    const int64_t parts = rows.shape()[0];
    if (parts > 0 && rows.numel() / parts != numel) {
      ThrowInvalid(fmt::format("{}: column {} has {} values per row, shape {} needs {}",
                               description_, Quote(column.name), rows.numel() / parts,
                               column.shape.ToString(), numel));
    }
    columns_.push_back(
        {column.name, column.scaled ? DType::kFloat32 : rows.dtype(), column.shape, sequences});
    numel_.push_back(numel);
    std::array<float, 256> table{};
    for (int i = 0; i < 256; ++i)
      table[static_cast<size_t>(i)] = (static_cast<float>(i) - column.mean) * column.scale;
    tables_.push_back(table);
  }

  void CheckOffsets(const MemoryColumn& column) const {
    const std::vector<uint64_t>& at = column.offsets;
    const auto rows = static_cast<uint64_t>(column.rows.shape()[0]);
    const auto down = std::is_sorted_until(at.begin(), at.end());
    if (down == at.end() && at.back() <= rows) return;
    const auto bad = down == at.end() ? at.end() - 1 : down;
    ThrowInvalid(
        fmt::format("{}: column {} has {} rows, and its offsets, which must ascend, have "
                    "{} at place {}",
                    description_, Quote(column.name), rows, *bad, bad - at.begin()));
  }

  void CopyRows(size_t c, std::span<const int64_t> rows, Tensor& out) const {
    const MemoryColumn& column = data_[c];
    if (columns_[c].sequences) return JoinSequences(column, rows, &out);
    auto numel = static_cast<size_t>(numel_[c]);
    if (column.scaled) return ScaleRows(column.rows, tables_[c], rows, numel, out.data<float>());
    const char* from = static_cast<const char*>(column.rows.raw());
    char* to = static_cast<char*>(out.raw());
    size_t bytes = numel * SizeOf(column.rows.dtype());
    for (size_t i = 0; i < rows.size() && bytes > 0; ++i)
      std::memcpy(to + i * bytes, from + static_cast<size_t>(rows[i]) * bytes, bytes);
  }

  static void JoinSequences(const MemoryColumn& column, std::span<const int64_t> rows,
                            Tensor* out) {
    const std::vector<uint64_t>& at = column.offsets;
    std::vector<uint64_t> offsets{0};
    for (int64_t row : rows) {
      const auto r = static_cast<size_t>(row);
      offsets.push_back(offsets.back() + at[r + 1] - at[r]);
    }
    Shape shape{static_cast<int64_t>(offsets.back())};
    for (int64_t dim : column.shape) shape.Append(dim);
    out->Resize(column.rows.dtype(), shape);
    const size_t bytes = ByteSize(column.rows.dtype(), column.shape);
    const char* from = static_cast<const char*>(column.rows.raw());
    char* to = static_cast<char*>(out->raw());
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t count = (offsets[i + 1] - offsets[i]) * bytes;
      if (count == 0) continue;
      std::memcpy(to + offsets[i] * bytes, from + at[static_cast<size_t>(rows[i])] * bytes, count);
    }
    out->lod() = {std::move(offsets)};
  }

  static void ScaleRows(const Tensor& data, const std::array<float, 256>& table,
                        std::span<const int64_t> rows, size_t numel, float* to) {
    const uint8_t* from = data.data<uint8_t>();
    for (int64_t row : rows) {
      const uint8_t* values = from + static_cast<size_t>(row) * numel;
      for (size_t k = 0; k < numel; ++k) to[k] = table[values[k]];
      to += numel;
    }
  }

  std::vector<MemoryColumn> data_;
  std::string description_;
  FileLines lines_;
  std::shared_ptr<const FittedOptions> fitted_;
  std::vector<DataColumn> columns_;
  std::vector<int64_t> numel_;
  std::vector<std::array<float, 256>> tables_;
  int64_t size_ = 0;
};

class Subset : public WrappedSource {
 public:
  Subset(DataSourcePtr source, int64_t first, int64_t count)
      : WrappedSource(std::move(source)), first_(first), count_(count) {}
  int64_t size() const override { return count_; }
  std::string Describe() const override {
    return fmt::format("{} rows {}..{}", source_->Describe(), first_, first_ + count_ - 1);
  }
  std::string Place(int64_t row) const override { return source_->Place(first_ + row); }
  std::string PlaceInEpoch(int64_t, int64_t row) const override { return Place(row); }
  std::vector<int64_t> Labels() const override {
    const std::vector<int64_t> all = source_->Labels();
    return {all.begin() + first_, all.begin() + first_ + count_};
  }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    std::vector<int64_t> shifted(rows.begin(), rows.end());
    for (int64_t& row : shifted) {
      CheckRow(row, count_, Describe());
      row += first_;
    }
    source_->Get(shifted, out);
  }

 private:
  int64_t first_, count_;
};

class RandomPart : public WrappedSource {
 public:
  RandomPart(DataSourcePtr source, std::vector<int64_t> rows, std::string description)
      : WrappedSource(std::move(source)),
        rows_(std::move(rows)),
        description_(std::move(description)) {}
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::string Describe() const override { return description_; }
  std::string Place(int64_t row) const override {
    CheckRow(row, size(), Describe());
    return source_->Place(rows_[static_cast<size_t>(row)]);
  }
  std::string PlaceInEpoch(int64_t, int64_t row) const override { return Place(row); }
  std::vector<int64_t> Labels() const override {
    const std::vector<int64_t> all = source_->Labels();
    std::vector<int64_t> chosen;
    for (const int64_t row : rows_) chosen.push_back(all[static_cast<size_t>(row)]);
    return chosen;
  }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    std::vector<int64_t> chosen(rows.begin(), rows.end());
    for (int64_t& row : chosen) {
      CheckRow(row, size(), Describe());
      row = rows_[static_cast<size_t>(row)];
    }
    source_->Get(chosen, out);
  }

 private:
  std::vector<int64_t> rows_;
  std::string description_;
};

}  // namespace

MemoryColumn LengthsOf(const MemoryColumn& sequences) {
  const std::vector<uint64_t>& offsets = sequences.offsets;
  if (offsets.empty())
    ThrowInvalid(
        fmt::format("column {} has no sequences: its offsets are empty", Quote(sequences.name)));
  const auto down = std::is_sorted_until(offsets.begin(), offsets.end());
  if (down != offsets.end()) {
    ThrowInvalid(fmt::format("column {}: its offsets must ascend, and have {} at place {}",
                             Quote(sequences.name), *down, down - offsets.begin()));
  }
  MemoryColumn lengths;
  lengths.name = sequences.name + "@LENGTH";
  lengths.rows = Tensor(DType::kInt64, {static_cast<int64_t>(offsets.size()) - 1, 1});
  lengths.shape = {1};
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    lengths.rows.data<int64_t>()[i] = static_cast<int64_t>(offsets[i + 1] - offsets[i]);
  return lengths;
}

int64_t RowsOfBatch(const Tensor& column) {
  if (column.shape().rank() == 0) ThrowInvalid("a batch's column is a scalar, not a list of rows");
  if (!column.lod().empty() && column.lod()[0].empty())
    ThrowInvalid("a batch's column has a LoD without offsets");
  return column.lod().empty() ? column.shape()[0]
                              : static_cast<int64_t>(column.lod()[0].size()) - 1;
}

int DataSource::FindColumn(const std::string& name) const {
  for (size_t i = 0; i < columns().size(); ++i)
    if (columns()[i].name == name) return static_cast<int>(i);
  return -1;
}

std::string DataSource::Place(int64_t row) const {
  return fmt::format("row {} of {}", row, Describe());
}

std::vector<int64_t> DataSource::Labels() const {
  const int label = FindColumn("label");
  const bool fits = label >= 0 && IsInteger(columns()[static_cast<size_t>(label)].dtype) &&
                    !columns()[static_cast<size_t>(label)].sequences &&
                    columns()[static_cast<size_t>(label)].shape.numel() == 1;
  if (!fits) ThrowInvalid(Describe() + " has no column \"label\" of one integer a row");
  constexpr int64_t kChunk = 256;
  std::vector<int64_t> labels, rows;
  for (int64_t at = 0; at < size(); at += kChunk) {
    rows.clear();
    for (int64_t i = at; i < std::min(size(), at + kChunk); ++i) rows.push_back(i);
    std::vector<Tensor> batch;
    for (const DataColumn& column : columns()) {
      Shape shape{column.sequences ? 0 : static_cast<int64_t>(rows.size())};
      for (const int64_t dim : column.shape) shape.Append(dim);
      batch.emplace_back(column.dtype, shape);
    }
    Get(rows, batch);
    const Tensor chunk = batch[static_cast<size_t>(label)].Cast(DType::kInt64);
    labels.insert(labels.end(), chunk.data<int64_t>(), chunk.data<int64_t>() + rows.size());
  }
  return labels;
}

DataSourcePtr MakeMemorySource(std::vector<MemoryColumn> columns, std::string description,
                               FileLines lines, std::shared_ptr<const FittedOptions> fitted) {
  return std::make_shared<MemorySource>(std::move(columns), std::move(description),
                                        std::move(lines), std::move(fitted));
}

std::vector<int64_t> RowsOfRandomPart(int64_t size, double share, uint64_t seed, bool drawn) {
  if (!(share >= 0 && share <= 1))
    ThrowInvalid(fmt::format("a random part's share must lie in [0, 1], got {}", share));
  if (size < 0) ThrowInvalid(fmt::format("a random part of {} rows", size));
  std::vector<int64_t> order(static_cast<size_t>(size));
  ShuffleRows(seed, 0, order);
  const auto cut = order.begin() + std::llround(share * static_cast<double>(order.size()));
  std::vector<int64_t> rows =
      drawn ? std::vector<int64_t>(order.begin(), cut) : std::vector<int64_t>(cut, order.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

DataSourcePtr MakeRandomPart(DataSourcePtr source, double share, uint64_t seed, bool drawn) {
  RequireSource(source, "MakeRandomPart");
  std::vector<int64_t> rows = RowsOfRandomPart(source->size(), share, seed, drawn);
  std::string what = fmt::format("{} {} {:g}% (seed {})", source->Describe(),
                                 drawn ? "a random" : "without a random", 100 * share, seed);
  if (rows.empty()) {
    throw Error(ErrorCode::kOutOfRange, fmt::format("{} has {} rows: none are left of {}",
                                                    source->Describe(), source->size(), what));
  }
  return std::make_shared<RandomPart>(std::move(source), std::move(rows), std::move(what));
}

DataSourcePtr MakeSubset(DataSourcePtr source, int64_t first, int64_t limit) {
  RequireSource(source, "MakeSubset");
  int64_t size = source->size();
  if (first == 0 && limit == 0) return source;
  if (first < 0 || limit < 0 || first >= size || limit > size - first) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{} has {} rows: there are {}from row {} on", source->Describe(), size,
                            limit == 0 ? "none " : fmt::format("no {} ", limit), first));
  }
  return std::make_shared<Subset>(std::move(source), first, limit == 0 ? size - first : limit);
}

}  // namespace coracle
