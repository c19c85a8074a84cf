// --trace of run, train and bench.
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace coracle::trace_file_test {

using Json = nlohmann::json;

// The report of check_trace.mjs, which reads the file as a viewer does; null without node.
Json CheckedByNode(const std::string& file) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources || Shell("command -v node").code != 0) return nullptr;
  const Result result =
      Shell("node " + std::string(sources) + "/test/tools/check_trace.mjs " + file);
  EXPECT_EQ(result.code, 0) << result.text;
  return result.code == 0 ? Json::parse(result.text) : Json(nullptr);
}

struct Span {
  std::string category, name;
  int64_t begin, end;  // nanoseconds
  Json args;
};

class TraceFile : public Cli {
 protected:
  // The spans of a file, by thread, ordered by their begin; checks what node would, since node may
  // not be there.
  std::map<int, std::vector<Span>> Read(const std::string& name) {
    const Json file = Json::parse(ReadFile(Path(name)));
    EXPECT_EQ(file["format"], "coracle.trace");
    EXPECT_EQ(file["version"], 1);
    std::map<int, std::vector<Span>> threads;
    for (const Json& event : file["traceEvents"]) {
      if (event["ph"] == "C") ++counters_[event["name"]];
      if (event["ph"] != "X") continue;
      const auto begin = std::llround(event["ts"].get<double>() * 1000);
      const auto dur = std::llround(event["dur"].get<double>() * 1000);
      EXPECT_GE(begin, 0);
      EXPECT_GE(dur, 0);
      threads[event["tid"]].push_back(
          {event["cat"], event["name"], begin, begin + dur, event.value("args", Json::object())});
    }
    for (auto& entry : threads) RequireNested(entry.second);
    const Json node = CheckedByNode(Path(name));
    if (!node.is_null()) {
      size_t spans = 0;
      for (const auto& entry : threads) spans += entry.second.size();
      EXPECT_EQ(node["spans"], spans);
      EXPECT_EQ(node["threads"], threads.size());
    }
    return threads;
  }

  static void RequireNested(std::vector<Span>& spans) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<const Span*> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back()->end <= span.begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back()->end) << span.name << " in " << open.back()->name;
      }
      open.push_back(&span);
    }
  }

  static size_t Count(const std::vector<Span>& spans, const std::string& category,
                      const std::string& name = "") {
    return static_cast<size_t>(std::count_if(spans.begin(), spans.end(), [&](const Span& span) {
      return span.category == category && (name.empty() || span.name == name);
    }));
  }

  std::map<std::string, int> counters_;  // how many events each has
};

TEST_F(TraceFile, OfARunHasPassesPlanOpsAndMemory) {
  Expect(
      "coracle build model.pbtxt --out=main.pb --startup_out=startup.pb && coracle run startup.pb "
      "--save_params=params",
      0, {});
  WriteNpz({{"x", Tensor::Full<float>({4, 3}, 1)}}, Path("in.npz"));
  Expect(
      "coracle run main.pb --params=params --feed=in.npz --fetch=loss --repeat=5 --trace=t.json "
      "--trace_runs=2",
      0, {"'t.json': ops of 2 of 5 runs are recorded: the first 2 of each program"});
  const std::vector<Span> spans = Read("t.json").at(0);
  EXPECT_EQ(Count(spans, "run"), 5u);
  EXPECT_EQ(Count(spans, "plan"), 1u);
  EXPECT_EQ(Count(spans, "compile", "compile"), 1u);
  EXPECT_EQ(Count(spans, "load", "load parameters"), 1u);
  EXPECT_EQ(Count(spans, "pass", "fuse_fc"), 1u);
  EXPECT_EQ(Count(spans, "op", "mean"), 2u);
  EXPECT_GT(counters_["workspace in use"], 0);
  EXPECT_EQ(counters_["tensors"], 2);
  for (const Span& span : spans) {
    if (span.name != "mean") continue;
    EXPECT_EQ(span.args["type"], "mean");
    EXPECT_EQ(span.args["output"], "loss");
    EXPECT_EQ(span.args["shape"], "float32[1]");
    EXPECT_EQ(span.args["place"].get<std::string>().rfind("op", 0), 0u);
  }
}

TEST_F(TraceFile, OfATrainingHasStepsDataAndEvaluations) {
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 num_flatten_dims: 1 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "softmax.pbtxt" train { digits { count: 200 } } test { digits { count: 50 } }
    loss: "loss" optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 50 max_iter: 4 test_interval: 2 snapshot_interval: 2)");
  Expect("coracle train job.pbtxt --out=out --trace=t.json --trace_runs=1", 0,
         {"final: loss=", "'t.json': ops of "});
  const std::map<int, std::vector<Span>> threads = Read("t.json");
  const std::vector<Span>& spans = threads.at(0);
  EXPECT_EQ(Count(spans, "train", "step"), 4u);
  EXPECT_EQ(Count(spans, "train", "evaluation"), 2u);
  EXPECT_EQ(Count(spans, "train", "snapshot"), 2u);
  EXPECT_EQ(Count(spans, "op", "sgd"), 1u);
  size_t read = 0;
  for (const auto& entry : threads) read += Count(entry.second, "data", "read batch");
  EXPECT_GE(read, 4u);
  int64_t step = 0;
  std::set<int64_t> programs;
  for (const Span& span : spans) {
    if (span.name == "step") {
      EXPECT_EQ(span.args["step"], ++step);
    }
    if (span.category == "run") programs.insert(span.args["program"].get<int64_t>());
  }
  EXPECT_EQ(programs.size(), 3u);  // start-up, training, evaluation
}

// The body of a loop is inside of the span of its op.
TEST_F(TraceFile, OpsOfALoopAreInsideOfIt) {
  const std::string data = TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "there is no shared/data";
  Expect("coracle bench " + data + "/paddle/ch_ppstructure_mobile_v2.0_SLANet" +
             " --shape=x:1x3x64x64 --seconds=0.01 --trace=t.json "
             "--trace_runs=1",
         0, {"parameters: drawn"});
  const std::vector<Span> spans = Read("t.json").at(0);
  const auto loop = std::find_if(spans.begin(), spans.end(), [](const Span& span) {
    return span.category == "op" && span.name == "while";
  });
  ASSERT_NE(loop, spans.end());
  const auto inside = std::count_if(spans.begin(), spans.end(), [&](const Span& span) {
    return span.category == "op" && span.begin >= loop->begin && span.end <= loop->end;
  });
  EXPECT_GT(inside, 20);
}

TEST_F(TraceFile, WrongFlags) {
  Expect("coracle run model.pbtxt --trace=t.txt", 2, {"--trace must end in .json, got 't.txt'"});
  Expect("coracle run model.pbtxt --trace=t.json --trace_runs=-1", 2,
         {"--trace_runs must be at least 0"});
  Expect("coracle run missing.pb --trace=t.json", 1, {"missing.pb"});
  EXPECT_FALSE(FileExists(Path("t.json")));
}
}  // namespace coracle::trace_file_test
