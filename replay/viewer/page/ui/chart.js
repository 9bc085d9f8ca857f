// A line over numbers, by uPlot.
import { Component, html } from "../preact.js";
import { colours, scheme, STRIP_COLOURS } from "../theme.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 130;

export class Chart extends Component {
  /** props: xs, series [{label, values}], label (told to screen readers), xLabel */
  componentDidMount() {
    this.draw();
  }

  componentDidUpdate() {
    this.plot?.destroy();
    this.draw();
  }

  componentWillUnmount() {
    this.plot?.destroy();
  }

  draw() {
    const { xs, series, xLabel } = this.props;
    const { faint, line } = colours();
    const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 40 };
    const options = {
      width: Math.max(200, this.host.clientWidth), height: HEIGHT, legend: { show: false }, scales: { x: { time: false } },
      axes: [{ ...axis, size: 26 }, axis],
      series: [{ label: xLabel }, ...series.map((one, index) => ({ label: one.label, stroke: STRIP_COLOURS[scheme()][index], width: 1.3, points: { show: one.values.length < 80, size: 4 } }))],
    };
    this.plot = new uPlot(options, [xs, ...series.map((one) => one.values)], this.host);
  }

  render({ label }) {
    return html`<div class="chart" role="img" aria-label=${label} ref=${(host) => { this.host = host || this.host; }}></div>`;
  }
}
