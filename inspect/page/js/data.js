// The data in the page: JSON, compressed by gzip if it is large.

async function readPageData() {
  const data = await readHolder();
  bare(data.op_types);
  readFamilies(data.op_types);
  data.programs.forEach(bareMaps);
  return data;
}

// Objects whose keys are names from files: an op called "constructor" must find nothing.
function bare(map) {
  if (map) Object.setPrototypeOf(map, null);
}
function bareMaps({values, program, gradient}) {
  [values, program.grad_to_var, gradient && gradient.starts, gradient && gradient.contributions].forEach(bare);
}

async function readHolder() {
  const holder = byId('data');
  if (holder.type === 'application/json') return JSON.parse(holder.textContent);
  const packed = await fetchlessBytes(holder.textContent);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

// Decodes base64 text. fetch('data:...') would violate the page's policy.
function fetchlessBytes(base64) {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}
