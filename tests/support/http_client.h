// A connection to a server of this machine, byte by byte, as a browser or an attacker would have it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "zeepo/base/error.h"

namespace zeepo {

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{20, 0};  // a server that hangs fails the test
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw Error("cannot connect to port {}", port);
  }
  ~HttpClient() { ::close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // False when the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Nothing more is sent.
  void end() { ::shutdown(socket_, SHUT_WR); }
  // All until the server closes the connection.
  std::string receive() {
    std::string text;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = ::recv(socket_, buffer, sizeof buffer, 0)) > 0) text.append(buffer, static_cast<std::size_t>(n));
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw Error("the server neither answers nor closes");
    return text;
  }

 private:
  int socket_;
};

struct HttpAnswer {
  int status = 0;
  std::string headers, body;
};

// `headers`: lines with their ends.
inline HttpAnswer http_get(int port, const std::string& path, const std::string& headers = "",
                           const std::string& host = "localhost") {
  HttpClient client(port);
  client.send(fmt::format("GET {} HTTP/1.1\r\nHost: {}:{}\r\n{}\r\n", path, host, port, headers));
  const std::string text = client.receive();
  const std::size_t end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || end == std::string::npos) return {0, "", text};
  return {std::stoi(text.substr(9, 3)), text.substr(0, end + 2), text.substr(end + 4)};
}

}  // namespace zeepo
