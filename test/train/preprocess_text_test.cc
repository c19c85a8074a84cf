// The text of preprocessing: what is written reads back equal, and mistakes are refused where
// they are.

#include <coracle/framework/tensor/rng.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/preprocess.h>

#include <cstring>
#include <limits>

namespace coracle::preprocess_text_test {
PreprocessConfig Rows() {
  PreprocessConfig config;
  config.csv.emplace();
  config.csv->header = true;
  config.csv->delimiter = ';';
  config.csv->cells = 3;
  RawColumn column;
  column.column.name = "a \"b\"\n\xC3\xA9";
  column.column.mean = 0.1F;
  column.column.scale = 3e-38F;
  column.number = 2;
  config.csv->columns.push_back(column);
  config.inputs.push_back({"data", "x"});
  OutputMeaning meaning;
  meaning.var = "y";
  config.outputs.push_back(meaning);
  return config;
}

TEST(PreprocessText, ReadsBackEqual) {
  const PreprocessConfig config = Rows();
  const PreprocessConfig read = ParsePreprocess(config.ToText(), "p");
  EXPECT_EQ(read.ToText(), config.ToText());
  EXPECT_EQ(read.csv->delimiter, ';');
  EXPECT_EQ(read.csv->columns[0].column.name, config.csv->columns[0].column.name);
  EXPECT_EQ(read.csv->columns[0].column.mean, 0.1F);
  EXPECT_EQ(read.csv->columns[0].column.fill, std::nullopt);
  EXPECT_FALSE(read.csv->label_number);
}

// Every float32 is read back with the same bits.
TEST(PreprocessText, KeepsTheBitsOfNumbers) {
  PreprocessConfig config = Rows();
  config.csv.reset();
  config.picture.emplace();
  config.picture->height = config.picture->width = 50;
  const Philox random(3, 0, 0);
  for (uint64_t i = 0; i < 625; ++i) {
    for (uint32_t word : random.Block(i)) {
      float value = 0;
      std::memcpy(&value, &word, sizeof(value));
      if (!(value - value == 0)) value = std::numeric_limits<float>::denorm_min();
      config.picture->mean_image.push_back(value);
    }
  }
  const PreprocessConfig read = ParsePreprocess(config.ToText(), "p");
  ASSERT_EQ(read.picture->mean_image.size(), 2500u);
  EXPECT_EQ(std::memcmp(read.picture->mean_image.data(), config.picture->mean_image.data(), 10000),
            0);
}

std::string ErrorIn(const std::string& text) {
  return ErrorOf([&] { ParsePreprocess(text, "p.pbtxt"); });
}

TEST(PreprocessText, RefusesMistakes) {
  const std::string csv = "csv { cells: 2 column { name: \"\" number: 0 } }\n";
  const std::string input = "input { column: \"data\" var: \"x\" }\n";
  EXPECT_NO_THROW(ParsePreprocess("version: 1\n" + csv + input + "output { var: \"y\" }", "p"));
  ExpectContains(ErrorIn("version: 1\n" + csv + input), "no output is described");
  EXPECT_EQ(ErrorIn("version: 2\n" + csv + input),
            "p.pbtxt:1:1: version 2 is not known: this coracle reads version 1");
  ExpectContains(ErrorIn(csv + input), "preprocess needs version");
  ExpectContains(ErrorIn("version: 1\n" + csv + input + "inputs: 3"), "p.pbtxt:4:1: ");
  ExpectContains(ErrorIn("version: 1\n" + csv + input + "inputs: 3"), "inputs");
  ExpectContains(ErrorIn("version: 1\n" + input), "give one of csv, picture, text and array");
  ExpectContains(ErrorIn("version: 1\n" + csv + "text { column: \"t\" character: \"a\" }" + input),
                 "give one of csv, picture, text and array");
  ExpectContains(ErrorIn("version: 1\n" + csv), "no input is fed");
  ExpectContains(ErrorIn("version: 1\ncsv { cells: 1 column { name: \"\" number: 1 } }" + input),
                 "p.pbtxt:2:34: number must be below cells");
  ExpectContains(ErrorIn("version: 1\ncsv { cells: 1 column { name: \"a\" number: 0 } }" + input),
                 "name must be empty without a header");
  ExpectContains(ErrorIn("version: 1\npicture { column: \"i\" channels: 1 height: 2 width: 2 "
                         "transform { crop_size: 3 } }" +
                         input),
                 "crop_size is larger than the picture");
  ExpectContains(ErrorIn("version: 1\npicture { column: \"i\" channels: 1 height: 2 width: 2 "
                         "mean_image: [1, 2] }" +
                         input),
                 "mean_image must have 4 values");
  ExpectContains(ErrorIn("version: 1\ntext { column: \"t\" character: [\"a\", \"a\"] }" + input),
                 "lists one twice");
  ExpectContains(ErrorIn("version: 1\ntext { column: \"t\" character: \"ab\" }" + input),
                 "must be one character");
  ExpectContains(ErrorIn("version: 1\n" + csv + input + "output { var: \"y\" kind: IDS scale: 2 }"),
                 "scale applies to kind: NUMBER");
  ExpectContains(ErrorIn(std::string("version: 1\0", 11)), "a binary file");
}

TEST(PreprocessText, FileNames) {
  EXPECT_EQ(PreprocessFileOf("a/m.pdmodel"), "a/m.preprocess.pbtxt");
  EXPECT_EQ(PreprocessFileOf("a/m.onnx"), "a/m.preprocess.pbtxt");
  EXPECT_EQ(PreprocessFileOf("a/m"), "a/m.preprocess.pbtxt");
  EXPECT_EQ(PreprocessFileOf("a.b/m.1"), "a.b/m.1.preprocess.pbtxt");
  EXPECT_EQ(PreprocessFileOf("a/__model__"), "a/preprocess.pbtxt");
}

}  // namespace coracle::preprocess_text_test
