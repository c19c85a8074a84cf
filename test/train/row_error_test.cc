// Labels and ids out of range in what is trained on: the error names row, column and op.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/trainer.h>

namespace coracle::row_error_test {

// A line "x,id,label" each; in line 5 is what the test puts there.
class RowError : public ::testing::Test {
 protected:
  std::string ErrorOfRun(const std::string& line_5, const std::string& model,
                         const std::string& rest = "shuffle: false") {
    std::string csv;
    for (int line = 1; line <= 9; ++line)
      csv += line == 5 ? line_5 + "\n" : std::to_string(line) + ",1,2\n";
    WriteFileAtomic(dir_ / "t.csv", csv);
    JobConfig job = ParseJobText(
        "model_text: \"\"\"" + model + "\"\"\"\ntrain { csv { file: \"" + dir_ / "t.csv" +
            "\" column { name: \"1\" ids: \"id\" category: \"0\" category: \"1\" "
            "category: \"2\" category: \"3\" category: \"4\" category: \"5\" } } }\n" +
            "optimizer { sgd {} }\nbatch_size: 2\nmax_iter: 5\n" + rest,
        "job.pbtxt");
    job.output_dir.clear();
    std::string error = "no error";
    try {
      RunJob(job);
    } catch (const Error& e) {
      error = e.what();
    }
    const std::string at = dir_.path() + "/";
    for (size_t i; (i = error.find(at)) != error.npos;) error.erase(i, at.size());
    return error;
  }

  TempDir dir_;
};

constexpr const char* kClassifier = R"(
  data { name: "data" shape: [-1, 1] }
  data { name: "id" shape: [-1, 1] dtype: INT64 }
  data { name: "label" shape: [-1, 1] dtype: INT64 }
  layer { embedding { input: "id" num_embeddings: 4 embedding_dim: 3 output: "e" } }
  layer { fc { input: "data" input: "e" size: 3 output: "logits" } }
  layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
  layer { mean { input: "ce" output: "loss" } }
)";

TEST_F(RowError, Labels) {
  // Rows 4 and 5 are the third batch; its first row is the bad one.
  ExpectContains(ErrorOfRun("5,1,7", kClassifier),
                 "t.csv:5, column 'label', holds 7: softmax_with_cross_entropy: label 7 at index 0 "
                 "lies outside [0, 3)");
}

TEST_F(RowError, RowsAreThoseOfTheFileWhenTheyAreShuffled) {
  for (int seed = 1; seed <= 3; ++seed) {
    ExpectContains(
        ErrorOfRun("5,1,7", kClassifier, "random_seed: " + std::to_string(seed)),
        "t.csv:5, column 'label', holds 7: softmax_with_cross_entropy: label 7 at index ");
  }
}

TEST_F(RowError, Ids) {
  ExpectContains(
      ErrorOfRun("5,5,2", kClassifier),
      "t.csv:5, column 'id', holds 5: lookup_table_v2: Ids holds 5 at 0, outside [0, 4)");
}

// An op's result of a column may be at another place: its source is a guess.
TEST_F(RowError, IdsThatWereMovedAreADetail) {
  std::string model = kClassifier;
  model.replace(model.find("input: \"id\" num"), 11, "input: \"two\"");
  model.insert(
      model.find("layer"),
      "layer { concat { input: \"label\" input: \"id\" axis: 0 output: \"both\" } }\n"
      "layer { op { slice { Input: \"both\" axes: 0 starts: 1 ends: 3 Out: \"two\" } } }\n");
  const std::string error = ErrorOfRun("5,5,2", model);
  const std::string first = error.substr(0, error.find('\n'));
  ExpectContains(first, "lookup_table_v2: Ids holds 5 at 1");
  EXPECT_EQ(first.find("t.csv"), std::string::npos) << first;
  ExpectContains(error, "t.csv:5, column 'id', holds 5");
}

TEST_F(RowError, LabelsOfMetrics) {
  constexpr const char* kModel = R"(
    data { name: "data" shape: [-1, 1] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "data" size: 3 output: "scores" } }
    layer { mean { input: "scores" output: "loss" } }
  )";
  ExpectContains(ErrorOfRun("5,1,7", kModel,
                            "shuffle: false metric { var: \"scores\" name: \"top1\" "
                            "kind: ACCURACY label: \"label\" }"),
                 "t.csv:5, column 'label', holds 7: metric 'top1': label[0] is 7, which must lie "
                 "in [0, 3)");
}

// Two columns hold the value at the op's place: the column that it read is unknown.
TEST_F(RowError, OneOfSeveralColumns) {
  const std::string error = ErrorOfRun("5,5,5", kClassifier);
  ExpectContains(error.substr(0, error.find('\n')), "lookup_table_v2: Ids holds 5 at 0");
  EXPECT_EQ(error.substr(0, error.find('\n')).find("t.csv:5"), std::string::npos) << error;
  ExpectContains(error,
                 "one of these: t.csv:5, column 'id', holds 5; t.csv:5, column 'label', "
                 "holds 5");
}
}  // namespace coracle::row_error_test
