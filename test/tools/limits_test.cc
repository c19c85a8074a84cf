// Hostile programs and texts: each ends the command quickly with one line.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/tools/cli.h>

#include <cmath>

namespace coracle::limits_test {

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
  // The limit of compare holds for both of its runs.
  Expect("coracle compare endless.pbtxt --fetch=h --time_limit=0.5", 2,
         {"passed the time limit of 0.5 s"});
}

// The op does not check the time.
TEST_F(CommandLimits, AnOpThatGoesOnForHours) {
  Write("long.pbtxt", R"(
    layer { op { fill_constant { shape: 20000 shape: 20000 dtype: FP32 value: 1 Out: "x" } } }
    layer { op { matmul { X: "x" Y: "x" Out: "y" } } }
    layer { op { matmul { X: "y" Y: "x" Out: "z" } } }
  )");
  ExpectRefusal("time long.pbtxt --kernels=reference --time_limit=0.5",
                "passed the time limit of 0.5 s");
}

// In the model of a job, and in the model that it leaves.
class JobLimits : public CommandLimits {
 protected:
  // Trains `entries` together with a small net, with limits that let them pass.
  void WriteJob(const std::string& entries) {
    Write("job.pbtxt", R"(
      model_text: """
        data { name: "image" shape: [-1, 1, 28, 28] }
        layer { fc { input: "image" size: 1 output: "h" } }
        layer { mean { input: "h" output: "m" } }
        )" + entries + R"(
        layer { op { sum { X: "m" X: "n" Out: "loss" } } }
      """
      train { digits { count: 20 } }
      test { digits { count: 20 } }
      batch_size: 10
      max_iter: 1
    )");
  }
};

TEST_F(JobLimits, Memory) {
  WriteJob(R"(layer { op { gaussian_random { shape: [3000000] Out: "large" } } }
              layer { mean { input: "large" output: "n" } })");
  ExpectRefusal("train job.pbtxt --out=o --memory_limit=8M",
                "out of memory: 'large' float32[3000000] takes 11.4 MiB");
  Expect("coracle train job.pbtxt --out=o", 0, {"final: loss="});
  ExpectRefusal("test o job.pbtxt --memory_limit=8M",
                "out of memory: 'large' float32[3000000] takes 11.4 MiB");
}

TEST_F(JobLimits, Time) {
  const auto entries = [](const std::string& rounds) {
    return R"(layer { op { fill_constant { shape: [1] value: 0 Out: "n" } } }
              layer { op { fill_constant { shape: [1] value: )" +
           rounds + R"( Out: "end" } } }
              layer { op { less_than { X: "n" Y: "end" Out: "go" } } }
              layer { while { condition: "go"
                layer { op { increment { X: "n" Out: "n" } } }
                layer { op { less_than { X: "n" Y: "end" Out: "go" } } } } })";
  };
  // n stays at 2^24, since the next number is none of float32.
  WriteJob(entries("1e9"));
  ExpectRefusal("train job.pbtxt --out=o --time_limit=0.5", "passed the time limit of 0.5 s ");
  WriteJob(entries("3"));
  Expect("coracle train job.pbtxt --out=o", 0, {"final: loss="});
  ProgramDesc model = ReadProgram(Path("o/eval.pdmodel"));
  for (size_t i = 0; i < model.Root().NumOps(); ++i) {
    OpDesc& op = model.Root().op(i);
    if (op.type() == "fill_constant" && op.Output("Out") == std::vector<std::string>{"end"})
      op.SetAttr("value", 1e9f);
  }
  WriteProgram(model, Path("o/eval.pdmodel"));
  ExpectRefusal("test o job.pbtxt --time_limit=0.5", "passed the time limit of 0.5 s ");
}

TEST_F(CommandLimits, LimitsOfBuildAndBackward) {
  // 2.4 GB of attributes, of which the system gives the limit and 1 GiB.
  Write("fat.pbtxt",
        "data { name: \"x\" shape: [1] }\nlayer { repeat { times: 60000 "
        "layer { op { print { In: \"x\" message: \"" +
            std::string(40'000, 'm') + "\" } } } } }");
  const std::string backward = "backward --loss=x --out=f.pb ";
  if (!UnderSanitizer()) {
    ExpectRefusal("build --out=f.pb fat.pbtxt --memory_limit=64M", "out of memory");
    ExpectRefusal(backward + "fat.pbtxt --memory_limit=64M", "out of memory");
  }
  // A second's work, of parts that take a tenth each.
  Write("wide.pbtxt", R"(
    data { name: "x" shape: [-1, 65536] }
    layer { repeat { times: 15 layer { split { input: "x" num: 65536 axis: 1 } } } }
  )");
  for (const std::string& command : {std::string("build --out=f.pb "), backward})
    ExpectRefusal(command + "wide.pbtxt --time_limit=0.05",
                  "passed the time limit of 0.05 s while building the model");
}

TEST_F(CommandLimits, Defaults) {
  for (const char* command : {"run", "time", "check-grad", "train", "test", "build", "backward",
                              "generate", "explain-gradient"}) {
    const Result help = Shell(std::string("coracle help ") + command);
    EXPECT_NE(help.text.find("--memory_limit=BYTES"), std::string::npos) << command;
    EXPECT_NE(help.text.find("80% of the machine's"), std::string::npos) << command;
    const size_t time = help.text.find("--time_limit=SECONDS");
    ASSERT_NE(time, std::string::npos) << command;
    EXPECT_NE(help.text.find("600)", time), std::string::npos) << command;
  }
  // 4 TB of parameters.
  Write("larger.pbtxt", R"(
    data { name: "x" shape: [-1, 1000] }
    layer { fc { input: "x" size: 1000000000 output: "h" } }
    layer { mean { input: "h" output: "loss" } }
  )");
  ExpectRefusal("time larger.pbtxt", "memory limit of " + HumanBytes(DefaultMemoryLimit()));
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
  ExpectRefusal("build wide.pbtxt --out=w.pb", "more than 500000 variables");
  Write("looped.pbtxt", R"(
    data { name: "x" shape: [-1, 3, 4] }
    layer { op { fill_constant { shape: [1] dtype: BOOL value: 1 Out: "go" } } }
    layer { while { condition: "go" layer { repeat { times: 90000
      layer { lstm { input: "x" hidden_size: 8 num_layers: 1024 } } } } } }
  )");
  ExpectRefusal("build looped.pbtxt --out=l.pb", "more than 500000 variables");
  Write("nested.pbtxt", R"(
    layer { repeat { times: 100000 layer { repeat { times: 100000 layer { repeat { times: 100000
      } } } } } }
  )");
  ExpectRefusal("build nested.pbtxt --out=n.pb", "more than 100000 entries");
}

TEST_F(CommandLimits, SizesThatExplode) {
  for (const std::string kind : {"lstm", "gru"}) {
    Write("rnn.pbtxt", "data { name: \"x\" shape: [-1, 3, 4] }\nlayer { " + kind +
                           " { input: \"x\" hidden_size: 1000000000 } }");
    for (const std::string command : {"build rnn.pbtxt --out=r.pb", "time rnn.pbtxt"})
      ExpectRefusal(command, "rnn.pbtxt:2:9: shape [");
  }
  const auto pool = [this](const std::string& size) {
    Write("pool.pbtxt", R"(
      data { name: "x" shape: [-1, 1, 4, 4] stop_gradient: false }
      layer { pool2d { input: "x" pool_size: )" +
                            size +
                            R"( adaptive: true output: "p" } }
      layer { fc { input: "p" size: 1 num_flatten_dims: 3 output: "h" } }
      layer { mean { input: "h" output: "loss" } }
    )");
  };
  pool("1000000000");
  for (const std::string command :
       {"build pool.pbtxt --out=p.pb", "time pool.pbtxt", "check-grad pool.pbtxt --loss=loss"})
    ExpectRefusal(command,
                  "its output var 'p' float32[-1, 1, 1000000000, 1000000000] has too many");
  pool("30000");
  for (const std::string command : {"time pool.pbtxt", "check-grad pool.pbtxt --loss=loss --wrt=x"})
    ExpectRefusal(command + " --memory_limit=64M", "out of memory: ");
}

// Large lists and shapes in a text: none of these errors may have the standard library's words.
TEST_F(CommandLimits, NumbersThatExplode) {
  const std::string n = "2147483647", many = "has too many elements";
  for (const auto& [layer, why] :
       {std::pair("conv2d { input: 'x' num_filters: N filter_size: N }", many),
        {"conv2d { input: 'x' num_filters: 2 filter_size: 3 padding: N }", many},
        {"embedding { input: 'i' num_embeddings: N embedding_dim: N }", many},
        {"split { input: 'x' num: N axis: 1 }", std::string("must give 1 to 65536 parts")},
        {"op { pad2d { X: 'x' paddings: N paddings: N paddings: N paddings: N Out: 'o' } }", many},
        {"op { fill_constant { shape: N shape: N shape: N Out: 'o' } }", many},
        {"op { nearest_interp_v2 { X: 'x' out_h: N out_w: N Out: 'o' } }", many},
        {"op { slice { Input: 'x' axes: N starts: 0 ends: 1 Out: 'o' } }",
         std::string("slice.C1")}}) {
    std::string text =
        "data { name: 'x' shape: [-1, 2, 4, 4] }\n"
        "data { name: 'i' shape: [-1, 1] dtype: INT64 }\nlayer { " +
        std::string(layer) + " }\n";
    for (size_t at; (at = text.find(" N")) != text.npos;) text.replace(at + 1, 1, n);
    Write("numbers.pbtxt", text);
    ExpectRefusal("build numbers.pbtxt --out=n.pb", why);
  }
}

// y = f(f(...f(x))); each call has a place of its own.
ProgramDesc ManyCalls(int count) {
  ProgramDesc program;
  program.Root().Var("x0").SetShape({1});
  BlockDesc& f = program.AppendBlock(program.Root());
  for (const char* name : {"a", "b"}) f.Var(name).SetShape({1});
  f.AppendOp("tanh", {{"X", {"a"}}}, {{"Out", {"b"}}});
  BlockDesc& root = program.Root();
  root.AppendOp("fill_constant", {}, {{"Out", {"x0"}}},
                {{"shape", std::vector<int64_t>{1}}, {"value", 2.f}});
  for (int i = 0; i < count; ++i) {
    const std::string to = "x" + std::to_string(i + 1);
    root.Var(to).SetShape({1});
    root.AppendOp("call", {{"X", {"x" + std::to_string(i)}}}, {{"Out", {to}}},
                  {{"sub_block", BlockRef{f.idx()}},
                   {"parameters", std::vector<std::string>{"a"}},
                   {"results", std::vector<std::string>{"b"}}});
  }
  return program;
}

TEST_F(CommandLimits, ManyCallsAreDifferentiated) {
  WriteProgram(ManyCalls(10'000), Path("calls.pb"));
  const Result backward =
      Shell("cd " + dir_ + " && coracle backward calls.pb --loss=x10000 --inputs=x0 --out=t.pb");
  EXPECT_EQ(backward.code, 0);
  EXPECT_EQ(backward.text, "x0 -> x0@GRAD\n");
  double x = 2, gradient = 1;
  for (int i = 0; i < 10'000; ++i) {
    x = std::tanh(x);
    gradient *= 1 - x * x;
  }
  const Result run = Shell("cd " + dir_ + " && coracle run t.pb --fetch=x0@GRAD");
  const std::string head = "x0@GRAD: float32[1]: ";
  ASSERT_EQ(run.text.substr(0, head.size()), head);
  EXPECT_NEAR(std::stod(run.text.substr(head.size())), gradient, 0.01 * gradient);
}

// A function that calls the one before it twice: 2^60 ops.
TEST_F(CommandLimits, CallsThatExplode) {
  ProgramDesc program;
  program.Root().Var("x").SetShape({1});
  program.Root().Var("y").SetShape({1});
  const auto call = [](BlockDesc& block, int f, const std::string& from, const std::string& to) {
    block.AppendOp("call", {{"X", {from}}}, {{"Out", {to}}},
                   {{"sub_block", BlockRef{f}},
                    {"parameters", std::vector<std::string>{"a"}},
                    {"results", std::vector<std::string>{"c"}}});
  };
  for (int k = 1; k <= 60; ++k) {
    BlockDesc& f = program.AppendBlock(program.Root());
    for (const char* name : {"a", "b", "c"}) f.Var(name).SetShape({1});
    if (k == 1) {
      f.AppendOp("tanh", {{"X", {"a"}}}, {{"Out", {"c"}}});
    } else {
      call(f, k - 1, "a", "b");
      call(f, k - 1, "b", "c");
    }
  }
  call(program.Root(), 60, "x", "y");
  WriteProgram(program, Path("calls.pb"));
  for (const char* command : {"backward calls.pb --loss=y --inputs=x --out=t.pb",
                              "run calls.pb --fetch=y", "check-grad calls.pb --loss=y --wrt=x"})
    ExpectRefusal(command, "hold more than 4000000 ops");
}
}  // namespace coracle::limits_test
