// `coracle layers`, `coracle help` of texts, man pages and completion.

#include <coracle/coracle.h>
#include <coracle/layers/text_help.h>
#include <coracle/test/error_of.h>
#include <coracle/test/tools/cli.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_help.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace coracle::help_test {

namespace fs = std::filesystem;

using Json = nlohmann::json;

class HelpCommand : public Cli {
 protected:
  bool Has(const std::string& program) { return Shell("command -v " + program).code == 0; }
};

// Every layer, initializer and entry has an example, and it is a text that builds to a program
// that Verify takes.
TEST_F(HelpCommand, EveryLayerExampleBuilds) {
  const BuiltModel encoder = ParseModelText(
      "data { name: \"x\" shape: [-1, 8] } layer { scale { input: \"x\" scale: 2 output: \"y\" } "
      "}");
  SaveInferenceModel(Path("encoder"), {"x"}, {"y"}, encoder.main, Scope());
  size_t examples = 0;
  for (const TextEntry& listed : LayerEntries()) {
    EXPECT_FALSE(listed.doc.empty()) << listed.name;
    const std::string example = LayerExample(listed.name);
    // Examples have no selected rows and no operands of 8 bits.
    const bool bytes = listed.name == "quantized_matmul" || listed.name == "unpack_integers";
    if (listed.name == "merge_selected_rows" || bytes) continue;
    EXPECT_FALSE(example.empty()) << listed.name;
    EXPECT_NE(example.find(listed.name + " {"), std::string::npos) << listed.name << example;
    try {
      const BuiltModel model = ParseModelText(example, "example", dir_);
      VerifyOrThrow(model.main, DefaultOps());
      ++examples;
    } catch (const Error& error) {
      ADD_FAILURE() << listed.name << ": " << error.what() << "\n" << example;
    }
  }
  EXPECT_GT(examples, 200u);
}

// Help prints the inputs and the layer itself; the layers that make other inputs are in the JSON.
TEST_F(HelpCommand, ExamplesAreShort) {
  for (const TextEntry& listed : LayerEntries()) {
    const std::string help = DescribeLayer(listed.name);
    const size_t example = help.find("\nexample\n");
    if (example == help.npos) continue;
    EXPECT_LE(std::count(help.begin() + static_cast<std::ptrdiff_t>(example), help.end(), '\n'), 8)
        << help;
  }
  EXPECT_TRUE(
      DescribeLayer("array_read")
          .ends_with("\nexample\n  data { name: \"x\" shape: [-1, 8] }\n"
                     "  layer { array_read { array: \"all\" i: \"i\" output: \"out\" } }\n"))
      << DescribeLayer("array_read");
}

// A field is found by its name alone, and a layer by what other libraries call it.
TEST_F(HelpCommand, FieldsAreFound) {
  Expect("coracle help mixed_precision", 0, {"job.mixed_precision: "});
  Expect("coracle help label_kind", 0, {"`coracle help job.train.csv.label_kind`"});
  Expect("coracle help no_such_thing", 2, {"unknown command 'no_such_thing'"});
  Expect("coracle layers Dense", 1, {"there is no layer 'Dense'; here it is called fc"});
}

TEST_F(HelpCommand, CommandsAreSorted) {
  const std::string text = Shell("coracle help").text;
  std::stringstream lines(text.substr(text.find("\ncommands\n") + 10));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line) && line.starts_with("  ");)
    names.push_back(line.substr(2, line.find(' ', 2) - 2));
  EXPECT_GT(names.size(), 25u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST_F(HelpCommand, LayersAreListed) {
  Expect("coracle layers", 0,
         {"\nconv2d ", "Convolution (cross-correlation) with a bias for each filter\n", "\nxavier",
          "initializer  ", "\nwhile ", "entry  ", "`coracle layers NAME` describes one\n"});
  Expect("coracle layers --names", 0, {"\nconv2d\n", "\nwhile\n"});
  Expect("coracle layers --names --json", 2, {"give one of --names and --json"});
  const Json all = Json::parse(Shell("coracle layers --json").text);
  EXPECT_EQ(all["format"], "coracle.layers");
  EXPECT_EQ(all["version"], 1);
  EXPECT_EQ(all["layers"].size(), LayerEntries().size());
  EXPECT_EQ(all["layers"][0]["name"], "fc");
}

TEST_F(HelpCommand, OneLayer) {
  const Result told = Shell("coracle layers conv2d");
  EXPECT_EQ(told.text, Shell("coracle help conv2d").text);
  EXPECT_EQ(told.text.find("layer conv2d: Convolution"), 0u);
  EXPECT_NE(told.text.find("channels of the result (required); must be positive\n"),
            std::string::npos);
  EXPECT_NE(told.text.find("\nexample\n  data { name: \"image\""), std::string::npos) << told.text;
  const Json json = Json::parse(Shell("coracle layers conv2d --json").text);
  ASSERT_EQ(json["layers"].size(), 1u);
  const Json& layer = json["layers"][0];
  EXPECT_EQ(layer["kind"], "layer");
  std::map<std::string, Json> fields;
  for (const Json& field : layer["fields"]) fields[field["name"]] = field;
  EXPECT_EQ(fields["num_filters"]["type"], "int32");
  EXPECT_EQ(fields["num_filters"]["required"], true);
  EXPECT_EQ(fields["num_filters"]["range"], "must be positive");
  EXPECT_EQ(fields["stride"]["default"], "[1]");
  EXPECT_EQ(fields["stride"]["repeated"], true);
  EXPECT_EQ(fields["bias_term"]["default"], "true");
  EXPECT_EQ(fields["padding_algorithm"]["default"], "EXPLICIT");
  EXPECT_FALSE(fields["groups"]["required"]);
  EXPECT_NO_THROW(ParseModelText(layer["example"].get<std::string>()));
}

TEST_F(HelpCommand, WrongLayers) {
  Expect("coracle layers conv2", 1, {"there is no layer 'conv2'; did you mean conv2d?"});
  Expect("coracle layers relu_grad", 1,
         {"relu_grad is an op, not a layer: `coracle ops relu_grad`"});
  Expect("coracle layers fc conv2d", 2, {"takes at most one layer, got 2 arguments"});
  Expect("coracle layers \"$(printf 'a\\033b')\"", 1, {"there is no layer 'a\\x1bb'"});
}

TEST_F(HelpCommand, OpsPointToLayers) {
  Expect("coracle ops conv2d", 0,
         {"\nconv2d is also a layer of model text: `coracle layers conv2d`\n"});
  Expect("coracle ops fc_layer", 1, {"fc_layer"});
  Expect("coracle ops embedding", 1,
         {"embedding is a layer of model text, not an op: `coracle layers embedding`"});
  EXPECT_EQ(Shell("coracle ops relu_grad").text.find("is also a layer"), std::string::npos);
}

// The layers that an op library brings: an example is found for them too.
TEST_F(HelpCommand, LayersOfAnOpLibrary) {
  const std::string library = std::string(" --op_library=") + CORACLE_TEST_OPS;
  const Result names = Shell("coracle layers --names" + library);
  std::set<std::string> more;
  std::istringstream lines(names.text);
  for (std::string line; std::getline(lines, line);) more.insert(line);
  for (const std::string& name : LayerNames()) more.erase(name);
  ASSERT_FALSE(more.empty()) << names.text;
  for (const std::string& name : more)
    Expect("coracle layers " + name + library, 0, {"layer " + name, "example\n", name + " {"});
}

// The statements of a small job, without the fields that `example` gives.
std::string JobWith(const std::string& example) {
  const std::pair<const char*, const char*> base[] = {
      {"model", "model_text: \"data { name: 'image' }\"\n"},
      {"train", "train { digits { } }\n"},
      {"test", "test { digits { } }\n"},
      {"max_iter", "max_iter: 1\n"},
  };
  std::string text;
  for (const auto& [field, statement] : base) {
    const bool given = example.starts_with(std::string(field) + ":") ||
                       example.starts_with(std::string(field) + " {") ||
                       (std::string(field) == "model" && example.starts_with("model_text:"));
    if (!given) text += statement;
  }
  return text + example;
}

// Checks the field at `path` and those below it; counts them.
void CheckJobFields(const std::string& path, int depth, size_t* count) {
  for (const std::string& field : JobFieldsBelow(path)) {
    const TextEntry entry = JobField(field);
    ++*count;
    EXPECT_EQ(entry.name, field);
    EXPECT_FALSE(entry.example.empty()) << field;
    if (depth == 1) {
      EXPECT_FALSE(entry.doc.empty()) << field;
    }
    const bool own_kind = field.find(".custom") != field.npos;  // names what only a user registers
    if (!own_kind) {
      try {
        CheckJob(ParseJobText(JobWith(entry.example), "example", "."));
      } catch (const Error& error) {
        ADD_FAILURE() << field << ": " << error.what() << "\n" << entry.example;
      }
    }
    if (depth < 5) CheckJobFields(field, depth + 1, count);
  }
}

TEST_F(HelpCommand, EveryJobExampleIsAJob) {
  size_t count = 0;
  CheckJobFields("job", 1, &count);
  EXPECT_GT(count, 450u);
}

// Fields of optimizers, schedules and the like, which `help NAME` shows.
TEST_F(HelpCommand, EveryKindHasAnExample) {
  for (const std::string& name : JobKindNames()) {
    if (name == "custom" || name == "attr") continue;  // name what only a user registers
    for (const TextEntry& entry : JobKindEntries(name)) {
      EXPECT_NE(entry.example.find(name + " {"), std::string::npos) << name << entry.example;
      try {
        CheckJob(ParseJobText(JobWith(entry.example), "example", "."));
      } catch (const Error& error) {
        ADD_FAILURE() << name << ": " << error.what() << "\n" << entry.example;
      }
    }
  }
}

TEST_F(HelpCommand, FieldsOfAJob) {
  Expect("coracle help job", 0,
         {"job: A training job", "  batch_size ",
          "int64 [64]  Rows of one batch; must be at least 1\n", "`coracle help job.FIELD`"});
  const Result told = Shell("coracle help job.batch_size");
  EXPECT_EQ(told.code, 0);
  EXPECT_EQ(told.text,
            "job.batch_size: Rows of one batch\n  type     int64\n  default  64\n"
            "  range    must be at least 1\nexample\n  batch_size: 64\n");
  Expect("coracle help job.train.csv", 0,
         {"  file ", "(required)", "example\n  train { csv { file: \"train.csv\" } }\n"});
  Expect("coracle help job.non_finite_loss", 0,
         {"  default  STOP\n", "  one of   STOP: the run ends with an error\n",
          "           SKIP: the update is left out; 20 in a row end the run\n"});
  Expect("coracle help job.optimizer.adam.beta1", 0,
         {"  default  0.9\n", "must lie in [0, 1)", "optimizer { adam { beta1: 0.9 } }"});
  Expect("coracle help job.train.text.holdout", 0, {"  range    must be in [0, 1]\n"});
  Expect("coracle help model", 0, {"model: A network", "  layer  { ... }, repeated\n"});
  Expect("coracle help model.data.dtype", 0, {"  default  float32\n", "bfloat16"});
}

TEST_F(HelpCommand, WrongFields) {
  Expect("coracle help job.batchsize", 2,
         {"job has no field 'batchsize'; did you mean batch_size?"});
  Expect("coracle help job.train.cvs", 2, {"job.train has no field 'cvs'; did you mean csv?"});
  Expect("coracle help job.batch_size.x", 2, {"job.batch_size is int64 and has no fields"});
  Expect("coracle help job.", 2, {"job has no field ''"});
  Expect("coracle help job.qqqqqqqq", 2, {"`coracle help job` lists them"});
  Expect("coracle help jobs", 2, {"unknown command 'jobs'"});
}

// The reader checks what the schema declares.
TEST_F(HelpCommand, DeclaredRangesHold) {
  const auto error = [](const std::string& text) {
    return ErrorOf([&] { ParseJobText(text, "j"); });
  };
  EXPECT_EQ(error("train { digits { length: 65 } }"), "j:1:18: length must be in [1, 64], got 65");
  EXPECT_EQ(error("train { digits { } split { holdout: 1 } }"),
            "j:1:28: holdout must lie in (0, 1), got 1");
  EXPECT_EQ(error("max_seconds: 0"), "j:1:1: max_seconds must be positive, got 0");
  EXPECT_EQ(error("best { min_delta: -1 }"),
            "j:1:8: min_delta must be finite and not negative, got -1");
  EXPECT_EQ(error("recompute { memory_mb: 1099511627777 }"),
            "j:1:13: memory_mb must be in [1, 1099511627776], got 1099511627777");
  EXPECT_EQ(error("test_set { name: \"a\" }"), "j:1:1: test_set needs data");
}

TEST_F(HelpCommand, TheSchemaOfAJobHasItsComments) {
  const std::string schema = Shell("coracle schema job").text;
  EXPECT_NE(schema.find("  // Rows of one batch; must be at least 1\n"
                        "  optional int64 batch_size = 11 [default = 64];"),
            std::string::npos)
      << schema.substr(0, 4000);
  EXPECT_EQ(schema.find("at_least"), std::string::npos);
}

TEST_F(HelpCommand, ManPages) {
  Expect("coracle help train --man", 0,
         {".TH CORACLE\\-TRAIN 1 ", "coracle\\-train \\- ", "\\fB\\-\\-resume\\fR",
          ".SH EXIT STATUS\n", "a result is not finite\n"});
  EXPECT_EQ(Shell("coracle help dump --man").text.find("not finite"), std::string::npos);
  Expect("coracle help --man --out=man/man1 && ls man/man1", 0,
         {"coracle.1\n", "coracle-train.1\n", "coracle-layers.1\n"});
  size_t pages = 0, commands = 0;
  for (const auto& entry : fs::directory_iterator(Path("man/man1")))
    pages += entry.is_regular_file();
  std::istringstream overview(Shell("coracle help").text);
  std::string line;
  while (std::getline(overview, line) && line != "commands") {
  }
  while (std::getline(overview, line) && !line.empty()) ++commands;
  EXPECT_EQ(pages, commands + 1);
  Expect("coracle help dump --man --out=man", 2, {"no command with --man --out=DIR"});
  Expect("coracle help --out=man", 2, {"--out needs --man"});
  Expect("coracle help no_such --man", 2, {"unknown command 'no_such'"});
  if (!Has("groff")) GTEST_SKIP() << "no groff here to read the pages with";
  const Result warnings =
      Shell("cd " + dir_ +
            "/man/man1 && for page in *.1; do groff -man -Tascii -P-cbu -ww "
            "$page >$page.txt || exit 1; done; cat coracle-train.1.txt >train.txt");
  EXPECT_EQ(warnings.text, "");
  Expect("tr -s ' ' <man/man1/train.txt", 0,
         {"coracle-train - ", "SYNOPSIS\n coracle train JOB.pbtxt", "coracle train examples"});
}

// The completions that bash offers for the words of a line, the last of them unfinished.
std::string Bash(const std::string& dir, const std::string& words) {
  const std::string script =
      "source <(coracle completion bash); COMP_WORDS=(coracle " + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _coracle; printf \"%s\\n\" \"${COMPREPLY[@]}\"";
  return Shell("cd " + dir + " && bash -c '" + script + "'").text;
}

TEST_F(HelpCommand, CompletionInBash) {
  if (!Has("bash")) GTEST_SKIP() << "no bash here";
  fs::create_directory(Path("saved"));
  WriteFileAtomic(Path("a.npz"), "x");
  WriteFileAtomic(Path("a program.pb"), "x");
  WriteFileAtomic(Path("job.pbtxt"), "x");
  EXPECT_EQ(Bash(dir_, "du"), "dump\n");
  EXPECT_EQ(Bash(dir_, "explain-"), "explain-gradient\n");
  EXPECT_EQ(Bash(dir_, "dump --fo"), "--format=\n");
  EXPECT_EQ(Bash(dir_, "dump --format = te"), "text\n");
  EXPECT_EQ(Bash(dir_, "dump --format = \"\""), "text\npbtxt\n");
  EXPECT_EQ(Bash(dir_, "dump --format pb"), "pbtxt\n");
  EXPECT_EQ(Bash(dir_, "run --kernels = r"), "reference\n");
  EXPECT_EQ(Bash(dir_, "run --disabled_passes = nh"), "nhwc\n");
  EXPECT_EQ(Bash(dir_, "opt --passes = nh"), "nhwc\n");
  EXPECT_EQ(Bash(dir_, "schema j"), "job\n");
  EXPECT_EQ(Bash(dir_, "ops linsp"), "linspace\n");
  EXPECT_EQ(Bash(dir_, "layers simple"), "simple_rnn\n");
  EXPECT_EQ(Bash(dir_, "help lookah"), "lookahead\n");
  EXPECT_EQ(Bash(dir_, "help job.train.cs"), "job.train.csv\n");
  EXPECT_EQ(Bash(dir_, "--threads 2 vers"), "version\n");
  EXPECT_EQ(Bash(dir_, "train j"), "job.pbtxt\n");
  EXPECT_EQ(Bash(dir_, "run --feed = a"), "a.npz\n");
  EXPECT_EQ(Bash(dir_, "dump a"), "a program.pb\n");
  EXPECT_EQ(Bash(dir_, "snapshot s"), "saved\n");
  EXPECT_EQ(Bash(dir_, "no-such-command x"), "\n");
  EXPECT_EQ(Bash(dir_, "version x"), "\n");
}

TEST_F(HelpCommand, CompletionInZsh) {
  if (!Has("zsh")) GTEST_SKIP() << "no zsh here";
  const std::string script =
      "compdef() { }; _describe() { print -l -- ${(P)4} }; _files() { print -- files \"$@\" }; "
      "compset() { }; source <(coracle completion zsh); ask() { words=(coracle \"$@\"); "
      "CURRENT=$#words; _coracle; }; ask du; ask dump --fo; ask dump x";
  const Result said = Shell("zsh -f -c '" + script + "'");
  for (const char* part :
       {"dump:prints", "--format=:", "files -g *(.pdmodel|.pb|.pbtxt|__model__)"})
    EXPECT_NE(said.text.find(part), std::string::npos) << said.text;
  EXPECT_EQ(said.text.find("not found"), std::string::npos) << said.text;
}

TEST_F(HelpCommand, CompletionInFish) {
  if (!Has("fish")) GTEST_SKIP() << "no fish here";
  WriteFileAtomic(Path("a.npz"), "x");
  WriteFileAtomic(Path("b.pb"), "x");
  const std::string script =
      "source (coracle completion fish | psub); complete -C \"coracle du\"; "
      "complete -C \"coracle dump --fo\"; complete -C \"coracle dump \"; "
      "complete -C \"coracle run --feed=\"";
  const Result said = Shell("cd " + dir_ + " && HOME=$PWD fish --no-config -c '" + script + "'");
  for (const char* part : {"dump\tprints", "--format=\t", "b.pb", "--feed=a.npz"})
    EXPECT_NE(said.text.find(part), std::string::npos) << part << " in " << said.text;
}

TEST_F(HelpCommand, WrongCompletions) {
  Expect("coracle completion", 2, {"one of bash, zsh and fish"});
  Expect("coracle completion tcsh", 2, {"the shell must be bash, zsh or fish, got 'tcsh'"});
  Expect("coracle completion --line -- dump --", 0, {"--format=\t", "--help\t"});
  Expect("coracle completion --line --", 0, {"dump\t"});
}

// Each of these takes files of several endings.
TEST_F(HelpCommand, CompletionsOfTensorFiles) {
  for (const char* line : {"run a.pb --feed=", "run a.pb --check=", "run a.pb --out=",
                           "compare a.pb --feed=", "check-grad a.pb --feed="}) {
    EXPECT_EQ(Shell(std::string("coracle completion --line -- ") + line).text,
              ":files .npz .npy .safetensors .csv .json\n")
        << line;
  }
  EXPECT_EQ(Shell("coracle completion --line -- view a.pb --arrays=").text, ":files\n");
}
}  // namespace coracle::help_test
