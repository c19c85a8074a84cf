// Targets that read texts of Coracle itself: jobs, descriptions of preprocessing, JSON, snapshots.

#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/trace_times.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/fuzz/seal_manifest.h>
#include <coracle/test/fuzz/small_limits.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/tools/tensor_json.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/run/predict/row_json.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace coracle {
namespace {

constexpr const char* kTraced =
    "blocks { idx: 0 parent_idx: -1 "
    "vars { name: 'x' type { type: LOD_TENSOR lod_tensor { tensor { data_type: FP32 dims: 2 } } } }"
    "vars { name: 'y' type { type: LOD_TENSOR lod_tensor { tensor { data_type: FP32 dims: 2 } } } }"
    "ops { type: 'relu' inputs { parameter: 'X' arguments: 'x' } "
    "outputs { parameter: 'Out' arguments: 'y' } } }";

void UseTensorJson(std::string_view text) {
  const std::string written = tools::TensorJson(tools::ParseTensorJson(text, "input"));
  Require(tools::TensorJson(tools::ParseTensorJson(written, "again")) == written,
          "a second reading differs");
}

// Reads every value in every way.
void UseJson(const JsonReader& json) {
  Refusable([&] { Require(json.Text().size() <= (size_t{1} << 30), "a text without an end"); });
  Refusable([&] { json.Bool(); });
  Refusable([&] { json.Number(); });
  Refusable([&] { json.Unsigned(); });
  Refusable([&] { json.Integer(-5, 5); });
  Refusable([&] { RowOfJson(json); });
  Refusable([&] {
    for (const JsonReader& item : json.Items()) UseJson(item);
  });
  Refusable([&] {
    for (const auto& [key, value] : json.Members()) {
      Require(json.Has(key), "a key is not found");
      UseJson(value);
    }
  });
}

void UseRunLog(std::string_view text) {
  const MemoryFile file(text);
  PlotRun run{"run", ReadRunLog(file.path())};
  Refusable([&] { PlotSvg({run}); });
  PlotSvg({run}, true);
}

// --- snapshots ---

constexpr std::array<const char*, 7> kSnapshotFiles = {
    "manifest.json", "main.pb",     "startup.pb", "state.pdiparams",
    "progress.npz",  "carried.npz", "job.pbtxt"};

// A snapshot of a small program with all files that there may be.
class SmallSnapshot {
 public:
  SmallSnapshot() {
    ProgramDesc main, startup;
    VarDesc& w = main.Root().Var("w");
    w.SetMeta({.dtype = DType::kFloat32, .shape = {2}});
    w.SetPersistable(true);
    Scope scope;
    scope.Set("w", Tensor::Of<float>({2}, {1, 2}));
    TrainSnapshot state;
    state.job = "j";
    state.step = 1;
    state.data = "d";
    state.rows = state.batch_size = 4;
    state.progress = {{"loss", Tensor::Of<double>({1}, {1})}};
    state.carried = {{"h", Tensor::Of<float>({1, 1}, {1})}};
    path_ = WriteSnapshot(directory_.path(), state, main, startup, scope, "name: 'j'\n", 0);
    for (const char* file : kSnapshotFiles) originals_.push_back(ReadFile(path_ + "/" + file));
  }

  // Reads it with another file of that number, and puts the file back.
  void Read(size_t number, std::string_view contents) const {
    const std::string file = kSnapshotFiles[number], manifest = path_ + "/manifest.json";
    WriteFileAtomic(path_ + "/" + file, contents);
    SealManifest(path_, file, std::string(contents));
    Refusable([&] {
      const SavedSnapshot read = ReadSnapshot(path_);
      Require(!DescribeSnapshot(read).empty(), "a snapshot has no description");
      Require(!CompareSnapshots(read, read).empty(), "snapshots have no comparison");
    });
    WriteFileAtomic(path_ + "/" + file, originals_[number]);
    WriteFileAtomic(manifest, originals_[0]);
  }

 private:
  ScratchDirectory directory_;
  std::string path_;
  std::vector<std::string> originals_;
};

}  // namespace

void FuzzJobText(std::string_view text) {
  SetLogSink([](MessageLevel, const std::string&) {});
  const ScopedLimits limits(SmallLimits());
  Refusable([&] { ParseJobText(text, "input"); });
}

void FuzzPreprocess(std::string_view text) {
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    const std::string written = ParsePreprocess(text, "input").ToText();
    Require(ParsePreprocess(written, "again").ToText() == written, "a second reading differs");
  });
}

void FuzzJson(std::string_view bytes) {
  if (bytes.empty()) return;
  const char kind = bytes[0];
  bytes.remove_prefix(1);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    if (kind == 't') {
      UseTensorJson(bytes);
    } else if (kind == 'l') {
      UseRunLog(bytes);
    } else if (kind == 'r') {
      static const ProgramDesc program = ParseProgramText(kTraced);
      const TraceTimes times = ReadTraceTimes(std::string(bytes), "input", program);
      Require(times.ops.size() <= 1, "times of ops that are not there");
    } else {
      UseJson(JsonReader(bytes, "input"));
    }
  });
}

void FuzzSnapshot(std::string_view bytes) {
  if (bytes.empty()) return;
  static const SmallSnapshot snapshot;
  const ScopedLimits limits(SmallLimits());
  const auto file = static_cast<uint8_t>(bytes[0]) % kSnapshotFiles.size();
  snapshot.Read(file, bytes.substr(1));
}

}  // namespace coracle
