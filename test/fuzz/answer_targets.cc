// Targets of models that answer raw rows, as `coracle predict` and POST /v1/predict do.

#include <coracle/serve/predict_route.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/small_limits.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/train/run/predict/row_source.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coracle {
namespace {

struct SmallModel {
  const char* preprocess;
  Shape shape;
  DType dtype;
};

const std::vector<SmallModel>& SmallModels() {
  static const std::vector<SmallModel> models = {
      {"version: 1 csv { header: true cells: 3 column { name: 'a' number: 0 } "
       "column { name: 'b' number: 1 mean: 1 scale: 10 fill: 2 } "
       "label_number: 2 label: 'c' class: ['A', 'B'] label_kind: CLASS } "
       "input { column: 'data' var: 'x' } output { var: 'y' kind: CLASSES class: ['A', 'B'] }",
       {-1, 2},
       DType::kFloat32},
      {"version: 1 csv { cells: 2 column { name: '' number: 0 category: ['a', 'b'] } "
       "column { name: '' number: 1 } } "
       "input { column: 'data' var: 'x' } output { var: 'y' kind: VALUES }",
       {-1, 3},
       DType::kFloat32},
      {"version: 1 picture { column: 'image' channels: 3 height: 2 width: 3 mean: 1 scale: 2 } "
       "input { column: 'image' var: 'x' } output { var: 'y' }",
       {-1, 3, 2, 3},
       DType::kFloat32},
      {"version: 1 text { column: 'text' character: ['a', 'b', '\\n'] } "
       "input { column: 'text' var: 'x' } output { var: 'y' kind: IDS class: ['a', 'b', 'c'] }",
       {-1, -1},
       DType::kInt64}};
  return models;
}

// Models that give back what is fed.
std::unique_ptr<PredictorCore> CoreOf(const SmallModel& small) {
  InferenceModel model;
  model.program.Root().Var("x").SetMeta({.dtype = small.dtype, .shape = small.shape});
  model.feed_names = {"x"};
  model.fetch_names = {"y"};
  return std::make_unique<PredictorCore>(std::move(model), ParsePreprocess(small.preprocess, "p"),
                                         [](const std::vector<Tensor>& feeds) { return feeds; });
}

const PredictorCore& CoreOf(size_t number) {
  static const std::vector<std::unique_ptr<PredictorCore>> cores = [] {
    std::vector<std::unique_ptr<PredictorCore>> made;
    for (const SmallModel& model : SmallModels()) made.push_back(CoreOf(model));
    return made;
  }();
  return *cores[number % cores.size()];
}

ReadChunk InPieces(std::string_view bytes, size_t most) {
  return [bytes, most](char* buffer, size_t size) mutable {
    const size_t taken = std::min({size, most, bytes.size()});
    std::memcpy(buffer, bytes.data(), taken);
    bytes.remove_prefix(taken);
    return taken;
  };
}

// The rows that a source gives and its errors, as a text.
std::string RowsOf(const std::function<std::unique_ptr<RowSource>(ReadChunk)>& make,
                   std::string_view bytes, size_t piece) {
  std::string found;
  Refusable([&] {
    const std::unique_ptr<RowSource> source = make(InPieces(bytes, piece));
    SourceRow row;
    for (int n = 0; n < 100 && source->Next(&row); ++n) {
      Require(row.row.has_value() != row.error.has_value(), "a row is neither good nor bad");
      if (row.error) CheckError(*row.error);
      found += row.place + (row.error ? row.error->message() : " ok") + "\n";
    }
  });
  return found;
}

// A reader of rows must not depend on the pieces in which the bytes come.
void UseRows(const PredictorCore& core, std::string_view bytes) {
  using Make =
      std::unique_ptr<RowSource> (*)(const PredictorCore&, ReadChunk, const RowSourceOptions&);
  for (const Make make : {Make{MakeCsvRows}, Make{MakeJsonRows}, Make{MakeTextRows}}) {
    const auto bound = [&](ReadChunk read) { return make(core, std::move(read), {}); };
    Require(RowsOf(bound, bytes, 1) == RowsOf(bound, bytes, std::string_view::npos),
            "pieces are understood in another way");
  }
}

}  // namespace

void FuzzPredict(std::string_view bytes) {
  static constexpr std::array<const char*, 6> kTypes = {
      "", "application/json", "text/csv", "text/plain; charset=utf-8", "image/png", "image/jpeg"};
  if (bytes.size() < 2) return;
  const PredictorCore& core = CoreOf(static_cast<uint8_t>(bytes[0]));
  serve::Request request;
  const char* type = kTypes[static_cast<uint8_t>(bytes[1]) % kTypes.size()];
  if (*type != '\0') request.headers["content-type"] = type;
  request.body = bytes.substr(2);
  const ScopedLimits limits(SmallLimits());
  try {
    serve::PredictBytes(request);
    const serve::Response response = serve::PredictRoute(core, request, 2);
    Require(response.status == 200, "an answer without its status");
    Require(nlohmann::json::accept(response.body), "an answer is not JSON");
  } catch (const serve::HttpError& error) {
    Require(error.status() == 400 || error.status() == 413 || error.status() == 415,
            "a request is refused with another status");
  } catch (const Error& error) {
    CheckError(error);
  }
  UseRows(core, request.body);
}

}  // namespace coracle
