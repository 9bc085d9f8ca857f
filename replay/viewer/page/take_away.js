// What a reader takes away: the link, the command, the view as SVG or PNG.
import { askJson } from "./api.js";
import { svgOf } from "./drawing.js";
import { hash } from "./link.js";
import { state, update } from "./store.js";
import { colours } from "./theme.js";

export async function copyLink() {
  await copy(`${location.origin}${location.pathname}${hash()}`, "the link to this view");
}

/** The `reprise` command that leads to what is selected. */
export async function copyCommand() {
  const [kind, number] = selected();
  try {
    const { command } = await askJson("api/command", { kind, life: state.life, number });
    await copy(command, command);
  } catch (error) {
    update({ note: error.message });
  }
}

/** What the panel is about, else the selected request, else the recording. */
function selected() {
  if (state.panel === "compare" && state.recording.beside) return ["compare", 0];
  if (state.panel === "blocks" && state.block !== null) return ["block", state.block];
  if (state.panel === "step" && state.step !== null) return ["step", state.step];
  return state.request === null ? ["recording", 0] : ["request", state.request];
}

async function copy(text, told) {
  try {
    await navigator.clipboard.writeText(text);
    update({ note: `copied: ${told}` });
  } catch {
    update({ note: text }); // the browser refuses the clipboard: it stands there to be copied by hand
  }
}

export { svgOf };

export function saveSvg(timeline) {
  save(new Blob([svgOf(timeline)], { type: "image/svg+xml" }), "svg");
}

export function savePng(timeline) {
  const whole = document.createElement("canvas");
  whole.width = timeline.canvas.width;
  whole.height = timeline.canvas.height;
  const context = whole.getContext("2d");
  context.fillStyle = colours().back;
  context.fillRect(0, 0, whole.width, whole.height);
  context.drawImage(timeline.canvas, 0, 0);
  whole.toBlob((blob) => save(blob, "png"));
}

function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${state.recording.name.replace(/[^\w.-]+/g, "_").slice(0, 60)}-${state.axis}-${Math.round(state.from)}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
