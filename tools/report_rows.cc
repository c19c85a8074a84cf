#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command.h>
#include <coracle/tools/raw_rows.h>
#include <coracle/tools/report_rows.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchRows = 64;
constexpr size_t kMostPoints = 2000;
constexpr uint64_t kMaxPictureFile = uint64_t{1} << 28;
constexpr int64_t kMostPictureSide = 512;  // of a shown picture

[[noreturn]] void Fail(const SourceRow& row, const std::string& what) {
  ThrowInvalid(row.place + ": " + what);
}

// Adds the place of the row to errors about its label.
template <class F>
auto AtRow(const SourceRow& row, F read) {
  try {
    return read();
  } catch (const Error& e) {
    throw Error(e.code(), row.place + ": the " + e.message());
  }
}

// The label of a row in words.
struct LabelReader {
  std::vector<std::string> classes = {};  // empty: labels are numbers of classes
  bool real = false;

  int64_t Class(const SourceRow& row, const std::string& label) const {
    const auto found = std::find(classes.begin(), classes.end(), label);
    if (found != classes.end()) return found - classes.begin();
    int64_t number = 0;
    if (!NamesAreNumbers() && ParseWholeNumber(label, &number)) return number;
    if (classes.empty())
      Fail(row, fmt::format("the label {} is not the number of a class", Quote(label, 40)));
    return AtRow(row, [&] { return ClassOfLabel(classes, label); });
  }
  static double Number(const SourceRow& row, const std::string& label) {
    return AtRow(row, [&] { return NumberOfLabel(label); });
  }

  // Whether a class is called by a number, such as the digits 3 and 8: then a number is a name.
  bool NamesAreNumbers() const {
    int64_t ignored = 0;
    return std::any_of(classes.begin(), classes.end(), [&ignored](const std::string& name) {
      return ParseWholeNumber(name, &ignored);
    });
  }
};

// Pictures in one folder for each class: all of them, sorted.
std::vector<std::string> PicturesOfFolders(const std::string& directory) {
  std::vector<std::string> folders, files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const bool hidden = at->path().filename().string().starts_with('.');
    if (!hidden && at->is_directory(ignored)) folders.push_back(at->path().string());
  }
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) {
    const std::vector<std::string> own = PicturesIn(folder);
    files.insert(files.end(), own.begin(), own.end());
  }
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the directory {} has no folders of pictures: put the pictures of each "
                            "class into a folder with the name of the class",
                            Quote(directory, 300)));
  }
  return files;
}

// A picture to show, or an empty tensor for one with other channels.
Tensor ShownPicture(const std::string& file, uint64_t decode_bytes) {
  const std::string bytes = ReadFile(file, kMaxPictureFile);
  PictureForm form;
  form.most_side = kMostPictureSide;
  form.most_bytes = decode_bytes;
  Tensor picture =
      bytes.starts_with("\x93NUMPY") ? ParseNpy(bytes, file) : DecodePicture(bytes, file, form);
  if (picture.shape().rank() == 2)
    picture = picture.Reshaped({1, picture.shape()[0], picture.shape()[1]});
  const int64_t channels = picture.shape()[0];
  return channels == 1 || channels == 3 ? picture : Tensor();
}

// Labelled rows of a file or of folders of pictures.
class LabelledRows {
 public:
  LabelledRows(const PredictorCore& core, const ReportRequest& request)
      : named_(!request.label.empty()), pictures_(core.config().picture.has_value()) {
    if (pictures_) {
      if (named_) throw UsageError("--label: pictures are labelled by the names of their folders");
      if (!IsDirectory(request.data))
        throw UsageError(
            "the model reads pictures: --data is a directory with a folder for each "
            "class");
      source_.source = MakePictureRows(core, PicturesOfFolders(request.data), request.decode_mb);
      return;
    }
    if (!core.config().arrays.empty())
      throw UsageError(
          "--data: npz rows have no labels; give --job=JOB.pbtxt, whose test set has labels");
    std::vector<std::string> keep = core.columns();
    if (named_) keep.push_back(request.label);
    source_ = OpenRawRows(core, request.data, "", keep);
    if (source_.format == "text")
      throw UsageError(
          "--data: text rows have no labels; give csv or jsonl rows with a label in each");
    if (!named_ && core.LabelColumn().empty())
      throw UsageError(
          "--label=COLUMN: the description of the model names no label; name its column");
  }

  bool Next(SourceRow* row) {
    if (!source_.source->Next(row)) return false;
    if (row->error) throw Error(*row->error);
    if (pictures_) {
      row->label = fs::path(row->place).parent_path().filename().string();
      row->kept.clear();
    } else if (named_) {
      row->label = row->kept.back();
      row->kept.pop_back();
    }
    if (!row->label || row->label->empty()) {
      ThrowInvalid(row->place + ": the label is missing" +
                   (named_ ? "" : "; --label=COLUMN names another column"));
    }
    return true;
  }
  bool pictures() const { return pictures_; }

 private:
  bool named_, pictures_;
  RawRows source_;
};

LabelReader ReaderOf(const PredictorCore& core) {
  LabelReader reader;
  reader.classes = core.outputs().at(0).classes;
  if (!core.config().csv) return reader;
  if (reader.classes.empty()) reader.classes = core.config().csv->classes;
  reader.real = core.config().csv->label_kind == CsvLabel::kReal;
  return reader;
}

void AddAnswers(const PredictorCore& core, const LabelReader& reader, std::vector<SourceRow>* rows,
                ReportCollector* collector) {
  std::vector<DecodedRow> decoded;
  for (SourceRow& row : *rows) decoded.push_back(std::move(*row.row));
  const auto answers = core.Run(decoded, 1);
  for (size_t i = 0; i < rows->size(); ++i) {
    SourceRow& row = (*rows)[i];
    const RowAnswer& answer = answers[i][0];
    ReportedRow reported;
    reported.place = row.place;
    reported.cells = std::move(row.kept);
    try {
      if (answer.number) {
        const double label = reader.real || reader.classes.empty()
                                 ? LabelReader::Number(row, *row.label)
                                 : static_cast<double>(reader.Class(row, *row.label));
        collector->AddNumber(*answer.number, label, std::move(reported));
        continue;
      }
      const Tensor wide = answer.values.Cast(DType::kFloat64);
      collector->AddScores(wide.span<double>(), reader.Class(row, *row.label), std::move(reported));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kOutOfRange) throw;
      throw e.WithPrefix(row.place);
    }
  }
  rows->clear();
}

}  // namespace

void CheckReportedOutput(const OutputMeaning& output, bool real_labels) {
  const bool scores = output.kind == OutputKind::kClasses && !real_labels;
  if (scores || output.kind == OutputKind::kNumber) return;
  ThrowInvalid(
      fmt::format("the labels cannot be compared with the output {}: it must be a score "
                  "for each class, or one number{}",
                  Quote(output.var),
                  output.kind == OutputKind::kValues && !real_labels
                      ? "; if it holds scores, although no softmax, loss or metric says so, give "
                        "--scores, or kind: CLASSES in the model's preprocess.pbtxt"
                      : ""));
}

std::string ReportCollector::ClassName(int64_t index) const {
  if (index < 0) return "-";
  if (index < static_cast<int64_t>(meaning_.classes.size()))
    return meaning_.classes[static_cast<size_t>(index)];
  return fmt::format("{}", index);
}

void ReportCollector::AddScores(std::span<const double> scores, int64_t label, ReportedRow row) {
  const auto classes = static_cast<int64_t>(scores.size());
  if (label < 0 || label >= classes) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("the label is {}, which must lie in [0, {})", label, classes));
  }
  scored_.classes = classes;
  scored_.scores.insert(scored_.scores.end(), scores.begin(), scores.end());
  scored_.labels.push_back(label);
  const int64_t answer = BestClass(scores);
  row.label = ClassName(label);
  row.answer = ClassName(answer);
  row.right = answer == label;
  row.label_score = scores[static_cast<size_t>(label)];
  row.answer_score = answer < 0 ? NAN : scores[static_cast<size_t>(answer)];
  Remember(LeadOverLabel(scores, label), std::move(row));
}

void ReportCollector::AddNumber(double answer, double label, ReportedRow row) {
  answers_.push_back(answer);
  labels_.push_back(label);
  row.label = FormatNumber(label);
  row.answer = FormatNumber(answer);
  row.residual = answer - label;
  row.answer_score = answer;  // if the number is a probability
  const double off = std::abs(answer - label);
  Remember(std::isnan(off) ? INFINITY : off, std::move(row));
}

void ReportCollector::Remember(double badness, ReportedRow row) {
  const auto most = static_cast<size_t>(worst_);
  kept_.emplace_back(badness, std::move(row));
  if (kept_.size() < 2 * most + kBatchRows) return;
  std::stable_sort(kept_.begin(), kept_.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  kept_.resize(most);
}

// Whether the numbers are probabilities of class 1: labels are integers, 0 or 1.
bool ReportCollector::AreProbabilities() const {
  if (real_ || meaning_.scale != 1 || meaning_.offset != 0) return false;
  return std::all_of(labels_.begin(), labels_.end(), [](double v) { return v == 0 || v == 1; }) &&
         std::all_of(answers_.begin(), answers_.end(),
                     [](double v) { return std::isnan(v) || (v >= 0 && v <= 1); });
}

void ReportCollector::ReadAsProbabilities(QualityReport* report) {
  scored_.classes = 1;
  scored_.scores = answers_;
  for (const double label : labels_) scored_.labels.push_back(static_cast<int64_t>(label));
  for (ReportedRow& row : report->worst) {
    const double one = *row.answer_score;
    const int64_t label = row.label == "1" ? 1 : 0, answer = BestClass(std::span(&one, 1));
    row.right = label == answer;
    row.label_score = label == 1 ? one : 1 - one;
    row.answer_score = answer == 0 ? 1 - one : one;
    row.label = ClassName(label);
    row.answer = ClassName(answer);
    row.residual.reset();
  }
}

void ReportCollector::Finish(int64_t top, QualityReport* report) {
  std::stable_sort(kept_.begin(), kept_.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [badness, row] : kept_) {
    if (static_cast<int64_t>(report->worst.size()) < worst_)
      report->worst.push_back(std::move(row));
  }
  const bool probabilities = !answers_.empty() && AreProbabilities();
  if (!answers_.empty() && !probabilities && !real_ && !meaning_.classes.empty()) {
    ThrowInvalid(
        fmt::format("the labels are names of classes, but the output {} is one number "
                    "that is no probability of the second of two classes",
                    Quote(meaning_.var)));
  }
  if (probabilities) {
    report->notes.emplace_back(
        "the output is one number of [0, 1] and labels are 0 and 1: it is read as the probability "
        "of class 1");
    ReadAsProbabilities(report);
  }
  if (answers_.empty() || probabilities) {
    report->classes = meaning_.classes;
    const int64_t classes = std::max<int64_t>(scored_.numbered(), 1);
    report->scores = MeasureScores(scored_, std::min(top, classes));
    return;
  }
  for (ReportedRow& row : report->worst) row.answer_score.reset();
  report->numbers = MeasureNumbers(answers_, labels_);
  const size_t stride = (answers_.size() + kMostPoints - 1) / kMostPoints;
  for (size_t i = 0; i < answers_.size(); i += stride)
    report->points.emplace_back(labels_[i], answers_[i]);
}

QualityReport ReportOnRows(const ReportRequest& request) {
  PredictOptions options;
  options.compile = request.compile;
  const Predictor predictor(request.model, options);
  const PredictorCore& core = predictor.core();
  const LabelReader reader = ReaderOf(core);
  OutputMeaning output = core.outputs().at(0);
  if (request.scores) output.kind = OutputKind::kClasses;
  CheckReportedOutput(output, reader.real);
  output.classes = reader.classes;
  QualityReport report;
  report.model = request.model;
  report.data = request.data;
  report.output = output.var;
  LabelledRows source(core, request);
  if (!source.pictures()) report.columns = core.columns();
  ReportCollector collector(output, reader.real, request.worst);
  std::vector<SourceRow> rows;
  SourceRow row;
  while (source.Next(&row)) {
    rows.push_back(std::move(row));
    if (rows.size() == kBatchRows) AddAnswers(core, reader, &rows, &collector);
  }
  AddAnswers(core, reader, &rows, &collector);
  collector.Finish(request.top, &report);
  if (source.pictures())
    for (ReportedRow& shown : report.worst)
      shown.picture = ShownPicture(shown.place, DecodeBytes(core, request.decode_mb));
  return report;
}

}  // namespace coracle::tools
