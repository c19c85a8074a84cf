// A group of ops against the same ops one by one: the same bits, whatever the pieces.
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/elementwise/fused_group.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>
#include <limits>

namespace coracle::fused_elementwise_test {

using Names = std::vector<std::string>;

// With one nan for all: which operand's sign and payload a nan keeps is the compiler's choice.
Tensor WithOneNan(const Tensor& tensor) {
  Tensor value = tensor.Clone();
  if (value.dtype() == DType::kFloat32) {
    for (float& v : value.span<float>()) v = std::isnan(v) ? NAN : v;
  } else if (value.dtype() == DType::kFloat64) {
    for (double& v : value.span<double>()) v = std::isnan(v) ? NAN : v;
  }
  return value;
}

// Ops on inputs; which of their outputs are wanted.
class Ops {
 public:
  Ops& In(const std::string& name, Tensor value) {
    inputs_.emplace_back(name, std::move(value));
    return *this;
  }
  Ops& In(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    std::mt19937 random(static_cast<uint32_t>(++seed_));
    std::uniform_real_distribution<double> uniform(-2, 2);
    Tensor value(DType::kFloat64, shape);
    for (double& v : value.span<double>()) v = uniform(random);
    return In(name, value.Cast(dtype));
  }
  Ops& Do(const std::string& out, const std::string& type, const Names& in, AttrList attrs = {}) {
    static const char* const kSlots[] = {"X", "Y"};
    SlotList inputs;
    for (size_t i = 0; i < in.size(); ++i) inputs.push_back({kSlots[i], {in[i]}});
    return Append(OpDesc(type, inputs, {{"Out", {out}}}, std::move(attrs)));
  }
  Ops& Append(const OpDesc& op) {
    ops_.push_back(std::make_unique<OpDesc>(op));
    return *this;
  }

  std::vector<Tensor> Plain(const Names& wanted, KernelMode mode) const {
    ProgramDesc program;
    VarValues env;
    for (const auto& [name, value] : inputs_) {
      Declare(program.Root(), name, value);
      env[name] = value.Clone();
    }
    for (const auto& op : ops_) InferOp(program.Root(), program.Root().AppendOp(*op), DefaultOps());
    return Run(program, std::move(env), wanted, mode);
  }
  std::vector<Tensor> Fused(const Names& wanted, KernelMode mode) const {
    ProgramDesc program;
    VarValues env;
    BlockDesc& block = program.AppendBlock(0);
    Names x, arguments, out;
    for (const auto& [name, value] : inputs_) {
      Declare(block, name, value);
      x.push_back("outer." + name);
      arguments.push_back(name);
      Declare(program.Root(), x.back(), value);
      env[x.back()] = value.Clone();
    }
    for (const auto& op : ops_) InferOp(block, block.AppendOp(*op), DefaultOps());
    for (const std::string& name : wanted) out.push_back("outer." + name);
    const OpDesc& op = program.Root().AppendOp(
        "fused_elementwise", {{"X", x}}, {{"Out", out}},
        {{"sub_block", BlockRef{1}}, {"arguments", arguments}, {"results", wanted}});
    InferOp(program.Root(), op, DefaultOps());
    return Run(program, std::move(env), out, mode);
  }

  void Check(const Names& wanted) const {
    for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const std::vector<Tensor> plain = Plain(wanted, mode);
      for (int threads : {1, 2, 5}) {
        const Threads scope(threads);
        const std::vector<Tensor> fused = Fused(wanted, mode);
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(plain[i].shape(), fused[i].shape()) << wanted[i];
          EXPECT_TRUE(BitEqual(WithOneNan(plain[i]), WithOneNan(fused[i])))
              << wanted[i] << " " << plain[i].shape().ToString() << " with " << threads
              << " threads, fast: " << (mode == KernelMode::kAuto);
        }
      }
    }
  }

 private:
  static void Declare(BlockDesc& block, const std::string& name, const Tensor& value) {
    block.Var(name).SetMeta({VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  }
  static std::vector<Tensor> Run(const ProgramDesc& program, VarValues env, const Names& wanted,
                                 KernelMode mode) {
    InterpretOptions options;
    options.kernels = mode;
    Interpret(program.Root(), DefaultOps(), env, options);
    std::vector<Tensor> values;
    for (const std::string& name : wanted) values.push_back(std::get<Tensor>(env.at(name)));
    return values;
  }

  std::vector<std::pair<std::string, Tensor>> inputs_;
  std::vector<std::unique_ptr<OpDesc>> ops_;
  int seed_ = 0;
};

AttrList Axis(int32_t axis) { return {{"axis", axis}}; }

TEST(FusedElementwise, Values) {
  Ops ops;
  ops.In("x", Tensor::Of<float>({2, 2}, {-1, 2, 3, -4}))
      .In("y", Tensor::Of<float>({2}, {10, 20}))
      .Do("r", "relu", {"x"})
      .Do("s", "elementwise_add", {"r", "y"})
      .Do("t", "scale", {"s"}, {{"scale", 2.0f}});
  for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const std::vector<Tensor> values = ops.Fused({"r", "t"}, mode);
    EXPECT_TRUE(BitEqual(values[0], Tensor::Of<float>({2, 2}, {0, 2, 3, 0})));
    EXPECT_TRUE(BitEqual(values[1], Tensor::Of<float>({2, 2}, {20, 44, 26, 40})));
  }
}

// sigmoid((relu(1.1 x + y) - z) x), with results on the way.
Ops Chain(const Shape& shape, DType dtype = DType::kFloat32) {
  Ops ops;
  ops.In("x", shape, dtype).In("y", shape, dtype).In("z", shape, dtype);
  ops.Do("a", "scale", {"x"}, {{"scale", 1.1f}})
      .Do("b", "elementwise_add", {"a", "y"})
      .Do("c", "relu", {"b"})
      .Do("d", "elementwise_sub", {"c", "z"})
      .Do("e", "elementwise_mul", {"d", "x"})
      .Do("f", "sigmoid", {"e"});
  return ops;
}

TEST(FusedElementwise, SizesAroundThePieces) {
  for (int64_t n : {0, 1, 63, 4095, 4096, 4097, 8192, 20000, 100003}) Chain({n}).Check({"c", "f"});
  Chain({}).Check({"f"});
  Chain({3, 0, 2}).Check({"b", "f"});
  Chain({7, 11, 13, 17}).Check({"a", "b", "c", "d", "e", "f"});
}

// Larger than the caches: results are written past them.
TEST(FusedElementwise, Large) {
  Chain({2200001}).Check({"c", "f"});
  Ops rows;  // of which some do not begin with a cache line
  rows.In("x", {2201, 1001}).In("y", {1001}).In("z", {2201, 1});
  rows.Do("a", "elementwise_mul", {"x", "y"}).Do("b", "elementwise_sub", {"a", "z"});
  rows.Do("c", "relu", {"b"}).Check({"a", "c"});
}

// --- formulas that run on registers ---

// Numbers of all magnitudes, and those that are special.
Tensor Special(int64_t n, uint32_t seed) {
  static constexpr float kInf = std::numeric_limits<float>::infinity();
  static constexpr float kSpecial[] = {0.0f, -0.0f, kInf, -kInf, NAN, 1e-40f, 3e38f, -3e38f, 1.0f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  Tensor value(DType::kFloat32, {n});
  for (float& v : value.span<float>())
    v = random() % 7 == 0 ? kSpecial[random() % 9] : normal(random);
  return value;
}

// Each op of one tensor that has float32, and its gradient, in the middle of a group.
TEST(FusedElementwise, OpsOfOneTensor) {
  int ops_of_one = 0;
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec* spec = DefaultOps().Find(type);
    const OpSpec* grad = DefaultOps().Find(type + "_grad");
    if (!spec->elementwise || !spec->fast || !grad || !grad->fast || spec->inputs.empty() ||
        spec->inputs[0].name != "X" || spec->FindInput("Y") || spec->inputs[0].variadic ||
        !grad->FindOutput("X@GRAD"))
      continue;
    SCOPED_TRACE(type);
    ++ops_of_one;
    Ops ops;
    ops.In("x", Special(5003, 1)).In("d", Special(5003, 2)).In("y", Special(5003, 3));
    const char* reads = grad->FindInput("Out") ? "Out" : "X";
    ops.Do("s", "elementwise_add", {"x", "y"})
        .Do("v", type, {"s"})
        .Do("e", "elementwise_sub", {"d", "v"})
        .Append(OpDesc(grad->type, {{reads, {reads[0] == 'X' ? "s" : "v"}}, {"Out@GRAD", {"e"}}},
                       {{"X@GRAD", {"dv"}}}))
        .Do("r", "elementwise_mul", {"v", "dv"})
        .Check({"v", "dv", "r"});
  }
  EXPECT_GE(ops_of_one, 12);
}

// Which operand is in a register and which in memory.
TEST(FusedElementwise, OrderOfOperands) {
  for (const char* type : {"elementwise_add", "elementwise_sub", "elementwise_mul",
                           "elementwise_div", "elementwise_max", "elementwise_min"}) {
    SCOPED_TRACE(type);
    Ops ops;
    ops.In("x", Special(4500, 1)).In("y", Special(4500, 2)).In("k", Special(4500, 3));
    ops.In("one", Tensor::Of<float>({1}, {0.7f}));
    ops.Do("a", type, {"x", "y"})
        .Do("b", type, {"a", "x"})
        .Do("c", type, {"k", "b"})
        .Do("d", type, {"c", "c"})
        .Do("e", type, {"x", "y"})
        .Do("f", type, {"d", "b"})
        .Do("g", type, {"f", "one"})
        .Do("h", type, {"g", "e"});
    ops.Check({"h"});
    ops.Check({"a", "d", "h", "e"});
    ops.Check({"a", "b", "c", "d", "e", "f", "g", "h"});
  }
}

// Values under several names, including arguments, and values that no output needs.
TEST(FusedElementwise, Copies) {
  Ops ops;
  ops.In("x", {70001}).In("y", {70001}).In("d", {70001});
  ops.Append(OpDesc("elementwise_add_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"d"}}},
                    {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}))
      .Do("t", "tanh", {"dx"})
      .Append(OpDesc("elementwise_sub_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"t"}}},
                     {{"X@GRAD", {"tx"}}, {"Y@GRAD", {"ty"}}}))
      .Append(OpDesc("sum", {{"X", {"ty", "x", "dy", "tx"}}}, {{"Out", {"s"}}}))
      .Append(OpDesc("sum", {{"X", {"y"}}}, {{"Out", {"same"}}}))
      .Append(OpDesc("elementwise_div_grad",
                     {{"X", {"x"}}, {"Y", {"y"}}, {"Out", {"s"}}, {"Out@GRAD", {"t"}}},
                     {{"X@GRAD", {"q"}}}));
  ops.Check({"s", "q"});
  ops.Check({"dx", "dy", "tx", "ty", "s", "same", "q"});
  ops.Check({"same", "dy"});
}

TEST(FusedElementwise, ElementTypes) {
  for (DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16})
    Chain({3, 7001}, dtype).Check({"c", "f"});
  for (DType dtype : {DType::kInt64, DType::kInt32}) {
    Ops ops;
    ops.In("x", {50, 999}, dtype).In("y", {50, 999}, dtype);
    ops.Do("a", "elementwise_mul", {"x", "y"})
        .Do("b", "elementwise_max", {"a", "y"})
        .Do("c", "elementwise_sub", {"b", "x"})
        .Check({"a", "c"});
  }
}

TEST(FusedElementwise, CastsComparisonsAndSelects) {
  Ops ops;
  ops.In("x", {40, 1001}).In("y", {40, 1001}).In("n", {40, 1001}, DType::kInt64);
  ops.Do("less", "less_than", {"x", "y"})
      .Do("f", "cast", {"n"}, {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}})
      .Do("positive", "greater_than", {"f", "x"})
      .Do("both", "logical_and", {"less", "positive"})
      .Append(
          OpDesc("where", {{"Condition", {"both"}}, {"X", {"f"}}, {"Y", {"y"}}}, {{"Out", {"w"}}}))
      .Do("h", "cast", {"w"}, {{"out_dtype", static_cast<int32_t>(DType::kFloat16)}})
      .Do("m", "logical_not", {"both"})
      .Check({"less", "w", "h", "m"});
}

TEST(FusedElementwise, Broadcasts) {
  struct Case {
    Shape x, y;
    int32_t axis;
  };
  const Case cases[] = {
      {{300, 50}, {50}, -1},
      {{300, 50}, {300}, 0},
      {{300, 50}, {300, 1}, -1},
      {{300, 50}, {1, 50}, -1},
      {{300, 50}, {1}, -1},
      {{300, 50}, {}, -1},
      {{120, 120}, {120}, -1},
      {{120, 120}, {120}, 0},
      {{120, 120}, {120, 1}, -1},
      {{120, 120}, {120, 1}, 0},
      {{4, 6, 40, 50}, {6}, 1},
      {{4, 6, 40, 50}, {6, 1, 1}, -1},
      {{4, 6, 40, 50}, {4, 6}, 0},
      {{4, 6, 40, 50}, {4, 1, 40, 1}, -1},
      {{4, 6, 40, 50}, {50}, -1},
      {{4, 6, 40, 50}, {40, 50}, -1},
      {{4, 6, 40, 50}, {6, 40}, 1},
      {{2, 3, 100, 100}, {3, 1, 1}, 1},
      {{1, 8, 90, 90}, {8}, 1},
      {{1, 8, 90, 90}, {1, 8, 1, 1}, -1},
      {{1, 1, 30000}, {30000}, -1},
      {{9, 7000}, {7000}, -1},
      {{9, 7000}, {9}, 0},
      {{9, 7000}, {9, 1}, -1},
      {{3, 2, 7, 5, 6, 9}, {7, 5}, 2},
      {{3, 2, 7, 5, 6, 9}, {2, 1, 5, 1, 9}, -1},
      {{30, 30, 30}, {30, 30}, 0},
      {{30, 30, 30}, {30, 30}, 1},
      {{30, 30, 30}, {30}, 1},
      {{30, 30, 30}, {1, 30, 1}, -1},
      {{7, 300}, {300}, -1},
      {{40, 257}, {40, 1}, -1},
      {{5, 3, 20, 31}, {3}, 1},
      {{5, 3, 20, 31}, {5, 1, 20, 31}, -1},
      {{5, 3, 20, 31}, {1, 3, 20, 31}, -1},
      {{2, 1, 3, 1, 1000}, {2, 1, 1, 1, 1000}, -1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.x.ToString() + " " + c.y.ToString());
    Ops ops;
    ops.In("x", c.x).In("y", c.y).In("z", c.x);
    ops.Do("a", "elementwise_mul", {"x", "y"}, Axis(c.axis))
        .Do("b", "elementwise_add", {"a", "z"})
        .Do("c", "elementwise_sub", {"b", "y"}, Axis(c.axis))
        .Do("d", "tanh", {"c"})
        .Check({"a", "d"});
  }
}

// The first operand is stretched; two operands along different dims; one operand along two.
TEST(FusedElementwise, OtherBroadcasts) {
  Ops left;
  left.In("x", {50}).In("y", {300, 50});
  left.Do("a", "elementwise_sub", {"x", "y"}).Do("b", "square", {"a"}).Check({"a", "b"});
  Ops two;
  two.In("x", {16, 12, 20, 20}).In("row", {16}).In("channel", {12}).In("point", {20, 20});
  two.Do("a", "elementwise_mul", {"x", "row"}, Axis(0))
      .Do("b", "elementwise_add", {"a", "channel"}, Axis(1))
      .Do("c", "elementwise_add", {"b", "point"})
      .Check({"b", "c"});
  Ops both;
  both.In("x", {90, 90}).In("y", {90});
  both.Do("a", "elementwise_mul", {"x", "y"}, Axis(0))
      .Do("b", "elementwise_add", {"a", "y"}, Axis(1))
      .Check({"a", "b"});
  Ops outer;  // the first result is smaller than the second one
  outer.In("x", {90, 1}).In("y", {90});
  outer.Do("a", "tanh", {"x"}).Do("b", "elementwise_add", {"a", "y"}).Check({"a", "b"});
  Ops made;  // operands of which none has the shape of the results
  made.In("x", {90, 1}).In("y", {1, 90}).In("z", {90});
  made.Do("a", "elementwise_add", {"x", "y"}).Do("b", "elementwise_mul", {"a", "z"}).Check({"b"});
}

TEST(FusedElementwise, GradientOps) {
  Ops ops;
  ops.In("x", {200, 77}).In("y", {200, 77}).In("out", {200, 77}).In("d", {200, 77});
  ops.Append(OpDesc("relu_grad", {{"Out", {"out"}}, {"Out@GRAD", {"d"}}}, {{"X@GRAD", {"dr"}}}))
      .Append(OpDesc("elementwise_mul_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dr"}}},
                     {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}))
      .Append(OpDesc("sum", {{"X", {"dx", "d", "dy"}}}, {{"Out", {"s"}}}))
      .Check({"dy", "s"});
  // Y@GRAD is a sum over rows: these run one after the other.
  Ops sums;
  sums.In("x", {200, 77}).In("y", {77}).In("d", {200, 77});
  sums.Append(OpDesc("elementwise_mul_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"d"}}},
                     {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}))
      .Do("s", "scale", {"dx"}, {{"scale", 3.0f}})
      .Check({"dx", "dy", "s"});
}

TEST(FusedElementwise, TensorsOfOneElementAsAttrs) {
  Ops ops;
  ops.In("x", {9001})
      .In("lo", Tensor::Of<float>({1}, {-0.5f}))
      .In("k", Tensor::Of<float>({1}, {3}));
  ops.Append(OpDesc("clip", {{"X", {"x"}}, {"Min", {"lo"}}}, {{"Out", {"c"}}},
                    {{"min", 0.0f}, {"max", 0.5f}}))
      .Append(OpDesc("scale", {{"X", {"c"}}, {"ScaleTensor", {"k"}}}, {{"Out", {"s"}}}))
      .Check({"c", "s"});
}

TEST(FusedElementwise, ErrorsOfOps) {
  Ops ops;
  ops.In("x", Tensor::Of<int64_t>({2}, {1, 2})).In("y", Tensor::Of<int64_t>({2}, {1, 0}));
  ops.Do("a", "elementwise_div", {"x", "y"}).Do("b", "square", {"a"});
  EXPECT_THROW(ops.Fused({"b"}, KernelMode::kAuto), Error);
}

// --- the cut ---

FusedCut CutOf(const std::vector<Shape>& arguments, const Shape& result, int32_t axis) {
  ProgramDesc program;
  BlockDesc& block = program.AppendBlock(0);
  FusedGroup group{&block, &DefaultOps(), {}, {}};
  std::vector<FusedVar> vars;
  std::string last;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    group.arguments.push_back(name);
    block.Var(name).SetShape(arguments[i]);
    vars.push_back({name, block.Var(name).meta(), static_cast<int>(i)});
    if (i == 0) {
      last = name;
      continue;
    }
    const std::string out = "y" + std::to_string(i);
    block.Var(out).SetShape(result);
    vars.push_back({out, block.Var(out).meta()});
    block.AppendOp("elementwise_add", {{"X", {last}}, {"Y", {name}}}, {{"Out", {out}}}, Axis(axis));
    last = out;
  }
  FusedCut cut;
  if (!FindCut(group, 4096, vars, &cut)) cut.outer = 0;
  return cut;
}

TEST(FusedElementwise, Cuts) {
  FusedCut cut = CutOf({{100, 100}, {100, 100}}, {100, 100}, -1);
  EXPECT_TRUE(cut.flat);
  EXPECT_EQ(cut.pieces(), 3);
  EXPECT_EQ(cut.rows, 3392);  // of about equal size, in whole cache lines
  EXPECT_EQ(cut.last_rows(), 10000 - 2 * 3392);
  cut = CutOf({{100, 100}, {100}}, {100, 100}, -1);
  EXPECT_EQ(cut.dim, 0);
  EXPECT_EQ(cut.rows, 34);
  EXPECT_EQ(cut.pieces(), 3);
  cut = CutOf({{4, 6, 50, 50}, {6}}, {4, 6, 50, 50}, 1);
  EXPECT_EQ(cut.dim, 1);
  EXPECT_EQ(cut.pieces(), 24);
  cut = CutOf({{3, 9000}, {9000}}, {3, 9000}, -1);
  EXPECT_EQ(cut.dim, 1);
  EXPECT_EQ(cut.pieces(), 9);
  EXPECT_EQ(CutOf({{90, 1}, {90}}, {90, 1}, -1).pieces(), 0);  // not what the rule says
  EXPECT_EQ(CutOf({{90, 0}, {0}}, {90, 0}, -1).pieces(), 0);
}

TEST(FusedElementwise, Runs) {
  const auto runs_of = [](const Shape& result, const Shape& argument, int32_t axis) {
    ProgramDesc program;
    BlockDesc& block = program.AppendBlock(0);
    block.Var("x").SetShape(result);
    block.Var("y").SetShape(argument);
    block.Var("z").SetShape(result);
    block.AppendOp("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}}, Axis(axis));
    const FusedGroup group{&block, &DefaultOps(), {"x", "y"}, {}};
    std::vector<FusedVar> vars = {{"x", block.Var("x").meta(), 0}, {"y", block.Var("y").meta(), 1}};
    vars.push_back({"z", block.Var("z").meta()});
    FusedCut cut;
    EXPECT_TRUE(FindCut(group, 4096, vars, &cut));
    return CutIntoRuns(group, 256, vars, &cut) ? cut : FusedCut();
  };
  FusedCut cut = runs_of({4, 6, 20, 50}, {6}, 1);
  EXPECT_EQ(cut.dim, 1);
  EXPECT_EQ(cut.pieces(), 24);
  EXPECT_EQ(
      cut.PieceOf({"x", {VarType::kLoDTensor, DType::kFloat32, {4, 6, 20, 50}, 0}, 0, -1, 0}, 1),
      (Shape{1, 1, 20, 50}));
  EXPECT_EQ(runs_of({90, 1, 300}, {300}, -1).pieces(), 90);
  EXPECT_EQ(runs_of({20, 40, 30}, {20, 1, 30}, -1).shape.rank(), 0);  // of 30 elements each
  EXPECT_EQ(runs_of({20, 400}, {1}, -1).shape.rank(), 0);             // one run
}

// --- constraints ---

class FusedElementwiseErrors : public ::testing::Test {
 protected:
  FusedElementwiseErrors() {
    for (const char* name : {"x", "z"}) program.Root().Var(name).SetShape({2});
    for (const char* name : {"a", "b", "c"}) block().Var(name).SetShape({2});
    block().AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
    block().AppendOp("tanh", {{"X", {"b"}}}, {{"Out", {"c"}}});
  }
  BlockDesc& block() {
    if (program.NumBlocks() == 1) program.AppendBlock(0);
    return program.Block(1);
  }
  std::string Message(const Names& x, const Names& arguments, const Names& out,
                      const Names& results, std::vector<int32_t> lod_from = {}) {
    OpDesc& op = program.Root().AppendOp("fused_elementwise", {{"X", x}}, {{"Out", out}},
                                         {{"sub_block", BlockRef{1}},
                                          {"arguments", arguments},
                                          {"results", results},
                                          {"lod_from", std::move(lod_from)}});
    try {
      InferOp(program.Root(), op, DefaultOps());
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  }
  ProgramDesc program;
};

TEST_F(FusedElementwiseErrors, None) {
  EXPECT_EQ(Message({"x"}, {"a"}, {"y"}, {"c"}), "");
  EXPECT_EQ(program.Root().FindVar("y")->shape(), Shape{2});
}
TEST_F(FusedElementwiseErrors, C1_NumberOfArguments) {
  ExpectConstraint(Message({"x"}, {}, {"y"}, {"c"}), "fused_elementwise.C1");
}
TEST_F(FusedElementwiseErrors, C2_NumberOfResults) {
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c", "b"}), "fused_elementwise.C2");
}
TEST_F(FusedElementwiseErrors, C3_VariablesOfTheBlock) {
  ExpectConstraint(Message({"x"}, {"x"}, {"y"}, {"c"}), "fused_elementwise.C3");
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"none"}), "fused_elementwise.C3");
}
TEST_F(FusedElementwiseErrors, C4_NamedTwice) {
  ExpectConstraint(Message({"x", "z"}, {"a", "a"}, {"y"}, {"c"}), "fused_elementwise.C4");
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"a"}), "fused_elementwise.C4");
}
TEST_F(FusedElementwiseErrors, C5_OtherOps) {
  block().Var("d").SetShape({2});
  block().AppendOp("softmax", {{"X", {"c"}}}, {{"Out", {"d"}}});
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}), "fused_elementwise.C5");
}
TEST_F(FusedElementwiseErrors, C6_OrderOfTheOps) {
  ExpectConstraint(Message({"x"}, {"b"}, {"y"}, {"c"}), "fused_elementwise.C6");
  block().AppendOp("relu", {{"X", {"c"}}}, {{"Out", {"b"}}});
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}), "fused_elementwise.C6");
}
TEST_F(FusedElementwiseErrors, C7_DenseTensors) {
  program.Root().FindVar("x")->SetType(VarType::kSelectedRows);
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}), "fused_elementwise.C7");
}
TEST_F(FusedElementwiseErrors, C8_LodFrom) {
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}, {1}), "fused_elementwise.C8");
  EXPECT_EQ(Message({"x"}, {"a"}, {"w"}, {"c"}, {-1}), "");
}
TEST_F(FusedElementwiseErrors, OfTheOps) {
  program.Root().FindVar("x")->SetDType(DType::kBool);
  EXPECT_NE(Message({"x"}, {"a"}, {"y"}, {"c"}).find("relu: there is no kernel for"),
            std::string::npos);
}
}  // namespace coracle::fused_elementwise_test
