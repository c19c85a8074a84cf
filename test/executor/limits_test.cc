// Programs that want more memory or time than they may have.
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <cstring>

namespace coracle::limits_test {

// The error's message; its code must be that.
template <class F>
std::string Refusal(ErrorCode code, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.message();
  }
  return "no error";
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Net {
  ProgramDesc main, startup;
  Builder net{main, startup};

  Variable Int(int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); }
  void Forever(const std::function<void()>& body) {
    Variable always = net.Binary("less_than", Int(0), Int(1));
    While(net, always, [&] {
      body();
      Assign(net, net.Binary("less_than", Int(0), Int(1)), always);
    });
  }
  void Run(const std::vector<std::string>& fetches, const CompileOptions& options = {}) {
    Scope scope;
    Executor(options).Prepare(main, {}, fetches).Run(scope);
  }
};

CompileOptions Memory(uint64_t bytes) {
  CompileOptions options;
  options.memory_limit = bytes;
  return options;
}

// 2^62 float32: the number of bytes is 2^64.
TEST(Limits, ByteCountsDoNotWrap) {
  for (const bool optimize : {true, false}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.AppendOp("fill_constant", {}, {{"Out", {"x"}}},
                  {{"shape", std::vector<int64_t>{int64_t{1} << 62}}, {"dtype", int32_t{5}}});
    root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    root.Var("x").SetShape({-1});
    root.Var("y").SetShape({-1});
    Scope scope;
    CompileOptions options;
    options.optimize = optimize;
    try {
      Executor(options).Prepare(program, {}, {"y"}).Run(scope);
      FAIL() << "it ran";
    } catch (const Error& e) {
      EXPECT_TRUE(Has(e.what(), "fill_constant: its output var 'x'")) << e.what();
      EXPECT_TRUE(Has(e.what(), "has too many elements")) << e.what();
    }
  }
}

TEST(Limits, OutOfMemoryNamesOpVarAndSize) {
  Net t;
  Variable x = FillConstant(t.net, {1'000'000'000}, DType::kFloat32, 1);
  const std::string message =
      Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({x.name()}, Memory(1 << 20)); });
  EXPECT_EQ(message, "fill_constant: out of memory: '" + x.name() +
                         "' float32[1000000000] takes 3.7 GiB, more than the memory limit of 1.0 "
                         "MiB (output var '" +
                         x.name() + "')");
}

// Each fits, together they do not.
TEST(Limits, TheSumOfTemporariesNamesTheLargest) {
  Net t;
  Variable x = t.net.Data("x", {-1});
  Variable sum = t.net.Sum({t.net.Tanh(x), t.net.Unary("exp", x)});
  Scope scope;
  CompileOptions options = Memory(100'000);
  options.optimize = false;  // else the three ops are one, without temporaries
  PreparedProgram run = Executor(options).Prepare(t.main, {"x"}, {sum.name()});
  const std::string message = Refusal(ErrorCode::kResourceExhausted, [&] {
    run.Run(scope, {Tensor::Zeros(DType::kFloat32, {20'000})});
  });
  EXPECT_TRUE(Has(message, "the largest temporary is '")) << message;
  EXPECT_TRUE(Has(message, "float32[20000] (output of ")) << message;
  EXPECT_TRUE(Has(message, "memory limit of 97.7 KiB")) << message;
}

// Persistable variables that a run makes count as memory too.
TEST(Limits, PersistableVariablesThatARunMakes) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.AppendOp("fill_constant", {}, {{"Out", {"w"}}},
                {{"shape", std::vector<int64_t>{1'000'000}}, {"dtype", int32_t{5}}});
  root.Var("w").SetShape({1'000'000});
  root.Var("w").SetPersistable(true);
  Scope scope;
  const std::string message = Refusal(ErrorCode::kResourceExhausted, [&] {
    Executor(Memory(1 << 20)).Prepare(program, {}, {}).Run(scope);
  });
  EXPECT_EQ(message.find("fill_constant: out of memory: 'w' float32[1000000] takes 3.8 MiB"), 0u)
      << message;
}

TEST(Limits, ALoopThatDoublesATensor) {
  Net t;
  Variable x = FillConstant(t.net, {1024}, DType::kFloat32, 1);
  x.desc().SetShape({-1});
  t.Forever([&] { Assign(t.net, t.net.Concat({x, x}), x); });
  const std::string message =
      Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({x.name()}, Memory(1 << 20)); });
  EXPECT_TRUE(Has(message, "out of memory: ")) << message;
  EXPECT_TRUE(Has(message, "float32[")) << message;
}

TEST(Limits, ALoopThatFillsAnArray) {
  Net t;
  Variable array = CreateArray(t.net, DType::kFloat32), i = t.Int(0), x = t.Int(7);
  t.Forever([&] {
    ArrayWrite(t.net, x, i, array);
    Increment(t.net, i);
  });
  EXPECT_TRUE(
      Has(Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({i.name()}, Memory(1 << 20)); }),
          "write_to_array: out of memory: "));
}

// No op writes the elements in between, but they take memory all the same.
TEST(Limits, ArraysWithGaps) {
  Net t;
  Variable i = t.Int(0), end = t.Int(600'000), array = CreateArray(t.net, DType::kInt64);
  Variable more = t.net.Binary("less_than", i, end);
  While(t.net, more, [&] {
    ArrayWrite(t.net, end, i, array);
    Increment(t.net, i, 60'000);
    Assign(t.net, t.net.Binary("less_than", i, end), more);
  });
  const std::string message =
      Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({i.name()}, Memory(16 << 20)); });
  EXPECT_TRUE(Has(message, "write_to_array: out of memory: ")) << message;
  t.Run({i.name()}, Memory(uint64_t{1} << 30));
}

TEST(Limits, AnIndexFarBeyondTheEndOfAnArray) {
  Net t;
  Variable array = CreateArray(t.net, DType::kFloat32);
  ArrayWrite(t.net, t.Int(7), t.Int(1'000'000), array);
  Variable length = t.net.Make("lod_array_length", {{"X", {array.name()}}});
  EXPECT_TRUE(
      Has(Refusal(ErrorCode::kOutOfRange, [&] { t.Run({length.name()}, Memory(1 << 20)); }),
          "write_to_array: I is 1000000, too far beyond the end of an array of 0 elements"));
}

TEST(Limits, ManyValuesWithTheLodOfOneThatIsWritten) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"p", "x"}) root.Var(name).SetShape({2, 1});
  root.Var("p").SetPersistable(true);
  for (int i = 0; i < 30'000; ++i) {
    const std::string name = "y" + std::to_string(i);
    root.Var(name).SetShape({2, 1});
    root.AppendOp("scale", {{"X", {"p"}}}, {{"Out", {name}}}, {{"scale", 2.0f}});
  }
  root.AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"p"}}});
  Scope scope;
  scope.Set("p", Tensor::Full<float>({2, 1}, 1));
  CompileOptions options;
  options.optimize = false;
  PreparedProgram run = Executor(options).Prepare(program, {"x"}, {"y7"});
  Tensor x = Tensor::Full<float>({2, 1}, 3);
  x.lod() = {{0, 1, 2}};
  EXPECT_EQ(run.Run(scope, {&x, 1})[0].lod(), LoD());
}

// Constants are computed while a plan is made, in the memory of the run.
TEST(Limits, FoldedConstants) {
  Net t;
  Variable wide = FillConstant(t.net, {1, 65536}, DType::kFloat32, 1);
  Variable all = t.net.Matmul(wide, wide, {.transpose_x = true});
  const std::string message =
      Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({all.name()}, Memory(1 << 20)); });
  EXPECT_TRUE(Has(message, "matmul: out of memory: ")) << message;
}

TEST(Limits, OfTheThreadHoldBesides) {
  Net t;
  Variable x = FillConstant(t.net, {100'000}, DType::kFloat32, 1);
  const ScopedLimits scoped(std::make_shared<ResourceLimits>(ResourceOptions{.memory = 100'000}));
  const std::string message =
      Refusal(ErrorCode::kResourceExhausted, [&] { t.Run({t.net.Unary("exp", x).name()}); });
  EXPECT_TRUE(Has(message, "out of memory: ")) << message;
}

TEST(Limits, MemoryIsGivenBack) {
  Net t;
  Variable x = t.net.Data("x", {-1});
  Variable y = t.net.Unary("exp", x);
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{.memory = 1'000'000});
  const ScopedLimits scoped(limits);
  {
    Scope scope;
    PreparedProgram run = Executor().Prepare(t.main, {"x"}, {y.name()});
    for (int64_t n = 1; n <= 50; ++n)  // shape after shape: only the last plan's frame is there
      run.Run(scope, {Tensor::Zeros(DType::kFloat32, {1000 * n})});
    EXPECT_GT(limits->bytes_in_use(), 0u);
  }
  EXPECT_EQ(limits->bytes_in_use(), 0u);
}

TEST(Limits, SizesOfKernelsOwnMemory) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({1, 4, 1, 1});
  root.Var("w").SetShape({4, 4, 1, 1});
  root.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"y"}}},
                {{"paddings", std::vector<int32_t>{INT32_MAX, INT32_MAX}},
                 {"strides", std::vector<int32_t>{INT32_MAX, INT32_MAX}}});
  root.Var("y").SetShape({-1, -1, -1, -1});
  Scope scope;
  PreparedProgram run = Executor(Memory(64 << 20)).Prepare(program, {"x", "w"}, {"y"});
  const Tensor x = Tensor::Full<float>({1, 4, 1, 1}, 1), w = Tensor::Full<float>({4, 4, 1, 1}, 1);
  try {  // either is right: a kernel without padded images, or a refusal
    EXPECT_EQ(run.Run(scope, {x, w})[0].data<float>()[4], 4);
  } catch (const Error& e) {
    EXPECT_TRUE(Has(e.message(), "conv2d: out of memory: ")) << e.message();
  }
}
}  // namespace coracle::limits_test
