#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/log/quality_svg.h>
#include <zlib.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

void AppendBigEndian(uint32_t value, std::string* bytes) {
  for (const int shift : {24, 16, 8, 0}) *bytes += static_cast<char>(value >> shift & 255);
}

// A chunk of a PNG file: length, kind, data, and the check sum of kind and data.
void AppendChunk(const std::string& kind, const std::string& data, std::string* png) {
  AppendBigEndian(static_cast<uint32_t>(data.size()), png);
  const std::string body = kind + data;
  *png += body;
  const auto* bytes = reinterpret_cast<const Bytef*>(body.data());
  AppendBigEndian(static_cast<uint32_t>(crc32(0, bytes, static_cast<uInt>(body.size()))), png);
}

std::string Deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int result =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_DEFAULT_COMPRESSION);
  if (result != Z_OK) throw Error(ErrorCode::kResourceExhausted, "no memory to pack a picture");
  packed.resize(size);
  return packed;
}

// PNG (ISO/IEC 15948): 8 bits a channel, no filters, not interlaced.
std::string PngOf(const Tensor& picture) {
  const int64_t channels = picture.shape()[0], height = picture.shape()[1];
  const int64_t width = picture.shape()[2];
  const uint8_t* values = picture.data<uint8_t>();
  std::string lines;
  for (int64_t y = 0; y < height; ++y) {
    lines += '\0';
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        lines += static_cast<char>(values[(c * height + y) * width + x]);
  }
  std::string head;
  AppendBigEndian(static_cast<uint32_t>(width), &head);
  AppendBigEndian(static_cast<uint32_t>(height), &head);
  head += std::string{8, channels == 3 ? '\2' : '\0', 0, 0, 0};
  std::string png = "\x89PNG\r\n\x1A\n";
  AppendChunk("IHDR", head, &png);
  AppendChunk("IDAT", Deflated(lines), &png);
  AppendChunk("IEND", "", &png);
  return png;
}

}  // namespace

std::string PictureUrl(const Tensor& picture, int64_t side) {
  const Shape& shape = picture.shape();
  if (picture.dtype() != DType::kUInt8 || shape.rank() != 3 || (shape[0] != 1 && shape[0] != 3))
    throw InternalError("a picture to show is uint8 [1 or 3, H, W]");
  const int64_t largest = std::max(shape[1], shape[2]);
  if (picture.numel() == 0) return "";
  if (largest <= side) return "data:image/png;base64," + Base64(PngOf(picture));
  const auto smaller = [&](int64_t size) { return std::max<int64_t>(size * side / largest, 1); };
  const Tensor small = ResizePicture(picture, smaller(shape[1]), smaller(shape[2]));
  return "data:image/png;base64," + Base64(PngOf(small));
}

}  // namespace coracle::inline internal
