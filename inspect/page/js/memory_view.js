// Memory over time as planned for the arena: steps from left to right, addresses upward, and a
// rectangle for each storage during its lifetime.

function toggleMemory(view) {
  const drawer = byId('memory');
  drawer.hidden = !drawer.hidden;
  byId('memory-button').setAttribute('aria-pressed', String(!drawer.hidden));
  if (!drawer.hidden) showMemory(view, drawer);
  view.changed('memory');
}

function showMemory(view, drawer) {
  const {memory, memory_note: note} = view.program.data;
  const close = element('button.close', {type: 'button', ariaLabel: 'Close', onclick: () => toggleMemory(view)}, '×');
  if (!memory || memory.steps.length === 0) {
    return replaceChildren(drawer, close, element('h2', {}, 'Memory over time'),
      element('p.empty', {}, note || 'Nothing is planned for this program.'));
  }
  const canvas = element('canvas', {tabIndex: 0});
  canvas.setAttribute('aria-label', `Arena of ${bytesText(memory.arena_bytes)} over ${memory.steps.length} steps`);
  const line = element('p.reading', {}, memoryLine(memory));
  replaceChildren(drawer, close, element('h2', {}, 'Memory over time'), element('p.soft', {}, memoryTotals(memory)),
    canvas, line, note && element('p.note', {}, note));
  const chart = new MemoryChart(view, canvas, memory, line);
  chart.draw();
  drawer.chart = chart;
}
const memoryTotals = (memory) => `${bytesText(memory.arena_bytes)} of arena for ${plural(memory.storages.length, 'storage')} ` +
  `that would take ${bytesText(memory.storages.reduce((sum, s) => sum + s.bytes, 0))} apart` +
  (memory.result_bytes > 0 ? `, and ${bytesText(memory.result_bytes)} of results` : '');
function memoryLine(memory) {
  const most = memory.in_use.reduce((best, bytes, i) => (bytes > memory.in_use[best] ? i : best), 0);
  const step = memory.steps[most];
  return `Most is in use at step ${most}, ${step.type}${step.output ? ' of ' + step.output : ''}: ${bytesText(memory.in_use[most])}.`;
}

class MemoryChart {
  constructor(view, canvas, memory, line) {
    Object.assign(this, {view, canvas, memory, line});
    canvas.addEventListener('pointermove', (event) => this.read(event));
    canvas.addEventListener('pointerleave', () => {
      replaceChildren(line, memoryLine(memory));
      this.draw();
    });
    canvas.addEventListener('click', (event) => {
      const storage = this.at(event);
      if (!storage) return;
      const name = storage.names.find((n) => view.program.blockOf(n) >= 0);
      if (name) view.selectVar(view.program.blockOf(name), name, {reveal: true});
    });
  }
  draw(marked = null) {
    const {canvas, memory, view: {palette, program, selected}} = this;
    const ratio = window.devicePixelRatio || 1;
    const {width, height} = canvas.getBoundingClientRect();
    canvas.width = width * ratio, canvas.height = height * ratio;
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    this.left = 58, this.bottom = height - 18, this.top = 8;
    this.xScale = (width - this.left - 8) / memory.steps.length;
    this.yScale = (this.bottom - this.top) / Math.max(memory.arena_bytes, 1);
    this.drawAxes(c, palette, width);
    const name = selected && selected.kind === 'var' ? selected.name : null;
    for (const storage of memory.storages) {
      const op = memory.steps[storage.first];
      const base = palette[familyOf(op ? op.type : '')[1]];
      const on = storage === marked || (name && storage.names.includes(name));
      const [x, y, w, h] = this.rectangle(storage);
      c.fillStyle = on ? palette.accent : mix(palette.card, base, 0.5);
      c.fillRect(x, y, w, h);
      if (w > 4 && h > 4) {
        c.strokeStyle = palette.card;
        c.lineWidth = 0.75;
        c.strokeRect(x, y, w, h);
      }
    }
    c.strokeStyle = palette.ink;
    c.lineWidth = 1.25;
    c.beginPath();
    memory.in_use.forEach((bytes, i) => {
      const y = this.bottom - bytes * this.yScale;
      c.lineTo(this.left + i * this.xScale, y);
      c.lineTo(this.left + (i + 1) * this.xScale, y);
    });
    c.stroke();
  }
  drawAxes(c, palette, width) {
    c.font = '11px system-ui, sans-serif';
    c.fillStyle = palette.soft;
    c.strokeStyle = palette.line;
    c.lineWidth = 1;
    for (let i = 0; i <= 4; ++i) {
      const y = this.bottom - ((this.bottom - this.top) * i) / 4;
      c.beginPath(), c.moveTo(this.left, y), c.lineTo(width - 8, y), c.stroke();
      const text = bytesText(Math.round((this.memory.arena_bytes * i) / 4));
      c.fillText(text, this.left - 6 - c.measureText(text).width, y + 4);
    }
    c.fillText('step 0', this.left, this.bottom + 14);
    const last = `step ${this.memory.steps.length - 1}`;
    c.fillText(last, width - 8 - c.measureText(last).width, this.bottom + 14);
  }
  rectangle({offset, bytes, first, last}) {
    const h = Math.max(bytes * this.yScale, 0.5);
    return [this.left + first * this.xScale, this.bottom - offset * this.yScale - h,
      Math.max((last - first + 1) * this.xScale, 0.75), h];
  }
  at(event) {
    const {left, top} = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    return this.memory.storages.findLast((storage) => {
      const [x, y, w, h] = this.rectangle(storage);
      return px >= x && px <= x + Math.max(w, 2) && py >= y && py <= y + Math.max(h, 2);
    });
  }
  read(event) {
    const storage = this.at(event);
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const i = Math.floor((x - this.left) / this.xScale);
    const step = this.memory.steps[i];
    if (storage) {
      const more = storage.names.length > 3 ? `, and ${storage.names.length - 3} more` : '';
      replaceChildren(this.line, element('b', {}, storage.names.slice(0, 3).join(', ') || 'scratch memory'), more,
        ` ${bytesText(storage.bytes)} at ${bytesText(storage.offset)}, steps ${storage.first} to ${storage.last}`);
    } else if (step) {
      replaceChildren(this.line, `Step ${i}, ${step.type}${step.output ? ' of ' + step.output : ''}: ${bytesText(this.memory.in_use[i])} in use.`);
    }
    this.draw(storage);
  }
}
