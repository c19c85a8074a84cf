// Random edits of programs, refused and accepted: after a refusal the program has the same bytes
// and the same objects.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <random>

namespace coracle::edit_guard_test {

constexpr char kRefused[] = "refused";

class RandomEdits {
 public:
  RandomEdits(ProgramDesc& program, uint64_t seed) : program_(program), random_(seed) {}

  void Edit(int count) {
    for (int i = 0; i < count; ++i) EditOnce();
  }
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

 private:
  BlockDesc& AnyBlock() {
    return program_.Block(static_cast<int>(Below(static_cast<size_t>(program_.NumBlocks()))));
  }
  std::string AnyName() { return "v" + std::to_string(Below(30)); }
  VarDesc* AnyVar(BlockDesc& block) {
    return block.NumVars() == 0 ? nullptr : &block.var(Below(block.NumVars()));
  }
  OpDesc* AnyOp(BlockDesc& block) {
    return block.NumOps() == 0 ? nullptr : &block.op(Below(block.NumOps()));
  }
  OpDesc NewOp() {
    return OpDesc("relu", {{"X", {AnyName()}}}, {{"Out", {AnyName()}}},
                  {{"a", static_cast<int32_t>(Below(9))}});
  }

  void EditOnce() {
    BlockDesc& block = AnyBlock();
    const size_t kind = Below(20);
    if (kind < 6) return EditOps(block, kind);
    if (kind < 11) return EditVars(block, kind);
    if (kind < 13) return EditInGuard();
    if (kind < 14) return EditBlocks();
    if (VarDesc* var = AnyVar(block); var && kind < 17) return ChangeVar(*var, kind);
    if (OpDesc* op = AnyOp(block)) ChangeOp(*op, Below(7));
  }

  void EditOps(BlockDesc& block, size_t kind) {
    const size_t ops = block.NumOps();
    if (kind < 2) block.AppendOp(NewOp());
    if (kind == 2) block.InsertOp(Below(ops + 1), NewOp());
    if (kind == 3 && ops > 0) block.RemoveOp(Below(ops));
    if (kind == 4) block.TruncateOps(ops - Below(std::min<size_t>(ops, 3)));
    if (kind != 5) return;
    if (Below(2)) return block.RemoveOpsIf([&](const OpDesc&) { return Below(4) == 0; });
    std::vector<std::unique_ptr<OpDesc>> taken = block.ReleaseOps();
    if (!taken.empty()) {
      taken[Below(taken.size())]->SetType("changed_outside");
      std::swap(taken.front(), taken[Below(taken.size())]);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(Below(taken.size())));
    }
    block.SetOps(std::move(taken));
  }

  void EditVars(BlockDesc& block, size_t kind) {
    if (kind < 8) block.Var(AnyName());
    if (kind == 8) block.Var(program_.UniqueName("made"));
    if (kind == 9) block.RemoveVar(AnyName());
    if (kind == 10) block.RemoveVarsIf([&](const VarDesc&) { return Below(5) == 0; });
  }

  void EditBlocks() {
    if (Below(3)) {
      program_.AppendBlock(AnyBlock()).SetForwardBlockIdx(0);
    } else if (Below(3)) {
      program_.TruncateBlocks(1 +
                              static_cast<int>(Below(static_cast<size_t>(program_.NumBlocks()))));
    } else {
      ProgramDesc other = program_;
      other.random_seed += 1;
      Below(2) ? program_ = other : program_ = std::move(other);
    }
  }

  void ChangeVar(VarDesc& var, size_t kind) {
    if (kind == 14) var.SetShape({static_cast<int64_t>(Below(5))});
    if (kind == 15) var.SetPersistable(Below(2) == 0);
    if (kind == 16) var.MutableTraining().learning_rate = static_cast<double>(Below(4));
  }

  void ChangeOp(OpDesc& op, size_t kind) {
    if (kind == 0) op.SetType("tanh");
    if (kind == 1) op.SetInput("X", {AnyName(), AnyName()});
    if (kind == 2) op.RemoveOutput("Out");
    if (kind == 3) op.SetAttr("b", static_cast<int32_t>(Below(9)));
    if (kind == 4) op.RemoveAttr("a");
    if (kind == 5) op.RenameInputs([&](const std::string&) { return AnyName(); });
    if (kind == 6) op.is_target_field() = true;
  }

  void EditInGuard() {
    if (++depth_ > 3) return;
    const std::string before = SerializeProgram(program_);
    const std::string error = ErrorOf([&] {
      const EditGuard guard(program_);
      Edit(6);
      if (Below(2)) ThrowInvalid(kRefused);
    });
    --depth_;
    if (error != kRefused) return;
    EXPECT_EQ(SerializeProgram(program_), before);
  }

  ProgramDesc& program_;
  std::mt19937_64 random_;
  int depth_ = 0;
};

std::vector<const void*> Addresses(ProgramDesc& program) {
  std::vector<const void*> all;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    all.push_back(&block);
    for (size_t i = 0; i < block.NumVars(); ++i) all.push_back(&block.var(i));
  }
  return all;
}

// Each name leads to its variable, each variable has its place, and uses are those of the ops.
void ExpectSound(ProgramDesc& program) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    ASSERT_EQ(&block.program(), &program);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      ASSERT_EQ(block.FindVar(block.var(i).name()), &block.var(i));
      ASSERT_EQ(block.FindVarRecursive(block.var(i).name()), &block.var(i));
      ASSERT_EQ(block.var(i).index(), i);
    }
    for (size_t i = 0; i < block.NumOps(); ++i) {
      ASSERT_EQ(block.IndexOf(block.op(i)), i);
      block.op(i).ForEachInput([&](const std::string& name) {
        const auto readers = block.Uses(name).readers;
        EXPECT_NE(std::find(readers.begin(), readers.end(), &block.op(i)), readers.end());
      });
    }
  }
}

TEST(EditGuard, ARefusalChangesNothing) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    ProgramDesc program;
    RandomEdits edits(program, seed);
    edits.Edit(static_cast<int>(10 + seed % 30));
    const std::string before = SerializeProgram(program);
    const auto addresses = Addresses(program);
    const std::string error = ErrorOf([&] {
      const EditGuard guard(program);
      edits.Edit(static_cast<int>(seed % 50));
      ThrowInvalid(kRefused);
    });
    ASSERT_EQ(error, kRefused);
    ASSERT_EQ(SerializeProgram(program), before);
    ASSERT_EQ(Addresses(program), addresses);
    ExpectSound(program);
    edits.Edit(20);  // it may be edited on
    ExpectSound(program);
  }
}

TEST(EditGuard, WhatIsAcceptedStays) {
  ProgramDesc program;
  {
    const EditGuard outer(program);
    program.Root().Var("x");
    const std::string error = ErrorOf([&] {
      const EditGuard inner(program);
      program.Root().Var("y");
      ThrowInvalid(kRefused);
    });
    EXPECT_EQ(error, kRefused);
    EXPECT_EQ(program.Root().FindVar("y"), nullptr);
  }
  EXPECT_NE(program.Root().FindVar("x"), nullptr);
}

// The next name is what it would have been without the refused edit.
TEST(EditGuard, NamesAreDrawnAsBefore) {
  ProgramDesc program, startup;
  program.Root().Var(program.UniqueName("x"));
  ErrorOf([&] {
    const EditGuard guard(program, startup);
    program.Root().Var(program.UniqueName("x"));
    startup.Root().Var("x_1");
    ThrowInvalid(kRefused);
  });
  EXPECT_EQ(program.UniqueName("x"), "x_1");
  EXPECT_EQ(startup.Root().NumVars(), 0u);
}

}  // namespace coracle::edit_guard_test
