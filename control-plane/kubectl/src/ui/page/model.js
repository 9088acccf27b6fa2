// What is drawn, computed from the answers of the commands. Nothing here touches the document, so
// that node can test it.

// Words of times.

export function span(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const pad = (n) => String(n).padStart(2, "0");
  if (all < 120) return `${all} s`;
  const two = (large, unit, small, other) => (small ? `${large} ${unit} ${pad(small)} ${other}` : `${large} ${unit}`);
  if (all < 7200) return two(Math.floor(all / 60), "min", all % 60, "s");
  if (all < 172800) return two(Math.floor(all / 3600), "h", Math.floor((all % 3600) / 60), "min");
  return `${Math.floor(all / 86400)} days`;
}
export const moment = (time) => (time ? time.replace("T", " ").replace(/\.\d+Z$/, "Z") : "–");
const LAST = 8.64e15; // milliseconds of the last moment that a date can be
// Returns the time of day of a moment in milliseconds, with its date if that is more than a day away.
const clock = (at, now) => moment(new Date(Math.min(at, LAST)).toISOString()).slice(Math.abs(now - at) > 86400000 ? 0 : 11);
export const ago = (time, now) => (time ? `${span((now - Date.parse(time)) / 1000)} ago` : "never");
// Tells when so many seconds are over, with the time of day.
const coming = (seconds, now) => (seconds ? `in ${span(seconds)} (${clock(now + 1000 * seconds, now)})` : "any moment now");
// Tells an event, and when it comes if that is known.
export const upcoming = ({ words, seconds }, now) => (seconds === undefined ? words : `${coming(seconds, now)}: ${words}`);
// What a text says apart from times, which go on.
export const timeless = (text) => text.replace(/\d+ (s|min|h|days)\b ?|[\d-]*[T ]?\d\d:\d\d:\d\d(\.\d+)?Z?/g, "");
export const plural = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;
export const oldCopies = (count) => (count === 1 ? "1 old copy" : `${count} old copies`);

// The whole fleet.

const SIGNS = { well: "✔", notice: "▼", attention: "!", alarm: "✖", unknown: "?" };
export const KINDS = { well: "good", notice: "warn", attention: "warn", alarm: "bad", unknown: "bad" };
// Returns for how long what moved away from clusters that are lost had no service at worst, if that
// is known: until it was healthy elsewhere.
function interrupted(failovers) {
  const lost = failovers.filter((it) => ["ClusterUnreachable", "ClusterNotReady"].includes(it.status?.cause?.type) && it.status.state !== "Ended" && it.status.timeToHealthy && !isOver(it) && it.status.workloads?.healthy);
  const longest = lost.flatMap((it) => it.status.timeToHealthy.counts).reduce((most, it) => Math.max(most, it.seconds), 0);
  if (!lost.length) return "";
  const number = lost[0].status.workloads.healthy;
  // A workload may have moved away from several of them, and the sum would count it twice.
  const what = lost.length > 1 ? "what moved was" : `${plural(number, "workload")} that moved ${number === 1 ? "was" : "were"}`;
  return `; ${what} interrupted for at most ${span(longest)}`;
}
// Returns the words above all, the title of the tab and its icon.
export function headline(status, failovers = []) {
  const { severity, sentence } = status.summary;
  const sign = SIGNS[severity];
  const count = status.counts;
  const { failing, without } = status.service;
  const clusters = count.notWell ? [plural(count.notWell, "cluster")] : [];
  // A workload may be in several lists, and the sum would count it twice.
  const number = Math.max(count.stranded + count.waiting + count.unheard, count.unplaced, count.stuck, failing.count, without.count, count.heldBack, count.withoutDependencies, count.unpublished);
  const need = [...clusters, ...(number ? [plural(number, "workload")] : [])].join(", ");
  const short = { well: "all well", notice: "by order", unknown: "not known" }[severity] || need || "attention";
  return { severity, sentence: `${sign} ${sentence}`, matters: matters(status.summary, interrupted(failovers)), title: `${sign} ${short} – Muster`, icon: `${severity}.svg` };
}

const LOST = { yes: ["✖", "bad"], perhaps: ["?", "warn"], no: ["✔", "good"], unknown: ["?", "bad"] };
// Returns what stands below the headline, always in the same order.
function matters({ lost, service, next, advice, twice, stop }, more = "") {
  const [sign, kind] = LOST[lost];
  return [
    { name: "Without service", text: `${sign} ${service}${more}`, kind },
    { name: "Next", text: next },
    { name: "To do", text: advice.words, command: advice.command },
    { name: "Two copies", text: stop ? `${twice}. ${stop.words}` : twice, command: stop?.command },
  ];
}
// The program that serves the page does not answer, or late.
const UNANSWERED = { lost: "unknown", service: "not known", next: "not known", advice: { words: "load the page again; if that does not help, find out whether the program that serves it still runs (kubectl muster ui)" }, twice: "not known" };
// Returns the same while nothing can be read. `summary`: why, if that is known; `known`: the status
// that could be read last.
export function away(summary, known) {
  const rows = matters(summary || UNANSWERED);
  rows[1].text += "; this page refreshes by itself every few seconds";
  if (!known) return rows;
  const { sentence, service, twice } = known.summary;
  return [...rows, { name: "Last known", text: `${moment(known.read)}: ${sentence}. Service: ${service}. Two copies: ${twice}` }];
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
export const stateOf = (it, order) => (it.state === "ready" && (order || it.paused) ? "ordered" : it.state);

// Returns the words of the state of a cluster, those of a person's order included.
export function wordsOf(state, order) {
  return state === "ordered" ? order?.words || "paused" : STATES[state].words;
}

// Returns by what clusters can be grouped: fields, and keys of labels.
export function groupings(clusters) {
  const labels = new Set(clusters.flatMap((it) => Object.keys(it.labels || {})));
  return ["region", "syncMode", "kubernetes", "agent", ...[...labels].sort().map((it) => `label ${it}`)];
}
const groupOf = (it, by) => (by.startsWith("label ") ? it.labels?.[by.slice(6)] : it[by]) || "";
const NAMED = 60; // clusters up to which each tile has its name, and all groups are open
// Returns the groups, those that lost the most first, and in each the worst clusters first. Where all
// are in sight each has its place, whatever its state.
export function groups(clusters, by, orders) {
  const found = new Map();
  for (const cluster of clusters) {
    const name = groupOf(cluster, by);
    if (!found.has(name)) found.set(name, { name, clusters: [], counts: {}, lost: 0 });
    const group = found.get(name);
    const state = stateOf(cluster, orders.get(cluster.name));
    group.clusters.push({ ...cluster, state, words: wordsOf(state, orders.get(cluster.name)) });
    group.counts[state] = (group.counts[state] || 0) + 1;
    if (STATES[state].kind === "bad") group.lost += (cluster.workloads || 0) + (cluster.oldCopies || 0);
  }
  const byName = (a, b) => (a.name < b.name ? -1 : 1);
  if (clusters.length <= NAMED) {
    for (const group of found.values()) group.clusters.sort(byName);
    return [...found.values()].sort(byName);
  }
  const rank = (it) => RANK.indexOf(it.state);
  for (const group of found.values()) group.clusters.sort((a, b) => rank(a) - rank(b) || byName(a, b));
  const worst = (group) => RANK.findIndex((it) => group.counts[it]);
  const many = (group) => group.counts[RANK[worst(group)]];
  return [...found.values()].sort((a, b) => b.lost - a.lost || worst(a) - worst(b) || (STATES[RANK[worst(a)]].kind === "good" ? 0 : many(b) - many(a)) || byName(a, b));
}
export function counted(counts, isOld) {
  return RANK.filter((it) => counts[it]).map((it) => `${isOld ? "?" : STATES[it].sign} ${counts[it]} ${isOld ? "last " : ""}${STATES[it].words}`).join(", ");
}

// The map: a box for each group, a tile for each cluster of a group that is open.

const FEW = 20; // clusters up to which tiles are larger
const TILES = 600; // tiles of a group
const GROUPS = 80; // boxes
const [PAD, GAP, BETWEEN, HEAD] = [8, 8, 32, 22];
const LINE = 16; // height of a line of a tile
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
      return named ? { cluster, w: Math.min(wide + 90 * size(cluster), width - 2 * PAD), h: high + 30 * size(cluster) + (cluster.state === "ready" ? 0 : LINE) } : { cluster, w: side, h: side };
    });
    const needed = tiles.reduce((sum, it) => sum + it.w + GAP, -GAP);
    // The box that lost the most keeps its words where others have signs alone.
    const isWorst = group === all[0] && STATES[RANK.find((it) => group.counts[it])].kind === "bad";
    const narrow = isWorst ? width : (width - BETWEEN) / 2;
    const w = isOpen ? Math.min(width, Math.max(needed, 225) + 2 * PAD) : width < 2 * 190 + BETWEEN ? narrow : 190;
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
  const add = (from, to, what, workloads, more) => {
    if (from === to) return;
    const key = `${from}\n${to}`;
    const flow = found.get(key) || found.set(key, { from, to, moving: 0, moved: 0, more: 0 }).get(key);
    flow[what] += workloads;
    flow.more += more;
  };
  // A workload in several clusters goes to each of them: how many more these are than workloads is
  // noted with the first.
  const more = (all, count) => Math.max(0, all.reduce((sum, it) => sum + it.workloads, 0) - count) || 0;
  const moving = status?.flows || [];
  moving.forEach((it, at) => add(it.from, it.to, "moving", it.workloads, at ? 0 : more(moving, status.counts.moving)));
  for (const it of failovers) {
    if (it.status?.state === "Ended" || isOver(it)) continue;
    const targets = it.status?.targets || [];
    targets.forEach((to, at) => add(it.spec.cluster, to.cluster, "moved", to.workloads, at ? 0 : more(targets, it.status.workloads?.moved)));
  }
  return [...found.values()].sort((a, b) => b.moving - a.moving || b.moved - a.moved);
}
// What moved before the cause returned is over.
function isOver({ status }) {
  const returned = status?.returns?.at(-1)?.returned;
  return returned !== undefined && Date.parse(status.times?.lastMove) < Date.parse(returned);
}
const ARROWS = 10; // arrows beyond which a map is a tangle
const LISTED = 6; // clusters or groups that are listed
const NARROW = 640; // pixels
// Returns what goes where between the tiles, or the boxes of clusters that have none: arrows where
// they cross nothing that can be read, and lines of text for all.
export function arrows(all, { boxes, named }, width) {
  const places = new Map();
  for (const box of boxes) {
    for (const it of box.group.clusters) places.set(it.name, [box, box]);
    for (const tile of box.tiles) places.set(tile.cluster.name, [tile, box]);
  }
  const found = new Map();
  for (const it of all) {
    const [[from, a], [to, b]] = [places.get(it.from) || [], places.get(it.to) || []];
    if (!from || !to || (named && from === to)) continue;
    const below = Math.max(a.y + a.h, b.y + b.h);
    const others = found.get(from) || found.set(from, new Map()).get(from);
    const arrow = others.get(to) || others.set(to, { from, to, below, moving: 0, moved: 0, more: 0 }).get(to);
    arrow.moving += it.moving;
    arrow.moved += it.moved;
    arrow.more += it.more;
  }
  const sum = (it) => it.moving + it.moved;
  const sorted = [...found].map(([from, others]) => [from, [...others.values()].sort((a, b) => sum(b) - sum(a))]);
  const total = (all) => all.reduce((all, it) => all + sum(it), 0);
  sorted.sort(([, a], [, b]) => total(b) - total(a));
  const flat = sorted.flatMap(([, all]) => all);
  const drawn = width < NARROW || flat.length > ARROWS ? [] : flat.filter((it) => it.from !== it.to).map(arrow);
  const name = (place) => place.cluster?.name ?? (place.group.name || "none");
  const more = (all) => (all.length > LISTED ? [`${total(all.slice(LISTED))} to ${all.length - LISTED} more`] : []);
  const target = (it) => (it.from === it.to ? "others there" : name(it.to));
  const verb = (it, at, all) => (it.moving ? "moving to" : all.findIndex((it) => !it.moving) === at ? "taken over by" : "by");
  const amount = (it, at, all) => `${it.moving || it.moved} ${verb(it, at, all)} ${target(it)}`;
  const twice = (all) => {
    const more = all.reduce((sum, it) => sum + it.more, 0);
    // What moves now is in the record of its failover, too.
    const number = all.some((it) => it.moving) ? "" : `${plural(total(all) - more, "workload")}; `;
    return more ? ` (${number}one in several clusters counts in each)` : "";
  };
  const lines = sorted.slice(0, LISTED).map(([from, all]) => `→ From ${named ? "" : "the clusters of "}${name(from)}: ${[...all.slice(0, LISTED).map(amount), ...more(all)].join(", ")}${twice(all)}`);
  if (sorted.length > LISTED) lines.push(`→ From ${sorted.length - LISTED} more: ${sorted.slice(LISTED).reduce((sum, [, all]) => sum + total(all), 0)}`);
  return { lines, drawn: drawn.filter((it) => isClear(it, boxes)) };
}
// Returns whether an arrow and its number cross no words and no tile but its own.
function isClear({ points, x, y, ends }, boxes) {
  const around = { x: x - 9, y: y - 9, w: 18, h: 18 };
  const isIn = (px, py, { x, y, w, h }) => px > x && px < x + w && py > y && py < y + h;
  const isOver = (it) => around.x < it.x + it.w && it.x < around.x + around.w && around.y < it.y + it.h && it.y < around.y + around.h;
  const texts = boxes.filter((it) => it.isOpen).map((it) => ({ x: it.x, y: it.y, w: 8 * (it.group.name.length + 14), h: HEAD }));
  const tiles = boxes.flatMap((it) => (it.isOpen ? it.tiles : [it]));
  return !tiles.some((it) => isOver(it) || (!ends.includes(it) && points.some(([px, py]) => isIn(px, py, it)))) && !texts.some((it) => isOver(it) || points.some(([px, py]) => isIn(px, py, it)));
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
  const tip = (side) => `${r(ex + side)},${r(ey + arrive * 11)}`;
  const tail = ey + arrive * 8;
  const far = Math.max(24, Math.abs(ey - sy) / 2);
  // The middle of one that goes around is so far below that no two run on one line.
  const around = (8 * (below + 8 + (at % 3) * 7) - sy - tail) / 6;
  const [ay, by] = isBeside ? [around, around] : [sy + leave * far, tail + arrive * far];
  const points = Array.from({ length: 40 }, (_, step) => {
    const [t, u] = [step / 39, 1 - step / 39];
    const mix = (a, b, c, d) => u * u * u * a + 3 * u * u * t * b + 3 * u * t * t * c + t * t * t * d;
    return [mix(sx, sx, ex, ex), mix(sy, ay, by, tail)];
  });
  return {
    path: `M${r(sx)},${r(sy)} C${r(sx)},${r(ay)} ${r(ex)},${r(by)} ${r(ex)},${r(tail)}`,
    head: `${r(ex)},${r(ey)} ${tip(5)} ${tip(-5)}`, points, ends: [from, to],
    x: r((sx + ex) / 2), y: r((sy + tail + 3 * (ay + by)) / 8),
    label: String(moving || moved), kind: moving ? "moving" : "moved",
    wide: Math.min(6, 1.5 + Math.log2(1 + (moving || moved)) / 2),
  };
}
const r = (number) => Math.round(number * 10) / 10;

// Strips of time: one a failover, or one for many of a common cause.

const STRIPS = 3; // strips that are drawn
export const WORDS = 48; // characters of the words of a lane, which are not wrapped
const CAUSES = { ClusterUnreachable: "silent", ClusterNotReady: "not ready", Drain: "drained", TaintPolicy: "tainted by a policy", Taint: "tainted", ApplicationFailure: "applications unhealthy" };
export function strips(failovers, status, now) {
  const lasting = common(failovers.filter((it) => it.status?.state !== "Ended"), status?.clusterList || []);
  const ended = failovers.filter((it) => it.status?.state === "Ended");
  const shown = [...lasting, ...ended].slice(0, STRIPS);
  const failures = shown.reduce((sum, it) => sum + (it.failovers || 1), 0);
  const all = shown.map((it) => strip(it, status, now));
  // What comes next in the fleet is said above, and not again by each of several.
  for (const it of all.length > 1 ? all : []) if (it.next === status?.summary.next) it.next = "see Next above";
  return { all, more: failovers.length - failures };
}
const lossOf = ({ status: { workloads: count = {} } = {} }) => (count.affected || 0) - (count.healthy || 0);
// Returns failovers, many of one cause in one region as one, those with the greatest loss first.
export function common(failovers, clusters) {
  const region = new Map(clusters.map((it) => [it.name, it.region || ""]));
  const total = new Map();
  for (const it of clusters) total.set(it.region || "", (total.get(it.region || "") || 0) + 1);
  const found = new Map();
  for (const it of failovers) {
    const key = failovers.length <= 2 ? it.metadata.name : `${it.status?.cause?.type} ${region.get(it.spec.cluster) ?? ""}`;
    found.set(key, [...(found.get(key) || []), it]);
  }
  const all = [...found.values()].map((group) => (group.length < 2 ? group[0] : summed(group, region.get(group[0].spec.cluster) || "", total)));
  return all.sort((a, b) => lossOf(b) - lossOf(a) || (b.status?.workloads?.affected || 0) - (a.status?.workloads?.affected || 0));
}
// Returns of a failover whose cause returned what concerns this time alone.
function thisTime(it) {
  const count = it.status?.workloads;
  if (!isOver(it)) return it;
  const workloads = { affected: count.affected - count.moved, moved: 0, healthy: 0 };
  return { ...it, spec: { ...it.spec, startTime: it.status.returns.at(-1).returned }, status: { ...it.status, times: {}, workloads } };
}
function summed(all, region, total) {
  const group = all.map(thisTime);
  const times = (key) => group.map((it) => it.status?.times?.[key]).filter(Boolean).sort();
  const first = (key) => times(key)[0];
  const last = (key) => times(key).at(-1);
  // What is not over everywhere is not over.
  const end = (key) => (times(key).length === group.length ? last(key) : undefined);
  const moved = group.filter((it) => it.status?.times?.firstMove);
  const healthy = moved.every((it) => it.status.times.healthy) ? last("healthy") : undefined;
  const sum = (key) => group.reduce((all, it) => all + (it.status?.workloads?.[key] || 0), 0);
  const place = region ? `${region}: ${group.length} of ${total.get(region)} clusters` : `${group.length} clusters`;
  return {
    failovers: group.length, place, clusters: group.map((it) => it.spec.cluster),
    metadata: group[0].metadata,
    spec: { cluster: group[0].spec.cluster, startTime: group.map((it) => it.spec.startTime).sort()[0] },
    status: {
      state: group.every((it) => it.status?.state === "Settling") ? "Settling" : "Active", cause: group[0].status?.cause,
      times: { tainted: first("tainted"), firstMove: first("firstMove"), lastMove: last("lastMove"), healthy, cleaned: end("cleaned"), recovered: end("recovered") },
      workloads: { affected: sum("affected"), moved: sum("moved"), healthy: sum("healthy") },
    },
  };
}
export function strip(it, status, now) {
  const { times = {}, workloads: count = {}, cause = {}, returns = [], state } = it.status || {};
  const clusters = it.clusters || [it.spec.cluster];
  const start = Date.parse(it.spec.startTime);
  const at = (time) => (time ? (Date.parse(time) - start) / 1000 : undefined);
  const today = (now - start) / 1000;
  const last = Math.max(...["recovered", "healthy", "cleaned", "ended", "lastMove"].map((key) => at(times[key]) ?? 0));
  const end = Math.max(10, state === "Ended" ? last : today);
  const lane = (what, words, kind, parts) => ({ what, words, kind, parts: parts.filter(([from]) => from !== undefined).map(([from, to]) => ({ from: Math.max(0, from), to: to ?? end, open: to === undefined })) });
  const over = at(times.recovered);
  // A cause that returned is over only after its last return.
  const causes = [];
  let begin = 0;
  for (const { recovered, returned } of returns) {
    causes.push([begin, at(recovered)]);
    begin = at(returned);
  }
  if (begin !== undefined) causes.push([begin, over !== undefined && over >= begin ? over : undefined]);
  const isOpen = causes.at(-1)?.[1] === undefined;
  const long = (from, to) => span((to ?? end) - (from ?? 0));
  const [first, healthy, cleaned] = [at(times.firstMove), at(times.healthy), at(times.cleaned)];
  const median = it.status?.timeToHealthy?.medianSeconds;
  const copies = (status?.oldCopies || []).filter((it) => clusters.includes(it.cluster));
  const old = copies.length ? copies.reduce((sum, it) => sum + it.copies, 0) : undefined;
  // A copy that waits for its replacement is none of those.
  const leaves = [...(status?.moving || []), ...(status?.flows || [])].some((it) => clusters.includes(it.from));
  const isHeld = (status?.kept || []).some((it) => clusters.includes(it.from));
  const release = leaves ? "the new ones are healthy" : isHeld && "somebody releases them";
  const stay = release && state !== "Ended" ? `old copies stay until ${release}` : "old copies: not known";
  const isHeard = cause.type === "ClusterUnreachable";
  // A record is exact to the second only, and the last word of a cluster is known better.
  const heard = (isHeard && isOpen ? status?.clusterList || [] : []).filter((it) => it.state === "silent" && clusters.includes(it.name) && it.begun).map((it) => Date.parse(it.begun));
  const [earliest, latest] = heard.length ? [Math.min(...heard), Math.max(...heard)] : [start, start];
  const range = (from, to) => (from === to ? from : `${from} to ${to}`);
  const bare = CAUSES[cause.type] || cause.type || "cause not known yet";
  const ended = state === "Ended";
  const why = ended && CAUSES[cause.type] && !bare.startsWith("applications") ? `was ${bare}` : bare;
  const began = moment(it.spec.startTime);
  const until = ended && moment(new Date(start + 1000 * (over ?? last)).toISOString());
  const isTainted = status?.notWell?.some((it) => clusters.includes(it.name) && it.taints?.some((taint) => /:(Prefer)?NoExecute$/.test(taint)));
  // The record has the time of the first mark alone: what has to leave has waited since the last.
  const since = causes.at(-1)[0];
  const marks = [...(status?.waiting || []).filter((it) => it.clusters?.some((name) => clusters.includes(name))), ...(status?.notWell || []).filter((it) => clusters.includes(it.name))];
  const marked = marks.map((it) => at(it.since)).find((it) => it >= since) ?? since;
  const again = causes.length > 1 ? [[isOpen ? marked : since, isOpen ? undefined : since]] : [];
  // What moved before the cause returned says nothing of this time.
  const before = isOver(it) ? ", before it returned" : "";
  const waits = !ended && !before && clusters.some((name) => isWaiting(status, name));
  const often = causes.length > 1 ? `${why} ${causes.length} times` : "";
  const lasts = heard.length ? range(span((now - latest) / 1000), span((now - earliest) / 1000)) : long(...causes.at(-1));
  const lasted = often && !isOpen ? often : `${often ? `${often}, now` : why} for ${lasts}`;
  const lately = !isOpen ? `${clock(start, now)} to ${clock(start + 1000 * causes.at(-1)[1], now)}` : often ? `first ${clock(start, now)}, again since ${clock(start + 1000 * since, now)}` : `${isHeard ? "last heard" : "since"} ${range(clock(earliest, now), clock(latest, now))}`;
  return {
    name: it.metadata.name, cluster: it.spec.cluster, state: state || "not known yet", end, next: upcoming(next(it, status), now),
    isMany: Boolean(it.place), title: it.place ? `${it.place} ${why}` : `${it.spec.cluster}: ${why}`,
    when: ended ? `${began} to ${until.slice(0, 10) === began.slice(0, 10) ? until.slice(11) : until}` : lately,
    // Of a failover that ended before anything moved there is nothing more to show.
    lanes: state === "Ended" && first === undefined ? [
      lane("cause", `${lasted}, nothing moved`, "bad", causes),
    ] : [
      lane("cause", lasted, cause.type === "Drain" ? "warn" : "bad", causes),
      // An order marks a cluster at once.
      ...(cause.type === "Drain" ? [] : [lane("tainted", times.tainted ? `marked as failed after ${span(at(times.tainted))}` : isTainted ? "marked as failed" : "not marked as failed", "warn", [[at(times.tainted), causes[0]?.[1]], ...(isTainted ? again : [])])]),
      lane("moved", first === undefined ? `0 of ${count.affected ?? "–"} moved` : `${count.moved} of ${count.affected} moved${before}`, "good", [[first, waits ? undefined : at(times.lastMove) ?? first]]),
      ...(first === undefined ? [] : [
        lane("healthy", `${count.healthy} of ${count.moved} healthy${median === undefined ? "" : `, half in ${span(median)}`}`, "good", [[first, healthy ?? (count.healthy < count.moved ? undefined : end)]]),
        lane("old copies", cleaned !== undefined ? `old copies gone after ${span(cleaned)}` : old === undefined ? stay : `${oldCopies(old)} not confirmed gone`, "quiet", [[first, cleaned]]),
      ]),
    ],
    ticks: [10, 60, 600, 3600, 86400].filter((it) => it < end * 0.8).map((it) => ({ at: it, words: it < 60 ? `${it} s` : it < 3600 ? `${it / 60} min` : it < 86400 ? `${it / 3600} h` : "1 day" })),
  };
}
// Returns whether something waits to leave a cluster. The list may be cut, and the numbers are of
// clusters that are not well alone.
function isWaiting(status, cluster) {
  const found = status?.notWell?.find((it) => it.name === cluster)?.workloads?.waiting;
  return Object.keys(found || {}).length > 0 || Boolean(status?.waiting?.some((it) => it.clusters?.includes(cluster)));
}
// The scale shows seconds and days at once.
export const along = (seconds, end) => Math.log1p(Math.max(0, seconds) / 10) / Math.log1p(end / 10);

// Returns what comes next in a failover. What does in a cluster is decided by `status`.
export function next({ spec, status: { state } = {}, place, clusters = [spec.cluster] }, status) {
  if (state === "Ended") return { words: "ended" };
  if (!status || status.isBlind) return { words: "not known: the fleet cannot be read" };
  const all = [...status.notWell, ...status.ordered];
  const found = all.filter((it) => clusters.includes(it.name));
  const waiting = all.filter((it) => isWaiting(status, it.name));
  // What holds for the whole fleet says it better than each of many clusters.
  if (place && waiting.every((it) => found.includes(it))) return { words: status.summary.next };
  const soonest = found.filter((it) => it.next.seconds !== undefined).sort((a, b) => a.next.seconds - b.next.seconds)[0];
  const first = soonest || found.find((it) => waiting.includes(it)) || found[0];
  return first?.next || { words: state === "Settling" ? "nothing, the record ends soon" : "nothing that is known" };
}

// Room: what is requested of what nodes offer, and what would be after a disaster.

const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
export function quantity(text) {
  const [, digits, unit] = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(text ?? "") || [];
  return digits === undefined || UNITS[unit] === undefined ? undefined : Number(digits) * UNITS[unit];
}
export const RESOURCES = ["cpu", "memory", "pods"];
const ROOMS = 10;
export function room(top, forecast) {
  const gone = new Set([...(forecast?.lost || []), ...(forecast?.drained || [])]);
  const others = forecast ? {} : Object.fromEntries(RESOURCES.map((it) => [it, worstLoss(top, it)]));
  const rows = top.map(({ name, ready, isKept, resources }) => {
    const bars = RESOURCES.map((resource) => {
      const amounts = resources[resource];
      const offered = quantity(amounts?.allocatable);
      const used = quantity(amounts?.requested);
      if (!offered || used === undefined) return { resource };
      const free = quantity(forecast?.room?.[name]?.[resource]?.after);
      const share = (amount) => Math.round((100 * amount) / offered);
      const other = isKept ? undefined : others[resource]?.(name);
      const after = other ? share(used + other.takes) : free === undefined ? undefined : Math.max(share(used), share(offered - free));
      return { resource, now: share(used), after, ...(other && after > share(used) ? { other: other.name } : {}) };
    });
    const fullest = Math.max(...bars.map((it) => it.after ?? it.now ?? -1));
    return { name, isOld: ready !== "True", isGone: gone.has(name), bars, fullest, gains: bars.some((it) => it.after > it.now) };
  });
  rows.sort((a, b) => b.gains - a.gains || b.fullest - a.fullest || (a.name < b.name ? -1 : 1));
  const rest = rows.slice(ROOMS);
  const old = rest.filter((it) => it.isOld).length;
  return { rows: rows.slice(0, ROOMS), more: rest.length - old, old };
}

// Returns for a cluster which other one, if it were lost, would bring it the most: all that it
// requests is spread over the others by their free room, but for those that an order keeps free.
// Linear in the number of clusters.
function worstLoss(top, resource) {
  const known = top.filter((it) => it.ready === "True").map(({ name, isKept, resources }) => {
    const [offered, used] = [quantity(resources[resource]?.allocatable), quantity(resources[resource]?.requested)];
    return { name, used, free: isKept ? 0 * offered : Math.max(0, offered - used) };
  }).filter((it) => it.used >= 0 && it.free >= 0);
  const free = known.reduce((sum, it) => sum + it.free, 0);
  const own = new Map(known.map((it) => [it.name, it.free]));
  // What each unit of free room takes if this one is lost: the two that bring the most.
  const losses = known.map((it) => ({ name: it.name, part: free > it.free ? it.used / (free - it.free) : Infinity }));
  const [first, second] = losses.filter((it) => it.part > 0).sort((a, b) => b.part - a.part);
  return (name) => {
    const worst = first?.name === name ? second : first;
    return worst && own.get(name) ? { name: worst.name, takes: Math.min(1, worst.part) * own.get(name) } : undefined;
  };
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
// Names a workload as the commands do: `Deployment default/web`.
export const titleOf = ({ kind, namespace, name }) => `${kind} ${namespace ? `${namespace}/` : ""}${name}`;
// Returns the address of a workload that is named so.
export function workloadAddress(title) {
  const [kind, name] = title.split(" ");
  const [namespace, own] = name?.includes("/") ? name.split("/") : ["", name];
  return own ? address("workload", namespace, kind, own) : undefined;
}
