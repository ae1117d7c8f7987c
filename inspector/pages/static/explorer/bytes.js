// Packed text back to numbers: base64, then deflate, then bytes of the same rank side by side (see packing.py).

/** @param {string} text */
async function inflated(text) {
  const raw = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The bytes of numbers of a size, put back into their order. @param {Uint8Array} planes @param {number} size */
function joined(planes, size) {
  const count = planes.length / size, bytes = new Uint8Array(planes.length);
  for (let rank = 0; rank < size; rank++) {
    for (let i = 0, from = rank * count; i < count; i++) bytes[i * size + rank] = planes[from + i];
  }
  return bytes.buffer;
}

/** @type {Float32Array|undefined} */
let table;

/** Every half as a number: 65,536 of them are faster looked up than worked out. */
function halfTable() {
  if (table) return table;
  table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
    table[bits] = sign * (exponent === 0 ? fraction * 2 ** -24
      : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
}

/** Packed bytes. @param {string} text */
export const unpackBytes = text => inflated(text);

/** Packed numbers of 4 or 8 bytes. @param {string} text @param {typeof Float32Array|typeof Float64Array} [Kind] */
export const unpackFloats = async (text, Kind = Float32Array) => new Kind(joined(await inflated(text), Kind.BYTES_PER_ELEMENT));

/** Packed halves, as float32. @param {string} text @param {number} [unit] what each is multiplied by */
export async function unpackHalves(text, unit = 1) {
  const planes = await inflated(text), count = planes.length / 2, values = halfTable(), found = new Float32Array(count);
  for (let i = 0; i < count; i++) found[i] = values[planes[count + i] << 8 | planes[i]] * unit;
  return found;
}
