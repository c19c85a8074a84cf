// The fuzzers' functions on their corpora: what was found once stays mended.

#include <coracle/framework/base/file.h>
#include <coracle/test/fuzz/targets.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace coracle {
namespace {

struct FuzzTarget {
  const char* name;
  void (*run)(std::string_view);
};

constexpr FuzzTarget kTargets[] = {{"program_binary", FuzzProgramBinary},
                                   {"program_text", FuzzProgramText},
                                   {"model_text", FuzzModelText},
                                   {"ops", FuzzOps},
                                   {"run", FuzzRun},
                                   {"tensor", FuzzTensor},
                                   {"command_line", FuzzCommandLine},
                                   {"files", FuzzFiles},
                                   {"job", FuzzJob}};

class FuzzCorpus : public testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzCorpus, Runs) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  std::string directory = std::string(sources) + "/test/fuzz/corpus/" + GetParam().name;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    ++files;
    EXPECT_NO_THROW(GetParam().run(ReadFile(entry.path().string()))) << entry.path();
  }
  EXPECT_GT(files, 0) << directory;
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace coracle
