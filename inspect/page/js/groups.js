// The tree that the graph shows: a program's parts of a step, rounds of repeats, layers and
// stretches of ops contain ops; an op with sub-blocks contains their ops. Only open groups are laid
// out and drawn.

const noEdges = new Map();

class GraphNode {
  constructor(kind, title, parent, op = null) {
    this.kind = kind;  // root, phase, round, layer, stretch, block, op
    this.title = title;
    this.parent = parent;
    this.op = op;
    this.children = [];
    this.open = false;
    this.numOps = op && !op.special ? 1 : 0;
    this.multiplyAdds = op ? op.multiplyAdds : 0;
    this.seconds = op ? op.seconds : 0;
    this.bytes = op ? op.bytes : 0;
    this.inColumns = false;
    this.edges = noEdges;    // between children: {from, to, links, home}
    this.depth = 0;
    this.box = null;         // {x, y, w, h} in its parent, after layout
  }
  get isGroup() { return this.children.length > 0; }
  *ancestors() { for (let node = this.parent; node; node = node.parent) yield node; }
}

const flatLimit = 420;    // a level with at most this many boxes has no stretches
const mostOutputs = 24;   // number of outputs with boxes, for a program without fetch ops
const stretchSize = 48;   // ops in a stretch
const budget = 460;       // number of boxes opened at first

class GraphTree {
  // `shownPhases`: a Set of phases; ops of other phases are left out.
  constructor(program, shownPhases) {
    this.program = program;
    this.nodeOf = new Map();  // Op -> GraphNode
    this.blocksShown = new Set([0]);
    this.root = new GraphNode('root', program.name, null);
    this.inputs = [];
    const root = program.blocks[0];
    const ops = root.ops.filter((op) => shownPhases.has(op.phase));
    const all = [...this.inputOps(ops, shownPhases), ...ops, ...this.outputOps(ops)];
    this.addPhases(all);
    program.blocks.filter((b) => b.index > 0 && !this.blocksShown.has(b.index) && b.ops.length > 0)
      .forEach((b) => this.addLooseBlock(b));
    this.sum(this.root);
    this.addEdges();
    this.openWithinBudget();
  }

  // --- building ---

  // Boxes for inputs: variables that ops read and no op writes, and that are not parameters.
  inputOps(ops, shownPhases) {
    const made = new Map();
    const readIn = (op) => op.reads.forEach((read) => {
      if (read.from || made.has(read.name)) return;
      const desc = this.program.findVar(op.block, read.name);
      if (desc && (desc.persistable || desc.parameter)) return;
      if (this.program.homeOf(op.block, read.name) > 0) return;
      made.set(read.name, specialOp('input', read.name, made.size, op.phase));
    });
    ops.forEach(readIn);
    this.program.ops.forEach((op) => op.block > 0 && shownPhases.has(op.phase) && readIn(op));
    this.specialReads = made;
    return [...made.values()];
  }
  outputOps(ops) {
    const fetched = ops.some((op) => op.type === 'fetch') ? [] : this.program.fetches;
    const made = [];
    const shown = fetched.filter((name) => !this.program.gradToVar[name] && !/@GRAD/.test(name));
    for (const name of shown.slice(0, mostOutputs)) {
      const writer = ops.findLast((op) => op.writes.some((w) => w.name === name));
      if (!writer || writer.output !== name) continue;  // statistics and the like
      const op = specialOp('output', name, made.length, writer.phase);
      op.reads = [{name, slot: '', from: writer}];
      made.push(op);
    }
    return made;
  }

  addPhases(ops) {
    const present = phases.filter((phase) => ops.some((op) => op.phase === phase));
    if (present.length < 2) return this.fill(this.root, ops);
    for (const phase of present) {
      const part = ops.filter((op) => op.phase === phase);
      this.fill(this.add(this.root, 'phase', phase), part);
    }
    this.root.inColumns = true;
  }
  fill(parent, ops, level = 0) {
    this.addRounds(parent, ops, level);
    this.addStretches(parent);
  }

  // Rounds of repeats, outer ones first, as sequences of ops with the same round.
  addRounds(parent, ops, level = 0) {
    const parts = runs(ops, (op) => roundsOf(op)[level] || '');
    for (const [round, part] of parts) {
      if (round && parts.length > 1) {
        this.fill(this.add(parent, 'round', round), part, level + 1);
      } else if (round) {
        this.addRounds(parent, part, level + 1);
      } else {
        this.addLayers(parent, part);
      }
    }
  }
  addLayers(parent, ops) {
    for (const [layer, part] of runs(ops, (op) => op.layer)) {
      const home = layer && part.length > 1 ? this.add(parent, 'layer', layer) : parent;
      part.forEach((op) => this.addOp(home, op));
      if (home !== parent) this.addStretches(home);
    }
  }
  addOp(parent, op) {
    const node = this.add(parent, 'op', op.type, op);
    this.nodeOf.set(op, node);
    op.node = node;
    if (op.subBlocks.length === 0) return;
    const blocks = op.subBlocks.filter(
      (b) => b > 0 && b < this.program.blocks.length && !this.blocksShown.has(b));
    for (const b of blocks) {
      this.blocksShown.add(b);
      const home = blocks.length === 1 ? node : this.add(node, 'block', this.program.blocks[b].title);
      this.fill(home, this.program.blocks[b].ops);
    }
  }
  // A block that no op runs, as in programs with functions.
  addLooseBlock(block) {
    this.blocksShown.add(block.index);
    this.fill(this.add(this.root, 'block', block.title), block.ops);
  }
  add(parent, kind, title, op = null) {
    const node = new GraphNode(kind, title, parent, op);
    node.number = parent.children.length;
    parent.children.push(node);
    return node;
  }

  // Divides a long level into stretches where the fewest values cross, until each level is short.
  addStretches(parent) {
    while (parent.children.length > flatLimit) {
      const all = parent.children;
      const crossing = crossings(all);
      parent.children = [];
      for (let begin = 0; begin < all.length;) {
        const end = cutAfter(crossing, begin, all.length);
        const node = this.add(parent, 'stretch', '');
        node.children = all.slice(begin, end);
        node.children.forEach((child, i) => { child.parent = node, child.number = i; });
        begin = end;
      }
    }
  }

  sum(node) {
    for (const child of node.children) {
      child.depth = node.depth + 1;
      this.sum(child);
      node.numOps += child.numOps;
      node.multiplyAdds += child.multiplyAdds;
      node.seconds += child.seconds;
      node.bytes += child.bytes;
    }
    if (node.kind === 'stretch') node.title = stretchTitle(node);
  }

  // --- edges ---

  addEdges() {
    for (const [op, node] of this.nodeOf) {
      for (const read of op.reads) {
        const from = read.from || (op.special ? null : this.specialReads.get(read.name));
        const source = from && this.nodeOf.has(from) && from.node;
        if (source) this.addEdge(source, node, read);
      }
    }
  }
  // Adds the edge to the innermost group that contains both, between the boxes there.
  addEdge(source, target, read) {
    let from = source, to = target;
    while (from.depth > to.depth) from = from.parent;
    while (to.depth > from.depth) to = to.parent;
    if (from === to) return;  // an op and the ops inside it
    while (from.parent !== to.parent) from = from.parent, to = to.parent;
    const home = from.parent, key = from.number * home.children.length + to.number;
    if (home.edges === noEdges) home.edges = new Map();
    let edge = home.edges.get(key);
    if (!edge) home.edges.set(key, (edge = {from, to, links: [], home}));
    edge.links.push({source, target, name: read.name, block: target.op.block});
  }

  // --- open groups ---

  openWithinBudget() {
    this.root.open = true;
    let left = budget - this.root.children.length;
    let level = [...this.root.children];
    while (level.length > 0) {  // a whole level, so that equal groups look the same
      const groups = level.filter((node) => node.isGroup);
      left -= groups.reduce((sum, node) => sum + node.children.length, 0);
      if (left < 0) return;
      groups.forEach((node) => { node.open = true; });
      level = groups.flatMap((node) => node.children);
    }
  }
  setAllOpen(open) {
    const visit = (node) => {
      if (node.isGroup && node !== this.root) node.open = open;
      node.children.forEach(visit);
    };
    visit(this.root);
  }
  // Opens the groups around a node.
  reveal(node) {
    let changed = false;
    for (const outer of node.ancestors()) {
      if (!outer.open) outer.open = changed = true;
    }
    return changed;
  }
  // The node itself, or the closed group that hides it.
  visible(node) {
    let shown = node;
    for (const outer of node.ancestors()) if (!outer.open) shown = outer;
    return shown;
  }
}

function specialOp(type, name, number, phase) {
  const op = new Op(0, -1, {type});
  op.id = `${type}:${name}`;
  op.special = name;
  op.phase = phase;
  op.writes = type === 'input' ? [{name, slot: ''}] : [];
  return op;
}

const roundsOf = (op) => (op.rounds ? op.rounds.split(', ') : []);

// Neighbours with the same key, in order: [[key, items], ...].
function runs(items, keyOf) {
  const parts = [];
  for (const item of items) {
    const key = keyOf(item);
    if (parts.length > 0 && parts[parts.length - 1][0] === key) parts[parts.length - 1][1].push(item);
    else parts.push([key, [item]]);
  }
  return parts;
}

// Counts the values that cross each place between neighbours. `mark` shows which nodes got their
// place from this call.
function crossings(nodes) {
  const mark = {}, inside = [];
  const visit = (node, i) => {
    node.mark = mark, node.place = i;
    if (node.op) inside.push(node);
    for (const child of node.children) visit(child, i);
  };
  nodes.forEach(visit);
  const change = new Array(nodes.length + 1).fill(0);
  for (const node of inside) {
    for (const {from} of node.op.reads) {
      const source = from && from.node;
      if (source && source.mark === mark && source.place < node.place)
        ++change[source.place + 1], --change[node.place + 1];
    }
  }
  let sum = 0;
  return change.map((c) => (sum += c));
}
function cutAfter(crossing, begin, end) {
  if (end - begin <= stretchSize * 1.4) return end;
  let best = begin + stretchSize;
  const score = (i) => (crossing[i] || 0) + Math.abs(i - begin - stretchSize) / (4 * stretchSize);
  for (let i = begin + Math.round(stretchSize * 0.6); i <= begin + stretchSize * 1.4; ++i)
    if (score(i) < score(best)) best = i;
  return best;
}
function stretchTitle(node) {
  const held = [...opsIn(node)].map((n) => n.op), ops = held.filter((op) => !op.special);
  if (ops.length === 0) return `${held[0].type}s`;  // inputs or outputs
  return `ops ${ops[0].index} – ${ops[ops.length - 1].index}`;
}
function* opsIn(node) {
  if (node.op) yield node;
  else for (const child of node.children) yield* opsIn(child);
}
// "conv2d ×8 · relu ×8": the most frequent types.
function typesText(node, most = 3) {
  if (node.types !== undefined) return node.types;
  const counts = new Map();
  const visit = (n) => {
    if (n.op && n !== node) counts.set(n.op.type, (counts.get(n.op.type) || 0) + 1);
    n.children.forEach(visit);
  };
  visit(node);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const shown = sorted.slice(0, most).map(([type, n]) => (n > 1 ? `${type} ×${n}` : type));
  return (node.types = shown.join(' · ') + (sorted.length > most ? ' …' : ''));
}
