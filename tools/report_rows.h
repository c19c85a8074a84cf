#pragma once
// `coracle report`: runs a model on labelled rows, and measures its answers.

#include <coracle/executor/executor.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/log/quality_report.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

struct ReportRequest {
  std::string model = {};
  std::string data = {};  // rows as for `coracle predict`, or a directory of folders of pictures
  std::string job = {}, data_dir = {}, test_set = {};  // instead of `data`: a test set of a job
  std::string label = {};  // the column of the label; "": that of the training data
  int64_t top = 5;         // k of the top-k accuracy, at most the number of classes
  int64_t worst = 10;      // number of rows to show
  bool scores = false;     // the first output holds a score for each class, whatever describes it
  std::optional<int64_t> decode_mb = {};  // the most memory for decoding a picture, in MiB
  CompileOptions compile = {};
};

// Collects answers with their labels, and the worst rows.
class ReportCollector {
 public:
  ReportCollector(OutputMeaning meaning, bool real_labels, int64_t worst)
      : meaning_(std::move(meaning)), real_(real_labels), worst_(worst) {}

  // A row of scores. Throws kOutOfRange for a label outside the classes.
  void AddScores(std::span<const double> scores, int64_t label, ReportedRow row);
  // A row of one number: an answer or, if labels are integers, perhaps a probability.
  void AddNumber(double answer, double label, ReportedRow row);
  // Throws kInvalidArgument if there were no rows.
  void Finish(int64_t top, QualityReport* report);

  std::string ClassName(int64_t index) const;

 private:
  void Remember(double badness, ReportedRow row);
  bool AreProbabilities() const;
  void ReadAsProbabilities(QualityReport* report);

  OutputMeaning meaning_;
  bool real_;
  int64_t worst_;
  ScoredRows scored_;
  std::vector<double> answers_, labels_;
  std::vector<std::pair<double, ReportedRow>> kept_;  // a superset of the worst rows
};

// Refuses outputs that cannot be compared with labels: neither scores nor one number.
void CheckReportedOutput(const OutputMeaning& output, bool real_labels);

// Throws the first bad row's error; UsageError for data that the model does not read.
QualityReport ReportOnRows(const ReportRequest& request);
// The same for a test set of request.job.
QualityReport ReportOnTestSet(const ReportRequest& request);

}  // namespace coracle::tools
