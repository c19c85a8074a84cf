#include <coracle/framework/base/file.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/job_settings.h>
#include <coracle/train/job/job_text_fields.h>

namespace coracle::job_settings_test {

constexpr const char* kJob = R"(# a job
name: "small"  # its name
train { digits { count: 100 seed: 3 } }
metric { var: "acc" name: "accuracy" }
metric { var: "top5" }
optimizer { momentum { learning_rate: 0.5 use_nesterov: true } }
epochs: 2
model_text: """
  data { name: "x{" shape: [-1, 2] }  # "
"""
)";

std::string With(const std::string& setting, std::string_view text = kJob) {
  return WithJobSetting(text, ParseJobSetting(setting));
}
std::string Replaced(std::string from, const std::string& to) {
  std::string text = kJob;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(JobSettings, AGivenFieldTakesTheValue) {
  EXPECT_EQ(With("epochs=7"), Replaced("epochs: 2", "epochs: 7"));
  EXPECT_EQ(With("optimizer.momentum.learning_rate=1e-3"),
            Replaced("learning_rate: 0.5", "learning_rate: 1e-3"));
  EXPECT_EQ(With("optimizer.momentum.use_nesterov=false"),
            Replaced("use_nesterov: true", "use_nesterov: false"));
  EXPECT_EQ(With("train.digits.count=9"), Replaced("count: 100", "count: 9"));
  EXPECT_EQ(With("name=other job"), Replaced("\"small\"", "\"other job\""));
  EXPECT_EQ(With("name=\"a\\\"b\""), Replaced("\"small\"", "\"a\\\"b\""));
}

TEST(JobSettings, ANewFieldIsAddedToItsMessage) {
  EXPECT_EQ(With("optimizer.momentum.momentum=0.8"),
            Replaced("momentum { ", "momentum { momentum: 0.8  "));
  EXPECT_EQ(With("batch_size=3"), std::string(kJob) + "batch_size: 3\n");
  EXPECT_EQ(With("train.digits.classes=[3, 8]"),
            Replaced("digits { ", "digits { classes: [3, 8]  "));
  EXPECT_EQ(
      With("optimizer.gradient_clip.by_global_norm.clip_norm=5"),
      Replaced("optimizer { ", "optimizer { gradient_clip { by_global_norm { clip_norm: 5 } }  "));
  EXPECT_EQ(With("epochs=1", "name: \"a\""), "name: \"a\"\nepochs: 1\n");
  EXPECT_EQ(With("epochs=1", ""), "epochs: 1\n");
}

TEST(JobSettings, OneOfSeveralMessages) {
  EXPECT_EQ(With("metric[1].var=top1"), Replaced("\"top5\"", "\"top1\""));
  EXPECT_EQ(With("metric[0].name=a"), Replaced("\"accuracy\"", "\"a\""));
  EXPECT_EQ(ErrorOf([] { With("metric.var=a"); }),
            "--set=metric.var: the job gives metric 2 times; name one: metric[0]");
  EXPECT_EQ(ErrorOf([] { With("metric[2].var=a"); }),
            "--set=metric[2].var: the job gives metric 2 times; the index begins at 0");
}

TEST(JobSettings, AnEmptyValueRemovesTheField) {
  EXPECT_EQ(With("epochs="), Replaced("epochs: 2", ""));
  EXPECT_EQ(With("optimizer.momentum="),
            Replaced("momentum { learning_rate: 0.5 use_nesterov: true }", ""));
  EXPECT_EQ(With("batch_size="), kJob);
}

TEST(JobSettings, AMessageIsReplacedAsAWhole) {
  EXPECT_EQ(With("optimizer={ adam { learning_rate: 0.1 } }"),
            Replaced("optimizer { momentum { learning_rate: 0.5 use_nesterov: true } }",
                     "optimizer { adam { learning_rate: 0.1 } }"));
  EXPECT_EQ(With("model_text=\"data {}\"").substr(0, 40), std::string(kJob).substr(0, 40));
  EXPECT_NE(With("model_text=\"data {}\"").find("\nmodel_text: \"data {}\"\n"), std::string::npos);
}

TEST(JobSettings, Mistakes) {
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs"); }),
            "--set=epochs: write FIELD=VALUE, as in optimizer.adam.learning_rate=0.01");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epoch=1"); }),
            "--set=epoch: epoch: no such field in a job; did you mean epochs?");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs.x=1"); }),
            "--set=epochs.x: epochs has a value, not fields");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs[0]=1"); }),
            "--set=epochs[0]: epochs is a single field, which takes no index");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("metric[x].var=1"); }),
            "--set=metric[x].var: 'metric[x]' is not a field with an index, as in metric[0]");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs=many"); }),
            "--set=epochs=many: epochs takes a whole number");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("optimizer.adam.learning_rate=fast"); }),
            "--set=optimizer.adam.learning_rate=fast: learning_rate takes a number");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("optimizer=1"); }),
            "--set=optimizer=1: optimizer takes fields in braces, as in \"{ NAME: VALUE }\"");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("shuffle=maybe"); }),
            "--set=shuffle=maybe: shuffle takes true or false");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs=1 batch_size: 2"); }),
            "--set=epochs=1 batch_size: 2: epochs takes a whole number");
  EXPECT_EQ(ErrorOf([] { ParseJobSetting("epochs=1 # all that follows"); }),
            "--set=epochs=1 # all that follows: epochs takes a whole number");
}

TEST(JobSettings, TheJobAndItsTextHaveTheValue) {
  const TempDir dir;
  WriteFileAtomic(dir / "a.pbtxt", kJob);
  const JobConfig job = ReadJobWith(dir / "a.pbtxt", {"epochs=7", "metric[1].name=top"});
  EXPECT_EQ(job.name, "small");
  EXPECT_EQ(job.epochs, 7);
  EXPECT_EQ(job.metrics[1].name, "top");
  EXPECT_EQ(job.settings, (std::vector<std::string>{"epochs=7", "metric[1].name=top"}));
  EXPECT_EQ(job.text, With("metric[1].name=top", With("epochs=7")));
  EXPECT_NE(
      ErrorOf([&] { ReadJobWith(dir / "a.pbtxt", {"batch_size=0"}); }).find("a.pbtxt with --set:"),
      std::string::npos);
}

// Every prefix and every text with one byte removed is scanned without a fault, and all places lie
// in the text.
void CheckPlaces(const std::vector<JobTextField>& entries, size_t begin, size_t end) {
  for (const JobTextField& entry : entries) {
    ASSERT_LE(begin, entry.begin);
    ASSERT_LT(entry.begin, entry.end);
    ASSERT_LE(entry.value, entry.end);
    ASSERT_LE(entry.end, end);
    CheckPlaces(entry.entries, entry.value, entry.end);
    begin = entry.end;
  }
}

TEST(TextEntries, BrokenTexts) {
  const std::string text = kJob;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string prefix = text.substr(0, i);
    CheckPlaces(EntriesOf(prefix), 0, prefix.size());
    std::string hole = text;
    hole.erase(i, 1);
    CheckPlaces(EntriesOf(hole), 0, hole.size());
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a { ";
  CheckPlaces(EntriesOf(deep), 0, deep.size());
}

}  // namespace coracle::job_settings_test
