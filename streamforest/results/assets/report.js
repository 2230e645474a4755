"use strict";
// Fills the report from the numbers in the page. Every text goes in by textContent.

const data = JSON.parse(document.getElementById("data").textContent);
const put = (id, text) => { document.getElementById(id).textContent = text; };
const cell = (text, attributes = {}) => element("td", { text, ...attributes });
const count = (n) => Number(n).toLocaleString("en");
const tinted = (share, text, kind) => {
  const inner = element("span", { text });
  inner.style.setProperty("--v", share);
  return element("td", { class: kind }, inner);
};

put("title", document.title);
put("source", data.about.source);
put("made", `made ${data.about.made}`);
put("version", `streamforest ${data.about.version}`);

// ---- in short

const remarks = [];
if (!data.events) remarks.push("There are no predictions.");
else if (!data.labelled) remarks.push("No prediction has a label, so nothing can be judged. Where labels come later, give the pipeline file: then they are matched by id.");
else if (data.labelled < data.events) remarks.push(`${count(data.events - data.labelled)} of ${count(data.events)} predictions have no label and are left out below.`);
for (const remark of [...remarks, ...(data.remarks || [])]) {
  document.getElementById("remarks").hidden = false;
  const line = element("li", { "data-level": "info" });
  line.append(element("span", { class: "mark", text: "note" }), element("span", { text: remark }));
  document.getElementById("remark-list").append(line);
}
const three = (v) => (v === null ? "–" : v.toFixed(3));
const novelty = data.novelty;
for (const [name, value, note] of [
  ["Accuracy", percent(data.accuracy), `${count(data.labelled)} labelled events`],
  ["Kappa", three(data.kappa), "beyond chance"],
  ["κ temporal", three(data.kappa_temporal), `no-change: ${percent(data.no_change)}`],
  ["Classes", count(data.classes), `events ${data.first === null ? "–" : count(data.first)} to ${data.last === null ? "–" : count(data.last)}`],
  ["Calibration error", percent(data.calibration_error), novelty ? `novelty: new ${trim(novelty.new)}, known ${trim(novelty.known)}` : "mean gap of probability and accuracy"],
]) {
  const tile = element("div", { class: "tile" });
  const dd = element("dd", {}, element("b", { text: value }), element("span", { text: note }));
  tile.append(element("dt", { text: name }), dd);
  document.getElementById("tiles").append(tile);
}

// ---- curves

const curve = data.curve;
const accuracy = new Chart({
  id: "c-accuracy", title: "Accuracy over time", height: 290, format: percent, marks: true,
  range: () => [0, 1], empty: "Not enough labelled events for a curve.",
});
const births = data.births.listed.filter((one) => !curve.event.length || one.first > curve.event[0] * 0.01);
const reliability = new Chart({
  id: "c-calibration", title: "Calibration", height: 260, format: percent,
  range: () => [0, 1], empty: "Not enough labelled events for a curve.",
  place: (x) => `probability ${percent(x)}`,
});
function draw() {
  accuracy.show(curve.event, [
    { name: "accuracy", color: "--s1", values: curve.accuracy },
    { name: "no-change", color: "--s0", dash: true, values: curve.no_change },
    { name: "mean probability", color: "--s2", dash: true, values: curve.confidence },
  ], false, births.map((one) => ({ x: one.first, name: one.name })));
  reliability.show(data.calibration.map((one) => one.probability), [
    { name: "accuracy", color: "--s1", values: data.calibration.map((one) => one.accuracy) },
    { name: "as sure as it should be", color: "--s0", dash: true, values: data.calibration.map((one) => one.probability) },
  ], false);
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { accuracy.repaint(); reliability.repaint(); });
put("accuracy-sub", curve.event.length ? `${curve.event.length} points of about ${count(Math.round(data.labelled / curve.event.length))} labelled events` : "");
put("calibration-sub", data.calibration.length ? `expected calibration error ${percent(data.calibration_error)}` : "");

// ---- classes

for (const [name] of data.ages) document.getElementById("ages").append(element("th", { scope: "col", text: name }));
const listed = data.births.listed.slice().reverse();
for (const one of listed) {
  const row = element("tr", {}, element("th", { scope: "row", class: "text", text: one.name }));
  row.append(cell(count(one.first), { class: "n wide" }), cell(count(one.events), { class: "n" }));
  for (const age of one.ages) {
    const made = tinted(age === null ? 0 : age, age === null ? "–" : percent(age, true), `heat wide${age === null ? " none" : ""}`);
    row.append(made);
  }
  row.append(cell(percent(one.recall), { class: "n" }), cell(one.reached === null ? "not yet" : `${count(one.reached)} ev.`, { class: "n" }));
  document.getElementById("classes").append(row);
}
document.getElementById("classes-empty").hidden = listed.length > 0;
const left = data.births.total - listed.length;
put("classes-sub", left > 0 ? `the newest ${listed.length} of ${count(data.births.total)}` : "");

// ---- confusion

const confusion = data.confusion, names = confusion.names;
const others = confusion.matrix.some((row) => row[names.length] > 0);
const head = element("tr", {}, element("td"));
for (const name of others ? [...names, confusion.left_out > 0 ? "other" : "none yet"] : names) head.append(element("th", { scope: "col", text: name, title: name }));
if (names.length) document.getElementById("matrix-head").append(head);
confusion.matrix.forEach((row, i) => {
  const total = row.reduce((a, b) => a + b, 0);
  const line = element("tr", {}, element("th", { scope: "row", text: names[i], title: names[i] }));
  (others ? row : row.slice(0, names.length)).forEach((n, j) => {
    const share = total ? n / total : 0;
    const text = n === 0 ? "·" : share < 0.0095 ? "<1" : String(Math.round(share * 100));
    line.append(tinted(share, text, n === 0 ? "zero" : i === j ? "right" : "wrong"));
  });
  document.getElementById("matrix").append(line);
});
put("matrix-sub", confusion.left_out > 0 ? `the ${names.length} most frequent classes; ${count(confusion.left_out)} are left out` : "");
for (const pair of confusion.pairs) {
  document.getElementById("pairs").append(element("tr", {},
    cell(pair.label, { class: "text" }), cell(pair.predicted, { class: "text" }),
    cell(count(pair.times), { class: "n" }), cell(percent(pair.share), { class: "n" })));
}
document.getElementById("pairs-empty").hidden = confusion.pairs.length > 0;
