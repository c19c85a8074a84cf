// `coracle predict` and `coracle test --data` as a user runs them.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/test_data.h>
#include <coracle/test/tools/cli.h>

#include <algorithm>

namespace coracle::predict_cli_test {

constexpr const char* kJob = R"(
name: "town" model_text: "data { name: 'x' shape: [-1, 4] } data { name: 'y' shape: [-1, 1] } "
  "layer { fc { input: 'x' size: 1 output: 'z' } } "
  "layer { scale { input: 'y' scale: 0.01 output: 't' } } "
  "layer { square_error_cost { input: 'z' label: 't' output: 'c' } } layer { mean { input: 'c' output: 'loss' } }"
train { csv { file: "town.csv" header: true label: "price" label_kind: REAL
  column { name: "city" category: ["Oslo", "Rome"] } column { name: "age" fill: 7 } } }
bind { column: "data" var: "x" } bind { column: "label" var: "y" }
optimizer { sgd { learning_rate: 0.0001 } } batch_size: 2 epochs: 1
deploy { input: "x" output: "z" } output_dir: "town"
)";
constexpr const char* kTown = "age,city,price,rooms\n41,Oslo,300,3\n5,Rome,200,2\n,Oslo,250,4\n";

class PredictCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("job.pbtxt"), kJob);
    WriteFileAtomic(Path("town.csv"), kTown);
    Expect("coracle train job.pbtxt", 0, {"inference model"});
    // Prepared by hand: age, one value for each city, rooms.
    WriteNpz({{"x", Tensor::Of<float>({2, 4}, {41, 1, 0, 3, 7, 0, 1, 2})}}, Path("x.npz"));
    Expect("coracle run town/model.pdmodel --feed=x.npz --fetch=z --out=want.npz", 0, {});
    want_ = ReadNpz(Path("want.npz"))[0].second;
  }
  std::string Output(const std::string& command, int code = 0) {
    const Result result = Shell("cd " + dir_ + " && " + command);
    EXPECT_EQ(result.code, code) << result.text;
    return result.text;
  }
  void ExpectWanted(const std::string& npz) {
    const NamedTensors got = ReadNpz(Path(npz));
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].first, "z");
    EXPECT_TRUE(BitEqual(got[0].second, want_));
  }

  Tensor want_;
};

TEST_F(PredictCli, IsRunOnRowsPreparedByHand) {
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms\n41,Oslo,3\n,Rome,2\n");
  Output("coracle predict town rows.csv --out=got.npz");
  ExpectWanted("got.npz");
  // Other columns, in another order, with a label, quotes, a mark and other line ends.
  WriteFileAtomic(
      Path("rows.csv"),
      "\xEF\xBB\xBFrooms,\"note\",city,price,age\r\n3,\"two\r\nlines\",\"Oslo\",?,+41\r\n"
      "\r\n2,,Rome,,\r\n");
  Output("coracle predict town/model.pdmodel rows.csv --out=got.npz");
  ExpectWanted("got.npz");
  WriteFileAtomic(Path("rows.jsonl"),
                  "{\"rooms\": 3, \"city\": \"Oslo\", \"age\": 41}\n\n"
                  "{\"age\": null, \"rooms\": 2.0, \"city\": \"Rome\", \"other\": [1, 2]}\n");
  Output("coracle predict town rows.jsonl --out=got.npz");
  ExpectWanted("got.npz");
}

TEST_F(PredictCli, KeepsColumns) {
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms,note\n41,Oslo,3,\"a, \"\"b\"\"\"\n,Rome,2,\n");
  const std::string text = Output("coracle predict town rows.csv --columns=note,city");
  EXPECT_TRUE(text.starts_with("note,city,z\n\"a, \"\"b\"\"\",Oslo,")) << text;
  const std::string json =
      Output("coracle predict town rows.csv --columns=note,city --out=a.jsonl && cat a.jsonl");
  EXPECT_TRUE(json.starts_with("{\"note\":\"a, \\\"b\\\"\",\"city\":\"Oslo\",\"z\":")) << json;
  // What csv says is the number in the label's units: z * 100.
  const std::string csv = Output("coracle predict town rows.csv --out=a.csv && tail -n +2 a.csv");
  double first = 0, second = 0;
  ASSERT_EQ(std::sscanf(csv.c_str(), "%lf\n%lf", &first, &second), 2) << csv;
  EXPECT_NEAR(first, static_cast<double>(want_.data<float>()[0]) * 100, 1e-3);
  EXPECT_NEAR(second, static_cast<double>(want_.data<float>()[1]) * 100, 1e-3);
}

TEST_F(PredictCli, NamesBadRows) {
  const auto rows = [&](const std::string& text) { WriteFileAtomic(Path("rows.csv"), text); };
  rows("age,city\n41,Oslo\n");
  Expect("coracle predict town rows.csv", 1,
         {"rows.csv:1: the column 'rooms' is missing; there are age, city"});
  rows("age,city,rooms,age\n41,Oslo,3,4\n");
  Expect("coracle predict town rows.csv", 1, {"rows.csv:1: two columns are called 'age'"});
  rows("");
  Expect("coracle predict town rows.csv", 1, {"rows.csv: the file is empty"});
  rows("age,city,rooms\n");
  EXPECT_EQ(Output("coracle predict town rows.csv"), "z\n");
  const std::string head = "age,city,rooms\n41,Oslo,3\n";
  for (const auto& [row, error] : std::vector<std::pair<std::string, std::string>>{
           {"41,Olso,3", "rows.csv:3:4: 'Olso' is not one of the categories of 'city'"},
           {"41,Oslo,", "rows.csv:3:9: empty cell"},
           {"41,Oslo,nan", "rows.csv:3:9: 'nan' is not a finite float32"},
           {"41,Oslo,\xFF", "rows.csv:3:9: '\\xff' is not a number"},
           {"41,Oslo", "rows.csv:3:1: 2 cells, but the header has 3"},
           {"41,Oslo,3,4", "rows.csv:3:1: 4 cells, but the header has 3"},
           {"41,\"Oslo\"x,3", "rows.csv:3:10: text follows a closing quote"}}) {
    rows(head + row + "\n5,Rome,1\n");
    Expect("coracle predict town rows.csv", 1, {error});
    Expect("coracle predict town rows.csv --bad_rows=skip --out=got.npz", 0,
           {error, "1 of 3 rows could not be read"});
    EXPECT_EQ(ReadNpz(Path("got.npz"))[0].second.shape(), (Shape{2, 1})) << row;
    const std::string marked = Output("coracle predict town rows.csv --bad_rows=mark 2> /dev/null");
    EXPECT_TRUE(marked.starts_with("z,error\n")) << marked;
    EXPECT_NE(marked.find("rows.csv:3:"), std::string::npos) << marked;
    EXPECT_EQ(std::count(marked.begin(), marked.end(), '\n'), 4) << marked;
  }
  // A cell without an end is the rest of the file.
  rows(head + "41,\"Oslo,3\n5,Rome,1\n");
  Expect("coracle predict town rows.csv --bad_rows=skip", 0,
         {"rows.csv:3:4: a quoted cell has no closing quote", "1 of 2 rows"});
  WriteFileAtomic(Path("rows.jsonl"), "{\"age\": 1, \"city\": \"Rome\"}\n");
  Expect("coracle predict town rows.jsonl", 1, {"rows.jsonl:1: the column 'rooms' is missing"});
  WriteFileAtomic(Path("rows.jsonl"), "{\"age\": 1,\n");
  Expect("coracle predict town rows.jsonl", 1, {"rows.jsonl:1: "});
  // A failed command leaves no file.
  rows(head + "x\n");
  Expect("coracle predict town rows.csv --out=new.csv", 1, {});
  EXPECT_FALSE(FileExists(Path("new.csv")));
}

TEST_F(PredictCli, AnswersEachRowOfAPipe) {
  // The second row comes only after the first one was answered.
  const std::string text = Output(
      "mkfifo p && { coracle predict town - < p > out.csv & } && exec 3> p && "
      "printf 'age,city,rooms\\n41,Oslo,3\\n' >&3 && "
      "for i in $(seq 200); do [ $(wc -l < out.csv) -ge 2 ] && break; sleep 0.1; done; "
      "wc -l < out.csv; printf '5,Rome,2\\n' >&3; exec 3>&-; wait; wc -l < out.csv");
  EXPECT_EQ(text, "2\n3\n");
  const std::string json = Output(
      "printf '{\"age\": 41, \"city\": \"Oslo\", \"rooms\": 3}\\n' | coracle predict town - "
      "--format=jsonl");
  EXPECT_TRUE(json.starts_with("{\"z\":")) << json;
}

TEST_F(PredictCli, TestsOnRawRows) {
  Expect("coracle test town --data=town.csv", 0, {"test: rows=3 mean_error="});
  const std::string text = Output("coracle predict town town.csv | tail -n +2");
  double a = 0, b = 0, c = 0, error = 0;
  ASSERT_EQ(std::sscanf(text.c_str(), "%lf\n%lf\n%lf", &a, &b, &c), 3);
  const std::string tested = Output("coracle test town --data=town.csv");
  ASSERT_EQ(std::sscanf(tested.c_str(), "test: rows=3 mean_error=%lf", &error), 1) << tested;
  EXPECT_NEAR(error, (std::abs(a - 300) + std::abs(b - 200) + std::abs(c - 250)) / 3, 0.05);
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms\n41,Oslo,3\n");
  Expect("coracle test town --data=rows.csv", 1, {"rows.csv:2: the label is missing"});
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms,price\n41,Oslo,3,x\n");
  Expect("coracle test town --data=rows.csv", 1, {"rows.csv:2: the label 'x' is not a finite"});
}

// The description goes with the model into other formats.
TEST_F(PredictCli, ConvertedModelsAnswer) {
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms\n41,Oslo,3\n,Rome,2\n");
  const std::string want = Output("coracle predict town rows.csv");
  Output("coracle convert town/model.pdmodel m.onnx");
  EXPECT_EQ(Output("coracle predict m.onnx rows.csv"), want);
  Output("coracle convert m.onnx back.pdmodel");
  EXPECT_EQ(ReadFile(Path("back.preprocess.pbtxt")), ReadFile(Path("town/model.preprocess.pbtxt")));
  EXPECT_EQ(Output("coracle predict back.pdmodel rows.csv"), want);
  Output("coracle opt town/model.pdmodel --out=o.pdmodel");
  EXPECT_TRUE(FileExists(Path("o.preprocess.pbtxt")));
  // A model without a description does not get the one of another model.
  Output(
      "coracle build model.pbtxt --out=plain.pb && cp plain.pb x.pb && "
      "coracle convert x.pb back.pdmodel");
  EXPECT_FALSE(FileExists(Path("back.preprocess.pbtxt")));
  Expect("coracle predict back.pdmodel rows.csv", 1, {});
}

TEST_F(PredictCli, RefusesWrongUse) {
  Expect("coracle predict town", 2, {"MODEL and ROWS"});
  Expect("coracle predict town town.csv --out=x.txt", 2, {".csv, .jsonl or .npz"});
  Expect("coracle predict town town.csv --top=0", 2, {"--top"});
  Expect("coracle predict town town.csv --top=2 --probabilities", 2,
         {"--probabilities shows all classes, --top=N the best N"});
  Expect("coracle predict town town.csv --format=xml", 2,
         {"--format is csv, jsonl, text or requests"});
  Expect("coracle predict town town.csv --format=text", 2, {"does not read texts"});
  Expect("coracle predict town town.csv --columns=none", 1, {"the column 'none' is missing"});
  Expect("coracle predict town missing.csv", 1, {"cannot read 'missing.csv'"});
  Expect("coracle predict missing town.csv", 1, {"missing"});
  Expect("coracle predict town town.csv --out=./town.csv", 2, {"--out is the file of the rows"});
  EXPECT_EQ(ReadFile(Path("town.csv")), kTown);
}

// Readers of csv skip empty lines, which would move the answers below it to other rows.
TEST_F(PredictCli, AnEmptyAnswerIsALine) {
  // Negative ids are padding; one of the two rows has one.
  const std::string file = Path("town/model.preprocess.pbtxt"), text = ReadFile(file);
  WriteFileAtomic(file, text.substr(0, text.find("output {")) + "output { var: 'z' kind: IDS }\n");
  WriteFileAtomic(Path("rows.csv"), "age,city,rooms\n1e6,Oslo,1\n-1e6,Oslo,1\n");
  const std::string answers = Output("coracle predict town rows.csv");
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 3) << answers;
  EXPECT_NE(answers.find("\n\"\"\n"), std::string::npos) << answers;
}

TEST_F(PredictCli, ASkippedCellOfManyLinesHasNoRows) {
  // A quoted cell above the limit of 64 MiB, whose lines look like rows.
  Expect(
      "(printf 'age,city,rooms\\n41,Oslo,3\\n1,\"'; yes '5,Rome,2' | head -c 70000000; "
      "printf '\",9\\n,Rome,2\\n') > large.csv && "
      "coracle predict town large.csv --bad_rows=skip --out=got.npz",
      0, {"left out: large.csv:3:1: the row has more than 64.0 MiB", "1 of 3 rows"});
  ExpectWanted("got.npz");
}

TEST_F(PredictCli, Arrays) {
  WriteFileAtomic(Path("arrays.pbtxt"), R"(
name: "a" model_text: "data { name: 'x' shape: [-1, 4] } data { name: 'y' shape: [-1, 1] } "
  "layer { fc { input: 'x' size: 1 output: 'z' } } "
  "layer { square_error_cost { input: 'z' label: 'y' output: 'c' } } layer { mean { input: 'c' output: 'loss' } }"
train { npz { file: "t.npz" } } optimizer { sgd { learning_rate: 0.001 } } batch_size: 2 epochs: 1
deploy { input: "x" output: "z" } output_dir: "a")");
  const Tensor x = Tensor::Of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  WriteNpz({{"x", x}, {"y", Tensor::Of<float>({2, 1}, {1, 0})}}, Path("t.npz"));
  Expect("coracle train arrays.pbtxt", 0, {"inference model"});
  WriteNpz({{"x", x}}, Path("rows.npz"));
  Expect("coracle run a/model.pdmodel --feed=rows.npz --fetch=z --out=want.npz", 0, {});
  want_ = ReadNpz(Path("want.npz"))[0].second;
  Output("coracle predict a rows.npz --out=got.npz");
  ExpectWanted("got.npz");
  Expect("coracle predict a town.csv --format=csv", 2, {"the model reads arrays: ROWS is an .npz"});
  Expect("coracle report a --data=rows.npz", 2, {"--data: npz rows have no labels"});
}

TEST_F(PredictCli, Pictures) {
  WriteFileAtomic(Path("digits.pbtxt"), R"(
name: "d" model_text: "data { name: 'image' shape: [-1, 1, 28, 28] } data { name: 'label' shape: [-1, 1] dtype: INT64 } "
  "layer { fc { input: 'image' size: 10 output: 'logits' } } "
  "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } } layer { softmax { input: 'logits' output: 'prob' } }"
train { digits { count: 300 } } optimizer { sgd { learning_rate: 0.1 } } batch_size: 50 epochs: 2
deploy { input: "image" output: "prob" } output_dir: "d")");
  Expect("coracle train digits.pbtxt && mkdir pictures", 0, {});
  std::string pgm = "P5 28 28 255\n";
  Tensor picture(DType::kUInt8, {28, 28});
  for (int i = 0; i < 784; ++i) picture.data<uint8_t>()[i] = static_cast<uint8_t>(i * i % 256);
  pgm.append(reinterpret_cast<const char*>(picture.raw()), 784);
  WriteFileAtomic(Path("pictures/b.pgm"), pgm);
  WriteNpy(picture, Path("pictures/a.npy"));
  WriteFileAtomic(Path("pictures/readme.txt"), "no picture");
  const std::string text = Output("coracle predict d pictures --top=2");
  EXPECT_TRUE(text.starts_with("file,prob,prob_score,prob_2,prob_2_score\npictures/a.npy,"))
      << text;
  const size_t a = text.find("a.npy,") + 6, b = text.find("b.pgm,") + 6;
  EXPECT_EQ(text.substr(a, text.find('\n', a) - a), text.substr(b, text.find('\n', b) - b));
  EXPECT_TRUE(Output("coracle predict d pictures/b.pgm --probabilities")
                  .starts_with("file,prob,prob[0],prob[1],"));
  WriteFileAtomic(Path("pictures/c.png"), "no png");
  Expect("coracle predict d pictures", 1, {"pictures/c.png"});
  Expect("coracle predict d pictures --bad_rows=mark", 0, {"1 of 3 rows could not be read"});
  Expect("coracle predict d town.csv", 2, {"reads pictures"});
  Expect("coracle predict d pictures/b.pgm --decode_mb=0", 2, {"decode_mb"});
  Expect("coracle predict d - --format=requests --decode_mb=9 < /dev/null", 2,
         {"--decode_mb are for rows; a request has its own \"top\", and no picture"});
}

}  // namespace coracle::predict_cli_test
