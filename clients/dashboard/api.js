// api: requests to the daemon, with the session's cookie. Errors are ApiError, with the daemon's own sentence.

export class ApiError extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status; // HTTP; 0: the daemon did not answer
    this.field = field; // what of the request is wrong, or null
  }
}

let signedOut = () => {};
export const onSignedOut = (call) => { signedOut = call; };

const parsed = (text) => { try { return JSON.parse(text); } catch { return null; } }; // null: of a proxy, say

// The daemon's time in Unix seconds: its answers carry it, so a browser whose clock is wrong tells right how long a job takes.
let ahead = 0;
export const now = () => Date.now() / 1000 + ahead;
function setClock(answer) {
  const at = Date.parse(answer.headers.get("Date"));
  if (!Number.isNaN(at)) ahead = (at - Date.now()) / 1000;
}

// The text of an answer.
async function send(method, path, body, headers = {}) {
  const json = body !== undefined && !(body instanceof FormData);
  let answer, text;
  try {
    answer = await fetch(path, { method, credentials: "same-origin", cache: "no-store", body: json ? JSON.stringify(body) : body,
      headers: json ? { "Content-Type": "application/json", ...headers } : headers });
    setClock(answer);
    text = await answer.text();
  } catch {
    throw new ApiError(0, "The daemon does not answer. This page tries again by itself.", null);
  }
  if (answer.ok) return text;
  if (answer.status === 401 && !headers.Authorization) signedOut();
  const error = parsed(text)?.error;
  throw new ApiError(answer.status, error?.message ?? `The daemon answered ${answer.status}.`, error?.param ?? null);
}

export const request = async (...words) => parsed(await send(...words));
export const getText = (path) => send("GET", path); // an answer that is no JSON
export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const JOBS = "/v1/fine_tuning/jobs";

// A POST that makes something is sent with a key of its own: sent again, it makes no second one. randomUUID is there on
// https and the loopback only.
export const newKey = () => crypto.randomUUID?.() ?? String(Math.random());
export const make = (path, body, key) => request("POST", path, body, { "Idempotency-Key": key });
