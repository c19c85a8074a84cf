// Starts the page.

function showLegend(view) {
  const {value, text} = colorings[view.coloring] || {};
  const legend = byId('legend');
  const entry = (color, label) => {
    const mark = element('i.dot');
    mark.style.background = color;
    return element('span', {}, mark, label);
  };
  if (value) {
    const scale = element('i.scale');
    replaceChildren(legend, colorings[view.coloring].label, ' 0', scale, text(view.most()));
  } else if (view.coloring === 'difference') {
    replaceChildren(legend, ['added', 'removed', 'changed'].map((state) => entry(`var(--${state})`, state)));
  } else if (view.coloring === 'stage') {
    const present = phases.filter((phase) => view.program.ops.some((op) => op.phase === phase));
    replaceChildren(legend, present.map((phase) => entry(`var(--phase-${phase})`, phase)));
  } else {
    const present = new Set([...view.tree.nodeOf.keys()].map((op) => familyOf(op.type)));
    replaceChildren(legend, families.filter((f) => present.has(f)).map(([label, key]) => entry(`var(--op-${key})`, label)));
  }
}

function showChoices(view) {
  const {programs, difference} = view;
  byId('title').textContent = visibleText(view.data.title);
  byId('title').title = visibleText(view.data.title);
  const choices = programs.length > 1
    ? [...(difference ? [['difference', 'Difference']] : []), ...programs.map((p, i) => [i, p.name])] : [];
  byId('programs').hidden = choices.length === 0;
  replaceChildren(byId('programs'), choices.map(([which, label]) => element('button', {type: 'button',
    ariaPressed: String(view.shown === which), title: label, onclick: () => view.showProgram(which)}, label)));
  const present = phases.filter((phase) => view.program.blocks[0].ops.some((op) => op.phase === phase));
  byId('phases').hidden = present.length < 2;
  replaceChildren(byId('phases'), present.map((phase) => element('button', {type: 'button', data_phase: phase,
    ariaPressed: String(view.phases.has(phase)), title: `Shows or hides ${phase}`, onclick: () => togglePhase(view, phase, present)}, phase)));
  const has = {family: true, stage: present.length > 1, memory: true,
    cost: view.program.ops.some((op) => op.multiplyAdds > 0), time: view.program.ops.some((op) => op.seconds > 0)};
  const options = Object.entries(colorings).filter(([key]) => has[key]).map(([key, {label}]) => [key, label]);
  if (view.shown === 'difference') options.unshift(['difference', 'by difference']);
  replaceChildren(byId('coloring'), options.map(([value, label]) => element('option', {value}, label)));
  if (!options.some(([key]) => key === view.coloring)) view.coloring = 'family';
  byId('coloring').value = view.coloring;
  document.title = `${visibleText(view.data.title)} – Coracle`;
}
function togglePhase(view, phase, present) {
  const shown = new Set(view.phases);
  if (!shown.delete(phase)) shown.add(phase);
  if (!present.some((p) => shown.has(p))) return announce('one part stays');
  view.showPhases(shown);
}

function listenToButtons(view, search) {
  const actions = {
    memory: () => toggleMemory(view),
    theme: () => { setTheme(view, isDark() ? 'light' : 'dark'), writeLink(view); },
    help: showHelp,
    escape: () => {
      if (byId('help').open) return;
      if (search.clear()) return view.canvas.focus({preventScroll: true});
      if (view.path) return view.select(view.selected);
      if (view.selected) return view.select(null);
      if (!byId('memory').hidden) toggleMemory(view);
    },
  };
  const on = (id, action) => byId(id).addEventListener('click', action);
  on('memory-button', actions.memory);
  on('theme-button', actions.theme);
  on('help-button', actions.help);
  on('zoom-in', () => view.zoom(1.4, undefined, undefined, true));
  on('zoom-out', () => view.zoom(1 / 1.4, undefined, undefined, true));
  on('zoom-fit', () => view.fit());
  on('expand-all', () => view.setAllOpen(true));
  on('collapse-all', () => view.setAllOpen(false));
  byId('coloring').addEventListener('change', (event) => view.setColoring(event.target.value));
  listenToKeys(view, actions);
}

async function start() {
  const queue = new LayoutQueue();  // its worker starts while the data are read
  const view = new View(await readPageData(), queue);
  view.readTheme();
  view.resize();
  const panel = new Panel(view), search = new Search(view);
  showChoices(view);
  await view.layOut();
  view.fit(false, true);
  await new Promise(requestAnimationFrame);
  panel.show();
  showLegend(view);
  listenToPointers(view);
  listenToButtons(view, search);
  view.onChange((what) => {
    if (what === 'program') showChoices(view), byId('memory').hidden || showMemory(view, byId('memory'));
    if (what === 'selection' && !byId('memory').hidden && byId('memory').chart) byId('memory').chart.draw();
    byId('coloring').value = view.coloring;
    showLegend(view);
    writeLink(view);
  });
  new ResizeObserver(() => view.resize()).observe(byId('stage'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view.readTheme());
  addEventListener('hashchange', () => followLink(view));
  await followLink(view);
  window.coracle = view;  // for the console, and for tests
}

start().catch((error) => {
  replaceChildren(byId('panel'), element('p.obstacle', {}, `The page cannot be shown: ${error.message}`));
  throw error;
});
