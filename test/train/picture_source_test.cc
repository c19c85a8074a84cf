// Pictures in folders and lists as training data.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/picture_files.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>

#include <cmath>

namespace coracle::picture_source_test {

// A grey picture of 2 x 2 pixels.
std::string Pgm(int a, int b, int c, int d) {
  return "P2 2 2 255 " + std::to_string(a) + " " + std::to_string(b) + " " + std::to_string(c) +
         " " + std::to_string(d) + "\n";
}

struct Rows {
  std::vector<float> images;
  std::vector<int64_t> labels;
};

Rows RowsOf(const DataSource& source) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < source.size(); ++i) rows.push_back(i);
  Shape shape{source.size()};
  for (const int64_t dim : source.columns()[0].shape) shape.Append(dim);
  std::vector<Tensor> out{Tensor(DType::kFloat32, shape),
                          Tensor(DType::kInt64, {source.size(), 1})};
  source.Get(rows, out);
  const auto images = out[0].span<float>();
  const auto labels = out[1].span<int64_t>();
  return {{images.begin(), images.end()}, {labels.begin(), labels.end()}};
}

class Pictures : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileAtomic(dir_ / "train/dog/b.pgm", Pgm(40, 50, 60, 70));
    WriteFileAtomic(dir_ / "train/cat/a.pgm", Pgm(0, 51, 102, 255));
    WriteFileAtomic(dir_ / "train/cat/c.PNG", MakePng(2, 8, 0, {"\x01\x02", "\x03\x04"}));
    WriteFileAtomic(dir_ / "train/cat/notes.txt", "no picture");
  }
  PictureOptions Options(const std::string& directory = "train") {
    return {.directory = dir_ / directory, .channels = 1, .height = 2, .width = 2};
  }
  TempDir dir_;
};

TEST_F(Pictures, AFolderIsAClass) {
  const DataSourcePtr source = MakePictureSource(Options());
  EXPECT_EQ(source->columns()[0].shape, (Shape{1, 2, 2}));
  const Rows rows = RowsOf(*source);
  EXPECT_EQ(rows.labels, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(source->Labels(), rows.labels);
  const float bytes[] = {0, 51, 102, 255, 1, 2, 3, 4, 40, 50, 60, 70};
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(rows.images[i], bytes[i] * (1.0f / 255.0f)) << i;
  EXPECT_EQ(source->fitted()->pictures->classes, (std::vector<std::string>{"cat", "dog"}));
  ExpectContains(source->Place(2), "train/dog/b.pgm");
  ExpectContains(source->Describe(), "pictures 'train' (3 files, crc ");
  // The same rows without a cache, and again from it.
  PictureOptions uncached = Options();
  uncached.cache_mb = 0;
  EXPECT_EQ(RowsOf(*MakePictureSource(uncached)).images, rows.images);
  EXPECT_EQ(RowsOf(*source).images, rows.images);
}

TEST_F(Pictures, ChannelsMayBeBlueGreenRed) {
  WriteFileAtomic(dir_ / "colours/x/a.png", MakePng(1, 8, 2, {"\x01\x02\x03"}));
  PictureOptions options = {.directory = dir_ / "colours", .height = 1, .width = 1};
  options.mean = {10, 20, 30};  // in the order of the channels
  options.scale = {1};
  EXPECT_EQ(RowsOf(*MakePictureSource(options)).images, (std::vector<float>{-9, -18, -27}));
  options.channel_order = ChannelOrder::kBgr;
  EXPECT_EQ(RowsOf(*MakePictureSource(options)).images, (std::vector<float>{-7, -18, -29}));
}

// A list is the user's own: it may name any file, as lists of other tools do.
TEST_F(Pictures, ListsMayNameFilesElsewhere) {
  PictureOptions options = {.list = dir_ / "lists/l.txt", .channels = 1, .height = 2, .width = 2};
  WriteFileAtomic(options.list, "../train/dog/b.pgm +1\n" + (dir_ / "train/cat/a.pgm") + " 1.0\n");
  const Rows rows = RowsOf(*MakePictureSource(options));
  EXPECT_EQ(rows.labels, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(rows.images[0], 40 * (1.0f / 255.0f));
}

TEST_F(Pictures, ClassesAndSizesMayBeGiven) {
  PictureOptions options = Options();
  options.classes = {"dog", "bird", "cat"};
  options.height = 1;
  options.width = 1;
  options.channels = 3;
  options.mean = {1, 2, 3};
  options.scale = {0.5f};
  const Rows rows = RowsOf(*MakePictureSource(options));
  EXPECT_EQ(rows.labels, (std::vector<int64_t>{2, 2, 0}));
  // (0 + 51 + 102 + 255) / 4 = 102, (1 + 2 + 3 + 4) / 4 = 2.5 becomes 3, and 55.
  EXPECT_EQ(rows.images, (std::vector<float>{50.5, 50, 49.5, 1, 0.5, 0, 27, 26.5, 26}));
  options.classes = {"dog", "bird"};
  ExpectContains(ErrorOf([&] { MakePictureSource(options); }), "'cat' is not one of the classes");
}

TEST_F(Pictures, LinesOfAList) {
  WriteFileAtomic(dir_ / "train/list.txt", "cat/a.pgm 7\n\n  dog/b.pgm\t3\r\n");
  PictureOptions options = Options();
  options.directory = "";
  options.list = dir_ / "train/list.txt";
  const Rows rows = RowsOf(*MakePictureSource(options));
  EXPECT_EQ(rows.labels, (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(rows.images[4], 40 * (1.0f / 255.0f));
  WriteFileAtomic(options.list, "cat/a.pgm cat\n");
  ExpectContains(ErrorOf([&] { MakePictureSource(options); }),
                 "list.txt:1: the label 'cat' is not the number of a class");
  options.classes = {"dog", "cat"};
  EXPECT_EQ(RowsOf(*MakePictureSource(options)).labels, (std::vector<int64_t>{1}));
  WriteFileAtomic(options.list, "cat/a.pgm\n");
  ExpectContains(ErrorOf([&] { MakePictureSource(options); }), "no label after the path");
}

TEST_F(Pictures, BadFiles) {
  WriteFileAtomic(dir_ / "train/dog/a.jpg", "\xff\xd8 no jpeg");
  const DataSourcePtr source = MakePictureSource(Options());
  EXPECT_EQ(source->size(), 4);
  ExpectContains(ErrorOf([&] { RowsOf(*source); }), "train/dog/a.jpg: damaged JPEG");
  PictureOptions skip = Options();
  skip.bad_files = BadFiles::kSkip;
  EXPECT_EQ(RowsOf(*MakePictureSource(skip)).labels, (std::vector<int64_t>{0, 0, 1}));
  ExpectContains(ErrorOf([&] { MakePictureSource(Options("nothing")); }), "nothing");
  std::filesystem::create_directories(dir_ / "empty/cat");
  ExpectContains(ErrorOf([&] { MakePictureSource(Options("empty")); }), "no pictures");
  PictureOptions wrong = Options();
  wrong.height = 0;
  ExpectContains(ErrorOf([&] { MakePictureSource(wrong); }), "height and width");
  wrong = Options();
  wrong.mean = {1, 2};
  ExpectContains(ErrorOf([&] { MakePictureSource(wrong); }), "one for each of 1 channels");
}

// The training rows alone have mean 0 and deviation 1.
TEST_F(Pictures, StandardizedByTheTrainingRows) {
  PictureOptions options = Options();
  options.standardize = true;
  const DataSourcePtr source = MakePictureSource(options, [](int64_t) {
    return std::vector<int64_t>{0, 2};
  });
  const double train[] = {0, 51, 102, 255, 40, 50, 60, 70};
  double mean = 0, squares = 0;
  for (const double v : train) mean += v / 8;
  for (const double v : train) squares += (v - mean) * (v - mean) / 8;
  const auto m = static_cast<float>(mean);
  const auto s = static_cast<float>(1 / std::sqrt(squares));
  const Rows rows = RowsOf(*source);
  const float bytes[] = {0, 51, 102, 255, 1, 2, 3, 4, 40, 50, 60, 70};
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(rows.images[i], (bytes[i] - m) * s, 1e-6) << i;
  const PictureOptions fitted = *source->fitted()->pictures;
  EXPECT_FALSE(fitted.standardize);
  EXPECT_EQ(fitted.mean, (std::vector<float>{m}));
  // The fitted options alone make the same values.
  EXPECT_EQ(RowsOf(*MakePictureSource(fitted)).images, rows.images);
}

}  // namespace coracle::picture_source_test
