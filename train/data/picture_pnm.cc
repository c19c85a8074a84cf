// PNM pictures (netpbm): P2 and P5 are grey, P3 and P6 have colours; P2 and P3 are text.

#include <coracle/framework/base/error.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/picture_formats.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace coracle::inline internal {
namespace {

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class PnmReader {
 public:
  PnmReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  void Read(PictureRowSink& sink) {
    const char kind = bytes_[1];
    if (kind != '2' && kind != '3' && kind != '5' && kind != '6') {
      ThrowInvalid(fmt::format("{}: a PNM of kind P{}; P2, P3, P5 and P6 are read", source_, kind));
    }
    at_ = 2;
    const uint32_t width = Number("the width"), height = Number("the height");
    largest_ = Number("the largest value");
    CheckPictureSize(source_, height, width);
    if (largest_ < 1 || largest_ > 65535)
      Fail(fmt::format("the largest value must be in [1, 65535], got {}", largest_));
    const int64_t channels = kind == '3' || kind == '6' ? 3 : 1;
    const bool text = kind == '2' || kind == '3';
    const uint64_t values = uint64_t{height} * width * static_cast<uint64_t>(channels);
    const uint64_t least = text ? 2 * values - 1 : values * (largest_ > 255 ? 2 : 1);
    if (!text && (at_ == bytes_.size() || !IsBlank(bytes_[at_++])))
      Fail("a blank must follow the largest value");
    if (bytes_.size() - at_ < least) {
      Fail(fmt::format("cut off: {} x {} pixels need at least {} bytes, {} follow the header",
                       width, height, least, bytes_.size() - at_));
    }
    sink.Begin({height, width, channels, 0, "a PNM"});
    std::vector<uint8_t> row(static_cast<size_t>(width * channels));
    for (uint32_t y = 0; y < height; ++y) {
      for (uint8_t& value : row) value = Scaled(text ? Number("a value") : Bytes());
      sink.Row(row.data());
    }
    SkipBlanks();
    if (at_ < bytes_.size())
      Fail(fmt::format("{} bytes follow the pixels; a file may hold one picture",
                       bytes_.size() - at_));
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    ThrowDamagedPicture(source_, "damaged PNM: " + what);
  }

  void SkipBlanks() {
    while (at_ < bytes_.size() && (IsBlank(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_++] != '#') continue;
      while (at_ < bytes_.size() && bytes_[at_] != '\n' && bytes_[at_] != '\r') ++at_;
    }
  }

  uint32_t Number(const char* what) {
    SkipBlanks();
    const size_t begin = at_;
    uint64_t value = 0;
    while (at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9') {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(bytes_[at_] - '0'), 1u << 31);
      ++at_;
    }
    if (at_ == begin) Fail(fmt::format("{} is missing at byte {}", what, at_));
    return static_cast<uint32_t>(value);
  }

  uint32_t Bytes() {
    const auto byte = [this] { return uint32_t{static_cast<unsigned char>(bytes_[at_++])}; };
    const uint32_t first = byte();
    return largest_ > 255 ? first << 8 | byte() : first;
  }

  uint8_t Scaled(uint32_t value) const {
    if (value > largest_)
      Fail(fmt::format("the value {} before byte {} is above {}", value, at_, largest_));
    if (largest_ == 255) return static_cast<uint8_t>(value);
    return static_cast<uint8_t>((value * 510 + largest_) / (2 * largest_));
  }

  std::string_view bytes_;
  const std::string& source_;
  size_t at_ = 0;
  uint32_t largest_ = 255;
};

}  // namespace

void DecodePnm(std::string_view bytes, const std::string& source, PictureRowSink& sink) {
  PnmReader(bytes, source).Read(sink);
}

}  // namespace coracle::inline internal
