#pragma once
// The weights of a Caffe network in HDF5 (.caffemodel.h5): data/<layer>/<index of the blob>.

#include <coracle/convert/caffe/weights.h>

#include <string>
#include <string_view>

namespace coracle::caffe {

// Float64 becomes float32. Throws kDataLoss for a layer whose blobs are not numbered from 0 on (a
// blob that a layer shares with another is in the file once, and so refused here), and what
// ReadHdf5 throws. A layer's name may have slashes.
CaffeWeights ReadHdf5Weights(const std::string& path);
CaffeWeights ParseHdf5Weights(std::string_view bytes, const std::string& source);

}  // namespace coracle::caffe
