// The story of a cluster, a workload or a failover: what the address of the page names.

import { STATES, address, ago, moment, oldCopies, route, span, stateOf, strip, titleOf, upcoming, workloadAddress } from "./model.js";
import { stripOf, toggle } from "./draw.js";
import { byId, patch, say } from "./rows.js";

const SHOWN = 100; // workloads of a cluster
let fleet; // what was read last
let shown; // the parts of the address
let asked = {}; // what was read for the story, or why it could not be
let isNew = false; // whether the reader has not been led to the story yet
const AGAIN = 15000; // milliseconds after which what was read for the story is read again

export function start(ask, changed) {
  const open = async () => {
    const parts = route(location.hash);
    if (parts?.[0] === "group") {
      toggle(parts[1] === "-" ? "" : parts[1]);
      // The address goes back, so that the next click has an effect again.
      history.replaceState(null, "", shown ? address(...shown) : location.pathname);
      changed();
      return;
    }
    if (!parts && shown && location.hash && location.hash !== "#") return;
    shown = parts;
    asked = {};
    isNew = true;
    say(byId("story-copied"), "");
    showStory();
    await read();
  };
  const read = async () => {
    const parts = shown;
    const path = parts && pathOf(parts);
    if (!path) return;
    const found = await ask(path).then(({ said }) => ({ said }), (error) => ({ error: error.message }));
    if (shown !== parts) return;
    asked = found;
    showStory();
  };
  setInterval(() => document.hidden || !(asked.said || asked.error) || read(), AGAIN);
  addEventListener("hashchange", open);
  byId("story-close").addEventListener("click", () => {
    location.hash = "";
    byId("map").focus();
  });
  byId("story-copy").addEventListener("click", copy);
  open();
}
function pathOf([kind, ...names]) {
  if (kind === "cluster") return `workloads?${new URLSearchParams({ cluster: names[0] })}`;
  if (kind !== "workload") return undefined;
  const [namespace, of, name] = names;
  return `explain?${new URLSearchParams({ namespace: namespace === "-" ? "" : namespace, kind: of, name })}`;
}
// The address holds a secret and is of this machine alone. The command opens the same story with
// the rights of whoever runs it.
const command = () => `kubectl muster ui ${shown.join("/")}`;
async function copy() {
  const text = `${byId("verdict").textContent} (${byId("read").textContent})\n${command()}`;
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  say(byId("story-copied"), done ? "copied, with the sentence of the fleet" : "the browser does not let this page copy");
}

export function show(all) {
  fleet = all;
  showStory();
}
function showStory() {
  const section = byId("story");
  section.hidden = !shown || !fleet;
  if (section.hidden) return;
  const [kind, ...names] = shown;
  say(byId("story-title"), kind === "workload" ? titleOf({ namespace: names[0] === "-" ? "" : names[0], kind: names[1], name: names[2] }) : `${kind[0].toUpperCase()}${kind.slice(1)} ${names[0]}`);
  say(byId("story-command"), command());
  patch(byId("story-body"), { cluster: ofCluster, workload: ofWorkload, failover: ofFailover }[kind](...names));
  if (isNew) {
    isNew = false;
    section.focus({ preventScroll: true });
    section.scrollIntoView({ block: "nearest" });
  }
}
const lines = (all) => ["ul", {}, all.filter(Boolean).map((it) => ["li", {}, it])];
const waits = () => ["p", { class: asked.error ? "error" : "quiet" }, asked.error ? `✖ ${asked.error}` : "reading…"];

function ofCluster(name) {
  const { clusters, orders, status, failovers, now, health } = fleet;
  const it = clusters.find((it) => it.name === name);
  if (!it) return [["p", { class: "error" }, `There is no cluster ${name} in the fleet.`]];
  const state = stateOf(it, orders.get(name));
  const found = status?.notWell.find((it) => it.name === name);
  const next = (found || orders.get(name))?.next;
  const own = failovers.filter((it) => it.spec.cluster === name).slice(0, 5);
  return [
    ["p", { class: `state ${STATES[state].kind}` }, health(it)],
    lines([
      `Last heard ${ago(it.lastHeard, now)}${it.since ? `; in this state since ${moment(it.since)}` : ""}${it.reason ? ` (${it.concern || it.reason})` : ""}`,
      it.nodes === null ? "Nodes: not known" : `Nodes: ${it.readyNodes} of ${it.nodes} ready${it.ready === "True" ? "" : ", as last reported"}`,
      it.workloads === null ? "Workloads: not known" : `Workloads placed there: ${it.workloads}`,
      it.oldCopies === null ? "Old copies: not known" : it.oldCopies ? `! ${oldCopies(it.oldCopies)} not confirmed gone, and may still run there` : "",
      found?.became && `What has become of its workloads: ${found.became}`,
      next && `Next: ${upcoming(next, now)}`,
      it.taints.length ? `Taints: ${it.taints.join(", ")}` : "",
      found?.why && `Why: ${found.why}`,
    ]),
    ["p", {}, [["button", { type: "button", "data-lost": name }, `Forecast the loss of ${name}`]]],
    ...(own.length ? [["h3", {}, "Failovers"], ["ul", {}, own.map((it) => ["li", {}, [["a", { href: address("failover", it.metadata.name) }, `${moment(it.spec.startTime)}: ${it.status?.cause?.type || "?"}, ${it.status?.state || "not known yet"}`]]])]] : []),
    ["h3", {}, "Workloads there, and those that leave it"],
    ...(asked.said ? [ofClusters(asked.said, name)] : [waits()]),
  ];
}
function ofClusters(all) {
  const rank = (it) => (it.state === "Placed" ? 1 : 0);
  const sorted = [...all].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const more = sorted.length - SHOWN;
  return ["ul", {}, [
    ...sorted.slice(0, SHOWN).map((it) => ["li", {}, [
      ["a", { href: address("workload", it.namespace, it.kind, it.name) }, titleOf(it)],
      ["span", {}, `: ${it.state}${it.clusters.length ? `, on ${it.clusters.join(", ")}` : ""}${it.leaving.length ? `, leaving ${it.leaving.join(", ")}` : ""}`],
    ]]),
    ...(more > 0 ? [["li", {}, `and ${more} more: kubectl muster get workloads -A --cluster ${shown[1]}`]] : []),
    ...(sorted.length ? [] : [["li", {}, "none"]]),
  ]];
}

function ofWorkload() {
  const it = asked.said;
  if (!it) return [waits()];
  const on = it.clusters.map((it) => `${it.name}${it.replicas ? ` (${it.replicas})` : ""}`).join(", ");
  const list = (words, all) => (all || []).map((text) => `${words}: ${text}`);
  return [
    ["p", { class: `state ${it.unavailable || !on ? "bad" : "good"}` }, on ? `${it.unavailable ? "?" : "✔"} On ${on}` : "✖ Placed nowhere"],
    lines([
      it.replicas === undefined ? "" : `Replicas: ${it.replicas}`,
      it.placedBy && `Placed by ${it.placedBy}`,
      ...(it.unavailable || []).map(({ cluster, reason }) => `! ${cluster} cannot hold it now: ${reason}`),
      ...(it.leaving || []).flatMap(({ cluster, reason, since, waitsFor }) => [`→ Leaves ${cluster} since ${moment(since)}: ${reason}`, ...list("  its copy there waits", waitsFor)]),
      ...list("! Old copy", it.oldCopies),
      ...list("Moved", it.moves),
      it.nobodyLeads && `! ${it.nobodyLeads}: nothing of what follows is done before a control plane does`,
      it.paused && `! Stays where it is: ${it.paused}`,
      it.pauseUnread && `? Pause: ${it.pauseUnread}`,
      it.suspended && `! Suspended: ${it.suspended}`,
      ...list("Data", it.data),
      ...list("Would help", it.wouldHelp),
      ...list("Failback", it.returns),
      it.heldBack && `! Not scheduled here: ${it.heldBack}`,
      ...(it.conditions || []).map((it) => `${it.type}=${it.status} since ${moment(it.lastTransitionTime)}: ${it.reason} ${it.message}`),
    ]),
    ["p", {}, it.verdict],
    ...it.attempts.flatMap(attempt),
  ];
}
function attempt({ group, clusters, failure }) {
  const fate = (it) => {
    if (it.fate === "deleting") return ["✖", "is being deleted"];
    const why = (all) => all.map((it) => it.reason).join("; ");
    if (it.fate === "refused") return ["✖", why(it.by)];
    const room = it.capacity === null ? "" : `, room for ${it.capacity} more`;
    const closed = it.closed ? `, no more: ${why(it.closedBy || [])}` : "";
    return [it.given === null ? "–" : "✔", `${it.given === null ? "fits, is given nothing" : `is given ${it.given || "it"}`}, score ${it.score}${room}${closed}`];
  };
  const rank = (it) => (it.fate === "fits" ? (it.given === null ? 1 : 0) : 2);
  const sorted = [...clusters].sort((a, b) => rank(a) - rank(b));
  const more = sorted.length - SHOWN;
  return [
    ["h3", {}, `If it were scheduled now${group ? `, affinity group ${group}` : ""}${failure ? `: ${failure}` : ""}`],
    ["ul", {}, [...sorted.slice(0, SHOWN).map((it) => {
      const [sign, words] = fate(it);
      return ["li", {}, [["span", {}, `${sign} `], ["a", { href: address("cluster", it.name) }, it.name], ["span", {}, `: ${words}`]]];
    }), ...(more > 0 ? [["li", {}, `and ${more} more`]] : [])]],
  ];
}

function ofFailover(name) {
  const it = fleet.failovers.find((it) => it.metadata.name === name);
  if (!it) return [["p", { class: "error" }, `There is no record of a failover ${name}.`]];
  const status = it.status || {};
  const start = Date.parse(it.spec.startTime);
  const to = (cluster, words) => ["li", {}, [["span", {}, `${words} to `], ["a", { href: address("cluster", cluster) }, cluster]]];
  return [
    ["div", { class: "strip" }, stripOf(strip(it, fleet.status, fleet.now), Math.max(240, byId("story-body").clientWidth))],
    ["p", {}, status.cause?.message || ""],
    ["ol", {}, it.steps.map(({ time, words }) => {
      const after = (Date.parse(time) - start) / 1000;
      return ["li", {}, `${moment(time)}, ${after < 0 ? `${span(-after)} before` : `after ${span(after)}`}: ${words}`];
    })],
    ["ul", {}, [
      ...(status.cause?.command ? [["li", {}, `Command: ${status.cause.command}`]] : []),
      ...(status.targets || []).map((it) => to(it.cluster, String(it.workloads))),
      ...(status.strandedReasons || []).map((why) => ["li", {}, `✖ ${why.workloads} stranded: ${why.reason}`]),
      ...(status.workloads?.held ? [["li", {}, `◷ at most ${status.workloads.held} held at a time: too many clusters had failed, or movement was paused`]] : []),
      ...(status.moves || []).slice(0, SHOWN).map((move) => {
        const title = titleOf(move.workload);
        return ["li", {}, [["a", { href: workloadAddress(title) }, title], ["span", {}, ` to ${move.to}, moved ${moment(move.time)}, ${move.healthy ? `healthy ${moment(move.healthy)}` : "not healthy yet"}`]]];
      }),
    ]],
  ];
}
