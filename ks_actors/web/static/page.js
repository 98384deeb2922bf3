// The page: it listens to the views of the app, one each second, and shows them.
import { at, clock, counted, keep, lasted, make, rate, say, short } from "./dom.js";
import { authorize, ask, notice, order } from "./requests.js";
import { showLetters } from "./letters.js";
import { showSnapshots } from "./snapshots.js";
import { showStores } from "./stores.js";
import { Drawing } from "./topology.js";

let drawing = null;
let writable = false;
// Dead letters are asked for once the app has a log.
let lettersShown = false;
// Views come each second: after some without any, those shown are old.
const SILENT_MS = 5000;
const ORDERS = ["pause", "resume", "snapshot"];
let away = false, heard = 0, answered = null;

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

at("pause").addEventListener("click", () => ordered(at("pause"), "api/pause"));
at("resume").addEventListener("click", () => ordered(at("resume"), "api/resume"));
at("snapshot").addEventListener("click", () => ordered(at("snapshot"), "api/snapshots", () => showSnapshots(writable)));
at("letters-again").addEventListener("click", () => showLetters(writable));

function showHealth(health) {
  const badge = at("health");
  badge.className = `badge ${health.ready ? "good" : health.live ? "warn" : "bad"}`;
  say(badge, `${health.ready ? "ready" : health.live ? "not ready" : "not live"} · ${health.state}`);
  keep(at("problems"), health.problems, (one) => `${one.reason} ${one.task} ${one.partition}`, () => make("li"), (item, one) => {
    say(item, `${one.reason}: ${one.text}`);
    item.title = one.runbook;
  });
}

function showFigures(view, reasons) {
  const figures = [
    ["Processed", rate(view.processed_rate)],
    ["Produced", rate(view.produced_rate)],
    ["Dropped", rate(view.dropped_rate), reasons.has("dropping")],
    ["Lag here", lagText(view.lag, reasons)],
    ["Tasks", String(view.tasks.filter((task) => !task.standby).length)],
    ["Standbys", String(view.tasks.filter((task) => task.standby).length)],
    ["Workers", String(view.workers.length)],
    ["Instances", view.group.members.length ? String(view.group.members.length) : "–"],
  ];
  keep(at("figures"), figures, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (item, [, text, bad]) => {
    item.className = bad ? "bad" : "";
    say(item.lastElementChild, text);
  });
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
  return task.restores.length ? "" : task.standby ? "follows its changelogs" : "goes on";
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

function newTask(task) {
  const cell = (label, ...children) => make("td", { "data-label": label }, ...children);
  return make("tr", {}, make("td", {}, task.task), cell("State"), cell("Partitions"), cell("Lag"), make("td", {}, make("div"), make("div")));
}

function showTask(row, task, reasons) {
  row.className = task.stuck ? "stuck" : "";
  const [, state, partitions, lag, now] = row.children;
  say(state, task.standby ? `standby, ${task.state}` : task.state);
  say(partitions, task.partitions.map((one) => `${one.partition} @ ${one.position ?? "?"}`).join(", "));
  say(lag, lagText(lagOf(task), reasons));
  keep(now.firstElementChild, task.restores.filter((one) => one.share !== null), (one) => one.changelog, newBar, showBar);
  say(now.lastElementChild, doing(task));
}

function showMember(item, one) {
  const tasks = one.tasks === null ? "tasks unknown: the group rebalances" : counted(one.tasks.length, "task");
  item.className = one.here ? "here" : "";
  say(item.children[0], one.client_id);
  say(item.children[1], `${one.here ? "this instance" : one.host || "in this process"}, ${tasks}`);
  keep(item.children[2], one.tasks ?? [], (task) => task, (task) => make("span", { class: "chip" }, task), () => {});
}

function showGroup({ members, partitions, error }) {
  at("group-error").hidden = error === null;
  say(at("group-error"), error ?? "");
  // The members and the lag are then those last known.
  for (const id of ["members", "lag"]) at(id).classList.toggle("old", error !== null);
  keep(at("members"), members, (one) => one.member_id, () => make("li", {}, make("strong"), make("p", { class: "faint" }), make("div", { class: "chips" })), showMember);
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
  say(at("client"), `${view.client_id} · ks-actors ${view.version}`);
  document.title = `${view.application_id} · ks-actors`;
  const reasons = new Set(view.health.problems.map((one) => one.reason));
  showHealth(view.health);
  showFigures(view, reasons);
  keep(at("tasks").tBodies[0], view.tasks, (one) => `${one.task} ${one.standby}`, newTask, (row, task) => showTask(row, task, reasons));
  showGroup(view.group);
  keep(at("events"), [...view.events].reverse(), (one) => `${one.at_ms} ${one.text}`, (one) => make("li", {}, make("time", {}, clock(one.at_ms)), one.text), () => {});
  drawing?.update(view, (lag) => lagText(lag, reasons));
  if (!lettersShown && ["REBALANCING", "RUNNING"].includes(view.health.state)) {
    lettersShown = true;
    showLetters(writable);
  }
  at("pause").hidden = !writable || view.paused;
  at("resume").hidden = !writable || !view.paused;
  document.body.dataset.views = String(Number(document.body.dataset.views ?? 0) + 1);
}

/** Note whether the instance answers: without, all is of the time of its last answer, and looks so. */
function noteAway(now) {
  if (now && !away) {
    const since = answered === null ? "" : `; all below is of ${clock(answered)}, its last answer`;
    notice(`the instance does not answer${since}; the page asks again each second`);
    at("health").className = "badge bad";
    say(at("health"), "no answer");
  } else if (away && !now) {
    notice("");
  }
  if (away !== now) for (const id of ORDERS) at(id).disabled = now;
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
