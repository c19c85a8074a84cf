// Lays out one level of the graph; runs in a worker, or in the page if workers are refused. A
// level: {sizes: [[w, h], ...], edges: [[from, to], ...]}. The answer: {boxes: [[x, y], ...]
// of upper left corners, routes: points of each edge (null for edges that are not drawn),
// width, height}.

const gap = 26, rankGap = 44;
const hubReaders = 14;    // edges from a box with more readers do not affect the layout
// Largest number of boxes in one part for which the library is fast enough.
const libraryLimit = 700;

function layOutLevel({sizes, edges, columns}) {
  if (columns) return layOutColumns(sizes, edges);
  const readers = new Array(sizes.length).fill(0);
  const writers = new Array(sizes.length).fill(0);
  edges.forEach(([from, to]) => { ++readers[from], ++writers[to]; });
  const isHub = ([from, to]) => readers[from] > hubReaders || writers[to] > hubReaders;
  const shaping = edges.map((edge, i) => ({edge, i})).filter(({edge}) => !isHub(edge));
  const result = {boxes: [], routes: edges.map(() => null), width: 0, height: 0};
  const parts = components(sizes.length, shaping).map(
    (part) => (part.nodes.length > libraryLimit ? layOutSimply : layOutByLibrary)(part, sizes));
  shelve(parts).forEach(({part, x, y}) => {
    part.nodes.forEach((n, i) => { result.boxes[n] = [part.boxes[i][0] + x, part.boxes[i][1] + y]; });
    part.edges.forEach(({i}, k) => {
      result.routes[i] = part.routes[k] && part.routes[k].map(([px, py]) => [px + x, py + y]);
    });
    result.width = Math.max(result.width, x + part.width);
    result.height = Math.max(result.height, y + part.height);
  });
  return result;
}

// The parts of a training step, from left to right. Edges run along their headers, and above the
// headers in between.
function layOutColumns(sizes, edges) {
  const columnGap = 90, header = 15;
  const boxes = [];
  let x = 0;
  for (const [width] of sizes) boxes.push([x, columnGap / 2]), (x += width + columnGap);
  const y = columnGap / 2 + header;
  const routes = edges.map(([from, to]) => {
    const forth = from < to;
    const begin = boxes[from][0] + (forth ? sizes[from][0] : 0), end = boxes[to][0] + (forth ? 0 : sizes[to][0]);
    const step = forth ? 16 : -16;
    return Math.abs(from - to) === 1 ? [[begin, y], [end, y]]
      : [[begin, y], [begin + step, y], [begin + step, 8], [end - step, 8], [end - step, y], [end, y]];
  });
  return {boxes, routes, width: x - columnGap, height: y - header + Math.max(...sizes.map(([, h]) => h))};
}

// Parts without edges between them, in the order of their first boxes.
function components(count, shaping) {
  const root = Array.from({length: count}, (unused, i) => i);
  const find = (i) => { while (root[i] !== i) i = root[i] = root[root[i]]; return i; };
  shaping.forEach(({edge: [from, to]}) => {
    const [a, b] = [find(from), find(to)];
    root[Math.max(a, b)] = Math.min(a, b);
  });
  const parts = new Map();
  for (let i = 0; i < count; ++i) {
    if (!parts.has(find(i))) parts.set(find(i), {nodes: [], edges: []});
    parts.get(find(i)).nodes.push(i);
  }
  shaping.forEach((item) => parts.get(find(item.edge[0])).edges.push(item));
  return [...parts.values()];
}

function layOutByLibrary(part, sizes) {
  if (part.nodes.length === 1) return single(part, sizes);
  const graph = new dagre.graphlib.Graph({multigraph: false});
  graph.setGraph({rankdir: 'TB', nodesep: gap, ranksep: rankGap, edgesep: 14,
    ranker: part.nodes.length > 150 ? 'tight-tree' : 'network-simplex'});
  graph.setDefaultEdgeLabel(() => ({}));
  part.nodes.forEach((n) => graph.setNode(String(n), {width: sizes[n][0], height: sizes[n][1]}));
  part.edges.forEach(({edge: [from, to]}) => graph.setEdge(String(from), String(to), {}));
  try {
    dagre.layout(graph);
  } catch (error) {
    return layOutSimply(part, sizes);
  }
  const boxes = part.nodes.map((n) => {
    const {x, y, width, height} = graph.node(String(n));
    return [x - width / 2, y - height / 2];
  });
  const routes = part.edges.map(({edge: [from, to]}) =>
    graph.edge(String(from), String(to)).points.map((p) => [p.x, p.y]));
  return bounded({...part, boxes, routes}, sizes);
}

// Orders boxes by their longest path from a start; each row is in the order of the program.
function layOutSimply(part, sizes) {
  const place = new Map(part.nodes.map((n, i) => [n, i]));
  const rank = part.nodes.map(() => 0);
  const sorted = [...part.edges].sort((a, b) => a.edge[0] - b.edge[0]);
  for (const {edge: [from, to]} of sorted) {
    if (from < to) rank[place.get(to)] = Math.max(rank[place.get(to)], rank[place.get(from)] + 1);
  }
  const rows = [];
  part.nodes.forEach((n, i) => (rows[rank[i]] = rows[rank[i]] || []).push(i));
  const boxes = [];
  let y = 0;
  for (const row of rows.filter(Boolean)) {
    const width = row.reduce((sum, i) => sum + sizes[part.nodes[i]][0] + gap, -gap);
    let x = -width / 2;
    for (const i of row) {
      boxes[i] = [x, y];
      x += sizes[part.nodes[i]][0] + gap;
    }
    y += Math.max(...row.map((i) => sizes[part.nodes[i]][1])) + rankGap;
  }
  const middle = (n) => boxes[place.get(n)][0] + sizes[n][0] / 2;
  const routes = part.edges.map(({edge: [from, to]}) => [
    [middle(from), boxes[place.get(from)][1] + sizes[from][1]], [middle(to), boxes[place.get(to)][1]]]);
  return bounded({...part, boxes, routes}, sizes);
}

function single(part, sizes) {
  const [width, height] = sizes[part.nodes[0]];
  return {...part, boxes: [[0, 0]], routes: part.edges.map(() => null), width, height};
}

// Moves a part so that it begins at 0, 0.
function bounded(part, sizes) {
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  const see = (x, y) => {
    left = Math.min(left, x), right = Math.max(right, x);
    top = Math.min(top, y), bottom = Math.max(bottom, y);
  };
  part.boxes.forEach(([x, y], i) => {
    see(x, y);
    see(x + sizes[part.nodes[i]][0], y + sizes[part.nodes[i]][1]);
  });
  part.routes.forEach((points) => points && points.forEach(([x, y]) => see(x, y)));
  const move = ([x, y]) => [x - left, y - top];
  return {...part, boxes: part.boxes.map(move),
    routes: part.routes.map((points) => points && points.map(move)),
    width: right - left, height: bottom - top};
}

// Puts parts in rows, in their order, so that the whole is about as wide as high.
function shelve(parts) {
  if (parts.length === 1) return [{part: parts[0], x: 0, y: 0}];
  const area = parts.reduce((sum, p) => sum + (p.width + gap) * (p.height + gap), 0);
  const limit = Math.max(...parts.map((p) => p.width), Math.sqrt(area * 1.5));
  const placed = [];
  let x = 0, y = 0, high = 0;
  for (const part of parts) {
    if (x > 0 && x + part.width > limit) {
      y += high + gap;
      x = high = 0;
    }
    placed.push({part, x, y});
    x += part.width + gap;
    high = Math.max(high, part.height);
  }
  return placed;
}
