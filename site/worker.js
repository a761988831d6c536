// Runs the real package in a web worker: Python of Pyodide, cuwheel from `python/`. Files are read where they
// lie on the reader's disk, piece by piece; nothing is copied and nothing is sent anywhere.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const DROPPED = "/dropped"; // files of the reader, each in a folder of its own
const WRITTEN = "/written"; // pasted text

const say = (message) => self.postMessage(message);
let mounted = 0;

const ready = (async () => {
  const { pyodide, packages } = await fetch(new URL("python/packages.json", import.meta.url)).then((reply) => reply.json());
  const own = packages.reduce((sum, each) => sum + each.bytes, 0);
  const step = (number, what, bytes, before) => say({ loading: { step: number, steps: 3, what, bytes, before, all: pyodide + own } });
  step(1, "Python for browsers (Pyodide)", pyodide, 0);
  const fetched = Promise.all(packages.map(async ({ name }) => {
    const reply = await fetch(new URL(`python/${name}`, import.meta.url));
    if (!reply.ok) throw new Error(`python/${name}: ${reply.status}`);
    return reply.arrayBuffer();
  }));
  fetched.catch(() => {}); // told below, where it is waited for
  const python = await loadPyodide({ indexURL: new URL("pyodide/", import.meta.url).href });
  step(2, "cuwheel and the packages that it needs", own, pyodide);
  const archives = await fetched;
  const folder = python.runPython("import site; site.getsitepackages()[0]");
  for (const archive of archives) python.unpackArchive(archive, "zip", { extractDir: folder });
  step(3, "starting cuwheel", 0, pyodide + own);
  python.FS.mkdirTree(DROPPED);
  python.FS.mkdirTree(WRITTEN);
  // Nothing is kept in a page: the user's own folder need not be found, for which platformdirs would have to be loaded.
  const run = python.runPython(
    "import os; os.environ['CUWHEEL_CACHE'] = '/cache'; from cuwheel.cli import in_browser; in_browser.run"
  );
  say({ ready: true });
  return { python, run };
})();
ready.catch((error) => say({ broken: String(error.message || error) }));

// Where Python finds a file of the reader's, under its own name: wheels are known by it.
function place(python, file) {
  const folder = `${DROPPED}/${mounted += 1}`;
  python.FS.mkdirTree(folder);
  python.FS.mount(python.FS.filesystems.WORKERFS, { files: [file] }, folder);
  return { path: `${folder}/${file.name}`, remove: () => { python.FS.unmount(folder); python.FS.rmdir(folder); } };
}

function write(python, { name, text }) {
  const path = `${WRITTEN}/${name}`;
  python.FS.writeFile(path, text);
  return { path, remove: () => python.FS.unlink(path) };
}

// `files`: of the reader, or `{name, text}`. `commands`: the words of each command line, a number standing for a file.
self.onmessage = async ({ data: { number, files, commands } }) => {
  const { python, run } = await ready;
  const placed = files.map((each) => (each instanceof File ? place(python, each) : write(python, each)));
  const paths = placed.map((each) => each.path);
  const words = python.toPy(commands.map((each) => each.map((word) => (typeof word === "number" ? paths[word] : word))));
  const show = (text, done, total) => say({ number, progress: { text, done, total } });
  let replies;
  try {
    replies = JSON.parse(run(words, show));
  } catch (error) {
    replies = commands.map(() => ({ status: 70, json: "", html: "", details: "", error: String(error.message || error), hint: "" }));
  }
  words.destroy();
  for (const each of placed) each.remove();
  say({ number, replies, paths });
};
