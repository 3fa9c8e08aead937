// The threads that run kernels on a CPU, one pool for the process. The caller works too, and waits at the end only for
// those that came: a thread that the system has not got round to waking costs nothing.
#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace {

typedef void (*Work)(void* data, int slot);

struct Pool {
  std::mutex state, in_use;
  std::condition_variable wake, left;
  Work work = nullptr;
  void* data = nullptr;
  int next_slot = 0, end_slot = 0, active = 0, threads = 0;

  void serve() {
    std::unique_lock<std::mutex> lock(state);
    for (;;) {
      wake.wait(lock, [&] { return next_slot < end_slot; });
      const int slot = next_slot++;
      ++active;
      lock.unlock();
      work(data, slot);
      lock.lock();
      if (--active == 0) left.notify_all();
    }
  }

  void run(int slots, Work w, void* d) {
    std::unique_lock<std::mutex> mine(in_use, std::defer_lock);
    if (slots <= 1 || !mine.try_lock()) return w(d, 0);  // another thread of the program has the pool: do without
    {
      std::lock_guard<std::mutex> lock(state);
      while (threads < slots - 1) {
        try { std::thread([this] { serve(); }).detach(); } catch (...) { break; }  // fewer will do
        ++threads;
      }
      work = w, data = d, next_slot = 1, end_slot = slots;
    }
    wake.notify_all();
    w(d, 0);
    std::unique_lock<std::mutex> lock(state);
    end_slot = 0;  // too late to come
    left.wait(lock, [&] { return active == 0; });
  }
};

Pool* pool = new Pool;  // never destroyed: its threads may outlive the program's statics
const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });  // a child has none of the threads

}  // namespace

extern "C" void run_in_threads(int slots, Work work, void* data) {
  (void)at_fork;
  pool->run(slots, work, data);
}
