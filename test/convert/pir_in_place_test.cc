// Programs of Paddle 3: ops that change an operand in place, and exact integers.
#include <coracle/test/convert/pir_run.h>
#include <coracle/test/convert/pir_text.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace coracle::pir_in_place_test {

using namespace coracle::pir_run;  // NOLINT: the helpers of these tests

// --- ops that work in place ---

const PirType kTwo = {"f32", {2}};

std::string Regions(const std::vector<PirText>& blocks) {
  std::vector<std::string> regions;
  for (const PirText& block : blocks) regions.push_back(block.Region());
  return ",\"regions\":" + PirList(regions);
}

TEST(PirInPlace, LaterReadersOfTheOperandSeeTheResult) {
  PirText text;  // x is read again after add_ and after relu_ of its result
  const int64_t x = text.Data("x", kTwo);
  text.Fetch(x, kTwo, "before", 0);
  const int64_t y = text.Op("1.add_", {x, text.Full("f32", "float32", -10, {2})}, {kTwo});
  text.Fetch(text.Op("1.abs", {x}, {kTwo}), kTwo, "between", 1);
  text.Op("1.relu_", {y}, {kTwo});
  text.Fetch(text.Op("1.abs", {x}, {kTwo}), kTwo, "after", 2);
  text.Fetch(x, kTwo, "x", 3);
  const Tensor fed = Numbers({2}, {3, 12});
  const auto results = RunText(text.Text(), {fed});
  ExpectNumbers(results[0], {2}, {3, 12});
  ExpectNumbers(results[1], {2}, {7, 2});
  ExpectNumbers(results[2], {2}, {0, 2});
  ExpectNumbers(results[3], {2}, {0, 2});
  ExpectNumbers(fed, {2}, {3, 12});
}

TEST(PirInPlace, AChainWithoutOtherReadersStaysAsItIs) {
  PirText text;
  const int64_t x = text.Data("x", kTwo);
  const int64_t y = text.Op("1.relu_", {text.Op("1.abs_", {x}, {kTwo})}, {kTwo});
  const int64_t z = text.Op("1.reshape_", {y, text.Ints({2, 1})}, {{"f32", {2, 1}}});
  text.Fetch(z, {"f32", {2, 1}});
  ParsePir(text.Text(), "m.json").ForEachOp([](const OpDesc& op) {
    EXPECT_NE(op.type(), "assign");
  });
}

// assign_out_ writes into its second operand, which is a constant until then.
TEST(PirInPlace, AssignOutAndIncrement) {
  PirText text;
  const PirType one = {"i64", {1}};
  const int64_t x = text.Data("x", kTwo), n = text.Data("n", one);
  const int64_t out = text.Full("f32", "float32", 10, {2});
  text.Op("1.assign_out_", {x, out}, {kTwo});
  text.Fetch(text.Op("1.relu", {out}, {kTwo}), kTwo, "copy", 0);
  const int64_t next = text.Op("1.increment_", {n}, {one}, {PirFloat("value", 1)});
  text.Fetch(text.Op("1.add", {n, next}, {one}), one, "sum", 1);
  const int64_t factor = text.Full("f32", "float32", 2);  // scale's, known until increment_
  text.Op("1.increment_", {factor}, {{"f32", {1}}}, {PirFloat("value", 1)});
  text.Fetch(text.Op("1.scale", {x, factor}, {kTwo}, {PirFloat("bias", 0)}), kTwo, "scaled", 2);
  const auto results = RunText(text.Text(), {Numbers({2}, {1, 2}), Tensor::Full<int64_t>({1}, 5)});
  ExpectNumbers(results[0], {2}, {1, 2});
  ExpectNumbers(results[1], {1}, {12});
  ExpectNumbers(results[2], {2}, {3, 6});
}

TEST(PirInPlace, ABranchChangesAnOuterValue) {
  PirText text;
  const int64_t x = text.Data("x", kTwo), c = text.Data("c", {"bool", {1}});
  const int64_t out = text.Full("f32", "float32", 0, {2});
  PirText then = text.Inner();
  then.Op("1.assign_out_", {x, out}, {kTwo});
  then.Op("2.yield", {}, {});
  text.Skip(then);
  PirText otherwise = text.Inner();
  otherwise.Op("2.yield", {}, {});
  text.Skip(otherwise);
  text.Op("1.if", {c}, {}, {}, Regions({then, otherwise}));
  text.Fetch(text.Op("1.relu", {out}, {kTwo}), kTwo);
  for (const bool taken : {true, false}) {
    const auto results =
        RunText(text.Text(), {Numbers({2}, {5, 6}), Tensor::Of<bool>({1}, {taken})});
    ExpectNumbers(results[0], {2}, {taken ? 5.0 : 0, taken ? 6.0 : 0});
  }
}

// while (i < n) { total += step; i = i + 1; }: the next turn reads what this one changed.
std::string Totals(bool read_start) {
  PirText text;
  const PirType one = {"i64", {}};
  const int64_t n = text.Data("n", one);
  const int64_t total = text.Full("i64", "int64", 0, {}), step = text.Full("i64", "int64", 3, {});
  const int64_t zero = text.Full("i64", "int64", 0, {});
  const int64_t more = text.Op("1.less_than", {zero, n}, {{"bool", {}}});
  PirText body = text.Inner();
  body.Op("1.add_", {total, step}, {one});
  const int64_t next = body.Op("1.increment_", {-1}, {one}, {PirFloat("value", 1)});
  body.Op("2.yield", {body.Op("1.less_than", {next, n}, {{"bool", {}}}), next}, {});
  text.Skip(body);
  text.Op("1.while", {more, zero}, {one}, {},
          ",\"regions\":" +
              PirList({body.Region({fmt::format("{{\"%\":-1,\"TT\":{}}}", TypeJson(one))})}));
  text.Fetch(text.Op("1.add", {total, read_start ? zero : step}, {one}), one);
  return text.Text();
}

TEST(PirInPlace, ALoopChangesAnOuterValue) {
  for (int64_t n : {0, 1, 4})
    ExpectNumbers(RunText(Totals(false), {Tensor::Full<int64_t>({}, n)})[0], {},
                  {static_cast<double>(3 * n + 3)});
  ExpectRefusal(Totals(true), "which has the memory of the value");
}

TEST(PirInPlace, AListHoldsTheChangedTensor) {
  PirText text;
  const int64_t a = text.Data("a", kTwo), b = text.Data("b", kTwo);
  const int64_t list = text.Combine({a, b}, {kTwo, kTwo});
  const int64_t item = text.Op("0.slice", {list}, {kTwo}, {PirInt("index", 1)});
  text.Op("1.abs_", {item}, {kTwo});
  text.Fetch(text.Op("1.add_n", {list}, {kTwo}), kTwo, "sum", 0);
  text.Fetch(text.Op("1.relu", {b}, {kTwo}), kTwo, "b_after", 1);
  const auto results = RunText(text.Text(), {Numbers({2}, {1, 1}), Numbers({2}, {-2, 3})});
  ExpectNumbers(results[0], {2}, {3, 4});
  ExpectNumbers(results[1], {2}, {2, 3});
}

TEST(PirInPlace, AParameterKeepsTheResultForTheNextRun) {
  PirText text;
  const int64_t w = text.Parameter("w", kTwo), x = text.Data("x", kTwo);
  text.Fetch(text.Op("1.add_", {w, x}, {kTwo}), kTwo);
  ProgramDesc program = ParsePir(text.Text(), "m.json");
  Scope scope;
  scope.Set("w", Numbers({2}, {1, 2}));
  PreparedProgram net = Executor().Prepare(program);
  ExpectNumbers(net.Run(scope, {Numbers({2}, {10, 20})})[0], {2}, {11, 22});
  ExpectNumbers(net.Run(scope, {Numbers({2}, {10, 20})})[0], {2}, {21, 42});
}

TEST(PirInPlace, RefusesAnotherShapeWithALaterReader) {
  PirText text;
  const int64_t x = text.Data("x", kTwo);
  text.Op("1.reshape_", {x, text.Ints({2, 1})}, {{"f32", {2, 1}}});
  text.Fetch(text.Op("1.relu", {x}, {kTwo}), kTwo);
  ExpectRefusal(text.Text(), "'pd_op.reshape_': it changes its operand 0 in place from");
}

// --- numbers ---

// Without a dtype, sums of bool and int32 are int64.
TEST(PirNumbers, SumsOfIntegersAreInt64) {
  const auto sum = [](const std::string& element, const char* op, const Tensor& x) {
    PirText text;
    const int64_t in = text.Data("x", {element, {3}});
    text.Fetch(text.Op(op, {in, text.Ints({0})}, {{"i64", {}}},
                       {PirDType("dtype", "Undefined(ALL_DTYPE)"), PirBool("keepdim", false)}),
               {"i64", {}});
    return RunText(text.Text(), {x})[0];
  };
  const Tensor large = Tensor::Of<int32_t>({3}, {INT32_MAX, INT32_MAX, 1});
  EXPECT_EQ(sum("i32", "1.sum", large).data<int64_t>()[0], 4294967295);
  EXPECT_EQ(sum("i32", "1.prod", large).data<int64_t>()[0], 4611686014132420609);
  EXPECT_EQ(sum("bool", "1.sum", Tensor::Of<bool>({3}, {true, false, true})).data<int64_t>()[0], 2);
}

TEST(PirNumbers, IntegersOfFullAreExact) {
  for (const int64_t value : {9007199254740993, INT64_MAX, INT64_MIN, int64_t{-7}}) {
    PirText text;
    const int64_t x = text.Data("x", {"i64", {1}});
    const int64_t c = text.Op("1.full", {}, {{"i64", {1}}},
                              {PirAttr("shape", "1.a_intarray", "[1]"),
                               PirAttr("value", "0.a_i64", std::to_string(value))});
    text.Fetch(text.Op("1.add", {x, c}, {{"i64", {1}}}), {"i64", {1}}, "sum", 0);
    text.Fetch(c, {"i64", {1}}, "constant", 1);
    const auto results = RunText(text.Text(), {Tensor::Full<int64_t>({1}, 0)});
    EXPECT_EQ(results[0].data<int64_t>()[0], value);
    EXPECT_EQ(results[1].data<int64_t>()[0], value);
  }
}

}  // namespace coracle::pir_in_place_test
