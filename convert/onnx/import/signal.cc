// Windows, Fourier transforms and mel weights. A transform is a product with the matrix of its
// cosines and sines.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coracle::onnx {
namespace {

DType OutputDType(NodeContext& node) {
  const std::optional<DType> dtype = FromDataType(node.Int32("output_datatype", 1));
  if (!dtype) node.Refuse("attribute output_datatype of a type that no dtype holds");
  return *dtype;
}

int64_t KnownLength(NodeContext& node, size_t i, const char* what) {
  const std::vector<int64_t> value = node.KnownInts(i, what);
  node.Require(value.size() == 1 && value[0] > 0, std::string(what) + " must be a positive number");
  RequireSmallConstant(node, {value[0]}, what);
  return value[0];
}

// a0 + a1 cos(2 pi k / N) + a2 cos(4 pi k / N), N the size, or one less if not periodic.
void SetWindow(NodeContext& node, double a0, double a1, double a2) {
  const int64_t size = KnownLength(node, 0, "size");
  const bool periodic = node.Flag("periodic", true);
  const auto n = static_cast<double>(std::max<int64_t>(periodic ? size : size - 1, 1));
  std::vector<double> window;
  for (int64_t k = 0; k < size; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / n;
    window.push_back(a0 + a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  node.SetConstant(0, Tensor::Of<double>({size}, window).Cast(OutputDType(node)));
}

void ImportHann(NodeContext& node) { SetWindow(node, 0.5, -0.5, 0); }

void ImportHamming(NodeContext& node) { SetWindow(node, 25.0 / 46, -21.0 / 46, 0); }

void ImportBlackman(NodeContext& node) { SetWindow(node, 0.42, -0.5, 0.08); }

// Triangles whose corners are equidistant on the mel scale 2595 log10(1 + f / 700), in rows
// of frequencies.
void ImportMelWeights(NodeContext& node) {
  const int64_t bins = KnownLength(node, 0, "num_mel_bins");
  const int64_t length = KnownLength(node, 1, "dft_length");
  const auto rate = static_cast<double>(KnownLength(node, 2, "sample_rate"));
  const auto lower = static_cast<double>(node.KnownFloat(3, "lower_edge_hertz"));
  const auto upper = static_cast<double>(node.KnownFloat(4, "upper_edge_hertz"));
  const int64_t rows = length / 2 + 1;
  RequireSmallConstant(node, {rows, bins}, "mel weights");
  const double low = 2595 * std::log10(1 + lower / 700), high = 2595 * std::log10(1 + upper / 700);
  std::vector<int64_t> corners;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double mel = static_cast<double>(i) * (high - low) / static_cast<double>(bins + 2) + low;
    const double hertz = 700 * (std::pow(10, mel / 2595) - 1);
    const double at = std::floor(static_cast<double>(length + 1) * hertz / rate);
    node.Require(at >= 0 && at < static_cast<double>(rows),
                 "the edges are not below half the rate");
    corners.push_back(static_cast<int64_t>(at));
  }
  std::vector<double> weights(static_cast<size_t>(rows * bins));
  for (int64_t i = 0; i < bins; ++i) {
    const auto* corner = &corners[static_cast<size_t>(i)];
    const auto weight = [&](int64_t row) -> double& {
      return weights[static_cast<size_t>(row * bins + i)];
    };
    const auto share = [](int64_t part, int64_t all) {
      return static_cast<double>(part) / static_cast<double>(all);
    };
    if (corner[0] == corner[1]) weight(corner[1]) = 1;
    for (int64_t j = corner[0]; j <= corner[1] && corner[0] < corner[1]; ++j)
      weight(j) = share(j - corner[0], corner[1] - corner[0]);
    for (int64_t j = corner[1]; j < corner[2]; ++j)
      weight(j) = share(corner[2] - j, corner[2] - corner[1]);
  }
  node.SetConstant(0, Tensor::Of<double>({rows, bins}, weights).Cast(OutputDType(node)));
}

// --- transforms ---

struct Transform {
  int64_t length;   // of the transform; shorter inputs are padded with zeros
  int64_t outputs;  // of the transform: fewer for one side
  bool inverse = false;
};

// [inputs, outputs]: the cosines of the angles between them, or the sines with the
// transform's sign.
Variable Waves(NodeContext& node, const Transform& t, int64_t inputs, bool sines, DType dtype) {
  RequireSmallConstant(node, {inputs, t.outputs}, "the matrix of a Fourier transform");
  std::vector<double> waves;
  const double scale = t.inverse ? 1.0 / static_cast<double>(t.length) : 1.0;
  for (int64_t i = 0; i < inputs; ++i) {
    for (int64_t k = 0; k < t.outputs; ++k) {
      const double turn = static_cast<double>(i * k % t.length) / static_cast<double>(t.length);
      const double angle = (t.inverse ? 2 : -2) * std::numbers::pi * turn;
      waves.push_back(scale * (sines ? std::sin(angle) : std::cos(angle)));
    }
  }
  return node.ConstantVar(Tensor::Of<double>({inputs, t.outputs}, waves).Cast(dtype));
}

// The transform of the last dim of x [.., n], or of x and i times `imaginary`: [.., outputs, 2].
Variable Transformed(NodeContext& node, Variable x, Variable imaginary, const Transform& t) {
  const int axis = x.shape().rank() - 1;
  int64_t n = x.shape()[axis];
  if (n < 0) node.RefuseUnknown("the length of the signal", "the factors of the transform");
  if (n > t.length) {
    x = SliceOf(node, x, axis, 0, t.length);
    if (imaginary) imaginary = SliceOf(node, imaginary, axis, 0, t.length);
    n = t.length;
  }
  const Variable cosines = Waves(node, t, n, false, x.dtype());
  const Variable sines = Waves(node, t, n, true, x.dtype());
  Variable re = node.Binary("matmul_v2", x, cosines), im = node.Binary("matmul_v2", x, sines);
  if (imaginary) {
    re = re - node.Binary("matmul_v2", imaginary, sines);
    im = im + node.Binary("matmul_v2", imaginary, cosines);
  }
  return node.Make("stack", {{"X", {re.name(), im.name()}}}, {{"axis", axis + 1}}, "Y");
}

// One of the parts in the last dim, without that dim.
Variable PartOf(NodeContext& node, const Variable& x, int64_t part) {
  const int last = x.shape().rank() - 1;
  return node.WithXShape("squeeze2", SliceOf(node, x, last, part, part + 1),
                         {{"axes", std::vector<int32_t>{last}}});
}

void RefuseUnknownParts(NodeContext& node) {
  const Shape shape = node.shape(0);
  if (shape.rank() >= 2 && shape[shape.rank() - 1] < 0)
    node.RefuseUnknown("the last dimension of the input (1 or 2)", "whether numbers are complex");
}

// The real signal of a spectrum of one side, whose other half is its conjugate mirror image:
// y[n] = sum of c[k] (re[k] cos(2 pi k n / N) - im[k] sin(2 pi k n / N)) / N, where c is 1 for k =
// 0 and, if N is even, k = N / 2, and else 2. Entries after N / 2 are not read, absent ones are 0.
void ImportInverseReal(NodeContext& node, int32_t at) {
  const Shape shape = node.shape(0);
  const int rank = shape.rank();
  node.Require(shape[rank - 1] == 2 || shape[rank - 1] < 0,
               "the inverse transform of one side needs a complex input");
  if (shape[at] < 0) node.RefuseUnknown("the length of the signal", "the factors of the transform");
  const int64_t length =
      node.HasInput(1) ? KnownLength(node, 1, "dft_length") : 2 * (shape[at] - 1);
  node.Require(length > 0, "the signal must not be empty");
  const int64_t used = std::min(shape[at], length / 2 + 1);
  RequireSmallConstant(node, {used, length}, "the matrix of a Fourier transform");
  Variable x = node.Cast(node.In(0), DType::kFloat64);
  if (shape[rank - 1] < 0) {  // must be 2 in a run
    Dims dims;
    dims.Add(x, 0, rank - 1).Add(2);
    x = ReshapedBy(node, x, dims.ToVector(node), dims.shape());
  }
  std::vector<double> cosines, sines;
  for (int64_t k = 0; k < used; ++k) {
    const double share = (k == 0 || 2 * k == length ? 1.0 : 2.0) / static_cast<double>(length);
    for (int64_t n = 0; n < length; ++n) {
      const double turn = static_cast<double>(k * n % length) / static_cast<double>(length);
      cosines.push_back(share * std::cos(2 * std::numbers::pi * turn));
      sines.push_back(-share * std::sin(2 * std::numbers::pi * turn));
    }
  }
  const auto product = [&](int64_t part, const std::vector<double>& factors) {
    const Variable moved = MoveAxis(node, PartOf(node, x, part), at, -1);
    const Variable given = used == shape[at] ? moved : SliceOf(node, moved, rank - 2, 0, used);
    const Tensor matrix = Tensor::Of<double>({used, length}, factors);
    return node.Binary("matmul_v2", given, node.ConstantVar(matrix));
  };
  const Variable y = MoveAxis(node, product(0, cosines) + product(1, sines), rank - 2, at);
  node.Set(0, node.WithXShape("unsqueeze2", node.Cast(y, node.In(0).dtype()),
                              {{"axes", std::vector<int32_t>{rank - 1}}}));
}

// The axis is an attribute up to operator set 19.
void ImportDft(NodeContext& node) {
  const bool inverse = node.Flag("inverse", false), one_sided = node.Flag("onesided", false);
  const Shape shape = node.shape(0);
  const int rank = shape.rank();
  if (!one_sided || !inverse) RefuseUnknownParts(node);
  node.Require(rank >= 2 && shape[rank - 1] <= 2 && shape[rank - 1] != 0,
               "the last dimension of the input must be 1 or 2");
  int64_t axis = node.opset() < 20 ? node.Int("axis", 1) : -2;
  if (node.opset() >= 20 && node.HasInput(2)) axis = node.KnownInt(2, "axis");
  const int32_t at = node.Axis(axis, rank);
  node.Require(at != rank - 1, "the axis must not be that of the parts");
  const bool complex = shape[rank - 1] == 2;
  if (one_sided && inverse) return ImportInverseReal(node, at);
  node.Require(!one_sided || !complex, "attribute onesided needs a real input");
  if (shape[at] < 0) node.RefuseUnknown("the length of the signal", "the factors of the transform");
  Transform t{shape[at], shape[at], inverse};
  if (node.HasInput(1)) t.length = KnownLength(node, 1, "dft_length");
  node.Require(t.length > 0, "the signal must not be empty");
  t.outputs = one_sided ? t.length / 2 + 1 : t.length;
  // In float64: of a product with a matrix, float32 keeps fewer digits than a fast transform.
  const Variable x = node.Cast(node.In(0), DType::kFloat64);
  const Variable real = MoveAxis(node, PartOf(node, x, 0), at, -1);
  Variable imaginary;
  if (complex) imaginary = MoveAxis(node, PartOf(node, x, 1), at, -1);
  const Variable y = MoveAxis(node, Transformed(node, real, imaginary, t), rank - 2, at);
  node.Set(0, node.Cast(y, node.In(0).dtype()));
}

// The number of frames of a signal [batch, length], int64 [1].
Variable FramesOf(NodeContext& node, const Variable& x, int64_t step, int64_t length) {
  const Variable rest = DimOf(node, x, 1) - static_cast<double>(length);
  return node.Binary("elementwise_floordiv", rest, node.ConstantVar(std::vector<int64_t>{step})) +
         1.0;
}

// The positions of the elements of all frames in a signal, which may be of unknown length.
Variable PlacesOfFrames(NodeContext& node, int64_t signal, int64_t step, int64_t length) {
  if (signal < 0) {
    const Variable begins =
        Counted(node, FramesOf(node, node.In(0), step, length)) * static_cast<double>(step);
    const Variable within = Counted(node, node.ConstantVar(std::vector<int64_t>{length}));
    return node.Reshape(AlongAxis(node, begins, 0, 2) + AlongAxis(node, within, 1, 2), {-1});
  }
  const int64_t frames = (signal - length) / step + 1;
  RequireSmallConstant(node, {frames, length}, "the frames of a signal");
  std::vector<int64_t> places;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t k = 0; k < length; ++k) places.push_back(f * step + k);
  return node.ConstantVar(places);
}

// The transforms of frames [batch, frames, length] of a signal, each times a window.
void ImportStft(NodeContext& node) {
  const bool one_sided = node.Flag("onesided", true);
  const Shape shape = node.shape(0);
  if (shape.rank() == 3) RefuseUnknownParts(node);
  node.Require(shape.rank() == 2 || (shape.rank() == 3 && (shape[2] == 1 || shape[2] == 2)),
               "the signal must have the shape [batch, length, 1 or 2]");
  const int64_t step = KnownLength(node, 1, "frame_step");
  int64_t length = -1;
  if (node.HasInput(2)) length = node.shape(2)[0];
  if (node.HasInput(3)) length = KnownLength(node, 3, "frame_length");
  node.Require(node.HasInput(2) || node.HasInput(3), "window or frame_length must be given");
  if (length < 0) node.RefuseUnknown("the length of the window", "the factors of the transform");
  node.Require(length > 0, "a frame must have elements");
  node.Require(shape[1] < 0 || shape[1] >= length, "the signal is shorter than a frame");
  const Variable index = PlacesOfFrames(node, shape[1], step, length);
  const auto framed = [&](const Variable& part) {
    const Variable all =
        node.Make("gather", {{"X", {part.name()}}, {"Index", {index.name()}}}, {{"axis", 1}});
    Dims dims;
    const Variable rows = node.Reshape(all, {-1, length});
    dims.Add(part, 0).AddNumber(FramesOf(node, part, step, length)).Add(length);
    const int64_t frames = shape[1] < 0 ? -1 : (shape[1] - length) / step + 1;
    const Variable frame =
        frames < 0 ? Reshaped(node, rows, dims) : node.Reshape(all, {-1, frames, length});
    return node.HasInput(2) ? frame * node.In(2) : frame;
  };
  const bool complex = shape.rank() == 3 && shape[2] == 2;
  node.Require(!one_sided || !complex, "attribute onesided needs a real signal");
  const Variable x = node.In(0);
  const Variable real = framed(shape.rank() == 2 ? x : PartOf(node, x, 0));
  Variable imaginary;
  if (complex) imaginary = framed(PartOf(node, x, 1));
  const Transform t{length, one_sided ? length / 2 + 1 : length};
  node.Set(0, Transformed(node, real, imaginary, t));
}

}  // namespace

void AddSignalImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 17,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = import == ImportDft || import == ImportStft});
  };
  add("HannWindow", "i", ImportHann, "a constant");
  add("HammingWindow", "i", ImportHamming, "a constant");
  add("BlackmanWindow", "i", ImportBlackman, "a constant");
  add("MelWeightMatrix", "i i i f f", ImportMelWeights, "a constant");
  add("DFT", "f2+ i? i?", ImportDft, "matmul_v2, stack");
  add("STFT", "f2-3 i f1? i?", ImportStft, "gather, matmul_v2, stack");
}

}  // namespace coracle::onnx
