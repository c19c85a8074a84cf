#pragma once
// Reads raw rows for a PredictorCore, one after the other, from csv text, lines of JSON, lines of
// text, or pictures.

#include <coracle/train/data/csv_reader.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/run/predict/predictor_core.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// A row, or the reason why it cannot be decoded.
struct SourceRow {
  std::string place;                 // "rows.csv:3", or the file of a picture
  std::optional<DecodedRow> row;     // none: see `error`
  std::optional<Error> error;        // with its place
  std::vector<std::string> kept;     // cells of the columns to keep, as they are in the source
  std::optional<std::string> label;  // the cell of the training data's label, if there is one
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  // Reads the next row; returns false at the end. A bad row is no exception.
  virtual bool Next(SourceRow* row) = 0;
  // The names of the columns to keep.
  virtual const std::vector<std::string>& kept() const = 0;
};

// The largest row of a text.
inline constexpr uint64_t kMaxRowBytes = uint64_t{64} << 20;

struct RowSourceOptions {
  std::string name = "rows";           // of the source, in errors
  std::vector<std::string> keep = {};  // columns whose cells are kept
  uint64_t most_bytes = kMaxRowBytes;  // larger rows of text are errors
};

// Rows in the form of the job's csv files. Columns are found by the names in the header, or by
// their numbers; the label's may be missing, and further columns of a file with a header are
// ignored. For a model that reads texts, a file with a header that has its column. Throws for an
// empty file, a column that is missing, and two columns of the same name.
std::unique_ptr<RowSource> MakeCsvRows(const PredictorCore& core, ReadChunk read,
                                       const RowSourceOptions& options);
// One JSON object per line, see RowOfJson. Empty lines are skipped.
std::unique_ptr<RowSource> MakeJsonRows(const PredictorCore& core, ReadChunk read,
                                        const RowSourceOptions& options);
// One text per line. Empty lines are skipped.
std::unique_ptr<RowSource> MakeTextRows(const PredictorCore& core, ReadChunk read,
                                        const RowSourceOptions& options);
// Files of pictures: PNG, JPEG, PNM, or an npy array uint8 [H, W] or [C, H, W]. The only column to
// keep is "file".
// Decoding a file takes at most DecodeBytes(core, decode_mb) of memory.
std::unique_ptr<RowSource> MakePictureRows(const PredictorCore& core,
                                           std::vector<std::string> files,
                                           std::optional<int64_t> decode_mb = {});
// The rows of the arrays in an npz file, as NumPy and `coracle run --out` write them. Reads the
// whole file.
std::unique_ptr<RowSource> MakeArrayRows(const PredictorCore& core, const std::string& file);
// The pictures of a directory, sorted by name. Throws kNotFound if there are none.
std::vector<std::string> PicturesIn(const std::string& directory);
bool IsPictureName(const std::string& path);

// The most memory that decoding a picture may take: `decode_mb` MiB, else what the description of
// the model says.
uint64_t DecodeBytes(const PredictorCore& core, std::optional<int64_t> decode_mb);
// Decodes the bytes of a picture for the model. Throws kResourceExhausted above that limit, and
// OutOfMemory if the system refuses memory.
DecodedRow DecodePictureFile(const PredictorCore& core, std::string_view bytes,
                             const std::string& source, std::optional<int64_t> decode_mb = {});

}  // namespace coracle::inline internal
