// Programs written for Paddle 3, read again: the same programs and values, or a refusal by name.

#include <coracle/convert/models.h>
#include <coracle/convert/pir/op_reader.h>
#include <coracle/convert/pir/row_words.h>
#include <coracle/convert/pir/signatures.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/writer.h>
#include <coracle/test/error_of.h>
#include <coracle/test/real_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

namespace coracle::pir_export_test {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

std::vector<Tensor> RunOf(const ProgramDesc& program, const Scope& parameters,
                          const std::vector<Tensor>& feeds, bool optimize = true) {
  Scope scope = parameters.Clone();
  PreparedProgram net = Executor({.optimize = optimize}).Prepare(program);
  std::vector<Tensor> results;
  for (const Tensor& result : net.Run(scope, feeds)) results.push_back(result.Clone());
  return results;
}

void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].ToString(), want[i].ToString());
    std::string a, b;
    AppendTensor(got[i], &a);
    AppendTensor(want[i], &b);
    EXPECT_TRUE(a == b) << "result " << i;
  }
}

// Feeds of a program, in order; open dims have that size.
std::vector<Tensor> FeedsOf(const ProgramDesc& program, int64_t size) {
  std::vector<Tensor> feeds;
  for (const std::string& name : FeedNames(program))
    feeds.push_back(DrawInput(program.Root().FindVar(name)->meta(), size));
  return feeds;
}

TEST(PirExport, RealProgramsStayTheSame) {
  const std::string folder = TestDataDirectory() + "/paddle3";
  if (!FileExists(folder)) GTEST_SKIP() << "no test data paddle3";
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string() + "/inference.json";
    if (!FileExists(path)) continue;
    SCOPED_TRACE(path);
    const ProgramDesc program = ReadPir(path);
    const std::string text = ProgramToPir(program);
    const ProgramDesc again = ParsePir(text, "written.json");
    EXPECT_EQ(ProgramToText(again), ProgramToText(program));
    EXPECT_TRUE(again == program);
    EXPECT_EQ(ProgramToPir(again), text);
    Scope scope;
    DrawParameters(program, scope);
    const std::vector<Tensor> feeds = FeedsOf(program, 96);
    ExpectSameBits(RunOf(again, scope, feeds), RunOf(program, scope, feeds));
    ++programs;
  }
  EXPECT_GE(programs, 2);
}

// Models of Paddle 2: the values are the same, or the refusal says why.
TEST(PirExport, ModelsOfPaddle2) {
  if (!FileExists(TestDataDirectory() + "/paddle")) GTEST_SKIP() << "no test data paddle";
  int written = 0;
  ForEachModel(64, [&](DrawnModel& model) {
    std::string text;
    const std::string error = ErrorOf([&] { text = ProgramToPir(model.program); });
    if (text.empty()) {
      EXPECT_EQ(error.find("writing for Paddle 3: "), 0u) << error;
      std::printf("%s\n", error.substr(0, error.find('\n')).c_str());
      return;
    }
    ++written;
    const ProgramDesc again = ParsePir(text, "written.json");
    EXPECT_EQ(FeedNames(again), FeedNames(model.program));
    std::vector<Tensor> feeds;
    for (const std::string& name : FeedNames(again)) feeds.push_back(model.feeds.at(name));
    // Passes join other ops where an axis has become a reshape, and then sums differ in rounding.
    ExpectSameBits(RunOf(again, model.scope, feeds, false),
                   RunOf(model.program, model.scope, feeds, false));
  });
  EXPECT_GE(written, 6);
}

// Every attribute of every op that a row writes has a value.
TEST(PirExport, EveryAttributeHasASource) {
  for (const pir::Row& row : pir::AllRows()) {
    SCOPED_TRACE(row.name);
    const OpSpec* spec = DefaultOps().Find(row.type);
    if (!spec) continue;  // an op that this build leaves out
    const pir::AttrRules rules = pir::ParseAttrRules(row.attrs);
    for (const pir::DialectAttr& attr : pir::AttrsOf(row.name)) {
      if (attr.type == 'p' || rules.required.count(attr.name) + rules.left_out.count(attr.name) > 0)
        continue;
      const auto renamed = rules.renamed.find(attr.name);
      const std::string& name = renamed == rules.renamed.end() ? attr.name : renamed->second;
      EXPECT_NE(spec->FindAttr(name), nullptr) << name;
    }
    for (const std::string& word : pir::Words(row.inputs)) {
      if (word[0] != '=') continue;
      EXPECT_NE(spec->FindAttr(pir::ParseSetting(word).attr), nullptr) << word;
    }
  }
}

// A program of one op or a few, with inputs x and y.
class Small {
 public:
  explicit Small(const Shape& x, const Shape& y = {}) : writer(program.Root(), DefaultOps()) {
    Declare("x", x, DType::kFloat32);
    if (y.rank() > 0) Declare("y", y, DType::kFloat32);
  }
  void Declare(const std::string& name, const Shape& shape, DType dtype) {
    program.Root().Var(name).SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    feeds.push_back(name);
  }
  std::string Make(const char* type, SlotList inputs, AttrList attrs = {},
                   const std::string& output = "Out") {
    return writer.Make(type, std::move(inputs), std::move(attrs), output).name();
  }
  const ProgramDesc& Fetch(const std::vector<std::string>& names) {
    SetFeedsAndFetches(program, feeds, names);
    return program;
  }

  ProgramDesc program;
  Writer writer;
  std::vector<std::string> feeds;
};

// Writes, reads and runs the program; returns the types of ops that were written.
std::string ExpectSame(const ProgramDesc& program) {
  std::string text;
  EXPECT_EQ(ErrorOf([&] { text = ProgramToPir(program); }), "no error");
  if (text.empty()) return "";
  const ProgramDesc again = ParsePir(text, "written.json");
  const std::vector<Tensor> feeds = FeedsOf(program, 3);
  ExpectSameBits(RunOf(again, Scope(), feeds), RunOf(program, Scope(), feeds));
  return text;
}

TEST(PirExport, OperandsAndAttributes) {
  Small net({2, 3, 4}, {3});
  const std::string r = net.Make("reshape2", {{"X", {"x"}}}, {{"shape", Ints{2, -1}}});
  const std::string s = net.Make("scale", {{"X", {r}}}, {{"scale", 2.0f}, {"bias", -0.5f}});
  const std::string a =
      net.Make("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"axis", int32_t{1}}});
  const std::string t = net.Make("transpose2", {{"X", {a}}}, {{"axis", Ints{2, 0, 1}}});
  const std::string l = net.Make("slice", {{"Input", {t}}},
                                 {{"axes", Ints{0}}, {"starts", Ints{1}}, {"ends", Ints{3}}});
  const std::string c = net.Make("concat", {{"X", {l, l}}}, {{"axis", int32_t{-1}}});
  const std::string p = net.Make("pow", {{"X", {c}}}, {{"factor", 2.0f}});
  const std::string text = ExpectSame(net.Fetch({s, p}));
  for (const char* name : {"1.reshape", "1.scale", "1.add", "1.transpose", "1.slice", "0.combine",
                           "1.concat", "1.pow", "1.full_int_array", "1.fetch"})
    EXPECT_NE(text.find(fmt::format("{{\"#\":\"{}\"", name)), text.npos) << name;
}

TEST(PirExport, ListsAndConstants) {
  Small net({2, 6});
  net.writer.Append("split", {{"X", {"x"}}}, {{"Out", {"a", "b", "c"}}},
                    {{"num", int32_t{3}}, {"axis", int32_t{1}}});
  net.writer.Append("split", {{"X", {"x"}}}, {{"Out", {"d", "e"}}},
                    {{"sections", Ints{2, 4}}, {"axis", int32_t{1}}});
  const std::string one = net.Make(
      "fill_constant", {}, {{"shape", Longs{2, 2}}, {"dtype", int32_t{5}}, {"value", 0.1f}});
  const std::string list = net.Make("assign_value", {},
                                    {{"shape", Ints{2, 2}},
                                     {"dtype", int32_t{5}},
                                     {"fp32_values", std::vector<float>{1, 2.5f, -3, 4}}});
  const std::string sum = net.Make("sum", {{"X", {"a", "c", "d", one, list}}});
  const std::string shape = net.Make("shape", {{"Input", {"e"}}});
  ExpectSame(net.Fetch({sum, shape, "b"}));
}

// Paddle 3 has rank 0 where these ops give [1].
TEST(PirExport, Rank0) {
  Small net({2, 3, 4});
  std::vector<std::string> results = {
      net.Make("mean", {{"X", {"x"}}}),
      net.Make("reduce_sum", {{"X", {"x"}}}, {{"reduce_all", true}}),
      net.Make("reduce_sum", {{"X", {"x"}}}, {{"dim", Ints{0, 1, 2}}}),
      net.Make("reduce_mean", {{"X", {"x"}}}, {{"dim", Ints{0, -1}}, {"keep_dim", true}}),
      net.Make("reduce_max", {{"X", {"x"}}}, {{"dim", Ints{1}}}),
      net.Make("reduce_min", {{"X", {"x"}}}, {{"dim", Ints{1, 2}}}),
      net.Make("reduce_prod", {{"X", {"x"}}}, {{"dim", Ints{0}}, {"keep_dim", true}}),
      net.Make("squared_l2_norm", {{"X", {"x"}}}),
      net.Make("size", {{"Input", {"x"}}}),
  };
  const std::string text = ExpectSame(net.Fetch(results));
  const size_t mean = text.find("{\"#\":\"1.mean_all\"");
  ASSERT_NE(mean, text.npos);
  EXPECT_NE(text.find("{\"#\":\"0.t_f32\"},[],", mean), text.npos) << "the result has rank 0";
}

TEST(PirExport, FunctionsOfOneOperand) {
  Small net({2, 3});
  std::vector<std::string> results;
  for (const char* type : {"relu", "sigmoid", "tanh", "exp", "abs", "gelu", "leaky_relu", "elu",
                           "hard_swish", "hard_sigmoid", "softplus", "softmax", "log_softmax",
                           "swish", "relu6", "brelu", "square", "floor", "cumsum"})
    results.push_back(net.Make(type, {{"X", {"x"}}}));
  results.push_back(net.Make("clip", {{"X", {"x"}}}, {{"min", -0.5f}, {"max", 0.25f}}));
  results.push_back(net.Make("cast", {{"X", {"x"}}}, {{"out_dtype", int32_t{3}}}));
  results.push_back(net.Make("fill_any_like", {{"X", {"x"}}}, {{"value", 3.0f}}));
  results.push_back(net.Make("expand_v2", {{"X", {"x"}}}, {{"shape", Ints{4, 2, 3}}}));
  results.push_back(net.Make("tile", {{"X", {"x"}}}, {{"repeat_times", Ints{2, 1}}}));
  const std::string best = net.Make("arg_max", {{"X", {"x"}}}, {{"axis", int64_t{1}}});
  results.push_back(best);
  results.push_back(net.Make("tril_triu", {{"X", {"x"}}}, {{"lower", true}}));
  results.push_back(net.Make("one_hot_v2", {{"X", {best}}}, {{"depth", int32_t{4}}}));
  ExpectSame(net.Fetch(results));
}

// A variable that several ops write is one value for each of them.
TEST(PirExport, VariablesThatAreWrittenAgain) {
  Small net({2, 3});
  net.writer.Append("scale", {{"X", {"x"}}}, {{"Out", {"v"}}}, {{"scale", 2.0f}});
  net.writer.Append("exp", {{"X", {"v"}}}, {{"Out", {"w"}}});
  net.writer.Append("scale", {{"X", {"v"}}}, {{"Out", {"v"}}}, {{"bias", 1.0f}});
  ExpectSame(net.Fetch({"v", "w", "x"}));
}

TEST(PirExport, FilesWithParameters) {
  const TemporaryDirectory directory;
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable h = net.Conv2d(net.Data("x", {-1, 3, 8, 8}), {.num_filters = 4, .filter_size = 3});
  h = net.Pool2d(net.BatchNorm(h, {.act = "relu"}), {.pool_size = 2, .pool_stride = 2});
  const std::string out = net.Softmax(net.Fc(h, {.size = 5})).name();
  startup.random_seed = 3;
  Scope scope;
  Executor().Run(startup, scope);
  SaveInferenceModel(directory.File("m"), {"x"}, {out}, main, scope);
  Scope saved, loaded;
  const InferenceModel model = LoadInferenceModel(directory.File("m"), saved);
  ExportPir(directory.File("inference.json"), model.program, saved);
  const InferenceModel again = ImportPir(directory.File("inference.json"), loaded);
  EXPECT_EQ(again.feed_names, model.feed_names);
  EXPECT_EQ(again.fetch_names, model.fetch_names);
  EXPECT_EQ(PersistableNames(again.program), PersistableNames(model.program));
  const std::vector<Tensor> feeds = FeedsOf(model.program, 2);
  ExpectSameBits(RunOf(again.program, loaded, feeds), RunOf(model.program, saved, feeds));
  EXPECT_THROW(ExportPir(directory.File("none.json"), model.program, Scope()), Error);
  EXPECT_FALSE(FileExists(directory.File("none.json")));
}

TEST(PirExport, StartupPrograms) {
  ProgramDesc program;
  VarDesc& w = program.Root().Var("w");
  w.SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 3}, 0});
  w.SetPersistable(true);
  Writer(program.Root(), DefaultOps())
      .Into("w", "fill_constant", {},
            {{"shape", Longs{2, 3}}, {"dtype", int32_t{5}}, {"value", 0.5f}});
  const ProgramDesc again = ParsePir(ProgramToPir(program), "startup.json");
  Scope scope;
  Executor().Run(again, scope);
  EXPECT_EQ(scope.Get("w").span<float>()[5], 0.5f);
}

// The parameters of a startup program have no values before it runs.
TEST(PirExport, FilesOfStartupPrograms) {
  const TemporaryDirectory directory;
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Fc(net.Data("x", {-1, 3}), {.size = 5});
  const std::string path = directory.File("startup.json");
  ExportPir(path, startup, Scope());
  EXPECT_FALSE(FileExists(directory.File("startup.pdiparams")));
  Scope read, wanted;
  const InferenceModel model = ImportPir(path, read);
  EXPECT_EQ(PersistableNames(model.program), PersistableNames(startup));
  Executor().Run(model.program, read);
  Executor().Run(startup, wanted);
  for (const std::string& name : PersistableNames(startup))
    EXPECT_EQ(read.Get(name).ToString(), wanted.Get(name).ToString()) << name;
}

// A file holds the parameters that the program reads, and not those that it sets.
TEST(PirExport, FilesOfProgramsThatSetOneParameterAndReadAnother) {
  const TemporaryDirectory directory;
  Small net({2, 3});
  for (const char* name : {"a", "w"}) {
    VarDesc& var = net.program.Root().Var(name);
    var.SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 3}, 0});
    var.SetPersistable(true);
  }
  net.writer.Append("abs", {{"X", {"x"}}}, {{"Out", {"a"}}});
  const std::string sum = net.Make("elementwise_add", {{"X", {"x"}}, {"Y", {"w"}}});
  const std::string path = directory.File("m.json");
  Scope scope;
  EXPECT_NE(ErrorOf([&] { ExportPir(path, net.Fetch({sum}), scope); }).find("'w'"),
            std::string::npos);
  scope.Set("w", Tensor::Full<float>({2, 3}, 4));
  ExportPir(path, net.program, scope);
  Scope read;
  const InferenceModel model = ImportPir(path, read);
  EXPECT_EQ(read.Find("a"), nullptr);
  const std::vector<Tensor> feeds = {Tensor::Full<float>({2, 3}, -2)};
  const std::vector<Tensor> results = Executor().Prepare(model.program).Run(read, feeds);
  EXPECT_EQ(results[0].span<float>()[5], 2);
  EXPECT_EQ(read.Get("a").span<float>()[5], 2);
}

std::string RefusalOf(const ProgramDesc& program) {
  const std::string error = ErrorOf([&] { ProgramToPir(program); });
  return error.substr(0, error.find('\n'));
}

TEST(PirExport, Refusals) {
  {
    Small net({2, 3});
    net.Make("conv_shift", {{"X", {"x"}}, {"Y", {"x"}}});
    EXPECT_EQ(RefusalOf(net.Fetch({"conv_shift_0"})),
              "writing for Paddle 3: block 0 op 1 (conv_shift): the op has no counterpart in "
              "Paddle 3");
  }
  {
    Small net({1, 1, 4, 4}, {1, 1, 3, 3});
    const std::string out = net.Make("conv2d", {{"Input", {"x"}}, {"Filter", {"y"}}},
                                     {{"fuse_activation", std::string("relu")}}, "Output");
    EXPECT_NE(RefusalOf(net.Fetch({out})).find("its attribute fuse_activation = \"relu\" has no "),
              std::string::npos)
        << RefusalOf(net.program);
  }
  // Of several rows, the one for these operands and attributes gives the reason.
  for (const bool bias : {false, true}) {
    Small net({1, 1, 4, 4}, {1, 1, 3, 3});
    net.Declare("b", {1}, DType::kFloat32);
    SlotList inputs = {{"Input", {"x"}}, {"Filter", {"y"}}};
    if (bias) inputs.push_back({"Bias", {"b"}});
    const std::string out =
        net.Make("conv2d_transpose", inputs, {{"fuse_activation", std::string("relu")}}, "Output");
    EXPECT_EQ(RefusalOf(net.Fetch({out})),
              std::string("writing for Paddle 3: block 0 op 3 (conv2d_transpose): its attribute "
                          "fuse_activation = \"relu\" has no counterpart in conv2d_transpose") +
                  (bias ? "_bias" : ""));
  }
  {
    Small net({2, 3});
    net.program.Root().FindVar("x")->SetLoDLevel(1);
    const std::string out = net.Make("relu", {{"X", {"x"}}});
    EXPECT_NE(RefusalOf(net.Fetch({out})).find("the input 'x' holds sequences"), std::string::npos);
  }
  {
    Small net({2, 3});
    net.Declare("words", {2}, DType::kString);
    const std::string out = net.Make("relu", {{"X", {"x"}}});
    EXPECT_NE(RefusalOf(net.Fetch({out})).find("tensor of string"), std::string::npos);
  }
  {
    Small net({2, 3});
    const std::string big = net.Make("fill_constant", {},
                                     {{"shape", Longs{1}},
                                      {"dtype", int32_t{3}},
                                      {"str_value", std::string("9007199254740993")}});
    EXPECT_NE(RefusalOf(net.Fetch({big})).find("holds 9007199254740993 exactly"),
              std::string::npos);
  }
}

// What Paddle 3 would compute in another way.
TEST(PirExport, RefusesOtherMeanings) {
  {
    Small net({2, 3});
    net.writer.Append("exp", {{"X", {"x"}}}, {{"Out", {"v"}}});
    net.Fetch({"v"});
    net.writer.Append("scale", {{"X", {"v"}}}, {{"Out", {"v"}}}, {{"bias", 1.0f}});
    EXPECT_NE(RefusalOf(net.program).find("a later op overwrites 'v'"), std::string::npos)
        << RefusalOf(net.program);
  }
  {
    Small net({1});
    VarDesc& counter = net.program.Root().Var("counter");
    counter.SetMeta({VarType::kLoDTensor, DType::kFloat32, {1}, 0});
    counter.SetPersistable(true);
    net.writer.Append("increment", {{"X", {"counter"}}}, {{"Out", {"counter"}}}, {{"step", 1.0f}});
    const std::string sum =
        net.Make("elementwise_add", {{"X", {"x"}}, {"Y", {"counter"}}}, {{"axis", int32_t{-1}}});
    EXPECT_NE(RefusalOf(net.Fetch({sum})).find("it overwrites the parameter 'counter'"),
              std::string::npos)
        << RefusalOf(net.program);
  }
  {
    Small net({3}, {2, 3, 3});
    const std::string out =
        net.Make("elementwise_sub", {{"X", {"x"}}, {"Y", {"y"}}}, {{"axis", int32_t{1}}});
    EXPECT_NE(RefusalOf(net.Fetch({out})).find("axis = 1 aligns X with dims of Y"),
              std::string::npos)
        << RefusalOf(net.program);
  }
}

// Names like those of the reader's helpers.
TEST(PirExport, OwnRawNames) {
  Small net({2, 3});
  net.writer.Append("sqrt", {{"X", {"x"}}}, {{"Out", {"v.raw"}}});
  net.writer.Append("cast", {{"X", {"v.raw"}}}, {{"Out", {"v"}}},
                    {{"in_dtype", int32_t{5}}, {"out_dtype", int32_t{2}}});
  const std::string text = ExpectSame(net.Fetch({"v"}));
  EXPECT_NE(text.find("1.cast"), std::string::npos);
}

}  // namespace coracle::pir_export_test
