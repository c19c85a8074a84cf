// `coracle report` as a user runs it.

#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>

#include <cmath>

namespace coracle::report_cli_test {

constexpr const char* kIris = R"(
name: "iris" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 3 output: 'z' } } layer { softmax { input: 'z' output: 'prob' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'y' output: 'c' } } "
  "layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "rows.csv" header: true label: "kind" label_kind: CLASS class: ["a", "b", "<c>"] } }
test { csv { file: "rows.csv" header: true label: "kind" label_kind: CLASS class: ["a", "b", "<c>"] } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "prob" name: "f1" kind: F1 label: "y" }
metric { var: "prob" name: "top2" kind: ACCURACY label: "y" k: 2 }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 2 epochs: 3
deploy { input: "x" output: "prob" } output_dir: "iris"
)";
constexpr const char* kRows = "p,kind,q\n1,a,2\n2,b,1\n0,<c>,3\n1.5,a,1\n3,b,0\n";

class ReportCli : public Cli {
 protected:
  JsonReader Report(const std::string& command) {
    Expect(command + " -o report.json", 0, {"report.json"});
    return JsonReader(ReadFile(Path("report.json")), "report.json");
  }
};

TEST_F(ReportCli, Classes) {
  WriteFileAtomic(Path("job.pbtxt"), kIris);
  WriteFileAtomic(Path("rows.csv"), kRows);
  const std::string trained = Shell("cd " + dir_ + " && coracle train job.pbtxt").text;
  ASSERT_NE(trained.find("final:"), std::string::npos) << trained;
  const JsonReader json = Report("coracle report iris --data=rows.csv --worst=2 --top=2");
  EXPECT_EQ(json.At("rows").Integer(0), 5);
  EXPECT_EQ(json.At("worst").Items().size(), 2u);
  EXPECT_EQ(json.At("columns").Items()[1].Text(), "q");
  EXPECT_EQ(json.At("worst").Items()[0].At("cells").Items().size(), 2u);
  const JsonReader scores = json.At("scores");
  EXPECT_EQ(scores.At("classes").Items()[2].At("name").Text(), "<c>");
  // The job measured the same on the same rows.
  const auto measured = [&](const std::string& name) {
    const size_t at = trained.rfind(" " + name + "=");
    return at == trained.npos ? NAN : std::strtod(trained.c_str() + at + name.size() + 2, nullptr);
  };
  EXPECT_NEAR(scores.At("macro").At("f1").Number(), measured("f1"), 1e-4);
  EXPECT_NEAR(scores.At("top_k").Number(), measured("top2"), 1e-4);
  Expect("coracle report iris --data=rows.csv", 0,
         {"confusion matrix", "2: <c>", "macro average", "worst rows", "rows.csv:"});
  Expect("coracle report iris/model.pdmodel --data=rows.csv -o report.html", 0, {"report.html"});
  const std::string page = ReadFile(Path("report.html"));
  EXPECT_NE(page.find("2: &#60;c&#62;"), std::string::npos);
  EXPECT_NE(page.find("<h2>Calibration</h2>"), std::string::npos);
  Expect("coracle report iris --data=rows.csv -o report.txt && cat report.txt", 0, {"Brier score"});
  const JsonReader of_job = Report("coracle report iris --job=job.pbtxt --top=2");
  EXPECT_EQ(of_job.At("scores").At("log_loss").Number(), scores.At("log_loss").Number());
  EXPECT_EQ(of_job.At("scores").At("classes").Items()[2].At("name").Text(), "<c>");
  Expect("coracle report iris --job=job.pbtxt --test_set=valid", 1, {"no test set 'valid'"});
  Expect("coracle report iris --job=job.pbtxt --data=rows.csv", 2, {"or --job=JOB.pbtxt"});
  // Another column has the label, of classes' names or numbers.
  WriteFileAtomic(Path("other.csv"), "q,truth,p\n2,a,1\n1,1,2\n");
  EXPECT_EQ(Report("coracle report iris --data=other.csv --label=truth").At("rows").Integer(0), 2);
  WriteFileAtomic(Path("rows.jsonl"), "{\"p\": 1, \"q\": 2, \"kind\": \"b\"}\n");
  EXPECT_EQ(Report("coracle report iris --data=rows.jsonl --label=kind").At("rows").Integer(0), 1);
}

TEST_F(ReportCli, RefusesBadLabels) {
  WriteFileAtomic(Path("job.pbtxt"), kIris);
  WriteFileAtomic(Path("rows.csv"), kRows);
  Expect("coracle train job.pbtxt", 0, {});
  const auto refused = [&](const std::string& rows, const std::string& error) {
    WriteFileAtomic(Path("bad.csv"), rows);
    Expect("coracle report iris --data=bad.csv", 1, {error});
  };
  refused("p,kind,q\n1,d,2\n", "bad.csv:2: the label 'd' is not one of the classes");
  refused("p,kind,q\n1,7,2\n", "bad.csv:2: the label is 7, which must lie in [0, 3)");
  refused("p,q\n1,2\n", "bad.csv:2: the label is missing");
  refused("p,kind,q\n1,,2\n", "bad.csv:2: the label is missing");
  refused("p,kind,q\n", "there are no rows to measure");
  refused("p,kind,q\nx,a,2\n", "bad.csv:2:1: 'x' is not a number");
  Expect("coracle report iris", 2, {"needs --data=ROWS"});
  Expect("coracle report iris --data=rows.csv --out=report.pdf", 2, {"--out"});
  Expect("coracle report iris --data=rows.csv --top=0", 2, {"--top must be at least 1"});
  Expect("coracle report iris --data=rows.csv --label=kin", 1, {"the column 'kin' is missing"});
  WriteFileAtomic(Path("rows.jsonl"), "{\"p\": 1, \"q\": 2, \"kind\": \"b\"}\n");
  Expect("coracle report iris --data=rows.jsonl", 0, {"rows.jsonl:1"});
}

// Where names of classes are numbers, a number is a name and never the place of a class.
// Training, test and report read the same labels.
TEST_F(ReportCli, LabelsAreReadAsInTraining) {
  std::string job = kIris;
  const std::string classes = "label_kind: CLASS class: [\"a\", \"b\", \"<c>\"]";
  for (size_t at; (at = job.find(classes)) != job.npos;)
    job.replace(at, classes.size(), "label_kind: INTEGER");
  WriteFileAtomic(Path("job.pbtxt"), job);
  WriteFileAtomic(Path("rows.csv"), "p,kind,q\n1,+1,2\n2, 1,1\n0,1.0,3\n1.5,01,1\n3,2,0\n2,0,2\n");
  Expect("coracle train job.pbtxt", 0, {"final:"});
  Expect("coracle test iris --data=rows.csv", 0, {"test: rows=6 accuracy="});
  const JsonReader json = Report("coracle report iris --data=rows.csv");
  EXPECT_EQ(json.At("scores").At("classes").Items()[1].At("rows").Integer(0), 4);
  for (const char* command :
       {"coracle test iris --data=bad.csv", "coracle report iris --data=bad.csv"}) {
    WriteFileAtomic(Path("bad.csv"), "p,kind,q\n1,1.5,2\n");
    Expect(command, 1, {"bad.csv:2: the label '1.5' is not"});
  }
}

// The description names the label, for rows of JSON too.
TEST_F(ReportCli, RowsOfJsonHaveTheLabelOfTheJob) {
  WriteFileAtomic(Path("job.pbtxt"), kIris);
  WriteFileAtomic(Path("rows.csv"), kRows);
  Expect("coracle train job.pbtxt", 0, {"final:"});
  WriteFileAtomic(
      Path("rows.jsonl"),
      "{\"p\": 1, \"kind\": \"a\", \"q\": 2}\n{\"p\": 2, \"kind\": \"b\", \"q\": 1}\n"
      "{\"p\": 0, \"kind\": \"<c>\", \"q\": 3}\n{\"p\": 1.5, \"kind\": \"a\", \"q\": 1}\n"
      "{\"q\": 0, \"p\": 3, \"kind\": \"b\"}\n");
  const JsonReader lines = Report("coracle report iris --data=rows.jsonl");
  const double of_lines = lines.At("scores").At("log_loss").Number();
  EXPECT_EQ(Report("coracle report iris --data=rows.csv").At("scores").At("log_loss").Number(),
            of_lines);
  WriteFileAtomic(Path("rows.jsonl"), "{\"p\": 1, \"q\": 2}\n");
  Expect("coracle report iris --data=rows.jsonl", 1, {"rows.jsonl:1: the label is missing"});
}

// Nothing says that features are scores, so they are not taken for scores.
TEST_F(ReportCli, FeaturesAreRefused) {
  std::string job = kIris;
  job.replace(job.find("layer { fc { input: 'x' size: 3 output: 'z' } }"), 47,
              "layer { fc { input: 'x' size: 3 act: 'tanh' output: 'f' } } "
              "layer { fc { input: 'f' size: 3 output: 'z' } }");
  job.replace(job.find("deploy { input: \"x\" output: \"prob\" }"), 36,
              "deploy { input: \"x\" output: \"f\" }");
  WriteFileAtomic(Path("job.pbtxt"), job);
  WriteFileAtomic(Path("rows.csv"), kRows);
  Expect("coracle train job.pbtxt", 0, {"final:"});
  Expect("coracle report iris --data=rows.csv", 1,
         {"the labels cannot be compared with the output 'f'", "give --scores, or kind: CLASSES"});
  Expect("coracle report iris --job=job.pbtxt", 1, {"give --scores, or kind: CLASSES"});
  Expect("coracle report iris --data=rows.csv --scores", 0, {"accuracy"});
  Expect("coracle predict iris rows.csv", 0, {"f\n"});
}

TEST_F(ReportCli, ClassesCalledByNumbers) {
  const auto renamed = [](std::string text, const std::string& quote) {
    for (const auto& [from, to] : {std::pair("a", "3"), std::pair("b", "8")})
      for (size_t at; (at = text.find(quote + from + quote)) != text.npos;)
        text.replace(at + quote.size(), 1, to);
    return text;
  };
  WriteFileAtomic(Path("job.pbtxt"), renamed(kIris, "\""));
  WriteFileAtomic(Path("rows.csv"), renamed(kRows, ","));
  Expect("coracle train job.pbtxt", 0, {});
  EXPECT_EQ(Report("coracle report iris --data=rows.csv").At("rows").Integer(0), 5);
  WriteFileAtomic(Path("bad.csv"), "p,kind,q\n1,1,2\n");
  Expect("coracle report iris --data=bad.csv", 1,
         {"bad.csv:2: the label '1' is not one of the classes"});
}

TEST_F(ReportCli, Numbers) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
name: "town" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] } "
  "layer { fc { input: 'x' size: 1 output: 'z' } } "
  "layer { scale { input: 'y' scale: 0.01 output: 't' } } "
  "layer { square_error_cost { input: 'z' label: 't' output: 'c' } } layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "town.csv" header: true label: "price" label_kind: REAL } }
test { csv { file: "town.csv" header: true label: "price" label_kind: REAL } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
metric { var: "z" name: "mae" kind: MAE label: "t" }
metric { var: "z" name: "r2" kind: R2 label: "t" }
optimizer { sgd { learning_rate: 0.001 } } batch_size: 2 epochs: 2
deploy { input: "x" output: "z" } output_dir: "town"
)");
  WriteFileAtomic(Path("town.csv"), "age,price,rooms\n4,300,3\n5,200,2\n6,250,4\n");
  const std::string trained = Shell("cd " + dir_ + " && coracle train job.pbtxt").text;
  const JsonReader numbers = Report("coracle report town --data=town.csv").At("numbers");
  const auto measured = [&](const std::string& name) {
    const size_t at = trained.rfind(" " + name + "=");
    return at == trained.npos ? NAN : std::strtod(trained.c_str() + at + name.size() + 2, nullptr);
  };
  // The job's labels are scaled by 0.01, and its metrics are in their own unit.
  const double mae = numbers.At("mae").Number(), r2 = numbers.At("r2").Number();
  EXPECT_NEAR(mae, measured("mae"), 1e-3 * mae) << trained;
  EXPECT_NEAR(r2, measured("r2"), 1e-3 * std::abs(r2)) << trained;
  const JsonReader of_job = Report("coracle report town --job=job.pbtxt").At("numbers");
  EXPECT_NEAR(of_job.At("mae").Number(), mae, 1e-4 * mae);
  EXPECT_NEAR(of_job.At("r2").Number(), r2, 1e-4 * std::abs(r2));
  Expect("coracle report town --data=town.csv", 0, {"RMSE", "town.csv:2", "residual"});
  Expect("coracle report town --data=town.csv -o a.html && grep -c Residuals a.html", 0, {"1"});
}

// One number of [0, 1] is the probability of the second class; other numbers have no class.
TEST_F(ReportCli, OneProbability) {
  const auto report = [&](const std::string& output) {
    WriteFileAtomic(Path("job.pbtxt"), R"(
name: "two" model_text: "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 1 output: 'z' } } layer { sigmoid { input: 'z' output: 'p' } } "
  "layer { cast { input: 'y' dtype: FP32 output: 't' } } "
  "layer { sigmoid_cross_entropy_with_logits { input: 'z' label: 't' output: 'c' } } "
  "layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "two.csv" label_kind: CLASS class: ["no", "yes"] } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 2 epochs: 30
deploy { input: "x" output: ")" + output + R"(" } output_dir: "two"
)");
    WriteFileAtomic(Path("two.csv"), "1,9,yes\n2,8,yes\n9,1,no\n8,3,no\n");
    Expect("coracle train job.pbtxt --overwrite", 0, {});
    return Shell("cd " + dir_ + " && coracle report two --data=two.csv").text;
  };
  const std::string good = report("p");
  for (const char* part : {"accuracy", "1: yes", "probability of class 1", "log loss", "two.csv:"})
    EXPECT_NE(good.find(part), std::string::npos) << part << "\n" << good;
  const std::string bad = report("z");
  EXPECT_NE(bad.find("the labels are names of classes, but the output 'z'"), std::string::npos)
      << bad;
}

TEST_F(ReportCli, Pictures) {
  WriteFileAtomic(Path("job.pbtxt"), R"(
name: "d" model_text: "data { name: 'x' shape: [-1, 784] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'x' size: 10 output: 'logits' } } "
  "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { digits { count: 100 } } bind { column: "image" var: "x" }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 epochs: 1
deploy { input: "x" output: "logits" } output_dir: "d"
)");
  Expect("coracle train job.pbtxt", 0, {});
  for (const int label : {3, 7}) {
    std::filesystem::create_directories(Path("pictures/" + std::to_string(label)));
    for (int i = 0; i < 3; ++i) {
      WriteFileAtomic(Path("pictures/" + std::to_string(label) + "/" + std::to_string(i) + ".npy"),
                      SerializeNpy(Tensor::Full<uint8_t>({28, 28}, static_cast<uint8_t>(40 * i))));
    }
  }
  const JsonReader json = Report("coracle report d --data=pictures");
  EXPECT_EQ(json.At("rows").Integer(0), 6);
  // Logits are no probabilities.
  EXPECT_EQ(json.At("scores").At("log_loss").Text(), "nan");
  EXPECT_TRUE(json.At("scores").Has("no_probabilities"));
  Expect("coracle report d --data=pictures -o a.html && grep -c 'data:image/png' a.html", 0, {"6"});
  std::filesystem::create_directories(Path("pictures/eleven"));
  Expect("coracle report d --data=pictures", 1, {"eleven"});
  std::filesystem::create_directories(Path("empty"));
  Expect("coracle report d --data=empty", 1, {"has no folders of pictures"});
  Expect("coracle report d --data=job.pbtxt", 2, {"--data is a directory"});
}

}  // namespace coracle::report_cli_test
