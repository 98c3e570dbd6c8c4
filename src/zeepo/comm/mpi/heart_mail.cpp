#include "zeepo/comm/mpi/heart_mail.h"

#include <iterator>

#include "zeepo/comm/mpi/mpi_check.h"

namespace zeepo {

void HeartMail::expect_next() {
  mpi_check(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &receiving_));
}

void HeartMail::open() { expect_next(); }

void HeartMail::close() {
  mpi_check(MPI_Cancel(&receiving_));
  mpi_check(MPI_Wait(&receiving_, MPI_STATUS_IGNORE));
}

std::optional<HeartMail::Received> HeartMail::receive() {
  int done = 0;
  MPI_Status status;
  mpi_check(MPI_Test(&receiving_, &done, &status));
  if (!done) return std::nullopt;
  const Received received{incoming_, status.MPI_SOURCE};
  expect_next();
  return received;
}

void HeartMail::send(int to, const HeartMessage& message) {
  Sending& sending = sending_.emplace_back(Sending{message, MPI_REQUEST_NULL});
  mpi_check(MPI_Isend(&sending.message, sizeof(HeartMessage), MPI_BYTE, to, 0, comm_, &sending.request));
}

void HeartMail::send_to_all(const HeartMessage& message) {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !(message.kind == HeartMessage::Kind::silent && message.rank == rank)) send(rank, message);
}

std::size_t HeartMail::sending() {
  for (auto sending = sending_.begin(); sending != sending_.end();) {
    int done = 0;
    mpi_check(MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE));
    sending = done ? sending_.erase(sending) : std::next(sending);
  }
  return sending_.size();
}

void HeartMail::progress() {
  int done = 0;
  mpi_check(MPI_Request_get_status(receiving_, &done, MPI_STATUS_IGNORE));
}

}  // namespace zeepo
