// Colours of ops: muted ones by family, or a scale from cool to hot by cost.

// The first family whose pattern matches the type (without "_grad") is the op's family.
const families = [
  ['input and output', 'io', /^(input|output|feed|fetch|read|save|load|print|py_reader).*$/],
  ['fused', 'fused', /^fused_(images|elementwise)/],
  ['control flow', 'control', /^(while|conditional_block|select_|recurrent|call|static_rnn|write_to_array|read_from_array|lod_array|array_|lod_rank|.*_to_array|array_to|shrink_rnn|max_sequence_len|is_empty|increment|assert)/],
  ['update', 'update', /^(sgd|momentum|adam|adamw|adamax|adagrad|adadelta|rmsprop|ftrl|lamb|lars|decayed|merged_|dpsgd|average_|update_loss_scaling|check_finite|proximal|rprop|nadam|radam|distributed_)/],
  ['convolution', 'convolution', /^(depthwise_)?conv|deformable|im2sequence|row_conv|sequence_conv/],
  ['product', 'product', /^(mul|matmul|bmm|fc|dot|mv|addmm|.*attention|einsum|bilinear_tensor)/],
  ['recurrent and sequence', 'sequence', /^(lstm|gru|rnn|cudnn_lstm|sequence_|lookup_table|embedding|warpctc|ctc|linear_chain_crf|crf|beam_search|edit_distance|fusion_)/],
  ['normalization', 'normalization', /norm|^lrn|^dropout|data_norm/],
  ['loss and metric', 'loss', /entropy|loss|^accuracy|^auc|^mean$|metric|^huber|^kldiv|precision/],
  ['pooling and resizing', 'pooling', /pool|interp|^pad|unpool|pixel_shuffle|roi_|grid_sampl|prior_box|anchor|nms|box/],
  ['activation', 'activation', /^(relu|sigmoid|tanh|gelu|leaky|elu|selu|swish|silu|hard_|softmax|log_softmax|softplus|softsign|mish|prelu|brelu|clip|exp|log|sqrt|rsqrt|square|abs|maxout|erf|logsigmoid|stanh|thresholded|tanh_shrink|softshrink|sign|sin|cos|floor|ceil|round|reciprocal|pow)/],
  ['shape and movement', 'shape', /^(reshape|transpose|concat|split|slice|strided|squeeze|unsqueeze|flatten|expand|tile|stack|unstack|gather|scatter|shape|flip|roll|assign|cast|shuffle|unbind|one_hot|index|take|meshgrid|tril|triu|where|size|share_data|memcpy|transfer|set_value|broadcast|coalesce)/],
  ['constant and random', 'constant', /^(fill_|range|linspace|uniform_random|gaussian|truncated_gaussian|randint|randperm|bernoulli|eye|assign_value|sampling|multinomial|lod_reset)/],
  ['arithmetic', 'arithmetic', /./],
];

const familyByType = new Map();
function familyOf(type) {
  let family = familyByType.get(type);
  if (!family) {
    const base = type.replace(/(_grad)+$|_gradients$/, '');
    family = families.find(([, , pattern]) => pattern.test(base));
    familyByType.set(type, family);
  }
  return family;
}

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
