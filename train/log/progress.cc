#include <coracle/framework/base/text.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/progress.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

std::string Results(const TrainPlan& plan, const StepReport& report) {
  std::string text = fmt::format("{}={}", plan.loss_name, FormatShort(report.MeanLoss()));
  const std::vector<double>& metrics = report.MeanMetrics();
  for (size_t i = 0; i < metrics.size(); ++i)
    text += fmt::format(" {}={}", plan.metric_names[i], FormatShort(metrics[i]));
  return text;
}

// Returns " lr=0.01", or " lr=0.01,0.001" for several rates.
std::string Rates(const std::vector<NamedValue>& rates) {
  std::string text;
  for (const NamedValue& rate : rates)
    text += (text.empty() ? " lr=" : ",") + FormatNumber(rate.value);
  return text;
}

std::string EpochOf(const TrainPlan& plan, int64_t epoch) {
  int64_t epochs = (plan.total_steps - 1) / plan.steps_per_epoch + 1;
  return fmt::format("epoch {}/{}", epoch + 1, epochs);
}

// Returns "" if there is not enough room for a useful bar.
std::string Bar(double part, int room) {
  const int width = std::min(room - 3, 20);
  if (width < 5) return "";
  auto full = static_cast<size_t>(std::lround(part * width));
  auto all = static_cast<size_t>(width);
  std::string bar(std::min(full, all), '=');
  if (bar.size() < all) bar += '>';
  bar.resize(all, ' ');
  return " [" + bar + "]";
}

// Returns " wait 2%/5%" for a few ranks (one number each), and the range " wait 2%..9%" for
// many ranks.
std::string Waits(const std::vector<double>& waited) {
  constexpr size_t kFew = 4;
  if (waited.empty()) return "";
  const auto [least, most] = std::minmax_element(waited.begin(), waited.end());
  if (waited.size() > kFew) return fmt::format(" wait {:.0f}%..{:.0f}%", 100 * *least, 100 * *most);
  std::string text;
  for (const double share : waited)
    text += fmt::format("{}{:.0f}%", text.empty() ? " wait " : "/", 100 * share);
  return text;
}

}  // namespace

Progress::Progress(std::ostream& out, bool terminal, int width)
    : out_(out), terminal_(terminal), width_(std::max(width, 20)) {}

double Progress::Rate() const {
  double seconds = Seconds(step_end_ - start_) - away_;
  return seconds > 0 ? static_cast<double>(samples_) / seconds : 0;
}

void Progress::Start(const TrainPlan& plan) {
  if (!plan.note.empty()) Line(plan.note);
  if (!plan.resumed_from.empty())
    Line(fmt::format("resumed {} at step {}", plan.resumed_from, plan.first_step));
  Line(fmt::format("{}: {} parameters, {}, {} steps of {} per epoch", plan.job, plan.parameters,
                   plan.data, plan.total_steps, plan.steps_per_epoch));
  single_step_ = plan.total_steps - plan.first_step <= 1;
  start_ = step_end_ = paused_ = Clock::now();
}

void Progress::Step(const StepReport& report) {
  step_end_ = paused_ = Clock::now();
  samples_ += report.rows;
  ++steps_;
  if (report.step == report.plan.first_step + 1) Warm();
  bool draw = report.show || (terminal_ && steps_ > 0 && Seconds(step_end_ - drawn_) > 0.1);
  if (!draw) return;
  drawn_ = step_end_;
  const TrainPlan& plan = report.plan;
  double per_step =
      (Seconds(step_end_ - start_) - away_) / static_cast<double>(std::max<int64_t>(steps_, 1));
  double left = per_step * static_cast<double>(plan.total_steps - report.step);
  const std::string head = EpochOf(plan, report.epoch), results = Results(plan, report);
  const std::string rate = fmt::format("{} samples/s", HumanCount(static_cast<uint64_t>(Rate())));
  const std::string eta = " ETA " + FormatDuration(left);
  if (report.show) {
    Line(fmt::format("{} step {}/{} {}{} {}{}{}{}", head, report.step, plan.total_steps, results,
                     Rates(report.learning_rates), rate, Waits(report.waited), terminal_ ? "" : eta,
                     FormatClips(report.clips)));
  }
  if (terminal_ && report.step < plan.total_steps) Draw(report, head, results, rate + eta);
}

void Progress::Draw(const StepReport& report, const std::string& head, const std::string& results,
                    const std::string& speed) {
  const double part =
      static_cast<double>(report.step) / static_cast<double>(report.plan.total_steps);
  const std::string rest = fmt::format(" {:3.0f}% {} {}", 100 * part, results, speed);
  const int room = width_ - 1 - static_cast<int>(head.size() + rest.size());
  std::string line = PrintableLine(head + Bar(part, room) + rest);
  if (line.size() >= static_cast<size_t>(width_)) {
    auto end = static_cast<size_t>(width_) - 1;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // UTF-8
    line.resize(end);
  }
  out_ << "\r\033[K" << line << std::flush;
  bar_shown_ = true;
}

void Progress::Eval(const EvalReport& report) {
  Line(fmt::format("{} step {}/{} {}{}{}", EpochOf(report.plan, report.epoch), report.step,
                   report.plan.total_steps, report.set, FormatValues(report.values, FormatShort),
                   report.best       ? " (best)"
                   : report.restored ? " (restored)"
                                     : ""));
  for (const ConfusionMatrix& confusion : report.confusions) Table(FormatConfusion(confusion));
  Pause();
}

void Progress::Snapshot(const std::string& path) {
  Line("snapshot " + path);
  Pause();
}

// Excludes the first step from the speed, since it also makes the plan.
void Progress::Warm() {
  if (single_step_) return;
  start_ = step_end_;
  samples_ = steps_ = 0;
  away_ = 0;
}

void Progress::Pause() {
  Clock::time_point now = Clock::now();
  away_ += Seconds(now - paused_);
  paused_ = now;
}

void Progress::Line(const std::string& text) {
  EndBar();
  out_ << PrintableLine(text) << "\n" << std::flush;
}

void Progress::Table(const std::string& text) {
  EndBar();
  out_ << Printable(text) << "\n" << std::flush;
}

void Progress::EndBar() {
  if (bar_shown_) out_ << "\r\033[K" << std::flush;
  bar_shown_ = false;
}

std::string FormatResults(double loss, const std::vector<NamedValue>& metrics,
                          const std::string& loss_name) {
  return fmt::format("{}={}{}", loss_name, FormatNumber(loss), FormatValues(metrics));
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  auto s = static_cast<int64_t>(std::lround(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace coracle::inline internal
