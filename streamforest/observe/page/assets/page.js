"use strict";
// Asks for the numbers once a second while the page is looked at, and puts them into the document as text.

const COLORS = ["--s1", "--s2", "--s3", "--s4", "--s5"];
const SMOOTH = 300; // labelled events that one drawn accuracy covers at least
const $ = (id) => document.getElementById(id);
const state = { range: null, axis: null, part: null, points: null, drawn: "", view: "", fetched: 0, now: null, heard: 0, scale: "full" };
const shown = new Map(); // what stands in a part of the document: only changes are written

const upTo = (floor) => (low, high) => [0, Math.max(floor, (high || 0) * 1.1)];
const charts = {
  accuracy: new Chart({ id: "c-accuracy", title: "Accuracy", height: 290, format: percent, marks: true,
    range: (low, high) => state.scale === "zoom" ? zoomed() : [Math.max(0, Math.floor((low ?? 0) * 10 - 0.01) / 10), Math.min(1, Math.ceil((high || 1) * 20 + 0.2) / 20)],
    empty: "Not enough data yet: accuracy is drawn from the first few hundred labelled events on." }),
  rate: new Chart({ id: "c-rate", title: "Throughput", height: 170, format: compact, range: upTo(1) }),
  cost: new Chart({ id: "c-cost", title: "Model time", height: 170, format: duration, range: upTo(1e-6),
    empty: "Not enough data yet: one batch a second is timed." }),
  wait: new Chart({ id: "c-wait", title: "End to end", height: 170, format: duration, range: upTo(0.01),
    empty: "Not enough data yet." }),
  lag: new Chart({ id: "c-lag", title: "Lag", height: 170, format: compact, range: upTo(10) }),
  novelty: new Chart({ id: "c-novelty", title: "Novelty", height: 170, format: trim, range: upTo(1.5),
    empty: "This kind of forest does not measure novelty." }),
};

// the later nine tenths of the models' curves: the first events of a run are not worth the room
function zoomed() {
  const values = charts.accuracy.curves.filter((c) => !c.dash).flatMap((c) => c.values.slice(c.values.length / 10)).filter((v) => v !== null);
  const low = values.length ? Math.min(...values) : 0;
  return [Math.max(0, Math.floor(low * 50 - 0.5) / 50), 1];
}

// ---- asking

async function ask(name) {
  const prefix = state.part === null ? "/page/" : `/page/${state.part}/`;
  const answer = await fetch(`${prefix}${name}.json`, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

let waiting = null;
async function turn() {
  clearTimeout(waiting);
  let pause = 1000; // milliseconds
  try {
    const told = await ask("now");
    state.heard = Date.now();
    state.now = told;
    choose(told);
    const mark = told.run ? wanted(told) : "", view = `${state.part}/${state.range}`;
    // curves every other second; at once where another one is asked for, or there is little to see yet
    const soon = view !== state.view || !state.points || state.points.at.length < 20;
    if (told.run && mark !== state.drawn && (soon || state.heard - state.fetched > 1900)) {
      state.points = await ask(state.range);
      state.drawn = mark;
      state.view = view;
      state.fetched = state.heard;
    }
    render(told);
    live("on", told.run && told.run.finished ? "finished" : "live");
  } catch (error) {
    live("lost", state.heard ? `no answer for ${age((Date.now() - state.heard) / 1000)}` : "no answer; trying again");
    pause = 2000;
  }
  if (!document.hidden) waiting = setTimeout(turn, pause);
}

const wanted = (told) => `${state.part}/${state.range}/${told.run.revision}`;

// the first answer decides what is drawn, unless the address says it
function choose(told) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const run = told.run, span = run && run.first_at ? told.now - run.first_at : 0;
  if (!state.range) {
    const range = asked.get("range");
    state.range = ["minutes", "hours", "whole"].includes(range) ? range : span > 7200 ? "hours" : "whole";
    const axis = asked.get("axis");
    state.axis = ["time", "events"].includes(axis) ? axis : told.about.on_kafka ? "time" : "events";
    if (asked.get("scale") === "zoom") state.scale = "zoom";
    for (const [name, value] of [["range", state.range], ["axis", state.axis], ["scale", state.scale]]) {
      document.querySelector(`input[name=${name}][value=${value}]`).checked = true;
    }
  }
  once("parts", told.partitions.join(), () => {
    $("parts").hidden = told.partitions.length < 2;
    $("part").replaceChildren(...told.partitions.map((n) => element("option", { value: n, text: n, selected: n === told.partition })));
  });
}

function live(kind, text) {
  $("live").dataset.state = kind;
  put("live-text", text);
}

// ---- writing

function put(id, text) {
  const node = $(id);
  if (node.textContent !== text) node.textContent = text;
}

function once(id, mark, write) {
  const key = typeof mark === "string" ? mark : JSON.stringify(mark);
  if (shown.get(id) === key) return;
  shown.set(id, key);
  write();
}

function rows(id, mark, made) {
  once(id, mark, () => {
    const list = made();
    $(id).replaceChildren(...list);
    const empty = $(`${id}-empty`);
    if (empty) {
      empty.hidden = list.length > 0;
      $(id).closest(".scroll").hidden = list.length === 0;
    }
  });
}

const cell = (text, kind = "") => element("td", { class: kind, text });
const before = (at) => (at ? `${age(state.now.now - at)} ago` : "never");

function render(told) {
  const { about, run } = told;
  document.title = `${about.pipeline} · streamforest`;
  put("pipeline", about.pipeline);
  const total = about.total === null ? "" : ` of ${whole(about.total)}`;
  const events = run ? ` · ${whole(run.events)}${total} events` : "";
  put("source", `${about.on_kafka ? "" : "file run of "}${about.source}${events}`);
  put("version", `streamforest ${about.version}`);
  once("status", told.status, () => $("status").replaceChildren(...told.status.map(status)));
  if (!run) return;
  tiles(run, about);
  tables(run);
  facts(run, about);
  if (state.points) draw(run);
}

const WORDS = { ok: "OK", info: "Note", warning: "Warning", error: "Problem" };
function status(row) {
  const made = element("li", { "data-level": row.level }, element("span", { class: "mark", text: WORDS[row.level] }), element("span", {}, ...coded(row.what)));
  if (row.remedy) made.append(element("span", { class: "remedy" }, ...coded(row.remedy)));
  return made;
}

// text between backquotes is a command
function coded(text) {
  return text.split("`").map((part, i) => (i % 2 ? element("code", { text: part }) : document.createTextNode(part)));
}

function tiles(run, about) {
  const { window: w, lag, latency } = run;
  const few = w.labelled < 50;
  put("t-accuracy", few ? "–" : percent(w.accuracy));
  put("t-accuracy-note", few ? "not enough data yet" : `of the last ${whole(w.labelled)} labels`);
  put("t-kappa", few || w.kappa_temporal === null ? "–" : w.kappa_temporal.toFixed(3));
  put("t-kappa-note", few ? "not enough data yet" : `no-change is at ${percent(w.no_change)}`);
  const recent = run.classes.recent[0];
  put("t-classes", run.classes.known || recent ? whole(Math.max(run.classes.known, run.classes.born)) : "–");
  put("t-classes-note", recent ? `newest: ${short(recent.name)}, ${before(recent.at)}` : "none is new");
  put("t-rate", run.rate === null ? "–" : `${compact(run.rate)}/s`);
  put("t-rate-note", `newest label ${before(run.labelled_at)}`);
  const timed = latency.wait_median !== null;
  put("t-wait-name", timed || about.on_kafka ? "End to end" : "Predict and learn");
  const both = latency.predict === null ? null : latency.predict + (latency.learn || 0);
  put("t-wait", duration(timed || about.on_kafka ? latency.wait_median : both));
  put("t-wait-note", timed ? `median; p99 ${duration(latency.wait_p99)}` : about.on_kafka ? "not enough data yet" : "per event");
  put("t-lag-name", about.total === null ? "Lag" : "Progress");
  if (about.total === null) {
    put("t-lag", lag.known ? duration(lag.records ? lag.seconds : 0) : "–");
    put("t-lag-note", lag.known ? `${whole(lag.records)} records` : "not known yet");
  } else {
    put("t-lag", percent(run.events / about.total));
    put("t-lag-note", `${whole(run.events)} of ${whole(about.total)}`);
  }
}

const short = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

function tables(run) {
  const { classes } = run;
  once("ages", classes.ages, () => $("ages").replaceChildren(...classes.ages.map((text) => element("th", { scope: "col", text }))));
  put("classes-sub", classes.births.length ? `${whole(classes.born)} so far; the newest first` : "");
  rows("classes", [classes.recent, Math.floor(state.now.now / 10)], () => classes.recent.map((one) => {
    const name = element("th", { scope: "row", text: one.name });
    const born = `event ${whole(one.learned + 1)}, ${before(one.at)}`;
    name.append(element("small", { class: "narrow", text: born }));
    const ages = classes.ages.map((_, i) => heat(one.ages[i]));
    const reached = one.reached === null ? "not yet" : `${whole(one.reached)} events`;
    return element("tr", {}, name, cell(born, "wide"), cell(whole(one.events), "n"), ...ages, cell(percent(one.now), "n"), cell(reached, one.reached === null ? "n none" : "n"));
  }));
  put("confused-sub", run.confused.events ? `in the last ${whole(run.confused.events)} labels` : "");
  rows("confused", run.confused.pairs, () => run.confused.pairs.map(([label, guess, times, of]) =>
    element("tr", {}, element("th", { scope: "row", text: label }), cell(guess || "no class yet", guess ? "text" : "none"), cell(whole(times), "n"), cell(percent(times / of), "n"))));
  put("confused-empty", run.confused.events ? "No mistake lately." : "Not enough data yet.");
  put("models-sub", run.window.labelled ? `lately: the last ${whole(run.window.labelled)} labels` : "");
  rows("models", [run.models, run.main], () => run.models.map((one) => {
    const name = element("th", { scope: "row", text: one.name });
    if (one.name === run.main) name.append(element("span", { class: "tag", text: "publishes" }));
    const number = (v) => (v === null || v === undefined ? "–" : whole(v));
    const kappa = one.kappa_temporal === null ? "–" : one.kappa_temporal.toFixed(3);
    return element("tr", {}, name, cell(percent(one.accuracy), "n"), cell(percent(one.overall), "n"), cell(kappa, "n wide"), cell(number(one.learned), "n"),
      cell(number(one.trees), "n wide"), cell(number(one.replaced), "n wide"), cell(number(one.challengers), "n wide"), cell(bytes(one.bytes), "n wide"));
  }));
  const { dead } = run;
  put("dead-sub", dead.share ? `${percent(dead.share)} of the last events` : "");
  once("reasons", dead.reasons, () => $("reasons").replaceChildren(...dead.reasons.map(([reason, count]) => element("li", { text: `${reason} ${whole(count)}` }))));
  rows("letters", [dead.letters, Math.floor(state.now.now / 10)], () => dead.letters.map((one) =>
    element("tr", {}, cell(age(state.now.now - one.at), "n"), cell(one.reason), cell(one.message, "text"), cell(one.place, "text wide"))));
}

function heat(pair) {
  const value = pair && pair[0] ? pair[1] / pair[0] : null;
  const made = element("td", { class: value === null ? "heat wide none" : "heat wide" });
  const inner = element("span", { text: value === null ? "–" : percent(value, true) });
  if (value !== null) {
    inner.style.setProperty("--v", value.toFixed(2));
    inner.title = `${pair[1]} of ${pair[0]}`;
  }
  made.append(inner);
  return made;
}

function facts(run, about) {
  const d = run.delivery;
  const role = d.role === "standby" ? `standby, ${whole(d.behind)} behind` : d.role || "–";
  list("delivery", [
    ["Role", d.role === "owner" && about.on_kafka ? `owner of ${d.partitions} partition${d.partitions === 1 ? "" : "s"}` : role],
    ["Last commit", before(d.committed_at)],
    ["Commits", whole(d.commits)],
    ["Commits in doubt", whole(d.in_doubt)],
    ["Last snapshot", d.snapshot_at ? `${before(d.snapshot_at)}, ${bytes(d.snapshot_bytes)}` : "none yet"],
    ["Snapshots, failed", `${whole(d.snapshots)}, ${whole(d.snapshot_failures)}`],
    ["Rebalances", whole(d.rebalances)],
  ]);
  $("labels-card").hidden = !run.labels;
  if (run.labels) {
    const { counts } = run.labels;
    const count = (name) => whole(counts[name] || 0);
    list("labels", [
      ["Matched", count("matched")],
      ["Events that wait", whole(run.labels.waiting)],
      ["Labels that wait", whole(run.labels.early)],
      ["Expired", count("expired")],
      ["Duplicate, unmatched, refused", `${count("duplicate")}, ${count("unmatched")}, ${count("refused")}`],
      ["Share of events with a label", percent(run.labels.share)],
    ]);
  }
}

function list(id, pairs) {
  once(id, pairs, () => $(id).replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })])));
}

// ---- drawing

function draw(run) {
  const points = state.points, time = state.axis === "time";
  const key = JSON.stringify([state.drawn, state.axis, state.scale, run.classes.births.length, state.part]);
  if (shown.get("charts") === key) return;
  shown.set("charts", key);
  const xs = time ? points.at : points.learned;
  const keep = xs.map((x, i) => i === xs.length - 1 || xs[i + 1] > x);
  const pick = (values) => values.filter((_, i) => keep[i]);
  const x = pick(xs);
  const names = Object.keys(points.models);
  names.sort((a, b) => (b === run.main) - (a === run.main));
  const curves = names.slice(0, 5).map((name, i) => ({
    name, color: COLORS[i], spans: true, values: pick(smooth(points.models[name])),
  }));
  const plain = points.no_change.map((n, i) => [points.labelled[i], n]);
  curves.push({ name: "no-change", color: "--s0", dash: true, spans: true, values: pick(smooth(plain)) });
  const marks = run.classes.births.map((one) => ({ x: time ? one.at : one.learned, name: one.name }));
  charts.accuracy.show(x, curves, time, marks);
  const at = points.at;
  charts.rate.show(at, [{ name: "events", color: "--s1", values: points.rate }, { name: "dead letters", color: "--s4", values: points.refused }], true);
  charts.cost.show(at, [{ name: "predict", color: "--s2", spans: true, values: points.predict }, { name: "learn", color: "--s1", spans: true, values: points.learn }], true);
  charts.wait.options.empty = state.now.about.on_kafka ? "Not enough data yet." : "Events of a file bear no record time.";
  charts.wait.show(at, [{ name: "median", color: "--s1", spans: true, values: points.wait_median }, { name: "p99", color: "--s0", dash: true, spans: true, values: points.wait_p99 }], true);
  charts.lag.show(at, [{ name: "records", color: "--s1", spans: true, values: points.lag }], true);
  charts.novelty.show(at, [{ name: "median", color: "--s1", spans: true, values: points.novelty }], true);
}

// accuracy over the last labelled events up to each point, at least SMOOTH of them
function smooth(pairs) {
  let from = 0, labelled = 0, correct = 0;
  return pairs.map(([n, hits]) => {
    labelled += n;
    correct += hits;
    while (labelled - pairs[from][0] >= SMOOTH) {
      labelled -= pairs[from][0];
      correct -= pairs[from][1];
      from += 1;
    }
    return n ? correct / labelled : null;
  });
}

// ---- what the reader does

for (const input of document.querySelectorAll(".switch input")) {
  input.addEventListener("change", () => {
    state[input.name] = input.value;
    history.replaceState(null, "", `#range=${state.range}&axis=${state.axis}&scale=${state.scale}`);
    turn();
  });
}
$("part").addEventListener("change", (event) => {
  state.part = Number(event.target.value);
  state.points = null;
  shown.clear();
  turn();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(waiting) : turn()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Object.values(charts).forEach((chart) => chart.repaint()));
turn();
