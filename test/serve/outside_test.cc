// Programs of others: Prometheus' promtool reads the metrics, Chromium shows the start page, and
// Triton's Python client asks for models.

#include <coracle/serve/api_pages.h>
#include <coracle/serve/http_server.h>
#include <coracle/test/serve/serve_models.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <thread>

namespace coracle::outside_test {

struct Output {
  int code = -1;
  std::string text;
};

Output Shell(const std::string& command) {
  Output output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return output;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
    output.text.append(buffer, count);
  const int status = ::pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

class Outside : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](MessageLevel, const std::string&) {});
    metrics_ = std::make_shared<serve::MetricsTable>();
    repository_ = std::make_unique<serve::Repository>(serve::ServeOptions{}, metrics_);
    repository_->AddDirectory(models_.directory);
    std::ofstream(models_.directory + "/mean.preprocess.pbtxt")
        << "version: 1 csv { header: true cells: 2 column { name: 'width' number: 0 } "
           "column { name: 'depth' number: 1 } } input { column: 'data' var: 'x' } "
           "output { var: 'y' kind: VALUES }";
    repository_->Refresh();
    server_ = std::make_unique<serve::Server>(*repository_, metrics_);
    serve::HttpOptions options;
    options.port = 0;
    http_ = std::make_unique<serve::HttpServer>(
        options, [this](serve::Request request) { return server_->Handle(std::move(request)); },
        [this](const serve::HttpServer::Access& access) { metrics_->CountAnswer(access.status); });
    http_->Bind();
    thread_ = std::thread([this] { http_->Run(); });
  }
  void TearDown() override {
    http_->Stop();
    thread_.join();
  }
  int port() const { return http_->port(); }
  serve::Response Post(const std::string& path, const std::string& body) {
    serve::Request request;
    request.method = "POST";
    request.path = path;
    request.body = body;
    return server_->Handle(request);
  }
  std::string File(const std::string& name, const std::string& text) const {
    std::string path = models_.directory + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  ServeModels models_;
  std::shared_ptr<serve::MetricsTable> metrics_;
  std::unique_ptr<serve::Repository> repository_;
  std::unique_ptr<serve::Server> server_;
  std::unique_ptr<serve::HttpServer> http_;
  std::thread thread_;
};

TEST_F(Outside, PromtoolFindsNothingWrong) {
  if (Shell("promtool --version").code != 0) GTEST_SKIP() << "promtool is not installed";
  for (const char* when : {"before the first request", "after some"}) {
    const Output checked = Shell("promtool check metrics < " + File("metrics", metrics_->Text()));
    EXPECT_EQ(checked.code, 0) << when;
    EXPECT_EQ(checked.text, "") << when;
    EXPECT_EQ(Post("/v2/models/add/infer", "{").status, 400);
    EXPECT_EQ(Post("/v2/models/mean/infer",
                   R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})")
                  .status,
              200);
    metrics_->CountAnswer(200);
    metrics_->CountAnswer(400);
  }
  EXPECT_NE(Shell("promtool check metrics < " + File("metrics", "x 1\nx 2\n")).code, 0);
}

// The start page in Chromium.
class Page : public Outside {
 protected:
  void SetUp() override {
    Outside::SetUp();
    if (Shell("chromium --version").code != 0) GTEST_SKIP() << "chromium is not installed";
  }
  // The page after its scripts have run. Chromium needs two seconds of a processor to begin, which
  // may be minutes while other programs keep all processors busy.
  std::string Dom(const std::string& address) const {
    const Output output = Shell(
        "{ timeout 600 chromium --headless --no-sandbox --disable-gpu --no-first-run "
        "--disable-extensions --disable-background-networking --disable-component-update "
        "--disable-sync --user-data-dir=" +
        models_.directory + "/profile --virtual-time-budget=5000 --dump-dom " + address +
        " 2> /dev/null; }");
    EXPECT_EQ(output.code, 0) << "Chromium failed, or did not end in ten minutes (124)";
    return output.text;
  }
  std::string DomOf(const std::string& path) const {
    return Dom("http://127.0.0.1:" + std::to_string(port()) + path);
  }
  // The page after it began with `path` and has run the script, which calls choose(NAME) for a
  // model. Answers to `slow_path` take a second.
  std::string DomAfter(const std::string& path, const std::string& script,
                       const std::string& slow_path = "") {
    std::string page = serve::StartPage();
    page.insert(page.rfind("</body>"), R"(<script>
setTimeout(async () => {
  const model = document.getElementById("model");
  const choose = name => { model.value = name; model.dispatchEvent(new Event("change")); };
)" + script + "\n}, 500);\n</script>");
    serve::HttpOptions options;
    options.port = 0;
    serve::HttpServer http(options, [&](serve::Request request) {
      if (request.path == "/")
        return serve::Response{.type = "text/html; charset=utf-8", .body = page};
      if (request.path == slow_path) std::this_thread::sleep_for(std::chrono::seconds(1));
      return server_->Handle(std::move(request));
    });
    http.Bind();
    std::thread run([&] { http.Run(); });
    const std::string dom = Dom("http://127.0.0.1:" + std::to_string(http.port()) + path);
    http.Stop();
    run.join();
    return dom;
  }
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
  }
};

// The first model is "add".
TEST_F(Page, IsShown) {
  const std::string dom = DomOf("/");
  for (const char* part :
       {"<option value=\"add\">add</option>", "<option value=\"str\">str</option>", ">A <",
        "FP32 [any, 4], as nested JSON arrays", ">Run</button>"})
    EXPECT_NE(dom.find(part), dom.npos) << part << " in\n" << dom;
  EXPECT_EQ(dom.find("class=\"error\""), dom.npos) << dom;
  // A model with a description of its raw data has a field for each column.
  const std::string rows = DomOf("/#mean");
  for (const char* part : {"> Raw data</label>", ">width <", ">depth <"})
    EXPECT_NE(rows.find(part), rows.npos) << part << " in\n" << rows;
}

// Whoever asks for several forms one after the other sees only the last one.
TEST_F(Page, ShowsOneForm) {
  const std::string models =
      DomAfter("/", R"(for (const name of ["half", "add", "half", "log", "half"]) choose(name);)");
  EXPECT_EQ(Count(models, ">Run</button>"), 1) << models;
  EXPECT_NE(models.find("FP16 [any, 2]"), models.npos) << models;
  const std::string tabs = DomAfter("/#mean", R"(
    const [raw, tensors] = document.querySelectorAll("input[name=kind]");
    for (const tab of [tensors, raw, tensors, raw, tensors]) tab.onchange();)");
  EXPECT_EQ(Count(tabs, ">Run</button>"), 1) << tabs;
  EXPECT_EQ(Count(tabs, "<fieldset>"), 1) << tabs;
  EXPECT_EQ(Count(tabs, "FP32 [any, 2], as nested JSON arrays"), 1) << tabs;
  EXPECT_EQ(tabs.find(">width <"), tabs.npos) << tabs;
}

TEST_F(Page, ShowsTheAnswerOfItsForm) {
  const std::string infer = "/v2/models/add/infer";
  const std::string submit = R"(document.getElementById("form").requestSubmit();)";
  const std::string answered = DomAfter("/#add", submit, infer);
  EXPECT_EQ(Count(answered, ">SUM <"), 1) << answered;
  EXPECT_EQ(answered.find("disabled=\"\">Run"), answered.npos) << answered;
  // The answer arrives when another model has been chosen.
  const std::string other = DomAfter("/#add", submit + R"(choose("half");)", infer);
  EXPECT_NE(other.find("FP16 [any, 2]"), other.npos) << other;
  EXPECT_EQ(other.find(">SUM <"), other.npos) << other;
  EXPECT_EQ(other.find("class=\"error\""), other.npos) << other;
  EXPECT_EQ(other.find("disabled=\"\">Run"), other.npos) << other;
}

// JSON.parse rounds integers above 2^53.
TEST_F(Page, SendsNumbersAsTheyAreWritten) {
  const std::string dom = DomAfter("/#log", R"(
    const ask = window.fetch;
    window.fetch = (path, options) => {
      if (path.endsWith("/infer")) document.body.dataset.sent = options.body;
      return ask(path, options);
    };
    document.querySelector("#form textarea").value = "[[90071992547" + "40993]]";
    document.getElementById("form").requestSubmit();)");
  EXPECT_NE(dom.find("9007199254740993"), dom.npos) << dom;
  EXPECT_EQ(Count(dom, ">y <"), 1) << dom;
}

// The client's own code; it raises for each answer that it does not understand.
TEST_F(Outside, TritonsClientInPython) {
  const std::string python = "/usr/bin/python3 ";
  if (Shell(python + "-c 'import tritonclient.http'").code != 0)
    GTEST_SKIP() << "Python's tritonclient with its http part is not installed";
  const std::string script = File("client.py", R"(
import sys
import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
assert client.is_server_live() and client.is_server_ready()
assert client.get_server_metadata()["name"] == "coracle"
metadata = client.get_model_metadata("add")
assert [i["name"] for i in metadata["inputs"]] == ["A", "B"], metadata
assert client.is_model_ready("add") and client.is_model_ready("add", "1")
assert not client.is_model_ready("none")
index = {m["name"]: m["state"] for m in client.get_model_repository_index()}
assert index["add"] == "READY", index

a = np.arange(8, dtype=np.float32).reshape(2, 4)
for binary in (True, False):
    for compression in (None, "gzip", "deflate"):
        inputs = [triton.InferInput(name, a.shape, "FP32") for name in "AB"]
        for tensor in inputs:
            tensor.set_data_from_numpy(a, binary_data=binary)
        for outputs in (None, [triton.InferRequestedOutput("SUM", binary_data=binary)]):
            result = client.infer("add", inputs, outputs=outputs, request_id="7",
                                  request_compression_algorithm=compression,
                                  response_compression_algorithm=compression)
            assert np.array_equal(result.as_numpy("SUM"), a + a)
            assert result.get_response()["id"] == "7"

texts = np.array(["hello", "", "\u00e4"], dtype=object)
for binary in (True, False):
    tensor = triton.InferInput("x", texts.shape, "BYTES")
    tensor.set_data_from_numpy(texts, binary_data=binary)
    result = client.infer("str", [tensor])
    assert [t.decode() for t in result.as_numpy("y")] == list(texts)

half = np.array([[0.5, -2]], dtype=np.float16)
tensor = triton.InferInput("x", half.shape, "FP16")
tensor.set_data_from_numpy(half)
assert np.array_equal(client.infer("half", [tensor]).as_numpy("y"), half)

requests = [client.async_infer("add", inputs) for _ in range(20)]
for request in requests:
    assert np.array_equal(request.get_result().as_numpy("SUM"), a + a)

wrong = triton.InferInput("A", [2, 3], "FP32")
wrong.set_data_from_numpy(np.zeros([2, 3], np.float32))
for call in (lambda: client.infer("add", [wrong, inputs[1]]),
             lambda: client.infer("none", inputs)):
    try:
        call()
        raise SystemExit("no error")
    except InferenceServerException as error:
        print(error.status(), error.message())

client.unload_model("add")
assert not client.is_model_ready("add")
client.load_model("add")
assert client.is_model_ready("add")
print("done")
)");
  const Output output = Shell(python + script + " " + std::to_string(port()));
  EXPECT_EQ(output.code, 0) << output.text;
  EXPECT_NE(output.text.find("[2, 3]"), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("no model 'none'"), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("done"), std::string::npos) << output.text;
}

}  // namespace coracle::outside_test
