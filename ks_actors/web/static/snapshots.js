// The snapshots of the application.
import { at, counted, keep, make, say } from "./dom.js";
import { ask } from "./requests.js";

/** Show the snapshots that there are. */
export async function showSnapshots(writable) {
  try {
    const { uri, snapshots, refused } = await ask("api/snapshots");
    const others = refused.length ? `; not usable: ${refused.join("; ")}` : "";
    at("snapshot").hidden = !writable || uri === null;
    say(at("snapshots-about"), uri === null ? "The app takes none: snapshot_uri sets a place." : `${snapshots.length} at ${uri}${others}`);
    keep(at("snapshots"), snapshots, (one) => one.name, (one) => make("li", {}, `${one.name}: ${counted(one.tasks, "task")}, ${counted(one.rows, "row")}, ${new Date(one.created_ms).toLocaleString()}`), () => {});
  } catch (error) {
    say(at("snapshots-about"), error.message);
  }
}
