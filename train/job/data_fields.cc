#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/field_places.h>
#include <coracle/train/data/source_fields.h>
#include <coracle/train/job/data_fields.h>
#include <coracle/train/job/field_reader.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace coracle::inline internal {
namespace {

using Example = FieldExample;
using Number = FieldNumber;

Fields<SplitConfig> SplitFields() {
  using O = SplitConfig;
  return Fields<O>("")
      .Message("SplitConfig")
      .Add("holdout", &O::holdout, "The share of the rows that is held out", OpenRange(0, 1))
      .Add("seed", &O::seed, "Which rows");
}

void CheckData(DataConfig& data, const FieldPlaces& given) {
  if (!data.class_weight.empty() && data.balance != ClassBalance::kNone)
    given.Fail("balance", "and class_weight do not go together");
  for (size_t i = 0; i < data.class_weight.size(); ++i)
    if (!(data.class_weight[i] >= 0 && std::isfinite(data.class_weight[i])))
      given.Fail("class_weight", "must be finite and not negative", static_cast<int>(i));
  if (data.mixup && (!data.class_weight.empty() || data.balance == ClassBalance::kWeights))
    given.Fail("mixup",
               "does not go together with weights of classes: a mixture of two rows has no weight "
               "of its own");
  if (!std::holds_alternative<TextOptions>(data.source)) return;
  for (const char* field : {"first", "limit", "split", "class_weight", "balance", "mixup"})
    if (given.Has(field)) given.Fail(field, "does not apply to a text; its holdout divides it");
}

// The name of the source's kind; "" without a source.
std::string KindOf(const DataConfig& data) {
  if (const auto* database = std::get_if<DatumOptions>(&data.source))
    return database->format == DatumOptions::Format::kLmdb ? "lmdb" : "leveldb";
  constexpr const char* kNames[] = {"", "digits", "idx", "csv", "npz", "text", "", "pictures"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(DataConfig::source)>);
  return kNames[data.source.index()];
}

// Reads the given fields into a copy of the fields of `train`.
void InheritSource(const JobNode& at, const DataConfig& train, DataConfig* data) {
  const std::string kind = KindOf(train), own_kind = KindOf(*data);
  if (own_kind.empty()) {
    data->source = train.source;
    return;
  }
  if (own_kind != kind)
    at.Fail("like_train",
            fmt::format("is for the source of train, which is {}, not {}", kind, own_kind));
  auto own = std::exchange(data->source, train.source);
  const JobNode child = at.Child(kind);
  const FieldTable& table = *DataFields().Find(kind)->nested->table;
  std::visit([&](auto& options) { ReadValues(child, table, table.title(), &options); },
             data->source);
  if (!table.Find("column") || !child.Has("column")) return;
  if (auto* csv = std::get_if<CsvOptions>(&own))
    std::get<CsvOptions>(data->source).columns = std::move(csv->columns);
  if (auto* npz = std::get_if<NpzOptions>(&own))
    std::get<NpzOptions>(data->source).columns = std::move(npz->columns);
}

void Inherit(const JobNode& at, const JobConfig& job, DataConfig* data) {
  if (!data->like_train) return;
  const DataConfig& train = job.train;
  const bool same_rows = data->empty();
  const auto* text = std::get_if<TextOptions>(&train.source);
  if (same_rows && !data->split && !train.split && !(text && text->holdout > 0)) {
    at.Fail("like_train",
            "needs a source of its own, such as csv { file: \"test.csv\" }, or a split in train");
  }
  InheritSource(at, train, data);
  if (same_rows && !data->split) data->split = train.split;
  if (!data->transform) data->transform = train.transform;
  if (!at.Has("balance") && !at.Has("class_weight")) {
    data->balance = train.balance;
    data->class_weight = train.class_weight;
  }
}

}  // namespace

const Fields<DataConfig>& DataFields() {
  using O = DataConfig;
  static const auto table =
      Fields<O>("")
          .Message("DataConfig")
          .Choices("source", "data")
          .Choice("digits", &O::source, FieldsOf(DigitsOptions()))
          .Choice("idx", &O::source, FieldsOf(IdxOptions()))
          .Choice("csv", &O::source, FieldsOf(CsvOptions()))
          .Choice("npz", &O::source, FieldsOf(NpzOptions()))
          .Choice("text", &O::source, FieldsOf(TextOptions()))
          .Choice("lmdb", &O::source, LmdbFields())
          .Choice("leveldb", &O::source, LevelDbFields())
          .Choice("pictures", &O::source, FieldsOf(PictureOptions()))
          .Add("first", &O::first, "Only rows first .. first + limit - 1", RangeFrom(0), Number{10})
          .Add("limit", &O::limit, "Default: all", RangeFrom(1), kNoDefault)
          .Nested("split", &O::split, SplitFields(),
                  "Holds out a random part of the rows: `train` uses the other rows, the test sets "
                  "use this part. `first` and `limit` count within the rows used. A text uses "
                  "`holdout` instead")
          .Nested("transform", &O::transform, FieldsOf(TransformOptions()),
                  "How images change before they are fed",
                  Example{"transform { crop_size: 24 mirror: true }"})
          .Add("class_weight", &O::class_weight,
               "Adds the column weight, float32 [1]: the weight of the row's label",
               Example{"class_weight: [1, 5]"})
          .Add("balance", &O::balance, "What makes classes of different sizes equal",
               OneOf{"DataConfig.Balance",
                     {{"NONE", ClassBalance::kNone},
                      {"WEIGHTS", ClassBalance::kWeights,
                       "adds the column weight, rows / (classes * rows of the row's class); tests "
                       "use the training data's weights"},
                      {"SAMPLING", ClassBalance::kSampling,
                       "in training, rows are drawn such that each class comes equally often"}}})
          .Add("like_train", &O::like_train,
               "Of test data: the source has the fields of the one under `train`, except for those "
               "given here, and the same transform. Without a source, it reads the part of the "
               "training data that `split` or a text holds out",
               Example{"like_train: true"})
          .Nested("mixup", &O::mixup, FieldsOf(MixupOptions()),
                  "Of `train`: mixes rows and their labels. Tests get the column soft_label, too",
                  Example{"mixup { alpha: 0.4 }"})
          .Rule(CheckData);
  return table;
}

Fields<TestSetConfig> TestSetFields() {
  using O = TestSetConfig;
  return Fields<O>("Data to evaluate on, with its own name in logs.")
      .Message("TestSetConfig")
      .Add("name", &O::name, "A word without slashes", kRequired, Example{"name: \"rotated\""})
      .Nested("data", &O::data, DataFields(), "The rows", kRequired)
      .Add("batch_size", &O::batch_size, "Default: the job's test_batch_size", RangeFrom(1),
           kNoDefault)
      .Add("test_iter", &O::iterations,
           "Batches of one evaluation, from the first on; default: all", RangeFrom(1), kNoDefault)
      .Add("stage", &O::stages, "What the model's rules see, in addition to the phase TEST",
           Example{"stage: \"rotated\""})
      .Rule([](O& set, const FieldPlaces& given) {
        if (set.name.empty() || set.name.find_first_of("/ \t\n") != std::string::npos)
          given.Fail("name", "must be a word without slashes");
      });
}

Fields<BindConfig> BindFields() {
  using O = BindConfig;
  return Fields<O>("")
      .Message("BindConfig")
      .Add("column", &O::column, "A column of the data", kRequired, Example{"column: \"image\""})
      .Add("var", &O::var, "A variable of the model", kRequired, Example{"var: \"x\""})
      .Rule([](O& bind, const FieldPlaces& given) { bind.where = given.Place(""); });
}

Fields<CarryConfig> CarryFields() {
  using O = CarryConfig;
  return Fields<O>(
             "`from`: a variable that the model computes; in the next batch it is fed to `to`. No "
             "gradient flows from batch to batch. At the beginning of an epoch, and of an "
             "evaluation, `to` is zeros.")
      .Message("CarryConfig")
      .Add("from", &O::from, "What the batch computes", kRequired, Example{"from: \"last_h\""})
      .Add("to", &O::to, "What the next batch is fed", kRequired, Example{"to: \"init_h\""})
      .Rule([](O& carry, const FieldPlaces& given) { carry.where = given.Place(""); });
}

void InheritTrainData(const JobNode& root, JobConfig* job) {
  if (root.Has("test")) Inherit(root.Child("test"), *job, &job->test);
  for (size_t i = 0; i < job->test_sets.size(); ++i) {
    const JobNode set = root.Child("test_set", static_cast<int>(i));
    if (set.Has("data")) Inherit(set.Child("data"), *job, &job->test_sets[i].data);
  }
}

}  // namespace coracle::inline internal
