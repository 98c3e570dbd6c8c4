// A job in which the last rank fails in the way that the argument names, while the others wait for it or work.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"

namespace {

using namespace zeepo;

void work(std::chrono::seconds time) { std::this_thread::sleep_for(time); }

void fail(std::string_view how, Communicator& comm, CpuStream& stream) {
  if (how == "kill" || how == "kill-at-work") std::raise(SIGKILL);
  if (how == "stop" || how == "stop-at-work") std::raise(SIGSTOP);
  if (how == "stop-in-data")
    std::thread([] {
      work(std::chrono::seconds(1));
      ::kill(::getpid(), SIGSTOP);
    }).detach();
  if (how == "throw") throw Error("the disk is full");
  if (how == "idle") work(std::chrono::seconds(100));
  if (how == "exit") std::exit(0);
  if (how == "mismatch") {
    float x = 0;
    comm.all_reduce(stream, {&x, DType::f32, {1}}, {"another call", 9});
  }
}

void gather(Communicator& comm, CpuStream& stream) {
  std::vector<float> full(std::size_t{1} << 22);
  const std::int64_t n = static_cast<std::int64_t>(full.size()) / comm.size();
  comm.all_gather(stream, {full.data() + n * comm.rank(), DType::f32, {n}},
                  {full.data(), DType::f32, {n * comm.size()}}, {"layer 5", 5});
}

void run(std::string_view how, Communicator& comm) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  float x = 1;
  comm.all_reduce(stream, {&x, DType::f32, {1}}, {"start", 1});
  if (how == "idle") comm.set_progress_timeout(3);
  if (how == "slow") {  // longer than a rank may be silent, and no failure
    if (comm.rank() == 0) work(std::chrono::seconds(13));
  } else if (comm.rank() == comm.size() - 1) {
    fail(how, comm, stream);
  } else if (how.ends_with("at-work")) {
    work(std::chrono::seconds(100));
  }
  do {
    gather(comm, stream);
  } while (how == "stop-in-data");
}

}  // namespace

int main(int, char** argv) {
  const auto comm = make_communicator(detect_launch());
  try {
    run(argv[1], *comm);
    comm->finish();
  } catch (const std::exception& error) {
    comm->abort_job(error.what());
  }
}
