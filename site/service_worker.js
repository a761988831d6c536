// Keeps the page's own files, so that it opens at once the next time, and without a network.
const MADE = "MADE_FROM"; // replaced when the site is built: another build is another cache

const fresh = async () => {
  const names = await fetch("files.json").then((reply) => reply.json());
  const cache = await caches.open(MADE);
  await cache.addAll(["./", ...names]);
};

self.addEventListener("install", (event) => event.waitUntil(fresh().then(() => self.skipWaiting())));

self.addEventListener("activate", (event) => event.waitUntil(
  caches.keys().then((names) => Promise.all(names.filter((each) => each !== MADE).map((each) => caches.delete(each))))
    .then(() => self.clients.claim()),
));

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.match(event.request, { ignoreSearch: true }).then((kept) => kept || fetch(event.request)));
});
