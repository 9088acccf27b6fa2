// The page of `kubectl muster ui`. It shows what the commands say and decides nothing itself.

import { KINDS, STATES, address, ago, away, groupings, headline, moment, span, stateOf, titleOf, upcoming, wordsOf, workloadAddress } from "./model.js";
import { drawMap, drawRoom, drawStrips } from "./draw.js";
import { Rows, byId, fillList, mark, patch, say, tables } from "./rows.js";
import * as stories from "./stories.js";

const PAUSE = 3000; // milliseconds between the end of one refresh and the next
const UNSEEN = 10000; // the same while nobody sees more than the title of the tab
const ROOM = 10; // refreshes after which room is read again in a large fleet
const SMALL = 200; // clusters up to which it is read at each third refresh
const PATIENCE = 60000; // after which a refresh that has no answer is given up
const OLD = 15; // seconds by which an answer may be late before what is shown counts as old
const SHOWN = 200; // lines of a list

// All ages are those of the moment at which the fleet was read, so that each event has one. It stays
// while nothing can be read.
let at = Date.now();
const now = () => at;

// Clusters.

let orders = new Map(); // by cluster: what a person has ordered
function ordered(it) {
  const order = orders.get(it.name);
  if (!order) return "";
  const rate = order.fault ? `, nothing leaves: ${order.fault}` : order.perSecond ? `, at most ${order.perSecond} a second` : "";
  const by = `${order.by ? ` by ${order.by}` : ""}${order.reason ? ` (reason: "${order.reason}")` : ""}`;
  return `${order.words}${by}${order.since ? ` ${ago(order.since, now())}` : ""}${rate}`;
}
function health(it) {
  const state = stateOf(it, orders.get(it.name));
  const words = wordsOf(state, orders.get(it.name));
  const own = { attention: `needs attention: ${it.concern || "tainted"}`, ordered: it.paused ? "paused" : "" }[state] ?? words;
  return `${isOld() ? "? Last:" : STATES[state].sign} ${[own, ordered(it)].filter(Boolean).join(", ")}`;
}
const isOld = () => document.body.classList.contains("old");
let coming = new Map(); // by cluster that is not well or has an order: what happens next there
const table = new Rows("clusters", (it) => it.name, [
  { title: "Cluster", head: true, text: (it) => it.name, href: (it) => address("cluster", it.name) },
  { title: "State", text: health, kind: (it) => STATES[stateOf(it, orders.get(it.name))].kind },
  { title: "Reason", text: (it) => it.reason },
  { title: "Since", text: (it) => (it.since ? ago(it.since, now()) : "–") },
  { title: "Last heard", text: (it) => ago(it.lastHeard, now()) },
  { title: "Next", long: true, text: (it) => coming.get(it.name) || "–" },
  { title: "Nodes ready", text: (it) => (it.nodes === null ? "–" : `${it.readyNodes} of ${it.nodes}${it.ready === "True" ? "" : ", as last reported"}`) },
  { title: "Workloads", text: (it) => (it.workloads === null ? "–" : String(it.workloads)) },
  { title: "Old copies", text: (it) => (it.oldCopies === null ? "–" : it.oldCopies && it.ready !== "True" ? `${it.oldCopies} not confirmed gone` : String(it.oldCopies)) },
  { title: "Region", text: (it) => it.region || "–" },
  { title: "Taints", long: true, text: (it) => it.taints.join(", ") || "–" },
  { title: "What if", text: () => "lost?", label: (it) => `What if ${it.name} is lost?`, press: (it) => whatIf(it.name) },
], "none");

// Queue.

const LISTS = {
  stranded: ["✖ cannot leave", "bad"],
  unplaced: ["∅ has no place", "bad"],
  applications: ["! fails", "bad"],
  heldBack: ["◷ has no new copy yet", "warn"],
  withoutDependencies: ["! lacks something", "bad"],
  unpublished: ["! has no host name", "bad"],
  waiting: ["◷ waits", "warn"],
  unheard: ["? is silent", "bad"],
  moving: ["→ moves", "good"],
  kept: ["= keeps an old copy", "warn"],
};
// What the API refused is not said by the reason alone.
const FAILED = "EvictWorkloadFromClusterFailed";
const WHY = {
  moving: (it) => `${it.why}; now on ${it.to.join(", ") || "no cluster yet"}`,
  kept: (it) => WHY.moving(it),
  waiting: (it) => it.reason === FAILED ? reported(it) : `${it.why}${it.clusters ? `, in ${it.clusters.join(" and ")}` : ""}`,
};
const reported = (it) => `${it.why || it.reason}: ${it.message}`;
const queue = new Rows("queue", (it) => `${it.state} ${it.workload} ${it.from || ""}`, [
  { title: "State", text: (it) => LISTS[it.state][0], kind: (it) => LISTS[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.workload, href: (it) => workloadAddress(it.workload) },
  { title: "Why", long: true, text: (it) => (WHY[it.state] || reported)(it) },
  { title: "Since", text: (it) => (it.since ? ago(it.since, now()) : "–") },
  { title: "Next", text: (it) => (it.next ? upcoming(it.next, now()) : "–") },
], "", 10, "kubectl muster status -o wide");

const UNKNOWN = "? not known";
// An option that words or a command name does not break.
const options = (text) => text.split(/(--[\w-]+)/).map((it, at) => ["span", at % 2 ? { class: "option" } : {}, it]);
function showHeadline({ severity, sentence, matters, title, icon }) {
  const lines = () => [byId("verdict"), ...byId("matters").children];
  const before = lines().map((it) => it.textContent);
  say(byId("verdict"), sentence);
  byId("verdict").className = KINDS[severity];
  patch(byId("matters"), matters.map((it) => ["div", {}, [["dt", {}, it.name], ["dd", { class: it.kind }, [...options(it.command ? `${it.text}: ` : it.text), it.command && ["code", {}, options(it.command)]]]]]));
  lines().forEach((it, at) => mark(it, before[at]));
  tab(title, icon);
}
function showStatus(status, code) {
  const lists = Object.keys(LISTS);
  // What could not be read has no list of orders: the last known ones stay.
  const isUnread = code === 2;
  if (!isUnread) orders = new Map(status.ordered.map((it) => [it.name, it]));
  queue.empty = isUnread ? UNKNOWN : status.idle;
  patch(byId("facts"), status.facts.map((it) => ["div", {}, [["dt", {}, it.name], ["dd", {}, it.text]]]));
  // Whether anything would move, and how fast, is asked at every refresh.
  const always = status.facts.filter((it) => ["Failover", "Pace", "Leader"].includes(it.name));
  say(byId("settings"), always.map((it) => `${it.name}: ${it.text}`).join(" · "));
  fillList("notes", [
    ...(isUnread ? [] : status.unread).map((it) => `✖ Could not be read: ${it}`),
    ...status.expires.map((it) => `! ${it.what}: ends ${moment(it.end)}`),
  ]);
  queue.set(lists.flatMap((state) => status[state].map((it) => ({ state, ...it }))), lists.reduce((sum, it) => sum + status.counts[it], 0));
  coming = new Map([...status.notWell, ...status.ordered].map(({ name, next }) => [name, upcoming(next, now())]));
}
// What the tab says while it is in the background.
function tab(title, icon) {
  if (document.title !== title) document.title = title;
  if (byId("icon").getAttribute("href") !== icon) byId("icon").setAttribute("href", icon);
}

// History.

const FAILOVER = { Ended: ["✔ ended", "good"], Settling: ["◷ settles", "warn"], Active: ["◷ lasts", "warn"] };
const failover = (it) => FAILOVER[it.status?.state] || [`? ${it.status?.state || "not known yet"}`, "warn"];
const number = (it, name) => String(it.status?.workloads?.[name] ?? "–");
const past = new Rows("history", (it) => it.metadata.name, [
  { title: "When", head: true, text: (it) => moment(it.spec.startTime), href: (it) => address("failover", it.metadata.name) },
  { title: "Last began", text: (it) => moment(it.status?.returns?.at(-1)?.returned || it.spec.startTime) },
  { title: "How often", text: (it) => String(1 + (it.status?.relapses || 0)) },
  { title: "Cluster", text: (it) => it.spec.cluster },
  { title: "State", text: (it) => failover(it)[0], kind: (it) => failover(it)[1] },
  { title: "Cause", text: (it) => it.status?.cause?.type || "–" },
  { title: "Workloads", text: (it) => number(it, "affected") },
  { title: "Moved", text: (it) => number(it, "moved") },
  { title: "Healthy", text: (it) => number(it, "healthy") },
  { title: "Stranded", text: (it) => number(it, "stranded") },
  { title: "Held", text: (it) => (it.status ? String(it.status.workloads?.held || 0) : "–") },
  { title: "Median to healthy", text: (it) => (it.status?.timeToHealthy ? span(it.status.timeToHealthy.medianSeconds) : "–") },
], "no failover is recorded");
// What if.

const OUTCOMES = { stranded: ["✖ Stranded", "bad"], held: ["! Held", "warn"], moves: ["→ Moves", "good"], stays: ["= Stays", "warn"] };
const forecast = new Rows("forecast", (it) => `${it.state} ${it.name} ${it.from || it.cluster}`, [
  { title: "Outcome", text: (it) => OUTCOMES[it.state][0], kind: (it) => OUTCOMES[it.state][1] },
  { title: "Workload", head: true, text: (it) => it.name, href: (it) => workloadAddress(it.name) },
  { title: "Priority", text: (it) => String(it.priority) },
  { title: "From", text: (it) => it.from || it.cluster },
  { title: "To, or why not", long: true, text: (it) => it.reason || [].concat(it.to).map((to) => to.name || String(to)).join(", ") },
  { title: "After", text: (it) => (it.afterSeconds === undefined ? "–" : span(it.afterSeconds)) },
], "no workload is concerned");
function whatIf(name) {
  byId("whatif").querySelector("details").open = true;
  byId("whatif-names").value = name;
  document.querySelector("input[name=how][value=lost]").checked = true;
  askForecast();
}
let lastForecast; // the last forecast, and what it is of
async function askForecast() {
  const how = document.querySelector("input[name=how]:checked");
  const names = byId("whatif-names").value;
  const title = `If ${how.parentElement.textContent.trim()}: ${names}`;
  byId("forecast").hidden = false;
  byId("forecast").focus();
  say(byId("forecast-title"), `${title}: reading…`);
  fillList("forecast-facts", []);
  forecast.set([]);
  try {
    const { said } = await ask(`simulate?${new URLSearchParams({ [how.value]: names })}`);
    say(byId("forecast-title"), title);
    lastForecast = { said, title: `${title} (forecast of ${moment(new Date(now()).toISOString())})` };
    byId("room-clear").hidden = false;
    draw();
    // A workload that leaves two clusters is in a list twice.
    const count = (state) => new Set(said[state].map((it) => titleOf(it.workload))).size;
    fillList("forecast-facts", [
      ...said.premises.map((it) => `! ${it}`),
      `Workloads: → ${count("moves")} move, ✖ ${count("stranded")} are stranded, ! ${count("held")} are held, = ${count("stays")} stay`,
      ...said.facts.slice(0, SHOWN),
    ]);
    forecast.set(Object.keys(OUTCOMES).flatMap((state) => said[state].map((it) => ({ state, name: titleOf(it.workload), ...it }))));
  } catch (error) {
    say(byId("forecast-title"), `✖ ${title}: ${error.message}`);
  }
}
byId("room-clear").addEventListener("click", () => {
  lastForecast = undefined;
  byId("room-clear").hidden = true;
  draw();
});
document.addEventListener("click", ({ target }) => target.dataset?.lost && whatIf(target.dataset.lost));
byId("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const [kind, name] = byId("explain-what").value.trim().split(/[/ ]+/);
  if (!name) say(byId("explain-error"), "✖ Write a kind and a name, such as deployment/web");
  else location.hash = address("workload", byId("explain-namespace").value.trim(), kind, name);
});
byId("whatif-form").addEventListener("submit", (event) => {
  event.preventDefault();
  askForecast();
});

// Drawing.

const last = {}; // what was read last: clusters, status, failovers, top
function draw() {
  const { clusters, status, failovers, top } = last;
  if (!clusters && faults.length) say(byId("map-more"), "? not known: the clusters could not be read");
  if (clusters) {
    const by = byId("by");
    const keys = groupings(clusters);
    if (keys.join() !== [...by.options].map((it) => it.value).join()) by.replaceChildren(...keys.map((it) => new Option(it, it, false, it === by.value)));
    drawMap({ clusters, by: by.value, orders, status, failovers: failovers || [], now: now(), old: isOld() });
    stories.show({ clusters, orders, status, failovers: failovers || [], now: now(), health });
  }
  drawStrips(failovers, status, now());
  // Whether a cluster is silent is known better than its room.
  const ready = new Map((clusters || []).map((it) => [it.name, it.ready]));
  if (top) drawRoom(top.map((it) => ({ ...it, ready: ready.get(it.name) ?? it.ready, isKept: orders.has(it.name) })), lastForecast?.said, lastForecast?.title);
  if (last.room) say(byId("room-read"), `Read at ${moment(new Date(last.room).toISOString()).slice(11)}.`);
}
byId("by").addEventListener("change", draw);
let wide = innerWidth;
addEventListener("resize", () => {
  if (wide !== innerWidth) draw();
  wide = innerWidth;
});

// Looking.

const kept = new Map(); // by path: the last answer, and its tag
async function ask(path) {
  const asked = performance.now();
  const before = kept.get(path);
  let response;
  try {
    const headers = before ? { "If-None-Match": before.tag } : {};
    response = await fetch(`api/${path}`, { headers, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Error("kubectl muster ui does not answer: has it been stopped?");
  }
  const isSame = response.status === 304;
  const said = isSame ? before.said : await response.json();
  if (!response.ok && !isSame) throw new Error(said.error);
  if (LOOKED.includes(path)) kept.set(path, { said, tag: response.headers.get("ETag") });
  const age = 1000 * Number(response.headers.get("Age"));
  return { said, code: Number(response.headers.get("Muster-Exit-Code")), read: asked - age, lasts: Number(response.headers.get("Muster-Lasts")) };
}
const LOOKED = ["status", "history", "top"];

let seen; // by performance.now(): how old what is shown is at most
let faults = [];
let blind; // the summary of a status that could not be read
let isLost = false; // whether the last refresh of the state of the fleet failed
let patience = OLD; // seconds after which what is shown counts as old
let refreshes = 0;
async function refresh() {
  const found = [];
  let failed = true;
  try {
    const { said, code, read, lasts } = await ask("status");
    const isBlind = code === 2;
    blind = isBlind ? said.summary : undefined;
    failed = isBlind && !said.clusterList;
    if (!isBlind) at = Date.parse(said.read);
    last.status = { ...said, isBlind };
    showStatus(last.status, code);
    if (isBlind) found.push(said.summary.sentence);
    // In a large fleet an answer is given again for longer.
    if (!failed) [seen, patience] = [read, OLD + lasts];
    const rank = (it) => Object.keys(STATES).indexOf(stateOf(it, orders.get(it.name)));
    // A pause of the whole fleet is said above, and is no state of each cluster.
    const isPaused = said.pausedClusters.includes(null);
    if (said.clusterList) last.clusters = said.clusterList.map((it) => (isPaused ? { ...it, paused: false } : it));
    if (said.clusterList) table.set([...last.clusters].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1)));
    else say(table.count, UNKNOWN);
  } catch (fault) {
    blind = undefined;
    found.push(fault.message);
  }
  isLost = failed;
  const error = byId("history-error");
  try {
    const { said } = await ask("history");
    last.failovers = said;
    past.set(said);
    error.hidden = true;
  } catch (fault) {
    // That nothing can be read is said above.
    if (!failed) say(error, `✖ ${fault.message}`);
    error.hidden = failed;
  }
  faults = found;
  tick(true);
  if (refreshes++ % (last.clusters?.length <= SMALL ? 3 : ROOM)) return;
  try {
    last.top = (await ask("top")).said;
    last.room = now();
    say(byId("room-error"), "");
  } catch (fault) {
    refreshes = 0;
    say(byId("room-error"), failed ? "? not known now" : `? not known: ${fault.message}`);
  }
  draw();
}
let known; // the status that was shown last as known
function tick(isLook) {
  const age = seen === undefined ? undefined : (performance.now() - seen) / 1000;
  say(byId("read"), age === undefined ? "not read yet" : `read at ${new Date(at).toISOString().slice(11, 19)}Z, ${span(age)} ago`);
  // A browser calls a page that nobody sees once a minute.
  const old = age !== undefined && age > patience + (document.hidden ? 60 : 0);
  const words = [];
  if (faults.length) words.push("✖ THE FLEET CANNOT BE READ", ...faults.slice(0, 5));
  if (old || (isLost && age !== undefined)) words.push(`✖ WHAT IS SHOWN IS OLD: it was read ${span(age)} ago`);
  const isUnknown = age === undefined ? words.length > 0 : isLost || old;
  if (isUnknown) {
    const sentence = age === undefined ? "✖ Nothing could be read" : "? Not known now: what is shown is the last that could be read";
    showHeadline({ severity: "unknown", sentence, matters: away(blind, known), title: "? not known – Muster", icon: "unknown.svg" });
  } else if (last.status) {
    known = last.status;
    showHeadline(headline(last.status, last.failovers));
  }
  byId("banner").hidden = !words.length;
  say(byId("banner"), words.join("\n"));
  const changes = document.body.classList.contains("old") !== isUnknown;
  document.body.classList.toggle("old", isUnknown);
  if (!changes && !isLook) return;
  for (const table of tables) table.tick();
  draw();
}
async function watch() {
  for (;;) {
    await refresh().catch((error) => (faults = [String(error)]));
    await new Promise((resume) => setTimeout(resume, document.hidden ? UNSEEN : PAUSE));
  }
}
setInterval(() => tick(false), 1000);
stories.start(ask, draw);
// A link to a part of the page that is folded opens it.
function unfold() {
  const details = location.hash.includes("/") ? null : byId(location.hash.slice(1))?.querySelector("details");
  if (details) details.open = true;
}
addEventListener("hashchange", unfold);
unfold();
document.addEventListener("visibilitychange", () => document.hidden || tick(true));
watch();
