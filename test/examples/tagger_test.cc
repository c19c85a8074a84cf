// examples/tagger, with a part of its data.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>
#include <tagger.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace coracle::tagger_test {

std::string Example(const std::string& name) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return (source ? std::string(source) : ".") + "/examples/tagger/" + name;
}

TEST(Tagger, SentencesRepeatAndDiffer) {
  const Sentences a = DrawSentences(200, 50, 7), b = DrawSentences(200, 50, 7);
  EXPECT_EQ(a.train, b.train);
  EXPECT_EQ(a.test, b.test);
  for (const Sentence& sentence : a.test)
    EXPECT_EQ(std::count(a.train.begin(), a.train.end(), sentence), 0);
}

TEST(Tagger, MostFrequentTags) {
  const Sentence can = {{"can", "NOUN"}, {"can", "NOUN"}, {"can", "VERB"}, {"we", "PRON"}};
  EXPECT_DOUBLE_EQ(MostFrequentTags({can}, {can}), 0.75);
  EXPECT_DOUBLE_EQ(MostFrequentTags({can}, {{{"boat", "NOUN"}, {"can", "NOUN"}}}), 0.5);
}

// The job with half of its sentences and three epochs: what the model saves and the tagger reads is
// better by far than a tag for each word.
TEST(Tagger, LearnsWhatTheWordsAroundSay) {
  const TemporaryDirectory directory;
  const Sentences sentences = DrawSentences(2000, 500, 1);
  WriteSentences(sentences.train, directory.File("train.npz"));
  WriteSentences(sentences.test, directory.File("test.npz"));
  JobConfig job = ReadJob(Example("job.pbtxt"));
  job.data_dir = directory.path();
  job.output_dir = directory.File("run");
  job.epochs = 3;
  const TrainResult result = RunJob(job);
  const double baseline = MostFrequentTags(sentences.train, sentences.test);
  ASSERT_EQ(result.metrics.at(0).name, "words");
  const double words = result.metrics[0].value, whole = result.metrics.at(1).value;
  EXPECT_GT(baseline, 0.5);
  EXPECT_GT(words, 0.95);
  EXPECT_GT(words, baseline + 0.05);

  Tagger tagger(directory.File("run/model.pdmodel"));
  int right = 0, all = 0, right_sentences = 0;
  for (const Sentence& sentence : sentences.test) {
    std::vector<std::string> text;
    for (const Word& word : sentence) text.push_back(word.text);
    const Sentence tagged = tagger.Tag(text);
    ASSERT_EQ(tagged.size(), sentence.size());
    for (size_t k = 0; k < sentence.size(); ++k) right += tagged[k] == sentence[k];
    all += static_cast<int>(sentence.size());
    right_sentences += tagged == sentence;
  }
  EXPECT_NEAR(static_cast<double>(right) / all, words, 1e-6);
  EXPECT_NEAR(right_sentences / 500.0, whole, 1e-6);
  EXPECT_TRUE(tagger.Tag({}).empty());
  EXPECT_THROW(tagger.Tag({"the", "coracle"}), Error);
}
}  // namespace coracle::tagger_test
