#pragma once
// Sources of training data: a source is a table of rows, with one small tensor per column.

#include <coracle/communication/communicator.h>
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

inline namespace internal {
class BytePairs;
}

// The order of the channels of colour images.
enum class ChannelOrder { kRgb, kBgr };

// Vocabulary: the distinct characters of a text, numbered from 0 in the order of their code points.

class Vocabulary {
 public:
  Vocabulary() = default;
  // Makes the vocabulary of a UTF-8 text. Throws kInvalidArgument with the byte offset if the text
  // is not UTF-8. `source` names the text in errors.
  static Vocabulary Of(std::string_view text, const std::string& source);
  // Reads a file in the format of ToJson. Throws kDataLoss if the file has another format.
  static Vocabulary Read(const std::string& path);
  // {"format": "coracle vocabulary", "version": 1, "characters": ["\n", " ", ...]}.
  std::string ToJson() const;

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  // Throws kInvalidArgument with the byte offset for bytes that are not UTF-8 and for an
  // unknown character.
  std::vector<int64_t> Encode(std::string_view text, const std::string& source) const;
  // Returns the character of an id as UTF-8. Throws kOutOfRange.
  const std::string& Character(int64_t id) const;

  bool operator==(const Vocabulary& other) const { return characters_ == other.characters_; }

 private:
  explicit Vocabulary(std::vector<std::string> characters);

  std::vector<std::string> characters_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

// The words (or characters) of a column of text, numbered from 2 on. Number 0 is padding, and
// number 1 stands for every word that is not in the list.
class WordList {
 public:
  static constexpr int64_t kPadding = 0, kUnknown = 1, kFirst = 2;

  WordList() = default;
  // Throws kInvalidArgument if a word is empty or appears twice. `source` names the list in errors.
  WordList(std::vector<std::string> words, const std::string& source);
  // Reads a file in the format of ToJson, or a text with one word a line.
  static WordList Read(const std::string& path);
  // {"format": "coracle words", "version": 1, "words": ["the", "of", ...]}.
  std::string ToJson() const;

  const std::vector<std::string>& words() const { return words_; }
  // The number of ids, with padding and unknown.
  int64_t size() const { return kFirst + static_cast<int64_t>(words_.size()); }
  int64_t Id(std::string_view word) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

struct FittedOptions;

struct DataColumn {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of one row: [1, 28, 28] for a grey image, [1] for a label
  // Each row is a sequence of any number of elements of this shape. A batch holds the sequences one
  // after the other, with their offsets as its LoD.
  bool sequences = false;
};

// The number of rows in a batch, given one of its columns.
int64_t RowsOfBatch(const Tensor& column);

// Immutable: any number of threads may call Get, and the same row always gives the same values.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const std::vector<DataColumn>& columns() const = 0;
  virtual int64_t size() const = 0;  // rows
  // Copies row rows[i] to place i of each batch tensor. `out` has one contiguous tensor per column,
  // of the column's dtype, with at least rows.size() times the elements of one row. For a column of
  // sequences, Get resizes the tensor to hold them. Throws kOutOfRange for a row number outside
  // the source.
  virtual void Get(std::span<const int64_t> rows, std::span<Tensor> out) const = 0;
  // Like Get, but for an epoch of training: the source may draw random values (such as a crop) for
  // each epoch.
  virtual void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                          std::span<Tensor> out) const {
    static_cast<void>(epoch);
    Get(rows, out);
  }
  // One line that names the data (but not its directory). Logs show it, and a resumed job compares
  // it to check that the data is the same.
  virtual std::string Describe() const = 0;

  // Where a row comes from, for errors: "row 7 of csv 'iris.csv'", or "iris.csv:9" if the line
  // is known.
  virtual std::string Place(int64_t row) const;
  // The same for a row that GetInEpoch gave in an epoch.
  virtual std::string PlaceInEpoch(int64_t epoch, int64_t row) const {
    static_cast<void>(epoch);
    return Place(row);
  }

  // If not 0: the batch size at which row k of a batch continues in row k of the next batch.
  virtual int64_t streams() const { return 0; }
  // The vocabulary of the integers; nullptr if they do not stand for characters.
  virtual const Vocabulary* vocabulary() const { return nullptr; }
  // The source's options with all that was computed from the rows of training: means, scales, word
  // lists, names of classes. nullptr if nothing was computed.
  virtual std::shared_ptr<const FittedOptions> fitted() const { return nullptr; }
  // The column "label" of all rows. Throws kInvalidArgument if it does not hold one integer a row.
  virtual std::vector<int64_t> Labels() const;

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
  // If not empty: row i is the sequence of the elements [offsets[i], offsets[i + 1]).
  std::vector<uint64_t> offsets = {};
};

// Returns the column "x@LENGTH", int64 [1]: the lengths of the sequences of column x.
MemoryColumn LengthsOf(const MemoryColumn& sequences);

// The lines of a text file from which the rows were read, for errors.
struct FileLines {
  std::string file;
  std::vector<int64_t> lines;  // the line of each row, from 1
};

// Makes a source in memory. Throws kInvalidArgument for a table without columns, two columns with
// the same name, or columns with different numbers of rows.
DataSourcePtr MakeMemorySource(std::vector<MemoryColumn> columns, std::string description,
                               FileLines lines = {},
                               std::shared_ptr<const FittedOptions> fitted = nullptr);

// Returns rows [first, first + limit) of another source; a limit of 0 means all rows from `first`
// on. Throws kOutOfRange if the source has fewer rows.
DataSourcePtr MakeSubset(DataSourcePtr source, int64_t first, int64_t limit);

// Returns a random part of another source: round(share * size) rows chosen by the seed or, if
// `drawn` is false, all other rows, in their original order. Throws kOutOfRange if the part
// is empty.
DataSourcePtr MakeRandomPart(DataSourcePtr source, double share, uint64_t seed, bool drawn);

// The rows that MakeRandomPart chooses of `size` rows, in ascending order.
std::vector<int64_t> RowsOfRandomPart(int64_t size, double share, uint64_t seed, bool drawn);

// Chooses rows of a source with that many rows. Sources compute means and word lists of these rows
// alone; an empty function chooses all rows.
using RowChoice = std::function<std::vector<int64_t>(int64_t size)>;

// Adds the column "weight", float32 [1]: the weight of the row's label. Throws for a label without
// a weight.
DataSourcePtr MakeWeighted(DataSourcePtr source, std::vector<float> class_weight);
// The weights that give all classes that have rows the same sum: rows / (classes * rows of class).
std::vector<float> BalancedWeights(const DataSource& source);
// Rows drawn so that the classes appear equally often: row p of an epoch has the class p % classes,
// of which a row is drawn by (seed, epoch, p). Get draws as in epoch 0.
DataSourcePtr MakeBalanced(DataSourcePtr source, uint64_t seed);

// Fills `rows` with a random permutation of 0 .. rows.size() - 1, by a Fisher-Yates shuffle that
// draws from Philox with the key (seed, epoch).
void ShuffleRows(uint64_t seed, uint64_t epoch, std::span<int64_t> rows);

struct BatchOptions {
  int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  // leave out the rows of an epoch that do not fill a batch
  uint64_t seed = 0;
  bool prefetch = true;  // does not change the batches
  // This rank and the number of ranks. Each rank reads its part of the same batches (RowsOfRank).
  int rank = 0, ranks = 1;
};

// Reads batches of a data source, epoch after epoch, in an order determined by a seed. A background
// thread prepares the next batch while the caller uses the current one.
class BatchReader {
 public:
  // Throws kInvalidArgument for a batch size below 1, or for data too small for one batch.
  BatchReader(DataSourcePtr source, const BatchOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  const std::vector<DataColumn>& columns() const;  // the source's columns
  int64_t batches_per_epoch() const;
  // The number of the batch that the next call of Next returns, counted over all epochs; epoch =
  // position / batches_per_epoch.
  int64_t position() const;
  void Seek(int64_t position);

  // Returns one tensor [rows, ...] per column of the source, with this rank's rows. Valid (and
  // unchanged) until the next call of Next or Seek. If the source threw an exception for this
  // batch, rethrows it.
  const std::vector<Tensor>& Next();
  // The number of rows of the last batch on all ranks, and on this rank.
  int64_t rows_of_all() const;
  int64_t own_rows() const;
  // Where row `row` of the last batch comes from: see DataSource::Place.
  std::string PlaceOf(int64_t row) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- data sources: synthetic digits, texts, and files in the formats idx (MNIST), csv and npz ---
// Files may be untrusted: every count is checked against the number of bytes left
// before memory is allocated, and errors give file and position.

// Parses one idx array: a big-endian header (0 0 TYPE RANK, then RANK dimensions of 4 bytes),
// followed by the elements (format: the MNIST page of LeCun, Cortes and Burges). `bytes` must
// be unpacked.
Tensor ParseIdx(std::string_view bytes, const std::string& source);
// Reads an idx file, plain or gzip; the first bytes show which.
Tensor ReadIdx(const std::string& path);

struct IdxOptions {
  std::string images = {};          // file of the "image" column: rank 1 or more
  std::string labels = {};          // file of the "label" column: integers, rank 1
  float mean = 0;                   // image = (value - mean) * scale
  std::optional<float> scale = {};  // default: 1/255 for bytes, else 1
};
// Makes the columns "image" (float32; rows of rank 2 get a channel dimension: [1, 28, 28]) and
// "label" (int64 [1]). If "x.gz" is missing, opens "x", and the other way round.
DataSourcePtr MakeIdxSource(const IdxOptions& options);

enum class CsvLabel {
  kInteger,  // int64
  kReal,     // float32
  kClass,    // index in `classes`
};

// How a cell of text becomes numbers of a WordList.
struct TextColumnOptions {
  std::string vocabulary = "";  // a file for WordList::Read; "": made from the training rows
  // For a list made from the training rows: the largest number of ids (0: no limit), and how often
  // a word must appear. The most frequent words are kept, ordered by frequency, then by bytes.
  int64_t size = 0;
  int64_t min_count = 1;
  bool lower = false;             // makes letters A to Z small
  bool split_punctuation = true;  // of words: each ASCII punctuation mark is a word of its own
  // Used instead of a file or the training rows when set.
  std::shared_ptr<const WordList> list = nullptr;
  std::string merges = "";  // the file of merges, for byte pairs
  int64_t padding = 0;      // the number that fills texts of byte pairs
  // For Coracle's own code: what the files of byte pairs hold.
  std::shared_ptr<const BytePairs> pairs = nullptr;
};

// Settings of one column. They override the settings of the file.
struct CsvColumn {
  std::string name = "";                     // or its number
  std::optional<float> fill = std::nullopt;  // none: as in the file, also for the next two
  std::optional<float> mean = std::nullopt;
  std::optional<float> scale = std::nullopt;
  // The words of the column. The column becomes one value per word: 1 for the row's word, 0 for
  // the others.
  std::vector<std::string> categories = {};
  // If not "": the column becomes the index of the word instead, int64 [1], under this name.
  std::string ids = "";
  // If not "": each cell holds any number of integers (or words), separated by blanks. The column
  // becomes sequences of int64 [1] under this name.
  std::string sequence = "";
  // At most one of the three: each cell is a text, cut at blanks into words, into characters, or
  // into byte pairs. They become `length` numbers, padded or cut off at the end, or sequences if it
  // is 0. The name of the column is `sequence`, `ids` or `name`, whichever is not empty. Their
  // number is "NAME@LENGTH".
  std::optional<TextColumnOptions> words = std::nullopt;
  std::optional<TextColumnOptions> characters = std::nullopt;
  std::optional<TextColumnOptions> byte_pairs = std::nullopt;
  int64_t length = 0;

  const std::optional<TextColumnOptions>& text() const {
    return words ? words : characters ? characters : byte_pairs;
  }
};

struct CsvOptions {
  std::string file = {};
  bool header = false;  // the first line names the columns
  char delimiter = ',';
  std::string label = {};  // name (with a header) or number from 0; "": the last column
  CsvLabel label_kind = CsvLabel::kInteger;
  std::vector<std::string> classes = {};
  std::vector<std::string> skip = {};  // columns to leave out, by name or number
  std::optional<float> fill = {};      // value of empty cells; none: an empty cell is an error
  float mean = 0;                      // data = (value - mean) * scale
  float scale = 1;
  // Computes mean and scale of each numeric column without its own: then the training rows have
  // mean 0 and deviation 1. A column of equal values keeps the scale 1.
  bool standardize = false;
  float label_mean = 0;  // a real label = (value - label_mean) * label_scale
  float label_scale = 1;
  bool standardize_label = false;
  std::vector<int64_t> shape = {};  // shape of one row of "data"; empty: [number of values]
  std::vector<CsvColumn> columns = {};
};
// Makes the columns "data" (float32), the columns named by `ids` and `sequence`, and "label" ([1]).
// Cells may be quoted ("a ""b"" c").
DataSourcePtr MakeCsvSource(const CsvOptions& options, const RowChoice& fit_rows = {});
// `file` is only for errors.
DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options,
                       const RowChoice& fit_rows = {});

struct NpzColumn {
  std::string key = {};
  std::string name = {};  // "": the key
};
struct NpzOptions {
  std::string file = {};
  std::vector<NpzColumn> columns = {};  // empty: every key
};
// Makes one column per array; axis 0 counts the rows. If the file also has the offsets "x@LOD@0",
// array x becomes a column of sequences, followed by the column of their lengths.
DataSourcePtr MakeNpzSource(const NpzOptions& options);

struct DatumOptions {
  enum class Format { kLmdb, kLevelDb };
  Format format = Format::kLmdb;
  std::string file = {};  // a directory, or an LMDB file data.mdb
  // Of images of three channels; none: BGR, as Caffe's convert_imageset writes them. It changes no
  // value, but says in which order other pictures must be decoded.
  std::optional<ChannelOrder> channel_order = {};
};
// Opens an image database made by Caffe's tools, whose values are Datum messages. It has the
// columns "data" (float32 [C, H, W], bytes as 0 to 255) and "label" (int64 [1]). Throws for encoded
// pictures. database.h lists the errors of the files.
DataSourcePtr MakeDatumSource(const DatumOptions& options);

enum class BadFiles {
  kError,  // an error when the row is read
  kSkip,   // the source has no row for the file; all files are read when it is made
};

// Pictures in files: PNG, JPEG and PNM.
struct PictureOptions {
  std::string directory = {};  // a folder for each class, with its pictures
  std::string list = {};       // or: a file with lines "PATH LABEL", relative to its directory
  int64_t channels = 3;        // 1: grey, 3: red, green, blue
  ChannelOrder channel_order = ChannelOrder::kRgb;  // of 3 channels
  int64_t height = 0, width = 0;
  // The classes in the order of their numbers; empty: the folders in the order of their names. The
  // labels of a list are names of classes if it is given, else integers.
  std::vector<std::string> classes = {};
  // image = (byte - mean) * scale; one value for all channels, or one for each. Empty: 0 and 1/255.
  std::vector<float> mean = {}, scale = {};
  bool standardize = false;  // computes mean and scale of each channel from the training rows
  BadFiles bad_files = BadFiles::kError;
  int64_t cache_mb = 1024;  // decoded pictures kept in memory
  int64_t decode_mb = 256;  // the most memory that decoding one file may take
};
// Makes the columns "image" (float32 [channels, height, width]; pictures are resized) and "label"
// (int64 [1]). Pictures are decoded when their rows are read.
DataSourcePtr MakePictureSource(const PictureOptions& options, const RowChoice& fit_rows = {});

// See DataSource::fitted.
struct FittedOptions {
  std::optional<CsvOptions> csv = {};
  std::optional<PictureOptions> pictures = {};
  std::vector<float> class_weight = {};  // of the column "weight"
  int64_t soft_classes = 0;              // of the column "soft_label"; 0: there is none
};

// Preprocessing of an image: (value - mean) * scale, for a crop of the image.
struct TransformOptions {
  float scale = 1;
  std::vector<float> mean_value = {};  // one for all channels, or one for each
  std::string mean_file = {};          // an image: Caffe's .binaryproto, or an .npy
  int64_t crop_size = 0;               // height and width of the crop; 0: the whole image
  bool random_crop = false;            // a random crop in each epoch; else the centre
  bool mirror = false;                 // mirrors half of the rows left to right
  uint64_t seed = 0;

  // Random changes of each row and epoch, only with random_crop. They are applied in this order.
  float rotate = 0;  // up to this many degrees to either side, around the centre
  float zoom = 0;    // magnifies by a factor in [1 - zoom, 1 + zoom]
  float shift = 0;   // moves by up to this share of height and of width
  float fill = 0;    // value of what lies outside the image
  // x = x * b, x = m + (x - m) * c with the image's mean grey m, x = g + (x - g) * s with the
  // pixel's grey g (0.299 R + 0.587 G + 0.114 B; of one channel itself). b, c and s lie in
  // [1 - v, 1 + v] for the value v of each option.
  float brightness = 0, contrast = 0, saturation = 0;
  int64_t pad = 0;    // crops may begin this many pixels outside the image
  bool flip = false;  // turns half of the rows upside down
  float noise = 0;    // deviation of normal noise, added to the result
  int64_t erase = 0;  // sets a square of this size to 0 in the result
  // Of images of 3 channels, for `contrast` and `saturation`.
  ChannelOrder channel_order = ChannelOrder::kRgb;
};
// Transforms the first column that holds images [C, H, W].
DataSourcePtr MakeTransformed(DataSourcePtr source, const TransformOptions& options);

// Mixtures of two rows (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond empirical risk
// minimization", ICLR 2018).
struct MixupOptions {
  double alpha = 0.2;   // the share of the first row has the distribution Beta(alpha, alpha)
  int64_t classes = 0;  // 0: the largest label, and 1
  uint64_t seed = 0;
  bool mixes = true;  // in training; otherwise the rows stay as they are
};
// Adds the column "soft_label", float32 [classes]: the shares of the classes of the row's labels.
// If `mixes`, row r of an epoch becomes share * r + (1 - share) * other in the columns of floats,
// except weights, for a share and another row drawn by (seed, epoch, r), and so does its soft
// label. The column "label" is that of the larger share. Get does not mix. Throws kInvalidArgument
// for data without a label that is the number of a class, or without a column of floats.
DataSourcePtr MakeMixed(DataSourcePtr source, const MixupOptions& options);

// Synthetic digits that look handwritten.
struct DigitsOptions {
  int64_t count = 20000;
  uint64_t seed = 1;
  // The digits to draw, each at most once; a label is an index in this list. Empty: 0 to 9.
  std::vector<int32_t> classes = {};
  int32_t length = 1;  // digits next to each other in one image
};

enum class DigitSplit { kTrain, kTest };

// Draws all images into memory: columns "image" float32 [1, 28, 28 * length] in [0, 1] and "label"
// int64 [length]. Throws kInvalidArgument for more than 10,000,000 digits, for a length above 64,
// and for a class that is not a digit.
DataSourcePtr MakeDigits(const DigitsOptions& options, DigitSplit split);

// A text as training data: the model predicts each character from the characters before it.
struct TextOptions {
  std::string file = "";         // UTF-8
  int64_t sequence_length = 64;  // characters per row
  double holdout = 0.1;          // share of the text, at its end, that only tests use
  std::string vocabulary = "";   // a file written by ToJson; "": use `vocabulary_text`
  // A text file whose characters form the vocabulary; "": the text itself.
  std::string vocabulary_text = "";
};

enum class TextPart {
  kTrain,  // all but the held-out end
  kTest,   // the held-out end; its first character is predicted from the one before
};

// Makes the columns "text" int64 [sequence_length] and "next" int64 [sequence_length, 1], the
// characters that follow each character of "text". Characters are given as numbers of the
// vocabulary. The part is cut into `streams` streams of equal length, and row r holds sequence r /
// streams of stream r % streams. So with batches of `streams` rows, each row continues in the next
// batch. The remainder at the end, less than streams * sequence_length characters, is left out.
// Throws kInvalidArgument if the text is too short to give a row per stream.
DataSourcePtr MakeTextSource(const TextOptions& options, TextPart part, int64_t streams);

}  // namespace coracle
