#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/help_text.h"
#include "zeepo/cli/usage_fault.h"
#include "zeepo/comm/launch.h"

namespace {

constexpr int kFailure = 1;

// Destructors of libraries take memory too (nlohmann's JSON does). Where there is none left, they cannot throw.
[[noreturn]] void end_without_unwinding() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::fputs("zeepo: out of host memory\n", stderr);
    std::_Exit(kFailure);
  } catch (...) {
  }
  std::abort();
}

// CLI11 counts values where people count options.
std::string in_plain_words(const std::string& text) {
  constexpr std::string_view kTooMany = ": At Most 1 required but received ";
  const std::size_t at = text.find(kTooMany), end = text.find('\n', at);
  if (at == std::string::npos) return text;
  const std::size_t count = at + kTooMany.size();
  return text.substr(0, at) + ": is given " + text.substr(count, std::min(end, text.size()) - count) +
         " times, may be given once" + (end == std::string::npos ? "" : text.substr(end));
}

// What CLI11 has to say of an error, or as help, which rank 0 gives for all.
int finish(const CLI::App& program, const CLI::ParseError& error) {
  std::ostringstream out, err;
  const int code = program.exit(error, out, err);
  std::string text = err.str();
  while (text.ends_with('\n')) text.pop_back();
  if (code != 0 && !text.empty()) zeepo::cli::report_usage_fault(in_plain_words(text));
  if (code == 0 && zeepo::detect_launch().rank == 0) std::fputs(zeepo::cli::help_for_stdout(out.str()).c_str(), stdout);
  return code == 0 ? 0 : zeepo::cli::kUsageError;
}

// An empty text is mostly a variable of a script that nobody has set: without this `serve --api-key-file ""` would
// serve without keys. Train's options say so themselves.
void refuse_empty_texts(CLI::App& program) {
  for (CLI::App* command : program.get_subcommands([](CLI::App* one) { return one->get_name() != "train"; }))
    for (CLI::Option* option : command->get_options())
      if (option->get_expected_min() > 0 && option->get_name() != "--prompt")
        option->check([](const std::string& text) {
          return text.empty() ? "must not be empty; leave it out if there is none" : std::string();
        });
}

int run(int argc, char** argv) {
  CLI::App program("zeepo trains and runs language models that are larger than the memory at hand.", "zeepo");
  program.require_subcommand(1);
  program.set_version_flag("--version", ZEEPO_VERSION);
  program.failure_message(CLI::FailureMessage::simple);
  zeepo::cli::add_train(program);
  zeepo::cli::add_generate(program);
  zeepo::cli::add_serve(program);
  zeepo::cli::add_plan(program);
  zeepo::cli::add_probe(program);
  zeepo::cli::add_tokenize(program);
  zeepo::cli::add_inspect(program);
  zeepo::cli::add_export(program);
  zeepo::cli::add_report(program);
  zeepo::cli::add_compare(program);
  refuse_empty_texts(program);
  program.footer("zeepo COMMAND --help tells the options of a command.");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const int code = finish(program, error); code != 0) return code;
  }
  // What is still buffered must reach the disk or the pipe before the run counts as a success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw zeepo::Error("cannot write to standard output");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_without_unwinding);
  std::signal(SIGXFSZ, SIG_IGN);  // past `ulimit -f` a write then fails as on a full disk, and says so
  const zeepo::StopRequest::Signals signals;
  try {
    return run(argc, argv);
  } catch (const zeepo::Stopped& stopped) {
    std::fflush(nullptr);
    if (stopped.exit_code()) return *stopped.exit_code();
    zeepo::StopRequest::end_process(stopped.signal());
  } catch (const zeepo::EndedWith& ended) {
    if (zeepo::detect_launch().rank == 0) zeepo::say("zeepo: {}\n", ended.what());
    return ended.exit_code();
  } catch (const zeepo::UsageError& error) {
    zeepo::cli::report_usage_fault(error.what());
    return zeepo::cli::kUsageError;
  } catch (const std::bad_alloc&) {
    zeepo::say("zeepo: out of host memory\n");
  } catch (const std::exception& error) {
    zeepo::say("zeepo: {}\n", error.what());
  }
  return kFailure;
}
