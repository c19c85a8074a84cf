// A user's program that includes convert.h and train.h and says `using namespace coracle`: names of
// its own, options by designated initialisers, clips in any holder. That this file compiles is most
// of the test.

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"

#include <coracle/convert.h>
#include <coracle/train.h>
#include <gtest/gtest.h>

#include <memory>

using namespace coracle;  // NOLINT: as users do

// Names that programs of the field have for things of their own.
struct Action {};
struct Body {};
struct Branch {};
struct Cell {};
struct Column {};
struct Environment {};
struct Fans {};
struct Goal {};
struct Log {};
struct Logger {};
struct Model {};
struct Network {};
struct Problem {};
struct Snapshot {};
struct Training {};
struct Trainer {};
struct Value {};
struct Window {};
enum class LogLevel { kLow };
double Min(double a, double b) { return a < b ? a : b; }
double Max(double a, double b) { return a < b ? b : a; }
double Exp(double x) { return x; }
double Floor(double x) { return x; }

namespace public_names_test {

template <class... T>
constexpr size_t Count() {
  return sizeof...(T);
}

TEST(PublicNames, LeaveTheUsersTheirs) {
  EXPECT_EQ((Count<Action, Body, Branch, Cell, Column, Environment, Fans, Goal, Log, Logger, Model,
                   Network, Problem, Snapshot, Training, Trainer, Value, Window, LogLevel>()),
            19u);
  EXPECT_EQ(Min(1, 2) + Max(1, 2) + Exp(1) + Floor(1), 5);
}

// A formula of one's own finds the functions of schedule values by their argument.
class Halving : public LrSchedule {
 public:
  double At(int64_t t) const override { return 1 / (1 + double(t)); }
  Variable Append(const Variable& t) const override { return Min(Exp(t * 0.0), 1 / (t + 1)); }
};

class MyClip : public BaseErrorClipAttr {
 public:
  void AppendClipOp(BlockDesc&, const std::string&) const override {}
};

TEST(PublicNames, ErrorClipsHoweverTheyAreHeld) {
  ProgramDesc program;
  VarDesc& var = program.Root().Var("x");
  const auto own = std::make_shared<MyClip>();
  var.SetErrorClip(own);
  EXPECT_EQ(var.error_clip(), own);
  var.SetErrorClip(std::shared_ptr<const MyClip>(own));
  EXPECT_EQ(var.error_clip(), own);
  var.SetErrorClip(ErrorClipPtr(own));
  EXPECT_EQ(var.error_clip(), own);
  var.SetErrorClip(std::static_pointer_cast<BaseErrorClipAttr>(own));
  EXPECT_EQ(var.error_clip(), own);
  var.SetErrorClip(MyClip());
  EXPECT_NE(var.error_clip(), nullptr);
  var.SetErrorClip(nullptr);
  EXPECT_EQ(var.error_clip(), nullptr);
  const FcOptions options = {.size = 3, .error_clip = own};
  EXPECT_EQ(options.error_clip.get(), own);
  EXPECT_EQ(FcOptions{.error_clip = nullptr}.error_clip.get(), nullptr);
  static_assert(!std::is_convertible_v<int, ErrorClip>);
  static_assert(!std::is_convertible_v<std::shared_ptr<int>, ErrorClip>);
}

TEST(PublicNames, OptionsByDesignatedInitialisers) {
  EXPECT_EQ(BackwardOptions{.parameter_list = {"w"}}.parameter_list.size(), 1u);
  EXPECT_EQ(MinimizeOptions{.no_grad_set = {"w"}}.no_grad_set.size(), 1u);
  EXPECT_EQ(RecomputeOptions{.memory_budget = 5}.memory_budget, 5u);
  EXPECT_EQ(TrainOptions{.resume = true}.resume_from, "");
  EXPECT_EQ(CompileOptions{.profile = true}.max_plans, 16u);
  EXPECT_EQ(JobConfig{.model = "m.pbtxt"}.model_text, "");
  EXPECT_EQ(CheckGradientOptions{.loss = "l"}.wrt.size(), 0u);
}

TEST(PublicNames, FunctionsOfEveryPart) {
  EXPECT_NE(&DenseNames, nullptr);
  EXPECT_NE(&PrintProgram, nullptr);
  EXPECT_NE(&ExtractProgram, nullptr);
  EXPECT_NE(&QuantizeModel, nullptr);
  EXPECT_NE(&ProgramJson, nullptr);
  EXPECT_NE(&ProgramDot, nullptr);
  EXPECT_NE(&CompareNamed, nullptr);
  EXPECT_NE(&InputNames, nullptr);
  EXPECT_NE(&LoadWeights, nullptr);
  EXPECT_EQ(Halving().At(1), 0.5);
}

}  // namespace public_names_test
