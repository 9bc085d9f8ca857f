// Two recordings side by side: the first difference first, then figures, then requests by how much they differ.
import { askJson } from "../api.js";
import { duration, plain, visible, words } from "../format.js";
import { showOther } from "../moments.js";
import { html } from "../preact.js";
import { state } from "../store.js";
import { Loader } from "./loader.js";
import { Command, Figures, RequestLink, StepLink, Table } from "./parts.js";

export function ComparePanel() {
  return html`<${Loader} id=${state.other} load=${() => askJson("api/compare")}>${(data) => html`<${Compared} data=${data} />`}<//>`;
}

function Compared({ data }) {
  return html`
    <p><strong>${words(data.result)}</strong>${`: ${visible(data.recording, 300)} (left) and ${visible(data.other, 300)} (right), aligned by ${data.aligned_by}; ${data.entries_alike} entries are alike.${data.served_alike ? " Everybody was served alike." : ""}`}</p>
    <div class="buttons" role="group" aria-label="which recording the timeline shows">timeline:
      ${[["", "left"], ["other", "right"]].map(([which, name]) => html`<button type="button" aria-pressed=${state.which === which} onClick=${() => showOther(which)}>${name}</button>`)}</div>
    ${data.reason ? html`<p class="failure">${visible(data.reason, 500)} ${visible(data.remedy, 500)}</p>` : null}
    ${data.divergences.map((one, index) => html`<${First} one=${one} title=${index ? "The first that does something else" : "The first difference"} />`)}
    <${Table} caption="Latencies" head=${["", "left", "right"]} numeric=${[1, 2]} rows=${latencies(data.latencies)} />
    <${Table} caption="Decisions by kind" head=${["decision", "left", "right"]} numeric=${[1, 2]} rows=${Object.entries(data.decisions).map(([name, pair]) => [name, ...pair])} />
    ${Object.keys(data.limits).length ? html`<${Table} caption="Limits that differ" head=${["limit", "left", "right"]} rows=${Object.entries(data.limits).map(([name, pair]) => [name, ...pair])} />` : null}
    <${Table} caption=${`Requests, the most delayed first: ${data.requests.length}`} head=${["request", "delay, ms", "first differing token", "compared by", "TTFT left", "TTFT right"]} numeric=${[1, 2, 4, 5]}
      rows=${[...data.requests].sort((one, other) => other.delay_ms - one.delay_ms).map((one) => [visible(one.request_id, 60), one.delay_ms, one.first_differing_token, one.tokens_compared_by, one.left?.ttft_ms, one.right?.ttft_ms])} />
    ${["only_left", "only_right"].map((side) => (data[side].length ? html`<p>${words(side)}: ${plain(data[side].slice(0, 50))}${data[side].length > 50 ? " …" : ""}</p>` : null))}
    ${data.notes.map((note) => html`<p class="faint">${visible(note, 400)}</p>`)}`;
}

function First({ one, title }) {
  return html`<section class="difference">
    <h3>${title}: ${visible(one.record, 60)}, ${words(one.classification)}</h3>
    <${Figures} label=${title} of=${{ sequence: one.sequence, at: duration(one.time_ns), step: html`<${StepLink} step=${one.step} />`, request: html`<${RequestLink} request=${one.request} />` }} />
    <${Table} caption="What differs" head=${["field", "left", "right"]} rows=${one.differences.map((each) => [each.field, each.expected, each.got])} />
    ${one.before.length ? html`<details><summary>What came before</summary><pre>${one.before.map((line) => visible(plain(line), 300)).join("\n")}</pre></details>` : null}
    <p>${visible(one.likely_cause, 400)}</p>
    <${Command} text=${one.next_command} />
  </section>`;
}

function latencies([left, right]) {
  const rows = [];
  for (const [name, ours] of Object.entries(left)) {
    const theirs = right[name];
    if (ours && typeof ours === "object") for (const rank of Object.keys(ours)) rows.push([`${words(name)} ${rank}`, ours[rank], theirs?.[rank]]);
    else rows.push([words(name), ours, theirs]);
  }
  return rows;
}
