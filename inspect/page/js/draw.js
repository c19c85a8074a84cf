// Draws the scene: only the visible part, with less detail from afar.

class Painter {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.view = view;  // the state to draw: see View
  }

  // `size` is that of the canvas in CSS pixels.
  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.ratio = ratio;
    [this.width, this.height] = [width, height];
  }

  draw() {
    const {context: c, view} = this;
    const {scene, camera, palette} = view;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = palette.paper;
    c.fillRect(0, 0, this.width, this.height);
    c.translate(camera.x, camera.y);
    c.scale(camera.scale, camera.scale);
    this.sight = {left: -camera.x / camera.scale, top: -camera.y / camera.scale,
      right: (this.width - camera.x) / camera.scale, bottom: (this.height - camera.y) / camera.scale};
    this.detail = camera.scale > 0.32 ? 2 : camera.scale > 0.1 ? 1 : 0;
    scene.frames.forEach((node) => this.seen(node.at) && this.drawFrame(node));
    this.drawEdges(scene);
    scene.boxes.forEach((node) => this.seen(node.at) && this.drawBox(node));
    this.drawMarkedEdges();
  }

  seen({x, y, w, h}) {
    const s = this.sight;
    return x < s.right && x + w > s.left && y < s.bottom && y + h > s.top;
  }
  seenEdge(edge) {
    const s = this.sight;
    return edge.points && edge.left <= s.right && edge.right >= s.left &&
      edge.top <= s.bottom && edge.bottom >= s.top;
  }

  // --- boxes ---

  drawFrame(node) {
    const {context: c, view} = this;
    const {palette} = view;
    const {x, y, w, h} = node.at;
    const base = frameColor(node, palette, view.coloring);
    this.rounded(x, y, w, h, 12);
    c.globalAlpha = view.opacity(node);
    c.fillStyle = mix(palette.group, base, 0.07);
    c.fill();
    c.lineWidth = view.isMarked(node) ? 2.5 : 1;
    c.strokeStyle = view.isMarked(node) ? palette.accent : mix(palette.group, base, 0.42);
    c.stroke();
    if (this.detail > 0) {
      const count = plural(node.op ? node.numOps - 1 : node.numOps, 'op');
      this.toggle(x + padding + 2, y + 19, true, palette.soft);
      const title = fitText(visibleText(node.op ? node.op.type : node.title), typeFont, w - 120);
      this.text(title, typeFont, palette.ink, x + padding + 16, y + 23);
      this.text(count, smallFont, palette.faint, x + padding + 26 + textWidth(title, typeFont), y + 23);
    }
    c.globalAlpha = 1;
  }

  drawBox(node) {
    const {context: c, view} = this;
    const {palette} = view;
    const {x, y, w, h} = node.at;
    const [fill, stroke] = view.colorsOf(node);
    c.globalAlpha = view.opacity(node);
    if (node.isGroup && this.detail > 0) {  // a pile
      this.rounded(x + 4, y + 4, w, h, 9);
      c.fillStyle = mix(palette.paper, stroke, 0.25);
      c.fill();
    }
    this.rounded(x, y, w, h, node.op && node.op.special ? h / 2 : 8);
    c.fillStyle = this.detail > 0 ? fill : stroke;  // light colours vanish from afar
    c.fill();
    const marked = view.isMarked(node);
    c.lineWidth = marked ? 2.5 / Math.min(1, view.camera.scale * 1.5) : 1;
    c.strokeStyle = marked ? palette.accent : stroke;
    if (view.found.has(node) && !marked) c.strokeStyle = palette.changed, c.lineWidth = 2.5;
    c.stroke();
    if (this.detail > 0) this.drawLines(node);
    c.globalAlpha = 1;
  }
  drawLines(node) {
    const {view} = this;
    const {x, y, w} = node.at;
    const lines = linesOf(node, view.program);
    const indent = node.isGroup ? 18 : 0;
    if (node.isGroup) this.toggle(x + boxPadding, y + 17, false, view.palette.soft);
    lines.slice(0, this.detail === 2 ? 9 : 1).forEach(([text, font, color], i) => {
      const left = boxPadding + (i === 0 ? indent : 0);
      this.text(fitText(text, font, w - left - boxPadding + 3), font, view.textColor(node, color),
        x + left, y + 21 + i * lineHeight);
    });
  }
  text(text, font, color, x, y) {
    this.context.font = font;
    this.context.fillStyle = color;
    this.context.fillText(text, x, y);
  }
  // A small triangle that points down where a group is open, and right where it is closed.
  toggle(x, y, open, color) {
    const c = this.context;
    c.beginPath();
    if (open) c.moveTo(x, y - 4), c.lineTo(x + 9, y - 4), c.lineTo(x + 4.5, y + 3);
    else c.moveTo(x + 1, y - 5), c.lineTo(x + 8, y), c.lineTo(x + 1, y + 5);
    c.closePath();
    c.fillStyle = color;
    c.fill();
  }
  rounded(x, y, w, h, radius) {
    this.context.beginPath();
    this.context.roundRect(x, y, w, h, Math.min(radius, h / 2));
  }

  // --- edges ---

  drawEdges(scene) {
    const {context: c, view} = this;
    const {palette} = view;
    const wide = Math.min(8, Math.max(1, 0.7 / view.camera.scale));
    for (const edge of scene.edges) {
      if (!this.seenEdge(edge)) continue;
      c.globalAlpha = view.edgeOpacity(edge);
      c.strokeStyle = palette.edge;
      c.lineWidth = wide * (1.1 + Math.min(2.2, Math.log2(edge.links.length)));
      this.curve(edge.points);
      c.stroke();
      if (this.detail > 0) this.arrow(edge.points, palette.edge);
      if (this.detail === 2 && !edge.home.inColumns) this.edgeLabel(edge);
    }
    c.globalAlpha = 1;
  }
  // The number of values that an edge shows, if it is more than one.
  edgeLabel(edge) {
    const names = edge.names || (edge.names = new Set(edge.links.map((l) => l.name)).size);
    if (names < 2) return;
    const [x, y] = edge.points[Math.floor(edge.points.length / 2)];
    this.text(`${names} values`, smallFont, this.view.palette.faint, x + 6, y + 4);
  }
  drawMarkedEdges() {
    const {context: c, view} = this;
    for (const {edge, links, color} of view.marked) {
      c.strokeStyle = color;
      c.lineWidth = Math.max(2, 1.6 / view.camera.scale);
      const ends = edge.points && !edge.home.inColumns ? [edge.points[0], edge.points[edge.points.length - 1]] : null;
      if (ends) {
        this.curve(edge.points);
        c.stroke();
        this.arrow(edge.points, color);
      }
      links.forEach((link) => this.drawLinkEnds(link, edge, ends, color));
    }
  }
  // Connects an op inside an open group with the edge that leaves the group, and the same at
  // its end.
  drawLinkEnds(link, edge, ends, color) {
    const {scene} = this.view;
    const [from, to] = [link.source, link.target].map((node) => this.view.tree.visible(node));
    const source = scene.byNode.get(from), target = scene.byNode.get(to);
    if (!source || !target) return;
    if (edge.home.inColumns) return this.drawAcross(source, target, color);
    const out = [source.x + source.w / 2, source.y + source.h];
    const into = [target.x + target.w / 2, target.y];
    const parts = !ends ? [[out, into]] : [
      ...(from === edge.from ? [] : [[out, ends[0]]]), ...(to === edge.to ? [] : [[ends[1], into]])];
    for (const [a, b] of parts) {
      if (Math.hypot(a[0] - b[0], a[1] - b[1]) < 12) continue;
      this.context.strokeStyle = color;
      this.bend(a, b);
      this.context.stroke();
      if (b === into) this.arrow([[b[0], b[1] - 10], b], color);
    }
  }
  // An edge from one column to another.
  drawAcross(source, target, color) {
    const c = this.context, forth = source.x < target.x ? 1 : -1;
    const out = [source.x + (forth > 0 ? source.w : 0), source.y + source.h / 2];
    const into = [target.x + (forth > 0 ? 0 : target.w), target.y + target.h / 2];
    const reach = Math.max(30, Math.abs(into[0] - out[0]) / 2) * forth;
    c.beginPath();
    c.moveTo(...out);
    c.bezierCurveTo(out[0] + reach, out[1], into[0] - reach, into[1], ...into);
    c.stroke();
    this.arrow([[into[0] - 10 * forth, into[1]], into], color);
  }
  bend([ax, ay], [bx, by]) {
    const c = this.context, lift = Math.min(60, Math.max(16, Math.abs(by - ay) / 2));
    c.beginPath();
    c.moveTo(ax, ay);
    c.bezierCurveTo(ax, ay + lift, bx, by - lift, bx, by);
  }
  curve(points) {
    const c = this.context;
    c.beginPath();
    c.moveTo(...points[0]);
    for (let i = 1; i < points.length - 1; ++i) {
      const [x, y] = points[i], [nx, ny] = points[i + 1];
      const last = i === points.length - 2;
      c.quadraticCurveTo(x, y, last ? nx : (x + nx) / 2, last ? ny : (y + ny) / 2);
    }
    if (points.length === 2) c.lineTo(...points[1]);
  }
  arrow(points, color) {
    const c = this.context;
    const [x, y] = points[points.length - 1], [px, py] = points[points.length - 2];
    const angle = Math.atan2(y - py, x - px), size = 6.5;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - size * Math.cos(angle - 0.45), y - size * Math.sin(angle - 0.45));
    c.lineTo(x - size * Math.cos(angle + 0.45), y - size * Math.sin(angle + 0.45));
    c.closePath();
    c.fillStyle = color;
    c.fill();
  }
}

function frameColor(node, palette, coloring) {
  if (coloring === 'difference') return node.op && node.op.state ? palette[node.op.state] : palette.soft;
  if (node.kind === 'phase') return palette[`phase-${node.title}`];
  return node.op ? palette[familyOf(node.op.type)[1]] : palette.soft;
}

// Draws the whole scene in a corner, with a frame around the visible part.
function drawMinimap(canvas, view, width, height) {
  const {scene, camera, palette} = view;
  const ratio = window.devicePixelRatio || 1, room = [150, 190];
  const scale = Math.min(room[0] / scene.width, room[1] / scene.height);
  const inSight = scene.width * camera.scale <= width && scene.height * camera.scale <= height;
  canvas.hidden = inSight || width < 620 || !(scale > 0);
  if (canvas.hidden) return;
  const size = [Math.max(24, scene.width * scale), Math.max(24, scene.height * scale)];
  canvas.style.width = `${size[0]}px`, canvas.style.height = `${size[1]}px`;
  canvas.width = size[0] * ratio, canvas.height = size[1] * ratio;
  const c = canvas.getContext('2d');
  c.scale(ratio * scale, ratio * scale);
  for (const node of scene.frames) {
    c.fillStyle = mix(palette.group, frameColor(node, palette, view.coloring), 0.12);
    c.fillRect(node.at.x, node.at.y, node.at.w, node.at.h);
  }
  for (const node of scene.boxes) {
    c.fillStyle = view.colorsOf(node)[1];
    c.fillRect(node.at.x, node.at.y, node.at.w, Math.max(node.at.h, 1.2 / scale));
  }
  c.strokeStyle = palette.accent;
  c.lineWidth = 1.5 / scale;
  c.strokeRect(-camera.x / camera.scale, -camera.y / camera.scale, width / camera.scale,
    height / camera.scale);
  canvas.dataset.scale = scale;
}
