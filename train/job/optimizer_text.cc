#include <coracle/clip/gradient_clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/optimizer/factory.h>
#include <coracle/optimizer/regularizer.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/schedule_text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

namespace pb = google::protobuf;
using Node = JobNode;

// A number, bool or string field as an attr.
NamedAttr AttrOf(const pb::Message& message, const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return {field.name(), reflection.GetBool(message, &field)};
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return {field.name(), reflection.GetInt64(message, &field)};
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return {field.name(), reflection.GetString(message, &field)};
    default:
      return {field.name(), reflection.GetDouble(message, &field)};
  }
}

// The fields that are set, under the name of the message's field in its parent.
Setting FieldsOf(const std::string& kind, const pb::Message& message) {
  Setting setting{kind, {}};
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  setting.attrs.reserve(fields.size());
  for (const auto* field : fields) setting.attrs.push_back(AttrOf(message, *field));
  return setting;
}

const pb::FieldDescriptor* KindOf(const pb::Message& message) {
  const pb::OneofDescriptor& kind = *message.GetDescriptor()->FindOneofByName("kind");
  return message.GetReflection()->GetOneofFieldDescriptor(message, &kind);
}

// Optimizer, schedule, regularizer: the one of the kinds that is set.
struct Kind {
  std::string field;
  const pb::Message* message;
};
Kind RequireKind(const pb::Message& message, const char* what, const Node& at) {
  if (const auto* field = KindOf(message))
    return {field->name(), &message.GetReflection()->GetMessage(message, field)};
  std::string known;
  const pb::OneofDescriptor& kinds = *message.GetDescriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds.field_count(); ++i) known += (i ? ", " : "") + kinds.field(i)->name();
  at.FailHere(fmt::format("{} has no kind; give it one of {}", what, known));
}

Setting KindSetting(const Kind& kind, const Node& at) {
  return kind.field == "custom"
             ? CustomSetting(static_cast<const proto::CustomConfig&>(*kind.message), at)
             : FieldsOf(kind.field, *kind.message);
}

Setting ToRegularizer(const proto::RegularizerConfig& regularizer, const Node& at) {
  const Kind kind = RequireKind(regularizer, "regularizer", at);
  const Node node = at.Sub(kind.field, *kind.message).At(at, kind.field);
  Setting setting = KindSetting(kind, node);
  if (kind.field == "custom") {
    const std::vector<std::string> known = RegularizerKinds();
    if (std::find(known.begin(), known.end(), setting.kind) == known.end())
      node.Fail("type", fmt::format("{} is no regularizer; known: {}{}", Quote(setting.kind),
                                    Join(known, ", "), DidYouMean(setting.kind, known)));
    return setting;
  }
  node.Need(kind.field, {"coeff"});
  const double coeff = setting.Get<double>("coeff", 0);
  if (!(coeff >= 0) || std::isinf(coeff))
    node.Fail("coeff", fmt::format("must be finite and not negative, got {:g}", coeff));
  return setting;
}

Setting ToGradientClip(const proto::GradientClipConfig& clip, const Node& at) {
  const Kind kind = RequireKind(clip, "gradient_clip", at);
  const Node node = at.Sub(kind.field, *kind.message).At(at, kind.field);
  if (clip.has_by_value()) node.Need(kind.field, {"max"});
  if (clip.has_by_norm() || clip.has_by_global_norm()) node.Need(kind.field, {"clip_norm"});
  Setting setting = KindSetting(kind, node);
  if (clip.has_by_value() && !clip.by_value().has_min())
    setting.attrs.push_back({"min", -clip.by_value().max()});
  Located(*kind.message, node, [&] {
    CheckGradientClip(setting);
    return true;
  });
  return setting;
}

std::vector<std::string> Patterns(const pb::RepeatedPtrField<std::string>& given, const char* field,
                                  const Node& at) {
  for (int i = 0; i < given.size(); ++i)
    if (given[i].empty()) at.Fail(field, "must not be empty", i);
  return {given.begin(), given.end()};
}

OptimizerConfig ToOptimizer(const proto::OptimizerConfig& optimizer, int index, const Node& at) {
  OptimizerConfig config;
  const Kind kind = RequireKind(optimizer, "optimizer", at);
  const Node node = at.Sub(kind.field, *kind.message).At(at, kind.field);
  const Setting setting = KindSetting(kind, node);
  config.make = [setting] { return MakeOptimizer(setting); };
  const double rate = Located(*kind.message, node, [&] { return config.make()->learning_rate(); });
  config.setting = setting;
  config.place = at.where();
  config.params = Patterns(optimizer.params(), "params", at);
  config.no_decay = Patterns(optimizer.no_decay(), "no_decay", at);
  if (optimizer.has_gradient_clip()) {
    const auto& clip = optimizer.gradient_clip();
    config.gradient_clip =
        ToGradientClip(clip, at.Sub("gradient_clip", clip).At(at, "gradient_clip"));
  }
  if (optimizer.has_regularizer()) {
    const auto& regularizer = optimizer.regularizer();
    config.regularizer =
        ToRegularizer(regularizer, at.Sub("regularizer", regularizer).At(at, "regularizer"));
  }
  if (optimizer.has_schedule()) {
    const auto& schedule = optimizer.schedule();
    TakeSchedule(schedule, rate, index, at.Sub("schedule", schedule).At(at, "schedule"), &config);
  }
  return config;
}

void TakeAverage(const proto::AverageConfig& average, const Node& at, TrainingConfig* config) {
  const Kind kind = RequireKind(average, "average", at);
  const Node node = at.Sub(kind.field, *kind.message).At(at, kind.field);
  Located(*kind.message, node, [&] {
    if (average.has_ema()) {
      const ExponentialMovingAverageOptions options = {average.ema().decay(),
                                                       average.ema().warm_up()};
      config->average = options;
      return ExponentialMovingAverage(options).apply().NumBlocks();
    }
    const auto& mean = average.model_average();
    const ModelAverageOptions options = {mean.rate(), mean.min_window(), mean.max_window()};
    config->average = options;
    return ModelAverage(options).apply().NumBlocks();
  });
}

}  // namespace

TrainingConfig ToTraining(const proto::JobConfig& job, const Node& at) {
  TrainingConfig config;
  if (job.optimizer_size() > 0) config.optimizers.clear();
  for (int i = 0; i < job.optimizer_size(); ++i) {
    const auto& optimizer = job.optimizer(i);
    config.optimizers.push_back(
        ToOptimizer(optimizer, i, at.Sub("optimizer", optimizer, i).At(at, "optimizer", i)));
    if (job.optimizer_size() > 1 && optimizer.params_size() == 0)
      at.Fail("optimizer", "needs params where there are several: patterns of parameter names", i);
  }
  at.AtLeast("iter_size", job.iter_size(), 1);
  config.iter_size = job.iter_size();
  config.sum_gradients = job.sum_gradients();
  config.clip_before_average = job.clip_before_average();
  config.clip_statistics = job.clip_statistics();
  config.non_finite_loss = static_cast<NonFiniteLoss>(job.non_finite_loss());
  if (job.clip_before_average() && job.sum_gradients())
    at.Fail("clip_before_average", "does not apply to sum_gradients, which has no average");
  if (job.has_average())
    TakeAverage(job.average(), at.Sub("average", job.average()).At(at, "average"), &config);
  if (job.has_lookahead()) {
    const auto& lookahead = job.lookahead();
    const Node node = at.Sub("lookahead", lookahead).At(at, "lookahead");
    node.AtLeast("k", lookahead.k(), 1);
    if (!(lookahead.alpha() > 0 && lookahead.alpha() <= 1))
      node.Fail("alpha", fmt::format("must be in (0, 1], got {:g}", lookahead.alpha()));
    config.lookahead = LookaheadOptions{lookahead.alpha(), lookahead.k()};
  }
  return config;
}

}  // namespace coracle
