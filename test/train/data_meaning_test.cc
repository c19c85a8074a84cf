// What a trained model keeps of its data's meaning: the order of channels, whether an output holds
// scores, the unit of labels, arrays.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/test/lmdb_file.h>
#include <coracle/test/train/picture_files.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/log_records.h>
#include <coracle/train/run/evaluation/saved_evaluation.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <coracle/train/run/predict/row_source.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <cmath>
#include <sstream>

namespace coracle::data_meaning_test {

struct Trained {
  TempDir dir;
  JobConfig job;
  TrainResult result;
  std::vector<std::string> messages;

  Trained(const std::string& job_text,
          const std::vector<std::pair<std::string, std::string>>& files) {
    for (const auto& [name, text] : files) WriteFileAtomic(dir / name, text);
    job = ParseJobText(job_text, "job.pbtxt", dir.path());
    job.output_dir = dir / "out";
    TrainCallbacks callbacks;
    callbacks.on_message = [this](const std::string& line) { messages.push_back(line); };
    result = RunJob(job, {}, callbacks);
  }
  PreprocessConfig preprocess() const {
    const std::string file = dir / "out/model.preprocess.pbtxt";
    return ParsePreprocess(ReadFile(file), file);
  }
  std::string Messages() const {
    std::string all;
    for (const std::string& line : messages) all += line + "\n";
    return all;
  }
  // What the model computes for a feed made by hand.
  Tensor RunByHand(const Tensor& feed) const {
    Scope scope;
    const InferenceModel loaded = LoadInferenceModel(result.model_path, scope);
    PreparedProgram prepared = Executor().PrepareFrozen(loaded.program, scope);
    return prepared.Run(scope, {feed})[0].Clone();
  }
};

// --- the order of channels ---

std::string ColourDatum(int label, const std::string& planes) {
  proto::caffe::Datum datum;
  datum.set_channels(3);
  datum.set_height(1);
  datum.set_width(2);
  datum.set_label(label);
  datum.set_data(planes);
  return datum.SerializeAsString();
}

Trained TrainedOnDatabase(const std::string& order) {
  return Trained(R"(
name: "d" model_text: "data { name: 'data' shape: [-1, 3, 1, 2] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'data' size: 2 output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { lmdb { file: "db" )" +
                     order +
                     R"( } } optimizer { sgd { learning_rate: 0.01 } } batch_size: 2 epochs: 1
deploy { input: "data" output: "z" })",
                 {{"db/data.mdb", MakeLmdb({ColourDatum(0, "abcdef"), ColourDatum(1, "ghijkl")})}});
}

// The picture has the colours (1, 2, 3) and (4, 5, 6).
Tensor AnswerForPicture(const Trained& trained) {
  const Predictor predictor(trained.result.model_path);
  const DecodedRow row = DecodePictureFile(predictor.core(), "P3 2 1 255\n1 2 3 4 5 6\n", "p");
  return predictor.core().Run(std::span(&row, 1), 1)[0][0].values.Reshaped({1, 2});
}

TEST(ChannelOrder, CaffesDatabasesAreBlueGreenRed) {
  const Tensor bgr = Tensor::Of<float>({1, 3, 1, 2}, {3, 6, 2, 5, 1, 4});
  const Tensor rgb = Tensor::Of<float>({1, 3, 1, 2}, {1, 4, 2, 5, 3, 6});
  const Trained assumed = TrainedOnDatabase("");
  EXPECT_EQ(assumed.preprocess().picture->channel_order, ChannelOrder::kBgr);
  EXPECT_TRUE(BitEqual(AnswerForPicture(assumed), assumed.RunByHand(bgr)));
  ExpectContains(assumed.Messages(), "it is taken as blue, green, red");
  const Trained declared = TrainedOnDatabase("channel_order: BGR");
  EXPECT_TRUE(BitEqual(AnswerForPicture(declared), declared.RunByHand(bgr)));
  EXPECT_EQ(declared.Messages().find("blue, green, red"), std::string::npos);
  const Trained other = TrainedOnDatabase("channel_order: RGB");
  EXPECT_EQ(other.preprocess().picture->channel_order, ChannelOrder::kRgb);
  EXPECT_TRUE(BitEqual(AnswerForPicture(other), other.RunByHand(rgb)));
  EXPECT_FALSE(BitEqual(other.RunByHand(bgr), other.RunByHand(rgb)));
}

TEST(ChannelOrder, ArraysHaveTheModelsOwn) {
  const Trained trained = TrainedOnDatabase("");
  const Predictor predictor(trained.result.model_path);
  const Tensor bytes = Tensor::Of<uint8_t>({3, 1, 2}, {3, 6, 2, 5, 1, 4});
  EXPECT_TRUE(BitEqual(predictor.Predict(RawRow{{}, {{"data", bytes}}})[0].values.Reshaped({1, 2}),
                       AnswerForPicture(trained)));
}

TEST(ChannelOrder, OfTestPicturesIsThatOfTraining) {
  TempDir dir;
  WriteFileAtomic(dir / "p/x/a.png", MakePng(1, 8, 2, {"\x01\x02\x03"}));
  const auto first = [&](const std::string& order) {
    const JobConfig job = ParseJobText(
        "name: 'p' train { pictures { directory: 'p' height: 1 width: 1 scale: 1 channel_order: "
        "BGR } } "
        "test { pictures { directory: 'p' height: 1 width: 1 scale: 1 " +
            order + " } }",
        "job.pbtxt", dir.path());
    const DataSourcePtr source = OpenTestData(job, job.TestSets()[0]);
    std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, 3, 1, 1}),
                               Tensor(DType::kInt64, {1, 1})};
    source->Get(std::vector<int64_t>{0}, out);
    return out[0].data<float>()[0];
  };
  EXPECT_EQ(first("channel_order: BGR"), 3);
  for (const char* order : {"", "channel_order: RGB"})
    ExpectContains(ErrorOf([&] { first(order); }),
                   "test pictures: channel_order must be the one of the training data");
}

// --- limits ---

// The description of a model keeps the memory that decoding a picture may take.
TEST(Limits, OfPicturesAreKept) {
  const std::string grey = MakeJpeg(1000, 1000, 1, std::vector<uint8_t>(1'000'000, 51), true);
  const auto trained_with = [&](const std::string& limit) {
    return Trained(R"(
name: "p" model_text: "data { name: 'image' shape: [-1, 1, 2, 2] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'image' size: 2 num_flatten_dims: 1 output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { pictures { directory: "p" channels: 1 height: 2 width: 2 )" +
                       limit +
                       R"( } } optimizer { sgd { learning_rate: 0.1 } } batch_size: 1 epochs: 1
deploy { input: "image" output: "z" })",
                   {{"p/x/a.pgm", "P2 2 2 255 1 2 3 4\n"}, {"p/y/b.pgm", "P2 2 2 255 1 2 3 4\n"}});
  };
  const Trained usual = trained_with(""), strict = trained_with("decode_mb: 1");
  EXPECT_EQ(usual.preprocess().picture->decode_mb, 256);
  EXPECT_EQ(strict.preprocess().picture->decode_mb, 1);
  const Predictor predictor(strict.result.model_path);
  ExpectContains(ErrorOf([&] { DecodePictureFile(predictor.core(), grey, "p"); }),
                 "p: a progressive JPEG of 1000 x 1000 pixels takes");
  EXPECT_EQ(DecodePictureFile(predictor.core(), grey, "p", 64).size(), 1u);
}

// Saturation weighs red, green and blue, wherever they are.
TEST(ChannelOrder, ColoursOfAugmentation) {
  const auto changed = [](ChannelOrder order, const std::vector<float>& pixel) {
    TransformOptions options = {.random_crop = true, .seed = 4};
    options.saturation = 0.9f;
    options.channel_order = order;
    const DataSourcePtr source = MakeTransformed(
        MakeMemorySource({{"x", Tensor::Of<float>({1, 3}, pixel), {3, 1, 1}}}, "x"), options);
    std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 3, 1, 1})};
    source->GetInEpoch(1, std::vector<int64_t>{0}, out);
    return std::vector<float>(out[0].data<float>(), out[0].data<float>() + 3);
  };
  std::vector<float> bgr = changed(ChannelOrder::kBgr, {30, 20, 10});
  std::reverse(bgr.begin(), bgr.end());
  EXPECT_EQ(bgr, changed(ChannelOrder::kRgb, {10, 20, 30}));
}

// --- outputs ---

constexpr const char* kFeatures = R"(
name: "f" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 3 act: 'tanh' output: 'features' } } "
  "layer { fc { input: 'features' size: 3 output: 'z' } } "
  "layer { scale { input: 'z' scale: 0.5 output: 'cooler' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } } layer { softmax { input: 'cooler' output: 'prob' } }"
train { csv { file: "t.csv" } } bind { column: "data" var: "x" }
optimizer { sgd { learning_rate: 0.01 } } batch_size: 2 epochs: 1
deploy { input: "x" output: "features" output: "z" output: "prob" })";

TEST(Outputs, FeaturesAreNoScores) {
  const Trained trained(kFeatures, {{"t.csv", "1,2,0\n3,4,1\n5,6,2\n"}});
  const std::vector<OutputMeaning> outputs = trained.preprocess().outputs;
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[0].kind, OutputKind::kValues);
  EXPECT_EQ(outputs[1].kind, OutputKind::kClasses);
  EXPECT_EQ(outputs[2].kind, OutputKind::kClasses);
}

TEST(Outputs, AMetricOfTheJobSaysThatTheyAreScores) {
  const Trained trained(
      std::string(kFeatures) +
          "metric { var: \"features\" name: \"acc\" kind: ACCURACY label: \"label\" }",
      {{"t.csv", "1,2,0\n3,4,1\n5,6,2\n"}});
  EXPECT_EQ(trained.preprocess().outputs[0].kind, OutputKind::kClasses);
}

// --- the unit of labels ---

TEST(Units, ErrorsAreThoseOfTheLabel) {
  const Trained trained(
      R"(
name: "u" model_text: "data { name: 'x' shape: [-1, 1] } data { name: 'y' shape: [-1, 1] } "
  "layer { fc { input: 'x' size: 1 output: 'p' } } "
  "layer { square_error_cost { input: 'p' label: 'y' output: 'c' } } layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "t.csv" label_kind: REAL standardize_label: true } }
test { like_train: true csv { file: "t.csv" } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "p" name: "mae" kind: MAE label: "y" } metric { var: "p" name: "rmse" kind: RMSE label: "y" }
metric { var: "p" name: "r2" kind: R2 label: "y" }
optimizer { sgd { learning_rate: 0.01 } } batch_size: 4 epochs: 2
deploy { input: "x" output: "p" })",
      {{"t.csv", "1,100\n2,300\n3,200\n4,900\n"}});
  // The answers are in the unit of the label, so their errors must be the metrics.
  const Predictor predictor(trained.result.model_path);
  double sum = 0, squares = 0;
  const double labels[] = {100, 300, 200, 900};
  for (int i = 0; i < 4; ++i) {
    const RawRow row{{{"0", std::to_string(i + 1)}}, {}};
    const double off = *predictor.Predict(row)[0].number - labels[i];
    sum += std::abs(off), squares += off * off;
  }
  ASSERT_EQ(trained.result.evaluations.size(), 1u);
  const std::vector<NamedValue>& values = trained.result.evaluations[0].values;
  EXPECT_NEAR(values[1].value, sum / 4, 1e-3 * sum);
  EXPECT_NEAR(values[2].value, std::sqrt(squares / 4), 1e-3 * sum);
  EXPECT_LT(values[3].value, 1);
  ExpectContains(trained.Messages(), "loss is of scaled labels, (label - 375) * 0.00");
  ExpectContains(trained.Messages(), "mae, rmse are in the label's own unit");
  // `coracle test` measures the same.
  const JobConfig job = ParseJobText(R"(
name: "u" model_text: "data { name: 'x' shape: [-1, 1] }"
train { csv { file: "t.csv" label_kind: REAL standardize_label: true } }
test { like_train: true csv { file: "t.csv" } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "p" name: "mae" kind: MAE label: "y" } epochs: 1)",
                                     "job.pbtxt", trained.dir.path());
  const std::vector<NamedValue> tested = EvaluateSavedModel(trained.result.eval_path, job, {});
  ASSERT_EQ(tested.size(), 2u);
  EXPECT_EQ(tested[1].name, "mae");
  EXPECT_NEAR(tested[1].value, values[1].value, 1e-3);
}

// A label that the model's text scales.
TEST(Units, OfLabelsThatTheModelScales) {
  const Trained trained(
      R"(
name: "u" model_text: "data { name: 'x' shape: [-1, 1] } data { name: 'y' shape: [-1, 1] } "
  "layer { fc { input: 'x' size: 1 output: 'p' } } "
  "layer { scale { input: 'y' scale: 0.001 bias: -0.2 output: 't' } } "
  "layer { square_error_cost { input: 'p' label: 't' output: 'c' } } layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "t.csv" label_kind: REAL } } test { csv { file: "t.csv" label_kind: REAL } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "p" name: "mae" kind: MAE label: "t" }
optimizer { sgd { learning_rate: 0.01 } } batch_size: 4 epochs: 1
deploy { input: "x" output: "p" })",
      {{"t.csv", "1,100\n2,300\n3,200\n4,900\n"}});
  const Predictor predictor(trained.result.model_path);
  double sum = 0;
  const double labels[] = {100, 300, 200, 900};
  for (int i = 0; i < 4; ++i) {
    const RawRow row{{{"0", std::to_string(i + 1)}}, {}};
    sum += std::abs(*predictor.Predict(row)[0].number - labels[i]);
  }
  EXPECT_NEAR(trained.result.evaluations[0].values[1].value, sum / 4, 1e-3 * sum);
  ExpectContains(trained.Messages(), "mae is in the label's own unit");
}

// --- confusion matrices ---

Trained TrainedWithConfusion() {
  return Trained(R"(
name: "c" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 2 output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'y' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { csv { file: "t.csv" label_kind: CLASS class: ["no", "yes"] } } test { like_train: true csv { file: "t.csv" } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "z" name: "matrix" kind: CONFUSION label: "y" }
metric { var: "z" name: "accuracy" kind: ACCURACY label: "y" }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 3 epochs: 2)",
                 {{"t.csv", "1,0,no\n0,1,yes\n1,0,no\n0,1,yes\n0,2,yes\n"}});
}

TEST(Confusion, IsLoggedForTestSets) {
  const Trained trained = TrainedWithConfusion();
  EXPECT_EQ(trained.result.evaluations[0].values.size(), 2u);  // loss and accuracy
  int logged = 0;
  ForEachLogRecord(trained.dir / "out/log.jsonl", [&](const JsonReader& record) {
    if (record.At("type").Text() != "test") return;
    const std::vector<JsonReader> rows = record.At("confusion").At("matrix").Items();
    ASSERT_EQ(rows.size(), 2u);
    int64_t all = 0, right = 0;
    for (size_t label = 0; label < 2; ++label) {
      const std::vector<JsonReader> counts = rows[label].Items();
      const int64_t zero = counts[0].Integer(0), one = counts[1].Integer(0);
      EXPECT_EQ(zero + one, label == 0 ? 2 : 3);
      all += zero + one, right += label == 0 ? zero : one;
    }
    EXPECT_NEAR(record.At("values").At("accuracy").Number(),
                static_cast<double>(right) / static_cast<double>(all), 1e-9);
    EXPECT_FALSE(record.At("values").Has("matrix"));
    ++logged;
  });
  EXPECT_EQ(logged, 2);
}

// `coracle test` counts what the last evaluation of the job counted.
TEST(Confusion, OfASavedModel) {
  const Trained trained = TrainedWithConfusion();
  const Measured measured = MeasureSavedModel(trained.result.eval_path, trained.job);
  EXPECT_EQ(measured.values.size(), 2u);  // loss and accuracy
  ASSERT_EQ(measured.confusions.size(), 1u);
  EXPECT_EQ(measured.confusions[0].class_names, (std::vector<std::string>{"no", "yes"}));
  std::vector<int64_t> logged;
  ForEachLogRecord(trained.dir / "out/log.jsonl", [&](const JsonReader& record) {
    if (record.At("type").Text() != "test") return;
    logged.clear();
    for (const JsonReader& row : record.At("confusion").At("matrix").Items())
      for (const JsonReader& count : row.Items()) logged.push_back(count.Integer(0));
  });
  EXPECT_EQ(measured.confusions[0].counts, logged);
  std::ostringstream out;
  EXPECT_EQ(TestAndReport(trained.result.eval_path, trained.job, {}, out), 0);
  ExpectContains(out.str(), "test: loss=");
  ExpectContains(out.str(), "\nmatrix: rows are labels, columns are answers\n");
  ExpectContains(out.str(), "\n  0: no ");
}

// Names of classes belong to the label, not to other targets.
TEST(Confusion, OfAnotherTargetHasNumbers) {
  const Trained trained(R"(
name: "c" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 2 output: 'z' } } layer { op { assign { X: 'y' Out: 'target' } } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'y' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { csv { file: "t.csv" label_kind: CLASS class: ["no", "yes"] } } test { like_train: true csv { file: "t.csv" } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "z" name: "named" kind: CONFUSION label: "y" }
metric { var: "z" name: "other" kind: CONFUSION label: "target" }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 3 epochs: 1)",
                        {{"t.csv", "1,0,no\n0,1,yes\n1,0,no\n"}});
  const Measured measured = MeasureSavedModel(trained.result.eval_path, trained.job);
  ASSERT_EQ(measured.confusions.size(), 2u);
  EXPECT_EQ(measured.confusions[0].class_names.size(), 2u);
  EXPECT_EQ(measured.confusions[1].class_names.size(), 0u);
  EXPECT_EQ(measured.confusions[0].counts, measured.confusions[1].counts);
}

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Characters are not cut, and wide ones count twice.
TEST(Confusion, NamesOfManyBytes) {
  const std::string accented = "\u00e9", wide = "\u732b";
  EXPECT_EQ(FormatConfusion({"m", 2, {1, 2, 3, 4}, {Times(40, accented), Times(20, wide)}}),
            "m: rows are labels, columns are answers\n  " + std::string(32, ' ') +
                " 0 1\n  0: " + Times(29, accented) + " 1 2\n  1: " + Times(14, wide) + "  3 4");
}

TEST(Confusion, IsATable) {
  EXPECT_EQ(FormatConfusion({"matrix", 2, {50, 0, 12, 3}, {"no", "yes"}}),
            "matrix: rows are labels, columns are answers\n"
            "          0  1\n"
            "  0: no  50  0\n"
            "  1: yes 12  3");
  ExpectContains(FormatConfusion({"m", 200, std::vector<int64_t>(40000, 1)}),
                 "m: 200 classes, whose counts are in log.jsonl");
}

// Three ranks count what one counts.
TEST(Confusion, OfRanksIsThatOfAllRows) {
  const auto matrix_of = [](int size) {
    JobConfig job = RankJob("confusion" + std::to_string(size));
    job.metrics.push_back({"prob", "matrix", MetricKind::kConfusion, "label"});
    job.epochs = 1;
    const auto ranks = RunOn(size, job);
    EXPECT_EQ(ranks[0].error, "");
    std::string matrix;
    ForEachLogRecord(job.output_dir + "/log.jsonl", [&](const JsonReader& record) {
      if (record.At("type").Text() != "test") return;
      for (const JsonReader& row : record.At("confusion").At("matrix").Items())
        for (const JsonReader& count : row.Items())
          matrix += std::to_string(count.Integer(0)) + " ";
    });
    return matrix;
  };
  const std::string one = matrix_of(1);
  EXPECT_GT(one.size(), 100u);
  EXPECT_EQ(matrix_of(3), one);
}

// --- arrays ---

TEST(Arrays, AreDescribed) {
  TempDir files;
  const Tensor x = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  WriteNpz({{"x", x},
            {"words", Tensor::Of<int64_t>({6, 1}, {1, 2, 3, 4, 5, 0})},
            {"words@LOD@0", Tensor::Of<int64_t>({4}, {0, 1, 4, 6})},
            {"label", Tensor::Of<int64_t>({3, 1}, {0, 1, 0})}},
           files / "t.npz");
  const Trained trained(R"(
name: "n" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'words' shape: [-1, 1] dtype: INT64 lod_level: 1 } "
  "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { embedding { input: 'words' num_embeddings: 6 embedding_dim: 2 output: 'e' } } "
  "layer { op { sequence_pool { X: 'e' Out: 's' pooltype: 'SUM' } } } "
  "layer { fc { input: 's' size: 2 output: 'h' } } layer { elementwise_add { x: 'x' y: 'h' output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { npz { file: "t.npz" } } optimizer { sgd { learning_rate: 0.1 } } batch_size: 3 epochs: 1
deploy { input: "x" input: "words" output: "z" })",
                        {{"t.npz", ReadFile(files / "t.npz")}});
  const PreprocessConfig config = trained.preprocess();
  ASSERT_EQ(config.arrays.size(), 2u);
  EXPECT_EQ(config.arrays[0].column, "words");
  EXPECT_TRUE(config.arrays[0].sequences);
  EXPECT_EQ(config.arrays[1].dtype, DType::kFloat32);
  EXPECT_EQ(config.arrays[1].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(ParsePreprocess(config.ToText(), "p").ToText(), config.ToText());
  // The rows of a file are the rows of a batch.
  const Predictor predictor(trained.result.model_path);
  const auto source = MakeArrayRows(predictor.core(), files / "t.npz");
  std::vector<DecodedRow> rows;
  for (SourceRow row; source->Next(&row);) {
    ASSERT_FALSE(row.error) << row.error->message();
    rows.push_back(*row.row);
  }
  ASSERT_EQ(rows.size(), 3u);
  const auto answers = predictor.core().Run(rows, 1);
  Scope scope;
  const InferenceModel loaded = LoadInferenceModel(trained.result.model_path, scope);
  PreparedProgram prepared = Executor().PrepareFrozen(loaded.program, scope);
  Tensor words = Tensor::Of<int64_t>({6, 1}, {1, 2, 3, 4, 5, 0});
  words.lod() = {{0, 1, 4, 6}};
  std::vector<Tensor> feeds;
  for (const std::string& name : prepared.feed_names()) feeds.push_back(name == "x" ? x : words);
  const Tensor want = prepared.Run(scope, feeds)[0].Clone();
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(answers[static_cast<size_t>(i / 2)][0].values.data<float>()[i % 2],
              want.data<float>()[i]);
  WriteNpz({{"x", x.Cast(DType::kFloat64)}, {"words", words}}, files / "bad.npz");
  SourceRow bad;
  ASSERT_TRUE(MakeArrayRows(predictor.core(), files / "bad.npz")->Next(&bad));
  ASSERT_TRUE(bad.error);
  ExpectContains(bad.error->message(), "bad.npz: row 0: the model reads 'x' as float32 [2]");
}

// --- several ranks ---

// Rows that augmentation draws are the same, so only the rounding of sums differs.
TEST(AugmentedRanks, ParametersAgreeInFloat64) {
  const auto job_of = [](const std::string& name) {
    JobConfig job = RankJob("augmented_" + name);
    job.model_text = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { cast { input: "image" dtype: FP64 output: "x" } }
layer { fc { input: "x" size: 8 act: "tanh" output: "h" } }
layer { fc { input: "h" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
)";
    job.metrics.clear();
    job.deploy_inputs.clear();
    job.deploy_outputs.clear();
    TransformOptions transform;
    transform.rotate = 20, transform.zoom = 0.2f, transform.shift = 0.1f;
    transform.noise = 0.1f, transform.erase = 5, transform.pad = 3;
    job.train.transform = transform;
    return job;
  };
  const auto one = RunOn(1, job_of("one"));
  ASSERT_EQ(one[0].error, "");
  for (const int size : {2, 3}) {
    for (const RankResult& rank : RunOn(size, job_of("n" + std::to_string(size)))) {
      ASSERT_EQ(rank.error, "");
      for (const std::string& name : one[0].result.main.Parameters()) {
        const Tensor &a = rank.result.scope.Get(name), &b = one[0].result.scope.Get(name);
        ASSERT_EQ(a.dtype(), DType::kFloat64) << name;
        for (int64_t i = 0; i < a.numel(); ++i)
          EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-12) << name;
      }
    }
  }
}

// --- scores ---

// Whether z [-1, 3] of a model that ends with these layers holds scores.
bool HasScores(const std::string& layers, const std::string& var = "z") {
  const BuiltModel model = ParseModelText(
      "data { name: 'x' shape: [-1, 4] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
      "data { name: 'soft' shape: [-1, 3] } data { name: 'row' shape: [-1] dtype: INT64 } layer { "
      "fc { input: 'x' size: 3 output: 'z' } } " +
      layers);
  return HoldsScores(model.main, var, JobConfig());
}

TEST(Scores, AreReadByOpsThatDeclareThem) {
  for (const char* layers :
       {"layer { softmax { input: 'z' output: 'p' } }",
        "layer { op { log_softmax { X: 'z' Out: 'p' } } }",
        "layer { op { nll_loss { X: 'z' Label: 'row' Out: 'ce' reduction: 'sum' } } }",
        "layer { op { bpr_loss { X: 'z' Label: 'label' Y: 'ce' } } }",
        "layer { op { arg_max { X: 'z' Out: 'best' axis: 1 } } }",
        "layer { op { top_k_v2 { X: 'z' Out: 'best' Indices: 'k' } } }",
        "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } }"})
    EXPECT_TRUE(HasScores(layers)) << layers;
  EXPECT_TRUE(HasScores("layer { softmax { input: 'z' output: 'p' } }", "p"));
  EXPECT_FALSE(HasScores("layer { softmax { input: 'z' output: 'p' } }", "x"));
  EXPECT_FALSE(HasScores("layer { op { arg_min { X: 'z' Out: 'least' axis: 1 } } }"));
  EXPECT_FALSE(HasScores("layer { op { bce_loss { X: 'z' Label: 'soft' Out: 'ce' } } }"));
  EXPECT_FALSE(
      HasScores("layer { softmax_with_cross_entropy { logits: 'z' label: 'soft' "
                "soft_label: true output: 'ce' } }",
                "soft"));
}

TEST(Scores, PassThroughOpsThatOnlyMoveOrScale) {
  const std::string softmax = "layer { softmax { input: 'y' output: 'p' } }";
  for (const char* layer :
       {"layer { op { scale { X: 'z' Out: 'y' scale: 2 } } }",
        "layer { op { cast { X: 'z' Out: 'y' in_dtype: FP32 out_dtype: FP64 } } }",
        "layer { op { dropout { X: 'z' Out: 'y' Mask: 'm' } } }",
        "layer { op { unsqueeze2 { X: 'z' Out: 'y' XShape: 's' axes: [1] } } }",
        "layer { op { assign { X: 'z' Out: 'y' } } }"})
    EXPECT_TRUE(HasScores(layer + softmax)) << layer;
  for (const char* layer : {"layer { op { relu { X: 'z' Out: 'y' } } }",
                            "layer { op { elementwise_mul { X: 'z' Y: 'soft' Out: 'y' } } }",
                            "layer { op { elementwise_add { X: 'z' Y: 'soft' Out: 'y' } } }",
                            "layer { fc { input: 'z' size: 3 output: 'y' } }"})
    EXPECT_FALSE(HasScores(layer + softmax)) << layer;
}

}  // namespace coracle::data_meaning_test
