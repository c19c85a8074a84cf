#pragma once
// Runs programs in ONNX Runtime. For development: $CORACLE_ORT is a folder node_modules that
// contains onnxruntime-node.

#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace coracle {

// Why programs cannot be compared here; "" if they can.
inline std::string WhyNoOrt() {
  if (!std::getenv("CORACLE_ORT")) return "no $CORACLE_ORT (node_modules)";
  return std::getenv("CORACLE_SOURCE_DIR") ? "" : "no $CORACLE_SOURCE_DIR";
}

// The largest difference, divided by the largest |want|.
inline double RelativeDifference(const Tensor& want, const Tensor& got) {
  const Tensor a = want.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
  double largest = 1e-30, difference = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  return difference / largest;
}

// Exports the program, which has feed and fetch ops, to `folder` and runs it there. Returns how its
// results differ from those of the executor; "" if they are equal to `tolerance`.
inline std::string CompareWithOrt(const std::string& folder, const ProgramDesc& program,
                                  const Scope& scope, const std::map<std::string, Tensor>& feeds,
                                  double tolerance, int opset = 17, bool one_sequence = false) {
  MakeDirectories(folder);
  ExportOnnx(folder + "/model.onnx", program, scope,
             {.opset = opset, .one_sequence = one_sequence});
  std::string names;
  std::vector<Tensor> in_order;
  for (const std::string& name : FeedNames(program)) {
    WriteNpy(feeds.at(name), fmt::format("{}/in_{}.npy", folder, in_order.size()));
    names += name + "\n";
    in_order.push_back(feeds.at(name));
  }
  WriteFileAtomic(folder + "/inputs.txt", names);
  const std::string run =
      fmt::format("node {}/test/convert/peer/ort_run.js {} {}", std::getenv("CORACLE_SOURCE_DIR"),
                  std::getenv("CORACLE_ORT"), folder);
  if (std::system(run.c_str()) != 0) return "node failed: " + run;
  if (FileExists(folder + "/error.txt")) return ReadFile(folder + "/error.txt");
  Scope own = scope.Clone();
  PreparedProgram net = Executor().PrepareOwning(program, own);
  const std::vector<Tensor>& want = net.Run(own, in_order);
  for (size_t i = 0; i < want.size(); ++i) {
    const Tensor got = ReadNpy(fmt::format("{}/out_{}.npy", folder, i));
    if (got.dtype() != want[i].dtype() || got.shape() != want[i].shape())
      return fmt::format("output {}: {} instead of {}", i, got.ToString(), want[i].ToString());
    const double difference = RelativeDifference(want[i], got);
    if (!(difference <= tolerance)) return fmt::format("output {} differs by {}", i, difference);
  }
  return "";
}

}  // namespace coracle
