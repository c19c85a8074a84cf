// One rank of mpi_test: the checks of communicators, and faults of ranks.
//
//   mpi_ranks checks | unlike | late | leaves | gives_up | outlives

#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/test/communication/communicator_checks.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace coracle {
namespace {

// The buffers go while MPI reads them, unless the rank that gives up waits for it.
void GiveUp(Communicator& c) {
  std::vector<float> large(64 << 20, 1.0f);
  c.Barrier();
  const auto pending = c.Start({Kind::kAllReduce,
                                DType::kFloat32,
                                {static_cast<int64_t>(large.size())},
                                large.data(),
                                large.data()});
  if (c.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(45));
    ThrowInvalid("an op fails beside the exchange");
  }
  pending->Wait();
}

void Act(Communicator& c, const std::string& what) {
  if (what == "checks") return CheckExchanges(c);
  std::vector<float> data(8);
  if (what == "unlike") {
    const int64_t count = c.rank() == 1 ? 7 : 8;
    Exchange exchange{Kind::kAllReduce, DType::kFloat32, {count}, data.data(), data.data()};
    exchange.name = "w@GRAD";
    c.Run(exchange);
  }
  if (what == "late") {
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
    c.Barrier();
  }
  if (what == "leaves") {
    if (c.rank() == 1) ThrowInvalid("a fault of its own");
    c.Barrier();
  }
  if (what == "gives_up") GiveUp(c);
  if (what == "outlives") {
    // Its communicator is still there when the others ask for this rank.
    try {
      if (c.rank() == 1) ThrowInvalid("a fault of its own");
      c.Barrier();
    } catch (const Error& error) {
      std::fprintf(stderr, "error: %s\n", error.message().c_str());
    }
  }
}

int Run(const std::string& what) {
  try {
    const auto communicator = LoadMpiCommunicator(1);
    Act(*communicator, what);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.message().c_str());
    ::_exit(1);
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return argc == 2 ? coracle::Run(argv[1]) : 2; }
