#include <coracle/passes/pass.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>

namespace coracle::fusion_sequence_test {

// By hand: x[t - 1] + 10 x[t] + 100 x[t + 1] inside of the sequence, minus 50.
TEST(FusionSeqconvEltaddRelu, Values) {
  OpTest("fusion_seqconv_eltadd_relu")
      .Attr("contextLength", 3)
      .Attr("contextStart", -1)
      .Input("X", {4, 1}, {1, 2, 3, 4})
      .Lod({{0, 3, 3, 4}})
      .Input("Filter", {3, 1}, {1, 10, 100})
      .Input("Bias", {1, 1}, {-50})
      .Expect("Out", {4, 1}, {160, 271, 0, 0})
      .ExpectLod("Out", {{0, 3, 3, 4}});
  // A context that begins after the row and ends after the sequence.
  OpTest("fusion_seqconv_eltadd_relu")
      .Attr("contextLength", 2)
      .Attr("contextStart", 2)
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Lod({{0, 3}})
      .Input("Filter", {4, 1}, {1, 10, 100, 1000})
      .Input("Bias", {1}, {1})
      .Expect("Out", {3, 1}, {66, 1, 1});
  OpTest("fusion_seqconv_eltadd_relu")
      .Attr("contextLength", 1)
      .Input("X", {0, 1}, {})
      .Lod({{0, 0}})
      .Input("Filter", {1, 2}, {1, 2})
      .Input("Bias", {2}, {0, 0})
      .Expect("Out", {0, 2}, {});
}

TEST(FusionSeqconvEltaddRelu, Gradients) {
  OpTest("fusion_seqconv_eltadd_relu")
      .Attr("contextLength", 3)
      .Attr("contextStart", -1)
      .RandomInput("X", {5, 2}, 0.1, 1)
      .Lod({{0, 3, 5}})
      .RandomInput("Filter", {6, 2}, 0.1, 1)
      .RandomInput("Bias", {1, 2})
      .CheckGradient({"X", "Filter", "Bias"});
}

OpTest Conv(int32_t length, const Shape& x, const Shape& filter, const LoD& lod) {
  return std::move(OpTest("fusion_seqconv_eltadd_relu")
                       .Attr("contextLength", length)
                       .RandomInput("X", x)
                       .Lod(lod)
                       .RandomInput("Filter", filter)
                       .RandomInput("Bias", {1, 1}));
}

TEST(FusionSeqconvEltaddRelu, Constraints) {
  const std::string type = "fusion_seqconv_eltadd_relu";
  Conv(1, {2}, {1, 1}, {{0, 2}}).ExpectError(type + ".C1");
  Conv(0, {2, 1}, {1, 1}, {{0, 2}}).ExpectError(type + ".C2");
  Conv(1, {2, 1}, {1, 1}, {{0, 2}}).Attr("contextStride", 2).ExpectError(type + ".C2");
  Conv(2, {2, 1}, {1, 1}, {{0, 2}}).ExpectError(type + ".C3");
  Conv(1, {2, 1}, {1, 2}, {{0, 2}}).ExpectError(type + ".C3");
  Conv(1, {2, 1}, {1, 1}, {}).ExpectError(type + ".C4");
}

// Rows [x, y_0, y_1] with the weight [[1, 0], [10, 1], [100, 0]] and bias [0, -2].
TEST(FusionSeqexpandConcatFc, Values) {
  const auto with = [](const std::string& act) {
    return std::move(OpTest("fusion_seqexpand_concat_fc")
                         .Attr("fc_activation", act)
                         .Input("X", {3, 1}, {1, 2, 3})
                         .Lod({{0, 2, 2, 3}})
                         .Input("X", {3, 1}, {4, 0, 1})
                         .Input("X", {3, 1}, {5, 0, -1})
                         .Input("FCWeight", {3, 2}, {1, 0, 10, 1, 100, 0})
                         .Input("FCBias", {2}, {0, -2}));
  };
  with("identity")
      .Expect("Out", {3, 2}, {541, 2, 542, 2, -87, -1})
      .ExpectLod("Out", {{0, 2, 2, 3}});
  with("relu").Expect("Out", {3, 2}, {541, 2, 542, 2, 0, 0});
  OpTest("fusion_seqexpand_concat_fc")
      .Input("X", {0, 1}, {})
      .Lod({{0, 0}})
      .Input("X", {1, 1}, {4})
      .Input("FCWeight", {2, 1}, {1, 2})
      .Expect("Out", {0, 1}, {});
}

TEST(FusionSeqexpandConcatFc, Gradients) {
  OpTest("fusion_seqexpand_concat_fc")
      .Attr("fc_activation", std::string("tanh"))
      .RandomInput("X", {3, 2})
      .Lod({{0, 2, 3}})
      .RandomInput("X", {2, 1})
      .RandomInput("X", {2, 2})
      .RandomInput("FCWeight", {5, 3})
      .RandomInput("FCBias", {1, 3})
      .CheckGradient({"X", "FCWeight", "FCBias"});
}

OpTest Expand(const Shape& x, const Shape& y, const Shape& weight, const LoD& lod) {
  return std::move(OpTest("fusion_seqexpand_concat_fc")
                       .RandomInput("X", x)
                       .Lod(lod)
                       .RandomInput("X", y)
                       .RandomInput("FCWeight", weight));
}

TEST(FusionSeqexpandConcatFc, Constraints) {
  const std::string type = "fusion_seqexpand_concat_fc";
  OpTest(type)
      .RandomInput("X", {2, 1})
      .Lod({{0, 2}})
      .RandomInput("FCWeight", {1, 1})
      .ExpectError(type + ".C1");
  Expand({2, 1}, {1}, {2, 1}, {{0, 2}}).ExpectError(type + ".C2");
  Expand({2, 1}, {1, 1}, {3, 1}, {{0, 2}}).ExpectError(type + ".C3");
  Expand({2, 1}, {1, 1}, {2, 1}, {{0, 2}}).RandomInput("FCBias", {2}).ExpectError(type + ".C3");
  Expand({2, 1}, {1, 1}, {2, 1}, {}).ExpectError(type + ".C4");
  Expand({2, 1}, {2, 1}, {2, 1}, {{0, 2}}).ExpectError(type + ".C5");
}

// Sequences of 2, 0 and 1 rows, together with sequences of 1, 1 and 0 rows.
OpTest Pool(const std::string& type, const std::string& pool) {
  return std::move(OpTest(type)
                       .Attr("pooltype", pool)
                       .Input("X", {3, 2}, {1, 2, 3, 5, 4, 6})
                       .Lod({{0, 2, 2, 3}})
                       .Input("X", {2, 2}, {7, 8, 0, 9})
                       .Lod({{0, 1, 2, 2}}));
}

TEST(FusionSeqpoolConcat, Values) {
  const std::string type = "fusion_seqpool_concat";
  Pool(type, "SUM")
      .Expect("Out", {3, 4}, {4, 7, 7, 8, 0, 0, 0, 9, 4, 6, 0, 0})
      .ExpectLod("Out", {{0, 1, 2, 3}});
  Pool(type, "AVERAGE").Expect("Out", {3, 4}, {2, 3.5, 7, 8, 0, 0, 0, 9, 4, 6, 0, 0});
  const double root = std::sqrt(2);
  Pool(type, "SQRT").Expect("Out", {3, 4}, {4 / root, 7 / root, 7, 8, 0, 0, 0, 9, 4, 6, 0, 0});
  OpTest(type).Input("X", {0, 2}, {}).Lod({{0}}).Expect("Out", {0, 2}, {});
}

TEST(FusionSeqpoolCvmConcat, Values) {
  const auto shown = [](double x) { return std::log(x + 1); };
  const auto clicked = [](double x, double y) { return std::log(y + 1) - std::log(x + 1); };
  Pool("fusion_seqpool_cvm_concat", "SUM")
      .Input("CVM", {3, 2}, {0, 0, 0, 0, 0, 0})
      .Expect("Out", {3, 4},
              {shown(4), clicked(4, 7), shown(7), clicked(7, 8), 0, 0, 0, clicked(0, 9), shown(4),
               clicked(4, 6), 0, 0})
      .ExpectLod("Out", {{0, 1, 2, 3}});
}

TEST(FusionSeqpool, Constraints) {
  for (const std::string type : {"fusion_seqpool_concat", "fusion_seqpool_cvm_concat"}) {
    const auto with = [&](const Shape& x, const LoD& lod) {
      OpTest test(type);
      if (type == "fusion_seqpool_cvm_concat") test.RandomInput("CVM", {1, 2});
      test.RandomInput("X", x).Lod(lod);
      return test;
    };
    with({2, 2}, {{0, 2}}).Attr("axis", 0).ExpectError(type + ".C1");
    with({2}, {{0, 2}}).ExpectError(type + ".C2");
    with({2, 2}, {}).ExpectError(type + ".C3");
    with({2, 2}, {{0, 2}}).RandomInput("X", {2, 2}).Lod({{0, 1, 2}}).ExpectError(type + ".C4");
  }
  OpTest("fusion_seqpool_cvm_concat")
      .RandomInput("X", {2, 1})
      .Lod({{0, 2}})
      .RandomInput("CVM", {1, 2})
      .ExpectError("fusion_seqpool_cvm_concat.C2");
  OpTest("fusion_seqpool_cvm_concat")
      .Attr("use_cvm", false)
      .RandomInput("X", {2, 2})
      .Lod({{0, 2}})
      .RandomInput("CVM", {1, 2})
      .ExpectError("fusion_seqpool_cvm_concat.C5");
}
TEST(FusionSeqexpandConcatFc, RefusesColumnsOver31Bits) {
  const int64_t columns = int64_t{1} << 30;
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto var = [&](const char* name, const Shape& shape, int lod_level) {
    root.Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, shape, lod_level});
  };
  var("x", {-1, columns}, 1);
  var("y", {-1, columns}, 0);
  var("w", {2 * columns, 1}, 0);
  root.AppendOp("fusion_seqexpand_concat_fc", {{"X", {"x", "y"}}, {"FCWeight", {"w"}}},
                {{"Out", {"out"}}}, {});
  const std::string error = ErrorOf([&] { ExpandOps(program, DefaultOps()); });
  EXPECT_NE(error.find("fewer than 2^31 columns"), std::string::npos) << error;
}

}  // namespace coracle::fusion_sequence_test
