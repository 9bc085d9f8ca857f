// The page's one door to preact and htm: `html` builds elements, text is always a text node.
// Nothing in the page sets innerHTML or dangerouslySetInnerHTML; tests/browser/test_page_files.py reads for it.
import { h, render, Component } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { render, Component };
