// The examples of Transformers: they learn, and what a mask hides has no influence.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/test/test_data.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/tools/generate_text.h>
#include <coracle/train/run/trainer.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace coracle::transformer_test {

std::string Example(const std::string& name) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return (source ? std::string(source) : ".") + "/examples/transformer/" + name;
}

// A model of the example as it is used, with random parameters.
class Model {
 public:
  explicit Model(const std::string& name)
      : built_(ReadModelText(Example(name), DefaultOps(), {.train = false})) {
    built_.main = built_.main.CloneForTest();  // without dropout
    built_.startup.random_seed = 1;
    Executor().Run(built_.startup, scope_);
  }
  // Appends the gradients of the loss and returns their names.
  std::vector<std::string> Differentiate() {
    std::vector<std::string> names;
    BlockDesc& root = built_.main.Root();
    for (const ParamAndGrad& p : AppendBackward(Variable(&root, root.FindVar("loss"))))
      names.push_back(p.grad);
    return names;
  }
  std::vector<std::vector<float>> Run(const std::map<std::string, Tensor>& feeds,
                                      const std::vector<std::string>& fetches) {
    std::vector<std::vector<float>> values;
    for (const Tensor& t : Executor().Run(built_.main, scope_, feeds, fetches))
      values.emplace_back(t.data<float>(), t.data<float>() + t.numel());
    return values;
  }

 private:
  BuiltModel built_;
  Scope scope_;
};

Tensor Ids(const Shape& shape, const std::vector<int64_t>& ids) {
  return Tensor::Of<int64_t>(shape, ids);
}

// --- sorting, with a mask of what is padded ---

// Sequences of length 3 and 6, of which the first is padded with three ids.
std::map<std::string, Tensor> PaddedWith(int64_t a, int64_t b, int64_t c) {
  return {{"digits", Ids({2, 6}, {4, 2, 7, a, b, c, 9, 9, 0, 1, 5, 3})},
          {"length", Ids({2, 1}, {3, 6})},
          {"sorted", Ids({2, 6, 1}, {2, 4, 7, c, a, b, 0, 1, 3, 5, 9, 9})}};
}

TEST(TransformerExample, PaddingHasNoInfluence) {
  Model model("sort_model.pbtxt");
  std::vector<std::string> fetches = model.Differentiate();
  EXPECT_GT(fetches.size(), 30u);
  fetches.insert(fetches.begin(), {"logits", "loss"});
  const auto zeros = model.Run(PaddedWith(0, 0, 0), fetches);
  const auto others = model.Run(PaddedWith(8, 1, 6), fetches);
  constexpr size_t kClasses = 10;
  for (size_t i = 0; i < zeros[0].size(); ++i) {
    const size_t position = i / kClasses;
    const bool padding = position >= 3 && position < 6;
    if (!padding) {
      EXPECT_EQ(zeros[0][i], others[0][i]) << i;
    }
  }
  EXPECT_NE(zeros[0], others[0]) << "the padding itself reads as something else";
  for (size_t k = 1; k < fetches.size(); ++k) EXPECT_EQ(zeros[k], others[k]) << fetches[k];
  // Steps inside the window have influence.
  std::map<std::string, Tensor> changed = PaddedWith(0, 0, 0);
  changed["digits"].data<int64_t>()[2] = 8;
  EXPECT_NE(model.Run(changed, {"loss"})[0], zeros[1]);
}

// The same sequence alone, and with a longer one, so that it is padded.
TEST(TransformerExample, MorePaddingChangesNothing) {
  Model model("sort_model.pbtxt");
  const auto padded = model.Run(PaddedWith(5, 5, 5), {"logits"})[0];
  const auto alone = model.Run({{"digits", Ids({1, 3}, {4, 2, 7})},
                                {"length", Ids({1, 1}, {3})},
                                {"sorted", Ids({1, 3, 1}, {2, 4, 7})}},
                               {"logits"})[0];
  ASSERT_EQ(alone.size(), 30u);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], padded[i], 1e-5) << i;
}

// Sequences of up to six digits are learnt in seconds.
TEST(TransformerExample, Sorts) {
  const TempDir dir;
  std::string text = ReadFile(Example("draw.pbtxt"));
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"shape: [44000, 20]", "shape: [44000, 6]"},
                                          {"high: 21", "high: 7"},
                                          {"maxlen: 20", "maxlen: 6"}}) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  }
  ProgramDesc draw = ParseModelText(text).main;
  draw.random_seed = 1;
  Scope scope;
  const std::vector<Tensor> drawn = Executor().Run(draw, scope, {}, {"digits", "sorted"});
  WriteNpz({{"digits", drawn[0]}, {"sorted", drawn[1]}}, dir / "sort.npz");

  JobConfig job = ReadJob(Example("sort.pbtxt"));
  job.data_dir = dir.path();
  job.output_dir.clear();
  job.max_iter = 400;
  job.test.limit = 1000;
  EXPECT_GT(RunJob(job).metrics.at(0).value, 0.8);
}

// --- characters, with a causal mask and a memory ---

// One stream of characters [first, last) of a text, with what is remembered of those before.
class Reader {
 public:
  explicit Reader(Model& model) : model_(model) {
    states_["filled"] = Tensor::Zeros(DType::kFloat32, {1, kMemory});
    for (int i = 0; i < kLayers; ++i)
      states_["memory" + std::to_string(i)] = Tensor::Zeros(DType::kFloat32, {1, kMemory, kWidth});
  }
  // The scores after each of the characters.
  std::vector<float> Read(const std::vector<int64_t>& ids) {
    const auto length = static_cast<int64_t>(ids.size());
    std::map<std::string, Tensor> feeds = states_;
    feeds["text"] = Ids({1, length}, ids);
    feeds["next"] = Tensor::Zeros(DType::kInt64, {1, length, 1});
    std::vector<std::string> fetches = {"logits", "refilled"};
    for (int i = 0; i < kLayers; ++i) fetches.push_back("remembered" + std::to_string(i));
    const auto values = model_.Run(feeds, fetches);
    states_["filled"] = Tensor::Of<float>({1, kMemory}, values[1]);
    for (size_t i = 0; i < kLayers; ++i)
      states_["memory" + std::to_string(i)] =
          Tensor::Of<float>({1, kMemory, kWidth}, values[i + 2]);
    return values[0];
  }

 private:
  static constexpr int kLayers = 4;
  static constexpr int64_t kMemory = 64, kWidth = 128;
  Model& model_;
  std::map<std::string, Tensor> states_;
};

std::vector<int64_t> SomeText(size_t length) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<int64_t>(i * i * 7 % 65));
  return ids;
}

TEST(TransformerExample, TheFutureHasNoInfluence) {
  Model model("shakespeare_model.pbtxt");
  constexpr size_t kLength = 12, kChanged = 7, kClasses = 65;
  std::vector<int64_t> text = SomeText(kLength);
  const std::vector<float> before = Reader(model).Read(text);
  text[kChanged] = (text[kChanged] + 1) % 65;
  const std::vector<float> after = Reader(model).Read(text);
  for (size_t position = 0; position < kLength; ++position) {
    const auto at = static_cast<ptrdiff_t>(position * kClasses);
    const bool same =
        std::equal(before.begin() + at, before.begin() + at + kClasses, after.begin() + at);
    EXPECT_EQ(same, position < kChanged) << position;
  }
}

// A memory of the 64 characters before a batch: reading in parts equals reading at once. Characters
// before the beginning are hidden.
TEST(TransformerExample, MemoryContinuesAText) {
  Model model("shakespeare_model.pbtxt");
  const std::vector<int64_t> text = SomeText(30);
  const std::vector<float> whole = Reader(model).Read(text);
  Reader parts(model);
  std::vector<float> joined;
  for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 11}, {11, 12}, {12, 30}})
    for (float score : parts.Read({text.begin() + begin, text.begin() + end}))
      joined.push_back(score);
  ASSERT_EQ(joined.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(joined[i], whole[i], 1e-4) << i;
}

TEST(TransformerExample, LearnsShakespeareAndWrites) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the text is not there";
  const TempDir dir;
  JobConfig job = ReadJob(Example("shakespeare.pbtxt"));
  job.data_dir = TestDataDirectory() + "/text";
  job.output_dir = dir / "run";
  job.max_iter = 20;
  job.test_iterations = 2;
  EXPECT_LT(RunJob(job).loss, 3.1);
  tools::GenerateOptions options;
  options.prompt = "ROMEO:";
  options.length = 30;
  EXPECT_EQ(tools::GenerateText(dir / "run", options).size(), 30u);
}
}  // namespace coracle::transformer_test
