// Wrong job texts, as a user meets them: each gives one line with its place, and exit code 1.

#include <coracle/framework/base/file.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

namespace coracle::job_errors_test {

constexpr const char* kModel = R"(data { name: "x" shape: [-1, 2] }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "x" size: 2 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { accuracy { input: "logits" label: "label" output: "acc" } }
layer { softmax { input: "logits" output: "prob" } }
)";

constexpr const char* kJob = R"(name: "j"
model: "model.pbtxt"
train { csv { file: "data.csv" } }
test { csv { file: "data.csv" } }
bind { column: "data" var: "x" }
metric { var: "acc" name: "accuracy" }
loss: "loss"
optimizer { sgd { learning_rate: 0.1 } }
batch_size: 2
max_iter: 3
deploy { input: "x" output: "prob" }
)";

struct Case {
  const char* before;  // is replaced by
  const char* after;
  const char* message;  // begins with the place, but for "coracle: "
};

const Case kCases[] = {
    // names
    {"batch_size: 2", "batch_sise: 2",
     "job.pbtxt:9:1: batch_sise: no such field in a job; did you "
     "mean batch_size?"},
    {"sgd {", "sgdd {", "job.pbtxt:8:13: sgdd: no such field in optimizer; did you mean sgd?"},
    {"file: \"data.csv\" } }\ntest", "fille: \"data.csv\" } }\ntest",
     "job.pbtxt:3:15: fille: no such field in csv; did you mean file?"},
    {"loss: \"loss\"", "loss: \"los\"",
     "job.pbtxt:7:1: loss 'los': the model has no such variable; did you mean loss?"},
    {"var: \"acc\"", "var: \"ac\"",
     "job.pbtxt:6:10: metric 'ac': the model has no such variable; "
     "did you mean acc?"},
    {"column: \"data\"", "column: \"dat\"", "job.pbtxt:5:1: bind: "},
    {"var: \"x\"", "var: \"xx\"",
     "job.pbtxt:5:23: bind 'xx': the model has no such variable; did "
     "you mean x?"},
    {"output: \"prob\"", "output: \"prop\"", "job.pbtxt:11:21: deploy output 'prop': "},
    {"input: \"x\" output", "input: \"y\" output", "job.pbtxt:11:10: deploy input 'y': "},
    {"max_iter: 3", "max_iter: 3 freeze: \"fc_7.*\"",
     "job.pbtxt:10:13: freeze 'fc_7.*' matches none of the parameters: "},
    {"max_iter: 3", "max_iter: 3 early_stop { metric: \"acuracy\" }",
     "job.pbtxt:10:26: no test set gives 'acuracy'; there are "},
    {"max_iter: 3", "max_iter: 3 best { metric: \"valid/loss\" }",
     "job.pbtxt:10:20: no test set gives 'valid/loss'; there are "},
    {"max_iter: 3", "max_iter: 3 recompute { checkpoint: \"h\" }",
     "job.pbtxt:10:25: recompute checkpoint 'h': the model has no such variable"},
    {"max_iter: 3", "max_iter: 3 shuffle: false carry { from: \"prob\" to: \"state\" }",
     "job.pbtxt:10:28: states can only be carried through a text: "},
    {"metric { var: \"acc\"", "metric { var: \"prob\" kind: ACCURACY label: \"lable\"",
     "job.pbtxt:6:37: metric label 'lable': the model has no such variable; did you mean label?"},
    // types
    {"batch_size: 2", "batch_size: two", "job.pbtxt:9:13: expected integer, got: two"},
    {"batch_size: 2", "batch_size: 2.5", "job.pbtxt:9:13: expected integer, got: 2.5"},
    {"learning_rate: 0.1", "learning_rate: \"fast\"", "job.pbtxt:8:34: expected double, got: "},
    {"loss: \"loss\"", "loss: loss", "job.pbtxt:7:7: expected string, got: loss"},
    {"max_iter: 3", "max_iter: 3 shuffle: 7", "job.pbtxt:10:22: "},
    {"name: \"accuracy\"", "name: \"accuracy\" kind: MEDIAN",
     "job.pbtxt:6:44: MEDIAN: no such value of kind; did you mean MEAN?; known: MEAN, "
     "PERPLEXITY, "},
    {"max_iter: 3", "max_iter: 3 signal { sigint: HALT }",
     "job.pbtxt:10:30: HALT: no such value of sigint; known: NONE, STOP, SNAPSHOT"},
    {"max_iter: 3", "max_iter: 3 max_iter: 4", "job.pbtxt:10:13: max_iter is given twice"},
    {"optimizer { sgd { learning_rate: 0.1 } }", "optimizer: 0.1",
     "job.pbtxt:8:12: expected \"{\""},
    // ranges
    {"batch_size: 2", "batch_size: 0", "job.pbtxt:9:1: batch_size must be at least 1, got 0"},
    {"batch_size: 2", "batch_size: 99999999999999999999",
     "job.pbtxt:9:13: integer out of range (99999999999999999999)"},
    {"max_iter: 3", "max_iter: -1", "job.pbtxt:10:1: max_iter must be at least 1, got -1"},
    {"learning_rate: 0.1", "learning_rate: -1",
     "job.pbtxt:8:19: sgd: learning_rate must be finite and"},
    {"max_iter: 3", "max_iter: 3 average_loss: 0",
     "job.pbtxt:10:13: average_loss must be at least 1, got 0"},
    {"max_iter: 3", "max_iter: 3 max_seconds: -2",
     "job.pbtxt:10:13: max_seconds must be positive, got -2"},
    {"max_iter: 3", "max_iter: 3 early_stop { patience: 0 }",
     "job.pbtxt:10:26: patience must be at least 1, got 0"},
    {"max_iter: 3", "max_iter: 3 snapshot_interval: -5",
     "job.pbtxt:10:13: snapshot_interval must be at least 0, got -5"},
    {"max_iter: 3", "max_iter: 3 random_seed: -1", "job.pbtxt:10:26: expected integer, got: -"},
    {"metric { var: \"acc\"", "metric { var: \"prob\" kind: ACCURACY label: \"label\" k: 0",
     "job.pbtxt:6:52: k must be at least 1, got 0"},
    {"max_iter: 3", "max_iter: 3 recompute { memory_mb: 0 }",
     "job.pbtxt:10:25: memory_mb must be in [1, "},
    {"file: \"data.csv\" } }\ntest", "file: \"data.csv\" } first: 10 }\ntest",
     "job.pbtxt:3:1: train: "},
    {"batch_size: 2", "batch_size: 9 drop_last: true", "job.pbtxt:9:1: "},
    // missing files
    {"model.pbtxt", "modle.pbtxt", "job.pbtxt:2:1: model: file 'modle.pbtxt' does not exist"},
    {"data.csv\" } }\ntest", "nowhere.csv\" } }\ntest",
     "job.pbtxt:3:1: train: cannot open 'nowhere.csv': No such file or directory"},
    {"data.csv\" } }\nbind", "nowhere.csv\" } }\nbind",
     "job.pbtxt:4:1: test: cannot open 'nowhere.csv': No such file or directory"},
    {"csv { file: \"data.csv\" } }\nbind", "idx { images: \"a.gz\" labels: \"b.gz\" } }\nbind",
     "job.pbtxt:4:1: test: "},
    {"max_iter: 3", "max_iter: 3 weights { file: \"w.npz\" }",
     "job.pbtxt:10:13: cannot open 'w.npz': No such file or directory"},
    {"max_iter: 3", "max_iter: 3 weights { }", "job.pbtxt:10:13: weights needs file"},
    {"max_iter: 3", "max_iter: 3 output_dir: \"data.csv/out\"",
     "job.pbtxt:10:13: cannot make directory "},
    // contradictions
    {"max_iter: 3\n", "\n", "job.pbtxt:1:1: the job has no end; give max_iter or epochs"},
    {"model: \"model.pbtxt\"\n", "\n", "job.pbtxt:1:1: the job has no model; give model or "},
    {"model: \"model.pbtxt\"", "model: \"model.pbtxt\" model_text: \"\"",
     "job.pbtxt:2:22: model_text and model cannot both be given"},
    {"train { csv { file: \"data.csv\" } }\n", "\n",
     "job.pbtxt:1:1: the job has no training data; give train"},
    {"train { csv { file: \"data.csv\" } }", "train { }",
     "job.pbtxt:3:1: train has no data; give it one of digits, idx, csv, npz, text, lmdb, "
     "leveldb, pictures"},
    {"{ csv { file: \"data.csv\" } }\ntest", "{ csv { file: \"data.csv\" } digits { } }\ntest",
     "job.pbtxt:3:34: give either digits or csv, not both"},
    {"sgd {", "adam { } sgd {", "job.pbtxt:8:22: "},
    {"optimizer { sgd { learning_rate: 0.1 } }", "optimizer { }",
     "job.pbtxt:8:1: optimizer has no kind; give it one of "},
    {"batch_size: 2", "batch_size: 2 batch_size: 3", "job.pbtxt:9:15: "},
    {"max_iter: 3", "max_iter: 3 best { } early_stop { metric: \"accuracy\" }",
     "job.pbtxt:10:35: metric is not that of best, which early_stop watches too; leave it out"},
    {"max_iter: 3", "max_iter: 3 best { metric: \"accuracy\" } early_stop { min_delta: 0.1 }",
     "job.pbtxt:10:54: min_delta is not that of best, which early_stop watches too"},
    // what would fail, or mean nothing, after the first step
    {"output: \"prob\"", "output: \"prob\" output: \"loss\"",
     "job.pbtxt:11:36: the deployed output 'loss' needs 'label', which is not a deployed input; "
     "add"},
    {"column: \"data\" var: \"x\" }",
     "column: \"data\" var: \"x\" } bind { column: \"label\" var: "
     "\"ce\" }",
     "job.pbtxt:5:57: bind: 'ce' is not an input of the model; its inputs are x, label"},
    {"column: \"data\" var: \"x\" }",
     "column: \"data\" var: \"x\" } bind { column: \"data\" var: "
     "\"x\" }",
     "job.pbtxt:5:56: bind: 'x' is bound twice"},
    {"metric { var: \"acc\"", "metric { var: \"prob\" kind: ACCURACY label: \"label\" k: 3",
     "job.pbtxt:6:1: metric 'accuracy': k is 3, but 'prob' has 2 classes"},
    {"optimizer { sgd { learning_rate: 0.1 } }",
     "optimizer { sgd { learning_rate: 0.1 } no_decay: \"bias*\" }",
     "job.pbtxt:8:1: no_decay 'bias*' matches none of the parameters: fc_0.w_0, fc_0.b_0"},
    {"csv { file: \"data.csv\" } }\ntest", "csv { file: \"data.csv\" } split { seed: 3 } }\ntest",
     "job.pbtxt:4:1: test and train read 'data.csv' with different splits: rows would be trained "
     "on and tested on"},
    {"csv { file: \"data.csv\" } }\ntest",
     "csv { file: \"data.csv\" } split { holdout: 1 } }\ntest",
     "job.pbtxt:3:42: holdout must lie in (0, 1), got 1"},
    {"file: \"data.csv\" } }\ntest",
     "file: \"data.csv\" column { name: \"0\" ids: \"a\" } } }\ntest",
     "job.pbtxt:3:51: ids needs the words: category: \"...\""},
    {"test { csv { file: \"data.csv\" } }", "test { csv { file: \"classes.csv\" } }",
     "job.pbtxt:4:1: classes.csv:2, column 'label', holds 7: softmax_with_cross_entropy: label 7"},
    {"test { csv { file: \"data.csv\" } }\n", "best { }\n",
     "job.pbtxt:4:1: there is nothing to watch without test data"},
    {"test { csv { file: \"data.csv\" } }\n", "test_iter: 4\n",
     "job.pbtxt:4:1: test_iter is of test, which is not given"},
    {"max_iter: 3", "max_iter: 3 test_set { name: \"test\" data { csv { file: \"data.csv\" } } }",
     "job.pbtxt:10:13: two test sets are called 'test'"},
    {"max_iter: 3", "max_iter: 3 test_set { name: \"a b\" data { digits { } } }",
     "job.pbtxt:10:24: name must be a word without slashes"},
    {"max_iter: 3", "max_iter: 3 test_set { name: \"other\" }",
     "job.pbtxt:10:13: test_set needs data"},
    {"max_iter: 3", "max_iter: 3 metric { var: \"acc\" name: \"loss\" }",
     "job.pbtxt:10:13: two values are shown as 'loss'"},
    {"name: \"accuracy\"", "kind: AUC", "job.pbtxt:6:21: kind AUC needs label"},
    {"name: \"accuracy\"", "label: \"label\"", "job.pbtxt:6:21: label is not of the kind MEAN"},
    {"max_iter: 3", "max_iter: 3 log { histogram_interval: 5 }",
     "job.pbtxt:10:19: histogram_interval needs tensorboard: true"},
    {"max_iter: 3", "max_iter: 3 recompute { }",
     "job.pbtxt:10:13: recompute needs either checkpoint or memory_mb"},
    {"max_iter: 3", "max_iter: 3 shuffle: true carry { from: \"prob\" to: \"x\" }",
     "job.pbtxt:10:13: shuffle must be false where states are carried"},
    {"deploy { input: \"x\" output: \"prob\" }", "deploy { input: \"x\" }",
     "job.pbtxt:11:1: deploy needs both input and output"},
    {"csv { file: \"data.csv\" } }\ntest", "csv { file: \"data.csv\" delimiter: \"ab\" } }\ntest",
     "job.pbtxt:3:32: delimiter must be one character"},
    {"csv { file: \"data.csv\" } }\ntest", "csv { file: \"data.csv\" label_kind: CLASS } }\ntest",
     "job.pbtxt:3:32: label_kind CLASS needs the names of the classes"},
    {"max_iter: 3", "max_iter: 3 freeze: \"fc_[\"",
     "job.pbtxt:10:13: freeze 'fc_[' is not a regular expression: "},
    // shapes
    {"loss: \"loss\"", "loss: \"logits\"", "job.pbtxt:7:1: "},
    {"var: \"acc\"", "var: \"prob\"",
     "job.pbtxt:6:10: metric 'prob' must hold one number, a mean "
     "over the batch; it is float32[-1, 2]"},
    {"column: \"data\" var: \"x\"", "column: \"label\" var: \"x\"",
     "job.pbtxt:5:1: model input 'x' is float32[-1, 2], but the rows of column 'label' are "
     "int64[1]"},
    {"bind { column: \"data\" var: \"x\" }\n", "\n",
     "job.pbtxt:3:1: nothing feeds model input 'x': "},
    {"csv { file: \"data.csv\" } }\ntest", "csv { file: \"data.csv\" shape: 3 } }\ntest",
     "job.pbtxt:3:1: train: "},
    {"model: \"model.pbtxt\"", "model: \"wide.pbtxt\"",
     "job.pbtxt:5:1: model input 'x' is float32[-1, 3], but the rows of column 'data' are "
     "float32[2]"},
    // in the model that the job names
    {"model: \"model.pbtxt\"", "model: \"typo.pbtxt\"",
     "typo.pbtxt:3:25: sise: no such field in fc; did you mean size?"},
    {"model: \"model.pbtxt\"", "model: \"shapes.pbtxt\"", "shapes.pbtxt:8:9: elementwise_add: "},
    // the text itself
    {"deploy { input: \"x\" output: \"prob\" }", "deploy { input: \"x\" output: \"prob\"",
     "job.pbtxt:12:1: expected identifier, got the end of the text; is a closing brace missing?"},
    {"name: \"j\"", "name: \"j", "job.pbtxt:1:"},
    {"name: \"j\"", "name = \"j\"", "job.pbtxt:1:6: expected \":\", found \"=\""},
};

std::string Replaced(std::string text, const std::string& before, const std::string& after) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return at == std::string::npos ? text : text.replace(at, before.size(), after);
}

struct Result {
  std::string text;
  int code;
};

Result Shell(const std::string& command) {
  Result result;
  FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) result.text.append(buffer, n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  return result;
}

class JobErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "job_errors.XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    WriteFileAtomic(dir_ + "/data.csv", "1,2,0\n3,4,1\n5,6,0\n");
    WriteFileAtomic(dir_ + "/classes.csv", "1,2,0\n3,4,7\n");
    WriteFileAtomic(dir_ + "/model.pbtxt", kModel);
    WriteFileAtomic(dir_ + "/wide.pbtxt", Replaced(kModel, "[-1, 2]", "[-1, 3]"));
    WriteFileAtomic(dir_ + "/typo.pbtxt", Replaced(kModel, "size: 2", "sise: 2"));
    WriteFileAtomic(dir_ + "/shapes.pbtxt",
                    std::string(kModel) +
                        "layer { elementwise_add { x: \"prob\" y: \"ce\" axis: 5 "
                        "output: \"sum\" } }\n");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  Result Train(const std::string& job) {
    WriteFileAtomic(dir_ + "/job.pbtxt", job);
    return Shell("cd " + dir_ + " && " CORACLE_CLI " train job.pbtxt");
  }
  std::string dir_;
};

TEST_F(JobErrors, TheJobItselfIsRight) {
  const Result result = Train(kJob);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("\nfinal: loss="), std::string::npos);
}

TEST_F(JobErrors, EachIsOneLineWithItsPlace) {
  EXPECT_GE(std::size(kCases), 40u);
  for (const Case& wrong : kCases) {
    const Result result = Train(Replaced(kJob, wrong.before, wrong.after));
    SCOPED_TRACE(std::string(wrong.after) + "\n" + result.text);
    EXPECT_EQ(result.code, 1);
    const std::string line = result.text.substr(0, result.text.find('\n'));
    EXPECT_EQ(line.substr(0, 9 + std::string(wrong.message).size()),
              std::string("coracle: ") + wrong.message);
    EXPECT_TRUE(std::regex_search(line, std::regex("^coracle: [a-z.]+:[0-9]+:[0-9]+: "))) << line;
    // Details are indented.
    for (size_t at = result.text.find('\n'); at + 1 < result.text.size();
         at = result.text.find('\n', at + 1))
      EXPECT_EQ(result.text.substr(at + 1, 2), "  ");
  }
}
}  // namespace coracle::job_errors_test
