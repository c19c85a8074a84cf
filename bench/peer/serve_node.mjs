// Serves an ONNX model with ONNX Runtime and fastify, for serve_load to compare with: the infer
// request of the Open Inference Protocol v2 with binary tensors (float32), and the same as JSON.
//
//   node serve_node.mjs NODE_MODULES MODEL.onnx [PORT [THREADS]]
//
// NODE_MODULES is a folder with onnxruntime-node and, unless node's own http shall serve, fastify
// (npm i fastify onnxruntime-node). Requests run one at a time, in the order in which they come.
import {createRequire} from 'node:module';
import http from 'node:http';
import path from 'node:path';

const [modules, file, port = '8100', threads = '1'] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), 'x.js'));
const ort = require('onnxruntime-node');
const session = await ort.InferenceSession.create(
    file, {intraOpNumThreads: Number(threads), interOpNumThreads: 1});

function inputOf(input, body, at) {
  const size = input.parameters?.binary_data_size;
  const shape = input.shape;
  if (size === undefined) return new ort.Tensor('float32', Float32Array.from(input.data.flat(Infinity)), shape);
  // A copy, because the elements must begin at a multiple of four.
  const bytes = new Uint8Array(body.subarray(at, at + size));
  return new ort.Tensor('float32', new Float32Array(bytes.buffer, 0, size / 4), shape);
}

async function infer(headers, body) {
  const json = Number(headers['inference-header-content-length'] ?? body.length);
  const request = JSON.parse(body.subarray(0, json).toString());
  const feeds = {};
  let at = json;
  for (const input of request.inputs) {
    feeds[input.name] = inputOf(input, body, at);
    at += input.parameters?.binary_data_size ?? 0;
  }
  const results = await session.run(feeds);
  const binary = request.parameters?.binary_data_output === true;
  const outputs = [], parts = [];
  for (const name of session.outputNames) {
    const {data, dims} = results[name];
    const output = {name, datatype: 'FP32', shape: dims};
    if (binary) {
      parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
      output.parameters = {binary_data_size: data.byteLength};
    } else {
      output.data = Array.from(data);
    }
    outputs.push(output);
  }
  const text = Buffer.from(JSON.stringify({model_name: 'model', outputs}));
  const head = binary ? {'content-type': 'application/octet-stream',
                         'inference-header-content-length': text.length} :
                        {'content-type': 'application/json'};
  return [head, Buffer.concat([text, ...parts])];
}

const metrics = () => `# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes ${process.memoryUsage().rss}
`;

function listenWithFastify(fastify) {
  const server = fastify({bodyLimit: 1 << 28});
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', {parseAs: 'buffer'}, (request, body, done) => done(null, body));
  server.get('/metrics', async () => metrics());
  server.post('/*', async (request, reply) => {
    const [head, body] = await infer(request.headers, request.body);
    return reply.headers(head).send(body);
  });
  return server.listen({port: Number(port), host: '127.0.0.1'});
}

function listenWithHttp() {
  http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', async () => {
      if (request.method === 'GET') return response.end(metrics());
      try {
        const [head, body] = await infer(request.headers, Buffer.concat(parts));
        response.writeHead(200, {...head, 'content-length': body.length}).end(body);
      } catch (error) {
        response.writeHead(400).end(JSON.stringify({error: String(error)}));
      }
    });
  }).listen(Number(port), '127.0.0.1');
}

let fastify;
try {
  fastify = require('fastify');
} catch {
  fastify = null;
}
if (fastify)
  await listenWithFastify(fastify);
else
  listenWithHttp();
console.log(`${fastify ? 'fastify' : "node's http"} and ONNX Runtime on port ${port}`);
