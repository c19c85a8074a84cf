#include <coracle/layers/control_flow.h>
#include <coracle/layers/internal/layer_def.h>

#include <algorithm>
#include <cctype>
#include <unordered_set>

namespace coracle {
namespace {

using Kind = FieldDef::Kind;
using Result = LayerDef::Result;
using Args = LayerArgs;
using Vars = std::vector<Variable>;

FieldDef Var(std::string name, std::string doc) {
  return {std::move(name), Kind::kVar, AttrType::kString, std::nullopt, true, std::move(doc)};
}
FieldDef VarList(std::string name, std::string doc) {
  return {std::move(name), Kind::kVars, AttrType::kStrings, std::nullopt, true, std::move(doc)};
}
FieldDef Param(std::string name, std::string doc) {
  return {std::move(name), Kind::kParam, AttrType::kString, std::nullopt, false, std::move(doc)};
}
template <class T>
FieldDef Attr(std::string name, T otherwise, std::string doc) {
  return {std::move(name), Kind::kAttr,   AttrTypeOf<T>(), Attribute(std::move(otherwise)),
          false,           std::move(doc)};
}
template <class T>
FieldDef Required(std::string name, std::string doc) {
  return {std::move(name), Kind::kAttr, AttrTypeOf<T>(), std::nullopt, true, std::move(doc)};
}
template <class T>
FieldDef Optional(std::string name, std::string doc) {
  return {std::move(name), Kind::kAttr, AttrTypeOf<T>(), std::nullopt, false, std::move(doc)};
}

using Ints = std::vector<int32_t>;

FieldDef BiasTerm() { return Attr<bool>("bias_term", true, "whether there is a bias"); }

Size2 Pair(const Args& a, const std::string& name) {
  Ints values = a.Get<Ints>(name);
  if (values.size() == 1) return Size2(values[0]);
  if (values.size() == 2) return Size2(values[0], values[1]);
  ThrowInvalid(name + ": one or two numbers (height, width) are wanted, got " +
               std::to_string(values.size()));
}

Padding PaddingOf(const Args& a, const std::string& name) {
  Ints values = a.Get<Ints>(name);
  if (values.size() == 1) values.push_back(values[0]);
  Padding padding(std::move(values));
  padding.algorithm = a.Get<std::string>("padding_algorithm");
  return padding;
}

std::optional<ParamAttr> Bias(const Args& a) {
  if (!a.Get<bool>("bias_term")) return std::nullopt;
  return a.Param("bias");
}

// The options with what every layer has.
template <class Options>
Options With(const Args& a, Options options) {
  options.act = a.output.act;
  options.name = a.output.name;
  options.output = a.output.output;
  options.error_clip = a.output.error_clip;
  options.stop_gradient = a.output.stop_gradient;
  return options;
}

Vars BuildFc(Builder& net, const Args& a) {
  FcOptions o;
  o.size = a.Get<int32_t>("size");
  o.num_flatten_dims = a.Get<int32_t>("num_flatten_dims");
  o.param_attr = a.Param("param");
  o.bias_attr = Bias(a);
  return {net.Fc(a.Vars("input"), With(a, o))};
}

Vars BuildConv2d(Builder& net, const Args& a) {
  Conv2dOptions o;
  o.num_filters = a.Get<int32_t>("num_filters");
  o.filter_size = Pair(a, "filter_size");
  o.stride = Pair(a, "stride");
  o.padding = PaddingOf(a, "padding");
  o.dilation = Pair(a, "dilation");
  o.groups = a.Get<int32_t>("groups");
  o.param_attr = a.Param("param");
  o.bias_attr = Bias(a);
  return {net.Conv2d(a.Var("input"), With(a, o))};
}

Vars BuildPool2d(Builder& net, const Args& a) {
  Pool2dOptions o;
  if (a.Has("pool_size") || !a.Get<bool>("global_pooling")) {
    if (!a.Has("pool_size")) ThrowInvalid("pool2d: pool_size is required unless global_pooling");
    o.pool_size = Pair(a, "pool_size");
  }
  o.pool_type = a.Get<std::string>("pool_type");
  o.pool_stride = Pair(a, "pool_stride");
  o.pool_padding = PaddingOf(a, "pool_padding");
  o.global_pooling = a.Get<bool>("global_pooling");
  o.ceil_mode = a.Get<bool>("ceil_mode");
  o.exclusive = a.Get<bool>("exclusive");
  o.adaptive = a.Get<bool>("adaptive");
  return {net.Pool2d(a.Var("input"), With(a, o))};
}

Vars BuildBatchNorm(Builder& net, const Args& a) {
  BatchNormOptions o;
  o.momentum = a.Get<float>("momentum");
  o.epsilon = a.Get<float>("epsilon");
  o.param_attr = a.Param("param");
  o.bias_attr = a.Param("bias");
  o.moving_mean_name = a.Get<std::string>("moving_mean_name");
  o.moving_variance_name = a.Get<std::string>("moving_variance_name");
  o.data_layout = a.Get<std::string>("data_layout");
  o.use_global_stats = a.Get<bool>("use_global_stats");
  o.is_test = a.Get<bool>("is_test");
  return {net.BatchNorm(a.Var("input"), With(a, o))};
}

Vars BuildLayerNorm(Builder& net, const Args& a) {
  LayerNormOptions o;
  o.scale = a.Get<bool>("scale");
  o.shift = a.Get<bool>("shift");
  o.begin_norm_axis = a.Get<int32_t>("begin_norm_axis");
  o.epsilon = a.Get<float>("epsilon");
  o.param_attr = a.Param("param");
  o.bias_attr = a.Param("bias");
  return {net.LayerNorm(a.Var("input"), With(a, o))};
}

Vars BuildEmbedding(Builder& net, const Args& a) {
  EmbeddingOptions o;
  o.num_embeddings = a.Get<int64_t>("num_embeddings");
  o.embedding_dim = a.Get<int64_t>("embedding_dim");
  if (a.Has("padding_idx")) o.padding_idx = a.Get<int64_t>("padding_idx");
  o.is_sparse = a.Get<bool>("is_sparse");
  o.dtype = static_cast<DType>(a.Get<int32_t>("dtype"));
  o.param_attr = a.Param("param");
  return {net.Embedding(a.Var("input"), With(a, o))};
}

Vars BuildDropout(Builder& net, const Args& a) {
  DropoutOptions o;
  o.dropout_prob = a.Get<float>("dropout_prob");
  o.is_test = a.Get<bool>("is_test");
  if (a.Has("seed")) o.seed = a.Get<int32_t>("seed");
  o.dropout_implementation = a.Get<std::string>("dropout_implementation");
  return {net.Dropout(a.Var("input"), With(a, o))};
}

using RnnMethod = RnnOutput (Builder::*)(const Variable&, const RnnOptions&);

Vars BuildRnn(Builder& net, const Args& a, RnnMethod method) {
  RnnOptions o;
  o.hidden_size = a.Get<int32_t>("hidden_size");
  o.num_layers = a.Get<int32_t>("num_layers");
  o.direction = a.Get<std::string>("direction");
  o.time_major = a.Get<bool>("time_major");
  o.dropout = a.Get<float>("dropout");
  if (a.Has("activation")) o.activation = a.Get<std::string>("activation");
  o.is_test = a.Get<bool>("is_test");
  if (a.vars.count("initial_h")) o.initial_states.push_back(a.Var("initial_h"));
  if (a.vars.count("initial_c")) o.initial_states.push_back(a.Var("initial_c"));
  if (a.vars.count("sequence_length")) o.sequence_length = a.Var("sequence_length");
  o.weight_ih_attr = a.Param("weight_ih");
  o.weight_hh_attr = a.Param("weight_hh");
  o.bias_ih_attr = o.bias_hh_attr = std::nullopt;
  if (a.Get<bool>("bias_term")) {
    o.bias_ih_attr = a.Param("bias_ih");
    o.bias_hh_attr = a.Param("bias_hh");
  }
  o.last_h = a.Get<std::string>("last_h");
  if (a.Has("last_c")) o.last_c = a.Get<std::string>("last_c");
  return {(net.*method)(a.Var("input"), With(a, o)).out};
}

Vars BuildSoftmaxWithCrossEntropy(Builder& net, const Args& a) {
  SoftmaxWithCrossEntropyOptions o;
  o.soft_label = a.Get<bool>("soft_label");
  o.ignore_index = a.Get<int32_t>("ignore_index");
  o.numeric_stable_mode = a.Get<bool>("numeric_stable_mode");
  o.axis = a.Get<int32_t>("axis");
  o.softmax_output = a.Get<std::string>("softmax_output");
  return {net.SoftmaxWithCrossEntropy(a.Var("logits"), a.Var("label"), With(a, o))};
}

Vars BuildSplit(Builder& net, const Args& a) {
  SplitOptions o;
  o.num = a.Get<int32_t>("num");
  o.sections = a.Get<Ints>("sections");
  o.axis = a.Get<int32_t>("axis");
  o.name = a.output.name;
  o.outputs = a.outputs;
  return net.Split(a.Var("input"), o);
}

void AddDenseAndImageLayers(std::vector<LayerDef>& defs) {
  const char* kImage = "tensor [N, C, H, W]";
  defs.push_back(
      {"fc",
       "Fully connected: act(sum of input W + b); the input's dims from num_flatten_dims on are "
       "flattened, and each input has a weight W of its own.",
       {VarList("input", "one or more tensors of rank 2 or more"),
        Required<int32_t>("size", "columns of the result"),
        Attr<int32_t>("num_flatten_dims", 1,
                      "leading dims of the input that are kept; -1: all but the last"),
        Param("param", "weight; Xavier uniform unless said"), Param("bias", "bias; 0 unless said"),
        BiasTerm()},
       BuildFc});
  defs.push_back(
      {"conv2d",
       "Convolution (cross-correlation) with a bias for each filter.",
       {Var("input", kImage), Required<int32_t>("num_filters", "channels of the result"),
        Required<Ints>("filter_size", "height and width; one number for both"),
        Attr<Ints>("stride", {1}, "height and width"),
        Attr<Ints>("padding", {0}, "height and width, or top, bottom, left, right"),
        Attr<std::string>("padding_algorithm", "EXPLICIT", "or SAME or VALID, without padding"),
        Attr<Ints>("dilation", {1}, "height and width"),
        Attr<int32_t>("groups", 1, "the channels are split into so many independent convolutions"),
        Param("param",
              "filters; normal with std sqrt(2 / (height * width * channels)) unless said"),
        Param("bias", "bias; 0 unless said"), BiasTerm()},
       BuildConv2d});
  defs.push_back(
      {"pool2d",
       "Maximum or average over windows.",
       {Var("input", kImage), Optional<Ints>("pool_size", "height and width of the window"),
        Attr<std::string>("pool_type", "max", "max or avg"),
        Attr<Ints>("pool_stride", {1}, "height and width"),
        Attr<Ints>("pool_padding", {0}, "height and width, or top, bottom, left, right"),
        Attr<std::string>("padding_algorithm", "EXPLICIT", "or SAME or VALID, without padding"),
        Attr<bool>("global_pooling", false, "one window over the whole image"),
        Attr<bool>("ceil_mode", false, "windows that start inside the image count"),
        Attr<bool>("exclusive", true, "an average counts no padding"),
        Attr<bool>("adaptive", false, "pool_size is the size of the result")},
       BuildPool2d});
}

void AddNormalisingLayers(std::vector<LayerDef>& defs) {
  defs.push_back(
      {"batch_norm",
       "Normalises each channel over the batch, then scales and shifts it; keeps running "
       "statistics "
       "for evaluation.",
       {Var("input", "tensor [N, C, ...]"),
        Attr<float>("momentum", 0.9f, "share of the old running statistics"),
        Attr<float>("epsilon", 1e-5f, "added to the variance"),
        Param("param", "scale; 1 unless said"), Param("bias", "shift; 0 unless said"),
        Attr<std::string>("moving_mean_name", "", "name of the running mean"),
        Attr<std::string>("moving_variance_name", "", "name of the running variance"),
        Attr<std::string>("data_layout", "NCHW", "or NHWC"),
        Attr<bool>("use_global_stats", false, "use the running statistics in training too"),
        Attr<bool>("is_test", false, "use the running statistics")},
       BuildBatchNorm});
  defs.push_back(
      {"layer_norm",
       "Normalises each sample over its dims from begin_norm_axis on, then scales and shifts it.",
       {Var("input", "tensor of rank 2 or more"), Attr<bool>("scale", true, "whether to scale"),
        Attr<bool>("shift", true, "whether to shift"),
        Attr<int32_t>("begin_norm_axis", 1, "first dim that is normalised over"),
        Attr<float>("epsilon", 1e-5f, "added to the variance"),
        Param("param", "scale; 1 unless said"), Param("bias", "shift; 0 unless said")},
       BuildLayerNorm});
}

void AddEmbeddingAndDropout(std::vector<LayerDef>& defs) {
  defs.push_back(
      {"embedding",
       "Rows of a table W [num_embeddings, embedding_dim] by integer ids.",
       {Var("input", "integer tensor of any shape"),
        Required<int64_t>("num_embeddings", "rows of the table"),
        Required<int64_t>("embedding_dim", "columns of the table"),
        Optional<int64_t>("padding_idx", "id whose row reads as zeros; counts from the end if < 0"),
        Attr<bool>("is_sparse", false, "the table's gradient holds only the rows that were read"),
        FieldDef{"dtype", Kind::kDType, AttrType::kInt,
                 Attribute(static_cast<int32_t>(DType::kFloat32)), false, "of the table"},
        Param("param", "table; Xavier uniform unless said")},
       BuildEmbedding});
  defs.push_back(
      {"dropout",
       "Sets elements to 0 with probability dropout_prob while training.",
       {Var("input", "tensor of any shape"), Attr<float>("dropout_prob", 0.5f, "in [0, 1]"),
        Attr<bool>("is_test", false, "drop nothing"),
        Optional<int32_t>("seed", "fixes the seed of the mask"),
        Attr<std::string>("dropout_implementation", "downgrade_in_infer",
                          "scale by 1 - dropout_prob in evaluation; or upscale_in_train: divide by "
                          "it in training")},
       BuildDropout});
}

FieldDef OptionalVar(std::string name, std::string doc) {
  FieldDef field = Var(std::move(name), std::move(doc));
  field.required = false;
  return field;
}

void AddRecurrentLayer(std::vector<LayerDef>& defs, const std::string& name, const char* doc,
                       RnnMethod method) {
  const char *kUnlessSaid = "uniform in +-1 / sqrt(hidden_size) unless said",
             *kState = "[num_layers * directions, batch, hidden_size]; 0 unless said";
  LayerDef def{name,
               doc,
               {Var("input", "tensor [batch, time, features]"),
                Required<int32_t>("hidden_size", "units of a layer and direction"),
                Attr<int32_t>("num_layers", 1, "each takes the output of the one before"),
                Attr<std::string>("direction", "forward",
                                  "or bidirect: a second direction from the end, whose output "
                                  "stands beside the first's"),
                Attr<bool>("time_major", false, "input and output are [time, batch, features]"),
                Attr<float>("dropout", 0, "between layers, while training"),
                OptionalVar("initial_h", kState),
                OptionalVar("sequence_length",
                            "integers [batch]: steps of each sample; default: "
                            "all. A step past the end puts out 0"),
                Param("weight_ih", kUnlessSaid), Param("weight_hh", kUnlessSaid),
                Param("bias_ih", kUnlessSaid), Param("bias_hh", kUnlessSaid), BiasTerm(),
                Attr<std::string>("last_h", "", "name of the h after the last step"),
                Attr<bool>("is_test", false, "drop nothing")},
               [method](Builder& net, const Args& a) { return BuildRnn(net, a, method); }};
  if (name == "lstm") {
    def.fields.push_back(OptionalVar("initial_c", kState));
    def.fields.push_back(Attr<std::string>("last_c", "", "name of the c after the last step"));
  } else if (name == "simple_rnn") {
    def.fields.push_back(Attr<std::string>("activation", "tanh", "or relu"));
  }
  defs.push_back(std::move(def));
}

void AddRecurrentLayers(std::vector<LayerDef>& defs) {
  AddRecurrentLayer(defs, "lstm", "Long short-term memory.", &Builder::Lstm);
  AddRecurrentLayer(defs, "gru", "Gated recurrent units.", &Builder::Gru);
  AddRecurrentLayer(defs, "simple_rnn", "h' = act(W x + b + U h + b').", &Builder::SimpleRnn);
}

void AddLossLayers(std::vector<LayerDef>& defs) {
  const char* kLabel = "integer tensor [N, 1], or one share per class with soft_label";
  defs.push_back({"cross_entropy",
                  "-log of the probability that input gives to the label, for each sample.",
                  {Var("input", "probabilities [N, classes]"), Var("label", kLabel),
                   Attr<bool>("soft_label", false, "label holds a probability for each class"),
                   Attr<int32_t>("ignore_index", -100, "label whose samples cost nothing")},
                  [](Builder& net, const Args& a) -> Vars {
                    CrossEntropyOptions o;
                    o.soft_label = a.Get<bool>("soft_label");
                    o.ignore_index = a.Get<int32_t>("ignore_index");
                    return {net.CrossEntropy(a.Var("input"), a.Var("label"), With(a, o))};
                  }});
  defs.push_back({"softmax_with_cross_entropy",
                  "Cross entropy of softmax(logits), for each sample.",
                  {Var("logits", "scores [N, classes]"), Var("label", kLabel),
                   Attr<bool>("soft_label", false, "label holds a probability for each class"),
                   Attr<int32_t>("ignore_index", -100, "label whose samples cost nothing"),
                   Attr<bool>("numeric_stable_mode", true, "subtract the greatest score first"),
                   Attr<int32_t>("axis", -1, "of the classes"),
                   Attr<std::string>("softmax_output", "", "name of softmax(logits)")},
                  BuildSoftmaxWithCrossEntropy});
  defs.push_back(
      {"sigmoid_cross_entropy_with_logits",
       "Cross entropy of sigmoid(input) and label, element by element.",
       {Var("input", "scores of any shape"), Var("label", "shares, of input's shape"),
        Attr<int32_t>("ignore_index", -100, "label whose elements cost nothing"),
        Attr<bool>("normalize", false, "divide by the number of elements that count")},
       [](Builder& net, const Args& a) -> Vars {
         SigmoidCrossEntropyOptions o;
         o.ignore_index = a.Get<int32_t>("ignore_index");
         o.normalize = a.Get<bool>("normalize");
         return {net.SigmoidCrossEntropyWithLogits(a.Var("input"), a.Var("label"), With(a, o))};
       }});
  defs.push_back({"square_error_cost",
                  "(input - label)^2, element by element.",
                  {Var("input", "tensor of any shape"), Var("label", "tensor of input's shape")},
                  [](Builder& net, const Args& a) -> Vars {
                    return {net.SquareErrorCost(a.Var("input"), a.Var("label"), a.output)};
                  }});
  defs.push_back({"accuracy",
                  "Share of the samples whose label is among the k highest scores.",
                  {Var("input", "scores or probabilities [N, classes]"),
                   Var("label", "integer tensor [N, 1]"), Attr<int32_t>("k", 1, "see above")},
                  [](Builder& net, const Args& a) -> Vars {
                    AccuracyOptions o;
                    o.k = a.Get<int32_t>("k");
                    o.name = a.output.name;
                    o.output = a.output.output;
                    return {net.Accuracy(a.Var("input"), a.Var("label"), o)};
                  },
                  Result::kMetric});
}

void AddMathLayers(std::vector<LayerDef>& defs) {
  defs.push_back({"matmul",
                  "alpha x y, batched over the leading dims.",
                  {Var("x", "tensor [..., m, k]"), Var("y", "tensor [..., k, n]"),
                   Attr<bool>("transpose_x", false, "swap the last two dims of x"),
                   Attr<bool>("transpose_y", false, "swap the last two dims of y"),
                   Attr<float>("alpha", 1, "multiplies the product")},
                  [](Builder& net, const Args& a) -> Vars {
                    MatmulOptions o;
                    o.transpose_x = a.Get<bool>("transpose_x");
                    o.transpose_y = a.Get<bool>("transpose_y");
                    o.alpha = a.Get<float>("alpha");
                    return {net.Matmul(a.Var("x"), a.Var("y"), With(a, o))};
                  }});
  defs.push_back(
      {"sum",
       "Sum of tensors of one shape, element by element.",
       {VarList("input", "one or more tensors")},
       [](Builder& net, const Args& a) -> Vars { return {net.Sum(a.Vars("input"), a.output)}; }});
  defs.push_back(
      {"cast",
       "The elements as another type.",
       {Var("input", "tensor of any shape"),
        FieldDef{"dtype", Kind::kDType, AttrType::kInt, std::nullopt, true, "type of the result"}},
       [](Builder& net, const Args& a) -> Vars {
         return {net.Cast(a.Var("input"), static_cast<DType>(a.Get<int32_t>("dtype")), a.output)};
       }});
  for (const char* name : {"sum", "mean", "max", "min"}) {
    const std::string type = std::string("reduce_") + name;
    defs.push_back(
        {type,
         std::string("The ") + name + " over some dims or all.",
         {Var("input", "tensor of any shape"), Attr<Ints>("dim", {}, "dims to reduce; none: all"),
          Attr<bool>("keep_dim", false, "keep them as dims of 1")},
         [type](Builder& net, const Args& a) -> Vars {
           ReduceOptions o;
           o.dim = a.Get<Ints>("dim");
           o.keep_dim = a.Get<bool>("keep_dim");
           return {net.Reduce(type, a.Var("input"), With(a, o))};
         }});
  }
}

// A layer on one tensor with one list of numbers.
void AddListLayer(std::vector<LayerDef>& defs, const char* name, const char* doc, const char* field,
                  const char* field_doc,
                  Variable (Builder::*method)(const Variable&, const Ints&, const OutputOptions&)) {
  const std::string list = field;
  defs.push_back({name,
                  doc,
                  {Var("input", "tensor of any shape"), Required<Ints>(field, field_doc)},
                  [list, method](Builder& net, const Args& a) -> Vars {
                    return {(net.*method)(a.Var("input"), a.Get<Ints>(list), a.output)};
                  }});
}

void AddShapeLayers(std::vector<LayerDef>& defs) {
  AddListLayer(defs, "reshape", "The elements in another shape.", "shape",
               "0 keeps the dim of that place, one -1 is worked out", &Builder::Reshape);
  AddListLayer(defs, "transpose", "The dims in another order.", "axis",
               "for each dim of the result the dim of the input", &Builder::Transpose);
  AddListLayer(defs, "squeeze", "Without some dims of 1.", "axes", "the dims to leave out",
               &Builder::Squeeze);
  AddListLayer(defs, "unsqueeze", "With more dims of 1.", "axes", "places of the new dims",
               &Builder::Unsqueeze);
  defs.push_back({"flatten",
                  "Dims start_axis to stop_axis become one.",
                  {Var("input", "tensor of any shape"), Attr<int32_t>("start_axis", 1, "first dim"),
                   Attr<int32_t>("stop_axis", -1, "last dim; from the end if negative")},
                  [](Builder& net, const Args& a) -> Vars {
                    FlattenOptions o;
                    o.start_axis = a.Get<int32_t>("start_axis");
                    o.stop_axis = a.Get<int32_t>("stop_axis");
                    return {net.Flatten(a.Var("input"), With(a, o))};
                  }});
  defs.push_back({"concat",
                  "Tensors side by side along one axis.",
                  {VarList("input", "one or more tensors"), Attr<int32_t>("axis", 0, "the axis")},
                  [](Builder& net, const Args& a) -> Vars {
                    ConcatOptions o;
                    o.axis = a.Get<int32_t>("axis");
                    return {net.Concat(a.Vars("input"), With(a, o))};
                  }});
  defs.push_back({"stack",
                  "Tensors of one shape along a new axis.",
                  {VarList("input", "one or more tensors"), Attr<int32_t>("axis", 0, "the axis")},
                  [](Builder& net, const Args& a) -> Vars {
                    return {net.Stack(a.Vars("input"), a.Get<int32_t>("axis"), a.output)};
                  }});
  defs.push_back({"split",
                  "Cuts a tensor along one axis: num equal parts, or parts of the sizes sections.",
                  {Var("input", "tensor of any shape"), Attr<int32_t>("num", 0, "equal parts"),
                   Attr<Ints>("sections", {}, "sizes, one of which may be -1"),
                   Attr<int32_t>("axis", -1, "the axis")},
                  BuildSplit,
                  Result::kSeveral});
  defs.push_back(
      {"one_hot",
       "One more dim of `depth`: 1 at the id, else 0.",
       {Var("input", "integer tensor of any shape"), Required<int32_t>("depth", "number of ids")},
       [](Builder& net, const Args& a) -> Vars {
         return {net.OneHot(a.Var("input"), a.Get<int32_t>("depth"), a.output)};
       }});
}

// Out = op(X?, Y?) with nothing else that must be given but attrs.
bool IsPlain(const OpDef& def) {
  auto fits = [](const std::vector<SlotDef>& slots, std::initializer_list<const char*> names) {
    return std::all_of(slots.begin(), slots.end(), [&](const SlotDef& s) {
      bool known = std::any_of(names.begin(), names.end(), [&](auto n) { return s.name == n; });
      return known ? !s.variadic : s.optional;
    });
  };
  auto block = [](const AttrDef& a) {
    return a.type == AttrType::kBlock || a.type == AttrType::kBlocks;
  };
  const bool identifier =
      std::all_of(def.type().begin(), def.type().end(),
                  [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
      !std::isdigit(static_cast<unsigned char>(def.type().front()));
  return identifier && def.kind() == OpKind::kCompute && !def.type().ends_with("_grad") &&
         def.FindOutput("Out") && fits(def.inputs(), {"X", "Y"}) && fits(def.outputs(), {"Out"}) &&
         std::none_of(def.attrs().begin(), def.attrs().end(), block);
}

// Calls the op with what was given.
LayerDef::Build PlainBuild(const OpDef& def, std::vector<std::pair<const char*, const char*>> slots,
                           std::vector<std::string> attr_names) {
  return [type = def.type(), slots = std::move(slots), attr_names = std::move(attr_names)](
             Builder& net, const Args& a) -> Vars {
    SlotList inputs;
    for (const auto& slot : slots) {
      if (a.vars.count(slot.second)) inputs.push_back({slot.first, {a.Var(slot.second).name()}});
    }
    AttrList attrs;
    for (const std::string& name : attr_names) {
      if (a.Has(name)) attrs.push_back({name, a.attrs.at(name)});
    }
    return {net.Plain(type, std::move(inputs), std::move(attrs), a.output)};
  };
}

LayerDef PlainLayer(const OpDef& def) {
  LayerDef layer{def.type(), def.doc(), {}, nullptr};
  const bool has_y = def.FindInput("Y") != nullptr;
  std::vector<std::pair<const char*, const char*>> slots;
  if (def.FindInput("X")) slots.push_back({"X", has_y ? "x" : "input"});
  if (has_y) slots.push_back({"Y", "y"});
  for (const auto& slot : slots) {
    const SlotDef& declared = *def.FindInput(slot.first);
    layer.fields.push_back(Var(slot.second, declared.doc));
    layer.fields.back().required = !declared.optional;
  }
  std::unordered_set<std::string> taken = {"output",        "act",   "name", "error_clip",
                                           "stop_gradient", "input", "x",    "y"};
  std::vector<std::string> attr_names;
  for (FieldDef& field : AttrFields(def)) {
    if (!taken.insert(field.name).second) continue;  // an op entry still reaches it
    attr_names.push_back(field.name);
    layer.fields.push_back(std::move(field));
  }
  layer.build = PlainBuild(def, std::move(slots), std::move(attr_names));
  return layer;
}

// Of tensor arrays, and those that change a variable that exists.
void AddArrayLayers(std::vector<LayerDef>& defs) {
  FieldDef dtype{"dtype", Kind::kDType,     AttrType::kInt, Attribute(int32_t{5}),
                 false,   "of the elements"};
  defs.push_back(
      {"create_array",
       "A tensor array, empty at the begin of each run of the block.",
       {dtype},
       [](Builder& net, const Args& a) -> Vars {
         return {CreateArray(net, static_cast<DType>(a.Get<int32_t>("dtype")), a.output.output)};
       },
       Result::kMetric});
  defs.push_back({"array_write",
                  "Element i of the array becomes x.",
                  {Var("x", "tensor"), Var("i", "int64 of one element"), Var("array", "the array")},
                  [](Builder& net, const Args& a) -> Vars {
                    ArrayWrite(net, a.Var("x"), a.Var("i"), a.Var("array"));
                    return {a.Var("array")};
                  },
                  Result::kMetric});
  defs.push_back({"array_read",
                  "A copy of element i of the array.",
                  {Var("array", "the array"), Var("i", "int64 of one element")},
                  [](Builder& net, const Args& a) -> Vars {
                    return {ArrayRead(net, a.Var("array"), a.Var("i"), a.output)};
                  }});
  defs.push_back(
      {"array_length",
       "The number of elements of the array, int64 [1].",
       {Var("array", "the array")},
       [](Builder& net, const Args& a) -> Vars {
         return {net.Plain("lod_array_length", {{"X", {a.Var("array").name()}}}, {}, a.output)};
       },
       Result::kMetric});
  defs.push_back({"assign_to",
                  "A variable that exists becomes x: how a body changes a variable around it.",
                  {Var("x", "tensor"), Var("var", "the variable")},
                  [](Builder& net, const Args& a) -> Vars {
                    Assign(net, a.Var("x"), a.Var("var"));
                    return {a.Var("var")};
                  },
                  Result::kMetric});
  defs.push_back({"increment_by",
                  "A variable that exists, of one element, grows by step.",
                  {Var("var", "the variable"), Attr<float>("step", 1.0f, "what is added")},
                  [](Builder& net, const Args& a) -> Vars {
                    return {Increment(net, a.Var("var"), a.Get<float>("step"))};
                  },
                  Result::kMetric});
}

}  // namespace

std::vector<FieldDef> AttrFields(const OpDef& def) {
  std::vector<FieldDef> fields;
  for (const AttrDef& attr : def.attrs()) {
    if (attr.type == AttrType::kBlock || attr.type == AttrType::kBlocks) continue;
    bool dtype = attr.type == AttrType::kInt &&
                 (attr.name == "dtype" || std::string_view(attr.name).ends_with("_dtype"));
    fields.push_back({attr.name, dtype ? Kind::kDType : Kind::kAttr, attr.type, attr.default_value,
                      !attr.default_value.has_value(), attr.doc});
  }
  return fields;
}

std::vector<LayerDef> LayerDefs(const OpRegistry& ops) {
  std::vector<LayerDef> defs;
  AddDenseAndImageLayers(defs);
  AddNormalisingLayers(defs);
  AddEmbeddingAndDropout(defs);
  AddRecurrentLayers(defs);
  AddLossLayers(defs);
  AddMathLayers(defs);
  AddShapeLayers(defs);
  AddArrayLayers(defs);
  // Entries that hold entries have messages of their own.
  std::unordered_set<std::string> taken = {"op", "include", "repeat", "while",
                                           "if", "cond",    "switch", "static_rnn"};
  for (const LayerDef& def : defs) taken.insert(def.name);
  for (const std::string& type : ops.Types()) {
    const OpDef& op = ops.Get(type);
    if (IsPlain(op) && taken.insert(type).second) defs.push_back(PlainLayer(op));
  }
  return defs;
}

}  // namespace coracle
