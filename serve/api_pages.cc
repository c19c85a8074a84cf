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

std::string StartPage() {
  return R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>coracle serve</title><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
label { display: block; margin: .7rem 0 .1rem; font-weight: 600; }
small { color: #555; font-weight: 400; }
textarea, select { width: 100%; box-sizing: border-box; font: 14px/1.4 monospace; padding: .4rem; }
button { margin: 1rem 0; padding: .4rem 1.2rem; font: inherit; }
pre { background: #f4f4f4; padding: .8rem; overflow: auto; white-space: pre-wrap; }
.error { color: #a00; }
</style></head><body>
<h1>coracle serve</h1>
<p>Try a model by hand. Programs use the <a href="/openapi.json">interface</a>;
<a href="/metrics">metrics</a> are for Prometheus.</p>
<label for="model">Model</label><select id="model"></select>
<form id="form"></form>
<pre id="answer" hidden></pre>
<script>
const $ = id => document.getElementById(id);
let inputs = [];
const show = (text, bad) => {
  const place = $("answer");
  place.hidden = false;
  place.textContent = text;
  place.className = bad ? "error" : "";
};
const ask = async (path, options) => {
  const answer = await fetch(path, options), body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
};
const shapeOf = value => Array.isArray(value) ? [value.length, ...shapeOf(value[0] ?? 0)] : [];
const form = async () => {
  const model = await ask("/v2/models/" + encodeURIComponent($("model").value));
  inputs = model.inputs;
  const place = $("form");
  place.replaceChildren();
  inputs.forEach((input, i) => {
    const label = document.createElement("label"), note = document.createElement("small");
    label.htmlFor = "input" + i;
    label.textContent = input.name + " ";
    note.textContent = `${input.datatype} [${input.shape.map(d => d < 0 ? "any" : d).join(", ")}], as nested JSON arrays`;
    label.append(note);
    const text = document.createElement("textarea");
    text.id = "input" + i;
    text.rows = 4;
    const size = input.shape.map(d => d < 0 ? 1 : d);
    const zeros = d => d === size.length ? (input.datatype === "BYTES" ? "" : input.datatype === "BOOL" ? false : 0)
      : Array.from({length: size[d]}, () => zeros(d + 1));
    if (size.reduce((a, b) => a * b, 1) <= 4096) text.value = JSON.stringify(zeros(0));
    place.append(label, text);
  });
  const button = document.createElement("button");
  button.textContent = "Run";
  place.append(button);
};
$("form").onsubmit = async event => {
  event.preventDefault();
  try {
    const list = inputs.map((input, i) => {
      const data = JSON.parse($("input" + i).value);
      return {name: input.name, datatype: input.datatype, shape: shapeOf(data), data};
    });
    const answer = await ask(`/v2/models/${encodeURIComponent($("model").value)}/infer`,
                             {method: "POST", body: JSON.stringify({inputs: list})});
    show(answer.outputs.map(o => `${o.name} ${o.datatype} [${o.shape.join(", ")}]\n${o.data.join(" ")}`).join("\n\n"));
  } catch (error) {
    show(error.message, true);
  }
};
$("model").onchange = () => form().catch(error => show(error.message, true));
ask("/v2/repository/index", {method: "POST"}).then(models => {
  for (const name of new Set(models.map(m => m.name))) $("model").append(new Option(name));
  if (models.length) return form();
}).catch(error => show(error.message, true));
</script></body></html>
)html";
}

}  // namespace coracle::serve
