#pragma once
// Processes as ranks: whether this process was launched as one of several, and its communicator.

#include <coracle/communication/communicator.h>

#include <memory>
#include <string>

namespace coracle {

// How mpirun, srun or another MPI launcher started this process, according to its environment.
struct Launched {
  int rank = 0, size = 1;
  std::string by = {};  // "mpirun", "srun", "PMI"; "" if this is the only process
};
// Values that are not numbers are ignored.
Launched FindLaunched();

// The communicator of all processes that were launched together, by Open MPI. It initialises MPI,
// and may be made only once. It comes from the plugin libcoracle_mpi.so, so only its users need
// MPI. The plugin is searched in the directory of the program, in ../lib/coracle relative to it,
// and in the directories of the dynamic loader. `time_limit`: seconds that Wait waits for other
// ranks; 0: no limit. Throws kNotFound if there is no plugin, and kInvalidArgument if its version
// differs or if MPI reports another number of processes than FindLaunched. The plugin takes
// Coracle's symbols from the program, so a program linked to a static libcoracle must export them
// (CMake's ENABLE_EXPORTS, -rdynamic).
//
// MPI runs in its own thread. After an exchange has failed, the process can only end. It must end
// with an exit code other than 0, on which the launcher ends the other ranks.
std::shared_ptr<Communicator> LoadMpiCommunicator(double time_limit = 0);

// The function that the plugin exports under this name.
inline constexpr const char* kMpiEntry = "CoracleMpiCommunicator";
using MpiEntry = Communicator* (*)(const char* version, double time_limit);

}  // namespace coracle
