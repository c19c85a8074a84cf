// The output of --json agrees with the tables of docs/json.md: no field is missing there, and none
// is outdated.

#include <coracle/coracle.h>
#include <coracle/test/tools/cli.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace coracle::json_test {

using Json = nlohmann::json;

struct Field {
  std::string type;
  bool optional = false;
};
using Fields = std::map<std::string, Field>;  // by path

// The rows "| `path` | type, optional | ..." below "## coracle.KIND", by kind.
std::map<std::string, Fields> FieldsOfPage(const std::string& page) {
  std::map<std::string, Fields> kinds;
  std::string kind;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) kind = line.substr(3);
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3), type = line.find("| ", end) + 2;
    std::string text = line.substr(type, line.find(" |", type) - type);
    const bool optional = text.ends_with(", optional");
    if (optional) text.resize(text.size() - std::string(", optional").size());
    EXPECT_TRUE(kinds[kind].emplace(line.substr(3, end - 3), Field{text, optional}).second) << line;
  }
  return kinds;
}

bool IsNumberText(const Json& json) { return json == "nan" || json == "inf" || json == "-inf"; }

bool IsSetting(const Json& json) {
  return json.is_object() && json.size() == 2 && json.contains("kind") && json.contains("attrs") &&
         json["kind"].is_string() && json["attrs"].is_object();
}

bool HasType(const Json& json, const std::string& type) {
  const size_t or_null = type.find(" or null");
  if (or_null != type.npos) return json.is_null() || HasType(json, type.substr(0, or_null));
  if (type == "text") return json.is_string();
  if (type == "integer")
    return json.is_number_integer() ||
           (json.is_string() &&
            json.get<std::string>().find_first_not_of("-0123456789") == std::string::npos);
  if (type == "number") return json.is_number() || IsNumberText(json);
  if (type == "bool") return json.is_boolean();
  if (type == "object") return json.is_object();
  if (type == "setting") return IsSetting(json);
  return type == "value";
}

class Validator {
 public:
  explicit Validator(const Fields& fields) : fields_(fields) {}

  // Checks a whole document.
  void Check(const Json& document) { Walk(document, "", nullptr); }
  // Fields of the table that no document had.
  std::set<std::string> Unseen() const {
    std::set<std::string> unseen;
    for (const auto& entry : fields_)
      if (!seen_.count(entry.first)) unseen.insert(entry.first);
    return unseen;
  }

 private:
  // Whether the table has a path that begins with `start`.
  bool Begins(const std::string& start) const {
    const auto next = fields_.lower_bound(start);
    return next != fields_.end() && next->first.starts_with(start);
  }

  void Walk(const Json& json, const std::string& path, const Field* field) {
    if (field) {
      seen_.insert(path);
      EXPECT_TRUE(HasType(json, field->type)) << path << " is no " << field->type << ": " << json;
      if (field->type == "value" || field->type == "setting") return;
    }
    if (json.is_array()) {
      ASSERT_TRUE(Begins(path + "[]")) << "docs/json.md lacks the list " << path;
      for (const Json& entry : json) Enter(entry, path + "[]");
    } else if (json.is_object()) {
      WalkObject(json, path);
    }
  }

  void Enter(const Json& json, const std::string& path) {
    const auto found = fields_.find(path);
    ASSERT_TRUE(found != fields_.end() || Begins(path + ".") || Begins(path + "["))
        << "docs/json.md lacks " << path;
    Walk(json, path, found == fields_.end() ? nullptr : &found->second);
  }

  void WalkObject(const Json& json, const std::string& path) {
    const std::string dot = path.empty() ? "" : path + ".";
    const bool any = Begins(dot + "*");
    for (const auto& member : json.items()) Enter(member.value(), dot + (any ? "*" : member.key()));
    if (any) return;
    for (const auto& entry : fields_) {
      const std::string& name = entry.first;
      if (entry.second.optional || !name.starts_with(dot)) continue;
      const std::string rest = name.substr(dot.size());
      if (rest.empty() || rest.find_first_of(".*[") != rest.npos) continue;
      EXPECT_TRUE(json.contains(rest)) << name << " is not optional: " << json;
    }
  }

  const Fields& fields_;
  std::set<std::string> seen_;
};

// A model text's fields for training, a loop and two rounds.
constexpr const char* kModel = R"(
  name: "net"
  data { name: "x" shape: [-1, 4] }
  data { name: "label" shape: [-1, 1] dtype: INT64 }
  layer { repeat { times: 2 layer { fc { input: "x" size: 4 output: "y$i" } } } }
  layer { fc { input: "y1" size: 3 output: "h"
    param { learning_rate: 0.5 regularizer { l2_decay { coeff: 0.25 } }
            gradient_clip { by_norm { clip_norm: 1 } } }
    bias { trainable: false }
    error_clip { by_value { max: 0.125 } } } }
  layer { softmax_with_cross_entropy { logits: "h" label: "label" output: "losses" } }
  layer { mean { input: "losses" output: "loss" } }
)";

class JsonPage : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    const char* sources = std::getenv("CORACLE_SOURCE_DIR");
    if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
    kinds_ = FieldsOfPage(ReadFile(std::string(sources) + "/docs/json.md"));
  }

  // Checks the command's output against the table of `kind`. All in one line each.
  Json Get(const std::string& command, int code = 0) {
    const Result result = Shell("cd " + dir_ + " && " + command);
    EXPECT_EQ(result.code, code) << command << "\n" << result.text;
    return Json::parse(result.text, nullptr, false);
  }
  void ExpectFields(const std::string& kind, const std::vector<Json>& documents,
                    const std::set<std::string>& unseen = {}) {
    ASSERT_TRUE(kinds_.count("coracle." + kind)) << kind;
    Validator validator(kinds_["coracle." + kind]);
    for (const Json& document : documents) {
      ASSERT_FALSE(document.is_discarded()) << "no JSON";
      EXPECT_EQ(document["format"], "coracle." + kind);
      EXPECT_EQ(document["version"], 1);
      validator.Check(document);
    }
    EXPECT_EQ(validator.Unseen(), unseen);
  }

  std::map<std::string, Fields> kinds_;
};

TEST_F(JsonPage, EverySectionHasItsTest) {
  std::set<std::string> names;
  for (const auto& kind : kinds_) names.insert(kind.first);
  for (const char* name :
       {"program", "summary", "check", "quantization", "ops", "op", "program_ops", "needed_ops",
        "snapshot", "diff", "compare", "bench", "passes", "layers", "report"})
    EXPECT_EQ(names.count(std::string("coracle.") + name), 1u) << name;
}

TEST_F(JsonPage, Program) {
  WriteFileAtomic(Path("net.pbtxt"), kModel);
  Expect("coracle backward net.pbtxt --loss=loss --out=train.pb", 0, {});
  ProgramDesc other;
  other.version = 2004000;
  other.random_seed = 7;
  BlockDesc& sub = other.AppendBlock(other.Root());
  sub.SetForwardBlockIdx(0);
  other.Root().AppendOp("while", {{"X", {"a"}}}, {{"Out", {"b"}}}, {{"sub_block", BlockRef{1}}});
  WriteProgram(other, Path("other.pb"));
  const Json train = Get("coracle dump train.pb --json");
  ExpectFields("program", {train, Get("coracle dump other.pb --json")});
  const Json &fc = train["blocks"][0]["ops"][0], &loss = train["fetches"];
  EXPECT_EQ(fc["type"], "mul");
  EXPECT_EQ(fc["layer"], "y0");
  EXPECT_EQ(fc["round"], "i = 0");
  EXPECT_EQ(fc["stage"], "forward");
  EXPECT_EQ(fc["inputs"], Json::parse(R"({"X": ["x"], "Y": ["fc_0.w_0"]})"));
  EXPECT_NE(std::find(loss.begin(), loss.end(), "loss"), loss.end()) << loss;
  EXPECT_EQ(train["grad_to_var"]["h@GRAD"], "h");
  EXPECT_EQ(train["feeds"], Json::parse(R"(["x", "label"])"));
}

TEST_F(JsonPage, PartsOfAProgram) {
  const Json part = Get("coracle dump model.pbtxt --json --ops=mean --vars=loss --block=0");
  ASSERT_EQ(part["blocks"].size(), 1u);
  ASSERT_EQ(part["blocks"][0]["ops"].size(), 1u);
  EXPECT_EQ(part["blocks"][0]["ops"][0]["type"], "mean");
  EXPECT_EQ(part["blocks"][0]["ops"][0]["index"], 2);
  ASSERT_EQ(part["blocks"][0]["vars"].size(), 1u);
  EXPECT_EQ(part["blocks"][0]["vars"][0]["name"], "loss");
  Expect("coracle dump model.pbtxt --json --block=4", 1, {"no block 4: the program has 1"});
  Expect("coracle dump model.pbtxt --json --format=pbtxt", 2, {"do not go with --format=pbtxt"});
  Expect("coracle dump nowhere.pb --json", 1, {"nowhere.pb"});
}

TEST_F(JsonPage, Summary) {
  const Json known = Get("coracle summary model.pbtxt --json --shape=x:4x3");
  ExpectFields("summary", {known, Get("coracle summary model.pbtxt --json")});
  EXPECT_EQ(known["inputs"], Json::parse(R"([{"name":"x","dtype":"float32","shape":[4,3]}])"));
  EXPECT_EQ(known["outputs"], Json::parse(R"([{"name":"loss","dtype":"float32","shape":[1]}])"));
  EXPECT_EQ(known["multiply_adds"], 24);          // 4 rows of 3 by [3, 2]
  EXPECT_EQ(known["parameters"]["elements"], 8);  // [3, 2] and [2]
  EXPECT_EQ(known["parameters"]["bytes"], 32);
  EXPECT_EQ(known["unknown_dims"], false);
}

TEST_F(JsonPage, Quantization) {
  WriteFileAtomic(Path("conv.pbtxt"), R"(
    data { name: "x" shape: [-1, 2, 6, 6] }
    layer { conv2d { input: "x" num_filters: 4 filter_size: 3 output: "y" } }
  )");
  Expect(
      "coracle build conv.pbtxt --out=conv/net.pdmodel --startup_out=s.pb && "
      "coracle run s.pb --save_params=conv/net.pdiparams && "
      "coracle quantize conv/net.pdmodel --scheme=weight_only -o weights.pdmodel",
      0, {});
  const Json notes = Get("coracle check weights.pdmodel --quantization --json");
  ExpectFields("quantization", {notes});
  EXPECT_EQ(notes["int8_ops"].get<size_t>() + notes["float_ops"].get<size_t>() +
                notes["conversions"].get<size_t>(),
            notes["ops"].size());
}

TEST_F(JsonPage, Check) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2, 3});
  for (const char* name : {"a", "b"}) root.Var(name);
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}});
  root.AppendOp("relu", {}, {{"Out", {"b"}}});
  root.AppendOp("relu", {{"X", {"none"}}}, {{"Out", {"b"}}});
  root.AppendOp("matmul", {{"X", {"x"}}, {"Y", {"x"}}}, {{"Out", {"b"}}});
  root.AppendOp("send", {{"X", {"a"}}}, {});
  root.AppendOp("no_such_op", {}, {});
  WriteProgram(program, Path("bad.pb"));
  const Json bad = Get("coracle check bad.pb --json --gradients", 1);
  WriteFileAtomic(Path("unread.pbtxt"),
                  "data { name: 'x' shape: [2] } data { name: 'y' shape: [2] }\n"
                  "layer { mean { input: 'x' output: 'm' } }");
  const Json unread = Get("coracle check unread.pbtxt --json");
  WriteFileAtomic(Path("soft.pbtxt"),
                  "data { name: 'x' shape: [-1, 3] } data { name: 'l' shape: [-1, 1] dtype: INT64 "
                  "}\nlayer { softmax { input: 'x' output: 'p' } }\n"
                  "layer { softmax_with_cross_entropy { logits: 'p' label: 'l' output: 'c' } }\n");
  const Json soft = Get("coracle check soft.pbtxt --json");
  const Json good = Get("coracle check model.pbtxt --json");
  ExpectFields("check", {bad, good, unread, soft});
  EXPECT_EQ(unread["warnings"], 1);
  EXPECT_EQ(unread["mistakes"][0]["var"], "y");
  EXPECT_FALSE(unread["mistakes"][0].contains("op"));
  ASSERT_EQ(soft["mistakes"].size(), 1u);
  EXPECT_EQ(soft["mistakes"][0]["place"], "soft.pbtxt:3:9");
  EXPECT_EQ(soft["mistakes"][0]["block"], 0);
  EXPECT_EQ(soft["mistakes"][0]["op"], 1);
  EXPECT_EQ(soft["mistakes"][0]["op_type"], "softmax_with_cross_entropy");
  // The list is there when it is empty, too.
  for (const Json& none : {good, bad}) EXPECT_EQ(none["mistakes"], Json::array());
  EXPECT_EQ(bad["missing_types"].size(), 2u);
  EXPECT_EQ(bad["types_without_gradient"].size(), 2u);
  EXPECT_EQ(bad["errors"], bad["problems"].size() + 2);
  Expect("coracle check nowhere.pb --json", 1, {"coracle: ", "nowhere.pb"});
}

TEST_F(JsonPage, Ops) {
  const Json all = Get("coracle ops --json");
  ExpectFields("ops", {{{"format", all["format"]},
                        {"version", all["version"]},
                        {"ops", Json::array({Json::object()})},
                        {"refused", all["refused"]}}});
  std::vector<Json> ops;
  for (Json op : all["ops"]) {
    op["format"] = "coracle.op";
    op["version"] = 1;
    ops.push_back(op);
  }
  ops.push_back(Get("coracle ops clip --json"));
  ExpectFields("op", ops);
  EXPECT_EQ(all["ops"].size(), DefaultOps().Types().size());
  ProgramDesc program;
  program.Root().AppendOp("send", {}, {});
  WriteProgram(program, Path("send.pb"));
  ExpectFields("program_ops",
               {Get("coracle ops model.pbtxt --json"), Get("coracle ops send.pb --json")});
  ExpectFields("needed_ops", {Get("coracle ops --needed model.pbtxt --json")});
}

TEST_F(JsonPage, Diff) {
  const auto write = [&](const std::string& file, const std::vector<std::string>& types, float w,
                         float v, int64_t width) {
    ProgramDesc program;
    program.random_seed = static_cast<int64_t>(types.size());
    BlockDesc& root = program.Root();
    for (const char* name : {"w", "v"}) root.Var(name).SetPersistable(true);
    for (const char* name : {"x", "w", "v"}) root.Var(name).SetShape({1});
    root.Var("h").SetShape({width});
    if (v > 1) root.Var("v").SetShape({2});
    for (const std::string& type : types)
      root.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"h"}}}, {{"scale", w}});
    BlockDesc& sub = program.AppendBlock(root);
    sub.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {types.back()}}});
    root.AppendOp("while", {{"X", {"x"}}}, {}, {{"sub_block", BlockRef{1}}});
    WriteProgram(program, Path(file));
    Tensor of_v = v > 1 ? Tensor::Of<float>({2}, {v, v}) : Tensor::Of<float>({1}, {v});
    Scope scope;
    scope.Set("w", Tensor::Of<float>({1}, {w}));
    scope.Set("v", of_v);
    SaveCombined(scope, {"v", "w"}, Path(file + ".params"));
  };
  write("a.pb", {"scale", "tanh"}, 1, 1, 2);
  write("b.pb", {"scale"}, 2, 2, 3);
  const Json values =
      Get("coracle diff a.pb b.pb --json --values --params=a.pb.params,b.pb.params", 1);
  const std::set<std::string> rare = {"blocks[].changes[]", "blocks[].changes[].what",
                                      "blocks[].changes[].before", "blocks[].changes[].after",
                                      "blocks[].ops[].moved_over"};
  ExpectFields("diff", {values, Get("coracle diff a.pb a.pb --json", 0)}, rare);
}

TEST_F(JsonPage, Compare) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] }
    layer { op { scale { X: ["x"] Out: ["a"] scale: 2 } } }
    layer { op { relu { X: ["a"] Out: ["b"] } } }
    layer { op { mean { X: ["b"] Out: ["loss"] } } })");
  const Tensor x = Tensor::Of<float>({1, 3}, {1, -2, 3});
  WriteNpz({{"x", x}}, Path("in.npz"));
  WriteNpz({{"b", x}, {"loss", Tensor::Of<float>({1}, {9})}}, Path("other.npz"));
  const std::string compare = "coracle compare net.pbtxt --feed=in.npz --json ";
  const Json runs = Get(compare + "--run=--disabled_passes=all --with=other.npz", 1);
  ExpectFields("compare", {runs, Get(compare), Get("coracle compare in.npz other.npz --json", 1)},
               {"renamed[]", "untried[]"});
  EXPECT_EQ(runs["first"]["variable"], "b");
}

TEST_F(JsonPage, BenchPassesAndLayers) {
  const Json bench =
      Get("coracle bench model.pbtxt --shape=x:4x3 --seconds=0.01 --json 2>/dev/null");
  ExpectFields("bench", {bench},
               bench["notes"].empty() ? std::set<std::string>{"notes[]"} : std::set<std::string>{});
  ExpectFields("passes", {Get("coracle opt model.pbtxt --json")});
  ExpectFields("layers", {Get("coracle layers --json"), Get("coracle layers conv2d --json"),
                          Get("coracle layers embedding --json")});
}

TEST_F(JsonPage, Snapshot) {
  WriteFileAtomic(Path("net.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 num_flatten_dims: 1 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } })");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    name: "tiny" model: "net.pbtxt"
    train { digits { count: 100 } } test { digits { count: 50 } }
    loss: "loss" optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 50 max_iter: 2 snapshot_interval: 2)");
  Expect("coracle train job.pbtxt --out=out", 0, {});
  const Json snapshot = Get("coracle snapshot out --json");
  ExpectFields("snapshot", {snapshot},
               {"carried[]", "carried[].name", "carried[].dtype", "carried[].shape[]"});
  EXPECT_EQ(snapshot["step"], 2);
  EXPECT_EQ(snapshot["data"]["batch_size"], 50);
  EXPECT_EQ(snapshot["evaluations"].size(), 1u);
  Expect("coracle snapshot out out --json", 2, {"--json takes one DIR"});
  Expect("coracle snapshot net.pbtxt --json", 1, {"no snapshot in 'net.pbtxt'"});
}

// Two reports, of scores with classes that have no rows, and of numbers.
TEST_F(JsonPage, Report) {
  const auto train = [&](const std::string& name, const std::string& label,
                         const std::string& layers, const std::string& output) {
    WriteFileAtomic(Path(name + ".pbtxt"),
                    "name: \"j\" model_text: \"" + layers + "\" train { csv { file: \"" + name +
                        ".csv\" " + label +
                        " } } bind { column: \"data\" var: \"x\" } bind { column: \"label\" var: "
                        "\"y\" } optimizer { sgd { learning_rate: 0.1 } } batch_size: 2 epochs: 1 "
                        "deploy { input: \"x\" output: \"" +
                        output + "\" } output_dir: \"" + name + "\"");
    Expect("coracle train " + name + ".pbtxt && coracle report " + name + " --data=" + name +
               ".csv --out=report.json",
           0, {});
    return Json::parse(ReadFile(Path("report.json")), nullptr, false);
  };
  WriteFileAtomic(Path("scores.csv"), "1,2,0\n2,1,1\n0,3,0\n");
  const Json scores =
      train("scores", "",
            "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] dtype: INT64 } "
            "layer { fc { input: 'x' size: 5 output: 'z' } } layer { softmax { input: 'z' output: "
            "'p' } } "
            "layer { softmax_with_cross_entropy { logits: 'z' label: 'y' output: 'c' } } "
            "layer { mean { input: 'c' output: 'loss' } }",
            "p");
  WriteFileAtomic(Path("numbers.csv"), "1,2,0.5\n2,1,1\n0,3,0\n");
  const Json numbers = train("numbers", "label_kind: REAL",
                             "data { name: 'x' shape: [-1, 2] } data { name: 'y' shape: [-1, 1] } "
                             "layer { fc { input: 'x' size: 1 output: 'z' } } "
                             "layer { square_error_cost { input: 'z' label: 'y' output: 'c' } } "
                             "layer { mean { input: 'c' output: 'loss' } }",
                             "z");
  // Whether averages have marks depends on the answers.
  std::set<std::string> unseen = {"notes[]", "scores.no_probabilities", "scores.classes[].name"};
  for (const std::string average : {"macro", "micro", "weighted"}) {
    for (const std::string mark : {"no_precision", "no_recall"})
      if (!scores["scores"][average].contains(mark))
        unseen.insert("scores." + average + "." + mark);
  }
  ExpectFields("report", {scores, numbers}, unseen);
}

}  // namespace coracle::json_test
