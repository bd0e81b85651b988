// series: a job's metric points, as the API gives them and as the stream adds to them.
// A step has one value a rank: that of its newest attempt, since a run that came back goes over steps again.
// Values that were not finite come as null and are kept as NaN: a gap in the line, with a mark.
import { get, JOBS } from "/dashboard/api.js";

const POINTS_MAX = 1200; // of a series in one answer: more than a chart has pixels
const POINTS_MIN = 60; // of a series of one rank of many: they share that number
const LIVE_MAX = 3000; // points added live before the whole is asked for again, thinned by the daemon

export class Series {
  // keys: metrics of the job; rankKeys: those that each rank has
  constructor(jobId, keys, rankKeys = []) {
    this.jobId = jobId;
    this.keys = keys;
    this.rankKeys = rankKeys;
    this.ranks = 1; // of the job, where it has rankKeys: its reader's to set
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
    const ask = (keys, points) => (keys.length === 0 ? { data: [] } : get(`${JOBS}/${this.jobId}/metrics?keys=${keys.join()}&max_points=${points}`));
    const answers = await Promise.all([ask(this.keys, POINTS_MAX), ask(this.rankKeys, Math.max(POINTS_MIN, Math.floor(POINTS_MAX / this.ranks)))]);
    this.lines.clear();
    this.added = 0;
    for (const one of answers.flatMap((answer) => answer.data))
      for (const [step, value] of one.points) this.put(one.key, one.rank, step, value, one.attempt);
    for (const message of this.meanwhile.splice(0)) this.add(message);
  }

  // A message of the stream. True: there are so many live points that it should be loaded again.
  add(message) {
    for (const [key, value] of Object.entries(message.metrics))
      if (this.keys.includes(key) || this.rankKeys.includes(key)) this.put(key, message.rank, message.step, value, message.attempt);
    this.added += 1;
    if (this.loading && this.meanwhile.length < LIVE_MAX) this.meanwhile.push(message);
    return this.added > LIVE_MAX;
  }

  has(key) { return this.lines.has(key); }

  // {label: Map(step -> number)} of the keys that are there: of one rank, or of all, one line a rank.
  pick(labels, only) {
    const picked = {}, keys = Object.keys(labels).filter((key) => this.has(key)).sort();
    for (const key of keys) {
      const ranks = this.lines.get(key);
      for (const [rank, line] of [...ranks].sort(([a], [b]) => a - b)) {
        if (only !== undefined && rank !== only) continue;
        const label = only !== undefined || ranks.size === 1 ? labels[key] : keys.length === 1 ? `rank ${rank}` : `${labels[key]}, rank ${rank}`;
        picked[label] = new Map([...line].map(([step, point]) => [step, point.value]));
      }
    }
    return picked;
  }

  // The newest value of a key on a rank, and its largest; undefined: there is none.
  newest(key, rank = 0) {
    const line = this.lines.get(key)?.get(rank);
    return line?.get(Math.max(...line.keys()))?.value;
  }

  largest(key, rank) {
    const line = this.lines.get(key)?.get(rank);
    return line && [...line.values()].reduce((most, point) => Math.max(most, point.value || 0), 0);
  }
}
