// The view: the program and its parts that are shown, the selection, and the camera. Everything
// that changes the picture goes through it.

class View {
  constructor(data, queue) {
    this.data = data;
    this.programs = data.programs.map((p) => new Program(p));
    this.difference = this.programs.length > 1 ? differenceOf(this.programs, data.difference) : null;
    this.shown = this.difference ? 'difference' : 0;
    this.phases = new Set(phases);
    this.coloring = this.difference ? 'difference' : 'family';
    this.selected = null;   // {kind: 'op', node} | {kind: 'group', node} | {kind: 'var', block, name}
    this.hovered = null;    // an edge
    this.path = null;       // {name, steps} from the loss to a variable
    this.found = new Set(); // nodes that a search found
    this.marked = [];
    this.camera = {x: 0, y: 0, scale: 1};
    this.scene = new Scene(queue);
    this.canvas = byId('graph');
    this.painter = new Painter(this.canvas, this);
    this.listeners = [];
    this.makeTree();
  }

  get program() {
    return this.shown === 'difference' ? this.difference.program : this.programs[this.shown];
  }
  onChange(listener) { this.listeners.push(listener); }
  changed(what) { this.listeners.forEach((listener) => listener(what)); }

  makeTree() {
    this.tree = new GraphTree(this.program, this.phases);
    this.mostBy = {};
  }
  // Shows another program, or other parts of a step.
  async rebuild() {
    this.selected = this.path = null;
    this.marked = [];
    this.found.clear();
    this.makeTree();
    await this.layOut();
    this.fit(false);
    this.changed('program');
    this.changed('selection');
  }

  async layOut(anchor = null) {
    const before = anchor && anchor.at ? {...anchor.at} : null;
    clearTimeout(this.busy);  // the layout that this one overtakes
    this.busy = setTimeout(() => showBusy('Laying out'), 120);
    let current = false;
    try {
      current = await this.scene.layOut(this.tree);
    } catch (error) {
      clearTimeout(this.busy);
      showBusy(`The graph cannot be laid out: ${error.message}`);
      throw error;
    }
    if (!current) return;
    clearTimeout(this.busy);
    byId('busy').hidden = true;
    if (before && anchor.at) {  // keeps the clicked box in place
      this.camera.x += (before.x - anchor.at.x) * this.camera.scale;
      this.camera.y += (before.y - anchor.at.y) * this.camera.scale;
    }
    this.requestDraw();
  }

  // --- drawing ---

  readTheme() {
    document.documentElement.classList.toggle('dark', isDark());
    this.palette = readPalette();
    this.requestDraw();
  }
  requestDraw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.painter.draw();
      drawMinimap(byId('minimap'), this, this.painter.width, this.painter.height);
      this.noteFirstPicture();
    });
  }
  noteFirstPicture() {
    const root = document.documentElement;
    if (root.dataset.firstPicture || this.scene.boxes.length + this.scene.frames.length === 0) return;
    requestAnimationFrame(() => { root.dataset.firstPicture = Math.round(performance.now()); });
  }
  resize() {
    const {width, height} = this.canvas.parentElement.getBoundingClientRect();
    this.painter.resize(width, height);
    if (this.selected && !this.path && width < 620) this.centerOn(this.focusOf(this.selected));
    this.requestDraw();
  }

  colorsOf(node) {
    const p = this.palette;
    if (this.coloring === 'difference') {
      const state = stateOf(node);
      return state ? [mix(p.card, p[state], 0.26), p[state]] : [p.card, mix(p.card, p.soft, 0.45)];
    }
    const {value} = colorings[this.coloring] || {};
    if (value) {
      if (value(node) <= 0) return [p.card, p.line];
      const color = heatColor(p, heatOf(value(node), this.most()));
      return [color, mix(color, p.ink, 0.25)];
    }
    const base = this.coloring === 'stage' || !node.op
      ? p[node.op ? `phase-${node.op.phase}` : node.kind === 'phase' ? `phase-${node.title}` : 'soft']
      : p[familyOf(node.op.type)[1]];
    return [mix(p.card, base, node.op ? 0.17 : 0.08), mix(p.card, base, 0.62)];
  }
  // The largest value on the scale among visible boxes; a closed group counts as a whole.
  most() {
    const key = this.coloring + this.scene.generation;
    if (this.mostBy.key !== key) {
      const {value} = colorings[this.coloring];
      this.mostBy = {key, most: Math.max(0, ...this.scene.boxes.slice(0, 60000).map(value))};
    }
    return this.mostBy.most;
  }
  textColor(node, color) {
    const {value} = colorings[this.coloring] || {};
    if (!value || value(node) <= 0) return this.palette[color];
    return luminance(this.colorsOf(node)[0]) > 0.42 ? '#16202b' : '#ffffff';
  }
  isMarked(node) {
    const selected = this.selected;
    if (!selected) return false;
    return selected.node ? this.tree.visible(selected.node) === node : this.varNodes.has(node);
  }
  opacity(node) {
    if (this.path) return this.pathNodes.has(node) || !node.op || node.open ? 1 : 0.25;
    if (this.shown === 'difference' && node.op && !stateOf(node)) return 0.62;
    return 1;
  }
  edgeOpacity(edge) {
    if (this.path) return 0.12;
    return this.marked.length > 0 ? 0.45 : 0.85;
  }

  // --- selecting ---

  select(selected, {reveal = false, keepPath = false} = {}) {
    this.selected = selected;
    if (!keepPath) this.path = null;
    this.markEdges();
    const show = () => {
      if (reveal) this.centerOn(this.focusOf(selected));
      this.requestDraw();
    };
    const node = this.focusOf(selected);
    if (reveal && node && this.tree.reveal(node)) this.layOut().then(() => { this.markEdges(), show(); });
    else show();
    this.changed('selection');
  }
  selectOp(op, options) {
    const node = this.tree.nodeOf.get(op);
    if (node) this.select({kind: 'op', node}, options);
    else if (this.phases.size < phases.length) this.showPhases(new Set(phases)).then(() => this.selectOp(op, options));
  }
  selectVar(block, name, options) {
    this.select({kind: 'var', block: this.program.homeOf(block, name), name}, options);
  }
  // The node for a selection: for a variable, the op that writes it, or that reads it first.
  focusOf(selected) {
    if (!selected) return null;
    if (selected.node) return selected.node;
    const {writers, readers} = this.program.usesOf(selected.block, selected.name);
    const ops = [...writers, ...readers].map((op) => this.tree.nodeOf.get(op)).filter(Boolean);
    return ops[0] || null;
  }

  // The edges of the selection, or of a path.
  markEdges() {
    const {palette, selected} = this;
    this.varNodes = new Set();
    this.marked = [];
    if (this.path) return this.markPath();
    if (!selected) return;
    let wanted;
    if (selected.kind === 'var') {
      const uses = this.program.usesOf(selected.block, selected.name);
      const ops = new Set([...uses.writers, ...uses.readers].map((op) => this.tree.nodeOf.get(op)));
      ops.forEach((node) => node && this.varNodes.add(this.tree.visible(node)));
      wanted = (link) => link.name === selected.name &&
        this.program.homeOf(link.block, link.name) === selected.block;
    } else if (selected.kind === 'op') {
      wanted = (link) => link.source === selected.node || link.target === selected.node;
    } else {
      wanted = () => false;
    }
    this.forEachLink((edge, link) => wanted(link) && this.mark(edge, link, palette.accent));
  }
  forEachLink(f) {
    for (const edge of this.scene.edges) edge.links.forEach((link) => f(edge, link));
  }
  mark(edge, link, color) {
    const last = this.marked[this.marked.length - 1];
    if (last && last.edge === edge && last.color === color) last.links.push(link);
    else this.marked.push({edge, links: [link], color});
  }

  // --- the path from a loss to a variable ---

  showPath(name) {
    const path = gradientPath(this.program, name);
    if (!path) return;
    this.path = path;
    const nodes = path.steps.map((step) => this.tree.nodeOf.get(step.op)).filter(Boolean);
    const opened = nodes.length <= 400 && nodes.map((n) => this.tree.reveal(n)).some(Boolean);
    const show = () => {
      this.markEdges();
      this.fitNodes(nodes.map((n) => this.tree.visible(n)));
      this.changed('selection');
    };
    if (opened) this.layOut().then(show);
    else show();
  }
  markPath() {
    const {palette, path} = this;
    const ops = new Set(path.steps.map((step) => this.tree.nodeOf.get(step.op)));
    const names = new Set(path.steps.flatMap((step) => [step.from, step.to]));
    this.pathNodes = new Set([...ops].filter(Boolean).map((n) => this.tree.visible(n)));
    this.forEachLink((edge, link) => {
      if (ops.has(link.source) && ops.has(link.target) && names.has(link.name))
        this.mark(edge, link, palette.path);
    });
  }

  // --- groups and parts ---

  toggle(node) {
    if (!node.isGroup || node === this.tree.root) return;
    node.open = !node.open;
    if (!node.open && this.selected && this.selected.node && this.selected.node !== node &&
        [...this.selected.node.ancestors()].includes(node)) this.select({kind: kindOf(node), node});
    this.layOut(node).then(() => { this.markEdges(), this.requestDraw(); });
    announce(`${node.title} ${node.open ? 'opened' : 'closed'}`);
  }
  setAllOpen(open) {
    this.tree.setAllOpen(open);
    this.layOut().then(() => { this.markEdges(), this.fit(); });
  }
  showPhases(shown) {
    this.phases = shown;
    return this.rebuild();
  }
  showProgram(which) {
    this.shown = which;
    if (which === 'difference') this.coloring = 'difference';
    else if (this.coloring === 'difference') this.coloring = 'family';
    return this.rebuild();
  }
  setColoring(coloring) {
    this.coloring = coloring;
    this.changed('coloring');
    this.requestDraw();
  }

  // --- camera ---

  moveTo(target, animate = true) {
    const still = !animate || matchMedia('(prefers-reduced-motion: reduce)').matches;
    cancelAnimationFrame(this.moving);
    const start = {...this.camera}, begin = performance.now();
    const step = (now) => {
      const t = still ? 1 : Math.min(1, (now - begin) / 220), ease = t * (2 - t);
      for (const key of ['x', 'y', 'scale'])
        this.camera[key] = start[key] + (target[key] - start[key]) * ease;
      this.requestDraw();
      if (t < 1) this.moving = requestAnimationFrame(step);
    };
    if (still) step(begin);
    else this.moving = requestAnimationFrame(step);
  }
  zoom(factor, x = this.painter.width / 2, y = this.painter.height / 2, animate = false) {
    const {camera} = this;
    const scale = Math.min(4, Math.max(0.004, camera.scale * factor)), ratio = scale / camera.scale;
    this.moveTo({scale, x: x - (x - camera.x) * ratio, y: y - (y - camera.y) * ratio}, animate);
  }
  pan(dx, dy) {
    cancelAnimationFrame(this.moving);
    this.camera.x += dx, this.camera.y += dy;
    this.requestDraw();
  }
  // Shows the whole scene, or its beginning if the whole would be too small to read.
  fit(animate = true, readable = false) {
    const {painter: {width, height}, scene} = this;
    const room = width - (width < 620 ? 48 : 116);  // without the buttons
    const whole = Math.min(room / scene.width, (height - 48) / scene.height, 1.15);
    const wide = Math.min(room / scene.width, 1);
    const least = this.tree.root.inColumns ? 0.55 : 0.8;
    const scale = readable ? Math.max(whole, Math.max(wide, least)) : whole;
    const x = scene.width * scale <= width ? (width - scene.width * scale) / 2 : this.startX(scale, width);
    const y = Math.max(24, (height - scene.height * scale) / 2);
    this.moveTo({x, y, scale}, animate);
  }
  // The first box in the middle of the width.
  startX(scale, width) {
    const first = this.scene.boxes.reduce((a, b) => (b.at.y < a.at.y ? b : a));
    return width / 2 - (first.at.x + first.at.w / 2) * scale;
  }
  fitNodes(nodes) {
    const boxes = nodes.map((n) => this.scene.byNode.get(n)).filter(Boolean);
    if (boxes.length === 0) return;
    const left = Math.min(...boxes.map((b) => b.x)), right = Math.max(...boxes.map((b) => b.x + b.w));
    const top = Math.min(...boxes.map((b) => b.y)), bottom = Math.max(...boxes.map((b) => b.y + b.h));
    const {width, height} = this.painter;
    const scale = Math.min((width - 80) / (right - left), (height - 80) / (bottom - top), 1);
    this.moveTo({scale, x: width / 2 - scale * (left + right) / 2, y: height / 2 - scale * (top + bottom) / 2});
  }
  centerOn(node) {
    const box = node && this.scene.byNode.get(this.tree.visible(node));
    if (!box) return;
    const {width, height} = this.painter;
    const scale = Math.max(this.camera.scale, 0.75);
    this.moveTo({scale, x: width / 2 - scale * (box.x + box.w / 2),
      y: height * 0.42 - scale * (box.y + Math.min(box.h, 60) / 2)});
  }
  toScene(x, y) {
    const {camera} = this;
    return [(x - camera.x) / camera.scale, (y - camera.y) / camera.scale];
  }
}

const kindOf = (node) => (node.op ? 'op' : 'group');
function luminance(color) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255);
  return 0.3 * r + 0.59 * g + 0.11 * b;
}
function showBusy(text) {
  byId('busy').textContent = text;
  byId('busy').hidden = false;
}
function announce(text) { byId('announcement').textContent = text; }

// The steps from the loss to a variable, from the page's tree of gradients; null if there are none.
function gradientPath(program, name) {
  const tree = program.data.gradient;
  if (!tree || tree.starts[name] === undefined) return null;
  const placed = (step) => ({...step, op: program.opById.get(`${step.block}.${step.op}`)});
  const parts = [];
  for (let i = tree.starts[name]; i >= 0 && parts.length <= tree.steps.length; i = tree.steps[i].next)
    parts.push([placed(tree.steps[i]), ...(tree.steps[i].inside || []).map(placed)]);
  const steps = parts.reverse().flat().filter((step) => step.op);
  return {name, of: tree.of, steps};
}
