// Random edits of programs, refused and accepted: after a refusal the program has the same bytes,
// objects and names. Some edits run out of memory: the operator new of this binary can fail.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <random>

namespace coracle::edit_guard_test {

constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max();
thread_local int64_t allocations_left = kPlenty;

void* Allocate(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left != kPlenty) --allocations_left;
  if (void* made = std::malloc(size == 0 ? 1 : size)) return made;
  throw std::bad_alloc();
}

}  // namespace coracle::edit_guard_test

[[gnu::noinline]] void* operator new(size_t size) {
  return coracle::edit_guard_test::Allocate(size);
}
[[gnu::noinline]] void* operator new[](size_t size) {
  return coracle::edit_guard_test::Allocate(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept try {
  return coracle::edit_guard_test::Allocate(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
[[gnu::noinline]] void operator delete(void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete[](void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete(void* made, size_t) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete[](void* made, size_t) noexcept { std::free(made); }

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
    const size_t kind = Below(23);
    if (kind >= 20) return EditFields(block, Below(8));
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

  void EditFields(BlockDesc& block, size_t kind) {
    if (kind == 0) FileFields::SetUnknown(block, "\x78\x01");  // field 15
    if (kind == 1) FileFields::SetUnknown(program_, "\x78\x02");
    if (kind == 2) FileFields::ForwardBlock(block) = 0;
    if (kind == 3) program_.SetOpVersions({{{"relu", static_cast<int32_t>(Below(5))}}});
    if (kind == 4) program_.version = 1000000 + static_cast<int64_t>(Below(5));
    if (kind == 4) program_.version_in_legacy_field = Below(2) == 0;
    if (kind == 5) program_.InferParameters();
    if (kind == 6) program_.FreeName(AnyName());
    VarDesc* var = kind == 7 ? AnyVar(block) : nullptr;
    const std::string name = AnyName();
    if (var && !block.FindVar(name)) block.RenameVar(*var, name);
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
    if (kind == 6) op.SetIsTarget(true);
  }

  void EditInGuard() {
    if (depth_ == 3) return;
    ++depth_;
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

// A program's contents as the public interface shows them.
struct State {
  explicit State(ProgramDesc& program)
      : bytes(SerializeProgram(program)),
        for_test(SerializeProgram(program.CloneForTest())),
        parameters(program.Parameters()) {
    for (int b = 0; b < program.NumBlocks(); ++b) {
      BlockDesc& block = program.Block(b);
      objects.push_back(&block);
      for (size_t i = 0; i < block.NumVars(); ++i) objects.push_back(&block.var(i));
      for (int v = 0; v < 30; ++v)
        objects.push_back(block.FindVarRecursive("v" + std::to_string(v)));
    }
  }
  bool operator==(const State&) const = default;

  std::string bytes, for_test;
  std::vector<std::string> parameters;
  std::vector<const void*> objects;
};

// It changes the program's counters.
std::vector<std::string> DrawNames(ProgramDesc& program) {
  std::vector<std::string> names = {program.UniqueName("made")};
  for (int v = 0; v < 30; ++v) names.push_back(program.FreeName("v" + std::to_string(v)));
  return names;
}

// Each name leads to its variable, each variable has its index, and the index of uses agrees with
// the ops.
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
    const State before(program);
    ProgramDesc copy = program;
    const std::string error = ErrorOf([&] {
      const EditGuard guard(program);
      edits.Edit(static_cast<int>(seed % 50));
      ThrowInvalid(kRefused);
    });
    ASSERT_EQ(error, kRefused);
    ASSERT_EQ(State(program), before);
    ASSERT_EQ(DrawNames(program), DrawNames(copy));
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

// The names of inner blocks are known again after a look-up found that they were lost.
TEST(EditGuard, LostNamesAreBack) {
  ProgramDesc program;
  BlockDesc& inner = program.AppendBlock(program.Root());
  BlockDesc& innermost = program.AppendBlock(inner);
  VarDesc& removed = inner.Var("removed");
  VarDesc& renamed = inner.Var("renamed");
  ErrorOf([&] {
    const EditGuard guard(program);
    inner.RemoveVar("removed");
    inner.RenameVar(renamed, "other");
    EXPECT_EQ(program.FreeName("removed"), "removed");
    EXPECT_EQ(program.FreeName("renamed"), "renamed");
    ThrowInvalid(kRefused);
  });
  EXPECT_EQ(innermost.FindVarRecursive("removed"), &removed);
  EXPECT_EQ(innermost.FindVarRecursive("renamed"), &renamed);
  EXPECT_EQ(program.FreeName("removed"), "removed_0");
  EXPECT_EQ(program.FreeName("renamed"), "renamed_0");
}

TEST(EditGuard, PredicatesMayThrow) {
  ProgramDesc program;
  for (const char* name : {"a", "b", "c"}) program.Root().Var(name);
  for (int i = 0; i < 3; ++i) program.Root().AppendOp("relu", {}, {});
  const State before(program);
  const auto remove = [&] {
    int calls = 0;
    const auto throws_late = [&calls](const auto&) {
      if (++calls == 3) ThrowInvalid(kRefused);
      return true;
    };
    EXPECT_EQ(ErrorOf([&] { program.Root().RemoveVarsIf(throws_late); }), kRefused);
    calls = 0;
    program.Root().RemoveOpsIf(throws_late);
  };
  EXPECT_EQ(ErrorOf(remove), kRefused);
  EXPECT_EQ(State(program), before);
  EXPECT_EQ(ErrorOf([&] {
              const EditGuard guard(program);
              remove();
            }),
            kRefused);
  EXPECT_EQ(State(program), before);
  ExpectSound(program);
}

// A program that is assigned within a guard draws names as before if it is put back.
TEST(EditGuard, CountersOutliveAnAssignment) {
  ProgramDesc program, other;
  for (int i = 0; i < 3; ++i) program.UniqueName("x");
  ErrorOf([&] {
    const EditGuard guard(program);
    program = other;
    EXPECT_EQ(program.UniqueName("x"), "x_0");
    ThrowInvalid(kRefused);
  });
  EXPECT_EQ(program.UniqueName("x"), "x_3");
}

TEST(EditGuard, InferredParametersAreForgotten) {
  ProgramDesc program;
  program.Root().Var("w").SetPersistable(true);
  program.Root().AppendOp("relu", {{"X", {"w"}}}, {{"Out", {"y"}}});
  ErrorOf([&] {
    const EditGuard guard(program);
    program.InferParameters();
    EXPECT_EQ(program.Parameters().size(), 1u);
    ThrowInvalid(kRefused);
  });
  EXPECT_TRUE(program.Parameters().empty());
}

struct AllocationsUntilEnd {
  explicit AllocationsUntilEnd(int64_t count) { allocations_left = count; }
  ~AllocationsUntilEnd() { allocations_left = kPlenty; }
};

// No memory is left when the guard puts the program back.
TEST(EditGuard, UndoAllocatesNothing) {
  struct LastAllocation {
    ~LastAllocation() { allocations_left = 0; }
  };
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    ProgramDesc program;
    RandomEdits edits(program, seed);
    edits.Edit(30);
    const State before(program);
    try {
      const AllocationsUntilEnd all(kPlenty);
      const EditGuard guard(program);
      const LastAllocation last;
      edits.Edit(static_cast<int>(seed % 40));
      throw 1;
    } catch (int) {
    }
    ASSERT_EQ(State(program), before);
    ExpectSound(program);
  }
}

// Memory may run out at any place of an edit, and in nested guards.
TEST(EditGuard, EditsMayRunOutOfMemory) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    ProgramDesc program;
    RandomEdits edits(program, seed);
    edits.Edit(30);
    const State before(program);
    try {
      const AllocationsUntilEnd some(static_cast<int64_t>(edits.Below(400)));
      const EditGuard guard(program);
      edits.Edit(30);
      throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
    ASSERT_EQ(State(program), before);
    ExpectSound(program);
  }
}

// A block that a refused guard made is gone, and the next one may get its address.
TEST(EditGuard, BlocksOfRefusedGuardsLeaveNoRecord) {
  ProgramDesc program;
  const std::string before = SerializeProgram(program);
  const OpDesc op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const auto make_block = [&](int ops) {
    const EditGuard guard(program);
    BlockDesc& block = program.AppendBlock(0);
    for (int i = 0; i < ops; ++i) block.AppendOp(op);
    return &block;
  };
  const std::string error = ErrorOf([&] {
    const EditGuard outer(program);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(ErrorOf([&] {
                  const EditGuard middle(program);
                  make_block(5)->AppendOp(op);
                  ThrowInvalid(kRefused);
                }),
                kRefused);
      BlockDesc& block = *make_block(0);
      block.InsertOp(0, op);
      EXPECT_EQ(block.ReleaseOps().size(), 1u);
      if (i % 2) program.TruncateBlocks(1);
    }
    ThrowInvalid(kRefused);
  });
  EXPECT_EQ(error, kRefused);
  EXPECT_EQ(SerializeProgram(program), before);
}

// An op of the outer guard's record that nested guards release one after the other.
TEST(EditGuard, OpsReleasedInNestedGuardsAreBack) {
  ProgramDesc program;
  for (const char* type : {"relu", "tanh", "exp"}) program.Root().AppendOp(type, {}, {});
  const std::string before = SerializeProgram(program);
  ErrorOf([&] {
    const EditGuard outer(program);
    program.Root().op(1).SetType("changed");
    for (int i = 0; i < 3; ++i) {
      const EditGuard inner(program);
      auto ops = program.Root().ReleaseOps();
      std::swap(ops.front(), ops.back());
      ops.pop_back();
      program.Root().SetOps(std::move(ops));
    }
    ThrowInvalid(kRefused);
  });
  EXPECT_EQ(SerializeProgram(program), before);
}

}  // namespace coracle::edit_guard_test
