// Strings: ops on text, tables from labels to numbers, and moves.
#include <coracle/test/convert/one_node.h>

#include <cmath>

namespace coracle::onnx::onnx_strings_test {

using Texts = std::vector<std::string>;

Tensor S(const Shape& shape, const Texts& values) { return Tensor::OfStrings(shape, values); }

// The same result from constants, which are folded, and from feeds of unknown dims.
void ExpectTexts(const OneNode& node, int feeds, const Shape& shape, const Texts& wanted) {
  for (const bool fed : {false, true}) {
    OneNode one = node;
    for (int i = 0; fed && i < feeds; ++i) one.Feed(i, true);
    const Tensor result = one.Result();
    EXPECT_EQ(result.shape(), shape);
    EXPECT_EQ(result.Strings(), wanted);
  }
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxStrings, Normalizer) {
  OneNode node("StringNormalizer", 10, {S({4}, {"monday", "tuesday", "Wednesday", "MONDAY"})});
  node.Set("case_change_action", std::string("UPPER")).Set("stopwords", Texts{"monday"});
  ExpectTexts(node, 1, {2}, {"TUESDAY", "WEDNESDAY"});
  node.Set("locale", std::string("tr_TR"));
  ExpectRefusal(node, "the upper and lower case of the locale 'tr_TR'");
}

TEST(OnnxStrings, ConcatSplitMatch) {
  ExpectTexts(OneNode("StringConcat", 20, {S({2}, {"abc", "def"}), S({}, {".com"})}), 1, {2},
              {"abc.com", "def.com"});
  ExpectTexts(OneNode("StringSplit", 20, {S({2}, {"a b", " c"})}).Outputs(2), 1, {2, 2},
              {"a", "b", "c", ""});
  ExpectTexts(OneNode("StringSplit", 20, {S({}, {"a b"})}).Outputs(2), 0, {2}, {"a", "b"});
  EXPECT_EQ(OneNode("RegexFullMatch", 20, {S({2}, {"abc", "abd"})})
                .Set("pattern", std::string("ab[cx]"))
                .Run(),
            (Numbers{1, 0}));
  ExpectRefusal(OneNode("RegexFullMatch", 20, {S({1}, {"a"})}).Set("pattern", std::string("a(")),
                "[regex_full_match.C2]");
  ExpectRefusal(OneNode("StringConcat", 20, {F({1}, {1}), S({1}, {"a"})}),
                "input 0 ('x0') must be strings, got float32[1]");
}

TEST(OnnxStrings, TfIdf) {
  OneNode node("TfIdfVectorizer", 9, {S({1, 3}, {"a", "b", "a"})});
  node.Set("mode", std::string("IDF"))
      .Set("min_gram_length", int64_t{1})
      .Set("max_gram_length", int64_t{2})
      .Set("max_skip_count", int64_t{0})
      .Set("ngram_counts", Integers{0, 2})
      .Set("ngram_indexes", Integers{0, 1, 2})
      .Set("pool_strings", Texts{"a", "x", "b", "a"})
      .Set("weights", Numbers{0.5f, 1, 3});
  EXPECT_EQ(node.Run(), (Numbers{0.5f, 0, 3}));
  EXPECT_EQ(node.Feed(0, true).Run(), (Numbers{0.5f, 0, 3}));
}

TEST(OnnxStrings, LabelEncoder) {
  const Tensor words = S({3}, {"a", "x", "b"});
  const auto node = [](const Tensor& x, int64_t version) {
    return OneNode("LabelEncoder", version, {x}, "ai.onnx.ml");
  };
  EXPECT_EQ(node(words, 1).Set("classes_strings", Texts{"a", "b"}).Run(), (Numbers{0, -1, 1}));
  ExpectTexts(node(I({1, 0, 2}), 1).Set("classes_strings", Texts{"a", "b"}), 1, {3},
              {"b", "a", "_Unused"});
  EXPECT_EQ(node(words, 2)
                .Set("keys_strings", Texts{"a", "b"})
                .Set("values_floats", Numbers{1.5f, 2})
                .Set("default_float", 7.0f)
                .Feed(0)
                .Run(),
            (Numbers{1.5f, 7, 2}));
  ExpectTexts(node(F({2}, {NAN, 0.25f}), 4)
                  .Set("keys_floats", Numbers{NAN, 0.25f})
                  .Set("values_strings", Texts{"none", "quarter"}),
              1, {2}, {"none", "quarter"});
  ExpectRefusal(node(words, 2).Set("values_floats", Numbers{1}), "attributes keys_* must be given");
  ExpectRefusal(node(words, 2).Set("keys_int64s", Integers{1}).Set("values_int64s", Integers{1}),
                "[map_values.C3]");
}

TEST(OnnxStrings, CategoriesAndOneHot) {
  const Texts names = {"cat", "dog"};
  const auto mapper = [&](const Tensor& x) {
    OneNode node("CategoryMapper", 1, {x}, "ai.onnx.ml");
    return std::move(node.Set("cats_strings", names).Set("cats_int64s", Integers{7, 9}));
  };
  EXPECT_EQ(mapper(S({2}, {"dog", "cow"})).Run(), (Numbers{9, -1}));
  ExpectTexts(mapper(I({7, 8})), 1, {2}, {"cat", "_Unused"});
  const auto one_hot = [&](const Tensor& x) {
    OneNode node("OneHotEncoder", 1, {x}, "ai.onnx.ml");
    return std::move(IsInteger(x.dtype()) ? node.Set("cats_int64s", Integers{7, 9})
                                          : node.Set("cats_strings", names));
  };
  EXPECT_EQ(one_hot(S({1, 2}, {"dog", "cow"})).Run(), (Numbers{0, 1, 0, 0}));
  EXPECT_EQ(one_hot(S({1, 2}, {"dog", "cow"})).Result().shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(one_hot(I({7, 9})).Feed(0, true).Run(), (Numbers{1, 0, 0, 1}));
  ExpectRefusal(one_hot(S({1}, {"cow"})).Set("zeros", int64_t{0}), "X holds 'cow'");
}

TEST(OnnxStrings, Equal) {
  EXPECT_EQ(OneNode("Equal", 19, {S({2}, {"a", ""}), S({}, {"a"})}).Run(), (Numbers{1, 0}));
}

TEST(OnnxStrings, Cast) {
  using proto::onnx::TensorProto;
  const auto cast = [](const Tensor& x, int to) {
    return std::move(OneNode("Cast", 19, {x}).Set("to", int64_t{to}));
  };
  ExpectTexts(cast(F({6}, {0.1f, 3, 1e-5f, -INFINITY, NAN, 1e16f}), TensorProto::STRING), 1, {6},
              {"0.1", "3.0", "1e-05", "-inf", "nan", "1e+16"});
  ExpectTexts(cast(I({INT64_MIN, 0}), TensorProto::STRING), 1, {2}, {"-9223372036854775808", "0"});
  const Tensor words = S({5}, {"0.47892547", "-INF", "NaN", " +1E3 ", "1e99"});
  const Tensor floats = cast(words, TensorProto::FLOAT).Result();
  EXPECT_EQ(floats.data<float>()[0], 0.47892547f);
  EXPECT_EQ(floats.data<float>()[1], -INFINITY);
  EXPECT_TRUE(std::isnan(floats.data<float>()[2]));
  EXPECT_EQ(floats.data<float>()[3], 1000);
  EXPECT_EQ(floats.data<float>()[4], INFINITY);
  EXPECT_TRUE(
      BitEqual(cast(S({3}, {"18446744073709551615", "100.5", "7"}), TensorProto::UINT64).Result(),
               Tensor::Of<uint64_t>({3}, {UINT64_MAX, 100, 7})));
  for (const char* bad : {"", "abc", "1 2", "--1", "0x10", "nan(1)"})
    ExpectRefusal(cast(S({1}, {bad}), TensorProto::DOUBLE), "spells no number");
}

TEST(OnnxStrings, Moves) {
  const Tensor x = S({2, 2}, {"a", "b", "", "d\xff"});
  ExpectTexts(OneNode("Identity", 16, {x}), 1, {2, 2}, {"a", "b", "", "d\xff"});
  ExpectTexts(OneNode("Transpose", 13, {x}), 1, {2, 2}, {"a", "", "b", "d\xff"});
  ExpectTexts(OneNode("Reshape", 13, {x, I({4})}), 1, {4}, {"a", "b", "", "d\xff"});
  ExpectTexts(OneNode("Gather", 13, {x, I({1, 0, 1})}), 1, {3, 2},
              {"", "d\xff", "a", "b", "", "d\xff"});
  ExpectTexts(OneNode("Concat", 13, {x, x}).Set("axis", int64_t{1}), 1, {2, 4},
              {"a", "b", "a", "b", "", "d\xff", "", "d\xff"});
  ExpectTexts(OneNode("Slice", 13, {x, I({1}), I({2}), I({1})}), 1, {2, 1}, {"b", "d\xff"});
  ExpectTexts(OneNode("Split", 13, {x}).Outputs(2), 1, {1, 2}, {"a", "b"});
  ExpectTexts(OneNode("Expand", 13, {S({1, 2}, {"a", "b"}), I({2, 2})}), 1, {2, 2},
              {"a", "b", "a", "b"});
  ExpectTexts(OneNode("Tile", 13, {S({2}, {"a", "b"}), I({2})}), 1, {4}, {"a", "b", "a", "b"});
  ExpectTexts(OneNode("Squeeze", 13, {S({1, 1}, {"a"}), I({0})}), 0, {1}, {"a"});
  ExpectTexts(OneNode("Unsqueeze", 13, {S({2}, {"a", "b"}), I({0})}), 1, {1, 2}, {"a", "b"});
  ExpectTexts(OneNode("Flatten", 13, {x}).Set("axis", int64_t{0}), 1, {1, 4},
              {"a", "b", "", "d\xff"});
  const Tensor condition = Tensor::Of<uint8_t>({2, 1}, {1, 0}).Cast(DType::kBool);
  ExpectTexts(OneNode("Where", 16, {condition, x, S({}, {"?"})}), 1, {2, 2}, {"a", "b", "?", "?"});
  EXPECT_EQ(OneNode("Shape", 13, {x}).Feed(0, true).Run(), (Numbers{2, 2}));
  ExpectTexts(OneNode("GatherND", 13, {x, I({1, 1}).Reshaped({1, 2})}), 1, {1}, {"d\xff"});
}

TEST(OnnxStrings, AreNoNumbers) {
  const Tensor x = S({2}, {"1", "2"});
  ExpectRefusal(OneNode("Add", 13, {x, x}), "input 0 ('x0') must be numbers, got string[2]");
  ExpectRefusal(OneNode("NonZero", 13, {x}), "string");
}

TEST(OnnxStrings, Constants) {
  ExpectTexts(OneNode("Constant", 13, {}).Set("value_strings", Texts{"a", "b"}), 0, {2},
              {"a", "b"});
  ExpectTexts(OneNode("Constant", 13, {}).Set("value_string", std::string("a")), 0, {1}, {"a"});
}

}  // namespace coracle::onnx::onnx_strings_test
