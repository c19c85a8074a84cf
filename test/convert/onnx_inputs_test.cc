// The rows of the importers declare the inputs of nodes. Each importer gets each input absent, as a
// sequence, and with other ranks and dtypes.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/framework/base/error.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/any_node.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coracle::onnx::onnx_inputs_test {

// The first line of the error of an import; "" if there is none. Anything else ends the test.
std::string ErrorOf(const ModelProto& model) {
  Scope scope;
  try {
    ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
  } catch (const InternalError& e) {
    ADD_FAILURE() << e.what() << "\n" << model.ShortDebugString();
  } catch (const Error& e) {
    return e.message().substr(0, e.message().find('\n'));
  }
  return "";
}

std::vector<Given> Variants(const Given& usual) {
  std::vector<Given> variants = {{Given::kAbsent}, {Given::kSequence}};
  for (Given::Kind kind : {Given::kTensor, Given::kConstant}) {
    for (int rank : {0, 1, 2, 3, 4, 5}) variants.push_back({kind, usual.dtype, rank});
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUInt8,
                        DType::kBool, DType::kComplex64})
      variants.push_back({kind, dtype, usual.rank});
  }
  return variants;
}

TEST(OnnxInputs, OfEachKindAreRefusedOrImported) {
  int refused = 0, imported = 0;
  for (const NodeImporter& row : AllNodeImporters().rows()) {
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      for (const Given& variant : Variants(Usual(row.inputs[i]))) {
        std::vector<Given> inputs = UsualInputs(row);
        inputs[i] = variant;
        ++(ErrorOf(ModelOf(row, inputs)).empty() ? imported : refused);
      }
    }
    for (int rank = 0; rank <= 6; ++rank) {  // all at once
      std::vector<Given> inputs = UsualInputs(row);
      for (Given& given : inputs) given.rank = rank;
      ++(ErrorOf(ModelOf(row, inputs)).empty() ? imported : refused);
    }
    for (size_t count = 0; count <= row.inputs.size() + 1; ++count) {
      std::vector<Given> inputs = UsualInputs(row);
      inputs.resize(count);
      ++(ErrorOf(ModelOf(row, inputs)).empty() ? imported : refused);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(imported, 1000);
}

// An absent input that a row requires, a sequence in place of a tensor, and the reverse.
TEST(OnnxInputs, WhatARowForbidsIsRefusedByName) {
  for (const NodeImporter& row : AllNodeImporters().rows()) {
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      const InputRule& rule = row.inputs[i];
      const auto error = [&](Given::Kind kind) {
        std::vector<Given> inputs = UsualInputs(row);
        inputs[i].kind = kind;
        return ErrorOf(ModelOf(row, inputs));
      };
      const std::string head = fmt::format("{}, opset", row.op_type);
      if (!rule.optional) {
        EXPECT_NE(error(Given::kAbsent).find(fmt::format("input {} is missing", i)),
                  std::string::npos)
            << row.op_type << ": " << error(Given::kAbsent);
      }
      // Sequences are of operator set 11.
      if (rule.holds == 'V' || row.until < 11) continue;
      const std::string wrong = error(rule.holds == 'S' ? Given::kTensor : Given::kSequence);
      EXPECT_NE(wrong.find(fmt::format("input {} ('x{}') must be {}, got ", i, i, rule.ToString())),
                std::string::npos)
          << row.op_type << ": " << wrong;
      EXPECT_NE(wrong.find(head), std::string::npos) << wrong;
    }
  }
}

TEST(OnnxInputs, RulesRead) {
  const std::vector<InputRule> rules = ParseInputRules("f3-5 i1? T2+ S V*");
  ASSERT_EQ(rules.size(), 5u);
  EXPECT_EQ(rules[0].ToString(), "floats of rank 3 to 5");
  EXPECT_EQ(rules[1].ToString(), "integers of rank 1");
  EXPECT_TRUE(rules[1].optional);
  EXPECT_EQ(rules[2].ToString(), "a tensor of rank 2 or more");
  EXPECT_EQ(rules[3].ToString(), "a sequence");
  EXPECT_TRUE(rules[4].repeated);
  EXPECT_TRUE(ParseInputRules("").empty());
  EXPECT_THROW(ParseInputRules("q"), InternalError);
  NodeImporters importers;
  EXPECT_THROW(importers.Add({.op_type = "Op", .maps_to = ""}), InternalError);
}

// --- single models ---

ModelProto Opset17() {
  ModelProto model;
  model.add_opset_import()->set_version(17);
  auto& own = *model.add_opset_import();
  own.set_domain("mine");
  own.set_version(1);
  return model;
}

// A function of one input, which its caller leaves out, around that node.
ModelProto AbsentInFunction(const NodeProto& node) {
  ModelProto model = Opset17();
  auto& function = *model.add_functions();
  function.set_name("F");
  function.set_domain("mine");
  for (const char* name : {"x", "absent"}) function.add_input(name);
  function.add_output("y");
  *function.mutable_opset_import() = model.opset_import();
  *function.add_node() = node;
  Declare(*model.mutable_graph(), "x", DType::kFloat32, 2);
  NodeProto& call = AddNode(*model.mutable_graph(), "F", {"x"}, "y");
  call.set_domain("mine");
  model.mutable_graph()->add_output()->set_name("y");
  return model;
}

void ExpectError(const ModelProto& model, const std::string& text) {
  EXPECT_NE(ErrorOf(model).find(text), std::string::npos) << ErrorOf(model);
}

TEST(OnnxInputs, AbsentInputsOfFunctionsDoNotReachBodies) {
  const char* left_out = "is an input that the caller of the function leaves out";
  GraphProto branch;
  branch.add_output()->set_name("absent");
  GraphProto holder;
  NodeProto node = AddNode(holder, "If", {"absent"}, "y");
  for (const char* name : {"then_branch", "else_branch"})
    *AddAttr(node, name, AttributeProto::GRAPH).mutable_g() = branch;
  ExpectError(AbsentInFunction(node), "input 0 is missing, and must be bools");
  GraphProto body = Body(3, 1, 2);
  node = AddNode(holder, "Loop", {"", "", "absent"}, "y");
  *AddAttr(node, "body", AttributeProto::GRAPH).mutable_g() = body;
  ExpectError(AbsentInFunction(node), "input 2 is missing, and must be a value");
  body.mutable_output(0)->set_name("absent");
  node = AddNode(holder, "Loop", {"", "", "x"}, "y");
  *AddAttr(node, "body", AttributeProto::GRAPH).mutable_g() = body;
  ExpectError(AbsentInFunction(node), left_out);
  body = Body(3, 1, 2);
  body.mutable_output(1)->set_name("absent");
  node.mutable_attribute(0)->mutable_g()->CopyFrom(body);
  ExpectError(AbsentInFunction(node), left_out);
  body = Body(3, 1, 2);
  body.add_output()->set_name("absent");
  node.mutable_attribute(0)->mutable_g()->CopyFrom(body);
  ExpectError(AbsentInFunction(node), left_out);
  node = AddNode(holder, "Scan", {"x"}, "y");
  AddAttr(node, "num_scan_inputs", AttributeProto::INT).set_i(1);
  body = Body(1, 0, 0);
  body.mutable_output(0)->set_name("absent");
  *AddAttr(node, "body", AttributeProto::GRAPH).mutable_g() = body;
  ExpectError(AbsentInFunction(node), left_out);
  node = AddNode(holder, "SequenceMap", {"absent"}, "y");
  *AddAttr(node, "body", AttributeProto::GRAPH).mutable_g() = Body(1, 0, 0);
  ExpectError(AbsentInFunction(node), "input 0 is missing, and must be a sequence");
}

// A loop whose condition, at its start or from its body, is that value.
ModelProto LoopWith(const std::string& type, bool inside) {
  ModelProto model = Opset17();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  AddNode(graph, type,
          type == "Optional" ? std::vector<std::string>() : std::vector<std::string>{"x"}, "wrong");
  NodeProto& loop = AddNode(graph, "Loop", {"", inside ? "" : "wrong", "x"}, "y");
  GraphProto body = Body(3, 1, 2);
  if (inside) body.mutable_output(0)->set_name("wrong");
  *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g() = body;
  graph.add_output()->set_name("y");
  return model;
}

TEST(OnnxInputs, ConditionsOfLoopsAreBools) {
  ExpectError(LoopWith("SequenceConstruct", false),
              "input 1 ('wrong') must be bools, got a sequence");
  ExpectError(LoopWith("Optional", false),
              "input 1 ('wrong') must be bools, got an optional value that is not there");
  ExpectError(LoopWith("Abs", false), "input 1 ('wrong') must be bools, got float32[2, 2]");
  for (const char* type : {"SequenceConstruct", "Optional", "Abs"})
    ExpectError(LoopWith(type, true), "the first output of the body must be a bool");
  ExpectError(LoopWith("IsNaN", true), "the first output of the body must have one element");
}

TEST(OnnxInputs, SequencesHoldTensors) {
  ModelProto model = Opset17();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  AddNode(graph, "SequenceConstruct", {"x"}, "s");
  AddNode(graph, "SequenceConstruct", {"s"}, "t");
  graph.add_output()->set_name("x");
  ExpectError(model, "input 0 ('s') must be a tensor, got a sequence");
  graph.mutable_node(1)->set_op_type("SequenceMap");
  GraphProto body;
  body.add_input()->set_name("e");
  AddNode(body, "SequenceConstruct", {"e"}, "inner");
  body.add_output()->set_name("inner");
  *AddAttr(*graph.mutable_node(1), "body", AttributeProto::GRAPH).mutable_g() = body;
  ExpectError(model, "an element of a sequence must be a tensor");
}

TEST(OnnxInputs, FiltersOfQuantizedConvolutionsHaveARank) {
  const auto row = [](const char* type) { return AllNodeImporters().Get("", type, 17); };
  for (int rank : {0, 1, 2}) {
    std::vector<Given> inputs = UsualInputs(row("ConvInteger"));
    inputs[0].dtype = inputs[1].dtype = inputs[2].dtype = inputs[3].dtype = DType::kUInt8;
    inputs[1].rank = rank;
    ExpectError(ModelOf(row("ConvInteger"), inputs),
                "input 1 ('x1') must be integers of rank 3 or more, got uint8");
    inputs = UsualInputs(row("QLinearConv"));
    inputs[3].rank = rank;
    ExpectError(ModelOf(row("QLinearConv"), inputs),
                "input 3 ('x3') must be integers of rank 3 or more, got int64");
    inputs[0].rank = rank;
    ExpectError(ModelOf(row("QLinearConv"), inputs),
                "input 0 ('x0') must be integers of rank 3 or more, got int64");
  }
}

TEST(OnnxInputs, NamesAreGivenOnce) {
  ModelProto model = Opset17();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  AddNode(graph, "Relu", {"x"}, "y");
  graph.add_output()->set_name("y");
  EXPECT_EQ(ErrorOf(model), "");
  ModelProto twice = model;
  Declare(*twice.mutable_graph(), "x", DType::kFloat32, 3);
  ExpectError(twice, "the input 'x' is declared twice");
  twice = model;
  AddNode(*twice.mutable_graph(), "Abs", {"x"}, "y");
  ExpectError(twice, "the value 'y' is defined twice");
  twice = model;
  AddGiven(*twice.mutable_graph(), {Given::kConstant}, "w");
  AddGiven(*twice.mutable_graph(), {Given::kConstant}, "w");
  ExpectError(twice, "the value 'w' is defined twice");
  twice = model;
  for (int i = 0; i < 2; ++i) {
    auto& function = *twice.add_functions();
    function.set_name("F");
    function.set_domain("mine");
  }
  ExpectError(twice, "the function 'F' is defined twice");
}

// --- numbers beyond int32 ---

ModelProto OneInput(const std::string& type, const std::string& attr, int64_t value) {
  NodeImporter row = AllNodeImporters().Get("", type, 17);
  row.until = 17;
  ModelProto model = ModelOf(row, UsualInputs(row));
  NodeProto& node = *model.mutable_graph()->mutable_node(0);
  for (int i = node.attribute_size(); i-- > 0;)
    if (node.attribute(i).name() == attr) node.mutable_attribute()->DeleteSubrange(i, 1);
  AddAttr(node, attr, AttributeProto::INT).set_i(value);
  return model;
}

TEST(OnnxInputs, NumbersBeyondInt32AreRefused) {
  constexpr int64_t kBeyond = int64_t{1} << 32;
  for (const auto& [type, attr] :
       std::vector<std::pair<std::string, std::string>>{{"Cast", "to"},
                                                        {"EyeLike", "dtype"},
                                                        {"RandomUniformLike", "dtype"},
                                                        {"RandomNormalLike", "dtype"},
                                                        {"Bernoulli", "dtype"},
                                                        {"Multinomial", "dtype"},
                                                        {"Multinomial", "sample_size"},
                                                        {"LRN", "size"},
                                                        {"LayerNormalization", "stash_type"},
                                                        {"HannWindow", "output_datatype"},
                                                        {"RoiAlign", "output_height"}}) {
    const std::string wanted =
        fmt::format("attribute {} of {} is beyond the range of int32", attr, kBeyond + 1);
    ModelProto model = OneInput(type, attr, kBeyond + 1);
    if (type == "HannWindow") {
      GraphProto& graph = *model.mutable_graph();
      graph.clear_input();
      AddGiven(graph, {Given::kConstant, DType::kUInt8, 0}, "x0");
    }
    EXPECT_NE(ErrorOf(model).find(wanted), std::string::npos) << type << ": " << ErrorOf(model);
  }
}

TEST(OnnxInputs, PartsBeyondInt32AreRefused) {
  ModelProto model = Opset17();
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  auto& split = *graph.add_initializer();
  split.set_name("split");
  split.set_data_type(proto::onnx::TensorProto::INT64);
  split.add_dims(2);
  for (int64_t part : {(int64_t{1} << 32) + 1, int64_t{1}}) split.add_int64_data(part);
  AddNode(graph, "SplitToSequence", {"x", "split"}, "s");
  graph.add_output()->set_name("x");
  ExpectError(model, "split of 4294967297 is beyond the range of int32");
  graph.mutable_node(0)->set_op_type("Split");
  graph.mutable_node(0)->add_output("t");
  ExpectError(model, "a part of 4294967297 is beyond the range of int32");
}

}  // namespace coracle::onnx::onnx_inputs_test
