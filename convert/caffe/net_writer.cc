#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace coracle::caffe {
namespace {

const LayerRow& RowOf(const Layer& layer) {
  const std::string& type = layer.def.type();
  if (type.empty()) layer.Fail("the layer has no type");
  std::vector<std::string> known;
  for (const LayerRow& row : AllLayers()) {
    if (type == row.type && row.write) return row;
    if (type == row.type) layer.Fail({"type"}, fmt::format("not converted: {}", row.becomes));
    if (row.write) known.push_back(row.type);
  }
  layer.Fail({"type"}, fmt::format("no such type of layer{}", DidYouMean(type, known)));
}

template <class Values, class Value>
bool Has(const Values& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Whether the layer reads the blob as classes.
bool ReadsClasses(const Layer& layer, const std::string& blob) {
  const std::string& type = layer.def.type();
  if (type == "Silence") return true;
  const bool loss = type == "SoftmaxWithLoss" || type == "Accuracy" || type == "HingeLoss" ||
                    type == "MultinomialLogisticLoss" || type == "InfogainLoss";
  return loss && layer.def.bottom_size() > 1 && layer.def.bottom(1) == blob &&
         layer.def.bottom(0) != blob;
}

}  // namespace

LayerTable RefusedLayers() {
  return {
      {"Filter", nullptr,
       "the number of its rows depends on values; leave rows out of the data instead"},
      {"HDF5Output", nullptr,
       "results are not written by a layer here; coracle run --out=FILE.npz does it"},
      {"InfogainLoss", nullptr,
       "its matrix is in a file; only SoftmaxWithLoss and the like are converted"},
      {"LSTM", nullptr,
       "recurrent layers have no counterpart with Caffe's continuation markers; write the model "
       "text's lstm instead"},
      {"LSTMUnit", nullptr, "it is a part of LSTM, which has no counterpart here"},
      {"Python", nullptr, "its code is Python; write the layer as model text"},
      {"RNN", nullptr,
       "recurrent layers have no counterpart with Caffe's continuation markers; write the model "
       "text's simple_rnn instead"},
      {"Recurrent", nullptr, "it is the base of LSTM and RNN, which have no counterpart here"},
      {"WindowData", nullptr,
       "windows of pictures are no data source here; cut them out into an .npz"}};
}

const LayerTable& AllLayers() {
  static const LayerTable rows = [] {
    LayerTable all;
    for (const LayerTable& table : {DataLayers(), VisionLayers(), ParameterLayers(),
                                    ElementLayers(), ShapeLayers(), LossLayers(), RefusedLayers()})
      all.insert(all.end(), table.begin(), table.end());
    std::sort(all.begin(), all.end(), [](const LayerRow& a, const LayerRow& b) {
      return std::string_view(a.type) < b.type;
    });
    return all;
  }();
  return rows;
}

int64_t NumelOf(const Dims& dims, size_t begin, size_t end) {
  __int128 numel = 1;
  for (size_t i = begin; i < std::min(end, dims.size()); ++i) {
    if (dims[i] < 0) return -1;
    numel = std::min<__int128>(numel * dims[i], INT64_MAX);
  }
  return static_cast<int64_t>(numel);
}

std::string ToText(const Dims& dims) { return ListText(dims); }

int64_t AxisOf(const Layer& layer, int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) layer.Fail(fmt::format("axis {} of a blob with {} dims", axis, rank));
  return axis < 0 ? axis + n : axis;
}

NetWriter::NetWriter(const std::vector<Layer>& layers, const std::vector<Layer>& all,
                     WriterOptions options)
    : layers_(layers), all_(all), options_(std::move(options)), written_(layers.size(), false) {
  for (const Layer& layer : layers_)
    for (const std::string& top : layer.def.top()) taken_.insert(top);
}

WrittenNet NetWriter::Write() {
  for (at_ = 0; at_ < layers_.size(); ++at_) {
    if (written_[at_]) continue;
    const Layer& layer = layers_[at_];
    try {
      RowOf(layer).write(layer, *this);
    } catch (const Error& error) {
      // Every error names the layer; most do already.
      if (error.message().find(": layer ") != std::string::npos) throw;
      layer.Fail(error.message());
    }
  }
  WriteOutputs();
  return std::move(net_);
}

void NetWriter::WriteOutputs() {
  std::set<std::string> read;
  for (const Layer& layer : layers_)
    read.insert(layer.def.bottom().begin(), layer.def.bottom().end());
  for (const Layer& layer : layers_) {
    for (const std::string& top : layer.def.top()) {
      const auto blob = blobs_.find(top);
      if (read.count(top) > 0 && !Has(layer.def.bottom(), top)) continue;
      if (blob == blobs_.end() || Has(net_.inputs, blob->second.var)) continue;
      const std::string& var = blob->second.var;
      const bool loss = std::any_of(net_.losses.begin(), net_.losses.end(),
                                    [&](const LossTerm& term) { return term.var == var; });
      if (loss || Has(net_.metrics, var) || Has(net_.outputs, var)) continue;
      // In place, it is an output where nothing reads it behind the last layer that writes it.
      bool later = false;
      for (size_t i = layers_.size(); i-- > 0 && !Has(layers_[i].def.top(), top);)
        later = later || Has(layers_[i].def.bottom(), top);
      if (!later) net_.outputs.push_back(var);
    }
  }
}

const Blob& NetWriter::In(const Layer& layer, int bottom) const {
  if (bottom >= layer.def.bottom_size()) layer.Fail(fmt::format("it needs a bottom {}", bottom));
  const std::string& name = layer.def.bottom(bottom);
  const auto found = blobs_.find(name);
  if (found != blobs_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& blob : blobs_) known.push_back(blob.first);
  layer.Fail({"bottom"}, fmt::format("unknown bottom {}{}", Quote(name), DidYouMean(name, known)));
}

const Blob& NetWriter::KnownIn(const Layer& layer, int bottom) const {
  const Blob& blob = In(layer, bottom);
  if (NumelOf(blob.dims, 1) >= 0) return blob;
  layer.Fail(fmt::format("the dims of its bottom {} must be known, and they are {}",
                         Quote(layer.def.bottom(bottom)), ToText(blob.dims)));
}

void NetWriter::RequireBottoms(const Layer& layer, int least, int most) const {
  const int count = layer.def.bottom_size();
  if (count >= least && count <= most) return;
  const std::string wanted = least == most       ? std::to_string(least)
                             : most == INT32_MAX ? fmt::format("{} or more", least)
                                                 : fmt::format("{} to {}", least, most);
  layer.Fail({"bottom"}, fmt::format("it takes {} bottoms, got {}", wanted, count));
}

bool NetWriter::IsFinal(size_t index, const std::string& blob) const {
  if (fed_.count(blob) > 0) return false;  // the fed variable has the name
  for (size_t i = index + 1; i < layers_.size(); ++i)
    if (Has(layers_[i].def.top(), blob)) return false;
  return true;
}

// Sizes that the model text can hold; products of a few of them stay within 64 bits.
void NetWriter::CheckDims(const Layer& layer, const Dims& dims) const {
  for (const int64_t dim : dims)
    if (dim > INT32_MAX)
      layer.Fail(fmt::format("a blob of the dims {} is too large", ToText(dims)));
}

void NetWriter::Feed(const Layer& layer, int top, const Dims& dims, bool is_label) {
  const std::string& name = layer.def.top(top);
  if (blobs_.count(name) > 0)
    layer.Fail({"top"}, fmt::format("the blob {} is there already", Quote(name)));
  CheckDims(layer, dims);
  fed_.insert(name);
  blobs_[name] = {name, dims, is_label};
  Dims shape = dims;
  if (is_label && shape.size() == 1) shape.push_back(1);
  if (!shape.empty()) shape.front() = -1;
  Entry entry("");
  entry.Text("name", name).Field("shape", ListText(shape));
  if (is_label) entry.Field("dtype", "INT64");
  net_.data.push_back(entry.Layer("data"));
  net_.inputs.push_back(name);
  if (is_label) net_.labels.push_back(name);
}

std::string NetWriter::Out(const Layer& layer, int top, const Dims& dims, bool is_label) {
  if (top >= layer.def.top_size()) layer.Fail({"top"}, fmt::format("it needs a top {}", top));
  const std::string& name = layer.def.top(top);
  if (blobs_.count(name) > 0 && !Has(layer.def.bottom(), name))
    layer.Fail({"top"}, fmt::format("the blob {} is there already", Quote(name)));
  CheckDims(layer, dims);
  std::string var = name;
  if (!IsFinal(static_cast<size_t>(&layer - layers_.data()), name)) {
    var = name + "." + layer.def.name();
    while (!taken_.insert(var).second) var += "_";
  }
  blobs_[name] = {var, dims, is_label};
  return var;
}

std::string NetWriter::Temp(const Layer& layer, const std::string& suffix) {
  const std::string base = layer.def.name().empty() ? layer.def.type() : layer.def.name();
  std::string var = base + "." + suffix;
  while (!taken_.insert(var).second) var += "_";
  return var;
}

std::string NetWriter::Step(const Layer& layer, Entry entry, const std::string& suffix) {
  const std::string var = Temp(layer, suffix);
  Add(entry.Text("output", var));
  return var;
}

const Layer* NetWriter::OnlyReader(const std::string& blob) const {
  const Layer* reader = nullptr;
  for (size_t i = at_ + 1; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (written_[i]) continue;
    if (Has(layer.def.bottom(), blob)) {
      if (reader) return nullptr;
      reader = &layer;
    }
    if (Has(layer.def.top(), blob)) break;  // another value from here on
  }
  return reader;
}

void NetWriter::MarkWritten(const Layer& layer) {
  written_[static_cast<size_t>(&layer - layers_.data())] = true;
}

// The op of an activation that is applied in place to `blob` by its only reader; "" when there is
// none. *end becomes that reader.
std::string NetWriter::FusedActivation(const Layer& layer, const std::string& blob,
                                       const Layer** end) {
  *end = &layer;
  const Layer* next = OnlyReader(blob);
  if (!next || next->def.bottom_size() != 1 || next->def.top_size() != 1 ||
      next->def.top(0) != blob)
    return "";
  const std::string& type = next->def.type();
  const bool relu = type == "ReLU" && next->def.relu_param().negative_slope() == 0;
  const std::string act = relu                ? "relu"
                          : type == "Sigmoid" ? "sigmoid"
                          : type == "TanH"    ? "tanh"
                                              : "";
  if (!act.empty()) *end = next;
  return act;
}

void NetWriter::AddResultOf(const Layer& layer, const Layer& last, Entry entry, const Dims& dims) {
  if (last.def.top_size() != 1)
    last.Fail({"top"}, fmt::format("it takes one top, got {}", last.def.top_size()));
  const size_t from = at_;
  at_ = static_cast<size_t>(&last - layers_.data());  // readers are looked for behind it
  const Layer* end = &last;
  const std::string act = FusedActivation(last, last.def.top(0), &end);
  at_ = from;
  if (end != &last) MarkWritten(*end);
  if (!act.empty()) entry.Text("act", act);
  // In place Out sees nothing wrong in an earlier blob of that name.
  const std::string& top = end->def.top(0);
  if (&last == &layer && end != &last && !Has(layer.def.bottom(), top) && blobs_.count(top) > 0)
    layer.Fail({"top"}, fmt::format("the blob {} is there already", Quote(top)));
  entry.Text("output", Out(*end, 0, dims));
  Add(entry);
}

std::string NetWriter::Param(const Layer& layer, const ParamWish& wish) {
  ParamSource source{wish.var, layer.def.name(), wish.blob, wish.dims, wish.layout, layer.where};
  Entry text("");
  proto::caffe::ParamSpec spec;
  if (wish.blob < layer.def.param_size()) spec = layer.def.param(wish.blob);
  if (spec.has_name() && !spec.name().empty()) {
    source.var = spec.name();
    text.Text("name", spec.name());
  }
  const bool known = Has(net_.params, source);
  if (known && !spec.has_name())
    layer.Fail(fmt::format("a second layer of this name has parameters"));
  if (!known) net_.params.push_back(source);
  if (known) return text.Body();
  if (wish.filler) {
    const bool is_default =
        wish.filler->type() == "constant" && wish.filler->value() == wish.model_default;
    if (!is_default) text.Message("initializer", InitializerText(layer, *wish.filler, wish.dims));
  } else if (options_.trained || wish.constant) {
    const float value = wish.constant.value_or(0);
    proto::caffe::FillerParameter constant;
    constant.set_value(value);
    if (value != wish.model_default)
      text.Message("initializer", InitializerText(layer, constant, wish.dims));
  }
  if (spec.lr_mult() == 0)
    text.Bool("trainable", false);
  else if (spec.lr_mult() != 1)
    text.Float("learning_rate", spec.lr_mult());
  if (spec.decay_mult() != 1 && spec.lr_mult() != 0)
    text.Message("regularizer", fmt::format("multiplied {{ by: {} }}", Number(spec.decay_mult())));
  return text.Body();
}

std::string NetWriter::Parameter(const Layer& layer, const ParamWish& wish) {
  const size_t before = net_.params.size();
  ParamWish random = wish;
  random.model_default = std::nanf("");
  const std::string text = Param(layer, random);
  std::string var = wish.var;
  if (wish.blob < layer.def.param_size() && !layer.def.param(wish.blob).name().empty())
    var = layer.def.param(wish.blob).name();
  if (net_.params.size() == before) return var;
  Entry entry("parameter");
  entry.Field("shape", ListText(wish.dims.empty() ? Dims{1} : wish.dims)).Message("param", text);
  Add(entry.Text("output", var));
  return var;
}

void NetWriter::AddLoss(const Layer& layer, int top, const std::string& var, float default_weight) {
  const float weight =
      top < layer.def.loss_weight_size() ? layer.def.loss_weight(top) : default_weight;
  if (weight != 0) net_.losses.push_back({var, weight});
}

bool NetWriter::IsClassLabel(const std::string& blob) const {
  bool any = false;
  for (const Layer& layer : all_) {
    if (!Has(layer.def.bottom(), blob)) continue;
    if (!ReadsClasses(layer, blob)) return false;
    any = true;
  }
  return any;
}

bool NetWriter::IsRead(const std::string& blob) const {
  return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    return layer.def.type() != "Silence" && Has(layer.def.bottom(), blob);
  });
}

}  // namespace coracle::caffe
