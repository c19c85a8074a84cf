// If with conditions that are fed, and loops whose values change their shapes or ranks.
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/any_node.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace coracle::onnx::onnx_branches_test {

using Ints = std::vector<int64_t>;

void AddInts(GraphProto& graph, const std::string& name, const Ints& values, bool scalar = false) {
  auto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(proto::onnx::TensorProto::INT64);
  if (!scalar) tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t value : values) tensor.add_int64_data(value);
}

void DeclareOpen(GraphProto& graph, const std::string& name, DType dtype, int rank) {
  Declare(graph, name, dtype, rank);
  auto& type = *graph.mutable_input(graph.input_size() - 1)->mutable_type();
  for (auto& dim : *type.mutable_tensor_type()->mutable_shape()->mutable_dim())
    dim.set_dim_param("n");
}

ModelProto Model(int64_t opset = 17) {
  ModelProto model;
  model.add_opset_import()->set_version(opset);
  return model;
}

NodeProto& AddIf(GraphProto& graph, const GraphProto& then, const GraphProto& otherwise) {
  NodeProto& node = AddNode(graph, "If", {"c"}, "y");
  *AddAttr(node, "then_branch", AttributeProto::GRAPH).mutable_g() = then;
  *AddAttr(node, "else_branch", AttributeProto::GRAPH).mutable_g() = otherwise;
  graph.add_output()->set_name("y");
  return node;
}

using Feeds = std::map<std::string, Tensor>;

Tensor ResultOf(const ModelProto& model, const Feeds& feeds) {
  Scope scope;
  const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
  PreparedProgram prepared = Executor().Prepare(imported.program);
  std::vector<Tensor> in_order;
  for (const std::string& name : prepared.feed_names()) in_order.push_back(feeds.at(name));
  return prepared.Run(scope, in_order)[0].Clone();
}

std::string Refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

Tensor Row(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}
Tensor Bool(bool value) { return Tensor::Full<bool>({1}, value); }

// Reshapes x to [rows, columns], and sums the columns.
GraphProto SumsOfRows(const std::string& prefix, int64_t rows, int64_t columns) {
  GraphProto graph;
  AddInts(graph, prefix + "shape", {rows, columns});
  AddInts(graph, prefix + "axes", {1});
  AddNode(graph, "Reshape", {"x", prefix + "shape"}, prefix + "r");
  NodeProto& sum = AddNode(graph, "ReduceSum", {prefix + "r", prefix + "axes"}, prefix + "o");
  AddAttr(sum, "keepdims", AttributeProto::INT).set_i(0);
  graph.add_output()->set_name(prefix + "o");
  return graph;
}

// Whether the model declares the length of x (6), which fits only one branch, or leaves it open.
ModelProto Nets(bool open) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  open ? DeclareOpen(graph, "x", DType::kFloat32, 1) : Declare(graph, "x", DType::kFloat32, 1);
  if (!open) {
    graph.mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_value(6);
  }
  Declare(graph, "c", DType::kBool, 0);
  AddIf(graph, SumsOfRows("a", 2, 3), SumsOfRows("b", 2, 5));
  return model;
}

TEST(OnnxBranches, TheOtherBranchNeedNotFit) {
  const Tensor six = Row({1, 2, 3, 4, 5, 6});
  for (const bool open : {false, true})
    EXPECT_EQ(Values(ResultOf(Nets(open), {{"x", six}, {"c", Bool(true)}})),
              (std::vector<float>{6, 15}));
  const Tensor ten = Row({1, 1, 1, 1, 1, 2, 2, 2, 2, 2});
  EXPECT_EQ(Values(ResultOf(Nets(true), {{"x", ten}, {"c", Bool(false)}})),
            (std::vector<float>{5, 10}));
}

TEST(OnnxBranches, ABranchThatCannotRunStopsTheRun) {
  const Tensor six = Row({1, 2, 3, 4, 5, 6});
  const std::string problem = Refusal([&] {
    ResultOf(Nets(false), {{"x", six}, {"c", Bool(false)}});
  });
  EXPECT_NE(problem.find("Reshape"), std::string::npos) << problem;
  EXPECT_NE(Refusal([&] { ResultOf(Nets(true), {{"x", six}, {"c", Bool(false)}}); }), "");
}

// The op type of the branch that is not taken is unknown.
TEST(OnnxBranches, UnknownOpInTheOtherBranch) {
  GraphProto strange;
  AddNode(strange, "NoSuchOp", {"x"}, "s");
  strange.add_output()->set_name("s");
  GraphProto good;
  AddNode(good, "Neg", {"x"}, "n");
  good.add_output()->set_name("n");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 1);
  Declare(graph, "c", DType::kBool, 0);
  AddIf(graph, strange, good);
  EXPECT_EQ(Values(ResultOf(model, {{"x", Row({1, 2})}, {"c", Bool(false)}})),
            (std::vector<float>{-1, -2}));
  const std::string problem = Refusal([&] {
    ResultOf(model, {{"x", Row({1, 2})}, {"c", Bool(true)}});
  });
  EXPECT_NE(problem.find("NoSuchOp"), std::string::npos) << problem;
  // No branch is left.
  *graph.mutable_node(0)->mutable_attribute(1)->mutable_g() = strange;
  EXPECT_NE(Refusal([&] { ResultOf(model, {}); }).find("NoSuchOp"), std::string::npos);
}

TEST(OnnxBranches, ResultsOfDifferentShapes) {
  GraphProto pair, all;
  AddInts(pair, "from", {0});
  AddInts(pair, "to", {2});
  AddNode(pair, "Slice", {"x", "from", "to"}, "p");
  pair.add_output()->set_name("p");
  AddNode(all, "Identity", {"x"}, "i");
  all.add_output()->set_name("i");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  DeclareOpen(graph, "x", DType::kFloat32, 1);
  Declare(graph, "c", DType::kBool, 0);
  AddIf(graph, pair, all);
  AddNode(graph, "Neg", {"y"}, "z");
  graph.mutable_output(0)->set_name("z");
  const Tensor x = Row({1, 2, 3});
  EXPECT_EQ(Values(ResultOf(model, {{"x", x}, {"c", Bool(true)}})), (std::vector<float>{-1, -2}));
  EXPECT_EQ(Values(ResultOf(model, {{"x", x}, {"c", Bool(false)}})),
            (std::vector<float>{-1, -2, -3}));
}

// PyTorch's squeeze of a dim that may be 1: the rank follows from the shape of the feed.
TEST(OnnxBranches, RanksThatFollowFromShapes) {
  GraphProto squeezed, same;
  AddInts(squeezed, "axis", {1});
  AddNode(squeezed, "Squeeze", {"x", "axis"}, "s");
  squeezed.add_output()->set_name("s");
  AddNode(same, "Identity", {"x"}, "i");
  same.add_output()->set_name("i");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  DeclareOpen(graph, "x", DType::kFloat32, 2);
  AddInts(graph, "one", {1});
  AddNode(graph, "Shape", {"x"}, "shape");
  AddNode(graph, "Gather", {"shape", "one"}, "dim");
  AddNode(graph, "Equal", {"dim", "one"}, "c");
  AddIf(graph, squeezed, same);
  const std::string problem = Refusal([&] { ResultOf(model, {}); });
  EXPECT_NE(problem.find("--shape"), std::string::npos) << problem;
  TemporaryDirectory directory;
  const std::string path = directory.File("m.onnx");
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  for (const int64_t columns : {1, 2}) {
    Scope scope;
    const Tensor x = Tensor::Full<float>({2, columns}, 3);
    const InferenceModel imported = ImportOnnxFor(path, {{"x", x}}, scope);
    const Tensor y = Executor().Prepare(imported.program).Run(scope, {x})[0].Clone();
    EXPECT_EQ(y.shape(), columns == 1 ? Shape({2}) : Shape({2, 2}));
  }
}

// Ranks that differ only between the If and the end of the graph.
ModelProto SqueezedIf(int64_t nodes) {
  GraphProto squeezed, same;
  AddInts(squeezed, "axis", {1});
  AddNode(squeezed, "Squeeze", {"x", "axis"}, "s");
  squeezed.add_output()->set_name("s");
  AddNode(same, "Identity", {"x"}, "i");
  same.add_output()->set_name("i");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  DeclareOpen(graph, "x", DType::kFloat32, 2);
  Declare(graph, "c", DType::kBool, 0);
  std::string last = "x";
  for (int64_t i = 0; i < nodes; ++i) {
    AddIf(graph, squeezed, same).set_output(0, fmt::format("y{}", i));
    AddNode(graph, "Shape", {fmt::format("y{}", i)}, fmt::format("shape{}", i));
    AddNode(graph, "Size", {fmt::format("shape{}", i)}, fmt::format("rank{}", i));
  }
  std::vector<std::string> ranks;
  for (int64_t i = 0; i < nodes; ++i) ranks.push_back(fmt::format("rank{}", i));
  AddNode(graph, "Sum", ranks, "sum");
  graph.clear_output();
  graph.add_output()->set_name("sum");
  return model;
}

TEST(OnnxBranches, RanksThatMeetAgain) {
  const Tensor x = Tensor::Full<float>({2, 1}, 3);
  for (const int64_t nodes : {1, 2, 3}) {
    ModelProto model = SqueezedIf(nodes);
    for (auto& node : *model.mutable_graph()->mutable_node())
      if (node.op_type() == "Sum") node.set_op_type("Max");
    EXPECT_EQ(ResultOf(model, {{"x", x}, {"c", Bool(true)}}).data<int64_t>()[0], 1);
    EXPECT_EQ(ResultOf(model, {{"x", x}, {"c", Bool(false)}}).data<int64_t>()[0], 2);
  }
}

// The model declares which of the ranks its output has; a run that gives the other one stops.
TEST(OnnxBranches, RankThatTheModelDeclares) {
  ModelProto model = SqueezedIf(1);
  GraphProto& graph = *model.mutable_graph();
  auto& output = *graph.mutable_output(0);
  output.set_name("y0");
  output.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_param("n");
  const Tensor x = Tensor::Full<float>({2, 1}, 3);
  EXPECT_EQ(ResultOf(model, {{"x", x}, {"c", Bool(true)}}).shape(), Shape({2}));
  const std::string problem = Refusal([&] { ResultOf(model, {{"x", x}, {"c", Bool(false)}}); });
  EXPECT_NE(problem.find("has rank 2, but is declared with rank 1"), std::string::npos) << problem;
}

// Each If doubles the nodes after it.
TEST(OnnxBranches, TooManySplits) {
  const std::string problem = Refusal([&] { ResultOf(SqueezedIf(40), {}); });
  EXPECT_NE(problem.find("more than"), std::string::npos) << problem;
}

// --- loops ---

NodeProto& AddLoop(GraphProto& graph, const GraphProto& body,
                   const std::vector<std::string>& inputs) {
  NodeProto& node = AddNode(graph, "Loop", inputs, "y");
  *AddAttr(node, "body", AttributeProto::GRAPH).mutable_g() = body;
  return node;
}

GraphProto BodyOf(int counter_rank) {
  GraphProto body;
  Declare(body, "i", DType::kInt64, counter_rank);
  if (counter_rank == 1)
    body.mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_value(1);
  Declare(body, "more", DType::kBool, 0);
  AddNode(body, "Identity", {"more"}, "next");
  body.add_output()->set_name("next");
  return body;
}

TEST(OnnxBranches, CounterDeclaredAsAVector) {
  GraphProto body = BodyOf(1);
  AddInts(body, "one", {1});
  AddInts(body, "zero", {0});
  AddNode(body, "Add", {"i", "one"}, "e");
  AddNode(body, "Slice", {"x", "i", "e", "zero"}, "s");
  body.add_output()->set_name("s");
  ModelProto model = Model(13);
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  AddInts(graph, "n", {2}, true);
  AddLoop(graph, body, {"n", ""});
  graph.add_output()->set_name("y");
  const Tensor x = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor y = ResultOf(model, {{"x", x}});
  EXPECT_EQ(y.shape(), Shape({2, 1, 2}));
  EXPECT_EQ(Values(y), (std::vector<float>{1, 2, 3, 4}));
}

// Each turn adds a dimension in front.
TEST(OnnxBranches, CarriedValueThatChangesItsRank) {
  GraphProto body = BodyOf(0);
  Declare(body, "v", DType::kFloat32, 1);
  AddInts(body, "axis", {0});
  AddNode(body, "Unsqueeze", {"v", "axis"}, "u");
  AddNode(body, "Size", {"v"}, "size");
  body.add_output()->set_name("u");
  body.add_output()->set_name("size");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 1);
  AddInts(graph, "n", {3}, true);
  AddLoop(graph, body, {"n", "", "x"}).add_output("sizes");
  graph.add_output()->set_name("y");
  const Tensor y = ResultOf(model, {{"x", Row({1, 2})}});
  EXPECT_EQ(y.shape(), Shape({1, 1, 1, 2}));
  graph.mutable_output(0)->set_name("sizes");
  const Tensor sizes = ResultOf(model, {{"x", Row({1, 2})}});
  EXPECT_EQ(sizes.shape(), Shape({3}));
  EXPECT_EQ(sizes.data<int64_t>()[2], 2);
  // The number of turns must be known.
  Declare(graph, "n", DType::kInt64, 0);
  graph.clear_initializer();
  EXPECT_NE(Refusal([&] { ResultOf(model, {}); }).find("--shape"), std::string::npos);
}

// A value that grows from turn to turn.
TEST(OnnxBranches, CarriedValueThatChangesItsShape) {
  GraphProto body = BodyOf(0);
  Declare(body, "v", DType::kFloat32, 1);
  NodeProto& joined = AddNode(body, "Concat", {"v", "v"}, "d");
  AddAttr(joined, "axis", AttributeProto::INT).set_i(0);
  body.add_output()->set_name("d");
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 1);
  Declare(graph, "n", DType::kInt64, 0);
  AddLoop(graph, body, {"n", "", "x"});
  graph.add_output()->set_name("y");
  for (const int64_t turns : {0, 1, 3}) {
    const Tensor y =
        ResultOf(model, {{"x", Row({1, 2})}, {"n", Tensor::Full<int64_t>({1}, turns)}});
    EXPECT_EQ(y.shape(), Shape({2 << turns}));
  }
}

// as_strided as PyTorch exports it: a loop over dims that carries a sequence of ones and indices
// whose rank grows.
TEST(OnnxBranches, AsStrided) {
  GraphProto body = BodyOf(0);
  Declare(body, "indices", DType::kInt64, 0);
  body.add_input()->set_name("ones");
  // j = rank - 1 - i, as a vector.
  AddInts(body, "last", {1}, true);
  AddInts(body, "minus", {-1});
  AddInts(body, "zero", {0}, true);
  AddInts(body, "unit", {1}, true);
  AddNode(body, "Sub", {"last", "i"}, "j0");
  AddNode(body, "Reshape", {"j0", "minus"}, "j");
  AddNode(body, "Gather", {"size", "j0"}, "count");
  AddNode(body, "Gather", {"stride", "j0"}, "step");
  AddNode(body, "Range", {"zero", "count", "unit"}, "range");
  AddNode(body, "Mul", {"range", "step"}, "line");
  // [count, 1, 1..]: as many ones as turns so far.
  AddNode(body, "Reshape", {"count", "minus"}, "head");
  AddNode(body, "Equal", {"i", "zero"}, "first");
  GraphProto alone, more;
  AddNode(alone, "Identity", {"head"}, "h");
  alone.add_output()->set_name("h");
  NodeProto& tail = AddNode(more, "ConcatFromSequence", {"ones"}, "t");
  AddAttr(tail, "axis", AttributeProto::INT).set_i(0);
  NodeProto& both = AddNode(more, "Concat", {"head", "t"}, "b");
  AddAttr(both, "axis", AttributeProto::INT).set_i(0);
  more.add_output()->set_name("b");
  NodeProto& choice = AddNode(body, "If", {"first"}, "shape");
  *AddAttr(choice, "then_branch", AttributeProto::GRAPH).mutable_g() = alone;
  *AddAttr(choice, "else_branch", AttributeProto::GRAPH).mutable_g() = more;
  AddNode(body, "Reshape", {"line", "shape"}, "placed");
  AddNode(body, "Add", {"indices", "placed"}, "sum");
  AddInts(body, "one", {1});
  AddNode(body, "SequenceInsert", {"ones", "one"}, "grown");
  body.add_output()->set_name("sum");
  body.add_output()->set_name("grown");

  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 1);
  graph.mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(6);
  AddInts(graph, "n", {2}, true);
  AddInts(graph, "start", {0}, true);
  AddInts(graph, "size", {2, 3});
  AddInts(graph, "stride", {1, 2});
  AddNode(graph, "SequenceEmpty", {}, "none");
  NodeProto& loop = AddLoop(graph, body, {"n", "", "start", "none"});
  loop.set_output(0, "where");
  loop.add_output("rest");
  AddNode(graph, "Gather", {"x", "where"}, "z");
  graph.add_output()->set_name("z");
  // z[a, b] = x[a + 2 b].
  const Tensor z = ResultOf(model, {{"x", Row({0, 1, 2, 3, 4, 5})}});
  EXPECT_EQ(z.shape(), Shape({2, 3}));
  EXPECT_EQ(Values(z), (std::vector<float>{0, 2, 4, 1, 3, 5}));
}

}  // namespace coracle::onnx::onnx_branches_test
