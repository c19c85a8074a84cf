// Measures decision trees here and in ONNX Runtime, on one thread, in turns.
//
//   node trees.js NODE_MODULES CORACLE
//
// NODE_MODULES is a folder with onnxruntime-node, CORACLE the command. Prints, for three forests and
// 1, 100 and 10,000 rows, the shortest and the middle time of a run in microseconds.
const fs = require('fs');
const os = require('os');
const path = require('path');
const {execFileSync} = require('child_process');
const ort = require(path.join(process.argv[2], 'onnxruntime-node'));
const coracle = process.argv[3];

const kFeatures = 28;

// --- an ONNX model as bytes ---

function varint(value) {
  const bytes = [];
  for (let n = BigInt.asUintN(64, BigInt(value)); ; n >>= 7n) {
    if (n < 128n) return Buffer.from([...bytes, Number(n)]);
    bytes.push(Number(n & 127n) | 128);
  }
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
function messageOf(field, parts) {
  const body = Buffer.concat(parts.map((part) => Buffer.from(part)));
  return Buffer.concat([varint(field << 3 | 2), varint(body.length), body]);
}
const message = (field, ...parts) => messageOf(field, parts);
function attribute(name, values) {
  const head = message(1, name);
  if (values instanceof Float32Array)
    return message(5, head, message(7, Buffer.from(values.buffer)), number(20, 6));
  if (typeof values === 'string') return message(5, head, message(4, values), number(20, 3));
  if (typeof values === 'number') return message(5, head, number(3, values), number(20, 2));
  if (typeof values[0] === 'string')
    return messageOf(5, [head, ...values.map((value) => message(9, value)), number(20, 8)]);
  return message(5, head, messageOf(8, values.map(varint)), number(20, 7));
}
const dim = (size) => (size > 0 ? message(1, number(1, size)) : message(1, message(2, 'n')));
const declared = (field, name, type, dims) =>
  message(field, message(1, name),
          message(2, message(1, number(1, type), message(2, ...dims.map(dim)))));

function modelOf(type, attributes, outputs) {
  const node = message(1, message(1, 'x'), ...outputs.map(([name]) => message(2, name)),
                       message(4, type),
                       ...Object.entries(attributes).map(([name, v]) => attribute(name, v)),
                       message(7, 'ai.onnx.ml'));
  return Buffer.concat([
    number(1, 8),
    message(7, node, message(2, 'trees'), declared(11, 'x', 1, [-1, kFeatures]),
            ...outputs.map(([name, type, dims]) => declared(12, name, type, dims))),
    message(8, message(1, ''), number(2, 17)),
    message(8, message(1, 'ai.onnx.ml'), number(2, 3)),
  ]);
}

// --- forests ---

let state = 1;
function random() {
  state = (state * 1103515245 + 12345) % 2147483648;
  return state / 2147483648;
}

// Trees of this depth, in which some ways end early. A leaf votes for all targets.
function forest(trees, depth, mode, targets, votes) {
  const lists = {treeids: [], nodeids: [], featureids: [], truenodeids: [], falsenodeids: []};
  const modes = [], values = [], weights = [];
  const of = {treeids: [], nodeids: [], ids: []};
  for (let tree = 0; tree < trees; ++tree) {
    const open = [0];
    for (let i = 0; i < open.length; ++i) {
      const leaf = open[i] === depth || (open[i] > 2 && random() < 0.1);
      const row = [tree, i, leaf ? 0 : Math.floor(random() * kFeatures), leaf ? 0 : open.length,
                   leaf ? 0 : open.length + 1];
      Object.values(lists).forEach((list, k) => list.push(row[k]));
      modes.push(leaf ? 'LEAF' : mode);
      values.push(random());
      if (!leaf) open.push(open[i] + 1, open[i] + 1);
      for (let target = 0; leaf && target < targets; ++target) {
        [tree, i, target].forEach((id, k) => Object.values(of)[k].push(id));
        weights.push(random() - 0.5);
      }
    }
  }
  const attributes = {nodes_modes: modes, nodes_values: Float32Array.from(values)};
  for (const [name, list] of Object.entries(lists)) attributes[`nodes_${name}`] = list;
  for (const [name, list] of Object.entries(of)) attributes[`${votes}_${name}`] = list;
  attributes[`${votes}_weights`] = Float32Array.from(weights);
  return attributes;
}

const classes = [['label', 7, [-1]], ['scores', 1, [-1, -1]]];
const models = {
  '100 trees of depth 6': modelOf(
      'TreeEnsembleRegressor', {...forest(100, 6, 'BRANCH_LT', 1, 'target'), n_targets: 1},
      [['y', 1, [-1, 1]]]),
  '500 trees of depth 8, 2 classes': modelOf(
      'TreeEnsembleClassifier',
      {...forest(500, 8, 'BRANCH_LEQ', 1, 'class'), classlabels_int64s: [0, 1],
       post_transform: 'LOGISTIC'},
      classes),
  '100 trees of depth 10, 3 classes': modelOf(
      'TreeEnsembleClassifier',
      {...forest(100, 10, 'BRANCH_LEQ', 3, 'class'), classlabels_int64s: [0, 1, 2]}, classes),
};

// --- measurements ---

async function timesOf(session, rows) {
  const x = new ort.Tensor('float32', Float32Array.from({length: rows * kFeatures}, Math.random),
                           [rows, kFeatures]);
  const times = [], end = process.hrtime.bigint() + 1000000000n;
  while (times.length < 10 || process.hrtime.bigint() < end) {
    const begin = process.hrtime.bigint();
    await session.run({x});
    times.push(Number(process.hrtime.bigint() - begin) / 1e3);
  }
  times.sort((a, b) => a - b);
  return [times[0], times[times.length >> 1]];
}

function ownTimes(file, rows) {
  const report = JSON.parse(execFileSync(
      coracle, ['bench', file, `--shape=x:${rows}x${kFeatures}`, '--threads=1', '--seconds=1',
                '--json']));
  const latency = report.rows[0].latency_ms;
  return [1e3 * latency.min, 1e3 * latency.p50];
}

(async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'trees_'));
  for (const [name, bytes] of Object.entries(models)) {
    const file = path.join(folder, 'model.onnx');
    fs.writeFileSync(file, bytes);
    const session = await ort.InferenceSession.create(file, {intraOpNumThreads: 1});
    for (const rows of [1, 100, 10000]) {
      const peer = await timesOf(session, rows), own = ownTimes(file, rows);
      const show = (times) => times.map((time) => time.toFixed(1)).join(' / ');
      console.log(`${name}, ${rows} rows: ONNX Runtime ${show(peer)}, Coracle ${show(own)}`);
    }
    await session.release();
  }
  fs.rmSync(folder, {recursive: true});
})();
