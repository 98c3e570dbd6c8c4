#include "zeepo/train/trace_file.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/say.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {

TraceFile::TraceFile(const std::filesystem::path& path, Communicator& communicator)
    : communicator_(communicator), path_(path), timeline_(spans_of(communicator)) {
  if (communicator.rank() != 0) return;
  try {
    const OutputFile trial(path);
  } catch (const Error& fault) {
    throw Error("--trace: {}", fault.what());
  }
}

std::size_t TraceFile::spans_of(Communicator& communicator) {
  const auto ranks = gather_texts(communicator, "");  // all are here
  return std::max<std::size_t>(1, Timeline::kMostSpans / ranks.size());
}

void TraceFile::write() {
  const auto events = gather_texts(communicator_, timeline_.events(communicator_.rank()));
  if (communicator_.rank() != 0) return;
  OutputFile file(path_);
  file.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (std::size_t rank = 0; rank < events.size(); ++rank) {
    if (rank > 0) file.write(",\n");
    file.write(events[rank]);
  }
  file.write("]}\n");
  file.commit();
  const auto [first, last] = timeline_.steps();
  const std::string path = path_.string();
  if (first > last)
    say("trace in {}: the end of the last step, which has more spans than a trace may hold\n", path);
  else
    say("trace in {}: steps {} to {}; open it at https://ui.perfetto.dev\n", path, first, last);
}

}  // namespace zeepo
