// Makes elements. Text from files reaches the page only through these functions, as text: no name,
// attr or comment is ever read as HTML.

const byId = (id) => document.getElementById(id);

// element('p.note', {title: 'x'}, 'text', otherElement): sets properties as properties; those that
// begin with "on" are listeners.
function element(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const made = document.createElement(name);
  if (classes.length > 0) made.className = classes.join(' ');
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key.startsWith('aria')) made.setAttribute(key.replace('aria', 'aria-').toLowerCase(), value);
    else if (key.startsWith('data_')) made.dataset[key.slice(5)] = value;
    else made[key] = value;
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === '') continue;
    parent.append(child instanceof Node ? child : visibleText(String(child)));
  }
}

function replaceChildren(parent, ...children) {
  parent.textContent = '';
  append(parent, children);
}

// Shows characters that could make text look like other text by their numbers.
function visibleText(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

const svgNamespace = 'http://www.w3.org/2000/svg';
function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS(svgNamespace, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  append(made, children);
  return made;
}

// --- numbers as text ---

function countText(n) {
  if (n < 1e4) return String(Math.round(n));
  const units = ['', 'K', 'M', 'G', 'T', 'P'];
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) n /= 1000, ++unit;
  return (n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : n.toFixed(0)) + units[unit];
}
function bytesText(n) {
  if (n < 1024) return `${n} B`;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1023.5 && unit < units.length - 1) n /= 1024, ++unit;
  return `${n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : n.toFixed(0)} ${units[unit]}`;
}
function secondsText(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  return s >= 1e-3 ? `${(s * 1e3).toFixed(2)} ms` : `${(s * 1e6).toFixed(1)} µs`;
}
function numberText(x) {
  if (typeof x !== 'number') return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e9) return String(x);
  return String(Number(x.toPrecision(5)));
}
function percentText(part, whole) {
  if (!(whole > 0)) return '';
  const percent = (100 * part) / whole;
  return percent >= 0.1 ? `${percent.toFixed(1)}%` : percent > 0 ? '<0.1%' : '0%';
}
const plural = (n, what) => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
