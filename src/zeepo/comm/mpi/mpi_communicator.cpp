#include "zeepo/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "zeepo/base/error.h"
#include "zeepo/comm/mpi/abort.h"
#include "zeepo/comm/mpi/mpi_check.h"
#include "zeepo/comm/rank_sum.h"

namespace zeepo {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{64} << 20;  // MPI counts with int
constexpr int kLooksBeforeSleep = 50;
constexpr int kDataTag = 0, kTextTag = 1;
constexpr auto kSleepForRanks = std::chrono::microseconds(100), kSleepForData = std::chrono::microseconds(20);

// Calls f(offset, length) for each chunk.
template <class F>
void for_chunks(std::size_t bytes, F&& f) {
  for (std::size_t at = 0; at < bytes; at += kChunkBytes) f(at, static_cast<int>(std::min(kChunkBytes, bytes - at)));
}

void copy(ConstView from, View to) {
  if (from.data != to.data && to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace

MpiCommunicator::MpiCommunicator()
    : termination_(world_.local_ranks()),
      heart_(world_, position_, termination_),
      headers_(static_cast<std::size_t>(world_.size())) {}

void MpiCommunicator::all_gather(CpuStream&, ConstView shard, View full, const Label& label) {
  const Call call = all_gather_call(size(), shard, full, label);
  enter(call);
  copy(shard, part_of(full, rank(), size()));
  gather(call, full);
  position_.leave();
}

void MpiCommunicator::reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                                     const SumInto& how) {
  const Call call = reduce_scatter_call(size(), full, scratch, shard, label, how);
  enter(call);
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    send(part_of(full, to, size()), to);
  }
  meet(call);
  scratch = {scratch.data, full.dtype, full.shape};
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    receive(part_of(scratch, from, size()), from);
  }
  wait();
  std::vector<ConstView> parts;
  for (int from = 0; from < size(); ++from)
    parts.push_back(part_of(from == rank() ? full : ConstView(scratch), from, size()));
  sum_in_rank_order(stream, parts, shard, how);
  position_.leave();
}

void MpiCommunicator::all_reduce(CpuStream& stream, View x, const Label& label) {
  const Call call = all_reduce_call(x, label);
  enter(call);
  gathered_.resize(static_cast<std::size_t>(x.elements() * size()));
  const View full{gathered_.data(), DType::f32, {x.elements() * size()}};
  copy(x, part_of(full, rank(), size()));
  gather(call, full);
  std::vector<ConstView> parts;
  for (int from = 0; from < size(); ++from) parts.push_back(part_of(full, from, size()));
  sum_in_rank_order(stream, parts, x);
  position_.leave();
}

void MpiCommunicator::broadcast(CpuStream&, View x, int root, const Label& label) {
  const Call call = broadcast_call(size(), x, root, label);
  enter(call);
  meet(call);  // MPI's own broadcast: all ranks make it, or none
  for_chunks(x.bytes(), [&](std::size_t at, int length) {
    check(MPI_Ibcast(x.as<std::byte>() + at, length, MPI_BYTE, root, world_.work(), &requests_.emplace_back()));
  });
  wait();
  position_.leave();
}

void MpiCommunicator::exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) {
  const bool agreed = continues(header_, call.header);
  agreed ? go_on(call) : enter(call);
  for (const Outgoing& message : out)
    send({message.bytes.data(), DType::u8, {static_cast<std::int64_t>(message.bytes.size())}}, message.to);
  if (!agreed) meet(call);
  for (const Incoming& message : in)
    receive({message.bytes.data(), DType::u8, {static_cast<std::int64_t>(message.bytes.size())}}, message.from);
  wait();
  position_.leave();
}

void MpiCommunicator::agree(const Call& call) {
  enter(call);
  meet(call);
  position_.leave();
}

std::optional<std::string> MpiCommunicator::failure() const {
  if (!heart_.failed()) return std::nullopt;
  return heart_.failure();
}

void MpiCommunicator::finish() {
  const Call call{};
  enter(call);
  meet(call);
  position_.leave();
  heart_.finish();
  if (heart_.failed()) throw Error("{}", heart_.failure());
  termination_.release();
  world_.finalize();
}

void MpiCommunicator::abort_job(const std::string& message) {
  heart_.leave_end_to_caller();
  heart_.fail(message);
  abort_mpi(rank(), message, world_.spread());
}

void MpiCommunicator::go_on(const Call& call) {
  position_.enter(call);
  entered_at_ = Clock::now();
  header_ = call.header;
  if (heart_.failed()) throw Error("{}", heart_.failure());
}

void MpiCommunicator::enter(const Call& call) {
  go_on(call);
  check(MPI_Iallgather(&header_, sizeof header_, MPI_BYTE, headers_.data(), sizeof header_, MPI_BYTE, world_.work(),
                       &meeting_));
}

void MpiCommunicator::meet(const Call& call) {
  wait_until(Expect::ranks, [&] {
    int done = 0;
    check(MPI_Test(&meeting_, &done, MPI_STATUS_IGNORE));
    return done != 0;
  });
  if (const int different = first_different(headers_)) throw_mismatch_of_all(call, different);
}

// Every rank comes here, since all have the same headers. Who has sent data must not go on before they have been taken.
void MpiCommunicator::throw_mismatch_of_all(const Call& call, int different) {
  std::vector<Text> all(headers_.size());
  Text& own = all[static_cast<std::size_t>(rank())];
  call.what.copy(own.data(), own.size() - 1);
  for (int to = 0; to < size(); ++to)
    if (to != rank())
      check(MPI_Isend(own.data(), sizeof own, MPI_BYTE, to, kTextTag, world_.work(), &requests_.emplace_back()));
  for (int from = 0; from < size(); ++from)
    if (from != rank()) take_back(from, all[static_cast<std::size_t>(from)]);
  wait();
  position_.leave();
  const auto at = static_cast<std::size_t>(different);
  throw_mismatch(different, {headers_[at], all[at].data()}, {headers_[0], all[0].data()});
}

// Messages of one rank are found in the order in which they were sent.
void MpiCommunicator::take_back(int from, Text& text) {
  std::vector<std::byte> thrown_away;
  for (int tag = kDataTag; tag != kTextTag;) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    wait_until(Expect::data, [&] {
      int found = 0;
      check(MPI_Improbe(from, MPI_ANY_TAG, world_.work(), &found, &message, &status));
      return found != 0;
    });
    tag = status.MPI_TAG;
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes));
    if (tag == kDataTag) thrown_away.resize(static_cast<std::size_t>(bytes));
    void* const to = tag == kDataTag ? static_cast<void*>(thrown_away.data()) : text.data();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Imrecv(to, bytes, MPI_BYTE, &message, &request));
    wait_until(Expect::data, [&] {
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      return done != 0;
    });
  }
}

void MpiCommunicator::send(ConstView x, int to) {
  for_chunks(x.bytes(), [&](std::size_t at, int length) {
    check(MPI_Isend(x.as<std::byte>() + at, length, MPI_BYTE, to, kDataTag, world_.work(), &requests_.emplace_back()));
  });
}

void MpiCommunicator::receive(View x, int from) {
  for_chunks(x.bytes(), [&](std::size_t at, int length) {
    check(
        MPI_Irecv(x.as<std::byte>() + at, length, MPI_BYTE, from, kDataTag, world_.work(), &requests_.emplace_back()));
  });
}

void MpiCommunicator::gather(const Call& call, View full) {
  for (int step = 1; step < size(); ++step) send(part_of(full, rank(), size()), (rank() + step) % size());
  meet(call);
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    receive(part_of(full, from, size()), from);
  }
  wait();
}

void MpiCommunicator::wait() {
  wait_until(Expect::data, [&] {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  });
  requests_.clear();
}

template <class F>
void MpiCommunicator::wait_until(Expect expect, F&& f) {
  const auto sleep = expect == Expect::data ? kSleepForData : kSleepForRanks;
  for (int looks = 0;; ++looks) {
    if (heart_.failed()) throw Error("{}", heart_.failure());
    if (f()) return;
    if (timeout_seconds_ > 0 && Clock::now() - entered_at_ > std::chrono::duration<double>(timeout_seconds_))
      throw_timeout();
    if (looks < kLooksBeforeSleep)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(sleep);
  }
}

void MpiCommunicator::check(int code) {
  if (code != MPI_SUCCESS) give_up(fmt::format("{} while rank {} {}", mpi_text(code), rank(), position_.str()));
}

void MpiCommunicator::throw_timeout() {
  const std::string behind = heart_.ranks_behind();
  if (heart_.failed()) throw Error("{}", heart_.failure());
  give_up(fmt::format("rank {} {} for more than {} s (--timeout): {}", rank(), position_.str(), timeout_seconds_,
                      behind.empty() ? "all ranks have entered the call, but its data do not come"
                                     : "these ranks live but have not entered the call: " + behind));
}

void MpiCommunicator::give_up(const std::string& message) {
  heart_.fail(message);
  throw Error("{}", message);
}

}  // namespace zeepo
