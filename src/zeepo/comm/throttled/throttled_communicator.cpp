#include "zeepo/comm/throttled/throttled_communicator.h"

#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/comm/call.h"

namespace zeepo {

ThrottledCommunicator::ThrottledCommunicator(Communicator& inner, double bytes_per_second)
    : inner_(inner), pace_(bytes_per_second) {
  if (!(bytes_per_second > 0)) throw Error("throttled link: {} bytes a second: must be more than 0", bytes_per_second);
}

void ThrottledCommunicator::take_time(CpuStream& stream, const Label& label, std::int64_t sent_bytes,
                                      const std::function<void()>& call) {
  // Returns when all ranks have come. Their calls may differ: the call itself finds that.
  inner_.broadcast(stream, {nullptr, DType::f32, {0}}, 0, {label.what, 0});
  const auto start = Pace::Clock::now();
  call();
  pace_.take(static_cast<std::size_t>(sent_bytes), start);
}

void ThrottledCommunicator::all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) {
  take_time(stream, label, sent_of(full.bytes(), size()), [&] { inner_.all_gather(stream, shard, full, label); });
}

void ThrottledCommunicator::reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard,
                                           const Label& label, const SumInto& how) {
  take_time(stream, label, sent_of(full.bytes(), size()),
            [&] { inner_.reduce_scatter(stream, full, scratch, shard, label, how); });
}

void ThrottledCommunicator::all_reduce(CpuStream& stream, View x, const Label& label) {
  take_time(stream, label, sent_of(2 * x.bytes(), size()), [&] { inner_.all_reduce(stream, x, label); });
}

void ThrottledCommunicator::broadcast(CpuStream& stream, View x, int root, const Label& label) {
  inner_.broadcast(stream, x, root, label);
}

void ThrottledCommunicator::exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) {
  std::int64_t sent = 0;
  for (const Outgoing& message : out) sent += static_cast<std::int64_t>(message.bytes.size());
  ThreadPool pool(1);
  CpuStream stream(pool);
  take_time(stream, {call.what, call.header.id}, sent, [&] { inner_.exchange(call, out, in); });
}

void ThrottledCommunicator::abort_job(const std::string& message) {
  inner_.abort_job(message);
  std::abort();  // not reached; the compiler does not see that through a virtual call
}

}  // namespace zeepo
