#include <coracle/backward/backward.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/inspect/op_layers.h>

#include <string_view>

namespace coracle::inline internal {
namespace {

// The variable whose gradient has this name, also for names derived from a gradient.
std::string_view WithoutGrad(std::string_view name) {
  return name.substr(0, name.find(kGradSuffix));
}

// "fc_0" for "fc_0.tmp_1"; "" for names that a user gave.
std::string_view TemporaryOf(std::string_view name) {
  const size_t dot = name.find(".tmp_");
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

std::string_view FirstWritten(const OpDesc& op) {
  std::string_view first;
  op.AnyOutput([&](const std::string& name) {
    first = name;
    return true;
  });
  return first;
}

// The entry, and the repeats and includes in which it was read.
std::vector<std::string> SiteOf(const OpDesc& op) {
  if (op.creation_site().empty()) return {};
  return std::get<std::vector<std::string>>(*op.FindAttr(kOpCallstackAttr));
}

}  // namespace

// Fills an OpLayers.
class OpLayersFinder {
 public:
  OpLayersFinder(const ProgramDesc& program, OpLayers& result) : program_(program), to_(result) {}

  void Run() {
    program_.ForEachOp([&](const OpDesc& op) { has_sites_ |= !op.creation_site().empty(); });
    for (int i = 0; i < program_.NumBlocks(); ++i) AddForward(program_.Block(i));
    for (ModelLayer& layer : to_.layers_) {
      const size_t i = static_cast<size_t>(&layer - to_.layers_.data());
      layer.name = !results_[i].empty() ? results_[i] : own_names_[i];
    }
    program_.ForEachOp([&](const OpDesc& op) {
      if (!IsForward(op)) AddOther(op);
    });
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  using Index = std::unordered_map<std::string_view, size_t>;

  size_t LayerOf(const std::string& key, const std::vector<std::string>& site) {
    const auto [place, added] = by_key_.try_emplace(key, to_.layers_.size());
    if (added) {
      to_.layers_.push_back({"", site.empty() ? "" : site[0], site.size() < 2 ? "" : site[1]});
      results_.emplace_back();
      own_names_.emplace_back();
    }
    return place->second;
  }

  void AddForward(const BlockDesc& block) {
    std::vector<const OpDesc*> casts;  // waiting for the first op of their layer
    block.ForEachOp([&](const OpDesc& op) {
      if (!IsForward(op)) return;
      const std::vector<std::string> site = SiteOf(op);
      if (has_sites_ && site.empty()) {
        casts.push_back(&op);
        return;
      }
      const std::string key = has_sites_ ? Join(site, "\n") : std::string(OwnName(op));
      if (key.empty()) return;
      const size_t layer = LayerOf(key, site);
      for (const OpDesc* cast : casts) AddTo(layer, *cast);
      casts.clear();
      AddTo(layer, op);
      NoteNames(layer, op);
    });
  }

  void AddTo(size_t layer, const OpDesc& op) {
    to_.layer_of_[&op] = layer;
    op.ForEachOutput([&](const std::string& name) { maker_.try_emplace(name, layer); });
    op.ForEachInput([&](const std::string& name) { reader_.try_emplace(name, layer); });
  }

  static std::string_view OwnName(const OpDesc& op) {
    std::string_view own;
    op.AnyOutput([&](const std::string& name) {
      own = TemporaryOf(name);
      return !own.empty();
    });
    return own;
  }

  // A running statistic such as "bn_0.w_1" also gives the layer a name, if nothing else does.
  void NoteNames(size_t layer, const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = op.block()->FindVarRecursive(name);
      const std::string_view own = TemporaryOf(name);
      const bool state = var && var->persistable();
      if (own.empty() && !state) results_[layer] = name;
      if (!own_names_[layer].empty()) return;
      own_names_[layer] = own.empty() ? std::string_view(name).substr(0, name.rfind('.')) : own;
    });
  }

  // Adds a backward or update op.
  void AddOther(const OpDesc& op) {
    const size_t layer = IsBackward(op) ? OfGradientOp(op) : OfUpdateOp(op);
    if (layer != kNone) to_.layer_of_[&op] = layer;
  }

  size_t OfGradientOp(const OpDesc& op) const {
    const Attribute* link = op.FindAttr(kForwardOpAttr);
    if (link && std::holds_alternative<std::string>(*link)) {
      const OpDesc* forward = FindForwardOp(op);
      const auto found = forward ? to_.layer_of_.find(forward) : to_.layer_of_.end();
      return found == to_.layer_of_.end() ? kNone : found->second;
    }
    return OfVar(WithoutGrad(FirstWritten(op)));
  }

  // The layer whose parameter the op updates, or whose parameters it reads; kNone for several.
  size_t OfUpdateOp(const OpDesc& op) const {
    size_t layer = kNone;
    const bool of_one = !op.AnyInput([&](const std::string& name) {
      const std::string_view var_name = WithoutGrad(name);
      const VarDesc* var = program_.Root().FindVar(var_name);
      if (!var || !var->is_parameter()) return false;
      const size_t found = OfVar(var_name);
      const bool other = layer != kNone && found != kNone && found != layer;
      if (found != kNone) layer = found;
      return other;
    });
    return of_one ? layer : kNone;
  }

  size_t OfVar(std::string_view name) const {
    if (const auto found = maker_.find(name); found != maker_.end()) return found->second;
    const auto found = reader_.find(name);
    return found == reader_.end() ? kNone : found->second;
  }

  const ProgramDesc& program_;
  OpLayers& to_;
  bool has_sites_ = false;  // whether an op records its entry
  std::unordered_map<std::string, size_t> by_key_;
  Index maker_, reader_;  // keys point into the ops' slots
  // By layer: the last result, and the first own name.
  std::vector<std::string_view> results_, own_names_;
};

OpLayers::OpLayers(const ProgramDesc& program) { OpLayersFinder(program, *this).Run(); }

const ModelLayer* OpLayers::Find(const OpDesc& op) const {
  const auto found = layer_of_.find(&op);
  return found == layer_of_.end() ? nullptr : &layers_[found->second];
}

}  // namespace coracle::inline internal
