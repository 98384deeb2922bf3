// The history: each part is asked for while it is open, and the page is looked at.
import { at, clock, counted, keep, lasted, make, moment, say, short } from "./dom.js";
import { ask, notice, order } from "./requests.js";

const AGAIN_MS = 5000;
const SAMPLE_S = 60;
const body = (part) => at(part).querySelector("tbody");
const about = (part, text) => say(at(part).querySelector("p.faint"), text);
const ms = (value) => (value < 10 ? `${value.toFixed(1)} ms` : lasted(Math.round(value)));
const after = (value, newest) => (value !== null ? lasted(value) : newest ? "not yet" : "another came first");

/** Make the rows of a part those of a list of cells; the texts of rows that stay are updated. */
function rows(part, items, keyOf, cellsOf) {
  const heads = [...at(part).querySelectorAll("th")].map((head) => head.textContent);
  const row = () => make("tr", {}, ...heads.map((label) => make("td", { "data-label": label })));
  keep(body(part), items, keyOf, row, (item, one) => {
    for (const [index, text] of cellsOf(one).entries()) say(item.children[index], text);
  });
}

async function showExceptions() {
  const found = await ask("api/history/exceptions");
  about("history-exceptions", found.length ? "Equal ones in a line. Texts are shown for dead letters, and for errors of the log." : "There were none.");
  const place = (one) => [one.node, one.task && `task ${one.task}`, one.topic && `${one.topic}-${one.partition ?? "?"} @ ${one.offset ?? "?"}`];
  rows("history-exceptions", found, (one) => `${one.kind} ${one.error} ${one.node} ${one.topic} ${one.done}`, (one) => [
    clock(one.last_ms),
    one.count > 1 ? `${short(one.count)} since ${clock(one.first_ms)}` : "1",
    `${one.kind}: ${one.error}${one.text === null ? "" : `: ${one.text}`}`,
    place(one).filter(Boolean).join(", "),
    one.done,
  ]);
}

const phases = (one) => Object.entries(one.phases).filter(([, took]) => took >= 0.05).map(([name, took]) => `${name} ${took.toFixed(1)}`).join(", ");

async function showCommits() {
  const { commits, slowest } = await ask("api/history/commits?limit=20");
  const worst = slowest.length ? `The slowest of the last hour took ${ms(slowest[0].took_ms)}, at ${clock(slowest[0].at_ms)}: ${phases(slowest[0])}.` : "There were none.";
  about("history-commits", worst);
  rows("history-commits", commits, (one) => `${one.at_ms} ${one.took_ms}`, (one) => [
    clock(one.at_ms),
    one.error === null ? ms(one.took_ms) : `${ms(one.took_ms)}, failed: ${one.error}`,
    phases(one),
    one.left_out ? `${one.tasks}, ${one.left_out} left out` : String(one.tasks),
    short(one.processed),
    short(one.records),
    short(one.bytes),
  ]);
}

async function showRebalances() {
  const found = await ask("api/history/rebalances");
  about("history-rebalances", `${counted(found.length, "rebalance")} since the start, or the last 200`);
  rows("history-rebalances", found, (one) => String(one.began_ms), (one) => [
    clock(one.began_ms),
    one.causes.join("; ") || (one.generation === null ? "under way" : "asked for by another member"),
    after(one.assigned_after_ms, one === found[0]),
    after(one.running_after_ms, one === found[0]),
    one.gained.join(", "),
    `${one.lost.join(", ")}${one.closed ? " without a commit" : ""}`,
    one.restored_records ? `${counted(one.restored_records, "record")}, ${short(one.restored_bytes)} bytes` : "",
  ]);
}

const timeOf = (value) => (value === null ? "–" : moment(value));

async function showStreamTime() {
  const found = await ask("api/history/stream-time");
  about("history-stream-time", counted(found.length, "active task"));
  rows("history-stream-time", found, (one) => one.task, (one) => [
    one.task,
    timeOf(one.time),
    one.held_by === null ? "" : `${one.held_by}${one.waits ? ", which is empty" : ""}`,
    one.partitions.map((each) => `${each.partition}: ${timeOf(each.time)}, ${each.state}, ${short(each.buffered)} buffered, lag ${short(each.lag)}`).join("; "),
  ]);
}

const nameOf = (id) => id.slice(id.indexOf(":") + 1);

function showEdges({ left_ms, edges }) {
  about("history-samples", left_ms ? `Ends in ${lasted(left_ms)}; at most a record a second on each arrow.` : "Off. The token lets you sample records for a while.");
  at("sample").hidden = left_ms > 0;
  at("sample-end").hidden = left_ms === 0;
  const all = edges.flatMap((edge) => edge.records.map((record, index) => ({ ...record, index, from: edge.from, to: edge.to })));
  rows("history-samples", all, (one) => `${one.from} ${one.to} ${one.index}`, (one) => [nameOf(one.from), nameOf(one.to), clock(one.seen_ms), one.key, one.value]);
}

async function showSamples() {
  // Without the token there is nothing to read; the page asks once it has been typed.
  const token = at("token").value.trim();
  if (token !== "") showEdges(await ask("api/history/samples", { headers: { authorization: `Bearer ${token}` } }));
  else about("history-samples", "Samples show records, so they need the token.");
}

async function sample(seconds) {
  try {
    showEdges(await order("api/history/samples", { seconds }));
    notice("");
  } catch (error) {
    notice(error.message);
  }
}

const PARTS = {
  "history-exceptions": showExceptions,
  "history-commits": showCommits,
  "history-rebalances": showRebalances,
  "history-stream-time": showStreamTime,
  "history-samples": showSamples,
};

async function look(part) {
  if (!at(part).open || document.hidden) return;
  try {
    await PARTS[part]();
  } catch (error) {
    about(part, error.message);
  }
}

for (const part of Object.keys(PARTS)) at(part).addEventListener("toggle", () => look(part));
setInterval(() => Object.keys(PARTS).forEach(look), AGAIN_MS);
at("sample").addEventListener("click", () => sample(SAMPLE_S));
at("sample-end").addEventListener("click", () => sample(0));
ask("api").then(({ writable }) => { at("history-samples").hidden = !writable; }, (error) => notice(error.message));
