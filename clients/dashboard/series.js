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
    this.lines = new Map(); // key -> Map(rank -> Map(step -> {value, attempt}))
    this.added = 0;
    this.meanwhile = [];
  }

  put(key, rank, step, value, attempt) {
    if (!this.lines.has(key)) this.lines.set(key, new Map());
    const ranks = this.lines.get(key);
    if (!ranks.has(rank)) ranks.set(rank, new Map());
    const line = ranks.get(rank), old = line.get(step);
    if (old === undefined || old.attempt <= attempt) line.set(step, { value: value ?? NaN, attempt });
  }

  // Once at a time: who asks meanwhile waits for the same answer.
  load() { return (this.loading ??= this.read().finally(() => { this.loading = undefined; })); }

  async read() {
    this.meanwhile = []; // messages that come before the answer: it may not have their points
    const answer = await get(`${JOBS}/${this.jobId}/metrics?keys=${this.keys.join()}&max_points=${POINTS_MAX}`);
    this.lines.clear();
    this.added = 0;
    for (const one of answer.data)
      for (const [step, value] of one.points) this.put(one.key, one.rank, step, value, one.attempt);
    for (const message of this.meanwhile.splice(0)) this.add(message);
  }

  // A message of the stream. True: there are so many live points that it should be loaded again.
  add(message) {
    for (const [key, value] of Object.entries(message.metrics))
      if (this.keys.includes(key)) this.put(key, message.rank, message.step, value, message.attempt);
    this.added += 1;
    if (this.loading && this.meanwhile.length < LIVE_MAX) this.meanwhile.push(message);
    return this.added > LIVE_MAX;
  }

  // {label: Map(step -> number)} of the keys that are there: of one rank, or of all, one line a rank.
  pick(labels, only) {
    const picked = {};
    for (const key of Object.keys(labels).sort()) {
      const ranks = this.lines.get(key) ?? new Map();
      for (const [rank, line] of [...ranks].sort(([a], [b]) => a - b)) {
        if (only !== undefined && rank !== only) continue;
        picked[only === undefined && ranks.size > 1 ? `${labels[key]}, rank ${rank}` : labels[key]] = new Map([...line].map(([step, point]) => [step, point.value]));
      }
    }
    return picked;
  }

  // The largest value of a key on each rank: [[rank, number]], in order of ranks.
  largest(key) {
    return [...this.lines.get(key) ?? []].sort(([a], [b]) => a - b)
      .map(([rank, line]) => [rank, [...line.values()].reduce((most, point) => Math.max(most, point.value || 0), 0)]);
  }
}
