// Programs of ops on sequences, exported for one sequence a run and run by ONNX Runtime.
#include <coracle/test/convert/one_sequence.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

namespace coracle::onnx_sequence_peer_test {

TEST(OnnxSequencePeer, OneSequence) {
  const std::string reason = WhyNoOrt();
  if (!reason.empty()) GTEST_SKIP() << reason;
  const TemporaryDirectory directory;
  int compared = 0;
  for (const auto& nets :
       {one_sequence::GruNets(), one_sequence::LstmNets(), one_sequence::RowNets(),
        one_sequence::TagNets(), one_sequence::LstmpNets(), one_sequence::PadNets()}) {
    for (const one_sequence::Net& net : nets) {
      SCOPED_TRACE(compared);
      const std::string folder = directory.File(std::to_string(compared++));
      const int opset = compared % 2 == 0 ? 17 : 21;
      EXPECT_EQ(CompareWithOrt(folder, net.program, net.scope, net.feeds, 1e-5, opset, true), "");
    }
  }
}

}  // namespace coracle::onnx_sequence_peer_test
