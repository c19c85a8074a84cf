#pragma once
// The data sources of this library: drawn digits, files of the formats idx (that of MNIST), csv and
// npz, and texts. Files may come from anywhere: every count is checked against the bytes that are
// there before memory is allocated, and errors give file and position.

#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// One idx array: big-endian header 0 0 TYPE RANK, RANK dimensions of 4 bytes, then the elements
// (format: the MNIST page of LeCun, Cortes and Burges). `bytes` are unpacked already.
Tensor ParseIdx(std::string_view bytes, const std::string& source);
// The same from a file, plain or gzip (told by its first bytes).
Tensor ReadIdx(const std::string& path);

struct IdxOptions {
  std::string images = {};          // file of the "image" column: any rank from 1
  std::string labels = {};          // file of the "label" column: integers, rank 1
  float mean = 0;                   // image = (value - mean) * scale
  std::optional<float> scale = {};  // default: 1/255 for bytes, else 1
};
// Columns "image" (float32; rows of rank 2 get a channel: [1, 28, 28]) and "label" (int64 [1]). A
// missing "x.gz" is looked for as "x", and "x" as "x.gz".
DataSourcePtr MakeIdxSource(const IdxOptions& options);

enum class CsvLabel {
  kInteger,  // int64
  kReal,     // float32
  kClass,    // one of `classes`, by its place
};

// A column of data that is not as the others.
struct CsvColumn {
  std::string name = "";                     // or number
  std::optional<float> fill = std::nullopt;  // none: the file's; so for the next two
  std::optional<float> mean = std::nullopt;
  std::optional<float> scale = std::nullopt;
  // The words that it holds: as many values, 1 for the word of a row and else 0.
  std::vector<std::string> categories = {};
  // Not "": the number of the word instead, as a column of that name, int64 [1].
  std::string ids = "";
};

struct CsvOptions {
  std::string file = {};
  bool header = false;  // the first line names the columns
  char delimiter = ',';
  std::string label = {};  // name (with a header) or number from 0; "": the last column
  CsvLabel label_kind = CsvLabel::kInteger;
  std::vector<std::string> classes = {};
  std::vector<std::string> skip = {};  // columns left out, by name or number
  std::optional<float> fill = {};      // value of empty cells; none: an empty cell is an error
  float mean = 0;                      // data = (value - mean) * scale
  float scale = 1;
  std::vector<int64_t> shape = {};  // of one row of "data"; empty: [number of values]
  std::vector<CsvColumn> columns = {};
};
// Columns "data" (float32), those of `ids`, and "label" ([1]). Cells may be quoted ("a ""b"" c").
DataSourcePtr MakeCsvSource(const CsvOptions& options);
DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options);  // file: for errors only

struct NpzColumn {
  std::string key = {};
  std::string name = {};  // "": the key
};
struct NpzOptions {
  std::string file = {};
  std::vector<NpzColumn> columns = {};  // empty: every key
};
// One column per array; axis 0 counts the rows.
DataSourcePtr MakeNpzSource(const NpzOptions& options);

// Handwritten-like digits that the library draws itself.
struct DigitsOptions {
  int64_t count = 20000;
  uint64_t seed = 1;
};

enum class DigitSplit { kTrain, kTest };

// `count` digits, drawn once into memory: columns "image" float32 [1, 28, 28] in [0, 1] and "label"
// int64 [1].
DataSourcePtr MakeDigits(int64_t count, uint64_t seed, DigitSplit split);

// A text whose characters are predicted from those before them.
struct TextOptions {
  std::string file = "";         // UTF-8
  int64_t sequence_length = 64;  // characters of one row
  double holdout = 0.1;          // share of the text, at its end, that is only for tests
  std::string vocabulary = "";   // a saved vocabulary (see Vocabulary); "": from `vocabulary_text`
  // A text whose characters are the vocabulary; "": the file itself.
  std::string vocabulary_text = "";
};

enum class TextPart {
  kTrain,  // all but the held-out end
  kTest,   // the held-out end; its first character is predicted from the one before
};

// Columns "text" int64 [sequence_length] and "next" int64 [sequence_length, 1], the characters that
// follow those of "text", as numbers in the vocabulary. The part is cut into `streams` pieces of
// one length; row r holds the sequence number r / streams of stream r % streams: batches of
// `streams` rows in order continue each other, row by row. What does not fill the streams, fewer
// than streams * sequence_length characters, is left out at the streams' ends. Throws
// kInvalidArgument for a text too short to give a row per stream.
DataSourcePtr MakeTextSource(const TextOptions& options, TextPart part, int64_t streams);

}  // namespace coracle
