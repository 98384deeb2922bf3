// The query box.
import { at, make, say } from "./dom.js";
import { ask } from "./requests.js";

let stores = [];

function about() {
  const store = stores.find((one) => one.name === at("store").value);
  if (store === undefined) {
    say(at("store-about"), "This topology has no store that can be asked.");
    return;
  }
  const where = store.everywhere ? "whole on each instance" : "the partitions of this instance";
  say(at("store-about"), `${store.kind}, keys by ${store.key}, values by ${store.value}, ${where}`);
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

async function query(event) {
  event.preventDefault();
  const asked = new URLSearchParams();
  for (const name of ["key", "from", "to", "limit"]) if (at(name).value !== "") asked.set(name, at(name).value);
  const problem = at("query-error"), table = at("rows");
  try {
    const found = await ask(`api/stores/${encodeURIComponent(at("store").value)}?${asked}`);
    const rows = found.rows.map((row) => make("tr", {}, make("td", {}, shown(row.key)), make("td", {}, row.at === null ? "" : shown(row.at)), make("td", {}, shown(row.value))));
    table.tBodies[0].replaceChildren(...rows);
    table.hidden = rows.length === 0;
    say(problem, rows.length === 0 ? "no rows" : found.more ? "there are more rows: narrow the range, or ask for more" : "");
  } catch (error) {
    table.hidden = true;
    say(problem, error.message);
  }
  problem.hidden = problem.textContent === "";
}

/** Show the stores of the topology, to be asked. */
export async function showStores() {
  try {
    stores = (await ask("api/stores")).filter((one) => one.queryable);
  } catch (error) {
    say(at("query-error"), error.message);
    at("query-error").hidden = false;
  }
  at("store").replaceChildren(...stores.map((one) => make("option", { value: one.name }, one.name)));
  at("query").hidden = stores.length === 0;
  about();
}

at("store").addEventListener("change", about);
at("query").addEventListener("submit", query);
