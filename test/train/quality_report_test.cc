// Reports on the quality of a model as text, JSON and a page.

#include <coracle/framework/base/json_reader.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/log/quality_report.h>
#include <coracle/train/log/quality_svg.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::quality_report_test {

constexpr const char* kHostile = "<script>alert(1)</script>\"'&\xFF\x1B[31m";

QualityReport ClassReport(int64_t classes) {
  QualityReport report;
  report.model = report.data = report.output = kHostile;
  for (int64_t c = 0; c < classes; ++c) report.classes.push_back(fmt::format("c{}{}", c, kHostile));
  ScoredRows rows{classes, {}, {}};
  for (int64_t r = 0; r < 3 * classes; ++r) {
    rows.labels.push_back(r % classes);
    const int64_t answer = r % 5 == 0 ? 0 : r % classes;
    for (int64_t c = 0; c < classes; ++c) {
      rows.scores.push_back(c == answer ? 0.7 : 0.3 / static_cast<double>(classes - 1));
    }
  }
  report.scores = MeasureScores(rows, 2);
  report.columns = {"age", kHostile};
  ReportedRow row;
  row.place = "rows.csv:3";
  row.label = row.answer = kHostile;
  row.label_score = 0.25;
  row.answer_score = NAN;
  row.cells = {"41", kHostile};
  row.picture = Tensor::Full<uint8_t>({1, 300, 200}, 77);
  report.worst = {row};
  report.notes = {kHostile};
  return report;
}

QualityReport NumberReport(const std::vector<double>& answers, const std::vector<double>& labels) {
  QualityReport report;
  report.model = "m", report.data = "d", report.output = "o";
  report.numbers = MeasureNumbers(answers, labels);
  for (size_t i = 0; i < answers.size(); ++i) report.points.emplace_back(labels[i], answers[i]);
  ReportedRow row;
  row.residual = answers[0] - labels[0];
  report.worst = {row};
  return report;
}

TEST(QualityReport, TextIsAlignedAndHarmless) {
  const std::string text = ReportText(ClassReport(3));
  ExpectContains(text, "confusion matrix");
  ExpectContains(text, "macro average");
  ExpectContains(text, "rows.csv:3");
  EXPECT_EQ(text.find('\x1B'), std::string::npos);
  EXPECT_EQ(text.find('\xFF'), std::string::npos);
  const std::string many = ReportText(ClassReport(21));
  ExpectContains(many, "classes that are confused most");
  EXPECT_EQ(many.find("confusion matrix"), std::string::npos);
  ExpectContains(ReportText(NumberReport({1, 2}, {3, 3})), "R2 is undefined");
}

TEST(QualityReport, JsonHasTheNumbers) {
  const QualityReport report = ClassReport(3);
  const JsonReader json(ReportJson(report), "report");
  EXPECT_EQ(json.At("format").Text(), "coracle.report");
  EXPECT_EQ(json.At("rows").Integer(0), 9);
  const JsonReader scores = json.At("scores");
  EXPECT_EQ(scores.At("accuracy").Number(), report.scores->accuracy);
  EXPECT_EQ(scores.At("classes").Items().size(), 3u);
  EXPECT_EQ(scores.At("classes").Items()[1].At("roc").At("area").Number(),
            report.scores->roc[1].area);
  int64_t rows = 0;
  for (const JsonReader& cell : scores.At("confusion").Items()) rows += cell.At("rows").Integer(0);
  EXPECT_EQ(rows, 9);
  EXPECT_TRUE(std::isnan(json.At("worst").Items()[0].At("answer_score").Number()));
  const JsonReader numbers(ReportJson(NumberReport({1, 2}, {3, 3})), "report");
  EXPECT_EQ(numbers.At("numbers").At("mae").Number(), 1.5);
  EXPECT_EQ(numbers.At("numbers").At("r2").Text(), "nan");
}

TEST(QualityReport, PagesAreSelfContainedAndEscaped) {
  for (const int64_t classes : {2, 3, 40}) {
    const std::string page = ReportPage(ClassReport(classes));
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_EQ(page.find("http:"), std::string::npos);
    EXPECT_EQ(page.find("https:"), std::string::npos);
    EXPECT_EQ(page.find('\xFF'), std::string::npos);
    ExpectContains(page, "data:image/png;base64,");
    ExpectContains(page, "<h2>ROC</h2>");
    EXPECT_EQ(page.find("<h2>Residuals</h2>"), std::string::npos);
  }
  for (const auto& report : {NumberReport({1, 2, 5}, {1, 3, 4}), NumberReport({1, 1}, {1, 1}),
                             NumberReport({1.7e308, -1.7e308}, {-1.7e308, 1.7e308}),
                             NumberReport({0, 0}, {0, 0}), NumberReport({NAN, INFINITY}, {1, 2})}) {
    const std::string page = ReportPage(report);
    ExpectContains(page, "Answers and labels");
    for (const char* bad : {"=\"nan", "=\"inf", "=\"-nan", "=\"-inf", "Mnan", "Lnan", "Lin"})
      EXPECT_EQ(page.find(bad), std::string::npos) << bad;
  }
}

TEST(QualityReport, PicturesKeepTheirPixels) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 3 * 5 * 4; ++i) bytes.push_back(static_cast<uint8_t>(i * 37));
  for (const int64_t channels : {1, 3}) {
    const Tensor picture = Tensor::Of<uint8_t>(
        {channels, 5, 4},
        std::span<const uint8_t>(bytes).first(static_cast<size_t>(20 * channels)));
    const std::string url = PictureUrl(picture, 100);
    const std::string head = "data:image/png;base64,";
    ASSERT_TRUE(url.starts_with(head));
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string png;
    uint32_t group = 0;
    int bits = 0;
    for (const char c : url.substr(head.size())) {
      if (c == '=') break;
      group = group << 6 | static_cast<uint32_t>(digits.find(c));
      bits += 6;
      if (bits < 8) continue;
      bits -= 8;
      png += static_cast<char>(group >> bits & 255);
    }
    EXPECT_TRUE(BitEqual(DecodePicture(png, "url", 0), picture));
  }
  EXPECT_LT(PictureUrl(Tensor::Full<uint8_t>({1, 3000, 2}, 7), 50).size(), 400u);
}

}  // namespace coracle::quality_report_test
