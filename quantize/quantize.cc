#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/passes/value_flow.h>
#include <coracle/quantize/equalize.h>
#include <coracle/quantize/measure.h>
#include <coracle/quantize/quantize.h>
#include <coracle/quantize/quantized_program.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace coracle::inline internal {
namespace {

// Two numbers of 4 bits share a byte.
uint64_t BytesInFile(const IntegerWeight& weight) {
  return weight.format.bits == 4 ? (weight.values.nbytes() + 1) / 2 : weight.values.nbytes();
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LayerRules RulesOf(const QuantizeOptions& options) {
  LayerRules rules;
  rules.connectors = options.scheme == QuantScheme::kStatic;
  // ONNX Runtime adds integers; a convolution here adds the integers to its sums.
  rules.with_sums = options.form == QuantForm::kOnnx;
  rules.without_weight =
      options.products_of_activations && options.scheme != QuantScheme::kWeightOnly;
  return rules;
}

// Throws for a number that names no value of an enumeration, which has `count` of them.
template <class E>
void RequireNamed(E value, int32_t count, const char* what) {
  const auto number = static_cast<int32_t>(value);
  if (number < 0 || number >= count)
    ThrowInvalid(fmt::format("quantisation: {} {} does not exist", what, number));
}

void RequireValid(const QuantizeOptions& options) {
  RequireNamed(options.scheme, 3, "the scheme");
  RequireNamed(options.method, 4, "the method of ranges");
  RequireNamed(options.form, 2, "the form");
  RequireNamed(options.equalization, 4, "the equalisation");
  if (options.weight_bits != 8 && options.weight_bits != 4)
    ThrowInvalid(fmt::format("weights have 8 or 4 bits, got {}", options.weight_bits));
  if (options.block_size < 2)
    ThrowInvalid(fmt::format("a block has at least 2 weights, got {}", options.block_size));
  if (!(options.percentile > 0.5 && options.percentile <= 1)) {
    ThrowInvalid(fmt::format("the percentile lies above 0.5 and is at most 1, got {:g}",
                             options.percentile));
  }
}

}  // namespace

// A float program with what is known of it.
struct Candidate {
  EqualizationPlan plan;
  FloatModel model;
  Calibration calibration;
};

struct ModelQuantizer::State {
  QuantizeOptions options;
  LayerRules rules;
  const OpRegistry* ops;
  CalibrationFeeds feeds;
  std::vector<QuantLayer> products;  // of all candidates: equalisation changes values only
  Candidate chosen;

  bool NeedsSamples() const {
    return feeds && (options.scheme == QuantScheme::kStatic || options.correct_bias ||
                     options.equalization != Equalization::kNone);
  }
  std::vector<std::string> Observed(const FloatModel& model) const;
  Calibration CalibrateModel(const FloatModel& model) const;
  void Choose(FloatModel model);
  EqualizationPlan BestOfEach(const std::vector<EqualizationPlan>& plans,
                              const std::vector<std::vector<LayerReport>>& results) const;
  QuantizedModel Make(const Candidate& candidate, const std::set<std::string>& in_float,
                      bool measure) const;
  void Measure(const Candidate& candidate, const QuantizedParts& parts, const FloatModel& quantized,
               QuantizedModel* result) const;
  void Report(const Candidate& candidate, const QuantSelection& selection,
              const std::vector<LayerParameters>& parameters, QuantizedModel* result) const;
};

namespace {

// Leaves out the products that match the expression, and those at the ends.
std::vector<QuantLayer> Included(std::vector<QuantLayer> products, const QuantizeOptions& options) {
  if (!options.exclude.empty()) {
    const Regex excluded(options.exclude);
    std::erase_if(products, [&](const QuantLayer& layer) {
      return excluded.MatchesPart(layer.output) ||
             (!layer.weight.empty() && excluded.MatchesPart(layer.weight[0].name));
    });
  }
  if (options.keep_ends && !products.empty()) {
    const size_t first = products.front().ops[0];
    std::erase_if(products,
                  [&](const QuantLayer& layer) { return layer.ops[0] == first || layer.is_last; });
  }
  return products;
}

}  // namespace

std::vector<std::string> ModelQuantizer::State::Observed(const FloatModel& model) const {
  if (options.scheme != QuantScheme::kStatic) return {};
  // With a layer in floating point, a moved value may have a range of its own.
  std::vector<std::string> names;
  for (const auto& [name, range] : SelectLayers(model, products, rules).range_of)
    names.push_back(name);
  return names;
}

Calibration ModelQuantizer::State::CalibrateModel(const FloatModel& model) const {
  if (!NeedsSamples()) return {};
  return Calibrate(model, Observed(model), products, feeds, options.compile, *ops);
}

// Returns for each activation the choice with which the products that read it lose least. Each plan
// has its result at the same index.
EqualizationPlan ModelQuantizer::State::BestOfEach(
    const std::vector<EqualizationPlan>& plans,
    const std::vector<std::vector<LayerReport>>& results) const {
  std::map<std::string, double> least;
  EqualizationPlan best;
  for (size_t i = 0; i < plans.size(); ++i) {
    std::map<std::string, double> noise;  // noise of the readers as a share of the signal
    for (const QuantLayer& layer : products) {
      for (const LayerReport& report : results[i])
        if (report.output == layer.output && !std::isnan(report.own))
          noise[layer.data[0]] += std::pow(10, -report.own / 10);
    }
    for (const auto& [name, share] : noise) {
      const auto [it, first] = least.try_emplace(name, share);
      if (!first && !(share < it->second)) continue;
      it->second = share;
      best.erase(name);
      if (const auto choice = plans[i].find(name); choice != plans[i].end()) best.insert(*choice);
    }
  }
  return best;
}

// Tries the ways to equalise, then the best way of each activation, and keeps what gives the
// smallest error at the last layers.
void ModelQuantizer::State::Choose(FloatModel model) {
  chosen = {{}, model.Copy(), CalibrateModel(model)};
  if (!NeedsSamples()) return;
  const Calibration calibration = chosen.calibration;
  std::vector<EqualizationPlan> plans;
  for (const EqualizationChoice& choice : ChoicesOf(options.equalization)) {
    EqualizationPlan plan = PlanOf(choice, products, calibration, model);
    if (choice.kind == Equalization::kNone || !plan.empty()) plans.push_back(std::move(plan));
  }
  if (plans.empty() || (plans.size() == 1 && plans[0].empty())) return;
  std::vector<std::vector<LayerReport>> results;
  double best = -std::numeric_limits<double>::infinity();
  const bool compares = plans.size() > 1;
  const auto attempt = [&](const EqualizationPlan& plan) {
    Candidate candidate{plan, model.Copy(), calibration};
    if (!plan.empty()) {
      Equalize(plan, products, calibration, &candidate.model);
      candidate.calibration = CalibrateModel(candidate.model);
    }
    if (compares) {
      QuantizedModel made = Make(candidate, {}, true);
      results.push_back(std::move(made.layers));
      if (!(made.output > best)) return;
      best = made.output;
    }
    chosen = std::move(candidate);
  };
  for (const EqualizationPlan& plan : plans) attempt(plan);
  if (!compares) return;
  const EqualizationPlan mixed = BestOfEach(plans, results);
  if (std::find(plans.begin(), plans.end(), mixed) == plans.end()) attempt(mixed);
}

QuantizedModel ModelQuantizer::State::Make(const Candidate& candidate,
                                           const std::set<std::string>& in_float,
                                           bool measure) const {
  std::vector<QuantLayer> layers = products;
  std::erase_if(layers, [&](const QuantLayer& layer) { return in_float.count(layer.output) > 0; });
  const QuantSelection selection = SelectLayers(candidate.model, layers, rules);
  const ByteForm form = options.form == QuantForm::kOnnx ? ByteForm::kUint8 : ByteForm::kInt8;
  ByteScales scales;
  for (const auto& [name, range] : selection.range_of) {
    if (options.scheme != QuantScheme::kStatic || scales.count(range)) continue;
    scales[range] = ScaleOfRange(ChooseRange(candidate.calibration.histograms.at(range),
                                             options.method, options.percentile, form),
                                 form);
  }
  const std::vector<LayerParameters> parameters =
      ParametersOfLayers(candidate.model, selection.layers, selection.range_of, scales,
                         candidate.calibration, options);
  const QuantizedParts parts{candidate.model, selection, parameters, scales, options, *ops};
  FloatModel quantized = QuantizedProgram(parts);
  if (options.bfloat16) ComputeInBfloat16(&quantized, *ops);
  if (options.form == QuantForm::kPaddle) SplitConvolutionBiases(&quantized, *ops);
  QuantizedModel result;
  result.equalization = ToString(candidate.plan);
  result.output = kNan;
  Report(candidate, selection, parameters, &result);
  if (measure && feeds) Measure(candidate, parts, quantized, &result);
  result.program = std::move(quantized.program);
  result.parameters = std::move(quantized.parameters);
  return result;
}

// Fills in the ratios of `result`.
void ModelQuantizer::State::Measure(const Candidate& candidate, const QuantizedParts& parts,
                                    const FloatModel& quantized, QuantizedModel* result) const {
  const ProgramWithCopies with_copies = FloatProgramWithCopies(parts);
  Compared compared{with_copies.model, quantized, {}};
  for (const QuantLayer& layer : parts.selection.layers)
    compared.names.emplace_back(layer.output, with_copies.copy_of.at(layer.output));
  const size_t layers = compared.names.size();
  for (const QuantLayer& layer : FindProducts(candidate.model, rules))
    if (layer.is_last) compared.names.emplace_back(layer.output, "");
  // Results such as a loss would hide most errors, so they count only without such layers.
  if (compared.names.size() == layers) {
    for (const std::string& name : candidate.model.fetches)
      if (DTypeOfTensor(candidate.model.program.Root(), name) == DType::kFloat32)
        compared.names.emplace_back(name, "");
  }
  const std::vector<NoiseOf> noise = MeasureNoise(compared, feeds, options.compile, *ops);
  std::map<std::string, const NoiseOf*> by_name;
  for (size_t i = 0; i < layers; ++i) by_name[compared.names[i].first] = &noise[i];
  for (LayerReport& layer : result->layers) {
    const auto found = by_name.find(layer.output);
    if (found == by_name.end()) continue;
    layer.own = found->second->own.Decibels();
    layer.total = found->second->total.Decibels();
  }
  constexpr double kExact = 200;  // counts instead of an infinite ratio
  double sum = 0, least = kExact, count = 0;
  for (size_t i = layers; i < noise.size(); ++i) {
    const SignalNoise& total = noise[i].total;
    if (total.signal == 0) continue;
    // A nan of the quantised model is worse than any number.
    const double ratio =
        std::isnan(total.noise) ? -kExact : std::clamp(total.Decibels(), -kExact, kExact);
    sum += ratio;
    least = std::min(least, ratio);
    ++count;
  }
  if (noise.size() == layers) return;
  if (count == 0)
    result->output = std::numeric_limits<double>::quiet_NaN();
  else
    result->output = least == kExact ? std::numeric_limits<double>::infinity() : sum / count;
}

void ModelQuantizer::State::Report(const Candidate& candidate, const QuantSelection& selection,
                                   const std::vector<LayerParameters>& parameters,
                                   QuantizedModel* result) const {
  std::map<size_t, LayerReport> by_op;
  const auto add = [&](const QuantLayer& layer) -> LayerReport& {
    LayerReport& report = by_op[layer.ops[0]];
    report.output = layer.output;
    report.type = layer.type;
    report.is_product = layer.kind == QuantKind::kProduct;
    report.own = report.total = kNan;
    if (!layer.weight.empty())
      report.bytes_before = candidate.model.Weight(layer.weight[0].name)->nbytes();
    report.bytes_after = report.bytes_before;
    return report;
  };
  for (const QuantLayer& layer : FindProducts(candidate.model, rules)) add(layer).quantized = false;
  for (size_t i = 0; i < selection.layers.size(); ++i) {
    LayerReport& report = add(selection.layers[i]);
    report.quantized = true;
    if (parameters[i].weight)
      report.bytes_after =
          BytesInFile(*parameters[i].weight) + parameters[i].weight->scale.nbytes();
  }
  for (auto& [op, report] : by_op) result->layers.push_back(std::move(report));
}

ModelQuantizer::ModelQuantizer(const ProgramDesc& program, const Scope& parameters,
                               const CalibrationFeeds& feeds, const QuantizeOptions& options,
                               const OpRegistry& ops)
    : state_(std::make_unique<State>()) {
  RequireValid(options);
  if (!feeds && options.scheme == QuantScheme::kStatic)
    ThrowInvalid("a static scheme needs samples, from which it takes the ranges");
  if (!feeds && (options.equalization == Equalization::kCrossLayer ||
                 options.equalization == Equalization::kSmooth))
    ThrowInvalid("equalisation needs samples: it measures channels on them");
  state_->options = options;
  state_->ops = &ops;
  state_->feeds = feeds;
  state_->rules = RulesOf(options);
  FloatModel model = PrepareFloatModel(program, parameters, ops);
  const std::vector<QuantLayer> all = FindProducts(model, state_->rules);
  if (all.empty()) {
    ThrowInvalid(
        "the program has no layer to quantise: no convolution or matrix product in float32 reads "
        "an activation and a parameter");
  }
  state_->products = Included(all, options);
  if (state_->products.empty() && !options.bfloat16) {
    ThrowInvalid(fmt::format(
        "all {} layers of the program are excluded: nothing is left to quantise", all.size()));
  }
  state_->Choose(std::move(model));
}

ModelQuantizer::~ModelQuantizer() = default;

std::vector<std::string> ModelQuantizer::products() const {
  std::vector<std::string> names;
  for (const QuantLayer& layer : state_->products) names.push_back(layer.output);
  return names;
}

QuantizedModel ModelQuantizer::Make(const std::set<std::string>& in_float, bool measure) const {
  return state_->Make(state_->chosen, in_float, measure);
}

}  // namespace coracle::inline internal

namespace coracle {

QuantizedModel QuantizeModel(const ProgramDesc& program, const Scope& parameters,
                             const CalibrationFeeds& samples, const QuantizeOptions& options,
                             const OpRegistry& ops) {
  return ModelQuantizer(program, parameters, samples, options, ops).Make();
}

}  // namespace coracle
