#pragma once
// Drawings of a QualityReport, as SVG elements. Their colours come from the style of the page.

#include <coracle/train/log/quality_report.h>

#include <string>

namespace coracle::inline internal {

// Text for HTML and SVG, with marks for what could disguise text: see PrintableLine.
std::string EscapedForPage(std::string_view text);

// The classes whose curves are drawn: at most 8, those with the smallest areas; of two classes,
// class 1.
std::vector<size_t> DrawnClasses(const std::vector<ScoreCurve>& curves);
// The number of the colour of the i-th drawn curve, in the page's style.
inline constexpr size_t kPageColors = 8;

// Rows are labels, columns are answers; the colour is the share of the label's rows. For up to 30
// classes; "" for more.
std::string ConfusionSvg(const QualityReport& report);
std::string RocSvg(const ScoreQuality& quality, const std::vector<size_t>& classes);
std::string PrecisionRecallSvg(const ScoreQuality& quality, const std::vector<size_t>& classes);
std::string CalibrationSvg(const CalibrationCurve& calibration);
std::string ResidualsSvg(const ResidualHistogram& residuals);
// Answers over labels.
std::string AnswersSvg(const std::vector<std::pair<double, double>>& points);

// A picture uint8 [C, H, W] as the URL of a PNG, made smaller to at most `side` pixels a side.
std::string PictureUrl(const Tensor& picture, int64_t side);

}  // namespace coracle::inline internal
