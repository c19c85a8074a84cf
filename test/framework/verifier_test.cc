#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coracle::verifier_test {

void SameAsX(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() != 5, x.rank());
  ctx.Require("C2", x.rank() != 6, "X", x.rank());
  ctx.SetOutput("Out", ctx.Input("X"));
}

const OpRegistry& Ops() {
  static const OpRegistry* ops = [] {
    auto* made = new OpRegistry;
    made->Add(OpDef("copy")
                  .Doc("Out = X.")
                  .Constraint("C1", "X must not have rank 5")
                  .Input("X", "x")
                  .OptionalInput("Bias", "bias")
                  .Output("Out", "out")
                  .Attr<float>("scale", 1.f, "factor")
                  .Range(0, 10)
                  .Attr<std::string>("mode", "same", "how")
                  .OneOf({"same", "valid"})
                  .NoGradient("a sample")
                  .Infer(SameAsX));
    made->Add(OpDef("two")
                  .Doc("First = Second = X.")
                  .Input("X", "x")
                  .Output("First", "out")
                  .Output("Second", "out")
                  .NoGradient("a sample")
                  .Infer([](InferContext& ctx) {
                    ctx.SetOutput("First", ctx.Input("X"));
                    ctx.SetOutput("Second", ctx.Input("X"));
                  }));
    made->Add(OpDef("run")
                  .Doc("Runs a block.")
                  .Attr<BlockRef>("sub_block", "the block")
                  .NoGradient("a sample"));
    return made;
  }();
  return *ops;
}

struct Sample {
  Sample() {
    for (const char* name : {"x", "y", "z"}) root.Var(name).SetShape({2, 3});
  }
  OpDesc& Copy(const std::string& from, const std::string& to, AttrList attrs = {}) {
    return root.AppendOp("copy", {{"X", {from}}}, {{"Out", {to}}}, std::move(attrs));
  }
  std::vector<VerifyProblem> Check(const VerifyOptions& options = {}) const {
    return Verify(program, Ops(), options);
  }
  // The only problem; its rule must be `rule`.
  VerifyProblem Only(const std::string& rule) const {
    std::vector<VerifyProblem> problems = Check();
    std::string all;
    for (const VerifyProblem& p : problems) all += p.ToString() + "\n";
    EXPECT_EQ(problems.size(), 1u) << all;
    if (problems.empty()) return {};
    EXPECT_EQ(problems[0].rule, rule) << all;
    return problems[0];
  }
  ProgramDesc program;
  BlockDesc& root = program.Root();
};

TEST(Verify, GoodProgramsHaveNoProblems) {
  Sample s;
  s.Copy("x", "y", {{"scale", 0.5f}, {"op_role", int32_t{0}}, {"use_cudnn", true}});
  s.Copy("y", "z", {{"mode", std::string("valid")}, {"scale", int32_t{3}}});
  s.Copy("y", "y");  // in place
  EXPECT_TRUE(s.Check().empty());
  EXPECT_NO_THROW(VerifyOrThrow(s.program, Ops()));
}

TEST(Verify, FindsAllProblemsAtOnce) {
  Sample s;
  s.Copy("nowhere", "y", {{"scale", 11.f}});
  s.root.AppendOp("cpy", {{"X", {"x"}}}, {{"Out", {"y"}}});
  s.root.AppendOp("copy", {}, {{"Out", {"y"}}}, {{"mode", std::string("sane")}});
  std::vector<std::string> rules;
  for (const VerifyProblem& p : s.Check()) rules.push_back(std::to_string(p.op) + " " + p.rule);
  EXPECT_EQ(rules, (std::vector<std::string>{"0 undefined_var", "0 attr_range", "1 unknown_op",
                                             "2 missing_slot", "2 attr_range"}));
  try {
    VerifyOrThrow(s.program, Ops());
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("block 0 op 0 (copy) slot X: reads the var 'nowhere'"),
              std::string::npos)
        << e.message();
    EXPECT_NE(e.message().find("and 4 more problems"), std::string::npos);
    EXPECT_NE(e.details().find("did you mean same?"), std::string::npos) << e.details();
  }
}

TEST(Verify, UnknownOp) {
  Sample s;
  s.root.AppendOp("cop", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_NE(s.Only("unknown_op").message.find("did you mean copy?"), std::string::npos);
}

TEST(Verify, UnknownSlot) {
  Sample s;
  s.Copy("x", "y").SetInput("Bia", {"x"});
  VerifyProblem problem = s.Only("unknown_slot");
  EXPECT_EQ(problem.slot, "Bia");
  EXPECT_NE(problem.message.find("did you mean Bias?"), std::string::npos);
  s.root.op(0).SetInput("Bia", {});  // an empty unknown slot means nothing
  EXPECT_TRUE(s.Check().empty());
}

TEST(Verify, SlotArity) {
  Sample s;
  s.root.AppendOp("copy", {{"X", {"x", "y"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(s.Only("slot_arity").slot, "X");
}

TEST(Verify, DuplicateSlotsAndAttrs) {
  Sample s;
  s.root.AppendOp("copy", {{"X", {"x"}}, {"X", {"y"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(s.Only("duplicate_slot").slot, "X");
  Sample t;
  t.Copy("x", "y", {{"scale", 1.f}, {"scale", 2.f}});
  t.Only("duplicate_attr");
}

TEST(Verify, AttrTypes) {
  Sample s;
  s.Copy("x", "y", {{"scale", std::string("big")}});
  EXPECT_NE(s.Only("attr_type").message.find("must be FLOAT, got STRING"), std::string::npos);
  Sample t;
  t.Copy("x", "y", {{"op_role", std::string("x")}});
  t.Only("attr_type");
  Sample u;
  u.Copy("x", "y", {{"scale", std::string(1000000, 'x')}});
  EXPECT_LT(u.Only("attr_type").message.size(), 2000u);
}

// Links between ops, which passes and backward read. The compiler's own attr is never read.
TEST(Verify, TypesOfLinks) {
  for (const char* link :
       {"op_role_var", "forward_op", "recomputed_from", "outer_reads", "outer_inputs"}) {
    Sample s;
    s.Copy("x", "y", {{link, int32_t{7}}});
    EXPECT_NE(s.Only("attr_type").message.find(std::string("attr ") + link + " must be STRING"),
              std::string::npos);
  }
  Sample t;
  t.Copy("x", "y",
         {{"forward_op", std::string("copy(a)")},
          {"recomputed_from", std::vector<std::string>{"a"}},
          {"op_role_var", std::vector<std::string>{"w", "w@GRAD"}},
          {"op_origin", std::string("x")}});
  EXPECT_TRUE(t.Check().empty());
}

TEST(Verify, RangesRefuseNan) {
  Sample s;
  s.Copy("x", "y", {{"scale", std::nanf("")}});
  s.Only("attr_range");
}

// A float attr cannot hold most decimal fractions; the float nearest to a bound is in range.
TEST(Verify, BoundsOfFloatsAreRounded) {
  const auto accepts = [](double min, double max, Attribute value) {
    OpRegistry ops;
    ops.Add(OpDef("ranged")
                .Doc("Nothing.")
                .NoGradient("a sample")
                .Attr<float>("a", 1.f, "a")
                .Range(min, max));
    ops.Add(OpDef("ranged_list")
                .Doc("Nothing.")
                .NoGradient("a sample")
                .Attr<std::vector<float>>("a", {1.f}, "a")
                .Range(min, max));
    ProgramDesc program;
    program.Root().AppendOp("ranged", {}, {}, {{"a", value}});
    const bool one = Verify(program, ops).empty();
    ProgramDesc list;
    list.Root().AppendOp("ranged_list", {}, {}, {{"a", std::vector{std::get<float>(value)}}});
    EXPECT_EQ(Verify(list, ops).empty(), one);
    return one;
  };
  EXPECT_TRUE(accepts(0, 1e-3, 1e-3f));  // 0.001000000047
  EXPECT_TRUE(accepts(0.7, 1, 0.7f));    // 0.699999988
  EXPECT_FALSE(accepts(0, 1e-3, std::nextafter(1e-3f, 1.f)));
  EXPECT_FALSE(accepts(0.7, 1, std::nextafter(0.7f, 0.f)));
  EXPECT_FALSE(accepts(1, 2, std::nextafter(1.f, 0.f)));
  EXPECT_FALSE(accepts(1e-50, 1, 0.f));
  EXPECT_FALSE(accepts(0, 1e300, HUGE_VALF));
}

TEST(Verify, MissingAttr) {
  Sample s;
  s.root.AppendOp("run", {}, {});
  s.Only("missing_attr");
}

TEST(Verify, UnknownAttrsAreNotes) {
  Sample s;
  s.Copy("x", "y", {{"scal", 1.f}});
  VerifyProblem note = s.Only("unknown_attr");
  EXPECT_EQ(note.severity, VerifyProblem::Severity::kNote);
  EXPECT_NO_THROW(VerifyOrThrow(s.program, Ops()));
}

// Attrs that change the result in later versions of Paddle, and that the op does not have here.
TEST(Verify, UnknownAttrsThatMatterAreErrors) {
  const auto severity_with = [](const char* type, NamedAttr attr) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"x", "y"}) {
      VarDesc& var = root.Var(name);
      var.SetDType(DType::kFloat32);
      var.SetShape({2});
    }
    root.Var("x").SetPersistable(true);
    root.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"y"}}}, {std::move(attr)});
    for (const VerifyProblem& problem : Verify(program, DefaultOps()))
      if (problem.rule == "unknown_attr") return problem.severity;
    ADD_FAILURE() << type << ": no problem";
    return VerifyProblem::Severity::kNote;
  };
  using Severity = VerifyProblem::Severity;
  EXPECT_EQ(severity_with("thresholded_relu", {"value", 0.5f}), Severity::kError);
  EXPECT_EQ(severity_with("thresholded_relu", {"value", 0.f}), Severity::kNote);
  EXPECT_EQ(severity_with("round", {"decimals", int32_t{2}}), Severity::kError);
  EXPECT_EQ(severity_with("round", {"decimals", std::string("2")}), Severity::kError);
  EXPECT_EQ(severity_with("truncated_gaussian_random", {"a", -1.f}), Severity::kError);
  EXPECT_EQ(severity_with("truncated_gaussian_random", {"b", 2.f}), Severity::kNote);
  EXPECT_EQ(severity_with("histogram", {"density", true}), Severity::kError);
  EXPECT_EQ(severity_with("histogram", {"density", false}), Severity::kNote);
}

TEST(Verify, NotesNeverHideErrorsNorBecomeThem) {
  Sample s;
  for (int i = 0; i < 2000; ++i) s.Copy("x", "y", {{"unheard_of", 1.f}});
  EXPECT_NO_THROW(VerifyOrThrow(s.program, Ops()));
  s.Copy("nowhere", "y");
  EXPECT_THROW(VerifyOrThrow(s.program, Ops()), Error);
}

TEST(Verify, UseBeforeDefinition) {
  Sample s;
  s.Copy("y", "z");
  s.Copy("x", "y");
  VerifyProblem problem = s.Only("use_before_def");
  EXPECT_EQ(problem.op, 0);
  EXPECT_EQ(problem.var, "y");
  s.root.FindVar("y")->SetPersistable(true);  // from the run before
  EXPECT_TRUE(s.Check().empty());
}

// x is fed, read, and then updated in place.
TEST(Verify, FedVarsMayBeUpdatedLater) {
  Sample s;
  s.Copy("x", "y");
  s.Copy("x", "x");
  EXPECT_TRUE(s.Check().empty());
}

TEST(Verify, UndefinedOutputs) {
  Sample s;
  s.Copy("x", "nowhere");
  VerifyProblem problem = s.Only("undefined_var");
  EXPECT_EQ(problem.slot, "Out");
  EXPECT_EQ(problem.var, "nowhere");
}

// The kernel of such an op would write both outputs to one place.
TEST(Verify, AVariableIsNoTwoOutputsOfAnOp) {
  Sample s;
  s.root.AppendOp("two", {{"X", {"x"}}}, {{"First", {"y"}}, {"Second", {"y"}}});
  EXPECT_EQ(s.Only("written_twice").message,
            "writes the var 'y' in output First and again in output Second; give each a var of "
            "its own");
  Sample fine;
  fine.root.AppendOp("two", {{"X", {"x"}}}, {{"First", {"y"}}, {"Second", {"z"}}});
  EXPECT_TRUE(fine.Check().empty());
}

TEST(Verify, ShapeRules) {
  Sample s;
  s.root.FindVar("x")->SetShape({1, 1, 1, 1, 1});
  s.Copy("x", "y");
  VerifyProblem problem = s.Only("shape");
  EXPECT_NE(problem.message.find("[copy.C1], got 5"), std::string::npos) << problem.message;
  EXPECT_NE(problem.details.find("'x' float32[1, 1, 1, 1, 1]"), std::string::npos);
  EXPECT_TRUE(s.Check({.infer_shapes = false}).empty());
}

TEST(Verify, ShapesOfPersistables) {
  Sample s;
  s.root.FindVar("y")->SetPersistable(true);
  s.root.FindVar("y")->SetShape({7});
  s.Copy("x", "y");
  s.Only("shape_contradiction");
}

TEST(Verify, VarShapesAndTypes) {
  Sample s;
  s.root.FindVar("x")->SetShape({-2});
  s.Only("var_shape");
  s.root.FindVar("x")->SetShape({int64_t{1} << 40, int64_t{1} << 40});
  s.Only("var_shape");
  s.root.FindVar("x")->SetShape({1});
  s.root.FindVar("x")->SetDType(static_cast<DType>(99));
  s.Only("var_dtype");
}

// A branch may not run, so an op in it that cannot run is no error of the program.
TEST(Verify, BranchesMayFail) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2, 3});
  root.Var("c").SetMeta({VarType::kLoDTensor, DType::kBool, {1}, 0});
  root.Var("y").SetShape({2, 1000});
  root.Var("scope").SetType(VarType::kStepScopes);
  BlockDesc& block = program.AppendBlock(root);
  block.Var("i").SetDType(DType::kInt64);
  block.AppendOp("top_k_v2", {{"X", {"x"}}}, {{"Out", {"y"}}, {"Indices", {"i"}}}, {{"k", 1000}});
  root.AppendOp("conditional_block", {{"Cond", {"c"}}, {"Input", {"x"}}},
                {{"Out", {"y"}}, {"Scope", {"scope"}}},
                {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}});
  const auto problems = Verify(program, DefaultOps());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].severity, VerifyProblem::Severity::kNote);
  EXPECT_NE(problems[0].message.find("fails if this branch is taken: top_k_v2"), std::string::npos)
      << problems[0].message;
  VerifyOrThrow(program, DefaultOps());
}

TEST(Verify, BlockIndices) {
  Sample s;
  s.program.AppendBlock(7);
  s.Only("block_index");
  Sample t;
  t.program.AppendBlock(1);
  t.Only("block_cycle");
  Sample u;
  u.program.AppendBlock(0).SetForwardBlockIdx(9);
  u.Only("block_index");
  Sample v;
  v.root.AppendOp("run", {}, {}, {{"sub_block", BlockRef{0}}});  // itself
  v.Only("block_index");
  Sample w;
  w.root.AppendOp("run", {}, {}, {{"sub_block", BlockRef{5}}});
  w.Only("block_index");
  ProgramDesc none;
  FileFields::ClearBlocks(none);
  ASSERT_EQ(Verify(none, Ops()).size(), 1u);
  EXPECT_EQ(Verify(none, Ops())[0].rule, "no_block");
}

TEST(Verify, DepthIsLimited) {
  Sample s;
  for (int i = 0; i < 100; ++i) s.program.AppendBlock(i);
  EXPECT_TRUE(s.Check().empty());
  for (int i = 100; i < 50000; ++i) s.program.AppendBlock(i);
  std::vector<VerifyProblem> problems = s.Check();
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems[0].rule, "block_depth");
}

// Each of 40 blocks runs the next one twice: 2^40 ops in the end.
TEST(Verify, ExpansionIsLimited) {
  Sample s;
  for (int i = 0; i < 40; ++i) s.program.AppendBlock(i);
  for (int i = 0; i < 40; ++i) {
    for (int k = 0; k < 2; ++k)
      s.program.Block(i).AppendOp("run", {}, {}, {{"sub_block", BlockRef{i + 1}}});
  }
  s.Only("block_expansion");
}

// Ops with as many slots, attrs and arguments as a file can hold: linear, and a short report.
TEST(Verify, HugeOpsTakeLittleTime) {
  Sample s;
  SlotList inputs, outputs;
  AttrList attrs;
  std::vector<std::string> args;
  for (int i = 0; i < 100000; ++i) {
    std::string name = "slot_with_a_name_" + std::to_string(i);
    inputs.push_back({name, {"x"}});
    outputs.push_back({name, {"x"}});
    attrs.push_back({name, int32_t{i}});
    args.push_back(name);
  }
  inputs.push_back({"X", args});
  outputs.push_back({"Out", args});
  s.root.AppendOp("copy", inputs, outputs, attrs);
  for (int i = 0; i < 20000; ++i) s.root.AppendOp(args[static_cast<size_t>(i)], {}, {});
  std::vector<VerifyProblem> problems = s.Check();
  EXPECT_LE(problems.size(), 2002u);
  EXPECT_EQ(problems.back().rule, "more");
}

TEST(Verify, LongNamesAreCut) {
  Sample s;
  s.root.AppendOp(std::string(1000000, 't'),
                  {{std::string(1000000, 's'), {std::string(1000000, 'v')}}}, {});
  for (const VerifyProblem& p : s.Check()) {
    EXPECT_LT(p.ToString().size(), 2000u);
    EXPECT_LT(p.op_type.size() + p.slot.size() + p.var.size(), 2000u);
  }
}

// A kernel would have nowhere to write to.
TEST(Verifier, RequiredSlotsHoldRealNames) {
  Sample sample;
  sample.root.AppendOp("copy", {{"X", {"x"}}}, {{"Out", {"@EMPTY@"}}});
  sample.root.AppendOp("copy", {{"X", {"@EMPTY@"}}}, {{"Out", {"y"}}});
  sample.root.AppendOp("copy", {{"X", {"x"}}, {"Bias", {"@EMPTY@"}}}, {{"Out", {"z"}}});
  const std::vector<VerifyProblem> problems = Verify(sample.program, Ops());
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].ToString(),
            "block 0 op 0 (copy) slot Out: output Out is required and holds @EMPTY@");
  EXPECT_EQ(problems[1].rule, "missing_slot");
}

// The dtypes of kernels are known to the declaration: what none takes is refused before a run.
TEST(Verifier, OperandsHaveADTypeOfTheKernels) {
  OpRegistry ops;
  const auto add = [&](const char* type, const char* kernel_slot) {
    OpDef def(type);
    def.Doc("Out = X.").OptionalInput("X", "x").Output("Out", "out").NoGradient("a sample");
    if (*kernel_slot != 0) def.KernelTypeFrom(kernel_slot);
    ops.Add(std::move(def.Reference<float, double>(
        []<class T>(const PrepareContext&) { return Kernel([](Workspace&) {}); })));
  };
  add("by_input", "");
  add("by_output", "Out");
  Sample sample;
  for (const char* name : {"ids", "counts"}) {
    sample.root.Var(name).SetDType(DType::kInt64);
    sample.root.Var(name).SetShape({4});
  }
  sample.root.AppendOp("by_input", {{"X", {"x"}}}, {{"Out", {"y"}}});
  sample.root.AppendOp("by_input", {{"X", {"ids"}}}, {{"Out", {"y"}}});
  sample.root.AppendOp("by_output", {}, {{"Out", {"counts"}}});
  const std::vector<VerifyProblem> problems = Verify(sample.program, ops);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].ToString(),
            "block 0 op 1 (by_input): by_input: there is no kernel for input X = 'ids' int64[4]; "
            "supported: float32, float64");
  EXPECT_NE(problems[1].message.find("for output Out = 'counts' int64[4]"), std::string::npos);
  EXPECT_THROW(InferOp(sample.root, sample.root.op(1), ops), Error);
}

// Reading a program infers parameters before the program is verified.
TEST(Verifier, RolesThatAreNoInts) {
  for (const Attribute& role : {Attribute(int64_t{1} << 62), Attribute(std::string("backward"))}) {
    Sample s;
    s.Copy("x", "y", {{kOpRoleAttr, role}});
    s.program.InferParameters();
    const std::vector<VerifyProblem> problems = s.Check();
    const auto found = std::find_if(problems.begin(), problems.end(),
                                    [](const auto& p) { return p.rule == "attr_type"; });
    ASSERT_NE(found, problems.end());
    EXPECT_EQ(found->op_type, "copy");
    EXPECT_EQ(found->op, 0);
    EXPECT_NE(found->message.find("attr op_role must be INT, got "), std::string::npos);
  }
}
}  // namespace coracle::verifier_test
