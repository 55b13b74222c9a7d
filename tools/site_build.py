"""Makes the site from the stored notebooks and the docs, and shows it.

`make site` writes build/site. With `--serve` it shows the site on 127.0.0.1, with `--links` it asks
every address elsewhere whether it answers. Nothing is run again, and nothing is fetched.
"""

import argparse
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import site_pages

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build"
UNSTAMPED = (
    "The notebooks are not stamped (make stamp REPO=OWNER/NAME): the site has no buttons for Colab,"
    " and no links to the sources."
)


def sphinx(builder: str, name: str) -> int:
    """Runs one of Sphinx's builders; returns 0 if it had nothing to complain about.

    Args:
        builder: Its name: `html`, or `linkcheck`, which asks the addresses elsewhere.
        name: That of its folder.
    """
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q"]
    command += ["-j", "auto", "-c", str(ROOT / "docs" / "site")]
    command += ["-d", str(FOLDER / "site-doctrees"), str(ROOT), str(FOLDER / name)]
    return subprocess.run(command, check=False).returncode


def make() -> int:
    """Makes the site; returns 0 if every page is there and every link in it leads somewhere."""
    for name in ("site", "site-doctrees"):  # pages of notebooks that are gone
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    if sphinx("html", "site"):
        print("Sphinx has found what is named above; the site is not complete.", file=sys.stderr)
        return 1
    start = shutil.copyfile(FOLDER / "site" / "README.html", FOLDER / "site" / "index.html")
    print(f"The site is made: {start}")
    return 0


def main(arguments: list[str]) -> int:
    """Makes the site, then does what the options say."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="show it on 127.0.0.1")
    parser.add_argument("--port", default="8000", help="where (%(default)s; 0: any)")
    parser.add_argument("--links", action="store_true", help="ask every address elsewhere")
    options = parser.parse_args(arguments)
    code = make()
    if not site_pages.repository():
        print(UNSTAMPED)
    if not code and options.links:
        code = sphinx("linkcheck", "site-links")
    if not code and options.serve:
        server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", options.port]
        with suppress(KeyboardInterrupt):
            code = subprocess.run(server, cwd=FOLDER / "site", check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
