#include <coracle/passes/pass.h>
#include <coracle/quantize/layers.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using NameSet = std::unordered_set<std::string>;

// Questions about the variables of the root block.
class Variables {
 public:
  explicit Variables(const FloatModel& model)
      : model_(model), root_(model.program.Root()), inner_(NamesInSubBlocks(model.program)) {
    fetched_.insert(model.fetches.begin(), model.fetches.end());
  }

  const BlockDesc& root() const { return root_; }
  // Whether it may be replaced by quantised numbers: a float32 tensor that is written once.
  bool IsActivation(const std::string& name) const {
    const VarDesc* var = root_.FindVar(name);
    if (!var || var->persistable() || var->type() != VarType::kLoDTensor ||
        var->dtype() != DType::kFloat32 || inner_.count(name))
      return false;
    const size_t writers = root_.Uses(name).writers.size();
    return writers == 1 || (writers == 0 && IsFed(name));
  }
  bool IsFed(const std::string& name) const {
    return std::find(model_.feeds.begin(), model_.feeds.end(), name) != model_.feeds.end();
  }
  bool IsWeight(const std::string& name) const { return model_.Weight(name) != nullptr; }
  // The only op that reads the variable; nullptr if there are several, or if it is also fetched.
  const OpDesc* OnlyReader(const std::string& name) const {
    const VarUses uses = root_.Uses(name);
    return uses.readers.size() == 1 && uses.writers.size() == 1 && !fetched_.count(name) &&
                   !inner_.count(name)
               ? uses.readers[0]
               : nullptr;
  }
  const OpDesc* Writer(const std::string& name) const {
    const VarUses uses = root_.Uses(name);
    return uses.writers.size() == 1 ? uses.writers[0] : nullptr;
  }
  const Shape& ShapeOf(const std::string& name) const { return root_.FindVar(name)->shape(); }

  // The parameter that a sum adds to `x`; "" if the op is something else.
  std::string AddedParameter(const OpDesc& op, const std::string& x) const {
    if (!IsSum(op) || op.Input("X").size() != 1 || op.Input("Y").size() != 1) return "";
    const std::string &a = op.Input("X")[0], &b = op.Input("Y")[0];
    if (a == x && IsWeight(b)) return b;
    return b == x && IsWeight(a) ? a : "";
  }

 private:
  const FloatModel& model_;
  const BlockDesc& root_;
  NameSet inner_, fetched_;
};

class ProductFinder {
 public:
  ProductFinder(const FloatModel& model, const LayerRules& rules)
      : model_(model), rules_(rules), vars_(model) {}

  std::vector<QuantLayer> Run() {
    std::vector<QuantLayer> layers;
    const BlockDesc& root = model_.program.Root();
    for (size_t i = 0; i < root.NumOps(); ++i) {
      if (KindOf(root.op(i)) != QuantKind::kProduct) continue;
      if (std::optional<QuantLayer> layer = LayerOf(root.op(i), i)) layers.push_back(*layer);
    }
    MarkLast(&layers);
    return layers;
  }

 private:
  std::optional<QuantLayer> LayerOf(const OpDesc& op, size_t position) const {
    const ProductSlots slots = SlotsOfProduct(op);
    if (op.Input(slots.data).size() != 1 || op.Input(slots.weight).size() != 1 ||
        op.Output(slots.output).size() != 1)
      return std::nullopt;
    const std::string &x = op.Input(slots.data)[0], &w = op.Input(slots.weight)[0];
    QuantLayer layer;
    layer.ops = {position};
    layer.type = op.type();
    layer.output = op.Output(slots.output)[0];
    if (!vars_.IsActivation(layer.output)) return std::nullopt;
    if (vars_.IsActivation(x) && vars_.IsWeight(w)) {
      layer.data = {x};
      if (!SetWeight(op, w, slots.weight, x, true, &layer)) return std::nullopt;
    } else if (slots.weight_is_data && vars_.IsActivation(w) && vars_.IsWeight(x)) {
      layer.data = {w};
      if (!SetWeight(op, x, slots.data, w, false, &layer)) return std::nullopt;
    } else if (rules_.without_weight && vars_.IsActivation(x) && vars_.IsActivation(w)) {
      layer.data = {x, w};
    } else {
      return std::nullopt;
    }
    const std::vector<std::string>& bias = op.Input(slots.bias);
    if (bias.size() == 1 && vars_.IsWeight(bias[0])) {
      layer.bias = bias[0];
      layer.bias_in_slot = true;
    }
    AddEpilogue(&layer);
    return layer;
  }

  bool SetWeight(const OpDesc& op, const std::string& w, const std::string& slot,
                 const std::string& x, bool is_y, QuantLayer* layer) const {
    const Shape& shape = model_.Weight(w)->shape();
    const std::optional<ProductAxes> axes = AxesOfProduct(op, vars_.ShapeOf(x), shape, is_y);
    if (!axes) return false;
    layer->weight = {{w, slot, *axes}};
    layer->channels = shape[axes->channel];
    return true;
  }

  // Whether the sum adds a vector along the channels of the product's result.
  bool AddsToChannels(const OpDesc& sum, const std::string& bias, const OpDesc& product,
                      int64_t channels) const {
    const Shape& shape = model_.Weight(bias)->shape();
    if (sum.Input("Y")[0] != bias || shape.rank() != 1 || shape[0] != channels) return false;
    const int rank = vars_.ShapeOf(sum.Input("X")[0]).rank();
    const auto axis = sum.GetAttr<int32_t>("axis", -1);
    const int at = axis < 0 ? rank - 1 : axis;
    const bool images = IsConvolution(product) || IsTransposedConvolution(product);
    return at == (images && !HasChannelsLast(product) ? 1 : rank - 1);
  }

  // Adds the sum with a bias and the activation that follow.
  void AddEpilogue(QuantLayer* layer) const {
    const BlockDesc& root = model_.program.Root();
    const OpDesc* next = vars_.OnlyReader(layer->output);
    const std::string bias = next ? vars_.AddedParameter(*next, layer->output) : "";
    if (!bias.empty() && next->Output("Out").size() == 1) {
      layer->ops.push_back(root.IndexOf(*next));
      layer->output = next->Output("Out")[0];
      const OpDesc& product = root.op(layer->ops[0]);
      if (layer->bias.empty() && !product.HasInput("Bias") &&
          AddsToChannels(*next, bias, product, layer->channels))
        layer->bias = bias;
      next = vars_.OnlyReader(layer->output);
    }
    if (!next || KindOf(*next) != QuantKind::kActivation || next->Output("Out").size() != 1 ||
        next->Input("X") != std::vector<std::string>{layer->output})
      return;
    layer->ops.push_back(root.IndexOf(*next));
    layer->output = next->Output("Out")[0];
  }

  // Marks the layers from whose output no path leads to another layer.
  void MarkLast(std::vector<QuantLayer>* layers) const {
    std::unordered_set<size_t> products;
    for (const QuantLayer& layer : *layers) products.insert(layer.ops[0]);
    NameSet reaching;
    const BlockDesc& root = model_.program.Root();
    for (size_t i = root.NumOps(); i-- > 0;) {
      const OpDesc& op = root.op(i);
      const bool reaches = products.count(i) > 0 || op.AnyOutput([&](const std::string& name) {
        return reaching.count(name) > 0;
      });
      if (reaches) op.ForEachInput([&](const std::string& name) { reaching.insert(name); });
    }
    for (QuantLayer& layer : *layers) layer.is_last = reaching.count(layer.output) == 0;
  }

  const FloatModel& model_;
  const LayerRules& rules_;
  Variables vars_;
};

// Follows quantised numbers from op to op.
class Selector {
 public:
  Selector(const FloatModel& model, const std::vector<QuantLayer>& products,
           const LayerRules& rules)
      : rules_(rules), vars_(model), root_(model.program.Root()) {
    selection_.layers = products;
    for (const QuantLayer& layer : products) {
      for (const size_t op : layer.ops) layer_at_[op] = &layer;
      for (const std::string& x : layer.data) Quantise(layer.ops[0], x);
    }
  }

  QuantSelection Run() {
    if (rules_.connectors) {
      FindSources();
      FindTargets();
      for (size_t i = 0; i < root_.NumOps(); ++i) Visit(i);
    }
    std::sort(selection_.layers.begin(), selection_.layers.end(),
              [](const QuantLayer& a, const QuantLayer& b) { return a.ops[0] < b.ops[0]; });
    ShareRanges();
    return std::move(selection_);
  }

 private:
  void Quantise(size_t op, const std::string& name) {
    selection_.operands.insert({op, name});
    selection_.range_of[name] = name;
  }

  // The operands of an op that are not parameters.
  std::vector<std::string> Data(const OpDesc& op) const {
    std::vector<std::string> data;
    for (const std::string& name : DataInputs(op))
      if (!vars_.IsWeight(name)) data.push_back(name);
    return data;
  }
  // Whether the op adds one constant number or multiplies by it: it is a function of one variable,
  // which integers compute by a table.
  bool HasNumber(const OpDesc& op) const {
    const std::vector<std::string> all = DataInputs(op);
    return all.size() == 2 && Data(op).size() == 1 &&
           std::all_of(all.begin(), all.end(), [&](const std::string& name) {
             const Shape& shape = vars_.ShapeOf(name);
             return !vars_.IsWeight(name) ||
                    (shape.rank() <= 1 && shape.Product(0, shape.rank()) == 1);
           });
  }
  bool AllIn(const std::vector<std::string>& names, const NameSet& set) const {
    return !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return set.count(name) > 0 && vars_.IsActivation(name);
    });
  }
  static bool AnyIn(const std::vector<std::string>& names, const NameSet& set) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return set.count(name) > 0; });
  }

  // sources_: the variables that products compute, perhaps through connectors and moves.
  void FindSources() {
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      const OpDesc& op = root_.op(i);
      const bool in_layer = layer_at_.count(i) > 0;
      if (!in_layer && (KindOf(op) == QuantKind::kOther || KindOf(op) == QuantKind::kProduct))
        continue;
      if (!in_layer && !AllIn(Data(op), sources_)) continue;
      op.ForEachOutput([&](const std::string& name) { sources_.insert(name); });
    }
  }
  // targets_: the variables that products read, perhaps through connectors and moves.
  void FindTargets() {
    for (const auto& [op, name] : selection_.operands) targets_.insert(name);
    for (size_t i = root_.NumOps(); i-- > 0;) {
      const OpDesc& op = root_.op(i);
      if (KindOf(op) == QuantKind::kOther || KindOf(op) == QuantKind::kProduct) continue;
      if (!AnyIn(DataOutputs(op), targets_)) continue;
      for (const std::string& name : DataInputs(op)) targets_.insert(name);
    }
  }

  void Visit(size_t i) {
    const OpDesc& op = root_.op(i);
    const QuantKind kind = KindOf(op);
    if (layer_at_.count(i) || (kind != QuantKind::kConnector && kind != QuantKind::kMove)) return;
    const std::vector<std::string> data = HasNumber(op) ? Data(op) : DataInputs(op);
    if (!AllIn(data, sources_) || !AnyIn(DataOutputs(op), targets_)) return;
    if (kind == QuantKind::kMove) {
      if (data.size() != 1) return;
      Quantise(i, data[0]);
      for (const std::string& out : DataOutputs(op)) {
        if (!targets_.count(out) || !vars_.IsActivation(out)) continue;
        moved_from_[out] = data[0];
        selection_.range_of[out] = out;
      }
      return;
    }
    const std::string keep = rules_.with_sums || data.size() < 2 ? "" : Summand(op);
    for (const std::string& name : data)
      if (name != keep) Quantise(i, name);
    AddConnector(i, op, data);
  }

  // The operand of a sum that the product before it can add up itself.
  std::string Summand(const OpDesc& op) const {
    if (!IsSum(op)) return "";
    const OpDesc* last = nullptr;
    std::string summand;
    for (const std::string& name : DataInputs(op)) {
      const OpDesc* writer = vars_.Writer(name);
      if (!writer || vars_.OnlyReader(name) != &op) continue;
      const auto layer = layer_at_.find(root_.IndexOf(*writer));
      if (layer == layer_at_.end() || KindOf(*writer) == QuantKind::kActivation) continue;
      if (last && root_.IndexOf(*last) > root_.IndexOf(*writer)) continue;
      last = writer;
      summand = name;
    }
    return summand;
  }

  void AddConnector(size_t i, const OpDesc& op, const std::vector<std::string>& data) {
    QuantLayer layer;
    layer.ops = {i};
    layer.kind = QuantKind::kConnector;
    layer.type = op.type();
    layer.output = DataOutputs(op)[0];
    layer.data = data;
    const OpDesc* next = vars_.OnlyReader(layer.output);
    if (next && KindOf(*next) == QuantKind::kActivation && next->Output("Out").size() == 1) {
      layer.ops.push_back(root_.IndexOf(*next));
      layer.output = next->Output("Out")[0];
    }
    selection_.layers.push_back(std::move(layer));
  }

  // A moved variable has the scale of the variable that it was moved from.
  void ShareRanges() {
    for (auto& [name, range] : selection_.range_of) {
      range = name;
      for (auto it = moved_from_.find(range); it != moved_from_.end(); it = moved_from_.find(range))
        range = it->second;
    }
  }

  const LayerRules& rules_;
  Variables vars_;
  const BlockDesc& root_;
  QuantSelection selection_;
  std::unordered_map<size_t, const QuantLayer*> layer_at_;
  NameSet sources_, targets_;
  std::unordered_map<std::string, std::string> moved_from_;
};

}  // namespace

std::vector<QuantLayer> FindProducts(const FloatModel& model, const LayerRules& rules) {
  return ProductFinder(model, rules).Run();
}

QuantSelection SelectLayers(const FloatModel& model, const std::vector<QuantLayer>& products,
                            const LayerRules& rules) {
  return Selector(model, products, rules).Run();
}

}  // namespace coracle::inline internal
