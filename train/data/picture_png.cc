#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/picture_formats.h>
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace coracle::inline internal {
namespace {

// libpng reports errors by longjmp. Functions between its setjmp and the call have no variables
// with destructors.
class PngDecoder {
 public:
  PngDecoder(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {
    png_ =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, Fail, Ignore, this, Allocate, Free);
    if (png_) info_ = png_create_info_struct(png_);
    if (info_) return;
    png_destroy_read_struct(&png_, nullptr, nullptr);
    ThrowNoMemory();
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  void Decode(PictureRowSink& sink) {
    Run(&PngDecoder::ReadHeader);
    CheckPictureSize(source_, png_get_image_height(png_, info_), png_get_image_width(png_, info_));
    CheckPacked();
    const bool interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    Run(&PngDecoder::SetTransforms);
    PictureHead head;
    head.height = static_cast<int64_t>(png_get_image_height(png_, info_));
    head.width = static_cast<int64_t>(png_get_image_width(png_, info_));
    head.channels = static_cast<int64_t>(png_get_channels(png_, info_));
    const auto row_bytes = static_cast<size_t>(png_get_rowbytes(png_, info_));
    if (static_cast<int64_t>(row_bytes) != head.width * head.channels ||
        png_get_bit_depth(png_, info_) != 8)
      ThrowDamagedPicture(source_, "libpng does not make bytes of this PNG");
    head.kind = interlaced ? "an interlaced PNG" : "a PNG";
    const auto rows = static_cast<size_t>(head.height);
    if (interlaced) head.held_bytes = row_bytes * rows;
    sink.Begin(head);
    pixels_.resize(interlaced ? row_bytes * rows : row_bytes);
    rows_.push_back(pixels_.data());
    if (interlaced) {
      for (size_t y = 1; y < rows; ++y) rows_.push_back(pixels_.data() + y * row_bytes);
      Run(&PngDecoder::ReadImage);
      for (const png_bytep row : rows_) sink.Row(row);
    }
    for (size_t y = 0; y < rows && !interlaced; ++y) {
      Run(&PngDecoder::ReadRow);
      sink.Row(rows_[0]);
    }
    Run(&PngDecoder::ReadEnd);
  }

 private:
  void Run(void (PngDecoder::*step)()) {
    if (Succeeds(step)) return;
    CheckPictureTime();
    if (no_memory_) ThrowNoMemory();
    ThrowDamagedPicture(source_, fmt::format("damaged PNG ({})", what_));
  }
  [[noreturn]] void ThrowNoMemory() const {
    throw OutOfMemory(source_ + ": the system cannot provide memory to read this PNG");
  }
  bool Succeeds(void (PngDecoder::*step)()) {
    if (setjmp(png_jmpbuf(png_))) return false;
    (this->*step)();
    return true;
  }

  void ReadHeader() {
    // Larger sizes are read here, so that CheckPictureSize can name them.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, png_alloc_size_t{8} << 20);
    png_set_chunk_cache_max(png_, 128);
    png_set_read_fn(png_, this, ReadBytes);
    png_read_info(png_, info_);
  }

  // Deflate packs at most 1032 to 1, so a header that claims more is wrong.
  void CheckPacked() const {
    const uint64_t bits = uint64_t{png_get_image_width(png_, info_)} *
                          png_get_channels(png_, info_) * png_get_bit_depth(png_, info_);
    const uint64_t unpacked = (bits / 8 + 1) * png_get_image_height(png_, info_);
    if (unpacked / 1032 <= bytes_.size() + 1024) return;
    ThrowDamagedPicture(source_, fmt::format("damaged PNG: {} x {} pixels cannot be packed into {} "
                                             "bytes",
                                             png_get_image_width(png_, info_),
                                             png_get_image_height(png_, info_), bytes_.size()));
  }

  void SetTransforms() {
    const int type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    if (png_get_valid(png_, info_, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png_);
    png_set_scale_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void ReadImage() { png_read_image(png_, rows_.data()); }
  void ReadRow() { png_read_row(png_, rows_[0], nullptr); }
  // Fails if the file is cut off after the pixels.
  void ReadEnd() { png_read_end(png_, nullptr); }

  static void ReadBytes(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (IsPictureTimeOver()) png_error(png, "its time is over");
    if (count > self->bytes_.size() - self->at_) png_error(png, "the file is cut off");
    std::memcpy(to, self->bytes_.data() + self->at_, count);
    self->at_ += count;
  }
  [[noreturn]] static void Fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::strncpy(self->what_, message, sizeof(self->what_) - 1);
    png_longjmp(png, 1);
  }
  static void Ignore(png_structp, png_const_charp) {}
  static png_voidp Allocate(png_structp png, png_alloc_size_t bytes) {
    void* memory = std::malloc(bytes);
    if (!memory) static_cast<PngDecoder*>(png_get_mem_ptr(png))->no_memory_ = true;
    return memory;
  }
  static void Free(png_structp, png_voidp memory) { std::free(memory); }

  std::string_view bytes_;
  const std::string& source_;
  size_t at_ = 0;
  bool no_memory_ = false;
  char what_[200] = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<uint8_t> pixels_;  // one row or, of an interlaced picture, all rows
  std::vector<png_bytep> rows_;
};

}  // namespace

void DecodePng(std::string_view bytes, const std::string& source, PictureRowSink& sink) {
  PngDecoder(bytes, source).Decode(sink);
}

}  // namespace coracle::inline internal
