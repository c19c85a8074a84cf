// Trains a job as one of the processes that mpirun or srun has started together, or alone.
//   mpirun -n 2 train_ranks JOB.pbtxt OUTPUT_DIRECTORY
#include <coracle/train.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_ranks JOB.pbtxt OUTPUT_DIRECTORY\n");
    return 2;
  }
  // An exit code other than 0 ends the other ranks.
  try {
    coracle::JobConfig job = coracle::ReadJob(argv[1]);
    job.output_dir = argv[2];
    coracle::TrainOptions options;
    const coracle::Launched launched = coracle::FindLaunched();
    if (launched.size > 1) options.communicator = coracle::LoadMpiCommunicator(120);
    const coracle::TrainResult result = coracle::RunJob(job, options);
    if (launched.rank == 0)
      std::printf("loss %.4f after %d steps\n", result.loss, static_cast<int>(result.steps));
    return 0;
  } catch (const coracle::Error& error) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  }
}
