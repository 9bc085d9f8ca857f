// Which slice lies under a place of the timeline. It draws nothing and asks nothing.
import { laneOf, lanes } from "./lanes.js";
import { state } from "./store.js";
import { KINDS } from "./theme.js";
import { plotWidth } from "./view.js";

/** [{from, to}] of a row in these tiles, of the recording that inspectors tell of, in order of time. */
export function slicesOf(tiles, row) {
  const lane = lanes().find((one) => one.which === state.which) ?? lanes()[0];
  return tiles.flatMap((tile) => {
    const index = laneOf(tile) === lane ? tile.header.rows.findIndex((one) => one.row === row) : -1;
    const { row: rows, from, to } = tile.columns;
    return index < 0 ? [] : [...rows.keys()].filter((i) => rows[i] === index).map((i) => ({ from: from[i], to: to[i] }));
  }).sort((one, other) => one.from - other.from);
}

/** {kind, from, to, tokens, isMerged, count} of the finest tile that has one there; null. */
export function sliceAt(tiles, row, value, lane) {
  const reach = (state.to - state.from) / plotWidth();
  for (const tile of [...tiles].reverse()) {
    const index = tile.header.rows.findIndex((one) => one.row === row);
    if (index < 0 || laneOf(tile) !== lane || value < tile.from || value >= tile.to) continue;
    const { row: rows, kind, from, to, tokens, flags, count } = tile.columns;
    for (let i = 0; i < rows.length; i++) {
      if (rows[i] === index && from[i] <= value && Math.max(to[i], from[i] + reach) > value) {
        return { kind: KINDS[kind[i]].name, from: from[i], to: to[i], tokens: tokens[i], isMerged: Boolean(flags[i] & 1), count: count?.[i] ?? 1 };
      }
    }
  }
  return null;
}
