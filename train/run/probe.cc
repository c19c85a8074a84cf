#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/train/run/probe.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr size_t kPersistable = SIZE_MAX;

bool IsFloatTensor(const VarDesc& var) {
  return var.type() == VarType::kLoDTensor && (IsFloating(var.dtype()) || IsComplex(var.dtype()));
}

// Returns 0 for no elements; ignores nans.
double LargestOf(const Tensor& x) {
  double largest = 0;
  DispatchDType(x.dtype(), [&]<class T>() {
    const T* values = static_cast<const T*>(x.raw());
    for (int64_t i = 0; i < x.numel(); ++i)
      largest = std::max(largest, static_cast<double>(values[i]));
  });
  return largest;
}

// The norms of all elements, and the number of elements.
struct Sums {
  double l1 = 0, l2 = 0, count = 0;
  void Add(const Tensor& x) {
    DispatchAnyDType(x.dtype(), [&]<class T>() {
      const T* values = static_cast<const T*>(x.raw());
      const auto each = [&](const auto& f) {
        for (int64_t i = 0; i < x.numel(); ++i) {
          if constexpr (kIsComplex<T>)
            f(static_cast<double>(std::abs(values[i])));
          else
            f(static_cast<double>(values[i]));
        }
      };
      l1 += NormOf(1, each);
      l2 = std::hypot(l2, NormOf(2, each));
    });
    count += static_cast<double>(x.numel());
  }
};

// The state of clip_statistics: how often the clip ran and acted, and the largest share removed.
std::span<const double> CountsOf(const Scope& scope, const std::string& name) {
  const Tensor& counts = scope.Get(name);
  if (counts.dtype() == DType::kFloat64 && counts.numel() == 3) return counts.span<double>();
  ThrowInvalid(fmt::format("the statistics of a clip, {}, must be a float64 [3]; got {}",
                           Quote(name), counts.ToString()));
}

// Ignores exchanges between ranks, which write the variable that they read.
const OpDesc* LastWriter(const BlockDesc& block, const std::string& name) {
  const OpDesc* last = nullptr;
  for (const OpDesc* writer : block.Uses(name).writers) {
    if (!writer->HasAttr("ring_id")) last = writer;
  }
  return last;
}

}  // namespace

Probe::Probe(const ProgramDesc& program, bool all, bool gradients,
             const std::vector<std::string>& parts, const Ranks& ranks)
    : parts_(parts), ranks_(ranks) {
  const TrainingParts step = PartsOf(program);
  for (const std::string& rate : step.rates) {
    const VarDesc* var = program.Root().FindVar(rate);
    if (!var) continue;
    rate_names_.push_back(rate);
    if (!var->persistable()) Fetch(rate);
  }
  for (const TrainingParts::NormClip& clip : step.norm_clips)
    clips_.push_back({clip.of, Fetch(clip.norm), Fetch(clip.counter), clip.limit});
  for (const TrainingParts::CountedClip& clip : step.counted_clips) {
    const bool of_error = clip.stage == TrainingStage::kErrorClip;
    counted_.push_back({of_error ? ClipReport::Kind::kError : ClipReport::Kind::kGradient, clip.of,
                        clip.statistics});
  }
  if (all) FindSizes(program);
  if (!gradients) return;
  for (const std::string& param : program.Parameters()) {
    const VarDesc* var = program.Root().FindVar(GradName(param));
    if (var && IsFloatTensor(*var)) gradients_.emplace_back(param, Fetch(GradName(param)));
  }
}

size_t Probe::Fetch(const std::string& name) {
  const auto found = std::find(fetches_.begin(), fetches_.end(), name);
  const auto at = static_cast<size_t>(found - fetches_.begin());
  if (found == fetches_.end()) fetches_.push_back(name);
  return at;
}

// Activations are the outputs of forward ops. The gradients are those of a parameter or
// an activation.
void Probe::FindSizes(const ProgramDesc& program) {
  const BlockDesc& root = program.Root();
  std::vector<Size> gradients;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const bool backward = IsBackward(root.op(i));
    if (!backward && !HasForwardRole(root.op(i))) continue;
    root.op(i).ForEachOutput([&](const std::string& name) {
      const VarDesc* var = root.FindVar(name);
      if (!var || var->persistable() || !IsFloatTensor(*var)) return;
      const bool gradient = name.ends_with(kGradSuffix);
      if (backward != gradient || LastWriter(root, name) != &root.op(i)) return;
      (backward ? gradients : sizes_)
          .push_back({backward ? "gradient" : "activation", name, Fetch(name)});
    });
  }
  sizes_.insert(sizes_.end(), gradients.begin(), gradients.end());
  for (const std::string& name : program.Parameters())
    if (IsFloatTensor(*root.FindVar(name))) sizes_.push_back({"parameter", name, kPersistable});
}

void Probe::Begin(const Scope& scope) {
  for (Clip& clip : clips_) clip.seen = ScalarOf(scope.Get(fetches_[clip.count]), "clip steps");
  for (Counted& clip : counted_) {
    const auto now = CountsOf(scope, clip.statistics);
    clip.times = now[0];
    clip.acted = now[1];
  }
}

void Probe::Receive(std::span<const Tensor> fetched) {
  fetched_ = fetched;
  for (Clip& clip : clips_) {
    const double count = ScalarOf(fetched[clip.count], fetches_[clip.count]);
    // There was no update: gradients are still being accumulated, or have overflowed.
    if (count == clip.seen) continue;
    clip.seen = count;
    ++clip.steps;
    const double norm = LargestOf(fetched[clip.norm]);
    if (!(norm > clip.limit)) continue;
    ++clip.clipped;
    clip.largest = std::max(clip.largest, norm);
  }
}

void Probe::Update(const Scope& scope) {
  rates_.clear();
  lines_.clear();
  for (const std::string& name : rate_names_) {
    const auto found = std::find(fetches_.begin(), fetches_.end(), name);
    const Tensor& rate = found == fetches_.end()
                             ? scope.Get(name)
                             : fetched_[static_cast<size_t>(found - fetches_.begin())];
    rates_.push_back({name, ScalarOf(rate, name)});
  }
  reports_.clear();
  for (const Clip& clip : clips_) {
    ClipReport report{ClipReport::Kind::kGradient, clip.group, clip.steps, clip.clipped};
    if (clip.clipped > 0) {
      report.factor = clip.limit / clip.largest;
      report.norm = clip.largest;
      report.limit = clip.limit;
    }
    reports_.push_back(std::move(report));
  }
  for (const Counted& clip : counted_) {
    const auto now = CountsOf(scope, clip.statistics);
    reports_.push_back({clip.kind, clip.name, static_cast<int64_t>(now[0] - clip.times),
                        static_cast<int64_t>(now[1] - clip.acted), 1 - now[2]});
  }
  DescribeSizes(scope);
}

void Probe::Restart(Scope& scope) {
  for (Clip& clip : clips_) {
    clip.steps = clip.clipped = 0;
    clip.largest = 0;
  }
  for (Counted& clip : counted_) {
    const auto now = CountsOf(scope, clip.statistics);
    clip.times = now[0];
    clip.acted = now[1];
    if (now[2] != 0) scope.Set(clip.statistics, Tensor::Of<double>({3}, {now[0], now[1], 0}));
  }
}

std::vector<std::pair<std::string, Tensor>> Probe::Gradients() const {
  std::vector<std::pair<std::string, Tensor>> found;
  found.reserve(gradients_.size());
  for (const auto& [param, fetch] : gradients_)
    found.emplace_back(param, Whole(GradName(param), fetch));
  return found;
}

Tensor Probe::Whole(const std::string& gradient, size_t fetch) const {
  if (std::find(parts_.begin(), parts_.end(), gradient) == parts_.end()) return fetched_[fetch];
  Tensor whole = fetched_[fetch].Clone();
  ranks_.Sum(&whole);
  return whole;
}

void Probe::DescribeSizes(const Scope& scope) {
  if (sizes_.empty()) return;
  Sums parameters, gradients;
  for (const Size& size : sizes_) {
    const Tensor value =
        size.fetch == kPersistable ? scope.Get(size.name) : Whole(size.name, size.fetch);
    Sums sums;
    sums.Add(value);
    lines_.push_back(fmt::format("debug: {:<10} {}: mean |x| {:.6g}", size.kind,
                                 PrintableLine(size.name), sums.l1 / std::max(sums.count, 1.0)));
    if (size.fetch == kPersistable) parameters.Add(value);
    const bool of_parameter =
        size.name.ends_with(kGradSuffix) &&
        scope.Has(size.name.substr(0, size.name.size() - std::string(kGradSuffix).size()));
    if (of_parameter) gradients.Add(value);
  }
  lines_.push_back(fmt::format(
      "debug: all parameters: L1 {:.6g} L2 {:.6g}; their gradients: L1 {:.6g} L2 {:.6g}",
      parameters.l1, parameters.l2, gradients.l1, gradients.l2));
}

}  // namespace coracle::inline internal
