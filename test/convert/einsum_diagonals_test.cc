// einsum with a label twice in one operand: diagonals and traces, and their gradients.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/coracle.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/writer.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/einsum_reference.h>
#include <coracle/test/convert/pir_run.h>
#include <coracle/test/convert/pir_text.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::einsum_diagonals_test {

using einsum_reference::DimsOf;
using einsum_reference::EinsumOf;

struct Case {
  std::vector<std::string> terms;
  std::string output;
  std::string open = "";      // labels whose sizes the model does not know
  std::string equation = "";  // "": with "->"

  std::string Equation() const {
    if (!equation.empty()) return equation;
    return fmt::format("{}->{}", fmt::join(terms, ","), output);
  }
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{"ii"}, "i"},
      {{"bii"}, "b"},
      {{"bii"}, "bi"},
      {{"bii"}, "b", "b"},
      {{"iib"}, "bi", "b"},
      {{"ibi"}, "ib"},
      {{"iii"}, "i"},
      {{"iijj"}, "ij"},
      {{"jiij"}, "ij"},
      {{"bibi"}, "bi"},
      {{"iij"}, "j", "j"},
      {{"ii"}, ""},
      {{"ij", "jj"}, "i"},
      {{"ij", "jj"}, "ij", "i"},
      {{"ii", "jj"}, "ij"},
      {{"ii", "ii"}, ""},
      {{"bii", "bij"}, "bj", "b"},
      {{"ii", "ij", "jj"}, "ij"},
      {{"ii"}, "", "", "ii"},  // without ->, a label that occurs twice is summed
      {{"iij"}, "j", "", "iij"},
      {{"ii", "ij"}, "j", "", "ii,ij"},
      {{"bii"}, "bi", "b", "...ii->...i"},
      {{"hbii"}, "hb", "h", "...ii->..."},
  };
  return cases;
}

// Numbers whose sums are exact.
std::vector<Tensor> FeedsOf(const Case& one) {
  std::vector<Tensor> feeds;
  for (const std::string& term : one.terms) {
    Tensor tensor(DType::kFloat32, Shape(DimsOf(term)));
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data<float>()[i] = static_cast<float>(i * i % 17 - i % 5 + 1);
    feeds.push_back(tensor);
  }
  return feeds;
}

ProgramDesc FromPaddle(const Case& one) {
  PirText text;
  std::vector<int64_t> ids;
  std::vector<PirType> types;
  for (size_t i = 0; i < one.terms.size(); ++i) {
    types.push_back({"f32", DimsOf(one.terms[i], one.open)});
    ids.push_back(text.Data(fmt::format("x{}", i), types.back()));
  }
  const PirType result = {"f32", DimsOf(one.output, one.open)};
  const int64_t list = text.Combine(ids, types);
  text.Fetch(text.Op("1.einsum", {list}, {result}, {PirString("equation", one.Equation())}),
             result);
  return ParsePir(text.Text(), "m.json");
}

ProgramDesc FromOnnx(const Case& one, Scope& scope) {
  proto::onnx::ModelProto model;
  model.add_opset_import()->set_version(13);
  auto& graph = *model.mutable_graph();
  auto& node = *graph.add_node();
  node.set_op_type("Einsum");
  node.add_output("y");
  graph.add_output()->set_name("y");
  auto& attr = *node.add_attribute();
  attr.set_name("equation");
  attr.set_type(proto::onnx::AttributeProto::STRING);
  attr.set_s(one.Equation());
  for (size_t i = 0; i < one.terms.size(); ++i) {
    node.add_input(fmt::format("x{}", i));
    auto& input = *graph.add_input();
    input.set_name(node.input(static_cast<int>(i)));
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::ToDataType(DType::kFloat32));
    for (const int64_t dim : DimsOf(one.terms[i], one.open)) {
      auto& to = *type.mutable_shape()->add_dim();
      dim < 0 ? to.set_dim_param("n") : to.set_dim_value(dim);
    }
  }
  return ParseOnnx(model.SerializeAsString(), "m.onnx", scope).program;
}

void ExpectValues(const Case& one, const ProgramDesc& program, const Scope& parameters) {
  VerifyOrThrow(program, DefaultOps());
  const std::vector<Tensor> feeds = FeedsOf(one);
  Scope scope = parameters.Clone();
  PreparedProgram net = Executor().Prepare(program);
  const Tensor result = net.Run(scope, feeds)[0].Cast(DType::kFloat64);
  const std::vector<double> want = EinsumOf(one.terms, feeds, one.output);
  ASSERT_EQ(result.numel(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(result.data<double>()[i], want[i]) << i;
}

// The gradients of the mean of squares, of all operands.
void ExpectGradients(const Case& one, ProgramDesc program, const Scope& parameters) {
  const std::string result = FetchNames(program).at(0);
  const Writer writer(program.Root(), DefaultOps());
  const Variable squares = writer.Make("square", {{"X", {result}}});
  writer.Into("loss", "mean", {{"X", {squares.name()}}});
  CheckGradientOptions options;
  options.loss = "loss";
  options.scope = &parameters;
  const std::vector<Tensor> feeds = FeedsOf(one);
  for (size_t i = 0; i < feeds.size(); ++i) {
    options.wrt.push_back(fmt::format("x{}", i));
    options.feeds[options.wrt.back()] = feeds[i];
  }
  const CheckGradientReport report = CheckGradient(program, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
  for (const GradientCheck& check : report.checks) EXPECT_NE(check.by_gradient, 0) << check.var;
}

TEST(EinsumDiagonals, OfPaddle3) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.Equation() + " open " + one.open);
    const ProgramDesc program = FromPaddle(one);
    ExpectValues(one, program, Scope());
    ExpectGradients(one, program, Scope());
  }
}

TEST(EinsumDiagonals, OfOnnx) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.Equation() + " open " + one.open);
    Scope scope;
    const ProgramDesc program = FromOnnx(one, scope);
    ExpectValues(one, program, scope);
    ExpectGradients(one, program, scope);
  }
}

// A diagonal of dims that differ has no meaning, and dims that are unknown might differ.
TEST(EinsumDiagonals, OfDimsThatMayDiffer) {
  const auto paddle = [](const std::vector<int64_t>& dims) {
    PirText text;
    const PirType x = {"f32", dims}, y = {"f32", {-1}};
    const int64_t list = text.Combine({text.Data("x", x)}, {x});
    text.Fetch(text.Op("1.einsum", {list}, {y}, {PirString("equation", "ii->i")}), y);
    return text.Text();
  };
  pir_run::ExpectRefusal(paddle({-1, -1}), "the length of that diagonal is unknown");
  pir_run::ExpectRefusal(paddle({3, -1}), "the length of that diagonal is unknown");
  pir_run::ExpectRefusal(paddle({3, 4}), "dims of 3 and 4 for one label");
  Scope scope;
  EXPECT_THROW(FromOnnx({{"ii"}, "i", "i"}, scope), Error);
}

}  // namespace coracle::einsum_diagonals_test
