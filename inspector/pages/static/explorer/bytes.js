// Packed text back to numbers: base64, then deflate, then bytes of the same rank side by side (see packing.py).

/** @param {string} text */
async function inflated(text) {
  const raw = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter();
  const written = writer.write(raw).then(() => writer.close());
  const [whole] = await Promise.all([new Response(stream.readable).arrayBuffer(), written]);
  return new Uint8Array(whole);
}

/** The bytes of numbers of a size, put back into their order. @param {Uint8Array} planes @param {number} size */
function joined(planes, size) {
  const count = planes.length / size, bytes = new Uint8Array(planes.length);
  for (let rank = 0; rank < size; rank++) {
    for (let i = 0, from = rank * count; i < count; i++) bytes[i * size + rank] = planes[from + i];
  }
  return bytes.buffer;
}

/** Packed bytes. @param {string} text */
export const unpackBytes = text => inflated(text);

/** Packed numbers of 4 or 8 bytes. @param {string} text @param {typeof Float32Array|typeof Float64Array} [Kind] */
export const unpackFloats = async (text, Kind = Float32Array) =>
  new Kind(joined(await inflated(text), Kind.BYTES_PER_ELEMENT));

/** Packed halves, as float32: sign, exponent and fraction put where a float32 has them (IEEE 754). @param {string} text */
export async function unpackHalves(text) {
  const planes = await inflated(text), count = planes.length / 2;
  const bits = new Uint32Array(count), found = new Float32Array(bits.buffer);
  for (let i = 0; i < count; i++) {
    const high = planes[count + i], exponent = high >> 2 & 31, fraction = (high & 3) << 8 | planes[i];
    if (exponent === 0) found[i] = (high & 128 ? -1 : 1) * fraction * 2 ** -24;
    else bits[i] = high >> 7 << 31 | (exponent === 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  }
  return found;
}
