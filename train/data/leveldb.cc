#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/database.h>
#include <fmt/format.h>

#ifdef CORACLE_LEVELDB
#include <coracle/framework/base/resource_limits.h>
#include <coracle/train/data/leveldb_env.h>
#include <leveldb/db.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <vector>
#endif

namespace coracle::inline internal {

#ifdef CORACLE_LEVELDB
namespace {

[[noreturn]] void Fail(const std::string& path, const leveldb::Status& status) {
  const std::string text = PrintableLine(status.ToString());
  if (status.IsIOError() && text.find("IO error: lock ") == 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: {} process has it open, and may write to it; wait for it, or "
                            "make a copy",
                            Quote(path, 300),
                            text.find("held by this process") != text.npos ? "this" : "another"),
                text);
  }
  throw Error(status.IsCorruption() ? ErrorCode::kDataLoss : ErrorCode::kIo,
              fmt::format("{}: LevelDB: {}", Quote(path, 300), text));
}

constexpr int kMostOpenFiles = 256;
constexpr uint64_t kCopiesOfLogs = 2;  // recovery sorts a copy, then writes a table

// An open database. The library throws bad_alloc for a block of an absurd size.
class OpenDb {
 public:
  explicit OpenDb(const std::string& path) : path_(path), env_(std::make_unique<ReadOnlyEnv>()) {
    uint64_t log_bytes = 0;
    leveldb::Status status = env_->OpenDirectory(path, &log_bytes);
    if (!status.ok()) Fail(path, status);
    Reserve(kCopiesOfLogs * log_bytes);
    leveldb::Options options;
    options.env = env_.get();
    options.paranoid_checks = true;
    options.max_open_files = kMostOpenFiles;
    leveldb::DB* database = nullptr;
    Call([&] { return leveldb::DB::Open(options, path, &database); });
    database_.reset(database);
  }
  // Leaves a damaged database open: closing it could make the library abort the process.
  ~OpenDb() {
    if (damaged_) {
      static_cast<void>(database_.release());
      static_cast<void>(env_.release());
    } else {
      env_->FinishWork();
      database_.reset();
    }
    if (limits_) limits_->Release(reserved_);
  }
  OpenDb(const OpenDb&) = delete;
  OpenDb& operator=(const OpenDb&) = delete;

  std::vector<std::string> Keys() {
    leveldb::ReadOptions options = Checked();
    options.fill_cache = false;
    std::vector<std::string> keys;
    Call([&] {
      const std::unique_ptr<leveldb::Iterator> row(database_->NewIterator(options));
      for (row->SeekToFirst(); row->Valid(); row->Next()) keys.push_back(row->key().ToString());
      return row->status();
    });
    return keys;
  }
  std::string Get(const std::string& key) {
    std::string value;
    Call([&] { return database_->Get(Checked(), key, &value); });
    return value;
  }

 private:
  static leveldb::ReadOptions Checked() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }
  void Reserve(uint64_t bytes) {
    if (!(limits_ = ResourceLimits::Current())) return;
    limits_->Reserve(bytes, [&] {
      return fmt::format("{}: LevelDB copies its log to memory", Quote(path_, 300));
    });
    reserved_ = bytes;
  }
  template <class F>
  void Call(F&& f) {
    leveldb::Status status;
    try {
      status = f();
    } catch (const std::bad_alloc&) {
      damaged_ = true;
      throw OutOfMemory(fmt::format("{}: a block of LevelDB is larger than the memory that is left",
                                    Quote(path_, 300)));
    }
    if (status.ok()) return;
    damaged_ = true;
    Fail(path_, status);
  }

  std::string path_;
  std::unique_ptr<ReadOnlyEnv> env_;
  std::unique_ptr<leveldb::DB> database_;
  bool damaged_ = false;
  std::shared_ptr<ResourceLimits> limits_;
  uint64_t reserved_ = 0;
};

class LevelDb : public Database {
 public:
  explicit LevelDb(const std::string& path) : database_(path), keys_(database_.Keys()) {}

  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  std::string value(int64_t i) const override {
    return database_.Get(keys_[static_cast<size_t>(i)]);
  }

 private:
  mutable OpenDb database_;
  std::vector<std::string> keys_;
};

}  // namespace
#endif

std::unique_ptr<Database> OpenLevelDb(const std::string& path) {
  // The library would create a database that does not exist.
  if (!FileExists(path + "/CURRENT"))
    throw Error(ErrorCode::kNotFound, fmt::format("there is no LevelDB {}", Quote(path, 300)));
#ifdef CORACLE_LEVELDB
  return std::make_unique<LevelDb>(path);
#else
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: this build does not read LevelDB: make an LMDB of it, or build where "
                  "libleveldb-dev is installed",
                  Quote(path, 300)));
#endif
}

}  // namespace coracle::inline internal
