// What canvas calls draw, as SVG elements: the strips, marks and arrows of the view can be taken away by the very
// functions that draw them. It knows as much of a canvas as those use.

const KEPT = ["fillStyle", "strokeStyle", "globalAlpha", "lineWidth", "font", "textAlign", "dash", "clipId"];

export class SvgContext {
  /** measure: a canvas context that text is measured by. */
  constructor(measure) {
    this.measure = measure;
    this.elements = [];
    this.clips = [];
    this.kept = [];
    this.path = "";
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", globalAlpha: 1, lineWidth: 1, font: "12px system-ui, sans-serif", textAlign: "left", dash: [], clipId: "" });
  }

  save() {
    this.kept.push(Object.fromEntries(KEPT.map((name) => [name, this[name]])));
  }

  restore() {
    Object.assign(this, this.kept.pop());
  }

  clip() {
    this.clipId = `clip${this.clips.length}`;
    this.clips.push(`<clipPath id="${this.clipId}"><path d="${this.path}"/></clipPath>`);
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  bezierCurveTo(...places) {
    this.path += `C${places.map(short).join(" ")}`;
  }

  rect(x, y, width, height) {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }

  fill() {
    if (this.path) this.add(`<path d="${this.path}" ${this.filled()}/>`);
  }

  stroke() {
    if (this.path) this.add(`<path d="${this.path}" ${this.stroked()}/>`);
  }

  fillRect(x, y, width, height) {
    if (width > 0 && height > 0) this.add(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" ${this.filled()}/>`);
  }

  strokeRect(x, y, width, height) {
    if (width > 0 && height > 0) this.add(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" ${this.stroked()}/>`);
  }

  fillText(text, x, y) {
    const pixels = Number.parseFloat(this.font);
    this.add(`<text x="${short(x)}" y="${short(y)}" font-size="${pixels}"${this.textAlign === "right" ? ' text-anchor="end"' : ""} ${this.filled()}>${escaped(String(text))}</text>`);
  }

  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  /** An element of one's own, behind what was drawn before. */
  add(element) {
    this.elements.push(this.clipId ? `<g clip-path="url(#${this.clipId})">${element}</g>` : element);
  }

  filled() {
    return `fill="${this.fillStyle}"${this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : ""}`;
  }

  stroked() {
    return `fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.globalAlpha < 1 ? ` stroke-opacity="${this.globalAlpha}"` : ""}${this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : ""}`;
  }
}

export function escaped(text) {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

function short(value) {
  return Number(value.toFixed(2));
}
