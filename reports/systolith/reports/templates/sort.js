for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, column) => {
    // No button: Chromium leaves those out of the heads that it repeats on the pages of a print.
    const button = head.querySelector('[role="button"]');
    button.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
    button.addEventListener("click", () => {
      const number = head.classList.contains("n");
      const now = head.getAttribute("aria-sort"), down = number ? now !== "descending" : now === "ascending";
      table.querySelectorAll("th").forEach(other => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.v;
      const missing = value => value === undefined || value === "";
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (missing(x) || missing(y)) return missing(x) - missing(y);
        const order = number ? x - y : x.localeCompare(y, undefined, {numeric: true});
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}
