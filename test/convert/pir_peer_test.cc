// Programs of Paddle 3, exported and run by ONNX Runtime.
#include <coracle/convert/models.h>
#include <coracle/operators/operators.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/real_models.h>
#include <gtest/gtest.h>

namespace coracle::pir_peer_test {

TEST(PirPeer, RealProgramsWithDrawnWeights) {
  const std::string reason = WhyNoOrt();
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::string folder = TestDataDirectory() + "/paddle3";
  if (!FileExists(folder)) GTEST_SKIP() << "no test data paddle3";
  const TemporaryDirectory directory;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string() + "/inference.json";
    if (!FileExists(path)) continue;
    SCOPED_TRACE(path);
    const ProgramDesc program = ReadPir(path);
    Scope scope;
    DrawParameters(program, scope);
    std::map<std::string, Tensor> feeds;
    for (const std::string& name : FeedNames(program))
      feeds[name] = DrawInput(program.Root().FindVar(name)->meta(), 96);
    EXPECT_EQ(CompareWithOrt(directory.File(std::to_string(compared)), program, scope, feeds, 1e-4),
              "");
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

}  // namespace coracle::pir_peer_test
