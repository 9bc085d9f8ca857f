// Something that is asked for and then shown: while it is under way what was there before stays, errors are told.
import { ApiError } from "../api.js";
import { Component, html } from "../preact.js";

export class Loader extends Component {
  /** props: id (asks again when it changes), load() → promise, children: data → elements */
  constructor() {
    super();
    this.state = { data: null, error: null, isBusy: true };
  }

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate(before) {
    if (before.id !== this.props.id) this.ask();
  }

  async ask() {
    const { id, load } = this.props;
    this.setState({ isBusy: true, error: null });
    try {
      const data = await load();
      if (id === this.props.id) this.setState({ data, isBusy: false });
    } catch (error) {
      if (id === this.props.id) this.setState({ error, data: null, isBusy: false });
    }
  }

  render() {
    const { data, error, isBusy } = this.state;
    if (error) return html`<${Failure} error=${error} />`;
    if (!data) return html`<p class="faint" role="status">asking …</p>`;
    return html`<div aria-busy=${isBusy} class=${isBusy ? "busy" : ""}>${this.props.children(data)}</div>`;
  }
}

export function Failure({ error }) {
  const known = error instanceof ApiError;
  return html`<p class="failure" role="alert">${known ? error.message : `this page failed: ${error.message}`}</p>`;
}
