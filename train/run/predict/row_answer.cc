#include <coracle/framework/base/text.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace coracle::inline internal {
namespace {

// The elements of a row, copied.
Tensor RowOf(const std::string& name, const Tensor& output, int64_t row, int64_t rows) {
  int64_t first = row, end = row + 1;
  Shape shape = output.shape();
  const bool sequences = !output.lod().empty();
  const int64_t found = sequences          ? static_cast<int64_t>(output.lod()[0].size()) - 1
                        : shape.rank() > 0 ? shape[0]
                                           : 1;
  if (found != rows) {
    ThrowInvalid(
        fmt::format("the output {} is {} {}: it does not have one row for each of the {} "
                    "rows",
                    Quote(name), ToString(output.dtype()), shape.ToString(), rows));
  }
  if (sequences) {
    first = static_cast<int64_t>(output.lod()[0][static_cast<size_t>(row)]);
    end = static_cast<int64_t>(output.lod()[0][static_cast<size_t>(row) + 1]);
  }
  Shape own;
  if (sequences) own.Append(end - first);
  for (int i = 1; i < shape.rank(); ++i) own.Append(shape[i]);
  Tensor values(output.dtype(), own);
  if (values.numel() == 0) return values;
  const size_t bytes = output.nbytes() / static_cast<size_t>(shape.rank() > 0 ? shape[0] : 1);
  std::memcpy(values.raw(),
              static_cast<const char*>(output.raw()) + static_cast<size_t>(first) * bytes,
              values.nbytes());
  return values;
}

std::string NameOfClass(const OutputMeaning& meaning, int64_t index) {
  const bool named = index >= 0 && index < static_cast<int64_t>(meaning.classes.size());
  return named ? meaning.classes[static_cast<size_t>(index)] : std::to_string(index);
}

// The largest scores first. A nan comes last.
std::vector<ScoredClass> LargestScores(const OutputMeaning& meaning, std::span<const double> scores,
                                       int64_t top) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count = top == 0 ? order.size() : std::min(order.size(), static_cast<size_t>(top));
  const auto before = [&](size_t a, size_t b) {
    const bool nan_a = std::isnan(scores[a]), nan_b = std::isnan(scores[b]);
    if (nan_a != nan_b) return nan_b;
    return nan_a || scores[a] == scores[b] ? a < b : scores[a] > scores[b];
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    before);
  std::vector<ScoredClass> classes;
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int64_t>(order[i]);
    classes.push_back({NameOfClass(meaning, index), index, scores[order[i]]});
  }
  return classes;
}

bool AnyNan(std::span<const double> scores) {
  return std::any_of(scores.begin(), scores.end(), [](double v) { return std::isnan(v); });
}

// Words follow one another with blanks between them, characters without.
std::string Sentence(const std::vector<std::string>& words) {
  const bool characters = std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return Utf8CharacterBytes(word) == word.size();
  });
  return Join(words, characters ? "" : " ");
}

void ReadSteps(const OutputMeaning& meaning, std::span<const double> scores, int64_t classes,
               int64_t top, RowAnswer* answer) {
  std::vector<std::string> words;
  const auto step = static_cast<size_t>(classes);
  for (size_t at = 0; step > 0 && at + step <= scores.size(); at += step) {
    const auto own = scores.subspan(at, step);
    answer->classes = LargestScores(meaning, own, top);
    words.push_back(AnyNan(own) ? "nan" : LargestScores(meaning, own, 1)[0].name);
  }
  answer->text = Sentence(words);
}

void ReadIds(const OutputMeaning& meaning, RowAnswer* answer) {
  const Tensor wide = answer->values.Cast(DType::kInt64);
  std::vector<std::string> words;
  for (const int64_t id : wide.span<int64_t>())
    if (id >= 0) words.push_back(NameOfClass(meaning, id));
  answer->text = Sentence(words);
}

std::string NumbersText(const Tensor& values) {
  std::vector<std::string> numbers;
  if (IsInteger(values.dtype()) || values.dtype() == DType::kBool) {
    const Tensor wide = values.Cast(DType::kInt64);
    for (const int64_t v : wide.span<int64_t>()) numbers.push_back(fmt::format("{}", v));
  } else if (values.dtype() == DType::kFloat64) {
    for (const double v : values.span<double>()) numbers.push_back(fmt::format("{}", v));
  } else {
    const Tensor wide = values.Cast(DType::kFloat32);
    for (const float v : wide.span<float>()) numbers.push_back(fmt::format("{}", v));
  }
  return Join(numbers, " ");
}

}  // namespace

RowAnswer AnswerOf(const OutputMeaning& meaning, const Tensor& output, int64_t row, int64_t rows,
                   int64_t top) {
  RowAnswer answer;
  answer.output = meaning.var;
  answer.values = RowOf(meaning.var, output, row, rows);
  const Tensor& values = answer.values;
  if (values.dtype() == DType::kString || IsComplex(values.dtype())) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("the output {} is {}: only numbers can be "
                            "answered",
                            Quote(meaning.var), ToString(values.dtype())));
  }
  answer.in_words = meaning.kind == OutputKind::kIds || meaning.kind == OutputKind::kClasses ||
                    meaning.kind == OutputKind::kSteps;
  if (meaning.kind == OutputKind::kIds) {
    ReadIds(meaning, &answer);
    return answer;
  }
  if (meaning.kind == OutputKind::kNumber && values.numel() == 1) {
    const double value = values.Cast(DType::kFloat64).data<double>()[0];
    // In float32 like the model, so that the answer has no digits beyond its precision.
    const bool plain = meaning.scale == 1 && meaning.offset == 0;
    const float undone = static_cast<float>(value) * meaning.scale + meaning.offset;
    answer.number = plain ? value : static_cast<double>(undone);
    answer.text = plain ? NumbersText(values) : fmt::format("{}", undone);
    return answer;
  }
  if (meaning.kind == OutputKind::kClasses || meaning.kind == OutputKind::kSteps) {
    const Tensor wide = values.Cast(DType::kFloat64);
    const auto scores = wide.span<double>();
    if (meaning.kind == OutputKind::kSteps) {
      const Shape& shape = values.shape();
      ReadSteps(meaning, scores, shape.rank() > 0 ? shape[shape.rank() - 1] : 1, top, &answer);
      return answer;
    }
    answer.classes = LargestScores(meaning, scores, top);
    if (!answer.classes.empty()) answer.text = AnyNan(scores) ? "nan" : answer.classes[0].name;
    return answer;
  }
  answer.text = NumbersText(values);
  return answer;
}

}  // namespace coracle::inline internal
