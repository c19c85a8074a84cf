// framework/op.

#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/test/misuse/misuse.h>

#include <map>
#include <memory>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace op_cases {

// An op without a shape rule and kernels.
OpDef Bare(const char* type = "bare") {
  return OpDef(type)
      .Doc("Does nothing.")
      .OptionalInput("X", "x")
      .OptionalOutput("Out", "out")
      .NotDifferentiable("for tests");
}

void AddTraits(Cases& cases) {
  cases.Of("RowRule").Works("unknown", [] { RowEffect effect(static_cast<RowRule>(99)); });
  cases.Of("RowQuery").Works("of an op without inputs", [] {
    const OpDesc op("none");
    const OpSpec spec;
    Require(RowEffectOf({op, spec, ""}).rule == RowRule::kUndeclared, "undeclared");
    OpSpec moves;
    moves.rows.effect = RowRule::kMoves;
    Require(LinearWith(moves, "X").empty(), "no input");
  });
  cases.Of("RowEffect").Works("moved from", [] {
    RowEffect effect(RowRule::kEach, "X");
    const RowEffect moved = std::move(effect);
    effect = moved;
  });
  cases.Plain<RowTrait>("RowTrait");
  cases.Of("TensorArg").Works("default", [] {
    Require(!TensorArg() && TensorArg().nbytes() == 0, "absent");
  });
  cases.Plain<SlotDef>("SlotDef");
  cases.Plain<AttrDef>("AttrDef");
  cases.Plain<ConstraintDef>("ConstraintDef");
  cases.Plain<BlockTrait>("BlockTrait");
  cases.Of("AxesAttr").Works("unknown", [] {
    OpSpec spec;
    spec.axes = static_cast<AxesAttr>(99);
    OpSpec copy = spec;
    copy = std::move(spec);
  });
  cases.Of("GradientKind").Works("unknown", [] {
    OpSpec spec;
    spec.gradient_kind = static_cast<GradientKind>(99);
    Require(!spec.HasGradient(), "none");
  });
  cases.Of("OpKind").Works("feed without a kernel", [] {
    OpRegistry ops;
    ops.Add(Bare().Kind(OpKind::kFeed));
  });
  cases.Of("OpPrecision").Works("unknown", [] { Bare().ComputesIn(static_cast<OpPrecision>(9)); });
  cases.Of("BlockRuns").Works("unknown", [] { Bare().RunsBlock({static_cast<BlockRuns>(9)}); });
  cases.Of("KernelMode").Works("unknown", [] { Require(!OpSpec().HasFastKernel(), "none"); });
  cases.Of("KernelOf").Works("default", [] {
    const Kernel kernel = KernelOf<float>();
    Require(!kernel, "empty");
  });
  cases.Of("NameList").Works("empty", [] {
    const NameList names(std::vector<std::string>{});
    Require(names.begin() == names.end(), "empty");
  });
}

void AddDeclarations(Cases& cases) {
  cases.Of("OpSpec")
      .Fails("default registered", "internal error: ",
             [] {
               OpRegistry ops;
               ops.Add(OpSpec());
             })
      .Fails("an undeclared attr",
             "internal error: ", [] { OpSpec().AttrOf<int32_t>(OpDesc("x"), "none"); })
      .Fails("an undeclared constraint", "internal error: ", [] { OpSpec().Failure("C9", ""); })
      .Works("default and moved from", [] {
        OpSpec spec = Bare().spec();
        const OpSpec moved = std::move(spec);
        Require(!spec.FindInput("X") && spec.Documentation().empty(), "empty");
        spec = moved;
        Require(spec.FindInput("X") && !spec.FindAttr("") && !spec.FindConstraint(""), "assigned");
        Require(!spec.FileOf(OpDesc("x")) && spec.NumItems(OpDesc("x")) == 1, "none");
      });
  cases.Of("OpDef")
      .Fails("moved from and registered", "internal error: ",
             [] {
               OpDef def = Bare();
               const OpDef moved = std::move(def);
               OpRegistry().Add(def);
             })
      .Fails("without a name", "internal error: ", [] { OpRegistry().Add(Bare("")); })
      .Fails("a range without an attr", "internal error: ", [] { OpDef("x").Range(0, 1); })
      .Fails("words without an attr", "internal error: ", [] { OpDef("x").OneOf({"a"}); })
      .Fails("a trait of an absent slot",
             "internal error: ", [] { OpDef("x").KeepsOutputs({"Out"}, "", true); })
      .Fails("neither gradient nor reason",
             "internal error: ", [] { OpRegistry().Add(OpDef("x").Doc("X.").Gradient(nullptr)); });
  cases.Of("OpRegistry")
      .Fails("an unknown type", "unknown op", [] { OpRegistry().Get(""); })
      .Fails("a type twice", "already",
             [] {
               OpRegistry ops;
               ops.Add(Bare());
               ops.Add(Bare());
             })
      .Fails("a library without a name", "op library", [] { LoadOpLibrary("", DefaultOps()); })
      .Works("moved from", [] {
        OpRegistry ops;
        ops.Add(Bare());
        const OpRegistry moved = std::move(ops);
        Require(!ops.Find("bare") && moved.Find("bare") && ops.Types().empty(), "moved");
        IsDefaultAttr(ops, OpDesc("bare"), {"x", int32_t{1}});
      });
  cases.Of("VerifyProblem")
      .Fails("a null list", "null", [] { CheckOp(OpSpec(), OpDesc(), 0, 0, nullptr); })
      .Works("default", [] { VerifyProblem().ToString(); });
  cases.Of("VerifyOptions").Fails("a program that was moved from", "block", [] {
    ProgramDesc program;
    const ProgramDesc moved = std::move(program);
    VerifyOrThrow(program, DefaultOps());
  });
}

class NoMetas : public MetaTable {
  const VarMeta* Find(const std::string&) const override { return nullptr; }
  void Set(const std::string&, const VarMeta&) override {}
};

class NoArgs : public ArgTable {
  TensorArg Read(const std::string&) override { return {}; }
  TensorArg Write(const std::string&) override { return {}; }
  TensorArg Scratch(DType, const Shape&) override { return {}; }
  TensorArg ScratchArray() override { return {}; }
  TensorArg ScratchValue() override { return {}; }
  int32_t SubBlock(BlockRef, const BlockArgs&) override { return -1; }
  bool HasGradientBlock(BlockRef) override { return false; }
  const Tensor* Constant(const std::string&) override { return nullptr; }
};

class NoMemory : public Workspace {
  VarValue& ValueOf(const TensorArg&) override { return value_; }
  const LoD& LodOf(const TensorArg&) override { return lod_; }
  LoD& OutputLod(const TensorArg&) override { return lod_; }
  VarValue value_;
  LoD lod_;
};

void AddContexts(Cases& cases) {
  cases.Of("GotValues").Works("none", [] { Require(GotValues().text().empty(), "empty"); });
  cases.Of("MetaTable").Works("defaults", [] {
    NoMetas metas;
    MetaTable& table = metas;
    Require(!table.Constant("") && !table.LevelSizes("") && !table.exact(), "nothing is known");
  });
  cases.Plain<NeedsValue>("NeedsValue");
  cases.Plain<NeedsLod>("NeedsLod");
  cases.Of("OpItem").Works("absent slots", [] {
    NoMetas metas;
    const OpDesc op("bare");
    const OpSpec spec = Bare().spec();
    const InferContext context(spec, op, metas);
    Require(!context.HasInput("") && context.NumInputs("none") == 0, "absent");
  });
  cases.Of("InferContext")
      .Fails("an absent input", "input X is required",
             [] {
               NoMetas metas;
               const OpDesc op("bare");
               const OpSpec spec = Bare().spec();
               InferContext(spec, op, metas).Item(7).Input("X", 3);
             })
      .Fails("an undefined var", "nothing defines",
             [] {
               NoMetas metas;
               const OpDesc op("bare", {{"X", {"x"}}});
               const OpSpec spec = Bare().spec();
               InferContext(spec, op, metas).Input("X");
             })
      .Fails("an unknown op type", "unknown op", [] {
        ProgramDesc program;
        InferOp(program.Root(), OpDesc("no_such_op"), DefaultOps());
      });
  cases.Plain<BlockArgs>("BlockArgs");
  cases.Of("PackedLayout").Fails("without a function", "empty function", [] {
    NoArgs args;
    const OpDesc op("bare", {{"X", {"x"}}});
    const OpSpec spec = Bare().spec();
    PrepareContext(spec, op, args).Packed("X", {});
  });
  cases.Of("KernelWay").Fails("without a function", "empty function", [] {
    NoArgs args;
    const OpDesc op("bare");
    const OpSpec spec = Bare().spec();
    PrepareContext(spec, op, args).Choose({}, {{"none", {}}});
  });
  cases.Of("ArgTable").Works("defaults", [] {
    NoArgs args;
    ArgTable& table = args;
    table.NoteKernel("");
  });
  cases.Of("PrepareContext")
      .Works("absent slots",
             [] {
               NoArgs args;
               const OpDesc op("bare");
               const OpSpec spec = Bare().spec();
               const PrepareContext context(spec, op, args);
               Require(!context.Input("X", 9) && !context.Output("", 9), "absent");
               Require(context.Inputs("none").empty() && !context.Constant("X"), "absent");
             })
      .Fails("files without NamesFile", "internal error: ",
             [] {
               NoArgs args;
               const OpDesc op("bare");
               const OpSpec spec = Bare().spec();
               PrepareContext(spec, op, args).files();
             })
      .Fails("random numbers of an absent output", "internal error: ", [] {
        NoArgs args;
        const OpDesc op("bare");
        const OpSpec spec = Bare().spec();
        PrepareContext(spec, op, args).RandomStream("Out");
      });
  cases.Of("Workspace").Fails("a block that cannot run", "internal error: ", [] {
    NoMemory memory;
    memory.RunBlock(0);
  });
}

void AddGradients(Cases& cases) {
  cases.Plain<GradientBlockRequest>("GradientBlockRequest");
  cases.Of("GradientBlock").Works("none", [] {
    Require(GradientBlock::Find({}, "x").empty() && GradientBlock().idx == -1, "none");
  });
  cases.Of("GradientContext")
      .Fails("without an op", "null", [] { GradientContext(DefaultOps(), {}); })
      .Fails("without a block", "null", [] {
        const OpDesc op("relu");
        GradientContext::Request request;
        request.op = &op;
        GradientContext(DefaultOps(), request);
      });
}

void AddWriters(Cases& cases) {
  cases.Plain<WriterOptions>("WriterOptions");
  cases.Of("Writer")
      .Fails("a null op", "null",
             [] {
               ProgramDesc program;
               Writer(program.Root(), DefaultOps()).Append(std::unique_ptr<OpDesc>());
             })
      .Fails("an unknown op type", "unknown op",
             [] {
               ProgramDesc program;
               Writer(program.Root(), DefaultOps()).Make("", {});
             })
      .Fails("an absent var", "no var",
             [] {
               ProgramDesc program;
               Writer(program.Root(), DefaultOps()).Var("");
             })
      .Fails("an empty Variable", "empty Variable",
             [] {
               const Variable none;
               Writer::Of({&none});
             })
      .Fails("a name for what the last op did not make", "internal error: ",
             [] {
               ProgramDesc program;
               Writer(program.Root(), DefaultOps())
                   .Named("hint", Variable(&program.Root(), &program.Root().Var("x")));
             })
      .Fails("a formula with a variable of another program", "another program",
             [] {
               ProgramDesc one, other;
               const Writer writer(one.Root(), DefaultOps());
               const Variable x = FillConstant(writer, DType::kFloat32, 1);
               other.Root().Var(x.name()).SetMeta(x.desc().meta());
               x + Variable::Of(other.Root(), x.name());
             })
      .Fails("a formula without a Writer", "no Writer",
             [] {
               ProgramDesc program;
               program.Root().Var("x");
               Abs(Variable::Of(program.Root(), "x"));
             })
      .Works("moved from", [] {
        ProgramDesc program;
        Writer writer(program.Root(), DefaultOps());
        const Writer moved = std::move(writer);
        FillConstant(writer, DType::kFloat32, 1);
        Require(&writer.block() == &moved.block(), "the same block");
      });
}

}  // namespace op_cases

void AddOps(Cases& cases) {
  using namespace op_cases;
  AddTraits(cases);
  AddDeclarations(cases);
  AddContexts(cases);
  AddGradients(cases);
  AddWriters(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
