#include <coracle/framework/base/text.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr size_t kMostNamed = 2;

std::string Factor(const ClipReport& clip) { return fmt::format("x{:.3g}", clip.factor); }

std::string One(const std::string& what, const ClipReport& clip) {
  std::string text = fmt::format(" {} {}/{}", what, clip.acted, clip.times);
  if (clip.limit > 0)
    text += fmt::format(" norm {}>{}", FormatNumber(clip.norm), FormatNumber(clip.limit));
  return text + " " + Factor(clip);
}

std::string All(const std::vector<ClipReport>& clips) {
  int64_t acted = 0, times = 0;
  for (const ClipReport& clip : clips) {
    acted += clip.acted;
    times += clip.times;
  }
  const auto most = std::min_element(
      clips.begin(), clips.end(),
      [](const ClipReport& a, const ClipReport& b) { return a.factor < b.factor; });
  return fmt::format(" error_clips({}) {}/{} {}({})", clips.size(), acted, times, Factor(*most),
                     QuoteIfNeeded(most->name, 60));
}

}  // namespace

std::string FormatClips(const std::vector<ClipReport>& clips) {
  const auto gradient = [](const ClipReport& clip) {
    return clip.kind == ClipReport::Kind::kGradient;
  };
  const bool several = std::count_if(clips.begin(), clips.end(), gradient) > 1;
  std::string text;
  std::vector<ClipReport> errors;
  for (const ClipReport& clip : clips) {
    if (clip.acted == 0) continue;
    if (!gradient(clip))
      errors.push_back(clip);
    else
      text += One(several ? "clip(" + QuoteIfNeeded(clip.name, 60) + ")" : "clip", clip);
  }
  if (errors.size() > kMostNamed) return text + All(errors);
  for (const ClipReport& clip : errors)
    text += One("error_clip(" + QuoteIfNeeded(clip.name, 60) + ")", clip);
  return text;
}

}  // namespace coracle::inline internal
