// Caffe's files and the command: an error is one line, with exit code 1.

#include <coracle/framework/base/text.h>
#include <coracle/test/lmdb_file.h>
#include <coracle/test/tools/cli.h>

namespace coracle::caffe_test {

constexpr char kNet[] = R"(
name: "small"
layer { name: "d" type: "Data" top: "data" top: "label"
  data_param { source: "rows_lmdb" batch_size: 4 backend: LMDB } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
)";
constexpr char kDeploy[] = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param { num_output: 2 } }
)";

// Fields of protobuf's format, each shorter than 128 bytes.
std::string Bytes(int field, const std::string& bytes) {
  return static_cast<char>(field << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) +
         bytes;
}
std::string Number(int field, int value) {
  return {static_cast<char>(field << 3), static_cast<char>(value)};
}

std::string Datum(int label, char gray) {
  return Number(1, 1) + Number(2, 2) + Number(3, 2) + Bytes(4, std::string(4, gray)) +
         Number(5, label);
}

std::string Blob(const std::vector<int>& dims) {
  std::string packed;
  int numel = 1;
  for (const int dim : dims) packed += static_cast<char>(dim), numel *= dim;
  // BlobProto: shape 7, data 5
  return Bytes(7, Bytes(1, packed)) + Bytes(5, std::string(static_cast<size_t>(4 * numel), 0));
}

// NetParameter: layer 100 { name 1, blobs 7 }.
std::string Weights(const std::string& layer, const std::vector<int>& dims) {
  const std::string def = Bytes(1, layer) + Bytes(7, Blob(dims)) + Bytes(7, Blob({2}));
  return std::string("\xa2\x06", 2) + static_cast<char>(def.size()) + def;
}

class CaffeCommand : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.prototxt"), kNet);
    WriteFileAtomic(Path("deploy.prototxt"), kDeploy);
    WriteSolver("");
    std::vector<std::string> rows;
    for (int i = 0; i < 16; ++i) rows.push_back(Datum(i % 2, static_cast<char>(i % 2 ? 100 : 10)));
    database_ = MakeLmdb(rows);
    MakeDirectories(Path("rows_lmdb"));
    WriteFileAtomic(Path("rows_lmdb/data.mdb"), database_);
    WriteFileAtomic(Path("w.caffemodel"), Weights("fc", {2, 4}));
  }

  void WriteSolver(const std::string& more) {
    WriteFileAtomic(Path("solver.prototxt"),
                    "net: 'net.prototxt' base_lr: 0.01 lr_policy: 'fixed'\nmax_iter: 3 " + more);
  }

  // One line of an error, code 1, and no file.
  void ExpectError(const std::string& command, const std::string& part) {
    const Result result = Shell("cd " + dir_ + " && coracle " + command + " 2>&1 >/dev/null");
    EXPECT_EQ(result.code, 1) << command << "\n" << result.text;
    const std::string line = result.text.substr(0, result.text.find('\n'));
    EXPECT_NE(line.find(part), std::string::npos) << "no '" << part << "' in\n" << result.text;
    for (const char* out : {"o.pbtxt", "o.npz", "o.pdmodel", "o.pdiparams", "output"})
      EXPECT_FALSE(FileExists(Path(out))) << command << " left " << out;
  }

  std::string database_;
};

TEST_F(CaffeCommand, ConvertsAndTrains) {
  Expect("coracle train solver.prototxt --out=run", 0, {"final: "});
  WriteSolver("weights: 'w.caffemodel'");
  Expect("coracle train solver.prototxt --out=run2", 0, {"2 of 2 variables loaded"});
  Expect("coracle convert solver.prototxt job.pbtxt && coracle train job.pbtxt --out=run3", 0,
         {"job.npz: 2 arrays", "2 of 2 variables loaded"});
  Expect("coracle convert deploy.prototxt w.caffemodel m.pdmodel && coracle dump m.pdmodel", 0,
         {"fc"});
}

TEST_F(CaffeCommand, Texts) {
  const std::string convert = "convert bad.prototxt o.pbtxt";
  const auto bad = [&](const std::string& text, const std::string& part) {
    WriteFileAtomic(Path("bad.prototxt"), text);
    ExpectError(convert, part);
  };
  bad("layer { name: 'c'\n  type: 'Convolutoin' }",
      "bad.prototxt:2:3: layer 'c' (Convolutoin): no such type of layer; did you mean "
      "Convolution?");
  bad("layer { name: 'r'\n type: 'LSTM' }", "bad.prototxt:2:2: layer 'r' (LSTM): not converted: ");
  bad("layer { name: 'c' type: 'ReLU'", "bad.prototxt:1:31: ");
  bad(std::string(kNet).substr(0, std::string(kNet).size() / 2), "bad.prototxt:");
  bad("layer { nam: 'c' }", "bad.prototxt:1:9: nam: no such field");
  bad("", "bad.prototxt: ");
  ExpectError("convert none.prototxt o.pbtxt", "none.prototxt");
}

TEST_F(CaffeCommand, WeightsFiles) {
  const std::string convert = "convert deploy.prototxt bad.caffemodel o.pdmodel";
  const auto bad = [&](const std::string& bytes, const std::string& part) {
    WriteFileAtomic(Path("bad.caffemodel"), bytes);
    ExpectError(convert, part);
  };
  bad(Weights("fc", {4, 3}), "bad.caffemodel: layer 'fc', blob 0: its shape is [4, 3], and ");
  bad(Weights("fc", {2, 4}).substr(0, 40), "bad.caffemodel: ");
  bad(Weights("fd", {2, 4}), "did you mean fd?");
  bad("", "bad.caffemodel: ");
  bad("nonsense", "bad.caffemodel: ");
  ExpectError("convert deploy.prototxt none.caffemodel o.pdmodel", "none.caffemodel");
  ExpectError("convert deploy.prototxt none.caffemodel o.pbtxt", "none.caffemodel");
  WriteFileAtomic(Path("bad.caffemodel.h5"), "\x89HDF\r\n\x1a\n and more");
  for (const char* out : {"o.pdmodel", "o.pbtxt"}) {
    ExpectError(std::string("convert deploy.prototxt bad.caffemodel.h5 ") + out,
                "bad.caffemodel.h5: HDF5 files are not read: save the weights as .caffemodel");
  }
}

TEST_F(CaffeCommand, Databases) {
  const std::string train = "train solver.prototxt";
  for (const size_t size : {size_t{0}, size_t{20}, size_t{5000}, database_.size() - 4096}) {
    WriteFileAtomic(Path("rows_lmdb/data.mdb"), database_.substr(0, size));
    ExpectError(train, "not an LMDB file, or a damaged one");
  }
  WriteFileAtomic(Path("rows_lmdb/data.mdb"), MakeLmdb({"no datum"}));
  ExpectError(train, "row 0 of lmdb 'rows_lmdb': not a Datum of Caffe, or a damaged one");
  WriteFileAtomic(Path("rows_lmdb/data.mdb"), MakeLmdb({Datum(0, 1) + Number(7, 1)}));
  ExpectError(train, "row 0 of lmdb 'rows_lmdb': it is an encoded picture");
  WriteFileAtomic(Path("rows_lmdb/data.mdb"), MakeLmdb({}));
  ExpectError(train, "lmdb 'rows_lmdb' has no rows");
  RemoveDirectory(Path("rows_lmdb"));
  ExpectError(train + " --shape=data:1x2x2", "there is no database 'rows_lmdb' here; --data_dir=");
}

TEST_F(CaffeCommand, Solvers) {
  WriteSolver("\nweights: 'none.caffemodel'");
  ExpectError("train solver.prototxt",
              "solver.prototxt:3:1: weights: file 'none.caffemodel' does not exist");
  WriteSolver("test_iter: 3");
  ExpectError("train solver.prototxt", "test_interval must be positive, got 0");
  WriteSolver("type: 'Adamm'");
  ExpectError("convert solver.prototxt o.pbtxt", "solver.prototxt:2:13: type 'Adamm': no such");
  WriteFileAtomic(Path("solver.prototxt"), "net: 'nowhere.prototxt' max_iter: 3");
  ExpectError("train solver.prototxt", "solver.prototxt:1:1: net: file 'nowhere.proto");
}
}  // namespace coracle::caffe_test
