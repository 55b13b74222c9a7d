"""Makes the site from the stored notebooks and the docs, and shows it.

`make site` writes build/site. With `--serve` it shows the site on 127.0.0.1, with `--links` it asks
every address elsewhere whether it answers. Nothing is run again, and nothing is fetched.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx_copybutton")
UNSTAMPED = (
    "The notebooks are not stamped (make stamp REPO=OWNER/NAME): the site has no buttons for Colab,"
    " and no links to the sources."
)


def sphinx(builder: str, folder: Path, name: str) -> int:
    """Runs one of Sphinx's builders; returns 0 if it had nothing to complain about.

    Args:
        builder: Its name: `html`, or `linkcheck`, which asks the addresses elsewhere.
        folder: The folder for everything that is made.
        name: That of the builder's own folder in it.
    """
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q"]
    command += ["-j", "auto", "-c", str(ROOT / "docs" / "site")]
    command += ["-d", str(folder / "site-doctrees"), str(ROOT), str(folder / name)]
    return subprocess.run(command, check=False).returncode


def make(folder: Path) -> int:
    """Makes the site; returns 0 if every page is there and every link in it leads somewhere."""
    began = time.monotonic()
    site = folder / "site"
    for name in ("site", "site-doctrees"):  # pages of notebooks that are gone
        shutil.rmtree(folder / name, ignore_errors=True)
    if sphinx("html", folder, "site"):
        print("Sphinx has found what is named above; the site is not complete.", file=sys.stderr)
        return 1
    shutil.copyfile(site / "README.html", site / "index.html")
    files = [path for path in site.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" and "_static" not in path.parts for path in files)
    size = sum(path.stat().st_size for path in files)
    taken = time.monotonic() - began
    print(f"{pages} pages, {size / 1e6:.1f} MB, in {taken:.0f} s: {site / 'index.html'}")
    return 0


def serve(site: Path, port: int) -> int:
    """Shows the site until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    try:
        shown = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        print(f"Port {port} can't be used ({error.strerror}): choose another with --port.")
        return 1
    print(f"http://127.0.0.1:{shown.server_port}/   Ctrl-C ends it.", flush=True)
    with shown, suppress(KeyboardInterrupt):
        shown.serve_forever()
    return 0


def main(arguments: list[str]) -> int:
    """Makes the site, then does what the options say."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="show it on 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="where (%(default)s; 0: any)")
    parser.add_argument("--links", action="store_true", help="ask every address elsewhere")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="where it goes (build)")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"The site needs {', '.join(missing)}: run make environment.", file=sys.stderr)
        return 1
    import site_pages

    folder = options.folder.resolve()
    code = make(folder)
    if not site_pages.repository():
        print(UNSTAMPED)
    if not code and options.links:
        code = sphinx("linkcheck", folder, "site-links")
    return code or (serve(folder / "site", options.port) if options.serve else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
