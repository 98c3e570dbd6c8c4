#include "zeepo/zero/step_side.h"

#include <gtest/gtest.h>

namespace zeepo {
namespace {

TEST(HostStepBar, TheHostStepsWhatIsInItsMemoryBesideWeightsInReach) {
  for (const Shares& params : {Shares{}, Shares{.host = 1}, Shares{.host = 0.5, .nvme = 0.5}, Shares{.nvme = 0.9}})
    for (const Shares& optimizer : {Shares{.host = 1}, Shares{.host = 0.1}, Shares{.host = 0.1, .nvme = 0.9}}) {
      EXPECT_EQ(host_step_bar(false, params, optimizer), HostStepBar::none) << params.nvme << " " << optimizer.host;
      EXPECT_EQ(host_step_bar(true, params, optimizer), HostStepBar::backward_pass);
    }
}

TEST(HostStepBar, SaysWhatIsMissing) {
  const Shares on_device = {}, in_host_memory = {.host = 1}, in_files = {.nvme = 1};
  EXPECT_EQ(host_step_bar(false, on_device, on_device), HostStepBar::no_host_state);
  EXPECT_EQ(host_step_bar(false, in_files, in_files), HostStepBar::no_host_state);
  EXPECT_EQ(host_step_bar(false, in_files, in_host_memory), HostStepBar::params_in_files);
  EXPECT_EQ(host_step_bar(true, in_files, in_host_memory), HostStepBar::backward_pass);
}

}  // namespace
}  // namespace zeepo
