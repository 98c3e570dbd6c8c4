// What a rank tells the others with the losses of a step, in one number: that a signal asks for the end
// (base/stop_request.h), to any rank and then on all of them; and that it has something to report.
#pragma once

#include <cmath>

#include "zeepo/base/stop_request.h"
#include "zeepo/zero/engine_options.h"

namespace zeepo {

// Exit codes of a run that was told to end and has saved a checkpoint, as launchers know it (EX_TEMPFAIL); and of one
// that came to its end, but whose last checkpoint could not be written.
inline constexpr int kStoppedAndSaved = 75, kLastSaveFailed = 3;

// What this rank gives Engine::step(). Of a rank's report that another rank's signal hides the next step's note tells.
inline float step_note(bool to_report) { return static_cast<float>(StopRequest::signal()) + (to_report ? 0.5f : 0); }

// The signal that asks the job to stop after the step with this result; 0: none. The same on all ranks.
inline int stop_asked_after(const StepResult& result) { return static_cast<int>(result.note); }

// Whether some rank has something to report. The same on all ranks.
inline bool report_asked_after(const StepResult& result) { return result.note != std::trunc(result.note); }

}  // namespace zeepo
