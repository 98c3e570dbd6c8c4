#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "zeepo/base/error.h"
#include "zeepo/cli/commands.h"

namespace {

constexpr int kFailure = 1, kUsageError = 2;

int run(int argc, char** argv) {
  CLI::App program("zeepo trains and runs language models that are larger than the memory at hand.", "zeepo");
  program.require_subcommand(1);
  program.set_version_flag("--version", ZEEPO_VERSION);
  program.failure_message(CLI::FailureMessage::simple);
  zeepo::cli::add_train(program);
  zeepo::cli::add_generate(program);
  zeepo::cli::add_tokenize(program);
  program.footer("zeepo COMMAND --help tells the options of a command.");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (program.exit(error) != 0) return kUsageError;
  }
  // What is still buffered must reach the disk or the pipe before the run counts as a success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw zeepo::Error("cannot write to standard output");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const zeepo::UsageError& error) {
    fmt::print(stderr, "zeepo: {}\n", error.what());
    return kUsageError;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "zeepo: out of host memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "zeepo: {}\n", error.what());
  }
  return kFailure;
}
