#include <coracle/operators/conv/conv_parts.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

int64_t Reach(const WindowAxis& h) { return h.dilation * (h.kernel - 1) + 1; }

int AxisOfRows(const ConvGeometry& g) {
  int i = 0;
  while (i + 1 < g.axes && IsPoint(g.axis(i))) ++i;
  return i;
}

int64_t RowStride(const ConvGeometry& g, const ImageStrides& s) {
  const int from_last = g.axes - 1 - AxisOfRows(g);
  return from_last == 0 ? s.w : from_last == 1 ? s.h : s.d;
}

// The part that computes rows [begin, end) of the output of one image.
ConvPart OutputRows(const ConvGeometry& g, int64_t image, int64_t begin, int64_t end) {
  const WindowAxis& whole = g.axis(AxisOfRows(g));
  const int64_t first = whole.Start(begin), last = whole.Start(end - 1) + Reach(whole);
  const int64_t from = std::clamp<int64_t>(first, 0, whole.in - 1);
  const int64_t to = std::clamp<int64_t>(last, from + 1, whole.in);
  ConvPart part{g, 0, 0};
  part.g.batch = 1;
  WindowAxis& rows = part.g.axis(AxisOfRows(g));
  rows.in = to - from;
  rows.out = end - begin;
  rows.before = from - first;
  rows.after = last - to;
  const ImageStrides in = g.InStrides(), out = g.OutStrides();
  part.input = image * in.n + from * RowStride(g, in);
  part.output = image * out.n + begin * RowStride(g, out);
  return part;
}

// The part that computes rows [begin, end) of the input gradient of one image. `begin` is 0 or the
// start of a window. The part has no outputs if no window reaches these rows.
ConvPart InputRows(const ConvGeometry& g, int64_t image, int64_t begin, int64_t end) {
  const WindowAxis& whole = g.axis(AxisOfRows(g));
  const int64_t before = whole.before + begin - Reach(whole) + 1;  // the first window's start
  const int64_t first = before > 0 ? (before + whole.stride - 1) / whole.stride : 0;
  const int64_t last = std::min(whole.out - 1, (whole.before + end - 1) / whole.stride);
  ConvPart part{g, 0, 0};
  part.g.batch = 1;
  WindowAxis& rows = part.g.axis(AxisOfRows(g));
  rows.in = end - begin;
  rows.out = last - first + 1;
  rows.before = begin - whole.Start(first);
  rows.after = std::max<int64_t>(whole.Start(last) + Reach(whole) - end, 0);
  const ImageStrides in = g.InStrides(), out = g.OutStrides();
  part.input = image * in.n + begin * RowStride(g, in);
  part.output = image * out.n + first * RowStride(g, out);
  return part;
}

// The first row of part k of n, rounded down to the start of a window.
int64_t CutOfInput(const WindowAxis& axis, int64_t k, int64_t n) {
  if (k == 0) return 0;
  if (k == n) return axis.in;
  const int64_t row = axis.in * k / n + axis.before;
  return row - row % axis.stride - axis.before;
}

}  // namespace

const WindowAxis& RowsOf(const ConvGeometry& g) { return g.axis(AxisOfRows(g)); }

std::vector<ConvPart> SplitImages(const ConvGeometry& g, int64_t wanted) {
  const int64_t count = std::clamp<int64_t>(wanted, 1, g.batch);
  std::vector<ConvPart> parts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = g.batch * i / count, end = g.batch * (i + 1) / count;
    parts.push_back({g, begin * g.InStrides().n, begin * g.OutStrides().n});
    parts.back().g.batch = end - begin;
  }
  return parts;
}

std::vector<ConvPart> SplitOutputs(const ConvGeometry& g, int64_t wanted) {
  if (!g.channels_last || g.batch >= wanted) return SplitImages(g, wanted);
  const int64_t rows = RowsOf(g).out;
  const int64_t of_image = std::min((wanted + g.batch - 1) / g.batch, rows);
  std::vector<ConvPart> parts;
  for (int64_t i = 0; i < g.batch * of_image; ++i) {
    const int64_t image = i / of_image, k = i % of_image;
    parts.push_back(OutputRows(g, image, rows * k / of_image, rows * (k + 1) / of_image));
  }
  return parts;
}

std::vector<ConvPart> SplitInputs(const ConvGeometry& g, int64_t wanted) {
  if (!g.channels_last || g.batch >= wanted) return SplitImages(g, wanted);
  const WindowAxis& rows = RowsOf(g);
  const int64_t of_image = std::min((wanted + g.batch - 1) / g.batch, rows.in);
  std::vector<ConvPart> parts;
  for (int64_t i = 0; i < g.batch * of_image; ++i) {
    const int64_t k = i % of_image;
    const int64_t begin = CutOfInput(rows, k, of_image);
    const int64_t end = CutOfInput(rows, k + 1, of_image);
    if (begin < 0 || end <= begin) return SplitImages(g, wanted);
    parts.push_back(InputRows(g, i / of_image, begin, end));
    if (parts.back().g.axis(AxisOfRows(g)).out <= 0) return SplitImages(g, wanted);
  }
  return parts;
}

}  // namespace coracle::inline internal
