/* How the site's search orders what it finds, and what it shows of a page. Sphinx puts this text before its own. */

// All that is asked for, as one phrase.
function askedPhrase() {
  return (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase().trim();
}

// The pages with a heading that has the phrase.
function pagesAbout(phrase) {
  const { alltitles, filenames } = Search._index;
  return new Set(
    Object.entries(alltitles)
      .filter(([title]) => title.toLowerCase().includes(phrase))
      .flatMap(([, found]) => found.map(([file]) => filenames[file])),
  );
}

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 3, // Sphinx has 7: "ring" in "sharing" counted more than the word itself in the text
  term: 5,
  partialTerm: 2,
  score: ([, , , , score, filename]) => {
    Scorer.about ??= pagesAbout(askedPhrase());
    return Scorer.about.has(filename) ? score + 10 : score;
  },
};

// An excerpt comes from the text alone, not from the theme's list of sections for print; it begins at the phrase
// where the page has it.
document.addEventListener("DOMContentLoaded", () => {
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const mark of page.querySelectorAll(".headerlink, script, style")) mark.remove();
    const part = anchor ? page.getElementById(anchor.slice(1)) : null;
    return (part ?? page.querySelector("article"))?.textContent ?? "";
  };
  const summary = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, words, anchor) => {
    const phrase = askedPhrase();
    const there = Search.htmlToText(html, anchor).toLowerCase().includes(phrase);
    return summary(html, there ? [phrase] : words, anchor);
  };
});
