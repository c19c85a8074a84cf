// Requests layouts, in a worker if the browser allows one, so that the page never waits.

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
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.waiting.set(id, {level, resolve, reject});
      if (this.worker) this.worker.postMessage({id, level});
      else setTimeout(() => this.layOutHere(id));
    });
  }
  settle(id, result) {
    const asked = this.waiting.get(id);
    this.waiting.delete(id);
    if (asked) asked.resolve(result);
  }
  layOutHere(id) {
    const asked = this.waiting.get(id);
    if (!asked) return;
    try {
      this.settle(id, this.engine(asked.level));
    } catch (error) {
      this.waiting.delete(id);
      asked.reject(error);
    }
  }
  // If there is no worker, or if it fails, makes its pending layouts here as far as possible.
  withoutWorker() {
    this.worker = null;
    this.engine = createLayoutEngine();
    for (const id of [...this.waiting.keys()]) setTimeout(() => this.layOutHere(id));
  }
}
