// Writes the models that the tests of the C interface read, into the directory that is named: the
// tests link libcoracle_c only.
//   circle.pdmodel     logits of points x[-1, 2], with circle.pdiparams and circle.onnx
//   train.pdmodel      its training step (loss "loss"), with startup.pdmodel
//   names.pdmodel      text -> text: the strings of x[-1], as they are
//   counter.pdmodel    adds x[1] to a persistable sum, and gives the sum
//   lengths.pdmodel    the sum of each sequence of x[-1, 1]
//   pass.pdmodel       a[-1, 2], b[-1, 2] -> b, a, a as [-1]: no op computes anything
//   parameter.pdmodel  x[3] -> its parameter w[3] (1, 2, 3), x + w
//   total.pdmodel      adds x[1] to a persistable sum, and gives the variable itself
//   print.pdmodel      logs x[1], and gives it
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

void AddState(ProgramDesc& program, const std::string& name, const Shape& shape) {
  VarDesc& var = program.Root().Var(name);
  var.SetDType(DType::kFloat32);
  var.SetShape(shape);
  var.SetPersistable(true);
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
    AddState(main, "total", {1});
    net.Append("elementwise_add", {{"X", {"total"}}, {"Y", {x.name()}}}, {{"Out", {"total"}}});
    const Variable result = net.Scale(net.Var("total"), {.scale = 1});
    Scope scope;
    scope.Set("total", Tensor::Full<float>({1}, 0));
    Write(directory + "/counter", main, {"x"}, {result.name()}, scope);
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable a = net.Data("a", {-1, 2}), b = net.Data("b", {-1, 2});
    const Variable flat = net.Reshape(a, {-1});
    Write(directory + "/pass", main, {"a", "b"}, {"b", "a", flat.name()});
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {3});
    AddState(main, "w", {3});
    Scope scope;
    scope.Set("w", Tensor::Of<float>({3}, {1, 2, 3}));
    const Variable sum = net.Binary("elementwise_add", x, net.Var("w"));
    Write(directory + "/parameter", main, {"x"}, {"w", sum.name()}, scope);
  }
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {1});
    AddState(main, "total", {1});
    net.Append("elementwise_add", {{"X", {"total"}}, {"Y", {x.name()}}}, {{"Out", {"total"}}});
    Scope scope;
    scope.Set("total", Tensor::Full<float>({1}, 0));
    Write(directory + "/total", main, {"x"}, {"total"}, scope);
  }
}

void WriteControl(const std::string& directory) {
  {
    ProgramDesc main, startup;
    Builder net(main, startup);
    net.Data("x", {1});
    net.Append("print", {{"In", {"x"}}}, {{"Out", {"y"}}});
    Write(directory + "/print", main, {"x"}, {"y"});
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
    coracle::WriteControl(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
