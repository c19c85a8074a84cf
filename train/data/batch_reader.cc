#include <coracle/framework/base/trace.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

namespace coracle {
namespace {

// Tensors for a whole batch, and views of their first rows for the last batch of an epoch.
struct Buffers {
  std::vector<Tensor> whole, part;
  std::vector<int64_t> rows;  // of the source
  int64_t of_all = 0;         // ranks
  int64_t epoch = 0;
};

Tensor MakeBatch(const DataColumn& column, int64_t rows) {
  Shape shape{column.sequences ? 0 : rows};
  for (int64_t dim : column.shape) shape.Append(dim);
  return Tensor(column.dtype, shape);
}

Tensor FirstRows(const Tensor& whole, int64_t rows) {
  auto owner = std::make_shared<Tensor>(whole);
  Shape shape = whole.shape();
  shape[0] = rows;
  return Tensor::View(whole.dtype(), shape, owner->raw(), owner);
}

}  // namespace

void ShuffleRows(uint64_t seed, uint64_t epoch, std::span<int64_t> rows) {
  std::iota(rows.begin(), rows.end(), int64_t{0});
  Philox philox(seed, HashName("shuffle"), epoch);
  for (size_t i = rows.size(); i > 1; --i) {
    auto words = philox.Block(i);
    uint64_t draw = uint64_t{words[0]} << 32 | words[1];
    auto j = static_cast<size_t>((static_cast<unsigned __int128>(draw) * i) >> 64);
    std::swap(rows[i - 1], rows[j]);
  }
}

struct BatchReader::Impl {
  Impl(DataSourcePtr data, const BatchOptions& batch_options)
      : source(std::move(data)), options(batch_options) {
    RequireSource(source, "a BatchReader");
    int64_t size = source->size();
    if (options.batch_size < 1)
      ThrowInvalid(fmt::format("batch_size must be at least 1, got {}", options.batch_size));
    rest = size % options.batch_size;
    per_epoch = size / options.batch_size + (rest > 0 && !options.drop_last ? 1 : 0);
    if (per_epoch == 0) {
      ThrowInvalid(fmt::format("{} has {} rows, too few for a batch of {}", source->Describe(),
                               size, options.batch_size));
    }
    order.resize(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), int64_t{0});
    const int64_t rows = Own(std::min(size, options.batch_size)).count;
    const int64_t own_rest = rest > 0 ? Own(rest).count : 0;
    for (Buffers& b : buffers) {
      for (const DataColumn& column : source->columns()) {
        b.whole.push_back(MakeBatch(column, rows));
        b.part.push_back(column.sequences ? MakeBatch(column, own_rest)
                                          : FirstRows(b.whole.back(), own_rest));
      }
    }
    if (options.prefetch) StartWorker();
  }

  ~Impl() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop = true;
    }
    changed.notify_all();
    if (worker.joinable()) worker.join();
  }

  // If the system cannot start a thread, the caller reads the same batches itself.
  void StartWorker() {
    try {
      worker = std::thread([this] { Work(); });
    } catch (const std::system_error&) {
    }
  }

  // This rank's rows of a batch of `rows` rows.
  RankRows Own(int64_t rows) const { return RowsOfRank(rows, options.rank, options.ranks); }

  // Reads batch `number` into `buffer`.
  const std::vector<Tensor>* Fill(int64_t number, Buffers& buffer) {
    int64_t epoch = number / per_epoch, batch = number % per_epoch;
    TraceSpan span("data", "read batch");
    span.Set("epoch", epoch);
    span.Set("batch", batch);
    if (options.shuffle && epoch != order_epoch) {
      ShuffleRows(options.seed, static_cast<uint64_t>(epoch), order);
      order_epoch = epoch;
    }
    int64_t begin = batch * options.batch_size;
    int64_t count = std::min(options.batch_size, source->size() - begin);
    const bool whole = count == std::min(options.batch_size, source->size());
    std::vector<Tensor>& out = whole ? buffer.whole : buffer.part;
    buffer.of_all = count;
    buffer.epoch = epoch;
    const RankRows own = Own(count);
    const auto first = order.begin() + begin + own.begin;
    buffer.rows.assign(first, first + own.count);
    source->GetInEpoch(epoch, buffer.rows, out);
    return &out;
  }

  void Work() {
    Trace::NameThread("data reader");
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stop || (wanted >= 0 && !ready); });
      if (stop) return;
      int64_t number = wanted;
      Buffers& buffer = buffers[static_cast<size_t>(1 - in_use)];
      lock.unlock();
      const std::vector<Tensor>* batch = nullptr;
      std::exception_ptr error;
      try {
        batch = Fill(number, buffer);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      result = batch;
      failure = error;
      ready = true;
      changed.notify_all();
    }
  }

  // Returns the batch at `position` from the worker and requests the next one. If Seek made a
  // pending request useless, waits for it and drops its result.
  const std::vector<Tensor>& NextPrefetched() {
    std::unique_lock<std::mutex> lock(mutex);
    if (wanted >= 0 && wanted != position) {
      changed.wait(lock, [this] { return ready; });
      wanted = -1;
    }
    if (wanted < 0) Ask(position);
    changed.wait(lock, [this] { return ready; });
    if (failure) {
      wanted = -1;
      std::rethrow_exception(std::exchange(failure, nullptr));
    }
    const std::vector<Tensor>* batch = result;
    in_use = 1 - in_use;
    Ask(++position);
    return *batch;
  }

  void Ask(int64_t number) {
    wanted = number;
    ready = false;
    changed.notify_all();
  }

  // The buffers of the batch that the caller holds.
  const Buffers& Shown() const {
    return buffers[static_cast<size_t>(worker.joinable() ? in_use : 0)];
  }

  DataSourcePtr source;
  BatchOptions options;
  int64_t per_epoch = 0, rest = 0;
  int64_t position = 0;
  std::array<Buffers, 2> buffers;

  // Used by the thread that fills the buffers: the worker, or the caller without a worker.
  std::vector<int64_t> order;
  int64_t order_epoch = -1;

  std::thread worker;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  bool stop = false;
  bool ready = false;
  int64_t wanted = -1;  // the requested batch; -1: none
  int in_use = 0;       // the buffer that the caller holds
  const std::vector<Tensor>* result = nullptr;
  std::exception_ptr failure;
};

BatchReader::BatchReader(DataSourcePtr source, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), options)) {}
BatchReader::~BatchReader() = default;

const std::vector<DataColumn>& BatchReader::columns() const { return impl_->source->columns(); }
int64_t BatchReader::batches_per_epoch() const { return impl_->per_epoch; }
int64_t BatchReader::position() const { return impl_->position; }

void BatchReader::Seek(int64_t position) {
  if (position < 0) ThrowInvalid(fmt::format("a data position must not be negative: {}", position));
  impl_->position = position;
}

std::string BatchReader::PlaceOf(int64_t row) const {
  const std::vector<int64_t>& rows = impl_->Shown().rows;
  if (row < 0 || row >= static_cast<int64_t>(rows.size())) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("row {} requested from a batch, which has {}", row, rows.size()));
  }
  return impl_->source->PlaceInEpoch(impl_->Shown().epoch, rows[static_cast<size_t>(row)]);
}
int64_t BatchReader::rows_of_all() const { return impl_->Shown().of_all; }
int64_t BatchReader::own_rows() const { return impl_->Own(rows_of_all()).rows(); }

const std::vector<Tensor>& BatchReader::Next() {
  if (impl_->worker.joinable()) {
    const TraceSpan span("data", "wait for batch");
    return impl_->NextPrefetched();
  }
  const std::vector<Tensor>* batch = impl_->Fill(impl_->position, impl_->buffers[0]);
  ++impl_->position;
  return *batch;
}

}  // namespace coracle
