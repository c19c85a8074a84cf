#include <coracle/executor/executor.h>
#include <coracle/operators/operators.h>
#include <coracle/train/run/predict/predictor_core.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace coracle::inline internal {
namespace {

// A compiled model with a workspace for each thread that runs it at the same time.
class ProgramRunner {
 public:
  ProgramRunner(const InferenceModel& model, Scope scope, const PredictOptions& options)
      : scope_(std::move(scope)),
        prepared_(Executor(options.compile, options.ops ? *options.ops : DefaultOps())
                      .PrepareOwning(model.program, scope_)) {
    const std::vector<std::string>& frozen = prepared_.frozen_names();
    for (const std::string& name : PersistableNames(model.program))
      writes_ |= !std::binary_search(frozen.begin(), frozen.end(), name);
  }

  std::vector<Tensor> Run(const std::vector<Tensor>& feeds) {
    std::unique_lock lock(mutex_);
    if (idle_.empty()) idle_.push_back(std::make_unique<PreparedProgram>(prepared_));
    std::unique_ptr<PreparedProgram> own = std::move(idle_.back());
    idle_.pop_back();
    if (!writes_) lock.unlock();
    std::vector<Tensor> results;
    for (const Tensor& result : own->Run(scope_, feeds)) results.push_back(result.Clone());
    if (!writes_) lock.lock();
    idle_.push_back(std::move(own));
    return results;
  }

 private:
  std::mutex mutex_;
  Scope scope_;  // does not change if all parameters are frozen
  PreparedProgram prepared_;
  bool writes_ = false;  // runs change the scope: one run at a time
  std::vector<std::unique_ptr<PreparedProgram>> idle_;
};

}  // namespace

RunFeeds MakeRunner(const InferenceModel& model, Scope scope, const PredictOptions& options) {
  const auto runner = std::make_shared<ProgramRunner>(model, std::move(scope), options);
  return [runner](const std::vector<Tensor>& feeds) { return runner->Run(feeds); };
}

}  // namespace coracle::inline internal
