// The fuzzers' functions on their corpora: what was found once stays mended.

#include <coracle/framework/base/file.h>
#include <coracle/test/fuzz/command_targets.h>
#include <coracle/test/fuzz/target_table.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

namespace coracle::corpus_test {

class FuzzCorpus : public testing::TestWithParam<FuzzTarget> {};

// The corpus of the target; "" where the sources are not known.
std::string CorpusOf(const std::string& target) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  return sources ? std::string(sources) + "/test/fuzz/corpus/" + target : "";
}

TEST_P(FuzzCorpus, Runs) {
  const std::string directory = CorpusOf(GetParam().name);
  if (directory.empty()) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    ++files;
    EXPECT_NO_THROW(GetParam().run(ReadFile(entry.path().string()))) << entry.path();
  }
  EXPECT_GT(files, 0) << directory;
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(kFuzzTargets),
                         [](const auto& info) { return std::string(info.param.name); });

bool IsTarget(const std::string& name) {
  return std::any_of(std::begin(kFuzzTargets), std::end(kFuzzTargets),
                     [&](const FuzzTarget& target) { return name == target.name; });
}

// A line of a dictionary is a word in quotation marks, with the escapes that libFuzzer reads.
bool IsDictionaryLine(const std::string& line) {
  static const std::regex word(R"re("([^"\\]|\\["\\]|\\x[0-9a-f]{2})+")re");
  return line.starts_with('#') || std::regex_match(line, word);
}

TEST(FuzzTargets, CorporaAndDictionariesAreThoseOfTargets) {
  const std::string corpora = CorpusOf("");
  if (corpora.empty()) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  for (const auto& entry : std::filesystem::directory_iterator(corpora))
    EXPECT_TRUE(IsTarget(entry.path().filename().string())) << entry.path();
  int words = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CorpusOf("../dictionaries"))) {
    EXPECT_TRUE(IsTarget(entry.path().stem().string())) << entry.path();
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line); ++words)
      EXPECT_TRUE(IsDictionaryLine(line)) << entry.path() << ": " << line;
  }
  EXPECT_GT(words, 1000);
}

// The command's output for a seed: a seed that ends among the flags tries nothing after them.
struct SeedResult {
  int code;
  const char* part;  // of what is printed; "" where nothing is
};

struct CommandCorpus {
  const char* target;
  CommandResult (*run)(std::string_view);
  std::map<std::string, SeedResult> seeds;
};

const CommandCorpus kCommandCorpora[] = {
    {"command_line",
     RunFuzzedCommandLine,
     {{"backward", {0, "fc_0.w_0 -> fc_0.w_0@GRAD"}},
      {"build", {0, "o.pb: 4 ops"}},
      {"check", {0, "no problems"}},
      {"check_grad", {0, "fc_0.w_0  gradient  "}},
      {"convert", {0, ""}},
      {"dump", {0, "fc_0.b_0@GRAD"}},
      {"escapes_in_a_flag", {0, "block 0"}},
      {"explain", {0, "no gradient of 'loss' with respect to 'x'"}},
      {"generate", {0, "ab"}},
      {"help", {0, "usage: coracle train"}},
      {"ops", {0, "Two-dimensional convolution"}},
      {"plot", {0, "o.svg"}},
      {"resume", {0, "resumed run/snapshots/step_00000003"}},
      {"run", {0, "loss: float32[1]"}},
      {"snapshot", {0, "same bit for bit"}},
      {"summary", {0, "multiply-adds"}},
      {"test", {0, "test: loss="}},
      {"time", {0, "whole step"}},
      {"train", {0, "evaluation model o/eval.pdmodel"}}}},
    {"files",
     RunOnFuzzedFile,
     {{"backward", {1, "main.pb: damaged at byte"}},
      {"convert", {1, "train.pb: damaged at byte"}},
      {"convert_name", {0, ""}},
      {"generate_model", {1, "model.pdmodel: damaged at byte"}},
      {"generate_nan_parameters", {1, "sampling_id: row 0 of X holds a nan"}},
      {"generate_parameters", {1, "model.pdiparams (tensor 6 of 7"}},
      {"generate_vocabulary", {1, "not a vocabulary: run/vocabulary.json"}},
      {"log", {1, "not a run's log: run/log.jsonl:1"}},
      {"manifest", {1, "manifest.json: no JSON from byte"}},
      {"resume", {1, "main.pb: damaged at byte"}},
      {"run_parameters", {1, "params (tensor 2 of 2, fc_0.w_0)"}},
      {"snapshot_state", {1, "state.pdiparams (tensor 27 of 36"}},
      {"test_job", {1, "batch_size is given twice"}},
      {"test_model", {1, "eval.pdmodel: damaged at byte"}},
      {"test_nan_parameters", {3, "test: loss=nan"}}}},
    {"job",
     RunFuzzedJob,
     {{"edit", {1, "job.pbtxt:1:164: inpabcdut: no such field"}},
      {"whole", {0, "evaluation model o/eval.pdmodel"}}}}};

TEST(FuzzCorpusOfCommands, SeedsReachWhatTheyAreFor) {
  if (CorpusOf("").empty()) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  for (const CommandCorpus& corpus : kCommandCorpora) {
    for (const auto& entry : std::filesystem::directory_iterator(CorpusOf(corpus.target))) {
      const auto seed = corpus.seeds.find(entry.path().filename().string());
      if (seed == corpus.seeds.end()) {
        ADD_FAILURE() << entry.path() << ": what it gives is not written down";
        continue;
      }
      const CommandResult result = corpus.run(ReadFile(entry.path().string()));
      EXPECT_EQ(result.code, seed->second.code) << entry.path() << "\n" << result.text;
      EXPECT_NE(result.text.find(seed->second.part), std::string::npos) << entry.path() << "\n"
                                                                        << result.text;
    }
  }
}
}  // namespace coracle::corpus_test
