// Asks for layouts, in a worker where the browser allows one, so that the page never waits.

class LayoutQueue {
  constructor() {
    this.waiting = new Map();
    this.next = 0;
    try {
      const source = `${createLayoutEngine.toString()}
        const layOut = createLayoutEngine();
        onmessage = ({data: {id, level}}) => postMessage({id, result: layOut(level)});`;
      this.worker = new Worker(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})));
      this.worker.onmessage = ({data}) => this.settle(data.id, data.result);
      this.worker.onerror = (event) => { event.preventDefault(), this.withoutWorker(); };
    } catch (error) {
      this.withoutWorker();
    }
  }
  layOut(level) {
    return new Promise((resolve) => {
      const id = this.next++;
      this.waiting.set(id, {level, resolve});
      if (this.worker) this.worker.postMessage({id, level});
      else setTimeout(() => this.settle(id, this.engine(level)));
    });
  }
  settle(id, result) {
    const asked = this.waiting.get(id);
    this.waiting.delete(id);
    if (asked) asked.resolve(result);
  }
  withoutWorker() {
    this.worker = null;
    this.engine = createLayoutEngine();
    for (const [id, {level}] of [...this.waiting])
      setTimeout(() => this.settle(id, this.engine(level)));
  }
}
