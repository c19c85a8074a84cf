#pragma once
// Elements of TensorProtos in other files of the model's folder. Format:
// ONNX's docs/ExternalData.md.

#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/proto/onnx.pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::onnx {

// The entries of external_data; other entries, such as a checksum, are not read.
struct ExternalRange {
  std::string location;  // path of a file, relative to the model's folder
  std::optional<int64_t> offset;
  std::optional<int64_t> length;  // bytes
};

// Throws kDataLoss for a tensor without a location, and for an invalid offset or length.
ExternalRange ParseExternalRange(const proto::onnx::TensorProto& proto);

// Opens external data in files of the model's folder.
class TensorSource {
 public:
  TensorSource() = default;  // for a model without a folder; external data is an error
  explicit TensorSource(const std::string& folder) : folder_(folder), files_(folder, "the model") {}

  // The file of a tensor whose elements take `bytes`, positioned at their beginning. Throws if the
  // path leads, or may lead, out of the folder (FileAccess), and for a range that is not in the
  // file or has another size.
  FileReader Open(const ExternalRange& range, uint64_t bytes) const;

 private:
  std::string folder_;
  FileAccess files_;
};

// Throws kDataLoss if ranges of one file overlap, unless they are equal: one of the two tensors
// would contain elements of the other.
void CheckOverlaps(std::vector<ExternalRange> ranges);

}  // namespace coracle::onnx
