// Routes, models, batches: everything behind the connection.

#include <coracle/test/serve/serve_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

namespace coracle::server_test {

using nlohmann::json;

class Serving : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](MessageLevel, const std::string&) {});
    models_ = std::make_unique<ServeModels>();
  }
  static void TearDownTestSuite() { models_.reset(); }

  void Start(serve::ServeOptions options = {}) {
    metrics_ = std::make_shared<serve::MetricsTable>();
    repository_ = std::make_unique<serve::Repository>(options, metrics_);
    repository_->AddDirectory(models_->directory);
    repository_->Refresh();
    server_ = std::make_unique<serve::Server>(*repository_, metrics_);
  }
  serve::Response Ask(const std::string& method, const std::string& path,
                      const std::string& body = "") {
    serve::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    return server_->Handle(request);
  }
  json Asked(const std::string& method, const std::string& path, const std::string& body = "") {
    const serve::Response response = Ask(method, path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  static std::string Rows(const std::string& input, int64_t rows, int64_t width, double value) {
    std::string data;
    for (int64_t i = 0; i < rows * width; ++i)
      data += fmt::format("{}{}", i > 0 ? "," : "", value + static_cast<double>(i));
    return fmt::format(R"({{"name":"{}","shape":[{},{}],"datatype":"FP32","data":[{}]}})", input,
                       rows, width, data);
  }
  static std::string Add(int64_t rows, double a, double b) {
    return fmt::format(R"({{"inputs":[{},{}]}})", Rows("A", rows, 4, a), Rows("B", rows, 4, b));
  }

  static inline std::unique_ptr<ServeModels> models_;
  std::shared_ptr<serve::MetricsTable> metrics_;
  std::unique_ptr<serve::Repository> repository_;
  std::unique_ptr<serve::Server> server_;
};

TEST_F(Serving, Metadata) {
  Start();
  EXPECT_EQ(Ask("GET", "/v2/health/live").status, 200);
  EXPECT_EQ(Ask("GET", "/v2/health/ready").status, 200);
  EXPECT_EQ(Asked("GET", "/v2")["name"], "coracle");
  const json model = Asked("GET", "/v2/models/add");
  EXPECT_EQ(model["versions"], json::parse(R"(["1"])"));
  EXPECT_EQ(model["inputs"], json::parse(R"([{"name":"A","datatype":"FP32","shape":[-1,4]},
                                            {"name":"B","datatype":"FP32","shape":[-1,4]}])"));
  EXPECT_EQ(Ask("GET", "/v2/models/add/versions/1/ready").status, 200);
  EXPECT_EQ(Asked("POST", "/v2/repository/index").size(), 5u);
  EXPECT_TRUE(json::parse(Ask("GET", "/openapi.json").body).contains("paths"));
  server_->StopBeingReady();
  EXPECT_EQ(Ask("GET", "/v2/health/ready").status, 503);
}

TEST_F(Serving, Infers) {
  Start();
  const json answer = Asked("POST", "/v2/models/add/infer", Add(2, 1, 10));
  EXPECT_EQ(answer["outputs"][0]["shape"], json::parse("[2,4]"));
  EXPECT_EQ(answer["outputs"][0]["data"], json::parse("[11,13,15,17,19,21,23,25]"));
  EXPECT_FALSE(answer.contains("id"));
  EXPECT_EQ(Asked("POST", "/v2/models/str/infer",
                  R"({"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["hello",""]}]})")
                ["outputs"][0]["data"],
            json::parse(R"(["hello",""])"));
  EXPECT_EQ(Ask("POST", "/v2/models/log/infer",
                R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[-1]}]})")
                .status,
            400);  // nan in JSON
}

TEST_F(Serving, Refuses) {
  Start();
  EXPECT_EQ(Ask("POST", "/v2/models/none/infer", Add(1, 0, 0)).status, 404);
  EXPECT_EQ(Ask("POST", "/v2/models/add/versions/2/infer", Add(1, 0, 0)).status, 404);
  EXPECT_EQ(Ask("GET", "/v2/models/add/versions/01").status, 404);
  EXPECT_EQ(Ask("POST", "/v2/models/add/infer", Add(33, 0, 0)).status, 400);
  EXPECT_EQ(Ask("POST", "/v2/models/add/infer",
                fmt::format(R"({{"inputs":[{},{}]}})", Rows("A", 1, 4, 0), Rows("B", 2, 4, 0)))
                .status,
            400);
  const serve::Response wrong = Ask("GET", "/v2/models/add/infer");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("Allow"), "POST");
  EXPECT_EQ(Ask("POST", "/v2").status, 405);
  for (const char* path : {"/v2/nope", "/v2/models/..%2fetc", "/v2/models/%00", "/v2/models/%zz",
                           "/v2/models/.x", "/v2/models/add/versions", "/v3", "//", "/v2/models",
                           "/v2/models/add/infer/x", "/v2/models/a b", "x"})
    EXPECT_EQ(Ask("GET", path).status, 404) << path;
  EXPECT_EQ(Ask("GET", "/v2/models/" + std::string(8000, 'a')).status, 404);
}

TEST_F(Serving, RowsAreJoinedOnlyWhereTheyStayApart) {
  Start();
  EXPECT_TRUE(repository_->Find("add", "")->joins_rows());
  EXPECT_TRUE(repository_->Find("log", "")->joins_rows());
  EXPECT_FALSE(repository_->Find("mean", "")->joins_rows());
  EXPECT_FALSE(repository_->Find("str", "")->joins_rows());
  Start({.max_batch = 1});
  EXPECT_FALSE(repository_->Find("add", "")->joins_rows());
}

// Many clients at once: each gets its own rows, in joined runs.
TEST_F(Serving, JoinedRequestsGetTheirOwnRows) {
  Start({.max_batch = 16, .max_delay = 0.02});
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) {
        const int64_t rows = 1 + (c + i) % 3;
        const double a = 100 * c + i, b = 7 * i;
        const serve::Response response = Ask("POST", "/v2/models/add/infer", Add(rows, a, b));
        if (response.status != 200) {
          ++wrong;
          continue;
        }
        const json data = json::parse(response.body)["outputs"][0]["data"];
        for (int64_t k = 0; k < rows * 4; ++k)
          wrong += data[static_cast<size_t>(k)].get<double>() != a + b + 2 * static_cast<double>(k);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  const serve::ModelMetrics& metrics = repository_->Find("add", "")->metrics();
  EXPECT_EQ(metrics.Requests(serve::RequestEnd::kSuccess), 320u);
  EXPECT_LT(metrics.batches, 320u);
  EXPECT_EQ(metrics.queued, 0);
}

TEST_F(Serving, AFullQueueIsAnAnswer) {
  Start({.max_batch = 64, .max_delay = 0.3, .max_queue = 2});
  std::vector<std::thread> clients;
  std::atomic<int> good{0}, refused{0};
  for (int c = 0; c < 12; ++c) {
    clients.emplace_back([&] {
      const serve::Response response =
          Ask("POST", "/v2/models/mean/infer", R"({"inputs":[)" + Rows("x", 20000, 2, 1) + "]}");
      good += response.status == 200;
      refused += response.status == 503 && response.headers.count("Retry-After");
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good + refused, 12);
  EXPECT_GT(good, 0);
}

TEST_F(Serving, LoadAndUnload) {
  Start();
  EXPECT_EQ(Ask("POST", "/v2/repository/models/add/unload").status, 200);
  EXPECT_EQ(Ask("POST", "/v2/models/add/infer", Add(1, 0, 0)).status, 503);
  EXPECT_EQ(Ask("GET", "/v2/models/add/ready").status, 503);
  repository_->Refresh();
  EXPECT_EQ(Ask("GET", "/v2/models/add/ready").status, 503);
  EXPECT_EQ(Ask("POST", "/v2/repository/models/add/load").status, 200);
  Asked("POST", "/v2/models/add/infer", Add(1, 0, 0));
  EXPECT_EQ(Ask("POST", "/v2/repository/models/none/load").status, 404);
  EXPECT_EQ(Ask("GET", "/v2/repository/models/add/load").status, 405);
}

// A new version is served when it is there; a damaged one leaves the old one alone.
TEST_F(Serving, WatchedDirectories) {
  const ServeModels own;
  metrics_ = std::make_shared<serve::MetricsTable>();
  repository_ = std::make_unique<serve::Repository>(serve::ServeOptions{}, metrics_);
  namespace fs = std::filesystem;
  const std::string root = own.directory + "/models";
  fs::create_directories(root + "/add/1");
  for (const char* ending : {".pdmodel", ".pdiparams"})
    fs::copy(own.directory + "/add" + ending, root + "/add/1/inference" + ending);
  repository_->AddDirectory(root);
  repository_->Refresh();
  server_ = std::make_unique<serve::Server>(*repository_, metrics_);
  Asked("POST", "/v2/models/add/infer", Add(1, 1, 1));
  fs::copy(root + "/add/1", root + "/add/2");
  repository_->Refresh();
  EXPECT_EQ(Asked("GET", "/v2/models/add")["versions"], json::parse(R"(["1","2"])"));
  EXPECT_EQ(Asked("POST", "/v2/models/add/infer", Add(1, 1, 1))["model_version"], "2");
  fs::resize_file(root + "/add/2/inference.pdmodel", 10);
  repository_->Refresh();
  EXPECT_EQ(Asked("POST", "/v2/models/add/infer", Add(1, 1, 1))["model_version"], "2");
  fs::remove_all(root + "/add/2");
  repository_->Refresh();
  EXPECT_EQ(Asked("POST", "/v2/models/add/infer", Add(1, 1, 1))["model_version"], "1");
  fs::remove_all(root + "/add");
  repository_->Refresh();
  EXPECT_EQ(Ask("POST", "/v2/models/add/infer", Add(1, 1, 1)).status, 404);
}

// Each line is a comment, or NAME{LABELS} NUMBER; histograms end with all values.
TEST_F(Serving, Metrics) {
  Start();
  Asked("POST", "/v2/models/add/infer", Add(2, 1, 1));
  Ask("POST", "/v2/models/add/infer", "{");
  const std::string text = Ask("GET", "/metrics").body;
  EXPECT_EQ(text.back(), '\n');
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), text.npos) << line << " is not in\n" << text;
  };
  has(R"(coracle_requests_total{model="add",version="1",end="success"} 1)");
  has(R"(coracle_requests_total{model="add",version="1",end="bad_request"} 1)");
  has(R"(coracle_queued_requests{model="add",version="1"} 0)");
  has(R"(coracle_request_seconds_bucket{model="add",version="1",le="+Inf"} 1)");
  has(R"(coracle_request_seconds_count{model="add",version="1"} 1)");
  has("# TYPE coracle_request_seconds histogram");
}

}  // namespace coracle::server_test
