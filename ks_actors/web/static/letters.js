// Dead letters by error and source, a line each, and their way back.
import { at, exact, keep, make, moment, say, span } from "./dom.js";
import { ask, notice, order } from "./requests.js";

const SHOWN = 50;
const BUSY = "busy";

/** Give an order of a button, which is busy meanwhile, then list the letters again. */
async function ordered(button, work, again) {
  button.disabled = true;
  button.dataset.state = BUSY;
  try {
    await work();
    notice("");
  } catch (error) {
    notice(error.message);
  }
  delete button.dataset.state;
  await again();
}

const plain = (exception) => (exception ?? "unknown error").split(".").pop();

function whyNot(letter, writable) {
  if (letter.redriven) return "written back to its source";
  if (letter.source === null) return "its source is unknown";
  return writable ? "" : "the page has no token, so it changes nothing";
}

function letterItem(letter, again) {
  const button = make("button", { type: "button" }, "Redrive");
  const place = { topic: letter.topic, partition: letter.partition, offset: letter.offset };
  button.addEventListener("click", () => ordered(button, () => order("api/dead-letters/redrive", place), again));
  const headers = letter.headers.map(([name, value]) => `\n${name}: ${value ?? "null"}`).join("");
  const source = letter.source === null ? "no single record" : `${letter.source} @ ${letter.source_offset}`;
  return make("li", {}, make("details", {},
    make("summary", {}, make("span", { class: "state" }), `${source} · ${letter.message ?? ""}`),
    make("p", {}, button, make("span", { class: "faint" })),
    make("p", { class: "faint" }, `${letter.exception ?? "unknown error"}; letter ${letter.topic}-${letter.partition} @ ${letter.offset}; time of the record ${moment(letter.timestamp)}`),
    make("pre", {}, `key ${letter.key ?? "null"}\nvalue ${letter.value ?? "null"}${headers}`),
    make("details", {}, make("summary", {}, "Stack"), make("pre", {}, letter.stacktrace ?? "")),
  ));
}

function showLetter(item, letter, writable) {
  const [summary, orders] = item.firstElementChild.children;
  const [button, text] = orders.children;
  const reason = whyNot(letter, writable);
  say(summary.firstElementChild, letter.redriven ? "✓ " : "");
  button.hidden = reason !== "";
  button.disabled = false;
  say(text, reason);
}

/** Write all letters of a group back that the list has counted, some hundreds with each order. */
async function redriveGroup(button, item) {
  const { group, ends } = item;
  const failed = [];
  let starts = item.starts, done = 0, left = 1;
  while (left > 0) {
    const answer = await order("api/dead-letters/redrive-group", { topic: group.topic, exception: group.exception, source: group.source, starts, ends });
    done += answer.redriven;
    failed.push(...answer.failed);
    // Each order begins after the letters of the one before.
    ({ starts, left } = answer);
    say(button, `${exact(done)} written back`);
  }
  if (failed.length > 0) {
    const [{ partition, offset, error }] = failed;
    throw new Error(`${exact(failed.length)} of ${exact(done + failed.length)} letters were not written back, the first at ${group.topic}-${partition} @ ${offset}: ${error}`);
  }
}

function groupItem(again) {
  const button = make("button", { type: "button" });
  const item = make("li", {},
    make("details", {}, make("summary", {}, make("strong"), " ", make("span", { class: "faint" })), make("ul")),
    button,
  );
  button.addEventListener("click", () => {
    const count = item.group.count - item.group.redriven;
    if (confirm(`Write ${exact(count)} ${count === 1 ? "record" : "records"} back to ${item.group.source}?`)) {
      ordered(button, () => redriveGroup(button, item), again);
    }
  });
  return item;
}

/** Return when letters of a group have failed here; if that is not known, the times of their records. */
const times = (group) => (group.failed_last_ms === null ? `records of ${span(group.first_ms, group.last_ms)}` : `failed ${span(group.failed_first_ms, group.failed_last_ms)}`);

function showGroup(item, group, letters, bounds, writable, again) {
  const [details, button] = item.children;
  const [summary, list] = details.children;
  const left = group.count - group.redriven;
  Object.assign(item, { group, ...bounds });
  say(summary.children[0], `${plain(group.exception)} × ${exact(group.count)}`);
  summary.children[0].title = group.exception ?? "";
  const back = group.redriven === 0 ? "" : `, ${left === 0 ? "all" : exact(group.redriven)} written back`;
  say(summary.children[1], `${group.source ?? "no single record"}, ${times(group)}${back}: ${group.message ?? ""}`);
  button.hidden = !writable || left === 0 || group.source === null;
  if (button.dataset.state !== BUSY) {
    button.disabled = false;
    say(button, `Redrive all ${exact(left)}`);
  }
  const mine = letters.filter((one) => one.topic === group.topic && one.exception === group.exception && (one.source?.replace(/-\d+$/, "") ?? null) === group.source);
  keep(list, mine, (one) => `${one.topic} ${one.partition} ${one.offset}`, (one) => letterItem(one, again), (row, one) => showLetter(row, one, writable));
}

function about({ topics, letters, total, whole }) {
  if (topics.length === 0) return "The app has no dead letter topic: errors_dead_letter_queue_topic_name sets one.";
  const where = `${topics.join(", ")}${whole ? "" : ", without older letters"}`;
  return total > letters.length ? `${exact(letters.length)} of ${exact(total)} in ${where}` : `${exact(total)} in ${where}`;
}

/** Show the groups of letters, each with those of the newest letters that belong to it. */
export async function showLetters(writable) {
  const again = () => showLetters(writable);
  try {
    const found = await ask(`api/dead-letters?limit=${SHOWN}`);
    say(at("letters-about"), about(found));
    keep(at("letters"), found.groups, (one) => `${one.topic} ${one.exception} ${one.source}`, () => groupItem(again), (item, one) => showGroup(item, one, found.letters, { starts: found.starts[one.topic], ends: found.ends[one.topic] }, writable, again));
  } catch (error) {
    say(at("letters-about"), error.message);
  }
}
