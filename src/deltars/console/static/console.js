"use strict";
// Zooming, moving and following of the swimlanes without loading the page again. Without this file the links do it.
(() => {
  const POLL_MS = 2000;
  let lanes = document.getElementById("lanes");
  if (!lanes) return;
  const detail = document.querySelector(".detail");
  const describe = (event) => {
    const mark = event.target.closest && event.target.closest("#lanes a, #lanes g");
    const title = mark && mark.querySelector("title");
    if (detail && title) detail.textContent = title.textContent;
  };
  document.addEventListener("mouseover", describe);
  document.addEventListener("focusin", describe);
  const live = document.getElementById("live");
  if (!live) return;
  let asked = 0;

  // Microseconds since 1970 are exact in a double until the year 2255.
  const window_ = () => ({ from: Number(lanes.dataset.from), to: Number(lanes.dataset.to) });

  const show = async (from, to, { push = true } = {}) => {
    const query = new URLSearchParams(location.search);
    const set = (name, value) => (value === null ? query.delete(name) : query.set(name, String(Math.round(value))));
    set("from", from);
    set("to", to);
    const number = ++asked;
    let response;
    try {
      response = await fetch(`/transactions/lanes?${query}`, { credentials: "same-origin" });
    } catch {
      return note("The server does not answer.");
    }
    // A later request was made meanwhile.
    if (number !== asked) return;
    if (!response.ok) return note(`The catalog does not answer (${response.status}).`);
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("lanes");
    if (!parsed || number !== asked) return;
    // The keyboard stays where it was.
    const focused = lanes.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    lanes.replaceWith(parsed);
    lanes = parsed;
    if (focused) lanes.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    if (push) history.replaceState(null, "", `/transactions?${query}`);
  };

  const note = (text) => {
    const summary = lanes.querySelector(".summary");
    if (summary) summary.textContent = text;
  };

  const zoom = (factor, share = 0.5) => {
    const { from, to } = window_();
    const at = from + (to - from) * share;
    live.checked = false;
    show(at - (at - from) * factor, at + (to - at) * factor);
  };
  const move = (share) => {
    const { from, to } = window_();
    live.checked = false;
    show(from + (to - from) * share, to + (to - from) * share);
  };

  document.querySelectorAll("[data-zoom], [data-move]").forEach((link) =>
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (link.dataset.zoom) zoom(Number(link.dataset.zoom));
      else move(Number(link.dataset.move));
    }),
  );
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const act = { "+": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.5), ArrowRight: () => move(0.5) }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  document.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey || !event.target.closest("#lanes svg")) return;
      event.preventDefault();
      const box = event.target.closest("svg").getBoundingClientRect();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    },
    { passive: false },
  );
  setInterval(() => {
    if (!live.checked || document.hidden) return;
    const { from, to } = window_();
    const query = new URLSearchParams(location.search);
    // The default window grows with the history; a chosen one keeps its length and follows the clock.
    if (query.has("from")) show(Date.now() * 1000 - (to - from), null, { push: false });
    else show(null, null, { push: false });
  }, POLL_MS);
})();
