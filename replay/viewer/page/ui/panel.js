// The panel at the right: one inspector at a time, chosen by tabs.
import { html } from "../preact.js";
import { state, update } from "../store.js";
import { AskPanel } from "./ask.js";
import { BlocksPanel } from "./blocks.js";
import { ComparePanel } from "./compare.js";
import { AreaPanel, HelpPanel, MarksPanel, RowsPanel } from "./overview.js";
import { RequestPanel } from "./request.js";
import { StepPanel } from "./step.js";

const PANELS = {
  request: ["Request", RequestPanel, () => (state.request === null ? "Request" : `Request ${state.request}`)],
  step: ["Step", StepPanel, () => (state.step === null ? "Step" : `Step ${state.step}`)],
  blocks: ["Blocks", BlocksPanel, () => "Block map"],
  marks: ["Marks", MarksPanel, () => "Marks"],
  area: ["Area", AreaPanel, () => "Selected area"],
  rows: ["Table", RowsPanel, () => "Rows as a table"],
  ask: ["Ask", AskPanel, () => "Ask"],
  compare: ["Compare", ComparePanel, () => "Compare"],
  help: ["Help", HelpPanel, () => "Keys and questions"],
};

const TELLS_OF_ONE = new Set(["request", "step", "blocks", "ask"]);

export function Tabs() {
  return html`<nav class="tabs" aria-label="inspectors">${Object.entries(PANELS).map(([name, [title]]) => html`
    <button type="button" id=${`tab-${name}`} aria-pressed=${state.panel === name} onClick=${() => update({ panel: state.panel === name ? "" : name })}>${title}</button>`)}</nav>`;
}

export function Panel() {
  if (!PANELS[state.panel]) return null;
  const [, Content, title] = PANELS[state.panel];
  return html`<section class="panel" aria-label=${title()}>
    <header><h2 tabindex="-1">${state.beside && TELLS_OF_ONE.has(state.panel) ? html`<span class="side">${state.which ? "B" : "A"}</span> ` : null}${title()}</h2><button type="button" aria-label="close the panel" onClick=${() => update({ panel: "" })}>×</button></header>
    <div class="content"><${Content} key=${state.panel} /></div>
  </section>`;
}
