#include <coracle/executor/planner/kernel_trial.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

namespace coracle::inline internal {
namespace {

constexpr int kRuns = 5;                 // after a first run, which is not timed
constexpr double kEnoughSeconds = 0.05;  // for one way
// Maximum time of another way, relative to the way that the rules prefer.
constexpr double kWorthLeaving = 0.95;

constexpr size_t kMostKnown = 4096;

// Thrown if a way requests something that a trial cannot provide.
struct CannotTry {};

// The args of the op, with memory for the given tensors and for scratch tensors.
class Trial : public ArgTable, public Workspace {
 public:
  Trial(const PrepareContext& context, const std::vector<TensorArg>& tensors)
      : context_(context), real_(context.args()) {
    for (const TensorArg& arg : tensors) {
      if (!arg) continue;
      Hold(static_cast<size_t>(arg.index), Drawn(arg.dtype, arg.shape));
    }
  }

  // Seconds of one run, the minimum of several; nullopt if the way does not support the case.
  std::optional<double> Time(const KernelWay& way, bool by_rule) {
    const size_t held = memory_.size();
    const Kernel kernel = way.prepare(PrepareContext(context_, *this), by_rule);
    if (!kernel) return std::nullopt;
    data_ = memory_pointers_.data();
    double least = std::numeric_limits<double>::infinity(), all = 0;
    for (int run = 0; run <= kRuns && all < kEnoughSeconds; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      kernel(*this);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (run == 0 && took.count() < kEnoughSeconds) continue;
      least = std::min(least, took.count());
      all += took.count();
    }
    memory_.resize(held);  // frees the scratch memory of this way
    return least;
  }

  // --- ArgTable ---
  TensorArg Read(const std::string&) override { throw CannotTry{}; }
  TensorArg Write(const std::string&) override { throw CannotTry{}; }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    const auto index = memory_pointers_.size();
    Hold(index, Tensor(dtype, shape));
    return {static_cast<int32_t>(index), dtype, shape, shape.numel()};
  }
  TensorArg ScratchArray() override { throw CannotTry{}; }
  TensorArg ScratchValue() override { throw CannotTry{}; }
  int32_t SubBlock(BlockRef, const BlockArgs&) override { throw CannotTry{}; }
  bool HasGradientBlock(BlockRef) override { throw CannotTry{}; }
  const Tensor* Constant(const std::string& name) override { return real_.Constant(name); }

  // --- Workspace ---
  VarValue& ValueOf(const TensorArg&) override { throw CannotTry{}; }
  const LoD& LodOf(const TensorArg&) override { throw CannotTry{}; }
  LoD& OutputLod(const TensorArg&) override { throw CannotTry{}; }

 private:
  // Floats are neither zeros nor denormals, since these may change the speed of arithmetic.
  static Tensor Drawn(DType dtype, const Shape& shape) {
    if (!IsFloating(dtype)) return Tensor::Zeros(dtype, shape);
    Tensor tensor(DType::kFloat32, shape);
    const Philox random(1, 0, 0);
    float* to = tensor.data<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i)
      to[i] = 2 * random.UniformFloat(static_cast<uint64_t>(i)) - 1;
    return dtype == DType::kFloat32 ? tensor : tensor.Cast(dtype);
  }

  void Hold(size_t index, Tensor tensor) {
    if (index >= memory_pointers_.size()) memory_pointers_.resize(index + 1);
    memory_pointers_[index] = tensor.raw();
    memory_.push_back(std::move(tensor));
  }

  const PrepareContext& context_;
  ArgTable& real_;
  std::vector<Tensor> memory_;
  std::vector<void*> memory_pointers_;
};

// A cache key with everything that the times depend on.
std::string KeyOf(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                  const std::vector<KernelWay>& ways) {
  std::string key = fmt::format("{} threads {}", context.op().type(), NumThreads());
  for (const AttrDef& attr : context.spec().attrs) {
    if (const Attribute* value = context.op().FindAttr(attr.name))
      key += fmt::format(" {}={}", attr.name, ToString(*value));
  }
  for (const TensorArg& arg : tensors)
    key += arg ? fmt::format(" {}{}", ToString(arg.dtype), arg.shape.ToString()) : " none";
  context.op().ForEachInput([&](const std::string& name) {
    key += context.args().Constant(name) ? " constant" : " variable";
  });
  for (const KernelWay& way : ways) key += " " + way.name;
  return key;
}

KernelTrials TryAll(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                    const std::vector<KernelWay>& ways) {
  KernelTrials trials;
  double least = std::numeric_limits<double>::infinity();
  const auto weigh = [&](size_t i, double seconds, bool by_rule) {
    trials.times += fmt::format("{}{} {:.3g} ms", trials.times.empty() ? "" : ", ", ways[i].name,
                                seconds * 1e3);
    const double weighed = by_rule ? kWorthLeaving * seconds : seconds;
    if (weighed >= least) return;
    least = weighed;
    trials.fastest = static_cast<int>(i);
    trials.by_rule = by_rule;
  };
  // The first way that its rule accepts, as used in a plan without trials.
  bool preferred = false;
  for (size_t i = 0; i < ways.size(); ++i) {
    std::optional<double> seconds;
    if (!preferred) seconds = Trial(context, tensors).Time(ways[i], true);
    if (seconds) weigh(i, *seconds, true);
    const bool by_rule = seconds.has_value();
    preferred = preferred || by_rule;
    if (by_rule) continue;
    seconds = Trial(context, tensors).Time(ways[i], false);
    if (seconds) weigh(i, *seconds, false);
  }
  return trials;
}

}  // namespace

KernelTrials TryKernels(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                        const std::vector<KernelWay>& ways) {
  static std::mutex mutex;
  static std::map<std::string, KernelTrials> known;
  const std::string key = KeyOf(context, tensors, ways);
  const std::lock_guard<std::mutex> lock(mutex);  // concurrent trials would disturb each other
  auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() >= kMostKnown) known.clear();
  try {
    return known[key] = TryAll(context, tensors, ways);
  } catch (const CannotTry&) {
    return known[key] = {};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    return {};  // the memory limit leaves no room for trials
  }
}

}  // namespace coracle::inline internal
