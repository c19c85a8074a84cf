#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::sequence_conv_test {

TEST(SequenceConv, Values) {
  // Out[t] = x[t - 1] + 10 x[t] + 100 x[t + 1] inside of the sequence.
  OpTest("sequence_conv")
      .Attr("contextLength", 3)
      .Attr("contextStart", -1)
      .Input("X", {4, 1}, {1, 2, 3, 4})
      .Lod({{0, 3, 3, 4}})
      .Input("Filter", {3, 1}, {1, 10, 100})
      .Expect("Out", {4, 1}, {210, 321, 32, 40})
      .ExpectLod("Out", {{0, 3, 3, 4}})
      .CheckGradient({"X", "Filter"});
  OpTest("sequence_conv")
      .Attr("contextLength", 2)
      .Attr("contextStart", 1)
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Lod({{0, 3}})
      .Input("Filter", {4, 1}, {1, 10, 100, 1000})
      .Expect("Out", {3, 1}, {6543, 65, 0})
      .CheckGradient({"X", "Filter"});
  OpTest("sequence_conv")
      .Attr("contextLength", 1)
      .Input("X", {0, 2}, {})
      .Lod({{0, 0}})
      .Input("Filter", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {0, 3}, {});
}

TEST(SequenceConv, Padding) {
  // Rows before the sequence: 0.1 and 0.2; after it: 0.3.
  OpTest("sequence_conv")
      .Attr("contextLength", 4)
      .Attr("contextStart", -2)
      .Attr("paddingTrainable", true)
      .Input("X", {3, 1}, {1, 2, 3})
      .Lod({{0, 2, 3}})
      .Input("Filter", {4, 1}, {1, 10, 100, 1000})
      .Input("PaddingData", {3, 1}, {0.1, 0.2, 0.3})
      .Expect("Out", {3, 1}, {2102.1, 510.2, 602.1})
      .CheckGradient({"X", "Filter", "PaddingData"});
  OpTest("sequence_conv")
      .Attr("contextLength", 2)
      .Attr("contextStart", 2)
      .Attr("paddingTrainable", true)
      .RandomInput("X", {5, 2})
      .Lod({{0, 1, 5}})
      .RandomInput("Filter", {4, 3})
      .RandomInput("PaddingData", {3, 2})
      .CheckGradient({"X", "Filter", "PaddingData"});
}

// Contexts that reach over both ends of short sequences, and batches of several blocks.
TEST(SequenceConv, FastKernel) {
  std::mt19937 random(6);
  for (int round = 0; round < 24; ++round) {
    const int64_t depth = round == 0 ? 2000 : 1 + static_cast<int64_t>(random() % 20);
    const auto length = static_cast<int32_t>(1 + random() % 6);
    const auto start = static_cast<int32_t>(random() % 9) - 5;
    LoD lod{{0}};
    const uint64_t count = round % 5;
    for (uint64_t i = 0; i < count; ++i) lod[0].push_back(lod[0].back() + random() % 12);
    const auto rows = static_cast<int64_t>(lod[0].back());
    const int64_t padding = std::max(0, -start) + std::max(0, start + length - 1);
    const bool padded = padding > 0 && round % 2 == 1;
    OpTest test("sequence_conv");
    test.Attr("contextLength", length).Attr("contextStart", start);
    test.RandomInput("X", {rows, depth}).Lod(lod);
    test.RandomInput("Filter", {length * depth, 1 + static_cast<int64_t>(random() % 9)});
    if (padded) test.Attr("paddingTrainable", true).RandomInput("PaddingData", {padding, depth});
    SCOPED_TRACE(testing::Message() << round << ": " << length << " from " << start);
    const Threads threads(1 + round % 3);
    test.CheckFast(1e-5);
  }
  OpTest long_rows("sequence_conv");
  long_rows.Attr("contextLength", 3).Attr("contextStart", -1);
  long_rows.RandomInput("X", {100, 9000}).Lod({{0, 30, 30, 95, 100}});
  long_rows.RandomInput("Filter", {27000, 2}).CheckFast(1e-4);
}

OpTest With(int32_t length, const Shape& x, const Shape& filter) {
  return std::move(OpTest("sequence_conv")
                       .Attr("contextLength", length)
                       .RandomInput("X", x)
                       .Lod({{0, 2}})
                       .RandomInput("Filter", filter));
}

TEST(SequenceConv, Constraints) {
  With(1, {2}, {1, 1}).ExpectError("sequence_conv.C1");
  With(0, {2, 1}, {1, 1}).ExpectError("sequence_conv.C2");
  With(1, {2, 1}, {1, 1}).Attr("contextStride", 2).ExpectError("sequence_conv.C2");
  With(2, {2, 1}, {1, 1}).ExpectError("sequence_conv.C3");
  With(2, {2, 1}, {2, 1}).Attr("paddingTrainable", true).ExpectError("sequence_conv.C4");
  With(1, {2, 1}, {1, 1})
      .Attr("paddingTrainable", true)
      .RandomInput("PaddingData", {0, 1})
      .ExpectError("sequence_conv.C4");
  With(1, {2, 1}, {1, 1})
      .Attr("contextStart", -1)
      .Attr("paddingTrainable", true)
      .RandomInput("PaddingData", {2, 1})
      .ExpectError("sequence_conv.C4");
  OpTest("sequence_conv")
      .Attr("contextLength", 1)
      .RandomInput("X", {2, 1})
      .RandomInput("Filter", {1, 1})
      .ExpectError("sequence_conv.C5");
  OpTest("sequence_conv_grad")
      .Attr("contextLength", 1)
      .RandomInput("X", {2, 1})
      .Lod({{0, 2}})
      .RandomInput("Filter", {1, 1})
      .RandomInput("Out@GRAD", {1, 1})
      .ExpectError("sequence_conv_grad.C6");
}
}  // namespace coracle::sequence_conv_test
