// Every mistake in a model text is one error with its place.

#include <coracle/framework/base/error.h>
#include <coracle/layers/layer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

namespace coracle::model_text_error_test {

std::string ErrorOf(const std::string& text) {
  return coracle::ErrorOf([&] { ParseModelText(text, "m"); });
}

struct Case {
  const char* name;
  const char* text;
  const char* error;  // the whole first line, or its beginning when it ends in "..."
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ModelTextError : public ::testing::TestWithParam<Case> {};

TEST_P(ModelTextError, SaysWhereAndWhat) {
  std::string expected = GetParam().error;
  std::string actual =
      ErrorOf(std::string("data { name: \"v\" shape: [-1, 8] }\n") + GetParam().text);
  if (expected.ends_with("...")) {
    expected.resize(expected.size() - 3);
    actual = actual.substr(0, expected.size());
  }
  EXPECT_EQ(actual, expected);
}

const Case kCases[] = {
    // --- the grammar ---
    {"unknown_field", "layer { fc { input: \"v\" sizes: 3 } }",
     "m:2:25: sizes: no such field in fc; did you mean size?"},
    {"unknown_field_after_tab", "layer {\tfc\t{ input: \"v\" sizes: 3 } }",
     "m:2:25: sizes: no such field in fc; did you mean size?"},
    {"unknown_layer", "layer { fcc { input: \"v\" } }",
     "m:2:9: fcc: no such layer; did you mean fc?"},
    {"op_as_layer", "layer { clip_grad { X: \"v\" } }",
     "m:2:9: clip_grad: no such layer; there is an op of that name: op { clip_grad { ... } }"},
    {"unknown_op", "layer { op { clipp { X: \"v\" } } }",
     "m:2:14: clipp: no such op; did you mean clip?"},
    {"unknown_entry", "layers { fc { } }",
     "m:2:1: layers: no such field in Model; did you mean "
     "layer?"},
    {"unknown_dtype", "data { name: \"w\" dtype: float3 }",
     "m:2:25: float3: no such dtype for dtype; did you mean float32?"},
    {"no_dtype", "data { name: \"w\" dtype: unspecified }", "m:2:18: data: dtype must be said"},
    {"not_a_number", "layer { fc { input: \"v\" size: \"3\" } }",
     "m:2:31: expected integer, got: \"3\""},
    {"too_big", "layer { fc { input: \"v\" size: 3000000000 } }",
     "m:2:31: integer out of range (3000000000)"},
    {"given_twice", "layer { fc { input: \"v\" size: 3 size: 4 } }", "m:2:33: size is given twice"},
    {"two_kinds", "layer { fc { input: \"v\" size: 3 } relu { input: \"v\" } }",
     "m:2:35: an entry can hold only one of relu and fc"},
    {"unclosed", "layer { fc { input: \"v\" size: 3 }",
     "m:2:34: expected identifier, got the end of the text; is a closing brace missing? The brace "
     "of layer at m:2:1 is open"},
    {"unclosed_layer", "layer { fc { input: \"v\" size: 3 }\nlayer { relu { input: \"v\" } }",
     "m:2:1: layer: its brace is not closed before the layer at m:3:1"},
    {"unclosed_kind", "# { \"\nlayer { fc { input: \"v{\" size: 3\ndata { name: \"w\" }",
     "m:3:9: fc: its brace is not closed before the data at m:4:1"},
    {"elsewhere", "layer { Dense { input: \"v\" } }",
     "m:2:9: Dense: no such layer; here it is called fc"},
    {"elsewhere_linear", "layer { linear { input: \"v\" } }",
     "m:2:9: linear: no such layer; here it is called fc"},
    {"elsewhere_norm", "layer { BatchNormalization { input: \"v\" } }",
     "m:2:9: BatchNormalization: no such layer; here it is called batch_norm"},
    {"elsewhere_field", "layer { fc { input: \"v\" units: 3 } }",
     "m:2:25: units: no such field in fc; here it is called size"},
    {"elsewhere_transpose", "layer { transpose { input: \"v\" perm: [1, 0] } }",
     "m:2:32: perm: no such field in transpose; here it is called axis"},
    {"fields_of", "layer { transpose { input: \"v\" zzzzz: 1 } }",
     "m:2:32: zzzzz: no such field in transpose; it has input, axis, ..."},
    {"unknown_layer_of_a_library", "layer { zzzzzzz { input: \"v\" } }",
     "m:2:9: zzzzzzz: no such layer; `coracle layers` lists them, and --op_library adds those of "
     "a library"},
    {"unquoted", "layer { fc { input: v size: 3 } }", "m:2:21: expected string, got: v"},
    // --- what an entry needs ---
    {"empty_entry", "layer { }",
     "m:2:1: layer: the entry is empty; name a layer, op, include or "
     "repeat"},
    {"empty_op", "layer { op { } }", "m:2:9: op: the entry is empty; name an op"},
    {"missing_field", "layer { fc { input: \"v\" } }", "m:2:9: fc: size is required"},
    {"missing_input", "layer { fc { size: 3 } }", "m:2:9: fc: input is required"},
    {"missing_slot", "layer { op { mul { X: \"v\" Out: \"o\" } } }",
     "m:2:14: mul: input Y is required"},
    {"missing_attr", "layer { op { clip { X: \"v\" Out: \"o\" max: 1 } } }",
     "m:2:14: clip: attr min is required"},
    {"two_in_one_slot", "layer { op { clip { X: [\"v\", \"v\"] Out: \"o\" min: 0 max: 1 } } }",
     "m:2:14: clip: input X holds one variable, got 2"},
    {"data_name", "data { shape: [1] }", "m:2:1: data: name is required"},
    {"data_rank", "data { name: \"w\" shape: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1] }",
     "m:2:1: data: a shape has at most 9 dims, got 10"},
    {"data_dim", "data { name: \"w\" shape: [-3] }",
     "m:2:1: data 'w': dims must be -1 or more, got [-3]"},
    {"data_twice", "data { name: \"v\" }",
     "m:2:1: data: its output 'v' is the name of another variable; choose one that is free"},
    {"filter_numbers",
     "data { name: \"x\" shape: [-1, 1, 8, 8] }\n"
     "layer { conv2d { input: \"x\" num_filters: 2 filter_size: [1, 2, 3] } }",
     "m:3:9: filter_size: one or two numbers (height, width) are wanted, got 3"},
    {"pool_size", "data { name: \"x\" shape: [-1, 1, 8, 8] }\nlayer { pool2d { input: \"x\" } }",
     "m:3:9: pool2d: pool_size is required unless global_pooling"},
    // --- variables and shapes ---
    {"unknown_var", "data { name: \"image\" }\nlayer { fc { input: \"imagee\" size: 3 } }",
     "m:3:14: no variable 'imagee' so far; did you mean image?"},
    {"unknown_var_of_op", "layer { op { clip {\n  X: \"w\" Out: \"o\" min: 0 max: 1 } } }",
     "m:3:3: no variable 'w' so far"},
    // Values in brackets have one place; without it the second would get the place of the third.
    {"unknown_var_in_brackets",
     "layer { op { concat {\n  X: [\"v\", \"w\"] X: \"v\" Out: \"o\" axis: 0 } } }",
     "m:3:3: no variable 'w' so far"},
    {"output_taken", "layer { fc { input: \"v\" size: 3 output: \"v\" } }",
     "m:2:9: fc: its output 'v' is the name of another variable; choose one that is free"},
    {"output_is_its_parameter",
     "layer { fc { input: \"v\" size: 3 param { name: \"w\" } output: \"w\" } }",
     "m:2:9: fc: its output 'w' is the name of another variable; choose one that is free"},
    {"output_of_act_is_its_parameter",
     "layer { fc { input: \"v\" size: 3 bias { name: \"w\" } act: \"relu\" output: \"w\" } }",
     "m:2:9: fc: its output 'w' is the name of another variable; choose one that is free"},
    {"shape",
     "data { name: \"w\" shape: [5, 2] }\nlayer { op { mul { X: \"v\" Y: \"w\" Out: \"o\" } } }",
     "m:3:14: mul: the trailing dims of X and the leading dims of Y must have equal products "
     "[mul.C3], got 8 vs 5"},
    {"shape_of_layer", "layer { conv2d { input: \"v\" num_filters: 2 filter_size: 1 } }",
     "m:2:9: conv2d: its input must have 4 dims (NCHW), got v of shape [-1, 8]"},
    {"weight_overflow",
     "data { name: \"big\" shape: [1, 4611686018427387904] }\n"
     "layer { fc { input: \"big\" size: 2147483647 } }",
     "m:3:9: ..."},
    {"act", "layer { fc { input: \"v\" size: 3 act: \"relux\" } }",
     "m:2:9: fc: act 'relux' is not an activation op; did you mean relu?"},
    // --- parameters and clips ---
    {"initializer_kind", "layer { fc { input: \"v\" size: 3 param { initializer { } } } }",
     "m:2:41: Initializer: a kind is required: constant, uniform, normal, truncated_normal, "
     "xavier, msra, array"},
    {"initializer_value",
     "layer { fc { input: \"v\" size: 3 param { initializer { normal { std: inf } } } } }",
     "m:2:9: initializer normal: std must be finite, got inf"},
    {"learning_rate",
     "layer { fc { input: \"v\" size: 3 param { name: \"w\" learning_rate: nan } } }",
     "m:2:9: parameter 'w': learning_rate must be finite, got nan"},
    {"array_shape",
     "layer { fc { input: \"v\" size: 3 bias { initializer { array { values: [1] } } } } }",
     "m:2:9: initializer array: the parameter has shape [3], the array [1]"},
    {"shared_shape",
     "layer { fc { input: \"v\" size: 3 param { name: \"w\" } } }\n"
     "layer { fc { input: \"v\" size: 4 param { name: \"w\" } } }",
     "m:3:9: 'w' is shared, so it must have the shape [8, 3], got [8, 4]"},
    {"error_clip_max", "layer { fc { input: \"v\" size: 3 error_clip { by_value { min: 1 } } } }",
     "m:2:46: by_value: max is required"},
    {"error_clip_order",
     "layer { fc { input: \"v\" size: 3 error_clip { by_value { max: -1 min: 1 } } } }",
     "m:2:46: error clip by value: max must not be less than min, got max -1 and min 1"},
    {"error_clip_nan", "layer { fc { input: \"v\" size: 3 error_clip { by_value { max: nan } } } }",
     "m:2:46: error clip by value: ..."},
    {"gradient_clip_order",
     "layer { fc { input: \"v\" size: 3 param { gradient_clip { by_value { max: -1 } } } } }",
     "m:2:57: gradient clip by_value: max must not be less than min, got max -1 and min 1"},
    {"gradient_clip_norm",
     "layer { fc { input: \"v\" size: 3 param { gradient_clip { by_norm { clip_norm: 0 } } } } }",
     "m:2:57: gradient clip by_norm: clip_norm must be positive and finite, got 0"},
    {"decay",
     "layer { fc { input: \"v\" size: 3 param { regularizer { l2_decay { coeff: nan } } } } }",
     "m:2:55: l2_decay: coeff must be finite and not negative, got nan"},
    // --- repeat ---
    {"repeat_times", "layer { repeat { layer { } } }", "m:2:9: repeat: times is required"},
    {"repeat_negative", "layer { repeat { times: -1 } }",
     "m:2:18: repeat: times must lie in [0, 100000], got -1"},
    {"repeat_huge", "layer { repeat { times: 9223372036854775807 } }",
     "m:2:18: repeat: times must lie in [0, 100000], got 9223372036854775807"},
    {"repeat_product", "layer { repeat { times: 100000 layer { repeat { times: 100000 } } } }",
     "m:2:40: the text makes more than 100000 entries"},
    {"repeat_start", "layer { repeat { times: 1 start: 9223372036854775807 } }",
     "m:2:27: repeat: start must lie in [-1e12, 1e12], got 9223372036854775807"},
    {"repeat_index", "layer { repeat { times: 1 index: \"a b\" } }",
     "m:2:27: repeat: index must be a name, got 'a b'"},
    {"repeat_unknown_index",
     "layer { repeat { times: 1 layer { relu { input: \"v\" output: \"a$k\" } } } }",
     "m:2:53: 'a$k': no repeat around it counts 'k'; known: $i ($$ for a dollar)"},
    {"repeat_brace",
     "layer { repeat { times: 1 layer { relu { input: \"v\" output: \"a${i\" } } } }",
     "m:2:53: 'a${i': a closing brace is missing"},
    {"repeat_offset",
     "layer { repeat { times: 1 layer { relu { input: \"v\" output: \"a${i+x}\" } } } }",
     "m:2:53: 'a${i+x}': a number is wanted after the sign"},
    {"parameter_dims", "layer { parameter { shape: [3, -1] output: \"w\" } }",
     "m:2:9: parameter: its dims must be positive, got -1"},
    {"parameter_names", "layer { parameter { shape: [3] output: \"w\" param { name: \"u\" } } }",
     "m:2:9: parameter: output and param give different names, 'w' and 'u'"},
    {"parameter_taken", "layer { parameter { shape: [3] output: \"v\" } }",
     "m:2:9: parameter: its output 'v' is the name of another variable; choose one that is free"},
    {"repeat_same_output",
     "layer { repeat { times: 2 layer { relu { input: \"v\" output: \"a\" } } } }",
     "m:2:35: relu: its output 'a' is the name of another variable; choose one that is free"},
};

INSTANTIATE_TEST_SUITE_P(All, ModelTextError, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ModelTextErrors, RepeatSaysTheRound) {
  try {
    ParseModelText(
        "data { name: \"v\" shape: [1] }\n"
        "layer { repeat { times: 3 start: 1 layer { relu { input: \"v\" output: \"a\" } } } }",
        "m");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.details().find("repeated from m:2:9, with i = 2"), std::string::npos)
        << error.what();
  }
}

TEST(ModelTextErrors, ShapeErrorsListTheOperands) {
  try {
    ParseModelText(
        "data { name: \"v\" shape: [-1, 8] }\ndata { name: \"w\" shape: [5, 2] }\n"
        "layer { op { mul { X: \"v\" Y: \"w\" Out: \"o\" } } }",
        "m");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.details().find("input  X = 'v' float32[-1, 8]"), std::string::npos);
    EXPECT_NE(error.details().find("from m:3:14"), std::string::npos) << error.what();
  }
}

std::string Nested(int levels, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(ModelTextErrors, DeepNestingIsRefused) {
  EXPECT_EQ(ErrorOf(Nested(64, "layer { repeat { times: 1 ", "} } ")), "no error");
  EXPECT_NE(ErrorOf(Nested(65, "layer { repeat { times: 1 ", "} } ")).find("nested deeper than 64"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf(Nested(100000, "layer { repeat { times: 1 ", "} } ")).find("nested deeper than 64"),
      std::string::npos);
  EXPECT_NE(ErrorOf(Nested(100000, "[", "]")), "no error");
}

TEST(ModelTextErrors, AnyBytesGiveAnErrorOrAModel) {
  const std::string text =
      "name: \"n\" data { name: \"v\" shape: [-1, 8] }\n"
      "layer { repeat { times: 2 layer { fc { input: \"v\" size: 3 output: \"h$i\" act: \"relu\""
      " param { initializer { xavier { } } } error_clip { by_value { max: 5 } } } } } }\n"
      "layer { op { clip { X: [\"h0\"] Out: [\"s\"] min: -1 max: 1 } } }\n";
  ASSERT_EQ(ErrorOf(text), "no error");
  for (size_t cut = 0; cut <= text.size(); ++cut) ErrorOf(text.substr(0, cut));
  constexpr std::string_view kBytes("\0\"{}9-$\xff", 8);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = kBytes[at % kBytes.size()];
    ErrorOf(changed);
  }
}

TEST(ModelTextErrors, AWideOpThatFailsIsTakenBackInOneSweep) {
  EXPECT_EQ(ErrorOf("data { name: \"v\" shape: [2] }\n"
                    "layer { split { input: \"v\" num: 65536 axis: 7 } }")
                .rfind("m:2:9: split: ", 0),
            0u);
}

TEST(ModelTextErrors, EmptyTextIsAnEmptyModel) { EXPECT_EQ(ErrorOf(""), "no error"); }
}  // namespace coracle::model_text_error_test
