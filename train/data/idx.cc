#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>

namespace coracle {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 33;  // limit of an unpacked file

[[noreturn]] void ThrowDamaged(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", source, what));
}

uint32_t BigEndian32(const char* p) {
  auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

struct IdxHeader {
  DType dtype = DType::kUInt8;
  Shape shape;
  size_t bytes = 0;    // size of the header
  uint64_t total = 0;  // size of the file
};

DType IdxType(unsigned char code, const std::string& source) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      ThrowDamaged(source, fmt::format("unknown idx element type 0x{:02x} at byte 2", code));
  }
}

// Parses the header of an idx file. `bytes` is the file or its beginning.
IdxHeader ParseHeader(std::string_view bytes, const std::string& source) {
  if (bytes.size() < 4)
    ThrowDamaged(source, fmt::format("{} bytes are not an idx file", bytes.size()));
  if (bytes[0] != 0 || bytes[1] != 0) {
    ThrowDamaged(source, fmt::format("not an idx file: it begins with 0x{:02x} 0x{:02x}, not 0 0",
                                     static_cast<unsigned char>(bytes[0]),
                                     static_cast<unsigned char>(bytes[1])));
  }
  IdxHeader header;
  header.dtype = IdxType(static_cast<unsigned char>(bytes[2]), source);
  auto rank = static_cast<size_t>(static_cast<unsigned char>(bytes[3]));
  if (rank == 0 || rank >= static_cast<size_t>(Shape::kMaxRank))
    ThrowDamaged(source,
                 fmt::format("idx rank must be 1 to {}, got {}", Shape::kMaxRank - 1, rank));
  header.bytes = 4 + 4 * rank;
  if (bytes.size() < header.bytes)
    ThrowDamaged(source, fmt::format("cut off in the idx header: {} bytes", bytes.size()));
  unsigned __int128 total = SizeOf(header.dtype);
  for (size_t i = 0; i < rank; ++i) {
    uint32_t dim = BigEndian32(bytes.data() + 4 + 4 * i);
    header.shape.Append(dim);
    total = std::min<unsigned __int128>(total * dim, ~uint64_t{0} >> 1);
  }
  header.total = header.bytes + static_cast<uint64_t>(total);
  if (header.total > kMaxBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: idx shape {} needs more than {}", source, header.shape.ToString(),
                            HumanBytes(kMaxBytes)));
  }
  return header;
}

// zlib's gzip reader over bytes in memory.
class Inflater {
 public:
  Inflater(std::string_view packed, const std::string& source) : source_(source), packed_(packed) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK)
      throw Error(ErrorCode::kResourceExhausted, source + ": no memory to unpack");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Appends to `out` until it has `size` bytes or the data ends. `out` grows only with the bytes
  // that have been unpacked.
  void FillTo(uint64_t size, std::string* out) {
    constexpr size_t kChunk = size_t{1} << 20;
    while (out->size() < size && !ended_) {
      size_t before = out->size();
      size_t want = std::min<uint64_t>(kChunk, size - before);
      out->resize(before + want);
      stream_.next_out = reinterpret_cast<Bytef*>(out->data() + before);
      stream_.avail_out = static_cast<uInt>(want);
      Step();
      out->resize(before + want - stream_.avail_out);
    }
  }

 private:
  void Step() {
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) {
        size_t some = std::min<size_t>(packed_.size() - taken_, size_t{1} << 30);
        if (some == 0) ThrowDamaged(source_, "gzip data is cut off");
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed_.data() + taken_));
        stream_.avail_in = static_cast<uInt>(some);
        taken_ += some;
      }
      int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        ended_ = true;
        if (stream_.avail_in > 0 || taken_ < packed_.size())
          ThrowDamaged(source_, "bytes follow the end of the gzip data");
      } else if (code != Z_OK) {
        ThrowDamaged(source_, fmt::format("damaged gzip data ({})",
                                          stream_.msg ? stream_.msg : "cannot unpack"));
      }
    }
  }

  std::string source_;
  std::string_view packed_;
  size_t taken_ = 0;
  bool ended_ = false;
  z_stream stream_{};
};

std::string UnpackIdx(std::string_view packed, const std::string& source) {
  Inflater inflater(packed, source);
  std::string bytes;
  inflater.FillTo(4 + 4 * Shape::kMaxRank, &bytes);
  IdxHeader header = ParseHeader(bytes, source);
  // Deflate packs at most 1032 to 1, so a header that claims more is wrong.
  if (header.total / 1032 > packed.size() + 1024)
    ThrowDamaged(source, fmt::format("idx shape {} claims more than {} packed bytes can hold",
                                     header.shape.ToString(), packed.size()));
  inflater.FillTo(header.total + 1, &bytes);  // one byte more, to detect a longer file
  return bytes;
}

template <class Word>
void SwapBytes(void* data, int64_t n) {
  auto* p = static_cast<unsigned char*>(data);
  for (int64_t i = 0; i < n; ++i, p += sizeof(Word)) std::reverse(p, p + sizeof(Word));
}

std::string FindIdxFile(const std::string& path) {
  if (FileExists(path)) return path;
  std::string other = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path + ".gz";
  return FileExists(other) ? other : path;
}

MemoryColumn ImageColumn(const IdxOptions& options) {
  Tensor data = ReadIdx(FindIdxFile(options.images));
  MemoryColumn column;
  column.name = "image";
  for (int i = 1; i < data.shape().rank(); ++i) {
    if (i == 1 && data.shape().rank() == 3) column.shape.Append(1);
    column.shape.Append(data.shape()[i]);
  }
  if (data.shape().rank() == 1) column.shape.Append(1);
  column.mean = options.mean;
  column.scale = options.scale.value_or(data.dtype() == DType::kUInt8 ? 1.0f / 255.0f : 1.0f);
  column.scaled = data.dtype() == DType::kUInt8;
  if (!column.scaled) {
    data = data.Cast(DType::kFloat32);
    for (float& x : data.span<float>()) x = (x - column.mean) * column.scale;
  }
  column.rows = std::move(data);
  return column;
}

MemoryColumn LabelColumn(const IdxOptions& options) {
  std::string path = FindIdxFile(options.labels);
  Tensor data = ReadIdx(path);
  if (data.shape().rank() != 1 || !IsInteger(data.dtype())) {
    ThrowInvalid(
        fmt::format("{}: labels must be integers of rank 1, got {}", path, data.ToString()));
  }
  return {"label", data.Cast(DType::kInt64), {1}};
}

}  // namespace

Tensor ParseIdx(std::string_view bytes, const std::string& source) {
  IdxHeader header = ParseHeader(bytes, source);
  if (bytes.size() != header.total) {
    ThrowDamaged(source, fmt::format("idx shape {} of {} needs {} bytes, the file has {}{}",
                                     header.shape.ToString(), ToString(header.dtype), header.total,
                                     bytes.size() > header.total ? "at least " : "", bytes.size()));
  }
  Tensor tensor(header.dtype, header.shape);
  if (tensor.nbytes() > 0) std::memcpy(tensor.raw(), bytes.data() + header.bytes, tensor.nbytes());
  if constexpr (std::endian::native == std::endian::little) {
    size_t size = SizeOf(header.dtype);
    if (size == 2) SwapBytes<uint16_t>(tensor.raw(), tensor.numel());
    if (size == 4) SwapBytes<uint32_t>(tensor.raw(), tensor.numel());
    if (size == 8) SwapBytes<uint64_t>(tensor.raw(), tensor.numel());
  }
  return tensor;
}

Tensor ReadIdx(const std::string& path) {
  std::string bytes = ReadFile(path, kMaxBytes);
  bool packed = bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  return ParseIdx(packed ? UnpackIdx(bytes, path) : std::move(bytes), path);
}

DataSourcePtr MakeIdxSource(const IdxOptions& options) {
  return MakeMemorySource(
      {ImageColumn(options), LabelColumn(options)},
      fmt::format("idx {}", Quote(std::filesystem::path(options.images).filename().string(), 300)));
}

}  // namespace coracle
