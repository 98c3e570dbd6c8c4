// A connection that ends after so many bytes received, or at a time, whatever the client does.
#pragma once

#include <httplib.h>
#include <poll.h>

#include <array>
#include <chrono>

namespace zeepo {

class BoundedStream final : public httplib::Stream {
 public:
  // Borrows the socket.
  BoundedStream(int socket, std::size_t most_bytes, std::chrono::steady_clock::time_point end);

  bool is_readable() const override { return begin_ < end_of_buffer_ || wait_for(POLLIN); }
  bool is_writable() const override { return wait_for(POLLOUT); }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  // False when the time is over.
  bool wait_for(short what) const;

  int socket_;
  std::size_t bytes_left_;
  std::chrono::steady_clock::time_point end_;
  std::array<char, 4096> buffer_{};  // received and not yet read
  std::size_t begin_ = 0, end_of_buffer_ = 0;
};

}  // namespace zeepo
