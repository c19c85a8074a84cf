#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/internal/file_handle.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/text_columns.h>
#include <coracle/framework/base/words.h>
#include <coracle/test/test_data.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>

namespace coracle::base_test {

namespace fs = std::filesystem;

size_t FilesIn(const std::string& directory) {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory)) ++n;
  return n;
}

template <class F>
std::string ErrorOf(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

TEST(Error, FirstLineThenDetails) {
  Error error(ErrorCode::kNotFound, "no such thing", "one\ntwo");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.message(), "no such thing");
  std::string what = error.what();
  EXPECT_EQ(what.substr(0, what.find('\n')), "no such thing");
  EXPECT_NE(what.find("\n  one\n"), std::string::npos) << what;
  EXPECT_NE(what.find("\n  two"), std::string::npos) << what;
  Error more = error.WithDetail("three").WithPrefix("m.pdmodel");
  EXPECT_EQ(more.message(), "m.pdmodel: no such thing");
  EXPECT_EQ(more.code(), ErrorCode::kNotFound);
  EXPECT_NE(std::string(more.what()).find("three"), std::string::npos);
}

TEST(Error, NamesCannotActOnATerminal) {
  const Error error(ErrorCode::kNotFound, "no \033[2J\n\u202e", "one\n\u009b\r two");
  EXPECT_STREQ(error.what(), "no \\x1b[2J\\x0a\\u202e\n  one\n  \\u009b\\x0d two");
  EXPECT_STREQ(error.WithDetail("x").what(),
               "no \\x1b[2J\\x0a\\u202e\n  one\n  \\u009b\\x0d two\n  x");
}

TEST(Error, InternalErrorsSayWhere) {
  std::string what = InternalError("impossible").what();
  EXPECT_NE(what.find("base_test.cc"), std::string::npos) << what;
}

TEST(File, WritesWholeFilesAndMakesDirectories) {
  TemporaryDirectory directory;
  std::string path = directory.File("a/b/c.bin");
  std::string contents("\0\n\xff", 3);
  WriteFileAtomic(path, contents);
  EXPECT_EQ(ReadFile(path), contents);
  WriteFileAtomic(path, "second");
  EXPECT_EQ(ReadFile(path), "second");
  EXPECT_EQ(FilesIn(directory.File("a/b")), 1u);  // no temporary file is left
}

TEST(File, FailuresLeaveTheOldFile) {
  TemporaryDirectory directory;
  std::string path = directory.File("d");
  fs::create_directories(path + "/inner");  // a directory stands where the file should
  EXPECT_THROW(WriteFileAtomic(path, "x"), Error);
  EXPECT_EQ(FilesIn(directory.path()), 1u);
  WriteFileAtomic(directory.File("f"), "x");
  EXPECT_THROW(WriteFileAtomic(directory.File("f/under"), "x"), Error);
  EXPECT_EQ(ReadFile(directory.File("f")), "x");
}

TEST(File, WritesThroughLinksAndKeepsModes) {
  TemporaryDirectory directory;
  std::string real = directory.File("real"), link = directory.File("link");
  WriteFileAtomic(real, "old");
  fs::permissions(real, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", link);
  WriteFileAtomic(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ReadFile(real), "new");
  EXPECT_EQ(fs::status(real).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  std::string longest = directory.File(std::string(255, 'n'));
  WriteFileAtomic(longest, "x");
  EXPECT_EQ(ReadFile(longest), "x");
}

// A rename would put a file in the place of the link for the whole machine.
TEST(File, OpenFilesAreWrittenInPlace) {
  TemporaryDirectory directory;
  std::string path = directory.File("f");
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  std::string name = "/dev/fd/" + std::to_string(fd);
  if (!fs::is_symlink(name)) GTEST_SKIP() << "no " << name;
  struct stat before = {}, after = {};
  ASSERT_EQ(::fstat(fd, &before), 0);
  WriteFileAtomic(name, "text");
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(ReadFile(path), "text");
  ::close(fd);
}

TEST(File, ErrorsNameTheFileThatWasAskedFor) {
  try {
    WriteFileAtomic("/proc/no_such.pb", "x");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "cannot write '/proc/no_such.pb': No such file or directory");
  }
}

TEST(File, ReadingRefusesWhatIsNoFileOrTooLarge) {
  TemporaryDirectory directory;
  WriteFileAtomic(directory.File("f"), "12345");
  try {
    ReadFile(directory.File("f"), 4);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(e.message().find(directory.File("f")), std::string::npos);
  }
  EXPECT_EQ(ReadFile(directory.File("f"), 5), "12345");
  EXPECT_THROW(ReadFile(directory.path()), Error);
  try {
    ReadFile(directory.File("absent"));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  }
}

TEST(File, OnlyRegularFilesAreRead) {
  TemporaryDirectory directory;
  const std::string pipe = directory.File("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("pipe", directory.File("link"));
  for (const std::string& path : {pipe, directory.File("link"), std::string("/dev/zero")}) {
    const std::string message = ErrorOf([&] { ReadFile(path); });
    EXPECT_NE(message.find("not a regular file"), std::string::npos) << message;
  }
  EXPECT_NE(ErrorOf([&] { WriteFileAtomic(pipe, "x"); }).find("a pipe without a reader"),
            std::string::npos);
  // A file that claims to be larger than memory.
  WriteFileAtomic(directory.File("sparse"), "x");
  fs::resize_file(directory.File("sparse"), uint64_t{1} << 42);
  EXPECT_NE(ErrorOf([&] { ReadFile(directory.File("sparse")); }).find("is larger than"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { ReadFile(std::string("a\0b", 3)); }).find("Invalid"), std::string::npos);
}

TEST(FileAccess, NothingUnlessAllowed) {
  TemporaryDirectory directory;
  EXPECT_NE(ErrorOf([&] { FileAccess().Check("x"); }).find("--allow_files"), std::string::npos);
  EXPECT_THROW(FileAccess().Write(directory.File("x"), "x", true), Error);
  EXPECT_THROW(FileAccess("").Read(directory.File("x"), 1), Error);
  EXPECT_EQ(FilesIn(directory.path()), 0u);
}

TEST(FileAccess, StaysBelowItsDirectory) {
  TemporaryDirectory directory;
  const std::string in = directory.File("in"), out = directory.File("out");
  fs::create_directories(in + "/sub");
  WriteFileAtomic(out + "/secret", "secret");
  fs::create_directory_symlink("../out", in + "/link");
  fs::create_directory_symlink("sub", in + "/sub_link");
  fs::create_symlink("../out/secret", in + "/file_link");
  fs::create_hard_link(out + "/secret", in + "/hard");
  ASSERT_EQ(::mkfifo((in + "/pipe").c_str(), 0600), 0);
  const FileAccess files(in);
  for (const std::string& path :
       {out + "/secret", in + "/hard", std::string("../out/secret"), std::string("sub/../../out/x"),
        std::string(".."), std::string("link/secret"), std::string("sub_link/x"),
        std::string("file_link"), std::string("sub"), std::string("sub/"), std::string(),
        std::string("."), std::string("pipe"), std::string("a\0b", 3)}) {
    EXPECT_NE(ErrorOf([&] { files.Read(path, 100); }), "") << path;
    EXPECT_NE(ErrorOf([&] { files.Write(path, "new", true); }), "") << path;
  }
  files.Write("hard", "new", true);  // takes the name, and leaves what else has that content
  EXPECT_EQ(ReadFile(out + "/secret"), "secret");
  EXPECT_EQ(FilesIn(out), 1u);
  files.Write("./a//b/c", "text", true);
  EXPECT_EQ(files.Read("a/b/c", 4), "text");
  EXPECT_NE(ErrorOf([&] { files.Read("a/b/c", 3); }).find("larger than"), std::string::npos);
  EXPECT_NE(ErrorOf([&] { files.Write("a/b/c", "more", false); }).find("exists"),
            std::string::npos);
  files.Write("a/b/d", "more", false);
  EXPECT_EQ(FilesIn(in + "/a/b"), 2u);  // no temporary file is left
}

// Somebody exchanges a directory for a link all the while.
TEST(FileAccess, HoldsAgainstRaces) {
  TemporaryDirectory directory;
  const std::string in = directory.File("in"), out = directory.File("out");
  fs::create_directories(in + "/sub");
  fs::create_directories(out);
  WriteFileAtomic(out + "/secret", "secret");
  fs::create_directory_symlink("../out", in + "/link");
  const auto swap = [&] {
    return ::renameat2(AT_FDCWD, (in + "/sub").c_str(), AT_FDCWD, (in + "/link").c_str(),
                       RENAME_EXCHANGE) == 0;
  };
  if (!swap()) GTEST_SKIP() << "the file system exchanges no files: " << std::strerror(errno);
  std::atomic<bool> done{false};
  std::atomic<int> swaps{0}, failures{0};
  std::thread exchange([&] {
    while (!done) ++(swap() ? swaps : failures);
  });
  const FileAccess files(in);
  // Until both have had their share, however the processors are given to them.
  for (int i = 0; i < 3000 || (swaps < 3000 && failures == 0); ++i) {
    EXPECT_NE(ErrorOf([&] { files.Read("sub/secret", 100); }), "");
    ErrorOf([&] { files.Write("sub/planted", "x", true); });
  }
  done = true;
  exchange.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(FilesIn(out), 1u);
}

TEST(Regex, LinearAndBounded) {
  const std::string text = std::string(1'000'000, 'a') + "b";
  EXPECT_FALSE(Regex("(a*)*c").MatchesAll(text));
  EXPECT_FALSE(Regex("(((a+)+)+)+c").MatchesPart(text));
  EXPECT_TRUE(Regex("a+b").MatchesAll(text));
  EXPECT_TRUE(Regex("ab$").MatchesPart(text));
  EXPECT_FALSE(Regex("ab").MatchesAll("xab"));
  EXPECT_TRUE(Regex("\\xff").MatchesAll("\xff"));  // names are bytes
  for (const std::string pattern :
       {"(a)\\1", "a{1,32767}", "((a{1,1000}){1,1000}){1,1000}", "(", "[", "*", "(?<x>a"})
    EXPECT_NE(ErrorOf([&] { Regex r(pattern); }).find("is not a regular expression: "),
              std::string::npos)
        << pattern;
  EXPECT_NE(ErrorOf([] { Regex r(std::string(1001, 'a')); }).find("at most 1000"),
            std::string::npos);
}

TEST(File, DirectoriesAppearWhole) {
  TemporaryDirectory directory;
  std::string target = directory.File("snapshot");
  WriteDirectoryAtomic(target, [&](const std::string& where) {
    EXPECT_FALSE(FileExists(target));
    WriteFileAtomic(where + "/x", "1");
  });
  EXPECT_EQ(ReadFile(target + "/x"), "1");
  auto failing = [&](const std::string& where) {
    WriteFileAtomic(where + "/x", "2");
    ThrowInvalid("no");
  };
  EXPECT_THROW(WriteDirectoryAtomic(target, failing), Error);
  EXPECT_EQ(ReadFile(target + "/x"), "1");
  EXPECT_EQ(FilesIn(directory.path()), 1u);
  WriteDirectoryAtomic(target,
                       [](const std::string& where) { WriteFileAtomic(where + "/y", "3"); });
  EXPECT_FALSE(FileExists(target + "/x"));
  EXPECT_EQ(FilesIn(directory.path()), 1u);
}

TEST(File, DirectoriesDisappearWholeAndWhatTheKilledLeftIsCleared) {
  const TemporaryDirectory directory;
  MakeDirectories(directory.File("d/sub"));
  WriteFileAtomic(directory.File("d/sub/f"), "x");
  RemoveDirectory(directory.File("d"));
  EXPECT_EQ(FilesIn(directory.path()), 0u);
  RemoveDirectory(directory.File("none"));
  // No process has this number: the largest that Linux gives is 2^22.
  MakeDirectories(directory.File(".coracle-99999999-0.tmp"));
  WriteFileAtomic(directory.File(".coracle-99999999-1.tmp"), "x");
  // This process has the number of the one that left it: in a container each start may be 1.
  const std::string own = ".coracle-" + std::to_string(::getpid());
  MakeDirectories(directory.File(own + "-0.tmp"));
  WriteFileAtomic(directory.File(own + "-0123456789abcdef-0.tmp"), "x");
  for (const char* other : {".coracle-x-0.tmp", ".coracle-99999999-0", ".coracle--1-0.tmp"})
    WriteFileAtomic(directory.File(other), "x");
  WriteDirectoryAtomic(directory.File("d"), [&](const std::string& where) {
    RemoveStaleTemporaries(directory.path());
    EXPECT_TRUE(FileExists(where));
  });
  EXPECT_EQ(FilesIn(directory.path()), 4u);
  RemoveStaleTemporaries(directory.File("none"));
}

// A temporary of another process with the same number is neither filled nor removed.
TEST(File, TemporaryNamesAreNew) {
  const TemporaryDirectory directory;
  const std::string foreign = ".coracle-" + std::to_string(::getpid()) + "-";
  for (int i = 0; i < 1000; ++i)
    WriteFileAtomic(directory.File(fmt::format("{}{}.tmp", foreign, i)), "old");
  WriteFileAtomic(directory.File("f"), "new");
  WriteDirectoryAtomic(directory.File("d"),
                       [](const std::string& where) { EXPECT_EQ(FilesIn(where), 0u); });
  FileAccess(directory.path()).Write("g", "new", true);
  EXPECT_EQ(FilesIn(directory.path()), 1003u);
  EXPECT_EQ(ReadFile(directory.File("f")), "new");
}

TEST(File, ATakenTemporaryNameIsLeftAlone) {
  const TemporaryDirectory directory;
  std::vector<std::string> tried;
  const Temporary made = CreateTemporary([&](const std::string& name) {
    tried.push_back(name);
    errno = EEXIST;
    return tried.size() < 3 ? -1 : 7;
  });
  EXPECT_EQ(made.result, 7);
  EXPECT_EQ(made.name, tried[2]);
  EXPECT_EQ(std::set<std::string>(tried.begin(), tried.end()).size(), 3u);
  int tries = 0;
  auto fails = [&tries](int error) {
    return [&tries, error](const std::string&) {
      ++tries;
      errno = error;
      return -1;
    };
  };
  EXPECT_EQ(CreateTemporary(fails(EACCES)).result, -1);
  EXPECT_EQ(tries, 1);
  EXPECT_EQ(CreateTemporary(fails(EEXIST)).result, -1);  // it ends
}

TEST(AppendFile, RefusesWhatIsNoFile) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.File("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(ErrorOf([&] { AppendFile(pipe, true); }).find("is not a regular file"),
            std::string::npos);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_NE(ErrorOf([&] { AppendFile(pipe, true); }).find("is not a regular file"),
            std::string::npos);
  ::close(reader);
}

TEST(AppendFile, KeepsOrBeginsAnew) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("log");
  { AppendFile(path, false).Append("one\n"); }
  {
    AppendFile file(path, true);
    file.Append("two\n");
    EXPECT_EQ(ReadFile(path), "one\ntwo\n");  // readable while it is open
  }
  { AppendFile(path, false).Append("three\n"); }
  EXPECT_EQ(ReadFile(path), "three\n");
  EXPECT_THROW(AppendFile(directory.File("none/log"), true), Error);
}

TEST(Text, Pieces) {
  EXPECT_EQ(Split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(Split("", ','), std::vector<std::string>{});
  for (const char* word : {"a", "", "b"}) EXPECT_TRUE(HasWord("a,,b", ',', word)) << word;
  for (const char* word : {"ab", ",", "a,"}) EXPECT_FALSE(HasWord("a,,b", ',', word)) << word;
  EXPECT_FALSE(HasWord("", ',', ""));
  EXPECT_EQ(Join({"a", "b"}, ", "), "a, b");
  EXPECT_EQ(Trim(" \t a b\n"), "a b");
  EXPECT_EQ(Quote("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(Quote(std::string(100, 'x'), 3), "'xxx...'");
  EXPECT_EQ(Quote("a\u00fc\u00fc", 4), "'a\u00fc...'");  // no half of a character
  EXPECT_EQ(Quote("\x80\x80\x80", 2), "'\\x80\\x80...'");
}

TEST(Text, Printable) {
  EXPECT_EQ(Printable("a\tb\n\u00fc \u4e2d \U0001f600"), "a\tb\n\u00fc \u4e2d \U0001f600");
  EXPECT_EQ(PrintableLine("a\tb\n"), "a\\x09b\\x0a");
  EXPECT_EQ(Printable(std::string("\0\033\r\x7f", 4)), "\\x00\\x1b\\x0d\\x7f");
  for (const char* hidden :
       {"\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180d", "\u2800", "\u3164",
        "\ufe00", "\ufe0f", "\uffa0", "\U0001d173", "\U0001d17a", "\U000e0100", "\U000e01ef"})
    EXPECT_EQ(Printable(hidden).find("\\"), 0u) << Printable(hidden);
  for (const char* shown : {"\u0350", "\u1100", "\u1161", "\u2801", "\uff21", "\U0001d100"})
    EXPECT_EQ(Printable(shown), shown);
  EXPECT_EQ(Printable("\u009b\u202e\u2066\u200b\ufeff"), "\\u009b\\u202e\\u2066\\u200b\\ufeff");
  EXPECT_EQ(Printable("\U000e0041"), "\\U000e0041");
  // No UTF-8: a byte alone, an overlong form, a surrogate, a character cut short.
  EXPECT_EQ(Printable("\x9b|\xc0\x80|\xed\xa0\x80|\xe4\xb8"),
            "\\x9b|\\xc0\\x80|\\xed\\xa0\\x80|\\xe4\\xb8");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = Printable(std::string(1, static_cast<char>(byte)) + "x");
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Text, NearestNames) {
  std::vector<std::string> names = {"num_filters", "filter_size", "stride"};
  EXPECT_EQ(NearestName("num_filter", names), "num_filters");
  EXPECT_EQ(NearestName("STRIDE", names), "stride");
  EXPECT_EQ(NearestName("zebra", names), "");
  EXPECT_EQ(DidYouMean("filtersize", names), "; did you mean filter_size?");
  EXPECT_EQ(NearestName(std::string(1000000, 'x'), names), "");
  EXPECT_EQ(NearestName("dmup", {"build", "dump"}), "dump");  // two letters swapped
  EXPECT_EQ(NearestName("acb", {"bca"}), "");
  EXPECT_EQ(NearestName("lay", {"name", "layer", "layers"}), "layer");  // a beginning
  EXPECT_EQ(NearestName("la", {"layer"}), "");
}

TEST(Text, Numbers) {
  int64_t i = 0;
  EXPECT_TRUE(ParseInt64("-9223372036854775808", &i));
  EXPECT_EQ(i, std::numeric_limits<int64_t>::min());
  for (const char* bad : {"", "1x", "9223372036854775808", " 1", "1.0"})
    EXPECT_FALSE(ParseInt64(bad, &i)) << bad;
  double d = 0;
  EXPECT_TRUE(ParseDouble("-1.5e3", &d));
  EXPECT_EQ(d, -1500);
  EXPECT_TRUE(ParseDouble("inf", &d));
  EXPECT_FALSE(ParseDouble("1,5", &d));
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanCount(2000000), "2.0M");
}

TEST(Logging, SinksTakeTheLines) {
  std::vector<std::string> lines;
  LogSink previous = SetLogSink([&](MessageLevel level, const std::string& line) {
    if (level == MessageLevel::kWarning) lines.push_back(line);
  });
  LogMessage(MessageLevel::kWarning, "careful");
  LogMessage(MessageLevel::kInfo, "hello");
  SetLogSink([&](MessageLevel, const std::string& line) {
    if (line == "outer") LogMessage(MessageLevel::kInfo, "inner");  // a sink may log
    lines.push_back(line);
  });
  LogMessage(MessageLevel::kInfo, "outer");
  SetLogSink(previous);
  EXPECT_EQ(lines, (std::vector<std::string>{"careful", "inner", "outer"}));
}

// Without a word of glog's about its own set-up, which a user of the library need not do.
TEST(Logging, LinesOfAProgramWithoutGlog) {
  testing::internal::CaptureStderr();
  LogMessage(MessageLevel::kWarning, "careful");
  LogMessage(MessageLevel::kError, "lost");
  LogMessage(MessageLevel::kInfo, "hello");
  LogVerbose(9, "not asked for");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "coracle: warning: careful\ncoracle: error: lost\ncoracle: hello\n");
}

// Pieces of any size, smaller and larger than what is read ahead.
TEST(FileReader, ReadsPieces) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("f");
  std::string contents;
  for (int i = 0; i < 100000; ++i) contents.push_back(static_cast<char>(i * 7 + i / 256));
  WriteFileAtomic(path, contents);
  for (const size_t piece : {1, 13, 4096, 16383, 16384, 16385, 50001, 100000}) {
    FileReader file(path);
    std::string read(contents.size(), '\0');
    // A small piece before each large one.
    for (size_t at = 0, i = 0; at < read.size(); ++i) {
      const size_t size = std::min(i % 2 == 0 ? size_t{3} : piece, read.size() - at);
      EXPECT_EQ(file.offset(), at);
      EXPECT_EQ(file.left(), read.size() - at);
      file.Read(read.data() + at, size);
      at += size;
    }
    EXPECT_TRUE(read == contents) << piece;
    EXPECT_EQ(file.left(), 0u);
    file.Read(read.data(), 0);
  }
}

TEST(FileReader, RefusesWhatIsNoFileAndNoticesThatItBecameShorter) {
  const TemporaryDirectory directory;
  EXPECT_THROW(FileReader(directory.File("absent")), Error);
  EXPECT_THROW(FileReader("/dev/zero"), Error);
  EXPECT_THROW(FileReader(directory.File(".")), Error);
  const std::string path = directory.File("f");
  for (const size_t size : {100, 100000}) {
    WriteFileAtomic(path, std::string(size, 'x'));
    FileReader file(path);
    ASSERT_EQ(::truncate(path.c_str(), 10), 0);
    std::string read(size, '\0');
    EXPECT_NE(ErrorOf([&] { file.Read(read.data(), size); }).find("ends early"), std::string::npos);
  }
}

// --- columns ---

// As protobuf counts: character by character.
size_t CountedOffset(const std::string& text, int line, int column) {
  size_t at = 0;
  for (; line > 0; --line) at = text.find('\n', at) + 1;
  for (int reached = 0; at < text.size() && text[at] != '\n' && reached < column; ++at)
    reached = text[at] == '\t' ? (reached / 8 + 1) * 8 : reached + 1;
  return at;
}

TEST(TextColumns, AreThoseOfProtobuf) {
  uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < round % 60; ++i) {
      state = state * 1664525u + 1013904223u;
      text += "ab\t\t\n "[(state >> 16) % 6];
    }
    const TextColumns columns(text);
    const auto lines = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
    ASSERT_EQ(columns.lines(), static_cast<size_t>(lines));
    for (int line = 0; line < lines; ++line) {
      for (int column = 0; column < 40; ++column) {
        const size_t offset = columns.OffsetOf(line, column);
        ASSERT_EQ(offset, CountedOffset(text, line, column)) << line << " " << column;
        ASSERT_EQ(columns.LineAt(offset), static_cast<size_t>(line));
      }
    }
    EXPECT_EQ(columns.OffsetOf(lines, 0), text.size());
    EXPECT_EQ(columns.OffsetOf(-1, 0), text.size());
  }
}

// A text of one line, whose last columns are looked up again and again.
TEST(TextColumns, LongLines) {
  const std::string text = std::string(1'000'000, 'x') + "\t" + std::string(1'000'000, 'y');
  const TextColumns columns(text);
  size_t sum = 0;
  for (int i = 0; i < 100'000; ++i) sum += columns.OffsetOf(0, 1'999'000 - i % 7);
  EXPECT_GT(sum, 0u);
  EXPECT_EQ(columns.OffsetOf(0, 1'000'008), 1'000'001u);
}

}  // namespace coracle::base_test
