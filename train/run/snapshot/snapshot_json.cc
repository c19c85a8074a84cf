#include <coracle/inspect/json.h>
#include <coracle/train/run/snapshot/manifest_json.h>
#include <coracle/train/run/snapshot/snapshot_json.h>
#include <coracle/train/run/tensor_norms.h>

namespace coracle::inline internal {
namespace {

Json VariableJson(const SavedSnapshot& snapshot, const std::string& name) {
  const VarDesc& var = *snapshot.main.Root().FindVar(name);
  Json json = {{"name", JsonString(name)},
               {"dtype", ToString(var.dtype())},
               {"shape", JsonShape(var.shape())},
               {"parameter", var.is_parameter()}};
  const VarValue* value = snapshot.variables.Find(name);
  if (const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr) {
    const TensorNorms norms = NormsOf(*tensor);
    json["l2_norm"] = JsonNumber(norms.l2);
    json["mean_abs"] = JsonNumber(norms.mean_abs);
    json["max_abs"] = JsonNumber(norms.max_abs);
  }
  return json;
}

}  // namespace

std::string SnapshotJson(const SavedSnapshot& snapshot) {
  Json state = StateJson(snapshot.state);
  Json document = JsonDocument("snapshot");
  document["path"] = JsonString(snapshot.path);
  for (const char* name :
       {"job", "step", "epoch", "data", "random", "machine", "evaluations", "best", "non_finite"})
    document[name] = std::move(state[name]);
  document["carried"] = Json::array();
  for (const auto& [name, tensor] : snapshot.state.carried) {
    document["carried"].push_back({{"name", JsonString(name)},
                                   {"dtype", ToString(tensor.dtype())},
                                   {"shape", JsonShape(tensor.shape())}});
  }
  document["variables"] = Json::array();
  for (const std::string& name : PersistableNames(snapshot.main))
    document["variables"].push_back(VariableJson(snapshot, name));
  return JsonText(document);
}

}  // namespace coracle::inline internal
