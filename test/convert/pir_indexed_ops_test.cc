// Programs of Paddle 3 that write at indices (put_along_axis, index_put), einsum, and programs that
// set parameters, compared with plain loops.
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/convert/einsum_reference.h>
#include <coracle/test/convert/pir_run.h>
#include <coracle/test/convert/pir_text.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace coracle::pir_indexed_ops_test {

using namespace coracle::pir_run;  // NOLINT: the helpers of these tests
using einsum_reference::DimsOf;
using einsum_reference::EinsumOf;

Tensor Counted(const std::vector<int64_t>& dims, float first = 0) {
  Tensor tensor(DType::kFloat32, Shape(dims));
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = first + static_cast<float>(i * i % 17 - i % 5);  // sums are exact
  return tensor;
}

std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values;
  for (const float x : tensor.span<float>()) values.push_back(double{x});
  return values;
}

// --- put_along_axis ---

struct Put {
  std::vector<int64_t> x = {2, 3, 2}, index = {2, 3, 2};
  int64_t axis = 0;
  std::string reduce = "assign";
  bool open = false;  // one dim that is not the axis is unknown
};

int64_t IndexAt(int64_t i, int64_t size) { return (5 * i + i / 3) % size - (i % 4 == 1) * size; }

PirText TextOf(const Put& put) {
  const size_t other = put.axis == 0 ? 1 : 0;
  std::vector<int64_t> x = put.x, index = put.index;
  if (put.open) x[other] = index[other] = -1;
  PirText text;
  const int64_t a = text.Data("x", {"f32", x}), i = text.Data("i", {"i64", index});
  const int64_t v = text.Data("v", {"f32", index});
  text.Fetch(text.Op("1.put_along_axis", {a, i, v}, {{"f32", x}},
                     {PirInt("axis", put.axis), PirString("reduce", put.reduce),
                      PirBool("include_self", true)}),
             {"f32", x});
  return text;
}

TEST(PirIndexedOps, PutAlongAxis) {
  for (const int64_t axis : {0, 1, 2}) {
    for (const char* reduce : {"assign", "add"}) {
      for (const bool open : {false, true}) {
        SCOPED_TRACE(testing::Message() << axis << reduce << open);
        Put put{.axis = axis, .reduce = reduce, .open = open};
        put.index[static_cast<size_t>(axis)] = 4;  // some places get several values
        const int64_t size = put.x[static_cast<size_t>(axis)];
        const Tensor x = Counted(put.x), v = Counted(put.index, 100);
        Tensor index(DType::kInt64, Shape(put.index));
        for (int64_t i = 0; i < index.numel(); ++i) index.data<int64_t>()[i] = IndexAt(i, size);
        std::vector<double> want = ValuesOf(x);
        const std::vector<double> values = ValuesOf(v);
        for (int64_t i = 0; i < index.numel(); ++i) {
          int64_t at[3] = {i / (put.index[1] * put.index[2]), i / put.index[2] % put.index[1],
                           i % put.index[2]};
          at[axis] = index.data<int64_t>()[i];
          if (at[axis] < 0) at[axis] += size;
          double& place = want[static_cast<size_t>((at[0] * put.x[1] + at[1]) * put.x[2] + at[2])];
          const double value = values[static_cast<size_t>(i)];
          place = *reduce == 'a' && reduce[1] == 'd' ? place + value : value;
        }
        ExpectNumbers(RunText(TextOf(put).Text(), {x, index, v})[0], Shape(put.x), want);
      }
    }
  }
}

std::string ErrorOfRun(const std::string& text, const std::vector<Tensor>& feeds) {
  try {
    RunText(text, feeds);
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

// An index beyond the axis is not one of the next row, and rows of x have indices.
TEST(PirIndexedOps, PutAlongAxisBeyondTheEnd) {
  const Put put = {.axis = 2, .open = true};
  const Tensor x = Counted({2, 3, 2}), v = Counted({2, 3, 2});
  for (const int64_t bad : {2, -3}) {
    Tensor index = Tensor::Full<int64_t>({2, 3, 2}, 1);
    index.data<int64_t>()[3] = bad;
    EXPECT_NE(ErrorOfRun(TextOf(put).Text(), {x, index, v}).find("gather"), std::string::npos);
  }
  const std::string fewer =
      ErrorOfRun(TextOf(put).Text(), {Counted({1, 3, 2}), Tensor::Full<int64_t>({2, 3, 2}, 1), v});
  EXPECT_NE(fewer.find("concat"), std::string::npos) << fewer;
}

TEST(PirIndexedOps, PutAlongAxisRefused) {
  Put put = {.reduce = "mul"};
  ExpectRefusal(TextOf(put).Text(), "reduce 'mul': assign and add are known");
  put = {.x = {2, 3}, .index = {2, 2}};
  ExpectRefusal(TextOf(put).Text(), "operands [2, 3] and [2, 2]");
}

// --- index_put ---

std::string IndexPutText(const PirType& x, const std::vector<PirType>& indices,
                         const PirType& value, bool accumulate) {
  PirText text;
  const int64_t a = text.Data("x", x);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < indices.size(); ++i)
    ids.push_back(text.Data(fmt::format("i{}", i), indices[i]));
  const int64_t v = text.Data("v", value), list = text.Combine(ids, indices);
  text.Fetch(text.Op("1.index_put", {a, list, v}, {x}, {PirBool("accumulate", accumulate)}), x);
  return text.Text();
}

TEST(PirIndexedOps, IndexPutRows) {
  const Tensor x = Counted({4, 3}), value = Counted({3, 3}, 50);
  const Tensor index = Tensor::Of<int64_t>({3}, {2, -1, 2});
  for (const bool add : {false, true}) {
    for (const bool open : {false, true}) {
      std::vector<double> want = ValuesOf(x);
      const std::vector<double> values = ValuesOf(value);
      for (size_t k = 0; k < 3; ++k) {
        const size_t row = k == 1 ? 3 : 2;
        for (size_t c = 0; c < 3; ++c) {
          double& at = want[row * 3 + c];
          at = add ? at + values[k * 3 + c] : values[k * 3 + c];
        }
      }
      const std::vector<int64_t> dims = {4, open ? -1 : 3}, rows = {3, open ? -1 : 3};
      ExpectNumbers(RunText(IndexPutText({"f32", dims}, {{"i64", {3}}}, {"f32", rows}, add),
                            {x, index, value})[0],
                    {4, 3}, want);
    }
  }
}

TEST(PirIndexedOps, IndexPutAtSeveralDims) {
  const Tensor x = Counted({2, 3, 2});
  const Tensor i0 = Tensor::Of<int64_t>({2, 1}, {1, 0}), i1 = Tensor::Of<int64_t>({2, 1}, {-1, 1});
  std::vector<double> want = ValuesOf(x);
  // One number for all elements.
  for (const size_t at : {size_t{(1 * 3 + 2) * 2}, size_t{(0 * 3 + 1) * 2}})
    want[at] = want[at + 1] = 7;
  ExpectNumbers(RunText(IndexPutText({"f32", {2, 3, 2}}, {{"i64", {2, 1}}, {"i64", {2, 1}}},
                                     {"f32", {1}}, false),
                        {x, i0, i1, Numbers({1}, {7})})[0],
                {2, 3, 2}, want);
  const std::string error = ErrorOfRun(
      IndexPutText({"f32", {2, 3, 2}}, {{"i64", {2, 1}}, {"i64", {2, 1}}}, {"f32", {1}}, false),
      {x, i0, Tensor::Of<int64_t>({2, 1}, {3, 0}), Numbers({1}, {7})});
  EXPECT_NE(error.find("gather"), std::string::npos) << error;
}

TEST(PirIndexedOps, IndexPutByMask) {
  const Tensor x = Counted({2, 3});
  const Tensor mask = Tensor::Of<bool>({2, 3}, {true, false, false, true, true, false});
  std::vector<double> want = ValuesOf(x);
  for (const size_t at : {0, 3, 4}) want[at] = -2;
  const PirType open = {"f32", {-1, 3}};
  ExpectNumbers(RunText(IndexPutText(open, {{"bool", {-1, 3}}}, {"f32", {}}, false),
                        {x, mask, Numbers({}, {-2})})[0],
                {2, 3}, want);
  ExpectRefusal(IndexPutText(open, {{"bool", {-1}}}, {"f32", {1}}, false), "only one number");
  ExpectRefusal(IndexPutText(open, {{"bool", {-1, 3}}}, {"f32", {3}}, false), "only one number");
  ExpectRefusal(IndexPutText(open, {{"i64", {2}}}, {"f32", {1}}, false), "unknown or empty");
  ExpectRefusal(IndexPutText({"f32", {2, 3}}, {{"i64", {2}}, {"i64", {1}}}, {"f32", {1}}, false),
                "several indices whose shapes");
}

// --- einsum ---

std::string EinsumText(const std::string& equation, const std::vector<PirType>& types,
                       const PirType& result) {
  PirText text;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < types.size(); ++i)
    ids.push_back(text.Data(fmt::format("x{}", i), types[i]));
  const int64_t list = text.Combine(ids, types);
  text.Fetch(text.Op("1.einsum", {list}, {result}, {PirString("equation", equation)}), result);
  return text.Text();
}

// `open`: labels whose sizes the program does not know.
void ExpectEinsum(const std::vector<std::string>& terms, const std::string& output,
                  const std::string& open = "", std::string equation = "") {
  if (equation.empty()) equation = fmt::format("{}->{}", fmt::join(terms, ","), output);
  SCOPED_TRACE(equation + " open " + open);
  std::vector<PirType> types;
  std::vector<Tensor> feeds;
  for (const std::string& term : terms) {
    types.push_back({"f32", DimsOf(term, open)});
    feeds.push_back(Counted(DimsOf(term), static_cast<float>(feeds.size())));
  }
  ExpectNumbers(RunText(EinsumText(equation, types, {"f32", DimsOf(output, open)}), feeds)[0],
                Shape(DimsOf(output)), EinsumOf(terms, feeds, output));
}

TEST(PirIndexedOps, Einsum) {
  ExpectEinsum({"bij", "bjk"}, "bik");
  ExpectEinsum({"bij", "bjk"}, "bik", "bi");
  ExpectEinsum({"bhik", "bhjk"}, "bhij", "bij");
  ExpectEinsum({"bihk", "bjhk"}, "bhij", "b");
  ExpectEinsum({"bijh", "jhk"}, "bik", "b");   // two labels summed
  ExpectEinsum({"bij", "jhk"}, "bihk", "bi");  // one label parted
  ExpectEinsum({"ij", "jk", "kb"}, "ib");
  ExpectEinsum({"bi", "bi"}, "bi");
  ExpectEinsum({"i", "j"}, "ij");
  ExpectEinsum({"i", "i"}, "");
  ExpectEinsum({"bij", "bij"}, "", "b");
  ExpectEinsum({"bij"}, "ji");
  ExpectEinsum({"bij"}, "");
  ExpectEinsum({"bij"}, "jbi", "b");
  ExpectEinsum({"bij", "bk"}, "ki");
  ExpectEinsum({"ij", "jk"}, "ik", "", "ij, jk");  // without ->
  ExpectEinsum({"bhij", "bhjk"}, "bhik", "b", "...ij,...jk->...ik");
  ExpectEinsum({"bhij", "jk"}, "bhik", "b", "...ij,jk->...ik");
}

TEST(PirIndexedOps, EinsumRefused) {
  const PirType ij = {"f32", {4, 5}}, jk = {"f32", {5, 2}}, ik = {"f32", {4, 2}};
  const auto refusal = [&](const std::string& equation, const std::vector<PirType>& types,
                           const std::string& part) {
    ExpectRefusal(EinsumText(equation, types, ik), part);
  };
  const PirType open = {"f32", {-1, -1}};
  refusal("ij,ij->", {open, open}, "sums over several dims that are unknown");
  refusal("ij,jk->im", {ij, jk}, "one that no operand has");
  refusal("ij->ik", {ij, jk}, "another number of terms");
  refusal("ij,jk,->ik", {ij, jk}, "another number of terms");
  refusal("ijb,jk->ik", {ij, jk}, "does not fit the ranks");
  refusal("ij,ik->jk", {ij, jk}, "dims of 4 and 5 for one label");
  refusal("i0,0k->ik", {ij, jk}, "has the character '0'");
  refusal("...ij,jk->ik", {{"f32", {3, 4, 5}}, jk}, "leaves the dims of '...'");
  refusal("ij,jk->ik", {{"i64", {4, 5}}, jk}, "not a floating-point tensor");
  ExpectRefusal(
      EinsumText("bij,bk->bijk", {{"f32", {2, -1, -1}}, {"f32", {2, 3}}}, {"f32", {2, -1, -1, 3}}),
      "joins or parts dims that are unknown");
}

// --- programs that set parameters ---

TEST(PirIndexedOps, StartupPrograms) {
  PirText text;
  const int64_t w = text.Full("f32", "float32", 0.5, {2, 3});
  text.Op("0.set_parameter", {w}, {}, {PirString("parameter_name", "linear_0.w_0")});
  const int64_t b = text.Full("i64", "int64", 7, {2});
  text.Op("0.set_parameter", {b}, {}, {PirString("parameter_name", "steps")});
  const ProgramDesc program = ParsePir(text.Text(), "m.json");
  EXPECT_TRUE(program.Root().FindVar("linear_0.w_0")->persistable());
  Scope scope;
  Executor().Run(program, scope, {}, {});
  ExpectNumbers(scope.Get("linear_0.w_0"), {2, 3}, {0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
  EXPECT_EQ(scope.Get("steps").data<int64_t>()[1], 7);
}

TEST(PirIndexedOps, ParametersThatAreReadAndSet) {
  PirText text;
  const PirType two = {"f32", {2}};
  const int64_t w = text.Parameter("w", two);
  text.Op("0.set_parameter", {text.Op("1.abs", {w}, {two})}, {},
          {PirString("parameter_name", "w")});
  ExpectRefusal(text.Text(), "it sets 'w', which the program also reads");
  PirText nameless;
  nameless.Op("0.set_parameter", {nameless.Full("f32", "float32", 1)}, {}, {});
  ExpectRefusal(nameless.Text(), "it names no parameter");
}

}  // namespace coracle::pir_indexed_ops_test
