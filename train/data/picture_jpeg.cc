#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/picture_formats.h>
#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <vector>
// These follow <cstdio>, which they need.
#include <jerror.h>
#include <jpeglib.h>

namespace coracle::inline internal {
namespace {

constexpr int kMaxScans = 500;  // a picture needs at most some dozens; each costs time

// libjpeg calls `exit` for errors unless its error manager jumps. Functions between setjmp and the
// call have no variables with destructors.
class JpegDecoder {
 public:
  JpegDecoder(std::string_view bytes, const std::string& source, bool grey)
      : bytes_(bytes), source_(source), grey_(grey) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = Fail;
    errors_.emit_message = Warn;
    errors_.output_message = Ignore;
    jpeg_.client_data = this;
    progress_.progress_monitor = CheckProgress;
    Run(&JpegDecoder::Create);
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  void Decode(PictureRowSink& sink) {
    Run(&JpegDecoder::ReadHeader);
    CheckPictureSize(source_, jpeg_.image_height, jpeg_.image_width);
    const bool grey_file = jpeg_.jpeg_color_space == JCS_GRAYSCALE;
    if (jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK)
      ThrowInvalid(source_ + ": a JPEG in CMYK colours; convert it to RGB");
    if (!grey_file && jpeg_.num_components != 3)
      ThrowInvalid(fmt::format("{}: a JPEG of {} colour components; 1 and 3 are read", source_,
                               jpeg_.num_components));
    CheckPacked();
    jpeg_.out_color_space = grey_ || grey_file ? JCS_GRAYSCALE : JCS_RGB;
    PictureHead head;
    head.height = jpeg_.image_height, head.width = jpeg_.image_width;
    head.channels = jpeg_.out_color_space == JCS_GRAYSCALE ? 1 : 3;
    const bool whole = jpeg_has_multiple_scans(&jpeg_) != 0;
    head.kind = whole ? "a progressive JPEG" : "a JPEG";
    if (whole) head.held_bytes = CoefficientBytes();
    sink.Begin(head);
    row_.resize(static_cast<size_t>(head.width * head.channels));
    Run(&JpegDecoder::Start);
    for (int64_t y = 0; y < head.height; ++y) {
      Run(&JpegDecoder::ReadRow);
      sink.Row(row_.data());
    }
    Run(&JpegDecoder::Finish);
  }

 private:
  void Run(void (JpegDecoder::*step)()) {
    if (Succeeds(step)) return;
    CheckPictureTime();
    if (no_memory_)
      throw OutOfMemory(source_ + ": the system cannot provide memory to read this JPEG");
    ThrowDamagedPicture(source_, fmt::format("damaged JPEG ({})", what_));
  }
  bool Succeeds(void (JpegDecoder::*step)()) {
    if (setjmp(jump_)) return false;
    (this->*step)();
    return true;
  }

  void Create() { jpeg_create_decompress(&jpeg_); }

  void ReadHeader() {
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes_.data()),
                 static_cast<unsigned long>(bytes_.size()));
    jpeg_.progress = &progress_;
    jpeg_read_header(&jpeg_, TRUE);
  }

  // Each block of 8 x 8 pixels of the finest component takes at least one bit in Huffman's code.
  void CheckPacked() const {
    const uint64_t pixels = uint64_t{jpeg_.image_height} * jpeg_.image_width;
    if (jpeg_.arith_code || pixels / 512 <= bytes_.size()) return;
    ThrowDamagedPicture(source_, fmt::format("damaged JPEG: {} x {} pixels cannot be packed into "
                                             "{} bytes",
                                             jpeg_.image_width, jpeg_.image_height, bytes_.size()));
  }

  // libjpeg keeps all coefficients, of 2 bytes, of a picture that comes in several scans.
  uint64_t CoefficientBytes() const {
    uint64_t blocks = 0;
    for (int i = 0; i < jpeg_.num_components; ++i) {
      const jpeg_component_info& component = jpeg_.comp_info[i];
      const auto wide = uint64_t{component.width_in_blocks} +
                        static_cast<uint64_t>(component.h_samp_factor);  // padded to whole units
      const auto high =
          uint64_t{component.height_in_blocks} + static_cast<uint64_t>(component.v_samp_factor);
      blocks += wide * high;
    }
    return blocks * sizeof(JBLOCK);
  }

  void Start() { jpeg_start_decompress(&jpeg_); }
  void ReadRow() {
    JSAMPROW row = row_.data();
    jpeg_read_scanlines(&jpeg_, &row, 1);
  }
  // Fails if the file is cut off after the pixels.
  void Finish() { jpeg_finish_decompress(&jpeg_); }

  [[noreturn]] static void Fail(j_common_ptr jpeg) {
    auto* self = static_cast<JpegDecoder*>(jpeg->client_data);
    self->no_memory_ = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    self->Jump(message);
  }
  // libjpeg only warns of damaged and missing data, and makes up pixels.
  static void Warn(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    const int code = jpeg->err->msg_code;
    if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
    Fail(jpeg);
  }
  static void Ignore(j_common_ptr) {}
  static void CheckProgress(j_common_ptr jpeg) {
    auto* self = static_cast<JpegDecoder*>(jpeg->client_data);
    if (IsPictureTimeOver()) self->Jump("its time is over");
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kMaxScans)
      self->Jump("more than 500 scans");
  }
  [[noreturn]] void Jump(const char* message) {
    std::snprintf(what_, sizeof(what_), "%s", message);
    std::longjmp(jump_, 1);
  }

  std::string_view bytes_;
  const std::string& source_;
  bool grey_, no_memory_ = false;
  std::vector<uint8_t> row_;
  char what_[JMSG_LENGTH_MAX] = {};
  std::jmp_buf jump_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct jpeg_ = {};
};

}  // namespace

void DecodeJpeg(std::string_view bytes, const std::string& source, bool grey,
                PictureRowSink& sink) {
  JpegDecoder(bytes, source, grey).Decode(sink);
}

}  // namespace coracle::inline internal
