// dagc show: choosing ops and edges, moving and zooming the picture.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // ---- choosing: an id of an article in the details; the address of the page keeps it ----
  const clear = () => {
    for (const marked of all(".picked, .near")) marked.classList.remove("picked", "near");
    for (const article of all("#details article")) article.hidden = true;
    byId("nothing").hidden = false;
  };
  const choose = (id) => {
    const about = byId(id);
    if (!about || about.tagName !== "ARTICLE") return false;
    clear();
    show(about.dataset.graph);
    about.hidden = false;
    byId("nothing").hidden = true;
    for (const one of all(`g[data-about="${id}"], tr[data-edge="${id}"]`)) one.classList.add("picked");
    const ends = (about.dataset.ends ?? "").split(" ").filter(Boolean);
    for (const end of ends) for (const one of all(`g[data-about="${end}"]`)) one.classList.add("near");
    for (const edge of all(`article[data-ends~="${id}"]`))
      for (const one of all(`g[data-about="${edge.id}"]`)) one.classList.add("near");
    const lines = [about, ...ends.map(byId)].map((one) => one?.dataset.line).filter(Boolean);
    for (const line of lines) byId(line)?.classList.add("picked");
    const first = byId(lines[0]);
    const source = first?.closest(".source");
    if (source) source.scrollTop = first.offsetTop - source.clientHeight / 3;
    return true;
  };
  const pick = (id) => { if (choose(id)) history.replaceState(null, "", `#${id}`); };
  document.addEventListener("click", (event) => {
    const owner = event.target.closest?.("[data-about]");
    if (owner && !moved) pick(owner.dataset.about);
    const line = event.target.closest?.("[data-of]");
    if (line) {
      const ops = all(`article[data-line="${line.dataset.of}"]`).filter((one) => one.dataset.graph === view.value);
      const now = ops.findIndex((one) => !one.hidden);
      if (ops.length) pick(ops[(now + 1) % ops.length].id);
    }
  });
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.("g.box[data-about]");
    if (box && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); pick(box.dataset.about); }
    if (event.key === "Escape") { clear(); history.replaceState(null, "", location.pathname + location.search); }
  });
  addEventListener("hashchange", () => choose(decodeURIComponent(location.hash.slice(1))));

  // ---- loops folded or not ----
  const view = byId("view") ?? { value: document.querySelector(".graph").id };
  const show = (id) => {
    view.value = id;
    for (const graph of all(".graph")) graph.hidden = graph.id !== id;
  };
  view.addEventListener?.("change", () => { clear(); show(view.value); });

  // ---- moving and zooming ----
  let moved = false;
  for (const svg of all("svg.dag")) {
    const [x0, y0, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    let [x, y, w, h] = [x0, y0, width, height];
    const apply = () => svg.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
    const zoom = (factor, cx = x + w / 2, cy = y + h / 2) => {
      const by = Math.min(Math.max(factor, w / (width * 4)), w / 60);
      x = cx - (cx - x) / by; y = cy - (cy - y) / by; w /= by; h /= by;
      apply();
    };
    const fit = () => { [x, y, w, h] = [x0, y0, width, height]; apply(); };
    const point = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    for (const button of all("[data-zoom]", svg.closest(".graph")))
      button.addEventListener("click", () => { const by = Number(button.dataset.zoom); if (by) zoom(by); else fit(); });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const at = point(event);
      zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, at.x, at.y);
    }, { passive: false });
    let from = null;
    svg.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = point(event); moved = false; } });
    addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = point(event);
      if (!moved && Math.hypot(to.x - from.x, to.y - from.y) * svg.clientWidth / w < 5) return;
      moved = true;
      svg.classList.add("moving");
      x += from.x - to.x; y += from.y - to.y;
      apply();
    });
    addEventListener("pointerup", () => { from = null; svg.classList.remove("moving"); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step) { x += step[0] * w / 12; y += step[1] * h / 12; apply(); }
      else if (event.key === "+" || event.key === "=") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    });
  }

  if (location.hash) choose(decodeURIComponent(location.hash.slice(1)));
})();
