#pragma once
// Models whose answers are known, and what a request ended with.

#include <coracle/coracle.h>
#include <coracle/serve/repository.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace coracle {

class ScratchFolder {
 public:
  ScratchFolder() {
    char name[] = "/tmp/serve_test.XXXXXX";
    path = mkdtemp(name);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path;
};

// y = x * factor, x[-1, width].
inline void SaveScale(const std::string& prefix, float factor, int64_t width = -1) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable y = net.Scale(net.Data("x", {-1, width}), {.scale = factor});
  SaveInferenceModel(prefix, {"x"}, {y.name()}, main, Scope());
}

// y = x, x[1], after a loop that ends if x is not above `least`.
inline void SaveLoop(const std::string& prefix, float least) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {1});
  const Variable y = net.Scale(x, {.scale = 1});
  const Variable bound = FillConstant(net, {1}, DType::kFloat32, least);
  const Variable more = net.Binary("greater_than", y, bound);
  While(net, more, [&] {
    Assign(net, net.Scale(y, {.scale = 1}), y);
    Assign(net, net.Binary("greater_than", y, bound), more);
  });
  SaveInferenceModel(prefix, {"x"}, {y.name()}, main, Scope());
}

// Adds x[1] to a persistable variable of `size` elements.
inline void SaveState(const std::string& prefix, int64_t size) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Data("x", {1});
  VarDesc& sum = main.Root().Var("sum");
  sum.SetDType(DType::kFloat32);
  sum.SetShape({size});
  sum.SetPersistable(true);
  net.Append("elementwise_add", {{"X", {"sum"}}, {"Y", {"x"}}}, {{"Out", {"sum"}}});
  const Variable total = net.Mean(net.Var("sum"));
  Scope scope;
  scope.Set("sum", Tensor::Full<float>({size}, 0));
  SaveInferenceModel(prefix, {"x"}, {total.name()}, main, scope);
}

// y = x * w, x[-1, size], where each element of w[size, size] is 1 / size.
inline void SaveProduct(const std::string& prefix, int64_t size) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, size});
  VarDesc& w = main.Root().Var("w");
  w.SetDType(DType::kFloat32);
  w.SetShape({size, size});
  w.SetPersistable(true);
  const Variable y = net.Binary("matmul_v2", x, net.Var("w"));
  Scope scope;
  scope.Set("w", Tensor::Full<float>({size, size}, 1.0f / static_cast<float>(size)));
  SaveInferenceModel(prefix, {"x"}, {y.name()}, main, scope);
}

struct Ended {
  int status = 200;
  serve::RequestEnd end = serve::RequestEnd::kSuccess;
  std::string text;
};

template <class F>
Ended EndOf(const F& f) {
  try {
    f();
    return {};
  } catch (const serve::HttpError& error) {
    return {error.status(), error.end(), error.what()};
  }
}

// Whether it becomes true within ten seconds.
template <class F>
bool Becomes(const F& f) {
  for (int i = 0; i < 10'000; ++i) {
    if (f()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace coracle
