#pragma once
// Planes of float32 that are made from planes of another size, where each element is a sum of
// elements of the source and weights are products over the axes: interpolation and its gradient.

#include <coracle/operators/kernels/vision_simd.h>

#include <array>
#include <cstdint>
#include <vector>

namespace coracle {

// Element k of an axis is the sum of weight[i] times element at[i] of the source, over i in
// [begin[k], begin[k + 1]). For one k the places do not decrease.
struct AxisMap {
  int64_t in = 1, out = 1;
  std::vector<int64_t> begin;
  std::vector<int32_t> at;
  std::vector<float> weight;
};

// The map of the gradient: every element receives from the places that read it. Weights of one
// place are added, those that are 0 left out. REQUIRES: equal places of one k follow one another.
AxisMap Transposed(const AxisMap& map);

class Resample {
 public:
  // Maps of depth, height and width; `pixel` elements stand together at each place. With `move` the
  // only tap of each place has weight 1.
  Resample(std::array<AxisMap, 3> maps, int64_t planes, int64_t pixel, bool move);

  // False where places are in no order, too far from each other, too many or too unevenly many for
  // tables.
  bool usable() const { return usable_; }
  void operator()(const float* in, float* out) const;

 private:
  static constexpr int64_t kBuffer = 4096;
  static constexpr int64_t kSpan = 1024;
  static constexpr int64_t kGroup = 8;
  static constexpr int64_t kMostPlaces = int64_t{1} << 31;
  // Of the rows together, and of the columns: limits of the memory of the tables.
  static constexpr int64_t kMostTaps = int64_t{1} << 22;
  static constexpr int64_t kFewTaps = int64_t{1} << 18;

  // Columns [begin, end) of a row come from columns [low, high) of the source. At most kSpan from
  // at most kBuffer.
  struct Span {
    int64_t begin, end, low, high;
  };
  // Rows of the source whose sum makes up a row.
  struct Sources {
    static constexpr int64_t kMost = 16;
    int64_t count;
    const float* rows[kMost];
    float weights[kMost];
  };
  bool MakeColumns(const AxisMap& width);
  bool MakeSpans();
  int64_t Find(int64_t r, int64_t plane, int64_t first, const float* in, Sources* sources) const;
  void MakeRows(int64_t r, int64_t n, const float* in, float* out) const;
  void MixSpan(const Span& span, const Sources* sources, int64_t n, bool add, float* out) const;

  AxisMap rows_;  // of depth and height together
  RowTaps columns_;
  std::vector<Span> spans_;
  int64_t planes_, pixel_, in_width_;
  int64_t group_ = kGroup;  // rows that are made together
  bool usable_ = false;
};

}  // namespace coracle
