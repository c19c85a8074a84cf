#include <coracle/test/op_test.h>

namespace coracle::lookup_table_test {

const std::vector<double> kTable = {1, 2, 3, 4, 5, 6};

TEST(LookupTable, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("lookup_table_v2")
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {2, 2}, {2, 0, 2, 1}, dtype)
        .Expect("Out", {2, 2, 2}, {5, 6, 1, 2, 5, 6, 3, 4})
        .CheckGradient({"W"})
        .CheckSecondGradient({"W"});
    OpTest("lookup_table")
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {2, 1}, {2, 0}, dtype)
        .Expect("Out", {2, 2}, {5, 6, 1, 2})
        .CheckGradient({"W"})
        .CheckSecondGradient({"W"});
  }
  OpTest("lookup_table_v2")
      .Input("W", {3, 2}, kTable)
      .IntInput("Ids", {}, {1})
      .Expect("Out", {2}, {3, 4});
  OpTest("lookup_table_v2")
      .Input("W", {3, 2}, kTable)
      .IntInput("Ids", {0}, {})
      .Expect("Out", {0, 2}, {});
}

TEST(LookupTable, Padding) {
  for (const char* type : {"lookup_table", "lookup_table_v2"}) {
    OpTest(type)
        .Attr("padding_idx", int64_t{2})
        .Attr("is_sparse", true)
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {3, 1}, {2, 0, 2})
        .Expect("Out", type == std::string("lookup_table") ? Shape{3, 2} : Shape{3, 1, 2},
                {0, 0, 1, 2, 0, 0})
        .CheckGradient({"W"})
        .CheckSecondGradient({"W"});
  }
}

// One row of Out@GRAD for each id; rows of the padding are left out.
TEST(LookupTable, SparseGradient) {
  for (const std::string type : {"lookup_table", "lookup_table_v2"}) {
    for (DType dtype : {DType::kInt32, DType::kInt64}) {
      OpTest(type + "_grad")
          .Attr("is_sparse", true)
          .Input("W", {3, 2}, kTable)
          .IntInput("Ids", {3, 1}, {2, 0, 2}, dtype)
          .Input("Out@GRAD", {3, 2}, {1, 2, 3, 4, 5, 6})
          .ExpectRows("W@GRAD", 3, {2, 0, 2}, {1, 2, 3, 4, 5, 6});
    }
    OpTest(type + "_grad")
        .Attr("is_sparse", true)
        .Attr("padding_idx", int64_t{2})
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {3, 1}, {2, 0, 2})
        .Input("Out@GRAD", {3, 2}, {1, 2, 3, 4, 5, 6})
        .ExpectRows("W@GRAD", 3, {0}, {3, 4});
    OpTest(type)
        .Attr("is_sparse", true)
        .RandomInput("W", {5, 3})
        .IntInput("Ids", {4, 1}, {4, 0, 4, 1})
        .CheckGradient({"W"})
        .CheckSecondGradient({"W"});
  }
  OpTest("lookup_table_v2_grad")
      .Attr("is_sparse", true)
      .Input("W", {3, 2}, kTable)
      .IntInput("Ids", {0}, {})
      .Input("Out@GRAD", {0, 2}, {})
      .ExpectRows("W@GRAD", 3, {}, {});
  for (int64_t bad : {-1, 3}) {
    OpTest("lookup_table_v2_grad")
        .Attr("is_sparse", true)
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {2}, {0, bad})
        .Input("Out@GRAD", {2, 2}, {1, 2, 3, 4})
        .ExpectError("outside [0, 3)");
  }
}

TEST(LookupTable, IdOutOfRange) {
  for (int64_t bad : {-1, 3}) {
    OpTest("lookup_table_v2")
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {2}, {0, bad})
        .ExpectError("lookup_table_v2: Ids holds " + std::to_string(bad));
    OpTest("lookup_table_v2_grad")
        .Input("W", {3, 2}, kTable)
        .IntInput("Ids", {2}, {0, bad})
        .Input("Out@GRAD", {2, 2}, {1, 2, 3, 4})
        .ExpectError("outside [0, 3)");
  }
}

TEST(LookupTable, Constraints) {
  for (const std::string type : {"lookup_table", "lookup_table_v2"}) {
    OpTest(type).Input("W", {2}, {1, 2}).IntInput("Ids", {1, 1}, {0}).ExpectError(type + ".C1");
    OpTest(type).Input("W", {1, 1}, {1}).Input("Ids", {1, 1}, {0}).ExpectError(type + ".C2");
    OpTest(type + "_grad")
        .Input("W", {2}, {1, 2})
        .IntInput("Ids", {1}, {0})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C1");
    OpTest(type + "_grad")
        .Input("W", {1, 1}, {1})
        .Input("Ids", {1}, {0})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C2");
    OpTest(type + "_grad")
        .Input("W", {1, 1}, {1})
        .IntInput("Ids", {1}, {0})
        .Input("Out@GRAD", {2}, {1, 2})
        .ExpectError(type + "_grad.C3");
  }
  OpTest("lookup_table_v2")
      .Input("W", {1, 1}, {1})
      .IntInput("Ids", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0})
      .ExpectError("lookup_table_v2.C3");
  OpTest("lookup_table")
      .Input("W", {1, 1}, {1})
      .IntInput("Ids", {2}, {0, 0})
      .ExpectError("lookup_table.C4");
}

// Rank 9 passes here: the last dimension is replaced.
TEST(LookupTable, C3_RankOfOut) {
  OpTest("lookup_table")
      .Input("W", {1, 1}, {7})
      .IntInput("Ids", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0})
      .Expect("Out", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {7});
}

}  // namespace coracle::lookup_table_test
