// ---- marks of the scatter: one is in the order of the tabulator, the arrow keys go on from it ----
for (const plot of document.querySelectorAll(".scatter")) {
  const marks = [...plot.querySelectorAll(".mark")];
  plot.addEventListener("keydown", (event) => {
    const at = marks.indexOf(event.target.closest(".mark"));
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: marks.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = marks[Math.min(marks.length - 1, Math.max(0, to))];
    marks[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
