// The messages between the hearts of the ranks, over a communicator of their own. Used by the heart's thread alone.
//
// One receive is always open. What is sent leaves by itself while somebody asks all_sent() or receive(). Every function
// throws Error when MPI does.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include "zeepo/comm/mpi/mpi_world.h"

namespace zeepo {

struct HeartMessage {
  enum class Kind : std::int32_t { beat, goodbye, silent, failed, question, answer };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;  // the one it is about
  std::int64_t entered = 0;
  char text[480] = {};
};

class HeartMail {
 public:
  explicit HeartMail(const MpiWorld& world) : comm_(world.heart()), rank_(world.rank()), size_(world.size()) {}
  HeartMail(const HeartMail&) = delete;
  HeartMail& operator=(const HeartMail&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int successor() const { return (rank_ + 1) % size_; }
  int predecessor() const { return (rank_ + size_ - 1) % size_; }

  void open();
  void close();  // nothing more is received
  struct Received {
    HeartMessage message;
    int from;
  };
  // The next message, if one has come.
  std::optional<Received> receive();
  void send(int to, const HeartMessage& message);
  // Not to itself, nor to the rank that a message of silence is about.
  void send_to_all(const HeartMessage& message);
  // Messages that MPI still holds.
  std::size_t sending();
  bool all_sent() { return sending() == 0; }
  // Lets MPI move what leaves, without taking what comes.
  void progress();

 private:
  struct Sending {
    HeartMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void expect_next();

  const MPI_Comm comm_;
  const int rank_, size_;
  HeartMessage incoming_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  std::list<Sending> sending_;
};

}  // namespace zeepo
