// Databases of Datum messages, and what becomes of images before they are fed.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/database.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#ifdef CORACLE_LEVELDB
#include <dirent.h>
#include <leveldb/db.h>
#endif
#ifdef CORACLE_LMDB
#include <lmdb.h>
#endif

#include <coracle/test/error_of.h>
#include <coracle/test/lmdb_file.h>
#include <coracle/test/test_data.h>

#ifdef CORACLE_LEVELDB
static thread_local bool proc_is_missing = false;

// In the place of the C library's, for this process.
extern "C" DIR* opendir(const char* path) {
  if (proc_is_missing && std::string_view(path).starts_with("/proc")) {
    errno = ENOENT;
    return nullptr;
  }
  const int file = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return file < 0 ? nullptr : ::fdopendir(file);
}
#endif

namespace coracle::image_database_test {

std::string DatumOf(int label, int channels, int height, int width) {
  proto::caffe::Datum datum;
  datum.set_channels(channels);
  datum.set_height(height);
  datum.set_width(width);
  datum.set_label(label);
  std::string bytes(static_cast<size_t>(channels * height * width), '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 7 + static_cast<size_t>(label)) % 256);
  datum.set_data(bytes);
  return datum.SerializeAsString();
}

void ExpectRows(const DataSource& source) {
  ASSERT_EQ(source.size(), 3);
  EXPECT_EQ(source.columns()[0].shape, (Shape{2, 30, 20}));
  std::vector<Tensor> out = {Tensor(DType::kFloat32, {2, 2, 30, 20}),
                             Tensor(DType::kInt64, {2, 1})};
  source.Get(std::vector<int64_t>{2, 0}, out);
  EXPECT_EQ(out[1].data<int64_t>()[0], 9);
  EXPECT_EQ(out[1].data<int64_t>()[1], 200);
  EXPECT_EQ(out[0].data<float>()[40], static_cast<float>((40 * 7 + 9) % 256));
  EXPECT_EQ(out[0].data<float>()[1200 + 1199], static_cast<float>((1199 * 7 + 200) % 256));
}

TEST(Lmdb, ReadsDatums) {
  TemporaryDirectory directory;
  const std::string file =
      MakeLmdb({DatumOf(200, 2, 30, 20), DatumOf(3, 2, 30, 20), DatumOf(9, 2, 30, 20)});
  WriteFileAtomic(directory.File("data.mdb"), file);
  const DataSourcePtr source = MakeDatumSource({.file = directory.path() + "/"});
  EXPECT_EQ(source->Describe(),
            fmt::format("lmdb '{}'", std::filesystem::path(directory.path()).filename().string()));
  ExpectRows(*source);
}

#ifdef CORACLE_LMDB
// Files that the library itself writes, with more than one leaf.
TEST(Lmdb, ReadsFilesOfTheLibrary) {
  TemporaryDirectory directory;
  MDB_env* env = nullptr;
  ASSERT_EQ(mdb_env_create(&env), 0);
  mdb_env_set_mapsize(env, size_t{1} << 28);
  ASSERT_EQ(mdb_env_open(env, directory.path().c_str(), 0, 0664), 0);
  MDB_txn* txn = nullptr;
  MDB_dbi dbi = 0;
  ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
  for (int i = 0; i < 5000; ++i) {
    std::string key = fmt::format("{:08}", i);
    std::string value = DatumOf(i % 251, 1, 1 + i % 9 * 40, 10);
    MDB_val k{key.size(), key.data()}, v{value.size(), value.data()};
    ASSERT_EQ(mdb_put(txn, dbi, &k, &v, 0), 0);
  }
  ASSERT_EQ(mdb_txn_commit(txn), 0);
  mdb_env_close(env);
  const std::unique_ptr<Database> file = OpenLmdb(directory.path());
  ASSERT_EQ(file->size(), 5000);
  for (int i = 0; i < 5000; ++i)
    EXPECT_EQ(file->value(i), DatumOf(i % 251, 1, 1 + i % 9 * 40, 10)) << i;
}
#endif

#ifdef CORACLE_LEVELDB
void MakeLevelDb(const std::string& path) {
  leveldb::Options options;
  options.create_if_missing = true;
  leveldb::DB* made = nullptr;
  ASSERT_TRUE(leveldb::DB::Open(options, path, &made).ok());
  const std::unique_ptr<leveldb::DB> database(made);
  int i = 0;
  for (const int label : {200, 3, 9})
    database->Put({}, fmt::format("{:08}", i++), DatumOf(label, 2, 30, 20));
}

// Names, kinds, times of change and contents of what is in a directory, not through links.
std::string Fingerprint(const std::string& directory) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat info;
    EXPECT_EQ(::lstat(entry.path().c_str(), &info), 0);
    std::string text = fmt::format("{} {} {}.{} ", info.st_ino, info.st_mode, info.st_mtim.tv_sec,
                                   info.st_mtim.tv_nsec);
    if (S_ISREG(info.st_mode)) text += ReadFile(entry.path().string());
    entries[entry.path().filename().string()] = text;
  }
  std::string all;
  for (const auto& [name, text] : entries) all += name + ": " + text + "\n";
  return all;
}

TEST(LevelDb, ReadsDatums) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  const std::string before = Fingerprint(path);
  const DatumOptions options = {DatumOptions::Format::kLevelDb, path};
  {
    const DataSourcePtr source = MakeDatumSource(options);
    EXPECT_EQ(source->Describe(), "leveldb 'images_leveldb'");
    ExpectRows(*source);
    ExpectRows(*MakeDatumSource(options));  // two of one process
  }
  EXPECT_EQ(Fingerprint(path), before);
}

// More tables of level 0 than the library leaves unchanged: it would rewrite all data.
TEST(LevelDb, ManyTablesStayAsTheyAre) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  constexpr int kRows = 300;
  for (int part = 0; part < 9; ++part) {
    leveldb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = 1 << 16;
    leveldb::DB* made = nullptr;
    ASSERT_TRUE(leveldb::DB::Open(options, path, &made).ok());
    const std::unique_ptr<leveldb::DB> database(made);
    for (int i = part; i < kRows; i += 9)
      database->Put({}, fmt::format("{:08}", i), DatumOf(i % 251, 1, 30, 40));
  }
  const std::string before = Fingerprint(path);
  {
    const std::unique_ptr<Database> database = OpenLevelDb(path);
    ASSERT_EQ(database->size(), kRows);
    for (int round = 0; round < 3; ++round)
      for (int i = 0; i < kRows; ++i)
        ASSERT_EQ(database->value(i), DatumOf(i % 251, 1, 30, 40)) << i;
  }
  EXPECT_EQ(Fingerprint(path), before);
}

// Links at the names that the library reads.
TEST(LevelDb, LinksAreNotFollowed) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb"), victim = directory.File("victim");
  WriteFileAtomic(victim, "precious");
  for (const char* name :
       {"MANIFEST-000004", "000005.ldb", "000005.sst", "000006.log", "LOCK", "CURRENT"}) {
    std::filesystem::remove_all(path);
    MakeLevelDb(path);
    std::filesystem::remove(path + "/" + name);
    std::filesystem::create_symlink("../victim", path + "/" + name);
    const std::string before = Fingerprint(path);
    EXPECT_EQ(ErrorOf([&] { OpenLevelDb(path); }),
              fmt::format("'{}': LevelDB: IO error: {}: is a symbolic link, which is not followed; "
                          "replace it by a copy of its file",
                          path, name));
    EXPECT_EQ(Fingerprint(path), before);
  }
  EXPECT_EQ(ReadFile(victim), "precious");
}

// The library does not read what is there: names that it only writes, and files of others.
TEST(LevelDb, OtherFilesAreHarmless) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb"), victim = directory.File("victim");
  WriteFileAtomic(victim, "precious");
  MakeLevelDb(path);
  for (const char* name : {"LOG", "LOG.old", "000007.dbtmp", "2024-notes", "7", "LOGBOOK",
                           "MANIFEST-000004.old", "MANIFEST-", ".log", "000008.ldb.bak"}) {
    std::filesystem::remove(path + "/" + name);
    std::filesystem::create_symlink("../victim", path + "/" + name);
  }
  std::filesystem::create_directory(path + "/2024");
  const std::string before = Fingerprint(path);
  EXPECT_EQ(ErrorOf([&] { EXPECT_EQ(OpenLevelDb(path)->size(), 3); }), "no error");
  EXPECT_EQ(Fingerprint(path), before);
  EXPECT_EQ(ReadFile(victim), "precious");
}

// Errors say what the system refused. (Root may read everything.)
TEST(LevelDb, ErrorsNameTheCause) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod((path + "/CURRENT").c_str(), 0), 0);
    EXPECT_NE(ErrorOf([&] { OpenLevelDb(path); }).find("CURRENT: Permission denied"),
              std::string::npos);
    ASSERT_EQ(::chmod((path + "/CURRENT").c_str(), 0600), 0);
  }
  // Not a missing file, though nothing can be opened.
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string error = ErrorOf([&] { OpenLevelDb(path); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(error.find("Too many open files"), std::string::npos) << error;
}

// A pipe would be waited for.
TEST(LevelDb, OnlyRegularFilesAreRead) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  ASSERT_EQ(::mkfifo((path + "/000009.ldb").c_str(), 0600), 0);
  EXPECT_NE(ErrorOf([&] { OpenLevelDb(path); }).find("000009.ldb: is not a regular file"),
            std::string::npos);
}

// The child holds the lock as the library does.
TEST(LevelDb, AnotherProcessHasItOpen) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  int to_parent[2], to_child[2];
  ASSERT_EQ(::pipe(to_parent) + ::pipe(to_child), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    const int file = ::open((path + "/LOCK").c_str(), O_RDWR);
    const bool locked = ::fcntl(file, F_SETLK, &lock) == 0;
    ::_exit(::write(to_parent[1], &byte, 1) == 1 && ::read(to_child[0], &byte, 1) == 1 && locked
                ? 0
                : 1);
  }
  ASSERT_EQ(::read(to_parent[0], &byte, 1), 1);
  EXPECT_EQ(ErrorOf([&] { OpenLevelDb(path); }),
            fmt::format("'{}': another process has it open, and may write to it; wait for it, or "
                        "make a copy",
                        path));
  ASSERT_EQ(::write(to_child[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ErrorOf([&] { OpenLevelDb(path); }), "no error");
  for (const int end : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) ::close(end);
}

// Whether another process could take the lock now.
bool IsLockFree(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    const int file = ::open((path + "/LOCK").c_str(), O_RDWR);
    ::_exit(::fcntl(file, F_SETLK, &lock) == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0;
}

// A writer of this process keeps its lock, and other processes stay out.
TEST(LevelDb, ThisProcessHasItOpen) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  leveldb::DB* opened = nullptr;
  ASSERT_TRUE(leveldb::DB::Open({}, path, &opened).ok());
  std::unique_ptr<leveldb::DB> writer(opened);
  ASSERT_FALSE(IsLockFree(path));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ErrorOf([&] { OpenLevelDb(path); }),
              fmt::format("'{}': this process has it open, and may write to it; wait for it, or "
                          "make a copy",
                          path));
    EXPECT_FALSE(IsLockFree(path));
  }
  writer.reset();
  EXPECT_TRUE(IsLockFree(path));
  EXPECT_EQ(ErrorOf([&] { OpenLevelDb(path); }), "no error");
  EXPECT_TRUE(IsLockFree(path));
}

// Without /proc no reader may close the file of the lock.
TEST(LevelDb, ThisProcessHasItOpenWithoutProc) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  leveldb::DB* opened = nullptr;
  ASSERT_TRUE(leveldb::DB::Open({}, path, &opened).ok());
  const std::unique_ptr<leveldb::DB> writer(opened);
  proc_is_missing = true;
  const std::string error = ErrorOf([&] { OpenLevelDb(path); });
  proc_is_missing = false;
  EXPECT_NE(error.find("cannot tell without /proc/self/fd"), std::string::npos) << error;
  EXPECT_FALSE(IsLockFree(path));
}

// Readers ask for the lock at the same time, and none takes another for a writer.
TEST(LevelDb, ManyReadersOfOneProcess) {
  TemporaryDirectory directory;
  const std::string path = directory.File("images_leveldb");
  MakeLevelDb(path);
  std::atomic<int> failures{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        failures += ErrorOf([&] { OpenLevelDb(path); }) != "no error";
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failures, 0);
}

TEST(LevelDb, DamagedFilesAreRefused) {
  TemporaryDirectory directory;
  WriteFileAtomic(directory.File("CURRENT"), "MANIFEST-000001\n");
  EXPECT_NE(ErrorOf([&] { OpenLevelDb(directory.path()); }).find(": LevelDB: "), std::string::npos);
  WriteFileAtomic(directory.File("MANIFEST-000001"), "nonsense");
  EXPECT_NE(ErrorOf([&] { OpenLevelDb(directory.path()); }).find(": LevelDB: "), std::string::npos);
}
#endif

TEST(LevelDb, OneThatIsNotThereIsNotMade) {
  TemporaryDirectory directory;
  EXPECT_NE(ErrorOf([&] { OpenLevelDb(directory.File("none")); }).find("there is no LevelDB"),
            std::string::npos);
  EXPECT_FALSE(FileExists(directory.File("none")));
}

TEST(Lmdb, DamagedFilesAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.File("data.mdb");
  const std::string good = MakeLmdb({DatumOf(1, 1, 4, 4), DatumOf(2, 1, 40, 40)});
  for (const size_t size :
       {size_t{1}, size_t{100}, size_t{5000}, size_t{9000}, good.size() - 4096}) {
    WriteFileAtomic(path, good.substr(0, size));
    EXPECT_NE(ErrorOf([&] { OpenLmdb(path); }), "no error") << size;
  }
  uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {  // any bytes at any place
    std::string bad = good;
    for (int k = 0; k < 4; ++k) {
      state = state * 1664525u + 1013904223u;
      const size_t at = state % 3 == 0 ? 8192 + (state >> 8) % 64 : (state >> 8) % bad.size();
      bad[at] = static_cast<char>(state >> 20);
    }
    WriteFileAtomic(path, bad);
    try {
      const DataSourcePtr source = MakeDatumSource({.file = path});
      std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, 16}), Tensor(DType::kInt64, {1, 1})};
      if (source->columns()[0].shape.numel() == 16) source->Get(std::vector<int64_t>{0}, out);
    } catch (const InternalError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error&) {
    }
  }
  EXPECT_NE(ErrorOf([&] { OpenLmdb(directory.File("none")); }).find("no LMDB file"),
            std::string::npos);
}

// --- transforms ---

DataSourcePtr Images(int64_t rows, int64_t h, int64_t w) {
  Tensor data(DType::kFloat32, {rows, 1, h, w});
  for (int64_t i = 0; i < data.numel(); ++i)
    data.data<float>()[i] = static_cast<float>(i % (h * w));
  return MakeMemorySource({{"data", data, {1, h, w}}}, "images");
}

TEST(Transform, MeanScaleAndTheMiddle) {
  const DataSourcePtr source =
      MakeTransformed(Images(2, 4, 5), {.scale = 0.5f, .mean_value = {3}, .crop_size = 2});
  EXPECT_EQ(source->columns()[0].shape, (Shape{1, 2, 2}));
  std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, 1, 2, 2})};
  source->Get(std::vector<int64_t>{1}, out);
  // rows 1 and 2, columns 1 and 2 of 5
  const float want[] = {(6 - 3) / 2.f, (7 - 3) / 2.f, (11 - 3) / 2.f, (12 - 3) / 2.f};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[0].data<float>()[i], want[i]);
}

TEST(Transform, MeanImageOfCaffe) {
  TemporaryDirectory directory;
  proto::caffe::BlobProto blob;
  for (int i = 0; i < 6; ++i) blob.add_data(static_cast<float>(i * i));
  WriteFileAtomic(directory.File("mean.binaryproto"), blob.SerializeAsString());
  const DataSourcePtr source =
      MakeTransformed(Images(1, 2, 3), {.mean_file = directory.File("mean.binaryproto")});
  std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, 1, 2, 3})};
  source->Get(std::vector<int64_t>{0}, out);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out[0].data<float>()[i], static_cast<float>(i - i * i));
  EXPECT_NE(ErrorOf([&] {
              MakeTransformed(Images(1, 3, 3), {.mean_file = directory.File("mean.binaryproto")});
            }).find("a mean of 6 values for images of 9"),
            std::string::npos);
}

TEST(Transform, CropsAndMirrorsAreDrawnForEachEpoch) {
  const TransformOptions options = {.crop_size = 3, .random_crop = true, .mirror = true, .seed = 5};
  const DataSourcePtr source = MakeTransformed(Images(400, 5, 5), options);
  std::vector<int64_t> rows(400);
  for (int64_t i = 0; i < 400; ++i) rows[static_cast<size_t>(i)] = i;
  const auto epoch = [&](int64_t number) {
    std::vector<Tensor> out = {Tensor(DType::kFloat32, {400, 1, 3, 3})};
    source->GetInEpoch(number, rows, out);
    return out[0];
  };
  const Tensor one = epoch(1), again = epoch(1), two = epoch(2);
  int differ = 0, mirrored = 0;
  std::vector<int> corners(25, 0);
  for (int i = 0; i < 400; ++i) {
    const float* v = one.data<float>() + i * 9;
    EXPECT_EQ(std::memcmp(v, again.data<float>() + i * 9, 36), 0);
    differ += std::memcmp(v, two.data<float>() + i * 9, 36) != 0;
    const bool mirror = v[0] > v[2];
    mirrored += mirror;
    ++corners[static_cast<size_t>(mirror ? v[2] : v[0])];
  }
  EXPECT_GT(differ, 350);
  EXPECT_NEAR(mirrored, 200, 50);
  int used = 0;
  for (const int count : corners) used += count > 15;
  EXPECT_EQ(used, 9);  // 3 by 3 places
}
}  // namespace coracle::image_database_test
