// Row traits, and the inserter of ops.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_inserter.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

namespace coracle::rows_test {

using Names = std::vector<std::string>;

OpDef Declared(const std::string& type) {
  return OpDef(type)
      .Doc("A sample.")
      .Input("X", "tensor")
      .Input("W", "tensor")
      .Output("Out", "tensor")
      .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
      .NoGradient("a sample")
      .Reference([](const PrepareContext&) { return Kernel([](Workspace&) {}); });
}

RowRule RuleOf(const OpSpec& spec, const OpDesc& op) { return RowEffectOf({op, spec, "Out"}).rule; }

TEST(Rows, DefaultsFollowFromTheKindOfTheOp) {
  OpRegistry ops;
  ops.Add(Declared("plain"));
  ops.Add(Declared("element").Elementwise());
  ops.Add(Declared("mixer").Rows(RowRule::kMixes).Tables({"W"}));
  ops.Add(Declared("mixer_grad"));
  ops.Add(Declared("plain_grad"));
  const OpDesc op("any", {}, {}, {});
  EXPECT_EQ(RuleOf(ops.Get("plain"), op), RowRule::kUndeclared);
  EXPECT_EQ(RuleOf(ops.Get("element"), op), RowRule::kEach);
  EXPECT_EQ(RuleOf(ops.Get("plain_grad"), op), RowRule::kEach);
  // A gradient op mixes rows as its forward op does, and has the same tables.
  EXPECT_EQ(RuleOf(ops.Get("mixer_grad"), op), RowRule::kMixes);
  EXPECT_EQ(ops.Get("mixer_grad").rows.tables, Names{"W"});
}

TEST(Rows, AFunctionDecidesByAttrs) {
  OpRegistry ops;
  const auto rule = [](const RowQuery& query) -> RowEffect {
    return query.spec.AttrOf<bool>(query.op, "joins") ? RowRule::kMixes : RowRule::kEach;
  };
  ops.Add(Declared("sometimes").Attr<bool>("joins", false, "a switch").Rows(rule, "by joins"));
  EXPECT_EQ(RuleOf(ops.Get("sometimes"), OpDesc("sometimes", {}, {}, {})), RowRule::kEach);
  EXPECT_EQ(RuleOf(ops.Get("sometimes"), OpDesc("sometimes", {}, {}, {{"joins", true}})),
            RowRule::kMixes);
}

TEST(Rows, LinearInputs) {
  OpRegistry ops;
  ops.Add(Declared("adds").Linear({"X", "W"}));
  ops.Add(Declared("multiplies").Linear({"X"}).Linear({"W"}));
  ops.Add(Declared("moves").Rows(RowRule::kMoves));
  EXPECT_EQ(LinearWith(ops.Get("adds"), "W"), (Names{"X", "W"}));
  EXPECT_EQ(LinearWith(ops.Get("multiplies"), "W"), Names{"W"});
  EXPECT_EQ(LinearWith(ops.Get("moves"), "X"), Names{"X"});
  EXPECT_EQ(LinearWith(ops.Get("moves"), "W"), Names{});
}

TEST(Rows, AxesThatAnOpWorksAlong) {
  OpRegistry ops;
  using Longs = std::vector<int64_t>;
  ops.Add(Declared("one").Attr<int32_t>("axis", -1, "an axis").WorksAlong("axis"));
  ops.Add(Declared("some").Attr<Longs>("dims", "axes").WorksAlong("dims"));
  ops.Add(
      Declared("rest").Attr<int64_t>("first", 1, "an axis").WorksAlong("first", AxesAttr::kFrom));
  ops.Add(Declared("one_grad").AttrsOf("one"));
  ops.Add(Declared("some_grad"));
  const auto axes = [&](const char* type, AttrList attrs = {}) {
    return ops.Get(type).AxesOf(OpDesc(type, {}, {}, std::move(attrs)), 3);
  };
  using Axes = std::vector<int>;
  EXPECT_EQ(axes("one"), Axes{2});
  EXPECT_EQ(axes("one", {{"axis", int32_t{0}}}), Axes{0});
  EXPECT_EQ(axes("one", {{"axis", int32_t{3}}}), Axes{});
  EXPECT_EQ(axes("one", {{"axis", int32_t{-4}}}), Axes{});
  EXPECT_EQ(axes("some", {{"dims", Longs{-1, 1}}}), (Axes{2, 1}));
  EXPECT_EQ(axes("rest"), (Axes{1, 2}));
  EXPECT_EQ(axes("rest", {{"first", int64_t{-1}}}), Axes{2});
  // A gradient op with the attr works along the same axes.
  EXPECT_EQ(axes("one_grad", {{"axis", int32_t{1}}}), Axes{1});
  EXPECT_EQ(axes("some_grad"), Axes{});
}

TEST(Rows, SoftLabels) {
  OpRegistry ops;
  ops.Add(Declared("always").SoftLabels({"W"}));
  ops.Add(Declared("asked").Attr<bool>("soft", false, "a switch").SoftLabels({"W"}, "soft"));
  const auto takes = [&](const char* type, const char* slot, AttrList attrs = {}) {
    return ops.Get(type).TakesSoftLabels(OpDesc(type, {}, {}, std::move(attrs)), slot);
  };
  EXPECT_TRUE(takes("always", "W"));
  EXPECT_FALSE(takes("always", "X"));
  EXPECT_FALSE(takes("asked", "W"));
  EXPECT_TRUE(takes("asked", "W", {{"soft", true}}));
}

Names TypesOf(const BlockDesc& block) {
  Names types;
  block.ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  return types;
}

TEST(OpInserter, PlacesOpsInTheOrderOfTheCalls) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const Writer w(root, DefaultOps());
  const Variable x = FillConstant(w, DType::kFloat32, 2);
  Square(x);
  OpInserter inserter(program, DefaultOps());
  const OpDesc& square = root.op(1);
  const std::string made = inserter.Before(
      square, kBackward, [&](const Writer& at) { return Exp(at.Var(x.name())).name(); });
  inserter.Before(square, kForward, [&](const Writer& at) { Sqrt(at.Var(made)); });
  inserter.After(square, kForward, [&](const Writer& at) { Abs(at.Var(made)); });
  inserter.AtEnd(root, kForward, [&](const Writer& at) { Floor(at.Var(made)); });
  EXPECT_EQ(TypesOf(root), (Names{"fill_constant", "square"})) << "before Apply";
  inserter.Apply();
  EXPECT_EQ(TypesOf(root), (Names{"fill_constant", "exp", "sqrt", "square", "abs", "floor"}));
  EXPECT_EQ(root.op(1).GetAttr<int32_t>(kOpRoleAttr, 0), kBackward);
  EXPECT_TRUE(root.FindVar(made)->stop_gradient());
  EXPECT_EQ(root.FindVar(made)->shape(), Shape{1});
}

}  // namespace coracle::rows_test
