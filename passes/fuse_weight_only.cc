// Products of real numbers and frozen weights of integers keep the integers in memory:
//
//   w = affine_dequantize(q), y = fc(x, w, bias)
//
// is replaced by
//
//   y = quantized_linear(x, q, bias)
//
// whose weight has a row for each column of y. Integers that fit into 4 bits are packed. A
// lookup_table selects the integers first, and dequantizes only those.

#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/quantize/quantized_linear.h>
#include <coracle/passes/fuse_quantized.h>
#include <coracle/passes/passes.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

namespace coracle::inline internal {
namespace {

// --- the weight ---

// A frozen matrix of integers with frozen steps.
struct IntegerMatrix {
  std::string name;
  const Tensor *numbers = nullptr, *scale = nullptr, *zero = nullptr;
  std::string scale_name;
  int axis = 0;
  int64_t block = 0;
};

const Tensor* FrozenInput(const QuantizedScene& scene, const OpDesc& op, const char* slot) {
  return op.Input(slot).size() == 1 ? scene.context().FrozenValue(op.Input(slot)[0]) : nullptr;
}

// Whether the scales are finite, and so are the numbers that integers of 8 bits stand for.
bool AreUsual(const Tensor& scales) {
  const Tensor wide = scales.Cast(DType::kFloat32);
  const float* s = wide.data<float>();
  return wide.numel() > 0 && std::all_of(s, s + wide.numel(), IsUsualScale);
}

// What the op that writes `var` dequantizes.
std::optional<IntegerMatrix> MatrixOf(const QuantizedScene& scene, const std::string& var) {
  const auto writers = scene.block().Uses(var).writers;
  if (writers.size() != 1 || writers[0]->type() != "affine_dequantize") return std::nullopt;
  const OpDesc& op = *writers[0];
  if (!scene.flow().IsTemporary(var) || scene.flow().IsRecomputed(op)) return std::nullopt;
  IntegerMatrix m;
  m.numbers = FrozenInput(scene, op, "X");
  m.scale = FrozenInput(scene, op, "Scale");
  m.zero = FrozenInput(scene, op, "ZeroPoint");
  const bool known = m.numbers && m.scale && (m.zero || !op.HasInput("ZeroPoint"));
  if (!known || !IsByteType(m.numbers->dtype()) || m.numbers->shape().rank() != 2 ||
      m.numbers->numel() == 0 || m.scale->dtype() == DType::kFloat64 || !AreUsual(*m.scale))
    return std::nullopt;
  m.name = op.Input("X")[0];
  m.scale_name = op.Input("Scale")[0];
  const OpSpec& spec = scene.SpecOf(op);
  const auto axis = spec.AttrOf<int32_t>(op, "axis");
  m.axis = axis < 0 ? axis + 2 : axis;
  m.block = spec.AttrOf<int64_t>(op, "block_size");
  return m.axis == 0 || m.axis == 1 ? std::optional(m) : std::nullopt;
}

// Whether the steps are of whole rows of the layer's weight, or of blocks of a row. `along`: the
// axis of the numbers that lies along the rows.
bool AreOfRows(const IntegerMatrix& m, const Tensor& steps, int along) {
  if (steps.numel() == 1) return true;
  return m.block == 0 ? m.axis != along : m.axis == along;
}

// steps as [rows] or [rows, blocks], or [1].
template <class T, class Get>
Tensor RowSteps(const IntegerMatrix& m, const Tensor& steps, int along, DType dtype,
                const Get& get) {
  if (steps.numel() == 1 || m.block == 0) {
    Tensor flat(dtype, {steps.numel()});
    for (int64_t i = 0; i < steps.numel(); ++i) flat.data<T>()[i] = get(i);
    return flat;
  }
  const int64_t rows = steps.shape()[1 - along], blocks = steps.shape()[along];
  Tensor made(dtype, {rows, blocks});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < blocks; ++b)
      made.data<T>()[r * blocks + b] = get(along == 1 ? r * blocks + b : b * rows + r);
  return made;
}

bool FitInFourBits(const Tensor& numbers) {
  const auto* bytes = static_cast<const uint8_t*>(numbers.raw());
  const int offset = numbers.dtype() == DType::kInt8 ? 8 : 0;
  return std::all_of(bytes, bytes + numbers.numel(),
                     [=](uint8_t q) { return static_cast<uint8_t>(q + offset) < 16; });
}

// The numbers as rows along `along`, in bytes or packed.
Tensor RowsOf(const Tensor& numbers, int along, int32_t bits) {
  const int64_t rows = numbers.shape()[1 - along], length = numbers.shape()[along];
  const int64_t bytes = PackedBytes(length, bits);
  Tensor made = Tensor::Zeros(numbers.dtype(), {rows, bytes});
  const auto* from = static_cast<const uint8_t*>(numbers.raw());
  auto* to = static_cast<uint8_t*>(made.raw());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < length; ++i) {
      const uint8_t q = from[along == 1 ? r * length + i : i * rows + r];
      if (bits == 8)
        to[r * bytes + i] = q;
      else
        to[r * bytes + i / 2] |= static_cast<uint8_t>((q & 15) << i % 2 * 4);
    }
  }
  return made;
}

// --- products ---

// Whether scales times alpha are usual scales, and 0 only where one of them is.
bool IsUsualFactor(const Tensor& scales, float alpha) {
  if (alpha == 1) return true;
  const Tensor wide = scales.Cast(DType::kFloat32);
  const float* s = wide.data<float>();
  return std::isfinite(alpha) && std::all_of(s, s + wide.numel(), [&](float x) {
           const float scaled = x * alpha;
           return IsUsualScale(scaled) && (std::isnormal(scaled) || x == 0 || alpha == 0);
         });
}

bool TakesTypes(const QuantizedScene& scene, const OpDesc& op, const MatrixProduct& product,
                const IntegerMatrix& m) {
  const VarMeta *x = scene.Meta(product.x), *out = scene.Meta(op.Output("Out")[0]);
  const VarMeta* y = scene.Meta(product.y);
  if (!x || !y || !out || x->type != VarType::kLoDTensor || x->shape.rank() < 2 ||
      y->shape.rank() != 2)
    return false;
  if (x->dtype == DType::kFloat64 || y->dtype != x->dtype || out->dtype != x->dtype) return false;
  const int rows = product.rows < 0 ? product.rows + x->shape.rank() : product.rows;
  if (product.rows != 0 &&
      (rows != x->shape.rank() - 1 || scene.flow().CertainRank(product.x) != x->shape.rank()))
    return false;
  const int along = product.trans_y ? 1 : 0;
  return IsUsualFactor(*m.scale, product.alpha) && AreOfRows(m, *m.scale, along) &&
         (!m.zero || AreOfRows(m, *m.zero, along));
}

// Steps of a table that a lookup can select, [rows, blocks] or [rows, 1].
Tensor TableStepsOf(const IntegerMatrix& m, const Tensor& steps) {
  if (steps.numel() > 1 && m.block > 0) return steps.Clone();
  if (steps.numel() > 1) return steps.Reshaped({steps.numel(), 1}).Clone();
  const int64_t width = m.numbers->shape()[1];
  const int64_t blocks = m.block == 0 ? 1 : width / m.block + (width % m.block != 0);
  Tensor each(steps.dtype(), {m.numbers->shape()[0], blocks});
  const size_t size = SizeOf(steps.dtype());
  for (int64_t i = 0; i < each.numel(); ++i)
    std::memcpy(static_cast<char*>(each.raw()) + static_cast<size_t>(i) * size, steps.raw(), size);
  return each;
}

class WeightOnly {
 public:
  WeightOnly(ProgramDesc& program, const PassContext& context) : scene_(program, context) {}

  void Run() {
    std::as_const(scene_).block().ForEachOp([&](const OpDesc& op) {
      const std::string& type = op.type();
      if (type == "fc" || type == "mul" || type == "matmul" || type == "matmul_v2") Multiply(op);
      if (type == "lookup_table" || type == "lookup_table_v2") Select(op);
    });
    scene_.Apply();
  }

 private:
  // The frozen inputs of quantized_linear for a weight.
  struct Inputs {
    std::string weight, scale, zero;
    int32_t bits = 8;
    int64_t block = 0;
  };

  void Multiply(const OpDesc& op) {
    if (scene_.IsDone(op) || scene_.flow().IsRecomputed(op)) return;
    const std::optional<MatrixProduct> product = MatrixProductOf(scene_, op);
    if (!product || product->trans_x || !scene_.flow().IsOnlyOutput(op, op.Output("Out")[0]))
      return;
    const std::optional<IntegerMatrix> m = MatrixOf(scene_, product->y);
    if (!m || !TakesTypes(scene_, op, *product, *m)) return;
    OpDesc made("quantized_linear", {{"X", {product->x}}}, {{"Out", {op.Output("Out")[0]}}});
    if (op.type() == "fc" && !AddFcParts(op, *m, made)) return;
    const Inputs inputs = InputsOf(*m, *product);
    made.SetInput("Weight", {inputs.weight});
    made.SetInput("Scale", {inputs.scale});
    if (!inputs.zero.empty()) made.SetInput("ZeroPoint", {inputs.zero});
    made.SetAttr("bits", inputs.bits);
    made.SetAttr("block_size", inputs.block);
    scene_.Replace({&op}, {made});
  }

  // The bias as a vector, and the activation.
  bool AddFcParts(const OpDesc& op, const IntegerMatrix& m, OpDesc& made) {
    if (op.HasInput("Bias")) {
      std::string bias = op.Input("Bias")[0];
      const VarMeta* meta = scene_.Meta(bias);
      if (!meta || meta->dtype != scene_.Meta(op.Input("Input")[0])->dtype) return false;
      if (meta->shape.rank() != 1) {
        const Tensor* value = scene_.context().FrozenValue(bias);
        if (!value || value->numel() != m.numbers->shape()[1]) return false;
        bias = scene_.AddConstant(bias, value->Reshaped({value->numel()}).Clone());
      }
      made.SetInput("Bias", {bias});
    }
    for (const NamedAttr& attr : FcActivation(scene_, op)) made.SetAttr(attr.name, attr.value);
    return true;
  }

  // The numbers as rows along `along`, and their bits.
  std::pair<std::string, int32_t> RowsFor(const IntegerMatrix& m, int along) {
    const auto [it, added] = weights_.try_emplace(fmt::format("{} {}", m.name, along));
    if (!added) return it->second;
    const int32_t bits = FitInFourBits(*m.numbers) ? 4 : 8;
    const bool same = bits == 8 && along == 1;
    it->second = {same ? m.name : scene_.AddConstant(m.name, RowsOf(*m.numbers, along, bits)),
                  bits};
    return it->second;
  }

  // Layers that share a weight share its rows.
  Inputs InputsOf(const IntegerMatrix& m, const MatrixProduct& product) {
    const int along = product.trans_y ? 1 : 0;
    const auto [it, added] = rows_.try_emplace(
        fmt::format("{} {} {} {}", product.y, along, product.alpha, std::signbit(product.alpha)));
    if (!added) return it->second;
    Inputs& inputs = it->second;
    std::tie(inputs.weight, inputs.bits) = RowsFor(m, along);
    const Tensor scale = m.scale->Cast(DType::kFloat32);
    inputs.scale = scene_.AddConstant(
        m.scale_name, RowSteps<float>(m, scale, along, DType::kFloat32, [&](int64_t i) {
          return scale.data<float>()[i] * product.alpha;
        }));
    const bool blocks = scale.numel() > 1 || (m.zero && m.zero->numel() > 1);
    inputs.block = blocks ? m.block : 0;
    if (!m.zero) return inputs;
    const auto* zeros = static_cast<const uint8_t*>(m.zero->raw());
    Tensor made =
        RowSteps<uint8_t>(m, *m.zero, along, DType::kUInt8, [&](int64_t i) { return zeros[i]; });
    Tensor typed = Tensor::Zeros(m.numbers->dtype(), made.shape());
    std::copy_n(made.data<uint8_t>(), made.numel(), static_cast<uint8_t*>(typed.raw()));
    inputs.zero = scene_.AddConstant(m.name, std::move(typed));
    return inputs;
  }

  // --- tables ---

  void Select(const OpDesc& op) {
    if (scene_.IsDone(op) || scene_.flow().IsRecomputed(op)) return;
    if (op.Input("W").size() != 1 || op.Input("Ids").size() != 1 || op.Output("Out").size() != 1)
      return;
    const std::optional<IntegerMatrix> m = MatrixOf(scene_, op.Input("W")[0]);
    const VarMeta* out = scene_.Meta(op.Output("Out")[0]);
    if (!m || !out || out->shape.rank() < 1 || (m->block > 0 && m->axis == 0)) return;
    const int64_t width = m->numbers->shape()[1];
    std::vector<OpDesc> made;
    const auto select = [&](const std::string& table, DType dtype, int64_t columns) {
      Shape shape = out->shape;
      shape[shape.rank() - 1] = columns;
      const std::string rows = scene_.AddTemporary(op.Output("Out")[0], dtype, shape);
      OpDesc lookup = op;
      lookup.SetInput("W", {table});
      lookup.SetOutput("Out", {rows});
      made.push_back(std::move(lookup));
      return rows;
    };
    const auto [table, bits] = RowsFor(*m, 1);
    std::string numbers = select(table, m->numbers->dtype(), PackedBytes(width, bits));
    if (bits == 4) numbers = AddUnpack(numbers, width, made);
    OpDesc dequantize = *scene_.block().Uses(op.Input("W")[0]).writers[0];
    dequantize.SetInput("X", {numbers});
    dequantize.SetOutput("Out", {op.Output("Out")[0]});
    // Padding has the number 0, which means 0 if its scale is 0.
    const bool pads = scene_.SpecOf(op).AttrOf<int64_t>(op, "padding_idx") != -1 && m->zero;
    if (pads && m->block == 0 && m->axis == 1) return;
    bool selected = false;
    for (const char* slot : {"Scale", "ZeroPoint"}) {
      const Tensor* steps = FrozenInput(scene_, dequantize, slot);
      const bool scale = steps == m->scale;
      if (!steps || (steps->numel() == 1 && !(pads && scale)) || (m->block == 0 && m->axis == 1))
        continue;
      const Tensor rows = TableStepsOf(*m, *steps);
      const std::string name = scene_.AddConstant(dequantize.Input(slot)[0], rows);
      dequantize.SetInput(slot, {select(name, rows.dtype(), rows.shape()[1])});
      selected = true;
    }
    dequantize.SetAttr("axis", int32_t{-1});
    if (selected && m->block == 0) dequantize.SetAttr("block_size", width);
    made.push_back(std::move(dequantize));
    scene_.Replace({&op}, made);
  }

  std::string AddUnpack(const std::string& packed, int64_t width, std::vector<OpDesc>& made) {
    const VarMeta meta = *scene_.Meta(packed);
    Shape shape = meta.shape;
    shape[shape.rank() - 1] = width;
    std::string numbers = scene_.AddTemporary(packed, meta.dtype, shape);
    made.emplace_back("unpack_integers", SlotList{{"X", {packed}}}, SlotList{{"Out", {numbers}}},
                      AttrList{{"bits", int32_t{4}}, {"last_dim", width}});
    return numbers;
  }

  QuantizedScene scene_;
  std::unordered_map<std::string, Inputs> rows_;
  std::unordered_map<std::string, std::pair<std::string, int32_t>> weights_;
};

}  // namespace

void FuseWeightOnly(ProgramDesc& program, const PassContext& context) {
  if (!context.frozen) return;
  const auto dequantizes = [](const OpDesc& op) { return op.type() == "affine_dequantize"; };
  if (!AnyOp(program.Root(), dequantizes)) return;
  WeightOnly(program, context).Run();
  EliminateDeadCode(program, context);
}

}  // namespace coracle::inline internal
