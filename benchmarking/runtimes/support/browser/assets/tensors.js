// Arrays between the server and the page: raw bytes, little-endian, in row-major order; never JSON.

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  // ONNX Runtime Web takes float16 bits as integers if the browser has no float16 array.
  float16: globalThis.Float16Array ?? Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

export function arrayOf(dtype) {
  const array = ARRAYS[dtype];
  if (array === undefined) throw new Error(`ONNX Runtime Web does not support tensors of ${dtype}`);
  return array;
}

// The numbers of a tensor on the host. Without float16 arrays they are bits, in another order than the numbers.
export function numbers({ type, data }) {
  if (type === "float16" && data instanceof Uint16Array) {
    throw new Error("this browser has no Float16Array, which the loop of a float16 model needs: update the browser");
  }
  return data;
}

const elements = (shape) => shape.reduce((product, size) => product * size, 1);

export const zeros = (ort, dtype, shape) => new ort.Tensor(dtype, new (arrayOf(dtype))(elements(shape)), shape);

export async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.split("/").pop()}: the server returned ${response.status}`);
  return response.arrayBuffer();
}

export async function fetchTensor(ort, url, { dtype, shape }) {
  return new ort.Tensor(dtype, new (arrayOf(dtype))(await fetchBytes(url)), shape);
}

// Posts the bytes to the server; returns what the caller needs to read them.
export async function post(url, tensor) {
  const data = await tensor.getData();
  const body = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const response = await fetch(url, { method: "POST", body });
  if (!response.ok) throw new Error(`an output of ${data.byteLength} bytes: the server returned ${response.status}`);
  return { dtype: tensor.type, shape: [...tensor.dims] };
}

// A copy in a GPU buffer, whose size is a multiple of 16 bytes as its copies require.
export function onDevice(ort, device, tensor) {
  const { data, type, dims } = tensor;
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const size = Math.ceil(data.byteLength / 16) * 16;
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST, mappedAtCreation: true });
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  new Uint8Array(buffer.getMappedRange()).set(bytes);
  buffer.unmap();
  return ort.Tensor.fromGpuBuffer(buffer, { dataType: type, dims, dispose: () => buffer.destroy() });
}
