#include <coracle/optimizer/factory.h>
#include <coracle/train/job/schedule_text.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace coracle {
namespace {

using Node = JobNode;
using Kinds = proto::ScheduleConfig;

// The schedule, or part of one, that is being read.
struct Part {
  double rate;  // the optimizer's
  std::string held;
  std::optional<PlateauConfig>* plateau;
  std::vector<ScheduleMark>* marks;
  int64_t origin = 0;  // the update that it counts as its step 0
  // The updates that take its rate.
  int64_t first = 0, end = std::numeric_limits<int64_t>::max();

  Part After(int64_t steps) const {
    Part part = *this;
    part.first = std::min(end, steps > end - first ? end : first + steps);
    return part;
  }

  // Of steps counted from the origin. What another part cuts short is of no concern.
  void Mark(const Node& at, const char* field, const char* what, int64_t steps,
            const char* then = "", int index = -1) const {
    constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
    const int64_t step = steps > kEndless - origin ? kEndless : origin + steps;
    if (end != kEndless && (*then != '\0' || step >= end)) return;
    marks->push_back({at.At(at, field, index).where(), what, step, then});
  }
};

LrSchedulePtr ToSchedule(const Kinds& schedule, const Part& part, const Node& at);

// What is given, or else the optimizer's rate.
template <class Config>
double RateOf(const Config& config, double rate) {
  return config.has_rate() ? config.rate() : rate;
}

LrSchedulePtr ToSequence(const proto::SequenceRateConfig& sequence, const Part& whole,
                         const Node& at) {
  std::vector<std::pair<int64_t, LrSchedulePtr>> parts;
  parts.reserve(static_cast<size_t>(sequence.part_size()));
  for (int i = 0; i < sequence.part_size(); ++i) {
    const auto& part = sequence.part(i);
    Part inner_part = whole.After(part.first());
    inner_part.origin = inner_part.first;
    if (i + 1 < sequence.part_size())
      inner_part.end = whole.After(sequence.part(i + 1).first()).first;
    const Node node = at.Sub("part", part, i).At(at, "part", i);
    node.Need("part", {"schedule"});
    const Node inner = node.Sub("schedule", part.schedule()).At(node, "schedule");
    parts.emplace_back(part.first(), ToSchedule(part.schedule(), inner_part, inner));
  }
  return Located(sequence, at, [&] { return SequenceRate(parts); });
}

LrSchedulePtr ToCyclic(const proto::CyclicRateConfig& c, double rate) {
  return CyclicRate({.base = c.has_base() ? c.base() : rate,
                     .peak = c.peak(),
                     .step_up = c.step_up(),
                     .step_down = c.step_down(),
                     .shrink = c.shrink(),
                     .gamma = c.gamma()});
}

LrSchedulePtr ToPiecewise(const proto::PiecewiseRateConfig& c) {
  return PiecewiseRate({c.boundary().begin(), c.boundary().end()},
                       {c.value().begin(), c.value().end()});
}

PlateauConfig ToPlateau(const proto::PlateauRateConfig& plateau, double rate, const Node& at) {
  PlateauConfig config;
  config.metric = plateau.metric();
  config.options = {.minimize = !plateau.maximize(),
                    .factor = plateau.factor(),
                    .patience = plateau.patience(),
                    .threshold = plateau.threshold(),
                    .relative = plateau.relative(),
                    .cooldown = plateau.cooldown(),
                    .min_rate = plateau.min_rate()};
  Located(plateau, at, [&] { return PlateauRate(rate, config.options).rate(); });
  return config;
}

LrSchedulePtr ToHeldRate(const proto::PlateauRateConfig& plateau, const Part& part,
                         const Node& at) {
  if (*part.plateau) at.FailHere("plateau: the schedule has one already, and can have one only");
  *part.plateau = ToPlateau(plateau, part.rate, at);
  (*part.plateau)->held = part.held;
  (*part.plateau)->first = part.first;
  (*part.plateau)->end = part.end;
  return HeldRate(part.held, part.rate);
}

// What the kind does at steps that its text gives; its arguments have been checked.
void AddMarks(const Kinds& s, const Part& part, const Node& at) {
  const char* const changes = "the rate changes";
  const char* const ends = "the schedule ends";
  const char* const stays = "the rate stays";
  switch (s.kind_case()) {
    case Kinds::kStep:
      return part.Mark(at, "step_size", changes, s.step().step_size());
    case Kinds::kMultistep:
      for (int i = 0; i < s.multistep().milestone_size(); ++i)
        part.Mark(at, "milestone", changes, s.multistep().milestone(i), "", i);
      return;
    case Kinds::kPiecewise:
      for (const int64_t step : s.piecewise().boundary()) part.Mark(at, "boundary", changes, step);
      return;
    case Kinds::kNoam:
      return part.Mark(at, "warmup_steps", "the warm-up ends", s.noam().warmup_steps());
    case Kinds::kPolynomial:
      if (!s.polynomial().cycle()) part.Mark(at, "steps", ends, s.polynomial().steps(), stays);
      return;
    case Kinds::kOneCycle:
      return part.Mark(at, "steps", ends, s.one_cycle().steps(), stays);
    case Kinds::kCosineAnnealing:
      return part.Mark(at, "steps", ends, s.cosine_annealing().steps(), "the rate rises again");
    default:
      return;
  }
}

// The kind that is set, without warm-up.
LrSchedulePtr ToKind(const Kinds& s, const Part& part, const Node& at) {
  const double rate = part.rate;
  const auto sub = [&](const char* field, const google::protobuf::Message& message,
                       std::initializer_list<const char*> needed) {
    Node node = at.Sub(field, message).At(at, field);
    node.Need(field, needed);
    return node;
  };
  const auto make = [&](const char* field, const google::protobuf::Message& message,
                        std::initializer_list<const char*> needed, auto f) {
    const Node node = sub(field, message, needed);
    LrSchedulePtr made = Located(message, node, f);
    AddMarks(s, part, node);
    return made;
  };
  switch (s.kind_case()) {
    case Kinds::kExponential: {
      const auto& c = s.exponential();
      return make("exponential", c, {"gamma"}, [&] {
        return ExponentialRate(RateOf(c, rate), c.gamma(), c.steps(), c.staircase());
      });
    }
    case Kinds::kNaturalExp: {
      const auto& c = s.natural_exp();
      return make("natural_exp", c, {"gamma"}, [&] {
        return NaturalExpRate(RateOf(c, rate), c.gamma(), c.steps(), c.staircase());
      });
    }
    case Kinds::kInverseTime: {
      const auto& c = s.inverse_time();
      return make("inverse_time", c, {"gamma"}, [&] {
        return InverseTimeRate(RateOf(c, rate), c.gamma(), c.steps(), c.staircase());
      });
    }
    case Kinds::kStep: {
      const auto& c = s.step();
      return make("step", c, {"step_size"},
                  [&] { return StepRate(RateOf(c, rate), c.gamma(), c.step_size()); });
    }
    case Kinds::kInv: {
      const auto& c = s.inv();
      return make("inv", c, {"gamma", "power"},
                  [&] { return InvRate(RateOf(c, rate), c.gamma(), c.power()); });
    }
    case Kinds::kMultistep: {
      const auto& c = s.multistep();
      return make("multistep", c, {}, [&] {
        return MultiStepRate(RateOf(c, rate), c.gamma(),
                             {c.milestone().begin(), c.milestone().end()});
      });
    }
    case Kinds::kPolynomial: {
      const auto& c = s.polynomial();
      return make("polynomial", c, {"steps"}, [&] {
        return PolynomialRate(RateOf(c, rate), c.steps(), c.end(), c.power(), c.cycle());
      });
    }
    case Kinds::kSigmoid: {
      const auto& c = s.sigmoid();
      return make("sigmoid", c, {"gamma", "middle"},
                  [&] { return SigmoidRate(RateOf(c, rate), c.gamma(), c.middle()); });
    }
    case Kinds::kNoam: {
      const auto& c = s.noam();
      return make("noam", c, {"d_model", "warmup_steps"},
                  [&] { return NoamRate(c.d_model(), c.warmup_steps(), c.rate()); });
    }
    case Kinds::kPiecewise:
      return make("piecewise", s.piecewise(), {}, [&] { return ToPiecewise(s.piecewise()); });
    case Kinds::kCosine: {
      const auto& c = s.cosine();
      return make("cosine", c, {"steps_per_epoch", "epochs"},
                  [&] { return CosineRate(RateOf(c, rate), c.steps_per_epoch(), c.epochs()); });
    }
    case Kinds::kCosineAnnealing: {
      const auto& c = s.cosine_annealing();
      return make("cosine_annealing", c, {"steps"},
                  [&] { return CosineAnnealingRate(RateOf(c, rate), c.steps(), c.end()); });
    }
    case Kinds::kCosineRestarts: {
      const auto& c = s.cosine_restarts();
      return make("cosine_restarts", c, {"steps"}, [&] {
        return CosineRestartsRate(RateOf(c, rate), c.steps(), c.factor(), c.end());
      });
    }
    case Kinds::kCyclic:
      return make("cyclic", s.cyclic(), {"peak"}, [&] { return ToCyclic(s.cyclic(), rate); });
    case Kinds::kOneCycle: {
      const auto& c = s.one_cycle();
      return make("one_cycle", c, {"steps"}, [&] {
        return OneCycleRate(c.has_peak() ? c.peak() : rate, c.steps(), c.warm(), c.start_factor(),
                            c.end_factor());
      });
    }
    case Kinds::kSequence: {
      return ToSequence(s.sequence(), part, sub("sequence", s.sequence(), {}));
    }
    case Kinds::kCustom: {
      const Node node = sub("custom", s.custom(), {"type"});
      const Setting setting = CustomSetting(s.custom(), node);
      return Located(s.custom(), node, [&] { return MakeLrSchedule(setting); });
    }
    case Kinds::kPlateau:
      return ToHeldRate(s.plateau(), part, sub("plateau", s.plateau(), {}));
    case Kinds::KIND_NOT_SET:
      break;
  }
  if (s.has_warmup()) return FixedRate(rate);
  at.FailHere(
      "schedule has no kind; give it one of exponential, step, inv, multistep, polynomial, "
      "sigmoid, noam, natural_exp, inverse_time, piecewise, cosine, cosine_annealing, "
      "cosine_restarts, cyclic, one_cycle, sequence, plateau, custom");
}

LrSchedulePtr ToSchedule(const Kinds& schedule, const Part& part, const Node& at) {
  if (!schedule.has_warmup()) return ToKind(schedule, part, at);
  const auto& warmup = schedule.warmup();
  const Node node = at.Sub("warmup", warmup).At(at, "warmup");
  node.Need("warmup", {"steps"});
  const LrSchedulePtr kind = ToKind(schedule, part.After(warmup.steps()), at);
  part.Mark(node, "steps", "the warm-up ends", warmup.steps());
  return Located(warmup, node, [&] {
    return WarmupRate(kind, warmup.steps(), warmup.start(),
                      warmup.has_end() ? warmup.end() : part.rate);
  });
}

}  // namespace

void TakeSchedule(const Kinds& schedule, double rate, int index, const Node& at,
                  OptimizerConfig* config) {
  if (schedule.has_plateau() && !schedule.has_warmup()) {
    config->plateau = ToPlateau(schedule.plateau(), rate,
                                at.Sub("plateau", schedule.plateau()).At(at, "plateau"));
    return;
  }
  const Part whole = {rate, fmt::format("plateau_rate_{}", index), &config->plateau,
                      &config->schedule_marks};
  config->schedule = ToSchedule(schedule, whole, at);
}

Setting CustomSetting(const proto::CustomConfig& custom, const Node& at) {
  at.Need("custom", {"type"});
  Setting setting{custom.type(), {}};
  for (int i = 0; i < custom.attr_size(); ++i) {
    const auto& attr = custom.attr(i);
    const Node node = at.Sub("attr", attr, i).At(at, "attr", i);
    node.Need("attr", {"name"});
    switch (attr.value_case()) {
      case proto::AttrConfig::kF:
        setting.attrs.push_back({attr.name(), attr.f()});
        break;
      case proto::AttrConfig::kI:
        setting.attrs.push_back({attr.name(), static_cast<int64_t>(attr.i())});
        break;
      case proto::AttrConfig::kB:
        setting.attrs.push_back({attr.name(), attr.b()});
        break;
      case proto::AttrConfig::kS:
        setting.attrs.push_back({attr.name(), attr.s()});
        break;
      case proto::AttrConfig::VALUE_NOT_SET:
        node.FailHere("attr has no value; give it one of f, i, b, s");
    }
  }
  return setting;
}

void ThrowLocated(const Error& error, const google::protobuf::Message& message, const Node& at) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& field = type.field(i)->name();
    const std::string word = " " + field + " ";
    if (type.field(i)->is_repeated() || !at.Has(field) ||
        error.message().find(word) == std::string::npos)
      continue;
    throw error.WithPrefix(at.At(at, field).where());
  }
  throw error.WithPrefix(at.where());
}

}  // namespace coracle
