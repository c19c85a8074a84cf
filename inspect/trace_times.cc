#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/trace_times.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace coracle {
namespace {

using Json = nlohmann::json;

[[noreturn]] void ThrowNoTrace(const std::string& source, const std::string& why) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{} is no trace of ops: {}; `coracle run --trace=FILE` writes one",
                          Quote(source, 300), why));
}

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// The program's ops by what they write.
class WriterIndex {
 public:
  explicit WriterIndex(const ProgramDesc& program) {
    program.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        by_name_[name] = &op;
        by_name_and_type_[name + '\n' + op.type()] = &op;
      });
    });
  }
  const OpDesc* Find(const std::string& name, const std::string& type) const {
    const auto same = by_name_and_type_.find(name + '\n' + type);
    if (same != by_name_and_type_.end()) return same->second;
    const auto any = by_name_.find(name);
    return any == by_name_.end() ? nullptr : any->second;
  }

 private:
  std::unordered_map<std::string, const OpDesc*> by_name_, by_name_and_type_;
};

struct OpSpan {
  double thread = 0, begin = 0, duration = 0;  // in microseconds
  const OpDesc* op = nullptr;
};

// What a span of an op says; without duration for another event.
OpSpan SpanOf(const Json& event, const WriterIndex& writers) {
  if (!event.is_object() || TextOf(event, "ph") != "X" || TextOf(event, "cat") != "op") return {};
  OpSpan span{NumberOf(event, "tid"), NumberOf(event, "ts"), NumberOf(event, "dur")};
  const auto args = event.find("args");
  if (args != event.end() && args->is_object())
    span.op = writers.Find(TextOf(*args, "output"), TextOf(event, "name"));
  return span;
}

// Takes the time of the ops that a sub-block runs from the op that runs it.
void SubtractInner(std::vector<OpSpan>* spans) {
  std::stable_sort(spans->begin(), spans->end(), [](const OpSpan& a, const OpSpan& b) {
    return std::tie(a.thread, a.begin, b.duration) < std::tie(b.thread, b.begin, a.duration);
  });
  std::vector<std::pair<size_t, double>> open;  // around the span, with their ends
  for (size_t i = 0; i < spans->size(); ++i) {
    const OpSpan span = (*spans)[i];
    while (!open.empty() &&
           ((*spans)[open.back().first].thread != span.thread || open.back().second <= span.begin))
      open.pop_back();
    if (!open.empty()) {
      double& outer = (*spans)[open.back().first].duration;
      outer = std::max(0.0, outer - span.duration);
    }
    open.emplace_back(i, span.begin + span.duration);
  }
}

}  // namespace

TraceTimes ReadTraceTimes(const std::string& text, const std::string& source,
                          const ProgramDesc& program) {
  const Json trace = Json::parse(text, nullptr, false);
  if (trace.is_discarded()) ThrowNoTrace(source, "it is not JSON");
  const Json* events = trace.is_array() ? &trace : nullptr;
  if (trace.is_object() && trace.contains("traceEvents")) events = &trace["traceEvents"];
  if (!events || !events->is_array()) ThrowNoTrace(source, "it has no list of traceEvents");
  const WriterIndex writers(program);
  std::vector<OpSpan> spans;
  for (const Json& event : *events) {
    const OpSpan span = SpanOf(event, writers);
    if (span.duration > 0) spans.push_back(span);
  }
  if (spans.empty()) ThrowNoTrace(source, "no event is the span of an op");
  SubtractInner(&spans);
  std::map<std::pair<int, size_t>, TracedOp> ops;
  TraceTimes times;
  for (const OpSpan& span : spans) {
    const double seconds = 1e-6 * span.duration;
    times.seconds += seconds;
    if (!span.op) {
      times.without_op += seconds;
      continue;
    }
    const BlockDesc& block = *span.op->block();
    TracedOp& traced = ops[{block.idx(), block.IndexOf(*span.op)}];
    traced = {block.idx(), block.IndexOf(*span.op), traced.seconds + seconds, traced.runs + 1};
  }
  for (const auto& [place, traced] : ops) times.ops.push_back(traced);
  return times;
}

}  // namespace coracle
