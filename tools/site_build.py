"""Makes the site from the stored notebooks and the docs, and shows it.

`make site` writes build/site. With `--serve` it shows the site on 127.0.0.1, with `--links` it asks
every address elsewhere whether it answers. Nothing is run again, and nothing is fetched.
"""

import argparse
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import site_source

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
"""Where everything goes."""
PARTS = ("site-source", "site-doctrees", "site-made")
"""Its folders beside the site: what Sphinx reads, what it keeps for the next time, and writes."""
MISSING = "404.html"
"""What GitHub Pages sends for an address that leads nowhere."""
UNSTAMPED = (
    "The notebooks are not stamped (make stamp REPO=OWNER/NAME): the site has no buttons for Colab,"
    " no links to the sources, and no address on the page Install."
)
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme")


def started(
    source: "site_source.Source",
    english: "site_source.Source",
    others: dict[str, str],
    build: Path,
    made: Path,
) -> subprocess.Popen[bytes]:
    """Write what Sphinx reads for a language, and start Sphinx.

    Args:
        source: The pages of the language.
        english: The English pages, whose anchors the translated ones have, too.
        others: The names of all languages that the site has, by their codes.
        build: The folder for what is made.
        made: The folder for Sphinx's pages. MyST-NB puts pictures into the folder above it.
    """
    import site_pages
    import site_words
    from docutils.nodes import make_id

    language = source.language
    source.write(build / "site-source" / language)
    meanings = site_words.definitions(source.pages["docs/glossary.md"])
    stems = {str(Path(name).with_suffix("")): name for name in source.titles}
    titles = {
        stem: english.titles[name] for stem, name in stems.items() if stem not in source.english
    }
    facts = {
        "repository": source.repository,
        "languages": others,
        "words": site_pages.WORDS[language],
        "origins": {str(Path(k).with_suffix("")): v for k, v in source.origins.items()},
        "descriptions": source.descriptions,
        "meanings": {make_id(term): meaning for term, meaning in meanings.items()},
        "english": source.english,
        "versions": source.versions,
        "titles": {} if source is english else titles,
    }
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    command += ["-c", str(ROOT / "docs" / "site"), "-d", str(build / "site-doctrees" / language)]
    command += [str(build / "site-source" / language), str(made)]
    environment = {**os.environ, "DISTLAB_SITE_LANGUAGE": language}
    environment["DISTLAB_SITE_FACTS"] = json.dumps(facts, sort_keys=True)
    return subprocess.Popen(command, env=environment)


def make(build: Path) -> int:
    """Makes the site; returns 0 if every page is there and every link leads somewhere."""
    import site_assemble
    import site_links
    import site_pages
    import site_source

    began = time.monotonic()
    names = site_source.languages()
    others = {name: site_pages.WORDS[name]["language"] for name in names}
    made = {name: build / "site-made" / name / "html" for name in names}
    kept, untranslated, running = {}, {}, []
    english = site_source.Source("en")
    for name in names:
        source = english if name == "en" else site_source.Source(name)
        kept[name] = {f"{Path(origin).with_suffix('')}.html" for origin in source.origins}
        untranslated[name] = {f"{page}.html" for page in source.english}
        running.append(started(source, english, others, build, made[name]))
    codes = [process.wait() for process in running]
    if any(codes):
        print("Sphinx has found what is named above; the site is not complete.", file=sys.stderr)
        return 1
    site = build / "site"
    site_assemble.assemble(made, kept, untranslated, site)
    site_source.originals(site)
    if dead := site_links.dead_links(site):
        print("Links that lead nowhere:", *dead, sep="\n  ", file=sys.stderr)
        return 1
    missing = site / MISSING
    page = site_assemble.from_anywhere(missing.read_text(encoding="utf-8"), english.repository)
    missing.write_text(page, encoding="utf-8")
    pages = len(site_links.pages(site))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    taken = time.monotonic() - began
    print(f"{pages} pages, {size / 1e6:.1f} MB, in {taken:.0f} s: {site / 'index.html'}")
    if not site_source.repository():
        print(UNSTAMPED)
    return 0


class Handler(SimpleHTTPRequestHandler):
    """Sends the site's files, and says nothing about each."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the site's own page where there is none, as GitHub Pages does."""
        page = Path(self.directory) / MISSING
        if code != 404 or not page.is_file():
            super().send_error(code, message, explain)
            return
        # Here the site is at the top, and on GitHub Pages below the repository's name.
        body = re.sub(b'<base href="[^"]*">', b'<base href="/">', page.read_bytes(), count=1)
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def server(site: Path, port: int) -> ThreadingHTTPServer:
    """Returns a server of the site on 127.0.0.1; port 0 is any that is free."""
    handler = functools.partial(Handler, directory=str(site))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def serve(site: Path, port: int) -> int:
    """Shows the site until Ctrl-C."""
    try:
        shown = server(site, port)
    except OSError as error:
        print(f"Port {port} can't be used ({error.strerror}): choose another with --port.")
        return 1
    print(f"http://127.0.0.1:{shown.server_port}/   Ctrl-C ends it.", flush=True)
    try:
        shown.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        shown.server_close()
    return 0


def check_outside(site: Path) -> int:
    """Asks every address that the site links to elsewhere."""
    import site_links

    asked = len(site_links.outside(site))
    dead = list(site_links.dead_outside(site))
    print(*dead, sep="\n", end="\n" if dead else "")
    if len(dead) == asked:
        print(f"None of {asked} addresses answers: is this machine on a network?")
    elif dead:
        print(f"{len(dead)} of {asked} addresses don't answer: correct or remove these links.")
    else:
        print(f"All {asked} addresses answer.")
    return 1 if dead else 0


def main(arguments: list[str]) -> int:
    """Makes the site, then does what the options say."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="show it on 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="where (%(default)s; 0: any)")
    parser.add_argument("--links", action="store_true", help="ask every address elsewhere")
    parser.add_argument("--folder", type=Path, default=BUILD, help="where it goes (build)")
    parser.add_argument("--clean", action="store_true", help="make every page anew")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"The site needs {', '.join(missing)}: run make environment.", file=sys.stderr)
        return 1
    if options.clean:
        for name in ("site", *PARTS):
            shutil.rmtree(options.folder / name, ignore_errors=True)
    folder = options.folder.resolve()
    code = make(folder)
    if not code and options.links:
        code = check_outside(folder / "site")
    return code or (serve(folder / "site", options.port) if options.serve else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
