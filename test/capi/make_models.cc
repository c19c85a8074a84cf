// Writes the models that the tests of the C interface read, into the directory that is named: the
// tests link libcoracle_c only.
//   circle.pdmodel     logits of points x[-1, 2], with circle.pdiparams and circle.onnx
//   train.pdmodel      its training step (loss "loss"), with startup.pdmodel
//   names.pdmodel      text -> text: the strings of x[-1], as they are
//   counter.pdmodel    adds x[1] to a persistable sum, and gives the sum
//   lengths.pdmodel    the sum of each sequence of x[-1, 1]
//   slow.pdmodel       a loop of x[1] rounds that never ends by itself
// Prints the logits of the points (0, 0), (0.5, -1), one number a line.

#include <coracle/convert.h>
#include <coracle/coracle.h>

#include <cstdio>

namespace coracle {
namespace {

void Write(const std::string& path, const ProgramDesc& program, const std::vector<std::string>& in,
           const std::vector<std::string>& out, const Scope& scope = Scope()) {
  SaveInferenceModel(path, in, out, program, scope);
}

void WriteCircle(const std::string& directory) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 2});
  const Variable y = net.Data("y", {-1, 1}, DType::kInt64);
  const Variable hidden = net.Fc(x, {.size = 8, .act = "tanh"});
  const Variable logits = net.Fc(hidden, {.size = 2, .output = "logits"});
  const Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, y));
  Scope scope;
  Executor exe;
  Sgd({.learning_rate = 0.1f}).Minimize(loss, startup);
  exe.Run(startup, scope);
  WriteProgram(main, directory + "/train.pdmodel");
  WriteProgram(startup, directory + "/startup.pdmodel");
  std::FILE* file = std::fopen((directory + "/loss.txt").c_str(), "w");
  std::fputs(loss.name().c_str(), file);
  std::fclose(file);
  Write(directory + "/circle", main, {"x"}, {"logits"}, scope);
  Scope loaded;
  const InferenceModel model = LoadInferenceModel(directory + "/circle", loaded);
  ExportOnnx(directory + "/circle.onnx", model.program, loaded);
  const Tensor points = Tensor::Of<float>({2, 2}, {0, 0, 0.5f, -1});
  const Tensor result = exe.Run(model.program, loaded, {{"x", points}}, model.fetch_names)[0];
  for (float v : result.span<float>()) std::printf("%.9g\n", static_cast<double>(v));
}

void WriteOthers(const std::string& directory) {
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {-1}, DType::kString);
    Write(directory + "/names", main, {"x"}, {net.Unary("assign", x).name()});
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {1});
    VarDesc& sum = main.Root().Var("total");
    sum.SetDType(DType::kFloat32);
    sum.SetShape({1});
    sum.SetPersistable(true);
    net.Append("elementwise_add", {{"X", {"total"}}, {"Y", {x.name()}}}, {{"Out", {"total"}}});
    const Variable result = net.Scale(net.Var("total"), {.scale = 1});
    Scope scope;
    scope.Set("total", Tensor::Full<float>({1}, 0));
    Write(directory + "/counter", main, {"x"}, {result.name()}, scope);
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {-1, 1}, DType::kFloat32, {.lod_level = 1});
    const Variable sums =
        net.Make("sequence_pool", {{"X", {x.name()}}}, {{"pooltype", std::string("SUM")}});
    Write(directory + "/lengths", main, {"x"}, {sums.name()});
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {1});
    const Variable sum = net.Scale(x, {.scale = 1});
    const Variable zero = FillConstant(net, {1}, DType::kFloat32, 0);
    const Variable more = net.Binary("greater_than", sum, zero);
    While(net, more, [&] {
      Assign(net, net.Scale(sum, {.scale = 1}), sum);
      Assign(net, net.Binary("greater_than", sum, zero), more);
    });
    Write(directory + "/slow", main, {"x"}, {sum.name()});
  }
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    coracle::WriteCircle(argv[1]);
    coracle::WriteOthers(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
