// The block map: the pool as a grid at one step, by state, owner or age; a slider moves through the steps, a click
// tells a block's history.
import { askFrame, askJson } from "../api.js";
import { grouped } from "../format.js";
import { goToBlock } from "../moments.js";
import { Component, html } from "../preact.js";
import { isIndexed, life, state, update } from "../store.js";
import { colours, scheme } from "../theme.js";
import { Loader } from "./loader.js";
import { Command, RequestLink, StepLink, Table } from "./parts.js";

const STATES = ["free", "cached", "owned", "shared", "mismatch"];
const FILLS = { light: ["#e4e7eb", "#9fc5e8", "#0072b2", "#d55e00", "#c00020"], dark: ["#2b313a", "#3b5f7d", "#4aa3df", "#e8833a", "#ff6b6b"] };
const CELL = 12;
const NEVER = 2 ** 32 - 1; // of a block that no step wrote into
const SHADES = [1, 0.72, 0.86, 0.58]; // neighbours in a pool seldom have owners four apart

export function BlocksPanel() {
  const one = life();
  if (!one || one.last_step === null) return html`<p>No step is recorded yet.</p>`;
  const step = state.blockStep ?? state.step ?? one.last_step;
  const slide = (event) => update({ blockStep: Number(event.currentTarget.value) });
  return html`
    <label class="slider">step ${step}
      <input type="range" min=${one.first_step} max=${one.last_step} value=${step} onInput=${slide} /></label>
    <${Loader} id=${`${state.life}/${step}/${isIndexed()}`} load=${() => askFrame(`api/blocks/${state.life}/${step}`)}>
      ${(frame) => html`<${Grid} frame=${frame} block=${state.block} theme=${scheme()} />`}<//>
    ${state.block === null ? html`<p class="faint">Click a block for its history: who wrote it, who reads it.</p>` : html`<${History} block=${state.block} step=${step} />`}`;
}

class Grid extends Component {
  componentDidMount() {
    this.draw();
  }

  componentDidUpdate() {
    this.draw();
  }

  draw() {
    const { columns, header } = this.props.frame;
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.parentElement.clientWidth;
    this.perRow = Math.max(8, Math.floor(width / CELL));
    const numRows = Math.ceil(header.num_blocks / this.perRow);
    this.canvas.width = width * ratio;
    this.canvas.height = numRows * CELL * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${numRows * CELL}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    for (let block = 0; block < header.num_blocks; block++) this.cell(context, block, columns);
  }

  cell(context, block, { state: states, owner, refs, age_steps: age }) {
    const x = (block % this.perRow) * CELL;
    const y = Math.floor(block / this.perRow) * CELL;
    context.fillStyle = FILLS[scheme()][states[block]];
    context.globalAlpha = states[block] === 1 ? 0.5 + 0.5 / (1 + age[block] / 50) : states[block] === 2 ? SHADES[Math.max(0, owner[block]) % 4] : 1;
    context.fillRect(x, y, CELL - 1, CELL - 1);
    context.globalAlpha = 1;
    context.fillStyle = context.strokeStyle = colours().back;
    if (states[block] === 3) context.fillText(refs[block] > 9 ? "+" : String(refs[block]), x + 3, y + 10);
    if (states[block] === 4) { context.fillRect(x + 2, y + 4, CELL - 5, 3); }
    if (owner[block] >= 0 && owner[block] === state.request) { context.fillStyle = colours().chosen; context.fillRect(x + 3, y + 3, 5, 5); }
    if (block === this.props.block) { context.strokeStyle = colours().chosen; context.lineWidth = 2; context.strokeRect(x, y, CELL - 1, CELL - 1); }
  }

  render({ frame }) {
    const { header, columns } = frame;
    const counts = STATES.map((_, kind) => columns.state.reduce((sum, one) => sum + (one === kind), 0));
    const blockAt = (event) => Math.floor(event.offsetY / CELL) * this.perRow + Math.floor(event.offsetX / CELL);
    const tell = (event) => {
      const block = blockAt(event);
      if (block >= header.num_blocks) return;
      const [owner, refs, age] = [columns.owner[block], columns.refs[block], columns.age_steps[block]];
      const held = refs ? `, held by ${refs}: request ${owner}${refs > 1 ? " and others" : ""}` : "";
      this.setState({ told: `block ${block}: ${STATES[columns.state[block]]}${held}; ${age === NEVER ? "never written" : age ? `written ${grouped(age)} steps before` : "written by this step"}` });
    };
    const choose = (event) => { if (blockAt(event) < header.num_blocks) goToBlock(blockAt(event), header.step); };
    const summary = STATES.map((name, kind) => `${counts[kind]} ${name}`).join(", ");
    return html`
      <p class="legend">${STATES.map((name, kind) => html`<span><i class=${`swatch block-${name}`}></i>${name} ${counts[kind]}</span>`)}</p>
      <div><canvas class="grid" role="img" aria-label=${`${header.num_blocks} blocks at step ${header.step}: ${summary}`} ref=${(canvas) => { this.canvas = canvas || this.canvas; }} onPointerMove=${tell} onClick=${choose}></canvas></div>
      <p class="faint" aria-live="polite">${this.state.told || "Neighbouring shades are other owners; a number is how many hold the block; a paler cached block was written longer ago; a yellow core marks the chosen request."}</p>
      <form class="buttons" onSubmit=${(event) => { event.preventDefault(); goToBlock(Number(event.currentTarget.block.value), header.step); }}>
        <label>block <input name="block" type="number" min="0" max=${header.num_blocks - 1} value=${this.props.block ?? 0} /></label><button>its history</button></form>`;
  }
}

function History({ block, step }) {
  const load = async () => {
    const [history, { command }] = await Promise.all([
      askJson(`api/block/${state.life}/${block}`, { step }),
      askJson("api/command", { kind: "block", life: state.life, number: block }).catch(() => ({})),
    ]);
    return { ...history, command };
  };
  return html`<${Loader} id=${`${state.life}/${block}/${step}/${isIndexed()}`} load=${load}>${(data) => html`
    <${Table} caption=${`Block ${block}: ${data.events.length} events, in order`} head=${["step", "until", "what", "request", "sequence"]} numeric=${[4]}
      rows=${data.events.map((one) => [html`<${StepLink} step=${one.step} />`, one.to_step ?? "", one.now ? `${one.kind} (now)` : one.kind, html`<${RequestLink} request=${one.request} id=${one.request_id} />`, one.sequence])} />
    <${Command} text=${data.command} />`}<//>`;
}
