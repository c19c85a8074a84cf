#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/resample.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace coracle::inline internal {

AxisMap Transposed(const AxisMap& map) {
  // Calls f(element of the source, k, weight) for all k in order. Weights of equal positions in one
  // k, which are adjacent, are added.
  const auto for_sums = [&map](auto&& f) {
    for (size_t k = 0; k + 1 < map.begin.size(); ++k) {
      const auto end = static_cast<size_t>(map.begin[k + 1]);
      for (auto i = static_cast<size_t>(map.begin[k]); i < end;) {
        const int32_t at = map.at[i];
        float weight = 0;
        for (; i < end && map.at[i] == at; ++i) weight += map.weight[i];
        if (weight != 0) f(static_cast<size_t>(at), static_cast<int32_t>(k), weight);
      }
    }
  };
  AxisMap back;
  back.in = map.out;
  back.out = map.in;
  back.begin.assign(static_cast<size_t>(map.in) + 1, 0);
  for_sums([&](size_t at, int32_t, float) { ++back.begin[at + 1]; });
  std::partial_sum(back.begin.begin(), back.begin.end(), back.begin.begin());
  back.at.resize(static_cast<size_t>(back.begin.back()));
  back.weight.resize(back.at.size());
  // begin[at] moves to the end of the element, which is the beginning of the next one.
  for_sums([&](size_t at, int32_t k, float weight) {
    const auto i = static_cast<size_t>(back.begin[at]++);
    back.at[i] = k;
    back.weight[i] = weight;
  });
  std::copy_backward(back.begin.begin(), back.begin.end() - 1, back.begin.end());
  back.begin[0] = 0;
  return back;
}

namespace {

// Two axes as one: element (k, l) gets index k * inner.out + l.
AxisMap Product(const AxisMap& outer, const AxisMap& inner) {
  AxisMap both;
  both.in = outer.in * inner.in;
  both.out = outer.out * inner.out;
  both.begin.push_back(0);
  const auto for_taps = [](const AxisMap& map, int64_t k, auto&& f) {
    for (int64_t i = map.begin[static_cast<size_t>(k)]; i < map.begin[static_cast<size_t>(k) + 1];
         ++i)
      f(map.at[static_cast<size_t>(i)], map.weight[static_cast<size_t>(i)]);
  };
  for (int64_t k = 0; k < both.out; ++k) {
    for_taps(outer, k / inner.out, [&](int64_t a, float outer_weight) {
      for_taps(inner, k % inner.out, [&](int64_t b, float weight) {
        both.at.push_back(static_cast<int32_t>(a * inner.in + b));
        both.weight.push_back(outer_weight * weight);
      });
    });
    both.begin.push_back(static_cast<int64_t>(both.at.size()));
  }
  return both;
}

}  // namespace

Resample::Resample(std::array<AxisMap, 3> maps, int64_t planes, int64_t pixel, bool move)
    : planes_(planes), pixel_(pixel), in_width_(maps[2].in) {
  const auto taps = [&](size_t axis) { return static_cast<int64_t>(maps[axis].at.size()); };
  usable_ = maps[0].in < kMostPlaces / maps[1].in && maps[0].out <= kMostTaps / maps[1].out &&
            taps(0) <= kMostTaps / std::max<int64_t>(1, taps(1)) && MakeColumns(maps[2]) &&
            (pixel_ > 1 || MakeSpans());
  if (usable_) rows_ = Product(maps[0], maps[1]);
  columns_.move = move;
}

bool Resample::MakeColumns(const AxisMap& width) {
  RowTaps& c = columns_;
  c.out = width.out;
  c.stride = (c.out + RowTaps::kAlign - 1) / RowTaps::kAlign * RowTaps::kAlign;
  c.taps = 1;
  for (size_t k = 0; k + 1 < width.begin.size(); ++k)
    c.taps = std::max(c.taps, width.begin[k + 1] - width.begin[k]);
  // Padding few taps to many costs time (`out`), and many taps cost memory (`stride`).
  const auto all = static_cast<int64_t>(width.at.size());
  if (c.taps > kMostTaps / c.stride || c.taps * c.out > 4 * all + 1024 ||
      c.taps * c.stride > 4 * all + kFewTaps)
    return false;
  c.ragged = c.taps * c.out > all;
  c.at.resize(static_cast<size_t>(c.taps * c.stride));
  c.weight.resize(c.at.size());
  for (int64_t t = 0; t < c.taps; ++t) {
    int32_t last = 0;
    for (int64_t k = 0; k < c.stride; ++k) {
      const auto i = static_cast<size_t>(t * c.stride + k);
      if (k < c.out) {
        const int64_t first = width.begin[static_cast<size_t>(k)];
        const int64_t count = width.begin[static_cast<size_t>(k) + 1] - first;
        // A missing tap repeats the last one of the position with weight 0: `ragged`.
        const int32_t at =
            count == 0 ? last : width.at[static_cast<size_t>(first + std::min(t, count - 1))];
        if (at < last) return false;
        last = at;
        if (t < count) c.weight[i] = width.weight[static_cast<size_t>(first + t)];
      }
      c.at[i] = last;
    }
  }
  return true;
}

bool Resample::MakeSpans() {
  const RowTaps& c = columns_;
  const auto span = [&](int64_t begin, int64_t end) {
    Span s{begin, end, in_width_, 0};
    for (int64_t t = 0; t < c.taps; ++t) {
      s.low = std::min<int64_t>(s.low, c.at[static_cast<size_t>(t * c.stride + begin)]);
      s.high = std::max<int64_t>(s.high, c.at[static_cast<size_t>(t * c.stride + end - 1)] + 1);
    }
    return s;
  };
  for (int64_t begin = 0; begin < c.out;) {
    int64_t size = kSpan;
    Span s = span(begin, std::min(begin + size, c.out));
    while (s.high - s.low > kBuffer && size > RowTaps::kAlign) {
      size /= 2;
      s = span(begin, std::min(begin + size, c.out));
    }
    if (s.high - s.low > kBuffer) return false;
    spans_.push_back(s);
    group_ = std::min(group_, kBuffer / (s.high - s.low));
    begin = s.end;
  }
  return true;
}

void Resample::operator()(const float* in, float* out) const {
  const int64_t rows = planes_ * rows_.out;
  const int64_t work = columns_.out * pixel_ * columns_.taps;
  ParallelFor(rows, 1 + 32768 / work, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += group_)
      MakeRows(r, std::min(group_, end - r), in, out + r * columns_.out * pixel_);
  });
}

// Finds the rows of the source, from index `first` on and at most kMost, that contribute to row r
// of a plane. Returns their total number.
int64_t Resample::Find(int64_t r, int64_t plane, int64_t first, const float* in,
                       Sources* sources) const {
  const int64_t begin = rows_.begin[static_cast<size_t>(r)];
  const int64_t count = rows_.begin[static_cast<size_t>(r) + 1] - begin;
  const float* from = in + plane * rows_.in * in_width_ * pixel_;
  sources->count = std::clamp<int64_t>(count - first, 0, Sources::kMost);
  for (int64_t k = 0; k < sources->count; ++k) {
    const auto i = static_cast<size_t>(begin + first + k);
    sources->rows[k] = from + rows_.at[i] * in_width_ * pixel_;
    sources->weights[k] = rows_.weight[i];
  }
  return count;
}

// Rows [r, r + n). Sums over rows come before sums over columns, and for all n rows first: reading
// a vector just written as parts of two others is slow.
void Resample::MakeRows(int64_t r, int64_t n, const float* in, float* out) const {
  const int64_t width = columns_.out * pixel_;
  Sources sources[kGroup];
  bool add = false;
  for (int64_t first = 0, most = 1; first < most; first += Sources::kMost, add = true) {
    int64_t plane = r / rows_.out, row = r % rows_.out;
    for (int64_t g = 0; g < n; ++g) {
      most = std::max(most, Find(row, plane, first, in, sources + g));
      if (++row == rows_.out) ++plane, row = 0;
    }
    if (pixel_ > 1) {
      for (int64_t g = 0; g < n; ++g) {
        const Sources& s = sources[g];
        if (!add || s.count > 0)
          MixPixels(columns_, pixel_, s.rows, s.weights, s.count, add, out + g * width);
      }
    } else {
      for (const Span& span : spans_) MixSpan(span, sources, n, add, out);
    }
  }
}

void Resample::MixSpan(const Span& span, const Sources* sources, int64_t n, bool add,
                       float* out) const {
  float buffer[kBuffer], part[kSpan];
  const float* from[kGroup];
  const int64_t size = span.high - span.low;
  for (int64_t g = 0; g < n; ++g) {
    const Sources& s = sources[g];
    if (s.count == 1 && s.weights[0] == 1) {
      from[g] = s.rows[0] + span.low;
      continue;
    }
    const float* rows[Sources::kMost];
    for (int64_t i = 0; i < s.count; ++i) rows[i] = s.rows[i] + span.low;
    from[g] = buffer + g * size;
    MixRows(rows, s.weights, s.count, size, buffer + g * size);
  }
  for (int64_t g = 0; g < n; ++g) {
    float* to = out + g * columns_.out;
    MixColumns(columns_, span.begin, span.end, from[g], span.low, span.high,
               add ? part : to + span.begin);
    for (int64_t k = span.begin; add && k < span.end; ++k) to[k] += part[k - span.begin];
  }
}

}  // namespace coracle::inline internal
