// Frozen parameters: constants of a prepared program, kept once, and watched.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

namespace coracle::frozen_test {

Tensor Row(const std::vector<float>& values) {
  return Tensor::Of<float>({1, static_cast<int64_t>(values.size())}, values);
}

std::vector<float> ValuesOf(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

// y = x * w, element by element, and s, which counts runs.
class Frozen : public testing::Test {
 protected:
  Frozen() {
    Declare("x", {-1, 2});
    Declare("w", {1, 2}).SetPersistable(true);
    Declare("s", {1, 1}).SetPersistable(true);
    Append("elementwise_mul", {{"X", {"x"}}, {"Y", {"w"}}}, "y");
    Append("increment", {{"X", {"s"}}}, "s");
    scope_.Set("w", Row({2, 3}));
    scope_.Set("s", Row({0}));
  }
  VarDesc& Declare(const std::string& name, const Shape& shape) {
    VarDesc& var = program_.Root().Var(name);
    var.SetShape(shape);
    var.SetDType(DType::kFloat32);
    return var;
  }
  void Append(const std::string& type, SlotList in, const std::string& out) {
    OpDesc& op = program_.Root().AppendOp(type, std::move(in), {{"Out", {out}}});
    InferOp(program_.Root(), op, DefaultOps());
  }
  PreparedProgram Prepare() const {
    return Executor().PrepareFrozen(program_, scope_, {"x"}, {"y"});
  }
  std::vector<float> Run(PreparedProgram& prepared, Scope& scope) {
    return ValuesOf(prepared.Run(scope, {Row({10, 100})})[0]);
  }
  void ExpectRefused(const std::function<void()>& change) {
    PreparedProgram prepared = Prepare();
    EXPECT_EQ(Run(prepared, scope_), kResult);
    change();
    const float count = scope_.Get("s").Item<float>();
    for (int i = 0; i < 2; ++i) {
      try {
        Run(prepared, scope_);
        ADD_FAILURE() << "the change was not noticed";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
        EXPECT_NE(e.message().find("'w'"), std::string::npos) << e.message();
      }
    }
    EXPECT_EQ(scope_.Get("s").Item<float>(), count) << "nothing was run";
  }

  const std::vector<float> kResult = {20, 300};
  ProgramDesc program_;
  Scope scope_;
};

TEST_F(Frozen, OnlyWhatTheProgramDoesNotWrite) {
  PreparedProgram prepared = Prepare();
  EXPECT_EQ(prepared.frozen_names(), std::vector<std::string>{"w"});
  for (float run : {1.0f, 2.0f}) {
    EXPECT_EQ(Run(prepared, scope_), kResult);
    EXPECT_EQ(scope_.Get("s").Item<float>(), run);
  }
  EXPECT_TRUE(Executor().Prepare(program_, {"x"}, {"y"}).frozen_names().empty());
}

TEST_F(Frozen, NeitherFedNorSparseNorAbsentNorOfOthersMemory) {
  EXPECT_TRUE(Executor().PrepareFrozen(program_, scope_, {"x", "w"}).frozen_names().empty());
  float memory[2] = {2, 3};
  scope_.Set("w", Tensor::View(DType::kFloat32, {1, 2}, memory));
  EXPECT_TRUE(Prepare().frozen_names().empty()) << "whoever writes the memory cannot be noticed";
  scope_.Var("w") = SelectedRows();
  EXPECT_TRUE(Prepare().frozen_names().empty());
  scope_.Erase("w");
  PreparedProgram prepared = Prepare();
  EXPECT_TRUE(prepared.frozen_names().empty());
  EXPECT_THROW(Run(prepared, scope_), Error) << "is looked for in the scope, as ever";
}

TEST_F(Frozen, WrittenByTheUser) {
  ExpectRefused([&] { scope_.GetMutable("w").data<float>()[1] = 4; });
}
TEST_F(Frozen, WrittenThroughAnotherHandle) {
  Tensor handle = scope_.Get("w").Reshaped({2});
  ExpectRefused([&] { handle.data<float>()[0] = -2; });
}
TEST_F(Frozen, Replaced) {
  ExpectRefused([&] { scope_.Set("w", Row({2, 4})); });
}
TEST_F(Frozen, OfAnotherShapeOrDType) {
  ExpectRefused([&] { scope_.Set("w", scope_.Get("w").Reshaped({2, 1})); });
  scope_.Set("w", Row({2, 3}));
  ExpectRefused([&] { scope_.Set("w", Row({2, 3}).Cast(DType::kFloat64)); });
}
TEST_F(Frozen, OfAnotherKind) {
  ExpectRefused([&] { scope_.Var("w") = SelectedRows(); });
}
TEST_F(Frozen, WrittenByAnotherProgram) {
  ProgramDesc other = program_;
  OpDesc& op = other.Root().AppendOp("scale", {{"X", {"w"}}}, {{"Out", {"w"}}}, {{"scale", 2.0f}});
  InferOp(other.Root(), op, DefaultOps());
  PreparedProgram writes = Executor().Prepare(other, {"x"}, {"y"});
  scope_.Set("w", Row({1, 1.5f}));
  Run(writes, scope_);
  ExpectRefused([&] { Run(writes, scope_); });
}
TEST_F(Frozen, WrittenAgainAfterMarking) {
  float* kept = scope_.GetMutable("w").data<float>();
  ExpectRefused([&] {
    kept[0] = 5;
    scope_.GetMutable("w").MarkWritten();
  });
}

TEST_F(Frozen, WithALod) {
  ExpectRefused([&] { scope_.GetMutable("w").lod() = {{0, 1}}; });
}

TEST_F(Frozen, AnotherScopeWithOtherValues) {
  PreparedProgram prepared = Prepare();
  Scope other = scope_.Clone();
  EXPECT_EQ(Run(prepared, other), kResult) << "the same values";
  other.GetMutable("w").data<float>()[0] = 0;
  EXPECT_THROW(Run(prepared, other), Error);
  EXPECT_EQ(Run(prepared, scope_), kResult);
}

// Who asks for write access and does not write costs a comparison, no more.
TEST_F(Frozen, WriteAccessAloneChangesNothing) {
  PreparedProgram prepared = Prepare();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(scope_.GetMutable("w").data<float>()[0], 2);
    EXPECT_EQ(Run(prepared, scope_), kResult);
  }
  scope_.Set("w", Row({2, 3}));
  EXPECT_EQ(Run(prepared, scope_), kResult) << "equal values in another tensor";
}

// The program and `handle` share memory that the scope which it runs with does not hold.
TEST_F(Frozen, WrittenInMemoryOfAnotherScope) {
  PreparedProgram prepared = Prepare(), copy = prepared;
  Scope other;
  other.Set("s", Row({0}));
  EXPECT_EQ(Run(prepared, other), kResult);
  scope_.GetMutable("w").data<float>()[0] = 7;
  EXPECT_THROW(Run(prepared, other), Error);
  EXPECT_THROW(Run(copy, other), Error) << "it never ran before";
  other.Set("w", Row({2, 3}));
  EXPECT_THROW(Run(prepared, other), Error) << "the right elements here do not mend those there";
  scope_.GetMutable("w").data<float>()[0] = 2;
  EXPECT_EQ(Run(prepared, other), kResult);
}
TEST_F(Frozen, WrittenThroughAHandleOfWhatTheProgramOwns) {
  Tensor handle = scope_.Get("w");
  PreparedProgram prepared = Executor().PrepareOwning(program_, scope_, {"x"}, {"y"});
  EXPECT_EQ(Run(prepared, scope_), kResult);
  handle.data<float>()[1] = 0;
  EXPECT_THROW(Run(prepared, scope_), Error);
}
// Two parts of one memory have one version.
TEST_F(Frozen, AnotherPartOfTheMemory) {
  const auto memory = std::shared_ptr<void>(AllocateBytes(4 * sizeof(float), "w"));
  auto* values = static_cast<float*>(memory.get());
  for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(2 + i);
  scope_.Set("w", Tensor::View(DType::kFloat32, {1, 2}, values, memory));
  PreparedProgram prepared = Prepare();
  EXPECT_EQ(Run(prepared, scope_), kResult);
  scope_.Set("w", Tensor::View(DType::kFloat32, {1, 2}, values + 2, memory));
  EXPECT_THROW(Run(prepared, scope_), Error);
}

// The same in the memory of equal elements that took the place of the frozen ones.
TEST_F(Frozen, AnotherPartOfEqualElements) {
  PreparedProgram prepared = Prepare();
  const auto memory = std::shared_ptr<void>(AllocateBytes(4 * sizeof(float), "w"));
  auto* values = static_cast<float*>(memory.get());
  for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(2 + i);
  scope_.Set("w", Tensor::View(DType::kFloat32, {1, 2}, values, memory));
  EXPECT_EQ(Run(prepared, scope_), kResult);
  scope_.Set("w", Tensor::View(DType::kFloat32, {1, 2}, values + 2, memory));
  EXPECT_THROW(Run(prepared, scope_), Error);
}

TEST_F(Frozen, OwnedParametersAreNotMissed) {
  PreparedProgram prepared = Executor().PrepareOwning(program_, scope_, {"x"}, {"y"});
  EXPECT_FALSE(scope_.Has("w"));
  EXPECT_TRUE(scope_.Has("s"));
  EXPECT_EQ(Run(prepared, scope_), kResult);
  PreparedProgram copy = prepared;
  EXPECT_EQ(Run(copy, scope_), kResult);
  scope_.Set("w", Row({0, 0}));
  EXPECT_THROW(Run(prepared, scope_), Error) << "it has come back, with other values";
  EXPECT_THROW(Run(copy, scope_), Error);
  scope_.Set("w", Row({2, 3}));
  EXPECT_EQ(Run(prepared, scope_), kResult);
}

TEST_F(Frozen, MayBeFetched) {
  PreparedProgram prepared = Executor().PrepareOwning(program_, scope_, {"x"}, {"w"});
  EXPECT_EQ(Run(prepared, scope_), (std::vector<float>{2, 3}));
}

TEST_F(Frozen, OpsOfFrozenParametersAloneAreComputedAhead) {
  Append("sqrt", {{"X", {"w"}}}, "root");
  Append("elementwise_mul", {{"X", {"y"}}, {"Y", {"root"}}}, "z");
  PreparedProgram prepared =
      Executor({.profile = true}).PrepareFrozen(program_, scope_, {"x"}, {"z"});
  PreparedProgram plain = Executor().Prepare(program_, {"x"}, {"z"});
  EXPECT_EQ(Run(prepared, scope_), Run(plain, scope_));
  for (const OpTime& op : prepared.Profile()) EXPECT_NE(op.op_type, "sqrt");
}

// A sub-block finds them too.
TEST_F(Frozen, InASubBlock) {
  BlockDesc& block = program_.AppendBlock(0);
  block.Var("product").SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 2}, 0});
  block.AppendOp("elementwise_mul", {{"X", {"y"}}, {"Y", {"w"}}}, {{"Out", {"product"}}});
  block.AppendOp("assign", {{"X", {"product"}}}, {{"Out", {"y"}}});
  Declare("yes", {1}).SetDType(DType::kBool);
  program_.Root().Var("scopes").SetType(VarType::kStepScopes);
  program_.Root().AppendOp("fill_constant", {}, {{"Out", {"yes"}}},
                           {{"shape", std::vector<int64_t>{1}},
                            {"dtype", static_cast<int32_t>(DType::kBool)},
                            {"value", 1.0f}});
  program_.Root().AppendOp("conditional_block", {{"Cond", {"yes"}}, {"Input", {"y", "w"}}},
                           {{"Out", {"y"}}, {"Scope", {"scopes"}}},
                           {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}});
  PreparedProgram prepared = Executor().PrepareOwning(program_, scope_, {"x"}, {"y"});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(prepared, scope_), (std::vector<float>{40, 900}));
}

// --- layouts of kernels ---

// An op whose kernel reads its parameter backwards; counts how often it is turned around.
struct Turned {
  int packed = 0, unpacked = 0;
  std::weak_ptr<const Tensor> last;

  Tensor Turn(const Tensor& t) {
    Tensor turned = t.Clone();
    std::reverse(turned.span<float>().begin(), turned.span<float>().end());
    return turned;
  }
  OpRegistry Ops(bool with_unpack) {
    OpRegistry ops;
    for (const char* type : {"increment", "elementwise_mul"}) ops.Add(DefaultOps().Get(type));
    ops.Add(
        OpDef("turned_mul")
            .Doc("test")
            .Input("X", "row")
            .Input("Y", "row")
            .Output("Out", "row")
            .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
            .Reference<float>([this, with_unpack]<class T>(const PrepareContext& ctx) -> Kernel {
              const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
              PackedLayout layout{"turned", [this](const Tensor& t) {
                                    ++packed;
                                    return Turn(t);
                                  }};
              if (with_unpack) {
                layout.unpack = [this](const Tensor& t) {
                  ++unpacked;
                  return Turn(t);
                };
              }
              const auto turned = ctx.Packed("Y", layout);
              last = turned;
              return [=](Workspace& ws) {
                const int64_t n = y.numel;
                for (int64_t i = 0; i < x.numel; ++i) {
                  const float w = turned ? turned->data<float>()[n - 1 - i % n]
                                         : ws.Data<const float>(y)[i % n];
                  ws.Data<float>(out)[i] = ws.Data<const float>(x)[i] * w;
                }
              };
            })
            .NoGradient("a test"));
    return ops;
  }
};

TEST_F(Frozen, OneLayoutForAllPlansAndCopies) {
  Turned turned;
  const OpRegistry ops = turned.Ops(true);
  program_.Root().op(0).SetType("turned_mul");
  PreparedProgram prepared = Executor({}, ops).PrepareFrozen(program_, scope_, {"x"}, {"y"});
  std::weak_ptr<const Tensor> first;
  for (int64_t rows : {1, 3, 1, 2}) {
    PreparedProgram copy = prepared;
    for (PreparedProgram* program : {&prepared, &copy}) {
      const Tensor out = program->Run(scope_, {Tensor::Full<float>({rows, 2}, 10)})[0];
      for (int64_t i = 0; i < out.numel(); ++i)
        EXPECT_EQ(std::as_const(out).data<float>()[i], i % 2 ? 30 : 20);
    }
  }
  EXPECT_EQ(turned.packed, 1);
  EXPECT_EQ(turned.unpacked, 0);
  turned.packed = 0;
  PreparedProgram plain = Executor({}, ops).Prepare(program_, {"x"}, {"y"});
  EXPECT_EQ(Run(plain, scope_), kResult);
  EXPECT_EQ(turned.packed, 0);
}

// A constant that is kept only in a kernel's layout can still be fetched.
TEST_F(Frozen, PlainElementsComeBack) {
  for (bool with_unpack : {false, true}) {
    Turned turned;
    const OpRegistry ops = turned.Ops(with_unpack);
    ProgramDesc program = program_;
    program.Root().op(0).SetType("turned_mul");
    OpDesc& op =
        program.Root().AppendOp("elementwise_mul", {{"X", {"y"}}, {"Y", {"w"}}}, {{"Out", {"z"}}});
    InferOp(program.Root(), op, ops);
    Scope scope = scope_.Clone();
    PreparedProgram prepared = Executor({}, ops).PrepareOwning(program, scope, {"x"}, {"z"});
    EXPECT_EQ(Run(prepared, scope), (std::vector<float>{40, 900}));
    EXPECT_EQ(turned.unpacked, with_unpack ? 1 : 0);
  }
}

// Packed for the kernel, and back for who fetches it, with the bits of both.
TEST(FrozenFilter, OfConvolutions) {
  struct Case {
    int64_t channels, filters, kernel;
    int groups;
  };
  for (const Case& c : {Case{16, 32, 3, 1},
                        {3, 20, 5, 1},
                        {20, 50, 5, 1},
                        {5, 1, 3, 1},
                        {32, 32, 3, 32},
                        {12, 24, 1, 2},
                        {40, 7, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", c.channels, c.filters, c.kernel, c.groups));
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Conv2d(net.Data("x", {-1, c.channels, 9, 8}), {.num_filters = static_cast<int>(c.filters),
                                                       .filter_size = static_cast<int>(c.kernel),
                                                       .groups = c.groups,
                                                       .param_attr = {.name = "w"},
                                                       .output = "y"});
    Scope scope;
    Executor().Run(startup, scope);
    const Tensor w = scope.Get("w").Clone();
    PreparedProgram plain = Executor().Prepare(main, {"x"}, {"y", "w"});
    Scope same = scope.Clone();
    PreparedProgram frozen = Executor().PrepareOwning(main, scope, {"x"}, {"y", "w"});
    for (int64_t rows : {2, 1}) {
      Tensor x(DType::kFloat32, {rows, c.channels, 9, 8});
      for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
      const std::vector<Tensor>& got = frozen.Run(scope, {x});
      EXPECT_TRUE(BitEqual(got[0], plain.Run(same, {x})[0]));
      EXPECT_TRUE(BitEqual(got[1], w));
    }
  }
}

// Winograd's kernel gives the memory of the plain elements back; they are restored from what it
// reads, also for who fetches them only later.
TEST(FrozenFilter, OfWinograd) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Conv2d(net.Data("x", {-1, 64, 28, 28}), {.num_filters = 80,
                                               .filter_size = 3,
                                               .padding = 1,
                                               .param_attr = {.name = "w"},
                                               .output = "y"});
  for (const bool fetched : {false, true}) {
    Scope scope;
    Executor().Run(startup, scope);
    const Tensor w = scope.Get("w").Clone();
    const std::weak_ptr<void> memory = scope.Get("w").memory();
    std::vector<std::string> fetches = {"y"};
    if (fetched) fetches.emplace_back("w");
    Scope same = scope.Clone();
    PreparedProgram plain = Executor().Prepare(main, {"x"}, {"y"});
    PreparedProgram frozen = Executor({.profile = true}).PrepareOwning(main, scope, {"x"}, fetches);
    for (int64_t images : {2, 1, 8}) {
      Tensor x(DType::kFloat32, {images, 64, 28, 28});
      for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
      const std::vector<Tensor>& got = frozen.Run(scope, {x});
      const Tensor expected = plain.Run(same, {x})[0];
      for (int64_t i = 0; i < expected.numel(); ++i)
        ASSERT_NEAR(got[0].data<float>()[i], expected.data<float>()[i], 1e-3);
      if (fetched) {
        EXPECT_TRUE(BitEqual(got[1], w));
      }
    }
    EXPECT_TRUE(memory.expired());
    std::string kernel;
    for (const OpTime& op : frozen.Profile()) kernel += op.kernel + " ";
    EXPECT_NE(kernel.find("winograd"), std::string::npos) << kernel;
  }
}

// The kernel of float32 packs what it gets for a filter of 16-bit floats; all plans share that.
TEST(FrozenFilter, Of16BitFloats) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Conv2d(net.Data("x", {-1, 3, 9, 8}),
               {.num_filters = 20, .filter_size = 5, .param_attr = {.name = "w"}, .output = "y"});
    Scope scope;
    Executor().Run(startup, scope);
    for (const char* name : {"x", "w", "y"}) main.Root().FindVar(name)->SetDType(dtype);
    main.Root().FindVar(main.Root().op(0).Output("Output")[0])->SetDType(dtype);
    for (size_t i = 0; i < main.Root().NumVars(); ++i) {
      VarDesc& var = main.Root().var(i);
      var.SetDType(dtype);
      if (var.persistable()) scope.Set(var.name(), scope.Get(var.name()).Cast(dtype));
    }
    const Tensor w = scope.Get("w").Clone();
    PreparedProgram plain = Executor().Prepare(main, {"x"}, {"y", "w"});
    Scope same = scope.Clone();
    PreparedProgram frozen = Executor().PrepareOwning(main, scope, {"x"}, {"y", "w"});
    for (int64_t rows : {2, 1}) {
      Tensor x(DType::kFloat32, {rows, 3, 9, 8});
      for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
      const std::vector<Tensor>& got = frozen.Run(scope, {x.Cast(dtype)});
      EXPECT_TRUE(BitEqual(got[0], plain.Run(same, {x.Cast(dtype)})[0]));
      EXPECT_TRUE(BitEqual(got[1], w));
    }
  }
}

// One constant in two slots of one op: packed for one, plain for the other.
TEST_F(Frozen, TwoSlotsOfOneOp) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    Turned turned;
    const OpRegistry ops = turned.Ops(true);
    OpDesc& op = program_.Root().op(0);
    op.SetType("turned_mul");
    op.SetInput("X", {"w"});
    for (const char* name : {"w", "x", "y"}) program_.Root().Var(name).SetDType(dtype);
    scope_.Set("w", Row({2, 3}).Cast(dtype));
    PreparedProgram prepared = Executor({}, ops).PrepareOwning(program_, scope_, {}, {"y", "w"});
    for (int i = 0; i < 2; ++i) {
      const std::vector<Tensor>& got = prepared.Run(scope_);
      EXPECT_EQ(ValuesOf(got[0].Cast(DType::kFloat32)), (std::vector<float>{4, 9}));
      EXPECT_EQ(ValuesOf(got[1].Cast(DType::kFloat32)), (std::vector<float>{2, 3}));
    }
  }
}

// As it is for float32, packed once for all plans and copies.
TEST_F(Frozen, OneLayoutOf16BitFloats) {
  Turned turned;
  const OpRegistry ops = turned.Ops(true);
  program_.Root().op(0).SetType("turned_mul");
  for (const char* name : {"w", "x", "y"}) program_.Root().Var(name).SetDType(DType::kFloat16);
  scope_.Set("w", Row({2, 3}).Cast(DType::kFloat16));
  PreparedProgram prepared = Executor({}, ops).PrepareOwning(program_, scope_, {"x"}, {"y", "w"});
  for (int64_t rows : {1, 3}) {
    const Tensor x = Tensor::Full<float>({rows, 2}, 10).Cast(DType::kFloat16);
    const std::vector<Tensor>& got = prepared.Run(scope_, {x});
    EXPECT_EQ(ValuesOf(got[0].Cast(DType::kFloat32)).back(), 30);
    EXPECT_EQ(ValuesOf(got[1].Cast(DType::kFloat32)), (std::vector<float>{2, 3}));
  }
  EXPECT_EQ(turned.packed, 1);
}

TEST_F(Frozen, ALayoutThatCanBeUndoneTakesTheElementsPlace) {
  constexpr int64_t kColumns = 1'000'000;
  constexpr uint64_t kBytes = kColumns * sizeof(float);
  Turned turned;
  const OpRegistry ops = turned.Ops(true);
  program_.Root().op(0).SetType("turned_mul");
  for (const char* name : {"w", "x", "y"}) program_.Root().Var(name).SetShape({1, kColumns});
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{});
  const ScopedLimits scoped(limits);
  const Tensor x = Tensor::Full<float>({1, kColumns}, 3);
  scope_.Set("w", Tensor::Full<float>({1, kColumns}, 2));
  const uint64_t before = limits->bytes_in_use();
  PreparedProgram prepared = Executor({}, ops).PrepareOwning(program_, scope_, {"x"}, {"y"});
  EXPECT_EQ(prepared.Run(scope_, {x})[0].data<float>()[kColumns - 1], 6);
  EXPECT_LT(limits->bytes_in_use(), before + kBytes + kBytes / 2) << "more than w and the result";
}

// A layout replaces elements only in memory that has no other owner.
TEST_F(Frozen, ALayoutLeavesAlonePlainElementsThatOthersHold) {
  Turned turned;
  const OpRegistry ops = turned.Ops(true);
  program_.Root().op(0).SetType("turned_mul");
  const Tensor handle = scope_.Get("w");
  const uint64_t version = handle.version();
  PreparedProgram prepared = Executor({}, ops).PrepareOwning(program_, scope_, {"x"}, {"y", "w"});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run(prepared, scope_), kResult);
    EXPECT_EQ(ValuesOf(handle), (std::vector<float>{2, 3}));
  }
  EXPECT_EQ(handle.version(), version);
}

// Frozen parameters are recognised by their values, even if their memory has new elements.
TEST_F(Frozen, ComesBackAfterItsMemoryWasUsedForALayout) {
  Turned turned;
  const OpRegistry ops = turned.Ops(true);
  program_.Root().op(0).SetType("turned_mul");
  PreparedProgram prepared = Executor({}, ops).PrepareOwning(program_, scope_, {"x"}, {"y", "w"});
  EXPECT_EQ(Run(prepared, scope_), kResult);
  const Tensor fetched = prepared.Run(scope_, {Row({10, 100})})[1];
  EXPECT_EQ(ValuesOf(fetched), (std::vector<float>{2, 3}));
  scope_.Set("w", Row({2, 3}));
  EXPECT_EQ(Run(prepared, scope_), kResult);
  scope_.Set("w", Row({3, 2}));
  EXPECT_THROW(Run(prepared, scope_), Error) << "these are the elements as the layout has them";
}
}  // namespace coracle::frozen_test
