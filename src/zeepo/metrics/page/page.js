// Draws a run: `zeepoRun` is what RunHistory::json gives, or null on the live page, which asks for it again and again.

const kHeight = 210, kLeft = 68, kRight = 22, kTop = 12, kBottom = 34;
const kinds = { checkpoint: "--good", fault: "--bad", resume: "--calm", stop: "--bad" };  // marks, and their colors

const loss = (v) => v === null ? "not a number" : Math.abs(v) < 1e-3 && v !== 0 ? v.toExponential(3) : v.toFixed(4);

// Without the few that are far above all others: the plot is cut off there.
function usual_most(values) {
  const sorted = [...values].sort((a, b) => a - b), most = sorted[sorted.length - 1];
  const nearly = sorted[Math.floor((sorted.length - 1) * 0.98)];
  return sorted.length >= 20 && most > 3 * nearly && nearly > 0 ? 1.5 * nearly : most;
}

// The mean over a fortieth of the run around each value, for values that jump.
function smoothed(values) {
  const reach = Math.max(2, Math.round(values.length / 80)), sums = [0], counts = [0];
  for (const v of values) {
    sums.push(sums[sums.length - 1] + (v ?? 0));
    counts.push(counts[counts.length - 1] + (v === null ? 0 : 1));
  }
  return values.map((v, i) => {
    const before = Math.min(reach, i), after = Math.min(before, values.length - 1 - i);
    return v === null ? null : (sums[i + after + 1] - sums[i - before]) / (counts[i + after + 1] - counts[i - before]);
  });
}

// A path through the points that are there, between two edges.
function area(xs, lower, upper) {
  let text = "";
  for (let i = 0; i < xs.length;) {
    if (lower[i] === null || upper[i] === null) { ++i; continue; }
    let end = i;
    while (end < xs.length && lower[end] !== null && upper[end] !== null) ++end;
    const there = [], back = [];
    for (let k = i; k < end; ++k) {
      there.push(`${xs[k].toFixed(1)} ${upper[k].toFixed(1)}`);
      back.push(`${xs[k].toFixed(1)} ${lower[k].toFixed(1)}`);
    }
    text += `M${there.join("L")}L${back.reverse().join("L")}Z`;
    i = end;
  }
  return text;
}

// A card with a plot. `spec`: title, unit (a function), base, from_zero, stacked, smooth, wide, and
// lines: [{label, color, mean, min, max}], dots: [{label, color, points: [[step, value]]}].
class Chart {
  constructor(title, parent, wide) {
    this.legend = element("div", { class: "legend" });
    this.plot = element("div", { class: "plot" });
    this.logarithmic = false;
    this.button = element("button", { type: "button", title: "Logarithmic axis", "aria-pressed": "false" }, "log");
    this.button.addEventListener("click", () => {
      this.logarithmic = !this.logarithmic;
      this.button.setAttribute("aria-pressed", String(this.logarithmic));
      this.draw();
    });
    this.card = element("article", { class: wide ? "card wide" : "card" },
      element("div", { class: "head" }, element("h2", {}, title), this.legend, this.button), this.plot);
    parent.append(this.card);
    this.plot.addEventListener("pointermove", (event) => this.point_at(event));
    this.plot.addEventListener("pointerleave", () => this.point_at(null));
    new ResizeObserver(() => this.spec && this.plot.clientWidth !== this.width && this.draw()).observe(this.plot);
  }

  show(spec, run) {
    this.spec = spec;
    this.run = run;
    this.draw();
  }

  draw() {
    const { spec, run } = this, width = (this.width = this.plot.clientWidth || 600);
    this.plot.replaceChildren();
    this.draw_legend();
    this.stack = spec.stacked ? this.stacked() : null;
    const all = this.values();
    if (run.last.length === 0 || all.length === 0) {
      this.plot.append(element("div", { class: "none" }, spec.empty || "nothing yet"));
      this.svg = null;
      return;
    }
    this.button.hidden = !spec.may_be_log || !(smallest(all) > 0);
    const in_log = this.logarithmic && !this.button.hidden, scaled_to = in_log ? Math.log10 : (v) => v;
    let low = spec.from_zero ? 0 : smallest(all), high = spec.from_zero ? largest(all) : usual_most(all);
    if (!(high > low)) [low, high] = spec.from_zero || low === 0 ? [0, high || 1] : [low - Math.abs(low) / 10, low + Math.abs(low) / 10];
    const room = (high - low) * 0.06;
    if (in_log) [low, high] = [low / 1.05, high * 1.05];
    else [low, high] = [spec.from_zero ? low : low >= 0 && low - room < 0 ? 0 : low - room, high + room];
    const first = run.first[0], last = Math.max(run.last[run.last.length - 1], first);
    const x = (step) => last === first ? (kLeft + width - kRight) / 2 : kLeft + (step - first) / (last - first) * (width - kLeft - kRight);
    const top = scaled_to(high), span = top - scaled_to(low);
    const y = (v) => v === null || v === undefined ? null : kTop + (top - scaled_to(v)) / span * (kHeight - kTop - kBottom);
    this.scale = { x, y };
    this.svg = element("svg:svg", { viewBox: `0 0 ${width} ${kHeight}`, height: kHeight, role: "img", "aria-label": spec.title });
    const id = `clip-${spec.title.replace(/\W/g, "-")}`;
    this.svg.append(element("svg:clipPath", { id }, element("svg:rect", { x: kLeft - 4, y: kTop - 4, width: Math.max(0, width - kLeft - kRight + 8), height: kHeight - kTop - kBottom + 4 })));
    this.draw_axes(width, ticks(low, high, 4, spec.base, in_log), first, last);
    const inside = element("svg:g", { "clip-path": `url(#${id})` });
    this.svg.append(inside);
    this.draw_series(inside);
    this.draw_marks(first, last);
    this.plot.append(this.svg);
  }

  draw_legend() {
    const { lines, dots = [] } = this.spec;
    const entry = (label, color, shape) => element("span", {}, element("i", { class: shape, style: `background:var(${color});border-color:var(${color})` }), label);
    this.legend.replaceChildren(...lines.map((l) => entry(l.label, l.color, "")), ...dots.filter((d) => d.points.length).map((d) => entry(d.label, d.color, "dot")));
    if (!this.spec.explain) return;
    for (const [kind, color] of Object.entries(kinds))
      if (this.run.marks.some((m) => m.kind === kind)) this.legend.append(entry(kind, color, kind === "checkpoint" ? "triangle" : "dashed"));
  }

  values() {
    const { spec } = this, { lines, dots = [] } = spec;
    const of_lines = this.stack ? this.stack.map((s) => s.upper) : lines.map((l) => (spec.peaks && l.max) || l.mean);
    return known([...of_lines.flat(), ...dots.flatMap((d) => d.points.map((p) => p[1]))]);
  }

  stacked() {
    let below = this.run.last.map(() => 0);
    return this.spec.lines.map((line) => {
      const lower = below, upper = below.map((v, i) => v + (line.mean[i] || 0));
      below = upper;
      return { lower, upper };
    });
  }

  draw_axes(width, values, first, last) {
    const { x, y } = this.scale, { spec } = this, bottom = kHeight - kBottom;
    for (const v of values) {
      this.svg.append(element("svg:line", { class: "grid", x1: kLeft, x2: width - kRight, y1: y(v), y2: y(v) }),
        element("svg:text", { x: kLeft - 8, y: y(v) + 4, "text-anchor": "end" }, spec.unit(v)));
    }
    this.svg.append(element("svg:line", { class: "axis", x1: kLeft, x2: width - kRight, y1: bottom, y2: bottom }));
    const steps = last === first ? [first] : ticks(first, last, Math.max(2, width / 110)).filter((s) => Number.isInteger(s));
    for (const s of steps)
      this.svg.append(element("svg:line", { class: "axis", x1: x(s), x2: x(s), y1: bottom, y2: bottom + 4 }),
        element("svg:text", { x: x(s), y: bottom + 17, "text-anchor": "middle" }, s >= 1e5 ? scaled(s) : whole(s)));
    this.svg.append(element("svg:text", { x: (kLeft + width - kRight) / 2, y: kHeight - 3, "text-anchor": "middle" }, "step"),
      element("svg:text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(10 ${(kTop + bottom) / 2}) rotate(-90)` }, spec.axis));
  }

  draw_series(inside) {
    const { spec, run } = this, { x, y } = this.scale;
    const xs = run.last.map((step) => x(step)), few = xs.length <= 60;
    spec.lines.forEach((line, i) => {
      const color = `var(${line.color})`;
      if (this.stack) {
        const { lower, upper } = this.stack[i];
        if (xs.length > 1) inside.append(element("svg:path", { class: "area", d: area(xs, lower.map(y), upper.map(y)), style: `fill:${color}` }));
        else inside.append(element("svg:rect", { class: "area", x: xs[0] - 12, width: 24, y: y(upper[0]), height: Math.max(0, y(lower[0]) - y(upper[0])), style: `fill:${color}` }));
        return;
      }
      const values = (spec.peaks && line.max) || line.mean, jumps = spec.smooth && xs.length >= 100;
      if (line.min && !spec.peaks) inside.append(element("svg:path", { class: "band", d: area(xs, line.min.map(y), line.max.map(y)), style: `fill:${color}` }));
      if (jumps) inside.append(element("svg:path", { class: "raw", d: path(xs, values.map(y)), style: `stroke:${color}` }));
      inside.append(element("svg:path", { class: "line", d: path(xs, (jumps ? smoothed(values) : values).map(y)), style: `stroke:${color}` }));
      if (few) values.forEach((v, k) => v !== null && inside.append(element("svg:circle", { cx: xs[k], cy: y(v), r: 2.2, style: `fill:${color}` })));
    });
    for (const dot of spec.dots || []) {
      const sorted = dot.points.filter((p) => p[1] !== null), px = sorted.map((p) => x(p[0])), py = sorted.map((p) => y(p[1]));
      inside.append(element("svg:path", { class: "line", d: path(px, py), style: `stroke:var(${dot.color})` }));
      if (sorted.length <= 200) px.forEach((cx, k) => inside.append(element("svg:circle", { cx, cy: py[k], r: 3, style: `fill:var(${dot.color})` })));
    }
  }

  // Checkpoints as triangles on the axis; faults, resumes and stops as lines.
  draw_marks(first, last) {
    const { x } = this.scale, bottom = kHeight - kBottom;
    let drawn = -Infinity;
    for (const mark of this.run.marks) {
      if (mark.step < first || mark.step > last) continue;
      const at = x(mark.step);
      if (mark.kind === "checkpoint") {
        if (at - drawn < 5 && at >= drawn) continue;
        drawn = at;
        this.svg.append(element("svg:path", { class: "checkpoint", d: `M${at - 4} ${bottom + 1}L${at + 4} ${bottom + 1}L${at} ${bottom - 6}Z` }));
      } else {
        this.svg.append(element("svg:line", { class: `${mark.kind} mark`, x1: at, x2: at, y1: kTop, y2: bottom }),
          element("svg:circle", { class: mark.kind, cx: at, cy: kTop, r: 3 }));
      }
    }
  }

  point_at(event) {
    this.tip?.remove();
    this.cursor?.remove();
    if (!event || !this.svg) return;
    const { spec, run } = this, { x } = this.scale, at = event.clientX - this.plot.getBoundingClientRect().left;
    let i = 0;
    for (let k = 1; k < run.last.length; ++k) if (Math.abs(x(run.last[k]) - at) < Math.abs(x(run.last[i]) - at)) i = k;
    const place = x(run.last[i]), from = run.first[i], to = run.last[i];
    this.cursor = element("svg:line", { class: "cursor", x1: place, x2: place, y1: kTop, y2: kHeight - kBottom });
    this.svg.append(this.cursor);
    this.tip = element("div", { class: "tip" }, element("b", {}, from === to ? `step ${whole(to)}` : `steps ${whole(from)} to ${whole(to)}`));
    const row = (color, text) => this.tip.append(element("div", {}, element("i", { style: `background:var(${color})` }), text));
    const tell = spec.exact || spec.unit;
    for (const line of spec.lines) {
      const v = ((spec.peaks && line.max) || line.mean)[i];
      row(line.color, `${line.label} ${v === null || v === undefined ? "not a number" : tell(v)}`);
    }
    for (const dot of spec.dots || []) for (const p of dot.points) if (p[0] >= from && p[0] <= to) row(dot.color, `${dot.label} ${tell(p[1])}`);
    for (const mark of run.marks.filter((m) => m.step >= from && m.step <= to).slice(-5)) this.tip.append(element("div", {}, `${mark.kind}: ${mark.text.slice(0, 60)}`));
    this.plot.append(this.tip);
    const left = place + 12 + this.tip.offsetWidth > this.width ? place - 12 - this.tip.offsetWidth : place + 12;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${kTop}px`;
  }
}

const colors = ["--c0", "--c1", "--c2", "--c3", "--c4"];
const tiers = { device: "--c0", host: "--c1", nvme: "--c2" };

class Page {
  constructor() {
    const charts = document.getElementById("charts");
    this.charts = {
      loss: new Chart("Loss", charts, true), speed: new Chart("Throughput", charts), memory: new Chart("Memory by tier", charts),
      stalls: new Chart("Stalls", charts), norm: new Chart("Gradient norm", charts), rate: new Chart("Learning rate", charts),
      time: new Chart("Time of a step", charts),
    };
  }

  show(run, state) {
    this.show_head(run, state);
    this.show_tiles(run);
    const series = (name) => run.series[name] || { mean: run.last.map(() => null) };
    const line = (label, color, name) => ({ label, color, ...series(name) });
    const below = (prefix) => Object.keys(run.series).filter((name) => name.startsWith(prefix));
    const used = (name) => known(series(name).mean).some((v) => v > 0);
    const c = this.charts;
    c.loss.show({ title: "Loss", axis: "loss", unit: count, exact: loss, smooth: true, may_be_log: true, explain: true, lines: [line(run.stride > 1 ? "training, mean and range" : "training", "--c0", "loss")],
      dots: [{ label: "evaluation", color: "--c1", points: run.evals }] }, run);
    c.speed.show({ title: "Throughput", axis: "tokens/s", unit: scaled, exact: (v) => `${count(v)} tokens/s`, from_zero: true, smooth: true, lines: [line("tokens/s", "--c2", "tokens_per_second")] }, run);
    const totals = below("memory/").filter((name) => name.endsWith("/total") && used(name)).map((name) => name.split("/")[1]);
    totals.sort((a, b) => Object.keys(tiers).indexOf(a) - Object.keys(tiers).indexOf(b));
    c.memory.show({ title: "Memory", axis: "peak of a step", unit: bytes, base: 1024, from_zero: true, peaks: true, empty: "the log has no memory of its steps",
      lines: totals.map((tier) => line(tier, tiers[tier] || "--c4", `memory/${tier}/total`)) }, run);
    c.stalls.show({ title: "Stalls", axis: "waiting a step", unit: seconds, from_zero: true, stacked: true, empty: "no step has waited",
      lines: below("stall_seconds/").filter(used).map((name, i) => line(`for ${name.slice(14)}`, colors[(i + 1) % colors.length], name)) }, run);
    c.norm.show({ title: "Gradient norm", axis: "L2 norm", unit: count, smooth: true, may_be_log: true, lines: [line("before clipping", "--c3", "grad_norm")] }, run);
    c.rate.show({ title: "Learning rate", axis: "rate", unit: scaled, from_zero: true, lines: [line("learning rate", "--c4", "lr")] }, run);
    c.time.show({ title: "Time of a step", axis: "seconds", unit: seconds, from_zero: true, smooth: true, lines: [line("seconds", "--c0", "seconds")] }, run);
    this.show_tables(run, totals);
  }

  show_head(run, state) {
    const badge = document.getElementById("state"), plan = run.plan || {};
    badge.textContent = state.text;
    badge.className = `state ${state.kind}`;
    const parts = [];
    if (plan.params) parts.push(`${scaled(plan.params)} parameters`);
    if (plan.dtype) parts.push(plan.dtype);
    if (plan.world_size) parts.push(plan.world_size === 1 ? "1 rank" : `${plan.world_size} ranks, stage ${plan.stage}`);
    if (plan.tokens_per_step) parts.push(`${whole(plan.tokens_per_step)} tokens a step`);
    if (run.stride > 1) parts.push(`a point is ${whole(run.stride)} steps`);
    document.getElementById("about").textContent = parts.join(" · ");
  }

  show_tiles(run) {
    const tiles = document.getElementById("tiles"), plan = run.plan || {}, latest = run.latest || {};
    const tile = (name, value, more = "") => element("div", { class: "tile" }, element("div", { class: "name" }, name), element("div", { class: "value" }, value), element("div", { class: "more" }, more));
    const losses = run.series.loss || { mean: [] }, lowest = losses.min || losses.mean;
    let best = -1;
    lowest.forEach((v, i) => { if (v !== null && (best < 0 || v < lowest[best])) best = i; });
    const rates = known((run.series.tokens_per_second || { mean: [] }).mean).sort((a, b) => a - b);
    const times = known((run.series.seconds || { mean: [] }).mean).slice(-50);
    const made = [tile("step", whole(run.last_step), plan.steps ? `of ${whole(plan.steps)}` : "")];
    if (run.latest) made.push(tile("loss", loss(latest.loss ?? null), best >= 0 ? `best ${loss(lowest[best])}` : ""));
    if (run.evals.length) {
      const evals = run.evals.filter((e) => e[1] !== null), least = evals.reduce((a, b) => (b[1] < a[1] ? b : a), evals[0]);
      if (least) made.push(tile("evaluation", loss(evals[evals.length - 1][1]), `best ${loss(least[1])} at ${whole(least[0])}`));
    }
    if (rates.length) made.push(tile("tokens/s", scaled(latest.tokens_per_second ?? 0), `median ${scaled(rates[rates.length >> 1])}`));
    if (latest.tflops !== undefined && latest.tflops !== null) made.push(tile("TFLOP/s", scaled(latest.tflops)));
    if (plan.steps > run.last_step && times.length && !run.ended) made.push(tile("time left", seconds((plan.steps - run.last_step) * times.reduce((a, b) => a + b, 0) / times.length)));
    made.push(tile("checkpoints", whole(run.counts.checkpoint || 0)), tile("faults", whole(run.counts.fault || 0)));
    tiles.replaceChildren(...made);
  }

  show_tables(run, totals) {
    const tables = document.getElementById("tables"), cards = [];
    const card = (title, table) => element("article", { class: "card" }, element("div", { class: "head" }, element("h2", {}, title)), element("div", { class: "scroll" }, table));
    if (totals.length) {
      const peak = (tier, kind) => { const s = run.series[`memory/${tier}/${kind}`]; return s ? Math.max(0, largest(known(s.max || s.mean))) : 0; };
      const names = ["params", "grads", "optimizer", "activations", "working"].filter((kind) => totals.some((tier) => peak(tier, kind) > 0));
      const row = (label, kind, cls) => element("tr", { class: cls }, element("td", {}, label), ...totals.map((tier) => element("td", { class: "number" }, peak(tier, kind) ? bytes(peak(tier, kind)) : "–")));
      cards.push(card("Peak memory of rank 0", element("table", {}, element("tr", {}, element("th", {}, "kind"), ...totals.map((tier) => element("th", { class: "number" }, tier))),
        ...names.map((kind) => row(kind, kind, "")), row("at once", "total", "sum"))));
    }
    if (run.marks.length) {
      const rows = [...run.marks].reverse().slice(0, 100).map((mark) => element("tr", {}, element("td", { class: "number" }, whole(mark.step)),
        element("td", { class: mark.kind in kinds ? mark.kind : "" }, mark.kind), element("td", { class: "text" }, mark.text)));
      cards.push(card("Events", element("table", {}, element("tr", {}, element("th", { class: "number" }, "step"), element("th", {}, "event"), element("th", {}, "")), ...rows)));
    }
    tables.replaceChildren(...cards);
  }
}

// What a poll brings replaces the points from `from` on.
function joined(run, more) {
  if (!run || more.from === 0) return more;
  const join = (old, fresh) => [...old.slice(0, more.from), ...fresh];
  const series = {};
  for (const [name, values] of Object.entries(more.series)) {
    series[name] = {};
    for (const [what, fresh] of Object.entries(values)) {
      const old = (run.series[name] || {})[what] || [];
      series[name][what] = join([...old, ...Array(Math.max(0, more.from - old.length)).fill(null)], fresh);
    }
  }
  return { ...more, first: join(run.first, more.first), last: join(run.last, more.last), series };
}

const ends = { finished: { kind: "finished", text: "finished" }, stopped: { kind: "stopped", text: "stopped" } };

async function follow(page) {
  let run = null;
  for (;;) {
    let state = { kind: "running", text: "running" };
    try {
      const asked = run && run.first.length ? `?from=${run.first[run.first.length - 1]}&stride=${run.stride}` : "";
      const answer = await fetch(`data${asked}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      run = joined(run, await answer.json());
      state = ends[run.ended] || (run.last_step ? state : { kind: "running", text: "waiting for the first step" });
    } catch (error) {
      state = run && ends[run.ended] || { kind: "lost", text: "the run has ended, or cannot be reached" };
    }
    if (run) page.show(run, state);
    else document.getElementById("state").textContent = state.text;
    await new Promise((go) => setTimeout(go, document.hidden ? 10000 : 2000));
  }
}

const page = new Page();
if (zeepoRun) page.show(zeepoRun, ends[zeepoRun.ended] || { kind: "lost", text: "no summary" });
else follow(page);
