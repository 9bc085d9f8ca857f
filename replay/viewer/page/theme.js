// Colours and shapes: Okabe and Ito's palette, told apart by the colour-blind, and a pattern per kind beside it, so
// that a print in grey can be read too. The same table draws the canvas, the legend and the SVG.
import { state } from "./store.js";

// Numbers as in the tiles' column `kind`. `top` and `bottom` are shares of the row's height.
export const KINDS = [
  { name: "queued", light: "#8a8f98", dark: "#7d8590", pattern: "dotted", top: 0.62, bottom: 0.86 },
  { name: "prefill", light: "#d55e00", dark: "#e8833a", pattern: "diagonal", top: 0.08, bottom: 0.92 },
  { name: "decode", light: "#0072b2", dark: "#4aa3df", pattern: "solid", top: 0.2, bottom: 0.8 },
  { name: "preempted", light: "#b0307c", dark: "#e07ab0", pattern: "hollow", top: 0.2, bottom: 0.8 },
  { name: "swapped", light: "#8c7400", dark: "#f0e442", pattern: "cross", top: 0.2, bottom: 0.8 },
  { name: "finished", light: "#00785a", dark: "#23c498", pattern: "tick", top: 0.08, bottom: 0.92 },
  { name: "failed", light: "#c00020", dark: "#ff6b6b", pattern: "tick", top: 0, bottom: 1 },
];

export const STRIP_COLOURS = { light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c7400", "#56b4e9"], dark: ["#56b4e9", "#e69f00", "#23c498", "#e07ab0", "#f0e442", "#9ecae1"] };

const SURFACES = {
  light: { back: "#ffffff", gutter: "#f6f7f9", band: "#f1f3f6", line: "#d9dde3", text: "#1d2229", faint: "#5b6470", chosen: "#ffbf00", mark: "#b30059", area: "rgba(0,114,178,0.12)", arrow: "#444b55" },
  dark: { back: "#14171c", gutter: "#1a1e24", band: "#1c2128", line: "#333a44", text: "#e8ebef", faint: "#a0a8b3", chosen: "#ffcf33", mark: "#ff7ab8", area: "rgba(86,180,233,0.2)", arrow: "#c3cad3" },
};

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark": the reader's choice, else the system's. */
export function scheme() {
  return state.theme || (systemIsDark.matches ? "dark" : "light");
}

export function colours() {
  return SURFACES[scheme()];
}

export function kindColour(kind) {
  return (KINDS[kind] || KINDS[0])[scheme()];
}

/** Call `changed` when the system turns light or dark. */
export function onSchemeChange(changed) {
  systemIsDark.addEventListener("change", changed);
}
