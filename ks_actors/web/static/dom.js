// Elements are made of text alone: no name from the log is ever read as HTML.

/** Return the element of an id. */
export const at = (id) => document.getElementById(id);

/** Return a new element with attributes and children; texts stay texts. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return a new element of a drawing. */
export function draw(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Set the text of an element, if it differs: a selection in it survives. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of a parent those of a list, by key: elements that stay are updated, and keep the focus. */
export function keep(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const kept = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = before.get(key);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key;
    }
    before.delete(key);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    kept.add(child);
    update(child, item);
  }
  // Several items may have one key: then the map above has only one of their elements.
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
}

/** Return a whole number with all its digits. */
export const exact = (value) => value.toLocaleString("en");

/** Return a number in few characters; an unknown one is "?". */
export function short(value) {
  if (value === null || value === undefined) return "?";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

/** Return a number of things in words. */
export const counted = (count, noun) => `${short(count)} ${count === 1 ? noun : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;

/** Return a rate in records per second. */
export const rate = (value) => (value === null || value === undefined ? "?" : `${short(value)}/s`);

/** Return a time in ms as seconds, minutes, hours or days. */
export function lasted(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** Return a wall-clock time in ms as the reader's own. */
export const clock = (ms) => new Date(ms).toLocaleTimeString();

/** Return a timestamp in ms as a time in UTC; dates end in the year 275,760, timestamps do not. */
export function moment(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
}

/** Return a timestamp in ms in few characters: the reader's own time, with the date unless it is of today. */
export function brief(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  if (date.toDateString() === new Date().toDateString()) return date.toLocaleTimeString();
  return date.toLocaleString([], { dateStyle: "short", timeStyle: "short" });
}

/** Return two timestamps in ms as one text. */
export const span = (first, last) => (brief(first) === brief(last) ? brief(first) : `${brief(first)} – ${brief(last)}`);
