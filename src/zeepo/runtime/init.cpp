#include "zeepo/runtime/init.h"

#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"

namespace zeepo {
namespace {

// Never destroyed by the end of the process: a program that leaves without close() has failed, and the launcher says
// so.
Runtime* opened = nullptr;
std::terminate_handler terminate_before = nullptr;

std::string text_of(const std::exception_ptr& thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of a type of its own";
  }
  return "ended by std::terminate";
}

[[noreturn]] void end_all_ranks() { opened->abort_job(text_of(std::current_exception())); }

// Nothing is open from here on, whatever closing does.
std::unique_ptr<Runtime> take_opened() {
  std::set_terminate(terminate_before);
  return std::unique_ptr<Runtime>(std::exchange(opened, nullptr));
}

}  // namespace

Runtime& init(const RuntimeOptions& options) {
  if (opened != nullptr) throw Error("init: a runtime is open already; close() it first");
  opened = new Runtime(options);
  terminate_before = std::set_terminate(end_all_ranks);
  return *opened;
}

Runtime& runtime() {
  if (opened == nullptr) throw Error("runtime: there is none; init() makes it");
  return *opened;
}

AttachedEngine attach(Module& model, const EngineOptions& options) { return AttachedEngine(runtime(), model, options); }

nlohmann::ordered_json close() {
  if (opened == nullptr) throw Error("close: no runtime is open; init() makes one");
  auto closing = take_opened();
  try {
    return closing->close();
  } catch (...) {
    // Tensors may be held that refer to its tiers: it stays as long as the process.
    static auto& failed = *new std::vector<std::unique_ptr<Runtime>>();
    failed.push_back(std::move(closing));
    throw;
  }
}

int run_job(const RuntimeOptions& options, const std::function<void(Runtime&)>& body) {
  int code = 1;
  std::string message;
  try {
    body(init(options));
    close();
    return 0;
  } catch (const UsageError& error) {
    code = 2;
    message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (opened != nullptr) {
    const auto failed = take_opened();
    if (failed->size() > 1) failed->abort_job(message);
  }
  say("{}\n", message);
  return code;
}

}  // namespace zeepo
