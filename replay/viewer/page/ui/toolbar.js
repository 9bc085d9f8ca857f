// The bar on top: which life, what axis, how rows are grouped, search, what to take away; and the legend below.
import { embedded } from "../api.js";
import { setBeside } from "../beside.js";
import { visible } from "../format.js";
import { fitSelection, switchAxis } from "../moments.js";
import { html } from "../preact.js";
import { life, state, update } from "../store.js";
import { KINDS, scheme } from "../theme.js";
import { copyCommand, copyLink, savePng, saveSvg } from "../take_away.js";
import { Tabs } from "./panel.js";

const GROUPS = [["tenant", "tenant"], ["state", "state"], ["priority", "class"], ["none", "arrival"]];

function groups() {
  return state.beside ? [["difference", "difference"], ...GROUPS] : GROUPS;
}

export function Toolbar({ timeline }) {
  const { recording } = state;
  const search = (event) => {
    event.preventDefault();
    update({ query: event.currentTarget.q.value, panel: "ask" });
  };
  return html`
    <h1>${visible(recording.name, 60)}</h1>
    ${recording.lives.length > 1 ? html`<label>life <select value=${state.life} onChange=${(event) => chooseLife(Number(event.currentTarget.value))}>${recording.lives.map((one) => html`<option value=${one.life}>${one.life}</option>`)}</select></label>` : null}
    <label>axis <select id="axis" value=${state.axis} onChange=${() => switchAxis().catch((error) => update({ note: error.message }))}><option value="time">time</option><option value="step">steps</option></select></label>
    <label>rows by <select id="group" value=${state.group} onChange=${(event) => update({ group: event.currentTarget.value, row: 0 })}>${groups().map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label>
    ${recording.beside ? html`<label class="check"><input type="checkbox" id="beside" checked=${Boolean(state.beside)} onChange=${(event) => setBeside(event.currentTarget.checked)} /> A | B</label>` : null}
    <label class="check"><input type="checkbox" disabled=${Boolean(state.beside || embedded)} checked=${Boolean(state.alive)} onChange=${(event) => update({ alive: event.currentTarget.checked ? 1 : 0, row: 0 })} /> only those in view</label>
    ${recording.is_live ? html`<label class="check"><input type="checkbox" id="follow" checked=${state.follow} onChange=${(event) => update({ follow: event.currentTarget.checked })} /> follow</label>` : null}
    ${state.filter ? html`<button type="button" id="filter" title="show all rows again" onClick=${() => update({ filter: "", row: 0 })}>rows with “${visible(state.filter, 40)}” ×</button>` : null}
    <form role="search" onSubmit=${search}><input id="search" name="q" type="search" maxlength="1000" placeholder="search ( / )" aria-label="search requests, tenants, reasons, steps" defaultValue=${state.query} /></form>
    <${Tabs} />
    <details class="take"><summary>Take away</summary><div>
      <button type="button" onClick=${copyLink}>copy link to this view</button>
      <button type="button" onClick=${copyCommand}>copy as command</button>
      <button type="button" onClick=${() => saveSvg(timeline)}>SVG of this view</button>
      <button type="button" onClick=${() => savePng(timeline)}>PNG of this view</button>
      <button type="button" onClick=${() => print()}>print</button>
      <button type="button" onClick=${fitSelection}>fit (F)</button>
      <button type="button" id="theme" onClick=${() => update({ theme: scheme() === "dark" ? "light" : "dark" })}>${scheme() === "dark" ? "light" : "dark"}</button></div></details>`;
}

function chooseLife(number) {
  update({ life: number, request: null, step: null, block: null, blockStep: null, area: null, row: 0 });
  const one = life();
  update({ axis: "time", from: one.from_ns, to: Math.max(one.to_ns, one.from_ns + 1) });
}

export function Legend() {
  return html`<p class="legend" aria-label="legend">${KINDS.map((kind) => html`<span><i class=${`swatch kind-${kind.name}`}></i>${kind.name}</span>`)}
    <span class="keys"><kbd>W</kbd><kbd>A</kbd><kbd>S</kbd><kbd>D</kbd> move · <kbd>F</kbd> fit · <kbd>/</kbd> search · <kbd>?</kbd> help</span></p>`;
}
