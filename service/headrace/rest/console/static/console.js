// What the pages cannot say in HTML: the answers to buttons, and the chart of a table's freshness.
"use strict";

const message = document.getElementById("message");

function show(text, failed) {
  message.className = failed ? "failed" : "";
  message.textContent = text; // never as HTML: it may contain names and errors
}

document.body.addEventListener("htmx:afterRequest", (event) => {
  const { successful, xhr, elt } = event.detail;
  if (successful) {
    show(`${elt.textContent.trim()}: accepted`, false);
    return;
  }
  let cause = xhr && xhr.status ? `the worker answered ${xhr.status}` : "the worker does not answer";
  try {
    cause = JSON.parse(xhr.responseText).message;
  } catch {
    // the answer is not one of the REST API
  }
  show(`${elt.textContent.trim()}: ${cause}`, true);
});

// A link or button that is replaced between press and release gets no click: a live part waits until the release.
let pressed = false;
const waiting = new Map(); // by live part, its newest state
document.addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => window.setTimeout(() => { // behind the click
    pressed = false;
    waiting.forEach((state, part) => htmx.swap(part, state, { swapStyle: "innerHTML" }));
    waiting.clear();
  }));
}
document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
  if (pressed) {
    waiting.set(event.target, event.detail.data);
    event.preventDefault();
  }
});

const MOST_POINTS = 1800; // an hour, with one every two seconds
const chart = document.getElementById("freshness-chart");
if (chart) {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const points = [[], [], []]; // times, seconds behind, target
  const axis = { stroke: color("--text"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  const shownTimes = () => { // at least two minutes; for a single point uPlot would show years
    const now = points[0].at(-1) ?? Date.now() / 1000;
    return [Math.min(points[0][0] ?? now, now - 120), now];
  };
  const size = () => ({ width: chart.clientWidth, height: 220 });
  const plot = new uPlot({
    ...size(),
    series: [
      {},
      { label: "behind, s", stroke: color("--link"), width: 2, spanGaps: false },
      { label: "target, s", stroke: color("--warn"), dash: [6, 4] },
    ],
    scales: { x: { range: shownTimes }, y: { range: (_, least, most) => [0, Math.max(most || 0, 1) * 1.1] } },
    axes: [axis, { ...axis, label: "seconds" }],
    cursor: { drag: { x: false, y: false } },
  }, points, chart);
  window.addEventListener("resize", () => plot.setSize(size()));

  const add = () => {
    const shown = document.getElementById("freshness");
    if (!shown) return;
    const number = (text) => (text === "" ? null : Number(text));
    points[0].push(Date.now() / 1000);
    points[1].push(number(shown.dataset.seconds));
    points[2].push(number(shown.dataset.target));
    if (points[0].length > MOST_POINTS) points.forEach((values) => values.shift());
    plot.setData(points);
  };
  add();
  window.setInterval(add, 2000);
}
