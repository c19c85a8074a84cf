// `coracle view`: what it writes and refuses, and its pages in a browser.

#include <coracle/coracle.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace coracle::view_test {

using Json = nlohmann::json;

constexpr const char* kHostile = "</script><img src=x onerror=\"window.harmed=1\">";

class View : public Cli {
 protected:
  // before.pb is a program with its gradients, train.pb the same with an error clip on h.
  void WriteTraining() {
    WriteFileAtomic(Path("model.pbtxt"), R"(
      name: "tiny"
      data { name: "x" shape: [-1, 3] }
      layer { fc { input: "x" size: 4 act: "relu" output: "h"
                   param { regularizer { l2_decay { coeff: 0.25 } } } } }
      layer { fc { input: "h" size: 2 output: "y" } }
      layer { mean { input: "y" output: "loss" } }
    )");
    Expect("coracle build model.pbtxt --out=main.pb", 0, {});
    Expect("coracle backward main.pb --loss=loss --out=before.pb", 0, {});
    Expect("coracle backward main.pb --loss=loss --error_clip=h:5 --out=train.pb", 0, {});
    WriteNpz({{"fc_0.w_0", Tensor::Of<float>({3, 4}, {-1, 0, 0, 0, 0.5, 0.5, 1, 1, 1, 1, 2, NAN})}},
             Path("w.npz"));
  }
  void WriteHostile() {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var(kHostile).SetShape({2, 3});
    root.Var("y").SetShape({2, 3});
    root.Var("constructor").SetShape({1});
    root.AppendOp("relu", {{"X", {kHostile}}}, {{"Out", {"y"}}});
    root.AppendOp(kHostile, {{kHostile, {"y"}}}, {}, {{kHostile, std::string(kHostile)}});
    root.AppendOp("constructor", {{"valueOf", {"y"}}}, {});
    WriteProgram(program, Path("hostile.pb"));
  }
  // A loop whose body increments i this many times; 0: without the loop.
  void WriteLoop(const std::string& file, int increments) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"i", "n", "more", "scopes"}) root.Var(name).SetShape({1});
    root.Var("more").SetDType(DType::kBool);
    root.Var("scopes").SetType(VarType::kStepScopes);
    for (const char* name : {"i", "n"})
      root.AppendOp("fill_constant", {}, {{"Out", {name}}}, {{"shape", std::vector<int64_t>{1}}});
    root.AppendOp("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"more"}}});
    if (increments == 0) return WriteProgram(program, Path(file));
    BlockDesc& body = program.AppendBlock(root);
    for (int i = 0; i < increments; ++i)
      body.AppendOp("increment", {{"X", {"i"}}}, {{"Out", {"i"}}}, {{"step", 1.0f}});
    body.AppendOp("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"more"}}});
    root.AppendOp("while", {{"X", {"i", "n"}}, {"Condition", {"more"}}},
                  {{"Out", {"i"}}, {"StepScopes", {"scopes"}}}, {{"sub_block", BlockRef{1}}});
    WriteProgram(program, Path(file));
  }
  // Two branches, the first of which draws random numbers, and a page of what changes when they
  // change places and an op is added.
  void WriteBranches() {
    const std::string head = R"(
      data { name: "p" shape: [1] dtype: BOOL }
      data { name: "x" shape: [4] }
      layer { scale { input: "x" scale: 1 output: "y" } }
      layer { scale { input: "x" scale: 1 output: "z" } })";
    const std::string draws = R"(layer { if { condition: "p"
      layer { op { gaussian_random { Out: ["n"] shape: [4] } } }
      layer { assign_to { x: "n" var: "y" } } } })";
    const std::string scales = R"(layer { if { condition: "p"
      layer { scale { input: "x" scale: 9 output: "m" } }
      layer { assign_to { x: "m" var: "z" } } } })";
    WriteFileAtomic(Path("branches.pbtxt"), head + draws + scales);
    WriteFileAtomic(Path("swapped.pbtxt"),
                    head + scales + draws + R"(layer { relu { input: "x" output: "more" } })");
    Expect("coracle view branches.pbtxt swapped.pbtxt -o branches.html", 0, {});
  }
  // A page of train.pb with the times of a run.
  void WriteTimes() {
    Expect("coracle build model.pbtxt --startup_out=startup.pb --out=main.pb", 0, {});
    Expect("coracle run startup.pb --save_params=params", 0, {});
    WriteNpz({{"x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}}, Path("x.npz"));
    Expect(
        "coracle run train.pb --params=params --feed=x.npz --fetch=loss,fc_0.w_0@GRAD "
        "--disabled_passes=all --trace=trace.json",
        0, {});
    Expect("coracle view train.pb -o times.html --times=trace.json", 0, {});
  }
  // The data in a page that is small enough to hold them as they are.
  Json DataOf(const std::string& page) {
    const std::string html = ReadFile(Path(page)), begin = "type=\"application/json\">";
    const size_t at = html.find(begin);
    EXPECT_NE(at, html.npos);
    const size_t from = at + begin.size();
    return Json::parse(html.substr(from, html.find("</script>", from) - from));
  }
};

TEST_F(View, PageHoldsWhatIsKnown) {
  WriteTraining();
  Expect("coracle view train.pb -o train.html --arrays=w.npz --shape=x:8x3", 0,
         {"train.html: ", " ops, "});
  const Json data = DataOf("train.html");
  EXPECT_EQ(data["format"], "coracle.view");
  EXPECT_EQ(data["version"], 1);
  const Json& program = data["programs"][0];
  EXPECT_EQ(program["name"], "train.pb");
  EXPECT_EQ(program["program"]["format"], "coracle.program");
  // Eight rows of 3 by a matrix of 3 x 4, then of 4 by one of 4 x 2.
  EXPECT_EQ(program["multiply_adds"][0][0], 8 * 3 * 4);
  double all = 0;
  for (const Json& count : program["multiply_adds"][0]) all += count.get<double>();
  // Backward computes dW of the first layer, dX and dW of the second.
  EXPECT_EQ(all, 2 * 8 * 3 * 4 + 3 * 8 * 4 * 2);
  const Json& w = program["values"]["fc_0.w_0"];
  EXPECT_EQ(w["count"], 12);
  EXPECT_EQ(w["zeros"], 3);
  EXPECT_EQ(w["not_finite"], 1);
  EXPECT_EQ(w["min"], -1);
  EXPECT_EQ(w["max"], 2);
  EXPECT_DOUBLE_EQ(w["mean"], 6.0 / 11);
  EXPECT_DOUBLE_EQ(w["norm"], std::sqrt(9.5));
  EXPECT_EQ(w["histogram"]["counts"].size(), 64u);
  EXPECT_EQ(program["gradient"]["of"], "loss");
  EXPECT_TRUE(program["gradient"]["starts"].contains("fc_0.w_0"));
  EXPECT_GT(program["memory"]["arena_bytes"], 0);
  EXPECT_NE(data["op_types"]["mul"]["doc"], "");
  EXPECT_EQ(data["op_types"]["mul"]["family"], "matmul");
  // The same values from another kind of file.
  WriteFileAtomic(Path("h.json"), R"({"format": "coracle.tensors", "version": 1, "tensors": [
      {"name": "h", "dtype": "float32", "shape": [2], "lod": [], "data": [3, 4]}]})");
  Expect("coracle view train.pb -o h.html --arrays=h.json", 0, {});
  EXPECT_EQ(DataOf("h.html")["programs"][0]["values"]["h"]["norm"], 5);
}

TEST_F(View, PageLoadsNothing) {
  WriteHostile();
  Expect("coracle view hostile.pb -o page.html --nomemory", 0, {});
  const std::string html = ReadFile(Path("page.html"));
  EXPECT_NE(html.find("default-src 'none'; script-src 'sha256-"), html.npos);
  EXPECT_EQ(html.find("<img"), html.npos);
  EXPECT_EQ(html.find("https://"), html.npos);
  size_t scripts = 0;
  for (size_t at = html.find("</script"); at != html.npos; at = html.find("</script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2u);
  EXPECT_EQ(DataOf("page.html")["programs"][0]["program"]["blocks"][0]["ops"][1]["type"], kHostile);
}

TEST_F(View, ShowsJobsSnapshotsAndDifferences) {
  WriteTraining();
  Expect("coracle view before.pb train.pb -o d.html", 0, {"d.html: "});
  const Json difference = DataOf("d.html")["difference"];
  EXPECT_EQ(difference["format"], "coracle.diff");
  Expect("coracle view model.pbtxt -o m.html", 0, {"m.html: "});
  EXPECT_EQ(DataOf("m.html")["programs"].size(), 1u);
  WriteFileAtomic(Path("softmax.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model: "softmax.pbtxt" train { digits { count: 40 } }
    loss: "loss" batch_size: 20 max_iter: 2 snapshot_interval: 2
    optimizer { sgd { learning_rate: 0.1 } })");
  Expect("coracle train job.pbtxt --out=trained", 0, {});
  for (const char* shown : {"job.pbtxt", "trained"}) {
    Expect(fmt::format("coracle view {} -o j.html", shown), 0, {"j.html: "});
    const Json program = DataOf("j.html")["programs"][0];
    const std::string types = program["program"]["blocks"][0]["ops"].dump();
    EXPECT_NE(types.find("\"sgd\""), types.npos) << "the training program";
    // Only the snapshot has values.
    const Json values = program.value("values", Json::object());
    EXPECT_EQ(values.contains("fc_0.w_0"), std::string(shown) == "trained") << program;
  }
  for (const char* shown : {"job.pbtxt", "trained"})
    Expect(fmt::format("coracle view {} --params=trained -o k.html", shown), 2,
           {"--params is for a program"});
}

TEST_F(View, AModelWhoseParametersAreNotThere) {
  WriteTraining();
  Expect("mkdir old && cp main.pb old/__model__ && coracle view old -o o.html", 0, {"o.html: "});
  EXPECT_EQ(DataOf("o.html")["programs"].size(), 1u);
}

TEST_F(View, RefusesWithAReason) {
  WriteTraining();
  Expect("coracle view", 2, {"view: takes one FILE or two"});
  Expect("coracle view main.pb", 2, {"-o FILE.html is missing"});
  Expect("coracle view main.pb -o page.svg", 2, {"--out must end in .html", "page.svg"});
  Expect("coracle view main.pb main.pb main.pb -o a.html", 2, {"got 3 arguments"});
  Expect("coracle view absent.pb -o a.html", 1, {"absent.pb"});
  Expect("coracle view w.npz -o a.html", 1, {"w.npz"});
  Expect("head -c 100 train.pb > cut.pb; coracle view cut.pb -o a.html", 1, {"cut.pb"});
  Expect("coracle view train.pb -o a.html --of=los", 1, {"'los'", "did you mean loss?"});
  Expect("coracle view train.pb -o a.html --shape=nothing:1", 1, {"nothing"});
  Expect("coracle view train.pb -o a.html --data_dir=.", 2, {"--data_dir is for a job"});
  Expect("coracle view train.pb -o a.html --times=main.pb", 1,
         {"'main.pb' is not a trace of ops: it is not JSON"});
  Expect(": > t.json; coracle view train.pb -o a.html --times=t.json", 1,
         {"'t.json' is not a trace of ops: it is empty"});
  Expect("echo '{\"traceEvents\": []}' > t.json; coracle view train.pb -o a.html --times=t.json", 1,
         {"no event is the span of an op"});
  WriteFileAtomic(Path("other.pbtxt"), R"(data { name: "z" shape: [-1, 3] }
    layer { relu { input: "z" output: "r" } })");
  WriteNpz({{"z", Tensor::Zeros(DType::kFloat32, {2, 3})}}, Path("z.npz"));
  Expect("coracle build other.pbtxt --out=other.pb", 0, {});
  Expect("coracle run other.pb --feed=z.npz --fetch=r --trace=other.json", 0, {});
  Expect("coracle view train.pb -o a.html --times=other.json", 1,
         {"'other.json' is the trace of another program: no op of 'train.pb' writes"});
  Expect("coracle view train.pb -o a.html --arrays=absent.npz", 1, {"absent.npz"});
  Expect("coracle view train.pb -o a.html --arrays=w.npy", 2, {"an npy file names no variable"});
  EXPECT_FALSE(FileExists(Path("a.html")));
}

// Clicks and reads in Chromium: see view_page_test.js.
TEST_F(View, WorksInABrowser) {
  const std::string chromium =
      Shell("command -v chromium chromium-browser google-chrome | head -1").text;
  if (chromium.empty()) GTEST_SKIP() << "no Chromium is installed";
  if (Shell("command -v node").code != 0) GTEST_SKIP() << "node is not installed";
  WriteTraining();
  WriteHostile();
  WriteTimes();
  WriteLoop("flat.pb", 0);
  WriteLoop("loop.pb", 1);
  WriteLoop("longer.pb", 2);
  Expect("coracle view train.pb -o train.html --arrays=w.npz --shape=x:8x3", 0, {});
  Expect("coracle view before.pb train.pb -o difference.html", 0, {});
  Expect("coracle view train.pb before.pb -o removed.html", 0, {});
  Expect("coracle view hostile.pb -o hostile.html", 0, {});
  Expect("coracle view loop.pb -o loop.html", 0, {});
  Expect("coracle view loop.pb longer.pb -o longer.html", 0, {});
  Expect("coracle view loop.pb flat.pb -o flat.html", 0, {});
  ProgramDesc more = ReadProgram(Path("train.pb"));
  for (int i = 0; i < 60; ++i) more.Root().Var("extra" + std::to_string(i)).SetShape({0, 4});
  WriteProgram(more, Path("more.pb"));
  Expect("coracle view train.pb more.pb -o vars.html", 0, {});
  Expect("coracle view train.pb train.pb -o same.html", 0, {});
  WriteBranches();
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  const std::string script = std::string(source ? source : ".") + "/test/tools/view_page_test.js";
  const std::string command = "cd " + dir_ + " && timeout -k 5 120 node " + script + " " +
                              chromium.substr(0, chromium.find('\n')) +
                              " train.html difference.html removed.html hostile.html loop.html "
                              "longer.html flat.html times.html vars.html same.html branches.html";
  // A browser that cannot start (no sandbox, no memory) checks nothing.
  Result result = Shell(command);
  const auto started = [&] { return result.text.find("ok     ") != result.text.npos; };
  for (int more = 2; !started() && more > 0; --more) result = Shell(command);
  if (!started() && result.text.find("FAILED") == result.text.npos)
    GTEST_SKIP() << "Chromium does not start here: " << result.text;
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("ok     nothing was loaded from elsewhere"), std::string::npos);
}
}  // namespace coracle::view_test
