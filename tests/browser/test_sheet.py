"""The twelve pictures, as a browser lays them out: well-formed, self-contained, no text over other text, none cut off."""

import re
import sys
import xml.etree.ElementTree as xml

import pytest

import browser
import pictures

pytestmark = pytest.mark.skipif(browser.program() is None, reason="no chromium on this machine")

# What is drawn, in pixels: letters without the air above and below them.
SCRIPT = """
const svg = document.querySelector('svg'), size = svg.getBoundingClientRect(), found = [];
const boxes = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim()).map(t => {
    const r = t.getBoundingClientRect();
    return {text: t.textContent, left: r.left, right: r.right, top: r.top + r.height * 0.2, bottom: r.bottom - r.height * 0.22};
});
boxes.forEach((a, i) => {
    if (a.left < size.left || a.right > size.right || a.top < size.top || a.bottom > size.bottom)
        found.push('outside: ' + a.text);
    for (const b of boxes.slice(i + 1)) {
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 1 && y > 1) found.push('over each other: ' + a.text + ' / ' + b.text);
    }
});
for (const node of svg.querySelectorAll('g.node')) {
    const rects = [...node.querySelectorAll('rect')].map(r => r.getBoundingClientRect());
    const box = rects.reduce((a, b) => b.width * b.height > a.width * a.height ? b : a);
    for (const t of node.querySelectorAll('text')) {
        const r = t.getBoundingClientRect();
        /* numbers of findings sit on the edge */
        if (!/^\\d+$/.test(t.textContent) && (r.left < box.left - 12 || r.right > box.right + 12))
            found.push('out of its box: ' + t.textContent);
    }
}
const verdict = Math.max(...[...svg.querySelectorAll('text')].map(t => parseFloat(t.getAttribute('font-size')) || 0));
return {found, verdict, width: size.width, height: size.height};
"""


@pytest.fixture(scope="module")
def drawn():
    """SVG by name, drawn once."""
    made = {}

    def draw(name):
        if name == "t5":
            pytest.importorskip("transformers")
        if name not in made:
            made[name] = pictures.report_of(name)._repr_svg_()
        return made[name]

    return draw


@pytest.mark.parametrize("name", list(pictures.PICTURES))
def test_no_text_overlaps_or_is_cut_off(drawn, name):
    seen = browser.evaluate(drawn(name), SCRIPT)
    assert seen["found"] == []
    assert 4 / 3 <= seen["width"] / seen["height"] <= 2
    # capitals of the common fonts are about 0.73 of the size, at 900 pixels for the whole width
    assert seen["verdict"] * 0.73 * 900 / seen["width"] >= 11


@pytest.mark.parametrize("name", list(pictures.PICTURES))
def test_well_formed_and_self_contained(drawn, name):
    svg = drawn(name)
    root = xml.fromstring(svg)
    for element in root.iter():
        tag = element.tag.rsplit("}", 1)[-1]
        assert tag not in ("script", "image", "use", "a", "foreignObject", "link"), tag
        for attribute, value in element.attrib.items():
            assert not attribute.rsplit("}", 1)[-1].startswith(("on", "href", "src")), attribute
            assert "url(" not in value
    style = "".join(e.text or "" for e in root.iter() if e.tag.endswith("}style"))
    assert not re.search(r"url\(|@import", style)
    assert len(svg.encode()) < 400_000


def test_measured_pictures_show_what_was_measured(drawn):
    healthy = drawn("gpt2")
    for title in ("Gradient flow", "Time per module", "Timeline", "slowest: "):
        assert f">{title}" in healthy
    assert "Not in this picture" not in healthy
    unmeasured = drawn("unet")
    assert "Gradient flow" not in unmeasured and "Timeline" not in unmeasured
    assert "torchgraphdbg.record()" in unmeasured  # how to get it


def test_a_vanishing_gradient_is_seen_to_vanish(drawn):
    words = re.findall(r">([^<>]+)</text>", drawn("sigmoid50"))
    sizes = [float(w.removeprefix("worst ")) for w in words if re.fullmatch(r"(worst )?\d\.\de-?\d+", w)]
    assert max(sizes) == 1.0 and 0 < min(sizes) < 1e-30
    assert len({-round(s) for s in sizes if s > 0} | set(sizes)) >= 12  # it fades over many boxes


def test_the_culprit_is_named_where_it_breaks(drawn):
    text = drawn("resnet")
    line = next(i for i, s in enumerate(open(pictures.__file__), 1) if s.startswith("            out += x"))
    assert f"written by add_ at pictures.py:{line}" in text


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


def test_modules_that_are_met_in_turns_are_added_up():
    """down.0, merge.0, down.1, ... are two lists, not as many bars."""
    picture = pictures.report_of("unet")._repr_svg_()
    assert "Saved for backward" in picture
    assert [picture.count(f">{name}<") for name in ("down", "merge", "up")] == [1, 1, 1]
