#include "hdf5_weights.h"

#include <coracle/convert/hdf5_file.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::caffe {
namespace {

constexpr const char* kGroup = "data";

[[noreturn]] void Fail(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", PrintableLine(source), what));
}

// Names sort as text: 10 comes before 2.
CaffeWeights ToWeights(NamedTensors datasets, const std::string& source) {
  CaffeWeights weights;
  weights.source = source;
  std::map<std::string, std::map<int64_t, Tensor>> layers;
  for (auto& [path, tensor] : datasets) {
    const size_t slash = path.rfind('/');
    int64_t index = -1;
    if (slash == path.npos || !ParseInt64(path.substr(slash + 1), &index) || index < 0)
      Fail(source, fmt::format("the dataset {} is no blob of a layer", Quote(path, 200)));
    Tensor blob = tensor.dtype() == DType::kFloat32 ? tensor : tensor.Cast(DType::kFloat32);
    tensor = Tensor();
    if (!layers[path.substr(0, slash)].emplace(index, std::move(blob)).second)
      Fail(source, fmt::format("the dataset {} is there twice", Quote(path, 200)));
  }
  for (auto& [name, blobs] : layers) {
    for (auto& [index, blob] : blobs) {
      auto& layer = weights.layers[name];
      if (index != static_cast<int64_t>(layer.size())) {
        Fail(source, fmt::format("layer {} has blob {}, but no blob {}: shared with another layer?",
                                 Quote(name, 200), index, layer.size()));
      }
      layer.push_back(std::move(blob));
    }
  }
  return weights;
}

}  // namespace

CaffeWeights ReadHdf5Weights(const std::string& path) {
  return ToWeights(ReadHdf5(path, kGroup), path);
}

CaffeWeights ParseHdf5Weights(std::string_view bytes, const std::string& source) {
  return ToWeights(ParseHdf5(bytes, source, kGroup), source);
}

}  // namespace coracle::caffe
