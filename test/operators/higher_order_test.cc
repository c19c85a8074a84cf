// Gradients of gradients, one line for each op; an op may have its line in its own
// test instead: OpTest::CheckHigherGradients.

#include <coracle/framework/tensor/rng.h>
#include <coracle/test/completeness.h>
#include <coracle/test/higher_order.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <ostream>

namespace coracle::higher_order_test {

struct Case : HigherOrderCase {
  std::string title;

  explicit Case(std::string op) : title(op) { type = std::move(op); }
  // Uniform in [low, high], but no closer than `gap` to 0.
  Case& X(const std::string& slot, const Shape& shape, double low = -1, double high = 1,
          double gap = 0) {
    Tensor t(DType::kFloat64, shape);
    const Philox random(11, HashName(slot), inputs.size());
    for (int64_t i = 0; i < t.numel(); ++i) {
      double v = low + (high - low) * random.UniformDouble(static_cast<uint64_t>(i));
      if (std::abs(v) < gap) v = v < 0 ? v - gap : v + gap;
      t.data<double>()[i] = v;
    }
    inputs.push_back({slot, t});
    return *this;
  }
  Case& Values(const std::string& slot, const Shape& shape, const std::vector<double>& values) {
    inputs.push_back({slot, Tensor::Of<double>(shape, values)});
    return *this;
  }
  Case& Ints(const std::string& slot, const Shape& shape, const std::vector<int64_t>& values) {
    inputs.push_back({slot, Tensor::Of<int64_t>(shape, values)});
    return *this;
  }
  Case& Bools(const std::string& slot, const Shape& shape, const std::vector<int64_t>& values) {
    inputs.push_back({slot, Tensor::Of<int64_t>(shape, values).Cast(DType::kBool)});
    return *this;
  }
  Case& A(const std::string& name, Attribute value) {
    attrs.push_back({name, std::move(value)});
    return *this;
  }
  Case& Outs(const std::string& slot, int count) {
    outputs.emplace_back(slot, count);
    return *this;
  }
  Case& Named(const std::string& suffix) {
    title += "_" + suffix;
    return *this;
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.title; }

using Ints = std::vector<int32_t>;

std::vector<Case> Unary() {
  std::vector<Case> cases;
  for (const char* type :
       {"sigmoid", "logsigmoid", "tanh", "exp",   "sin",       "cos",          "softplus",
        "swish",   "silu",       "mish", "gelu",  "square",    "hard_sigmoid", "atan",
        "cosh",    "sinh",       "erf",  "expm1", "soft_relu", "stanh",        "tanh_shrink"})
    cases.push_back(Case(type).X("X", {2, 3}, -2, 2));
  for (const char* type :
       {"relu", "leaky_relu", "relu6", "elu", "abs", "softsign", "hard_swish", "selu", "brelu"})
    cases.push_back(Case(type).X("X", {2, 3}, -2, 2, 0.1));
  for (const char* type :
       {"log", "sqrt", "rsqrt", "reciprocal", "log2", "log10", "log1p", "lgamma"})
    cases.push_back(Case(type).X("X", {2, 3}, 0.5, 2));
  for (const char* type : {"acos", "asin", "tan"})
    cases.push_back(Case(type).X("X", {2, 3}, -0.8, 0.8));
  for (const char* type : {"hard_shrink", "softshrink"})
    cases.push_back(Case(type).X("X", {2, 3}, 0.6, 2));
  cases.push_back(Case("thresholded_relu").X("X", {2, 3}, 1.1, 2));
  cases.push_back(Case("gelu").Named("tanh").X("X", {2, 3}, -2, 2).A("approximate", true));
  cases.push_back(Case("pow").X("X", {2, 3}, 0.5, 2).A("factor", 2.5f));
  cases.push_back(Case("pow").Named("square").X("X", {2, 3}, -1, 1).A("factor", 2.f));
  cases.push_back(Case("scale").X("X", {2, 3}).A("scale", 3.f).A("bias", 1.f));
  cases.push_back(Case("clip").X("X", {2, 4}, -1, 1, 0.1).A("min", -0.6f).A("max", 0.05f));
  cases.push_back(Case("assign").X("X", {2, 3}));
  cases.push_back(Case("increment").X("X", {1}).A("step", 2.f));
  cases.push_back(Case("cumsum").X("X", {2, 3}).A("axis", int32_t{1}));
  cases.push_back(Case("label_smooth").X("X", {2, 3}).A("epsilon", 0.1f));
  return cases;
}

std::vector<Case> Binary() {
  struct Shapes {
    const char* name;
    Shape x, y;
    int32_t axis;
  };
  const Shapes shapes[] = {{"same", {2, 3}, {2, 3}, -1},  {"row", {2, 3}, {3}, -1},
                           {"middle", {2, 3, 2}, {3}, 1}, {"both", {2, 1}, {1, 3}, -1},
                           {"small_x", {3}, {2, 3}, -1},  {"one", {2, 3}, {1}, -1}};
  std::vector<Case> cases;
  for (const Shapes& s : shapes) {
    for (const char* type :
         {"elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"}) {
      cases.push_back(Case(type).Named(s.name).A("axis", s.axis).X("X", s.x).X("Y", s.y, 0.5, 2));
    }
    cases.push_back(Case("elementwise_pow")
                        .Named(s.name)
                        .A("axis", s.axis)
                        .X("X", s.x, 0.5, 2)
                        .X("Y", s.y, 1.5, 3));
    for (const char* type : {"elementwise_max", "elementwise_min"}) {
      // X is far below 0 or above 1, Y within [0, 1]: each is chosen somewhere.
      cases.push_back(
          Case(type).Named(s.name).A("axis", s.axis).X("X", s.x, -2, 3, 1.2).X("Y", s.y, 0.2, 0.8));
    }
  }
  cases.push_back(Case("minus").X("X", {2, 3}).X("Y", {2, 3}));
  cases.push_back(Case("sum").X("X", {2, 3}).X("X", {2, 3}).X("X", {2, 3}));
  cases.push_back(
      Case("where").Bools("Condition", {2, 3}, {1, 0, 1, 0, 0, 1}).X("X", {2, 3}).X("Y", {2, 3}));
  return cases;
}

std::vector<Case> Products() {
  std::vector<Case> cases;
  cases.push_back(Case("mul").X("X", {2, 3}).X("Y", {3, 4}));
  cases.push_back(Case("mul")
                      .Named("columns")
                      .X("X", {2, 3, 2})
                      .X("Y", {2, 4})
                      .A("x_num_col_dims", int32_t{2}));
  cases.push_back(Case("matmul").X("X", {2, 3}).X("Y", {3, 2}).A("alpha", 0.5f));
  for (const char* type : {"matmul", "matmul_v2"}) {
    const bool v2 = std::string(type) == "matmul_v2";
    const char *tx = v2 ? "trans_x" : "transpose_X", *ty = v2 ? "trans_y" : "transpose_Y";
    cases.push_back(Case(type).Named("batch").X("X", {2, 2, 3}).X("Y", {2, 3, 2}));
    cases.push_back(Case(type).Named("broadcast").X("X", {2, 2, 3}).X("Y", {3, 2}));
    cases.push_back(Case(type).Named("vectors").X("X", {3}).X("Y", {3}));
    cases.push_back(Case(type).Named("tx").X("X", {3, 2}).X("Y", {3, 2}).A(tx, true));
    cases.push_back(Case(type).Named("ty").X("X", {2, 3}).X("Y", {2, 3}).A(ty, true));
    cases.push_back(Case(type).Named("txy").X("X", {3, 2}).X("Y", {2, 3}).A(tx, true).A(ty, true));
  }
  return cases;
}

std::vector<Case> Reductions() {
  std::vector<Case> cases;
  for (const char* type :
       {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"}) {
    cases.push_back(Case(type).Named("axis").X("X", {2, 3}).A("dim", Ints{1}));
    cases.push_back(
        Case(type).Named("keep").X("X", {2, 3, 2}).A("dim", Ints{0, 2}).A("keep_dim", true));
    cases.push_back(Case(type).Named("all").X("X", {2, 2}).A("reduce_all", true));
  }
  cases.push_back(Case("reduce_prod")
                      .Named("zeros")
                      .Values("X", {3, 3}, {0, 2, 3, 0, 0, 5, 1, 2, 3})
                      .A("dim", Ints{1}));
  cases.push_back(Case("mean").X("X", {2, 3}));
  cases.push_back(Case("squared_l2_norm").X("X", {2, 3}));
  return cases;
}

std::vector<Case> Shapes() {
  std::vector<Case> cases;
  for (const char* type : {"reshape", "reshape2"})
    cases.push_back(Case(type).X("X", {2, 3}).A("shape", Ints{3, -1}));
  for (const char* type : {"transpose", "transpose2"})
    cases.push_back(Case(type).X("X", {2, 3, 2}).A("axis", Ints{2, 0, 1}));
  for (const char* type : {"squeeze", "squeeze2"})
    cases.push_back(Case(type).X("X", {2, 1, 3}).A("axes", Ints{1}));
  for (const char* type : {"unsqueeze", "unsqueeze2"})
    cases.push_back(Case(type).X("X", {2, 3}).A("axes", Ints{1}));
  for (const char* type : {"flatten", "flatten2"}) cases.push_back(Case(type).X("X", {2, 3, 2}));
  cases.push_back(Case("flatten_contiguous_range")
                      .X("X", {2, 3, 2})
                      .A("start_axis", int32_t{0})
                      .A("stop_axis", int32_t{1}));
  cases.push_back(Case("concat").X("X", {2, 3}).X("X", {2, 2}).A("axis", int32_t{1}));
  cases.push_back(
      Case("split").X("X", {2, 4}).A("axis", int32_t{1}).A("num", int32_t{2}).Outs("Out", 2));
  cases.push_back(Case("split")
                      .Named("sections")
                      .X("X", {2, 4})
                      .A("axis", int32_t{1})
                      .A("sections", Ints{1, 3})
                      .Outs("Out", 2));
  cases.push_back(Case("stack").X("X", {2, 3}).X("X", {2, 3}).A("axis", int32_t{1}));
  cases.push_back(
      Case("unstack").X("X", {2, 3}).A("axis", int32_t{0}).A("num", int32_t{2}).Outs("Y", 2));
  cases.push_back(Case("set_value")
                      .X("Input", {3, 4})
                      .X("ValueTensor", {2})
                      .A("axes", std::vector<int64_t>{1})
                      .A("starts", std::vector<int64_t>{1})
                      .A("ends", std::vector<int64_t>{3}));
  cases.push_back(Case("slice")
                      .X("Input", {3, 4})
                      .A("axes", Ints{0, 1})
                      .A("starts", Ints{1, 0})
                      .A("ends", Ints{3, -1}));
  cases.push_back(Case("strided_slice")
                      .X("Input", {3, 4})
                      .A("axes", Ints{1})
                      .A("starts", Ints{0})
                      .A("ends", Ints{4})
                      .A("strides", Ints{2}));
  cases.push_back(Case("gather").X("X", {3, 2}).Ints("Index", {4}, {2, 0, 2, 1}));
  cases.push_back(Case("gather_nd").X("X", {3, 2}).Ints("Index", {2, 2}, {2, 0, 1, 1}));
  cases.push_back(Case("expand_v2").X("X", {2, 1}).A("shape", Ints{2, 2, 3}));
  cases.push_back(Case("tile").X("X", {2, 2}).A("repeat_times", Ints{2, 1}));
  cases.push_back(Case("pad2d").X("X", {1, 2, 2, 3}).A("paddings", Ints{1, 0, 1, 1}));
  cases.push_back(Case("pad2d")
                      .Named("reflect")
                      .X("X", {1, 1, 3, 3})
                      .A("paddings", Ints{1, 1, 1, 1})
                      .A("mode", std::string("reflect")));
  cases.push_back(Case("nearest_interp_v2")
                      .X("X", {1, 2, 2, 2})
                      .A("out_h", int32_t{3})
                      .A("out_w", int32_t{4})
                      .A("align_corners", false));
  cases.push_back(Case("nearest_interp")
                      .X("X", {1, 2, 2, 2})
                      .A("out_h", int32_t{3})
                      .A("out_w", int32_t{4})
                      .A("align_corners", false));
  for (const char* type : {"top_k", "top_k_v2"})
    cases.push_back(Case(type).X("X", {2, 4}).A("k", int32_t{2}));
  for (const char* type : {"lookup_table", "lookup_table_v2"}) {
    const bool v2 = std::string(type) == "lookup_table_v2";
    const Shape ids = v2 ? Shape{4} : Shape{4, 1};
    cases.push_back(Case(type).X("W", {3, 2}).Ints("Ids", ids, {2, 0, 2, 1}));
    cases.push_back(Case(type)
                        .Named("padding")
                        .X("W", {3, 2})
                        .Ints("Ids", ids, {2, 0, 2, 1})
                        .A("padding_idx", int64_t{0}));
  }
  return cases;
}

std::vector<Case> Losses() {
  std::vector<Case> cases;
  for (const char* type : {"softmax", "log_softmax"}) {
    cases.push_back(Case(type).X("X", {2, 3}, -2, 2));
    cases.push_back(Case(type).Named("axis").X("X", {2, 3, 2}, -2, 2).A("axis", int32_t{1}));
  }
  cases.push_back(
      Case("softmax_with_cross_entropy").X("Logits", {3, 4}).Ints("Label", {3, 1}, {1, 3, 0}));
  cases.push_back(Case("softmax_with_cross_entropy")
                      .Named("ignored")
                      .X("Logits", {3, 4})
                      .Ints("Label", {3, 1}, {1, -100, 0}));
  cases.push_back(Case("softmax_with_cross_entropy")
                      .Named("loss_only")
                      .X("Logits", {3, 4})
                      .Ints("Label", {3, 1}, {1, 3, 0})
                      .Outs("Softmax", 0));
  cases.push_back(Case("softmax_with_cross_entropy")
                      .Named("soft")
                      .X("Logits", {2, 3})
                      .X("Label", {2, 3}, 0.2, 1)
                      .A("soft_label", true));
  cases.push_back(Case("cross_entropy").X("X", {3, 4}, 0.2, 1).Ints("Label", {3, 1}, {1, 3, 0}));
  cases.push_back(
      Case("sigmoid_cross_entropy_with_logits").X("X", {2, 3}).X("Label", {2, 3}, 0, 1));
  cases.push_back(Case("square_error_cost").X("X", {2, 3}).X("Y", {2, 3}));
  return cases;
}

std::vector<Case> Images() {
  std::vector<Case> cases;
  for (const char* layout : {"NCHW", "NHWC"}) {
    const bool last = std::string(layout) == "NHWC";
    const Shape x = last ? Shape{2, 4, 4, 2} : Shape{2, 2, 4, 4};
    cases.push_back(Case("conv2d")
                        .Named(layout)
                        .X("Input", x)
                        .X("Filter", {3, 2, 3, 3})
                        .A("data_format", std::string(layout)));
    cases.push_back(Case("depthwise_conv2d")
                        .Named(layout)
                        .X("Input", x)
                        .X("Filter", {2, 1, 2, 2})
                        .A("groups", int32_t{2})
                        .A("data_format", std::string(layout)));
    cases.push_back(Case("pool2d")
                        .Named(layout)
                        .X("X", x)
                        .A("pooling_type", std::string("avg"))
                        .A("ksize", Ints{2, 2})
                        .A("strides", Ints{2, 2})
                        .A("data_format", std::string(layout)));
    for (const bool test : {false, true}) {
      cases.push_back(Case("batch_norm")
                          .Named(std::string(layout) + (test ? "_test" : "_train"))
                          .X("X", last ? Shape{3, 2, 1, 2} : Shape{3, 2, 2, 1})
                          .X("Scale", {2}, 0.5, 2)
                          .X("Bias", {2})
                          .X("Mean", {2})
                          .X("Variance", {2}, 0.5, 2)
                          .A("is_test", test)
                          .A("data_layout", std::string(layout)));
    }
  }
  cases.push_back(Case("conv2d")
                      .Named("strided")
                      .X("Input", {1, 2, 5, 5})
                      .X("Filter", {2, 1, 3, 3})
                      .X("Bias", {2})
                      .A("groups", int32_t{2})
                      .A("strides", Ints{2, 2})
                      .A("paddings", Ints{1, 1}));
  for (const char* type : {"conv2d_transpose", "depthwise_conv2d_transpose"}) {
    cases.push_back(Case(type)
                        .X("Input", {1, 2, 3, 3})
                        .X("Filter", {2, 1, 2, 2})
                        .A("groups", int32_t{2})
                        .A("strides", Ints{2, 2}));
  }
  cases.push_back(Case("pool2d")
                      .Named("padded")
                      .X("X", {1, 2, 5, 5})
                      .A("pooling_type", std::string("avg"))
                      .A("ksize", Ints{3, 3})
                      .A("strides", Ints{2, 2})
                      .A("paddings", Ints{1, 1}));
  cases.push_back(Case("pool2d")
                      .Named("max")
                      .X("X", {1, 2, 4, 4})
                      .A("pooling_type", std::string("max"))
                      .A("ksize", Ints{2, 2})
                      .A("strides", Ints{2, 2}));
  cases.push_back(Case("batch_norm")
                      .Named("global")
                      .X("X", {3, 2})
                      .X("Scale", {2}, 0.5, 2)
                      .X("Bias", {2})
                      .X("Mean", {2})
                      .X("Variance", {2}, 0.5, 2)
                      .A("use_global_stats", true));
  cases.push_back(Case("layer_norm").X("X", {2, 4}).X("Scale", {4}, 0.5, 2).X("Bias", {4}));
  cases.push_back(Case("layer_norm").Named("plain").X("X", {2, 4}));
  cases.push_back(Case("layer_norm")
                      .Named("axis")
                      .X("X", {2, 2, 3})
                      .X("Scale", {3})
                      .A("begin_norm_axis", int32_t{2}));
  cases.push_back(Case("dropout").X("X", {2, 6}));
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (auto cases : {Unary(), Binary(), Products(), Reductions(), Shapes(), Losses(), Images()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

class HigherOrder : public ::testing::TestWithParam<Case> {};

// The highest order that has rules; every order where an op is not listed.
int HighestOrder(const std::string& type) {
  static const std::map<std::string, int> kHighest = {
      {"acos", 2},     {"asin", 2},       {"atan", 2},        {"batch_norm", 2},  {"cos", 2},
      {"cosh", 2},     {"elu", 2},        {"erf", 2},         {"exp", 2},         {"expm1", 2},
      {"gelu", 2},     {"hard_swish", 2}, {"layer_norm", 2},  {"lgamma", 2},      {"log", 2},
      {"log10", 2},    {"log1p", 2},      {"log2", 2},        {"logsigmoid", 2},  {"mish", 2},
      {"pow", 2},      {"reciprocal", 2}, {"reduce_prod", 2}, {"rsqrt", 2},       {"selu", 2},
      {"sigmoid", 2},  {"silu", 2},       {"sin", 2},         {"sinh", 2},        {"soft_relu", 2},
      {"softplus", 2}, {"softsign", 2},   {"sqrt", 2},        {"square", 2},      {"stanh", 2},
      {"swish", 2},    {"tan", 2},        {"tanh", 2},        {"tanh_shrink", 2}, {"top_k", 1},
      {"top_k_v2", 1}};
  auto it = kHighest.find(type);
  return it == kHighest.end() ? kEveryOrder : it->second;
}

TEST_P(HigherOrder, AgreesWithDifferences) {
  CheckHigherGradients(GetParam(), HighestOrder(GetParam().type));
}

// Where they are at home, or they have no second derivative that is not zero.
TEST(HigherOrder, AreCheckedElsewhere) {
  for (const char* type :
       {"cast", "clip_by_norm", "floor", "ceil", "round", "sign", "trunc", "assign_value",
        "get_tensor_from_selected_rows", "merge_selected_rows", "write_to_array", "read_from_array",
        "unset_in_array", "lod_tensor_to_array", "array_to_lod_tensor", "select_input",
        "select_output", "rnn_memory_helper", "print"})
    HigherGradientsAreChecked(type);
}

INSTANTIATE_TEST_SUITE_P(Ops, HigherOrder, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.title; });
}  // namespace coracle::higher_order_test
