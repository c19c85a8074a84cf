#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace coracle::caffe {
namespace {

const LayerRow* RowOf(const std::string& type) {
  for (const LayerRow& row : AllLayers())
    if (type == row.type) return &row;
  return nullptr;
}

// Layers that only evaluate results.
bool OnlyEvaluates(const std::string& type) {
  return type == "Silence" || type == "DetectionEvaluate";
}

template <class Values, class Value>
bool Has(const Values& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void NoteUse(std::vector<size_t>* layers, size_t layer) {
  if (layers->empty() || layers->back() != layer) layers->push_back(layer);
}

// Whether the layer reads the blob as classes.
bool ReadsClasses(const Layer& layer, const std::string& blob) {
  const std::string& type = layer.def.type();
  if (OnlyEvaluates(type)) return true;
  const bool loss = type == "SoftmaxWithLoss" || type == "SoftmaxWithLossOHEM" ||
                    type == "Accuracy" || type == "HingeLoss" ||
                    type == "MultinomialLogisticLoss" || type == "InfogainLoss";
  return loss && layer.def.bottom_size() > 1 && layer.def.bottom(1) == blob &&
         layer.def.bottom(0) != blob;
}

bool IsLoss(const Layer& layer) {
  return layer.def.type().ends_with("Loss") || layer.def.type().ends_with("LossOHEM");
}

// Layers whose behaviour depends on the phase.
bool DependsOnPhase(const std::string& type) {
  return type == "Dropout" || type == "BatchNorm" || type == "Data" || type == "ImageData" ||
         type == "MemoryData" || type == "AnnotatedData" || type == "BN" ||
         type == "CuDNNBatchNorm";
}

// Merges the settings of another layer for a shared parameter: it may add to them, but
// not contradict.
void Merge(const Layer& layer, const proto::caffe::ParamSpec& spec, proto::caffe::ParamSpec* all) {
  const auto contradict = [&](const char* field, float here, float before) {
    layer.Fail({"param"},
               fmt::format("the shared parameter {} has the {} {}, but an earlier layer says {}",
                           Quote(spec.name()), field, here, before));
  };
  if (spec.has_lr_mult() && all->has_lr_mult() && spec.lr_mult() != all->lr_mult())
    contradict("lr_mult", spec.lr_mult(), all->lr_mult());
  if (spec.has_decay_mult() && all->has_decay_mult() && spec.decay_mult() != all->decay_mult())
    contradict("decay_mult", spec.decay_mult(), all->decay_mult());
  all->MergeFrom(spec);
}

}  // namespace

const LayerTable& AllLayers() {
  static const LayerTable rows = [] {
    LayerTable all;
    for (const LayerTable& table : {DataLayers(), VisionLayers(), ImageLayers(), ParameterLayers(),
                                    NormLayers(), ElementLayers(), ShapeLayers(), DetectionLayers(),
                                    LossLayers(), MultiBoxLayers(), RefusedLayers()})
      all.insert(all.end(), table.begin(), table.end());
    std::sort(all.begin(), all.end(), [](const LayerRow& a, const LayerRow& b) {
      return std::string_view(a.type) < b.type;
    });
    return all;
  }();
  return rows;
}

bool IsConverted(const std::string& type) {
  const LayerRow* row = RowOf(type);
  return type.empty() || (row && row->write);
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
  // From all states: a parameter has the same name in each.
  for (const std::vector<Layer>* some : {&layers_, &all_})
    for (const Layer& layer : *some)
      for (const std::string& top : layer.def.top()) taken_.insert(top);
  // Inputs replace a layer that is not converted, so nothing reads its bottoms.
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool reads = IsConverted(layers_[i].def.type());
    for (const std::string& bottom : layers_[i].def.bottom())
      if (reads) NoteUse(&uses_[bottom].read, i);
    for (const std::string& top : layers_[i].def.top()) NoteUse(&uses_[top].written, i);
  }
  for (const Layer& layer : all_) {
    if (!IsConverted(layer.def.type())) continue;
    for (const std::string& bottom : layer.def.bottom())
      only_classes_.try_emplace(bottom, true).first->second &= ReadsClasses(layer, bottom);
  }
}

const NetWriter::BlobUses& NetWriter::UsesOf(const std::string& blob) const {
  static const BlobUses none;
  const auto found = uses_.find(blob);
  return found == uses_.end() ? none : found->second;
}

bool HasLossWeight(const Layer& layer) {
  const auto& weights = layer.def.loss_weight();
  return std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 0; });
}

bool MayFuse(const Layer& first, const Layer& second) {
  const auto& down = second.def.propagate_down();
  return !HasLossWeight(first) && !HasLossWeight(second) &&
         std::find(down.begin(), down.end(), false) == down.end();
}

WrittenNet NetWriter::Write() {
  for (const Layer& layer : layers_) CheckLayer(layer);
  WriteLayers();
  WriteOutputs();
  WriteObjective();
  return std::move(net_);
}

void NetWriter::WriteLayers() {
  CollectShared();
  for (at_ = 0; at_ < layers_.size(); ++at_) {
    if (written_[at_]) continue;
    const Layer& layer = layers_[at_];
    try {
      WriteLayer(layer);
    } catch (const Error& error) {
      // Every error names the layer; most do so already.
      if (error.message().find(": layer ") != std::string::npos) throw;
      layer.Fail(error.message());
    }
  }
}

// Checks the fields of all types of layers.
void NetWriter::CheckLayer(const Layer& layer) const {
  const auto& def = layer.def;
  const auto once_for_each = [&](const char* field, int count, int blobs, const char* what) {
    if (count == 0 || count == blobs) return;
    layer.Fail({field}, fmt::format("{} is given once for each {} or not at all, got {} for {}",
                                    field, what, count, blobs));
  };
  once_for_each("loss_weight", def.loss_weight_size(), def.top_size(), "top");
  once_for_each("propagate_down", def.propagate_down_size(), def.bottom_size(), "bottom");
  if (def.blobs_size() > 0)
    layer.Fail({"blobs"}, "values of parameters are read from a .caffemodel, not from the text");
  const bool test = def.phase() == proto::caffe::TEST;
  if (def.has_phase() && test != options_.test && DependsOnPhase(def.type())) {
    layer.Fail({"phase"},
               fmt::format("a layer that behaves as in {} in a net of the phase {} is not "
                           "converted; include {{ phase: {} }} has it in that phase alone",
                           test ? "TEST" : "TRAIN", options_.test ? "TEST" : "TRAIN",
                           test ? "TEST" : "TRAIN"));
  }
}

// Like Net::AppendParam of Caffe: a shared parameter gets the rates given by any of its layers.
void NetWriter::CollectShared() {
  for (const Layer& layer : layers_) {
    for (const auto& spec : layer.def.param())
      if (!spec.name().empty()) Merge(layer, spec, &shared_[spec.name()].spec);
  }
}

// Refuses a layer whose type is not converted.
void NetWriter::Refuse(const Layer& layer) const {
  const std::string& type = layer.def.type();
  if (type.empty()) layer.Fail("the layer has no type");
  const LayerRow* row = RowOf(type);
  std::string what = row ? fmt::format("not converted: {}", row->becomes) : "";
  if (!row) {
    std::vector<std::string> known;
    for (const LayerRow& one : AllLayers())
      if (one.write) known.push_back(one.type);
    what = "no such type of layer" + DidYouMean(type, known);
  }
  layer.Fail({"type"}, OrInputs(layer, what));
}

void NetWriter::WriteLayer(const Layer& layer) {
  const LayerRow* row = RowOf(layer.def.type());
  if (!pending_.empty()) ResolveGuesses(layer);
  if (!row || !row->write) {
    if (!FeedResults(layer)) Refuse(layer);
    return;
  }
  StopGradients(layer);
  row->write(layer, *this);
  stopped_.clear();
  AddWeightedTops(layer);
}

// No gradient passes to a bottom with propagate_down: false.
void NetWriter::StopGradients(const Layer& layer) {
  for (int i = 0; i < layer.def.propagate_down_size(); ++i) {
    if (layer.def.propagate_down(i)) continue;
    Blob blob = In(layer, i);
    if (fed_.count(blob.var) > 0) continue;  // fed variables have no gradient
    const std::string var = Temp(layer, "stopped");
    Add(Entry("assign").Text("input", blob.var).Bool("stop_gradient", true).Text("output", var));
    blob.var = var;
    stopped_[i] = blob;
  }
}

// Adds loss_weight * sum(top) to the objective for every top with a loss_weight, like
// Layer::SetLossWeights of Caffe.
void NetWriter::AddWeightedTops(const Layer& layer) {
  // AddLoss handles the top of a loss.
  const int first = IsLoss(layer) ? 1 : 0;
  for (int i = first; i < layer.def.loss_weight_size(); ++i) {
    const float weight = layer.def.loss_weight(i);
    if (weight == 0) continue;
    const auto blob = blobs_.find(layer.def.top(i));
    if (blob == blobs_.end() || blob->second.is_label || layer.def.type() == "Accuracy")
      layer.Fail({"loss_weight"}, "its top has no gradient and cannot be a loss");
    LossTerm term{blob->second.var, weight};
    if (NumelOf(blob->second.dims) != 1) {
      term.var = Free(blob->second.var + ".sum");
      Add(Entry("reduce_sum").Text("input", blob->second.var).Text("output", term.var));
    } else if (layer.def.bottom_size() > 0) {
      net_.results.push_back({In(layer).var});
    }
    net_.losses.push_back(term);
  }
}

void NetWriter::WriteOutputs() {
  // Also without outputs that are listed already.
  std::set<std::string> none(net_.metrics.begin(), net_.metrics.end());
  for (const LossTerm& term : net_.losses) none.insert(term.var);
  for (const Layer& layer : layers_) {
    for (const std::string& top : layer.def.top()) {
      const auto blob = blobs_.find(top);
      const BlobUses& uses = UsesOf(top);
      if (!uses.read.empty() && !Has(layer.def.bottom(), top)) continue;
      if (blob == blobs_.end() || fed_.count(blob->second.var) > 0) continue;
      // A blob written in place is an output if no layer reads it after its last writer.
      if (!uses.read.empty() && uses.read.back() > uses.written.back()) continue;
      const std::string& var = blob->second.var;
      if (!none.insert(var).second) continue;
      net_.outputs.push_back(var);
      if (NumelOf(blob->second.dims) == 1) net_.numbers.push_back(var);
    }
  }
}

// The objective. A sum of several losses, or a weighted one, is computed at the end of the net.
void NetWriter::WriteObjective() {
  std::vector<std::string> terms;
  for (const LossTerm& loss : net_.losses) {
    terms.push_back(loss.var);
    if (loss.weight == 1) continue;
    terms.back() = Free(loss.var + ".weighted");
    Add(Entry("scale")
            .Text("input", loss.var)
            .Float("scale", loss.weight)
            .Text("output", terms.back()));
  }
  if (terms.empty()) return;
  net_.objective = terms.size() == 1 ? terms.front() : Free("total_loss");
  if (terms.size() > 1) AddOp(Entry("sum").Texts("X", terms).Text("Out", net_.objective));
}

const Blob& NetWriter::In(const Layer& layer, int bottom) const {
  if (bottom >= layer.def.bottom_size()) layer.Fail(fmt::format("it needs a bottom {}", bottom));
  const auto stopped = stopped_.find(bottom);
  if (stopped != stopped_.end()) return stopped->second;
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
  layer.Fail(fmt::format("the dims of its bottom {} must be known, but they are {}",
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
  if (fed_.count(blob) > 0) return false;  // the fed variable has this name
  const std::vector<size_t>& written = UsesOf(blob).written;
  return written.empty() || written.back() <= index;
}

// Checks that the model text can hold the sizes, so that products of a few of them fit into
// 64 bits.
void NetWriter::CheckDims(const Layer& layer, const Dims& dims) const {
  for (const int64_t dim : dims)
    if (dim > INT32_MAX)
      layer.Fail(fmt::format("a blob of the dims {} is too large", ToText(dims)));
}

void NetWriter::Feed(const Layer& layer, int top, const Dims& dims, bool is_label) {
  const std::string& name = layer.def.top(top);
  if (blobs_.count(name) > 0)
    layer.Fail({"top"}, fmt::format("the blob {} already exists", Quote(name)));
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
    layer.Fail({"top"}, fmt::format("the blob {} already exists", Quote(name)));
  CheckDims(layer, dims);
  std::string var = name;
  if (!IsFinal(static_cast<size_t>(&layer - layers_.data()), name))
    var = Free(name + "." + layer.def.name());
  blobs_[name] = {var, dims, is_label};
  return var;
}

std::string NetWriter::Temp(const Layer& layer, const std::string& suffix) {
  const std::string base = layer.def.name().empty() ? layer.def.type() : layer.def.name();
  return Free(base + "." + suffix);
}

// Appends underscores for the first few; numbers keep thousands of equal names short.
std::string NetWriter::Free(const std::string& name) {
  constexpr int64_t kUnderscores = 3;
  if (taken_.insert(name).second) return name;
  int64_t& tried = tried_[name];
  while (true) {
    const std::string next = ++tried <= kUnderscores
                                 ? name + std::string(static_cast<size_t>(tried), '_')
                                 : fmt::format("{}_{}", name, tried);
    if (taken_.insert(next).second) return next;
  }
}

std::string NetWriter::Step(const Layer& layer, Entry entry, const std::string& suffix) {
  const std::string var = Temp(layer, suffix);
  Add(entry.Text("output", var));
  return var;
}

const Layer* NetWriter::OnlyReader(const std::string& blob) const {
  const BlobUses& uses = UsesOf(blob);
  const auto first_after = [&](const std::vector<size_t>& layers) {
    auto next = std::upper_bound(layers.begin(), layers.end(), at_);
    while (next != layers.end() && written_[*next]) ++next;
    return next;
  };
  const auto reader = first_after(uses.read);
  if (reader == uses.read.end()) return nullptr;
  // From that layer on it has another value.
  const auto writer = first_after(uses.written);
  const size_t end = writer == uses.written.end() ? layers_.size() : *writer;
  if (*reader > end) return nullptr;
  auto second = reader + 1;
  while (second != uses.read.end() && written_[*second]) ++second;
  return second != uses.read.end() && *second <= end ? nullptr : &layers_[*reader];
}

void NetWriter::MarkWritten(const Layer& layer) {
  written_[static_cast<size_t>(&layer - layers_.data())] = true;
}

// The op of an activation that the only reader of `blob` applies in place; "" if there is none.
// *end becomes that reader.
std::string NetWriter::FusedActivation(const Layer& layer, const std::string& blob,
                                       const Layer** end) {
  *end = &layer;
  const Layer* next = OnlyReader(blob);
  if (!next || next->def.bottom_size() != 1 || next->def.top_size() != 1 ||
      next->def.top(0) != blob || !MayFuse(layer, *next))
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
  at_ = static_cast<size_t>(&last - layers_.data());  // readers are searched after it
  const Layer* end = &last;
  const std::string act = FusedActivation(last, last.def.top(0), &end);
  at_ = from;
  if (end != &last) MarkWritten(*end);
  if (!act.empty()) entry.Text("act", act);
  // For an in-place layer, Out does not detect an earlier blob of that name.
  const std::string& top = end->def.top(0);
  if (&last == &layer && end != &last && !Has(layer.def.bottom(), top) && blobs_.count(top) > 0)
    layer.Fail({"top"}, fmt::format("the blob {} already exists", Quote(top)));
  entry.Text("output", Out(*end, 0, dims));
  Add(entry);
}

NetWriter::SharedParam* NetWriter::Shared(const Layer& layer, int blob) {
  if (blob >= layer.def.param_size()) return nullptr;
  const std::string& name = layer.def.param(blob).name();
  return name.empty() ? nullptr : &shared_.at(name);
}

NetWriter::Claimed NetWriter::Claim(const Layer& layer, const ParamWish& wish) {
  SharedParam* shared = Shared(layer, wish.blob);
  if (shared && shared->index >= 0) {
    ParamSource& owner = net_.params[static_cast<size_t>(shared->index)];
    const auto fail = [&](const std::string& what) {
      layer.Fail({"param"}, fmt::format("it shares {} with layer {}, {}",
                                        Quote(shared->spec.name()), Quote(owner.layer), what));
    };
    if (owner.dims != wish.dims) {
      fail(fmt::format("where it has the dims {}, and here {}", ToText(owner.dims),
                       ToText(wish.dims)));
    }
    if (owner.layout != wish.layout)
      fail("which has it transposed; only an InnerProduct can share that");
    owner.sharers.push_back(layer.def.name());
    return {owner.var, false};
  }
  if (!shared && !own_.insert(wish.var).second)
    layer.Fail("a second layer of this name has parameters");
  if (shared) shared->index = static_cast<int>(net_.params.size());
  const std::string var = Free(shared ? shared->spec.name() : wish.var);
  net_.params.push_back({var, layer.def.name(), wish.blob, wish.dims, wish.layout, layer.where});
  return {var, true};
}

std::string NetWriter::ClaimTransposed(const Layer& layer, const ParamWish& wish) {
  const SharedParam* shared = Shared(layer, wish.blob);
  if (!shared || shared->index < 0) return "";
  const auto& layout = net_.params[static_cast<size_t>(shared->index)].layout;
  if (layout == wish.layout || layout == ParamSource::Layout::kScaledSum) return "";
  ParamWish as_it_is = wish;
  as_it_is.layout = layout;
  return Claim(layer, as_it_is).var;
}

std::string NetWriter::ParamText(const Layer& layer, const ParamWish& wish,
                                 const Claimed& claimed) {
  Entry text("");
  proto::caffe::ParamSpec spec;
  if (wish.blob < layer.def.param_size()) spec = layer.def.param(wish.blob);
  if (const SharedParam* shared = Shared(layer, wish.blob)) spec = shared->spec;
  if (claimed.var != wish.var) text.Text("name", claimed.var);
  if (!claimed.first) return text.Body();
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
  ParamWish random = wish;
  random.model_default = std::nanf("");
  const Claimed claimed = Claim(layer, random);
  if (!claimed.first) return claimed.var;
  Entry entry("parameter");
  entry.Field("shape", ListText(wish.dims.empty() ? Dims{1} : wish.dims));
  entry.Message("param", ParamText(layer, random, claimed)).Text("output", claimed.var);
  Add(entry);
  return claimed.var;
}

void NetWriter::AddLoss(const Layer& layer, const std::string& var) {
  const float weight = layer.def.loss_weight_size() > 0 ? layer.def.loss_weight(0) : 1;
  if (weight != 0)
    net_.losses.push_back({var, weight});
  else
    net_.metrics.push_back(var);  // it is shown nevertheless
}

bool NetWriter::IsClassLabel(const std::string& blob) const {
  const auto found = only_classes_.find(blob);
  return found != only_classes_.end() && found->second;
}

bool NetWriter::IsRead(const std::string& blob) const {
  const std::vector<size_t>& read = UsesOf(blob).read;
  return std::any_of(read.begin(), read.end(),
                     [&](size_t i) { return !OnlyEvaluates(layers_[i].def.type()); });
}

bool NetWriter::IsReadByAll(const std::string& blob, const char* type) const {
  const std::vector<size_t>& read = UsesOf(blob).read;
  return !read.empty() && std::all_of(read.begin(), read.end(),
                                      [&](size_t i) { return layers_[i].def.type() == type; });
}

}  // namespace coracle::caffe
