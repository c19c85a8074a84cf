#pragma once
// Pictures in files: PNG, JPEG and PNM (P2, P3, P5, P6). The bytes may be untrusted.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// The largest picture that is decoded or made.
constexpr int64_t kMaxPictureSide = 65500;
constexpr int64_t kMaxPicturePixels = int64_t{1} << 27;
// The most memory that decoding takes, unless the caller gives another limit.
constexpr uint64_t kMostPictureBytes = uint64_t{256} << 20;

// What a picture is decoded to.
struct PictureForm {
  int64_t channels = 0;           // 1 (grey), 3 (colours) or 0 (as in the file: 1 or 3)
  int64_t height = 0, width = 0;  // 0: those of the picture; see ResizePicture
  ChannelOrder order = ChannelOrder::kRgb;
  int64_t most_side = 0;  // not 0: a larger picture shrinks until its longer side is this
  // Larger needs throw kResourceExhausted. Pictures are resized row by row as they are decoded, so
  // only the result counts, and what interlaced PNG and progressive JPEG files need as a whole.
  uint64_t most_bytes = kMostPictureBytes;
};

// ResizePicture of DecodePicture, to the bit.
Tensor DecodePicture(std::string_view bytes, const std::string& source, const PictureForm& form);

// Decodes a picture to uint8 [C, H, W]. `channels` is 1 (grey), 3 (red, green, blue) or 0 (as in
// the file: 1 or 3). Grey is 0.299 R + 0.587 G + 0.114 B (ITU-R 601), rounded; a JPEG holds it
// itself. Grey becomes red, green and blue of equal value. Transparent pixels are laid over white.
// Values of 16 bits are rounded to 8: v * 255 / 65535. Gamma, colour profiles and EXIF data, which
// includes the orientation of a photograph, are ignored. Throws kDataLoss for bytes that are
// damaged, cut off or no picture, kInvalidArgument for a JPEG in CMYK, and kResourceExhausted for
// a picture above the limits, before its memory is allocated. Without memory, throws OutOfMemory.
// `source` names the picture in errors.
Tensor DecodePicture(std::string_view bytes, const std::string& source, int64_t channels);

// Resizes a picture [C, H, W] of uint8 or float32 to [C, height, width]; uint8 is rounded half up.
// The axes are independent. From n to m values, with m < n, value i is the mean of the input over
// [i n / m, (i + 1) n / m), where input value p covers [p, p + 1). With m >= n, value i is
// interpolated linearly at (i + 0.5) n / m - 0.5, clamped to [0, n - 1]. So the centres of the
// corner pixels do not coincide, but the borders of the pictures do.
Tensor ResizePicture(const Tensor& picture, int64_t height, int64_t width);

}  // namespace coracle::inline internal
