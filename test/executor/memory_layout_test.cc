#include <coracle/executor/plan/memory_plan.h>
#include <gtest/gtest.h>

#include <random>

namespace coracle::memory_layout_test {

Plan RandomPlan(unsigned seed, int steps, int storages) {
  std::mt19937 random(seed);
  Plan plan;
  plan.steps.resize(static_cast<size_t>(steps));
  for (int i = 0; i < storages; ++i) {
    Storage s;
    s.bytes = random() % 1000;
    const size_t first = random() % static_cast<unsigned>(steps);
    s.first = StepId(first);
    s.last = StepId(std::min(static_cast<size_t>(steps) - 1, first + random() % 5));
    plan.storages.Add(s);
  }
  return plan;
}

TEST(MemoryLayout, LiveStoragesNeverOverlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Plan plan = RandomPlan(seed, 40, 120);
    LayOutArena(plan);
    for (StorageId a : plan.storages.ids()) {
      const Storage& x = plan.storages[a];
      EXPECT_EQ(x.offset % 64, 0u);
      EXPECT_LE(x.offset + x.bytes, plan.arena_bytes);
      for (StorageId b(0); b < a; b = StorageId(b.index() + 1)) {
        const Storage& y = plan.storages[b];
        bool same_time = x.first <= y.last && y.first <= x.last && x.bytes > 0 && y.bytes > 0;
        bool apart = x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset;
        EXPECT_TRUE(!same_time || apart)
            << "storages " << a.index() << " and " << b.index() << ", seed " << seed;
      }
    }
  }
}

TEST(MemoryLayout, ReusesMemoryOverTime) {
  Plan plan;
  plan.steps.resize(100);
  for (size_t i = 0; i < 100; ++i) {
    Storage s;
    s.bytes = 1024;
    s.first = StepId(i);
    s.last = StepId(std::min<size_t>(99, i + 1));
    plan.storages.Add(s);
  }
  LayOutArena(plan);
  EXPECT_EQ(plan.arena_bytes, 2048u);
}

// It might write an element before it reads it through its other input.
TEST(MemorySharing, WhatAnOpReadsTwiceIsNotOverwritten) {
  for (const size_t times : {1, 2}) {
    Plan plan;
    plan.steps.resize(2);
    for (const size_t i : {0, 1}) {
      plan.storages.Add(Storage());
      PlanValue value;
      value.storage = StorageId(i);
      value.numel = 4;
      plan.values.Add(value);
    }
    const StepId makes(0), reads(1);
    const ValueId in(0), out(1);
    MemoryUsage usage;
    usage.reads.resize(2);
    usage.reads[reads].assign(times, in);
    usage.uses = {{makes, in}, {reads, in}, {reads, out}};
    usage.sharing = {{reads, in, out, false}};
    ShareMemory(plan, usage);
    EXPECT_EQ(plan.values[in].storage == plan.values[out].storage, times == 1) << times;
  }
}
}  // namespace coracle::memory_layout_test
