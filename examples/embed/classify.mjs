// Runs a model on numbers of the command line, in Node without any package:
//   node classify.mjs MODEL INPUT WIDTH NUMBER...
// INPUT is the name of the input, which has rows of WIDTH numbers. Node cannot call C by itself, so
// this runs `coracle predict MODEL -`, which answers requests on its standard input.
import {spawn} from 'node:child_process';
import {createInterface} from 'node:readline';

class Model {
  #child;
  #lines;

  constructor(path) {
    const command = process.env.CORACLE ?? 'coracle';
    this.#child = spawn(command, ['predict', path, '-', '--format=requests'],
                        {stdio: ['pipe', 'pipe', 'inherit']});
    this.#child.on('error', (error) => console.error(`${command}: ${error.message}`));
    this.#child.stdin.on('error', () => {});  // it has ended; the missing answer says so
    this.#lines = createInterface({input: this.#child.stdout})[Symbol.asyncIterator]();
  }

  // Answers come in the order of the requests.
  async run(name, shape, data) {
    const inputs = [{name, datatype: 'FP32', shape, data}];
    this.#child.stdin.write(JSON.stringify({inputs}) + '\n');
    const {value, done} = await this.#lines.next();
    if (done) throw new Error('the model cannot be loaded');
    const answer = JSON.parse(value);
    if (answer.error) throw new Error(answer.error);
    return answer.outputs;
  }

  close() {
    this.#child.stdin.end();
  }
}

const [path, name, width, ...numbers] = process.argv.slice(2);
if (numbers.length === 0) {
  console.error('usage: node classify.mjs MODEL INPUT WIDTH NUMBER...');
  process.exit(2);
}
const model = new Model(path);
try {
  const [output] = await model.run(name, [numbers.length / width, Number(width)],
                                   numbers.map(Number));
  for (const value of output.data) console.log(value);
} catch (error) {
  console.error(`classify: ${error.message}`);
  process.exitCode = 1;
}
model.close();
