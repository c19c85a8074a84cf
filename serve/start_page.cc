#include <coracle/serve/api_pages.h>

namespace coracle::serve {
namespace {

constexpr char kPage[] = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>coracle serve</title><style>
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --strong: #2563eb; --bad: #c62828; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }
[hidden] { display: none !important; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
label { display: block; margin: .8rem 0 .2rem; font-weight: 600; }
small { opacity: .7; font-weight: 400; }
input, textarea, select { width: 100%; box-sizing: border-box; font: inherit; padding: .4rem .5rem;
  border: 1px solid var(--line); border-radius: .3rem; background: Canvas; color: CanvasText; }
textarea { font: 14px/1.4 ui-monospace, monospace; }
input[type=file] { border-style: dashed; padding: .8rem; }
fieldset { border: 0; padding: 0; margin: .8rem 0 0; display: flex; gap: 1.2rem; }
fieldset label { margin: 0; font-weight: 400; }
fieldset input { width: auto; }
button { margin: 1rem 0; padding: .45rem 1.4rem; font: inherit; border: 0; border-radius: .3rem;
  background: var(--strong); color: #fff; cursor: pointer; }
button:disabled { opacity: .5; cursor: default; }
img { display: block; max-width: 12rem; max-height: 12rem; min-height: 3rem; margin: .5rem 0;
  border: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; }
td { padding: .15rem .6rem .15rem 0; vertical-align: middle; }
td.number { text-align: right; font-variant-numeric: tabular-nums; width: 7rem; }
td.bar { width: 45%; }
td.bar div { height: .8rem; min-width: 1px; border-radius: .2rem; background: var(--strong); }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: .3rem; margin: .3rem 0;
  max-height: 20rem; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
#answer { border-top: 1px solid var(--line); padding-top: .3rem; }
.error { color: var(--bad); font-weight: 600; white-space: pre-wrap; overflow-wrap: anywhere; }
</style></head><body>
<h1>coracle serve</h1>
<p>Try a model by hand. Programs use the <a href="/openapi.json">interface</a>;
<a href="/metrics">metrics</a> are for Prometheus.</p>
<label for="model">Model</label><select id="model"></select>
<form id="form"></form>
<div id="answer" hidden></div>
<script>
const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const ask = async (path, options) => {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({error: `the server answered with status ${answer.status}`}));
  if (!answer.ok) throw new Error(body.error);
  return body;
};
const show = (...children) => {
  $("answer").hidden = false;
  $("answer").replaceChildren(...children);
};
const fail = error => show(make("p", {className: "error"}, error.message));

// --- answers ---

// Six digits; whole numbers as they are, unless the browser has rounded them.
const short = value => typeof value !== "number" || Number.isSafeInteger(value) ? String(value)
  : Number.isInteger(value) ? value.toPrecision(6) : String(+value.toPrecision(6));
const bars = rows => {  // [name, number]
  const most = Math.max(...rows.map(([, number]) => Math.abs(number)), 1e-30);
  return make("table", {}, ...rows.map(([name, number]) => {
    const bar = make("div");
    bar.style.width = `${100 * Math.max(0, number) / most}%`;
    return make("tr", {}, make("td", {}, name), make("td", {className: "number"}, short(number)),
                make("td", {className: "bar"}, bar));
  }));
};
const largest = values => values.map((value, i) => [String(i), value])
  .sort((a, b) => b[1] - a[1]).slice(0, 5);
const showTensors = outputs => outputs.flatMap(({name, datatype, shape, data}) => {
  const parts = [make("h2", {}, name + " ", make("small", {}, `${datatype} [${shape.join(", ")}]`))];
  const classes = shape[shape.length - 1];
  if (datatype.startsWith("FP") && shape.length > 1 && classes > 1 && classes === data.length)
    parts.push(bars(largest(data)));
  const shown = data.slice(0, 2000).map(short).join("  ");
  parts.push(make("pre", {}, shown + (data.length > 2000 ? `  … and ${data.length - 2000} more` : "")));
  return parts;
});
const showRows = answers => answers.flatMap(answer => Object.entries(answer).flatMap(([key, value]) => {
  if (key.endsWith("_top") && Array.isArray(value) || key.endsWith("_score")) return [];
  const top = answer[key + "_top"] ?? (answer[key + "_score"] === undefined ? undefined
    : [{class: value, score: answer[key + "_score"]}]);
  const heading = make("h2", {}, key);
  if (top) return [heading, bars(top.map(t => [String(t.class), t.score]))];
  return [heading, make("pre", {}, Array.isArray(value) ? value.map(short).join("  ") : short(value))];
}));

// --- inputs ---

let forms = 0, runs = 0;  // how many were asked for
let send = async () => [];
const field = (name, note, element) => {
  element.id = "field" + document.querySelectorAll("#form label").length;
  const label = make("label", {htmlFor: element.id}, name + " ", make("small", {}, note));
  $("form").append(label, element);
  return element;
};
const picture = (name, note, chosen) => {
  const input = field(name, note, make("input", {type: "file", accept: "image/*"}));
  const view = make("img", {alt: "", hidden: true});
  input.after(view);
  input.onchange = () => {
    const file = input.files[0];
    if (view.src) URL.revokeObjectURL(view.src);
    view.hidden = !file;
    if (!file) return chosen(undefined, view);
    view.src = URL.createObjectURL(file);
    chosen(file, view);
  };
  return input;
};

const rawForm = (model, {raw_rows, columns}) => {
  const path = "/v1/predict/" + encodeURIComponent(model);
  const post = async (type, body) =>
    showRows((await ask(path, {method: "POST", headers: {"Content-Type": type}, body})).answers);
  if (raw_rows === "picture") {
    const input = picture("Picture", "PNG, JPEG or PNM", file => file && run());
    send = async () => {
      if (!input.files[0]) throw new Error("choose a picture first");
      return post(input.files[0].type || "image/x", input.files[0]);
    };
  } else if (raw_rows === "text") {
    const text = field("Text", "", make("textarea", {rows: 4}));
    send = () => post("text/plain", text.value);
  } else {
    const names = JSON.parse(columns ?? "[]");
    if (names.length > 0 && names.length <= 40) {
      const inputs = names.map(name => field(name, "", make("input")));
      send = () => post("application/json", JSON.stringify({top: 1, rows: [
        Object.fromEntries(names.map((name, i) => [name, inputs[i].value]))]}));
    } else {
      const text = field("Rows", "csv, as the training data", make("textarea", {rows: 6}));
      send = () => post("text/csv", text.value);
    }
  }
};

const shapeOf = value => Array.isArray(value) ? [value.length, ...shapeOf(value[0] ?? 0)] : [];
// The picture as [1, C, H, W], from 0 to 1.
const pixelsOf = async (file, [channels, height, width]) => {
  const canvas = make("canvas", {width, height}), context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(await createImageBitmap(file), 0, 0, width, height);
  const bytes = context.getImageData(0, 0, width, height).data, data = [];
  const grey = i => (0.299 * bytes[i] + 0.587 * bytes[i + 1] + 0.114 * bytes[i + 2]) / 255;
  for (let c = 0; c < channels; ++c)
    for (let i = 0; i < bytes.length; i += 4) data.push(channels === 1 ? grey(i) : bytes[i + c] / 255);
  return data;
};
const tensorField = input => {
  const {name, datatype, shape} = input, size = shape.map(d => d < 0 ? 1 : d);
  const note = `${datatype} [${shape.map(d => d < 0 ? "any" : d).join(", ")}], as nested JSON arrays`;
  const text = field(name, note, make("textarea", {rows: 4, spellcheck: false}));
  const zero = datatype === "BYTES" ? "" : datatype === "BOOL" ? false : 0;
  const zeros = d => d === size.length ? zero : Array.from({length: size[d]}, () => zeros(d + 1));
  const count = size.reduce((a, b) => a * b, 1), number = forms;
  if (count <= 4096) text.value = JSON.stringify(zeros(0));
  let pixels;
  if (datatype === "FP32" && size.length === 4 && [1, 3].includes(size[1]) && size[2] > 1 && size[3] > 1) {
    picture("or a picture", "resized, values from 0 to 1", file => {
      pixels = file && pixelsOf(file, size.slice(1)).catch(() => {
        throw new Error(`${name}: the browser cannot read this picture`);
      });
      pixels?.catch(error => number === forms && fail(error));
      text.disabled = Boolean(file);
    });
  }
  return async () => {
    const tensor = (shape, data) =>  // the text as it is: JSON.parse rounds large integers
      `{"name":${JSON.stringify(name)},"datatype":"${datatype}","shape":[${shape}],"data":${data}}`;
    if (pixels) return tensor([1, ...size.slice(1)], JSON.stringify(await pixels));
    let data;
    try {
      data = JSON.parse(text.value);
    } catch (error) {
      throw new Error(`${name} is not JSON: ${error.message}`);
    }
    return tensor(shapeOf(data), text.value);
  };
};
const tensorForm = (model, inputs) => {
  const fields = inputs.map(tensorField);
  send = async () => {
    const body = `{"inputs":[${await Promise.all(fields.map(value => value()))}]}`;
    return showTensors((await ask(`/v2/models/${encodeURIComponent(model)}/infer`,
                                  {method: "POST", body})).outputs);
  };
};

const form = async (raw = true) => {
  const name = $("model").value, number = ++forms;
  $("form").replaceChildren();
  $("answer").hidden = true;
  let model;
  try {
    model = await ask("/v2/models/" + encodeURIComponent(name));
  } catch (error) {
    if (number === forms) throw error;
  }
  if (number !== forms) return;  // another form was chosen meanwhile
  const properties = model.properties ?? {};
  if (properties.raw_rows) {
    const choice = (text, value) => make("label", {}, make("input",
      {type: "radio", name: "kind", checked: raw === value, onchange: () => form(value).catch(fail)}), " " + text);
    $("form").append(make("fieldset", {}, choice("Raw data", true), choice("Tensors", false)));
  }
  if (properties.raw_rows && raw) rawForm(name, properties);
  else tensorForm(name, model.inputs);
  $("form").append(make("button", {id: "run"}, "Run"));
};
// Shows the answer, unless another form or another run was asked for meanwhile.
const run = async () => {
  const number = forms, turn = ++runs, button = $("run"), begin = performance.now();
  const isLatest = () => number === forms && turn === runs;
  if (!button) return;  // the form is not there yet
  button.disabled = true;
  try {
    const parts = await send();
    const time = make("small", {}, `${Math.round(performance.now() - begin)} ms`);
    if (isLatest()) show(...parts, make("p", {}, time));
  } catch (error) {
    if (isLatest()) fail(error);
  }
  if (isLatest()) button.disabled = false;
};
$("form").onsubmit = event => {
  event.preventDefault();
  run();
};
$("model").onchange = () => form().catch(fail);
ask("/v2/repository/index", {method: "POST"}).then(models => {
  const ready = new Set(models.filter(m => m.state === "READY").map(m => m.name));
  for (const name of new Set(models.map(m => m.name)))
    $("model").append(make("option", {value: name, disabled: !ready.has(name)},
                           ready.has(name) ? name : name + " (not ready)"));
  const wanted = decodeURIComponent(location.hash.slice(1));  // "/#NAME"
  if (ready.has(wanted)) $("model").value = wanted;
  if (ready.size) return form();
  fail(new Error(models.length ? "no model is ready" : "the server has no models"));
}).catch(fail);
</script></body></html>
)html";

}  // namespace

std::string StartPage() { return kPage; }

}  // namespace coracle::serve
