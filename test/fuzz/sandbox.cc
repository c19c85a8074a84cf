#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/fuzz/sandbox.h>
#include <coracle/tools/command_line.h>
#include <coracle/train/run/run.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

namespace coracle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJob = R"(
name: "letters"
model_text: "data { name: 'text' shape: [-1, -1] dtype: INT64 }"
  " data { name: 'next' shape: [-1, -1, 1] dtype: INT64 }"
  " data { name: 'h0' shape: [1, -1, 4] }"
  " layer { embedding { input: 'text' num_embeddings: 3 embedding_dim: 3 output: 'e' } }"
  " layer { gru { input: 'e' hidden_size: 4 initial_h: 'h0' last_h: 'h1' output: 'y' } }"
  " layer { fc { input: 'y' size: 3 num_flatten_dims: 2 output: 'logits' } }"
  " layer { softmax_with_cross_entropy { logits: 'logits' label: 'next' output: 'ce' } }"
  " layer { mean { input: 'ce' output: 'loss' } }"
train { text { file: "text.txt" sequence_length: 12 } }
test { text { file: "text.txt" sequence_length: 12 } }
carry { from: "h1" to: "h0" }
optimizer { adam { learning_rate: 0.02 } }
batch_size: 4
max_iter: 3
display: 1
deploy { input: "text" output: "logits" }
)";

constexpr const char* kModel = R"(
data { name: "x" shape: [-1, 3] }
layer { fc { input: "x" size: 2 act: "relu" output: "h" } }
layer { mean { input: "h" output: "loss" } }
)";

constexpr const char* kFeeds = R"({"format": "coracle.tensors", "version": 1, "tensors": [
  {"name": "x", "dtype": "float32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]}
)";

// Where a descriptor leads for a while.
class Redirected {
 public:
  Redirected(int fd, int to) : fd_(fd), saved_(::dup(fd)) { ::dup2(to, fd); }
  ~Redirected() {
    ::dup2(saved_, fd_);
    ::close(saved_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int fd_, saved_;
};

std::string ContentsOf(int fd) {
  std::string text(static_cast<size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  return ::pread(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) ? text : "";
}

// 0 to 2 of every command; that a value is not finite, train and test say.
bool IsDocumented(int code, const std::vector<std::string>& words) {
  if (code == kRunNotFinite) return !words.empty() && (words[0] == "train" || words[0] == "test");
  return code >= 0 && code <= 2;
}

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), directory).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Sandbox& Sandbox::Get() {
  static Sandbox sandbox;
  return sandbox;
}

Sandbox::Sandbox() {
  std::string name = (fs::temp_directory_path() / "coracle_fuzz_XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary directory");
  path_ = name;
  fs::current_path(path_);
  tools::SetUp("fuzz");
  Make();
  files_ = FilesIn(path_);
  for (const std::string& file : files_) originals_.push_back(ReadFile(file));
}

Sandbox::~Sandbox() {
  std::error_code error;
  fs::current_path("/", error);
  fs::remove_all(path_, error);
}

void Sandbox::Make() {
  std::string text;
  for (uint32_t i = 0, x = 1; i < 400; ++i, x = x * 1664525u + 1013904223u)
    text += x >> 30 ? "ab\n" : "ba\n";
  WriteFileAtomic("text.txt", text);
  WriteFileAtomic("job.pbtxt", kJob);
  WriteFileAtomic("model.pbtxt", kModel);
  WriteNpz({{"x", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}}, "in.npz");
  WriteFileAtomic("in.csv", "x[0],x[1],x[2]\n1,2,3\n4,5,6\n");
  WriteFileAtomic("in.json", kFeeds);
  const std::vector<std::vector<std::string>> steps = {
      {"train", "job.pbtxt", "--out=run", "--threads=1"},
      {"build", "model.pbtxt", "--out=main.pb", "--startup_out=startup.pb"},
      {"run", "startup.pb", "--save_params=params"},
      {"backward", "main.pb", "--loss=loss", "--out=train.pb"},
      {"run", "train.pb", "--params=params", "--feed=in.npz", "--fetch=loss,fc_0.w_0@GRAD",
       "--trace=trace.json", "--save_all=values.npz"}};
  for (const auto& words : steps) {
    const CommandResult result = Run(words);
    if (result.code != 0) throw std::runtime_error(result.text);
  }
}

const std::string& Sandbox::Original(const std::string& file) const {
  const auto at = std::lower_bound(files_.begin(), files_.end(), file) - files_.begin();
  return originals_[static_cast<size_t>(at)];
}

void Sandbox::Restore() {
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
  for (size_t i = 0; i < files_.size(); ++i) {
    MakeDirectories(fs::path(files_[i]).parent_path().empty()
                        ? "."
                        : fs::path(files_[i]).parent_path().string());
    const int fd = ::open(files_[i].c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ::write(fd, originals_[i].data(), originals_[i].size()) < 0)
      throw std::runtime_error("the sandbox cannot be written");
    ::close(fd);
  }
}

CommandResult Sandbox::Run(const std::vector<std::string>& words) {
  const int out = ::memfd_create("output", MFD_CLOEXEC), none = ::open("/dev/null", O_RDONLY);
  CommandResult result;
  {
    const gflags::FlagSaver flags;
    std::fflush(nullptr);
    const Redirected in(0, none), first(1, out), second(2, out);
    result.code = tools::RunCommandLine(words);
    std::cout.flush();
    std::fflush(nullptr);
  }
  result.text = ContentsOf(out);
  ::close(out);
  ::close(none);
  return result;
}

void CheckResult(const CommandResult& result, const std::vector<std::string>& words, bool text) {
  auto fail = [&](const std::string& what) {
    throw std::logic_error(
        fmt::format("{}: {}\n{}", what, Printable(Join(words, " ")), Printable(result.text)));
  };
  for (const char* sign :
       {"internal error", "an unknown exception", "filesystem error", "json.exception",
        "std::", "basic_", "vector::", "map::", "stoul", "bad_"}) {
    if (result.text.find(sign) != std::string::npos) fail(sign);
  }
  if (!IsDocumented(result.code, words)) fail("an exit code of its own");
  if (result.code > 0 && result.text.empty()) fail("no message");
  if (text && Printable(result.text) != result.text) fail("text that acts on a terminal");
}

}  // namespace coracle
