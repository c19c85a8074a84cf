// Communicators of the threads of one process.

#include <coracle/communication/communicator.h>
#include <coracle/communication/reduce.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - start).count());
}

// The contributions of the ranks to one exchange.
struct Meeting {
  // The description by the first rank to arrive.
  Exchange first;
  int first_rank = 0;
  // By buffer, then by rank.
  std::vector<std::vector<const void*>> ins;
  std::vector<std::vector<void*>> outs;
  std::vector<bool> here;
  int missing = 0;
  bool running = false, done = false;
  Clock::time_point met = {}, ended = {};
};

void CopyTo(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

void Broadcast(const Meeting& m) {
  for (size_t k = 0; k < m.outs.size(); ++k) {
    const int64_t bytes = m.first.counts[k] * static_cast<int64_t>(SizeOf(m.first.dtype));
    for (void* out : m.outs[k]) CopyTo(out, m.ins[k][static_cast<size_t>(m.first.root)], bytes);
  }
}

void AllGather(const Meeting& m) {
  const auto size = static_cast<int64_t>(SizeOf(m.first.dtype));
  for (void* out : m.outs[0]) {
    char* to = static_cast<char*>(out);
    for (size_t rank = 0; rank < m.ins[0].size(); ++rank) {
      CopyTo(to, m.ins[0][rank], m.first.counts[rank] * size);
      to += m.first.counts[rank] * size;
    }
  }
}

void ReduceScatter(const Meeting& m) {
  auto count = m.first.counts.begin();
  for (size_t k = 0; k < m.ins.size(); ++k) {
    int64_t begin = 0;
    for (void* const& out : m.outs[k]) {
      const int64_t end = begin + *count++;
      ReduceParts(m.first.dtype, m.first.reduction, m.ins[k], {begin, end, begin},
                  std::span(&out, 1));
      begin = end;
    }
  }
}

void Compute(const Meeting& m) {
  switch (m.first.kind) {
    case Exchange::Kind::kAllReduce:
      for (size_t k = 0; k < m.ins.size(); ++k)
        ReduceParts(m.first.dtype, m.first.reduction, m.ins[k], {0, m.first.counts[k], 0},
                    m.outs[k]);
      return;
    case Exchange::Kind::kBroadcast:
      return Broadcast(m);
    case Exchange::Kind::kAllGather:
      return AllGather(m);
    case Exchange::Kind::kReduceScatter:
      return ReduceScatter(m);
    case Exchange::Kind::kBarrier:
      return;
  }
}

// The state that the threads share. Every rank enters meetings in the order of their numbers, so
// the first meeting is always the first to be complete.
class Group {
 public:
  Group(int size, double time_limit)
      : size_(size),
        time_limit_(std::min(time_limit, kLongestWait)),
        entered_(static_cast<size_t>(size)) {}

  int size() const { return size_; }

  std::shared_ptr<Meeting> Enter(int rank, const Exchange& exchange) {
    exchange.Check(size_);
    std::unique_lock lock(mutex_);
    ThrowIfBroken();
    const std::shared_ptr<Meeting> meeting = MeetingOf(rank, exchange);
    Join(*meeting, rank, exchange);
    if (meeting->missing > 0) return meeting;
    meetings_.pop_front();
    ++first_number_;
    meeting->running = true;
    meeting->met = Clock::now();
    lock.unlock();
    Compute(*meeting);
    lock.lock();
    meeting->ended = Clock::now();
    meeting->done = true;
    changed_.notify_all();
    return meeting;
  }

  void Wait(const Meeting& meeting) {
    std::unique_lock lock(mutex_);
    // A running exchange ends normally, even if the group fails.
    const auto over = [&] { return meeting.done || (error_ && !meeting.running); };
    if (time_limit_ <= 0) {
      changed_.wait(lock, over);
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(time_limit_), over)) {
      if (meeting.running)
        changed_.wait(lock, over);
      else
        Break(ErrorCode::kDeadlineExceeded, Absent(meeting));
    }
    if (!meeting.done) ThrowIfBroken();
  }

  bool IsDone(const Meeting& meeting) {
    const std::lock_guard lock(mutex_);
    return meeting.done;
  }

  // The rank stops waiting for the meeting; its buffers may be freed.
  void GiveUp(int rank, const Meeting& meeting) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return meeting.done || !meeting.running; });
    if (!meeting.done)
      Break(ErrorCode::kCancelled,
            fmt::format("rank {} gave up the {}", rank, meeting.first.Describe()));
  }

  void Leave(int rank) {
    const std::lock_guard lock(mutex_);
    Break(ErrorCode::kCancelled, fmt::format("rank {} has left", rank));
  }

 private:
  void ThrowIfBroken() const {
    if (error_) throw Error(*error_);
  }
  // Keeps the first reason.
  void Break(ErrorCode code, const std::string& reason) {
    if (!error_) error_.emplace(code, "communicator: " + reason);
    changed_.notify_all();
  }

  std::shared_ptr<Meeting> MeetingOf(int rank, const Exchange& exchange) {
    const uint64_t number = entered_[static_cast<size_t>(rank)]++;
    if (number - first_number_ == meetings_.size()) {
      const auto meeting = std::make_shared<Meeting>();
      const auto ranks = static_cast<size_t>(size_);
      meeting->first = exchange;
      meeting->first_rank = rank;
      meeting->ins.assign(1 + exchange.more.size(), std::vector<const void*>(ranks));
      meeting->outs.assign(1 + exchange.more.size(), std::vector<void*>(ranks));
      meeting->here.resize(ranks);
      meeting->missing = size_;
      meetings_.push_back(meeting);
    }
    return meetings_[number - first_number_];
  }

  void Join(Meeting& meeting, int rank, const Exchange& exchange) {
    if (!meeting.first.Matches(exchange)) {
      Break(ErrorCode::kInvalidArgument,
            fmt::format("rank {} begins the {}, and rank {} the {}: they run different programs or "
                        "read data of different shapes",
                        rank, exchange.Describe(), meeting.first_rank, meeting.first.Describe()));
      ThrowIfBroken();
    }
    const auto at = static_cast<size_t>(rank);
    meeting.ins[0][at] = exchange.in;
    meeting.outs[0][at] = exchange.out;
    for (size_t k = 0; k < exchange.more.size(); ++k) {
      meeting.ins[k + 1][at] = exchange.more[k].in;
      meeting.outs[k + 1][at] = exchange.more[k].out;
    }
    meeting.here[at] = true;
    --meeting.missing;
  }

  std::string Absent(const Meeting& meeting) const {
    std::vector<size_t> absent;
    for (size_t rank = 0; rank < meeting.here.size(); ++rank) {
      if (!meeting.here[rank]) absent.push_back(rank);
    }
    return fmt::format("rank{} {} did not come to the {} within {} s",
                       absent.size() == 1 ? "" : "s", fmt::join(absent, ", "),
                       meeting.first.Describe(), time_limit_);
  }

  const int size_;
  const double time_limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> entered_;  // by rank: the number of meetings that it has entered
  std::deque<std::shared_ptr<Meeting>> meetings_;  // meetings that still miss a rank
  uint64_t first_number_ = 0;                      // of meetings_[0]
  std::optional<Error> error_;
};

class ThreadExchange final : public PendingExchange {
 public:
  // `began`: when the rank arrived at the exchange, whose result it may have computed itself.
  ThreadExchange(std::shared_ptr<Group> group, int rank, std::shared_ptr<Meeting> meeting,
                 Clock::time_point began, std::shared_ptr<ExchangeTimes> times)
      : group_(std::move(group)),
        rank_(rank),
        meeting_(std::move(meeting)),
        times_(std::move(times)) {
    Count(began);
  }
  ~ThreadExchange() override {
    if (!waited_) group_->GiveUp(rank_, *meeting_);
  }
  void Wait() override {
    waited_ = true;
    const Clock::time_point began = Clock::now();
    group_->Wait(*meeting_);
    Count(began);
    times_->transfers += SecondsBetween(meeting_->met, meeting_->ended);
  }

 private:
  // Counts the time since `began` as waiting, and its overlap with the transfer as exposed.
  void Count(Clock::time_point began) {
    const Clock::time_point now = Clock::now();
    times_->waited += SecondsBetween(began, now);
    if (group_->IsDone(*meeting_))
      times_->exposed += SecondsBetween(std::max(began, meeting_->met), meeting_->ended);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::shared_ptr<Meeting> meeting_;
  std::shared_ptr<ExchangeTimes> times_;
  bool waited_ = false;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override { group_->Leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::unique_ptr<PendingExchange> Start(const Exchange& exchange) override {
    const Clock::time_point began = Clock::now();
    return std::make_unique<ThreadExchange>(group_, rank_, group_->Enter(rank_, exchange), began,
                                            times_);
  }
  ExchangeTimes times() const override { return *times_; }

 private:
  std::shared_ptr<ExchangeTimes> times_ = std::make_shared<ExchangeTimes>();
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> ThreadCommunicators(int size, double time_limit) {
  if (size < 1) ThrowInvalid(fmt::format("a communicator of {} ranks; at least 1 is needed", size));
  const auto group = std::make_shared<Group>(size, time_limit);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank)
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  return communicators;
}

}  // namespace coracle
