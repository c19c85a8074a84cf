#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/predict_route.h>
#include <coracle/serve/request_time.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/run/predict/row_json.h>
#include <coracle/train/run/predict/row_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace coracle::serve {
namespace {

struct Rows {
  std::vector<DecodedRow> rows;
  int64_t top = 1;
  bool all_scores = false;
};

// "text/csv" for "Text/CSV; charset=utf-8".
std::string TypeOf(const Request& request) {
  std::string type = request.Header("content-type");
  type = std::string(Trim(type.substr(0, type.find(';'))));
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type;
}

Rows RowsOfJson(const PredictorCore& core, const std::string& body) {
  Rows rows;
  const JsonReader json(body, "the body");
  if (json.Has("top")) rows.top = json.At("top").Integer(1);
  if (json.Has("all_scores")) rows.all_scores = json.At("all_scores").Bool();
  const std::vector<JsonReader> items = json.At("rows").Items();
  for (size_t i = 0; i < items.size(); ++i) {
    CheckTimeLimit("rows are read");
    try {
      rows.rows.push_back(core.Decode(RowOfJson(items[i])));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kDataLoss) throw;  // it names the row itself
      throw e.WithPrefix(fmt::format("row {}", i));
    }
  }
  if (rows.all_scores) rows.top = 0;
  return rows;
}

Rows RowsOfCsv(const PredictorCore& core, const std::string& body) {
  const ReadChunk read = [&body, at = size_t{0}](char* buffer, size_t size) mutable {
    const size_t bytes = std::min(size, body.size() - at);
    std::memcpy(buffer, body.data() + at, bytes);
    at += bytes;
    return bytes;
  };
  Rows rows;
  const auto source = MakeCsvRows(core, read, {.name = "csv"});
  SourceRow row;
  while (source->Next(&row)) {
    CheckTimeLimit("rows are read");
    if (row.error) throw Error(*row.error);
    rows.rows.push_back(std::move(*row.row));
  }
  return rows;
}

// A picture above a limit is refused for good. Without memory, another try may succeed.
DecodedRow RowOfPicture(const PredictorCore& core, const std::string& body,
                        std::optional<int64_t> decode_mb) {
  try {
    return DecodePictureFile(core, body, "the picture", decode_mb);
  } catch (const OutOfMemory& e) {
    throw HttpError(503, e.message(), RequestEnd::kFailure);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kResourceExhausted) throw HttpError(413, e.message());
    throw;
  }
}

Rows ReadRows(const PredictorCore& core, const Request& request, std::optional<int64_t> decode_mb) {
  const std::string type = TypeOf(request);
  const bool picture = type.starts_with("image/");
  if (core.config().picture.has_value() != picture)
    throw HttpError(415, picture ? "the model reads no pictures"
                                 : "the model reads a picture: Content-Type is image/png or such");
  Rows rows;
  if (picture) {
    rows.rows.push_back(RowOfPicture(core, request.body, decode_mb));
    return rows;
  }
  const bool curl = type == "application/x-www-form-urlencoded";  // what `curl -d` says
  if (type.empty() || type == "application/json" || curl) return RowsOfJson(core, request.body);
  if (type == "text/csv") return RowsOfCsv(core, request.body);
  if (type == "text/plain" && core.config().text) {
    rows.rows.push_back(core.decoder().DecodeText(request.body));
    return rows;
  }
  throw HttpError(415, fmt::format("Content-Type must be application/json, text/csv, image/... or, "
                                   "for a model of texts, text/plain; got {}",
                                   Quote(type, 80)));
}

// Big-endian.
uint64_t NumberAt(std::string_view bytes, size_t at, size_t count) {
  uint64_t number = 0;
  for (size_t i = at; i < at + count; ++i)
    number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

struct PictureSize {
  uint64_t height = 0, width = 0;
};

// From the header of the frame; zeros if there is none.
PictureSize SizeOfJpeg(std::string_view bytes) {
  for (size_t at = 2; (at = bytes.find('\xff', at)) != bytes.npos;) {
    at = bytes.find_first_not_of('\xff', at);
    if (at == bytes.npos) break;
    const auto marker = static_cast<unsigned char>(bytes[at++]);
    const bool alone = marker <= 1 || (marker >= 0xd0 && marker <= 0xd8);
    if (alone) continue;
    const bool frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (frame && bytes.size() - at >= 7)
      return {NumberAt(bytes, at + 3, 2), NumberAt(bytes, at + 5, 2)};
    if (bytes.size() - at < 2) break;
    at += NumberAt(bytes, at, 2);
  }
  return {};
}

// The size in the head of a compressed picture; zeros for others.
PictureSize SizeOf(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n") && bytes.size() >= 24)
    return {NumberAt(bytes, 20, 4), NumberAt(bytes, 16, 4)};
  if (bytes.starts_with("\xff\xd8")) return SizeOfJpeg(bytes);
  return {};
}

}  // namespace

uint64_t PredictBytes(const Request& request) {
  // As measured: cells of one byte become texts and then numbers.
  constexpr uint64_t kPerJsonByte = 112, kPerTextByte = 64, kPerRawByte = 16;
  constexpr uint64_t kPerPixel = 12;  // coefficients of a progressive JPEG, and two copies
  const std::string type = TypeOf(request);
  if (type.starts_with("text/")) return request.body.size() * kPerTextByte;
  if (!type.starts_with("image/")) return request.body.size() * kPerJsonByte;
  const auto [height, width] = SizeOf(request.body);
  constexpr auto kSide = static_cast<uint64_t>(kMaxPictureSide);
  constexpr auto kPixels = static_cast<uint64_t>(kMaxPicturePixels);
  if (height > kSide || width > kSide || height * width > kPixels) {
    throw HttpError(413,
                    fmt::format("a picture of {} x {} pixels; at most {} a side and {} in all are "
                                "read",
                                width, height, kMaxPictureSide, kMaxPicturePixels));
  }
  return height * width * kPerPixel + request.body.size() * kPerRawByte;
}

Response PredictRoute(const PredictorCore& core, const Request& request, int64_t max_batch,
                      const RunFeeds& run, std::optional<int64_t> decode_mb) {
  try {
    const Rows rows = ReadRows(core, request, decode_mb);
    const size_t batch = static_cast<size_t>(std::max<int64_t>(max_batch, 1));
    std::string answers;
    for (size_t first = 0; first < rows.rows.size(); first += batch) {
      const size_t count = std::min(batch, rows.rows.size() - first);
      for (const auto& answer :
           core.Run(std::span(rows.rows).subspan(first, count), rows.top, run)) {
        if (!answers.empty()) answers += ",";
        answers += AnswersToJson(answer, rows.all_scores);
      }
    }
    Response response;
    response.body = "{\"answers\":[" + answers + "]}";
    return response;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kResourceExhausted || IsLate(e)) throw;
    throw HttpError(400, e.message());
  }
}

}  // namespace coracle::serve
