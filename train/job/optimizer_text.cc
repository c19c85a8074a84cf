#include <coracle/clip/clip.h>
#include <coracle/clip/internal/text_clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/train/job/field_reader.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/schedule_text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

Setting ToRegularizer(const JobNode& at) {
  const std::string kind = at.RequireKind("regularizer");
  const JobNode node = at.Child(kind);
  const KindsWithFields kinds = RegularizerFields();
  Setting setting = KindSetting(node, kind, kinds);
  const FieldTable* fields = FieldsOfKind(kinds, setting.kind);
  if (!fields) {
    std::vector<std::string> known;
    for (const auto& [name, unused] : kinds) known.push_back(name);
    std::sort(known.begin(), known.end());
    node.Fail("type", fmt::format("{} is not a regularizer; known: {}{}", Quote(setting.kind),
                                  Join(known, ", "), DidYouMean(setting.kind, known)));
  }
  for (const FieldSpec& field : fields->fields())
    if (kind != "custom" && node.Has(field.name)) node.CheckRange(field, kind);
  Located(node, [&] { CheckRegularizer(setting); });
  return setting;
}

Setting ToGradientClip(const JobNode& at) {
  const std::string kind = at.RequireKind("gradient_clip");
  const JobNode node = at.Child(kind);
  Setting setting = KindSetting(node, kind, GradientClipFields());
  Located(node, [&] { CheckTextGradientClip(setting); });
  return setting;
}

void RequirePatterns(const std::vector<std::string>& patterns, const char* field,
                     const JobNode& at) {
  for (size_t i = 0; i < patterns.size(); ++i)
    if (patterns[i].empty()) at.Fail(field, "must not be empty", static_cast<int>(i));
}

OptimizerConfig ToOptimizer(const JobNode& at, int index) {
  const std::string kind = at.RequireKind("optimizer");
  const JobNode node = at.Child(kind);
  const Setting setting = KindSetting(node, kind, OptimizerFields());
  OptimizerConfig config = ReadOptions(at, OptimizerConfigFields());
  config.make = [setting] { return MakeOptimizer(setting); };
  const double rate = Located(node, [&] { return config.make()->learning_rate(); });
  config.setting = setting;
  config.place = at.where();
  RequirePatterns(config.params, "params", at);
  RequirePatterns(config.no_decay, "no_decay", at);
  if (at.Has("gradient_clip")) config.gradient_clip = ToGradientClip(at.Child("gradient_clip"));
  if (at.Has("regularizer")) config.regularizer = ToRegularizer(at.Child("regularizer"));
  if (at.Has("schedule")) ReadSchedule(at.Child("schedule"), rate, index, &config);
  return config;
}

}  // namespace

Fields<OptimizerConfig> OptimizerConfigFields() {
  using O = OptimizerConfig;
  return Fields<O>(
             "How the parameters are updated. If there are several, each updates the parameters "
             "that its `params` match.")
      .Declare("gradient_clip", "GradientClipConfig", false,
               "of the gradients of parameters that have no clip of their own")
      .Add("params", &O::params,
           "patterns of names: * stands for any characters, ? for one; default: all",
           FieldExample{"params: \"*.b_0\""})
      .Declare("schedule", "ScheduleConfig", false, "")
      .Declare("regularizer", "RegularizerConfig", false,
               "for parameters that have none of their own")
      .Add("no_decay", &O::no_decay,
           "patterns of names: no weight decay, neither by `regularizer` nor of adamw, lamb, lion "
           "and lars_momentum",
           FieldExample{"no_decay: \"*.b_0\""});
}

void ReadOptimizers(const JobNode& job, TrainingConfig* config) {
  const int count = job.Count("optimizer");
  if (count > 0) config->optimizers.clear();
  for (int i = 0; i < count; ++i) {
    config->optimizers.push_back(ToOptimizer(job.Child("optimizer", i), i));
    if (count > 1 && config->optimizers.back().params.empty())
      job.Fail("optimizer", "needs params where there are several: patterns of parameter names", i);
  }
}

}  // namespace coracle::inline internal
