/* Languages in the same tab; what a word of the glossary means, while its link has the focus; a
   button that copies a block of code. */
"use strict";

// What a block's reader wants to run: of an example with prompts the lines behind them.
function copiedCode(text) {
  const lines = text.trimEnd().split("\n");
  const typed = lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
  return (typed.length ? typed.map((line) => line.slice(4)) : lines).join("\n");
}

function addCopyButton(block, words) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-code";
  button.setAttribute("aria-label", words.content);
  button.title = words.content;
  button.innerHTML = '<span class="fa-regular fa-copy" aria-hidden="true"></span>';
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(copiedCode(block.querySelector("pre").textContent));
    button.setAttribute("aria-label", words.dataset.done);
    button.title = words.dataset.done;
    button.classList.add("done");
  });
  block.append(button);
}

// In a table that is wider than the text, code may break, and the letters get smaller. If it still scrolls
// sideways, its first column stays, and it can be reached with the keyboard, as the theme does for code.
function reachTables() {
  for (const table of document.querySelectorAll(".bd-article table")) {
    table.classList.remove("breaks", "wide", "scrolls");
    table.removeAttribute("tabindex");
    const steps = ["breaks", "wide", "scrolls"];
    while (steps.length && table.scrollWidth > table.clientWidth + 1) table.classList.add(steps.shift());
    if (!table.classList.contains("scrolls")) continue;
    table.tabIndex = 0;
    table.onscroll = () => {
      table.classList.toggle("at-end", table.scrollLeft + table.clientWidth >= table.scrollWidth - 2);
    };
    table.onscroll();
  }
}
window.addEventListener("load", reachTables);
window.addEventListener("resize", reachTables);

// Paper does not unfold, and is white: all that is folded is open while the page is printed, on a light page.
let opened = [];
let theme = "";
window.addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  opened = [...document.querySelectorAll(".bd-article details:not([open])")];
  for (const folded of opened) folded.open = true;
});
window.addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = theme;
  for (const folded of opened) folded.open = false;
  opened = [];
});

// The theme keeps the side bar where it was on the page before: the entry of this page may be out of sight.
function showWhereWeAre() {
  const bar = document.querySelector(".bd-sidebar-primary");
  const here = [...document.querySelectorAll(".bd-sidebar-primary .bd-docs-nav a.current")].pop();
  if (!bar || !here) return;
  const seen = bar.getBoundingClientRect();
  const place = here.getBoundingClientRect();
  const field = bar.querySelector(".sidebar-primary-item:has(.search-button-field)");
  const top = Math.max(seen.top, field ? field.getBoundingClientRect().bottom : 0);
  if (place.top < top || place.bottom > Math.min(seen.bottom, window.innerHeight)) {
    bar.scrollTop += place.top - seen.top - bar.clientHeight / 2;
  }
}
window.addEventListener("load", showWhereWeAre);

document.addEventListener("DOMContentLoaded", () => {
  // The theme opens every button's page in a new tab: a language takes the place of another.
  for (const link of document.querySelectorAll(".dropdown-site-language-button a[target]")) {
    link.removeAttribute("target");
    // The sections of a page have the same anchors in all languages.
    link.addEventListener("click", () => { link.hash = window.location.hash; });
  }

  // The picture of a real run is drawn little by little, once, when it comes into view.
  const run = document.querySelector("figure.real-run");
  if (run) {
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      run.classList.add("in-view");
    }, { threshold: 0.2 });
    watch.observe(run);
  }

  const words = document.querySelector("meta[name='copy-code']");
  if (words && navigator.clipboard) { // browsers have it on https and on this machine
    for (const block of document.querySelectorAll(".bd-article div.highlight")) {
      if (!block.closest(".cell_output")) addCopyButton(block, words);
    }
  }

  let box = null;

  function hide() {
    if (!box) return;
    box.word.removeAttribute("aria-describedby");
    box.remove();
    box = null;
  }

  function show(word) {
    hide();
    box = document.createElement("div");
    box.id = "meaning";
    box.role = "tooltip";
    box.word = word;
    box.textContent = word.dataset.meaning;
    document.body.append(box);
    word.setAttribute("aria-describedby", "meaning");
    const place = word.getBoundingClientRect();
    const most = document.documentElement.clientWidth - box.offsetWidth - 8;
    const above = place.bottom + box.offsetHeight + 12 > window.innerHeight;
    const top = above ? place.top - box.offsetHeight - 6 : place.bottom + 6;
    box.style.left = `${Math.max(8, Math.min(place.left, most)) + window.scrollX}px`;
    box.style.top = `${top + window.scrollY}px`;
  }

  for (const word of document.querySelectorAll("a.term")) {
    word.addEventListener("mouseenter", () => show(word));
    word.addEventListener("focus", () => show(word));
    word.addEventListener("mouseleave", hide);
    word.addEventListener("blur", hide);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
});
