// The examples of these pages of docs/ print what the pages say.

#include <coracle/framework/base/text.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>
#include <coracle/test/train/picture_files.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <span>
#include <sstream>

namespace coracle::docs_examples_test {

namespace fs = std::filesystem;

struct Example {
  int line = 0;
  std::string command;
  std::vector<std::string> printed;
};

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Commands after "$ " in blocks of code, with the text up to the next one.
std::vector<Example> ExamplesOf(const std::string& page) {
  std::vector<Example> examples;
  bool code = false, goes_on = false;
  int number = 0;
  for (const std::string& line : LinesOf(page)) {
    ++number;
    if (line.starts_with("```")) {
      code = !code;
      if (code) examples.push_back({number, "", {}});  // what stands before the first command
    } else if (goes_on) {
      examples.back().command += std::string(Trim(line));
    } else if (code && line.starts_with("$ ")) {
      examples.push_back({number, line.substr(2), {}});
    } else if (code) {
      examples.back().printed.push_back(line);
      continue;
    }
    goes_on = !examples.empty() && examples.back().command.ends_with('\\');
    if (goes_on) examples.back().command.pop_back();
  }
  std::erase_if(examples,
                [](const Example& each) { return !each.command.starts_with("coracle "); });
  return examples;
}

// Without what differs from machine to machine: milliseconds, the sizes of pages.
std::string WithoutNumbers(const std::string& line) {
  static const std::regex kMilliseconds(" +[0-9]+\\.[0-9][0-9](?= |$)");
  static const std::regex kPage("(\\.html: .*), [0-9.]+ [KM]iB");
  std::string text = std::regex_replace(line, kMilliseconds, " MS");
  text = std::regex_replace(text, kPage, "$1");
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

// Whether `got` equals `line`, in which "..." matches anything.
bool LineMatches(const std::string& line, const std::string& got) {
  static const std::regex kSpecial("[.^$|()\\[\\]{}*+?\\\\]");
  std::string pattern = std::regex_replace(line, kSpecial, "\\$&");
  pattern = std::regex_replace(pattern, std::regex("\\\\\\.\\\\\\.\\\\\\."), ".*");
  return std::regex_match(got, std::regex(pattern));
}

// A line of dots matches any lines.
bool Matches(std::span<const std::string> printed, std::span<const std::string> got) {
  if (printed.empty()) return got.empty();
  if (Trim(printed[0]) == "...") {
    for (size_t skipped = 0; skipped <= got.size(); ++skipped)
      if (Matches(printed.subspan(1), got.subspan(skipped))) return true;
    return false;
  }
  return !got.empty() && LineMatches(WithoutNumbers(printed[0]), WithoutNumbers(got[0])) &&
         Matches(printed.subspan(1), got.subspan(1));
}

class DocsExamples : public Cli {
 protected:
  // The files that the examples name.
  void SetUp() override {
    Cli::SetUp();
    const char* sources = std::getenv("CORACLE_SOURCE_DIR");
    ASSERT_NE(sources, nullptr);
    source_ = sources;
    fs::create_directories(Path("examples"));
    fs::copy(source_ + "/examples/digits", Path("examples/digits"), fs::copy_options::recursive);
    fs::copy(source_ + "/examples/digits", dir_);
    WriteFileAtomic(Path("model.pbtxt"),
                    "name: \"tiny\"\n"
                    "data { name: \"x\" shape: [-1, 3] }\n"
                    "layer { fc { input: \"x\" size: 2 output: \"h\" } }\n"
                    "layer { mean { input: \"h\" output: \"loss\" } }\n");
    Expect("coracle build model.pbtxt --out=main.pb", 0, {});
    std::string plain = ReadFile(Path("lenet.pbtxt"));
    const std::string clip = " error_clip { by_value { max: 5 } }";
    ASSERT_NE(plain.find(clip), std::string::npos);
    plain.erase(plain.find(clip), clip.size());
    WriteFileAtomic(Path("plain.pbtxt"), plain);
    Expect("coracle backward plain.pbtxt --loss=loss --out=plain.pb", 0, {});
    Expect("coracle backward lenet.pbtxt --loss=loss --out=clipped.pb && cp clipped.pb train.pb", 0,
           {});
    const std::string models = TestDataDirectory() + "/paddle/";
    has_models_ = !TestDataDirectory().empty();
    if (!has_models_) return;
    for (const char* name : {"ch_PP-OCRv3_det", "ch_PP-OCRv3_rec"})
      fs::copy(models + name, Path(name), fs::copy_options::recursive);
    fs::copy(models + "ch_ppocr_mobile_v2.0_cls", dir_);
    fs::copy(models + "ch_ppocr_mobile_v2.0_cls", Path("model"));
    fs::create_directory(Path("optimised"));
  }

  bool NeedsModels(const Example& example) const {
    for (const char* name : {"inference.pdmodel", "ch_PP-OCR", "head.pdmodel", "params"})
      if (example.command.find(name) != std::string::npos) return true;
    return false;
  }

  // Runs those that do not begin with one of `others`.
  void Try(const std::string& page, const std::vector<std::string>& others) {
    const std::vector<Example> examples = ExamplesOf(ReadFile(source_ + "/docs/" + page));
    int tried = 0, without_models = 0;
    for (const Example& example : examples) {
      const auto is_other = [&](const std::string& other) {
        return example.command.starts_with(other);
      };
      if (std::any_of(others.begin(), others.end(), is_other)) continue;
      if (NeedsModels(example) && !has_models_) {
        ++without_models;
        continue;
      }
      const Result result = Shell("cd " + dir_ + " && " + example.command);
      EXPECT_TRUE(Matches(example.printed, LinesOf(result.text)))
          << page << ":" << example.line << ": $ " << example.command << "\n"
          << result.text;
      ++tried;
    }
    fmt::print("{}: {} of {} examples tried{}\n", page, tried, examples.size(),
               without_models > 0 ? fmt::format("; {} need models that are not here (CORACLE_DATA)",
                                                without_models)
                                  : "");
    EXPECT_GT(tried, 1);
  }

  std::string source_;
  bool has_models_ = false;
};

TEST_F(DocsExamples, CommandLine) {
  // Runs of jobs, times, and values of a machine.
  Try("command_line.md", {"coracle diff runs/1", "coracle bench", "coracle compare"});
}

TEST_F(DocsExamples, Predict) {
  if (!has_models_) GTEST_SKIP() << "the data is not there";
  fs::copy(source_ + "/examples/iris", Path("examples/iris"), fs::copy_options::recursive);
  fs::create_directory(Path("data"));
  fs::copy(TestDataDirectory() + "/uci/iris.csv", Path("data"));
  WriteFileAtomic(Path("data/rows.csv"), "5.1,3.5,1.4,0.2\n6.3,3.3,6.0,2.5\n");
  WriteFileAtomic(Path("data/bad.csv"), "5.1,3.5,1.4,0.2\n6.3,x,6.0,2.5\n");
  Try("predict.md", {});
}

// Writes drawn digits as PNG files, a folder for each class.
void WriteDigits(const std::string& directory, DigitSplit split, int64_t count) {
  const DataSourcePtr digits = MakeDigits({.count = count, .seed = 6}, split);
  std::vector<Tensor> row{Tensor(DType::kFloat32, {1, 1, 28, 28}), Tensor(DType::kInt64, {1, 1})};
  for (int64_t i = 0; i < count; ++i) {
    digits->Get(std::vector<int64_t>{i}, row);
    std::vector<std::string> rows(28, std::string(28, 0));
    for (size_t k = 0; k < 784; ++k)
      rows[k / 28][k % 28] = static_cast<char>(std::lround(row[0].data<float>()[k] * 255));
    WriteFileAtomic(fmt::format("{}/{}/{:04}.png", directory, row[1].data<int64_t>()[0], i),
                    MakePng(28, 8, 0, rows));
  }
}

TEST_F(DocsExamples, DesignersDay) {
  for (const char* example : {"housing", "pictures", "reviews"})
    fs::copy(source_ + "/examples/" + example, Path("examples/" + std::string(example)),
             fs::copy_options::recursive);
  WriteDigits(Path("data/train"), DigitSplit::kTrain, 600);
  WriteDigits(Path("data/test"), DigitSplit::kTest, 200);
  fs::create_directory(Path("data/new"));
  fs::copy(Path("data/test/3"), Path("data/threes"));
  fs::copy_file(fs::directory_iterator(Path("data/threes"))->path(), Path("data/new/three.png"));
  WriteFileAtomic(Path("data/new.csv"),
                  "text\n\"the soup was cold, never again\"\n\"a lovely garden, thank you\"\n");
  std::vector<std::string> others;
  if (has_models_) {
    fs::copy(TestDataDirectory() + "/uci/california_housing.csv", Path("data"));
    WriteFileAtomic(Path("data/houses.csv"),
                    "longitude,latitude,housing_median_age,total_rooms,total_bedrooms,population,"
                    "households,median_income,ocean_proximity\n"
                    "-122.2,37.8,40,2000,400,900,380,6.5,NEAR BAY\n"
                    "-119.6,36.6,20,1500,,1200,350,2.1,INLAND\n");
  } else {
    for (const char* begin : {"coracle train examples/housing", "coracle sweep examples/housing",
                              "coracle report first", "coracle predict first"})
      others.emplace_back(begin);
  }
  Try("designers_day.md", others);
}

TEST_F(DocsExamples, Quantization) { Try("quantization.md", {"coracle quantize MODEL"}); }

TEST_F(DocsExamples, ManyMachines) { Try("many_machines.md", {"coracle time"}); }

}  // namespace coracle::docs_examples_test
