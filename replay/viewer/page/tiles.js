// A cache of tiles: what a viewport needs is asked for in powers of two, the neighbours ahead of need; while a tile is
// under way a coarser or finer one stands in, so that nothing ever waits for the server.
// It knows neither colours nor the screen.
import { ApiError, askFrame, embedded } from "./api.js";

const MAX_BYTES = 96 * 1024 * 1024;
const MAX_UNDER_WAY = 4;
const ASK_AGAIN_MS = 1000; // after a failure
const COARSER = 12; // levels looked through for a stand-in

export class TileCache {
  /** name: of the question, which `clear` may go along with; changed(): something came. */
  constructor(name, changed) {
    this.name = name;
    this.changed = changed;
    this.tiles = new Map(); // key → {header, columns, from, to, bytes, stale}; insertion order is age of use
    this.underWay = new Map(); // key → AbortController
    this.queue = [];
    this.notBefore = 0;
    this.frame = 0;
    this.bytes = 0;
    this.lastWhole = null;
    this.failure = null;
  }

  /** Forget all: another recording, grouping or filter. */
  clear() {
    for (const controller of this.underWay.values()) controller.abort();
    this.underWay.clear();
    this.tiles.clear();
    this.lastWhole = null;
    this.bytes = 0;
    this.failure = null;
  }

  /** The recording grew from `end`: tiles that reach beyond are asked again, and shown until the new ones are there. */
  outdate(end) {
    for (const tile of this.tiles.values()) if (tile.to > end) tile.stale = true;
  }

  /** Tiles to draw for [from, to), best first to last; asks for what is missing. `query` holds all but from and to. */
  cover(from, to, query, limits) {
    if (embedded) return this.whole(query);
    if (query.alive) return this.coverWhole(from, to, query);
    const level = Math.max(0, Math.ceil(Math.log2(to - from)) - 1);
    const size = 2 ** level;
    const first = Math.floor(from / size);
    const last = Math.floor(to / size);
    const base = JSON.stringify(query);
    const found = new Set();
    const wanted = [];
    for (let index = first; index <= last; index++) {
      if ((index + 1) * size <= limits[0] || index * size > limits[1]) continue;
      const key = keyOf(base, level, index);
      const tile = this.use(key);
      if (!tile || tile.stale) wanted.push(span(key, index, level));
      if (tile) found.add(tile);
      else this.standIns(base, level, index).forEach((one) => found.add(one));
    }
    // neighbours only when nothing else is wanted: a view that zooms leaves them behind before they come
    for (const index of wanted.length || this.isBusy ? [] : [last + 1, first - 1]) {
      if (index * size > limits[1] || (index + 1) * size <= limits[0]) continue;
      const key = keyOf(base, level, index);
      if (!this.tiles.has(key)) wanted.push(span(key, index, level));
    }
    this.ask(wanted, query);
    return [...found].sort((one, other) => other.to - other.from - (one.to - one.from)); // fine ones paint last
  }

  /** One tile over all that is shown: its rows are those that live in it, so tiles cannot stand side by side. */
  coverWhole(from, to, query) {
    const level = Math.max(0, Math.ceil(Math.log2(to - from)));
    const index = Math.floor((from + to) / 2 / 2 ** level - 0.5);
    const key = keyOf(JSON.stringify(query), level, index);
    const tile = this.use(key);
    if (!tile || tile.stale) this.ask([{ key, from: index * 2 ** level, to: (index + 2) * 2 ** level }], query);
    this.lastWhole = tile || this.lastWhole;
    return this.lastWhole ? [this.lastWhole] : [];
  }

  get isBusy() {
    return this.underWay.size > 0;
  }

  whole(query) {
    const key = JSON.stringify([query.life, query.axis, query.group, query.filter]);
    if (!this.tiles.has(key)) {
      this.tiles.set(key, null);
      askFrame(this.name, query).then((frame) => {
        this.tiles.set(key, { ...frame, from: -Infinity, to: Infinity });
        this.changed();
      }, (error) => {
        this.failure = asFailure(error);
        this.changed();
      });
    }
    return [this.tiles.get(key)].filter(Boolean);
  }

  use(key) {
    const tile = this.tiles.get(key);
    if (tile) {
      this.tiles.delete(key);
      this.tiles.set(key, tile);
    }
    return tile;
  }

  standIns(base, level, index) {
    for (let up = 1; up <= COARSER; up++) {
      const tile = this.tiles.get(keyOf(base, level + up, Math.floor(index / 2 ** up)));
      if (tile) return [tile];
    }
    return [index * 2, index * 2 + 1].map((finer) => this.tiles.get(keyOf(base, level - 1, finer))).filter(Boolean);
  }

  ask(wanted, query) {
    const fresh = wanted.filter(({ key }) => !this.underWay.has(key)).map((one) => ({ ...one, query }));
    this.queue = [...this.queue.filter((one) => one.frame === this.frame), ...fresh.map((one) => ({ ...one, frame: this.frame }))];
    this.next();
  }

  /** A new frame begins: what the one before asked for and has not begun is forgotten. */
  beginFrame() {
    this.frame += 1;
  }

  next() {
    if (performance.now() < this.notBefore) return;
    while (this.queue.length && this.underWay.size < MAX_UNDER_WAY) this.fetch(this.queue.shift());
  }

  async fetch({ key, from, to, query }) {
    const controller = new AbortController();
    this.underWay.set(key, controller);
    try {
      const frame = await askFrame(this.name, { ...query, from, to }, controller.signal);
      this.keep(key, { ...frame, from, to, bytes: frame.columns.from?.buffer.byteLength || 32768, stale: false });
      this.failure = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.queue = [];
      this.notBefore = performance.now() + ASK_AGAIN_MS;
      setTimeout(() => this.changed(), ASK_AGAIN_MS + 20);
      this.failure = asFailure(error);
    } finally {
      if (this.underWay.get(key) === controller) this.underWay.delete(key);
    }
    this.next();
    this.changed();
  }

  keep(key, tile) {
    const before = this.tiles.get(key);
    if (before) this.bytes -= before.bytes;
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    this.bytes += tile.bytes;
    for (const [oldest, old] of this.tiles) {
      if (this.bytes <= MAX_BYTES || oldest === key) break;
      this.tiles.delete(oldest);
      this.bytes -= old.bytes;
    }
  }
}

function asFailure(error) {
  return error instanceof ApiError ? error : new ApiError(0, String(error.message || error), "");
}

function span(key, index, level) {
  return { key, from: index * 2 ** level, to: (index + 1) * 2 ** level };
}

function keyOf(base, level, index) {
  return `${level}/${index}/${base}`;
}
