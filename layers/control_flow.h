#pragma once
// Control flow in a builder: loops, branches, recurrent nets and tensor arrays. A body is a
// function that appends ops to the builder it is given with; it reads the variables around it, and
// writes one by Builder::Assign (or any op that is told to).

#include <coracle/layers/builder.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Out = X, for a variable `out` that exists: how a body changes a variable of the blocks around it.
// Throws kInvalidArgument when the dtypes differ.
void Assign(Builder& net, const Variable& x, const Variable& out);

// x += step, one element, in place. Returns x.
Variable Increment(Builder& net, const Variable& x, float step = 1.0f);

// A tensor of one constant value.
Variable FillConstant(Builder& net, const Shape& shape, DType dtype, double value,
                      const std::string& output = "");

// Runs `body` as long as `condition` (one bool, which the body must write) holds.
struct WhileOptions {
  bool is_test = false;  // no gradient will be taken through the loop
};
void While(Builder& net, const Variable& condition, const std::function<void()>& body,
           const WhileOptions& options = {});

// Runs `body` if `condition` (one bool) holds. Variables that it writes otherwise stay what they
// were: one that has no value before has none afterwards.
void If(Builder& net, const Variable& condition, const std::function<void()>& body);

// The results of `then` if `pred` (one bool) holds, else those of `otherwise`: as many, of the same
// dtypes; called `outputs` when that is not empty. Only the ops of the branch taken run; gradients
// of the other are zero.
std::vector<Variable> Cond(Builder& net, const Variable& pred,
                           const std::function<std::vector<Variable>()>& then,
                           const std::function<std::vector<Variable>()>& otherwise,
                           const std::vector<std::string>& outputs = {});

// The body of the first condition that holds: Switch(net).Case(a, ...).Case(b, ...).Default(...).
class Switch {
 public:
  explicit Switch(Builder& net) : net_(net) {}
  Switch& Case(const Variable& condition, const std::function<void()>& body);
  void Default(const std::function<void()>& body);

 private:
  Builder& net_;
  Variable none_yet_;  // no condition held so far
};

// A tensor array of the block where ops are appended, empty when that begins.
Variable CreateArray(Builder& net, DType dtype, const std::string& output = "");
// array[i] = x; i is one int64 (or int32).
void ArrayWrite(Builder& net, const Variable& x, const Variable& i, const Variable& array);
// A copy of array[i].
Variable ArrayRead(Builder& net, const Variable& array, const Variable& i,
                   const OutputOptions& options = {});
// int64 [1].
Variable ArrayLength(Builder& net, const Variable& array);

// A recurrent net over inputs [steps, ...]. Inside of Step:
//   StaticRnn rnn(net, {.lengths = lengths});
//   rnn.Step([&] {
//     Variable x = rnn.StepInput(sequence);         // its slice
//     Variable h = rnn.Memory(h0);                  // of the step before
//     Variable next = net.Fc({x, h}, {...});
//     rnn.UpdateMemory(h, next);
//     rnn.StepOutput(next);
//   });
//   Variable outputs = rnn.Outputs()[0];            // [steps, ...]
struct StaticRnnOptions {
  bool reverse = false;
  // int64 [N] (or [N, 1]): sequence n ends after lengths[n] steps. From then on the memories [N,
  // ...] of row n stay, and its outputs are zero. In a reverse net the steps past the end come
  // first.
  Variable lengths = {};
};

class StaticRnn {
 public:
  explicit StaticRnn(Builder& net, StaticRnnOptions options = {});

  // Once. Throws kInvalidArgument for a memory that was not updated.
  void Step(const std::function<void()>& body);
  // While `body` runs:
  Variable StepInput(const Variable& sequence);
  Variable Memory(const Variable& init, const std::string& name = "");
  void UpdateMemory(const Variable& memory, const Variable& next);
  void StepOutput(const Variable& x, const std::string& output = "");
  // After Step, in the order of StepOutput.
  const std::vector<Variable>& Outputs() const { return outputs_; }

 private:
  struct MemoryVar {
    std::string init, before, after;
  };
  Variable Local(const std::string& name, DType dtype, const Shape& shape);
  void RequireInStep(const char* what) const;
  Variable Masked(const Variable& next, const Variable& before);
  Variable MaskFor(const Variable& x);
  Variable MakeMask(const Variable& sequence);
  void AppendOp();

  Builder& net_;
  StaticRnnOptions options_;
  BlockDesc* outer_ = nullptr;
  BlockDesc* inner_ = nullptr;
  std::vector<std::string> inputs_;
  std::vector<MemoryVar> memories_;
  std::vector<Variable> outputs_;
  Variable mask_;  // [N] of the step; empty without lengths
};

}  // namespace coracle
