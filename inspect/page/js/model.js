// A program as the page uses it: ops that know the writers of their inputs, and variables that know
// their writers and readers.

class Op {
  constructor(block, index, json) {
    this.block = block;
    this.index = index;
    this.id = `${block}.${index}`;
    this.type = json.type;
    this.stage = json.stage || 'forward';
    this.phase = phaseOf(this.stage);
    this.layer = json.layer || '';
    this.origin = json.origin || '';
    this.rounds = json.round || '';  // rounds of the repeats around its layer, "i = 2, j = 0"
    this.forwardPlace = json.forward_op || null;
    this.inputs = Object.entries(json.inputs || {});
    this.outputs = Object.entries(json.outputs || {});
    this.attrs = json.attrs || {};
    this.subBlocks = json.sub_blocks || [];
    this.forward = null;    // for a gradient op, its forward op
    this.gradientOps = [];  // for a forward op, the ops made for its gradient
    this.multiplyAdds = 0;
    this.bytes = 0;         // bytes of its outputs
    this.seconds = 0;
    this.node = null;       // its node in the current tree
    this.state = '';        // in a difference: added, removed, changed
    this.place = '';        // in a difference: its position in its program
    this.reads = [];        // {name, slot, from: Op or null}
    this.writes = [];       // {name, slot}
  }
  // Its number in a dump, also in a difference, where removed ops are between the others.
  get where() { return this.special ? this.type : this.place || `block ${this.block} op ${this.index}`; }
  // The name of its main output: for a batch_norm Y, not the statistics before it.
  get output() {
    const main = this.writes.find(({slot}) => /^(Out|Output|Y|Hidden|Loss)$/.test(slot)) || this.writes[0];
    return main ? main.name : '';
  }
}

const phases = ['forward', 'backward', 'update'];
function phaseOf(stage) {
  if (stage === 'forward' || stage === 'scale loss') return 'forward';
  return /^(backward|error clip|check loss|accumulate)/.test(stage) ? 'backward' : 'update';
}

const isEmptyName = (name) => name === '' || name === '@EMPTY@';

class Program {
  constructor(data) {
    this.data = data;
    this.name = data.name;
    const json = data.program;
    this.feeds = json.feeds || [];
    this.fetches = json.fetches || [];
    this.gradToVar = json.grad_to_var || {};
    this.blocks = json.blocks.map((block) => ({
      index: block.index,
      title: `block ${block.number === undefined ? block.index : `${block.number} of the first program`}`,
      parent: block.parent,
      ops: block.ops.map((op, i) => new Op(block.index, i, op)),
      vars: new Map(block.vars.map((v) => [v.name, v])),
      uses: new Map(),  // by name: {writers: [Op], readers: [Op]}
    }));
    this.ops = this.blocks.flatMap((block) => block.ops);
    this.opById = new Map(this.ops.map((op) => [op.id, op]));
    this.undeclared = new Map();  // the uses of names that no block declares
    this.addDetails(data);
    this.connect();
    this.gradientsOf = new Map();
    for (const [gradient, name] of Object.entries(this.gradToVar)) {
      if (!this.gradientsOf.has(name)) this.gradientsOf.set(name, []);
      this.gradientsOf.get(name).push(gradient);
    }
  }

  addDetails({multiply_adds: counts = [], times = null}) {
    for (const op of this.ops) {
      op.multiplyAdds = (counts[op.block] || [])[op.index] || 0;
      const place = op.forwardPlace;
      op.forward = place ? this.opById.get(`${place.block}.${place.op}`) || null : null;
      if (op.forward) op.forward.gradientOps.push(op);
    }
    for (const {block, op: index, seconds} of times ? times.ops : []) {
      const op = this.opById.get(`${block}.${index}`);
      if (op) op.seconds += seconds;
    }
  }

  // --- readers and writers ---

  connect() {
    const owners = new Map();  // block -> op that runs it
    this.ops.forEach((op) => op.subBlocks.forEach((b) => {
      if (b > 0 && b < this.blocks.length && b !== op.block && !owners.has(b)) owners.set(b, op);
    }));
    const done = new Set();
    const visit = (block, outer) => {
      if (done.has(block.index)) return new Set();
      done.add(block.index);
      const last = new Map();  // name -> op that wrote it last
      const scope = {last, outer};
      const written = new Set();
      for (const op of block.ops) {
        this.connectInputs(op, scope);
        op.subBlocks.forEach((b) => {
          if (owners.get(b) !== op) return;
          const inner = this.blocks[b];
          for (const name of visit(inner, scope)) {
            if (!inner.vars.has(name)) last.set(name, op), written.add(name);
          }
        });
        this.connectOutputs(op, last, written);
      }
      return written;
    };
    // The root first, then blocks that no op runs.
    this.blocks.forEach((block) => visit(block, null));
  }

  connectInputs(op, scope) {
    for (const [slot, names] of op.inputs) {
      for (const name of names) {
        if (isEmptyName(name)) continue;
        let from = null;
        for (let s = scope; s && !from; s = s.outer) from = s.last.get(name) || null;
        op.reads.push({name, slot, from});
        this.usesOf(op.block, name).readers.push(op);
      }
    }
  }

  connectOutputs(op, last, written) {
    for (const [slot, names] of op.outputs) {
      for (const name of names) {
        if (isEmptyName(name)) continue;
        op.writes.push({name, slot});
        last.set(name, op);
        written.add(name);
        this.usesOf(op.block, name).writers.push(op);
        const desc = this.findVar(op.block, name);
        if (desc && !desc.persistable) op.bytes += bytesOf(desc);
      }
    }
  }

  // The block that declares a name, as seen from `block`; -1 if none does.
  homeOf(block, name) {
    let left = this.blocks.length;  // a damaged program may contain cycles
    for (let b = this.blocks[block]; b && left-- > 0; b = this.blocks[b.parent])
      if (b.vars.has(name)) return b.index;
    return -1;
  }
  findVar(block, name) {
    const home = this.homeOf(block, name);
    return home < 0 ? null : this.blocks[home].vars.get(name);
  }
  usesOf(block, name) {
    const home = this.homeOf(block, name);
    const held = home < 0 ? this.undeclared : this.blocks[home].uses;
    let uses = held.get(name);
    if (!uses) held.set(name, (uses = {writers: [], readers: []}));
    return uses;
  }
  // The first block that declares the name; -1: none.
  blockOf(name) {
    const found = this.blocks.find((block) => block.vars.has(name));
    return found ? found.index : -1;
  }
  isParameter(block, name) {
    const desc = this.findVar(block, name);
    return !!desc && !!(desc.parameter || desc.persistable);
  }
}

// --- shapes ---

const sizes = {bool: 1, int8: 1, uint8: 1, int16: 2, float16: 2, bfloat16: 2, int32: 4, float32: 4,
  int64: 8, float64: 8, complex64: 8, complex128: 16};
const elementsOf = (shape) => (shape || []).reduce((n, d) => n * (d < 0 ? 1 : d), 1);
function bytesOf(desc) {
  if (!desc.shape || (desc.type && !/LOD_TENSOR$|^tensor$/i.test(desc.type))) return 0;
  return elementsOf(desc.shape) * (sizes[desc.dtype] || 0);
}
const shapeText = (shape) =>
  !shape ? '' : shape.length === 0 ? 'scalar' : shape.map((d) => (d < 0 ? '?' : d)).join(' × ');
const typeText = (desc) => (desc ? `${desc.dtype || ''} ${shapeText(desc.shape)}`.trim() : '');
