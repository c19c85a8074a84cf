#include <coracle/serve/api_pages.h>

#include <nlohmann/json.hpp>

namespace coracle::serve {
namespace {

using nlohmann::json;

json Answers(const char* good) {
  return {{"200", {{"description", good}}},
          {"default",
           {{"description", "An error: {\"error\": text}"},
            {"content",
             {{"application/json",
               {{"schema",
                 {{"type", "object"}, {"properties", {{"error", {{"type", "string"}}}}}}}}}}}}}};
}

json Get(const char* summary, const char* good) {
  return {{"get", {{"summary", summary}, {"responses", Answers(good)}}}};
}
json Post(const char* summary, const char* good) {
  return {{"post", {{"summary", summary}, {"responses", Answers(good)}}}};
}

json WithParameters(json path, const std::vector<std::string>& names) {
  json parameters = json::array();
  for (const std::string& name : names) {
    parameters.push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  path["parameters"] = parameters;
  return path;
}

json HeaderParameter(const char* name, const char* type, const char* description) {
  return {
      {"name", name}, {"in", "header"}, {"schema", {{"type", type}}}, {"description", description}};
}

json InferPath() {
  json path = Post("Runs the model",
                   "The outputs; binary ones follow the JSON text, whose length "
                   "Inference-Header-Content-Length gives");
  path["post"]["parameters"] = {
      HeaderParameter("Request-Timeout-Ms", "integer", "Milliseconds until the answer is 503"),
      HeaderParameter("X-Request-Id", "string", "Comes back in the answer and in the logs"),
      HeaderParameter("X-Trace", "string", "1: the server writes the times of the stages"),
      HeaderParameter("Inference-Header-Content-Length", "integer",
                      "Bytes of the JSON text, which binary tensors follow")};
  path["post"]["requestBody"] = {
      {"required", true},
      {"content",
       {{"application/json",
         {{"schema",
           {{"type", "object"},
            {"required", {"inputs"}},
            {"properties",
             {{"id", {{"type", "string"}}},
              {"inputs",
               {{"type", "array"},
                {"items",
                 {{"type", "object"},
                  {"required", {"name", "shape", "datatype"}},
                  {"properties",
                   {{"name", {{"type", "string"}}},
                    {"shape", {{"type", "array"}, {"items", {{"type", "integer"}}}}},
                    {"datatype", {{"type", "string"}}},
                    {"parameters", {{"type", "object"}}},
                    {"data", {{"type", "array"}, {"items", json::object()}}}}}}}}},
              {"outputs",
               {{"type", "array"},
                {"items",
                 {{"type", "object"},
                  {"required", {"name"}},
                  {"properties",
                   {{"name", {{"type", "string"}}},
                    {"parameters", {{"type", "object"}}}}}}}}}}}}}}},
        {"application/octet-stream", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}}}};
  return path;
}

}  // namespace

std::string OpenApi() {
  const std::string model = "/v2/models/{model}", version = model + "/versions/{version}";
  json paths = {
      {"/v2", Get("What the server is", "Name, version, extensions")},
      {"/v2/health/live", Get("Whether the process lives", "It does")},
      {"/v2/health/ready", Get("Whether all models are ready", "They are")},
      {"/v2/repository/index", Post("The models", "A list with the state of each version")},
      {"/metrics", Get("Counters and histograms", "Prometheus' text format")},
  };
  for (const auto& [path, names] :
       {std::pair<std::string, std::vector<std::string>>{model, {"model"}},
        {version, {"model", "version"}}}) {
    paths[path] = WithParameters(Get("What a model takes and gives", "Inputs and outputs"), names);
    paths[path + "/ready"] = WithParameters(Get("Whether a model is ready", "It is"), names);
    paths[path + "/infer"] = WithParameters(InferPath(), names);
  }
  paths["/v1/predict/{model}"] = WithParameters(
      Post("Answers raw rows: JSON, text/csv, text/plain, or a picture", "An answer for each row"),
      {"model"});
  for (const char* action : {"load", "unload"}) {
    paths[std::string("/v2/repository/models/{model}/") + action] =
        WithParameters(Post("Loads or unloads all versions of a model", "Done"), {"model"});
  }
  const json description = {{"openapi", "3.0.3"},
                            {"info",
                             {{"title", "coracle serve"},
                              {"version", "2"},
                              {"description", "Open Inference Protocol, version 2, over HTTP"}}},
                            {"paths", paths}};
  return description.dump(1);
}

}  // namespace coracle::serve
