#pragma once
// How good the answers of a model are: scores of classes against labels, numbers against numbers.

#include <coracle/train/job/job.h>
#include <coracle/train/report/curves.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// --- classes ---

// Rows of one class.
struct ClassCounts {
  int64_t right = 0;     // with its label, and answered so
  int64_t labelled = 0;  // with its label
  int64_t answered = 0;  // answered so
};

// precision = right / answered, recall = right / labelled, F1 = 2 right / (answered + labelled).
// 0 / 0 counts as 0 and is marked, like zero_division=0 in scikit-learn.
struct ClassQuality {
  double precision = 0, recall = 0, f1 = 0;
  int64_t rows = 0;  // with its label
  bool no_precision = false, no_recall = false;
};
ClassQuality QualityOf(const ClassCounts& counts);

// Averages over the classes that have labels or answers: the macro average is the mean over them,
// the weighted one the mean weighted by `labelled`, and the micro one the quality of their summed
// counts (the accuracy, if each row has an answer). It is nan without such classes. Its marks are
// set if a class that counts has them.
ClassQuality AverageQuality(std::span<const ClassCounts> classes, MetricAverage average);

// Rows with scores for classes and a label.
struct ScoredRows {
  // 1: each row has one score, the probability of class 1 of the classes 0 and 1.
  int64_t classes = 0;
  std::vector<double> scores = {};  // [rows, classes]
  std::vector<int64_t> labels = {};

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
  int64_t numbered() const { return classes == 1 ? 2 : classes; }  // classes that have numbers
  std::span<const double> Row(int64_t row) const;
};

// The class of the largest score, of equal scores the first; -1 if a score is nan. One score means
// class 1 above 0.5.
int64_t BestClass(std::span<const double> scores);

// Whether the label is among the k largest scores: the rule of the metric ACCURACY. Of equal scores
// the first counts; a nan takes a place, but is never right.
bool AmongBest(std::span<const double> scores, int64_t label, int64_t k);

// Counts of rows by label and answer.
struct ConfusionCounts {
  std::map<std::pair<int64_t, int64_t>, int64_t> cells = {};  // by (label, answer); -1: no answer
  int64_t At(int64_t label, int64_t answer) const;
};

struct ScoreQuality {
  int64_t rows = 0, classes = 0;
  int64_t unanswered = 0;  // rows with a nan score: never right, and in no class's answers
  double accuracy = 0;
  int64_t k = 1;
  double top_k = 0;

  ConfusionCounts confusion = {};
  std::vector<ClassCounts> counts = {};
  std::vector<ClassQuality> by_class = {};
  ClassQuality macro = {}, micro = {}, weighted = {};

  // One class against all others, by its score. Curves have at most 512 points, and fewer
  // if there are more than 78 classes.
  std::vector<ScoreCurve> roc = {}, precision_recall = {};
  double macro_auc = 0;  // means over the classes whose areas are defined; nan if none is
  double macro_average_precision = 0;

  // Why the next values are nan: "the scores of row 3 sum to 4.2, so they are not probabilities".
  std::string no_probabilities = "";
  // The mean of -ln p(label), natural logarithm; infinite if a p(label) is 0.
  double log_loss = 0;
  // The mean over rows of the sum over classes of (p - o)^2, with o = 1 for the label and 0 for
  // others (Brier 1950); it lies in [0, 2]. For two classes, it is twice the form with one class.
  double brier = 0;
  // Of the answers: the confidence is the largest probability of the row.
  CalibrationCurve calibration = {};
};

// Scores count as probabilities if all lie in [0, 1] and each row's sum is 1 within 0.01. Throws
// kInvalidArgument for no rows and for one score outside [0, 1] (without the other class's score,
// no answer follows from it), and kOutOfRange for a label outside the classes. `k` >= 1.
ScoreQuality MeasureScores(const ScoredRows& rows, int64_t k);

// The lead of the best other class over the label: the larger, the worse. Infinite for a nan.
double LeadOverLabel(std::span<const double> scores, int64_t label);

// --- numbers ---

// The residual of a row is answer - label.
struct NumberQuality {
  int64_t rows = 0;
  int64_t not_finite = 0;       // answers that are nan or infinite; they make the sums so
  double mean_absolute = 0;     // MAE: mean of |residual|
  double root_mean_square = 0;  // RMSE: root of the mean of residual^2
  // R2 = 1 - sum of residual^2 / sum of (label - mean label)^2; nan if all labels are equal.
  double r2 = 0;
  bool constant_labels = false;
  double median_absolute = 0;  // of an even number, the mean of the two in the middle
  double largest_absolute = 0;
  double mean_residual = 0;  // the bias
  ResidualHistogram residuals = {};
};

// Throws kInvalidArgument for no rows, for different sizes, and for a label that is not finite.
// Squares do not overflow.
NumberQuality MeasureNumbers(std::span<const double> answers, std::span<const double> labels);

}  // namespace coracle::inline internal
