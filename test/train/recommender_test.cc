// The example of a recommender: tables of a million rows, of which a step touches a few hundred.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/run/trainer.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle::recommender_test {

std::string Example(const std::string& name) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return (source ? std::string(source) : ".") + "/examples/recommender/" + name;
}

// The data that the example's own program draws, as clicks.npz of the directory.
NamedTensors DrawClicks(const TempDir& dir) {
  ProgramDesc draw = ReadModelText(Example("draw.pbtxt")).main;
  draw.random_seed = 1;
  const std::vector<std::string> names = {"user", "item", "hour", "label", "truth", "popularity"};
  Scope scope;
  const std::vector<Tensor> drawn = Executor().Run(draw, scope, {}, names);
  NamedTensors clicks;
  for (size_t i = 0; i < names.size(); ++i) clicks.emplace_back(names[i], drawn[i]);
  WriteNpz(clicks, dir / "clicks.npz");
  return clicks;
}

bool SameRow(const Tensor& a, const Tensor& b, int64_t row) {
  const int64_t width = a.shape()[1];
  return std::memcmp(a.data<float>() + row * width, b.data<float>() + row * width,
                     sizeof(float) * static_cast<size_t>(width)) == 0;
}

// Rows of the ids that were trained on have changed, and all others have every bit of their
// initial values.
void ExpectOnlyTheseChanged(const std::string& name, const Tensor& before, const Tensor& after,
                            const std::unordered_set<int64_t>& ids) {
  ASSERT_EQ(before.shape(), after.shape()) << name;
  int64_t wrong = 0;
  for (int64_t row = 0; row < before.shape()[0]; ++row)
    wrong += SameRow(before, after, row) == (ids.count(row) > 0);
  EXPECT_EQ(wrong, 0) << name;
}

TEST(Recommender, BeatsPopularityAndLeavesOtherRowsAlone) {
  const TempDir dir;
  const NamedTensors clicks = DrawClicks(dir);
  JobConfig job = ReadJob(Example("job.pbtxt"));
  job.data_dir = dir.path();
  job.output_dir.clear();
  job.train.limit = 200'000;
  job.epochs = 1;
  const TrainResult result = RunJob(job);
  ASSERT_EQ(result.metrics.size(), 3u);
  const double model = result.metrics[0].value, popularity = result.metrics[1].value,
               truth = result.metrics[2].value;
  EXPECT_GT(popularity, 0.6);
  EXPECT_GT(model, popularity + 0.01);
  EXPECT_LT(model, truth);

  Scope initial;
  Executor().Run(result.startup, initial);
  const auto seen = [&](size_t column) {
    const int64_t* ids = clicks[column].second.data<int64_t>();
    return std::unordered_set<int64_t>(ids, ids + job.train.limit);
  };
  const std::unordered_set<int64_t> users = seen(0), items = seen(1);
  EXPECT_LE(users.size(), 2000u);
  EXPECT_LE(items.size(), 1000u);
  int tables = 0;  // weights and factors, and two moments of each
  for (const std::string& name : initial.LocalNames()) {
    const Tensor& before = initial.Get(name);
    if (before.shape().rank() != 2 || before.shape()[0] != 1'000'000) continue;
    ExpectOnlyTheseChanged(name, before, result.scope.Get(name),
                           name.starts_with("user") ? users : items);
    ++tables;
  }
  EXPECT_EQ(tables, 12);
  for (const char* table : {"users.w_0@GRAD", "items.w_0@GRAD"}) {
    const VarDesc* gradient = result.main.Root().FindVar(table);
    ASSERT_TRUE(gradient) << table;
    EXPECT_EQ(gradient->type(), VarType::kSelectedRows) << table;
  }
}
}  // namespace coracle::recommender_test
