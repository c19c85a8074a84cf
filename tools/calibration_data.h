#pragma once
// Samples on which `coracle quantize` calibrates: rows of a job's training data, or files of feeds.

#include <coracle/framework/ir/program.h>
#include <coracle/quantize/quantize.h>
#include <coracle/train/job/job.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::tools {

// Batches of at most this many rows, because all observed variables of a batch are in memory.
inline constexpr int64_t kCalibrationRows = 16;

// Rows of the job's training data, after its transforms, in a random order that is always the same.
// Their number is at most `samples`, unless the program has a fixed number of rows. Throws the
// errors of the data, and kUnimplemented for a job with states to carry.
CalibrationFeeds SamplesOfJob(const JobConfig& job, const ProgramDesc& program, int64_t samples);

// The rows of the files, in their order, at most `samples`. If the program has a fixed number of
// rows, each batch has so many, and the rows that remain of a file are left out. A file whose
// arrays have LoD, or different numbers of rows, is one batch. Throws the errors of reading a file;
// each call of the result reads the files again.
CalibrationFeeds SamplesOfFiles(const std::vector<std::string>& files, const ProgramDesc& program,
                                int64_t samples);

// Wraps samples and counts the rows of one call.
CalibrationFeeds CountingRows(CalibrationFeeds feeds, std::shared_ptr<int64_t> rows);

}  // namespace coracle::tools
