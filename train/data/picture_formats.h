#pragma once
// The decoders of single formats of pictures.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// Each returns uint8 [H, W, C], where C is 1 (grey), 2 (grey, alpha), 3 (red, green, blue) or 4
// (red, green, blue, alpha).
Tensor DecodePng(std::string_view bytes, const std::string& source);
// Grey pictures, or `grey`, give C = 1, others C = 3.
Tensor DecodeJpeg(std::string_view bytes, const std::string& source, bool grey);
Tensor DecodePnm(std::string_view bytes, const std::string& source);

[[noreturn]] void ThrowDamagedPicture(const std::string& source, const std::string& what);
// Throws kResourceExhausted for a picture above the limits, and kDataLoss for an empty one.
void CheckPictureSize(const std::string& source, uint64_t height, uint64_t width);

}  // namespace coracle::inline internal
