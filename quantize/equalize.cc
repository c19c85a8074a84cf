#include <coracle/framework/base/text.h>
#include <coracle/quantize/equalize.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Factors = std::vector<double>;

// The elements of a parameter that belong to each channel.
struct ChannelPlaces {
  std::string name;
  int64_t inner = 1;       // elements of one channel that follow each other
  int64_t per_group = 1;   // channels of a group
  int64_t group_size = 0;  // elements of a group; 0: there is one group

  size_t Of(int64_t i) const {
    const int64_t group = group_size > 0 ? i / group_size : 0;
    return static_cast<size_t>(group * per_group + i / inner % per_group);
  }
};

// An activation between its writer and its readers.
struct Site {
  std::string name;
  const ChannelValues* data = nullptr;
  std::vector<ChannelPlaces> writers;  // the weight or gain, and the biases
  std::vector<ChannelPlaces> readers;
  bool after_product = false;
  size_t channels = 0;
  int begin = 0, end = 0;  // axes of the activation that the readers add over
};

class SiteFinder {
 public:
  SiteFinder(const std::vector<QuantLayer>& products, const Calibration& calibration,
             const FloatModel& model)
      : calibration_(calibration), root_(model.program.Root()), model_(model) {
    for (const QuantLayer& layer : products) {
      for (const std::string& x : layer.data) readers_[x].push_back(&layer);
      writer_[layer.output] = &layer;
    }
  }

  std::vector<Site> Run() const {
    std::vector<Site> sites;
    for (const auto& [name, readers] : readers_) {
      Site site;
      site.name = name;
      if (FindReaders(name, readers, &site) && FindWriters(name, &site))
        sites.push_back(std::move(site));
    }
    return sites;
  }

 private:
  // Whether only one op reads the parameter, so that it may change.
  bool IsOwn(const std::string& name) const {
    return model_.Weight(name) && root_.Uses(name).readers.size() == 1;
  }

  bool FindReaders(const std::string& name, const std::vector<const QuantLayer*>& readers,
                   Site* site) const {
    const std::vector<std::string>& fetches = model_.fetches;
    if (root_.Uses(name).readers.size() != readers.size() ||
        std::find(fetches.begin(), fetches.end(), name) != fetches.end())
      return false;
    for (const QuantLayer* layer : readers) {
      const ChannelValues* data = ChannelsOf(calibration_, *layer);
      if (!data || !IsOwn(layer->weight[0].name)) return false;
      if (site->data && site->data != data) return false;
      site->data = data;
      site->channels = data->sum.size();
      site->begin = layer->weight[0].axes.data_begin;
      site->end = layer->weight[0].axes.data_end;
      const Shape& shape = model_.Weight(layer->weight[0].name)->shape();
      const OpDesc& op = root_.op(layer->ops[0]);
      ChannelPlaces places{layer->weight[0].name};
      if (IsConvolution(op)) {
        const int64_t groups = op.GetAttr<int32_t>("groups", 1);
        places.inner = shape.Product(2, shape.rank());
        places.per_group = shape[1];
        if (groups < 1 || shape[0] % groups != 0) return false;
        places.group_size = shape.numel() / groups;
        if (groups * shape[1] != static_cast<int64_t>(site->channels)) return false;
      } else {
        const int reduced = layer->weight[0].axes.reduced;
        if (IsTransposedConvolution(op) || shape.rank() != 2) return false;
        places.inner = shape.Product(reduced + 1, 2);
        places.per_group = shape[reduced];
        if (shape[reduced] != static_cast<int64_t>(site->channels)) return false;
      }
      site->readers.push_back(std::move(places));
    }
    return site->channels > 0;
  }

  // Whether the readers add over the last axis, and not over an earlier one of the same size.
  bool EndsWithChannels(const std::string& name, const Site& site) const {
    const VarDesc* var = root_.FindVar(name);
    return var && site.end == var->shape().rank();
  }

  bool FindWriters(const std::string& name, Site* site) const {
    const auto found = writer_.find(name);
    return found == writer_.end() ? FindNorm(name, site) : FindProduct(*found->second, site);
  }

  bool FindNorm(const std::string& name, Site* site) const {
    const VarUses uses = root_.Uses(name);
    if (uses.writers.size() != 1 || !IsLayerNorm(*uses.writers[0])) return false;
    const OpDesc& op = *uses.writers[0];
    if (!EndsWithChannels(name, *site)) return false;
    for (const char* slot : {"Scale", "Bias"}) {
      if (op.Input(slot).size() != 1 || !IsOwn(op.Input(slot)[0])) return false;
      if (model_.Weight(op.Input(slot)[0])->numel() != static_cast<int64_t>(site->channels))
        return false;
      site->writers.push_back({op.Input(slot)[0], 1, static_cast<int64_t>(site->channels), 0});
    }
    return true;
  }

  bool FindProduct(const QuantLayer& layer, Site* site) const {
    site->after_product = true;
    if (layer.weight.empty() || layer.channels != static_cast<int64_t>(site->channels) ||
        !IsOwn(layer.weight[0].name))
      return false;
    const OpDesc &op = root_.op(layer.ops[0]), &last = root_.op(layer.ops.back());
    if (KindOf(last) == QuantKind::kActivation && !IsHomogeneous(last)) return false;
    if (!op.GetAttr<std::string>("fuse_activation", "").empty() || op.HasInput("ResidualData"))
      return false;
    const LayerWeight& use = layer.weight[0];
    const Shape& shape = model_.Weight(use.name)->shape();
    if (IsTransposedConvolution(op) || use.slot != SlotsOfProduct(op).weight) return false;
    const bool same_axis = IsConvolution(op) && !HasChannelsLast(op)
                               ? site->begin == 1
                               : EndsWithChannels(layer.output, *site);
    if (!same_axis) return false;
    // A sum whose bias has no number for each channel would have to be divided too.
    const size_t sums = layer.ops.size() - (KindOf(last) == QuantKind::kActivation ? 1 : 0);
    if ((sums > 1 || layer.bias_in_slot) && (layer.bias.empty() || !IsOwn(layer.bias)))
      return false;
    if (sums > 1 && layer.bias_in_slot) return false;
    if (op.HasInput("Bias") && !layer.bias_in_slot) return false;  // known only in a run
    site->writers.push_back(
        {use.name, shape.Product(use.axes.channel + 1, shape.rank()), shape[use.axes.channel], 0});
    if (!layer.bias.empty())
      site->writers.push_back({layer.bias, 1, static_cast<int64_t>(site->channels), 0});
    return true;
  }

  const Calibration& calibration_;
  const BlockDesc& root_;
  const FloatModel& model_;
  std::map<std::string, std::vector<const QuantLayer*>> readers_;
  std::unordered_map<std::string, const QuantLayer*> writer_;
};

class Equalizer {
 public:
  explicit Equalizer(FloatModel* model) : model_(model) {}

  // The largest absolute value of each channel in these parameters.
  Factors Magnitudes(const std::vector<ChannelPlaces>& all, size_t channels) const {
    Factors magnitude(channels);
    for (const ChannelPlaces& places : all) {
      const std::span<const float> w = model_->parameters.Get(places.name).span<float>();
      for (size_t i = 0; i < w.size(); ++i) {
        double& m = magnitude[places.Of(static_cast<int64_t>(i))];
        m = std::max(m, std::abs(static_cast<double>(w[i])));
      }
    }
    return magnitude;
  }

  void Divide(const Site& site, const Factors& factors) {
    for (const ChannelPlaces& places : site.writers) Scale(places, factors, true);
    for (const ChannelPlaces& places : site.readers) Scale(places, factors, false);
  }

 private:
  void Scale(const ChannelPlaces& places, const Factors& factors, bool divide) {
    // Other models share the elements.
    if (own_.insert(places.name).second)
      model_->parameters.Set(places.name, model_->parameters.Get(places.name).Clone());
    float* w = model_->parameters.GetMutable(places.name).data<float>();
    const int64_t n = model_->parameters.Get(places.name).numel();
    for (int64_t i = 0; i < n; ++i) {
      const double factor = factors[places.Of(i)];
      w[i] = static_cast<float>(static_cast<double>(w[i]) * (divide ? 1 / factor : factor));
    }
  }

  FloatModel* model_;
  std::set<std::string> own_;
};

// Extreme factors would only move numbers to the ends of float32.
constexpr double kMostFactor = 1e4;
double Bounded(double factor) {
  return std::isfinite(factor) && factor > 0 ? std::clamp(factor, 1 / kMostFactor, kMostFactor) : 1;
}

void EqualizeLayers(const std::vector<Site>& sites, Equalizer* equalizer) {
  for (int round = 0; round < 20; ++round) {
    double most = 1;
    for (const Site& site : sites) {
      const Factors r1 = equalizer->Magnitudes({site.writers[0]}, site.channels);
      const Factors r2 = equalizer->Magnitudes(site.readers, site.channels);
      Factors factors(site.channels);
      for (size_t c = 0; c < factors.size(); ++c) {
        factors[c] = Bounded(std::sqrt(r1[c] * r2[c]) / r2[c]);
        most = std::max({most, factors[c], 1 / factors[c]});
      }
      equalizer->Divide(site, factors);
    }
    if (most < 1.001) break;
  }
}

void Smooth(const Site& site, double alpha, Equalizer* equalizer) {
  const Factors w = equalizer->Magnitudes(site.readers, site.channels);
  Factors factors(site.channels);
  for (size_t c = 0; c < factors.size(); ++c) {
    const double x = site.data->magnitude[c];
    factors[c] = x > 0 && w[c] > 0 ? Bounded(std::pow(x, alpha) / std::pow(w[c], 1 - alpha)) : 1;
  }
  equalizer->Divide(site, factors);
}

}  // namespace

std::string EqualizationChoice::ToString() const {
  if (kind == Equalization::kNone) return "none";
  return kind == Equalization::kCrossLayer ? "cross_layer" : fmt::format("smooth {:g}", alpha);
}

std::vector<EqualizationChoice> ChoicesOf(Equalization option) {
  std::vector<EqualizationChoice> choices;
  const bool all = option == Equalization::kAuto;
  if (all || option == Equalization::kNone) choices.push_back({Equalization::kNone});
  if (all || option == Equalization::kCrossLayer) choices.push_back({Equalization::kCrossLayer});
  if (all || option == Equalization::kSmooth)
    for (const double alpha : {0.5, 0.75}) choices.push_back({Equalization::kSmooth, alpha});
  return choices;
}

std::string ToString(const EqualizationPlan& plan) {
  std::map<std::string, int> counts;
  for (const auto& [name, choice] : plan) ++counts[choice.ToString()];
  if (counts.empty()) return "none";
  if (counts.size() == 1) return counts.begin()->first;
  std::vector<std::string> parts;
  for (const auto& [choice, count] : counts)
    parts.push_back(fmt::format("{} of {}", count, choice));
  return Join(parts, ", ");
}

EqualizationPlan PlanOf(const EqualizationChoice& choice, const std::vector<QuantLayer>& products,
                        const Calibration& calibration, const FloatModel& model) {
  EqualizationPlan plan;
  if (choice.kind == Equalization::kNone) return plan;
  for (const Site& site : SiteFinder(products, calibration, model).Run())
    if (site.after_product || choice.kind == Equalization::kSmooth) plan[site.name] = choice;
  return plan;
}

void Equalize(const EqualizationPlan& plan, const std::vector<QuantLayer>& products,
              const Calibration& calibration, FloatModel* model) {
  if (plan.empty()) return;
  Equalizer equalizer(model);
  std::vector<Site> between;
  for (Site& site : SiteFinder(products, calibration, *model).Run()) {
    const auto found = plan.find(site.name);
    if (found == plan.end()) continue;
    if (found->second.kind == Equalization::kSmooth)
      Smooth(site, found->second.alpha, &equalizer);
    else
      between.push_back(std::move(site));
  }
  EqualizeLayers(between, &equalizer);
}

}  // namespace coracle::inline internal
