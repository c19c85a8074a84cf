#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/guarded_op.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

namespace coracle {
namespace {

// The op has an argument that is not a tensor of known shape.
struct CannotGuard {};

constexpr size_t kBand = 8192;  // bytes on either side

// Memory for one tensor between two bands of the pattern.
class Guarded {
 public:
  Guarded(std::string title, DType dtype, const Shape& shape, uint32_t pattern)
      : title_(std::move(title)), words_(2 * kBand + ByteSize(dtype, shape), pattern) {
    tensor_ = Tensor::View(dtype, shape, words_.data() + kBand);
  }

  Tensor& tensor() { return tensor_; }
  void ExpectUntouched(const std::string& op) const {
    const size_t bytes = tensor_.nbytes();
    for (size_t i = 0; i < words_.size(); ++i) {
      if (i >= kBand && i < kBand + bytes) continue;
      if (words_.data()[i] == words_.Expected(i)) continue;
      ADD_FAILURE() << op << " wrote " << (i < kBand ? "before" : "behind") << " its " << title_
                    << " " << tensor_.ToString() << ", at byte "
                    << static_cast<int64_t>(i) - static_cast<int64_t>(kBand);
      return;
    }
  }

 private:
  // Bytes that repeat a word, at an address that is a multiple of 64.
  class Words {
   public:
    Words(size_t bytes, uint32_t word)
        : word_(word), memory_(DType::kUInt8, {static_cast<int64_t>(bytes)}) {
      for (size_t i = 0; i < bytes; ++i) data()[i] = Expected(i);
    }
    uint8_t* data() const { return static_cast<uint8_t*>(const_cast<void*>(memory_.raw())); }
    size_t size() const { return memory_.nbytes(); }
    uint8_t Expected(size_t i) const { return static_cast<uint8_t>(word_ >> (i % 4 * 8)); }

   private:
    uint32_t word_;
    Tensor memory_;
  };

  std::string title_;
  Words words_;
  Tensor tensor_;
};

class GuardedOp : public ArgTable, public Workspace {
 public:
  // `after` holds the outputs that are expected. With `constants` the inputs never change, so that
  // kernels may pack them.
  GuardedOp(const OpDesc& op, const OpSpec& spec, const VarValues& before, const VarValues& after,
            const InterpretOptions& options, bool constants)
      : op_(op), spec_(spec), before_(before), after_(after), constants_(constants) {
    seed_ = options.seed;
    step_ = options.step;
  }

  void Run() {
    const PrepareContext context(spec_, op_, *this);
    const Kernel kernel = PrepareKernel(context, KernelMode::kAuto);
    if (!kernel) return;
    data_ = pointers_.data();
    kernel(*this);
    for (const Guarded& memory : memories_) memory.ExpectUntouched(op_.type());
    for (const auto& [name, index] : inputs_) {
      if (!outputs_.count(name)) ExpectSame(name, index, before_);
    }
    if (constants_) return;  // packed ones may be added up in another order
    for (const auto& [name, index] : outputs_) ExpectSame(name, index, after_);
  }

  // --- ArgTable ---
  TensorArg Read(const std::string& name) override {
    const auto [it, is_new] = inputs_.emplace(name, 0);
    if (is_new) {
      const Tensor& value = TensorIn(before_, name);
      it->second = Hold("input " + name, value.dtype(), value.shape());
      CopyTo(it->second, value);
    }
    return ArgOf(it->second);
  }
  TensorArg Write(const std::string& name) override {
    if (spec_.UpdatesInPlace(op_, name)) return ArgOf(outputs_[name] = Read(name).index);
    const auto [it, is_new] = outputs_.emplace(name, 0);
    if (is_new) {
      const Tensor& value = TensorIn(after_, name);
      it->second = Hold("output " + name, value.dtype(), value.shape());
    }
    return ArgOf(it->second);
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    return ArgOf(Hold("scratch tensor", dtype, shape));
  }
  TensorArg ScratchArray() override { throw CannotGuard{}; }
  TensorArg ScratchValue() override { throw CannotGuard{}; }
  int32_t SubBlock(BlockRef, const BlockArgs&) override { throw CannotGuard{}; }
  bool HasGradientBlock(BlockRef) override { throw CannotGuard{}; }
  const Tensor* Constant(const std::string& name) override {
    return constants_ ? &TensorIn(before_, name) : nullptr;
  }
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override {
    if (!constants_) return nullptr;
    return std::make_shared<const Tensor>(layout.pack(TensorIn(before_, name)));
  }

  // --- Workspace ---
  VarValue& ValueOf(const TensorArg& arg) override {
    VarValue& value = values_[arg.index];
    value = At(arg.index);
    return value;
  }
  const LoD& LodOf(const TensorArg& arg) override { return At(arg.index).lod(); }
  LoD& OutputLod(const TensorArg& out) override { return At(out.index).lod(); }

 private:
  static const Tensor& TensorIn(const VarValues& values, const std::string& name) {
    const auto it = values.find(name);
    const auto* tensor = it == values.end() ? nullptr : std::get_if<Tensor>(&it->second);
    if (!tensor) throw CannotGuard{};
    return *tensor;
  }

  int32_t Hold(std::string title, DType dtype, const Shape& shape) {
    // Floats of the patterns are a nan and a number.
    const uint32_t pattern = constants_ ? 0xA5A5A5A5u : 0x7FC5A5A5u;
    memories_.emplace_back(std::move(title), dtype, shape, pattern);
    pointers_.push_back(At(static_cast<int32_t>(memories_.size()) - 1).raw());
    return static_cast<int32_t>(memories_.size()) - 1;
  }
  Tensor& At(int32_t index) { return memories_[static_cast<size_t>(index)].tensor(); }
  void CopyTo(int32_t index, const Tensor& from) {
    if (from.numel() > 0) std::memcpy(At(index).raw(), from.raw(), from.nbytes());
    At(index).lod() = from.lod();
  }
  TensorArg ArgOf(int32_t index) {
    const Tensor& tensor = At(index);
    return {index, tensor.dtype(), tensor.shape(), tensor.numel()};
  }
  void ExpectSame(const std::string& name, int32_t index, const VarValues& expected) {
    const Tensor& want = TensorIn(expected, name);
    const bool same =
        want.numel() == 0 || std::memcmp(want.raw(), At(index).raw(), want.nbytes()) == 0;
    EXPECT_TRUE(same) << op_.type() << ": " << name << " " << want.ToString()
                      << " has other bits in other memory";
  }

  const OpDesc& op_;
  const OpSpec& spec_;
  const VarValues &before_, &after_;
  bool constants_;
  std::deque<Guarded> memories_;
  std::vector<void*> pointers_;
  std::map<std::string, int32_t> inputs_, outputs_;
  std::map<int32_t, VarValue> values_;
};

void RunGuarded(const OpDesc& op, const OpRegistry& ops, const VarValues& before,
                const VarValues& after, const InterpretOptions& options) {
  const OpSpec& spec = ops.Get(op.type());
  if (spec.kind != OpKind::kCompute || spec.side_effect || spec.run_time_shape || spec.Expands())
    return;
  try {
    GuardedOp(op, spec, before, after, options, false).Run();
    GuardedOp(op, spec, before, after, options, true).Run();
  } catch (const CannotGuard&) {
  }
}

}  // namespace

void InterpretGuarded(const BlockDesc& block, const OpRegistry& ops, VarValues& env,
                      const InterpretOptions& options) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    VarValues before;
    for (const auto& [name, value] : env) before[name] = CloneValue(value);
    InterpretOp(block.op(i), ops, env, options);
    RunGuarded(block.op(i), ops, before, env, options);
  }
}

}  // namespace coracle
