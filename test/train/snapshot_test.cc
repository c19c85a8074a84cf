#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

namespace coracle::snapshot_test {

namespace fs = std::filesystem;

class SnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_ = SmallJob();
    job_.snapshot_dir = dir_ / "s";
  }
  // Runs the job up to that step and saves there.
  std::string TrainTo(int64_t step) {
    job_.max_iter = step;
    return RunJob(job_).snapshot_path;
  }
  std::string Resume() {
    TrainOptions resume;
    resume.resume = true;
    return ErrorOf([&] { RunJob(job_, resume); });
  }
  TempDir dir_;
  JobConfig job_;
};

// Every byte of the small files, a sample of the large ones.
TEST_F(SnapshotTest, AnyByteFlippedIsRefusedWithTheFilesName) {
  const std::string path = TrainTo(3);
  size_t files = 0, flips = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    ++files;
    const std::string name = entry.path().string(), good = ReadFile(name);
    const size_t stride = good.size() / 1000 + 1;
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t at, int byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
    };
    for (size_t at = files % stride; at < good.size(); at += stride, ++flips) {
      put(at, good[at] ^ (1 << (at % 8)));
      ExpectContains(ErrorOf([&] { ReadSnapshot(path); }), name);
      put(at, good[at]);
    }
    ReadSnapshot(path);
  }
  EXPECT_EQ(files, 6u);  // two programs, state, progress, job, manifest
  EXPECT_GT(flips, 3000u);
}

TEST_F(SnapshotTest, TruncatedOrMissingFilesAreNamed) {
  const std::string path = TrainTo(3);
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().string(), good = ReadFile(name);
    for (size_t size : {size_t{0}, good.size() / 2, good.size() - 1}) {
      WriteFileAtomic(name, good.substr(0, size));
      ExpectContains(Resume(), name);
    }
    WriteFileAtomic(name, good + "x");
    ExpectContains(Resume(), name);
    if (!name.ends_with("manifest.json")) {
      fs::remove(name);
      ExpectContains(Resume(), name + ": missing");
    }
    WriteFileAtomic(name, good);
  }
  fs::remove(path + "/manifest.json");
  ExpectContains(Resume(), "damaged snapshot: " + path + "/manifest.json");
}

TEST_F(SnapshotTest, AnotherVersionIsToldFromDamage) {
  const std::string path = TrainTo(2), name = path + "/manifest.json";
  std::string text = ReadFile(name);
  const std::string version = "\"version\": 2";
  text.replace(text.find(version), version.size(), "\"version\": 7");
  WriteFileAtomic(name, text);
  ExpectContains(Resume(), "a snapshot of version 7; this coracle reads version 2");
}

// With a checksum that agrees, as whoever means harm would write it.
TEST_F(SnapshotTest, ManifestsAreCheckedKeyByKey) {
  const std::string path = TrainTo(2), name = path + "/manifest.json", good = ReadFile(name);
  using Json = nlohmann::ordered_json;
  auto error = [&](const std::function<void(Json&)>& change) {
    Json json = Json::parse(good);
    json.erase("checksum");
    change(json);
    std::array<char, 9> crc;
    std::snprintf(crc.data(), crc.size(), "%08x", Crc32c(json.dump()));
    json["checksum"] = crc.data();
    WriteFileAtomic(name, json.dump(2) + "\n");
    return ErrorOf([&] { ReadSnapshot(path); });
  };
  const std::string start = "damaged snapshot: " + name + ": ";
  EXPECT_EQ(error([](Json& j) { j["data"].erase("drop_last"); }),
            start + "data lacks the key 'drop_last'");
  EXPECT_EQ(error([](Json& j) { j["data"]["drop_last"] = 3; }),
            start + "data.drop_last must be true or false, got 3");
  EXPECT_EQ(error([](Json& j) { j["step"] = uint64_t{1} << 63; }),
            start + "step must lie in [0, 9223372036854775807], got 9223372036854775808");
  EXPECT_EQ(error([](Json& j) { j["machine"]["threads"] = int64_t{1} << 40; }),
            start + "machine.threads must lie in [0, 2147483647], got 1099511627776");
  EXPECT_EQ(error([](Json& j) { j["evaluations"][0]["values"] = "x"; }),
            start + "evaluations[0].values must be a list, got 'x'");
  EXPECT_EQ(error([](Json& j) { j["files"]["main.pb"]["crc32c"] = "zz"; }),
            start + "files.main.pb.crc32c must be 8 hexadecimal digits, got 'zz'");
  EXPECT_EQ(error([](Json& j) {
              j["files"]["../x"] = {{"bytes", 0}, {"crc32c", "00000000"}};
            }),
            start + "files.../x is not the name of a file next to it");
  WriteFileAtomic(name, std::string(20'000'000, '['));
  EXPECT_EQ(ErrorOf([&] { ReadSnapshot(path); }),
            start + "lists and objects are nested more than 32 deep");
}

TEST_F(SnapshotTest, LinksAreDamage) {
  const std::string path = TrainTo(2);
  for (const char* file : {"state.pdiparams", "manifest.json"}) {
    fs::rename(path + "/" + file, dir_ / "kept");
    fs::create_symlink(dir_ / "kept", path + "/" + file);
    EXPECT_EQ(ErrorOf([&] { ReadSnapshot(path); }),
              "damaged snapshot: " + path + "/" + file + ": a symbolic link");
    fs::rename(dir_ / "kept", path + "/" + file);
  }
  ReadSnapshot(path);
  // Nor does a run write through one.
  fs::remove(dir_ / "s/LATEST");
  fs::create_symlink(dir_ / "victim", dir_ / "s/LATEST");
  ExpectContains(Resume(), "s/LATEST' is a symbolic link to a file");
  EXPECT_FALSE(FileExists(dir_ / "victim"));
}

// Files of a killed process: a directory under a temporary name, and the previous LATEST.
TEST_F(SnapshotTest, WhatWasNotFinishedIsNeverTaken) {
  const std::string path = TrainTo(4);
  const std::string partial = dir_ / "s/.coracle-999999999-0.tmp";
  fs::create_directory(partial);
  fs::copy(path + "/manifest.json", partial + "/manifest.json");
  EXPECT_EQ(FindSnapshot(dir_ / "s"), path);
  // LATEST names what is gone: the newest that is there.
  WriteFileAtomic(dir_ / "s/LATEST", "step_00000099\n");
  EXPECT_EQ(FindSnapshot(dir_ / "s"), path);
  WriteFileAtomic(dir_ / "s/LATEST", "../s\n");
  EXPECT_EQ(FindSnapshot(dir_ / "s"), path);
  // The next run clears it away.
  TrainOptions resume;
  resume.resume = true;
  job_.max_iter = 5;
  RunJob(job_, resume);
  EXPECT_FALSE(FileExists(partial));
  EXPECT_EQ(FindSnapshot(dir_ / "s"), dir_ / "s/step_00000005");
}

TEST_F(SnapshotTest, AllVariablesOfTheOptimizerAreKept) {
  job_.training.optimizers = {AdamOptions{}};
  const std::string path = TrainTo(3);
  const SavedSnapshot saved = ReadSnapshot(path);
  EXPECT_EQ(saved.state.step, 3);
  EXPECT_EQ(saved.state.position, 3);
  EXPECT_EQ(saved.job_text, job_.text);
  size_t moments = 0;
  for (const std::string& name : saved.variables.LocalNames())
    moments += name.find("moment") != std::string::npos;
  EXPECT_EQ(moments, 8u);  // two of each of four parameters
}

TEST_F(SnapshotTest, MismatchesAreNamedAndOverridden) {
  const std::string path = TrainTo(6);
  job_.batch_size = 30;
  job_.random_seed = 9;
  job_.max_iter = 7;
  TrainOptions resume;
  resume.resume = true;
  try {
    RunJob(job_, resume);
    FAIL() << "the snapshot is of another job";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), path + " cannot be continued: its random_seed is 1, the job's is 9");
    ExpectContains(e.details(), "its batch_size is 20, the job's is 30");
    ExpectContains(e.details(), "--override continues all the same");
  }
  resume.override_mismatch = true;
  std::vector<std::string> messages;
  TrainCallbacks callbacks;
  callbacks.on_message = [&](const std::string& line) { messages.push_back(line); };
  const TrainResult result = RunJob(job_, resume, callbacks);
  EXPECT_EQ(result.steps, 7);
  ASSERT_EQ(messages.size(), 3u);
  ExpectContains(messages[0], "its random_seed is 1, the job's is 9");
  ExpectContains(messages[2], "epoch 1 starts again");
}

// As many rows of the same file, with other values.
TEST_F(SnapshotTest, OtherValuesOfTheDataAreRefused) {
  const auto write = [&](float last) {
    Tensor image = Tensor::Zeros(DType::kFloat32, {150, 784});
    for (int64_t i = 0; i < image.numel(); ++i)
      image.data<float>()[i] = static_cast<float>(i % 13) / 13;
    image.data<float>()[image.numel() - 1] = last;
    Tensor label = Tensor::Zeros(DType::kInt64, {150, 1});
    for (int64_t i = 0; i < 150; ++i) label.data<int64_t>()[i] = i % 10;
    WriteNpz({{"image", image}, {"label", label}}, dir_ / "data.npz");
  };
  NpzOptions npz;
  npz.file = dir_ / "data.npz";
  job_.train.source = npz;
  write(0.5f);
  const std::string path = TrainTo(6);
  job_.max_iter = 7;
  TrainOptions resume;
  resume.resume = true;
  EXPECT_EQ(RunJob(job_, resume).steps, 7);  // the same values
  write(0.25f);
  job_.max_iter = 8;
  ExpectContains(Resume(), "cannot be continued: the values of its training data, ");
  resume.override_mismatch = true;
  EXPECT_EQ(RunJob(job_, resume).steps, 8);
}

// A mismatch names the first difference, and does not guess at the rest.
TEST_F(SnapshotTest, AnotherModelBesidesAnotherClip) {
  job_.training.optimizers = {SgdOptions{.learning_rate = 0.05}};
  job_.training.optimizers[0].gradient_clip = ClipGradByNorm(1);
  TrainTo(3);
  job_.max_iter = 4;
  const JobConfig same = job_;
  const auto expect_no_guess = [&] {
    const std::string message = Resume();
    ExpectContains(message, "it is of another model (its -> the job's): ");
    for (const char* guess : {"the models are the same", "older", "clip gradients by norm"})
      EXPECT_EQ(message.find(guess), std::string::npos) << message;
  };
  job_.training.optimizers = {AdamOptions{}};
  job_.training.optimizers[0].gradient_clip = ClipGradByNorm(1);
  expect_no_guess();
  job_ = same;
  job_.training.optimizers[0].gradient_clip = ClipGradByGlobalNorm(1);
  job_.model_text.replace(job_.model_text.find("size: 16"), 8, "size: 17");
  expect_no_guess();
}

// Another layer: what is the same goes on, the rest is new.
TEST_F(SnapshotTest, OverrideTakesTheVariablesThatFit) {
  const std::string path = TrainTo(6);
  const SavedSnapshot saved = ReadSnapshot(path);
  job_.model_text.replace(job_.model_text.find("size: 16"), 8, "size: 17");
  job_.max_iter = 6;  // nothing is trained any more
  TrainOptions resume;
  resume.resume = resume.override_mismatch = true;
  std::string all;
  TrainCallbacks callbacks;
  callbacks.on_message = [&](const std::string& line) { all += line + "\n"; };
  const TrainResult result = RunJob(job_, resume, callbacks);
  ExpectContains(all, "not in the snapshot, and new: fc_0.b_0");
  EXPECT_TRUE(BitEqual(result.scope.Get("fc_1.b_0"), saved.variables.Get("fc_1.b_0")));
  EXPECT_EQ(result.scope.Get("fc_0.w_0").shape(), (Shape{784, 17}));
}

// Caffe's solverstate names its weights by a path, relative to wherever the process is.
TEST_F(SnapshotTest, GoesOnWhereItWasMovedTo) {
  TrainTo(3);
  fs::rename(dir_ / "s", dir_ / "moved");
  job_.snapshot_dir = dir_ / "moved";
  job_.max_iter = 4;
  TrainOptions resume;
  resume.resume = true;
  const TrainResult moved = RunJob(job_, resume);
  EXPECT_EQ(moved.steps, 4);
  job_.snapshot_dir = "";
  EXPECT_TRUE(BitEqual(moved.scope.Get("fc_0.w_0"), RunJob(job_).scope.Get("fc_0.w_0")));
}

// Caffe looks at the number of state blobs alone, so that SGD's go into Nesterov or RMSProp.
TEST_F(SnapshotTest, AnotherOptimizerWithTheSameStateIsRefused) {
  TrainTo(3);
  job_.max_iter = 4;
  job_.training.optimizers = {MomentumOptions{.learning_rate = 0.05, .use_nesterov = true}};
  ExpectContains(Resume(), "of another model");
  job_.training.optimizers = {AdagradOptions{.learning_rate = 0.05}};
  ExpectContains(Resume(), "of another model");
}

TEST_F(SnapshotTest, FilesThatGrowTooLargeLeaveTheLastGoodOne) {
  const std::string path = TrainTo(3);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 20'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  TrainOptions resume;
  resume.resume = true;
  job_.max_iter = 5;
  std::string message, details;
  try {
    RunJob(job_, resume);
  } catch (const Error& e) {
    message = e.message();
    details = e.details();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  ExpectContains(message, "no snapshot of step 5: cannot write");
  ExpectContains(message, "File too large");
  ExpectContains(details, "the last good one is " + path);
  EXPECT_EQ(RunJob(job_, resume).steps, 5);
}

TEST_F(SnapshotTest, AFullDiskLeavesTheLastGoodOne) {
  const std::string disk = dir_ / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=400k") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  struct Unmount {
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
    std::string path;
  } unmount{disk};
  job_.snapshot_dir = disk + "/s";
  job_.snapshot_interval = 1;
  job_.keep_snapshots = 0;
  std::string last;
  TrainCallbacks callbacks;
  callbacks.on_snapshot = [&](const std::string& path) { last = path; };
  std::string message, details;
  try {
    RunJob(job_, {}, callbacks);
  } catch (const Error& e) {
    message = e.message();
    details = e.details();
  }
  ExpectContains(message, "no snapshot of step ");
  ExpectContains(message, "No space left on device");
  ASSERT_FALSE(last.empty());
  ExpectContains(details, "the last good one is " + last);
  EXPECT_EQ(FindSnapshot(job_.snapshot_dir), last);
  EXPECT_GT(ReadSnapshot(last).state.step, 0);
}

TEST_F(SnapshotTest, ShownAndCompared) {
  const std::string a = TrainTo(3);
  job_.snapshot_dir = dir_ / "t";
  const std::string b = TrainTo(4);
  const std::string shown = DescribeSnapshot(ReadSnapshot(a));
  ExpectContains(shown, "job 'small', step 3, epoch 0, batch 3 of the data");
  ExpectContains(shown, "batch_size 20, shuffled");
  ExpectContains(shown, "fc_0.w_0");
  ExpectContains(shown, "evaluation   test at step 3: loss=");
  const SavedSnapshot first = ReadSnapshot(a), second = ReadSnapshot(b);
  SavedSnapshot watched = ReadSnapshot(a);
  watched.state.best = {"loss", 0.5, 2, 0.75, 1, "loss"};
  ExpectContains(DescribeSnapshot(watched),
                 "loss=0.5 at step 2; early stop: 1 evaluation without an improvement\n");
  watched.state.best.worse = 2;
  ExpectContains(DescribeSnapshot(watched), "early stop: 2 evaluations without");
  ExpectContains(CompareSnapshots(first, first), " of 10 variables are the same bit for bit");
  const std::string both = CompareSnapshots(first, second);
  ExpectContains(both, "step         3 and 4");
  // The only thing that stays is the learning rate.
  ExpectContains(both, "1 of 10 variables are the same bit for bit");
  // The largest difference of a bias, by hand.
  const Tensor &x = first.variables.Get("fc_1.b_0"), &y = second.variables.Get("fc_1.b_0");
  double most = 0, squares = 0;
  for (int i = 0; i < 10; ++i) {
    most = std::max(most, std::abs(double{x.data<float>()[i]} - double{y.data<float>()[i]}));
    squares += double{x.data<float>()[i]} * double{x.data<float>()[i]};
  }
  char line[80];
  std::snprintf(line, sizeof line, "%.6g", most);
  const size_t row = both.find("fc_1.b_0 ");
  ASSERT_NE(row, std::string::npos);
  const std::string text = both.substr(row, both.find('\n', row) - row);
  ExpectContains(text, line);
  std::snprintf(line, sizeof line, "%.6g", std::sqrt(squares));
  ExpectContains(text, line);
}

// A manifest, as anybody may have written it, whose names hold line ends.
TEST_F(SnapshotTest, NamesForgeNoLines) {
  const std::string path = TrainTo(1);
  SavedSnapshot snapshot = ReadSnapshot(path), other = ReadSnapshot(path);
  const std::string bad = "x\nfinal: loss=0.0001";
  snapshot.state.data = snapshot.state.instructions = bad;
  snapshot.state.evaluations = {{bad, 1, {{bad, 0.5}}}};
  snapshot.state.best = {bad, 0.5, 1, 0};
  snapshot.state.carried = {{bad, Tensor(DType::kFloat32, {1})}};
  snapshot.main.Root().Var(bad).SetPersistable(true);
  const std::string all = DescribeSnapshot(snapshot) + CompareSnapshots(snapshot, other);
  EXPECT_EQ(all.find("\nfinal"), std::string::npos) << all;
  ExpectContains(all, "x\\x0afinal: loss=0.0001");
}

TEST(Weights, NamesForgeNoLines) {
  WeightsReport report;
  report.file = "w.npz";
  report.not_in_model = {"x\nfinal: loss=0.0001"};
  ExpectContains(report.ToString(), "not in the model: x\\x0afinal: loss=0.0001");
  EXPECT_EQ(report.ToString().find('\n'), std::string::npos);
}

// Objects of many keys: their order, and no key twice, one of which would be lost.
TEST(JsonReader, ObjectsOfManyKeys) {
  constexpr int kKeys = 200'000;
  std::string text = "{";
  for (int i = kKeys; i > 0; --i) text += fmt::format("\"{}\":[{},{{}}],", i, i);
  const JsonReader json(text + "\"last\":null}", "j");
  const auto members = json.Members();
  ASSERT_EQ(members.size(), kKeys + 1u);
  EXPECT_EQ(members[0].first, std::to_string(kKeys));
  EXPECT_EQ(members[7].second.Items()[0].Integer(0), kKeys - 7);
  EXPECT_EQ(members.back().first, "last");
  EXPECT_EQ(ErrorOf([] { JsonReader("{\"a\":{\"b\":1,\"c\":2,\"b\":3}}", "j"); }),
            "j: an object has the key 'b' twice");
  EXPECT_EQ(ErrorOf([] { JsonReader("{\"\":1,\"\":2}", "j"); }),
            "j: an object has the key '' twice");
  EXPECT_EQ(JsonReader("{\"a\":{\"b\":1},\"b\":{\"b\":2}}", "j").At("b").At("b").Integer(0), 2);
  EXPECT_EQ(ErrorOf([] { JsonReader("{\"a\":1e999}", "j"); }), "j: a number in it is out of range");
  EXPECT_EQ(ErrorOf([] { JsonReader("[1,]", "j"); }), "j: no JSON from byte 4 on");
}
}  // namespace coracle::snapshot_test
