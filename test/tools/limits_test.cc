// What a stranger's program or text may make a command do: each ends quickly with one line.

#include <coracle/framework/io/program_io.h>

#include "cli.h"

namespace coracle {
namespace {

class CommandLimits : public Cli {
 protected:
  void Write(const std::string& name, const std::string& text) {
    WriteFileAtomic(Path(name), text);
  }
  void ExpectRefusal(const std::string& command, const std::string& part) {
    const Result result = Shell("cd " + dir_ + " && coracle " + command);
    EXPECT_EQ(result.code, 1) << command << "\n" << result.text;
    EXPECT_NE(result.text.find(part), std::string::npos) << command << "\n" << result.text;
    for (const char* wrong : {"internal error", "std::", "bad_alloc"})
      EXPECT_EQ(result.text.find(wrong), std::string::npos) << command << "\n" << result.text;
  }
};

// A program whose declarations leave the shape open, so that only its op says it.
std::string HugeProgram() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y"}) root.Var(name).SetShape({-1});
  root.Var("loss").SetShape({1});
  root.AppendOp("fill_constant", {}, {{"Out", {"x"}}},
                {{"shape", std::vector<int64_t>{int64_t{1} << 62}}, {"dtype", int32_t{5}}});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  root.AppendOp("reduce_sum", {{"X", {"y"}}}, {{"Out", {"loss"}}}, {{"reduce_all", true}});
  return SerializeProgram(program);
}

TEST_F(CommandLimits, ByteCountsThatWrap) {
  Write("huge.pb", HugeProgram());
  for (const char* command : {"run huge.pb --fetch=y", "check-grad huge.pb --loss=loss --wrt=x",
                              "backward huge.pb --loss=loss --inputs=x --out=t.pb"})
    ExpectRefusal(command, "too many elements");
}

// 4 GB of elements, and a loop.
constexpr char kLarge[] = R"(
  data { name: "x" shape: [-1, 4] }
  layer { fc { input: "x" size: 100000000 output: "h" } }
  layer { mean { input: "h" output: "loss" } }
)";

TEST_F(CommandLimits, MemoryOfEachCommand) {
  Write("large.pbtxt", kLarge);
  ExpectRefusal("time large.pbtxt --memory_limit=64M", "out of memory: ");
  ExpectRefusal("check-grad large.pbtxt --loss=loss --memory_limit=64M", "out of memory: ");
}

TEST_F(CommandLimits, LoopsThatNeverEnd) {
  Write("endless.pbtxt", R"(
    data { name: "x" shape: [-1, 4] stop_gradient: false }
    layer { op { fill_constant { shape: [1] dtype: BOOL value: 1 Out: "go" } } }
    layer { while { condition: "go"
      layer { op { fill_constant { shape: [1] dtype: BOOL value: 1 Out: "go" } } } } }
    layer { fc { input: "x" size: 1 output: "h" } }
    layer { mean { input: "h" output: "loss" } }
  )");
  for (const char* command : {"run endless.pbtxt --fetch=go", "time endless.pbtxt",
                              "check-grad endless.pbtxt --loss=loss --wrt=x"})
    ExpectRefusal(std::string(command) + " --time_limit=0.5", "passed the time limit of 0.5 s");
}

TEST_F(CommandLimits, TextsThatExplode) {
  Write("lstm.pbtxt", R"(
    data { name: "x" shape: [-1, 3, 4] }
    layer { lstm { input: "x" hidden_size: 8 num_layers: 1000000000 } }
  )");
  ExpectRefusal("build lstm.pbtxt --out=l.pb", "num_layers must lie in [1, 1024]");
  Write("wide.pbtxt", R"(
    data { name: "x" shape: [-1, 65536] }
    layer { repeat { times: 100000 layer { split { input: "x" num: 65536 axis: 1 } } } }
  )");
  ExpectRefusal("build wide.pbtxt --out=w.pb", "more than 1000000 variables");
  Write("nested.pbtxt", R"(
    layer { repeat { times: 100000 layer { repeat { times: 100000 layer { repeat { times: 100000
      } } } } } }
  )");
  ExpectRefusal("build nested.pbtxt --out=n.pb", "more than 100000 entries");
}

}  // namespace
}  // namespace coracle
