// Reading a request and writing its answer end at the request's deadline.

#include <coracle/serve/decode_body.h>
#include <coracle/serve/infer_codec.h>
#include <coracle/serve/predict_route.h>
#include <coracle/serve/request_time.h>
#include <coracle/test/serve/http_client.h>
#include <coracle/test/serve/serve_models.h>
#include <coracle/test/train/picture_files.h>

#include <chrono>
#include <functional>

namespace coracle::deadlines_test {

using serve::Clock;
using serve::HttpError;
using serve::Port;
using serve::Request;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// The work ends with status 503 when a fiftieth of its time has passed, and soon after that.
void ExpectEndsEarly(const char* what, const std::function<void()>& work) {
  SCOPED_TRACE(what);
  const Clock::time_point begin = Clock::now();
  work();
  const Clock::duration whole = Clock::now() - begin;
  const Clock::time_point again = Clock::now();
  try {
    serve::DoUntil(again + whole / 50, "it was read", work);
    ADD_FAILURE() << "it took its time";
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 503);
    EXPECT_EQ(error.end(), serve::RequestEnd::kTimeout);
    EXPECT_STREQ(error.what(), "the time limit of the request passed while it was read");
  }
  EXPECT_LT(Seconds(Clock::now() - again), Seconds(whole) * 0.6);
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

Request Infer(const std::string& datatype, const std::string& shape, const std::string& data) {
  Request request;
  request.body =
      fmt::format(R"({{"inputs":[{{"name":"x","datatype":"{}","shape":[{}],"data":[{}]}}]}})",
                  datatype, shape, data);
  return request;
}

TEST(Deadlines, Json) {
  constexpr int kCount = 400'000;
  const std::vector<Port> floats = {{"x", DType::kFloat32, {-1}}};
  const Request numbers = Infer("FP32", std::to_string(kCount), Repeated("1.5,", kCount - 1) + "1");
  ExpectEndsEarly("numbers", [&] { serve::ParseInferRequest(numbers, floats, {}); });
  const std::vector<Port> bytes = {{"x", DType::kString, {-1}}};
  const Request texts =
      Infer("BYTES", std::to_string(kCount), Repeated("\"a\",", kCount - 1) + "\"\"");
  ExpectEndsEarly("texts", [&] { serve::ParseInferRequest(texts, bytes, {}); });
  const Request arrays = Infer("FP32", "0", Repeated("[],", kCount - 1) + "[]");
  ExpectEndsEarly("arrays", [&] { serve::ParseInferRequest(arrays, floats, {}); });
}

TEST(Deadlines, BinaryTexts) {
  constexpr int kCount = 2'000'000;
  Request request;
  const std::string json =
      fmt::format(R"({{"inputs":[{{"name":"x","datatype":"BYTES","shape":[{}],)"
                  R"("parameters":{{"binary_data_size":{}}}}}]}})",
                  kCount, 4 * kCount);
  request.body = json + std::string(4 * kCount, '\0');
  request.headers["inference-header-content-length"] = std::to_string(json.size());
  ExpectEndsEarly("texts", [&] {
    serve::ParseInferRequest(request, {{"x", DType::kString, {-1}}}, {});
  });
}

TEST(Deadlines, Answers) {
  const std::vector<Port> outputs = {{"y", DType::kFloat32, {-1}}};
  const Tensor result = Tensor::Full<float>({600'000}, 0.1f);
  serve::InferRequest request;
  request.outputs = {{0, false}};
  ExpectEndsEarly("answer", [&] { serve::InferResponse(request, "m", "1", outputs, {result}); });
}

TEST(Deadlines, CompressedBodies) {
  const std::string packed = Gzip(std::string(64 << 20, 'a'));
  ExpectEndsEarly("gzip", [&] {
    Request request;
    request.headers["content-encoding"] = "gzip";
    request.body = packed;
    serve::BudgetShare share(nullptr);
    serve::DecodeBody(uint64_t{1} << 30, &share, &request);
  });
}

TEST(Deadlines, Rows) {
  InferenceModel model;
  model.program.Root().Var("x").SetMeta({.dtype = DType::kFloat32, .shape = {-1, 1}});
  model.feed_names = model.fetch_names = {"x"};
  const PredictorCore core(
      std::move(model),
      ParsePreprocess("version: 1 csv { header: true cells: 1 column { name: 'a' number: 0 } } "
                      "input { column: 'data' var: 'x' } output { var: 'x' kind: NUMBER }",
                      "p"),
      [](const std::vector<Tensor>& feeds) { return feeds; });
  const auto answer = [&](const std::string& type, const std::string& body) {
    Request request;
    request.headers["content-type"] = type;
    request.body = body;
    serve::PredictRoute(core, request, 1 << 20);
  };
  const std::string csv = "a\n" + Repeated("1\n", 20'000);
  ExpectEndsEarly("csv", [&] { answer("text/csv", csv); });
  const std::string json = R"({"rows":[)" + Repeated(R"({"a":1},)", 20'000) + R"({"a":1}]})";
  ExpectEndsEarly("json", [&] { answer("application/json", json); });
}

TEST(Deadlines, Pictures) {
  InferenceModel model;
  model.program.Root().Var("x").SetMeta({.dtype = DType::kFloat32, .shape = {-1, 3, 8, 8}});
  model.feed_names = model.fetch_names = {"x"};
  const PredictorCore core(
      std::move(model),
      ParsePreprocess("version: 1 picture { column: 'image' channels: 3 height: 8 width: 8 } "
                      "input { column: 'image' var: 'x' } output { var: 'x' }",
                      "p"),
      [](const std::vector<Tensor>& feeds) { return feeds; });
  const auto answer = [&](const std::string& picture) {
    Request request;
    request.headers["content-type"] = "image/png";
    request.body = picture;
    serve::PredictRoute(core, request, 1);
  };
  constexpr int kSide = 3000;
  const std::string png = MakePng(kSide, 8, 2, {kSide, std::string(3 * kSide, 'a')});
  ExpectEndsEarly("png", [&] { answer(png); });
  const std::vector<uint8_t> pixels(size_t{3} * kSide * kSide, 77);
  // Several scans, which are all read before the first row.
  const std::string jpeg = MakeJpeg(kSide, kSide, 3, pixels, true);
  ExpectEndsEarly("jpeg", [&] { answer(jpeg); });
}

// The limit of the server and the header of the request, whichever ends first.
TEST(Deadlines, OfRequests) {
  Request request;
  EXPECT_EQ(serve::DeadlineOf(request, 0), Clock::time_point::max());
  EXPECT_EQ(serve::DeadlineOf(request, 2), request.received + std::chrono::seconds(2));
  request.headers["request-timeout-ms"] = "500";
  EXPECT_EQ(serve::DeadlineOf(request, 2), request.received + std::chrono::milliseconds(500));
  EXPECT_EQ(serve::DeadlineOf(request, 0.25), request.received + std::chrono::milliseconds(250));
  EXPECT_EQ(serve::DeadlineOf(request, 1e300), request.received + std::chrono::milliseconds(500));
  request.headers["request-timeout-ms"] = "x";
  EXPECT_THROW(serve::DeadlineOf(request, 2), HttpError);
  EXPECT_EQ(serve::DeadlineUnchecked(request, 2), request.received + std::chrono::seconds(2));
}

class ServerDeadlines : public HttpTest {
 protected:
  int StatusOf(const std::string& request, const std::string& timeout,
               const std::string& body = "") const {
    return OnlyStatus(
        fmt::format("{} HTTP/1.1\r\nHost: a\r\nRequest-Timeout-Ms: {}\r\n"
                    "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
                    request, timeout, body.size(), body));
  }
};

// A request to a model is refused for a header that is no number, and counted. No other is.
TEST_F(ServerDeadlines, OnlyModelsReadTheHeader) {
  SetLogSink([](MessageLevel, const std::string&) {});
  const ServeModels models;
  const auto metrics = std::make_shared<serve::MetricsTable>();
  serve::Repository repository(serve::ServeOptions{}, metrics);
  repository.AddDirectory(models.directory);
  repository.Refresh();
  serve::Server server(repository, metrics);
  Start(SmallLimits(), [&](Request request) { return server.Handle(std::move(request)); });
  for (const char* bad : {"x", "0", "-1", "1.5"}) {
    for (const char* path : {"/metrics", "/v2/health/ready", "/v2/models/add", "/"})
      EXPECT_EQ(StatusOf(std::string("GET ") + path, bad), 200) << path;
    EXPECT_EQ(StatusOf("POST /v2/repository/index", bad), 200);
    EXPECT_EQ(StatusOf("POST /v2/models/half/infer", bad, "{}"), 400);
  }
  EXPECT_EQ(metrics->Of("half", "1")->Requests(serve::RequestEnd::kBadRequest), 4u);
}

// Nothing of a request without a body takes time before its handler has it.
TEST_F(ServerDeadlines, BodilessRequestsAreAnswered) {
  serve::HttpOptions options = SmallLimits();
  options.time_limit = 1e-9;
  Start(options);
  EXPECT_EQ(StatusOf("GET /x", "1"), 200);
  EXPECT_EQ(StatusOf("POST /x", "1", "a"), 503);
}

// The body is unpacked before a handler sees the request.
TEST_F(ServerDeadlines, HoldWhileTheBodyIsUnpacked) {
  serve::HttpOptions options = SmallLimits();
  options.max_body = uint64_t{1} << 30;
  options.body_seconds = 60;
  std::atomic<int> handled{0};
  Start(options, [&](const Request& request) {
    ++handled;
    return Echo(request);
  });
  const std::string packed = Gzip(std::string(256 << 20, 'a'));
  const std::string answer =
      Ask(fmt::format("POST /x HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
                      "Request-Timeout-Ms: 20\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                      packed.size()) +
          packed);
  EXPECT_NE(answer.find(" 503 "), answer.npos) << answer;
  EXPECT_NE(answer.find("time limit of the request passed while its body was unpacked"),
            answer.npos)
      << answer;
  EXPECT_EQ(handled, 0);
}

}  // namespace coracle::deadlines_test
