#include <coracle/backward/backward.h>
#include <coracle/backward/in_double.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/rng.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace coracle {

inline namespace internal {

DType Widened(DType dtype) {
  return IsComplex(dtype) ? DType::kComplex128 : IsFloating(dtype) ? DType::kFloat64 : dtype;
}

}  // namespace internal

ProgramDesc InDouble(const ProgramDesc& program) {
  ProgramDesc wide = program;
  for (int b = 0; b < wide.NumBlocks(); ++b) {
    BlockDesc& block = wide.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarDesc& var = block.var(i);
      if (Widened(var.dtype()) != var.dtype()) var.SetDType(Widened(var.dtype()));
    }
    for (size_t i = 0; i < block.NumOps(); ++i) {
      OpDesc& op = block.op(i);
      for (const char* attr : {"dtype", "in_dtype", "out_dtype"}) {
        const Attribute* value = op.FindAttr(attr);
        const auto* dtype = value ? std::get_if<int32_t>(value) : nullptr;
        if (dtype) op.SetAttr(attr, static_cast<int32_t>(Widened(static_cast<DType>(*dtype))));
      }
      const Attribute* values = op.FindAttr("fp32_values");
      const auto* floats = values ? std::get_if<std::vector<float>>(values) : nullptr;
      if (floats && !floats->empty())
        op.SetAttr("fp64_values", std::vector<double>(floats->begin(), floats->end()));
    }
  }
  return wide;
}

namespace {

// Whether the shape rule accepts the op; the verifier says later why it does not.
bool Infers(BlockDesc& block, OpDesc& op, const OpRegistry& ops) try {
  InferOp(block, op, ops);
  return true;
} catch (const Error&) {
  return false;
}

// The results of an op whose inferred types are not wide, with these types. Widens their variables.
std::vector<std::pair<std::string, DType>> NarrowResults(BlockDesc& block, OpDesc& op,
                                                         const OpRegistry& ops) {
  std::vector<std::pair<std::string, DType>> narrow;
  if (op.HasSubBlock() || !Infers(block, op, ops)) return narrow;
  op.ForEachOutput([&](const std::string& name) {
    VarDesc* var = block.FindVarRecursive(name);
    if (!var || var->type() != VarType::kLoDTensor || op.Reads(name)) return;
    const DType dtype = var->dtype();
    if (Widened(dtype) == dtype) return;
    narrow.emplace_back(name, dtype);
    var->SetDType(Widened(dtype));
  });
  return narrow;
}

// `op` writes a new variable instead of `name`; returns the cast from there to `name`.
OpDesc CastOf(BlockDesc& block, OpDesc& op, const std::string& name, DType dtype) {
  VarDesc& var = *block.FindVarRecursive(name);
  VarDesc& made = block.Var(block.program().FreeName(name + ".narrow"));
  VarMeta meta = var.meta();
  meta.dtype = dtype;
  made.SetMeta(meta);
  op.RenameOutput(name, made.name());
  AttrList attrs = {{"in_dtype", static_cast<int32_t>(dtype)},
                    {"out_dtype", static_cast<int32_t>(Widened(dtype))}};
  if (const Attribute* role = op.FindAttr(kOpRoleAttr)) attrs.push_back({kOpRoleAttr, *role});
  return OpDesc("cast", {{"X", {made.name()}}}, {{"Out", {name}}}, std::move(attrs));
}

}  // namespace

inline namespace internal {

void CastNarrowResults(ProgramDesc& program, const OpRegistry& ops) {
  ProgramDesc probe = program;  // inference changes declared shapes
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc &block = program.Block(b), &of_probe = probe.Block(b);
    size_t at = 0;
    for (size_t i = 0; i < of_probe.NumOps(); ++i, ++at) {
      const size_t op = at;
      for (const auto& [name, dtype] : NarrowResults(of_probe, of_probe.op(i), ops))
        block.InsertOp(++at, CastOf(block, block.op(op), name, dtype));
    }
  }
}

Tensor DrawNormal(const Shape& shape, uint64_t seed, const std::string& name, double scale,
                  DType dtype) {
  Tensor value(dtype, shape);
  Tensor parts = PartsOf(value);
  const Philox random(seed, HashName(name), 0);
  for (int64_t i = 0; i < parts.numel(); ++i)
    parts.data<double>()[i] = scale * random.Normal(static_cast<uint64_t>(i));
  return value;
}

}  // namespace internal

namespace {

constexpr int kMostLevels = 3;

// The number of parts if sequences have two and three parts in turn.
int64_t PartsOfSequences(int64_t count) { return 2 * count + count / 2; }

LoD DrawLod(int levels, int64_t count) {
  LoD lod;
  for (int level = 0; level < levels; ++level) {
    std::vector<uint64_t> offsets = {0};
    for (int64_t i = 0; i < count; ++i)
      offsets.push_back(offsets.back() + 2 + static_cast<uint64_t>(i % 2));
    count = PartsOfSequences(count);
    lod.push_back(std::move(offsets));
  }
  return lod;
}

Tensor DrawParameter(const Shape& shape, uint64_t seed, const std::string& name) {
  if (shape.rank() > 1) {
    const double fan_in = shape.rank() == 2
                              ? static_cast<double>(shape[0])
                              : static_cast<double>(shape.numel()) /
                                    std::max<double>(1, static_cast<double>(shape[0]));
    return DrawNormal(shape, seed, name, 1 / std::sqrt(std::max(1.0, fan_in)));
  }
  const Philox random(seed, HashName(name), 1);
  Tensor value(DType::kFloat64, shape);
  for (int64_t i = 0; i < value.numel(); ++i)
    value.data<double>()[i] = 0.5 + random.UniformDouble(static_cast<uint64_t>(i));
  return value;
}

Tensor DrawElements(const VarDesc& var, const Shape& shape, uint64_t seed) {
  const Philox random(seed, HashName(var.name()), 1);
  const auto one = [&](int64_t i) { return random.UniformDouble(static_cast<uint64_t>(i)) >= 0.5; };
  if (var.dtype() == DType::kString) {
    std::vector<std::string> texts;
    texts.reserve(static_cast<size_t>(shape.numel()));
    for (int64_t i = 0; i < shape.numel(); ++i) texts.emplace_back(one(i) ? "1" : "0");
    return Tensor::OfStrings(shape, texts);
  }
  if (IsComplex(var.dtype())) return DrawNormal(shape, seed, var.name(), 1, DType::kComplex128);
  if (!IsFloating(var.dtype())) {
    Tensor ids(DType::kInt64, shape);
    for (int64_t i = 0; i < ids.numel(); ++i) ids.data<int64_t>()[i] = one(i) ? 1 : 0;
    return ids.Cast(var.dtype());
  }
  if (!var.persistable()) return DrawNormal(shape, seed, var.name());
  return DrawParameter(shape, seed, var.name());
}

}  // namespace

inline namespace internal {

Tensor DrawInput(const VarDesc& var, uint64_t seed, int64_t batch_size) {
  Shape shape = var.shape();
  const bool sequences = var.lod_level() > 0 && shape.rank() > 0 && shape[0] < 0;
  if (sequences && var.lod_level() > kMostLevels) {
    ThrowInvalid(
        fmt::format("cannot draw sequences of {} levels for {}: give them (--feed of the "
                    "command)",
                    var.lod_level(), Quote(var.name())));
  }
  if (sequences) {
    shape[0] = batch_size;
    for (int level = 0; level < var.lod_level(); ++level) shape[0] = PartsOfSequences(shape[0]);
  }
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] < 0) shape[d] = batch_size;
  }
  Tensor value = DrawElements(var, shape, seed);
  if (sequences) value.lod() = DrawLod(var.lod_level(), batch_size);
  return value;
}

}  // namespace internal

}  // namespace coracle
