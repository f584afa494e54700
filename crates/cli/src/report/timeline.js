// The timeline.

// ---- Lanes: for each node, or each rank of one node, which phase it was in from when to when. ----

// A lane is in one phase at a time: a segment begins where the one before ends.
function push({ segments }, key, from, to) {
    const begin = Math.max(from, segments.length ? segments[segments.length - 1].to : 0);
    if (to > begin) segments.push({ phase: KEYS.indexOf(key), from: begin, to });
}

// The phases of nodes: a phase of a node lasts until the last rank of the node has left it.
function nodeLanes(run) {
    const lanes = run.nodes.map(({ name }, node) => ({ name, node, segments: [] }));
    const add = (key, spans, from) =>
        spans.forEach((span) => push(lanes[span.node], key, from ?? span.from, span.to));
    const { bootstrap, connect, job, spawn, init, run: running, exit } = run.phaseSpans;
    add("stage", spansOf(run, "stage"));
    // From the call of the remote shell, or of the one that starts the node's parent.
    add("start agents", bootstrap, launcherSpan(run, "resolve")?.to);
    add("connect", connect);
    add("send job", job);
    spawn.forEach((span) => push(lanes[span.node], "hold", 0, span.from));
    add("spawn", spawn);
    add("init", init, 0);
    for (const one of run.rounds) {
        one.node.forEach((node, at) => {
            if (lanes[node].segments.length) push(lanes[node], "run", 0, one.first_in[at]);
            push(lanes[node], "wait", one.first_in[at], Math.min(one.lastIn, one.left[at]));
            push(lanes[node], "move", one.lastIn, one.left[at]);
        });
    }
    add("run", running.concat(exit), 0);
    add("stage", spansOf(run, "stage out"));
    return lanes;
}

function rankLanes(run, node) {
    const { exec, init, run: running, exit } = run.phaseSpans;
    const here = (spans) => spans.filter((span) => span.node === node);
    const ranks = here(exec).map((span) => span.rank).sort((one, other) => one - other);
    const inside = run.nodes[node].name;
    const lanes = new Map(ranks.map((rank) => [rank, { name: `rank ${rank}`, inside, segments: [] }]));
    for (const [key, spans] of [["spawn", exec], ["init", init], ["run", running], ["drain", exit]]) {
        here(spans).forEach((span) => push(lanes.get(span.rank), key, span.from, span.to));
    }
    return [...lanes.values()];
}

// ---- The timeline: rows of one or of many lanes, in a chart of uPlot. ----

const ROWS_MAX = 32;
const AXIS_HEIGHT = 28;
const NAMES_WIDTH_MAX = 320;

const within = (value, least, most) => Math.min(Math.max(value, least), most);

class Timeline {
    constructor(run, end) {
        Object.assign(this, { run, end, lanes: nodeLanes(run), above: [], selected: 0 });
        const button = (name, key) => el("button", { type: "button", onclick: () => this.act(key) }, name);
        this.frame = el("div", {
            tabIndex: 0, role: "application",
            ariaLabel: `Timeline of ${run.title}. Arrow keys move, plus and minus zoom, Enter opens a row, Escape goes`
                + " back.",
            onkeydown: (event) => {
                if (!event.ctrlKey && !event.metaKey && !event.altKey && this.act(event.key)) event.preventDefault();
            },
        });
        this.status = el("p", { className: "status", role: "status" });
        this.where = el("p", { className: "faint" });
        this.element = el("figure", {},
            el("div", { className: "tools" },
                button("Zoom in", "+"), button("Zoom out", "-"), button("Earlier", "ArrowLeft"),
                button("Later", "ArrowRight"), button("Open the selected row", "Enter"), button("Back", "Escape"),
                button("Show everything", "Home")),
            this.where, this.frame, this.status);
        const axis = { stroke: () => color("ink"), font: "12px system-ui, sans-serif", ticks: { show: false } };
        const nameWidth = (names) => 20 + 7 * maximum([0, ...(names ?? []).map((name) => name.length)]);
        this.plot = new uPlot({
            width: 0, height: 0, series: [{}], legend: { show: false }, padding: [0, null, 0, 0],
            scales: {
                x: { time: false, range: (_, from, to) => this.limited(from ?? 0, to ?? end) },
                y: { dir: -1, range: () => [0, this.rows] },
            },
            axes: [{
                ...axis, side: 0, size: AXIS_HEIGHT, space: 110, grid: { stroke: () => color("line"), width: 1 },
                values: (_, times) => times.map(shortTime),
            }, {
                ...axis, size: (_, names) => Math.min(nameWidth(names), NAMES_WIDTH_MAX), grid: { show: false },
                splits: () => Array.from({ length: this.rows }, (_, row) => row + 0.5),
                values: (_, middles) => middles.map((middle) => this.rowName(Math.floor(middle))),
            }],
            cursor: {
                drag: { dist: 5 },
                // A double click would show everything, although its first click has opened a row.
                bind: { dblclick: () => null },
                sync: { key: "time", filters: { pub: (type) => type === "mousemove" } },
            },
            hooks: { draw: [() => this.draw()], setCursor: [() => this.point()] },
        }, null, this.frame);
        this.plot.over.addEventListener("click", () => {
            this.selected = this.rowAtCursor();
            this.act("Enter");
        });
    }

    get rows() {
        return Math.min(ROWS_MAX, this.lanes.length);
    }

    lanesOf(row) {
        const edge = (at) => Math.floor((this.lanes.length * at) / this.rows);
        return this.lanes.slice(edge(row), edge(row + 1));
    }

    rowName(row) {
        const lanes = this.lanesOf(row);
        const [{ name }, last] = [lanes[0], lanes[lanes.length - 1]];
        return lanes.length === 1 ? name : `${name} to ${last.name} (${lanes.length.toLocaleString("en")})`;
    }

    act(key) {
        const { min, max } = this.plot.scales.x;
        const show = (before, after) =>
            this.plot.setScale("x", { min: min + before * (max - min), max: max + after * (max - min) });
        const moves = {
            ArrowLeft: () => show(-0.2, -0.2),
            ArrowRight: () => show(0.2, 0.2),
            "+": () => show(0.25, -0.25),
            "-": () => show(-0.5, 0.5),
            ArrowUp: () => { this.selected -= 1; },
            ArrowDown: () => { this.selected += 1; },
            Enter: () => this.open(),
            Escape: () => Object.assign(this, this.above.pop()),
            Home: () => {
                Object.assign(this, this.above[0], { above: [] });
                this.plot.setScale("x", { min: 0, max: this.end });
            },
        };
        const move = moves[key === "=" ? "+" : key];
        if (!move) return false;
        this.plot.batch(() => {
            move();
            this.fit();
        });
        this.status.textContent = this.rowText();
        return true;
    }

    open() {
        const [one, ...others] = this.lanesOf(this.selected);
        const lanes = others.length ? [one, ...others] : one.inside ? [] : rankLanes(this.run, one.node);
        if (!lanes.length) return;
        this.above.push({ lanes: this.lanes, selected: this.selected });
        Object.assign(this, { lanes, selected: 0 });
    }

    // A stretch of time within the run, as close as possible to the one that is asked for.
    limited(from, to) {
        const length = within(to - from, 1, this.end);
        const begin = within(from, 0, this.end - length);
        return [begin, begin + length];
    }

    // Makes the chart as large as its rows and the page say, and draws it.
    fit() {
        this.selected = within(this.selected, 0, this.rows - 1);
        this.plot.setScale("y", {});
        const rowHeight = this.rows <= 4 ? 32 : this.rows <= 16 ? 24 : 17;
        this.plot.setSize({ width: this.frame.clientWidth, height: AXIS_HEIGHT + this.rows * rowHeight });
    }

    // For each phase of a row's lanes the sum of a measure of their segments, in words.
    parts(row, measure, words) {
        const sums = KEYS.map(() => 0);
        for (const { segments } of this.lanesOf(row)) {
            segments.forEach((segment) => { sums[segment.phase] += measure(segment); });
        }
        const parts = KEYS.flatMap((key, at) => (sums[at] ? [words(PHASES[key][0].toLowerCase(), sums[at])] : []));
        return parts.join(", ") || "nothing recorded";
    }

    // How long the lanes of the selected row were in each phase, on average.
    rowText() {
        const { length } = this.lanesOf(this.selected);
        const times = this.parts(this.selected, ({ from, to }) => to - from,
            (phase, sum) => `${phase} ${shortTime(sum / length)}`);
        return `${this.rowName(this.selected)}${length > 1 ? ", on average" : ""}: ${times}.`;
    }

    rowAtCursor() {
        return within(Math.floor(this.plot.posToVal(this.plot.cursor.top, "y")), 0, this.rows - 1);
    }

    // Says in which phases the lanes at the mouse pointer are.
    point() {
        const { left } = this.plot.cursor;
        if (left < 0) return;
        const [row, at] = [this.rowAtCursor(), this.plot.posToVal(left, "x")];
        const { length } = this.lanesOf(row);
        const counts = this.parts(row, ({ from, to }) => Number(from <= at && at < to),
            (phase, count) => (length > 1 ? `${count.toLocaleString("en")} ${phase}` : phase));
        this.status.textContent = `${this.rowName(row)} at ${shortTime(at)}: ${counts}`;
    }

    draw() {
        const { ctx, over, scales: { x } } = this.plot;
        const fills = KEYS.map((key) => color(key.replace(" ", "-")));
        ctx.save();
        for (let row = 0; row < this.rows; row += 1) this.drawRow(row, fills);
        ctx.restore();
        const [top, below] = [0, 1].map((edge) => this.plot.valToPos(this.selected + edge, "y"));
        this.plot.setSelect({ left: 0, width: over.clientWidth, top, height: below - top }, false);
        const [{ inside }] = this.lanes;
        const noun = inside ? "rank" : "node";
        const each = this.lanes.length > this.rows
            ? ` Each row stands for about ${plural(Math.round(this.lanes.length / this.rows), noun)}; the height of a`
                + " colour is the share of them in that phase." : "";
        this.where.textContent = `${plural(this.lanes.length, noun)}${inside ? ` of ${inside}` : ""},`
            + ` ${shortTime(x.min)} to ${shortTime(x.max)}.${each}`
            + `${inside ? " Collectives are recorded for nodes only." : ""}`;
        this.status.textContent ||= this.rowText();
    }

    // In each column of pixels the phases are stacked by the share of the row's lanes that are in them.
    drawRow(row, fills) {
        const { ctx, bbox, scales: { x: { min, max } } } = this.plot;
        const lanes = this.lanesOf(row);
        const [top, below] = [row, row + 1].map((edge) => this.plot.valToPos(edge, "y", true));
        const columns = Math.floor(bbox.width);
        const column = (at) => ((within(at, min, max) - min) / (max - min)) * columns;
        // For each phase, how the share changes from each column to the next.
        const changes = KEYS.map(() => null);
        for (const { segments } of lanes) {
            for (const { phase, from, to } of segments) {
                changes[phase] ??= new Float64Array(columns + 2);
                spread(changes[phase], column(from), 1 / lanes.length);
                spread(changes[phase], column(to), -1 / lanes.length);
            }
        }
        const shares = KEYS.map(() => 0);
        for (let at = 0; at < columns; at += 1) {
            let y = top + 1;
            changes.forEach((change, phase) => {
                if (!change) return;
                shares[phase] += change[at];
                if (shares[phase] < 1e-6) return;
                const height = shares[phase] * (below - top - 2);
                ctx.fillStyle = fills[phase];
                // A share of few lanes among many is still visible.
                ctx.fillRect(bbox.left + at, y, 1, Math.max(height, 0.5));
                y += height;
            });
        }
    }
}

// Adds a change at a place between two columns, to both in proportion.
function spread(changes, place, change) {
    const column = Math.floor(place);
    changes[column] += change * (column + 1 - place);
    changes[column + 1] += change * (place - column);
}
