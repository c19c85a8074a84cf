#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/commands.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/snapshot/snapshot_json.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct SnapshotFlags {
  bool json = false;
};

Fields<SnapshotFlags> SnapshotFields() {
  return Fields<SnapshotFlags>("").Add("json", &SnapshotFlags::json, "print JSON");
}

SavedSnapshot Open(const std::string& path) {
  const std::string found = FindSnapshot(path);
  if (found.empty())
    throw Error(ErrorCode::kNotFound, fmt::format("no snapshot in {}", Quote(path, 300)));
  return ReadSnapshot(found);
}

int RunSnapshot(const Args& args, const SnapshotFlags& flags) {
  RequireArgs(args, 1, 2, "one DIR or two");
  if (flags.json && args.size() == 2) throw UsageError("--json takes one DIR, got two");
  const SavedSnapshot first = Open(args[0]);
  if (flags.json) {
    PrintData(SnapshotJson(first));
    return 0;
  }
  Print(args.size() == 1 ? DescribeSnapshot(first) : CompareSnapshots(first, Open(args[1])));
  return 0;
}

}  // namespace

Command SnapshotCommand() {
  return MakeCommand(
      {"snapshot", "checks a snapshot and shows its contents, or the differences between two",
       "snapshot DIR [DIR2] | snapshot DIR --json",
       "  coracle snapshot output/digits_lenet/snapshots\n"
       "  coracle snapshot runs/1/snapshots/step_00000500 runs/2/snapshots/step_00000500\n"
       "  coracle snapshot output/digits_lenet --json\n"},
      SnapshotFields(), RunSnapshot);
}

}  // namespace coracle::tools
