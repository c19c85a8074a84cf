#pragma once
// Arguments of the builder functions: parameter attributes, and one options struct per layer,
// for use with designated initialisers. Names and defaults are Paddle's. The layer's field
// table (layers/layer.h), which `coracle help LAYER` prints, documents each option and whether
// it is required.
//
// Every layer has these options: `act` (an activation op applied to the result), `name` (of the
// layer; prefixes the names of its parameters and temporaries; "" makes one: "fc_0"), `output` (the
// name of the result; "" makes one), and `error_clip` and `stop_gradient` of the result.

#include <coracle/clip/clip.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/regularizer/regularizer.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct ParamAttr {
  // "": derived from the layer. The name of an existing parameter shares that parameter.
  std::string name = "";
  // See initializer.h; nullopt: the layer's default.
  std::optional<Setting> initializer = std::nullopt;
  double learning_rate = 1.0;                         // multiplies the optimizer's
  std::optional<Setting> regularizer = std::nullopt;  // overrides the optimizer's
  bool trainable = true;
  std::optional<Setting> gradient_clip = std::nullopt;
};

// Height and width: `5` or `{5, 3}`.
struct Size2 {
  int32_t height, width;
  Size2(int32_t both) : height(both), width(both) {}  // NOLINT: converts on purpose
  Size2(int32_t h, int32_t w) : height(h), width(w) {}
  std::vector<int32_t> ToVector() const { return {height, width}; }
};

// Padding: `1`, `{1, 2}` (height, width), `{top, bottom, left, right}`, "SAME" or "VALID".
struct Padding {
  std::vector<int32_t> values = {0, 0};
  std::string algorithm = "EXPLICIT";
  Padding(int32_t all) : values{all, all} {}  // NOLINT: these convert on purpose
  Padding(std::initializer_list<int32_t> list) : Padding(std::vector<int32_t>(list)) {}
  Padding(std::vector<int32_t> list) : values(std::move(list)) {  // NOLINT
    if (values.size() == 1) values.push_back(values[0]);
  }
  Padding(const char* name) : algorithm(name) {}             // NOLINT
  Padding(std::string name) : algorithm(std::move(name)) {}  // NOLINT
};

struct OutputOptions {
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct DataOptions {
  int32_t lod_level = 0;
  bool stop_gradient = true;
  ErrorClip error_clip = {};
};

struct FcOptions {
  int32_t size = 0;
  int32_t num_flatten_dims = 1;
  ParamAttr param_attr = {};
  std::optional<ParamAttr> bias_attr = ParamAttr();  // nullopt: no bias
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct Conv2dOptions {
  int32_t num_filters = 0;
  Size2 filter_size = 1;
  Size2 stride = 1;
  Padding padding = 0;
  Size2 dilation = 1;
  int32_t groups = 1;
  ParamAttr param_attr = {};
  std::optional<ParamAttr> bias_attr = ParamAttr();
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct Pool2dOptions {
  Size2 pool_size = -1;
  std::string pool_type = "max";
  Size2 pool_stride = 1;
  Padding pool_padding = 0;
  bool global_pooling = false;
  bool ceil_mode = false;
  bool exclusive = true;
  bool adaptive = false;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct BatchNormOptions {
  float momentum = 0.9f;
  float epsilon = 1e-5f;
  ParamAttr param_attr = {}, bias_attr = {};
  std::string moving_mean_name = "", moving_variance_name = "";
  std::string data_layout = "NCHW";
  bool use_global_stats = false;
  bool is_test = false;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct LayerNormOptions {
  bool scale = true, shift = true;
  int32_t begin_norm_axis = 1;
  float epsilon = 1e-5f;
  ParamAttr param_attr = {}, bias_attr = {};
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct InstanceNormOptions {
  float epsilon = 1e-5f;
  ParamAttr param_attr = {}, bias_attr = {};
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct EmbeddingOptions {
  int64_t num_embeddings = 0, embedding_dim = 0;
  std::optional<int64_t> padding_idx = std::nullopt;
  bool is_sparse = false;
  DType dtype = DType::kFloat32;
  ParamAttr param_attr = {};
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

// Lstm, Gru and SimpleRnn.
struct RnnOptions {
  int32_t hidden_size = 0;
  int32_t num_layers = 1;
  std::string direction = "forward";
  bool time_major = false;
  float dropout = 0;
  std::string activation = "tanh";  // for SimpleRnn only
  bool is_test = false;
  // h, and for Lstm c, each [num_layers * directions, batch, hidden_size]. Empty: zeros.
  std::vector<Variable> initial_states = {};
  Variable sequence_length = {};  // integers [batch]; absent: no padding
  // A name in these applies to the first layer; later layers get "<name>_1", "<name>_2", ...
  ParamAttr weight_ih_attr = {}, weight_hh_attr = {};
  std::optional<ParamAttr> bias_ih_attr = ParamAttr();  // nullopt: zeros, not trained
  std::optional<ParamAttr> bias_hh_attr = ParamAttr();
  std::string last_h = "", last_c = "";
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct RnnOutput {
  Variable out;                  // h of the last layer at each step, directions * hidden_size wide
  std::vector<Variable> states;  // after the last step: h, and for Lstm c
};

struct AttentionOptions {
  int32_t size = 0;
  int32_t num_heads = 1;
  Variable memory = {};  // absent: the input
  Variable mask = {};    // absent: none
  bool causal = false;
  float dropout_prob = 0;
  bool is_test = false;
  // A name in these gets the suffixes _q, _k, _v and _out.
  ParamAttr param_attr = {};
  std::optional<ParamAttr> bias_attr = ParamAttr();  // nullopt: no biases
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct DropoutOptions {
  float dropout_prob = 0.5f;
  bool is_test = false;
  std::optional<int32_t> seed = std::nullopt;
  std::string dropout_implementation = "downgrade_in_infer";
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct CrossEntropyOptions {
  bool soft_label = false;
  int32_t ignore_index = -100;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct SoftmaxWithCrossEntropyOptions {
  bool soft_label = false;
  int32_t ignore_index = -100;
  bool numeric_stable_mode = true;
  int32_t axis = -1;
  std::string softmax_output = "";
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct SigmoidCrossEntropyOptions {
  int32_t ignore_index = -100;
  bool normalize = false;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct AccuracyOptions {
  int32_t k = 1;
  std::string name = "", output = "";
};

struct ElementwiseOptions {
  int32_t axis = -1;  // the axis of x aligned with axis 0 of y; -1: aligns trailing axes
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct MatmulOptions {
  bool transpose_x = false, transpose_y = false;
  float alpha = 1;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct ScaleOptions {
  float scale = 1, bias = 0;
  bool bias_after_scale = true;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct ReduceOptions {
  std::vector<int32_t> dim = {};
  bool keep_dim = false;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct FlattenOptions {
  int32_t start_axis = 1, stop_axis = -1;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct ConcatOptions {
  int32_t axis = 0;
  std::string act = "", name = "", output = "";
  ErrorClip error_clip = {};
  bool stop_gradient = false;
};

struct SplitOptions {
  int32_t num = 0;
  std::vector<int32_t> sections = {};
  int32_t axis = -1;
  std::string name = "";
  std::vector<std::string> outputs = {};
};

// A saved model as a layer (Builder::Program).
struct ProgramOptions {
  // Accepted by LoadInferenceModel: a directory, a .pdmodel file or its prefix.
  std::string file = "";
  // Variables of the saved program that take the layer's inputs, in that order; empty: its feeds.
  // Ops before these variables that nothing else needs are dropped, so this can cut off the
  // beginning of the model.
  std::vector<std::string> feeds = {};
  // Variables that the layer returns, so that a head can be cut off; empty: the program's fetches.
  std::vector<std::string> fetches = {};
  // Regular expressions (RE2) that match whole names of parameters in the file. Parameters
  // that match `frozen` are not trained. If `trained` is given, only parameters that match it
  // are trained.
  std::vector<std::string> frozen = {};
  std::vector<std::string> trained = {};
  // As in training: whether ops that normalise by running statistics use the statistics of the
  // batch and update the running ones, and whether dropout drops elements. If not, they behave as
  // in a test.
  bool train_statistics = false;
  bool train_dropout = false;
  // Prefix for the names of parameters and variables.
  std::string prefix = "";
  // Names for the results; empty: the names in the saved program.
  std::vector<std::string> outputs = {};
};

}  // namespace coracle
