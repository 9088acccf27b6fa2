// The drawing: what the model says, as SVG by hand. Forms and signs say what colours say.

import { STATES, WORDS, address, ago, along, arrows, counted, flows, groups, layout, moment, oldCopies, plural, room, span, stateOf, strips } from "./model.js";
import { byId, patch, say } from "./rows.js";

const open = new Set(); // groups that are open
let current; // address of the tile that the Tab key reaches
const widthOf = (element) => Math.max(240, Math.floor(element.clientWidth));

// The map of the fleet.

let isOld; // whether what is drawn is not known to be so now
export function drawMap({ clusters, by, orders, status, failovers, now, old }) {
  isOld = old;
  const place = byId("map-place");
  const all = groups(clusters, by, orders);
  const width = widthOf(place) - 2;
  const plan = layout(all, { width, open });
  const { drawn, lines } = arrows(flows(status, failovers), plan, width);
  const tiles = plan.boxes.flatMap((box) => [[box], ...box.tiles.map((it) => [box, it])]);
  const addresses = tiles.flatMap(([box, tile]) => (tile ? [address("cluster", tile.cluster.name)] : plan.named ? [] : [address("group", box.group.name)]));
  if (!addresses.includes(current)) current = addresses[0];
  patch(place, [["svg", { width: "100%", height: plan.height + 2, role: "group", "aria-label": "Map of the fleet: arrow keys go from tile to tile" }, [
    // Arrows are behind the tiles, so that each word can be read.
    ["g", { "aria-hidden": "true" }, drawn.map((it) => ["path", { d: it.path, class: `arrow ${it.kind}`, "stroke-width": it.wide }])],
    ...plan.boxes.flatMap((box) => drawBox(box, now)),
    ["g", { "aria-hidden": "true" }, drawn.flatMap((it) => [
      ["polygon", { points: it.head, class: "head" }],
      ["circle", { cx: it.x, cy: it.y, r: 6 + 3 * it.label.length, class: "bubble" }],
      ["text", { x: it.x, y: it.y + 4, class: "middle small strong" }, it.label],
    ])],
  ]]]);
  patch(byId("flows"), lines.map((it) => ["li", {}, it]));
  const isSized = plan.boxes.some((it) => it.isOpen);
  patch(byId("map-legend"), [
    ...[...new Set(clusters.map((it) => stateOf(it, orders.get(it.name))))].sort().map((it) => ["li", { class: isOld ? undefined : `text-${STATES[it].kind}` }, `${isOld ? "? last" : STATES[it].sign} ${it === "ordered" ? "by order: drained, cordoned or paused" : STATES[it].words}`]),
    ["li", {}, isSized ? "workloads: those that are placed there; old: copies of others that are not confirmed gone; a tile is larger the more workloads it has" : "a bar shows how many clusters are in each state"],
  ]);
  say(byId("map-more"), [status?.spread || "", plan.named ? "" : "Each box is a group, those with the most workloads and old copies in lost clusters first; open it to see its clusters.", plan.more ? `${plan.more} more groups: group by something else.` : ""].join(" ").trim());
}
function drawBox({ group, isOpen, named, x, y, w, h, tiles, more }, now) {
  const name = group.name || "none";
  const many = plural(group.clusters.length, "cluster");
  const title = ["text", { x: x + 8, y: y + 18, class: "title" }, cut(`${named ? "" : isOpen ? "▾ " : "▸ "}${name}${isOpen ? `: ${many}` : ""}`, w - 16)];
  const frame = ["rect", { x: x + 1, y: y + 1, width: w - 2, height: h - 2, rx: 4, class: "box" }];
  const href = address("group", group.name);
  const head = named ? [frame, title] : [["a", { href, class: "group", tabindex: href === current ? 0 : -1, "aria-label": `${title[2]} ${isOpen ? "open" : `${stated(group, w)} closed`}: ${many}: ${counted(group.counts, isOld)}` }, [frame, title, ...(isOpen ? [] : closed(group, x, y, w))]]];
  return [...head, ...tiles.map((it) => drawTile(it, named, now)), ...(more ? [["text", { x: x + w - 8, y: y + 18, class: "end small" }, `and ${more} more, which are better`]] : [])];
}
// Returns the numbers of the states, in signs alone where words do not fit.
function stated({ counts }, w) {
  const words = counted(counts, isOld);
  return words.length <= (w - 16) / 6.7 ? words : Object.keys(STATES).filter((it) => counts[it]).map((it) => `${isOld ? "?" : STATES[it].sign} ${counts[it]}`).join(" ");
}
function closed(group, x, y, w) {
  let at = x + 8;
  const total = group.clusters.length;
  const parts = Object.keys(STATES).filter((it) => group.counts[it]).map((it) => {
    // A single silent cluster of a thousand has to be seen.
    const wide = Math.max(4, ((w - 16) * group.counts[it]) / total);
    const rect = ["rect", { x: at, y: y + 28, width: Math.min(wide, x + w - 8 - at), height: 10, class: `fill ${STATES[it].kind} is-${it}` }];
    at = Math.min(at + wide, x + w - 9);
    return rect;
  });
  return [...parts, ["text", { x: x + 8, y: y + 55, class: "small" }, stated(group, w)]];
}
function drawTile({ cluster, x, y, w, h }, named, now) {
  const { kind } = STATES[cluster.state];
  const [sign, words] = isOld ? ["?", `last: ${cluster.words}`] : [STATES[cluster.state].sign, cluster.words];
  const href = address("cluster", cluster.name);
  const heard = cluster.state === "new" ? "never heard" : `heard ${isOld ? `at ${moment(cluster.lastHeard).slice(11)}` : ago(cluster.lastHeard, now)}`;
  const many = plural(cluster.workloads ?? "?", "workload");
  const frame = ["rect", { x: x + 1, y: y + 1, width: w - 2, height: h - 2, rx: 3, class: `tile ${kind} is-${cluster.state}` }];
  // A tile with text is called what it says; one with a sign alone needs a name.
  const label = `${cluster.name}: ${words}, ${heard}, ${many}${cluster.oldCopies && cluster.state !== "ready" ? `, ${oldCopies(cluster.oldCopies)} may still run there` : ""}`;
  const inner = named
    ? [frame,
        ["text", { x: x + 8, y: y + 18, class: `name text-${kind}` }, `${cut(`${sign} ${cluster.name}`, w - 12, 8)} `],
        ...[...(cluster.state === "ready" ? [] : [words]), heard, `${many}${cluster.oldCopies ? ` + ${cluster.oldCopies} old` : ""}`]
          .map((line, at) => ["text", { x: x + 8, y: y + 35 + 16 * at, class: "small" }, `${cut(line, w - 12)} `])]
    : [frame, ["text", { x: x + w / 2, y: y + h / 2 + 5, class: `middle text-${kind}` }, sign]];
  return ["a", { href, tabindex: href === current ? 0 : -1, "aria-label": named ? undefined : label }, [...(named ? [] : [["title", {}, label]]), ...inner]];
}
// Text in SVG does not wrap: what does not fit is in the label.
function cut(text, width, each = 6.7) {
  const most = Math.floor(width / each);
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}
export function toggle(group) {
  if (!open.delete(group)) open.add(group);
}
byId("map-place").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  const tiles = [...byId("map-place").querySelectorAll("a")];
  const at = tiles.indexOf(document.activeElement);
  if (step === undefined || at < 0) return;
  event.preventDefault();
  const next = tiles[Math.min(tiles.length - 1, Math.max(0, at + step))];
  tiles[at].setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  current = next.getAttribute("href");
  next.focus();
});

// Strips of time.

export function drawStrips(failovers, status, now) {
  const place = byId("strips");
  const { all, more } = strips(failovers || [], status, now);
  patch(place, all.map((it) => ["article", { class: "strip" }, stripOf(it, widthOf(place))]));
  const isOpen = !isOld && all.some((it) => it.lanes.some((lane) => lane.parts.some((part) => part.open)));
  say(byId("strips-scale"), all.length ? `The first seconds of a strip are drawn wider than later ones.${isOpen ? " What has a dashed edge still goes on." : ""}${all.length > 1 ? " A workload in several clusters counts in each." : ""}` : "");
  say(byId("strips-more"), !failovers ? "? not known" : !all.length ? "no failover is recorded" : more ? `${more} more are in the history.` : "");
}
export function stripOf(it, width) {
  const text = width >= 640 ? Math.ceil(6.7 * WORDS) : 0; // on a narrow page the words are above the bar
  const [lane, bar] = text ? [22, 10] : [30, 8];
  const wide = width - text - 8;
  const x = (seconds) => Math.round(text + wide * along(seconds, it.end));
  const height = it.lanes.length * lane + 18;
  // Words on the axis keep clear of each other and of its ends.
  let free = text + 40;
  const ticks = it.ticks.filter((tick) => {
    const fits = x(tick.at) > free && x(tick.at) < width - 120;
    if (fits) free = x(tick.at) + 60;
    return fits;
  });
  const ended = it.state === "Ended";
  return [
    ["h3", {}, [it.isMany ? ["span", {}, it.title] : ["a", { href: address("failover", it.name) }, it.title], ["span", { class: "quiet" }, ` ${it.when}`]]],
    ["p", { class: ended ? "quiet" : "next" }, ended ? `ended, ${span(it.end)} after it began` : `next: ${it.next}`],
    ["svg", { width: "100%", height, role: "img", "aria-label": it.lanes.map((it) => it.words).join("; ") }, [
      ...ticks.flatMap((tick) => [
        ...it.lanes.map((_, at) => ["line", { x1: x(tick.at), x2: x(tick.at), y1: at * lane + (text ? 3 : 17), y2: at * lane + (text ? 17 : 29), class: "tick" }]),
        ["text", { x: x(tick.at), y: height - 2, class: "middle small quiet" }, tick.words],
      ]),
      ["text", { x: text, y: height - 2, class: "small quiet" }, "0"],
      ["text", { x: width - 8, y: height - 2, class: "end small quiet" }, ended ? span(it.end) : isOld ? "last read" : `now, ${span(it.end)}`],
      ...it.lanes.flatMap((one, at) => [
        ["text", { x: 0, y: at * lane + 14, class: "small" }, cut(one.words, text || width)],
        ...one.parts.map((part) => ["rect", { x: x(part.from), y: at * lane + (text ? 5 : 19), width: Math.max(4, x(part.to) - x(part.from)), height: bar, class: `fill ${one.kind} is-${one.what.replace(" ", "-")}${part.open && !isOld ? " going-on" : ""}` }]),
      ]),
    ]],
  ];
}

// Room.

export function drawRoom(top, forecast, title) {
  const { rows, more, old } = room(top, forecast);
  const isOutlined = rows.some((it) => it.gains);
  const outline = isOutlined ? "The dashed outline estimates how full a cluster would be without the one that it names, whose loss would bring it the most." : "";
  say(byId("room-title-after"), !forecast ? outline : `${title}${isOutlined ? ": the outline says how full they would be then" : ""}.`);
  patch(byId("room-rows"), rows.map((it) => ["li", {}, [
    ["a", { href: address("cluster", it.name), class: "name" }, it.name],
    ["span", { class: "bars" }, it.isGone ? [["span", { class: "text-bad" }, "✖ lost or drained in the forecast"]] : it.bars.map((bar) => barOf(bar, it.isOld))],
  ]]));
  say(byId("room-more"), more || old ? `${[...(more ? [`${more} more ${more === 1 ? "cluster has" : "clusters have"} more room left`] : []), ...(old ? [`${plural(old, "other")} ${old === 1 ? "is" : "are"} not ready`] : [])].join(", and ")}. kubectl muster top shows all.` : "");
}
function barOf({ resource, now, after, other }, isOld) {
  const words = now === undefined ? "not known" : `${now}%${after > now ? ` → ${after}%${other ? ` without ${other}` : ""}` : ""}${isOld ? " as last reported" : ""}`;
  const full = (it) => Math.min(100, it ?? 0);
  const kind = (after ?? now) > 90 ? "bad" : (after ?? now) > 75 ? "warn" : "good";
  return ["span", { class: "bar" }, [
    ["span", { class: "small" }, `${resource} ${words}`],
    ["svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: isOld ? "is-old" : undefined }, [
      ["rect", { x: 0, y: 0, width: 100, height: 10, class: now === undefined ? "unknown" : "rail" }],
      ["rect", { x: 0, y: 0, width: full(now), height: 10, class: `fill ${kind}` }],
      after > now && ["rect", { x: full(now), y: 0, width: full(after) - full(now), height: 10, class: `after ${kind}` }],
    ]],
  ]];
}
