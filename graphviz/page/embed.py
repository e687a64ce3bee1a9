"""Turns page.js and page.css, which stand beside it, into a C file with one array each.

    python graphviz/page/embed.py OUT.c

Run by setup.py and tests/c/run.sh; what it writes belongs into a build folder.
"""
import base64
import hashlib
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def array(name: str, content: bytes) -> str:
    """A terminated char array as numbers: a string literal of this length is more than C11 promises to take."""
    values = [str(byte if byte < 128 else byte - 256) for byte in content + b"\0"]
    rows = [",".join(values[i:i + 32]) for i in range(0, len(values), 32)]
    return f"const char {name}[] = {{\n" + ",\n".join(rows) + "};\n"


def generate() -> str:
    script, style = (FOLDER / name for name in ("page.js", "page.css"))
    script, style = script.read_bytes(), style.read_bytes()
    for content, end in ((script, b"</script"), (style, b"</style")):
        if end in content.lower() or b"<!--" in content or b"\r" in content or b"\0" in content:
            raise SystemExit(f"page.js and page.css stand inside an HTML page: no {end.decode()}, <!--, CR or NUL")
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return ("/* Written by graphviz/page/embed.py. */\n"
            "extern const char tgd_page_script[], tgd_page_style[], tgd_page_script_hash[];\n" +
            array("tgd_page_script", script) + array("tgd_page_style", style) +
            f'const char tgd_page_script_hash[] = "sha256-{digest}";\n')


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    pathlib.Path(sys.argv[1]).write_text(generate(), encoding="ascii")
