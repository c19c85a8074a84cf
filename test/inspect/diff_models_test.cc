// Differences between large programs: programs of many ops, and real models. The expected
// differences follow from how the second program was made from the first.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/inspect/diff_programs.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

namespace coracle::diff_models_test {

// As many ops as the largest programs have. Quadratic time would be minutes.
TEST(Diff, ManyOps) {
  constexpr int kOps = 100'000;
  const auto make = [](const std::string& prefix, int extra) {
    ProgramDesc program;
    std::string x = "x";
    for (int i = 0; i < kOps; ++i) {
      const std::string y = prefix + std::to_string(i);
      Append(program.Root(), i % 3 == 0 ? "tanh" : "relu", x, y);
      x = y;
      if (i == extra) {
        Append(program.Root(), "sigmoid", x, "extra");
        x = "extra";
      }
    }
    return program;
  };
  const ProgramDesc a = make("a", -1);
  EXPECT_TRUE(Diff(a, make("a", -1)).empty());
  const ProgramDiff inserted = Diff(a, make("a", kOps / 2));
  EXPECT_EQ(NumOps(inserted), 2u);
  EXPECT_TRUE(inserted.renamed.empty());
  const ProgramDiff renamed = Diff(a, make("b", -1));
  EXPECT_EQ(NumOps(renamed), 0u);
  EXPECT_EQ(renamed.renamed.size(), size_t{kOps});
  const ProgramDiff both = Diff(a, make("b", kOps / 2));
  EXPECT_EQ(NumOps(both), 2u);
  EXPECT_EQ(both.renamed.size(), size_t{kOps});
}

// Every variable of every block but parameters, feeds and fetches gets another name.
ProgramDesc WithOtherNames(const ProgramDesc& program, size_t* renamed) {
  ProgramDesc other = program;
  std::map<std::string, std::string> names;
  for (int b = 0; b < other.NumBlocks(); ++b) {
    BlockDesc& block = other.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarDesc& var = block.var(i);
      const VarUses uses = block.Uses(var.name());
      const auto is_end = [](const OpDesc* op) {
        return op->type() == "feed" || op->type() == "fetch";
      };
      const bool end = std::any_of(uses.writers.begin(), uses.writers.end(), is_end) ||
                       std::any_of(uses.readers.begin(), uses.readers.end(), is_end);
      if (var.persistable() || end || (uses.writers.empty() && uses.readers.empty())) continue;
      names[var.name()] = "other_" + std::to_string(names.size());
      block.RenameVar(var, names[var.name()]);
    }
  }
  const auto rename = [&](const std::string& name) {
    return names.count(name) ? names[name] : name;
  };
  other.ForEachOp([&](OpDesc& op) {
    op.RenameInputs(rename);
    op.RenameOutputs(rename);
  });
  *renamed = names.size();
  return other;
}

// Neighbours of which neither uses what the other writes change places.
ProgramDesc WithSwappedNeighbours(const ProgramDesc& program) {
  ProgramDesc other = program;
  BlockDesc& root = other.Root();
  std::vector<std::unique_ptr<OpDesc>> ops = root.ReleaseOps();
  const auto disturbs = [](const OpDesc& writer, const OpDesc& user) {
    return writer.AnyOutput(
        [&](const std::string& name) { return user.Reads(name) || user.Writes(name); });
  };
  for (size_t i = 0; i + 1 < ops.size(); ++i) {
    const bool plain = !ops[i]->HasSubBlock() && !ops[i + 1]->HasSubBlock();
    if (!plain || disturbs(*ops[i], *ops[i + 1]) || disturbs(*ops[i + 1], *ops[i])) continue;
    std::swap(ops[i], ops[i + 1]);
    ++i;
  }
  root.SetOps(std::move(ops));
  return other;
}

TEST(Diff, RealModels) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TestDataDirectory() + "/paddle")) {
    const std::string path = entry.path().string() + "/inference.pdmodel";
    if (!std::filesystem::exists(path)) continue;
    SCOPED_TRACE(path);
    ++models;
    const ProgramDesc a = ReadProgram(path);
    EXPECT_TRUE(Diff(a, a).empty());
    EXPECT_TRUE(Diff(a, WithSwappedNeighbours(a)).empty()) << Text(a, WithSwappedNeighbours(a));
    size_t renamed = 0;
    const ProgramDesc b = WithOtherNames(a, &renamed);
    const ProgramDiff names = Diff(a, b);
    EXPECT_EQ(NumOps(names), 0u) << Text(a, b).substr(0, 3000);
    EXPECT_EQ(names.renamed.size(), renamed);
    // Besides, an op between the first one and its readers.
    ProgramDesc c = b;
    BlockDesc& root = c.Root();
    size_t first = 0;
    while (root.op(first).type() == "feed") ++first;
    std::string result;
    root.op(first).ForEachOutput([&](const std::string& name) { result = name; });
    size_t readers = 0;
    root.Var("inserted").SetMeta(root.FindVar(result)->meta());
    root.ForEachOp([&](OpDesc& op) {
      readers += op.Reads(result) ? 1 : 0;
      op.RenameInput(result, "inserted");
    });
    root.InsertOp(first + 1, OpDesc("abs", {{"X", {result}}}, {{"Out", {"inserted"}}}));
    const ProgramDiff diff = Diff(a, c);
    EXPECT_EQ(NumOps(diff), 1 + readers) << Text(a, c).substr(0, 3000);
    EXPECT_EQ(diff.renamed.size(), renamed);
  }
  EXPECT_EQ(models, 12);
}

}  // namespace coracle::diff_models_test
