#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/winograd_filter.h>

#include <memory>
#include <utility>

namespace coracle::winograd {

FilterRestorer::FilterRestorer(int m, const FilterMatrix& matrix, const float* filter,
                               float* transformed)
    : m_(m), matrix_(matrix) {
  const int64_t panels = Panels(matrix.columns), each = DifferencePanel(matrix.rows);
  differences_ = Tensor(DType::kInt8, {panels * each});
  listed_.resize(static_cast<size_t>(panels));
  int8_t* differences = differences_.data<int8_t>();
  ParallelFor(panels, 1, [&](int64_t begin, int64_t end) {
    const auto room =
        std::make_unique_for_overwrite<int32_t[]>(static_cast<size_t>(ListRoom(matrix.rows)));
    for (int64_t p = begin; p < end; ++p) {
      const int64_t count = TransformFilterExactly(m, matrix, filter, p,
                                                   transformed + p * FilterPanel(m, matrix.rows),
                                                   differences + p * each, room.get());
      listed_[static_cast<size_t>(p)].assign(room.get(), room.get() + count);
    }
  });
}

void FilterRestorer::Restore(const float* transformed, float* filter) const {
  const int8_t* differences = std::as_const(differences_).data<int8_t>();
  ParallelFor(Panels(matrix_.columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      RestoreFilter(m_, matrix_, transformed + p * FilterPanel(m_, matrix_.rows),
                    differences + p * DifferencePanel(matrix_.rows),
                    listed_[static_cast<size_t>(p)].data(), p, filter);
    }
  });
}

size_t FilterRestorer::nbytes() const {
  size_t bytes = differences_.nbytes();
  for (const auto& listed : listed_) bytes += listed.size() * sizeof(int32_t);
  return bytes;
}

}  // namespace coracle::winograd
