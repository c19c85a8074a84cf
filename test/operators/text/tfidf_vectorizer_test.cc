#include <coracle/test/op_test.h>

namespace coracle::tfidf_vectorizer_test {

using Longs = std::vector<int64_t>;
using Texts = std::vector<std::string>;

// 1-grams 2, 3, 5, 4 in the columns 0 to 3, and 2-grams (5, 6), (7, 8), (6, 7) in 4 to 6.
OpTest Vectorizer(int64_t least, int64_t most, int64_t skips) {
  OpTest op("tfidf_vectorizer");
  op.Attr("min_gram_length", least)
      .Attr("max_gram_length", most)
      .Attr("max_skip_count", skips)
      .Attr("ngram_counts", Longs{0, 4})
      .Attr("ngram_indexes", Longs{0, 1, 2, 3, 4, 5, 6})
      .Attr("pool_int64s", Longs{2, 3, 5, 4, 5, 6, 7, 8, 6, 7});
  return op;
}

const Longs& TwoRows() {
  static const Longs rows = {1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8};
  return rows;
}

TEST(TfidfVectorizer, Pairs) {
  Vectorizer(2, 2, 0)
      .IntInput("X", {2, 6}, TwoRows())
      .Expect("Out", {2, 7}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1});
  Vectorizer(2, 2, 0)
      .IntInput("X", {12}, TwoRows(), DType::kInt32)
      .Expect("Out", {7}, {0, 0, 0, 0, 1, 1, 1});
}

// With up to 5 tokens left out, 7 and 8 are a pair at a distance of 3, 5 and 6 only at 1, 6 and 7
// at 1; in one long row also 7 (place 5) and 8 (places 6 and 11), at distances 1 and 6.
TEST(TfidfVectorizer, Skips) {
  Vectorizer(2, 2, 5)
      .IntInput("X", {2, 6}, TwoRows())
      .Expect("Out", {2, 7}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1});
  Vectorizer(1, 2, 5)
      .IntInput("X", {2, 6}, TwoRows())
      .Expect("Out", {2, 7}, {0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1});
}

TEST(TfidfVectorizer, Weights) {
  const std::vector<float> weights = {2, 3, 5, 7, 11, 13, 17};
  for (const char* mode : {"TF", "IDF", "TFIDF"}) {
    const bool idf = std::string(mode) == "IDF", tf = std::string(mode) == "TF";
    Vectorizer(1, 1, 0)
        .Attr("mode", std::string(mode))
        .Attr("weights", weights)
        .IntInput("X", {4}, {3, 3, 5, 9})
        .Expect("Out", {7},
                {0,
                 tf    ? 2.
                 : idf ? 3.
                       : 6.,
                 tf ? 1. : 5., 0, 0, 0, 0});
  }
}

TEST(TfidfVectorizer, Strings) {
  OpTest("tfidf_vectorizer")
      .Attr("max_gram_length", int64_t{2})
      .Attr("ngram_counts", Longs{0, 1})
      .Attr("ngram_indexes", Longs{3, 0})
      .Attr("pool_strings", Texts{"a", "a", ""})
      .TensorInput("X", Tensor::OfStrings({1, 4}, Texts{"a", "a", "", "b"}))
      .Expect("Out", {1, 4}, {1, 0, 0, 2});
}

TEST(TfidfVectorizer, Empty) {
  Vectorizer(1, 2, 3).IntInput("X", {0}, {}).Expect("Out", {7}, {0, 0, 0, 0, 0, 0, 0});
  Vectorizer(1, 2, 3).IntInput("X", {0, 4}, {}).Expect("Out", {0, 7}, {});
  Vectorizer(1, INT64_MAX, INT64_MAX)
      .IntInput("X", {2}, {7, 8})
      .Expect("Out", {7}, {0, 0, 0, 0, 0, 1, 0});
  Vectorizer(INT64_MAX, INT64_MAX, INT64_MAX)
      .IntInput("X", {2}, {7, 8})
      .Expect("Out", {7}, {0, 0, 0, 0, 0, 0, 0});
}

TEST(TfidfVectorizer, C1_Floats) {
  Vectorizer(1, 1, 0).Input("X", {1}, {1}).ExpectError("tfidf_vectorizer.C1");
}
TEST(TfidfVectorizer, C2_Kind) {
  Vectorizer(1, 1, 0)
      .TensorInput("X", Tensor::OfStrings({1}, Texts{"a"}))
      .ExpectError("tfidf_vectorizer.C2");
}
TEST(TfidfVectorizer, C3_Rank) {
  Vectorizer(1, 1, 0).IntInput("X", {1, 1, 1}, {1}).ExpectError("tfidf_vectorizer.C3");
}
TEST(TfidfVectorizer, C4_Lengths) {
  Vectorizer(0, 1, 0).IntInput("X", {1}, {1}).ExpectError("tfidf_vectorizer.C4");
  Vectorizer(2, 1, 0).IntInput("X", {1}, {1}).ExpectError("tfidf_vectorizer.C4");
  Vectorizer(1, 1, -1).IntInput("X", {1}, {1}).ExpectError("tfidf_vectorizer.C4");
}
TEST(TfidfVectorizer, C5_Pool) {
  for (const Longs& starts : {Longs{0, 3}, Longs{0, 20}, Longs{1, 4}, Longs{0, -2}, Longs{4, 0}})
    Vectorizer(1, 1, 0)
        .Attr("ngram_counts", starts)
        .IntInput("X", {1}, {1})
        .ExpectError("tfidf_vectorizer.C5");
}
TEST(TfidfVectorizer, C6_Columns) {
  Vectorizer(1, 1, 0)
      .Attr("ngram_indexes", Longs{0, 1, 2, 3, 4, 5, -6})
      .IntInput("X", {1}, {1})
      .ExpectError("tfidf_vectorizer.C6");
}
TEST(TfidfVectorizer, C7_Weights) {
  Vectorizer(1, 1, 0)
      .Attr("weights", std::vector<float>{1, 2})
      .IntInput("X", {1}, {1})
      .ExpectError("tfidf_vectorizer.C7");
}

}  // namespace coracle::tfidf_vectorizer_test
