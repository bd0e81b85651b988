// series: a job's metric points, as the API gives them and as the stream adds to them.
// A step has one value a rank: that of its newest attempt, since a run that came back goes over steps again.
// Values that were not finite come as null and are kept as NaN: a gap in the line, with a mark.
import { get, JOBS } from "/dashboard/api.js";

const POINTS_MAX = 1200; // of a series in one answer: more than a chart has pixels
const LIVE_MAX = 3000; // points added live before the whole is asked for again, thinned by the daemon

export class Series {
  constructor(jobId, keys) {
    this.jobId = jobId;
    this.keys = keys;
    this.lines = new Map(); // "key rank" -> Map(step -> {value, attempt})
    this.added = 0;
    this.meanwhile = [];
  }

  put(key, rank, step, value, attempt) {
    const name = `${key} ${rank}`;
    if (!this.lines.has(name)) this.lines.set(name, new Map());
    const line = this.lines.get(name);
    const old = line.get(step);
    if (old === undefined || old.attempt <= attempt) line.set(step, { value: value ?? NaN, attempt });
  }

  // Once at a time: who asks meanwhile waits for the same answer.
  load() { return (this.loading ??= this.read().finally(() => { this.loading = undefined; })); }

  async read() {
    this.meanwhile = []; // messages that come before the answer: it may not have their points
    const answer = await get(`${JOBS}/${this.jobId}/metrics?keys=${this.keys.join()}&max_points=${POINTS_MAX}`);
    this.lines.clear();
    this.added = 0;
    const meanwhile = this.meanwhile;
    this.meanwhile = [];
    for (const message of meanwhile) this.add(message);
    for (const one of answer.data)
      for (const [step, value] of one.points) this.put(one.key, one.rank, step, value, one.attempt);
  }

  // A message of the stream. True: there are so many live points that it should be loaded again.
  add(message) {
    for (const [key, value] of Object.entries(message.metrics))
      if (this.keys.includes(key)) this.put(key, message.rank, message.step, value, message.attempt);
    this.added += 1;
    if (this.meanwhile.length < LIVE_MAX) this.meanwhile.push(message);
    return this.added > LIVE_MAX;
  }

  // {label: Map(step -> number)} of the keys that are there; with ranks, one line a rank.
  pick(labels) {
    const picked = {};
    for (const [name, line] of [...this.lines].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
      const [key, rank] = name.split(" ");
      if (!(key in labels)) continue;
      const ranks = [...this.lines.keys()].filter((other) => other.startsWith(`${key} `)).length;
      picked[ranks > 1 ? `${labels[key]}, rank ${rank}` : labels[key]] = new Map([...line].map(([step, point]) => [step, point.value]));
    }
    return picked;
  }

  // The newest value of a key on each rank: Map(rank -> number).
  last(key) {
    const found = new Map();
    for (const [name, line] of this.lines) {
      const [own, rank] = name.split(" ");
      if (own === key) found.set(Number(rank), line.get(Math.max(...line.keys())).value);
    }
    return found;
  }

  max(key, rank) {
    const line = this.lines.get(`${key} ${rank}`);
    return line ? [...line.values()].reduce((most, point) => Math.max(most, point.value || 0), 0) : 0;
  }
}
