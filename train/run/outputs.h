#pragma once
// What a run writes into its output directory, beside snapshots and logs.

#include <coracle/train/run/directory_lock.h>
#include <coracle/train/run/programs.h>

#include <memory>
#include <vector>

namespace coracle {

// Makes the directories of a job, tries whether they can be written (hours of training should
// not end in a name that cannot be), keeps other runs from them as long as the locks live and
// removes what runs that were killed have left half-written. Throws kIo, and kAlreadyExists
// where another run writes.
std::vector<std::unique_ptr<DirectoryLock>> OpenOutputDirectories(const JobConfig& config);

// Throws kAlreadyExists where the directories of the job hold what another run has written.
void RefuseOtherOutput(const JobConfig& config);
// Removes what another run has written there: programs, models, logs and snapshots. Throws kIo for
// what cannot be removed.
void RemoveOtherOutput(const JobConfig& config);

// Removes a file, or a directory with all in it, if it is there. Throws kIo when it cannot.
void RemoveAll(const std::string& path);

// main.pb, startup.pb, main.txt and, of a text, vocabulary.json, before the first step, for whoever
// looks on. Sets the paths in `result`.
void WritePrograms(const JobConfig& config, const Programs& programs, const DataSource& data,
                   const OpRegistry& ops, TrainResult* result);

// eval.pdmodel and, as the job says, model.pdmodel, with the values of result->scope.
void WriteModels(const JobConfig& config, const Programs& programs, TrainResult* result);

}  // namespace coracle
