// The interface for the measuring process, as methods of `benchhouse`. Times are taken here, around the calls.

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

  // Load the library. It is initialised with the first session.
  async start({ script, threads, provider }) {
    this.ort = await import(`./ort/${script}`);
    this.provider = provider;
    const { env } = this.ort;
    env.wasm.wasmPaths = new URL("./ort/", location.href).href;
    env.wasm.numThreads = threads;
    if (provider.name === "webgpu") env.webgpu.powerPreference = "high-performance";
    if (provider.name === "webnn") this.network = await createContext(provider);
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
    return adapter && adapterInfo(adapter.info, adapter.features);
  }

  // Where the browser runs this page's neural networks: the context that the sessions use.
  contextReport() {
    return contextInfo(this.network);
  }

  // The same for a context created only for this query.
  async queryContext(deviceType) {
    return contextInfo(await createContext({ deviceType }));
  }

  // `graphs`: name -> {url, external: [{path, url}], onDevice: names of outputs that stay there}.
  async fetch(graphs) {
    this.files = {};
    for (const [name, graph] of Object.entries(graphs)) {
      const external = graph.external.map(async ({ path, url }) => ({ path, data: new Uint8Array(await fetchBytes(url)) }));
      this.files[name] = { ...graph, model: new Uint8Array(await fetchBytes(graph.url)), external: await Promise.all(external) };
    }
  }

  // `dimensions`: sizes at which free dimensions are fixed, by name; null leaves them free.
  async open(dimensions) {
    this.dimensions = dimensions;
    this.sessions = await this.createSessions({});
    const { env } = this.ort;
    const device = this.provider.name === "webgpu" ? await env.webgpu.device : null;
    return {
      threads: env.wasm.numThreads,
      workers,
      adapter: device && adapterInfo(device.adapterInfo, device.features),
    };
  }

  async createSessions(options) {
    const sessions = {};
    for (const [name, { model, external, onDevice }] of Object.entries(this.files)) {
      sessions[name] = await this.ort.InferenceSession.create(model, {
        executionProviders: [{ ...this.provider, ...(this.network && { context: this.network.context }) }],
        externalData: external,
        graphOptimizationLevel: "all",
        preferredOutputLocation: Object.fromEntries(onDevice.map((output) => [output, "gpu-buffer"])),
        ...(this.dimensions && { freeDimensionOverrides: this.dimensions }),
        ...options,
      });
    }
    return sessions;
  }

  // Place a point's inputs.
  async prepare(plan) {
    const inputs = {};
    this.release();
    const device = plan.onDevice ? await this.ort.env.webgpu.device : null;
    for (const [name, array] of Object.entries(plan.inputs)) {
      const tensor = await fetchTensor(this.ort, array.url, array);
      // The denoising loop's arithmetic reads the latents here.
      inputs[name] = device === null || name === "latents" ? tensor : onDevice(this.ort, device, tensor);
    }
    this.current = callOf(this.ort, this.sessions, plan, inputs, () => this.synchronize());
  }

  // One timed call. The last call's output is released before the clock starts.
  async call() {
    this.release();
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

  async synchronize() {
    if (this.provider.name === "webgpu") await (await this.ort.env.webgpu.device).queue.onSubmittedWorkDone();
  }

  // Release what the last call and its output hold.
  release() {
    this.current?.release();
    Object.values(this.output?.tensors ?? {}).forEach((tensor) => tensor.dispose());
    this.output = null;
  }

  memory() {
    return { wasmBytes: memories.map((memory) => memory.buffer.byteLength), heapBytes: performance.memory?.usedJSHeapSize ?? null };
  }

  // One additional call in separate sessions that write a profile to the console, graph by graph.
  async profile() {
    this.release();
    const [sessions, profiled] = [this.sessions, await this.createSessions({ enableProfiling: true })];
    this.current.sessions = profiled;
    try {
      const { tensors } = await this.current.run(() => {});
      Object.values(tensors).forEach((tensor) => tensor.dispose());
      this.current.release();
    } finally {
      this.current.sessions = sessions;
      for (const [name, session] of Object.entries(profiled)) {
        console.log(`profile of ${name}`);
        session.endProfiling();
        await session.release();
      }
    }
  }

  async close() {
    this.release();
    for (const session of Object.values(this.sessions)) await session.release();
    this.sessions = {};
  }
}

function adapterInfo(info, features) {
  const { vendor, architecture, device, description, isFallbackAdapter } = info;
  return { vendor, architecture, device, description, isFallbackAdapter, features: [...features].sort() };
}

async function createContext({ deviceType }) {
  if (navigator.ml === undefined) return { whyNot: "the browser has no navigator.ml" };
  try {
    return { context: await navigator.ml.createContext({ deviceType }) };
  } catch (error) {
    return { whyNot: error.message };
  }
}

const contextInfo = ({ context, whyNot }) => (context === undefined ? { whyNot } : { accelerated: context.accelerated ?? null });

// The smallest observed step of the page's clock, in ms.
function clockStep() {
  let smallest = Infinity;
  for (let i = 0; i < 100; i += 1) {
    const start = performance.now();
    let next = start;
    while (next === start) next = performance.now();
    smallest = Math.min(smallest, next - start);
  }
  return smallest;
}

globalThis.benchhouse = new Page();
