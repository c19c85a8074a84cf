#pragma once
// OpTest: one op under test, told by its inputs, attrs and expected outputs.
//
//   OpTest("clip").Attr("min", -1.f).Attr("max", 1.f)
//       .Input("X", {2, 3}, {-2, -0.5, 0.1, 0.7, 1.2, 3})
//       .Expect("Out", {2, 3}, {-1, -0.5, 0.1, 0.7, 1, 1})
//       .CheckGradient({"X"});

#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/test/higher_order.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

struct DifferenceCheck {
  double step = 1e-5;       // of the central difference
  double tolerance = 1e-6;  // of |analytic - numeric| over max(1, |numeric|)
  int directions = 6;       // random directions per input
};

// Numbers in a test, {1, 2, 3} or a vector: made and destroyed out of line, so that thousands of
// calls compile fast. Names are op_def.h's NameList for the same reason.
template <class T>
class ListOf {
 public:
  ListOf(std::initializer_list<T> values);  // NOLINT: written as {1, 2, 3}
  ListOf(const std::vector<T>& values);     // NOLINT: as a list made at run time
  ~ListOf();
  ListOf(const ListOf&) = delete;
  ListOf& operator=(const ListOf&) = delete;
  operator const std::vector<T>&() const { return values_; }  // NOLINT: it is one

 private:
  std::vector<T> values_;
};

class OpTest {
 public:
  explicit OpTest(std::string_view type, const OpRegistry& ops = DefaultOps());
  OpTest(const OpTest&);
  OpTest& operator=(const OpTest&) = delete;
  ~OpTest();

  OpTest& Attr(std::string_view name, const Attribute& value);
  // A floating-point input: float32 for Expect, double for gradients. Again for the same slot: one
  // more of a list.
  OpTest& Input(std::string_view slot, const Shape& shape, const ListOf<double>& values);
  OpTest& IntInput(std::string_view slot, const Shape& shape, const ListOf<int64_t>& values,
                   DType dtype = DType::kInt64);
  OpTest& TensorInput(std::string_view slot, Tensor tensor);  // kept in its dtype
  // The LoD of the input added last.
  OpTest& Lod(LoD lod);
  // Selected rows of a floating-point tensor of this shape; `values` has a row for each of `rows`.
  OpTest& RowsInput(std::string_view slot, const Shape& shape, const ListOf<int64_t>& rows,
                    const ListOf<double>& values);
  // Uniform values in [low, high], kept at least `gap` away from 0 (and from each other's kinks,
  // for relu and the like).
  OpTest& RandomInput(std::string_view slot, const Shape& shape, double low = -1, double high = 1,
                      double gap = 0);
  // Number of variables in an output slot (default: 1 for each declared output).
  OpTest& Outputs(std::string_view slot, int count);
  OpTest& NoOutput(std::string_view slot);
  // The output slot names the variable of the input slot.
  OpTest& InPlace(std::string_view input, std::string_view output);
  OpTest& Seed(uint64_t seed) { return seed_ = seed, *this; }
  OpTest& Step(uint64_t step) { return step_ = step, *this; }
  OpTest& AllowFiles(std::string_view directory) { return files_ = directory, *this; }

  // Runs the reference kernel in float32 and in double, and the fast kernel, and compares the
  // output with `values` within `tolerance` (absolute plus relative; 1e-9 of it in double unless
  // the values say less).
  OpTest& Expect(std::string_view slot, const Shape& shape, const ListOf<double>& values,
                 double tolerance = 1e-5, size_t i = 0);
  // The same for an output that is selected rows.
  OpTest& ExpectRows(std::string_view slot, int64_t height, const ListOf<int64_t>& rows,
                     const ListOf<double>& values, double tolerance = 1e-5);
  OpTest& ExpectLod(std::string_view slot, const LoD& lod, size_t i = 0);
  OpTest& ExpectDType(std::string_view slot, DType dtype);
  // Infer, prepare or run throws an Error whose first line contains `text`: "clip.C1".
  void ExpectError(std::string_view text);

  // Analytic against numeric gradients of sum(w * outputs), w random with a fixed seed, in double,
  // with the reference kernels. Fails too when all gradients are (nearly) zero.
  OpTest& CheckGradient(const NameList& slots, const DifferenceCheck& check = {});
  // The same for the gradient op's own gradient: second order, with respect to forward inputs and
  // the output gradient.
  OpTest& CheckSecondGradient(const NameList& slots, const DifferenceCheck& check = {});
  // Gradients of the second and the third order, by Gradients(), with respect to all floating-point
  // inputs: see higher_order.h.
  OpTest& CheckHigherGradients(int highest = kEveryOrder);
  // Fast kernels of the op and of its gradient against the reference ones, on these inputs in
  // float32. Gradients are taken with respect to `slots` (default: all floating-point inputs).
  OpTest& CheckFast(double tolerance = 1e-4, const NameList& slots = {});

  // The outputs of one run.
  VarValues Run(KernelMode mode, bool in_double);
  Tensor Output(std::string_view slot, KernelMode mode = KernelMode::kAuto, size_t i = 0);

 private:
  struct InputVar {
    std::string slot, name;
    Tensor value;
    bool floating = false;
    std::optional<SelectedRows> sparse;  // without elements: those are in value
  };
  struct Graph;

  template <class Check>
  void ForEachKernel(const Check& check);
  std::string OutputName(std::string_view slot, size_t i) const;

  void Build(ProgramDesc& program, bool in_double) const;
  VarValues Inputs(bool in_double) const;
  Graph BuildGradient(const std::vector<std::string>& slots, bool in_double) const;
  void CheckExpansion() const;
  void CompareEnvironments(const VarValues& expected, const VarValues& actual,
                           double tolerance) const;
  static void CheckDirections(const Graph& graph, const std::vector<std::string>& wrt,
                              const OpRegistry& ops, const DifferenceCheck& check,
                              const InterpretOptions& options, const std::string& title);

  const OpRegistry& ops_;
  std::string type_;
  AttrList attrs_;
  std::vector<InputVar> inputs_;
  std::vector<std::pair<std::string, int>> output_counts_;
  std::vector<std::pair<std::string, std::string>> in_place_;
  uint64_t seed_ = 7, step_ = 0;
  std::string files_;
};

}  // namespace coracle
