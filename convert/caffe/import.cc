#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/import.h>
#include <coracle/convert/for_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace coracle::caffe {
namespace {

constexpr uint64_t kMaxText = uint64_t{1} << 26;

NetInState InPhase(const Net& net, bool train, const ImportOptions& options) {
  NetInState state{&net, net.state};
  state.state.set_phase(train ? proto::caffe::TRAIN : proto::caffe::TEST);
  for (const std::string& stage : options.stages) state.state.add_stage(stage);
  return state;
}

// `all` has the layers of every state.
WrittenNet WriteState(const NetInState& state, const std::vector<Layer>& all, bool trained,
                      const ImportOptions& options) {
  WriterOptions writer;
  writer.shapes = options.shapes;
  writer.test = state.state.phase() == proto::caffe::TEST;
  writer.trained = trained;
  return NetWriter(state.Layers(), all, writer).Write();
}

// Appends a rule to "layer { relu { ... } }".
std::string WithRule(const std::string& entry, const std::string& rule) {
  std::string text = entry.substr(0, entry.size() - 2);  // without " }"
  const size_t line = text.rfind('\n');
  const size_t width = line == std::string::npos ? text.size() : text.size() - line - 1;
  return text + (width + rule.size() + 3 > 100 ? "\n        " : " ") + rule + " }";
}

// An entry, and the states that contain it: 0 is training, the others are tests.
struct SharedEntry {
  std::string text;
  std::set<size_t> states;
};

// Merges the entries of one more state, keeping the order of each state. Shared entries are the
// longest common subsequence.
void AddState(const std::vector<std::string>& entries, size_t state,
              std::vector<SharedEntry>* shared) {
  std::vector<SharedEntry> merged;
  const std::vector<SharedEntry>& before = *shared;
  size_t i = 0;
  const auto add_both = [&](size_t a) {
    merged.push_back(before[a]);
    merged.back().states.insert(state);
  };
  while (i < before.size() && i < entries.size() && before[i].text == entries[i]) add_both(i++);
  const size_t n = before.size() - i, m = entries.size() - i;
  constexpr size_t kMost = size_t{1} << 24;  // largest size of the table
  const bool shares = n == 0 || m <= kMost / n;
  std::vector<uint32_t> common(shares ? (n + 1) * (m + 1) : 1, 0);
  const auto at = [&](size_t a, size_t b) -> uint32_t& { return common[a * (m + 1) + b]; };
  const auto same = [&](size_t a, size_t b) { return before[i + a].text == entries[i + b]; };
  for (size_t a = n; shares && a-- > 0;)
    for (size_t b = m; b-- > 0;)
      at(a, b) = same(a, b) ? at(a + 1, b + 1) + 1 : std::max(at(a + 1, b), at(a, b + 1));
  for (size_t a = 0, b = 0; a < n || b < m;) {
    if (shares && a < n && b < m && same(a, b)) {
      add_both(i + a++);
      ++b;
    } else if (b == m || (a < n && (!shares || at(a + 1, b) >= at(a, b + 1)))) {
      merged.push_back(before[i + a++]);
    } else {
      merged.push_back({entries[i + b++], {state}});
    }
  }
  *shared = std::move(merged);
}

// "" for an entry in every state.
std::string RuleFor(const std::set<size_t>& states, const std::vector<NetInState>& tests) {
  const bool train = states.count(0) > 0, all = states.size() == tests.size() + (train ? 1 : 0);
  if (train && all) return "";
  std::string rule = train ? "include_if { phase: TRAIN }" : "";
  if (all) return "include_if { phase: TEST }";
  for (const size_t state : states) {
    if (state == 0) continue;
    rule += fmt::format("{}include_if {{ phase: TEST stage: {} }}", rule.empty() ? "" : " ",
                        Quoted(tests[state - 1].stage));
  }
  return rule;
}

std::string Merged(const std::vector<const std::vector<std::string>*>& states,
                   const std::vector<NetInState>& tests) {
  std::vector<SharedEntry> shared;
  for (size_t i = 0; i < states.size(); ++i) AddState(*states[i], i, &shared);
  std::string text;
  for (const SharedEntry& entry : shared) {
    const std::string rule = RuleFor(entry.states, tests);
    text += (rule.empty() ? entry.text : WithRule(entry.text, rule)) + "\n";
  }
  return text;
}

// Whether the net of that state has a layer that needs no other one.
bool HasInput(const NetInState& state) {
  const std::vector<Layer> layers = state.Layers();
  return std::any_of(layers.begin(), layers.end(), [](const Layer& layer) {
    return layer.def.bottom_size() == 0 && layer.def.top_size() > 0;
  });
}

bool HasLoss(const Net& net) {
  return std::any_of(net.layers.begin(), net.layers.end(), [](const Layer& layer) {
    return HasLossWeight(layer) || layer.def.type().ends_with("Loss");
  });
}

// Takes dims of images from the data itself, if it exists.
void FindShapes(const NetInState& state, ImportOptions* options) {
  const bool train = state.state.phase() == proto::caffe::TRAIN;
  for (const Layer& layer : state.Layers()) {
    const auto& transform = layer.def.transform_param();
    const bool resized = transform.resize_param_size() > 0 || transform.crop_h() > 0 ||
                         transform.crop_w() > 0 || !layer.unknown.empty();
    if (layer.def.type() != "Data" || layer.def.top_size() == 0 || resized) continue;
    if (options->shapes.count(layer.def.top(0)) > 0) continue;
    const JobData data =
        FindData(layer, train, {state.net->source, options->data_dir, options->data});
    if (!data.dims.empty()) options->shapes[layer.def.top(0)] = data.dims;
  }
}

void AddOnce(const std::vector<std::string>& from, std::vector<std::string>* to) {
  std::set<std::string> there(to->begin(), to->end());
  for (const std::string& text : from)
    if (there.insert(text).second) to->push_back(text);
}

}  // namespace

ImportedNet ImportStates(const NetInState& train, const std::vector<NetInState>& tests,
                         const ImportOptions& given) {
  return ForModel(train.net->source, [&] {
    ImportedNet imported;
    ImportOptions options = given;
    FindShapes(train, &options);
    for (const NetInState& test : tests) FindShapes(test, &options);
    const Net& net = *train.net;
    const bool trained = HasLoss(net);
    std::vector<Layer> all = net.layers;
    for (const NetInState& test : tests)
      if (test.net != &net) all.insert(all.end(), test.net->layers.begin(), test.net->layers.end());
    imported.train = WriteState(train, all, trained, options);
    imported.loss = imported.train.objective;
    std::vector<WrittenNet> written;
    for (const NetInState& test : tests) written.push_back(WriteState(test, all, trained, options));
    std::vector<const std::vector<std::string>*> data = {&imported.train.data},
                                                 entries = {&imported.train.entries};
    AddOnce(imported.train.notes, &imported.notes);
    for (const WrittenNet& test : written) {
      data.push_back(&test.data);
      entries.push_back(&test.entries);
      AddOnce(test.notes, &imported.notes);
    }
    const auto is_empty = [](const std::vector<std::string>* list) { return list->empty(); };
    if (std::all_of(entries.begin(), entries.end(), is_empty))
      ThrowInvalid(net.source + ": the net has no layers that compute anything");
    if (!net.name.empty()) imported.text = "name: " + Quoted(net.name) + "\n";
    imported.text += Merged(data, tests) + Merged(entries, tests);
    imported.test = std::move(written[0]);
    imported.further_tests.assign(std::make_move_iterator(written.begin() + 1),
                                  std::make_move_iterator(written.end()));
    return imported;
  });
}

// A text for one phase has layers that feed the net in that phase alone.
ImportedNet ImportNet(const Net& net, const ImportOptions& options) {
  return ForModel(net.source, [&] {
    NetInState train = InPhase(net, true, options), test = InPhase(net, false, options);
    const bool trains = HasInput(train), tests = HasInput(test);
    if (tests && !trains) train = test;
    if (trains && !tests) test = train;
    return ImportStates(train, {test}, options);
  });
}

ImportedNet ImportNetFile(const std::string& path, const ImportOptions& options) {
  return ForModel(path,
                  [&] { return ImportNet(ParseNet(ReadFile(path, kMaxText), path), options); });
}

bool IsSolverFile(const std::string& path) {
  return ForModel(path, [&] { return LooksLikeSolver(ReadFile(path, kMaxText)); });
}

}  // namespace coracle::caffe
