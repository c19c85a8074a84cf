#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/answer_writer.h>
#include <coracle/tools/command.h>
#include <coracle/train/run/predict/row_json.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace coracle::tools {
namespace {

// Quotes a cell that a reader would otherwise change or divide.
std::string CsvCellText(const std::string& text) {
  const bool plain = text.find_first_of(",\"\n\r") == std::string::npos && Trim(text) == text;
  if (plain) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string ScoreText(double score) {
  if (std::isnan(score)) return "nan";  // not -nan
  const auto narrow = static_cast<float>(score);
  return static_cast<double>(narrow) == score ? fmt::format("{}", narrow)
                                              : fmt::format("{}", score);
}

// Columns: those that are kept; for each output its answer and, of classes, the score, the next
// classes, or the scores of all classes; and the error.
class CsvWriter : public AnswerWriter {
 public:
  CsvWriter(const PredictorCore& core, const AnswerOptions& options, WritePieceFn write)
      : core_(core), options_(options), write_(std::move(write)) {}

  void Write(const SourceRow& row, const std::vector<RowAnswer>& answers) override {
    if (answers.empty()) {
      if (columns_.empty()) return early_.push_back(row);
      return write_(BadLine(row));
    }
    if (columns_.empty()) WriteHeader(answers);
    std::vector<std::string> cells = row.kept;
    for (const RowAnswer& answer : answers) AddCells(answer, &cells);
    if (options_.marks_errors) cells.emplace_back();
    write_(Line(cells));
  }
  void Finish() override {
    if (columns_.empty()) WriteHeader({});
  }

 private:
  static std::string Line(const std::vector<std::string>& cells) {
    // Readers skip an empty line, so the rows below it would seem to move up.
    if (cells.size() == 1 && cells[0].empty()) return "\"\"\n";
    std::vector<std::string> shown;
    for (const std::string& cell : cells) shown.push_back(CsvCellText(cell));
    return Join(shown, ",") + "\n";
  }

  std::string BadLine(const SourceRow& row) const {
    std::vector<std::string> cells = row.kept;
    cells.resize(columns_.size() - 1);
    cells.push_back(row.error->message());
    return Line(cells);
  }

  // The answers show the number of classes.
  void WriteHeader(const std::vector<RowAnswer>& answers) {
    columns_ = options_.kept;
    for (const RowAnswer& answer : answers) {
      columns_.push_back(answer.output);
      if (answer.classes.empty()) continue;
      if (options_.all_scores) {
        for (const std::string& name : ByIndex(answer, true))
          columns_.push_back(fmt::format("{}[{}]", answer.output, name));
        continue;
      }
      columns_.push_back(answer.output + "_score");
      for (size_t i = 2; i <= answer.classes.size(); ++i) {
        columns_.push_back(fmt::format("{}_{}", answer.output, i));
        columns_.push_back(fmt::format("{}_{}_score", answer.output, i));
      }
    }
    for (size_t i = 0; answers.empty() && i < core_.outputs().size(); ++i)
      columns_.push_back(core_.outputs()[i].var);
    if (options_.marks_errors) columns_.emplace_back("error");
    write_(Line(columns_));
    for (const SourceRow& row : early_) write_(BadLine(row));
    early_.clear();
  }

  // The names, or the scores, of the classes in the order of their numbers.
  static std::vector<std::string> ByIndex(const RowAnswer& answer, bool names) {
    std::vector<std::string> cells(answer.classes.size());
    for (const ScoredClass& c : answer.classes)
      cells.at(static_cast<size_t>(c.index)) = names ? c.name : ScoreText(c.score);
    return cells;
  }

  void AddCells(const RowAnswer& answer, std::vector<std::string>* cells) const {
    cells->push_back(answer.text);
    if (answer.classes.empty()) return;
    if (options_.all_scores) {
      for (std::string& score : ByIndex(answer, false)) cells->push_back(std::move(score));
      return;
    }
    for (const ScoredClass& c : answer.classes) {
      if (&c != &answer.classes[0]) cells->push_back(c.name);
      cells->push_back(ScoreText(c.score));
    }
  }

  const PredictorCore& core_;
  AnswerOptions options_;
  WritePieceFn write_;
  std::vector<std::string> columns_;
  std::vector<SourceRow> early_;  // bad rows before the first answer
};

class JsonWriter : public AnswerWriter {
 public:
  JsonWriter(const AnswerOptions& options, WritePieceFn write)
      : options_(options), write_(std::move(write)) {}

  void Write(const SourceRow& row, const std::vector<RowAnswer>& answers) override {
    nlohmann::ordered_json kept = nlohmann::ordered_json::object();
    for (size_t i = 0; i < row.kept.size(); ++i) kept[options_.kept[i]] = row.kept[i];
    if (row.error) kept["error"] = row.error->message();
    std::string line = Text(kept);
    if (!answers.empty()) {
      const std::string own = AnswersToJson(answers, options_.all_scores);
      line = kept.empty() ? own : line.substr(0, line.size() - 1) + "," + own.substr(1);
    }
    write_(line + "\n");
  }
  void Finish() override {}

 private:
  static std::string Text(const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  AnswerOptions options_;
  WritePieceFn write_;
};

// The outputs themselves, with one row per good row.
class NpzWriter : public AnswerWriter {
 public:
  explicit NpzWriter(const AnswerOptions& options) : options_(options) {}

  void Write(const SourceRow&, const std::vector<RowAnswer>& answers) override {
    for (const RowAnswer& answer : answers) rows_[answer.output].push_back(answer.values);
  }
  void Finish() override {
    NamedTensors tensors;
    for (const auto& [name, rows] : rows_) tensors.emplace_back(name, Stacked(name, rows));
    WriteNpz(tensors, options_.npz);
  }

 private:
  static Tensor Stacked(const std::string& name, const std::vector<Tensor>& rows) {
    Shape shape = {static_cast<int64_t>(rows.size())};
    for (const int64_t dim : rows[0].shape()) shape.Append(dim);
    Tensor stacked(rows[0].dtype(), shape);
    char* to = static_cast<char*>(stacked.raw());
    for (const Tensor& row : rows) {
      if (row.shape() != rows[0].shape()) {
        ThrowInvalid(
            fmt::format("the output {} has rows of different shapes, {} and {}, which npz "
                        "cannot hold; write csv or jsonl",
                        Quote(name), rows[0].shape().ToString(), row.shape().ToString()));
      }
      if (row.nbytes() > 0) std::memcpy(to, row.raw(), row.nbytes());
      to += row.nbytes();
    }
    return stacked;
  }

  AnswerOptions options_;
  std::map<std::string, std::vector<Tensor>> rows_;
};

}  // namespace

std::string AnswerFormatOf(const std::string& out) {
  for (const char* format : {"csv", "jsonl", "npz"})
    if (out.ends_with(std::string(".") + format)) return format;
  throw UsageError("--out must end in .csv, .jsonl or .npz, got " + Quote(out, 300));
}

std::unique_ptr<AnswerWriter> MakeAnswerWriter(const PredictorCore& core,
                                               const AnswerOptions& options, WritePieceFn write) {
  if (options.format == "npz") return std::make_unique<NpzWriter>(options);
  if (options.format == "jsonl") return std::make_unique<JsonWriter>(options, std::move(write));
  return std::make_unique<CsvWriter>(core, options, std::move(write));
}

}  // namespace coracle::tools
