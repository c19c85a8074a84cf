// Ops on sequences as ONNX models of one sequence a run. The results of the program on one sequence
// by LoD are compared with those of the model, read back: it holds no op on sequences.
#include <coracle/test/convert/one_sequence.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

namespace coracle::onnx_sequence_export_test {

using one_sequence::Net;

void ExpectSame(const Net& net) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("model.onnx");
  ExportOnnx(path, net.program, net.scope, {.one_sequence = true});
  Scope scope;
  const InferenceModel model = ImportOnnx(path, scope);
  model.program.ForEachOp([](const OpDesc& op) {
    EXPECT_FALSE(op.type().starts_with("sequence_")) << op.type();
    EXPECT_FALSE(op.type().starts_with("lstm")) << op.type();
    EXPECT_TRUE(op.type() != "gru" && op.type() != "lod_reset" && op.type() != "crf_decoding");
  });
  PreparedProgram read = Executor().Prepare(model.program);
  std::vector<Tensor> feeds;
  for (const std::string& name : model.feed_names) {
    Tensor plain = net.feeds.at(name).Clone();
    plain.lod() = {};
    feeds.push_back(std::move(plain));
  }
  const std::vector<Tensor> want = net.Run();
  const std::vector<Tensor>& got = read.Run(scope, feeds);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) one_sequence::ExpectNear(got[i], want[i]);
}

TEST(OnnxSequenceExport, Gru) {
  for (const Net& net : one_sequence::GruNets()) ExpectSame(net);
}

TEST(OnnxSequenceExport, Lstm) {
  for (const Net& net : one_sequence::LstmNets()) ExpectSame(net);
}

TEST(OnnxSequenceExport, LstmWithProjection) {
  for (const Net& net : one_sequence::LstmpNets()) ExpectSame(net);
}

TEST(OnnxSequenceExport, SequencesAsRowsOfABatch) {
  for (const Net& net : one_sequence::PadNets()) ExpectSame(net);
}

TEST(OnnxSequenceExport, PoolsAndContexts) {
  for (const Net& net : one_sequence::RowNets()) ExpectSame(net);
}

TEST(OnnxSequenceExport, Tags) {
  for (const Net& net : one_sequence::TagNets()) ExpectSame(net);
}

// --- refusals ---

std::string ErrorOfModel(const Net& net, const std::map<std::string, Tensor>& feeds) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("model.onnx");
  return ErrorOf([&] {
    ExportOnnx(path, net.program, net.scope, {.one_sequence = true});
    Scope scope;
    const InferenceModel model = ImportOnnx(path, scope);
    std::vector<Tensor> given;
    for (const std::string& name : model.feed_names) given.push_back(feeds.at(name));
    Executor().Prepare(model.program).Run(scope, given);
  });
}

// A model fails for what the program refuses.
TEST(OnnxSequenceExport, SequencesThatDoNotFit) {
  const std::vector<Net> nets = one_sequence::PadNets();
  const Tensor longer = one_sequence::Drawn({6, 3});
  EXPECT_EQ(ErrorOfModel(nets[0], {{"x", longer}}), "no error");
  EXPECT_NE(ErrorOfModel(nets[2], {{"x", longer}}), "no error");  // beyond padded_length 5
  EXPECT_NE(ErrorOfModel(nets[6], {{"x", longer}}), "no error");  // target_lod ends at 5
  EXPECT_NE(ErrorOfModel(nets[7], {{"x", longer}, {"y", one_sequence::Drawn({5, 2})}}), "no error");
  Net several;
  several.Data("x", {-1, 3}, 0, 5);
  several.Append("lod_reset", {{"X", {"x"}}}, {{"Out", {"z"}}},
                 {{"target_lod", std::vector<int32_t>{0, 2, 5}}});
  several.Fetch({"z"});
  const std::string line = ErrorOfModel(several, several.feeds);
  EXPECT_NE(line.find("target_lod gives several sequences"), std::string::npos) << line;
}

TEST(OnnxSequenceExport, NeedsTheOption) {
  const std::vector<Net> nets = one_sequence::GruNets();
  const Net& net = nets[0];
  const std::string line = ErrorOf([&] { ExportOnnx("unwritten.onnx", net.program, net.scope); });
  EXPECT_NE(line.find("LoD has no counterpart; --one_sequence"), std::string::npos) << line;
}

// A reshape keeps LoD only if it keeps the rows; running the program refuses the others, too.
TEST(OnnxSequenceExport, ReshapesThatMayChangeTheRows) {
  for (const int64_t width : {6, 3}) {
    Net net;
    net.Data("x", {-1, 6}, 1, 4);
    net.Append("reshape2", {{"X", {"x"}}}, {{"Out", {"r"}}},
               {{"shape", std::vector<int32_t>{-1, static_cast<int32_t>(width)}}});
    net.Append("sequence_pool", {{"X", {"r"}}}, {{"Out", {"out"}}},
               {{"pooltype", std::string("SUM")}});
    net.Fetch({"out"});
    if (width == 6) {
      ExpectSame(net);
      continue;
    }
    EXPECT_NE(ErrorOf([&] { net.Run(); }), "no error");
    const std::string line = ErrorOf(
        [&] { ExportOnnx("unwritten.onnx", net.program, net.scope, {.one_sequence = true}); });
    EXPECT_NE(line.find("X must be a sequence (one level of LoD), got 0 levels"), std::string::npos)
        << line;
  }
}

// Without rows, the result is the padding.
TEST(OnnxSequenceExport, PoolOfNoRows) {
  for (const char* type : {"MAX", "SUM", "LAST", "AVERAGE"}) {
    SCOPED_TRACE(type);
    Net net;
    net.Data("x", {-1, 2}, 1, 0);
    net.Append("sequence_pool", {{"X", {"x"}}}, {{"Out", {"out"}}},
               {{"pooltype", std::string(type)}, {"pad_value", 7.0f}});
    net.Fetch({"out"});
    ExpectSame(net);
  }
}

// Out of sequence_expand would be several sequences.
TEST(OnnxSequenceExport, RefusesSeveralSequences) {
  Net net;
  net.Data("x", {-1, 2}, 1, 3);
  net.Data("y", {-1, 2}, 1, 4);
  net.Append("sequence_expand", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}});
  net.Fetch({"out"});
  const auto error = [](const Net& one) {
    return ErrorOf(
        [&] { ExportOnnx("unwritten.onnx", one.program, one.scope, {.one_sequence = true}); });
  };
  EXPECT_NE(error(net).find("X is a sequence, and Out would be several"), std::string::npos)
      << error(net);
  Net rows;
  rows.Data("x", {-1, 2}, 0, 1);
  rows.Data("y", {-1, 2}, 1, 4);
  rows.Append("sequence_expand", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}});
  rows.Fetch({"out"});
  EXPECT_NE(error(rows).find("X must be known to have one row"), std::string::npos) << error(rows);
  Net levels;
  levels.Data("x", {-1, 2}, 2, 3);
  levels.Append("sequence_pool", {{"X", {"x"}}}, {{"Out", {"out"}}});
  levels.Fetch({"out"});
  EXPECT_NE(error(levels).find("has 2 levels of LoD"), std::string::npos) << error(levels);
}

}  // namespace coracle::onnx_sequence_export_test
