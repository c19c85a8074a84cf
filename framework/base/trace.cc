#include <coracle/framework/base/file.h>
#include <coracle/framework/base/trace.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace coracle::inline internal {
namespace {

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string& NameOfThread() {
  thread_local std::string name;
  return name;
}

thread_local Trace::LabelId label_here = Trace::kNoLabel;

}  // namespace

std::atomic<Trace*> Trace::current_{nullptr};

Trace::Trace(const TraceOptions& options)
    : options_(options), id_(NextId()), start_(SteadyNanoseconds()) {}

void Trace::NameThread(const std::string& name) { NameOfThread() = name; }

int64_t Trace::Now() const { return SteadyNanoseconds() - start_; }

Trace::LabelId Trace::AddLabel(TraceLabel label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (labels_.size() >= options_.events) return kNoLabel;
  labels_.push_back(std::move(label));
  return static_cast<LabelId>(labels_.size() - 1);
}

int Trace::ThreadNumber() {
  const auto [found, added] =
      numbers_.try_emplace(std::this_thread::get_id(), static_cast<int>(numbers_.size()));
  if (added) {
    const std::string& name = NameOfThread();
    const int number = found->second;
    threads_.push_back(!name.empty() ? name
                       : number == 0 ? "main"
                                     : fmt::format("thread {}", number));
  }
  return found->second;
}

bool Trace::HasRoom() {
  if (events_.size() + counts_.size() < options_.events) return true;
  ++dropped_;
  return false;
}

void Trace::AddSpan(LabelId label, int64_t begin, int64_t end, bool part) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (label == kNoLabel)
    ++dropped_;
  else if (HasRoom())
    events_.push_back({begin, std::max(begin, end), label, ThreadNumber(), part});
}

void Trace::AddSpan(TraceLabel label, int64_t begin, int64_t end) {
  AddSpan(AddLabel(std::move(label)), begin, end);
}

void Trace::AddCounter(const std::string& name, int64_t value) {
  const int64_t now = Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(counters_.begin(), counters_.end(), name);
  const auto index = static_cast<size_t>(found - counters_.begin());
  if (found == counters_.end()) counters_.push_back(name);
  if (HasRoom()) counts_.push_back({now, value, index});
}

void Trace::CountRun(bool with_ops) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++runs_;
  runs_with_ops_ += with_ops ? 1 : 0;
}

std::string Trace::Note() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string note;
  if (runs_with_ops_ < runs_) {
    note = fmt::format("ops of {} of {} runs are recorded: the first {} of each program",
                       runs_with_ops_, runs_, options_.runs);
  }
  if (dropped_ > 0) {
    note += fmt::format("{}{} events after the first {} are left out", note.empty() ? "" : "; ",
                        dropped_, options_.events);
  }
  return note;
}

void Trace::Write(const std::string& path) const { WriteFileAtomic(path, ToJson()); }

TraceSpan::TraceSpan(Trace& trace, Trace::LabelId label, bool part)
    : trace_(&trace),
      label_(label),
      around_(label_here),
      label_known_(true),
      part_(part),
      begin_(trace.Now()) {
  label_here = label;
}

void TraceSpan::Begin(const char* category, std::string_view name) {
  own_ = {category, std::string(name)};
  around_ = label_here;
  label_here = Trace::kNoLabel;
  begin_ = trace_->Now();
}

void TraceSpan::End() {
  const int64_t end = trace_->Now();
  label_here = around_;
  try {
    if (label_known_)
      trace_->AddSpan(label_, begin_, end, part_);
    else
      trace_->AddSpan(std::move(own_), begin_, end);
  } catch (const std::bad_alloc&) {  // the traced work goes on without this span
  }
}

void TraceSpan::Set(const char* key, TraceLabel::Value value) {
  if (trace_) own_.args.emplace_back(key, std::move(value));
}

Trace::LabelId detail::LabelHere() { return label_here; }

}  // namespace coracle::inline internal
