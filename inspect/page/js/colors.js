// Colours of ops: muted ones by family, or a scale from cool to hot by cost.

// Each colour with its label and the families of ops (the folders of operators/) that have it. Types
// of no family, such as those of op libraries, have the last.
const families = [
  ['input and output', 'io', ['io']],
  ['between ranks', 'collective', ['collective']],
  ['control flow', 'control', ['control']],
  ['update', 'update', ['update']],
  ['convolution and pooling', 'convolution', ['conv']],
  ['product', 'product', ['matmul', 'linalg', 'ml']],
  ['recurrent and sequence', 'sequence', ['rnn', 'sequence']],
  ['normalization', 'normalization', ['norm']],
  ['loss and metric', 'loss', ['loss', 'metric']],
  ['detection', 'detection', ['detection']],
  ['activation', 'activation', ['activation']],
  ['shape and movement', 'shape', ['tensor', 'text']],
  ['random', 'random', ['random']],
  ['arithmetic', 'arithmetic', ['elementwise', 'reduce', 'quantize']],
];

const familyByType = new Map();
function readFamilies(opTypes) {
  for (const [type, {family}] of Object.entries(opTypes)) {
    const found = families.find(([, , names]) => names.includes(family));
    if (found) familyByType.set(type, found);
  }
}
const familyOf = (type) => familyByType.get(type) || families[families.length - 1];

// The page's colours from the style sheet, for the current theme.
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const palette = {};
  for (const name of ['paper', 'card', 'ink', 'soft', 'faint', 'line', 'edge', 'accent', 'group',
    'group-2', 'added', 'removed', 'changed', 'path'])
    palette[name] = read(`--${name}`);
  for (const [, key] of families) palette[key] = read(`--op-${key}`);
  for (const phase of phases) palette[`phase-${phase}`] = read(`--phase-${phase}`);
  palette.heat = [0, 1, 2, 3, 4].map((i) => read(`--heat-${i}`));
  return palette;
}

// The quantities that can colour ops. value(node) is a number of an op or a sum over a group.
const colorings = {
  family: {label: 'by family'},
  stage: {label: 'by stage'},
  cost: {label: 'multiply-adds', value: (node) => node.multiplyAdds, text: countText},
  time: {label: 'measured time', value: (node) => node.seconds, text: secondsText},
  memory: {label: 'output bytes', value: (node) => node.bytes, text: bytesText},
};

// 0 to 1 on the scale, by the square root, so that small costs can be distinguished.
const heatOf = (value, most) => (most > 0 ? Math.sqrt(value / most) : 0);

function heatColor(palette, heat) {
  const at = Math.min(Math.max(heat, 0), 1) * (palette.heat.length - 1);
  const i = Math.min(Math.floor(at), palette.heat.length - 2);
  return mix(palette.heat[i], palette.heat[i + 1], at - i);
}
function mix(a, b, share) {
  const [x, y] = [a, b].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
  const part = x.map((v, i) => Math.round(v + (y[i] - v) * share));
  return '#' + part.map((v) => v.toString(16).padStart(2, '0')).join('');
}
