"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const tip = byId("tip");

  // ---- tooltips: of whatever has data-tip, by pointer or by focus ----
  const show = (words, x, y) => {
    tip.textContent = words;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16;
    const top = y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointermove", (event) => {
    const owner = event.target.closest?.("[data-tip]");
    if (owner) show(owner.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.closest?.("#times")) hide();
  });
  document.addEventListener("focusin", (event) => {
    const owner = event.target.closest?.("[data-tip]");
    if (!owner || !owner.matches(":focus-visible")) return;
    const box = owner.getBoundingClientRect();
    show(owner.dataset.tip, box.left, box.bottom);
  });
  document.addEventListener("focusout", hide);
  addEventListener("scroll", hide, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // ---- sorted times: the implementation that is pointed at ----
  const times = byId("times");
  if (times) {
    const { configurations, points } = JSON.parse(byId("data").textContent);
    const left = Number(times.dataset.left), right = Number(times.dataset.right);
    const heights = times.dataset.heights.split(" ");
    const cursor = times.querySelector(".cursor");
    const picked = byId("picked-text");
    let current = 0;
    const tell = (index) => {
      const [traversal, configuration, seconds, interval] = points[index];
      return `${index + 1} of ${points.length}: ${seconds}\n${interval}\n${configurations[configuration]}\n${traversal}`;
    };
    const look = (index, x, y) => {
      current = Math.min(points.length - 1, Math.max(0, index));
      const at = left + (right - left) * current / Math.max(1, points.length - 1);
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("transform", `translate(${at} 0)`);
      cursor.querySelector("circle").setAttribute("cy", heights[current]);
      const box = times.getBoundingClientRect();
      show(tell(current), x ?? box.left + at * box.width / times.viewBox.baseVal.width, y ?? box.top + box.height / 2);
    };
    times.addEventListener("pointermove", (event) => {
      if (event.target.closest("[data-tip]")) return;
      const box = times.getBoundingClientRect();
      const x = (event.clientX - box.left) * times.viewBox.baseVal.width / box.width;
      look(Math.round((x - left) / (right - left) * (points.length - 1)), event.clientX, event.clientY);
    });
    times.addEventListener("pointerleave", () => { hide(); cursor.setAttribute("visibility", "hidden"); });
    times.addEventListener("click", () => { picked.textContent = points[current][0]; });
    times.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -points.length, End: points.length }[event.key];
      if (by) { event.preventDefault(); look(current + by); }
      if (event.key === "Enter") picked.textContent = points[current][0];
    });
  }

  // ---- copying, also where the page is a file and the browser gives no clipboard ----
  const copied = async (words) => {
    try { await navigator.clipboard.writeText(words); return true; } catch { /* as below */ }
    const area = Object.assign(document.createElement("textarea"), { value: words });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  for (const button of all("[data-copy]"))
    button.addEventListener("click", async () => {
      button.textContent = (await copied(byId(button.dataset.copy).textContent)) ? "copied" : "failed";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });

  // ---- rank of the timelines ----
  const rank = byId("rank");
  rank?.addEventListener("change", () => {
    for (const line of all(".rank")) line.hidden = line.dataset.rank !== rank.value;
  });

  // ---- branches of the tree ----
  for (const question of all(".question")) {
    const toggle = () => {
      const closed = question.parentElement.classList.toggle("closed");
      question.setAttribute("aria-expanded", String(!closed));
    };
    question.addEventListener("click", toggle);
    question.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    });
  }

  // ---- light and dark ----
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // ---- on paper everything is open ----
  addEventListener("beforeprint", () => { for (const part of all("details")) part.open = true; });
})();
