#pragma once
// Attentions among the ops of a block: softmax(Q K^T scale + mask) V, with dropout of the weights
// between, what makes Q, K and V (scaling, transpositions, slices), and the gradients of all of it.
// Internal to passes/.

#include <coracle/passes/flow_types.h>
#include <coracle/passes/match.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace coracle {

// An op of an attention, and the op that computes its gradient, if there are these.
struct AttentionLink {
  OpDesc* op = nullptr;
  OpDesc* grad = nullptr;
  explicit operator bool() const { return op; }
};

// The ops of one attention, in this order; some may be absent. `turn`: transpositions of Q, K and V
// before it, and of its result; all of them or none. Or Q, K and V are cut from one tensor, which
// was transposed (`turn_all`); `sum` adds up its gradients. Where nothing trains, Q may be scaled
// before the product (`scale_q`), and K transposed for it (`flip_k`).
struct AttentionOps {
  AttentionLink scale_q, flip_k, match, scale, add, softmax, dropout, mix;
  AttentionLink turn_q, turn_k, turn_v, turn_out;
  AttentionLink turn_all, cut_q, cut_k, cut_v;
  OpDesc* sum = nullptr;

  bool trains() const { return mix.grad; }
  bool joint() const { return turn_all.op; }
  bool turned() const { return turn_out.op && !joint(); }
  // What scores are multiplied by, all in all.
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

  // What it reads and writes, as slots of the outermost ops. If joint, Q stands for all three.
  using Args = std::vector<std::string>;
  Args q() const { return joint() ? turn_all.op->Input("X") : Operand(turn_q, inner_q()); }
  Args k() const { return joint() ? Args() : Operand(turn_k, inner_k()); }
  Args v() const { return joint() ? Args() : Operand(turn_v, inner_v()); }
  // The same behind turns and cuts.
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

// Where attentions are sought.
struct AttentionScene {
  BlockDesc& block;
  const PassContext& context;
  const Matcher& matcher;
  const ValueFlow& flow;
  const FlowTypes& types;
};

// The attention around a softmax in the forms in which it may be fused, those with more ops first;
// empty if there is none.
std::vector<AttentionOps> AttentionsAround(OpDesc& softmax, const AttentionScene& scene);

// The place of one of the ops where all of them may run: of the last one, or else of the first one;
// nullptr if they may not run there. REQUIRES: there are ops.
const OpDesc* PlaceFor(const std::vector<const OpDesc*>& ops, const AttentionScene& scene);

// The only variable of a slot; "" if there is none, or more than one.
std::string OnlyVariable(const std::vector<std::string>& args);
// Probability, is_test and implementation, of dropout or its gradient.
std::tuple<float, bool, std::string> DropoutAttrs(const OpDesc& op);

}  // namespace coracle
