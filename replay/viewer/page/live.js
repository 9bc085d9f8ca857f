// A recording that still grows: the server says how far it has come, tiles at the end are asked for again, and the
// view goes along when the reader wants that.
import { askJson, embedded } from "./api.js";
import { bounds, state, update } from "./store.js";
import { show, showAll } from "./view.js";

const ASK_AGAIN_MS = 500; // of `api/recording`; the tail is told more often than anybody can read it

/** Listen until the page closes. `timeline` is told from where on its tiles are old. */
export function followRecording(timeline) {
  if (embedded) return null;
  const source = new EventSource("api/live");
  const refresh = throttled(async () => {
    const recording = await askJson("api/recording", state.beside ? { which: "" } : {});
    const [first, before] = bounds(); // only now: the reader may have moved while it was asked for
    const span = state.to - state.from;
    const showsAll = state.from <= first && state.to >= before;
    update({ recording });
    timeline.outdate(before - span * 1e-9);
    if (showsAll && !state.follow) showAll();
    if (state.follow) show(bounds()[1] - span * 0.95, bounds()[1] + span * 0.05);
  });
  source.addEventListener("error", () => update({ error: { message: "the server does not answer: what is shown is what it told before; trying again …" } }));
  source.addEventListener("open", () => {
    if (!state.error) return;
    update({ error: null });
    askAgain(timeline);
  });
  source.addEventListener("grown", refresh);
  source.addEventListener("ready", refresh);
  source.addEventListener("message", refresh);
  return source;
}

/** The server is back: what failed is asked for once more, or the page begins anew where it tells of another recording. */
async function askAgain(timeline) {
  const recording = await askJson("api/recording", state.beside ? { which: "" } : {}).catch(() => null);
  if (recording && recording.path !== state.recording.path && !state.which) {
    location.hash = "";
    location.reload();
  } else if (recording) {
    timeline.outdate(-Infinity);
    update({ recording: state.which ? state.recording : recording, note: "the server answers again" });
  }
}

function throttled(act) {
  let timer = 0;
  let isBusy = false;
  let isWanted = false;
  const run = async () => {
    timer = 0;
    if (isBusy) { isWanted = true; return; }
    isBusy = true;
    await act().catch((error) => update({ note: `not up to date: ${error.message}` }));
    isBusy = false;
    if (isWanted) { isWanted = false; later(); }
  };
  const later = () => { timer ||= setTimeout(run, ASK_AGAIN_MS); };
  return later;
}
