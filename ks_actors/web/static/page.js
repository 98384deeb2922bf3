// The page: it listens to the views of the app, one each second, and shows them.
import { at, clock, counted, exact, keep, lasted, make, rate, say, short } from "./dom.js";
import { authorize, ask, notice, order } from "./requests.js";
import { showLetters } from "./letters.js";
import { showSnapshots } from "./snapshots.js";
import { showStores } from "./stores.js";
import { Drawing } from "./topology.js";
import { newLine, showLine } from "./trends.js";

let drawing = null;
let writable = false;
// Dead letters are asked for once the app has a log.
let lettersShown = false;
// Views come each second: after some without any, those shown are old.
const SILENT_MS = 5000;
const KEPT_S = 300;
const FEW_TASKS = 20;
const LONG_AGO_MS = 30 * 86_400_000;
const TITLES = {
  Processed: "Records per second, and their rate in the last five minutes",
  "Lag here": "Records that the tasks here have not processed",
  Dropped: "Records left out since the start: late ones, null keys, and those that exception handlers skipped",
  Latency: "Mean age of the records written in the last seconds, by their timestamps",
  Guarantee: "The setting processing_guarantee",
  "Up for": "The time since this instance began to run",
};
const ORDERS = ["pause", "resume", "snapshot"];
const STATES = { good: "ready", paused: "paused", warn: "not ready", bad: "not live" };
const CALM = new Set(["paused", "uncovered"]);
const GUARANTEES = { exactly_once_v2: "exactly once", at_least_once: "at least once" };
let away = false, heard = 0, answered = null;
let dropped = 0, listed = 0, everyTask = false;

async function ordered(button, path, done) {
  button.disabled = true;
  try {
    await order(path);
    notice("");
    await done?.();
  } catch (error) {
    notice(error.message);
  } finally {
    button.disabled = away;
  }
}

at("pause").addEventListener("click", () => {
  if (confirm("Pause this instance? Its tasks stay here, and their records wait until it is resumed.")) ordered(at("pause"), "api/pause");
});
at("resume").addEventListener("click", () => ordered(at("resume"), "api/resume"));
at("snapshot").addEventListener("click", () => ordered(at("snapshot"), "api/snapshots", () => showSnapshots(writable)));
at("letters-again").addEventListener("click", lookAtLetters);
at("tasks-all").addEventListener("click", () => {
  everyTask = true;
});
// Enter in the field of the token gives no order.
at("orders").addEventListener("submit", (event) => event.preventDefault());

/** Return the state of the app, which has one colour wherever it is shown. */
function stateOf({ health, paused }) {
  if (!health.live) return "bad";
  // Trouble beside a paused query is trouble.
  if (paused || (!health.ready && health.problems.every((one) => CALM.has(one.reason)))) return "paused";
  return health.ready ? "good" : "warn";
}

/** List the letters; records that are dropped from now on are not among them. */
function lookAtLetters() {
  listed = dropped;
  showLetters(writable);
}

/** Return the line of a problem; a paused query has a button of its own. */
function newProblem({ reason, query }) {
  const item = make("li", {}, make("span"));
  if (writable && reason === "paused" && query !== null) {
    const button = make("button", { type: "button", "aria-label": `Resume ${query}` }, "Resume");
    button.addEventListener("click", () => ordered(button, `api/resume?query=${encodeURIComponent(query)}`));
    item.append(" ", button);
  }
  return item;
}

function showHealth(view) {
  const { health } = view, state = stateOf(view);
  document.body.dataset.state = state;
  at("health").className = `badge ${state}`;
  say(at("health"), `${STATES[state]} · ${health.state}`);
  keep(at("problems"), health.problems, (one) => `${one.reason} ${one.task} ${one.partition} ${one.query}`, newProblem, (item, one) => {
    // The text is also for those without the page, and names the call.
    const text = writable ? one.text.replace(/App\.resume\S* resumes/, "the Resume button resumes") : one.text;
    say(item.firstElementChild, `${one.reason}: ${text}`);
    item.className = one.fatal ? "bad" : one.reason === "paused" ? "paused" : "warn";
    item.title = one.runbook;
  });
}

/** Return an age in ms; records of old dates are replayed, and their age is no latency. */
const age = (ms) => (ms === null ? "?" : ms < LONG_AGO_MS ? lasted(ms) : "> 30 d");

function showFigures(view, reasons) {
  const { trends } = view;
  const latency = [...trends.latency].reverse().find((one) => one !== null) ?? null;
  const figures = [
    ["Processed", rate(view.processed_rate), trends.rate, rate],
    ["Lag here", lagText(view.lag, reasons), trends.lag, short],
    ["Dropped", view.dropped === 0 ? "none" : `${short(view.dropped)} · ${rate(view.dropped_rate)}`, trends.dropped, rate, reasons.has("dropping")],
    ["Latency", age(latency), trends.latency, age],
    ["Guarantee", GUARANTEES[view.guarantee] ?? view.guarantee],
    ["Up for", view.uptime_s === null ? "?" : lasted(view.uptime_s * 1000)],
  ];
  keep(at("figures"), figures, ([name]) => name, ([name, , values]) => make("div", { title: TITLES[name] }, make("dt", {}, name), make("dd"), values === undefined ? null : newLine()), (item, [name, text, values, unit, bad]) => {
    item.className = bad ? "bad" : values === undefined ? "plain" : "";
    say(item.children[1], text);
    if (values === undefined) return;
    const known = values.filter((one) => one !== null);
    showLine(item.children[2], values, KEPT_S / trends.each_s, known.length === 0 ? "no samples yet" : `the last 5 minutes: ${unit(Math.min(...known))} to ${unit(Math.max(...known))}`);
  });
  const actives = view.tasks.filter((task) => !task.standby).length;
  const more = [
    counted(actives, "task"),
    actives < view.tasks.length ? counted(view.tasks.length - actives, "standby") : "no standbys",
    counted(view.workers.length, "worker"),
    view.group.members.length ? counted(view.group.members.length, "instance") : "? instances",
    `written ${rate(view.produced_rate)}, changelogs included`,
  ];
  say(at("more"), more.join(" · "));
}

/** Return a lag; the last known one may be long over while the log does not answer. */
const lagText = (lag, reasons) => (reasons.has("log") ? "?" : short(lag));

function lagOf(task) {
  const known = task.partitions.map((one) => one.lag).filter((lag) => lag !== null);
  return known.length ? known.reduce((sum, lag) => sum + lag, 0) : null;
}

function doing(task) {
  if (task.waits.length > 0) {
    const longest = task.waits.reduce((one, other) => (other.waited_ms > one.waited_ms ? other : one));
    return `${longest.reason} for ${lasted(longest.waited_ms)}: ${longest.text}`;
  }
  const calls = task.calls.reduce((sum, call) => sum + call.in_flight, 0);
  if (calls > 0) return `${counted(calls, "call")} in flight`;
  return task.standby ? "follows its changelogs" : task.restores.length ? "" : "ok";
}

/** Return the tasks to show: those that wait too long first, then those that restore; of many tasks the first ones. */
function shownTasks(tasks) {
  const rank = (task) => (task.stuck ? 0 : task.restores.some((one) => one.share !== null) ? 1 : 2);
  const sorted = [...tasks].sort((one, other) => rank(one) - rank(other));
  const few = !everyTask && tasks.length > 2 * FEW_TASKS;
  at("tasks-all").hidden = !few;
  say(at("tasks-all"), `Show all ${exact(tasks.length)}`);
  return few ? sorted.slice(0, FEW_TASKS) : sorted;
}

function newBar(one) {
  const bar = make("span", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": `Restore of ${one.changelog}` }, make("span"));
  return make("div", {}, make("span", { class: "faint" }), bar);
}

function showBar(item, one) {
  const share = Math.round(one.share * 100);
  say(item.firstElementChild, `${one.changelog}: ${short(one.position)} of ${short(one.end)}, ${share} %`);
  item.lastElementChild.setAttribute("aria-valuenow", String(share));
  item.lastElementChild.firstElementChild.style.width = `${share}%`;
}

function newTask() {
  const cell = (label, ...children) => make("td", { "data-label": label }, ...children);
  return make("tr", {}, make("td"), cell("State"), cell("Partitions"), cell("Lag"), make("td", {}, make("div"), make("div")));
}

function showTask(row, task, reasons) {
  row.className = task.stuck ? "stuck" : "";
  const [name, state, partitions, lag, now] = row.children;
  say(name, task.query === null ? task.task : `${task.task} ${task.query}`);
  say(state, !task.standby ? task.state : task.state === "RUNNING" ? "standby" : `standby, ${task.state}`);
  say(partitions, task.partitions.map((one) => `${one.partition} @ ${one.position ?? "?"}`).join(", "));
  say(lag, task.standby ? "" : lagText(lagOf(task), reasons));
  keep(now.firstElementChild, task.restores.filter((one) => one.share !== null), (one) => one.changelog, newBar, showBar);
  say(now.lastElementChild, doing(task));
}

function newMember(one) {
  const title = one.page === null || one.here ? make("strong") : make("a", { href: one.page, rel: "noreferrer" });
  return make("li", {}, title, make("p", { class: "faint" }), make("div", { class: "chips" }));
}

function showMember(item, one) {
  const tasks = one.tasks === null ? "tasks unknown: the group rebalances" : counted(one.tasks.length, "task");
  const queries = one.queries.length ? `, ${one.queries.join(" and ")}` : "";
  const endpoint = one.endpoint === "" ? "" : `, answers queries at ${one.endpoint}`;
  item.className = one.here ? "here" : "";
  item.title = one.client_id;
  say(item.children[0], one.host === "" ? one.name : `${one.name} at ${one.host}`);
  say(item.children[1], `${one.here ? "this instance" : one.host === "" ? "in this process" : "another instance"}, ${tasks}${queries}${endpoint}`);
  keep(item.children[2], one.tasks ?? [], (task) => task, (task) => make("span", { class: "chip" }, task), () => {});
}

function showGroup({ members, partitions, error }) {
  at("group-error").hidden = error === null;
  say(at("group-error"), error ?? "");
  // The members and the lag are then those last known.
  for (const id of ["members", "lag"]) at(id).classList.toggle("old", error !== null);
  keep(at("members"), members, (one) => `${one.member_id} ${one.page}`, newMember, showMember);
  const topics = new Map();
  for (const one of partitions) {
    const sum = topics.get(one.topic) ?? { topic: one.topic, partitions: 0, lag: 0 };
    sum.partitions += 1;
    sum.lag += one.lag;
    topics.set(one.topic, sum);
  }
  keep(at("lag").tBodies[0], [...topics.values()], (one) => one.topic, (one) => make("tr", {}, make("td", {}, one.topic), make("td"), make("td")), (row, one) => {
    say(row.children[1], String(one.partitions));
    say(row.children[2], short(one.lag));
  });
}

function show(view) {
  say(at("application"), view.application_id);
  say(at("instance"), `${view.name} · ks-actors ${view.version}`);
  document.title = `${view.application_id} · ${STATES[stateOf(view)]}`;
  dropped = view.dropped;
  const reasons = new Set(view.health.problems.map((one) => one.reason));
  showHealth(view);
  showFigures(view, reasons);
  keep(at("tasks").tBodies[0], shownTasks(view.tasks), (one) => `${one.task} ${one.standby}`, newTask, (row, task) => showTask(row, task, reasons));
  showGroup(view.group);
  keep(at("events"), [...view.events].reverse(), (one) => `${one.at_ms} ${one.text}`, (one) => make("li", {}, make("time", {}, clock(one.at_ms)), one.text), () => {});
  drawing?.update(view, (lag) => lagText(lag, reasons));
  if (!lettersShown && ["REBALANCING", "RUNNING"].includes(view.health.state)) {
    lettersShown = true;
    lookAtLetters();
  }
  say(at("letters-again"), dropped > listed ? `Refresh: ${exact(dropped - listed)} dropped since` : "Refresh");
  at("pause").hidden = !writable || view.paused;
  at("resume").hidden = !writable || !view.paused;
  document.body.dataset.views = String(Number(document.body.dataset.views ?? 0) + 1);
}

/** Note whether the instance answers: without, all is of the time of its last answer, and looks so. */
function noteAway(now) {
  if (now && !away) {
    const since = answered === null ? "" : `; all below is as of ${clock(answered)}, its last answer`;
    notice(`the instance does not answer${since}; the page asks again each second`);
    document.body.dataset.state = "bad";
    at("health").className = "badge bad";
    say(at("health"), answered === null ? "no answer" : `no answer · as of ${clock(answered)}`);
    document.title = `${at("application").textContent} · no answer`;
  } else if (away && !now) {
    notice("");
  }
  if (away !== now) for (const one of [...ORDERS.map(at), ...at("problems").querySelectorAll("button")]) one.disabled = now;
  away = now;
  document.body.classList.toggle("old", away);
}

function listen() {
  const source = new EventSource("api/events");
  source.addEventListener("view", (event) => {
    const view = JSON.parse(event.data);
    heard = performance.now();
    answered = view.at_ms;
    noteAway(false);
    show(view);
  });
  source.addEventListener("error", () => noteAway(true));
  // A frozen instance, or one that is cut off, keeps its connection.
  setInterval(() => {
    if (performance.now() - heard > SILENT_MS) noteAway(true);
  }, 1000);
}

async function start() {
  authorize();
  try {
    ({ writable } = await ask("api"));
    at("token-box").hidden = !writable;
    drawing = new Drawing(at("topology"), await ask("api/topology?format=graph"));
  } catch (error) {
    notice(error.message);
  }
  listen();
  await Promise.all([showStores(), showSnapshots(writable)]);
}

start();
