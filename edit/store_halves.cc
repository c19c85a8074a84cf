#include <coracle/edit/store_halves.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr int64_t kFewest = 1024;

// The names that ops write, feed or fetch.
std::unordered_set<std::string> NotConstant(const ProgramDesc& program, const OpRegistry& ops) {
  std::unordered_set<std::string> names;
  program.ForEachOp([&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) { names.insert(name); });
    const OpSpec* spec = ops.Find(op.type());
    if (spec && spec->kind == OpKind::kCompute) return;
    op.ForEachInput([&](const std::string& name) { names.insert(name); });
  });
  // A block's own variable of that name is another one.
  for (int b = 1; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) names.insert(block.var(i).name());
  }
  return names;
}

// Why the weight must stay float32; "" if it may be rounded to `half`.
std::string WhyKept(const Tensor& wide, const Tensor& half) {
  const Tensor back = half.Cast(DType::kFloat32);
  const std::span<const float> x = wide.span<float>(), y = back.span<float>();
  double signal = 0, noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    if (!std::isfinite(y[i]))
      return fmt::format("{:g} is beyond the range of {}", x[i], ToString(half.dtype()));
    const auto value = static_cast<double>(x[i]), error = static_cast<double>(y[i]) - value;
    signal += value * value;
    noise += error * error;
  }
  const double least = half.dtype() == DType::kFloat16 ? 60 : 40;
  const double ratio = noise == 0 ? 1000 : 10 * std::log10(signal / noise);
  if (ratio >= least) return "";
  return fmt::format("its numbers are so small that {} keeps only {:.0f} dB",
                     ToString(half.dtype()), ratio);
}

class HalfStore {
 public:
  HalfStore(ProgramDesc& program, Scope& parameters, DType half, const OpRegistry& ops)
      : program_(program),
        root_(program.Root()),
        parameters_(parameters),
        half_(half),
        ops_(ops),
        not_constant_(NotConstant(program, ops)) {}

  StoredHalves Run() {
    std::vector<std::string> names;
    for (size_t i = 0; i < root_.NumVars(); ++i)
      if (root_.var(i).persistable()) names.push_back(root_.var(i).name());
    for (const std::string& name : names) Store(name);
    Prepend();
    return std::move(result_);
  }

 private:
  void Store(const std::string& name) {
    const VarValue* held = parameters_.Find(name);
    const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr;
    if (!tensor) return;
    const Tensor wide = *tensor;
    result_.bytes_before += wide.nbytes();
    result_.bytes_after += wide.nbytes();
    const VarDesc* declared = root_.FindVar(name);
    if (wide.dtype() != DType::kFloat32 || declared->dtype() != DType::kFloat32 ||
        declared->type() != VarType::kLoDTensor || wide.numel() < kFewest || !wide.lod().empty() ||
        not_constant_.count(name))
      return;
    Tensor half = wide.Cast(half_);
    if (std::string reason = WhyKept(wide, half); !reason.empty()) {
      result_.kept.emplace_back(name, std::move(reason));
      return;
    }
    result_.bytes_after -= wide.nbytes() - half.nbytes();
    ++result_.stored;
    Replace(name, std::move(half));
  }

  void Replace(const std::string& name, Tensor half) {
    const std::string stored =
        program_.FreeName(name + (half_ == DType::kFloat16 ? "@FLOAT16" : "@BFLOAT16"));
    VarDesc& var = root_.Var(stored);
    var.SetMeta({VarType::kLoDTensor, half_, half.shape(), 0});
    var.SetPersistable(true);
    var.SetStopGradient(true);
    VarDesc& wide = *root_.FindVar(name);
    wide.SetShape(half.shape());
    wide.SetPersistable(false);
    wide.SetIsParameter(false);
    parameters_.Erase(name);
    parameters_.Set(stored, std::move(half));
    casts_.push_back(
        std::make_unique<OpDesc>("cast", SlotList{{"X", {stored}}}, SlotList{{"Out", {name}}},
                                 AttrList{{"in_dtype", static_cast<int32_t>(half_)},
                                          {"out_dtype", static_cast<int32_t>(DType::kFloat32)}}));
  }

  // Puts the casts after the feed ops.
  void Prepend() {
    if (casts_.empty()) return;
    std::vector<std::unique_ptr<OpDesc>> ops = root_.ReleaseOps();
    const auto first = std::find_if(ops.begin(), ops.end(), [&](const auto& op) {
      const OpSpec* spec = ops_.Find(op->type());
      return !spec || spec->kind != OpKind::kFeed;
    });
    ops.insert(first, std::make_move_iterator(casts_.begin()),
               std::make_move_iterator(casts_.end()));
    root_.SetOps(std::move(ops));
  }

  ProgramDesc& program_;
  BlockDesc& root_;
  Scope& parameters_;
  const DType half_;
  const OpRegistry& ops_;
  const std::unordered_set<std::string> not_constant_;
  std::vector<std::unique_ptr<OpDesc>> casts_;
  StoredHalves result_;
};

}  // namespace

StoredHalves StoreInHalves(ProgramDesc& program, Scope& parameters, DType half,
                           const OpRegistry& ops) {
  if (!IsHalf(half)) {
    ThrowInvalid(fmt::format("weights are stored in float16 or bfloat16, got {}", ToString(half)));
  }
  return HalfStore(program, parameters, half, ops).Run();
}

}  // namespace coracle::inline internal
