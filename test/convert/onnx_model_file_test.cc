#include <coracle/convert/onnx/model_file.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <numeric>

namespace coracle::onnx::onnx_model_file_test {

namespace fs = std::filesystem;
using proto::onnx::ModelProto;
using proto::onnx::TensorProto;

Tensor Numbers(int64_t n, float first = 0) {
  Tensor tensor(DType::kFloat32, {n});
  std::iota(tensor.data<float>(), tensor.data<float>() + n, first);
  return tensor;
}

// y = x + w, with w in raw_data.
ModelProto AddModel() {
  ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  auto* graph = model.mutable_graph();
  graph->set_name("g");
  auto* node = graph->add_node();
  node->set_op_type("Add");
  node->add_input("x");
  node->add_input("w");
  node->add_output("y");
  graph->add_input()->set_name("x");
  graph->add_output()->set_name("y");
  FillTensorProto(Numbers(5), "w", graph->add_initializer());
  return model;
}

TensorProto* AddExternal(ModelProto& model, const std::string& name, int64_t n,
                         const std::string& location, const std::string& offset = "",
                         const std::string& length = "") {
  TensorProto* proto = model.mutable_graph()->add_initializer();
  proto->set_name(name);
  proto->set_data_type(TensorProto::FLOAT);
  proto->add_dims(n);
  proto->set_data_location(TensorProto::EXTERNAL);
  const auto set = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    auto* entry = proto->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  set("location", location);
  set("offset", offset);
  set("length", length);
  return proto;
}

std::string BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.nbytes()};
}

std::string FieldHead(int number, size_t bytes) {
  std::string head;
  google::protobuf::io::StringOutputStream stream(&head);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteTag(static_cast<uint32_t>(number) << 3 | 2);
  coded.WriteVarint32(static_cast<uint32_t>(bytes));
  coded.Trim();
  return head;
}
std::string Field(int number, const std::string& bytes) {
  return FieldHead(number, bytes.size()) + bytes;
}

class OnnxModelFileTest : public testing::Test {
 protected:
  std::string Write(const ModelProto& model) {
    const std::string path = directory_.File("model.onnx");
    WriteFileAtomic(path, model.SerializeAsString());
    return path;
  }
  std::string ErrorOfModel(const ModelProto& model) {
    const std::string path = Write(model);
    const std::string message = ErrorOf([&] { ReadOnnxModel(path); });
    EXPECT_TRUE(message == "no error" || message.starts_with(path + ": ")) << message;
    return message.substr(std::min(message.size(), path.size() + 2));
  }

  TemporaryDirectory directory_;
};

TEST_F(OnnxModelFileTest, ElementsLeaveTheMessage) {
  const ModelProto model = AddModel();
  for (const OnnxModelFile& file :
       {ReadOnnxModel(Write(model)), ParseOnnxModel(model.SerializeAsString(), "bytes")}) {
    ASSERT_EQ(file.initializers.size(), 1u);
    EXPECT_TRUE(BitEqual(file.initializers[0], Numbers(5)));
    EXPECT_EQ(file.model.graph().initializer(0).name(), "w");
    EXPECT_FALSE(file.model.graph().initializer(0).has_raw_data());
    ModelProto rest = file.model;
    rest.mutable_graph()->mutable_initializer(0)->set_raw_data(BytesOf(Numbers(5)));
    EXPECT_EQ(rest.SerializeAsString(), model.SerializeAsString());
  }
}

TEST_F(OnnxModelFileTest, ListsAndWidenedElements) {
  ModelProto model = AddModel();
  TensorProto* list = model.mutable_graph()->add_initializer();
  list->set_name("list");
  list->set_data_type(TensorProto::FLOAT);
  list->add_dims(3);
  for (int i = 0; i < 3; ++i) list->add_float_data(static_cast<float>(i));
  TensorProto* wide = model.mutable_graph()->add_initializer();
  wide->set_name("wide");
  wide->set_data_type(TensorProto::UINT16);
  wide->add_dims(2);
  wide->set_raw_data(std::string("\x01\x00\xff\xff", 4));
  const OnnxModelFile file = ParseOnnxModel(model.SerializeAsString(), "bytes");
  EXPECT_TRUE(BitEqual(file.initializers[1], Numbers(3)));
  EXPECT_EQ(file.model.graph().initializer(1).float_data_size(), 0);
  EXPECT_TRUE(BitEqual(file.initializers[2], Tensor::Of<int32_t>({2}, {1, 65535})));
}

// A message may have its fields in any order, and lists in pieces.
TEST_F(OnnxModelFileTest, FieldsInAnyOrder) {
  TensorProto type, dims, raw;
  type.set_data_type(TensorProto::FLOAT);
  dims.add_dims(5);
  raw.set_raw_data(BytesOf(Numbers(5)));
  const std::string t = type.SerializeAsString(), d = dims.SerializeAsString(),
                    r = raw.SerializeAsString();
  const auto model = [](const std::string& tensor) { return Field(7, Field(5, tensor)); };
  for (const std::string& tensor : {t + d + r, d + t + r, r + d + t, t + r + d, d + r + t}) {
    const OnnxModelFile file = ParseOnnxModel(model(tensor), "bytes");
    EXPECT_TRUE(BitEqual(file.initializers.at(0), Numbers(5)));
  }
  TensorProto head, tail;
  for (int i = 0; i < 2; ++i) head.add_float_data(static_cast<float>(i));
  for (int i = 2; i < 5; ++i) tail.add_float_data(static_cast<float>(i));
  const std::string pieces = t + d + head.SerializeAsString() + tail.SerializeAsString();
  EXPECT_TRUE(BitEqual(ParseOnnxModel(model(pieces), "bytes").initializers.at(0), Numbers(5)));
  EXPECT_EQ(ErrorOf([&] { ParseOnnxModel(model(t + d + r + d), "bytes"); }),
            "bytes: tensor '' has its elements or its dims twice");
  EXPECT_EQ(ErrorOf([&] { ParseOnnxModel(model(t + d + r + r), "bytes"); }),
            "bytes: tensor '' has its elements or its dims twice");
}

TEST_F(OnnxModelFileTest, CutOffAnywhere) {
  const std::string bytes = AddModel().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = ErrorOf([&] { ParseOnnxModel(bytes.substr(0, size), "bytes"); });
    if (message == "no error") continue;  // between two fields
    EXPECT_TRUE(message.starts_with("bytes: not an ONNX model: ")) << message;
  }
  EXPECT_EQ(ErrorOf([&] { ParseOnnxModel("", "bytes"); }),
            "bytes: not an ONNX model: it has no graph");
}

// If in If in If ...
TEST_F(OnnxModelFileTest, NestedGraphs) {
  const auto nested = [](int depth) {
    ModelProto model;
    auto* graph = model.mutable_graph();
    for (int i = 0; i < depth; ++i) graph = graph->add_node()->add_attribute()->mutable_g();
    return model.SerializeAsString();
  };
  EXPECT_EQ(ErrorOf([&] { ParseOnnxModel(nested(90), "bytes"); }), "no error");
  EXPECT_NE(ErrorOf([&] { ParseOnnxModel(nested(200), "bytes"); }).find("nested more than 300"),
            std::string::npos);
}

TEST_F(OnnxModelFileTest, ExternalData) {
  fs::create_directory(directory_.File("data"));
  WriteFileAtomic(directory_.File("data/w.bin"), BytesOf(Numbers(100)));
  ModelProto model = AddModel();
  AddExternal(model, "a", 10, "data/w.bin", "40", "40");
  AddExternal(model, "b", 100, "./data/w.bin");
  AddExternal(model, "c", 10, "data/w.bin", "40");  // shared with a
  OnnxModelFile file;
  // "b" has all of the other file name's bytes: another spelling, which is not compared.
  file = ReadOnnxModel(Write(model));
  EXPECT_TRUE(BitEqual(file.initializers[1], Numbers(10, 10)));
  EXPECT_TRUE(BitEqual(file.initializers[2], Numbers(100)));
  EXPECT_TRUE(BitEqual(file.initializers[3], Numbers(10, 10)));
  EXPECT_EQ(ErrorOf([&] { ParseOnnxModel(model.SerializeAsString(), "bytes"); }),
            "bytes: tensor 'a': external data: its elements are in the file 'data/w.bin', and this "
            "model was not read from a folder");
}

TEST_F(OnnxModelFileTest, ExternalDataThatIsNotThere) {
  WriteFileAtomic(directory_.File("w.bin"), BytesOf(Numbers(10)));
  const auto error = [&](const std::string& location, const std::string& offset = "",
                         const std::string& length = "") {
    ModelProto model;
    AddExternal(model, "a", 10, location, offset, length);
    return ErrorOfModel(model);
  };
  EXPECT_EQ(error("w.bin"), "");
  EXPECT_EQ(error("x.bin"), "tensor 'a': cannot open 'x.bin': No such file or directory");
  EXPECT_EQ(error(""), "tensor 'a': external data: it has no location");
  EXPECT_EQ(error("w.bin", "4"),
            "tensor 'a': external data: 40 bytes from 4 on do not lie in 'w.bin', which has 40");
  EXPECT_EQ(error("w.bin", "0", "36"),
            "tensor 'a': external data: its length is 36 bytes, and the elements take 40");
  EXPECT_EQ(error("w.bin", "-8"),
            "tensor 'a': external data: the offset '-8' is not a number of bytes");
  WriteFileAtomic(directory_.File("w.bin"), BytesOf(Numbers(11)));
  EXPECT_EQ(error("w.bin"),
            "tensor 'a': external data: 'w.bin' has 44 bytes, the elements take "
            "40, and no offset says which");
}

TEST_F(OnnxModelFileTest, ExternalDataOutsideOfTheFolder) {
  const TemporaryDirectory elsewhere;
  WriteFileAtomic(elsewhere.File("w.bin"), BytesOf(Numbers(10)));
  fs::create_symlink(elsewhere.path(), directory_.File("link"));
  fs::create_symlink(elsewhere.File("w.bin"), directory_.File("w.bin"));
  fs::create_directory(directory_.File("folder"));
  const auto error = [&](const std::string& location) {
    ModelProto model;
    AddExternal(model, "a", 10, location);
    return ErrorOfModel(model);
  };
  EXPECT_NE(error(elsewhere.File("w.bin")).find("only paths that begin in"), std::string::npos);
  EXPECT_NE(error("../w.bin").find("may lead out of"), std::string::npos);
  EXPECT_NE(error("folder/../../w.bin").find("may lead out of"), std::string::npos);
  EXPECT_NE(error("w.bin").find("is a symbolic link"), std::string::npos);
  EXPECT_NE(error("link/w.bin").find("is a symbolic link"), std::string::npos);
  EXPECT_NE(error("folder").find("not a regular file"), std::string::npos);
  EXPECT_NE(error("folder/").find("is not a file"), std::string::npos);
  EXPECT_NE(error(std::string("w.bin\0x", 7)).find("is not a file"), std::string::npos);
  ASSERT_EQ(::mkfifo(directory_.File("pipe").c_str(), 0600), 0);
  EXPECT_NE(error("pipe").find("not a regular file"), std::string::npos);
}

TEST_F(OnnxModelFileTest, ExternalDataThatOverlaps) {
  WriteFileAtomic(directory_.File("w.bin"), BytesOf(Numbers(30)));
  ModelProto model;
  AddExternal(model, "a", 10, "w.bin", "0", "40");
  AddExternal(model, "b", 10, "w.bin", "40", "40");
  AddExternal(model, "c", 10, "w.bin", "40", "40");
  EXPECT_EQ(ErrorOfModel(model), "");
  AddExternal(model, "d", 10, "w.bin", "76");
  EXPECT_EQ(ErrorOfModel(model),
            "external data: in 'w.bin', 40 bytes from 40 on and 40 bytes from 76 on overlap");
}

// A model of weights alone, `tensors` of 16 MiB each; nothing as large is in memory meanwhile.
void WriteLargeModel(const std::string& path, int tensors) {
  const Tensor weights = Numbers(int64_t{1} << 22);
  TensorProto proto;
  FillTensorProto(weights, "w", &proto);
  const std::string tensor = Field(5, proto.SerializeAsString());
  WriteFileInPieces(path, [&](const WritePieceFn& write) {
    write(FieldHead(7, tensor.size() * static_cast<size_t>(tensors)));
    for (int i = 0; i < tensors; ++i) write(tensor);
  });
}

int64_t PeakKilobytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_F(OnnxModelFileTest, WeightsAreInMemoryOnce) {
  constexpr int kTensors = 8;
  const std::string path = directory_.File("large.onnx");
  WriteLargeModel(path, kTensors);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int64_t before = PeakKilobytes();
    const OnnxModelFile file = ReadOnnxModel(path);
    const double weights = kTensors * 16.0 * 1024;
    const bool once = static_cast<double>(PeakKilobytes() - before) < 1.1 * weights + 4096;
    ::_exit(once && file.initializers.size() == kTensors ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the peak is higher than the weights";
}

double SecondsToRead(int nodes) {
  ModelProto model;
  for (int i = 0; i < nodes; ++i) {
    auto* node = model.mutable_graph()->add_node();
    node->set_op_type("Relu");
    node->add_input("x" + std::to_string(i));
    node->add_output("x" + std::to_string(i + 1));
  }
  const std::string bytes = model.SerializeAsString();
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const std::clock_t start = std::clock();  // of the processor: others may use it too
    const OnnxModelFile file = ParseOnnxModel(bytes, "bytes");
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    EXPECT_EQ(file.model.graph().node_size(), nodes);
  }
  return best;
}

TEST_F(OnnxModelFileTest, TimeIsLinear) {
  const double small = SecondsToRead(10000), large = SecondsToRead(100000);
  EXPECT_LT(large, 40 * small) << "seconds for 100,000 nodes";
}
}  // namespace coracle::onnx::onnx_model_file_test
