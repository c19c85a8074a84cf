#include <coracle/communication/mpi/mpi_thread.h>
#include <coracle/communication/mpi/rank_elements.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace coracle::inline internal {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Polls for this long without pausing, then with naps: a waiting rank leaves its core to others.
constexpr auto kBusy = microseconds(60);
constexpr auto kShortNap = microseconds(20), kLongNap = microseconds(200);
// Interval at which an idle thread looks for questions of other ranks.
constexpr auto kIdle = std::chrono::milliseconds(50);
constexpr double kAnswerSeconds = 2;  // a rank that has not answered by then is not running
constexpr int64_t kMostElements = int64_t{1} << 30;    // of one message
constexpr int64_t kScatteredBytes = int64_t{1} << 20;  // of one rank, per message
constexpr int kQuestion = 1, kAnswer = 2;              // tags
constexpr int64_t kSilent = -1, kLeft = -2;            // answers other than numbers of exchanges

double SecondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}
double SecondsSince(Clock::time_point start) { return SecondsBetween(start, Clock::now()); }

void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kIo, fmt::format("communicator: {}: {}", what, text));
}

// Backs off: the longer the wait, the longer each sleep.
class Naps {
 public:
  void Take() {
    const auto passed = Clock::now() - start_;
    if (passed < kBusy) return;
    std::this_thread::sleep_for(passed < 10 * kBusy ? kShortNap : kLongNap);
  }

 private:
  Clock::time_point start_ = Clock::now();
};

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return MPI_UINT8_T;
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kInt16:
      return MPI_INT16_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUInt64:
      return MPI_UINT64_T;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::kComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kString:  // Exchange::Check refuses it
      break;
  }
  return MPI_UINT16_T;  // only moved, never reduced
}

template <class T, bool high>
void Extreme(const T* in, T* in_out, int count) {
  for (int i = 0; i < count; ++i) {
    const T a = in[i], b = in_out[i];
    const bool take = std::isnan(a) || (!std::isnan(b) && (high ? a > b : a < b));
    if (take) in_out[i] = a;
  }
}
template <bool high>
void ExtremeOp(void* in, void* in_out, int* count, MPI_Datatype* type) {
  if (*type == MPI_FLOAT)
    Extreme<float, high>(static_cast<float*>(in), static_cast<float*>(in_out), *count);
  else
    Extreme<double, high>(static_cast<double*>(in), static_cast<double*>(in_out), *count);
}

template <class T>
void Widen(const void* from, float* to, int64_t count) {
  const T* values = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(values[i]);
}
template <class T>
void Narrow(const float* from, void* to, int64_t count) {
  T* values = static_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
}

// A hash of everything that all ranks must describe identically.
uint64_t FingerprintOf(const Exchange& exchange) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x100000001b3;
    hash ^= hash >> 29;
  };
  add(static_cast<uint64_t>(exchange.kind));
  add(static_cast<uint64_t>(exchange.dtype));
  add(static_cast<uint64_t>(exchange.root));
  const bool reduces = exchange.kind == Exchange::Kind::kAllReduce ||
                       exchange.kind == Exchange::Kind::kReduceScatter;
  add(reduces ? static_cast<uint64_t>(exchange.reduction) : 0);
  for (const int64_t count : exchange.counts) add(static_cast<uint64_t>(count));
  return hash;
}

}  // namespace

MpiThread::MpiThread(double time_limit) : time_limit_(std::min(time_limit, kLongestWait)) {
  thread_ = std::thread([this] { Main(); });
}

MpiThread::~MpiThread() { thread_.join(); }

// Longer than the limit, since the thread first polls the other ranks (unless blocked inside MPI).
double MpiThread::WaitLimit() const {
  return time_limit_ > 0 ? time_limit_ + 2 * kAnswerSeconds : kLongestWait;
}

void MpiThread::AwaitStart() {
  Lock lock(mutex_);
  const std::chrono::duration<double> limit(WaitLimit());
  if (!changed_.wait_for(lock, limit, [this] { return started_ || error_; })) {
    throw Error(ErrorCode::kDeadlineExceeded,
                fmt::format("communicator: the processes that were launched together have not all "
                            "initialised MPI within {} s",
                            limit.count()));
  }
  if (error_) throw Error(*error_);
}

bool MpiThread::Finish() {
  Lock lock(mutex_);
  if (error_) return false;
  stop_ = true;
  begun_.notify_all();
  return changed_.wait_for(lock, std::chrono::duration<double>(WaitLimit()),
                           [this] { return finished_; });
}

std::shared_ptr<MpiJob> MpiThread::Begin(const Exchange& exchange) {
  exchange.Check(size_);
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
  auto job = std::make_shared<MpiJob>();
  job->exchange = exchange;
  job->number = ++last_number_;
  jobs_.push_back(job);
  begun_.notify_all();
  return job;
}

void MpiThread::Wait(const MpiJob& job) {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  const auto over = [&] { return job.done || error_; };
  const std::chrono::duration<double> limit(WaitLimit());
  if (!changed_.wait_for(lock, limit, over)) {
    const std::string who = size_ == 2 ? Name(1 - rank_) : "a rank";
    error_.emplace(ErrorCode::kDeadlineExceeded,
                   fmt::format("communicator: the {} has not ended within {} s: {} has stopped in "
                               "the middle of it",
                               job.exchange.Describe(), limit.count(), who));
  }
  if (!job.done) {
    AwaitBuffers(lock, job, kAnswerSeconds);
    throw Error(*error_);
  }
  times_.waited += SecondsSince(start);
  times_.exposed += std::max(0.0, SecondsBetween(std::max(start, job.met), job.ended));
}

ExchangeTimes MpiThread::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

void MpiThread::GiveUp(MpiJob& job) {
  Lock lock(mutex_);
  if (job.done) return;
  if (!error_) {
    error_.emplace(ErrorCode::kCancelled, fmt::format("communicator: {} gave up the {}",
                                                      Name(rank_), job.exchange.Describe()));
  }
  changed_.notify_all();
  AwaitBuffers(lock, job, WaitLimit());
}

void MpiThread::AwaitBuffers(Lock& lock, const MpiJob& job, double seconds) {
  const std::chrono::duration<double> limit(seconds);
  if (changed_.wait_for(lock, limit, [&] { return job.done || !job.running; })) return;
  // Printed to stderr, since only rank 0 has the log of the command.
  fmt::print(stderr, "{}: {}\n", Name(rank_), error_->message());
  std::fflush(nullptr);
  ::_exit(1);
}

// All ranks leave MPI together; until they do, this one answers their questions.
void MpiThread::Leave() {
  MPI_Request request = MPI_REQUEST_NULL;
  Check(MPI_Ibarrier(questions_, &request), "leaving");
  for (int here = 0; !here;) {
    Check(MPI_Test(&request, &here, MPI_STATUS_IGNORE), "leaving");
    if (here) break;
    AnswerQuestions();
    std::this_thread::sleep_for(kLongNap);
  }
}

void MpiThread::Main() {
  Trace::NameThread("communication");
  Lock lock(mutex_);
  try {
    lock.unlock();
    Start();
    lock.lock();
    started_ = true;
    changed_.notify_all();
    Serve(lock);
    lock.unlock();
    Leave();
    MPI_Finalize();
    lock.lock();
    finished_ = true;
    changed_.notify_all();
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    if (!error_) error_ = error;
    changed_.notify_all();
  }
}

void MpiThread::Start() {
  int provided = 0;
  // The thread that initialises MPI is the only one that calls it.
  Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "initialising MPI");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  Check(MPI_Comm_dup(MPI_COMM_WORLD, &questions_), "making a communicator");
  MPI_Op_create(ExtremeOp<true>, 1, &high_);
  MPI_Op_create(ExtremeOp<false>, 1, &low_);
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  std::vector<char> all(static_cast<size_t>(size_) * sizeof name);
  Check(
      MPI_Allgather(name, sizeof name, MPI_CHAR, all.data(), sizeof name, MPI_CHAR, MPI_COMM_WORLD),
      "learning the names of hosts");
  for (int r = 0; r < size_; ++r)
    hosts_.emplace_back(all.data() + static_cast<size_t>(r) * sizeof name);
}

void MpiThread::Serve(Lock& lock) {
  while (true) {
    begun_.wait_for(lock, kIdle, [this] { return stop_ || !jobs_.empty(); });
    if (error_) throw Error(*error_);
    if (jobs_.empty() && stop_) return;
    if (jobs_.empty()) {
      lock.unlock();
      AnswerQuestions();
      lock.lock();
      continue;
    }
    const std::shared_ptr<MpiJob> job = jobs_.front();
    lock.unlock();
    try {
      Perform(*job);
    } catch (...) {
      lock.lock();
      job->running = false;
      changed_.notify_all();
      throw;
    }
    lock.lock();
    job->running = false;
    if (error_) throw Error(*error_);
    jobs_.pop_front();
    times_.transfers += SecondsBetween(job->met, job->ended);
    job->done = true;
    changed_.notify_all();
  }
}

void MpiThread::Perform(MpiJob& job) {
  Meet(job);
  job.met = Clock::now();
  TraceSpan span("exchange", ToString(job.exchange.kind));
  span.Set("what", job.exchange.Describe());
  {
    const std::lock_guard lock(mutex_);
    if (error_) throw Error(*error_);  // aborted
    job.running = true;
  }
  Run(job.exchange);
  job.ended = Clock::now();
}

// --- meeting ---

// The ranks wait here, with naps, for the last of them, so that the rest takes no longer than the
// exchange itself.
void MpiThread::Meet(const MpiJob& job) {
  const uint64_t print = FingerprintOf(job.exchange);
  const uint64_t own[2] = {print, ~print};
  uint64_t largest[2] = {};
  MPI_Request request = MPI_REQUEST_NULL;
  Check(MPI_Iallreduce(own, largest, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD, &request),
        "meeting");
  const Clock::time_point start = Clock::now();
  Clock::time_point answered = start;
  Naps naps;
  for (int here = 0;;) {
    Check(MPI_Test(&request, &here, MPI_STATUS_IGNORE), "meeting");
    if (here) break;
    naps.Take();
    const Clock::time_point now = Clock::now();
    if (now - answered > kIdle) {
      answered = now;
      AnswerQuestions();
      const std::lock_guard lock(mutex_);
      if (error_) throw Error(*error_);  // aborted
    }
    if (time_limit_ > 0 && SecondsSince(start) > time_limit_) ThrowAbsent(job);
  }
  // The maximum equals the minimum only if all fingerprints are equal; all ranks see the result.
  if (largest[0] != ~largest[1]) ThrowUnlike(job);
}

void MpiThread::ThrowUnlike(const MpiJob& job) {
  const std::string text = job.exchange.Describe();
  constexpr int kBytes = 400;
  std::vector<char> own(kBytes), all(static_cast<size_t>(size_) * kBytes);
  std::copy_n(text.data(), std::min<size_t>(text.size(), kBytes - 1), own.data());
  Check(MPI_Allgather(own.data(), kBytes, MPI_CHAR, all.data(), kBytes, MPI_CHAR, MPI_COMM_WORLD),
        "comparing exchanges");
  const auto of = [&](int rank) {
    return std::string(all.data() + static_cast<size_t>(rank) * kBytes);
  };
  int other = 1;
  while (other + 1 < size_ && of(other) == of(0)) ++other;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("communicator: {} begins the {}, and {} the {}: they run different programs or "
                  "read data of different shapes",
                  Name(other), of(other), Name(0), of(0)));
}

void MpiThread::ThrowAbsent(const MpiJob& job) {
  std::string absent;
  const std::vector<int64_t> numbers = AskAll();
  for (int r = 0; r < size_; ++r) {
    const int64_t number = numbers[static_cast<size_t>(r)];
    if (r == rank_ || number >= job.number) continue;
    absent += fmt::format("{}{} {}", absent.empty() ? "" : ", ", Name(r),
                          number == kSilent ? "does not answer"
                          : number == kLeft ? "has left"
                                            : "has not begun it");
  }
  throw Error(ErrorCode::kDeadlineExceeded,
              fmt::format("communicator: the {} did not come about within {} s: {}",
                          job.exchange.Describe(), time_limit_,
                          absent.empty() ? "all ranks have begun it" : absent));
}

std::string MpiThread::Name(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<size_t>(rank)]);
}

// Answers with the number of the last exchange that this rank has begun.
void MpiThread::AnswerQuestions() {
  for (int any = 1; any;) {
    MPI_Status status;
    Check(MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, questions_, &any, &status), "listening");
    if (!any) return;
    char nothing = 0;
    MPI_Recv(&nothing, 1, MPI_CHAR, status.MPI_SOURCE, kQuestion, questions_, MPI_STATUS_IGNORE);
    int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = stop_ && jobs_.empty() ? kLeft : last_number_;
    }
    MPI_Send(&number, 1, MPI_INT64_T, status.MPI_SOURCE, kAnswer, questions_);
  }
}

std::vector<int64_t> MpiThread::AskAll() {
  const char nothing = 0;
  std::vector<int64_t> numbers(static_cast<size_t>(size_), kSilent);
  std::vector<MPI_Request> sent, received;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Isend(&nothing, 1, MPI_CHAR, r, kQuestion, questions_, &sent.emplace_back());
    MPI_Irecv(&numbers[static_cast<size_t>(r)], 1, MPI_INT64_T, r, kAnswer, questions_,
              &received.emplace_back());
  }
  const Clock::time_point start = Clock::now();
  for (int all = 0; !all && SecondsSince(start) < kAnswerSeconds;) {
    MPI_Testall(static_cast<int>(received.size()), received.data(), &all, MPI_STATUSES_IGNORE);
    AnswerQuestions();  // the others may be asking too
    std::this_thread::sleep_for(kLongNap);
  }
  return numbers;
}

// --- exchanges ---

void MpiThread::Run(const Exchange& exchange) {
  switch (exchange.kind) {
    case Exchange::Kind::kAllReduce:
      return ReduceBuffers(exchange);
    case Exchange::Kind::kBroadcast:
      return BroadcastBuffers(exchange);
    case Exchange::Kind::kAllGather:
      return Gather(exchange);
    case Exchange::Kind::kReduceScatter:
      return ReduceScatter(exchange);
    case Exchange::Kind::kBarrier:
      return;  // the ranks have met already
  }
}

// `in` may be `out`.
void MpiThread::Reduce(const Exchange& exchange, const void* in, void* out, int64_t count) {
  if (IsHalf(exchange.dtype)) {
    wide_.resize(static_cast<size_t>(count));
    const bool brain = exchange.dtype == DType::kBFloat16;
    brain ? Widen<bfloat16>(in, wide_.data(), count) : Widen<float16>(in, wide_.data(), count);
    Exchange wide = exchange;
    wide.dtype = DType::kFloat32;
    Reduce(wide, wide_.data(), wide_.data(), count);
    brain ? Narrow<bfloat16>(wide_.data(), out, count) : Narrow<float16>(wide_.data(), out, count);
    return;
  }
  const bool real = exchange.dtype == DType::kFloat32 || exchange.dtype == DType::kFloat64;
  const MPI_Op op = exchange.reduction == Reduction::kSum    ? MPI_SUM
                    : exchange.reduction == Reduction::kProd ? MPI_PROD
                    : exchange.reduction == Reduction::kMax  ? (real ? high_ : MPI_MAX)
                                                             : (real ? low_ : MPI_MIN);
  const auto size = static_cast<int64_t>(SizeOf(exchange.dtype));
  for (int64_t begin = 0; begin < count; begin += kMostElements) {
    const int part = static_cast<int>(std::min(kMostElements, count - begin));
    const char* from = static_cast<const char*>(in) + begin * size;
    char* to = static_cast<char*>(out) + begin * size;
    Check(MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, part, TypeOf(exchange.dtype), op,
                        MPI_COMM_WORLD),
          "allreduce");
  }
}

void MpiThread::ReduceBuffers(const Exchange& exchange) {
  if (exchange.more.empty()) return Reduce(exchange, exchange.in, exchange.out, exchange.counts[0]);
  const auto size = static_cast<int64_t>(SizeOf(exchange.dtype));
  std::vector<Exchange::Buffer> buffers = exchange.more;
  buffers.insert(buffers.begin(), {exchange.in, exchange.out});
  int64_t total = 0;
  for (size_t k = 0; k < buffers.size(); ++k) {
    const int64_t count = exchange.counts[k];
    if (count * size < Exchange::kPackedBytes)
      total += count;
    else
      Reduce(exchange, buffers[k].in, buffers[k].out, count);
  }
  packed_.resize(static_cast<size_t>(total * size));
  const auto copy_small = [&](bool in) {
    char* at = packed_.data();
    for (size_t k = 0; k < buffers.size(); ++k) {
      const int64_t bytes = exchange.counts[k] * size;
      if (bytes == 0 || bytes >= Exchange::kPackedBytes) continue;
      std::memcpy(in ? at : buffers[k].out, in ? buffers[k].in : at, static_cast<size_t>(bytes));
      at += bytes;
    }
  };
  copy_small(true);
  Reduce(exchange, packed_.data(), packed_.data(), total);
  copy_small(false);
}

void MpiThread::BroadcastBuffers(const Exchange& exchange) {
  const auto size = static_cast<int64_t>(SizeOf(exchange.dtype));
  for (size_t k = 0; k < exchange.counts.size(); ++k) {
    const void* in = k == 0 ? exchange.in : exchange.more[k - 1].in;
    void* out = k == 0 ? exchange.out : exchange.more[k - 1].out;
    const int64_t bytes = exchange.counts[k] * size;
    if (rank_ == exchange.root && in != out && bytes > 0)
      std::memmove(out, in, static_cast<size_t>(bytes));
    for (int64_t begin = 0; begin < bytes; begin += kMostElements) {
      const int part = static_cast<int>(std::min(kMostElements, bytes - begin));
      Check(
          MPI_Bcast(static_cast<char*>(out) + begin, part, MPI_BYTE, exchange.root, MPI_COMM_WORLD),
          "broadcast");
    }
  }
}

// Sends the ranks' parts one by one if a single message would be too large.
void MpiThread::Gather(const Exchange& exchange) {
  const auto size = static_cast<int64_t>(SizeOf(exchange.dtype));
  std::vector<int> counts, offsets;
  int64_t total = 0;
  for (const int64_t count : exchange.counts) {
    counts.push_back(static_cast<int>(count));
    offsets.push_back(static_cast<int>(total));
    total += count;
  }
  char* out = static_cast<char*>(exchange.out);
  if (total <= kMostElements) {
    const void* own = out + offsets[static_cast<size_t>(rank_)] * size;
    Check(MPI_Allgatherv(exchange.in == own ? MPI_IN_PLACE : exchange.in,
                         counts[static_cast<size_t>(rank_)], TypeOf(exchange.dtype), out,
                         counts.data(), offsets.data(), TypeOf(exchange.dtype), MPI_COMM_WORLD),
          "allgather");
    return;
  }
  for (int r = 0; r < size_; ++r) {
    Exchange part = exchange;
    part.kind = Exchange::Kind::kBroadcast;
    part.counts = {exchange.counts[static_cast<size_t>(r)]};
    part.root = r;
    part.out = out;
    if (r != rank_) part.in = out;
    BroadcastBuffers(part);
    out += part.counts[0] * size;
  }
}

// Works in pieces of each rank's elements, to limit the memory of this function and of MPI.
void MpiThread::ReduceScatter(const Exchange& exchange) {
  const RankElements elements(exchange, size_);
  const int64_t most = std::max<int64_t>(
      1, std::min(kScatteredBytes / elements.size(), kMostElements / std::max(1, size_)));
  for (int64_t begin = 0; begin < elements.most(); begin += most) {
    std::vector<int> counts;
    int64_t total = 0, own = 0;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) own = total;
      counts.push_back(static_cast<int>(elements.Count(r, begin, most)));
      total += counts.back();
    }
    packed_.resize(static_cast<size_t>(total * elements.size()));
    char* at = packed_.data();
    for (int r = 0; r < size_; ++r) {
      elements.ForEach(r, begin, most, [&](size_t buffer, int64_t element, int64_t, size_t bytes) {
        const auto& from = buffer == 0 ? exchange.in : exchange.more[buffer - 1].in;
        std::memcpy(at, static_cast<const char*>(from) + element * elements.size(), bytes);
        at += bytes;
      });
    }
    const char* part = SumPiece(exchange, counts, total, own * elements.size());
    elements.ForEach(rank_, begin, most,
                     [&](size_t buffer, int64_t, int64_t element, size_t bytes) {
                       void* to = buffer == 0 ? exchange.out : exchange.more[buffer - 1].out;
                       std::memcpy(static_cast<char*>(to) + element * elements.size(), part, bytes);
                       part += bytes;
                     });
  }
}

// Reduces packed_, the ranks' elements in order; returns where this rank's sums are.
const char* MpiThread::SumPiece(const Exchange& exchange, const std::vector<int>& counts,
                                int64_t total, int64_t own) {
  const bool real = exchange.dtype == DType::kFloat32 || exchange.dtype == DType::kFloat64;
  if (!real || exchange.reduction != Reduction::kSum) {
    Reduce(exchange, packed_.data(), packed_.data(), total);
    return packed_.data() + own;
  }
  part_.resize(static_cast<size_t>(std::max(1, counts[static_cast<size_t>(rank_)])) *
               SizeOf(exchange.dtype));
  Check(MPI_Reduce_scatter(packed_.data(), part_.data(), counts.data(), TypeOf(exchange.dtype),
                           MPI_SUM, MPI_COMM_WORLD),
        "reducescatter");
  return part_.data();
}

}  // namespace coracle::inline internal
