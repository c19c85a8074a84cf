#pragma once
// EventWriter: TensorBoard's event files. A record is its length (8 bytes, little-endian), the
// masked CRC-32C of these 8 bytes, the event, and the masked CRC-32C of the event; masked: rotated
// right by 15 bits, plus 0xa282ead8 (format: tensorflow/core/lib/io/record_writer.cc). Scalars and
// histograms in the form of proto/event_log.proto.

#include <coracle/framework/base/append_file.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/run/metric.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class EventWriter {
 public:
  // A new file events.out.tfevents.SECONDS.HOST.PID in the directory, whose first events tell its
  // version and that what earlier files say of `first_step` and after is void. Throws kIo.
  EventWriter(const std::string& directory, int64_t first_step);

  const std::string& path() const { return file_.path(); }
  // Each is written at once.
  void Scalars(int64_t step, const std::vector<NamedValue>& values);
  // Of the finite elements, in 30 buckets of one width.
  void Histogram(int64_t step, const std::string& tag, const Tensor& values);
  // A node for each op of the root block, grouped by the ops' roles.
  void Graph(const ProgramDesc& program);

 private:
  void Write(const std::string& event);

  AppendFile file_;
};

// A record around `event`, and the checksum in it.
std::string EventRecord(std::string_view event);
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace coracle
