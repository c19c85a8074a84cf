#include <coracle/convert/pir/index_writer.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

namespace coracle::pir {

std::string IndexWriter::AsInt64(const std::string& index, DType dtype) {
  if (dtype == DType::kInt64) return index;
  return Make("cast", {{"X", {index}}},
              {{"in_dtype", static_cast<int32_t>(dtype)},
               {"out_dtype", static_cast<int32_t>(DType::kInt64)}});
}

std::string IndexWriter::Flat(const std::string& x) {
  return Make("reshape2", {{"X", {x}}}, {{"shape", std::vector<int32_t>{-1}}});
}

std::string IndexWriter::Number(int64_t value) {
  return Make("fill_constant", {},
              {{"shape", std::vector<int64_t>{1}},
               {"dtype", static_cast<int32_t>(DType::kInt64)},
               {"str_value", fmt::format("{}", value)}});
}

std::string IndexWriter::Inside(const std::string& index, int64_t size) {
  const std::string negative = Binary("less_than", index, Number(0));
  const std::string turns = Make("cast", {{"X", {negative}}},
                                 {{"in_dtype", static_cast<int32_t>(DType::kBool)},
                                  {"out_dtype", static_cast<int32_t>(DType::kInt64)}});
  const std::string counted =
      Binary("elementwise_add", index, Binary("elementwise_mul", turns, Number(size)));
  const std::string ones = Make("fill_constant", {},
                                {{"shape", std::vector<int64_t>{size}},
                                 {"dtype", static_cast<int32_t>(DType::kInt64)},
                                 {"str_value", std::string("1")}});
  const std::string all =
      Make("cumsum", {{"X", {ones}}}, {{"axis", int32_t{0}}, {"exclusive", true}});
  return Make("gather", {{"X", {all}}, {"Index", {counted}}});
}

std::string IndexWriter::Joined(const std::string& row, int64_t size, const std::string& place) {
  return Binary("elementwise_add", Binary("elementwise_mul", row, Number(size)), place);
}

std::string IndexWriter::Put(const std::string& x, const std::string& places,
                             const std::string& values, bool add) {
  if (!add) {
    return Make("scatter", {{"X", {x}}, {"Ids", {places}}, {"Updates", {values}}},
                {{"overwrite", true}});
  }
  const std::string column =
      Make("reshape2", {{"X", {places}}}, {{"shape", std::vector<int32_t>{-1, 1}}});
  return Make("scatter_nd_add", {{"X", {x}}, {"Index", {column}}, {"Updates", {values}}});
}

}  // namespace coracle::pir
