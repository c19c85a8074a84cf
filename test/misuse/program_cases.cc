// framework/ir.

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/test/misuse/misuse.h>

#include <functional>
#include <memory>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace program_cases {

void AddAttributes(Cases& cases) {
  cases.Of("AttrType").Works("unknown", [] { ToString(static_cast<AttrType>(99)); });
  cases.Plain<BlockRef>("BlockRef");
  cases.Plain<VarRef>("VarRef");
  cases.Plain<Complex>("Complex");
  cases.Plain<Scalar>("Scalar");
  cases.Plain<RawAttr>("RawAttr");
  cases.Plain<NamedAttr>("NamedAttr");
  cases.Plain<Slot>("Slot");
  cases.Of("Attribute")
      .Fails("read as another type", "STRING", [] { AttributeAs<int32_t>(std::string("x")); })
      .Fails("converted to null", "null",
             [] { ConvertAttribute(Attribute(int32_t{1}), AttrType::kLong, nullptr); })
      .Works("moved from", [] {
        Attribute attr = std::string(100, 'x');
        const Attribute moved = std::move(attr);
        ToString(attr);
        attr = moved;
        Require(attr == moved, "assigned");
      });
  cases.Of("Setting").Works("default and moved from", [] {
    Setting setting{"kind", {{"x", int32_t{1}}}};
    Setting moved = std::move(setting);
    Require(!setting.Find("y") && setting.Get<int32_t>("y", 5) == 5, "absent");
    Require(Setting() == Setting(), "equal");
  });
  cases.Of("OpRole").Fails("no number", "op_role", [] {
    OpDesc op("relu", {}, {}, {{kOpRoleAttr, std::string("x")}});
    op.role();
  });
  cases.Of("OpDesc").Works("default, of no block", [] {
    OpDesc op;
    op.SetInput("", {"", "x"});
    op.RenameInput("x", "");
    op.RemoveInput("none");
    op.RemoveAttr("none");
    op.SetAttr("", Attribute());
    Require(op.role() == kForward && !op.HasInput("X") && op.FirstOutput().empty(), "empty");
    const OpDesc copy = std::move(op);
    PrintOp(copy);
    MarkOf(copy);
    StageOf(copy);
  });
}

ProgramDesc& MovedFrom() {
  static ProgramDesc program;
  static const ProgramDesc moved = std::move(program);
  return program;
}

void AddBlocks(Cases& cases) {
  cases.Plain<VarUses>("VarUses");
  cases.Plain<MutableVarUses>("MutableVarUses");
  cases.Of("BlockDesc")
      .Fails("of no program", "null", [] { BlockDesc(nullptr, 0, -1); })
      .Fails("a var past the end", "no var", [] { ProgramDesc().Root().var(0); })
      .Fails("an op past the end", "no op", [] { ProgramDesc().Root().op(0); })
      .Fails("an op removed past the end", "no op", [] { ProgramDesc().Root().RemoveOp(3); })
      .Fails("an op inserted past the end", "no op",
             [] { ProgramDesc().Root().InsertOp(1, OpDesc()); })
      .Fails("a null op", "null", [] { ProgramDesc().Root().AppendOp(std::unique_ptr<OpDesc>()); })
      .Fails("a list with a null op", "null",
             [] {
               std::vector<std::unique_ptr<OpDesc>> ops(1);
               ProgramDesc().Root().SetOps(std::move(ops));
             })
      .Fails("a predicate of vars without a function", "empty function",
             [] { ProgramDesc().Root().RemoveVarsIf({}); })
      .Fails("a predicate of ops without a function", "empty function",
             [] { ProgramDesc().Root().RemoveOpsIf({}); })
      .Fails("a var twice", "already",
             [] {
               ProgramDesc program;
               program.Root().AppendVar(program.Root().Var("x"));
             })
      .Fails("a var of another block renamed", "does not have",
             [] {
               ProgramDesc one, other;
               one.Root().Var("x");
               one.Root().RenameVar(other.Root().Var("x"), "y");
             })
      .Fails("a var renamed to nothing", "cannot be renamed",
             [] {
               ProgramDesc program;
               program.Root().RenameVar(program.Root().Var("x"), "");
             })
      .Fails("a var renamed to a name in use", "already",
             [] {
               ProgramDesc program;
               program.Root().Var("y");
               program.Root().RenameVar(program.Root().Var("x"), "y");
             })
      .Fails("the place of an op of another block", "internal error: ",
             [] {
               ProgramDesc one, other;
               one.Root().IndexOf(other.Root().AppendOp("relu", {}, {}));
             })
      .Works("no such names", [] {
        ProgramDesc program;
        BlockDesc& root = program.Root();
        Require(!root.FindVar("") && !root.RemoveVar("x") && !root.parent(), "none");
        root.TruncateOps(7);
        root.Uses("x");
        root.SetForwardBlockIdx(9);
        Require(!root.forward_block() && !root.FindVarRecursive("x"), "none");
      });
}

void AddProgram(Cases& cases) {
  cases.Of("ProgramDesc")
      .Fails("a block past the end", "no block 1", [] { ProgramDesc().Block(1); })
      .Fails("a block before the begin", "no block -1", [] { ProgramDesc().Block(-1); })
      .Fails("the root, moved from", "without blocks", [] { MovedFrom().Root(); })
      .Fails("a name, moved from", "without blocks", [] { MovedFrom().UniqueName("x"); })
      .Fails("parameters, moved from", "without blocks", [] { MovedFrom().Parameters(); })
      .Fails("inferred parameters, moved from", "without blocks",
             [] { MovedFrom().InferParameters(); })
      .Fails("pruned, moved from", "without blocks", [] { MovedFrom().Prune({"x"}); })
      .Works("copied and compared, moved from",
             [] {
               const ProgramDesc copy = MovedFrom();
               Require(copy == MovedFrom(), "equal");
               copy.CloneForTest();
               ProgramDesc again = copy;
               again = ProgramDesc();
               again.Root().Var("x");
               ProgramDesc& itself = again;
               again = std::move(itself);
               Require(again.Root().FindVar("x") != nullptr, "kept");
             })
      .Fails("printed, moved from", "without blocks", [] { PrintProgram(MovedFrom()); })
      .Fails("a parent of another program", "another program",
             [] {
               ProgramDesc one, other;
               one.AppendBlock(other.Root());
             })
      .Fails("pruned to an absent var", "no var", [] { ProgramDesc().Prune({""}); });
  cases.Of("PrintOptions").Works("no such block", [] {
    PrintProgram(ProgramDesc(), {.block = 9});
  });
  cases.Plain<variable_functions::Found>("Found");
  cases.Of("Variable")
      .Fails("the name of none", "empty Variable", [] { Variable().name(); })
      .Fails("the block of none", "empty Variable", [] { Variable().program(); })
      .Fails("of null", "empty Variable", [] { Variable(nullptr, nullptr).shape(); })
      .Fails("an absent name", "no var", [] {
        ProgramDesc program;
        Variable::Of(program.Root(), "");
      });
}

void AddStages(Cases& cases) {
  cases.Of("TrainingStage").Works("unknown", [] {
    ToString(static_cast<TrainingStage>(99));
    Require(!FindStage(""), "none");
  });
  cases.Of("TrainingPart").Works("unknown", [] {
    ProgramDesc program;
    Require(!FindPart(program.Root(), TrainingStage::kForward, static_cast<TrainingPart>(99)),
            "none");
  });
  cases.Of("TrainingMark").Works("marks past the end", [] {
    ProgramDesc program;
    SetMarks(program.Root(), 5, {});
  });
  cases.Plain<TrainingParts>("TrainingParts");
}

void AddVars(Cases& cases) {
  struct NoClip : BaseErrorClipAttr {
    void AppendClipOp(BlockDesc&, const std::string&) const override {}
  };
  cases.Of("BaseErrorClipAttr").Fails("saved without Save", "Save", [] {
    SaveErrorClip(NoClip());
  });
  cases.Of("ErrorClipByValue").Fails("min above max", "max", [] { ErrorClipByValue(1, 2); });
  cases.Of("ErrorClipByNorm").Fails("a negative norm", "max_norm", [] { ErrorClipByNorm(-1); });
  cases.Of("ErrorClip")
      .Works("null", [] { Require(!ErrorClip(nullptr).get(), "none"); })
      .Works("of a var",
             [] {
               VarDesc var("x");
               var.SetErrorClip(nullptr);
               Require(!var.error_clip(), "none");
             })
      .Fails("a null loader", "empty function", [] { RegisterErrorClip("none", nullptr); })
      .Fails("a loader without a name", "no name", [] { RegisterErrorClip("", nullptr); });
  cases.Plain<TrainingAttr>("TrainingAttr");
  cases.Of("VarType").Works("unknown", [] { ToString(static_cast<VarType>(99)); });
  cases.Plain<VarMeta>("VarMeta");
  cases.Of("VarDesc").Works("of no block and no name", [] {
    VarDesc var("");
    var.SetShape({-1});
    var.MutableTraining();
    const VarDesc copy = std::move(var);
    Require(copy == copy, "equal");
  });
}

struct FewOptions {
  double rate = 0.1;
};

Fields<FewOptions> FewFields() {
  return Fields<FewOptions>("Few.").Add("rate", &FewOptions::rate, "a rate", RangeFrom(0, 1));
}

void AddFields(Cases& cases) {
  cases.Of("MemberType").Fails("of a field without functions", "few", [] {
    FewOptions options;
    FieldTable::Set({}, "few", Attribute(1.0), &options);
  });
  cases.Plain<FieldRange>("FieldRange");
  cases.Plain<FieldRequired>("FieldRequired");
  cases.Plain<FieldNoDefault>("FieldNoDefault");
  cases.Plain<StandIn>("StandIn");
  cases.Plain<FieldExample>("FieldExample");
  cases.Plain<FieldNumber>("FieldNumber");
  cases.Of("Enumerator").Works("an empty name", [] { const Enumerator e("", 7); });
  cases.Plain<OneOf>("OneOf");
  cases.Plain<NestedFields>("NestedFields");
  cases.Of("FieldSpec").Works("default", [] {
    FewOptions options;
    Require(!FieldTable::ValueOf({}, &options), "a field without functions has no value");
  });
  cases.Of("FieldTable")
      .Fails("null options set", "null",
             [] { FieldTable::Set(FewFields().fields()[0], "few", Attribute(1.0), nullptr); })
      .Fails("null options read", "null",
             [] { FieldTable::ValueOf(FewFields().fields()[0], nullptr); })
      .Fails("null options checked", "null", [] { FewFields().CheckRanges("few", nullptr); })
      .Works("no such kind", [] { Require(!FieldsOfKind({}, ""), "none"); });
  cases.Of("Fields")
      .Fails("a field without a name", "cannot be called",
             [] { FewFields().Add("", &FewOptions::rate, ""); })
      .Fails("a field twice", "already", [] { FewFields().Add("rate", &FewOptions::rate, ""); })
      .Fails("an attr twice", "twice",
             [] {
               FewFields().Read("few", {"few", {{"rate", 0.5}, {"rate", 0.5}}});
             })
      .Works("moved from", [] {
        Fields<FewOptions> fields = FewFields();
        const Fields<FewOptions> moved = std::move(fields);
        fields.Check("few", {.rate = 7});
        moved.Check("few", {.rate = 0.5});
      });
}

}  // namespace program_cases

void AddPrograms(Cases& cases) {
  using namespace program_cases;
  AddAttributes(cases);
  AddBlocks(cases);
  AddProgram(cases);
  AddStages(cases);
  AddVars(cases);
  AddFields(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
