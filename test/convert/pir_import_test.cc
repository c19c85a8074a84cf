// Programs of Paddle 3 as programs: values, names, types, places, blocks and refusals.
#include <coracle/convert/models.h>
#include <coracle/convert/pir/op_reader.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/convert/pir_run.h>
#include <coracle/test/convert/pir_text.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace coracle::pir_import_test {

using namespace coracle::pir_run;  // NOLINT: the helpers of these tests

const PirType kRow = {"f32", {-1, 3}};

TEST(PirImport, NamesTypesAndPlaces) {
  PirText text;
  const int64_t w = text.Parameter("w", {"f32", {3, 2}});
  text.Parameter("unused.b", {"f32", {2}});
  const int64_t x = text.Data("image", kRow);
  const int64_t y = text.Op("1.matmul", {x, w}, {{"f32", {-1, 2}}},
                            {PirBool("transpose_x", false), PirBool("transpose_y", false),
                             PirString("struct_name", "/Net/Linear/")});
  const int64_t z = text.Op("1.relu_", {y}, {{"f32", {-1, 2}}});
  text.Fetch(z, {"f32", {-1, 2}}, "scores");
  const ProgramDesc program = ParsePir(text.Text(), "m.json");
  EXPECT_EQ(FeedNames(program), std::vector<std::string>{"image"});
  EXPECT_EQ(FetchNames(program), std::vector<std::string>{"scores"});
  EXPECT_EQ(PersistableNames(program), (std::vector<std::string>{"unused.b", "w"}));
  EXPECT_EQ(program.Parameters(), (std::vector<std::string>{"w", "unused.b"}));
  const BlockDesc& root = program.Root();
  EXPECT_EQ(root.FindVar("image")->shape(), (Shape{-1, 3}));
  EXPECT_EQ(root.FindVar("scores")->shape(), (Shape{-1, 2}));
  const OpDesc& product = root.op(1);
  EXPECT_EQ(product.type(), "matmul_v2");
  EXPECT_EQ(product.GetAttr<std::string>("op_namescope", ""), "/Net/Linear/");
  EXPECT_NE(Locate(product).find("/Net/Linear/"), std::string::npos) << Locate(product);
  EXPECT_EQ(product.Output("Out")[0], fmt::format("matmul_{}.tmp_0", y));
}

TEST(PirImport, ParametersOfAFileAreSortedByName) {
  const TemporaryDirectory directory;
  PirText text;  // the order of the text is not that of the file
  const int64_t b = text.Parameter("b", {"f32", {2}});
  const int64_t a = text.Parameter("a", {"f32", {2}});
  const int64_t x = text.Data("x", {"f32", {-1, 2}});
  const int64_t y = text.Op("1.multiply", {x, a}, {{"f32", {-1, 2}}});
  const int64_t z = text.Op("1.add", {y, b}, {{"f32", {-1, 2}}});
  text.Fetch(z, {"f32", {-1, 2}});
  WriteFileAtomic(directory.File("inference.json"), text.Text());
  Scope saved;
  saved.Set("a", Numbers({2}, {2, 3}));
  saved.Set("b", Numbers({2}, {10, 20}));
  SaveCombined(saved, {"a", "b"}, directory.File("inference.pdiparams"));
  RegisterPirReader();
  for (const std::string& path :
       {directory.File("inference.json"), directory.File("inference"), directory.path()}) {
    Scope scope;
    InferenceModel model = LoadInferenceModel(path, scope);
    PreparedProgram net = Executor().PrepareOwning(model.program, scope);
    ExpectNumbers(net.Run(scope, {Numbers({1, 2}, {1, 1})})[0], {1, 2}, {12, 23});
  }
  // A file whose sizes contradict the program names the parameter.
  Scope wrong;
  wrong.Set("a", Numbers({3}, {1, 2, 3}));
  wrong.Set("b", Numbers({2}, {1, 2}));
  SaveCombined(wrong, {"a", "b"}, directory.File("inference.pdiparams"));
  Scope scope;
  EXPECT_THROW(ImportPir(directory.File("inference.json"), scope), Error);
}

TEST(PirImport, OperandsThatAreAttrs) {
  PirText text;
  const int64_t x = text.Data("x", {"f32", {2, 3}});
  const int64_t r = text.Op("1.reshape", {x, text.Ints({3, -1})}, {{"f32", {3, 2}}});
  const int64_t s = text.Op("1.scale", {r, text.Full("f32", "float32", 2)}, {{"f32", {3, 2}}},
                            {PirFloat("bias", 1), PirBool("bias_after_scale", true)});
  const int64_t t =
      text.Op("1.slice", {s, text.Ints({1}), text.Ints({INT64_MAX})}, {{"f32", {2, 2}}},
              {PirInts("axes", {0}), PirInts("infer_flags", {1}), PirInts("decrease_axis", {})});
  const int64_t m =
      text.Op("1.mean", {t, text.Ints({})}, {{"f32", {}}}, {PirBool("keepdim", false)});
  text.Fetch(t, {"f32", {2, 2}}, "part", 1);
  text.Fetch(m, {"f32", {}}, "mean", 0);
  const ProgramDesc program = ParsePir(text.Text(), "m.json");
  EXPECT_EQ(FetchNames(program), (std::vector<std::string>{"mean", "part"}));
  program.ForEachOp([](const OpDesc& op) { EXPECT_NE(op.type(), "assign_value"); });
  const auto results = RunText(text.Text(), {Numbers({2, 3}, {1, 2, 3, 4, 5, 6})});
  ExpectNumbers(results[0], {}, {10});
  ExpectNumbers(results[1], {2, 2}, {7, 9, 11, 13});
}

// The shape of a reshape from the run: a stack of scalars, and a list with a constant.
TEST(PirImport, ShapesFromTheRun) {
  for (const bool stacked : {true, false}) {
    PirText text;
    const PirType scalar = {"i64", {}};
    const int64_t x = text.Data("x", {"f32", {-1, 6}});
    const int64_t shape = text.Op("1.shape64", {x}, {{"i64", {2}}});
    const int64_t rows =
        text.Op("1.slice", {shape, text.Ints({0}), text.Ints({1})}, {scalar},
                {PirInts("axes", {0}), PirInts("infer_flags", {1}), PirInts("decrease_axis", {0})});
    const int64_t two = text.Full("i64", "int64", 2, {}), three = text.Full("i64", "int64", 3, {});
    const int64_t list = text.Combine({rows, two, three}, {scalar, scalar, scalar});
    const int64_t to =
        stacked ? text.Op("1.stack", {list}, {{"i64", {3}}}, {PirInt("axis", 0)}) : list;
    const int64_t y = text.Op("1.reshape", {x, to}, {{"f32", {-1, 2, 3}}});
    text.Fetch(y, {"f32", {-1, 2, 3}});
    const auto results = RunText(text.Text(), {Tensor::Full<float>({4, 6}, 1)});
    EXPECT_EQ(results[0].shape(), (Shape{4, 2, 3})) << stacked;
  }
}

TEST(PirImport, ListsOfTensors) {
  PirText text;
  const PirType half = {"f32", {2, 2}};
  const int64_t x = text.Data("x", {"f32", {2, 4}});
  const int64_t halves = text.Op("1.split_with_num", {x, text.Full("i32", "int32", 1)},
                                 {{.list = true, .items = {half, half}}}, {PirInt("num", 2)});
  const int64_t a = text.Op("0.split", {halves}, {half, half});
  const int64_t joined =
      text.Op("1.concat", {text.Combine({a + 1, a}, {half, half}), text.Full("i32", "int32", 0)},
              {{"f32", {4, 2}}});
  text.Fetch(joined, {"f32", {4, 2}});
  const auto results = RunText(text.Text(), {Numbers({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})});
  ExpectNumbers(results[0], {4, 2}, {3, 4, 7, 8, 1, 2, 5, 6});
}

TEST(PirImport, InfiniteNumbers) {
  PirText text;
  const int64_t x = text.Data("x", {"f32", {2}});
  const int64_t c = text.Op("1.full", {}, {{"f32", {1}}},
                            {PirAttr("shape", "1.a_intarray", "[1]"),
                             "{\"N\":\"value\",\"AT\":{\"#\":\"0.a_f64\",\"VD\":\"-INF\"}}",
                             PirDType("dtype", "float32")});
  text.Fetch(text.Op("1.maximum", {x, c}, {{"f32", {2}}}), {"f32", {2}});
  text.Fetch(text.Op("1.add", {x, c}, {{"f32", {2}}}), {"f32", {2}}, "sum", 1);
  const auto results = RunText(text.Text(), {Numbers({2}, {1, -2})});
  ExpectNumbers(results[0], {2}, {1, -2});
  EXPECT_EQ(results[1].data<float>()[0], -INFINITY);
}

// if x > 0 then x * 2 (else x - 1), with a constant of the outer block in both branches.
TEST(PirImport, If) {
  PirText text;
  const PirType one = {"f32", {}};
  const int64_t x = text.Data("x", one);
  const int64_t zero = text.Full("f32", "float32", 0, {}), two = text.Full("f32", "float32", 2, {});
  const int64_t holds = text.Op("1.greater_than", {x, zero}, {{"bool", {}}});
  PirText then = text.Inner();
  const int64_t product = then.Op("1.multiply", {x, two}, {one});
  then.Op("2.yield", {product}, {});
  text.Skip(then);
  PirText otherwise = text.Inner();
  const int64_t less = otherwise.Op("1.subtract", {x, two}, {one});
  otherwise.Op("2.yield", {less}, {});
  text.Skip(otherwise);
  const int64_t y = text.Op("1.if", {holds}, {one}, {},
                            ",\"regions\":" + PirList({then.Region(), otherwise.Region()}));
  text.Fetch(y, one);
  ExpectNumbers(RunText(text.Text(), {Tensor::Full<float>({}, 3)})[0], {}, {6});
  ExpectNumbers(RunText(text.Text(), {Tensor::Full<float>({}, -3)})[0], {}, {-5});
}

// while (i < n) { (a, b, i) = (b, a + b, i + 1) }: Fibonacci's numbers, which swap variables.
TEST(PirImport, While) {
  PirText text;
  const PirType one = {"i64", {}};
  const int64_t n = text.Data("n", one);
  const int64_t zero = text.Full("i64", "int64", 0, {}), unit = text.Full("i64", "int64", 1, {});
  const int64_t more = text.Op("1.less_than", {zero, n}, {{"bool", {}}});
  PirText body = text.Inner();
  const int64_t a = -1, b = -2, i = -3;
  const int64_t sum = body.Op("1.add", {a, b}, {one});
  const int64_t next = body.Op("1.add", {i, unit}, {one});
  const int64_t again = body.Op("1.less_than", {next, n}, {{"bool", {}}});
  body.Op("2.yield", {again, b, sum, next}, {});
  text.Skip(body);
  std::vector<std::string> arguments;
  for (int64_t id : {a, b, i})
    arguments.push_back(fmt::format("{{\"%\":{},\"TT\":{}}}", id, TypeJson(one)));
  const int64_t result = text.Op("1.while", {more, zero, unit, zero}, {one, one, one}, {},
                                 ",\"regions\":" + PirList({body.Region(arguments)}));
  text.Fetch(result, one);
  for (const auto& [count, want] :
       {std::pair<int64_t, double>{0, 0}, {1, 1}, {10, 55}, {50, 12586269025}})
    ExpectNumbers(RunText(text.Text(), {Tensor::Full<int64_t>({}, count)})[0], {}, {want});
}

TEST(PirImport, StopGradientCutsWhatItCutThere) {
  PirText text;
  const int64_t x = text.Parameter("x", {"f32", {2}});
  const int64_t y = text.Op("1.assign", {x}, {{"f32", {2}}});
  std::string all = text.Text();
  text.Fetch(text.Op("1.multiply", {x, y}, {{"f32", {2}}}), {"f32", {2}});
  all = text.Text();
  const std::string open = "\"1.assign\",\"A\":[],\"I\":[{\"%\":1}],";
  const size_t at = all.find("\"OA\":[]", all.find(open));
  all.replace(at, 7,
              "\"OA\":[{\"N\":\"stop_gradient\",\"AT\":{\"#\":\"0.a_array\",\"D\":[{\"#\":"
              "\"0.a_bool\",\"D\":true}]}}]");
  const ProgramDesc program = ParsePir(all, "m.json");
  EXPECT_TRUE(program.Root().FindVar(fmt::format("assign_{}.tmp_0", y))->stop_gradient());
  EXPECT_TRUE(program.Root().FindVar("x")->is_parameter());
}

// --- the table ---

TEST(PirTable, NamesSlotsAndAttrsThatExist) {
  std::set<std::string> names;
  for (const pir::Row& row : pir::AllRows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    const OpSpec* spec = DefaultOps().Find(row.type);
    ASSERT_NE(spec, nullptr) << row.type;
    const auto words = [](const std::string& text) {
      std::vector<std::string> all;
      for (const std::string& word : Split(text, ' '))
        if (!word.empty() && word != "_") all.push_back(word);
      return all;
    };
    for (const std::string& word : words(row.inputs)) {
      if (word[0] != '=') {
        EXPECT_TRUE(spec->FindInput(word)) << row.name << " " << word;
        continue;
      }
      const std::vector<std::string> parts = Split(word.substr(1), ':');
      const size_t arrow = parts[0].find('>');
      const std::string attr = arrow == std::string::npos ? parts[0] : parts[0].substr(arrow + 1);
      EXPECT_TRUE(spec->FindAttr(attr)) << row.name << " " << attr;
      for (size_t i = 1; i < parts.size(); ++i)
        EXPECT_TRUE(parts[i].empty() || spec->FindInput(parts[i])) << row.name << " " << parts[i];
    }
    for (const std::string& word : words(row.outputs))
      EXPECT_TRUE(spec->FindOutput(word.substr(0, word.find('=')))) << row.name << " " << word;
    for (const std::string& word : words(row.attrs)) {
      const size_t arrow = word.find('>'), equal = word.find('=');
      if (arrow != std::string::npos) {
        EXPECT_TRUE(spec->FindAttr(word.substr(arrow + 1))) << row.name << " " << word;
      }
      if (word[0] == '+') {
        EXPECT_TRUE(spec->FindAttr(word.substr(1, equal - 1))) << row.name << " " << word;
      }
    }
  }
  EXPECT_GT(names.size(), 250u);
}

TEST(PirTable, IsInTheDocs) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  const std::string page = ReadFile(std::string(sources) + "/docs/pir.md");
  const auto expect = [&](const std::string& name) {
    EXPECT_NE(page.find("| `" + name + "` |"), std::string::npos) << name;
  };
  for (const pir::Row& row : pir::AllRows())
    if (DefaultOps().Find(row.type)) expect(row.name);
  for (std::string name : pir::SpecialOps()) {
    if (!name.starts_with("pd_op.")) continue;
    name = name.substr(6);
    if (name.ends_with('_')) name.pop_back();
    expect(name);
  }
}

// --- refusals ---

TEST(PirRefusals, NameWhatAndWhere) {
  PirText unknown;
  const int64_t x = unknown.Data("x", kRow);
  unknown.Op("1.fancy_op", {x}, {kRow}, {PirString("struct_name", "/Net/Fancy/")});
  ExpectRefusal(unknown.Text(),
                "m.json: op 1 of its block, 'pd_op.fancy_op' in '/Net/Fancy/': the op has no "
                "counterpart");
  for (const auto& [name, shown] :
       {std::pair{"3.my_relu", "custom_op.my_relu"}, std::pair{"4.reshard", "dist.reshard"},
        std::pair{"onednn_op.conv2d", "onednn_op.conv2d"},
        std::pair{"2.tuple_push", "cf.tuple_push"}}) {
    PirText text;
    text.Op(name, {text.Data("x", kRow)}, {kRow});
    ExpectRefusal(text.Text(), shown);
  }
  PirText attr;
  attr.Op("1.relu", {attr.Data("x", kRow)}, {kRow}, {PirInt("sharpness", 3)});
  ExpectRefusal(attr.Text(), "the attribute 'sharpness' = 3 has no counterpart in relu");
  PirText value;
  value.Op("1.round", {value.Data("x", kRow)}, {kRow}, {PirInt("decimals", 2)});
  ExpectRefusal(value.Text(), "the attribute decimals = 2 is only known as 0");
  PirText sparse;
  ExpectRefusal(
      [&] {
        std::string all = sparse.Text();
        PirText text;
        text.Data("x", kRow);
        all = text.Text();
        return all.replace(all.find("0.t_f32"), 7, "0.t_f8e4m3fn");
      }(),
      "t_f8e4m3fn");
  PirText type;  // a lie about a result
  type.Fetch(type.Op("1.relu", {type.Data("x", {"f32", {2, 3}})}, {{"f32", {2, 4}}}), kRow);
  ExpectRefusal(type.Text(), "the file says that a result is [2, 4], but it is [2, 3]");
}

TEST(PirRefusals, LyingIds) {
  PirText missing;
  missing.Op("1.relu", {77}, {kRow});
  ExpectRefusal(missing.Text(), "operand 0 is the value 77, which no op before it gives");
  PirText later;
  later.Op("1.relu", {2}, {kRow});
  later.Data("x", kRow);
  ExpectRefusal(later.Text(), "which no op before it gives");
  PirText twice;
  twice.Data("x", kRow);
  std::string all = twice.Text();
  PirText second;
  second.Data("y", kRow);
  const std::string op = second.Region();
  const size_t begin = op.find("\"ops\":[") + 7;
  const std::string body = op.substr(begin, op.rfind("]}]}") - begin);
  all.insert(all.rfind("]}]}]}}"), "," + body);
  ExpectRefusal(all, "the value 1 is defined twice");
  PirText names;
  names.Parameter("w", kRow.dims[0] < 0 ? PirType{"f32", {2}} : kRow);
  names.Parameter("w", {"f32", {2}});
  ExpectRefusal(names.Text(), "the name 'w' is in use");
  // A value of a branch is unknown outside of it.
  PirText text;
  const int64_t c = text.Data("c", {"bool", {}});
  PirText then = text.Inner();
  const int64_t inner = then.Full("f32", "float32", 1, {});
  then.Op("2.yield", {}, {});
  text.Skip(then);
  text.Op("1.if", {c}, {}, {}, ",\"regions\":" + PirList({then.Region(), PirText().Region()}));
  text.Fetch(inner, {"f32", {}});
  ExpectRefusal(text.Text(), "which no op before it gives");
}

// Many readers of one long list would copy it for each.
TEST(PirRefusals, ListsWithManyReaders) {
  const PirType one = {"f32", {1}};
  const auto program = [&](int readers) {
    PirText text;
    const int64_t x = text.Data("x", one);
    const int64_t list =
        text.Combine(std::vector<int64_t>(1024, x), std::vector<PirType>(1024, one));
    int64_t y = x;
    for (int i = 0; i < readers; ++i) y = text.Op("1.add_n", {list}, {one});
    text.Fetch(y, one);
    return text.Text();
  };
  EXPECT_EQ(Refusal(program(20)), "no error");
  ExpectRefusal(program(1025), "read more than 1048576 tensors and numbers in lists");
}

TEST(PirRefusals, HostileJson) {
  ExpectRefusal("", "m.json");
  ExpectRefusal("{}", "base_code");
  ExpectRefusal("{\"base_code\":{\"magic\":\"rip\",\"version\":1}}", "Paddle 3");
  std::string deep = "{\"base_code\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  ExpectRefusal(deep, "nested more than");
  PirText text;
  text.Data("x", kRow);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string all = text.Text();
    return all.replace(all.find(from), from.size(), to);
  };
  ExpectRefusal(with("[-1,3]", "[-1,99999999999999999999]"), "must be a whole number");
  ExpectRefusal(with("[-1,3]", "[-1,18446744073709551615]"), "must lie in");
  ExpectRefusal(with("[-1,3]", "[1,1,1,1,1,1,1,1,1,1,1,1]"), "dims");
  ExpectRefusal(with("[-1,3]", "[-1,1e999]"), "range");
  ExpectRefusal(with("[-1,3]", "\"x\""), "must be a list");
  ExpectRefusal(with("\"name\"", "\"name\",\"N\":\"name\""), "twice");
  ExpectRefusal(text.Text(), "no fetch");
}

TEST(PirRefusals, EveryTruncation) {
  PirText text;
  const int64_t w = text.Parameter("w", {"f32", {3, 2}});
  const int64_t y = text.Op("1.matmul", {text.Data("x", kRow), w}, {{"f32", {-1, 2}}},
                            {PirBool("transpose_x", false)});
  text.Fetch(y, {"f32", {-1, 2}});
  const std::string all = text.Text();
  EXPECT_EQ(Refusal(all), "no error");
  for (size_t size = 0; size < all.size(); ++size)
    EXPECT_NE(Refusal(all.substr(0, size)), "no error") << size;
}

// A step of a generator of pseudo-random numbers.
uint64_t Next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Bytes, digits and words of the text replaced by others: never more than an error.
void Mutate(const std::string& text, int count, uint64_t seed) {
  static const std::vector<std::string> words = {
      "0",          "-1",          "99999999999", "1e300",         "null",
      "true",       "[]",          "{}",          "\"\"",          "[-1]",
      ",",          "\"1.while\"", "\"p\"",       "\"0.combine\"", "9223372036854775807",
      "-2147483649"};
  uint64_t state = seed;
  int read = 0;
  for (int i = 0; i < count; ++i) {
    std::string changed = text;
    for (uint64_t changes = 1 + Next(&state) % 3; changes > 0; --changes) {
      const size_t at = Next(&state) % changed.size();
      switch (Next(&state) % 4) {
        case 0:
          changed[at] = static_cast<char>(Next(&state));
          break;
        case 1:
          changed.replace(at, 1 + Next(&state) % 8, words[Next(&state) % words.size()]);
          break;
        case 2: {  // a number
          const size_t digit = changed.find_first_of("0123456789", at);
          if (digit != std::string::npos)
            changed.replace(digit, 1,
                            std::to_string(static_cast<int64_t>(Next(&state) % 1000) - 500));
          break;
        }
        default:
          changed.erase(at, 1 + Next(&state) % 40);
      }
    }
    try {
      ProgramDesc program = ParsePir(changed, "m.json");
      ++read;
      Verify(program, DefaultOps());
      ProgramToText(program);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kInternal)
        ADD_FAILURE() << e.what() << "\nin " << changed.substr(0, 2000);
    }
  }
  ::testing::Test::RecordProperty("read", read);
}

int Mutations(int otherwise) {
  const char* count = std::getenv("CORACLE_PIR_MUTATIONS");
  return count ? std::atoi(count) : otherwise;
}

TEST(PirHostile, MutatedSmallProgram) {
  PirText text;
  const int64_t w = text.Parameter("w", {"f32", {3, 2}});
  const int64_t x = text.Data("x", kRow);
  const int64_t y =
      text.Op("1.matmul", {x, w}, {{"f32", {-1, 2}}}, {PirBool("transpose_x", false)});
  const int64_t r = text.Op("1.reshape", {y, text.Ints({-1, 2, 1})}, {{"f32", {-1, 2, 1}}});
  const int64_t more =
      text.Op("1.any", {text.Op("1.isnan", {r}, {{"bool", {-1, 2, 1}}}), text.Ints({})},
              {{"bool", {}}}, {PirBool("keepdim", false)});
  PirText then = text.Inner();
  then.Op("2.yield", {then.Op("1.relu", {r}, {{"f32", {-1, 2, 1}}})}, {});
  text.Skip(then);
  PirText otherwise = text.Inner();
  otherwise.Op("2.yield", {otherwise.Op("1.tanh", {r}, {{"f32", {-1, 2, 1}}})}, {});
  text.Skip(otherwise);
  const int64_t z = text.Op("1.if", {more}, {{"f32", {-1, 2, 1}}}, {},
                            ",\"regions\":" + PirList({then.Region(), otherwise.Region()}));
  text.Fetch(z, {"f32", {-1, 2, 1}});
  ASSERT_EQ(Refusal(text.Text()), "no error");
  Mutate(text.Text(), Mutations(2000), 1);
}

std::string RealText(const char* name) {
  const std::string path = TestDataDirectory() + "/paddle3/" + name + "/inference.json";
  return TestDataDirectory().empty() || !FileExists(path) ? "" : ReadFile(path);
}

constexpr const char* kReal[] = {"PP-OCRv5_mobile_det_infer", "korean_PP-OCRv5_mobile_rec_infer"};

TEST(PirHostile, MutatedRealPrograms) {
  for (const char* name : kReal) {
    const std::string text = RealText(name);
    if (text.empty()) GTEST_SKIP() << "no test data paddle3";
    Mutate(text, Mutations(150), 2);
  }
}

TEST(PirReal, ReadsAndVerifies) {
  for (const char* name : kReal) {
    const std::string text = RealText(name);
    if (text.empty()) GTEST_SKIP() << "no test data paddle3";
    const ProgramDesc program = ParsePir(text, name);
    for (const VerifyProblem& problem : Verify(program, DefaultOps()))
      EXPECT_NE(problem.severity, VerifyProblem::Severity::kError) << problem.ToString();
    EXPECT_EQ(PersistableNames(program).size(), 234u);
    EXPECT_EQ(FeedNames(program), std::vector<std::string>{"x"});
    // As a program of Paddle 2, it is the same.
    EXPECT_EQ(ParseProgram(SerializeProgram(program)), program);
  }
}

}  // namespace coracle::pir_import_test
