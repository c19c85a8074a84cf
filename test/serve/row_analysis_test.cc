// Which models join requests: shapes that ops compute from the shapes of batches, open sizes, and
// near misses that mix rows. Joined answers are those of each request alone.

#include <coracle/distribute/part_values.h>
#include <coracle/edit/written_shapes.h>
#include <coracle/serve/row_analysis.h>
#include <coracle/test/serve/small_models.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

namespace coracle::row_analysis_test {

using serve::Port;
using serve::RowAnalysis;
using Numbers = std::vector<int32_t>;

// A model of x whose ops are appended by `body`, with the output "y".
struct Model {
  ProgramDesc main, startup;
  Shape x, y;

  Model(const Shape& input, const Shape& output, const std::function<void(Builder&)>& body)
      : x(input), y(output) {
    Builder net(main, startup);
    net.Data("x", input);
    body(net);
    main.Root().Var("y").SetShape(output);
  }
  std::unique_ptr<RowAnalysis> Analysis() const {
    return std::make_unique<RowAnalysis>(main, std::vector<Port>{{"x", DType::kFloat32, x}},
                                         std::vector<Port>{{"y", DType::kFloat32, y}}, Scope());
  }
  bool Always() const { return Analysis()->always(); }
  bool Joins(const Shape& shape) const {
    return Analysis()->Joins({Tensor::Zeros(DType::kFloat32, shape)});
  }
};

// The mean of each channel of x [N, C, H, W]: g [N, C, 1, 1].
void Pool(Builder& net) {
  net.Append(
      "pool2d", {{"X", {"x"}}}, {{"Out", {"g"}}},
      {{"pooling_type", std::string("avg")}, {"global_pooling", true}, {"ksize", Numbers{1, 1}}});
}

// dim = the dimension `axis` of a variable, as exporters compute it.
void Dim(Builder& net, const std::string& of, int32_t axis, const std::string& dim) {
  net.Append("shape", {{"Input", {of}}}, {{"Out", {dim + ".all"}}});
  net.Append("cast", {{"X", {dim + ".all"}}}, {{"Out", {dim + ".wide"}}},
             {{"in_dtype", 2}, {"out_dtype", 3}});
  net.Append("slice", {{"Input", {dim + ".wide"}}}, {{"Out", {dim}}},
             {{"axes", Numbers{0}}, {"starts", Numbers{axis}}, {"ends", Numbers{axis + 1}}});
}

void Number(Builder& net, int64_t value, const std::string& name) {
  net.Append(
      "fill_constant", {}, {{"Out", {name}}},
      {{"shape", std::vector<int64_t>{1}}, {"dtype", 3}, {"value", static_cast<float>(value)}});
}

// y = `from`, reshaped to [first, second].
void Reshape(Builder& net, const std::string& from, const std::string& first,
             const std::string& second, const std::string& to = "y") {
  net.Append("concat", {{"X", {first, second}}}, {{"Out", {to + ".shape"}}}, {{"axis", 0}});
  net.Append("reshape2", {{"X", {from}}, {"Shape", {to + ".shape"}}},
             {{"Out", {to}}, {"XShape", {to + ".x"}}});
}

Model Pooled(const std::string& of, int32_t axis, int64_t second) {
  return Model({-1, 3, 4, 4}, {-1, 3}, [&](Builder& net) {
    Pool(net);
    Dim(net, of, axis, "n");
    Number(net, second, "rest");
    Reshape(net, "g", "n", "rest");
  });
}

TEST(RowAnalysis, FollowsShapesOfBatches) {
  EXPECT_TRUE(Pooled("g", 0, -1).Always());
  EXPECT_TRUE(Pooled("g", 0, 3).Always());
  EXPECT_TRUE(Pooled("x", 0, 3).Always());
  EXPECT_TRUE(Pooled("x", 0, -1).Always());
}

// An op that reads the mean of all rows makes rows that depend on all of them.
TEST(RowAnalysis, SeesValuesOfAllRows) {
  for (const bool keep : {true, false}) {
    const Model centred({-1, 3}, {-1, 3}, [keep](Builder& net) {
      net.Append("reduce_mean", {{"X", {"x"}}}, {{"Out", {"m"}}},
                 {{"dim", Numbers{0}}, {"keep_dim", keep}, {"reduce_all", false}});
      net.Append("elementwise_sub", {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"y"}}}, {{"axis", -1}});
    });
    EXPECT_FALSE(centred.Always());
    const Model open({-1, -1}, {-1, 3}, [keep](Builder& net) {
      net.Append("reduce_sum", {{"X", {"x"}}}, {{"Out", {"m"}}},
                 {{"dim", Numbers{0}}, {"keep_dim", keep}, {"reduce_all", false}});
      net.Append("elementwise_mul", {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"y"}}}, {{"axis", -1}});
    });
    EXPECT_FALSE(open.Joins({1, 3}));
  }
}

TEST(RowAnalysis, DimsOneByOne) {
  const Model list({-1, 3, 4, 4}, {-1, 3}, [](Builder& net) {
    Pool(net);
    Dim(net, "x", 0, "n");
    Number(net, 3, "rest");
    net.Append("reshape2", {{"X", {"g"}}, {"ShapeTensor", {"n", "rest"}}},
               {{"Out", {"y"}}, {"XShape", {"y.x"}}});
  });
  EXPECT_TRUE(list.Always());
}

TEST(RowAnalysis, SeesRowsThatAreMixed) {
  EXPECT_FALSE(Pooled("x", 1, -1).Always());  // [3, -1]
  EXPECT_FALSE(Pooled("g", 2, -1).Always());  // [1, -1]
  EXPECT_FALSE(Pooled("x", 0, 1).Always());   // [N, 1] fits no batch
  // [3, N] as [N, 3] has other rows.
  const Model turned({-1, 3, 4, 4}, {-1, 3}, [](Builder& net) {
    Pool(net);
    Dim(net, "x", 0, "n");
    Number(net, -1, "rest");
    Reshape(net, "g", "n", "rest", "rows");
    net.Append("transpose2", {{"X", {"rows"}}}, {{"Out", {"turned"}}, {"XShape", {"turned.x"}}},
               {{"axis", Numbers{1, 0}}});
    Reshape(net, "turned", "n", "rest");
  });
  EXPECT_FALSE(turned.Always());
  // The claim that both have the number of rows is wrong: g2 has twice as many.
  const Model twice({-1, 3, 4, 4}, {-1, 6}, [](Builder& net) {
    Pool(net);
    net.Append("tile", {{"X", {"g"}}}, {{"Out", {"g2"}}}, {{"repeat_times", Numbers{2, 1, 1, 1}}});
    Dim(net, "x", 0, "n");
    Number(net, -1, "rest");
    Reshape(net, "g2", "n", "rest");
  });
  EXPECT_FALSE(twice.Always());
  const Model mean({-1, 3, 4, 4}, {-1, 3}, [](Builder& net) {
    Pool(net);
    net.Append("reduce_mean", {{"X", {"g"}}}, {{"Out", {"m"}}},
               {{"dim", Numbers{0}}, {"keep_dim", true}, {"reduce_all", false}});
    net.Append("elementwise_sub", {{"X", {"g"}}, {"Y", {"m"}}}, {{"Out", {"d"}}}, {{"axis", -1}});
    Dim(net, "d", 0, "n");
    Number(net, -1, "rest");
    Reshape(net, "d", "n", "rest");
  });
  EXPECT_FALSE(mean.Always());
}

// Sizes that are not the number of rows, although they are unknown, too.
TEST(RowAnalysis, UnknownSizesAreNotRows) {
  const Model outer({-1, 4}, {-1, 4}, [](Builder& net) {
    for (const auto& [name, value] : {std::pair("start", 0.0f), {"end", 3.0f}, {"step", 1.0f}})
      net.Append("fill_constant", {}, {{"Out", {name}}},
                 {{"shape", std::vector<int64_t>{1}}, {"dtype", 5}, {"value", value}});
    net.Append("range", {{"Start", {"start"}}, {"End", {"end"}}, {"Step", {"step"}}},
               {{"Out", {"r"}}});
    net.Append("unsqueeze2", {{"X", {"r"}}}, {{"Out", {"c"}}, {"XShape", {"c.x"}}},
               {{"axes", Numbers{1}}});
    net.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"c"}}}, {{"Out", {"y"}}}, {{"axis", -1}});
  });
  EXPECT_FALSE(outer.Always());
}

// squeeze without axes drops the dimension of a single row.
TEST(RowAnalysis, ASingleRowKeepsItsDimension) {
  const Model all({-1, 1, 4}, {-1, 4}, [](Builder& net) {
    net.Append("squeeze2", {{"X", {"x"}}}, {{"Out", {"y"}}, {"XShape", {"y.x"}}});
  });
  EXPECT_FALSE(all.Always());
  const Model one({-1, 1, 4}, {-1, 4}, [](Builder& net) {
    net.Append("squeeze2", {{"X", {"x"}}}, {{"Out", {"y"}}, {"XShape", {"y.x"}}},
               {{"axes", Numbers{1}}});
  });
  EXPECT_TRUE(one.Always());
}

// A variable that is written again has other dimensions than before.
TEST(RowAnalysis, DimsOfVariablesThatChange) {
  const Model changed({-1, 3, 4, 4}, {-1, 3}, [](Builder& net) {
    Pool(net);
    Dim(net, "g", 0, "n");
    net.Append("reshape2", {{"X", {"g"}}}, {{"Out", {"g"}}, {"XShape", {"g.x"}}},
               {{"shape", Numbers{3, -1}}});
    Number(net, -1, "rest");
    Reshape(net, "g", "n", "rest");
  });
  EXPECT_FALSE(changed.Always());
}

// A row of a batch would get other numbers than a row alone.
TEST(RowAnalysis, RandomNumbersDependOnTheBatch) {
  const auto dropped = [](float probability, bool is_test) {
    return Model({-1, 3}, {-1, 3}, [=](Builder& net) {
      net.Append("dropout", {{"X", {"x"}}}, {{"Out", {"y"}}, {"Mask", {"mask"}}},
                 {{"dropout_prob", probability},
                  {"is_test", is_test},
                  {"fix_seed", true},
                  {"seed", 3},
                  {"dropout_implementation", std::string("upscale_in_train")}});
    });
  };
  EXPECT_TRUE(dropped(0.5f, true).Always());
  EXPECT_TRUE(dropped(0, false).Always());
  EXPECT_FALSE(dropped(0.5f, false).Always());
  const Model noisy({-1, 3}, {-1, 3}, [](Builder& net) {
    net.Append("gaussian_random_batch_size_like", {{"Input", {"x"}}}, {{"Out", {"n"}}},
               {{"shape", Numbers{-1, 3}}, {"seed", 3}});
    net.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"n"}}}, {{"Out", {"y"}}}, {{"axis", -1}});
  });
  EXPECT_FALSE(noisy.Always());
}

// A norm with the statistics of the batch, whose running statistics no run keeps.
TEST(RowAnalysis, StatisticsOfTheBatchMixRows) {
  const auto normed = [](const std::string& type, bool is_test, bool global) {
    return Model({-1, 3, 4, 4}, {-1, 3, 4, 4}, [=](Builder& net) {
      for (const char* name : {"scale", "bias", "mean", "variance"}) {
        VarDesc& var = net.main().Root().Var(name);
        var.SetMeta({VarType::kLoDTensor, DType::kFloat32, {3}, 0});
        var.SetPersistable(true);
      }
      net.Append(type,
                 {{"X", {"x"}},
                  {"Scale", {"scale"}},
                  {"Bias", {"bias"}},
                  {"Mean", {"mean"}},
                  {"Variance", {"variance"}}},
                 {{"Y", {"y"}},
                  {"MeanOut", {is_test || global ? "mean" : "mean.new"}},
                  {"VarianceOut", {is_test || global ? "variance" : "variance.new"}},
                  {"SavedMean", {"mean.saved"}},
                  {"SavedVariance", {"variance.saved"}}},
                 {{"is_test", is_test}, {"use_global_stats", global}});
    });
  };
  for (const char* type : {"batch_norm", "sync_batch_norm"}) {
    EXPECT_TRUE(normed(type, true, false).Always()) << type;
    EXPECT_TRUE(normed(type, false, true).Always()) << type;
    EXPECT_FALSE(normed(type, false, false).Always()) << type;
  }
}

// --- concat ---

// y = the concatenation of x and its negative.
Model Doubled(const Shape& x, const Shape& y, int32_t axis) {
  return Model(x, y, [axis](Builder& net) {
    net.Append("scale", {{"X", {"x"}}}, {{"Out", {"n"}}}, {{"scale", -1.0f}});
    net.Append("concat", {{"X", {"x", "n"}}}, {{"Out", {"y"}}}, {{"axis", axis}});
  });
}

TEST(RowAnalysis, ConcatOfChannelsKeepsRows) {
  EXPECT_TRUE(Doubled({-1, 3}, {-1, 6}, 1).Always());
  EXPECT_TRUE(Doubled({-1, 3}, {-1, 6}, -1).Always());
  EXPECT_TRUE(Doubled({-1, 3, 4, 4}, {-1, 6, 4, 4}, 1).Always());
  EXPECT_TRUE(Doubled({-1, 3, 4, 4}, {-1, 6, 4, 4}, -3).Always());
  EXPECT_TRUE(Doubled({-1, 3, 4, 4}, {-1, 3, 4, 8}, 3).Always());
  EXPECT_TRUE(Doubled({-1, 3, -1, -1}, {-1, 6, -1, -1}, 1).Joins({2, 3, 5, 7}));
  EXPECT_TRUE(Doubled({-1, 3, -1, -1}, {-1, 3, -1, -1}, 2).Joins({2, 3, 5, 7}));
}

TEST(RowAnalysis, ConcatOfRowsMixesThem) {
  EXPECT_FALSE(Doubled({-1, 3}, {-1, 3}, 0).Always());
  EXPECT_FALSE(Doubled({-1, 3}, {-1, 3}, -2).Always());
  EXPECT_FALSE(Doubled({-1, 3, 4, 4}, {-1, 3, 4, 4}, -4).Always());
  EXPECT_FALSE(Doubled({-1, -1}, {-1, -1}, 0).Joins({2, 3}));
  // On another axis for a while: [3, N] and [3, N] become [6, N] or [3, 2 N].
  for (const int32_t axis : {0, 1}) {
    const Model turned({-1, 3}, {-1, axis == 0 ? 6 : 3}, [axis](Builder& net) {
      net.Append("transpose2", {{"X", {"x"}}}, {{"Out", {"t"}}, {"XShape", {"t.x"}}},
                 {{"axis", Numbers{1, 0}}});
      net.Append("concat", {{"X", {"t", "t"}}}, {{"Out", {"tt"}}}, {{"axis", axis}});
      net.Append("transpose2", {{"X", {"tt"}}}, {{"Out", {"y"}}, {"XShape", {"y.x"}}},
                 {{"axis", Numbers{1, 0}}});
    });
    EXPECT_EQ(turned.Always(), axis == 0) << axis;
  }
  // Rows of a constant come first.
  const Model constant({-1, 3}, {-1, 3}, [](Builder& net) {
    net.Append("fill_constant", {}, {{"Out", {"c"}}},
               {{"shape", std::vector<int64_t>{2, 3}}, {"dtype", 5}, {"value", 1.0f}});
    net.Append("concat", {{"X", {"c", "x"}}}, {{"Out", {"y"}}}, {{"axis", 0}});
  });
  EXPECT_FALSE(constant.Always());
  // A constant of one row fits only a request of one row.
  const Model one({-1, 3}, {-1, 6}, [](Builder& net) {
    net.Append("fill_constant", {}, {{"Out", {"c"}}},
               {{"shape", std::vector<int64_t>{1, 3}}, {"dtype", 5}, {"value", 1.0f}});
    net.Append("concat", {{"X", {"c", "x"}}}, {{"Out", {"y"}}}, {{"axis", 1}});
  });
  EXPECT_FALSE(one.Always());
}

// A tensor names the axis, whatever the attr says.
TEST(RowAnalysis, ConcatAlongAnAxisOfATensor) {
  for (const int32_t attr : {0, 1}) {
    const Model given({-1, 3}, {-1, -1}, [attr](Builder& net) {
      VarDesc& axis = net.main().Root().Var("axis");
      axis.SetMeta({VarType::kLoDTensor, DType::kInt32, {1}, 0});
      axis.SetPersistable(true);
      net.Append("concat", {{"X", {"x", "x"}}, {"AxisTensor", {"axis"}}}, {{"Out", {"y"}}},
                 {{"axis", attr}});
    });
    EXPECT_FALSE(given.Always()) << attr;
    const Model constant({-1, 3}, {-1, 3}, [attr](Builder& net) {
      Number(net, 0, "axis");
      net.Append("concat", {{"X", {"x", "x"}}, {"AxisTensor", {"axis"}}}, {{"Out", {"y"}}},
                 {{"axis", attr}});
    });
    EXPECT_FALSE(constant.Always()) << attr;
  }
}

// --- sizes ---

// The sizes of pictures decide.
TEST(RowAnalysis, OpenSizes) {
  const Model pooled({-1, 3, -1, -1}, {-1, 3}, [](Builder& net) {
    Pool(net);
    Dim(net, "g", 0, "n");
    Number(net, 3, "rest");
    Reshape(net, "g", "n", "rest");
  });
  EXPECT_FALSE(pooled.Always());
  EXPECT_TRUE(pooled.Analysis()->depends_on_shapes());
  EXPECT_TRUE(pooled.Joins({1, 3, 8, 8}));
  EXPECT_TRUE(pooled.Joins({2, 3, 5, 9}));
  EXPECT_FALSE(pooled.Joins({2, 3, 5}));
  // Of a picture of 4 x 4, [N, 3, 4, 4] is [N, 48]; one of 8 x 8 becomes four rows.
  const Model flat({-1, 3, -1, -1}, {-1, 48}, [](Builder& net) {
    net.Append("reshape2", {{"X", {"x"}}}, {{"Out", {"y"}}, {"XShape", {"y.x"}}},
               {{"shape", Numbers{-1, 48}}});
  });
  EXPECT_TRUE(flat.Joins({1, 3, 4, 4}));
  EXPECT_FALSE(flat.Joins({1, 3, 8, 8}));
  EXPECT_FALSE(flat.Joins({1, 3, 5, 5}));  // does not fit
  const auto analysis = flat.Analysis();
  for (int i = 0; i < 2; ++i) {  // the second answer is the kept one
    EXPECT_TRUE(analysis->Joins({Tensor::Zeros(DType::kFloat32, {3, 3, 4, 4})}));
    EXPECT_FALSE(analysis->Joins({Tensor::Zeros(DType::kFloat32, {3, 3, 8, 8})}));
  }
}

// A model of so many ops that a proof takes a while.
Model Long() {
  return Model({-1, 3, -1, -1}, {-1, 3, -1, -1}, [](Builder& net) {
    std::string x = "x";
    for (int i = 0; i < 4000; ++i) {
      const std::string next = i == 3999 ? "y" : "h" + std::to_string(i);
      net.Append("scale", {{"X", {x}}}, {{"Out", {next}}}, {{"scale", 0.5f}});
      x = next;
    }
  });
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = serve::Clock::now();
  work();
  return std::chrono::duration<double>(serve::Clock::now() - begin).count();
}

// Requests of a size whose answer is known do not wait while that of another size is proved.
TEST(RowAnalysis, ProofsHoldUpTheirOwnSizeOnly) {
  const auto analysis = Long().Analysis();
  const std::vector<Tensor> known = {Tensor::Zeros(DType::kFloat32, {1, 3, 4, 4})};
  const std::vector<Tensor> other = {Tensor::Zeros(DType::kFloat32, {1, 3, 5, 5})};
  ASSERT_TRUE(analysis->depends_on_shapes());
  ASSERT_TRUE(analysis->Joins(known));
  std::atomic<bool> begun{false}, proved{false};
  double proof = 0;
  std::thread prover([&] {
    begun = true;
    proof = SecondsOf([&] { EXPECT_TRUE(analysis->Joins(other)); });
    proved = true;
  });
  while (!begun) std::this_thread::yield();
  double longest = 0;
  while (!proved)
    longest = std::max(longest, SecondsOf([&] { EXPECT_TRUE(analysis->Joins(known)); }));
  prover.join();
  EXPECT_LT(longest, proof / 2);
}

// Requests of the size that is being proved wait for the same answer.
TEST(RowAnalysis, OneProofForEachSize) {
  const std::vector<Tensor> inputs = {Tensor::Zeros(DType::kFloat32, {1, 3, 4, 4})};
  const auto first = Long().Analysis(), second = Long().Analysis();
  const double proof = SecondsOf([&] { EXPECT_TRUE(first->Joins(inputs)); });
  std::atomic<int> joined{0};
  std::vector<std::thread> clients;
  const double together = SecondsOf([&] {
    for (int i = 0; i < 64; ++i)
      clients.emplace_back([&] { joined += int{second->Joins(inputs)}; });
    for (std::thread& client : clients) client.join();
  });
  EXPECT_EQ(joined, 64);
  EXPECT_LT(together, 16 * proof);
}

// They wait no longer than they have time.
TEST(RowAnalysis, WaitingForAProofEnds) {
  const std::vector<Tensor> inputs = {Tensor::Zeros(DType::kFloat32, {1, 3, 4, 4})};
  bool waited_in_vain = false;
  for (int i = 0; i < 20 && !waited_in_vain; ++i) {  // the other thread must begin first
    const auto analysis = Long().Analysis();
    std::thread prover([&] { EXPECT_TRUE(analysis->Joins(inputs)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    waited_in_vain = !analysis->Joins(inputs, serve::Clock::now());
    prover.join();
    EXPECT_TRUE(analysis->Joins(inputs, serve::Clock::now() - std::chrono::hours(1)));
  }
  EXPECT_TRUE(waited_in_vain);
}

// The copy computes what the program computes.
TEST(RowAnalysis, WrittenShapesComputeTheSame) {
  for (const std::string of : {"g", "x"}) {
    for (const int64_t second : {-1, 3}) {
      const Model model = Pooled(of, 0, second);
      const WrittenShapes written =
          WriteShapes(model.main, {{"x", {-1, 3, 4, 4}}}, Scope(), DefaultOps());
      EXPECT_EQ(written.program.Root().FindVar("y")->shape(), (Shape{-1, 3}));
      EXPECT_EQ(written.equal_dims.empty(), of == "g" || second == 3);
      std::mt19937 random(3);
      Tensor x(DType::kFloat32, {5, 3, 4, 4});
      for (float& value : x.span<float>()) value = static_cast<float>(random() % 1000);
      Scope one, two;
      Executor exe;
      PreparedProgram a = exe.Prepare(model.main, {"x"}, {"y"});
      PreparedProgram b = exe.Prepare(written.program, {"x"}, {"y"});
      EXPECT_TRUE(BitEqual(a.Run(one, {x})[0], b.Run(two, {x})[0]));
    }
  }
}

// --- served ---

class JoinedRuns : public ::testing::Test {
 protected:
  // Asks for all inputs at once, and compares the answers with those of runs alone, to the bit if
  // `equal`. Returns the number of runs.
  uint64_t Runs(const std::string& path, const std::vector<Tensor>& inputs, bool equal = false) {
    const auto metrics = std::make_shared<serve::ModelMetrics>();
    serve::ServedModel alone(path, "m", "1", {.max_batch = 1},
                             std::make_shared<serve::ModelMetrics>());
    serve::ServedModel model(path, "m", "1", {.max_batch = 8, .max_delay = 5}, metrics);
    std::vector<std::thread> clients;
    std::atomic<int> good{0};
    for (const Tensor& input : inputs) {
      clients.emplace_back([&] {
        const Tensor answer = model.Infer({input})[0], wanted = alone.Infer({input})[0];
        good += answer.shape() == wanted.shape() &&
                (equal ? BitEqual(answer, wanted) : IsNear(answer, wanted));
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(good, static_cast<int>(inputs.size()));
    return metrics->batches;
  }
  // A batch may be multiplied in another order than a row.
  static bool IsNear(const Tensor& a, const Tensor& b) {
    const auto x = a.span<float>(), y = b.span<float>();
    for (size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(x[i] - y[i]) <= 1e-5f * (1 + std::abs(y[i])))) return false;
    return true;
  }
  static std::vector<Tensor> Pictures(int count, const Shape& shape) {
    std::vector<Tensor> pictures;
    std::mt19937 random(5);
    for (int i = 0; i < count; ++i) {
      pictures.emplace_back(DType::kFloat32, shape);
      for (float& value : pictures.back().span<float>())
        value = static_cast<float>(random() % 1000) / 1000;
    }
    return pictures;
  }

  ScratchFolder folder_;
};

TEST_F(JoinedRuns, OfComputedShapes) {
  for (const std::string of : {"g", "x"}) {
    const Model model = Pooled(of, 0, -1);
    const std::string path = folder_.path + "/" + of;
    SaveInferenceModel(path, {"x"}, {"y"}, model.main, Scope());
    EXPECT_EQ(Runs(path, Pictures(8, {1, 3, 4, 4})), 1u);
  }
}

// y = the 32 channels of two convolutions of x, one next to the other, as in SqueezeNet; with
// `pool`, also those of a pooled branch, as in Inception.
Model Squeezed(bool pool, const Shape& size) {
  const Shape out = {-1, pool ? 40 : 32, size[0], size[1]};
  return Model({-1, 3, size[0], size[1]}, out, [pool](Builder& net) {
    const Variable x = net.Var("x");
    const Variable squeezed = net.Conv2d(x, {.num_filters = 4, .filter_size = 1, .act = "relu"});
    std::vector<std::string> parts = {
        net.Conv2d(squeezed, {.num_filters = 16, .filter_size = 1, .act = "relu"}).name(),
        net.Conv2d(squeezed, {.num_filters = 16, .filter_size = 3, .padding = 1, .act = "relu"})
            .name()};
    if (pool) {
      const Variable pooled =
          net.Pool2d(x, {.pool_size = 3, .pool_type = "avg", .pool_stride = 1, .pool_padding = 1});
      parts.push_back(net.Conv2d(pooled, {.num_filters = 8, .filter_size = 1}).name());
    }
    net.Append("concat", {{"X", parts}}, {{"Out", {"y"}}}, {{"axis", 1}});
  });
}

TEST_F(JoinedRuns, OfConcatenatedChannels) {
  for (const bool pool : {false, true}) {
    for (const bool open : {false, true}) {
      const Model model = Squeezed(pool, open ? Shape{-1, -1} : Shape{12, 10});
      Scope scope;
      Executor().Run(model.startup, scope);
      const std::string path = folder_.path + "/" + std::to_string(2 * int{pool} + int{open});
      SaveInferenceModel(path, {"x"}, {"y"}, model.main, scope);
      EXPECT_EQ(Runs(path, Pictures(8, {1, 3, 12, 10})), 1u) << path;
    }
  }
  // Nothing is added up here, so that each answer has the bits of a run alone.
  const std::string path = folder_.path + "/doubled";
  SaveInferenceModel(path, {"x"}, {"y"}, Doubled({-1, 3, 4, 4}, {-1, 6, 4, 4}, 1).main, Scope());
  EXPECT_EQ(Runs(path, Pictures(8, {1, 3, 4, 4}), true), 1u);
}

// Two requests of a row each would get rows of each other.
TEST_F(JoinedRuns, NotOfConcatenatedRows) {
  const Model model = Doubled({-1, 3}, {-1, 3}, 0);
  const std::string path = folder_.path + "/rows";
  SaveInferenceModel(path, {"x"}, {"y"}, model.main, Scope());
  EXPECT_EQ(Runs(path, Pictures(4, {1, 3}), true), 4u);
}

// A classifier that Paddle exported: it reshapes to a shape that it computes.
TEST_F(JoinedRuns, OfARealClassifier) {
  const std::string path =
      TestDataDirectory() + "/paddle/ch_ppocr_mobile_v2.0_cls/inference.pdmodel";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path;
  EXPECT_EQ(Runs(path, Pictures(8, {1, 3, 32, 100})), 1u);
  // What the model was exported for is what is known.
  EXPECT_EQ(Runs(path, Pictures(2, {1, 3, 48, 192})), 2u);
}

}  // namespace coracle::row_analysis_test
