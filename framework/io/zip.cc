#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/zip.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>

namespace coracle::inline internal {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22;
constexpr size_t kEnd64Size = 56, kLocator64Size = 20, kMaxComment = 65535;
constexpr uint32_t kIn64 = 0xffffffff;  // marks a value that is in the ZIP64 extra field
constexpr uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8, kExtra64 = 1;
// No deflate stream expands by more than 1032 (258 bytes from two bits).
constexpr uint64_t kMaxExpansion = 1032;

struct Entry {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t compressed = 0, size = 0, offset = 0;
};

// Called before the first file is extracted, since an archive may expand to a thousand times
// its size.
void RequireMemory(uint64_t bytes, const std::string& source) {
  const auto what = [&] { return fmt::format("{}: what it holds", PrintableLine(source)); };
  if (const auto& limits = ResourceLimits::Current()) {
    limits->Reserve(bytes, what);
    limits->Release(bytes);
  } else if (const uint64_t most = DefaultMemoryLimit(); bytes > most) {
    throw OutOfMemory(fmt::format("{} takes {}, and {} are the most that fit", what(),
                                  HumanBytes(bytes), HumanBytes(most)));
  }
}

// Expands a deflate stream of `size` bytes, or of any other number if that is wrong; nullopt if the
// stream is damaged.
std::optional<std::string> Inflate(std::string_view data, uint64_t size) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  std::string contents;
  int result = Z_OK;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  size_t fed = 0, made = 0;
  constexpr size_t kStep = size_t{1} << 20;
  while (result == Z_OK) {
    if (stream.avail_in == 0 && fed < data.size()) {
      stream.avail_in = static_cast<uInt>(std::min(data.size() - fed, kStep));
      fed += stream.avail_in;
    }
    // Leaves room for one byte more than claimed, so that a longer stream is noticed.
    if (made == contents.size())
      contents.resize(std::min<uint64_t>(size + 1, std::max(made * 2, kStep)));
    if (made == contents.size()) break;
    stream.next_out = reinterpret_cast<Bytef*>(contents.data() + made);
    auto room = static_cast<uInt>(std::min(contents.size() - made, kStep));
    stream.avail_out = room;
    result = inflate(&stream, Z_NO_FLUSH);
    made += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  contents.resize(made);
  return contents;
}

class ZipReader {
 public:
  ZipReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  void Run(const std::function<void(ZipFile)>& use) {
    FindDirectory();
    std::vector<Entry> entries;
    uint64_t total = 0, extracted = 0;
    for (uint64_t i = 0; i < count_; ++i) {
      entries.push_back(ReadEntry());
      // Files that share bytes would let a small archive claim any size.
      total += entries.back().compressed;
      if (total > bytes_.size()) Fail("its files overlap");
      extracted += CheckedSize(entries.back());
    }
    RequireMemory(extracted, source_);
    for (const Entry& entry : entries) use({entry.name, Extract(entry)});
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: not a readable zip archive: {}", source_, what));
  }
  template <class T>
  T Read(uint64_t at) const {
    if (at > bytes_.size() || sizeof(T) > bytes_.size() - at) Fail("it is cut off");
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  std::string_view BytesAt(uint64_t at, uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) Fail("it is cut off");
    return bytes_.substr(at, size);
  }

  uint64_t CheckedSize(const Entry& entry) const {
    if (entry.size > entry.compressed * kMaxExpansion + 64)
      Fail(Quote(entry.name) + " claims more than it can hold");
    return entry.size;
  }

  void FindDirectory() {
    if (bytes_.size() < kEndSize) Fail("it is too short");
    uint64_t first = bytes_.size() - std::min(bytes_.size(), kEndSize + kMaxComment);
    uint64_t end = bytes_.size() - kEndSize;
    while (Read<uint32_t>(end) != kEnd) {
      if (end == first) Fail("it has no directory");
      --end;
    }
    count_ = Read<uint16_t>(end + 10);
    at_ = Read<uint32_t>(end + 16);
    if (end >= kLocator64Size && Read<uint32_t>(end - kLocator64Size) == kLocator64) {
      auto end64 = Read<uint64_t>(end - kLocator64Size + 8);
      if (BytesAt(end64, kEnd64Size).empty() || Read<uint32_t>(end64) != kEnd64)
        Fail("its ZIP64 directory is damaged");
      count_ = Read<uint64_t>(end64 + 32);
      at_ = Read<uint64_t>(end64 + 48);
    }
    if (count_ > bytes_.size() / kCentralSize) Fail("it claims more files than it can hold");
  }

  Entry ReadEntry() {
    BytesAt(at_, kCentralSize);
    if (Read<uint32_t>(at_) != kCentral) Fail("its directory is damaged");
    Entry entry;
    entry.flags = Read<uint16_t>(at_ + 8);
    entry.method = Read<uint16_t>(at_ + 10);
    entry.crc = Read<uint32_t>(at_ + 16);
    entry.compressed = Read<uint32_t>(at_ + 20);
    entry.size = Read<uint32_t>(at_ + 24);
    auto name = Read<uint16_t>(at_ + 28);
    auto extra = Read<uint16_t>(at_ + 30);
    auto comment = Read<uint16_t>(at_ + 32);
    entry.offset = Read<uint32_t>(at_ + 42);
    entry.name = BytesAt(at_ + kCentralSize, name);
    Read64(BytesAt(at_ + kCentralSize + name, extra), &entry);
    at_ += kCentralSize + name + extra + comment;
    return entry;
  }

  // Reads 64-bit values, in this order, for the fields that are all ones in the entry itself.
  void Read64(std::string_view extra, Entry* entry) const {
    while (extra.size() >= 4) {
      uint16_t id, size;
      std::memcpy(&id, extra.data(), 2);
      std::memcpy(&size, extra.data() + 2, 2);
      std::string_view values = extra.substr(4, size);
      if (id == kExtra64) {
        for (uint64_t* value : {&entry->size, &entry->compressed, &entry->offset}) {
          if (*value != kIn64) continue;
          if (values.size() < 8) Fail("a ZIP64 entry is damaged");
          std::memcpy(value, values.data(), 8);
          values.remove_prefix(8);
        }
      }
      extra.remove_prefix(std::min<size_t>(extra.size(), size_t{4} + size));
    }
  }

  std::string Extract(const Entry& entry) const {
    std::string what = Quote(entry.name);
    if (entry.flags & kEncrypted) Fail(what + " is encrypted");
    BytesAt(entry.offset, kLocalSize);
    if (Read<uint32_t>(entry.offset) != kLocal) Fail(what + " is not where the directory says");
    uint64_t start = entry.offset + kLocalSize + Read<uint16_t>(entry.offset + 26) +
                     Read<uint16_t>(entry.offset + 28);
    std::string_view data = BytesAt(start, entry.compressed);
    std::string contents;
    if (entry.method == kStored)
      contents = data;
    else if (entry.method == kDeflated)
      contents = InflateOrFail(data, entry.size, what);
    else
      Fail(fmt::format("{} is compressed by the unknown method {}", what, entry.method));
    if (contents.size() != entry.size) Fail(what + " has another size than the directory says");
    if (crc32_z(0, reinterpret_cast<const Bytef*>(contents.data()), contents.size()) != entry.crc)
      Fail(what + " has another checksum than the directory says");
    return contents;
  }

  std::string InflateOrFail(std::string_view data, uint64_t size, const std::string& what) const {
    std::optional<std::string> contents = Inflate(data, size);
    if (!contents) Fail(what + " is damaged");
    return std::move(*contents);
  }

  std::string_view bytes_;
  const std::string& source_;
  uint64_t at_ = 0, count_ = 0;
};

template <class T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string Deflate(const std::string& contents) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::bad_alloc();
  }
  std::string out(deflateBound(&stream, contents.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Appends the fields that a local header and a directory entry have in common.
void AppendFacts(const Entry& entry, std::string* out) {
  Append(uint16_t{20}, out);  // version needed
  Append(uint16_t{0}, out);   // flags
  Append(entry.method, out);
  Append(uint16_t{0}, out);     // time
  Append(uint16_t{0x21}, out);  // date: 1980-01-01, so that equal contents give equal bytes
  Append(entry.crc, out);
  Append(static_cast<uint32_t>(entry.compressed), out);
  Append(static_cast<uint32_t>(entry.size), out);
  Append(static_cast<uint16_t>(entry.name.size()), out);
  Append(uint16_t{0}, out);  // extra
}

void RequireSmall(uint64_t size) {
  if (size >= kIn64)
    throw Error(ErrorCode::kResourceExhausted,
                "a zip archive is limited to 4 GiB; write .npy files");
}

}  // namespace

void ReadZip(std::string_view bytes, const std::string& source,
             const std::function<void(ZipFile file)>& use) {
  ZipReader(bytes, source).Run(use);
}

std::string WriteZip(const std::vector<ZipFile>& files, bool compressed) {
  std::string out, directory;
  if (files.size() >= 65535) ThrowInvalid("a zip archive is limited to 65534 files");
  for (const ZipFile& file : files) {
    if (file.name.size() > 65535) ThrowInvalid("a name in a zip archive is limited to 65535 bytes");
    RequireSmall(file.contents.size());
    std::string data = compressed ? Deflate(file.contents) : file.contents;
    Entry entry{file.name, 0,           compressed ? kDeflated : kStored,
                0,         data.size(), file.contents.size(),
                out.size()};
    entry.crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(file.contents.data()), file.contents.size()));
    Append(kLocal, &out);
    AppendFacts(entry, &out);
    out += entry.name;
    out += data;
    RequireSmall(out.size());
    Append(kCentral, &directory);
    Append(uint16_t{20}, &directory);  // version made by
    AppendFacts(entry, &directory);
    directory.append(8, '\0');  // comment size, disk, internal and external attributes
    directory.append(2, '\0');
    Append(static_cast<uint32_t>(entry.offset), &directory);
    directory += entry.name;
  }
  auto start = static_cast<uint32_t>(out.size());
  RequireSmall(out.size() + directory.size());
  out += directory;
  Append(kEnd, &out);
  Append(uint32_t{0}, &out);  // disks
  Append(static_cast<uint16_t>(files.size()), &out);
  Append(static_cast<uint16_t>(files.size()), &out);
  Append(static_cast<uint32_t>(directory.size()), &out);
  Append(start, &out);
  Append(uint16_t{0}, &out);  // comment
  return out;
}

}  // namespace coracle::inline internal
