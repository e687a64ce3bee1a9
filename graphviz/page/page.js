"use strict";
/* What a browser adds to the sheet. Labels come from the program that was looked at: they are only ever set as text. */
(() => {
    const SVG = "http://www.w3.org/2000/svg";
    const SHEET = {x: 0, y: 0, w: 1600, h: 1000};
    const LEAST = 0.1, MOST = 6; /* pixels of the screen per unit of the sheet */
    const CARD = 400; /* pixels: its width in page.css */
    const $ = (id) => document.getElementById(id);
    const data = JSON.parse($("data").textContent);
    const stage = $("stage"), sheet = stage.querySelector("svg"), card = $("card"), help = $("help");
    const search = $("search"), results = $("results");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const nodes = new Map(data.nodes.map((node) => [node.id, node]));

    /* ---- words ---- */

    function element(name, className, ...inside) {
        const made = document.createElement(name);
        made.className = className;
        made.append(...inside);
        return made;
    }

    function drawn(name, attributes) {
        const made = document.createElementNS(SVG, name);
        for (const [key, value] of Object.entries(attributes)) {
            made.setAttribute(key, value);
        }
        return made;
    }

    const count = (n) => n.toLocaleString("en-US");
    const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

    function scaled(value, units) {
        let k = 0;
        while (k + 1 < units.length && value >= 999.5) {
            value /= 1000;
            k++;
        }
        return `${k === 0 ? Math.round(value) : Number(value.toPrecision(3))} ${units[k]}`;
    }
    const bytes = (n) => scaled(n, ["bytes", "kB", "MB", "GB", "TB"]);
    const duration = (ns) => scaled(ns, ["ns", "us", "ms", "s"]);
    const real = (x) => x === null ? "not finite" : x === 0 ? "0" :
        Math.abs(x) >= 0.001 && Math.abs(x) < 10000 ? String(Number(x.toPrecision(3))) : x.toExponential(2);

    const sourceOf = (index) => index === undefined ? undefined : data.sources[index];
    const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);
    const place = (source) => source.line ? `${baseName(source.file)}:${source.line}` : baseName(source.file);

    /* Only a whole absolute path can be opened: that of a notebook's cell or of a redacted report cannot. */
    function link(source) {
        const words = element("code", "", place(source));
        if (!source.file.startsWith("/") || source.cut) {
            return words;
        }
        const anchor = element("a", "line", words);
        anchor.href = "vscode://file" + source.file.split("/").map(encodeURIComponent).join("/") +
            (source.line ? `:${source.line}` : "");
        anchor.title = `Open ${source.file} in VS Code`;
        return anchor;
    }

    function tensor(t) {
        const words = [t.shape, t.dtype, t.device === undefined ? undefined :
            t.index === undefined ? t.device : `${t.device}:${t.index}`, t.layout];
        return words.filter((word) => word !== undefined).join(" ") || "not known";
    }

    const findingsAbout = (node) => data.findings.filter((finding) => finding.node === node.id);
    const nodeName = (id) => nodes.has(id) ? nodes.get(id).name : id in data.others ? data.others[id][0] : "a node";
    const leafName = (node) => node.leaf === undefined ? undefined : node.leaf.parameter || `leaf ${node.leaf.shape || ""}`;

    /* ---- where things are ---- */

    const boxes = [];
    data.pictures.forEach((picture, p) => picture.boxes.forEach((box, b) => {
        Object.assign(box, {picture: p, index: b});
        boxes.push(box);
    }));
    const holds = (box, unit) => unit >= box.units[0] && unit < box.units[0] + box.units[1];

    function unitOf(id) {
        const node = nodes.get(id);
        if (node !== undefined && node.unit === undefined) { /* a leaf stands where it is used */
            return node.from.map((from) => unitOf(from)).find((unit) => unit !== undefined);
        }
        return node !== undefined ? node.unit : id in data.others ? data.others[id][1] : undefined;
    }

    /* Boxes from the sheet inwards, each inside the one before: the last is as near to the unit as the page goes. */
    function way(unit) {
        const found = [];
        for (let p = 0; p !== undefined;) {
            const box = data.pictures[p].boxes.find((each) => holds(each, unit));
            if (box === undefined) {
                break;
            }
            found.push(box);
            p = box.inside;
        }
        return found;
    }

    /* The boxes around a box, and itself. */
    function wayTo(box) {
        const found = [box];
        while (found[0].picture !== 0) {
            const around = boxes.find((each) => each.inside === found[0].picture);
            found.unshift(around);
        }
        return found;
    }

    /* ---- the view ---- */

    let view = {x: 0, y: 0, w: 1600, h: 1000};
    let moving = 0;

    const scale = () => stage.clientWidth / view.w;

    function show(next) {
        const ratio = stage.clientHeight / Math.max(1, stage.clientWidth);
        const w = Math.min(Math.max(next.w, stage.clientWidth / MOST), stage.clientWidth / LEAST);
        view = {x: Math.min(Math.max(next.x, SHEET.x - w * 0.9), SHEET.w + 600), y:
            Math.min(Math.max(next.y, SHEET.y - w * ratio * 0.9), SHEET.h + 600), w, h: w * ratio};
        sheet.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
        $("fit").textContent = `${Math.round(scale() * 100)} %`;
    }

    function move(next) {
        const from = {...view}, begin = performance.now(), mine = ++moving;
        if (calm) {
            show(next);
            return;
        }
        const step = (now) => {
            if (mine !== moving) {
                return;
            }
            const t = Math.min(1, Math.max(0, (now - begin) / 220)), e = t * (2 - t);
            show({x: from.x + (next.x - from.x) * e, y: from.y + (next.y - from.y) * e, w: from.w + (next.w - from.w) * e});
            if (t < 1) {
                requestAnimationFrame(step);
            }
        };
        requestAnimationFrame(step);
    }

    /* The view that holds a rectangle, no larger than `most` pixels per unit. */
    function around(rect, margin, most) {
        const ratio = stage.clientHeight / Math.max(1, stage.clientWidth);
        const w = Math.max(rect.w + 2 * margin, (rect.h + 2 * margin) / ratio, stage.clientWidth / most);
        return {x: rect.x + rect.w / 2 - w / 2, y: rect.y + rect.h / 2 - w * ratio / 2, w};
    }

    const fit = () => move(around(SHEET, 0, MOST));

    function zoom(factor, clientX, clientY, at_once) {
        const box = stage.getBoundingClientRect();
        const u = clientX === undefined ? 0.5 : (clientX - box.left) / box.width;
        const v = clientY === undefined ? 0.5 : (clientY - box.top) / box.height;
        const w = Math.min(Math.max(view.w / factor, stage.clientWidth / MOST), stage.clientWidth / LEAST);
        const next = {x: view.x + u * (view.w - w), y: view.y + v * (view.h - view.h * w / view.w), w};
        if (at_once) {
            moving++;
            show(next);
        } else {
            move(next);
        }
    }

    function pan(dx, dy) {
        moving++;
        show({...view, x: view.x + dx / scale(), y: view.y + dy / scale()});
    }

    /* Where a drawn element is, in units of the sheet. */
    function rectOf(drawing) {
        const outer = stage.getBoundingClientRect(), box = drawing.getBoundingClientRect(), k = scale();
        return {x: view.x + (box.left - outer.left) / k, y: view.y + (box.top - outer.top) / k, w: box.width / k,
            h: box.height / k};
    }

    /* ---- boxes on the stage ---- */

    /* A ring that can be shown, and for what has gaps something that can be hit. */
    function prepare(drawing, hit) {
        const box = drawing.getBBox();
        const ring = {x: box.x - 4, y: box.y - 4, width: box.width + 8, height: box.height + 8, rx: 10};
        if (hit) {
            drawing.prepend(drawn("rect", {...ring, class: "hit"}));
        }
        drawing.append(drawn("rect", {...ring, class: "halo"}));
    }

    function adopt(root, picture) {
        for (const drawing of root.querySelectorAll(".node")) {
            const box = data.pictures[picture].boxes[Number(drawing.dataset.b)];
            box.drawing = drawing;
            drawing.box = box;
            drawing.setAttribute("tabindex", "0");
            drawing.setAttribute("role", "button");
            drawing.setAttribute("aria-label", box.title + (box.form === "one" ? "" : ", folded"));
            prepare(drawing, false);
        }
        data.pictures[picture].root = root;
    }

    function light(box) {
        for (const picture of data.pictures) {
            for (const edge of picture.root === undefined ? [] : picture.root.querySelectorAll(".edge")) {
                if (edge.closest(".inset") !== (picture.root === sheet ? null : picture.root)) {
                    continue;
                }
                const ends = edge.dataset.e.split(" ").map(Number);
                const lit = box !== undefined && picture === data.pictures[box.picture] && ends.includes(box.index);
                edge.classList.toggle("lit", lit);
                edge.classList.toggle("dim", box !== undefined && picture === data.pictures[box.picture] && !lit);
            }
        }
    }

    let chosen;

    function choose(box) {
        for (const drawing of stage.querySelectorAll(".chosen")) {
            drawing.classList.remove("chosen");
        }
        chosen = box;
        light(box);
        if (box !== undefined) {
            box.drawing.classList.add("chosen");
        }
    }

    /* In the middle; in a narrow window in the middle of what its card leaves free. */
    function centre(drawing) {
        const rect = rectOf(drawing), k = Math.max(scale(), 1);
        const w = stage.clientWidth / k, h = stage.clientHeight / k;
        const free = stage.clientWidth - CARD - 30, narrow = rect.w * k / 2 + 14 + CARD > stage.clientWidth / 2;
        const middle = narrow && free >= rect.w * k + 16 ? free / 2 / k : w / 2;
        const next = {x: rect.x + rect.w / 2 - middle, y: rect.y + rect.h / 2 - h / 2, w};
        move(next);
        return {k, left: (rect.x - next.x) * k, right: (rect.x + rect.w - next.x) * k, top: (rect.y - next.y) * k};
    }

    /* ---- folds ---- */

    const opened = []; /* from the sheet inwards */
    const layer = drawn("g", {id: "insets"});

    function fold() {
        const last = opened.pop();
        if (chosen !== undefined && chosen.picture === last.box.inside) {
            choose(undefined);
        }
        for (const box of data.pictures[last.box.inside].boxes) {
            box.drawing = undefined;
        }
        data.pictures[last.box.inside].root = undefined;
        last.box.drawing.classList.remove("open");
        last.box.drawing.removeAttribute("aria-expanded");
        last.drawing.remove();
        return last;
    }

    function foldTo(n) {
        let last;
        while (opened.length > n) {
            last = fold();
        }
        return last;
    }

    /* Beside its box if there is room on the sheet, so that both are seen. */
    function placeInset(box, w, h) {
        const clamp = (value, size, most) => Math.max(12, Math.min(value, most - size - 12));
        const x = clamp(box.x + box.w / 2 - w / 2, w, SHEET.w), y = clamp(box.y + box.h / 2 - h / 2, h, SHEET.h);
        if (box.x + box.w + 28 + w < SHEET.w) {
            return {x: box.x + box.w + 28, y};
        }
        if (box.x - 28 - w > 0) {
            return {x: box.x - 28 - w, y};
        }
        if (box.y + box.h + 28 + h < SHEET.h) {
            return {x, y: box.y + box.h + 28};
        }
        if (box.y - 28 - h > 0) {
            return {x, y: box.y - 28 - h};
        }
        return {x: box.x + box.w / 2 > SHEET.w / 2 ? clamp(box.x - 28 - w, w, SHEET.w) : clamp(box.x + box.w + 28, w, SHEET.w), y};
    }

    function leader(box, inset) {
        const overlap = box.x < inset.x + inset.w && inset.x < box.x + box.w && box.y < inset.y + inset.h &&
            inset.y < box.y + box.h;
        const x = Math.max(inset.x, Math.min(box.x + box.w / 2, inset.x + inset.w));
        const y = Math.max(inset.y, Math.min(box.y + box.h / 2, inset.y + inset.h));
        const bx = Math.max(box.x, Math.min(x, box.x + box.w)), by = Math.max(box.y, Math.min(y, box.y + box.h));
        return overlap ? undefined : drawn("path", {class: "leader", d: `M${bx} ${by}L${x} ${y}`});
    }

    function unfold(box) {
        const depth = box.picture === 0 ? 0 : opened.findIndex((each) => each.box.inside === box.picture) + 1;
        if (opened.length > depth && opened[depth].box === box) {
            return;
        }
        foldTo(depth);
        const picture = data.pictures[box.inside], from = rectOf(box.drawing.querySelector("rect")), before = {...view};
        const at = placeInset(from, picture.w, picture.h), size = {width: picture.w, height: picture.h, rx: 10};
        const drawing = drawn("g", {});
        const inset = drawn("g", {class: "inset", transform: `translate(${at.x} ${at.y})`, role: "group",
            "aria-label": `inside ${box.title}`});
        inset.append(drawn("rect", {...size, x: 5, y: 7, class: "shadow"}));
        for (const part of $(`inside-${box.inside}`).content.querySelector("svg").childNodes) {
            inset.append(document.importNode(part, true));
        }
        inset.append(drawn("rect", {...size, class: "rim"}));
        const shut = drawn("g", {class: "shut", transform: `translate(${picture.w - 36} 9)`, role: "button", tabindex: "0",
            "aria-label": "Fold again (Esc)"});
        shut.append(drawn("rect", {width: 26, height: 24, rx: 6}), drawn("path", {d: "M8 7L18 17M18 7L8 17"}));
        inset.append(shut);
        const line = leader(from, {...at, w: picture.w, h: picture.h});
        drawing.append(...(line === undefined ? [] : [line]), inset);
        layer.append(drawing);
        adopt(inset, box.inside);
        box.drawing.classList.add("open");
        box.drawing.setAttribute("aria-expanded", "true");
        opened.push({box, drawing, inset, rect: {...at, w: picture.w, h: picture.h}, before});
    }

    /* Look at the newest inset, unless it is in full sight already. */
    function lookAtInset() {
        const rect = opened[opened.length - 1].rect;
        const inside = rect.x >= view.x && rect.y >= view.y && rect.x + rect.w <= view.x + view.w &&
            rect.y + rect.h <= view.y + view.h;
        if (!inside || scale() < 0.85) {
            move(around(rect, 24, Math.max(1, scale())));
        }
    }

    function toggle(box) {
        hideCard();
        const at = opened.findIndex((each) => each.box === box);
        if (at >= 0) {
            const before = opened[at].before;
            foldTo(at);
            choose(box);
            move(before);
        } else if (box.inside !== undefined) {
            unfold(box);
            choose(box);
            lookAtInset();
        } else {
            choose(box);
            pin(boxCard(box), box.drawing.getBoundingClientRect());
        }
    }

    /* Unfold what is around a box, centre it, and say what there is to say. */
    function reveal(path, words) {
        path.slice(0, -1).forEach(unfold);
        const box = path[path.length - 1];
        foldTo(path.length - 1);
        choose(box);
        const seen = centre(box.drawing);
        const outer = stage.getBoundingClientRect();
        pin(words, {left: outer.left + seen.left, right: outer.left + seen.right, top: outer.top + seen.top});
    }

    /* ---- cards ---- */

    let pinned = false, timer = 0;

    function hideCard() {
        clearTimeout(timer); /* a card that was about to come, too */
        pinned = false;
        card.hidden = true;
        card.classList.remove("pinned");
        if (chosen === undefined) {
            light(undefined);
        }
    }

    /* Beside a rectangle of the screen, where there is more room. */
    function placeCard(beside) {
        card.hidden = false;
        const w = card.offsetWidth, h = card.offsetHeight;
        const right = beside.right + 14 + w <= innerWidth - 8;
        const left = right ? beside.right + 14 : beside.left - 14 - w >= 8 ? beside.left - 14 - w : innerWidth - w - 8;
        card.style.left = `${Math.max(8, left)}px`;
        card.style.top = `${Math.max(52, Math.min(beside.top, innerHeight - h - 8))}px`;
    }

    function fill(target, inside, close) {
        const button = element("button", "close", "×");
        button.type = "button";
        button.setAttribute("aria-label", "Close");
        button.addEventListener("click", close);
        target.replaceChildren(...inside, button);
        target.scrollTop = 0;
    }

    function hover(inside, beside) {
        fill(card, inside, hideCard);
        placeCard(beside);
    }

    function pin(inside, beside) {
        clearTimeout(timer);
        pinned = true;
        card.classList.add("pinned");
        hover(inside, beside);
    }

    function go(id) {
        const unit = unitOf(id), node = nodes.get(id);
        const name = node !== undefined && leafName(node) || nodeName(id);
        const path = unit === undefined ? [] : way(unit);
        if (path.length === 0) {
            return element("span", "", name);
        }
        const button = element("button", "go", name);
        button.type = "button";
        button.addEventListener("click", () => goTo(id));
        return button;
    }

    function goTo(id) {
        const path = way(unitOf(id));
        const node = nodes.get(id);
        reveal(path, node === undefined ? boxCard(path[path.length - 1]) : nodeCard(node, path[path.length - 1]));
    }

    function says(finding) {
        const block = element("div", `says ${finding.severity}`,
            element("p", "", `${finding.n}. ${finding.severity}: ${finding.message || finding.statement}`));
        if (finding.hint !== undefined) {
            block.append(element("p", "hint", `→ ${finding.hint}`));
        }
        const source = sourceOf(finding.where);
        if (source !== undefined) {
            block.append(element("p", "", finding.op === undefined ? "" : `${finding.op} at `, link(source)));
        }
        return block;
    }

    function section(title, rows) {
        return rows.length === 0 ? [] :
            [element("h3", "", title), element("ul", "", ...rows.map((row) => element("li", "", ...[row].flat())))];
    }

    function gradientWords(input) {
        if (input.rms === undefined) {
            return input.none ? ", received none" : input.unchecked === undefined ? "" : `, ${input.unchecked}`;
        }
        const odd = [["zeros", "zero"], ["nan", "NaN"], ["inf", "infinite"]].filter(([key]) => input[key] !== undefined)
            .map(([key, word]) => `${count(input[key])} of ${count(input.elements)} ${word}`);
        return `: rms ${real(input.rms)}, largest ${real(input.absmax)}` + odd.map((word) => `, ${word}`).join("");
    }

    function savedRow(saved) {
        const at = saved.at === undefined ? "" : `[${saved.at}]`;
        const moved = saved.v[0] !== saved.v[1] && saved.state !== "ok";
        const facts = [saved.output && "its own result", saved.leaf && "a leaf", saved.strided && "not contiguous",
            saved.hooks && "packed by hooks"].filter(Boolean).map((word) => `, ${word}`).join("");
        const row = [element("code", "", `${saved.name || "saved"}${at}`), ` ${tensor(saved)}, ${bytes(saved.bytes)}${facts}; `];
        row.push(element("span", moved ? "bad" : "", `saved at v${saved.v[0]}, now v${saved.v[1]}`));
        if (saved.state !== "ok") {
            row.push(element("span", "bad", ` (${saved.state})`));
        }
        return row;
    }

    function timeWords(time) {
        const words = [`${duration(time.self)} of its own`];
        if (time.total !== time.self) {
            words.push(`${duration(time.total)} with what ran inside it`);
        }
        if (time.device !== undefined) {
            words.push(`${duration(time.device)} on the device`);
        }
        if (time.repeats !== undefined) {
            words.push(`median ${duration(time.median)} over ${time.repeats} backwards`);
        }
        return words.join(", ") + (time.first ? " (first use: slower than later)" : "");
    }

    function neighbours(list, total) {
        const rows = list.map((id) => id === null ? "nothing: no gradient is wanted there" : go(id));
        if (total > list.length) {
            rows.push(`and ${count(total - list.length)} more`);
        }
        return rows;
    }

    function nodeCard(node, box) {
        const source = sourceOf(node.where);
        const inside = [element("h2", "", leafName(node) || node.name)];
        if (node.leaf !== undefined) {
            inside.push(element("p", "quiet", `${node.name}: ${tensor(node.leaf)}`));
        } else if (node.inner !== undefined) {
            inside.push(element("p", "quiet", `in-place on a view: ${node.inner}`));
        }
        for (const finding of findingsAbout(node)) {
            inside.push(says(finding));
        }
        const made = [];
        if (node.op !== undefined) {
            made.push(`${node.op} at `);
        }
        if (source !== undefined) {
            made.push(link(source), source.function === undefined ? "" : ` in ${source.function}`);
        }
        if (made.length > 0) {
            inside.push(element("p", "", ...made));
        } else if (!data.recorded && node.leaf === undefined) {
            inside.push(element("p", "quiet", "line not known: nothing was recording when the forward ran"));
        }
        const module = source !== undefined && source.module || box !== undefined && box.module;
        if (module) {
            inside.push(element("p", "", "module ", element("code", "", module),
                source !== undefined && source.class !== undefined ? ` (${source.class})` : ""));
        }
        inside.push(element("p", "quiet", node.order === undefined ? "backward does not run it" :
            `${count(node.order + 1)} in backward's order` +
            (box !== undefined && box.state === "never" ? ", which backward does not reach" : "")));
        inside.push(...section(node.inputs.length === 1 ? "Gradient that it receives" : "Gradients that it receives",
            node.inputs.map((input) => tensor(input) + gradientWords(input))));
        const saved = (node.saved || []).map(savedRow);
        if (node.n_saved !== undefined) {
            saved.push(`and ${count(node.n_saved - saved.length)} more`);
        }
        inside.push(...section("Saved for backward", saved));
        if (node.time !== undefined) {
            inside.push(...section("Time in backward", [timeWords(node.time)]));
        }
        if (node.hooks > 0 || node.unchecked) {
            inside.push(element("p", "quiet", [node.hooks > 0 ? plural(node.hooks, "hook", "hooks") : "",
                node.unchecked ? "its saved tensors could not be read" : ""].filter(Boolean).join(", ")));
        }
        inside.push(...section("Gradient comes from", neighbours(node.from, node.n_from)));
        inside.push(...section("Gradient goes to", neighbours(node.to, node.n_to)));
        const others = box === undefined || box.form !== "one" ? [] : data.nodes.filter((other) => other !== node &&
            other.unit !== undefined && holds(box, other.unit));
        inside.push(...section("In the same box", others.map((other) => go(other.id))));
        return inside;
    }

    /* How to get what is not in this page. */
    function elsewhere(box) {
        const call = box.module === undefined ? "report.save(\"graph.json\")" :
            `report.save("graph.html", focus=${JSON.stringify(box.module)})`;
        return [element("p", "quiet", box.module === undefined ? "The .json form has every node: " :
            "A page that looks into this module has it: ", element("code", "", call))];
    }

    function boxCard(box) {
        if (box.form === "one") {
            const node = nodes.get(box.lead);
            if (node !== undefined) {
                return nodeCard(node, box);
            }
            return [element("h2", "", box.title), element("p", "quiet", "This page is kept under 400 kB, and has no room " +
                "for the details of this node. "), ...elsewhere(box)];
        }
        const inside = [element("h2", "", box.title)];
        inside.push(element("p", "quiet", `${box.form === "module" ? "a module" : box.form === "repeat" ?
            `${count(box.copies)} times the same${box.identical ? "" : ", in other shapes"}` : "a stretch of the graph"}: ` +
            `${plural(box.nodes, "node", "nodes")}, ${plural(box.leaves, "leaf", "leaves")} with ` +
            plural(box.elements, "element", "elements")));
        if (box.module !== undefined && box.module !== box.title) {
            inside.push(element("p", "", "module ", element("code", "", box.module)));
        }
        for (const n of box.marks || []) {
            inside.push(...data.findings.filter((finding) => finding.n === n).slice(0, 1).map(says));
        }
        if (box.time !== undefined) {
            inside.push(element("p", "", `${duration(box.time)} in backward, all together`));
        }
        if (box.rms !== undefined) {
            inside.push(element("p", "", `gradients' rms from ${real(box.rms[0])} to ${real(box.rms[1])}`));
        }
        if (box.state === "never") {
            inside.push(element("p", "quiet", "backward does not get here"));
        }
        if (box.inside !== undefined) {
            inside.push(element("p", "quiet", "Click, or press Enter, to unfold it."));
        } else {
            inside.push(element("p", "quiet", "It cannot be unfolded here: this page is kept under 400 kB."), ...elsewhere(box));
        }
        return inside;
    }

    /* ---- findings ---- */

    const groups = [...new Set(data.findings.map((finding) => finding.n))].sort((a, b) => a - b);
    let current = -1;

    function findingCard(n) {
        const mine = data.findings.filter((finding) => finding.n === n);
        const inside = [element("h2", "", `Finding ${n}`), says(mine[0])];
        inside.push(...section("At", mine.filter((finding) => finding.node !== undefined).map((finding) => go(finding.node))));
        inside.push(...section("Parameters", mine.filter((finding) => finding.parameter !== undefined)
            .map((finding) => finding.parameter)));
        return inside;
    }

    function showFinding(n) {
        current = groups.indexOf(n);
        $("next").textContent = `Finding ${current + 1} of ${groups.length} ▸`;
        const first = data.findings.find((finding) => finding.n === n);
        const unit = first.node === undefined ? undefined : unitOf(first.node);
        const entry = sheet.querySelector(`.finding[data-f="${n}"]`);
        let path = unit === undefined ? [] : way(unit);
        if (path.length === 0) {
            const marked = boxes.find((box) => (box.marks || []).includes(n));
            path = marked === undefined ? [] : wayTo(marked);
        }
        if (path.length > 0) {
            reveal(path, findingCard(n));
        } else {
            choose(undefined);
            const seen = entry === null ? undefined : centre(entry), outer = stage.getBoundingClientRect();
            pin(findingCard(n), seen === undefined ? {left: innerWidth / 2, right: innerWidth / 2, top: 60} :
                {left: outer.left + seen.left, right: outer.left + seen.right, top: outer.top + seen.top});
        }
        if (entry !== null) {
            entry.classList.add("chosen");
        }
    }

    const stepFinding = (by) => groups.length > 0 &&
        showFinding(groups[(Math.max(current, by < 0 ? 0 : -1) + by + groups.length) % groups.length]);

    /* ---- search ---- */

    const entries = [];

    function index() {
        for (const n of groups) {
            const finding = data.findings.find((each) => each.n === n);
            const all = data.findings.filter((each) => each.n === n).map((each) => each.parameter || "").join(" ");
            entries.push({label: `${n}. ${finding.message || finding.statement}`, more: finding.kind, text: all,
                act: () => showFinding(n)});
        }
        for (const box of boxes) {
            if (box.form !== "one") {
                entries.push({label: box.title, more: `folded, ${plural(box.nodes, "node", "nodes")}`, text: box.module || "",
                    act: () => reveal(wayTo(box), boxCard(box))});
            }
        }
        const moduleOf = new Map();
        for (const box of boxes) {
            if (box.form === "one" && box.module !== undefined) {
                moduleOf.set(box.units[0], box.module);
            }
        }
        for (const node of data.nodes) {
            const source = sourceOf(node.where), unit = unitOf(node.id);
            if (unit === undefined) {
                continue;
            }
            const module = source !== undefined && source.module || moduleOf.get(unit) || "";
            const leaf = leafName(node);
            const more = [leaf === undefined ? module : node.name, source === undefined ? "" : place(source),
                node.inputs.length > 0 ? node.inputs[0].shape || "" : ""].filter(Boolean).join("   ");
            entries.push({label: leaf || node.name, more, text: [node.name, node.inner, node.op, module,
                source === undefined ? "" : source.file, source === undefined ? "" : source.function,
                source === undefined ? "" : source.class].filter(Boolean).join(" "), act: () => goTo(node.id)});
        }
        for (const entry of entries) {
            entry.low = entry.label.toLowerCase();
            entry.all = `${entry.low} ${entry.more} ${entry.text}`.toLowerCase();
        }
    }

    let found = [], at = -1;

    function select(i) {
        at = i;
        [...results.querySelectorAll("[role=option]")].forEach((row, k) => {
            row.setAttribute("aria-selected", String(k === i));
            if (k === i) {
                row.scrollIntoView({block: "nearest"});
            }
        });
        if (i >= 0) {
            search.setAttribute("aria-activedescendant", `result-${i}`);
        } else {
            search.removeAttribute("aria-activedescendant");
        }
    }

    function closeResults() {
        results.hidden = true;
        search.setAttribute("aria-expanded", "false");
    }

    function take(i) {
        const entry = found[i];
        closeResults();
        search.blur();
        entry.act();
    }

    function find() {
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        if (words.length === 0) {
            closeResults();
            return;
        }
        const all = entries.filter((entry) => words.every((word) => entry.all.includes(word)));
        const rank = (entry) => entry.low.startsWith(words[0]) ? 0 : entry.low.includes(words[0]) ? 1 : 2;
        all.sort((a, b) => rank(a) - rank(b)); /* stable: else in the order of the index */
        found = all.slice(0, 40);
        const rows = found.map((entry, i) => {
            const row = element("li", "", entry.label, element("small", "", entry.more));
            row.id = `result-${i}`;
            row.setAttribute("role", "option");
            row.addEventListener("pointerdown", (event) => event.preventDefault());
            row.addEventListener("click", () => take(i));
            return row;
        });
        const left = data.n_nodes - data.nodes.length;
        const words_below = [all.length === 0 ? "nothing found" : "",
            all.length > found.length ? `and ${count(all.length - found.length)} more` : "",
            left > 0 ? `${count(data.nodes.length)} of ${count(data.n_nodes)} nodes are in this page; the .json form has all`
                : ""].filter(Boolean).join("; ");
        if (words_below !== "") {
            rows.push(element("li", "says", words_below));
        }
        results.replaceChildren(...rows);
        results.hidden = false;
        search.setAttribute("aria-expanded", "true");
        select(found.length > 0 ? 0 : -1);
    }

    search.addEventListener("input", find);
    search.addEventListener("focus", find);
    search.addEventListener("blur", closeResults);
    search.addEventListener("keydown", (event) => {
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            if (found.length > 0 && !results.hidden) {
                select((at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
            }
        } else if (event.key === "Enter" && at >= 0 && !results.hidden) {
            event.preventDefault();
            take(at);
        } else if (event.key === "Escape") {
            event.preventDefault();
            search.value = "";
            closeResults();
            search.blur();
        }
        event.stopPropagation();
    });

    /* ---- theme ---- */

    const root = document.documentElement;
    const isDark = () => root.dataset.theme === undefined ? matchMedia("(prefers-color-scheme: dark)").matches :
        root.dataset.theme === "dark";

    function nameTheme() {
        $("theme").textContent = isDark() ? "Light" : "Dark";
    }

    function switchTheme() {
        root.dataset.theme = isDark() ? "light" : "dark";
        nameTheme();
        try {
            localStorage.setItem("torchgraphdbg-theme", root.dataset.theme);
        } catch (_) {
            /* not to be kept, then */
        }
    }

    /* ---- help ---- */

    function toggleHelp() {
        help.hidden = !help.hidden;
        $("keys").setAttribute("aria-expanded", String(!help.hidden));
    }

    function writeHelp() {
        const keys = [["/", "search"], ["← ↑ → ↓", "to the next box, or move the picture"], ["Enter", "unfold or fold the box"],
            ["n, p", "next, previous finding"], ["+, −, 0", "larger, smaller, all of it"], ["Esc", "close, fold"],
            ["d", "light or dark"]];
        const table = element("table", "");
        for (const [key, does] of keys) {
            table.append(element("tr", "", element("td", "", element("kbd", "", key)), element("td", "", does)));
        }
        const limits = data.nodes.length < data.n_nodes || data.shut > 0 ?
            `Details of ${count(data.nodes.length)} of ${count(data.n_nodes)} nodes are in this page` +
            `${data.shut > 0 ? `, and ${plural(data.shut, "fold stays", "folds stay")} shut` : ""}: it is kept under 400 kB. ` +
            "The .json form has everything." : "All nodes are in this page.";
        fill(help, [element("h2", "", "Keys"), table, element("p", "quiet", "The wheel zooms, dragging moves. A click on a box " +
            "keeps its card; on a folded one, unfolds it."), element("p", "quiet", limits)], toggleHelp);
    }

    /* ---- pointer ---- */

    const pointers = new Map();
    let dragged = false;

    stage.addEventListener("pointerdown", (event) => {
        if (event.button === 0) {
            pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
            dragged = dragged && pointers.size > 1;
        }
    });
    stage.addEventListener("pointermove", (event) => {
        const last = pointers.get(event.pointerId);
        if (last === undefined) {
            return;
        }
        const dx = event.clientX - last.x, dy = event.clientY - last.y;
        if (!dragged && Math.hypot(dx, dy) < 4) {
            return;
        }
        if (!dragged) {
            dragged = true;
            stage.classList.add("drag");
            stage.setPointerCapture(event.pointerId);
            if (!pinned) {
                hideCard();
            }
        }
        const other = [...pointers].find(([id]) => id !== event.pointerId);
        pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
        if (other === undefined) {
            pan(-dx, -dy);
        } else {
            const o = other[1], before = Math.hypot(last.x - o.x, last.y - o.y);
            const after = Math.hypot(event.clientX - o.x, event.clientY - o.y);
            zoom(after / Math.max(1, before), o.x, o.y, true);
        }
    });
    for (const name of ["pointerup", "pointercancel"]) {
        stage.addEventListener(name, (event) => {
            pointers.delete(event.pointerId);
            stage.classList.remove("drag");
        });
    }
    stage.addEventListener("wheel", (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
        zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX, event.clientY, true);
    }, {passive: false});

    /* A card comes when the pointer moves onto a box, not when a box moves under the pointer. */
    let pointed = null, px = NaN, py = NaN;

    stage.addEventListener("pointermove", (event) => {
        if (event.clientX === px && event.clientY === py) {
            return;
        }
        px = event.clientX;
        py = event.clientY;
        const drawing = event.target.closest(".node"), same = drawing === pointed;
        pointed = drawing;
        if (same || pinned || drawing === null || pointers.size > 0 || event.pointerType === "touch") {
            return;
        }
        clearTimeout(timer);
        timer = setTimeout(() => {
            if (drawing.isConnected && !pinned) {
                light(drawing.box);
                hover(boxCard(drawing.box), drawing.getBoundingClientRect());
            }
        }, 130);
    });
    function leave(event) {
        const to = event.relatedTarget;
        if (!(to instanceof Element) || to.closest(".node") !== pointed) {
            pointed = null;
        }
        if (!pinned && !(to instanceof Element && (to.closest(".node") !== null || to.closest("#card") !== null))) {
            clearTimeout(timer);
            timer = setTimeout(() => {
                if (!pinned) {
                    hideCard();
                    light(chosen);
                }
            }, 200);
        }
    }
    stage.addEventListener("pointerout", leave);
    card.addEventListener("pointerleave", leave);
    card.addEventListener("pointerenter", () => clearTimeout(timer));

    stage.addEventListener("click", (event) => {
        if (dragged) {
            dragged = false;
            return;
        }
        const finding = event.target.closest(".finding"), drawing = event.target.closest(".node");
        if (event.target.closest(".shut") !== null) {
            toggle(opened.find((each) => each.inset === event.target.closest(".inset")).box);
        } else if (drawing !== null && drawing.box.form === "one") {
            choose(drawing.box);
            pin(boxCard(drawing.box), drawing.getBoundingClientRect());
        } else if (drawing !== null) {
            toggle(drawing.box);
        } else if (finding !== null) {
            showFinding(Number(finding.dataset.f));
        } else if (event.target.closest(".inset") === null) {
            hideCard();
            choose(undefined);
        }
    });

    /* ---- keys ---- */

    /* The box that lies in a direction, straight ones before oblique ones. */
    function beside(box, dx, dy) {
        const from = rectOf(box.drawing);
        let best, least = Infinity;
        for (const other of data.pictures[box.picture].boxes) {
            const to = rectOf(other.drawing);
            const x = to.x + to.w / 2 - from.x - from.w / 2, y = to.y + to.h / 2 - from.y - from.h / 2;
            const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
            if (other !== box && ahead > 4 && ahead + 2.5 * aside < least) {
                least = ahead + 2.5 * aside;
                best = other;
            }
        }
        return best;
    }

    /* To a box by key: into sight, with its card. */
    function step(box) {
        choose(box);
        const rect = rectOf(box.drawing);
        if (rect.x < view.x || rect.y < view.y || rect.x + rect.w > view.x + view.w || rect.y + rect.h > view.y + view.h) {
            moving++;
            show({...view, x: rect.x + rect.w / 2 - view.w / 2, y: rect.y + rect.h / 2 - view.h / 2});
        }
        pin(boxCard(box), box.drawing.getBoundingClientRect());
    }

    function escape() {
        if (!help.hidden) {
            toggleHelp();
        } else if (!card.hidden) {
            hideCard();
        } else if (opened.length > 0) {
            toggle(opened[opened.length - 1].box);
        } else {
            choose(undefined);
        }
    }

    const directions = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
    const keys = {
        "/": () => search.focus(), "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), "0": fit,
        "d": switchTheme, "?": toggleHelp, "n": () => stepFinding(1), "p": () => stepFinding(-1), "Escape": escape,
    };
    document.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) {
            return;
        }
        const focused = event.target.closest === undefined ? null : event.target.closest(".node,.shut");
        if (directions[event.key] !== undefined) {
            if (event.target.closest("aside") !== null) {
                return; /* it scrolls */
            }
            const [dx, dy] = directions[event.key];
            const next = chosen === undefined || event.shiftKey ? undefined : beside(chosen, dx, dy);
            event.preventDefault();
            if (next !== undefined) {
                step(next);
            } else if (chosen === undefined || event.shiftKey) {
                pan(dx * 90, dy * 90);
            }
        } else if (event.key === "Enter" || event.key === " ") {
            const box = focused !== null && focused.box !== undefined ? focused.box : chosen;
            if (focused !== null && focused.classList.contains("shut")) {
                event.preventDefault();
                escape();
            } else if (box !== undefined && event.target.closest("button,a,input,aside") === null) {
                event.preventDefault();
                if (box.form === "one") {
                    step(box);
                } else {
                    toggle(box);
                }
            }
        } else if (Object.hasOwn(keys, event.key)) {
            event.preventDefault();
            keys[event.key]();
        }
    });

    /* ---- beginning ---- */

    $("larger").addEventListener("click", () => zoom(1.3));
    $("smaller").addEventListener("click", () => zoom(1 / 1.3));
    $("fit").addEventListener("click", fit);
    $("theme").addEventListener("click", switchTheme);
    $("keys").addEventListener("click", toggleHelp);
    $("next").addEventListener("click", () => stepFinding(1));
    try {
        const kept = localStorage.getItem("torchgraphdbg-theme");
        if (kept === "dark" || kept === "light") {
            root.dataset.theme = kept;
        }
    } catch (_) {
        /* storage may be closed to files */
    }
    nameTheme();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
    if (groups.length > 0) {
        const worst = data.findings[0].severity;
        $("next").hidden = false;
        $("next").className = worst;
        $("next").title = "Next finding (n)";
        $("next").textContent = `${plural(groups.length, "finding", "findings")} ▸`;
    }
    sheet.append(layer);
    adopt(sheet, 0);
    sheet.querySelectorAll(".finding").forEach((entry) => prepare(entry, true));
    index();
    writeHelp();
    show(around(SHEET, 0, MOST));
    let width = stage.clientWidth, height = stage.clientHeight;
    new ResizeObserver(() => {
        if (stage.clientWidth !== width || stage.clientHeight !== height) {
            width = stage.clientWidth;
            height = stage.clientHeight;
            show(around(SHEET, 0, MOST));
        }
    }).observe(stage);
})();
