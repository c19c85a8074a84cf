#pragma once
// Opens the rows that a command line names, for a PredictorCore.

#include <coracle/train/run/predict/row_source.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

// The doc of --decode_mb.
inline constexpr const char* kDecodeDoc =
    "the most memory that decoding one picture may take, in `MiB`; only interlaced PNG and "
    "progressive JPEG files need more than their resized picture; default: decode_mb of the job "
    "that trained the model, which is 256 unless it says otherwise";

struct RawRows {
  std::unique_ptr<RowSource> source;
  std::string format;  // "csv", "jsonl", "text", "npz" or "pictures"
  bool waits = false;  // rows come from a pipe or a terminal
};

// `path` is a file, a directory of pictures, or "-" for standard input. `format` is "csv", "jsonl",
// "text", "npz", or "" to choose by the name; `columns` are the columns to keep. Throws UsageError
// if the model does not read rows of that kind. `core` must outlive the result. Decoding a picture
// takes at most DecodeBytes(core, decode_mb).
RawRows OpenRawRows(const PredictorCore& core, const std::string& path, const std::string& format,
                    const std::vector<std::string>& columns, std::optional<int64_t> decode_mb = {});

}  // namespace coracle::tools
