// What the headers of a request change, and what is refused before a model runs.

#include <coracle/test/serve/serve_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <latch>
#include <nlohmann/json.hpp>
#include <thread>

namespace coracle::api_test {

using nlohmann::json;

class Api : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](MessageLevel, const std::string&) {});
    models_ = std::make_unique<ServeModels>();
  }
  static void TearDownTestSuite() { models_.reset(); }

  void SetUp() override { Start({}); }
  void Start(const serve::ServerOptions& options) {
    metrics_ = std::make_shared<serve::MetricsTable>();
    repository_ = std::make_unique<serve::Repository>(serve::ServeOptions{}, metrics_);
    repository_->AddDirectory(models_->directory);
    repository_->Refresh();
    server_ = std::make_unique<serve::Server>(*repository_, metrics_, options);
  }
  serve::Response Post(const std::string& path, const std::string& body,
                       const std::map<std::string, std::string>& headers = {}) {
    serve::Request request;
    request.method = "POST";
    request.path = path;
    request.body = body;
    request.headers = headers;
    return server_->Handle(std::move(request));
  }
  static std::string Rows(int64_t rows) {
    std::string data;
    for (int64_t i = 0; i < rows * 4; ++i) data += i > 0 ? ",1" : "1";
    const std::string input =
        fmt::format(R"("shape":[{},4],"datatype":"FP32","data":[{}])", rows, data);
    return fmt::format(R"({{"inputs":[{{"name":"A",{0}}},{{"name":"B",{0}}}]}})", input);
  }
  uint64_t Ended(const char* end) const {
    const std::string line =
        fmt::format("coracle_requests_total{{model=\"add\",version=\"1\",end=\"{}\"}} ", end);
    const std::string text = metrics_->Text();
    const size_t at = text.find(line);
    return at == text.npos ? 999 : std::stoull(text.substr(at + line.size()));
  }

  static inline std::unique_ptr<ServeModels> models_;
  std::shared_ptr<serve::MetricsTable> metrics_;
  std::unique_ptr<serve::Repository> repository_;
  std::unique_ptr<serve::Server> server_;
};

const char* const kInfer = "/v2/models/add/infer";

TEST_F(Api, InferNeedsALength) {
  serve::Request request;
  request.method = "POST";
  request.path = kInfer;
  request.has_length = false;
  EXPECT_EQ(server_->Handle(request).status, 411);
  request.path = "/v2/repository/index";
  EXPECT_EQ(server_->Handle(request).status, 200);
}

TEST_F(Api, ZeroRows) {
  const serve::Response response = Post(kInfer, Rows(0));
  ASSERT_EQ(response.status, 200) << response.body;
  const json output = json::parse(response.body)["outputs"][0];
  EXPECT_EQ(output["shape"], json::parse("[0,4]"));
  EXPECT_TRUE(output["data"].empty());
}

TEST_F(Api, Deadlines) {
  EXPECT_EQ(Post(kInfer, Rows(1), {{"request-timeout-ms", "60000"}}).status, 200);
  for (const char* bad : {"", "0", "-1", "1.5", "x", "1 ", "9999999999"})
    EXPECT_EQ(Post(kInfer, Rows(1), {{"request-timeout-ms", bad}}).status, 400) << bad;
  EXPECT_EQ(Ended("success"), 1u);
  EXPECT_EQ(Ended("bad_request"), 7u);
  // It counts from the request's arrival.
  serve::Request late;
  late.method = "POST";
  late.path = kInfer;
  late.body = Rows(1);
  late.headers["request-timeout-ms"] = "50";
  late.received = serve::Clock::now() - std::chrono::seconds(1);
  const serve::Response response = server_->Handle(late);
  EXPECT_EQ(response.status, 503) << response.body;
  EXPECT_EQ(response.headers.count("Retry-After"), 1u);
  EXPECT_EQ(Ended("timeout"), 1u);
}

// A page that a browser shows can send requests to any server, but not with another Origin.
TEST_F(Api, PagesOfOthersLoadNothing) {
  const std::string unload = "/v2/repository/models/add/unload";
  for (const char* origin :
       {"http://evil.example", "null", "", "http://localhost:8001", "localhost:8000"})
    EXPECT_EQ(Post(unload, "", {{"host", "localhost:8000"}, {"origin", origin}}).status, 403)
        << origin;
  EXPECT_EQ(Post(unload, "", {{"origin", "null"}}).status, 403);
  EXPECT_EQ(Post(kInfer, Rows(1)).status, 200);
  EXPECT_EQ(
      Post(unload, "", {{"host", "LOCALHOST:8000"}, {"origin", "http://localhost:8000"}}).status,
      200);
  const std::string load = "/v2/repository/models/add/load";
  EXPECT_EQ(Post(load, "", {{"host", "localhost:8000"}}).status, 200);
  // A page of a name that points to this machine; only programs use such a name.
  EXPECT_EQ(Post(load, "", {{"host", "a.example:8000"}}).status, 200);
  for (const auto& [host, status] : {std::pair<const char*, int>{"evil.example:8000", 403},
                                     {"localhost.evil.example:8000", 403},
                                     {"127.0.0.1.evil.example", 403},
                                     {"127.0.0.1:8000", 200},
                                     {"[::1]:8000", 200},
                                     {"localhost", 200}})
    EXPECT_EQ(Post(load, "", {{"host", host}, {"origin", std::string("http://") + host}}).status,
              status)
        << host;
}

TEST_F(Api, VersionsHaveANumber) {
  EXPECT_EQ(Post("/v2/models/add/versions/1/infer", Rows(1)).status, 200);
  for (const char* version : {"", "2", "01", "1%00", "%31x"})
    EXPECT_EQ(Post(fmt::format("/v2/models/add/versions/{}/infer", version), Rows(1)).status, 404)
        << version;
}

TEST_F(Api, LoadingCanBeTurnedOff) {
  Start({.repository_api = false});
  EXPECT_EQ(Post("/v2/repository/models/add/load", "").status, 403);
  EXPECT_EQ(Post("/v2/repository/models/add/unload", "").status, 403);
  EXPECT_EQ(Post("/v2/repository/index", "").status, 200);
  EXPECT_EQ(Post(kInfer, Rows(1)).status, 200);
}

TEST_F(Api, TensorsShareMemory) {
  const auto memory = std::make_shared<serve::MemoryBudget>(10'000);
  Start({.memory = memory});
  EXPECT_EQ(Post(kInfer, Rows(1)).status, 200);
  ASSERT_TRUE(memory->Reserve(9'900));  // for other requests
  const serve::Response busy = Post(kInfer, Rows(1));
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.headers.count("Retry-After"), 1u);
  EXPECT_EQ(Ended("failure"), 1u);
  EXPECT_EQ(Ended("queue_full"), 0u);
  memory->Return(9'900);
  // A request that alone takes more has no room at any time.
  const serve::Response large = Post(kInfer, Rows(200));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(large.headers.count("Retry-After"), 0u);
  EXPECT_EQ(memory->used(), 0u);
  EXPECT_EQ(Post(kInfer, Rows(1)).status, 200);
}

TEST_F(Api, TimesOfTheStages) {
  const serve::Response response = Post(kInfer, Rows(1));
  EXPECT_GE(response.queue_seconds, 0);
  EXPECT_GT(response.run_seconds, 0);
}

TEST_F(Api, TimesOfRawRows) {
  std::ofstream(models_->directory + "/mean.preprocess.pbtxt")
      << "version: 1 csv { header: true cells: 2 column { name: 'a' number: 0 } "
         "column { name: 'b' number: 1 } } input { column: 'data' var: 'x' } "
         "output { var: 'y' kind: VALUES }";
  ASSERT_EQ(Post("/v2/repository/models/mean/load", "").status, 200);
  const serve::Response response =
      Post("/v1/predict/mean", R"({"rows": [{"a": 1, "b": 3}]})", {{"content-type", ""}});
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_GE(response.queue_seconds, 0);
  EXPECT_GT(response.run_seconds, 0);
}

TEST_F(Api, AnswersAreCounted) {
  metrics_->CountAnswer(408);
  metrics_->CountAnswer(408);
  metrics_->CountAnswer(200);
  const std::string text = metrics_->Text();
  EXPECT_NE(text.find("# TYPE coracle_http_answers_total counter\n"
                      "coracle_http_answers_total{status=\"200\"} 1\n"
                      "coracle_http_answers_total{status=\"408\"} 2\n"),
            text.npos);
}

TEST_F(Api, AnswersOfSeveralThreadsAreCounted) {
  constexpr int kEach = 500'000;
  std::latch begin(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      for (int i = 0; i < kEach; ++i) metrics_->CountAnswer(i % 2 == 0 ? 200 : 503);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics_->Text();
  for (const char* status : {"200", "503"}) {
    const std::string line =
        fmt::format("coracle_http_answers_total{{status=\"{}\"}} {}\n", status, 2 * kEach);
    EXPECT_NE(text.find(line), text.npos) << text;
  }
}

}  // namespace coracle::api_test
