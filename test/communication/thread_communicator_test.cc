// The communicators of threads: results, errors, and what happens when a rank stays away.

#include <coracle/communication/communicator.h>
#include <coracle/communication/rank_threads.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/communication/communicator_checks.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

namespace coracle::thread_communicator_test {

// Runs `body` on one thread per rank; gives the ranks' errors, "" for none.
std::vector<std::string> OnRanks(int size, const std::function<void(Communicator&)>& body,
                                 double time_limit = 30) {
  auto communicators = ThreadCommunicators(size, time_limit);
  std::vector<std::string> errors(communicators.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*communicators[r]);
      } catch (const Error& error) {
        errors[r] = std::string(ToString(error.code())) + ": " + error.message();
      }
      communicators[r].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void ExpectNoErrors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, ExchangeEverything) { ExpectNoErrors(OnRanks(GetParam(), CheckExchanges)); }

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, testing::Values(1, 2, 3, 4, 8));

TEST(ThreadCommunicator, SumsInTheOrderOfTheRanksAndHalfInFloat) {
  // (1e8 + 1) - 1e8 is 0 in float32, and 1e8 - 1e8 + 1 would be 1.
  const float values[] = {1e8f, 1.0f, -1e8f};
  // 2048 + 1 is 2048 in float16: a sum that were rounded each time would stay there.
  const float halves[] = {2048, 1, 1};
  ExpectNoErrors(OnRanks(3, [&](Communicator& c) {
    for (int k = 0; k < 20; ++k) {
      float x = values[c.rank()];
      c.AllReduce(&x, 1);
      EXPECT_EQ(x, 0.0f);
    }
    float16 h = halves[c.rank()];
    c.AllReduce(&h, 1);
    EXPECT_EQ(static_cast<float>(h), 2050.0f);
    // A nan of any rank shows in a maximum and in a minimum.
    for (int bad = 0; bad < 3; ++bad) {
      float high = c.rank() == bad ? NAN : 1.0f, low = high;
      c.AllReduce(&high, 1, Reduction::kMax);
      c.AllReduce(&low, 1, Reduction::kMin);
      EXPECT_TRUE(std::isnan(high) && std::isnan(low));
    }
    int64_t wide = INT64_MAX;  // wraps around
    c.AllReduce(&wide, 1);
    EXPECT_EQ(wide, INT64_MAX - 2);
  }));
}

TEST(ThreadCommunicator, RanksThatDescribeDifferentExchanges) {
  const auto errors = OnRanks(2, [](Communicator& c) {
    std::vector<float> data(8);
    Exchange exchange{
        Kind::kAllReduce, DType::kFloat32, {c.rank() == 0 ? 8 : 7}, data.data(), data.data()};
    exchange.name = "w@GRAD";
    c.Run(exchange);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("invalid argument: communicator: rank "), error.npos) << error;
    EXPECT_NE(error.find("allreduce (sum) of 8 float32 'w@GRAD'"), error.npos) << error;
    EXPECT_NE(error.find("allreduce (sum) of 7 float32 'w@GRAD'"), error.npos) << error;
  }
}

TEST(ThreadCommunicator, ARankThatLeaves) {
  const auto errors = OnRanks(3, [](Communicator& c) {
    if (c.rank() == 1) return;
    c.Barrier();
  });
  EXPECT_EQ(errors[0], "cancelled: communicator: rank 1 has left");
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(ThreadCommunicator, ARankThatGivesUpWhatItBegan) {
  const auto errors = OnRanks(2, [](Communicator& c) {
    float x = 0;
    const auto pending = c.Start({Kind::kAllReduce, DType::kFloat32, {1}, &x, &x});
    if (c.rank() == 0) ThrowInvalid("another fault");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pending->Wait();
  });
  EXPECT_EQ(errors[0], "invalid argument: another fault");
  // Rank 1 may have come first or second.
  EXPECT_TRUE(errors[1].empty() || errors[1].find("cancelled: communicator: rank 0 ") == 0)
      << errors[1];
}

TEST(ThreadCommunicator, ARankThatDoesNotCome) {
  const auto errors = OnRanks(
      3,
      [](Communicator& c) {
        if (c.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(600));
        c.Barrier();
      },
      0.1);
  EXPECT_EQ(errors[0],
            "deadline exceeded: communicator: rank 2 did not come to the barrier within 0.1 s");
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2], errors[0]);
}

// More seconds than a clock has nanoseconds for.
TEST(ThreadCommunicator, ALimitOfCenturiesIsNone) {
  for (const double limit : {1e10, 1e300}) {
    const auto errors = OnRanks(
        2,
        [](Communicator& c) {
          if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
          c.Barrier();
        },
        limit);
    ExpectNoErrors(errors);
  }
}

TEST(ThreadCommunicator, WrongExchanges) {
  const auto communicators = ThreadCommunicators(1);
  Communicator& c = *communicators[0];
  float x = 3;
  const auto error = [&](const Exchange& exchange) { return ErrorOf([&] { c.Run(exchange); }); };
  EXPECT_EQ(error({Kind::kAllReduce, DType::kFloat32, {}, &x, &x}),
            "allreduce among 1 ranks takes 1 counts, got 0");
  EXPECT_EQ(error({Kind::kAllReduce, DType::kFloat32, {-1}, &x, &x}), "allreduce of -1 elements");
  EXPECT_EQ(error({Kind::kBroadcast, DType::kFloat32, {1}, &x, &x, Reduction::kSum, 1}),
            "broadcast: root 1 of 1 ranks");
  EXPECT_EQ(error({Kind::kAllReduce, DType::kBool, {1}, &x, &x}), "allreduce: bool has no sum");
  EXPECT_EQ(error({Kind::kAllReduce, DType::kComplex64, {0}, &x, &x, Reduction::kMax}),
            "allreduce: complex64 has no max");
  EXPECT_EQ(error({Kind::kAllReduce, static_cast<DType>(7), {1}, &x, &x}),
            "allreduce: unknown element type");
  EXPECT_EQ(ErrorOf([] { ThreadCommunicators(0); }),
            "a communicator of 0 ranks; at least 1 is needed");
  // None of them has broken the communicator.
  c.AllReduce(&x, 1);
  EXPECT_EQ(x, 3.0f);
}

TEST(RankThreads, EachRankRunsOnceAndTheyExchange) {
  std::vector<double> sums(3);
  RunOnThreads(3, 30, [&](std::shared_ptr<Communicator> communicator) {
    double rank = communicator->rank();
    communicator->AllReduce(&rank, 1);
    sums[static_cast<size_t>(communicator->rank())] = rank;
  });
  EXPECT_EQ(sums, (std::vector<double>{3, 3, 3}));
}

// The other ranks only report that one has left.
TEST(RankThreads, AnErrorNamesTheRankThatFailed) {
  for (int bad = 0; bad < 3; ++bad) {
    const auto run = [bad](std::shared_ptr<Communicator> communicator) {
      if (communicator->rank() == bad) throw Error(ErrorCode::kInvalidArgument, "a bad row");
      communicator->Barrier();
    };
    EXPECT_EQ(ErrorOf([&] { RunOnThreads(3, 30, run); }),
              "rank " + std::to_string(bad) + ": a bad row");
  }
}

// An error of several ranks is one of the job, and names none.
TEST(RankThreads, AnErrorOfAllRanksNamesNone) {
  const auto run = [](std::shared_ptr<Communicator>) { ThrowInvalid("a bad job"); };
  EXPECT_EQ(ErrorOf([&] { RunOnThreads(2, 30, run); }), "a bad job");
}
}  // namespace coracle::thread_communicator_test
