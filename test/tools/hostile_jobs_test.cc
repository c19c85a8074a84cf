// Jobs, and the models that they train, that could harm their user.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>
#include <sys/stat.h>

namespace coracle::hostile_jobs_test {

namespace fs = std::filesystem;

constexpr const char* kModel = R"(
  data { name: "image" shape: [-1, 1, 28, 28] }
  layer { fc { input: "image" size: 1 output: "h" } }
  layer { mean { input: "h" output: "loss" } }
)";

constexpr const char* kText = R"(
  name: "letters"
  model_text: """
    data { name: "text" shape: [-1, -1] dtype: INT64 }
    data { name: "next" shape: [-1, -1, 1] dtype: INT64 }
    layer { embedding { input: "text" num_embeddings: 3 embedding_dim: 3 output: "e" } }
    layer { fc { input: "e" size: 3 num_flatten_dims: 2 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "next" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } }
  """
  train { text { file: "text.txt" sequence_length: 4 } }
  batch_size: 2
  max_iter: 1
  deploy { input: "text" output: "logits" }
)";

class HostileJobs : public Cli {
 protected:
  // `count` images of digits; `rest` is more of the job.
  void WriteJob(const std::string& model, const std::string& rest = "") {
    WriteFileAtomic(Path("m.pbtxt"), model);
    WriteFileAtomic(Path("job.pbtxt"),
                    "model: \"m.pbtxt\"\ntrain { digits { count: 20 } }\nbatch_size: 10\n"
                    "max_iter: 2\n" +
                        rest);
  }
  void TrainLetters() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += i % 3 ? "ab\n" : "ba\n";
    WriteFileAtomic(Path("text.txt"), text);
    WriteFileAtomic(Path("text.pbtxt"), kText);
    Expect("coracle train text.pbtxt --out=letters", 0, {"vocabulary letters/vocabulary.json"});
  }
  // The saved model writes a file in addition to its usual work.
  void AppendSave(const std::string& model, const std::string& var) {
    ProgramDesc program = ReadProgram(Path(model));
    program.Root().AppendOp("save", {{"X", {var}}}, {}, {{"file_path", std::string("victim")}});
    WriteProgram(program, Path(model));
  }
};

TEST_F(HostileJobs, ModelsThatAreTrainedTouchNoFiles) {
  for (const std::string op : {"save { X: \"h\"", "save_combine { X: \"h\"", "load { Out: \"q\"",
                               "load_combine { Out: \"q\""}) {
    std::string model = kModel;
    model.insert(model.rfind("layer"), "layer { op { " + op + " file_path: \"victim\" } } }\n");
    WriteJob(model);
    Expect("coracle train job.pbtxt --out=o", 1,
           {op.substr(0, op.find(' ')) + ": the program names the file 'victim', and may touch "
                                         "none",
            "from m.pbtxt:4:"});
    EXPECT_FALSE(fs::exists(Path("victim"))) << op;
  }
  WriteJob(std::string(kModel) + "layer { op { save { X: \"h\" file_path: \"a/victim\" } } }");
  Expect("coracle train job.pbtxt --out=o --allow_files=.", 0, {"final: loss="});
  EXPECT_TRUE(fs::is_regular_file(Path("a/victim")));
}

TEST_F(HostileJobs, SavedModelsTouchNoFiles) {
  WriteJob(kModel);
  Expect("coracle train job.pbtxt --out=o", 0, {"evaluation model o/eval.pdmodel"});
  AppendSave("o/eval.pdmodel", "loss");
  Expect("coracle test o job.pbtxt", 1, {"save: the program names the file 'victim'"});
  TrainLetters();
  AppendSave("letters/model.pdmodel", "logits");
  Expect("coracle generate letters --prompt=a --length=2", 1,
         {"save: the program names the file 'victim'"});
  EXPECT_FALSE(fs::exists(Path("victim")));
}

TEST_F(HostileJobs, ModelsWithoutResultsAreNotTested) {
  WriteJob(kModel);
  Expect(
      "coracle build m.pbtxt --out=m.pb --startup_out=s.pb && mkdir d && "
      "coracle run s.pb --save_params=d/eval.pdiparams && cp m.pb d/eval.pdmodel",
      0, {});
  Expect("coracle test d job.pbtxt", 1, {"'d/eval.pdmodel' fetches nothing that can be measured"});
}

TEST_F(HostileJobs, NamesOfTestSetsDoNotReachTheTerminal) {
  WriteJob(kModel,
           "test_set { name: \"v\\033]0;x\\007\\342\\200\\256\" data { digits { count: 20 } } }\n");
  for (const std::string command :
       {"train job.pbtxt --out=o", "train job.pbtxt --out=o --overwrite", "test o job.pbtxt",
        "test o job.pbtxt --test_set=v", "test o job.pbtxt --test_set=\"$(printf '\\033[2J')\"",
        "plot o --out=o.svg", "snapshot o"}) {
    const Result result = Shell("cd " + dir_ + " && coracle " + command);
    EXPECT_LE(result.code, 1) << command << result.text;
    for (const char* hidden : {"\033", "\007", "\u202e"})
      EXPECT_EQ(result.text.find(hidden), std::string::npos) << command;
  }
  Expect("coracle train job.pbtxt --out=o --overwrite", 0, {"v\\x1b]0;x\\x07\\u202e loss="});
}

// By --ops and by a job's freeze, as by --vars in HostileFiles.
TEST_F(HostileJobs, ExpressionsTakeLittleTime) {
  ProgramDesc program;
  const std::string name = std::string(100'000, 'a') + "b";
  program.Root().AppendOp(name, {}, {});
  WriteProgram(program, Path("long.pb"));
  std::string model = kModel;
  model.insert(model.find("size"), "name: \"" + std::string(50'000, 'a') + "b\" ");
  for (const std::string pattern : {"(a*)*c", "(a|aa)+c", "(((((((((a*)*)*)*)*)*)*)*)*)*c"}) {
    Expect("timeout 20 coracle dump '--ops=" + pattern + "' long.pb", 0, {});
    WriteJob(model, "freeze: \"" + pattern + "\"");
    Expect("timeout 20 coracle train job.pbtxt", 1,
           {"job.pbtxt:5:1: freeze '" + pattern + "' matches none of the parameters: aaaa"});
  }
  for (const std::string pattern : {"((a{1,1000}){1,1000})", "a{1,32767}", "(a)\\\\1", "("}) {
    Expect("timeout 20 coracle dump \"--ops=" + pattern + "\" long.pb", 2,
           {"is not a regular expression: "});
    WriteJob(model, "freeze: \"" + pattern + "\"");
    Expect("timeout 20 coracle train job.pbtxt", 1,
           {"job.pbtxt:5:1: freeze ", " is not a regular expression: "});
  }
}

TEST_F(HostileJobs, PipesAndDevicesAreNoWeights) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(Path("pipe.npz").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(Path("p.pdiparams").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", Path("zero.npz"));
  for (const auto& [file, why] : {std::pair("pipe", "'pipe': it is a pipe"),
                                  {"pipe.npz", "'pipe.npz': it is a pipe"},
                                  {"p.pdiparams", "'p.pdmodel'"},
                                  {"zero.npz", "'zero.npz': it is a device"},
                                  {"/dev/zero", "'/dev/zero': it is a device"}}) {
    WriteJob(kModel, std::string("weights { file: \"") + file + "\" }\n");
    Expect("timeout 20 coracle train job.pbtxt --overwrite", 1, {"job.pbtxt:5:1: ", why});
  }
}

TEST_F(HostileJobs, VocabulariesAreReadKeyByKey) {
  TrainLetters();
  const std::string head = R"({"format": "coracle vocabulary", )";
  const std::string deep(100'000, '[');
  for (const auto& [json, what] :
       {std::pair(head + R"("version": 1})", "characters"),
        {head + R"("characters": ["a"]})", "version"},
        {head + R"("version": "1", "characters": ["a"]})", "version"},
        {head + R"("version": 1, "characters": 3})", "characters"},
        {head + R"("version": 1, "characters": ["a", 7]})", "characters[1]"},
        {head + R"("version": 1, "characters": ["a", "bc"]})", "characters[1]"},
        {head + R"("version": 1, "characters": )" + deep + "}", "nested more than 32 deep"}}) {
    WriteFileAtomic(Path("letters/vocabulary.json"), json);
    Expect("coracle generate letters --length=2", 1,
           {"coracle: not a vocabulary: letters/vocabulary.json", what});
  }
}

// The part held out for the test and the part trained on are of one file, and share no row.
TEST_F(HostileJobs, SplitsOfACsvFile) {
  std::string csv;
  for (int i = 0; i < 50; ++i) csv += std::to_string(i) + ",1," + std::to_string(i % 2) + "\n";
  WriteFileAtomic(Path("data.csv"), csv);
  const auto data = [](int seed) {
    return "{ csv { file: \"data.csv\" } split { holdout: 0.2 seed: " + std::to_string(seed) +
           " } }\n";
  };
  const std::string job = R"(model_text: """
      data { name: "data" shape: [-1, 2] }
      data { name: "label" shape: [-1, 1] dtype: INT64 }
      layer { fc { input: "data" size: 2 output: "logits" } }
      layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
      layer { mean { input: "ce" output: "loss" } }
    """
    batch_size: 10
    epochs: 1
  )";
  WriteFileAtomic(Path("job.pbtxt"), job + "train " + data(7) + "test " + data(7));
  Expect("coracle train job.pbtxt --out=o", 0,
         {"4 steps of 4 per epoch", "(seed 7)", "test loss="});
  Expect("coracle test o job.pbtxt", 0, {"test: loss="});
  WriteFileAtomic(Path("job.pbtxt"), job + "train " + data(7) + "test " + data(8));
  Expect("coracle train job.pbtxt --out=o2", 1,
         {"with different splits: rows would be trained on"});
}
}  // namespace coracle::hostile_jobs_test
