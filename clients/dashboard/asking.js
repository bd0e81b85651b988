// asking: what a form asks the daemon for: what it is made of, the plan of what is typed, and in the end what is to be made.
// Where the daemon is away, the first two are asked for again when it is back.
import { ApiError, make, newKey, post } from "/dashboard/api.js";
import { fill, note } from "/dashboard/dom.js";
import { goTo, refuse } from "/dashboard/form.js";
import { listen } from "/dashboard/live.js";

const TYPING_MS = 350; // so long nothing is typed before a plan is asked for

// Does call() again when the daemon is back, where it was away. Returns what ends that.
function again(call) {
  let away = false;
  const stop = listen((kind) => { if (kind === "open" && away) { away = false; call(); } });
  return { failed: (error) => { away = error.status === 0; }, stop };
}

// Asks for the plan of what is typed, once nothing more is: show(answer) or fail(error), of the newest question alone.
export function planning(path, show, fail) {
  let timer = 0, asked = 0, body = null; // null: there is nothing to ask
  const run = async () => {
    if (body === null) return;
    const own = asked += 1, answer = await post(path, body).catch((error) => error);
    if (own !== asked) return;
    if (!(answer instanceof ApiError)) { show(answer); return; }
    retry.failed(answer);
    fail(answer);
  };
  const retry = again(run);
  const drop = () => { clearTimeout(timer); asked += 1; body = null; };
  const ask = (what) => { drop(); body = what; timer = setTimeout(run, TYPING_MS); };
  return { ask, drop, end: () => { drop(); retry.stop(); } };
}

// What the form's button sends: (body, fields) -> what was made, or null, and what is wrong is said at its field and in
// `wrong`. Sent again after no answer, it is the same request.
export function making(path, button, wrong) {
  let key = newKey();
  return async (body, fields) => {
    button.disabled = true;
    try { return await make(path, body, key); } catch (error) {
      const field = refuse(fields, error);
      fill(wrong, note("bad", error.message));
      if (error.status !== 0) key = newKey(); // an answer: the next is another request
      button.disabled = false;
      if (field) goTo(field);
      else button.focus();
      return null;
    }
  };
}

// A page that is made once what it needs is there: read() -> what build(...) takes.
export function made(view, read, build) {
  let ended = false;
  const run = () => read().then((all) => { if (!ended) build(...all); }, (error) => {
    if (ended) return;
    retry.failed(error);
    fill(view, note("bad", error.message));
  });
  const retry = again(run);
  run();
  return () => { ended = true; retry.stop(); };
}
