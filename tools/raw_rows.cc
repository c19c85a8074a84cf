#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/internal/file_handle.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/raw_rows.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace coracle::tools {
namespace {

// Standard input, or a regular file.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : path_(PrintableLine(path)),
        file_(path == "-" ? FileHandle(-1) : FileHandle(path, kReadFlags, "read", path)),
        fd_(path == "-" ? STDIN_FILENO : file_.get()) {
    if (path == "-" || IsRegular()) return;
    throw Error(ErrorCode::kIo, fmt::format("{} is not a file; - reads standard input", path_));
  }

  // Returns what is there, without waiting for a full buffer.
  size_t Read(char* buffer, size_t size) const {
    while (true) {
      const ssize_t bytes = ::read(fd_, buffer, size);
      if (bytes >= 0) return static_cast<size_t>(bytes);
      if (errno == EINTR) continue;
      throw Error(ErrorCode::kIo, fmt::format("cannot read {}: {}", path_, std::strerror(errno)));
    }
  }
  bool IsRegular() const {
    struct stat status {};
    return ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  }

 private:
  std::string path_;
  FileHandle file_;
  int fd_;
};

std::string FormatOf(const PredictorCore& core, const std::string& path,
                     const std::string& format) {
  if (!format.empty()) return format;
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return "jsonl";
  if (path.ends_with(".txt") && core.config().text) return "text";
  if (!core.config().arrays.empty()) return "npz";
  if (core.config().picture && (IsDirectory(path) || IsPictureName(path))) return "pictures";
  return "csv";
}

}  // namespace

RawRows OpenRawRows(const PredictorCore& core, const std::string& path, const std::string& format,
                    const std::vector<std::string>& columns, std::optional<int64_t> decode_mb) {
  RawRows rows;
  rows.format = FormatOf(core, path, format);
  if (core.config().picture.has_value() != (rows.format == "pictures")) {
    throw UsageError(core.config().picture
                         ? "the model reads pictures: ROWS is a directory or a file of pictures"
                         : "the model reads no pictures");
  }
  if (rows.format == "text" && !core.config().text)
    throw UsageError("the model does not read texts: ROWS has cells, as csv or jsonl");
  if (rows.format == "pictures") {
    if (!columns.empty()) throw UsageError("--columns: pictures have no columns");
    rows.source = MakePictureRows(
        core, IsDirectory(path) ? PicturesIn(path) : std::vector<std::string>{path}, decode_mb);
    return rows;
  }
  if (core.config().arrays.empty() == (rows.format == "npz")) {
    throw UsageError(rows.format == "npz"
                         ? "the model does not read arrays: ROWS has cells, as csv or jsonl"
                         : "the model reads arrays: ROWS is an .npz file");
  }
  if (rows.format == "npz") {
    if (!columns.empty()) throw UsageError("--columns: the rows of arrays have no cells");
    if (path == "-") throw UsageError("arrays are not read from standard input: ROWS is a file");
    rows.source = MakeArrayRows(core, path);
    return rows;
  }
  const auto file = std::make_shared<InputFile>(path);
  rows.waits = !file->IsRegular();
  const ReadChunk read = [file](char* buffer, size_t size) { return file->Read(buffer, size); };
  RowSourceOptions options;
  options.name = path == "-" ? "standard input" : PrintableLine(path);
  options.keep = columns;
  rows.source = rows.format == "jsonl"  ? MakeJsonRows(core, read, options)
                : rows.format == "text" ? MakeTextRows(core, read, options)
                                        : MakeCsvRows(core, read, options);
  return rows;
}

}  // namespace coracle::tools
