// Imported classifiers are trained further: a loss is appended to what the importer wrote.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace coracle::onnx_training_test {

constexpr int kSteps = 20;

// Uniform in [low, high).
Tensor Draw(DType dtype, const Shape& shape, uint64_t seed, double low, double high) {
  const Philox random(seed, 0, 0);
  Tensor drawn(DType::kFloat64, shape);
  for (int64_t i = 0; i < drawn.numel(); ++i)
    drawn.data<double>()[i] = low + (high - low) * random.UniformDouble(static_cast<uint64_t>(i));
  return drawn.Cast(dtype);
}

Tensor Labels(int64_t n, int64_t classes) {
  Tensor labels(DType::kInt64, {n, 1});
  for (int64_t i = 0; i < n; ++i) labels.data<int64_t>()[i] = (7 * i + 3) % classes;
  return labels;
}

// The training of a classifier by SGD with momentum. `program` computes the logits of the image.
class Training {
 public:
  Training(ProgramDesc program, Scope scope, std::string image, const std::string& logits,
           double learning_rate)
      : main_(std::move(program)), scope_(std::move(scope)), image_(std::move(image)) {
    RemoveFeedsAndFetches(main_);
    Builder net(main_, startup_);
    const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
    const Variable flat = net.Flatten(Variable::Of(main_.Root(), logits));
    const Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(flat, label));
    forward_ = main_;
    gradients_ = Momentum({.learning_rate = learning_rate}).Minimize(loss, startup_);
    Executor().Run(startup_, scope_);
    fetches_ = {loss.name()};
    for (const ParamAndGrad& pair : gradients_) fetches_.push_back(pair.grad);
    step_.emplace(Executor().Prepare(main_, {image_, "label"}, fetches_));
    loss_.emplace(Executor().Prepare(forward_, {image_, "label"}, {loss.name()}));
  }

  const std::vector<ParamAndGrad>& gradients() const { return gradients_; }
  Scope& scope() { return scope_; }
  double Loss(const Tensor& image, const Tensor& label) {
    return loss_->Run(scope_, {image, label})[0].Cast(DType::kFloat64).Item<double>();
  }
  // The loss and the gradient of each parameter, before the update.
  std::map<std::string, Tensor> Step(const Tensor& image, const Tensor& label) {
    std::map<std::string, Tensor> values;
    const std::vector<Tensor>& results = step_->Run(scope_, {image, label});
    values["loss"] = results[0].Cast(DType::kFloat64);
    for (size_t i = 0; i < gradients_.size(); ++i)
      values[gradients_[i].param] = results[i + 1].Cast(DType::kFloat64);
    return values;
  }

 private:
  ProgramDesc main_, startup_, forward_;
  Scope scope_;
  std::string image_;
  std::vector<ParamAndGrad> gradients_;
  std::vector<std::string> fetches_;
  std::optional<PreparedProgram> step_, loss_;
};

double LargestOf(const Tensor& x) {
  double largest = 0;
  for (int64_t i = 0; i < x.numel(); ++i)
    largest = std::max(largest, std::abs(x.data<double>()[i]));
  return largest;
}

// The largest difference of all elements, each gradient's divided by its own largest element.
double Difference(const std::map<std::string, Tensor>& want,
                  const std::map<std::string, Tensor>& got) {
  EXPECT_EQ(want.size(), got.size());
  double worst = 0;
  for (const auto& [name, a] : want) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.shape() != a.shape()) {
      ADD_FAILURE() << name;
      continue;
    }
    const double largest = LargestOf(a);
    EXPECT_GT(largest, 0) << name;
    for (int64_t i = 0; i < a.numel(); ++i)
      worst = std::max(worst,
                       std::abs(a.data<double>()[i] - found->second.data<double>()[i]) / largest);
  }
  return worst;
}

// Caffe's examples/mnist/lenet, or the same with tanh and averages.
Variable LeNet(Builder& net, const Variable& image, bool smooth) {
  const Pool2dOptions pool{
      .pool_size = {2}, .pool_type = smooth ? "avg" : "max", .pool_stride = {2}};
  const Variable p1 = net.Pool2d(net.Conv2d(image, {.num_filters = 20, .filter_size = {5}}), pool);
  const Variable p2 = net.Pool2d(net.Conv2d(p1, {.num_filters = 50, .filter_size = {5}}), pool);
  const Variable hidden = net.Fc(p2, {.size = 500, .act = smooth ? "tanh" : "relu"});
  return net.Fc(hidden, {.size = 10, .output = "logits"});
}

// The distance between the gradients of LeNet, exported and imported, and its own gradients. In
// float32, roundings grow from step to step, so each step begins with equal parameters. The float32
// net is smooth: in some of 590,000 max-pool windows two elements differ only by a rounding, and
// either one may get the gradient.
double CompareLeNets(DType dtype) {
  const bool is_float = dtype == DType::kFloat32;
  TemporaryDirectory directory;
  ProgramDesc main, startup;
  Builder net(main, startup);
  LeNet(net, net.Data("image", {-1, 1, 28, 28}, dtype), is_float);
  Scope scope, imported_scope;
  Executor().Run(startup, scope);
  ExportOnnx(directory.File("lenet.onnx"), main.CloneForTest(), scope);
  InferenceModel imported = ImportOnnx(directory.File("lenet.onnx"), imported_scope);
  EXPECT_EQ(imported.fetch_names, std::vector<std::string>{"logits"});

  Training own(std::move(main), scope.Clone(), "image", "logits", 0.01);
  Training other(std::move(imported.program), std::move(imported_scope), "image", "logits", 0.01);
  EXPECT_EQ(own.gradients().size(), 8u);
  const Tensor labels = Labels(8, 10);
  double worst = 0;
  for (int i = 0; i < kSteps; ++i) {
    for (const ParamAndGrad& pair : own.gradients())
      if (is_float) other.scope().GetMutable(pair.param).CopyFrom(own.scope().Get(pair.param));
    const Tensor images = Draw(dtype, {8, 1, 28, 28}, static_cast<uint64_t>(i) + 1, 0, 1);
    worst = std::max(worst, Difference(own.Step(images, labels), other.Step(images, labels)));
  }
  return worst;
}

TEST(OnnxTraining, LeNetHasItsOwnGradients) {
  const double in_double = CompareLeNets(DType::kFloat64);
  const double in_float = CompareLeNets(DType::kFloat32);
  fmt::print("20 steps: {:.1e} in double, {:.1e} in float32\n", in_double, in_float);
  EXPECT_LE(in_double, 1e-12);
  EXPECT_LE(in_float, 5e-5);
}

// A layer of one output has a bias of one element, which is a weight as any other; the factor of a
// formula is not.
TEST(OnnxTraining, BiasOfOneElementIsAParameter) {
  TemporaryDirectory directory;
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 3});
  const Variable hidden = net.Fc(x, {.size = 4, .act = "swish"});
  net.Scale(net.Fc(hidden, {.size = 1}), {.scale = 0.5f});
  Scope scope, imported_scope;
  Executor().Run(startup, scope);
  ExportOnnx(directory.File("net.onnx"), main, scope);
  const InferenceModel imported = ImportOnnx(directory.File("net.onnx"), imported_scope);
  const auto shapes_of = [](const ProgramDesc& program) {
    std::multiset<std::vector<int64_t>> shapes;
    const BlockDesc& root = program.Root();
    for (size_t i = 0; i < root.NumVars(); ++i) {
      const Shape& shape = root.var(i).shape();
      if (root.var(i).is_parameter()) shapes.emplace(shape.begin(), shape.end());
    }
    return shapes;
  };
  const std::multiset<std::vector<int64_t>> want = {{1}, {3, 4}, {4}, {4, 1}};
  EXPECT_EQ(shapes_of(main), want);
  EXPECT_EQ(shapes_of(imported.program), want);
}

// A batch norm from ONNX trains its statistics as its original does, with the same momentum.
TEST(OnnxTraining, StatisticsOfABatchNorm) {
  TemporaryDirectory directory;
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 3});
  const Variable normal = net.BatchNorm(net.Fc(x, {.size = 4}), {.momentum = 0.7f});
  net.Scale(normal, {.output = "y"});
  Scope scope;
  Executor().Run(startup, scope);
  ExportOnnx(directory.File("net.onnx"), main.CloneForTest(), scope);
  SaveInferenceModel(directory.File("net"), {"x"}, {"y"}, main, scope);
  RegisterOnnxReader();
  const auto statistics = [&](const std::string& file, bool train) {
    ProgramDesc tuned, tuned_startup;
    Builder builder(tuned, tuned_startup);
    const Variable image = builder.Data("image", {-1, 3});
    const Variable y =
        builder.Program({image}, {.file = directory.File(file), .train_statistics = train})[0];
    Scope values;
    Executor().Run(tuned_startup, values);
    PreparedProgram step = Executor().Prepare(tuned, {"image"}, {y.name()});
    step.Run(values, {Draw(DType::kFloat32, {8, 3}, 5, -1, 2)});
    std::vector<std::vector<float>> found;
    tuned.ForEachOp([&](const OpDesc& op) {
      if (op.type() != "batch_norm") return;
      for (const char* slot : {"MeanOut", "VarianceOut"}) {
        const Tensor& t = values.Get(op.Output(slot).at(0));
        found.emplace_back(t.data<float>(), t.data<float>() + t.numel());
      }
    });
    return found;
  };
  const auto want = statistics("net", true), start = statistics("net", false);
  ASSERT_EQ(want.size(), 2u);
  EXPECT_NE(want, start);
  EXPECT_EQ(statistics("net.onnx", true), want);
  EXPECT_EQ(statistics("net.onnx", false), start);
}

// A network of ../shared/data/onnx/models, whose weights ConstantOfShape makes, with drawn weights
// as initializers.
proto::onnx::ModelProto WithDrawnWeights(const std::string& path, DType dtype) {
  proto::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(ReadFile(path)));
  auto& graph = *model.mutable_graph();
  std::map<std::string, Shape> shapes;  // that ConstantOfShape reads
  std::map<std::string, Shape> small;   // weights that are initializers already
  for (const auto& initializer : graph.initializer()) {
    const Tensor value = onnx::ParseTensorProto(initializer, {});
    if (value.dtype() == DType::kFloat32) small[initializer.name()] = value.shape();
    if (value.dtype() != DType::kInt64) continue;
    for (int64_t i = 0; i < value.numel(); ++i)
      shapes[initializer.name()].Append(value.data<int64_t>()[i]);
  }
  graph.clear_initializer();
  auto nodes = std::move(*graph.mutable_node());
  graph.clear_node();
  uint64_t seed = 1;
  const auto add = [&](const std::string& name, const Shape& shape) {
    // He et al. 2015: the variance 2 / fan_in of what is followed by a ReLU.
    const double fan_in = static_cast<double>(shape.Product(1, shape.rank()));
    const double limit = shape.rank() > 1 ? std::sqrt(6 / fan_in) : 0.1;
    onnx::FillTensorProto(Draw(dtype, shape, seed++, -limit, limit), name, graph.add_initializer());
  };
  for (const auto& [name, shape] : small) add(name, shape);
  for (auto& node : nodes) {
    if (node.op_type() == "ConstantOfShape")
      add(node.output(0), shapes.at(node.input(0)));
    else
      *graph.add_node() = std::move(node);
  }
  return model;
}

void SetInput(proto::onnx::ValueInfoProto& input, DType dtype, const Shape& shape) {
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(dtype == DType::kFloat64 ? proto::onnx::TensorProto::DOUBLE
                                              : proto::onnx::TensorProto::FLOAT);
  type.mutable_shape()->clear_dim();
  for (int i = 0; i < shape.rank(); ++i) type.mutable_shape()->add_dim()->set_dim_value(shape[i]);
}

constexpr int64_t kBatch = 1, kSide = 64;

std::unique_ptr<Training> SqueezeNet(const std::string& path, DType dtype) {
  proto::onnx::ModelProto model = WithDrawnWeights(path, dtype);
  for (auto& input : *model.mutable_graph()->mutable_input())
    if (input.name() == "data_0") SetInput(input, dtype, {kBatch, 3, kSide, kSide});
  for (auto& output : *model.mutable_graph()->mutable_output())
    SetInput(output, dtype, {kBatch, 1000, 1, 1});
  Scope scope;
  InferenceModel imported = ParseOnnx(model.SerializeAsString(), path, scope);
  std::string logits;  // what the last pool2d yields
  imported.program.ForEachOp([&](const OpDesc& op) {
    if (op.type() == "pool2d") logits = op.Output("Out").at(0);
  });
  return std::make_unique<Training>(std::move(imported.program), std::move(scope), "data_0", logits,
                                    0.01);
}

// <gradient, direction> of a parameter against the central difference of the loss.
void CheckDirection(Training& net, const std::string& name, const Tensor& gradient,
                    const Tensor& image, const Tensor& label, uint64_t seed) {
  const Tensor direction = Draw(DType::kFloat64, gradient.shape(), seed, -1, 1);
  const Tensor kept = net.scope().Get(name).Clone();
  constexpr double kMove = 1e-7;
  double analytic = 0, loss[2] = {0, 0};
  for (int64_t i = 0; i < gradient.numel(); ++i)
    analytic += gradient.data<double>()[i] * direction.data<double>()[i];
  for (int side : {0, 1}) {
    Tensor& value = net.scope().GetMutable(name);
    for (int64_t i = 0; i < kept.numel(); ++i)
      value.data<double>()[i] =
          kept.data<double>()[i] + (side ? kMove : -kMove) * direction.data<double>()[i];
    loss[side] = net.Loss(image, label);
  }
  net.scope().GetMutable(name).CopyFrom(kept);
  const double numeric = (loss[1] - loss[0]) / (2 * kMove);
  EXPECT_NEAR(analytic, numeric, 1e-5 * std::max(std::abs(numeric), 1e-2)) << name;
  EXPECT_NE(analytic, 0) << name;
}

TEST(OnnxTraining, SqueezeNetWithDrawnWeights) {
  const std::string path = TestDataDirectory() + "/onnx/models/light_squeezenet.onnx";
  if (TestDataDirectory().empty() || !FileExists(path))
    GTEST_SKIP() << "ONNX's networks are not here";
  const std::unique_ptr<Training> net = SqueezeNet(path, DType::kFloat64);
  const Tensor image = Draw(DType::kFloat64, {kBatch, 3, kSide, kSide}, 1000, -1, 1);
  const Tensor label = Labels(kBatch, 1000);
  ASSERT_EQ(net->gradients().size(), 52u);

  // The step changes the parameters: they are checked at the values before it.
  const Scope before = net->scope().Clone();
  const std::map<std::string, Tensor> gradients = net->Step(image, label);
  for (const ParamAndGrad& pair : net->gradients())
    net->scope().GetMutable(pair.param).CopyFrom(before.Get(pair.param));
  uint64_t seed = 1;
  for (const ParamAndGrad& pair : net->gradients())
    CheckDirection(*net, pair.param, gradients.at(pair.param), image, label, seed++);
}

TEST(OnnxTraining, SqueezeNetLearns) {
  const std::string path = TestDataDirectory() + "/onnx/models/light_squeezenet.onnx";
  if (TestDataDirectory().empty() || !FileExists(path))
    GTEST_SKIP() << "ONNX's networks are not here";
  const std::unique_ptr<Training> net = SqueezeNet(path, DType::kFloat32);
  const Tensor image = Draw(DType::kFloat32, {kBatch, 3, kSide, kSide}, 1000, -1, 1);
  const Tensor label = Labels(kBatch, 1000);
  const double first = net->Loss(image, label);
  for (int i = 0; i < kSteps; ++i) net->Step(image, label);
  const double last = net->Loss(image, label);
  fmt::print("20 steps: the loss goes from {:.4f} to {:.4f}\n", first, last);
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace coracle::onnx_training_test
