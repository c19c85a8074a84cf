// Mouse, touch and keys.

function listenToPointers(view) {
  const {canvas} = view;
  const down = new Map();  // pointers: id -> [x, y]
  let moved = 0, pinch = 0;
  const at = (event) => {
    const {left, top} = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...down.values()];
    return [Math.hypot(ax - bx, ay - by), (ax + bx) / 2, (ay + by) / 2];
  };
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, at(event));
    moved = 0;
    if (down.size === 2) [pinch] = spread();
    hideTip();
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = at(event);
    const before = down.get(event.pointerId);
    if (!before) return hover(view, x, y);
    down.set(event.pointerId, [x, y]);
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (down.size === 2) {
      const [size, cx, cy] = spread();
      view.zoom(size / pinch, cx, cy);
      pinch = size;
    } else if (moved > 4) {
      view.pan(x - before[0], y - before[1]);
    }
  });
  canvas.addEventListener('pointerup', (event) => {
    const single = down.size === 1;
    down.delete(event.pointerId);
    if (single && moved <= 6) click(view, ...at(event));
  });
  canvas.addEventListener('pointercancel', (event) => down.delete(event.pointerId));
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('dblclick', (event) => {
    const node = view.scene.nodeAt(...view.toScene(...at(event)));
    if (node && node.isGroup && !onToggle(view, node, ...at(event))) view.toggle(node);
  });
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const [x, y] = at(event);
    if (event.ctrlKey || event.metaKey) view.zoom(Math.exp(-event.deltaY / 180), x, y);
    else view.pan(event.shiftKey ? -event.deltaY : -event.deltaX, event.shiftKey ? 0 : -event.deltaY);
    hideTip();
  }, {passive: false});
  byId('minimap').addEventListener('pointerdown', (event) => {
    const {left, top} = event.target.getBoundingClientRect(), scale = Number(event.target.dataset.scale);
    const [x, y] = [(event.clientX - left) / scale, (event.clientY - top) / scale];
    view.moveTo({scale: view.camera.scale, x: view.painter.width / 2 - x * view.camera.scale,
      y: view.painter.height / 2 - y * view.camera.scale});
  });
}

function onToggle(view, node, x, y) {
  const [sx, sy] = view.toScene(x, y);
  return node.isGroup && sx < node.at.x + padding + 16 && sy < node.at.y + headerHeight;
}

function click(view, x, y) {
  view.canvas.focus({preventScroll: true});
  const node = view.scene.nodeAt(...view.toScene(x, y));
  if (node && onToggle(view, node, x, y)) return view.toggle(node);
  const [sx, sy] = view.toScene(x, y);
  const edge = !node || node.open ? view.scene.edgeAt(sx, sy, 7 / view.camera.scale) : null;
  if (edge) return view.selectVar(edge.links[0].block, edge.links[0].name);
  const inHeader = node && (!node.open || sy < node.at.y + headerHeight);
  view.select(inHeader ? {kind: kindOf(node), node} : null);
}

function hover(view, x, y) {
  const [sx, sy] = view.toScene(x, y);
  const node = view.scene.nodeAt(sx, sy);
  const edge = !node || node.open ? view.scene.edgeAt(sx, sy, 6 / view.camera.scale) : null;
  const header = node && (!node.open || sy < node.at.y + headerHeight);
  view.canvas.style.cursor = edge || header ? 'pointer' : 'default';
  if (edge) return showTip(x, y, edgeTip(view, edge));
  const {value, text} = colorings[view.coloring] || {};
  if (header && value) return showTip(x, y, [`${node.title}: ${text(value(node))}`]);
  hideTip();
}
function edgeTip(view, edge) {
  const names = new Map(edge.links.map((link) => [link.name, link]));
  const lines = [...names.values()].slice(0, 8).map(({name, block}) =>
    `${name}  ${typeText(view.program.findVar(block, name))}`);
  return names.size > 8 ? [...lines, `and ${names.size - 8} more`] : lines;
}
function showTip(x, y, lines) {
  const tip = byId('tip');
  replaceChildren(tip, lines.map((line) => element('div', {}, line)));
  tip.hidden = false;
  const {width, height} = tip.parentElement.getBoundingClientRect();
  tip.style.left = `${Math.min(x + 14, width - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(y + 14, height - tip.offsetHeight - 8)}px`;
}
function hideTip() { byId('tip').hidden = true; }

// --- keys ---

const keyHelp = [
  ['/ or Ctrl F', 'search by name, type, attr, layer'],
  ['↓ ↑', 'to a reader, to a writer of the selected op'],
  ['← →', 'to the op before, after it in the program'],
  ['Enter', 'opens or closes the selected group'],
  ['Esc', 'clears the search, the path, the selection'],
  ['+ −', 'zoom; 0: actual size'],
  ['f', 'shows the whole graph'],
  ['e, c', 'opens, closes all groups'],
  ['m', 'memory over time'],
  ['t', 'light or dark'],
  ['?', 'this help'],
];
const mouseHelp = [
  ['Drag, wheel', 'moves'],
  ['Ctrl wheel, pinch', 'zooms'],
  ['Click', 'an op, a group or an edge: what is known of it'],
  ['Double click, ▸', 'opens or closes a group'],
];

function listenToKeys(view, actions) {
  document.addEventListener('keydown', (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    const find = (event.ctrlKey || event.metaKey) && event.key === 'f';
    if (find || (event.key === '/' && !typing)) {
      event.preventDefault();
      byId('search').focus();
      return byId('search').select();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') return actions.escape();
    if (typing || (event.target.tagName === 'BUTTON' && event.key === 'Enter')) return;
    const action = {
      'ArrowDown': () => step(view, 'down'), 'ArrowUp': () => step(view, 'up'),
      'ArrowRight': () => step(view, 'next'), 'ArrowLeft': () => step(view, 'previous'),
      'Enter': () => view.selected && view.selected.node && view.toggle(view.selected.node),
      '+': () => view.zoom(1.3, undefined, undefined, true),
      '=': () => view.zoom(1.3, undefined, undefined, true),
      '-': () => view.zoom(1 / 1.3, undefined, undefined, true),
      '0': () => view.zoom(1 / view.camera.scale, undefined, undefined, true),
      'f': () => view.fit(), 'e': () => view.setAllOpen(true), 'c': () => view.setAllOpen(false),
      'm': actions.memory, 't': actions.theme, '?': actions.help,
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

// Moves from the selected box to a neighbour.
function step(view, direction) {
  const boxes = view.scene.boxes;
  if (boxes.length === 0) return;
  const focus = view.focusOf(view.selected);
  const current = focus && view.tree.visible(focus);
  const next = current ? neighbour(view, current, direction) : boxes[0];
  if (!next) return announce('no further op there');
  view.select({kind: kindOf(next), node: next});
  view.centerOn(next);
  announce(`${next.title}${next.op ? ', ' + next.op.where : ''}`);
}
function neighbour(view, current, direction) {
  if (direction === 'next' || direction === 'previous') {
    const i = view.scene.boxes.indexOf(current) + (direction === 'next' ? 1 : -1);
    return view.scene.boxes[i];
  }
  const down = direction === 'down';
  let best = null;
  view.forEachLink((edge, link) => {
    const [here, there] = [link.source, link.target].map((n) => view.tree.visible(n));
    const next = (down ? here : there) === current ? (down ? there : here) : null;
    if (next && next !== current && !best) best = next;
  });
  return best;
}

function showHelp() {
  const table = (rows) => element('dl.keys', {}, rows.map(([key, what]) =>
    [element('dt', {}, element('kbd', {}, key)), element('dd', {}, what)]));
  const dialog = byId('help');
  replaceChildren(dialog, element('h2', {}, 'Keys'), table(keyHelp), element('h2', {}, 'Mouse and touch'),
    table(mouseHelp), element('h2', {}, 'Search'),
    element('p', {}, 'Words are looked for in names, types, layers and attrs; all must occur. ',
      element('code', {}, 'type:conv2d'), ', ', element('code', {}, 'name:fc_0'), ', ',
      element('code', {}, 'attr:axis=1'), ' and ', element('code', {}, 'layer:conv1'),
      ' look in one of them.'),
    element('p.note', {}, 'The layout is by dagre (MIT licence, © Chris Pettitt).'),
    element('button', {type: 'button', onclick: () => dialog.close()}, 'Close'));
  dialog.showModal();
}
