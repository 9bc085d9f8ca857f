// The binary framing of tiles: u32 length, header JSON, then columns of typed arrays, each on an 8-byte border.
// Nothing is decoded: every column is a view into the buffer that came.

const KINDS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f32: Float32Array, f64: Float64Array };

/** buffer → {header, columns: {name: typed array}}. Throws when lengths disagree. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  let offset = aligned(4 + length);
  for (const [name, dtype, count] of header.columns) {
    const Kind = KINDS[dtype];
    if (!Kind) throw new Error(`column ${name} has the unknown type ${dtype}`);
    columns[name] = new Kind(buffer, offset, count);
    offset = aligned(offset + count * Kind.BYTES_PER_ELEMENT);
  }
  return { header, columns };
}

function aligned(offset) {
  return (offset + 7) & ~7;
}
