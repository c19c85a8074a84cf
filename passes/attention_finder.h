#pragma once
// Finds attentions among the ops of a block: softmax(Q K^T scale + mask) V, with an optional
// dropout of the weights, the ops that make Q, K and V (scaling, transpositions, slices), and the
// gradients of all of these. Internal to passes/.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/passes/match.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace coracle::inline internal {

// An op of an attention and the op that computes its gradient; either may be absent.
struct AttentionLink {
  OpDesc* op = nullptr;
  OpDesc* grad = nullptr;
  explicit operator bool() const { return op; }
};

// The ops of one attention, in this order; some may be absent. `turn_q`, `turn_k`, `turn_v`:
// transpositions of Q, K and V; `turn_out`: the transposition of the result; either all four are
// present or none. Instead, Q, K and V may be cut from one tensor, which `turn_all` transposes;
// `sum` then adds up its gradients. Without training, an op may scale Q before the product
// (`scale_q`), and an op may transpose K for it (`flip_k`).
struct AttentionOps {
  AttentionLink scale_q, flip_k, match, scale, add, softmax, dropout, mix;
  AttentionLink turn_q, turn_k, turn_v, turn_out;
  AttentionLink turn_all, cut_q, cut_k, cut_v;
  OpDesc* sum = nullptr;

  bool trains() const { return mix.grad; }
  bool joint() const { return turn_all.op; }
  bool turned() const { return turn_out.op && !joint(); }
  // The total factor of the scores.
  float scale_of_scores() const;
  const char* layout() const { return joint() ? "BS3HD" : turned() ? "BSHD" : "BHSD"; }
  std::vector<const OpDesc*> Forward() const {
    return Present({turn_all.op, cut_q.op, cut_k.op, cut_v.op, turn_q.op, turn_k.op, turn_v.op,
                    scale_q.op, flip_k.op, match.op, scale.op, add.op, softmax.op, dropout.op,
                    mix.op, turn_out.op});
  }
  std::vector<const OpDesc*> Backward() const {
    return Present({turn_out.grad, mix.grad, dropout.grad, softmax.grad, add.grad, scale.grad,
                    match.grad, turn_v.grad, turn_k.grad, turn_q.grad, cut_v.grad, cut_k.grad,
                    cut_q.grad, sum, turn_all.grad});
  }

  // The variables that it reads and writes, as slots of the outermost ops. If joint, Q is the one
  // tensor that holds Q, K and V.
  using Args = std::vector<std::string>;
  Args q() const { return joint() ? turn_all.op->Input("X") : Operand(turn_q, inner_q()); }
  Args k() const { return joint() ? Args() : Operand(turn_k, inner_k()); }
  Args v() const { return joint() ? Args() : Operand(turn_v, inner_v()); }
  // The operands after transpositions and cuts.
  const Args& inner_q() const { return scale_q ? scale_q.op->Input("X") : match.op->Input("X"); }
  const Args& inner_k() const { return flip_k ? flip_k.op->Input("X") : match.op->Input("Y"); }
  const Args& inner_v() const { return mix.op->Input("Y"); }
  const Args& out() const { return (turn_out ? turn_out : mix).op->Output("Out"); }
  // REQUIRES: trains().
  const Args& dout() const { return (turn_out ? turn_out : mix).grad->Input("Out@GRAD"); }
  Args dq() const {
    return joint() ? turn_all.grad->Output("X@GRAD") : Gradient(turn_q, match, "X@GRAD");
  }
  Args dk() const { return joint() ? Args() : Gradient(turn_k, match, "Y@GRAD"); }
  Args dv() const { return joint() ? Args() : Gradient(turn_v, mix, "Y@GRAD"); }

 private:
  Args Operand(const AttentionLink& turn, const Args& inner) const {
    return turned() ? turn.op->Input("X") : inner;
  }
  Args Gradient(const AttentionLink& turn, const AttentionLink& product, const char* slot) const {
    if (!turned()) return product.grad->Output(slot);
    return turn.grad ? turn.grad->Output("X@GRAD") : Args();
  }
  static std::vector<const OpDesc*> Present(std::vector<const OpDesc*> ops) {
    ops.erase(std::remove(ops.begin(), ops.end(), nullptr), ops.end());
    return ops;
  }
};

// The block in which attentions are searched for, with facts about it.
struct AttentionScene {
  BlockDesc& block;
  const PassContext& context;
  const Matcher& matcher;
  const ValueFlow& flow;
  const FlowTypes& types;
};

// Returns the forms of the attention around `softmax` that may be fused, the forms with more ops
// first. Empty if it finds none.
std::vector<AttentionOps> AttentionsAround(OpDesc& softmax, const AttentionScene& scene);

// The op at whose position all of `ops` may run: the last one, or else the first one; nullptr if
// neither works. REQUIRES: `ops` is not empty.
const OpDesc* PlaceFor(const std::vector<const OpDesc*>& ops, const AttentionScene& scene);

// The attrs dropout_prob, is_test and dropout_implementation of a dropout or of its gradient.
std::tuple<float, bool, std::string> DropoutAttrs(const OpDesc& op);

}  // namespace coracle::inline internal
