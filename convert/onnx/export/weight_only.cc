// Integers of 2 and 4 bits, and the layers whose weights alone are quantised: MatMulNBits of ONNX
// Runtime or, for blocks of other sizes, DequantizeLinear and MatMul.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/quantize.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/operators/quantize/packed_rows.h>

#include <algorithm>
#include <bit>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

constexpr const char* kStoredIntegers = "integers of 4 bits";

// The elements of a parameter; nullptr for any other input.
const Tensor* ParameterIn(OpContext& op, const char* slot) {
  if (!op.Has(slot)) return nullptr;
  const std::string& name = op.op().Input(slot)[0];
  if (const Tensor* found = op.exporter().ParameterOf(op.op(), name)) return found;
  const Value* value = op.exporter().FindValue(name);
  return value ? op.exporter().graph().ConstantOf(*value) : nullptr;
}

// --- numbers in bytes ---

// Numbers by single nodes: the digits of bytes.
Value UnpackedByNodes(OpContext& op, const char* slot, int32_t bits, int64_t length) {
  const DType dtype = op.InType(slot), wide = DType::kInt32;
  const int rank = op.Rank(slot);
  const auto whole = [&](int64_t n) { return op.Constant(Tensor::Of<int32_t>({1}, {int32_t(n)})); };
  Value x = op.Cast(op.In(slot), dtype, wide);
  if (dtype == DType::kInt8) x = op.Node("Mod", {op.Node("Add", {x, whole(256)}), whole(256)});
  const int64_t levels = int64_t{1} << bits;
  Values digits;
  for (int64_t at = 0; at < 8; at += bits) {
    const Value high = at == 0 ? x : op.Node("Div", {x, whole(int64_t{1} << at)});
    digits.push_back(op.Unsqueeze(op.Node("Mod", {high, whole(levels)}), {rank}));
  }
  Ints dims(static_cast<size_t>(rank), 0);
  dims.back() = -1;
  x = op.Concat(digits, rank);
  if (length == 0) dims.back() = 0;
  x = op.Slice(op.Reshape(x, dims), rank - 1, 0, length);
  if (dtype == DType::kInt8) {
    x = op.Node("Mod", {op.Node("Add", {x, whole(levels / 2)}), whole(levels)});
    x = op.Node("Sub", {x, whole(levels / 2)});
  }
  return op.Cast(x, wide, dtype);
}

// A parameter of int4 or uint4 with these numbers.
Value FourBits(OpContext& op, const std::string& name, const Tensor& numbers) {
  const int type = numbers.dtype() == DType::kInt8 ? TensorProto::INT4 : TensorProto::UINT4;
  Tensor flat = PackRows(numbers.Reshaped({numbers.numel()}), 4);
  return op.exporter().graph().AddPacked(name, std::move(flat), type, numbers.shape());
}

bool HasFourBits(const Tensor& numbers) {
  const auto* bytes = static_cast<const uint8_t*>(numbers.raw());
  const int added = numbers.dtype() == DType::kInt8 ? 8 : 0;
  return std::all_of(bytes, bytes + numbers.numel(),
                     [=](uint8_t q) { return static_cast<uint8_t>(q + added) < 16; });
}

void ExportUnpack(OpContext& op) {
  const auto bits = op.Attr<int32_t>("bits");
  const auto length = op.Attr<int64_t>("last_dim");
  const Tensor* packed = ParameterIn(op, "X");
  if (!packed || packed->numel() == 0) return op.Out("Out", UnpackedByNodes(op, "X", bits, length));
  const Tensor numbers = UnpackRows(*packed, bits, length);
  if (bits == 4) op.PreferOpset(21, kStoredIntegers);
  if (bits != 4 || op.opset() < 21) return op.Out("Out", op.Constant(numbers));
  Graph& graph = op.exporter().graph();
  const Value narrow = FourBits(op, op.op().Input("X")[0], numbers);
  // DequantizeLinear reads the parameter itself. Other nodes read the integers as bytes.
  const Value wide = op.Node("Cast", {narrow}, {{"to", ToDataType(numbers.dtype())}});
  graph.SetType(wide, numbers.dtype());
  graph.SetMaker(wide, kFourBits, {narrow});
  op.Out("Out", wide);
}

// --- quantized_linear ---

// The constant inputs of the op, as ONNX has them.
struct LayerParts {
  const Tensor *weight = nullptr, *scale = nullptr, *zero = nullptr;
  int64_t n = 0, k = 0, block = 0, blocks = 1;
  int32_t bits = 8;
};

// Zero points of each block, as unsigned numbers.
Tensor PackedZeros(const LayerParts& p, uint8_t added) {
  Tensor zeros(DType::kUInt8, {p.n, p.blocks});
  for (int64_t i = 0; i < zeros.numel(); ++i) {
    const uint8_t z =
        p.zero ? static_cast<const uint8_t*>(p.zero->raw())[p.zero->numel() == 1 ? 0 : i] : 0;
    zeros.data<uint8_t>()[i] = static_cast<uint8_t>(z + added);
  }
  const Tensor packed = p.bits == 8 ? zeros : PackRows(zeros, p.bits);
  return packed.Reshaped({packed.numel()}).Clone();
}

// Whether all zero points are the middle of the range of unsigned numbers.
bool AreMiddle(const LayerParts& p, uint8_t added) {
  const auto middle = static_cast<uint8_t>(1 << (p.bits - 1));
  if (!p.zero) return added == middle;
  const auto* zeros = static_cast<const uint8_t*>(p.zero->raw());
  return std::all_of(zeros, zeros + p.zero->numel(),
                     [=](uint8_t z) { return static_cast<uint8_t>(z + added) == middle; });
}

// "" if the op has other blocks, or inputs that are not constant.
Value MatMulNBits(OpContext& op, const LayerParts& p) {
  const bool block_fits = p.block >= 16 && std::has_single_bit(static_cast<uint64_t>(p.block));
  const DType dtype = op.InType("X");
  if (!p.weight || !p.scale || (op.Has("ZeroPoint") && !p.zero) || !block_fits || p.n == 0 ||
      p.k == 0 || (dtype != DType::kFloat32 && dtype != DType::kFloat16))
    return "";
  const bool is_signed = p.weight->dtype() == DType::kInt8;
  const auto added = static_cast<uint8_t>(is_signed ? 1 << (p.bits - 1) : 0);
  if (p.zero && p.bits == 4 && !HasFourBits(*p.zero)) return "";
  const int64_t held = p.block * p.bits / 8, row = PackedBytes(p.k, p.bits);
  Tensor weight = Tensor::Zeros(DType::kUInt8, {p.n, p.blocks, held});
  const auto* from = static_cast<const uint8_t*>(p.weight->raw());
  const auto flip = static_cast<uint8_t>(p.bits == 4 ? added * 17 : added);
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t i = 0; i < row; ++i)
      weight.data<uint8_t>()[j * p.blocks * held + i] = from[j * row + i] ^ flip;
  Tensor scales(DType::kFloat32, {p.n * p.blocks});
  for (int64_t i = 0; i < scales.numel(); ++i)
    scales.data<float>()[i] = p.scale->data<float>()[p.scale->numel() == 1 ? 0 : i];
  Values inputs = {op.In("X"), op.Constant(weight),
                   op.Cast(op.Constant(scales), DType::kFloat32, dtype)};
  // Without zero points, the middle of the range stands for 0.
  if (!AreMiddle(p, added)) inputs.push_back(op.Constant(PackedZeros(p, added)));
  return op.Node("com.microsoft.MatMulNBits", inputs,
                 {{"K", p.k}, {"N", p.n}, {"bits", p.bits}, {"block_size", p.block}});
}

// A scale or zero point with an element for each row or block if `several`.
Value StepsIn(OpContext& op, const char* slot, const Value& value, bool several) {
  const Shape& shape = op.InShape(slot);
  const bool one = shape.IsKnown() && shape.numel() == 1;
  if (!several) return ScalarOf(op, value);
  if (!one) return value;
  const char* other = std::string(slot) == "Scale" ? "ZeroPoint" : "Scale";
  return op.Node("Expand", {ScalarOf(op, value), op.ShapeOf(op.In(other))});
}

Value WeightInFloat(OpContext& op, const LayerParts& p) {
  Value numbers;
  if (p.bits == 4 && p.weight) op.PreferOpset(21, kStoredIntegers);
  const bool four = p.bits == 4 && p.weight && op.opset() >= 21 &&
                    (!op.Has("ZeroPoint") || (p.zero && HasFourBits(*p.zero)));
  if (p.bits == 8)
    numbers = op.In("Weight");
  else if (!p.weight)
    numbers = UnpackedByNodes(op, "Weight", p.bits, p.k);
  else if (four)
    numbers = FourBits(op, op.op().Input("Weight")[0], UnpackRows(*p.weight, p.bits, p.k));
  else
    numbers = op.Constant(UnpackRows(*p.weight, p.bits, p.k));
  const auto is_several = [&](const char* slot) {
    return op.Has(slot) && !(op.InShape(slot).IsKnown() && op.InShape(slot).numel() == 1);
  };
  const bool several = is_several("Scale") || is_several("ZeroPoint");
  Values inputs = {numbers, StepsIn(op, "Scale", op.In("Scale"), several)};
  if (op.Has("ZeroPoint") && four) {
    Tensor zeros = p.zero->numel() == 1 && !several ? p.zero->Reshaped(Shape()) : *p.zero;
    if (several && p.zero->numel() == 1) {
      zeros = Tensor::Zeros(p.zero->dtype(), op.InShape("Scale"));
      std::fill_n(static_cast<uint8_t*>(zeros.raw()), zeros.numel(),
                  *static_cast<const uint8_t*>(p.zero->raw()));
    }
    inputs.push_back(FourBits(op, op.op().Input("ZeroPoint")[0], zeros));
  } else if (op.Has("ZeroPoint")) {
    inputs.push_back(StepsIn(op, "ZeroPoint", op.In("ZeroPoint"), several));
  } else if (op.InShape("Scale").IsKnown()) {
    // An optimization of ONNX Runtime takes the type of the numbers from the zero points.
    const Tensor zeros =
        Tensor::Zeros(op.InType("Weight"), several ? op.InShape("Scale") : Shape());
    inputs.push_back(four ? FourBits(op, "zero_points", zeros) : op.Constant(zeros));
  }
  NodeAttrs attrs;
  if (several) attrs.emplace_back("axis", p.block > 0 ? 1 : 0);
  if (several && p.block > 0) {
    op.RequireOpset(21, "a scale for each block");
    attrs.emplace_back("block_size", p.block);
  }
  const Value w = op.Node("DequantizeLinear", inputs, attrs);
  op.exporter().graph().SetType(w, DType::kFloat32);
  return w;
}

void ExportQuantizedLinear(OpContext& op) {
  LayerParts p;
  p.weight = ParameterIn(op, "Weight");
  p.scale = ParameterIn(op, "Scale");
  p.zero = ParameterIn(op, "ZeroPoint");
  p.n = op.InShape("Weight")[0];
  p.k = op.InShape("X")[op.Rank("X") - 1];
  p.block = op.Attr<int64_t>("block_size");
  p.bits = op.Attr<int32_t>("bits");
  op.Require(p.n >= 0 && p.k >= 0, "the number of columns of X or of rows of Weight is unknown");
  if (p.block > 0) p.blocks = p.k / p.block + (p.k % p.block != 0);
  const DType dtype = op.InType("X");
  Value y = MatMulNBits(op, p);
  if (y.empty()) {
    const Value w = op.SwapLast(op.Cast(WeightInFloat(op, p), DType::kFloat32, dtype), 2);
    y = op.Node("MatMul", {op.In("X"), w});
  }
  op.exporter().graph().SetType(y, dtype);
  if (op.Has("Bias")) y = op.Node("Add", {y, op.In("Bias")});
  op.Out("Out", FusedActivation(op, y, dtype));
}

constexpr ExportRow kRows[] = {
    {"quantized_linear", ExportQuantizedLinear,
     "MatMulNBits; DequantizeLinear, MatMul; Add, and the activation"},
    {"unpack_integers", ExportUnpack, "an initializer of int4 or uint4; Mod, Div"},
};

}  // namespace

ExportRows WeightOnlyRows() { return kRows; }

Value FourBitsOf(OpContext& op, const Value& value, const Shape& shape) {
  Graph& graph = op.exporter().graph();
  if (const Values narrow = graph.InputsOf(value, kFourBits); !narrow.empty()) return narrow[0];
  const Values reshaped = graph.InputsOf(value, "Reshape");
  const Values narrow = reshaped.empty() ? Values() : graph.InputsOf(reshaped[0], kFourBits);
  const Parameter* found = narrow.empty() ? nullptr : graph.FindPacked(narrow[0]);
  if (!found || !shape.IsKnown()) return "";
  const Parameter same = *found;
  return graph.AddPacked(same.name, *same.tensor, same.data_type, shape);
}

Value FourBitZeros(OpContext& op, const char* slot, const Shape& shape) {
  const Tensor* zeros = ParameterIn(op, slot);
  if (!zeros || !HasFourBits(*zeros)) return "";
  Tensor each = Tensor::Zeros(zeros->dtype(), shape);
  const auto* from = static_cast<const uint8_t*>(zeros->raw());
  if (zeros->numel() != 1 && zeros->numel() != each.numel()) return "";
  for (int64_t i = 0; i < each.numel(); ++i)
    static_cast<uint8_t*>(each.raw())[i] = from[zeros->numel() == 1 ? 0 : i];
  return FourBits(op, op.op().Input(slot)[0], each);
}

}  // namespace coracle::onnx
