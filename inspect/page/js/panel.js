// The panel at the side: information about the selection.

class Panel {
  constructor(view) {
    this.view = view;
    this.root = byId('panel');
    view.onChange((what) => (what === 'selection' || what === 'program') && this.show());
  }
  show() {
    const {view} = this;
    const {selected} = view;
    document.body.classList.toggle('selected', !!selected || !!view.path);
    const contents = view.path ? pathPanel(view)
      : !selected ? overviewPanel(view)
      : selected.kind === 'var' ? varPanel(view, selected)
      : selected.node.op && !selected.node.op.special ? opPanel(view, selected.node.op)
      : selected.node.op ? varPanel(view, {block: view.program.homeOf(0, selected.node.op.special), name: selected.node.op.special})
      : groupPanel(view, selected.node);
    replaceChildren(this.root, (selected || view.path) && closeButton(view), contents);
    this.root.scrollTop = 0;
  }
}

function closeButton(view) {
  return element('button.close', {type: 'button', ariaLabel: 'Close', title: 'Close (Esc)',
    onclick: () => { view.path ? view.select(view.selected) : view.select(null); }}, '×');
}

// --- shared parts of panels ---

const section = (title, ...contents) => {
  const held = contents.flat(Infinity).filter((c) => c);
  return held.length > 0 && element('section', {}, element('h3', {}, title), held);
};
const row = (name, ...value) => [element('dt', {}, name), element('dd', {}, value)];
const facts = (...rows) => {
  const held = rows.filter(Boolean);
  return held.length > 0 && element('dl.facts', {}, held);
};

function opLink(view, op, note = '') {
  if (!op) return element('span.soft', {}, 'none');
  return element('button.link', {type: 'button', onclick: () => view.selectOp(op, {reveal: true})},
    dot(op.type), element('b', {}, op.special || op.type), element('span.soft', {}, op.where), note && element('span.soft', {}, note));
}
function varLink(view, block, name) {
  const desc = view.program.findVar(block, name);
  return element('div.var', {},
    element('button.link', {type: 'button', onclick: () => view.selectVar(block, name, {reveal: false})}, name),
    element('span.type', {}, desc ? typeText(desc) : 'not declared'));
}
function opList(view, ops, most = 12) {
  const shown = ops.slice(0, most);
  const more = ops.length > most && element('button.more', {type: 'button', onclick: (event) =>
    event.target.replaceWith(...ops.slice(most).map((op) => opLink(view, op)))},
    `${ops.length - most} more`);
  return [shown.map((op) => opLink(view, op)), more];
}

function attrText(value) {
  if (Array.isArray(value)) return `[${value.map(attrText).join(', ')}]`;
  if (value && typeof value === 'object')
    return Object.entries(value).map(([k, v]) => `${k} ${attrText(v)}`).join(', ');
  return typeof value === 'number' ? numberText(value) : String(value);
}
// {kind: 'by_value', attrs: {max: 5}} -> "by_value, max 5"
function settingText(setting) {
  const attrs = Object.entries(setting.attrs || {}).map(([name, value]) => `${name} ${attrText(value)}`);
  return [setting.kind, ...attrs].join(', ');
}

// A bar for a share of a total, with a text.
function shareBar(part, whole, text) {
  const bar = element('i.share', {}, element('i'));
  bar.firstChild.style.width = `${whole > 0 ? Math.max(1, (100 * part) / whole) : 0}%`;
  return element('div', {}, text, whole > 0 ? element('span.soft', {}, ` ${percentText(part, whole)}`) : '', bar);
}

// --- groups ---

function groupPanel(view, node) {
  const root = view.tree.root;
  const what = {phase: 'part of the training step', round: 'round of a repeat', layer: 'layer',
    stretch: 'stretch of ops', block: 'sub-block'}[node.kind] || '';
  const ops = [...opsIn(node)].map((n) => n.op).filter((op) => !op.special);
  return [
    element('header', {}, element('h2', {}, node.title), element('p.soft', {}, `${what} with ${plural(node.numOps, 'op')}`)),
    element('p', {}, element('button', {type: 'button', onclick: () => view.toggle(node)},
      node.open ? 'Close the group' : 'Open the group')),
    section('Cost', facts(
      node.multiplyAdds > 0 && row('multiply-adds', shareBar(node.multiplyAdds, root.multiplyAdds, countText(node.multiplyAdds))),
      node.seconds > 0 && row('measured', shareBar(node.seconds, root.seconds, secondsText(node.seconds))),
      row('outputs', bytesText(node.bytes)))),
    section('Types', typesTable(view, ops)),
    section('Ops', opList(view, ops)),
  ];
}

function typesTable(view, ops) {
  const counts = new Map();
  ops.forEach((op) => {
    const entry = counts.get(op.type) || {n: 0, multiplyAdds: 0, seconds: 0};
    entry.n += 1, entry.multiplyAdds += op.multiplyAdds, entry.seconds += op.seconds;
    counts.set(op.type, entry);
  });
  const all = ops.reduce((sum, op) => sum + op.multiplyAdds, 0);
  const sorted = [...counts].sort((a, b) => b[1].n - a[1].n);
  return element('div.types', {}, cutList(sorted, ([type, entry]) =>
    element('button.type-row', {type: 'button', title: `Search type:${type}`, onclick: () => {
      byId('search').value = `type:${type}`;
      byId('search').dispatchEvent(new Event('input'));
      byId('search').focus();
    }}, dot(type), element('b', {}, type), element('span', {}, String(entry.n)),
    element('span.soft', {}, entry.multiplyAdds > 0 ? percentText(entry.multiplyAdds, all) : '')), 40));
}

// --- the whole program ---

function overviewPanel(view) {
  const {program} = view;
  const parameters = [...program.blocks[0].vars.values()].filter((v) => v.parameter);
  const elements = parameters.reduce((sum, v) => sum + elementsOf(v.shape), 0);
  const bytes = parameters.reduce((sum, v) => sum + bytesOf(v), 0);
  const multiplyAdds = program.ops.reduce((sum, op) => sum + op.multiplyAdds, 0);
  const seconds = program.ops.reduce((sum, op) => sum + op.seconds, 0);
  const {memory, times, gradient} = program.data;
  const list = (names) => shortList(names.map((name) => ({name})), view);
  return [
    element('header', {}, element('h2', {}, program.name), element('p.soft', {}, program.data.what || '')),
    view.shown === 'difference' && differenceSection(view),
    section('Program', facts(
      row('ops', program.ops.length.toLocaleString('en') +
        (program.blocks.length > 1 ? ` in ${program.blocks.length} blocks` : '')),
      row('parameters', `${plural(parameters.length, 'tensor')}, ${countText(elements)} elements, ${bytesText(bytes)}`),
      multiplyAdds > 0 && row('multiply-adds', countText(multiplyAdds) + (program.data.unknown_dims ? ', unknown dims taken as 1' : '')),
      seconds > 0 && row('measured', `${secondsText(seconds)} in ${times.source}`),
      memory && memory.arena_bytes > 0 && row('memory', element('button.link', {type: 'button', onclick: () => toggleMemory(view)},
        `${bytesText(memory.arena_bytes)} planned`)))),
    section('Inputs', list(program.feeds)),
    section('Outputs', list(program.fetches)),
    section('Gradient', gradient && [element('p', {}, 'Of ', element('code', {}, gradient.of), ` with respect to ${plural(parameters.filter((v) => gradient.starts[v.name] !== undefined).length, 'parameter')}. Select one to see the path.`)]),
    parameters.length > 0 && section('Parameters', shortList(parameters, view)),
    section('Types', typesTable(view, program.ops)),
    (program.data.notes || []).length > 0 && section('Notes', program.data.notes.map((note) => element('p.note', {}, note))),
  ];
}
// Shows the first entries of a list with `show`; the others follow a few hundred at a time.
function cutList(list, show, most = 50) {
  const rest = list.slice(most);
  return [list.slice(0, most).map(show), rest.length > 0 && element('button.more', {type: 'button',
    onclick: (event) => event.target.replaceWith(...cutList(rest, show, 300).flat(Infinity).filter(Boolean))},
    `${rest.length} more`)];
}
// Links to variables of the root block.
const shortList = (vars, view) => cutList(vars, (v) => varLink(view, 0, v.name), 8);

function differenceSection(view) {
  const {counts, data} = view.difference;
  const lines = ['added', 'removed', 'changed'].filter((state) => counts[state] > 0).map((state) =>
    element('button.link', {type: 'button', onclick: () => {
      const op = view.program.ops.find((o) => o.state === state);
      if (op) view.selectOp(op, {reveal: true});
    }}, element(`i.dot.${state}`), `${plural(counts[state], 'op')} ${state}`));
  const blocks = data.blocks.map((b) => blockDifference(view, b)).filter(Boolean);
  const vars = data.blocks.flatMap((b) => b.vars);
  const changed = vars.filter((v) => v.before && v.after && v.changes.length > 0);
  const alone = vars.filter((v) => (!v.before || !v.after) && !v.told_by_ops);
  return section('Difference', data.equal && element('p', {}, 'The programs are the same.'), lines, blocks,
    data.renamed.length > 0 && element('p', {}, plural(data.renamed.length, 'variable') + ' renamed'),
    data.changes.map(changeLine),
    cutList(changed, (v) => element('div', {}, element('code', {}, v.after), v.changes.map(changeLine))),
    cutList(alone, (v) => element('p', {}, element('code', {}, v.after || v.before),
      ` only in the ${v.after ? 'second' : 'first'} program`)),
    cutList(data.values || [], (v) => element('p', {}, element('code', {}, v.after || v.before), ` ${valueDifference(v)}`)));
}
// A block that one program lacks, or with differences other than variables and ops.
function blockDifference(view, {before, after, changes}) {
  const number = before === after ? before : `${before} → ${after}`;
  if (before >= 0 && after >= 0)
    return changes.length > 0 && element('div', {}, `block ${number}`, changes.map(changeLine));
  const {blocks} = view.programs[before < 0 ? 1 : 0].data.program;
  const index = Math.max(before, after);
  return element('p', {}, `block ${index} with ${plural(blocks[index].ops.length, 'op')} only in the ${before < 0 ? 'second' : 'first'} program`);
}
function valueDifference({problem, different, elements, max_difference: most}) {
  return problem || `${different} of ${elements} elements differ, by ${numberText(most)} at most`;
}
function changeLine({what, name, before, after}) {
  return element('p.change', {}, `${what}${name ? ' ' + name : ''} `,
    before && element('del', {}, before), before && after ? ' → ' : ' ', after && element('ins', {}, after),
    what === 'index' && element('span.soft', {}, ' (random ops draw by it)'));
}
