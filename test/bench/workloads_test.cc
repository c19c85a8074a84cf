// The work of the workloads, counted by hand from their definitions in bench/README.md.

#include <coracle/bench/workloads/limit.h>
#include <coracle/inspect/multiply_adds.h>
#include <gtest/gtest.h>

namespace coracle::workloads_test {

Cost CostOf(const std::string& kind, const std::string& name, int64_t batch = 1) {
  return CostOf(*MakeWorkload({.kind = kind, .name = name, .batch = batch}));
}

struct Expected {
  const char* name;
  int64_t parameters;
  double multiply_adds;
};

// Running statistics are not counted as parameters.
TEST(Workloads, InferenceCounts) {
  const Expected rows[] = {{"mlp", 669706, 668672},
                           {"lenet", 431080, 2293000},
                           {"resnet18", 11689512, 1814073344},
                           {"resnet50", 25557032, 4089184256},
                           {"mobilenetv1", 4231976, 568740352},
                           {"mobilenetv3", 5481872, 216588608},
                           {"transformer", 5754378, 436210176},
                           {"signal", 1121315, 1109000960}};
  EXPECT_EQ(WorkloadNames("infer").size(), std::size(rows));
  for (const Expected& row : rows) {
    SCOPED_TRACE(row.name);
    for (const int64_t batch : {1, 8}) {
      const Cost cost = CostOf("infer", row.name, batch);
      EXPECT_EQ(cost.parameters, row.parameters);
      EXPECT_EQ(cost.multiply_adds, row.multiply_adds * static_cast<double>(batch));
    }
  }
}

// Three times the forward products, without the gradient by the images.
TEST(Workloads, TrainingCounts) {
  const Expected rows[] = {
      {"mlp", 669706, 128 * (3 * 668672.0 - 784 * 512)},
      {"lenet", 431080, 64 * (3 * 2293000.0 - 24 * 24 * 20 * 25)},
      {"resnet20", 272474, 64 * (3 * 40813184.0 - 32 * 32 * 16 * 27)},
      {"resnet18", 11689512, 8 * (3 * 592695296.0 - 64 * 64 * 64 * 147)},
      {"lstm", 4653200, 3 * 1848e6},
      {"transformer", 5754378, 8 * 3 * 436210176.0},
      {"reco_sgd", 16139777, 512 * 3 * 139392.0},
      {"reco_adagrad", 16139777, 512 * 3 * 139392.0},
  };
  for (const Expected& row : rows) {
    SCOPED_TRACE(row.name);
    const Cost cost = CostOf("train", row.name);
    EXPECT_EQ(cost.parameters, row.parameters);
    EXPECT_EQ(cost.multiply_adds, row.multiply_adds);
  }
}

TEST(Workloads, BytesToMove) {
  constexpr double kArray = 4.0 * (1 << 24);
  EXPECT_EQ(CostOf("micro", "eltwise6_16m").bytes, 4 * kArray);         // x, y, z, the result
  EXPECT_EQ(CostOf("micro", "eltwise6_16m_fwdbwd").bytes, 8 * kArray);  // weight, 3 gradients
  // LeNet in inference: image, parameters, logits.
  EXPECT_EQ(CostOf("infer", "lenet").bytes, 4.0 * (784 + 431080 + 10));
  // Only the rows of the table that are looked up are read and written.
  const double rows = 512 * 26 * 16 * 4.0, dense = 139777 * 4.0;
  const double fed = 512 * (26 * 8 + 4.0) + 4, rate = 4;
  EXPECT_EQ(CostOf("train", "reco_sgd").bytes, fed + 2 * rows + 2 * dense + rate);
}

TEST(Workloads, LimitIsTheSlowerOfArithmeticAndMemory) {
  const Rates rates{.gflops = 100, .gbytes_s = 10};
  EXPECT_DOUBLE_EQ(LimitSeconds({0, 50e9, 5e9}, rates), 1);
  EXPECT_DOUBLE_EQ(LimitSeconds({0, 50e9, 20e9}, rates), 2);
  EXPECT_DOUBLE_EQ(LimitSeconds({0, 50, 1024}, rates), 1e-9);  // 1 KiB stays in the cache
}

TEST(Workloads, UnknownNamesAreRefused) {
  EXPECT_THROW(CostOf("train", "alexnet"), Error);
  EXPECT_THROW(CostOf("training", "lenet"), Error);
}

class Block {
 public:
  std::string Var(const std::string& name, const Shape& shape) {
    program_.Root().Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, shape, 0});
    return name;
  }
  double Count(const std::string& type, SlotList inputs, SlotList outputs, AttrList attrs = {}) {
    return MultiplyAdds(
        program_.Root().AppendOp(type, std::move(inputs), std::move(outputs), std::move(attrs)));
  }

 private:
  ProgramDesc program_;
};

TEST(MultiplyAdds, OfSingleOps) {
  Block b;
  const std::string x = b.Var("x", {2, 6, 5, 5}), filter = b.Var("filter", {4, 3, 3, 3}),
                    out = b.Var("out", {2, 4, 3, 3}), row = b.Var("row", {7, 6}),
                    weight = b.Var("weight", {6, 4}), product = b.Var("product", {7, 4}),
                    other = b.Var("other", {4, 6}), up = b.Var("up", {6, 2, 2, 2});
  const double convolution = 2 * 4 * 3 * 3 * 27;
  EXPECT_EQ(b.Count("conv2d", {{"Input", {x}}, {"Filter", {filter}}}, {{"Output", {out}}}),
            convolution);
  EXPECT_EQ(b.Count("conv2d_grad", {{"Input", {x}}, {"Filter", {filter}}, {"Output@GRAD", {out}}},
                    {{"Input@GRAD", {x}}, {"Filter@GRAD", {filter}}}),
            2 * convolution);
  EXPECT_EQ(b.Count("conv2d_grad", {{"Input", {x}}, {"Filter", {filter}}, {"Output@GRAD", {out}}},
                    {{"Filter@GRAD", {filter}}}),
            convolution);
  EXPECT_EQ(b.Count("conv2d_transpose", {{"Input", {x}}, {"Filter", {up}}}, {{"Output", {"y"}}}),
            2 * 6 * 25 * 8);
  EXPECT_EQ(b.Count("mul", {{"X", {row}}, {"Y", {weight}}}, {{"Out", {product}}}), 7 * 6 * 4);
  EXPECT_EQ(b.Count("fc", {{"Input", {row}}, {"W", {weight}}}, {{"Out", {product}}}), 7 * 6 * 4);
  EXPECT_EQ(b.Count("matmul", {{"X", {row}}, {"Y", {other}}}, {{"Out", {product}}},
                    {{"transpose_Y", true}}),
            7 * 6 * 4);
  EXPECT_EQ(b.Count("matmul_v2_grad", {{"X", {row}}, {"Y", {other}}, {"Out@GRAD", {product}}},
                    {{"X@GRAD", {row}}, {"Y@GRAD", {other}}}, {{"trans_y", true}}),
            2 * 7 * 6 * 4);
  EXPECT_EQ(b.Count("fc_gradients", {{"Input", {row}}, {"W", {weight}}, {"Out@GRAD", {product}}},
                    {{"Input@GRAD", {row}}, {"W@GRAD", {weight}}}),
            2 * 7 * 6 * 4);
  EXPECT_EQ(b.Count("relu", {{"X", {x}}}, {{"Out", {out}}}), 0);
}

// A product for each pair of broadcast matrices; no elements take no arithmetic.
TEST(MultiplyAdds, OfBroadcastProducts) {
  Block b;
  const std::string x = b.Var("x", {1, 2, 3}), many = b.Var("many", {8, 3, 4}),
                    turned = b.Var("turned", {8, 4, 3}), both = b.Var("both", {5, 1, 2, 3}),
                    vector = b.Var("vector", {3}), none = b.Var("none", {0, 3});
  const auto count = [&](const std::string& left, const std::string& right, AttrList attrs = {}) {
    return b.Count("matmul_v2", {{"X", {left}}, {"Y", {right}}}, {{"Out", {"out"}}}, attrs);
  };
  EXPECT_EQ(count(x, many), 8 * 2 * 3 * 4);
  EXPECT_EQ(count(x, turned, {{"trans_y", true}}), 8 * 2 * 3 * 4);
  EXPECT_EQ(count(both, many), 5 * 8 * 2 * 3 * 4);
  EXPECT_EQ(count(vector, many), 8 * 3 * 4);
  EXPECT_EQ(count(x, vector), 2 * 3);
  EXPECT_EQ(count(none, many), 0);
  EXPECT_EQ(b.Count("matmul_v2_grad", {{"X", {x}}, {"Y", {many}}, {"Out@GRAD", {"out"}}},
                    {{"X@GRAD", {x}}, {"Y@GRAD", {many}}}),
            2 * 8 * 2 * 3 * 4);
}

TEST(MultiplyAdds, OfAttentions) {
  Block b;
  const std::string q = b.Var("q", {2, 3, 4, 5}), k = b.Var("k", {2, 3, 6, 5}),
                    v = b.Var("v", {2, 3, 6, 7}), out = b.Var("out", {2, 3, 4, 7}),
                    rows = b.Var("rows", {2, 4, 3, 5}), keys = b.Var("keys", {2, 6, 3, 5}),
                    values = b.Var("values", {2, 6, 3, 7}), all = b.Var("all", {2, 4, 3, 3, 5});
  const std::string type = "scaled_dot_product_attention";
  const double count = 2 * 3 * 4 * 6 * (5 + 7);
  EXPECT_EQ(b.Count(type, {{"Q", {q}}, {"K", {k}}, {"V", {v}}}, {{"Out", {out}}}), count);
  EXPECT_EQ(b.Count(type, {{"Q", {rows}}, {"K", {keys}}, {"V", {values}}}, {{"Out", {"o"}}},
                    {{"layout", std::string("BSHD")}}),
            count);
  EXPECT_EQ(b.Count(type, {{"Q", {all}}}, {{"Out", {"p"}}}, {{"layout", std::string("BS3HD")}}),
            2 * 3 * 4 * 4 * (5 + 5));
  EXPECT_EQ(b.Count(type + "_grad", {{"Q", {q}}, {"K", {k}}, {"V", {v}}, {"Out@GRAD", {out}}},
                    {{"Q@GRAD", {q}}, {"K@GRAD", {k}}, {"V@GRAD", {v}}}),
            2 * count);
}

TEST(MultiplyAdds, OfRecurrentOps) {
  Block b;
  const std::string x = b.Var("x", {5, 3, 6}), w = b.Var("w", {16, 6}), u = b.Var("u", {16, 4}),
                    bias = b.Var("bias", {16}), rows = b.Var("rows", {9, 16}),
                    recurrent = b.Var("recurrent", {4, 16});
  const double count = 5 * 3 * (16 * 6 + 16 * 4);
  const SlotList inputs = {{"Input", {x}}, {"WeightList", {w, u, bias, bias}}};
  EXPECT_EQ(b.Count("rnn", inputs, {{"Out", {"out"}}}), count);
  EXPECT_EQ(b.Count("rnn_grad", inputs, {{"Input@GRAD", {"dx"}}, {"WeightList@GRAD", {"dw"}}}),
            2 * count);
  EXPECT_EQ(b.Count("lstm", {{"Input", {rows}}, {"Weight", {recurrent}}}, {{"Hidden", {"h"}}}),
            9 * 4 * 16);
}
}  // namespace coracle::workloads_test
