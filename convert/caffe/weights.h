#pragma once
// The weights of a Caffe network, from a .caffemodel.

#include <coracle/framework/tensor/tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::caffe {

// The blobs of each layer in Caffe's order and layout (an InnerProduct's weights are [outputs,
// inputs]), as float32. Layers without blobs are left out.
struct CaffeWeights {
  std::string source;  // name for errors
  std::map<std::string, std::vector<Tensor>> layers;
};

// Reads a NetParameter in protobuf's binary format, with layers of any of Caffe's three formats; a
// blob with the four dims of old files gets them as its shape. The file is read once, from
// beginning to end, and only the tensors are in memory. Throws kDataLoss for a damaged or truncated
// file, with the layer and blob at which reading stopped, and kUnimplemented for an HDF5
// file (.caffemodel.h5).
CaffeWeights ReadCaffeModel(const std::string& path);
CaffeWeights ParseCaffeModel(std::string_view bytes, const std::string& source);

}  // namespace coracle::caffe
