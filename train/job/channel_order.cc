#include <coracle/train/job/channel_order.h>
#include <fmt/format.h>

namespace coracle::inline internal {

ChannelOrder ChannelOrderOf(const DataConfig& data) {
  if (const auto* pictures = std::get_if<PictureOptions>(&data.source))
    return pictures->channel_order;
  if (const auto* database = std::get_if<DatumOptions>(&data.source))
    return database->channel_order.value_or(ChannelOrder::kBgr);
  return ChannelOrder::kRgb;
}

std::string AssumedChannelOrder(const JobConfig& config, const DataSource& data) {
  const auto* database = std::get_if<DatumOptions>(&config.train.source);
  if (!database || database->channel_order || config.train.custom) return "";
  const int column = data.FindColumn("data");
  if (column < 0 || data.columns()[static_cast<size_t>(column)].shape[0] != 3) return "";
  const bool lmdb = database->format == DatumOptions::Format::kLmdb;
  return fmt::format(
      "warning: {}: the images have 3 channels, whose order the database does not say; it is taken "
      "as blue, green, red, which convert_imageset writes. Give channel_order: BGR or, for a "
      "database of convert_cifar_data, channel_order: RGB",
      config.Place(lmdb ? "train.lmdb" : "train.leveldb"));
}

}  // namespace coracle::inline internal
