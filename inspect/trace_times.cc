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

namespace coracle::inline internal {
namespace {

using Json = nlohmann::json;

[[noreturn]] void ThrowNoTrace(const std::string& source, const std::string& why) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{} is not a trace of ops: {}; `coracle run --trace=FILE` writes one",
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

// Removes directories, because the text may have been read from another directory.
std::string SiteOf(const std::string& creation_site) {
  return creation_site.substr(creation_site.rfind('/') + 1);
}

// The ops of the traced program whose work a span's op does, and where they were made.
struct TracedPlace {
  std::vector<Place> ops = {};
  std::string site = {};  // "net.pbtxt:3:9", or ""

  // The last of them. Passes put an op that they make of several there. (Where several compute the
  // same, passes keep the first one.)
  Place place() const { return ops.empty() ? kNoPlace : ops.back(); }
};

// `args` has "ops": [[0, 7], [0, 9]] and "place": "ops 7 and 9 of block 0, from dir/net.pbtxt:3:9".
// Reads only the end of `place`.
TracedPlace PlaceFrom(const Json& args) {
  static const std::string kFrom = ", from ";
  TracedPlace found;
  const std::string text = TextOf(args, "place");
  const size_t from = text.find(kFrom);
  if (from != std::string::npos) found.site = SiteOf(text.substr(from + kFrom.size()));
  const auto ops = args.find("ops");
  if (ops == args.end() || !ops->is_array()) return found;
  for (const Json& op : *ops) {
    if (!op.is_array() || op.size() != 2 || !op[0].is_number_unsigned() ||
        !op[1].is_number_unsigned() || op[0].get<uint64_t>() > INT32_MAX)
      return {{}, found.site};
    found.ops.emplace_back(op[0].get<int>(), op[1].get<size_t>());
  }
  return found;
}

// The program's ops that write a variable, each with the place in the text where it was made.
using Writers = std::map<Place, std::string>;

// The shares of a span's time that ops of the program get.
using Shares = std::vector<std::pair<Place, double>>;

// Finds the program's ops by their outputs.
class WriterIndex {
 public:
  explicit WriterIndex(const ProgramDesc& program) : program_(program), root_(program.Root()) {
    for (int b = 0; b < program.NumBlocks(); ++b) {
      const BlockDesc& block = program.Block(b);
      for (size_t i = 0; i < block.NumOps(); ++i) Add(block.op(i), {b, i});
    }
  }

  // The ops that write `name`, preferably of that type. Passes create ops of other types, most of
  // which are called fused. Other ops that write a persistable variable belong to another program,
  // such as the initialisers of a startup program.
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

  // `place`: an op of the program; `traced`: the ops of the traced one that were run as one. If
  // they are ops of one type in this program too, such as merged updates, each gets the time of the
  // elements that it writes. Otherwise `place` gets all.
  Shares SharesOf(const Place& place, const std::vector<Place>& traced) const {
    const Shares whole = {{place, 1.0}};
    if (std::find(traced.begin(), traced.end(), place) == traced.end()) return whole;
    const std::string& type = OpAt(place)->type();
    Shares shares;
    double all = 0;
    bool known = true;
    for (const Place& at : traced) {
      const OpDesc* op = OpAt(at);
      if (!op || op->type() != type) return whole;
      shares.emplace_back(at, ElementsWrittenBy(*op));
      all += shares.back().second;
      known &= shares.back().second > 0;
    }
    for (auto& [at, share] : shares)
      share = known ? share / all : 1 / static_cast<double>(shares.size());
    return shares;
  }

 private:
  const OpDesc* OpAt(const Place& place) const {
    if (place.first >= program_.NumBlocks()) return nullptr;
    const BlockDesc& block = program_.Block(place.first);
    return place.second < block.NumOps() ? &block.op(place.second) : nullptr;
  }
  // Returns 0 if a shape is unknown.
  static double ElementsWrittenBy(const OpDesc& op) {
    double elements = 0;
    bool known = true;
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = op.block()->FindVarRecursive(name);
      known &= var && var->shape().IsKnown() && !var->shape().HasTooManyElements();
      if (known) elements += static_cast<double>(var->shape().numel());
    });
    return known ? elements : 0;
  }
  void Add(const OpDesc& op, const Place& place) {
    const std::string site = SiteOf(op.creation_site());
    sites_.insert(site);
    op.ForEachOutput([&](const std::string& name) {
      by_name_[name].emplace(place, site);
      by_name_and_type_[name + '\n' + op.type()].emplace(place, site);
      writes_temporaries_ |= !IsPersistable(name);
    });
  }

  const ProgramDesc& program_;
  const BlockDesc& root_;
  std::unordered_map<std::string, Writers> by_name_, by_name_and_type_;
  std::set<std::string> sites_;
  bool writes_temporaries_ = false;
};

struct Span {
  double thread = 0, begin = 0, duration = 0;  // in microseconds
  bool is_op = false;
  double program = 0;  // number of the compiled program: of a run, and of its ops
  // The ops that write the span's output; nullptr if the program has none.
  const Writers* writers = nullptr;
  bool writes_temporary = false;
  TracedPlace at = {};
};

// Reads the span of an op or of a run. For other events, returns a span without duration.
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
  span.at = PlaceFrom(*args);
  return span;
}

// The traced ops of one compiled program.
class TracedProgram {
 public:
  explicit TracedProgram(const WriterIndex& index) : index_(&index) {}

  void Note(const Span& span) {
    writes_temporaries_ |= span.writes_temporary;
    if (span.writers && !span.at.ops.empty())
      traced_[span.writers].emplace(span.at.place(), span.at.site);
  }
  void Resolve() {
    for (const auto& [writers, traced] : traced_) Resolve(*writers, traced, &own_[writers]);
  }
  // Whether both programs write temporaries, or neither: a startup program writes only
  // persistable variables.
  bool IsAlike() const { return writes_temporaries_ == index_->WritesTemporaries(); }
  // The program's op that writes the output of an op of the compiled program.
  Place OpOf(const Span& span) const {
    if (!span.writers) return kNoPlace;
    if (span.writers->size() == 1) return span.writers->begin()->first;
    const auto places = own_.find(span.writers);
    if (places == own_.end()) return kNoPlace;
    const auto found = places->second.find(span.at.place());
    return found == places->second.end() ? kNoPlace : found->second;
  }

 private:
  using PlaceMap = std::map<Place, Place>;

  // Pairs ops by their sites, or by their order if the sites are not sufficient: a pass that fuses
  // ops keeps the site of one of them.
  void Resolve(const Writers& own, const Writers& traced, PlaceMap* map) const {
    std::map<std::string, std::vector<Place>> own_at, traced_at;
    for (const auto& [place, site] : own) own_at[site].push_back(place);
    for (const auto& [place, site] : traced) traced_at[site].push_back(place);
    std::vector<Place> own_left, traced_left;
    bool have_sites = true;  // whether all unpaired ops have sites
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
  // Passes change the positions of ops and may remove some, but keep the order of the ops that
  // write a variable: if both programs have the same number, they correspond.
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

// Subtracts from each op the time of the ops inside it, and gives it the number of its run.
void NestSpans(std::vector<Span>* spans) {
  std::stable_sort(spans->begin(), spans->end(), [](const Span& a, const Span& b) {
    return std::tie(a.thread, a.begin, b.duration) < std::tie(b.thread, b.begin, a.duration);
  });
  // Rounds to nanoseconds, because sums of the file's microseconds differ in the last digits.
  const auto nanoseconds = [](double microseconds) { return std::round(1e3 * microseconds); };
  std::vector<std::pair<Span*, double>> open;  // spans around the current one, with their ends
  double unknown = 0;
  for (Span& span : *spans) {
    const double begin = nanoseconds(span.begin);
    while (!open.empty() &&
           (open.back().first->thread != span.thread || open.back().second <= begin))
      open.pop_back();
    open.emplace_back(&span, begin + nanoseconds(span.duration));
    if (!span.is_op) {
      // A run that does not name its program gets its own number.
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
    for (const auto& [at, share] : index.SharesOf(place, span.at.ops)) {
      TracedOp& traced = ops[at];
      traced = {at.first, at.second, traced.seconds + share * seconds, traced.runs + 1};
    }
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

}  // namespace coracle::inline internal
