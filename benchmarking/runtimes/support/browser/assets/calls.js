// Calls made from a bundle's graphs, by its kind: the same work in the same order and with the same marks as the other
// runtimes' calls. Only the call itself is in the timed region.

import { numbers, zeros } from "./tensors.js";

const last = (values) => values[values.length - 1];

class Call {
  constructor(ort, sessions, plan, inputs, synchronize) {
    Object.assign(this, { ort, sessions, plan, inputs, synchronize });
    this.kept = [];
  }

  // Run a graph. Feeds are looked up by their source in the bundle; states are passed by name.
  async step(name, sources, states = {}) {
    const { feeds, fetched } = this.plan.graphs[name];
    const values = { ...states };
    for (const [input, source] of Object.entries(feeds)) values[input] = sources[source] ?? this.inputs[`${name}.${input}`];
    return this.sessions[name].run(values, fetched);
  }

  // Outputs that later graphs of the same call use.
  keep(name, outputs) {
    this.kept.push(...Object.values(outputs));
    return Object.fromEntries(Object.entries(outputs).map(([output, tensor]) => [`${name}.${output}`, tensor]));
  }

  // Release what the call kept on the device.
  release() {
    for (const tensor of this.kept) tensor.dispose();
    this.kept = [];
  }
}

class Forward extends Call {
  async run() {
    const outputs = await this.step("model", {});
    await this.synchronize();
    return { tensors: outputs };
  }
}

// Greedy generation. A token is marked once it has reached the page, as it would the host.
class Generation extends Call {
  states = {};

  async run(mark) {
    const kept = await this.encode(mark);
    let logits = await this.prefill(kept);
    const first = logits;
    const steps = [];
    for (;;) {
      const tokens = greedy(logits);
      steps.push(tokens);
      mark("token");
      if (steps.length === this.plan.newTokens) break;
      const next = await this.decode(this.tokens(tokens), kept);
      if (logits !== first) logits.dispose();
      logits = next;
    }
    this.drop(this.states);
    this.states = {};
    return { tensors: first === logits ? { first } : { first, last: logits }, tokens: steps };
  }

  async encode(mark) {
    if (this.plan.graphs.encoder === undefined) return {};
    const outputs = await this.step("encoder", {});
    await this.synchronize();
    mark(this.plan.encodePhase);
    return this.keep("encoder", outputs);
  }

  // Process tokens, batch x n; returns the next logits.
  async decode(tokens, kept) {
    const graph = this.plan.graphs.decode;
    const outputs = await this.step("decode", { ...kept, tokens }, this.states);
    const previous = this.states;
    this.states = Object.fromEntries(graph.states.map(({ input, output }) => [input, outputs[output]]));
    this.drop(previous);
    return outputs[graph.result];
  }

  begin(outputs = {}) {
    const { states, inputs } = this.plan.graphs.decode;
    const dtypes = Object.fromEntries(inputs.map(({ name, dtype }) => [name, dtype]));
    const shape = (first) => first.map((size) => (size === "batch" ? this.plan.batchSize : size));
    this.states = Object.fromEntries(
      states.map(({ input, first, first_from: from }) => [
        input,
        from === null ? zeros(this.ort, dtypes[input], shape(first)) : outputs[from],
      ]),
    );
  }

  drop(states) {
    for (const tensor of Object.values(states)) tensor.dispose();
  }

  tokens(values) {
    const { type } = this.inputs.prompt;
    const data = type === "int64" ? BigInt64Array.from(values, BigInt) : Int32Array.from(values);
    return new this.ort.Tensor(type, data, [values.length, 1]);
  }
}

class Decoder extends Generation {
  async prefill(kept) {
    const { prefill } = this.plan.graphs;
    if (prefill === undefined) {
      this.begin();
      return this.decode(this.inputs.prompt, kept);
    }
    const outputs = await this.step("prefill", { ...kept, tokens: this.inputs.prompt });
    this.begin(outputs);
    return outputs[prefill.result];
  }
}

class EncoderDecoder extends Generation {
  async prefill(kept) {
    Object.assign(kept, this.keep("cross", await this.step("cross", kept)));
    this.begin();
    return this.decode(this.inputs.prompt, kept);
  }
}

// The denoising loop: one call of the model per step, with the step's arithmetic in the page.
class Denoiser extends Call {
  async run(mark) {
    const { result } = this.plan.graphs.model;
    let latents = this.inputs.latents;
    for (const [index, { keep, add }] of this.plan.steps.entries()) {
      const outputs = await this.step("model", { latents, timestep: this.inputs[`timestep.${index}`] });
      latents = this.denoised(latents, outputs[result], Math.fround(keep), Math.fround(add));
      outputs[result].dispose();
      mark("step");
    }
    return { tensors: { latents } };
  }

  denoised(latents, noise, keep, add) {
    const from = numbers(latents);
    const by = numbers(noise);
    const to = new from.constructor(from.length);
    for (let i = 0; i < to.length; i += 1) to[i] = Math.fround(from[i] * keep) + Math.fround(by[i] * add);
    return new this.ort.Tensor(latents.type, to, latents.dims);
  }
}

// The first of the largest logits of the last position, for each sequence.
function greedy(logits) {
  const data = numbers(logits);
  const { dims } = logits;
  const vocabulary = last(dims);
  const perSequence = data.length / dims[0];
  return Array.from({ length: dims[0] }, (_, sequence) => {
    const end = (sequence + 1) * perSequence;
    const start = end - vocabulary;
    let best = start;
    for (let i = start + 1; i < end; i += 1) if (data[i] > data[best]) best = i;
    return best - start;
  });
}

const KINDS = { forward: Forward, decoder: Decoder, "encoder-decoder": EncoderDecoder, denoiser: Denoiser };

export function callOf(ort, sessions, plan, inputs, synchronize) {
  return new KINDS[plan.kind](ort, sessions, plan, inputs, synchronize);
}
