#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <random>

namespace coracle::file_sources_test {

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (int v : values) bytes += static_cast<char>(v);
  return bytes;
}

std::string Gzip(const std::string& data) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, data.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::vector<Tensor> RowsOf(const DataSource& source, std::vector<int64_t> rows) {
  std::vector<Tensor> out;
  for (const DataColumn& column : source.columns()) {
    Shape shape{static_cast<int64_t>(rows.size())};
    for (int64_t dim : column.shape) shape.Append(dim);
    out.emplace_back(column.dtype, shape);
  }
  source.Get(rows, out);
  return out;
}

const std::string kTwoImages =
    Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2}) + Bytes({0, 51, 102, 255});
const std::string kTwoLabels = Bytes({0, 0, 8, 1, 0, 0, 0, 2, 7, 9});

TEST(Idx, ParsesTypesBigEndian) {
  EXPECT_TRUE(
      BitEqual(ParseIdx(kTwoImages, "x"), Tensor::Of<uint8_t>({2, 1, 2}, {0, 51, 102, 255})));
  EXPECT_TRUE(BitEqual(ParseIdx(Bytes({0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 2, 255, 254}), "x"),
                       Tensor::Of<int16_t>({2}, {258, -2})));
  EXPECT_TRUE(BitEqual(ParseIdx(Bytes({0, 0, 0x0D, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0}), "x"),
                       Tensor::Of<float>({1}, {1.5f})));
  EXPECT_TRUE(BitEqual(ParseIdx(Bytes({0, 0, 0x0E, 1, 0, 0, 0, 1, 0xc0, 0, 0, 0, 0, 0, 0, 0}), "x"),
                       Tensor::Of<double>({1}, {-2.0})));
  EXPECT_EQ(ParseIdx(Bytes({0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 4}), "x").shape(), Shape({0, 4}));
}

TEST(Idx, RefusesDamage) {
  ExpectContains(ErrorOf([] { ParseIdx("", "f.idx"); }), "f.idx");
  ExpectContains(ErrorOf([] { ParseIdx(Bytes({1, 0, 8, 1, 0, 0, 0, 0}), "f"); }), "not an idx");
  ExpectContains(ErrorOf([] { ParseIdx(Bytes({0, 0, 7, 1, 0, 0, 0, 0}), "f"); }), "0x07");
  ExpectContains(ErrorOf([] { ParseIdx(Bytes({0, 0, 8, 0}), "f"); }), "rank");
  ExpectContains(ErrorOf([] { ParseIdx(Bytes({0, 0, 8, 200, 0, 0, 0, 1}), "f"); }), "rank");
  ExpectContains(ErrorOf([] { ParseIdx(Bytes({0, 0, 8, 3, 0, 0, 0, 1}), "f"); }), "cut off");
  ExpectContains(ErrorOf([] { ParseIdx(kTwoImages + "x", "f"); }), "needs 20 bytes");
  ExpectContains(ErrorOf([] { ParseIdx(kTwoImages.substr(0, 19), "f"); }), "the file has 19");
  std::string huge = Bytes({0, 0, 14, 3}) + std::string(12, '\xff');
  ExpectContains(ErrorOf([&] { ParseIdx(huge, "f"); }), "needs more than");
}

TEST(Idx, ReadsGzipAndRefusesDamagedGzip) {
  TempDir dir;
  WriteFileAtomic(dir / "a.gz", Gzip(kTwoImages));
  EXPECT_TRUE(BitEqual(ReadIdx(dir / "a.gz"), ParseIdx(kTwoImages, "x")));
  std::string packed = Gzip(kTwoImages);
  WriteFileAtomic(dir / "cut.gz", packed.substr(0, packed.size() - 9));
  ExpectContains(ErrorOf([&] { ReadIdx(dir / "cut.gz"); }), "cut off");
  WriteFileAtomic(dir / "more.gz", packed + "x");
  ExpectContains(ErrorOf([&] { ReadIdx(dir / "more.gz"); }), "follow");
  std::string bad_crc = packed;
  bad_crc[bad_crc.size() - 6] = static_cast<char>(bad_crc[bad_crc.size() - 6] ^ 1);
  WriteFileAtomic(dir / "crc.gz", bad_crc);
  ExpectContains(ErrorOf([&] { ReadIdx(dir / "crc.gz"); }), "damaged");
  WriteFileAtomic(dir / "longer.gz", Gzip(kTwoImages + "x"));
  ExpectContains(ErrorOf([&] { ReadIdx(dir / "longer.gz"); }), "needs 20 bytes");
  // 2 GB claimed by a header that packs to some 60 bytes.
  std::string claim = Bytes({0, 0, 8, 1, 0x7f, 255, 255, 255});
  WriteFileAtomic(dir / "claim.gz", Gzip(claim));
  ExpectContains(ErrorOf([&] { ReadIdx(dir / "claim.gz"); }), "claims more");
}

TEST(Idx, FlippedBitsNeverCrash) {
  TempDir dir;
  std::mt19937 random(1);
  std::string images = kTwoImages, packed = Gzip(kTwoImages);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = i % 2 ? images : packed;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    std::ofstream(dir / "f", std::ios::binary) << bytes;
    try {
      ReadIdx(dir / "f");
    } catch (const Error&) {
    }
  }
}

TEST(Idx, SourceNormalisesAndAddsAChannel) {
  TempDir dir;
  WriteFileAtomic(dir / "images", kTwoImages);
  WriteFileAtomic(dir / "labels.gz", Gzip(kTwoLabels));
  // "images.gz" is not there, "images" is; "labels" is not there, "labels.gz" is.
  DataSourcePtr source = MakeIdxSource(
      {.images = dir / "images.gz", .labels = dir / "labels", .mean = 0, .scale = {}});
  EXPECT_EQ(source->columns()[0].shape, Shape({1, 1, 2}));
  std::vector<Tensor> rows = RowsOf(*source, {1, 0});
  auto image = rows[0].span<float>();
  EXPECT_FLOAT_EQ(image[0], 0.4f);
  EXPECT_FLOAT_EQ(image[1], 1.0f);
  EXPECT_FLOAT_EQ(image[3], 0.2f);
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<int64_t>({2, 1}, {9, 7})));
  DataSourcePtr centred = MakeIdxSource(
      {.images = dir / "images", .labels = dir / "labels", .mean = 51, .scale = 2.0f});
  EXPECT_FLOAT_EQ(RowsOf(*centred, {0})[0].data<float>()[0], -102.0f);
  ExpectContains(
      ErrorOf([&] {
        MakeIdxSource({.images = dir / "images", .labels = dir / "images", .mean = 0, .scale = {}});
      }),
      "labels must be integers");
  ExpectContains(
      ErrorOf([&] {
        MakeIdxSource(
            {.images = dir / "none.gz", .labels = dir / "labels", .mean = 0, .scale = {}});
      }),
      "none.gz");
}

std::string DataDirectory() {
  if (const char* data = std::getenv("CORACLE_DATA")) return data;
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return source ? std::string(source) + "/../shared/data" : "";
}

TEST(Idx, ReadsMnist) {
  std::string mnist = DataDirectory() + "/mnist/";
  if (!FileExists(mnist)) GTEST_SKIP() << "MNIST is not at " << mnist;
  DataSourcePtr source = MakeIdxSource({.images = mnist + "t10k-images-idx3-ubyte.gz",
                                        .labels = mnist + "t10k-labels-idx1-ubyte",
                                        .mean = 0,
                                        .scale = {}});
  EXPECT_EQ(source->size(), 10000);
  EXPECT_EQ(source->columns()[0].shape, Shape({1, 28, 28}));
  EXPECT_EQ(RowsOf(*source, {0, 1, 2, 3})[1].ToString(), "int64[4, 1]");
  auto labels = RowsOf(*source, {0, 1, 2, 3})[1];
  EXPECT_TRUE(BitEqual(labels, Tensor::Of<int64_t>({4, 1}, {7, 2, 1, 0})));  // as MNIST begins
}

CsvOptions Csv() {
  CsvOptions options;
  options.file = "t.csv";
  return options;
}

TEST(Csv, LastColumnIsTheLabel) {
  DataSourcePtr source = ParseCsv("1,2.5,3\r\n\r\n-4, 5e-1 ,6", Csv());
  std::vector<Tensor> rows = RowsOf(*source, {0, 1});
  EXPECT_TRUE(BitEqual(rows[0], Tensor::Of<float>({2, 2}, {1, 2.5, -4, 0.5})));
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<int64_t>({2, 1}, {3, 6})));
  EXPECT_EQ(ParseCsv("\xEF\xBB\xBF"
                     "1,2\n",
                     Csv())
                ->size(),
            1);  // a spreadsheet's beginning
}

TEST(Csv, HeaderNamesSkipScaleShapeClasses) {
  CsvOptions options = Csv();
  options.header = true;
  options.delimiter = ';';
  options.label = "kind";
  options.label_kind = CsvLabel::kClass;
  options.classes = {"red", "blue \"sky\""};
  options.skip = {"note"};
  options.mean = 1;
  options.scale = 2;
  options.shape = {1, 2};
  DataSourcePtr source =
      ParseCsv("a;kind;note;b\n3;\"blue \"\"sky\"\"\";\"x;y\nz\";4\n5;red;;6\n", options);
  EXPECT_EQ(source->columns()[0].shape, Shape({1, 2}));
  std::vector<Tensor> rows = RowsOf(*source, {0, 1});
  EXPECT_TRUE(BitEqual(rows[0], Tensor::Of<float>({2, 1, 2}, {4, 6, 8, 10})));
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<int64_t>({2, 1}, {1, 0})));
}

TEST(Csv, RealLabelsAndEmptyCells) {
  CsvOptions options = Csv();
  options.label = "0";
  options.label_kind = CsvLabel::kReal;
  ExpectContains(ErrorOf([&] { ParseCsv("1,2\n0.5,\n", options); }), "t.csv:2:5: empty cell");
  options.fill = -1;
  std::vector<Tensor> rows = RowsOf(*ParseCsv("1,2\n0.5,\n", options), {0, 1});
  EXPECT_TRUE(BitEqual(rows[0], Tensor::Of<float>({2, 1}, {2, -1})));
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<float>({2, 1}, {1, 0.5})));
  ExpectContains(ErrorOf([&] { ParseCsv("1,2\n,3\n", options); }), "t.csv:2:1: empty cell");
}

TEST(Csv, ColumnsHaveSettingsAndCategories) {
  CsvOptions options = Csv();
  options.header = true;
  options.label = "y";
  options.scale = 2;
  options.columns = {{.name = "b", .fill = 4, .mean = 1},
                     {.name = "color", .categories = {"red", "blue"}},
                     {.name = "4", .categories = {"Rome", "Oslo"}, .ids = "city"}};
  DataSourcePtr source = ParseCsv("a,b,color,y,city\n1,,blue,7,Oslo\n\n2,3,red,8,Rome\n", options);
  ASSERT_EQ(source->columns().size(), 3u);
  EXPECT_EQ(source->columns()[1].name, "city");
  std::vector<Tensor> rows = RowsOf(*source, {0, 1});
  EXPECT_TRUE(BitEqual(rows[0], Tensor::Of<float>({2, 4}, {2, 6, 0, 1, 4, 4, 1, 0})));
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<int64_t>({2, 1}, {1, 0})));
  EXPECT_TRUE(BitEqual(rows[2], Tensor::Of<int64_t>({2, 1}, {7, 8})));
  EXPECT_EQ(source->Place(1), "t.csv:4");
  EXPECT_EQ(MakeSubset(source, 1, 1)->Place(0), "t.csv:4");

  const auto error = [&options](const std::string& row) {
    return ErrorOf([&] { ParseCsv("a,b,color,y,city\n" + row + "\n", options); });
  };
  EXPECT_EQ(error("1,2,blu,7,Oslo"),
            "t.csv:2:5: 'blu' is not one of the categories of 'color'; did you mean blue?");
  EXPECT_EQ(error("1,2,red,7,"), "t.csv:2:11: '' is not one of the categories of '4'");
  ExpectContains(error(",2,red,7,Oslo"), "t.csv:2:1: empty cell");
  options.columns = {{.name = "b"}, {.name = "1"}};
  EXPECT_EQ(error("1,2,3,4,5"), "t.csv: column '1' is described twice");
  options.columns = {{.name = "y"}};
  EXPECT_EQ(error("1,2,3,4,5"), "t.csv: column 'y' is the label, which has settings of its own");
  options.columns = {{.name = "c"}};
  ExpectContains(error("1,2,3,4,5"), "t.csv: no column 'c'");
}

// As spreadsheets write them.
TEST(Csv, SignsAndTinyNumbers) {
  const DataSourcePtr source = ParseCsv("+1.5,1e-400,+3\n-1e-400,+.5,4\n", Csv());
  const std::vector<Tensor> rows = RowsOf(*source, {0, 1});
  EXPECT_EQ(std::vector<float>(rows[0].data<float>(), rows[0].data<float>() + 4),
            (std::vector<float>{1.5f, 0, 0, 0.5f}));
  EXPECT_EQ(rows[1].data<int64_t>()[0], 3);
  for (const char* number : {"+", "++1", "+-1", "1e-400x"}) {
    ExpectContains(ErrorOf([&] { ParseCsv(std::string(number) + ",2\n", Csv()); }),
                   std::string("'") + number + "' is not a number");
  }
}

TEST(Csv, ErrorsSayLineAndColumn) {
  ExpectContains(ErrorOf([] { ParseCsv("1,2\n3,x4,5\n", Csv()); }), "t.csv:2:1: 3 cells");
  ExpectContains(ErrorOf([] { ParseCsv("1,2,0\n3,x4,5\n", Csv()); }),
                 "t.csv:2:3: 'x4' is not a number");
  ExpectContains(ErrorOf([] { ParseCsv("1,setosa\n", Csv()); }), "t.csv:1:3: label 'setosa'");
  for (const char* number : {"nan", "inf", "1e39", "1e400"}) {
    ExpectContains(ErrorOf([&] { ParseCsv(std::string("1,2\n") + number + ",2\n", Csv()); }),
                   std::string("t.csv:2:1: '") + number + "' is not a finite float32");
  }
  // Lines within quotes count.
  CsvOptions notes = Csv();
  notes.skip = {"0"};
  ExpectContains(ErrorOf([&] { ParseCsv("\"a\nb\n\",1,2\n\"c\",x,2\n", notes); }),
                 "t.csv:4:5: 'x' is not a number");
  ExpectContains(ErrorOf([] { ParseCsv("1,\"2\n", Csv()); }), "t.csv:1:3: a quoted cell");
  ExpectContains(ErrorOf([] { ParseCsv("\"1\"2,3\n", Csv()); }), "t.csv:1:4: text follows");
  ExpectContains(ErrorOf([] { ParseCsv("\n\n", Csv()); }), "no rows");
  CsvOptions options = Csv();
  options.label_kind = CsvLabel::kClass;
  options.classes = {"setosa", "virginica"};
  ExpectContains(ErrorOf([&] { ParseCsv("1,setsoa\n", options); }), "did you mean setosa?");
  options = Csv();
  options.label = "2";
  ExpectContains(ErrorOf([&] { ParseCsv("1,2\n", options); }), "no column '2'");
  options.header = true;
  options.label = "labell";
  ExpectContains(ErrorOf([&] { ParseCsv("x,label\n1,2\n", options); }), "did you mean label?");
  options.label = "label";
  ExpectContains(ErrorOf([&] { ParseCsv("x,label\n", options); }), "no rows below");
  options.shape = {2};
  ExpectContains(ErrorOf([&] { ParseCsv("x,label\n1,2\n", options); }), "shape [2]");
}

TEST(Csv, ReadsUci) {
  std::string uci = DataDirectory() + "/uci/";
  if (!FileExists(uci)) GTEST_SKIP() << "the UCI files are not at " << uci;
  CsvOptions options;
  options.file = uci + "optdigits.tra";
  options.header = true;
  options.scale = 1.0f / 16;
  options.shape = {1, 8, 8};
  EXPECT_EQ(MakeCsvSource(options)->size(), 3823);
  options = {};
  options.file = uci + "california_housing.csv";
  options.header = true;
  options.label = "median_house_value";
  options.label_kind = CsvLabel::kReal;
  options.skip = {"ocean_proximity"};
  ExpectContains(ErrorOf([&] { MakeCsvSource(options); }), "empty cell");
  options.fill = 0;
  EXPECT_EQ(MakeCsvSource(options)->size(), 20640);
}

TEST(Csv, Sequences) {
  CsvOptions options;
  options.file = "t.csv";
  options.columns = {{.name = "0", .sequence = "ids"},
                     {.name = "1", .categories = {"a", "b"}, .sequence = "words"}};
  const DataSourcePtr source = ParseCsv("3 -4,b,0\n,a b  a,1\n5,\"\",2\n", options);
  ASSERT_EQ(source->columns().size(), 5u);
  const std::vector<std::string> names = {"ids", "ids@LENGTH", "words", "words@LENGTH", "label"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(source->columns()[i].name, names[i]);
  const std::vector<Tensor> rows = RowsOf(*source, {1, 2, 0});
  EXPECT_TRUE(BitEqual(rows[0], Tensor::Of<int64_t>({3, 1}, {5, 3, -4})));
  EXPECT_EQ(rows[0].lod(), (LoD{{0, 0, 1, 3}}));
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<int64_t>({3, 1}, {0, 1, 2})));
  EXPECT_TRUE(BitEqual(rows[2], Tensor::Of<int64_t>({4, 1}, {0, 1, 0, 1})));
  EXPECT_EQ(rows[2].lod(), (LoD{{0, 3, 3, 4}}));
  EXPECT_EQ(ErrorOf([&] { ParseCsv("3 x,b,0\n", options); }), "t.csv:1:1: 'x' is not an integer");
  ExpectContains(ErrorOf([&] { ParseCsv("3,c,0\n", options); }),
                 "t.csv:1:3: 'c' is not one of the categories of '1'");
}

TEST(Npz, KeysBecomeColumns) {
  TempDir dir;
  std::string file = dir / "d.npz";
  WriteNpz({{"x", Tensor::Of<float>({2, 1, 2}, {1, 2, 3, 4})},
            {"y", Tensor::Of<int64_t>({2}, {5, 6})},
            {"mean", Tensor::Of<float>({}, {0.5f})}},
           file, true);
  NpzOptions options;
  options.file = file;
  options.columns = {{"y", "label"}, {"x", ""}};
  DataSourcePtr source = MakeNpzSource(options);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->columns()[0].name, "label");
  EXPECT_EQ(source->columns()[0].shape, Shape({1}));
  EXPECT_EQ(source->columns()[1].shape, Shape({1, 2}));
  std::vector<Tensor> rows = RowsOf(*source, {1});
  EXPECT_EQ(rows[0].Item<int64_t>(), 6);
  EXPECT_TRUE(BitEqual(rows[1], Tensor::Of<float>({1, 1, 2}, {3, 4})));
  options.columns = {{"z", ""}};
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "no array 'z'");
  options.columns.clear();
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "'mean' is a scalar");
  WriteNpz({{"x", Tensor::Of<float>({2}, {1, 2})}, {"y", Tensor::Of<float>({3}, {1, 2, 3})}}, file);
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "has 3 rows, column 'x' has 2");
  std::string bytes = ReadFile(file);
  WriteFileAtomic(file, bytes.substr(0, bytes.size() / 2));
  ErrorOf([&] { MakeNpzSource(options); });
}

TEST(Npz, Sequences) {
  TempDir dir;
  const std::string file = dir / "d.npz";
  const auto write = [&](const Tensor& offsets) {
    WriteNpz({{"x", Tensor::Of<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}, {"x@LOD@0", offsets}},
             file);
  };
  NpzOptions options;
  options.file = file;
  write(Tensor::Of<int32_t>({4}, {0, 1, 1, 4}));
  DataSourcePtr source = MakeNpzSource(options);
  ASSERT_EQ(source->size(), 3);
  ASSERT_EQ(source->columns().size(), 2u);
  EXPECT_TRUE(source->columns()[0].sequences);
  EXPECT_EQ(source->columns()[0].shape, Shape({2}));
  EXPECT_EQ(source->columns()[1].name, "x@LENGTH");
  BatchReader reader(source, {.batch_size = 2, .prefetch = false});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Tensor>& first = reader.Next();
    EXPECT_TRUE(BitEqual(first[0], Tensor::Of<float>({1, 2}, {1, 2})));
    EXPECT_EQ(first[0].lod(), (LoD{{0, 1, 1}}));
    EXPECT_TRUE(BitEqual(first[1], Tensor::Of<int64_t>({2, 1}, {1, 0})));
    EXPECT_EQ(RowsOfBatch(first[0]), 2);
    const std::vector<Tensor>& last = reader.Next();
    EXPECT_TRUE(BitEqual(last[0], Tensor::Of<float>({3, 2}, {3, 4, 5, 6, 7, 8})));
    EXPECT_EQ(last[0].lod(), (LoD{{0, 3}}));
    EXPECT_TRUE(BitEqual(last[1], Tensor::Of<int64_t>({1, 1}, {3})));
  }
  write(Tensor::Of<int64_t>({2}, {0, 5}));
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "ends with 5 where there are 4 rows");
  write(Tensor::Of<int64_t>({3}, {0, -1, 4}));
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "'x@LOD@0' has the offset -1");
  WriteNpz({{"x", Tensor::Of<float>({1}, {1})},
            {"x@LOD@0", Tensor::Of<int64_t>({2}, {0, 1})},
            {"x@LOD@1", Tensor::Of<int64_t>({2}, {0, 1})}},
           file);
  ExpectContains(ErrorOf([&] { MakeNpzSource(options); }), "'x' has nested sequences, 2 levels");
}

// One of two columns would hide the other.
TEST(Csv, ColumnsOfOneNameAreRefused) {
  CsvOptions options;
  options.file = "t.csv";
  options.columns = {{.name = "1", .categories = {"a", "b"}, .ids = "label"}};
  EXPECT_EQ(ErrorOf([&] { ParseCsv("1,a,0\n2,b,1\n", options); }),
            "csv 't.csv': two columns are called 'label'");
  options.columns[0].ids = "data";
  ExpectContains(ErrorOf([&] { ParseCsv("1,a,0\n2,b,1\n", options); }), "are called 'data'");
  options.columns[0].ids = "word";
  EXPECT_EQ(ParseCsv("1,a,0\n2,b,1\n", options)->columns().size(), 3u);
  options = {};
  options.file = "t.csv";
  options.header = true;
  options.skip = {"x"};
  EXPECT_EQ(ErrorOf([&] { ParseCsv("x,x,y\n1,2,3\n", options); }),
            "t.csv: two columns are called 'x': give the number of one, from 0");
  options.skip = {"1"};
  EXPECT_EQ(ParseCsv("x,x,y\n1,2,3\n", options)->columns()[0].shape, Shape({1}));
}

TEST(Csv, WordsAreListedOnce) {
  CsvOptions options;
  options.file = "t.csv";
  options.columns = {{.name = "0", .categories = {"a", "b", "a"}}};
  EXPECT_EQ(ErrorOf([&] { ParseCsv("a,0\n", options); }),
            "t.csv: category of column '0' lists 'a' twice");
  options.columns = {};
  options.label_kind = CsvLabel::kClass;
  options.classes = {"no", "no"};
  EXPECT_EQ(ErrorOf([&] { ParseCsv("1,no\n", options); }), "t.csv: class lists 'no' twice");
}
}  // namespace coracle::file_sources_test
