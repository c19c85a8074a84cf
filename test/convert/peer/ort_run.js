// Runs ONNX models with ONNX Runtime.
//
//   node ort_run.js NODE_MODULES FOLDER...
//
// A folder holds model.onnx and, for each input by its name, in_<i>.npy with the name in line i of
// inputs.txt. Its outputs go to out_<i>.npy, with their names in outputs.txt, or an error's message to
// error.txt.
const fs = require('fs');
const path = require('path');
const ort = require(path.join(process.argv[2], 'onnxruntime-node'));

const KINDS = {
  '<f4': ['float32', Float32Array], '<f8': ['float64', Float64Array],
  '<i8': ['int64', BigInt64Array], '<i4': ['int32', Int32Array], '<i2': ['int16', Int16Array],
  '|i1': ['int8', Int8Array], '|u1': ['uint8', Uint8Array], '|b1': ['bool', Uint8Array],
  '<f2': ['float16', Uint16Array],
};

function readNpy(file) {
  const bytes = fs.readFileSync(file);
  const size = bytes.readUInt16LE(8), header = bytes.toString('latin1', 10, 10 + size);
  const kind = KINDS[/'descr': '([^']*)'/.exec(header)[1]];
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(',').filter(s => s.trim()).map(Number);
  const body = bytes.buffer.slice(bytes.byteOffset + 10 + size, bytes.byteOffset + bytes.length);
  return new ort.Tensor(kind[0], new kind[1](body), dims);
}

function writeNpy(file, tensor) {
  const descr = Object.keys(KINDS).find(k => KINDS[k][0] === tensor.type);
  if (!descr) throw new Error('no npy for ' + tensor.type);
  const shape = tensor.dims.length === 1 ? tensor.dims[0] + ',' : tensor.dims.join(', ');
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  header += ' '.repeat((64 - (10 + header.length + 1) % 64) % 64) + '\n';
  const head = Buffer.alloc(10);
  head.write('\x93NUMPY\x01\x00', 'latin1');
  head.writeUInt16LE(header.length, 8);
  const data = tensor.data;
  const body = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  fs.writeFileSync(file, Buffer.concat([head, Buffer.from(header, 'latin1'), body]));
}

async function run(folder) {
  const options = {logSeverityLevel: 3, intraOpNumThreads: 1};
  const session = await ort.InferenceSession.create(path.join(folder, 'model.onnx'), options);
  const names = fs.readFileSync(path.join(folder, 'inputs.txt'), 'utf8').split('\n').filter(s => s);
  const feeds = {};
  names.forEach((name, i) => {
    if (session.inputNames.includes(name)) feeds[name] = readNpy(path.join(folder, `in_${i}.npy`));
  });
  const results = await session.run(feeds);
  fs.writeFileSync(path.join(folder, 'outputs.txt'), session.outputNames.join('\n') + '\n');
  session.outputNames.forEach((name, i) => writeNpy(path.join(folder, `out_${i}.npy`), results[name]));
  await session.release();
}

(async () => {
  for (const folder of process.argv.slice(3)) {
    try {
      await run(folder);
    } catch (e) {
      fs.writeFileSync(path.join(folder, 'error.txt'), String(e.message || e));
    }
  }
})();
