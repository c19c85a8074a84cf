// Nodes in any order, operator sets without an import, and attributes that mean nothing.
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/any_node.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace coracle::onnx::onnx_node_order_test {

ModelProto Model(int64_t opset = 17) {
  ModelProto model;
  model.add_opset_import()->set_version(opset);
  Declare(*model.mutable_graph(), "x", DType::kFloat32, 1);
  return model;
}

std::vector<float> ResultOf(const ModelProto& model, const std::vector<float>& x) {
  Scope scope;
  const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
  PreparedProgram prepared = Executor().Prepare(imported.program);
  const Tensor result =
      prepared.Run(scope, {Tensor::Of<float>({static_cast<int64_t>(x.size())}, x)})[0].Clone();
  return {result.data<float>(), result.data<float>() + result.numel()};
}

std::string Refusal(const ModelProto& model) {
  try {
    Scope scope;
    ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

TEST(OnnxNodeOrder, AnyOrder) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  AddNode(graph, "Relu", {"b"}, "y");
  AddNode(graph, "Add", {"a", "x"}, "b");
  AddNode(graph, "Neg", {"x"}, "a");
  AddNode(graph, "Exp", {"y"}, "unused");
  graph.add_output()->set_name("b");
  EXPECT_EQ(ResultOf(model, {1, 2}), (std::vector<float>{0, 0}));
}

// The inner graph reads a result of a later node, in a node and as its output.
TEST(OnnxNodeOrder, ReadByInnerGraphs) {
  for (const bool as_output : {false, true}) {
    ModelProto model = Model();
    GraphProto& graph = *model.mutable_graph();
    NodeProto& choice = AddNode(graph, "If", {"c"}, "y");
    for (const char* branch : {"then_branch", "else_branch"}) {
      GraphProto inner;
      if (!as_output) AddNode(inner, "Neg", {"late"}, "n");
      inner.add_output()->set_name(as_output ? "late" : "n");
      *AddAttr(choice, branch, AttributeProto::GRAPH).mutable_g() = inner;
    }
    AddNode(graph, "ReduceMax", {"less"}, "c");
    AddNode(graph, "Less", {"x", "late"}, "less");
    AddNode(graph, "Exp", {"x"}, "late");
    graph.add_output()->set_name("y");
    const float e = std::exp(1.0f);
    EXPECT_FLOAT_EQ(ResultOf(model, {1, 1})[0], as_output ? e : -e);
  }
}

TEST(OnnxNodeOrder, WithinInnerGraphsAndFunctions) {
  ModelProto model = Model();
  auto& function = *model.add_functions();
  function.set_name("Twice");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("c");
  function.add_opset_import()->set_version(17);
  GraphProto nodes;
  AddNode(nodes, "Add", {"b", "b"}, "c");
  AddNode(nodes, "Neg", {"a"}, "b");
  *function.mutable_node() = nodes.node();
  model.add_opset_import()->set_domain("own");
  model.mutable_opset_import(1)->set_version(1);
  AddNode(*model.mutable_graph(), "Twice", {"x"}, "y").set_domain("own");
  model.mutable_graph()->add_output()->set_name("y");
  EXPECT_EQ(ResultOf(model, {1, 2}), (std::vector<float>{-2, -4}));
}

TEST(OnnxNodeOrder, CyclesAreNamed) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  AddNode(graph, "Neg", {"c"}, "a").set_name("first");
  AddNode(graph, "Abs", {"a"}, "b");
  AddNode(graph, "Exp", {"b"}, "c");
  graph.add_output()->set_name("c");
  EXPECT_EQ(Refusal(model),
            "m.onnx: nodes form a cycle: 'first' (Neg) reads a result of 'c' (Exp) reads a result "
            "of 'b' (Abs) reads a result of 'first' (Neg)");
}

// A chain in reverse order, which a recursive sort could not follow.
TEST(OnnxNodeOrder, LongReversedChain) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  constexpr int kNodes = 20000;
  for (int i = kNodes - 1; i >= 0; --i)
    AddNode(graph, "Neg", {i == 0 ? "x" : fmt::format("n{}", i - 1)}, fmt::format("n{}", i));
  graph.add_output()->set_name(fmt::format("n{}", kNodes - 1));
  Scope scope;
  const ProgramDesc program = ParseOnnx(model.SerializeAsString(), "m.onnx", scope).program;
  EXPECT_GE(program.Root().NumOps(), static_cast<size_t>(kNodes));
}

TEST(OnnxNodeOrder, OperatorSetsWithoutAnImport) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  AddNode(graph, "QuickGelu", {"x"}, "y").set_domain("com.microsoft");
  graph.add_output()->set_name("y");
  // x times sigmoid(1.702 x).
  EXPECT_NEAR(ResultOf(model, {1, 2})[0], 1 / (1 + std::exp(-1.702f)), 1e-5f);
  graph.mutable_node(0)->set_domain("org.example");
  EXPECT_NE(Refusal(model).find("imports no operator set of the domain 'org.example'"),
            std::string::npos);
}

TEST(OnnxNodeOrder, AttributesThatMeanNothing) {
  ModelProto model = Model();
  GraphProto& graph = *model.mutable_graph();
  for (int i = 0; i < 2; ++i) {
    NodeProto& node = AddNode(graph, "Relu", {"x"}, fmt::format("y{}", i));
    AddAttr(node, "inplacee", AttributeProto::INT).set_i(1);
    graph.add_output()->set_name(fmt::format("y{}", i));
  }
  std::vector<std::string> told;
  const LogSink before =
      SetLogSink([&](MessageLevel, const std::string& message) { told.push_back(message); });
  EXPECT_EQ(ResultOf(model, {-1, 2}), (std::vector<float>{0, 2}));
  SetLogSink(before);
  EXPECT_EQ(told, (std::vector<std::string>{"m.onnx: node 'y0' (Relu, opset 17): attribute "
                                            "'inplacee' is none of ONNX's, and is ignored"}));
  // A name that means something elsewhere may mean something here.
  graph.mutable_node(0)->mutable_attribute(0)->set_name("alpha");
  EXPECT_NE(Refusal(model).find("attribute 'alpha' has no counterpart"), std::string::npos);
}

}  // namespace coracle::onnx::onnx_node_order_test
