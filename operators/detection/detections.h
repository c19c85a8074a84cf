#pragma once
// Detections: the results of the NMS ops in an image, and their output.

#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/nms.h>

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

struct Detection {
  int64_t label;
  double score;
  int64_t index;  // the op's index of this box
  std::vector<double> box;
};

// Keeps the `most` best (all if negative), best first; equal ones keep their order.
void KeepBest(int64_t most, std::vector<Detection>* found);

// The detections of all images, in the order of the images.
class Detections {
 public:
  explicit Detections(int64_t width) : width_(width) {}
  void AddImage(std::vector<Detection> found);
  bool empty() const { return all_.empty(); }

  // Rows label, score, box: [n, 2 + width], with LoD of images.
  void WriteRows(Workspace& ws, const TensorArg& out, DType dtype) const;
  // The indices, an int32 tensor [n, 1] with the same LoD, and the number of detections of each
  // image, an int32 vector. Absent outputs are skipped.
  void WriteIndices(Workspace& ws, const TensorArg& index, const TensorArg& counts) const;

 private:
  int64_t width_;
  std::vector<Detection> all_;
  RowOffsets offsets_{0};
};

// Boxes for nms.h: elements [at, at + n) as double.
std::vector<double> CopyReals(const Reals& from, int64_t at, int64_t n);

}  // namespace coracle::inline internal
