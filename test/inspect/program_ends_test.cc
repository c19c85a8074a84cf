#include <coracle/inspect/inspect.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

namespace coracle::program_ends_test {

using Names = std::vector<std::string>;

TEST(ProgramEnds, WithoutFeedAndFetchOps) {
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable x = b.Data("x", {-1, 3});
  const Variable unused = b.Data("unused", {-1, 3});
  const Variable h = b.Fc(x, {.size = 2});
  const Variable y = b.Relu(h), z = b.Tanh(h);
  EXPECT_EQ(InputNames(main, DefaultOps()), Names{"x"});
  EXPECT_EQ(OutputNames(main, DefaultOps()), (Names{y.name(), z.name()}));
  EXPECT_FALSE(HasOpOfKind(main.Root(), OpKind::kFeed, DefaultOps()));
}

void AddFeed(BlockDesc& root, const std::string& name, int32_t column) {
  root.AppendOp("feed", {{"X", {"feed"}}}, {{"Out", {name}}}, {{"col", column}});
}

TEST(ProgramEnds, FeedAndFetchOpsInTheOrderOfTheirColumns) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  AddFeed(root, "b", 1);
  AddFeed(root, "a", 0);
  root.AppendOp("fetch", {{"X", {"a"}}}, {{"Out", {"fetch"}}}, {{"col", 0}});
  EXPECT_EQ(InputNames(program, DefaultOps()), (Names{"a", "b"}));
  EXPECT_EQ(OutputNames(program, DefaultOps()), Names{"a"});
}
}  // namespace coracle::program_ends_test
