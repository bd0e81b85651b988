// live: the one event stream of a tab. The browser comes back by itself, with the id of the last message, and gets what
// it missed; where it gave up (the daemon was away), a new stream is opened with growing pauses. Whenever a stream
// opens, listeners hear "open" and read anew what they show: nothing falls between a page's answer and its stream.
// A browser has some six connections to a daemon for all its tabs, so a tab that nobody looks at gives its own back.

const HIDDEN_MS = 20000;
const listeners = new Set();
let source = null, timer = 0, pause = 1000, hidden = 0, check = null; // check: see start(); null: stopped

// listener(kind, data): kind is open, lost, state, event or metrics. Returns the call that ends it.
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = (kind, data) => { for (const listener of [...listeners]) listener(kind, data); };

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

function open() {
  close();
  source = new EventSource("/v1/stream");
  source.onopen = () => { pause = 1000; tell("open"); };
  source.onerror = () => {
    tell("lost");
    if (source === null || source.readyState !== EventSource.CLOSED) return;
    timer = setTimeout(async () => { if (await check?.()) open(); }, pause);
    pause = Math.min(30000, 2 * pause);
  };
  for (const kind of ["state", "event", "metrics"])
    source.addEventListener(kind, (message) => tell(kind, JSON.parse(message.data)));
}

// may() says, before a lost stream is opened anew, whether there is still a session.
export function start(may) {
  check = may;
  open();
}

export function stop() {
  check = null;
  close();
}

// Whether "open" or "lost" is about to come.
export const opening = () => source?.readyState === EventSource.CONNECTING;

document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(close, HIDDEN_MS);
  else if (check !== null && source === null) open();
});
