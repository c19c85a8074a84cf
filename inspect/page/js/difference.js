// Draws the difference of two programs as one graph: the second program's ops, with new or changed
// ones marked, and between them the ops that only the first one has. Blocks that only the first
// program has follow the second program's blocks.

function differenceOf([before, after], json) {
  if (!json) return null;
  const difference = plainDifference(json);
  const renamed = new Map(difference.renamed);
  const data = {...after.data, name: `${before.name} → ${after.name}`, program: {
    ...after.data.program, blocks: after.data.program.blocks.map((b) => ({...b, vars: [...b.vars]}))}};
  const positions = [];
  const placeOf = blockPlaces(before.data.program.blocks, data.program.blocks, difference.blocks);
  const removedOp = removedOps(placeOf, data.program.blocks.length, renamed);
  for (const block of data.program.blocks) {
    const found = difference.blocks.find((b) => b.after === block.index);
    const blockBefore = found && before.data.program.blocks[found.before];
    block.ops = mergedOps(block, blockBefore, found, removedOp);
    if (blockBefore) addRemovedVars(block, blockBefore, renamed);
  }
  for (const {before: index, after: place} of difference.blocks) {
    const block = place < 0 && before.data.program.blocks[index];
    if (block) data.program.blocks[placeOf.get(index)] = removedBlock(block, placeOf, removedOp);
  }
  data.multiply_adds = data.program.blocks.map((block) => block.ops.map(costOf));
  data.times = null;
  data.program.blocks.forEach((block) => positions.push(placesAfter(block.ops)));
  data.program.blocks = data.program.blocks.map((block) => ({...block,
    ops: block.ops.map((op) => ({...op, forward_op: movedPlace(op.forward_op, positions)}))}));
  data.gradient = movedGradient(data.gradient, positions);
  const program = new Program(data);
  data.program.blocks.forEach((block, b) => block.ops.forEach((json, i) => {
    const {mark} = json;
    const op = program.blocks[b].ops[i];
    const place = mark.state === 'removed' ? `block ${mark.block} op ${mark.before} of the first program` : `block ${b} op ${mark.after}`;
    Object.assign(op, {state: mark.state, changes: mark.changes || [], place});
  }));
  program.vars = new Map(difference.blocks.flatMap((b) => b.vars.map((v) => [v.after || v.before, v])));
  return {program, data: difference, counts: countStates(program)};

  function costOf(op) {
    const mark = op.mark;
    const [source, i] = mark.state === 'removed' ? [before, mark.before] : [after, mark.after];
    return (source.data.multiply_adds[mark.block] || [])[i] || 0;
  }
}

// The output of `coracle diff --json`, with positions instead of {block, op}, -1 for none.
function plainDifference(json) {
  const index = (place) => (place ? place.op : -1);
  const blocks = json.blocks.map((block) => ({...block, before: block.before ?? -1, after: block.after ?? -1,
    ops: block.ops.map((op) => ({...op, before: index(op.before), after: index(op.after)}))}));
  const renamed = blocks.flatMap((block) => block.vars)
    .filter((v) => v.before && v.after && v.before !== v.after).map((v) => [v.before, v.after]);
  return {...json, blocks, renamed, values: json.values || []};
}

// The positions of the first program's blocks in the drawing: blocks that differ give it, blocks
// that only the first program has come after all others, and the rest have kept their order.
function blockPlaces(blocksBefore, blocksAfter, listed) {
  const taken = new Set(listed.map((b) => b.after));
  const equal = blocksAfter.map((b) => b.index).filter((index) => !taken.has(index));
  const places = new Map();
  let next = 0, last = blocksAfter.length;
  for (const {index} of blocksBefore) {
    const found = listed.find((b) => b.before === index);
    places.set(index, !found ? equal[next++] : found.after >= 0 ? found.after : last++);
  }
  return places;
}
// Makes the op that shows one of the first program's ops. It runs the sub-blocks that were removed
// with it.
function removedOps(placeOf, firstRemoved, renamed) {
  return (json, block, index) => ({...json, inputs: renamedSlots(json.inputs, renamed),
    sub_blocks: (json.sub_blocks || []).map((b) => placeOf.get(b)).filter((b) => b >= firstRemoved),
    forward_op: undefined, mark: {state: 'removed', block, before: index, after: -1}});
}
function removedBlock(block, placeOf, removedOp) {
  return {...block, index: placeOf.get(block.index), number: block.index, parent: placeOf.get(block.parent) ?? -1,
    ops: block.ops.map((json, i) => removedOp(json, block.index, i)), vars: [...block.vars]};
}

// `found`: the differences in the block, if there are any.
function mergedOps(block, blockBefore, found, removedOp) {
  const isNew = found && !blockBefore;
  const listed = isNew ? block.ops.map((op, i) => ({before: -1, after: i})) : found ? found.ops : [];
  const byAfter = new Map(listed.filter((o) => o.after >= 0).map((o) => [o.after, o]));
  const removed = listed.filter((o) => o.after < 0).map((o) => o.before).sort((a, b) => a - b);
  const isRemoved = new Set(removed);
  const merged = [];
  let passed = 0, next = 0;  // ops of the first program that are placed, removed ones
  const insertRemoved = () => {
    while (next < removed.length && removed[next] <= passed) {
      const json = blockBefore && blockBefore.ops[removed[next]];
      if (!json) return;
      merged.push(removedOp(json, found.before, removed[next]));
      ++next, ++passed;
    }
  };
  block.ops.forEach((json, i) => {
    const entry = byAfter.get(i);
    const added = entry && entry.before < 0;
    if (!added) insertRemoved();
    const state = !entry ? '' : added ? 'added' : 'changed';
    merged.push({...json, mark: {state, block: block.index, before: entry ? entry.before : -1, after: i,
      changes: entry ? changesOf(entry) : []}});
    if (!added) ++passed;
    while (isRemoved.has(passed) && removed[next] > passed) ++passed;
  });
  passed = Infinity;
  insertRemoved();
  return merged;
}
function changesOf({changes = [], moved_over: over}) {
  return over ? [...changes, {what: 'moved', name: over, before: '', after: ''}] : changes;
}
function renamedSlots(slots, renamed) {
  return Object.fromEntries(Object.entries(slots || {}).map(([slot, names]) =>
    [slot, names.map((name) => renamed.get(name) || name)]));
}
function addRemovedVars(block, blockBefore, renamed) {
  const known = new Set(block.vars.map((v) => v.name));
  for (const v of blockBefore.vars)
    if (!known.has(v.name) && !renamed.has(v.name)) block.vars.push(v);
}
// The positions of the second program's ops in the merged list.
function placesAfter(ops) {
  const places = [];
  ops.forEach((op, i) => { if (op.mark.after >= 0) places[op.mark.after] = i; });
  return places;
}
function movedPlace(place, positions) {
  return place && {block: place.block, op: (positions[place.block] || [])[place.op]};
}
// The tree of gradients, whose steps refer to ops of the second program.
function movedGradient(tree, positions) {
  if (!tree) return tree;
  const moved = (step) => ({...step, ...movedPlace(step, positions),
    ...(step.inside ? {inside: step.inside.map(moved)} : {})});
  return {...tree, steps: tree.steps.map(moved)};
}
function countStates(program) {
  const counts = {added: 0, removed: 0, changed: 0};
  program.ops.forEach((op) => { if (op.state) ++counts[op.state]; });
  return counts;
}

// The state of an op, or of the contents of a closed group: changed if states are mixed.
function stateOf(node) {
  if (node.state !== undefined) return node.state;
  if (node.op && !node.isGroup) return (node.state = node.op.state);
  const states = new Set(node.children.map(stateOf));
  if (node.op) states.add(node.op.state);
  if (states.size > 1 && states.has('')) states.delete(''), states.add('changed');
  return (node.state = states.size === 1 ? [...states][0] : 'changed');
}
