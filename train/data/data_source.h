#pragma once
// Where training data comes from: a table of rows, each with one small tensor per column.

#include <coracle/distribute/ranks.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Vocabulary: the distinct characters of a text, numbered from 0 in the order of their code points.

class Vocabulary {
 public:
  Vocabulary() = default;
  // The characters of a UTF-8 text. `source` names it in errors: kInvalidArgument for bytes that
  // are not UTF-8, with their offset.
  static Vocabulary Of(std::string_view text, const std::string& source);
  // Reads a file with the text of ToJson. Throws kDataLoss for anything else.
  static Vocabulary Read(const std::string& path);
  // {"format": "coracle vocabulary", "version": 1, "characters": ["\n", " ", ...]}.
  std::string ToJson() const;

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  // Throws kInvalidArgument for bytes that are not UTF-8 and for an unknown character, with the
  // offset in bytes.
  std::vector<int64_t> Encode(std::string_view text, const std::string& source) const;
  // The character of an id, as UTF-8. Throws kOutOfRange.
  const std::string& Character(int64_t id) const;

  bool operator==(const Vocabulary& other) const { return characters_ == other.characters_; }

 private:
  explicit Vocabulary(std::vector<std::string> characters);

  std::vector<std::string> characters_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

class Vocabulary;

struct DataColumn {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of one row: [1, 28, 28] for a grey image, [1] for a label
  // A row is a sequence of any number of such shapes; a batch has them one after the other, with
  // the offsets as its LoD.
  bool sequences = false;
};

// The rows of a batch, of which `column` is one column.
int64_t RowsOfBatch(const Tensor& column);

// Immutable: any number of threads may call Get, and a row is always the same.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const std::vector<DataColumn>& columns() const = 0;
  virtual int64_t size() const = 0;  // rows
  // Copies row rows[i] to place i of each batch tensor. `out` has one tensor per column, of the
  // column's dtype, contiguous, with at least rows.size() times the column's elements; that of a
  // column of sequences is made as large as they are. Throws
  // kOutOfRange for a row that is not there.
  virtual void Get(std::span<const int64_t> rows, std::span<Tensor> out) const = 0;
  // The same for an epoch of training, where what a row yields may be drawn anew for each.
  virtual void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                          std::span<Tensor> out) const {
    static_cast<void>(epoch);
    Get(rows, out);
  }
  // One line that names the data (but not its directory), for logs and for the check that a resumed
  // job has the same data.
  virtual std::string Describe() const = 0;

  // Where a row comes from, for errors: "row 7 of csv 'iris.csv'", or with its line "iris.csv:9".
  virtual std::string Place(int64_t row) const;

  // If not 0: the batch size with which row k of a batch continues in row k of the next batch.
  virtual int64_t streams() const { return 0; }
  // The characters that the integers stand for; nullptr if they stand for none.
  virtual const Vocabulary* vocabulary() const { return nullptr; }

  // Index of the column of that name, or -1.
  int FindColumn(const std::string& name) const;
};

using DataSourcePtr = std::shared_ptr<const DataSource>;

// A column kept in memory: `rows` is [n, ...]. With `scaled` set, bytes are returned as float32
// (byte - mean) * scale.
struct MemoryColumn {
  std::string name = {};
  Tensor rows = {};
  Shape shape = {};  // of one row; its numel must be that of rows' dimensions 1 and up
  bool scaled = false;
  float mean = 0;
  float scale = 1;
  // Not empty: row i is the sequence of the rows [offsets[i], offsets[i + 1]).
  std::vector<uint64_t> offsets = {};
};

// The lengths of a column of sequences x as the column "x@LENGTH", int64 [1].
MemoryColumn LengthsOf(const MemoryColumn& sequences);

// The lines of a text file that rows come from, for errors.
struct FileLines {
  std::string file;
  std::vector<int64_t> lines;  // of each row, from 1
};

// A source in memory. Throws kInvalidArgument if there are no columns, two of the same name, or
// columns with different numbers of rows.
DataSourcePtr MakeMemorySource(std::vector<MemoryColumn> columns, std::string description,
                               FileLines lines = {});

// Rows [first, first + limit) of another source; a limit of 0 means all that follow. Throws
// kOutOfRange when they are not there.
DataSourcePtr MakeSubset(DataSourcePtr source, int64_t first, int64_t limit);

// A random part of another source: round(share * size) rows drawn by the seed, or (with `drawn`
// false) all others, in their original order. Throws kOutOfRange if there are none.
DataSourcePtr MakeRandomPart(DataSourcePtr source, double share, uint64_t seed, bool drawn);

// Batches of a data source, epoch after epoch, in an order that a seed determines. A background
// thread prepares the next batch while the caller uses the current one.

// Fills `rows` with a random permutation of 0 .. rows.size() - 1: Fisher and Yates' shuffle, drawn
// from Philox by (seed, epoch).
void ShuffleRows(uint64_t seed, uint64_t epoch, std::span<int64_t> rows);

struct BatchOptions {
  int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  // leave out the rows of an epoch that do not fill a batch
  uint64_t seed = 0;
  bool prefetch = true;  // does not change the batches
  // Of so many ranks, each of which reads its part of the same batches (RowsOfRank).
  int rank = 0, ranks = 1;
};

class BatchReader {
 public:
  // Throws kInvalidArgument for a batch size below 1 or data too small for one batch.
  BatchReader(DataSourcePtr source, const BatchOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  const std::vector<DataColumn>& columns() const;  // of the source
  int64_t batches_per_epoch() const;
  // Number of the batch that Next returns next, counted over all epochs; epoch =
  // position / batches_per_epoch.
  int64_t position() const;
  void Seek(int64_t position);

  // One tensor per column of the source, [rows, ...], of the rank's rows. Valid (and unchanged)
  // until the next call of Next or Seek. Rethrows an exception of the source when the batch that
  // caused it is due.
  const std::vector<Tensor>& Next();
  // Of the batch that Next returned last: its rows on all ranks, and those that count on this one.
  int64_t rows_of_all() const;
  int64_t own_rows() const;
  // Where row `row` of the batch that Next returned last comes from: see DataSource::Place.
  std::string PlaceOf(int64_t row) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The data sources of this library: synthetic digits, files of the formats idx (MNIST), csv and
// npz, and texts. Files may be untrusted: every count is checked against the number of bytes left
// before memory is allocated, and errors give file and position.

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

// Settings of one column that differ from those of the file.
struct CsvColumn {
  std::string name = "";                     // or number
  std::optional<float> fill = std::nullopt;  // none: the file's, as for the next two
  std::optional<float> mean = std::nullopt;
  std::optional<float> scale = std::nullopt;
  // The words of the column. It becomes one value per word: 1 for the word of the row, else 0.
  std::vector<std::string> categories = {};
  // If not "": the column becomes the number of the word instead, int64 [1], under this name.
  std::string ids = "";
  // If not "": the cell holds any number of integers, or of the words, between blanks. The column
  // becomes sequences of int64 [1] under this name.
  std::string sequence = "";
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
// Columns "data" (float32), those of `ids` and `sequence`, and "label" ([1]). Cells may be quoted
// ("a ""b"" c").
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
// One column per array; axis 0 counts the rows. An array with the offsets "x@LOD@0" beside it is a
// column of sequences, followed by LengthsOf it.
DataSourcePtr MakeNpzSource(const NpzOptions& options);

struct DatumOptions {
  enum class Format { kLmdb, kLevelDb };
  Format format = Format::kLmdb;
  std::string file = {};  // a directory; of an LMDB data.mdb in it, too
};
// A database of images as Caffe's tools make them, of Datum messages: columns "data" (float32
// [C, H, W], bytes as 0 to 255) and "label" (int64 [1]). Encoded pictures are refused. Errors of
// the files: database.h.
DataSourcePtr MakeDatumSource(const DatumOptions& options);

// What becomes of an image before it is fed: (value - mean) * scale of a part of it.
struct TransformOptions {
  float scale = 1;
  std::vector<float> mean_value = {};  // one for all channels, or one for each
  std::string mean_file = {};          // an image: Caffe's .binaryproto, or an .npy
  int64_t crop_size = 0;               // height and width of the part; 0: all
  bool random_crop = false;            // drawn for each epoch; else the middle
  bool mirror = false;                 // left and right change places in half of the rows
  uint64_t seed = 0;
};
// Transforms the first column of images [C, H, W].
DataSourcePtr MakeTransformed(DataSourcePtr source, const TransformOptions& options);

// Synthetic digits that look handwritten.
struct DigitsOptions {
  int64_t count = 20000;
  uint64_t seed = 1;
  // The digits that are drawn, each once at most; a label is an index in this list. Empty: 0 to 9.
  std::vector<int32_t> classes = {};
  int32_t length = 1;  // digits side by side in one image
};

enum class DigitSplit { kTrain, kTest };

// Images drawn once into memory: columns "image" float32 [1, 28, 28 * length] in [0, 1] and "label"
// int64 [length]. Throws kInvalidArgument for a count beyond 10,000,000 digits, a length beyond 64
// and classes that are no digits.
DataSourcePtr MakeDigits(const DigitsOptions& options, DigitSplit split);

// A text in which each character is predicted from the ones before it.
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
// follow those of "text", as numbers in the vocabulary. The part is cut into `streams` streams of
// equal length; row r holds sequence number r / streams of stream r % streams, so that with batches
// of `streams` rows each row continues in the next batch. The rest at the end, fewer than streams *
// sequence_length characters, is left out. Throws kInvalidArgument for a text too short to give a
// row per stream.
DataSourcePtr MakeTextSource(const TextOptions& options, TextPart part, int64_t streams);

}  // namespace coracle
