#pragma once
// The decoders of single formats of pictures.

#include <cstdint>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// What a decoder knows before the pixels.
struct PictureHead {
  int64_t height = 0, width = 0;
  int64_t channels = 0;     // of each pixel: 1 (grey), 2 (grey, alpha), 3 (red, green, blue) or 4
  uint64_t held_bytes = 0;  // that the decoder needs for the picture as a whole
  std::string kind = "";    // "an interlaced PNG", for errors about these bytes
};

// Takes the rows of a picture, from top to bottom.
class PictureRowSink {
 public:
  virtual ~PictureRowSink() = default;
  // Called once, before the decoder allocates memory for pixels. May throw.
  virtual void Begin(const PictureHead& head) = 0;
  // `row` has the channels of each pixel next to each other.
  virtual void Row(const uint8_t* row) = 0;
};

void DecodePng(std::string_view bytes, const std::string& source, PictureRowSink& sink);
// Grey pictures, or `grey`, give 1 channel, others 3.
void DecodeJpeg(std::string_view bytes, const std::string& source, bool grey, PictureRowSink& sink);
void DecodePnm(std::string_view bytes, const std::string& source, PictureRowSink& sink);

// Whether the thread's time limit has passed. Libraries in C must not see an exception, so that
// their callbacks ask for it, and CheckPictureTime throws afterwards.
bool IsPictureTimeOver() noexcept;
void CheckPictureTime();
[[noreturn]] void ThrowDamagedPicture(const std::string& source, const std::string& what);
// Throws kResourceExhausted for a picture above the limits, and kDataLoss for an empty one.
void CheckPictureSize(const std::string& source, uint64_t height, uint64_t width);

}  // namespace coracle::inline internal
