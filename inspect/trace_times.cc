#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/trace_times.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

// Without directories: the text may have been read from another one.
std::string SiteOf(const std::string& creation_site) {
  return creation_site.substr(creation_site.rfind('/') + 1);
}

// Where an op is in the traced program, and where it was made.
struct TracedPlace {
  Place place = kNoPlace;
  std::string site = {};  // "net.pbtxt:3:9", or ""
};

// "op 2 of block 1, from dir/net.pbtxt:3:9"; of "ops 2, 3 and 4 of block 1" the last.
TracedPlace PlaceFrom(const std::string& text) {
  static const std::string kFrom = ", from ";
  const size_t comma = text.find(kFrom);
  TracedPlace found;
  if (comma != std::string::npos) found.site = SiteOf(text.substr(comma + kFrom.size()));
  const std::vector<std::string> words = Split(text.substr(0, comma), ' ');
  const size_t of =
      static_cast<size_t>(std::find(words.begin(), words.end(), "of") - words.begin());
  int64_t op = 0, block = 0;
  if (of < 2 || of + 2 >= words.size() || !words[0].starts_with("op") || words[of + 1] != "block" ||
      !ParseInt64(words[of - 1], &op) || !ParseInt64(words[of + 2], &block))
    return found;
  if (op >= 0 && block >= 0 && block <= INT32_MAX)
    found.place = Place(static_cast<int>(block), static_cast<size_t>(op));
  return found;
}

// The program's ops that write a variable, each with the site where it was made.
using Writers = std::map<Place, std::string>;

// The program's ops by what they write.
class WriterIndex {
 public:
  explicit WriterIndex(const ProgramDesc& program) : root_(program.Root()) {
    for (int b = 0; b < program.NumBlocks(); ++b) {
      const BlockDesc& block = program.Block(b);
      for (size_t i = 0; i < block.NumOps(); ++i) Add(block.op(i), {b, i});
    }
  }

  // Passes make ops of other types, most of which are called fused. What else writes a persistable
  // variable is of another program, like the initialisers of a startup program.
  const Writers* Find(const std::string& name, const std::string& type) const {
    const auto same = by_name_and_type_.find(name + '\n' + type);
    if (same != by_name_and_type_.end()) return &same->second;
    if (IsPersistable(name) && !type.starts_with("fused_")) return nullptr;
    const auto any = by_name_.find(name);
    return any == by_name_.end() ? nullptr : &any->second;
  }
  bool IsPersistable(const std::string& name) const {
    const VarDesc* var = root_.FindVar(name);
    return var && var->persistable();
  }
  bool WritesTemporaries() const { return writes_temporaries_; }
  bool HasSite(const std::string& site) const { return sites_.count(site) > 0; }

 private:
  void Add(const OpDesc& op, const Place& place) {
    const std::string site = SiteOf(op.creation_site());
    sites_.insert(site);
    op.ForEachOutput([&](const std::string& name) {
      by_name_[name].emplace(place, site);
      by_name_and_type_[name + '\n' + op.type()].emplace(place, site);
      writes_temporaries_ |= !IsPersistable(name);
    });
  }

  const BlockDesc& root_;
  std::unordered_map<std::string, Writers> by_name_, by_name_and_type_;
  std::set<std::string> sites_;
  bool writes_temporaries_ = false;
};

struct Span {
  double thread = 0, begin = 0, duration = 0;  // in microseconds
  bool is_op = false;
  double program = 0;  // of a run, and of the ops in it: the compiled program's number
  const Writers* writers = nullptr;  // of what an op writes, if the program has any
  bool writes_temporary = false;
  TracedPlace at = {};
};

// What a span of an op or of a run says; without duration for another event.
Span SpanOf(const Json& event, const WriterIndex& index) {
  if (!event.is_object() || TextOf(event, "ph") != "X") return {};
  const std::string category = TextOf(event, "cat");
  if (category != "op" && category != "run") return {};
  Span span{NumberOf(event, "tid"), NumberOf(event, "ts"), NumberOf(event, "dur")};
  span.is_op = category == "op";
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object()) return span;
  if (!span.is_op) {
    span.program = NumberOf(*args, "program");
    return span;
  }
  const std::string output = TextOf(*args, "output");
  span.writers = index.Find(output, TextOf(event, "name"));
  span.writes_temporary = !output.empty() && !index.IsPersistable(output);
  span.at = PlaceFrom(TextOf(*args, "place"));
  return span;
}

// What a trace tells of the ops of one compiled program.
class TracedProgram {
 public:
  explicit TracedProgram(const WriterIndex& index) : index_(&index) {}

  void Note(const Span& span) {
    writes_temporaries_ |= span.writes_temporary;
    if (span.writers && span.at.place != kNoPlace)
      traced_[span.writers].emplace(span.at.place, span.at.site);
  }
  void Resolve() {
    for (const auto& [writers, traced] : traced_) Resolve(*writers, traced, &own_[writers]);
  }
  // A startup program writes what is persistable and no more, other programs do not.
  bool IsAlike() const { return writes_temporaries_ == index_->WritesTemporaries(); }
  // The program's op that an op of the compiled one stands for.
  Place OpOf(const Span& span) const {
    if (!span.writers) return kNoPlace;
    if (span.writers->size() == 1) return span.writers->begin()->first;
    const auto places = own_.find(span.writers);
    if (places == own_.end()) return kNoPlace;
    const auto found = places->second.find(span.at.place);
    return found == places->second.end() ? kNoPlace : found->second;
  }

 private:
  using PlaceMap = std::map<Place, Place>;

  // By the sites; what these do not tell of (a pass that fuses ops keeps the site of one of them),
  // by the order.
  void Resolve(const Writers& own, const Writers& traced, PlaceMap* map) const {
    std::map<std::string, std::vector<Place>> own_at, traced_at;
    for (const auto& [place, site] : own) own_at[site].push_back(place);
    for (const auto& [place, site] : traced) traced_at[site].push_back(place);
    std::vector<Place> own_left, traced_left;
    bool have_sites = true;  // the ops that are left
    for (const auto& [place, site] : own) {
      if (!site.empty() && traced_at.count(site)) continue;
      own_left.push_back(place);
      have_sites &= !site.empty();
    }
    for (const auto& [place, site] : traced) {
      if (!site.empty() && own_at.count(site)) continue;
      const bool foreign = have_sites && !site.empty() && !index_->HasSite(site);
      if (!foreign) traced_left.push_back(place);
    }
    for (const auto& [site, places] : own_at) {
      const auto same = traced_at.find(site);
      if (!site.empty() && same != traced_at.end()) PairInOrder(same->second, places, map);
    }
    PairInOrder(traced_left, own_left, map);
  }
  // Passes change the numbers of ops and may remove some, but keep the order of those that write a
  // variable: where both have as many, they are the same.
  static void PairInOrder(const std::vector<Place>& traced, const std::vector<Place>& own,
                          PlaceMap* map) {
    if (traced.size() != own.size()) return;
    for (size_t i = 0; i < traced.size(); ++i) map->emplace(traced[i], own[i]);
  }

  const WriterIndex* index_;
  bool writes_temporaries_ = false;
  std::map<const Writers*, Writers> traced_;
  std::map<const Writers*, PlaceMap> own_;
};

// Takes the time of what runs inside of an op from it, and gives each op the number of its run.
void NestSpans(std::vector<Span>* spans) {
  std::stable_sort(spans->begin(), spans->end(), [](const Span& a, const Span& b) {
    return std::tie(a.thread, a.begin, b.duration) < std::tie(b.thread, b.begin, a.duration);
  });
  // Whole nanoseconds: of sums of the file's microseconds the last digits are rounded.
  const auto nanoseconds = [](double microseconds) { return std::round(1e3 * microseconds); };
  std::vector<std::pair<Span*, double>> open;  // around the span, with their ends
  double unknown = 0;
  for (Span& span : *spans) {
    const double begin = nanoseconds(span.begin);
    while (!open.empty() &&
           (open.back().first->thread != span.thread || open.back().second <= begin))
      open.pop_back();
    open.emplace_back(&span, begin + nanoseconds(span.duration));
    if (!span.is_op) {
      // What does not say its program may be of any.
      if (span.program == 0) span.program = --unknown;
    } else if (open.size() > 1) {
      Span& outer = *open[open.size() - 2].first;
      outer.duration = std::max(0.0, outer.duration - span.duration);
      span.program = outer.program;
    }
  }
}

TraceTimes SumByOp(const std::vector<Span>& spans, const WriterIndex& index) {
  std::map<double, TracedProgram> programs;
  for (const Span& span : spans) {
    if (span.is_op) programs.try_emplace(span.program, index).first->second.Note(span);
  }
  bool any_alike = false;
  for (auto& [number, program] : programs) {
    program.Resolve();
    any_alike |= program.IsAlike();
  }
  std::map<Place, TracedOp> ops;
  TraceTimes times;
  for (const Span& span : spans) {
    if (!span.is_op) continue;
    const double seconds = 1e-6 * span.duration;
    times.seconds += seconds;
    const TracedProgram& program = programs.at(span.program);
    const Place place = program.IsAlike() || !any_alike ? program.OpOf(span) : kNoPlace;
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

}  // namespace

TraceTimes ReadTraceTimes(const std::string& text, const std::string& source,
                          const ProgramDesc& program) {
  const Json trace = Json::parse(text, nullptr, false);
  if (trace.is_discarded()) ThrowNoTrace(source, "it is not JSON");
  const Json* events = trace.is_array() ? &trace : nullptr;
  if (trace.is_object() && trace.contains("traceEvents")) events = &trace["traceEvents"];
  if (!events || !events->is_array()) ThrowNoTrace(source, "it has no list of traceEvents");
  const WriterIndex index(program);
  std::vector<Span> spans;
  bool any = false;
  for (const Json& event : *events) {
    Span span = SpanOf(event, index);
    if (span.duration <= 0) continue;
    any |= span.is_op;
    spans.push_back(std::move(span));
  }
  if (!any) ThrowNoTrace(source, "no event is the span of an op");
  NestSpans(&spans);
  return SumByOp(spans, index);
}

}  // namespace coracle
