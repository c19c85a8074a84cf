// Jobs on pictures, texts and changed images: what tests inherit, resumed runs, ranks.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>

namespace coracle::data_jobs_test {

JobConfig Parse(const std::string& text, const TempDir& dir) {
  return ParseJobText("model: \"m\" max_iter: 1\n" + text, "job.pbtxt", dir.path());
}

std::string JobError(const std::string& text) {
  return ErrorOf([&] { ParseJobText("model: \"m\" max_iter: 1\n" + text, "job.pbtxt"); });
}

std::map<std::string, Tensor> AllOf(const DataSource& source) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < source.size(); ++i) rows.push_back(i);
  std::vector<Tensor> out;
  for (const DataColumn& column : source.columns()) {
    Shape shape{column.sequences ? 0 : source.size()};
    for (const int64_t dim : column.shape) shape.Append(dim);
    out.emplace_back(column.dtype, shape);
  }
  source.Get(rows, out);
  std::map<std::string, Tensor> columns;
  for (size_t c = 0; c < out.size(); ++c) columns[source.columns()[c].name] = out[c];
  return columns;
}

// --- what tests take from the training data ---

TEST(TestData, UsesNumbersOfTheTrainingData) {
  const TempDir dir;
  WriteFileAtomic(dir / "train.csv", "text,n,label\nb b a,1,0\nb,3,1\n");
  WriteFileAtomic(dir / "test.csv", "text,n,label\na b z,4,1\n");
  const JobConfig job = Parse(
      "train { csv { file: \"train.csv\" header: true standardize: true\n"
      "  column { name: \"text\" words { } length: 3 } } balance: WEIGHTS }\n"
      "test { like_train: true csv { file: \"test.csv\" } }\n",
      dir);
  EXPECT_TRUE(std::get<CsvOptions>(job.test.source).header);
  EXPECT_EQ(job.test.balance, ClassBalance::kWeights);
  for (const bool opened : {false, true}) {
    const DataSourcePtr train = OpenTrainData(job);
    const auto test = AllOf(*OpenTestData(job, job.TestSets()[0], opened ? train.get() : nullptr));
    EXPECT_TRUE(BitEqual(test.at("text"), Tensor::Of<int64_t>({1, 3}, {3, 2, 1})));
    EXPECT_TRUE(BitEqual(test.at("data"), Tensor::Of<float>({1, 1}, {2})));  // (4 - 2) / 1
    EXPECT_TRUE(BitEqual(test.at("weight"), Tensor::Of<float>({1, 1}, {1})));
  }
  // Without like_train, a test names its columns, and their numbers are those of training.
  const JobConfig named = Parse(
      "train { csv { file: \"train.csv\" header: true standardize: true\n"
      "  column { name: \"text\" words { } length: 3 } } }\n"
      "test { csv { file: \"test.csv\" header: true\n"
      "  column { name: \"text\" words { } length: 2 } } }\n",
      dir);
  const auto test = AllOf(*OpenTestData(named, named.TestSets()[0]));
  EXPECT_TRUE(BitEqual(test.at("text"), Tensor::Of<int64_t>({1, 2}, {3, 2})));
  EXPECT_TRUE(BitEqual(test.at("data"), Tensor::Of<float>({1, 1}, {2})));
}

// In another order, words would get other numbers, and columns feed other inputs.
TEST(TestData, HasTheOrderOfTheTrainingData) {
  const TempDir dir;
  WriteFileAtomic(dir / "train.csv", "a,b,kind,label\n1,2,p,x\n3,4,q,y\n");
  WriteFileAtomic(dir / "turned.csv", "b,a,kind,label\n2,1,p,x\n");
  WriteFileAtomic(dir / "other.csv", "c,a,kind,label\n2,1,p,x\n");
  const auto open = [&](const std::string& file, const std::string& kinds,
                        const std::string& classes) {
    const auto csv = [](const std::string& name, const std::string& words,
                        const std::string& labels) {
      return "csv { file: \"" + name +
             "\" header: true column { name: \"kind\" category: " + words +
             " } label_kind: CLASS class: " + labels + " }";
    };
    const JobConfig job = Parse("train { " + csv("train.csv", "['p', 'q']", "['x', 'y']") +
                                    " } test { " + csv(file, kinds, classes) + " }",
                                dir);
    OpenTestData(job, job.TestSets()[0]);
  };
  const std::string p = "['p', 'q']", x = "['x', 'y']";
  EXPECT_NO_THROW(open("train.csv", p, x));
  EXPECT_NO_THROW(open("other.csv", p, x));
  EXPECT_NO_THROW(open("train.csv", "['q', 'p', 'r']", x));
  const auto fails = [&](const std::string& file, const std::string& kinds,
                         const std::string& classes, const std::string& end) {
    const std::string text = ErrorOf([&] { open(file, kinds, classes); });
    EXPECT_TRUE(text.ends_with(end)) << text;
  };
  fails("turned.csv", p, x,
        "turned.csv: the columns must have the order of the training data: a, b, kind, not b, a, "
        "kind");
  fails("train.csv", "['q', 'p']", x,
        "category of column 'kind' must have the order of the training data: p, q, not q, p");
  fails("train.csv", p, "['y', 'x']",
        "class must have the order of the training data: x, y, not y, x");
}

// Rows that are held out have no part in the mean.
TEST(TestData, APartOfTheTrainingFile) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += std::to_string(i * i) + ",0\n";
  WriteFileAtomic(dir / "all.csv", lines);
  const JobConfig job = Parse(
      "train { csv { file: \"all.csv\" standardize: true } split { holdout: 0.25 seed: 3 } }\n"
      "test { like_train: true }\n",
      dir);
  const Tensor train = AllOf(*OpenTrainData(job)).at("data");
  const Tensor test = AllOf(*OpenTestData(job, job.TestSets()[0])).at("data");
  ASSERT_EQ(train.numel(), 15);
  ASSERT_EQ(test.numel(), 5);
  double sum = 0, squares = 0;
  for (const float x : train.span<float>()) sum += x, squares += x * x;
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_NEAR(squares / 15, 1, 1e-5);
  // All 20 values are on one line: x = (i * i - mean) * scale.
  const CsvOptions fitted = *OpenTrainData(job)->fitted()->csv;
  std::vector<int> found(400, 0);
  for (const Tensor* part : {&train, &test})
    for (const float x : part->span<float>())
      ++found.at(
          static_cast<size_t>(std::lround(x / *fitted.columns[0].scale + *fitted.columns[0].mean)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(found[static_cast<size_t>(i * i)], 1) << i;
}

TEST(TestData, PicturesHaveTheClassesOfTraining) {
  const TempDir dir;
  const auto picture = [&](const std::string& path, int value) {
    WriteFileAtomic(dir / path, "P2 1 1 255 " + std::to_string(value));
  };
  picture("train/ant/1.pgm", 10);
  picture("train/bee/1.pgm", 30);
  picture("test/bee/1.pgm", 40);
  const std::string train =
      "train { pictures { directory: \"train\" channels: 1 height: 1 width: 1 standardize: true } "
      "transform { rotate: 20 noise: 1 mirror: true } }\n";
  const JobConfig job =
      Parse(train + "test { like_train: true pictures { directory: \"test\" } }", dir);
  const auto test = AllOf(*OpenTestData(job, job.TestSets()[0]));
  EXPECT_TRUE(BitEqual(test.at("label"), Tensor::Of<int64_t>({1, 1}, {1})));
  EXPECT_FLOAT_EQ(test.at("image").Item<float>(), 2);  // (40 - 20) / 10, without noise
  picture("test/cow/1.pgm", 40);
  ExpectContains(ErrorOf([&] { OpenTestData(job, job.TestSets()[0]); }),
                 "test: " + (dir / "test") + ": 'cow' is not one of the classes");
}

TEST(TestData, ErrorsOfTexts) {
  const std::string train = "train { csv { file: \"a.csv\" } }\n";
  ExpectContains(JobError(train + "test { like_train: true }"),
                 "job.pbtxt:3:8: like_train needs a source of its own");
  ExpectContains(JobError(train + "test { like_train: true npz { file: \"b\" } }"),
                 "like_train is for the source of train, which is csv, not npz");
  const std::string twice = "model: \"m\" max_iter: 1\ntrain { like_train: true digits { } }";
  ExpectContains(ErrorOf([&] { OpenTrainData(ParseJobText(twice, "job.pbtxt")); }),
                 "job.pbtxt:2:9: like_train is for test data");
  ExpectContains(JobError("train { csv { file: \"a\" } balance: WEIGHTS class_weight: 1 }"),
                 "balance and class_weight do not go together");
  const auto column = [&](const std::string& fields) {
    return JobError("train { csv { file: \"a\" column { name: \"t\" " + fields + " } } }");
  };
  ExpectContains(column("words { } length: 3 sequence: \"s\""), "length and sequence do not go");
  ExpectContains(column("length: 3"), "length is of words, characters or byte_pairs");
  ExpectContains(column("words { } characters { } length: 3"), "characters and words do not go");
  ExpectContains(column("words { vocabulary: \"v\" size: 9 } length: 3"),
                 "size does not apply to a given vocabulary");
  ExpectContains(column("words { } length: 3 mean: 1"), "mean does not apply to a text");
  ExpectContains(JobError("train { csv { file: \"a\" mean: 1 standardize: true } }"),
                 "mean is what standardize computes");
  ExpectContains(JobError("train { csv { file: \"a\" standardize_label: true } }"),
                 "standardize_label is of real labels");
  ExpectContains(JobError("train { pictures { directory: \"a\" list: \"b\" } }"),
                 "list and directory do not go together");
}

// --- runs ---

// The small job with all random changes of images.
JobConfig AugmentedJob(const std::string& name) {
  JobConfig job = RankJob(name);
  TransformOptions& transform = job.train.transform.emplace();
  transform.rotate = 15;
  transform.zoom = transform.shift = transform.brightness = transform.contrast = 0.1f;
  transform.noise = 0.1f;
  transform.pad = transform.erase = 3;
  transform.mirror = transform.flip = true;
  job.train.balance = ClassBalance::kSampling;
  job.epochs = 2;
  return job;
}

TEST(AugmentedRun, ResumesToTheSameBits) {
  const TrainResult whole = RunJob(AugmentedJob("augmented_whole"), {}, {});
  JobConfig job = AugmentedJob("augmented_parts");
  int64_t step = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { step = report.step; };
  callbacks.stop = [&] { return step == 6; };
  EXPECT_TRUE(RunJob(job, {}, callbacks).stopped);
  TrainOptions resume;
  resume.resume = true;
  const TrainResult parts = RunJob(job, resume, {});
  ExpectSameBits(whole.scope, parts.scope, whole.main);
}

// Two ranks see the rows of one rank. Their sums of gradients round differently.
TEST(AugmentedRun, RanksSeeTheSameRows) {
  const std::vector<RankResult> one = RunOn(1, AugmentedJob("augmented_one"));
  const std::vector<RankResult> two = RunOn(2, AugmentedJob("augmented_two"));
  for (const RankResult& rank : two) {
    EXPECT_EQ(rank.error, "");
    EXPECT_LT(Difference(one[0].result.scope, rank.result.scope, one[0].result.main), 1e-5);
  }
  ExpectSameBits(two[0].result.scope, two[1].result.scope, one[0].result.main);
  // The rows themselves have the same bits.
  const DataSourcePtr data = OpenTrainData(AugmentedJob("augmented_rows"));
  const auto read = [&](int rank, int ranks) {
    BatchReader reader(data, {.batch_size = 20, .shuffle = true, .rank = rank, .ranks = ranks});
    reader.Seek(reader.batches_per_epoch() + 2);
    return reader.Next()[0].Clone();
  };
  const Tensor whole = read(0, 1);
  const Tensor first = read(0, 2), second = read(1, 2);
  ASSERT_EQ(first.numel() + second.numel(), whole.numel());
  EXPECT_TRUE(
      std::equal(first.data<float>(), first.data<float>() + first.numel(), whole.data<float>()));
  EXPECT_TRUE(std::equal(second.data<float>(), second.data<float>() + second.numel(),
                         whole.data<float>() + first.numel()));
}

}  // namespace coracle::data_jobs_test
