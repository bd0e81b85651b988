// machine_disk: what the daemon's disk holds, by kind, and the jobs that have most of it. Read once as the page opens:
// the daemon walks its folders for it.
import { get } from "/dashboard/api.js";
import { bar, keys } from "/dashboard/bars.js";
import { fill, h, note, row, table } from "/dashboard/dom.js";
import { bytes } from "/dashboard/text.js";

const JOBS_SHOWN = 5;
const HEADS = ["Largest jobs", "Owner", "On disk"];

export function diskCard() {
  const body = h("div", {}, h("p", { class: "soft", role: "status" }, "The disk is looked at…"));
  get("/v1/storage").then((disk) => {
    const kinds = disk.kinds.filter((one) => one.bytes > 0).map((one, i) => [one.kind, one.bytes, i % 8]);
    const others = disk.disk_bytes > 0 ? disk.disk_bytes - disk.free_bytes - disk.bytes : 0;
    const list = others > 0 ? [...kinds, ["not Ithaca's", others, "none"]] : kinds, prunable = disk.kinds.reduce((sum, one) => sum + one.prunable_bytes, 0);
    fill(body, bar("in use", list, disk.disk_bytes || disk.bytes, null), keys(list),
      h("p", { class: "soft small" }, `${disk.disk_bytes ? `${bytes(disk.free_bytes)} of ${bytes(disk.disk_bytes)} are free. ` : ""}${bytes(prunable)} are not needed: `,
        h("code", {}, "ithaca prune"), " removes them."),
      disk.jobs.length > 0 ? table(HEADS, disk.jobs.slice(0, JOBS_SHOWN).map((one) => row(HEADS, [h("a", { class: "mono", href: `#/jobs/${one.id}` }, one.id), one.user, bytes(one.bytes)]))) : null);
  }, (error) => fill(body, note("bad", error.message)));
  return h("section", { class: "card" }, h("h2", {}, "Disk"), body);
}
