// The scene: the position of every box in the open part of the tree. Levels are laid out from the
// inside out and kept until the size of one of their boxes changes.

const headerHeight = 30, padding = 16, lineHeight = 17, boxPadding = 12;
const typeFont = '600 13px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
const noteFont = '12px ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace';
const smallFont = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

const measuring = document.createElement('canvas').getContext('2d');
const widths = new Map();
function textWidth(text, font) {
  const key = font + text;
  let width = widths.get(key);
  if (width === undefined) {
    measuring.font = font;
    widths.set(key, (width = measuring.measureText(text).width));
  }
  return width;
}
// Cuts `text` to this number of pixels.
function fitText(text, font, room) {
  if (textWidth(text, font) <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(text.slice(0, middle) + '…', font) <= room) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + '…';
}

// The lines of a closed box: [text, font, colour of the palette].
function linesOf(node, program) {
  if (node.lines) return node.lines;
  const lines = [];
  const op = node.op;
  if (op && op.special) {
    lines.push([visibleText(op.special), typeFont, 'ink']);
    const desc = program.findVar(0, op.special);
    if (desc) lines.push([typeText(desc), noteFont, 'soft']);
  } else if (op) {
    lines.push([visibleText(op.type), typeFont, 'ink']);
    const desc = program.findVar(op.block, op.output);
    if (/^(feed|fetch)$/.test(op.type)) lines.push([edgeNameOf(op), smallFont, 'ink']);
    if (desc && desc.shape && op.type !== 'fetch') lines.push([shapeText(desc.shape), noteFont, 'soft']);
    for (const read of op.reads.slice(0, 12)) {
      const held = lines.length < 4 && program.findVar(op.block, read.name);
      if (held && held.parameter && held.shape && held.shape.length > 1)
        lines.push([`${read.slot}  ${shapeText(held.shape)}`, noteFont, 'faint']);
    }
    if (node.isGroup) lines.push([plural(node.numOps - 1, 'op') + ' inside', smallFont, 'soft']);
  } else {
    lines.push([visibleText(node.title), typeFont, 'ink'], [typesText(node), smallFont, 'soft']);
    lines.push([plural(node.numOps, 'op') +
      (node.multiplyAdds > 0 ? `, ${countText(node.multiplyAdds)} multiply-adds` : ''), smallFont, 'faint']);
  }
  return (node.lines = lines);
}
const edgeNameOf = (op) =>
  visibleText(op.type === 'feed' ? op.output : op.reads.length > 0 ? op.reads[0].name : '');

function closedSize(node, program) {
  if (node.size) return node.size;
  const lines = linesOf(node, program);
  const toggle = node.isGroup ? 18 : 0;
  const widest = Math.max(...lines.map(([text, font], i) => textWidth(text, font) + (i ? 0 : toggle)));
  node.size = [Math.round(Math.min(Math.max(widest + 2 * boxPadding, 72), 280)),
    Math.round(lines.length * lineHeight + 13)];
  return node.size;
}

class Scene {
  constructor(queue) {
    this.queue = queue;
    this.generation = 0;
    this.clear();
  }
  clear() {
    this.boxes = [];    // closed boxes: nodes with at = {x, y, w, h}
    this.frames = [];   // open groups, outer ones first
    this.edges = [];
    this.byNode = new Map();
    this.width = this.height = 0;
  }

  // Lays out the open groups. Returns false if a later call has overtaken this one.
  async layOut(tree) {
    const generation = ++this.generation;
    await this.layOutGroup(tree.root, tree.program, generation);
    if (generation !== this.generation) return false;
    this.place(tree);
    return true;
  }
  // Groups may open and close while this waits; then another call lays out the open groups.
  async layOutGroup(node, program, generation) {
    await Promise.all(node.children.map((child) =>
      child.open && child.isGroup ? this.layOutGroup(child, program, generation) : null));
    if (generation !== this.generation) return;
    const sizes = node.children.map((child) =>
      child.open && child.isGroup ? child.openSize : closedSize(child, program));
    const key = sizes.map(([w, h]) => `${Math.round(w)}x${Math.round(h)}`).join();
    if (node.layoutKey === key) return;
    const edges = [...node.edges.values()];
    const level = {sizes, edges: edges.map(({from, to}) => [from.number, to.number]),
      columns: node.inColumns};
    const {boxes, routes, width, height} = await this.queue.layOut(level);
    if (generation !== this.generation) return;
    node.children.forEach((child, i) => {
      child.box = {x: boxes[i][0], y: boxes[i][1], w: sizes[i][0], h: sizes[i][1]};
    });
    edges.forEach((edge, i) => { edge.route = routes[i]; });
    node.openSize = [Math.max(width, textWidth(openTitle(node), typeFont) + 60) + 2 * padding,
      height + headerHeight + 2 * padding];
    node.layoutKey = key;
  }

  // Gives everything open its position in the whole scene.
  place(tree) {
    this.clear();
    const visit = (node, left, top) => {
      const inset = node === tree.root ? 0 : padding;
      const x = left + inset, y = top + inset + (node === tree.root ? 0 : headerHeight);
      for (const edge of node.edges.values()) this.edges.push(this.placeEdge(edge, x, y));
      for (const child of node.children) {
        const at = {x: x + child.box.x, y: y + child.box.y, w: child.box.w, h: child.box.h};
        child.at = at;
        this.byNode.set(child, at);
        this.width = Math.max(this.width, at.x + at.w);
        this.height = Math.max(this.height, at.y + at.h);
        if (child.open && child.isGroup) {
          this.frames.push(child);
          visit(child, at.x, at.y);
        } else {
          this.boxes.push(child);
        }
      }
    };
    visit(tree.root, 0, 0);
    // The list is in program order, which the arrow keys follow.
    this.order = [...this.byNode.keys()];
  }
  placeEdge(edge, x, y) {
    const points = edge.route ? edge.route.map(([px, py]) => [px + x, py + y]) : null;
    edge.points = points;
    if (points) {
      edge.left = Math.min(...points.map((p) => p[0])), edge.right = Math.max(...points.map((p) => p[0]));
      edge.top = Math.min(...points.map((p) => p[1])), edge.bottom = Math.max(...points.map((p) => p[1]));
    }
    return edge;
  }

  // --- hit testing ---

  nodeAt(x, y) {
    const inside = ({at}) => x >= at.x && x <= at.x + at.w && y >= at.y && y <= at.y + at.h;
    return this.boxes.find(inside) || this.frames.findLast(inside) || null;
  }
  // The nearest edge within `reach`.
  edgeAt(x, y, reach) {
    let best = null, least = reach;
    for (const edge of this.edges) {
      if (!edge.points || x < edge.left - reach || x > edge.right + reach ||
          y < edge.top - reach || y > edge.bottom + reach) continue;
      for (let i = 1; i < edge.points.length; ++i) {
        const distance = distanceTo(x, y, edge.points[i - 1], edge.points[i]);
        if (distance < least) least = distance, best = edge;
      }
    }
    return best;
  }
}

const openTitle = (node) => `${node.op ? node.op.type : node.title}   ${plural(node.numOps, 'op')}`;

function distanceTo(x, y, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const t = length > 0 ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
  return Math.hypot(x - ax - t * dx, y - ay - t * dy);
}
