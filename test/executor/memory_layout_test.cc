#include <coracle/executor/internal/planner.h>
#include <gtest/gtest.h>

#include <random>

namespace coracle {
namespace {

Plan RandomPlan(unsigned seed, int steps, int storages) {
  std::mt19937 random(seed);
  Plan plan;
  plan.steps.resize(static_cast<size_t>(steps));
  for (int i = 0; i < storages; ++i) {
    Storage s;
    s.bytes = random() % 1000;
    s.first = static_cast<int32_t>(random() % static_cast<unsigned>(steps));
    s.last = std::min(steps - 1, s.first + static_cast<int32_t>(random() % 5));
    plan.storages.push_back(s);
  }
  return plan;
}

TEST(MemoryLayout, LiveStoragesNeverOverlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Plan plan = RandomPlan(seed, 40, 120);
    LayOutArena(plan);
    for (size_t a = 0; a < plan.storages.size(); ++a) {
      const Storage& x = plan.storages[a];
      EXPECT_EQ(x.offset % 64, 0u);
      EXPECT_LE(x.offset + x.bytes, plan.arena_bytes);
      for (size_t b = 0; b < a; ++b) {
        const Storage& y = plan.storages[b];
        bool same_time = x.first <= y.last && y.first <= x.last && x.bytes > 0 && y.bytes > 0;
        bool apart = x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
        EXPECT_TRUE(!same_time || apart) << "storages " << a << " and " << b << ", seed " << seed;
      }
    }
  }
}

TEST(MemoryLayout, ReusesMemoryOverTime) {
  Plan plan;
  plan.steps.resize(100);
  for (int i = 0; i < 100; ++i) {
    Storage s;
    s.bytes = 1024;
    s.first = i;
    s.last = std::min(99, i + 1);
    plan.storages.push_back(s);
  }
  LayOutArena(plan);
  EXPECT_EQ(plan.arena_bytes, 2048u);
}

}  // namespace
}  // namespace coracle
