// The request inspector: its figures, where its time went, every decision about it, who ran beside it, its text.
import { askJson } from "../api.js";
import { duration, milliseconds, visible, visibleLines, why } from "../format.js";
import { fitSelection } from "../moments.js";
import { Component, html } from "../preact.js";
import { state } from "../store.js";
import { KINDS } from "../theme.js";
import { Chart } from "./chart.js";
import { Loader } from "./loader.js";
import { Command, Figures, RequestLink, StepLink, Table } from "./parts.js";

const MAX_TOKENS = 2000;

export function RequestPanel() {
  if (state.request === null) return html`<p>Click on a row to inspect a request, or search with <kbd>/</kbd>.</p>`;
  const { life, request } = state;
  return html`<${Loader} id=${`${life}/${request}`} load=${() => askJson(`api/request/${life}/${request}`)}>${(data) => html`<${Request} data=${data} />`}<//>`;
}

function Request({ data }) {
  const { request: figures, slices, preemptions, neighbours, story } = data;
  return html`
    <h3 class="name">${visible(figures.request_id ?? figures.id, 160)}</h3>
    <div class="buttons"><button type="button" onClick=${fitSelection}>show its whole life (F)</button></div>
    <${Waterfall} slices=${slices} firstToken=${data.token_times_ns[0]} ttft=${figures.ttft_ms} />
    <${Waits} waits=${data.waits} figures=${figures} />
    <${Figures} label="figures of the request" of=${flat(figures)} />
    <${Gaps} data=${data} />
    ${preemptions?.length ? html`<${Table} caption=${`Preempted, or others for it: ${preemptions.length}`} head=${["at", "victim", "gave way to", "reason", "mode", "tokens lost", "blocks freed", "chain"]} numeric=${[5, 6]}
      rows=${preemptions.map((one) => [duration(one.now_ns), html`<${RequestLink} request=${one.victim} />`, html`<${RequestLink} request=${one.beneficiary} />`, one.reason, one.mode, one.tokens_lost, one.blocks_freed, `${one.chain} (${one.chain_length} long)`])} />` : null}
    <${Table} caption=${`Everything about it, in order: ${story.length}`} head=${["sequence", "at", "step", "record", "what it says"]} numeric=${[0]}
      rows=${story.map((line, index) => [line.sequence, duration(line.time_ns), html`<${StepLink} step=${data.story_steps[index]} />`, line.record, line.text])} />
    <${LastBatch} slices=${slices} neighbours=${neighbours} />
    <${Table} caption=${`Beside it in its batches: ${neighbours.length}`} head=${["request", "steps together", "from step", "to step"]} numeric=${[1]}
      rows=${neighbours.map((one) => [html`<${RequestLink} request=${one.request} id=${one.request_id} />`, one.steps, html`<${StepLink} step=${one.first_step} />`, html`<${StepLink} step=${one.last_step} />`])} />
    <${Contents} key=${`${state.life}/${state.request}`} life=${state.life} request=${state.request} />
    <${Command} text=${data.command} />`;
}

/** Each reason that it was told while it waited, with what it lacked and behind whom it stood. */
function Waits({ waits, figures }) {
  if (!waits.length) return html`<p>It waited for nothing: ${figures.queue_ms === null || figures.queue_ms === undefined ? "it was never admitted" : `admitted by the first pass that saw it, ${milliseconds(figures.queue_ms)} after its arrival`}.</p>`;
  return html`<${Table} caption=${`Why it waited: ${waits.length} reasons in turn`} head=${["from", "for", "why", "needs blocks", "were free", "behind", "step"]} numeric=${[3, 4]}
    rows=${waits.map((one) => [duration(one.now_ns), one.until_ns === null ? "still" : duration(one.until_ns - one.now_ns), why(one.reason), one.needed, one.free, html`<${RequestLink} request=${one.behind} id=${one.behind_id} />`, html`<${StepLink} step=${one.step} />`])} />`;
}

/** Whom to look at first where it failed: those whose rows stood in its last step. */
function LastBatch({ slices, neighbours }) {
  const step = Math.max(...slices.filter((one) => one.kind === "prefill" || one.kind === "decode").map((one) => one.to_step), -1);
  if (step < 0) return null;
  const beside = neighbours.filter((one) => one.last_step === step);
  return html`<h3>Its last batch: ${html`<${StepLink} step=${step} />`}</h3>
    <p>${beside.length ? html`beside ${beside.slice(0, 40).map((one) => html`<${RequestLink} request=${one.request} id=${one.request_id} /> `)}${beside.length > 40 ? `and ${beside.length - 40} more` : ""}` : "it was alone in it"}</p>`;
}

/** Groups of figures become names of two words; lists have places of their own. */
function flat(figures) {
  const found = {};
  for (const [name, value] of Object.entries(figures)) {
    if (Array.isArray(value) && value.length > 12) found[name] = `${value.length} values`;
    else found[name] = value;
  }
  return found;
}

/** One line per kind of time: where the life went, to scale. */
function Waterfall({ slices, firstToken, ttft }) {
  if (!slices.length) return null;
  const first = Math.min(...slices.map((one) => one.from_ns));
  const last = Math.max(...slices.map((one) => one.to_ns ?? one.from_ns), first + 1);
  const place = (ns) => (1000 * (ns - first)) / (last - first);
  const kinds = KINDS.slice(0, 5).map((kind) => kind.name).filter((name) => slices.some((one) => nameOf(one.kind) === name));
  const sum = (name) => slices.filter((one) => nameOf(one.kind) === name).reduce((total, one) => total + ((one.to_ns ?? last) - one.from_ns), 0);
  return html`<h3>Where its time went: ${duration(last - first)}</h3>
    <div class="waterfall" role="img" aria-label=${kinds.map((name) => `${name} ${duration(sum(name))}`).join(", ")}>
      ${kinds.map((name) => html`<div><span>${name}</span>
        <svg viewBox="0 0 1000 10" preserveAspectRatio="none">${slices.filter((one) => nameOf(one.kind) === name).map((one) => html`<rect class=${`kind-${name}`} x=${place(one.from_ns)} y="1" width=${Math.max(2, place(one.to_ns ?? last) - place(one.from_ns))} height="8" />`)}</svg>
        <span class="number">${duration(sum(name))}</span></div>`)}
      ${firstToken === undefined ? null : html`<div title="from the moment the daemon had the whole request"><span>TTFT</span><svg viewBox="0 0 1000 10" preserveAspectRatio="none"><rect class="first-token" x=${Math.min(996, place(firstToken))} y="0" width="4" height="10" /></svg><span class="number">${duration(ttft * 1e6)}</span></div>`}
    </div>`;
}

function nameOf(kind) {
  return typeof kind === "number" ? KINDS[kind].name : kind;
}

/** The gaps between its tokens over its life. */
function Gaps({ data }) {
  const times = data.token_times_ns;
  if (times.length < 3) return null;
  const gaps = times.slice(1).map((at, index) => (at - times[index]) / 1e6);
  return html`<h3>Gaps between its tokens (ITL), ms</h3>
    <${Chart} label=${`gaps between ${times.length} tokens; longest ${Math.max(...gaps).toFixed(1)} ms`} xs=${gaps.map((_, index) => index + 2)} series=${[{ label: "ITL, ms", values: gaps }]} xLabel="output token" />`;
}

/** Contents are read out of the vault only when they are asked for: each reading leaves an audit line. */
class Contents extends Component {
  render({ life, request }, { isAsked }) {
    if (!isAsked) return html`<h3>Contents</h3><button type="button" onClick=${() => this.setState({ isAsked: true })}>read tokens and text (leaves an audit line)</button>`;
    return html`<h3>Contents</h3>
      <${Loader} id=${`${life}/${request}`} load=${() => askJson(`api/request/${life}/${request}`, { contents: 1 })}>${(data) => html`<${Read} data=${data} />`}<//>`;
  }
}

function Read({ data: { contents, contents_reason: reason } }) {
  if (!contents) return html`<p class="faint">${visible(reason ?? "not recorded", 400)}</p>`;
  return html`${["prompt", "output"].map((part) => html`<details open><summary>${part}: ${contents[`${part}_tokens`]?.length ?? 0} tokens</summary>
    ${typeof contents[`${part}_text`] === "string" ? html`<pre>${visibleLines(contents[`${part}_text`])}</pre>` : null}
    <pre class="tokens">${(contents[`${part}_tokens`] || []).slice(0, MAX_TOKENS).join(" ")}${contents[`${part}_tokens`]?.length > MAX_TOKENS ? ` … (${MAX_TOKENS} shown)` : ""}</pre></details>`)}`;
}
