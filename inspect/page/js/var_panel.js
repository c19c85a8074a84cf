// The panel of a variable, and the panel of a path of gradients.

function varPanel(view, {block, name}) {
  const {program} = view;
  const desc = block < 0 ? null : program.blocks[block].vars.get(name);
  const {writers, readers} = program.usesOf(block, name);
  const difference = program.vars && program.vars.get(name);
  return [
    element('header', {}, element('h2.name', {}, name), element('p.soft', {}, [kindOfVar(program, name, desc), block >= 0 ? program.blocks[block].title : 'declared in no block'].join(' · '))),
    difference && section('Difference', difference.before !== difference.after && element('p', {},
      !difference.before ? 'only in the second program' : !difference.after ? 'only in the first program' : `renamed from ${difference.before}`), difference.changes.map(changeLine)),
    desc && section('Type', facts(
      desc.dtype && row('dtype', desc.dtype),
      desc.shape && row('shape', element('code', {}, shapeText(desc.shape))),
      desc.type !== 'LOD_TENSOR' && row('kind', desc.type),
      desc.lod_level > 0 && row('LoD levels', String(desc.lod_level)),
      bytesOf(desc) > 0 && row('bytes', bytesText(bytesOf(desc)) + (desc.shape.some((d) => d < 0) ? ', unknown dims as 1' : '')),
      desc.stop_gradient && row('gradient', 'stopped'),
      plannedAt(program, name))),
    section('Producer', writers.length > 0 ? opList(view, writers)
      : element('p.soft', {}, desc && desc.persistable ? 'none: it is held from run to run'
        : program.feeds.includes(name) ? 'none: it is fed' : 'none: no op writes it')),
    section(`Consumers${readers.length > 1 ? `, ${readers.length}` : ''}`, readers.length > 0 ? opList(view, readers)
      : element('p.soft', {}, 'none')),
    gradientSection(view, block, name),
    settingsSection(desc),
    valuesSection(program, name),
    desc && desc.origin && section('Place', element('code', {}, desc.origin)),
  ];
}

function kindOfVar(program, name, desc) {
  if (program.gradToVar[name]) return 'gradient';
  if (!desc) return 'variable';
  if (desc.parameter) return 'parameter';
  if (desc.persistable) return 'persistable';
  if (program.feeds.includes(name)) return 'input';
  return program.fetches.includes(name) ? 'output' : 'variable';
}

// The chain of grad_to_var: the gradients of a variable with their writers, or the variable of a
// gradient, and the path from the loss.
function gradientSection(view, block, name) {
  const {program} = view;
  const parts = [];
  for (let of = program.gradToVar[name], seen = new Set(); of && !seen.has(of); of = program.gradToVar[of]) {
    seen.add(of);
    parts.push(element('p', {}, 'It is the gradient of'), varLink(view, program.blockOf(of), of));
  }
  for (const gradient of program.gradientsOf.get(name) || []) {
    const home = program.blockOf(gradient);
    const {writers} = program.usesOf(home, gradient);
    parts.push(varLink(view, home, gradient), element('div.chain', {}, opList(view, writers)));
  }
  const path = gradientPath(program, name);
  const {gradient} = program.data;
  if (path && path.steps.length > 0) {
    const sums = (gradient.contributions || {})[name];
    parts.push(element('p', {}, element('button', {type: 'button', onclick: () => view.showPath(name)},
      `Path from ${path.of}`), element('span.soft', {}, ` ${plural(path.steps.length, 'step')}${sums > 1 ? `, ${sums} contributions are summed` : ''}`)));
    const blocked = path.steps.find((step) => step.obstacle);
    if (blocked) parts.push(element('p.obstacle', {}, `No gradient arrives: ${blocked.obstacle}`));
  } else if (gradient && name !== gradient.of && program.isParameter(Math.max(block, 0), name) && !program.gradToVar[name]) {
    parts.push(element('p.soft', {}, `${gradient.of} does not depend on it.`));
  }
  return section('Gradient', parts);
}

function settingsSection(desc) {
  if (!desc) return null;
  return section('Training', facts(
    desc.error_clip && row('error clip', settingText(desc.error_clip)),
    desc.gradient_clip && row('gradient clip', settingText(desc.gradient_clip)),
    desc.regularizer && row('regularizer', settingText(desc.regularizer)),
    desc.initializer && row('initializer', settingText(desc.initializer)),
    desc.learning_rate !== undefined && row('learning rate', `× ${numberText(desc.learning_rate)}`),
    desc.trainable === false && row('trainable', 'no')));
}

function plannedAt(program, name) {
  const {memory} = program.data;
  const i = memory ? memory.storages.findIndex((s) => s.names.includes(name)) : -1;
  if (i < 0) return null;
  const {offset, bytes, first, last} = memory.storages[i];
  return row('in memory', `${bytesText(bytes)} at ${bytesText(offset)}, from step ${first} to ${last}`);
}

function valuesSection(program, name) {
  const values = program.data.values && program.data.values[name];
  if (!values) return null;
  return section('Values', values.histogram && histogram(values.histogram), facts(
    row('min, max', `${numberText(values.min)}, ${numberText(values.max)}`),
    row('mean', numberText(values.mean)), row('deviation', numberText(values.std)),
    row('L2 norm', numberText(values.norm)),
    row('zeros', `${values.zeros.toLocaleString('en')} of ${values.count.toLocaleString('en')}`),
    values.not_finite > 0 && row('not finite', values.not_finite.toLocaleString('en'))));
}
function histogram({low, high, counts}) {
  const most = Math.max(...counts, 1), width = 320, height = 92;
  const bar = width / counts.length;
  const bars = counts.map((count, i) => {
    const h = count > 0 ? Math.max(1, ((height - 2) * count) / most) : 0;
    const from = low + ((high - low) * i) / counts.length, to = low + ((high - low) * (i + 1)) / counts.length;
    return svgElement('rect', {x: i * bar, y: height - h, width: Math.max(bar - 0.8, 0.6), height: h},
      svgElement('title', {}, `${numberText(from)} to ${numberText(to)}: ${count.toLocaleString('en')}`));
  });
  return element('figure.histogram', {}, svgElement('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `Histogram from ${numberText(low)} to ${numberText(high)}`}, bars),
    element('figcaption', {}, element('span', {}, numberText(low)), element('span', {}, numberText(high))));
}

function pathPanel(view) {
  const {path, program} = view;
  const steps = path.steps.map((step) => element('li', {className: step.obstacle ? 'blocked' : ''},
    element('button.link', {type: 'button', onclick: () => view.selectVar(step.block, step.to)}, step.to),
    element('div.through', {}, 'through ', opLink(view, step.op), ' ', element('span.soft', {}, `${step.from_slot} → ${step.to_slot}`)),
    step.obstacle && element('p.obstacle', {}, `ends here: ${step.obstacle}`)));
  const gradients = program.gradientsOf.get(path.name) || [];
  return [
    element('header', {}, element('h2', {}, 'Path of the gradient'),
      element('p.soft', {}, `from ${path.of} to ${path.name}, ${plural(path.steps.length, 'step')}`)),
    element('ol.path', {}, element('li', {}, element('b', {}, path.of)), steps),
    gradients.length > 0 && section('Gradient', gradients.map((g) => varLink(view, program.blockOf(g), g))),
  ];
}
