#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::lod_rank_table_test {

const VarMeta kRows{VarType::kLoDTensor, DType::kFloat32, {6, 2}, 0};
const VarMeta kScalar{VarType::kLoDTensor, DType::kFloat32, {}, 0};
const VarMeta kTable{VarType::kLoDRankTable, DType::kFloat32, {}, 0};
const VarMeta kIndex{VarType::kLoDTensor, DType::kInt64, {1}, 0};
const VarMeta kArray{VarType::kLoDTensorArray, DType::kFloat32, {2}, 0};

// Sequences of lengths 2, 3, 0, 1.
Tensor Sequences(DType dtype = DType::kFloat32) {
  Tensor x = Tensor::Of<double>({6, 1}, {1, 2, 10, 20, 30, 100}).Cast(dtype);
  x.lod() = {{0, 2, 5, 5, 6}};
  return x;
}

VarValues RunOne(const std::string& type, VarValues env, const SlotList& inputs,
                 const AttrList& attrs = {}) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("out");
  block.AppendOp(type, inputs, {{"Out", {"out"}}}, attrs);
  Interpret(block, DefaultOps(), env);
  return env;
}

VarValues WithTable() {
  VarValues env;
  env["x"] = Sequences();
  env["t"] = RunOne("lod_rank_table", env, {{"X", {"x"}}}).at("out");
  return env;
}

std::vector<float> ValuesOf(const VarValue& value) {
  const auto span = std::get<Tensor>(value).span<float>();
  return {span.begin(), span.end()};
}

TEST(LodRankTable, LongestFirst) {
  const VarValues env = WithTable();
  const auto& table = std::get<RankTable>(env.at("t"));
  EXPECT_EQ(table.items, (std::vector<RankTable::Item>{{1, 3}, {0, 2}, {3, 1}, {2, 0}}));
  EXPECT_EQ(std::get<Tensor>(RunOne("max_sequence_len", env, {{"RankTable", {"t"}}}).at("out"))
                .Item<int64_t>(),
            3);
}

TEST(LodRankTable, StepsAndBack) {
  VarValues env = WithTable();
  env["a"] = RunOne("lod_tensor_to_array", env, {{"X", {"x"}}, {"RankTable", {"t"}}}).at("out");
  const auto& array = std::get<TensorArray>(env.at("a"));
  ASSERT_EQ(array.size(), 3u);
  EXPECT_EQ(ValuesOf(array[0]), (std::vector<float>{10, 1, 100}));
  EXPECT_EQ(ValuesOf(array[1]), (std::vector<float>{20, 2}));
  EXPECT_EQ(ValuesOf(array[2]), (std::vector<float>{30}));
  const VarValues back = RunOne("array_to_lod_tensor", env, {{"X", {"a"}}, {"RankTable", {"t"}}});
  EXPECT_TRUE(BitEqual(std::get<Tensor>(back.at("out")), Sequences()));
  EXPECT_EQ(std::get<Tensor>(back.at("out")).lod(), Sequences().lod());
}

// A table of level 0 of two: the parts of a step are sequences.
TEST(LodRankTable, StepsOfSequences) {
  VarValues env;
  // [1 2 | 3], [], [4 | (nothing) | 5].
  Tensor x = Tensor::Of<float>({5, 1}, {1, 2, 3, 4, 5});
  x.lod() = {{0, 2, 2, 5}, {0, 2, 3, 4, 4, 5}};
  env["x"] = x;
  env["t"] = RunOne("lod_rank_table", env, {{"X", {"x"}}}).at("out");
  env["a"] = RunOne("lod_tensor_to_array", env, {{"X", {"x"}}, {"RankTable", {"t"}}}).at("out");
  const auto& array = std::get<TensorArray>(env.at("a"));
  ASSERT_EQ(array.size(), 3u);
  EXPECT_EQ(ValuesOf(array[0]), (std::vector<float>{4, 1, 2}));
  EXPECT_EQ(array[0].lod(), (LoD{{0, 1, 3}}));
  EXPECT_EQ(ValuesOf(array[1]), (std::vector<float>{3}));
  EXPECT_EQ(array[1].lod(), (LoD{{0, 0, 1}}));
  EXPECT_EQ(array[2].lod(), (LoD{{0, 1}}));
  VarValues back = RunOne("array_to_lod_tensor", env, {{"X", {"a"}}, {"RankTable", {"t"}}});
  EXPECT_TRUE(BitEqual(std::get<Tensor>(back.at("out")), x));
  EXPECT_EQ(std::get<Tensor>(back.at("out")).lod(), x.lod());
  // Elements without LoD, as gradients may be: Like has it.
  TensorArray plain = array;
  for (size_t i = 0; i < plain.size(); ++i) {
    Tensor element = plain[i].Clone();
    element.lod().clear();
    plain.Set(i, element);
  }
  plain.Unset(1);
  env["p"] = plain;
  back = RunOne("array_to_lod_tensor", env, {{"X", {"p"}}, {"RankTable", {"t"}}, {"Like", {"x"}}});
  EXPECT_EQ(ValuesOf(back.at("out")), (std::vector<float>{1, 2, 0, 4, 5}));
  // If an element of one step is missing, its sequences are unknown.
  TensorArray hole = array;
  hole.Unset(1);
  env["a"] = hole;
  EXPECT_THROW(RunOne("array_to_lod_tensor", env, {{"X", {"a"}}, {"RankTable", {"t"}}}), Error);
  // The first two sequences of a state with LoD.
  env["i"] = Tensor::Full<int64_t>({1}, 0);
  const VarValues shrunk =
      RunOne("shrink_rnn_memory", env, {{"X", {"x"}}, {"RankTable", {"t"}}, {"I", {"i"}}});
  EXPECT_EQ(ValuesOf(shrunk.at("out")), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(std::get<Tensor>(shrunk.at("out")).lod(), (LoD{{0, 2, 2}, {0, 2, 3}}));
}

// A table of level 1 of two: the parts of a step are rows, and level 0 stays outside.
TEST(LodRankTable, LowerLevel) {
  VarValues env;
  Tensor x = Tensor::Of<float>({5, 1}, {1, 2, 3, 4, 5});
  x.lod() = {{0, 1, 1, 3}, {0, 2, 2, 5}};
  env["x"] = x;
  env["t"] = RunOne("lod_rank_table", env, {{"X", {"x"}}}, {{"level", 1}}).at("out");
  env["a"] = RunOne("lod_tensor_to_array", env, {{"X", {"x"}}, {"RankTable", {"t"}}}).at("out");
  const auto& array = std::get<TensorArray>(env.at("a"));
  EXPECT_EQ(ValuesOf(array[0]), (std::vector<float>{3, 1}));
  EXPECT_EQ(array[0].lod(), LoD());
  const VarValues back = RunOne("array_to_lod_tensor", env, {{"X", {"a"}}, {"RankTable", {"t"}}});
  EXPECT_TRUE(BitEqual(std::get<Tensor>(back.at("out")), x));
  EXPECT_EQ(std::get<Tensor>(back.at("out")).lod(), x.lod());
}

TEST(LodRankTable, Shrink) {
  VarValues env = WithTable();
  env["h"] = Tensor::Of<float>({4, 1}, {1, 2, 3, 4});
  for (int64_t i : {0, 1, 2, 3}) {
    env["i"] = Tensor::Full<int64_t>({1}, i);
    const VarValues out =
        RunOne("shrink_rnn_memory", env, {{"X", {"h"}}, {"RankTable", {"t"}}, {"I", {"i"}}});
    EXPECT_EQ(std::get<Tensor>(out.at("out")).shape(), (Shape{3 - i, 1}));
  }
}

TEST(LodRankTable, BadData) {
  auto error = [](const std::string& type, const VarValues& env, const SlotList& inputs,
                  const AttrList& attrs = {}) {
    try {
      RunOne(type, env, inputs, attrs);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  VarValues env = WithTable();
  EXPECT_EQ(error("lod_rank_table", env, {{"X", {"x"}}}, {{"level", int32_t{1}}}),
            "lod_rank_table: X has 1 levels of LoD, level is 1; feed a tensor with LoD");
  env["short"] = Tensor::Of<float>({2, 1}, {1, 2});
  EXPECT_EQ(error("lod_tensor_to_array", env, {{"X", {"short"}}, {"RankTable", {"t"}}}),
            "lod_tensor_to_array: X has 2 rows, but the sequences of RankTable have 6");
  env["a"] = TensorArray{Tensor::Of<float>({2, 1}, {1, 2})};
  EXPECT_NE(error("array_to_lod_tensor", env, {{"X", {"a"}}, {"RankTable", {"t"}}})
                .find("element 0 of X is float32[2, 1]"),
            std::string::npos);
  env["none"] = TensorArray(2);
  EXPECT_EQ(error("array_to_lod_tensor", env, {{"X", {"none"}}, {"RankTable", {"t"}}}),
            "array_to_lod_tensor: no element of X was written");
  // An element is not as Like says, and neither is the number of rows.
  env["flat"] = TensorArray{Tensor::Of<float>({3}, {1, 2, 3})};
  const auto like = [&](const char* name) {
    return error("array_to_lod_tensor", env,
                 {{"X", {"flat"}}, {"RankTable", {"t"}}, {"Like", {name}}});
  };
  EXPECT_NE(like("x").find("element 0 of X is float32[3]"), std::string::npos) << like("x");
  EXPECT_EQ(like("short"),
            "array_to_lod_tensor: Like has the shape [2, 1], the sequences of "
            "RankTable have 6 rows");
  env["i"] = Tensor::Full<int64_t>({1}, 0);
  EXPECT_EQ(error("shrink_rnn_memory", env, {{"X", {"short"}}, {"RankTable", {"t"}}, {"I", {"i"}}}),
            "shrink_rnn_memory: X has 2 rows, but 3 sequences are longer than I");
}

TEST(LodRankTable, Constraints) {
  ExpectRefused("lod_rank_table", {{"X", kRows}}, {{"level", int32_t{-1}}}, "lod_rank_table.C1");
  ExpectRefused("max_sequence_len", {{"RankTable", kRows}}, {}, "max_sequence_len.C1");
}

TEST(LodRankTable, MoreConstraints) {
  ExpectRefused("lod_tensor_to_array", {{"X", kRows}, {"RankTable", kRows}}, {},
                "lod_tensor_to_array.C1");
  ExpectRefused("lod_tensor_to_array", {{"X", kScalar}, {"RankTable", kTable}}, {},
                "lod_tensor_to_array.C2");
  ExpectRefused("array_to_lod_tensor", {{"X", kArray}, {"RankTable", kRows}}, {},
                "array_to_lod_tensor.C1");
  ExpectRefused("array_to_lod_tensor", {{"X", kRows}, {"RankTable", kTable}}, {},
                "array_to_lod_tensor.C2");
  ExpectRefused("shrink_rnn_memory", {{"X", kRows}, {"RankTable", kRows}, {"I", kIndex}}, {},
                "shrink_rnn_memory.C1");
  ExpectRefused("shrink_rnn_memory", {{"X", kScalar}, {"RankTable", kTable}, {"I", kIndex}}, {},
                "shrink_rnn_memory.C2");
  ExpectRefused("shrink_rnn_memory", {{"X", kRows}, {"RankTable", kTable}, {"I", kRows}}, {},
                "shrink_rnn_memory.C3");
  ExpectRefused("shrink_rnn_memory_grad", {{"X", kRows}, {"Out@GRAD", kScalar}}, {},
                "shrink_rnn_memory_grad.C1");
}

TEST(LodRankTable, Gradients) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Data("x", {-1, 1}, DType::kFloat64, {.stop_gradient = false});
  net.Data("h", {4, 1}, DType::kFloat64, {.stop_gradient = false});
  main.Root().Var("t").SetType(VarType::kLoDRankTable);
  net.Append("lod_rank_table", {{"X", {"x"}}}, {{"Out", {"t"}}});
  Variable steps = CreateArray(net, DType::kFloat64);
  net.Append("lod_tensor_to_array", {{"X", {"x"}}, {"RankTable", {"t"}}},
             {{"Out", {steps.name()}}});
  Variable one = FillConstant(net, {1}, DType::kInt64, 1);
  Variable live =
      net.Make("shrink_rnn_memory", {{"X", {"h"}}, {"RankTable", {"t"}}, {"I", {one.name()}}});
  Variable step = ArrayRead(net, steps, one);
  ArrayWrite(net, net.Mul(step, live), one, steps);
  main.Root().Var("y").SetMeta({VarType::kLoDTensor, DType::kFloat64, {-1, 1}, 1});
  net.Append("array_to_lod_tensor", {{"X", {steps.name()}}, {"RankTable", {"t"}}},
             {{"Out", {"y"}}});
  Variable y = net.Var("y");
  Variable loss = net.Reshape(net.ReduceSum(net.Mul(y, y), {}), {1});
  CheckProgramGradient(
      {"lod_tensor_to_array", "array_to_lod_tensor", "shrink_rnn_memory"}, main, loss.name(),
      {"x", "h"},
      {{"x", Sequences(DType::kFloat64)}, {"h", Tensor::Of<double>({4, 1}, {0.5, -1, 2, 3})}});
}
}  // namespace coracle::lod_rank_table_test
