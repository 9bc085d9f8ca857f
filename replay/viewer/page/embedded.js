// Answers that came along in a single file: an overview as it is, inspectors in compressed packs that are opened when one
// of theirs is asked for. Where a server answers there is none of this.
import { ApiError } from "./failures.js";

const element = document.getElementById("reprise-data");
const MAX_OPEN = 6; // packs kept unpacked
const RANGES = new Set(["from", "to", "width", "rows", "names", "first", "limit"]);

/** {answers: {path: [{query, json | gzip}]}, packs: [{paths, gzip}], left_out}; null where a server answers. */
export const embedded = element ? JSON.parse(element.textContent) : null;

const packOf = new Map((embedded?.packs ?? []).flatMap((pack) => pack.paths.map((path) => [path, pack])));
const opened = new Map(); // pack → promise of {path: body}; insertion order is age of use

export async function jsonFromFile(name, query) {
  if (query?.contents) throw leftOut(); // the answer that came along says nothing of them
  if (packOf.has(name)) return JSON.parse(new TextDecoder().decode(await fromPack(name)));
  return fromFile(name, query).json;
}

/** Whether an inspector of that path came along. */
export function hasAnswer(name) {
  return packOf.has(name);
}

/** The bytes of a binary answer. */
export async function frameFromFile(name, query) {
  return packOf.has(name) ? fromPack(name) : unzipped(fromFile(name, query).gzip);
}

export function leftOut() {
  return new ApiError(404, "left out of this file: open the recording itself with `reprise view` to see it", "");
}

/** Of the answers kept for the path the one whose own query agrees with all that is asked about, apart from ranges. */
function fromFile(name, query = {}) {
  const kept = embedded.answers[name] || [];
  const agrees = (one) => Object.entries(one.query || {}).every(([key, value]) => RANGES.has(key) || String(query[key] ?? value) === String(value));
  const found = kept.find(agrees);
  if (!found) throw leftOut();
  return found;
}

async function fromPack(name) {
  const pack = packOf.get(name);
  const bodies = opened.get(pack) ?? unpacked(pack);
  opened.delete(pack);
  opened.set(pack, bodies);
  if (opened.size > MAX_OPEN) opened.delete(opened.keys().next().value);
  return (await bodies).get(name);
}

/** u32 length of the header, the header [[path, kind, length], …], then the bodies. */
async function unpacked(pack) {
  const whole = await unzipped(pack.gzip);
  let offset = 4 + new DataView(whole).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, offset - 4)));
  return new Map(header.map(([path, , length]) => {
    offset += length;
    return [path, whole.slice(offset - length, offset)];
  }));
}

function unzipped(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
