#include <coracle/operators/detection/detections.h>

#include <algorithm>
#include <iterator>

namespace coracle::inline internal {

void KeepBest(int64_t most, std::vector<Detection>* found) {
  std::stable_sort(found->begin(), found->end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  if (most >= 0 && most < static_cast<int64_t>(found->size()))
    found->erase(found->begin() + most, found->end());
}

void Detections::AddImage(std::vector<Detection> found) {
  std::move(found.begin(), found.end(), std::back_inserter(all_));
  offsets_.push_back(all_.size());
}

void Detections::WriteRows(Workspace& ws, const TensorArg& out, DType dtype) const {
  const Shape shape{static_cast<int64_t>(all_.size()), 2 + width_};
  const RealsOut to(ResizeOutput(ws, out, dtype, shape));
  int64_t at = 0;
  for (const Detection& d : all_) {
    to.Set(at++, static_cast<double>(d.label));
    to.Set(at++, d.score);
    for (double v : d.box) to.Set(at++, v);
  }
  ws.OutputLod(out) = {offsets_};
}

void Detections::WriteIndices(Workspace& ws, const TensorArg& index,
                              const TensorArg& counts) const {
  if (index) {
    Tensor& to = ResizeOutput(ws, index, DType::kInt32, {static_cast<int64_t>(all_.size()), 1});
    for (size_t i = 0; i < all_.size(); ++i)
      to.data<int32_t>()[i] = static_cast<int32_t>(all_[i].index);
    ws.OutputLod(index) = {offsets_};
  }
  if (counts) {
    const Sequences images(offsets_);
    Tensor& to = ResizeOutput(ws, counts, DType::kInt32, {images.count()});
    for (int64_t i = 0; i < images.count(); ++i)
      to.data<int32_t>()[i] = static_cast<int32_t>(images.length(i));
  }
}

std::vector<double> CopyReals(const Reals& from, int64_t at, int64_t n) {
  std::vector<double> copy(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) copy[static_cast<size_t>(i)] = from[at + i];
  return copy;
}

}  // namespace coracle::inline internal
