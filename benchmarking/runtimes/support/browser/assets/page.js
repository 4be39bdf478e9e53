// What the measuring process calls, as methods of `benchhouse`. Times are taken here, around the calls themselves.

import { callOf } from "./calls.js";
import { fetchBytes, fetchTensor, onDevice, post } from "./tensors.js";

const memories = [];
WebAssembly.Memory = new Proxy(WebAssembly.Memory, {
  construct(target, settings, newTarget) {
    const memory = Reflect.construct(target, settings, newTarget);
    memories.push(memory);
    return memory;
  },
});

let workers = 0;
globalThis.Worker = new Proxy(Worker, {
  construct(target, settings, newTarget) {
    workers += 1;
    return Reflect.construct(target, settings, newTarget);
  },
});

class Page {
  ort = null;
  sessions = {};
  current = null;
  output = null;
  calls = 0;

  // The library, not yet initialised: that happens with the first session.
  async start({ script, threads, provider }) {
    this.ort = await import(`./ort/${script}`);
    this.provider = provider;
    const { env } = this.ort;
    env.wasm.wasmPaths = new URL("./ort/", location.href).href;
    env.wasm.numThreads = threads;
    if (provider.name === "webgpu") env.webgpu.powerPreference = "high-performance";
    if (provider.name === "webnn") this.network = await networkOf(provider);
    return {
      crossOriginIsolated,
      clockStepMs: Number(clockStep().toFixed(6)),
      ortVersion: env.versions?.web ?? env.versions?.common,
      userAgent: navigator.userAgent,
    };
  }

  async adapter() {
    if (navigator.gpu === undefined) return null;
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    return adapter && described(adapter.info, adapter.features);
  }

  // Where neural networks run that this page hands to the browser: the very context that the sessions get.
  contextTold() {
    return told(this.network);
  }

  // The same of a context that is made for the answer alone.
  async networksOn(deviceType) {
    return told(await networkOf({ deviceType }));
  }

  // `graphs`: name -> {url, external: [{path, url}], onDevice: names of outputs that stay there}.
  async fetch(graphs) {
    this.files = {};
    for (const [name, graph] of Object.entries(graphs)) {
      const external = graph.external.map(async ({ path, url }) => ({ path, data: new Uint8Array(await fetchBytes(url)) }));
      this.files[name] = { ...graph, model: new Uint8Array(await fetchBytes(graph.url)), external: await Promise.all(external) };
    }
  }

  // `dimensions`: the sizes that free dimensions are fixed at, by name; null leaves them free.
  async open(dimensions) {
    this.dimensions = dimensions;
    this.sessions = await this.opened({});
    const { env } = this.ort;
    const device = this.provider.name === "webgpu" ? await env.webgpu.device : null;
    return {
      threads: env.wasm.numThreads,
      workers,
      adapter: device && described(device.adapterInfo, device.features),
    };
  }

  async opened(more) {
    const sessions = {};
    for (const [name, { model, external, onDevice }] of Object.entries(this.files)) {
      sessions[name] = await this.ort.InferenceSession.create(model, {
        executionProviders: [{ ...this.provider, ...(this.network && { context: this.network.context }) }],
        externalData: external,
        graphOptimizationLevel: "all",
        preferredOutputLocation: Object.fromEntries(onDevice.map((output) => [output, "gpu-buffer"])),
        ...(this.dimensions && { freeDimensionOverrides: this.dimensions }),
        ...more,
      });
    }
    return sessions;
  }

  // Put a point's inputs in place.
  async prepare(plan) {
    const inputs = {};
    this.forget();
    const device = plan.onDevice ? await this.ort.env.webgpu.device : null;
    for (const [name, array] of Object.entries(plan.inputs)) {
      const tensor = await fetchTensor(this.ort, array.url, array);
      // The denoising loop's arithmetic reads the latents here.
      inputs[name] = device === null || name === "latents" ? tensor : onDevice(this.ort, device, tensor);
    }
    this.current = callOf(this.ort, this.sessions, plan, inputs, () => this.synced());
  }

  // One timed call. What the last one left is let go of before the clock starts.
  async call() {
    this.forget();
    const marks = [];
    const start = performance.now();
    const output = await this.current.run((name) => marks.push([name, performance.now() - start]));
    const wallMs = performance.now() - start;
    this.output = output;
    this.calls += 1;
    return { number: this.calls, wallMs, marks };
  }

  // The last call's output: arrays are posted to urls, by name.
  async send(number, urls) {
    if (number !== this.calls || this.output === null) throw new Error(`the output of call ${number} is gone`);
    const sent = {};
    for (const [name, url] of Object.entries(urls)) sent[name] = await post(url, this.output.tensors[name]);
    return { arrays: sent, tokens: this.output.tokens ?? null };
  }

  async synced() {
    if (this.provider.name === "webgpu") await (await this.ort.env.webgpu.device).queue.onSubmittedWorkDone();
  }

  forget() {
    this.current?.forget();
    Object.values(this.output?.tensors ?? {}).forEach((tensor) => tensor.dispose());
    this.output = null;
  }

  memory() {
    return { wasmBytes: memories.map((memory) => memory.buffer.byteLength), heapBytes: performance.memory?.usedJSHeapSize ?? null };
  }

  // One more call, in sessions of its own that write a profile; it comes out on the console, graph after graph.
  async profile() {
    this.forget();
    const [own, profiled] = [this.sessions, await this.opened({ enableProfiling: true })];
    this.current.sessions = profiled;
    try {
      const { tensors } = await this.current.run(() => {});
      Object.values(tensors).forEach((tensor) => tensor.dispose());
      this.current.forget();
    } finally {
      this.current.sessions = own;
      for (const [name, session] of Object.entries(profiled)) {
        console.log(`profile of ${name}`);
        session.endProfiling();
        await session.release();
      }
    }
  }

  async close() {
    this.forget();
    for (const session of Object.values(this.sessions)) await session.release();
    this.sessions = {};
  }
}

function described(info, features) {
  const { vendor, architecture, device, description, isFallbackAdapter } = info;
  return { vendor, architecture, device, description, isFallbackAdapter, features: [...features].sort() };
}

async function networkOf({ deviceType }) {
  if (navigator.ml === undefined) return { whyNot: "it has no navigator.ml" };
  try {
    return { context: await navigator.ml.createContext({ deviceType }) };
  } catch (error) {
    return { whyNot: error.message };
  }
}

const told = ({ context, whyNot }) => (context === undefined ? { whyNot } : { accelerated: context.accelerated ?? null });

// The smallest step of the page's clock that was seen, in ms.
function clockStep() {
  let least = Infinity;
  for (let i = 0; i < 100; i += 1) {
    const start = performance.now();
    let next = start;
    while (next === start) next = performance.now();
    least = Math.min(least, next - start);
  }
  return least;
}

globalThis.benchhouse = new Page();
