// The communicators of threads: results, errors, and what happens when a rank stays away.

#include <coracle/communication/communicator.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

namespace coracle {
namespace {

using Kind = Exchange::Kind;

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

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, AllReduceOfEveryType) {
  const int n = GetParam();
  ExpectNoErrors(OnRanks(n, [n](Communicator& c) {
    const auto all = [&]<class T>(T) {
      std::vector<T> data(3000);  // several pieces
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<T>(static_cast<float>(c.rank() + 1 + static_cast<int>(i % 3)));
      std::vector<T> sum = data, prod(data.size()), high = data, low = data;
      c.AllReduce(sum.data(), 3000);
      c.Run({Kind::kAllReduce, DTypeOf<T>(), {3000}, data.data(), prod.data(), Reduction::kProd});
      c.AllReduce(high.data(), 3000, Reduction::kMax);
      c.AllReduce(low.data(), 3000, Reduction::kMin);
      for (int i = 0; i < 3000; ++i) {
        const auto at = static_cast<size_t>(i);
        float product = 1;
        for (int r = 0; r < n; ++r) product *= static_cast<float>(r + 1 + i % 3);
        ASSERT_EQ(static_cast<float>(sum[at]), static_cast<float>(n * (n + 1) / 2 + n * (i % 3)));
        if (product < 100) {
          ASSERT_EQ(static_cast<float>(prod[at]), product);
        }
        ASSERT_EQ(static_cast<float>(high[at]), static_cast<float>(n + i % 3));
        ASSERT_EQ(static_cast<float>(low[at]), static_cast<float>(1 + i % 3));
      }
    };
    all(float{});
    all(double{});
    all(int32_t{});
    all(int64_t{});
    all(int16_t{});
    all(int8_t{});
    all(uint8_t{});
    all(float16{});
    all(bfloat16{});
  }));
}

TEST_P(Ranks, BroadcastGatherAndScatter) {
  const int n = GetParam();
  ExpectNoErrors(OnRanks(n, [n](Communicator& c) {
    const int r = c.rank();
    std::vector<double> value(5, r);
    c.Broadcast(value.data(), 5, n - 1);
    for (const double v : value) EXPECT_EQ(v, n - 1);

    // Rank r has r elements, each r; rank 0 has none.
    std::vector<int64_t> counts;
    for (int i = 0; i < n; ++i) counts.push_back(i);
    const int total = n * (n - 1) / 2;
    const std::vector<int64_t> mine(static_cast<size_t>(r), r);
    std::vector<int64_t> gathered(static_cast<size_t>(total), -1);
    c.Run({Kind::kAllGather, DType::kInt64, counts, mine.data(), gathered.data()});
    size_t at = 0;
    for (int i = 0; i < n; ++i)
      for (int k = 0; k < i; ++k) EXPECT_EQ(gathered[at++], i);

    // In place: rank r's part of the sum replaces that part of what it gave.
    std::vector<float> parts(static_cast<size_t>(total));
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<float>(100 * r) + float(i);
    const int begin = r * (r - 1) / 2;
    c.Run({Kind::kReduceScatter, DType::kFloat32, counts, parts.data(), parts.data() + begin});
    for (int i = begin; i < begin + r; ++i) {
      EXPECT_EQ(parts[static_cast<size_t>(i)], static_cast<float>(100 * total + n * i));
    }
    c.Barrier();
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3, 4, 8));

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

TEST(ThreadCommunicator, SeveralExchangesAreUnderWay) {
  constexpr int kExchanges = 50;
  ExpectNoErrors(OnRanks(4, [](Communicator& c) {
    std::vector<std::vector<double>> data(kExchanges);
    std::vector<std::unique_ptr<PendingExchange>> pending;
    for (int k = 0; k < kExchanges; ++k) {
      data[static_cast<size_t>(k)].assign(static_cast<size_t>(k * 37), c.rank() * k);
      double* at = data[static_cast<size_t>(k)].data();
      pending.push_back(c.Start({Kind::kAllReduce, DType::kFloat64, {k * 37}, at, at}));
    }
    for (size_t k = kExchanges; k-- > 0;) {  // waited for in another order
      pending[k]->Wait();
      for (const double v : data[k]) ASSERT_EQ(v, 6.0 * static_cast<double>(k));
    }
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

}  // namespace
}  // namespace coracle
