// Deep links: the part of the address after # describes the current view and follows it.
//   #op=0.12  #var=0.fc_0.w_0  #path=fc_0.w_0  #program=1  #color=cost  #theme=dark  #memory=1

function linkOf(view) {
  const parts = [];
  const {selected, path} = view;
  if (view.programs.length > 1 && view.shown !== 'difference') parts.push(['program', view.shown]);
  if (path) parts.push(['path', path.name]);
  else if (selected && selected.kind === 'var') parts.push(['var', `${selected.block}.${selected.name}`]);
  else if (selected && selected.node.op) parts.push(['op', selected.node.op.id]);
  if (view.coloring !== (view.shown === 'difference' ? 'difference' : 'family')) parts.push(['color', view.coloring]);
  if (document.documentElement.dataset.theme) parts.push(['theme', document.documentElement.dataset.theme]);
  if (!byId('memory').hidden) parts.push(['memory', '1']);
  return parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
}
function writeLink(view) {
  const link = linkOf(view);
  if (link !== location.hash.slice(1)) history.replaceState(null, '', link ? '#' + link : location.pathname + location.search);
}

function linkParts() {
  const parts = {};
  for (const part of location.hash.slice(1).split('&')) {
    const [key, ...value] = part.split('=');
    try {
      parts[key] = decodeURIComponent(value.join('='));
    } catch (error) {
      // Uses the rest of a truncated link.
    }
  }
  return parts;
}

async function followLink(view) {
  const parts = linkParts();
  if (/^(light|dark)$/.test(parts.theme || '')) setTheme(view, parts.theme);
  const program = parts.program === undefined ? view.shown : Number(parts.program);
  if (program !== view.shown && view.programs[program]) await view.showProgram(program);
  if (Object.hasOwn(colorings, parts.color || '') || parts.color === 'difference') view.setColoring(parts.color);
  if (parts.memory && byId('memory').hidden) toggleMemory(view);
  if (parts.op !== undefined) {
    const node = [...view.tree.nodeOf].find(([op]) => op.id === parts.op);
    if (node) view.select({kind: 'op', node: node[1]}, {reveal: true});
    else announce(`The program has no op ${parts.op}.`);
  } else if (parts.var !== undefined) {
    const dot = parts.var.indexOf('.');
    const block = Number(parts.var.slice(0, dot)), name = parts.var.slice(dot + 1);
    if (view.program.blocks[block] && view.program.blocks[block].vars.has(name))
      view.selectVar(block, name, {reveal: true});
    else announce(`The program has no variable ${parts.var}.`);
  } else if (parts.path !== undefined) {
    view.selectVar(Math.max(view.program.blockOf(parts.path), 0), parts.path);
    view.showPath(parts.path);
  }
}

function setTheme(view, theme) {
  document.documentElement.dataset.theme = theme;
  view.readTheme();
  view.markEdges();
  const {chart} = byId('memory');
  if (chart && !byId('memory').hidden) chart.draw();
  showLegend(view);
}
function isDark() {
  const {theme} = document.documentElement.dataset;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}
