#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace coracle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "libcoracle_mpi.so";

std::optional<int> Number(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  const std::string_view all(text);
  int number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc() || end != all.data() + all.size() || number < 0) return std::nullopt;
  return number;
}

// The shared library, or the program, that this code is in.
fs::path OwnFile() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<void*>(&Number), &info) && info.dli_fname ? info.dli_fname : "";
}

// Paths of the plugin to try, in order; a bare name is left to the dynamic loader.
std::vector<std::string> Candidates() {
  std::vector<std::string> candidates;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    for (const char* directory :
         {"", "../lib/coracle", CORACLE_LIBDIR "/coracle", "../communication"})
      candidates.push_back((program / directory / kPlugin).string());
  }
  candidates.push_back((OwnFile().parent_path() / "coracle" / kPlugin).string());
  candidates.emplace_back(kPlugin);
  return candidates;
}

// If Open MPI does not understand the launcher, each process would run alone, and all would do the
// same work.
void RequireAllRanks(int size) {
  const Launched launched = FindLaunched();
  if (launched.size < 2 || launched.size == size) return;
  const bool slurm = launched.by == "srun";
  ThrowInvalid(fmt::format(
      "{} has started {} processes, and Open MPI knows of {}; start them by {}", launched.by,
      launched.size, size,
      slurm ? "srun --mpi=pmix (srun --mpi=list shows whether it is available), or by mpirun"
            : "the mpirun of Open MPI"));
}

}  // namespace

Launched FindLaunched() {
  constexpr struct {
    const char *rank, *size, *by;
  } kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
                    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
                    {"PMI_RANK", "PMI_SIZE", "PMI"}};
  for (const auto& launcher : kLaunchers) {
    const std::optional<int> rank = Number(launcher.rank), size = Number(launcher.size);
    if (rank && size && *size > 1 && *rank < *size) return {*rank, *size, launcher.by};
  }
  return {};
}

std::shared_ptr<Communicator> LoadMpiCommunicator(double time_limit) {
  void* library = nullptr;
  std::string reason;
  for (const std::string& file : Candidates()) {
    const bool bare = file == kPlugin;
    if (!bare && !fs::exists(file)) continue;
    // RTLD_GLOBAL, because Open MPI loads parts of itself that look for its symbols.
    library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) break;
    if (const char* error = ::dlerror(); reason.empty() && error) reason = error;
  }
  if (!library) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("several processes were launched, but {} cannot be loaded; build with "
                            "-DCORACLE_MPI=ON on a machine with Open MPI (libopenmpi-dev), or "
                            "start one process",
                            kPlugin),
                reason);
  }
  const auto entry = reinterpret_cast<MpiEntry>(::dlsym(library, kMpiEntry));
  const std::string version =
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH);
  const std::shared_ptr<Communicator> communicator(entry ? entry(version.c_str(), time_limit)
                                                         : nullptr);
  if (!communicator)
    ThrowInvalid(fmt::format("{} is not of version {} of Coracle; reinstall it", kPlugin, version));
  RequireAllRanks(communicator->size());
  return communicator;
}

}  // namespace coracle
