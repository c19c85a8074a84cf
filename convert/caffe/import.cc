#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coracle::caffe {
namespace {

using proto::caffe::NetState;

constexpr uint64_t kMaxText = uint64_t{1} << 26;

NetState StateOf(const Net& net, bool train, const ImportOptions& options) {
  NetState state = net.state;
  state.set_phase(train ? proto::caffe::TRAIN : proto::caffe::TEST);
  for (const std::string& stage : options.stages) state.add_stage(stage);
  return state;
}

WrittenNet WriteState(const Net& net, bool train, bool trained, const ImportOptions& options) {
  WriterOptions writer;
  writer.shapes = options.shapes;
  writer.test = !train;
  writer.trained = trained;
  WrittenNet written =
      NetWriter(LayersOf(net, StateOf(net, train, options)), net.layers, writer).Write();
  return written;
}

// "layer { relu { ... } }" with a rule at its end.
std::string WithRule(const std::string& entry, const std::string& rule) {
  std::string text = entry.substr(0, entry.size() - 2);  // without " }"
  const size_t line = text.rfind('\n');
  const size_t width = line == std::string::npos ? text.size() : text.size() - line - 1;
  return text + (width + rule.size() + 3 > 100 ? "\n        " : " ") + rule + " }";
}

constexpr char kTrain[] = "include_if { phase: TRAIN }", kTest[] = "include_if { phase: TEST }";

// The entries of both phases in an order that is that of each; those of one phase alone have a
// rule. What they share is their longest common subsequence.
std::vector<std::string> Merge(const std::vector<std::string>& train,
                               const std::vector<std::string>& test) {
  std::vector<std::string> merged;
  size_t i = 0, j = 0;
  while (i < train.size() && i < test.size() && train[i] == test[i]) merged.push_back(train[i++]);
  j = i;
  const size_t n = train.size() - i, m = test.size() - j;
  constexpr size_t kMost = size_t{1} << 24;  // of a table
  const bool shares = n == 0 || m <= kMost / n;
  std::vector<uint32_t> common(shares ? (n + 1) * (m + 1) : 1, 0);
  const auto at = [&](size_t a, size_t b) -> uint32_t& { return common[a * (m + 1) + b]; };
  for (size_t a = n; shares && a-- > 0;) {
    for (size_t b = m; b-- > 0;) {
      at(a, b) =
          train[i + a] == test[j + b] ? at(a + 1, b + 1) + 1 : std::max(at(a + 1, b), at(a, b + 1));
    }
  }
  for (size_t a = 0, b = 0; a < n || b < m;) {
    if (shares && a < n && b < m && train[i + a] == test[j + b]) {
      merged.push_back(train[i + a]);
      ++a, ++b;
    } else if (b == m || (a < n && (!shares || at(a + 1, b) >= at(a, b + 1)))) {
      merged.push_back(WithRule(train[i + a++], kTrain));
    } else {
      merged.push_back(WithRule(test[j + b++], kTest));
    }
  }
  return merged;
}

// What is minimised. A sum of several losses, or a weighted one, is made at the end of the net.
std::string AddObjective(WrittenNet* net) {
  if (net->losses.empty()) return "";
  if (net->losses.size() == 1 && net->losses[0].weight == 1) return net->losses[0].var;
  std::vector<std::string> terms;
  for (const LossTerm& loss : net->losses) {
    if (loss.weight == 1) {
      terms.push_back(loss.var);
      continue;
    }
    terms.push_back(loss.var + ".weighted");
    net->entries.push_back(Entry("scale")
                               .Text("input", loss.var)
                               .Float("scale", loss.weight)
                               .Text("output", terms.back())
                               .Layer());
  }
  if (terms.size() == 1) return terms.front();
  Entry sum("sum");
  net->entries.push_back(sum.Texts("X", terms).Text("Out", "total_loss").Layer("layer { op", "}"));
  return "total_loss";
}

bool HasLoss(const Net& net) {
  return std::any_of(net.layers.begin(), net.layers.end(), [](const Layer& layer) {
    const bool weighted =
        std::any_of(layer.def.loss_weight().begin(), layer.def.loss_weight().end(),
                    [](float weight) { return weight != 0; });
    return weighted || layer.def.type().ends_with("Loss");
  });
}

// Dims of images from the data itself, where it is at hand.
void FindShapes(const Net& net, ImportOptions* options) {
  for (const bool train : {true, false}) {
    for (const Layer& layer : LayersOf(net, StateOf(net, train, *options))) {
      if (layer.def.type() != "Data" || layer.def.top_size() == 0) continue;
      if (options->shapes.count(layer.def.top(0)) > 0) continue;
      const JobData data = FindData(layer, train, {net.source, options->data_dir, options->data});
      if (!data.dims.empty()) options->shapes[layer.def.top(0)] = data.dims;
    }
  }
}

void AddOnce(const std::vector<std::string>& from, std::vector<std::string>* to) {
  for (const std::string& text : from)
    if (std::find(to->begin(), to->end(), text) == to->end()) to->push_back(text);
}

}  // namespace

ImportedNet ImportNet(const Net& net, const ImportOptions& given) {
  ImportedNet imported;
  ImportOptions options = given;
  FindShapes(net, &options);
  const bool trained = HasLoss(net);
  imported.train = WriteState(net, true, trained, options);
  imported.loss = AddObjective(&imported.train);
  imported.test =
      HasRules(net) || trained ? WriteState(net, false, trained, options) : imported.train;
  if (imported.train.entries.empty() && imported.test.entries.empty())
    ThrowInvalid(net.source + ": the net has no layers that compute anything");
  AddObjective(&imported.test);
  AddOnce(imported.train.notes, &imported.notes);
  AddOnce(imported.test.notes, &imported.notes);
  if (!net.name.empty()) imported.text = "name: " + Quoted(net.name) + "\n";
  for (const std::string& entry : Merge(imported.train.data, imported.test.data))
    imported.text += entry + "\n";
  for (const std::string& entry : Merge(imported.train.entries, imported.test.entries))
    imported.text += entry + "\n";
  return imported;
}

ImportedNet ImportNetFile(const std::string& path, const ImportOptions& options) {
  return ImportNet(ParseNet(ReadFile(path, kMaxText), path), options);
}

bool IsSolverFile(const std::string& path) { return LooksLikeSolver(ReadFile(path, kMaxText)); }

}  // namespace coracle::caffe
