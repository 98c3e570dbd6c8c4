#include "zeepo/metrics/prometheus_file.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"
#include "tests/support/running_program.h"

namespace zeepo {
namespace {

// Samples by name and labels. Every line must be of the format, with HELP and TYPE before the samples of its metric.
std::map<std::string, std::string> samples_in(const std::string& text) {
  static const std::regex sample(
      R"(([a-z_]+)(\{[a-z_]+="[^"\\]*"(?:,[a-z_]+="[^"\\]*")*\})? (NaN|[-+]?[0-9.e+-]+|[+-]Inf))");
  std::map<std::string, std::string> samples;
  std::set<std::string> helped, typed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, what, name;
    words >> hash >> what >> name;
    std::smatch match;
    if (hash == "#" && what == "HELP")
      EXPECT_TRUE(helped.insert(name).second) << line;
    else if (hash == "#" && what == "TYPE")
      EXPECT_TRUE(helped.contains(name) && typed.insert(name).second &&
                  (line.ends_with(name.ends_with("_total") ? " counter" : " gauge")))
          << line;
    else if (std::regex_match(line, match, sample) && typed.contains(match[1]))
      samples[match[1].str() + match[2].str()] = match[3];
    else
      ADD_FAILURE() << line;
  }
  EXPECT_TRUE(text.ends_with('\n'));
  return samples;
}

TEST(PrometheusFile, TellsTheStateAfterEachStep) {
  const TestDirectory directory;
  const auto path = directory.path() / "zeepo.prom";
  PrometheusFile file(path);
  file.write({{"event", "plan"}, {"dtype", "bf16"}, {"stage", 2}, {"world_size", 4}});
  EXPECT_FALSE(std::filesystem::exists(path));
  file.write(step_event(1, 2.5));
  file.write(eval_event(1, 3.5));
  file.write({{"event", "checkpoint"}, {"step", 1}, {"path", "x"}});
  file.write({{"event", "fault"}, {"step", 1}, {"what", "checkpoint"}, {"message", "m"}});
  Event second = step_event(2);
  second["loss"] = nullptr;
  file.write(second);
  auto samples = samples_in(whole_file(path));
  EXPECT_EQ(samples["zeepo_run_info{dtype=\"bf16\",stage=\"2\",world_size=\"4\"}"], "1");
  EXPECT_EQ(samples["zeepo_step"], "2");
  EXPECT_EQ(samples["zeepo_loss"], "NaN");
  EXPECT_EQ(samples["zeepo_grad_norm"], "0.30000000000000004");
  EXPECT_EQ(samples["zeepo_tokens_total"], "128");
  EXPECT_EQ(samples["zeepo_steps_total"], "2");
  EXPECT_EQ(samples["zeepo_stall_seconds_total{for=\"host\"}"], "0.25");
  EXPECT_EQ(samples["zeepo_memory_bytes{tier=\"device\",kind=\"params\"}"], "1000");
  EXPECT_EQ(samples["zeepo_memory_total_bytes{tier=\"host\"}"], "507");
  EXPECT_EQ(samples["zeepo_eval_loss"], "3.5");
  EXPECT_EQ(samples["zeepo_eval_step"], "1");
  EXPECT_EQ(samples["zeepo_checkpoint_step"], "1");
  EXPECT_EQ(samples["zeepo_checkpoints_total"], "1");
  EXPECT_EQ(samples["zeepo_faults_total"], "1");
  EXPECT_EQ(samples["zeepo_finished"], "0");
  file.write({{"event", "summary"}});
  EXPECT_EQ(samples_in(whole_file(path))["zeepo_finished"], "1");
  EXPECT_TRUE(partial_files_in(directory.path()).empty());
}

TEST(PrometheusFile, APlaceThatCannotBeWrittenIsFoundAtTheStart) {
  const TestDirectory directory;
  EXPECT_TRUE(names(error_text([&] { PrometheusFile(directory.path() / "no" / "z.prom"); }), "--prometheus", "z.prom"));
  EXPECT_TRUE(names(error_text([&] { PrometheusFile{directory.path()}; }), "--prometheus"));
}

}  // namespace
}  // namespace zeepo
