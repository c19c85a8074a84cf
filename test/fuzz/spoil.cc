// Values for the inputs of a random program, and ways to spoil one.

#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/random_program.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace coracle {
namespace {

constexpr int64_t kWildDims[] = {
    0, -1, 1, 2, 3, 7, -2, 64, 1 << 20, 2147483648, int64_t{1} << 40, INT64_MAX, INT64_MIN};
constexpr int64_t kWildNumbers[] = {0,  1,          -1,          2,         5,         -7,
                                    64, 2147483647, -2147483648, INT64_MAX, INT64_MIN, 1000000007};
constexpr double kWildReals[] = {0,
                                 -1,
                                 1e30,
                                 -1e30,
                                 1e-40,
                                 std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
constexpr DType kAnyDType[] = {DType::kFloat32,  DType::kFloat64,   DType::kInt64,
                               DType::kInt32,    DType::kBool,      DType::kUInt8,
                               DType::kInt8,     DType::kInt16,     DType::kFloat16,
                               DType::kBFloat16, DType::kComplex64, DType::kComplex128};

Tensor DrawTensor(const ProgramInput& input, const Shape& shape, uint64_t seed) {
  Tensor wide(DType::kFloat64, shape);
  const Philox random(seed, HashName(input.name), 0);
  const bool floating = IsFloating(input.meta.dtype) || IsComplex(input.meta.dtype);
  for (int64_t i = 0; i < wide.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    double& value = wide.data<double>()[i];
    if (!floating)
      value = static_cast<double>(static_cast<int64_t>(random.UniformDouble(at) *
                                                       (input.limit > 0 ? input.limit
                                                        : input.meta.dtype == DType::kBool ? 2
                                                                                           : 5)));
    else
      value = input.positive ? 0.5 + random.UniformDouble(at) : random.Normal(at);
  }
  Tensor tensor = wide.Cast(input.meta.dtype);
  tensor.lod() = input.lod;
  return tensor;
}

void SpoilShape(VarDesc& var, Choices& choose) {
  std::vector<int64_t> dims = var.shape().ToVector();
  if (!dims.empty() && choose.OneIn(2)) {
    dims[choose.Below(dims.size())] = choose.Of(kWildDims);
  } else if (!dims.empty() && choose.OneIn(2)) {
    dims.pop_back();
  } else if (dims.size() < Shape::kMaxRank) {
    dims.push_back(choose.Of(kWildDims));
  }
  var.SetShape(Shape(dims));
}

struct SpoilNumber {
  Choices& choose;
  void operator()(int32_t& v) const { v = static_cast<int32_t>(choose.Of(kWildNumbers)); }
  void operator()(int64_t& v) const { v = choose.Of(kWildNumbers); }
  void operator()(float& v) const { v = static_cast<float>(choose.Of(kWildReals)); }
  void operator()(double& v) const { v = choose.Of(kWildReals); }
  void operator()(bool& v) const { v = !v; }
  void operator()(std::string& v) const { v = choose.OneIn(2) ? "" : "nowhere"; }
  void operator()(BlockRef& v) const { v.idx = static_cast<int32_t>(choose.Below(5)) - 1; }
  template <class T>
  void operator()(std::vector<T>& v) const {
    if (v.empty() || choose.OneIn(4)) {
      v.resize(v.size() + 1);
    } else if (choose.OneIn(4)) {
      v.pop_back();
    } else if constexpr (!std::is_same_v<T, bool>) {
      (*this)(v[choose.Below(v.size())]);
    }
  }
  template <class T>
  void operator()(T&) const {}
};

void SpoilSlot(OpDesc& op, const BlockDesc& block, Choices& choose) {
  const SlotList& slots = choose.OneIn(3) ? op.outputs() : op.inputs();
  const bool output = &slots == &op.outputs();
  if (slots.empty()) return;
  const Slot slot = slots[choose.Below(slots.size())];
  std::vector<std::string> args = slot.args;
  const size_t how = choose.Below(4);
  if (how == 0) {
    output ? op.RemoveOutput(slot.name) : op.RemoveInput(slot.name);
    return;
  }
  if (how == 1 || args.empty())
    args.push_back(block.NumVars() == 0 ? "nothing"
                                        : block.var(choose.Below(block.NumVars())).name());
  else if (how == 2)
    args[choose.Below(args.size())] = kEmptyVarName;
  else if (block.NumVars() > 0)
    args[choose.Below(args.size())] = block.var(choose.Below(block.NumVars())).name();
  output ? op.SetOutput(slot.name, args) : op.SetInput(slot.name, args);
}

}  // namespace

void Spoil(ProgramDesc& program, Choices& choose) {
  BlockDesc& block =
      program.Block(static_cast<int>(choose.Below(static_cast<size_t>(program.NumBlocks()))));
  if (block.NumOps() == 0 || block.NumVars() == 0) return;
  OpDesc& op = block.op(choose.Below(block.NumOps()));
  VarDesc& var = block.var(choose.Below(block.NumVars()));
  switch (choose.Below(6)) {
    case 0:
      var.SetDType(choose.Of(kAnyDType));
      return;
    case 1:
      SpoilShape(var, choose);
      return;
    case 2:
      SpoilSlot(op, block, choose);
      return;
    case 3: {
      if (op.attrs().empty()) return;
      NamedAttr attr = op.attrs()[choose.Below(op.attrs().size())];
      std::visit(SpoilNumber{choose}, attr.value);
      op.SetAttr(attr.name, attr.value);
      return;
    }
    case 4:
      block.RemoveOp(choose.Below(block.NumOps()));
      return;
    default: {
      const OpDesc moved(op);
      block.InsertOp(choose.Below(block.NumOps()), moved);
      return;
    }
  }
}

VarValue DrawValue(const ProgramInput& input, uint64_t seed) {
  if (input.meta.type != VarType::kSelectedRows) return DrawTensor(input, input.meta.shape, seed);
  SelectedRows rows;
  Shape shape = input.meta.shape;
  rows.height = shape[0];
  const Philox random(seed, HashName(input.name), 1);
  if (rows.height > 0) {
    for (uint64_t k = 0; k < 3; ++k)
      rows.rows.push_back(
          static_cast<int64_t>(random.UniformDouble(k) * static_cast<double>(rows.height)));
  }
  shape[0] = static_cast<int64_t>(rows.rows.size());
  rows.value = DrawTensor(input, shape, seed);
  return rows;
}

}  // namespace coracle
