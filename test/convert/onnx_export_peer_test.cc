// Exported models before other readers: the checker of the package onnx, and ONNX Runtime. For
// development: $CORACLE_ORT is a folder node_modules with onnxruntime-node, $CORACLE_ONNX_PYTHON a
// Python that has the package onnx; without them the tests are skipped.
#include <coracle/bench/workloads/networks.h>
#include <coracle/bench/workloads/workload.h>
#include <coracle/convert/models.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/real_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

namespace coracle::onnx_export_peer_test {

namespace fs = std::filesystem;

std::string Peer(const char* file) {
  return std::string(std::getenv("CORACLE_SOURCE_DIR")) + "/test/convert/peer/" + file;
}

// The program exported to a folder, and its results.
struct Case {
  std::string folder;
  std::vector<Tensor> want;
  double own = 0;  // how far the program's results are from those of the reference kernels
};

void WriteInputs(const std::string& folder, const std::map<std::string, Tensor>& feeds) {
  std::string names;
  size_t i = 0;
  for (const auto& [name, value] : feeds) {
    WriteNpy(value, fmt::format("{}/in_{}.npy", folder, i++));
    names += name + "\n";
  }
  WriteFileAtomic(folder + "/inputs.txt", names);
}

std::vector<Tensor> RunProgram(const ProgramDesc& program, const Scope& scope,
                               const std::map<std::string, Tensor>& feeds,
                               const std::vector<std::string>& fetches,
                               KernelMode kernels = KernelMode::kAuto) {
  CompileOptions options;
  options.kernels = kernels;
  ProgramDesc bare = program;
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (const auto& [name, value] : feeds) {
    names.push_back(name);
    values.push_back(value);
  }
  Scope own = scope.Clone();
  std::vector<Tensor> results;
  if (program.Root().NumOps() > 0 && program.Root().op(0).type() == "feed") {
    PreparedProgram net = Executor(options).PrepareOwning(bare, own);
    std::vector<Tensor> in_order;
    for (const std::string& name : FeedNames(program)) in_order.push_back(feeds.at(name));
    for (const Tensor& t : net.Run(own, in_order)) results.push_back(t.Clone());
  } else {
    PreparedProgram net = Executor(options).Prepare(bare, names, fetches);
    for (const Tensor& t : net.Run(own, values)) results.push_back(t.Clone());
  }
  return results;
}

// The largest difference, divided by the largest |want|.
double Difference(const Tensor& want, const Tensor& got) {
  const Tensor a = want.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  return difference == 0 ? 0 : difference / std::max(largest, 1e-30);
}

Case Export(const std::string& folder, const ProgramDesc& program, const Scope& scope,
            const std::map<std::string, Tensor>& feeds, const std::vector<std::string>& fetches,
            const OnnxExportOptions& options = {}) {
  MakeDirectories(folder);
  ExportOnnx(folder + "/model.onnx", program, scope, options);
  WriteInputs(folder, feeds);
  Case c{folder, RunProgram(program, scope, feeds, fetches)};
  const auto reference = RunProgram(program, scope, feeds, fetches, KernelMode::kReference);
  for (size_t i = 0; i < c.want.size(); ++i)
    c.own = std::max(c.own, Difference(c.want[i], reference[i]));
  return c;
}

// Why ONNX Runtime's results are others; "" if they are the same to `tolerance`.
std::string Compare(const Case& c, double tolerance, double* worst) {
  if (FileExists(c.folder + "/error.txt")) return ReadFile(c.folder + "/error.txt");
  for (size_t i = 0; i < c.want.size(); ++i) {
    const Tensor got = ReadNpy(fmt::format("{}/out_{}.npy", c.folder, i));
    if (got.dtype() != c.want[i].dtype() || got.shape() != c.want[i].shape())
      return fmt::format("output {}: {} for {}", i, got.ToString(), c.want[i].ToString());
    const double difference = Difference(c.want[i], got);
    *worst = std::max(*worst, difference);
    if (!(difference <= tolerance)) return fmt::format("output {}: differs by {}", i, difference);
  }
  return "";
}

void RunPeers(const std::vector<Case>& cases) {
  const char* modules = std::getenv("CORACLE_ORT");
  for (size_t begin = 0; begin < cases.size(); begin += 200) {
    std::string folders;
    for (size_t i = begin; i < std::min(cases.size(), begin + 200); ++i)
      folders += " " + cases[i].folder;
    const std::string run = fmt::format("node {} {}{}", Peer("ort_run.js"), modules, folders);
    ASSERT_EQ(std::system(run.c_str()), 0);
  }
}

// The checker's report on all models.
std::string Check(const std::vector<Case>& cases, const std::string& folder) {
  const char* python = std::getenv("CORACLE_ONNX_PYTHON");
  std::string models;
  for (const Case& c : cases) models += " " + c.folder + "/model.onnx";
  const std::string out = folder + "/check.txt";
  const std::string run =
      fmt::format("{} {}{} > {} 2>&1", python, Peer("check_model.py"), models, out);
  return std::system(run.c_str()) == 0 ? "" : ReadFile(out);
}

class OnnxExportPeer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("CORACLE_ORT")) GTEST_SKIP() << "no $CORACLE_ORT (node_modules)";
    if (!std::getenv("CORACLE_ONNX_PYTHON")) GTEST_SKIP() << "no $CORACLE_ONNX_PYTHON";
  }
  void CheckAll(const std::vector<Case>& cases, double tolerance) {
    RunPeers(cases);
    for (const Case& c : cases) {
      double worst = 0;
      const std::string wrong = Compare(c, tolerance, &worst);
      fmt::print("{:40} {}, own kernels {:.1e}\n", fs::path(c.folder).filename().string(),
                 wrong.empty() ? fmt::format("{:.1e}", worst) : wrong, c.own);
      EXPECT_EQ(wrong, "") << c.folder;
    }
    EXPECT_EQ(Check(cases, directory_.path()), "");
  }
  std::string Folder(const std::string& name) {
    const char* kept = std::getenv("CORACLE_PEER_KEEP");
    return (kept ? std::string(kept) : directory_.path()) + "/" + name;
  }
  TemporaryDirectory directory_;
};

TEST_F(OnnxExportPeer, RealModels) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "no test data";
  std::vector<Case> cases;
  ForEachModel(96, [&](DrawnModel& model) {
    const std::string name = fs::path(model.path).parent_path().filename().string();
    // Its own weights find no text in what is drawn, and probabilities of 1e-9 are 0 elsewhere.
    if (name == "ch_PP-OCRv3_det")
      model.feeds["x"] = ReadNpy(TestDataDirectory() + "/paddle/golden/det_in.npy");
    // Its drawn weights make the results depend on every rounding, as they are.
    if (name == "korean_PP-OCRv4_rec") {
      for (const std::string& parameter : PersistableNames(model.program)) {
        Tensor& value = model.scope.GetMutable(parameter);
        if (value.shape().rank() < 2) continue;
        for (float& v : value.span<float>()) v *= 0.7f;
      }
    }
    try {
      cases.push_back(Export(Folder(name), model.program, model.scope, model.feeds, model.fetches));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  });
  CheckAll(cases, 1e-4);
}

// A network as it is saved.
struct Network {
  InferenceModel model;
  Scope scope;
  std::map<std::string, Tensor> feeds;
};

// Two layers of LSTM between an embedding and a classifier of words.
Network LstmNetwork(const std::string& folder) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable logits = LstmLanguageModel(net, net.Data("x", {35, -1}, DType::kInt64));
  Scope scope;
  Executor().Run(startup, scope);
  Tensor ids(DType::kInt64, {35, 4});
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data<int64_t>()[i] = i * 7919 % 10000;
  MakeDirectories(folder);
  SaveInferenceModel(folder + "/saved", {"x"}, {logits.name()}, main, scope);
  Network network;
  network.model = LoadInferenceModel(folder + "/saved", network.scope);
  network.feeds = {{"x", ids}};
  return network;
}

// Calls f(name, network) for the networks of model_bench and for the LSTM; they are saved
// in `folder`.
template <class F>
void ForEachNetwork(const std::string& folder, const F& f) {
  for (const std::string& name : WorkloadNames("infer")) {
    const auto w = MakeWorkload({.kind = "infer", .name = name, .batch = 2});
    w->Fill();
    Network network;
    for (size_t i = 0; i < w->feeds.size(); ++i) network.feeds[w->feeds[i]] = w->batches[0][i];
    const std::string prefix = folder + "/" + name + "/saved";
    MakeDirectories(folder + "/" + name);
    SaveInferenceModel(prefix, w->feeds, w->fetches, w->main, w->scope);
    network.model = LoadInferenceModel(prefix, network.scope);
    f(name, network);
  }
  f("lstm", LstmNetwork(folder + "/lstm"));
}

TEST_F(OnnxExportPeer, Networks) {
  std::vector<Case> cases;
  ForEachNetwork(Folder(""), [&](const std::string& name, const Network& network) {
    cases.push_back(Export(Folder(name), network.model.program, network.scope, network.feeds,
                           network.model.fetch_names));
  });
  CheckAll(cases, 1e-4);
}

// Without peers: what is imported again computes the same.
TEST(OnnxReimport, Networks) {
  const TemporaryDirectory directory;
  ForEachNetwork(directory.path(), [&](const std::string& name, const Network& network) {
    const std::string file = directory.File(name + ".onnx");
    ExportOnnx(file, network.model.program, network.scope);
    Scope scope;
    const InferenceModel again = ImportOnnx(file, scope);
    const auto want = RunProgram(network.model.program, network.scope, network.feeds, {});
    const auto got = RunProgram(again.program, scope, network.feeds, {});
    ASSERT_EQ(want.size(), got.size());
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, Difference(want[i], got[i]));
    fmt::print("{:40} {:.1e}\n", name, worst);
    EXPECT_LE(worst, 1e-4) << name;
  });
}
}  // namespace coracle::onnx_export_peer_test
