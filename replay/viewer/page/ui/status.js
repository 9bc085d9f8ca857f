// The line at the bottom: how far the index is, what is merged, cut or left out, what failed. And the tooltip.
import { embedded } from "../api.js";
import { duration, grouped, markWords, visible } from "../format.js";
import { html } from "../preact.js";
import { life, state } from "../store.js";
import { size } from "../view.js";

/** The truth about what is shown, for eyes and for screen readers. */
export function Status({ timeline }) {
  const { index, notes, is_live: isLive } = state.recording;
  const one = life();
  const parts = [`${grouped(one?.num_requests ?? 0)} requests, ${grouped(one?.num_steps ?? 0)} steps`];
  if (!one?.num_requests && index.state !== "building") parts.push(isLive ? "nothing has arrived yet" : "nothing arrived in it");
  else parts.push(state.axis === "time" ? `${duration(state.to - state.from)} in view` : `${grouped(Math.round(state.to - state.from))} steps in view`);
  if (index.state === "building") parts.push(progressOf(index));
  if (index.state === "failed") parts.push(`the index failed: ${visible(index.error, 300)}`);
  if (isLive) parts.push("live");
  if (timeline?.shown?.some((tile) => tile.header.merged)) parts.push("slices narrower than a pixel are merged: zoom in");
  if (timeline?.numArrowsLeftOut) parts.push(`${timeline.numArrowsLeftOut} arrows are left out: zoom in`);
  if (timeline?.isCut) parts.push("marks or arrows are cut at 5,000");
  for (const note of embedded?.left_out ?? []) parts.push(`left out: ${visible(note, 200)}`);
  for (const note of (notes ?? []).slice(0, 3)) parts.push(visible(note, 200));
  if (notes?.length > 3) parts.push(`and ${notes.length - 3} more such notes: reprise show --fsck tells all`);
  const failure = timeline?.slices.failure || timeline?.counters.failure;
  return html`<p>${index.state === "building" && index.fraction !== null ? html`<progress max="1" value=${index.fraction} aria-label="indexed"></progress> ` : null}${parts.join(" · ")}${timeline?.slices.isBusy ? " · …" : ""}</p>
    ${state.error ? html`<p class="failure" role="alert">${state.error.message}</p>` : failure ? html`<p class="failure" role="alert">${failure.message}</p>` : null}
    <p role="status" aria-live="polite" class="note">${state.note}</p>`;
}

/** How far the index is: what is there already is shown, and can be used. */
export function progressOf(index) {
  const share = index.fraction === null ? "" : `${Math.floor(index.fraction * 100)} %, `;
  return `the index is being built: ${share}${grouped(index.num_entries ?? 0)} entries so far`;
}

/** What lies under the cursor. Placed through the CSSOM: the policy forbids inline styles, not scripts that set them. */
export function Tooltip({ place, there }) {
  const position = (host) => {
    if (!host) return;
    host.style.left = `${Math.min(place.x + 14, size.width - 290)}px`;
    host.style.top = `${place.y + 16 + host.offsetHeight > size.height ? Math.max(0, place.y - host.offsetHeight - 10) : place.y + 16}px`;
  };
  const lines = linesOf(there);
  if (!lines.length) return null;
  return html`<div class="tooltip" role="tooltip" ref=${position}>${lines.map((line, index) => html`<div class=${index ? "" : "first"}>${line}</div>`)}</div>`;
}

function linesOf({ value, mark, numMarks, request, lane, party, slice, counters, others }) {
  const at = state.axis === "time" ? duration(value) : `step ${Math.floor(value)}`;
  if (mark) return [`${mark.isOther ? "B: " : ""}${mark.kind.replaceAll("_", " ")}`, markWords(mark), duration(mark.now_ns), ...(numMarks > 1 ? [`and ${numMarks - 1} more here: zoom in`] : [])];
  if (counters) return [at, ...told(counters, others?.length ? "A: " : ""), ...told(others ?? [], "B: ")];
  if (!request) return [];
  const lines = [`${lane.name ? `${lane.name}: ` : ""}${visible(request.request_id, 80)}`];
  if (!party) return [...lines, "not in this recording"];
  lines.push(`request ${party.request}, tenant ${visible(request.tenant || "–", 40)}, class ${request.priority}`);
  if (slice) {
    const length = state.axis === "time" ? duration(slice.to - slice.from) : `${Math.round(slice.to - slice.from)} steps`;
    lines.push(`${slice.kind}: ${length}${slice.tokens ? `, ${grouped(slice.tokens)} tokens` : ""}${slice.isMerged ? ` (${slice.count} slices merged)` : ""}`);
  }
  lines.push(at);
  if (party.reason) lines.push(`ended: ${party.reason}`);
  return lines;
}

function told(counters, side) {
  return counters.map(([name, mean, low, high]) => `${side}${name.replaceAll("_", " ")} ${short(mean)}${high > low ? ` (${short(low)} to ${short(high)})` : ""}`);
}

function short(value) {
  return grouped(Number(value.toPrecision(4)));
}
