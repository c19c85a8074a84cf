// Texts in csv columns, and means and deviations of columns.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <map>

namespace coracle::csv_text_test {

using Ids = std::vector<int64_t>;

// All rows of a source; columns of sequences one after the other.
std::map<std::string, Tensor> AllOf(const DataSource& source) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < source.size(); ++i) rows.push_back(i);
  std::vector<Tensor> out;
  for (const DataColumn& column : source.columns()) {
    Shape shape{column.sequences ? 0 : source.size()};
    for (const int64_t dim : column.shape) shape.Append(dim);
    out.emplace_back(column.dtype, shape);
  }
  source.Get(rows, out);
  std::map<std::string, Tensor> columns;
  for (size_t c = 0; c < out.size(); ++c) columns[source.columns()[c].name] = out[c];
  return columns;
}

Ids IdsOf(const Tensor& tensor) {
  const auto values = tensor.span<int64_t>();
  return {values.begin(), values.end()};
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

CsvOptions TextOptionsOf(TextColumnOptions words, int64_t length) {
  CsvOptions options;
  options.file = "t.csv";
  options.header = true;
  options.columns = {{.name = "text", .words = words, .length = length}};
  return options;
}

constexpr const char* kTexts =
    "text,label\n"
    "the cat saw the dog,0\n"
    "\"The dog, the dog!\",1\n"
    ",0\n";

TEST(CsvText, WordsOfFixedLength) {
  const DataSourcePtr source = ParseCsv(kTexts, TextOptionsOf({.lower = true}, 6));
  // the 4, dog 3, then words that appear once, by their bytes: ! , cat saw.
  const auto list = source->fitted()->csv->columns[0].words->list;
  EXPECT_EQ(list->words(), (std::vector<std::string>{"the", "dog", "!", ",", "cat", "saw"}));
  EXPECT_EQ(list->size(), 8);
  const auto all = AllOf(*source);
  EXPECT_EQ(all.at("text").shape(), (Shape{3, 6}));
  EXPECT_EQ(IdsOf(all.at("text")), (Ids{2, 6, 7, 2, 3, 0, 2, 3, 5, 2, 3, 4, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(IdsOf(all.at("text@LENGTH")), (Ids{5, 6, 0}));
  EXPECT_EQ(all.count("data"), 0u);
  // Longer texts are cut off.
  EXPECT_EQ(IdsOf(AllOf(*ParseCsv(kTexts, TextOptionsOf({.lower = true}, 2))).at("text")),
            (Ids{2, 6, 2, 3, 0, 0}));
}

TEST(CsvText, SizeAndCountLimitTheVocabulary) {
  const TextColumnOptions small = {.size = 4, .lower = true};
  EXPECT_EQ(IdsOf(AllOf(*ParseCsv(kTexts, TextOptionsOf(small, 6))).at("text")),
            (Ids{2, 1, 1, 2, 3, 0, 2, 3, 1, 2, 3, 1, 0, 0, 0, 0, 0, 0}));
  const TextColumnOptions frequent = {.min_count = 4, .lower = true};
  const DataSourcePtr source = ParseCsv(kTexts, TextOptionsOf(frequent, 6));
  EXPECT_EQ(source->fitted()->csv->columns[0].words->list->words(),
            (std::vector<std::string>{"the"}));
  // Without lower and the division of punctuation, other words.
  const DataSourcePtr plain = ParseCsv(kTexts, TextOptionsOf({.split_punctuation = false}, 6));
  EXPECT_EQ(plain->fitted()->csv->columns[0].words->list->words(),
            (std::vector<std::string>{"the", "The", "cat", "dog", "dog!", "dog,", "saw"}));
}

TEST(CsvText, TheVocabularyIsOfTheTrainingRows) {
  const DataSourcePtr source = ParseCsv(kTexts, TextOptionsOf({.lower = true}, 3),
                                        [](int64_t) { return std::vector<int64_t>{0}; });
  EXPECT_EQ(source->fitted()->csv->columns[0].words->list->words(),
            (std::vector<std::string>{"the", "cat", "dog", "saw"}));
  EXPECT_EQ(IdsOf(AllOf(*source).at("text")), (Ids{2, 3, 5, 2, 4, 1, 0, 0, 0}));
  // The fitted options read other rows with the same numbers.
  CsvOptions fitted = *source->fitted()->csv;
  EXPECT_EQ(IdsOf(AllOf(*ParseCsv("text,label\nsaw a cat,1\n", fitted)).at("text")),
            (Ids{5, 1, 3}));
}

TEST(CsvText, CharactersAsSequences) {
  CsvOptions options;
  options.columns = {{.name = "0", .sequence = "letters", .characters = TextColumnOptions()}};
  const DataSourcePtr source = ParseCsv("aba,0\n\xc3\xa9,1\n", options);
  EXPECT_EQ(source->fitted()->csv->columns[0].characters->list->words(),
            (std::vector<std::string>{"a", "b", "\xc3\xa9"}));
  CsvOptions unnamed = options;
  unnamed.columns[0].sequence = "";
  EXPECT_EQ(IdsOf(AllOf(*ParseCsv("aba,0\n", unnamed)).at("0")), (Ids{2, 3, 2}));
  const auto all = AllOf(*source);
  EXPECT_EQ(IdsOf(all.at("letters")), (Ids{2, 3, 2, 4}));
  EXPECT_EQ(all.at("letters").lod()[0], (std::vector<uint64_t>{0, 3, 4}));
  EXPECT_EQ(IdsOf(all.at("letters@LENGTH")), (Ids{3, 1}));
  ExpectContains(ErrorOf([&] { ParseCsv("a\xff,0\n", options); }),
                 "byte 1 of the text is not UTF-8");
}

TEST(CsvText, FilesOfVocabularies) {
  const TempDir dir;
  WriteFileAtomic(dir / "v.txt", "dog\nthe\n");
  const TextColumnOptions words = {.vocabulary = dir / "v.txt", .lower = true};
  EXPECT_EQ(IdsOf(AllOf(*ParseCsv(kTexts, TextOptionsOf(words, 5))).at("text")),
            (Ids{3, 1, 1, 3, 2, 3, 2, 1, 3, 2, 0, 0, 0, 0, 0}));
  const WordList list = WordList::Read(dir / "v.txt");
  WriteFileAtomic(dir / "v.json", list.ToJson());
  EXPECT_EQ(WordList::Read(dir / "v.json").words(), list.words());
  WriteFileAtomic(dir / "twice.txt", "a\nb\na\n");
  ExpectContains(ErrorOf([&] { WordList::Read(dir / "twice.txt"); }), "'a' appears twice");
  WriteFileAtomic(dir / "empty.txt", "a\n\nb\n");
  ExpectContains(ErrorOf([&] { WordList::Read(dir / "empty.txt"); }), "word 2 is empty");
  WriteFileAtomic(dir / "bad.json", "{\"format\": 3}");
  ExpectContains(ErrorOf([&] { WordList::Read(dir / "bad.json"); }), "not a list of words");
}

// The peak of a child's memory in megabytes; 0 if f is false.
int64_t PeakOf(const std::function<bool()>& f) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(f() ? 0 : 1);
  int status = 0;
  rusage use{};
  ::wait4(child, &status, 0, &use);
  return status == 0 ? use.ru_maxrss / 1024 : 0;
}

// A text of empty lines took 83 times its size before it was refused.
TEST(CsvText, EmptyLinesTakeNoMemory) {
  const TempDir dir;
  const std::string path = dir / "empty.txt";
  WriteFileAtomic(path, "w\n" + std::string(8'000'000, '\n'));
  const int64_t idle = PeakOf([] { return true; });
  const int64_t peak = PeakOf([&] {
    const std::string error = ErrorOf([&] { WordList::Read(path); });
    return error.find("word 2 is empty") != error.npos;
  });
  ASSERT_GT(peak, 0);
  EXPECT_LT(peak, idle + 60);
}

constexpr const char* kNumbers =
    "a,same,kind,b,y\n"
    "1,5,x,0.5,10\n"
    "2,5,y,0.25,20\n"
    "6,5,x,-1,60\n"
    "100,6,y,7,1000\n";

CsvOptions NumberOptions() {
  CsvOptions options;
  options.file = "n.csv";
  options.header = true;
  options.label_kind = CsvLabel::kReal;
  options.standardize = options.standardize_label = true;
  options.columns = {{.name = "kind", .categories = {"x", "y"}}, {.name = "b", .mean = 1.0f}};
  return options;
}

// Columns with their own mean or scale, and words, stay as they are.
TEST(CsvStandardize, TrainingRowsHaveMeanZeroAndDeviationOne) {
  const DataSourcePtr source = ParseCsv(kNumbers, NumberOptions(), [](int64_t) {
    return std::vector<int64_t>{0, 1, 2};
  });
  const float a = 3, scale = static_cast<float>(1 / std::sqrt((4.0 + 1 + 9) / 3));
  const float label = 30, label_scale = static_cast<float>(1 / std::sqrt((400.0 + 100 + 900) / 3));
  const std::vector<float> wanted = {
      (1 - a) * scale, 0, 1, 0, -0.5, (2 - a) * scale,   0, 0, 1, -0.75,
      (6 - a) * scale, 0, 1, 0, -2,   (100 - a) * scale, 1, 0, 1, 6};
  const auto all = AllOf(*source);
  EXPECT_EQ(FloatsOf(all.at("data")), wanted);
  EXPECT_EQ(FloatsOf(all.at("label")),
            (std::vector<float>{(10 - label) * label_scale, (20 - label) * label_scale,
                                (60 - label) * label_scale, (1000 - label) * label_scale}));
  // The fitted options alone make the same values, also if the columns change places.
  const CsvOptions fitted = *source->fitted()->csv;
  EXPECT_EQ(FloatsOf(AllOf(*ParseCsv(kNumbers, fitted)).at("data")), wanted);
  const auto swapped = AllOf(*ParseCsv("same,a,kind,b,y\n5,1,x,0.5,10\n", fitted));
  EXPECT_EQ(FloatsOf(swapped.at("data")), (std::vector<float>{0, wanted[0], 1, 0, -0.5}));
  EXPECT_EQ(fitted.label_mean, 30);
}

TEST(CsvStandardize, WithoutHeaderAndWithExtremeValues) {
  CsvOptions options;
  options.standardize = true;
  const DataSourcePtr source = ParseCsv("0.1,1e38,0\n0.1,-1e38,1\n0.1,1e38,0\n", options);
  const auto data = FloatsOf(AllOf(*source).at("data"));
  for (size_t row = 0; row < 3; ++row) EXPECT_EQ(data[2 * row], 0);
  double sum = 0;
  for (size_t row = 0; row < 3; ++row) sum += static_cast<double>(data[2 * row + 1]);
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_EQ(source->fitted()->csv->columns[1].name, "1");
  ExpectContains(ErrorOf([&] {
                   ParseCsv("3.4e38,0\n-3.4e38,1\n", options,
                            [](int64_t) { return std::vector<int64_t>{0}; });
                 }),
                 "float32 cannot hold");
}

}  // namespace coracle::csv_text_test
