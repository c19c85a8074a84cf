// layers, initializer and operators.

#include <coracle/initializer/initializer.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/test/misuse/misuse.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace layer_cases {

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable x = b.Data("x", {-1, 8});
  Variable image = b.Data("image", {-1, 2, 4, 4});
  Variable steps = b.Data("steps", {-1, 3, 8});
  Variable label = b.Data("label", {-1, 1}, DType::kInt64);
  Variable yes = b.Data("yes", {1}, DType::kBool);
};

using Layer = std::function<void(Net& net, const Variable& x)>;

// Every layer that takes a Variable: none of them may take an empty one, or one of another program.
std::vector<std::pair<std::string, Layer>> Layers() {
  return {
      {"Relu", [](Net& n, const Variable& x) { n.b.Relu(x); }},
      {"LeakyRelu", [](Net& n, const Variable& x) { n.b.LeakyRelu(x); }},
      {"Softmax", [](Net& n, const Variable& x) { n.b.Softmax(x); }},
      {"Fc", [](Net& n, const Variable& x) { n.b.Fc(x, {.size = 2}); }},
      {"Fc of two",
       [](Net& n, const Variable& x) {
         n.b.Fc({n.x, x}, {.size = 2});
       }},
      {"Conv2d", [](Net& n, const Variable& x) { n.b.Conv2d(x, {.num_filters = 2}); }},
      {"Pool2d", [](Net& n, const Variable& x) { n.b.Pool2d(x, {.pool_size = 2}); }},
      {"BatchNorm", [](Net& n, const Variable& x) { n.b.BatchNorm(x); }},
      {"LayerNorm", [](Net& n, const Variable& x) { n.b.LayerNorm(x); }},
      {"InstanceNorm", [](Net& n, const Variable& x) { n.b.InstanceNorm(x); }},
      {"Embedding",
       [](Net& n, const Variable& x) {
         n.b.Embedding(x, {.num_embeddings = 4, .embedding_dim = 2});
       }},
      {"Attention", [](Net& n, const Variable& x) { n.b.Attention(x, {.size = 4}); }},
      {"Lstm", [](Net& n, const Variable& x) { n.b.Lstm(x, {.hidden_size = 2}); }},
      {"Gru", [](Net& n, const Variable& x) { n.b.Gru(x, {.hidden_size = 2}); }},
      {"SimpleRnn", [](Net& n, const Variable& x) { n.b.SimpleRnn(x, {.hidden_size = 2}); }},
      {"Dropout", [](Net& n, const Variable& x) { n.b.Dropout(x); }},
      {"CrossEntropy", [](Net& n, const Variable& x) { n.b.CrossEntropy(x, n.label); }},
      {"CrossEntropy's label", [](Net& n, const Variable& x) { n.b.CrossEntropy(n.x, x); }},
      {"SoftmaxWithCrossEntropy",
       [](Net& n, const Variable& x) { n.b.SoftmaxWithCrossEntropy(n.x, x); }},
      {"SigmoidCrossEntropyWithLogits",
       [](Net& n, const Variable& x) { n.b.SigmoidCrossEntropyWithLogits(x, n.x); }},
      {"SquareErrorCost", [](Net& n, const Variable& x) { n.b.SquareErrorCost(n.x, x); }},
      {"Mean", [](Net& n, const Variable& x) { n.b.Mean(x); }},
      {"Accuracy", [](Net& n, const Variable& x) { n.b.Accuracy(n.x, x); }},
      {"Add", [](Net& n, const Variable& x) { n.b.Add(n.x, x); }},
      {"Matmul", [](Net& n, const Variable& x) { n.b.Matmul(x, n.x); }},
      {"Scale", [](Net& n, const Variable& x) { n.b.Scale(x, {}); }},
      {"Sum",
       [](Net& n, const Variable& x) {
         n.b.Sum({n.x, x});
       }},
      {"ReduceMax", [](Net& n, const Variable& x) { n.b.ReduceMax(x); }},
      {"Cast", [](Net& n, const Variable& x) { n.b.Cast(x, DType::kFloat64); }},
      {"Reshape", [](Net& n, const Variable& x) { n.b.Reshape(x, {-1}); }},
      {"Flatten", [](Net& n, const Variable& x) { n.b.Flatten(x); }},
      {"Transpose",
       [](Net& n, const Variable& x) {
         n.b.Transpose(x, {1, 0});
       }},
      {"Squeeze", [](Net& n, const Variable& x) { n.b.Squeeze(x, {1}); }},
      {"Unsqueeze", [](Net& n, const Variable& x) { n.b.Unsqueeze(x, {1}); }},
      {"Concat",
       [](Net& n, const Variable& x) {
         n.b.Concat({n.x, x});
       }},
      {"Stack",
       [](Net& n, const Variable& x) {
         n.b.Stack({n.x, x});
       }},
      {"Split", [](Net& n, const Variable& x) { n.b.Split(x, {.num = 2}); }},
      {"OneHot", [](Net& n, const Variable& x) { n.b.OneHot(x, 4); }},
      {"Assign", [](Net& n, const Variable& x) { Assign(n.b, x, n.x); }},
      {"Assign's result", [](Net& n, const Variable& x) { Assign(n.b, n.x, x); }},
      {"Increment", [](Net& n, const Variable& x) { Increment(n.b, x); }},
      {"While", [](Net& n, const Variable& x) { While(n.b, x, [] {}); }},
      {"If", [](Net& n, const Variable& x) { If(n.b, x, [] {}); }},
      {"Cond",
       [](Net& n, const Variable& x) {
         Cond(
             n.b, x, [] { return std::vector<Variable>(); },
             [] { return std::vector<Variable>(); });
       }},
      {"Switch", [](Net& n, const Variable& x) { Switch(n.b).Case(x, [] {}); }},
      {"ArrayWrite",
       [](Net& n, const Variable& x) {
         ArrayWrite(n.b, x, n.label, CreateArray(n.b, DType::kFloat32));
       }},
      {"ArrayRead", [](Net& n, const Variable& x) { ArrayRead(n.b, x, n.label); }},
      {"ArrayLength", [](Net& n, const Variable& x) { ArrayLength(n.b, x); }},
      {"StepInput",
       [](Net& n, const Variable& x) {
         StaticRnn rnn(n.b);
         rnn.Step([&] { rnn.StepInput(x); });
       }},
      {"Memory",
       [](Net& n, const Variable& x) {
         StaticRnn rnn(n.b);
         rnn.Step([&] { rnn.Memory(x); });
       }},
      {"StepOutput",
       [](Net& n, const Variable& x) {
         StaticRnn rnn(n.b);
         rnn.Step([&] {
           rnn.StepInput(n.steps);
           rnn.StepOutput(x);
         });
       }},
  };
}

// A variable of another program that a layer would take, were it of its own.
Variable Like(Net& other, const std::string& layer) {
  if (layer == "Conv2d" || layer == "Pool2d" || layer == "BatchNorm" || layer == "InstanceNorm")
    return other.image;
  if (layer == "Attention" || layer == "Lstm" || layer == "Gru" || layer == "SimpleRnn" ||
      layer == "StepInput")
    return other.steps;
  if (layer == "CrossEntropy's label" || layer == "SoftmaxWithCrossEntropy" ||
      layer == "Accuracy" || layer == "Embedding" || layer == "OneHot" || layer == "Increment")
    return other.label;
  if (layer == "While" || layer == "If" || layer == "Cond" || layer == "Switch") return other.yes;
  return other.x;
}

void AddVariables(Cases& cases) {
  for (const auto& [name, layer] : Layers()) {
    cases.Fails(name + " of an empty Variable", "empty Variable", [layer = layer] {
      Net net;
      layer(net, Variable());
    });
    cases.Fails(name + " of a variable of another program", "another program",
                [name = name, layer = layer] {
                  Net net, other;
                  layer(net, Like(other, name));
                });
  }
}

void AddBuilder(Cases& cases) {
  cases.Of("Builder")
      .Fails("moved-from programs", "without blocks",
             [] {
               ProgramDesc main, startup;
               const ProgramDesc moved = std::move(main);
               Builder(main, startup);
             })
      .Fails("a block of another program", "another program",
             [] {
               Net net, other;
               net.b.SetBlock(other.main.Root());
               net.b.Relu(net.x);
             })
      .Fails("data without a name", "name", [] { Net().b.Data("", {1}); })
      .Fails("data of an unknown shape", "dims", [] { Net().b.Data("y", {-2}); })
      .Fails("data of a name in use", "free", [] { Net().b.Data("x", {1}); })
      .Fails("an unknown op", "unknown op", [] { Net().b.Make("", {}); })
      .Fails("no inputs of Fc", "input", [] { Net().b.Fc(std::vector<Variable>(), {.size = 1}); })
      .Fails("no inputs of Sum", "sum", [] { Net().b.Sum({}); })
      .Fails("no inputs of Concat", "concat", [] { Net().b.Concat({}); })
      .Fails("a parameter of an unknown shape", "unknown",
             [] { Net().b.Parameter("p", {-1}, DType::kFloat32); })
      .Fails("a variable of a block that is not seen", "does not see",
             [] {
               Net net;
               Variable inner;
               If(net.b, net.yes, [&] { inner = net.b.Relu(net.x); });
               net.b.Relu(inner);
             })
      .Fails("a sequence in the place of its step", "does not see", [] {
        Net net;
        StaticRnn rnn(net.b);
        rnn.Step([&] {
          rnn.StepInput(net.steps);
          net.b.Relu(net.steps);
        });
      });
  AddVariables(cases);
}

void AddControlFlow(Cases& cases) {
  cases.Of("WhileOptions").Fails("no body", "while", [] {
    Net net;
    While(net.b, net.yes, {});
  });
  cases.Of("Switch")
      .Fails("no body", "switch",
             [] {
               Net net;
               Switch(net.b).Case(net.yes, {});
             })
      .Fails("no body of the default", "switch",
             [] {
               Net net;
               Switch(net.b).Case(net.yes, [] {}).Default({});
             })
      .Fails("a default alone", "case", [] {
        Net net;
        Switch(net.b).Default([] {});
      });
  cases.Of("StaticRnnOptions").Fails("lengths of another program", "another program", [] {
    Net net, other;
    StaticRnn rnn(net.b, {.lengths = other.label});
    rnn.Step([&] { rnn.StepInput(net.steps); });
  });
  cases.Of("StaticRnn")
      .Fails("no body", "static_rnn",
             [] {
               Net net;
               StaticRnn(net.b).Step({});
             })
      .Fails("calls outside of the step", "Step",
             [] {
               Net net;
               StaticRnn(net.b).StepOutput(net.x);
             })
      .Fails("a memory that is none", "not a memory",
             [] {
               Net net;
               StaticRnn rnn(net.b);
               rnn.Step([&] {
                 rnn.StepInput(net.steps);
                 rnn.UpdateMemory(net.x, net.x);
               });
             })
      .Works("no outputs yet", [] {
        Net net;
        Require(StaticRnn(net.b).Outputs().empty(), "empty");
      });
}

struct MineOptions {
  int32_t size = 0;
};

void AddLayerDefs(Cases& cases) {
  cases.Plain<FieldDef>("FieldDef");
  cases.Of("LayerArgs")
      .Fails("an absent field", "no field", [] { LayerArgs().Vars("x"); })
      .Fails("a field of no variable", "no variable",
             [] {
               LayerArgs args;
               args.vars["x"];
               args.Var("x");
             })
      .Works("defaults", [] { Require(LayerArgs().Param("p").name.empty(), "default"); });
  cases.Of("LayerDef")
      .Fails("default", "cannot be called", [] { RegisterLayer({}); })
      .Fails("no function", "empty function",
             [] {
               LayerDef layer;
               layer.name = "mine";
               RegisterLayer(layer);
             })
      .Fails("a field without a name", "cannot be called", [] {
        LayerDef layer;
        layer.name = "mine";
        layer.fields = {{}};
        RegisterLayer(layer);
      });
  struct Declares : LayerDeclaration {
    Declares() : LayerDeclaration("", "") {}
  };
  cases.Of("LayerDeclaration").Works("without a name", [] { Declares(); });
  cases.Of("LayerFields")
      .Fails("a field twice", "already",
             [] {
               LayerFields<MineOptions>("mine", "")
                   .Field("size", &MineOptions::size, "")
                   .Field("size", &MineOptions::size, "");
             })
      .Fails("a function of more inputs", "declares",
             [] {
               LayerFields<MineOptions>("mine", "")
                   .Build([](Builder& net, const Variable& x, const MineOptions&) {
                     return net.Relu(x);
                   });
             })
      .Works("an empty name", [] { DescribeLayer(""); });
  cases.Plain<ModelState>("ModelState");
  cases.Of("BuiltModel")
      .Fails("of a missing file", "none.pbtxt", [] { ReadModelText("none.pbtxt"); })
      .Fails("of a text that is none", "model:1", [] { ParseModelText("}"); });
}

template <class Options, class Call>
void FailsByDefault(Cases& cases, const char* type, const char* error, Call call) {
  cases.Of(type).Fails("default", error, [call] {
    Net net;
    call(net, Options());
  });
}

template <class Options, class Call>
void WorksByDefault(Cases& cases, const char* type, Call call) {
  cases.Of(type).Works("default", [call] {
    Net net;
    call(net, Options());
  });
}

void AddOptions(Cases& cases) {
  cases.Of("ParamAttr").Fails("a rate that is no number", "learning_rate", [] {
    Net net;
    net.b.Parameter("p", {1}, DType::kFloat32,
                    {.learning_rate = std::numeric_limits<double>::quiet_NaN()});
  });
  cases.Of("Size2").Fails("negative", "pool_size", [] {
    Net net;
    net.b.Pool2d(net.image, {.pool_size = Size2(-1, 2)});
  });
  cases.Of("Padding").Fails("of no numbers", "padding", [] {
    Net net;
    net.b.Pool2d(net.image, {.pool_size = 2, .pool_padding = Padding(std::vector<int32_t>())});
  });
  cases.Of("OutputOptions").Fails("an act that is none", "activation", [] {
    Net net;
    net.b.Relu(net.x, {.act = "none"});
  });
  WorksByDefault<DataOptions>(cases, "DataOptions",
                              [](Net& n, const DataOptions& o) { n.b.Data("y", {1}, {}, o); });
  FailsByDefault<FcOptions>(cases, "FcOptions", "size",
                            [](Net& n, const FcOptions& o) { n.b.Fc(n.x, o); });
  FailsByDefault<Conv2dOptions>(cases, "Conv2dOptions", "num_filters",
                                [](Net& n, const Conv2dOptions& o) { n.b.Conv2d(n.image, o); });
  FailsByDefault<Pool2dOptions>(cases, "Pool2dOptions", "pool_size",
                                [](Net& n, const Pool2dOptions& o) { n.b.Pool2d(n.image, o); });
  WorksByDefault<BatchNormOptions>(
      cases, "BatchNormOptions",
      [](Net& n, const BatchNormOptions& o) { n.b.BatchNorm(n.image, o); });
  WorksByDefault<LayerNormOptions>(
      cases, "LayerNormOptions", [](Net& n, const LayerNormOptions& o) { n.b.LayerNorm(n.x, o); });
  WorksByDefault<InstanceNormOptions>(
      cases, "InstanceNormOptions",
      [](Net& n, const InstanceNormOptions& o) { n.b.InstanceNorm(n.image, o); });
  FailsByDefault<EmbeddingOptions>(
      cases, "EmbeddingOptions", "num_embeddings",
      [](Net& n, const EmbeddingOptions& o) { n.b.Embedding(n.label, o); });
  FailsByDefault<RnnOptions>(cases, "RnnOptions", "hidden_size",
                             [](Net& n, const RnnOptions& o) { n.b.Lstm(n.steps, o); });
  cases.Plain<RnnOutput>("RnnOutput");
  FailsByDefault<AttentionOptions>(
      cases, "AttentionOptions", "size",
      [](Net& n, const AttentionOptions& o) { n.b.Attention(n.steps, o); });
  WorksByDefault<DropoutOptions>(cases, "DropoutOptions",
                                 [](Net& n, const DropoutOptions& o) { n.b.Dropout(n.x, o); });
  WorksByDefault<CrossEntropyOptions>(
      cases, "CrossEntropyOptions",
      [](Net& n, const CrossEntropyOptions& o) { n.b.CrossEntropy(n.x, n.label, o); });
  WorksByDefault<SoftmaxWithCrossEntropyOptions>(
      cases, "SoftmaxWithCrossEntropyOptions", [](Net& n, const SoftmaxWithCrossEntropyOptions& o) {
        n.b.SoftmaxWithCrossEntropy(n.x, n.label, o);
      });
  WorksByDefault<SigmoidCrossEntropyOptions>(cases, "SigmoidCrossEntropyOptions",
                                             [](Net& n, const SigmoidCrossEntropyOptions& o) {
                                               n.b.SigmoidCrossEntropyWithLogits(n.x, n.x, o);
                                             });
  WorksByDefault<AccuracyOptions>(cases, "AccuracyOptions", [](Net& n, const AccuracyOptions& o) {
    n.b.Accuracy(n.x, n.label, o);
  });
  WorksByDefault<ElementwiseOptions>(
      cases, "ElementwiseOptions",
      [](Net& n, const ElementwiseOptions& o) { n.b.Add(n.x, n.x, o); });
  FailsByDefault<MatmulOptions>(
      cases, "MatmulOptions", "matmul",
      [](Net& n, const MatmulOptions& o) { n.b.Matmul(n.image, n.steps, o); });
  WorksByDefault<ScaleOptions>(cases, "ScaleOptions",
                               [](Net& n, const ScaleOptions& o) { n.b.Scale(n.x, o); });
  WorksByDefault<ReduceOptions>(cases, "ReduceOptions",
                                [](Net& n, const ReduceOptions& o) { n.b.ReduceSum(n.x, o); });
  WorksByDefault<FlattenOptions>(cases, "FlattenOptions",
                                 [](Net& n, const FlattenOptions& o) { n.b.Flatten(n.image, o); });
  WorksByDefault<ConcatOptions>(cases, "ConcatOptions",
                                [](Net& n, const ConcatOptions& o) { n.b.Concat({n.x}, o); });
  FailsByDefault<SplitOptions>(cases, "SplitOptions", "parts",
                               [](Net& n, const SplitOptions& o) { n.b.Split(n.x, o); });
  FailsByDefault<ProgramOptions>(cases, "ProgramOptions", "no model at",
                                 [](Net& n, const ProgramOptions& o) { n.b.Program({n.x}, o); });
}

void AddInitializers(Cases& cases) {
  cases.Of("XavierOptions").Fails("a fan that is no number", "fan_in", [] {
    InitializerOp(XavierInitializer({.fan_in = std::numeric_limits<double>::quiet_NaN()}), "x", {2},
                  DType::kFloat32);
  });
  cases.Of("MsraOptions").Fails("an unknown kind", "initializer", [] {
    InitializerOp({}, "x", {2}, DType::kFloat32);
  });
  cases.Of("FanCounts").Works("of no dims", [] { FansOf({}); });
}

}  // namespace layer_cases

void AddLayers(Cases& cases) {
  using namespace layer_cases;
  AddBuilder(cases);
  AddControlFlow(cases);
  AddLayerDefs(cases);
  AddOptions(cases);
  AddInitializers(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
