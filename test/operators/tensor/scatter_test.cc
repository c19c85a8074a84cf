#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::scatter_test {

TEST(Scatter, Overwrites) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("scatter")
        .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
        .IntInput("Ids", {2}, {2, 0}, dtype)
        .Input("Updates", {2, 2}, {7, 8, 9, 10})
        .Expect("Out", {3, 2}, {9, 10, 3, 4, 7, 8})
        .CheckGradient({"X", "Updates"})
        .CheckHigherGradients();
  }
  // The last of several updates of a row wins.
  OpTest("scatter")
      .Input("X", {2}, {1, 2})
      .IntInput("Ids", {2, 1}, {1, 1})
      .Input("Updates", {2}, {7, 8})
      .Expect("Out", {2}, {1, 8});
  OpTest("scatter")
      .Input("X", {2}, {1, 2})
      .IntInput("Ids", {0}, {})
      .Input("Updates", {0}, {})
      .Expect("Out", {2}, {1, 2});
  OpTest("scatter")
      .IntInput("X", {2}, {1, 2})
      .IntInput("Ids", {1}, {0})
      .IntInput("Updates", {1}, {int64_t{1} << 40})
      .Expect("Out", {2}, {0x1p40, 2});
}

TEST(Scatter, AddsUp) {
  OpTest("scatter")
      .Attr("overwrite", false)
      .Input("X", {3}, {1, 2, 3})
      .IntInput("Ids", {3}, {2, 0, 2})
      .Input("Updates", {3}, {10, 20, 30})
      .Expect("Out", {3}, {20, 2, 40})
      .CheckGradient({"X", "Updates"})
      .CheckHigherGradients();
}

// Equal rows come in their order, for any number of threads.
TEST(Scatter, ManyRows) {
  std::mt19937 random(4);
  for (int threads : {1, 3}) {
    const Threads scope(threads);
    for (int64_t width : {1, 3, 64}) {
      for (bool overwrite : {false, true}) {
        const int64_t rows = 97, count = 3000;
        std::vector<double> x(static_cast<size_t>(rows * width)), updates, out;
        for (double& v : x) v = static_cast<double>(random() % 100);
        out = x;
        std::vector<double> added = x;  // by scatter_nd_add
        std::vector<int64_t> ids;
        std::vector<bool> named(static_cast<size_t>(rows));
        for (int64_t i = 0; i < count; ++i) {
          ids.push_back(static_cast<int64_t>(random() % (rows - 5)));
          const auto row = static_cast<size_t>(ids.back());
          for (int64_t j = 0; j < width; ++j) {
            updates.push_back(static_cast<double>(random() % 100));
            const size_t at = row * static_cast<size_t>(width) + static_cast<size_t>(j);
            out[at] = overwrite || !named[row] ? updates.back() : out[at] + updates.back();
            added[at] += updates.back();
          }
          named[row] = true;
        }
        OpTest("scatter")
            .Attr("overwrite", overwrite)
            .Input("X", {rows, width}, x)
            .IntInput("Ids", {count}, ids)
            .Input("Updates", {count, width}, updates)
            .Expect("Out", {rows, width}, out);
        OpTest("scatter_nd_add")
            .Input("X", {rows, width}, x)
            .IntInput("Index", {count, 1}, ids, DType::kInt32)
            .Input("Updates", {count, width}, updates)
            .Expect("Out", {rows, width}, added);
      }
    }
  }
}

TEST(Scatter, Constraints) {
  const auto scatter = [] { return OpTest("scatter").Input("X", {2, 1}, {1, 2}); };
  scatter().Input("Ids", {1}, {0}).Input("Updates", {1, 1}, {1}).ExpectError("scatter.C1");
  scatter().IntInput("Ids", {1, 2}, {0, 0}).Input("Updates", {1, 1}, {1}).ExpectError("scatter.C2");
  scatter().IntInput("Ids", {1}, {0}).IntInput("Updates", {1, 1}, {1}).ExpectError("scatter.C3");
  scatter().IntInput("Ids", {1}, {0}).Input("Updates", {1}, {1}).ExpectError("scatter.C4");
  for (int64_t bad : {-1, 2}) {
    scatter()
        .IntInput("Ids", {1}, {bad})
        .Input("Updates", {1, 1}, {1})
        .ExpectError("scatter: Ids holds " + std::to_string(bad) + " at 0, outside [0, 2)");
  }
}

TEST(ScatterNdAdd, Values) {
  OpTest("scatter_nd_add")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Index", {3, 2}, {0, 1, 1, 0, 0, 1})
      .Input("Updates", {3}, {10, 20, 30})
      .Expect("Out", {2, 2}, {1, 42, 23, 4})
      .CheckGradient({"X", "Updates"})
      .CheckHigherGradients();
  OpTest("scatter_nd_add")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Index", {1, 1}, {1}, DType::kInt32)
      .Input("Updates", {1, 2}, {10, 20})
      .Expect("Out", {2, 2}, {1, 2, 13, 24})
      .CheckGradient({"X", "Updates"});
  // No index at all: the whole tensor.
  OpTest("scatter_nd_add")
      .Input("X", {2}, {1, 2})
      .IntInput("Index", {2, 0}, {})
      .Input("Updates", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2}, {5, 8})
      .CheckGradient({"X", "Updates"});
  OpTest("scatter_nd_add")
      .IntInput("X", {2}, {1, 2}, DType::kUInt8)
      .IntInput("Index", {1, 1}, {0})
      .IntInput("Updates", {1}, {3}, DType::kUInt8)
      .Expect("Out", {2}, {4, 2});
}

// No loop over entries that name nothing and hold nothing.
TEST(ScatterNdAdd, Constraints) {
  const auto add = [] { return OpTest("scatter_nd_add").Input("X", {2}, {1, 2}); };
  add().Input("Index", {1, 1}, {0}).Input("Updates", {1}, {1}).ExpectError("scatter_nd_add.C1");
  add().IntInput("Index", {}, {0}).Input("Updates", {1}, {1}).ExpectError("scatter_nd_add.C2");
  add()
      .IntInput("Index", {1, 2}, {0, 0})
      .Input("Updates", {1}, {1})
      .ExpectError("scatter_nd_add.C3");
  add()
      .IntInput("Index", {1, 1}, {0})
      .IntInput("Updates", {1}, {1})
      .ExpectError("scatter_nd_add.C4");
  add()
      .IntInput("Index", {1, 1}, {0})
      .Input("Updates", {2}, {1, 2})
      .ExpectError("scatter_nd_add.C5");
  add().IntInput("Index", {1, 1}, {2}).Input("Updates", {1}, {1}).ExpectError("outside [0, 2)");
}
}  // namespace coracle::scatter_test
