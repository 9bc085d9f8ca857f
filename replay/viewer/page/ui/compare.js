// Two recordings side by side: the first difference first, then figures, then requests by how much they differ.
import { askJson } from "../api.js";
import { goToDifference, inspect, pairs, setBeside, stepDifference } from "../beside.js";
import { duration, grouped, plain, visible, words } from "../format.js";
import { goToRequest, goToStep, showOther } from "../moments.js";
import { html } from "../preact.js";
import { state } from "../store.js";
import { Loader } from "./loader.js";
import { Command, Figures, RequestLink, StepLink, Table } from "./parts.js";

export function ComparePanel() {
  if (!state.recording.beside) return html`<p>One recording is open. Open two with <code>reprise view A B</code>: B may be a replay, or what <code>what-if --record B</code> wrote.</p>`;
  return html`<${Beside} />
    <${Loader} id=${state.other} load=${() => askJson("api/compare")}>${(data) => html`<${Compared} data=${data} />`}<//>`;
}

/** Differences in order of time, and the way from one to the next. */
function Beside() {
  if (!state.beside) return html`<div class="buttons"><button type="button" onClick=${() => setBeside(true)}>side by side on one axis</button></div>`;
  const { answer, failure } = pairs;
  if (failure) return html`<p class="failure" role="alert">${visible(failure.message, 300)}</p>`;
  if (!answer) return html`<p class="faint" role="status">asking …</p>`;
  const { differences, num_differences: num } = answer;
  const chosen = state.difference === null ? null : differences[state.difference];
  return html`
    <p><strong>A</strong> ${visible(answer.left, 200)} (upper half of each row), <strong>B</strong> ${visible(answer.right, 200)} (lower half): ${grouped(answer.num_pairs)} requests paired by ${answer.aligned_by === "id" ? "their ids" : "order of arrival"}, ${grouped(answer.num_only_left)} only in A, ${grouped(answer.num_only_right)} only in B${answer.shift_ns ? `; B's times are moved by ${duration(answer.shift_ns)}` : ""}.</p>
    <div class="buttons"><button type="button" id="difference-previous" disabled=${!num} onClick=${() => stepDifference(-1)}>← previous (P)</button>
      <button type="button" id="difference-next" disabled=${!num} onClick=${() => stepDifference(1)}>next difference (N) →</button>
      <span role="status">${state.difference === null ? `${grouped(num)} requests are served otherwise` : `difference ${state.difference + 1} of ${grouped(num)}`}</span></div>
    ${chosen ? html`<section class="difference"><h3>${visible(chosen.request_id, 80)}</h3>
      ${[["A", "", chosen.left, chosen.request], ["B", "other", chosen.right, chosen.other]].map(([name, which, side, request]) => html`<p><strong>${name}</strong> ${side ? html`${visible(side.words, 300)}, in ${html`<button type="button" class="link" onClick=${() => { inspect(which); goToStep(side.step); }}>step ${side.step}</button>`} at ${duration(side.at_ns)}` : "nothing more is decided"} ${request === null ? null : html`<button type="button" class="link" onClick=${() => { inspect(which); goToRequest(request); }}>its request</button>`}</p>`)}
    </section>` : null}
    ${num ? html`<${Table} caption=${`What differs, in order of time: ${grouped(num)}`} head=${["at", "request", "in A", "in B"]}
      rows=${differences.map((one, index) => [html`<button type="button" class="link short" onClick=${() => goToDifference(index)}>${duration(one.at_ns)}</button>`, visible(one.request_id, 48), one.left?.words ?? "–", one.right?.words ?? "–"])} />` : null}`;
}

function Compared({ data }) {
  return html`
    <p><strong>${words(data.result)}</strong>${`: ${visible(data.recording, 300)} (left) and ${visible(data.other, 300)} (right), aligned by ${data.aligned_by}; ${data.entries_alike} entries are alike.${data.served_alike ? " Everybody was served alike." : ""}`}</p>
    ${state.beside ? null : html`<div class="buttons" role="group" aria-label="which recording the timeline shows">timeline:
      ${[["", "left"], ["other", "right"]].map(([which, name]) => html`<button type="button" aria-pressed=${state.which === which} onClick=${() => showOther(which)}>${name}</button>`)}</div>`}
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
