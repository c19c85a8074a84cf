// `coracle predict MODEL -` with JSON requests, one a line.

#include <coracle/coracle.h>
#include <coracle/test/tools/cli.h>

#include <nlohmann/json.hpp>

namespace coracle::request_lines_test {

using nlohmann::json;

class RequestLines : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Data("x", {-1, 2});
    net.Append("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    SaveInferenceModel(Path("relu"), {"x"}, {"y"}, main, Scope());
  }
  static std::string Line(const std::string& data, const std::string& more = "") {
    return R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":)" + data + "}]" +
           more + "}\n";
  }
  // The lines of standard output.
  std::vector<json> Answers(const std::string& command, int code) {
    const Result result = Shell("cd " + dir_ + " && " + command + " 2> errors");
    EXPECT_EQ(result.code, code) << result.text << ReadFile(Path("errors"));
    std::vector<json> lines;
    for (size_t begin = 0, end; begin < result.text.size(); begin = end + 1) {
      end = result.text.find('\n', begin);
      lines.push_back(json::parse(result.text.substr(begin, end - begin)));
    }
    return lines;
  }
};

TEST_F(RequestLines, EachLineHasAnAnswer) {
  WriteFileAtomic(Path("in"), "\n" + Line("[-1,2]", R"(,"id":"a")") + Line("[1,2,3]") + "{\n \r\n" +
                                  Line("[[3,-4]]"));
  for (const char* command :
       {"coracle predict relu.pdmodel - < in", "cat in | coracle predict relu.pdmodel -",
        "coracle predict relu.pdmodel - --format=requests < in"}) {
    const std::vector<json> lines = Answers(command, 1);
    ASSERT_EQ(lines.size(), 4u) << command;
    EXPECT_EQ(lines[0], json::parse(R"({"model_name":"relu","model_version":"1","id":"a","outputs":
        [{"name":"y","datatype":"FP32","shape":[1,2],"data":[0,2]}]})"));
    EXPECT_EQ(
        lines[1],
        json::parse(R"({"error":"input 'x': a tensor of shape [1, 2] has 2 elements, got 3"})"));
    EXPECT_TRUE(lines[2].contains("error"));
    EXPECT_EQ(lines[3]["outputs"][0]["data"], json::parse("[3,0]"));
  }
  EXPECT_NE(ReadFile(Path("errors")).find("2 of 4 requests"), std::string::npos);
}

TEST_F(RequestLines, GoodOnesEndWithStatusZero) {
  std::string last = Line("[5,6]");
  last.pop_back();  // without the end of the line
  WriteFileAtomic(Path("in"), Line("[1,2]") + last);
  const std::vector<json> lines = Answers("coracle predict relu.pdmodel - < in", 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["outputs"][0]["data"], json::parse("[5,6]"));
  EXPECT_TRUE(Answers("coracle predict relu.pdmodel - --format=requests < /dev/null", 0).empty());
}

// The answer is there before the next request.
TEST_F(RequestLines, AnswersComeAtOnce) {
  WriteFileAtomic(Path("in"), Line("[-1,2]"));
  Expect(
      "mkfifo f && { coracle predict relu.pdmodel - < f > out & } ; exec 3> f; cat in >&3; "
      "for i in $(seq 600); do [ -s out ] && break; sleep 0.1; done; cat out; exec 3>&-; wait",
      0, {R"("data":[0,2])"});
}

TEST_F(RequestLines, Rows) {
  WriteFileAtomic(Path("relu.preprocess.pbtxt"),
                  "version: 1 csv { header: true cells: 2 column { name: 'a' number: 0 } "
                  "column { name: 'b' number: 1 } } input { column: 'data' var: 'x' } "
                  "output { var: 'y' kind: CLASSES class: ['A', 'B'] }");
  WriteFileAtomic(Path("in"),
                  "{\"rows\":[{\"a\":1,\"b\":2},{\"a\":3,\"b\":\"-4\"}]}\n"
                  "{\"top\":2,\"rows\":[{\"a\":1}]}\n" +
                      Line("[-1,2]"));
  const std::vector<json> lines = Answers("cat in | coracle predict relu.pdmodel -", 1);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            json::parse(R"({"answers":[{"y":"B","y_score":2.0},{"y":"A","y_score":3.0}]})"));
  EXPECT_EQ(lines[1], json::parse(R"({"error":"row 0: the column 'b' is missing"})"));
  EXPECT_EQ(lines[2]["outputs"][0]["data"], json::parse("[0,2]"));
  // Cells are rows as before.
  Expect("printf 'a,b\\n1,2\\n' | coracle predict relu.pdmodel -", 0, {"B,2"});
  Expect("printf '{\"a\":1,\"b\":2}\\n' | coracle predict relu.pdmodel - --format=jsonl", 0,
         {R"("y":"B")"});
}

TEST_F(RequestLines, Refused) {
  WriteFileAtomic(Path("in"), Line("[-1,2]", R"(,"parameters":{"binary_data_output":true})"));
  const std::vector<json> lines = Answers("coracle predict relu.pdmodel - < in", 1);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0]["error"].get<std::string>().find("no binary outputs"), std::string::npos);
  Expect("printf '{\"a\":1,\"c\":{\"rows\":2}}\\n' | coracle predict relu.pdmodel -", 1,
         {"a request needs", "--format=jsonl"});
  Expect("coracle predict relu.pdmodel - --top=2 < in", 2, {"a request has its own \"top\""});
  Expect("coracle predict relu.pdmodel in --format=requests", 2, {"ROWS must be -"});
  Expect("coracle predict none.pdmodel - < in", 1, {"none.pdmodel"});
}

TEST_F(RequestLines, FromNode) {
  if (Shell("node --version").code != 0) GTEST_SKIP() << "node is not installed";
  const std::string program = std::string("CORACLE='" CORACLE_CLI "' node ") +
                              std::getenv("CORACLE_SOURCE_DIR") + "/examples/embed/classify.mjs ";
  Expect(program + "relu.pdmodel x 2 -1 2 3 -4.5", 0, {"0\n2\n3\n0\n"});
  Expect(program + "relu.pdmodel z 2 -1 2", 1,
         {"classify: the model has no input 'z'; it has 'x'"});
  Expect(program + "none.pdmodel x 2 -1 2", 1, {"none.pdmodel", "cannot be loaded"});
}

}  // namespace coracle::request_lines_test
