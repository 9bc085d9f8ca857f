// Whose slices stand in a row: those of one recording over its whole height, or two recordings' in its halves.
// It knows neither tiles nor colours.
import { state } from "./store.js";

const ALONE = [{ side: "", which: "", top: 0, height: 1 }];
const BESIDE = [{ side: "left", which: "", name: "A", top: 0, height: 0.5 }, { side: "right", which: "other", name: "B", top: 0.5, height: 0.5 }];

/** From top to bottom: {side, which, name, top and height as shares of the row}. */
export function lanes() {
  return state.beside ? BESIDE : ALONE;
}

/** The lane that a tile's slices lie in. */
export function laneOf(tile) {
  return tile.header.side === "right" ? BESIDE[1] : tile.header.side === "left" ? BESIDE[0] : ALONE[0];
}

/** The lane under a place within a row, 0 to 1 from its top. */
export function laneAt(share) {
  return lanes().findLast((lane) => share >= lane.top) ?? lanes()[0];
}

/** What a row is in a lane: {request, reason, end_ns}; null where that recording has nobody there. */
export function partyOf(row, lane) {
  if (lane.which === "other") return row.other ?? null;
  return row.request === null ? null : row;
}

/** The row is that of the chosen request. */
export function isChosen(row) {
  if (state.request === null) return false;
  return state.beside && state.which === "other" ? row.other?.request === state.request : row.request === state.request;
}
