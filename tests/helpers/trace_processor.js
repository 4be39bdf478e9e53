// Gives requests (stdin) to Perfetto's trace processor and writes its answers to stdout, both in its own protocol.
// argv[2] is the folder of Perfetto's UI. Its engine is a worker of a browser: what it needs of one is made here, in a
// context without `process`, with which it would refuse to run.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const read = (name) => fs.readFileSync(path.join(process.argv[2], path.basename(name)));

class XMLHttpRequest {
  open(method, url) {
    this.url = url;
  }
  send() {
    this.response = read(this.url);
  }
}

process.on("uncaughtException", (error) => {
  process.stderr.write(`${error.name}: ${error.message}`.slice(0, 1000)); // not the engine's line, which is all of it
  process.exit(1);
});
const worker = vm.createContext({
  ...{ TextDecoder, URL, XMLHttpRequest, performance },
  ...{ WorkerGlobalScope: class {}, console: { error() {}, log() {}, warn() {} }, location: { href: "http://localhost/" } },
});
const { Uint8Array: Bytes } = vm.runInContext("self = globalThis", worker);
vm.runInContext(read("engine_bundle.js").toString(), worker);

const answers = [];
const port = { postMessage: (bytes) => answers.push(Buffer.from(bytes)) };
worker.onmessage({ data: port });
setTimeout(() => {
  // What it promised itself while it loaded is kept by now.
  port.onmessage({ data: new Bytes(fs.readFileSync(0)) });
  process.stdout.write(Buffer.concat(answers), () => process.exit(0));
});
