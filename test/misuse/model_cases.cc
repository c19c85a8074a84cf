// executor, edit, inspect, framework/io, convert.

#include <coracle/convert/models.h>
#include <coracle/edit/edit.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/layers/builder.h>
#include <coracle/test/misuse/misuse.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace model_cases {

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable x = b.Data("x", {-1, 4});
  Variable y = b.Relu(x, {.output = "y"});

  PreparedProgram Prepare() { return Executor().Prepare(main, {"x"}, {"y"}); }
};

ProgramDesc& MovedFrom() {
  static ProgramDesc program;
  static const ProgramDesc moved = std::move(program);
  return program;
}

// Calls f with a PreparedProgram that was moved from.
template <class F>
std::function<void()> OfMoved(F f) {
  return [f] {
    Net net;
    PreparedProgram prepared = net.Prepare();
    const PreparedProgram moved = std::move(prepared);
    f(prepared);
  };
}

void AddPrepared(Cases& cases) {
  cases.Of("CompileOptions")
      .Fails("a pass that is none", "pass",
             [] {
               Net net;
               Executor({.disabled_passes = {""}}).Prepare(net.main, {"x"}, {"y"});
             })
      .Fails("a precision that is none", "precision",
             [] {
               Net net;
               Executor({.precision = static_cast<DType>(99)}).Prepare(net.main, {"x"}, {"y"});
             })
      .Works("no plans are kept", [] {
        Net net;
        Scope scope;
        PreparedProgram p = Executor({.max_plans = 0}).Prepare(net.main, {"x"}, {"y"});
        p.Run(scope, {Tensor::Zeros(DType::kFloat32, {2, 4})});
      });
  cases.Plain<OpTime>("OpTime");
  cases.Of("PreparedProgram");
  using P = PreparedProgram;
  cases
      .Fails("run, moved from", "moved from", OfMoved([](P& p) {
               Scope scope;
               p.Run(scope);
             }))
      .Fails("copied, moved from", "moved from", OfMoved([](P& p) { P copy = p; }))
      .Fails("feeds, moved from", "moved from", OfMoved([](P& p) { p.feed_names(); }))
      .Fails("fetches, moved from", "moved from", OfMoved([](P& p) { p.fetch_names(); }))
      .Fails("frozen, moved from", "moved from", OfMoved([](P& p) { p.frozen_names(); }))
      .Fails("program, moved from", "moved from", OfMoved([](P& p) { p.program(); }))
      .Fails("ranks, moved from", "moved from", OfMoved([](P& p) { p.SetCommunicator(nullptr); }))
      .Fails("step, moved from", "moved from", OfMoved([](P& p) { p.SetStep(p.step()); }))
      .Fails("profile, moved from", "moved from", OfMoved([](P& p) { p.Profile(); }))
      .Fails("table, moved from", "moved from", OfMoved([](P& p) { p.ProfileTable(); }))
      .Fails("bytes, moved from", "moved from", OfMoved([](P& p) { p.WorkspaceBytes(); }))
      .Fails("compiled, moved from", "moved from", OfMoved([](P& p) { p.compiled(); }))
      .Fails("context, moved from", "moved from", OfMoved([](P& p) { p.comm(); }));
  cases
      .Fails("no feeds", "feeds",
             [] {
               Net net;
               Scope scope;
               net.Prepare().Run(scope);
             })
      .Fails("a default-made feed", "feed",
             [] {
               Net net;
               Scope scope;
               net.Prepare().Run(scope, {Tensor()});
             })
      .Fails("a view of null as a feed", "null",
             [] {
               Net net;
               Scope scope;
               net.Prepare().Run(scope, {Tensor::View(DType::kFloat32, {2, 4}, nullptr)});
             })
      .Fails("a feed with a LoD that leaves rows out", "x",
             [] {
               Net net;
               Scope scope;
               Tensor x = Tensor::Zeros(DType::kFloat32, {2, 4});
               x.lod() = {{0, 7}};
               net.Prepare().Run(scope, {x});
             })
      .Works("moved from and assigned to", [] {
        Net net;
        Scope scope;
        PreparedProgram prepared = net.Prepare();
        PreparedProgram moved = std::move(prepared);
        prepared = moved;
        PreparedProgram& itself = prepared;
        prepared = itself;
        prepared.SetCommunicator(nullptr);
        prepared.Run(scope, {Tensor::Zeros(DType::kFloat32, {0, 4})});
        prepared.Run(scope, {Tensor::Zeros(DType::kFloat32, {2, 4})});
      });
  cases.Of("Executor")
      .Fails("a program that was moved from", "block", [] { Executor().Prepare(MovedFrom()); })
      .Fails("an absent feed", "none",
             [] {
               Net net;
               Executor().Prepare(net.main, {"none"}, {"y"});
             })
      .Fails("an absent fetch", "none",
             [] {
               Net net;
               Executor().Prepare(net.main, {"x"}, {"none"});
             })
      .Fails("an empty name", "",
             [] {
               Net net;
               Executor().Prepare(net.main, {""}, {"y"});
             })
      .Works("moved from", [] {
        Net net;
        Executor executor;
        const Executor moved = std::move(executor);
        Scope scope;
        executor.Run(net.main, scope, {{"x", Tensor::Zeros(DType::kFloat32, {2, 4})}}, {"y"});
        moved.Run(ProgramDesc(), scope);
      });
}

void AddEdits(Cases& cases) {
  cases.Of("RenameOptions").Fails("an invalid expression", "regular expression", [] {
    Net net;
    PairsByRegex(net.main, "(", "");
  });
  cases.Of("Renamed")
      .Fails("an absent name", "none",
             [] {
               Net net;
               RenameVariables(net.main, {{"none", "z"}}, DefaultOps());
             })
      .Fails("an empty name", "x",
             [] {
               Net net;
               RenameVariables(net.main, {{"x", ""}}, DefaultOps());
             })
      .Works("values that are absent", [] {
        Scope scope;
        RenameValues({{"a", "b"}}, scope);
      });
  cases.Of("ExtractOptions").Fails("no outputs", "output", [] {
    ExtractProgram(ProgramDesc(), {}, DefaultOps());
  });
  cases.Of("ExtractedProgram").Fails("of a program that was moved from", "block", [] {
    ExtractProgram(MovedFrom(), {.outputs = {"y"}}, DefaultOps());
  });
  cases.Of("MergeOptions").Fails("absent names", "none", [] {
    Net net;
    MergePrograms(net.main, net.main, DefaultOps(), {.connections = {{"none", "x"}}});
  });
  cases.Of("MergedProgram").Fails("of programs that were moved from", "block", [] {
    MergePrograms(MovedFrom(), MovedFrom(), DefaultOps());
  });
  cases.Of("OptimizeOptions").Fails("an unknown pass", "none", [] {
    Net net;
    OptimizeProgram(net.main, Scope(), {"x"}, {"y"}, {.passes = {"none"}});
  });
  cases.Of("OptimizedProgram").Fails("of a program that was moved from", "block", [] {
    OptimizeProgram(MovedFrom(), Scope());
  });
  cases.Fails("shapes of an absent input", "none", [] {
    Net net;
    SetShapes(net.main, {{"none", {1}}}, DefaultOps());
  });
}

void AddQuantisation(Cases& cases) {
  const auto quantise = [](QuantizeOptions options) {
    return [options] {
      Net net;
      QuantizeModel(net.main, Scope(), {}, options);
    };
  };
  cases.Of("QuantizeOptions")
      .Fails("weights of 3 bits", "8 or 4 bits", quantise({.weight_bits = 3}))
      .Fails("no samples", "samples", quantise({}))
      .Fails("no product", "no layer to quantise", quantise({.scheme = QuantScheme::kWeightOnly}));
  cases.Of("QuantScheme")
      .Fails("none of them", "the scheme 9", quantise({.scheme = static_cast<QuantScheme>(9)}));
  cases.Of("RangeMethod")
      .Fails("none of them", "the method of ranges -1",
             quantise({.method = static_cast<RangeMethod>(-1)}));
  cases.Of("QuantForm")
      .Fails("none of them", "the form 2", quantise({.form = static_cast<QuantForm>(2)}));
  cases.Of("Equalization")
      .Fails("none of them", "the equalisation 4",
             quantise({.equalization = static_cast<Equalization>(4)}));
  cases.Plain<LayerReport>("LayerReport");
  cases.Of("QuantizedModel").Fails("of a program that was moved from", "block", [] {
    QuantizeModel(MovedFrom(), Scope(), {}, {.scheme = QuantScheme::kWeightOnly});
  });
}

void AddInspection(Cases& cases) {
  cases.Of("ProgramJsonOptions")
      .Works("no such blocks",
             [] {
               ProgramJson(ProgramDesc(), DefaultOps(), {.blocks = {-1, 9}});
             })
      .Fails("of a program that was moved from", "without blocks",
             [] { ProgramJson(MovedFrom(), DefaultOps()); });
  cases.Of("DotOptions")
      .Fails("no such block", "block",
             [] { ProgramDot(ProgramDesc(), DefaultOps(), {.block = 9}); })
      .Fails("no such variable", "none",
             [] { ProgramDot(ProgramDesc(), DefaultOps(), {.around = "none"}); })
      .Fails("no such stage", "stage", [] { StageFromText(""); });
  cases.Of("Tolerance").Works("tensors without elements", [] {
    Require(!CompareTensors("", Tensor(), Tensor(), {}).Differs(), "equal");
    Require(CompareTensors("", Tensor(), Tensor(DType::kInt32, {2}), {}).Differs(), "different");
  });
  cases.Plain<WorstElement>("WorstElement");
  cases.Of("TensorDifference").Fails("a name twice", "twice", [] {
    CompareNamed({{"a", Tensor()}, {"a", Tensor()}}, {}, {});
  });
  cases.Plain<DiffChange>("DiffChange");
  cases.Plain<VarDiff>("VarDiff");
  cases.Plain<OpDiff>("OpDiff");
  cases.Plain<BlockDiff>("BlockDiff");
  cases.Of("ProgramDiff")
      .Fails("of a program that was moved from", "without blocks",
             [] { DiffPrograms(MovedFrom(), ProgramDesc(), DefaultOps()); })
      .Works("default", [] {
        DiffText({}, ProgramDesc(), ProgramDesc(), DefaultOps());
        DiffJson({}, ProgramDesc(), ProgramDesc());
        Require(DiffSummary({}).empty(), "nothing differs");
      });
  cases.Of("ValueDiff").Works("of scopes without values", [] {
    Net net;
    const ProgramDiff diff = DiffPrograms(net.main, net.startup, DefaultOps());
    DiffValues(diff, net.main, Scope(), net.startup, Scope());
  });
}

void AddFiles(Cases& cases) {
  cases.Of("InferenceModel")
      .Fails("of a missing file", "none",
             [] {
               Scope scope;
               LoadInferenceModel("none", scope);
             })
      .Fails("of an empty path", "",
             [] {
               Scope scope;
               LoadInferenceModel("", scope);
             })
      .Fails("a null offset", "null", [] { ParseTensor("", nullptr, ""); })
      .Fails("a null offset of rows", "null", [] { ParseSelectedRows("", nullptr, ""); })
      .Fails("an offset past the end", "left",
             [] {
               size_t offset = 99;
               ParseTensor("abc", &offset, "bytes");
             })
      .Fails("null bytes", "null", [] { AppendTensor(Tensor(), nullptr); })
      .Fails("null bytes of rows", "null", [] { AppendSelectedRows({}, nullptr); })
      .Fails("an empty .npy", "npy", [] { ParseNpy("", "npy"); })
      .Fails("an empty .npz", "npz", [] { ParseNpz("", "npz"); })
      .Fails("an empty .safetensors", "safetensors", [] { ParseSafetensors("", "safetensors"); })
      .Fails("a program that was moved from", "block",
             [] { ParseProgram(SerializeProgram(MovedFrom())); })
      .Fails("a file name that says no format", "must end in",
             [] { WriteProgram(ProgramDesc(), "program.none"); })
      .Fails("parameters without values", "none",
             [] { SaveCombined(Scope(), {"none"}, "none.pdiparams"); });
  cases.Of("InferenceLayout").Fails("absent fetches", "none", [] {
    SaveInferenceModel("none", {}, {"none"}, ProgramDesc(), Scope(),
                       static_cast<InferenceLayout>(99));
  });
}

void AddConversion(Cases& cases) {
  cases.Of("OnnxImportOptions")
      .Fails("no bytes", "onnx",
             [] {
               Scope scope;
               ParseOnnx("", "onnx", scope);
             })
      .Fails("a missing file", "none.onnx",
             [] {
               Scope scope;
               ImportOnnx("none.onnx", scope);
             })
      .Fails("a text that is none", "pir", [] { ParsePir("", "pir"); });
  cases.Of("OnnxExportOptions")
      .Fails("a program that was moved from", "block",
             [] { ExportOnnx("none.onnx", MovedFrom(), Scope()); })
      .Fails("an opset that is none", "opset", [] {
        Net net;
        ExportOnnx("none.onnx", net.main, Scope(), {.opset = 7});
      });
}

}  // namespace model_cases

void AddModels(Cases& cases) {
  using namespace model_cases;
  AddPrepared(cases);
  AddEdits(cases);
  AddQuantisation(cases);
  AddInspection(cases);
  AddFiles(cases);
  AddConversion(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
