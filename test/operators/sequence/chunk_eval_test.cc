#include <coracle/test/op_test.h>

namespace coracle::chunk_eval_test {

using Ints = std::vector<int64_t>;

OpTest Eval(const std::string& scheme, int32_t types, const Ints& found, const Ints& label,
            LoD lod) {
  const Shape shape{static_cast<int64_t>(label.size()), 1};
  return std::move(OpTest("chunk_eval")
                       .Attr("chunk_scheme", scheme)
                       .Attr("num_chunk_types", types)
                       .IntInput("Inference", {static_cast<int64_t>(found.size()), 1}, found)
                       .Lod(lod)
                       .IntInput("Label", shape, label)
                       .Lod(lod));
}

void ExpectCounts(OpTest test, double found, double wanted, double right) {
  const double p = found > 0 ? right / found : 0, r = wanted > 0 ? right / wanted : 0;
  test.Expect("NumInferChunks", {1}, {found})
      .Expect("NumLabelChunks", {1}, {wanted})
      .Expect("NumCorrectChunks", {1}, {right})
      .Expect("Precision", {1}, {p})
      .Expect("Recall", {1}, {r})
      .Expect("F1-Score", {1}, {p + r > 0 ? 2 * p * r / (p + r) : 0});
}

// Early versions of Paddle save the op without F1-Score.
TEST(ChunkEval, WithoutF1) {
  OpTest test("chunk_eval");
  test.Attr("num_chunk_types", 1)
      .IntInput("Inference", {2, 1}, {0, 2})
      .Lod({{0, 2}})
      .IntInput("Label", {2, 1}, {0, 0})
      .Lod({{0, 2}})
      .NoOutput("F1-Score")
      .Expect("Precision", {1}, {1})
      .Expect("Recall", {1}, {0.5});
}

// Labels of two types: B0 0, I0 1, B1 2, I1 3, other 4.
TEST(ChunkEval, Iob) {
  // [0 1] 4 [2 3 3] against [0 1] 4 [2 3] [2]; then [2] [0 1] twice: a chunk ends with
  // its sequence.
  ExpectCounts(
      Eval("IOB", 2, {0, 1, 4, 2, 3, 3, 2, 0, 1}, {0, 1, 4, 2, 3, 2, 2, 0, 1}, {{0, 6, 9}}), 4, 5,
      3);
  // An I without B begins a chunk; another type does too.
  ExpectCounts(Eval("IOB", 2, {1, 1, 3, 4}, {0, 1, 2, 4}, {{0, 4}}), 2, 2, 2);
  ExpectCounts(Eval("IOB", 2, {4, 4}, {4, 4}, {{0, 0, 2}}), 0, 0, 0);
  ExpectCounts(Eval("IOB", 2, {}, {}, {{0}}), 0, 0, 0);
}

TEST(ChunkEval, ExcludedTypes) {
  ExpectCounts(Eval("IOB", 2, {0, 1, 4, 2}, {0, 1, 4, 2}, {{0, 4}})
                   .Attr("excluded_chunk_types", std::vector<int32_t>{1}),
               1, 1, 1);
}

// I 0, E 1: a chunk ends with E, or where the type changes.
TEST(ChunkEval, Ioe) {
  ExpectCounts(Eval("IOE", 1, {0, 1, 0, 1, 2}, {0, 0, 0, 1, 2}, {{0, 5}}), 2, 1, 0);
  ExpectCounts(Eval("IOE", 2, {0, 1, 1, 2}, {0, 1, 1, 3}, {{0, 4}}), 3, 3, 3);
}

// B 0, I 1, E 2, S 3.
TEST(ChunkEval, Iobes) {
  ExpectCounts(Eval("IOBES", 1, {0, 1, 2, 3, 3, 4}, {0, 1, 2, 3, 4, 3}, {{0, 6}}), 3, 3, 2);
}

// Neighbours of one type are one chunk.
TEST(ChunkEval, Plain) {
  ExpectCounts(Eval("plain", 2, {0, 0, 1, 2, 1}, {0, 0, 0, 2, 1}, {{0, 5}}), 3, 2, 1);
}

TEST(ChunkEval, Padded) {
  ExpectCounts(std::move(OpTest("chunk_eval")
                             .Attr("num_chunk_types", 1)
                             .IntInput("Inference", {2, 3}, {0, 1, 0, 0, 0, 0})
                             .IntInput("Label", {2, 3}, {0, 1, 0, 0, 1, 0})
                             .IntInput("SeqLength", {2}, {2, 3})),
               4, 3, 2);
}

TEST(ChunkEval, Constraints) {
  OpTest("chunk_eval")
      .Attr("num_chunk_types", 1)
      .IntInput("Inference", {1, 2}, {0, 1})
      .Lod({{0, 1}})
      .IntInput("Label", {1, 2}, {0, 1})
      .Lod({{0, 1}})
      .ExpectError("chunk_eval.C1");
  Eval("IOB", 1, {0}, {0}, {}).ExpectError("chunk_eval.C2");
  OpTest("chunk_eval")
      .Attr("num_chunk_types", 1)
      .IntInput("Inference", {2, 1}, {0, 1})
      .Lod({{0, 1, 2}})
      .IntInput("Label", {2, 1}, {0, 1})
      .Lod({{0, 2}})
      .ExpectError("chunk_eval.C3");
  Eval("IOB", -1, {0}, {0}, {{0, 1}}).ExpectError("chunk_eval.C4");
  Eval("IOB", 1, {3}, {0}, {{0, 1}}).ExpectError("chunk_eval.C5");
  Eval("IOB", 1, {0}, {-1}, {{0, 1}}).ExpectError("chunk_eval.C5");
}
}  // namespace coracle::chunk_eval_test
