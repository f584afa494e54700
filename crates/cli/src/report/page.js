// The page: tables and text around the timelines.

// ---- Text and elements. Names of hosts and programs only ever become text nodes. ----

function el(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
        if (name === "data") Object.assign(element.dataset, value);
        else if (name in element) element[name] = value;
        else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const ms = (us) => (Math.abs(us) < 0.5 ? 0 : us / 1000).toFixed(3);
const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function shortTime(us) {
    const sign = us < 0 ? "-" : "";
    const size = Math.abs(us);
    if (size < 0.5) return "0 µs";
    if (size < 1e3) return `${sign}${size.toFixed(0)} µs`;
    if (size < 1e6) return `${sign}${(size / 1e3).toPrecision(3)} ms`;
    return `${sign}${(size / 1e6).toPrecision(4)} s`;
}

function shortBytes(number) {
    if (number < 10000) return `${number} B`;
    if (number < 1e7) return `${(number / 1024).toFixed(1)} KiB`;
    return `${(number / 1048576).toFixed(1)} MiB`;
}

function table(caption, heads, rows) {
    const cell = (tag, value, column) => el(tag, { className: heads[column].number ? "number" : "" }, value);
    const head = el("tr", {}, ...heads.map((one, column) => cell("th", one.name, column)));
    const body = rows.map(({ cells, data }) => el("tr", { data }, ...cells.map((one, at) => cell("td", one, at))));
    return el("div", { className: "scroll" },
        el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body)));
}

const number = (name) => ({ name, number: true });
const text = (name) => ({ name });

function labelled(key, label) {
    const swatch = el("span", { className: "swatch" });
    swatch.style.background = `var(--${key.replace(" ", "-")})`;
    return el("span", { className: "name", title: PHASES[key][1] }, swatch, label);
}

// A bar as long as the part of the most; `kind` is its class.
function bar(value, most, kind = "") {
    const mark = el("span", { className: `bar ${kind}` });
    mark.style.width = `${(8 * Math.abs(value)) / most}em`;
    return mark;
}

// ---- Sections of the page. ----

const heading = (run) => (run.file ? `${run.title} (${run.file})` : run.title);

function summary(run, two) {
    const { about } = run;
    const parts = [`${plural(run.ranks, "rank")} on ${plural(run.nodes.length, "node")}`];
    if (about.program) parts.unshift(about.program);
    return el("p", { data: { summary: run.index } },
        run.file || two ? `${heading(run)}: ` : "", parts.join(", "),
        `. ${shortTime(run.end)} from the start of the launcher to its end`,
        about.simulated ? `, as wireup simulate predicts for the machine ${about.simulated}.` : ".");
}

function legend(runs) {
    const used = new Set(runs.flatMap((run) => run.rows.map((row) => row.key)));
    if (runs.some((run) => run.nodes.length > 1)) used.add("hold");
    const shown = KEYS.filter((key) => used.has(key) && !["resolve", "other"].includes(key));
    return el("ul", { className: "legend" }, ...shown.map((key) => el("li", {}, labelled(key, PHASES[key][0]))));
}

function phaseTable(run) {
    const most = maximum(run.rows.map((row) => row.adds));
    const rows = run.rows.filter((row) => row.key !== "other" || row.adds > 0).map((row) => {
        const [from, took] = row.from === null ? ["", row.adds] : [ms(row.from), row.to - row.from];
        return {
            data: { run: run.index, phase: row.name },
            cells: [labelled(row.key, rowLabel(row)), from, ms(took), ms(row.adds), bar(row.adds, most),
                PHASES[row.key][1]],
        };
    });
    const total = ["Total", ms(0), ms(run.end), ms(run.end), "", ""];
    return table(
        "Phases overlap. A phase begins when the first node or rank enters it and ends when the last one leaves it; "
        + "its own share is the time that no phase above it covers. The shares add up to the total.",
        [text("Phase"), number("Begins (ms)"), number("Takes (ms)"), number("Own share (ms)"), text(""),
            text("What happens")],
        rows.concat({ data: { run: run.index, phase: "total" }, cells: total }));
}

// The longest of many values with their owners, and the median.
function slowestOf(values, who) {
    const sorted = Float64Array.from(values).sort();
    const least = sorted[Math.max(0, sorted.length - SLOWEST_SHOWN)];
    const longest = [];
    values.forEach((value, at) => { if (value >= least) longest.push([value, at]); });
    longest.sort((one, other) => other[0] - one[0]);
    const top = longest.slice(0, SLOWEST_SHOWN).map(([value, at]) => `${who(at)} ${shortTime(value)}`);
    return { median: sorted[sorted.length >> 1], most: sorted[sorted.length - 1], top };
}

function slowestTable(run) {
    const { bootstrap, connect, job, exec, init, run: running, exit } = run.phaseSpans;
    const begins = Object.fromEntries(run.rows.map((row) => [row.name, row.from]));
    const nodeName = (node) => run.nodes[node].name;
    const rows = [];
    const add = (key, label, measured, values, who) => {
        if (values.length < 2) return;
        const { median, most, top } = slowestOf(values, who);
        rows.push({
            data: { run: run.index, slowest: label },
            cells: [labelled(key, label), measured, values.length.toLocaleString("en"), ms(median), ms(most),
                top.join(", ")],
        });
    };
    const nodes = (key, spans) => add(key, PHASES[key][0], "until the node is done, from the beginning of the phase",
        spans.map((span) => span.to - begins[key]), (at) => nodeName(spans[at].node));
    const ranks = (key, label, spans) => add(key, label, "time of the rank itself",
        spans.map((span) => span.to - span.from), (at) => `rank ${spans[at].rank} on ${nodeName(spans[at].node)}`);
    nodes("start agents", bootstrap);
    nodes("connect", connect);
    nodes("send job", job);
    ranks("spawn", "Start ranks", exec);
    ranks("init", "Load and initialize", init);
    for (const one of run.rounds.slice(0, COLLECTIVES_SHOWN)) {
        add("wait", `Enter ${one.name}`, "until the node's last rank enters, from the first rank of the job",
            one.last_in.map((at) => at - one.from), (at) => `rank ${one.last_rank[at]} on ${nodeName(one.node[at])}`);
        add("move", `Leave ${one.name}`, "until the node's ranks leave, from the entry of the last rank of the job",
            one.left.map((at) => at - one.lastIn), (at) => nodeName(one.node[at]));
    }
    ranks("run", "Run the program, collectives included", running);
    ranks("drain", "Exit", exit);
    return table("The nodes and ranks that took longest in each phase, slowest first.",
        [text("Phase"), text("What is measured"), number("Nodes or ranks"), number("Median (ms)"),
            number("Slowest (ms)"), text("Slowest nodes or ranks")], rows);
}

function exchangeSection(run) {
    if (!run.rounds.length) return el("p", {}, "The ranks exchanged no data through wireup.");
    const shown = run.rounds.slice(0, COLLECTIVES_SHOWN);
    const left = run.rounds.length - shown.length;
    const rounds = table(
        "Each exchange of data between all ranks (a collective)."
        + (left ? ` ${plural(left, "later collective")} are not listed.` : ""),
        [text("Collective"), number("Begins (ms)"), number("Ranks wait (ms)"), number("Data travels (ms)"),
            number("Data of all ranks"), text("Last rank to enter")],
        shown.map((one) => ({
            data: { run: run.index, collective: one.name },
            cells: [one.name, ms(one.from), ms(one.lastIn - one.from), ms(one.to - one.lastIn), shortBytes(one.bytes),
                `rank ${one.lastRank} on ${run.nodes[one.lastNode].name}`],
        })));
    return el("div", {}, rounds, hopTable(run));
}

function hopTable(run) {
    const slowest = run.rounds.reduce((best, one) => (one.to - one.lastIn > best.to - best.lastIn ? one : best));
    const levels = new Map();
    for (const node of run.nodes.concat(run.root || [])) {
        const none = { nodes: 0, left: -Infinity, up: [0, 0], down: [0, 0], direct: [0, 0] };
        const level = levels.get(node.level) || none;
        levels.set(node.level, level);
        level.nodes += 1;
        for (const way of ["up", "down", "direct"]) {
            level[way][0] += node[way].bytes_in;
            level[way][1] += node[way].bytes_out;
        }
    }
    slowest.node.forEach((node, at) => {
        const level = levels.get(run.nodes[node].level);
        level.left = Math.max(level.left, slowest.left[at]);
    });
    const sorted = [...levels].sort(([one], [other]) => one - other);
    const hasDirect = sorted.some(([, { direct }]) => direct[0] + direct[1] > 0);
    const rows = sorted.map(([level, { nodes, up, down, direct, left }]) => ({
        data: { run: run.index, level },
        cells: [level === 0 ? "Root of the tree" : plural(level, "hop"), nodes.toLocaleString("en"), shortBytes(up[1]),
            shortBytes(up[0]), shortBytes(down[1]), shortBytes(down[0]),
            ...(hasDirect ? [shortBytes(direct[1])] : []),
            Number.isFinite(left) ? ms(left - slowest.lastIn) : "no ranks"],
    }));
    return table(
        "Data of all collectives by distance from the root of the tree of agents. The last column is for the "
        + `collective whose data travelled longest, ${slowest.name}.`,
        [text("Distance from the root"), number("Nodes"), number("Sent to parents"), number("Received from children"),
            number("Sent to children"), number("Received from parents"),
            ...(hasDirect ? [number("Sent directly to other nodes")] : []),
            number("All data there after the last rank entered (ms)")], rows);
}

// What the simulator says nothing about: it ends its ranks at once, and their own work depends on the program.
const NOT_PREDICTED = ["stage", "run", "other"];

function comparison([one, other]) {
    const isExpected = one.about.simulated && !other.about.simulated;
    const names = one.rows.map((row) => row.name);
    other.rows.forEach((row, at) => {
        const before = at ? names.indexOf(other.rows[at - 1].name) + 1 : 0;
        if (!names.includes(row.name)) names.splice(before, 0, row.name);
    });
    const find = (run, name) => run.rows.find((row) => row.name === name);
    const all = names.map((name) => {
        const pair = [find(one, name), find(other, name)];
        const row = pair[0] || pair[1];
        const isCompared = !isExpected || (pair[0] && pair[1] && !NOT_PREDICTED.includes(row.key));
        return { row, pair, isCompared, change: (pair[1]?.adds ?? 0) - (pair[0]?.adds ?? 0) };
    });
    const compared = all.filter(({ isCompared }) => isCompared);
    const most = maximum(compared.map(({ change }) => Math.abs(change))) || 1;
    const signed = (change) => (change > 0 ? "+" : "") + ms(change);
    const rows = all.map(({ row, pair, isCompared, change }) => {
        const cells = pair.map((one) => (one ? ms(one.adds) : "none"));
        return { data: { difference: row.name }, cells: [labelled(row.key, rowLabel(row)),
            ...(isCompared ? [...cells, signed(change), bar(change, most, change > 0 ? "more" : "less")]
                : ["not predicted", cells[1], "", ""])] };
    });
    const [before, after] = isExpected
        ? [0, 1].map((at) => compared.reduce((sum, { pair }) => sum + pair[at].adds, 0)) : [one.end, other.end];
    const change = after - before;
    const percent = before ? ` (${change >= 0 ? "+" : ""}${((100 * change) / before).toFixed(1)} %)` : "";
    rows.push({ data: { difference: "total" }, cells:
        [isExpected ? "Total of what is predicted" : "Total", ms(before), ms(after), signed(change), percent] });
    const largest = compared.reduce((best, now) => (Math.abs(now.change) > Math.abs(best.change) ? now : best));
    const isSame = (change) => shortTime(Math.abs(change)) === shortTime(0);
    const [what, than] =
        isExpected ? ["The predicted phases", "expected"] : [other.title, one.title.replace("The ", "the ")];
    const words = (isSame(change) ? `${what} took as long as ${than}.`
        : `${what} took ${shortTime(Math.abs(change))} ${change > 0 ? "longer" : "less"} than ${than}${percent}.`)
        + (isSame(largest.change) ? "" : ` The largest difference is in “${rowLabel(largest.row)}”:`
            + ` ${shortTime(Math.abs(largest.change))} ${largest.change > 0 ? "longer" : "less"}.`);
    const heads = isExpected ? ["Expected (ms)", "Actual (ms)"] : [one, other].map((run) => `${run.title} (ms)`);
    return [el("h2", {}, isExpected ? "Expected and actual times" : "Difference between the two runs"),
        el("p", { id: "difference" }, words),
        table(`The time of each phase that no earlier phase covers${isExpected ? "" : ", in both runs"}.`,
            [text("Phase"), ...heads.map(number), number("Difference (ms)"), text("")], rows)];
}

function settings(run) {
    const items = run.about.settings.flatMap((line) => {
        const [, key, value] = line.match(/^([^:]*): (.*)$/) || ["", "job", line];
        return [el("dt", {}, key), el("dd", {}, value)];
    });
    return items.length ? el("dl", { data: { settings: run.index } }, ...items)
        : el("p", {}, "This trace does not contain the settings.");
}

function clocks(run) {
    const errors = run.nodes.map((node) => node.clock_error);
    const unknown = run.nodes.find((node) => node.clock_error === null);
    if (unknown) return `The clock of ${unknown.name} could not be aligned, so its times are unreliable.`;
    const worst = maximum(errors);
    if (worst === 0) return "All nodes have the same clock.";
    return `The clocks of the nodes are aligned to within ${shortTime(worst)}.`;
}

function render(runs) {
    const two = runs.length > 1;
    const report = document.getElementById("report");
    const head = (run) => (two ? [el("h3", {}, heading(run))] : []);
    const section = (title, content) =>
        [el("h2", {}, title), ...runs.flatMap((run) => [...head(run), content(run)])];
    const end = maximum(runs.map((run) => run.end));
    const timelines = runs.map((run) => new Timeline(run, end));
    report.append(
        el("h1", {}, two ? "Two starts of a job, compared" : "How this job started"),
        ...runs.map((run) => summary(run, two)),
        ...(two ? comparison(runs) : []),
        el("h2", {}, "Timeline"),
        el("p", { className: "faint keys" }, "Click a row to open it; drag from left to right to zoom in. With the "
            + "keyboard: Tab selects the timeline, arrow keys move, + and - zoom, Enter opens a row, Escape goes back, "
            + "Home shows everything."),
        legend(runs),
        ...runs.flatMap((run, at) => [...head(run), timelines[at].element]),
        ...section("Where the time went", phaseTable),
        ...section("Slowest nodes and ranks", slowestTable),
        ...section("Exchange of data", exchangeSection),
        ...section("Chosen settings, and why", settings),
        el("footer", {}, ...runs.map((run) => el("p", {}, two ? `${run.title}: ` : "", clocks(run),
            ` Written by wireup ${run.about.wireup}.`))));
    const names = runs.map((run) => run.file || run.about.program).filter((name) => name);
    document.title = `wireup report: ${names.join(", ")}`;
    const fit = () => timelines.forEach((timeline) => timeline.fit());
    fit();
    window.addEventListener("resize", fit);
    for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", fit);
    // The time from the navigation until everything is drawn, which the charts do in microtasks of their own.
    queueMicrotask(() => { document.documentElement.dataset.drawnMs = performance.now().toFixed(0); });
}

render(JSON.parse(document.getElementById("data").textContent).runs.map(analyse));
