// Small parts that all panels share: tables, figures, links to requests, steps and blocks.
import { plain, visible, words } from "../format.js";
import { goToBlock, goToRequest, goToStep } from "../moments.js";
import { html } from "../preact.js";

const MAX_ROWS = 500; // laid out at once; the rest is counted

/** rows: arrays of cells (text, number or element); says how many it leaves out. */
export function Table({ caption, head, rows, numeric = [], isTall = false }) {
  const shown = rows.slice(0, MAX_ROWS);
  return html`
    <div class=${isTall ? "scroll tall" : "scroll"} tabindex="0" role="group" aria-label=${caption}>
      <table>
        <caption>${caption}</caption>
        <thead><tr>${head.map((name, index) => html`<th scope="col" class=${numeric.includes(index) ? "number" : ""}>${name}</th>`)}</tr></thead>
        <tbody>${shown.map((cells) => html`<tr>${cells.map((cell, index) => html`<td class=${numeric.includes(index) ? "number" : ""}>${cellOf(cell)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
    ${rows.length > MAX_ROWS ? html`<p class="faint">${rows.length - MAX_ROWS} more rows are left out here; the SQL box reads all.</p>` : null}`;
}

function cellOf(cell) {
  return cell && typeof cell === "object" && !Array.isArray(cell) && "type" in cell ? cell : plain(cell);
}

/** {name: value} as a list of terms. */
export function Figures({ of, label }) {
  return html`<dl class="figures" aria-label=${label}>
    ${Object.entries(of).map(([name, value]) => html`<div><dt>${words(name)}</dt><dd>${cellOf(value)}</dd></div>`)}
  </dl>`;
}

export function RequestLink({ request, id, life }) {
  if (request === null || request === undefined || request < 0) return html`<span class="faint">–</span>`;
  const name = id ? `${visible(id, 48)}` : `request ${request}`;
  return html`<button type="button" class="link" title=${`request ${request}`} onClick=${() => goToRequest(request, life)}>${name}</button>`;
}

export function StepLink({ step, life }) {
  if (step === null || step === undefined || step < 0) return html`<span class="faint">–</span>`;
  return html`<button type="button" class="link short" onClick=${() => goToStep(step, life)}>${step}</button>`;
}

export function BlockLinks({ blocks, step }) {
  if (!blocks?.length) return html`<span class="faint">none</span>`;
  const number = (one) => (Array.isArray(one) ? one[0] : one);
  return html`${blocks.slice(0, 64).map((one) => html`<button type="button" class="link" onClick=${() => goToBlock(number(one), step)}>${number(one)}</button> `)}
    ${blocks.length > 64 ? html`<span class="faint">and ${blocks.length - 64} more</span>` : null}`;
}

/** `text` goes to the clipboard, and stays visible: it may be refused. */
export function Command({ text }) {
  if (!text) return null;
  const copy = (event) => {
    navigator.clipboard?.writeText(text);
    event.currentTarget.textContent = "copied";
  };
  return html`<p class="command"><code>${visible(text, 2000)}</code> <button type="button" onClick=${copy}>copy as command</button></p>`;
}
