#include <coracle/convert/caffe/upgrade.h>
#include <coracle/convert/narrow.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace coracle::caffe {
namespace {

using proto::caffe::LayerParameter;
using proto::caffe::NetParameter;
using proto::caffe::NetStateRule;
using proto::caffe::ParamSpec;
using proto::caffe::V0LayerParameter;
using proto::caffe::V1LayerParameter;

// The types of 2014 with their current names.
constexpr std::pair<V1LayerParameter::LayerType, const char*> kTypes[] = {
    {V1LayerParameter::ABSVAL, "AbsVal"},
    {V1LayerParameter::ACCURACY, "Accuracy"},
    {V1LayerParameter::ARGMAX, "ArgMax"},
    {V1LayerParameter::BNLL, "BNLL"},
    {V1LayerParameter::CONCAT, "Concat"},
    {V1LayerParameter::CONTRASTIVE_LOSS, "ContrastiveLoss"},
    {V1LayerParameter::CONVOLUTION, "Convolution"},
    {V1LayerParameter::DATA, "Data"},
    {V1LayerParameter::DECONVOLUTION, "Deconvolution"},
    {V1LayerParameter::DROPOUT, "Dropout"},
    {V1LayerParameter::DUMMY_DATA, "DummyData"},
    {V1LayerParameter::EUCLIDEAN_LOSS, "EuclideanLoss"},
    {V1LayerParameter::ELTWISE, "Eltwise"},
    {V1LayerParameter::EXP, "Exp"},
    {V1LayerParameter::FLATTEN, "Flatten"},
    {V1LayerParameter::HDF5_DATA, "HDF5Data"},
    {V1LayerParameter::HDF5_OUTPUT, "HDF5Output"},
    {V1LayerParameter::HINGE_LOSS, "HingeLoss"},
    {V1LayerParameter::IM2COL, "Im2col"},
    {V1LayerParameter::IMAGE_DATA, "ImageData"},
    {V1LayerParameter::INFOGAIN_LOSS, "InfogainLoss"},
    {V1LayerParameter::INNER_PRODUCT, "InnerProduct"},
    {V1LayerParameter::LRN, "LRN"},
    {V1LayerParameter::MEMORY_DATA, "MemoryData"},
    {V1LayerParameter::MULTINOMIAL_LOGISTIC_LOSS, "MultinomialLogisticLoss"},
    {V1LayerParameter::MVN, "MVN"},
    {V1LayerParameter::POOLING, "Pooling"},
    {V1LayerParameter::POWER, "Power"},
    {V1LayerParameter::RELU, "ReLU"},
    {V1LayerParameter::SIGMOID, "Sigmoid"},
    {V1LayerParameter::SIGMOID_CROSS_ENTROPY_LOSS, "SigmoidCrossEntropyLoss"},
    {V1LayerParameter::SILENCE, "Silence"},
    {V1LayerParameter::SOFTMAX, "Softmax"},
    {V1LayerParameter::SOFTMAX_LOSS, "SoftmaxWithLoss"},
    {V1LayerParameter::SPLIT, "Split"},
    {V1LayerParameter::SLICE, "Slice"},
    {V1LayerParameter::TANH, "TanH"},
    {V1LayerParameter::WINDOW_DATA, "WindowData"},
    {V1LayerParameter::THRESHOLD, "Threshold"}};

// The types of 2013.
const std::map<std::string, std::string>& OldestTypes() {
  static const std::map<std::string, std::string> types = {
      {"accuracy", "Accuracy"},
      {"bnll", "BNLL"},
      {"concat", "Concat"},
      {"conv", "Convolution"},
      {"data", "Data"},
      {"dropout", "Dropout"},
      {"euclidean_loss", "EuclideanLoss"},
      {"flatten", "Flatten"},
      {"hdf5_data", "HDF5Data"},
      {"hdf5_output", "HDF5Output"},
      {"im2col", "Im2col"},
      {"images", "ImageData"},
      {"infogain_loss", "InfogainLoss"},
      {"innerproduct", "InnerProduct"},
      {"lrn", "LRN"},
      {"multinomial_logistic_loss", "MultinomialLogisticLoss"},
      {"padding", "Padding"},
      {"pool", "Pooling"},
      {"relu", "ReLU"},
      {"sigmoid", "Sigmoid"},
      {"softmax", "Softmax"},
      {"softmax_loss", "SoftmaxWithLoss"},
      {"split", "Split"},
      {"tanh", "TanH"},
      {"window_data", "WindowData"}};
  return types;
}

ParamSpec* ParamAt(LayerParameter* layer, int index) {
  while (layer->param_size() <= index) layer->add_param();
  return layer->mutable_param(index);
}

template <class Rates>
void SetRates(const Rates& lr, const Rates& decay, LayerParameter* layer) {
  for (int i = 0; i < lr.size(); ++i) ParamAt(layer, i)->set_lr_mult(lr.Get(i));
  for (int i = 0; i < decay.size(); ++i) ParamAt(layer, i)->set_decay_mult(decay.Get(i));
}

// Copies the fields with equal name and type in both: all that end in _param.
void CopyParams(const V1LayerParameter& from, LayerParameter* to) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  from.GetReflection()->ListFields(from, &fields);
  for (const auto* field : fields) {
    if (field->is_repeated() || !field->message_type()) continue;
    const auto* target = to->GetDescriptor()->FindFieldByName(field->name());
    if (!target || target->message_type() != field->message_type()) continue;
    to->GetReflection()
        ->MutableMessage(to, target)
        ->CopyFrom(from.GetReflection()->GetMessage(from, field));
  }
}

// Copies the fields of the oldest format, which has a single flat message.
void CopyOldest(const V0LayerParameter& from, const Layer& at, LayerParameter* to) {
  const std::string& type = to->type();
  const auto fill = [&](auto* param) {
    if (from.has_num_output()) param->set_num_output(from.num_output());
    if (from.has_biasterm()) param->set_bias_term(from.biasterm());
    if (from.has_weight_filler()) *param->mutable_weight_filler() = from.weight_filler();
    if (from.has_bias_filler()) *param->mutable_bias_filler() = from.bias_filler();
  };
  if (type == "Convolution" || type == "Im2col") {
    auto* param = to->mutable_convolution_param();
    fill(param);
    if (from.has_pad()) param->add_pad(from.pad());
    if (from.has_kernelsize()) param->add_kernel_size(from.kernelsize());
    if (from.has_stride()) param->add_stride(from.stride());
    if (from.has_group()) param->set_group(from.group());
  } else if (type == "InnerProduct") {
    fill(to->mutable_inner_product_param());
  } else if (type == "Pooling") {
    auto* param = to->mutable_pooling_param();
    param->set_pool(static_cast<proto::caffe::PoolingParameter::PoolMethod>(from.pool()));
    if (from.has_pad()) param->set_pad(from.pad());
    if (from.has_kernelsize()) param->set_kernel_size(from.kernelsize());
    if (from.has_stride()) param->set_stride(from.stride());
  } else if (type == "Dropout") {
    to->mutable_dropout_param()->set_dropout_ratio(from.dropout_ratio());
  } else if (type == "LRN") {
    auto* param = to->mutable_lrn_param();
    param->set_local_size(from.local_size());
    param->set_alpha(from.alpha());
    param->set_beta(from.beta());
    param->set_k(from.k());
  } else if (type == "Concat") {
    to->mutable_concat_param()->set_axis(ToInt32(from.concat_dim(), "concat_dim"));
  } else if (type == "Data" || type == "ImageData" || type == "HDF5Data" || type == "WindowData") {
    auto* transform = to->mutable_transform_param();
    if (from.has_scale()) transform->set_scale(from.scale());
    if (from.has_meanfile()) transform->set_mean_file(from.meanfile());
    if (from.has_cropsize()) transform->set_crop_size(from.cropsize());
    if (from.has_mirror()) transform->set_mirror(from.mirror());
    const auto source = [&](auto* param) {
      param->set_source(from.source());
      param->set_batch_size(from.batchsize());
    };
    if (type == "Data") {
      source(to->mutable_data_param());
      to->mutable_data_param()->set_rand_skip(from.rand_skip());
    }
    if (type == "HDF5Data") source(to->mutable_hdf5_data_param());
    if (type == "WindowData") source(to->mutable_window_data_param());
    if (type == "ImageData") {
      auto* param = to->mutable_image_data_param();
      source(param);
      param->set_shuffle(from.shuffle_images());
      param->set_rand_skip(from.rand_skip());
      if (from.has_new_height()) param->set_new_height(static_cast<uint32_t>(from.new_height()));
      if (from.has_new_width()) param->set_new_width(static_cast<uint32_t>(from.new_width()));
    }
  } else if (type == "InfogainLoss") {
    to->mutable_infogain_loss_param()->set_source(from.source());
  } else if (from.has_new_num() || from.has_new_channels()) {
    at.Fail("new_num and the like belong to data layers");
  }
}

void UpgradeOldest(const V0LayerParameter& from, Layer* layer) {
  LayerParameter* to = &layer->def;
  to->set_name(from.name());
  const auto found = OldestTypes().find(from.type());
  if (found == OldestTypes().end()) {
    std::vector<std::string> known;
    for (const auto& type : OldestTypes()) known.push_back(type.first);
    to->set_type(from.type());
    layer->Fail(fmt::format("no such type of layer{}; known in the oldest format: {}",
                            DidYouMean(from.type(), known), Join(known, ", ")));
  }
  to->set_type(found->second);
  SetRates(from.blobs_lr(), from.weight_decay(), to);
  CopyOldest(from, *layer, to);
}

void UpgradeOld(const V1LayerParameter& from, Layer* layer) {
  LayerParameter* to = &layer->def;
  *to->mutable_bottom() = from.bottom();
  *to->mutable_top() = from.top();
  *to->mutable_include() = from.include();
  *to->mutable_exclude() = from.exclude();
  *to->mutable_loss_weight() = from.loss_weight();
  *to->mutable_blobs() = from.has_layer() ? from.layer().blobs() : from.blobs();
  if (from.has_layer()) return UpgradeOldest(from.layer(), layer);
  to->set_name(from.name());
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const auto& entry) { return entry.first == from.type(); });
  if (!from.has_type() || type == std::end(kTypes)) layer->Fail("the layer has no type");
  to->set_type(type->second);
  for (int i = 0; i < from.param_size(); ++i) ParamAt(to, i)->set_name(from.param(i));
  SetRates(from.blobs_lr(), from.weight_decay(), to);
  CopyParams(from, to);
}

// Fields of transform_param that once belonged to the layer's own message.
template <class Param>
void MoveTransform(Param* param, LayerParameter* layer) {
  auto* to = layer->mutable_transform_param();
  if (param->has_scale()) to->set_scale(param->scale());
  if (param->has_mean_file()) to->set_mean_file(param->mean_file());
  if (param->has_crop_size()) to->set_crop_size(param->crop_size());
  if (param->has_mirror()) to->set_mirror(param->mirror());
}

// Whether a layer's rules allow it in a net of this phase, with some level and stages.
bool MayBeIn(const LayerParameter& def, proto::caffe::Phase phase) {
  const auto& include = def.include();
  const auto& exclude = def.exclude();
  const bool included = std::any_of(include.begin(), include.end(), [&](const NetStateRule& rule) {
    return !rule.has_phase() || rule.phase() == phase;
  });
  const bool excluded = std::any_of(exclude.begin(), exclude.end(), [&](const NetStateRule& rule) {
    return (!rule.has_phase() || rule.phase() == phase) && !rule.has_min_level() &&
           !rule.has_max_level() && rule.stage().empty() && rule.not_stage().empty();
  });
  return (included || include.empty()) && !excluded;
}

// Adds tops to losses without one, as Caffe does (Layer::AutoTopBlobs). They are named like the
// layer. Unnamed layers get different names, but those of TRAIN share them with those of TEST.
class LossTops {
 public:
  explicit LossTops(const std::vector<Layer>& layers) {
    for (const Layer& layer : layers) {
      taken_.insert(layer.def.top().begin(), layer.def.top().end());
      names_.insert(layer.def.name());
    }
  }

  void AddTo(LayerParameter* def) {
    if (!def->type().ends_with("Loss") || def->top_size() > 0) return;
    const bool named = !def->name().empty();
    std::string top = named ? def->name() : Unnamed(*def);
    while (taken_.count(top) > 0 || (!named && names_.count(top) > 0)) top += "_";
    def->add_top(top);
  }

 private:
  std::string Unnamed(const LayerParameter& def) {
    int number = 0;
    for (int* count : CountsOf(def)) number = std::max(number, ++*count);
    for (int* count : CountsOf(def)) *count = number;
    return number < 2 ? "loss" : fmt::format("loss_{}", number);
  }
  std::vector<int*> CountsOf(const LayerParameter& def) {
    std::vector<int*> counts;
    for (const auto phase : {proto::caffe::TRAIN, proto::caffe::TEST})
      if (MayBeIn(def, phase)) counts.push_back(&unnamed_[phase]);
    return counts;
  }

  std::set<std::string> taken_, names_;  // tops that the text names, and layers
  std::array<int, 2> unnamed_ = {};      // how many unnamed losses the net of each phase has
};

void UpgradeFields(Layer* layer) {
  LayerParameter* def = &layer->def;
  if (def->type() == "Data") MoveTransform(def->mutable_data_param(), def);
  if (def->type() == "ImageData") MoveTransform(def->mutable_image_data_param(), def);
  if (def->type() == "WindowData") MoveTransform(def->mutable_window_data_param(), def);
  if (def->concat_param().has_concat_dim() && !def->concat_param().has_axis()) {
    def->mutable_concat_param()->set_axis(ToInt32(def->concat_param().concat_dim(), "concat_dim"));
  }
  if (def->slice_param().has_slice_dim() && !def->slice_param().has_axis())
    def->mutable_slice_param()->set_axis(ToInt32(def->slice_param().slice_dim(), "slice_dim"));
}

// `input`, with input_shape or four input_dim, as a layer of the type Input.
void AddInputLayer(const NetParameter& message, const std::string& source, Net* net) {
  if (message.input_size() == 0) return;
  const bool dims = message.input_dim_size() > 0;
  if (dims ? message.input_dim_size() != 4 * message.input_size()
           : message.input_shape_size() != message.input_size()) {
    ThrowInvalid(fmt::format(
        "{}: {} inputs need as many input_shape or four input_dim each, got {} and {}", source,
        message.input_size(), message.input_shape_size(), message.input_dim_size()));
  }
  Layer layer;
  layer.where = source;
  layer.def.set_name("input");
  layer.def.set_type("Input");
  for (int i = 0; i < message.input_size(); ++i) {
    layer.def.add_top(message.input(i));
    auto* shape = layer.def.mutable_input_param()->add_shape();
    if (!dims) *shape = message.input_shape(i);
    for (int k = 0; dims && k < 4; ++k) shape->add_dim(message.input_dim(4 * i + k));
  }
  net->layers.insert(net->layers.begin(), std::move(layer));
}

// Padding used to be a separate layer: the readers of its result now pad themselves.
void MovePaddings(const NetParameter& message, std::vector<Layer>* layers) {
  // By top: its bottom and the pad.
  std::map<std::string, std::pair<std::string, uint32_t>> padded;
  for (int i = 0; i < message.layers_size(); ++i) {
    Layer& layer = (*layers)[static_cast<size_t>(i)];
    LayerParameter* def = &layer.def;
    if (def->type() == "Padding") {
      if (def->bottom_size() != 1 || def->top_size() != 1) {
        layer.Fail(fmt::format("a padding layer must have one bottom and one top, got {} and {}",
                               def->bottom_size(), def->top_size()));
      }
      padded[def->top(0)] = {def->bottom(0), message.layers(i).layer().pad()};
      continue;
    }
    for (int k = 0; k < def->bottom_size(); ++k) {
      const auto found = padded.find(def->bottom(k));
      if (found == padded.end()) continue;
      if (def->type() == "Convolution") {
        def->mutable_convolution_param()->clear_pad();
        def->mutable_convolution_param()->add_pad(found->second.second);
      } else if (def->type() == "Pooling") {
        def->mutable_pooling_param()->set_pad(found->second.second);
      } else {
        layer.Fail(fmt::format("a padding layer must feed a Convolution or a Pooling, got {}",
                               Quote(def->type())));
      }
      def->set_bottom(k, found->second.first);
    }
  }
  std::erase_if(*layers, [](const Layer& layer) { return layer.def.type() == "Padding"; });
}

}  // namespace

Net UpgradeLayers(NetParameter message, std::vector<Layer> at, const std::string& source) {
  if (message.layer_size() > 0 && message.layers_size() > 0) {
    ThrowInvalid(
        fmt::format("{}: it has {} layers of the old form (layers {{ ... }}) and {} of the new one "
                    "(layer {{ ... "
                    "}}), which exclude each other; write all in one form",
                    source, message.layers_size(), message.layer_size()));
  }
  Net net;
  net.name = message.name();
  net.source = source;
  net.state = message.state();
  net.force_backward = message.force_backward();
  net.debug_info = message.debug_info();
  for (int i = 0; i < message.layers_size(); ++i)
    UpgradeOld(message.layers(i), &at[static_cast<size_t>(i)]);
  for (int i = 0; i < message.layer_size(); ++i)
    at[static_cast<size_t>(i)].def = std::move(*message.mutable_layer(i));
  MovePaddings(message, &at);
  net.layers = std::move(at);
  LossTops loss_tops(net.layers);
  for (Layer& layer : net.layers) {
    UpgradeFields(&layer);
    loss_tops.AddTo(&layer.def);
  }
  AddInputLayer(message, source, &net);
  return net;
}

std::string SolverTypeName(proto::caffe::SolverParameter::SolverType type) {
  constexpr std::array kNames = {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace coracle::caffe
