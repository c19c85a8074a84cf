// Calls that read programs: files, runs, descriptions; data; and moves of objects.

#include <coracle/executor/drawn_values.h>
#include <coracle/inspect/page.h>
#include <coracle/test/fuzz/api_state.h>

#include <algorithm>
#include <map>
#include <span>

namespace coracle::api {
namespace {

CompileOptions AnyOptions(Sequence& s) {
  CompileOptions options;
  options.kernels = s.choose.OneIn(2) ? KernelMode::kReference : KernelMode::kAuto;
  options.optimize = !s.choose.OneIn(3);
  options.check_nan_inf = s.choose.OneIn(5);
  options.profile = s.choose.OneIn(5);
  options.memory_limit = uint64_t{1} << (s.choose.OneIn(8) ? 10 : 25);
  options.time_limit = s.choose.OneIn(8) ? s.AnyNumber() : 1.0;  // under the limits of Try
  options.max_plans = s.choose.Below(3);
  if (s.choose.OneIn(20)) options.disabled_passes = {"zzz"};
  if (s.choose.OneIn(40)) options.stop = [] { return true; };
  return options;
}

void AnyRun(Sequence& s, PreparedProgram& program) {
  std::vector<Tensor> feeds;
  s.Try("run", [&] {
    const std::vector<std::string> names = program.feed_names();
    for (const std::string& name : names) {
      const VarDesc* var =
          program.program().NumBlocks() > 0 ? program.program().Root().FindVar(name) : nullptr;
      const bool right = var && var->shape().rank() < 5 && !s.choose.OneIn(6);
      Tensor feed = s.AnyTensor();
      if (right) feed = DrawFeed(program.program(), name, DrawnShape(*var, 2));
      feeds.push_back(std::move(feed));
    }
    if (s.choose.OneIn(12)) feeds.push_back(s.AnyTensor());
    const std::vector<Tensor>& results = program.Run(s.scopes[s.choose.Below(2)], feeds);
    for (const Tensor& result : results) s.tensors.push_back(result);
    if (s.tensors.size() > 12) s.tensors.erase(s.tensors.begin(), s.tensors.end() - 8);
  });
}

std::string AnyBytes(Sequence& s) {
  std::string bytes(s.choose.Below(60), '\0');
  for (char& byte : bytes) byte = static_cast<char>(s.choose.Below(256));
  return bytes;
}

NamedTensors AnyTensors(Sequence& s) {
  NamedTensors all;
  for (size_t i = s.choose.Below(4); i > 0; --i) all.emplace_back(s.AnyName(), s.AnyTensor());
  return all;
}

MemoryColumn AnyColumn(Sequence& s) {
  MemoryColumn column{.name = s.AnyName(), .rows = s.AnyTensor(), .shape = s.AnyShape()};
  column.scaled = s.choose.OneIn(4);
  if (s.choose.OneIn(3)) column.offsets = {0, s.choose.Below(4), s.choose.Below(5)};
  if (!s.choose.OneIn(4)) {
    const auto rows = static_cast<int64_t>(s.choose.Below(5));
    column.rows = Tensor::Zeros(DType::kFloat32, {rows, 2});
    column.shape = {2};
    column.scaled = false;
  }
  return column;
}

void ReadBatches(Sequence& s, const DataSourcePtr& source) {
  const BatchOptions options = {.batch_size = static_cast<int64_t>(s.choose.Below(5)) - 1,
                                .shuffle = s.choose.OneIn(2),
                                .drop_last = s.choose.OneIn(3),
                                .prefetch = s.choose.OneIn(2),
                                .rank = static_cast<int>(s.choose.Below(4)) - 1,
                                .ranks = static_cast<int>(s.choose.Below(3))};
  BatchReader reader(source, options);
  for (int i = 0; i < 4; ++i) {
    if (s.choose.OneIn(5)) reader.Seek(static_cast<int64_t>(s.choose.Below(9)) - 1);
    for (const Tensor& tensor : reader.Next()) RowsOfBatch(tensor);
    reader.PlaceOf(static_cast<int64_t>(s.choose.Below(3)));
  }
}

}  // namespace

void CallFiles(Sequence& s) {
  const size_t kind = s.choose.Below(9);
  const std::string file = s.AnyFile();
  s.Try("files " + std::to_string(kind), [&] {
    if (kind == 0) ParseProgram(SerializeProgram(s.main()));
    if (kind == 1) ParseProgramText(ProgramToText(s.main()));
    if (kind == 2) {
      WriteProgram(s.main(), file);
      ReadProgram(file);
    }
    if (kind == 3) {
      SaveInferenceModel(s.directory + "/m", s.AnyNames(2), s.AnyNames(2), s.main(), s.scopes[0]);
      LoadInferenceModel(s.directory + "/m", s.scopes[1]);
    }
    if (kind == 4) WriteTensorArchive(AnyTensors(s), file);
    if (kind == 5) ReadTensorArchive(file);
    if (kind == 6) {
      SaveSeparate(s.scopes[0], s.AnyNames(3), s.directory + "/params");
      LoadSeparate(s.main(), s.AnyNames(3), s.directory + "/params", s.scopes[1]);
    }
    if (kind == 7) {
      const std::string bytes = AnyBytes(s);
      size_t offset = s.choose.Below(90);
      s.choose.OneIn(2) ? void(ParseTensor(bytes, &offset, "bytes"))
                        : void(ParseNpz(bytes, "bytes"));
    }
    if (kind == 8) ExportOnnx(s.directory + "/x.onnx", s.main(), s.scopes[0]);
  });
}

void CallExecutor(Sequence& s) {
  const size_t kind = s.choose.Below(7);
  const Executor executor(AnyOptions(s));
  if (kind == 0) {
    Net& net = s.net();
    s.Try("startup", [&] { executor.Run(net.startup, s.scopes[0]); });
  } else if (kind < 4) {
    s.Try("prepare " + std::to_string(kind), [&] {
      std::vector<std::string> feeds = s.AnyNames(3), fetches = s.AnyNames(2);
      if (!s.choose.OneIn(4)) feeds = {"x", "y", "ids", "image"};
      if (kind == 1) s.prepared.push_back(executor.Prepare(s.main(), feeds, fetches));
      if (kind == 2)
        s.prepared.push_back(executor.PrepareFrozen(s.main(), s.scopes[0], feeds, fetches));
      if (kind == 3) OptimizeProgram(s.main(), s.scopes[0], feeds, fetches);
    });
    if (s.prepared.size() > 4) s.prepared.erase(s.prepared.begin());
  } else if (kind == 4) {
    s.Try("run once", [&] {
      executor.Run(s.main(), s.scopes[s.choose.Below(2)], {{s.AnyName(), s.AnyTensor()}},
                   s.AnyNames(2));
    });
  }
  if (!s.prepared.empty()) AnyRun(s, s.prepared[s.choose.Below(s.prepared.size())]);
}

void CallInspect(Sequence& s) {
  const OpRegistry& ops = DefaultOps();
  const size_t kind = s.choose.Below(10);
  s.Try("inspect " + std::to_string(kind), [&] {
    if (kind == 0) PrintProgram(s.main(), {.block = static_cast<int>(s.choose.Below(4)) - 1});
    if (kind == 1)
      ProgramJson(s.main(), ops, {.blocks = {static_cast<int>(s.choose.Below(4)) - 1}});
    if (kind == 2) ProgramDot(s.main(), ops, {.around = s.AnyName()});
    if (kind == 3) {
      const ProgramDiff diff = DiffPrograms(s.nets[0].main, s.nets[1].main, ops);
      DiffText(diff, s.nets[0].main, s.nets[1].main, ops);
    }
    if (kind == 4) ExplainGradient(s.main(), s.AnyName(), s.AnyName()).ToString();
    if (kind == 5) CheckGradient(s.main(), {.loss = s.AnyName(), .wrt = s.AnyNames(2)});
    if (kind == 6)
      ProgramPage({{.name = "a", .program = s.main()}}, ops, {.plan_memory = s.choose.OneIn(3)});
    if (kind == 7) Verify(s.main(), ops);
    if (kind == 8) InDouble(s.main());
    if (kind == 9) CompareTensors("t", s.AnyTensor(), s.AnyTensor(), {});
  });
}

void CallData(Sequence& s) {
  const size_t kind = s.choose.Below(5);
  s.Try("data " + std::to_string(kind), [&] {
    std::vector<MemoryColumn> columns;
    for (size_t i = s.choose.Below(3); i > 0; --i) columns.push_back(AnyColumn(s));
    DataSourcePtr source = s.choose.OneIn(15) ? nullptr : MakeMemorySource(columns, "data");
    if (kind == 1) source = MakeSubset(source, static_cast<int64_t>(s.choose.Below(4)) - 1, 1);
    if (kind == 2) source = MakeRandomPart(source, s.AnyNumber(), 1, s.choose.OneIn(2));
    if (kind == 3)
      source = MakeTransformed(source, {.crop_size = static_cast<int64_t>(s.choose.Below(4)) - 1});
    if (kind == 4) {
      std::vector<Tensor> out = {s.AnyTensor(), s.AnyTensor()};
      const std::vector<int64_t> rows = {static_cast<int64_t>(s.choose.Below(5)) - 1, 0};
      if (source) source->Get(rows, std::span(out).first(s.choose.Below(3)));
      return;
    }
    ReadBatches(s, source);
  });
}

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
void MoveObjects(Sequence& s) {
  const size_t kind = s.choose.Below(5);
  if (kind == 0) {
    ProgramDesc moved = std::move(s.main());
    s.which = s.which == 0 ? 0 : 1;
    for (int i = 0; i < 4; ++i) {
      using Call = void (*)(Sequence&);
      constexpr Call kCalls[] = {CallBuilder, CallEdit,     CallBackward, CallOptimizer,
                                 CallFiles,   CallExecutor, CallInspect};
      s.choose.Of(kCalls)(s);
    }
    s.main() = std::move(moved);
  } else if (kind == 1 && !s.prepared.empty()) {
    PreparedProgram& from = s.prepared[s.choose.Below(s.prepared.size())];
    PreparedProgram moved = std::move(from);
    s.Try("moved-from copy", [&] { PreparedProgram copy = from; });
    AnyRun(s, from);
    s.Try("moved-from page", [&] { from.ProfileTable(), from.Profile(); });
    s.Try("copy", [&] { from = moved; });
  } else if (kind == 2) {
    Scope moved = std::move(s.scopes[0]);
    s.Try("moved-from scope", [&] { s.scopes[0].Get(s.AnyName()); });
    if (s.choose.OneIn(2)) s.scopes[0] = std::move(moved);
  } else if (kind == 3) {
    ProgramDesc copy = s.main();
    std::swap(s.main(), copy);
    s.main() = s.main();
  } else {
    Tensor tensor = s.AnyTensor();
    const Tensor moved = std::move(tensor);
    s.Try("moved-from tensor", [&] {
      tensor.Clone().Cast(s.AnyDType()).Reshaped(s.AnyShape());
      SerializeNpy(tensor);
    });
  }
  s.NoteNames();
}
// NOLINTEND(bugprone-use-after-move)

}  // namespace coracle::api
