// Files under temporary names, and the signal handler that removes them.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/temporaries.h>
#include <coracle/test/test_data.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

// While it is set, the calls below raise a signal and fail.
static thread_local bool signal_comes = false;

static int RaiseAndFail() {
  std::raise(SIGTERM);
  errno = EACCES;
  return -1;
}

// In the place of the C library's, for this process.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (signal_comes) return RaiseAndFail();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int renameat2(int in, const char* from, int there, const char* to,
                         unsigned flags) noexcept {
  if (signal_comes) return RaiseAndFail();
  return static_cast<int>(::syscall(SYS_renameat2, in, from, there, to, flags));
}
extern "C" int linkat(int in, const char* from, int there, const char* to, int flags) noexcept {
  if (signal_comes) return RaiseAndFail();
  return static_cast<int>(::syscall(SYS_linkat, in, from, there, to, flags));
}

namespace coracle::temporaries_test {

namespace fs = std::filesystem;

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Makes an empty file of that name, and notes it.
int MakeNoted(NotedTemporary& noted, const std::string& path) {
  return noted.Create(AT_FDCWD, path, [&] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
    return fd;
  });
}

void RemoveAndEnd(int) {
  RemoveNotedTemporaries();
  ::_exit(7);
}

// Runs f in a process that a signal ends as the command does.
template <class F>
void ExpectEndedBySignal(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGTERM, RemoveAndEnd);
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Temporaries, ASignalLeavesNone) {
  TemporaryDirectory directory;
  WriteFileAtomic(directory.File("old"), "as before");
  ExpectEndedBySignal([&] {
    WriteFileInPieces(directory.File("old"), [&](const WritePieceFn& write) {
      write("half of ");
      std::raise(SIGTERM);
    });
  });
  ExpectEndedBySignal([&] {
    WriteDirectoryAtomic(directory.File("new"), [&](const std::string& temporary) {
      for (int i = 0; i < 200; ++i)
        WriteFileAtomic(temporary + "/deep/er/" + std::to_string(i), "x");
      fs::create_symlink(directory.File("old"), temporary + "/deep/link");
      std::raise(SIGTERM);
    });
  });
  EXPECT_EQ(NamesIn(directory.path()), std::vector<std::string>{"old"});
  EXPECT_EQ(ReadFile(directory.File("old")), "as before");
}

// The handler must not remove a file of another process at the path.
TEST(Temporaries, NotedOnlyOnceMade) {
  TemporaryDirectory directory;
  const std::string path = directory.File("theirs");
  WriteFileAtomic(path, "precious");
  NotedTemporary noted;
  EXPECT_LT(MakeNoted(noted, path), 0);
  EXPECT_EQ(errno, EEXIST);
  RemoveNotedTemporaries();
  EXPECT_EQ(ReadFile(path), "precious");
  EXPECT_TRUE(noted.Withdraw());
}

// A signal between the two would leave the file.
TEST(Temporaries, NoSignalBetweenMakingAndNoting) {
  TemporaryDirectory directory;
  ExpectEndedBySignal([&] {
    NotedTemporary noted;
    noted.Create(AT_FDCWD, directory.File("made"), [&] {
      WriteFileAtomic(directory.File("made"), "x");
      return std::raise(SIGTERM);
    });
  });
  EXPECT_TRUE(NamesIn(directory.path()).empty());
}

// It is handled as soon as the thread may, before the writer has removed the file.
TEST(Temporaries, ASignalWhilePublishingFails) {
  TemporaryDirectory directory;
  WriteFileAtomic(directory.File("there"), "as before");
  WriteFileAtomic(directory.File("tree/old"), "as before");
  const std::function<void()> writes[] = {
      [&] { WriteFileAtomic(directory.File("there"), "x"); },
      [&] { FileAccess(directory.path()).Write("new", "x", false); },
      [&] {
        WriteDirectoryAtomic(directory.File("tree"), [](const std::string& temporary) {
          signal_comes = false;
          WriteFileAtomic(temporary + "/new", "x");
          signal_comes = true;
        });
      },
  };
  for (const auto& write : writes) {
    ExpectEndedBySignal([&] {
      signal_comes = true;
      write();
    });
    EXPECT_EQ(NamesIn(directory.path()), (std::vector<std::string>{"there", "tree"}));
  }
  EXPECT_EQ(ReadFile(directory.File("there")), "as before");
  EXPECT_EQ(NamesIn(directory.File("tree")), std::vector<std::string>{"old"});
}

TEST(Temporaries, WithdrawnOnesStay) {
  TemporaryDirectory directory;
  NotedTemporary noted;
  ASSERT_GE(MakeNoted(noted, directory.File("t")), 0);
  EXPECT_TRUE(noted.Withdraw());
  RemoveNotedTemporaries();
  EXPECT_TRUE(FileExists(directory.File("t")));
  // The note moves on to another path.
  ASSERT_GE(MakeNoted(noted, directory.File("first")), 0);
  ASSERT_GE(MakeNoted(noted, directory.File("second")), 0);
  RemoveNotedTemporaries();
  EXPECT_EQ(NamesIn(directory.path()), (std::vector<std::string>{"first", "t"}));
}

// The writer learns of it, and the slot serves again.
TEST(Temporaries, OnesThatAHandlerRemoved) {
  TemporaryDirectory directory;
  for (int i = 0; i < 100; ++i) {
    NotedTemporary noted;
    ASSERT_GE(MakeNoted(noted, directory.File("t")), 0);
    RemoveNotedTemporaries();
    ASSERT_FALSE(FileExists(directory.File("t"))) << i;
    // A name that the handler has removed may be another's by now.
    WriteFileAtomic(directory.File("t"), "another's");
    RemoveNotedTemporaries();
    ASSERT_TRUE(FileExists(directory.File("t"))) << i;
    fs::remove(directory.File("t"));
    if (i % 2) {
      ASSERT_FALSE(noted.Withdraw());
    }
    EXPECT_TRUE(i % 2 == 0 || noted.Withdraw());
  }
}

TEST(Temporaries, WritersReportThatTheirFileIsGone) {
  TemporaryDirectory directory;
  const auto code_of = [](const std::function<void()>& write) {
    try {
      write();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a signal"), std::string::npos) << error.what();
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of([&] {
              WriteFileInPieces(directory.File("file"), [](const WritePieceFn& write) {
                write("half");
                RemoveNotedTemporaries();
              });
            }),
            ErrorCode::kIo);
  WriteFileAtomic(directory.File("directory/old"), "as before");
  EXPECT_THROW(WriteDirectoryAtomic(directory.File("directory"),
                                    [](const std::string& temporary) {
                                      WriteFileAtomic(temporary + "/new", "x");
                                      RemoveNotedTemporaries();
                                    }),
               Error);
  EXPECT_EQ(NamesIn(directory.path()), std::vector<std::string>{"directory"});
  EXPECT_EQ(NamesIn(directory.File("directory")), std::vector<std::string>{"old"});
}

// More at once than there are slots, and longer paths than the system takes, are not noted.
TEST(Temporaries, WithoutRoom) {
  TemporaryDirectory directory;
  {
    std::deque<NotedTemporary> many(40);
    for (size_t i = 0; i < many.size(); ++i)
      ASSERT_GE(MakeNoted(many[i], directory.File(std::to_string(i))), 0);
    RemoveNotedTemporaries();
    EXPECT_EQ(NamesIn(directory.path()).size(), 40u - 32u);
    for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ(many[i].Withdraw(), i >= 32) << i;
  }
  NotedTemporary noted;
  constexpr size_t kMost = PATH_MAX;
  for (const size_t size : {kMost - 1, kMost, kMost + 1, 100 * kMost}) {
    noted.Note(AT_FDCWD, std::string(size, 'x'));
    RemoveNotedTemporaries();
  }
  EXPECT_TRUE(noted.Withdraw());
  EXPECT_THROW(WriteFileAtomic(directory.File(std::string(PATH_MAX, 'x')), "x"), Error);
  ASSERT_GE(MakeNoted(noted, directory.File("last")), 0);
  RemoveNotedTemporaries();
  EXPECT_FALSE(FileExists(directory.File("last")));
}

// Handlers of two threads against writers: a file is whole or not there, and its writer knows.
TEST(Temporaries, HandlersWhileThreadsWrite) {
  TemporaryDirectory directory;
  const std::string contents(5000, 'x');
  std::atomic<int> writing{3}, wrong{0}, removed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        bool written = true;
        try {
          if (t == 0)
            FileAccess(directory.path()).Write(name, contents, true);
          else
            WriteFileAtomic(directory.File(name), contents);
        } catch (const Error&) {
          written = false;
          ++removed;
        }
        wrong += FileExists(directory.File(name)) != written;
        if (written) wrong += ReadFile(directory.File(name)) != contents;
      }
      --writing;
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (writing > 0) {
        RemoveNotedTemporaries();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(static_cast<int>(NamesIn(directory.path()).size()), 600 - removed);
}

// Whichever handler is done first ends the process.
TEST(Temporaries, HandlersWaitForEachOther) {
  TemporaryDirectory directory;
  const std::string path = directory.File("tree");
  NotedTemporary noted;
  ASSERT_GE(noted.Create(AT_FDCWD, path, [&] { return ::mkdir(path.c_str(), 0700); }), 0);
  for (int i = 0; i < 3000; ++i)
    ::close(::open((path + "/" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0600));
  std::atomic<int> ready{0}, left{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      RemoveNotedTemporaries();
      left += FileExists(path);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(left, 0);
}

// The signal may reach any thread. Files written before stay whole.
TEST(Temporaries, ASignalWhileThreadsWrite) {
  for (int round = 0; round < 10; ++round) {
    TemporaryDirectory directory;
    const std::string contents(5000, 'x');
    ExpectEndedBySignal([&] {
      std::atomic<int> written{0};
      for (int t = 0; t < 3; ++t) {
        std::thread([&, t] {
          for (int i = 0;; i = (i + 1) % 20) {
            try {
              WriteFileAtomic(directory.File(std::to_string(t) + "-" + std::to_string(i)),
                              contents);
              ++written;
            } catch (const Error&) {  // a handler of another thread came first
            }
          }
        }).detach();
      }
      while (written < 5 * (round + 1)) std::this_thread::yield();
      ::kill(::getpid(), SIGTERM);
      for (;;) ::pause();
    });
    RemoveStaleTemporaries(directory.path());
    const std::vector<std::string> names = NamesIn(directory.path());
    EXPECT_GE(names.size(), 1u);
    for (const std::string& name : names) EXPECT_EQ(ReadFile(directory.File(name)), contents);
  }
}

}  // namespace coracle::temporaries_test
