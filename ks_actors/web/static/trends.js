// Five minutes of a figure as a small line.
import { draw } from "./dom.js";

const WIDE = 150, HIGH = 26;

/** Return the points of a line, as parts without gaps; the lowest value drawn is 0. */
function parts(values, kept) {
  const known = values.filter((one) => one !== null);
  const most = Math.max(1e-9, ...known);
  const found = [];
  let part = null;
  values.forEach((value, index) => {
    if (value === null) {
      part = null;
      return;
    }
    if (part === null) found.push((part = []));
    // The newest sample is at the right end, also before the line is whole.
    const x = WIDE - ((values.length - 1 - index) / (kept - 1)) * WIDE;
    part.push(`${x.toFixed(1)} ${(HIGH - 1.5 - (value / most) * (HIGH - 3)).toFixed(1)}`);
  });
  return found;
}

/** Return a drawing for a line. */
export function newLine() {
  const svg = draw("svg", { class: "trend", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" });
  svg.append(draw("title", {}), draw("path", {}));
  return svg;
}

/** Draw the samples of a figure, of which a whole line has `kept`. */
export function showLine(svg, values, kept, title) {
  const [name, path] = svg.children;
  const drawn = parts(values, kept).map((part) => `M${part.join("L")}${part.length === 1 ? "h.1" : ""}`).join("");
  if (path.getAttribute("d") !== drawn) path.setAttribute("d", drawn);
  if (name.textContent !== title) name.textContent = title;
}
