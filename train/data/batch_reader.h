#pragma once
// Batches of a data source, epoch after epoch, in an order that a seed decides. A thread of its own
// prepares the next batch while the caller works on the last.

#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace coracle {

// Fills `rows` with a random permutation of 0 .. rows.size() - 1: Fisher and Yates' shuffle, drawn
// from Philox by (seed, epoch).
void ShuffleRows(uint64_t seed, uint64_t epoch, std::span<int64_t> rows);

struct BatchOptions {
  int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  // leave out the rows of an epoch that do not fill a batch
  uint64_t seed = 0;
  bool prefetch = true;  // the batches are the same without
};

class BatchReader {
 public:
  // Throws kInvalidArgument for a batch size below 1 or data that gives no batch.
  BatchReader(DataSourcePtr source, const BatchOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  const std::vector<DataColumn>& columns() const;  // of the source
  int64_t batches_per_epoch() const;
  // Number of the batch that Next returns next, counted over all epochs; epoch = position /
  // batches_per_epoch.
  int64_t position() const;
  void Seek(int64_t position);

  // One tensor per column of the source, [rows, ...]. Valid (and unchanged) until the next call of
  // Next or Seek. An exception of the source is rethrown here, for the batch that it concerns.
  const std::vector<Tensor>& Next();
  // Where row `row` of the batch that Next returned last comes from: see DataSource::Place.
  std::string PlaceOf(int64_t row) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coracle
