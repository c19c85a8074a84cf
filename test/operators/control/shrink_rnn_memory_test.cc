// shrink_rnn_memory itself is tested in lod_rank_table_test.cc; here are reordering, and whole
// dynamic recurrent nets as Paddle's DynamicRNN writes them.
#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::shrink_rnn_memory_test {

const VarMeta kRows{VarType::kLoDTensor, DType::kFloat32, {6, 2}, 0};
const VarMeta kScalar{VarType::kLoDTensor, DType::kFloat32, {}, 0};
const VarMeta kTable{VarType::kLoDRankTable, DType::kFloat32, {}, 0};

// Sequences 1, 0, 2 in this order.
RankTable Table() {
  RankTable table;
  table.items = {{1, 3}, {0, 2}, {2, 0}};
  return table;
}

Tensor Reordered(const std::string& type, const Tensor& x, const RankTable& table) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("out");
  block.AppendOp(type, {{"X", {"x"}}, {"RankTable", {"t"}}}, {{"Out", {"out"}}});
  VarValues env;
  env["x"] = x.Clone();
  std::get<Tensor>(env["x"]).lod() = x.lod();
  env["t"] = table;
  Interpret(block, DefaultOps(), env);
  return std::get<Tensor>(env.at("out"));
}

std::vector<float> ValuesOf(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

TEST(ReorderLodTensorByRank, RowsAndSequences) {
  const Tensor rows = Tensor::Of<float>({3, 1}, {1, 2, 3});
  EXPECT_EQ(ValuesOf(Reordered("reorder_lod_tensor_by_rank", rows, Table())),
            (std::vector<float>{2, 1, 3}));
  Tensor x = Tensor::Of<float>({6, 1}, {1, 2, 3, 4, 5, 6});
  // Sequences of sequences: [1 2 | 3], [4 | (nothing)], [5 6].
  x.lod() = {{0, 2, 4, 5}, {0, 2, 3, 4, 4, 6}};
  const Tensor y = Reordered("reorder_lod_tensor_by_rank", x, Table());
  EXPECT_EQ(ValuesOf(y), (std::vector<float>{4, 1, 2, 3, 5, 6}));
  EXPECT_EQ(y.lod(), (LoD{{0, 2, 4, 5}, {0, 1, 1, 3, 4, 6}}));
  const Tensor back = Reordered("reorder_lod_tensor_by_rank_grad", y, Table());
  EXPECT_TRUE(BitEqual(back, x));
  EXPECT_EQ(back.lod(), x.lod());
}

TEST(ReorderLodTensorByRank, Constraints) {
  const auto error = [](const Tensor& x, const RankTable& table) {
    try {
      Reordered("reorder_lod_tensor_by_rank", x, table);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  const Tensor rows = Tensor::Of<float>({2, 1}, {1, 2});
  ExpectConstraint(error(rows, Table()), "reorder_lod_tensor_by_rank.C3");
  RankTable wrong;
  wrong.items = {{1, 3}, {1, 2}};
  EXPECT_NE(error(rows, wrong).find("the rank table is wrong"), std::string::npos);
  wrong.items = {{1, 3}, {-1, 2}};
  EXPECT_NE(error(rows, wrong).find("the rank table is wrong"), std::string::npos);
  const std::string grad = "reorder_lod_tensor_by_rank_grad";
  try {
    Reordered(grad, rows, Table());
    FAIL() << "rows were missing";
  } catch (const Error& e) {
    ExpectConstraint(e.message(), grad + ".C3");
  }
  for (const std::string& type : {std::string("reorder_lod_tensor_by_rank"), grad}) {
    ExpectRefused(type, {{"X", kRows}, {"RankTable", kRows}}, {}, type + ".C1");
    ExpectRefused(type, {{"X", kScalar}, {"RankTable", kTable}}, {}, type + ".C2");
  }
}

// --- dynamic recurrent nets ---

constexpr int64_t kWidth = 2;

Tensor RandomRows(int64_t rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor x(DType::kFloat64, {rows, width});
  for (double& v : x.span<double>()) v = uniform(random);
  return x;
}

// The ops that Paddle's DynamicRNN appends for
//   x = step_input(sequences), s = static_input(one row for each sequence),
//   h = memory(init = h0, need_reorder), g = memory(value = 0, shape = [kWidth]),
//   h' = tanh(x + h w + s g), g' = g + h', output(h')
struct DynamicRnn {
  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x = net.Data("x", {-1, kWidth}, DType::kFloat64, {.stop_gradient = false});
  Variable h0 = net.Data("h0", {-1, kWidth}, DType::kFloat64, {.stop_gradient = false});
  Variable fixed = net.Data("s", {-1, kWidth}, DType::kFloat64, {.stop_gradient = false});
  Variable w = net.Data("w", {kWidth, kWidth}, DType::kFloat64, {.stop_gradient = false});

  DynamicRnn() {
    main.Root().Var("table").SetType(VarType::kLoDRankTable);
    net.Append("lod_rank_table", {{"X", {"x"}}}, {{"Out", {"table"}}}, {{"level", 0}});
    Variable longest = net.Make("max_sequence_len", {{"RankTable", {"table"}}});
    Variable step = Int(0), zero = Int(0);
    Variable condition = net.Binary("less_than", step, longest);
    Variable inputs = CreateArray(net, DType::kFloat64);
    net.Append("lod_tensor_to_array", {{"X", {"x"}}, {"RankTable", {"table"}}},
               {{"Out", {inputs.name()}}});
    Variable sorted_fixed = Reorder(fixed), sorted_h0 = Reorder(h0);
    Variable hs = CreateArray(net, DType::kFloat64), gs = CreateArray(net, DType::kFloat64);
    Variable outputs = CreateArray(net, DType::kFloat64);
    ArrayWrite(net, sorted_h0, zero, hs);
    Variable first = ArrayRead(net, inputs, zero);
    Variable g0 = net.Make("fill_constant_batch_size_like", {{"Input", {first.name()}}},
                           {{"shape", std::vector<int32_t>{-1, kWidth}},
                            {"value", 0.0f},
                            {"dtype", static_cast<int32_t>(DType::kFloat64)},
                            {"input_dim_idx", int32_t{0}},
                            {"output_dim_idx", int32_t{0}}});
    ArrayWrite(net, g0, zero, gs);
    While(net, condition, [&] {
      Variable x_t = ArrayRead(net, inputs, step);
      Variable s_t = Shrink(sorted_fixed, step);
      Variable h = Shrink(ArrayRead(net, hs, step), step);
      Variable g = Shrink(ArrayRead(net, gs, step), step);
      Variable next = net.Tanh(net.Add(x_t, net.Add(net.Matmul(h, w), net.Mul(s_t, g))));
      Variable next_g = net.Add(g, next);
      ArrayWrite(net, next, step, outputs);
      Increment(net, step);
      ArrayWrite(net, next, step, hs);
      ArrayWrite(net, next_g, step, gs);
      Assign(net, net.Binary("less_than", step, longest), condition);
    });
    main.Root().Var("y").SetMeta({VarType::kLoDTensor, DType::kFloat64, {-1, kWidth}, 1});
    net.Append("array_to_lod_tensor", {{"X", {outputs.name()}}, {"RankTable", {"table"}}},
               {{"Out", {"y"}}});
  }
  Variable Int(int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); }
  Variable Reorder(const Variable& v) {
    return net.Make("reorder_lod_tensor_by_rank", {{"X", {v.name()}}, {"RankTable", {"table"}}});
  }
  Variable Shrink(const Variable& v, const Variable& step) {
    return net.Make("shrink_rnn_memory",
                    {{"X", {v.name()}}, {"RankTable", {"table"}}, {"I", {step.name()}}});
  }
  Variable Loss() {
    Variable y = net.Var("y");
    return net.Reshape(net.ReduceSum(net.Mul(net.Mul(y, y), y), {}), {1});
  }
};

// Lengths 2, 3, 0, 1, 3.
VarValues Inputs() {
  VarValues env;
  Tensor x = RandomRows(9, kWidth, 1);
  x.lod() = {{0, 2, 5, 5, 6, 9}};
  env["x"] = x;
  env["h0"] = RandomRows(5, kWidth, 2);
  env["s"] = RandomRows(5, kWidth, 3);
  env["w"] = RandomRows(kWidth, kWidth, 4);
  return env;
}

// The same net sequence by sequence, in plain loops.
std::vector<double> Reference(const VarValues& env) {
  const auto at = [&](const char* name, int64_t row, int64_t j) {
    return std::get<Tensor>(env.at(name)).data<double>()[row * kWidth + j];
  };
  const LoD& lod = std::get<Tensor>(env.at("x")).lod();
  std::vector<double> y;
  for (size_t i = 0; i + 1 < lod[0].size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    std::vector<double> h, g(kWidth, 0);
    for (int64_t j = 0; j < kWidth; ++j) h.push_back(at("h0", sequence, j));
    for (auto t = static_cast<int64_t>(lod[0][i]); t < static_cast<int64_t>(lod[0][i + 1]); ++t) {
      std::vector<double> next;
      for (size_t j = 0; j < kWidth; ++j) {
        const auto column = static_cast<int64_t>(j);
        double sum = at("x", t, column) + at("s", sequence, column) * g[j];
        for (size_t k = 0; k < kWidth; ++k) sum += h[k] * at("w", static_cast<int64_t>(k), column);
        next.push_back(std::tanh(sum));
      }
      h = next;
      for (size_t j = 0; j < kWidth; ++j) g[j] += h[j];
      y.insert(y.end(), h.begin(), h.end());
    }
  }
  return y;
}

TEST(DynamicRnn, AgreesWithLoopsOverEachSequence) {
  DynamicRnn rnn;
  VarValues env = Inputs();
  std::map<std::string, Tensor> feeds;
  for (const auto& [name, value] : env) feeds[name] = std::get<Tensor>(value);
  const std::vector<double> expected = Reference(env);
  Interpret(rnn.main.Root(), DefaultOps(), env);
  Scope scope;
  const Tensor run = Executor().Run(rnn.main, scope, feeds, {"y"})[0];
  for (const Tensor& y : {std::get<Tensor>(env.at("y")), run}) {
    EXPECT_EQ(y.lod(), feeds["x"].lod());
    ASSERT_EQ(y.numel(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(y.data<double>()[i], expected[i], 1e-14);
  }
}

// One prepared program, differentiated, on batches of other lengths.
TEST(DynamicRnn, OtherLengths) {
  DynamicRnn rnn;
  const Variable loss = rnn.Loss();
  BackwardOptions options;
  options.parameter_list = {"x"};
  const std::string dx = AppendBackward(loss, options)[0].grad;
  Executor exe;
  auto step = exe.Prepare(rnn.main, {"x", "h0", "s", "w"}, {"y", dx});
  Scope scope;
  for (const LoD& lod : {LoD{{0, 1, 2}}, LoD{{0, 2, 5, 5, 6, 9}}, LoD{{0, 0, 1, 3}},
                         LoD{{0, 2, 2, 3}}, LoD{{0, 4}}}) {
    const auto rows = static_cast<int64_t>(lod[0].back());
    const auto sequences = static_cast<int64_t>(lod[0].size()) - 1;
    VarValues env;
    Tensor x = RandomRows(rows, kWidth, 1);
    x.lod() = lod;
    env["x"] = x;
    env["h0"] = RandomRows(sequences, kWidth, 2);
    env["s"] = RandomRows(sequences, kWidth, 3);
    env["w"] = RandomRows(kWidth, kWidth, 4);
    const auto fed = [&](const char* name) { return std::get<Tensor>(env.at(name)); };
    const auto& out = step.Run(scope, {fed("x"), fed("h0"), fed("s"), fed("w")});
    const std::vector<double> expected = Reference(env);
    EXPECT_EQ(out[0].lod(), lod);
    ASSERT_EQ(out[0].numel(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(out[0].data<double>()[i], expected[i], 1e-14);
    EXPECT_EQ(out[1].shape(), x.shape());
    EXPECT_EQ(out[1].lod(), lod);
  }
}

// Each gradient element against differences of the loops, and along random directions.
TEST(DynamicRnn, Gradient) {
  DynamicRnn rnn;
  const Variable loss = rnn.Loss();
  CheckProgramGradient({"reorder_lod_tensor_by_rank", "shrink_rnn_memory"}, rnn.main, loss.name(),
                       {"x", "h0", "s", "w"}, Inputs());
  const VarValues inputs = Inputs();
  ProgramDesc differentiated = rnn.main;
  BackwardOptions options;
  options.parameter_list = {"x", "h0", "s", "w"};
  const auto pairs = AppendBackward(Variable::Of(differentiated.Root(), loss.name()), options);
  VarValues env = Inputs();
  Interpret(differentiated.Root(), DefaultOps(), env);
  const auto loss_at = [&](const VarValues& moved) {
    double sum = 0;
    for (double v : Reference(moved)) sum += v * v * v;
    return sum;
  };
  for (const ParamAndGrad& pair : pairs) {
    const auto& grad = std::get<Tensor>(env.at(pair.grad));
    for (int64_t k = 0; k < grad.numel(); ++k) {
      double side[2];
      for (int s : {0, 1}) {
        VarValues moved = Inputs();
        std::get<Tensor>(moved.at(pair.param)).data<double>()[k] += s ? 1e-5 : -1e-5;
        side[s] = loss_at(moved);
      }
      EXPECT_NEAR(grad.data<double>()[k], (side[1] - side[0]) / 2e-5, 1e-8) << pair.param << k;
    }
  }
}

// Steps of sequences: a net over the sentences of paragraphs. The rank table is of level 0 of two,
// so that each step has whole sentences, which are pooled.
TEST(DynamicRnn, OverSentencesOfParagraphs) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Data("x", {-1, kWidth}, DType::kFloat64, {.stop_gradient = false});
  Variable h0 = net.Data("h0", {-1, kWidth}, DType::kFloat64, {.stop_gradient = false});
  main.Root().Var("table").SetType(VarType::kLoDRankTable);
  net.Append("lod_rank_table", {{"X", {"x"}}}, {{"Out", {"table"}}}, {{"level", 0}});
  Variable longest = net.Make("max_sequence_len", {{"RankTable", {"table"}}});
  Variable step = FillConstant(net, {1}, DType::kInt64, 0);
  Variable condition = net.Binary("less_than", step, longest);
  Variable inputs = CreateArray(net, DType::kFloat64), words = CreateArray(net, DType::kFloat64);
  net.Append("lod_tensor_to_array", {{"X", {"x"}}, {"RankTable", {"table"}}},
             {{"Out", {inputs.name()}}});
  Variable h =
      net.Make("reorder_lod_tensor_by_rank", {{"X", {h0.name()}}, {"RankTable", {"table"}}});
  Variable state = net.Scale(h, {.scale = 1.0f});
  Variable states = CreateArray(net, DType::kFloat64);
  While(net, condition, [&] {
    Variable sentences = ArrayRead(net, inputs, step);
    Variable live =
        net.Make("shrink_rnn_memory",
                 {{"X", {state.name()}}, {"RankTable", {"table"}}, {"I", {step.name()}}});
    Variable pooled =
        net.Make("sequence_pool", {{"X", {sentences.name()}}}, {{"pooltype", std::string("SUM")}});
    Assign(net, net.Tanh(net.Add(live, pooled)), state);
    ArrayWrite(net, state, step, states);
    ArrayWrite(net, net.Mul(sentences, sentences), step, words);
    Increment(net, step);
    Assign(net, net.Binary("less_than", step, longest), condition);
  });
  for (const char* name : {"y", "z"})
    main.Root().Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat64, {-1, kWidth}, 1});
  net.Append("array_to_lod_tensor", {{"X", {states.name()}}, {"RankTable", {"table"}}},
             {{"Out", {"y"}}});
  net.Append("array_to_lod_tensor", {{"X", {words.name()}}, {"RankTable", {"table"}}},
             {{"Out", {"z"}}});
  Variable y = net.Var("y"), z = net.Var("z");
  Variable loss =
      net.Reshape(net.Add(net.ReduceSum(net.Mul(y, y), {}), net.ReduceSum(net.Mul(z, z), {})), {1});
  // Paragraphs of 1, 3 and 0 sentences, of 2, 1, 0 and 2 words.
  VarValues env;
  Tensor x = RandomRows(5, kWidth, 1);
  x.lod() = {{0, 1, 4, 4}, {0, 2, 3, 3, 5}};
  env["x"] = x;
  env["h0"] = RandomRows(3, kWidth, 2);
  VarValues run = env;
  Interpret(main.Root(), DefaultOps(), run);
  const auto& squares = std::get<Tensor>(run.at("z"));
  EXPECT_EQ(squares.lod(), x.lod());
  for (int64_t k = 0; k < x.numel(); ++k)
    EXPECT_DOUBLE_EQ(squares.data<double>()[k], x.data<double>()[k] * x.data<double>()[k]);
  EXPECT_EQ(std::get<Tensor>(run.at("y")).lod(), (LoD{{0, 1, 4, 4}}));
  CheckProgramGradient({"lod_tensor_to_array", "array_to_lod_tensor"}, main, loss.name(),
                       {"x", "h0"}, env);
}
}  // namespace coracle::shrink_rnn_memory_test
