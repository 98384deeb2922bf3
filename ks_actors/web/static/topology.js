// The drawing of the topology: layers from the topics that are read down to those that are written.
import { counted, draw, lasted, rate } from "./dom.js";

const HEIGHT = 40, GAP_X = 26, GAP_Y = 44, MARGIN = 14, CHARACTER = 8.8, LONGEST = 34;
// Records of old dates are replayed: their age is no lag.
const LONG_AGO_S = 30 * 86_400;

const cut = (name) => (name.length <= LONGEST ? name : `${name.slice(0, 14)}…${name.slice(-(LONGEST - 15))}`);

/** Return a graph without boxes for sources and sinks: a topic and those that read or write it are one box. */
function folded(graph) {
  const inside = new Set(graph.nodes.filter((node) => node.kind === "source" || node.kind === "sink").map((node) => node.id));
  const topics = new Map([...inside].map((id) => [id, []]));
  for (const [from, to] of graph.edges) {
    if (from.startsWith("topic:")) topics.get(to).push(from);
    if (to.startsWith("topic:")) topics.get(from).push(to);
  }
  const edges = new Map();
  for (const [from, to] of graph.edges) {
    if (from.startsWith("topic:") || to.startsWith("topic:")) continue;
    for (const one of topics.get(from) ?? [from]) for (const other of topics.get(to) ?? [to]) edges.set(`${one}\n${other}`, [one, other]);
  }
  return { nodes: graph.nodes.filter((node) => !inside.has(node.id)), edges: [...edges.values()] };
}

/** Return the boxes in an order in which each comes before those below it, and the arrows that close a circle. */
function sorted(graph, down) {
  const order = [], back = new Set(), seen = new Set(), path = new Set();
  const into = new Set(graph.edges.map(([, to]) => to));
  for (const root of [...graph.nodes.filter((node) => !into.has(node.id)), ...graph.nodes]) {
    if (seen.has(root.id)) continue;
    seen.add(root.id);
    path.add(root.id);
    const stack = [[root.id, 0]];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const next = down.get(top[0])[top[1]++];
      if (next === undefined) {
        stack.pop();
        path.delete(top[0]);
        order.unshift(top[0]);
      } else if (path.has(next)) {
        back.add(`${top[0]}\n${next}`);
      } else if (!seen.has(next)) {
        seen.add(next);
        path.add(next);
        stack.push([next, 0]);
      }
    }
  }
  return { order, back };
}

/** Return the layer of each box: one more than the deepest of those before it. */
function layersOf(graph) {
  const down = new Map(graph.nodes.map((node) => [node.id, []]));
  for (const [from, to] of graph.edges) down.get(from).push(to);
  const { order, back } = sorted(graph, down);
  const layer = new Map();
  for (const id of order) {
    const here = layer.get(id) ?? 0;
    layer.set(id, here);
    for (const next of down.get(id)) {
      if (!back.has(`${id}\n${next}`)) layer.set(next, Math.max(layer.get(next) ?? 0, here + 1));
    }
  }
  return layer;
}

/** Order the boxes of each layer by the mean place of their neighbours, which keeps most arrows apart. */
function rowsOf(graph, layer) {
  const rows = [];
  for (const node of graph.nodes) (rows[layer.get(node.id)] ??= []).push(node);
  const place = new Map();
  const note = (row) => row.forEach((node, index) => place.set(node.id, (index + 0.5) / row.length));
  rows.forEach(note);
  const near = new Map(graph.nodes.map((node) => [node.id, []]));
  for (const [from, to] of graph.edges) {
    near.get(from).push(to);
    near.get(to).push(from);
  }
  for (let round = 0; round < 6; round++) {
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      const wish = new Map(row.map((node) => {
        const others = near.get(node.id).map((id) => place.get(id));
        return [node.id, others.length ? others.reduce((sum, one) => sum + one, 0) / others.length : place.get(node.id)];
      }));
      row.sort((one, other) => wish.get(one.id) - wish.get(other.id));
      note(row);
    }
  }
  return rows;
}

/** Return the figures of a topic: its rate, and its lag in records and, from a second on, in time. */
function topicText(topic, lagText) {
  if (topic.rate === null && topic.lag === null) return rate(topic.written_rate);
  const lag = lagText(topic.lag);
  const late = lag !== "?" && topic.lag > 0 && topic.lag_s >= 1 && topic.lag_s < LONG_AGO_S ? `, ${lasted(Math.round(topic.lag_s * 1000))}` : "";
  return `${rate(topic.rate)} · lag ${lag}${late}`;
}

/** A drawn topology, to be updated each second. */
export class Drawing {
  constructor(parent, whole) {
    const graph = folded(whole);
    this.boxes = [];
    this.edges = [];
    const rows = rowsOf(graph, layersOf(graph));
    const widths = rows.map((row) => row.map((node) => Math.max(124, cut(node.label).length * CHARACTER + 20)));
    const lengths = widths.map((row) => row.reduce((sum, one) => sum + one + GAP_X, -GAP_X));
    const width = Math.max(...lengths, 200) + 2 * MARGIN;
    const height = rows.length * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
    const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The topology as a drawing" });
    svg.style.setProperty("--wide", `${width}px`);
    const marks = draw("defs", {});
    const arrow = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
    arrow.append(draw("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
    marks.append(arrow);
    svg.append(marks);
    const where = new Map();
    rows.forEach((row, depth) => {
      let x = (width - lengths[depth]) / 2;
      row.forEach((node, index) => {
        const wide = widths[depth][index];
        where.set(node.id, { x, y: MARGIN + depth * (HEIGHT + GAP_Y), wide });
        x += wide + GAP_X;
      });
    });
    const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    for (const [from, to] of graph.edges) this.#arrow(svg, where.get(from), where.get(to), nodes.get(from), nodes.get(to));
    for (const node of graph.nodes) this.#box(svg, node, where.get(node.id));
    parent.replaceChildren(svg);
  }

  #arrow(svg, from, to, source, target) {
    const x1 = from.x + from.wide / 2, y1 = from.y + HEIGHT, x2 = to.x + to.wide / 2, y2 = to.y;
    const bend = y2 > y1 ? (y2 - y1) / 2 : 60;
    const path = draw("path", { d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`, "marker-end": "url(#arrow)" });
    const text = draw("text", { x: (x1 + x2) / 2 + 4, y: (y1 + y2) / 2 + 4, class: "small" });
    svg.append(path, text);
    this.edges.push({ path, text, source, target });
  }

  #box(svg, node, { x, y, wide }) {
    const box = draw("g", { transform: `translate(${x} ${y})` });
    const round = node.kind === "topic" ? 3 : node.kind === "store" ? 18 : 9;
    const small = draw("text", { x: wide / 2, y: 32, "text-anchor": "middle", class: "small" }, node.kind);
    const title = draw("title", {}, `${node.kind} ${node.name}`);
    box.append(
      title,
      draw("rect", { class: "box", width: wide, height: HEIGHT, rx: round }),
      draw("text", { x: wide / 2, y: 17, "text-anchor": "middle" }, cut(node.label)),
      small,
    );
    svg.append(box);
    this.boxes.push({ box, small, title, node });
  }

  /** Show the figures of a view; `lagText` makes a text of a lag, `?` where it is not known. */
  update(view, lagText) {
    const topics = new Map(view.topics.map((one) => [one.topic, one]));
    const nodes = new Map(view.nodes.map((one) => [one.node, one]));
    for (const { box, small, title, node } of this.boxes) {
      let kind = node.kind, text = node.kind, about = `${node.kind} ${node.name}`;
      const topic = node.kind === "topic" ? topics.get(node.name) : undefined;
      const work = node.kind === "processor" ? nodes.get(node.name) : undefined;
      if (topic !== undefined) {
        text = topicText(topic, lagText);
        about += `: ${text}, ${counted(topic.buffered, "record")} in memory`;
        if (topic.pressure) kind += " pressure";
      }
      if (work !== undefined) {
        const calls = counted(work.in_flight, "call");
        text = work.stuck ? `stuck · ${calls}` : `${calls} in flight`;
        about += `: ${work.stuck ?? text}`;
        if (work.stuck) kind += " stuck";
        else if (work.full) kind += " pressure";
      }
      if (box.getAttribute("class") !== kind) box.setAttribute("class", kind);
      if (small.textContent !== text) small.textContent = text;
      if (title.textContent !== about) title.textContent = about;
    }
    for (const { path, text, source, target } of this.edges) {
      const topic = source.kind === "topic" ? topics.get(source.name) : undefined;
      // Several sinks may write to a topic, and the rate is that of all.
      const written = target.kind === "topic" ? topics.get(target.name)?.written_rate : undefined;
      const flow = topic === undefined ? written : topic.rate;
      let kind = target.kind === "store" ? "edge to-store" : "edge";
      if (flow > 0) kind += " flows";
      if (topic !== undefined && topic.pressure) kind += " pressure";
      const shown = flow === undefined || flow === null ? "" : rate(flow);
      if (path.getAttribute("class") !== kind) path.setAttribute("class", kind);
      if (text.textContent !== shown) text.textContent = shown;
    }
  }
}
