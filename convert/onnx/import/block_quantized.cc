// Weights of 2, 4 or 8 bits with a scale for each block: MatMulNBits and GatherBlockQuantized, both
// of com.microsoft.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/quantize/packed_rows.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace coracle::onnx {
namespace {

// Numbers of so many bits in bytes, the first one in the lowest bits.
class PackedRows {
 public:
  // Rows of `length` bytes.
  PackedRows(const uint8_t* bytes, int64_t length, int64_t bits)
      : bytes_(bytes), length_(length), bits_(bits), in_byte_(8 / bits) {}

  uint8_t At(int64_t row, int64_t i) const {
    const uint8_t byte = bytes_[row * length_ + i / in_byte_];
    return static_cast<uint8_t>((byte >> (i % in_byte_ * bits_)) & ((1 << bits_) - 1));
  }

 private:
  const uint8_t* bytes_;
  int64_t length_, bits_, in_byte_;
};

int64_t BitsOf(NodeContext& node) {
  const int64_t bits = node.Int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8)
    node.Refuse(fmt::format("numbers of {} bits: numbers of 2, 4 and 8 bits are known", bits));
  return bits;
}

int64_t Blocks(int64_t length, int64_t block) { return length / block + (length % block != 0); }

// --- MatMulNBits ---

struct Weights {
  int64_t rows = 0, columns = 0, bits = 0, block = 0, blocks = 0;
};

Weights WeightsOf(NodeContext& node) {
  Weights w = {.rows = node.Int("N"),
               .columns = node.Int("K"),
               .bits = BitsOf(node),
               .block = node.Int("block_size")};
  // An input A of 8 bits would be faster and less exact.
  node.attributes().Ignore("accuracy_level");
  if (node.Int("weight_prepacked", 0) != 0)
    node.Refuse("attribute weight_prepacked: B is in the order of a graphics processor");
  const int64_t most = int64_t{1} << 31;
  node.Require(w.rows >= 1 && w.columns >= 1 && w.rows < most && w.columns < most,
               "attributes N and K must be positive");
  node.Require(w.block >= 16 && w.block <= (int64_t{1} << 20) && (w.block & (w.block - 1)) == 0,
               fmt::format("attribute block_size must be a power of 2 from 16, got {}", w.block));
  w.blocks = Blocks(w.columns, w.block);
  return w;
}

// The bytes of a constant, of which `count` are needed.
const uint8_t* BytesOf(NodeContext& node, size_t i, int64_t count, const char* what) {
  const Tensor* tensor = node.Constant(i);
  if (!tensor) {
    node.Refuse(
        fmt::format("{} (input {}) must be a constant, whose bits the import reads: make it an "
                    "initializer of the model",
                    what, i));
  }
  node.Require(
      tensor->dtype() == DType::kUInt8 && tensor->numel() == count,
      fmt::format("{} (input {}) must have {} bytes, got {}", what, i, count, tensor->ToString()));
  return tensor->data<uint8_t>();
}

// Zero points of packed numbers, one for each block; {} if they are floats or not constant.
std::vector<float> PackedZeros(NodeContext& node, const Weights& w) {
  const auto count = static_cast<size_t>(w.rows * w.blocks);
  if (!node.HasInput(3)) return std::vector<float>(count, static_cast<float>(1 << (w.bits - 1)));
  if (IsFloating(node.InValue(3).dtype())) return {};
  const int64_t length = (w.blocks * w.bits + 7) / 8;
  const PackedRows packed(BytesOf(node, 3, w.rows * length, "zero_points"), length, w.bits);
  std::vector<float> zeros(count);
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t i = 0; i < w.blocks; ++i)
      zeros[static_cast<size_t>(row * w.blocks + i)] = packed.At(row, i);
  return zeros;
}

// B as floats, [rows, blocks, block].
Tensor Levels(NodeContext& node, const Weights& w) {
  const int64_t length = w.block * w.bits / 8;
  const PackedRows packed(BytesOf(node, 1, w.rows * w.blocks * length, "B"), length, w.bits);
  Tensor levels(DType::kFloat32, {w.rows, w.blocks, w.block});
  float* to = levels.data<float>();
  for (int64_t row = 0; row < w.rows * w.blocks; ++row)
    for (int64_t i = 0; i < w.block; ++i) *to++ = static_cast<float>(packed.At(row, i));
  return levels;
}

// Scales or zero points of the blocks.
Variable OfBlocks(NodeContext& node, size_t i, const Weights& w, const char* what) {
  const Shape shape = node.shape(i);
  node.Require(!shape.IsKnown() || shape.numel() == w.rows * w.blocks,
               fmt::format("{} (input {}) must have {} x {} elements, got {}", what, i, w.rows,
                           w.blocks, shape.ToString()));
  return node.Reshape(node.Cast(node.In(i), DType::kFloat32), {w.rows, w.blocks, 1});
}

// Rows of B without the bytes that fill up the last block. Numbers of 2 bits become bytes.
Tensor RowsOfB(NodeContext& node, const Weights& w) {
  const int64_t held = w.blocks * (w.block * w.bits / 8);
  const uint8_t* from = BytesOf(node, 1, w.rows * held, "B");
  const PackedRows packed(from, held, w.bits);
  const int64_t bytes = w.bits == 4 ? (w.columns + 1) / 2 : w.columns;
  Tensor rows(DType::kUInt8, {w.rows, bytes});
  for (int64_t row = 0; row < w.rows; ++row) {
    uint8_t* to = rows.data<uint8_t>() + row * bytes;
    for (int64_t i = 0; i < bytes; ++i)
      to[i] = w.bits == 4 ? from[row * held + i] : packed.At(row, i);
  }
  return rows;
}

// Scales [rows, blocks] of float32: a constant if they are.
Variable ScalesOf(NodeContext& node, const Weights& w) {
  const Tensor* scales = node.Constant(2);
  const Shape shape = {w.rows, w.blocks};
  if (scales && scales->numel() == w.rows * w.blocks)
    return node.ConstantVar(scales->Cast(DType::kFloat32).Reshaped(shape).Clone());
  return node.Reshape(OfBlocks(node, 2, w, "scales"), shape.ToVector());
}

// The op quantized_linear, for zero points that are integers.
Variable LayerOf(NodeContext& node, const Weights& w, const Variable& a,
                 const std::vector<float>& zeros) {
  Tensor each(DType::kUInt8, node.HasInput(3) ? Shape{w.rows, w.blocks} : Shape{1});
  for (int64_t i = 0; i < each.numel(); ++i)
    each.data<uint8_t>()[i] = static_cast<uint8_t>(zeros[static_cast<size_t>(i)]);
  SlotList inputs = {{"X", {a.name()}},
                     {"Weight", {node.ConstantVar(RowsOfB(node, w)).name()}},
                     {"Scale", {ScalesOf(node, w).name()}},
                     {"ZeroPoint", {node.ConstantVar(each).name()}}};
  if (node.HasInput(5)) inputs.push_back({"Bias", {node.Cast(node.In(5), DType::kFloat32).name()}});
  return node.Make("quantized_linear", std::move(inputs),
                   {{"bits", int32_t{w.bits == 4 ? 4 : 8}}, {"block_size", w.block}});
}

// The product for zero points that are floats, or that only a run knows.
Variable ProductOf(NodeContext& node, const Weights& w, const Variable& a) {
  Variable x = node.ConstantVar(Levels(node, w));
  x = x - OfBlocks(node, 3, w, "zero_points");
  x = node.Reshape(x * OfBlocks(node, 2, w, "scales"), {w.rows, w.blocks * w.block});
  if (w.columns != w.blocks * w.block) x = SliceOf(node, x, 1, 0, w.columns);
  const Variable y =
      node.Make("matmul_v2", {{"X", {a.name()}}, {"Y", {x.name()}}}, {{"trans_y", true}});
  return node.HasInput(5) ? y + node.Cast(node.In(5), DType::kFloat32) : y;
}

// Inputs A, B in bits, scales, zero points, an order of the columns, a bias.
void ImportMatMulNBits(NodeContext& node) {
  const Weights w = WeightsOf(node);
  if (node.HasInput(4)) {
    node.Refuse(
        "g_idx (input 4), an order of the columns: quantize without it (ONNX Runtime no "
        "longer supports it)");
  }
  node.Require(node.rank(0) >= 1, "A must have a dimension");
  const Variable a = node.Cast(node.In(0), DType::kFloat32);
  // First of all, the file must hold as much as the attributes say.
  BytesOf(node, 1, w.rows * w.blocks * (w.block * w.bits / 8), "B");
  const std::vector<float> zeros = PackedZeros(node, w);
  const Variable y = zeros.empty() ? ProductOf(node, w, a) : LayerOf(node, w, a, zeros);
  node.Set(0, node.Cast(y, node.dtype(0)));
}

// --- GatherBlockQuantized ---

struct Table {
  Variable numbers, scales, zeros;  // zeros may be empty
  double zero = 0;                  // if `zeros` is empty
};

// The bytes of input i as numbers, along the last axis.
Variable Unpacked(NodeContext& node, size_t i, int64_t bits, int64_t length) {
  const Tensor* bytes = node.Constant(i);
  if (!bytes) {
    node.Refuse(
        fmt::format("packed numbers (input {}) must be a constant, whose bits the import reads: "
                    "make it an initializer of the model",
                    i));
  }
  node.Require(bytes->dtype() == DType::kUInt8 && bytes->shape().rank() >= 1,
               fmt::format("packed numbers (input {}) must be bytes", i));
  Shape shape = bytes->shape();
  const int last = shape.rank() - 1;
  const int64_t held = shape[last], rows = shape.Product(0, last);
  node.Require(
      length <= held * 8 / bits,
      fmt::format("input {} has {} numbers in a row, but needs {}", i, held * 8 / bits, length));
  shape[last] = length;
  Tensor result(DType::kUInt8, shape);
  const PackedRows packed(bytes->data<uint8_t>(), held, bits);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = 0; at < length; ++at)
      result.data<uint8_t>()[row * length + at] = packed.At(row, at);
  return node.ConstantVar(result);
}

Table TableOf(NodeContext& node) {
  Table table;
  table.scales = node.In(2);
  const int data_type = node.InValue(0).data_type;
  const bool bytes = !IsSmall(data_type);
  if (!IsSmallInteger(data_type) && (IsSmall(data_type) || node.dtype(0) != DType::kUInt8))
    node.Refuse(
        fmt::format("data (input 0) of type {}: quantize to uint8, int4 or uint4, with the blocks "
                    "of this op",
                    DataTypeName(data_type)));
  const int64_t bits = bytes ? BitsOf(node) : 8;
  if (!bytes) node.attributes().Ignore("bits");
  table.zero = bytes ? 1 << (bits - 1) : 0;
  const bool packed = bytes && bits < 8;
  const int last = node.rank(0) - 1;
  node.Require(last >= 0 && node.rank(2) == last + 1, "data and scales must have one rank");
  const int64_t held = node.shape(0)[last], blocks = node.shape(2)[last];
  if (packed && (held < 0 || blocks < 0))
    node.RefuseUnknown("the width of packed data or of its scales", "how many numbers it has");
  table.numbers = packed ? Unpacked(node, 0, bits, held * 8 / bits) : node.OwnIn(0);
  if (node.HasInput(3)) {
    node.Require(node.rank(3) == last + 1, "data and zero_points must have one rank");
    table.zeros = packed ? Unpacked(node, 3, bits, blocks) : node.OwnIn(3);
  }
  return table;
}

Variable Taken(NodeContext& node, const Variable& x, const Variable& index, int32_t axis) {
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"axis", axis}});
}

// For each number along an axis of this length, the place of its block.
Variable BlockPlaces(NodeContext& node, int64_t length, int64_t block) {
  std::vector<int64_t> block_of;
  RequireSmallConstant(node, {length}, "numbers of blocks");
  for (int64_t i = 0; i < length; ++i) block_of.push_back(i / block);
  return node.ConstantVar(block_of);
}

// (numbers - zeros) * scales, where the number at each place along the axis has the scale and the
// zero point at `index`.
Variable BlocksScaled(NodeContext& node, const Table& table, int32_t axis, const Variable& index) {
  const DType dtype = table.scales.dtype();
  Variable x = node.Cast(table.numbers, dtype);
  if (table.zeros)
    x = x - Taken(node, node.Cast(table.zeros, dtype), index, axis);
  else if (table.zero != 0)
    x = x - table.zero;
  return x * Taken(node, table.scales, index, axis);
}

// Scales or zero points x, of which there must be one for each block of the numbers. If only a run
// knows that, the reshape checks it.
void RequireBlocks(NodeContext& node, Variable& x, const Variable& numbers, int32_t axis,
                   int64_t block, const char* what) {
  if (!x) return;
  const int64_t length = numbers.shape()[axis];
  if (length < 0) node.RefuseUnknown("the length of the quantized axis", "the blocks");
  Dims dims;
  dims.Add(numbers, 0, axis).Add(Blocks(length, block)).Add(numbers, axis + 1, x.shape().rank());
  node.Require(x.shape().CompatibleWith(dims.shape()),
               fmt::format("{} must have one element for each block of {} along axis {}, that is, "
                           "the shape {}, got {}",
                           what, block, axis, dims.shape().ToString(), x.shape().ToString()));
  if (!x.shape().IsKnown() || !dims.shape().IsKnown())
    x = ReshapedBy(node, x, dims.ToVector(node), dims.shape());
}

// Inputs data, indices, scales, zero points.
void ImportGatherBlockQuantized(NodeContext& node) {
  const int rank = node.rank(0);
  node.Require(rank >= 1, "data must have a dimension");
  const int32_t along = node.Axis(node.Int("gather_axis", 0), rank);
  const int32_t axis = node.Axis(node.Int("quantize_axis", 1), rank);
  const int64_t block = node.Int("block_size", 128);
  node.Require(block >= 1, "attribute block_size must be positive");
  Table table = TableOf(node);
  RequireBlocks(node, table.scales, table.numbers, axis, block, "scales (input 2)");
  RequireBlocks(node, table.zeros, table.numbers, axis, block, "zero_points (input 3)");
  const Variable given = node.In(1);
  const Variable flat = node.Reshape(IndicesOf(node, 1, DimOf(node, table.numbers, along)), {-1});
  // The numbers are taken as integers, so a run does not hold the table in floating point.
  const Variable blocks = BlockPlaces(node, table.numbers.shape()[axis], block);
  Variable index = blocks;
  if (along == axis) {
    index = Taken(node, blocks, flat, 0);
    table.numbers = Taken(node, table.numbers, flat, along);
  } else {
    for (Variable* x : {&table.numbers, &table.scales, &table.zeros})
      if (*x) *x = Taken(node, *x, flat, along);
  }
  const Variable y = BlocksScaled(node, table, axis, index);
  Dims dims;
  dims.Add(y, 0, along);
  if (!node.IsScalar(1)) dims.Add(given, 0, given.shape().rank());
  dims.Add(y, along + 1, rank);
  const bool scalar = dims.shape().rank() == 0;
  node.Set(0, scalar ? y : Reshaped(node, y, dims), scalar);
}

}  // namespace

Variable ImportState::VarOfPacked(VarDesc& var, const Tensor& numbers, int bits) {
  BlockDesc& root = program.Root();
  Tensor packed = PackedForm(numbers, bits);
  var.SetMeta({VarType::kLoDTensor, packed.dtype(), packed.shape(), 0});
  parameters->Set(var.name(), std::move(packed));
  const Writer at_root(root, writer.ops());
  return writer.Var(
      root, root.Var(WriteUnpacked(at_root, at_root.Var(root, var), numbers.shape(), bits).name()));
}

void AddBlockQuantizedImporters(NodeImporters& importers) {
  importers.Add({.op_type = "MatMulNBits",
                 .since = 1,
                 .takes = "f1+ i f T? i? f1?",
                 .import = ImportMatMulNBits,
                 .maps_to = "quantized_linear; matmul_v2",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "GatherBlockQuantized",
                 .since = 1,
                 .takes = "T1+ i f1+ T1+?",
                 .import = ImportGatherBlockQuantized,
                 .maps_to = "gather, elementwise_sub, elementwise_mul",
                 .unsigneds = Unsigned::kMoves,
                 .composed = true,
                 .domain = "com.microsoft"});
}

}  // namespace coracle::onnx
