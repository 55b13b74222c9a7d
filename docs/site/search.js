/* How the site's search orders what it finds, and what it shows of a page. Pages load this after Sphinx's own script. */

// What people write as one word, and the pages with a hyphen.
function hyphened(asked) {
  return asked.replace(/\b(all|reduce)(reduce|gather|scatter)\b/gi, "$1-$2").replace(/\balltoall\b/gi, "all-to-all");
}

// All that is asked for, as one phrase.
function askedPhrase() {
  return hyphened(new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase().trim();
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
  times: new Map(), // how often a page has the phrase, at most 20 times
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
    return score + (Scorer.about.has(filename) ? 10 : 0) + (Scorer.times.get(filename) ?? 0);
  },
};

// An excerpt comes from the text alone, not from the theme's list of sections for print; it begins at the phrase
// where the page has it.
Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const mark of page.querySelectorAll(".headerlink, script, style")) mark.remove();
  const part = anchor ? page.getElementById(anchor.slice(1)) : null;
  return (part ?? page.querySelector("article"))?.textContent ?? "";
};
// Results in English, in the search of a different language; the page says which these are.
function markEnglish() {
  for (const link of document.querySelectorAll("#search-results li > a:not([hreflang])")) {
    const { pathname } = new URL(link.href);
    if (englishPages.some((name) => pathname.endsWith(`/${name}.html`))) link.hreflang = "en";
  }
}
// Before the results of several words are put in order, their pages are read: those with the phrase come first.
const showResults = Search.query;
Search.query = async (asked) => {
  const phrase = askedPhrase();
  if (phrase.includes(" ")) {
    const found = new Map(Search._performSearch(...Search._parseQuery(hyphened(asked))).map((one) => [one[5], one[0]]));
    Scorer.about = undefined;
    await Promise.all([...found].map(async ([filename, page]) => {
      const root = document.documentElement.dataset.content_root;
      const got = await fetch(`${root}${page}${DOCUMENTATION_OPTIONS.FILE_SUFFIX}`);
      const text = Search.htmlToText(await got.text()).toLowerCase();
      Scorer.times.set(filename, Math.min(20, text.split(phrase).length - 1));
    }));
  }
  new MutationObserver(markEnglish).observe(document.querySelector("#search-results"), { childList: true, subtree: true });
  showResults(hyphened(asked));
};
// An excerpt takes a page from the server: the first ten results have one.
let excerpts = 10;
Object.defineProperty(DOCUMENTATION_OPTIONS, "SHOW_SEARCH_SUMMARY", { get: () => excerpts-- > 0 });
const excerpt = Search.makeSearchSummary;
Search.makeSearchSummary = (html, words, anchor) => {
  const phrase = askedPhrase();
  const there = Search.htmlToText(html, anchor).toLowerCase().includes(phrase);
  return excerpt(html, there ? [phrase] : words, anchor);
};
