#pragma once
// Trace: what a process does when, on which thread, as a file for https://ui.perfetto.dev or
// Chrome's about:tracing. Format: "Trace Event Format", complete events (X), counters (C) and
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

namespace coracle {

struct TraceOptions {
  // Of each prepared program so many runs are recorded op by op, the later ones as one span each.
  int64_t runs = 20;
  size_t events = 1'000'000;  // what comes after so many is counted and not kept
};

// What a span is called, and what the viewer shows of it.
struct TraceLabel {
  using Pairs = std::vector<std::array<int, 2>>;  // a list of lists in the file
  using Value = std::variant<int64_t, double, std::string, Pairs>;
  std::string category, name;
  std::vector<std::pair<std::string, Value>> args = {};
  // Of an op: bytes of its plan's arena that are in use while it runs; -1: it is no op.
  int64_t workspace = -1;
};

// Thread-safe. Times are those of the steady clock, in nanoseconds since the trace was made.
class Trace {
 public:
  using LabelId = uint32_t;
  static constexpr LabelId kNoLabel = std::numeric_limits<LabelId>::max();

  explicit Trace(const TraceOptions& options = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The one that this process records now; nullptr: none. One atomic load.
  static Trace* Current() { return current_.load(std::memory_order_acquire); }
  // What viewers call the calling thread, in traces that it has not written to yet.
  static void NameThread(const std::string& name);

  const TraceOptions& options() const { return options_; }
  uint64_t id() const { return id_; }  // no other trace of the process has it
  int64_t Now() const;

  // Labels that are used again and again are added once. kNoLabel when there are more than events.
  LabelId AddLabel(TraceLabel label);
  // A span of the calling thread. Spans of a thread must nest. `part`: the thread runs parts of a
  // loop of what another thread does.
  void AddSpan(LabelId label, int64_t begin, int64_t end, bool part = false);
  void AddSpan(TraceLabel label, int64_t begin, int64_t end);
  void AddCounter(const std::string& name, int64_t value);
  // Counts a run of a prepared program; `with_ops`: its ops are recorded.
  void CountRun(bool with_ops);

  // "" if all was kept, else a line about what was not.
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
  bool HasRoom();      // under the lock; counts what finds none

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

// Records into a trace during the lifetime of the object; the trace that was recorded before, if
// any, goes on afterwards. When it ends, no other thread may be inside of a span.
class ScopedTrace {
 public:
  explicit ScopedTrace(Trace& trace) : before_(Trace::current_.exchange(&trace)) {}
  ~ScopedTrace() { Trace::current_.store(before_); }
  ScopedTrace(const ScopedTrace&) = delete;
  ScopedTrace& operator=(const ScopedTrace&) = delete;

 private:
  Trace* before_;
};

// A span of the calling thread, from here to the end of the object. Costs an atomic load where no
// trace is recorded.
class TraceSpan {
 public:
  TraceSpan(const char* category, std::string_view name) : trace_(Trace::Current()) {
    if (trace_) Begin(category, name);
  }
  // Of a label of `trace`. Loops of ParallelFor inside of it show on the threads that help, as
  // `part`s of it.
  TraceSpan(Trace& trace, Trace::LabelId label, bool part = false);
  ~TraceSpan() {
    if (trace_) End();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Whether it is recorded; otherwise Set does nothing.
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

namespace internal {
// Of the innermost span that was made from a label, on this thread; kNoLabel outside of any.
Trace::LabelId LabelHere();
}  // namespace internal

}  // namespace coracle
