// Stopping between two steps because of a signal (base/stop_request.h): to any rank, and then on all of them.
#pragma once

#include "zeepo/base/stop_request.h"
#include "zeepo/zero/engine_options.h"

namespace zeepo {

// Exit codes of a run that was told to end and has saved a checkpoint, as launchers know it (EX_TEMPFAIL); and of one
// that came to its end, but whose last checkpoint could not be written.
inline constexpr int kStoppedAndSaved = 75, kLastSaveFailed = 3;

// What this rank gives Engine::step() to tell the others.
inline float stop_note() { return static_cast<float>(StopRequest::signal()); }

// The signal that asks the job to stop after the step with this result; 0: none. The same on all ranks.
inline int stop_asked_after(const StepResult& result) { return static_cast<int>(result.note); }

}  // namespace zeepo
