#pragma once
// The optimizers. Names, defaults and formulas are Paddle's unless a source is given; `coracle ops
// NAME` shows the formula of each update op, `coracle help NAME` the meaning and range of each
// option. All constructors throw kInvalidArgument for values out of range.

#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

namespace coracle {

// Base of optimizers that consist of one op with some state.
class OneOpOptimizer : public Optimizer {
 protected:
  struct State {
    // The slots. If `out` is nullptr, the op only reads the state, a power: after each update it is
    // multiplied by `value`.
    const char *in, *out;
    const char* suffix;   // in the variable's name: see Accumulator
    double value = 0;     // initial value
    bool scalar = false;  // shape [1] instead of the parameter's
  };
  OneOpOptimizer(double learning_rate, std::string type, std::vector<State> state, AttrList attrs,
                 bool needs_rate = true);
  // For the built-in kind whose options struct has that type. Its op, state and attrs are declared
  // with its field table.
  OneOpOptimizer(const std::type_info& type, const void* options);
  void AppendUpdate(const UpdateContext& update) override;
  AttrList& attrs() { return attrs_; }

 private:
  std::string type_;
  std::vector<State> state_;
  AttrList attrs_;
  // Whether the op reads the learning rate even if it is 1.
  bool needs_rate_;
};

// The optimizer for an options struct of this library.
template <class Options>
class OptimizerOf : public OneOpOptimizer {
 public:
  explicit OptimizerOf(const Options& options) : OneOpOptimizer(typeid(Options), &options) {}
};

struct SgdOptions {
  using Makes = OptimizerOf<SgdOptions>;
  double learning_rate = 0.01;
};
using Sgd = OptimizerOf<SgdOptions>;

struct MomentumOptions {
  using Makes = OptimizerOf<MomentumOptions>;
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool use_nesterov = false;
  bool velocity_holds_rate = false;
};
using Momentum = OptimizerOf<MomentumOptions>;

struct LarsMomentumOptions {
  using Makes = OptimizerOf<LarsMomentumOptions>;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double lars_coeff = 0.001;
  double lars_weight_decay = 0.0005;
  double epsilon = 0;
};
using LarsMomentum = OptimizerOf<LarsMomentumOptions>;

struct AdagradOptions {
  using Makes = OptimizerOf<AdagradOptions>;
  double learning_rate = 0.01;
  double epsilon = 1e-6;
  double initial_accumulator_value = 0;
};
using Adagrad = OptimizerOf<AdagradOptions>;

struct DecayedAdagradOptions {
  using Makes = OptimizerOf<DecayedAdagradOptions>;
  double learning_rate = 0.01;
  double decay = 0.95;
  double epsilon = 1e-6;
};
using DecayedAdagrad = OptimizerOf<DecayedAdagradOptions>;

// Zeiler's version has no learning rate, Caffe's does. If the rate is the constant 1, the op does
// not get it.
struct AdadeltaOptions {
  using Makes = OptimizerOf<AdadeltaOptions>;
  double learning_rate = 1;
  double epsilon = 1e-6;
  double rho = 0.95;
};
using Adadelta = OptimizerOf<AdadeltaOptions>;

struct AdamOptions {
  using Makes = OptimizerOf<AdamOptions>;
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;
  bool use_epsilon_hat = false;
};
using Adam = OptimizerOf<AdamOptions>;

struct AdamaxOptions {
  using Makes = OptimizerOf<AdamaxOptions>;
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
using Adamax = OptimizerOf<AdamaxOptions>;

struct RmspropOptions {
  using Makes = OptimizerOf<RmspropOptions>;
  double learning_rate = 0.01;
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0;
  bool centered = false;
};
using Rmsprop = OptimizerOf<RmspropOptions>;

struct FtrlOptions {
  using Makes = OptimizerOf<FtrlOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
  double lr_power = -0.5;
};
using Ftrl = OptimizerOf<FtrlOptions>;

struct LambOptions {
  using Makes = class Lamb;
  double learning_rate = 0.001;
  double lamb_weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  DecayFilter decays = {};
};
class Lamb : public OptimizerOf<LambOptions> {
 public:
  explicit Lamb(const LambOptions& options);

 protected:
  void AppendUpdate(const UpdateContext& update) override;

 private:
  double weight_decay_;
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019): parameter *= 1 - rate *
// weight_decay, then adam.
struct AdamWOptions {
  using Makes = class AdamW;
  double learning_rate = 0.001;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  DecayFilter decays = {};
};
class AdamW : public Adam {
 public:
  explicit AdamW(const AdamWOptions& options);

 protected:
  void AppendUpdate(const UpdateContext& update) override;

 private:
  double weight_decay_;
};

// Chen et al.: "Symbolic Discovery of Optimization Algorithms", 2023.
struct LionOptions {
  using Makes = OptimizerOf<LionOptions>;
  double learning_rate = 0.0001;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};
using Lion = OptimizerOf<LionOptions>;

struct DpsgdOptions {
  using Makes = OptimizerOf<DpsgdOptions>;
  double learning_rate = 0.001;
  double clip = 0.9;
  double batch_size = 0.999;
  double sigma = 1e-8;
};
using Dpsgd = OptimizerOf<DpsgdOptions>;

struct ProximalGdOptions {
  using Makes = OptimizerOf<ProximalGdOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
};
using ProximalGd = OptimizerOf<ProximalGdOptions>;

struct ProximalAdagradOptions {
  using Makes = OptimizerOf<ProximalAdagradOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
};
using ProximalAdagrad = OptimizerOf<ProximalAdagradOptions>;

// Optimizers and learning-rate schedules by name, from attributes as a text gives them; users can
// add more. The built-in optimizers have the names of their ops, and "adamw": "sgd", "momentum",
// "lars_momentum", ...; the schedules are the functions of lr_schedule.h: "step", "noam", ....
// Their attrs are the fields of the options structs, shown by `coracle help NAME`.

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(const Setting& setting)>;

// Registers `kind` for MakeOptimizer, job text and its schema. Process-wide and thread-safe; throws
// kAlreadyExists for a kind that is taken.
void RegisterOptimizer(const std::string& kind, FieldTable fields, OptimizerMaker make);
// Registers a kind whose attrs only the maker knows.
void RegisterOptimizer(const std::string& kind, OptimizerMaker make);
// Registers a kind whose options struct is like those of optimizers.h: Options::Makes is its class.
template <class Options>
void RegisterOptimizer(const std::string& kind, const Fields<Options>& fields) {
  RegisterOptimizer(kind, fields, [fields](const Setting& setting) {
    const Options options = fields.Read(setting.kind, setting);
    return std::make_unique<typename Options::Makes>(fields.Check(setting.kind, options));
  });
}

std::vector<std::string> OptimizerKinds();  // sorted
KindsWithFields OptimizerFields();          // in the order of registration
// Throws kInvalidArgument for an unknown kind or attr (naming the nearest known one), an attr of
// another type, and any value that the optimizer's constructor refuses.
std::unique_ptr<Optimizer> MakeOptimizer(const Setting& setting);

// The same for schedules. A field with the stand_in "learning_rate" takes the optimizer's rate if a
// text omits it.
using LrScheduleMaker = std::function<LrSchedulePtr(const Setting& setting)>;

// An event of a schedule at the steps given by one of its fields.
struct ScheduleEvent {
  std::string field;  // a number of steps, or a list of them
  std::string what;   // "the warm-up ends"
  // If the event ends the schedule, what follows: "the rate stays".
  std::string then = "";
  // A bool field; if it is true, the event does not happen.
  std::string unless = "";
};

void RegisterLrSchedule(const std::string& kind, FieldTable fields, LrScheduleMaker make,
                        std::vector<ScheduleEvent> events = {});
void RegisterLrSchedule(const std::string& kind, LrScheduleMaker make);
template <class Options>
void RegisterLrSchedule(const std::string& kind, const Fields<Options>& fields,
                        LrSchedulePtr (*make)(const Options& options)) {
  RegisterLrSchedule(kind, fields, [fields, make](const Setting& setting) {
    const std::string who = "learning-rate schedule " + setting.kind;
    const Options options = fields.Read(who, setting);
    return make(fields.Check(who, options));
  });
}
KindsWithFields LrScheduleFields();
std::vector<ScheduleEvent> LrScheduleEvents(const std::string& kind);
LrSchedulePtr MakeLrSchedule(const Setting& setting);

}  // namespace coracle
