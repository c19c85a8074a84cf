// A saved model as a layer: the same answers, what is trained, cutting, renaming and saving again.

#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::program_layer_test {

// x -> fc (relu) -> batch_norm -> dropout -> fc -> softmax, with drawn weights, saved.
class ProgramLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    ProgramDesc main, startup;
    startup.random_seed = 7;
    Builder net(main, startup);
    Variable x = net.Data("x", {-1, 4});
    Variable h = net.Fc(x, {.size = 5, .act = "relu", .name = "first"});
    h = net.BatchNorm(
        h,
        {.moving_mean_name = "norm.mean", .moving_variance_name = "norm.variance", .name = "norm"});
    h = net.Dropout(h, {.dropout_prob = 0.5f});
    h = net.Fc(h, {.size = 3, .name = "head", .output = "logits"});
    net.Softmax(h, -1, {.output = "y"});
    Executor exe;
    exe.Run(startup, scope_, {}, {});
    // Statistics that differ from the initial ones.
    scope_.Set("norm.mean", Tensor::Of<float>({5}, std::vector<float>{.1f, .2f, .3f, .1f, .0f}));
    SaveInferenceModel(Path("model"), {"x"}, {"y"}, main, scope_);
    before_ = RunModel(Path("model"));
  }

  std::string Path(const std::string& name) const { return directory_.File(name); }

  static Tensor Batch() {
    Tensor x(DType::kFloat32, {6, 4});
    for (int64_t i = 0; i < 24; ++i)
      x.data<float>()[i] = 0.25f * static_cast<float>((i * 7) % 11) - 1.0f;
    return x;
  }
  static std::vector<float> Values(const Tensor& t) {
    return {t.data<float>(), t.data<float>() + t.numel()};
  }
  static std::vector<float> RunModel(const std::string& path) {
    Scope scope;
    InferenceModel model = LoadInferenceModel(path, scope);
    Executor exe;
    return Values(
        exe.Run(model.program, scope, {{model.feed_names[0], Batch()}}, model.fetch_names)[0]);
  }

  TemporaryDirectory directory_;
  Scope scope_;
  std::vector<float> before_;
};

TEST_F(ProgramLayer, GivesTheAnswersOfTheModel) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable image = net.Data("image", {-1, 4});
  Variable y = net.Program({image}, {.file = Path("model"), .outputs = {"answer"}})[0];
  EXPECT_EQ(y.name(), "answer");
  Scope scope;
  Executor exe;
  exe.Run(startup, scope, {}, {});
  EXPECT_EQ(Values(exe.Run(main, scope, {{"image", Batch()}}, {"answer"})[0]), before_);
}

TEST_F(ProgramLayer, TrainsOnlyWhatIsNotFrozenAndIsSavedAgain) {
  ProgramDesc main, startup;
  startup.random_seed = 3;
  Builder net(main, startup);
  Variable image = net.Data("image", {-1, 4});
  Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable h = net.Program(
      {image}, {.file = Path("model"), .fetches = {"logits"}, .frozen = {"first.*"}})[0];
  Variable logits = net.Fc(h, {.size = 2, .name = "new_head", .output = "new_logits"});
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
  Sgd({.learning_rate = 0.1}).Minimize(loss, startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope, {}, {});
  std::map<std::string, std::vector<float>> at_start;
  for (const std::string& name : scope.LocalNames()) {
    if (const auto* t = std::get_if<Tensor>(scope.Find(name)); t && t->dtype() == DType::kFloat32)
      at_start[name] = Values(*t);
  }
  const Tensor labels = Tensor::Of<int64_t>({6, 1}, std::vector<int64_t>{0, 1, 0, 1, 1, 0});
  for (int i = 0; i < 3; ++i)
    exe.Run(main, scope, {{"image", Batch()}, {"label", labels}}, {loss.name()});
  int moved = 0;
  for (const auto& [name, value] : at_start) {
    const bool same = Values(scope.Get(name)) == value;
    if (name.starts_with("first") || name == "norm.mean" || name == "norm.variance") {
      EXPECT_TRUE(same) << name;
    }
    moved += !same;
  }
  EXPECT_GE(moved, 6) << "norm's scale and bias, head and new_head";

  SaveInferenceModel(Path("tuned"), {"image"}, {"new_logits"}, main, scope);
  const std::vector<float> tuned = RunModel(Path("tuned"));
  ProgramDesc test = main.CloneForTest();
  test.Prune({"new_logits"}, {"image"});
  EXPECT_EQ(Values(exe.Run(test, scope, {{"image", Batch()}}, {"new_logits"})[0]), tuned);
  // Another round changes no byte.
  Scope again;
  InferenceModel model = LoadInferenceModel(Path("tuned"), again);
  SaveInferenceModel(Path("again"), model.feed_names, model.fetch_names, model.program, again);
  EXPECT_EQ(ReadFile(Path("again.pdmodel")), ReadFile(Path("tuned.pdmodel")));
  EXPECT_EQ(ReadFile(Path("again.pdiparams")), ReadFile(Path("tuned.pdiparams")));
}

TEST_F(ProgramLayer, StatisticsAndDropoutOfTrainingByChoice) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable image = net.Data("image", {-1, 4});
  Variable y = net.Program(
      {image}, {.file = Path("model"), .train_statistics = true, .train_dropout = true})[0];
  Scope scope;
  Executor exe;
  exe.Run(startup, scope, {}, {});
  const std::vector<float> mean = Values(scope.Get("norm.mean"));
  PreparedProgram program = exe.Prepare(main, {"image"}, {y.name()});
  const auto first = Values(program.Run(scope, {Batch()})[0]);
  const auto second = Values(program.Run(scope, {Batch()})[0]);
  EXPECT_NE(Values(scope.Get("norm.mean")), mean);
  EXPECT_NE(first, second) << "dropout";
}

TEST_F(ProgramLayer, TwiceWithPrefixes) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable image = net.Data("image", {-1, 4});
  Variable a = net.Program({image}, {.file = Path("model")})[0];
  try {
    net.Program({image}, {.file = Path("model")});
    FAIL() << "the names are taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kAlreadyExists);
    EXPECT_NE(std::string(e.what()).find("give a prefix"), std::string::npos) << e.what();
  }
  Variable b = net.Program({image}, {.file = Path("model"), .prefix = "b/"})[0];
  Scope scope;
  Executor exe;
  exe.Run(startup, scope, {}, {});
  const auto results = exe.Run(main, scope, {{"image", Batch()}}, {a.name(), b.name()});
  EXPECT_EQ(Values(results[0]), before_);
  EXPECT_EQ(Values(results[1]), before_);
}

TEST_F(ProgramLayer, ABeginningIsCutOff) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable h = net.Data("h", {-1, 3});
  Variable y = net.Program({h}, {.file = Path("model"), .feeds = {"logits"}})[0];
  EXPECT_EQ(main.Parameters().size(), 0u);
  Scope scope;
  Tensor zeros = Tensor::Full<float>({2, 3}, 0.0f);
  EXPECT_EQ(Values(Executor().Run(main, scope, {{"h", zeros}}, {y.name()})[0]),
            std::vector<float>(6, 1.0f / 3));
}

TEST_F(ProgramLayer, InModelText) {
  const std::string text = R"(
    data { name: "image" shape: -1 shape: 4 }
    layer { program { input: "image" file: "model" output: "answer" frozen: ".*" } })";
  BuiltModel model = ParseModelText(text, "m.pbtxt", directory_.path());
  Scope scope;
  Executor exe;
  exe.Run(model.startup, scope, {}, {});
  EXPECT_EQ(Values(exe.Run(model.main, scope, {{"image", Batch()}}, {"answer"})[0]), before_);
  EXPECT_EQ(model.main.Parameters().size(), 0u);
}

TEST_F(ProgramLayer, Errors) {
  const auto message = [&](const ProgramOptions& options, int inputs = 1,
                           DType dtype = DType::kFloat32) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    std::vector<Variable> x;
    for (int i = 0; i < inputs; ++i)
      x.push_back(net.Data("in" + std::to_string(i), {-1, 4}, dtype));
    try {
      net.Program(x, options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string file = Path("model");
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message({.file = Path("nothing")}), "no model at");
  has(message({.file = file, .feeds = {"z"}}), "feed: ");
  has(message({.file = file, .fetches = {"logit"}}), "did you mean logits");
  has(message({.file = file}, 2), "the model takes 1 inputs (x), got 2");
  has(message({.file = file}, 1, DType::kInt64), "is float32[-1, 4] in the model");
  has(message({.file = file, .frozen = {"frist.*"}}), "frozen 'frist.*' matches no parameter");
  has(message({.file = file, .frozen = {"("}}), "(");
  has(message({.file = file, .fetches = {"y", "logits"}, .outputs = {"one"}}),
      "1 results are named, the layer yields 2");
}

// A saved model may have marks on its ops; they say nothing about the step that trains the layer.
TEST_F(ProgramLayer, LeavesOutMarksOfATrainingStep) {
  Scope scope;
  InferenceModel model = LoadInferenceModel(Path("model"), scope);
  const TrainingMark mark = {TrainingStage::kSchedule, TrainingPart::kCounter, "x"};
  SetMarks(model.program.Root(), 0, mark);
  SaveInferenceModel(Path("marked"), model.feed_names, model.fetch_names, model.program, scope);
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Program({net.Data("image", {-1, 4})}, {.file = Path("marked")});
  size_t ops = 0;
  main.ForEachOp([&](const OpDesc& op) {
    ++ops;
    for (const char* attr : {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr})
      EXPECT_FALSE(op.HasAttr(attr)) << PrintOp(op);
  });
  EXPECT_GE(ops, 5u);
}

// An update op would stop the gradient.
TEST_F(ProgramLayer, HasForwardOpsOnly) {
  Scope scope;
  InferenceModel model = LoadInferenceModel(Path("model"), scope);
  model.program.ForEachOp([](OpDesc& op) {
    op.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    op.SetAttr(kOpRoleVarAttr, std::vector<std::string>{"x", "x"});
  });
  WriteFileAtomic(Path("model.pdmodel"), SerializeProgram(model.program));
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Program({net.Data("image", {-1, 4})}, {.file = Path("model")});
  main.ForEachOp([](const OpDesc& op) {
    EXPECT_EQ(op.role(), kForward) << PrintOp(op);
    EXPECT_FALSE(op.HasAttr(kOpRoleVarAttr)) << PrintOp(op);
  });
}

// The real classifier, when it is there: with a batch that its export does not say, trained on.
TEST(ProgramLayerOfRealModel, TextDirection) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  const std::string path =
      TestDataDirectory() + "/paddle/ch_ppocr_mobile_v2.0_cls/inference.pdmodel";
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable image = net.Data("image", {-1, 3, 48, 192});
  Variable y = net.Program({image}, {.file = path})[0];
  Scope scope;
  Executor exe;
  exe.Run(startup, scope, {}, {});
  Tensor x = Tensor::Full<float>({2, 3, 48, 192}, 0.25f);
  const Tensor scores = exe.Run(main, scope, {{"image", x}}, {y.name()})[0];
  EXPECT_EQ(scores.shape(), Shape({2, 2}));
  Scope saved;
  InferenceModel model = LoadInferenceModel(path, saved);
  const Tensor expected =
      exe.Run(model.program, saved, {{model.feed_names[0], x}}, model.fetch_names)[0];
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(scores.data<float>()[i], expected.data<float>()[i], 1e-6);
}
}  // namespace coracle::program_layer_test
