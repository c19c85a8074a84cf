// Fuses attentions of single ops into scaled_dot_product_attention, and their gradients into
// its gradient.

#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/attention_finder.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr const char* kAttention = "scaled_dot_product_attention";

// Makes the fused ops of one attention.
class AttentionWriter {
 public:
  AttentionWriter(ProgramDesc& program, const Matcher& matcher)
      : program_(program), matcher_(matcher) {}

  OpDesc Forward(const AttentionOps& a) const {
    OpDesc op(kAttention, Inputs(a, a.q(), a.k(), a.v()), {{"Out", a.out()}}, Attrs(a));
    if (a.dropout) {
      op.SetAttr("fix_seed", a.dropout.op->GetAttr<bool>("fix_seed", false));
      op.SetAttr("seed", a.dropout.op->GetAttr<int32_t>("seed", 0));
      op.SetAttr("random_name", matcher_.Original(OnlyVariable(a.dropout.op->Output("Out"))));
    }
    const std::string out = OnlyVariable(a.out());
    if (a.trains()) {
      op.SetOutput("SoftmaxStats", {program_.FreeName(out + "@SOFTMAX_STATS")});
      op.SetOutput("Weights", {program_.FreeName(out + "@WEIGHTS")});
      if (a.dropout) op.SetOutput("SeedOffset", {program_.FreeName(out + "@SEED_OFFSET")});
    }
    if (matcher_.Original(out) != out)
      op.SetAttr(kRecomputedFromAttr, std::vector<std::string>{matcher_.Original(out)});
    CopyRemarks(*a.mix.op, op);
    return op;
  }

  OpDesc Backward(const AttentionOps& a, const OpDesc& forward) const {
    // The gradients may read recomputed copies of the operands.
    OpDesc op(std::string(kAttention) + "_grad",
              a.turned() || a.joint() ? Inputs(a, a.q(), a.k(), a.v())
                                      : Inputs(a, a.match.grad->Input("X"),
                                               a.match.grad->Input("Y"), a.mix.grad->Input("Y")),
              {}, Attrs(a));
    op.SetInput("Out", forward.Output("Out"));
    for (const char* slot : {"SoftmaxStats", "Weights", "SeedOffset"}) {
      if (forward.HasOutput(slot)) op.SetInput(slot, forward.Output(slot));
    }
    op.SetInput("Out@GRAD", a.dout());
    const auto pass = [&](const char* slot, const std::vector<std::string>& to) {
      if (!OnlyVariable(to).empty()) op.SetOutput(slot, to);
    };
    pass("Q@GRAD", a.dq());
    pass("K@GRAD", a.dk());
    pass("V@GRAD", a.dv());
    CopyRemarks(*a.match.grad, op);
    return op;
  }

 private:
  using Args = std::vector<std::string>;
  static SlotList Inputs(const AttentionOps& a, const Args& q, const Args& k, const Args& v) {
    SlotList inputs = {{"Q", q}};
    if (!a.joint()) inputs.insert(inputs.end(), {{"K", k}, {"V", v}});
    if (a.add) inputs.push_back({"Mask", a.add.op->Input("Y")});
    return inputs;
  }
  static AttrList Attrs(const AttentionOps& a) {
    AttrList attrs = {{"scale", a.scale_of_scores()},
                      {"layout", std::string(a.layout())},
                      {"keeps_lod", !a.turned() && !a.joint()}};
    if (!a.dropout) return attrs;
    const auto [probability, is_test, way] = DropoutAttrs(*a.dropout.op);
    attrs.push_back({"dropout_prob", probability});
    attrs.push_back({"is_test", is_test});
    attrs.push_back({"dropout_implementation", way});
    return attrs;
  }

  ProgramDesc& program_;
  const Matcher& matcher_;
};

// The ranges of positions over which ops move; ranges that overlap are joined.
class Stretches {
 public:
  bool Meet(const std::pair<size_t, size_t>& stretch) const {
    const auto next = ends_.upper_bound(stretch.second);
    return next != ends_.begin() && std::prev(next)->second >= stretch.first;
  }
  void Add(std::pair<size_t, size_t> stretch) {
    while (Meet(stretch)) {
      const auto met = std::prev(ends_.upper_bound(stretch.second));
      stretch = {std::min(stretch.first, met->first), std::max(stretch.second, met->second)};
      ends_.erase(met);
    }
    ends_.insert(stretch);
  }

 private:
  std::map<size_t, size_t> ends_;  // by beginning
};

// An attention to fuse.
struct Fusing {
  AttentionOps ops;
  OpDesc forward;
  std::optional<OpDesc> backward;
};

class AttentionFuser {
 public:
  AttentionFuser(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()),
        context_(context),
        matcher_(block_, context),
        flow_(program, context),
        types_(block_),
        scene_{block_, context, matcher_, flow_, types_},
        writer_(program, matcher_) {}

  void Run() {
    // A softmax and its recomputed copies are fused in the same way, or their bits would differ.
    std::vector<std::vector<OpDesc*>> softmaxes;
    std::unordered_map<std::string, size_t> places;
    block_.ForEachOp([&](OpDesc& op) {
      if (op.type() != "softmax") return;
      const std::string original = matcher_.Original(OnlyVariable(op.Output("Out")));
      const auto [place, is_new] = places.emplace(original, softmaxes.size());
      if (is_new) softmaxes.emplace_back();
      softmaxes[place->second].push_back(&op);
    });
    if (softmaxes.empty()) return;
    InferAll(block_, context_.ops, types_);
    Rewrites rewrites(block_);
    for (const std::vector<OpDesc*>& copies : softmaxes) {
      for (const Fusing& fusing : ChooseAll(copies)) Replace(fusing, rewrites);
    }
    rewrites.Apply();
  }

 private:
  // Returns the fused ops of all copies, or none if one of them cannot be fused.
  std::vector<Fusing> ChooseAll(const std::vector<OpDesc*>& copies) {
    std::vector<std::vector<AttentionOps>> forms;
    for (OpDesc* softmax : copies) {
      forms.push_back(AttentionsAround(*softmax, scene_));
      if (forms.back().empty() ||
          static_cast<bool>(forms.back()[0].scale_q) != static_cast<bool>(forms[0][0].scale_q))
        return {};
    }
    std::vector<Fusing> chosen;
    for (const std::vector<AttentionOps>& of_one : forms) {
      std::optional<Fusing> fusing = Choose(of_one);
      if (!fusing) return {};
      chosen.push_back(std::move(*fusing));
    }
    return chosen;
  }

  // The first form that shares no op with another attention and whose ops accept their inputs.
  std::optional<Fusing> Choose(const std::vector<AttentionOps>& forms) {
    for (const AttentionOps& a : forms) {
      const auto is_taken = [&](const OpDesc* op) { return taken_.count(op) > 0; };
      const std::vector<const OpDesc*> ops = a.Forward(), grads = a.Backward();
      if (std::any_of(ops.begin(), ops.end(), is_taken) ||
          std::any_of(grads.begin(), grads.end(), is_taken))
        continue;
      Fusing fusing{a, writer_.Forward(a), std::nullopt};
      if (!Accepts(fusing.forward)) continue;
      if (a.trains()) {
        fusing.backward.emplace(writer_.Backward(a, fusing.forward));
        if (!Accepts(*fusing.backward)) continue;
      }
      if (!Move(ops) || (a.trains() && !Move(grads))) continue;
      taken_.insert(ops.begin(), ops.end());
      taken_.insert(grads.begin(), grads.end());
      return fusing;
    }
    return std::nullopt;
  }
  // Checks the op with the inferred types of its variables, which may differ from the
  // declared ones.
  bool Accepts(const OpDesc& op) { return types_.Infer(context_.ops.Get(op.type()), op); }

  // Whether the ops may move to their position although other ops have moved. If some ops move down
  // and others up, ops that depend on each other could pass each other.
  bool Move(const std::vector<const OpDesc*>& ops) {
    const size_t place = block_.IndexOf(*PlaceFor(ops, scene_));
    std::pair<size_t, size_t> stretch = {place, place};
    for (const OpDesc* op : ops) {
      const size_t at = block_.IndexOf(*op);
      stretch = {std::min(stretch.first, at), std::max(stretch.second, at)};
    }
    const bool down = place == stretch.second;
    if ((down ? up_ : down_).Meet(stretch)) return false;
    (down ? down_ : up_).Add(stretch);
    return true;
  }

  void Replace(const Fusing& fusing, Rewrites& rewrites) {
    for (const char* slot : {"SoftmaxStats", "Weights", "SeedOffset"}) {
      const std::string var = OnlyVariable(fusing.forward.Output(slot));
      if (!var.empty()) block_.Var(var).SetMeta(*types_.Find(var));
    }
    const auto replace = [&](const std::vector<const OpDesc*>& ops, const OpDesc& with) {
      rewrites.Replace(ops, *PlaceFor(ops, scene_), {with});
    };
    replace(fusing.ops.Forward(), fusing.forward);
    if (fusing.backward) replace(fusing.ops.Backward(), *fusing.backward);
  }

  BlockDesc& block_;
  const PassContext& context_;
  const Matcher matcher_;
  const ValueFlow flow_;
  FlowTypes types_;
  const AttentionScene scene_;
  AttentionWriter writer_;
  std::unordered_set<const OpDesc*> taken_;  // ops of attentions that are fused
  Stretches down_, up_;                      // ranges over which their ops move
};

}  // namespace

void FuseAttention(ProgramDesc& program, const PassContext& context) {
  AttentionFuser(program, context).Run();
}

}  // namespace coracle::inline internal
