// Dead letters, and their way back.
import { at, keep, make, moment, say } from "./dom.js";
import { ask, notice, order } from "./requests.js";

function letterItem(letter, again) {
  const button = make("button", { type: "button" }, "Redrive");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await order("api/dead-letters/redrive", { topic: letter.topic, partition: letter.partition, offset: letter.offset });
      notice("");
    } catch (error) {
      notice(error.message);
    }
    await again();
  });
  const headers = letter.headers.map(([name, value]) => `\n${name}: ${value ?? "null"}`).join("");
  return make("li", {},
    make("strong", {}, `${letter.exception ?? "unknown error"}: ${letter.message ?? ""}`),
    make("p", { class: "faint" }, `from ${letter.source ?? "no single record"} @ ${letter.source_offset}, letter ${letter.topic}-${letter.partition} @ ${letter.offset}, ${moment(letter.timestamp)}`),
    make("pre", {}, `key ${letter.key ?? "null"}\nvalue ${letter.value ?? "null"}${headers}`),
    make("details", {}, make("summary", {}, "Stack"), make("pre", {}, letter.stacktrace ?? "")),
    make("p", {}, button, make("span", { class: "faint" })),
  );
}

function whyNot(letter, writable) {
  if (letter.redriven) return "written back to its source";
  if (letter.source === null) return "its source is unknown";
  return writable ? "" : "the page has no token, so it changes nothing";
}

/** Show the newest letters. */
export async function showLetters(writable) {
  const again = () => showLetters(writable);
  try {
    const { topics, letters } = await ask("api/dead-letters?limit=50");
    say(at("letters-about"), topics.length === 0 ? "The app has no dead letter topic: errors_dead_letter_queue_topic_name sets one." : `${letters.length} of ${topics.join(", ")}, the newest first`);
    keep(at("letters"), letters, (one) => `${one.topic} ${one.partition} ${one.offset}`, (one) => letterItem(one, again), (item, one) => {
      const [button, text] = item.lastElementChild.children;
      const reason = whyNot(one, writable);
      button.hidden = reason !== "";
      button.disabled = false;
      say(text, reason);
    });
  } catch (error) {
    say(at("letters-about"), error.message);
  }
}
