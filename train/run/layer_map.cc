#include <coracle/backward/backward.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/inspect/op_layers.h>
#include <coracle/train/run/layer_map.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

StepPart PartOf(const OpDesc& op) {
  if (IsUpdate(op)) return StepPart::kUpdate;
  return IsBackward(op) ? StepPart::kBackward : StepPart::kForward;
}

// The model-text entry of an op with the repeats and includes around it, so that each repetition is
// a separate layer. "" for an op that does not come from a text.
std::string SiteOf(const OpDesc& op) {
  if (op.creation_site().empty()) return "";
  return Join(op.GetAttr<std::vector<std::string>>(kOpCallstackAttr, {}), "\n");
}

// Removes the suffixes that passes add: "x3@NHWC@FUSED" becomes "x3".
std::string PlainName(const std::string& name) { return name.substr(0, name.find('@')); }

// How many numbers are combined into each element of the result: a row of the filter, or one.
double TakenByElement(const OpDesc& op) {
  const auto& filter = op.Input("Filter");
  const VarDesc* var = filter.empty() ? nullptr : op.block()->FindVarRecursive(filter[0]);
  if (!var || var->shape().rank() == 0 || var->shape()[0] <= 0) return 1;
  return std::max(1.0,
                  static_cast<double>(var->shape().numel()) / static_cast<double>(var->shape()[0]));
}

// Includes the type: in loops, one op may set a variable and another may change it.
std::string KeyOf(const OpDesc& op) { return op.type() + "\n" + op.FirstOutput(); }

std::string LinkOf(const OpDesc& op) { return op.GetAttr<std::string>(kForwardOpAttr, ""); }

}  // namespace

LayerMap::LayerMap(const ProgramDesc& program) {
  const BlockDesc& root = program.Root();
  for (const std::string& name : program.Parameters())
    parameters_[name] = static_cast<double>(root.FindVar(name)->shape().numel());
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const Shape& shape = root.var(i).shape();
    if (shape.IsKnown()) elements_[root.var(i).name()] = static_cast<double>(shape.numel());
  }
  program.ForEachOp([&](const OpDesc& op) {
    if (op.HasSubBlock()) runs_blocks_.insert(op.type());
  });
  const OpLayers found(program);
  // In a model text, each layer is an entry. Other ops, such as loss scaling, have no layer.
  const bool has_text = std::any_of(found.layers().begin(), found.layers().end(),
                                    [](const ModelLayer& layer) { return !layer.origin.empty(); });
  std::map<const ModelLayer*, size_t> indices;
  root.ForEachOp([&](const OpDesc& op) {
    if (PartOf(op) != StepPart::kForward) return;
    const ModelLayer* layer = found.Find(op);
    if (!layer && has_text) return;
    size_t index = layers_.size();
    if (layer) index = indices.try_emplace(layer, index).first->second;
    if (index == layers_.size())
      layers_.push_back(layer ? LayerTime{layer->name, "", layer->origin, {}}
                              : LayerTime{op.FirstOutput(), "", "", {}});
    AddForward(op, index);
  });
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc* forward = FindForwardOp(root.op(i));
    if (forward) by_link_[LinkOf(root.op(i))] = At(by_output_, forward->FirstOutput());
  }
}

LayerMap::Place LayerMap::Find(const OpDesc& op) const {
  const StepPart part = PartOf(op);
  if (part == StepPart::kUpdate) {
    Place place{part, SharesOf(op)};
    if (!place.shares.empty()) return place;
  }
  if (op.HasSubBlock() && !RunsBlockOfModel(op)) {
    Place place{part, SharesOfBlocks(op)};
    if (!place.shares.empty()) return place;
  }
  return {part, {{LayerOf(op, part), 1.0}}};
}

bool LayerMap::RunsBlockOfModel(const OpDesc& op) const {
  return op.HasSubBlock() && runs_blocks_.count(op.type()) > 0;
}

// A forward op belongs to the layer of its entry, a gradient op to the layer of its forward op.
size_t LayerMap::LayerOf(const OpDesc& op, StepPart part) const {
  const std::string site = SiteOf(op);
  if (!LinkOf(op).empty()) return At(by_link_, LinkOf(op));
  if (part == StepPart::kForward && !site.empty()) return At(by_site_, site);
  if (const size_t same = At(by_op_, KeyOf(op)); same != kOther) return same;
  // A sum or clip of gradients belongs to the layer that writes, or first reads, the variable.
  const std::string output = op.FirstOutput(), var = output.substr(0, output.find(kGradSuffix));
  const size_t maker = MakerOf(var);
  return maker == kOther ? MakerOf(PlainName(var)) : maker;
}

size_t LayerMap::MakerOf(const std::string& var) const {
  const size_t maker = At(by_output_, var);
  return maker == kOther ? At(reader_, var) : maker;
}

// Divides an op that passes made of several ops, which are in its block, by their arithmetic.
std::vector<std::pair<size_t, double>> LayerMap::SharesOfBlocks(const OpDesc& op) const {
  std::map<size_t, double> work;
  double all = 0;
  for (const BlockDesc* block : op.block()->program().BlocksRunBy(op)) {
    block->ForEachOp([&](const OpDesc& inner) {
      const size_t layer = LayerOf(inner, PartOf(inner));
      if (layer == kOther) return;
      const auto elements = elements_.find(PlainName(inner.FirstOutput()));
      const double count = elements == elements_.end() ? 1 : std::max(1.0, elements->second);
      work[layer] += count * TakenByElement(inner);
      all += count * TakenByElement(inner);
    });
  }
  std::vector<std::pair<size_t, double>> shares(work.begin(), work.end());
  for (auto& share : shares) share.second /= all;
  return shares;
}

// One op may update the parameters of many layers, or read their gradients; so may the ops in a
// sub-block. Its time is divided by the numbers of elements. A parameter belongs to the first layer
// that reads it.
std::vector<std::pair<size_t, double>> LayerMap::SharesOf(const OpDesc& op) const {
  std::map<size_t, double> sizes;
  double all = 0;
  op.ForEachInput([&](const std::string& name) {
    const auto found = parameters_.find(name.substr(0, name.find(kGradSuffix)));
    if (found == parameters_.end()) return;
    sizes[At(reader_, found->first)] += found->second;
    all += found->second;
  });
  std::vector<std::pair<size_t, double>> shares(sizes.begin(), sizes.end());
  for (auto& share : shares) share.second /= all;
  return shares;
}

size_t LayerMap::At(const Index& index, const std::string& key) {
  const auto found = index.find(key);
  return found == index.end() ? kOther : found->second;
}

void LayerMap::AddForward(const OpDesc& op, size_t index) {
  LayerTime& layer = layers_[index];
  layer.ops += (layer.ops.empty() ? "" : "+") + op.type();
  if (const std::string site = SiteOf(op); !site.empty()) by_site_[site] = index;
  by_output_[op.FirstOutput()] = index;
  by_op_[KeyOf(op)] = index;
  op.ForEachInput([&](const std::string& name) { reader_.try_emplace(name, index); });
}

}  // namespace coracle::inline internal
