// Texts as data, states carried from batch to batch, and text written by a trained model.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/options.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/tools/generate_text.h>
#include <coracle/train/data/text_source.h>
#include <coracle/train/log/progress.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

namespace coracle::text_test {

using tools::GenerateOptions, tools::GenerateProgram, tools::GenerateText,
    tools::MakeGenerateProgram;

// Words whose letters depend on letters further back.
std::string SampleText(size_t characters) {
  const char* const words[] = {"abab ", "cdcd ", "abcd ", "ddaa "};
  std::string text;
  for (uint32_t x = 1; text.size() < characters; x = x * 1664525u + 1013904223u)
    text += words[x >> 30];
  text.resize(characters);
  return text;
}

constexpr const char* kModel = R"(
data  { name: "text" shape: [-1, -1] dtype: INT64 }
data  { name: "next" shape: [-1, -1, 1] dtype: INT64 }
data  { name: "h0" shape: [2, -1, 12] }
data  { name: "c0" shape: [2, -1, 12] }
layer { embedding { input: "text" num_embeddings: 5 embedding_dim: 4 output: "e" } }
layer { lstm { input: "e" hidden_size: 12 num_layers: 2 dropout: 0.1 initial_h: "h0" initial_c: "c0"
               last_h: "h1" last_c: "c1" output: "y" } }
layer { fc { input: "y" size: 5 num_flatten_dims: 2 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "next" output: "nats" } }
layer { mean { input: "nats" output: "loss" } }
)";

class Text : public ::testing::Test {
 protected:
  void SetUp() override { WriteFileAtomic(dir_ / "text.txt", SampleText(2000)); }

  JobConfig Job() const {
    JobConfig job;
    job.name = "text";
    job.model_text = kModel;
    job.data_dir = dir_.path();
    job.train.source = TextOptions{.file = "text.txt", .sequence_length = 9};
    job.test.source = TextOptions{.file = "text.txt", .sequence_length = 10};
    job.carry = {{"h1", "h0"}, {"c1", "c0"}};
    job.shuffle = false;
    job.training.optimizers = {AdamOptions{.learning_rate = 0.01}};
    job.training.optimizers[0].gradient_clip = ClipGradByGlobalNorm(1);
    job.batch_size = 8;  // 1799 characters to predict: 24 steps
    job.test_batch_size = 5;
    job.epochs = 2;
    job.display = 7;
    job.loss_name = "nats";
    job.text = "# a text\n";
    job.deploy_inputs = {"text"};
    job.deploy_outputs = {"logits"};
    return job;
  }

  TempDir dir_;
};

std::vector<double> Losses(const JobConfig& job, const TrainOptions& options = {},
                           int64_t stop_at = -1, TrainResult* result = nullptr) {
  std::vector<double> losses;
  int64_t step = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    step = report.step;
    losses.push_back(report.loss);
  };
  callbacks.stop = [&] { return step == stop_at; };
  TrainResult run = RunJob(job, options, callbacks);
  if (result) *result = std::move(run);
  return losses;
}

TrainOptions Resume() {
  TrainOptions options;
  options.resume = true;
  return options;
}

TEST(VocabularyTest, CharactersInOrder) {
  const Vocabulary v = Vocabulary::Of("b\xC3\xA9 a\xF0\x9F\x98\x80\nba", "t");
  EXPECT_EQ(6, v.size());
  EXPECT_EQ((std::vector<int64_t>{3, 4, 1, 2, 5, 0}),
            v.Encode("b\xC3\xA9 a\xF0\x9F\x98\x80\n", "t"));
  EXPECT_EQ("\xC3\xA9", v.Character(4));
  EXPECT_EQ("t: the character 'c' at byte 2 is not in the vocabulary",
            ErrorOf([&] { v.Encode("abc", "t"); }));
  EXPECT_EQ("the vocabulary has 6 characters, not one of number 6",
            ErrorOf([&] { v.Character(6); }));
  for (const char* bad :
       {"ab\x80", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xE2\x82"})
    EXPECT_EQ("t: byte 2 is not UTF-8", ErrorOf([&] { Vocabulary::Of(bad, "t"); })) << bad;
}

TEST(VocabularyTest, AsAFile) {
  TempDir dir;
  const Vocabulary v = Vocabulary::Of("a\"\n\xC3\xA9\\", "t");
  WriteFileAtomic(dir / "v.json", v.ToJson());
  EXPECT_TRUE(v == Vocabulary::Read(dir / "v.json"));
  const std::string deep(10'000'000, '[');
  for (const char* bad :
       {deep.c_str(), "", "[]",
        "{\"format\": \"coracle vocabulary\", \"version\": 2, \"characters\": []}",
        "{\"format\": \"coracle vocabulary\", \"version\": 1}",
        "{\"format\": \"coracle vocabulary\", \"version\": 1, \"characters\": [\"ab\"]}",
        "{\"format\": \"coracle vocabulary\", \"version\": 1, \"characters\": [\"a\", 1]}",
        "{\"format\": \"coracle vocabulary\", \"version\": 1, \"characters\": [\"a\", \"a\"]}"}) {
    WriteFileAtomic(dir / "v.json", bad);
    ExpectContains(ErrorOf([&] { Vocabulary::Read(dir / "v.json"); }),
                   "not a vocabulary: " + dir / "v.json");
  }
}

TEST(TextSourceTest, StreamsContinueRowByRow) {
  TempDir dir;
  WriteFileAtomic(dir / "t", "abcdefghijklmnopqrstuvwxyz");
  TextOptions options{.file = dir / "t", .sequence_length = 3, .holdout = 0.25};
  const TextSource train(options, TextPart::kTrain, 2);
  // "abcdefghijklmnopqrs": 18 to predict, two streams of nine.
  ASSERT_EQ(6, train.size());
  EXPECT_EQ(2, train.streams());
  EXPECT_EQ(26, train.vocabulary()->size());
  std::vector<Tensor> out = {Tensor(DType::kInt64, {6, 3}), Tensor(DType::kInt64, {6, 3, 1})};
  const std::vector<int64_t> rows = {0, 1, 2, 3, 4, 5};
  train.Get(rows, out);
  auto decode = [&](const Tensor& t) {
    std::string text;
    for (int64_t id : t.span<int64_t>()) text += train.vocabulary()->Character(id);
    return text;
  };
  EXPECT_EQ("abcjkldefmnoghipqr", decode(out[0]));
  EXPECT_EQ("bcdklmefgnophijqrs", decode(out[1]));
  EXPECT_THROW(train.Get(std::vector<int64_t>{6}, out), Error);

  // The held-out end, its first character predicted from the last before it.
  const TextSource test(options, TextPart::kTest, 1);
  ASSERT_EQ(2, test.size());
  test.Get(std::vector<int64_t>{0, 1}, out);
  EXPECT_EQ("stuvwx", decode(out[0]).substr(0, 6));
  EXPECT_EQ("tuvwxy", decode(out[1]).substr(0, 6));
}

TEST(TextSourceTest, NothingOfTheEndIsTrainedOn) {
  TempDir dir;
  std::string text(1000, 'a');
  std::fill(text.begin() + 900, text.end(), 'b');
  WriteFileAtomic(dir / "t", text);
  for (int64_t streams : {1, 7, 50}) {
    const TextSource train({.file = dir / "t", .sequence_length = 4}, TextPart::kTrain, streams);
    std::vector<int64_t> rows(static_cast<size_t>(train.size()));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    std::vector<Tensor> out = {Tensor(DType::kInt64, {train.size(), 4}),
                               Tensor(DType::kInt64, {train.size(), 4, 1})};
    train.Get(rows, out);
    for (const Tensor& t : out)
      for (int64_t id : t.span<int64_t>()) ASSERT_EQ(0, id);
    EXPECT_GE(train.size() * 4, 899 - streams * 4);
  }
}

TEST(TextSourceTest, Errors) {
  TempDir dir;
  WriteFileAtomic(dir / "t", "abcdefghij");
  ExpectContains(
      ErrorOf([&] { TextSource({.file = dir / "t", .sequence_length = 5}, TextPart::kTrain, 2); }),
      "t: its training part has 8 characters to predict, too few for 2 streams of 5");
  ExpectContains(
      ErrorOf([&] { TextSource({.file = dir / "t", .holdout = 0}, TextPart::kTest, 1); }),
      "its test part has 0 characters to predict");
  ExpectContains(ErrorOf([&] { TextSource({.file = dir / "none"}, TextPart::kTrain, 1); }), "none");
  WriteFileAtomic(dir / "other", "xyz");
  ExpectContains(ErrorOf([&] {
                   TextSource({.file = dir / "other", .vocabulary_text = dir / "t"},
                              TextPart::kTrain, 1);
                 }),
                 "other: the character 'x' at byte 0 is not in the vocabulary");
}

TEST_F(Text, JobText) {
  const JobConfig job = ParseJobText(R"(model: "m.pbtxt" epochs: 1
train { text { file: "a.txt" sequence_length: 32 holdout: 0.2 vocabulary: "v.json" } }
carry { from: "h1" to: "h0" }
loss_name: "nats"
optimizer { sgd { learning_rate: 1 } gradient_clip { by_value { max: 2 } } })");
  const auto& text = std::get<TextOptions>(job.train.source);
  EXPECT_EQ("a.txt", text.file);
  EXPECT_EQ(32, text.sequence_length);
  EXPECT_EQ(0.2, text.holdout);
  EXPECT_EQ("v.json", text.vocabulary);
  EXPECT_FALSE(job.shuffle);
  ASSERT_EQ(1u, job.carry.size());
  EXPECT_EQ("h1", job.carry[0].from);
  EXPECT_EQ("nats", job.loss_name);
  EXPECT_EQ((Setting{"by_value", {{"max", 2.0}}}),
            job.training.optimizers[0].gradient_clip);  // min: -2
  EXPECT_EQ(ClipGradByGlobalNorm(3).kind,
            ParseJobText("optimizer { sgd { } gradient_clip { by_global_norm { clip_norm: 3 } } }")
                .training.optimizers[0]
                .gradient_clip->kind);

  const std::pair<const char*, const char*> errors[] = {
      {"train { text { } }", "job:1:9: text needs file"},
      {"train { text { file: 't' sequence_length: 0 } }",
       "job:1:26: sequence_length must be at least 1, got 0"},
      {"train { text { file: 't' holdout: 1.5 } }", "job:1:26: holdout must be in [0, 1], got 1.5"},
      {"train { text { file: 't' } first: 3 }",
       "job:1:28: first does not apply to a text; its holdout divides it"},
      {"train { text { fil: 't' } }", "job:1:16: fil: no such field in text; did you mean file?"},
      {"carry { from: 'a' }", "job:1:1: carry needs to"},
      {"carry { from: 'a' to: 'b' }\nshuffle: true",
       "job:2:1: shuffle must be false where states are carried: rows follow one another"},
      {"optimizer { sgd {} gradient_clip { by_norm { } } }", "job:1:36: by_norm needs clip_norm"},
      {"optimizer { sgd {} gradient_clip { by_norm { clip_norm: -1 } } }",
       "job:1:46: gradient clip by_norm: clip_norm must be positive and finite, got -1"},
      {"optimizer { sgd {} gradient_clip { adaptive { axis: -1 } } }",
       "job:1:47: gradient clip adaptive: axis must not be negative, got -1"},
  };
  for (const auto& [job_text, message] : errors)
    EXPECT_EQ(message, ErrorOf([&, t = job_text] { ParseJobText(t); }));

  // Kinds that other tests register follow these kinds.
  const std::pair<const char*, const char*> lists[] = {
      {"optimizer { sgd {} gradient_clip { } }",
       "job:1:20: gradient_clip has no kind; give it one of by_value, by_norm, by_global_norm, "
       "adaptive, "},
      {"optimizer { sgd {} gradient_clip { custom { type: 'by_norn' } } }",
       "job:1:36: gradient clip: unknown kind 'by_norn'; did you mean by_norm?; known: adaptive, "
       "by_global_norm, by_norm, by_value, "},
  };
  for (const auto& [job_text, message] : lists)
    EXPECT_EQ(0u, ErrorOf([&, t = job_text] { ParseJobText(t); }).find(message));
}

// With a learning rate of 0 the mean over an epoch's batches, states carried, is that over whole
// streams at once; forgetting the states in between gives another.
TEST_F(Text, CarriedStatesMakeBatchesOneSequence) {
  auto test_loss = [&](int64_t length, bool carry) {
    JobConfig job = Job();
    job.training.optimizers = {SgdOptions{.learning_rate = 0}};
    job.epochs = 0;
    job.max_iter = 1;
    std::get<TextOptions>(job.test.source).sequence_length = length;
    if (!carry) {
      // The states of both layers from a constant instead of from the batch before.
      job.carry.clear();
      for (const char* name : {"h0", "c0"}) {
        const std::string data = std::string("data  { name: \"") + name + "\" shape: [2, -1, 12] }";
        job.model_text.erase(job.model_text.find(data), data.size());
      }
      const std::string initial = "initial_h: \"h0\" initial_c: \"c0\"";
      job.model_text.erase(job.model_text.find(initial), initial.size());
    }
    return RunJob(job).loss;
  };
  const double whole = test_loss(40, true);  // 200 characters, five streams
  EXPECT_NEAR(whole, test_loss(40, false), 1e-7);
  for (int64_t length : {1, 5, 20}) EXPECT_NEAR(whole, test_loss(length, true), 1e-6) << length;
  EXPECT_GT(std::abs(whole - test_loss(5, false)), 1e-5);
}

// In training too, and each epoch begins with zeros: without learning all epochs are the same.
TEST_F(Text, EpochsBeginWithZeros) {
  JobConfig job = Job();
  job.model_text.erase(job.model_text.find("dropout: 0.1 "), 13);
  job.training.optimizers = {SgdOptions{.learning_rate = 0}};
  const std::vector<double> losses = Losses(job);
  ASSERT_EQ(48u, losses.size());
  EXPECT_TRUE(std::equal(losses.begin(), losses.begin() + 24, losses.begin() + 24));
  job.batch_size = 8;
  std::get<TextOptions>(job.train.source).sequence_length = 18;
  const std::vector<double> longer = Losses(job);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(longer[i], (losses[2 * i] + losses[2 * i + 1]) / 2, 1e-6) << i;
}

TEST_F(Text, ResumedEqualsUninterrupted) {
  JobConfig job = Job();
  TrainResult whole, second;
  const std::vector<double> losses = Losses(job, {}, -1, &whole);
  job.snapshot_dir = dir_ / "snapshots";
  for (int64_t stop_at : {5, 24, 31}) {
    std::vector<double> parts = Losses(job, {}, stop_at);
    const std::vector<double> rest = Losses(job, Resume(), -1, &second);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(losses, parts) << "stopped at " << stop_at;
    EXPECT_EQ(whole.loss, second.loss);
    for (const std::string& name : PersistableNames(whole.main))
      EXPECT_TRUE(BitEqual(whole.scope.Get(name), second.scope.Get(name))) << name;
    std::filesystem::remove_all(job.snapshot_dir);
  }
}

TEST_F(Text, SnapshotWithDamagedStatesIsRefused) {
  JobConfig job = Job();
  job.snapshot_dir = dir_ / "snapshots";
  Losses(job, {}, 5);
  const std::string file = job.snapshot_dir + "/step_00000005/carried.npz";
  std::string bytes = ReadFile(file);
  bytes[bytes.size() / 2] ^= 1;
  WriteFileAtomic(file, bytes);
  ExpectContains(ErrorOf([&] { Losses(job, Resume()); }), "carried.npz");
}

TEST_F(Text, LearnsAndSavesWhatGenerateNeeds) {
  JobConfig job = Job();
  job.output_dir = dir_ / "out";
  job.epochs = 30;
  std::ostringstream lines;
  Progress progress(lines, false);
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { progress.Step(report); };
  TrainResult result = RunJob(job, {}, callbacks);
  EXPECT_LT(result.loss, 0.75);  // the words alone have ln(4) / 5 = 0.28 nats per character
  ExpectContains(lines.str(), " nats=");
  EXPECT_EQ("nats=0.5", FormatResults(0.5, {}, "nats"));
  EXPECT_TRUE(Vocabulary::Of("abcd ", "t") == Vocabulary::Read(result.vocabulary_path));

  // The saved evaluation model carries its states too.
  const std::vector<NamedValue> again = EvaluateSavedModel(result.eval_path, job);
  ASSERT_EQ(1u, again.size());
  EXPECT_EQ("nats", again[0].name);
  EXPECT_NEAR(result.loss, again[0].value, 1e-6);

  const GenerateOptions options{.prompt = "abab ", .length = 40, .seed = 3};
  const std::string text = GenerateText(job.output_dir, options);
  EXPECT_EQ(40u, text.size());
  EXPECT_EQ(text, GenerateText(result.model_path, options));
  GenerateOptions other = options;
  other.seed = 4;
  EXPECT_NE(text, GenerateText(job.output_dir, other));
  // A space comes after four letters, nearly always: words of the text are written.
  other.length = 500;
  const std::string longer = GenerateText(job.output_dir, other);
  EXPECT_GT(std::count(longer.begin(), longer.end(), ' '), 70);
  EXPECT_LT(std::count(longer.begin(), longer.end(), ' '), 130);
  other.temperature = 0;
  const std::string likeliest = GenerateText(job.output_dir, other);
  other.seed = 99;
  EXPECT_EQ(likeliest, GenerateText(job.output_dir, other));

  auto error = [&](GenerateOptions o) { return ErrorOf([&] { GenerateText(job.output_dir, o); }); };
  EXPECT_EQ("prompt: the character 'x' at byte 1 is not in the vocabulary",
            error({.prompt = "ax"}));
  EXPECT_EQ("prompt: at least one character is needed to begin with", error({.prompt = ""}));
  ExpectContains(error({.prompt = "a", .length = -1}), "length must be in [0, ");
  EXPECT_EQ("temperature must be finite and not negative, got -1",
            error({.prompt = "a", .temperature = -1}));
  ExpectContains(ErrorOf([&] { GenerateText(dir_.path(), options); }), "has no model.pdmodel");
}

TEST_F(Text, GeneratesNothingFromADamagedProgram) {
  JobConfig job = Job();
  job.output_dir = dir_ / "out";
  job.max_iter = 1;
  RunJob(job, {});
  const std::string path = job.output_dir + "/model.pdmodel";
  ProgramDesc program = ReadProgram(path);
  for (size_t i = 0; i < program.Root().NumOps(); ++i) {
    OpDesc& op = program.Root().op(i);
    if (op.type() == "elementwise_add" || op.type() == "mul") op.SetInput("Y", {"nobody"});
  }
  WriteProgram(program, path);
  ExpectContains(ErrorOf([&] { GenerateText(job.output_dir, {.prompt = "ab"}); }),
                 "reads the var 'nobody', which no block declares");
}

TEST_F(Text, GeneratesNothingFromScoresThatAreNoNumbers) {
  JobConfig job = Job();
  job.output_dir = dir_ / "out";
  RunJob(job, {});
  Scope scope;
  const std::string path = job.output_dir + "/model";
  const InferenceModel model = LoadInferenceModel(path, scope);
  for (const std::string& name : model.program.Parameters()) {
    scope.Set(name, Tensor::Full<float>(scope.Get(name).shape(),
                                        std::numeric_limits<float>::quiet_NaN()));
  }
  SaveInferenceModel(path, model.feed_names, model.fetch_names, model.program, scope);
  for (double temperature : {0.0, 1.0}) {
    const GenerateOptions options{.prompt = "ab", .length = 5, .temperature = temperature};
    ExpectContains(ErrorOf([&] { GenerateText(job.output_dir, options); }),
                   temperature == 0 ? "the model's scores are not numbers" : "nan");
  }
}

// The loop is in the program: nothing but runs of it makes the text.
TEST_F(Text, GenerateIsAWhileProgram) {
  JobConfig job = Job();
  job.output_dir = dir_ / "out";
  job.epochs = 0;
  job.max_iter = 1;
  Scope scope;
  const InferenceModel model = LoadInferenceModel(RunJob(job).model_path, scope);
  auto types = [](const BlockDesc& block) {
    std::string text;
    for (size_t i = 0; i < block.NumOps(); ++i) text += " " + block.op(i).type();
    return text + " ";
  };
  const GenerateProgram drawn = MakeGenerateProgram(model, false);
  ASSERT_EQ(2, drawn.main->NumBlocks());
  ExpectContains(types(drawn.main->Root()), " while ");
  for (const char* op : {" rnn ", " softmax ", " sampling_id ", " less_than "})
    ExpectContains(types(drawn.main->Block(1)), op);
  ExpectContains(types(MakeGenerateProgram(model, true).main->Block(1)), " arg_max ");
  ASSERT_EQ(2u, drawn.states.size());
  EXPECT_EQ("[2, 1, 12]", drawn.states[1].shape().ToString());

  // More than one run's characters are one text: its beginning does not depend on its length.
  GenerateOptions options{.prompt = "ab", .length = 300};
  const std::string longer = GenerateText(job.output_dir, options);
  options.length = 260;
  EXPECT_EQ(longer.substr(0, 260), GenerateText(job.output_dir, options));
}

TEST_F(Text, CarryErrors) {
  auto error = [&](const std::function<void(JobConfig&)>& change) {
    JobConfig job = Job();
    change(job);
    return ErrorOf([&] { RunJob(job); });
  };
  EXPECT_EQ("job: shuffle must be false where states are carried",
            error([](JobConfig& job) { job.shuffle = true; }));
  ExpectContains(error([](JobConfig& job) { job.carry[0].from = "h2"; }),
                 "job: carry 'h2': the model has no such variable; did you mean h");
  ExpectContains(error([](JobConfig& job) { job.carry[0].from = "loss"; }),
                 "cannot be carried to 'h0': it must have the shape [2, -1, 12], got [1]");
  EXPECT_EQ("job: carry to 'c1': it is not an input of the model, or is given twice",
            error([](JobConfig& job) { job.carry[1].to = "c1"; }));
  ExpectContains(error([](JobConfig& job) { job.train.source = DigitsOptions{.count = 100}; }),
                 "job: states can only be carried through a text: the batches of ");
}

}  // namespace coracle::text_test
