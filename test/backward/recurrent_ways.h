#pragma once
// One LSTM and one GRU layer over [steps, batch, in] written in several ways, with the same
// parameters (the layout of the rnn op: input weights [gates * hidden, in], state weights
// [gates * hidden, hidden], one bias each [gates * hidden]; gates i f g o of the LSTM, r z c of the
// GRU). To compare one more way: append it to RecurrentWays.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace coracle {

// Uniform in [-1, 1), of the stream.
inline Tensor RandomTensor(const Shape& shape, uint64_t stream, DType dtype = DType::kFloat64) {
  Tensor tensor(DType::kFloat64, shape);
  const Philox random(11, stream, 0);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<double>()[i] = 2 * random.UniformDouble(static_cast<uint64_t>(i)) - 1;
  return tensor.Cast(dtype);
}

inline BackwardOptions WithRespectTo(std::vector<std::string> names) {
  BackwardOptions options;
  options.parameter_list = std::move(names);
  return options;
}

inline constexpr int64_t kRnnSteps = 5, kRnnBatch = 3, kRnnInputs = 4, kRnnHidden = 6;

struct RecurrentNet {
  Builder& net;
  bool lstm;
  Variable x, h0, c0, w_input, w_state, b_input, b_state;

  int32_t gates() const { return lstm ? 4 : 3; }
};

struct RecurrentWay {
  std::string name;
  // The sum over all steps of the squares of h, [1].
  std::function<Variable(const RecurrentNet&)> build;
};

// One step: {h, c} (c is h for a GRU).
inline std::pair<Variable, Variable> RecurrentCell(const RecurrentNet& r, const Variable& x,
                                                   const Variable& h, const Variable& c) {
  Builder& net = r.net;
  auto part = [&](const Variable& of, const Variable& w, const Variable& b) {
    return net.Split(net.Add(net.Matmul(of, w, {.transpose_y = true}), b),
                     {.num = r.gates(), .axis = 1});
  };
  const auto a = part(x, r.w_input, r.b_input), s = part(h, r.w_state, r.b_state);
  auto gate = [&](size_t k) { return net.Sigmoid(net.Add(a[k], s[k])); };
  if (!r.lstm) {
    const Variable reset = gate(0), update = gate(1);
    const Variable candidate = net.Tanh(net.Add(a[2], net.Mul(reset, s[2])));
    const Variable next = net.Add(net.Mul(net.Sub(h, candidate), update), candidate);
    return {next, next};
  }
  const Variable in = gate(0), forget = gate(1), out = gate(3);
  const Variable candidate = net.Tanh(net.Add(a[2], s[2]));
  const Variable cell = net.Add(net.Mul(forget, c), net.Mul(in, candidate));
  return {net.Mul(out, net.Tanh(cell)), cell};
}

inline Variable SumOfSquares(Builder& net, const Variable& x) {
  return net.Reshape(net.ReduceSum(net.Mul(x, x), {}), {1});
}

inline std::vector<Variable> StepsOf(const RecurrentNet& r) {
  std::vector<Variable> steps =
      r.net.Split(r.x, {.num = static_cast<int32_t>(kRnnSteps), .axis = 0});
  for (Variable& step : steps)
    step = r.net.Reshape(step, {static_cast<int32_t>(kRnnBatch), static_cast<int32_t>(kRnnInputs)});
  return steps;
}

inline Variable Unrolled(const RecurrentNet& r) {
  Variable h = r.h0, c = r.c0;
  std::vector<Variable> sums;
  for (const Variable& step : StepsOf(r)) {
    std::tie(h, c) = RecurrentCell(r, step, h, c);
    sums.push_back(SumOfSquares(r.net, h));
  }
  return r.net.Sum(sums);
}

inline Variable WithStaticRnn(const RecurrentNet& r) {
  StaticRnn rnn(r.net);
  rnn.Step([&] {
    const Variable step = rnn.StepInput(r.x), h = rnn.Memory(r.h0);
    const Variable c = r.lstm ? rnn.Memory(r.c0) : h;
    const auto [next, cell] = RecurrentCell(r, step, h, c);
    rnn.UpdateMemory(h, next);
    if (r.lstm) rnn.UpdateMemory(c, cell);
    rnn.StepOutput(next);
  });
  return SumOfSquares(r.net, rnn.Outputs()[0]);
}

// Inputs and states in arrays.
inline Variable WithWhile(const RecurrentNet& r) {
  Builder& net = r.net;
  auto number = [&](int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); };
  const Variable inputs = CreateArray(net, r.x.dtype()), hs = CreateArray(net, r.x.dtype()),
                 cs = CreateArray(net, r.x.dtype());
  int64_t t = 0;
  for (const Variable& step : StepsOf(r)) ArrayWrite(net, step, number(t++), inputs);
  ArrayWrite(net, r.h0, number(0), hs);
  ArrayWrite(net, r.c0, number(0), cs);
  const Variable i = number(0), n = number(kRnnSteps);
  const Variable total = FillConstant(net, {1}, r.x.dtype(), 0);
  const Variable condition = net.Binary("less_than", i, n);
  While(net, condition, [&] {
    const auto [h, c] =
        RecurrentCell(r, ArrayRead(net, inputs, i), ArrayRead(net, hs, i), ArrayRead(net, cs, i));
    Increment(net, i);
    ArrayWrite(net, h, i, hs);
    ArrayWrite(net, c, i, cs);
    Assign(net, net.Add(total, SumOfSquares(net, h)), total);
    Assign(net, net.Binary("less_than", i, n), condition);
  });
  return total;
}

// The rnn op.
inline Variable Fused(const RecurrentNet& r) {
  Builder& net = r.net;
  const std::vector<int32_t> layered = {1, static_cast<int32_t>(kRnnBatch),
                                        static_cast<int32_t>(kRnnHidden)};
  RnnOptions options;
  options.hidden_size = static_cast<int32_t>(kRnnHidden);
  options.time_major = true;
  options.initial_states = {net.Reshape(r.h0, layered)};
  if (r.lstm) options.initial_states.push_back(net.Reshape(r.c0, layered));
  options.weight_ih_attr.name = r.w_input.name();
  options.weight_hh_attr.name = r.w_state.name();
  options.bias_ih_attr->name = r.b_input.name();
  options.bias_hh_attr->name = r.b_state.name();
  return SumOfSquares(net, (r.lstm ? net.Lstm(r.x, options) : net.Gru(r.x, options)).out);
}

inline const std::vector<RecurrentWay>& RecurrentWays() {
  static const std::vector<RecurrentWay> ways = {{"unrolled", Unrolled},
                                                 {"StaticRnn", WithStaticRnn},
                                                 {"while with arrays", WithWhile},
                                                 {"the rnn op", Fused}};
  return ways;
}

// The loss and the gradients of x, h0, c0 (LSTM), weights and biases.
inline std::vector<Tensor> RunRecurrentWay(const std::string& cell, const RecurrentWay& way,
                                           DType dtype) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Scope scope;
  std::vector<std::string> names;
  auto parameter = [&](const std::string& name, const Shape& shape) {
    names.push_back(name);
    scope.Set(name, RandomTensor(shape, HashName(name), dtype));
    return net.Parameter(name, shape, dtype, {.name = name});
  };
  const bool lstm = cell == "lstm";
  const int64_t rows = (lstm ? 4 : 3) * kRnnHidden;
  RecurrentNet r{net,
                 lstm,
                 parameter("x", {kRnnSteps, kRnnBatch, kRnnInputs}),
                 parameter("h0", {kRnnBatch, kRnnHidden}),
                 Variable(),
                 parameter("w_input", {rows, kRnnInputs}),
                 parameter("w_state", {rows, kRnnHidden}),
                 parameter("b_input", {rows}),
                 parameter("b_state", {rows})};
  r.c0 = lstm ? parameter("c0", {kRnnBatch, kRnnHidden}) : r.h0;
  const Variable loss = way.build(r);
  std::vector<std::string> fetches = {loss.name()};
  for (const ParamAndGrad& pair : AppendBackward(loss, WithRespectTo(names)))
    fetches.push_back(pair.grad);
  return Executor().Run(main, scope, {}, fetches);
}

}  // namespace coracle
