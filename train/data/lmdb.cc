// Reads LMDB's data file, version 1, as written on 64-bit machines (struct MDB_page, MDB_meta and
// MDB_node in liblmdb/mdb.c). Pages 0 and 1 are meta pages; the one with the later transaction is
// valid and gives the root of a B+ tree. Values too large for a page are on overflow pages. LMDB's
// own library is not used, because it trusts the file.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/database.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint64_t kHeader = 16;     // bytes before the contents of a page
constexpr uint64_t kNodeHeader = 8;  // bytes before a node's key
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint16_t kBranch = 1, kLeaf = 2, kOverflow = 4, kMeta = 8;
constexpr uint16_t kBigData = 1, kSubTree = 2, kDuplicates = 4;  // flags of nodes
constexpr int kMaxDepth = 32;
constexpr uint64_t kMaxValue = uint64_t{1} << 30;

// Reads at any offset. The file is not mapped: if it becomes shorter, that is an error and not
// a signal.
class File {
 public:
  explicit File(const std::string& given)
      : path_(IsDirectory(given) ? given + "/data.mdb" : given), file_(Open(path_)) {
    struct stat status = {};
    if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) ThrowNoFile(path_);
    size_ = static_cast<uint64_t>(status.st_size);
  }

  uint64_t size() const { return size_; }

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}: not an LMDB file, or a damaged one",
                                                  PrintableLine(path_), what));
  }

  std::string Read(uint64_t at, uint64_t size) const {
    if (at > size_ || size > size_ - at) Fail("it is cut off");
    std::string bytes(size, '\0');
    for (uint64_t done = 0; done < size;) {
      const ssize_t got =
          ::pread(file_.get(), bytes.data() + done, size - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) Fail("it cannot be read any more");
      done += static_cast<uint64_t>(got);
    }
    return bytes;
  }

 private:
  [[noreturn]] static void ThrowNoFile(const std::string& path) {
    throw Error(ErrorCode::kNotFound, fmt::format("there is no LMDB file {}", Quote(path, 300)));
  }

  static FileHandle Open(const std::string& path) {
    if (!FileExists(path)) ThrowNoFile(path);
    return FileHandle(path, kReadFlags, "open", path);
  }

  std::string path_;
  FileHandle file_;
  uint64_t size_ = 0;
};

struct Place {
  uint64_t at, size;
};

// Finds the values by visiting all pages of the tree.
class Tree {
 public:
  Tree(const File& file, std::vector<Place>* values) : file_(file), values_(values) {}

  void Read() {
    if (file_.size() < kHeader + 136) file_.Fail("it has no meta page");
    const std::string first = file_.Read(0, kHeader + 136);
    page_size_ = Field<uint32_t>(first, kHeader + 24);
    const bool power =
        page_size_ >= 256 && page_size_ <= 65536 && (page_size_ & (page_size_ - 1)) == 0;
    if (!IsMeta(first) || !power) file_.Fail("it does not begin as an LMDB file of version 1 does");
    std::string meta = first;
    if (file_.size() >= 2 * page_size_) {
      const std::string second = file_.Read(page_size_, kHeader + 136);
      if (!IsMeta(second)) file_.Fail("its meta pages differ");
      if (Transaction(second) > Transaction(first)) meta = second;
    }
    const auto root = Field<uint64_t>(meta, kHeader + 112);
    if (Field<uint16_t>(meta, kHeader + 76) & kDuplicates)
      file_.Fail("it has several values for a key");
    if (root != kNoPage) ReadPage(root, 0);
  }

 private:
  template <class T>
  static T Field(const std::string& bytes, uint64_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
  }

  static bool IsMeta(const std::string& page) {
    return Field<uint32_t>(page, kHeader) == kMagic && Field<uint32_t>(page, kHeader + 4) == 1;
  }
  static uint64_t Transaction(const std::string& meta) {
    return Field<uint64_t>(meta, kHeader + 128);
  }

  uint64_t OffsetOf(uint64_t page) const {
    if (page >= file_.size() / page_size_) file_.Fail(fmt::format("there is no page {}", page));
    return page * page_size_;
  }

  [[noreturn]] void FailAt(uint64_t page) const {
    file_.Fail(fmt::format("page {} is damaged", page));
  }

  void ReadPage(uint64_t number, int depth) {
    if (depth > kMaxDepth) file_.Fail("its tree is too deep");
    // More visits than pages mean that a page is visited twice, and the walk would not end.
    if (++pages_ > file_.size() / page_size_) file_.Fail("its pages form a ring");
    const std::string page = file_.Read(OffsetOf(number), page_size_);
    const auto flags = Field<uint16_t>(page, 10), lower = Field<uint16_t>(page, 12);
    const bool branch = flags & kBranch;
    if ((flags & (kOverflow | kMeta)) || branch == bool(flags & kLeaf) || lower < kHeader ||
        lower > page_size_)
      FailAt(number);
    for (uint64_t i = kHeader; i + 2 <= lower; i += 2) {
      const uint64_t node = Field<uint16_t>(page, i);
      if (node + kNodeHeader > page_size_) FailAt(number);
      const uint64_t low = Field<uint16_t>(page, node), high = Field<uint16_t>(page, node + 2);
      const uint64_t node_flags = Field<uint16_t>(page, node + 4);
      if (branch) {
        ReadPage(low | high << 16 | node_flags << 32, depth + 1);
      } else {
        ReadValue(number, page, node, low | high << 16);
      }
    }
  }

  void ReadValue(uint64_t number, const std::string& page, uint64_t node, uint64_t size) {
    const auto flags = Field<uint16_t>(page, node + 4);
    const uint64_t at = node + kNodeHeader + Field<uint16_t>(page, node + 6);  // after the key
    if (at > page_size_) FailAt(number);
    if (flags & (kSubTree | kDuplicates))
      file_.Fail(fmt::format("page {} has another database", number));
    if (size > kMaxValue) file_.Fail(fmt::format("page {} has a value of {} bytes", number, size));
    if (!(flags & kBigData)) {
      if (size > page_size_ - at) FailAt(number);
      values_->push_back({number * page_size_ + at, size});
      return;
    }
    if (sizeof(uint64_t) > page_size_ - at) FailAt(number);
    const uint64_t far = OffsetOf(Field<uint64_t>(page, at)) + kHeader;
    if (size > file_.size() - far) file_.Fail(fmt::format("a value of page {} is cut off", number));
    values_->push_back({far, size});
  }

  const File& file_;
  std::vector<Place>* values_;
  uint64_t page_size_ = 0, pages_ = 0;
};

class Lmdb : public Database {
 public:
  explicit Lmdb(const std::string& path) : file_(path) { Tree(file_, &values_).Read(); }

  int64_t size() const override { return static_cast<int64_t>(values_.size()); }
  std::string value(int64_t i) const override {
    const Place& place = values_[static_cast<size_t>(i)];
    return file_.Read(place.at, place.size);
  }

 private:
  File file_;
  std::vector<Place> values_;
};

}  // namespace

std::unique_ptr<Database> OpenLmdb(const std::string& path) { return std::make_unique<Lmdb>(path); }

}  // namespace coracle::inline internal
