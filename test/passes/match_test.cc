// Patterns of ops: what they match, and what is nearly it.

#include <coracle/operators/operators.h>
#include <coracle/passes/match.h>
#include <gtest/gtest.h>

namespace coracle::match_test {

using Names = std::vector<std::string>;

const Pattern& Chain() {
  static const Pattern pattern(R"(
    first:  Out=a = relu|tanh(X=x)
    second: Out=y = elementwise_add(X=a, Y=b))");
  return pattern;
}

class MatchTest : public testing::Test {
 protected:
  OpDesc& Add(const std::string& type, SlotList in, SlotList out, AttrList attrs = {}) {
    return program_.Root().AppendOp(type, std::move(in), std::move(out), std::move(attrs));
  }
  OpDesc& Relu(const std::string& x, const std::string& out) {
    return Add("relu", {{"X", {x}}}, {{"Out", {out}}});
  }
  OpDesc& Sum(const std::string& x, const std::string& y, const std::string& out) {
    return Add("elementwise_add", {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}});
  }
  std::vector<Match> FindAll(const Pattern& pattern) {
    return Matcher(program_.Root(), context_).FindAll(pattern);
  }
  size_t Count(const Pattern& pattern = Chain()) { return FindAll(pattern).size(); }

  ProgramDesc program_;
  PassContext context_{DefaultOps(), {}, {"y"}};
};

TEST_F(MatchTest, NamesAndOps) {
  OpDesc &first = Relu("x", "h"), &second = Sum("h", "w", "y");
  const std::vector<Match> found = FindAll(Chain());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(&found[0].op("first"), &first);
  EXPECT_EQ(&found[0].op("second"), &second);
  EXPECT_EQ((Names{found[0]["x"], found[0]["a"], found[0]["b"], found[0]["y"]}),
            (Names{"x", "h", "w", "y"}));
  EXPECT_TRUE(found[0].Has("a"));
  EXPECT_FALSE(found[0].Has("c"));
  EXPECT_THROW(found[0]["c"], InternalError);
  EXPECT_THROW(found[0].op("third"), InternalError);
}

TEST_F(MatchTest, AllPlacesInOrder) {
  Relu("x", "h1");
  Add("tanh", {{"X", {"x"}}}, {{"Out", {"h2"}}});
  Sum("h2", "w", "y2");
  Sum("h1", "w", "y1");
  const std::vector<Match> found = FindAll(Chain());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["y"], "y1");
  EXPECT_EQ(found[1]["y"], "y2");
}

TEST_F(MatchTest, AnotherTypeOrSlot) {
  Add("sigmoid", {{"X", {"x"}}}, {{"Out", {"h"}}});
  Sum("h", "w", "y");
  Relu("x", "g");
  Sum("w", "g", "z");
  EXPECT_EQ(Count(), 0u);
}

TEST_F(MatchTest, InnerVariableIsSeenByOthers) {
  Relu("x", "h");
  Sum("h", "w", "y");
  EXPECT_EQ(Count(), 1u);
  context_.fetches.insert("h");
  EXPECT_EQ(Count(), 0u) << "fetched";
  context_.fetches.erase("h");
  context_.captured.insert("h");
  EXPECT_EQ(Count(), 0u) << "read in a sub-block";
  context_.captured.clear();
  program_.Root().Var("h").SetPersistable(true);
  EXPECT_EQ(Count(), 0u) << "persistable";
  program_.Root().Var("h").SetPersistable(false);
  Relu("h", "z");
  EXPECT_EQ(Count(), 0u) << "read twice";
}

TEST_F(MatchTest, VariableIsWrittenTwice) {
  Relu("x", "h");
  Sum("h", "w", "y");
  Relu("x", "y");
  EXPECT_EQ(Count(), 0u);
}

TEST_F(MatchTest, WhatIsReadChangesOnTheWay) {
  Relu("x", "h");
  Relu("w", "x");
  Sum("h", "w", "y");
  EXPECT_EQ(Count(), 0u);
}

// The ops of a sub-block are not in the lists of uses of the enclosing block.
TEST_F(MatchTest, WhatIsReadChangesInASubBlockOnTheWay) {
  BlockDesc& inner = program_.AppendBlock(program_.Root());
  Relu("x", "h");
  Add("conditional_block", {}, {}, {{"sub_block", BlockRef{inner.idx()}}});
  Sum("h", "w", "y");
  EXPECT_EQ(Count(), 1u);
  inner.AppendOp("scale", {{"X", {"x0"}}}, {{"Out", {"w0"}}});
  EXPECT_EQ(Count(), 1u);
  inner.AppendOp("scale", {{"X", {"x0"}}}, {{"Out", {"x"}}});
  EXPECT_EQ(Count(), 0u);
}

TEST_F(MatchTest, InputThatTheMatchItselfWrites) {
  Relu("x", "h");
  Sum("h", "h", "y");
  EXPECT_EQ(Count(), 0u);
}

TEST_F(MatchTest, SlotsThatAreNotListed) {
  OpDesc& first = Relu("x", "h");
  Sum("h", "w", "y");
  first.SetInput("More", {"@EMPTY@"});
  first.SetOutput("Saved", {"saved"});
  EXPECT_EQ(Count(), 1u);
  context_.fetches.insert("saved");
  EXPECT_EQ(Count(), 0u) << "somebody sees the output";
  context_.fetches.erase("saved");
  first.SetInput("More", {"m"});
  EXPECT_EQ(Count(), 0u) << "an input has a part in the result";
  EXPECT_EQ(Count(Pattern("first: Out=a = relu(X=x, ...)")), 1u);
  EXPECT_EQ(Count(Pattern("first: Out=a = relu(X=x, More=m)")), 1u);
}

TEST_F(MatchTest, OutputsThatMoveMustNotBeUsedInBetween) {
  const Pattern pattern(R"(
    first:  Out=a, ... = relu(X=x)
    second: Out=y = elementwise_add(X=a, Y=b))");
  Relu("x", "h").SetOutput("Side", {"side"});
  Sum("h", "w", "y");
  Relu("side", "z");
  EXPECT_EQ(Count(pattern), 1u) << "read behind the last op";
  program_.Root().RemoveOp(1);
  Sum("h", "w", "y");
  EXPECT_EQ(Count(pattern), 0u) << "read before it";
}

TEST_F(MatchTest, OptionalInput) {
  const Pattern pattern("op: Out=y = relu(X=x, Bias=b?)");
  Relu("x", "y");
  ASSERT_EQ(Count(pattern), 1u);
  EXPECT_FALSE(FindAll(pattern)[0].Has("b"));
  program_.Root().op(0).SetInput("Bias", {"w"});
  EXPECT_EQ(FindAll(pattern).at(0)["b"], "w");
}

TEST_F(MatchTest, OneNameIsOneVariable) {
  const Pattern twice("op: Out=y = elementwise_add(X=x, Y=x)");
  Sum("x", "w", "z");
  EXPECT_EQ(Count(twice), 0u);
  Sum("x", "x", "y");
  EXPECT_EQ(Count(twice), 1u);
}

TEST_F(MatchTest, CopiesThatWereComputedAgain) {
  const Pattern pattern("op: Out=y = elementwise_add(X=x, Y=x)");
  Relu("x", "h");
  Add("relu", {{"X", {"x"}}}, {{"Out", {"h2"}}}, {{"recomputed_from", Names{"h"}}});
  Sum("h", "h2", "y");
  EXPECT_EQ(Count(pattern), 1u);
}

TEST_F(MatchTest, FromKnownVariables) {
  Relu("x", "h");
  Relu("w", "g");
  Sum("h", "w", "y");
  const std::vector<Match> found = FindAll(Chain());
  ASSERT_EQ(found.size(), 1u);
  const Matcher matcher(program_.Root(), context_);
  const auto other = matcher.Find(Pattern("op: Out=z = relu(X=b)"), found[0]);
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)["z"], "g");
  EXPECT_FALSE(matcher.Find(Pattern("op: Out=z = tanh(X=b)"), found[0]));
}

// The second candidate is the right one.
TEST_F(MatchTest, GoesBack) {
  const Pattern pattern(R"(
    one:   Out=a, ... = relu(X=x)
    two:   Out=b = elementwise_add(X=c, Y=x)
    three: Out=y = elementwise_mul(X=a, Y=b))");
  Relu("x", "h");
  Sum("w", "x", "wrong");
  Sum("v", "x", "right");
  Add("elementwise_mul", {{"X", {"h"}}, {"Y", {"right"}}}, {{"Out", {"y"}}});
  ASSERT_EQ(Count(pattern), 1u);
  EXPECT_EQ(FindAll(pattern)[0]["c"], "v");
}

TEST_F(MatchTest, RewritesStandWhereTheLastOpStood) {
  Relu("x", "h");
  Relu("x", "other");
  Sum("h", "w", "y");
  Relu("y", "z");
  Rewrites rewrites(program_.Root());
  const OpDesc made("tanh", {{"X", {"x"}}}, {{"Out", {"t"}}}), last("tanh", {{"X", {"t"}}}, {});
  rewrites.Replace(FindAll(Chain()).at(0), {made, last});
  rewrites.Apply();
  Names types;
  program_.Root().ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  EXPECT_EQ(types, (Names{"relu", "tanh", "tanh", "relu"}));
  EXPECT_EQ(program_.Root().Uses("t").readers.size(), 1u);
}

TEST(PatternText, MistakesAreInternalErrors) {
  EXPECT_THROW(Pattern("Out=y = relu(X=x)"), InternalError);
  EXPECT_THROW(Pattern("op: Out=y relu(X=x)"), InternalError);
  EXPECT_THROW(Pattern("op: Out=y = relu(x)"), InternalError);
}
}  // namespace coracle::match_test
