#include <coracle/bench/workloads/networks.h>
#include <coracle/bench/workloads/workload.h>
#include <coracle/executor/drawn_values.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

namespace coracle {
namespace {

constexpr int64_t kWords = 10000;

std::vector<int64_t> WithBatch(int64_t batch, const Shape& rest) {
  std::vector<int64_t> dims = rest.ToVector();
  dims.insert(dims.begin(), batch);
  return dims;
}

class Draws {
 public:
  Tensor Normal(const Shape& shape) {
    Tensor t(DType::kFloat32, shape);
    std::normal_distribution<float> normal;
    for (float& v : t.span<float>()) v = normal(random_);
    return t;
  }
  Tensor Whole(const Shape& shape, int64_t below) {
    Tensor t(DType::kInt64, shape);
    for (int64_t& v : t.span<int64_t>())
      v = static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
    return t;
  }
  Tensor ZeroOrOne(const Shape& shape) { return Whole(shape, 2).Cast(DType::kFloat32); }
  Tensor Uniform(const Shape& shape, float low, float high) {
    Tensor t(DType::kFloat32, shape);
    std::uniform_real_distribution<float> uniform(low, high);
    for (float& v : t.span<float>()) v = uniform(random_);
    return t;
  }

 private:
  std::mt19937_64 random_{1};
};

// Call this before gradients are appended.
void SetPrecision(Workload& w, const WorkloadOptions& options) {
  if (!options.bfloat16) return;
  MixedPrecisionOptions precision;
  precision.dtype = DType::kBFloat16;
  DecorateMixedPrecision(w.main, w.startup, precision);
}

// --- training ---

using Network = std::function<Variable(Builder&, const Variable&)>;

// A network on images, softmax with cross-entropy, momentum.
struct ImageTraining {
  Shape image;
  int64_t batch, classes;
  Network logits;
};

Variable MeanCrossEntropy(Builder& net, const Variable& logits) {
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  return net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
}

void Train(Workload& w, const ImageTraining& t, const WorkloadOptions& options) {
  Builder net(w.main, w.startup);
  const Variable image = net.Data("x", Shape(WithBatch(-1, t.image)));
  const Variable loss = MeanCrossEntropy(net, t.logits(net, image));
  SetPrecision(w, options);
  Momentum({.learning_rate = 0.01, .momentum = 0.9}).Minimize(loss, w.startup);
  w.feeds = {"x", "label"};
  w.fetches = {loss.name()};
  Draws draws;
  for (int i = 0; i < 8; ++i) {
    Tensor x = draws.Normal(Shape(WithBatch(t.batch, t.image)));
    w.batches.push_back({x, draws.Whole({t.batch, 1}, t.classes)});
  }
}

void TrainLstm(Workload& w, const WorkloadOptions& options) {
  constexpr int64_t kSteps = 35, kBatch = 20;
  Builder net(w.main, w.startup);
  const Variable ids = net.Data("x", {kSteps, -1}, DType::kInt64);
  const Variable loss = MeanCrossEntropy(net, LstmLanguageModel(net, ids));
  SetPrecision(w, options);
  Sgd optimizer({.learning_rate = 0.1});
  optimizer.SetGradientClip(ClipGradByGlobalNorm(5));
  optimizer.Minimize(loss, w.startup);
  w.feeds = {"x", "label"};
  w.fetches = {loss.name()};
  Draws draws;
  for (int i = 0; i < 8; ++i) {
    Tensor x = draws.Whole({kSteps, kBatch}, kWords);
    w.batches.push_back({x, draws.Whole({kSteps * kBatch, 1}, kWords)});
  }
}

void TrainTransformer(Workload& w, const WorkloadOptions& options) {
  constexpr int64_t kTokens = 128, kBatch = 8;
  Builder net(w.main, w.startup);
  const Variable ids = net.Data("x", {-1, kTokens}, DType::kInt64);
  const Variable loss = MeanCrossEntropy(
      net, TransformerClassifier(net, ids, options.name == "transformer_dropout" ? 0.1f : 0.0f));
  SetPrecision(w, options);
  Adam({.learning_rate = 1e-4}).Minimize(loss, w.startup);
  w.feeds = {"x", "label"};
  w.fetches = {loss.name()};
  Draws draws;
  for (int i = 0; i < 8; ++i) {
    Tensor x = draws.Whole({kBatch, kTokens}, kWords);
    w.batches.push_back({x, draws.Whole({kBatch, 1}, 10)});
  }
}

std::unique_ptr<Optimizer> RecommenderOptimizer(const std::string& workload) {
  if (workload == "reco_sgd") return std::make_unique<Sgd>(SgdOptions{.learning_rate = 0.1});
  if (workload == "reco_adagrad")
    return std::make_unique<Adagrad>(AdagradOptions{.learning_rate = 0.01});
  return std::make_unique<Adam>(AdamOptions{.learning_rate = 1e-4, .lazy_mode = true});
}

void TrainRecommender(Workload& w, const WorkloadOptions& options) {
  constexpr int64_t kIds = 26, kBatch = 512;
  const int64_t rows = options.rows > 0 ? options.rows : 1000000;
  Builder net(w.main, w.startup);
  const Variable ids = net.Data("x", {-1, kIds}, DType::kInt64);
  const Variable clicked = net.Data("clicked", {-1, 1});
  const Variable logits = Recommender(net, ids, rows);
  const Variable loss = net.Mean(net.SigmoidCrossEntropyWithLogits(logits, clicked));
  SetPrecision(w, options);
  RecommenderOptimizer(options.name)->Minimize(loss, w.startup);
  w.feeds = {"x", "clicked"};
  w.fetches = {loss.name()};
  Draws draws;
  for (int i = 0; i < 64; ++i) {
    Tensor x = draws.Whole({kBatch, kIds}, rows);
    w.batches.push_back({x, draws.ZeroOrOne({kBatch, 1})});
  }
}

using Maker = std::function<void(Workload&, const WorkloadOptions&)>;

const std::vector<std::pair<std::string, Maker>>& Trainings() {
  const auto images = [](const ImageTraining& t) {
    return [t](Workload& w, const WorkloadOptions& options) { Train(w, t, options); };
  };
  static const std::vector<std::pair<std::string, Maker>> all = {
      {"mlp", images({{784}, 128, 10, Mlp})},
      {"lenet", images({{1, 28, 28}, 64, 10, LeNet})},
      {"resnet20",
       images({{3, 32, 32},
               64,
               10,
               [](Builder& net, const Variable& x) { return ResNet20(net, x, false); }})},
      {"resnet18", images({{3, 128, 128},
                           8,
                           1000,
                           [](Builder& net, const Variable& x) {
                             return ResNet(net, x, {.depths = {2, 2, 2, 2}});
                           }})},
      {"lstm", TrainLstm},
      {"transformer", TrainTransformer},
      {"transformer_dropout", TrainTransformer},
      {"reco_sgd", TrainRecommender},
      {"reco_adagrad", TrainRecommender},
      {"reco_lazy_adam", TrainRecommender},
  };
  return all;
}

// --- inference ---

struct Inference {
  Shape input;  // without the batch dim
  DType dtype;
  Network logits;
};

const std::vector<std::pair<std::string, Inference>>& Inferences() {
  const Shape photo = {3, 224, 224};
  const DType real = DType::kFloat32;
  static const std::vector<std::pair<std::string, Inference>> all = {
      {"mlp", {{784}, real, Mlp}},
      {"lenet", {{1, 28, 28}, real, LeNet}},
      {"resnet18",
       {photo, real,
        [](Builder& net, const Variable& x) {
          return ResNet(net, x, {.depths = {2, 2, 2, 2}, .is_test = true});
        }}},
      {"resnet50",
       {photo, real,
        [](Builder& net, const Variable& x) {
          return ResNet(net, x, {.depths = {3, 4, 6, 3}, .bottleneck = true, .is_test = true});
        }}},
      {"mobilenetv1",
       {photo, real, [](Builder& net, const Variable& x) { return MobileNetV1(net, x, true); }}},
      {"mobilenetv3",
       {photo, real,
        [](Builder& net, const Variable& x) { return MobileNetV3Large(net, x, true); }}},
      {"transformer",
       {{128},
        DType::kInt64,
        [](Builder& net, const Variable& x) { return TransformerClassifier(net, x); }}},
      {"signal", {{40, 1000}, real, SignalNet}},
  };
  return all;
}

void Infer(Workload& w, const Inference& inference, const WorkloadOptions& options) {
  Builder net(w.main, w.startup);
  const Variable x = net.Data("x", Shape(WithBatch(-1, inference.input)), inference.dtype);
  const Variable logits = inference.logits(net, x);
  SetPrecision(w, options);
  w.feeds = {"x"};
  w.fetches = {logits.name()};
  w.frozen = true;
  Draws draws;
  const Shape fed(WithBatch(options.batch, inference.input));
  w.batches = {{inference.dtype == DType::kInt64 ? draws.Whole(fed, kWords) : draws.Normal(fed)}};
}

// Loads a saved program; draws its parameters if its directory has none.
InferenceModel LoadSaved(const std::string& path, Scope& scope) {
  const std::filesystem::path directory(path);
  const std::string file = (directory / "inference.pdmodel").string();
  if (!std::filesystem::exists(file) || std::filesystem::exists(directory / "inference.pdiparams"))
    return LoadInferenceModel(path, scope);
  InferenceModel model;
  model.program = ReadProgram(file);
  model.program.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() == "feed") model.feed_names.push_back(op.Output("Out")[0]);
    if (op.type() == "fetch") model.fetch_names.push_back(op.Input("X")[0]);
  });
  DrawMissingParameters(model.program, scope);
  return model;
}

void InferSaved(Workload& w, const WorkloadOptions& options) {
  InferenceModel model = LoadSaved(options.program, w.scope);
  w.batches = {DrawFeeds(model, options)};
  w.main = std::move(model.program);
  SetPrecision(w, options);
  w.feeds = model.feed_names;
  w.fetches = model.fetch_names;
  w.frozen = true;
}

// Draws running statistics that differ from 0 and 1, as in the peers' models.
void DrawStatistics(const ProgramDesc& main, Scope& scope) {
  Draws draws;
  main.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "batch_norm") return;
    const std::string &mean = op.Input("Mean")[0], &variance = op.Input("Variance")[0];
    const Shape shape = scope.Get(mean).shape();
    Tensor means = draws.Normal(shape);
    for (float& v : means.span<float>()) v *= 0.1f;
    scope.Set(mean, means);
    scope.Set(variance, draws.Uniform(shape, 0.5f, 1.5f));
  });
}

// --- single formulas ---

// sigmoid((relu(x * 1.1 + y) - z) * x), six ops on 2^24 elements. With `gradients`, also the
// gradients with respect to x, y and z of the sum of its products with a fourth tensor.
void SixElementwise(Workload& w, bool gradients) {
  constexpr int64_t kCount = int64_t{1} << 24;
  Builder net(w.main, w.startup);
  std::vector<Variable> in;
  for (const char* name : {"x", "y", "z"})
    in.push_back(net.Data(name, {-1}, DType::kFloat32, {.stop_gradient = !gradients}));
  const Variable relu = net.Relu(net.Add(net.Scale(in[0], {.scale = 1.1f}), in[1]));
  const Variable out = net.Sigmoid(net.Mul(net.Sub(relu, in[2]), in[0]));
  w.feeds = {"x", "y", "z"};
  w.fetches = {out.name()};
  if (gradients) {
    net.Data("weight", {-1});
    w.feeds.push_back("weight");
    GradientsOptions options;
    options.target_gradients = {"weight"};
    for (const std::string& name : Gradients({out}, in, options)) w.fetches.push_back(name);
  }
  Draws draws;
  w.batches.resize(1);
  for (size_t i = 0; i < w.feeds.size(); ++i)
    w.batches[0].push_back(draws.Uniform({kCount}, -1, 1));
}

void SoftmaxCrossEntropy(Workload& w, bool gradients) {
  constexpr int64_t kRows = 4096, kClasses = 10000;
  Builder net(w.main, w.startup);
  const Variable logits =
      net.Data("x", {-1, kClasses}, DType::kFloat32, {.stop_gradient = !gradients});
  const Variable loss = MeanCrossEntropy(net, logits);
  w.feeds = {"x", "label"};
  w.fetches = {loss.name()};
  if (gradients)
    for (const std::string& name : Gradients({loss}, {logits})) w.fetches.push_back(name);
  Draws draws;
  Tensor x = draws.Normal({kRows, kClasses});
  w.batches = {{x, draws.Whole({kRows, 1}, kClasses)}};
}

const std::vector<std::pair<std::string, std::function<void(Workload&)>>>& Micros() {
  static const std::vector<std::pair<std::string, std::function<void(Workload&)>>> all = {
      {"eltwise6_16m", [](Workload& w) { SixElementwise(w, false); }},
      {"eltwise6_16m_fwdbwd", [](Workload& w) { SixElementwise(w, true); }},
      {"softmax_ce_fwd", [](Workload& w) { SoftmaxCrossEntropy(w, false); }},
      {"softmax_ce_fwdbwd", [](Workload& w) { SoftmaxCrossEntropy(w, true); }},
  };
  return all;
}

template <class Rows>
std::vector<std::string> Names(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.first);
  return names;
}

template <class Rows>
const auto& Find(const Rows& rows, const WorkloadOptions& options) {
  for (const auto& row : rows) {
    if (row.first == options.name) return row.second;
  }
  ThrowInvalid("no workload " + options.name + " of kind " + options.kind);
}

}  // namespace

void Workload::Fill() {
  if (startup.Root().NumOps() > 0) Executor().Run(startup, scope);
  if (frozen && startup.Root().NumOps() > 0) DrawStatistics(main, scope);
}

PreparedProgram Workload::Prepare(const CompileOptions& options) {
  const Executor executor(options);
  return frozen ? executor.PrepareOwning(main, scope, feeds, fetches)
                : executor.Prepare(main, feeds, fetches);
}

std::vector<std::string> WorkloadNames(const std::string& kind) {
  if (kind == "train") return Names(Trainings());
  if (kind == "infer") return Names(Inferences());
  if (kind == "micro") return Names(Micros());
  ThrowInvalid("no kind of workloads " + kind + ": train, infer, micro");
}

std::unique_ptr<Workload> MakeWorkload(const WorkloadOptions& options) {
  auto w = std::make_unique<Workload>();
  if (options.kind == "train") {
    Find(Trainings(), options)(*w, options);
    w->has_loss = true;
  } else if (options.kind == "infer" && !options.program.empty()) {
    InferSaved(*w, options);
  } else if (options.kind == "infer") {
    Infer(*w, Find(Inferences(), options), options);
  } else if (options.kind == "micro") {
    Find(Micros(), options)(*w);
  } else {
    WorkloadNames(options.kind);  // throws for an unknown name
  }
  return w;
}

std::vector<Tensor> DrawFeeds(const InferenceModel& model, const WorkloadOptions& options) {
  std::vector<Tensor> feeds;
  for (const std::string& name : model.feed_names) {
    const VarDesc& var = *model.program.Root().FindVar(name);
    // The given shape is for the only feed, or for the feeds of its rank.
    const int rank = options.shape.rank();
    const bool given = rank > 0 && (model.feed_names.size() == 1 || var.shape().rank() == rank);
    std::vector<int64_t> dims = given ? options.shape.ToVector() : var.shape().ToVector();
    if (!dims.empty() && dims[0] < 0) dims[0] = options.batch;
    if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; }))
      ThrowInvalid("dims of " + var.name() + " are unknown: --shape=1x3x640x640");
    feeds.push_back(DrawFeed(model.program, name, Shape(dims)));
  }
  return feeds;
}

std::unique_ptr<Workload> MakeChain(int64_t ops) {
  constexpr int64_t kWidth = 64, kLayers = 8;
  auto w = std::make_unique<Workload>();
  Builder net(w->main, w->startup);
  Variable x = net.Data("x", {-1, kWidth});
  for (int64_t i = 0; i < ops; ++i) {
    const std::string layer = "fc_" + std::to_string(i / 3 % kLayers);
    if (i % 3 == 0) {
      const ParamAttr weight = {.name = layer + ".w_0"};
      const Variable p = net.Parameter(layer, {kWidth, kWidth}, DType::kFloat32, weight);
      x = net.Binary("mul", x, p);
    } else if (i % 3 == 1) {
      const ParamAttr bias = {.name = layer + ".b_0"};
      x = net.Add(x, net.Parameter(layer, {kWidth}, DType::kFloat32, bias), {.axis = 1});
    } else {
      x = net.Relu(x);
    }
  }
  w->feeds = {"x"};
  w->fetches = {x.name()};
  w->frozen = true;
  w->batches = {{Draws().Normal({1, kWidth})}};
  return w;
}

}  // namespace coracle
