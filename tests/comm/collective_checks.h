// What every backend must give, to the bit: one body for ranks as threads and for ranks under mpirun.
//
// Every rank knows every rank's values, so that each checks its own result against a plain reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "zeepo/comm/call.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

using Bytes = std::vector<std::byte>;

inline float element(ConstView x, std::int64_t i) {
  switch (x.dtype) {
    case DType::bf16: return to_float(x.as<bf16>()[i]);
    case DType::f16: return to_float(x.as<f16>()[i]);
    default: return x.as<float>()[i];
  }
}

inline void set_element(View x, std::int64_t i, float value) {
  switch (x.dtype) {
    case DType::bf16: x.as<bf16>()[i] = from_float<bf16>(value); break;
    case DType::f16: x.as<f16>()[i] = from_float<f16>(value); break;
    default: x.as<float>()[i] = value;
  }
}

// Elements with their memory.
struct Values {
  DType dtype = DType::f32;
  Bytes bytes;

  Values(DType type, std::int64_t n) : dtype(type), bytes(static_cast<std::size_t>(n) * size_of(type)) {}
  // What `rank` brings to the call: values of many sizes, so that another order of the sum gives other bits.
  Values(DType type, std::int64_t n, int rank) : Values(type, n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t mixed = static_cast<std::uint32_t>(i * 31 + rank + 1) * 2654435761u;
      const float scale = static_cast<float>(1 << ((i + rank) % 11));
      set_element(view(), i, scale * (static_cast<float>(mixed >> 8) * 0x1p-23f - 1));
    }
  }
  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  View view() { return {bytes.data(), dtype, {elements()}}; }
  View part(int rank, int ranks) {
    const std::int64_t n = elements() / ranks;
    return {bytes.data() + static_cast<std::size_t>(n * rank) * size_of(dtype), dtype, {n}};
  }
};

// The sum over the ranks of elements [begin, begin + n) of their full views.
inline Values reference_sum(DType dtype, DType result, std::int64_t full, int ranks, std::int64_t begin,
                            std::int64_t n) {
  std::vector<float> total;
  for (int rank = 0; rank < ranks; ++rank) {
    Values values(dtype, full, rank);
    for (std::int64_t i = 0; i < n; ++i) {
      const float value = element(values.view(), begin + i);
      if (rank == 0)
        total.push_back(value);
      else
        total[static_cast<std::size_t>(i)] += value;
    }
  }
  Values sum(result, n);
  for (std::int64_t i = 0; i < n; ++i) set_element(sum.view(), i, total[static_cast<std::size_t>(i)]);
  return sum;
}

inline void expect_same(ConstView got, const Values& expected, const std::string& what) {
  ASSERT_EQ(got.bytes(), expected.bytes.size()) << what;
  EXPECT_TRUE(got.bytes() == 0 || std::memcmp(got.data, expected.bytes.data(), got.bytes()) == 0) << what;
}

inline void check_all_gather(Communicator& comm, CpuStream& stream, DType dtype, std::int64_t n, bool in_place) {
  const std::string what = fmt::format("all-gather {} of {} ranks, {}", n, comm.size(), name_of(dtype));
  Values full(dtype, n * comm.size()), expected(dtype, 0);
  for (int rank = 0; rank < comm.size(); ++rank)
    for (const std::byte byte : Values(dtype, n, rank).bytes) expected.bytes.push_back(byte);
  Values own(dtype, n, comm.rank());
  const View place = full.part(comm.rank(), comm.size());
  if (in_place && n > 0) std::memcpy(place.data, own.bytes.data(), own.bytes.size());
  comm.all_gather(stream, in_place ? place : own.view(), full.view(), {what, n});
  expect_same(full.view(), expected, what);
}

inline void check_reduce_scatter(Communicator& comm, CpuStream& stream, DType dtype, DType result, std::int64_t n,
                                 bool in_place) {
  const std::string what =
      fmt::format("reduce-scatter {} of {} ranks, {} into {}", n, comm.size(), name_of(dtype), name_of(result));
  const std::int64_t whole = n * comm.size();
  Values full(dtype, whole, comm.rank()), scratch(dtype, whole), shard(result, n);
  const View out = in_place ? full.part(comm.rank(), comm.size()) : shard.view();
  comm.reduce_scatter(stream, full.view(), scratch.view(), out, {what, n});
  expect_same(out, reference_sum(dtype, result, whole, comm.size(), n * comm.rank(), n), what);
}

// Onto a sum that is there: it comes first, then the ranks in order; rounded at the end.
inline void check_reduce_onto(Communicator& comm, CpuStream& stream, DType dtype, DType rounded_to, std::int64_t n) {
  const std::string what = fmt::format("reduce-scatter {} of {} ranks, {} onto fp32 rounded to {}", n, comm.size(),
                                       name_of(dtype), name_of(rounded_to));
  const std::int64_t whole = n * comm.size();
  Values full(dtype, whole, comm.rank()), scratch(dtype, whole), sum(DType::f32, n, 100), expected(DType::f32, n, 100);
  comm.reduce_scatter(stream, full.view(), scratch.view(), sum.view(), {what, n}, {true, rounded_to});
  for (int rank = 0; rank < comm.size(); ++rank) {
    Values part(dtype, whole, rank);
    for (std::int64_t i = 0; i < n; ++i) expected.view().as<float>()[i] += element(part.view(), n * comm.rank() + i);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    float& value = expected.view().as<float>()[i];
    if (rounded_to == DType::bf16) value = to_float(from_float<bf16>(value));
    if (rounded_to == DType::f16) value = to_float(from_float<f16>(value));
  }
  expect_same(sum.view(), expected, what);
}

inline void check_all_reduce(Communicator& comm, CpuStream& stream, std::int64_t n) {
  const std::string what = fmt::format("all-reduce {} of {} ranks", n, comm.size());
  Values x(DType::f32, n, comm.rank());
  comm.all_reduce(stream, x.view(), {what, n});
  expect_same(x.view(), reference_sum(DType::f32, DType::f32, n, comm.size(), 0, n), what);
}

inline void check_broadcast(Communicator& comm, CpuStream& stream, DType dtype, std::int64_t n, int root) {
  const std::string what = fmt::format("broadcast {} from {} of {}", n, root, comm.size());
  Values x(dtype, n, comm.rank());
  comm.broadcast(stream, x.view(), root, {what, n});
  expect_same(x.view(), Values(dtype, n, root), what);
}

// Two messages of unlike sizes to every other rank, and from it: they come in the order in which they were sent.
inline void check_exchange(Communicator& comm) {
  const auto message = [](int from, int to, int number) {
    Bytes bytes(static_cast<std::size_t>(1000 * (from + 1) + 10 * to + number));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + bytes.size());
    return bytes;
  };
  std::vector<Bytes> sent, received;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int other = 0; other < comm.size(); ++other)
    for (int number = 0; number < 2 && other != comm.rank(); ++number) {
      sent.push_back(message(comm.rank(), other, number));
      received.emplace_back(message(other, comm.rank(), number).size());
    }
  std::size_t at = 0;
  for (int other = 0; other < comm.size(); ++other)
    for (int number = 0; number < 2 && other != comm.rank(); ++number, ++at) {
      out.push_back({other, sent[at]});
      in.push_back({other, received[at]});
    }
  comm.exchange(exchange_call(WireType::int8, ExchangePhase::gather_within, 12, {"messages", 5}), out, in);
  at = 0;
  for (int other = 0; other < comm.size(); ++other)
    for (int number = 0; number < 2 && other != comm.rank(); ++number, ++at)
      EXPECT_EQ(received[at], message(other, comm.rank(), number)) << other << " " << number;
}

// All but check_exchange, over dtypes and sizes.
inline void check_collectives(Communicator& comm) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const DType floats[] = {DType::f32, DType::bf16, DType::f16};
  for (const std::int64_t n : {0, 1, 7, 2051})
    for (const DType dtype : floats) {
      for (const bool in_place : {false, true}) {
        check_all_gather(comm, stream, dtype, n, in_place);
        check_reduce_scatter(comm, stream, dtype, dtype, n, in_place);
      }
      for (const DType result : floats) check_reduce_scatter(comm, stream, dtype, result, n, false);
      for (const DType rounded_to : floats) check_reduce_onto(comm, stream, dtype, rounded_to, n);
      for (int root = 0; root < comm.size(); ++root) check_broadcast(comm, stream, dtype, n, root);
    }
  for (const std::int64_t n : {0, 1, 5, 100}) check_all_reduce(comm, stream, n);
}

}  // namespace zeepo
