"""Chromium without a window, driven by its command line: screenshots, and what a page finds out about itself."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--allow-file-access-from-files")


def program():
    """The browser, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def run(page, *flags):
    """Load a page (HTML text) and return the text of what came of it, as a process's output."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        return subprocess.run([program(), *FLAGS, f"--user-data-dir={folder}/profile", *flags, path.as_uri()],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120).stdout


def screenshot(svg, png, kind):
    """kind: "fit" is 900x600 fitted to the window less 20 px, as editors show pictures; "full", "dark" are 1600x1000."""
    size, style = ("900,600", "max-width:860px;max-height:560px;margin:20px") if kind == "fit" else ("1600,1000", "")
    flags = ["--blink-settings=preferredColorScheme=0"] if kind == "dark" else []
    run(f"<!doctype html><body style='margin:0'><img style='display:block;{style}' src='{svg.resolve().as_uri()}'>",
        f"--window-size={size}", f"--screenshot={png}", *flags)


def evaluate(svg, script, *flags):
    """JSON value of a script's function body, run in a page that holds the picture inline."""
    page = (f"<!doctype html><meta charset=utf-8><body style='margin:0'>{svg}<script>const found=(()=>{{{script}}})();"
            "document.body.innerHTML='';const out=document.createElement('pre');out.id='found';"
            "out.textContent=JSON.stringify(found);document.body.append(out)</script>")
    dom = run(page, "--window-size=1600,1000", "--dump-dom", *flags).decode("utf-8")
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL).group(1)))
