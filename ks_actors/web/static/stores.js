// The query box.
import { at, brief, make, say, span } from "./dom.js";
import { ask } from "./requests.js";

let stores = [];

function about() {
  const store = stores.find((one) => one.name === at("store").value);
  if (store === undefined) {
    say(at("store-about"), "This topology has no store that can be asked.");
    return;
  }
  const where = store.everywhere ? "all rows are on each instance" : "the rows of this instance's partitions";
  say(at("store-about"), `${KINDS.find(([part]) => store.kind.includes(part))[1]}; keys ${named(store.key)}, values ${named(store.value)}; ${where}`);
}

// The first part that is in a store's kind tells its words.
const KINDS = [["version", "Versions by key"], ["session", "Sessions by key"], ["window", "Windows by key"], ["key_value", "Rows by key"], ["", "A store of its own kind"]];

/** Return the name of a serde without what Python adds. */
const named = (serde) => serde.replace(/^<Serde (.*)>$/, "$1");

/** Return the time of a row: of its window, session or version. */
function time(at) {
  if (!Array.isArray(at)) return at === null ? "" : brief(at);
  return at[1] === null ? `since ${brief(at[0])}` : span(...at);
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

async function query(event) {
  event.preventDefault();
  const asked = new URLSearchParams();
  for (const name of ["key", "from", "to", "limit"]) if (at(name).value !== "") asked.set(name, at(name).value);
  const problem = at("query-error"), table = at("rows");
  try {
    const found = await ask(`api/stores/${encodeURIComponent(at("store").value)}?${asked}`);
    const rows = found.rows.map((row) => make("tr", {}, make("td", {}, shown(row.key)), make("td", {}, time(row.at)), make("td", {}, shown(row.value))));
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
