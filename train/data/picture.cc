#include <coracle/framework/base/error.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/picture_formats.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

Tensor DecodeAny(std::string_view bytes, const std::string& source, bool grey) {
  constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n";
  if (bytes.starts_with(kPng)) return DecodePng(bytes, source);
  if (bytes.starts_with("\xff\xd8")) return DecodeJpeg(bytes, source, grey);
  if (bytes.size() >= 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7')
    return DecodePnm(bytes, source);
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

// Turns [H, W, from] with alpha for an even `from` into [channels, H, W].
Tensor Arrange(const Tensor& raw, int64_t channels) {
  const int64_t pixels = raw.shape()[0] * raw.shape()[1], from = raw.shape()[2];
  const bool alpha = from % 2 == 0;
  const int64_t colours = alpha ? from - 1 : from;
  Tensor picture(DType::kUInt8, {channels, raw.shape()[0], raw.shape()[1]});
  const uint8_t* in = raw.data<uint8_t>();
  uint8_t* out = picture.data<uint8_t>();
  for (int64_t i = 0; i < pixels; ++i, in += from) {
    uint8_t pixel[3] = {in[0], in[0], in[0]};
    for (int64_t c = 0; c < colours; ++c) {
      const uint8_t value = alpha ? OverWhite(in[c], in[colours]) : in[c];
      if (colours == 1)
        std::fill_n(pixel, 3, value);
      else
        pixel[c] = value;
    }
    if (channels == 1) {
      out[i] = colours == 1 ? pixel[0] : GreyOf(pixel);
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) out[c * pixels + i] = pixel[c];
  }
  return picture;
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

// Resizes one plane: first each row that the output needs, then the columns.
template <class T>
void ResizePlane(const T* in, int64_t in_width, const std::vector<ResizeTaps>& down,
                 const std::vector<ResizeTaps>& across, std::vector<double>* line, T* out) {
  const int64_t width = static_cast<int64_t>(across.size());
  for (const ResizeTaps& rows : down) {
    line->assign(static_cast<size_t>(in_width), 0);
    for (size_t k = 0; k < rows.weights.size(); ++k) {
      const T* row = in + (rows.first + static_cast<int64_t>(k)) * in_width;
      for (int64_t x = 0; x < in_width; ++x)
        (*line)[static_cast<size_t>(x)] += rows.weights[k] * static_cast<double>(row[x]);
    }
    for (int64_t x = 0; x < width; ++x) {
      const ResizeTaps& taps = across[static_cast<size_t>(x)];
      double sum = 0;
      for (size_t k = 0; k < taps.weights.size(); ++k)
        sum += taps.weights[k] * (*line)[static_cast<size_t>(taps.first) + k];
      out[x] = Rounded<T>(sum);
    }
    out += width;
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

}  // namespace

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

Tensor DecodePicture(std::string_view bytes, const std::string& source, int64_t channels) {
  if (channels != 0 && channels != 1 && channels != 3)
    ThrowInvalid(fmt::format("{}: channels must be 0, 1 or 3, got {}", source, channels));
  const Tensor raw = DecodeAny(bytes, source, channels == 1);
  if (channels == 0) channels = raw.shape()[2] < 3 ? 1 : 3;
  return Arrange(raw, channels);
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
