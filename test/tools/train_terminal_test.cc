// `coracle train` on a terminal, and how its runs end: lines, exit codes, directories.

#include <coracle/framework/base/file.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace coracle::train_terminal_test {

namespace fs = std::filesystem;

constexpr const char* kJob = R"(name: "tiny"
model_text: """
  data { name: "image" shape: [-1, 1, 28, 28] }
  data { name: "label" shape: [-1, 1] dtype: INT64 }
  layer { fc { input: "image" size: 10 output: "logits" error_clip { by_value { max: 1e-4 } } } }
  layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
  layer { mean { input: "ce" output: "loss" } }
"""
train { digits { count: 500 } }
optimizer { sgd { learning_rate: 0.125 } }
batch_size: 50
max_iter: 1000000
display: 40
)";

// The command on a terminal of its own, 100 columns wide.
class Terminal {
 public:
  Terminal(const std::string& directory, const std::string& arguments) {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = 100;
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    const std::string command = "cd " + directory + " && exec " CORACLE_CLI " train " + arguments;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(99);
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    ::close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(const std::string& keys) const {
    EXPECT_EQ(::write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Reads until the text has appeared; to the end for "". False at the end, or after a minute.
  bool ReadTo(const std::string& part) {
    while (part.empty() || text_.find(part) == std::string::npos) {
      pollfd ready = {fd_, POLLIN, 0};
      char buffer[4096];
      if (::poll(&ready, 1, 60000) != 1) return false;
      const ssize_t n = ::read(fd_, buffer, sizeof buffer);
      if (n <= 0) return false;
      text_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }
  int Wait() {
    ReadTo("");
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  const std::string& text() const { return text_; }

 private:
  int fd_ = -1;
  pid_t pid_ = 0;
  std::string text_;
};

class TrainTerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "terminal_test.XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    WriteFileAtomic(dir_ + "/job.pbtxt", kJob);
    int master = -1, slave = -1;
    if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0)
      GTEST_SKIP() << "there are no pseudo-terminals here";
    ::close(master);
    ::close(slave);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string dir_;
};

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in\n" << text;
}

TEST_F(TrainTerminal, CtrlCSavesAndIsNotSeen) {
  Terminal run(dir_, "job.pbtxt");
  ASSERT_TRUE(run.ReadTo("step 80/1000000 ")) << run.text();
  run.Type("\x03");
  EXPECT_EQ(run.Wait(), 128 + SIGINT);
  const std::string& text = run.text();
  EXPECT_EQ(text.find("^C"), std::string::npos) << text;
  const size_t last = text.find("interrupted by SIGINT: step=");
  ASSERT_NE(last, std::string::npos) << text;
  ExpectHas(text.substr(last), "; continue with --resume\r\n");
  // The line of a display stays: it ends with a new line, and the bar begins below it.
  const size_t display = text.find("step 40/1000000 loss=");
  ASSERT_NE(display, std::string::npos);
  const std::string line = text.substr(display, text.find('\n', display) - display);
  ExpectHas(line, " lr=0.125 ");
  ExpectHas(line, " samples/s");
  ExpectHas(line, " error_clip(logits) 40/40 x");
  EXPECT_EQ(line.back(), '\r');
  EXPECT_EQ(line.find("ETA"), std::string::npos) << line;
  ExpectHas(text, " ETA ");
}

TEST_F(TrainTerminal, ARunEndsAsItsExitCodeSays) {
  const auto train = [this](const std::string& arguments, int code) {
    Terminal run(dir_, arguments);
    EXPECT_EQ(run.Wait(), code) << arguments << "\n" << run.text();
    return run.text();
  };
  ExpectHas(train("job.pbtxt --max_iter=3", 0), "\nfinal: loss=");
  ExpectHas(train("job.pbtxt --max_iter=3", 1),
            "job.pbtxt:1:1: the directory 'output/tiny/snapshots' holds another run's output "
            "(step_00000003): --resume continues it, --overwrite replaces it, --out=DIR writes "
            "elsewhere");
  ExpectHas(train("job.pbtxt --overwrite --resume", 2), "exclude each other");
  ExpectHas(train("job.pbtxt --max_iter=2 --overwrite", 0), "\nfinal: loss=");
  ExpectHas(train("job.pbtxt --max_iter=4 --resume", 0), "at step 2\r\n");
  const std::string late = train("job.pbtxt --out=late --max_seconds=0.001", 0);
  ExpectHas(late, "\ntime is up: 0.001 seconds: step=1 snapshot=late/snapshots/step_00000001; ");
  EXPECT_EQ(late.find("final:"), std::string::npos);
  std::string job = kJob;
  job.replace(job.find("0.125"), 5, "3e38");
  job.replace(job.find("1e-4"), 4, "1e4");
  WriteFileAtomic(dir_ + "/nan.pbtxt", job);
  const std::string nan = train("nan.pbtxt --out=nan --max_iter=9", 1);
  ExpectHas(nan, "the loss is nan at step ");
  WriteFileAtomic(dir_ + "/nan.pbtxt", job + "non_finite_loss: WARN\n");
  ExpectHas(train("nan.pbtxt --out=warn --max_iter=9", 3), "\nfinal: loss=nan (the loss was not");
}

TEST_F(TrainTerminal, ErrorsInTheModelBlockHaveTheJobsLines) {
  std::string job = kJob;
  job.replace(job.find("size: 10"), 8, "sise: 10");
  WriteFileAtomic(dir_ + "/typo.pbtxt", job);
  Terminal run(dir_, "typo.pbtxt");
  EXPECT_EQ(run.Wait(), 1);
  ExpectHas(run.text(), "coracle: typo.pbtxt:5:31: sise: no such field in fc; did you mean size?");
}

TEST_F(TrainTerminal, TermSaves) {
  // Waits for a minute at most, and no longer than the run lives.
  FILE* pipe = ::popen(("cd " + dir_ +
                        " && { " CORACLE_CLI " train job.pbtxt --out=t > log & p=$!; "
                        "for i in $(seq 1200); do grep -q 'step 40/' log && break; "
                        "kill -0 $p || break; sleep 0.05; done; kill -TERM $p; "
                        "wait $p; echo code $?; tail -n 1 log; }")
                           .c_str(),
                       "r");
  char buffer[1000] = {};
  EXPECT_GT(std::fread(buffer, 1, sizeof buffer - 1, pipe), 0u);
  ::pclose(pipe);
  ExpectHas(buffer, "code 143\ninterrupted by SIGTERM: step=");
}
}  // namespace coracle::train_terminal_test
