#pragma once
// The weights of a Caffe network: what a .caffemodel holds.

#include <coracle/framework/tensor/tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::caffe {

// For each layer its blobs in Caffe's order and layout (an InnerProduct's weights are [outputs,
// inputs]), float32. Layers without blobs are left out.
struct CaffeWeights {
  std::string source;  // as errors name it
  std::map<std::string, std::vector<Tensor>> layers;
};

// A NetParameter in protobuf's binary format, its layers of any of Caffe's three formats; a blob
// with the four dims of old files has these as its shape. The file is read once, from the beginning
// to the end: in memory are only the tensors. Throws kDataLoss for a damaged or truncated file,
// with the layer and blob at which reading stopped, and kUnimplemented for an HDF5 file
// (.caffemodel.h5).
CaffeWeights ReadCaffeModel(const std::string& path);
CaffeWeights ParseCaffeModel(std::string_view bytes, const std::string& source);

}  // namespace coracle::caffe
