// Models in directories: what is loaded, replaced, refused and unloaded.

#include <coracle/test/serve/small_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace coracle::repository_test {

namespace fs = std::filesystem;

class Repositories : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](MessageLevel, const std::string&) {});
    root_ = folder_.path + "/models";
    fs::create_directories(root_);
  }
  void Open() {
    models_ = std::make_unique<serve::Repository>(serve::ServeOptions{},
                                                  std::make_shared<serve::MetricsTable>());
    models_->AddDirectory(root_);
    models_->Refresh();
  }
  // What the version of the only model answers to 1, and its reason.
  float Answer(const std::string& name, const std::string& version = "") {
    return models_->Find(name, version)->Infer({Tensor::Full<float>({1, 1}, 1)})[0].Item<float>();
  }
  serve::ModelState StateOf(const std::string& name, const std::string& version = "1") {
    for (const serve::ModelState& state : models_->Index())
      if (state.name == name && state.version == version) return state;
    ADD_FAILURE() << "no version " << version << " of " << name;
    return {};
  }
  void Damage(const std::string& file) { std::ofstream(file) << "damaged"; }

  ScratchFolder folder_;
  std::string root_;
  std::unique_ptr<serve::Repository> models_;
};

TEST_F(Repositories, EachModelThatIsNotReadyHasAReason) {
  SaveScale(root_ + "/good", 2);
  SaveScale(root_ + "/bad", 2);
  Damage(root_ + "/bad.pdmodel");
  Open();
  EXPECT_TRUE(StateOf("good").ready);
  EXPECT_EQ(StateOf("good").reason, "");
  EXPECT_FALSE(StateOf("bad").ready);
  EXPECT_NE(StateOf("bad").reason, "");
  EXPECT_FALSE(models_->AllReady());
  // A damaged replacement: the one before serves, and the reason says what is wrong.
  Damage(root_ + "/good.pdmodel");
  models_->Refresh();
  EXPECT_TRUE(StateOf("good").ready);
  EXPECT_NE(StateOf("good").reason, "");
  EXPECT_EQ(Answer("good"), 2);
  // Whole files are loaded again without being asked for.
  SaveScale(root_ + "/good", 3);
  SaveScale(root_ + "/bad", 5);
  models_->Refresh();
  EXPECT_EQ(StateOf("good").reason, "");
  EXPECT_EQ(Answer("good"), 3);
  EXPECT_EQ(Answer("bad"), 5);
  models_->Unload("good");
  EXPECT_EQ(StateOf("good").reason, "unloaded");
  EXPECT_TRUE(models_->AllReady());
}

// The directory of a training run has snapshots next to its model.
TEST_F(Repositories, FoldersWithoutAModelAreLeftOut) {
  SaveScale(root_ + "/good", 2);
  fs::create_directories(root_ + "/snapshots/step_00000020");
  fs::create_directories(root_ + "/versions/3");
  Open();
  EXPECT_TRUE(StateOf("good").ready);
  EXPECT_FALSE(StateOf("versions", "3").ready);
  EXPECT_EQ(models_->Index().size(), 2u);
}

TEST_F(Repositories, LoadReportsTheVersionsThatItLoaded) {
  fs::create_directories(root_ + "/m/1");
  fs::create_directories(root_ + "/m/2");
  SaveScale(root_ + "/m/1/inference", 2);
  SaveScale(root_ + "/m/2/inference", 3);
  Damage(root_ + "/m/2/inference.pdmodel");
  Open();
  const Ended bad = EndOf([&] { models_->Load("m"); });
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.text.substr(0, 10), "version 2:");
  EXPECT_EQ(Answer("m"), 2);
  fs::remove_all(root_ + "/m/2");
  EXPECT_EQ(EndOf([&] { models_->Load("m"); }).status, 200);  // version 2 is gone
  EXPECT_EQ(EndOf([&] { models_->Load("none"); }).status, 404);
}

TEST_F(Repositories, OneNameInTwoPlaces) {
  SaveScale(root_ + "/m", 2);
  Open();
  EXPECT_EQ(Answer("m"), 2);
  fs::create_directories(root_ + "/m");
  SaveScale(root_ + "/m/inference", 3);
  models_->Refresh();
  EXPECT_EQ(Answer("m"), 2);  // goes on
  EXPECT_EQ(StateOf("m").reason,
            fmt::format("two models have the name m: {0}/m and {0}/m.pdmodel; rename or remove one",
                        root_));
  EXPECT_EQ(EndOf([&] { models_->Load("m"); }).status, 400);
  fs::remove(root_ + "/m.pdmodel");
  models_->Refresh();
  EXPECT_EQ(StateOf("m").reason, "");
  EXPECT_EQ(Answer("m"), 3);
  // A model that the command names, and one of a directory.
  serve::Repository both({}, std::make_shared<serve::MetricsTable>());
  SaveScale(folder_.path + "/other", 4);
  both.AddModel("m", folder_.path + "/other.pdmodel");
  EXPECT_THROW(both.AddModel("m", "x"), Error);
  both.AddDirectory(root_);
  both.Refresh();
  EXPECT_FALSE(both.AllReady());
  EXPECT_NE(both.Index().at(0).reason.find("other.pdmodel and " + root_), std::string::npos);
  // Two directories for one number.
  fs::create_directories(root_ + "/n/1");
  fs::create_directories(root_ + "/n/01");
  SaveScale(root_ + "/n/1/inference", 2);
  SaveScale(root_ + "/n/01/inference", 3);
  models_->Refresh();
  EXPECT_NE(StateOf("n").reason.find("/n/01 and "), std::string::npos) << StateOf("n").reason;
}

// A directory that cannot be read says nothing about its models.
TEST_F(Repositories, UnreadableDirectoriesUnloadNothing) {
  SaveScale(root_ + "/m", 2);
  Open();
  fs::rename(root_, root_ + ".away");
  models_->Refresh();
  EXPECT_EQ(Answer("m"), 2);
  Damage(root_);  // a file in its place
  models_->Refresh();
  EXPECT_EQ(Answer("m"), 2);
  fs::remove(root_);
  fs::rename(root_ + ".away", root_);
  models_->Refresh();
  EXPECT_EQ(Answer("m"), 2);
  fs::remove(root_ + "/m.pdmodel");
  models_->Refresh();
  EXPECT_EQ(EndOf([&] { models_->Find("m", ""); }).status, 404);
  EXPECT_THROW(models_->AddDirectory("/no/such/directory"), Error);
}

// Clients ask while the model is replaced: each answer is that of one of the two models, and none
// is an error.
TEST_F(Repositories, ReloadsUnderTraffic) {
  for (const auto& [name, factor] : {std::pair("a", 2.0f), {"b", 3.0f}}) {
    fs::create_directories(folder_.path + "/" + name);
    SaveScale(folder_.path + "/" + name + "/inference", factor);
  }
  fs::create_directory_symlink(folder_.path + "/a", root_ + "/m");
  Open();
  std::atomic<bool> ended{false};
  std::atomic<int> answers{0}, wrong{0}, seen{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      const Tensor x = Tensor::Full<float>({1 + c % 3, 4}, static_cast<float>(c + 1));
      const Tensor twice = Tensor::Full<float>(x.shape(), static_cast<float>(2 * (c + 1))),
                   thrice = Tensor::Full<float>(x.shape(), static_cast<float>(3 * (c + 1)));
      while (!ended) {
        const Ended end = EndOf([&] {
          const Tensor y = models_->Find("m", "")->Infer({x})[0];
          const bool two = BitEqual(y, twice), three = BitEqual(y, thrice);
          seen |= two ? 1 : 2;
          wrong += !two && !three;
        });
        wrong += end.status != 200;
        ++answers;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const int before = answers;
    fs::create_directory_symlink(folder_.path + (i % 2 ? "/a" : "/b"), root_ + "/.new");
    fs::rename(root_ + "/.new", root_ + "/m");
    models_->Refresh();
    EXPECT_EQ(Answer("m"), i % 2 ? 2 : 3);
    EXPECT_TRUE(Becomes([&] { return answers > before + 10; }));
  }
  ended = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(seen, 3);
}

// The first run of the model takes a minute, unless it is ended.
TEST_F(Repositories, StopsWhileTheWatcherLoads) {
  SaveScale(root_ + "/m", 2);
  Open();
  models_->Watch(0.001);
  SaveLoop(root_ + "/endless", -1);
  ASSERT_TRUE(Becomes([&] { return models_->Index().size() == 2; }));
  EXPECT_EQ(Answer("m"), 2);
  models_->Stop();
  EXPECT_TRUE(models_->Index().empty());
  EXPECT_EQ(EndOf([&] { models_->Load("m"); }).status, 503);
  models_->Refresh();
  EXPECT_TRUE(models_->Index().empty());
}

TEST_F(Repositories, WatchesDirectories) {
  Open();
  models_->Watch(0.001);
  SaveScale(root_ + "/m", 2);
  ASSERT_TRUE(Becomes([&] { return EndOf([&] { models_->Find("m", ""); }).status == 200; }));
  EXPECT_EQ(Answer("m"), 2);
  SaveScale(root_ + "/m", 3);
  EXPECT_TRUE(Becomes([&] { return Answer("m") == 3; }));
  fs::remove(root_ + "/m.pdmodel");
  EXPECT_TRUE(Becomes([&] { return EndOf([&] { models_->Find("m", ""); }).status == 404; }));
}

}  // namespace coracle::repository_test
