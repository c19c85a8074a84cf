// A headless Chromium, driven over its debugging pipe: no package is needed. Messages are JSON texts
// that end in a zero byte; the browser reads them from descriptor 3 and writes to 4.
'use strict';
const {spawn} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

class Browser {
  constructor(program, width = 1280, height = 860) {
    this.profile = fs.mkdtempSync(path.join(os.tmpdir(), 'coracle-view-'));
    this.process = spawn(program, ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
      '--no-first-run', '--disable-extensions', '--disable-background-networking', '--hide-scrollbars',
      `--user-data-dir=${this.profile}`, `--window-size=${width},${height}`, 'about:blank'],
      {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    this.next = 1;
    this.waiting = new Map();
    this.problems = [];   // errors on the console
    this.requests = [];   // addresses that the page asked for
    let rest = '';
    this.process.stdio[4].setEncoding('utf8');
    this.process.stdio[4].on('data', (text) => {
      const parts = (rest + text).split('\0');
      rest = parts.pop();
      parts.forEach((part) => this.receive(JSON.parse(part)));
    });
    this.process.on('exit', () => this.waiting.forEach(({reject}) => reject(new Error('the browser ended'))));
  }
  send(method, params = {}, session = this.session) {
    const id = this.next++;
    this.process.stdio[3].write(JSON.stringify({id, method, params, sessionId: session}) + '\0');
    return new Promise((resolve, reject) => this.waiting.set(id, {resolve, reject, method}));
  }
  receive({id, result, error, method, params}) {
    if (id) {
      const asked = this.waiting.get(id);
      this.waiting.delete(id);
      if (error) asked.reject(new Error(`${asked.method}: ${error.message}`));
      else asked.resolve(result);
    }
    if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception.description);
    if (method === 'Runtime.consoleAPICalled' && params.type === 'error') this.problems.push(JSON.stringify(params.args));
    if (method === 'Log.entryAdded' && params.entry.level === 'error') this.problems.push(params.entry.text);
    if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
  }
  async open(url, {width = 1280, height = 860, dark = false, mobile = false} = {}) {
    if (!this.session) {
      const {targetId} = await this.send('Target.createTarget', {url: 'about:blank'}, undefined);
      ({sessionId: this.session} = await this.send('Target.attachToTarget', {targetId, flatten: true}, undefined));
      for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await this.send(`${domain}.enable`);
    }
    await this.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: mobile ? 2 : 1, mobile});
    await this.send('Emulation.setEmulatedMedia', {features: [
      {name: 'prefers-color-scheme', value: dark ? 'dark' : 'light'}, {name: 'prefers-reduced-motion', value: 'reduce'}]});
    await this.send('Page.navigate', {url: 'about:blank'});  // so that another # loads the page anew
    await this.send('Page.navigate', {url});
    await this.until('window.coracle && document.documentElement.dataset.firstPicture');
  }
  async evaluate(expression) {
    const {result, exceptionDetails} = await this.send('Runtime.evaluate',
      {expression, returnByValue: true, awaitPromise: true});
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception.description}`);
    return result.value;
  }
  async until(condition, seconds = 30) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
      if (await this.evaluate(`!!(${condition})`)) return;
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    throw new Error(`waited in vain for ${condition}; ${this.problems.join('; ')}`);
  }
  // All that was asked for has been drawn.
  settle() {
    return this.evaluate(`new Promise((done) => setTimeout(() =>
      requestAnimationFrame(() => requestAnimationFrame(() => done(1))), 250))`);
  }
  async click(x, y, count = 1) {
    const at = {x, y, button: 'left', clickCount: count};
    await this.send('Input.dispatchMouseEvent', {...at, type: 'mouseMoved', button: 'none'});
    await this.send('Input.dispatchMouseEvent', {...at, type: 'mousePressed'});
    await this.send('Input.dispatchMouseEvent', {...at, type: 'mouseReleased'});
    await this.settle();
  }
  // Clicks an element that a selector names, or the first whose text is `text`.
  async clickOn(selector, text = '') {
    const at = await this.evaluate(`(() => {
      const found = [...document.querySelectorAll(${JSON.stringify(selector)})].find((e) =>
        ${JSON.stringify(text)} === '' || e.textContent.includes(${JSON.stringify(text)}));
      if (!found) return null;
      found.scrollIntoView({block: 'center'});
      const {left, top, width, height} = found.getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    })()`);
    if (!at) throw new Error(`nothing to click on: ${selector} ${text}`);
    await this.click(...at);
  }
  async key(key) {
    const named = {Enter: 13, Escape: 27, ArrowUp: 38, ArrowDown: 40, ArrowLeft: 37, ArrowRight: 39}[key];
    const params = {key, windowsVirtualKeyCode: named || key.toUpperCase().charCodeAt(0),
      text: named ? (key === 'Enter' ? '\r' : undefined) : key};
    await this.send('Input.dispatchKeyEvent', {...params, type: 'keyDown'});
    await this.send('Input.dispatchKeyEvent', {...params, text: undefined, type: 'keyUp'});
    await this.settle();
  }
  async type(text) {
    await this.send('Input.insertText', {text});
    await this.settle();
  }
  async screenshot(file) {
    const {data} = await this.send('Page.captureScreenshot', {format: 'png'});
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
  }
  async close() {
    const ended = new Promise((resolve) => this.process.on('exit', resolve));
    this.waiting.clear();
    this.process.kill('SIGKILL');
    await ended;
    // Its children may write a little longer than it lives; then a folder is left behind.
    for (let tries = 20; tries > 0; --tries) {
      try {
        return fs.rmSync(this.profile, {recursive: true, force: true});
      } catch (e) {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }
}

module.exports = {Browser};
