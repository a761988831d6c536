// A click on a column's title sorts by it; a second click turns the order round.
document.querySelectorAll("table.sortable th button").forEach((button) => {
  button.addEventListener("click", () => {
    const header = button.parentElement;
    const body = header.closest("table").tBodies[0];
    const column = header.cellIndex;
    const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    header.parentElement.querySelectorAll("th").forEach((each) => each.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", order);
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const compare = (a, b) => header.classList.contains("numeric")
      ? key(a) - key(b) : key(a).localeCompare(key(b), "en", { numeric: true });
    [...body.rows].sort((a, b) => (order === "ascending" ? 1 : -1) * compare(a, b)).forEach((row) => body.append(row));
  });
});
