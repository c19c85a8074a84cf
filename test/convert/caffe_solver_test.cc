// Solvers of Caffe as jobs: rates and settings by the formulas of Caffe's sgd_solver.cpp, and two
// jobs that train.

#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/test/error_of.h>
#include <coracle/test/lmdb_file.h>
#include <coracle/test/test_data.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::caffe::caffe_solver_test {

constexpr char kNet[] =
    " net_param { name: 'n' "
    "layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { source: 'mnist' "
    "batch_size: "
    "4 } } "
    "layer { name: 'f' type: 'InnerProduct' bottom: 'data' top: 'f' inner_product_param { "
    "num_output: 10 weight_filler { type: 'xavier' } } } "
    "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'l' } } ";

ImportedJob Import(const std::string& solver) {
  TemporaryDirectory directory;
  const std::string path = directory.File("s.prototxt");
  WriteFileAtomic(path, solver + kNet);
  return ImportSolver(path, {}, "");
}

JobConfig Job(const std::string& solver) { return ParseJobText(Import(solver).text, "job"); }

double RateAt(const std::string& policy, int64_t t) {
  const JobConfig job = Job("base_lr: 0.01 max_iter: 1000 " + policy);
  const OptimizerConfig& optimizer = job.training.optimizers.at(0);
  return optimizer.schedule ? optimizer.schedule->At(t) : 0.01;
}

TEST(CaffeSolver, LearningRatesAreThoseOfTheSpec) {
  const auto near = [](double got, double want) { EXPECT_NEAR(got, want, want * 1e-6 + 1e-12); };
  near(RateAt("lr_policy: 'fixed'", 500), 0.01);
  near(RateAt("lr_policy: 'step' gamma: 0.1 stepsize: 100", 99), 0.01);
  near(RateAt("lr_policy: 'step' gamma: 0.1 stepsize: 100", 200), 1e-4);
  near(RateAt("lr_policy: 'exp' gamma: 0.999", 1000), .00367695425);
  near(RateAt("lr_policy: 'inv' gamma: 0.0001 power: 0.75", 100), .00992565029);
  near(RateAt("lr_policy: 'inv' gamma: 0.0001 power: 0.75", 1000), .00931012445);
  near(RateAt("lr_policy: 'poly' power: 0.75", 500), .00594603558);
  near(RateAt("lr_policy: 'sigmoid' gamma: 0.05 stepsize: 100", 0), 6.69285092e-5);
  near(RateAt("lr_policy: 'sigmoid' gamma: 0.05 stepsize: 100", 200), .00993307149);
  const std::string steps =
      "lr_policy: 'multistep' gamma: 0.1 stepvalue: 50 stepvalue: 150 stepvalue: 300";
  near(RateAt(steps, 49), 0.01);
  near(RateAt(steps, 50), 1e-3);
  near(RateAt(steps, 300), 1e-5);
}

bool Says(const std::string& solver, const std::string& part) {
  const std::string text = Import("max_iter: 9 lr_policy: 'fixed' base_lr: 0.5 " + solver).text;
  const bool says = text.find(part) != std::string::npos;
  if (!says) ADD_FAILURE() << part << " is not in\n" << text;
  return says;
}

TEST(CaffeSolver, TypesAndSettings) {
  EXPECT_TRUE(Says("momentum: 0.9",
                   "  momentum { learning_rate: 0.5 momentum: 0.9 "
                   "velocity_holds_rate: true }\n"));
  EXPECT_TRUE(Says("", "  sgd { learning_rate: 0.5 }\n"));
  EXPECT_TRUE(Says("type: 'Nesterov' momentum: 0.9", "use_nesterov: true"));
  EXPECT_TRUE(
      Says("solver_type: ADAGRAD delta: 0.1", "adagrad { learning_rate: 0.5 epsilon: 0.1 }"));
  EXPECT_TRUE(Says("type: 'RMSProp' rms_decay: 0.95",
                   "decayed_adagrad { learning_rate: 0.5 decay: 0.95 epsilon: 1e-08 }"));
  EXPECT_TRUE(Says("type: 'AdaDelta' momentum: 0.95",
                   "adadelta { learning_rate: 0.5 rho: 0.95 epsilon: 1e-08 }"));
  EXPECT_TRUE(Says("type: 'Adam' momentum: 0.9",
                   "adam { learning_rate: 0.5 beta1: 0.9 beta2: 0.999 epsilon: 1e-08 "
                   "use_epsilon_hat: true }"));
  EXPECT_TRUE(Says("weight_decay: 0.25 regularization_type: 'L1'", "l1_decay { coeff: 0.25 }"));
  EXPECT_TRUE(Says("clip_gradients: 3 iter_size: 2",
                   "gradient_clip { by_global_norm { clip_norm: 3 } }\n}\niter_size: 2\n"
                   "clip_before_average: true\n"));
  EXPECT_TRUE(Says("test_iter: 7 test_interval: 5",
                   "test_iter: 7\ntest_interval: 5\ninitial_test: true\n"));
  EXPECT_TRUE(Says("snapshot: 3 snapshot_prefix: 'a/b/net' random_seed: 5", "name: \"net\"\n"));
  // A name becomes a directory.
  for (const char* prefix : {"..", ".", "a/..", "a/", ""})
    EXPECT_TRUE(Says(fmt::format("snapshot_prefix: '{}'", prefix), "name: \"s\"\n")) << prefix;
  EXPECT_TRUE(Says("snapshot: 3 random_seed: 5",
                   "snapshot_interval: 3\nkeep_snapshots: 0\n"
                   "random_seed: 5\n"));
  EXPECT_TRUE(Says("", "leveldb { file: \"mnist\" }"));
}

TEST(CaffeSolver, MistakesAreNamedWithTheirPlace) {
  const auto error = [](const std::string& solver) {
    const std::string text = ErrorOf([&] { Import(solver); });
    return text.substr(text.find("s.prototxt") == std::string::npos ? 0 : text.find("s.prototxt"));
  };
  EXPECT_EQ(error("base_lr: 1 max_iter: 2 lr_policy: 'stepp'").substr(0, 73),
            "s.prototxt:1:24: lr_policy 'stepp': no such policy; did you mean step?");
  EXPECT_NE(error("base_lr: 1 lr_policy: 'fixed'").find("max_iter must be positive"),
            std::string::npos);
  EXPECT_NE(
      error("base_lr: 1 max_iter: 2 lr_policy: 'fixed' type: 'Adamm'").find("did you mean Adam?"),
      std::string::npos);
  EXPECT_NE(error("base_lr: 1 max_iter: 2 lr_policy: 'fixed' type: 'AdaGrad' momentum: 0.9")
                .find("momentum must be 0 for the type AdaGrad, got 0.9"),
            std::string::npos);
  EXPECT_NE(error("baselr: 1")
                .find("1:1: baselr: no such field in Caffe's SolverParameter; did you "
                      "mean base_lr?"),
            std::string::npos)
      << error("baselr: 1");
  EXPECT_NE(error("base_lr: 1 max_iter: 2 net: 'nowhere.prototxt'").find("one net for training"),
            std::string::npos);
}

TEST(CaffeSolver, TestStatesBecomeTestSets) {
  const std::string net = R"(
    net_param {
      layer { name: 'd' type: 'Data' top: 'x' top: 'y' include { phase: TRAIN }
              data_param { source: 'mnist_a' batch_size: 10 backend: LMDB } }
      layer { name: 'd' type: 'Data' top: 'x' top: 'y' include { phase: TEST stage: 'on-train' }
              data_param { source: 'mnist_a' batch_size: 20 backend: LMDB } }
      layer { name: 'd' type: 'Data' top: 'x' top: 'y' include { phase: TEST stage: 'on-test' }
              data_param { source: 'mnist_b' batch_size: 30 backend: LMDB } }
      layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' inner_product_param {
              num_output: 10 } }
      layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: 'l' }
      layer { name: 'a' type: 'Accuracy' bottom: 'f' bottom: 'y' top: 'a'
              include { phase: TEST stage: 'on-test' } }
    })";
  const std::string solver =
      "base_lr: 1 max_iter: 2 lr_policy: 'fixed' test_interval: 1 "
      "test_iter: 5 test_iter: 7 test_state { stage: 'on-train' } test_state { stage: 'on-test' }";
  const ImportedJob imported = ImportSolverText(solver + net, "s.prototxt", {}, "");
  const JobConfig job = ParseJobText(imported.text, "job");
  EXPECT_TRUE(job.test.empty());
  ASSERT_EQ(job.test_sets.size(), 2u) << imported.text;
  EXPECT_EQ(job.test_sets[0].name, "on-train");
  EXPECT_EQ(job.test_sets[0].batch_size, 20);
  EXPECT_EQ(job.test_sets[0].iterations, 5);
  EXPECT_EQ(std::get<DatumOptions>(job.test_sets[1].data.source).file, "mnist_b");
  EXPECT_EQ(job.test_sets[1].stages, std::vector<std::string>{"on-test"});
  const auto has_accuracy = [&](bool train, const std::vector<std::string>& stages) {
    ModelState state;
    state.train = train;
    state.stages = stages;
    const BuiltModel model = ParseModelText(job.model_text, "m", ".", DefaultOps(), state);
    EXPECT_NE(model.main.Root().FindVar("l"), nullptr);
    return model.main.Root().FindVar("a") != nullptr;
  };
  EXPECT_FALSE(has_accuracy(true, {}));
  EXPECT_FALSE(has_accuracy(false, {"on-train"}));
  EXPECT_TRUE(has_accuracy(false, {"on-test"}));
  const std::string one_state = solver.substr(0, solver.rfind(" test_state"));
  EXPECT_EQ(ErrorOf([&] { ImportSolverText(one_state + net, "s.prototxt", {}, ""); }).substr(0, 85),
            "s.prototxt:1:86: test_state must be given for each of 2 test nets or for none, got 1");
}

// Test nets of their own, each with its test_iter; what all have in common has no stage.
TEST(CaffeSolver, SeveralTestNets) {
  const std::string layers =
      "layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' inner_product_param { "
      "num_output: 10 } } layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: "
      "'l' } } ";
  const auto net = [&](const std::string& field, const std::string& source) {
    return field + " { layer { name: 'd' type: 'Data' top: 'x' top: 'y' data_param { source: '" +
           source + "' batch_size: 4 } } " + layers;
  };
  const std::string solver = "base_lr: 1 max_iter: 2 lr_policy: 'fixed' test_interval: 1 " +
                             net("train_net_param", "mnist_0") + net("test_net_param", "mnist_1") +
                             net("test_net_param", "mnist_2");
  const JobConfig job = ParseJobText(
      ImportSolverText(solver + "test_iter: 1 test_iter: 2", "s.prototxt", {}, "").text, "job");
  ASSERT_EQ(job.test_sets.size(), 2u);
  EXPECT_EQ(job.test_sets[0].name, "test_0");
  EXPECT_EQ(std::get<DatumOptions>(job.test_sets[1].data.source).file, "mnist_2");
  EXPECT_EQ(job.model_text.find("include_if { phase: TEST stage: \"test_0\" }"), std::string::npos)
      << job.model_text;
  EXPECT_EQ(ErrorOf([&] {
              ImportSolverText(solver + "test_iter: 1", "s.prototxt", {}, "");
            }).find("test_iter must be given once for each test net, got 1 for 2"),
            std::string("s.prototxt:1:").size() + std::to_string(solver.size() + 1).size() +
                std::string(": ").size());
}

TEST(CaffeSolver, TrainStateIsOfTrainingAlone) {
  const std::string net =
      " net_param { layer { name: 'd' type: 'Data' top: 'x' top: 'y' data_param { source: 'mnist' "
      "batch_size: 4 } } layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' "
      "inner_product_param { num_output: 10 } } layer { name: 'n' type: 'Dropout' bottom: 'f' top: "
      "'f' include { stage: 'noisy' } } layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' "
      "bottom: 'y' top: 'l' } }";
  const ImportedJob job = ImportSolverText(
      "base_lr: 1 max_iter: 2 lr_policy: 'fixed' test_interval: 1 test_iter: 1 "
      "train_state { stage: 'noisy' }" +
          net,
      "s.prototxt", {}, "");
  const auto has_dropout = [&](bool train) {
    ModelState state;
    state.train = train;
    const BuiltModel model = ParseModelText(job.net.text, "m", ".", DefaultOps(), state);
    const BlockDesc& root = model.main.Root();
    bool found = false;
    for (size_t i = 0; i < root.NumOps(); ++i) found |= root.op(i).type() == "dropout";
    return found;
  };
  EXPECT_TRUE(has_dropout(true));
  EXPECT_FALSE(has_dropout(false));
}

// Images have the database's size, and weights are read by the layers' names.
TEST(CaffeSolver, TrainsOnADatabaseFromWeights) {
  TemporaryDirectory directory;
  std::vector<std::string> rows;
  for (int i = 0; i < 40; ++i) {
    proto::caffe::Datum datum;
    datum.set_channels(2);
    datum.set_height(3);
    datum.set_width(3);
    datum.set_label(i % 2);
    datum.set_data(std::string(18, static_cast<char>(i % 2 == 0 ? 20 + i : 200 - i)));
    rows.push_back(datum.SerializeAsString());
  }
  WriteFileAtomic(directory.File("data.mdb"), MakeLmdb(rows));
  proto::caffe::NetParameter start;
  auto* fc = start.add_layer();
  fc->set_name("f");
  for (const int64_t size : {36, 2}) {
    auto* blob = fc->add_blobs();
    if (size == 36) blob->mutable_shape()->add_dim(2);
    blob->mutable_shape()->add_dim(size == 36 ? 18 : 2);
    for (int64_t i = 0; i < size; ++i) blob->add_data(size == 36 ? 0.f : static_cast<float>(i) * 3);
  }
  WriteFileAtomic(directory.File("start.caffemodel"), start.SerializeAsString());
  const std::string solver =
      "base_lr: 0.5 max_iter: 30 lr_policy: 'fixed' test_iter: 4 test_interval: 30 "
      "weights: 'start.caffemodel' "
      "net_param { layer { name: 'd' type: 'Data' top: 'x' top: 'y' "
      "data_param { source: '" +
      directory.path() +
      "' batch_size: 10 } "
      "transform_param { scale: 0.00390625 mean_value: 110 } } "
      "layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' "
      "inner_product_param { num_output: 2 } } "
      "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: 'l' } "
      "layer { name: 'a' type: 'Accuracy' bottom: 'f' bottom: 'y' top: 'a' "
      "include { phase: TEST } } }";
  const ImportedJob imported =
      ImportSolverText(solver, directory.File("s.prototxt"), {}, "start.npz");
  EXPECT_TRUE(imported.missing.empty());
  EXPECT_NE(imported.text.find("transform { mean_value: 110 scale: 0.00390625 }"),
            std::string::npos)
      << imported.text;
  EXPECT_NE(imported.text.find("weights { file: \"start.npz\" }"), std::string::npos);
  EXPECT_NE(imported.net.text.find("shape: [-1, 2, 3, 3]"), std::string::npos);
  ASSERT_EQ(imported.weights, std::vector<std::string>{directory.File("start.caffemodel")});
  std::vector<std::string> missing, notes;
  WriteNpz(StartValues(imported.net, imported.weights, &missing, &notes),
           directory.File("start.npz"));
  EXPECT_TRUE(missing.empty() && notes.empty());
  JobConfig job = ParseJobText(imported.text, directory.File("job.pbtxt"), directory.path());
  job.output_dir = "";
  job.snapshot_dir = "";
  double first = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == 1) first = report.loss;
  };
  const TrainResult result = RunJob(job, {}, callbacks);
  // Scores of 0 and 3: half of the rows cost log(1 + e^3), half log(1 + e^-3).
  EXPECT_NEAR(first, (std::log1p(std::exp(3)) + std::log1p(std::exp(-3))) / 2, 1e-4);
  EXPECT_LT(result.loss, 0.1);
  EXPECT_NE(ErrorOf([&] {
              ImportSolverText("weights: 'no.caffemodel' " + solver, directory.File("s.prototxt"),
                               {}, "");
            }).find("s.prototxt:1:1: weights: file 'no.caffemodel' does not exist"),
            std::string::npos);
}

// Images of a colour that their class decides, with noise.
void WriteDrawnCifar(const std::string& path, int64_t rows) {
  Tensor data(DType::kFloat32, {rows, 3, 32, 32}), label(DType::kInt64, {rows, 1});
  uint32_t state = 7;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t k = i % 10;
    label.data<int64_t>()[i] = k;
    for (int64_t j = 0; j < 3072; ++j) {
      state = state * 1664525u + 1013904223u;
      const float noise = static_cast<float>(state >> 24) / 8;
      const float base = static_cast<float>((k * (j / 1024 + 1) * 37) % 200);
      data.data<float>()[i * 3072 + j] = base + noise;
    }
  }
  WriteNpz({{"data", data}, {"label", label}}, path);
}

TEST(CaffeSolver, CifarQuickTrainsOnDrawnImages) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "no shared data";
  TemporaryDirectory directory;
  WriteDrawnCifar(directory.File("train.npz"), 400);
  WriteDrawnCifar(directory.File("test.npz"), 100);
  proto::caffe::BlobProto mean;  // the solver's mean_file, which is looked for in data_dir too
  for (int i = 0; i < 3072; ++i) mean.add_data(112);
  WriteFileAtomic(directory.File("mean.binaryproto"), mean.SerializeAsString());
  ImportOptions options;
  options.data_dir = directory.path();
  const ImportedJob imported =
      ImportSolver(data + "/caffe/cifar10_cifar10_quick_solver.prototxt", options, "");
  const std::string& text = imported.text;
  JobConfig job = ParseJobText(text, "job");
  job.max_iter = 15;  // from the 23rd step on the rate is too large for these images
  job.test_iterations = 1;
  job.output_dir = "";
  job.snapshot_dir = "";
  double first = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == 1) first = report.loss;
  };
  const TrainResult result = RunJob(job, {}, callbacks);
  EXPECT_NEAR(first, std::log(10), 0.1);
  EXPECT_LT(result.loss, first - 0.05);
}
}  // namespace coracle::caffe::caffe_solver_test
