// Real models, cut at several places: both parts in turn are the whole.

#include <coracle/edit/edit.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/real_models.h>

#include <cstring>
#include <set>

namespace coracle::extract_real_models_test {

using Names = std::vector<std::string>;
using Feeds = std::map<std::string, Tensor>;

// The variables that ops before position `at` pass to the later ops; empty if one of them cannot
// be fed.
Names Frontier(const BlockDesc& root, size_t at) {
  Names names;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    const VarUses uses = root.Uses(var.name());
    if (var.persistable() || uses.writers.empty() || uses.readers.empty()) continue;
    if (root.IndexOf(*uses.writers.front()) >= at) continue;
    if (root.IndexOf(*uses.readers.back()) < at) continue;
    const bool rewritten = root.IndexOf(*uses.writers.back()) >= at;
    if (rewritten || var.type() != VarType::kLoDTensor) return {};
    names.push_back(var.name());
  }
  return names;
}

bool IsFeed(const Feeds& feeds, const std::string& name) { return feeds.count(name) > 0; }

void ExpectEqual(const Tensor& a, const Tensor& b, bool exact) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  if (exact || a.dtype() != DType::kFloat32) {
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.nbytes()), 0);
    return;
  }
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(double{a.data<float>()[i]}));
    difference =
        std::max(difference, std::abs(double{a.data<float>()[i]} - double{b.data<float>()[i]}));
  }
  EXPECT_LE(difference, 1e-5 * largest);
}

std::vector<Tensor> Results(const ProgramDesc& program, Scope& scope, const Feeds& values,
                            bool optimize) {
  Feeds feeds;
  for (const std::string& name : FeedNames(program)) feeds[name] = values.at(name);
  std::vector<Tensor> results =
      Executor({.optimize = optimize}).Run(program, scope, feeds, FetchNames(program));
  for (Tensor& result : results) result = result.Clone();
  return results;
}

struct Halves {
  ExtractedProgram head, tail;
};

// Around what passes position `at`, or the next one where a cut can be.
Halves Cut(const DrawnModel& model, size_t at) {
  const BlockDesc& root = model.program.Root();
  Names frontier;
  while (at < root.NumOps() && (frontier = Frontier(root, at)).empty()) ++at;
  Names computed;
  for (const std::string& name : frontier) {
    if (!IsFeed(model.feeds, name)) computed.push_back(name);
  }
  EXPECT_FALSE(computed.empty()) << at;
  return {ExtractProgram(model.program, {{}, computed}, DefaultOps()),
          ExtractProgram(model.program, {frontier, model.fetches}, DefaultOps())};
}

TEST(ExtractRealModel, HalvesInTurnAreTheWhole) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(64, [](DrawnModel& model) {
    const size_t ops = model.program.Root().NumOps();
    for (const bool optimize : {false, true}) {
      const auto whole = Results(model.program, model.scope, model.feeds, optimize);
      std::set<size_t> sizes;
      for (const size_t fifth : {1, 2, 3, 4}) {
        SCOPED_TRACE(fifth);
        const Halves halves = Cut(model, ops * fifth / 5);
        const size_t head = halves.head.program.Root().NumOps();
        EXPECT_LT(head, ops);
        sizes.insert(head);
        Feeds between = model.feeds;
        const auto results = Results(halves.head.program, model.scope, model.feeds, optimize);
        for (size_t i = 0; i < results.size(); ++i) between[halves.head.outputs[i]] = results[i];
        const auto end = Results(halves.tail.program, model.scope, between, optimize);
        ASSERT_EQ(end.size(), whole.size());
        for (size_t i = 0; i < end.size(); ++i) ExpectEqual(whole[i], end[i], !optimize);
      }
      EXPECT_GE(sizes.size(), 2u);
    }
  });
}

TEST(MergeRealModel, HalvesAreTheWholeAgain) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(64, [](DrawnModel& model) {
    const auto whole = Results(model.program, model.scope, model.feeds, false);
    const Halves halves = Cut(model, model.program.Root().NumOps() / 2);
    MergeOptions options;
    for (const std::string& name : halves.tail.inputs) {
      if (halves.head.program.Root().FindVar(name)) options.connections.emplace_back(name, name);
    }
    const MergedProgram merged =
        MergePrograms(halves.head.program, halves.tail.program, DefaultOps(), options);
    Scope scope = model.scope.Clone();
    RenameValues(merged.renamed, scope);
    for (const std::string& name : PersistableNames(merged.program)) {
      if (!scope.Has(name)) scope.Set(name, model.scope.Get(name));
    }
    const auto end = Results(merged.program, scope, model.feeds, false);
    ASSERT_EQ(end.size(), whole.size());
    for (size_t i = 0; i < end.size(); ++i) ExpectEqual(whole[i], end[i], true);
  });
}
}  // namespace coracle::extract_real_models_test
