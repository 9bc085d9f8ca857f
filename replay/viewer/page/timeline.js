// The timeline: one canvas, drawn when something changed, from whatever tiles are there. Input never waits for it.
import { annotations, spanOf } from "./annotations.js";
import { AXIS_HEIGHT, drawArea, drawArrows, drawAxis, drawCursor, drawGrid, drawMarks, drawOwnMarks, gridLines, MARKS_HEIGHT } from "./overlay.js";
import { sliceAt } from "./hits.js";
import { laneAt, laneOf, lanes, partyOf } from "./lanes.js";
import { Raster } from "./raster.js";
import { pixel } from "./patterns.js";
import { bandsOf, drawRowNames, KnownRows } from "./rows.js";
import { bounds, state, subscribe } from "./store.js";
import { drawStrips, STRIP_HEIGHT, STRIP_NAMES, STRIPS, valuesAt } from "./strips.js";
import { colours, KINDS, onSchemeChange } from "./theme.js";
import { TileCache } from "./tiles.js";
import { getNumRows, GUTTER, plotWidth, rowAt, rowsShown, setNumRows, size, valueAt, xOf, yOf } from "./view.js";

const CHUNK = 64; // rows a tile holds
const TILE_PX = 768; // pixels told apart in a tile, of which one and a half lie in view
const STRIPS_TOP = AXIS_HEIGHT + MARKS_HEIGHT;

export class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.raster = new Raster();
    this.stripsRaster = new Raster();
    this.known = new KnownRows();
    this.marks = [];
    this.arrows = [];
    this.otherArrows = [];
    this.markPlaces = [];
    this.stepSpan = null; // where the inspected step lies on the axis
    this.hover = null;
    this.firstPaint = null; // ms after the navigation: when the first slices stood there
    this.frames = []; // lengths of the last frames' drawing, ms: the benchmark reads them
    const redraw = () => this.redraw();
    const caches = ["api/timeline", "api/strips", "api/beside/strips"].map((name) => new TileCache(name, redraw));
    [this.slices, this.counters, this.otherCounters] = caches;
    this.stop = subscribe((patch) => this.onChange(patch));
    onSchemeChange(redraw);
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.resize();
    this.loadMarks();
    this.locateStep();
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    this.ratio = devicePixelRatio || 1;
    size.width = clientWidth;
    size.height = clientHeight;
    size.top = STRIPS_TOP + STRIPS.length * STRIP_HEIGHT;
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.canvas.style.width = `${clientWidth}px`;
    this.canvas.style.height = `${clientHeight}px`;
    const width = Math.round(plotWidth() * this.ratio);
    this.raster.resize(width, Math.max(1, Math.round((clientHeight - size.top) * this.ratio)));
    this.stripsRaster.resize(width, Math.round((size.top - STRIPS_TOP) * this.ratio), this.ratio);
    this.draw(); // at once: another size has emptied the canvas, and the browser paints next
  }

  onChange(patch) {
    const isOther = "life" in patch || "beside" in patch || ("which" in patch && !state.beside);
    if (isOther || ["group", "filter", "alive"].some((name) => name in patch)) {
      this.slices.clear();
      this.slices.name = state.beside ? "api/beside/timeline" : "api/timeline";
      this.known.clear();
    }
    if (isOther) for (const cache of [this.counters, this.otherCounters]) cache.clear();
    if (isOther || "axis" in patch || "recording" in patch) this.loadMarks();
    if ("step" in patch || "axis" in patch) this.locateStep();
    this.redraw();
  }

  /** The recording grew beyond `end` of this axis. Newcomers move the rows of all groups behind their own. */
  outdate(end) {
    this.slices.outdate(state.group === "none" && !state.beside ? end : -Infinity);
    this.counters.outdate(end);
    this.otherCounters.outdate(-Infinity);
    this.loadMarks();
    this.redraw();
  }

  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const begun = performance.now();
      this.draw();
      this.frames.push(performance.now() - begun);
      if (this.shown?.length) this.firstPaint ??= performance.now();
      this.frames.splice(0, this.frames.length - 600);
    });
  }

  draw() {
    if (!state.recording) return;
    const { context, ratio } = this;
    this.slices.beginFrame();
    this.shown = lanes().flatMap((lane) => this.sliceTiles(lane));
    [this.shownCounters, this.shownOthers] = this.counterTiles();
    const { back, line } = colours();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = back;
    context.fillRect(0, 0, size.width, STRIPS_TOP);
    drawGrid(context, STRIPS_TOP);
    const lines = gridLines().map((x) => Math.round((x - GUTTER) * ratio));
    drawStrips(context, this.stripsRaster, this.shownCounters, this.shownOthers, STRIPS_TOP, lines);
    this.picture(pixel(back), lines, pixel(line));
    this.overlays();
  }

  /** The rows: written as pixels, and put there in one go. */
  picture(back, lines, line) {
    const { ratio, raster, known, shown } = this;
    const scale = (plotWidth() / (state.to - state.from)) * ratio;
    if (state.alive) known.clear();
    for (const tile of shown) known.learn(tile, Boolean(state.alive));
    raster.begin(back, bandsOf(known, ratio), lines, line);
    const widest = Math.max(0, ...shown.map((tile) => tile.to - tile.from)); // coarser ones stand in, and come first
    for (const tile of shown) raster.paint(tile, { from: state.from, scale, row: state.row, rowHeight: state.rowHeight * ratio, covers: tile.to - tile.from < widest });
    this.context.putImageData(raster.image, Math.round(GUTTER * ratio), Math.round(size.top * ratio));
  }

  overlays() {
    const { context } = this;
    this.markPlaces = drawMarks(context, this.marks);
    context.save();
    context.beginPath();
    context.rect(GUTTER, size.top, plotWidth(), size.height - size.top);
    context.clip();
    const arrows = [[this.arrows, this.known.rowOf], [this.otherArrows, this.known.rowOfOther]];
    this.numArrowsLeftOut = lanes().reduce((sum, lane, index) => sum + drawArrows(context, ...arrows[index], lane), 0);
    drawArea(context);
    context.restore();
    drawRowNames(context, this.known);
    if (state.panel === "step" && this.stepSpan) drawCursor(context, this.stepSpan);
    if (this.hover) drawCursor(context, [this.hover.value, this.hover.value]);
    drawAxis(context);
    drawOwnMarks(context);
  }

  sliceTiles(lane) {
    const width = TILE_PX * (this.ratio > 1 ? 2 : 1);
    const first = Math.floor(state.row / CHUNK);
    const last = Math.floor((state.row + rowsShown()) / CHUNK);
    const tiles = [];
    for (let chunk = first; chunk <= last && (chunk === first || chunk * CHUNK < getNumRows()); chunk++) {
      const query = { life: state.life, axis: state.axis, group: state.group, filter: state.filter, alive: state.alive || "", side: lane.side, width, rows: `${chunk * CHUNK},${CHUNK}` };
      tiles.push(...this.slices.cover(state.from, state.to, query, bounds()));
    }
    if (tiles.length) setNumRows(Math.max(...tiles.map((tile) => tile.header.num_rows)));
    return tiles;
  }

  /** Of the recording shown, and of the one beside it. */
  counterTiles() {
    const query = { life: state.life, axis: state.axis, width: 512, names: STRIP_NAMES, which: state.beside ? "" : undefined };
    const caches = state.beside ? [this.counters, this.otherCounters] : [this.counters];
    for (const cache of caches) cache.beginFrame();
    return caches.map((cache) => cache.cover(state.from, state.to, query, bounds()));
  }

  async loadMarks() {
    const { life, axis } = state;
    const found = await annotations(life, axis);
    if (life === state.life && axis === state.axis) Object.assign(this, found);
    this.redraw();
  }

  async locateStep() {
    const { step, axis } = state;
    const span = await spanOf(step, axis);
    if (step === state.step && axis === state.axis) this.stepSpan = span;
    this.redraw();
  }

  markAt(x) {
    const place = this.markPlaces.find((one) => Math.abs(one.x + 6 - x) < 9);
    return { mark: place?.mark, numMarks: place?.count };
  }

  /** What lies under a point: {value, row, request, slice, mark, counters}. */
  at(x, y) {
    const value = valueAt(x);
    if (y < STRIPS_TOP) return { value, ...this.markAt(x), isAxis: true };
    if (y < size.top) {
      const strip = STRIPS[Math.floor((y - STRIPS_TOP) / STRIP_HEIGHT)];
      return { value, counters: valuesAt(this.shownCounters || [], strip, value), others: valuesAt(this.shownOthers || [], strip, value) };
    }
    const row = rowAt(y);
    const request = this.known.byRow.get(row);
    const lane = laneAt((y - yOf(row)) / state.rowHeight);
    return { value, row, request, lane, party: request && partyOf(request, lane), slice: request && x >= GUTTER ? sliceAt(this.shown || [], row, value, lane) : null };
  }
}
