#pragma once
// Writes the answers of `coracle predict`, row by row: as csv, as lines of JSON or, at the end, as
// an npz file.

#include <coracle/framework/base/file_pieces.h>
#include <coracle/train/run/predict/row_source.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::tools {

struct AnswerOptions {
  std::string format = "csv";          // or "jsonl", "npz"
  std::string npz = {};                // the file of the format npz
  std::vector<std::string> kept = {};  // names of the columns that are kept
  bool marks_errors = false;           // a bad row is written with its error
  bool all_scores = false;             // the score of each class
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // `answers` is empty for a bad row, whose error is in `row`.
  virtual void Write(const SourceRow& row, const std::vector<RowAnswer>& answers) = 0;
  // Completes the answers; an npz file is written now.
  virtual void Finish() = 0;
};

// The format of a file name; throws UsageError for an ending that is not .csv, .jsonl or .npz.
std::string AnswerFormatOf(const std::string& out);
// `write` takes the text of csv and JSON. `core` must outlive the result.
std::unique_ptr<AnswerWriter> MakeAnswerWriter(const PredictorCore& core,
                                               const AnswerOptions& options, WritePieceFn write);

}  // namespace coracle::tools
