// Solvers of Caffe as jobs that run, against what Caffe computes of the same few rows.

#include <coracle/convert/caffe/import.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace coracle::caffe::caffe_job_test {

Tensor Numbers(const Shape& shape, const std::vector<float>& values) {
  Tensor tensor(DType::kFloat32, shape);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

std::string Data(const std::string& top, int batch, const std::string& rule = "") {
  return fmt::format(
      "layer {{ name: 'd' type: 'HDF5Data' top: 'x' top: '{}' hdf5_data_param {{ source: 'l' "
      "batch_size: {} }} {} }} ",
      top, batch, rule);
}

std::string Fc(const std::string& name, const std::string& bottom, int size, double start,
               const std::string& more = "") {
  return fmt::format(
      "layer {{ name: '{0}' type: 'InnerProduct' bottom: '{1}' top: '{0}' inner_product_param {{ "
      "num_output: {2} bias_term: false weight_filler {{ value: {3} }} }} {4} }} ",
      name, bottom, size, start, more);
}

constexpr char kLoss[] =
    "layer { name: 'l' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' } ";

struct Ran {
  std::vector<double> losses;
  std::map<std::string, std::vector<NamedValue>> tests;  // the last of each set
  TrainResult result;
};

// Runs the job without snapshots; files go to the directory.
Ran RunIn(const std::string& directory, JobConfig job) {
  job.output_dir = directory + "/out";
  job.snapshot_dir = "";
  Ran ran;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { ran.losses.push_back(report.loss); };
  callbacks.on_eval = [&](const EvalReport& report) { ran.tests[report.set] = report.values; };
  ran.result = RunJob(job, {}, callbacks);
  return ran;
}

// Rows x = 1, 2, 3, t = 2, 2, -1.
class SmallJob {
 public:
  SmallJob() { rows_ = {{"x", Numbers({3, 1}, {1, 2, 3})}, {"t", Numbers({3, 1}, {2, 2, -1})}}; }

  ImportedJob Import(const std::string& solver, const std::string& net) {
    WriteNpz(rows_, directory_.File("rows.npz"));
    ImportOptions options;
    options.shapes = {{"x", {1}}, {"t", {1}}};
    for (const char* part : {"train", "test"}) options.data[part] = directory_.File("rows.npz");
    const std::string rate = solver.find("base_lr") == std::string::npos ? "base_lr: 0 " : "";
    return ImportSolverText(
        rate + "lr_policy: 'fixed' max_iter: 1 display: 1 " + solver + " net_param { " + net + " }",
        directory_.File("s.prototxt"), options, "");
  }

  Ran Run(const std::string& solver, const std::string& net) {
    return RunIn(directory(), ParseJobText(Import(solver, net).text, "job"));
  }

  const std::string& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  NamedTensors rows_;
};

// A part of the objective may be called `loss`.
TEST(CaffeJob, APartOfTheObjectiveIsCalledLoss) {
  const Ran ran = SmallJob().Run(
      "", Data("t", 3) + Fc("y", "x", 1, 1) + kLoss +
              "layer { name: 's' type: 'Power' bottom: 'y' top: 's' power_param { power: 2 } "
              "loss_weight: 0.5 }");
  // ((1 - 2)^2 + 0 + (3 + 1)^2) / 6 and 0.5 (1 + 4 + 9)
  ASSERT_EQ(ran.losses.size(), 1u);
  EXPECT_NEAR(ran.losses[0], 17. / 6 + 7, 1e-5);
}

// The first layer is not trained, but a later layer is.
TEST(CaffeJob, PropagateDownStopsTheGradient) {
  Ran ran = SmallJob().Run("base_lr: 0.1", Data("t", 3) + Fc("h", "x", 1, 1) +
                                               Fc("y", "h", 1, 1, "propagate_down: false") + kLoss);
  EXPECT_EQ(ran.result.scope.Get("h.w_0").data<float>()[0], 1.f);
  // 1 - 0.1 ((1 - 2) + 0 + 4 * 3) / 3
  EXPECT_NEAR(ran.result.scope.Get("y.w_0").data<float>()[0], 1 - 1.1 / 3, 1e-6);
}

// Tests whose nets differ; what is one number is shown.
TEST(CaffeJob, TestsWithNetsOfTheirOwn) {
  SmallJob small;
  const Ran ran = small.Run(
      "test_iter: 3 test_iter: 1 test_interval: 1 test_state { stage: 'A' } test_state {}",
      Data("t", 3, "include { phase: TRAIN }") +
          Data("t", 1, "include { phase: TEST stage: 'A' }") +
          Data("t", 3, "include { phase: TEST not_stage: 'A' }") + Fc("y", "x", 1, 1) +
          "layer { name: 'p' type: 'Power' bottom: 'y' top: 'y' power_param { scale: 2 } include { "
          "phase: TEST stage: 'A' } } " +
          kLoss +
          "layer { name: 'm' type: 'Reduction' bottom: 'y' top: 'm' reduction_param { operation: "
          "MEAN } include { phase: TEST not_stage: 'A' } }");
  ASSERT_EQ(ran.tests.size(), 2u);
  const std::vector<NamedValue>&a = ran.tests.at("A"), &b = ran.tests.at("test_1");
  ASSERT_EQ(a.size(), 1u);
  EXPECT_NEAR(a[0].value, (0. + 4 + 49) / 6, 1e-5);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_NEAR(b[0].value, 17. / 6, 1e-5);
  EXPECT_EQ(b[1].name, "m");
  EXPECT_NEAR(b[1].value, 2, 1e-5);
  // A net for regression is deployed: from what its result needs.
  Scope scope;
  const InferenceModel model = LoadInferenceModel(small.directory() + "/out/model", scope);
  EXPECT_EQ(model.feed_names, std::vector<std::string>{"x"});
  EXPECT_EQ(model.fetch_names, std::vector<std::string>{"y"});
}

TEST(CaffeJob, ALossWithoutWeightIsShown) {
  const ImportedJob job = SmallJob().Import(
      "", Data("t", 3) + Fc("y", "x", 1, 1) + kLoss +
              "layer { name: 'k' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'k' "
              "loss_weight: 0 }");
  EXPECT_NE(job.text.find("metric { var: \"k\" name: \"k\" }"), std::string::npos) << job.text;
}

// A note names what differs from Caffe at the end of the data.
TEST(CaffeJob, TheEndOfTheDataIsNoted) {
  const auto notes = [](int batch, const std::string& solver) {
    return SmallJob().Import(solver, Data("t", batch) + Fc("y", "x", 1, 1) + kLoss).notes;
  };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(notes(3, "test_iter: 1 test_interval: 1"), Notes{});
  EXPECT_EQ(notes(2, "test_iter: 2 test_interval: 1"),
            (Notes{"training data: 3 rows in batches of 2: the last batch of an epoch has 1; Caffe "
                   "fills it with the first rows",
                   "test data: 3 rows in batches of 2: a test ends with them; Caffe's test_iter "
                   "reads on to 4"}));
  EXPECT_EQ(notes(1, "test_iter: 2 test_interval: 1"),
            Notes{"test data: 3 rows in batches of 1: every test has the first 2; Caffe's goes on "
                  "where the last one stopped"});
}

TEST(CaffeJob, WeightsAreFilesBetweenCommasAndBlanks) {
  SmallJob small;
  for (const char* name : {"a.caffemodel", "b.caffemodel"})
    WriteFileAtomic(small.directory() + "/" + name, "x");
  const std::vector<std::string> files = small
                                             .Import("weights: 'a.caffemodel, b.caffemodel '",
                                                     Data("t", 3) + Fc("y", "x", 1, 1) + kLoss)
                                             .weights;
  EXPECT_EQ(files, (std::vector<std::string>{small.directory() + "/a.caffemodel",
                                             small.directory() + "/b.caffemodel"}));
}

TEST(CaffeJob, GradientsThatCaffeForcesAreRefused) {
  const std::string net =
      "force_backward: true " + Data("t", 3) + Fc("y", "x", 1, 1, "param { lr_mult: 0 }") + kLoss;
  EXPECT_NE(ErrorOf([&] { SmallJob().Import("clip_gradients: 1", net); })
                .find("layer 'y' (InnerProduct): lr_mult 0 does not go with force_backward and "
                      "clip_gradients"),
            std::string::npos);
  EXPECT_NO_THROW(SmallJob().Import("", net));
}

// --- BVLC's siamese net and autoencoder, small ---

Ran RunOn(const NamedTensors& rows, const std::string& solver, const std::string& net) {
  TemporaryDirectory directory;
  WriteNpz(rows, directory.File("rows.npz"));
  ImportOptions options;
  for (const char* part : {"train", "test"}) options.data[part] = directory.File("rows.npz");
  const std::string text = "lr_policy: 'fixed' display: 1 " + solver + " net_param { " + net + " }";
  const ImportedJob job = ImportSolverText(text, directory.File("s.prototxt"), options, "");
  return RunIn(directory.path(), ParseJobText(job.text, "job"));
}

// Pairs of pictures in two channels: a slice for each of two layers that share their weights.
TEST(CaffeJob, SiameseNetsShareTheirWeights) {
  constexpr int64_t kRows = 4, kPixels = 6;
  Tensor pairs(DType::kFloat32, {kRows, 2, 2, 3});
  for (int64_t i = 0; i < pairs.numel(); ++i)
    pairs.data<float>()[i] = static_cast<float>((i * 7) % 11) / 5;
  const Tensor similar = Numbers({kRows, 1}, {1, 0, 1, 0});
  const auto tower = [](const std::string& name, const std::string& bottom) {
    return Fc(name, bottom, 1, 0.1, "param { name: 'w' lr_mult: 1 }");
  };
  const Ran ran = RunOn(
      {{"pair", pairs}, {"sim", similar}}, "base_lr: 0.5 max_iter: 1",
      "layer { name: 'd' type: 'Data' top: 'pair' top: 'sim' data_param { source: 'pairs' "
      "batch_size: 4 } } layer { name: 's' type: 'Slice' bottom: 'pair' top: 'a' top: 'b' "
      "slice_param { slice_dim: 1 slice_point: 1 } } " +
          tower("f", "a") + tower("g", "b") +
          "layer { name: 'l' type: 'ContrastiveLoss' bottom: 'f' bottom: 'g' bottom: 'sim' top: "
          "'loss' contrastive_loss_param { margin: 1 } }");
  std::vector<double> weights(kPixels, 0.1);
  double loss = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const auto difference = [&](int64_t k) {
      const float* row = pairs.data<float>() + r * 2 * kPixels;
      return static_cast<double>(row[k]) - static_cast<double>(row[kPixels + k]);
    };
    double d = 0;
    for (int64_t k = 0; k < kPixels; ++k) d += 0.1 * difference(k);
    const double gap = std::max(1 - std::abs(d), 0.0);
    const bool same = r % 2 == 0;
    loss += (same ? d * d : gap * gap) / (2 * kRows);
    for (int64_t k = 0; k < kPixels; ++k) {
      const double slope = same ? d : d > 0 ? -gap : gap;
      weights[static_cast<size_t>(k)] -= 0.5 * slope * difference(k) / kRows;
    }
  }
  ASSERT_EQ(ran.losses.size(), 1u);
  EXPECT_NEAR(ran.losses[0], loss, 1e-6);
  const Tensor& trained = ran.result.scope.Get("w");
  for (int64_t k = 0; k < kPixels; ++k) {
    EXPECT_NEAR(static_cast<double>(trained.data<float>()[k]), weights[static_cast<size_t>(k)],
                1e-6);
  }
}

// Sparse weights, two losses of which one is only shown, and tests on both parts of the data.
TEST(CaffeJob, AutoencodersWithSparseWeights) {
  Tensor rows(DType::kFloat32, {8, 1, 4, 4});
  for (int64_t i = 0; i < rows.numel(); ++i)
    rows.data<float>()[i] = static_cast<float>((i * 13) % 17) / 16;
  const auto data = [](const std::string& rule) {
    return "layer { name: 'd' type: 'Data' top: 'data' include { " + rule +
           " } data_param { source: 'x' batch_size: 4 } } ";
  };
  const auto fc = [](const std::string& name, const std::string& bottom, int size) {
    return fmt::format(
        "layer {{ name: '{0}' type: 'InnerProduct' bottom: '{1}' top: '{0}' inner_product_param "
        "{{ num_output: {2} weight_filler {{ type: 'gaussian' std: 1 sparse: 4 }} bias_filler {{ "
        "type: 'constant' value: 0 }} }} }} ",
        name, bottom, size);
  };
  const Ran ran = RunOn(
      {{"data", rows}},
      "base_lr: 0.05 max_iter: 20 test_state { stage: 'test-on-train' } test_iter: 2 test_state { "
      "stage: 'test-on-test' } test_iter: 2 test_interval: 10 test_compute_loss: true",
      data("phase: TRAIN") + data("phase: TEST stage: 'test-on-train'") +
          data("phase: TEST stage: 'test-on-test'") +
          "layer { name: 'flat' type: 'Flatten' bottom: 'data' top: 'flat' } " +
          fc("code", "data", 12) +
          "layer { name: 'c' type: 'Sigmoid' bottom: 'code' top: 'coded' } " +
          fc("decode", "coded", 16) +
          "layer { name: 'l' type: 'SigmoidCrossEntropyLoss' bottom: 'decode' bottom: 'flat' top: "
          "'cross' loss_weight: 1 } layer { name: 'p' type: 'Sigmoid' bottom: 'decode' top: 'out' "
          "} layer { name: 'e' type: 'EuclideanLoss' bottom: 'out' bottom: 'flat' top: 'squares' "
          "loss_weight: 0 }");
  ASSERT_EQ(ran.losses.size(), 20u);
  EXPECT_LT(ran.losses.back(), 0.9 * ran.losses.front());
  EXPECT_EQ(ran.tests.size(), 2u);
  EXPECT_EQ(ran.tests.count("test-on-test"), 1u);
}

}  // namespace coracle::caffe::caffe_job_test
