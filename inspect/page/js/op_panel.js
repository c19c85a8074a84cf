// The panel of an op.

function opPanel(view, op) {
  const {program, data} = view;
  const declaration = data.op_types[op.type] || null;
  const total = view.tree.root;
  const slots = (uses, kind) => uses.map(({name, slot}, i) => {
    const about = declaration && declaration[kind].find((s) => s.name === slot);
    const again = i > 0 && uses[i - 1].slot === slot;
    return element('div.slot', {}, element('span.slot-name', {title: about ? about.doc : ''}, again ? '' : slot),
      varLink(view, op.block, name));
  });
  return [
    element('header', {}, element('h2', {}, dot(op.type), op.type),
      element('p.soft', {}, [op.where, op.stage, op.layer && `layer ${op.layer}`, op.rounds].filter(Boolean).join(' · '))),
    op.state && section('Difference', element('p', {}, element(`i.dot.${op.state}`), `${op.state}${op.state === 'changed' ? '' : ' by the second program'}`),
      (op.changes || []).map(changeLine)),
    declaration ? element('p.doc', {}, declaration.doc)
      : element('p.doc', {}, 'This op type is not known to this build of Coracle.'),
    declaration && declaration.constraints.length > 0 && section('Constraints',
      element('ul.constraints', {}, declaration.constraints.map(({id, text}) =>
        element('li', {}, element('code', {}, id), ' ', text)))),
    section('Inputs', slots(op.reads, 'inputs')),
    section('Outputs', slots(op.writes, 'outputs')),
    section('Attributes', attrTable(op, declaration)),
    section('Cost', facts(
      row('multiply-adds', op.multiplyAdds > 0 ? shareBar(op.multiplyAdds, total.multiplyAdds, countText(op.multiplyAdds)) : 'none counted'),
      op.seconds > 0 && row('measured', shareBar(op.seconds, total.seconds, secondsText(op.seconds))),
      op.bytes > 0 && row('outputs', bytesText(op.bytes)))),
    section('Made from', op.forward && [opLink(view, op.forward, 'its forward op')], recomputedFrom(view, op), fusedOps(view, op)),
    section('Gradient', declaration && element('p', {}, declaration.gradient),
      op.gradientOps.length > 0 && opList(view, op.gradientOps)),
    section('Place', element('p', {}, element('code', {}, op.origin || op.where),
      op.origin ? '' : element('span.soft', {}, ' (no place in a text is recorded)'))),
    op.subBlocks.length > 0 && section('Sub-blocks', op.subBlocks.map((b) => subBlockLine(view, op, b))),
    declaration && section('Kernels', element('p', {}, declaration.kernels)),
  ];
}

function subBlockLine(view, op, b) {
  const block = view.program.blocks[b];
  if (!block) return element('p', {}, `block ${b}, which the program lacks`);
  const node = view.tree.nodeOf.get(op);
  return element('p', {}, `${block.title} with ${plural(block.ops.length, 'op')} `, node && node.isGroup &&
    element('button', {type: 'button', onclick: () => view.toggle(node)}, node.open ? 'Close' : 'Open'));
}
// The block of a fused op contains the ops that it was made from.
function fusedOps(view, op) {
  if (!/^fused_/.test(op.type)) return null;
  return op.subBlocks.flatMap((b) => (view.program.blocks[b] ? opList(view, view.program.blocks[b].ops) : []));
}
function recomputedFrom(view, op) {
  const name = op.attrs.recomputed_from;
  if (typeof name !== 'string') return null;
  const {writers} = view.program.usesOf(op.block, name);
  return writers.length > 0 && [opLink(view, writers[0], 'computed again')];
}

// The given attrs, then the defaults of the others.
function attrTable(op, declaration) {
  const declared = new Map(declaration ? declaration.attrs.map((a) => [a.name, a]) : []);
  const rows = Object.entries(op.attrs).map(([name, value]) => attrRow(name, attrText(value), declared.get(name), ''));
  for (const [name, attr] of declared)
    if (!(name in op.attrs) && attr.default !== undefined) rows.push(attrRow(name, attrText(attr.default), attr, 'default'));
  return rows.length > 0 && element('dl.attrs', {}, rows);
}
function attrRow(name, value, about, kind) {
  const text = value === '' ? '""' : value;
  const long = text.length > 160;
  const shown = element('code', {}, long ? text.slice(0, 160) + '…' : text);
  return [element('dt', {className: kind, title: about ? about.doc : ''}, name),
    element('dd', {className: kind}, shown, long && element('button.more', {type: 'button', onclick: (event) => {
      shown.textContent = visibleText(text);
      event.target.remove();
    }}, 'all'), about && element('span.about', {}, about.doc + (about.limits || '')))];
}
