// The page of an index. What it says of a wheel was worked out when the wheel was published: here it is looked up.
// Text of others is put in with textContent alone. Data comes as scripts, so that the page works from a folder too.
"use strict";

const data = { machines: null, project: new Map(), wheel: new Map() };
const waiting = new Map();
const RELEASES_AT_ONCE = 4;
const CHOICES = 40;
const PACKAGES_AT_ONCE = 60;
const RANK = ["everywhere", "native", "compatible", "jit", "partial", "unknown", "fails"];
const LOOKS = { everywhere: "good", native: "good", compatible: "good", jit: "fair", partial: "poor", unknown: "none", fails: "bad" };
const MARKS = { good: "✓", fair: "↻", poor: "◐", none: "?", bad: "✗" };
const HEADLINES = {
  everywhere: "runs everywhere",
  native: "runs natively", compatible: "runs", jit: "runs, after a wait at first start",
  partial: "runs in part", unknown: "nobody can tell", fails: "does not run",
};
const EXPLAINED = {
  everywhere: "It is pure Python: nothing in it is compiled for a GPU. What it requires may be.",
  native: "It has machine code made for exactly this GPU.",
  compatible: "It has machine code for an earlier GPU of the same family, which this one runs as it is.",
  jit: "The driver compiles or links its code when it is first used: that start takes longer, once.",
  partial: "Some of it runs and some fails.",
  unknown: "The device code, or the GPU, is not known well enough.",
  fails: "",
};

/* Every data script calls this. */
function cuwheel(kind, key, value) {
  if (kind === "machines") {
    data.machines = value;
    start();
  } else {
    data[kind].set(key, value);
  }
}

function load(kind, key) {
  if (data[kind].has(key)) return Promise.resolve(data[kind].get(key));
  const path = `page/${kind}s/${encodeURIComponent(key)}.js`;
  if (!waiting.has(path)) {
    waiting.set(path, new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = path;
      script.onload = script.onerror = () => { script.remove(); waiting.delete(path); resolve(data[kind].get(key)); };
      document.head.append(script);
    }));
  }
  return waiting.get(path);
}

/* Small helpers. */
const byId = (id) => document.getElementById(id);

function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

function option(value, text) {
  return element("option", { value }, text);
}

function megabytes(size) {
  const units = ["B", "kB", "MB", "GB"];
  let place = 0;
  while (size >= 1000 && place < units.length - 1) { size /= 1000; place += 1; }
  return `${size.toFixed(place && size < 100 ? 1 : 0)} ${units[place]}`;
}

function numbers(version) {
  const found = (version.match(/\d+/g) || []).map(Number);
  while (found.length && found[found.length - 1] === 0) found.pop();
  return found;
}

function atLeast(version, floor) {
  const [a, b] = [numbers(version), numbers(floor)];
  for (let place = 0; place < Math.max(a.length, b.length); place += 1) {
    const [x, y] = [a[place] ?? -1, b[place] ?? -1];
    if (x !== y) return x > y;
  }
  return true;
}

/* Names of GPUs, by the rules of the tables. */
const squashed = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "").replace(/^nvidia/, "");

function readName(text) {
  const { rules, generations } = data.machines;
  let rest = text.toLowerCase().replace(/[^a-z0-9.-]+/g, " ");
  for (const pattern of rules.ignore) rest = rest.replace(new RegExp(pattern, "g"), " ");
  for (const pattern of rules.glued) rest = rest.replace(new RegExp(pattern, "g"), "$1 $2");
  const pieces = rest.match(/[a-z]+|\d+/g) || [];
  const known = new Set(Object.values(generations).map((each) => each.toLowerCase()));
  const of = (list) => pieces.filter((each) => list.includes(each));
  const optional = new Set([...rules.brands, ...rules.lines, ...known]);
  return {
    core: pieces.filter((each) => !optional.has(each)).join(" "), brands: of(rules.brands), lines: of(rules.lines),
    generations: pieces.filter((each) => known.has(each)),
  };
}

let readings = null;

function findGpu(text) {
  const { gpus, aliases, ambiguous, capabilities } = data.machines;
  const asked = text.trim();
  const number = asked.match(/^(?:sm_|compute_)?(\d{1,2})\.?(\d)$/i);
  if (number) {
    const capability = `${number[1]}.${number[2]}`;
    const place = Object.keys(capabilities).filter((each) => capabilities[each].includes(capability));
    if (!place.length) return { problem: `no GPU of capability ${capability} is known` };
    return { capability, name: "", place: place.length === 1 ? place[0] : "" };
  }
  if (readings === null) {
    const rows = new Map(gpus.map((row) => [row[0], row]));
    readings = [...gpus.map((row) => [row[0], row]), ...Object.entries(aliases).map(([name, gpu]) => [name, rows.get(gpu)])]
      .map(([name, row]) => ({ name, row, squashed: squashed(name), reading: readName(name) }));
  }
  const exact = readings.find((each) => each.squashed === squashed(asked));
  if (exact) return chosen(exact.row);
  const wanted = readName(asked);
  for (const [name, meanings] of Object.entries(ambiguous)) {
    const shared = readName(name);
    if (shared.core === wanted.core && wanted.brands.every((each) => shared.brands.includes(each))) {
      return { problem: `${asked} names more than one GPU: ${meanings.join(", ")}` };
    }
  }
  const rivals = readings.filter((each) => wanted.core && each.reading.core === wanted.core);
  const telling = new Set(rivals.flatMap((each) => each.reading.brands));
  const found = rivals.filter(({ row, reading }) =>
    wanted.brands.every((each) => !telling.has(each) || reading.brands.includes(each))
    && wanted.lines.every((each) => reading.lines.includes(each))
    && wanted.generations.every((each) => row[3] === each)).map((each) => each.row);
  if (!found.length) return { problem: `no GPU named ${asked} is known` };
  if (new Set(found.map((row) => row[1])).size > 1) {
    return { problem: `${asked} names more than one GPU: ${found.map((row) => `${row[0]} (${row[1]})`).join(", ")}` };
  }
  return chosen(found.reduce((a, b) => (b[0].length < a[0].length ? b : a)));
}

const chosen = ([name, capability, place]) => ({ name, capability, place });

/* The machine that was asked about. */
function machine() {
  const asked = byId("gpu").value.trim();
  const gpu = asked ? findGpu(asked) : {};
  const place = gpu.place || byId("place").value;
  const tegra = Boolean(gpu.capability) && gpu.place === "linux-aarch64"
    && !data.machines.capabilities["linux-x86_64"].includes(gpu.capability);
  return {
    ...gpu, gpuPlace: gpu.place || "", ...driverOf(byId("driver").value.trim(), place), asked, place, tegra, python: byId("python").value,
    torch: byId("torch").value.startsWith("=") ? "" : byId("torch").value,
    release: byId("torch").value.startsWith("=") ? byId("torch").value.slice(1) : "",
  };
}

function driverOf(text, place) {
  if (!text) return { driver: "", driverWords: "" };
  const cuda = text.match(/^(?:cuda\s*)?(\d{1,2}\.\d)$/i);
  if (cuda) {
    const row = data.machines.drivers.find((each) => each[0] === cuda[1]);
    const driver = row && (place.startsWith("windows") ? row[2] : row[1]);
    if (driver) return { driver, driverWords: `${driver}, the first of CUDA ${cuda[1]}` };
    return { driver: "", driverWords: "", driverProblem: `the driver of CUDA ${cuda[1]} is not known here: give its number` };
  }
  if (/^\d{2,4}(\.\d+){1,3}$/.test(text)) return { driver: text, driverWords: text };
  return { driver: "", driverWords: "", driverProblem: `${text} is not the number of a driver, such as 580.65.06, nor a CUDA, such as 12.8` };
}

/* The verdict that was worked out for a wheel on such a machine. */
function verdict(wheel, on, row) {
  const refuse = (message) => ({ outcome: "fails", error: null, conditions: [], reasons: [{ severity: "error", message }] });
  if (!wheel) return { outcome: "unknown", error: null, conditions: [], reasons: [{ severity: "warning", message: "its data could not be loaded" }] };
  if (wheel.refused[on.place]) return refuse(`it cannot be installed: ${wheel.refused[on.place]}`);
  const there = wheel.places[on.place];
  if (on.python && (there.refused || {})[on.python]) return refuse(`it cannot be installed: ${there.refused[on.python]}`);
  if (on.python && wheel.excluded.includes(on.python)) return refuse(`it cannot be installed: its metadata asks for Python ${wheel.requires}`);
  if (row && row.torch && on.release && row.torch !== on.release) return refuse(`it is built for torch ${row.torch}, not ${on.release}`);
  if (on.release && (wheel.torch || {})[on.release]) return refuse(wheel.torch[on.release]);
  const steps = wheel.steps[there.tables[there.torch[on.torch] ?? 0][on.capability]];
  if (!steps) return { outcome: "unknown", error: null, conditions: [], reasons: [{ severity: "warning", message: `nothing was worked out for capability ${on.capability} when this wheel was published` }] };
  let number = steps[0][1];
  if (on.driver && !on.tegra) for (const [since, at] of steps.slice(1)) if (atLeast(on.driver, since)) number = at;
  const known = wheel.verdicts[number];
  const gpu = on.name ? `${on.name} (${on.capability})` : `GPU of capability ${on.capability}`;
  const words = (text) => text.replaceAll("{driver}", on.driver).replaceAll("{gpu}", gpu);
  const conditions = (known.conditions || []).map((each) => words(wheel.texts[each]));
  if (!on.python && there.python) conditions.unshift(there.python);
  return {
    outcome: wheel.pure && known.outcome === "unknown" ? "everywhere" : known.outcome, error: known.error || null, conditions,
    reasons: (known.reasons || []).map((each) => wheel.reasons[each])
      .map((each) => ({ severity: each.severity, message: words(each.message), fix: words(each.fix || "") })),
  };
}

/* Addresses and commands. */
const here = () => location.href.split(/[?#]/)[0];
const indexUrl = () => new URL("simple/", here()).href;
const fileUrl = (row) => new URL(row.url || `files/${encodeURIComponent(row.file)}`, here()).href;

/* The extra of the package that brings CUDA's libraries, of the CUDA that the wheel is made for; failing that, that
   torch is built for or the driver runs. On a Jetson they come with its system. */
function extraFor(wheel, on) {
  const extras = wheel.extras || {};
  if (on.tegra) return "";
  const wanted = wheel.cuda || on.torch.split(".")[0];
  if (wanted) return extras[wanted] || "";
  const majors = Object.keys(extras).sort((a, b) => b - a);
  const column = on.place.startsWith("windows") ? 2 : 1;
  const cuda = on.driver && data.machines.drivers.find((each) => each[column] && atLeast(on.driver, each[column]));
  if (cuda) return extras[majors.find((each) => Number(each) <= Number(cuda[0].split(".")[0]))] || "";
  return majors.length === 1 ? extras[majors[0]] : "";
}

function commands(name, row, wheel, on, hashed) {
  const url = fileUrl(row) + (hashed ? `#sha256=${wheel.sha256}` : "");
  const extra = extraFor(wheel, on);
  const asked = extra ? `${name}[${extra}]` : name;
  const quoted = extra ? `"${asked}"` : asked;
  const exact = `${asked}==${row.file.split("-")[1]}`;
  const others = Object.values(wheel.extras || {}).map((each) => `${name}[${each}]`);
  const brings = extra ? ` The extra ${extra} brings CUDA's libraries.`
    : others.length ? ` CUDA's libraries come with an extra: ${others.join(" or ")}. Say the driver above, and it is chosen.` : "";
  return [
    ["pip", `pip install "${asked} @ ${url}"`, "Exactly this file: no other index can supply it. What it requires comes from where pip always looks." + brings],
    ["uv", `uv pip install "${asked} @ ${url}"`, "The same with uv."],
    ["uv project", `[[tool.uv.index]]\nname = "cuda-wheels"\nurl = "${indexUrl()}"\nexplicit = true\n\n[tool.uv.sources]\n${name} = { index = "cuda-wheels" }`,
      `For pyproject.toml, then: uv add ${extra ? `"${exact}"` : exact}; this index supplies this name and no other; uv.lock keeps the hashes.`],
    ["cuwheel", `cuwheel ${data.machines.verb} ${quoted} --index ${indexUrl()}`, "Looks at the machine itself, and takes the wheel that runs there."],
  ];
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { value: text, class: "offscreen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

/* Where no package is chosen yet: those that there are, or that the letters so far allow. */
function choices(name) {
  const fitting = packages().filter((each) => each.includes(name.toLowerCase()));
  const words = fitting.length ? "Choose a package, or name a GPU:" : `There is no package named ${name} in this index.`;
  const buttons = fitting.slice(0, CHOICES).map((each) => {
    const button = element("button", { type: "button" }, each);
    button.addEventListener("click", () => { byId("package").value = each; show(); byId("gpu").focus(); });
    return button;
  });
  const more = fitting.length > CHOICES ? [element("span", {}, `and ${fitting.length - CHOICES} more`)] : [];
  return [element("p", { class: "hint" }, words), element("div", { class: "choices" }, ...buttons, ...more)];
}

/* The first view: the wheel that runs; of a GPU alone, all packages that run on it. */
let turn = 0;
const isYanked = (each) => each.row.yanked !== undefined;
const runs = (each) => !isYanked(each) && RANK.indexOf(each.verdict.outcome) < RANK.indexOf("partial");

/* The wheel of a package that is best there: of the newest release that runs; failing that, one that runs in part. */
async function bestOf(name, project, on) {
  const judged = [];
  for (const [release, rows] of project.releases) {
    const wheels = await Promise.all(rows.map((row) => load("wheel", row.file)));
    const here = rows.map((row, at) => ({ name, release, row, wheel: wheels[at], verdict: verdict(wheels[at], on, row) }));
    here.sort((a, b) => RANK.indexOf(a.verdict.outcome) - RANK.indexOf(b.verdict.outcome));
    judged.push(...here);
    const best = here.find(runs);
    if (best) return { best, judged };
  }
  return { best: judged.find((each) => !isYanked(each) && each.verdict.outcome !== "fails"), judged };
}

const nearestOf = (judged, on) => judged.find((each) => each.wheel && each.wheel.places[on.place]
  && !(on.python && each.wheel.places[on.place].refused?.[on.python])) || judged[0];

async function showFind() {
  const mine = ++turn;
  const [target, name, on] = [byId("find"), byId("package").value.trim(), machine()];
  const display = (...children) => { if (mine === turn) target.replaceChildren(...children); };
  if (!packages().includes(name)) return on.capability && on.place ? showPackages(name, on, display) : display(...problemOf(on), ...choices(name));
  const project = await load("project", name);
  if (mine !== turn) return undefined;
  fillTorch(project);
  if (!on.capability) return display(element("p", { class: "hint" }, on.problem ? `${on.problem}.` : "Choose a GPU, by its name or its compute capability."));
  const { best, judged } = await bestOf(name, project, on);
  if (best) return display(...toAll(on), ...card(best, on), ...others(judged.filter((each) => each !== best)));
  const nearest = nearestOf(judged, on);
  if (!nearest) return display(element("p", { class: "hint" }, "This package has no wheel."));
  return display(...toAll(on),
    element("div", { class: "answer bad", "data-outcome": "fails", "data-file": nearest.row.file, "data-error": nearest.verdict.error || "" }, element("p", { class: "headline" }, element("b", {}, "✗ "), `No wheel of ${name} runs there`),
      element("p", {}, describe(on)), reasonsOf(nearest.verdict, `The nearest, ${nearest.row.file}:`)),
    ...others(judged.filter((each) => each !== nearest)));
}

const problemOf = (on) => (on.problem ? [element("p", { class: "hint" }, `${on.problem}.`)] : []);
const nameOf = (on) => on.name || `capability ${on.capability}`;

function choose(name) {
  byId("package").value = name;
  show();
  scrollTo(0, 0);
}

/* Back to all packages that run on this GPU. */
function toAll(on) {
  if (packages().length < 2) return [];
  const button = element("button", { type: "button", class: "more all" }, `all packages that run on ${nameOf(on)}`);
  button.addEventListener("click", () => choose(""));
  return [button];
}

let packagesShown = PACKAGES_AT_ONCE;

async function showPackages(part, on, display) {
  const fitting = packages().filter((each) => each.includes(part.toLowerCase()));
  if (!fitting.length) return display(...choices(part));
  const listed = fitting.slice(0, packagesShown);
  display(element("p", { class: "hint" }, `Looking at ${listed.length} packages …`));
  const found = await Promise.all(listed.map(async (name) => {
    const project = await load("project", name);
    const { best, judged } = await bestOf(name, project || { releases: [] }, on);
    return { name, best, nearest: best || nearestOf(judged, on) };
  }));
  const fine = found.filter((each) => each.best && runs(each.best));
  const unclear = found.filter((each) => !fine.includes(each) && each.nearest && each.nearest.outcome === "unknown");
  const failing = found.filter((each) => !fine.includes(each) && !unclear.includes(each));
  const folded = (some, one, many) => some.length
    ? [element("details", { class: "others", open: !fine.length }, element("summary", {}, some.length === 1 ? one : `${some.length} ${many}`), packageTable(some))]
    : [];
  const more = element("button", { type: "button", class: "more" }, `look at ${fitting.length - listed.length} more packages`);
  more.addEventListener("click", () => { packagesShown += PACKAGES_AT_ONCE; show(); });
  const words = `${fine.length} of ${found.length} ${found.length === 1 ? "package runs" : "packages run"} on ${nameOf(on)}`;
  return display(
    element("h2", { class: "count" }, words), element("p", { class: "evidence" }, describe(on)),
    ...(fine.length ? [packageTable(fine)] : []),
    ...folded(failing, "one that does not", "that do not"),
    ...folded(unclear, "one of which nobody can tell", "of which nobody can tell"),
    ...(fitting.length > listed.length ? [more] : []));
}

function packageTable(found) {
  const rows = found.map(({ name, best, nearest }) => {
    const outcome = best ? best.verdict.outcome : "fails";
    const button = element("button", { type: "button", class: "name" }, name);
    button.addEventListener("click", () => choose(name));
    const why = best && runs(best) ? best.verdict.conditions.length ? `provided that ${best.verdict.conditions.join("; ")}` : "" : nearest ? (nearest.verdict.reasons[0] || {}).message || "" : "it has no wheel";
    return element("tr", { "data-package": name, "data-outcome": outcome },
      element("td", {}, button),
      element("td", { "data-label": "version" }, best ? best.wheel.version : ""),
      element("td", { class: `chip ${LOOKS[outcome]}` }, element("b", {}, `${MARKS[LOOKS[outcome]]} ${HEADLINES[outcome]}`)),
      element("td", { class: "why" }, why));
  });
  return element("div", { class: "scroll" }, element("table", { class: "found" },
    element("thead", {}, element("tr", {}, ...["package", "version", "how", ""].map((each) => element("th", { scope: "col" }, each)))),
    element("tbody", {}, ...rows)));
}

const describe = (on) => [
  on.name ? `${on.name} (capability ${on.capability})` : `capability ${on.capability}`,
  on.tegra ? "its driver comes with L4T" : on.driverWords ? `driver ${on.driverWords}` : "driver not known",
  on.python && `Python ${on.python}`, on.torch && `torch for CUDA ${on.torch}`, on.release && `torch ${on.release}`,
  Object.fromEntries(data.machines.places)[on.place],
].filter(Boolean).join(" · ");

function reasonsOf(found, title) {
  const list = element("ul", { class: "findings" });
  for (const each of found.reasons) {
    list.append(element("li", { class: each.severity }, each.message, each.fix ? element("div", { class: "evidence" }, `fix: ${each.fix}`) : null));
  }
  return element("div", {}, title && found.reasons.length ? element("p", {}, title) : null, list);
}

function card({ name, row, wheel, verdict: found }, on) {
  const answer = element("div", { class: `answer ${LOOKS[found.outcome]}`, "data-outcome": found.outcome, "data-file": row.file, "data-error": found.error || "" },
    element("p", { class: "headline" }, element("b", {}, `${MARKS[LOOKS[found.outcome]]} `), `${name} ${wheel.version} ${HEADLINES[found.outcome]}`),
    element("p", {}, describe(on)),
    EXPLAINED[found.outcome] ? element("p", {}, EXPLAINED[found.outcome]) : null,
    element("p", { class: "file" }, element("a", { href: `page/wheels/${encodeURIComponent(row.file)}.html` }, row.file), ` ${megabytes(wheel.size)}`));
  if (found.conditions.length) {
    answer.append(element("p", {}, "Provided that"), element("ul", {}, ...found.conditions.map((each) => element("li", {}, each))));
  }
  answer.append(reasonsOf(found));
  return [answer, install(name, row, wheel, on)];
}

let withHash = true;

function install(name, row, wheel, on) {
  const list = element("div", {});
  const fill = () => list.replaceChildren(...commands(name, row, wheel, on, withHash).map(([tool, text, note]) => {
    const button = element("button", { type: "button", class: "copy", "aria-label": `copy the command for ${tool}` }, "copy");
    button.addEventListener("click", () => copied(button, text));
    return element("div", { class: "command" }, element("h3", {}, tool), element("pre", {}, text), button, element("p", { class: "evidence" }, note));
  }));
  const box = element("input", { type: "checkbox", id: "hashes", checked: withHash });
  box.addEventListener("change", () => { withHash = box.checked; fill(); });
  fill();
  return element("div", { class: "install" }, element("h2", {}, "Install it"), element("label", { class: "check" }, box, " with its hash"), list);
}

function others(judged) {
  if (!judged.length) return [];
  const rows = judged.map(({ row, verdict: found }) => element("tr", {},
    element("td", { "data-label": "wheel" }, element("a", { href: `page/wheels/${encodeURIComponent(row.file)}.html` }, row.file), row.yanked !== undefined ? ` (yanked${row.yanked ? `: ${row.yanked}` : ""})` : ""),
    element("td", { class: `chip ${LOOKS[found.outcome]}` }, element("b", {}, found.outcome)),
    element("td", { class: "why" }, (found.reasons[0] || {}).message || "")));
  return [element("details", { class: "others" }, element("summary", {}, judged.length === 1 ? "the other wheel that was looked at" : `the ${judged.length} other wheels that were looked at`),
    element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))))];
}

/* The second view: wheels against GPUs. */
let shown = RELEASES_AT_ONCE;

async function showMatrix() {
  const mine = ++turn;
  const [target, name, on] = [byId("matrix"), byId("package").value.trim(), machine()];
  const project = packages().includes(name) ? await load("project", name) : null;
  if (mine !== turn) return;
  if (!project) { target.replaceChildren(...choices(name)); return; }
  fillTorch(project);
  const releases = project.releases.slice(0, shown);
  const rows = releases.flatMap(([, each]) => each);
  const wheels = await Promise.all(rows.map((row) => load("wheel", row.file)));
  if (mine !== turn) return;
  const filter = byId("filter") ? byId("filter").value : "";
  const input = element("input", { id: "filter", value: filter, placeholder: "filter: 9.0, Ada, RTX 40, cp312, aarch64 …", "aria-label": "Filter wheels and GPUs", spellcheck: false });
  const place = element("div", {});
  const draw = () => place.replaceChildren(table(rows, wheels, on, input.value));
  input.addEventListener("input", draw);
  draw();
  const more = element("button", { type: "button", class: "more" }, "older releases");
  more.addEventListener("click", () => { shown += RELEASES_AT_ONCE; showMatrix(); });
  target.replaceChildren(
    element("p", {}, input, on.driverWords ? `with driver ${on.driverWords}` : "with a driver that is new enough"), place,
    project.releases.length > shown ? more : element("span", {}),
    element("p", { class: "legend" }, ...Object.entries({ everywhere: "pure Python", native: "machine code for this GPU", compatible: "machine code for an earlier one of its family", jit: "compiled at first start", partial: "some of it", unknown: "not known", fails: "does not run" })
      .flatMap(([word, meaning]) => [element("span", { class: `chip ${LOOKS[word]}` }, element("b", {}, word)), ` ${meaning}  `])));
}

function table(rows, wheels, on, filter) {
  const { capabilities, generations, gpus } = data.machines;
  const words = filter.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const known = [...new Set(Object.values(capabilities).flat())].sort((a, b) => (atLeast(a, b) ? 1 : -1)).reverse();
  const text = (capability) => `${capability} ${generations[capability] || ""} ${gpus.filter((row) => row[1] === capability).map((row) => row[0]).join(" ")}`.toLowerCase();
  const aboutGpus = words.filter((word) => known.some((each) => text(each).includes(word)));
  const aboutFiles = words.filter((word) => !aboutGpus.includes(word));
  const lines = rows.map((row, at) => [row, wheels[at]]).filter(([row]) => aboutFiles.every((word) => row.file.toLowerCase().includes(word)));
  const placeOf = (wheel) => {
    const places = wheel ? Object.keys(wheel.places) : [];
    return places.includes(on.place) ? on.place : places[0] || on.place;
  };
  const possible = new Set(lines.flatMap(([, wheel]) => capabilities[placeOf(wheel)])); // no Jetson for wheels of x86-64
  const columns = known.filter((each) => possible.has(each) && aboutGpus.every((word) => text(each).includes(word)));
  const head = element("tr", {}, element("td", {}), ...columns.map((each) => element("th", { scope: "col", title: gpus.filter((row) => row[1] === each).map((row) => row[0]).join(", ") }, each, element("small", {}, generations[each] || ""))));
  const body = lines.map(([row, wheel]) => {
    const place = placeOf(wheel);
    return element("tr", {},
      element("th", { scope: "row" }, element("a", { href: `page/wheels/${encodeURIComponent(row.file)}.html` }, row.file), row.yanked !== undefined ? " (yanked)" : ""),
      ...columns.map((capability) => {
        const tegra = !capabilities["linux-x86_64"].includes(capability);
        if (!capabilities[place].includes(capability)) return element("td", { class: "none", "data-label": capability }, "–");
        const found = verdict(wheel, { ...on, capability, name: "", place, tegra, python: "" }, row);
        return element("td", {
          class: LOOKS[found.outcome], "data-label": capability, "data-outcome": found.outcome, "data-error": found.error || "",
          title: [...found.reasons.map((each) => each.message), ...found.conditions.map((each) => `provided that ${each}`)].join("\n"),
        }, element("b", {}, found.outcome));
      }));
  });
  return element("div", { class: "scroll" }, element("table", { class: "wheels" }, element("thead", {}, head), element("tbody", {}, ...body)));
}

/* The form. */
const packages = () => [...document.querySelectorAll(".packages a")].map((each) => each.textContent);
let torchOf = null;

function fillTorch(project) {
  const own = project.releases.flatMap(([, rows]) => rows.map((row) => row.torch).filter(Boolean));
  const releases = [...new Set([...own, ...data.machines.torch_releases])];
  const key = releases.join();
  if (torchOf === key) return;
  torchOf = key;
  const before = byId("torch").value;
  byId("torch").replaceChildren(option("", "any, or none"),
    ...releases.sort((a, b) => (atLeast(a, b) ? -1 : 1)).map((each) => option(`=${each}`, `torch ${each}`)),
    ...data.machines.torch.map((each) => option(each, `built for CUDA ${each}`)));
  byId("torch").value = [...byId("torch").options].some((each) => each.value === before) ? before : "";
}

const FIELDS = ["package", "gpu", "driver", "python", "torch", "place"];

function show() {
  const on = machine();
  offerPlaces(on);
  const found = [on.asked && !on.problem && on.name && squashed(on.name) !== squashed(on.asked) ? `read as ${on.name}` : "", on.driverProblem || "",
    byId("place").disabled ? `${on.name || on.capability} is part of a system with ${Object.fromEntries(data.machines.places)[on.place]}` : ""].filter(Boolean);
  byId("read").textContent = found.join("; ");
  byId("read").className = on.driverProblem ? "problem" : "";
  const state = new URLSearchParams();
  for (const each of FIELDS) if (byId(each).value) state.set(each, byId(each).value);
  const view = document.querySelector("[role=tab][aria-selected=true]").id.slice(4);
  if (view !== "find") state.set("view", view);
  history.replaceState(null, "", `#${state}`);
  if (view === "find") return showFind();
  return view === "matrix" ? showMatrix() : undefined;
}

/* Only systems that can have the GPU, and only GPUs that the system can have: a Jetson is a system of its own. */
let placeBefore = "";

function offerPlaces(on) {
  const field = byId("place");
  const fits = (key) => !on.capability || (on.gpuPlace ? key === on.gpuPlace : data.machines.capabilities[key].includes(on.capability));
  for (const each of field.options) each.disabled = each.hidden = !fits(each.value);
  if (!fits(field.value)) {
    placeBefore = field.value;
    field.value = on.place;
  } else if (placeBefore && fits(placeBefore)) {
    field.value = placeBefore;
    placeBefore = "";
  }
  field.disabled = Boolean(on.gpuPlace);
  fillGpus(placeBefore ? "" : field.value);
}

function select(view) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const mine = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", String(mine));
    tab.tabIndex = mine ? 0 : -1;
    byId(tab.id.slice(4)).hidden = !mine;
  }
  byId("machine").hidden = view === "files";
  document.body.classList.toggle("broad", view === "matrix");
  show();
}

/* The page of a catalogue: of its table, the packages and the GPU that were asked for. */
function showCatalogue() {
  const [word, asked] = [byId("only").value.trim().toLowerCase(), byId("gpu").value.trim()];
  const gpu = asked ? findGpu(asked) : {};
  const columns = [...document.querySelectorAll("th[data-capability]")].map((each) => each.dataset.capability);
  const known = columns.includes(gpu.capability);
  for (const each of document.querySelectorAll("[data-capability]")) each.hidden = known && each.dataset.capability !== gpu.capability;
  for (const each of document.querySelectorAll("[data-package]")) each.hidden = !each.dataset.package.includes(word);
  const problem = gpu.problem || (asked && !known ? `the catalogue does not speak of capability ${gpu.capability}` : "");
  byId("read").textContent = problem || (gpu.name ? `${gpu.name} (capability ${gpu.capability})` : "");
  byId("read").className = problem ? "problem" : "";
  const state = new URLSearchParams();
  for (const each of ["only", "gpu"]) if (byId(each).value) state.set(each, byId(each).value);
  history.replaceState(null, "", `#${state}`);
}

let gpusOf = null;

/* `place`: those that such a system can have; all of them where it is empty. */
function fillGpus(place) {
  if (gpusOf === place) return;
  gpusOf = place;
  const offered = data.machines.gpus.filter((row) => !place || !row[2] || row[2] === place).reverse();
  byId("gpus").replaceChildren(...offered.map(([name, capability]) => option(name, capability)));
}

function startCatalogue() {
  document.body.classList.add("with-scripts");
  fillGpus("");
  const state = new URLSearchParams(location.hash.slice(1));
  for (const each of ["only", "gpu"]) {
    byId(each).value = state.get(each) || "";
    byId(each).addEventListener("input", showCatalogue);
  }
  byId("choice").addEventListener("submit", (event) => event.preventDefault());
  showCatalogue();
}

function start() {
  if (byId("choice")) { startCatalogue(); return; }
  const { drivers, places, pythons } = data.machines;
  document.body.classList.add("with-scripts");
  byId("packages").append(...packages().map((each) => option(each)));
  byId("drivers").append(...drivers.map(([cuda, linux]) => option(`CUDA ${cuda}`, `driver ${linux}`)));
  byId("place").append(...places.map(([key, words]) => option(key, words)));
  byId("python").append(option("", "any"), ...pythons.slice().reverse().map((each) => option(each, each)));
  fillTorch({ releases: [] });
  torchOf = null;
  if (/Windows/.test(navigator.userAgent)) byId("place").value = "windows-x86_64";
  const state = new URLSearchParams(location.hash.slice(1));
  for (const each of FIELDS) if (state.get(each) !== null) byId(each).value = state.get(each);
  if (packages().length === 1) byId("package").value = packages()[0];
  for (const each of FIELDS) byId(each).addEventListener("input", show);
  byId("machine").addEventListener("submit", (event) => event.preventDefault());
  byId("smi").addEventListener("input", () => {
    const found = readSmi(byId("smi").value);
    if (found.gpus.length) byId("gpu").value = found.gpus[0];
    if (found.driver) byId("driver").value = found.driver;
    if (found.place) byId("place").value = found.place;
    show();
  });
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => select(tab.id.slice(4)));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(at + step + tabs.length) % tabs.length];
      next.focus();
      select(next.id.slice(4));
    });
  });
  select(["find", "matrix", "files"].includes(state.get("view")) ? state.get("view") : "find");
}
