#include "zeepo/http/httplib/bounded_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace zeepo {
namespace {

template <class Ask>
void name_address(Ask&& ask, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  if (ask(reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host;
  port = std::atoi(service);
}

}  // namespace

BoundedStream::BoundedStream(int socket, std::size_t most_bytes, Clock::time_point end)
    : socket_(socket), bytes_left_(most_bytes), end_(end) {}

bool BoundedStream::closed_by_client() const {
  pollfd watched{socket_, POLLRDHUP, 0};
  return ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void BoundedStream::linger() {
  ::shutdown(socket_, SHUT_WR);
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (wait_for(POLLIN, end))
    if (::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) <= 0) return;
}

bool BoundedStream::wait_for(short what, Clock::time_point end) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd watched{socket_, what, 0};
    const int result = ::poll(&watched, 1, static_cast<int>(left));
    if (result > 0) return true;
    if (result < 0 && errno != EINTR) return false;
  }
}

ssize_t BoundedStream::read(char* to, std::size_t size) {
  if (begin_ == end_of_buffer_) {
    const std::size_t most = std::min(buffer_.size(), bytes_left_);
    if (most == 0) {  // more than a request may have
      overrun_ = true;
      return -1;
    }
    ssize_t n = -1;
    do {
      if (!wait_for(POLLIN)) {
        late_ = true;
        return -1;
      }
      n = ::recv(socket_, buffer_.data(), most, MSG_DONTWAIT);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK));
    if (n <= 0) return n;
    received_ = true;
    bytes_left_ -= static_cast<std::size_t>(n);
    begin_ = 0;
    end_of_buffer_ = static_cast<std::size_t>(n);
  }
  const std::size_t taken = std::min(size, end_of_buffer_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, taken);
  begin_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t BoundedStream::write(const char* from, std::size_t size) {
  const auto end = write_time_.count() > 0 ? Clock::now() + write_time_ : end_;
  for (;;) {
    if (!wait_for(POLLOUT, end)) return -1;
    const ssize_t n = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    written_ = written_ || n > 0;
    if (n >= 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) return n;
  }
}

void BoundedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  name_address([&](sockaddr* address, socklen_t* size) { return ::getpeername(socket_, address, size); }, ip, port);
}

void BoundedStream::get_local_ip_and_port(std::string& ip, int& port) const {
  name_address([&](sockaddr* address, socklen_t* size) { return ::getsockname(socket_, address, size); }, ip, port);
}

}  // namespace zeepo
