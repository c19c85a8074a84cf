// Clicks and reads in pages of `coracle view`:
//   node view_page_test.js CHROMIUM training.html difference.html removed.html hostile.html \
//     loop.html longer.html flat.html times.html vars.html same.html branches.html
// The pages are those that view_test.cc makes. Prints a line for each check; exit code 1 when one
// fails.
'use strict';
const {Browser} = require('./browser.js');
const {pathToFileURL} = require('url');

const [, , chromium, ...files] = process.argv;
const [training, difference, removed, hostile, loop, longer, flat, times, vars, same, branches] = files.map((file) => pathToFileURL(file).href);
let failures = 0;

function check(what, got, wanted) {
  const holds = typeof wanted === 'function' ? wanted(got)
    : wanted instanceof RegExp ? wanted.test(got) : got === wanted;
  if (!holds) ++failures;
  console.log(`${holds ? 'ok    ' : 'FAILED'} ${what}${holds ? '' : `: got ${JSON.stringify(got)}, wanted ${wanted}`}`);
}

const panel = `document.getElementById('panel').innerText`;
const heading = `document.querySelector('#panel h2').innerText.trim()`;

// Where a node is on the screen; `type`: of an op in sight.
const nodeAt = (type) => `(() => {
  const view = window.coracle, node = view.scene.boxes.find((n) => n.op && n.op.type === '${type}');
  const {left, top} = view.canvas.getBoundingClientRect(), {camera} = view;
  return [left + camera.x + camera.scale * (node.at.x + node.at.w / 2), top + camera.y + camera.scale * (node.at.y + node.at.h / 2)];
})()`;

async function testSearch(browser) {
  await browser.key('/');
  check('/ goes to the search', await browser.evaluate('document.activeElement.id'), 'search');
  await browser.type('type:relu_grad');
  check('the search finds one gradient op', await browser.evaluate(`document.querySelectorAll('#results .result').length`), 1);
  await browser.key('Enter');
  check('Enter selects it', await browser.evaluate(heading), 'relu_grad');
  check('a found op is named in the address', await browser.evaluate('location.hash'), /op=0\.\d+/);
  await browser.key('Escape');
  await browser.key('/');
  await browser.type('attr:act nothing-like-it');
  check('what is not there is said', await browser.evaluate(`document.getElementById('results').innerText`), /Nothing found/);
  await browser.key('Escape');
  await browser.key('/');
  await browser.type('name:fc_0.w_0');
  check('variables are found', await browser.evaluate(`document.getElementById('results').innerText`), /fc_0\.w_0@GRAD/);
  await browser.key('Escape');
}

async function testPanels(browser) {
  await browser.evaluate('window.coracle.fit(false)');
  await browser.settle();
  await browser.click(...await browser.evaluate(nodeAt('relu')));
  check('a click selects an op', await browser.evaluate(heading), 'relu');
  const text = await browser.evaluate(panel);
  check('its panel has the documentation', text, /max\(X, 0\)|max\(/i);
  check('its place in the text', text, /model\.pbtxt:\d+:\d+/);
  check('its stage and layer', text, /forward/);
  check('its gradient op', text, /relu_grad/);
  await browser.clickOn('#panel .var .link');
  check('a click on a variable shows it', await browser.evaluate(panel), /Producer[\s\S]*Consumers/i);
  await browser.evaluate(`window.coracle.selectVar(0, 'fc_0.w_0', {reveal: true})`);
  await browser.settle();
  const parameter = await browser.evaluate(panel);
  check('a parameter says so', parameter, /parameter/);
  check('its shape', parameter, /3 × 4/);
  check('its gradient, by grad_to_var', parameter, /fc_0\.w_0@GRAD/);
  check('its regularizer', parameter, /l2_decay, coeff 0\.25/);
  check('its values', parameter, /min, max[\s\S]*-1, 2/);
  check('their histogram', await browser.evaluate(`document.querySelectorAll('.histogram rect').length`), 64);
  await browser.evaluate(`window.coracle.selectVar(0, 'h', {reveal: true})`);
  await browser.settle();
  check('an error clip', await browser.evaluate(panel), /error clip\s*by_value, max 5, min -5/);
}

async function testPath(browser) {
  await browser.evaluate(`window.coracle.selectVar(0, 'fc_0.w_0', {reveal: true})`);
  await browser.settle();
  await browser.clickOn('#panel button', 'Path from loss');
  const text = await browser.evaluate(panel);
  check('the path from the loss', text, /from loss to fc_0\.w_0/);
  check('goes through the ops', text, /mean[\s\S]*relu[\s\S]*mul/);
  check('is marked in the graph', await browser.evaluate('window.coracle.marked.length'), (n) => n > 0);
  check('is in the address', await browser.evaluate('location.hash'), /path=fc_0\.w_0/);
  await browser.key('Escape');
  check('Escape ends it', await browser.evaluate('window.coracle.path'), null);
}

async function testKeys(browser) {
  await browser.key('Escape');
  await browser.key('Escape');
  check('Escape leads to the overview', await browser.evaluate(panel), /multiply-adds[\s\S]*Inputs/i);
  await browser.key('ArrowRight');
  const first = await browser.evaluate('window.coracle.selected.node.title');
  await browser.key('ArrowDown');
  check('arrows move along edges', await browser.evaluate('window.coracle.selected.node.title'), (t) => t !== first);
  await browser.key('c');
  check('c closes all groups', await browser.evaluate('window.coracle.scene.frames.length'), 0);
  await browser.key('e');
  check('e opens them', await browser.evaluate('window.coracle.scene.frames.length'), (n) => n >= 2);
  await browser.key('t');
  check('t makes it dark', await browser.evaluate(`document.documentElement.classList.contains('dark')`), true);
  check('the background is dark', await browser.evaluate(`getComputedStyle(document.body).backgroundColor`), 'rgb(18, 22, 28)');
  await browser.key('t');
  await browser.key('m');
  check('m shows the memory', await browser.evaluate(`document.getElementById('memory').innerText`), /arena[\s\S]*Most is in use at step \d+/);
  await browser.key('m');
  await browser.key('?');
  check('? shows the keys', await browser.evaluate(`document.getElementById('help').open`), true);
  await browser.clickOn('#help button', 'Close');
}

async function testParts(browser) {
  await browser.clickOn('#phases button', 'backward');
  check('backward can be hidden', await browser.evaluate(
    `window.coracle.scene.boxes.filter((n) => n.op && n.op.phase === 'backward').length`), 0);
  await browser.clickOn('#phases button', 'backward');
  check('and shown', await browser.evaluate(
    `window.coracle.scene.boxes.filter((n) => n.op && n.op.phase === 'backward').length`), (n) => n > 3);
  await browser.evaluate(`(() => { const s = document.getElementById('coloring'); s.value = 'cost'; s.dispatchEvent(new Event('change')); })()`);
  await browser.settle();
  check('cost colours have a legend', await browser.evaluate(`document.getElementById('legend').innerText`), /multiply-adds 0/);
}

async function testTraining(browser) {
  await browser.open(training);
  check('the first picture comes within two seconds', Number(await browser.evaluate('document.documentElement.dataset.firstPicture')), (ms) => ms < 2000);
  check('the overview counts ops', await browser.evaluate(panel), /ops\s+\d+/);
  check('so do the groups, without inputs and outputs', await browser.evaluate('window.coracle.tree.root.numOps - window.coracle.program.ops.length'), 0);
  await testSearch(browser);
  await testPanels(browser);
  await testPath(browser);
  await testKeys(browser);
  await testParts(browser);
  await browser.open(`${training}#var=0.fc_0.w_0&theme=dark&color=memory`);
  check('a link leads to a variable', await browser.evaluate(heading), 'fc_0.w_0');
  check('and to a theme', await browser.evaluate(`document.documentElement.classList.contains('dark')`), true);
  check('and to a colouring', await browser.evaluate('window.coracle.coloring'), 'memory');
  await browser.open(`${training}#op=0.99999`);
  check('a link to what is not there does no harm', await browser.evaluate(panel), /ops/);
}

async function testDifference(browser) {
  await browser.open(difference);
  check('two programs: the difference', await browser.evaluate(panel), /1 op added/);
  check('is drawn', await browser.evaluate(`window.coracle.program.ops.filter((op) => op.state === 'added').map((op) => op.type).join()`), 'clip');
  await browser.clickOn('#panel button', 'added');
  check('a click leads to the op', await browser.evaluate(heading), 'clip');
  await browser.clickOn('#programs button:last-child');
  check('each program by itself', await browser.evaluate('window.coracle.shown'), 1);
}

// The numbers are those of the two programs, not places in what is drawn.
async function testRemoved(browser) {
  await browser.open(removed);
  check('a removed op is drawn', await browser.evaluate(`window.coracle.program.ops.filter((op) => op.state === 'removed').map((op) => op.type).join()`), 'clip');
  check('with its place in the first program', await browser.evaluate(`window.coracle.program.ops.find((op) => op.state === 'removed').where`), /^block 0 op \d+ of the first program$/);
  check('the others have theirs', await browser.evaluate(`window.coracle.program.ops.filter((op) => op.state !== 'removed').every((op, i) => op.where === 'block 0 op ' + i)`), true);
  await browser.evaluate(`window.coracle.selectVar(0, 'fc_0.w_0', {reveal: true})`);
  await browser.settle();
  await browser.clickOn('#panel button', 'Path from loss');
  check('the path leads over gradient ops behind it', await browser.evaluate(`window.coracle.path.steps.map((step) => step.op.type).join()`), /^mean\w*,(?!.*clip).*relu\w*,.*mul\w*$/);
}

async function testHostile(browser) {
  await browser.open(hostile);
  await browser.key('/');
  await browser.type('img');
  check('a hostile name is text', await browser.evaluate(`document.getElementById('results').innerText`), /<\/script><img src=x onerror=/);
  await browser.key('Enter');
  check('in the panel too', await browser.evaluate(panel), /<\/script><img src=x onerror=/);
  await browser.key('Escape');
  await browser.key('/');
  await browser.type('constructor');
  await browser.key('Enter');
  check('an op called as what all objects have', await browser.evaluate(heading), 'constructor');
  await browser.evaluate(`window.coracle.selectVar(0, 'constructor', {reveal: true})`);
  await browser.settle();
  check('and such a variable', await browser.evaluate(panel), /constructor[\s\S]*variable · block 0/);
  check('which is not fed', await browser.evaluate(panel), /none: no op writes it/);
  await browser.evaluate(`window.coracle.selectVar(0, window.coracle.program.feeds[0], {reveal: true})`);
  await browser.settle();
  check('as an input is', await browser.evaluate(panel), /none: it is fed/);
  check('and does nothing', await browser.evaluate(`[document.images.length, document.scripts.length, typeof window.harmed].join()`), '0,2,undefined');
}

async function testLoop(browser) {
  await browser.open(loop);
  await browser.key('c');
  check('a loop is a closed box', await browser.evaluate(`window.coracle.scene.boxes.some((n) => n.op && n.op.type === 'while' && n.isGroup)`), true);
  await browser.evaluate('window.coracle.fit(false)');
  await browser.settle();
  await browser.click(...await browser.evaluate(nodeAt('while')));
  check('with its sub-block in the panel', await browser.evaluate(panel), /Sub-blocks[\s\S]*block 1 with \d+ ops/);
  await browser.key('Enter');
  check('Enter opens it', await browser.evaluate(`window.coracle.scene.frames.some((n) => n.op && n.op.type === 'while')`), true);
}

// An op more in the body of a loop.
async function testLongerLoop(browser) {
  await browser.open(longer);
  check('an op that a body has more', await browser.evaluate(`window.coracle.program.ops.filter((op) => op.state === 'added').map((op) => op.block + ' ' + op.type).join()`), '1 increment');
  await browser.key('c');
  check('its closed loop is marked', await browser.evaluate(`window.coracle.scene.boxes.find((n) => n.op && n.op.type === 'while').state`), 'changed');
  await browser.clickOn('#panel button', 'added');
  check('a click opens the loop', await browser.evaluate(`window.coracle.scene.frames.some((n) => n.op && n.op.type === 'while')`), true);
  check('and leads to the op', await browser.evaluate(panel), /increment[\s\S]*added by the second program/);
}

// A loop that only the first program has.
async function testRemovedLoop(browser) {
  await browser.open(flat);
  check('a removed loop is drawn with its body', await browser.evaluate(`window.coracle.program.ops.filter((op) => op.state === 'removed').map((op) => op.block + ' ' + op.type).join()`), '0 while,1 increment,1 less_than');
  check('the overview counts them', await browser.evaluate(panel), /3 ops removed/);
  check('and tells the block', await browser.evaluate(panel), /block 1 with 2 ops only in the first program/);
  await browser.key('e');
  check('the loop opens', await browser.evaluate(`window.coracle.scene.frames.filter((n) => n.op && n.op.type === 'while').flatMap((n) => n.children.map((c) => c.title)).join()`), 'increment,less_than');
  await browser.evaluate(`window.coracle.selectOp(window.coracle.program.ops.find((op) => op.type === 'increment'), {reveal: true})`);
  await browser.settle();
  check('an op of its body tells its place', await browser.evaluate(panel), /block 1 op 0 of the first program/);
}

// Variables that only one program has; no op differs.
async function testOneSidedVariables(browser) {
  await browser.open(vars);
  const text = await browser.evaluate(panel);
  check('one-sided variables are told', text, /extra0 only in the second program/);
  check('a long list says how many more there are', text, /extra49[\s\S]*\n10 more/);
  check('they are no equal programs', text, (t) => !/The programs are the same/.test(t));
  await browser.clickOn('#panel button', '10 more');
  check('and shows them', await browser.evaluate(panel), /extra59 only in the second program/);
  await browser.evaluate(`window.coracle.selectVar(0, 'extra0', {reveal: true})`);
  await browser.settle();
  check('no elements take no bytes', await browser.evaluate(panel), (t) => /0 × 4/.test(t) && !/bytes/.test(t));
  await browser.open(same);
  check('equal programs are told', await browser.evaluate(panel), /The programs are the same\./);
}

// What one side's ops have taken with them is not told again, and a block's change names the block.
async function testBranches(browser) {
  await browser.open(branches);
  const text = await browser.evaluate(panel);
  check('the ops of branches that changed places are the same', text, /1 op added/);
  check('a block that draws has another index', text, /block 1 → 2\s+index 1 → 2 \(random ops draw by it\)/);
  check('no other block is told', text, (t) => t.match(/block \d+ → \d+/g).length === 1);
  check('temporaries go with their ops', text, (t) => !/only in the/.test(t));
}

async function testTimes(browser) {
  await browser.open(`${times}#color=time`);
  check('measured times colour the graph', await browser.evaluate('window.coracle.coloring'), 'time');
  check('with a legend', await browser.evaluate(`document.getElementById('legend').innerText`), /time 0[\s\S]*(ns|µs|ms|s)$/);
  check('and are summed up', await browser.evaluate(panel), /measured\s+[\d.]+ .?s in trace\.json/);
  await browser.evaluate(`window.coracle.selectOp(window.coracle.program.ops.find((op) => op.type === 'relu_grad'), {reveal: true})`);
  await browser.settle();
  check('an op tells its own', await browser.evaluate(panel), /measured\s+[\d.]+ .?s/);
  await browser.evaluate(`window.coracle.setColoring('memory')`);
}

// A layout that fails is told, and the next one that succeeds takes that away.
async function testFailingLayout(browser) {
  await browser.open(loop);
  const busy = `(({hidden, textContent}) => hidden ? 'hidden' : textContent)(document.getElementById('busy'))`;
  await browser.evaluate(`(() => { const {queue} = window.coracle.scene;
    queue.withoutWorker();
    window.engine = queue.engine;
    queue.engine = () => { throw new Error('too large'); }; })()`);
  await browser.key('c');
  check('a layout that fails is told', await browser.evaluate(busy), 'The graph cannot be laid out: too large');
  browser.problems.length = 0;  // the error that it is on the console
  await browser.evaluate('window.coracle.scene.queue.engine = window.engine');
  await browser.key('e');
  check('the next one is shown', await browser.evaluate(busy), 'hidden');
}

async function main() {
  const browser = new Browser(chromium);
  try {
    for (const test of [testTraining, testDifference, testRemoved, testHostile, testLoop, testLongerLoop,
      testRemovedLoop, testOneSidedVariables, testBranches, testTimes, testFailingLayout]) {
      await test(browser);
      check(`${test.name}: no errors`, browser.problems.join('; '), '');
    }
    check('nothing was loaded from elsewhere', browser.requests.filter((url) => !/^(file|blob|data|about):/.test(url)).join(), '');
  } finally {
    await browser.close();
  }
  process.exit(failures > 0 ? 1 : 0);
}

main().catch((error) => {
  console.log(`FAILED ${error.stack}`);
  process.exit(1);
});
