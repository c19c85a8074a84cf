// Sparse gradients: embeddings with is_sparse, how their gradients add up, and where they turn
// dense. The rows T38 and T39 are the cases known from tf.gradients.
#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::sparse_test {

using Names = std::vector<std::string>;

class SparseGradient : public ::testing::Test {
 protected:
  VarDesc& Declare(const std::string& name, const Shape& shape, DType dtype = DType::kFloat64) {
    VarDesc& var = main.Root().Var(name);
    var.SetShape(shape);
    var.SetDType(dtype);
    return var;
  }
  void Parameter(const std::string& name, const Shape& shape) {
    VarDesc& var = Declare(name, shape);
    var.SetPersistable(true);
    var.SetIsParameter(true);
    if (shape.IsKnown() && shape.numel() < 1000) env[name] = Numbers(shape);
  }
  static Tensor Numbers(const Shape& shape) {
    Tensor tensor(DType::kFloat64, shape);
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data<double>()[i] = static_cast<double>(i * 37 % 19) / 8 - 1;
    return tensor;
  }
  void Ids(const std::string& name, const std::vector<int64_t>& ids) {
    const Shape shape = {static_cast<int64_t>(ids.size())};
    Declare(name, shape, DType::kInt64).SetStopGradient(true);
    env[name] = Tensor::Of<int64_t>(shape, ids);
  }
  std::string Op(const std::string& type, SlotList inputs, const std::string& out,
                 AttrList attrs = {}) {
    const OpDesc& op =
        main.Root().AppendOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
    InferOp(main.Root(), op, DefaultOps());
    return out;
  }
  std::string Lookup(const std::string& w, const std::string& ids, const std::string& out,
                     bool sparse = true, int64_t padding = -1) {
    return Op("lookup_table_v2", {{"W", {w}}, {"Ids", {ids}}}, out,
              {{"is_sparse", sparse}, {"padding_idx", padding}});
  }
  // The sum of the squares, so that each element has a gradient of its own.
  void Loss(const std::string& x) { Op("squared_l2_norm", {{"X", {x}}}, "loss"); }

  std::vector<ParamAndGrad> Backward(const BackwardOptions& options = {}) {
    auto pairs = AppendBackward(Variable::Of(main.Root(), "loss"), options);
    VerifyOrThrow(main, DefaultOps());
    return pairs;
  }
  VarValues Run() const {
    VarValues result = env;
    Interpret(main.Root(), DefaultOps(), result);
    return result;
  }
  VarType TypeOf(const std::string& name) { return main.Root().FindVar(name)->type(); }

  static Tensor Dense(const VarValue& value) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) return *tensor;
    const auto& rows = std::get<SelectedRows>(value);
    Tensor dense = Tensor::Zeros(DType::kFloat64, MetaOfValue(value).shape);
    const int64_t width = dense.shape().Product(1, dense.shape().rank());
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      for (int64_t j = 0; j < width; ++j) {
        dense.data<double>()[rows.rows[i] * width + j] +=
            rows.value.data<double>()[static_cast<int64_t>(i) * width + j];
      }
    }
    return dense;
  }

  // The gradient against central differences of the loss.
  void ExpectGradient(const std::string& name, const std::string& grad) {
    const Tensor got = Dense(Run().at(grad));
    const Tensor at = std::get<Tensor>(env.at(name)).Clone();
    ASSERT_EQ(got.shape(), at.shape());
    double largest = 0;
    for (int64_t i = 0; i < at.numel(); ++i) {
      double losses[2];
      for (int side : {0, 1}) {
        Tensor moved = at.Clone();
        moved.data<double>()[i] += side ? 1e-5 : -1e-5;
        env[name] = moved;
        losses[side] = std::get<Tensor>(Run().at("loss")).Item<double>();
      }
      env[name] = at;
      const double numeric = (losses[1] - losses[0]) / 2e-5;
      largest = std::max(largest, std::abs(numeric));
      EXPECT_NEAR(got.data<double>()[i], numeric, 1e-6 * std::max(1.0, std::abs(numeric))) << i;
    }
    EXPECT_GT(largest, 1e-3) << "all gradients are zero";
  }

  ProgramDesc main;
  VarValues env;
};

TEST_F(SparseGradient, HoldsTheRowsThatWereRead) {
  Parameter("w", {6, 2});
  Ids("ids", {4, 1, 4});
  Loss(Lookup("w", "ids", "e"));
  EXPECT_EQ(Backward(), (std::vector<ParamAndGrad>{{"w", "w@GRAD"}}));
  EXPECT_EQ(TypeOf("w@GRAD"), VarType::kSelectedRows);
  EXPECT_EQ(main.Root().FindVar("w@GRAD")->shape(), (Shape{6, 2}));
  const VarValues result = Run();
  const auto& rows = std::get<SelectedRows>(result.at("w@GRAD"));
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{4, 1, 4}));
  EXPECT_EQ(rows.height, 6);
  ExpectGradient("w", "w@GRAD");
}

TEST_F(SparseGradient, PaddingHasNone) {
  Parameter("w", {6, 2});
  Ids("ids", {4, 1, 4, 2});
  Loss(Lookup("w", "ids", "e", true, 4));
  Backward();
  EXPECT_EQ(std::get<SelectedRows>(Run().at("w@GRAD")).rows, (std::vector<int64_t>{1, 2}));
  ExpectGradient("w", "w@GRAD");
}

// Row 24 of the feature table: slices are concatenated, duplicates not merged.
TEST_F(SparseGradient, F24_SparseContributionsAreConcatenated) {
  Parameter("w", {6, 2});
  Ids("a", {4, 1});
  Ids("b", {1, 0});
  Loss(Op("sum", {{"X", {Lookup("w", "a", "x"), Lookup("w", "b", "y")}}}, "s"));
  Backward();
  EXPECT_EQ(TypeOf("w@GRAD"), VarType::kSelectedRows);
  const VarValues result = Run();
  std::vector<int64_t> rows = std::get<SelectedRows>(result.at("w@GRAD")).rows;
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 1, 1, 4}));
  ExpectGradient("w", "w@GRAD");
}

// As Paddle does it, unlike row 24's slices of a whole dense gradient: the sum is dense.
TEST_F(SparseGradient, WithADenseContributionTheSumIsDense) {
  for (bool sparse_first : {true, false}) {
    SCOPED_TRACE(sparse_first);
    main = ProgramDesc();
    Parameter("w", {3, 2});
    Ids("ids", {2, 0, 2});
    Names parts = {Lookup("w", "ids", "e"), Op("scale", {{"X", {"w"}}}, "d", {{"scale", 2.0f}})};
    if (!sparse_first) std::swap(parts[0], parts[1]);
    Loss(Op("sum", {{"X", parts}}, "s"));
    Backward();
    EXPECT_EQ(TypeOf("w@GRAD"), VarType::kLoDTensor);
    ExpectGradient("w", "w@GRAD");
  }
}

// Row 25: ops that know only dense gradients get one. tanh and scale come before the look-up.
TEST_F(SparseGradient, F25_TurnsDenseWhereAnOpTakesNoOther) {
  Parameter("w", {4, 2});
  Ids("ids", {3, 1, 3});
  Op("tanh", {{"X", {"w"}}}, "t");
  Op("scale", {{"X", {"t"}}}, "s", {{"scale", 3.0f}});
  Loss(Lookup("s", "ids", "e"));
  Backward();
  EXPECT_EQ(TypeOf("s@GRAD"), VarType::kSelectedRows);
  EXPECT_EQ(TypeOf("t@GRAD"), VarType::kSelectedRows);  // scale passes rows on
  EXPECT_EQ(TypeOf("w@GRAD"), VarType::kLoDTensor);
  ExpectGradient("w", "w@GRAD");
}

TEST_F(SparseGradient, TwoReadersOfASparseGradientShareTheDenseOne) {
  Parameter("w", {4, 2});
  Parameter("v", {4, 2});
  Ids("ids", {3, 1});
  Op("elementwise_mul", {{"X", {"w"}}, {"Y", {"v"}}}, "p");
  Loss(Lookup("p", "ids", "e"));
  Backward();
  size_t dense = 0;
  for (size_t i = 0; i < main.Root().NumOps(); ++i)
    dense += main.Root().op(i).type() == "get_tensor_from_selected_rows";
  EXPECT_EQ(dense, 1u);
  ExpectGradient("w", "w@GRAD");
  ExpectGradient("v", "v@GRAD");
}

// sparse -> x 1.0 dense; a stack of 3; int64 ids: the dense tensor equals the dense gradient.
TEST_F(SparseGradient, T38_ConvertedEqualsDense) {
  Parameter("w", {5, 3});
  Ids("a", {4, 1, 4});
  Ids("b", {0, 4, 2});
  Ids("c", {1, 1, 1});
  Tensor by_kind[2];
  for (bool sparse : {false, true}) {
    main = ProgramDesc();
    Parameter("w", {5, 3});
    for (const char* ids : {"a", "b", "c"}) Declare(ids, {3}, DType::kInt64).SetStopGradient(true);
    Op("scale", {{"X", {"w"}}}, "one", {{"scale", 1.0f}});
    Op("tanh", {{"X", {"one"}}}, "t");  // knows dense gradients only
    Op("concat",
       {{"X",
         {Lookup("t", "a", "x", sparse), Lookup("t", "b", "y", sparse),
          Lookup("t", "c", "z", sparse)}}},
       "stack", {{"axis", 0}});
    Loss("stack");
    Backward();
    EXPECT_EQ(TypeOf("t@GRAD"), sparse ? VarType::kSelectedRows : VarType::kLoDTensor);
    by_kind[sparse] = std::get<Tensor>(Run().at("w@GRAD"));
    ExpectGradient("w", "w@GRAD");
  }
  for (int64_t i = 0; i < by_kind[0].numel(); ++i)
    EXPECT_NEAR(by_kind[0].data<double>()[i], by_kind[1].data<double>()[i], 1e-15);
}

// Warnings when a sparse gradient of 4^4, of 100^4 and of unknown elements is turned dense: 0,
// 1, 1.
TEST_F(SparseGradient, T39_WarnsOfALargeDenseTensor) {
  struct Case {
    Shape shape;
    size_t warnings;
  };
  for (const Case& c :
       {Case{{4 * 4 * 4, 4}, 0}, Case{{100 * 100 * 100, 100}, 1}, Case{{-1, 4}, 1}}) {
    main = ProgramDesc();
    Declare("w", c.shape);
    Ids("ids", {1});
    Op("tanh", {{"X", {"w"}}}, "t");
    Loss(Lookup("t", "ids", "e"));
    Names warnings;
    LogSink before = SetLogSink([&](MessageLevel level, const std::string& message) {
      if (level == MessageLevel::kWarning) warnings.push_back(message);
    });
    Gradients({Variable::Of(main.Root(), "loss")}, {Variable::Of(main.Root(), "w")});
    SetLogSink(before);
    EXPECT_EQ(warnings.size(), c.warnings) << c.shape.ToString();
    for (const std::string& w : warnings)
      EXPECT_NE(w.find("the sparse gradient 't@GRAD' SELECTED_ROWS"), std::string::npos) << w;
  }
}

TEST_F(SparseGradient, ErrorClipMergesFirst) {
  Parameter("w", {4, 1});
  env["w"] = Tensor::Of<double>({4, 1}, {1, 1, 1, 1});
  Ids("ids", {3, 3, 0});
  main.Root().FindVar("w")->SetErrorClip(ErrorClipByValue(3));
  Loss(Lookup("w", "ids", "e"));
  BackwardOptions options;
  options.callbacks = {ErrorClipCallback};
  Backward(options);
  const VarValues result = Run();
  const auto& rows = std::get<SelectedRows>(result.at("w@GRAD"));
  EXPECT_EQ(rows.rows, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(rows.value.data<double>()[0], 2);
  EXPECT_EQ(rows.value.data<double>()[1], 3);  // of 2 + 2
}

// The look-up is linear in w: the gradient of its gradient comes from squared_l2_norm alone.
TEST_F(SparseGradient, SecondOrder) {
  Parameter("w", {4, 2});
  Ids("ids", {3, 1, 3});
  Op("tanh", {{"X", {"w"}}}, "t");
  Lookup("t", "ids", "e");
  Op("squared_l2_norm", {{"X", {"e"}}}, "first");
  Variable w = Variable::Of(main.Root(), "w");
  const auto first = Gradients({Variable::Of(main.Root(), "first")}, {w});
  Loss(first[0]);
  const auto second = Gradients({Variable::Of(main.Root(), "loss")}, {w});
  VerifyOrThrow(main, DefaultOps());
  ExpectGradient("w", second[0]);
}

// The table of a look-up is what a branch, a recurrent net or a function made: what arrives there
// is dense, whatever the look-up yields.
void CheckSparseBehind(const std::function<Variable(Builder&, const Variable&)>& make) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable w = net.Data("w", {3, 2}, DType::kFloat32, {.stop_gradient = false});
  const Variable ids = net.Data("ids", {2}, DType::kInt64);
  const Variable table = make(net, w);
  const Variable rows = net.Make("lookup_table_v2", {{"W", {table.name()}}, {"Ids", {ids.name()}}},
                                 {{"is_sparse", true}});
  net.Mean(net.Mul(rows, rows), {.output = "loss"});
  CheckGradientOptions options;
  options.loss = "loss";
  options.wrt = {"w"};
  options.feeds["ids"] = Tensor::Of<int64_t>({2}, {2, 0});
  const CheckGradientReport report = CheckGradient(main, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
  EXPECT_NE(report.checks.at(0).by_gradient, 0);
}

TEST(SparseBehind, ABranch) {
  for (bool taken : {true, false}) {
    CheckSparseBehind([&](Builder& net, const Variable& w) {
      const Variable condition = FillConstant(net, {1}, DType::kBool, taken ? 1 : 0);
      const Variable state = net.Unary("assign", w);
      If(net, condition, [&] {
        const Variable ids = FillConstant(net, {3}, DType::kInt64, 1);
        Assign(net,
               net.Make("lookup_table_v2", {{"W", {state.name()}}, {"Ids", {ids.name()}}},
                        {{"is_sparse", true}}),
               state);
      });
      return state;
    });
  }
}

TEST(SparseBehind, ARecurrentNet) {
  CheckSparseBehind([](Builder& net, const Variable& w) {
    StaticRnn rnn(net);
    const Variable initial = FillConstant(net, {2}, DType::kFloat32, 0.5);
    rnn.Step([&] {
      const Variable x = rnn.StepInput(w), h = rnn.Memory(initial);
      const Variable next = net.Tanh(net.Add(x, h));
      rnn.UpdateMemory(h, next);
      rnn.StepOutput(next);
    });
    return rnn.Outputs()[0];
  });
}

TEST(SparseBehind, AFunction) {
  CheckSparseBehind([](Builder& net, const Variable& w) {
    BlockDesc& outer = net.block();
    BlockDesc& function = net.main().AppendBlock(outer);
    function.Var("p").SetShape({3, 2});
    net.SetBlock(function);
    const Variable result = net.Tanh(net.Var("p"));
    net.SetBlock(outer);
    outer.Var("table").SetShape({3, 2});
    net.Append("call", {{"X", {w.name()}}}, {{"Out", {"table"}}},
               {{"sub_block", BlockRef{function.idx()}},
                {"parameters", Names{"p"}},
                {"results", Names{result.name()}}});
    return net.Var("table");
  });
}
}  // namespace coracle::sparse_test
