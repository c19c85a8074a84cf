// Changes of files that fail halfway or cross file systems; and the width of texts on a terminal.

#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/utf8.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

namespace coracle::file_changes_test {

namespace fs = std::filesystem;

size_t FilesIn(const std::string& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), {}));
}

// An append that fails takes back what it has written, and touches nothing else: another process
// may have appended meanwhile.
TEST(File, FailedAppendsTakeBackTheirOwn) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("log");
  AppendFile file(path, true);
  file.Append("abc\n");
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the clock of files is coarse
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto error_below = [&](rlim_t bytes) {
    const rlimit low = {bytes, limit.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
    std::string error = ErrorOf([&] { file.Append("defg\n"); });
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    return error;
  };
  EXPECT_NE(error_below(4), "no error");  // no byte has room
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_TRUE(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
              before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
  EXPECT_NE(error_below(6), "no error");  // two have
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReadFile(path), "abc\n");
  file.Append("hi\n");
  EXPECT_EQ(ReadFile(path), "abc\nhi\n");
}

// --- files together ---

// The program of a model must not come before its parameters.
TEST(File, TheLastOfFilesComesAfterAllOthers) {
  for (int round = 0; round < 20; ++round) {
    const TemporaryDirectory directory;
    const std::string other = fmt::format("other{}", round);
    MakeDirectories(directory.File(other + "/full"));  // no file can take its place
    const auto fill = [&](const std::string& where) {
      WriteFileAtomic(where + "/last", "1");
      WriteFileAtomic(where + "/" + other, "2");
    };
    EXPECT_THROW(WriteFilesTogether(directory.path(), fill, "last"), Error);
    EXPECT_FALSE(FileExists(directory.File("last"))) << round;
    EXPECT_EQ(FilesIn(directory.path()), 1u);
  }
}

// A file of the directory may be a link to another file system, and it stays one.
TEST(File, FilesTogetherFollowLinks) {
  const TemporaryDirectory directory;
  const std::string other = fmt::format("/dev/shm/coracle_test_{}", ::getpid());
  try {
    WriteFileAtomic(other, "old");
  } catch (const Error&) {
    GTEST_SKIP() << "there is no second file system at /dev/shm";
  }
  struct stat here = {}, there = {};
  ASSERT_EQ(::stat(directory.path().c_str(), &here) | ::stat(other.c_str(), &there), 0);
  fs::create_symlink(other, directory.File("far"));
  WriteFileAtomic(directory.File("near"), "old");
  fs::create_symlink("near", directory.File("link"));
  std::string error = "skipped";
  if (here.st_dev != there.st_dev) {
    error = ErrorOf([&] {
      WriteFilesTogether(directory.path(), [](const std::string& where) {
        WriteFileAtomic(where + "/far", "new");
        WriteFileAtomic(where + "/link", "new");
        WriteFileAtomic(where + "/sub/own", "new");
      });
    });
  }
  const std::string far = ReadFile(other);
  fs::remove(other);
  if (error == "skipped") GTEST_SKIP() << "/dev/shm is no second file system";
  EXPECT_EQ(error, "no error");
  EXPECT_EQ(far, "new");
  EXPECT_EQ(ReadFile(directory.File("near")), "new");
  EXPECT_EQ(ReadFile(directory.File("sub/own")), "new");
  EXPECT_TRUE(fs::is_symlink(directory.File("far")) && fs::is_symlink(directory.File("link")));
  EXPECT_EQ(FilesIn(directory.path()), 4u);
}

TEST(Utf8, WidthOfTexts) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("abc"), 3u);
  EXPECT_EQ(DisplayWidth("\u00e9"), 1u);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1u);             // with a mark
  EXPECT_EQ(DisplayWidth("\u732b\uac00\uff21"), 6u);  // Chinese, Korean, fullwidth
  EXPECT_EQ(DisplayWidth("\U0001f44d"), 2u);
  EXPECT_EQ(DisplayWidth("\xff"), 1u);
  EXPECT_EQ(CutToWidth("\u00e9\u00e9\u00e9", 2), "\u00e9\u00e9");
  EXPECT_EQ(CutToWidth("e\u0301e", 1), "e\u0301");
  EXPECT_EQ(CutToWidth("a\u732bb", 2), "a");
  EXPECT_EQ(CutToWidth("abc", 9), "abc");
}

}  // namespace coracle::file_changes_test
