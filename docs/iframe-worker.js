// Search runs in a worker, and a browser refuses workers to a page that was opened as a file. Then an iframe does the work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const load = (address) =>
        new Promise((loaded, failed) => {
          const script = frame.contentDocument.createElement("script");
          Object.assign(script, { src: address, onload: loaded, onerror: failed });
          frame.contentDocument.body.append(script);
        });
      this.inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
