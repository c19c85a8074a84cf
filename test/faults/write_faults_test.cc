// Each system call of each way to write files fails in turn: the old files stay, or the new ones
// are whole; the Error names a file and the reason; no temporary file stays.

#include <coracle/convert/models.h>
#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/builder.h>
#include <coracle/test/faults/system_calls.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace coracle::write_faults_test {

namespace fs = std::filesystem;
using faults::Call;
using faults::Fault;
using faults::ScopedFault;

using Files = std::map<std::string, std::string>;  // contents by path in the directory

Files FilesIn(const std::string& directory) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = fs::relative(entry.path(), directory).string();
    if (entry.is_directory()) {
      if (name.find(".coracle-") != name.npos) files[name] = "(a directory)";
      continue;
    }
    std::ifstream in(entry.path(), std::ios::binary);
    files[name] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

// A way to write files. `write(directory, k)` writes contents that depend on k.
struct Writer {
  std::string name;
  std::function<void(const std::string& directory, int k)> write;
  // The files make one whole, which must not be half old and half new while they are written.
  bool together = true;
};

// A program with two parameters, with values that depend on k, and relu or tanh.
struct Model {
  ProgramDesc main, startup;
  Scope scope;

  explicit Model(int k) {
    Builder net(main, startup);
    Variable x = net.Data("x", {-1, 40});
    net.Fc(x, {.size = 30, .act = k % 2 ? "relu" : "tanh", .output = "y"});
    for (const std::string& name : PersistableNames(main)) {
      const Shape& shape = main.Root().FindVar(name)->shape();
      Tensor value(DType::kFloat32, shape);
      for (float& element : value.span<float>()) element = static_cast<float>(k);
      scope.Set(name, value);
    }
  }
  void Save(const std::string& path, InferenceLayout layout) const {
    SaveInferenceModel(path, {"x"}, {"y"}, main, scope, layout);
  }
};

std::string Text(int k) { return std::string(5000, static_cast<char>('a' + k)); }

std::vector<Writer> Writers() {
  return {
      {"a file", [](const std::string& d, int k) { WriteFileAtomic(d + "/f", Text(k)); }},
      {"a file of pieces",
       [](const std::string& d, int k) {
         WriteFileInPieces(d + "/f", [&](const WritePieceFn& write) {
           for (int i = 0; i < 3; ++i) write(Text(k));
         });
       }},
      {"a file of a program",
       [](const std::string& d, int k) { FileAccess(d).Write("inner/f", Text(k), true); }},
      {"a directory",
       [](const std::string& d, int k) {
         WriteDirectoryAtomic(d + "/tree", [&](const std::string& temporary) {
           for (const char* name : {"/a", "/b"}) WriteFileAtomic(temporary + name, Text(k));
         });
       }},
      {"a program",
       [](const std::string& d, int k) { WriteProgram(Model(k).main, d + "/main.pb"); }},
      {"an archive",
       [](const std::string& d, int k) {
         WriteNpz({{"x", Tensor::Full<float>({500}, static_cast<float>(k))}}, d + "/x.npz");
       }},
      {"safetensors",
       [](const std::string& d, int k) {
         WriteSafetensors({{"x", Tensor::Full<float>({500}, static_cast<float>(k))}},
                          d + "/x.safetensors");
       }},
      {"a model",
       [](const std::string& d, int k) { Model(k).Save(d + "/m", InferenceLayout::kPdmodel); }},
      {"a model in a directory",
       [](const std::string& d, int k) {
         Model(k).Save(d + "/m", InferenceLayout::kModelCombined);
       }},
      {"a model with a file for each parameter",
       [](const std::string& d, int k) {
         Model(k).Save(d + "/m", InferenceLayout::kModelSeparate);
       }},
      {"an ONNX model with its data",
       [](const std::string& d, int k) {
         const Model model(k);
         ExportOnnx(d + "/m.onnx", model.main, model.scope, {.max_model_bytes = 0});
       }},
  };
}

// Whether every file is as in `before` or as in `after`.
bool AreWhole(const Files& now, const Files& before, const Files& after) {
  return std::all_of(now.begin(), now.end(), [&](const auto& file) {
    for (const Files* known : {&before, &after}) {
      const auto found = known->find(file.first);
      if (found != known->end() && found->second == file.second) return true;
    }
    return false;
  });
}

// The errors of a call that writers must report, and those that they must survive.
std::vector<int> ErrorsOf(Call call) {
  switch (call) {
    case Call::kOpen:
      return {EACCES, EMFILE, EINTR};
    case Call::kWrite:
      return {ENOSPC, EIO, EINTR, 0};
    case Call::kSync:
      return {EIO, ENOSPC, EINTR};
    case Call::kRename:
      return {EACCES, EIO};
    default:
      return {EROFS, ENOSPC};
  }
}

class WriteFaults : public ::testing::TestWithParam<bool> {
 protected:
  // Writes over old files (or none) with one call that fails, and checks what is there then.
  void Check(const Writer& writer, const Fault& fault) {
    const TemporaryDirectory now;
    const bool over_old = GetParam();
    if (over_old) writer.write(now.path(), 1);
    const Files before = FilesIn(now.path());
    std::string message;
    try {
      const ScopedFault scoped(fault);
      writer.write(now.path(), 2);
    } catch (const Error& error) {
      message = error.message();
    }
    const Files there = FilesIn(now.path());
    const std::string which = writer.name + ", " + ToString(fault.call) + " " +
                              std::to_string(fault.at) + ": " + std::strerror(fault.error);
    for (const auto& [name, contents] : there)
      EXPECT_EQ(name.find(".coracle-"), std::string::npos) << which << " leaves " << name;
    const bool survives = fault.error == EINTR || fault.error == 0;
    if (survives || message.empty()) {
      EXPECT_EQ(message, "") << which;
      EXPECT_TRUE(there == after_) << which << " leaves other files";
      return;
    }
    EXPECT_NE(message.find(std::strerror(fault.error)), std::string::npos) << which << message;
    EXPECT_TRUE(message.find(now.path()) != message.npos || message.find("inner/f") != message.npos)
        << which << " names no file: " << message;
    EXPECT_TRUE(AreWhole(there, before, after_)) << which << ": " << message;
    // Until the first file takes its place, all stay old.
    if (fault.call == Call::kWrite || fault.call == Call::kOpen) {
      EXPECT_TRUE(AreWhole(there, before, before)) << which << ": " << message;
    }
  }

  // Returns how many calls of that kind the writer makes; keeps what it writes.
  int CallsOf(const Writer& writer, Call call) {
    const TemporaryDirectory now;
    if (GetParam()) writer.write(now.path(), 1);
    const ScopedFault counting;
    writer.write(now.path(), 2);
    after_ = FilesIn(now.path());
    return ScopedFault::Calls(call);
  }

  Files after_;
};

TEST_P(WriteFaults, LeaveOldFilesOrNewOnes) {
  int calls = 0;
  for (const Writer& writer : Writers()) {
    for (const Call call :
         {Call::kOpen, Call::kWrite, Call::kSync, Call::kRename, Call::kMakeDirectory}) {
      const int count = CallsOf(writer, call);
      calls += count;
      for (int at = 1; at <= count; ++at)
        for (const int error : ErrorsOf(call)) Check(writer, {call, at, error});
    }
  }
  EXPECT_GT(calls, 100);
}

INSTANTIATE_TEST_SUITE_P(OverOldFiles, WriteFaults, ::testing::Bool());

// A call that always fails ends too.
TEST(WriteFaultsForEver, EndInAnError) {
  const TemporaryDirectory directory;
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kSync, Call::kRename}) {
    std::string message;
    try {
      const ScopedFault scoped({call, 1, ENOSPC, 1'000'000});
      WriteFileAtomic(directory.File("f"), "x");
    } catch (const Error& error) {
      message = error.message();
    }
    EXPECT_NE(message.find(std::strerror(ENOSPC)), std::string::npos) << ToString(call) << message;
    EXPECT_TRUE(FilesIn(directory.path()).empty()) << ToString(call);
  }
}

// A log that finds no room for a record keeps the records before it, whole.
TEST(AppendFaults, TakeBackAPieceOfARecord) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("log");
  AppendFile log(path, false);
  log.Append("first\n");
  {
    const ScopedFault one_byte({Call::kWrite, 1, 0});
    log.Append("second\n");
  }
  EXPECT_EQ(ReadFile(path), "first\nsecond\n");
  for (const int error : {ENOSPC, EIO}) {
    std::string message;
    try {
      const ScopedFault full(
          {.call = Call::kWrite, .at = 2, .error = error, .after_one_byte = true});
      log.Append("third\n");
    } catch (const Error& e) {
      message = e.message();
    }
    EXPECT_NE(message.find(std::strerror(error)), std::string::npos) << message;
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_EQ(ReadFile(path), "first\nsecond\n");
    EXPECT_TRUE(log.EndsWithLine());
  }
}

// Readers: an error names the file and the reason; interrupted and short reads read on.
TEST(ReadFaults, NameTheFileOrReadOn) {
  const TemporaryDirectory directory;
  const Model model(1);
  model.Save(directory.File("m"), InferenceLayout::kPdmodel);
  const auto read = [&] {
    Scope scope;
    return LoadInferenceModel(directory.File("m"), scope).program.Root().NumOps();
  };
  const size_t ops = read();
  int opens = 0, reads = 0;
  {
    const ScopedFault counting;
    read();
    opens = ScopedFault::Calls(Call::kOpen);
    reads = ScopedFault::Calls(Call::kRead);
  }
  EXPECT_GE(opens, 2);
  EXPECT_GE(reads, 2);
  const auto check = [&](const Fault& fault) {
    std::string message;
    try {
      const ScopedFault scoped(fault);
      EXPECT_EQ(read(), ops);
    } catch (const Error& error) {
      message = error.message();
    }
    const std::string which = std::string(ToString(fault.call)) + " " + std::to_string(fault.at);
    if (fault.error == EINTR || fault.error == 0) {
      EXPECT_EQ(message, "") << which;
      return;
    }
    EXPECT_NE(message.find(directory.path()), std::string::npos) << which << message;
    EXPECT_NE(message.find(std::strerror(fault.error)), std::string::npos) << which << message;
  };
  for (int at = 1; at <= opens; ++at)
    for (const int error : {EACCES, EMFILE, EINTR}) check({Call::kOpen, at, error});
  for (int at = 1; at <= reads; ++at)
    for (const int error : {EIO, EINTR, 0}) check({Call::kRead, at, error});
}

}  // namespace coracle::write_faults_test
