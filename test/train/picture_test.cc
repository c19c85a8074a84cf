// Pictures of PNG, JPEG and PNM: values, limits, damaged files; resizing.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/train/picture_files.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/picture.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::picture_test {

using Bytes = std::vector<uint8_t>;

Bytes Values(const Tensor& picture) {
  const auto values = picture.span<uint8_t>();
  return {values.begin(), values.end()};
}

Bytes Decoded(const std::string& bytes, int64_t channels = 0) {
  return Values(DecodePicture(bytes, "p", channels));
}

std::string FailureOf(const std::string& bytes) {
  return ErrorOf([&] { DecodePicture(bytes, "dir/p", 0); });
}

TEST(Png, GreyAndColours) {
  const Tensor grey = DecodePicture(MakePng(3, 8, 0, {{"\x01\x02\x03"}, {"\x10\x20\xff"}}), "p", 0);
  EXPECT_EQ(grey.shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(Values(grey), (Bytes{1, 2, 3, 16, 32, 255}));
  // Channels come one after the other.
  const std::string colours = MakePng(2, 8, 2, {"\x01\x02\x03\xff\xfe\xfd"});
  EXPECT_EQ(Decoded(colours), (Bytes{1, 255, 2, 254, 3, 253}));
  EXPECT_EQ(Decoded(MakePng(1, 8, 0, {"\x07"}), 3), (Bytes{7, 7, 7}));
}

TEST(Png, GreyOfColoursIsItu601) {
  for (int r = 0; r < 256; r += 51) {
    for (int g = 0; g < 256; g += 51) {
      for (int b = 0; b < 256; b += 51) {
        const std::string pixel = {static_cast<char>(r), static_cast<char>(g),
                                   static_cast<char>(b)};
        const double wanted = 0.299 * r + 0.587 * g + 0.114 * b;
        EXPECT_NEAR(Decoded(MakePng(1, 8, 2, {pixel}), 1)[0], wanted, 0.51) << r << g << b;
      }
    }
  }
}

TEST(Png, SmallDepthsAndPalette) {
  EXPECT_EQ(Decoded(MakePng(8, 1, 0, {"\xb1"})), (Bytes{255, 0, 255, 255, 0, 0, 0, 255}));
  EXPECT_EQ(Decoded(MakePng(4, 2, 0, {"\x1b"})), (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(Decoded(MakePng(2, 4, 0, {"\x3f"})), (Bytes{51, 255}));
  const std::string palette = PngChunk("PLTE", std::string("\x0a\x14\x1e\xc8\xd2\xdc", 6));
  EXPECT_EQ(Decoded(MakePng(2, 8, 3, {std::string("\x01\x00", 2)}, palette)),
            (Bytes{200, 10, 210, 20, 220, 30}));
}

TEST(Png, SixteenBitsAreRounded) {
  const std::string row("\x01\x00\x80\x80\xff\x00\xff\xff", 8);
  Bytes wanted;
  for (const double v : {256.0, 32896.0, 65280.0, 65535.0})
    wanted.push_back(static_cast<uint8_t>(std::floor(v * 255 / 65535 + 0.5)));
  EXPECT_EQ(Decoded(MakePng(4, 16, 0, {row})), wanted);
}

TEST(Png, TransparentPixelsLieOverWhite) {
  const std::string row("\x64\xff\x64\x00\x64\x80", 6);  // grey 100: opaque, clear, 128 / 255
  const auto half = static_cast<uint8_t>(std::floor((100.0 * 128 + 255.0 * 127) / 255 + 0.5));
  EXPECT_EQ(Decoded(MakePng(3, 8, 4, {row})), (Bytes{100, 255, half}));
  const std::string rgba("\x0a\x14\x1e\x00\x0a\x14\x1e\xff", 8);
  EXPECT_EQ(Decoded(MakePng(2, 8, 6, {rgba})), (Bytes{255, 10, 255, 20, 255, 30}));
  // A colour that a chunk makes transparent.
  const std::string clear = PngChunk("tRNS", std::string("\x00\x05", 2));
  EXPECT_EQ(Decoded(MakePng(2, 8, 0, {"\x05\x06"}, clear)), (Bytes{255, 6}));
}

TEST(Png, CutOffFilesAreRefused) {
  const std::string whole = MakePng(5, 8, 2, {std::string(15, 'a'), std::string(15, 'b')});
  for (size_t n = 0; n < whole.size(); ++n) {
    SCOPED_TRACE(n);
    ExpectContains(FailureOf(whole.substr(0, n)), "dir/p: ");
  }
  ExpectContains(FailureOf(whole.substr(0, whole.size() - 20)),
                 "damaged PNG (the file is cut off)");
  std::string wrong = whole;
  wrong[45] ^= 1;
  ExpectContains(FailureOf(wrong), "damaged PNG (");
}

// A header may claim any size; no memory is allocated for it.
TEST(Png, LargeClaimsAreRefused) {
  const auto claim = [](uint32_t width, uint32_t height) {
    std::string png = MakePng(1, 8, 0, {"a"});
    const std::string header =
        BigEndian(width) + BigEndian(height) + std::string("\x08\x00\x00\x00\x00", 5);
    return png.substr(0, 8) + PngChunk("IHDR", header) + png.substr(33);
  };
  ExpectContains(FailureOf(claim(1u << 30, 5)), "at most 65500 a side and 134217728 in all");
  ExpectContains(FailureOf(claim(60000, 60000)), "a picture of 60000 x 60000 pixels");
  ExpectContains(FailureOf(claim(10000, 10000)), "10000 x 10000 pixels cannot be packed into");
  ExpectContains(FailureOf(claim(0, 3)), "dir/p: ");
  ExpectContains(FailureOf(claim(3, 3)), "dir/p: ");
}

TEST(Jpeg, ColoursAndGrey) {
  Bytes pixels;
  for (int i = 0; i < 16 * 16; ++i) pixels.insert(pixels.end(), {200, 100, 50});
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg(16, 16, 3, pixels, progressive);
    const Tensor picture = DecodePicture(jpeg, "p", 0);
    EXPECT_EQ(picture.shape(), (Shape{3, 16, 16}));
    const Bytes values = Values(picture);
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_NEAR(values[i], 200, 2);
      EXPECT_NEAR(values[256 + i], 100, 2);
      EXPECT_NEAR(values[512 + i], 50, 2);
    }
    const Tensor grey = DecodePicture(jpeg, "p", 1);
    EXPECT_EQ(grey.shape(), (Shape{1, 16, 16}));
    for (const uint8_t v : Values(grey)) EXPECT_NEAR(v, 0.299 * 200 + 0.587 * 100 + 0.114 * 50, 1);
  }
  Bytes ramp(9 * 20);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<uint8_t>(i % 20 * 12);
  const Tensor grey = DecodePicture(MakeJpeg(9, 20, 1, ramp), "p", 0);
  EXPECT_EQ(grey.shape(), (Shape{1, 9, 20}));
  for (size_t i = 0; i < ramp.size(); ++i) EXPECT_NEAR(Values(grey)[i], ramp[i], 2);
}

TEST(Jpeg, CmykIsRefusedByName) {
  ExpectContains(FailureOf(MakeJpeg(8, 8, 4, Bytes(256, 9))), "dir/p: a JPEG in CMYK colours");
}

TEST(Jpeg, CutOffFilesAreRefused) {
  Bytes noise(24 * 24 * 3);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * 7919 >> 3);
  for (const bool progressive : {false, true}) {
    const std::string whole = MakeJpeg(24, 24, 3, noise, progressive);
    EXPECT_EQ(Decoded(whole).size(), noise.size());
    for (size_t n = 0; n < whole.size(); ++n) {
      SCOPED_TRACE(n);
      ExpectContains(FailureOf(whole.substr(0, n)), "dir/p: ");
    }
    // Damaged bytes may pass for others, but end in a picture or in an error.
    for (size_t n = 2; n < whole.size(); n += 3) {
      std::string damaged = whole;
      damaged[n] = static_cast<char>(damaged[n] ^ 0x55);
      try {
        DecodePicture(damaged, "p", 0);
      } catch (const Error&) {
      }
    }
  }
  std::string claim = MakeJpeg(8, 8, 1, Bytes(64, 1));
  const size_t frame = claim.find("\xff\xc0");
  claim.replace(frame + 5, 4, "\xc3\x50\xc3\x50");  // 50000 x 50000
  ExpectContains(FailureOf(claim), "a picture of 50000 x 50000 pixels");
  claim.replace(frame + 5, 4, "\x20\x20\x20\x20");
  ExpectContains(FailureOf(claim), "cannot be packed into");
}

TEST(Pnm, TextAndBytes) {
  EXPECT_EQ(Decoded("P2\n# a comment\n3 1\n255\n0 128 255\n"), (Bytes{0, 128, 255}));
  EXPECT_EQ(Decoded("P3 1 2 15 0 3 6 9 12 15"), (Bytes{0, 153, 51, 204, 102, 255}));
  EXPECT_EQ(Decoded(std::string("P5 2 1 255\n\x00 ", 13)), (Bytes{0, 32}));
  EXPECT_EQ(Decoded("P6 1 1 255\nabc"), (Bytes{'a', 'b', 'c'}));
  EXPECT_EQ(Decoded(std::string("P5 2 1 65535\n\x80\x80\xff\xff", 17)), (Bytes{128, 255}));
  EXPECT_EQ(Decoded("P2 2 1 7 3 4"), (Bytes{109, 146}));  // 3 * 255 / 7 = 109.3, 145.7
}

TEST(Pnm, DamagedFilesAreRefused) {
  ExpectContains(FailureOf("P5 2 2 255\nabc"), "cut off: 2 x 2 pixels need at least 4 bytes, 3");
  ExpectContains(FailureOf("P5 2 2 255\nabcde"), "1 bytes follow the pixels");
  ExpectContains(FailureOf("P2 2 1 7 3 8"), "the value 8 before byte 12 is above 7");
  ExpectContains(FailureOf("P2 2 1 7 3"), "cut off");
  ExpectContains(FailureOf("P2 2 2 7 3 4 5 x"), "a value is missing at byte 15");
  ExpectContains(FailureOf("P5 2 1 0\nab"), "the largest value must be in [1, 65535], got 0");
  ExpectContains(FailureOf("P5 0 1 255\n"), "a picture of 0 x 1 pixels");
  ExpectContains(FailureOf("P5 99999999999999999999 1 255\n"), "pixels; at most");
  ExpectContains(FailureOf("P6 60000 2000 255\nabc"), "cut off");
  ExpectContains(FailureOf("P4 8 1\na"), "a PNM of kind P4; P2, P3, P5 and P6 are read");
  ExpectContains(FailureOf("P5"), "the width is missing");
}

TEST(Picture, OtherFilesAreRefused) {
  ExpectContains(FailureOf(""), "an empty file, not a picture");
  ExpectContains(FailureOf("GIF89a"), "looks like a GIF; PNG, JPEG and PNM are read");
  ExpectContains(FailureOf("hello"), "not a PNG, JPEG or PNM picture: it begins with 0x68");
  ExpectContains(ErrorOf([] { DecodePicture("P5 1 1 9 a", "p", 2); }),
                 "channels must be 0, 1 or 3");
}

// --- resizing ---

// The same values as OpenCV 4.6 gives with INTER_AREA and INTER_LINEAR.
// A picture without a pattern.
Bytes Noise(size_t size) {
  Bytes noise(size);
  for (size_t i = 0; i < size; ++i) noise[i] = static_cast<uint8_t>((i * i * 2654435761u) >> 13);
  return noise;
}

std::string NoisePng(uint32_t height, uint32_t width) {
  const Bytes noise = Noise(size_t{3} * height * width);
  std::vector<std::string> rows;
  for (size_t y = 0; y < height; ++y)
    rows.emplace_back(noise.begin() + static_cast<ptrdiff_t>(y * 3 * width),
                      noise.begin() + static_cast<ptrdiff_t>((y + 1) * 3 * width));
  return MakePng(width, 8, 2, rows);
}

// An interlaced PNG (Adam7), of grey pixels.
std::string InterlacedPng(int height, int width, Bytes pixels) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 8,
               PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_ADAM7, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) rows.push_back(pixels.data() + y * width);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// Resized while it is decoded: the same bytes as resized afterwards.
TEST(Picture, RowByRowIsTheSameToTheBit) {
  const Bytes grey = Noise(23 * 31);
  std::string pnm = "P5 31 23 255\n";
  pnm.append(grey.begin(), grey.end());
  const std::vector<std::string> files = {
      NoisePng(23, 31), pnm, MakeJpeg(23, 31, 3, Noise(3 * 23 * 31)),
      MakeJpeg(23, 31, 3, Noise(3 * 23 * 31), true), InterlacedPng(23, 31, grey)};
  EXPECT_EQ(Values(DecodePicture(files[4], "p", 0)), grey);
  for (size_t i = 0; i < files.size(); ++i) {
    for (const int64_t channels : {0, 1, 3}) {
      const Tensor whole = DecodePicture(files[i], "p", channels);
      for (const int64_t height : {1, 2, 11, 22, 23, 24, 50}) {
        for (const int64_t width : {1, 7, 30, 31, 32, 70}) {
          const PictureForm form{channels, height, width};
          EXPECT_TRUE(
              BitEqual(DecodePicture(files[i], "p", form), ResizePicture(whole, height, width)))
              << i << ": " << channels << " x " << height << " x " << width;
        }
      }
    }
  }
}

TEST(Picture, ChannelsMayBeBlueGreenRed) {
  const std::string png = MakePng(2, 8, 2, {"\x01\x02\x03\xff\xfe\xfd"});
  const PictureForm form{3, 0, 0, ChannelOrder::kBgr};
  EXPECT_EQ(Values(DecodePicture(png, "p", form)), (Bytes{3, 253, 2, 254, 1, 255}));
  const PictureForm grey{1, 0, 0, ChannelOrder::kBgr};
  EXPECT_EQ(Values(DecodePicture(png, "p", grey)), Decoded(png, 1));
}

TEST(Picture, ShrinksToASide) {
  PictureForm form;
  form.most_side = 10;
  EXPECT_EQ(DecodePicture(NoisePng(40, 20), "p", form).shape(), (Shape{3, 10, 5}));
  EXPECT_EQ(DecodePicture(NoisePng(8, 9), "p", form).shape(), (Shape{3, 8, 9}));
}

// 4000 x 4000 pixels are 48 MB; decoded to 28 x 28, tensors take less than 1 MiB.
TEST(Picture, MemoryIsThatOfTheResult) {
  const std::string png =
      MakePng(4000, 8, 2, std::vector<std::string>(4000, std::string(12000, 'a')));
  EXPECT_LT(png.size(), 200'000u);
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{.memory = 1 << 20});
  const ScopedLimits scoped(limits);
  PictureForm form{3, 28, 28};
  form.most_bytes = 1 << 20;
  EXPECT_EQ(Values(DecodePicture(png, "p", form)), Bytes(3 * 28 * 28, 'a'));
}

TEST(Picture, LimitsNameThemselves) {
  const auto refused = [](const std::string& bytes, int64_t height, uint64_t most) {
    PictureForm form{1, height, height};
    form.most_bytes = most;
    return ErrorOf([&] { DecodePicture(bytes, "dir/p", form); });
  };
  const std::string interlaced = InterlacedPng(600, 600, Bytes(360'000, 9));
  ExpectContains(refused(interlaced, 8, 1 << 18), "dir/p: an interlaced PNG of 600 x 600 pixels");
  ExpectContains(
      refused(interlaced, 8, 1 << 18),
      "the limit is 256.0 KiB; decode_mb of the job's pictures raises it, or --decode_mb of "
      "predict, report and serve");
  ExpectContains(refused(MakeJpeg(600, 600, 1, Bytes(360'000, 9), true), 8, 1 << 18),
                 "dir/p: a progressive JPEG of 600 x 600 pixels takes");
  ExpectContains(refused(NoisePng(300, 300), 0, 1 << 16), "dir/p: a PNG of 300 x 300 pixels takes");
}

TEST(Resize, ValuesOfOpenCv) {
  const Tensor picture = Tensor::Of<float>(
      {1, 4, 5}, {0, 13, 26, 39, 52, 7, 23, 39, 55, 71, 28, 47, 66, 85, 3, 63, 85, 6, 28, 50});
  const float smaller[] = {9.3f, 32.5f, 55.7f, 53.7f, 46.1f, 38.5f};
  const Tensor small = ResizePicture(picture, 2, 3);
  ASSERT_EQ(small.shape(), (Shape{1, 2, 3}));
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(small.span<float>()[i], smaller[i], 1e-5);
  const Tensor large = ResizePicture(picture, 7, 8);
  const float first[] = {0, 5.6875f, 13.8125f, 21.9375f, 30.0625f, 38.1875f, 46.3125f, 52};
  const float fourth[] = {17.5f,     25.15625f, 36.09375f, 47.03125f,
                          57.96875f, 68.90625f, 51.4375f,  37};
  for (size_t x = 0; x < 8; ++x) {
    EXPECT_NEAR(large.span<float>()[x], first[x], 1e-5);
    EXPECT_NEAR(large.span<float>()[3 * 8 + x], fourth[x], 1e-5);
  }
}

// Each input value is repeated `to` times; then each block of `from` values has a mean.
TEST(Resize, SmallerIsTheMeanOfTheArea) {
  const int64_t h = 7, w = 10, to_h = 3, to_w = 4;
  Tensor picture(DType::kUInt8, {2, h, w});
  for (int64_t i = 0; i < picture.numel(); ++i)
    picture.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 251);
  const Tensor small = ResizePicture(picture, to_h, to_w);
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t y = 0; y < to_h; ++y) {
      for (int64_t x = 0; x < to_w; ++x) {
        int64_t sum = 0;
        for (int64_t fy = y * h; fy < (y + 1) * h; ++fy)
          for (int64_t fx = x * w; fx < (x + 1) * w; ++fx)
            sum += picture.data<uint8_t>()[(c * h + fy / to_h) * w + fx / to_w];
        const int64_t rounded = (2 * sum + h * w) / (2 * h * w);
        EXPECT_EQ(small.data<uint8_t>()[(c * to_h + y) * to_w + x], rounded) << c << y << x;
      }
    }
  }
}

TEST(Resize, AxesAreIndependentAndSizesAreChecked) {
  const Tensor line = Tensor::Of<uint8_t>({1, 1, 2}, {0, 10});
  EXPECT_EQ(Values(ResizePicture(line, 2, 4)), (Bytes{0, 3, 8, 10, 0, 3, 8, 10}));  // 2.5 -> 3
  EXPECT_EQ(Values(ResizePicture(line, 1, 2)), (Bytes{0, 10}));
  EXPECT_EQ(Values(ResizePicture(line, 3, 1)), (Bytes{5, 5, 5}));
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor infinite = ResizePicture(Tensor::Of<float>({1, 1, 2}, {1, inf}), 1, 1);
  EXPECT_EQ(infinite.Item<float>(), inf);
  ExpectContains(ErrorOf([&] { ResizePicture(line, 0, 4); }), "cannot be resized to 4 x 0");
  ExpectContains(ErrorOf([&] { ResizePicture(line, 65500, 65500); }), "cannot be resized");
  ExpectContains(ErrorOf([&] { ResizePicture(line.Reshaped({1, 2}), 1, 1); }), "[C, H, W]");
  ExpectContains(ErrorOf([&] { ResizePicture(line.Cast(DType::kInt64), 1, 1); }), "uint8");
}

}  // namespace coracle::picture_test
