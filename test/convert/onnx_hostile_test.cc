// Models that ask for more memory or time than they are worth: each is refused by one line.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/convert/onnx/model_file.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/sanitizers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace coracle::onnx::onnx_hostile_test {

using proto::onnx::FunctionProto;
using proto::onnx::GraphProto;
using proto::onnx::ModelProto;
using proto::onnx::NodeProto;

constexpr uint64_t kMegabyte = 1 << 20;

// The first line of the error within 64 MB.
std::string Refusal(const std::string& bytes, ErrorCode code) {
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = 64 * kMegabyte, .seconds = 60});
  const ScopedLimits scoped(limits);
  Scope scope;
  std::string line = "no error";
  try {
    ParseOnnx(bytes, "m.onnx", scope);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    line = e.message().substr(0, e.message().find('\n'));
  }
  EXPECT_EQ(limits->bytes_in_use(), 0u);
  EXPECT_LT(line.size(), 400u);
  return line;
}

void ExpectRefusal(const std::string& bytes, ErrorCode code, const std::string& text) {
  const std::string line = Refusal(bytes, code);
  EXPECT_NE(line.find(text), std::string::npos) << line;
}

// A field of that number whose bytes are `content`.
std::string Field(int number, const std::string& content) {
  std::string field;
  const int tag = number << 3 | 2;
  if (tag > 127) field += static_cast<char>((tag & 127) | 128);
  field += static_cast<char>(tag > 127 ? tag >> 7 : tag);
  for (size_t n = content.size(); true; n >>= 7) {
    field += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
    if (n <= 127) break;
  }
  return field + content;
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  all.reserve(text.size() * static_cast<size_t>(times));
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Two bytes each, of which protobuf makes some hundred.
TEST(OnnxHostile, EmptyMessages) {
  constexpr int kMany = 1'000'000, kGraph = 7, kNode = 1, kAttribute = 5, kInnerGraph = 6;
  const std::string nodes = Repeated(Field(kNode, ""), kMany);
  ExpectRefusal(Field(kGraph, nodes), ErrorCode::kResourceExhausted, "the parts of an ONNX model");
  const std::string inner = Field(kNode, Field(kAttribute, Field(kInnerGraph, nodes)));
  ExpectRefusal(Field(kGraph, inner), ErrorCode::kResourceExhausted, "the parts of an ONNX model");
  const std::string attributes = Field(kNode, Repeated(Field(kAttribute, ""), kMany));
  ExpectRefusal(Field(kGraph, attributes), ErrorCode::kResourceExhausted,
                "the parts of an ONNX model");
  for (int field : {11, 12, 13})  // inputs, outputs, other values
    ExpectRefusal(Field(kGraph, Repeated(Field(field, ""), kMany)), ErrorCode::kResourceExhausted,
                  "the parts of an ONNX model");
  for (int field : {8, 25})  // operator sets, functions
    ExpectRefusal(Field(kGraph, "") + Repeated(Field(field, ""), kMany),
                  ErrorCode::kResourceExhausted, "the parts of an ONNX model");
}

TEST(OnnxHostile, InitializersWithoutElements) {
  // float [0], a name.
  const std::string tensor = Field(8, "w") + std::string("\x08\x00\x10\x01", 4);
  const std::string graph = Repeated(Field(5, tensor), 200'000);
  ExpectRefusal(Field(7, graph), ErrorCode::kResourceExhausted,
                "the initializers of an ONNX model");
}

// A shape of 2^40 elements with four bytes of them.
TEST(OnnxHostile, InitializersOfHugeDims) {
  ModelProto model;
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(proto::onnx::TensorProto::FLOAT);
  tensor.add_dims(int64_t{1} << 20);
  tensor.add_dims(int64_t{1} << 20);
  tensor.set_raw_data("1234");
  ExpectRefusal(model.SerializeAsString(), ErrorCode::kDataLoss,
                "tensor 'w': FLOAT[1048576, 1048576] takes");
  tensor.set_dims(1, INT64_MAX);
  ExpectRefusal(model.SerializeAsString(), ErrorCode::kDataLoss, "is not a shape");
  tensor.set_dims(1, -1);
  ExpectRefusal(model.SerializeAsString(), ErrorCode::kDataLoss, "is not a shape");
}

// Deeper than any stack.
TEST(OnnxHostile, GraphsIn100000Graphs) {
  std::string bytes;
  // Lengths are written from the inside; each level is a graph in an attribute of a node.
  std::string graph;
  for (int i = 0; i < 2000; ++i) graph = Field(1, Field(5, Field(6, graph)));
  ExpectRefusal(Field(7, graph), ErrorCode::kDataLoss, "nested more than");
  // Length after length without what they promise.
  ExpectRefusal(Field(7, Repeated("\x0a\x7f\x2a\x7d\x32\x7b", 100'000)), ErrorCode::kDataLoss,
                "damaged");
}

void SetOpset(ModelProto& model) {
  model.add_opset_import()->set_version(17);
  auto& mine = *model.add_opset_import();
  mine.set_domain("mine");
  mine.set_version(1);
}

// Each function calls the one before it as many times as `calls` says.
ModelProto Functions(int levels, int calls) {
  ModelProto model;
  SetOpset(model);
  for (int level = 0; level < levels; ++level) {
    FunctionProto& function = *model.add_functions();
    function.set_name("F" + std::to_string(level));
    function.set_domain("mine");
    function.add_input("v0");
    function.add_output("v" + std::to_string(calls));
    *function.mutable_opset_import() = model.opset_import();
    for (int i = 0; i < calls; ++i) {
      NodeProto& node = *function.add_node();
      node.set_op_type(level == 0 ? "Relu" : "F" + std::to_string(level - 1));
      if (level > 0) node.set_domain("mine");
      node.add_input("v" + std::to_string(i));
      node.add_output("v" + std::to_string(i + 1));
    }
  }
  auto& input = *model.mutable_graph()->add_input();
  input.set_name("x");
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(proto::onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_value(1);
  NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type("F" + std::to_string(levels - 1));
  node.set_domain("mine");
  node.add_input("x");
  node.add_output("y");
  model.mutable_graph()->add_output()->set_name("y");
  return model;
}

TEST(OnnxHostile, FunctionsThatDouble) {
  Scope scope;
  const ModelProto small = Functions(6, 2);
  size_t relus = 0;
  const InferenceModel model = ParseOnnx(small.SerializeAsString(), "m.onnx", scope);
  model.program.ForEachOp([&](const OpDesc& op) { relus += op.type() == "relu"; });
  EXPECT_EQ(relus, 64u);
  ExpectRefusal(Functions(40, 2).SerializeAsString(), ErrorCode::kResourceExhausted,
                "the program of an ONNX model");
  ExpectRefusal(Functions(70, 1).SerializeAsString(), ErrorCode::kInvalidArgument, "too deeply");
}

// Functions of nothing take no memory: only their number ends them.
TEST(OnnxHostile, EmptyFunctionsThatDouble) {
  ModelProto model = Functions(40, 2);
  model.mutable_functions(0)->mutable_node(0)->set_op_type("Identity");
  model.mutable_functions(0)->mutable_node(1)->set_op_type("Identity");
  ResourceOptions options{.seconds = 300};
  const ScopedLimits scoped(std::make_shared<ResourceLimits>(options));
  Scope scope;
  try {
    ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.message()).find("functions and sub-graphs are more than 1048576 nodes"),
              std::string::npos)
        << e.message();
  }
}

// Inputs that declare `dim` for each of their dims.
std::string NodeOfInputs(const NodeImporter& row, int inputs, int rank, int64_t dim, int type) {
  ModelProto model;
  auto& import = *model.add_opset_import();
  import.set_domain(row.domain);
  import.set_version(row.until);
  NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type(row.op_type);
  node.set_domain(row.domain);
  node.add_output("y");
  for (int i = 0; i < inputs; ++i) {
    const std::string name = "x" + std::to_string(i);
    node.add_input(name);
    auto& input = *model.mutable_graph()->add_input();
    input.set_name(name);
    auto& tensor = *input.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (int k = 0; k < rank; ++k) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  }
  model.mutable_graph()->add_output()->set_name("y");
  return model.SerializeAsString();
}

// No importer makes tables of a size that an input declares. A child tries, with little memory.
int ImportAllOfHugeDims() {
  struct rlimit limit = {};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = rlim_t{4} << 30;
  ::setrlimit(RLIMIT_AS, &limit);
  int wrong = 0;
  for (const NodeImporter& row : AllNodeImporters().rows()) {
    for (const int64_t dim : {int64_t{1} << 20, int64_t{1} << 31, int64_t{1} << 40}) {
      for (int inputs = 0; inputs <= 6; ++inputs) {
        for (int rank = 1; rank <= 5; ++rank) {
          const int type = (inputs + rank) % 2 ? proto::onnx::TensorProto::FLOAT
                                               : proto::onnx::TensorProto::INT64;
          const std::string bytes = NodeOfInputs(row, inputs, rank, dim, type);
          const ScopedLimits scoped(std::make_shared<ResourceLimits>(
              ResourceOptions{.memory = 64 * kMegabyte, .seconds = 20}));
          Scope scope;
          try {
            ParseOnnx(bytes, "m.onnx", scope);
          } catch (const InternalError& e) {
            std::printf("%s: %s\n", row.op_type.c_str(), e.what());
            ++wrong;
          } catch (const Error& e) {
            const bool by_the_system = e.message().ends_with(": out of memory");
            if (by_the_system) std::printf("%s\n", e.what());
            wrong += by_the_system ? 1 : 0;
          } catch (const std::exception& e) {
            std::printf("%s of %d inputs [%lld...] of rank %d: %s\n", row.op_type.c_str(), inputs,
                        static_cast<long long>(dim), rank, e.what());
            ++wrong;
          }
        }
      }
    }
  }
  std::fflush(stdout);
  return wrong;
}

TEST(OnnxHostile, InputsOfHugeDims) {
  if (UnderSanitizer()) GTEST_SKIP() << "a sanitizer takes more address space";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(std::min(ImportAllOfHugeDims(), 100));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// --- small files that become much: near-linear, or refused ---

void AddInput(GraphProto& graph, const std::vector<int64_t>& dims) {
  auto& input = *graph.add_input();
  input.set_name("x");
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(proto::onnx::TensorProto::FLOAT);
  type.mutable_shape();
  for (int64_t dim : dims) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

NodeProto& Append(GraphProto& graph, const std::string& type,
                  const std::vector<std::string>& inputs, const std::string& output) {
  NodeProto& node = *graph.add_node();
  node.set_op_type(type);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

proto::onnx::AttributeProto& AddAttr(NodeProto& node, const std::string& name,
                                     proto::onnx::AttributeProto::AttributeType type) {
  auto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(type);
  return attr;
}

// A model of x with the given dims whose result is `output`.
ModelProto ModelOfX(const std::vector<int64_t>& dims, const std::string& output) {
  ModelProto model;
  SetOpset(model);
  AddInput(*model.mutable_graph(), dims);
  model.mutable_graph()->add_output()->set_name(output);
  return model;
}

size_t OpsOf(const ModelProto& model) {
  Scope scope;
  return ParseOnnx(model.SerializeAsString(), "m.onnx", scope).program.Root().NumOps();
}

TEST(OnnxHostile, EinsumOfManyOperands) {
  constexpr int kMany = 10'000;
  ModelProto model = ModelOfX({2}, "y");
  NodeProto& node =
      Append(*model.mutable_graph(), "Einsum", std::vector<std::string>(kMany, "x"), "y");
  AddAttr(node, "equation", proto::onnx::AttributeProto::STRING)
      .set_s(Repeated("i,", kMany - 1) + "i->i");
  EXPECT_GE(OpsOf(model), size_t{kMany});
}

TEST(OnnxHostile, SplitWithManyOutputs) {
  constexpr int kMany = 20'000;
  ModelProto model = ModelOfX({kMany}, "y0");
  NodeProto& node = Append(*model.mutable_graph(), "Split", {"x"}, "y0");
  for (int i = 1; i < kMany; ++i) node.add_output("y" + std::to_string(i));
  EXPECT_EQ(OpsOf(model), 3u);  // with feed and fetch
}

// A loop in which each turn inserts into a sequence, and has that many nodes besides.
ModelProto LoopOnSequence(int nodes) {
  ModelProto model = ModelOfX({1}, "y");
  GraphProto& graph = *model.mutable_graph();
  AddAttr(Append(graph, "Constant", {}, "n"), "value_int", proto::onnx::AttributeProto::INT)
      .set_i(1024);
  Append(graph, "SequenceEmpty", {}, "s");
  GraphProto body;
  for (const char* name : {"i", "c", "v"}) body.add_input()->set_name(name);
  for (const char* name : {"c", "w"}) body.add_output()->set_name(name);
  Append(body, "SequenceInsert", {"v", "x"}, "w");
  for (int i = 0; i < nodes; ++i) Append(body, "Identity", {"x"}, "z" + std::to_string(i));
  *AddAttr(Append(graph, "Loop", {"n", "", "s"}, "t"), "body", proto::onnx::AttributeProto::GRAPH)
       .mutable_g() = body;
  AddAttr(Append(graph, "ConcatFromSequence", {"t"}, "y"), "axis",
          proto::onnx::AttributeProto::INT);
  return model;
}

TEST(OnnxHostile, LoopsThatUnroll) {
  EXPECT_EQ(OpsOf(LoopOnSequence(0)), 3u);
  try {
    OpsOf(LoopOnSequence(100));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(
        e.message().find("bodies that are imported turn by turn become more than 65536 nodes"),
        std::string::npos)
        << e.message();
  }
}

TEST(OnnxHostile, ChainsOfInsertions) {
  ModelProto model = ModelOfX({1}, "x");
  GraphProto& graph = *model.mutable_graph();
  Append(graph, "SequenceEmpty", {}, "s0");
  for (int i = 0; i < 5000; ++i)
    Append(graph, "SequenceInsert", {"s" + std::to_string(i), "x"}, "s" + std::to_string(i + 1));
  Scope scope;
  try {
    ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("the sequences of the model have more than 8388608 elements"),
              std::string::npos)
        << e.message();
  }
}

// Calls of a function whose node has a text of a megabyte, and takes an attribute of its caller.
ModelProto CallsOfLargeFunction(int calls, bool takes_attribute) {
  ModelProto model = ModelOfX({1}, "v" + std::to_string(calls));
  FunctionProto& function = *model.add_functions();
  function.set_name("F");
  function.set_domain("mine");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("alpha");
  *function.mutable_opset_import() = model.opset_import();
  GraphProto holder;
  NodeProto& node = Append(holder, "LeakyRelu", {"a"}, "b");
  node.set_doc_string(std::string(kMegabyte, 'd'));
  if (takes_attribute)
    AddAttr(node, "alpha", proto::onnx::AttributeProto::FLOAT).set_ref_attr_name("alpha");
  *function.add_node() = node;
  for (int i = 0; i < calls; ++i) {
    const std::string from = i == 0 ? "x" : "v" + std::to_string(i);
    Append(*model.mutable_graph(), "F", {from}, "v" + std::to_string(i + 1)).set_domain("mine");
  }
  return model;
}

TEST(OnnxHostile, LargeFunctionsCalledOften) {
  EXPECT_GE(OpsOf(CallsOfLargeFunction(10'000, false)), 10'000u);
  ExpectRefusal(CallsOfLargeFunction(100, true).SerializeAsString(), ErrorCode::kResourceExhausted,
                "are more than 64 MB in all");
}

// The constants of a body are made once, however often it is imported.
TEST(OnnxHostile, ConstantsOfBodiesAreShared) {
  ModelProto model = LoopOnSequence(0);
  GraphProto& body = *model.mutable_graph()->mutable_node(2)->mutable_attribute(0)->mutable_g();
  auto& tensor = *body.add_initializer();
  tensor.set_name("k");
  tensor.set_data_type(proto::onnx::TensorProto::FLOAT);
  tensor.add_dims(1 << 16);
  tensor.set_raw_data(std::string(4 << 16, '\0'));
  Append(body, "Add", {"x", "k"}, "sum");
  body.mutable_node(0)->set_input(1, "sum");
  std::swap(*body.mutable_node(0), *body.mutable_node(1));
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = 64 * kMegabyte, .seconds = 60});
  const ScopedLimits scoped(limits);
  EXPECT_GE(OpsOf(model), 1024u);
}

TEST(OnnxHostile, IndicesOfHugeMaps) {
  ModelProto model = ModelOfX({1, 1, 4, int64_t{1} << 28}, "y");
  NodeProto& node = Append(*model.mutable_graph(), "MaxPool", {"x"}, "y");
  node.add_output("i");
  auto& kernel = AddAttr(node, "kernel_shape", proto::onnx::AttributeProto::INTS);
  auto& dilations = AddAttr(node, "dilations", proto::onnx::AttributeProto::INTS);
  for (int i = 0; i < 2; ++i) kernel.add_ints(2), dilations.add_ints(1);
  ExpectRefusal(model.SerializeAsString(), ErrorCode::kUnimplemented,
                "output Indices of 1 x 1 x 4 x 268435456 elements, which are more than 16777216");
  dilations.set_ints(0, 2);
  node.mutable_output()->RemoveLast();
  ExpectRefusal(model.SerializeAsString(), ErrorCode::kUnimplemented, "which are more than");
}

// Memory that runs out is named with the file, the node and what it was for.
TEST(OnnxHostile, OutOfMemoryNamesTheNode) {
  ModelProto model = ModelOfX({1}, "y");
  GraphProto& graph = *model.mutable_graph();
  for (int i = 0; i < 40'000; ++i) Append(graph, "Relu", {"x"}, "v" + std::to_string(i));
  Append(graph, "Relu", {"x"}, "y");
  const std::string line = Refusal(model.SerializeAsString(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(line.find("m.onnx: node 'v"), 0u) << line;
  EXPECT_NE(line.find("(Relu, opset 17): out of memory: the program of an ONNX model takes "),
            std::string::npos)
      << line;
}

TEST(OnnxHostile, SizesOfParsedMessages) {
  const auto& type = *GraphProto::descriptor();
  EXPECT_GE(ParsedSize("", type), sizeof(GraphProto));
  const std::string nodes = Repeated(Field(1, ""), 1000);
  EXPECT_GE(ParsedSize(nodes, type), 1000 * sizeof(NodeProto));
  EXPECT_LT(ParsedSize(nodes, type), 1000 * 4 * sizeof(NodeProto));
  EXPECT_GE(ParsedSize(Repeated("\x0a", 1000), type), sizeof(GraphProto));  // damaged
}
}  // namespace coracle::onnx::onnx_hostile_test
