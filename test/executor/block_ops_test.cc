// Groups of ops on images that are planned as the ops that they were made of.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/passes/pass.h>
#include <coracle/test/threads.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace coracle::block_ops_test {

using Names = std::vector<std::string>;

Tensor Drawn(const Shape& shape) {
  Tensor value(DType::kFloat32, shape);
  const Philox random(7, 0, 0);
  for (int64_t i = 0; i < value.numel(); ++i)
    value.data<float>()[i] = random.UniformFloat(static_cast<uint64_t>(i)) - 0.5f;
  return value;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.nbytes())) == 0;
}

double LargestDifference(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    most = std::fmax(most, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
  return most;
}

// Three convolutions, of which fuse_images makes a group. A chunk of it holds 8 images.
struct Net {
  ProgramDesc forward, startup;
  Scope scope;
  std::string out;

  Net() {
    Builder b(forward, startup);
    Variable h = b.Data("x", {-1, 16, 32, 32});
    for (int i = 0; i < 3; ++i)
      h = b.Conv2d(h, {.num_filters = 16, .filter_size = 3, .padding = 1, .act = "relu"});
    out = h.name();
    Executor().Run(startup, scope);
  }

  // With fuse_images alone, or without it.
  PreparedProgram Prepare(bool fused, bool frozen, bool tune = false) {
    CompileOptions options;
    options.tune = tune;
    options.profile = true;
    options.disabled_passes = PassesWithout(fused ? Names{"fuse_images"} : Names{});
    const Executor executor(options);
    return frozen ? executor.PrepareFrozen(forward, scope, {"x"}, {out})
                  : executor.Prepare(forward, {"x"}, {out});
  }
};

Names TypesOf(const PreparedProgram& program) {
  Names types;
  for (const OpTime& time : program.Profile()) types.push_back(time.op_type);
  return types;
}

TEST(BlockOps, OneChunkOfImages) {
  Net net;
  const Names ops = {"conv2d", "elementwise_add", "relu", "conv2d", "elementwise_add", "relu",
                     "conv2d", "elementwise_add", "relu"};
  for (const bool frozen : {false, true}) {
    for (const int threads : {1, 2}) {
      const Threads scope(threads);
      PreparedProgram fused = net.Prepare(true, frozen), plain = net.Prepare(false, frozen);
      for (const int64_t images : {1, 3, 16}) {
        SCOPED_TRACE(::testing::Message()
                     << images << " images, frozen " << frozen << ", threads " << threads);
        const Tensor x = Drawn({images, 16, 32, 32});
        const Tensor got = fused.Run(net.scope, {x})[0].Clone();
        const Tensor expected = plain.Run(net.scope, {x})[0].Clone();
        EXPECT_EQ(TypesOf(plain), ops);
        EXPECT_EQ(fused.Profile().back().output, net.out);
        if (images == 16) {
          EXPECT_EQ(TypesOf(fused), Names{"fused_images"});
          if (threads == 1) {
            EXPECT_LT(fused.WorkspaceBytes(), plain.WorkspaceBytes());
          }
          EXPECT_LT(LargestDifference(got, expected), 1e-5);
        } else {
          EXPECT_EQ(TypesOf(fused), ops);
          EXPECT_EQ(fused.WorkspaceBytes(), plain.WorkspaceBytes());
          EXPECT_TRUE(SameBits(got, expected));
        }
      }
    }
  }
}

// Kernels are tuned for the images of a chunk. Ops that are planned one by one are reported too.
TEST(BlockOps, TunedKernels) {
  Net net;
  for (const bool frozen : {false, true}) {
    PreparedProgram tuned = net.Prepare(true, frozen, true), plain = net.Prepare(false, frozen);
    for (const int64_t images : {16, 1}) {
      SCOPED_TRACE(::testing::Message() << images << " images, frozen " << frozen);
      const Tensor x = Drawn({images, 16, 32, 32});
      const Tensor expected = plain.Run(net.scope, {x})[0].Clone();
      for (int run = 0; run < 2; ++run)
        EXPECT_LT(LargestDifference(tuned.Run(net.scope, {x})[0], expected), 1e-5);
      const OpTime first = tuned.Profile().front();
      EXPECT_EQ(first.op_type, images == 1 ? "conv2d" : "fused_images");
      EXPECT_EQ(first.kernel.find(" ms") != std::string::npos, images == 1) << first.kernel;
    }
  }
}

// A group by hand: b = relu(a), c = tanh(b), d = a + c.
struct Group {
  ProgramDesc program;

  Group() {
    BlockDesc& block = program.AppendBlock(0);
    for (const char* name : {"x", "y", "z"}) Declare(program.Root(), name);
    for (const char* name : {"a", "b", "c", "d"}) Declare(block, name);
    block.AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
    block.AppendOp("tanh", {{"X", {"b"}}}, {{"Out", {"c"}}});
    block.AppendOp("elementwise_add", {{"X", {"a"}}, {"Y", {"c"}}}, {{"Out", {"d"}}});
  }
  static VarDesc& Declare(BlockDesc& block, const std::string& name) {
    VarDesc& var = block.Var(name);
    var.SetMeta({VarType::kLoDTensor, DType::kFloat32, {1, 3}, 0});
    return var;
  }
  void Append(const Names& out, const Names& results) {
    const AttrList attrs = {{"sub_block", BlockRef{1}},
                            {"arguments", Names{"a"}},
                            {"results", results},
                            {"lod_from", std::vector<int32_t>(out.size(), 0)},
                            {"images", std::vector<int32_t>{0}}};
    program.Root().AppendOp("fused_images", {{"X", {"x"}}}, {{"Out", out}}, attrs);
  }
};

Tensor Row(float a, float b, float c) {
  Tensor row(DType::kFloat32, {1, 3});
  row.data<float>()[0] = a, row.data<float>()[1] = b, row.data<float>()[2] = c;
  return row;
}

void ExpectRow(const Tensor& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.numel(), 3);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(got.data<float>()[i]), expected[i], 1e-6) << i;
}

const std::vector<double> kTanh = {0, std::tanh(0.5), std::tanh(2.0)};
const std::vector<double> kSum = {-1, 0.5 + std::tanh(0.5), 2 + std::tanh(2.0)};

// A variable around the group has the name of one inside.
TEST(BlockOps, NamesInsideAndAround) {
  Group g;
  Group::Declare(g.program.Root(), "b");
  g.Append({"y"}, {"d"});
  g.program.Root().AppendOp("elementwise_add", {{"X", {"y"}}, {"Y", {"b"}}}, {{"Out", {"z"}}});
  Scope scope;
  const std::vector<Tensor> got = Executor().Run(
      g.program, scope, {{"x", Row(-1, 0.5f, 2)}, {"b", Row(10, 20, 30)}}, {"z", "y", "b"});
  ExpectRow(got[0], {10 + kSum[0], 20 + kSum[1], 30 + kSum[2]});
  ExpectRow(got[1], kSum);
  ExpectRow(got[2], {10, 20, 30});
}

// A result that replaces the argument, although a later op still reads it.
TEST(BlockOps, ResultsOverArguments) {
  Group g;
  g.Append({"x", "y"}, {"c", "d"});
  Scope scope;
  const std::vector<Tensor> got =
      Executor().Run(g.program, scope, {{"x", Row(-1, 0.5f, 2)}}, {"x", "y"});
  ExpectRow(got[0], kTanh);
  ExpectRow(got[1], kSum);
}

TEST(BlockOps, PersistableResults) {
  Group g;
  g.program.Root().FindVar("y")->SetPersistable(true);
  g.Append({"y", "z"}, {"c", "d"});
  Scope scope;
  Tensor x = Row(-1, 0.5f, 2);
  x.lod() = {{0, 1}};
  PreparedProgram program = Executor().Prepare(g.program, {"x"}, {"z"});
  for (int run = 0; run < 2; ++run) {
    ExpectRow(program.Run(scope, {x})[0], kSum);
    ExpectRow(scope.Get("y"), kTanh);
    EXPECT_EQ(scope.Get("y").lod(), x.lod());
    scope.GetMutable("y").data<float>()[0] = 7;
  }
}
}  // namespace coracle::block_ops_test
