// Reads from the environment which ranks were launched together.

#include <coracle/communication/communicator.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace coracle::launched_test {

class LaunchedTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void Set(const char* name, const char* value) { ::setenv(name, value, 1); }

  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "PMI_RANK",
                                           "PMI_SIZE"};
};

TEST_F(LaunchedTest, ByWhom) {
  EXPECT_EQ(FindLaunched().size, 1);
  EXPECT_EQ(FindLaunched().by, "");
  Set("PMI_RANK", "3");
  Set("PMI_SIZE", "4");
  EXPECT_EQ(FindLaunched().rank, 3);
  EXPECT_EQ(FindLaunched().by, "PMI");
  Set("SLURM_PROCID", "0");
  Set("SLURM_STEP_NUM_TASKS", "2");
  EXPECT_EQ(FindLaunched().size, 2);
  EXPECT_EQ(FindLaunched().by, "srun");
  Set("OMPI_COMM_WORLD_RANK", "7");
  Set("OMPI_COMM_WORLD_SIZE", "8");
  EXPECT_EQ(FindLaunched().rank, 7);
  EXPECT_EQ(FindLaunched().by, "mpirun");
}

TEST_F(LaunchedTest, WhatIsNoRankIsNotOne) {
  for (const auto& [rank, size] : {std::pair("0", "1"),
                                   {"2", "2"},
                                   {"-1", "4"},
                                   {"x", "4"},
                                   {"1", ""},
                                   {"1", "99999999999999999999"},
                                   {"1 ", "4"}}) {
    Set("OMPI_COMM_WORLD_RANK", rank);
    Set("OMPI_COMM_WORLD_SIZE", size);
    EXPECT_EQ(FindLaunched().size, 1) << rank << " of " << size;
  }
}
}  // namespace coracle::launched_test
