#pragma once
// EventWriter writes TensorBoard's event files. A record consists of its length (8 bytes,
// little-endian), the masked CRC-32C of these 8 bytes, the event, and the masked CRC-32C of the
// event. Masked means rotated right by 15 bits, plus 0xa282ead8 (format:
// tensorflow/core/lib/io/record_writer.cc). Scalars and histograms have the form
// of proto/event_log.proto.

#include <coracle/framework/base/append_file.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

class EventWriter {
 public:
  // Opens a new file events.out.tfevents.SECONDS.HOST.PID in the directory. Its first events give
  // the version and declare the data of earlier files from `first_step` on invalid. Throws kIo.
  EventWriter(const std::string& directory, int64_t first_step);

  const std::string& path() const { return file_.path(); }
  // Each call writes to the file at once.
  void Scalars(int64_t step, const std::vector<NamedValue>& values);
  // Writes a histogram of the finite elements, in 30 buckets of equal width.
  void Histogram(int64_t step, const std::string& tag, const Tensor& values);
  // Writes one node for each op of the root block, grouped by the roles of the ops.
  void Graph(const ProgramDesc& program);

 private:
  void Write(const std::string& event);

  AppendFile file_;
};

// Returns the record of `event`, and the checksum in it.
std::string EventRecord(std::string_view event);
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace coracle::inline internal
