// Quantised models in ONNX Runtime ($CORACLE_ORT).

#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/quantize/quantize_programs.h>
#include <coracle/test/test_data.h>

namespace coracle::quantize_peer_test {

TEST(QuantizePeer, OnnxRuntimeComputesTheSame) {
  if (const std::string why = WhyNoOrt(); !why.empty()) GTEST_SKIP() << why;
  TestNet net = NetOf(ResidualNet());
  const Shape input = {4, 3, 12, 12};
  const TemporaryDirectory directory;
  net.program.Root().InsertOp(
      0, OpDesc("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}}, {{"col", int32_t{0}}}));
  net.program.Root().Var("feed").SetType(VarType::kFeedMinibatch);
  net.program.Root().Var("feed").SetPersistable(true);
  net.program.Root().AppendOp("fetch", {{"X", {"prob"}}}, {{"Out", {"fetch"}}},
                              {{"col", int32_t{0}}});
  net.program.Root().Var("fetch").SetType(VarType::kFetchList);
  net.program.Root().Var("fetch").SetPersistable(true);
  for (const QuantScheme scheme :
       {QuantScheme::kStatic, QuantScheme::kDynamic, QuantScheme::kWeightOnly}) {
    for (const int bits : {8, 4}) {
      QuantizeOptions options;
      options.scheme = scheme;
      options.weight_bits = bits;
      options.block_size = 16;
      const QuantizedModel model =
          ModelQuantizer(net.program, net.scope, SamplesOf(input), options).Make();
      // A step of 255 in a value before the last layer.
      EXPECT_EQ(CompareWithOrt(directory.File("model"), model.program, model.parameters,
                               {{"x", Drawn(input, 9)}}, 0.004, 21),
                "")
          << static_cast<int>(scheme) << " " << bits;
    }
  }
}

}  // namespace coracle::quantize_peer_test
