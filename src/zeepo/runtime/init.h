// The short way in for a program of one's own: init() at its start, close() at its end, a model and its engine between.
//
//   zeepo::init();
//   Net model;
//   auto engine = zeepo::attach(model, {.stage = 2});
//   ...
//   zeepo::close();
//
// They stand for one Runtime a process, used by one thread. An exception that nobody catches between the two ends the
// job on all ranks with one line that says what it was.
#pragma once

#include <functional>

#include "zeepo/runtime/runtime.h"

namespace zeepo {

// Throws Error when a runtime is open already. Under mpirun with several ranks a process can do this once.
Runtime& init(const RuntimeOptions& options = {});
// The one that init() has made. These throw Error when there is none.
Runtime& runtime();
AttachedEngine attach(Module& model, const EngineOptions& options = {});
// See Runtime::close().
nlohmann::ordered_json close();

// A whole main(): `body` between init() and close(). What it throws is printed, and ends the job on all ranks. Returns
// what main returns: 0, 2 for a UsageError, 1 for any other.
int run_job(const RuntimeOptions& options, const std::function<void(Runtime&)>& body);

}  // namespace zeepo
