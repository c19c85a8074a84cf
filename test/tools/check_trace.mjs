// Reads a trace as a viewer does and checks what viewers rely on: the phases, times that are finite
// and not negative, spans that nest on each thread, counters that are numbers, named threads. Prints
// what it found as one line of JSON; exit code 1 and a line for the first thing that is wrong.
//   node check_trace.mjs FILE.json
import {readFileSync} from 'node:fs';

function fail(message) {
  console.log(message);
  process.exit(1);
}

const trace = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const events = trace.traceEvents;
if (!Array.isArray(events)) fail('no traceEvents');
const spans = new Map();  // by thread
const names = new Map();
const found = {spans: 0, counters: 0, threads: 0, categories: {}};
for (const event of events) {
  const at = JSON.stringify(event);
  if (event.ph === 'M') {
    if (event.name === 'thread_name') names.set(event.tid, event.args.name);
    continue;
  }
  if (!Number.isFinite(event.ts) || event.ts < 0) fail(`ts of ${at}`);
  if (event.ph === 'C') {
    if (!Object.values(event.args).every((v) => Number.isFinite(v) && v >= 0)) fail(`args of ${at}`);
    ++found.counters;
  } else if (event.ph === 'X') {
    if (!Number.isFinite(event.dur) || event.dur < 0) fail(`dur of ${at}`);
    if (!event.name || !event.cat) fail(`no name or category: ${at}`);
    if (!spans.has(event.tid)) spans.set(event.tid, []);
    // Whole nanoseconds: sums of the file's microseconds would be rounded.
    const begin = Math.round(event.ts * 1000);
    spans.get(event.tid).push({begin, end: begin + Math.round(event.dur * 1000), at});
    found.categories[event.cat] = (found.categories[event.cat] ?? 0) + 1;
    ++found.spans;
  } else {
    fail(`unknown phase: ${at}`);
  }
}
for (const [thread, list] of spans) {
  if (!names.has(thread)) fail(`thread ${thread} has no name`);
  list.sort((a, b) => a.begin - b.begin || b.end - a.end);
  const open = [];
  for (const span of list) {
    while (open.length > 0 && open.at(-1).end <= span.begin) open.pop();
    if (open.length > 0 && open.at(-1).end < span.end) fail(`${span.at} ends after ${open.at(-1).at}`);
    open.push(span);
  }
}
found.threads = spans.size;
console.log(JSON.stringify(found));
