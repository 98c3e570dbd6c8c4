// What the engines share: the pieces that transfers are cut into, and what a result of the kernel means for one.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "zeepo/io/faults.h"

namespace zeepo {

// All pieces of one submit(): it is done when they are, and has failed as soon as one has.
class Submission {
 public:
  explicit Submission(std::size_t pieces) : unfinished_(pieces) {}
  void finish_piece(const std::string& failure = {});
  bool failed() const;
  bool done() const;
  void wait();  // throws Error with the first failure, once no piece is in flight

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t unfinished_;
  std::string failure_;
};

struct Piece {
  IoCall call;  // what is left to do
  std::shared_ptr<Submission> submission;
  int refusals = 0;  // in a row
};

std::vector<Piece> cut_into_pieces(IoDirection direction, std::span<const IoTransfer> transfers,
                                   std::size_t piece_bytes);
IoCompletion completion_of(const std::vector<Piece>& pieces);
// Puts all of them at the end of an engine's queue, or none and throws: nobody waits for what was not queued.
void queue(const std::vector<Piece>& pieces, std::deque<Piece>& to);

// Takes in the kernel's result (bytes, or the negative error number) of a call for piece.call. True: the rest must be
// asked for again. False: the piece is finished, well or not, and its submission knows.
bool advance(Piece& piece, int result);
// Finishes the piece with the Error that wait() will throw.
void fail(const Piece& piece, const std::string& cause);

}  // namespace zeepo
