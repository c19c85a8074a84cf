#pragma once
// Helpers for the tests of optimizer ops.

#include <coracle/test/op_test.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

// An optimizer op on Param {1, -2, 0.5} and Grad {0.5, -1, 0}.
struct UpdateCase {
  struct State {
    std::string in, out;
    std::vector<double> values;  // three
  };
  std::string type;
  AttrList attrs;
  std::vector<State> state;
  std::vector<std::string> scalars = {"LearningRate"};  // all tensors [1]
  std::vector<double> scalar_values = {0.1};
  std::vector<std::string> absent = {};  // outputs
  bool constraints = true;               // C1 and C2 are those of InferUpdate

  OpTest Make() const {
    return With({3}, {1, -2, 0.5}, {0.5, -1, 0}, [](const State& s) { return s.values; });
  }
  OpTest InPlace() const {
    OpTest test = Make();
    test.InPlace("Param", "ParamOut");
    for (const State& s : state) test.InPlace(s.in, s.out);
    return test;
  }

  // No elements, one element of rank 0, in place or not, shapes that do not fit.
  void CheckEdges() const {
    With({0}, {}, {}, [](const State&) {
      return std::vector<double>();
    }).Expect("ParamOut", {0}, {});
    const auto first = [](const State& s) { return std::vector<double>{s.values[0]}; };
    EXPECT_EQ(With({}, {1}, {0.5}, first).Output("ParamOut").shape(), Shape{});
    OpTest apart = Make(), together = InPlace();
    EXPECT_TRUE(BitEqual(apart.Output("ParamOut"), together.Output("ParamOut")));
    for (const State& s : state)
      EXPECT_TRUE(BitEqual(apart.Output(s.out), together.Output(s.out))) << s.out;
    if (!constraints) return;
    With(
        {3}, {1, -2, 0.5}, {0.5, -1, 0}, [](const State& s) { return s.values; }, 2)
        .ExpectError(type + ".C1");
    if (scalars.empty()) return;
    OpTest two(type);
    for (const NamedAttr& attr : attrs) two.Attr(attr.name, attr.value);
    two.RandomInput("Param", {2}).RandomInput("Grad", {2});
    for (const State& s : state) two.RandomInput(s.in, {2});
    for (const std::string& slot : scalars) two.RandomInput(slot, {2});
    two.ExpectError(type + ".C2");
  }

  // The same result for one element as among many: loops over several threads and blocks.
  void CheckLarge() const {
    const size_t n = 70001;
    const auto repeat = [&](double x) { return std::vector<double>(n, x); };
    OpTest many = With({static_cast<int64_t>(n)}, repeat(1), repeat(0.5),
                       [&](const State& s) { return repeat(s.values[0]); });
    const auto first = [](const State& s) { return std::vector<double>{s.values[0]}; };
    const double expected = With({1}, {1}, {0.5}, first).Output("ParamOut").Item<float>();
    const Tensor out = many.Output("ParamOut");
    for (float x : out.span<float>()) ASSERT_EQ(x, expected);
  }

 private:
  template <class ValuesOf>
  OpTest With(const Shape& shape, const std::vector<double>& p, const std::vector<double>& g,
              ValuesOf values_of, size_t grad_size = 0) const {
    OpTest test(type);
    for (const NamedAttr& attr : attrs) test.Attr(attr.name, attr.value);
    test.Input("Param", shape, p);
    if (grad_size)
      test.RandomInput("Grad", {static_cast<int64_t>(grad_size)});
    else
      test.Input("Grad", shape, g);
    for (const State& s : state) test.Input(s.in, shape, values_of(s));
    for (size_t i = 0; i < scalars.size(); ++i) test.Input(scalars[i], {1}, {scalar_values[i]});
    for (const std::string& slot : absent) test.NoOutput(slot);
    return test;
  }
};

}  // namespace coracle
