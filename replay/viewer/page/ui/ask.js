// Ask: search results, and SQL over the recording's index with saved questions. Cells lead into the timeline.
import { askJson, embedded, path, post } from "../api.js";
import { duration, visible } from "../format.js";
import { goToStep } from "../moments.js";
import { Component, html } from "../preact.js";
import { state, update } from "../store.js";
import { Failure, Loader } from "./loader.js";
import { BlockLinks, RequestLink, StepLink, Table } from "./parts.js";

const LIMIT = 1000;
const REQUEST_COLUMNS = new Set(["request", "number", "victim", "beneficiary", "other_request", "behind", "behind_request"]);
const STEP_COLUMNS = new Set(["step", "from_step", "to_step", "first_step", "last_step"]);

export class AskPanel extends Component {
  constructor() {
    super();
    this.state = { questions: [], answer: null, error: null, isBusy: false };
  }

  componentDidMount() {
    askJson("api/questions").then(({ questions }) => this.setState({ questions }), (error) => this.setState({ error }));
    if (state.sql) this.run();
  }

  async run() {
    this.setState({ isBusy: true, error: null });
    try {
      this.setState({ answer: await post("api/sql", { sql: state.sql, limit: LIMIT }), isBusy: false });
    } catch (error) {
      this.setState({ error, answer: null, isBusy: false });
    }
  }

  render(_, { questions, answer, error, isBusy }) {
    const choose = (event) => {
      const question = questions[Number(event.currentTarget.value)];
      if (question) update({ sql: aboutSelected(question.sql) });
      if (question) this.run();
    };
    const keys = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run(); };
    return html`
      ${state.query ? html`<${Found} query=${state.query} />` : null}
      <h3>SQL over this recording, read-only</h3>
      <label>A saved question <select id="questions" onChange=${choose}><option value="">choose …</option>${questions.map((one, index) => html`<option value=${index}>${visible(one.title, 120)}</option>`)}</select></label>
      <label>Query <textarea id="sql" rows="7" spellcheck="false" value=${state.sql} onInput=${(event) => update({ sql: event.currentTarget.value })} onKeyDown=${keys}></textarea></label>
      <div class="buttons"><button type="button" id="run-sql" disabled=${isBusy || !state.sql.trim()} onClick=${() => this.run()}>${isBusy ? "asking …" : "run (Ctrl+Enter)"}</button></div>
      ${error ? html`<${Failure} error=${error} />` : null}
      ${answer ? html`<${Answer} answer=${answer} />` : null}
      <${Schema} />`;
  }
}

/** A question about one request is asked about the selected one. */
function aboutSelected(sql) {
  return state.request === null ? sql : sql.replace("mine.life = 1 AND mine.request = 0", `mine.life = ${state.life} AND mine.request = ${state.request}`);
}

function Answer({ answer }) {
  const { columns, rows, is_cut: isCut, elapsed_ms: ms } = answer;
  const lifeAt = columns.indexOf("life");
  const link = (name, value, life) => {
    if (typeof value !== "number") return value;
    if (REQUEST_COLUMNS.has(name)) return html`<${RequestLink} request=${value} id=${String(value)} life=${life} />`;
    if (STEP_COLUMNS.has(name)) return html`<${StepLink} step=${value} life=${life} />`;
    return name === "block" ? html`<${BlockLinks} blocks=${[value]} />` : value;
  };
  const numeric = columns.flatMap((_, index) => (rows.some((row) => typeof row[index] === "number") ? [index] : []));
  return html`<p role="status">${rows.length} rows in ${Number(ms).toFixed(1)} ms${isCut ? `; there are more: cut at ${rows.length}` : ""}</p>
    <${Table} caption="The answer" head=${columns.map((name) => visible(name, 60))} numeric=${numeric} rows=${rows.map((row) => row.map((value, index) => link(columns[index], value, lifeAt < 0 ? undefined : row[lifeAt])))} />`;
}

function Schema() {
  return html`<details><summary>The tables</summary><${Loader} id=${path("api/schema")} load=${() => askJson("api/schema")}>${(data) => html`<pre>${data.text}\n${data.sql ?? ""}</pre>`}<//></details>`;
}

function Found({ query }) {
  return html`<h3>Found for “${visible(query, 80)}”</h3>
    <${Loader} id=${query} load=${() => askJson("api/search", { q: query })}>${({ requests, steps, reasons, is_cut: isCut }) => html`
      ${embedded ? html`<p class="faint">Among the rows and steps in this file; reasons are found in the recording itself.</p>` : null}
      ${requests.length + steps.length + reasons.length === 0 ? html`<p>Nothing: no request id, tenant, number, step or reason has it.</p>` : null}
      ${requests.length && !embedded ? html`<div class="buttons"><button type="button" id="only-found" onClick=${() => update({ filter: query, row: 0 })}>show only their rows</button></div>` : null}
      ${requests.length ? html`<${Table} caption=${`Requests: ${requests.length}`} head=${["request", "number", "tenant", "arrived", "ended by"]} numeric=${[1]}
        rows=${requests.map((one) => [html`<${RequestLink} request=${one.number} id=${one.request_id} life=${one.life} />`, one.number, one.tenant, duration(one.arrival_ns), one.reason])} />` : null}
      ${steps.length ? html`<${Table} caption="Steps" head=${["step", "life", "at"]} rows=${steps.map((one) => [html`<${StepLink} step=${one.step} life=${one.life} />`, one.life, duration(one.now_ns)])} />` : null}
      ${reasons.length ? html`<${Table} caption="Reasons" head=${["decision", "reason", "how often", "first in step"]} numeric=${[2]}
        rows=${reasons.map((one) => [one.kind, one.reason, one.count, html`<button type="button" class="link" onClick=${() => goToStep(one.first_step, one.life)}>${one.first_step}</button>`])} />` : null}
      ${isCut ? html`<p class="faint">Only the first 50 of each; the SQL box reads all.</p>` : null}`}<//>`;
}
