#include "zeepo/comm/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

using Variables = std::map<std::string, std::string>;

// What a process with these variables, and none else of a launcher, takes itself for.
Launch launch_with(const Variables& variables) {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
        "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"})
    unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return detect_launch();
}

void expect_launch(const Variables& variables, const Launch& expected) {
  const Launch got = launch_with(variables);
  EXPECT_EQ(got.rank, expected.rank);
  EXPECT_EQ(got.size, expected.size);
  EXPECT_EQ(got.local_rank, expected.local_rank);
  EXPECT_EQ(got.local_size, expected.local_size);
  EXPECT_EQ(got.mpi, expected.mpi);
}

TEST(Launch, AloneIsOneRank) {
  expect_launch({}, {0, 1, 0, 1, false});
  EXPECT_EQ(make_communicator(launch_with({}))->size(), 1);
}

TEST(Launch, MpirunSaysItAll) {
  expect_launch({{"OMPI_COMM_WORLD_RANK", "5"},
                 {"OMPI_COMM_WORLD_SIZE", "8"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
                {5, 8, 1, 4, true});
}

TEST(Launch, WithoutLocalNumbersAllRanksAreTakenToBeHere) {
  expect_launch({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}, {2, 3, 2, 3, true});
}

TEST(Launch, SrunListsTasksByNode) {
  expect_launch({{"SLURM_PROCID", "9"}, {"SLURM_NTASKS", "11"}, {"SLURM_LOCALID", "1"}}, {9, 11, 1, 11, true});
  const auto on_node = [](const char* node) -> Variables {
    return {{"SLURM_PROCID", "9"},          {"SLURM_NTASKS", "16"},
            {"SLURM_LOCALID", "1"},         {"SLURM_JOB_ID", "77"},
            {"SLURM_STEP_ID", "0"},         {"SLURM_NODEID", node},
            {"SLURM_STEP_NUM_TASKS", "11"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}};
  };
  expect_launch(on_node("2"), {9, 11, 1, 3, true});
  expect_launch(on_node("1"), {9, 11, 1, 4, true});
}

TEST(Launch, ABatchScriptIsNotARank) {
  expect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "77"}},
                {0, 1, 0, 1, false});
}

TEST(Launch, MpirunInsideOfSlurmCounts) {
  expect_launch(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
      {1, 2, 1, 2, true});
}

TEST(Launch, RefusesWhatMakesNoSense) {
  EXPECT_TRUE(names(error_text([] { launch_with({{"PMI_RANK", "x"}, {"PMI_SIZE", "3"}}); }), "PMI_RANK=\"x\""));
  EXPECT_TRUE(names(error_text([] {
                      launch_with({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}});
                    }),
                    "PMI_RANK=3", "PMI_SIZE=3"));
  EXPECT_TRUE(names(error_text([] { launch_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}); }), "PMI_SIZE=0"));
}

}  // namespace
}  // namespace zeepo
