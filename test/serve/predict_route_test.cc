// POST /v1/predict: bodies of all types, with a model that adds up its inputs.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/serve/predict_route.h>
#include <coracle/test/train/picture_files.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coracle::predict_route_test {
using serve::HttpError;
using serve::PredictBytes;
using serve::PredictRoute;
using serve::Request;

// The feed "x" of this shape, and fetches made of it by `run`.
PredictorCore CoreOf(const std::string& preprocess, const Shape& shape, DType dtype,
                     const std::vector<std::string>& fetches, RunFeeds run) {
  InferenceModel model;
  VarDesc& x = model.program.Root().Var("x");
  x.SetMeta({.dtype = dtype, .shape = shape});
  model.feed_names = {"x"};
  model.fetch_names = fetches;
  return PredictorCore(std::move(model), ParsePreprocess(preprocess, "p"), std::move(run));
}

constexpr const char* kCells =
    "version: 1 csv { header: true cells: 3 column { name: 'a' number: 0 } "
    "column { name: 'b' number: 1 scale: 10 } } input { column: 'data' var: 'x' } "
    "output { var: 'sum' kind: NUMBER } output { var: 'scores' kind: CLASSES class: ['A', 'B'] }";

struct Counts {
  std::vector<int64_t> batches;
};

PredictorCore Cells(Counts* counts) {
  return CoreOf(kCells, {-1, 2}, DType::kFloat32, {"scores", "sum"},
                [counts](const std::vector<Tensor>& feeds) {
                  const int64_t rows = feeds[0].shape()[0];
                  counts->batches.push_back(rows);
                  Tensor sum(DType::kFloat32, {rows, 1});
                  for (int64_t i = 0; i < rows; ++i)
                    sum.data<float>()[i] =
                        feeds[0].data<float>()[2 * i] + feeds[0].data<float>()[2 * i + 1];
                  return std::vector<Tensor>{feeds[0], sum};
                });
}

std::string Answer(const PredictorCore& core, const std::string& type, const std::string& body) {
  Request request;
  if (!type.empty()) request.headers["content-type"] = type;
  request.body = body;
  return PredictRoute(core, request, 2).body;
}

std::string Refused(int status, const PredictorCore& core, const std::string& type,
                    const std::string& body) {
  try {
    ADD_FAILURE() << "answered " << Answer(core, type, body);
  } catch (const HttpError& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.what();
  }
  return "";
}

TEST(PredictRoute, Json) {
  Counts counts;
  const PredictorCore core = Cells(&counts);
  EXPECT_EQ(Answer(core, "", R"({"rows": [{"a": 1, "b": "0.5", "c": null}]})"),
            R"({"answers":[{"sum":6.0,"scores":"B","scores_score":5.0}]})");
  EXPECT_EQ(Answer(core, "Application/JSON; charset=utf-8",
                   R"({"rows": [{"a": 0.1, "b": 0}], "top": 2})"),
            R"({"answers":[{"sum":0.1,"scores":"A","scores_score":0.1,"scores_top":)"
            R"([{"class":"A","score":0.1},{"class":"B","score":0.0}]}]})");
  EXPECT_EQ(Answer(core, "application/x-www-form-urlencoded", R"({"rows": []})"),
            R"({"answers":[]})");
  EXPECT_EQ(Refused(400, core, "", R"({"rows": [{"a": 1, "b": 2}, {"a": "x", "b": 1}]})"),
            "row 1: column 'a': 'x' is not a number");
  EXPECT_EQ(Refused(400, core, "", R"({"rows": [{"a": 1}]})"), "row 0: the column 'b' is missing");
  Refused(400, core, "", "{");
  Refused(400, core, "", "{}");
  Refused(400, core, "", R"({"rows": [3]})");
  Refused(400, core, "", R"({"rows": [{"a": {}, "b": 1}]})");
  Refused(400, core, "", R"({"rows": [], "top": 0})");
}

TEST(PredictRoute, CsvInBatches) {
  Counts counts;
  const PredictorCore core = Cells(&counts);
  EXPECT_EQ(
      Answer(core, "text/csv", "b,a,more\n1,1,x\n2,2,y\n3,3,z\n"),
      R"({"answers":[{"sum":11.0,"scores":"B","scores_score":10.0},)"
      R"({"sum":22.0,"scores":"B","scores_score":20.0},{"sum":33.0,"scores":"B","scores_score":30.0}]})");
  EXPECT_EQ(counts.batches, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(Refused(400, core, "text/csv", "a,b\n1,2\n1,x\n"), "csv:3:3: 'x' is not a number");
  EXPECT_EQ(Refused(400, core, "text/csv", "a,c\n1,2\n"),
            "csv:1: the column 'b' is missing; there are a, c");
  EXPECT_EQ(Refused(400, core, "text/csv", ""), "csv: the file is empty");
}

TEST(PredictRoute, OtherTypes) {
  Counts counts;
  const PredictorCore core = Cells(&counts);
  Refused(415, core, "image/png", "x");
  Refused(415, core, "text/plain", "x");
  Refused(415, core, "application/octet-stream", "x");
}

TEST(PredictRoute, Pictures) {
  const PredictorCore core = CoreOf(
      "version: 1 picture { column: 'image' channels: 1 height: 1 width: 2 scale: 2 } "
      "input { column: 'image' var: 'x' } output { var: 'y' }",
      {-1, 1, 1, 2}, DType::kFloat32, {"y"},
      [](const std::vector<Tensor>& feeds) { return feeds; });
  EXPECT_EQ(Answer(core, "image/x-portable-graymap", std::string("P5 2 1 255\n\x03\x04", 13)),
            R"({"answers":[{"y":[6.0,8.0]}]})");
  Refused(400, core, "image/png", "no picture");
  Refused(415, core, "application/json", R"({"rows": []})");
}

// The coefficients of a progressive JPEG take about 2 MiB.
TEST(PredictRoute, MemoryOfPictures) {
  const auto core = [](const std::string& limit) {
    return CoreOf("version: 1 picture { column: 'image' channels: 1 height: 1 width: 1 " + limit +
                      " } input { column: 'image' var: 'x' } output { var: 'y' }",
                  {-1, 1, 1, 1}, DType::kFloat32, {"y"},
                  [](const std::vector<Tensor>& feeds) { return feeds; });
  };
  const std::string jpeg = MakeJpeg(1000, 1000, 1, std::vector<uint8_t>(1'000'000, 51), true);
  const PredictorCore free = core(""), strict = core("decode_mb: 1");
  EXPECT_EQ(Answer(free, "image/jpeg", jpeg), R"({"answers":[{"y":[51.0]}]})");
  const std::string why = Refused(413, strict, "image/jpeg", jpeg);
  EXPECT_NE(why.find("the limit is 1.0 MiB; decode_mb of the job"), why.npos) << why;
  // A flag of the server goes before the limit of the model.
  Request request;
  request.headers["content-type"] = "image/jpeg";
  request.body = jpeg;
  EXPECT_EQ(PredictRoute(strict, request, 2, {}, 64).status, 200);
  EXPECT_THROW(PredictRoute(free, request, 2, {}, 1), HttpError);
}

// The picture itself is not too large: there may be memory at another try.
TEST(PredictRoute, NoMemoryForAPicture) {
  const PredictorCore core = CoreOf(
      "version: 1 picture { column: 'image' channels: 1 height: 100 width: 100 } "
      "input { column: 'image' var: 'x' } output { var: 'y' }",
      {-1, 1, 100, 100}, DType::kFloat32, {"y"},
      [](const std::vector<Tensor>& feeds) { return feeds; });
  const std::string pixels = "P5 100 100 255\n" + std::string(10'000, 'x');
  const std::string png = MakePng(100, 8, 0, {100, std::string(100, 'x')});
  const std::string jpeg = MakeJpeg(100, 100, 1, std::vector<uint8_t>(10'000, 51));
  for (const std::string& picture : {pixels, png, jpeg}) {
    EXPECT_NE(Answer(core, "image/x", picture), "");
    const ScopedLimits limited(std::make_shared<ResourceLimits>(ResourceOptions{.memory = 5'000}));
    const std::string why = Refused(503, core, "image/x", picture);
    EXPECT_NE(why.find("out of memory"), why.npos) << why;
  }
}

TEST(PredictRoute, Texts) {
  const PredictorCore core = CoreOf(
      "version: 1 text { column: 'text' character: ['a', 'b'] } "
      "input { column: 'text' var: 'x' } output { var: 'y' kind: IDS class: ['a', 'b'] }",
      {-1, -1}, DType::kInt64, {"y"}, [](const std::vector<Tensor>& feeds) { return feeds; });
  EXPECT_EQ(Answer(core, "text/plain", "abba"), R"({"answers":[{"y":"abba"}]})");
  EXPECT_EQ(Answer(core, "", R"({"rows": [{"text": "b"}, {"text": "aa"}]})"),
            R"({"answers":[{"y":"b"},{"y":"aa"}]})");
  EXPECT_EQ(Refused(400, core, "text/plain", "abc"),
            "the character 'c' at byte 2 is not in the vocabulary");
}

// --- memory ---

uint64_t BytesOf(const std::string& type, const std::string& body) {
  Request request;
  if (!type.empty()) request.headers["content-type"] = type;
  request.body = body;
  return PredictBytes(request);
}

// The beginning of a PNG: the sides have four bytes.
std::string Png(const std::string& width, const std::string& height) {
  return "\x89PNG\r\n\x1a\n" + std::string("\0\0\0\x0dIHDR", 8) + width + height + "more";
}

TEST(PredictRoute, BytesOfRows) {
  EXPECT_EQ(BytesOf("", "0123456789"), 1120u);
  EXPECT_EQ(BytesOf("application/json", "0123456789"), 1120u);
  EXPECT_EQ(BytesOf("Text/CSV; charset=utf-8", "0123456789"), 640u);
  EXPECT_EQ(BytesOf("image/x-portable-graymap", "P5 2 1 255"), 160u);
}

// A small file may hold a large picture.
TEST(PredictRoute, BytesOfPictures) {
  using namespace std::string_literals;  // NOLINT(google-build-using-namespace)
  const std::string png = Png("\0\0\x01\0"s, "\0\0\0\x03"s);
  EXPECT_EQ(BytesOf("image/png", png), 256u * 3 * 12 + png.size() * 16);
  EXPECT_EQ(BytesOf("image/jpeg", png), BytesOf("image/png", png));  // the bytes say what it is
  EXPECT_EQ(BytesOf("image/png", png.substr(0, 23)), 23u * 16);
  // Fill bytes, segments that hold what looks like a frame, and markers without a length.
  const std::string jpeg =
      "\xff\xd8\xff\xe0\0\x06\xff\xc0\xff\xff\xff\xff\xdb\0\x03z\xff\xd0"
      "\xff\xc4\0\x02\xff\xc2\0\x11\x08\x01\x02\0\x10more"s;
  EXPECT_EQ(BytesOf("image/jpeg", jpeg), 258u * 16 * 12 + jpeg.size() * 16);
  for (size_t size = 2; size + 5 < jpeg.size(); ++size)  // cut off
    EXPECT_EQ(BytesOf("image/jpeg", jpeg.substr(0, size)), size * 16) << size;
  EXPECT_EQ(BytesOf("image/jpeg", "\xff\xd8" + std::string(100, '\xff')), 102u * 16);
  for (const std::string& side : {"\xff\xff\xff\xff"s, "\0\x01\0\0"s, "\0\0\xfe\xff"s}) {
    try {
      ADD_FAILURE() << BytesOf("image/png", Png(side, side));
    } catch (const HttpError& error) {
      EXPECT_EQ(error.status(), 413);
    }
  }
}

}  // namespace coracle::predict_route_test
