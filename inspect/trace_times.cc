#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/trace_times.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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

using Place = std::pair<int, size_t>;  // a block and the number of an op in it
constexpr Place kNoPlace = {-1, 0};

// "op 2 of block 1, from net.pbtxt:3:9".
Place PlaceFrom(const std::string& text) {
  const std::vector<std::string> words = Split(text.substr(0, text.find(',')), ' ');
  int64_t op = 0, block = 0;
  if (words.size() != 5 || words[0] != "op" || words[2] != "of" || words[3] != "block" ||
      !ParseInt64(words[1], &op) || !ParseInt64(words[4], &block))
    return kNoPlace;
  const bool valid = op >= 0 && block >= 0 && block <= INT32_MAX;
  return valid ? Place(static_cast<int>(block), static_cast<size_t>(op)) : kNoPlace;
}

// The program's ops that write a variable, and what spans of the trace say where ops that write it
// stood in the compiled program, with the op that each stands for.
struct Writers {
  std::set<Place> ops;
  std::map<Place, Place> of_trace;

  // Where there are as many in the trace, they are the same, in order, though passes may have given
  // them other numbers. Otherwise (of a branch that was not run there is none) the numbers count.
  void Resolve() {
    auto same = ops.begin();
    for (auto& [traced, own] : of_trace) {
      if (of_trace.size() == ops.size())
        own = *same++;
      else
        own = ops.count(traced) > 0 ? traced : kNoPlace;
    }
  }
  Place OpAt(const Place& traced) const {
    if (ops.size() == 1) return *ops.begin();
    const auto found = of_trace.find(traced);
    return found == of_trace.end() ? kNoPlace : found->second;
  }
};

// The program's ops by what they write.
class WriterIndex {
 public:
  explicit WriterIndex(const ProgramDesc& program) {
    for (int b = 0; b < program.NumBlocks(); ++b) {
      const BlockDesc& block = program.Block(b);
      for (size_t i = 0; i < block.NumOps(); ++i) {
        block.op(i).ForEachOutput([&](const std::string& name) {
          by_name_[name].ops.emplace(b, i);
          by_name_and_type_[name + '\n' + block.op(i).type()].ops.emplace(b, i);
        });
      }
    }
  }
  Writers* Find(const std::string& name, const std::string& type) {
    const auto same = by_name_and_type_.find(name + '\n' + type);
    if (same != by_name_and_type_.end()) return &same->second;
    const auto any = by_name_.find(name);
    return any == by_name_.end() ? nullptr : &any->second;
  }
  void Resolve() {
    for (auto* index : {&by_name_, &by_name_and_type_}) {
      for (auto& [key, writers] : *index) writers.Resolve();
    }
  }

 private:
  std::unordered_map<std::string, Writers> by_name_, by_name_and_type_;
};

struct OpSpan {
  double thread = 0, begin = 0, duration = 0;  // in microseconds
  Writers* writers = nullptr;                  // of what it writes, if the program has any
  Place place = kNoPlace;                      // in the compiled program
};

// What a span of an op says; without duration for another event.
OpSpan SpanOf(const Json& event, WriterIndex& index) {
  if (!event.is_object() || TextOf(event, "ph") != "X" || TextOf(event, "cat") != "op") return {};
  OpSpan span{NumberOf(event, "tid"), NumberOf(event, "ts"), NumberOf(event, "dur")};
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object()) return span;
  span.writers = index.Find(TextOf(*args, "output"), TextOf(event, "name"));
  span.place = PlaceFrom(TextOf(*args, "place"));
  if (span.writers && span.place != kNoPlace) span.writers->of_trace.emplace(span.place, kNoPlace);
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
  WriterIndex index(program);
  std::vector<OpSpan> spans;
  for (const Json& event : *events) {
    const OpSpan span = SpanOf(event, index);
    if (span.duration > 0) spans.push_back(span);
  }
  if (spans.empty()) ThrowNoTrace(source, "no event is the span of an op");
  SubtractInner(&spans);
  index.Resolve();
  std::map<Place, TracedOp> ops;
  TraceTimes times;
  for (const OpSpan& span : spans) {
    const double seconds = 1e-6 * span.duration;
    times.seconds += seconds;
    const Place place = span.writers ? span.writers->OpAt(span.place) : kNoPlace;
    if (place == kNoPlace) {
      times.without_op += seconds;
      continue;
    }
    TracedOp& traced = ops[place];
    traced = {place.first, place.second, traced.seconds + seconds, traced.runs + 1};
  }
  for (const auto& [place, traced] : ops) times.ops.push_back(traced);
  return times;
}

}  // namespace coracle
