#pragma once
// What the outputs of a job's model mean.

#include <coracle/train/job/preprocess.h>
#include <coracle/train/report/report.h>
#include <coracle/train/run/programs.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Finds the meaning of a deployed output from the classes and the label of the job's data, and from
// the way the model computes its loss.
OutputMeaning MeaningOf(const std::string& output, const JobConfig& config,
                        const Programs& programs, const DataSource& data, const Scope& scope);

// Whether the program or the job says that a variable holds a score for each class: a metric of the
// job compares it with labels, or an op reads it as scores or makes scores (OpDef::Scores), as a
// softmax or a loss of classes does. A tensor [N, k] without such a sign may hold anything.
bool HoldsScores(const ProgramDesc& program, const std::string& var, const JobConfig& config);

// What 1 of `target` is in the label that the data gives, if the program computes the target from
// the label alone, by a scale and an offset; 1 for the label itself.
std::optional<double> UnitOfTarget(const JobConfig& config, const ProgramDesc& program,
                                   const std::string& target);

// The variable that the label feeds.
std::string LabelVar(const JobConfig& config);

// The names of the classes of the job's labels; empty if they are numbers.
std::vector<std::string> ClassNamesOf(const JobConfig& config, const DataSource& data);
// Sets the names of the classes in the matrices of metrics that compare with the label.
void NameClasses(const JobConfig& config, const DataSource& data,
                 std::vector<ConfusionMatrix>* confusions);

}  // namespace coracle::inline internal
