// The page: it asks the worker in the words of the command line and shows the documents that come back.
// Text of the reader's files is put in with textContent; HTML comes from cuwheel's own templates, which escape it.

const byId = (id) => document.getElementById(id);
const value = (id) => byId(id).value.trim();

function element(name, properties, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

/* The worker. */
const worker = new Worker("worker.js", { type: "module" });
const waiting = new Map();
let asked = 0;

// What each command line answers; a number among its words stands for one of the files.
function ask(commands, { files = [], onProgress } = {}) {
  const number = asked += 1;
  return new Promise((resolve) => {
    waiting.set(number, { resolve, onProgress });
    worker.postMessage({ number, files, commands });
  });
}

worker.onmessage = ({ data }) => {
  if (data.loading) loading(data.loading);
  if (data.broken) failed(data.broken);
  if (data.ready) {
    document.documentElement.dataset.ready = "yes";
  }
  const { resolve, onProgress } = waiting.get(data.number) || {};
  if (data.progress && onProgress) onProgress(data.progress);
  if (!data.replies) return;
  waiting.delete(data.number);
  resolve(data);
};
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

// `step` of `steps`: what is loaded now and how large it is, and how much of all there is before it.
function loading({ step, steps, what, bytes, before, all }) {
  if (before) Object.assign(byId("loaded"), { max: all, value: before });
  const size = bytes ? `, ${megabytes(bytes)}` : "";
  byId("loading").textContent = `Step ${step} of ${steps}: ${what}${size}; ${megabytes(all)} in all, the first time only`;
}

worker.onerror = (event) => failed(event.message || "the browser cannot run it");

function failed(why) {
  byId("state").className = "broken";
  byId("state").textContent = `cuwheel could not be started here: ${why}. Install it instead: pip install cuwheel`;
}

/* Answers. */
function shown(place, reply, named = {}) {
  const box = element("article", {});
  box.answer = reply.json; // for who looks with the browser's own tools, and for the tests
  if (reply.error) {
    box.append(element("p", { className: "error-message", textContent: reply.error }));
    if (reply.hint) box.append(element("p", { textContent: `hint: ${reply.hint}` }));
  } else {
    box.innerHTML = reply.html; // cuwheel's own templates: everything that strangers wrote is escaped in them
    if (reply.details) {
      // Where a terminal names the option for more, the page has it below.
      for (const each of box.querySelectorAll(":scope > p")) if (/^[^(]*: --verbose/.test(each.textContent)) each.remove();
      const details = element("div", {});
      details.innerHTML = reply.details;
      box.append(element("details", { className: "all" }, element("summary", { textContent: "Everything (--verbose)" }), details));
    }
  }
  renamed(box, named);
  withLinks(box);
  withButtons(box);
  place.append(box);
  return box;
}

// Python sees a file in a folder of its own; the reader knows it by its name.
function renamed(box, names) {
  const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const [path, name] of Object.entries(names)) {
      texts.currentNode.data = texts.currentNode.data.replaceAll(path, name);
    }
  }
}

// Every rule has a page.
function withLinks(box) {
  for (const each of box.querySelectorAll(".findings li > code")) {
    each.replaceWith(element("a", { href: `docs/reference/rules/${each.textContent}.html` }, each.cloneNode(true)));
  }
}

function withButtons(box) {
  const copyable = [
    ...[...box.querySelectorAll("dt")].filter((each) => ["fix", "or", "see"].includes(each.textContent.trim())).map((each) => each.nextElementSibling),
    ...[...box.querySelectorAll(".findings .fix")].flatMap((fix) => (fix.querySelector(".command") ? [...fix.querySelectorAll(".command")] : [fix])),
    ...box.querySelectorAll("dl + pre"), // the commands of the fix above
  ];
  for (const each of copyable) {
    const commands = [...each.textContent.matchAll(/`([^`]+)`/g)].map((match) => match[1]);
    const text = commands[0] || each.textContent.replace(/^(fix|or): /, ""); // the command of a sentence, where it names one
    const button = element("button", { type: "button", className: "copy", textContent: "copy" });
    button.setAttribute("aria-label", `copy: ${text.slice(0, 80)}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    each.append(" ", button);
  }
}

function busy(place) {
  const bar = element("progress", {});
  const text = element("span", { textContent: document.documentElement.dataset.ready ? " working …" : " waits until cuwheel is loaded …" });
  place.replaceChildren(element("p", {}, bar, text));
  return ({ text: what, done, total }) => {
    text.textContent = ` ${what}`;
    if (total) Object.assign(bar, { max: total, value: done });
  };
}

const answerOf = (name) => byId(name).querySelector(".answer");
const namesOf = (paths, names) => Object.fromEntries(paths.map((path, place) => [path, names[place]]));

/* Explain. */
const SHOWN_LINES = 2000; // around what was found: a log may have millions

async function explain() {
  const place = answerOf("explain");
  const file = byId("log-file").files[0];
  const text = byId("log").value;
  if (!file && !text.trim()) { place.replaceChildren(element("p", { textContent: "Paste an error first, or choose a file." })); return; }
  const gpu = value("log-gpu");
  const { replies: [reply], paths } = await ask([["explain", 0, ...(gpu ? ["--on", gpu] : [])]], {
    files: [file || { name: "pasted", text }], onProgress: busy(place),
  });
  place.replaceChildren();
  const box = shown(place, reply, namesOf(paths, [file ? file.name : "the pasted text"]));
  if (reply.error) return;
  const found = JSON.parse(reply.json);
  for (const heading of box.querySelectorAll("h2")) {
    const cause = found.causes.find((each) => heading.textContent.toLowerCase() === each.title.toLowerCase());
    if (cause) heading.append(" ", element("a", { href: `docs/reference/causes/${cause.id}.html`, textContent: "about this cause" }));
  }
  if (found.causes.length) place.append(await marked(file ? await file.slice(0, 1 << 24).text() : text, found));
}

async function marked(text, found) {
  const proof = new Set(found.causes[0].evidence.map((each) => each.line));
  const lines = text.split(/\r\n|\n|\r/);
  const first = Math.max(0, Math.min(...proof) - SHOWN_LINES / 2);
  const log = element("pre", { className: "log", tabIndex: 0 });
  log.setAttribute("aria-label", "The log, with the lines that prove the cause marked");
  log.style.counterReset = `line ${first}`;
  if (first) log.append(element("span", { className: "skipped", textContent: `${first} lines before` }));
  lines.slice(first, first + SHOWN_LINES).forEach((line, place) => {
    const row = element("span", { textContent: line });
    log.append(proof.has(first + place + 1) ? element("mark", {}, row) : row);
  });
  const section = element("section", {}, element("h2", { textContent: "The lines that prove it" }), log);
  // Within its box alone: the answer above it is what the reader came for.
  requestAnimationFrame(() => { log.scrollTop = (log.querySelector("mark")?.offsetTop ?? 0) - log.offsetTop - 60; });
  return section;
}

/* Inspect, check, compare. */
function machineWords(profile) {
  const machines = [value("machine-gpu"), profile].filter((each) => each !== "");
  const words = machines.flatMap((each) => ["--on", each]);
  for (const [option, id] of [["--driver", "machine-driver"], ["--torch-cuda", "machine-torch"], ["--set", "machine-system"]]) {
    if (words.length && value(id)) words.push(option, option === "--set" ? `os=${value(id)}` : value(id));
  }
  return words;
}

async function look() {
  const place = answerOf("files");
  const files = [...byId("files-chosen").files].slice(0, 2);
  if (!files.length) { place.replaceChildren(element("p", { textContent: "Choose a wheel or a library first, or drop one on this page." })); return; }
  const profiles = [...byId("profile").files];
  const on = machineWords(profiles.length ? files.length : "");
  const targets = files.map((_, number) => number);
  const commands = [
    ...(files.length === 2 ? [["inspect", targets[0], "--against", targets[1]]] : []),
    ...(on.length ? [["check", ...targets, ...on]] : []),
    ...(files.length === 1 ? [["inspect", 0]] : []),
  ];
  const { replies, paths } = await ask(commands, { files: [...files, ...profiles], onProgress: busy(place) });
  place.replaceChildren();
  const named = namesOf(paths, [...files, ...profiles].map((each) => each.name));
  for (const reply of replies) shown(place, reply, named);
}

byId("smi").addEventListener("input", () => {
  const found = readSmi(byId("smi").value);
  if (found.gpus.length) byId("machine-gpu").value = found.gpus.join(", ");
  if (found.driver && !found.driver.startsWith("CUDA")) byId("machine-driver").value = found.driver;
  if (found.place) byId("machine-system").value = found.place.split("-")[0];
  if (found.gpus.length && byId("files-chosen").files.length) look();
});

/* Plan, GPUs and toolkits. */
async function plan() {
  const place = answerOf("plan");
  const words = ["plan"];
  for (const [option, id] of [["--for", "plan-for"], ["--cuda", "plan-cuda"], ["--driver", "plan-driver"]]) {
    if (value(id)) words.push(option, value(id));
  }
  if (byId("plan-future").checked) words.push("--want", "future");
  const { replies: [reply] } = await ask([words], { onProgress: busy(place) });
  place.replaceChildren();
  shown(place, reply);
}

async function lookUp() {
  const place = answerOf("tables");
  const gpu = value("gpu-asked");
  const version = value("toolkit-asked");
  const number = lookUp.last = (lookUp.last || 0) + 1;
  const { replies } = await ask([
    ...(version ? [["lookup", "cuda", version]] : []),
    ...(gpu ? [["lookup", "gpu", gpu]] : []),
    ...(!gpu && !version ? [["lookup", "gpu"], ["lookup", "cuda"]] : []),
  ]);
  if (number !== lookUp.last) return; // a later one was typed meanwhile
  place.replaceChildren();
  for (const reply of replies) shown(place, reply);
}

let pause = 0;
for (const id of ["gpu-asked", "toolkit-asked"]) {
  byId(id).addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(lookUp, 200); });
}

/* Forms, tabs, files that are dropped. */
const verbs = { explain, files: look, plan, tables: lookUp };
for (const [name, run] of Object.entries(verbs)) {
  byId(name).querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
}
byId("files-chosen").addEventListener("change", look);
byId("profile").addEventListener("change", look);
byId("log-file").addEventListener("change", explain);

/* The first page hands on what it is given. */
const EXAMPLE = `[1/3] nvcc -gencode arch=compute_120,code=sm_120 -c ops.cu
nvcc fatal   : Unsupported gpu architecture 'compute_120'
ninja: build stopped: subcommand failed.`;
byId("example").addEventListener("click", () => { byId("start-log").value = EXAMPLE; });
byId("start-explain").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("log").value = byId("start-log").value;
  byId("log-file").value = "";
  open(byId("tab-explain"));
  explain();
});
function startLook(event) {
  event.preventDefault();
  byId("machine-gpu").value = byId("start-gpu").value;
  if (byId("start-file").files.length) choose("files-chosen", byId("start-file").files);
  open(byId("tab-files"));
  look();
}
byId("start-look").addEventListener("submit", startLook);
byId("start-file").addEventListener("change", startLook);

const tabs = [...document.querySelectorAll('[role="tab"]')];
function open(tab) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    byId(each.getAttribute("aria-controls")).hidden = !chosen;
  }
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  if (tab.id === "tab-tables" && !answerOf("tables").children.length) lookUp();
}
tabs.forEach((tab, place) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(place + step + tabs.length) % tabs.length];
    open(next);
    next.focus();
  });
});
const wantedTab = tabs.find((each) => `#${each.getAttribute("aria-controls")}` === location.hash);
if (wantedTab) open(wantedTab);

const isProfile = (file) => /\.json$/i.test(file.name); // of `cuwheel doctor --save`
const isLog = (file) => !/\.(whl|so(\.\d+)*|dll|pyd|exe|a|o|cubin|fatbin)$/i.test(file.name);
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
document.addEventListener("dragleave", () => document.body.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  const files = [...event.dataTransfer.files];
  const profiles = files.filter(isProfile);
  const others = files.filter((each) => !isProfile(each));
  if (!files.length) return;
  const log = !profiles.length && others.every(isLog);
  open(byId(log ? "tab-explain" : "tab-files"));
  if (profiles.length) {
    choose("profile", profiles.slice(0, 1));
    byId("profile").closest("details").open = true;
  }
  if (others.length) choose(log ? "log-file" : "files-chosen", others);
  (log ? explain : look)();
});

function choose(id, files) {
  const list = new DataTransfer();
  for (const each of files) list.items.add(each);
  byId(id).files = list.files;
}

/* Names of GPUs to choose from, and a second visit without a network. */
ask([["lookup", "gpu"]]).then(({ replies: [reply] }) => {
  const rows = JSON.parse(reply.json).gpus || [];
  byId("gpu-names").replaceChildren(...rows.map((each) => element("option", { value: each.name })));
});
if ("serviceWorker" in navigator && location.protocol.startsWith("http")) navigator.serviceWorker.register("service_worker.js");
