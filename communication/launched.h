#pragma once
// Processes as ranks: whether this one was launched as one of several, and its communicator.

#include <coracle/communication/communicator.h>

#include <memory>
#include <string>

namespace coracle {

// How mpirun, srun or another launcher of MPI started this process, by its environment.
struct Launched {
  int rank = 0, size = 1;
  std::string by = {};  // "mpirun", "srun", "PMI"; "" when this is the only process
};
// Values that are no numbers count as if they were not set.
Launched FindLaunched();

// The communicator of all processes that were launched together, by Open MPI; it initialises MPI,
// and may be made once. It comes from the plugin libcoracle_mpi.so, so that only who uses it needs
// MPI: the directory of the program, lib/coracle beside it, and the directories of the dynamic
// loader are searched. `time_limit`: seconds that Wait waits for other ranks; 0: no limit. Throws
// kNotFound where there is no plugin, kInvalidArgument for one of another version, and where MPI
// knows of another number of processes than FindLaunched. The plugin takes Coracle's symbols from
// the program: one that is linked to a static libcoracle must export them (CMake's ENABLE_EXPORTS,
// -rdynamic).
//
// MPI runs in a thread of its own. When an exchange has failed, its process can only end; it must
// end with an exit code other than 0, by which the launcher ends the other ranks.
std::shared_ptr<Communicator> LoadMpiCommunicator(double time_limit = 0);

// What the plugin exports under this name.
inline constexpr const char* kMpiEntry = "CoracleMpiCommunicator";
using MpiEntry = Communicator* (*)(const char* version, double time_limit);

}  // namespace coracle
