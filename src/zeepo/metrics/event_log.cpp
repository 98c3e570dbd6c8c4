#include "zeepo/metrics/event_log.h"

#include "zeepo/metrics/named_error.h"

namespace zeepo {

EventLog::EventLog(const std::string& target, GrowingFile::Mode mode)
    : target_(target), file_(named_by(name(), [&] { return GrowingFile(target, mode); })) {}

}  // namespace zeepo
