// Draws a plan: `zeepoPlan` is what plan/plan_page.cpp gives.

const kindColors = { params: "--c0", grads: "--c1", optimizer: "--c2", activations: "--c3", working: "--c4" };
const laneColors = ["--c0", "--c1", "--c1", "--c2", "--c4", "--c3"];
const units = { bytes, rate: scaled, percent: (v) => `${+(100 * v).toPrecision(3)}%`, seconds };

function card(title, wide, ...children) {
  return element("article", { class: wide ? "card wide" : "card" }, element("div", { class: "head" }, element("h2", {}, title)), ...children);
}
function legend(entries) {
  return element("div", { class: "legend" }, ...entries.map(([label, color, shape]) =>
    element("span", {}, element("i", { class: shape || "", style: `background:var(${color});border-color:var(${color})` }), label)));
}
// A text beside the pointer while it is over the shape.
function tell(plot, shape, lines) {
  let tip = null;
  shape.addEventListener("pointermove", (event) => {
    tip?.remove();
    tip = element("div", { class: "tip" }, ...lines.map((line, i) => element(i ? "div" : "b", {}, line)));
    plot.append(tip);
    const box = plot.getBoundingClientRect(), x = event.clientX - box.left;
    tip.style.left = `${Math.max(0, x + 14 + tip.offsetWidth > box.width ? x - 14 - tip.offsetWidth : x + 14)}px`;
    tip.style.top = `${event.clientY - box.top + 12}px`;
  });
  shape.addEventListener("pointerleave", () => tip?.remove());
}
// Draws again whenever the plot gets another width.
function fitted(plot, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth === width) return;
    width = plot.clientWidth;
    plot.replaceChildren(draw(width));
  }).observe(plot);
  return plot;
}

// Rows of placements: a bar a tier, its kinds beside each other, with the budget as a dashed line; and the speed.
function bars(plan) {
  const tiers = ["device", "host", "nvme"].filter((tier) => plan.rows.some((row) => row.bytes[tier].total > 0));
  const plot = element("div", { class: "plot" });
  const kinds = Object.keys(kindColors).filter((kind) => plan.rows.some((row) => tiers.some((tier) => row.bytes[tier][kind] > 0)));
  const timed = plan.rows.some((row) => row.rate !== null);
  const draw = (width) => {
    const kRow = 22, kHead = 26, kName = 230, gap = 14;
    const columns = tiers.length + 1, each = (width - kName - gap * columns) / columns;
    const height = kHead + kRow * plan.rows.length + 6;
    const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "bytes by tier, kind and placement" });
    const left = (i) => kName + gap + i * (each + gap);
    const text = (x, y, words, attributes = {}) => element("svg:text", { x, y, ...attributes }, words);
    tiers.forEach((tier, i) => {
      // A budget far above all that is used would leave nothing to see.
      const used = largest(plan.rows.map((row) => row.at_once[tier]));
      const budget = largest(plan.rows.map((row) => row.budget[tier])), most = budget > 0 && budget < 3 * used ? Math.max(used, budget) : used;
      const x = (v) => left(i) + v / most * (each - 56);
      svg.append(text(left(i), 14, `${tier} memory${budget > 0 ? `, of ${bytes(budget)}` : ""}`, { class: "head" }));
      plan.rows.forEach((row, k) => {
        const y = kHead + k * kRow, sum = kinds.reduce((a, kind) => a + row.bytes[tier][kind], 0);
        if (row.at_once[tier] <= 0) return;
        let at = 0;
        const group = element("svg:g", { opacity: row.fits ? 1 : 0.45 });
        for (const kind of kinds) {
          // Kinds that peak at different times take less together: the bar is what is held at once.
          const part = sum > 0 ? row.bytes[tier][kind] / sum * row.at_once[tier] : 0;
          if (part > 0) group.append(element("svg:rect", { x: x(at), y: y + 3, width: Math.max(0.5, x(at + part) - x(at)), height: kRow - 7, style: `fill:var(${kindColors[kind]})` }));
          at += part;
        }
        group.append(text(x(at) + 5, y + 15, bytes(row.at_once[tier])));
        svg.append(group);
        tell(plot, group, [`${row.group} ${row.name}, ${tier}`, ...kinds.filter((kind) => row.bytes[tier][kind] > 0).map((kind) => `${kind} ${bytes(row.bytes[tier][kind])}`), `at once ${bytes(row.at_once[tier])}`, ...(row.fits ? [] : [row.missing])]);
      });
      if (budget > 0 && budget <= most) svg.append(element("svg:line", { class: "limit", x1: x(budget), x2: x(budget), y1: kHead - 4, y2: height - 4 }));
    });
    const column = tiers.length, fastest = largest([0, ...plan.rows.filter((row) => row.fits).map((row) => row.rate || 0)]);
    svg.append(text(left(column), 14, timed ? plan.rate_name : "", { class: "head" }));
    let group = null;
    plan.rows.forEach((row, k) => {
      const y = kHead + k * kRow, name = row.group === group ? "" : row.group;
      if (name && k) svg.append(element("svg:line", { class: "grid", x1: 0, x2: width, y1: y - 1, y2: y - 1 }));
      group = row.group;
      if (row.best) svg.append(element("svg:rect", { class: "best", x: 0, y: y, width: kName, height: kRow - 1, rx: 4 }));
      svg.append(text(4, y + 15, name, { class: "name" }), text(78, y + 15, row.name, { class: row.best ? "name strong" : "name" }));
      const x = left(column);
      if (!row.fits) return svg.append(text(x, y + 15, row.missing, { class: "bad" }));
      if (row.rate === null) return svg.append(text(x, y + 15, "fits"));
      const long = row.rate / fastest * (each - 150);
      svg.append(element("svg:rect", { x, y: y + 3, width: Math.max(1, long), height: kRow - 7, style: "fill:var(--soft)", opacity: row.best ? 0.9 : 0.45 }),
        text(x + long + 5, y + 15, `${scaled(row.rate)}, ${row.bound}`));
      return undefined;
    });
    return svg;
  };
  const made = card(plan.bars_title, true, fitted(plot, draw));
  made.firstChild.append(legend([...kinds.map((kind) => [kind, kindColors[kind]]), ["budget", "--bad", "dashed"]]));
  return made;
}

// Lanes of a simulated step.
function lanes(timeline) {
  const plot = element("div", { class: "plot" });
  const draw = (width) => {
    const kLane = 30, kName = 150, kAxis = 30, height = kLane * timeline.lanes.length + kAxis;
    const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": timeline.title });
    const x = (t) => kName + t / timeline.seconds * (width - kName - 60);
    timeline.lanes.forEach((lane, i) => {
      const y = i * kLane, busy = lane.busy.reduce((a, [from, to]) => a + to - from, 0);
      svg.append(element("svg:text", { x: 4, y: y + 19, class: "name" }, lane.name),
        element("svg:rect", { class: "lane", x: x(0), y: y + 5, width: x(timeline.seconds) - x(0), height: kLane - 10 }),
        element("svg:text", { x: x(timeline.seconds) + 8, y: y + 19 }, `${Math.round(100 * busy / timeline.seconds)}%`));
      for (const [from, to] of lane.busy) {
        const rect = element("svg:rect", { x: x(from), y: y + 5, width: Math.max(0.4, x(to) - x(from)), height: kLane - 10, style: `fill:var(${laneColors[lane.color]})` });
        svg.append(rect);
        tell(plot, rect, [lane.name, `${seconds(from)} to ${seconds(to)}`, `${seconds(to - from)}`]);
      }
    });
    const bottom = kLane * timeline.lanes.length;
    svg.append(element("svg:line", { class: "axis", x1: x(0), x2: x(timeline.seconds), y1: bottom, y2: bottom }));
    for (const t of ticks(0, timeline.seconds, Math.max(2, width / 160)))
      svg.append(element("svg:line", { class: "axis", x1: x(t), x2: x(t), y1: bottom, y2: bottom + 4 }),
        element("svg:text", { x: x(t), y: bottom + 17, "text-anchor": "middle" }, seconds(t)));
    return svg;
  };
  return card(timeline.title, true, element("p", { class: "about" }, timeline.about), fitted(plot, draw));
}

// Lines over one quantity that doubles: a logarithmic axis.
function curve(spec) {
  const plot = element("div", { class: "plot" }), unit = units[spec.unit], colors = ["--c0", "--c1", "--c2", "--c3", "--c4"];
  const draw = (width) => {
    const height = 230, left = 74, right = 18, top = 12, bottom = height - 36;
    const svg = element("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": spec.title });
    const all = known(spec.lines.flatMap((line) => line.values)), limits = spec.limit ? [spec.limit.value] : [];
    const spread = largest(all) / smallest(all.filter((v) => v > 0)), in_log = spec.unit !== "percent" && spread > 100;
    const to = in_log ? Math.log10 : (v) => v;
    let high = largest([...all, ...limits.filter((v) => v < 3 * largest(all))]), low = in_log ? smallest(all.filter((v) => v > 0)) : 0;
    high = in_log ? high * 1.3 : spec.unit === "percent" ? 1 : high * 1.06;
    low = in_log ? low / 1.3 : low;
    const first = Math.log2(spec.xs[0]), last = Math.log2(spec.xs[spec.xs.length - 1]);
    const x = (v) => last === first ? (left + width - right) / 2 : left + (Math.log2(v) - first) / (last - first) * (width - left - right);
    const y = (v) => v === null || (in_log && v <= 0) ? null : top + (to(high) - to(v)) / (to(high) - to(low)) * (bottom - top);
    const decades = [0, 10, 20, 30, 40, 50].flatMap((p) => [1, 10, 100].map((f) => f * 2 ** p));
    const values = !in_log ? ticks(low, high, 4, spec.unit === "bytes" ? 1024 : 10)
      : spec.unit === "bytes" ? decades.filter((v) => v >= low && v <= high) : ticks(low, high, 4, 10, true);
    for (const v of values)
      svg.append(element("svg:line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
        element("svg:text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, unit(v)));
    svg.append(element("svg:line", { class: "axis", x1: left, x2: width - right, y1: bottom, y2: bottom }));
    const apart = Math.max(1, Math.ceil(spec.xs.length * 46 / (width - left - right)));
    spec.xs.forEach((v, i) => {
      if (i % apart === 0) svg.append(element("svg:text", { x: x(v), y: bottom + 16, "text-anchor": "middle" }, v < 1e5 ? String(v) : scaled(v)));
    });
    svg.append(element("svg:text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, spec.x));
    if (spec.limit && spec.limit.value <= high)
      svg.append(element("svg:line", { class: "limit", x1: left, x2: width - right, y1: y(spec.limit.value), y2: y(spec.limit.value) }));
    spec.lines.forEach((line, i) => {
      const color = `var(${colors[i % colors.length]})`, dash = i >= colors.length ? "5 3" : "";
      svg.append(element("svg:path", { class: "line", d: path(spec.xs.map(x), line.values.map(y)), style: `stroke:${color}`, "stroke-dasharray": dash }));
      line.values.forEach((v, k) => {
        if (y(v) === null) return;
        const dot = element("svg:circle", { cx: x(spec.xs[k]), cy: y(v), r: 3.5, style: `fill:${color}` });
        svg.append(dot);
        tell(plot, dot, [`${spec.x} ${count(spec.xs[k])}`, `${line.label} ${unit(v)}`.trim()]);
      });
    });
    return svg;
  };
  const made = card(spec.title, spec.wide || false, fitted(plot, draw));
  made.firstChild.append(legend([...spec.lines.map((line, i) => [line.label, colors[i % colors.length]]).filter(([label]) => label), ...(spec.limit ? [[spec.limit.label, "--bad", "dashed"]] : [])]));
  return made;
}

function table(spec) {
  const cell = (kind, value, i) => element(kind, { class: i && /^[-–\d]/.test(value) ? "number" : "" }, value);
  return card(spec.title, false, element("div", { class: "scroll" }, element("table", {},
    element("tr", {}, ...spec.head.map((value, i) => element("th", { class: i ? "number" : "" }, value))),
    ...spec.rows.map((row) => element("tr", {}, ...row.map((value, i) => cell("td", value, i)))))));
}

function show(plan) {
  document.getElementById("about").textContent = plan.about;
  const state = document.getElementById("state");
  state.textContent = plan.state.text;
  state.className = `state ${plan.state.kind}`;
  document.getElementById("tiles").replaceChildren(...plan.tiles.map(([name, value, more]) => element("div", { class: "tile" },
    element("div", { class: "name" }, name), element("div", { class: "value" }, value), element("div", { class: "more" }, more))));
  const charts = document.getElementById("charts");
  if (plan.command) charts.append(card(plan.command_title, true, element("pre", { class: "command" }, plan.command)));
  if (plan.rows.length) charts.append(bars(plan));
  if (plan.timeline) charts.append(lanes(plan.timeline));
  for (const spec of plan.curves) charts.append(curve(spec));
  document.getElementById("tables").append(...plan.tables.map(table));
}

show(zeepoPlan);
