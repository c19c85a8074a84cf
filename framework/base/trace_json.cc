// A trace as JSON.

#include <coracle/framework/base/trace.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace coracle::inline internal {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

// The events of the file, one per line.
class Events {
 public:
  void Add(const Json& event) {
    text_ += text_.empty() ? "\n" : ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  void AddName(const char* kind, int thread, const std::string& name) {
    Add({{"ph", "M"},
         {"pid", process_},
         {"tid", thread},
         {"name", kind},
         {"args", {{"name", name}}}});
  }
  void AddCounter(const std::string& name, int64_t at, int64_t bytes) {
    Add({{"ph", "C"},
         {"pid", process_},
         {"ts", Microseconds(at)},
         {"name", name},
         {"args", {{"bytes", bytes}}}});
  }
  // `part`: the share of a helping thread, written without the args.
  void AddSpan(const TraceLabel& label, bool part, int thread, int64_t begin, int64_t end) {
    Json event = {{"ph", "X"},
                  {"pid", process_},
                  {"tid", thread},
                  {"ts", Microseconds(begin)},
                  {"dur", Microseconds(end - begin)},
                  {"cat", part ? "part" : label.category},
                  {"name", label.name}};
    if (!part && !label.args.empty()) {
      Json& args = event["args"] = Json::object();
      for (const auto& arg : label.args)
        std::visit([&](const auto& held) { args[arg.first] = held; }, arg.second);
    }
    Add(event);
  }
  const std::string& text() const { return text_; }

 private:
  const int process_ = ::getpid();
  std::string text_;
};

// Sums the plan arenas that the ops running on one thread have in use: an op that runs a block
// keeps its own arena in use meanwhile.
class WorkspaceCounter {
 public:
  WorkspaceCounter(std::string name, Events* events) : name_(std::move(name)), events_(events) {}

  // Spans come ordered by their begin, outer ones first.
  void Begin(int64_t workspace, int64_t begin, int64_t end) {
    EndBefore(begin);
    open_.push_back({end, std::max<int64_t>(workspace, 0)});
    in_use_ += open_.back().bytes;
    if (workspace >= 0) Tell(begin);
  }
  // Ends all spans that are over at `time`. Between two ops the last value is kept; otherwise the
  // viewer's line would fall to 0 after each op.
  void EndBefore(int64_t time) {
    while (!open_.empty() && open_.back().end <= time) {
      const Open last = open_.back();
      open_.pop_back();
      in_use_ -= last.bytes;
      if (open_.empty()) Tell(last.end);
    }
  }

 private:
  struct Open {
    int64_t end, bytes;
  };
  void Tell(int64_t at) {
    if (in_use_ == told_) return;
    told_ = in_use_;
    events_->AddCounter(name_, at, in_use_);
  }

  std::string name_;
  Events* events_;
  std::vector<Open> open_;
  int64_t in_use_ = 0, told_ = 0;
};

}  // namespace

std::string Trace::ToJson() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A span is recorded when it ends, so of two spans with the same times the later one is the
  // outer one.
  std::vector<size_t> order(events_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    const Event &x = events_[a], &y = events_[b];
    if (x.begin != y.begin) return x.begin < y.begin;
    return x.end != y.end ? x.end > y.end : a > b;
  });
  Events events;
  events.AddName("process_name", 0, "coracle");
  std::vector<WorkspaceCounter> workspaces;
  for (size_t i = 0; i < threads_.size(); ++i) {
    events.AddName("thread_name", static_cast<int>(i), threads_[i]);
    workspaces.emplace_back(i == 0 ? "workspace in use" : "workspace in use, " + threads_[i],
                            &events);
  }
  for (const size_t i : order) {
    const Event& event = events_[i];
    const TraceLabel& label = labels_[event.label];
    if (!event.part)
      workspaces[static_cast<size_t>(event.thread)].Begin(label.workspace, event.begin, event.end);
    events.AddSpan(label, event.part, event.thread, event.begin, event.end);
  }
  for (WorkspaceCounter& workspace : workspaces)
    workspace.EndBefore(std::numeric_limits<int64_t>::max());
  for (const Count& count : counts_)
    events.AddCounter(counters_[count.name], count.at, count.value);
  Json other = {{"dropped_events", dropped_}, {"runs", runs_}, {"runs_with_ops", runs_with_ops_}};
  return "{\"format\":\"coracle.trace\",\"version\":1,\"displayTimeUnit\":\"ms\",\"otherData\":" +
         other.dump() + ",\"traceEvents\":[" + events.text() + "\n]}\n";
}

}  // namespace coracle::inline internal
