"""The HTML page in a real browser, driven as a person would: search, cards, folds, findings, keys, themes."""

import pathlib
import re
import shutil
import urllib.parse

import pytest

import browser
import pictures

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium; tests/run.sh installs it")
from selenium.common.exceptions import TimeoutException  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.skipif(browser.program() is None or shutil.which("chromedriver") is None,
                                reason="no chromium with its driver on this machine")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = browser.program()
    for flag in (*browser.FLAGS, "--window-size=1600,1000", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield running
    running.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """name -> path of its page; each is made once."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name):
        path = folder / f"{name}.html"
        if not path.exists():
            pictures.report_of(name).save(path)
        return path
    return page


@pytest.fixture
def page(driver, pages):
    """Opens a page, and looks at the end that it complained of nothing and asked nobody for anything."""
    def open_page(name):
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(pages(name).as_uri())
        return driver
    yield open_page
    assert driver.get_log("browser") == []
    asked = re.findall(r'"url":"(?!file:|data:)([a-z-]+:[^"]*)"', " ".join(e["message"] for e in driver.get_log("performance")))
    assert [url for url in asked if not url.startswith(("chrome", "about:", "devtools:"))] == []


def wait(driver, what):
    return WebDriverWait(driver, 20).until(lambda _: what())


def one(driver, css):
    return driver.find_element(By.CSS_SELECTOR, css)


def card(driver):
    shown = one(driver, "#card")
    return wait(driver, lambda: shown.is_displayed() and shown.text)


def in_sight(driver, element):
    return driver.execute_script("""
        const r = arguments[0].getBoundingClientRect(), s = document.getElementById('stage').getBoundingClientRect();
        return r.left >= s.left - 1 && r.right <= s.right + 1 && r.top >= s.top - 1 && r.bottom <= s.bottom + 1""", element)


def centred(driver, element):
    x, y = driver.execute_script("""
        const r = arguments[0].getBoundingClientRect(), s = document.getElementById('stage').getBoundingClientRect();
        return [(r.left + r.width / 2 - s.left) / s.width, (r.top + r.height / 2 - s.top) / s.height]""", element)
    return abs(x - 0.5) < 0.3 and abs(y - 0.5) < 0.3


def node(driver, text):
    found = [n for n in driver.find_elements(By.CSS_SELECTOR, "svg .node") if text in n.get_attribute("textContent")]
    assert found, text
    return found[0]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_size_and_what_it_holds(name, pages):
    text = pages(name).read_text(encoding="utf-8")
    assert len(text.encode()) < 400_000
    assert not re.search(r"""(src|href)=["']?(?!data:|#)[^"' >]*//|@import|url\((?!["']?(#|data:))""", text.split("<script>")[0])


def test_same_bytes_again(tmp_path):
    report = pictures.report_of("resnet")
    for name in ("one.html", "two.HTML"):
        report.save(tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.HTML").read_bytes()


def test_search_finds_and_centres(page):
    driver = page("resnet")
    ActionChains(driver).send_keys("/").perform()
    assert driver.switch_to.active_element.get_attribute("id") == "search"
    driver.switch_to.active_element.send_keys("blocks.0.conv2")
    rows = wait(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "#results li[role=option]"))
    assert "blocks.0" in rows[0].text or "conv2" in rows[0].text
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert "blocks.0" in card(driver)
    chosen = one(driver, ".node.chosen")
    wait(driver, lambda: in_sight(driver, chosen) and centred(driver, chosen))


def test_search_for_nothing_that_is_there(page):
    driver = page("resnet")
    one(driver, "#search").send_keys("no such thing")
    wait(driver, lambda: "nothing found" in one(driver, "#results").text)


def test_hovering_shows_everything_about_a_node(page):
    driver = page("resnet")
    ActionChains(driver).move_to_element(node(driver, "saved result is v0, now v1")).perform()
    text = card(driver)
    for word in ("ReluBackward0", "blocks.1", "result", "version", "pictures.py:45"):
        assert word in text, text
    assert "64×16×8×8" in text or "[64, 16, 8, 8]" in text, text
    links = [a.get_attribute("href") for a in driver.find_elements(By.CSS_SELECTOR, "#card a[href^='vscode:']")]
    places = {tuple(urllib.parse.unquote(link.removeprefix("vscode://file")).rsplit(":", 1)) for link in links}
    assert {(str(pathlib.Path(pictures.__file__).resolve()), line) for line in ("45", "47")} <= places  # saved, written


def test_measures_are_in_the_card(page):
    driver = page("resnet")
    ActionChains(driver).move_to_element(node(driver, "NllLoss")).perform()
    text = card(driver).lower()
    assert "gradient" in text and ("µs" in text or "us" in text or "ms" in text), text


def test_folds_open_and_close(page):
    driver = page("gpt2")
    fold = next(n for n in driver.find_elements(By.CSS_SELECTOR, "svg .node")
                if "×10" in n.get_attribute("textContent"))
    before = len(driver.find_elements(By.CSS_SELECTOR, ".node"))
    fold.click()
    inset = wait(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".inset"))[0]
    assert "310 nodes" in inset.get_attribute("textContent")
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node")) > before + 1
    assert fold.get_attribute("aria-expanded") == "true"
    wait(driver, lambda: in_sight(driver, inset))
    ActionChains(driver).send_keys(Keys.ESCAPE).perform()
    wait(driver, lambda: not driver.find_elements(By.CSS_SELECTOR, ".inset"))
    assert len(driver.find_elements(By.CSS_SELECTOR, ".node")) == before


def test_no_card_comes_of_a_box_that_moves_under_the_pointer(page):
    driver = page("gpt2")
    fold = node(driver, "×10")
    ActionChains(driver).move_to_element(fold).perform()
    card(driver)
    fold.click()
    inset = wait(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".inset"))[0]
    wait(driver, lambda: in_sight(driver, inset))
    beside = [n for n in driver.find_elements(By.CSS_SELECTOR, ".inset .node")
              if n.get_attribute("aria-label") == "Add"]
    with pytest.raises(TimeoutException):
        WebDriverWait(driver, 1).until(lambda _: one(driver, "#card").is_displayed())
    ActionChains(driver).move_to_element(beside[0]).perform()
    assert "AddBackward0" in card(driver)  # where the pointer itself goes, one does


def test_a_card_leaves_its_node_free_in_a_small_window(page):
    driver = page("resnet")
    size = driver.get_window_size()
    try:
        driver.set_window_size(900, 700)
        one(driver, "g.finding[data-f='1']").click()
        card(driver)
        chosen = one(driver, ".node.chosen")
        wait(driver, lambda: in_sight(driver, chosen) and centred(driver, chosen))
        a, b = (driver.execute_script("const r = arguments[0].getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]",
                                      e) for e in (chosen, one(driver, "#card")))
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], (a, b)
    finally:
        driver.set_window_size(size["width"], size["height"])


def test_what_is_left_out_says_how_to_get_it(page, tmp_path):
    driver = page("gpt2")
    left = driver.execute_script("""
        const data = JSON.parse(document.getElementById('data').textContent);
        return data.pictures.flatMap(p => p.boxes).filter(b => b.form !== 'one' && b.inside === undefined && b.module)""")
    assert left, "every fold can be opened: use a larger model here"
    report = pictures.report_of("gpt2")
    report.save(tmp_path / "inside.html", focus=left[0]["module"])
    assert (tmp_path / "inside.html").stat().st_size < 400_000
    one(driver, "#search").send_keys("folded " + left[0]["title"] + Keys.ENTER)
    assert f'report.save("graph.html", focus="{left[0]["module"]}")' in card(driver)


def test_search_opens_the_fold_around(page):
    driver = page("gpt2")
    one(driver, "#search").send_keys("h.10.attn.c_proj" + Keys.ENTER)
    assert "h.10" in card(driver)
    chosen = one(driver, ".inset .node.chosen")
    wait(driver, lambda: in_sight(driver, chosen))


def test_click_on_a_finding_centres_its_node(page):
    driver = page("forty")
    one(driver, "g.finding[data-f='4']").click()
    assert "Finding 4" in card(driver)
    chosen = one(driver, ".node.chosen")
    assert "SigmoidBackward0" in chosen.get_attribute("textContent")
    wait(driver, lambda: in_sight(driver, chosen) and centred(driver, chosen))
    ActionChains(driver).send_keys("n").perform()
    wait(driver, lambda: "Finding 5" in one(driver, "#card").text)


def test_keys(page):
    driver = page("resnet")
    zoom = lambda: int(re.search(r"\d+", one(driver, "#fit").text)[0])  # noqa: E731
    whole = zoom()
    ActionChains(driver).send_keys("+").perform()
    wait(driver, lambda: zoom() > whole)
    ActionChains(driver).send_keys("0").perform()
    wait(driver, lambda: zoom() == whole)
    node(driver, "LogSoftmax").click()
    ActionChains(driver).send_keys(Keys.ARROW_DOWN).perform()
    wait(driver, lambda: "head" in one(driver, ".node.chosen").get_attribute("textContent"))
    ActionChains(driver).send_keys(Keys.ESCAPE).perform()
    wait(driver, lambda: not one(driver, "#card").is_displayed())
    ActionChains(driver).send_keys("?").perform()
    wait(driver, lambda: one(driver, "#help").is_displayed())


def test_dark_switch(page):
    driver = page("resnet")
    colour = lambda: one(driver, "body").value_of_css_property("background-color")  # noqa: E731
    light = colour()
    ActionChains(driver).send_keys("d").perform()
    wait(driver, lambda: colour() != light)
    one(driver, "#theme").click()
    wait(driver, lambda: colour() == light)


def test_letters_have_contrast(page):
    driver = page("resnet")
    for _ in range(2):
        worst = driver.execute_script("""
            const luminance = (c) => c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const rgb = (s) => s.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const behind = (e) => { for (; e !== null; e = e.parentElement) {
                const s = getComputedStyle(e).backgroundColor; if (!/, 0\\)/.test(s) && s !== 'transparent') return rgb(s); }
                return [255, 255, 255]; };
            return Math.min(...[...document.querySelectorAll('header *')].filter(e => e.offsetParent !== null &&
                [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
                    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
                    return (a + 0.05) / (b + 0.05); }))""")
        assert worst >= 4.5
        ActionChains(driver).send_keys("d").perform()
    one(driver, "body")


def test_hostile_labels_are_inert(page):
    driver = page("hostile")
    assert driver.execute_script("return document.querySelectorAll('img, iframe, object, embed, foreignObject').length") == 0
    assert driver.execute_script("return document.scripts.length") == 2
    for found in driver.find_elements(By.CSS_SELECTOR, "svg .node"):
        ActionChains(driver).send_keys(Keys.ESCAPE).perform()
        driver.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", found)
    assert driver.execute_script("return document.querySelectorAll('img, iframe, object, embed, foreignObject').length") == 0
    assert driver.title.startswith("backward()")
