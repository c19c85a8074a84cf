#pragma once
// Writes pictures for tests, without the library that reads them (PNG, PNM) or with it (JPEG).

#include <zlib.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// jpeglib.h needs <cstdio>.
#include <jpeglib.h>

namespace coracle {

inline std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

inline std::string PngChunk(const std::string& type, const std::string& body) {
  const std::string all = type + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size()));
  return BigEndian(static_cast<uint32_t>(body.size())) + all +
         BigEndian(static_cast<uint32_t>(crc));
}

// `rows` are the bytes of each row as the PNG packs them; colour types: 0 grey, 2 RGB, 3 palette,
// 4 grey and alpha, 6 RGB and alpha. `more` are chunks before the pixels.
inline std::string MakePng(uint32_t width, int depth, int type,
                           const std::vector<std::string>& rows, const std::string& more = "") {
  std::string plain;
  for (const std::string& row : rows) plain += '\0' + row;
  uLongf size = compressBound(static_cast<uLong>(plain.size()));
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(plain.data()), static_cast<uLong>(plain.size()));
  packed.resize(size);
  const std::string header = BigEndian(width) + BigEndian(static_cast<uint32_t>(rows.size())) +
                             static_cast<char>(depth) + static_cast<char>(type) +
                             std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + PngChunk("IHDR", header) + more + PngChunk("IDAT", packed) +
         PngChunk("IEND", "");
}

// `pixels` are height * width * channels bytes; channels: 1 grey, 3 RGB, 4 CMYK.
inline std::string MakeJpeg(int height, int width, int channels, std::vector<uint8_t> pixels,
                            bool progressive = false) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(out), size);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return bytes;
}

}  // namespace coracle
