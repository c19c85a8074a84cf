// ParallelFor and its pool of threads.
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/internal/spin.h>
#include <coracle/framework/base/internal/thread_count.h>
#include <coracle/framework/base/internal/thread_limit.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/test_data.h>
#include <coracle/test/threads.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

namespace coracle::parallel_test {

namespace fs = std::filesystem;
using internal::CpuQuota;
using internal::MemoryQuota;
using internal::ReadSpinCounts;
using internal::SpinCounts;
using internal::ThreadLimit;

using Ranges = std::set<std::pair<int64_t, int64_t>>;

Ranges RangesOf(int64_t n, int64_t grain) {
  Ranges ranges;
  std::mutex mutex;
  ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(ranges.insert({begin, end}).second);
  });
  return ranges;
}

int64_t SumTo(int64_t n) {
  std::atomic<int64_t> sum{0};
  ParallelFor(n, 3, [&](int64_t begin, int64_t end) {
    int64_t part = 0;
    for (int64_t i = begin; i < end; ++i) part += i;
    sum += part;
  });
  return sum.load();
}

TEST(Parallel, EveryIndexOnce) {
  for (int threads : {1, 2, 5, 40}) {
    const Threads set(threads);
    for (int64_t n : {0, 1, 7, 1000, 12345}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      ParallelFor(n, 10, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(Parallel, ExceptionsReachTheCaller) {
  const Threads set(4);
  for (int64_t thrower : {0, 5000, 9999}) {
    auto body = [&](int64_t begin, int64_t end) {
      if (begin <= thrower && thrower < end) ThrowInvalid("from a thread");
    };
    EXPECT_THROW(ParallelFor(10000, 10, body), Error);
  }
  auto all = [](int64_t, int64_t) { ThrowInvalid("from every thread"); };
  EXPECT_THROW(ParallelFor(10000, 10, all), Error);
  EXPECT_EQ(SumTo(100), 4950);  // the pool works on
}

TEST(Parallel, NestedLoopsRunInTheirThread) {
  const Threads set(3);
  std::atomic<int64_t> sum{0};
  ParallelFor(8, 1, [&](int64_t begin, int64_t end) {
    const std::thread::id outer = std::this_thread::get_id();
    for (int64_t i = begin; i < end; ++i) {
      ParallelFor(100, 10, [&](int64_t b, int64_t e) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += e - b;
      });
    }
  });
  EXPECT_EQ(sum.load(), 800);
}

TEST(Parallel, SplitDependsOnSizesAlone) {
  const Threads set(3);
  EXPECT_EQ(RangesOf(10, 4), (Ranges{{0, 3}, {3, 6}, {6, 10}}));
  EXPECT_EQ(RangesOf(7, 4), (Ranges{{0, 3}, {3, 7}}));
  EXPECT_EQ(RangesOf(4, 4), (Ranges{{0, 4}}));
  // The same while other callers keep the pool busy.
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!stop) SumTo(1000);
    });
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(RangesOf(10, 4), (Ranges{{0, 3}, {3, 6}, {6, 10}}));
  stop = true;
  for (std::thread& t : others) t.join();
}

// More callers than there are places for their loops.
TEST(Parallel, ManyCallersAtOnce) {
  for (int threads : {2, 4}) {
    const Threads set(threads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 12; ++caller) {
      callers.emplace_back([caller] {
        for (int64_t n = 1; n < 400; ++n)
          EXPECT_EQ(SumTo(n + caller), (n + caller) * (n + caller - 1) / 2);
      });
    }
    for (std::thread& t : callers) t.join();
  }
}

// The pool's only thread is inside another caller's loop: this loop must not wait for it.
TEST(Parallel, LoopWaitsForNoThreadThatIsBusyElsewhere) {
  const Threads set(2);
  std::atomic<int> waiting{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    ParallelFor(2, 1, [&](int64_t begin, int64_t end) {
      waiting += static_cast<int>(end - begin);
      while (!over) std::this_thread::yield();
    });
  });
  while (waiting == 0) std::this_thread::yield();
  EXPECT_EQ(SumTo(1000), 499500);
  over = true;
  other.join();
}

TEST(Parallel, NumberOfThreadsMayChangeAtAnyTime) {
  const Threads set(1);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int n = 1; !stop; n = n % 6 + 1) SetNumThreads(n);
  });
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(SumTo(500), 124750);
  stop = true;
  changer.join();
}

TEST(Parallel, NumberOfThreadsIsOfTheProcess) {
  const Threads set(3);
  int seen = 0;
  std::thread([&] { seen = NumThreads(); }).join();
  EXPECT_EQ(seen, 3);
  SetNumThreads(-5);
  EXPECT_EQ(NumThreads(), 1);
  SetNumThreads(std::numeric_limits<int>::max());
  EXPECT_GE(NumThreads(), 64);  // as many as the pool can have; none is started before it is needed
}

// A child has the calling thread alone, and starts others for its own loops.
TEST(Parallel, ChildProcessesHaveTheirOwnThreads) {
  const Threads set(3);
  ASSERT_EQ(SumTo(100), 4950);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    for (int i = 0; i < 100; ++i) {
      if (SumTo(1000) != 499500) _exit(1);
    }
    _exit(RangesOf(9, 1) == Ranges{{0, 3}, {3, 6}, {6, 9}} ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(SumTo(100), 4950);
}

// A signal that a program awaits with sigwait or signalfd must not reach a thread of the pool.
TEST(Parallel, ThreadsLeaveSignalsToTheProgram) {
  const Threads set(3);
  ASSERT_EQ(SumTo(100), 4950);
  sigset_t wanted, before;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &wanted, &before), 0);
  ASSERT_EQ(kill(getpid(), SIGUSR2), 0);
  int got = 0;
  EXPECT_EQ(sigwait(&wanted, &got), 0);
  EXPECT_EQ(got, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The death tests start this program again, so that it reads its environment.
class ThreadsDeathTest : public testing::Test {
 protected:
  ThreadsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ThreadsDeathTest, ProcessEndsWhileThreadsRest) {
  EXPECT_EXIT(
      {
        SetNumThreads(4);
        std::exit(SumTo(1000) == 499500 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ThreadsDeathTest, EnvironmentWins) {
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EXIT(std::exit(NumThreads()), testing::ExitedWithCode(3), "");
  setenv("OMP_NUM_THREADS", "5,2", 1);
  EXPECT_EXIT(std::exit(NumThreads()), testing::ExitedWithCode(5), "");
  unsetenv("OMP_NUM_THREADS");
}

TEST_F(ThreadsDeathTest, AsManyAsTheProcessorsItMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  EXPECT_EXIT(
      {
        sched_setaffinity(0, sizeof one, &one);
        std::exit(NumThreads());
      },
      testing::ExitedWithCode(1), "");
}

int ThreadsOfProcess() {
  int n = 0;
  for ([[maybe_unused]] const auto& task : fs::directory_iterator("/proc/self/task")) ++n;
  return n;
}

// Without room for a stack no thread starts; when there is room again, they do.
TEST_F(ThreadsDeathTest, ThreadsThatCannotStartAreTriedAgain) {
  if (UnderSanitizer()) GTEST_SKIP() << "sanitizers take the address space";
  auto run = [] {
    SetNumThreads(3);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit before{};
    if (getrlimit(RLIMIT_AS, &before) != 0) std::exit(2);
    rlimit low = before;
    low.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (1 << 20));
    if (setrlimit(RLIMIT_AS, &low) != 0 || SumTo(1000) != 499500) std::exit(3);
    if (ThreadsOfProcess() != 1) std::exit(4);
    setrlimit(RLIMIT_AS, &before);
    for (int i = 0; i < 600 && ThreadsOfProcess() < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (SumTo(1000) != 499500) std::exit(5);
    }
    std::exit(ThreadsOfProcess() == 3 ? 0 : 6);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

// Whether processors 0 and 1 are there. The process of a death test, which runs the test from its
// beginning, is bound already.
bool HasTwoPlaces() {
  if (std::getenv("OMP_PLACES")) return true;
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_ISSET(0, &allowed) &&
         CPU_ISSET(1, &allowed);
}

// Each thread of the pool runs where OMP_PLACES puts it, whoever started it.
TEST_F(ThreadsDeathTest, ThreadsAreBoundToPlaces) {
  if (!HasTwoPlaces()) GTEST_SKIP() << "needs processors 0 and 1";
  setenv("OMP_PROC_BIND", "true", 1);
  setenv("OMP_PLACES", "{0},{1}", 1);
  auto run = [] {
    SetNumThreads(2);
    std::atomic<int> begun{0};
    std::atomic<bool> right{true};
    ParallelFor(2, 1, [&](int64_t begin, int64_t end) {
      begun += static_cast<int>(end - begin);
      while (begun < 2) std::this_thread::yield();
      cpu_set_t allowed;
      const bool own = gettid() == getpid();
      if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) != 1 ||
          !CPU_ISSET(own ? 0 : 1, &allowed))
        right = false;
    });
    std::exit(right ? 3 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(3), "");
  unsetenv("OMP_PROC_BIND");
  unsetenv("OMP_PLACES");
}

// OMP_PROC_BIND binds the thread that asks, and those that it starts, but not the process.
TEST_F(ThreadsDeathTest, CoresOfAProcessThatOpenMPBinds) {
  if (!HasTwoPlaces()) GTEST_SKIP() << "needs processors 0 and 1";
  const int cores = std::min(internal::AllowedCores(), 100);
  if (!std::getenv("OMP_PLACES")) {
    EXPECT_EQ(internal::CoresOfNewThreads(), internal::AllowedCores());
  }
  setenv("OMP_PROC_BIND", "true", 1);
  setenv("OMP_PLACES", "{0},{1}", 1);
  EXPECT_EXIT(std::exit(std::min(internal::AllowedCores(), 100)), testing::ExitedWithCode(cores),
              "");
  EXPECT_EXIT(std::exit(internal::CoresOfNewThreads()), testing::ExitedWithCode(1), "");
  unsetenv("OMP_PROC_BIND");
  unsetenv("OMP_PLACES");
}

TEST(SpinCounts, FollowOpenMpsVariables) {
  const auto with = [](const char* policy, const char* count) {
    policy ? setenv("OMP_WAIT_POLICY", policy, 1) : unsetenv("OMP_WAIT_POLICY");
    count ? setenv("GOMP_SPINCOUNT", count, 1) : unsetenv("GOMP_SPINCOUNT");
    const SpinCounts counts = ReadSpinCounts();
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    return counts;
  };
  constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(with("passive", nullptr).for_work, 0);
  EXPECT_EQ(with("PASSIVE", nullptr).for_parts, 0);
  EXPECT_EQ(with("active", nullptr).for_work, kForever);
  EXPECT_FALSE(with("ACTIVE", nullptr).yields);
  EXPECT_EQ(with(nullptr, "1000").for_work, 1000);
  EXPECT_EQ(with("active", "20k").for_parts, 20000);
  EXPECT_EQ(with(nullptr, "infinite").for_work, kForever);
  const SpinCounts usual = with(nullptr, nullptr);
  EXPECT_GT(usual.for_work, usual.for_parts);
  EXPECT_GT(usual.for_parts, 0);
  EXPECT_TRUE(usual.yields);
  EXPECT_GT(with("sometimes", "many").for_work, 0);  // not understood: as if not set
}

TEST(ThreadLimit, FewerThreadsForAWhile) {
  using std::chrono::milliseconds;
  ThreadLimit limit;
  EXPECT_EQ(limit.Of(4), 4);
  limit.Waited(4, milliseconds(5), milliseconds(10));
  EXPECT_EQ(limit.Of(4), 4);  // one may be chance
  for (int i = 0; i < 1000; ++i) limit.Waited(4, milliseconds(2), milliseconds(10));
  EXPECT_EQ(limit.Of(4), 4);  // more than what is lost is won
  int used = 4;
  for (int i = 0; i < 1000 && used == 4; ++i) {
    limit.Waited(4, milliseconds(5), milliseconds(10));
    used = limit.Of(4);
  }
  EXPECT_EQ(used, 3);
  for (int i = 0; i < 100; ++i) limit.Waited(4, milliseconds(5), milliseconds(10));
  EXPECT_GE(limit.Of(4), 1);
  EXPECT_EQ(limit.Of(1), 1);
  const auto begin = std::chrono::steady_clock::now();
  while (limit.Of(4) < 4 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60))
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(limit.Of(4), 4);
}

TEST(ThreadLimit, WaitingIsOfTheTimeThatPassed) {
  using std::chrono::milliseconds;
  internal::RecentWaiting waiting;
  const auto update = [&](int waited, int now, int passed) {
    return waiting.Update(milliseconds(waited), milliseconds(now), milliseconds(passed));
  };
  EXPECT_EQ(update(500, 1000, 10), milliseconds(0));  // who knows when
  EXPECT_EQ(update(504, 1010, 10), milliseconds(4));
  EXPECT_EQ(update(506, 1015, 10), milliseconds(2));  // all of it lies in the last 10
  EXPECT_EQ(update(906, 2015, 10), milliseconds(4));  // 400 in 1000
  EXPECT_EQ(update(0, 2025, 10), milliseconds(0));    // the system does not tell any more
}

// Two threads that are bound to one processor wait for each other.
TEST(ThreadLimit, WaitingForAProcessorIsSeen) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (!std::ifstream("/proc/self/schedstat")) GTEST_SKIP() << "no schedstat here";
  int processor = 0;
  while (!CPU_ISSET(processor, &allowed)) ++processor;
  std::chrono::nanoseconds waited[2] = {};
  auto run = [&](int thread) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) {
    }
    waited[thread] = internal::WaitedForProcessor(gettid());
  };
  std::thread other(run, 1);
  std::thread(run, 0).join();
  other.join();
  EXPECT_GT(waited[0] + waited[1], std::chrono::milliseconds(10));
  EXPECT_EQ(internal::WaitedForProcessor(0).count(), 0);  // no such thread
}

// Files as the kernel shows them.
class ControlGroupTest : public testing::Test {
 protected:
  void Mount(const std::string& root, const std::string& point, const std::string& rest) {
    Append("/proc/self/mountinfo", "30 23 0:26 " + root + " " + point + " rw,nosuid - " + rest);
  }
  void Append(const std::string& path, const std::string& line) {
    fs::create_directories(fs::path(root() + path).parent_path());
    std::ofstream(root() + path, std::ios::app) << line << "\n";
  }
  std::string root() const { return directory_.path(); }

  TemporaryDirectory directory_;
};

TEST_F(ControlGroupTest, NoneWithoutFiles) {
  EXPECT_EQ(CpuQuota(root()), 0);
  EXPECT_EQ(MemoryQuota(root()), 0);
}

TEST_F(ControlGroupTest, Version2) {
  Append("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw");
  Mount("/", "/sys/fs/cgroup", "cgroup2 cgroup2 rw");
  Append("/proc/self/cgroup", "0::/app/worker");
  EXPECT_EQ(CpuQuota(root()), 0);
  Append("/sys/fs/cgroup/app/worker/cpu.max", "max 100000");
  EXPECT_EQ(CpuQuota(root()), 0);
  Append("/sys/fs/cgroup/app/cpu.max", "150000 100000");  // the group above limits it too
  EXPECT_EQ(CpuQuota(root()), 1.5);
  Append("/sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(CpuQuota(root()), 0.5);
  Append("/sys/fs/cgroup/memory.max", "max");
  EXPECT_EQ(MemoryQuota(root()), 0);
  Append("/sys/fs/cgroup/app/worker/memory.max", "209715200");
  EXPECT_EQ(MemoryQuota(root()), 209715200);
  Append("/sys/fs/cgroup/app/memory.max", "104857600");
  EXPECT_EQ(MemoryQuota(root()), 104857600);
}

TEST_F(ControlGroupTest, Version1) {
  Mount("/", "/sys/fs/cgroup/memory", "cgroup cgroup rw,memory");
  Mount("/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup cgroup rw,cpu,cpuacct");
  Append("/proc/self/cgroup", "5:memory:/elsewhere");
  Append("/proc/self/cgroup", "4:cpu,cpuacct:/app");
  Append("/proc/self/cgroup", "0::/");
  Append("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  Append("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  Append("/sys/fs/cgroup/memory/elsewhere/cpu.cfs_quota_us", "1");
  EXPECT_EQ(CpuQuota(root()), 0);
  Append("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "250000");
  Append("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CpuQuota(root()), 2.5);
  Append("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // none
  Append("/sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes", "125829120");
  EXPECT_EQ(MemoryQuota(root()), 125829120);
}

// The process's path is the host's, the mount shows the container's group at the mount point.
TEST_F(ControlGroupTest, Container) {
  Mount("/docker/0123", "/sys/fs/cgroup/cpu", "cgroup cgroup rw,cpu");
  Append("/proc/self/cgroup", "4:cpu:/docker/0123");
  Append("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  Append("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CpuQuota(root()), 2);
}

TEST_F(ControlGroupTest, PathOutsideOfTheMount) {
  Mount("/", "/sys/fs/cgroup", "cgroup2 cgroup rw");
  Append("/proc/self/cgroup", "0::/../outside");
  Append("/sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(CpuQuota(root()), 1);
}

TEST_F(ControlGroupTest, NonsenseIsNoLimit) {
  Mount("/", "/sys/fs/cgroup", "cgroup2 cgroup rw");
  Append("/proc/self/mountinfo", "");
  Append("/proc/self/mountinfo", "1 2");
  Append("/proc/self/cgroup", "no colons");
  Append("/proc/self/cgroup", "0::/a");
  for (const char* text : {"", "x y", "100000", "0 0", "-1 100000"}) {
    fs::remove(root() + "/sys/fs/cgroup/a/cpu.max");
    Append("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(CpuQuota(root()), 0) << text;
  }
}
}  // namespace coracle::parallel_test
