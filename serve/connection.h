#pragma once
// A connection with limits: how long a request may take to arrive, and how large its head may be.

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace coracle::serve {

class Connection : public httplib::Stream {
 public:
  Connection(socket_t socket, uint64_t max_head);

  // Waits for the first byte of a request. False: the client closed the connection, nothing came in
  // time, or `stopping` became true.
  bool WaitForRequest(double seconds, const std::atomic<bool>& stopping);
  // From here on, reads fail after that time, and in a head after max_head bytes.
  void BeginHead(double seconds);
  void BeginBody(double seconds);
  // Whether a read has failed since BeginHead.
  bool FailedToRead() const { return failed_; }
  // Sends what is left, and closes.
  void Close();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool Wait(short events, Clock::time_point until) const;
  void SetDeadline(double seconds);

  const socket_t socket_;
  const uint64_t max_head_;
  Clock::time_point deadline_;
  uint64_t head_left_ = 0;
  bool in_head_ = false;
  bool failed_ = false;
  char buffer_[16384];
  size_t begin_ = 0, end_ = 0;  // of what was received and not read yet
};

}  // namespace coracle::serve
