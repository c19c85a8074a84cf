#pragma once
// Threads that begin when they are needed.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace coracle::serve {

class WorkerThreads {
 public:
  explicit WorkerThreads(size_t most) : most_(most) {
    threads_.emplace_back([this] { Work(); });
  }
  ~WorkerThreads() { Finish(); }
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // Runs the task in a thread. It must not throw.
  void Add(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    arrived_.notify_one();
    if (idle_ >= tasks_.size() || threads_.size() >= most_) return;
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::exception&) {
      // No thread, or no memory for it: the threads that are there have more to do.
    }
  }
  // Runs the tasks that wait, and ends the threads.
  void Finish() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      finish_ = true;
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      arrived_.wait(lock, [this] { return finish_ || !tasks_.empty(); });
      --idle_;
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool finish_ = false;
};

}  // namespace coracle::serve
