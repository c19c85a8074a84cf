#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/picture_formats.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

void DecodeAny(std::string_view bytes, const std::string& source, bool grey, PictureRowSink& sink) {
  constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
  if (bytes.starts_with(kPng)) return DecodePng(bytes, source, sink);
  if (bytes.starts_with("\xff\xd8")) return DecodeJpeg(bytes, source, grey, sink);
  if (bytes.size() >= 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7')
    return DecodePnm(bytes, source, sink);
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {"GIF8", "a GIF"}, {"BM", "a BMP"}, {"RIFF", "a WebP"}, {"II*", "a TIFF"}, {"MM", "a TIFF"}};
  for (const auto& [begin, name] : kOthers)
    if (bytes.starts_with(begin))
      ThrowDamagedPicture(source, fmt::format("looks like {}; PNG, JPEG and PNM are read", name));
  if (bytes.empty()) ThrowDamagedPicture(source, "an empty file, not a picture");
  ThrowDamagedPicture(source, fmt::format("not a PNG, JPEG or PNM picture: it begins with 0x{:02x}",
                                          static_cast<unsigned char>(bytes[0])));
}

uint8_t OverWhite(uint32_t value, uint32_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

// 0.299 R + 0.587 G + 0.114 B in units of 1 / 65536, as libjpeg rounds it.
uint8_t GreyOf(const uint8_t* rgb) {
  return static_cast<uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
}

// Turns a row [W, from], with alpha for an even `from`, into [channels, W].
void ArrangeRow(const uint8_t* in, int64_t from, const PictureForm& form, int64_t width,
                uint8_t* out) {
  const bool alpha = from % 2 == 0, reversed = form.order == ChannelOrder::kBgr;
  const int64_t colours = alpha ? from - 1 : from;
  for (int64_t i = 0; i < width; ++i, in += from) {
    uint8_t pixel[3] = {in[0], in[0], in[0]};
    for (int64_t c = 0; c < colours; ++c) {
      const uint8_t value = alpha ? OverWhite(in[c], in[colours]) : in[c];
      if (colours == 1)
        std::fill_n(pixel, 3, value);
      else
        pixel[c] = value;
    }
    if (form.channels == 1) {
      out[i] = colours == 1 ? pixel[0] : GreyOf(pixel);
      continue;
    }
    for (int64_t c = 0; c < 3; ++c) out[(reversed ? 2 - c : c) * width + i] = pixel[c];
  }
}

// The input values that make one output value: weights[k] multiplies value first + k.
struct ResizeTaps {
  int64_t first = 0;
  std::vector<double> weights = {};
};

ResizeTaps TapsOf(int64_t i, int64_t from, int64_t to) {
  ResizeTaps taps;
  if (to < from) {
    const int64_t begin = i * from, end = begin + from;  // in units of 1 / to
    taps.first = begin / to;
    for (int64_t p = taps.first; p * to < end; ++p) {
      const int64_t overlap = std::min(end, (p + 1) * to) - std::max(begin, p * to);
      taps.weights.push_back(static_cast<double>(overlap) / static_cast<double>(from));
    }
    return taps;
  }
  const double at = std::clamp(
      (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5,
      0.0, static_cast<double>(from - 1));
  taps.first = static_cast<int64_t>(at);
  const double share = at - static_cast<double>(taps.first);
  taps.weights = {1 - share};
  if (share > 0) taps.weights.push_back(share);
  return taps;
}

std::vector<ResizeTaps> TapsOfAxis(int64_t from, int64_t to) {
  std::vector<ResizeTaps> taps;
  taps.reserve(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) taps.push_back(TapsOf(i, from, to));
  return taps;
}

template <class T>
T Rounded(double value) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::clamp(std::floor(value + 0.5), 0.0, 255.0));
  else
    return static_cast<T>(value);
}

// The values of an output row from a line of the input's width.
template <class T>
void Across(const std::vector<double>& line, const std::vector<ResizeTaps>& across, T* out) {
  for (const ResizeTaps& taps : across) {
    double sum = 0;
    for (size_t k = 0; k < taps.weights.size(); ++k)
      sum += taps.weights[k] * line[static_cast<size_t>(taps.first) + k];
    *out++ = Rounded<T>(sum);
  }
}

template <class T>
void AddRow(const T* row, double weight, std::vector<double>* line) {
  for (size_t x = 0; x < line->size(); ++x) (*line)[x] += weight * static_cast<double>(row[x]);
}

// Resizes one plane: first each row that the output needs, then the columns.
template <class T>
void ResizePlane(const T* in, int64_t in_width, const std::vector<ResizeTaps>& down,
                 const std::vector<ResizeTaps>& across, std::vector<double>* line, T* out) {
  for (const ResizeTaps& rows : down) {
    line->assign(static_cast<size_t>(in_width), 0);
    for (size_t k = 0; k < rows.weights.size(); ++k)
      AddRow(in + (rows.first + static_cast<int64_t>(k)) * in_width, rows.weights[k], line);
    Across(*line, across, out);
    out += across.size();
  }
}

template <class T>
Tensor ResizeAs(const Tensor& picture, int64_t height, int64_t width) {
  const Shape& in = picture.shape();
  const auto down = TapsOfAxis(in[1], height), across = TapsOfAxis(in[2], width);
  Tensor result(picture.dtype(), {in[0], height, width});
  std::vector<double> line;
  for (int64_t c = 0; c < in[0]; ++c)
    ResizePlane(picture.data<T>() + c * in[1] * in[2], in[2], down, across, &line,
                result.data<T>() + c * height * width);
  return result;
}

// Resizes a picture whose rows come one after the other; the values are those of ResizePlane. Of a
// picture that shrinks, at most two output rows are open at a time, because they share an input
// row; otherwise an output row is made of the last two input rows.
class RowResizer {
 public:
  RowResizer(int64_t channels, int64_t in_height, int64_t in_width, int64_t height, int64_t width)
      : channels_(channels),
        in_width_(in_width),
        shrinks_(height < in_height),
        down_(TapsOfAxis(in_height, height)),
        across_(TapsOfAxis(in_width, width)),
        result_(DType::kUInt8, {channels, height, width}) {
    for (auto& lines : lines_) lines.resize(static_cast<size_t>(channels));
  }

  // `row` is [channels, W].
  void Add(const uint8_t* row) {
    if (shrinks_)
      Shrink(row);
    else
      Grow(row);
    ++row_;
  }
  const Tensor& result() const { return result_; }

 private:
  void Shrink(const uint8_t* row) {
    for (size_t i = next_; i < down_.size() && down_[i].first <= row_; ++i) {
      const auto k = static_cast<size_t>(row_ - down_[i].first);
      for (int64_t c = 0; c < channels_; ++c) {
        std::vector<double>& line = lines_[i % 2][static_cast<size_t>(c)];
        if (k == 0) line.assign(static_cast<size_t>(in_width_), 0);
        AddRow(row + c * in_width_, down_[i].weights[k], &line);
        if (k + 1 == down_[i].weights.size()) Across(line, across_, Out(c, i));
      }
      if (k + 1 == down_[i].weights.size()) next_ = i + 1;
    }
  }

  void Grow(const uint8_t* row) {
    for (; next_ < down_.size() && LastOf(down_[next_]) == row_; ++next_) {
      const ResizeTaps& taps = down_[next_];
      for (int64_t c = 0; c < channels_; ++c) {
        std::vector<double>& line = lines_[0][static_cast<size_t>(c)];
        line.assign(static_cast<size_t>(in_width_), 0);
        for (size_t k = 0; k < taps.weights.size(); ++k) {
          const bool last = k + 1 == taps.weights.size();
          AddRow((last ? row : before_.data()) + c * in_width_, taps.weights[k], &line);
        }
        Across(line, across_, Out(c, next_));
      }
    }
    before_.assign(row, row + channels_ * in_width_);
  }

  static int64_t LastOf(const ResizeTaps& taps) {
    return taps.first + static_cast<int64_t>(taps.weights.size()) - 1;
  }
  uint8_t* Out(int64_t channel, size_t row) {
    const auto height = static_cast<int64_t>(down_.size());
    const auto width = static_cast<int64_t>(across_.size());
    return result_.data<uint8_t>() + (channel * height + static_cast<int64_t>(row)) * width;
  }

  int64_t channels_, in_width_;
  bool shrinks_;
  std::vector<ResizeTaps> down_, across_;
  Tensor result_;
  int64_t row_ = 0;                            // the number of the next input row
  size_t next_ = 0;                            // the first output row that is not complete
  std::vector<std::vector<double>> lines_[2];  // of the open output rows, by channel
  std::vector<uint8_t> before_;                // the last input row
};

// Arranges and resizes the rows of a decoder.
class PictureMaker : public PictureRowSink {
 public:
  PictureMaker(const PictureForm& form, const std::string& source) : form_(form), source_(source) {}

  void Begin(const PictureHead& head) override {
    from_ = head.channels, width_ = head.width;
    if (form_.channels == 0) form_.channels = from_ < 3 ? 1 : 3;
    if (form_.height == 0) form_.height = head.height;
    if (form_.width == 0) form_.width = head.width;
    Shrink(head);
    const auto row = static_cast<uint64_t>(head.width * form_.channels);
    const uint64_t lines = 2 * sizeof(double) * row + 4 * row;
    const auto size = static_cast<uint64_t>(form_.channels * form_.height * form_.width);
    const uint64_t bytes = head.held_bytes + lines + size;
    if (bytes > form_.most_bytes) {
      throw Error(
          ErrorCode::kResourceExhausted,
          fmt::format("{}: {} of {} x {} pixels takes {} of memory; the limit is {}; "
                      "decode_mb of the job's pictures raises it, or --decode_mb of predict, "
                      "report and serve",
                      source_, head.kind, head.width, head.height, HumanBytes(bytes),
                      HumanBytes(form_.most_bytes)));
    }
    row_.resize(static_cast<size_t>(row));
    resizer_.emplace(form_.channels, head.height, head.width, form_.height, form_.width);
  }
  void Row(const uint8_t* row) override {
    CheckPictureTime();
    ArrangeRow(row, from_, form_, width_, row_.data());
    resizer_->Add(row_.data());
  }
  const Tensor& result() const { return resizer_->result(); }

 private:
  void Shrink(const PictureHead& head) {
    const int64_t longer = std::max(head.height, head.width);
    if (form_.most_side == 0 || longer <= form_.most_side) return;
    form_.height = std::max<int64_t>(head.height * form_.most_side / longer, 1);
    form_.width = std::max<int64_t>(head.width * form_.most_side / longer, 1);
  }

  PictureForm form_;
  const std::string& source_;
  int64_t from_ = 0, width_ = 0;
  std::vector<uint8_t> row_;
  std::optional<RowResizer> resizer_;
};

}  // namespace

void CheckPictureTime() { CheckTimeLimit("a picture is decoded"); }

bool IsPictureTimeOver() noexcept {
  try {
    CheckPictureTime();
    return false;
  } catch (...) {
    return true;
  }
}

void ThrowDamagedPicture(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", source, what));
}

void CheckPictureSize(const std::string& source, uint64_t height, uint64_t width) {
  if (height == 0 || width == 0)
    ThrowDamagedPicture(source, fmt::format("a picture of {} x {} pixels", width, height));
  constexpr auto kSide = static_cast<uint64_t>(kMaxPictureSide);
  constexpr auto kPixels = static_cast<uint64_t>(kMaxPicturePixels);
  if (height <= kSide && width <= kSide && height * width <= kPixels) return;
  throw Error(
      ErrorCode::kResourceExhausted,
      fmt::format("{}: a picture of {} x {} pixels; at most {} a side and {} in all are read",
                  source, width, height, kMaxPictureSide, kMaxPicturePixels));
}

Tensor DecodePicture(std::string_view bytes, const std::string& source, const PictureForm& form) {
  if (form.channels != 0 && form.channels != 1 && form.channels != 3)
    ThrowInvalid(fmt::format("{}: channels must be 0, 1 or 3, got {}", source, form.channels));
  PictureMaker maker(form, source);
  DecodeAny(bytes, source, form.channels == 1, maker);
  return maker.result();
}

Tensor DecodePicture(std::string_view bytes, const std::string& source, int64_t channels) {
  return DecodePicture(bytes, source, PictureForm{channels});
}

Tensor ResizePicture(const Tensor& picture, int64_t height, int64_t width) {
  const Shape& in = picture.shape();
  const bool known = picture.dtype() == DType::kUInt8 || picture.dtype() == DType::kFloat32;
  if (!known || in.rank() != 3 || in[1] < 1 || in[2] < 1) {
    ThrowInvalid(fmt::format("only pictures [C, H, W] of uint8 or float32 are resized, got {}",
                             picture.ToString()));
  }
  if (height < 1 || width < 1 || height > kMaxPictureSide || width > kMaxPictureSide ||
      height * width > kMaxPicturePixels) {
    ThrowInvalid(fmt::format("a picture cannot be resized to {} x {} pixels", width, height));
  }
  if (height == in[1] && width == in[2]) return picture;
  return picture.dtype() == DType::kUInt8 ? ResizeAs<uint8_t>(picture, height, width)
                                          : ResizeAs<float>(picture, height, width);
}

}  // namespace coracle::inline internal
