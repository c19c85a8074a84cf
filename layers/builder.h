#pragma once
// Builder: writes a network into a main and a startup program, one layer at a time. Shapes are
// inferred as ops are appended: a call with unsuitable operands throws the op's constraint with
// both shapes, and appends no op.
//
//   ProgramDesc main, startup;
//   Builder net(main, startup);
//   Variable image = net.Data("image", {-1, 1, 28, 28});
//   Variable h = net.Fc(image, {.size = 500, .act = "relu", .error_clip = ErrorClipByValue(5.0)});
//
// Its Variables can be used in formulas (operators/operators.h):
//
//   Variable loss = Mean(Square(h - y)) + 0.1 * Mean(Abs(w));

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/initializer/initializer.h>
#include <coracle/layers/options.h>
#include <coracle/operators/operators.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class Builder {
 public:
  // The programs must outlive the builder and must not be moved.
  Builder(ProgramDesc& main, ProgramDesc& startup, const OpRegistry& ops = DefaultOps());
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  ProgramDesc& main() { return *main_; }
  ProgramDesc& startup() { return *startup_; }
  BlockDesc& block() { return writer_.block(); }
  const OpRegistry& ops() const { return writer_.ops(); }
  // Sets the block of the main program (initially the root) that receives ops and temporaries,
  // including those of formulas on the builder's Variables.
  void SetBlock(BlockDesc& block) { writer_.SetBlock(block); }
  // Sets the source of the following layers ("lenet.pbtxt:14:9"), kept in op_callstack of their
  // ops. `round` distinguishes layers from the same place: "i = 2".
  void SetSite(std::string site, std::string round = "");

  // --- ops, parameters and names ---

  // Checks the op against its OpDef, appends it with the defaults of missing attrs, and infers the
  // shapes of its outputs, which are created if they do not exist.
  OpDesc& Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {}) {
    return writer_.Append(std::move(type), std::move(inputs), std::move(outputs), std::move(attrs));
  }
  // Makes a trainable parameter in both programs, with the op that fills it in the startup program.
  // Without attr.name its name is "<prefix>_<k>". The name of an existing parameter, which must
  // have the same shape and dtype, shares that parameter.
  Variable Parameter(const std::string& prefix, const Shape& shape, DType dtype,
                     const ParamAttr& attr = {},
                     const Setting& default_initializer = XavierInitializer());
  // Makes a persistable variable that is not a parameter (running statistics) and gets no gradient.
  Variable Statistic(const std::string& prefix, const std::string& name, const Shape& shape,
                     DType dtype, const Setting& initializer);
  // A name that is unused in the main program: "<prefix>_<k>", or with a higher number. Cheaper
  // than ProgramDesc::UniqueName, which remembers every prefix.
  std::string FreshName(const std::string& prefix, int k);
  // The variable of that name.
  Variable Var(const std::string& name) { return writer_.Var(name); }
  // Appends an op of that type with one output Out.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const OutputOptions& options = {});
  // Appends an op with one input X and one output Out.
  Variable Unary(const std::string& type, const Variable& x, AttrList attrs = {},
                 const OutputOptions& options = {});
  // Appends an op with inputs X and Y and one output Out.
  Variable Binary(const std::string& type, const Variable& x, const Variable& y,
                  AttrList attrs = {}, const OutputOptions& options = {});

  // --- inputs ---

  // A variable to be fed; -1 means a dimension that is unknown until then.
  Variable Data(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32,
                const DataOptions& options = {});

  // --- layers with parameters ---

  // act(x W + b) for x of shape [rows..., columns...]. Each of several inputs has its own
  // weight, and the products are summed; if param_attr has a name, the weight of input k > 0 is
  // named "<name>_<k>".
  Variable Fc(const Variable& x, const FcOptions& options);
  Variable Fc(const std::vector<Variable>& x, const FcOptions& options);
  // x is [N, C, H, W]. The op is depthwise_conv2d if groups equals C and divides num_filters.
  Variable Conv2d(const Variable& x, const Conv2dOptions& options);
  Variable BatchNorm(const Variable& x, const BatchNormOptions& options = {});
  Variable LayerNorm(const Variable& x, const LayerNormOptions& options = {});
  Variable InstanceNorm(const Variable& x, const InstanceNormOptions& options = {});
  // Looks up rows of a table by integer ids; the result is [ids..., embedding_dim].
  Variable Embedding(const Variable& ids, const EmbeddingOptions& options);

  // softmax(q k^T / sqrt(columns of a head) + mask) v with several heads, and with projections
  // before and after: x is [batch, time, features], the result [batch, time, size]. The parameters
  // are named "<name>.q.w_0", "<name>.out.b_0" and so on.
  Variable Attention(const Variable& x, const AttentionOptions& options);

  // Recurrent layers over x [batch, time, features] (see RnnOptions::time_major): an rnn op. The
  // parameters are named "<name>.weight_ih_l0", "<name>.bias_hh_l1_reverse" and so on.
  RnnOutput Lstm(const Variable& x, const RnnOptions& options);
  RnnOutput Gru(const Variable& x, const RnnOptions& options);
  RnnOutput SimpleRnn(const Variable& x, const RnnOptions& options);

  // --- layers without parameters ---
  Variable Pool2d(const Variable& x, const Pool2dOptions& options);
  Variable Dropout(const Variable& x, const DropoutOptions& options = {});
  Variable Activation(const Variable& x, const std::string& type, AttrList attrs = {},
                      const OutputOptions& options = {}) {
    return Unary(type, x, std::move(attrs), options);
  }
  Variable Relu(const Variable& x, const OutputOptions& options = {});
  Variable LeakyRelu(const Variable& x, float alpha = 0.02f, const OutputOptions& options = {});
  Variable Sigmoid(const Variable& x, const OutputOptions& options = {});
  Variable Tanh(const Variable& x, const OutputOptions& options = {});
  Variable Gelu(const Variable& x, bool approximate = false, const OutputOptions& options = {});
  Variable Softmax(const Variable& x, int32_t axis = -1, const OutputOptions& options = {});
  Variable LogSoftmax(const Variable& x, int32_t axis = -1, const OutputOptions& options = {});

  // --- losses and metrics ---

  // -log of the probability that x assigns to the label.
  Variable CrossEntropy(const Variable& x, const Variable& label,
                        const CrossEntropyOptions& options = {});
  Variable SoftmaxWithCrossEntropy(const Variable& logits, const Variable& label,
                                   const SoftmaxWithCrossEntropyOptions& options = {});
  Variable SigmoidCrossEntropyWithLogits(const Variable& x, const Variable& label,
                                         const SigmoidCrossEntropyOptions& options = {});
  Variable SquareErrorCost(const Variable& x, const Variable& label,
                           const OutputOptions& options = {});
  Variable Mean(const Variable& x, const OutputOptions& options = {});
  // The share of rows of x (scores or probabilities) whose label is among the k highest.
  Variable Accuracy(const Variable& x, const Variable& label, const AccuracyOptions& options = {});

  // --- arithmetic ---
  Variable Add(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Sub(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Mul(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Div(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Max(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Min(const Variable& x, const Variable& y, const ElementwiseOptions& options = {});
  Variable Matmul(const Variable& x, const Variable& y, const MatmulOptions& options = {});
  Variable Scale(const Variable& x, const ScaleOptions& options);
  Variable Sum(const std::vector<Variable>& x, const OutputOptions& options = {});
  Variable ReduceSum(const Variable& x, const ReduceOptions& options = {});
  Variable ReduceMean(const Variable& x, const ReduceOptions& options = {});
  Variable ReduceMax(const Variable& x, const ReduceOptions& options = {});
  Variable ReduceMin(const Variable& x, const ReduceOptions& options = {});
  // `type` is an op with the attrs dim, keep_dim and reduce_all ("reduce_sum").
  Variable Reduce(const std::string& type, const Variable& x, const ReduceOptions& options = {});
  Variable Cast(const Variable& x, DType dtype, const OutputOptions& options = {});

  // --- shapes ---

  // In `shape`, 0 keeps the dimension at that position, and one -1 is inferred.
  Variable Reshape(const Variable& x, const std::vector<int32_t>& shape,
                   const OutputOptions& options = {});
  Variable Flatten(const Variable& x, const FlattenOptions& options = {});
  Variable Transpose(const Variable& x, const std::vector<int32_t>& axis,
                     const OutputOptions& options = {});
  Variable Squeeze(const Variable& x, const std::vector<int32_t>& axes,
                   const OutputOptions& options = {});
  Variable Unsqueeze(const Variable& x, const std::vector<int32_t>& axes,
                     const OutputOptions& options = {});
  Variable Concat(const std::vector<Variable>& x, const ConcatOptions& options = {});
  Variable Stack(const std::vector<Variable>& x, int32_t axis = 0,
                 const OutputOptions& options = {});
  std::vector<Variable> Split(const Variable& x, const SplitOptions& options);
  Variable OneHot(const Variable& ids, int32_t depth, const OutputOptions& options = {});

  // --- saved models ---

  // Appends the ops and parameters of a saved inference model, in training form, fed with `x`;
  // returns its fetches. Dims in which `x` differs from the file, such as the batch size, are
  // inferred again. Throws the errors of LoadInferenceModel; kNotFound for names that the program
  // lacks; kAlreadyExists for parameters whose names are taken; kInvalidArgument for inputs that
  // differ in number, dtype or rank, and for a feed without a corresponding input.
  std::vector<Variable> Program(const std::vector<Variable>& x, const ProgramOptions& options);

 private:
  Variable Share(VarDesc& found, const Shape& shape, DType dtype);
  VarDesc& AppendStartup(const std::string& name, const Shape& shape, DType dtype,
                         const Setting& initializer);
  Variable WithXShape(const char* type, const Variable& x, AttrList attrs,
                      const OutputOptions& options);

  ProgramDesc* main_;
  ProgramDesc* startup_;
  Writer writer_;
};

// --- control flow: loops, branches, recurrent nets and tensor arrays ---
// A body is a
// function that appends ops with the builder passed in the same call. It can read the outer
// variables, and writes them by Assign (or by any op with such an output).

// out = x, for an existing variable `out`: the way in which a body changes a variable of an
// enclosing block. Throws kInvalidArgument if the dtypes differ.
void Assign(Builder& net, const Variable& x, const Variable& out);

// x += step in place, for x of one element. Returns x.
Variable Increment(Builder& net, const Variable& x, float step = 1.0f);

// A tensor of one constant value.
Variable FillConstant(Builder& net, const Shape& shape, DType dtype, double value,
                      const std::string& output = "");

// Runs `body` as long as `condition` holds (one bool, which the body must write).
struct WhileOptions {
  bool is_test = false;  // no gradient will be taken through the loop
};
void While(Builder& net, const Variable& condition, const std::function<void()>& body,
           const WhileOptions& options = {});

// Runs `body` if `condition` (one bool) holds. Otherwise the variables that it writes are
// unchanged; a variable without a value still has none afterwards.
void If(Builder& net, const Variable& condition, const std::function<void()>& body);

// Returns the results of `then` if `pred` (one bool) holds, else the results of `otherwise`. Both
// must return the same number of variables with the same dtypes. `outputs`, if not empty, are the
// names of the results. Only the ops of the branch taken run; gradients of the other are zero.
std::vector<Variable> Cond(Builder& net, const Variable& pred,
                           const std::function<std::vector<Variable>()>& then,
                           const std::function<std::vector<Variable>()>& otherwise,
                           const std::vector<std::string>& outputs = {});

// Runs the body of the first condition that holds:
//   Switch(net).Case(a, ...).Case(b, ...).Default(...).
class Switch {
 public:
  explicit Switch(Builder& net) : net_(net) {}
  Switch& Case(const Variable& condition, const std::function<void()>& body);
  void Default(const std::function<void()>& body);

 private:
  Builder& net_;
  Variable none_yet_;  // true while no condition has held
};

// Makes a tensor array in the current block; it is empty when a run of the block begins.
Variable CreateArray(Builder& net, DType dtype, const std::string& output = "");
// array[i] = x; i is one int64 (or int32).
void ArrayWrite(Builder& net, const Variable& x, const Variable& i, const Variable& array);
// A copy of array[i].
Variable ArrayRead(Builder& net, const Variable& array, const Variable& i,
                   const OutputOptions& options = {});
// int64 [1].
Variable ArrayLength(Builder& net, const Variable& array);

// A recurrent net over inputs [steps, ...]:
//   StaticRnn rnn(net, {.lengths = lengths});
//   rnn.Step([&] {
//     Variable x = rnn.StepInput(sequence);         // its slice for this step
//     Variable h = rnn.Memory(h0);                  // from the previous step
//     Variable next = net.Fc({x, h}, {...});
//     rnn.UpdateMemory(h, next);
//     rnn.StepOutput(next);
//   });
//   Variable outputs = rnn.Outputs()[0];            // [steps, ...]
struct StaticRnnOptions {
  bool reverse = false;
  // int64 [N] (or [N, 1]): sequence n ends after lengths[n] steps. After that the memories [N,
  // ...] of row n keep their values, and its outputs are zero. A reverse net runs the steps past
  // the end first.
  Variable lengths = {};
};

class StaticRnn {
 public:
  explicit StaticRnn(Builder& net, StaticRnnOptions options = {});

  // Call it once. Throws kInvalidArgument for a memory that was not updated.
  void Step(const std::function<void()>& body);
  // To be called while `body` runs:
  Variable StepInput(const Variable& sequence);
  Variable Memory(const Variable& init, const std::string& name = "");
  void UpdateMemory(const Variable& memory, const Variable& next);
  void StepOutput(const Variable& x, const std::string& output = "");
  // Available after Step, in the order of StepOutput.
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
  Variable mask_;  // [N], for the current step; empty without lengths
};

}  // namespace coracle
