// A connection that ends after so many bytes received, or at a time, whatever the client does.
#pragma once

#include <httplib.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <utility>

namespace zeepo {

class BoundedStream final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // Borrows the socket.
  BoundedStream(int socket, std::size_t most_bytes, Clock::time_point end);

  // From now on each write, and no longer the whole, has this much time.
  void set_write_time(Clock::duration time) { write_time_ = time; }
  // Whether the client has sent more than it may.
  bool overrun() const { return overrun_; }
  void set_overrun() { overrun_ = true; }
  // Whether the client has sent anything, whether it has taken too long, and whether anything was answered.
  bool received() const { return received_; }
  bool late() const { return late_; }
  bool written() const { return written_; }
  // Notes that the answer begins; true the first time.
  bool begin_answer() { return !std::exchange(answer_begun_, true); }
  bool answer_begun() const { return answer_begun_; }
  // Whether the client has closed its side.
  bool closed_by_client() const;
  // Tells the client that the answer is whole, and takes what it still sends for a moment: a client that is not done
  // sending would else lose the answer.
  void linger();

  bool is_readable() const override { return begin_ < end_of_buffer_ || wait_for(POLLIN); }
  bool is_writable() const override { return write_time_.count() > 0 || wait_for(POLLOUT); }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  // False when the time is over.
  bool wait_for(short what) const { return wait_for(what, end_); }
  bool wait_for(short what, Clock::time_point end) const;

  int socket_;
  std::size_t bytes_left_;
  Clock::time_point end_;
  Clock::duration write_time_{};  // 0: until end_
  bool overrun_ = false, received_ = false, late_ = false, written_ = false, answer_begun_ = false;
  std::array<char, 4096> buffer_{};  // received and not yet read
  std::size_t begin_ = 0, end_of_buffer_ = 0;
};

}  // namespace zeepo
