// SPDX-License-Identifier: BSD-3-Clause
// The out-of-band connection of the two sides: a TCP stream or a socket pair.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace hostnic::verify {

// Thrown for anything that makes going on pointless; main() prints it and exits with status 1.
struct Failure {
  std::string text;
};

// Every call blocks until done and throws Failure when the peer is gone. One thread at a time.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(Channel&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  static Channel listen(const std::string& port);
  // Tries for 20 seconds: the other side may just be starting.
  static Channel connect(const std::string& host, const std::string& port);

  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);

  // Both sides call it with their own value and get the other's.
  template <typename T>
  T exchange(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    T theirs;
    send(std::as_bytes(std::span(&mine, 1)));
    receive(std::as_writable_bytes(std::span(&theirs, 1)));
    return theirs;
  }
  template <typename T>
  std::vector<T> exchange(const std::vector<T>& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> theirs(exchange(mine.size()));
    send(std::as_bytes(std::span(mine)));
    receive(std::as_writable_bytes(std::span(theirs)));
    return theirs;
  }
  // Returns when the other side is there too. `tag` names the place: two sides that went different
  // ways fail instead of going on in confusion.
  void barrier(unsigned tag);
  // The other side has closed (does not block).
  bool peer_gone() const;

 private:
  int fd_;
};

}  // namespace hostnic::verify
