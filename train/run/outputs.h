#pragma once
// Writes the files of a run's output directory, apart from snapshots and logs.

#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot/directory_lock.h>

#include <memory>
#include <vector>

namespace coracle::inline internal {

// Makes the directories of a job and checks that they can be written, so that hours of training do
// not end in a wrong path. The locks keep other runs out of them while they live. Removes the
// half-written files of runs that were killed. Throws kIo, and kAlreadyExists if another run
// writes there.
std::vector<std::unique_ptr<DirectoryLock>> OpenOutputDirectories(const JobConfig& config);

// Throws kAlreadyExists if the directories of the job hold files of another run.
void RefuseOtherOutput(const JobConfig& config);
// Removes the files of another run there: programs, models, logs and snapshots. Throws kIo if a
// file cannot be removed.
void RemoveOtherOutput(const JobConfig& config);

// Removes a file, or a directory with its contents, if it exists. Throws kIo if that fails.
void RemoveAll(const std::string& path);

// Writes main.pb, startup.pb, main.txt and, for a text, vocabulary.json before the first step, so
// that users can read them during the run. Sets the paths in `result`.
void WritePrograms(const JobConfig& config, const Programs& programs, const DataSource& data,
                   const OpRegistry& ops, TrainResult* result);

// Writes eval.pdmodel and, if the job deploys a model, model.pdmodel, with the values
// of result->scope. A job that quantises writes eval_int8.pdmodel and model_int8.pdmodel, too. Next
// to the deployed model, its file of preprocessing says how `data` became its inputs.
void WriteModels(const JobConfig& config, const Programs& programs, const DataSource& data,
                 const OpRegistry& ops, TrainResult* result);

}  // namespace coracle::inline internal
