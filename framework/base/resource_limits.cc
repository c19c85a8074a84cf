#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace coracle {
namespace {

std::shared_ptr<ResourceLimits>& CurrentLimits() {
  thread_local std::shared_ptr<ResourceLimits> limits;
  return limits;
}

// Precise to some milliseconds, and cheap enough to be called before each op.
double Now() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

ResourceLimits::ResourceLimits(ResourceOptions options, std::shared_ptr<ResourceLimits> outer)
    : options_(std::move(options)), outer_(std::move(outer)), start_(Now()) {
  if (!(options_.seconds >= 0))
    ThrowInvalid(fmt::format("a time limit must not be negative, got {} s", options_.seconds));
}

void ResourceLimits::StartRun() {
  start_ = Now();
  if (options_.seconds == 0) return;
  for (ResourceLimits* around = this; around; around = around->outer_.get())
    around->run_deadline_ = start_ + options_.seconds;
}

void ResourceLimits::EndRun() {
  for (ResourceLimits* around = this; around; around = around->outer_.get())
    around->run_deadline_ = 0;
}

double ResourceLimits::SecondsOverdue() const {
  const double now = Now(), run = run_deadline_;
  const double own = options_.seconds > 0 ? now - (start_ + options_.seconds) : 0;
  return std::max({0.0, own, run > 0 ? now - run : 0});
}

const std::shared_ptr<ResourceLimits>& ResourceLimits::Current() { return CurrentLimits(); }

ResourceLimits::Refusal ResourceLimits::TryReserve(uint64_t bytes) {
  const uint64_t before = in_use_.fetch_add(bytes);
  const bool wraps = before + bytes < before;
  Refusal refusal;
  if (wraps || (options_.memory > 0 && before + bytes > options_.memory))
    refusal = {true, before, options_.memory};
  else if (outer_)
    refusal = outer_->TryReserve(bytes);
  if (refusal.refused) in_use_ -= bytes;
  return refusal;
}

void ResourceLimits::Throw(const Refusal& refusal, uint64_t bytes, const std::string& what) {
  throw OutOfMemory(fmt::format("{} takes {}, which with {} in use passes the memory limit of {}",
                                what, HumanBytes(bytes), HumanBytes(refusal.in_use),
                                HumanBytes(refusal.limit)));
}

void ResourceLimits::Release(uint64_t bytes) noexcept {
  in_use_ -= bytes;
  if (outer_) outer_->Release(bytes);
}

ResourceLimits::Stop ResourceLimits::FindStop() const {
  if (options_.stop && options_.stop()) return {Stop::kAsked, 0};
  if (options_.seconds > 0 && Now() - start_ > options_.seconds)
    return {Stop::kTime, options_.seconds};
  return outer_ ? outer_->FindStop() : Stop{};
}

void ResourceLimits::Throw(Stop stop, const std::string& where) {
  if (stop.kind == Stop::kAsked)
    throw Error(ErrorCode::kCancelled, fmt::format("the run was stopped {}", where));
  throw Error(ErrorCode::kDeadlineExceeded,
              fmt::format("passed the time limit of {} s {}", stop.seconds, where));
}

ScopedLimits::ScopedLimits(std::shared_ptr<ResourceLimits> limits) : before_(CurrentLimits()) {
  CurrentLimits() = std::move(limits);
}
ScopedLimits::~ScopedLimits() { CurrentLimits() = std::move(before_); }

namespace {

ResourceLimits& Required(const std::shared_ptr<ResourceLimits>& limits) {
  if (!limits) ThrowInvalid("a ScopedRun was given no limits: the pointer is null");
  return *limits;
}

}  // namespace

ScopedRun::ScopedRun(std::shared_ptr<ResourceLimits> limits)
    : limits_(Required(limits)), scoped_(std::move(limits)) {
  limits_.StartRun();
}
ScopedRun::~ScopedRun() { limits_.EndRun(); }

void CheckTimeLimit(const char* doing) {
  if (const auto& limits = CurrentLimits())
    limits->CheckTime([&] { return fmt::format("while {}", doing); });
}

uint64_t DefaultMemoryLimit() {
  const uint64_t machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  const double quota = internal::MemoryQuota();
  const bool limited = quota > 0 && quota < static_cast<double>(machine);
  return (limited ? static_cast<uint64_t>(quota) : machine) / 5 * 4;
}

}  // namespace coracle
