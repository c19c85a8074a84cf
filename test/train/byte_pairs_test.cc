// Byte pairs, against values worked out by hand and against a plain encoder.

#include <coracle/framework/base/file.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <random>

namespace coracle::byte_pairs_test {

using Ids = std::vector<int64_t>;
using Words = std::vector<std::string>;

// The 256 characters of the alphabet in the order of the bytes, then the results of the merges.
Words TokensOf(const Words& merges) {
  Words tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(AlphabetOf(static_cast<unsigned char>(byte)));
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    tokens.push_back(merge);
  }
  return tokens;
}

std::vector<std::string_view> PiecesOf(std::string_view text) {
  std::vector<std::string_view> pieces;
  PieceReader reader(text);
  for (std::string_view piece; reader.Next(&piece);) pieces.push_back(piece);
  return pieces;
}

Words Texts(const std::vector<std::string_view>& pieces) { return {pieces.begin(), pieces.end()}; }

TEST(BytePairs, TheAlphabetIsPrintable) {
  EXPECT_EQ(AlphabetOf('a'), "a");
  EXPECT_EQ(AlphabetOf(' '), "\u0120");
  EXPECT_EQ(AlphabetOf('\n'), "\u010A");
  EXPECT_EQ(AlphabetOf(0), "\u0100");
  EXPECT_EQ(AlphabetOf(0x7F), "\u0121");
  EXPECT_EQ(AlphabetOf(0xA0), "\u0142");
  EXPECT_EQ(AlphabetOf(0xAD), "\u0143");
  EXPECT_EQ(AlphabetOf(0xE9), "\u00E9");
  const Words tokens = TokensOf({});
  Words distinct = tokens;
  std::sort(distinct.begin(), distinct.end());
  EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
}

TEST(BytePairs, TextsAreCutIntoPieces) {
  EXPECT_EQ(Texts(PiecesOf("Hello world")), (Words{"Hello", " world"}));
  EXPECT_EQ(Texts(PiecesOf("I'm here, they're not")),
            (Words{"I", "'m", " here", ",", " they", "'re", " not"}));
  EXPECT_EQ(Texts(PiecesOf("a  b")), (Words{"a", " ", " b"}));
  EXPECT_EQ(Texts(PiecesOf("a \n\n b")), (Words{"a", " \n\n", " b"}));
  EXPECT_EQ(Texts(PiecesOf("a\n\nb")), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(Texts(PiecesOf("end  ")), (Words{"end", "  "}));
  EXPECT_EQ(Texts(PiecesOf("x1 22 !?")), (Words{"x", "1", " 22", " !?"}));
  EXPECT_EQ(Texts(PiecesOf("l'\u00E9t\u00E9")), (Words{"l", "'", "\u00E9t\u00E9"}));
  EXPECT_EQ(Texts(PiecesOf("\u00BD\u3000\u4F60")), (Words{"\u00BD", "\u3000", "\u4F60"}));
  EXPECT_EQ(Texts(PiecesOf("'S 's")), (Words{"'", "S", " '", "s"}));
  EXPECT_TRUE(PiecesOf("").empty());
  ExpectContains(ErrorOf([] { PiecesOf("ab\xff"); }), "byte 2 of the text is not UTF-8");
}

// "lower": l o w e r, by hand. The merge "l o" comes first, then "lo w", then "e r".
TEST(BytePairs, MergesTheFirstPairOfTheList) {
  const Words merges = {"l o", "lo w", "e r", "\u0120 low"};
  const BytePairs pairs(TokensOf(merges), merges, "m");
  EXPECT_EQ(pairs.size(), 260);
  EXPECT_EQ(pairs.Encode("low"), (Ids{257}));
  EXPECT_EQ(pairs.Encode("lower"), (Ids{257, 258}));
  EXPECT_EQ(pairs.Encode(" lower"), (Ids{259, 258}));
  EXPECT_EQ(pairs.Encode("slow"), (Ids{'s', 257}));
  EXPECT_EQ(pairs.Encode("lo w"), (Ids{256, ' ', 'w'}));
  EXPECT_EQ(pairs.Encode("\u00E9"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(pairs.Encode(""), Ids());
  // Occurrences are merged from left to right: aaa is (aa)a.
  const Words twins = {"a a", "aa a"};
  EXPECT_EQ(BytePairs(TokensOf(twins), twins, "m").Encode("aaaaa"), (Ids{256, 257}));
}

// The algorithm word for word: find the pair of the smallest rank, merge all its occurrences.
Ids PlainEncode(const Words& tokens, const Words& merges, const std::string& text) {
  Ids ids;
  for (const std::string_view piece : PiecesOf(text)) {
    Words word;
    for (const char byte : piece) word.push_back(AlphabetOf(static_cast<unsigned char>(byte)));
    while (true) {
      size_t best = merges.size();
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        const auto found = std::find(merges.begin(), merges.end(), word[i] + " " + word[i + 1]);
        best = std::min(best, static_cast<size_t>(found - merges.begin()));
      }
      if (best == merges.size()) break;
      Words merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool here = i + 1 < word.size() && word[i] + " " + word[i + 1] == merges[best];
        merged.push_back(here ? word[i] + word[i + 1] : word[i]);
        i += here;
      }
      word = merged;
    }
    for (const std::string& token : word)
      ids.push_back(std::find(tokens.begin(), tokens.end(), token) - tokens.begin());
  }
  return ids;
}

// Merges in an order that no training makes: those of longer tokens may come first.
TEST(BytePairs, AgreesWithAPlainEncoder) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    Words parts = {"a", "b", "c", "\u0120"}, merges;
    while (merges.size() < 25) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      const std::string both = left + right;
      if (std::find(parts.begin(), parts.end(), both) != parts.end()) continue;
      parts.push_back(both);
      merges.push_back(left + " " + right);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Words tokens = TokensOf(merges);
    const BytePairs pairs(tokens, merges, "m");
    for (int k = 0; k < 20; ++k) {
      std::string text;
      for (size_t n = random() % 60; n > 0; --n) text += "abc  ab"[random() % 7];
      EXPECT_EQ(pairs.Encode(text), PlainEncode(tokens, merges, text)) << '\'' << text << '\'';
    }
  }
}

// A quadratic encoder would need hours.
TEST(BytePairs, LongPiecesAreFast) {
  const Words merges = {"a a", "aa aa", "aaaa aaaa"};
  const BytePairs pairs(TokensOf(merges), merges, "m");
  EXPECT_EQ(pairs.Encode(std::string(200'003, 'a')).size(), 25'000u + 2);
}

// In bytes: the memory of the process now, or the most since ClearPeak.
double Memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return 1024 * std::stod(line.substr(field.size() + 1));
  return 0;
}
bool ClearPeak() { return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5\n"); }

// A cell may have megabytes, with spaces or as a single word.
TEST(BytePairs, MemoryIsInProportion) {
  if (UnderSanitizer()) GTEST_SKIP() << "a sanitizer keeps freed memory";
  const Words merges = {"a a", "aa aa", "aaaa aaaa"};
  const BytePairs pairs(TokensOf(merges), merges, "m");
  constexpr size_t kBytes = size_t{8} << 20;
  std::string words;
  while (words.size() < kBytes) words += "aaaa aaaaaaa ";
  for (const std::string& text : {std::string(kBytes, 'a'), words}) {
    ::malloc_trim(0);
    if (!ClearPeak()) GTEST_SKIP() << "the system does not forget the most memory used";
    const double before = Memory("VmRSS");
    EXPECT_GT(pairs.Encode(text).size(), kBytes / 9);
    EXPECT_LT((Memory("VmHWM") - before) / static_cast<double>(text.size()), 30);
  }
}

class BytePairFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileAtomic(dir_ / "merges.txt", "#version: 0.2\nl o\nlo w\ne r\n");
    WriteFileAtomic(dir_ / "vocab.json", Vocabulary({"l o", "lo w", "e r"}));
  }
  static std::string Vocabulary(const Words& merges) {
    std::string text = "{";
    const Words tokens = TokensOf(merges);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool marked = tokens[i] == "\"" || tokens[i] == "\\";
      text += (i > 0 ? ", \"" : "\"") + std::string(marked ? "\\" : "") + tokens[i] +
              "\": " + std::to_string(i);
    }
    return text + "}";
  }
  std::string FailureOf(const std::string& merges, const std::string& vocabulary) {
    WriteFileAtomic(dir_ / "m", merges);
    WriteFileAtomic(dir_ / "v", vocabulary);
    return ErrorOf([&] { BytePairs::Read(dir_ / "m", dir_ / "v"); });
  }
  TempDir dir_;
};

TEST_F(BytePairFiles, AreRead) {
  const BytePairs pairs = BytePairs::Read(dir_ / "merges.txt", dir_ / "vocab.json");
  EXPECT_EQ(pairs.merges(), (Words{"l o", "lo w", "e r"}));
  EXPECT_EQ(pairs.Encode("lower"), (Ids{257, 258}));
}

TEST_F(BytePairFiles, DamagedOnesAreRefused) {
  const std::string good = ReadFile(dir_ / "vocab.json");
  ExpectContains(FailureOf("l o\nlo x\n", good), "merge 'lo x' needs the token 'lox'");
  ExpectContains(FailureOf("l o\nl o\n", good), "the merge 'l o' appears twice");
  ExpectContains(FailureOf("l o w\n", good), "must be two tokens with a space between");
  ExpectContains(FailureOf("l o\n", "{\"l\": 0, \"o\": 2}"), "must be 0 to 1, each once");
  ExpectContains(FailureOf("l o\n", "[1]"), "v");
  const BytePairs few({"a", "b"}, {}, "m");
  ExpectContains(ErrorOf([&] { few.Encode("abc"); }), "no token for the byte 0x63");
}

constexpr const char* kJob = R"(
name: "t" model_text:
  "data { name: 'text' shape: [-1, 4] dtype: INT64 } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { embedding { input: 'text' num_embeddings: 259 embedding_dim: 3 output: 'e' } } "
  "layer { reduce_sum { input: 'e' dim: 1 output: 's' } } layer { fc { input: 's' size: 2 output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { csv { file: "t.csv" header: true
  column { name: "text" byte_pairs { merges: "merges.txt" vocabulary: "vocab.json" padding: 7 } length: 4 } } }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 2 epochs: 1
deploy { input: "text" output: "z" })";

// The same numbers in training and for raw rows, without the files.
TEST_F(BytePairFiles, OfAColumnAreKeptWithTheModel) {
  WriteFileAtomic(dir_ / "t.csv", "text,label\nlower,0\n\"low, slow\",1\n");
  JobConfig job = ParseJobText(kJob, "job.pbtxt", dir_.path());
  const DataSourcePtr data = OpenTrainData(job);
  std::vector<Tensor> out{Tensor(DType::kInt64, {2, 4}), Tensor(DType::kInt64, {2, 1}),
                          Tensor(DType::kInt64, {2, 1})};
  data->Get(std::vector<int64_t>{0, 1}, out);
  EXPECT_EQ(Ids(out[0].data<int64_t>(), out[0].data<int64_t>() + 8),
            (Ids{257, 258, 7, 7, 257, ',', ' ', 's'}));
  EXPECT_EQ(out[1].data<int64_t>()[0], 2);
  job.output_dir = dir_ / "out";
  const std::string model = RunJob(job).model_path;
  std::filesystem::remove(dir_ / "merges.txt");
  std::filesystem::remove(dir_ / "vocab.json");
  const Predictor predictor(model);
  const auto answer = [&](const std::string& text) {
    return predictor.Predict(RawRow{{{"text", text}}, {}})[0].values;
  };
  Scope scope;
  const InferenceModel loaded = LoadInferenceModel(model, scope);
  PreparedProgram prepared = Executor().PrepareFrozen(loaded.program, scope);
  const Tensor feed = Tensor::Of<int64_t>({1, 4}, {257, 258, 7, 7});
  const Tensor want = prepared.Run(scope, {feed})[0].Clone();
  EXPECT_TRUE(BitEqual(answer("lower").Reshaped({1, 2}), want));
  EXPECT_FALSE(BitEqual(answer("slow").Reshaped({1, 2}), want));
}

}  // namespace coracle::byte_pairs_test
