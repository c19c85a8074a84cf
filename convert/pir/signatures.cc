// Source of names and types: Paddle's ops.yaml and static_ops.yaml.

#include <coracle/convert/pir/row_words.h>
#include <coracle/convert/pir/signatures.h>

#include <unordered_map>

namespace coracle::pir {
namespace {

constexpr const char* kInterpolation =
    "data_format:s out_d:i out_h:i out_w:i scale:F interp_method:s align_corners:b align_mode:i";
constexpr const char* kConv2d =
    "strides:I paddings:I padding_algorithm:s dilations:I groups:i data_format:s";
constexpr const char* kConv =
    "strides:I paddings:I padding_algorithm:s groups:i dilations:I data_format:s";
constexpr const char* kConvTranspose =
    "strides:I paddings:I output_padding:I padding_algorithm:s groups:i dilations:I data_format:s";
constexpr const char* kBatchNorm =
    "is_test:b momentum:f epsilon:f data_format:s use_global_stats:b trainable_statistics:b";
constexpr const char* kPool =
    "strides:I paddings:I ceil_mode:b exclusive:b data_format:s pooling_type:s global_pooling:b "
    "adaptive:b padding_algorithm:s";
constexpr const char* kMaxPool =
    "kernel_size:I strides:I paddings:I global_pooling:b adaptive:b ceil_mode:b";

using Table = std::unordered_map<std::string_view, const char*>;

const Table& Functions() {
  static const Table table = {
      {"add_position_encoding", "alpha:f beta:f"},
      {"addmm", "beta:f alpha:f"},
      {"affine_channel", "data_layout:s"},
      {"affine_grid", "align_corners:b"},
      {"allclose", "equal_nan:b"},
      {"argmax", "keepdims:b flatten:b dtype:t"},
      {"argmin", "keepdims:b flatten:b dtype:t"},
      {"argsort", "axis:i descending:b stable:b"},
      {"batch_norm", kBatchNorm},
      {"sync_batch_norm", kBatchNorm},
      {"bitwise_left_shift", "is_arithmetic:b"},
      {"bitwise_right_shift", "is_arithmetic:b"},
      {"cast", "dtype:t"},
      {"cholesky", "upper:b"},
      {"clip_by_norm", "max_norm:f"},
      {"cross", "axis:i"},
      {"cumsum", "flatten:b exclusive:b reverse:b"},
      {"diag", "offset:i padding_value:f"},
      {"diag_embed", "offset:i dim1:i dim2:i"},
      {"diagonal", "offset:i axis1:i axis2:i"},
      {"dist", "p:f"},
      {"dropout", "is_test:b mode:s seed:i fix_seed:b"},
      {"elu", "alpha:f"},
      {"embedding", "padding_idx:l sparse:b"},
      {"empty", "dtype:t place:p"},
      {"eye", "dtype:t place:p"},
      {"flatten", "start_axis:i stop_axis:i"},
      {"flip", "axis:I"},
      {"frobenius_norm", "keep_dim:b reduce_all:b"},
      {"full_batch_size_like", "shape:I dtype:t input_dim_idx:i output_dim_idx:i place:p"},
      {"full_like", "dtype:t place:p"},
      {"full_with_tensor", "dtype:t"},
      {"gaussian", "mean:f std:f seed:i dtype:t place:p"},
      {"gelu", "approximate:b"},
      {"hardshrink", "threshold:f"},
      {"hardsigmoid", "slope:f offset:f"},
      {"hardtanh", "t_min:f t_max:f"},
      {"histogram", "bins:l min:i max:i density:b"},
      {"increment", "value:f"},
      {"index_select", "axis:i"},
      {"kldiv_loss", "reduction:s log_target:b"},
      {"leaky_relu", "negative_slope:f"},
      {"log_softmax", "axis:i"},
      {"logsumexp", "axis:I keepdim:b reduce_all:b"},
      {"maxout", "groups:i axis:i"},
      {"mish", "lambda:f"},
      {"multinomial", "replacement:b"},
      {"p_norm", "porder:f axis:i epsilon:f keepdim:b asvector:b"},
      {"pad", "paddings:I"},
      {"pad3d", "mode:s pad_value:f data_format:s"},
      {"partial_concat", "start_index:i length:i"},
      {"partial_sum", "start_index:i length:i"},
      {"prelu", "data_format:s mode:s"},
      {"randint", "low:i high:i dtype:t place:p"},
      {"randperm", "n:i dtype:t place:p"},
      {"roll", "axis:L"},
      {"round", "decimals:i"},
      {"scale", "bias:f bias_after_scale:b"},
      {"scatter", "overwrite:b"},
      {"segment_pool", "pooltype:s"},
      {"selu", "scale:f alpha:f"},
      {"shard_index", "index_num:i nshards:i shard_id:i ignore_value:i"},
      {"slice", "axes:L infer_flags:L decrease_axis:L"},
      {"soft_relu", "threshold:f"},
      {"softmax", "axis:i"},
      {"softplus", "beta:f threshold:f"},
      {"softshrink", "threshold:f"},
      {"split_with_num", "num:i"},
      {"stack", "axis:i"},
      {"stanh", "scale_a:f scale_b:f"},
      {"strided_slice", "axes:I"},
      {"thresholded_relu", "threshold:f value:f"},
      {"topk", "axis:i largest:b sorted:b"},
      {"trace", "offset:i axis1:i axis2:i"},
      {"transpose", "perm:I"},
      {"tril", "diagonal:i"},
      {"triu", "diagonal:i"},
      {"truncated_gaussian_random", "shape:I mean:f std:f seed:i a:f b:f dtype:t place:p"},
      {"unbind", "axis:i"},
      {"uniform", "dtype:t seed:i place:p"},
      {"unique", "return_index:b return_inverse:b return_counts:b axis:I dtype:t is_sorted:b"},
      {"unstack", "axis:i num:i"},
  };
  return table;
}

const Table& Layers() {
  static const Table table = {
      {"conv2d", kConv2d},
      {"conv3d", kConv},
      {"depthwise_conv2d", kConv},
      {"conv2d_transpose", kConvTranspose},
      {"conv2d_transpose_bias", kConvTranspose},
      {"depthwise_conv2d_transpose", kConvTranspose},
      {"conv3d_transpose",
       "strides:I paddings:I output_padding:I output_size:I padding_algorithm:s groups:i "
       "dilations:I data_format:s"},
      {"pool2d", kPool},
      {"pool3d",
       "kernel_size:I strides:I paddings:I ceil_mode:b exclusive:b data_format:s pooling_type:s "
       "global_pooling:b adaptive:b padding_algorithm:s"},
      {"max_pool2d_with_index", kMaxPool},
      {"max_pool3d_with_index", kMaxPool},
      {"matmul", "transpose_x:b transpose_y:b"},
      {"legacy_matmul", "transpose_x:b transpose_y:b alpha:f"},
      {"matmul_with_flatten", "x_num_col_dims:i y_num_col_dims:i"},
      {"linear_interp", kInterpolation},
      {"bilinear_interp", kInterpolation},
      {"trilinear_interp", kInterpolation},
      {"nearest_interp", kInterpolation},
      {"bicubic_interp", kInterpolation},
      {"grid_sample", "mode:s padding_mode:s align_corners:b"},
      {"pixel_shuffle", "upscale_factor:i data_format:s"},
      {"shuffle_channel", "group:i"},
      {"temporal_shift", "seg_num:i shift_ratio:f data_format:s"},
      {"unfold", "kernel_sizes:I strides:I paddings:I dilations:I"},
      {"layer_norm", "epsilon:f begin_norm_axis:i"},
      {"group_norm", "epsilon:f groups:i data_format:s"},
      {"instance_norm", "epsilon:f"},
      {"lrn", "n:i k:f alpha:f beta:f data_format:s"},
      {"norm", "axis:i epsilon:f is_test:b"},
      {"spectral_norm", "dim:i power_iters:i eps:f"},
      {"rnn",
       "dropout_prob:f is_bidirec:b input_size:i hidden_size:i num_layers:i mode:s seed:i "
       "is_test:b"},
      {"cudnn_lstm", "dropout_prob:f is_bidirec:b hidden_size:i num_layers:i is_test:b seed:i"},
      {"lstm",
       "use_peepholes:b is_reverse:b is_test:b gate_activation:s cell_activation:s "
       "candidate_activation:s"},
      {"gru", "activation:s gate_activation:s is_reverse:b origin_mode:b is_test:b"},
      {"gru_unit", "activation:i gate_activation:i origin_mode:b"},
      {"im2sequence", "kernels:I strides:I paddings:I out_stride:I"},
  };
  return table;
}

const Table& Detection() {
  static const Table table = {
      {"multiclass_nms3",
       "score_threshold:f nms_top_k:i keep_top_k:i nms_threshold:f normalized:b nms_eta:f "
       "background_label:i"},
      {"matrix_nms",
       "score_threshold:f nms_top_k:i keep_top_k:i post_threshold:f use_gaussian:b "
       "gaussian_sigma:f background_label:i normalized:b"},
      {"yolo_box",
       "anchors:I class_num:i conf_thresh:f downsample_ratio:i clip_bbox:b scale_x_y:f iou_aware:b "
       "iou_aware_factor:f"},
      {"yolo_loss",
       "anchors:I anchor_mask:I class_num:i ignore_thresh:f downsample_ratio:i use_label_smooth:b "
       "scale_x_y:f"},
      {"prior_box",
       "min_sizes:F max_sizes:F aspect_ratios:F variances:F flip:b clip:b step_w:f step_h:f "
       "offset:f min_max_aspect_ratios_order:b"},
      {"anchor_generator", "anchor_sizes:F aspect_ratios:F variances:F stride:F offset:f"},
      {"box_coder", "code_type:s box_normalized:b axis:i variance:F"},
      {"roi_align", "pooled_height:i pooled_width:i spatial_scale:f sampling_ratio:i aligned:b"},
      {"roi_pool", "pooled_height:i pooled_width:i spatial_scale:f"},
      {"generate_proposals",
       "pre_nms_top_n:i post_nms_top_n:i nms_thresh:f min_size:f eta:f pixel_offset:b"},
      {"distribute_fpn_proposals",
       "min_level:i max_level:i refer_level:i refer_scale:i pixel_offset:b"},
      {"collect_fpn_proposals", "post_nms_topn:i"},
      {"bipartite_match", "match_type:s dist_threshold:f"},
      {"viterbi_decode", "include_bos_eos_tag:b"},
      {"ctc_align", "blank:i merge_repeated:b padding_value:i"},
      {"edit_distance", "normalized:b"},
      {"sequence_mask", "out_dtype:t"},
      {"sequence_conv", "context_length:i padding_trainable:b context_start:i context_stride:i"},
      {"sequence_pool", "is_test:b pooltype:s pad_value:f"},
      {"sequence_expand", "ref_level:i"},
      {"cross_entropy_with_softmax",
       "soft_label:b use_softmax:b numeric_stable_mode:b ignore_index:i axis:i"},
      {"sigmoid_cross_entropy_with_logits", "normalize:b ignore_index:i"},
      {"huber_loss", "delta:f"},
      {"log_loss", "epsilon:f"},
      {"nll_loss", "ignore_index:l reduction:s"},
      {"label_smooth", "epsilon:f"},
      {"warpctc", "blank:i norm_by_times:b"},
      {"moving_average_abs_max_scale", "moving_rate:f is_test:b"},
      // Ops without a row.
      {"mean", "axis:A keepdim:b"},
      {"sum", "dtype:t keepdim:b"},
      {"max", "keepdim:b"},
      {"min", "keepdim:b"},
      {"prod", "keepdim:b reduce_all:b"},
      {"all", "axis:L keepdim:b"},
      {"any", "axis:L keepdim:b"},
      {"arange", "dtype:t place:p"},
      {"linspace", "dtype:t place:p"},
      {"full", "shape:A value:d dtype:t place:p"},
      {"full_int_array", "value:L dtype:t place:p"},
      {"assign_value", "shape:I dtype:t values:v place:p"},
      {"set_value", "axes:L decrease_axes:L none_axes:L shape:L values:v"},
      {"set_value_with_tensor", "axes:L decrease_axes:L none_axes:L"},
      {"deformable_conv",
       "strides:I paddings:I dilations:I deformable_groups:i groups:i im2col_step:i"},
      {"flash_attn", "dropout:f causal:b return_softmax:b is_test:b rng_name:s"},
  };
  return table;
}

}  // namespace

std::vector<DialectAttr> AttrsOf(std::string_view op) {
  std::vector<DialectAttr> attrs;
  for (const Table* table : {&Functions(), &Layers(), &Detection()}) {
    const auto found = table->find(op);
    if (found == table->end()) continue;
    for (const std::string& word : Words(found->second)) {
      const size_t colon = word.find(':');
      attrs.push_back({word.substr(0, colon), word[colon + 1]});
    }
  }
  return attrs;
}

int MoreOperandsOf(std::string_view op) {
  if (op == "sigmoid_cross_entropy_with_logits") return 3;  // weights of the positive class
  return op == "histogram" ? 2 : 0;                         // weights
}

}  // namespace coracle::pir
