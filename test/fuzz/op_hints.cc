#include <coracle/framework/base/text.h>
#include <coracle/test/fuzz/op_hints.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>

namespace coracle {
namespace {

using Ints = std::vector<int32_t>;

int Rank(const OpDraft& d, std::string_view slot) { return d.ShapeOf(slot).rank(); }

void Permutation(OpDraft& d) {
  Ints axis(static_cast<size_t>(Rank(d, "X")));
  std::iota(axis.begin(), axis.end(), 0);
  for (size_t i = axis.size(); i > 1; --i) std::swap(axis[i - 1], axis[d.choose.Below(i)]);
  d.Set("axis", axis);
}

// Another shape of as many elements: dims merged, split, or one left to be found.
void Reshaping(OpDraft& d) {
  std::vector<int64_t> dims = d.ShapeOf("X").ToVector();
  for (int changes = 0; changes < 2; ++changes) {
    if (dims.size() > 1 && d.choose.OneIn(2)) {
      const size_t at = d.choose.Below(dims.size() - 1);
      dims[at] *= dims[at + 1];
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(at) + 1);
    } else if (dims.size() < 5) {
      const size_t at = d.choose.Below(dims.size() + 1);
      if (at < dims.size() && dims[at] % 2 == 0 && dims[at] > 0 && d.choose.OneIn(2)) {
        dims[at] /= 2;
        dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 2);
      } else {
        dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 1);
      }
    }
  }
  Ints shape;
  for (int64_t dim : dims) shape.push_back(static_cast<int32_t>(dim));
  if (!shape.empty() && d.choose.OneIn(3)) shape[d.choose.Below(shape.size())] = -1;
  d.Set("shape", shape);
}

// Bounds of up to two axes, of the attr type of the op.
void Bounds(OpDraft& d) {
  const char* const slot = "Input";
  const int rank = Rank(d, slot);
  std::vector<int64_t> axes, starts, ends, steps, decrease;
  for (int axis = 0; axis < rank; ++axis) {
    if (!d.choose.OneIn(2)) continue;
    const int64_t dim = d.ShapeOf(slot)[axis];
    const int64_t start = static_cast<int64_t>(d.choose.Below(static_cast<size_t>(dim) + 1));
    const bool single = dim > 0 && start < dim && d.choose.OneIn(4);
    axes.push_back(d.choose.OneIn(4) ? axis - rank : axis);
    starts.push_back(d.choose.OneIn(4) ? start - dim : start);
    ends.push_back(single ? start + 1 : start + 1 + static_cast<int64_t>(d.choose.Below(4)));
    steps.push_back(
        !single && d.def.FindAttr("strides") ? 1 + static_cast<int64_t>(d.choose.Below(2)) : 1);
    if (single) starts.back() = start;
    if (single && d.choose.OneIn(2)) decrease.push_back(axis);
    if (!single && d.choose.OneIn(8)) {
      starts.back() = dim - 1;
      ends.back() = -1;
      steps.back() = -1;
    }
  }
  const bool backwards = std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s < 0; });
  if (backwards && !d.def.FindAttr("strides") && !d.def.FindAttr("steps")) {
    std::fill(steps.begin(), steps.end(), 1);
    std::fill(starts.begin(), starts.end(), 0);
    std::fill(ends.begin(), ends.end(), 1);
    decrease.clear();
  }
  auto set = [&](const char* attr, const std::vector<int64_t>& values) {
    const AttrDef* def = d.def.FindAttr(attr);
    if (!def) return;
    Attribute converted;
    if (ConvertAttribute(Attribute(values), def->type, &converted)) d.Set(attr, converted);
  };
  set("axes", axes);
  set("starts", starts);
  set("ends", ends);
  set("strides", steps);
  set("steps", steps);
  set("decrease_axis", decrease);
  set("decrease_axes", decrease);
}

void Splitting(OpDraft& d) {
  const Shape shape = d.ShapeOf("X");
  if (shape.rank() == 0) return;
  const auto axis = static_cast<int>(d.choose.Below(static_cast<size_t>(shape.rank())));
  const int64_t dim = shape[axis];
  d.Set("axis", static_cast<int32_t>(d.choose.OneIn(3) ? axis - shape.rank() : axis));
  if (dim % 2 == 0 && d.choose.OneIn(2)) {
    d.Set("num", int32_t{2});
    d.outputs["Out"] = 2;
    return;
  }
  const auto first = static_cast<int32_t>(d.choose.Below(static_cast<size_t>(dim) + 1));
  d.Set("num", int32_t{0});
  d.Set("sections", Ints{first, d.choose.OneIn(2) ? -1 : static_cast<int32_t>(dim) - first});
  d.outputs["Out"] = 2;
}

void Unstacking(OpDraft& d) {
  const Shape shape = d.ShapeOf("X");
  if (shape.rank() == 0) return;
  const auto axis = static_cast<int>(d.choose.Below(static_cast<size_t>(shape.rank())));
  d.Set("axis", static_cast<int32_t>(axis));
  d.Set("num", static_cast<int32_t>(shape[axis]));
  d.outputs["Y"] = static_cast<int>(shape[axis]);
}

void Unbinding(OpDraft& d) {
  d.Set("axis", int32_t{0});
  d.outputs["Out"] = static_cast<int>(d.ShapeOf("X")[0]);
}

void OneOutputEach(OpDraft& d) {
  for (const Slot& slot : d.inputs) {
    if (slot.name == "X") d.outputs["Out"] = static_cast<int>(slot.args.size());
  }
}

void OneOutputForEachInput(OpDraft& d) {
  for (const Slot& slot : d.inputs) {
    if (slot.name == "Input") d.outputs["Output"] = static_cast<int>(slot.args.size());
  }
}

// Dims of 1 stretched, new ones before them, -1 where X's stays.
void Expanding(OpDraft& d) {
  Ints shape;
  for (size_t n = d.choose.Below(3); n > 0; --n)
    shape.push_back(1 + static_cast<int32_t>(d.choose.Below(3)));
  for (int64_t dim : d.ShapeOf("X")) {
    const int32_t stretched = dim == 1 ? 1 + static_cast<int32_t>(d.choose.Below(3)) : -1;
    shape.push_back(d.choose.OneIn(2) ? stretched : static_cast<int32_t>(dim));
  }
  d.Set("shape", shape);
}

void Tiling(OpDraft& d) {
  Ints times;
  for (size_t n = 1 + d.choose.Below(static_cast<size_t>(Rank(d, "X")) + 1); n > 0; --n)
    times.push_back(1 + static_cast<int32_t>(d.choose.Below(3)));
  d.Set("repeat_times", times);
}

void Values(OpDraft& d) {
  const DType dtype =
      d.choose.Of({DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kBool});
  const size_t n = 1 + d.choose.Below(3), m = d.choose.Below(3);
  d.Set("dtype", static_cast<int32_t>(dtype));
  d.Set("shape", Ints{static_cast<int32_t>(n), static_cast<int32_t>(m)});
  if (dtype == DType::kFloat32) d.Set("fp32_values", std::vector<float>(n * m, 0.5f));
  if (dtype == DType::kFloat64) d.Set("fp64_values", std::vector<double>(n * m, 0.25));
  if (dtype == DType::kInt32) d.Set("int32_values", Ints(n * m, 2));
  if (dtype == DType::kInt64) d.Set("int64_values", std::vector<int64_t>(n * m, 1));
  if (dtype == DType::kBool) d.Set("bool_values", Ints(n * m, 1));
}

void SetFromAttrs(OpDraft& d) {
  Bounds(d);
  d.Set("dtype", static_cast<int32_t>(DType::kFloat32));
  d.Set("shape", std::vector<int64_t>{1});
  d.Set("fp32_values", std::vector<float>{0.5f});
}

void Casting(OpDraft& d) {
  d.Set("in_dtype", static_cast<int32_t>(d.choose.OneIn(2) ? d.Find(d.inputs[0].args[0])->dtype
                                                           : static_cast<DType>(-1)));
  d.Set("out_dtype",
        static_cast<int32_t>(d.choose.Of({DType::kFloat32, DType::kFloat64, DType::kInt32,
                                          DType::kInt64, DType::kBool, DType::kUInt8})));
}

// Parameters of every layer and direction: see the rnn op.
void Recurrent(OpDraft& d) {
  const Shape input = d.ShapeOf("Input");
  const std::string mode = d.choose.Of({"LSTM", "GRU", "RNN_TANH"});
  const int64_t gates = mode == "LSTM" ? 4 : mode == "GRU" ? 3 : 1;
  const int64_t layers = 1 + static_cast<int64_t>(d.choose.Below(2));
  const int64_t directions = 1 + static_cast<int64_t>(d.choose.Below(2));
  const int64_t hidden = 1 + static_cast<int64_t>(d.choose.Below(4));
  const DType dtype = d.Find(d.inputs[0].args[0])->dtype;
  Slot weights{"WeightList", {}}, state{"PreState", {}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t in = layer == 0 ? input[2] : directions * hidden;
    for (int64_t k = 0; k < directions; ++k) {
      weights.args.push_back(d.NewInput(dtype, {gates * hidden, in}));
      weights.args.push_back(d.NewInput(dtype, {gates * hidden, hidden}));
    }
  }
  for (int64_t k = 0; k < layers * directions * 2; ++k)
    weights.args.push_back(d.NewInput(dtype, {gates * hidden}));
  for (int k = 0; k < (mode == "LSTM" ? 2 : 1); ++k)
    state.args.push_back(d.NewInput(dtype, {layers * directions, input[1], hidden}));
  d.outputs["State"] = static_cast<int>(state.args.size());
  d.inputs.push_back(weights);
  d.inputs.push_back(state);
  d.Set("mode", mode);
  d.Set("hidden_size", static_cast<int32_t>(hidden));
  d.Set("input_size", static_cast<int32_t>(input[2]));
  d.Set("num_layers", static_cast<int32_t>(layers));
  d.Set("is_bidirec", directions == 2);
}

// Probabilities up to 1, in statistics of four buckets.
void Buckets(OpDraft& d) {
  const bool all = d.choose.OneIn(2);
  d.Set("slide_steps", all ? int32_t{0} : int32_t{2});
  for (const char* slot : {"StatPos", "StatNeg"})
    d.inputs.push_back({slot, {d.NewInput(DType::kInt64, {1, all ? 4 : 13})}});
}

void QuantizedMaxAbs(OpDraft& d) {
  d.inputs.clear();
  d.made.clear();
  d.inputs.push_back({"X", {d.NewInput(d.choose.Of({DType::kInt8, DType::kInt16}), {2, 3})}});
  d.inputs.push_back({"Scale", {d.NewInput(DType::kFloat32, {1})}});
}

void QuantizedLog(OpDraft& d) {
  d.inputs.clear();
  d.made.clear();
  d.inputs.push_back({"X", {d.NewInput(DType::kInt8, {2, 3})}});
  d.inputs.push_back({"Dict", {d.NewInput(DType::kFloat32, {128})}});
// Two layers of one width.
void RepeatedLayers(OpDraft& d) {
  for (Slot& slot : d.inputs) {
    if (slot.name != "X") slot.args.resize(2, slot.args[0]);
  }
  d.outputs["ReluOut"] = 1;
}

void Functors(OpDraft& d) {
  const std::string unary = d.choose.Of({"relu", "tanh", "sigmoid"});
  const std::string binary = d.choose.Of({"elementwise_add", "elementwise_mul"});
  d.Set("functor_list", d.choose.OneIn(2) ? std::vector<std::string>{unary, binary}
                                          : std::vector<std::string>{binary, unary});
void CudnnLstm(OpDraft& d) {
  const Shape input = d.ShapeOf("Input");
  const int64_t hidden = 1 + static_cast<int64_t>(d.choose.Below(3));
  const DType dtype = d.Find(d.inputs[0].args[0])->dtype;
  d.inputs.push_back(
      {"WeightList",
       {d.NewInput(dtype, {4 * hidden, input[2]}), d.NewInput(dtype, {4 * hidden, hidden}),
        d.NewInput(dtype, {4 * hidden}), d.NewInput(dtype, {4 * hidden})}});
  for (const char* slot : {"InitH", "InitC"})
    d.inputs.push_back({slot, {d.NewInput(dtype, {1, input[1], hidden})}});
  d.Set("hidden_size", static_cast<int32_t>(hidden));
}

// In the table of smooth recipes.
constexpr const char* kSmoothUnary =
    "tanh sigmoid exp sin cos square silu swish gelu softplus mish logsigmoid scale assign "
    "fill_zeros_like mean squared_l2_norm rnn_memory_helper atan cosh sinh erf expm1 soft_relu "
    "stanh "
    "tanh_shrink";

constexpr const char* kSmoothBinary = "elementwise_add elementwise_sub elementwise_mul";
constexpr OpHint kSmooth[] = {
    {kSmoothUnary, "X"},
    {"log sqrt rsqrt reciprocal pow log2 log10 log1p lgamma", "X:+"},
    {"atan2", "X1:+[...] X2[...]"},
    {"maxout", "X[n,4,h,w]", "groups=2|4 axis=1"},
    {"prelu", "X:+[n,c,h,w] Alpha[c]", "mode=channel"},
    {"prelu", "X:+[...,k] Alpha[1]", "mode=all"},
    {kSmoothBinary, "X[...] Y[...]", "axis=-1"},
    {kSmoothBinary, "X[...,k] Y[k]", "axis=-1"},
    {kSmoothBinary, "X[a,b,c] Y[b]", "axis=1"},
    {kSmoothBinary, "X[a,b,c] Y[a,b]", "axis=0"},
    {kSmoothBinary, "X[1] Y[...]", "axis=-1"},
    {kSmoothBinary, "X[a,1,b] Y[c,1]", "axis=-1"},
    {"elementwise_div", "X[...] Y:+[...]", "axis=-1"},
    {"elementwise_div", "X[...,k] Y:+[k]", "axis=-1"},
    {"elementwise_pow", "X:+[...] Y[...]", "axis=-1"},
    {"minus square_error_cost", "X[...] Y[...]"},
    {"sum", "X*[...]"},
    {"stack", "X*[...]", "axis=0|-1"},
    {"concat", "X*[?,b]", "axis=0|-2"},
    {"concat", "X*[a,?]", "axis=1|-1"},
    {"bmm", "X[a,m,k] Y[a,k,n]"},
    {"mv", "X[m,k] Vec[k]"},
    {"dot", "X[m,k] Y[m,k]"},
    {"addmm", "Input[m,n] X[m,k] Y[k,n]", "Alpha=1|0.5 Beta=1|2"},
    {"kron", "X[m,n] Y[k,l]"},
    {"tril_triu", "X[m,n]", "lower=true|false diagonal=0|1|-1"},
    {"diagonal trace", "Input[a,m,n]", "offset=0|1|-1 axis1=0|1 axis2=2|-1 dim1=0 dim2=1"},
    {"trace", "Input[a,m,n]", "offset=0|1|-1 axis1=0 axis2=1 dim1=0|2 dim2=1"},
    {"diag", "Diagonal[n]"},
    {"diag_v2", "X[n]", "offset=0|1|-1"},
    {"diag_v2", "X[m,n]", "offset=0|1|-1"},
    {"diag_embed", "Input[a,n]", "offset=0|1|-1 dim1=0|-2 dim2=2|-1"},
    {"bilinear_tensor_product", "X[n,a] Y[n,b] Weight[m,a,b] Bias?[1,m]"},
    {"fsp", "X[n,c,h,w] Y[n,d,h,w]"},
    {"conv_shift", "X[n,m] Y[n,1]"},
    {"p_norm", "X:+[a,b]", "porder=2|3 axis=0|1|-1 epsilon=0|1e-9"},
    {"frobenius_norm", "X:+[a,b,c]", "dim=[0]|[-1]|[0,2] in_dtype=-1 out_dtype=-1"},
    {"logsumexp", "X[a,b,c]", "axis=[0]|[-1]|[0,2]"},
    {"norm", "X:+[a,b]", "axis=0|1|-1 epsilon=0.1"},
    {"mul", "X[m,k] Y[k,n]", "x_num_col_dims=1 y_num_col_dims=1"},
    {"mul", "X[a,b,k] Y[k,n]", "x_num_col_dims=2 y_num_col_dims=1"},
    {"mul", "X[m,k,l] Y[k,l,n]", "x_num_col_dims=1 y_num_col_dims=2"},
    {"matmul", "X[...,m,k] Y[...,k,n]", "transpose_X=false transpose_Y=false"},
    {"matmul", "X[k,m] Y[n,k]", "transpose_X=true transpose_Y=true"},
    {"matmul", "X[a,m,k] Y[k,n]", "transpose_X=false transpose_Y=false"},
    {"matmul", "X[k] Y[k]", "transpose_X=false transpose_Y=false"},
    {"matmul", "X[m] Y[n]", "transpose_X=true transpose_Y=true"},
    {"matmul_v2", "X[...,m,k] Y[...,k,n]", "trans_x=false trans_y=false"},
    {"matmul_v2", "X[...,k,m] Y[n,k]", "trans_x=true trans_y=true"},
    {"matmul_v2", "X[a,m,k] Y[k]", "trans_x=false trans_y=false"},
    {"matmul_v2", "X[k] Y[k,n]", "trans_x=false trans_y=false"},
    {"conv2d", "Input[n,c,h,w] Filter[m,c,k,l] Bias?[m]",
     "strides=[1,1]|[2,1] paddings=[0,0]|[1,1]|[0,1,1,0] dilations=[1,1]|[1,2] groups=1 "
     "data_format=NCHW padding_algorithm=EXPLICIT|SAME|VALID"},
    {"conv2d", "Input[n,4,h,w] Filter[2,2,k,l] Bias?[2]",
     "strides=[1,1] paddings=[1,1] dilations=[1,1] groups=2 data_format=NCHW "
     "padding_algorithm=EXPLICIT"},
    {"conv2d", "Input[n,h,w,c] Filter[m,c,k,l]",
     "strides=[1,1] paddings=[1,1] dilations=[1,1] groups=1 data_format=NHWC "
     "padding_algorithm=EXPLICIT"},
    {"depthwise_conv2d", "Input[n,c,h,w] Filter[c,1,k,l] Bias?[c]",
     "strides=[1,1]|[2,2] paddings=[1,1]|[0,0] dilations=[1,1] groups=c data_format=NCHW "
     "padding_algorithm=EXPLICIT|SAME"},
    {"conv2d_transpose", "Input[n,c,h,w] Filter[c,m,k,l] Bias?[m]",
     "strides=[1,1]|[2,2] paddings=[0,0]|[1,1] dilations=[1,1] groups=1 output_size=[] "
     "output_padding=[] data_format=NCHW padding_algorithm=EXPLICIT"},
    {"depthwise_conv2d_transpose", "Input[n,c,h,w] Filter[c,1,k,l]",
     "strides=[1,1]|[2,2] paddings=[0,0] dilations=[1,1] groups=c output_size=[] "
     "output_padding=[] data_format=NCHW padding_algorithm=EXPLICIT"},
    {"pool2d", "X[n,c,h,w]",
     "pooling_type=avg ksize=[1,1]|[2,2]|[2,1]|[3,3] strides=[1,1]|[2,2] paddings=[0,0]|[1,1] "
     "data_format=NCHW padding_algorithm=EXPLICIT"},
    {"pool2d", "X[n,h,w,c]",
     "pooling_type=avg ksize=[2,2] strides=[1,1] paddings=[0,0] data_format=NHWC "
     "padding_algorithm=EXPLICIT"},
    {"conv3d", "Input[n,c,d,h,w] Filter[m,c,1,k,2] Bias?[m]",
     "strides=[1,1,1]|[1,2,1] paddings=[0,0,1]|[1,1,1]|[0,0,1,0,1,1] dilations=[1,1,1] groups=1 "
     "data_format=NCDHW padding_algorithm=EXPLICIT|SAME"},
    {"conv3d_transpose", "Input[n,c,d,h,w] Filter[c,m,1,k,l]",
     "strides=[1,1,1]|[2,1,2] paddings=[0,0,0] dilations=[1,1,1] groups=1 output_size=[] "
     "output_padding=[] data_format=NCDHW padding_algorithm=EXPLICIT"},
    {"pool3d", "X[n,c,d,h,w]",
     "pooling_type=avg ksize=[1,1,1]|[1,2,2] strides=[1,1,1]|[1,2,2] paddings=[0,0,0]|[0,1,1] "
     "data_format=NCDHW padding_algorithm=EXPLICIT"},
    {"nearest_interp bilinear_interp bicubic_interp", "X[n,c,h,w]",
     "out_h=1|2|5 out_w=2|3 interp_method=nearest scale=0 data_layout=NCHW"},
    {"interpolate", "X[n,c,h,w]",
     "out_h=1|2|5 out_w=2|3 interp_method=nearest|bilinear scale=0 data_layout=NCHW"},
    {"linear_interp linear_interp_v2", "X[n,c,w]", "out_w=2|3 scale=0 data_layout=NCHW"},
    {"trilinear_interp trilinear_interp_v2", "X[n,c,d,h,w]",
     "out_d=2|1 out_h=1|2 out_w=2|3 scale=0 data_layout=NCHW"},
    {"nearest_interp_v2 bilinear_interp_v2 bicubic_interp_v2", "X[n,c,h,w]",
     "out_h=0 out_w=0 scale=[2]|[2,1.5] interp_method=nearest data_layout=NCHW"},
    {"pad2d", "X[n,c,h,w]",
     "paddings=[0,1,1,0]|[1,1,0,0] mode=constant|reflect|edge data_format=NCHW"},
    {"spp", "X[n,c,h,w]", "pyramid_height=1|2 pooling_type=avg"},
    {"unpool", "X[n,c,1,1] Indices:i<4[n,c,1,1]", "ksize=[2,2] strides=[1,1] paddings=[0,0]"},
    {"batch_norm", "X[n,c,h,w] Scale[c] Bias[c] Mean[c] Variance:+[c]",
     "is_test=false|true use_global_stats=false trainable_statistics=false data_layout=NCHW "
     "epsilon=0.1"},
    {"batch_norm", "X[n,c] Scale[c] Bias[c] Mean[c] Variance:+[c]",
     "is_test=false use_global_stats=false|true trainable_statistics=false data_layout=NCHW|NHWC "
     "epsilon=0.1"},
    {"affine_grid", "Theta[n,2,3]", "output_shape=[1,1,2,3]|[2,1,1,2]"},
    {"unfold", "X[n,c,2,3]",
     "kernel_sizes=[1,2]|[2,1] strides=[1,1] paddings=[0,0,0,0]|[1,0,0,1] dilations=[1,1]"},
    {"fc", "Input[n,k] W[k,m] Bias?[m]",
     "in_num_col_dims=1 activation_type=| padding_weights=false"},
    {"sync_batch_norm", "X[n,c,h] Scale[c] Bias[c] Mean[c] Variance:+[c]",
     "is_test=false|true use_global_stats=false trainable_statistics=false data_layout=NCHW "
     "epsilon=0.1"},
    {"group_norm", "X[n,4,h] Scale?[4] Bias?[4]", "groups=1|2|3 epsilon=0.1 data_layout=NCHW"},
    {"lrn", "X[n,c,h,w]", "n=3|1 alpha=0.1 data_format=NCHW"},
    {"affine_channel", "X[n,c,h,w] Scale[c] Bias[c]", "data_layout=NCHW"},
    {"layer_norm", "X[a,d] Scale?[d] Bias?[d]", "begin_norm_axis=1 epsilon=0.1"},
    {"layer_norm", "X[a,b,d] Scale?[d] Bias?[d]", "begin_norm_axis=2 epsilon=0.1"},
    {"softmax log_softmax", "X[...,a,b]", "axis=-1|0|1"},
    {"softmax_with_cross_entropy", "Logits[...,c] Label:i<c[...,1]",
     "soft_label=false axis=-1 use_softmax=true"},
    {"softmax_with_cross_entropy", "Logits[...,c] Label:+[...,c]",
     "soft_label=true axis=-1 use_softmax=true"},
    {"cross_entropy", "X:+[...,r,c] Label:i<c[...,r,1]", "soft_label=false"},
    {"cross_entropy", "X:+[...,r,c] Label:+[...,r,c]", "soft_label=true"},
    {"sigmoid_cross_entropy_with_logits", "X[...] Label:+[...]", "normalize=false|true"},
    {"label_smooth", "X[...,c] PriorDist?[1,c]", "epsilon=0.1"},
    {"rank_loss", "Label:+[n,1] Left[n] Right[n,1]"},
    {"cos_sim", "X:+[n,...,d] Y:+[n,...,d]"},
    {"cos_sim", "X:+[n,d] Y:+[1,d]"},
    {"squared_l2_distance", "X[n,...,d] Y[n,...,d]"},
    {"squared_l2_distance", "X[n,d] Y[1,d]"},
    {"kldiv_loss", "X[n,...] Target:+[n,...]", "reduction=none|mean|batchmean|sum"},
    {"nll_loss", "X[n,c] Label:i<c[n] Weight?:+[c]", "reduction=none|mean|sum"},
    {"nll_loss", "X[n,c,h,w] Label:i<c[n,h,w]", "reduction=none|mean"},
    {"bpr_loss", "X[...,r,3] Label:i<3[...,r,1]"},
    {"center_loss", "X[n,d] Label:i<3[n,1] Centers[3,d] CenterUpdateRate[1]",
     "cluster_num=3 need_update=false"},
    {"cross_entropy2", "X:+[...,r,c] Label:i<c[...,r,1]"},
    {"lookup_table", "W[v,d] Ids:i<v[n,1]", "is_sparse=false|true padding_idx=-1|0"},
    {"lookup_table_v2", "W[v,d] Ids:i<v[n,t]", "is_sparse=false|true padding_idx=-1|0"},
    {"gather", "X[v,d] Index:i<v[n]", "axis=0"},
    {"gather", "X[d,v] Index:i<v[n]", "axis=1|-1"},
    {"index_select", "X[v,d] Index:i<v[n]", "dim=0|-2"},
    {"gather_nd", "X[v,d] Index:i<v[n,1]"},
    {"gather_nd", "X[v,v] Index:i<v[n,2]"},
    {"index_sample", "X[b,v] Index:i<v[b,k]"},
    {"scatter", "X[v,d] Ids:i<v[n] Updates[n,d]", "overwrite=false"},
    {"scatter_nd_add", "X[v,v,d] Index:i<v[n,2] Updates[n,d]"},
    {"masked_select", "X[...] Mask:b[...]"},
    {"multiplex", "Ids:i<1[n,1] X*[n,d]"},
    {"flip reverse", "X[a,b]", "axis=[0]|[1]|[-1,0] dims=[]"},
    {"roll", "X[a,b]", "axis=[0]|[-1] dims=[] shifts=[1]|[-2]"},
    {"roll", "X[a,b]", "axis=[] dims=[]|[1] shifts=[3]"},
    {"meshgrid", "X*[?]", "", OneOutputEach},
    {"broadcast_tensors", "X*[...]", "", OneOutputEach},
    {"unbind", "X[a,b]", "", Unbinding},
    {"expand", "X[a,b]", "expand_times=[1,2]|[2,1]|[2,3]"},
    {"expand_as", "X[a,b] target_tensor[a,b]"},
    {"expand_as_v2", "X[1,3]", "target_shape=[2,3]|[2,1,3]"},
    {"pixel_shuffle", "X[n,4,h,w]", "upscale_factor=2 data_format=NCHW"},
    {"shuffle_channel", "X[n,4,h,w]", "group=1|2"},
    {"space_to_depth", "X[n,4,2,4]", "blocksize=2"},
    {"temporal_shift", "X[2,4,h,w]", "seg_num=1|2 shift_ratio=0.25 data_format=NCHW"},
    {"crop crop_tensor", "X[2,3]", "offsets=[]|[0,1] shape=[1,2]|[2,1]"},
    {"pad", "X[a,b]", "paddings=[0,1,1,0]|[0,0,2,1]"},
    {"pad3d", "X[n,c,d,h,w]",
     "paddings=[0,1,1,0,0,0]|[0,0,0,0,1,1] mode=constant|replicate|circular data_format=NCDHW"},
    {"pad_constant_like", "X[a,b] Y[a,1]"},
    {"partial_concat partial_sum", "X*[a,3]", "start_index=0|1|-2 length=-1|1"},
    {"segment_pool", "X[n,d] SegmentIds:i<1[n]", "pooltype=SUM|MEAN"},
    {"shuffle_batch", "X[a,b] Seed:i<5[1]"},
    {"share_data", "X"},
    {"memcpy", "X", "dst_place_type=0|1"},
    {"c_allreduce_sum c_identity alltoall", "X"},
    {"c_concat c_split c_allgather c_reducescatter", "X", "nranks=1|0"},
    {"c_sync_calc_stream c_sync_comm_stream c_wait_comm c_wait_compute nop", "X*[...]", "",
     OneOutputEach},
    {"c_embedding", "W[v,d] Ids:i<v[n,t]", "start_index=0|1"},
    {"c_softmax_with_cross_entropy", "Logits[...,c] Label:i<c[...,1]", "nranks=0|1"},
    {"where", "Condition:b[...] X[...] Y[...]"},
    {"transpose transpose2", "X", "", Permutation},
    {"reshape reshape2", "X", "", Reshaping},
    {"slice strided_slice", "Input", "", Bounds},
    {"set_value", "Input[a,b] ValueTensor[1]", "", Bounds},
    {"split", "X", "", Splitting},
    {"unstack", "X[a,b]", "", Unstacking},
    {"expand_v2", "X", "", Expanding},
    {"tile", "X", "", Tiling},
    {"squeeze squeeze2", "X[a,1,b]", "axes=[1]|[-2]|[]"},
    {"unsqueeze unsqueeze2", "X[a,b]", "axes=[0]|[1]|[-1]|[0,2]"},
    {"flatten flatten2", "X[a,b,c]", "axis=0|1|2|3"},
    {"flatten_contiguous_range", "X[a,b,c]", "start_axis=0|1 stop_axis=1|2|-1"},
    {"cumsum", "X[a,b]", "axis=0|-1"},
    {"reduce_sum reduce_mean", "X[a,b,c]", "dim=[0]|[-1]|[0,2]|[1] in_dtype=-1 out_dtype=-1"},
    {"reduce_prod", "X[a,b]", "dim=[0]|[1] in_dtype=-1 out_dtype=-1"},
    {"increment", "X[1]"},
    {"dropout", "X", "dropout_prob=0.5|0|0.25"},
    {"rnn", "Input[t,n,i] SequenceLength?:i<t[n]", "", Recurrent},
    {"gru_unit", "Input[b,6] HiddenPrev[b,2] Weight[2,6] Bias?[1,6]",
     "activation=0|1|2 gate_activation=1 origin_mode=false|true"},
    {"lstm_unit", "X[b,8] C_prev[b,2]", "forget_bias=0|1"},
    {"select_input", "X*[...] Mask:i<1[1]"},
    {"split_lod_tensor", "X[n,d] Mask:b[n,1]", "level=0"},
    {"merge_lod_tensor merge_lod_tensor_infer", "X[n,d] Mask:b[n,1] InTrue[k,d] InFalse[m,d]",
     "level=0"},
    {"tree_conv", "NodesVector[b,n,f] EdgeSet:i<1[b,e,2] Filter[f,3,o,k]", "max_depth=2|3"},
    {"linear_chain_crf", "Emission[b,t,3] Transition[5,3] Label:i<3[b,t] Length:i<t[b]"},
    {"warpctc", "Logits[t,b,3] Label:i<2[b,2] LogitsLength:i<t[b] LabelLength:i<2[b]", "blank=2"},
    {"select_output", "X Mask:i<2[1]", "", [](OpDraft& d) { d.outputs["Out"] = 2; }},
};

// Besides the smooth ones.
constexpr OpHint kOther[] = {
    {"elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max "
     "elementwise_min elementwise_pow elementwise_mod elementwise_floordiv equal not_equal "
     "less_than "
     "less_equal greater_than greater_equal",
     "X:n[...] Y:n[...]", "axis=-1"},
    {"elementwise_max elementwise_min elementwise_mod elementwise_floordiv equal less_than",
     "X:n[...,k] Y:n[k]", "axis=-1"},
    {"logical_and logical_or logical_xor", "X:b[...] Y:b[...]"},
    {"logical_not", "X:b"},
    {"bitwise_and bitwise_or bitwise_xor", "X:b[...] Y:b[...]"},
    {"isfinite isinf isnan isfinite_v2 isinf_v2 isnan_v2", "X:n"},
    {"l1_norm", "X"},
    {"p_norm", "X[a,b]", "porder=0|1|2 axis=0|1|-1 epsilon=0|1e-9"},
    {"dist", "X[...] Y[...]", "p=0|1|2"},
    {"tril_triu", "X:n[m,n]", "lower=true|false diagonal=0|1|-1"},
    {"diagonal trace", "Input:n[m,n]", "offset=0|1|-1 axis1=0 axis2=1|-1 dim1=0 dim2=1"},
    {"sum", "X*:n[...]"},
    {"scale assign fill_zeros_like fill_any_like sign abs square", "X:n"},
    {"assign shape is_empty", "X:a"},
    {"shape", "Input:a"},
    {"where", "Condition:b[...] X:a[...] Y:a[...]"},
    {"concat", "X*:a[a,?]", "axis=1|-1"},
    {"stack", "X*:a[...]", "axis=0|-1"},
    {"gather", "X:a[v,d] Index:i<v[n,1]", "axis=0"},
    {"transpose transpose2", "X:a", "", Permutation},
    {"reshape reshape2", "X:a", "", Reshaping},
    {"slice strided_slice", "Input:a", "", Bounds},
    {"set_value", "Input[a,b]", "", SetFromAttrs},
    {"split", "X:a", "", Splitting},
    {"expand_v2", "X:a", "", Expanding},
    {"tile", "X:a", "", Tiling},
    {"cast", "X:a", "", Casting},
    {"assign_value", "", "", Values},
    {"reduce_max reduce_min reduce_sum reduce_mean reduce_prod", "X:n[a,b]",
     "dim=[0]|[1]|[-1]|[0,1] in_dtype=-1 out_dtype=-1"},
    {"reduce_all reduce_any", "X:b[a,b]", "dim=[0]|[1]|[-1]|[0,1] in_dtype=-1 out_dtype=-1"},
    {"cumsum", "X:n[a,b]", "axis=0|1|-1"},
    {"increment", "X:n[1]"},
    {"pool2d", "X[n,c,h,w]",
     "pooling_type=max ksize=[1,1]|[2,2]|[2,1]|[3,3] strides=[1,1]|[2,2] paddings=[0,0]|[1,1] "
     "data_format=NCHW padding_algorithm=EXPLICIT"},
    {"max_pool2d_with_index", "X[n,c,h,w]", "ksize=[1,1]|[2,2] strides=[1,1] paddings=[0,0]|[0,0]"},
    {"max_pool3d_with_index", "X[n,c,d,h,w]",
     "ksize=[1,1,1]|[1,2,1] strides=[1,1,1] paddings=[0,0,0]"},
    {"spp", "X[n,c,h,w]", "pyramid_height=1|2 pooling_type=max"},
    {"fc", "Input[n,k] W[k,m] Bias?[m]", "in_num_col_dims=1 activation_type=relu"},
    {"fusion_repeated_fc_relu", "X[n,k] W*[k,k] Bias*[k]", "", RepeatedLayers},
    {"grid_sampler", "X[n,c,2,3] Grid[n,h,w,2]", "mode=bilinear|nearest padding_mode=zeros"},
    {"deformable_conv", "Input[n,c,h,w] Offset:+[n,2,h,w] Mask[n,1,h,w] Filter[m,c,1,1]",
     "strides=[1,1] paddings=[0,0] dilations=[1,1] groups=1 deformable_groups=1"},
    {"deformable_conv_v1", "Input[n,c,h,w] Offset:+[n,2,h,w] Filter[m,c,1,1]",
     "strides=[1,1] paddings=[0,0] dilations=[1,1] groups=1 deformable_groups=1"},
    {"random_crop", "X:a[n,2,3]", "shape=[1,2]|[2] startup_seed=0|3"},
    {"add_position_encoding", "X[n,t,4]", "alpha=1|0.5 beta=2"},
    {"cvm", "X:+[n,4] CVM:+[n,2]", "use_cvm=true|false"},
    {"data_norm", "X[n,c] BatchSize:+[c] BatchSum[c] BatchSquareSum:+[c]",
     "slot_dim=-1|1 enable_scale_and_shift=false"},
    {"fusion_squared_mat_sub", "X[m,k] Y[k,n]", "scalar=0.5"},
    {"fused_elemwise_activation fused_elemwise_add_activation", "X[...] Y[...]", "axis=-1",
     Functors},
    {"one_hot", "X:i<5[n,1]", "depth=5|6 dtype=5|6|3"},
    {"one_hot_v2", "X:i<5[n,t]", "depth=5|6 dtype=5|6|3"},
    {"top_k", "X[n,c]", "k=1|2"},
    {"top_k_v2", "X[n,c]", "k=1|2 axis=0|1|-1"},
    {"arg_max arg_min", "X[a,b]", "axis=0|1|-1 dtype=3|2"},
    {"center_loss", "X[n,d] Label:i<3[n,1] Centers[3,d] CenterUpdateRate[1]",
     "cluster_num=3 need_update=true"},
    {"bce_loss", "X[...] Label[...]"},
    {"hinge_loss", "Logits[...] Labels[...]"},
    {"huber_loss", "X[...] Y[...]", "delta=0.5|1"},
    {"log_loss", "Predicted:+[...] Labels:+[...]", "epsilon=1"},
    {"margin_rank_loss", "X1[...] X2[...] Label[...]", "margin=0|0.1"},
    {"modified_huber_loss", "X[...] Y[...]"},
    {"teacher_student_sigmoid_loss", "X[...] Label[...]"},
    {"smooth_l1_loss", "X[n,...,d] Y[n,...,d]", "sigma=1|2"},
    {"hierarchical_sigmoid", "X[b,d] W[2,d] Label:i<3[b,1] Bias?[2,1]", "num_classes=3"},
    {"hierarchical_sigmoid", "X[b,d] W[v,d] Label:i<3[b,1] PathTable:i<v[b,l] PathCode:i<2[b,l]",
     "is_sparse=true|false"},
    {"nce", "Input[b,d] Label:i<4[b,t] Weight[4,d] Bias?[4] SampleWeight?:+[b,1]",
     "num_total_classes=4 num_neg_samples=2 sampler=0|1 is_sparse=true|false "
     "custom_neg_classes=[]"},
    {"sample_logits", "Logits[b,4] Labels:i<4[b,t]", "num_samples=2 use_customized_samples=false"},
    {"ref_by_trainer_id", "X*:a[...] TrainerId:i<1[1]"},
    {"tdm_child", "X:i<3[a,1] TreeInfo:i<3[3,5]", "child_nums=2 dtype=2|3"},
    {"hash", "X:i<5[n,d]", "num_hash=1|2 mod_by=100"},
    {"auc", "Predict:+[n,2] Label:i<2[n,1]", "num_thresholds=3", Buckets},
    {"precision_recall",
     "MaxProbs[n,1] Indices:i<3[n,1] Labels:i<3[n,1] Weights?:+[n,1] "
     "StatesInfo?:+[3,4]",
     "class_number=3"},
    {"positive_negative_pair", "Score[n,c] Label[n,1] QueryID:i<3[n,1] Weight?:+[n,1]",
     "column=0|-1"},
    {"fake_quantize_range_abs_max", "X[...] InScale:+[1] Iter?:i<5[1] InScales:+[3]",
     "window_size=3 bit_length=4|8"},
    {"fake_quantize_moving_average_abs_max fake_quantize_dequantize_moving_average_abs_max",
     "X[...] InScale:+[1] InAccum?:+[1] InState?:+[1]", "moving_rate=0.5 bit_length=4|8"},
    {"moving_average_abs_max_scale", "X[...] InAccum?:+[1] InState?:+[1]"},
    {"fake_channel_wise_quantize_abs_max", "X[a,b]", "quant_axis=0|1 bit_length=8"},
    {"fake_channel_wise_quantize_dequantize_abs_max", "X[a,b,...]", "quant_axis=0|1"},
    {"fake_dequantize_max_abs", "X[...] Scale:+[1]", "max_range=127"},
    {"fake_channel_wise_dequantize_max_abs", "X[a,b] Scales:+[a]", "quant_bits=[8] quant_axis=0"},
    {"dequantize_abs_max", "", "max_range=127", QuantizedMaxAbs},
    {"dequantize_log", "", "", QuantizedLog},
    {"lookup_table_dequant", "W[v,3] Ids:i<v[n,1]", "padding_idx=-1|0"},
    {"accuracy", "Out[n,k] Indices:i<5[n,k] Label:i<5[n,1]"},
    {"sampling_id", "X:+[n,c]", "min=0 max=1"},
    {"argsort", "X[a,b]", "axis=0|1|-1 descending=false|true"},
    {"unique", "X:n[a]", "dtype=2|3 axis=[]"},
    {"unique_with_counts", "X:n[a]", "dtype=2|3"},
    {"segment_pool", "X[n,d] SegmentIds:i<1[n]", "pooltype=MIN|MAX"},
    {"where_index", "Condition:b[...]"},
    {"histogram", "X", "bins=3 min=0 max=0|2"},
    {"allclose", "Input[...] Other[...]"},
    {"equal_all", "X:n[...] Y:n[...]"},
    {"shard_index", "X:i<5[n,1]", "index_num=8 nshards=2 shard_id=0|1"},
    {"eye", "", "num_rows=2|3 num_columns=-1|2 dtype=5|6|3"},
    {"linspace", "Start[1] Stop[1] Num:i<5[1]", "dtype=5|6"},
    {"fill", "", "value=[1,2] shape=[2]|[1,2] dtype=5|6|3"},
    {"empty", "", "shape=[2,3]|[1] dtype=5|6"},
    {"fill_zeros_like2", "X:a", "dtype=5|6"},
    {"size", "Input:a"},
    {"randint", "", "shape=[2,3]|[1] low=0 high=3|5 dtype=2|3"},
    {"randperm", "", "n=3|4 dtype=2|3|5"},
    {"bernoulli", "X:+[1]"},
    {"multinomial", "X:+[n,c]", "num_samples=2 replacement=true"},
    {"range", "Start:i<3[1] End:i<5[1] Step:i<3[1]"},
    {"fill_constant uniform_random gaussian_random truncated_gaussian_random", "",
     "shape=[2,3]|[1]|[0,2]|[] dtype=5|6|5|3 str_value=1|0.5 min=-1 max=1 std=0.5|1"},
    {"fill_constant_batch_size_like uniform_random_batch_size_like "
     "gaussian_random_batch_size_like",
     "Input:a[n,m]",
     "shape=[-1,3]|[2,4]|[-1,1,2] dtype=5|6 input_dim_idx=0|1 output_dim_idx=0|1 str_value=0.5 "
     "min=-1 max=1"},
    {"prior_box", "Input[n,c,h,w] Image[n,c,k,l]",
     "min_sizes=[2] max_sizes=[]|[3] aspect_ratios=[1]|[2,3] variances=[1,1,2,2] step_w=0|2 "
     "step_h=0|2"},
    {"density_prior_box", "Input[n,c,h,w] Image[n,c,k,l]",
     "fixed_sizes=[2,4] fixed_ratios=[1] densities=[1,2] variances=[1,1,2,2] step_w=0|2 step_h=0"},
    {"anchor_generator", "Input[n,c,h,w]",
     "anchor_sizes=[2]|[4,8] aspect_ratios=[1] variances=[1,1,2,2] stride=[4,4]"},
    {"box_coder", "PriorBox[m,4] PriorBoxVar?[m,4] TargetBox[n,4]",
     "code_type=encode_center_size variance=[] axis=0"},
    {"box_coder", "PriorBox[m,4] PriorBoxVar?[m,4] TargetBox[n,m,4]",
     "code_type=decode_center_size variance=[] axis=0"},
    {"box_decoder_and_assign", "PriorBox[n,4] TargetBox[n,8] BoxScore[n,2]"},
    {"box_clip", "Input[n,4] ImInfo:+[1,3]"},
    {"polygon_box_transform", "Input[n,4,h,w]"},
    {"bipartite_match", "DistMat:+[m,n]", "match_type=bipartite|per_prediction"},
    {"target_assign", "X:n[9,p,k] MatchIndices:c[1,m]"},
    {"mine_hard_examples", "ClsLoss[n,m] LocLoss?[n,m] MatchIndices:c[n,m] MatchDist[n,m]",
     "neg_pos_ratio=1|2 sample_size=1 mining_type=max_negative|hard_example"},
    {"yolo_box", "X[n,7,h,w] ImgSize:c[n,2]", "class_num=2 anchors=[4,8] iou_aware=false"},
    {"multiclass_nms multiclass_nms2 multiclass_nms3 matrix_nms locality_aware_nms",
     "BBoxes[n,m,4] Scores[n,c,m]",
     "score_threshold=0|0.3 nms_top_k=-1|2 keep_top_k=-1|1 background_label=-1|0"},
    {"generate_proposals",
     "Scores[n,1,h,w] BboxDeltas[n,4,h,w] ImInfo:+[n,3] Anchors[h,w,1,4] Variances[h,w,1,4]",
     "pre_nms_topN=0|2 post_nms_topN=0|1 nms_thresh=0.5 min_size=0 eta=1"},
    {"generate_proposals_v2",
     "Scores[n,1,h,w] BboxDeltas[n,4,h,w] ImShape:+[n,2] Anchors[h,w,1,4] Variances[h,w,1,4]",
     "pre_nms_topN=0|2 post_nms_topN=0|1 nms_thresh=0.5 min_size=0 eta=1"},
    {"distribute_fpn_proposals", "FpnRois[r,4]",
     "min_level=2 max_level=3 refer_level=2 refer_scale=1|4",
     [](OpDraft& d) {
       d.outputs["MultiFpnRois"] = 2;
       d.outputs["MultiLevelRoIsNum"] = d.choose.OneIn(2) ? 2 : 0;
     }},
    {"collect_fpn_proposals", "MultiLevelRois[r,4] MultiLevelScores[r,1]", "post_nms_topN=2"},
    {"rpn_target_assign", "Anchor[a,4] GtBoxes[g,4] IsCrowd:c[g,1] ImInfo:+[1,3]",
     "rpn_straddle_thresh=-1|5 rpn_batch_size_per_im=2|8"},
    {"retinanet_target_assign",
     "Anchor[a,4] GtBoxes[g,4] GtLabels:c[g,1] IsCrowd:c[g,1] ImInfo:+[1,3]"},
    {"generate_proposal_labels",
     "RpnRois[r,4] GtClasses:i<3[g,1] IsCrowd:c[g,1] GtBoxes[g,4] ImInfo:+[1,3]",
     "batch_size_per_im=2|8 fg_fraction=0.5 fg_thresh=0.5 bg_thresh_hi=0.5 bg_thresh_lo=0 "
     "bbox_reg_weights=[1,1,2,2] class_nums=3 is_cascade_rcnn=false"},
    {"roi_align roi_pool prroi_pool", "X[1,c,h,w] ROIs[r,4]", "pooled_height=1|2 pooled_width=1|2"},
    {"psroi_pool", "X[1,8,h,w] ROIs[r,4]", "output_channels=2 pooled_height=2 pooled_width=2"},
    {"yolov3_loss", "X[n,7,h,w] GTBox[n,b,4] GTLabel:i<2[n,b] GTScore?:+[n,b]",
     "class_num=2 anchors=[4,8] anchor_mask=[0]"},
    {"sigmoid_focal_loss", "X[n,c] Label:i<2[n,1] FgNum:c[1]"},
    {"mean_iou", "Predictions:i<3[...] Labels:i<3[...]", "num_classes=3"},
    {"detection_map", "DetectRes[m,6] Label[n,5]", "class_num=3"},
    {"similarity_focus", "X[n,a,b,c]", "axis=1|2|3 indexes=[0]"},
    {"retinanet_detection_output", "BBoxes[n,a,4] Scores[n,a,c] Anchors[a,4] ImInfo:+[n,3]",
     "score_threshold=0.1 nms_top_k=4 nms_threshold=0.5 nms_eta=1 keep_top_k=2"},
    {"clip", "X Min?[1] Max?[1]", "min=-1|-0.5 max=0.5|1"},
    {"clip_by_norm", "X", "max_norm=0.5|1"},
    {"dropout", "X", "dropout_prob=0.5|1"},
    {"assert", "Cond:b[1] Data*"},
    {"c_allreduce_max c_allreduce_min c_allreduce_prod c_reduce_sum c_reduce_max c_reduce_min "
     "c_reduce_prod c_broadcast barrier allreduce broadcast ncclAllReduce ncclReduce ncclBcast",
     "X:a"},
    {"c_scatter partial_allgather", "X:a", "nranks=1|0"},
    {"coalesce_tensor", "Input*[...]",
     "dtype=5 use_align=false|true align_size=8|0 copy_data=false set_constant=false|true "
     "check_name=false",
     OneOutputForEachInput},
    {"fake_init", "", "shape=[2,3]|[1]|[]"},
    {"delete_var", "X*"},
    {"marker c_comm_init_all", ""},
    // Of a phase that is not this one, so that nothing is written.
    {"print", "In:a", "print_phase=FORWARD is_forward=false"},
    {"chunk_eval", "Inference:i<3[b,t] Label:i<3[b,t] SeqLength:i<t[b]",
     "num_chunk_types=1|2 chunk_scheme=IOB|IOE excluded_chunk_types=[]"},
    {"crf_decoding", "Emission[b,t,3] Transition[5,3] Label?:i<3[b,t] Length:i<t[b]"},
    {"ctc_align", "Input:i<3[b,t] InputLength:i<t[b]"},
    {"edit_distance", "Hyps:i<3[b,t] Refs:i<3[b,u] HypsLength:i<t[b] RefsLength:i<u[b]",
     "normalized=false"},
    {"gather_tree", "Ids:i<3[t,b,k] Parents:i<k[t,b,k]"},
    {"multihead_matmul", "Input[b,s,c] W[c,3,4] Bias[3,4] BiasQK[b,2,s,s]",
     "head_number=2 alpha=0.5 transpose_Q=false transpose_K=true transpose_V=false"},
    {"skip_layernorm", "X[a,b,d] Y[a,b,d] Scale?[d] Bias?[d]", "begin_norm_axis=2 epsilon=0.1"},
    {"fused_embedding_eltwise_layernorm", "Embs[v,d] Ids:i<v[b,s] Scale?[d] Bias?[d]",
     "epsilon=0.1"},
    {"fused_fc_elementwise_layernorm", "X[a,k] W[k,d] Bias0?[d] Y[a,d] Scale?[d] Bias1?[d]",
     "x_num_col_dims=1 begin_norm_axis=1 epsilon=0.1"},
    {"cudnn_lstm", "Input[t,n,i] SequenceLength?:i<t[n]", "num_layers=1 is_bidirec=false",
     CudnnLstm},
    {"conv2d_fusion", "Input[n,c,h,w] Filter[m,c,k,l] Bias?[m]",
     "strides=[1,1]|[2,1] paddings=[0,0]|[1,1] dilations=[1,1] groups=1 data_format=NCHW "
     "padding_algorithm=EXPLICIT activation=relu|identity|tanh split_channels=[]",
     [](OpDraft& d) { d.outputs["Outputs"] = 0; }},
    {"viterbi_decode", "Input[b,t,n] Transition[n,n] Length:i<t[b]"},
    {"update_loss_scaling",
     "FoundInfinite:b[1] PrevLossScaling:+[1] InGoodSteps:c[1] InBadSteps:c[1]",
     "incr_ratio=2 decr_ratio=0.5 incr_every_n_steps=1|2 decr_every_n_nan_or_inf=1|2 "
     "max_skipped_steps=0 min_scale=0 max_scale=100",
     [](OpDraft& d) { d.outputs["Out"] = 0; }},
    {"average_accumulates",
     "param[...] in_sum_1[...] in_sum_2[...] in_sum_3[...] in_num_accumulates:i<3[1] "
     "in_old_num_accumulates:i<3[1] in_num_updates:i<3[1]",
     "average_window=0.5 max_average_window=5 min_average_window=1|2"},
    {"lod_array_length", "X:A"},
    {"read_from_array", "X:A I:i<2[1]"},
    {"read_from_array", "X:A I:i<3[1] X_W"},
    {"unset_in_array", "X:A I:i<2[1]"},
    {"write_to_array", "X:a I:i<3[1]"},
    {"get_tensor_from_selected_rows merge_selected_rows", "X:R[v,d]"},
    {"sgd dpsgd proximal_gd", "Param[...] Grad[...] LearningRate:+[1]"},
    {"sgd", "Param[v,d] Grad:R[v,d] LearningRate:+[1]"},
    {"momentum lars_momentum", "Param[...] Grad[...] Velocity[...] LearningRate:+[1]", "mu=0.9"},
    {"momentum", "Param[v,d] Grad:R[v,d] Velocity[v,d] LearningRate:+[1]", "mu=0.9"},
    {"adagrad decayed_adagrad proximal_adagrad lion",
     "Param[...] Grad[...] Moment:+[...] LearningRate:+[1]"},
    {"adagrad", "Param[v,d] Grad:R[v,d] Moment:+[v,d] LearningRate:+[1]"},
    {"adadelta", "Param[...] Grad[...] AvgSquaredGrad:+[...] AvgSquaredUpdate:+[...]"},
    {"adam lamb",
     "Param[...] Grad[...] LearningRate:+[1] Moment1[...] Moment2:+[...] Beta1Pow:+[1] "
     "Beta2Pow:+[1]",
     "weight_decay=0.1 multi_precision=false beta1=0.9 beta2=0.99"},
    {"adam",
     "Param[v,d] Grad:R[v,d] LearningRate:+[1] Moment1[v,d] Moment2:+[v,d] Beta1Pow:+[1] "
     "Beta2Pow:+[1]",
     "lazy_mode=false|true multi_precision=false beta1=0.9 beta2=0.99"},
    {"adamax", "Param[...] Grad[...] LearningRate:+[1] Moment[...] InfNorm:+[...] Beta1Pow:+[1]",
     "beta1=0.9 beta2=0.99"},
    {"rmsprop",
     "Param[...] MeanSquare:+[...] MeanGrad[...] LearningRate:+[1] Grad[...] Moment[...]",
     "decay=0.9 momentum=0|0.5"},
    {"ftrl",
     "Param[...] SquaredAccumulator:+[...] LinearAccumulator[...] Grad[...] LearningRate:+[1]"},
};

SlotHint ParseSlot(std::string_view text) {
  SlotHint slot;
  size_t at = text.find_first_of("?*:[");
  slot.name = std::string(text.substr(0, at));
  while (at < text.size()) {
    const char c = text[at++];
    if (c == '?') slot.optional = true;
    if (c == '*') slot.variadic = true;
    if (c == ':') {
      slot.kind = text[at++];
      if (at < text.size() && text[at] == '<') {
        const size_t end = std::min(text.find('[', at), text.size());
        slot.limit = std::string(text.substr(at + 1, end - at - 1));
        at = end;
      }
    }
    if (c == '[') {
      slot.any_shape = false;
      slot.dims = Split(std::string(text.substr(at, text.size() - at - 1)), ',');
      at = text.size();
    }
  }
  const auto rest = std::find(slot.dims.begin(), slot.dims.end(), "...");
  if (rest != slot.dims.end()) {
    slot.rest_at = static_cast<int>(rest - slot.dims.begin());
    slot.dims.erase(rest);
  }
  return slot;
}

Recipe Parse(const OpHint& hint, bool smooth) {
  Recipe recipe{{}, {}, hint.finish, smooth};
  for (const std::string& slot : Split(hint.slots, ' ')) {
    if (!slot.empty()) recipe.slots.push_back(ParseSlot(slot));
  }
  for (const std::string& attr : Split(hint.attrs, ' ')) {
    const size_t equals = attr.find('=');
    if (equals != attr.npos)
      recipe.attrs.emplace_back(attr.substr(0, equals), Split(attr.substr(equals + 1), '|'));
  }
  return recipe;
}

using Table = std::map<std::string, std::vector<Recipe>>;

void AddTo(Table& table, const OpHint& hint, bool smooth) {
  for (const std::string& type : Split(hint.types, ' ')) table[type].push_back(Parse(hint, smooth));
}

const Table& SmoothTable() {
  static const Table table = [] {
    Table made;
    for (const OpHint& hint : kSmooth) AddTo(made, hint, true);
    return made;
  }();
  return table;
}

const Table& WholeTable() {
  static const Table table = [] {
    Table made = SmoothTable();
    for (const OpHint& hint : kOther) AddTo(made, hint, false);
    return made;
  }();
  return table;
}

}  // namespace

const VarMeta* OpDraft::Find(const std::string& name) const {
  for (const ProgramInput& input : made) {
    if (input.name == name) return &input.meta;
  }
  const VarDesc* var = block.FindVarRecursive(name);
  return var ? &var->meta() : nullptr;
}

const Shape& OpDraft::ShapeOf(std::string_view slot, size_t i) const {
  for (const Slot& given : inputs) {
    if (given.name == slot) return Find(given.args.at(i))->shape;
  }
  throw InternalError("a hint asks for a slot that the op was not given");
}

bool OpDraft::Has(std::string_view attr) const {
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const NamedAttr& a) { return a.name == attr; });
}

void OpDraft::Set(std::string_view attr, Attribute value) {
  for (NamedAttr& given : attrs) {
    if (given.name == attr) {
      given.value = std::move(value);
      return;
    }
  }
  attrs.push_back({std::string(attr), std::move(value)});
}

std::string OpDraft::NewInput(DType type, const Shape& shape, double limit) {
  ProgramInput input;
  input.name = "in" + std::to_string((*next_name)++);
  input.meta = {VarType::kLoDTensor, type, shape, 0};
  input.limit = limit;
  made.push_back(input);
  return input.name;
}

const std::vector<Recipe>& RecipesFor(const std::string& type, bool smooth) {
  static const std::vector<Recipe> none;
  const Table& table = smooth ? SmoothTable() : WholeTable();
  const auto found = table.find(type);
  return found == table.end() ? none : found->second;
}

std::optional<SlotHint> SlotFromDoc(const SlotDef& slot) {
  const size_t end = slot.doc.find(']');
  if (slot.doc.empty() || slot.doc[0] != '[' || end == slot.doc.npos) return std::nullopt;
  std::string dims;
  for (const std::string& word : Split(slot.doc.substr(1, end - 1), ',')) {
    const std::string dim(Trim(word));
    const bool letter = dim.size() == 1 && std::isalnum(static_cast<unsigned char>(dim[0]));
    if (!letter && dim != "...") return std::nullopt;
    dims += (dims.empty() ? "" : ",") + dim;
  }
  SlotHint hint = ParseSlot(slot.name + "[" + dims + "]");
  hint.optional = slot.optional;
  hint.variadic = slot.variadic;
  return hint;
}

const std::vector<std::string>& SmoothTypes() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> names;
    for (const auto& [type, recipes] : SmoothTable()) names.push_back(type);
    return names;
  }();
  return types;
}

Attribute ParseAttr(const std::string& text, AttrType type, const std::map<char, int64_t>& dims) {
  if (type == AttrType::kString) return text;
  if (type == AttrType::kBoolean) return text == "true";
  const auto number = [&](const std::string& word) {
    const auto letter = word.size() == 1 ? dims.find(word[0]) : dims.end();
    return letter != dims.end() ? static_cast<double>(letter->second)
                                : std::strtod(word.c_str(), nullptr);
  };
  std::vector<double> list;
  const bool is_list = !text.empty() && text[0] == '[';
  const std::string inner = is_list ? text.substr(1, text.size() - 2) : text;
  for (const std::string& word : Split(inner, ',')) {
    if (!word.empty()) list.push_back(number(word));
  }
  switch (type) {
    case AttrType::kInt:
      return static_cast<int32_t>(list.at(0));
    case AttrType::kLong:
      return static_cast<int64_t>(list.at(0));
    case AttrType::kFloat:
      return static_cast<float>(list.at(0));
    case AttrType::kFloat64:
      return list.at(0);
    case AttrType::kInts:
      return Ints(list.begin(), list.end());
    case AttrType::kLongs:
      return std::vector<int64_t>(list.begin(), list.end());
    case AttrType::kFloats:
      return std::vector<float>(list.begin(), list.end());
    default:
      throw InternalError("a hint gives an attr of a type that it cannot spell");
  }
}

}  // namespace coracle
