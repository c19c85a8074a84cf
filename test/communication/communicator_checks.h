#pragma once
// Checks for every communicator: bodies of tests, which each rank runs.

#include <coracle/communication/communicator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace coracle {

using Kind = Exchange::Kind;

// Sum, product, maximum and minimum of every type.
inline void CheckAllReduce(Communicator& c) {
  const int n = c.size();
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
}

// Broadcast, parts of different sizes gathered and scattered, and a barrier.
inline void CheckMoves(Communicator& c) {
  const int n = c.size();
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
}

// Several exchanges under way, waited for in another order.
inline void CheckSeveral(Communicator& c) {
  constexpr int kExchanges = 50;
  const double ranks = c.size() * (c.size() - 1) / 2;
  std::vector<std::vector<double>> data(kExchanges);
  std::vector<std::unique_ptr<PendingExchange>> pending;
  for (int k = 0; k < kExchanges; ++k) {
    data[static_cast<size_t>(k)].assign(static_cast<size_t>(k * 37), c.rank() * k);
    double* at = data[static_cast<size_t>(k)].data();
    pending.push_back(c.Start({Kind::kAllReduce, DType::kFloat64, {k * 37}, at, at}));
  }
  for (size_t k = kExchanges; k-- > 0;) {  // waited for in another order
    pending[k]->Wait();
    for (const double v : data[k]) ASSERT_EQ(v, ranks * static_cast<double>(k));
  }
}

// Buffers of which MPI's communicator packs some into one message, in place and not.
template <class T>
void CheckLargeAndSmallBuffers(Communicator& c) {
  const auto n = c.size(), r = c.rank();
  const std::vector<int64_t> sizes = {10, 40000, 32768, 32767, 0, 70000, 1};
  const auto value = [](int rank, size_t k, size_t i) {
    return static_cast<T>(static_cast<float>(rank + static_cast<int>((i + 3 * k) % 11)));
  };
  std::vector<std::vector<T>> ins, outs;
  Exchange exchange{Kind::kAllReduce, DTypeOf<T>(), sizes, nullptr, nullptr};
  for (size_t k = 0; k < sizes.size(); ++k) {
    std::vector<T>& in = ins.emplace_back(static_cast<size_t>(sizes[k]));
    for (size_t i = 0; i < in.size(); ++i) in[i] = value(r, k, i);
    outs.emplace_back(in.size());
  }
  const auto is_in_place = [](size_t k) { return k % 2 == 1; };
  const auto result = [&](size_t k) -> std::vector<T>& {
    return is_in_place(k) ? ins[k] : outs[k];
  };
  exchange.in = ins[0].data();
  exchange.out = result(0).data();
  for (size_t k = 1; k < sizes.size(); ++k)
    exchange.more.push_back({ins[k].data(), result(k).data()});
  c.Run(exchange);
  for (size_t k = 0; k < sizes.size(); ++k) {
    for (size_t i = 0; i < ins[k].size(); ++i) {
      const int expected = n * (n - 1) / 2 + n * static_cast<int>((i + 3 * k) % 11);
      ASSERT_EQ(static_cast<float>(result(k)[i]), static_cast<float>(expected)) << k << " " << i;
      if (!is_in_place(k)) {
        ASSERT_EQ(static_cast<float>(ins[k][i]), static_cast<float>(value(r, k, i)));
      }
    }
  }
}

// Several buffers together.
inline void CheckBuffers(Communicator& c) {
  std::vector<float> a(1000, 1), b(3), sum(3);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(c.rank()) + static_cast<float>(i);
  Exchange exchange{Kind::kAllReduce, DType::kFloat32, {1000, 3, 0}, a.data(), a.data()};
  exchange.more = {{b.data(), sum.data()}, {nullptr, nullptr}};
  c.Run(exchange);
  const auto n = static_cast<float>(c.size());
  for (const float x : a) ASSERT_EQ(x, n);
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i], n * (n - 1) / 2 + n * static_cast<float>(i));
    EXPECT_EQ(b[i], static_cast<float>(c.rank()) + static_cast<float>(i));
  }
  exchange.kind = Kind::kBroadcast;
  exchange.root = c.size() - 1;
  exchange.more[0] = {b.data(), b.data()};
  c.Run(exchange);
  EXPECT_EQ(b[0], n - 1);
  CheckLargeAndSmallBuffers<float>(c);
  CheckLargeAndSmallBuffers<float16>(c);
  CheckLargeAndSmallBuffers<int64_t>(c);
}

// Parts of several buffers as one message, in place and not; of one rank more than MPI takes
// at once.
template <class T>
void CheckScatteredBuffers(Communicator& c, const std::vector<int64_t>& sizes,
                           Reduction reduction) {
  const int n = c.size(), r = c.rank();
  Exchange exchange{Kind::kReduceScatter, DTypeOf<T>(), {}, nullptr, nullptr, reduction};
  std::vector<std::vector<T>> buffers, outs;
  std::vector<int64_t> begins;
  for (const int64_t size : sizes) {
    const int64_t part = (size + n - 1) / n;  // the last ranks have fewer
    const auto begin = [&](int rank) { return std::min(rank * part, size); };
    for (int k = 0; k < n; ++k) exchange.counts.push_back(begin(k + 1) - begin(k));
    begins.push_back(begin(r));
    std::vector<T>& buffer = buffers.emplace_back(static_cast<size_t>(size));
    for (size_t i = 0; i < buffer.size(); ++i)
      buffer[i] = static_cast<T>(static_cast<float>(r + static_cast<int>(i % 7)));
    outs.emplace_back(static_cast<size_t>(begin(r + 1) - begin(r)));
  }
  const auto is_in_place = [](size_t k) { return k % 2 == 0; };
  for (size_t k = 0; k < sizes.size(); ++k) {
    T* out = is_in_place(k) ? buffers[k].data() + begins[k] : outs[k].data();
    if (k > 0) exchange.more.push_back({buffers[k].data(), out});
  }
  exchange.in = buffers[0].data();
  exchange.out = buffers[0].data() + begins[0];
  c.Run(exchange);
  for (size_t k = 0; k < sizes.size(); ++k) {
    const T* out = is_in_place(k) ? buffers[k].data() + begins[k] : outs[k].data();
    for (size_t i = 0; i < outs[k].size(); ++i) {
      const int at = static_cast<int>((begins[k] + static_cast<int64_t>(i)) % 7);
      const int expected = reduction == Reduction::kMax ? n - 1 + at : n * (n - 1) / 2 + n * at;
      ASSERT_EQ(static_cast<float>(out[i]), static_cast<float>(expected)) << k << " " << i;
    }
    for (size_t i = 0; i < buffers[k].size(); ++i) {  // what is another rank's stays
      const int64_t place = static_cast<int64_t>(i) - begins[k];
      if (is_in_place(k) && place >= 0 && place < static_cast<int64_t>(outs[k].size())) continue;
      ASSERT_EQ(static_cast<float>(buffers[k][i]), static_cast<float>(r + static_cast<int>(i % 7)));
    }
  }
}

inline void CheckScattered(Communicator& c) {
  const std::vector<int64_t> sizes = {5, 700000, 1, 0, 900001};
  CheckScatteredBuffers<float>(c, sizes, Reduction::kSum);
  CheckScatteredBuffers<double>(c, sizes, Reduction::kSum);
  CheckScatteredBuffers<float>(c, sizes, Reduction::kMax);
  CheckScatteredBuffers<float16>(c, sizes, Reduction::kSum);
  CheckScatteredBuffers<int64_t>(c, {3}, Reduction::kSum);
  CheckScatteredBuffers<float>(c, {0, 0}, Reduction::kSum);
}

// 16-bit floats are summed in float32, and a nan of any rank shows in a maximum and a minimum.
inline void CheckFloats(Communicator& c) {
  // 2048 + 1 is 2048 in float16: a sum that were rounded each time would stay there.
  float16 half = c.rank() == 0 ? 2048.0f : 1.0f;
  c.AllReduce(&half, 1);
  const float16 expected = 2048.0f + static_cast<float>(c.size() - 1);
  EXPECT_EQ(static_cast<float>(half), static_cast<float>(expected));
  for (int bad = 0; bad < c.size(); ++bad) {
    float high = c.rank() == bad ? NAN : 1.0f, low = high;
    c.AllReduce(&high, 1, Reduction::kMax);
    c.AllReduce(&low, 1, Reduction::kMin);
    EXPECT_TRUE(std::isnan(high) && std::isnan(low));
  }
}

// All ranks have the same bits.
inline void CheckBits(Communicator& c) {
  std::vector<double> data(10007);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = std::sin(static_cast<double>(i + 1) * (c.rank() + 1.7));
  c.AllReduce(data.data(), static_cast<int64_t>(data.size()));
  std::vector<double> high = data, low = data;
  c.AllReduce(high.data(), static_cast<int64_t>(data.size()), Reduction::kMax);
  c.AllReduce(low.data(), static_cast<int64_t>(data.size()), Reduction::kMin);
  EXPECT_EQ(high, low);
}

inline void CheckExchanges(Communicator& c) {
  CheckAllReduce(c);
  CheckMoves(c);
  CheckSeveral(c);
  CheckBuffers(c);
  CheckScattered(c);
  CheckFloats(c);
  CheckBits(c);
}

}  // namespace coracle
