"use strict";
// What all pages draw with: elements, numbers for people, round values of an axis, paths.

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") made.style.cssText = value;  // which the page's policy allows a script alone
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Numbers for people.
const count = (v) => Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? scaled(v) : String(+v.toPrecision(4));
function scaled(v) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(v) >= size) return `${+(v / size).toPrecision(3)}${letter}`;
  return v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(1) : String(+v.toPrecision(3));
}
const whole = (v) => v.toLocaleString("en-US");
function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const unit = v < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(v) / 10 + 1e-9));
  return `${+(v / 2 ** (10 * unit)).toPrecision(3)} ${units[unit]}`;
}
function seconds(v) {
  if (v === 0) return "0 s";
  if (v < 1e-3) return `${+(v * 1e6).toPrecision(3)} µs`;
  if (v < 1) return `${+(v * 1e3).toPrecision(3)} ms`;
  if (v < 120) return `${+v.toPrecision(3)} s`;
  const minutes = Math.floor(v / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// About n round values from low to high; `base` is 10, or 1024 for bytes.
function ticks(low, high, n, base = 10, logarithmic = false) {
  if (logarithmic) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
      for (const f of high / low > 1000 ? [1] : [1, 2, 5]) found.push(f * 10 ** power);
    const inside = found.filter((v) => v >= low && v <= high);
    if (inside.length > 1) return inside;
  }
  if (!(high > low)) return [low];
  const unit = base === 1024 ? 2 ** (10 * Math.floor(Math.log2(Math.max(high, 1)) / 10)) : 1;
  const rough = (high - low) / n / unit, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999) * unit;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) found.push(i * step);
  return found;
}

const known = (values) => values.filter((v) => v !== null && v !== undefined);
// Math.max of many values would be a call with as many arguments.
const largest = (values) => values.reduce((a, b) => (b > a ? b : a), -Infinity);
const smallest = (values) => values.reduce((a, b) => (b < a ? b : a), Infinity);

// A path through the points that are there; a gap where one is not.
function path(xs, ys) {
  let text = "", pen = "M";
  for (let i = 0; i < xs.length; ++i) {
    if (ys[i] === null || ys[i] === undefined) { pen = "M"; continue; }
    text += `${pen}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    pen = "L";
  }
  return text;
}
