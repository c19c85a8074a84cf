// Converts the blobs of a .caffemodel to the parameters of a converted net.

#include <coracle/convert/caffe/import.h>
#include <coracle/convert/for_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace coracle::caffe {
namespace {

// Old files always have four dims, with leading ones.
Dims WithoutLeadingOnes(Dims dims) {
  size_t ones = 0;
  while (ones < dims.size() && dims[ones] == 1) ++ones;
  return Dims(dims.begin() + static_cast<ptrdiff_t>(ones), dims.end());
}

Tensor Transposed(const Tensor& from) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  Tensor to(DType::kFloat32, {columns, rows});
  const float* in = from.data<float>();
  float* out = to.data<float>();
  constexpr int64_t kBlock = 64;  // both sides stay in the cache
  for (int64_t i0 = 0; i0 < rows; i0 += kBlock) {
    for (int64_t j0 = 0; j0 < columns; j0 += kBlock) {
      for (int64_t i = i0; i < std::min(rows, i0 + kBlock); ++i)
        for (int64_t j = j0; j < std::min(columns, j0 + kBlock); ++j)
          out[j * rows + i] = in[i * columns + j];
    }
  }
  return to;
}

// BatchNorm stores sums, and their divisor in the next blob. For 0, Caffe uses zeros.
void Divide(const Tensor& divisor, const ParamSource& param, Tensor* values) {
  if (divisor.numel() != 1)
    ThrowInvalid(fmt::format("layer {}: blob 2 must be one number", Quote(param.layer)));
  const float by = divisor.data<float>()[0];
  for (float& value : values->span<float>()) value = by == 0 ? 0 : value / by;
}

void CheckDims(const std::string& source, const ParamSource& param, const Tensor& blob) {
  const Dims dims = blob.shape().ToVector();
  if (WithoutLeadingOnes(dims) == WithoutLeadingOnes(param.dims)) return;
  // A number for each channel: some layers keep [1, C, 1, 1].
  Dims channels = dims;
  std::erase(channels, 1);
  if (param.dims.size() == 1 && dims.size() == 4 && channels == param.dims) return;
  ThrowInvalid(fmt::format("{}: layer {}, blob {}: its shape is {}, and {} needs {}",
                           PrintableLine(source), Quote(param.layer), param.blob, ToText(dims),
                           param.where, ToText(param.dims)));
}

Tensor ValueOf(const ParamSource& param, const std::string& source, std::vector<Tensor>& blobs) {
  Tensor blob = std::move(blobs[static_cast<size_t>(param.blob)]);
  CheckDims(source, param, blob);
  if (param.layout == ParamSource::Layout::kScaledSum) {
    if (blobs.size() < 3) {
      ThrowInvalid(fmt::format("{}: layer {}: BatchNorm has three blobs, got {}",
                               PrintableLine(source), Quote(param.layer), blobs.size()));
    }
    Divide(blobs[2], param, &blob);
  }
  const Dims own = param.dims.empty() ? Dims{1} : param.dims;
  blob = blob.Reshaped(Shape(own));
  return param.layout == ParamSource::Layout::kTransposed ? Transposed(blob) : blob;
}

}  // namespace

NamedTensors ParameterValues(const std::vector<ParamSource>& params, CaffeWeights& weights,
                             std::vector<std::string>* missing, std::vector<std::string>* notes) {
  return ForModel(weights.source, [&] {
    NamedTensors values;
    std::vector<std::string> used;
    for (const ParamSource& param : params) {
      const auto layer = weights.layers.find(param.layer);
      if (layer == weights.layers.end()) {
        std::vector<std::string> names;
        for (const auto& entry : weights.layers) names.push_back(entry.first);
        missing->push_back(fmt::format("{}{}", param.var, DidYouMean(param.layer, names)));
        continue;
      }
      if (param.blob >= static_cast<int>(layer->second.size())) {
        ThrowInvalid(fmt::format("{}: layer {} has {} blobs, and {} needs blob {}",
                                 PrintableLine(weights.source), Quote(param.layer),
                                 layer->second.size(), param.where, param.blob));
      }
      used.push_back(param.layer);
      used.insert(used.end(), param.sharers.begin(), param.sharers.end());
      values.push_back({param.var, ValueOf(param, weights.source, layer->second)});
    }
    std::vector<std::string> unused;
    for (const auto& entry : weights.layers)
      if (std::find(used.begin(), used.end(), entry.first) == used.end())
        unused.push_back(Quote(entry.first));
    if (!unused.empty()) {
      const size_t shown = std::min<size_t>(unused.size(), 8);
      const std::vector<std::string> first(unused.begin(),
                                           unused.begin() + static_cast<ptrdiff_t>(shown));
      notes->push_back(fmt::format(
          "{}: layers that the net does not have are left out: {}{}", PrintableLine(weights.source),
          Join(first, ", "),
          unused.size() > shown ? fmt::format(" and {} more", unused.size() - shown) : ""));
    }
    return values;
  });
}

NamedTensors StartValues(const ImportedNet& net, const std::vector<std::string>& files,
                         std::vector<std::string>* missing, std::vector<std::string>* notes) {
  const std::string none;
  return ForModel(files.empty() ? none : files[0], [&] {
    std::vector<ParamSource> params = net.train.params;
    std::vector<const WrittenNet*> tests = {&net.test};
    for (const WrittenNet& test : net.further_tests) tests.push_back(&test);
    for (const WrittenNet* test : tests) {
      for (const ParamSource& param : test->params)
        if (std::find(params.begin(), params.end(), param) == params.end()) params.push_back(param);
    }
    std::map<std::string, Tensor> found;
    std::map<std::string, std::string> hints;  // for values that a file lacks
    for (const std::string& file : files) {
      CaffeWeights weights = ReadCaffeModel(file);
      std::vector<std::string> lacking;
      NamedTensors values = ParameterValues(params, weights, &lacking, notes);
      if (values.empty()) {
        ThrowInvalid(fmt::format("{}: none of its layers has the name of one of the net's",
                                 Quote(file, 300)));
      }
      for (auto& [name, value] : values) found[name] = std::move(value);
      for (const std::string& hint : lacking) hints[hint.substr(0, hint.find(';'))] = hint;
    }
    for (const auto& [name, hint] : hints)
      if (found.count(name) == 0) missing->push_back(hint);
    return NamedTensors(found.begin(), found.end());
  });
}

namespace {

// The texts between quotation marks.
std::set<std::string, std::less<>> QuotedIn(std::string_view text) {
  std::set<std::string, std::less<>> all;
  size_t open = text.npos;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      if (open != text.npos) all.emplace(text.substr(open, i + 1 - open));
      open = open == text.npos ? i : text.npos;
    }
  }
  return all;
}

}  // namespace

NetInUse ResultsInUse(const WrittenNet& net, const std::string& text) {
  NetInUse use;
  const std::set<std::string, std::less<>> quoted = QuotedIn(text);
  std::set<std::string> there(net.inputs.begin(), net.inputs.end());
  there.insert(net.outputs.begin(), net.outputs.end());
  for (const LossResult& result : net.results) {
    std::string name = result.var;
    if (result.kind != LossResult::Kind::kSame) {
      name = use.entries.empty() ? "prob" : fmt::format("prob_{}", use.entries.size());
      while (quoted.count(Quoted(name)) > 0) name += "_";
      const bool softmax = result.kind == LossResult::Kind::kSoftmax;
      Entry entry(softmax ? "softmax" : "sigmoid");
      entry.Text("input", result.var);
      if (softmax) entry.Int("axis", result.axis);
      use.entries.push_back(entry.Text("output", name).Layer());
    }
    if (there.insert(name).second) use.outputs.push_back(name);
  }
  return use;
}

std::vector<std::string> NeededInputs(const ProgramDesc& program, std::vector<std::string> inputs,
                                      const std::vector<std::string>& outputs) {
  ProgramDesc pruned = program;
  pruned.Prune(outputs, inputs);
  std::erase_if(
      inputs, [&](const std::string& input) { return pruned.Root().Uses(input).readers.empty(); });
  return inputs;
}

void SaveInferenceNet(const Net& net, const ImportOptions& options, CaffeWeights weights,
                      const std::string& prefix, std::vector<std::string>* notes) {
  return ForModel(net.source, [&] {
    const ImportedNet imported = ImportNet(net, options);
    const WrittenNet& test = imported.test;
    const NetInUse use = ResultsInUse(test, imported.text);
    std::vector<std::string> fetches = test.outputs;
    fetches.insert(fetches.end(), use.outputs.begin(), use.outputs.end());
    if (fetches.empty()) ThrowInvalid(net.source + ": the net has no result to fetch");
    const std::string more = Join(use.entries, "\n");
    ModelState state;
    state.train = false;
    const BuiltModel model =
        ParseModelText(imported.text + more, net.source + " (converted)", ".", DefaultOps(), state);
    std::vector<std::string> missing;
    Scope scope;
    for (auto& [name, value] : ParameterValues(test.params, weights, &missing, notes))
      scope.Set(name, std::move(value));
    if (!missing.empty()) {
      throw Error(
          ErrorCode::kNotFound,
          fmt::format("{}: it has no weights for {}{}", PrintableLine(weights.source),
                      PrintableLine(missing.front()),
                      missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : ""));
    }
    // Statistics of a BatchNorm without Scale have a scale of 1 and a shift of 0.
    for (const std::string& name : PersistableNames(model.main)) {
      if (scope.Find(name)) continue;
      const VarDesc& var = *model.main.Root().FindVar(name);
      const bool scale = name.ends_with(".w_0");
      scope.Set(name, Tensor::Full<float>(var.shape(), scale ? 1.0f : 0.0f));
    }
    std::vector<std::string> feeds;
    for (const std::string& input : test.inputs)
      if (std::find(test.labels.begin(), test.labels.end(), input) == test.labels.end())
        feeds.push_back(input);
    feeds = NeededInputs(model.main, std::move(feeds), fetches);
    SaveInferenceModel(prefix, feeds, fetches, model.main, scope);
  });
}

}  // namespace coracle::caffe
