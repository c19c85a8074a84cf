#pragma once
// Trace: records what each thread of a process does and when, as a file for https://ui.perfetto.dev
// or Chrome's about:tracing. Format: "Trace Event Format", complete events (X), counters (C) and
// metadata (M).
//
//   Trace trace;
//   {
//     const ScopedTrace recording(trace);
//     program.Run(scope, feeds);
//   }
//   trace.Write("run.json");

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace coracle::inline internal {

struct TraceOptions {
  // Each prepared program has its first `runs` runs recorded op by op, later ones as one span each.
  int64_t runs = 20;
  size_t events = 1'000'000;  // limit on recorded events; later ones are only counted
};

// The name of a span, and the details that the viewer shows for it.
struct TraceLabel {
  using Pairs = std::vector<std::array<int, 2>>;  // a list of lists in the file
  using Value = std::variant<int64_t, double, std::string, Pairs>;
  std::string category, name;
  std::vector<std::pair<std::string, Value>> args = {};
  // For an op, the bytes of its plan's arena in use while it runs; -1 for a span that is not an op.
  int64_t workspace = -1;
};

// Thread-safe. Times are read from the steady clock, in nanoseconds since the trace was made.
class Trace {
 public:
  using LabelId = uint32_t;
  static constexpr LabelId kNoLabel = std::numeric_limits<LabelId>::max();

  explicit Trace(const TraceOptions& options = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The trace that this process records now; nullptr if there is none. One atomic load.
  static Trace* Current() { return current_.load(std::memory_order_acquire); }
  // Sets the name under which viewers show the calling thread, in traces it has not written to yet.
  static void NameThread(const std::string& name);

  const TraceOptions& options() const { return options_; }
  uint64_t id() const { return id_; }  // unique among the traces of the process
  int64_t Now() const;

  // Adds a label once, for spans that repeat. Returns kNoLabel if the trace
  // already has options().events labels.
  LabelId AddLabel(TraceLabel label);
  // Adds a span of the calling thread. Spans of one thread must nest. `part`: the thread helps with
  // a loop that another thread runs.
  void AddSpan(LabelId label, int64_t begin, int64_t end, bool part = false);
  void AddSpan(TraceLabel label, int64_t begin, int64_t end);
  void AddCounter(const std::string& name, int64_t value);
  // Counts a run of a prepared program. `with_ops`: the ops of this run are recorded.
  void CountRun(bool with_ops);

  // "" if everything was kept, else a line that says how much was dropped.
  std::string Note() const;
  std::string ToJson() const;
  // Atomic. Throws Error(kIo).
  void Write(const std::string& path) const;

 private:
  friend class ScopedTrace;

  struct Event {
    int64_t begin = 0, end = 0;
    LabelId label = kNoLabel;
    int thread = 0;
    bool part = false;
  };
  struct Count {
    int64_t at = 0, value = 0;
    size_t name = 0;  // of counters_
  };
  int ThreadNumber();  // under the lock
  bool HasRoom();      // under the lock; counts the event as dropped if there is none

  static std::atomic<Trace*> current_;
  const TraceOptions options_;
  const uint64_t id_;
  const int64_t start_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<TraceLabel> labels_;
  std::vector<Event> events_;
  std::vector<std::string> counters_;
  std::vector<Count> counts_;
  std::vector<std::string> threads_;  // their names, by number
  std::map<std::thread::id, int> numbers_;
  uint64_t dropped_ = 0;
  int64_t runs_ = 0, runs_with_ops_ = 0;
};

// Records into a trace during the lifetime of the object; recording into the previous trace, if
// any, resumes afterwards. No other thread may be inside a span when the object is destroyed.
class ScopedTrace {
 public:
  explicit ScopedTrace(Trace& trace) : before_(Trace::current_.exchange(&trace)) {}
  ~ScopedTrace() { Trace::current_.store(before_); }
  ScopedTrace(const ScopedTrace&) = delete;
  ScopedTrace& operator=(const ScopedTrace&) = delete;

 private:
  Trace* before_;
};

// A span of the calling thread, from here to the end of the object. Costs one atomic load if no
// trace is recorded.
class TraceSpan {
 public:
  TraceSpan(const char* category, std::string_view name) : trace_(Trace::Current()) {
    if (trace_) Begin(category, name);
  }
  // A span with a label of `trace`. ParallelFor loops inside it appear on the helping threads as
  // its `part`s.
  TraceSpan(Trace& trace, Trace::LabelId label, bool part = false);
  ~TraceSpan() {
    if (trace_) End();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Whether the span is recorded; otherwise Set does nothing.
  explicit operator bool() const { return trace_ != nullptr; }
  void Set(const char* key, TraceLabel::Value value);

 private:
  void Begin(const char* category, std::string_view name);
  void End();

  Trace* trace_;
  Trace::LabelId label_ = Trace::kNoLabel, around_ = Trace::kNoLabel;
  TraceLabel own_;  // unless label_known_
  bool label_known_ = false, part_ = false;
  int64_t begin_ = 0;
};

namespace detail {
// The label of this thread's innermost span that was made from a label; kNoLabel outside
// such spans.
Trace::LabelId LabelHere();
}  // namespace detail

}  // namespace coracle::inline internal
