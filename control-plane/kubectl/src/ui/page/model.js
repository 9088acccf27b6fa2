// What is drawn, computed from the answers of the commands. Nothing here touches the document, so
// that node can test it.

// Words of times.

export function span(seconds) {
  const all = Math.max(0, Math.round(seconds));
  const pad = (n) => String(n).padStart(2, "0");
  if (all < 120) return `${all} s`;
  if (all < 7200) return `${Math.floor(all / 60)} min ${pad(all % 60)} s`;
  if (all < 172800) return `${Math.floor(all / 3600)} h ${pad(Math.floor((all % 3600) / 60))} min`;
  return `${Math.floor(all / 86400)} days`;
}
export const moment = (time) => (time ? time.replace("T", " ").replace(/\.\d+Z$/, "Z") : "–");
export const ago = (time, now) => (time ? `${span((now - Date.parse(time)) / 1000)} ago` : "never");
export const inTime = (at, now) => (at > now ? `in ${span((at - now) / 1000)}` : "now");
export const plural = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;

// The whole fleet.

const SIGNS = { well: "✔", notice: "▼", attention: "!", alarm: "✖", unknown: "?" };
export const KINDS = { well: "good", notice: "warn", attention: "warn", alarm: "bad", unknown: "bad" };
// Returns the words above all, the title of the tab and its icon. Without a status nothing is known.
export function headline(status) {
  const { severity, sentence } = status ? status.summary : { severity: "unknown", sentence: "the fleet could not be read" };
  const sign = SIGNS[severity];
  const count = status?.counts;
  const clusters = count && count.notWell ? [plural(count.notWell, "cluster")] : [];
  // A workload may be in several lists, and the sum would count it twice.
  const number = count ? Math.max(count.stranded + count.waiting + count.unheard, count.unplaced, count.withoutDependencies) : 0;
  const need = [...clusters, ...(number ? [plural(number, "workload")] : [])].join(", ");
  const short = { well: "all well", notice: "by order", unknown: "not known" }[severity] || need || "attention";
  return { severity, sentence: `${sign} ${sentence}`, title: `${sign} ${short} – Muster`, icon: `${severity}.svg` };
}

// Clusters.

export const STATES = {
  silent: { sign: "?", words: "silent", kind: "bad" },
  new: { sign: "?", words: "never heard", kind: "bad" },
  notReady: { sign: "✖", words: "not ready", kind: "bad" },
  attention: { sign: "!", words: "needs attention", kind: "warn" },
  ordered: { sign: "▼", words: "by order", kind: "warn" },
  ready: { sign: "✔", words: "ready", kind: "good" },
};
const RANK = Object.keys(STATES);
export function stateOf(it, order) {
  if (it.ready === "False") return "notReady";
  if (it.ready !== "True") return it.reason === "NeverReported" ? "new" : "silent";
  if (it.concern) return "attention";
  if (order || it.paused) return "ordered";
  return it.taints.length ? "attention" : "ready";
}

// Returns by what clusters can be grouped: fields, and keys of labels.
export function groupings(clusters) {
  const labels = new Set(clusters.flatMap((it) => Object.keys(it.labels || {})));
  return ["region", "syncMode", "kubernetes", "agent", ...[...labels].sort().map((it) => `label ${it}`)];
}
const groupOf = (it, by) => (by.startsWith("label ") ? it.labels?.[by.slice(6)] : it[by]) || "";
// Returns the groups, those of the worst state first, and in each the worst clusters first.
export function groups(clusters, by, orders) {
  const found = new Map();
  for (const cluster of clusters) {
    const name = groupOf(cluster, by);
    if (!found.has(name)) found.set(name, { name, clusters: [], counts: {}, workloads: 0 });
    const group = found.get(name);
    const state = stateOf(cluster, orders.get(cluster.name));
    group.clusters.push({ ...cluster, state });
    group.counts[state] = (group.counts[state] || 0) + 1;
    // What is not known of one is not known of all.
    group.workloads = cluster.workloads === null || group.workloads === null ? null : group.workloads + cluster.workloads;
  }
  const rank = (it) => RANK.indexOf(it.state);
  for (const group of found.values()) group.clusters.sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const worst = (group) => RANK.findIndex((it) => group.counts[it]);
  return [...found.values()].sort((a, b) => worst(a) - worst(b) || (a.name < b.name ? -1 : 1));
}
export function counted(counts) {
  return RANK.filter((it) => counts[it]).map((it) => `${counts[it]} ${STATES[it].words}`).join(", ");
}

// The map: a box for each group, a tile for each cluster of a group that is open.

const NAMED = 60; // clusters up to which each tile has its name, and all groups are open
const FEW = 20; // clusters up to which tiles are larger
const TILES = 600; // tiles of a group
const GROUPS = 80; // boxes
const [PAD, GAP, BETWEEN, HEAD] = [8, 8, 32, 22];
export function layout(all, { width, open }) {
  const total = all.reduce((sum, it) => sum + it.clusters.length, 0);
  const named = total <= NAMED;
  const most = Math.max(1, ...all.flatMap((it) => it.clusters).map((it) => it.workloads || 0));
  const size = (it) => Math.sqrt((it.workloads || 0) / most);
  const [wide, high] = total <= FEW ? [190, 76] : [150, 60];
  const boxes = [];
  let [x, y, line] = [0, 0, 0];
  for (const group of all.slice(0, GROUPS)) {
    const isOpen = named || open.has(group.name);
    const shown = isOpen ? group.clusters.slice(0, TILES) : [];
    const tiles = shown.map((cluster) => {
      const side = 24 + 20 * size(cluster);
      return named ? { cluster, w: Math.min(wide + 90 * size(cluster), width - 2 * PAD), h: high + 30 * size(cluster) } : { cluster, w: side, h: side };
    });
    const needed = tiles.reduce((sum, it) => sum + it.w + GAP, -GAP);
    const w = isOpen ? Math.min(width, Math.max(needed, 225) + 2 * PAD) : width < 2 * 190 + BETWEEN ? (width - BETWEEN) / 2 : 190;
    let [tx, ty, row] = [PAD, HEAD + PAD, 0];
    for (const tile of tiles) {
      if (tx > PAD && tx + tile.w > w - PAD + 0.5) [tx, ty, row] = [PAD, ty + row + GAP, 0];
      Object.assign(tile, { x: tx, y: ty });
      row = Math.max(row, tile.h);
      tx += tile.w + GAP;
    }
    const h = isOpen ? ty + row + PAD : 64;
    if (x > 0 && x + w > width) [x, y, line] = [0, y + line + BETWEEN, 0];
    for (const tile of tiles) Object.assign(tile, { x: tile.x + x, y: tile.y + y });
    boxes.push({ group, isOpen, named, x, y, w, h, tiles, more: isOpen ? group.clusters.length - shown.length : 0 });
    line = Math.max(line, h);
    x += w + BETWEEN;
  }
  return { boxes, named, height: y + line + BETWEEN, more: Math.max(0, all.length - GROUPS) };
}

// Returns what goes from one cluster to another: what moves now, and what failovers that last have
// placed.
export function flows(status, failovers) {
  const found = new Map();
  const add = (from, to, what, workloads) => {
    if (from === to) return;
    const key = `${from}\n${to}`;
    if (!found.has(key)) found.set(key, { from, to, moving: 0, moved: 0 });
    found.get(key)[what] += workloads;
  };
  for (const it of status?.flows || []) add(it.from, it.to, "moving", it.workloads);
  for (const it of failovers) {
    if (it.status?.state === "Ended" || isOver(it)) continue;
    for (const to of it.status?.targets || []) add(it.spec.cluster, to.cluster, "moved", to.workloads);
  }
  return [...found.values()].sort((a, b) => b.moving - a.moving || b.moved - a.moved);
}
// What moved before the cause returned is over.
function isOver({ status }) {
  const returned = status?.returns?.at(-1)?.returned;
  return returned !== undefined && Date.parse(status.times?.lastMove) < Date.parse(returned);
}
// Returns the arrows: between tiles, or the boxes of clusters that have none.
export function arrows(all, { boxes }) {
  const places = new Map();
  for (const box of boxes) {
    for (const it of box.group.clusters) places.set(it.name, [box, box]);
    for (const tile of box.tiles) places.set(tile.cluster.name, [tile, box]);
  }
  const found = new Map();
  for (const it of all) {
    const [[from, a], [to, b]] = [places.get(it.from) || [], places.get(it.to) || []];
    if (!from || !to || from === to) continue;
    const below = Math.max(a.y + a.h, b.y + b.h);
    const others = found.get(from) || found.set(from, new Map()).get(from);
    const arrow = others.get(to) || others.set(to, { from, to, below, moving: 0, moved: 0 }).get(to);
    arrow.moving += it.moving;
    arrow.moved += it.moved;
  }
  return [...found.values()].flatMap((it) => [...it.values()]).slice(0, 40).map(arrow);
}
// Draws an arrow around what lies between: below the boxes of a row, or from row to row.
function arrow({ from, to, moving, moved, below }, at) {
  const middle = (it) => it.x + it.w / 2;
  const bottom = (it) => it.y + it.h;
  const isBeside = from.y < bottom(to) && to.y < bottom(from);
  const down = isBeside || to.y > from.y;
  const [sx, sy] = [middle(from), down ? bottom(from) : from.y];
  const [ex, ey] = [middle(to) - 8 + (at % 3) * 8, isBeside || !down ? bottom(to) : to.y];
  // The direction in which it leaves, and from which it arrives.
  const [leave, arrive] = [down ? 1 : -1, isBeside || !down ? 1 : -1];
  const far = isBeside ? (4 / 3) * (Math.max(0, below - Math.max(sy, ey)) + 8 + (at % 3) * 7) : Math.max(24, Math.abs(ey - sy) / 2);
  const tip = (side) => `${r(ex + side)},${r(ey + arrive * 11)}`;
  const [ay, by] = [sy + leave * far, ey + arrive * (far + 8)];
  return {
    path: `M${r(sx)},${r(sy)} C${r(sx)},${r(ay)} ${r(ex)},${r(by)} ${r(ex)},${r(ey + arrive * 8)}`,
    head: `${r(ex)},${r(ey)} ${tip(5)} ${tip(-5)}`,
    x: r((sx + ex) / 2), y: r((sy + ey + 3 * (ay + by)) / 8),
    label: String(moving || moved), kind: moving ? "moving" : "moved",
    wide: Math.min(6, 1.5 + Math.log2(1 + (moving || moved)) / 2),
  };
}
const r = (number) => Math.round(number * 10) / 10;

// Strips of time: one a failover.

const STRIPS = 3; // failovers that have ended are shown while there are fewer strips than this
const CAUSES = { ClusterUnreachable: "silent", ClusterNotReady: "not ready", Drain: "drained", TaintPolicy: "tainted by a policy", Taint: "tainted", ApplicationFailure: "applications unhealthy" };
export function strips(failovers, status, now) {
  const lasting = failovers.filter((it) => it.status?.state !== "Ended").slice(0, 2 * STRIPS);
  const ended = failovers.filter((it) => it.status?.state === "Ended");
  return [...lasting, ...ended.slice(0, Math.max(0, STRIPS - lasting.length))].map((it) => strip(it, status, now));
}
export function strip(it, status, now) {
  const { times = {}, workloads: count = {}, cause = {}, returns = [], state } = it.status || {};
  const start = Date.parse(it.spec.startTime);
  const at = (time) => (time ? (Date.parse(time) - start) / 1000 : undefined);
  const today = (now - start) / 1000;
  const last = Math.max(...["recovered", "healthy", "cleaned", "ended", "lastMove"].map((key) => at(times[key]) ?? 0));
  const end = Math.max(10, state === "Ended" ? last : today);
  const lane = (what, words, kind, parts) => ({ what, words, kind, parts: parts.filter(([from]) => from !== undefined).map(([from, to]) => ({ from: Math.max(0, from), to: to ?? end, open: to === undefined })) });
  const over = at(times.recovered);
  // A cause that returned is over only after its last return.
  const breaks = returns.map((it) => [at(it.recovered), at(it.returned)]);
  const causes = [];
  let begin = 0;
  for (const [recovered, returned] of breaks) {
    causes.push([begin, recovered]);
    begin = returned;
  }
  if (begin !== undefined) causes.push([begin, over !== undefined && over >= begin ? over : undefined]);
  const long = (from, to) => span((to ?? end) - (from ?? 0));
  const [first, healthy, cleaned] = [at(times.firstMove), at(times.healthy), at(times.cleaned)];
  const old = status?.oldCopies?.find((old) => old.cluster === it.spec.cluster)?.copies;
  const isGone = cleaned !== undefined;
  return {
    name: it.metadata.name, cluster: it.spec.cluster, state: state || "not told yet", end, next: next(it, status),
    title: `${it.spec.cluster}: ${CAUSES[cause.type] || cause.type || "cause not told yet"}`,
    began: it.spec.startTime,
    // Of a failover that ended before anything moved there is nothing more to tell.
    lanes: state === "Ended" && first === undefined ? [
      lane("cause", `${CAUSES[cause.type] || "cause"} for ${long(0, causes[0]?.[1])}, nothing moved`, "bad", causes),
    ] : [
      lane("cause", `${CAUSES[cause.type] || "cause"} ${causes.length > 1 ? `${causes.length} times` : `for ${long(0, causes[0]?.[1])}`}`, "bad", causes),
      lane("tainted", times.tainted ? `tainted after ${span(at(times.tainted))}` : "not tainted", "warn", [[at(times.tainted), causes[0]?.[1]]]),
      lane("moved", first === undefined ? `0 of ${count.affected ?? "–"} moved` : `${count.moved} of ${count.affected} moved`, "good", [[first, at(times.lastMove) ?? first]]),
      lane("healthy", first === undefined ? "none healthy elsewhere yet" : `${count.healthy} of ${count.moved} healthy elsewhere`, "good", [[first, healthy]]),
      lane("old copies", first === undefined ? "old copies are in place" : isGone ? `old copies gone after ${span(cleaned)}` : old === undefined ? "old copies: not known" : `${plural(old, "old cop").replace(/cops?$/, old === 1 ? "copy" : "copies")} not confirmed gone`, "quiet", [[first, cleaned]]),
    ],
    ticks: [10, 60, 600, 3600, 86400].filter((it) => it < end * 0.8).map((it) => ({ at: it, words: it < 60 ? `${it} s` : it < 3600 ? `${it / 60} min` : it < 86400 ? `${it / 3600} h` : "1 day" })),
  };
}
// The scale shows seconds and days at once.
export const along = (seconds, end) => Math.log1p(Math.max(0, seconds) / 10) / Math.log1p(end / 10);

// Returns what comes next in a failover, with the time at which it does as far as one is known.
export function next(it, status) {
  const { state, times = {}, workloads: count = {} } = it.status || {};
  if (state === "Ended") return { words: "ended" };
  if (!status || status.isBlind) return { words: "not known: the fleet cannot be read" };
  const cluster = it.spec.cluster;
  const found = status.notWell.find((it) => it.name === cluster);
  const at = (seconds) => status.read + 1000 * seconds;
  const rest = [];
  if (count.moved > count.healthy) rest.push(`${count.moved - count.healthy} become healthy elsewhere, at a time that is not known`);
  const old = status.oldCopies?.find((it) => it.cluster === cluster);
  if (old) rest.push(old.state ? `the old copies go when ${cluster} is ready again` : "the old copies are being removed");
  if (state === "Settling") return { words: rest[0] || "nothing, the record ends soon" };
  if (!status.leader.acts && !status.leader.isUnread) return { words: "nothing, because no control plane leads" };
  if (status.failover === false && !it.status?.cause?.command) return { words: "nothing, because failover is off" };
  if (found?.nextTaintSeconds !== undefined) return { words: "it is tainted", at: at(found.nextTaintSeconds) };
  const waiting = status.waiting.filter((it) => it.message.startsWith(`${cluster} has `));
  const isPaused = waiting.some((it) => it.reason === "Paused") || (waiting.length > 0 && status.clusterList?.some((it) => it.name === cluster && it.paused));
  if (waiting.length && status.pace.band === "stopped") return { words: "nothing until fewer clusters have failed" };
  if (found?.firstLeavesSeconds !== undefined) return { words: "the first workload may leave", at: at(found.firstLeavesSeconds) };
  if (isPaused) return { words: "nothing until the pause ends" };
  const latest = Math.max(...waiting.map((it) => it.atMostSeconds ?? -1));
  if (latest >= 0) return { words: "the last has left at the latest", at: at(latest) };
  const stranded = Object.values(found?.workloads?.stranded || {}).reduce((sum, it) => sum + it, 0);
  if (stranded) rest.unshift(`${plural(stranded, "workload")} cannot leave until there is somewhere to go`);
  if (waiting.length) rest.unshift(`${waiting.length === 1 ? "a workload waits" : `${waiting.length} workloads wait`} (${[...new Set(waiting.map((it) => it.reason))].join(", ")})`);
  const end = it.status?.cause?.type === "Drain" ? `nothing until somebody runs kubectl muster undrain ${cluster}` : `${cluster} is ready again`;
  return { words: rest[0] || (times.tainted ? end : "nothing, unless something taints it") };
}

// Room: what is requested of what nodes offer, and what would be after a disaster.

const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
export function quantity(text) {
  const [, digits, unit] = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(text ?? "") || [];
  return digits === undefined || UNITS[unit] === undefined ? undefined : Number(digits) * UNITS[unit];
}
export const RESOURCES = ["cpu", "memory", "pods"];
const ROOMS = 40;
export function room(top, forecast) {
  const gone = new Set([...(forecast?.lost || []), ...(forecast?.drained || [])]);
  const rows = top.map(({ name, ready, resources }) => {
    const bars = RESOURCES.map((resource) => {
      const amounts = resources[resource];
      const offered = quantity(amounts?.allocatable);
      const used = quantity(amounts?.requested);
      if (!offered || used === undefined) return { resource };
      const free = quantity(forecast?.room?.[name]?.[resource]?.after);
      const share = (amount) => Math.round((100 * amount) / offered);
      return { resource, now: share(used), after: free === undefined ? undefined : Math.max(share(used), share(offered - free)) };
    });
    const fullest = Math.max(...bars.map((it) => it.after ?? it.now ?? -1));
    return { name, isOld: ready !== "True", isGone: gone.has(name), bars, fullest, gains: bars.some((it) => it.after > it.now) };
  });
  rows.sort((a, b) => b.gains - a.gains || b.fullest - a.fullest || (a.name < b.name ? -1 : 1));
  return { rows: rows.slice(0, ROOMS), more: Math.max(0, rows.length - ROOMS) };
}

// Addresses of parts of the page.

export const address = (...parts) => `#${parts.map((it) => encodeURIComponent(it || "-").replace(/%3A/g, ":")).join("/")}`;
const LENGTHS = { cluster: 2, failover: 2, workload: 4, group: 2 };
export function route(hash) {
  let parts;
  try {
    parts = hash.replace(/^#/, "").split("/").map(decodeURIComponent);
  } catch {
    return undefined;
  }
  return LENGTHS[parts[0]] === parts.length && parts.every(Boolean) ? parts : undefined;
}
// Returns the address of a workload that is named as `Deployment default/web`.
export function workloadAddress(title) {
  const [kind, name] = title.split(" ");
  const [namespace, own] = name?.includes("/") ? name.split("/") : ["", name];
  return own ? address("workload", namespace, kind, own) : undefined;
}
