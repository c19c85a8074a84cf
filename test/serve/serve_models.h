#pragma once
// The models of the protocol's conformance requests: `add` (SUM = A + B, rows of 4), `str` (texts
// as they are), `half` (FP16 as it is), and `mean`, whose rows depend on each other.

#include <coracle/coracle.h>
#include <coracle/serve/server.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace coracle {

class ServeModels {
 public:
  ServeModels() {
    char name[] = "/tmp/serve_test.XXXXXX";
    directory = mkdtemp(name);
    Save("add",
         [](Builder& net) {
           const Variable a = net.Data("A", {-1, 4}), b = net.Data("B", {-1, 4});
           return net.Append("elementwise_add", {{"X", {"A"}}, {"Y", {"B"}}}, {{"Out", {"SUM"}}}),
                  "SUM";
         },
         {"A", "B"});
    Save("str",
         [](Builder& net) {
           net.Data("x", {-1}, DType::kString);
           return net.Append("assign", {{"X", {"x"}}}, {{"Out", {"y"}}}), "y";
         },
         {"x"});
    Save("half",
         [](Builder& net) {
           net.Data("x", {-1, 2}, DType::kFloat16);
           return net.Append("assign", {{"X", {"x"}}}, {{"Out", {"y"}}}), "y";
         },
         {"x"});
    Save("mean",
         [](Builder& net) {
           net.Data("x", {-1, 2});
           return net.Append("mean", {{"X", {"x"}}}, {{"Out", {"y"}}}), "y";
         },
         {"x"});
    Save("log",
         [](Builder& net) {  // nan for negative numbers
           net.Data("x", {-1, 1});
           return net.Append("log", {{"X", {"x"}}}, {{"Out", {"y"}}}), "y";
         },
         {"x"});
  }
  ~ServeModels() { std::filesystem::remove_all(directory); }

  std::string Path(const std::string& name) const { return directory + "/" + name + ".pdmodel"; }

  std::string directory;

 private:
  template <class Make>
  void Save(const std::string& name, const Make& make, const std::vector<std::string>& inputs) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const std::string output = make(net);
    SaveInferenceModel(directory + "/" + name, inputs, {output}, main, Scope());
  }
};

}  // namespace coracle
