// The table of ops that have a counterpart of the same shape in a ProgramDesc.
//
// Source of names: Paddle's ops.yaml, static_ops.yaml (operands and attributes of Paddle 3) and
// op_compat.yaml (their names in a ProgramDesc).

#include <coracle/convert/pir/op_reader.h>

#include <unordered_map>

namespace coracle::pir {
namespace {

// One tensor in, one out, the same name, no attributes.
const std::vector<const char*>& SameUnary() {
  static const std::vector<const char*> names = {
      "abs",        "acos",        "asin",        "assign",      "atan",
      "bernoulli",  "bitwise_not", "ceil",        "conj",        "cos",
      "cosh",       "erf",         "exp",         "expm1",       "floor",
      "imag",       "is_empty",    "l1_norm",     "lgamma",      "log",
      "log10",      "log1p",       "log2",        "logical_not", "logsigmoid",
      "real",       "reciprocal",  "relu",        "rsqrt",       "sequence_softmax",
      "share_data", "sigmoid",     "sign",        "silu",        "sin",
      "sinh",       "softsign",    "sqrt",        "square",      "squared_l2_norm",
      "tan",        "tanh",        "tanh_shrink", "trunc"};
  return names;
}

const std::vector<Row>& Elementwise() {
  static const std::vector<Row> rows = {
      {"add", "elementwise_add", "X Y", "Out"},
      {"subtract", "elementwise_sub", "X Y", "Out"},
      {"multiply", "elementwise_mul", "X Y", "Out"},
      {"divide", "elementwise_div", "X Y", "Out"},
      {"maximum", "elementwise_max", "X Y", "Out"},
      {"minimum", "elementwise_min", "X Y", "Out"},
      {"floor_divide", "elementwise_floordiv", "X Y", "Out"},
      {"remainder", "elementwise_mod", "X Y", "Out"},
      {"elementwise_pow", "elementwise_pow", "X Y", "Out"},
      {"grad_add", "elementwise_add", "X Y", "Out"},
      {"equal", "equal", "X Y", "Out"},
      {"not_equal", "not_equal", "X Y", "Out"},
      {"less_than", "less_than", "X Y", "Out"},
      {"less_equal", "less_equal", "X Y", "Out"},
      {"greater_than", "greater_than", "X Y", "Out"},
      {"greater_equal", "greater_equal", "X Y", "Out"},
      {"logical_and", "logical_and", "X Y", "Out"},
      {"logical_or", "logical_or", "X Y", "Out"},
      {"logical_xor", "logical_xor", "X Y", "Out"},
      {"bitwise_and", "bitwise_and", "X Y", "Out"},
      {"bitwise_or", "bitwise_or", "X Y", "Out"},
      {"bitwise_xor", "bitwise_xor", "X Y", "Out"},
      {"bitwise_left_shift", "bitwise_left_shift", "X Y", "Out"},
      {"bitwise_right_shift", "bitwise_right_shift", "X Y", "Out"},
      {"equal_all", "equal_all", "X Y", "Out"},
      {"allclose", "allclose", "Input Other =rtol:Rtol =atol:Atol", "Out"},
      {"atan2", "atan2", "X1 X2", "Out"},
      {"complex", "complex", "X Y", "Out"},
      {"where", "where", "Condition X Y", "Out"},
      {"pow", "pow", "X =y>factor:FactorTensor", "Out"},
      {"scale", "scale", "X =scale:ScaleTensor =bias", "Out"},
      {"clip", "clip", "X =min:Min =max:Max", "Out"},
      {"increment", "increment", "X", "Out", "value>step"},
      {"add_n", "sum", "X", "Out"},
      {"multiplex", "multiplex", "X Ids", "Out"},
      {"isfinite", "isfinite_v2", "X", "Out"},
      {"isinf", "isinf_v2", "X", "Out"},
      {"isnan", "isnan_v2", "X", "Out"},
      {"round", "round", "X", "Out", "decimals==0"},
      {"relu6", "relu6", "X", "Out"},
      {"elu", "elu", "X", "Out"},
      {"selu", "selu", "X", "Out"},
      {"gelu", "gelu", "X", "Out"},
      {"leaky_relu", "leaky_relu", "X", "Out", "negative_slope>alpha"},
      {"hardshrink", "hard_shrink", "X", "Out"},
      {"hardsigmoid", "hard_sigmoid", "X", "Out"},
      {"hardswish", "hard_swish", "X", "Out"},
      {"hardtanh", "brelu", "X", "Out"},
      {"mish", "mish", "X", "Out", "lambda>threshold"},
      {"prelu", "prelu", "X Alpha", "Out", "data_format==NCHW"},
      {"softplus", "softplus", "X", "Out"},
      {"softshrink", "softshrink", "X", "Out", "threshold>lambda"},
      {"soft_relu", "soft_relu", "X", "Out"},
      {"stanh", "stanh", "X", "Out"},
      {"swish", "swish", "X", "Out"},
      {"thresholded_relu", "thresholded_relu", "X", "Out", "value==0"},
      {"maxout", "maxout", "X", "Out"},
      {"softmax", "softmax", "X", "Out"},
      {"log_softmax", "log_softmax", "X", "Out"},
      {"dropout", "dropout", "X Seed =p>dropout_prob", "Out Mask", "mode>dropout_implementation"},
      {"cast", "cast", "X", "Out", "dtype>out_dtype"},
      {"assign_out", "assign", "X _", "Out"},
      {"memcpy", "assign", "X", "Out", "!dst_place_type"},
      {"memcpy_h2d", "assign", "X", "Out", "!dst_place_type"},
      {"memcpy_d2h", "assign", "X", "Out", "!dst_place_type"},
      {"npu_identity", "assign", "X", "Out", "!format"},
      {"depend", "assign", "X _", "Out"},
      {"shadow_feed", "assign", "X", "Out", "!dst_place_type"},
      {"fill", "fill_any_like", "X =value", "Out"},
      {"full_like", "fill_any_like", "X =value", "Out"},
      {"empty_like", "fill_any_like", "X", "Out", "+value=0"},
  };
  return rows;
}

const std::vector<Row>& Layers() {
  static const std::vector<Row> rows = {
      {"matmul", "matmul_v2", "X Y", "Out", "transpose_x>trans_x transpose_y>trans_y"},
      {"legacy_matmul", "matmul", "X Y", "Out", "transpose_x>transpose_X transpose_y>transpose_Y"},
      {"matmul_with_flatten", "mul", "X Y", "Out"},
      {"bmm", "bmm", "X Y", "Out"},
      {"mv", "mv", "X Vec", "Out"},
      {"dot", "dot", "X Y", "Out"},
      {"addmm", "addmm", "Input X Y", "Out", "alpha>Alpha beta>Beta"},
      {"bilinear", "bilinear_tensor_product", "X Y Weight Bias", "Out"},
      {"conv2d", "conv2d", "Input Filter", "Output"},
      {"depthwise_conv2d", "depthwise_conv2d", "Input Filter", "Output"},
      {"conv3d", "conv3d", "Input Filter", "Output"},
      {"conv2d_transpose", "conv2d_transpose", "Input Filter =output_size", "Output"},
      {"conv2d_transpose_bias", "conv2d_transpose", "Input Filter Bias =output_size", "Output"},
      {"depthwise_conv2d_transpose", "depthwise_conv2d_transpose", "Input Filter =output_size",
       "Output"},
      {"conv3d_transpose", "conv3d_transpose", "Input Filter", "Output"},
      {"pool2d", "pool2d", "X =kernel_size>ksize", "Out"},
      {"pool3d", "pool3d", "X", "Out", "kernel_size>ksize"},
      {"max_pool2d_with_index", "max_pool2d_with_index", "X", "Out Mask",
       "kernel_size>ksize ceil_mode==false"},
      {"max_pool3d_with_index", "max_pool3d_with_index", "X", "Out Mask",
       "kernel_size>ksize ceil_mode==false"},
      {"batch_norm", "batch_norm", "X Mean Variance Scale Bias",
       "Y MeanOut=Mean VarianceOut=Variance SavedMean SavedVariance _", "data_format>data_layout"},
      {"sync_batch_norm", "sync_batch_norm", "X Mean Variance Scale Bias",
       "Y MeanOut=Mean VarianceOut=Variance SavedMean SavedVariance _", "data_format>data_layout"},
      {"layer_norm", "layer_norm", "X Scale Bias", "Y Mean Variance"},
      {"group_norm", "group_norm", "X Scale Bias", "Y Mean Variance", "data_format>data_layout"},
      {"instance_norm", "instance_norm", "X Scale Bias", "Y SavedMean SavedVariance"},
      {"lrn", "lrn", "X", "Out MidOut"},
      {"norm", "norm", "X", "Out Norm", "!is_test"},
      {"p_norm", "p_norm", "X", "Out"},
      {"frobenius_norm", "frobenius_norm", "X =axis>dim", "Out"},
      {"affine_channel", "affine_channel", "X Scale Bias", "Out"},
      {"spectral_norm", "spectral_norm", "Weight U V", "Out"},
      {"embedding", "lookup_table_v2", "Ids W", "Out", "sparse>is_sparse"},
      {"linear_interp", "linear_interp_v2", "X OutSize SizeTensor Scale", "Out",
       "data_format>data_layout"},
      {"bilinear_interp", "bilinear_interp_v2", "X OutSize SizeTensor Scale", "Out",
       "data_format>data_layout"},
      {"trilinear_interp", "trilinear_interp_v2", "X OutSize SizeTensor Scale", "Out",
       "data_format>data_layout"},
      {"nearest_interp", "nearest_interp_v2", "X OutSize SizeTensor Scale", "Out",
       "data_format>data_layout"},
      {"bicubic_interp", "bicubic_interp_v2", "X OutSize SizeTensor Scale", "Out",
       "data_format>data_layout"},
      {"grid_sample", "grid_sampler", "X Grid", "Output"},
      {"affine_grid", "affine_grid", "Theta =output_shape:OutputShape", "Output"},
      {"pad", "pad", "X =pad_value", "Out"},
      {"pad3d", "pad3d", "X =paddings:Paddings", "Out", "pad_value>value"},
      {"pixel_shuffle", "pixel_shuffle", "X", "Out"},
      {"shuffle_channel", "shuffle_channel", "X", "Out"},
      {"channel_shuffle", "shuffle_channel", "X", "Out", "groups>group data_format==NCHW"},
      {"temporal_shift", "temporal_shift", "X", "Out"},
      {"unfold", "unfold", "X", "Y"},
      {"rnn", "rnn", "Input PreState WeightList SequenceLength _", "Out _ State Reserve"},
      {"cudnn_lstm", "cudnn_lstm", "Input InitH InitC W WeightList SequenceLength",
       "Out LastH LastC Reserve StateOut"},
      {"lstm", "lstm", "Input H0 C0 Weight Bias", "Hidden Cell BatchGate BatchCellPreAct",
       "!is_test"},
      {"gru", "gru", "Input H0 Weight Bias", "BatchGate BatchResetHiddenPrev BatchHidden Hidden",
       "!is_test"},
      {"gru_unit", "gru_unit", "Input HiddenPrev Weight Bias", "Gate ResetHiddenPrev Hidden"},
      {"row_conv", "row_conv", "X Filter", "Out"},
      {"im2sequence", "im2sequence", "X Y", "Out"},
      {"add_position_encoding", "add_position_encoding", "X", "Out"},
  };
  return rows;
}

const std::vector<Row>& Shapes() {
  static const std::vector<Row> rows = {
      {"reshape", "reshape2", "X =shape:Shape:ShapeTensor", "Out"},
      {"view_shape", "reshape2", "X", "Out", "dims>shape"},
      {"flatten", "flatten_contiguous_range", "X", "Out"},
      {"squeeze", "squeeze2", "X =axis>axes", "Out"},
      {"unsqueeze", "unsqueeze2", "X =axis>axes:AxesTensor:AxesTensorList", "Out"},
      {"transpose", "transpose2", "X", "Out", "perm>axis"},
      {"trans_layout", "transpose2", "X", "Out", "perm>axis"},
      {"concat", "concat", "X =axis:AxisTensor", "Out"},
      {"stack", "stack", "X", "Y"},
      {"unstack", "unstack", "X", "Y"},
      {"unbind", "unbind", "X", "Out"},
      {"split", "split", "X =sections::SectionsTensorList =axis:AxisTensor", "Out"},
      {"split_with_num", "split", "X =axis:AxisTensor", "Out"},
      {"slice", "slice",
       "Input =starts:StartsTensor:StartsTensorList =ends:EndsTensor:EndsTensorList", "Out", "~"},
      {"strided_slice", "strided_slice",
       "Input =starts:StartsTensor:StartsTensorList =ends:EndsTensor:EndsTensorList "
       "=strides:StridesTensor:StridesTensorList",
       "Out", "~"},
      {"crop", "crop_tensor", "X =shape:Shape:ShapeTensor =offsets:Offsets:OffsetsTensor", "Out"},
      {"expand", "expand_v2", "X =shape:Shape:expand_shapes_tensor", "Out"},
      {"tile", "tile", "X =repeat_times:RepeatTimes:repeat_times_tensor", "Out"},
      {"broadcast_tensors", "broadcast_tensors", "X", "Out"},
      {"meshgrid", "meshgrid", "X", "Out"},
      {"gather", "gather", "X Index =axis:Axis", "Out"},
      {"gather_nd", "gather_nd", "X Index", "Out"},
      {"index_select", "index_select", "X Index", "Out", "axis>dim"},
      {"index_sample", "index_sample", "X Index", "Out"},
      {"scatter", "scatter", "X Ids Updates", "Out"},
      {"scatter_nd_add", "scatter_nd_add", "X Index Updates", "Out"},
      {"masked_select", "masked_select", "X Mask", "Y"},
      {"nonzero", "where_index", "Condition", "Out"},
      {"roll", "roll", "X =shifts", "Out"},
      {"flip", "flip", "X", "Out"},
      {"reverse", "reverse", "X =axis", "Out"},
      {"tril", "tril_triu", "X", "Out", "+lower=true"},
      {"triu", "tril_triu", "X", "Out", "+lower=false"},
      {"eye", "eye", "=num_rows =num_columns", "Out"},
      {"diag", "diag_v2", "X", "Out"},
      {"diag_embed", "diag_embed", "Input", "Out"},
      {"diagonal", "diagonal", "Input", "Out"},
      {"trace", "trace", "Input", "Out"},
      {"one_hot", "one_hot_v2", "X =num_classes>depth:depth_tensor", "Out"},
      {"shape", "shape", "Input", "Out"},
      {"shape64", "shape", "Input", "Out"},
      {"numel", "size", "Input", "Out"},
      {"shard_index", "shard_index", "X", "Out"},
      {"unique", "unique", "X", "Out Indices Index Counts"},
      {"empty", "empty", "=shape:ShapeTensor:ShapeTensorList", "Out"},
      {"full_with_tensor", "fill_constant", "ValueTensor =shape:ShapeTensor:ShapeTensorList",
       "Out"},
      {"full_batch_size_like", "fill_constant_batch_size_like", "Input =value", "Out"},
      {"gaussian", "gaussian_random", "=shape:ShapeTensor:ShapeTensorList", "Out"},
      {"uniform", "uniform_random", "=shape:ShapeTensor:ShapeTensorList =min =max", "Out"},
      {"randint", "randint", "=shape:ShapeTensor:ShapeTensorList", "Out"},
      {"truncated_gaussian_random", "truncated_gaussian_random", "", "Out", "a==-2 b==2"},
      {"randperm", "randperm", "", "Out"},
      {"multinomial", "multinomial", "X =num_samples", "Out"},
      {"partial_concat", "partial_concat", "X", "Out"},
      {"partial_sum", "partial_sum", "X", "Out"},
      {"cumsum", "cumsum", "X =axis", "Out"},
      {"argsort", "argsort", "X", "Out Indices", "!stable"},
      {"argmax", "arg_max", "X =axis", "Out"},
      {"argmin", "arg_min", "X =axis", "Out"},
      {"topk", "top_k_v2", "X =k:K", "Out Indices"},
      {"mean_all", "mean", "X", "Out"},
      {"logsumexp", "logsumexp", "X =axis", "Out"},
      {"clip_by_norm", "clip_by_norm", "X", "Out"},
      {"histogram", "histogram", "X", "Out", "density==false"},
      {"segment_pool", "segment_pool", "X SegmentIds", "Out SummedIds"},
      {"cross", "cross", "X Y", "Out", "axis>dim"},
      {"kron", "kron", "X Y", "Out"},
      {"dist", "dist", "X Y", "Out"},
      {"inverse", "inverse", "Input", "Output"},
      {"cholesky", "cholesky", "X", "Out"},
      {"print", "print", "In", "Out"},
      {"assert", "assert", "Cond Data", ""},
  };
  return rows;
}

const std::vector<Row>& Detection() {
  static const std::vector<Row> rows = {
      {"multiclass_nms3", "multiclass_nms3", "BBoxes Scores RoisNum", "Out Index NmsRoisNum"},
      {"matrix_nms", "matrix_nms", "BBoxes Scores", "Out Index RoisNum"},
      {"yolo_box", "yolo_box", "X ImgSize", "Boxes Scores"},
      {"yolo_loss", "yolov3_loss", "X GTBox GTLabel GTScore", "Loss ObjectnessMask GTMatchMask"},
      {"prior_box", "prior_box", "Input Image", "Boxes Variances"},
      {"anchor_generator", "anchor_generator", "Input", "Anchors Variances"},
      {"box_coder", "box_coder", "PriorBox PriorBoxVar TargetBox", "OutputBox"},
      {"box_clip", "box_clip", "Input ImInfo", "Output"},
      {"roi_align", "roi_align", "X ROIs RoisNum", "Out"},
      {"roi_pool", "roi_pool", "X ROIs RoisNum", "Out Argmax"},
      {"generate_proposals", "generate_proposals_v2", "Scores BboxDeltas ImShape Anchors Variances",
       "RpnRois RpnRoiProbs RpnRoisNum", "pre_nms_top_n>pre_nms_topN post_nms_top_n>post_nms_topN"},
      {"distribute_fpn_proposals", "distribute_fpn_proposals", "FpnRois RoisNum",
       "MultiFpnRois MultiLevelRoIsNum RestoreIndex"},
      {"collect_fpn_proposals", "collect_fpn_proposals",
       "MultiLevelRois MultiLevelScores MultiLevelRoIsNum", "FpnRois RoisNum",
       "post_nms_topn>post_nms_topN"},
      {"bipartite_match", "bipartite_match", "DistMat", "ColToRowMatchIndices ColToRowMatchDist"},
      {"crf_decoding", "crf_decoding", "Emission Transition Label Length", "ViterbiPath"},
      {"viterbi_decode", "viterbi_decode", "Input Transition Length", "Scores Path"},
      {"ctc_align", "ctc_align", "Input InputLength", "Output OutputLength"},
      {"gather_tree", "gather_tree", "Ids Parents", "Out"},
      {"edit_distance", "edit_distance", "Hyps Refs HypsLength RefsLength", "SequenceNum Out"},
      {"sequence_mask", "sequence_mask", "X =max_len>maxlen:MaxLenTensor", "Y"},
      {"sequence_conv", "sequence_conv", "X PaddingData Filter", "Out",
       "context_length>contextLength context_start>contextStart context_stride>contextStride "
       "padding_trainable>paddingTrainable"},
      {"sequence_pool", "sequence_pool", "X", "Out MaxIndex"},
      {"sequence_expand", "sequence_expand", "X Y", "Out"},
      {"accuracy", "accuracy", "Out Indices Label", "Accuracy Correct Total"},
      {"cross_entropy_with_softmax", "softmax_with_cross_entropy", "Logits Label", "Softmax Loss"},
      {"bce_loss", "bce_loss", "X Label", "Out"},
      {"sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits", "X Label", "Out"},
      {"huber_loss", "huber_loss", "X Y", "Out Residual"},
      {"kldiv_loss", "kldiv_loss", "X Target", "Loss", "log_target==false"},
      {"log_loss", "log_loss", "Predicted Labels", "Loss"},
      {"nll_loss", "nll_loss", "X Label Weight", "Out Total_weight"},
      {"hinge_loss", "hinge_loss", "Logits Labels", "Loss"},
      {"label_smooth", "label_smooth", "X PriorDist", "Out"},
      {"warpctc", "warpctc", "Logits Label LogitsLength LabelLength", "Loss WarpCTCGrad"},
      {"quantize_linear", "quantize_linear", "X Scale ZeroPoint InAccum InState",
       "Y OutState OutAccum OutScale"},
      {"dequantize_linear", "dequantize_linear", "X Scale ZeroPoint InAccum InState",
       "Y OutState OutAccum OutScale"},
      {"fake_quantize_abs_max", "fake_quantize_abs_max", "X", "Out OutScale"},
      {"fake_quantize_dequantize_abs_max", "fake_quantize_dequantize_abs_max", "X", "Out OutScale"},
      {"fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_abs_max", "X",
       "Out OutScale"},
      {"fake_channel_wise_quantize_dequantize_abs_max",
       "fake_channel_wise_quantize_dequantize_abs_max", "X", "Out OutScale"},
      {"fake_quantize_moving_average_abs_max", "fake_quantize_moving_average_abs_max",
       "X InScale InAccum InState", "Out OutScale=InScale OutState=InState OutAccum=InAccum"},
      {"fake_quantize_dequantize_moving_average_abs_max",
       "fake_quantize_dequantize_moving_average_abs_max", "X InScale InAccum InState",
       "Out OutScale=InScale OutState=InState OutAccum=InAccum"},
      {"moving_average_abs_max_scale", "moving_average_abs_max_scale", "X InAccum InState",
       "Out OutScale OutState=InState OutAccum=InAccum"},
      {"fake_dequantize_max_abs", "fake_dequantize_max_abs", "X Scale", "Out"},
      {"fake_channel_wise_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs", "X Scales",
       "Out"},
  };
  return rows;
}

std::vector<Row> CollectRows() {
  std::vector<Row> rows;
  for (const char* name : SameUnary()) rows.push_back({name, name, "X", "Out"});
  for (const auto* list : {&Elementwise(), &Layers(), &Shapes(), &Detection()})
    rows.insert(rows.end(), list->begin(), list->end());
  return rows;
}

}  // namespace

const std::vector<Row>& AllRows() {
  static const std::vector<Row> rows = CollectRows();
  return rows;
}

const Row* FindRow(std::string_view name) {
  static const std::unordered_map<std::string_view, const Row*> index = [] {
    std::unordered_map<std::string_view, const Row*> rows;
    for (const Row& row : AllRows()) rows.emplace(row.name, &row);
    return rows;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

}  // namespace coracle::pir
