// Opens a program with Netron's own reader and prints what it read of it as one line of JSON:
//   node netron_read.mjs DIR FILE
// DIR holds Netron's sources (paddle.js, paddle-proto.js, protobuf.js, ...). Files that Netron asks
// for are looked for beside FILE. Exit code 1 and Netron's message where it refuses the file.
import {existsSync, readFileSync} from 'node:fs';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [, , sources, file] = process.argv;
const source = (name) => import(pathToFileURL(path.resolve(sources, name.replace(/(\.js)?$/, '.js'))).href);

// A file as Netron's streams show it.
class Stream {
  constructor(bytes) {
    this.bytes = bytes;
    this.position = 0;
  }
  get length() { return this.bytes.length; }
  peek(length = this.length - this.position) {
    if (this.position + length > this.length) throw new Error('the file ends too early');
    return this.bytes.subarray(this.position, this.position + length);
  }
  read(length) {
    const bytes = this.peek(length);
    this.position += bytes.length;
    return bytes;
  }
  skip(offset) { this.position += offset; }
  seek(position) { this.position = position; }
}

// What Netron's application passes to its readers, as far as the one for Paddle uses it.
class Context {
  constructor(file, protobuf) {
    Object.assign(this, {file, protobuf, identifier: path.basename(file)});
    this.stream = new Stream(new Uint8Array(readFileSync(file)));
  }
  tags(type) { return this.reader(type === 'pb').signature(); }
  read(type) { return this.reader(type !== 'protobuf.text'); }
  reader(binary) {
    return (binary ? this.protobuf.BinaryReader : this.protobuf.TextReader).open(this.stream.bytes);
  }
  peek() { return null; }
  require(name) { return source(name); }
  metadata() { return {type: (name) => ({name}), attribute: () => null}; }
  async fetch(name) {
    const beside = path.join(path.dirname(this.file), name);
    if (!existsSync(beside)) throw new Error(`there is no ${name}`);
    return new Context(beside, this.protobuf);
  }
}

function summaryOf({format, graphs}) {
  const counted = {format, blocks: graphs.length, nodes: 0, inputs: 0, outputs: 0, weights: 0};
  const named = new Map();
  for (const {nodes, inputs, outputs} of graphs) {
    counted.inputs += inputs.length;
    counted.outputs += outputs.length;
    for (const node of nodes.flatMap((n) => [n, ...n.chain])) {
      ++counted.nodes;
      const values = node.inputs.flatMap(({value}) => value);
      values.filter(({initializer}) => initializer && initializer.values)
        .forEach((value) => named.set(value.name.split('\n')[0], value));
    }
  }
  counted.weights = named.size;
  // Netron matches names and tensors by their order: where it is another one, types do not agree.
  counted.mismatched = [...named.values()]
    .filter(({type, initializer}) => `${type}` !== `${initializer.type}`).map(({name}) => name);
  return counted;
}

try {
  const [{ModelFactory}, protobuf] = [await source('paddle'), await source('protobuf')];
  const context = new Context(file, protobuf), factory = new ModelFactory();
  factory.match(context);
  if (!context.type) throw new Error('Netron does not take it for a Paddle program');
  console.log(JSON.stringify(summaryOf(await factory.open(context))));
} catch (error) {
  console.log(`${error.message}`);
  process.exit(1);
}
