// api: requests to the daemon, with the session's cookie. Errors are ApiError, with the daemon's own sentence.

export class ApiError extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status; // HTTP; 0: the daemon did not answer
    this.field = field; // what of the request is wrong, or null
  }
}

const AWAY = "The daemon does not answer. This page tries again by itself.";
let signedOut = () => {};
export const onSignedOut = (call) => { signedOut = call; };

export async function request(method, path, body, headers = {}) {
  const json = body !== undefined && !(body instanceof FormData);
  let answer, text;
  try {
    answer = await fetch(path, { method, credentials: "same-origin", cache: "no-store", body: json ? JSON.stringify(body) : body,
      headers: json ? { "Content-Type": "application/json", ...headers } : headers });
    text = await answer.text();
  } catch {
    throw new ApiError(0, AWAY, null);
  }
  let value = null;
  try { value = JSON.parse(text); } catch { /* a proxy's page */ }
  if (answer.ok) return value;
  if (answer.status === 401 && !headers.Authorization) signedOut();
  throw new ApiError(answer.status, value?.error?.message ?? `The daemon answered ${answer.status}.`, value?.error?.param ?? null);
}

// An answer that is no JSON.
export async function getText(path) {
  const answer = await fetch(path, { credentials: "same-origin", cache: "no-store" }).catch(() => { throw new ApiError(0, AWAY, null); });
  const text = await answer.text();
  if (!answer.ok) throw new ApiError(answer.status, text, null);
  return text;
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const JOBS = "/v1/fine_tuning/jobs";

// A POST that makes a job is sent with a key of its own: sent again, it makes no second one.
export const submit = (body, key) => request("POST", JOBS, body, { "Idempotency-Key": key });
