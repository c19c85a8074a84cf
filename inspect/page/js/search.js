// Search: ops and variables by name, type, attr and layer.

const mostResults = 200;

// "type:conv2d stride" -> [{key: 'type', word: 'conv2d'}, {key: '', word: 'stride'}]
function parseQuery(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean).map((part) => {
    const match = /^(type|name|attr|layer|stage):(.*)$/.exec(part);
    return match ? {key: match[1], word: match[2]} : {key: '', word: part};
  });
}

function searchTextOf(op) {
  if (!op.searchText) {
    const names = [...op.reads, ...op.writes].map((use) => use.name);
    const attrs = Object.entries(op.attrs).map(([name, value]) => `${name}=${attrText(value)}`);
    const parts = {type: op.type, name: names.join('\n'), attr: attrs.join('\n'),
      layer: `${op.layer} ${op.rounds}`, stage: op.stage};
    for (const key of Object.keys(parts)) parts[key] = parts[key].toLowerCase();
    op.searchText = parts;
  }
  return op.searchText;
}
function opMatches(op, query) {
  const texts = searchTextOf(op);
  return query.every(({key, word}) => key ? texts[key].includes(word)
    : ['type', 'name', 'attr', 'layer'].some((k) => texts[k].includes(word)));
}

// Matching ops and variables; those whose type or name equals the query come first.
function findAll(program, text) {
  const query = parseQuery(text);
  if (query.length === 0) return {ops: [], vars: []};
  const ops = program.ops.filter((op) => opMatches(op, query));
  const plain = query.every(({key}) => key === '' || key === 'name');
  const vars = [];
  for (const block of plain ? program.blocks : []) {
    for (const name of block.vars.keys()) {
      const lower = name.toLowerCase();
      if (query.every(({word}) => lower.includes(word))) vars.push({block: block.index, name});
    }
  }
  const whole = query.length === 1 ? query[0].word : '';
  const rank = (name) => (name === whole ? 0 : name.startsWith(whole) ? 1 : 2);
  ops.sort((a, b) => rank(a.type.toLowerCase()) - rank(b.type.toLowerCase()));
  vars.sort((a, b) => rank(a.name.toLowerCase()) - rank(b.name.toLowerCase()) ||
    a.name.length - b.name.length);
  return {ops, vars};
}

class Search {
  constructor(view) {
    this.view = view;
    this.field = byId('search');
    this.list = byId('results');
    this.at = -1;
    this.field.addEventListener('input', () => this.run());
    this.field.addEventListener('focus', () => this.field.value && this.run());
    this.field.addEventListener('keydown', (event) => this.onKey(event));
    document.addEventListener('pointerdown', (event) => {
      if (!byId('search-box').contains(event.target)) this.list.hidden = true;
    });
  }

  run() {
    const {view} = this;
    const {ops, vars} = findAll(view.program, this.field.value);
    view.found = new Set(ops.map((op) => view.tree.nodeOf.get(op)).filter(Boolean)
      .map((node) => view.tree.visible(node)));
    view.requestDraw();
    this.at = -1;
    this.list.hidden = this.field.value.trim() === '';
    if (this.list.hidden) return;
    const half = mostResults / 2;
    const shownVars = vars.slice(0, Math.max(half, mostResults - ops.length));
    const shownOps = ops.slice(0, mostResults - shownVars.length);
    const nothing = ops.length + vars.length === 0;
    replaceChildren(this.list,
      nothing && element('p.empty', {}, 'Nothing found. Try part of a name, a type such as conv2d, or attr:axis=1.'),
      shownOps.length > 0 && element('h3', {}, plural(ops.length, 'op')),
      shownOps.map((op) => this.row(dot(op.type), op.type, op.output || op.where,
        () => view.selectOp(op, {reveal: true}))),
      shownVars.length > 0 && element('h3', {}, plural(vars.length, 'variable')),
      shownVars.map(({block, name}) => this.row(element('i.dot.var'), name,
        typeText(view.program.findVar(block, name)), () => view.selectVar(block, name, {reveal: true}))),
      ops.length + vars.length > shownOps.length + shownVars.length &&
        element('p.empty', {}, `The first ${shownOps.length + shownVars.length} are shown.`));
  }
  row(mark, title, note, onChosen) {
    return element('button.result', {type: 'button', role: 'option', onclick: () => {
      this.list.hidden = true;
      onChosen();
    }}, mark, element('b', {}, title), element('span', {}, note));
  }
  onKey(event) {
    const rows = [...this.list.querySelectorAll('.result')];
    if (event.key === 'Enter' && rows.length > 0) {
      rows[Math.max(this.at, 0)].click();
      this.view.canvas.focus({preventScroll: true});
    }
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    event.preventDefault();
    if (rows.length === 0) return;
    if (rows[this.at]) rows[this.at].classList.remove('at');
    this.at = (this.at + (event.key === 'ArrowDown' ? 1 : rows.length - 1)) % rows.length;
    rows[this.at].classList.add('at');
    rows[this.at].scrollIntoView({block: 'nearest'});
  }
  // Returns whether there was something to clear.
  clear() {
    const had = this.field.value !== '' || !this.list.hidden;
    this.field.value = '';
    this.list.hidden = true;
    this.view.found.clear();
    this.view.requestDraw();
    return had;
  }
}

function dot(type) {
  const made = element('i.dot');
  made.style.background = `var(--op-${familyOf(type)[1]})`;
  return made;
}
