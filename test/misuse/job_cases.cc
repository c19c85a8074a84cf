// train.

#include <coracle/layers/builder.h>
#include <coracle/test/misuse/misuse.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace job_cases {

MemoryColumn Sequences(std::vector<uint64_t> offsets) {
  return {.name = "s",
          .rows = Tensor::Zeros(DType::kInt64, {4, 1}),
          .shape = {1},
          .offsets = std::move(offsets)};
}

DataSourcePtr Rows() {
  return MakeMemorySource(
      {{.name = "x", .rows = Tensor::Zeros(DType::kFloat32, {4, 2}), .shape = {2}}}, "rows");
}

void AddLists(Cases& cases) {
  cases.Of("Vocabulary")
      .Fails("bytes that are no text", "", [] { Vocabulary::Of("\xff", "text"); })
      .Fails("an unknown character", "", [] { Vocabulary().Encode("x", "text"); })
      .Fails("an id outside", "", [] { Vocabulary().Character(-1); })
      .Works("moved from", [] {
        Vocabulary vocabulary = Vocabulary::Of("abc", "text");
        const Vocabulary moved = std::move(vocabulary);
        Require(vocabulary.size() == 0 && moved.size() == 3, "moved");
        vocabulary.ToJson();
      });
  cases.Of("WordList")
      .Fails("an empty word", "word", [] { WordList({""}, "words"); })
      .Fails("a word twice", "twice",
             [] {
               WordList({"a", "a"}, "words");
             })
      .Works("moved from", [] {
        WordList list({"a"}, "words");
        const WordList moved = std::move(list);
        Require(list.Id("a") == WordList::kUnknown && moved.Id("a") == 2, "moved");
      });
  cases.Plain<DataColumn>("DataColumn");
}

class NoRows : public DataSource {
 public:
  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return 0; }
  void Get(std::span<const int64_t>, std::span<Tensor>) const override {}
  std::string Describe() const override { return "no rows"; }

 private:
  std::vector<DataColumn> columns_;
};

void AddSources(Cases& cases) {
  cases.Of("DataSource")
      .Fails("labels of none", "label", [] { NoRows().Labels(); })
      .Fails("a null source of a subset", "null", [] { MakeSubset(nullptr, 0, 1); })
      .Fails("a null source of a part", "null", [] { MakeRandomPart(nullptr, 0.5, 1, true); })
      .Fails("a null source with weights", "null", [] { MakeWeighted(nullptr, {}); })
      .Fails("a null source to balance", "null", [] { MakeBalanced(nullptr, 1); })
      .Fails("a row outside", "row",
             [] {
               std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, 2})};
               Rows()->Get(std::vector<int64_t>{4}, out);
             })
      .Fails("no tensors", "tensor",
             [] { Rows()->Get(std::vector<int64_t>{0}, std::span<Tensor>()); })
      .Fails("a tensor too small", "elements",
             [] {
               std::vector<Tensor> out(1);
               Rows()->Get(std::vector<int64_t>{0}, out);
             })
      .Fails("a part of less than no rows", "rows", [] { RowsOfRandomPart(-1, 0.5, 1, true); })
      .Fails("a subset outside", "row", [] { MakeSubset(Rows(), 2, 3); })
      .Fails("the rows of a batch without offsets", "LoD",
             [] {
               Tensor tensor = Tensor::Zeros(DType::kFloat32, {2});
               tensor.lod() = {{}};
               RowsOfBatch(tensor);
             })
      .Works("no rows to shuffle", [] { ShuffleRows(1, 0, std::span<int64_t>()); });
  cases.Of("MemoryColumn")
      .Fails("no columns", "no columns", [] { MakeMemorySource({}, "data"); })
      .Fails("a column twice", "two columns",
             [] {
               MakeMemorySource({Sequences({0, 4}), Sequences({0, 4})}, "data");
             })
      .Fails("a shape that does not fit", "values per row",
             [] {
               MakeMemorySource(
                   {{.name = "x", .rows = Tensor::Zeros(DType::kFloat32, {4, 2}), .shape = {3}}},
                   "data");
             })
      .Fails("offsets past the end", "offsets",
             [] {
               MakeMemorySource({Sequences({0, 5})}, "data");
             })
      .Fails("offsets that descend", "offsets",
             [] {
               MakeMemorySource({Sequences({0, 4, 2})}, "data");
             })
      .Fails("offsets that are huge", "offsets",
             [] {
               MakeMemorySource({Sequences({0, ~uint64_t{0}})}, "data");
             })
      .Fails("lengths without offsets", "offsets", [] { LengthsOf({}); })
      .Fails("lengths of offsets that descend", "ascend", [] {
        LengthsOf(Sequences({3, 1}));
      });
  cases.Plain<FileLines>("FileLines");
  cases.Of("BatchOptions").Fails("no rows a batch", "batch_size", [] {
    BatchReader(Rows(), {.batch_size = 0});
  });
  cases.Of("BatchReader")
      .Fails("a null source", "null", [] { BatchReader(nullptr, {}); })
      .Fails("a source without rows", "too few",
             [] { BatchReader(std::make_shared<NoRows>(), {.batch_size = 1}); })
      .Fails("a rank outside", "rank",
             [] { BatchReader(Rows(), {.batch_size = 2, .rank = 2, .ranks = 2}); })
      .Fails("a position before the begin", "position",
             [] { BatchReader(Rows(), {.batch_size = 2}).Seek(-1); })
      .Fails("the place of a row before any batch", "row",
             [] { BatchReader(Rows(), {.batch_size = 2}).PlaceOf(0); })
      .Works("far ahead", [] {
        BatchReader reader(Rows(), {.batch_size = 2});
        reader.Seek(int64_t{1} << 60);
        reader.Next();
      });
}

void AddFormats(Cases& cases) {
  cases.Of("IdxOptions").Fails("no files", "", [] { MakeIdxSource({}); });
  cases.Of("CsvLabel").Fails("a text without rows", "", [] { ParseCsv("", {}); });
  cases.Plain<TextColumnOptions>("TextColumnOptions");
  cases.Plain<CsvColumn>("CsvColumn");
  cases.Of("CsvOptions").Fails("no file", "", [] { MakeCsvSource({}); });
  cases.Plain<NpzColumn>("NpzColumn");
  cases.Of("NpzOptions").Fails("no file", "", [] { MakeNpzSource({}); });
  cases.Of("DatumOptions").Fails("no file", "", [] { MakeDatumSource({}); });
  cases.Of("BadFiles").Fails("no folder", "", [] {
    MakePictureSource({.bad_files = BadFiles::kSkip});
  });
  cases.Of("PictureOptions").Fails("no folder", "", [] { MakePictureSource({}); });
  cases.Plain<FittedOptions>("FittedOptions");
  cases.Of("TransformOptions")
      .Fails("no images", "", [] { MakeTransformed(Rows(), {.crop_size = 2}); })
      .Fails("a null source", "null", [] { MakeTransformed(nullptr, {}); });
  cases.Of("ChannelOrder").Fails("unknown, of no folder", "", [] {
    MakePictureSource({.channel_order = static_cast<ChannelOrder>(9)});
  });
  cases.Of("MixupOptions")
      .Fails("a null source", "null", [] { MakeMixed(nullptr, {}); })
      .Fails("rows without labels", "label", [] { MakeMixed(Rows(), {}); });
  cases.Of("DigitsOptions").Fails("a class that is no digit", "", [] {
    MakeDigits({.count = 1, .classes = {10}}, DigitSplit::kTrain);
  });
  cases.Of("DigitSplit").Fails("less than no digits", "", [] {
    MakeDigits({.count = -1}, DigitSplit::kTest);
  });
  cases.Of("TextOptions").Fails("no file", "", [] { MakeTextSource({}, TextPart::kTrain, 1); });
  cases.Of("TextPart").Fails("no streams", "", [] { MakeTextSource({}, TextPart::kTest, 0); });
}

JobConfig SmallJob() {
  JobConfig job;
  job.model_text =
      "data { name: 'x' shape: [-1, 2] } layer { fc { input: 'x' size: 1 output: 'h' } } "
      "layer { mean { input: 'h' output: 'loss' } }";
  job.train.custom = Rows();
  job.batch_size = 2;
  job.max_iter = 2;
  return job;
}

// Numbers that name no kind.
void AddKinds(Cases& cases) {
  cases.Of("NonFiniteLoss").Works("unknown", [] {
    JobConfig job = SmallJob();
    job.training.non_finite_loss = static_cast<NonFiniteLoss>(99);
    RunJob(job);
  });
  cases.Of("MetricKind").Fails("unknown", "metric", [] {
    JobConfig job = SmallJob();
    job.metrics = {{.var = "loss", .name = "m", .kind = static_cast<MetricKind>(99)}};
    RunJob(job);
  });
  cases.Of("MetricAverage").Fails("of a metric without labels", "label", [] {
    JobConfig job = SmallJob();
    job.metrics = {{.var = "h",
                    .name = "m",
                    .kind = MetricKind::kF1,
                    .average = static_cast<MetricAverage>(99)}};
    RunJob(job);
  });
  cases.Of("WatchGoal").Works("unknown", [] {
    GoalOf(JobConfig(), {.metric = "", .goal = static_cast<WatchGoal>(99)});
  });
  cases.Of("SignalEffect").Works("unknown", [] {
    JobConfig job = SmallJob();
    job.signals.interrupt = static_cast<SignalEffect>(99);
    RunJob(job);
  });
}

void AddConfigs(Cases& cases) {
  cases.Plain<PlateauConfig>("PlateauConfig");
  cases.Plain<ScheduleMark>("ScheduleMark");
  cases.Of("OptimizerConfig")
      .Fails("no function", "optimizer",
             [] {
               JobConfig job = SmallJob();
               job.training.optimizers[0].make = nullptr;
               RunJob(job);
             })
      .Fails("moved from", "optimizer", [] {
        JobConfig job = SmallJob();
        const OptimizerConfig moved = std::move(job.training.optimizers[0]);
        RunJob(job);
      });
  cases.Of("TrainingConfig").Fails("no optimizers", "optimizer", [] {
    JobConfig job = SmallJob();
    job.training.optimizers.clear();
    RunJob(job);
  });
  cases.Plain<SplitConfig>("SplitConfig");
  cases.Of("ClassBalance").Fails("of rows without labels", "label", [] {
    JobConfig job = SmallJob();
    job.train.balance = ClassBalance::kSampling;
    RunJob(job);
  });
  cases.Of("DataConfig").Fails("no data", "train", [] {
    JobConfig job = SmallJob();
    job.train = {};
    RunJob(job);
  });
  cases.Of("BindConfig").Fails("empty names", "bind", [] {
    JobConfig job = SmallJob();
    job.bind = {{}};
    RunJob(job);
  });
  cases.Of("CarryConfig").Fails("empty names", "carried", [] {
    JobConfig job = SmallJob();
    job.shuffle = false;
    job.carry = {{}};
    RunJob(job);
  });
  cases.Of("MetricConfig").Fails("empty names", "metric", [] {
    JobConfig job = SmallJob();
    job.metrics = {{}};
    RunJob(job);
  });
  cases.Of("TestSetConfig").Fails("no data", "test", [] {
    JobConfig job = SmallJob();
    job.test_sets = {{}};
    RunJob(job);
  });
  cases.Plain<WatchConfig>("WatchConfig");
  cases.Of("BestConfig").Fails("no test data", "without test data", [] {
    JobConfig job = SmallJob();
    job.best = BestConfig{};
    RunJob(job);
  });
  cases.Of("EarlyStopConfig").Fails("no test data", "without test data", [] {
    JobConfig job = SmallJob();
    job.early_stop = EarlyStopConfig{};
    RunJob(job);
  });
  cases.Plain<SignalConfig>("SignalConfig");
  cases.Of("WeightsConfig").Fails("no file", "holds neither", [] {
    JobConfig job = SmallJob();
    job.weights = {{}};
    RunJob(job);
  });
  cases.Plain<LogConfig>("LogConfig");
  cases.Plain<PrecisionConfig>("PrecisionConfig");
  cases.Of("QuantizeConfig").Works("phases", [] {
    QuantizeConfig().PhaseAfter(-1);
    Require(!QuantizeConfig().EvaluatesInFloat(1), "integers");
  });
  cases.Plain<DistributeConfig>("DistributeConfig");
  AddKinds(cases);
  cases.Of("JobConfig")
      .Fails("default", "job", [] { RunJob({}); })
      .Fails("moved from", "job",
             [] {
               JobConfig job = SmallJob();
               const JobConfig moved = std::move(job);
               RunJob(job);
             })
      .Fails("a text that is none", "job:1", [] { ParseJobText("}"); })
      .Fails("a missing file", "none.pbtxt", [] { ReadJob("none.pbtxt"); })
      .Works("a text without fields", [] {
        Require(!LooksLikeJob(""), "no job");
        JobConfig().Place("none");
        Require(JobConfig().TestSets().empty(), "none");
      });
}

void AddReports(Cases& cases) {
  cases.Plain<NamedValue>("NamedValue");
  cases.Plain<ConfusionMatrix>("ConfusionMatrix");
  cases.Plain<TrainPlan>("TrainPlan");
  cases.Plain<ClipReport>("ClipReport");
  cases.Of("StepReport").Works("of each step", [] {
    TrainCallbacks callbacks;
    callbacks.on_step = [](const StepReport& step) {
      step.MeanLoss();
      Require(step.MeanMetrics().empty(), "none");
    };
    RunJob(SmallJob(), {}, callbacks);
  });
  cases.Of("EvalReport").Works("without test data", [] {
    Require(RunJob(SmallJob()).evaluations.empty(), "none");
  });
  cases.Plain<EvaluationRecord>("EvaluationRecord");
  cases.Plain<BestRecord>("BestRecord");
}

void AddRuns(Cases& cases) {
  cases.Of("EvaluateOptions").Fails("a missing model", "none", [] {
    EvaluateSavedModel("none", SmallJob());
  });
  cases.Plain<RawRow>("RawRow");
  cases.Plain<ScoredClass>("ScoredClass");
  cases.Plain<RowAnswer>("RowAnswer");
  cases.Plain<PredictOptions>("PredictOptions");
  cases.Of("Predictor").Fails("a missing model", "none", [] { Predictor("none"); });
  cases.Of("WeightsReport")
      .Works("default", [] { WeightsReport().ToString(); })
      .Fails("no file", "", [] {
        Scope scope;
        LoadWeights({}, ProgramDesc(), {}, scope);
      });
  cases.Of("TrainCallbacks").Works("none", [] { RunJob(SmallJob()); });
  cases.Of("TrainOptions").Fails("a missing snapshot", "none", [] {
    RunJob(SmallJob(), {.resume = true, .resume_from = "none"});
  });
  cases.Plain<TrainResult>("TrainResult");
}

}  // namespace job_cases

void AddJobs(Cases& cases) {
  using namespace job_cases;
  AddLists(cases);
  AddSources(cases);
  AddFormats(cases);
  AddConfigs(cases);
  AddReports(cases);
  AddRuns(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
