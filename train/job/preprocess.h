#pragma once
// PreprocessConfig: how raw data becomes the feeds of a saved model, and what the outputs of the
// model mean. A job saves it as a text next to the model: model.preprocess.pbtxt.

#include <coracle/train/data/data_source.h>
#include <coracle/train/job/job.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// A column of a csv file that the model reads. In `column`, all settings have values.
struct RawColumn {
  CsvColumn column = {};  // its name is that of the header; "" if the file has none
  int64_t number = 0;     // from 0, in the files of the job
  // The words, or characters, of a column of text: the first has the number WordList::kFirst. Of
  // byte pairs: the tokens from number 0 on, and their merges in order.
  std::vector<std::string> words = {}, merges = {};
};

// Rows of cells.
struct RawCsv {
  bool header = false;
  char delimiter = ',';
  int64_t cells = 0;                    // cells of a row in the files of the job
  std::vector<RawColumn> columns = {};  // those of "data" give its elements in this order
  std::vector<int64_t> shape = {};      // of a row of "data"; empty: [number of values]
  std::optional<int64_t> label_number = {};
  std::string label = "";  // name of the label in the header
  CsvLabel label_kind = CsvLabel::kInteger;
  std::vector<std::string> classes = {};  // of the label
};

// Pictures, whose bytes are 0 to 255.
struct RawPicture {
  std::string column = "image";
  // Of the whole picture, which is cropped afterwards. Other pictures are resized to this size.
  int64_t channels = 1, height = 0, width = 0;
  ChannelOrder channel_order = ChannelOrder::kRgb;  // of 3 channels
  // value = (byte - mean) * scale, before the transform: one number for all channels, or one for
  // each. Empty: 0 and 1.
  std::vector<float> mean = {}, scale = {};
  std::optional<TransformOptions> transform = {};  // the centre, without random changes
  std::vector<float> mean_image = {};              // [C, H, W] of mean_file
  int64_t decode_mb = 256;  // the most memory that decoding one file may take
};

// Texts, of which each character becomes a number.
struct RawText {
  std::string column = "text";
  std::vector<std::string> characters = {};  // in the order of their numbers
};

// A column of arrays, as the model reads it.
struct RawArray {
  std::string column = "";
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};  // of a row, or of an element of a sequence
  bool sequences = false;
};

enum class OutputKind {
  kValues,   // numbers without a known meaning
  kNumber,   // one number per row
  kClasses,  // one score per class
  kIds,      // numbers of classes; negative ones are padding
  kSteps,    // for each step of a sequence, one score per class
};

struct OutputMeaning {
  std::string var = "";
  OutputKind kind = OutputKind::kValues;
  float scale = 1;  // the number is value * scale + offset
  float offset = 0;
  std::vector<std::string> classes = {};  // empty: classes are numbers
};

struct PreprocessConfig {
  static constexpr int64_t kVersion = 1;

  int64_t version = kVersion;
  std::optional<RawCsv> csv = {};
  std::optional<RawPicture> picture = {};
  std::optional<RawText> text = {};
  std::vector<RawArray> arrays = {};
  std::vector<BindConfig> inputs = {};  // which column feeds which input
  std::vector<std::string> zeros = {};  // inputs that are fed zeros: states at their beginning
  std::vector<OutputMeaning> outputs = {};

  std::string ToText() const;
};

// Throws kInvalidArgument with source:line:column for unknown fields, for another version and for
// fields that contradict each other.
PreprocessConfig ParsePreprocess(std::string_view text, const std::string& source);

// The file next to a model: "model.preprocess.pbtxt" for "model.pdmodel" and "model.onnx",
// "DIR/preprocess.pbtxt" for "DIR/__model__".
std::string PreprocessFileOf(const std::string& model_file);

// The fields of a text with the values of a struct: "name: \"age\" fill: 0 ". Leaves out defaults
// and fields that hold fields.
std::string FieldsText(const FieldTable& table, const void* options);

}  // namespace coracle::inline internal
