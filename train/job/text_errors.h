#pragma once
// The errors of protobuf's parser about a job text, in the words of this library.

#include <coracle/layers/internal/schema_writer.h>
#include <coracle/layers/internal/text_parse.h>
#include <google/protobuf/io/tokenizer.h>

#include <string>

namespace coracle::inline internal {

// Collects the errors: the first one is thrown, the others become its details.
class TextErrors : public google::protobuf::io::ErrorCollector {
 public:
  TextErrors(const TextFile& file, const SchemaPool& schema) : file_(file), schema_(schema) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override;
  [[noreturn]] void Throw() const;

 private:
  const TextFile& file_;
  const SchemaPool& schema_;
  std::string first_, rest_;
  int count_ = 0;
};

}  // namespace coracle::inline internal
