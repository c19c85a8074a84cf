// Predictor on raw rows gives exactly what the executor computes on data prepared by hand.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <thread>

namespace coracle::predictor_test {
struct Trained {
  TempDir dir;
  std::string model;

  explicit Trained(const std::string& job_text,
                   const std::vector<std::pair<std::string, std::string>>& files = {}) {
    for (const auto& [name, text] : files) WriteFileAtomic(dir / name, text);
    JobConfig job = ParseJobText(job_text, "job.pbtxt", dir.path());
    job.output_dir = dir / "out";
    model = RunJob(job).model_path;
  }
  std::string preprocess() const { return ReadFile(dir / "out/model.preprocess.pbtxt"); }
};

// The outputs of the saved model for feeds prepared by hand.
std::vector<Tensor> RunByHand(const std::string& model,
                              const std::map<std::string, Tensor>& feeds) {
  Scope scope;
  const InferenceModel loaded = LoadInferenceModel(model, scope);
  PreparedProgram prepared = Executor().PrepareFrozen(loaded.program, scope);
  std::vector<Tensor> ordered;
  for (const std::string& name : prepared.feed_names()) ordered.push_back(feeds.at(name));
  std::vector<Tensor> out;
  for (const Tensor& t : prepared.Run(scope, ordered)) out.push_back(t.Clone());
  return out;
}

// The rows of the answers are, bit for bit, those of `expected`.
void ExpectRows(const std::vector<std::vector<RowAnswer>>& answers, const Tensor& expected) {
  ASSERT_EQ(static_cast<int64_t>(answers.size()), expected.shape()[0]);
  const size_t bytes = expected.nbytes() / answers.size();
  for (size_t i = 0; i < answers.size(); ++i) {
    const Tensor& values = answers[i][0].values;
    ASSERT_EQ(values.nbytes(), bytes);
    EXPECT_EQ(
        std::memcmp(values.raw(), static_cast<const char*>(expected.raw()) + i * bytes, bytes), 0)
        << "row " << i;
  }
}

constexpr const char* kIrisModel =
    "data { name: 'flower' shape: [-1, 4] } data { name: 'class' shape: [-1, 1] dtype: INT64 } "
    "layer { fc { input: 'flower' size: 3 output: 'logits' } } "
    "layer { softmax_with_cross_entropy { logits: 'logits' label: 'class' output: 'ce' } } "
    "layer { mean { input: 'ce' output: 'loss' } } "
    "layer { softmax { input: 'logits' output: 'prob' } }";

std::string IrisJob() {
  return fmt::format(R"(
name: "iris" model_text: "{}"
train {{ csv {{ file: "iris.csv" label_kind: CLASS class: ["setosa", "versicolor", "virginica"] }} }}
bind {{ column: "data" var: "flower" }}
bind {{ column: "label" var: "class" }}
optimizer {{ momentum {{ learning_rate: 0.1 }} }}
batch_size: 3 epochs: 20
deploy {{ input: "flower" output: "prob" }})",
                     kIrisModel);
}

constexpr const char* kIrisRows =
    "5.1,3.5,1.4,0.2,setosa\n7.0,3.2,4.7,1.4,versicolor\n6.3,3.3,6.0,2.5,virginica\n"
    "4.9,3.0,1.4,0.2,setosa\n6.4,3.2,4.5,1.5,versicolor\n5.8,2.7,5.1,1.9,virginica\n";

RawRow Numbers(const std::vector<std::string>& cells) {
  RawRow row;
  for (size_t i = 0; i < cells.size(); ++i) row.cells[std::to_string(i)] = cells[i];
  return row;
}

TEST(Predictor, Iris) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  const Predictor predictor(iris.dir / "out");
  EXPECT_EQ(predictor.columns(), (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(predictor.outputs(), (std::vector<std::string>{"prob"}));
  const std::vector<RawRow> rows = {Numbers({"5.1", "3.5", "1.4", "0.2"}),
                                    Numbers({"6.3", "+3.3", " 6.0", "2.5"})};
  EXPECT_THROW(predictor.Predict(rows), Error);  // a blank before a number
  const std::vector<RawRow> good = {rows[0], Numbers({"6.3", "+3.3", "6.0", "2.5"})};
  const auto answers = predictor.Predict(good);
  const std::vector<Tensor> expected = RunByHand(
      iris.model,
      {{"flower", Tensor::Of<float>({2, 4}, {5.1F, 3.5F, 1.4F, 0.2F, 6.3F, 3.3F, 6.0F, 2.5F})}});
  ExpectRows(answers, expected[0]);
  EXPECT_EQ(answers[0][0].text, "setosa");
  EXPECT_EQ(answers[0][0].classes[0].index, 0);
  EXPECT_EQ(answers[0][0].classes[0].score, static_cast<double>(expected[0].data<float>()[0]));
  EXPECT_EQ(answers[1][0].text, "virginica");
  EXPECT_FALSE(answers[0][0].number);
}

TEST(Predictor, ShowsTheBestClasses) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  const Predictor all(iris.model, {.top = 0});
  const auto answer = all.Predict(Numbers({"5.1", "3.5", "1.4", "0.2"}));
  ASSERT_EQ(answer[0].classes.size(), 3u);
  EXPECT_GE(answer[0].classes[0].score, answer[0].classes[1].score);
  EXPECT_GE(answer[0].classes[1].score, answer[0].classes[2].score);
  const Predictor two(iris.model, {.top = 2});
  EXPECT_EQ(two.Predict(Numbers({"5.1", "3.5", "1.4", "0.2"}))[0].classes.size(), 2u);
}

TEST(Predictor, NamesTheBadCell) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  const Predictor predictor(iris.model);
  const auto error = [&](const std::vector<std::string>& cells) {
    const std::vector<RawRow> rows = {Numbers({"1", "2", "3", "4"}), Numbers(cells)};
    return ErrorOf([&] { predictor.Predict(rows); });
  };
  EXPECT_EQ(error({"1", "2", "3"}), "row 1: the column '3' is missing");
  EXPECT_EQ(error({"1", "x", "3", "4"}), "row 1: column '1': 'x' is not a number");
  EXPECT_EQ(error({"1", "2", "", "4"}),
            "row 1: column '2': empty cell; give fill a value to use instead");
  EXPECT_EQ(error({"1", "2", "nan", "4"}), "row 1: column '2': 'nan' is not a finite float32");
  EXPECT_EQ(error({"1", "2", "1e39", "4"}), "row 1: column '2': '1e39' is not a finite float32");
}

TEST(Predictor, NoRowsNoAnswers) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  EXPECT_TRUE(Predictor(iris.model).Predict(std::vector<RawRow>()).empty());
}

// Each thread gets what one thread alone gets.
TEST(Predictor, ThreadsShareOne) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  const Predictor predictor(iris.model);
  std::vector<RawRow> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(Numbers({fmt::format("{}", i * 0.2), "3", "4", "1"}));
  std::vector<Tensor> expected;
  for (const RawRow& row : rows) expected.push_back(predictor.Predict(row)[0].values);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t k = (i + 10 * t) % rows.size();
        wrong[t] += !BitEqual(predictor.Predict(rows[k])[0].values, expected[k]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

constexpr const char* kHousingJob = R"(
name: "housing"
model_text: "data { name: 'block' shape: [-1, 6] } data { name: 'value' shape: [-1, 1] } "
  "layer { fc { input: 'block' size: 1 output: 'price' } } "
  "layer { scale { input: 'value' scale: 1e-5 bias: 0.5 output: 'truth' } } "
  "layer { square_error_cost { input: 'price' label: 'truth' output: 'cost' } } "
  "layer { mean { input: 'cost' output: 'loss' } }"
train { csv { file: "housing.csv" header: true label: "value" label_kind: REAL
  skip: "note" mean: 1 scale: 0.5 fill: 3
  column { name: "ocean" category: ["INLAND", "NEAR BAY", "<1H \"OCEAN\""] }
  column { name: "rooms" fill: -1 mean: 10 scale: 0.1 } } }
bind { column: "data" var: "block" }
bind { column: "label" var: "value" }
optimizer { sgd { learning_rate: 0.001 } }
batch_size: 2 epochs: 2
deploy { input: "block" output: "price" })";

constexpr const char* kHousingRows =
    "long,ocean,value,rooms,note,age\n"
    "-122.5,INLAND,300000,12,x,41\n-121,\"<1H \"\"OCEAN\"\"\",200000,,y,\n"
    "-120,NEAR BAY,100000,8,z,21\n-119,INLAND,150000,9,,5\n";

TEST(Predictor, Housing) {
  const Trained housing(kHousingJob, {{"housing.csv", kHousingRows}});
  const Predictor predictor(housing.model);
  EXPECT_EQ(predictor.columns(), (std::vector<std::string>{"long", "ocean", "rooms", "age"}));
  const std::vector<RawRow> rows = {
      {{{"long", "-122.5"}, {"ocean", "NEAR BAY"}, {"rooms", "12"}, {"age", "41"}, {"else", "?"}}},
      {{{"age", ""}, {"rooms", ""}, {"ocean", "<1H \"OCEAN\""}, {"long", "-121"}}}};
  const auto answers = predictor.Predict(rows);
  const std::vector<float> data = {
      (-122.5F - 1) * 0.5F, 0, 1, 0, (12.0F - 10) * 0.1F, (41.0F - 1) * 0.5F,
      (-121.0F - 1) * 0.5F, 0, 0, 1, (-1.0F - 10) * 0.1F, (3.0F - 1) * 0.5F};
  const std::vector<Tensor> expected =
      RunByHand(housing.model, {{"block", Tensor::Of<float>({2, 6}, data)}});
  ExpectRows(answers, expected[0]);
  // The model text scales the label: price = value * 1e-5 + 0.5.
  for (size_t i = 0; i < 2; ++i) {
    const double undone = (expected[0].data<float>()[i] - 0.5) * 1e5;
    EXPECT_NEAR(*answers[i][0].number, undone, 1e-4 * std::abs(undone) + 0.1);
  }
  ExpectContains(ErrorOf([&] {
                   predictor.Predict(
                       RawRow{{{"long", "1"}, {"ocean", "INLAN"}, {"rooms", "1"}, {"age", "2"}}});
                 }),
                 "row 0: column 'ocean': 'INLAN' is not one of the categories of 'ocean'; did you "
                 "mean INLAND?");
}

// The text keeps the settings to the bit, and can be read again.
TEST(Predictor, HousingAsText) {
  const Trained housing(kHousingJob, {{"housing.csv", kHousingRows}});
  const std::string text = housing.preprocess();
  const PreprocessConfig config = ParsePreprocess(text, "p");
  EXPECT_EQ(config.ToText(), text);
  ASSERT_TRUE(config.csv);
  EXPECT_EQ(config.csv->label, "value");
  EXPECT_EQ(config.csv->cells, 6);
  ASSERT_EQ(config.csv->columns.size(), 4u);
  EXPECT_EQ(config.csv->columns[1].column.categories[2], "<1H \"OCEAN\"");
  EXPECT_EQ(config.csv->columns[2].column.scale, 0.1F);
  EXPECT_EQ(config.csv->columns[2].number, 3);
  ASSERT_EQ(config.outputs.size(), 1u);
  EXPECT_EQ(config.outputs[0].kind, OutputKind::kNumber);
  EXPECT_NEAR(config.outputs[0].scale, 1e5, 0.1);
  EXPECT_NEAR(config.outputs[0].offset, -5e4, 0.1);
}

std::string DigitsJob(const std::string& data) {
  return R"(
name: "digits"
model_text: "data { name: 'x' shape: [-1, 784] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 10 output: 'logits' } } "
  "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } } "
  "layer { softmax { input: 'logits' output: 'prob' } } "
  "layer { op { arg_max { X: 'logits' Out: 'best' axis: 1 dtype: INT64 } } }"
train { )" +
         data + R"( } bind { column: "image" var: "x" }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 epochs: 1
deploy { input: "x" output: "prob" output: "best" })";
}

Tensor Picture(uint64_t seed) {
  Tensor picture(DType::kUInt8, {28, 28});
  for (int i = 0; i < 784; ++i)
    picture.data<uint8_t>()[i] = static_cast<uint8_t>((seed * 7919 + 31 * i * i + 7 * i) % 256);
  return picture;
}

TEST(Predictor, Digits) {
  const Trained digits(DigitsJob("digits { count: 200 }"));
  const Predictor predictor(digits.model);
  EXPECT_EQ(predictor.columns(), std::vector<std::string>{"image"});
  const std::vector<RawRow> rows = {{{}, {{"image", Picture(1)}}}, {{}, {{"image", Picture(2)}}}};
  const auto answers = predictor.Predict(rows);
  Tensor feed(DType::kFloat32, {2, 784});
  for (int i = 0; i < 1568; ++i) {
    const uint8_t byte = rows[i / 784].pictures.at("image").data<uint8_t>()[i % 784];
    feed.data<float>()[i] = static_cast<float>(byte) * (1.0F / 255.0F);
  }
  const std::vector<Tensor> expected = RunByHand(digits.model, {{"x", feed}});
  ExpectRows(answers, expected[0]);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[i][0].text, std::to_string(expected[1].data<int64_t>()[i]));
    EXPECT_EQ(answers[i][1].text, answers[i][0].text);  // its number
    EXPECT_EQ(answers[i][0].classes[0].name, answers[i][0].text);
  }
}

TEST(Predictor, PicturesOfOtherForms) {
  const Trained digits(DigitsJob("digits { count: 100 }"));
  const Predictor predictor(digits.model);
  const auto answer = [&](const Tensor& picture) {
    return predictor.Predict(RawRow{{}, {{"image", picture}}})[0].values;
  };
  EXPECT_TRUE(BitEqual(answer(Picture(1)), answer(Picture(1).Reshaped({1, 28, 28}))));
  EXPECT_EQ(ErrorOf([&] { answer(Picture(1).Cast(DType::kFloat32)); }),
            "row 0: the model reads pictures uint8 [1, 28, 28], this one is float32 [28, 28]");
  EXPECT_EQ(ErrorOf([&] {
              answer(Tensor::Zeros(DType::kUInt8, {3, 28, 28}));
            }),
            "row 0: the model reads pictures uint8 [1, 28, 28], this one is uint8 [3, 28, 28]");
  EXPECT_THROW(answer(Tensor(DType::kUInt8, {0, 28})), Error);
  // Pictures of other sizes are resized: grey stays grey.
  EXPECT_TRUE(BitEqual(answer(Tensor::Full<uint8_t>({56, 14}, 77)),
                       answer(Tensor::Full<uint8_t>({28, 28}, 77))));
  EXPECT_EQ(ErrorOf([&] { predictor.Predict(RawRow{}); }), "row 0: the column 'image' is missing");
}

// A transform with a mean per pixel and a crop of the middle, as tests see it.
TEST(Predictor, TransformsLikeTests) {
  TempDir data;
  std::string idx("\0\0\x08\x03\0\0\0\x02\0\0\0\x06\0\0\0\x08", 16);
  for (int i = 0; i < 96; ++i) idx += static_cast<char>(i * 37 % 256);
  const std::string labels("\0\0\x08\x01\0\0\0\x02\x01\x03", 10);
  const Tensor mean = [] {
    std::vector<float> values;
    for (int i = 0; i < 48; ++i) values.push_back(0.01F * static_cast<float>(i));
    return Tensor::Of<float>({1, 6, 8}, values);
  }();
  const Trained trained(
      R"(name: "idx" model_text: "data { name: 'x' shape: [-1, 1, 5, 5] } "
"data { name: 'label' shape: [-1, 1] dtype: INT64 } "
"layer { fc { input: 'x' size: 4 output: 'logits' } } "
"layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
"layer { mean { input: 'ce' output: 'loss' } }"
train { idx { images: "i" labels: "l" mean: 3 scale: 0.25 }
  transform { crop_size: 5 mirror: true scale: 0.5 mean_file: "mean.npy" } }
bind { column: "image" var: "x" } batch_size: 2 max_iter: 1
deploy { input: "x" output: "logits" })",
      {{"i", idx}, {"l", labels}, {"mean.npy", SerializeNpy(mean)}});
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 48; ++i) bytes.push_back(static_cast<uint8_t>(255 - 5 * i));
  const auto answers =
      Predictor(trained.model).Predict(RawRow{{}, {{"image", Tensor::Of<uint8_t>({6, 8}, bytes)}}});
  std::vector<float> feed;
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 5; ++x) {
      const int at = y * 8 + x + 1;  // rows 0..4 of 6, columns 1..5 of 8
      const volatile float byte = (static_cast<float>(bytes[static_cast<size_t>(at)]) - 3) * 0.25F;
      feed.push_back((byte - mean.data<float>()[at]) * 0.5F);
    }
  }
  ExpectRows({answers},
             RunByHand(trained.model, {{"x", Tensor::Of<float>({1, 1, 5, 5}, feed)}})[0]);
  EXPECT_EQ(answers[0].text.size(), 1u);  // a class without a name
}

constexpr const char* kTextJob = R"(
name: "text"
model_text: "data { name: 'text' shape: [-1, -1] dtype: INT64 } "
  "data { name: 'next' shape: [-1, -1, 1] dtype: INT64 } data { name: 'h0' shape: [1, -1, 8] } "
  "data { name: 'c0' shape: [1, -1, 8] } "
  "layer { embedding { input: 'text' num_embeddings: 5 embedding_dim: 4 output: 'e' } } "
  "layer { lstm { input: 'e' hidden_size: 8 initial_h: 'h0' initial_c: 'c0' last_h: 'h1' last_c: 'c1' output: 'h' } } "
  "layer { fc { input: 'h' size: 5 num_flatten_dims: 2 output: 'logits' } } "
  "layer { softmax_with_cross_entropy { logits: 'logits' label: 'next' output: 'nats' } } "
  "layer { mean { input: 'nats' output: 'loss' } }"
train { text { file: "t.txt" sequence_length: 4 holdout: 0 } }
carry { from: "h1" to: "h0" } carry { from: "c1" to: "c0" }
batch_size: 2 epochs: 1
deploy { input: "text" output: "logits" })";

TEST(Predictor, Texts) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "ab é\"";
  const Trained trained(kTextJob, {{"t.txt", text}});
  const Predictor predictor(trained.model, {.top = 2});
  const std::vector<RawRow> rows = {{{{"text", "ab"}}}, {{{"text", "é\""}}}, {{{"text", "b é"}}}};
  const auto answers = predictor.Predict(rows);
  const Tensor zeros2 = Tensor::Zeros(DType::kFloat32, {1, 2, 8});
  const Tensor zeros1 = Tensor::Zeros(DType::kFloat32, {1, 1, 8});
  // Characters in the order of code points: ' ', '"', a, b, é. Texts of one length are one batch.
  const std::vector<Tensor> first = RunByHand(
      trained.model,
      {{"text", Tensor::Of<int64_t>({2, 2}, {2, 3, 4, 1})}, {"h0", zeros2}, {"c0", zeros2}});
  const std::vector<Tensor> second =
      RunByHand(trained.model,
                {{"text", Tensor::Of<int64_t>({1, 3}, {3, 0, 4})}, {"h0", zeros1}, {"c0", zeros1}});
  ExpectRows({answers[0], answers[1]}, first[0]);
  ExpectRows({answers[2]}, second[0]);
  EXPECT_EQ(answers[0].size(), 1u);  // states are no answers
  EXPECT_EQ(answers[2][0].classes.size(), 2u);
  const auto error = [&](const std::string& given) {
    return ErrorOf([&] { predictor.Predict(RawRow{{{"text", given}}}); });
  };
  EXPECT_EQ(error("abx"), "row 0: the character 'x' at byte 2 is not in the vocabulary");
  EXPECT_EQ(error("a\xFF"), "row 0: byte 1 of the text is not UTF-8");
  EXPECT_EQ(error(""), "row 0: the text is empty");
}

// Sequences of ids, padded for the model.
TEST(Predictor, Sequences) {
  const Trained trained(R"(
name: "seq" model_text: "data { name: 'w' shape: [-1, -1] dtype: INT64 } "
  "data { name: 'n' shape: [-1, 1] dtype: INT64 } data { name: 'label' shape: [-1, 1] } "
  "layer { embedding { input: 'w' num_embeddings: 9 embedding_dim: 3 output: 'e' } } "
  "layer { op { reduce_sum { X: 'e' Out: 's' dim: [1] } } } "
  "layer { fc { input: 's' size: 1 output: 'y' } } "
  "layer { cast { input: 'n' dtype: FP32 output: 'nf' } } "
  "layer { elementwise_add { x: 'y' y: 'nf' output: 'z' } } "
  "layer { square_error_cost { input: 'z' label: 'label' output: 'c' } } "
  "layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "s.csv" header: true label_kind: REAL
  column { name: "words" sequence: "ids" } column { name: "color" category: ["red", "blue"] ids: "k" } } }
bind { column: "ids" var: "w" } bind { column: "ids@LENGTH" var: "n" }
batch_size: 2 max_iter: 2
deploy { input: "w" input: "n" output: "z" })",
                        {{"s.csv", "words,color,y\n1 2 3,red,1\n4,blue,0\n"}});
  const Predictor predictor(trained.model);
  // The model does not read the color.
  EXPECT_EQ(predictor.columns(), std::vector<std::string>{"words"});
  const std::vector<RawRow> rows = {{{{"words", "5 6"}}}, {{{"words", "7"}}}, {{{"words", ""}}}};
  const auto answers = predictor.Predict(rows);
  ExpectRows(answers,
             RunByHand(trained.model, {{"w", Tensor::Of<int64_t>({3, 2}, {5, 6, 7, 0, 0, 0})},
                                       {"n", Tensor::Of<int64_t>({3, 1}, {2, 1, 0})}})[0]);
  EXPECT_EQ(*answers[0][0].number, static_cast<double>(answers[0][0].values.data<float>()[0]));
  ExpectContains(ErrorOf([&] {
                   predictor.Predict(RawRow{{{"words", "1 x"}}});
                 }),
                 "'x' is not an integer");
}

// What the training rows gave: means, deviations, a vocabulary. The data source is the reference.
TEST(Predictor, UsesWhatTrainingComputed) {
  const std::string job_text = R"(
name: "fit" model_text: "data { name: 'x' shape: [-1, 3] } data { name: 'w' shape: [-1, 4] dtype: INT64 } "
  "data { name: 'label' shape: [-1, 1] } "
  "layer { embedding { input: 'w' num_embeddings: 20 embedding_dim: 3 output: 'e' } } "
  "layer { op { reduce_sum { X: 'e' Out: 's' dim: [1] } } } "
  "layer { concat { input: ['x', 's'] axis: 1 output: 'xs' } } "
  "layer { fc { input: 'xs' size: 1 output: 'y' } } "
  "layer { square_error_cost { input: 'y' label: 'label' output: 'c' } } "
  "layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "t.csv" header: true label: "price" label_kind: REAL standardize: true
  standardize_label: true
  column { name: "text" words { lower: true min_count: 2 } length: 4 }
  column { name: "b" scale: 2 } } }
bind { column: "data" var: "x" } bind { column: "text" var: "w" }
batch_size: 4 max_iter: 1
deploy { input: "x" input: "w" output: "y" })";
  const std::vector<std::vector<std::string>> cells = {
      {"1", "2", "The cat, the dog", "4", "100"},
      {"2", "3", "a cat", "5.5", "250"},
      {"5", "7", "", "6", "300"},
      {"7", "1", "dog the cat a b c d", "-4", "900"}};
  std::string file = "a,b,text,c,price\n";
  std::vector<RawRow> rows;
  for (const auto& row : cells) {
    file += fmt::format("{},{},\"{}\",{},{}\n", row[0], row[1], row[2], row[3], row[4]);
    rows.push_back({{{"a", row[0]}, {"b", row[1]}, {"text", row[2]}, {"c", row[3]}}});
  }
  const Trained trained(job_text, {{"t.csv", file}});
  JobConfig job = ParseJobText(job_text, "job.pbtxt", trained.dir.path());
  const DataSourcePtr data = OpenTrainData(job);
  std::vector<Tensor> batch;
  for (const DataColumn& column : data->columns()) {
    Shape shape = {4};
    for (const int64_t dim : column.shape) shape.Append(dim);
    batch.emplace_back(column.dtype, shape);
  }
  data->Get(std::vector<int64_t>{0, 1, 2, 3}, batch);
  const auto column = [&](const char* name) {
    return batch[static_cast<size_t>(data->FindColumn(name))];
  };
  const Predictor predictor(trained.model);
  const auto answers = predictor.Predict(rows);
  ExpectRows(answers, RunByHand(trained.model, {{"x", column("data")}, {"w", column("text")}})[0]);
  // The label's mean is 387.5, and its deviation 304.9.
  for (const auto& answer : answers) {
    const double y = static_cast<double>(answer[0].values.data<float>()[0]);
    EXPECT_NEAR(*answer[0].number, 387.5 + y * 304.908, 0.1 + 0.01 * std::abs(y));
  }
  const std::string text = trained.preprocess();
  EXPECT_EQ(ParsePreprocess(text, "p").ToText(), text);
}

TEST(Predictor, FoldersOfPictures) {
  const auto pgm = [](int width, int grey) {
    return fmt::format("P5 {} 4 255\n", width) +
           std::string(static_cast<size_t>(4 * width), static_cast<char>(grey));
  };
  const Trained trained(R"(
name: "pictures" model_text: "data { name: 'image' shape: [-1, 1, 4, 4] } "
  "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'image' size: 2 output: 'logits' } } "
  "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { pictures { directory: "p" channels: 1 height: 4 width: 4 standardize: true }
  transform { rotate: 20 mirror: true } }
batch_size: 2 max_iter: 1
deploy { input: "image" output: "logits" })",
                        {{"p/dark/a.pgm", pgm(4, 10)}, {"p/light/b.pgm", pgm(8, 210)}});
  // The mean of the pixels is 110, their deviation 100.
  const auto answer =
      Predictor(trained.model).Predict(RawRow{{}, {{"image", Tensor::Full<uint8_t>({4, 4}, 200)}}});
  const float value = (200.0F - 110.0F) * (1.0F / 100.0F);
  const Tensor expected =
      RunByHand(trained.model, {{"image", Tensor::Full<float>({1, 1, 4, 4}, value)}})[0];
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(answer[0].values.data<float>()[i], expected.data<float>()[i], 1e-5);
  EXPECT_TRUE(answer[0].text == "dark" || answer[0].text == "light") << answer[0].text;
}

TEST(Predictor, NeedsItsDescription) {
  const Trained iris(IrisJob(), {{"iris.csv", kIrisRows}});
  const std::string file = iris.dir / "out/model.preprocess.pbtxt";
  const std::string text = ReadFile(file);
  WriteFileAtomic(file, text + "input { column: \"data\" var: \"flowr\" }\n");
  ExpectContains(ErrorOf([&] { Predictor{iris.model}; }),
                 "the model has no input 'flowr'; did you mean flower?");
  WriteFileAtomic(file, text + "output { var: \"pro\" }\n");
  ExpectContains(ErrorOf([&] { Predictor{iris.model}; }), "the model has no output 'pro'");
  WriteFileAtomic(file, "version: 2\n" + text.substr(text.find("csv")));
  ExpectContains(ErrorOf([&] { Predictor{iris.model}; }), ":1:1: version 2 is not known");
  std::filesystem::remove(file);
  ExpectContains(ErrorOf([&] { Predictor{iris.model}; }),
                 "has no description of its preprocessing");
}

// No description is better than one that gives other values than the job's tests have.
TEST(Predictor, WhatHasNoDescription) {
  const auto described = [](const std::string& header, const std::string& fields) {
    const Trained trained(R"(name: "m" model_text: "data { name: 'x' shape: [-1, 1, 1, 2] } "
"layer { fc { input: 'x' size: 1 output: 'y' } } layer { mean { input: 'y' output: 'loss' } }"
train { csv { file: "t.csv" header: true shape: [1, 1, 2] } )" +
                              fields + R"( }
bind { column: "data" var: "x" } batch_size: 2 max_iter: 1 deploy { input: "x" output: "y" })",
                          {{"t.csv", header + "\n1,2,0\n3,4,1\n"}});
    return FileExists(trained.dir / "out/model.preprocess.pbtxt");
  };
  EXPECT_TRUE(described("a,b,label", ""));
  EXPECT_TRUE(described("a,b,label", "transform { noise: 0.1 mirror: true }"));
  EXPECT_FALSE(described("a,b,label", "transform { scale: 0.5 }"));
  EXPECT_FALSE(described("a,b,label", "transform { mean_value: 2 }"));
  EXPECT_FALSE(described(",b,label", ""));   // a column without a name
  EXPECT_FALSE(described("a,a,label", ""));  // two of one name
  EXPECT_TRUE(described("a,b,", ""));        // the label needs none
  const Trained larger(R"(name: "d" model_text: "data { name: 'image' shape: [-1, 1, 32, 32] } "
"layer { fc { input: 'image' size: 1 output: 'y' } } layer { mean { input: 'y' output: 'loss' } }"
train { digits { count: 10 } transform { pad: 4 crop_size: 32 } }
batch_size: 5 max_iter: 1 deploy { input: "image" output: "y" })");
  EXPECT_FALSE(FileExists(larger.dir / "out/model.preprocess.pbtxt"));
}

TEST(Predictor, RefusesWhatFloat32CannotHold) {
  std::string job = IrisJob();
  job.insert(job.find("label_kind"), "standardize: true ");
  const Trained iris(job, {{"iris.csv", kIrisRows}});
  const Predictor predictor(iris.model);
  const std::string error = ErrorOf([&] {
    predictor.Predict(Numbers({"3.4e38", "3.5", "1.4", "0.2"}));
  });
  EXPECT_TRUE(error.starts_with("row 0: column '0': float32 cannot hold ('3.4e38' - ")) << error;
}

}  // namespace coracle::predictor_test
