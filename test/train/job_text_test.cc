#include <coracle/framework/base/file.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/text_block.h>

#include <random>

namespace coracle::job_text_test {

constexpr const char* kJob = R"(# a job
name: "small"
model: "net.pbtxt"
train { digits { count: 100 seed: 3 } }
test { csv { file: "t.csv" header: true label_kind: CLASS class: "a" class: "b" fill: 1 } limit: 7 }
bind { column: "data" var: "image" }
data_dir: "data"
loss: "cost"
metric { var: "acc" name: "accuracy" }
metric { var: "top5" }
optimizer { momentum { learning_rate: 0.5 use_nesterov: true } }
batch_size: 16
epochs: 2
snapshot_interval: 10
random_seed: 77
shuffle: false
deploy { input: "image" output: "prob" }
)";

TEST(JobText, EveryFieldArrives) {
  JobConfig job = ParseJobText(kJob, "dir/small.pbtxt", "dir");
  CheckJob(job);
  EXPECT_EQ(job.name, "small");
  EXPECT_EQ(job.model, "net.pbtxt");
  ASSERT_TRUE(std::holds_alternative<DigitsOptions>(job.train.source));
  EXPECT_EQ(std::get<DigitsOptions>(job.train.source).count, 100);
  EXPECT_EQ(std::get<DigitsOptions>(job.train.source).seed, 3u);
  const auto& csv = std::get<CsvOptions>(job.test.source);
  EXPECT_EQ(csv.file, "t.csv");
  EXPECT_TRUE(csv.header);
  EXPECT_EQ(csv.label_kind, CsvLabel::kClass);
  EXPECT_EQ(csv.classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(csv.fill, 1.0f);
  EXPECT_EQ(job.test.limit, 7);
  EXPECT_EQ(job.bind[0].column, "data");
  EXPECT_EQ(job.bind[0].var, "image");
  EXPECT_EQ(job.data_dir, "dir/data");
  EXPECT_EQ(job.loss, "cost");
  ASSERT_EQ(job.metrics.size(), 2u);
  EXPECT_EQ(job.metrics[0].name, "accuracy");
  EXPECT_EQ(job.metrics[1].name, "top5");
  ASSERT_EQ(job.training.optimizers.size(), 1u);
  EXPECT_EQ(job.training.optimizers[0].setting,
            (Setting{"momentum", {{"learning_rate", 0.5}, {"use_nesterov", true}}}));
  EXPECT_EQ(job.batch_size, 16);
  EXPECT_EQ(job.epochs, 2);
  EXPECT_EQ(job.max_iter, 0);
  EXPECT_EQ(job.snapshot_interval, 10);
  EXPECT_EQ(job.random_seed, 77u);
  EXPECT_FALSE(job.shuffle);
  EXPECT_EQ(job.deploy_inputs, std::vector<std::string>{"image"});
  EXPECT_EQ(job.deploy_outputs, std::vector<std::string>{"prob"});
  EXPECT_EQ(job.output_dir, "output/small");
  EXPECT_EQ(job.SnapshotDirectory(), "output/small/snapshots");
  EXPECT_EQ(job.text, kJob);
}

TEST(JobText, EveryFieldHasItsPlace) {
  const JobConfig job = ParseJobText(kJob, "j.pbtxt");
  EXPECT_EQ(job.Place("model"), "j.pbtxt:3:1");
  EXPECT_EQ(job.Place("test.csv.file"), "j.pbtxt:5:14");
  EXPECT_EQ(job.Place("metric[1].var"), "j.pbtxt:10:10");
  EXPECT_EQ(job.Place("carry[0]"), "j.pbtxt:1:1");  // not given
  EXPECT_EQ(JobConfig().Place("loss"), "job");
}

TEST(JobText, NameComesFromTheFile) {
  TempDir dir;
  WriteFileAtomic(dir / "my_job.pbtxt", "model: \"m\"");
  JobConfig job = ReadJob(dir / "my_job.pbtxt");
  EXPECT_EQ(job.name, "my_job");
  EXPECT_EQ(job.directory, dir.path());
}

std::string TextError(const std::string& text) {
  return ErrorOf([&] { ParseJobText(text, "j.pbtxt"); });
}

// They are multiplied, and lists are made for them.
TEST(JobText, NumbersThatNoRunReaches) {
  for (const char* field : {"average_loss", "iter_size"}) {
    const std::string text =
        "model: \"m\" loss: \"l\" max_iter: 1 train { digits {} }\n" + std::string(field);
    EXPECT_NO_THROW(CheckJob(ParseJobText(text + ": 1000000", "j.pbtxt")));
    EXPECT_EQ(
        ErrorOf([&] { CheckJob(ParseJobText(text + ": 1000000000000000000", "j.pbtxt")); }),
        "j.pbtxt:2:1: " + std::string(field) + " must be at most 1000000, got 1000000000000000000");
  }
}

// The error names what is not closed, not only what comes next.
TEST(JobText, BracesThatAreNotClosed) {
  EXPECT_EQ(
      TextError("optimizer { sgd { }\ntrain { digits { } }"),
      "j.pbtxt:2:1: train: no such field in optimizer, but in a job: is the brace of optimizer "
      "at j.pbtxt:1:1 closed?");
  EXPECT_EQ(TextError("# {\noptimizer { sgd { learning_rate: 1\nbatch_size: 3"),
            "j.pbtxt:3:1: batch_size: no such field in sgd, but in a job: is the brace of sgd at "
            "j.pbtxt:2:13 closed?");
  const std::string end = TextError("train { digits { count: 3 }\n");
  EXPECT_NE(end.find("is a closing brace missing? The brace of train at j.pbtxt:1:1 is open"),
            std::string::npos)
      << end;
}

TEST(JobText, FieldsThatThereAreAreListed) {
  const std::string optimizer = TextError("optimizer { zzzzzz { } }");
  EXPECT_NE(optimizer.find("zzzzzz: no such field in optimizer; it has "), std::string::npos);
  EXPECT_NE(optimizer.find("one from your own library needs --op_library"), std::string::npos)
      << optimizer;
  EXPECT_EQ(TextError("train { csv { file: 'a.csv' class: ['a', 'b'] } }"),
            "j.pbtxt:1:29: class names classes, which only label_kind: CLASS has");
}

TEST(JobText, ErrorsSayPositionAndNearestName) {
  EXPECT_EQ(TextError("model: \"m\"\n  batch_sise: 3"),
            "j.pbtxt:2:3: batch_sise: no such field in a job; did you mean batch_size?");
  EXPECT_EQ(TextError("optimizer {\n momentum { lerning_rate: 1 } }"),
            "j.pbtxt:2:13: lerning_rate: no such field in momentum; did you mean learning_rate?");
  EXPECT_EQ(TextError("\t\toptimizr {").substr(0, 12), "j.pbtxt:1:3:");
  EXPECT_EQ(TextError("\n\tbatch_size: 0"), "j.pbtxt:2:2: batch_size must be at least 1, got 0");
  EXPECT_EQ(TextError("\nbatch_size: 0"), "j.pbtxt:2:1: batch_size must be at least 1, got 0");
  ExpectContains(TextError("batch_size: many"), "j.pbtxt:1:13: ");
  ExpectContains(TextError("batch_size: 1 batch_size: 2"), "j.pbtxt:1:15: ");
  ExpectContains(TextError("train { digits {} idx {} }"), "j.pbtxt:1:19: ");
  EXPECT_EQ(TextError("\n train { }"),
            "j.pbtxt:2:2: train has no data; give it one of digits, idx, csv, npz, text, lmdb, "
            "leveldb, pictures");
  EXPECT_EQ(TextError("train {\n idx { images: \"x\" } }"), "j.pbtxt:2:2: idx needs labels");
  EXPECT_EQ(TextError("train { csv { file: \"x\"\n delimiter: \"ab\" } }").substr(0, 12),
            "j.pbtxt:2:2:");
  EXPECT_EQ(TextError("bind { column: \"x\" var: \"x\" }\nbind { column: \"y\" }"),
            "j.pbtxt:2:1: bind needs var");
  EXPECT_EQ(TextError("optimizer { sgd { learning_rate: -1 } }"),
            "j.pbtxt:1:19: sgd: learning_rate must be finite and not negative, got -1");
  ExpectContains(TextError("optimizer { adam { beta1: nan } }"),
                 "beta1 must lie in [0, 1), got nan");
  EXPECT_EQ(TextError("train { digits { count: 5 }"),
            "j.pbtxt:1:28: expected identifier, got the end of the text; is a closing brace "
            "missing? The brace of train at j.pbtxt:1:1 is open");
  // Kinds that other tests register may follow.
  ExpectContains(TextError("\n optimizer { }"),
                 "j.pbtxt:2:2: optimizer has no kind; give it one of sgd, momentum, "
                 "lars_momentum, lion, dpsgd, proximal_gd, proximal_adagrad, adam, adamw, adamax, "
                 "lamb, adagrad, decayed_adagrad, adadelta, rmsprop, ftrl, ");
  EXPECT_EQ(TextError("name: \"m\"\nlayer { }"),
            "j.pbtxt:2:1: layer: no such field in a job; this is a model text: name it in a job's "
            "model");
  ExpectContains(TextError("deploy { input: \"x\" }"), "deploy needs both");
  ExpectContains(TextError("model: \"a\" model_text: \"b\""), "cannot both");
  ExpectContains(TextError("model: \"unended"), "j.pbtxt:1:");
  ExpectContains(TextError(std::string(100000, '{')), "j.pbtxt:1:");
  ExpectContains(TextError("train { npz { file: \"x\" column { name: \"a\" } } }"),
                 "column needs key");
}

TEST(JobText, Recompute) {
  EXPECT_FALSE(ParseJobText("model: \"m\"").recompute.enabled());
  const JobConfig named = ParseJobText("recompute { checkpoint: \"a\" checkpoint: \"b\" }");
  EXPECT_EQ(named.recompute.checkpoints, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(named.recompute.memory_budget, 0u);
  EXPECT_EQ(ParseJobText("recompute { memory_mb: 3 }").recompute.memory_budget, 3u << 20);
  EXPECT_EQ(TextError("\n recompute { }"),
            "j.pbtxt:2:2: recompute needs either checkpoint or memory_mb");
  EXPECT_EQ(TextError("\n recompute { checkpoint: \"a\" memory_mb: 3 }"),
            "j.pbtxt:2:2: recompute needs either checkpoint or memory_mb");
  ExpectContains(TextError("recompute {\n memory_mb: 0 }"), "j.pbtxt:2:2: memory_mb must be in [1");
}

TEST(JobText, ChangedBytesNeverCrash) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = kJob;
    for (int k = 0; k < 3; ++k) {
      size_t at = random() % text.size();
      if (random() % 2) {
        text[at] = static_cast<char>(random());
      } else {
        text.erase(at, random() % 20);
      }
    }
    try {
      ParseJobText(text, "j.pbtxt");
    } catch (const Error& e) {
      EXPECT_EQ(e.message().substr(0, 7), "j.pbtxt") << e.message();
    }
  }
}

TEST(Job, CheckFindsWhatTextCannot) {
  JobConfig job = ParseJobText(kJob, "j.pbtxt");
  JobConfig bad = job;
  bad.epochs = 0;
  ExpectContains(ErrorOf([&] { CheckJob(bad); }), "no end");
  bad = job;
  bad.model.clear();
  ExpectContains(ErrorOf([&] { CheckJob(bad); }), "no model");
  bad = job;
  bad.train = {};
  ExpectContains(ErrorOf([&] { CheckJob(bad); }), "no training data");
  bad = job;
  bad.display = 0;
  ExpectContains(ErrorOf([&] { CheckJob(bad); }), "display");
}

TEST(Job, DataDirOverridesTheJobsDirectory) {
  TempDir dir;
  WriteFileAtomic(dir / "job/a.csv", "1,2\n");
  WriteFileAtomic(dir / "data/a.csv", "1,2\n3,4\n");
  JobConfig job = ParseJobText("train { csv { file: \"a.csv\" } }", "j", dir / "job");
  EXPECT_EQ(OpenTrainData(job)->size(), 1);
  EXPECT_TRUE(job.TestSets().empty());
  job.data_dir = dir / "data";
  EXPECT_EQ(OpenTrainData(job)->size(), 2);
}

TEST(JobText, IsToldFromModelText) {
  for (const char* job : {"model: \"m\"", "name: \"data\" train { }", "# layer\nbatch_size: 3",
                          "name: layer optimizer { sgd {} }"})
    EXPECT_TRUE(LooksLikeJob(job)) << job;
  for (const char* other : {"", "layer { fc { } }", "name: \"train\" data { }", "blocks { idx: 0 }",
                            "{ train", "\"", "name: \"m\"", "\x01\x02", "}} model: 1"})
    EXPECT_FALSE(LooksLikeJob(other)) << other;
}

// A model may be one block of the job; its errors have the job's lines.
TEST(JobText, TheModelMayBeOneQuotedBlock) {
  const std::string model =
      "\ndata { name: \"x\" shape: [-1, 2] }  # isn\\'t \"escaped\"\nlayer { mean { input: \"x\" } "
      "}\n";
  const std::string begin = "# a job's \"text\"\nname: 'j'\nmodel_text: ", end = "\nepochs: 3\n";
  const JobConfig triple = ParseJobText(begin + "\"\"\"" + model + "\"\"\"" + end, "j.pbtxt");
  EXPECT_EQ(triple.model_text, "\n\n" + model);
  EXPECT_EQ(triple.epochs, 3);
  std::string escaped = model;
  escaped.replace(escaped.find("\\'"), 2, "\\'");
  const JobConfig single = ParseJobText(begin + "'" + escaped + "'" + end, "j.pbtxt");
  std::string plain = model;
  plain.replace(plain.find("\\'"), 2, "'");
  EXPECT_EQ(single.model_text, "\n\n" + plain);
  const JobConfig lines = ParseJobText("model_text: 'a'\n  \"b\"\nepochs: 3", "j.pbtxt");
  EXPECT_EQ(lines.model_text, "ab");
  // Other places keep theirs.
  EXPECT_EQ(ErrorOf([&] {
              ParseJobText(begin + "\"\"\"" + model + "\"\"\"\nepocs: 3", "j.pbtxt");
            }).substr(0, 27),
            "j.pbtxt:7:1: epocs: no such");
  EXPECT_EQ(TextError("model_text: 'a\nb").substr(0, 9), "j.pbtxt:1");
  EXPECT_EQ(TextError("name: \"a\nmodel_text: \"b\"\n").substr(0, 9), "j.pbtxt:1");
}

TEST(JobText, EarlyStopMayRepeatWhatBestWatches) {
  const std::string metric = "metric { var: \"a\" name: \"acc\" } ";
  const JobConfig job =
      ParseJobText(metric +
                       "best { metric: \"acc\" min_delta: 0.1 } "
                       "early_stop { metric: \"acc\" min_delta: 0.1 patience: 4 }",
                   "j.pbtxt");
  EXPECT_EQ(job.early_stop->watch.metric, "acc");
  EXPECT_EQ(job.early_stop->patience, 4);
  ExpectContains(TextError(metric + "best { } early_stop { metric: \"acc\" }"),
                 "metric is not that of best");
}

TEST(JobText, SplitsAndColumnsArrive) {
  const JobConfig job = ParseJobText(
      "train { csv { file: \"a.csv\" column { name: \"b\" fill: 1 mean: 2 scale: 3 }\n"
      "column { name: \"c\" category: \"x\" category: \"y\" ids: \"i\" }\n"
      "column { name: \"d\" sequence: \"s\" } }\n"
      "split { holdout: 0.2 seed: 9 } } non_finite_loss: SKIP",
      "j.pbtxt");
  EXPECT_EQ(job.train.split, (SplitConfig{0.2, 9}));
  EXPECT_EQ(job.training.non_finite_loss, NonFiniteLoss::kSkip);
  const auto& columns = std::get<CsvOptions>(job.train.source).columns;
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[2].sequence, "s");
  const auto error = [](const std::string& column) {
    return TextError("train { csv { file: \"a.csv\" column { name: \"b\" " + column + " } } }");
  };
  ExpectContains(error("sequence: \"\""), "must name the new column");
  ExpectContains(error("sequence: \"s\" fill: 1"), "does not apply to sequences");
  ExpectContains(error("category: \"x\" ids: \"i\" sequence: \"s\""), "do not go together");
  EXPECT_EQ(columns[0].fill, 1.f);
  EXPECT_EQ(columns[0].mean, 2.f);
  EXPECT_EQ(columns[0].scale, 3.f);
  EXPECT_EQ(columns[1].categories, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(columns[1].ids, "i");
  EXPECT_FALSE(columns[1].fill.has_value());
}

// A comment between a field and its text changes nothing, nor does white space.
TEST(JobText, ModelTextsAfterCommentsAndSpace) {
  const std::string model = "data { name: \"x\" shape: [-1, 4] }\n";
  const BlockedText plain =
      SplitBlock("a: 1\nmodel_text: \"\"\"\n" + model + "\"\"\"", "model_text");
  EXPECT_EQ(plain.first_line, 2);
  const BlockedText apart = SplitBlock(
      "a: 1\nmodel_text  # 'it'\n :\t# \"so\"\n\n \"\"\"\n" + model + "\"\"\"", "model_text");
  EXPECT_EQ(apart.first_line, 5);
  ExpectContains(apart.text, "\\\"x\\\"");
  // A value that is not such a field keeps its quotes; a missing end keeps its line.
  for (const char* text :
       {"model_texts: \"a\"", "xmodel: 'a'", "a: \"b\nc: 'd'\n", "\"", "model_text: '"})
    EXPECT_EQ(SplitBlock(text, "model_text").text, text);
}

TEST(JobText, NamesDoNotLeadOutOfOutput) {
  EXPECT_EQ(ParseJobText("name: \"a/b\"").output_dir, "output/a/b");
  EXPECT_EQ(ParseJobText("name: \"..\" output_dir: \"here\"").output_dir, "here");
  for (const char* name : {"..", "../x", "a/../../x", "/tmp/x", ".", ""}) {
    EXPECT_EQ(TextError("\nname: \"" + std::string(name) + "\""),
              "j.pbtxt:2:1: the name '" + std::string(name) +
                  "' makes no directory in output; give another, or an output_dir");
  }
}

TEST(JobText, WordsOfEnums) {
  const JobConfig job = ParseJobText(
      "signal { sigint: NONE sigterm: SNAPSHOT sighup: STOP } non_finite_loss: WARN\n"
      "metric { var: \"a\" } metric { var: \"p\" kind: AUC label: \"l\" }");
  EXPECT_EQ(job.signals.interrupt, SignalEffect::kNone);
  EXPECT_EQ(job.signals.terminate, SignalEffect::kSnapshot);
  EXPECT_EQ(job.signals.hangup, SignalEffect::kStop);
  EXPECT_EQ(job.training.non_finite_loss, NonFiniteLoss::kWarn);
  EXPECT_EQ(job.metrics[0].kind, MetricKind::kMean);
  EXPECT_EQ(job.metrics[1].kind, MetricKind::kAuc);
}

// A job with default settings in its text is the job that a program makes.
TEST(JobText, DefaultsAreTheStructs) {
  const JobConfig text = ParseJobText(
      "train { csv { file: \"a\" } } distribute { } signal { } log { } best { } early_stop { }");
  const JobConfig made;
  EXPECT_EQ(text.batch_size, made.batch_size);
  EXPECT_EQ(text.test_batch_size, made.test_batch_size);
  EXPECT_EQ(text.max_iter, made.max_iter);
  EXPECT_EQ(text.max_seconds, made.max_seconds);
  EXPECT_EQ(text.random_seed, made.random_seed);
  EXPECT_EQ(text.distribute.bucket_mb, made.distribute.bucket_mb);
  EXPECT_EQ(text.signals.hangup, made.signals.hangup);
  EXPECT_EQ(text.log.json, made.log.json);
  EXPECT_EQ(text.early_stop->patience, EarlyStopConfig().patience);
  EXPECT_EQ(std::get<CsvOptions>(text.train.source).delimiter, ',');
  EXPECT_EQ(std::get<CsvOptions>(text.train.source).scale, 1.f);
}

TEST(JobText, NumbersOf64BitsArrive) {
  const JobConfig job = ParseJobText("random_seed: 18446744073709551615");
  EXPECT_EQ(job.random_seed, 18446744073709551615u);
}

// The goal follows from the kind of the metric, also for a job without a text.
TEST(Job, GoalsOfMetrics) {
  JobConfig job;
  job.metrics = {{.var = "p", .name = "top", .kind = MetricKind::kAccuracy, .label = "l"}};
  EXPECT_EQ(GoalOf(job, {.metric = "top"}), WatchGoal::kMaximize);
  EXPECT_EQ(GoalOf(job, {.metric = "rotated/top"}), WatchGoal::kMaximize);
  EXPECT_EQ(GoalOf(job, {.metric = "auc"}), WatchGoal::kMaximize);
  EXPECT_EQ(GoalOf(job, {.metric = ""}), WatchGoal::kMinimize);
  EXPECT_EQ(GoalOf(job, {.metric = "top", .goal = WatchGoal::kMinimize}), WatchGoal::kMinimize);
  const JobConfig text = ParseJobText("best { metric: \"acc\" } early_stop { goal: MAXIMIZE }");
  EXPECT_EQ(text.best->watch.goal, WatchGoal::kMaximize);
}

// Those who use the printed schema with protoc rely on the numbers.
TEST(JobText, SchemaKeepsItsNumbers) {
  const std::string schema = JobSchema();
  for (const char* line :
       {" carry = 26;", " loss = 8 [default = \"loss\"];", " batch_size = 11 [default = 64];",
        " output_dir = 20;", " uint64 random_seed = 21 [default = 1];", " distribute = 29;",
        " clip_statistics = 55 [default = true];", " mixed_precision = 60;",
        " clip_before_average = 72 [default = false];", " optimizer = 1049;", " lookahead = 1051;",
        " loss_scaling = 1009;", " limit = 11;", " transform = 13;", " label = 41;"})
    ExpectContains(schema, line);
}

}  // namespace coracle::job_text_test
