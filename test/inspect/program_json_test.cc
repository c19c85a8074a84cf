// Programs as JSON: the exact text, and hostile programs.

#include <coracle/coracle.h>
#include <coracle/framework/ir/program.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <gtest/gtest.h>

#include <ctime>
#include <limits>

namespace coracle::program_json_test {

// x -> mul by w -> h, and its gradient and update.
ProgramDesc TrainingProgram() {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  VarDesc& w = block.Var("w");
  w.SetShape({4, 2});
  w.SetIsParameter(true);
  w.SetPersistable(true);
  w.MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.1f}}};
  block.Var("x").SetShape({-1, 4});
  for (const char* name : {"h.tmp_0", "h.tmp_0@GRAD"}) block.Var(name).SetShape({-1, 2});
  block.Var("w@GRAD").SetShape({4, 2});
  block.AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h.tmp_0"}}},
                 {{"x_num_col_dims", 1}, {"op_role", 0}});
  block.AppendOp("fill_any_like", {{"X", {"h.tmp_0"}}}, {{"Out", {"h.tmp_0@GRAD"}}},
                 {{"value", 0.1f}, {"op_role", int32_t{kBackward}}});
  block.AppendOp("mul_grad", {{"X", {"x"}}, {"Out@GRAD", {"h.tmp_0@GRAD"}}},
                 {{"X@GRAD", {"@EMPTY@"}}, {"Y@GRAD", {"w@GRAD"}}},
                 {{"op_role", int32_t{kBackward}}, {"forward_op", std::string("mul(h.tmp_0)")}});
  block.AppendOp("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}},
                 {{"op_role", int32_t{kOptimize}}});
  return program;
}

TEST(ProgramJson, WholeText) {
  EXPECT_EQ(ProgramJson(TrainingProgram(), DefaultOps()), R"({
  "format": "coracle.program",
  "version": 1,
  "feeds": ["x"],
  "fetches": [],
  "blocks": [
    {
      "index": 0,
      "parent": -1,
      "vars": [
        {"name":"w","type":"LOD_TENSOR","dtype":"float32","shape":[4,2],"lod_level":0,"persistable":true,"parameter":true,"stop_gradient":false,"regularizer":{"kind":"l2_decay","attrs":{"coeff":0.1}}},
        {"name":"x","type":"LOD_TENSOR","dtype":"float32","shape":[-1,4],"lod_level":0,"persistable":false,"parameter":false,"stop_gradient":false},
        {"name":"h.tmp_0","type":"LOD_TENSOR","dtype":"float32","shape":[-1,2],"lod_level":0,"persistable":false,"parameter":false,"stop_gradient":false},
        {"name":"h.tmp_0@GRAD","type":"LOD_TENSOR","dtype":"float32","shape":[-1,2],"lod_level":0,"persistable":false,"parameter":false,"stop_gradient":false},
        {"name":"w@GRAD","type":"LOD_TENSOR","dtype":"float32","shape":[4,2],"lod_level":0,"persistable":false,"parameter":false,"stop_gradient":false}
      ],
      "ops": [
        {"index":0,"type":"mul","stage":"forward","layer":"h","inputs":{"X":["x"],"Y":["w"]},"outputs":{"Out":["h.tmp_0"]},"attrs":{}},
        {"index":1,"type":"fill_any_like","stage":"backward","layer":"h","inputs":{"X":["h.tmp_0"]},"outputs":{"Out":["h.tmp_0@GRAD"]},"attrs":{"value":0.1}},
        {"index":2,"type":"mul_grad","stage":"backward","layer":"h","forward_op":{"block":0,"op":0},"inputs":{"X":["x"],"Out@GRAD":["h.tmp_0@GRAD"]},"outputs":{"X@GRAD":["@EMPTY@"],"Y@GRAD":["w@GRAD"]},"attrs":{}},
        {"index":3,"type":"sgd","stage":"update","layer":"h","inputs":{"Param":["w"],"Grad":["w@GRAD"]},"outputs":{"ParamOut":["w"]},"attrs":{}}
      ]
    }
  ],
  "grad_to_var": {
    "h.tmp_0@GRAD": "h.tmp_0",
    "w@GRAD": "w"
  }
}
)");
}

TEST(ProgramJson, AllAttrs) {
  ProgramJsonOptions options;
  options.hide_default_attrs = false;
  const Json json = Json::parse(ProgramJson(TrainingProgram(), DefaultOps(), options));
  EXPECT_EQ(json["blocks"][0]["ops"][0]["attrs"],
            Json::parse(R"({"x_num_col_dims":1,"op_role":0})"));
}

// 0.1f differs from the double 0.1; the text of either gives it again.
TEST(ProgramJson, ValuesOfAttrs) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Attribute, std::string>> values = {
      {int32_t{-3}, "-3"},
      {0.1f, "0.1"},
      {1.0f, "1.0"},
      {0.1, "0.1"},
      {1.2345678f, "1.2345678"},
      {1.0 / 3, "0.3333333333333333"},
      {std::vector<float>{1.5f, static_cast<float>(inf), -static_cast<float>(inf)},
       R"([1.5,"inf","-inf"])"},
      {std::numeric_limits<float>::quiet_NaN(), "\"nan\""},
      {int64_t{1} << 53, "9007199254740992"},
      {(int64_t{1} << 53) + 1, "\"9007199254740993\""},
      {std::vector<int64_t>{1, INT64_MIN}, R"([1,"-9223372036854775808"])"},
      {std::string("a\"\n\x1b<"), R"("a\"\n\u001b<")"},
      {std::vector<std::string>{}, "[]"},
      {true, "true"},
      {std::vector<bool>{true, false}, "[true,false]"},
      {BlockRef{2}, R"({"block":2})"},
      {std::vector<BlockRef>{{1}, {2}}, R"([{"block":1},{"block":2}])"},
      {VarRef{"x"}, R"({"var":"x"})"},
      {Scalar{Complex{1, -2}}, R"({"re":1.0,"im":-2.0})"},
      {Scalar{int64_t{7}}, "7"},
      {RawAttr{std::string("\x0a\xff", 2)}, R"({"bytes":"0aff"})"},
  };
  for (const auto& value : values) EXPECT_EQ(JsonLine(JsonAttribute(value.first)), value.second);
}

TEST(ProgramJson, NamesThatAreNotUtf8StayDifferent) {
  EXPECT_EQ(JsonString("a\xff\xc3\xa4").get<std::string>(), "a\\xff\xc3\xa4");
  EXPECT_NE(JsonString("a\xff"), JsonString("a\xfe"));
}

TEST(ProgramJson, NamesOfGradients) {
  ProgramDesc program;
  for (const char* name : {"x", "x@GRAD", "x@GRAD@GRAD", "x@GRAD@1", "x@GRAD_0", "x@GRAD@CLIPPED",
                           "x@GRAD@RENAME@block0@0", "y@GRAD", "@GRAD"})
    program.Root().Var(name);
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"x@GRAD", "x"}, {"x@GRAD@GRAD", "x@GRAD"}, {"x@GRAD@1", "x"}, {"x@GRAD_0", "x"}};
  EXPECT_EQ(GradientPairs(program), pairs);
}

TEST(ProgramJson, HostilePrograms) {
  ProgramDesc program;
  BlockDesc& one = program.AppendBlock(2);  // each the parent of the other
  program.AppendBlock(1);
  one.AppendOp("\xff\x1b", {{"X", {"a"}}, {"X", {"b"}}}, {{"", {""}}},
               {{"sub_block", BlockRef{-7}},
                {"forward_op", std::string("mul(nothing)")},
                {"op_callstack", 3},
                {"op_role", std::string("x")},
                {"col", std::string("x")}});
  program.Root().AppendOp("feed", {}, {{"Out", {"a"}}}, {{"col", std::string("x")}});
  const Json json = Json::parse(ProgramJson(program, DefaultOps()));
  const Json& op = json["blocks"][1]["ops"][0];
  EXPECT_EQ(op["inputs"], Json::parse(R"({"X":["a"]})"));
  EXPECT_EQ(op["sub_blocks"], Json::parse("[-7]"));
  EXPECT_EQ(op["type"], "\\xff\x1b");
}

ProgramDesc Chain(int ops) {
  ProgramDesc program;
  for (int i = 0; i < ops; ++i) {
    const std::string in = "v" + std::to_string(i), out = "v" + std::to_string(i + 1);
    program.Root().Var(out).SetShape({-1, 16});
    program.Root().Var(out + "@GRAD");
    program.Root().AppendOp("relu", {{"X", {in}}}, {{"Out", {out}}}, {{"op_role", 0}});
  }
  return program;
}

double SecondsToWrite(int ops) {
  const ProgramDesc program = Chain(ops);
  const std::clock_t start = std::clock();
  EXPECT_GT(ProgramJson(program, DefaultOps()).size(), static_cast<size_t>(ops) * 100);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(ProgramJson, LinearInTheNumberOfOps) {
  SecondsToWrite(1000);
  const double small = SecondsToWrite(10000), large = SecondsToWrite(100000);
  RecordProperty("seconds_100000_ops", std::to_string(large));
  EXPECT_LT(large, 50 * small + 0.1);
}
}  // namespace coracle::program_json_test
