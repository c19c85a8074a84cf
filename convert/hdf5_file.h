#pragma once
// Datasets of HDF5 files. Format: the HDF Group's "HDF5 File Format Specification Version 3.0".
//
// This reads what the HDF5 library writes by default (superblock 0 and 1, groups as symbol tables)
// and refuses the rest with a reason. Files may be hostile, on which the HDF5 library itself has
// crashed often: here every address and size is checked, and no byte of a file is read twice, so
// that cycles end.

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>

namespace coracle {

// The datasets below the group `group` of the root group, named by their paths in it ("conv1/0"),
// as float32 or float64. The elements go straight from the file to the tensors. Throws kDataLoss
// for a damaged file, kNotFound without such a group, kUnimplemented for anything but contiguous
// or compact datasets of these types (chunks, filters, links to other files, newer groups, ...).
// LooksLikeHdf5 says whether a file begins as one does (kHdf5SignatureBytes suffice).
constexpr size_t kHdf5SignatureBytes = 8;
bool LooksLikeHdf5(std::string_view bytes);
NamedTensors ReadHdf5(const std::string& path, const std::string& group);
NamedTensors ParseHdf5(std::string_view bytes, const std::string& source, const std::string& group);

}  // namespace coracle
