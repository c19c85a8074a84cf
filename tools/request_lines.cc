#include <coracle/convert/models.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/server.h>
#include <coracle/tools/command.h>
#include <coracle/tools/print.h>
#include <coracle/tools/request_lines.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace coracle::tools {
namespace {

using nlohmann::json;

constexpr size_t kMaxLine = size_t{64} << 20;  // as `coracle serve --max_body_mb`
constexpr const char* kBlanks = " \t\r\n";

// Appends what there is of standard input. False: it has ended.
bool ReadMore(std::string* bytes) {
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw Error(ErrorCode::kIo,
                  fmt::format("cannot read standard input: {}", std::strerror(errno)));
    bytes->append(buffer, static_cast<size_t>(count));
    return count > 0;
  }
}

// Some bytes that the next read gives, too; "" if the system does not show them without reading.
std::string BeginOfStandardInput() {
  char buffer[256];
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return "";
  ssize_t count = 0;
  if (S_ISREG(status.st_mode)) {
    count = ::pread(STDIN_FILENO, buffer, sizeof buffer, ::lseek(STDIN_FILENO, 0, SEEK_CUR));
  } else if (S_ISSOCK(status.st_mode)) {
    count = ::recv(STDIN_FILENO, buffer, sizeof buffer, MSG_PEEK);
  } else if (int pipes[2]; S_ISFIFO(status.st_mode) && ::pipe2(pipes, O_CLOEXEC) == 0) {
    count = ::tee(STDIN_FILENO, pipes[1], sizeof buffer, 0);  // waits for the first byte
    if (count > 0) count = ::read(pipes[0], buffer, sizeof buffer);
    ::close(pipes[0]);
    ::close(pipes[1]);
  }
  return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "";
}

// Reads lines that may be very long.
class Lines {
 public:
  // False: there is none. Of a line that is too long, only the beginning is given.
  bool Next(std::string* line, bool* too_long) {
    line->clear();
    *too_long = false;
    for (;;) {
      const size_t end = read_.find('\n', begin_);
      const size_t stop = std::min(end, read_.size());
      *too_long = *too_long || line->size() + (stop - begin_) > kMaxLine;
      if (!*too_long) line->append(read_, begin_, stop - begin_);
      if (end != read_.npos) return begin_ = end + 1, true;
      const bool some = stop > begin_ || !line->empty() || *too_long;
      read_.clear();
      begin_ = 0;
      if (!ReadMore(&read_)) return some;
    }
  }

 private:
  std::string read_;
  size_t begin_ = 0;
};

// Finds out whether the outermost object has rows or inputs, whichever comes first.
class KindReader : public json::json_sax_t {
 public:
  bool has_rows() const { return has_rows_; }
  bool has_neither() const { return ended_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return ++depth_; }
  bool key(string_t& name) override {
    if (depth_ == 1) has_rows_ = name == "rows";
    return depth_ > 1 || (name != "rows" && name != "inputs");  // false: it is known
  }
  bool end_object() override {
    ended_ = --depth_ == 0;
    return !ended_;
  }
  bool start_array(size_t) override { return ++depth_; }
  bool end_array() override { return --depth_ > 0; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  int depth_ = 0;
  bool has_rows_ = false, ended_ = false;
};

class LineServer {
 public:
  LineServer(const std::string& path, const CompileOptions& compile)
      : metrics_(std::make_shared<serve::MetricsTable>()),
        models_(OptionsOf(compile), metrics_),
        server_(models_, metrics_) {
    const std::string stem = std::filesystem::path(path).stem().string();
    name_ = serve::IsModelName(stem) ? stem : "model";
    models_.AddModel(name_, ModelFileOf(path));
    LoadModel();
    const serve::ModelState state = models_.Index().at(0);
    if (!state.ready) throw Error(ErrorCode::kInvalidArgument, state.reason);
  }

  serve::Response Answer(std::string line) {
    KindReader kind;
    json::sax_parse(line, &kind);
    if (kind.has_neither())
      return serve::ErrorResponse(400,
                                  "a request needs \"inputs\" or \"rows\"; for a row a line, use "
                                  "--format=jsonl");
    serve::Request request;
    request.method = "POST";
    request.path = kind.has_rows() ? "/v1/predict/" + name_ : "/v2/models/" + name_ + "/infer";
    request.body = std::move(line);
    serve::Response response = server_.Handle(std::move(request));
    if (response.headers.count("Inference-Header-Content-Length"))
      return serve::ErrorResponse(400,
                                  "a line of JSON has no binary outputs; leave out "
                                  "binary_data and binary_data_output");
    return response;
  }

 private:
  // Shows the warnings only: that the model is ready is no news here, and an error is thrown.
  void LoadModel() {
    struct WarningsOnly {
      std::vector<std::string> warnings;
      LogSink before = SetLogSink([this](MessageLevel level, const std::string& message) {
        if (level == MessageLevel::kWarning) warnings.push_back(message);
      });
      ~WarningsOnly() {
        SetLogSink(std::move(before));
        for (const std::string& warning : warnings) LogMessage(MessageLevel::kWarning, warning);
      }
    } shown;
    models_.Refresh();
  }
  static serve::ServeOptions OptionsOf(CompileOptions compile) {
    serve::ServeOptions options;
    options.max_batch = int64_t{1} << 40;  // rows of a request
    options.time_limit = std::exchange(compile.time_limit, 0);
    options.compile = std::move(compile);
    return options;
  }

  std::shared_ptr<serve::MetricsTable> metrics_;
  serve::Repository models_;
  serve::Server server_;
  std::string name_;
};

}  // namespace

bool AreRequests(const std::string& rows, const std::string& format) {
  if (format == "requests" && rows != "-")
    throw UsageError("--format=requests reads standard input: ROWS must be -, got " +
                     Quote(rows, 300));
  if (rows != "-" || !format.empty()) return format == "requests";
  const std::string begin = BeginOfStandardInput();
  const size_t first = begin.find_first_not_of(kBlanks);
  return first != begin.npos && begin[first] == '{';
}

int AnswerRequestLines(const std::string& model, const CompileOptions& compile) {
  RegisterOnnxReader();
  RegisterPirReader();
  LineServer server(model, compile);
  Lines lines;
  int64_t all = 0, bad = 0;
  std::string line;
  for (bool too_long = false; lines.Next(&line, &too_long);) {
    if (line.find_first_not_of(kBlanks) == line.npos) continue;
    const serve::Response response =
        too_long ? serve::ErrorResponse(413, fmt::format("a request may have {} bytes", kMaxLine))
                 : server.Answer(std::move(line));
    ++all;
    bad += response.status != 200;
    PrintData(response.body + "\n");
    Flush();
  }
  if (bad > 0)
    LogMessage(MessageLevel::kWarning,
               fmt::format("{} of {} requests have no answer but an error", bad, all));
  return bad > 0 ? 1 : 0;
}

}  // namespace coracle::tools
