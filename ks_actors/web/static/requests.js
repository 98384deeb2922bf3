// Requests to the app, and the token for those that change something.
import { at, say } from "./dom.js";

/** Take the token from the address, where it is behind the #, and keep it for this tab. */
export function authorize() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  at("token").value = sessionStorage.getItem("token") ?? "";
  at("token").addEventListener("input", () => sessionStorage.setItem("token", at("token").value.trim()));
}

/** Return the answer to a request; an error has the app's own text. */
export async function ask(path, options = {}) {
  const response = await fetch(path, options);
  let found = null;
  try {
    found = await response.json();
  } catch {
    throw new Error(`${path}: ${response.status} ${response.statusText}`);
  }
  if (!response.ok) throw new Error(found.error ?? (`${path}: ${response.status} ${response.statusText}`));
  return found;
}

/** Give an order, with the token. */
export async function order(path, body) {
  const headers = { authorization: `Bearer ${at("token").value.trim()}`, "content-type": "application/json" };
  return ask(path, { method: "POST", headers, body: body === undefined ? undefined : JSON.stringify(body) });
}

/** Show a text above everything; the empty one hides it. */
export function notice(text) {
  at("notice").hidden = text === "";
  say(at("notice"), text);
}
