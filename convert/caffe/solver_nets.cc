#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/solver.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace coracle::caffe {
namespace {

using proto::caffe::NetState;
using proto::caffe::SolverParameter;

constexpr uint64_t kMaxText = uint64_t{1} << 26;

bool IsWord(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

// The name of test `i`: its stage in Caffe, if no other test has it.
std::string NameOfTest(const SolverParameter& p, int i) {
  const std::string stage =
      i < p.test_state_size() && p.test_state(i).stage_size() > 0 ? p.test_state(i).stage(0) : "";
  bool is_own = IsWord(stage) && stage != "deploy" && stage != "test";
  for (int k = 0; k < p.test_state_size(); ++k)
    is_own &= k == i || p.test_state(k).stage_size() == 0 || p.test_state(k).stage(0) != stage;
  return is_own ? stage : fmt::format("test_{}", i);
}

NetState StateOf(const Net& net, proto::caffe::Phase phase, const ImportOptions& options) {
  NetState state = net.state;
  state.set_phase(phase);
  for (const std::string& stage : options.stages) state.add_stage(stage);
  return state;
}

Net ReadNet(const SolverText& s, const std::string& path, const char* field,
            const std::string& name, Notes* notes, int index = -1) {
  const std::string file = FindFile(name, path);
  if (file.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: {}: file {} does not exist in the working directory, next to the "
                            "solver's text or above it",
                            s.Where(field, index), field, Quote(name, 300)));
  }
  if (file != name) notes->push_back(fmt::format("{}: {}", field, file));
  return ParseNet(ReadFile(file, kMaxText), file);
}

Net FromParam(const SolverText& s, const std::string& path, const char* field,
              const proto::caffe::NetParameter& param, int index = -1) {
  return UpgradeNet(param, path, s.Where(field, index));
}

// Throws unless the solver has one net for training, and as many tests as its fields say.
void CheckNumbers(const SolverText& s, const std::string& path, bool generic) {
  const SolverParameter& p = s.def;
  const int train_nets =
      p.has_net() + p.has_net_param() + p.has_train_net() + p.has_train_net_param();
  if (train_nets != 1 && !(train_nets == 2 && (p.has_train_net() || p.has_train_net_param()))) {
    ThrowInvalid(fmt::format(
        "{}: one net for training must be given, in net, net_param, train_net or train_net_param, "
        "got {}",
        path, train_nets));
  }
  const int own = p.test_net_size() + p.test_net_param_size(), sets = p.test_iter_size();
  if (sets < own || (sets > own && !generic)) {
    s.Fail("test_iter",
           fmt::format("must be given once for each test net, got {} for {}", sets, own));
  }
  if (sets > 0 && p.test_interval() < 1)
    s.Fail("test_interval", fmt::format("must be positive, got {}", p.test_interval()));
  if (p.test_state_size() > 0 && p.test_state_size() != sets) {
    s.Fail("test_state", fmt::format("must be given for each of {} test nets or for none, got {}",
                                     sets, p.test_state_size()));
  }
}

}  // namespace

// The states of the nets, as in Caffe's solver.cpp (InitTrainNet and InitTestNets): separate test
// nets, and for further test_iter the net of both phases. Without any test, that net gives the
// deployed outputs.
SolverNets ReadSolverNets(const SolverText& s, const std::string& path,
                          const ImportOptions& options, Notes* notes) {
  const SolverParameter& p = s.def;
  const bool generic = p.has_net() || p.has_net_param();
  CheckNumbers(s, path, generic);
  SolverNets result;
  std::deque<Net>& nets = result.nets;
  if (generic)
    nets.push_back(p.has_net_param() ? FromParam(s, path, "net_param", p.net_param())
                                     : ReadNet(s, path, "net", p.net(), notes));
  if (p.has_train_net_param())
    nets.push_back(FromParam(s, path, "train_net_param", p.train_net_param()));
  else if (p.has_train_net())
    nets.push_back(ReadNet(s, path, "train_net", p.train_net(), notes));
  result.train = &nets.back();
  const size_t first_test = nets.size();
  for (int i = 0; i < p.test_net_param_size(); ++i)
    nets.push_back(FromParam(s, path, "test_net_param", p.test_net_param(i), i));
  for (int i = 0; i < p.test_net_size(); ++i)
    nets.push_back(ReadNet(s, path, "test_net", p.test_net(i), notes, i));

  NetInState train{result.train, StateOf(*result.train, proto::caffe::TRAIN, options)};
  train.state.MergeFrom(p.train_state());
  result.states.push_back(std::move(train));
  const int sets = p.test_iter_size();
  result.tests = static_cast<size_t>(sets);
  for (int i = 0; i < std::max(sets, 1); ++i) {
    const size_t own = first_test + static_cast<size_t>(i);
    const Net& net = own < nets.size() ? nets[own] : generic ? nets.front() : *result.train;
    NetInState test{&net, StateOf(net, proto::caffe::TEST, options)};
    if (p.test_state_size() > 0) test.state.MergeFrom(p.test_state(i));
    if (sets > 1) test.stage = NameOfTest(p, i);
    result.states.push_back(std::move(test));
  }
  return result;
}

}  // namespace coracle::caffe
