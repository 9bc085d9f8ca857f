// The step inspector: what was planned and why, who waited for what, what happened to blocks, where the time went.
import { askJson } from "../api.js";
import { duration, milliseconds, visible, why } from "../format.js";
import { goToStep } from "../moments.js";
import { html } from "../preact.js";
import { isIndexed, state } from "../store.js";
import { Loader } from "./loader.js";
import { BlockLinks, Command, Figures, RequestLink, Table } from "./parts.js";

const PHASES = ["execute", "sample", "swap", "beside"];

export function StepPanel() {
  if (state.step === null) return html`<p>Click on the axis or a counter strip to inspect a step.</p>`;
  const { life, step } = state;
  return html`<${Loader} id=${`${life}/${step}/${isIndexed()}`} load=${() => askJson(`api/step/${life}/${step}`)}>${(data) => html`<${Step} data=${data} />`}<//>`;
}

function Step({ data }) {
  const { step: figures, rows, waiting, blocks, decisions, command } = data;
  const step = figures.step;
  return html`
    <nav class="buttons" aria-label="neighbouring steps">
      <button type="button" onClick=${() => goToStep(data.neighbours?.previous ?? step - 1)} disabled=${data.neighbours?.previous === null}>← previous</button>
      <button type="button" onClick=${() => goToStep(data.neighbours?.next ?? step + 1)} disabled=${data.neighbours?.next === null}>next →</button>
    </nav>
    <h3>Planned at ${duration(figures.planned_ns)}</h3>
    <${Budget} figures=${figures} />
    <${Phases} figures=${figures} />
    <${Table} caption=${`In the batch: ${rows.length}`} head=${["request", "does", "from token", "tokens", "new blocks"]} numeric=${[2, 3]}
      rows=${rows.map((row) => [html`<${RequestLink} request=${row.request} id=${row.request_id} />`, row.kind, row.start, row.count, html`<${BlockLinks} blocks=${row.new_blocks} step=${step} />`])} />
    ${data.state_reason ? html`<p class="failure">who waits and runs is not known here: ${visible(data.state_reason, 400)}</p>` : null}
    ${waiting ? html`<${Table} caption=${`Waiting, with the reason: ${waiting.length}`} head=${["request", "why it waits", "needs", "free", "behind", "since", "passes"]} numeric=${[2, 3, 6]}
      rows=${waiting.map((one) => [html`<${RequestLink} request=${one.request} id=${one.request_id} />`, reasonOf(one), one.needed, one.free, html`<${RequestLink} request=${one.behind} />`, duration(one.since_ns), one.passes])} />` : null}
    <h3>Blocks</h3>
    <${Figures} label="blocks of this step" of=${Object.fromEntries(["allocated", "hit", "evicted", "freed", "released"].filter((name) => blocks[name]).map((name) => [name, html`<${BlockLinks} blocks=${blocks[name]} step=${step} />`]))} />
    <${Table} caption=${`Decisions in order: ${decisions.length}`} head=${["sequence", "decision", "request", "with what figures"]} numeric=${[0]}
      rows=${decisions.map((one) => [one.sequence, one.record, html`<${RequestLink} request=${one.request} />`, one.text])} />
    <details><summary>All figures of this step</summary><${Figures} label="all figures" of=${figures} /></details>
    <${Command} text=${command} />`;
}

function reasonOf(one) {
  return `${one.state === "preempted" ? "preempted; " : ""}${one.reason ? why(one.reason) : "not told yet"}`;
}

/** The token budget: prefill, decode, left. */
function Budget({ figures }) {
  const { prefill_tokens: prefill, decode_rows: decode, budget_left: left } = figures;
  const total = figures.budget ?? prefill + decode + (left ?? 0);
  return html`<h3>Token budget</h3>
    <${Bar} label="token budget" total=${total} parts=${[["prefill", prefill], ["decode", decode], ["left", left ?? 0]]} />
    <p>${prefill} for prompts, ${decode} for streams, ${left ?? "–"} left of ${total}; ${figures.running} running, ${figures.waiting} waiting, ${figures.free_blocks} blocks free.</p>`;
}

function Phases({ figures }) {
  const parts = PHASES.map((name) => [name, figures[`${name}_ms`] ?? (figures[`${name}_ns`] ?? 0) / 1e6]);
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  return html`<h3>Where the time went</h3>
    <${Bar} label="phases of the step" total=${total} parts=${parts} />
    <p>${parts.map(([name, value]) => `${name} ${milliseconds(Number(value.toFixed(3)))}`).join(" · ")}</p>`;
}

/** A bar of parts as an SVG: widths are attributes, so that no inline style is needed. */
function Bar({ label, total, parts }) {
  let x = 0;
  return html`<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${parts.map(([name, value]) => `${name} ${value}`).join(", ")}`}>
    ${parts.map(([name, value], index) => {
      const width = total ? (100 * value) / total : 0;
      x += width;
      return html`<rect class=${`part${index}`} x=${x - width} y="0" width=${width} height="6"><title>${name}</title></rect>`;
    })}
  </svg>`;
}
