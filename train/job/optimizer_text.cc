#include <coracle/clip/clip.h>
#include <coracle/clip/internal/text_clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/optimizer/option_fields.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/schedule_text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

using Node = JobNode;

Setting ToRegularizer(const Node& at) {
  const std::string kind = at.RequireKind("regularizer");
  const Node node = at.Child(kind);
  const KindsWithFields kinds = RegularizerFields();
  Setting setting = KindSetting(node, kind, kinds);
  const FieldTable* fields = FieldsOfKind(kinds, setting.kind);
  if (!fields) {
    std::vector<std::string> known = RegularizerKinds();
    node.Fail("type", fmt::format("{} is not a regularizer; known: {}{}", Quote(setting.kind),
                                  Join(known, ", "), DidYouMean(setting.kind, known)));
  }
  if (kind != "custom") node.CheckGiven(*fields, kind);
  Located(node, [&] { CheckRegularizer(setting); });
  return setting;
}

Setting ToGradientClip(const Node& at) {
  const std::string kind = at.RequireKind("gradient_clip");
  const Node node = at.Child(kind);
  Setting setting = KindSetting(node, kind, GradientClipFields());
  Located(node, [&] { CheckTextGradientClip(setting); });
  return setting;
}

std::vector<std::string> Patterns(const char* field, const Node& at) {
  auto patterns = at.Get<std::vector<std::string>>(field);
  for (size_t i = 0; i < patterns.size(); ++i)
    if (patterns[i].empty()) at.Fail(field, "must not be empty", static_cast<int>(i));
  return patterns;
}

OptimizerConfig ToOptimizer(const Node& at, int index) {
  OptimizerConfig config;
  const std::string kind = at.RequireKind("optimizer");
  const Node node = at.Child(kind);
  const Setting setting = KindSetting(node, kind, OptimizerFields());
  config.make = [setting] { return MakeOptimizer(setting); };
  const double rate = Located(node, [&] { return config.make()->learning_rate(); });
  config.setting = setting;
  config.place = at.where();
  config.params = Patterns("params", at);
  config.no_decay = Patterns("no_decay", at);
  if (at.Has("gradient_clip")) config.gradient_clip = ToGradientClip(at.Child("gradient_clip"));
  if (at.Has("regularizer")) config.regularizer = ToRegularizer(at.Child("regularizer"));
  if (at.Has("schedule")) ReadSchedule(at.Child("schedule"), rate, index, &config);
  return config;
}

template <class Average, class Options>
void ReadAverage(const Node& at, TrainingConfig* config) {
  Located(at, [&] {
    const auto& fields = FieldsOf(Options());
    const Options options = fields.Read("average", at.Given("average"));
    Average{options};  // throws for numbers out of range
    config->average = options;
  });
}

}  // namespace

TrainingConfig ToTraining(const proto::JobConfig& job, const Node& at) {
  TrainingConfig config;
  const int optimizers = at.Count("optimizer");
  if (optimizers > 0) config.optimizers.clear();
  for (int i = 0; i < optimizers; ++i) {
    config.optimizers.push_back(ToOptimizer(at.Child("optimizer", i), i));
    if (optimizers > 1 && config.optimizers.back().params.empty())
      at.Fail("optimizer", "needs params where there are several: patterns of parameter names", i);
  }
  config.iter_size = job.iter_size();
  config.sum_gradients = job.sum_gradients();
  config.clip_before_average = job.clip_before_average();
  config.clip_statistics = job.clip_statistics();
  config.non_finite_loss = static_cast<NonFiniteLoss>(job.non_finite_loss());
  if (job.clip_before_average() && job.sum_gradients())
    at.Fail("clip_before_average", "does not apply to sum_gradients, which has no average");
  if (at.Has("average")) {
    const Node average = at.Child("average");
    const std::string kind = average.RequireKind("average");
    if (kind == "ema")
      ReadAverage<ExponentialMovingAverage, ExponentialMovingAverageOptions>(average.Child(kind),
                                                                             &config);
    else
      ReadAverage<ModelAverage, ModelAverageOptions>(average.Child(kind), &config);
  }
  if (at.Has("lookahead"))
    config.lookahead = at.Child("lookahead").Read(FieldsOf(LookaheadOptions()), "lookahead");
  return config;
}

}  // namespace coracle
